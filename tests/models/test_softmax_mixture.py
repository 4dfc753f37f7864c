"""Mixtures of softmaxes (Yang et al. 2018) against numpy: loss and gradients, each token's score, what is written, ensembles; on every mesh,
killed and resumed; what has no place for them refuses them by name."""
import json
import os

import h5py
import numpy

import bagpipe_test
import feedforward_heads
from bagpipe_test import digests, metrics, program, run, state_of, steps, timeless
from tensors import tensors_of

FEEDFORWARD = [*feedforward_heads.FEEDFORWARD, "head.softmaxes=3"]


def log_softmax(x):
    x = x - x.max(axis=-1, keepdims=True)
    return x - numpy.log(numpy.exp(x).sum(axis=-1, keepdims=True))


class Oracle(feedforward_heads.Words):
    """p = sum of pi_k softmax(b + U s_k), s_k = tanh(W_k h), pi = softmax(P h), h = tanh(d + H x), x the vectors of the last three words."""

    def __init__(self, tensors):
        super().__init__(tensors)
        self.K = len(tensors["head.priors.weight"])

    def forward(self, inputs):
        x, h = self.hidden(inputs)
        s = numpy.tanh(h @ self.t["head.states.weight"].T).reshape(len(h), self.K, -1)
        prior = log_softmax(h @ self.t["head.priors.weight"].T)
        each = log_softmax(s @ self.t["head"].T + self.t["head.bias"])
        return x, h, s, prior, each, numpy.log(numpy.exp(prior[:, :, None] + each).sum(axis=1))

    def logprobs(self, line):
        return self.forward(line[:-1])[5][numpy.arange(len(line) - 1), line[1:]]

    def gradients(self, line):
        """(loss, of each tensor) of the mean over a window."""
        T, at = len(line) - 1, numpy.arange(len(line) - 1)
        x, h, s, prior, each, lp = self.forward(line[:-1])
        share = numpy.exp(prior + each[at, :, line[1:]] - lp[at, line[1:]][:, None]) / T
        dlogits = numpy.exp(each)
        dlogits[at, :, line[1:]] -= 1
        dlogits *= share[:, :, None]
        dpre = ((dlogits @ self.t["head"]) * (1 - s * s)).reshape(T, -1)
        dprior = numpy.exp(prior) / T - share
        dh = (dpre @ self.t["head.states.weight"] + dprior @ self.t["head.priors.weight"]) * (1 - h * h)
        return -numpy.mean(lp[at, line[1:]]), {
            **self.hidden_gradients(line, x, dh), "head.states.weight": dpre.T @ h,
            "head.priors.weight": dprior.T @ h, "head": numpy.einsum("tkv,tkc->vc", dlogits, s), "head.bias": dlogits.sum(axis=(0, 1))}


class Mixture(feedforward_heads.HeadTest):
    ORACLE, KEYS, RATE, CLOSE = Oracle, FEEDFORWARD, "1e-2", 2e-6

    def test_every_mesh_trains_the_same_model(self):
        keys = ["head.softmaxes=3", "train.steps=6", "model.dropout=0.1", "train.valid_every=3", "checkpoint.every=2"]
        one = self.trained("one", 0, *keys)
        self.assertEqual(state_of(one)["model"]["softmaxes"], 3)
        for name, ranks, mesh in (("data", 2, []), ("tensor", 2, ["mesh.tensor=2"]), ("all", 4, ["mesh.tensor=2", "mesh.pipeline=2"])):
            other = self.trained(name, ranks, *keys, *mesh)
            if name == "data":
                self.assertEqual(timeless(metrics(one)), timeless(metrics(other)))
                self.assertEqual(digests(one), digests(other))
            for a, b in zip(metrics(one), metrics(other), strict=True):
                self.assertLess(abs(a["loss"] - b["loss"]), 2e-5)
        killed = self.background([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('killed')}", *keys],
                                 env={"BP_FAULT": "step.end:5=kill"})
        killed.communicate()
        self.assertNotEqual(killed.returncode, 0)
        self.trained("killed", 0, *keys)
        self.assertEqual(digests(one), digests(self.at("killed")))

    def test_one_softmax_is_the_model_without_the_key(self):
        plain, said = self.trained("plain", 0, "train.steps=2"), self.trained("said", 0, "train.steps=2", "head.softmaxes=1")
        self.assertEqual(digests(plain), digests(said))
        self.assertEqual(state_of(plain)["model"], state_of(said)["model"])

    def test_it_scores_mixes_and_writes(self):
        random, eod = numpy.random.default_rng(5), self.VOCABULARY - 1
        documents = [random.integers(0, eod, n) for n in (1, 70, 257, 2, 113)]
        corpus = self.corpus("long.h5", [numpy.append(d, eod) for d in documents])
        self.must(["bagpipe", "ensemble", self.at("small.ini"), f"run.dir={self.at('many')}", "ensemble.members=2", "ensemble.kind=seed",
                   *FEEDFORWARD, "train.steps=6"])
        many, models = self.at("many"), [self.at(f"many/members/m0{k}") for k in range(2)]
        oracles = [Oracle(tensors_of(os.path.join(model, "checkpoints", steps(model)[-1]))) for model in models]
        want = [[oracle.logprobs(numpy.concatenate([[eod], d, [eod]])) for d in documents] for oracle in oracles]
        for name, ranks, keys, expected in (
                ("alone", 0, [f"score.model={models[0]}"], want[0]), ("tensor", 2, [f"score.model={models[0]}", "mesh.tensor=2"], want[0]),
                ("two", 0, [f"score.model={many}"], [numpy.logaddexp(a, b) - numpy.log(2) for a, b in zip(*want)]),
                ("two-tensor", 2, [f"score.model={many}", "mesh.tensor=2"],
                 [numpy.logaddexp(a, b) - numpy.log(2) for a, b in zip(*want)])):
            folder = self.at("scores-" + name)
            self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={folder}", f"score.corpus={corpus}", "score.tokens=yes", "score.end=yes",
                       *keys], ranks)
            with h5py.File(os.path.join(folder, "score", "tokens.h5")) as file:
                values = numpy.split(file["logprob"][:], numpy.cumsum([len(d) + 1 for d in documents])[:-1])
            for a, b in zip(values, expected, strict=True):
                numpy.testing.assert_allclose(a, b, atol=2e-5, err_msg=name)
        prompts = [[5, 7, 9], [100], list(range(40, 100))]
        self.write("prompts.jsonl", "".join(f'{{"tokens": {p}}}\n' for p in prompts))
        for ranks, keys in ((0, []), (2, ["mesh.tensor=2"])):
            self.must(["bagpipe", "generate", self.at("small.ini"), f"run.dir={self.at(f'writes-{ranks}')}", f"generate.model={models[0]}", *keys,
                       f"generate.prompts={self.at('prompts.jsonl')}", "generate.tokens=20", "generate.strategy=beam", "generate.beams=3"], ranks)
            with open(os.path.join(self.at(f"writes-{ranks}"), "generate", "outputs.jsonl"), encoding="utf-8") as file:
                for prompt, line in zip(prompts, map(json.loads, file), strict=True):
                    lp = oracles[0].logprobs(numpy.array([*prompt, *line["tokens"]]))[-len(line["tokens"]):]
                    numpy.testing.assert_allclose(line["logprobs"], lp, atol=1e-4)

    def test_what_has_no_place_for_it_says_so(self):
        model = self.trained("mixed", 0, "head.softmaxes=2", "train.steps=1")
        result = run([program("bagpipe-data"), "export", model, "--out", self.at("refused"), "--no-tokenizer"])
        self.assert_error(result, 65, "[export.no_counterpart]")
        result = self.pretrain("other", 0, f"model.init={model}", "head.softmaxes=3")
        self.assert_error(result, 78, "[model.init_mismatch]")
        for name, keys in (("adapter.no_mixture", (f"model.init={model}", "adapter.kind=lora")), ("distill.no_teacher", (f"distill.model={model}",)),
                           ("distill.no_student", (f"distill.model={model}", "head.softmaxes=2")), ("train.no_smoothing", ("head.softmaxes=2", "train.label_smoothing=0.1"))):
            self.assert_error(self.pretrain("refused", 0, *keys), 78, f"[{name}]")
        result = self.pretrain("ngram", 0, "model.kind=ngram", "head.softmaxes=3")
        self.assert_error(result, 78, "[model.unused_key]", "head.softmaxes", lines=5)


if __name__ == "__main__":
    bagpipe_test.main()
