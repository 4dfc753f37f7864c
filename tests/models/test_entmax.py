"""1.5-entmax (Peters et al. 2019) in the place of the softmax: at the output against numpy (its loss, gradients, what it rules out in scores and
perplexities), in attention on every mesh, killed and resumed, decoded as it is scored; what has no place for it refuses it by name."""
import json
import os

import h5py
import numpy

import bagpipe_test
import feedforward_heads
from bagpipe_test import digests, metrics, program, read_json, run, state_of, steps, timeless
from tensors import tensors_of

FEEDFORWARD = [*feedforward_heads.FEEDFORWARD, "head.activation=entmax15"]
BOTH = ["head.activation=entmax15", "model.attention_activation=entmax15"]


def entmax(z):
    """Rows, by bisection."""
    low, high = z.max(axis=1) / 2 - 1, z.max(axis=1) / 2
    for _ in range(80):
        middle = (low + high) / 2
        above = (numpy.maximum(z / 2 - middle[:, None], 0) ** 2).sum(axis=1) > 1
        low, high = numpy.where(above, middle, low), numpy.where(above, high, middle)
    return numpy.maximum(z / 2 - low[:, None], 0) ** 2


class Oracle(feedforward_heads.Words):
    """p = entmax(b + U h), h = tanh(d + H x), x the vectors of the last three words."""

    def forward(self, inputs):
        x, h = self.hidden(inputs)
        z = h @ self.t["head"].T.astype(float) + self.t["head.bias"]
        return x, h, z, entmax(z)

    def logprobs(self, line):
        with numpy.errstate(divide="ignore"):
            return numpy.log(self.forward(line[:-1])[3][numpy.arange(len(line) - 1), line[1:]])

    def gradients(self, line):
        """(loss, of each tensor) of the mean over a window."""
        T, at = len(line) - 1, numpy.arange(len(line) - 1)
        x, h, z, p = self.forward(line[:-1])
        dz = p.copy()
        dz[at, line[1:]] -= 1
        loss = (dz * z).sum(axis=1) + 4 / 3 * (1 - (p ** 1.5).sum(axis=1))
        dz /= T
        dh = (dz @ self.t["head"]) * (1 - h * h)
        return loss.mean(), {**self.hidden_gradients(line, x, dh), "head": dz.T @ h, "head.bias": dz.sum(axis=0)}


class Entmax(feedforward_heads.HeadTest):
    ORACLE, KEYS, RATE, CLOSE = Oracle, FEEDFORWARD, "5e-2", 3e-6

    def test_every_mesh_trains_the_same_model(self):
        keys = [*BOTH, "train.steps=6", "model.dropout=0.1", "train.valid_every=3", "checkpoint.every=2"]
        one = self.trained("one", 0, *keys)
        self.assertEqual([state_of(one)["model"][name] for name in ("head_activation", "attention_activation")], ["entmax15"] * 2)
        for name, ranks, mesh in (("data", 2, []), ("all", 4, ["mesh.tensor=2", "mesh.pipeline=2"])):
            other = self.trained(name, ranks, *keys, *mesh)
            if name == "data":
                self.assertEqual(timeless(metrics(one)), timeless(metrics(other)))
                self.assertEqual(digests(one), digests(other))
            for a, b in zip(metrics(one), metrics(other), strict=True):
                self.assertLess(abs(a["loss"] - b["loss"]), 5e-5)
        killed = self.background([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('killed')}", *keys],
                                 env={"BP_FAULT": "step.end:5=kill"})
        killed.communicate()
        self.assertNotEqual(killed.returncode, 0)
        self.trained("killed", 0, *keys)
        self.assertEqual(digests(one), digests(self.at("killed")))

    def scores(self, name, ranks, *keys):
        folder = self.at("scores-" + name)
        self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={folder}", "score.tokens=yes", "score.end=yes", *keys], ranks)
        with h5py.File(os.path.join(folder, "score", "tokens.h5")) as file:
            return file["logprob"][:], read_json(folder, "score", "summary.json")

    def test_it_rules_tokens_out_and_says_how_many(self):
        random, eod = numpy.random.default_rng(5), self.VOCABULARY - 1
        documents = [random.integers(0, eod, n) for n in (1, 70, 257, 2, 113)]
        corpus = self.corpus("long.h5", [numpy.append(d, eod) for d in documents])
        self.must(["bagpipe", "ensemble", self.at("small.ini"), f"run.dir={self.at('many')}", "ensemble.members=2", "ensemble.kind=seed",
                   *FEEDFORWARD, "train.steps=30", "optimizer.lr=5e-2"])
        models = [self.at(f"many/members/m0{k}") for k in range(2)]
        oracles = [Oracle(tensors_of(os.path.join(model, "checkpoints", steps(model)[-1]))) for model in models]
        want = [numpy.concatenate([oracle.logprobs(numpy.concatenate([[eod], d, [eod]])) for d in documents]) for oracle in oracles]
        with numpy.errstate(divide="ignore"):
            mixed = numpy.log(numpy.exp(want).mean(axis=0))
        for name, ranks, model, mesh, expected in (("alone", 0, models[0], [], want[0]), ("tensor", 2, models[0], ["mesh.tensor=2"], want[0]),
                                                   ("many", 0, self.at("many"), [], mixed), ("many-2", 2, self.at("many"), ["mesh.tensor=2"], mixed)):
            got, summary = self.scores(name, ranks, f"score.model={model}", f"score.corpus={corpus}", *mesh)
            zeros = numpy.isinf(got)
            self.assertGreater(zeros.sum(), 20, name)
            self.assertLess(zeros.sum(), len(got), name)
            numpy.testing.assert_allclose(numpy.exp(got), numpy.exp(expected), atol=1e-5, err_msg=name)
            self.assertEqual(summary["zero_probability"], zeros.sum(), name)
            self.assertIsNone(summary["perplexity"], name)

    def test_it_decodes_as_it_scores(self):
        model = self.trained("decoded", 0, *BOTH, "train.steps=30", "optimizer.lr=1e-2")
        eod = self.VOCABULARY - 1
        prompts = [[eod, 5, 7, 9], [eod, 100], [eod, *range(40, 46)]]
        self.write("prompts.jsonl", "".join(f'{{"tokens": {p}}}\n' for p in prompts))
        for ranks, mesh in ((0, []), (2, ["mesh.tensor=2"])):
            self.must(["bagpipe", "generate", self.at("small.ini"), f"run.dir={self.at(f'writes-{ranks}')}", f"generate.model={model}", *mesh,
                       f"generate.prompts={self.at('prompts.jsonl')}", "generate.tokens=12", "generate.strategy=beam", "generate.beams=3"], ranks)
            with open(os.path.join(self.at(f"writes-{ranks}"), "generate", "outputs.jsonl"), encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
            texts = [numpy.array([*p[1:], *line["tokens"], eod]) for p, line in zip(prompts, lines, strict=True)]
            got, _ = self.scores(f"written-{ranks}", 0, f"score.model={model}", f"score.corpus={self.corpus(f'written-{ranks}.h5', texts)}")
            for line, values in zip(lines, numpy.split(got, numpy.cumsum([len(t) for t in texts])[:-1]), strict=True):
                numpy.testing.assert_allclose(line["logprobs"], values[-1 - len(line["tokens"]):-1], atol=2e-4)

    def test_what_has_no_place_for_it_says_so(self):
        for key in BOTH:
            model = self.trained(key.split("=")[0], 0, key, "train.steps=1")
            result = run([program("bagpipe-data"), "export", model, "--out", self.at("refused"), "--no-tokenizer"])
            self.assert_error(result, 65, "export.no_counterpart")
        self.assert_error(self.pretrain("two", 0, "head.activation=entmax15", "head.softmaxes=2"), 78, "model.two_heads")
        self.assert_error(self.pretrain("smoothed", 0, "head.activation=entmax15", "train.label_smoothing=0.1"), 78, "train.no_smoothing")


if __name__ == "__main__":
    bagpipe_test.main()
