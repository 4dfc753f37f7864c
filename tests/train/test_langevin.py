"""Langevin dynamics and variational inference: samples of a Bayesian regression on a frozen backbone are those of the posterior in closed form;
the same bits at 1 and 4 data ranks, with tensor ranks to rounding, and after a kill; the samples are an ensemble."""
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
        other = self.tuned("data4", 4, *keys)
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
        self.write("empty.ini", "[run]\nseed = 1\n[math]\nprecision = f32\n")
        scored = run([bagpipe_test.program("bagpipe"), "score", f"run.dir={self.at('scored')}", f"score.model={killed}",
                      f"score.corpus={self.at('valid.h5')}", self.at("empty.ini")])
        self.assertEqual(scored.status, 0, str(scored))
        self.assertGreater(read_json(self.at("scored"), "score", "summary.json")["task"]["mutual_information"], 0)

    def test_variational_samples_are_of_the_mean_field_posterior(self):
        """With N documents and a decay d the best factorised Gaussian has the posterior's mean, and the variances 1 / diag(2 H'H + N d I). Mean squares of
        gradients are the diagonal of 2 H'H / N where a document's squared residual is 1/2 on average over q: the values are made so."""
        draw, documents, rate, decay, every, samples, burns = random.Random(8), 24, 0.05, 1.0, 3, 60, 10
        words = [test_finetune.document(draw, "sea", 6) for _ in range(documents)]
        keys = [*TINY, "task.kind=regression", "task.label=value", "task.pool=mean", "task.frozen_layers=1", "corpus.valid=",
                f"train.batch={documents}", "optimizer.warmup=0", "optimizer.decay=constant", f"optimizer.weight_decay={decay}", "train.log_every=1000"]
        self.corpus("zeros", [{"text": text, "value": "0"} for text in words])
        first = self.tuned("zeros", 0, *keys, f"corpus.train={self.at('zeros.h5')}", "train.steps=1")
        weights = tensors_of(os.path.join(first, "checkpoints", steps(first)[-1]))
        vocabulary = pathlib.Path(self.at("vocab.txt")).read_text(encoding="utf-8").split()
        states = numpy.array([numpy.append(mean_state(weights, [vocabulary.index(word) for word in f"[CLS] {text} [SEP]".split()]), 1)
                              for text in words])
        precision = 2 * states.T @ states + documents * decay * numpy.eye(9)
        variance = 1 / numpy.diag(precision)
        residuals = numpy.sqrt(0.5 - states ** 2 @ variance) * numpy.where(states[:, 0] > numpy.median(states[:, 0]), 1, -1)
        mean = -2 / (documents * decay) * states.T @ residuals
        values = states @ mean - residuals
        numpy.testing.assert_allclose(numpy.linalg.solve(precision, 2 * states.T @ values), mean, atol=1e-9)
        self.assertGreater((abs(mean) / numpy.sqrt(variance)).max(), 1)
        self.corpus("conjugate", [{"text": text, "value": f"{y:.6f}"} for text, y in zip(words, values)])
        keys.append(f"corpus.train={self.at('conjugate.h5')}")
        near = self.tuned("near", 0, *keys, "optimizer.kind=sgd", "optimizer.lr=0.02", "train.steps=200",
                          f"mesh.micro_batch={documents}")
        tuned = self.tuned("variational", 0, f"model.init={near}", *keys[len(TINY):], "optimizer.kind=vogn", f"optimizer.lr={rate}",
                           "optimizer.beta2=0.98", "mesh.micro_batch=1",
                           f"train.steps={every * (burns + samples)}", f"checkpoint.every={every}", f"checkpoint.keep={samples}")
        listed = [member["path"] for member in read_json(tuned, "ensemble.json")["members"]]
        self.assertEqual(listed, [f"checkpoints/{step}" for step in steps(tuned)[-samples:]])
        kept = [tensors_of(os.path.join(tuned, path)) for path in listed]
        drawn = numpy.array([numpy.append(w["task.weight"][0], w["task.bias"]) for w in kept])
        curves = numpy.mean([numpy.append(w["vogn.s/task.weight"][0], w["vogn.s/task.bias"]) / (1 - 0.98 ** (every * (burns + 1 + k)))
                             for k, w in enumerate(kept)], axis=0)
        numpy.testing.assert_allclose(documents * (curves + decay) * variance, 1, atol=0.08)  # a mean over 200 draws
        error = numpy.sqrt(variance * (1 / samples + 1 / (every * samples)))  # the second: how far the mean strays
        numpy.testing.assert_array_less(abs(drawn.mean(0) - mean) / error, 3)
        numpy.testing.assert_array_less(abs(((drawn - mean) ** 2).mean(0) / variance - 1) / math.sqrt(2 / samples), 3)

    def test_variational_samples_are_an_ensemble(self):
        tuned = self.tuned("classes", 0, *TINY, "optimizer.kind=vogn", "optimizer.lr=1e-3", "optimizer.weight_decay=0.01", "checkpoint.every=4")
        self.assertEqual(len(read_json(tuned, "ensemble.json")["members"]), 3)
        self.write("empty.ini", "[run]\nseed = 1\n[math]\nprecision = f32\n")
        scored = run([bagpipe_test.program("bagpipe"), "score", f"run.dir={self.at('classes-scored')}", f"score.model={tuned}",
                      f"score.corpus={self.at('valid.h5')}", self.at("empty.ini")])
        self.assertEqual(scored.status, 0, str(scored))
        self.assertGreater(read_json(self.at("classes-scored"), "score", "summary.json")["task"]["mutual_information"], 0)
        for fault, key in (("optimizer.no_prior", "optimizer.weight_decay=0"), ("optimizer.no_squares", "train.reduction=running")):
            self.assert_error(self.finetune("refused", 0, *TINY, "optimizer.kind=vogn", key), 78, f"[{fault}]")
        lora = self.finetune("lora", 2, "optimizer.kind=vogn", "mesh.tensor=2", "adapter.kind=lora", f"model.init={tuned}")
        self.assert_error(lora, 78, "[optimizer.no_squares]")
        tied = run([bagpipe_test.program("bagpipe"), "pretrain", self.at("tune.ini"), f"run.dir={self.at('tied')}", "model.kind=gpt", *TINY[1:],
                    "optimizer.kind=vogn", "train.batch=8", "train.steps=1", "mesh.pipeline=2"], 2)
        self.assert_error(tied, 78, "[optimizer.no_squares]")

    def test_what_has_no_number_of_targets_is_refused(self):
        config = self.write("masked.ini", f"[corpus]\ntrain = {self.at('train.h5')}\n")
        result = run([bagpipe_test.program("bagpipe"), "pretrain", config, f"run.dir={self.at('masked')}", *TINY, *SGLD, "train.batch=8", "train.steps=1"])
        self.assert_error(result, 78, "[optimizer.no_posterior]")


if __name__ == "__main__":
    bagpipe_test.main()
