"""Files of word2vec are read and written; bagpipe-data vectors finds what numpy finds; bad files are refused."""
import struct

import numpy as np
from scipy.stats import pearsonr, spearmanr

import bagpipe_test
from bagpipe_test import FolderTest, program

try:
    from gensim.models import KeyedVectors
except ImportError:
    KeyedVectors = None

WORDS = ["</s>"] + [f"word{k}" for k in range(40)] + ["naïve"]
WIDTH = 37  # no multiple of what a block holds


class Vectors(FolderTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.values = np.random.default_rng(2).normal(size=(len(WORDS), WIDTH)).astype(np.float32)
        cls.write("v.txt", cls.text(WORDS, cls.values))
        with open(cls.at("v.bin"), "wb") as file:
            file.write(cls.binary(WORDS, cls.values))
        cls.must(["bagpipe-data", "import", cls.at("v.txt"), "--out", cls.at("text")])

    @staticmethod
    def text(words, values):
        return f"{len(words)} {len(values[0])}\n" + "".join(f"{w} " + " ".join(f"{x:.9g}" for x in v) + "\n" for w, v in zip(words, values))

    @staticmethod
    def binary(words, values):
        return f"{len(words)} {len(values[0])}\n".encode() + b"".join(w.encode() + b" " + struct.pack(f"<{len(v)}f", *v) + b"\n"
                                                                       for w, v in zip(words, values))

    def vectors(self, *arguments):
        return self.must(["bagpipe-data", "vectors", self.at("text"), *arguments]).out

    def same(self, a, b):
        with open(self.at(a), "rb") as x, open(self.at(b), "rb") as y:
            self.assertEqual(x.read(), y.read())

    def test_files_come_back_as_they_were(self):
        self.must(["bagpipe-data", "import", self.at("v.bin"), "--out", self.at("binary")])
        for checkpoint in ("text", "binary"):
            for kind in ("txt", "bin"):
                self.must(["bagpipe-data", "export", self.at(checkpoint), "--out", self.at(f"{checkpoint}.{kind}")])
                self.same(f"{checkpoint}.{kind}", f"v.{kind}")
        self.must(["bagpipe-data", "verify", self.at("text")])
        self.must(["bagpipe-data", "compare", self.at("text"), self.at("binary")])

    @bagpipe_test.unittest.skipIf(KeyedVectors is None, "there is no gensim")
    def test_gensim_reads_and_is_read(self):
        for kind in ("txt", "bin"):
            self.must(["bagpipe-data", "export", self.at("text"), "--out", self.at("out." + kind)])
            loaded = KeyedVectors.load_word2vec_format(self.at("out." + kind), binary=kind == "bin")
            self.assertEqual(loaded.index_to_key, WORDS)
            np.testing.assert_array_equal(loaded.vectors, self.values)
            loaded.save_word2vec_format(self.at("gensim." + kind), binary=kind == "bin")
            self.must(["bagpipe-data", "import", self.at("gensim." + kind), "--out", self.at("gensim-" + kind)])
            self.must(["bagpipe-data", "compare", self.at("text"), self.at("gensim-" + kind)])

    def unit(self):
        return self.values.astype(np.float64) / np.linalg.norm(self.values.astype(np.float64), axis=1, keepdims=True)

    def best(self, query, without, count):
        cosines = self.unit() @ query / np.linalg.norm(query)
        return [(WORDS[k], cosines[k]) for k in np.argsort(-cosines) if k not in without and k != 0][:count]

    def check_words(self, out, expected):
        found = [line.split("\t") for line in out.splitlines()]
        self.assertEqual([word for word, _ in found], [word for word, _ in expected])
        np.testing.assert_allclose([float(x) for _, x in found], [x for _, x in expected], atol=2e-6)

    def test_nearest_words_and_analogies_are_numpys(self):
        unit = self.unit()
        self.check_words(self.vectors("nearest", "naïve", "--count", "7"), self.best(unit[41], [41], 7))
        self.check_words(self.vectors("analogy", "word3", "word5", "word8"), self.best(unit[6] - unit[4] + unit[9], [4, 6, 9], 10))

    def test_questions_are_answered(self):
        unit, lines, right = self.unit(), [": one"], 0
        for a, b, c in ((1, 2, 3), (4, 5, 6), (7, 8, 9), (10, 11, 12)):
            answer = self.best(unit[b] - unit[a] + unit[c], [a, b, c], 1)[0][0]
            lines += [f"{WORDS[a]} {WORDS[b]} {WORDS[c]} {answer}", f"{WORDS[a]} {WORDS[b]} {WORDS[c]} {WORDS[c]}"]
            right += 1
            if a == 4:
                lines += ["no such word here", ": two"]
        out = self.vectors("analogy", self.write("questions.txt", "\n".join(lines) + "\n"))
        self.assertEqual(out.splitlines(), ["one\t50.00 %\t2 of 4\t1 left out", "two\t50.00 %\t2 of 4\t0 left out", "all\t50.00 %\t4 of 8\t1 left out"])

    def test_similarities_are_scipys(self):
        pairs = [(k, k % 7 + 20, (k * 5) % 8) for k in range(1, 19)]  # numbers that tie
        unit = self.unit()
        cosines = [unit[a] @ unit[b] for a, b, _ in pairs]
        for name, comma in (("pairs.tsv", "\t"), ("pairs.csv", ",")):
            self.write(name, comma.join(("first", "second", "human")) + "\n" + "".join(comma.join((WORDS[a], WORDS[b], str(n))) + "\n" for a, b, n in pairs)
                       + comma.join(("absent", "word1", "3")) + "\n")
            found = dict(line.split("\t") for line in self.vectors("similarity", self.at(name)).splitlines())
            self.assertAlmostEqual(float(found["spearman"]), spearmanr(cosines, [n for _, _, n in pairs])[0], 5)
            self.assertAlmostEqual(float(found["pearson"]), pearsonr(cosines, [n for _, _, n in pairs])[0], 5)
            self.assertEqual((found["pairs"], found["left out"]), ("18", "1"))

    def refuse(self, arguments, status, name):
        result = bagpipe_test.run([program("bagpipe-data")] + arguments)
        self.assert_error(result, status, f"[{name}]")

    def test_bad_files_are_refused(self):
        text, binary = self.text(WORDS, self.values), self.binary(WORDS, self.values)
        bad = self.values.copy()
        bad[5, 3] = np.nan
        cases = [(text[:len(text) * 2 // 3], "vectors.truncated"), (text[:text.rindex(" ")], "vectors.truncated"),
                 (binary[:len(binary) // 2], "vectors.truncated"), (binary[:-20], "vectors.truncated"),
                 (f"{10**9} {WIDTH}\n" + text, "vectors.truncated"), (self.text(WORDS, bad), "vectors.not_finite"),
                 (self.binary(WORDS, bad), "vectors.not_finite"), (text.replace("word4 ", "word3 "), "vectors.twice"),
                 (text + "more 1 2\n", "vectors.wrong_row"), (text.replace("word9 ", "word9 1 "), "vectors.wrong_row"),
                 (text.replace("word9 ", "word9 x"), "vectors.no_number"), (text.replace(".", ","), "vectors.no_number"),
                 (text.replace("word9 ", "word9 0x1"), "vectors.no_number"), (text.replace("word0 ", "word0 \u2212"), "vectors.no_number"),
                 (text.replace("word9 ", "word9 inf "), "vectors.not_finite"), (binary.replace(b"word7 ", b"w\xff7 "), "vectors.not_utf8"),
                 (text.replace("word9 ", "word9\0x "), "vectors.not_utf8"), (binary.replace(b"word7 ", b"w\0rd7 "), "vectors.not_utf8"),
                 (text.replace("word4 ", "<|endoftext|> "), "vectors.reserved_word")]
        for number, (content, name) in enumerate(cases):
            with self.subTest(name, number=number):
                with open(self.at("bad"), "wb") as file:
                    file.write(content if isinstance(content, bytes) else content.encode())
                self.refuse(["import", self.at("bad"), "--out", self.at("never")], 65, name)

    def test_another_tokenizer_is_refused(self):
        self.write("some.txt", "word1 word2 word3\n")
        self.must(["bagpipe-data", "tokenizer", "--kind", "word", "--out", self.at("other.json"), self.at("some.txt")])
        self.refuse(["import", self.at("v.txt"), "--tokenizer", self.at("other.json"), "--out", self.at("never")], 65, "vectors.unknown_word")
        self.refuse(["export", self.at("text"), "--tokenizer", self.at("other.json"), "--out", self.at("never.txt")], 65, "tokenizer.mismatch")
        self.refuse(["vectors", self.at("text"), "nearest", "word1", "--tokenizer", self.at("other.json")], 65, "tokenizer.other_size")

    def test_wrong_questions_are_said(self):
        for arguments, status, name in ((["nearest", "nowhere"], 65, "vectors.no_such_word"), (["nearest"], 64, "command.wrong_count"),
                                        (["analogy", "word1", "word2"], 64, "command.wrong_count"), (["analogy", self.at("none")], 66, "file.missing"),
                                        (["similarity", self.write("bad.tsv", "a b c\nword1 word2\n")], 65, "vectors.wrong_line"),
                                        (["similarity", self.write("few.tsv", "word1 word2 3\n")], 65, "vectors.no_pairs"),
                                        (["analogy", self.write("three.txt", "word1 word2 word3\n")], 65, "vectors.wrong_line")):
            with self.subTest(arguments):
                self.refuse(["vectors", self.at("text")] + arguments, status, name)


if __name__ == "__main__":
    bagpipe_test.main()
