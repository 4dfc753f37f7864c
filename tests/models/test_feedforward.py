"""A feed-forward model against numpy: its loss, that of sampled outcomes too, the gradients and updates of AdamW from one checkpoint to the next,
every token that it scores and writes; on every mesh, ensembled, resumed."""
import json
import math
import os

import h5py
import numpy

import bagpipe_test
from bagpipe_test import JobTest, digests, metrics, program, read_json, run, steps, timeless
from tensors import tensors_of
from word2vec_numpy import block, key_of

COMMON = ["model.kind=feedforward", "model.heads=", "model.layers=", "model.embedding=12", "model.order=4"]
RATE, BETA1, BETA2, EPSILON, DECAY = 1e-2, 0.9, 0.95, 1e-8, 0.1


def sampled_outcomes(seed, step, samples, V):
    """(which ones were drawn, the log of how often each outcome is expected): log-uniform by rank, without repetition."""
    key, drawn, tries = key_of(seed, step, 0, 16), numpy.zeros(V, dtype=bool), 0
    while drawn.sum() < samples:
        words = block(key, tries)
        k = int(math.exp(((words[1] << 32 | words[0]) >> 11) * 2.0 ** -53 * math.log(V + 1))) - 1
        drawn[(min(k, V - 1) + V - 1) % V] = True
        tries += 1
    rank = (numpy.arange(V) + 1) % V
    return drawn, numpy.log(-numpy.expm1(tries * numpy.log1p(-numpy.log((rank + 2) / (rank + 1)) / math.log(V + 1))))


class Oracle:
    """y = b + W x + U tanh(d + H x), x the vectors of the last words, the latest first."""

    def __init__(self, tensors, order, direct, sampled=None):
        self.t, self.words, self.direct, self.sampled = tensors, order - 1, direct, sampled

    def contexts(self, inputs):
        vectors = self.t["wte"][inputs]
        empty = numpy.zeros(vectors.shape[1])
        return numpy.array([numpy.concatenate([vectors[t - k] if t >= k else empty for k in range(self.words)]) for t in range(len(inputs))])

    def forward(self, inputs, targets=None):
        x = self.contexts(inputs)
        h = numpy.tanh(x @ self.t["hidden.weight"].T + self.t["hidden.bias"])
        state = numpy.concatenate([h, x], axis=1) if self.direct else h
        logits = state @ self.t["head"].T + self.t["head.bias"]
        if self.sampled and targets is not None:
            drawn, expected = self.sampled
            logits = numpy.where(drawn | (numpy.arange(logits.shape[1]) == targets[:, None]), logits - expected, -numpy.inf)
        logits -= logits.max(axis=1, keepdims=True)
        return x, h, state, logits - numpy.log(numpy.exp(logits).sum(axis=1, keepdims=True))

    def logprobs(self, line):
        lp = self.forward(line[:-1])[3]
        return lp[numpy.arange(len(line) - 1), line[1:]]

    def gradients(self, line):
        """(loss, of each tensor) of the mean over a window."""
        T, H = len(line) - 1, len(self.t["hidden.bias"])
        x, h, state, lp = self.forward(line[:-1], line[1:])
        dlogits = numpy.exp(lp)
        dlogits[numpy.arange(T), line[1:]] -= 1
        dlogits /= T
        dstate = dlogits @ self.t["head"]
        dh = dstate[:, :H] * (1 - h * h)
        dx = dh @ self.t["hidden.weight"] + (dstate[:, H:] if self.direct else 0)
        dwte, E = numpy.zeros_like(self.t["wte"]), self.t["wte"].shape[1]
        for t in range(T):
            for k in range(min(self.words, t + 1)):
                dwte[line[t - k]] += dx[t, k * E:(k + 1) * E]
        return -numpy.mean(lp[numpy.arange(T), line[1:]]), {
            "wte": dwte, "hidden.weight": dh.T @ x, "hidden.bias": dh.sum(axis=0), "head": dlogits.T @ state, "head.bias": dlogits.sum(axis=0)}


class Feedforward(JobTest):
    def feedforward(self, name, ranks=0, *keys):
        return self.trained(name, ranks, *COMMON, *keys)

    def corpus(self, name, documents):
        with h5py.File(self.at(name), "w") as file:
            file["tokens"] = numpy.concatenate(documents).astype(numpy.int32)
            file["doc_start"] = numpy.cumsum([0] + [len(d) for d in documents]).astype(numpy.uint64)
            file.attrs["vocab_size"], file.attrs["eod_id"] = self.VOCABULARY, self.VOCABULARY - 1
        return self.convert(name)

    def test_weights_of_no_transformer_are_not_dropped(self):
        result = self.pretrain("dropped", 0, *COMMON, "train.dropconnect=0.1")
        self.assert_error(result, 78, "[model.no_dropconnect]")

    def test_losses_gradients_and_updates_are_numpys(self):
        line = numpy.append(numpy.random.default_rng(3).integers(0, self.VOCABULARY - 1, 32), self.VOCABULARY - 1)  # one window of 32
        corpus = self.corpus("window.h5", [line])
        for ranks, direct, samples in ((0, False, 0), (0, True, 0), (0, True, 40), (2, False, 7)):
            sampled = [f"train.softmax_samples={samples}"] + ["mesh.tensor=2"] * (ranks == 2) if samples else []
            folder = self.feedforward(f"steps-{ranks}-{direct}-{samples}", ranks, *sampled, f"corpus.train={corpus}", "corpus.valid=", "tokenizer.path=" + self.at("tokenizer.json"),
                                      "train.batch=1", "train.steps=4", f"model.direct={'yes' if direct else 'no'}", "checkpoint.every=1",
                                      "checkpoint.keep=9", f"optimizer.lr={RATE}", "optimizer.decay=constant", "optimizer.warmup=0")
            states = [tensors_of(os.path.join(folder, "checkpoints", step)) for step in steps(folder)]
            for s in range(1, 4):  # step s + 1 begins with the weights of state s - 1, numbered from 0
                before, after = states[s - 1], states[s]
                oracle = Oracle(before, 4, direct, sampled_outcomes(1, s + 1, samples, self.VOCABULARY) if samples else None)
                loss, gradients = oracle.gradients(line)
                self.assertAlmostEqual(metrics(folder)[s]["loss"], loss, delta=2e-6)
                if s == 1:
                    self.slopes(oracle, line, gradients)
                norm = numpy.sqrt(sum((g ** 2).sum() for g in gradients.values()))
                self.assertAlmostEqual(metrics(folder)[s]["grad_norm"], norm, delta=1e-5 * norm)
                for name, g in gradients.items():
                    g = g * min(1, 1 / norm)
                    m = BETA1 * before["adamw.m/" + name] + (1 - BETA1) * g
                    v = BETA2 * before["adamw.v/" + name] + (1 - BETA2) * g * g
                    numpy.testing.assert_allclose(after["adamw.m/" + name], m, atol=1e-5 * abs(m).max() + 1e-9, err_msg=name)
                    numpy.testing.assert_allclose(after["adamw.v/" + name], v, atol=1e-5 * abs(v).max() + 1e-12, err_msg=name)
                    m, v = after["adamw.m/" + name], after["adamw.v/" + name]  # tiny ones are all rounding: the update is checked by itself
                    step = m / (1 - BETA1 ** (s + 1)) / (numpy.sqrt(v / (1 - BETA2 ** (s + 1))) + EPSILON)
                    want = before[name] * (1 - RATE * DECAY * (g.ndim == 2)) - RATE * step
                    numpy.testing.assert_allclose(after[name], want, atol=1e-6, err_msg=name)

    def slopes(self, oracle, line, gradients):
        """The formulas' gradients against central differences in float64, along each tensor's own."""
        for name, g in gradients.items():
            weights, step = oracle.t[name], 1e-5 / numpy.sqrt((g ** 2).sum())
            sides = []
            for sign in (1, -1):
                oracle.t[name] = weights + sign * step * g
                sides.append(oracle.gradients(line)[0])
            oracle.t[name] = weights
            self.assertAlmostEqual((sides[0] - sides[1]) / (2 * step) / (g ** 2).sum(), 1, delta=1e-6)

    def test_every_mesh_trains_the_same_model(self):
        one = self.feedforward("one", 0, "train.steps=6", "model.dropout=0.1", "train.valid_every=3")
        for name, ranks, keys in (("data", 2, []), ("all", 4, ["mesh.tensor=2", "mesh.pipeline=2"]),
                                  ("again", 0, ["train.recompute=yes"])):
            other = self.feedforward(name, ranks, "train.steps=6", "model.dropout=0.1", "train.valid_every=3", *keys)
            if name in ("data", "again"):
                self.assertEqual(timeless(metrics(one)), timeless(metrics(other)))
                self.assertEqual(digests(one), digests(other))
            for a, b in zip(metrics(one), metrics(other), strict=True):
                self.assertLess(abs(a["loss"] - b["loss"]), 2e-5)
        sampled = "train.softmax_samples=50"
        few = self.feedforward("sampled", 0, sampled, "train.steps=6", "train.valid_every=6")
        for name, ranks, keys in (("sampled-data", 4, []), ("sampled-all", 4, ["mesh.tensor=2", "mesh.pipeline=2"])):
            other = self.feedforward(name, ranks, sampled, "train.steps=6", "train.valid_every=6", *keys)
            if name == "sampled-data":
                self.assertEqual(timeless(metrics(few)), timeless(metrics(other)))
                self.assertEqual(digests(few), digests(other))
            for a, b in zip(metrics(few), metrics(other), strict=True):
                self.assertLess(abs(a["loss"] - b["loss"]), 2e-5)
        whole = self.feedforward("whole", 0, "train.softmax_samples=100000", "train.steps=2")  # no fewer than there are: all are computed
        self.assertEqual(digests(whole), digests(self.feedforward("unsampled", 0, "train.steps=2")))
        for keys in (["head.softmaxes=3"], ["train.label_smoothing=0.1"]):
            self.assert_error(self.pretrain("refused", 0, *COMMON, sampled, *keys), 78, "[train.no_samples]")
        killed = self.background([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('killed')}", *COMMON, "train.steps=6",
                                  "model.dropout=0.1", "train.valid_every=3", "checkpoint.every=2"], env={"BP_FAULT": "step.end:5=kill"})
        killed.communicate()
        self.assertNotEqual(killed.returncode, 0)
        self.feedforward("killed", 0, "train.steps=6", "model.dropout=0.1", "train.valid_every=3", "checkpoint.every=2")
        self.assertEqual(digests(one), digests(self.at("killed")))

    def test_it_scores_and_writes_with_all_its_history(self):
        random, eod = numpy.random.default_rng(5), self.VOCABULARY - 1
        documents = [random.integers(0, eod, n) for n in (1, 700, 256, 0, 257, 2, 513)]
        corpus = self.corpus("long.h5", [numpy.append(d, eod) for d in documents])
        for order, direct in ((4, True), (2, False), (7, False)):
            keys = [f"model.order={order}", f"model.direct={'yes' if direct else 'no'}", "train.steps=6"]
            model = self.feedforward(f"scored-{order}", 0, *keys)
            oracle = Oracle(tensors_of(os.path.join(model, "checkpoints", steps(model)[-1])), order, direct)
            summaries = []
            for ranks, mesh in ((0, []), (2, []), (2, ["mesh.tensor=2"])):
                folder = self.at(f"scores-{order}-{ranks}{''.join(mesh)}")
                self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={folder}", f"score.model={model}", f"score.corpus={corpus}",
                           "score.tokens=yes", "score.end=yes", *mesh], ranks)
                summaries.append(read_json(folder, "score", "summary.json"))
                with h5py.File(os.path.join(folder, "score", "tokens.h5")) as file:
                    values = numpy.split(file["logprob"][:], numpy.cumsum([len(d) + 1 for d in documents])[:-1])
                for document, got in zip(documents, values, strict=True):
                    numpy.testing.assert_allclose(got, oracle.logprobs(numpy.concatenate([[eod], document, [eod]])), atol=2e-5)
            self.assertEqual(summaries[0], summaries[1])
            prompts = [[5, 7, 9], [100], list(range(40, 100))]
            self.write("prompts.jsonl", "".join(f'{{"tokens": {p}}}\n' for p in prompts))
            self.must(["bagpipe", "generate", self.at("small.ini"), f"run.dir={self.at(f'writes-{order}')}", f"generate.model={model}",
                       f"generate.prompts={self.at('prompts.jsonl')}", "generate.tokens=20", "generate.strategy=beam", "generate.beams=3"])
            with open(os.path.join(self.at(f"writes-{order}"), "generate", "outputs.jsonl"), encoding="utf-8") as file:
                for prompt, line in zip(prompts, map(json.loads, file), strict=True):
                    want = oracle.logprobs(numpy.array([*prompt, *line["tokens"]]))[-len(line["tokens"]):]
                    numpy.testing.assert_allclose(line["logprobs"], want, atol=1e-4)

    def test_it_is_ensembled(self):
        result = run([program("bagpipe"), "ensemble", self.at("small.ini"), f"run.dir={self.at('many')}", "ensemble.members=2", *COMMON,
                      "model.direct=yes", "train.steps=6"])
        self.assertEqual(result.status, 0, str(result))
        self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={self.at('score-many')}", f"score.model={self.at('many')}",
                   f"score.corpus={self.at('valid.h5')}"], 2)
        self.assertGreater(read_json(self.at("score-many"), "score", "summary.json")["mutual_information"], 0)

    def test_what_does_not_fit_is_said(self):
        for keys, words in ((["model.order=1"], ("[config.bad_value]", "model.order = 1")), (["model.heads=4"], ("[model.unused_key]", "model.heads")),
                            (["model.layers=2"], ("[model.unused_key]", "model.layers")), (["model.tied=yes"], ("[model.unused_key]", "model.tied"))):
            result = self.pretrain("refused", 0, *COMMON, *keys)
            self.assert_error(result, 78, *words)


if __name__ == "__main__":
    bagpipe_test.main()
