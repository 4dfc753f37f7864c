"""ARPA files: a model goes out and comes back the same; a file of another program is read; one that is wrong is refused with its line."""
import gzip
import math
import os

import bagpipe_test
from bagpipe_test import JobTest, program, read_json, run

# As KenLM writes it: <s> with probability 0, n-grams in no order of words; the bigram "b a", a suffix of "a b a", was pruned away.
SOUND = """\\data\\
ngram 1=5
ngram 2=4
ngram 3=2

\\1-grams:
-1.2\t<unk>\t0
0\t<s>\t-0.3
-0.5\tb\t-0.2
-0.9\t</s>\t0
-0.4\ta\t-0.1

\\2-grams:
-0.3\tb </s>\t0
-0.2\t<s> a\t-0.05
-0.6\ta b\t-0.7
-0.8\tb b

\\3-grams:
-0.15\t<s> a b
-0.25\ta b a

\\end\\
"""

BAD = {
    "truncated": (SOUND[:SOUND.index("-0.25")], "[arpa.wrong_line]", "line 20"),
    "cut in a line": (SOUND[:SOUND.index("<s> a b") + 5], "[arpa.wrong_line]", "line 20"),
    "too few": (SOUND.replace("ngram 2=4", "ngram 2=5"), "[arpa.wrong_line]", "line 19"),
    "too many": (SOUND.replace("ngram 2=4", "ngram 2=3"), "[arpa.wrong_line]", "line 17"),
    "a lie": (SOUND.replace("ngram 2=4", "ngram 2=400000000"), "[arpa.wrong_line]", "line 13"),
    "orders": (SOUND.replace("ngram 3=2", "ngram 4=2"), "[arpa.wrong_line]", "line 4"),
    "sections": (SOUND.replace("\\2-grams", "\\3-grams"), "[arpa.wrong_line]", "line 13"),
    "no history": (SOUND.replace("-0.25\ta b a", "-0.25\t</s> b a"), "[arpa.no_history]"),
    "twice": (SOUND.replace("-0.8\tb b", "-0.8\ta b"), "[arpa.twice]"),
    "positive": (SOUND.replace("-0.4\ta", "0.4\ta"), "[arpa.wrong_line]", "line 11"),
    "nan": (SOUND.replace("-0.4\ta", "nan\ta"), "[arpa.wrong_line]", "line 11"),
    "hexadecimal": (SOUND.replace("-0.4\ta", "-0x1\ta"), "[arpa.wrong_line]", "line 11"),
    "comma": (SOUND.replace("-0.4\ta", "-0,4\ta"), "[arpa.wrong_line]", "line 11"),
    "infinite": (SOUND.replace("-0.4\ta", "-inf\ta"), "[arpa.wrong_line]", "line 11"),
    "back-off": (SOUND.replace("-0.25\ta b a", "-0.25\ta b a\t-1"), "[arpa.wrong_line]", "line 21"),
    "large weight": (SOUND.replace("a b\t-0.7", "a b\t100"), "[arpa.wrong_line]", "line 16"),
    "above one": (SOUND.replace("-0.5\tb\t-0.2", "-0.5\tb\t1"), "[arpa.above_one]"),
    "zero byte": (SOUND.replace("-0.4\ta", "-0.4\ta\0c"), "[arpa.wrong_line]", "line 11"),
    "word": (SOUND.replace("b b", "b c"), "[arpa.wrong_line]", "line 17"),
    "end": (SOUND + "more\n", "[arpa.wrong_line]", "line 24"),
}


class Arpa(JobTest):
    TEXT_BYTES = 60_000

    @classmethod
    def config(cls):
        return f"[corpus]\ntrain = {cls.at('train.h5')}\n[model]\nkind = ngram\n[ngram]\norder = 3\n"

    def score(self, model, corpus, name):
        self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={self.at(name)}", f"score.model={model}", f"score.corpus={corpus}",
                   "score.end=yes", "score.tokens=yes"])
        return read_json(self.at(name), "score", "summary.json")

    def test_out_and_back(self):
        trained = self.trained("trained", 0)
        for name in ("one", "two"):
            model = trained if name == "one" else self.at("one.model")
            self.must(["bagpipe-data", "export", model, "--out", self.at(name + ".arpa")])
            self.must(["bagpipe-data", "import", self.at(name + ".arpa"), "--out", self.at(name + ".model"), "--tokenizer",
                       self.at("tokenizer.json")])
        with open(self.at("one.arpa"), "rb") as one, open(self.at("two.arpa"), "rb") as two:
            self.assertEqual(one.read(), two.read())
        scores = [self.score(model, self.at("valid.h5"), f"score{k}") for k, model in enumerate((trained, self.at("two.model")))]
        self.assertEqual(scores[0]["nll_nats"], scores[1]["nll_nats"])
        self.must(["bagpipe-data", "verify", self.at("two.model")])
        self.must(["bagpipe-data", "inspect", self.at("two.model")])

    def test_a_file_of_another_program(self):
        self.write("other.arpa", SOUND)
        self.must(["bagpipe-data", "import", self.at("other.arpa"), "--out", self.at("other")])
        self.write("text.txt", "a b a\nb b zzz\n")
        self.must(["bagpipe-data", "corpus", "--tokenizer", os.path.join(self.at("other"), "tokenizer.json"), "--format", "lines", "--out",
                   self.at("text.h5"), self.at("text.txt")])
        found = self.score(self.at("other"), self.at("text.h5"), "score-other")
# <s> a, <s> a b, a b a; </s> behind "b a": pruned, and a's weight; <s> b, b b, <unk> behind b: two weights; </s> behind <unk>
        expected = [-0.2, -0.15, -0.25, -0.1 - 0.9, -0.3 - 0.5, -0.8, -0.2 - 1.2, -0.9]
        self.assertAlmostEqual(found["nll_nats"], -sum(expected) * math.log(10), places=5)
        self.assertEqual(found["oov"], 1)

    def test_other_spellings_are_the_same_model(self):
        """The unknown word in any case; a byte order mark, a toolkit's head, gzip."""
        texts = {"plain": SOUND, "upper": SOUND.replace("<unk>", "<UNK>"), "mixed": SOUND.replace("<unk>", "<Unk>"), "mark": "\ufeff" + SOUND,
                 "head": "This is a CMU LM\n\nIt has 5 words \\data\\ follows\n\n" + SOUND, "blanks": "\n\n" + SOUND.replace("\\data\\", "\\data\\ ")}
        for name, text in texts.items():
            self.write(name + ".arpa", text)
        with open(self.at("gzip.arpa.gz"), "wb") as file:
            file.write(gzip.compress(SOUND.encode()))
        for name in (*texts, "gzip"):
            with self.subTest(name):
                self.must(["bagpipe-data", "import", self.at(name + ".arpa" + (".gz" if name == "gzip" else "")), "--out", self.at(name)])
                with open(self.at(name + "/model.bin"), "rb") as a, open(self.at("plain/model.bin"), "rb") as b:
                    self.assertEqual(a.read(), b.read())

    def test_wrong_files_are_refused(self):
        for name, (text, *words) in BAD.items():
            with self.subTest(name):
                self.write("bad.arpa", text)
                result = run([program("bagpipe-data"), "import", self.at("bad.arpa"), "--out", self.at("bad")])
                self.assert_error(result, 65, *words)
                self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("bad.m") or name == "bad"], [])

    def test_another_tokenizer_is_refused(self):
        self.write("other.arpa", SOUND)
        result = run([program("bagpipe-data"), "import", self.at("other.arpa"), "--out", self.at("foreign"), "--tokenizer",
                      self.at("tokenizer.json")])
        self.assert_error(result, 65, "[arpa.wrong_line]")
        trained = self.trained("own", 0)
        self.must(["bagpipe-data", "tokenizer", "--kind", "char", "--size", 60, "--out", self.at("chars.json"), self.at("train.txt")])
        result = run([program("bagpipe-data"), "export", trained, "--out", self.at("x.arpa"), "--tokenizer", self.at("chars.json")])
        self.assert_error(result, 65, "[tokenizer.mismatch]")

    def test_a_model_without_back_off_has_no_such_file(self):
        result = run([program("bagpipe-data"), "export", self.trained("additive", 0, "ngram.smoothing=additive"), "--out", self.at("x.arpa")])
        self.assert_error(result, 65, "[arpa.no_back_off]")


if __name__ == "__main__":
    bagpipe_test.main()
