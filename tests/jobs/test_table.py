"""`bagpipe-data table tokens.h5`: each token with its document, its text and its log-probability, from the file alone."""
import csv
import io
import json
import os
import re
import shutil
import subprocess
import unittest

import h5py
import numpy

import bagpipe_test
from bagpipe_test import JobTest, environment, program, run

TEXTS = ["plain words", "", "two\nlines\tand a tab\r\n", 'quotes " and , commas', "a back\\slash \\n", "\u00e9\u4e16\U0001f600 \u2028 \u0085\u0007",
         " blanks at both ends "]
ENSEMBLE = ["agreement", "brier", "confidence", "correct", "expected_entropy", "logprob_variance", "logprob_variance_unbiased", "member_logprob.one", "member_logprob.two",
            "mutual_information", "total_entropy"]
ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\"}


def bytes_of(field):
    """The bytes that the text column spells."""
    out, at = b"", 0
    for match in re.finditer(r"\\(?:x([0-9A-F]{2})|([ntr\\]))", field):
        out += field[at:match.start()].encode()
        out += bytes([int(match[1], 16)]) if match[1] else ESCAPES[match[2]]
        at = match.end()
    assert "\\" not in field[at:]
    return out + field[at:].encode()


class Tokens(JobTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(cls.at("odd.jsonl"), "w", encoding="utf-8") as file:
            for k, text in enumerate(TEXTS):
                file.write(json.dumps({"id": f"t,{k}", "text": text}) + "\n")
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "jsonl", "--out", cls.at("odd.h5"),
                  cls.at("odd.jsonl")])
        cls.write("score.ini", "[score]\ntokens = yes\n[math]\nprecision = f32\nthreads = 1\n")
        for name, seed in (("one", 1), ("two", 2)):
            cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.at(name)}", f"run.seed={seed}", "train.steps=2"])
        cls.write("ensemble.json", json.dumps({"members": [{"name": name, "path": name} for name in ("one", "two")]}))
        cls.corpora = [cls.at("valid.h5"), cls.at("odd.h5")]
        cls.score("single", "one", cls.corpora)

    @classmethod
    def score(cls, name, model, corpora):
        cls.must(["bagpipe", "score", cls.at("score.ini"), f"run.dir={cls.at(name)}", f"score.model={cls.at(model)}", f"score.corpus={','.join(corpora)}"])

    def tokens_h5(self, name):
        return os.path.join(self.at(name), "score", "tokens.h5")

    def table(self, path, *options, status=0):
        result = subprocess.run([program("bagpipe-data"), "table", *options, path], env=environment(), capture_output=True, check=False)
        self.assertEqual(result.returncode, status, result.stderr.decode())
        return result.stdout, result.stderr.decode()

    def rows(self, data):
        # a line a row: no text breaks one
        lines = data.decode().split("\n")
        rows = list(csv.DictReader(io.StringIO(data.decode(), newline="")))
        self.assertEqual(len(lines), len(rows) + 2)
        return rows

    def assert_is_the_corpora(self, rows, name, corpora):
        """Document by document, with the log-probabilities of the HDF5 file."""
        with h5py.File(self.tokens_h5(name)) as file:
            logprob = file["logprob"][:]
        at, document = 0, 0
        for path in corpora:
            with h5py.File(path) as file:
                starts, ids = file["doc_start"][:].astype(int), file["doc_id"][:]
            for d in range(len(starts) - 1):
                size = starts[d + 1] - starts[d]
                for position, row in enumerate(rows[at:at + size]):
                    self.assertEqual((int(row["document"]), row["doc_id"], int(row["position"])), (document, ids[d].decode(), position))
                at, document = at + size, document + 1
        self.assertEqual(at, len(rows))
        numpy.testing.assert_array_equal(numpy.array([float(row["logprob"]) for row in rows], dtype=numpy.float32), logprob)

    def texts(self, rows):
        """The text of each document again, from its tokens."""
        out = {}
        for row in rows:
            out[row["doc_id"]] = out.get(row["doc_id"], b"") + bytes_of(row["text"])
        return {name: text.removesuffix(b"<|endoftext|>") for name, text in out.items()}

    def test_rows_are_the_documents(self):
        data, reported = self.table(self.tokens_h5("single"))
        self.assertEqual(reported, "")
        rows = self.rows(data)
        self.assertEqual(list(rows[0]), ["document", "doc_id", "corpus", "position", "token", "text", "logprob"])
        self.assert_is_the_corpora(rows, "single", self.corpora)
        texts = self.texts(rows)
        for k, text in enumerate(TEXTS):
            self.assertEqual(texts[f"t,{k}"], text.encode())
        with open(self.at("valid.txt"), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line != "\n":
                    self.assertEqual(texts[f"valid.txt:{number}"], line.rstrip("\n").encode())

    def test_the_file_alone_is_enough(self):
        folder = self.at("elsewhere")
        os.mkdir(folder)
        shutil.copy(self.tokens_h5("single"), folder)
        os.rename(self.at("odd.h5"), self.at("moved.h5"))
        try:
            self.assertEqual(self.table(os.path.join(folder, "tokens.h5"))[0], self.table(self.tokens_h5("single"))[0])
        finally:
            os.rename(self.at("moved.h5"), self.at("odd.h5"))

    def test_head(self):
        data = self.table(self.tokens_h5("single"))[0]
        for count in (0, 1, 9):
            self.assertEqual(self.table(self.tokens_h5("single"), "--head", str(count))[0], b"".join(data.splitlines(keepends=True)[:count + 1]))

    def test_an_ensemble_has_its_columns(self):
        self.score("both", "ensemble.json", self.corpora)
        rows = self.rows(self.table(self.tokens_h5("both"))[0])
        self.assertEqual(list(rows[0]), ["document", "doc_id", "corpus", "position", "token", "text", "logprob"] + ENSEMBLE)
        self.assert_is_the_corpora(rows, "both", self.corpora)
        with h5py.File(self.tokens_h5("both")) as file:
            for key in ENSEMBLE:
                name, _, member = key.partition(".")
                values = file[name][:, ["one", "two"].index(member)] if member else file[name][:]
                numpy.testing.assert_array_equal(numpy.array([float(row[key]) for row in rows], dtype=numpy.float32), values, key)

    def test_the_file_is_like_a_corpus(self):
        with h5py.File(self.tokens_h5("single")) as file, h5py.File(self.corpora[0]) as first, h5py.File(self.corpora[1]) as second:
            self.assertEqual(file["tokens"].dtype, numpy.uint16)
            last = len(first["doc_start"]) - 1
            numpy.testing.assert_array_equal(file["doc_start"][:last + 1], first["doc_start"][:])
            numpy.testing.assert_array_equal(file["doc_start"][last:], second["doc_start"][:] + first["doc_start"][last])
            numpy.testing.assert_array_equal(file["source/tokenizer"][:], first["source/tokenizer"][:])
            self.assertEqual(file.attrs["vocab_size"], first.attrs["vocab_size"])
            self.assertEqual(file.attrs["tokenizer_hash"], first.attrs["tokenizer_hash"])

    def foreign(self, name, vocab_size, tokens, **attributes):
        """A corpus without a tokenizer, in two documents."""
        with h5py.File(self.at(name), "w") as file:
            file["tokens"] = numpy.array(tokens, dtype=numpy.uint32)
            file["doc_start"] = numpy.array([0, len(tokens) // 2, len(tokens)], dtype=numpy.uint64)
            file.attrs["vocab_size"] = vocab_size
            for key, value in attributes.items():
                file.attrs[key] = value
        return self.convert(name)

    def test_a_corpus_without_a_tokenizer(self):
        with h5py.File(self.at("valid.h5")) as file:
            tokenizer_hash = file.attrs["tokenizer_hash"]
        tokens = [k % self.VOCABULARY for k in range(60)]
        for name, attributes in (("bare", {}), ("hashed", {"tokenizer_hash": tokenizer_hash})):
            with self.subTest(name=name):
                self.score(name, "one", [self.foreign(f"{name}.h5", self.VOCABULARY, tokens, **attributes)])
                data, reported = self.table(self.tokens_h5(name))
                self.assertIn("[scores.no_tokenizer]", reported)
                self.assertEqual([(row["token"], row["text"], row["doc_id"]) for row in self.rows(data)], [(str(id), "", "") for id in tokens])
                data, reported = self.table(self.tokens_h5(name), "--tokenizer", self.at("tokenizer.json"))
                self.assertEqual(reported, "")
                self.assertEqual([row["text"] for row in self.rows(data)][:3], ["!", '"', "#"])

    def test_another_tokenizer_is_refused(self):
        for size in (280, 600):
            self.must(["bagpipe-data", "tokenizer", "--size", size, "--out", self.at(f"{size}.json"), self.at("train.txt")])
        reported = self.table(self.tokens_h5("single"), "--tokenizer", self.at("280.json"), status=65)[1]
        self.assertRegex(reported, r"error\[65\]: the tokenizer's hash is .* give the corpus's tokenizer \[tokenizer\.mismatch\]\n$")
        self.score("none", "one", [self.foreign("none.h5", self.VOCABULARY, list(range(60)))])
        reported = self.table(self.tokens_h5("none"), "--tokenizer", self.at("600.json"), status=65)[1]
        self.assertIn("the tokenizer has 600 tokens, and the scored corpus 509", reported)
        self.table(self.tokens_h5("single"), "--tokenizer", self.at("missing.json"), status=66)

    def test_a_large_vocabulary(self):
        path = self.foreign("large.h5", 70000, [69999 - k for k in range(200)])
        result = run([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('large')}", f"corpus.train={path}", "corpus.valid=",
                      "train.steps=1", "train.batch=1", "model.width=8"])
        self.assertEqual(result.status, 0, str(result))
        self.score("wide", "large", [path])
        self.assertEqual([int(row["token"]) for row in self.rows(self.table(self.tokens_h5("wide"))[0])], [69999 - k for k in range(200)])


if __name__ == "__main__":
    bagpipe_test.main()
