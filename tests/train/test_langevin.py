"""Stochastic-gradient Langevin dynamics: samples of a Bayesian regression on a frozen backbone are those of the posterior in closed form;
the same bits at 1, 2 and 4 data ranks, with tensor ranks to rounding, and after a kill; the samples are an ensemble."""
import math
import os
import pathlib
import random
import sys

import numpy

import bagpipe_test
from bagpipe_test import digests, metrics, read_json, run, steps, timeless

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "jobs"))
import test_finetune  # noqa: E402
from tensors import tensors_of  # noqa: E402

SGLD = ["optimizer.kind=sgld", "optimizer.lr=1e-3"]
TINY = ["model.kind=bert", "model.layers=1", "model.width=8", "model.heads=2", "model.context=12"]
DOCUMENTS, DECAY, RATE, EVERY, SAMPLES = 40, 4.0, 8e-3, 80, 80


def norm(x, gain, bias):
    x = x - x.mean(-1, keepdims=True)
    return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + 1e-12) * gain + bias


def mean_state(w, ids, heads=2):
    """Of a BERT of one layer, in float64."""
    def linear(name, x):
        return x @ w[name + ".weight"].T + w[name + ".bias"]
    x = norm(w["wte"][ids] + w["wpe"][:len(ids)] + w["segments"][0], w["embedding.ln.gain"], w["embedding.ln.bias"])
    q, k, v = (linear(f"h.0.attn.{name}", x).reshape(len(ids), heads, -1).swapaxes(0, 1) for name in "qkv")
    scores = numpy.exp(q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1]))
    mixed = (scores / scores.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(len(ids), -1)
    x = norm(x + linear("h.0.attn.out", mixed), w["h.0.ln1.gain"], w["h.0.ln1.bias"])
    up = linear("h.0.mlp.up", x)
    up = up * 0.5 * (1 + numpy.vectorize(math.erf)(up / math.sqrt(2)))
    return norm(x + linear("h.0.mlp.down", up), w["h.0.ln2.gain"], w["h.0.ln2.bias"]).mean(0)


class Langevin(test_finetune.TaskTest):
    def test_samples_are_of_the_posterior(self):
        """The loss is the mean of (f - y)^2: with N documents and a decay d the posterior of head and bias is Gaussian, of the precision
        2 H'H + N d I (the bias does not decay). Each of its directions is sampled by an autoregression whose errors are known."""
        draw = random.Random(8)
        words = [test_finetune.document(draw, "sea", 6) for _ in range(DOCUMENTS)]
        values = [round(draw.uniform(-1, 1), 3) for _ in words]
        self.corpus("values", [{"text": text, "value": str(y)} for text, y in zip(words, values)])
        tuned = self.tuned("posterior", 0, *TINY, "task.kind=regression", "task.label=value", "task.pool=mean", "task.frozen_layers=1",
                           f"corpus.train={self.at('values.h5')}", "corpus.valid=", "optimizer.kind=sgld", f"optimizer.lr={RATE}",
                           f"optimizer.weight_decay={DECAY}", "optimizer.warmup=0", f"train.batch={DOCUMENTS}",
                           f"mesh.micro_batch={DOCUMENTS}", f"train.steps={EVERY * (SAMPLES + 10)}", f"checkpoint.every={EVERY}",
                           f"checkpoint.keep={SAMPLES}", "train.log_every=1000")
        listed = [member["path"] for member in read_json(tuned, "ensemble.json")["members"]]
        self.assertEqual(listed, [f"checkpoints/{step}" for step in steps(tuned)[-SAMPLES:]])
        samples = [tensors_of(os.path.join(tuned, path)) for path in listed]
        vocabulary = pathlib.Path(self.at("vocab.txt")).read_text(encoding="utf-8").split()
        states = numpy.array([numpy.append(mean_state(samples[0], [vocabulary.index(word) for word in f"[CLS] {text} [SEP]".split()]), 1)
                              for text in words])
        drawn = numpy.array([numpy.append(w["task.weight"][0], w["task.bias"]) for w in samples])
        precision = 2 * states.T @ states + DOCUMENTS * DECAY * numpy.diag([1] * 8 + [0])
        mean = numpy.linalg.solve(precision, 2 * states.T @ numpy.array(values))
        sizes, axes = numpy.linalg.eigh(precision)
        kept = (1 - sizes * RATE / DOCUMENTS) ** EVERY  # from a sample to the next
        self.assertLess(kept.max(), 0.8)
        self.assertLess((sizes * RATE / DOCUMENTS / 2).max(), 0.1)  # what the length of a step adds to variances
        along = (drawn - mean) @ axes
        error = numpy.sqrt((1 + kept) / (1 - kept) / sizes / SAMPLES)
        numpy.testing.assert_array_less(abs(along.mean(0)) / error, 3)
        error = numpy.sqrt(2 * (1 + kept ** 2) / (1 - kept ** 2) / SAMPLES)
        numpy.testing.assert_array_less(abs((along ** 2).mean(0) * sizes - 1) / error, 3)

    def test_noise_is_the_same_on_every_mesh(self):
        keys = [*test_finetune.MODEL, *SGLD, "optimizer.lr=0.1"]
        one = self.tuned("one", 0, *keys)
        for ranks in (2, 4):
            other = self.tuned(f"data{ranks}", ranks, *keys)
            self.assertEqual(timeless(metrics(one)), timeless(metrics(other)))
            self.assertEqual(digests(one), digests(other))
        tensor = self.tuned("tensor", 4, *keys, "mesh.tensor=2", "mesh.pipeline=2")
        a, b = (tensors_of(os.path.join(folder, "checkpoints", steps(folder)[-1])) for folder in (one, tensor))
        for name, values in a.items():
            self.assertLess(abs(values - b[name]).max(), 1e-3, name)
        noisy, still = (self.tuned(name, 0, *keys, f"optimizer.temperature={T}", "train.steps=1") for name, T in (("noisy", 4), ("still", 0)))
        a, b = (tensors_of(os.path.join(folder, "checkpoints", steps(folder)[-1])) for folder in (noisy, still))
        noise = numpy.concatenate([(a[name] - values).ravel() for name, values in b.items()]) / math.sqrt(2 * 0.1 * 4 / 150)
        self.assertLess(abs(noise.mean()), 3 / math.sqrt(noise.size))
        self.assertLess(abs((noise ** 2).mean() - 1), 3 * math.sqrt(2 / noise.size))
        result = self.finetune("killed", 0, *keys, "checkpoint.every=5", env=["env", "BP_FAULT=step.end:8=kill"])
        self.assertEqual(result.status, -9, str(result))
        result = self.finetune("killed", 0, *keys, "checkpoint.every=5", env=["env", "BP_FAULT=step.end:7=kill"])  # behind the last commit
        self.assertEqual(result.status, -9, str(result))
        self.assertFalse(os.path.exists(self.at("killed/ensemble.json")))
        killed = self.tuned("killed", 0, *keys, "checkpoint.every=5")
        self.assertEqual(digests(one), digests(killed))
        self.assertEqual([member["path"] for member in read_json(killed, "ensemble.json")["members"]],
                         [f"checkpoints/{step}" for step in steps(killed)])
        self.write("empty.ini", "[run]\nseed = 1\n")
        scored = run([bagpipe_test.program("bagpipe"), "score", f"run.dir={self.at('scored')}", f"score.model={killed}",
                      f"score.corpus={self.at('valid.h5')}", self.at("empty.ini")])
        self.assertEqual(scored.status, 0, str(scored))
        self.assertGreater(read_json(self.at("scored"), "score", "summary.json")["task"]["mutual_information"], 0)

    def test_what_has_no_number_of_targets_is_refused(self):
        config = self.write("masked.ini", f"[corpus]\ntrain = {self.at('train.h5')}\n")
        result = run([bagpipe_test.program("bagpipe"), "pretrain", config, f"run.dir={self.at('masked')}", *TINY, *SGLD, "train.batch=8", "train.steps=1"])
        self.assert_error(result, 78, "[optimizer.no_posterior]")


if __name__ == "__main__":
    bagpipe_test.main()
