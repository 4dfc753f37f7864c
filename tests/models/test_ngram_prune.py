"""ngram.prune_entropy: each n-gram of a small model is taken out by hand, the relative entropy summed over all words, and the n-grams that
are left compared; the same bytes on any ranks."""
import hashlib
import math
import os

import numpy

import bagpipe_test
from bagpipe_test import JobTest, program, run, steps

THRESHOLDS = (3e-6, 1e-4)
CLOSE = 0.01  # nearer to the threshold than that numbers of 7 digits may tell otherwise


class Arpa:
    """Log-probabilities (natural) and back-off weights by words."""

    def __init__(self, path):
        self.order, self.prob, self.left = 0, {}, {}
        with open(path, encoding="utf-8") as file:
            for line in file:
                if line.startswith("\\") and "-grams" in line:
                    self.order += 1
                fields = line.rstrip("\n").split("\t")
                if len(fields) < 2:
                    continue
                words = tuple(fields[1].split(" "))
                self.prob[words] = float(fields[0]) * math.log(10)
                self.left[words] = float(fields[2]) * math.log(10) if len(fields) > 2 else 0
        self.words = sorted(words[0] for words in self.prob if len(words) == 1 and words != ("<s>",))
        self.followers = {}
        for words in self.prob:
            if len(words) > 1:
                self.followers.setdefault(words[:-1], []).append(words[-1])

    def score(self, history, word):
        if history + (word,) in self.prob:
            return self.prob[history + (word,)]
        return self.left.get(history, 0) + self.score(history[1:], word)

    def distribution(self, history):
        return numpy.array([self.score(history, word) for word in self.words])

    def joint(self, history):
        """Of a history's words: <s> stands where a document begins, as often as </s> where one ends."""
        first = ("</s>",) if history[0] == "<s>" else history[:1]
        return self.prob[first] + sum(self.prob[history[:k]] for k in range(2, len(history) + 1))


class Prune(JobTest):
    TEXT_BYTES = 30_000

    @classmethod
    def config(cls):
        return f"[corpus]\ntrain = {cls.at('words.h5')}\n[model]\nkind = ngram\n[ngram]\norder = 3\n"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.must(["bagpipe-data", "tokenizer", "--kind", "word", "--size", 100, "--out", cls.at("words.json"), cls.at("train.txt")])
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("words.json"), "--format", "lines", "--out", cls.at("words.h5"),
                  cls.at("train.txt")])

    def arpa(self, name, *keys):
        self.must(["bagpipe-data", "export", self.trained(name, 0, *keys), "--out", self.at(name + ".arpa")])
        return Arpa(self.at(name + ".arpa"))

    def costs(self, model, history):
        """Of each word behind the history: how much more perplex the model is without it, relatively."""
        index = {word: k for k, word in enumerate(model.words)}
        p, q = numpy.exp(model.distribution(history)), numpy.exp(model.distribution(history[1:]))
        seen = [index[word] for word in model.followers[history]]
        for at in seen:
            others = [k for k in seen if k != at]
            without = q * (1 - p[others].sum()) / (1 - q[others].sum())
            without[others] = p[others]
            yield model.words[at], math.expm1(math.exp(model.joint(history)) * (p * numpy.log(p / without)).sum())

    def check(self, whole, pruned, threshold):
        gone = close = 0
        for order in range(whole.order, 1, -1):
            needed = {part for words in pruned.prob if len(words) == order + 1 for part in (words[:-1], words[1:])}
            for history in (words for words in whole.followers if len(words) == order - 1):
                for word, cost in self.costs(whole, history):
                    words = history + (word,)
                    if words in needed:
                        self.assertIn(words, pruned.prob)
                        continue
                    gone += words not in pruned.prob
                    if abs(cost / threshold - 1) < CLOSE:
                        close += 1
                        continue
                    self.assertEqual(words not in pruned.prob, cost < threshold, (words, cost))
        self.assertGreater(gone, 100)
        self.assertLess(gone, 0.97 * len(whole.prob))
        self.assertLess(close, 0.1 * gone)

    def test_what_is_taken_out_costs_less_than_the_threshold(self):
        for smoothing in ("kneser-ney", "katz"):
            whole = self.arpa(smoothing, f"ngram.smoothing={smoothing}")
            for number, threshold in enumerate(THRESHOLDS):
                with self.subTest(smoothing, threshold=threshold):
                    pruned = self.arpa(f"{smoothing}{number}", f"ngram.smoothing={smoothing}", f"ngram.prune_entropy={threshold}")
                    self.check(whole, pruned, threshold)
                    for words, value in pruned.prob.items():
                        self.assertAlmostEqual(value, whole.prob[words], delta=1e-6)
                    for history in list(pruned.followers)[::7]:
                        self.assertAlmostEqual(numpy.exp(pruned.distribution(history)).sum(), 1, delta=1e-4)

    def test_the_bytes_are_the_same_on_any_ranks(self):
        found = set()
        for ranks in (0, 2, 3, 4):
            folder = self.trained(f"ranks{ranks}", ranks, "ngram.order=5", "ngram.prune_entropy=1e-5", "ngram.prune=0,0,0,1")
            with open(os.path.join(folder, "checkpoints", steps(folder)[-1], "model.bin"), "rb") as file:
                found.add(hashlib.sha256(file.read()).hexdigest())
        self.assertEqual(len(found), 1)

    def test_a_model_without_back_off_is_refused(self):
        result = run([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('refused')}", "ngram.smoothing=mle",
                      "ngram.prune_entropy=1e-8"])
        self.assert_error(result, 78, "[ngram.prune_without_back_off]")


if __name__ == "__main__":
    bagpipe_test.main()
