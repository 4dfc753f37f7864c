"""`bagpipe-data surprisal`: words and their surprisal as minicons computes them, from the text and the log-probabilities of tokens."""
import collections
import csv
import io
import json
import math
import os
import shutil
import unicodedata

import bagpipe_test
from bagpipe_test import JobTest, program, run
from plain_gpt import gpt_logits, log_softmax
from tensors import tensors_of

try:
    import h5py
    import numpy
except ImportError:
    h5py = None

SENTENCES = ["The keys to the cabinet are on the table.", 'She said: "I know the old woman\'s cat." Then he went, at last, home!', "Mitochondria  re-enter the na\u00efve \u4e16\u754c \U0001f600\ttoday."]
ODD = ["", " ", "One.\nTwo (and a half).) Three?", "a", " lead and trail "]


def byte_characters():
    """Characters that byte-level vocabularies have in the place of bytes."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in kept]
    return {**{chr(b): b for b in kept}, **{chr(256 + k): b for k, b in enumerate(rest)}}


class Surprisal(JobTest):
    @classmethod
    def setUpClass(cls):
        if h5py is None:
            raise bagpipe_test.unittest.SkipTest("there is no h5py")
        super().setUpClass()
        cls.texts = SENTENCES + ODD
        cls.corpus("text", cls.texts)
        for name, seed in (("one", 1), ("two", 2)):
            cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.at(name)}", f"run.seed={seed}", "train.steps=2"])
        cls.write("score.ini", "[score]\ntokens = yes\n[math]\nprecision = f32\nthreads = 1\n")
        cls.score("a", "one", "text")
        cls.score("b", "two", "text")

    @classmethod
    def corpus(cls, name, texts, tokenizer="tokenizer.json"):
        with open(cls.at(name + ".jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"id": f"s,{k}", "text": text}) + "\n" for k, text in enumerate(texts))
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at(tokenizer), "--format", "jsonl", "--out", cls.at(name + ".h5"), cls.at(name + ".jsonl")])

    @classmethod
    def score(cls, name, model, corpus, *keys, ranks=0):
        cls.must(["bagpipe", "score", cls.at("score.ini"), f"run.dir={cls.at(name)}", f"score.model={cls.at(model)}", f"score.corpus={cls.at(corpus + '.h5')}", *keys], ranks)

    def surprisal(self, *words):
        result = run([program("bagpipe-data"), "surprisal", *words])
        self.assertEqual(result.status, 0, str(result))
        return list(csv.DictReader(io.StringIO(result.out, newline="")))

    def pieces(self, name, document):
        """Bytes and log-probabilities of a document's tokens, without its end."""
        with open(self.at("tokenizer.json"), encoding="utf-8") as file:
            vocabulary = {token: piece for piece, token in json.load(file)["model"]["vocab"].items()}
        characters = byte_characters()
        with h5py.File(os.path.join(self.at(name), "score", "tokens.h5")) as file:
            begin, end = file["doc_start"][document:document + 2]
            ids, logprobs = file["tokens"][begin:end - 1], file["logprob"][begin:end - 1]
        return [bytes(characters[c] for c in vocabulary[int(token)]) for token in ids], [float(x) for x in logprobs]

    def minicons(self, name, document):
        """word_score_tokenized(text, str.split, bos_token=True, surprisal=True): tokens are given to words by their places in the text, a blank to the word
        after it, and what they cost is added up."""
        text = self.texts[document]
        pieces, logprobs = self.pieces(name, document)
        self.assertEqual(b"".join(pieces), text.encode())
        words, at = [], 0
        for word in text.split():
            begin = text.index(word, at)
            at = begin + len(word)
            words.append([len(text[:begin].encode()), len(text[:at].encode()), word, 0, 0.0])
        begin = 0
        for piece, logprob in zip(pieces, logprobs):
            first = begin + len(piece) - len(piece.lstrip())  # of what is not white space
            begin += len(piece)
            owners = [w for w in words if w[0] <= first < w[1]] or [w for w in words if w[0] >= begin]
            if owners:
                owners[0][3] += 1
                owners[0][4] -= logprob
        return [(word, tokens, cost) for _, _, word, tokens, cost in words]

    def test_words_cost_what_minicons_says(self):
        rows = self.surprisal(self.at("a"), "--unit", "nats")
        for document, text in enumerate(self.texts):
            got = [row for row in rows if int(row["document"]) == document]
            want = self.minicons("a", document)
            self.assertEqual([(row["word"], int(row["tokens"])) for row in got], [w[:2] for w in want])
            for row, (_, _, cost) in zip(got, want):
                self.assertAlmostEqual(float(row["surprisal"]), cost, delta=2e-6 * cost)
            self.assertEqual([int(row["position"]) for row in got], list(range(1, len(got) + 1)))
            self.assertEqual({row["doc_id"] for row in got}, {f"s,{document}"} if got else set())
            self.assertEqual([int(row["characters"]) for row in got], [len(w) for w in text.split()])
        everything = [w for text in self.texts for w in text.split()]
        self.assertEqual([int(row["frequency"]) for row in rows], [everything.count(w) for w in everything])
        self.assertGreater(max(int(row["tokens"]) for row in rows), 2)

    def test_blanks_are_corrected_for(self):
        """p(word and its end) from whole distributions in float64: P(pieces) P(a word begins next, or the text ends) / P(one begins here)."""
        self.score("ends", "one", "text", "score.boundaries=yes", "score.end=yes")
        self.score("ends-2", "one", "text", "score.boundaries=yes", "score.end=yes", "score.memory=1KiB", ranks=2)
        rows = self.surprisal(self.at("ends"), "--unit", "nats", "--boundaries")
        plain = self.surprisal(self.at("ends"), "--unit", "nats")
        self.score("ends-plain", "one", "text", "score.end=yes")
        self.assertEqual(plain, self.surprisal(self.at("ends-plain"), "--unit", "nats"))
        self.assertEqual(rows, self.surprisal(self.at("ends-2"), "--unit", "nats", "--boundaries"))
        with open(self.at("tokenizer.json"), encoding="utf-8") as file:
            vocabulary = {token: piece for piece, token in json.load(file)["model"]["vocab"].items()}
        characters, w = byte_characters(), tensors_of(os.path.join(self.at("one"), "checkpoints", bagpipe_test.steps(self.at("one"))[-1]))
        with h5py.File(os.path.join(self.at("ends"), "score", "tokens.h5")) as file:
            starts, ids = file["doc_start"][:], file["tokens"][:]
        eod = int(ids[starts[1] - 1])
        begins = numpy.array([v == eod or (v in vocabulary and vocabulary[v][0] in characters and bytes([characters[vocabulary[v][0]]]).isspace())
                              for v in range(len(w["wte"]))])
        checked = 0
        for document in range(len(self.texts)):
            tokens = ids[starts[document]:starts[document + 1]]
            words = self.minicons("a", document)
            if not words or len(tokens) > len(w["wpe"]):
                continue
            log_p = log_softmax(gpt_logits(w, numpy.concatenate([[eod], tokens[:-1]])[None], 4))[0]
            mass = numpy.log(numpy.exp(log_p) @ begins)
            of_words = [row for row in rows if int(row["document"]) == document]
            at = 0
            for row, (_, pieces, _) in zip(of_words, words):
                want = log_p[range(at, at + pieces), tokens[at:at + pieces]].sum() + mass[at + pieces] - (mass[at] if begins[tokens[at]] else 0)
                if at + pieces < len(tokens):
                    self.assertAlmostEqual(float(row["surprisal"]), -want, delta=1e-4, msg=row["word"])
                    checked += 1
                at += pieces
        self.assertGreater(checked, 10)
        bare = self.surprisal(self.at("ends"), "--boundaries")
        self.assertTrue(all(row["surprisal"] for row in bare))
        self.score("open", "one", "text", "score.boundaries=yes")
        result = run([program("bagpipe-data"), "surprisal", self.at("open"), "--boundaries"])
        empty = [row for row in csv.DictReader(io.StringIO(result.out, newline="")) if not row["surprisal"]]
        self.assert_warning(result, "[surprisal.no_end]", f"{len(empty)} last words", "score.end=yes")
        self.assertEqual([row["word"] for row in empty], [text.split()[-1] for text in self.texts if text.split() and not text[-1].isspace()])

    def test_entropy_is_that_of_the_whole_distribution(self):
        """In float64 from the weights; the same bytes on two ranks, in pieces, and beside the probability of words' beginnings."""
        self.score("entropy", "one", "text", "score.entropy=yes", "score.end=yes")
        self.score("entropy-2", "one", "text", "score.entropy=yes", "score.boundaries=yes", "score.end=yes", "score.memory=1KiB", ranks=2)
        w = tensors_of(os.path.join(self.at("one"), "checkpoints", bagpipe_test.steps(self.at("one"))[-1]))
        with h5py.File(os.path.join(self.at("entropy"), "score", "tokens.h5")) as file, h5py.File(os.path.join(self.at("entropy-2"), "score", "tokens.h5")) as other:
            self.assertNotIn("boundary_logprob", file)
            for name in ("logprob", "entropy"):
                self.assertEqual(file[name][:].tobytes(), other[name][:].tobytes(), name)
            starts, ids, entropy = file["doc_start"][:], file["tokens"][:], file["entropy"][:]
        eod, checked = int(ids[starts[1] - 1]), 0
        for begin, end in zip(starts, starts[1:]):
            if end - begin <= len(w["wpe"]):
                log_p = log_softmax(gpt_logits(w, numpy.concatenate([[eod], ids[begin:end - 1]])[None], 4))[0]
                numpy.testing.assert_allclose(entropy[begin:end], -(numpy.exp(log_p) * log_p).sum(axis=-1), atol=1e-5)
                checked += 1
        self.assertGreater(checked, 4)
        with open(os.path.join(self.at("entropy"), "score", "summary.json"), encoding="utf-8") as file:
            self.assertAlmostEqual(json.load(file)["entropy"], entropy.mean(), places=5)
        rows, at = self.surprisal(self.at("entropy"), "b=" + self.at("b")), iter(())
        for row, bits in zip(rows, self.surprisal(self.at("entropy"))):
            if row["position"] == "1":
                at = iter(entropy[starts[int(row["document"])]:])
            self.assertEqual(list(row)[-4:], ["surprisal_entropy", "entropy_entropy", "tokens_b", "surprisal_b"])
            first = [next(at) for _ in range(int(row["tokens_entropy"]))][0]
            self.assertAlmostEqual(float(bits["entropy"]), first / math.log(2), places=5)
            self.assertEqual(bits["entropy"], row["entropy_entropy"])

    def test_entropy_of_other_models(self):
        self.must(["bagpipe", "pretrain", f"run.dir={self.at('counted')}", f"corpus.train={self.at('text.h5')}", "model.kind=ngram", "ngram.order=2"])
        self.write("pair.json", json.dumps({"members": [{"name": name, "path": self.at(name)} for name in ("one", "two")]}))
        for model, ranks in (("counted", 0), ("pair.json", 0), ("pair.json", 2)):
            refused = run([program("bagpipe"), "score", self.at("score.ini"), f"run.dir={self.at('no-entropy')}", f"score.model={self.at(model)}",
                           f"score.corpus={self.at('text.h5')}", "score.entropy=yes"], ranks)
            self.assert_error(refused, 78, "[score.no_entropy]")
        self.score("store", "one", "text", "score.states=yes")
        mixed = run([program("bagpipe"), "score", self.at("score.ini"), f"run.dir={self.at('no-entropy')}", f"score.model={self.at('one')}", f"score.corpus={self.at('text.h5')}",
                     f"score.neighbours={self.at('store/score/states.h5')}", "neighbours.k=2", "score.entropy=yes"])
        self.assert_error(mixed, 78, "[score.no_entropy]", "score.neighbours")
        self.score("pair", "pair.json", "text")
        with h5py.File(os.path.join(self.at("pair"), "score", "tokens.h5")) as file:
            first = float(file["total_entropy"][0]) / math.log(2)
        self.assertAlmostEqual(float(self.surprisal(self.at("pair"))[0]["entropy"]), first, places=5)

    def items(self, name, rows):
        """Scores of texts with labels critical, condition and item, by both models."""
        with open(self.at(name + ".jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(dict(zip(("text", "critical", "condition", "item"), row))) + "\n" for row in rows)
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--label", "critical", "--label", "condition", "--label", "item",
                   "--out", self.at(name + ".h5"), self.at(name + ".jsonl")])
        for model in ("one", "two"):
            self.score(f"{name}-{model}", model, name)

    def test_critical_words_are_tested_by_items(self):
        """Against the rows of the critical words: item by item, with Student's t by its density."""
        words = "cat dog man sea house boat tree road king book door fire".split()
        rows = [(f"The old {word} {verb} here, then.", ["here", "5", "4-5"][k % 3], condition, f"i{k}") for k, word in enumerate(words)
                for condition, verb in (("short", "is"), ("long", "was certainly"), ("bare", ""))][:-2]
        self.items("items", [*rows[:4], ("No critical word.", "", "short", "filler"), *rows[4:], ("The old cat is right here.", "here", "short", "i0")])
        runs = ("A=" + self.at("items-one"), "B=" + self.at("items-two"))
        critical = self.surprisal(*runs, "--critical", "critical")
        everything = {(row["document"], row["position"]): row for row in self.surprisal(*runs)}
        self.assertEqual(critical, [everything[row["document"], row["position"]] for row in critical])
        self.assertEqual({row["word"] for row in critical if row["critical"] == "here"}, {"here,", "here."})
        self.assertEqual({row["position"] for row in critical if row["critical"] == "4-5"}, {"4", "5"})
        of = collections.defaultdict(lambda: collections.defaultdict(float))
        for row in critical:
            for model in "AB":
                of[model, row["condition"], row["item"]][row["document"]] += float(row["surprisal_" + model])
        result = run([program("bagpipe-data"), "surprisal", *runs, "--critical", "critical", "--between", "condition", "--items", "item"])
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[surprisal.unpaired_items]", "1 item has")
        self.assert_warning(result, "[surprisal.different_words]", "7 items", "'short' and 'long'", "'here' and 'certainly' of item")  # of positions that an added word shifts
        table = list(csv.DictReader(io.StringIO(result.out)))
        self.assertEqual([(row["model"], row["a"], row["b"]) for row in table],
                         [(model, a, b) for model in "AB" for a, b in (("short", "long"), ("short", "bare"), ("long", "bare"))])
        adjusted = []
        for row in table:
            pairs = []
            for item in sorted({key[2] for key in of}):
                cells = [of.get((row["model"], row[name], item)) for name in "ab"]
                if all(cells):
                    pairs.append([sum(cell.values()) / len(cell) for cell in cells])
            differences = numpy.array([a - b for a, b in pairs])
            self.assertEqual(int(row["items"]), len(pairs))
            error = differences.std(ddof=1) / math.sqrt(len(pairs))
            for name, want in (("mean_a", numpy.mean([a for a, _ in pairs])), ("mean_b", numpy.mean([b for _, b in pairs])), ("difference", differences.mean()),
                               ("t", differences.mean() / error)):
                self.assertAlmostEqual(float(row[name]), want, delta=1e-6 * (1 + abs(want)))
            freedom = len(pairs) - 1
            x = numpy.linspace(0, abs(float(row["t"])), 200001)
            density = math.gamma((freedom + 1) / 2) / math.sqrt(freedom * math.pi) / math.gamma(freedom / 2) * (1 + x * x / freedom) ** (-(freedom + 1) / 2)
            self.assertAlmostEqual(float(row["p_value"]), 1 - 2 * ((density[1:] + density[:-1]) / 2).sum() * x[1], delta=1e-6)
            adjusted.append(float(row["p_holm"]))
            quantile = {10: 2.2281389, 11: 2.2009852}[freedom]
            self.assertAlmostEqual((float(row["high"]) - float(row["low"])) / 2, quantile * error, delta=1e-6 * error)
        order = sorted(table, key=lambda row: float(row["p_value"]))
        largest = 0
        for k, row in enumerate(order):
            largest = max(largest, min(1, (len(order) - k) * float(row["p_value"])))
            self.assertAlmostEqual(float(row["p_holm"]), largest, places=9)

    def test_critical_words_that_cannot_be_tested(self):
        self.items("few", [("The cat is here.", "cat", "a", "1"), ("The cat was here.", "cat", "b", "1"), ("A cat.", "2", "a", "2")])
        result = run([program("bagpipe-data"), "surprisal", self.at("few-one"), "--critical", "critical", "--between", "condition", "--items", "item"])
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[surprisal.few_items]", "1 items", "below 10")
        self.assertNotIn("different_words", result.err)
        self.assertEqual([row[-5:] for row in csv.reader(io.StringIO(result.out))][1], [""] * 5)
        words = "cat dog man sea house boat tree road king book door fire".split()
        self.items("same", [(f"The {word} {verb} here.", "2", condition, word) for word in words for condition, verb in (("a", "is"), ("b", "was"))])
        result = run([program("bagpipe-data"), "surprisal", self.at("same-one"), "--critical", "critical", "--between", "condition", "--items", "item"])
        self.assert_warning(result, "[surprisal.equal_differences]", "all 12 items")
        self.assertEqual(next(csv.DictReader(io.StringIO(result.out)))["p_value"], "")
        self.items("both", [(f"The {word} {verb} here.", "3", condition, word) for word in words
                            for condition, verbs in (("a", ("is", "was")), ("b", ("was", "is"))) for verb in verbs])
        result = run([program("bagpipe-data"), "surprisal", self.at("both-one"), "--critical", "critical", "--between", "condition", "--items", "item"])
        self.assertNotIn("different_words", result.err)  # each item has both verbs in both conditions
        verbs = ["is", "was", "had", "are"]  # one mean of the same words in another order: rounding is no difference
        self.items("order", [(f"The {word} {verb} here.", "3", condition, word) for k, word in enumerate(words)
                             for condition, of in (("a", verbs), ("b", verbs[k % 4:] + verbs[:k % 4])) for verb in (of if k % 2 else of[::-1])])
        result = run([program("bagpipe-data"), "surprisal", self.at("order-one"), "--critical", "critical", "--between", "condition", "--items", "item"])
        self.assert_warning(result, "[surprisal.equal_differences]", "all 12 items", "'b', 0:")
        row = next(csv.DictReader(io.StringIO(result.out)))
        self.assertEqual((row["difference"], row["t"], row["p_value"], row["p_holm"]), ("0", "", "", ""))
        self.items("verbs", [(f"The {word} {verb} here.", "3", condition, word) for word in words
                             for condition, verbs in (("a", ("is", "was")), ("b", ("is", "are"))) for verb in verbs])
        result = run([program("bagpipe-data"), "surprisal", self.at("verbs-one"), "--critical", "critical", "--between", "condition", "--items", "item"])
        self.assert_warning(result, "[surprisal.different_words]", "12 items", "'is' and 'are'")
        for name, rows, between, status, *said in (("none", [("The cat.", "dog", "a", "1")], True, 65, "[surprisal.no_critical_word]", "'dog' is in document 0 0 times"),
                                                   ("twice", [("The cat the cat.", "cat", "a", "1")], True, 65, "[surprisal.no_critical_word]", "2 times"),
                                                   ("beyond", [("The cat.", "2-3", "a", "1")], True, 65, "[surprisal.no_critical_word]", "2 words"),
                                                   ("single", [("The cat.", "cat", "a", "1")], True, 65, "[surprisal.one_condition]", "'condition'"),
                                                   ("unknown", [("The cat.", "cat", "a", "1")], False, 65, "[label.unknown]", "condition critical item")):
            self.items(name, rows)
            words = ("--between", "condition", "--items", "item") if between else ("--between", "conditions", "--items", "item")
            self.assert_error(run([program("bagpipe-data"), "surprisal", self.at(name + "-one"), "--critical", "critical", *words]), status, *said)
        self.items("many", [("The cat.", "cat", str(k), "1") for k in range(1001)])
        for words, status, said in ((("condition", "--items", "condition"), 64, "[surprisal.no_items]"), (("condition", "--items", "item"), 65, "[surprisal.many_conditions]")):
            result = run([program("bagpipe-data"), "surprisal", self.at("many-one"), "--critical", "critical", "--between", *words])
            self.assert_error(result, status, said)
            self.assertEqual(result.out, "")
        for words in (("--between", "condition"), ("--items", "item", "--critical", "critical"), ("--between", "condition", "--items", "item")):
            self.assert_error(run([program("bagpipe-data"), "surprisal", self.at("few-one"), *words]), 64, "[surprisal.no_items]")

    def test_words_of_a_text_cost_what_the_text_costs(self):
        """Nothing is counted twice or left out, but what is after the last word."""
        rows = self.surprisal(self.at("a"), "--unit", "nats")
        with h5py.File(os.path.join(self.at("a"), "score", "documents.h5")) as file:
            nll = file["nll"][:]
        for document, text in enumerate(self.texts):
            if text == text.rstrip() and text:
                self.assertAlmostEqual(sum(float(row["surprisal"]) for row in rows if int(row["document"]) == document) / nll[document], 1, delta=1e-6)

    def test_sentences(self):
        rows = self.surprisal(self.at("a"))
        sentences = {document: [int(row["sentence"]) for row in rows if int(row["document"]) == document] for document in range(len(self.texts))}
        self.assertEqual(sentences[0], [1] * 9)
        self.assertEqual(sentences[1], [1] * 8 + [2] * 6)
        self.assertEqual(sentences[5], [1, 2, 2, 2, 2, 3])

    def test_marks_and_abbreviations_begin_no_sentence(self):
        texts = ["Who ? ? he said . '' Then ! !", "Mr. Smith met Dr. J. Doe. They left."]
        self.corpus("marks", texts)
        self.score("of-marks", "one", "marks")
        rows = self.surprisal(self.at("of-marks"))
        self.assertEqual([[int(row["sentence"]) for row in rows if row["document"] == document] for document in "01"],
                         [[1, 1, 1, 2, 2, 2, 2, 3, 3, 3], [1, 1, 1, 1, 1, 1, 2, 2]])

    def test_units_and_models_side_by_side(self):
        nats, bits = self.surprisal(self.at("a"), "--unit", "nats"), self.surprisal(self.at("a"), "--by", "word")
        for one, other in zip(nats, bits):
            self.assertAlmostEqual(float(one["surprisal"]), float(other["surprisal"]) * math.log(2), delta=1e-7 * float(one["surprisal"]))
        second = self.surprisal(self.at("b/score"))
        both = self.surprisal(self.at("a"), self.at("b"))
        self.assertEqual([[row[key] for key in ("word", "tokens_a", "surprisal_a", "surprisal_b")] for row in both],
                         [[one["word"], one["tokens"], one["surprisal"], two["surprisal"]] for one, two in zip(bits, second)])

    def test_words_before_have_columns_too(self):
        self.score("entropic", "one", "text", "score.entropy=yes")
        for runs, names in ((["entropic"], [""]), (["entropic", "b"], ["_entropic", "_b"])):
            folders = [self.at(run) for run in runs]
            plain, rows = self.surprisal(*folders), self.surprisal(*folders, "--spillover", "2")
            values = ["surprisal" + names[0], "entropy" + names[0], *("surprisal" + name for name in names[1:])]
            added = [f"spillover{k}_{name}" for k in (1, 2) for name in ("characters", "frequency", *values)]
            self.assertEqual(list(rows[0]), [*plain[0], *added])
            for at, (row, one) in enumerate(zip(rows, plain, strict=True)):
                self.assertEqual([row[name] for name in one], [*one.values()])
                for k in (1, 2):
                    before = plain[at - k] if int(one["position"]) > k else dict.fromkeys(one, "")
                    self.assertEqual([row[f"spillover{k}_{name}"] for name in ("characters", "frequency", *values)], [before[name] for name in ("characters", "frequency", *values)])
        self.assert_error(run([program("bagpipe-data"), "surprisal", self.at("a"), "--spillover", "10"]), 64, "[command.bad_number]", "0 to 9")
        twice = run([program("bagpipe-data"), "surprisal", self.at("a"), "--unit", "bits", "--unit", "nats"])
        self.assert_warning(twice, "[command.given_twice]", "--unit", "nats, counts")
        self.assertEqual(twice.out, run([program("bagpipe-data"), "surprisal", self.at("a"), "--unit", "nats"]).out)

    def test_other_tokenizers_have_the_same_words(self):
        """Characters, and pieces of WordPiece, which parts punctuation from words and knows no blanks."""
        for kind, size in (("char", 300), ("wordpiece", 400)):
            self.must(["bagpipe-data", "tokenizer", "--kind", kind, "--size", size, "--out", self.at(kind + ".json"), self.at("train.txt")])
            self.corpus(kind, ["The old man said so.", "the sea"], kind + ".json")
            self.must(["bagpipe-data", "corpus", "--tokenizer", self.at(kind + ".json"), "--format", "lines", "--out", self.at(kind + "-train.h5"), self.at("valid.txt")])
            self.must(["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={self.at(kind)}", f"corpus.train={self.at(kind + '-train.h5')}", "corpus.valid=", "train.steps=2"])
            self.score(kind + "-scored", kind, kind)
            rows = self.surprisal(self.at(kind + "-scored"))
            words = [unicodedata.normalize("NFC", row["word"]) for row in rows]
            want = "The old man said so. the sea".split()
            if kind == "wordpiece":
                words, want = [w.lower() for w in words], "the old man said so . the sea".split()
            self.assertEqual(words, want)
            with h5py.File(os.path.join(self.at(kind + "-scored"), "score", "documents.h5")) as file:
                total = file["nll"][:].sum() / math.log(2)
            self.assertAlmostEqual(sum(float(row["surprisal"]) for row in rows) / total, 1, delta=1e-6)

    def test_marks_are_blanks_and_fallback_tokens_bytes(self):
        """A tokenizer of LLaMA's kind: its words are those of the text, and P(B) counts what begins with white space, a line's end of one byte too."""
        mark, special = "\u2581", ["<unk>", "<s>", "</s>"]
        names = special + [f"<0x{byte:02X}>" for byte in range(256)] + [mark, *"abcdefghijklmnopqrstuvwxyz.", mark + "t", "he", mark + "the"]
        added = [{"id": k, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for k, name in enumerate(special)]
        self.write("llama.json", json.dumps({
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "pre_tokenizer": None, "post_processor": None,
            "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": mark}, {"type": "Replace", "pattern": {"String": " "}, "content": mark}]},
            "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": mark}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                                                         {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": True,
                      "byte_fallback": True, "ignore_merges": False, "vocab": {name: k for k, name in enumerate(names)},
                      "merges": [f"{mark} t", "h e", f"{mark}t he"]}}))
        text = "the cat \u00e9 sat.\na bird"
        self.corpus("llama", [text], "llama.json")
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("llama.json"), "--format", "lines", "--out", self.at("llama-train.h5"), self.at("valid.txt")])
        self.must(["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={self.at('llama')}", f"corpus.train={self.at('llama-train.h5')}", "corpus.valid=", "train.steps=2"])
        self.score("llama-scored", "llama", "llama", "score.boundaries=yes", "score.end=yes")
        rows = self.surprisal(self.at("llama-scored"), "--unit", "nats")
        self.assertEqual([(row["word"], row["characters"]) for row in rows], [(word, str(len(word))) for word in text.split()])
        self.assertEqual([row["tokens"] for row in rows], ["1", "4", "3", "5", "2", "5"])
        with h5py.File(os.path.join(self.at("llama-scored"), "score", "tokens.h5")) as file:
            ids, begins = file["tokens"][:], file["boundary_logprob"][:]
        w = tensors_of(os.path.join(self.at("llama"), "checkpoints", bagpipe_test.steps(self.at("llama"))[-1]))
        log_p = log_softmax(gpt_logits(w, numpy.concatenate([[ids[-1]], ids[:-1]])[None], 4))[0]
        white = [k for k, name in enumerate(names) if name[0] == mark or name in [f"<0x{byte:02X}>" for byte in b"\t\n\v\f\r "]]
        of = numpy.array([k in (names.index("<unk>"), ids[-1]) or k in white for k in range(log_p.shape[-1])])
        self.assertLess(numpy.abs(numpy.log(numpy.exp(log_p) @ of) - begins).max(), 1e-4)

    def test_tokens_that_end_words_need_no_correction(self):
        """BPE of characters with </w>: a word costs its tokens, whose last one ends it; score.boundaries is refused."""
        text, letters = "the cat sat on the mat", "acehmnost"
        names = ["<unk>"] + list(letters) + [c + "</w>" for c in letters] + ["th", "the</w>", "at</w>"]
        self.write("ends.json", json.dumps({
            "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None,
            "added_tokens": [{"id": k, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
                             for k, name in ((0, "<unk>"), (len(names), "<|endoftext|>"))],
            "decoder": {"type": "BPEDecoder", "suffix": "</w>"},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": "</w>", "fuse_unk": False,
                      "byte_fallback": False, "ignore_merges": False, "vocab": {name: k for k, name in enumerate([*names, "<|endoftext|>"])},
                      "merges": ["t h", "th e</w>", "a t</w>"]}}))
        self.corpus("ends-text", [text], "ends.json")
        self.write("ends.txt", "".join(f"{text}\n" for _ in range(400)))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("ends.json"), "--format", "lines", "--out", self.at("ends-train.h5"), self.at("ends.txt")])
        self.must(["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={self.at('ends-model')}", f"corpus.train={self.at('ends-train.h5')}", "corpus.valid=", "train.steps=2"])
        self.score("ends-scored", "ends-model", "ends-text")
        rows = self.surprisal(self.at("ends-scored"), "--unit", "nats")
        self.assertEqual([(row["word"], row["tokens"]) for row in rows], [("the", "1"), ("cat", "2"), ("sat", "2"), ("on", "2"), ("the", "1"), ("mat", "2")])
        with h5py.File(os.path.join(self.at("ends-scored"), "score", "tokens.h5")) as file:
            costs = iter([-float(x) for x in file["logprob"][:-1]])
        for row in rows:
            self.assertAlmostEqual(float(row["surprisal"]), sum(next(costs) for _ in range(int(row["tokens"]))), places=4)
        for ranks in (0, 2):
            refused = run([program("bagpipe"), "score", self.at("score.ini"), f"run.dir={self.at('ends-refused')}", f"score.model={self.at('ends-model')}",
                           f"score.corpus={self.at('ends-text.h5')}", "score.boundaries=yes"], ranks)
            self.assert_error(refused, 78, "[score.no_boundaries]", "</w>")

    def test_frequencies_are_those_of_other_texts(self):
        """A text, the corpus made of it, and lines of JSON have the same words; several files are added up."""
        others = [" ".join(text.split()[::2]) + "\n\tno\u00a0word of these\u3000\n" for text in self.texts] + [SENTENCES[0] * 3]
        self.write("others.txt", "\n".join(others))
        self.corpus("others", others)
        counts = collections.Counter("\n".join(others).split())
        rows = self.surprisal(self.at("a"), self.at("b"), "--frequencies", self.at("others.txt"))
        self.assertEqual([int(row["frequency"]) for row in rows], [counts[row["word"]] for row in rows])
        self.assertLess(0, sum(row["frequency"] == "0" for row in rows))
        self.assertEqual(self.surprisal(self.at("a"), self.at("b"), "--frequencies", self.at("others.h5")), rows)
        self.assertEqual(self.surprisal(self.at("a"), self.at("b"), "--frequencies", self.at("others.jsonl"), "--format", "jsonl"), rows)
        twice = self.surprisal(self.at("a"), self.at("b"), "--frequencies", self.at("others.txt"), "--frequencies", self.at("others.txt"))
        self.assertEqual([int(row["frequency"]) for row in twice], [2 * int(row["frequency"]) for row in rows])

    def test_folders_of_one_name_have_columns_of_their_own(self):
        names = [self.at(f"{name}-of/scored") for name in "ab"]
        for name, folder in zip("ab", names):
            shutil.copytree(self.at(name), folder)
        rows = self.surprisal(*names, self.at("a"))
        self.assertEqual([name for name in rows[0] if name.startswith("surprisal")], [*(f"surprisal_{name}" for name in names), "surprisal_a"])
        self.assertEqual([row[f"surprisal_{names[0]}"] for row in rows], [row["surprisal_a"] for row in rows])

    def test_names_and_labels_are_columns(self):
        with open(self.at("labelled.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": text, "condition": "ab"[k % 2], "word": "x,y"}) + "\n" for k, text in enumerate(self.texts))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--label", "condition", "--label", "word", "--out",
                   self.at("labelled.h5"), self.at("labelled.jsonl")])
        self.score("with-labels", "one", "labelled")
        rows, plain = self.surprisal("small=" + self.at("with-labels"), "b=" + self.at("with-labels")), self.surprisal(self.at("a"))
        self.assertEqual(list(rows[0])[6:], ["frequency", "condition", "label_word", "tokens_small", "surprisal_small", "tokens_b", "surprisal_b"])
        self.assertEqual([(row["condition"], row["label_word"]) for row in rows], [("ab"[int(row["document"]) % 2], "x,y") for row in rows])
        self.assertEqual([row["surprisal_small"] for row in rows], [row["surprisal"] for row in plain])

    def test_all_columns_have_names_of_their_own(self):
        labels = ["label_word", "surprisal", "surprisal_small", "word"]
        with open(self.at("clashes.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": text, **{name: "of " + name for name in labels}}) + "\n" for text in self.texts)
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", *(word for name in labels for word in ("--label", name)),
                   "--out", self.at("clashes.h5"), self.at("clashes.jsonl")])
        self.score("of-clashes", "one", "clashes")
        rows = self.surprisal("small=" + self.at("of-clashes"))
        self.assertEqual(list(rows[0])[7:], ["label_word", "label_surprisal", "label_surprisal_small", "label_label_word", "tokens_small", "surprisal_small"])
        self.assertEqual(list(rows[0].values())[7:11], ["of " + name for name in labels])
        for runs in (("x=" + self.at("a"), "x=" + self.at("b")), ("b=" + self.at("a"), self.at("b")), (self.at("a"), self.at("a"))):
            self.assert_error(run([program("bagpipe-data"), "surprisal", *runs]), 64, "[command.same_names]")
        self.assert_error(run([program("bagpipe-data"), "surprisal", "lr=0.1/nowhere"]), 66, "at lr=0.1/nowhere")

    def test_words_that_the_tokenizer_lacks_are_warned_of(self):
        self.must(["bagpipe-data", "tokenizer", "--kind", "word", "--size", "60", "--out", self.at("few.json"), self.at("train.txt")])
        self.corpus("few", self.texts, "few.json")
        self.must(["bagpipe", "pretrain", f"run.dir={self.at('bigrams')}", f"corpus.train={self.at('few.h5')}", "model.kind=ngram", "ngram.order=2"])
        self.score("few-scored", "bigrams", "few")
        result = run([program("bagpipe-data"), "surprisal", self.at("few-scored")])
        unknown = result.out.count(",<unk>,")
        self.assertGreater(unknown, 0)
        self.assert_warning(result, "[surprisal.unknown_words]", f"{unknown} of {len(result.out.splitlines()) - 1} words")
        rows = list(csv.DictReader(io.StringIO(result.out, newline="")))
        self.assertEqual({(row["characters"], row["frequency"]) for row in rows if row["word"] == "<unk>"}, {("", "")})
        self.assertTrue(all(row["characters"] and row["frequency"] for row in rows if row["word"] != "<unk>"))
        self.assertNotIn("[surprisal.unknown_words]", run([program("bagpipe-data"), "surprisal", self.at("a")]).err)

    def test_what_was_not_scored_is_empty(self):
        self.score("bare", "one", "text", "score.prefix=none")
        rows = self.surprisal(self.at("bare"))
        self.assertEqual([row["word"] for row in rows if row["surprisal"] == ""], [text.split()[0] for text in self.texts if text.split()])

    def test_refusals(self):
        self.corpus("other", [text.replace("cat", "dog") for text in self.texts])
        self.score("other-b", "two", "other")
        self.corpus("fewer", self.texts[:2])
        self.score("fewer-b", "two", "fewer")
        self.score("bare-tokens", "one", "text", "score.tokens=no")
        for words, status, *said in (((self.at("a"), self.at("other-b")), 65, "[surprisal.other_words]", "document 1", "word 8"),
                                     ((self.at("a"), self.at("fewer-b")), 65, "[surprisal.other_words]", "8 and 2"),
                                     ((self.at("bare-tokens"),), 66, "[scores.no_tokens]", "score.tokens=yes"), ((self.at("a"), "--boundaries"), 66, "[scores.no_boundaries]", "score.boundaries=yes"), ((), 64, "[command.no_tool]"), (("--unit", "nats"), 64, "[command.no_input]"),
                                     ((self.at("a"), "--frequencies", self.at("none.txt")), 66, "none.txt"), ((self.at("a"), "--frequencies", self.at("text.jsonl"), "--format", "csv"), 64, "csv"),
                                     ((self.at("a"), "--format", "lines"), 64, "[surprisal.no_frequencies]", "--format"), ((self.at("a"), "--text-field", "x"), 64, "[surprisal.no_frequencies]", "--text-field"),
                                     ((self.at("a"), "--by", "token"), 64, "[command.bad_value]"), ((self.at("a"), "--unit", "dits"), 64, "[command.bad_value]")):
            result = run([program("bagpipe-data"), "surprisal", *words])
            self.assert_error(result, status, *said)
            self.assertEqual(result.out, "")  # no line of heads that looks like an empty table
        self.write("both.json", json.dumps({"members": [{"name": name, "path": self.at(name)} for name in ("one", "two")]}))
        for ranks in (0, 2):
            both = run([program("bagpipe"), "score", self.at("score.ini"), f"run.dir={self.at('both')}", f"score.model={self.at('both.json')}",
                        f"score.corpus={self.at('text.h5')}", "score.boundaries=yes"], ranks)
            self.assert_error(both, 78, "[score.no_boundaries]")


if __name__ == "__main__":
    bagpipe_test.main()
