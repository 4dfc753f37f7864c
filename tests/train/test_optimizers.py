"""Every optimizer against numpy twins in float64, written from torch.optim's definitions and the papers': five updates of a feed-forward
model whose gradients are numpy's too; the same bits at 1 and 4 data ranks, with tensor ranks to rounding, and after a resume."""
import os
import sys

import h5py
import numpy

import bagpipe_test
from bagpipe_test import JobTest, digests, metrics, program, steps

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
from tensors import tensors_of  # noqa: E402
from test_feedforward import COMMON, Oracle  # noqa: E402

RATES = {"sgd": 0.05, "adagrad": 0.01, "adadelta": 1.0, "rmsprop": 1e-3, "lamb": 0.01, "adafactor": 0.01}
DECAY, STEPS = 0.1, 5


class Twin:
    """Weights and their moments by the definitions. A tensor's weight decay is 0 but for matrices."""

    def __init__(self, kind, rate, weights, momentum=0.9):
        self.kind, self.rate, self.w, self.t, self.momentum = kind, rate, dict(weights), 0, momentum
        self.m = {k: numpy.zeros_like(v) for k, v in weights.items()}
        self.v = {k: numpy.zeros_like(v) for k, v in weights.items()}
        self.rows = {k: numpy.zeros(v.shape[:1]) for k, v in weights.items()}
        self.columns = {k: numpy.zeros(v.shape[1:]) for k, v in weights.items()}

    def update(self, gradients):
        self.t += 1
        for name, g in gradients.items():
            decay = DECAY if g.ndim == 2 else 0
            self.w[name] = getattr(self, self.kind)(name, self.w[name], g, decay)

    def sgd(self, k, w, g, decay):
        self.m[k] = self.momentum * self.m[k] + (g + decay * w)
        return w - self.rate * self.m[k]

    def adagrad(self, k, w, g, decay):
        g = g + decay * w
        self.v[k] = self.v[k] + g * g
        return w - self.rate * g / (numpy.sqrt(self.v[k]) + 1e-10)

    def adadelta(self, k, w, g, decay, rho=0.9, epsilon=1e-6):
        g = g + decay * w
        self.v[k] = rho * self.v[k] + (1 - rho) * g * g
        step = numpy.sqrt(self.m[k] + epsilon) / numpy.sqrt(self.v[k] + epsilon) * g
        self.m[k] = rho * self.m[k] + (1 - rho) * step * step
        return w - self.rate * step

    def rmsprop(self, k, w, g, decay, alpha=0.99):
        g = g + decay * w
        self.v[k] = alpha * self.v[k] + (1 - alpha) * g * g
        self.m[k] = self.momentum * self.m[k] + g / (numpy.sqrt(self.v[k]) + 1e-8)
        return w - self.rate * self.m[k]

    def lamb(self, k, w, g, decay, beta1=0.9, beta2=0.95):
        self.m[k] = beta1 * self.m[k] + (1 - beta1) * g
        self.v[k] = beta2 * self.v[k] + (1 - beta2) * g * g
        step = self.m[k] / (1 - beta1 ** self.t) / (numpy.sqrt(self.v[k] / (1 - beta2 ** self.t)) + 1e-6) + decay * w
        norm, length = numpy.sqrt((w ** 2).sum()), numpy.sqrt((step ** 2).sum())
        return w - self.rate * (norm / length if w.ndim == 2 and norm > 0 and length > 0 else 1) * step

    def adafactor(self, k, w, g, decay):
        keep = 1 - self.t ** -0.8
        square = g * g + 1e-30
        if g.ndim == 2:
            self.rows[k] = keep * self.rows[k] + (1 - keep) * square.sum(axis=1)
            self.columns[k] = keep * self.columns[k] + (1 - keep) * square.sum(axis=0)
            v = numpy.outer(self.rows[k], self.columns[k]) / self.rows[k].sum()
        else:
            v = self.v[k] = keep * self.v[k] + (1 - keep) * square
        step = g / numpy.sqrt(v)
        step = step / max(1, numpy.sqrt((step ** 2).mean()))
        return w - self.rate * decay * w - max(1e-3, numpy.sqrt((w ** 2).mean())) * self.rate * step


class Optimizers(JobTest):
    def feedforward(self, name, ranks, kind, *keys):
        return self.trained(name, ranks, *COMMON, f"optimizer.kind={kind}", *keys)

    def test_five_updates_are_numpys(self):
        line = numpy.append(numpy.random.default_rng(3).integers(0, self.VOCABULARY - 1, 32), self.VOCABULARY - 1)
        with h5py.File(self.at("window.h5"), "w") as file:
            file["tokens"], file["doc_start"] = line.astype(numpy.int32), numpy.array([0, len(line)], numpy.uint64)
            file.attrs["vocab_size"], file.attrs["eod_id"] = self.VOCABULARY, self.VOCABULARY - 1
        corpus = self.convert("window.h5")
        keys = [f"corpus.train={corpus}", "corpus.valid=", "tokenizer.path=" + self.at("tokenizer.json"), "train.batch=1", "checkpoint.every=1",
                "checkpoint.keep=9", "optimizer.decay=constant", "optimizer.warmup=0"]
        start = self.feedforward("start", 0, "adamw", "train.steps=1", *keys)
        weights = tensors_of(os.path.join(start, "checkpoints", steps(start)[-1]))
        weights = {k: v for k, v in weights.items() if "/" not in k}
        for kind, rate, momentum in [(k, r, 0.9 if k == "sgd" else 0) for k, r in RATES.items()] + [("rmsprop", 1e-3, 0.5), ("sgd", 0.05, 0)]:
            more = [] if momentum in (0, 0.9) and not (kind == "sgd" and momentum == 0) else [f"optimizer.momentum={momentum}"]
            with self.subTest(kind=kind, momentum=momentum):
                folder = self.feedforward(f"{kind}-{momentum}", 0, kind, f"model.init={start}", f"train.steps={STEPS}", f"optimizer.lr={rate}",
                                          *keys, *more)
                twin = Twin(kind, rate, weights, momentum)
                for s in range(STEPS):
                    loss, gradients = Oracle(twin.w, 4, False).gradients(line)
                    self.assertAlmostEqual(metrics(folder)[s]["loss"], loss, delta=2e-6)
                    norm = numpy.sqrt(sum((g ** 2).sum() for g in gradients.values()))
                    twin.update({k: g * min(1, 1 / norm) for k, g in gradients.items()})
                after = tensors_of(os.path.join(folder, "checkpoints", steps(folder)[-1]))
                for name, want in twin.w.items():
                    # a gradient near 1e-6 is float32's sum of larger ones: its step, over its own root, differs by CPU
                    numpy.testing.assert_allclose(after[name], want, atol=4e-6, err_msg=f"{kind} {name}")
                    self.assertGreater(abs(want - weights[name]).max(), 1e-4, name)

    def test_variational_updates_are_numpys(self):
        """Squares of each window's gradients with micro-batches of one, of pairs' with two; without noise, then the noise alone."""
        line = numpy.append(numpy.random.default_rng(3).integers(0, self.VOCABULARY - 1, 128), self.VOCABULARY - 1)
        with h5py.File(self.at("windows.h5"), "w") as file:
            file["tokens"], file["doc_start"] = line.astype(numpy.int32), numpy.array([0, len(line)], numpy.uint64)
            file.attrs["vocab_size"], file.attrs["eod_id"] = self.VOCABULARY, self.VOCABULARY - 1
        keys = ["corpus.train=" + self.convert("windows.h5"), "corpus.valid=", "tokenizer.path=" + self.at("tokenizer.json"), "train.batch=4",
                "checkpoint.every=1", "checkpoint.keep=9", "optimizer.decay=constant", "optimizer.warmup=0", "optimizer.weight_decay=0.01"]
        rate, keeps, decay, damping = 1e-3, 0.9, 0.01, 1e-3
        keys += [f"optimizer.lr={rate}", f"optimizer.beta2={keeps}", f"optimizer.epsilon={damping}"]
        first = self.feedforward("first", 0, "adamw", "train.steps=1", *keys)
        start = tensors_of(os.path.join(first, "checkpoints", steps(first)[-1]))
        mean = {k: v for k, v in start.items() if "/" not in k}
        s = {k: numpy.zeros_like(v) for k, v in mean.items()}
        still = self.feedforward("still", 0, "vogn", f"model.init={first}", f"train.steps={STEPS}", "optimizer.temperature=0",
                                 "mesh.micro_batch=1", *keys)
        for t in range(1, STEPS + 1):
            each = [Oracle(mean, 4, False).gradients(line[32 * k:32 * k + 33]) for k in range(4)]
            self.assertAlmostEqual(metrics(still)[t - 1]["loss"], sum(loss for loss, _ in each) / 4, delta=2e-6)
            for k in mean:
                leaves = [gradients[k] / 4 for _, gradients in each]  # of the mean over 128 targets
                s[k] = keeps * s[k] + (1 - keeps) * 128 * sum(g ** 2 for g in leaves)
                mean[k] = mean[k] - rate * (sum(leaves) + decay * mean[k]) / (s[k] / (1 - keeps ** t) + decay + damping)
        after = tensors_of(os.path.join(still, "checkpoints", steps(still)[-1]))
        for k, want in mean.items():
            numpy.testing.assert_allclose(after[k], want, atol=2e-6, err_msg=k)
            numpy.testing.assert_array_equal(after[k], after[f"vogn.mean/{k}"])
            numpy.testing.assert_allclose(after[f"vogn.s/{k}"], s[k], rtol=1e-3, atol=1e-6 * s[k].max(), err_msg=k)
            self.assertGreater(abs(want - start[k]).max(), 1e-4, k)
        noisy = self.feedforward("noisy", 0, "vogn", f"model.init={first}", "train.steps=1", "optimizer.temperature=2", "mesh.micro_batch=2",
                                 *keys)
        after, z = tensors_of(os.path.join(noisy, "checkpoints", steps(noisy)[-1])), []
        for k, before in ((k, v) for k, v in start.items() if "/" not in k):
            p = after[f"vogn.s/{k}"] / (1 - keeps) + decay + damping
            z.append(((after[k] - after[f"vogn.mean/{k}"]) * numpy.sqrt(128 * p / 2)).ravel())
            self.assertLess(abs(after[f"vogn.mean/{k}"] - before).max(), 0.1)
        z = numpy.concatenate(z)
        self.assertLess(abs(z.mean()), 3 / numpy.sqrt(z.size))
        self.assertLess(abs((z ** 2).mean() - 1), 3 * numpy.sqrt(2 / z.size))
        pairs = [Oracle({k: v for k, v in start.items() if "/" not in k}, 4, False).gradients(line[32 * k:32 * k + 33])[1] for k in range(4)]
        squares = [128 * sum(((pairs[a]["head"] + pairs[b]["head"]) / 4) ** 2 for a, b in split)
                   for split in (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2)))]
        self.assertLess(min(abs(after["vogn.s/head"] / (1 - keeps) - want).max() / want.max() for want in squares), 1e-4)

    def test_data_ranks_have_the_same_bits_and_so_has_a_resume(self):
        for kind, rate in [*RATES.items(), ("vogn", 1e-3)]:
            keys = [f"optimizer.lr={rate}", "train.steps=6", "checkpoint.every=3", "checkpoint.keep=9", "model.embedding=24"]
            one = self.feedforward(f"{kind}-one", 0, kind, *keys)
            self.assertEqual(digests(one), digests(self.feedforward(f"{kind}-4", 4, kind, *keys)), f"{kind} 4")
            if kind in ("adadelta", "adafactor", "vogn"):  # two moments; factors; a mean
                killed = self.background([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at(f'{kind}-killed')}", *COMMON,
                                          f"optimizer.kind={kind}", *keys], 2, env={"BP_FAULT": "step.end:5=kill"})
                killed.communicate()
                self.assertNotEqual(killed.returncode, 0)
                self.assertEqual(digests(one), digests(self.feedforward(f"{kind}-killed", 2, kind, *keys)), f"{kind} resumed")
            tensor = self.feedforward(f"{kind}-tensor", 4, kind, *keys, "mesh.tensor=2")
            for a, b in zip(metrics(one), metrics(tensor)):
                self.assertAlmostEqual(a["loss"], b["loss"], delta=2e-5, msg=kind)
            self.assertEqual(set(digests(one)), set(digests(tensor)))


if __name__ == "__main__":
    bagpipe_test.main()
