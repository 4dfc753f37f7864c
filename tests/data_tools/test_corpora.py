"""bagpipe-data corpus on text as the web has it: separators, lists of documents, WARC files; at any number of ranks the same bytes."""
import fcntl
import gzip
import json
import os
import signal

import bagpipe_test
from bagpipe_test import FolderTest, program, run
from corpus_reader import read_corpus


def warc(kind, body, *lines, length=None, version="WARC/1.0", end="\r\n"):
    """A record, as bytes."""
    body = body if isinstance(body, bytes) else body.encode()
    head = [version, f"WARC-Type: {kind}", *lines, f"Content-Length: {len(body) if length is None else length}"]
    return end.join(head + ["", ""]).encode() + body + b"\r\n\r\n"


def page(k, body):
    return warc("conversion", body, f"WARC-Target-URI: http://example.org/{k}", "WARC-Date: 2026-01-01T00:00:00Z", "Content-Type: text/plain")


class Corpora(FolderTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.text = cls.write("text.txt", "a few words of text, and some more of them\n" * 50)
        cls.must(["bagpipe-data", "tokenizer", "--kind", "char", "--format", "lines", "--special", "<s>", "--out", cls.at("t.json"), cls.text])
        cls.must(["bagpipe-data", "tokenizer", "--kind", "bpe", "--size", "257", "--format", "lines", "--out", cls.at("b.json"), cls.text])

    def bytes(self, name, data):
        with open(self.at(name), "wb") as file:
            file.write(data)
        return self.at(name)

    def arguments(self, out, *more):
        return ["bagpipe-data", "corpus", "--tokenizer", self.at("b.json"), "--out", self.at(out), *more]

    def made(self, *more, out="made.h5"):
        """Texts and ids of the corpus, the same at three ranks."""
        result = self.must(self.arguments(out, *more))
        self.must(self.arguments("three.h5", *more), 3)
        for end in ("", ".skipped.jsonl"):
            found = [self.at(name + end) for name in (out, "three.h5")]
            if os.path.exists(found[0]) or os.path.exists(found[1]):
                with open(found[0], "rb") as one, open(found[1], "rb") as other:
                    self.assertEqual(one.read(), other.read())
        documents, ids, _, self.sources = read_corpus(self.at(out))
        # byte-level BPE of 257 entries: an id is a byte; which one, the tokenizer says
        with open(self.at("b.json"), encoding="utf-8") as file:
            names = {number: name for name, number in json.load(file)["model"]["vocab"].items()}
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        letters = {chr(b): b for b in printable}
        letters.update({chr(256 + k): b for k, b in enumerate(b for b in range(256) if b not in printable)})
        return [bytes(letters[names[t]] for t in document[:-1]) for document in documents], ids, result

    def test_a_tokenizer_reads_documents_between_separators(self):
        """The same vocabulary as of a file a document, at any number of ranks: the separator is not learned."""
        texts = [f"word {k} und so weiter" for k in range(9)]
        whole = self.write("whole.txt", "\n=\n".join(texts))
        for k, text in enumerate(texts):
            self.write(f"part-{k}.txt", text)
        train = ["bagpipe-data", "tokenizer", "--kind", "char", "--out"]
        made = []
        for name, ranks, of in (("one", 0, [whole, "--separator", "\n=\n"]), ("two", 2, [whole, "--separator", "\n=\n"]), ("parts", 0, [self.at(f"part-{k}.txt") for k in range(9)])):
            self.must([*train, self.at(name + ".json"), *of], ranks)
            with open(self.at(name + ".json"), "rb") as file:
                made.append(file.read())
        self.assertEqual(made, made[:1] * 3)
        for more in (["--format", "lines", "--separator", "="], ["--separator", ""]):
            self.assert_error(run([program("bagpipe-data"), *train[1:], self.at("refused.json"), *more, whole]), 64, "[command.no_separator]")

    def refused(self, status, more, *words, ranks=0):
        result = run([program("bagpipe-data")] + self.arguments("refused.h5", *more)[1:], ranks)
        self.assert_error(result, status, *words)
        self.assertFalse([name for name in os.listdir(self.folder) if "refused" in name])

    # ---- separators ----

    def test_a_separator_ends_a_document(self):
        path = self.bytes("s.txt", b"one<|end|>two\nlines\n<|end|><|end|>\xff <|end<|end|>last\n<|end|> \n\t")
        texts, ids, result = self.made("--separator", "<|end|>", path)
        self.assertEqual(texts, [b"one", b"two\nlines\n", b"\xff <|end", b"last\n"])
        self.assertEqual(ids, ["s.txt:1", "s.txt:2", "s.txt:4", "s.txt:5"])
        self.assertEqual(self.sources["separator"], ["<|end|>"])
        self.assertIn("2 empty texts", result.out + result.err)
        self.assert_warning(result, "[text.not_utf8]", "line 3")
        empty = self.bytes("empty.txt", b"")
        self.assertEqual(self.made("--separator", "\n\n", empty, self.bytes("p.txt", b"a\nb\n\nc\n\nd"))[0], [b"a\nb", b"c", b"d"])
        self.assertEqual(self.made("--separator", "x", self.bytes("no.txt", b" \n"))[0], [b" \n"])
        for separator, times in (("\\n\\n", 1), ("\n\n", 0)):
            self.assert_warning(self.made("--separator", separator, self.bytes("escaped.txt", b"a\n\nb\n"))[2], "[command.escapes]", "$'\\n\\n'", times=times)

    def test_a_separator_is_found_wherever_pieces_end(self):
        parts = [b"ab " * k for k in (1, 3_000, 349_524, 349_525, 349_526, 700_000, 2)]  # pieces of 1 MiB
        path = self.bytes("long.txt", b"<><><>".join(parts) + b"<><><>")
        self.assertEqual(self.made("--separator", "<><><>", path)[0], parts)

    # ---- lists ----

    def test_lists_take_and_leave_out(self):
        lines = [{"id": f"d{k % 7}", "text": f"text {k}"} for k in range(10)]
        path = self.write("docs.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        some = self.write("some.txt", "d1\nd6\n\nnobody\n")
        only, ids, result = self.made("--format", "jsonl", "--only", some, path)
        self.assertEqual((only, ids), ([b"text 1", b"text 6", b"text 8"], ["d1", "d6", "d1"]))
        self.assert_warning(result, "[corpus.not_found]", "1 of 3 ids")
        self.assertEqual((self.sources["only"], self.sources["left_out"]), (["some.txt"], ["7"]))
        without, ids, _ = self.made("--format", "jsonl", "--without", some, path)
        self.assertEqual(ids, ["d0", "d2", "d3", "d4", "d5", "d0", "d2"])
        self.assertEqual((self.sources["without"], self.sources["left_out"]), (["some.txt"], ["3"]))
        lines = self.write("lines.txt", "one\n\ntwo\nthree\n")
        self.assertEqual(self.made("--format", "lines", "--without", self.write("l.txt", "lines.txt:3\n"), lines)[0], [b"one", b"three"])
        long = self.bytes("whole.txt", b"ab " * 700_000)
        self.assertEqual(self.made("--only", self.write("l.txt", "whole.txt\n"), long, lines)[1], ["whole.txt"])

    def test_a_list_that_is_wrong_is_refused(self):
        path = self.write("docs.txt", "one\ntwo\n")
        for status, text, words in ((65, "", ("[list.empty]",)), (65, "x" * 1025, ("[list.too_long]", "line 1")), (65, "nobody\n", ("[corpus.all_left_out]",))):
            for ranks in (0, 3):
                self.refused(status, ["--format", "lines", "--only", self.write("list", text), path], *words, ranks=ranks)
        self.refused(66, ["--format", "lines", "--without", self.at("missing"), path], "[file.missing]")
        self.refused(64, ["--only", path, "--without", path, path], "[command.two_lists]")
        self.refused(64, ["--without", "-", path], "[command.stdin_of_ranks]", ranks=3)

    # ---- WARC ----

    def test_conversions_are_documents(self):
        texts = ["Erste Seite\nmit ä", "", "third\r\n\r\nWARC/1.0 is no record here\r\n", "x" * 70_000]
        records = [warc("warcinfo", "Software-Info: a\r\nextracted-date: b\r\n")] + [page(k, text) for k, text in enumerate(texts)]
        records.insert(2, warc("response", b"HTTP/1.1 200 OK\r\n\r\n<html>\0\xff" + b"\n" * 200_000, "WARC-Target-URI: http://example.org/html"))
        path = self.bytes("a.warc", b"".join(records))
        members = self.bytes("b.warc.wet.gz", b"".join(gzip.compress(record) for record in records))
        for name in (path, members):
            made, ids, _ = self.made("--format", "warc", name)
            self.assertEqual(made, [text.encode() for text in texts])
            self.assertEqual(ids, [f"http://example.org/{k}" for k in range(4)])
        buffer = 1 << 22
        for before in (3, 60):  # a head at an end of what was read, behind line ends
            ends = b"\n" * (buffer - len(page(0, "x")) - before)
            spread = self.bytes("spread.warc", page(0, "x") + ends + page(1, "two"))
            self.assertEqual(self.made("--format", "warc", spread)[:2], ([b"x", b"two"], [f"http://example.org/{k}" for k in range(2)]))
        newlines = self.bytes("c.warc", warc("conversion", "plain", "warc-target-uri:   http://c  ", version="WARC/1.1", end="\n") +
                              warc("conversion", "none") + warc("conversion", "long", "WARC-Target-URI: " + "u" * 1025))
        self.assertEqual(self.made("--format", "warc", newlines)[:2], ([b"plain", b"none", b"long"], ["http://c", "c.warc:8", "c.warc:14"]))

    def test_bad_records_may_be_left_out(self):
        first, last = page(1, "one"), page(3, "three")
        for bad, words, left in ((b"junk\r\n\r\nmore\r\n", "[warc.bad_record]", 2), (warc("conversion", "t").replace(b"Content-Length", b"Length"), "[warc.bad_record]", 2),
                                 (warc("conversion", "t", length="1x"), "[warc.bad_record]", 2), (b"WARC/1.0\r\nA: b\r\n" + b"C: d\r\n" * 20_000, "[warc.bad_record]", 2),
                                 (warc("response", "t", length=10**6), "[warc.truncated]", 1), (warc("conversion", "t", length=10**6), "[warc.truncated]", 1)):
            path = self.bytes("bad.warc", first + bad + last)
            self.refused(65, ["--format", "warc", path], words, "bad.warc, line 10")
            made, ids, result = self.made("--format", "warc", "--skip-bad", "1", path)
            self.assertEqual((len(made), made[0], ids[0]), (left, b"one", "http://example.org/1"), str(bad))
            self.assert_warning(result, "[corpus.skipped_bad]", "1 of")
            with open(self.at("made.h5.skipped.jsonl"), encoding="utf-8") as file:
                listed = [json.loads(line) for line in file]
            self.assertEqual([(line["file"], line["line"]) for line in listed], [(path, 10)])
            self.assertIn(words, listed[0]["reason"])
        self.refused(65, ["--format", "warc", "--skip-bad", "0", self.bytes("bad.warc", first + b"junk")], "[corpus.too_many_bad]")
        self.refused(65, ["--format", "warc", self.bytes("bad.warc.gz", gzip.compress(first)[:-9])], "[text.damaged]")
        self.refused(65, ["--format", "warc", self.bytes("none.warc", warc("response", "x"))], "[corpus.no_documents]")
        self.refused(65, ["--format", "warc", self.bytes("empty.warc", b"")], "[corpus.no_documents]")

    # ---- a corpus of each file ----

    def test_a_build_of_many_files_goes_on(self):
        files = [self.write(f"f{k}.jsonl", json.dumps({"text": f"file {k}", "id": f"x{k}"}) + "\n") for k in range(4)]
        command = self.arguments("many/", "--format", "jsonl")
        self.write("f2.jsonl", "{\n")
        self.assert_error(run([program("bagpipe-data")] + command[1:] + files), 65, "[json.invalid]", "f2.jsonl")
        folder = self.at("many")
        self.assertEqual(sorted(os.listdir(folder)), ["corpus.json", "f0.jsonl.h5", "f1.jsonl.h5"])
        made = os.stat(os.path.join(folder, "f0.jsonl.h5")).st_mtime_ns
        self.write("f2.jsonl", json.dumps({"text": "mended"}) + "\n")
        os.utime(files[1])  # newer than its corpus
        result = self.must(command + files, 2)
        self.assertIn("1 of 4 files were done before", result.out)
        self.assertEqual(sorted(os.listdir(folder)), ["corpus.json"] + [f"f{k}.jsonl.h5" for k in range(4)])
        self.assertEqual(os.stat(os.path.join(folder, "f0.jsonl.h5")).st_mtime_ns, made)
        for k, path in enumerate(files):
            self.must(self.arguments("one.h5", "--format", "jsonl", path))
            with open(self.at("one.h5"), "rb") as one, open(os.path.join(folder, f"f{k}.jsonl.h5"), "rb") as other:
                self.assertEqual(one.read(), other.read())
        self.assertIn("4 of 4 files", self.must(command + files).out)
        self.refused(65, ["--out", folder + "/", "--format", "jsonl", "--special", *files], "[corpus.other_options]", "special")
        listed = self.must(self.arguments("listed/", "--format", "jsonl", "--only", self.write("list", "x1\nx3\n"), *files))
        self.assertEqual((listed.lines("warning"), sorted(os.listdir(self.at("listed")))), ([], ["corpus.json", "f1.jsonl.h5", "f3.jsonl.h5"]))

    def test_a_failed_first_command_binds_no_other(self):
        path, broken = self.write("first.txt", "text\n"), self.write("broken.json", "{")
        command = [program("bagpipe-data"), "corpus", "--out", self.at("first/")]
        self.assert_error(run([*command, "--tokenizer", broken, path]), 65, "broken.json")
        self.must(self.arguments("first/", "--special", path))
        self.assert_error(run([program("bagpipe-data")] + self.arguments("first/", path)[1:]), 65, "[corpus.other_options]", "special")
        other = self.write("second.txt", "text\n")
        self.assert_error(run([program("bagpipe-data")] + self.arguments("first/", other)[1:]), 65, "[corpus.other_options]", "special")

    def test_a_corpus_that_nobody_knows_is_not_taken_as_done(self):
        path = self.write("known.txt", "text\n")
        os.makedirs(self.at("unknown"))
        self.must(self.arguments("unknown/known.txt.h5", "--special", path))
        self.must(self.arguments("unknown/train.h5", path))
        for ranks in (0, 2):
            self.assert_error(run([program("bagpipe-data")] + self.arguments("unknown/", path)[1:], ranks), 65, "[corpus.no_options]", "known.txt.h5")
        self.assertEqual(sorted(os.listdir(self.at("unknown"))), ["known.txt.h5", "train.h5"])
        self.must(self.arguments("unknown/", self.write("more.txt", "text\n")))

    def test_a_corpus_of_each_file_is_no_other_file(self):
        for name in ("x", "x.h5"):
            self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("b.json"), "--out", self.at(name), self.text])
        with open(self.at("x.h5"), "rb") as file:
            before = file.read()
        self.assert_error(run([program("bagpipe-data"), "corpus", "--format", "hdf5", "--out", self.folder + "/", self.at("x"), self.at("x.h5")]), 64, "[command.same_output]", "x.h5")
        with open(self.at("x.h5"), "rb") as file:
            self.assertEqual(file.read(), before)

    def test_a_killed_build_goes_on(self):
        files = [self.bytes(f"big{k}.txt", b"some words of a text that is long\n" * 60_000) for k in range(6)]
        command = [program("bagpipe-data")] + self.arguments("killed/", "--format", "lines")[1:] + files
        process = bagpipe_test.Background(command)
        while not os.path.exists(self.at("killed/big1.txt.h5")):
            self.assertIsNone(process.poll())
        process.end()
        done = [name for name in os.listdir(self.at("killed")) if name.startswith("big")]
        self.assertTrue(2 <= len(done) < 6, done)
        self.assertIn(f"{len(done)} of 6 files were done before", self.must(self.arguments("killed/", "--format", "lines", *files)).out)
        self.assertEqual(sorted(os.listdir(self.at("killed"))), sorted(["corpus.json"] + [f"big{k}.txt.h5" for k in range(6)]))

    def test_what_a_killed_tool_left_goes_with_its_next_start(self):
        """Killed between writing and naming, twice; another start's file that is being written (locked) stays."""
        self.must(self.arguments("left.h5", "--format", "lines", self.text))
        os.makedirs(self.at("left"))
        with open(self.bytes("left/.vector.npy.0123456789abcdef.tmp", b""), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            for name, command in (("vector.npy", ["table", "--form", "npy", self.at("left.h5"), "tokens"]), ("t.json", ["tokenizer", "--size", "257", self.text]),
                                  ("overlap.h5", ["overlap", self.at("left.h5"), "--against", self.at("left.h5")])):
                before = set(os.listdir(self.at("left")))
                command = [program("bagpipe-data"), *command, "--out", self.at(f"left/{name}")]
                for _ in range(2):
                    self.assertEqual(run(["env", "BP_FAULT=base.place:1=kill", *command]).status, -signal.SIGKILL)
                    self.assertEqual(len(set(os.listdir(self.at("left"))) - before), 1)
                self.must(["bagpipe-data", *command[1:]])
                self.assertEqual(set(os.listdir(self.at("left"))) - before, {name})
        self.assertIn(".vector.npy.0123456789abcdef.tmp", os.listdir(self.at("left")))

    def test_what_is_no_corpus_of_each_file_is_refused(self):
        os.makedirs(self.at("other"), exist_ok=True)
        same = [self.write(name, "text\n") for name in ("same.txt", "other/same.txt")]
        for words, more in (("[command.same_names]", same), ("[command.no_folder]", ["--format", "pairs", *same]), ("[command.no_folder]", ["-"])):
            self.refused(64, ["--out", self.at("refused") + "/", *more], words)


if __name__ == "__main__":
    bagpipe_test.main()
