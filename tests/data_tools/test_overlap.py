"""bagpipe-data overlap against counts by plain Python, at any number of ranks and passes; filter against numpy; compare --clean beside compare."""
import csv
import json
import math
import os
import subprocess
import unicodedata

import numpy as np

import bagpipe_test
from bagpipe_test import JobTest, program, read_json, run


def plain_words(text):
    """Words without case, punctuation, symbols and control characters; Chinese characters alone."""
    words = []
    for run_of in text.split():
        word = ""
        for c in run_of:
            if 0x3400 <= ord(c) <= 0x9FFF or ord(c) >= 0x20000:
                words += [word, c]
                word = ""
            elif unicodedata.category(c)[0] not in "PS" and unicodedata.category(c) not in ("Cc", "Cf"):
                word += c.lower()
        words.append(word)
    return [word for word in words if word]


def grams(text, n):
    words = plain_words(text)
    return [tuple(words[k:k + n]) for k in range(len(words) - n + 1)]


def overlaps(train, test, n):
    """(n-grams, matched, [(first training document, places)]) of each test document."""
    first = {}
    for d, text in enumerate(train):
        for gram in grams(text, n):
            first.setdefault(gram, d)
    found = []
    for text in test:
        mine = grams(text, n)
        places = {}
        for gram in mine:
            if gram in first:
                places[first[gram]] = places.get(first[gram], 0) + 1
        found.append((len(mine), sum(places.values()), sorted(places.items(), key=lambda item: (-item[1], item[0]))[:16]))
    return found


class Overlap(JobTest):
    TEXT_BYTES = 60_000

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(cls.at("train.txt"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        odd = ["Ein \u00dcBER-langer  Satz, \u201egro\u00df\u201c wie \u0130stanbul\u2026 don't ne\u0301", "\u6771\u4eactower\u3002\u4eac \U00020000x", "", "a\x1fb c\x00d \u00ad\u00e9 $5 2+2=4", "x y"]
        cls.train = [" ".join(lines[k:k + 3]) for k in range(0, len(lines) - 2, 3)] + odd
        mixed = [f"{lines[k][:70]} and other words {lines[k + 50]}" for k in range(0, 60, 7)]
        cls.test = [lines[2], lines[3].upper() + "!", "nothing of it " * 9, mixed[0], "", "short", *mixed, odd[0] + " " + odd[1] + " " + odd[3], cls.train[4] + " " + cls.train[9]]
        for name, texts in (("t", cls.train), ("e", cls.test)):
            cls.write(f"{name}.jsonl", "".join(json.dumps({"id": f"{name}{k}", "text": text}) + "\n" for k, text in enumerate(texts)))

    def found(self, arguments, ranks=0, name="o"):
        self.must(["bagpipe-data", "overlap", *arguments, "--out", self.at(f"{name}.h5"), "--json", self.at(f"{name}.json")], ranks)
        self.must(["bagpipe-data", "verify", self.at(f"{name}.h5")])
        import h5py
        with h5py.File(self.at(f"{name}.h5")) as file:
            start = file["where_start"][:].astype(int)
            where = [(file["where_id"][k].decode(), int(file["where_ngrams"][k])) for k in range(start[-1])]
            shares = file["share"][:]
            ids = [one.decode() for one in file["doc_id"][:]]
            rows = [(int(g), int(m), where[a:b]) for g, m, a, b in zip(file["ngrams"][:], file["matched"][:], start, start[1:])]
        self.assertEqual([None if np.isnan(share) else share for share in shares], [m / g if g else None for g, m, _ in rows])
        return rows, ids

    def expected(self, n, train=None):
        return [(g, m, [(f"t{d}", count) for d, count in places]) for g, m, places in overlaps(train or self.train, self.test, n)]

    def test_counts_are_those_of_plain_python(self):
        files = ["--format", "jsonl", self.at("t.jsonl"), "--against", self.at("e.jsonl")]
        for n in (1, 3, 13):
            rows, ids = self.found([*files, "--words", str(n)])
            self.assertEqual(rows, self.expected(n))
            self.assertEqual(ids, [f"e{k}" for k in range(len(self.test))])
        figures = read_json(self.at("o.json"))
        self.assertEqual((figures["documents"], figures["too_short"]), (len(self.test), sum(g == 0 for g, _, _ in rows)))
        self.assertEqual([one["id"] for one in figures["overlaps"]], [name for name, row in zip(ids, rows) if row[1]])

    def test_files_are_the_same_at_any_number_of_ranks(self):
        half = len(self.train) // 2
        parts = [self.write(f"part{k}.jsonl", "".join(json.dumps({"id": f"t{d + k * half}", "text": text}) + "\n" for d, text in enumerate(texts)))
                 for k, texts in enumerate((self.train[:half], self.train[half:]))]
        for ranks in (0, 1, 3):
            rows, _ = self.found(["--words", "5", "--format", "jsonl", *parts, "--against", self.at("e.jsonl")], ranks, f"r{ranks}")
            self.assertEqual(rows, self.expected(5))
        for end in (".h5", ".json"):
            contents = []
            for ranks in (0, 1, 3):
                with open(self.at(f"r{ranks}{end}"), "rb") as file:
                    contents.append(file.read())
            self.assertEqual(contents[0], contents[1])
            self.assertEqual(contents[0], contents[2])

    def much(self):
        """(lines with more n-grams than 1 MiB takes, lines of which the later ones are longer)."""
        with open(self.at("train.txt"), encoding="utf-8") as file:
            lines = [f"{line} number {k}" for k, line in enumerate(file.read().splitlines() * 2)]
        return lines, [f"w{k} x{k} " + " ".join(f"y{k} z{j}" for j in range(3 + k // 6)) for k in range(60)]

    def test_little_memory_takes_several_passes(self):
        lines, pieces = self.much()
        joined = " ".join(pieces)
        path, more = self.write("much.txt", "\n".join(lines) + "\n"), self.write("pieces.txt", "\n".join(pieces) + "\n")
        files = ["--format", "lines", "--words", "4", path, more, self.at("valid.txt"), "--against", path, self.write("joined.txt", joined + "\n")]
        one, _ = self.found(files, name="one")
        several = run([program("bagpipe-data"), "overlap", *files, "--memory", "1", "--out", self.at("more.h5")])
        self.assert_warning(several, "[overlap.passes]", "times")
        with open(self.at("one.h5"), "rb") as file, open(self.at("more.h5"), "rb") as other:
            self.assertEqual(file.read(), other.read())
        self.assertEqual([row[0] for row in one[:-1]], [row[1] for row in one[:-1]])
        (expected,) = overlaps(lines + pieces, [joined], 4)
        self.assertEqual([count for _, count in one[-1][2]], [count for _, count in expected[2]])
        self.assertEqual((one[-1][1], len(one[-1][2])), (expected[1], 16))

    def from_stdin(self, arguments, text, before_the_rest=lambda: None):
        """With `text` as standard input; its end after that call, when the tool has read more than a pipe holds."""
        process = subprocess.Popen([program("bagpipe-data"), "overlap", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=bagpipe_test.environment())
        try:
            process.stdin.write(text)
            process.stdin.flush()
            before_the_rest()
        except BrokenPipeError:
            pass
        out, err = process.communicate(b"", timeout=bagpipe_test.TIMEOUT)
        return bagpipe_test.Result(process.returncode, out.decode(), err.decode())

    def test_standard_input_takes_one_pass(self):
        lines, _ = self.much()
        path, out = self.write("much.txt", "\n".join(lines) + "\n"), self.at("stdin.h5")
        arguments = ["--format", "lines", "--words", "4", "-", "--against", path, "--out", out]
        text = "\n".join(lines[:500]).encode()
        result = self.from_stdin([*arguments, "--memory", "1"], text)
        self.assert_error(result, 64, "[overlap.stdin_passes]", "--memory")
        self.assertFalse(os.path.exists(out))
        self.assertEqual(self.from_stdin(arguments, text).status, 0)

    def test_a_file_that_changes_meanwhile_is_refused(self):
        path, out = self.at("grows.txt"), self.at("grown.h5")
        for end in ("one more document of its own\n", "and more of the last one"):
            self.write("grows.txt", "a test document of seven words\nthe last document of this file")

            def grow(end=end):
                with open(path, "a", encoding="utf-8") as file:
                    file.write("\n" * (end[-1] == "\n") + end)

            result = self.from_stdin(["--format", "lines", "--words", "2", "-", "--against", path, "--out", out], b"words of a training text\n" * 20_000, grow)
            self.assert_error(result, 65, "[overlap.changed]", "grows.txt")
            self.assertFalse(os.path.exists(out))

    def test_corpora_are_read_as_their_texts(self):
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--out", self.at("t.h5"), self.at("t.jsonl")])
        for ranks in (0, 2):
            rows, ids = self.found(["--words", "3", "--format", "jsonl", self.at("t.h5"), "--against", self.at("e.jsonl")], ranks)
            self.assertEqual(rows, self.expected(3))
        pairs = [self.write(name, text) for name, text in (("a.txt", "one two\nfive\n"), ("b.txt", "three four\nsix\n"))]
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "pairs", "--out", self.at("p.h5"), *pairs])
        rows, ids = self.found(["--words", "3", "--format", "lines", self.write("c.txt", "two three four six\n"), "--against", self.at("p.h5")])
        self.assertEqual((rows, ids), ([(2, 1, [("c.txt:1", 1)]), (0, 0, [])], ["a.txt:1", "a.txt:2"]))

    def test_test_texts_have_a_format_and_a_field_of_their_own(self):
        asked = self.write("q.jsonl", "".join(json.dumps({"id": f"e{k}", "context": text, "choices": [1]}) + "\n" for k, text in enumerate(self.test)))
        lines = self.write("t.txt", "".join(" ".join(text.split("\n")) + "\n" for text in self.train if text))
        rows, ids = self.found(["--words", "3", "--format", "lines", lines, "--test-format", "jsonl", "--test-field", "context", "--against", asked])
        self.assertEqual([row[:2] for row in rows], [row[:2] for row in self.expected(3)])
        rows, _ = self.found(["--words", "3", "--format", "jsonl", self.at("t.jsonl"), "--test-field", "context", "--against", asked])
        self.assertEqual(rows, self.expected(3))

    def test_what_is_wrong_is_refused(self):
        text, out = self.at("t.jsonl"), self.at("none.h5")
        for status, words, arguments in ((64, ["[command.no_input]", "--against"], [text]), (64, ["[command.no_input]"], ["--against", text]),
                                         (64, ["[command.bad_number]"], [text, "--against", text, "--words", "0"]),
                                         (64, ["[command.needs_jsonl]"], [text, "--against", text, "--text-field", "x"]),
                                         (64, ["[command.needs_jsonl]", "--test-field"], [text, "--against", text, "--test-field", "x"]),
                                         (64, ["[text.unknown_format]"], [text, "--against", text, "--format", "tsv"]),
                                         (64, ["[command.stdin_twice]"], [text, "--against", "-"]), (64, ["[command.same_output]"], [text, "--against", text, "--json", text]),
                                         (66, ["[file.missing]"], [text, "--against", self.at("missing")]),
                                         (65, ["[json.invalid]", "line 1"], ["--format", "jsonl", self.write("bad", "{\n"), "--against", text])):
            for ranks in (0, 2) if status != 64 else (0,):
                result = run([program("bagpipe-data"), "overlap", *arguments, "--out", out], ranks)
                self.assert_error(result, status, *words)
                self.assertFalse(os.path.exists(out))
        with open(self.at("ids.bin"), "wb") as file:
            file.write(b"\1\0\2\0")
        self.must(["bagpipe-data", "corpus", "--format", "nanogpt", "--vocab-size", "9", "--out", self.at("ids.h5"), self.at("ids.bin")])
        result = run([program("bagpipe-data"), "overlap", self.at("ids.h5"), "--against", text, "--out", out])
        self.assert_error(result, 65, "[overlap.no_tokenizer]", "ids.h5")


class Filter(JobTest):
    TEXT_BYTES = 60_000

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(cls.at("valid.txt"), encoding="utf-8") as file:
            lines = [line for line in file.read().splitlines() if line][:41]
        cls.write("d.jsonl", "".join(json.dumps({"id": f"d{k}", "text": line, "kind": "abc"[k % 3]}) + "\n" for k, line in enumerate(lines + [""])))
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "jsonl", "--label", "kind", "--out", cls.at("d.h5"), cls.at("d.jsonl")])
        cls.write("score.ini", "[math]\nprecision = f32\nthreads = 1\n")
        for k in (1, 2):
            cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.at(f'm{k}')}", f"run.seed={k}", "train.steps=2"])
            cls.must(["bagpipe", "score", cls.at("score.ini"), f"run.dir={cls.at(f's{k}')}", f"score.model={cls.at(f'm{k}')}", f"score.corpus={cls.at('d.h5')}"])

    def columns(self):
        import h5py
        with h5py.File(self.at("s1/score/documents.h5")) as file:
            return {name: file[name][:].astype(float) for name in ("nll", "tokens", "bytes", "words")}

    def kept(self, figure, low, high, groups=None):
        """By numpy: d0 ... of those between the percentiles."""
        values = np.array(figure)
        kept = []
        for group in sorted(set(groups)) if groups else (None,):
            mine = [d for d in range(len(values)) if not np.isnan(values[d]) and (groups is None or groups[d] == group)]
            order = np.array(mine)[np.argsort(values[mine], kind="stable")]
            ranks = 100 * (np.arange(len(order)) + 0.5) / len(order)
            kept += [int(d) for d, p in zip(order, ranks) if low <= p and (p < high or high == 100)]
        return [f"d{d}" for d in sorted(kept)]

    def test_percentiles_are_those_of_numpy(self):
        columns = self.columns()
        with np.errstate(divide="ignore", invalid="ignore"):
            figures = {"perplexity": np.exp(columns["nll"] / columns["tokens"]), "bits_per_byte": columns["nll"] / columns["bytes"] / np.log(2),
                       "nll": np.where(columns["tokens"] > 0, columns["nll"], np.nan), "bytes": columns["bytes"], "words": columns["words"]}
        for name, figure in figures.items():
            for low, high in ((0, 30), (25, 75), (90, 100), (0, 100)):
                result = run([program("bagpipe-data"), "filter", self.at("s1"), "--by", name, "--keep", f"{low}..{high}%"])
                self.assertEqual(result.out.split(), self.kept(figure, low, high), f"{name} {low} {high}")
                self.assert_warning(result, "[filter.no_figures]", "1 of 42", times=0 if name in ("bytes", "words") else 1)
        within = run([program("bagpipe-data"), "filter", self.at("s1"), "--by", "perplexity", "--keep", "0..50%", "--within", "kind"])
        self.assertEqual(within.out.split(), self.kept(figures["perplexity"], 0, 50, ["abc"[k % 3] for k in range(42)]))

    def test_a_corpus_takes_the_list(self):
        made = self.must(["bagpipe-data", "filter", self.at("s1"), "--by", "tokens", "--keep", "50..100%", "--out", self.at("list")])
        self.assertIn("21 of 42 documents", made.out + made.err)
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--only", self.at("list"), "--out", self.at("only.h5"), self.at("d.jsonl")])
        self.assertIn("documents   21", self.must(["bagpipe-data", "inspect", self.at("only.h5")]).out)

    def leak(self, words):
        """o.h5 of a training text with every fourth document; the kind of each document."""
        with open(self.at("d.jsonl"), encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        train = self.write("leak.jsonl", "".join(json.dumps({"text": row["text"]}) + "\n" for row in rows[::4]))
        self.must(["bagpipe-data", "overlap", "--format", "jsonl", train, "--against", self.at("d.h5"), "--words", str(words), "--out", self.at("o.h5")])
        leaked = set().union(*(grams(row["text"], words) for row in rows[::4]))
        return ["too_short" if not grams(row["text"], words) else "overlapping" if any(g in leaked for g in grams(row["text"], words)) else "clean" for row in rows]

    def test_figures_are_without_overlapping_documents(self):
        with open(self.at("d.jsonl"), encoding="utf-8") as file:
            lengths = sorted(len(plain_words(json.loads(line)["text"])) for line in file)
        kinds = self.leak(lengths[12])  # some that were scored are too short
        columns = self.columns()
        said = self.must(["bagpipe-data", "compare", self.at("s1"), self.at("s2"), "--clean", self.at("o.h5"), "--json", self.at("c.json")])
        self.assertIn("\nOf the clean documents: ", said.out)
        for form in ("--csv", "--json"):  # it would be replaced
            self.assert_error(run([program("bagpipe-data"), "compare", self.at("s1"), self.at("s2"), "--clean", self.at("o.h5"), form, self.at("o.h5")]), 64, "[command.same_output]")
        figures = read_json(self.at("c.json"))
        self.assertEqual({name: part["documents"] for name, part in figures["labels"]["overlap"].items()}, {name: kinds.count(name) for name in set(kinds)})
        scored = [kind for kind, tokens in zip(kinds, columns["tokens"]) if tokens > 0]
        counts = {"documents": len(scored), "left_out": scored.count("overlapping"), "too_short": scored.count("too_short"), "words_of_an_ngram": lengths[12]}
        self.assertEqual(figures["clean"], counts)
        self.assertGreater(min(counts["left_out"], counts["too_short"]), 0)
        for what in (f"of {counts['documents']} documents {counts['left_out']} ", f"{counts['too_short']} of fewer words "):
            self.assertIn(what, said.out)
        counted = [kind != "overlapping" for kind in kinds]
        nll = float(columns["nll"][counted].sum())
        self.assertAlmostEqual(figures["all"]["nll_nats_a"], nll, places=3)
        for k, kind in enumerate("abc"):
            mine = [d for d in range(42) if d % 3 == k and counted[d]]
            self.assertEqual(figures["labels"]["kind"][kind]["documents"], len(mine))
            self.assertAlmostEqual(figures["labels"]["kind"][kind]["nll_nats_a"], float(columns["nll"][mine].sum()), places=3)
        result = self.must(["bagpipe-data", "table", self.at("s1"), self.at("s2"), "--clean", self.at("o.h5")])
        self.assert_warning(result, "[table.clean_part]", f"{counts['too_short']} of fewer words")
        rows = list(csv.DictReader(result.out.splitlines()))
        clean = [row for row in rows if row["scope"] == "corpus"][0]
        self.assertEqual((clean["documents"], clean["tokens"]), (str(sum(counted)), str(figures["all"]["tokens_a"])))
        self.assertAlmostEqual(math.log(float(clean["perplexity"])) * figures["all"]["tokens_a"] / nll, 1, places=9)
        self.assertNotIn("overlap", {row["name"] for row in rows})
        below = self.must(["bagpipe-data", "table", self.at("s1"), self.at("s2"), "--clean", self.at("o.h5"), "--form", "latex"])
        self.assertEqual(below.out.count(f"of {counts['documents']} documents {counts['left_out']} "), 1)
        self.must(["bagpipe-data", "compare", self.at("s1"), self.at("s2"), "--json", self.at("c.json")])
        self.assertIsNone(read_json(self.at("c.json"))["clean"])

    def test_where_all_overlap_there_is_no_verdict(self):
        self.must(["bagpipe-data", "overlap", "--format", "jsonl", self.at("d.jsonl"), "--against", self.at("d.h5"), "--words", "1", "--out", self.at("o.h5")])
        said = self.must(["bagpipe-data", "compare", self.at("s1"), self.at("s2"), "--clean", self.at("o.h5")])
        self.assertIn("No verdict", said.out)

    def test_corpora_are_values_of_a_label(self):
        config = [f"score.model={self.at('m1')}", f"score.corpus={self.at('d.h5')},{self.at('valid.h5')}"]
        self.must(["bagpipe", "score", self.at("score.ini"), f"run.dir={self.at('both')}", *config])
        kinds, out = self.leak(6), self.at("between.csv")
        summary = read_json(self.at("both/score/summary.json"))["corpora"]
        self.must(["bagpipe-data", "compare", self.at("both"), "--between", "corpus", "--csv", out])
        with open(out, encoding="utf-8") as file:
            (row,) = csv.DictReader(file)
        self.assertEqual({row["harder"], row["easier"]}, {"d", "valid"})
        for side in ("harder", "easier"):
            self.assertAlmostEqual(float(row[f"{side}_figure"]) / summary[row[side]]["perplexity"], 1, places=9)
        result = run([program("bagpipe-data"), "compare", self.at("s1"), "--between", "corpus", "--clean", self.at("o.h5")])
        self.assert_error(result, 65, "[compare.one_value]")
        values = self.must(["bagpipe-data", "compare", self.at("s1"), "--between", "kind", "--clean", self.at("o.h5")]).out
        scored = [k for k in range(41) if kinds[k] != "overlapping"]
        for k, kind in enumerate("abc"):
            self.assertRegex(values, rf"(?m)^{kind} +{sum(d % 3 == k for d in scored)} ")

    def test_what_is_wrong_is_refused(self):
        for status, words, arguments in ((64, ["[command.bad_value]", "--by"], ["--keep", "0..10%"]), (64, ["[command.bad_value]", "--keep"], ["--by", "nll"]),
                                         (64, ["[command.bad_value]", "loss"], ["--by", "loss", "--keep", "0..10%"]),
                                         *((64, ["[command.bad_value]", "--keep"], ["--by", "nll", "--keep", keep]) for keep in ("10", "10..5%", "0..101%", "-1..5%", "1..2x", "nan..5")),
                                         (65, ["[label.unknown]", "genre"], ["--by", "nll", "--keep", "0..10%", "--within", "genre"]),
                                         (65, ["[filter.none]"], ["--by", "nll", "--keep", "0..0.1%"])):
            self.assert_error(run([program("bagpipe-data"), "filter", self.at("s1"), *arguments, "--out", self.at("refused")]), status, *words)
        self.assert_error(run([program("bagpipe-data"), "filter", self.folder, "--by", "nll", "--keep", "0..9%"]), 66, "[scores.missing]")
        self.assertFalse(os.path.exists(self.at("refused")))
        other = self.write("other.jsonl", json.dumps({"id": "x", "text": "some words"}) + "\n")
        self.must(["bagpipe-data", "overlap", "--format", "jsonl", other, "--against", other, "--words", "1", "--out", self.at("other.h5")])
        for words, path in (("[overlap.other_documents]", self.at("other.h5")), ("[h5.wrong_kind]", self.at("d.h5"))):
            self.assert_error(run([program("bagpipe-data"), "compare", self.at("s1"), self.at("s2"), "--clean", path]), 65, words)


if __name__ == "__main__":
    bagpipe_test.main()
