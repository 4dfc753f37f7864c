"""Text from standard input, and from another field of JSON lines: what `bagpipe-data corpus` and `tokenizer` make of it."""
import gzip
import json
import os
import signal
import subprocess
import tempfile
import time
import unittest

import h5py

import bagpipe_test
from bagpipe_test import MPIRUN, TIMEOUT, environment, program

LINES = "the first line\n\nthe second \u00e9 line\nand a third\n"
OBJECTS = [{"body": "one text", "id": "a", "genre": "news"}, {"body": "another", "text": "not this", "id": "b", "genre": "fiction"}]


class StandardInput(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="bp_stdin_")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.write("lines.txt", LINES.encode())
        self.write("objects.jsonl", "".join(json.dumps(one) + "\n" for one in OBJECTS).encode())
        self.data(["tokenizer", "--size", "270", "--out", "t.json", "lines.txt"])

    def write(self, name, data):
        with open(os.path.join(self.folder, name), "wb") as file:
            file.write(data)

    def read(self, name):
        with open(os.path.join(self.folder, name), "rb") as file:
            return file.read()

    def data(self, arguments, status=0, ranks=0, **more):
        command = [program("bagpipe-data")] + arguments
        if ranks:
            command = ["sh", MPIRUN, str(ranks)] + command
        if "input" not in more and "stdin" not in more:
            more["stdin"] = subprocess.DEVNULL
        result = subprocess.run(command, cwd=self.folder, env=environment(), capture_output=True, timeout=TIMEOUT, check=False, **more)
        self.assertEqual(result.returncode, status, f"{arguments}: {result.stdout.decode()} {result.stderr.decode()}")
        return result.stderr.decode() + result.stdout.decode()

    def corpus(self, name):
        with h5py.File(os.path.join(self.folder, name)) as file:
            return {"hash": file.attrs["tokenizer_hash"], "start": list(file["doc_start"][:]),
                    "ids": [one.decode() for one in file["doc_id"][:]], "files": [one.decode() for one in file["source/files"][:]],
                    "field": [one.decode() for one in file["source/text_field"][:]] if "source/text_field" in file else None}

    def table(self, name):
        """Documents and their numbers of tokens, bytes and words, without their ids."""
        rows = self.data(["table", name]).splitlines()
        return [[field for k, field in enumerate(row.split(",")) if k != 1] for row in rows]

    def test_plain_gzip_and_zstd_are_recognised_by_their_first_bytes(self):
        self.data(["corpus", "--tokenizer", "t.json", "--format", "lines", "--out", "file.h5", "lines.txt"])
        text = LINES.encode()
        zstd = subprocess.run(["zstd", "-q", "-c"], input=text, capture_output=True, check=True).stdout
        for coding, data in (("plain", text), ("gzip", gzip.compress(text)), ("zstd", zstd)):
            with self.subTest(coding=coding):
                self.data(["corpus", "--tokenizer", "t.json", "--format", "lines", "--out", "piped.h5", "-"], input=data)
                self.assertEqual(self.table("piped.h5"), self.table("file.h5"))
                self.assertEqual(self.corpus("piped.h5")["ids"], ["stdin:1", "stdin:3", "stdin:4"])
                self.assertEqual(self.corpus("piped.h5")["files"], ["stdin"])
                self.assertIn("sound", self.data(["verify", "piped.h5"]))

    def test_a_slow_pipe_is_the_same_text(self):
        """First bytes come one at a time: the coding is recognised all the same."""
        command = [program("bagpipe-data"), "corpus", "--tokenizer", "t.json", "--format", "lines", "--out", "slow.h5", "-"]
        with subprocess.Popen(command, cwd=self.folder, env=environment(), stdin=subprocess.PIPE) as process:
            for byte in gzip.compress(LINES.encode()):
                process.stdin.write(bytes([byte]))
                process.stdin.flush()
            process.stdin.close()
            self.assertEqual(process.wait(TIMEOUT), 0)
        self.assertEqual(self.corpus("slow.h5")["ids"], ["stdin:1", "stdin:3", "stdin:4"])

    def test_a_whole_text_and_files_beside_it(self):
        self.data(["corpus", "--tokenizer", "t.json", "--out", "c.h5", "lines.txt", "-", "./-"], status=66, input=b"x")  # a file called "-"
        self.data(["corpus", "--tokenizer", "t.json", "--out", "c.h5", "lines.txt", "-"], input=b"one text\nof two lines")
        self.assertEqual(self.corpus("c.h5")["ids"], ["lines.txt", "stdin"])
        self.data(["corpus", "--tokenizer", "t.json", "--out", "c.h5", "-"], input=b"")
        self.assertEqual(self.corpus("c.h5")["start"], [0, 1])  # an empty document, as an empty file is

    def test_the_same_tokenizer(self):
        for form in ("text", "lines"):
            self.data(["tokenizer", "--size", "265", "--format", form, "--out", "file.json", "lines.txt"])
            self.data(["tokenizer", "--size", "265", "--format", form, "--out", "piped.json", "-"], input=LINES.encode())
            self.assertEqual(self.read("file.json"), self.read("piped.json"))
        self.data(["tokenizer", "--size", "265", "--out", "none.json", "-"], status=65, input=b"")

    def test_mpirun_with_one_rank_alone(self):
        self.data(["corpus", "--tokenizer", "t.json", "--out", "one.h5", "-"], ranks=1, input=b"text of a launcher")
        self.assertEqual(self.corpus("one.h5")["ids"], ["stdin"])
        for tool in (["corpus", "--tokenizer", "t.json", "--out", "two.h5", "-"], ["tokenizer", "--size", "265", "--out", "two.h5", "-"]):
            reported = self.data(tool, status=64, ranks=2, input=b"text of a launcher")
            self.assertEqual(reported.count("error[64]"), 1, reported)
            self.assertIn("[command.stdin_of_ranks]", reported)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "two.h5")))

    def test_refusals(self):
        self.assertIn("[command.stdin_twice]", self.data(["corpus", "--tokenizer", "t.json", "--out", "c.h5", "-", "-"], status=64, input=b"x"))
        self.assertIn("[text.closed]", self.data(["corpus", "--tokenizer", "t.json", "--out", "c.h5", "-"], status=66,
                                                  preexec_fn=lambda: os.close(0)))
        with open(os.path.join(self.folder, "t.json"), "rb") as same:
            self.assertIn("[command.same_output]", self.data(["corpus", "--tokenizer", "t.json", "--out", "t.json", "-"], status=64, stdin=same))
        folder = os.open(self.folder, os.O_RDONLY)
        self.assertIn("[file.is_folder]", self.data(["corpus", "--tokenizer", "t.json", "--out", "c.h5", "-"], status=66, stdin=folder))
        os.close(folder)
        reported = self.data(["corpus", "--tokenizer", "t.json", "--out", "c.h5", "-"], status=65, input=gzip.compress(b"x" * 999)[:-9])
        self.assertRegex(reported, r"at standard input.* \[text.damaged\]")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "c.h5")))

    def test_a_signal_ends_the_wait(self):
        command = [program("bagpipe-data"), "corpus", "--tokenizer", "t.json", "--out", "c.h5", "-"]
        with subprocess.Popen(command, cwd=self.folder, env=environment(), stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdin.write(b"some text")
            process.stdin.flush()
            status = f"/proc/{process.pid}/status"
            for _ in range(TIMEOUT * 50):  # its handlers are installed: the signal will not kill it
                with open(status, encoding="ascii") as file:
                    caught = [line.split()[1] for line in file if line.startswith("SigCgt")]
                if int(caught[0], 16) & 1 << (signal.SIGINT - 1):
                    break
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(TIMEOUT), 75)
            said = process.stderr.read()
            self.assertIn(b"bagpipe-data: stopped: at standard input", said)
            self.assertNotIn(b"error", said)
            process.stdin.close()
        self.assertFalse([name for name in os.listdir(self.folder) if name.endswith((".h5", ".tmp"))])

    def test_another_field_of_objects(self):
        jsonl = ["--tokenizer", "t.json", "--format", "jsonl", "--out", "c.h5"]
        self.data(["corpus", *jsonl, "--text-field", "body", "--label", "genre", "objects.jsonl"])
        found = self.corpus("c.h5")
        self.assertEqual((found["ids"], found["field"]), (["a", "b"], ["body"]))
        self.assertEqual([row[1:4] for row in self.table("c.h5")[1:]][0][1], str(len("one text")))
        self.assertIn("body", self.data(["inspect", "c.h5"]))
        with open(os.path.join(self.folder, "objects.jsonl"), "rb") as file:
            self.data(["tokenizer", "--size", "260", "--format", "jsonl", "--text-field", "body", "--out", "piped.json", "-"], stdin=file)
        self.data(["tokenizer", "--size", "260", "--format", "jsonl", "--text-field", "body", "--out", "file.json", "objects.jsonl"])
        self.assertEqual(self.read("piped.json"), self.read("file.json"))

    def test_objects_without_the_field(self):
        jsonl = ["corpus", "--tokenizer", "t.json", "--format", "jsonl", "--out", "c.h5"]
        reported = self.data([*jsonl, "objects.jsonl"], status=65)
        self.assertRegex(reported, r"at objects.jsonl, line 1; .*--text-field.* \[text.missing_field\]")
        reported = self.data([*jsonl, "--text-field", "body", "-"], status=65, input=b'{"body": "x"}\n{"body": 5}\n')
        self.assertRegex(reported, r"at standard input, line 2; .* \[text.missing_field\]")
        reported = self.data(["corpus", "--tokenizer", "t.json", "--text-field", "body", "--out", "c.h5", "lines.txt"], status=64)
        self.assertIn("[command.needs_jsonl]", reported)
        reported = self.data(["tokenizer", "--size", "260", "--text-field", "body", "--out", "c.json", "lines.txt"], status=64)
        self.assertIn("[command.needs_jsonl]", reported)


if __name__ == "__main__":
    bagpipe_test.main()
