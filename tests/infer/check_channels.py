"""FOLDER MEMBERS TOKENS VOCABULARY MESHES: every number that an ensemble tells of each token, and its temperature, again by numpy and
scipy in float64 from the members' float32 logits.

Tolerances: a float32 log-probability near -10 is known to 5e-7, and on other meshes the products before the logits are summed in another
order besides, which makes that 2.5e-6. Probabilities, and what is summed of them, have this as their relative error, and a variance,
of distances near 1, thrice that: 1e-5 is ten times what was seen. A wrong formula is off by far more (a variance over M - 1 by a half).
"""
import sys

import numpy
import scipy.optimize
import scipy.special

NAMES = ("logprob", "total_entropy", "expected_entropy", "mutual_information", "logprob_variance", "agreement", "confidence", "correct",
         "brier", "tempered_logprob", "tempered_confidence", "tempered_brier")

folder = sys.argv[1]
members, tokens, vocabulary, meshes = (int(x) for x in sys.argv[2:])


def load(name, mesh, kind):
    return numpy.fromfile(f"{folder}/{name}{mesh}", dtype=kind)


logits = load("logits", 0, "f4").reshape(members, tokens, vocabulary).astype("f8")
targets = load("targets", 0, "i4")
scored = targets >= 0
logits, target = logits[:, scored], targets[scored]
rows = numpy.arange(target.size)

each = scipy.special.log_softmax(logits, axis=2)  # [members, rows, vocabulary]
mixture = scipy.special.logsumexp(each, axis=0) - numpy.log(members)
p = numpy.exp(mixture)
top = p.argmax(axis=1)
member_logprob = each[:, rows, target]
want = {
    "logprob": mixture[rows, target],
    "total_entropy": scipy.special.entr(p).sum(axis=1),  # on its own, not as a sum of the next two
    "expected_entropy": scipy.special.entr(numpy.exp(each)).sum(axis=2).mean(axis=0),
    "mutual_information": scipy.special.rel_entr(numpy.exp(each), p).sum(axis=2).mean(axis=0),
    "logprob_variance": member_logprob.var(axis=0),
    "agreement": (each.argmax(axis=2) == top).mean(axis=0),
    "confidence": p.max(axis=1),
    "correct": (top == target).astype(float),
    "brier": ((p - numpy.eye(vocabulary)[target]) ** 2).sum(axis=1),
}
q = scipy.special.softmax(mixture / 1.3, axis=1)  # at the temperature of the C test
want.update({"tempered_logprob": numpy.log(q[rows, target]), "tempered_confidence": q.max(axis=1),
             "tempered_brier": ((q - numpy.eye(vocabulary)[target]) ** 2).sum(axis=1)})
want.update({f"member {m}": member_logprob[m] for m in range(members)})
# Else nothing was tried.
assert 0 < want["correct"].mean() < 1 and 0 < want["agreement"].mean() < 1 and want["mutual_information"].max() > 0.1


def nll(beta):
    """NLL at the inverse temperature: the mixture to the power of it, made to sum to 1."""
    return -scipy.special.log_softmax(beta * mixture, axis=1)[rows, target].sum()


best = scipy.optimize.minimize_scalar(lambda t: nll(1 / t), bounds=(0.5, 2), method="bounded", options={"xatol": 1e-9})
assert best.success and 0.6 < best.x < 1.9

for mesh in range(meshes):
    values = load("values", mesh, "f4").reshape(-1, tokens)
    assert list(want)[:len(NAMES)] == list(NAMES) and len(values) == len(want)
    assert numpy.isnan(values[:, ~scored]).all()
    for got, (name, numbers) in zip(values[:, scored], want.items()):
        numpy.testing.assert_allclose(got, numbers, rtol=1e-5, err_msg=f"{name}, mesh {mesh}")

    # Sums over tokens, each as exact as a log-probability; f'' is the variance of log p under p^beta.
    beta = load("beta", mesh, "f8")
    numpy.testing.assert_allclose(beta, 2.0 ** ((numpy.arange(25) - 12) / 8), rtol=1e-7)  # as float32
    tempered = scipy.special.softmax(beta[:, None, None] * mixture, axis=2)
    mean = (tempered * mixture).sum(axis=2)
    sums = {"value": numpy.array([nll(b) for b in beta]),
            "first": (mean - mixture[rows, target]).sum(axis=1),
            "second": (tempered * (mixture - mean[:, :, None]) ** 2).sum(axis=(1, 2))}
    for name, numbers in sums.items():
        numpy.testing.assert_allclose(load(name, mesh, "f8"), numbers, rtol=1e-5, atol=1e-6 * target.size, err_msg=f"{name}, mesh {mesh}")

    # The slope at the minimum is known to 1e-6 a token (above), and the curvature there is more than 1 a token: so is the temperature.
    temperature, at_best, at_edge, at_another = load("fit", mesh, "f8")
    assert at_edge == 0 and numpy.interp(1 / best.x, beta, sums["second"]) > target.size
    numpy.testing.assert_allclose(temperature, best.x, rtol=2e-6)
    numpy.testing.assert_allclose([at_best, at_another], [best.fun / target.size, nll(1 / 1.3) / target.size], rtol=1e-6)
