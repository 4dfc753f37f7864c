"""FOLDER V C LOG_LIKELIHOOD LOG_EVIDENCE EFFECTIVE: samples, evidence and effective parameters of a Laplace approximation,
against the whole precision matrix, from the states and targets of all tokens."""
import sys

import h5py
import numpy

folder, v, c = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
likelihood, evidence, effective = map(float, sys.argv[4:7])


def read(name, dtype=float):
    return numpy.fromfile(folder + "/" + name, dtype)


data_tokens, tau = read("facts")
weights, states, targets = read("weights"), read("states").reshape(-1, c), read("targets", numpy.int32)
logits = states @ weights.reshape(v, c).T
logs = logits - numpy.log(numpy.exp(logits).sum(1, keepdims=True))
p = numpy.exp(logs)
assert data_tokens == len(targets)
expected = logs[numpy.arange(len(targets)), targets].sum()
numpy.testing.assert_allclose(likelihood, expected, rtol=1e-6)  # its logits are float32

# log p(D|M) ~ log p(D|W) + log p(W) + d/2 log(2 pi) - 1/2 log det P (Immer et al. 2021, eq. 4), every term as it stands there
output = (numpy.diag(p.sum(0)) - p.T @ p) / len(targets)
curvature = data_tokens * numpy.kron(output, states.T @ states / len(targets))
precision = curvature + tau * numpy.eye(v * c)
d = v * c
log_prior = -tau / 2 * weights @ weights + d / 2 * numpy.log(tau) - d / 2 * numpy.log(2 * numpy.pi)
_, logdet = numpy.linalg.slogdet(precision)
expected = expected + log_prior + d / 2 * numpy.log(2 * numpy.pi) - logdet / 2
numpy.testing.assert_allclose(evidence, expected, rtol=1e-5)
numpy.testing.assert_allclose(effective, numpy.trace(curvature @ numpy.linalg.inv(precision)), rtol=1e-5)

# tau is where the evidence is largest (scipy looks for it on its own)
from scipy.optimize import minimize_scalar

values = numpy.clip(numpy.linalg.eigvalsh(curvature), 0, None)
best = minimize_scalar(lambda t: numpy.exp(t) / 2 * weights @ weights + numpy.log1p(values * numpy.exp(-t)).sum() / 2,
                       bounds=(-20, 20), method="bounded", options={"xatol": 1e-9})
numpy.testing.assert_allclose(numpy.log(tau), best.x, atol=1e-4)

# each sample is W + P^(-1/2) Z, by the symmetric root, without the mean of that noise over outcomes
with h5py.File(folder + "/numpy.h5") as file:
    samples = file["weights"][:].astype(float).reshape(-1, v * c)
values, vectors = numpy.linalg.eigh(precision)
root = vectors / numpy.sqrt(values) @ vectors.T
noise = read("noise").reshape(-1, v * c)
centre = numpy.kron(numpy.eye(v) - 1 / v, numpy.eye(c))
numpy.testing.assert_allclose(samples, weights + noise @ root @ centre, atol=2e-5)
common = noise @ root @ (numpy.eye(v * c) - centre)
assert abs(common).max() > 100 * abs((samples - weights) @ (numpy.eye(v * c) - centre)).max()  # there was such a mean to remove

# nothing that a softmax says depends on it: probabilities are those of the whole draw
for sample, whole in zip(samples[:5], (weights + noise @ root)[:5]):
    both = [states @ w.reshape(v, c).T for w in (sample, whole)]
    both = [numpy.exp(x - x.max(1, keepdims=True)) for x in both]
    numpy.testing.assert_allclose(*(x / x.sum(1, keepdims=True) for x in both), atol=2e-4)

# and so their mean and covariance are W and that of P^-1 without it: each entry within 5 standard errors of what so many draws have
count = len(samples)
covariance = centre @ numpy.linalg.inv(precision) @ centre
deviation = numpy.sqrt(numpy.diag(covariance))
assert (abs(samples.mean(0) - weights) < 5 * deviation / numpy.sqrt(count)).all()
error = numpy.sqrt((covariance ** 2 + numpy.outer(deviation, deviation) ** 2) / count)
assert (abs((samples - weights).T @ (samples - weights) / count - covariance) < 5 * error).all()
