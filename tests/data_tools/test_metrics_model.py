"""bagpipe-data metrics by a model: BERTScore against numpy, on states of the reference fixtures, and perplexity against bagpipe score."""
import json
import math
import os
import random

import bagpipe_test
from bagpipe_test import FolderTest, program, read_json, run, shared

try:
    import h5py
    import numpy
    from plain_gpt import gpt_last
    from tensors import tensors_of
except ImportError:
    h5py = None


def erf(x):
    return numpy.vectorize(math.erf)(x)


def norm(x, gain, bias):
    x = x - x.mean(-1, keepdims=True)
    return x / numpy.sqrt((x ** 2).mean(-1, keepdims=True) + 1e-12) * gain + bias


def bert_states(w, ids, segments, heads):
    """The last layer's, in float64, by the names of the imported checkpoint's source."""
    def linear(name, x):
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    def normed(name, x):
        return norm(x, w[name + ".weight"], w[name + ".bias"])

    e = "bert.embeddings."
    x = normed(e + "LayerNorm", w[e + "word_embeddings.weight"][ids] + w[e + "position_embeddings.weight"][:len(ids)] +
               w[e + "token_type_embeddings.weight"][segments])
    for layer in range(2):
        name = f"bert.encoder.layer.{layer}."
        q, k, v = (linear(f"{name}attention.self.{part}", x).reshape(len(ids), heads, -1).swapaxes(0, 1) for part in ("query", "key", "value"))
        p = numpy.exp(q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1]))
        mixed = (p / p.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(x.shape)
        x = normed(name + "attention.output.LayerNorm", x + linear(name + "attention.output.dense", mixed))
        inner = linear(name + "intermediate.dense", x)
        x = normed(name + "output.LayerNorm", x + linear(name + "output.dense", inner * 0.5 * (1 + erf(inner / math.sqrt(2)))))
    return x


def tensors(path):
    with open(path, "rb") as file:
        data = file.read()
    size = int.from_bytes(data[:8], "little")
    return {name: numpy.frombuffer(data[8 + size:][slice(*t["data_offsets"])], "<f4").reshape(t["shape"]).astype(float)
            for name, t in json.loads(data[8:8 + size]).items() if name != "__metadata__"}


def bertscore(x, y, a=None, b=None):
    """Precision, recall and F1 of states x of a hypothesis and y of its reference; a and b weigh tokens."""
    cosines = x / numpy.linalg.norm(x, axis=1)[:, None] @ (y / numpy.linalg.norm(y, axis=1)[:, None]).T
    p, r = numpy.average(cosines.max(1), weights=a), numpy.average(cosines.max(0), weights=b)
    return numpy.array([p, r, 2 * p * r / (p + r)])


class ByAModel(FolderTest):
    @classmethod
    def setUpClass(cls):
        cls.sources = {name: shared(f"reference/{name}-tiny") for name in ("bert", "gpt2-lmhead")}
        if h5py is None or None in cls.sources.values():
            raise bagpipe_test.unittest.SkipTest("there is no h5py, or no ../shared/reference")
        super().setUpClass()
        draw = random.Random(3)
        # word K is token K of either model
        cls.write("vocab.txt", "".join(f"{name}\n" for name in ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [f"w{k}" for k in range(5, 101)]))
        cls.must(["bagpipe-data", "tokenizer", "--vocab", cls.at("vocab.txt"), "--out", cls.at("bert.json")])
        cls.must(["bagpipe-data", "tokenizer", "--kind", "word", "--out", cls.at("gpt.json"),
                  cls.write("words.txt", "\n".join(" ".join([f"w{k}"] * (200 - k)) for k in range(5, 96)) + "\n")])
        cls.words = {w: k for k, w in enumerate(read_json(cls.at("gpt.json"))["model"]["vocab"])}
        cls.eod = max(t["id"] for t in read_json(cls.at("gpt.json"))["added_tokens"])
        for name, source, tokenizer in (("bert", "bert", "bert.json"), ("gpt", "gpt2-lmhead", "gpt.json")):
            cls.must(["bagpipe-data", "import", cls.sources[source], "--out", cls.at(name), "--tokenizer", cls.at(tokenizer)])
        cls.truth = [[f"w{draw.randrange(5, 40)}" for _ in range(draw.randrange(3, 18))] for _ in range(12)]
        cls.said = [[w if draw.random() < 0.7 else f"w{draw.randrange(5, 40)}" for w in line[draw.randrange(2):]] for line in cls.truth]
        cls.said[3] = cls.truth[3]
        cls.said[5] = []
        for name in ("truth", "said"):
            cls.write(name, "".join(" ".join(line) + "\n" for line in getattr(cls, name)))

    def measure(self, kind, model, *more, references=("truth",), said="said"):
        result = run([program("bagpipe-data"), "metrics", "--kind", kind, "--model", self.at(model), "--hypothesis", self.at(said), *more] +
                     [word for name in references for word in ("--reference", self.at(name))])
        self.assertEqual(result.status, 0, str(result))
        return json.loads(result.out)

    def expect(self, got, states, tolerance, weights=None):
        """The figures are those of numpy on states(line); an empty line gives zeros."""
        rows = []
        for said, truth in zip(self.said, self.truth):
            w = [[weights[word] for word in line] if weights else None for line in (said, truth)]
            rows.append(bertscore(states(said), states(truth), *w) if said else numpy.zeros(3))
        for name, value in zip(("precision", "recall", "f1"), numpy.mean(rows, 0)):
            self.assertLess(abs(got["figures"][name]["value"] - value), tolerance, f"{name}: {got['figures'][name]} is not {value}")
            self.assertLess(got["figures"][name]["low"], value)
            self.assertGreater(got["figures"][name]["high"], value)

    def gpt_ids(self, line):
        return [self.eod] + [self.words[word] for word in line]

    def test_masked_states(self):
        w = tensors(os.path.join(self.sources["bert"], "model.safetensors"))
        rows = read_json(self.sources["bert"], "tokens.json")
        hidden = tensors(os.path.join(self.sources["bert"], "expected.safetensors"))["hidden"]
        for k, (ids, mask, kinds) in enumerate(zip(rows["input_ids"], rows["attention_mask"], rows["token_type_ids"])):
            n = sum(mask)
            self.assertLess(numpy.abs(bert_states(w, ids[:n], kinds[:n], 3) - hidden[k][:n]).max(), 1e-6)  # the twin is one

        def states(line):
            ids = [2] + [int(word[1:]) for word in line] + [3]
            return bert_states(w, ids, [0] * len(ids), 3)[1:-1]
        self.expect(self.measure("bertscore", "bert"), states, 1e-6)
        counts = {f"w{k}": sum(f"w{k}" in line for line in self.truth) for k in range(5, 40)}
        idf = {word: math.log((len(self.truth) + 1) / (count + 1)) for word, count in counts.items()}
        self.expect(self.measure("bertscore", "bert", "--idf"), states, 1e-6, idf)

    def test_causal_states(self):
        w = tensors_of(self.at("gpt"))
        self.expect(self.measure("bertscore", "gpt"), lambda line: gpt_last(w, numpy.array([self.gpt_ids(line)]), 3)[0, 1:], 1e-6)
        # the embedding has no rounding but its own: the rest is exact
        wte, wpe = w["wte"].astype("f4"), w["wpe"].astype("f4")
        self.expect(self.measure("bertscore", "gpt", "--layer", "0"),
                    lambda line: (wte[self.gpt_ids(line)] + wpe[:len(line) + 1])[1:].astype(float), 1e-12)

    def test_same_texts_give_1_and_systems_are_compared(self):
        for model in ("bert", "gpt"):
            got = self.measure("bertscore", model, said="truth")
            for name in ("precision", "recall", "f1"):
                self.assertLess(abs(got["figures"][name]["value"] - 1), 1e-12)
        got = self.measure("bertscore", "bert", "--against", self.at("truth"))
        self.assertLess(got["difference"]["f1"]["high"], 0)
        self.assertEqual(got["difference"]["f1"]["wins"], 0)
        # of several references the best
        got = self.measure("bertscore", "bert", references=("truth", "said"))["figures"]["f1"]
        self.assertLess(abs(got["value"] - 11 / 12), 1e-12)  # one line says nothing
        self.assertEqual(self.measure("bertscore", "bert", references=("said", "truth"))["figures"]["f1"], got)

    def test_long_texts_are_read_in_windows(self):
        self.write("long", " ".join(f"w{5 + k % 90}" for k in range(41)) + "\n")
        self.write("parts", "".join(" ".join(f"w{5 + k % 90}" for k in range(a, min(a + 18, 41))) + "\n" for a in (0, 18, 36)))
        result = run([program("bagpipe-data"), "metrics", "--kind", "bertscore", "--model", self.at("bert"), "--reference", self.at("long"),
                      "--hypothesis", self.at("long")])
        self.assert_warning(result, "[metrics.too_long]", times=2)
        self.assertLess(abs(json.loads(result.out)["figures"]["f1"]["value"] - 1), 1e-12)
        # pseudo-log-likelihoods of windows add up
        a, b = (self.measure("perplexity", "bert", references=(), said=name)["figures"]["perplexity"]["value"] for name in ("long", "parts"))
        self.assertLess(abs(a / b - 1), 1e-6)

    def test_perplexity_is_that_of_score(self):
        self.write("lines", "".join(" ".join(line) + "\n" for line in self.said if line))
        for model, tokenizer in (("bert", "bert.json"), ("gpt", "gpt.json")):
            self.must(["bagpipe-data", "corpus", "--tokenizer", self.at(tokenizer), "--format", "lines", "--out", self.at(model + ".h5"), self.at("lines")])
            self.must(["bagpipe", "score", self.write("empty.ini", "[math]\nprecision = f32\n"), f"run.dir={self.at('score-' + model)}", f"score.model={self.at(model)}",
                       f"score.corpus={self.at(model + '.h5')}", "math.precision=f32"])
            want = read_json(self.at("score-" + model), "score/summary.json")
            got = self.measure("perplexity", model, said="lines", references=())
            for name in ("perplexity", "word_perplexity", "bits_per_byte"):
                self.assertLess(abs(got["figures"][name]["value"] / want[name] - 1), 1e-12, name)
            # the empty line has no token; the reference is measured too
            both = self.measure("perplexity", model, "--against", self.at("truth"))
            self.assertEqual(both["figures"]["perplexity"]["value"], got["figures"]["perplexity"]["value"])
            self.assertEqual(both["reference"]["perplexity"]["value"], both["against"]["perplexity"]["value"])
            self.assertEqual(both["model"]["digest"], want["model"]["digest"])

    def test_models_of_counts(self):
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("gpt.json"), "--format", "lines", "--out", self.at("counted.h5"), self.at("truth")])
        self.must(["bagpipe", "pretrain", self.write("empty.ini", "[math]\nprecision = f32\n"), f"run.dir={self.at('ngram')}", f"corpus.train={self.at('counted.h5')}", "model.kind=ngram",
                   "ngram.smoothing=mle", "ngram.order=2"])
        self.assertGreater(self.measure("perplexity", "ngram", said="truth")["figures"]["perplexity"]["value"], 1)
        self.assertIsNone(self.measure("perplexity", "ngram")["figures"]["perplexity"]["value"])  # probabilities of 0
        self.refused(78, "[metrics.no_states]", "bertscore", "ngram")

    def refused(self, status, identifier, kind, model, *more):
        self.assert_error(run([program("bagpipe-data"), "metrics", "--kind", kind, "--reference", self.at("truth"), "--hypothesis", self.at("said")] +
                              (["--model", self.at(model)] if model else []) + list(more)), status, identifier)

    def test_bad_input(self):
        self.refused(64, "[command.no_input]", "bertscore", None)
        self.refused(64, "[metrics.unused_model]", "bleu", "bert")
        self.refused(66, "", "perplexity", "none")
        self.refused(65, "[tokenizer.mismatch]", "perplexity", "gpt", "--tokenizer", self.at("bert.json"))
        self.refused(78, "[metrics.no_such_layer]", "bertscore", "gpt", "--layer", "3")
        source = shared("reference/bart-tiny")
        self.must(["bagpipe-data", "import", source, "--out", self.at("bart"), "--no-tokenizer"])
        self.refused(78, "[metrics.no_tokenizer]", "perplexity", "bart")
        self.refused(65, "[tokenizer.too_large]", "perplexity", "bart", "--tokenizer", self.at("gpt.json"))
        self.must(["bagpipe-data", "tokenizer", "--kind", "word", "--out", self.at("few.json"), self.write("few.txt", "a b c\n")])
        self.refused(78, "[metrics.no_language_model]", "perplexity", "bart", "--tokenizer", self.at("few.json"))
        self.must(["bagpipe-data", "import", self.sources["bert"], "--out", self.at("bare"), "--no-tokenizer"])
        self.refused(78, "[corpus.no_special_token]", "bertscore", "bare", "--tokenizer", self.at("gpt.json"))


if __name__ == "__main__":
    bagpipe_test.main()
