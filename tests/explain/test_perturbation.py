"""Surrogates and Shapley values again: by scikit-learn and by their definitions in numpy, on values drawn at random; and those of float64
software that is not ours, ../shared/reference/explain-tiny, where it is there.

    test_perturbation.py PROBE SHARED      the program explain_probe
"""
import itertools
import json
import math
import os
import struct
import subprocess
import sys
import unittest

try:
    import numpy
    from sklearn.linear_model import Ridge
except ImportError:
    print("skipped: there is no numpy or scikit-learn")
    sys.exit(77)

PROBE = SHARED = None


def probe(kind, *arrays):
    words = []
    for array in arrays:
        array = numpy.atleast_1d(numpy.asarray(array, dtype=numpy.float64)).ravel()
        words += [str(array.size), *(repr(float(x)) for x in array)]
    result = subprocess.run([PROBE, kind], input=" ".join(words), capture_output=True, text=True, check=True)
    return numpy.array([float(x) for x in result.stdout.split()])


def sets_of(M):
    return numpy.array([[s >> f & 1 for f in range(M)] for s in range(2 ** M)])


def exact(values, M):
    """The definition: the mean over all orders of what a feature adds when it comes."""
    phi = numpy.zeros(M)
    for order in itertools.permutations(range(M)):
        there = 0
        for f in order:
            phi[f] += values[there | 1 << f] - values[there]
            there |= 1 << f
    return phi / math.factorial(M)


def kernel_of(masks):
    M = masks.shape[1]
    d = 100 * (1 - numpy.sqrt(masks.sum(axis=1) / M))
    return numpy.sqrt(numpy.exp(-d ** 2 / 25 ** 2))


def surrogate(masks, values, wanted=0):
    """lime_base's own steps, with scikit-learn's regressions."""
    weights, M = kernel_of(masks), masks.shape[1]
    if 0 < wanted < M and wanted <= 6:
        used = []
        for _ in range(wanted):
            scores = {}
            for f in set(range(M)) - set(used):
                columns = masks[:, [*used, f]]
                scores[f] = Ridge(alpha=0).fit(columns, values, sample_weight=weights).score(columns, values, weights)
            used.append(max(scores, key=lambda f: (scores[f], -f)))
    elif 0 < wanted < M:
        used = numpy.argsort(-numpy.abs(Ridge(alpha=0.01).fit(masks, values, sample_weight=weights).coef_), kind="stable")[:wanted]
    else:
        used = range(M)
    used = list(used)
    fit = Ridge(alpha=1).fit(masks[:, used], values, sample_weight=weights)
    found = numpy.zeros(M)
    found[used] = fit.coef_
    return numpy.array([*found, fit.intercept_, fit.score(masks[:, used], values, weights), fit.predict(masks[:1, used])[0]])


class Definitions(unittest.TestCase):
    def near(self, got, want, delta=1e-9):
        numpy.testing.assert_allclose(got, want, rtol=0, atol=delta)

    def test_surrogates_are_those_of_scikit_learn(self):
        draw = numpy.random.default_rng(1)
        for M, wanted in ((1, 0), (3, 0), (9, 0), (9, 2), (9, 6), (20, 8)):
            masks = probe("draw_surrogate", M, 80, 7 + M).reshape(80, M)
            values = draw.normal(size=80)
            self.near(probe("surrogate", M, masks, values, wanted), surrogate(masks, values, wanted))

    def test_exact_values_are_means_over_all_orders(self):
        draw = numpy.random.default_rng(2)
        for M in (1, 2, 5):
            values = draw.normal(size=2 ** M)
            phi = probe("exact", M, values)
            self.near(phi, exact(values, M))
            self.near(phi.sum(), values[-1] - values[0])

    def test_the_kernel_on_all_sets_is_exact(self):
        draw = numpy.random.default_rng(3)
        M = 7
        values, sets = draw.normal(size=2 ** M), sets_of(M)
        order = [2 ** M - 1, 0, *range(1, 2 ** M - 1)]
        size = sets.sum(axis=1)[order[2:]]
        weights = (M - 1) / (numpy.array([math.comb(M, k) for k in size]) * size * (M - size))
        self.near(probe("shapley", M, sets[order], values[order], weights)[:M], probe("exact", M, values))

    def test_values_of_drawn_sets_are_least_squares_that_sum_exactly(self):
        draw = numpy.random.default_rng(4)
        M, texts = 6, 40
        masks = probe("draw_shapley", M, texts, 5).reshape(texts, M)
        values = draw.normal(size=texts)
        phi = probe("shapley", M, masks, values, [])[:M]
        self.near(phi.sum(), values[0] - values[1])
        x = masks[2:, :-1] - masks[2:, -1:]
        y = values[2:] - values[1] - masks[2:, -1] * (values[0] - values[1])
        self.near(phi[:-1], numpy.linalg.lstsq(x, y, rcond=None)[0])

    def test_too_few_sets_have_no_error_and_still_sum(self):
        masks = probe("draw_shapley", 9, 5, 5).reshape(5, 9)
        found = probe("shapley", 9, masks, [1, 0, 0.25, 0.5, 0.75], [])
        self.near(found[:9].sum(), 1)
        self.assertTrue(numpy.isnan(found[9:]).all())

    def test_errors_are_the_spread_over_draws(self):
        """Of values that are no sums of their features; each estimate tells its own error within a fifth, in the mean."""
        draw = numpy.random.default_rng(6)
        M, texts, runs = 6, 300, 150
        table = draw.normal(size=2 ** M)
        found = []
        for seed in range(runs):
            masks = probe("draw_shapley", M, texts, seed).reshape(texts, M)
            rows = masks.astype(int) @ (1 << numpy.arange(M))
            found.append(probe("shapley", M, masks, table[rows], []))
        found = numpy.array(found)
        self.assertLess(numpy.abs(found[:, M:].mean(axis=0) / found[:, :M].std(axis=0, ddof=1) - 1).max(), 0.2)
        want = probe("exact", M, table)
        self.assertLess(numpy.abs(found[:, :M].mean(axis=0) - want).max(), 5 * found[:, M:].max() / math.sqrt(runs))

    def test_sets_are_drawn_as_they_should_be(self):
        M, texts = 5, 6000
        masks = probe("draw_surrogate", M, texts, 1).reshape(texts, M)
        self.assertTrue((masks[0] == 1).all())
        share = numpy.bincount(M - masks[1:].sum(axis=1).astype(int), minlength=M + 1) / (texts - 1)
        self.near(share, [0, *[1 / M] * M], 0.03)
        self.near(masks[1:].mean(axis=0), [1 - (M + 1) / (2 * M)] * M, 0.03)
        masks = probe("draw_shapley", M, texts, 1).reshape(texts, M)
        self.assertTrue((masks[0] == 1).all() and (masks[1] == 0).all())
        chance = numpy.array([0, *[1 / (k * (M - k)) for k in range(1, M)], 0])
        self.near(numpy.bincount(masks[2:].sum(axis=1).astype(int), minlength=M + 1) / (texts - 2), chance / chance.sum(), 0.03)
        self.near(masks[2:].mean(axis=0), [0.5] * M, 0.03)
        self.assertTrue((probe("draw_shapley", M, 100, 1).reshape(100, M) == masks[:100]).all(), "a text depends on its own number alone")


class Reference(unittest.TestCase):
    """What lime, shap and Captum give on tables of probabilities, in float64."""

    @classmethod
    def setUpClass(cls):
        folder = os.path.join(SHARED or "", "reference/explain-tiny/bert-sequence-tiny")
        if not os.path.isdir(folder):
            raise unittest.SkipTest("there is no ../shared/reference/explain-tiny")
        with open(os.path.join(folder, "expected.json"), encoding="utf-8") as file:
            cls.expected = json.load(file)
        with open(os.path.join(folder, "expected.safetensors"), "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
            data = file.read()
        cls.arrays = {name: numpy.frombuffer(data[tensor["data_offsets"][0]:tensor["data_offsets"][1]], {"F64": "f8", "I32": "i4", "F32": "f4"}[tensor["dtype"]])
                      .reshape(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__"}

    def cases(self):
        for d in range(3):
            for removal in ("deletion", "mask"):
                expected = self.expected[f"doc{d}"]["perturbations"][removal]
                table = self.arrays[f"doc{d}.{removal}.table"]
                for c in range(3):
                    yield d, expected, table[:, c], c

    def rows(self, masks):
        return masks.astype(int) @ (1 << numpy.arange(masks.shape[1]))

    def test_lime(self):
        for d, expected, table, c in self.cases():
            masks, want = self.arrays[f"doc{d}.lime.mask"], expected["lime"]["classes"][c]
            M = masks.shape[1]
            found = probe("surrogate", M, masks, table[self.rows(masks)], 0)
            numpy.testing.assert_allclose(found, [*want["weights"], want["intercept"], want["r2"], want["local_prediction"]], rtol=0, atol=1e-9)
            found = probe("surrogate", M, masks, table[self.rows(masks)], 3)
            numpy.testing.assert_allclose(found[want["forward_selection_3"]], want["weights_3"], rtol=0, atol=1e-9)
            numpy.testing.assert_allclose(found[M:M + 2], [want["intercept_3"], want["r2_3"]], rtol=0, atol=1e-9)
            self.assertEqual(numpy.count_nonzero(found[:M]), 3)

    def test_shapley(self):
        for d, expected, table, c in self.cases():
            masks, want = self.arrays[f"doc{d}.shap.mask"], expected["shap"]
            M = masks.shape[1]
            numpy.testing.assert_allclose(probe("exact", M, table), numpy.array(want["exact"])[:, c], rtol=0, atol=1e-9)
            found = probe("shapley", M, masks, table[self.rows(masks)], [])[:M]
            numpy.testing.assert_allclose(found, numpy.array(want["kernel_sampled"])[:, c], rtol=0, atol=1e-9)


if __name__ == "__main__":
    PROBE, SHARED = sys.argv[1:3]
    del sys.argv[1:3]
    unittest.main()
