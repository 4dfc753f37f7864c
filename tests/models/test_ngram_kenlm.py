"""Modified Kneser-Ney against KenLM's own numbers on the Brown corpus (../shared/reference/kenlm): n-grams of each order, perplexities,
and each word of 200 sentences."""
import csv
import math
import os

import bagpipe_test
from bagpipe_test import read_json, shared, state_of

try:
    import h5py
except ImportError:
    h5py = None

REFERENCE, BROWN = "reference/kenlm/brown5-test200.tsv", "data/brown"
NGRAMS = [46190, 343764, 630141, 722213, 717518]
PERPLEXITIES = {3: {"valid": 407.69695, "test": 379.17264}, 5: {"valid": 404.68650, "test": 376.35650}}
WITHOUT_OOV = {3: {"valid": 279.56349, "test": 261.03688}, 5: {"valid": 277.53261, "test": 259.13310}}
OOV = {"valid": 9651, "test": 7664}


class KenLM(bagpipe_test.FolderTest):
    @classmethod
    def setUpClass(cls):
        for name in (REFERENCE, BROWN):
            if shared(name) is None:
                raise bagpipe_test.unittest.SkipTest(f"there is no {bagpipe_test.options['shared']}/{name}")
        super().setUpClass()
        cls.must(["bagpipe-data", "tokenizer", "--kind", "word", "--size", 100000, "--out", cls.at("words.json"), shared(BROWN + "/train.txt")])
        for part in ("train", "valid", "test"):
            cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("words.json"), "--format", "lines", "--out", cls.at(part + ".h5"),
                      shared(f"{BROWN}/{part}.txt")])
        for order in (3, 5):
            cls.write(f"{order}.ini", f"[corpus]\ntrain = {cls.at('train.h5')}\n[model]\nkind = ngram\n[ngram]\norder = {order}\n")
            cls.must(["bagpipe", "pretrain", cls.at(f"{order}.ini"), f"run.dir={cls.at(f'run{order}')}"], 2)
            for part in ("valid", "test"):
                cls.must(["bagpipe", "score", cls.at(f"{order}.ini"), f"run.dir={cls.at(f'{part}{order}')}", "score.end=yes",
                          f"score.model={cls.at(f'run{order}')}", f"score.corpus={cls.at(part + '.h5')}", "score.tokens=yes"])

    def test_as_many_ngrams_of_each_order(self):
        self.assertEqual(state_of(self.at("run5"))["ngrams"], NGRAMS)

    def test_perplexities_with_and_without_words_out_of_the_vocabulary(self):
        for order in (3, 5):
            for part in ("valid", "test"):
                summary = read_json(self.at(f"{part}{order}"), "score", "summary.json")
                self.assertAlmostEqual(summary["perplexity"], PERPLEXITIES[order][part], delta=2e-4)
                self.assertAlmostEqual(summary["perplexity_without_oov"], WITHOUT_OOV[order][part], delta=2e-4)
                self.assertEqual(summary["oov"], OOV[part])

    @bagpipe_test.unittest.skipIf(h5py is None, "there is no h5py")
    def test_each_word_of_200_sentences(self):
        with open(shared(REFERENCE), encoding="utf-8", newline="") as file:
            theirs = [(row["word"], float(row["log10prob"])) for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
        with open(shared(BROWN + "/test.txt"), encoding="utf-8") as file:
            words = [word for line in file for word in line.split() + ["</s>"]]
        with h5py.File(os.path.join(self.at("test5"), "score", "tokens.h5"), "r") as file:
            ours = file["logprob"][:len(words)] / math.log(10)
        at = left_out = 0
        for word, log10 in theirs:
            while words[at] != word:  # the file leaves out some ends of sentences, whose probability is 1 but for rounding
                self.assertEqual(words[at], "</s>")
                self.assertAlmostEqual(ours[at], 0, delta=1e-4)
                left_out, at = left_out + 1, at + 1
            self.assertAlmostEqual(ours[at], log10, delta=1e-4, msg=word)
            at += 1
        self.assertLess(left_out, 50)
        self.assertGreater(at, 2900)


if __name__ == "__main__":
    bagpipe_test.main()
