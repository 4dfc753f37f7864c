"""bagpipe explain by changed inputs: surrogates, Shapley values, counterfactuals and how faithful attributions are, against float64 on every mesh."""
import itertools
import json
import math
import os
import re
import signal

import bagpipe_test
import test_explain_kinds
import test_finetune
from bagpipe_test import read_json, shared
from test_explain import Explained, read_tensors

try:
    import h5py
    import numpy
except ImportError:
    h5py = None

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
BERT = ("model.kind=bert", "model.layers=1", "model.width=16", "model.heads=2", "model.context=24")


class Changed(Explained):
    def results(self, name, method):
        """Each dataset by document: matrices by target and input, what is by input, by target, and once."""
        with h5py.File(os.path.join(self.at(name), "explain", method + ".h5")) as file:
            data = {key: file[key][()] for key in file if isinstance(file[key], h5py.Dataset)}
        starts = {key: data[key + "_start"] for key in ("input", "target", "matrix", "source", "source_matrix")
                  if key + "_start" in data}
        found = []
        for d in range(len(starts["input"]) - 1):
            own = {key: slice(start[d], start[d + 1]) for key, start in starts.items()}
            T, K = (own[key].stop - own[key].start for key in ("input", "target"))
            document = {}
            for key, values in data.items():
                if values.dtype != numpy.float32:
                    continue
                if key in ("weight", "value", "error"):
                    document[key] = values[own["matrix"]].reshape(K, T)
                elif key in ("source_weight", "source_value", "source_error"):
                    document[key] = values[own["source_matrix"]].reshape(K, -1)
                elif key == "source_feature":
                    document[key] = values[own["source"]].astype(int)
                elif key in ("feature", "fewest"):
                    document[key] = values[own["input"]].astype(int)
                elif key.startswith("flip_"):
                    each = len(values) // starts["input"][-1]
                    document[key] = values[own["input"].start * each:own["input"].stop * each].reshape(T, each)
                elif len(values) == starts["target"][-1] and key in ("intercept", "r2", "local", "prediction", "none", "all", "whole", "comprehensiveness",
                                                                     "sufficiency"):
                    document[key] = values[own["target"]]
                else:
                    document[key] = values[d]
            document["tokens"] = data["input"][own["input"]]
            found.append(document)
        return found

    def summary(self, name):
        with open(os.path.join(self.at(name), "explain", "summary.json"), encoding="utf-8") as file:
            return json.load(file)["methods"]

    def by_feature(self, document, key):
        """[K][M] of what is the same at all places of a feature."""
        features, rows = document["feature"], document[key]
        if len(rows) == len(features):  # of a text that goes on: the last target alone reads all of it
            rows = rows[-1:]
        for f in range(features.max() + 1):
            columns = rows[:, features == f]
            self.assertTrue((columns == columns[:, :1]).all() or numpy.isnan(columns).all(), key)
        self.assertTrue((document[key][:, features < 0] == 0).all())
        return numpy.array([rows[:, features == f][:, 0] for f in range(features.max() + 1)]).T


class Words(Changed):
    """A language model's next words, by what it scores for the changed texts themselves."""
    TEXTS = ([7, 9, 30, 9, 41, 12], [50, 51, 52, 53, 54, 55, 56, 57, 50, 58, 59, 60])
    EOD = 61

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        draw = numpy.random.default_rng(1)
        cls.corpus("train.h5", [draw.integers(0, cls.EOD, 30) for _ in range(20)], cls.EOD + 1, cls.EOD)
        cls.corpus("few.h5", cls.TEXTS, cls.EOD + 1, cls.EOD)
        cls.must(["bagpipe", "pretrain", f"run.dir={cls.at('gpt')}", f"corpus.train={cls.at('train.h5')}", "train.steps=30", "train.batch=4", "optimizer.lr=0.01",
                  "math.precision=f32", "model.layers=2", "model.width=16", "model.heads=2", "model.context=16"])

    def keys(self, methods, *more):
        return (f"explain.model={self.at('gpt')}", f"explain.corpus={self.at('few.h5')}", f"explain.methods={methods}", *more)

    def log_p(self, name, texts):
        """ln p of the last token of each text, by bagpipe score."""
        self.corpus(name + ".h5", texts, self.EOD + 1, self.EOD)
        self.must(["bagpipe", "score", f"run.dir={self.at(name)}", f"score.model={self.at('gpt')}", f"score.corpus={self.at(name + '.h5')}", "score.tokens=yes",
                   "math.precision=f32"])
        with h5py.File(os.path.join(self.at(name), "score", "tokens.h5")) as file:
            starts, values, tokens = file["doc_start"][:], file["logprob"][:], file["tokens"][:]
        found = []
        for k, text in enumerate(texts):
            self.assertEqual(tokens[starts[k]:starts[k + 1]][:len(text)].tolist(), list(text))
            found.append(float(values[starts[k] + len(text) - 1]))
        return numpy.array(found)

    def test_shapley_values_are_those_of_scored_texts(self):
        self.explained("exact", 0, *self.keys("shapley,surrogate", "explain.shapley=exact", "explain.samples=50"))
        self.assertEqual(list(read_json(self.at("exact"), "explain", "summary.json")["methods"]["shapley"]["words"]), ["value"])  # not by their errors
        text = self.TEXTS[0]
        words = list(dict.fromkeys(text[:-1]))
        M = len(words)
        table = self.log_p("sets", [[t for t in text[:-1] if s >> words.index(t) & 1] + [text[-1]] for s in range(2 ** M)])
        want = [sum((table[s | 1 << f] - table[s]) / (M * math.comb(M - 1, bin(s).count("1"))) for s in range(2 ** M) if not s >> f & 1) for f in range(M)]
        found = self.results("exact", "shapley")[0]
        self.assertEqual(found["feature"].tolist(), [-1, *(words.index(t) for t in text[:-1])])
        numpy.testing.assert_allclose(self.by_feature(found, "value")[-1], want, atol=1e-5)
        self.assertAlmostEqual(float(found["none"][-1]), table[0], delta=1e-5)
        for found in self.results("exact", "shapley"):
            for k in range(len(found["all"])):  # what comes after a target does not count
                self.assertTrue((found["value"][k][k + 1:] == 0).all())

    def test_faithfulness_is_that_of_scored_texts(self):
        self.explained("faithful", 0, *self.keys("gradient,integrated,faithfulness", "explain.steps=8"))
        text = self.TEXTS[1]
        with h5py.File(os.path.join(self.at("faithful"), "explain", "gradient.h5")) as file:
            T = len(text)
            row = file["gradient_x_input"][-T:]
        order = sorted(range(T - 1), key=lambda t: -row[1 + t])
        shares, texts = (0.01, 0.05, 0.1, 0.2, 0.5), [text]
        for share in shares:
            first = order[:math.ceil(share * (T - 1))]
            texts.append([t for place, t in enumerate(text[:-1]) if place not in first] + [text[-1]])
            texts.append([t for place, t in enumerate(text[:-1]) if place in first] + [text[-1]])
        scored = self.log_p("removed", texts)
        found = self.results("faithful", "faithfulness")[1]
        for side, key in enumerate(("comprehensiveness", "sufficiency")):
            numpy.testing.assert_allclose(found[key][-1][:5], scored[0] - scored[1 + side::2], atol=1e-5)
        summary = self.summary("faithful")["faithfulness"]
        self.assertEqual(summary["rows"], ["gradient", "integrated", "random"])
        for row, name in enumerate(summary["rows"]):
            for key in ("comprehensiveness", "sufficiency"):
                values = numpy.concatenate([document[key] for document in self.results("faithful", "faithfulness")])[:, 5 * row:5 * row + 5]
                values = values[~numpy.isnan(values[:, 0])]
                self.assertAlmostEqual(summary[name][key]["mean"], values.mean(), delta=1e-5)
                numpy.testing.assert_allclose(summary[name][key]["by_share"], values.mean(axis=0), atol=1e-5)

    def test_intervals_are_by_documents(self):
        draw = numpy.random.default_rng(3)
        self.corpus("more.h5", [draw.integers(0, self.EOD, 6) for _ in range(12)], self.EOD + 1, self.EOD)
        self.explained("more", 0, *self.keys("gradient,integrated,faithfulness")[::2], f"explain.corpus={self.at('more.h5')}", "explain.steps=2")
        with h5py.File(os.path.join(self.at("more"), "explain", "integrated.h5")) as file:
            mean = numpy.abs(file["delta"][:]).mean()
        found = self.summary("more")["integrated"]
        self.assertAlmostEqual(found["mean_delta"], mean, delta=1e-6 * mean)
        self.assertLess(found["intervals"]["mean_delta"][0], mean)
        self.assertGreater(found["intervals"]["mean_delta"][1], mean)
        for name in ("gradient", "random"):
            found = self.summary("more")["faithfulness"][name]["comprehensiveness"]
            self.assertLess(found["interval"][0], found["mean"])
            self.assertGreater(found["interval"][1], found["mean"])
            for (low, high), mean in zip(found["share_intervals"], found["by_share"], strict=True):
                self.assertTrue(low <= mean <= high and low < high)

    def test_an_edit_changes_what_is_preferred(self):
        self.explained("edited", 0, *self.keys("counterfactual", "explain.edits=3"))
        for found, text in zip(self.results("edited", "counterfactual"), self.TEXTS):
            self.assertFalse(math.isnan(found["edits"]))
            inputs = [self.EOD, *text[:-1]]
            for e in range(int(found["edits"])):
                self.assertEqual(inputs[int(found["edit_place"][e])], found["edit_old"][e])
                inputs[int(found["edit_place"][e])] = int(found["edit_new"][e])
            self.corpus("changed.h5", [text, [*inputs[1:], 0]], self.EOD + 1, self.EOD)
            name = f"best{len(text)}"
            self.explained(name, 0, f"explain.model={self.at('gpt')}", f"explain.corpus={self.at('changed.h5')}", "explain.target=best")
            with h5py.File(os.path.join(self.at(name), "explain", "gradient.h5")) as file:
                self.assertEqual([file["target"][end - 1] for end in file["target_start"][1:]], [found["preferred"], found["new"]])

    def test_groups_of_words_and_tokens(self):
        self.explained("groups", 0, *self.keys("shapley", "explain.group=4", "explain.shapley=exact"))
        self.assertEqual([found["feature"].tolist() for found in self.results("groups", "shapley")], [[-1, 0, 0, 0, 0, 1], [-1, *[0] * 4, *[1] * 4, *[2] * 3]])

    def test_a_killed_job_goes_on_and_draws_are_those_of_the_seed(self):
        keys = self.keys("surrogate,shapley,counterfactual", "explain.samples=20", "explain.shapley=sampled")
        self.explained("whole", 0, *keys)
        os.environ["BP_FAULT"] = "work.unit_done:1=kill"
        try:
            self.assertEqual(self.explain("killed", 0, *keys).status, -signal.SIGKILL)
        finally:
            del os.environ["BP_FAULT"]
        self.explained("killed", 2, *keys)
        self.assertEqual(self.files("whole"), self.files("killed"))
        self.explained("other", 0, *keys, "run.seed=7")
        self.assertNotEqual(self.files("whole")["shapley.h5"], self.files("other")["shapley.h5"])

    def test_too_few_samples_are_warned_of(self):
        self.corpus("wide.h5", [[*range(15)]], self.EOD + 1, self.EOD)
        result = self.explained("few", 0, *self.keys("shapley", "explain.samples=10")[::2], f"explain.corpus={self.at('wide.h5')}", "explain.samples=10")
        self.assert_warning(result, "[explain.few_samples]")
        errors = self.by_feature(self.results("few", "shapley")[0], "error")
        self.assertTrue(numpy.isnan(errors[-1]).all())

    def test_bad_use(self):
        for words, more in ((["[explain.nothing_ranked]"], ["explain.methods=lens,faithfulness"]),
                            (["[explain.many_words]", "document 1", "14 words"], ["explain.methods=shapley", "explain.shapley=exact"]),
                            (["[explain.no_token]", "mask"], ["explain.methods=surrogate", "explain.removal=mask"]),
                            (["[config.bad_value]"], ["explain.methods=surrogate", "explain.samples=0"])):
            for ranks in (0, 2):
                self.corpus("long.h5", [[1, 2, 3], [*range(15)]], self.EOD + 1, self.EOD)
                corpus = "long.h5" if "exact" in more[-1] else "few.h5"
                result = self.explain("bad", ranks, f"explain.model={self.at('gpt')}", f"explain.corpus={self.at(corpus)}", *more)
                self.assert_error(result, 78, *words)


class Small(test_finetune.TaskTest, Changed):
    """Of every kind of model: what the whole text is worth is what other methods say, and values sum to what the words bring."""
    SMALL = test_explain_kinds.Trained.SMALL
    small = test_explain_kinds.Trained.small

    def sum_of(self, values, features):
        """A feature counts once."""
        return values[:, [int(numpy.flatnonzero(features == f)[0]) for f in sorted(set(features[features >= 0]))]].sum(axis=1)

    def check(self, kind, value, *more):
        name, keys = f"of_{kind}{len(more)}", (*self.small(kind), *more)
        with_gradients, flips = kind != "sngp", kind not in ("sngp", "pairs")
        methods = "surrogate,shapley" + (",faithfulness" if kind != "pairs" else "") + (",integrated" if with_gradients else "") + (",counterfactual" if flips else "")
        self.explained(name, 0, *keys, f"explain.methods={methods}", "explain.steps=2", "explain.samples=100", "explain.edits=2", "explain.flips=2")
        found = self.results(name, "shapley")
        for d, document in enumerate(found):
            values, features = document["value"], document["feature"]
            if kind == "last":  # a causal stack: its head needs no first token
                self.assertEqual(features[:2].tolist(), [0, 1])
                self.assertEqual(features[-1], -1)  # what ends the text
            sums = self.sum_of(values, features)
            if kind == "pairs":  # words of the source are features of their own, and come first
                own = document["source_feature"]
                self.assertEqual(sorted(set(own[own >= 0])), list(range(features[features >= 0].min())))
                self.assertEqual((own < 0).tolist(), [False] * (len(own) - 1) + [True])
                self.assertGreater(numpy.abs(document["source_value"]).max(), 0)
                sums += self.sum_of(document["source_value"], own)
            numpy.testing.assert_allclose(sums, document["all"] - document["none"], atol=1e-4, err_msg=kind)
            numpy.testing.assert_allclose(self.results(name, "surrogate")[d]["prediction"], document["all"], atol=1e-6)
            self.assertGreater(numpy.abs(values).max(), 0)
            if kind != "pairs":
                numpy.testing.assert_allclose(self.results(name, "faithfulness")[d]["whole"], document["all"], atol=1e-6, err_msg=kind)
        if with_gradients:
            with h5py.File(os.path.join(self.at(name), "explain", "integrated.h5")) as file:
                want = file["logprob"][:]
            numpy.testing.assert_allclose(numpy.concatenate([document["all"] for document in found]), want if value else numpy.exp(want), atol=1e-5, err_msg=kind)
            for document in self.results(name, "counterfactual") if flips else ():
                flips = document["flip_token"]
                self.assertEqual((flips >= 0).all(axis=1).tolist(), (flips >= 0).any(axis=1).tolist())
                self.assertGreater((flips >= 0).sum(), 0)

    def test_words_and_classes(self):
        for kind in ("masked", "classes", "mean", "last", "bart", "sngp"):
            with self.subTest(kind):
                self.check(kind, kind == "masked")

    def test_tags_values_answers_and_translations(self):
        for kind, more in (("tags", ()), ("tags", ("explain.removal=pad",)), ("values", ()), ("spans", ()), ("pairs", ("explain.samples=60",)),
                           ("bart_tags", ()), ("t5_values", ()), ("bart_spans", ())):
            with self.subTest(kind):
                self.check(kind, kind in ("values", "pairs", "t5_values"), *more)

    def test_words_of_a_source_are_worth_what_scored_pairs_say(self):
        """Of the first token of a target, which depends on its source alone: all sets of the source's words."""
        keys = self.small("pairs")
        words = list(dict.fromkeys(test_finetune.WORDS))
        sources, targets = (" ".join(words[:3]), " ".join(words[3:7])), (" ".join(words[2:4]), words[0])
        make = ("bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "pairs", "--out")
        sets = [(d, s) for d, text in enumerate(sources) for s in range(1, 2 ** len(text.split()))]
        self.write("a.txt", "".join(text + "\n" for text in sources))
        self.write("b.txt", "".join(text + "\n" for text in targets))
        self.write("c.txt", "".join(" ".join(word for k, word in enumerate(sources[d].split()) if s >> k & 1) + "\n" for d, s in sets))
        self.write("d.txt", "".join(targets[d] + "\n" for d, _ in sets))
        self.must([*make, self.at("two.h5"), self.at("a.txt"), self.at("b.txt")])
        self.must([*make, self.at("sets.h5"), self.at("c.txt"), self.at("d.txt")])
        self.must(["bagpipe", "score", f"run.dir={self.at('sets')}", keys[0].replace("explain.", "score."), f"score.corpus={self.at('sets.h5')}", "score.tokens=yes",
                   "math.precision=f32"])
        with h5py.File(os.path.join(self.at("sets"), "score", "tokens.h5")) as file:
            starts, values = file["doc_start"][:], file["logprob"][:]
        table = {at: float(values[starts[n]:starts[n + 1]][~numpy.isnan(values[starts[n]:starts[n + 1]])][0]) for n, at in enumerate(sets)}
        self.explained("of_sets", 0, keys[0], f"explain.corpus={self.at('two.h5')}", "explain.methods=shapley", "explain.samples=300")
        for d, found in enumerate(self.results("of_sets", "shapley")):
            features = found["source_feature"]
            M = features.max() + 1
            table[d, 0] = float(found["none"][0])  # no corpus has an empty source
            want = [sum((table[d, s | 1 << f] - table[d, s]) / (M * math.comb(M - 1, bin(s).count("1"))) for s in range(2 ** M) if not s >> f & 1) for f in range(M)]
            self.assertEqual(M, len(sources[d].split()))
            numpy.testing.assert_allclose([found["source_value"][0][features == f][0] for f in range(M)], want, atol=2e-5)

    def test_kinds_that_lack_them(self):
        for kind, method in (("pairs", "faithfulness,saliency"), ("sngp", "counterfactual")):
            keys = self.small(kind)
            self.assert_error(self.explain("lacks", 0, *keys, f"explain.methods={method}"), 78, "[explain.lacking]", method.split(",")[0], "shapley")


class Replaced(test_finetune.TaskTest, Changed):
    """Every single replaced token of a text, as a text of its own."""
    VOCABULARY = [*test_finetune.WORDS, *(word for words in test_finetune.KINDS.values() for word in words)]

    def edits(self, words):
        """The text, then each with another word at a place."""
        return [words, *([*words[:i], word, *words[i + 1:]] for i in range(len(words)) for word in self.VOCABULARY if word != words[i])]

    FAMILY = "bert"

    def learnt(self, name, corpus, *keys):
        return self.tuned(f"{self.FAMILY}_{name}", 0, f"corpus.train={corpus}", f"corpus.valid={corpus}", f"model.kind={self.FAMILY}", *BERT[1:], *keys, "train.steps=60",
                          f"optimizer.lr={0.02 if self.FAMILY == 'bert' else 0.005}")

    def tags(self):
        def corpus(name, texts):
            return self.conll(name, [list(zip(words, ("O", "B-sea", "I-sea", "O", "O"))) for words in texts])
        return (corpus, "he salt wave from it".split(), "label",
                self.learnt("tags", self.conll("tagged", self.sentences(60, 2)), "task.kind=tags"))

    def spans(self):
        def corpus(name, texts):
            paragraphs = [{"context": " ".join(words[3:]), "qas": [{"id": f"{name}{k}", "question": " ".join(words[:3]), "is_impossible": False, "answers": [
                {"text": words[5], "answer_start": len(" ".join(words[3:5])) + 1}]}]} for k, words in enumerate(texts)]
            self.write(f"{name}.json", json.dumps({"version": "v2.0", "data": [{"title": name, "paragraphs": paragraphs}]}))
            self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "squad", "--out", self.at(f"{name}.h5"), self.at(f"{name}.json")])
            return self.at(f"{name}.h5")
        self.squad("asked", 40, 1)
        return (corpus, "what the sea he was salt on".split(), "label",
                self.learnt("spans", self.at("asked.h5"), "task.kind=spans", "task.stride=4"))

    def values(self):
        def corpus(name, texts):
            return self.corpus(name, [{"text": " ".join(words), "score": "1"} for words in texts])
        return (corpus, "he was at street wave of it".split(), "best",
                self.learnt("values", self.at("train.h5"), "task.kind=regression", "task.label=score"))

    def pairs(self):
        def corpus(name, texts):
            self.write(name + ".source", "".join(" ".join(words) + "\n" for words in texts))
            self.write(name + ".target", "ship was salt\n" * len(texts))
            self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "pairs", "--out", self.at(f"{name}.h5"), self.at(name + ".source"),
                       self.at(name + ".target")])
            return self.at(f"{name}.h5")
        draw = test_finetune.random.Random(4)
        self.write("copied.txt", "".join(" ".join(draw.choice(self.VOCABULARY) for _ in range(3)) + "\n" for _ in range(200)))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "pairs", "--out", self.at("copied.h5"), *[self.at("copied.txt")] * 2])
        self.must(["bagpipe", "pretrain", f"run.dir={self.at('pairs')}", f"corpus.train={self.at('copied.h5')}", "model.kind=transformer", "model.encoder_layers=1",
                   "model.decoder_layers=1", "model.width=16", "model.heads=2", "model.context=12", "train.steps=150", "train.batch=16", "optimizer.lr=0.02",
                   "math.precision=f32"])
        return corpus, "ship was salt".split(), "next", self.at("pairs")

    def predictions(self, name, side):
        """Of each document its tokens; of each of its targets what it is, where, and F."""
        with h5py.File(os.path.join(self.at(name), "explain", "integrated.h5")) as file:
            tokens, cuts, places = file[side][:], file[side + "_start"][:], file["place"][:]
            K = len(places) // (len(cuts) - 1)
            return ([tokens[cuts[d]:cuts[d + 1]] for d in range(len(cuts) - 1)], file["target"][:].reshape(-1, K), places[:K], file["logprob"][:].reshape(-1, K))

    def classes(self):
        def corpus(name, texts):
            return self.corpus(name, [{"text": " ".join(words), "topic": "sea"} for words in texts])
        return corpus, "he was at wave street of it".split(), "label", self.learnt("classes", self.at("train.h5"), "task.label=topic")

    def check(self, kind, change):
        corpus, words, target, model = getattr(self, kind)()
        name = f"{self.FAMILY}_{kind}"
        keys, side = (f"explain.model={model}", f"explain.change={change}"), "source" if kind == "pairs" else "input"
        self.explained(name + "_found", 0, *keys, f"explain.corpus={corpus(kind + '1', [words])}", f"explain.target={target}", "explain.methods=counterfactual",
                       "explain.flips=100", "explain.edits=1")
        for of in {target, "best"}:
            self.explained(f"{name}_{of}", 0, *keys, f"explain.corpus={corpus(kind + 'all', self.edits(words))}", f"explain.target={of}", "explain.methods=integrated",
                           "explain.steps=1", "explain.examples=0")
        with h5py.File(os.path.join(self.at(name + "_found"), "explain", "counterfactual.h5")) as file:
            found = {key: file[key][()] for key in file}
        texts, targets, places, values = self.predictions(f"{name}_{target}", side)
        best = self.predictions(name + "_best", side)
        k = int(numpy.argmin(best[3][0] if kind == "tags" else values[0]))  # the least sure
        self.assertEqual(found["explained_place"][0], places[k])
        self.assertEqual(found["explained"][0], targets[0][k])
        kept = {"tags": [places[k]], "spans": targets[0].tolist()}.get(kind, [])
        prefix = "source_" if kind == "pairs" else ""
        tokens = found[prefix + "flip_token"].reshape(len(texts[0]), 100)
        true = {(p, int(v)): found[prefix + "flip_true"].reshape(tokens.shape)[p][i] for p in range(len(tokens)) for i, v in enumerate(tokens[p]) if v >= 0}
        first = {(p, int(v)) for p in range(len(tokens)) for v in tokens[p][:5] if v >= 0}
        wanted, preferred = {}, {}
        for text, value, choice in zip(texts[1:], values[1:, k], best[1][1:, k], strict=True):
            place, = numpy.flatnonzero(text != texts[0])
            if place not in kept:
                wanted[(place, int(text[place]))] = value - values[0][k]
                preferred[(place, int(text[place]))] = choice
        self.assertEqual(set(true), set(wanted))
        numpy.testing.assert_allclose([true[edit] for edit in wanted], list(wanted.values()), rtol=0, atol=1e-5)
        value = kind == "values"
        changed = {edit for edit in wanted if (abs(wanted[edit]) >= change if value else preferred[edit] != best[1][0][k])}
        self.assertTrue(0 < len(changed) < len(wanted), (kind, len(changed), min(wanted.values()), max(wanted.values())))
        edit = (int(found["edit_place"][0, 0]), int(found["edit_new"][0, 0]))
        if not numpy.isnan(found["edits"][0]):
            self.assertIn(edit, changed)
            self.assertEqual(found["edit_old"][0, 0], texts[0][edit[0]])
            self.assertEqual(found["new"][0], (1 if wanted[edit] > 0 else -1) if value else preferred[edit])
        if value:
            self.assertAlmostEqual(float(found["preferred_after"][0] - found["preferred_logprob"][0]), wanted[edit], delta=1e-5)
        elif found["preferred"][0] == found["explained"][0]:  # then the search goes by the flips that are listed
            self.assertEqual(numpy.isnan(found["edits"][0]), not first & changed)
            self.assertEqual(found["texts"][0], len(first))
            if first & changed:
                self.assertEqual(found["texts_changed"][0], len(first & changed))
                self.assertEqual(edit, min(first & changed, key=lambda edit: true[edit]))
        self.check_page(kind, found, true)
        if kind == "pairs":
            self.check_source_words(f"{self.FAMILY}_pairs_next")
        return found

    def check_source_words(self, name):
        """Mean attributions of words of the source, a token each, over all pairs of an occurrence and a target."""
        with open(self.at("tokenizer.json"), encoding="utf-8") as file:
            names = {number: word for word, number in json.load(file)["model"]["vocab"].items()}
        values = {}
        with h5py.File(os.path.join(self.at(name), "explain", "integrated.h5")) as file:
            tokens, starts, cuts, matrix = (file[key][:] for key in ("source", "source_start", "source_matrix_start", "source_integrated"))
        for d in range(len(starts) - 1):
            own, rows = tokens[starts[d]:starts[d + 1]], matrix[cuts[d]:cuts[d + 1]].reshape(-1, starts[d + 1] - starts[d]).astype(float)
            for t, token in enumerate(own):
                values.setdefault(names[int(token)], []).extend(rows[:, t])
        lists = read_json(self.at(name), "explain", "summary.json")["methods"]["integrated"]["words"]
        listed = [word for of in lists["source_integrated"].values() for word in of]
        self.assertGreater(len(listed), 1)
        for word in listed:
            self.assertAlmostEqual(word["mean"], float(numpy.mean(values[word["word"]])), delta=1e-6)
        self.assertNotEqual(lists["integrated"], lists["source_integrated"])
        with open(os.path.join(self.at(name), "explain", "index.html"), encoding="utf-8") as file:
            page = file.read()
        for side in ("source", "target"):
            self.assertIn(f"<h3>Words of the {side} by integrated gradients</h3>", page)

    def check_page(self, kind, found, true):
        """The edit and the largest flips on the page of the example, their figures on that of all."""
        folder = os.path.join(self.at(f"{self.FAMILY}_{kind}_found"), "explain")
        with open(os.path.join(folder, "example-1.html"), encoding="utf-8") as file:
            shown = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', file.read(), re.S).group(1))["edits"]
        self.assertEqual(shown["source"], kind == "pairs")
        self.assertEqual(shown["list"] and [[row[0] for row in shown["list"]]], None if numpy.isnan(found["edits"][0]) else [found["edit_place"][0, :1].tolist()])
        self.assertEqual(len(shown["flips"]), min(8, len(true)))
        for row, value in zip(shown["flips"], sorted(true.values(), key=lambda value: -abs(value))):
            self.assertAlmostEqual(row[4], float(value), delta=2e-3 * abs(float(value)))
        self.assertEqual(shown["preferred"] is None, kind == "values")
        with open(os.path.join(folder, "index.html"), encoding="utf-8") as file:
            self.assertIn(f"<td>share in which the preferred outcome changes</td><td>{0 if shown['list'] is None else 1}", file.read())

    def test_replaced_tokens_do_what_texts_with_them_say(self):
        for kind in ("tags", "spans", "values", "pairs"):
            with self.subTest(kind):
                self.assertEqual(self.check(kind, 0.001)["edits"][0], 1)

    def test_heads_after_an_encoder_and_a_decoder(self):
        """A replaced token is another one for both."""
        for self.FAMILY, kinds in (("bart", ("classes", "tags", "spans", "values")), ("t5", ("tags", "values"))):
            for kind in kinds:
                with self.subTest(f"{kind} of {self.FAMILY}"):
                    self.check(kind, 0.001)

    def test_they_are_on_all_meshes(self):
        for self.FAMILY, kind in (("transformer", "pairs"), ("bart", "tags")):
            corpus, words, target, model = getattr(self, kind)()
            keys = (f"explain.model={model}", f"explain.corpus={corpus('few', [words, words[:4] + words[2:]])}", "explain.methods=counterfactual", f"explain.target={target}")
            self.explained(kind + "_one", 0, *keys)
            for mesh in ("data", "pipeline"):
                self.explained(f"{kind}_{mesh}", 2, *keys, f"mesh.{mesh}=2")
                self.assertEqual(self.files(kind + "_one"), self.files(f"{kind}_{mesh}"), mesh)


class Flips(Changed):
    """Of language models: what replaced tokens change, ../shared/reference/explain-tiny."""

    def test_flips_of_words_are_those_of_float64(self):
        if shared("reference/explain-tiny") is None:
            self.skipTest("there is no ../shared/reference/explain-tiny")
        for model in ("gpt2-lmhead-tiny", "llama-tiny"):
            folder = shared("reference/explain-tiny/" + model)
            with open(os.path.join(folder, "inputs.json"), encoding="utf-8") as file:
                inputs = json.load(file)
            with open(os.path.join(folder, "expected.json"), encoding="utf-8") as file:
                expected = json.load(file)["doc0"]["flips"]
            with open(os.path.join(shared("reference/" + model), "config.json"), encoding="utf-8") as file:
                config = json.load(file)
            tensors = read_tensors(os.path.join(folder, "expected.safetensors"))
            self.must(["bagpipe-data", "import", shared("reference/" + model), "--out", self.at(model)])
            self.corpus(model + ".h5", [inputs["documents"][0]["tokens"][1:]], config["vocab_size"], config.get("eos_token_id", inputs["roles"]["begin"]))
            self.explained("flips_" + model, 0, f"explain.model={self.at(model)}", f"explain.corpus={self.at(model + '.h5')}", "explain.methods=counterfactual",
                           "explain.flips=100")
            if model == "gpt2-lmhead-tiny":  # three heads
                self.explained("tensor", 3, f"explain.model={self.at(model)}", f"explain.corpus={self.at(model + '.h5')}", "mesh.tensor=3",
                               "explain.methods=counterfactual,shapley", "explain.flips=100", "explain.samples=40")
                other = self.results("tensor", "counterfactual")[0]
                self.assertTrue(numpy.isfinite(self.results("tensor", "shapley")[0]["value"]).all())
                for kind in ("first_order", "true"):
                    numpy.testing.assert_allclose(numpy.sort(other["flip_" + kind]), numpy.sort(self.results("flips_" + model, "counterfactual")[0]["flip_" + kind]),
                                                  rtol=0, atol=1e-5)
            found = self.results("flips_" + model, "counterfactual")[0]
            self.assertEqual(found["explained"], expected["target"][1])
            self.assertAlmostEqual(float(found["logprob"]), expected["logprob"], delta=1e-5)
            for t in range(len(found["tokens"])):
                tokens = found["flip_token"][t].astype(int)
                tokens = tokens[tokens >= 0]
                self.assertEqual(len(tokens) > 0, t in expected["places"])
                for kind in ("first_order", "true"):
                    numpy.testing.assert_allclose(found["flip_" + kind][t][:len(tokens)], tensors["doc0.flip." + kind][t][tokens], rtol=0, atol=1e-5)
            self.assertAlmostEqual(float(found["correlation"]), expected["correlation"], delta=1e-2)  # here the tokens of special roles are other ones


class References(Changed):
    """What PyTorch, lime and shap give in float64: ../shared/reference/explain-tiny."""

    @classmethod
    def setUpClass(cls):
        if shared("reference/explain-tiny") is None:
            raise bagpipe_test.unittest.SkipTest("there is no ../shared/reference/explain-tiny")
        super().setUpClass()
        folder = shared("reference/explain-tiny/bert-sequence-tiny")
        with open(os.path.join(folder, "inputs.json"), encoding="utf-8") as file:
            cls.documents = json.load(file)["documents"][:3]
        with open(os.path.join(folder, "expected.json"), encoding="utf-8") as file:
            cls.expected = json.load(file)
        cls.tensors = read_tensors(os.path.join(folder, "expected.safetensors"))
        cls.must(["bagpipe-data", "import", shared("reference/bert-sequence-tiny"), "--out", cls.at("model")])
        cls.texts()

    @classmethod
    def texts(cls):
        """Texts whose tokens are the documents', with a word of two tokens where a feature has them."""
        parts = {d["input_ids"][place] for d in cls.documents for f in d["features"] for a, place in itertools.pairwise(f)
                 if place == a + 1 and d["input_ids"][a] != d["input_ids"][place]}
        pieces = SPECIAL + [("##" if k in parts else "") + "w" + chr(97 + k // 26) + chr(97 + k % 26) for k in range(len(SPECIAL), 101)]
        cls.write("vocab.txt", "\n".join(pieces) + "\n")
        cls.must(["bagpipe-data", "tokenizer", "--vocab", cls.at("vocab.txt"), "--out", cls.at("tokenizer.json")])
        sides = {2: ([], []), 1: ([],)}
        for document in cls.documents:
            texts, line = [], ""
            for token in document["input_ids"][1:]:
                if token == SPECIAL.index("[SEP]"):
                    texts.append(line.strip())
                    line = ""
                else:
                    line += pieces[token][2:] if pieces[token].startswith("##") else " " + pieces[token]
            for side, text in zip(sides[len(texts)], texts):
                side.append(text)
        for count, form in ((2, "pairs"), (1, "lines")):
            names = [f"{form}{k}.txt" for k in range(count)]
            for name, lines in zip(names, sides[count]):
                cls.write(name, "".join(line + "\n" for line in lines))
            cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", form, "--out", cls.at(form + ".h5"),
                      *(cls.at(name) for name in names)])

    def keys(self, methods, *more):
        return (f"explain.model={self.at('model')}", f"explain.corpus={self.at('pairs.h5')},{self.at('lines.h5')}", f"explain.methods={methods}",
                "explain.target=every", *more)

    def perturbations(self, d, removal):
        return self.expected[f"doc{d}"]["perturbations"][removal], self.tensors[f"doc{d}.{removal}.table"]

    def test_shapley_values_are_those_of_all_sets(self):
        for removal, name in (("deletion", "delete"), ("mask", "mask")):
            self.explained(name, 0, *self.keys("shapley", f"explain.removal={name}", "explain.shapley=exact"))
            for d, found in enumerate(self.results(name, "shapley")):
                expected, table = self.perturbations(d, removal)
                features = [numpy.flatnonzero(found["feature"] == f).tolist() for f in range(found["feature"].max() + 1)]
                self.assertEqual(features, self.documents[d]["features"])
                numpy.testing.assert_allclose(self.by_feature(found, "value"), numpy.array(expected["shap"]["exact"]).T, rtol=0, atol=1e-6)
                numpy.testing.assert_allclose(found["all"], expected["shap"]["full"], rtol=0, atol=1e-6)
                numpy.testing.assert_allclose(found["none"], expected["shap"]["base"], rtol=0, atol=1e-6)
                self.assertTrue((found["error"] == 0).all() and found["exact"] == 1)
                fewest = expected["fewest_removed"]
                self.assertEqual(found["fewest_sets"], len(fewest["sets"]))
                if fewest["sets"]:
                    self.assertEqual(found["fewest_removed"], fewest["removed"])
                    self.assertEqual(sorted(set(found["feature"][found["fewest"] == 1])), fewest["sets"][0])
                else:
                    self.assertTrue(math.isnan(found["fewest_removed"]) and not found["fewest"].any())

    def test_drawn_values_sum_and_say_how_far_off_they_are(self):
        self.explained("drawn", 0, *self.keys("shapley", "explain.samples=90", "explain.shapley=sampled"))
        within = []
        for d, found in enumerate(self.results("drawn", "shapley")):
            values, errors = self.by_feature(found, "value"), self.by_feature(found, "error")
            numpy.testing.assert_allclose(values.sum(axis=1), found["all"] - found["none"], atol=2e-6)
            exact = numpy.array(self.perturbations(d, "deletion")[0]["shap"]["exact"]).T
            self.assertTrue((errors > 0).all())
            within += (numpy.abs(values - exact) < 2.5 * errors).ravel().tolist()
        self.assertGreater(numpy.mean(within), 0.9)

    def test_surrogates_are_ridge_regressions_on_the_tables(self):
        """The weights of each document are those of scikit-learn on the samples that the same draws make of the expected tables."""
        try:
            from sklearn.linear_model import Ridge
        except ImportError:
            self.skipTest("there is no scikit-learn")
        self.explained("lime", 0, *self.keys("surrogate", "explain.samples=3000"))
        for d, found in enumerate(self.results("lime", "surrogate")):
            table = self.perturbations(d, "deletion")[1]
            M = len(self.documents[d]["features"])
            sets = numpy.array([[s >> f & 1 for f in range(M)] for s in range(2 ** M)])
            left_out = M - sets.sum(axis=1)
            with numpy.errstate(divide="ignore"):
                chance = numpy.array([1 / (M * math.comb(M, k)) if k else 0 for k in left_out])
            kernel = numpy.sqrt(numpy.exp(-(100 * (1 - numpy.sqrt(sets.sum(axis=1) / M))) ** 2 / 625))
            for c in range(3):  # in the limit of many samples
                fit = Ridge(alpha=1).fit(sets, table[:, c], sample_weight=3000 * chance * kernel)
                numpy.testing.assert_allclose(self.by_feature(found, "weight")[c], fit.coef_, rtol=0, atol=0.006)
                self.assertAlmostEqual(float(found["r2"][c]), fit.score(sets, table[:, c], chance * kernel), delta=0.06)
            numpy.testing.assert_allclose(found["prediction"], table[-1], rtol=0, atol=1e-6)
            numpy.testing.assert_allclose(found["intercept"] + self.by_feature(found, "weight").sum(axis=1), found["local"], atol=1e-6)

    def test_flips_and_edits_are_those_of_float64(self):
        self.explained("flips", 0, *self.keys("counterfactual", "explain.flips=100"))
        for d, found in enumerate(self.results("flips", "counterfactual")):
            expected = self.expected[f"doc{d}"]
            first, true = (self.tensors[f"doc{d}.flip.{kind}"] for kind in ("first_order", "true"))
            self.assertEqual(found["explained"], expected["flips"]["target"])
            self.assertAlmostEqual(float(found["logprob"]), expected["flips"]["logprob"], delta=1e-5)
            self.assertAlmostEqual(float(found["correlation"]), expected["flips"]["correlation"], delta=1e-4)
            for t in range(len(found["tokens"])):
                tokens = found["flip_token"][t].astype(int)
                tokens = tokens[tokens >= 0]
                if t not in expected["flips"]["places"]:
                    self.assertEqual(len(tokens), 0)
                    continue
                self.assertEqual(len(tokens), 95)
                numpy.testing.assert_allclose(found["flip_first_order"][t][:len(tokens)], first[t][tokens], rtol=0, atol=1e-5)
                numpy.testing.assert_allclose(found["flip_true"][t][:len(tokens)], true[t][tokens], rtol=0, atol=1e-5)
                row = expected["flips"]["places"].index(t)
                self.assertEqual(tokens[:5].tolist(), [token for token, _ in expected["flips"]["first_order_top5"][row]])
                best = tokens[numpy.argsort(found["flip_true"][t][:len(tokens)])][:5]
                self.assertEqual(best.tolist(), [token for token, _ in expected["flips"]["true_top5"][row]])
            edits = expected["edits"]
            self.assertEqual(found["edits"], len(edits["edits"]))
            self.assertEqual([[int(found[key][e]) for key in ("edit_place", "edit_old", "edit_new")] for e in range(len(edits["edits"]))], edits["edits"])
            self.assertEqual((found["preferred"], found["new"]), (edits["class"], edits["new_class"]))
            self.assertAlmostEqual(float(found["preferred_after"]), edits["new_logprobs"][edits["class"]], delta=1e-5)
            self.assertEqual(found["texts_changed"], edits["flipped_at_this_level"])
            self.assertEqual(found["texts"], edits["verified"] - 10)  # which counts nine gradients and the last check too

    def test_they_are_on_all_meshes(self):
        methods = "gradient,surrogate,shapley,counterfactual,faithfulness"
        keys = self.keys(methods, "explain.samples=40", "explain.shapley=sampled")
        self.explained("one", 0, *keys)
        for mesh in ("data", "pipeline"):
            self.explained(mesh, 2, *keys, f"mesh.{mesh}=2")
            self.assertEqual(self.files("one"), self.files(mesh), mesh)


if __name__ == "__main__":
    bagpipe_test.main()
