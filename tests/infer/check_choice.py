"""FOLDER ROWS V: rows (float32) with, for each, a rule (temperature, top_k, top_p: float64) and what was left (a probability, 0: left
out, float64 [V]). numpy sorts all of a row; the sets are equal, and probabilities are."""
import sys

import numpy

folder, rows, v = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
scores = numpy.fromfile(folder + "/scores", dtype=numpy.float32).reshape(rows, v).astype(float)
rules = numpy.fromfile(folder + "/rules").reshape(rows, 3)
found = numpy.fromfile(folder + "/found").reshape(rows, v)
kept = 0
for row, (temperature, top_k, top_p), probability in zip(scores, rules, found):
    scaled = row / temperature
    order = numpy.argsort(-scaled, kind="stable")
    if top_k > 0:
        order = order[:int(top_k)]
    weight = numpy.exp(scaled[order] - scaled.max())
    mass = numpy.cumsum(weight / weight.sum())
    if top_p < 1:
        order = order[:int(numpy.searchsorted(mass, top_p)) + 1]
    expected = numpy.zeros(v)
    expected[order] = numpy.exp(scaled[order] - scaled.max())
    expected /= expected.sum()
    numpy.testing.assert_array_equal(probability > 0, expected > 0)
    numpy.testing.assert_allclose(probability, expected, rtol=1e-12)
    kept += (probability > 0).sum()
assert 0.02 < kept / rows / v < 0.9, kept  # not all rules keep all, or next to nothing
