"""FOLDER V C LOG_EVIDENCE EFFECTIVE: samples, evidence and effective parameters of a Laplace approximation, against the
whole precision matrix."""
import sys

import h5py
import numpy

folder, v, c = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
evidence, effective = float(sys.argv[4]), float(sys.argv[5])


def read(name):
    return numpy.fromfile(folder + "/" + name)


data_tokens, tau = read("facts")
curvature = data_tokens * numpy.kron(read("output").reshape(v, v), read("input").reshape(c, c))
precision = curvature + tau * numpy.eye(v * c)
weights = read("weights")

_, logdet = numpy.linalg.slogdet(precision)
expected = -tau / 2 * weights @ weights + v * c / 2 * numpy.log(tau) - logdet / 2
numpy.testing.assert_allclose(evidence, expected, rtol=1e-5)
numpy.testing.assert_allclose(effective, numpy.trace(curvature @ numpy.linalg.inv(precision)), rtol=1e-5)

# tau is where the evidence is largest (scipy looks for it on its own)
from scipy.optimize import minimize_scalar

values = numpy.clip(numpy.linalg.eigvalsh(curvature), 0, None)
best = minimize_scalar(lambda t: numpy.exp(t) / 2 * weights @ weights + numpy.log1p(values * numpy.exp(-t)).sum() / 2,
                       bounds=(-20, 20), method="bounded", options={"xatol": 1e-9})
numpy.testing.assert_allclose(numpy.log(tau), best.x, atol=1e-4)

# each sample is W + P^(-1/2) Z, by the symmetric root
with h5py.File(folder + "/numpy.h5") as file:
    samples = file["weights"][:].astype(float).reshape(-1, v * c)
values, vectors = numpy.linalg.eigh(precision)
root = vectors / numpy.sqrt(values) @ vectors.T
noise = read("noise").reshape(-1, v * c)
numpy.testing.assert_allclose(samples, weights + noise @ root, atol=2e-5)

# and so their mean and covariance are W and P^-1: each entry within 5 standard errors of what so many draws have
count = len(samples)
covariance = numpy.linalg.inv(precision)
deviation = numpy.sqrt(numpy.diag(covariance))
assert (abs(samples.mean(0) - weights) < 5 * deviation / numpy.sqrt(count)).all()
error = numpy.sqrt((covariance ** 2 + numpy.outer(deviation, deviation) ** 2) / count)
assert (abs((samples - weights).T @ (samples - weights) / count - covariance) < 5 * error).all()
