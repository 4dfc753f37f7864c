"""score/index.html: what it tells is what the score files and the texts hold, and it needs no other file."""
import json
import math
import os
import re
import shlex
import shutil
import subprocess

import bagpipe_test
from bagpipe_test import JobTest, Result, ScoreFiles, TIMEOUT, environment, program, run
from page_test import Page

try:
    import h5py
    import numpy
except ImportError:
    h5py = numpy = None


def figure(figures, first=None):
    """A perplexity with the decimals of its column's first one: three significant digits, and as many as two digits of the error need."""
    value, error = ((first or figures)[key] for key in ("perplexity", "perplexity_stderr_documents"))
    decimals = max(0, 2 - math.floor(math.log10(value)), 1 - math.floor(math.log10(error)))
    return f"{figures['perplexity']:,.{decimals}f}"


class ScorePage(ScoreFiles, JobTest):
    @classmethod
    def setUpClass(cls):
        if h5py is None:
            raise bagpipe_test.unittest.SkipTest("there is no h5py")
        super().setUpClass()
        cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.at('model')}"])
        with open(cls.at("valid.txt"), encoding="utf-8") as file:
            lines = [line for line in file.read().splitlines() if len(line) > 20]
        cls.texts = {}
        with open(cls.at("labelled.jsonl"), "w", encoding="utf-8") as file:
            for k in range(60):
                text = " ".join(lines[k:k + 1 + k % 4])
                if k == 7:
                    text = "a <script>alert('x')</script>\n\tb & \"c\" \\ é 漢"
                if k == 8:
                    text = ""
                if k == 9:
                    text = "x"
                cls.texts[f"d{k}"] = text
                file.write(json.dumps({"id": f"d{k}", "text": text, "kind": ("a <b>", "c \"d\", e", "")[k % 3]}) + "\n")
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "jsonl", "--label", "kind", "--out",
                  cls.at("labelled.h5"), cls.at("labelled.jsonl")])
        cls.write("score.ini", f"[score]\nmodel = {cls.at('model')}\ncorpus = {cls.at('labelled.h5')}, {cls.at('valid.h5')}\ntokens = yes\n"
                               "[math]\nprecision = f32\nthreads = 1\n")

    def scored(self, name, *keys, ranks=0, env=None):
        command = [program("bagpipe"), "score", self.at("score.ini"), f"run.dir={self.at(name)}"] + list(keys)
        if env is None:
            result = run(command, ranks)
            self.assertEqual(result.status, 0, str(result))
            return result
        process = subprocess.run(command, env=dict(environment(), **env), capture_output=True, timeout=TIMEOUT, check=False)
        self.assertEqual(process.returncode, 0, process.stderr.decode())
        return Result(0, process.stdout.decode(), process.stderr.decode())

    def page(self, name):
        with open(os.path.join(self.at(name), "score", "index.html"), encoding="utf-8") as file:
            text = file.read()
        page = Page(text)
        self.assertEqual(page.stack, [])
        self.assertEqual(len(page.ids), len(set(page.ids)))
        for link in page.links:
            self.assertTrue(link == "summary.json" or link[:1] == "#" and link[1:] in page.ids, link)
        return page, text

    def documents(self, name):
        with h5py.File(os.path.join(self.at(name), "score", "documents.h5")) as file:
            return {key: file[key][:] for key in ("nll", "tokens", "perplexity", "doc_id")}

    def test_figures_and_lists_are_those_of_the_files(self):
        self.scored("whole")
        page, text = self.page("whole")
        summary = self.summary("whole")
        rows = {row[0]: row for row in page.rows}
        self.assertEqual(rows["all documents"][1:4], [f"{summary['documents']:,}", f"{summary['tokens']:,}", figure(summary)])
        self.assertEqual(rows["valid"][3], figure(summary["corpora"]["valid"], summary))
        self.assertEqual(rows["kind: a <b>"][3], figure(summary["labels"]["kind"]["a <b>"], summary))
        self.assertNotIn("<b>", text)
        self.assertNotIn("<script", text)
        files = self.documents("whole")
        scored = numpy.isfinite(files["perplexity"])
        least = min(50, sorted(files["tokens"][scored])[scored.sum() // 2])
        self.assertIn(f"at least {least} scored tokens", text)
        chosen = [d for d in range(len(scored)) if scored[d] and files["tokens"][d] >= least]
        chosen.sort(key=lambda d: files["perplexity"][d])
        listed = [row[0] for row in page.rows if len(row) == 4 and row[3] != "95 % interval"]
        lists = "\n".join(listed).split("id\n")[1:]
        corpora = [[files["doc_id"][d].decode() for d in chosen if (d < 60) == first] for first in (True, False)]
        for names, hardest, easiest in zip(corpora, lists[::2], lists[1::2], strict=True):
            half = min(10, (len(names) + 1) // 2)
            self.assertEqual(hardest.split(), names[:-half - 1:-1])
            self.assertEqual(easiest.split(), names[:min(half, len(names) - half)])
        for word in ("Hardest of labelled", "Easiest of valid"):
            self.assertIn(word, "".join(page.text))
        if shutil.which("gnuplot"):
            self.assertEqual(text.count("<svg"), 1)
            self.assertIn("kind: c \"d\", e", "".join(page.text))

    def test_beginnings_are_those_of_the_texts(self):
        self.scored("texts", f"score.corpus={self.at('labelled.h5')}")
        page, _ = self.page("texts")
        rows = [row for row in page.rows if len(row) == 5 and row[0] in self.texts]
        self.assertGreater(len(rows), 10)
        for row in rows:
            shown = row[4][:-2] if row[4].endswith(" …") else row[4]
            self.assertTrue(self.texts[row[0]].startswith(shown), row)

    def test_values_with_the_most_documents_are_shown(self):
        """Of 22 values the last two have the most documents: twenty are shown, and these are among them; two of the others, which have as many as the rest, are not."""
        values = {**{f"v{k:02}": 5 for k in range(20)}, "y-many": 9, "z-many": 8}
        with open(self.at("many.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": f"The sea was there {k}.", "kind": name}) + "\n" for name, count in values.items() for k in range(count))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--label", "kind", "--out", self.at("many.h5"), self.at("many.jsonl")])
        self.scored("many-values", f"score.corpus={self.at('many.h5')}")
        plot = self.page("many-values")[1]
        plot = plot[plot.index("<svg"):plot.rindex("</svg>")]
        shown = {name for name in values if f"kind: {name}" in plot}
        self.assertEqual(len(shown), 20)
        self.assertLessEqual({"y-many", "z-many"}, shown)

    def test_samples_show_each_token(self):
        self.scored("texts", f"score.corpus={self.at('labelled.h5')}")
        _, text = self.page("texts")
        files = self.documents("texts")
        samples = re.findall(r'<p>(d\d+) of labelled: (\d+) tokens[^<]*</p>\s*<p class="tokens">(.*?)</p>', text, re.S)
        self.assertEqual(len(samples), 3)
        with h5py.File(os.path.join(self.at("texts"), "score", "tokens.h5")) as file, h5py.File(self.at("labelled.h5")) as corpus:
            logprob, start = file["logprob"][:], corpus["doc_start"][:]
        for name, count, body in samples:
            d = [k for k, one in enumerate(files["doc_id"]) if one.decode() == name][0]
            spans = re.findall(r'<span( class="unscored")? style="--p:([\d.]+);--m:[\d.]+" title="token \d+, ([^"]*)">([^<]*)</span>', body)
            self.assertEqual(int(count), files["tokens"][d])
            self.assertEqual(len(spans), min(400, int(start[d + 1] - start[d]) - 1))
            for k, (unscored, shade, says, shown) in enumerate(spans):
                at = int(start[d]) + k
                self.assertEqual(bool(unscored), bool(numpy.isnan(logprob[at])))
                if not unscored:
                    self.assertAlmostEqual(float(shade), min(1, -logprob[at] / 10), delta=0.0051)
                    self.assertIn(f"log-probability {logprob[at]:.3f}", says)
            joined = "".join(shown for *_, shown in spans).replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")
            self.assertTrue(self.texts[name].startswith(joined.replace("&quot;", '"')), joined)

    def test_an_odd_document_is_shown_harmlessly(self):
        """One document alone, of markup, control characters and other letters."""
        self.write("odd.jsonl", json.dumps({"id": "<i>", "text": self.texts["d7"]}) + "\n")
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--out", self.at("odd.h5"),
                   self.at("odd.jsonl")])
        self.scored("odd", f"score.corpus={self.at('odd.h5')}")
        page, text = self.page("odd")
        self.assertNotIn("<script", text)
        self.assertIn("Too few documents", text)
        row = [row for row in page.rows if row[0] == "<i>"][0]
        self.assertEqual(row[4], r"a <script>alert('x')</script>\n\tb & " + '"c" ' + r"\\ é 漢")

    def test_bytes_of_a_character_are_shown_together(self):
        """A byte-level tokenizer that knows no Chinese splits its characters: the page joins them, and a byte of its own stays one."""
        self.write("chinese.jsonl", "".join(json.dumps({"id": f"zh{k}", "text": "\u6f22\u5b57 and \u6f22\u5b57, e\u0301 too"}) + "\n" for k in range(4)))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--out", self.at("chinese.h5"),
                   self.at("chinese.jsonl")])
        self.scored("chinese", f"score.corpus={self.at('chinese.h5')}")
        _, text = self.page("chinese")
        self.assertIn("five are the least", text)
        spans = re.findall(r'title="(tokens? [\d ]+)[^"]*">([^<]*)</span>', text)
        self.assertEqual("".join(shown for _, shown in spans[:len(spans) // 3]), "\u6f22\u5b57 and \u6f22\u5b57, e\u0301 too")
        self.assertIn("\u6f22", [shown for says, shown in spans if len(says.split()) == 4 and says.startswith("tokens ")])

    def test_axes_have_three_labels(self):
        self.scored("axes", f"score.corpus={self.at('labelled.h5')}")
        _, text = self.page("axes")
        if shutil.which("gnuplot"):
            ticks = re.findall(r"<text>\s*([\d.]+)</text>", text.split("<svg")[1])
            self.assertGreaterEqual(len([tick for tick in ticks if float(tick) >= 1]), 6, ticks)  # three at least on each of two axes

    def test_axes_hold_all_rows(self):
        """Those of a corpus too whose documents are few beside another one's, and others; gnuplot is a program that keeps its script."""
        lines = [text for text in self.texts.values() if len(text) > 20]
        for name, texts in (("usual", [lines[0][:30 + k % 2] for k in range(2000)]), ("few", lines[1:7])):
            self.write(f"{name}.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in texts))
            self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--out", self.at(f"{name}.h5"), self.at(f"{name}.jsonl")])
        os.makedirs(self.at("kept"), exist_ok=True)
        os.chmod(self.write("kept/gnuplot", f"#!/bin/sh\ncat >'{self.at('kept/script')}'\n"), 0o755)
        self.scored("rows", f"score.corpus={self.at('usual.h5')},{self.at('few.h5')}", env={"PATH": f"{self.at('kept')}:{os.environ['PATH']}"})
        with open(self.at("kept/script"), encoding="utf-8") as file:
            script = file.read()
        low, high, top = (float(re.search(rf"(?m)^{name} = (\S+)", script)[1]) for name in ("low", "high", "top"))
        blocks = {name: [[float(cell) for cell in row.split(",")] for row in body.split()] for name, body in re.findall(r"(?s)\$(\w+) << \w+\n(.*?)\n\w*EOD", script)}
        figures = [value for name in ("quantiles", "means") for row in blocks[name] for value in row[1:2 if name == "means" else 6]]
        self.assertEqual(len(figures), 3 * 6)
        self.assertLess(low, min(figures))
        self.assertGreater(high, max(figures))
        self.assertGreater(top, max(share for _, _, share in blocks["bins"]))

    def test_an_ensemble_shows_mutual_information(self):
        self.must(["bagpipe", "ensemble", self.at("small.ini"), f"run.dir={self.at('members')}", "ensemble.members=2", "train.steps=8"])
        self.scored("ensemble", f"score.model={self.at('members')}")
        page, text = self.page("ensemble")
        self.assertIn("An ensemble of 2 members", text)
        self.assertIn("by-m", page.ids)
        self.assertEqual([row[6] for row in page.rows if row[0] == "all documents"],
                         [f"{self.summary('ensemble')['mutual_information']:.{3 - math.floor(math.log10(self.summary('ensemble')['mutual_information']))}f}"])
        self.assertRegex(text, r"mutual information 0\.\d{4}")
        shades = [float(m) for m in re.findall(r"--m:([\d.]+)", text)]
        self.assertEqual(max(shades), 1)

    def test_without_tokens_it_says_how_to_get_them(self):
        self.scored("tokenless", "score.tokens=no")
        _, text = self.page("tokenless")
        self.assertIn("<code>score.tokens=yes</code>", text)
        self.assertNotIn("--m:", text)

    def test_a_corpus_without_tokenizer_has_no_texts(self):
        with h5py.File(self.at("theirs.h5"), "w") as file:
            file["tokens"] = numpy.arange(3000, dtype=numpy.uint16) % 200
            file["doc_start"] = numpy.arange(0, 3001, 100)
            file.attrs["vocab_size"] = self.VOCABULARY
        key = f"score.corpus={self.convert('theirs.h5')}"
        self.scored("theirs", key)
        page, text = self.page("theirs")
        self.assertIn("set tokenizer.path", text)
        self.assertEqual([row[4] for row in page.rows if len(row) == 5 and row[0].startswith("document ")], [""] * 20)
        self.scored("given", key, f"tokenizer.path={self.at('tokenizer.json')}")
        page, text = self.page("given")
        self.assertNotIn("set tokenizer.path", text)
        self.assertIn("--p:", text)

    def test_without_gnuplot_or_templates_the_scores_are_there(self):
        self.scored("plotless", env={"PATH": self.at("nowhere")})
        self.assertIn("There is no plot: there is no gnuplot", self.page("plotless")[1])
        self.assert_warning(self.scored("pageless", env={"BAGPIPE_SHARE": "/nowhere"}), "[report.file_missing]", "/nowhere/report/")
        self.assertFalse(os.path.exists(os.path.join(self.at("pageless"), "score", "index.html")))
        self.scored("with")
        for name in ("plotless", "pageless"):
            self.assert_same_bytes("with", name)

    def test_a_dedicated_coordinator_writes_it_too(self):
        self.scored("coordinated", "mesh.data=2", ranks=3)
        self.scored("alone")
        self.assert_same_bytes("alone", "coordinated")
        about = re.compile(r'<dl class="about">.*?</dl>', re.S)  # names the run and its command
        self.assertEqual(about.sub("", self.page("alone")[1]), about.sub("", self.page("coordinated")[1]))

    def test_a_page_names_its_run(self):
        """The command can be pasted, whatever its words hold."""
        self.scored("it's <b>")
        page, text = self.page("it's <b>")
        about = dict(zip(page.named("dt"), page.named("dd")))
        self.assertEqual((about["Run"], about["Model"]), ("it's <b>", self.at("model")))
        self.assertEqual(about["Corpus"], f"{self.at('labelled.h5')}, {self.at('valid.h5')}")
        self.assertEqual(shlex.split(about["Command"]), [program("bagpipe"), "score", self.at("score.ini"), f"run.dir={self.at(chr(39).join(('it', 's <b>')))}"])
        record = bagpipe_test.read_json(self.at("it's <b>"), "run.json")
        self.assertEqual(about["Command"], record["command"])
        self.assertEqual(about["Version"], record["version"])
        self.assertEqual(about["Date"], record["started"][:16].replace("T", " ") + " UTC")
        self.assertEqual(about["Parameters"], f"{bagpipe_test.read_json(self.at('model'), 'run.json')['parameters']:,}")
        self.assertIn("<title>Scores of model</title>", text)
        self.assertIn("@media print", text)


if __name__ == "__main__":
    bagpipe_test.main()
