"""The feed-forward model under heads other than a softmax, in numpy: what its oracles share, and the test that holds its losses, gradients and
first moments to them."""
import os

import h5py
import numpy

from bagpipe_test import JobTest, metrics, steps
from tensors import tensors_of

FEEDFORWARD = ["model.kind=feedforward", "model.heads=", "model.layers=", "model.embedding=12", "model.order=4"]
BETA1 = 0.9


class Words:
    """h = tanh(d + H x), x the vectors of the last three words."""

    def __init__(self, tensors):
        self.t = tensors

    def hidden(self, inputs):
        vectors = self.t["wte"][inputs]
        empty = numpy.zeros(vectors.shape[1])
        x = numpy.array([numpy.concatenate([vectors[t - k] if t >= k else empty for k in range(3)]) for t in range(len(inputs))])
        return x, numpy.tanh(x @ self.t["hidden.weight"].T + self.t["hidden.bias"])

    def hidden_gradients(self, line, x, dh):
        """Of the tensors below h; dh is that of h's argument."""
        dx, dwte, E = dh @ self.t["hidden.weight"], numpy.zeros_like(self.t["wte"]), self.t["wte"].shape[1]
        for t in range(len(line) - 1):
            for k in range(min(3, t + 1)):
                dwte[line[t - k]] += dx[t, k * E:(k + 1) * E]
        return {"wte": dwte, "hidden.weight": dh.T @ x, "hidden.bias": dh.sum(axis=0)}


class HeadTest(JobTest):
    """ORACLE: `gradients` returns (loss, of each tensor) of the mean over a window. KEYS, RATE: of a training; CLOSE: of its losses."""

    def corpus(self, name, documents):
        with h5py.File(self.at(name), "w") as file:
            file["tokens"] = numpy.concatenate(documents).astype(numpy.int32)
            file["doc_start"] = numpy.cumsum([0] + [len(d) for d in documents]).astype(numpy.uint64)
            file.attrs["vocab_size"], file.attrs["eod_id"] = self.VOCABULARY, self.VOCABULARY - 1
        return self.convert(name)

    def test_losses_and_gradients_are_numpys(self):
        line = numpy.append(numpy.random.default_rng(3).integers(0, self.VOCABULARY - 1, 32), self.VOCABULARY - 1)  # one window of 32
        corpus = self.corpus("window.h5", [line])
        for ranks, keys in ((0, []), (2, ["mesh.tensor=2"])):
            folder = self.trained(f"steps-{ranks}", ranks, *self.KEYS, *keys, f"corpus.train={corpus}", "corpus.valid=",
                                  "tokenizer.path=" + self.at("tokenizer.json"), "train.batch=1", "train.steps=4", "checkpoint.every=1",
                                  "checkpoint.keep=9", f"optimizer.lr={self.RATE}", "optimizer.decay=constant", "optimizer.warmup=0")
            states = [tensors_of(os.path.join(folder, "checkpoints", step)) for step in steps(folder)]
            for s in range(1, 4):
                loss, gradients = self.ORACLE(states[s - 1]).gradients(line)
                self.assertAlmostEqual(metrics(folder)[s]["loss"], loss, delta=self.CLOSE)
                if s == 1 and ranks == 0:
                    self.slopes(self.ORACLE(states[0]), line, gradients)
                norm = numpy.sqrt(sum((g ** 2).sum() for g in gradients.values()))
                self.assertAlmostEqual(metrics(folder)[s]["grad_norm"], norm, delta=1e-5 * norm)
                for name, g in gradients.items():
                    m = BETA1 * states[s - 1]["adamw.m/" + name] + (1 - BETA1) * g * min(1, 1 / norm)
                    numpy.testing.assert_allclose(states[s]["adamw.m/" + name], m, atol=1e-5 * abs(m).max() + 1e-9, err_msg=name)

    def slopes(self, oracle, line, gradients):
        """The formulas' gradients against central differences in float64, along each tensor's own."""
        for name, g in gradients.items():
            weights, step = oracle.t[name].astype(float), 1e-5 / numpy.sqrt((g ** 2).sum())
            sides = []
            for sign in (1, -1):
                oracle.t[name] = weights + sign * step * g
                sides.append(oracle.gradients(line)[0])
            oracle.t[name] = weights
            self.assertAlmostEqual((sides[0] - sides[1]) / (2 * step) / (g ** 2).sum(), 1, delta=1e-5)
