"""bagpipe-data metrics: published examples of sacreBLEU and rouge-score, nltk, scikit-learn and scipy, and what is refused."""
import collections
import json
import os
import random
import re

import nltk
import numpy
import scipy.stats
import sklearn.metrics
from nltk.corpus.reader.wordnet import WordNetCorpusReader
from nltk.translate.bleu_score import SmoothingFunction, corpus_bleu
from nltk.translate.meteor_score import single_meteor_score

import bagpipe_test
from bagpipe_test import FolderTest, program, run

REFERENCES = [["The dog bit the man.", "It was not unexpected.", "The man bit him first."],
              ["The dog had bit the man.", "No one was surprised.", "The man had bitten the dog."]]
HYPOTHESIS = ["The dog bit the man.", "It wasn't surprising.", "The man had just bitten him."]
PIECES = ["the", "cat's", "sat", "on", "3,000.5", "mats", ".", ",", "e.g.", "(well)", "2-3", "x-y", "10,", "...", "&quot;", "&amp;lt;", "\u674e\u767d",
          "\u2014", "caf\u00e9.", "A/B", "<skipped>", "$5", "\uff0c", "\u3002", "[a]", "it", "it", "it", "is", "is"]


class NoWordNet:
    @staticmethod
    def synsets(word):
        return []


def words(line, chinese=False):
    """mteval-v13a's words, by its regular expressions."""
    if chinese:
        line = "".join(f" {c} " if re.match("[\u2001-\u2a6d\u2e80-\u2fff\u3000-\u303f\u3100-\u312f\u31a0-\u31bf\u31c0-\u31ef\u3200-\u4db5\u4e00-\u9fbb"
                                            "\uf900-\ufa2d\ufe30-\ufe4f\uff00-\uffef]", c) else c for c in line.strip())
    else:
        line = line.rstrip().replace("<skipped>", "").replace("&quot;", '"').replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")
        line = f" {line} "
    for pattern, to in ((r"([\{-\~\[-\` -\&\(-\+\:-\@\/])", r" \1 "), (r"([^0-9])([\.,])", r"\1 \2 "), (r"([\.,])([^0-9])", r" \1 \2"),
                        (r"([0-9])(-)", r"\1 \2 ")):
        line = re.sub(pattern, to, line)
    return line.split()


def chrf(hypotheses, references):
    """One reference each, from the definition."""
    precisions, recalls = [], []
    for n in range(1, 7):
        totals = numpy.zeros(3)
        for pair in zip(hypotheses, references):
            texts = ["".join(text.split()) for text in pair]
            grams = [collections.Counter(text[k:k + n] for k in range(len(text) - n + 1)) for text in texts]
            if grams[1]:
                totals += [sum(grams[0].values()), sum(grams[1].values()), sum((grams[0] & grams[1]).values())]
        if totals[0] and totals[1]:
            precisions.append(totals[2] / totals[0])
            recalls.append(totals[2] / totals[1])
    p, r = numpy.mean(precisions), numpy.mean(recalls)
    return 100 * 5 * p * r / (4 * p + r) if p + r else 0


class Metrics(FolderTest):
    def lines(self, name, lines):
        return self.write(name, "".join(f"{line}\n" for line in lines))

    def measure(self, kind, references, hypothesis, *more):
        """The JSON of lists of lines."""
        arguments = [program("bagpipe-data"), "metrics", "--kind", kind, "--hypothesis", self.lines("hypothesis", hypothesis), *more]
        for k, reference in enumerate(references):
            arguments += ["--reference", self.lines(f"reference{k}", reference)]
        result = run(arguments)
        self.assertEqual(result.status, 0, str(result))
        return json.loads(result.out)

    def values(self, *arguments):
        return {name: figure["value"] for name, figure in self.measure(*arguments)["figures"].items()}

    def near(self, got, want, delta=1e-12):
        self.assertLessEqual(abs(got - want), delta * max(1, abs(want)), f"{got} is not {want}")

    # ---- texts ----

    def drawn(self, seed, count=60):
        draw = random.Random(seed)
        lines = [[draw.choice(PIECES) for _ in range(draw.randrange(0, 14))] for _ in range(count)]
        other = [[draw.choice(PIECES) if draw.random() < 0.2 else piece for piece in line if draw.random() < 0.9] for line in lines]
        return [" ".join(line) for line in lines], ["  ".join(line) for line in other]

    def test_bleu_of_published_examples(self):
        got = self.measure("bleu", REFERENCES, HYPOTHESIS)
        self.near(got["figures"]["bleu"]["value"], 48.530827, 1e-8)
        self.assertEqual(re.sub(r"bagpipe-.*", "", got["signature"]), "nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp|version:")
        self.near(self.values("bleu", REFERENCES, HYPOTHESIS, "--words", "none")["bleu"], 49.1919566, 1e-8)
        self.assertEqual(self.values("bleu", REFERENCES, ["", "", ""])["bleu"], 0)
        # one document's orders are those that it has
        for hypothesis, reference, want in (("test", "a test", 36.78794411714425), ("a test", "a test", 100), ("this is a fest", "this is a test", 59.460355750136046)):
            got = self.values("bleu", [[reference]], [hypothesis])["sentence_bleu"]
            self.near(got, want, 1e-7)

    def test_bleu_is_that_of_nltk(self):
        for seed in range(4):
            truth, said = self.drawn(seed)
            # nltk counts an n-gram where a line has none: lines of 4 words
            truth, said = zip(*((a, b) for a, b in zip(truth, said) if len(b.split()) > 3 and len(words(b)) > 3))
            other = self.drawn(seed + 100)[0][:len(truth)]
            for how, cut in (("13a", words), ("zh", lambda line: words(line, True)), ("none", str.split)):
                want = corpus_bleu([[cut(a), cut(b)] for a, b in zip(truth, other)], [cut(line) for line in said],
                                   smoothing_function=SmoothingFunction().method3)
                self.near(self.values("bleu", [truth, other], said, "--words", how)["bleu"], 100 * want)

    def test_chrf(self):
        for hypothesis, reference, want in ((["a"], ["a"], 100), ([""], ["reference"], 0), (["a b c"], ["abc"], 100), ([""], ["c"], 0),
                                            (["a", "b"], ["a", "c"], 50), (["aa"], ["ab"], 25)):
            self.near(self.values("chrf", [reference], hypothesis)["chrf2"], want)
        for seed in range(4):
            truth, said = self.drawn(seed)
            self.near(self.values("chrf", [truth], said)["chrf2"], chrf(said, truth))
        both = self.values("chrf", [["xyz", "abcd"], ["abc", "q"]], ["abc", "abcd"])["chrf2"]
        self.near(both, 100)

    def test_rouge_of_published_examples(self):
        got = self.values("rouge", [["The quick brown fox jumps over the lazy dog"]], ["The quick brown dog jumps on the log."])
        self.near(got["rouge1_precision"], 0.75)
        self.near(got["rouge1_recall"], 2 / 3)
        self.near(got["rougeL_precision"], 0.625)
        self.near(got["rougeL_recall"], 5 / 9)
        self.near(got["rougeL"], 10 / 17)
        for said, first, second, longest in (("testing", 1 / 2, 0, 1 / 2), ("testing one", 4 / 5, 2 / 3, 4 / 5), ("testing two", 4 / 5, 0, 4 / 5), ("", 0, 0, 0)):
            got = self.values("rouge", [["testing one two"]], [said])
            self.near(got["rouge1"], first)
            self.near(got["rouge2"], second)
            self.near(got["rougeL"], longest)
        got = self.values("rouge", [["a b", "x"], ["a c d", "x"]], ["a, C! \u00c9d", "y"])  # the better reference of each kind
        self.near(got["rouge1"], 1 / 2)
        self.near(got["rouge2"], 1 / 2)

    def nltk_meteor(self, folder):
        """nltk's score of two lists of words; it also wants a list of lexicographers' files, which it does not use."""
        if folder is None:
            return lambda reference, hypothesis: single_meteor_score(reference, hypothesis, wordnet=NoWordNet())
        own = self.at("wordnet")
        if not os.path.exists(own):
            os.mkdir(own)
            for name in os.listdir(folder):
                os.symlink(os.path.join(folder, name), os.path.join(own, name))
            with open(os.path.join(own, "lexnames"), "w", encoding="utf-8") as file:
                file.write("".join(f"{k:02}\tnoun.thing\t1\n" for k in range(45)))
        wordnet = WordNetCorpusReader(nltk.data.FileSystemPathPointer(own), None)
        return lambda reference, hypothesis: single_meteor_score(reference, hypothesis, wordnet=wordnet)

    def meteor_texts(self):
        """Words of many endings, others for some, in another order here and there."""
        draw = random.Random(5)
        known = ("the cats were running quickly dogs automobile car cars buy purchased purchases happy happiest glad skies sky dying died die flies "
                 "relational conditionally analogousli big larger large children child geese goose men man oxen teeth better good well ate eat eating "
                 "hopefulness decisions national nationally triplicate adjustable adoption controlling rolled fizzed failing filing happily y yes "
                 "Caf\u00e9s generously news innings feed agreed plastered motoring physician doctor doctors apologies generalization").split()
        lines = [[draw.choice(known) for _ in range(draw.randrange(0, 15))] for _ in range(150)]
        said = []
        for line in lines:
            other = [draw.choice(known) if draw.random() < 0.5 else word for word in line if draw.random() < 0.9]
            cut = draw.randrange(len(other) + 1)
            said.append(other[cut:] + other[:cut])
        return lines, said

    def test_meteor_is_that_of_nltk(self):
        truth, said = self.meteor_texts()
        files = [[" ".join(line) for line in lines] for lines in (truth, said)]
        empty = os.path.join(self.folder, "empty")
        os.mkdir(empty)
        score = self.nltk_meteor(None)
        for name in ("index", "data"):
            for part in ("noun", "verb", "adj", "adv"):
                self.write(f"empty/{name}.{part}", "")
        for part in ("noun", "verb", "adj", "adv"):
            self.write(f"empty/{part}.exc", "")
        got = self.values("meteor", [files[0]], files[1], "--wordnet", empty)["meteor"]
        self.near(got, numpy.mean([score(a, b) for a, b in zip(truth, said)]))
        got = self.values("meteor", [["It is a guide to action that ensures that the military will forever heed Party commands"]],
                          ["It is a guide to action which ensures that the military always obeys the commands of the party"], "--wordnet", empty)["meteor"]
        self.near(got, 0.6944, 1e-4)
        self.assertEqual(self.values("meteor", [["this is a cat"]], ["non matching hypothesis"], "--wordnet", empty)["meteor"], 0)
        self.assert_error(run([program("bagpipe-data"), "metrics", "--kind", "meteor", "--wordnet", self.at("none"), "--reference", self.write("r", "a\n"),
                               "--hypothesis", self.write("h", "a\n")]), 66, "[file.missing]")

    def test_synonyms_are_those_of_wordnet(self):
        if not os.path.exists("/usr/share/wordnet/index.noun"):
            self.skipTest("there is no WordNet (Debian: wordnet-base)")
        truth, said = self.meteor_texts()
        score = self.nltk_meteor("/usr/share/wordnet")
        got = self.measure("meteor", [[" ".join(line) for line in truth]], [" ".join(line) for line in said])
        self.assertIs(got["synonyms"], True)
        want = [score(a, b) for a, b in zip(truth, said)]
        self.near(got["figures"]["meteor"]["value"], numpy.mean(want))
        without = self.nltk_meteor(None)
        self.assertGreater(numpy.mean(want), numpy.mean([without(a, b) for a, b in zip(truth, said)]) + 0.002)

    # ---- tasks ----

    def test_classes_and_numbers(self):
        draw = numpy.random.default_rng(1)
        label = draw.choice(["news", "a poem", "sport"], 200)
        said = numpy.where(draw.random(200) < 0.7, label, draw.choice(["news", "else"], 200))
        got = self.values("classes", [label], said)
        self.near(got["accuracy"], (label == said).mean())
        self.near(got["f1_macro"], sklearn.metrics.f1_score(label, said, average="macro"))
        self.near(got["matthews"], sklearn.metrics.matthews_corrcoef(label, said))
        x = draw.normal(0, 1, 100).round(1)
        y = (x + draw.normal(0, 1, 100)).round(1)
        got = self.values("regression", [x], y)
        self.near(got["pearson"], scipy.stats.pearsonr(x, y)[0])
        self.near(got["spearman"], scipy.stats.spearmanr(x, y)[0])
        self.near(got["mse"], ((x - y) ** 2).mean())

    def test_tags(self):
        truth = ["EU\tB-ORG", "rejects O", "German B-MISC", "call I-MISC", "", "", "Peter  NNP B-PER", "Blackburn NNP I-PER"]
        said = ["EU B-ORG", "rejects O", "German B-MISC", "call O", "", "", "Peter B-PER", "Blackburn I-PER"]
        got = self.measure("tags", [truth], said)
        self.assertEqual(got["documents"], 2)
        figures = {name: figure["value"] for name, figure in got["figures"].items()}
        for name, want in (("precision", 2 / 3), ("recall", 2 / 3), ("f1", 2 / 3), ("accuracy", 5 / 6)):
            self.near(figures[name], want)

    def test_answers(self):
        truth = ["The Norman conquest!", "", "in a 10th-century", "x"]
        other = ["Normans", "", "10th century", "y"]
        said = ["norman  conquest", "", "the 10thcentury", ""]
        got = self.values("spans", [truth, other], said)
        self.near(got["exact_match"], 2 / 4)
        self.near(got["f1"], (1 + 1 + 2 * 0.5 * 1 / 1.5 + 0) / 4)

    def test_two_systems(self):
        truth, said = self.drawn(7)
        other = self.drawn(8)[0]
        got = self.measure("bleu", [truth], said, "--against", self.lines("against", other))
        gap = got["difference"]["bleu"]
        self.near(gap["value"], got["figures"]["bleu"]["value"] - got["against"]["bleu"]["value"])
        self.assertGreater(gap["low"], 0)
        self.assertEqual((gap["wins"], gap["p_value"]), (1, 1 / 1001))
        again = self.measure("bleu", [truth], said, "--against", self.lines("against", said))
        self.assertEqual(again["difference"]["bleu"], {"value": 0, "low": 0, "high": 0, "wins": 0.5, "p_value": 1})
        # the interval of a mean of zeros and ones is that of a binomial, to what 1,000 resamples know
        right = ["a"] * 70 + ["b"] * 30
        interval = self.measure("classes", [["a"] * 100], right)["figures"]["accuracy"]
        self.assertLess(abs(interval["low"] - scipy.stats.binom.ppf(0.025, 100, 0.7) / 100), 0.021)
        self.assertLess(abs(interval["high"] - scipy.stats.binom.ppf(0.975, 100, 0.7) / 100), 0.021)

    def test_a_short_table_and_a_file(self):
        truth, said = self.drawn(7)
        want = self.measure("bleu", [truth], said)
        for more in ([], ["--out", self.at("figures.json")]):
            result = run([program("bagpipe-data"), "metrics", "--kind", "bleu", "--reference", self.at("reference0"), "--hypothesis", self.at("hypothesis"), "--short", *more])
            self.assertEqual(result.status, 0, str(result))
            rows = [line.split() for line in result.out.splitlines()]
            self.assertEqual([(row[0], row[1]) for row in rows], [(name, f"{figure['value']:.4f}") for name, figure in want["figures"].items()])
            bleu = want["figures"]["bleu"]
            self.assertIn(f"(95 % interval {bleu['low']:.4f} to {bleu['high']:.4f})", result.out)
        with open(self.at("figures.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file), want)
        alone = run([program("bagpipe-data"), "metrics", "--kind", "bleu", "--reference", self.at("reference0"), "--hypothesis", self.at("hypothesis"), "--out", self.at("again.json")])
        self.assertEqual((alone.status, alone.out), (0, ""), str(alone))
        over = run([program("bagpipe-data"), "metrics", "--kind", "bleu", "--reference", self.at("reference0"), "--hypothesis", self.at("hypothesis"), "--out", self.at("reference0")])
        self.assert_error(over, 64, "reference0")

    def test_lines_that_are_no_words(self):
        words = "A B-X\nb I-X\n\nC O\n"
        for other in (words, words + "\n", words + "\n \n\n", "\n" + words, words.replace("\n\n", "\n\n\t\n\n"),
                      "-DOCSTART- O\n\n" + words, words.replace("\n\n", "\n-DOCSTART- -X- O\n"), "# text = A b\n" + words,
                      words.replace("C", "# id 7\nC")):
            for pair in ((words, other), (other, words)):
                result = run([program("bagpipe-data"), "metrics", "--kind", "tags", "--reference", self.write("r", pair[0]), "--hypothesis",
                              self.write("h", pair[1])])
                self.assertEqual(result.status, 0, str(result) + repr(other))
                got = json.loads(result.out)
                self.assertEqual((got["documents"], got["figures"]["f1"]["value"], got["figures"]["accuracy"]["value"]), (2, 1, 1), repr(other))
        tagged = "#tag B-X\nb O\n\n# O\n"  # words
        result = run([program("bagpipe-data"), "metrics", "--kind", "tags", "--reference", self.write("r", tagged), "--hypothesis", self.write("h", tagged)])
        self.assertEqual(json.loads(result.out)["documents"], 2, str(result))
        for kind, lines in (("classes", "a\nb\n"), ("regression", "1\n2\n"), ("bleu", "a b\nc\n")):
            for pair in ((lines, lines + "\n"), (lines + "\n\n", lines)):
                result = run([program("bagpipe-data"), "metrics", "--kind", kind, "--reference", self.write("r", pair[0]), "--hypothesis",
                              self.write("h", pair[1])])
                self.assertEqual(json.loads(result.out)["documents"], 2, str(result))

    def test_lower_case_is_pythons(self):
        for text in ("\u039f\u0394\u039f\u03a3", "\u03a3", "\u0391\u03a3. \u03a3\u0391", "\u0391\u0345\u03a3", "\u0130\u03a3", "\u2160\u03a3\u00aa",
                     "A.\u03a3-B", "\u02b0\u03a3"):
            self.assertEqual(self.values("spans", [[text.lower()]], [text])["exact_match"], 1, text)
            self.near(self.values("meteor", [[text.lower()]], [text])["meteor"], self.values("meteor", [[text]], [text])["meteor"])
        self.near(self.values("meteor", [["\u03bf\u03b4\u03bf\u03c2 \u03b1"]], ["\u039f\u0394\u039f\u03a3 \u0391"])["meteor"], 1 - 0.5 * (1 / 2) ** 3)

    def test_answers_of_no_words_count_where_there_are_no_others(self):
        self.assertEqual(self.values("spans", [["the"], ["cat"]], [""]), {"exact_match": 0, "f1": 0})
        self.assertEqual(self.values("spans", [["the"], ["cat"]], ["a cat"]), {"exact_match": 1, "f1": 1})
        self.assertEqual(self.values("spans", [["the"], ["."]], [""]), {"exact_match": 1, "f1": 1})

    def test_correlation_of_numbers_far_from_one(self):
        x, y = [1.0, 2.5, -3.0, 4.0], [2.0, 2.25, -1.0, 7.0]
        want = self.values("regression", [[repr(v) for v in x]], [repr(v) for v in y])["pearson"]
        for a, b in ((1e-300, 1e-300), (1e-320, 1), (1e300, 1e300), (4e307, 1e-310), (2.0**-1000, 2.0**1000)):
            got = self.values("regression", [[repr(v * a) for v in x]], [repr(v * b) for v in y])["pearson"]
            self.near(got, want, 1e-3 if min(a, b) < 1e-307 else 1e-14)

    # ---- what is refused ----

    def refused(self, status, identifier, kind, reference, hypothesis, *more):
        self.assert_error(run([program("bagpipe-data"), "metrics", "--kind", kind, "--reference", self.write("r", reference), "--hypothesis",
                               self.write("h", hypothesis), *more]), status, identifier)

    def test_bad_input(self):
        self.refused(65, "[metrics.other_lines]", "bleu", "a\nb\n", "a\n")
        self.refused(65, "[metrics.no_lines]", "bleu", "", "")
        self.refused(65, "[metrics.no_lines]", "rouge", "a\n", "")
        result = run([program("bagpipe-data"), "metrics", "--kind", "classes", "--hypothesis", self.write("h", "sea\ntown\n"), "--reference",
                      self.write("r", "1\tsea\n2\ttown\n")])
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[metrics.other_labels]", "lines have several columns")
        self.refused(65, "[metrics.no_label]", "classes", "a\n\n", "a\nb\n")
        self.refused(65, "[metrics.bad_number]", "regression", "1\n2\n", "1\nnan\n")
        self.refused(65, "[metrics.bad_number]", "regression", "1\n2x\n", "1\n2\n")
        self.refused(65, "[metrics.other_tokens]", "tags", "a B-X\n\n", "a B-X\nb O\n")
        self.refused(65, "[metrics.other_tokens]", "tags", "a B-X\n", "b B-X\n")
        for kind, text in (("tags", "a B-X\rb O\r"), ("classes", "a\rb\r"), ("regression", "1\r2\r")):
            self.refused(65, "[metrics.carriage_return]", kind, text, text)
        self.refused(65, "[metrics.no_entities]", "tags", "a NN\n", "a VB\n")
        self.refused(64, "[metrics.unknown_kind]", "blue", "a\n", "a\n")
        self.refused(64, "[metrics.unknown_words]", "bleu", "a\n", "a\n", "--words", "ja")
        self.refused(64, "[metrics.several_references]", "classes", "a\n", "a\n", "--reference", self.write("r", "a\n"))
        self.refused(64, "[command.not_understood]", "bleu", "a\n", "a\n", "more")
        self.assert_error(run([program("bagpipe-data"), "metrics", "--kind", "bleu", "--hypothesis", self.write("h", "a\n")]), 64, "[command.no_input]")
        self.assert_error(run([program("bagpipe-data"), "metrics", "--kind", "bleu", "--hypothesis", self.at("none"), "--reference",
                               self.write("r", "a\n")]), 66, "[file.missing]")
        with open(self.at("bytes"), "wb") as file:
            file.write(b"a\xff\n")
        self.assert_error(run([program("bagpipe-data"), "metrics", "--kind", "bleu", "--hypothesis", self.at("bytes"), "--reference",
                               self.write("r", "a\n")]), 65, "[metrics.not_utf8]")
        label = run([program("bagpipe-data"), "metrics", "--kind", "classes", "--hypothesis", self.write("h", "a\0\n"), "--reference",
                     self.write("r", "a\n")])
        self.assert_error(label, 65, "[metrics.not_utf8]")
        self.assertIn("U+0000", label.err)


if __name__ == "__main__":
    bagpipe_test.main()
