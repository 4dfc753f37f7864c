"""FOLDER K N: gram is x^T x / K + diag(0, 1, 2, ...) on and above the diagonal, and values are its eigenvalues."""
import sys

import numpy

folder, k, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
x = numpy.fromfile(folder + "/x").reshape(k, n)
gram = numpy.fromfile(folder + "/gram").reshape(n, n)
values = numpy.fromfile(folder + "/values")
expected = x.T @ x / k + numpy.diag(numpy.arange(n))
upper = numpy.triu_indices(n)
numpy.testing.assert_allclose(gram[upper], expected[upper], rtol=0, atol=1e-12)
numpy.testing.assert_allclose(values, numpy.linalg.eigvalsh(expected), rtol=1e-12)
