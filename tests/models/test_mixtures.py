"""Mixtures of experts in whole trainings: the figures of who chose whom are numpy's, and the same on every mesh; the same bits on 1 and 4 data ranks and
after a kill. Their losses and gradients are those of models.stack and models.references."""
import os

import h5py
import numpy

import bagpipe_test
from bagpipe_test import JobTest, digests, metrics, program, run, steps, timeless
from tensors import tensors_of

EXPERTS, CHOSEN, BALANCE = 5, 2, 0.1
MIXTURE = ["model.kind=mixtral", "model.kv_heads=2", "model.inner=24", f"model.experts={EXPERTS}", f"model.experts_chosen={CHOSEN}",
           f"model.experts_balance={BALANCE}"]
FIGURES = ("experts_largest", "experts_entropy", "loss_balance")


def norm(x, gain, epsilon=1e-5):
    return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * gain


class Mixtures(JobTest):
    TEXT_BYTES = 20_000

    def test_figures_are_those_of_numpy(self):
        """Of windows of one token, in which attention gives each token its own values."""
        line = numpy.append(numpy.random.default_rng(5).integers(0, self.VOCABULARY - 1, 48), self.VOCABULARY - 1)
        with h5py.File(self.at("line.h5"), "w") as file:
            file["tokens"], file["doc_start"] = line.astype(numpy.int32), numpy.array([0, len(line)], numpy.uint64)
            file.attrs["vocab_size"], file.attrs["eod_id"] = self.VOCABULARY, self.VOCABULARY - 1
        folder = self.trained("figures", 0, *MIXTURE, "corpus.train=" + self.convert("line.h5"), "corpus.valid=", "tokenizer.path=" + self.at("tokenizer.json"),
                              "model.layers=1", "model.context=1", "train.batch=48", "mesh.micro_batch=48", "train.steps=1", "optimizer.lr=0")
        w = {name: value.astype(float) for name, value in tensors_of(os.path.join(folder, "checkpoints", steps(folder)[-1])).items()}
        h = w["wte"][line[:-1]]
        v = (norm(h, w["h.0.ln1.gain"]) @ w["h.0.attn.v.weight"].T).reshape(len(h), 2, 1, -1)
        h = h + numpy.repeat(v, 2, axis=2).reshape(len(h), -1) @ w["h.0.attn.out.weight"].T
        logits = norm(h, w["h.0.ln2.gain"]) @ w["h.0.mlp.router.weight"].T
        shares = numpy.exp(logits) / numpy.exp(logits).sum(-1, keepdims=True)
        counts = numpy.bincount(numpy.argsort(-shares, axis=-1, kind="stable")[:, :CHOSEN].ravel(), minlength=EXPERTS)
        self.assertGreater(counts.max(), counts.min())
        used = counts / counts.sum()
        (line,) = metrics(folder)
        self.assertAlmostEqual(line["experts_largest"], used.max() * EXPERTS, 9)
        self.assertAlmostEqual(line["experts_entropy"], -(used[used > 0] * numpy.log(used[used > 0])).sum() / numpy.log(EXPERTS), 9)
        self.assertAlmostEqual(line["loss_balance"], EXPERTS * (counts * shares.sum(0)).sum() / len(h) ** 2, 5)

    def test_every_mesh_trains_the_same_mixture(self):
        keys = [*MIXTURE, "train.steps=6", "model.dropout=0.1", "mesh.micro_batch=2", "checkpoint.every=2"]
        one = self.trained("one", 0, *keys)
        for line in metrics(one):
            self.assertTrue(1 <= line["experts_largest"] <= EXPERTS / CHOSEN and 0 < line["experts_entropy"] <= 1, line)
        data = self.trained("data4", 4, *keys)
        self.assertEqual(timeless(metrics(one)), timeless(metrics(data)))
        self.assertEqual(digests(one), digests(data))
        killed = run(["env", "BP_FAULT=step.end:5=kill", program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('cut')}", *keys])
        self.assertLess(killed.status, 0)
        self.assertEqual(digests(one), digests(self.trained("cut", 2, *keys)))
        split = self.trained("split", 4, *keys, "mesh.tensor=2", "mesh.pipeline=2")
        for a, b in zip(metrics(one), metrics(split), strict=True):
            self.assertLess(abs(a["loss"] - b["loss"]), 5e-5)
            for name in FIGURES:  # a token whose shares are all but equal may choose another expert
                self.assertLess(abs(a[name] - b[name]), 0.01 * a[name], name)


if __name__ == "__main__":
    bagpipe_test.main()
