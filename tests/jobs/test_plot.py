"""bagpipe plot and bagpipe-data table: trainings over one another, and side by side."""
import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import xml.etree.ElementTree

import bagpipe_test
from bagpipe_test import JobTest, Result, TIMEOUT, environment, metrics, program, read_json, run
from page_test import Page

class Plot(JobTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.gnuplot = shutil.which("gnuplot") is not None
        for name, keys in (("first", ["train.valid_every=5"]), ("second", ["train.steps=12", "optimizer.lr=1e-3", "run.seed=7"])):
            cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.at(name)}"] + keys)

    def plot(self, *words, status=0, env=None, cwd=None):
        process = subprocess.run([program("bagpipe"), "plot"] + list(words), env=dict(environment(), **(env or {})), cwd=cwd or self.folder,
                                 capture_output=True, timeout=TIMEOUT, check=False)
        result = Result(process.returncode, process.stdout.decode(), process.stderr.decode())
        self.assertEqual(result.status, status, str(result))
        return result

    def page(self, path):
        with open(self.at(path), encoding="utf-8") as file:
            text = file.read()
        page = Page(text)
        self.assertEqual(page.stack, [])
        self.assertEqual(len(page.ids), len(set(page.ids)))
        for link in page.links:  # it needs no other file and no network
            self.assertTrue(link.startswith("#") and link[1:] in page.ids, link)
        self.assertEqual(text.count("<svg"), 3 if self.gnuplot else 0)
        return page, text

    @staticmethod
    def points(text):
        """What the script of a page shows: rows of each curve, of training and of validations."""
        data = json.loads(re.search(r'<script type="application/json" id="points">(.*?)</script>', text, re.S)[1])
        return [[[[float(value) for value in line.split(",")] for line in block.split("\n") if line] for block in data[key].split("\n\n\n") if block]
                for key in ("train", "valid")]

    # ---- pages ----

    def test_a_training_leaves_its_page(self):
        page, text = self.page("first/index.html")
        lines = metrics(self.at("first"))
        row = page.rows[1]
        self.assertEqual(row[:4], ["first", "finished", "20", "20"])
        self.assertEqual(row[6], f"{lines[-1]['loss']:.4f}")
        best = min((line for line in lines if "valid_loss" in line), key=lambda line: line["valid_loss"])
        self.assertEqual(row[7:9], [f"{best['valid_loss']:.4f}", str(best["step"])])
        self.assertNotIn("Keys that differ", text)
        self.assertIn("<dd>Mean negative log-likelihood of a token, in nats, over the batch", text)
        self.assertNotRegex(text, "label_smoothing|an ensemble|These runs differ")
        if self.gnuplot:
            (train,), (valid,) = self.points(text)
            self.assertEqual([row[0] for row in train], [line["step"] for line in lines])
            for row, line in zip(train, lines):
                self.assertAlmostEqual(row[3], line["loss"], 4)
            self.assertEqual([(row[0], round(row[3], 3)) for row in valid],
                             [(line["step"], round(line["valid_loss"], 3)) for line in lines if "valid_loss" in line])
            for x in ("steps", "tokens", "hours"):
                self.assertIn(f'id="x-{x}"', text)
            self.assertEqual(text.count(" checked>"), 1)
            self.assertIn("validation loss", "".join(page.text))

    def test_names_of_any_bytes(self):
        """Each run has its own curve and name, and nothing that a terminal would act on is printed."""
        names = {b"caf\xe9": "caf\\xE9", b"esc\x1b[31m": "esc\\x1B[31m", b"\xff\xfe": "\\xFF\\xFE"}
        folder = os.fsencode(self.at("bytes"))
        os.makedirs(folder, exist_ok=True)
        for k, name in enumerate(names):
            shutil.copytree(os.fsencode(self.at("second" if k == 2 else "first")), os.path.join(folder, name), symlinks=True)
        run_folders = [os.path.join(folder, name) for name in names]

        def call(*words):
            process = subprocess.run([os.fsencode(word) for word in words], env=environment(), capture_output=True, timeout=TIMEOUT, check=False)
            self.assertEqual(process.returncode, 0, process)
            for text in (process.stdout, process.stderr):
                self.assertNotIn(b"\x1b", text)
                text.decode()
            return process.stdout.decode()

        call(program("bagpipe"), "plot", "--out", self.at("bytes.html"), *run_folders)
        page, text = self.page("bytes.html")
        self.assertEqual([row[0] for row in page.rows[1:4]], list(names.values()))
        self.assertEqual([row[2] for row in page.rows[1:4]], ["20", "20", "12"])
        self.assertNotIn("\x1b", text)
        if self.gnuplot:
            for name in names.values():
                self.assertIn(name, "".join(page.text))
            call(program("bagpipe"), "plot", "--out", self.at("bytes.svg"), *run_folders)
        shown = call(program("bagpipe"), "status", *run_folders)
        found = json.loads(call(program("bagpipe"), "status", "--json", *run_folders))
        for name, one in zip(names.values(), found):
            self.assertIn(name + ": pretrain, finished", shown)
            self.assertTrue(one["run"].replace("\x1b", "\\x1B").endswith(name), one)
            self.assertEqual(one["state"], "finished")
        for tool in ("inspect", "verify"):
            for path in run_folders:
                call(program("bagpipe-data"), tool, os.path.join(path, b"checkpoints", b"best"))
                call(program("bagpipe-data"), tool, path)
        call(program("bagpipe-data"), "table", *run_folders)
        call(program("bagpipe"), "plot", run_folders[0])

    def test_a_finished_run_that_starts_again_leaves_it_alone(self):
        shutil.copytree(self.at("second"), self.at("again"), symlinks=True)
        page = self.at("again/index.html")
        with open(page, "w", encoding="ascii") as file:
            file.write("mine")
        self.trained("again", 0, "train.steps=12", "optimizer.lr=1e-3", "run.seed=7")
        self.assertEqual(os.path.getsize(page), 4)
        os.remove(page)  # one that is gone is made again: fault.lost_results
        self.trained("again", 0, "train.steps=14", "optimizer.lr=1e-3", "run.seed=7")
        self.assertTrue(os.path.exists(self.at("again/index.html")))

    def test_runs_of_other_seeds_have_a_mean(self):
        """Of runs that differ only in run.seed; with another difference there is none."""
        for seed in (3, 4):
            self.trained(f"seed{seed}", 0, "train.steps=12", "optimizer.lr=1e-3", f"run.seed={seed}")
        runs = ["second", "seed3", "seed4"]
        self.plot(*runs, "--out", "seeds.html")
        page, text = self.page("seeds.html")
        self.assertEqual([row[0] for row in page.rows[1:5]], [*runs, "mean"])
        self.assertEqual(page.named("h1"), ["Trainings of second, seed3 and seed4"])
        self.assertIn("These runs differ only in <code>run.seed</code>", text)
        lines = [metrics(self.at(run)) for run in runs]
        self.assertEqual(page.rows[4][6], f"{sum(line[-1]['loss'] for line in lines) / 3:.4f}")
        if self.gnuplot:
            *_, mean = self.points(text)[0]
            for row, *losses in zip(mean, *[[line["loss"] for line in one] for one in lines], strict=True):
                for got, want in zip(row[3:6], (sum(losses) / 3, min(losses), max(losses))):
                    self.assertAlmostEqual(got, want, 4)
        self.plot(*runs, "first", "--out", "other.html")
        self.assertNotIn("mean", [row[0] for row in self.page("other.html")[0].rows])

    def test_an_ensemble_shows_its_members_and_their_mean(self):
        result = run([program("bagpipe"), "ensemble", self.at("small.ini"), f"run.dir={self.at('members')}", "ensemble.members=2",
                      "train.steps=6"])
        self.assertEqual(result.status, 0, str(result))
        page, text = self.page("members/index.html")
        self.assertEqual([row[0] for row in page.rows[1:]], ["members, m00", "members, m01", "members, mean"])
        self.assertEqual(page.rows[3][6], f"{metrics(self.at('members'))[-1]['loss_mean']:.4f}")
        about = dict(zip(page.named("dt"), page.named("dd")))
        self.assertEqual(about["Parameters of each member"], f"{bagpipe_test.read_json(self.at('members'), 'members', 'm00', 'run.json')['parameters']:,}")
        self.assertNotIn("Parameters", about)
        self.plot("first", "members", "--out", "with.html")
        page, _ = self.page("with.html")
        differ = {row[0] for row in page.rows[page.rows.index(["key", "first", "members"]) + 1:]}
        self.assertTrue({"train.steps", "ensemble.members", "corpus.resample"} <= differ, differ)
        self.assertFalse([key for key in differ if key.startswith(("task.", "sngp.", "dirichlet."))])  # no member has them
        self.assertEqual(page.named("dt")[:4], ["Version", "Date", "first", "members"])  # each with its command
        self.assertIn("bagpipe ensemble", page.named("dd")[3])
        if self.gnuplot:  # the band of the mean spans the members
            first, second, mean = self.points(text)[0]
            for one, other, row in zip(first, second, mean, strict=True):
                self.assertEqual(row[4:6], [min(one[3], other[3]), max(one[3], other[3])])

    def test_runs_are_plotted_over_one_another(self):
        out = self.plot("first", "second").out
        self.assertEqual(out, "wrote plot.html\n")
        page, text = self.page("plot.html")
        self.assertEqual([row[0] for row in page.rows[1:3]], ["first", "second"])
        keys = {row[0]: row[1:] for row in page.rows[4:]}
        self.assertEqual(keys, {"run.seed": ["1", "7"], "train.steps": ["20", "12"], "train.valid_every": ["5", "0"],
                                "optimizer.lr": ["0.003", "0.001"]})
        self.assertNotIn("<td>run.dir</td>", text)
        records = [read_json(self.at(name), "run.json") for name in ("first", "second")]
        about = dict(zip(page.named("dt"), page.named("dd"), strict=True))
        begun = [record["started"][:16].replace("T", " ") for record in records]
        self.assertEqual(about["Version"], records[0]["version"])
        self.assertEqual(about["Date"], f"{begun[0]} to {begun[1]} UTC" if begun[0] < begun[1] else f"{begun[0]} UTC")
        self.assertEqual([about["first"], about["second"]], [record["command"] for record in records])

    def test_of_many_runs_the_keys_are_columns(self):
        """More than six runs do not fit side by side; their commands are below the figures."""
        names = [f"sweep/{k}" for k in range(7)]
        for k, name in enumerate(names):
            shutil.copytree(self.at("second"), self.at(name))
            with open(self.at(name + "/config.ini"), encoding="utf-8") as file:
                config = file.read()
            self.write(name + "/config.ini", config.replace("lr = 0.001", f"lr = 0.00{k + 1}"))
        for count, rows in ((6, [["optimizer.lr", *(f"0.00{k + 1}" for k in range(6))]]), (7, [[str(k), f"0.00{k + 1}"] for k in range(7)])):
            page, text = self.page_of(*names[:count])
            self.assertEqual([row[0] for row in page.rows[1:count + 1]], [str(k) for k in range(count)])
            self.assertEqual(page.rows[count + 2:], rows)
            self.assertEqual(page.rows[count + 1][0], "run" if count > 6 else "key")
            self.assertLess(text.index("<h2>Keys that differ"), text.index("<h2>Commands"))
            self.assertEqual(text.partition("<h2>Commands")[2].partition("<h2>")[0].count("<code>"), count)

    def test_names_are_escaped_and_distinct(self):
        for name in ("a/<b> & 'c'", "d/<b> & 'c'"):
            shutil.copytree(self.at("second"), self.at(name))
        page, text = self.page_of("a/<b> & 'c'", "d/<b> & 'c'/")
        self.assertEqual([row[0] for row in page.rows[1:3]], ["a/<b> & 'c'", "d/<b> & 'c'/"])
        self.assertNotIn("<b>", text)

    def page_of(self, *runs):
        self.plot(*runs, "--out", "some.html")
        return self.page("some.html")

    def test_one_run_is_named_by_its_folder_from_wherever(self):
        out = self.plot(".", cwd=self.at("second")).out
        self.assertEqual(out, "wrote ./index.html\n")
        self.assertEqual(self.page("second/index.html")[0].rows[1][0], "second")

    def test_a_run_at_work_is_plotted_and_not_touched(self):
        process = self.background([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('work')}",
                                   "train.steps=1000000"])
        self.until(lambda: self.trains("work"), process)
        process.send_signal(signal.SIGSTOP)  # it is in the midst of something
        page, _ = self.page_of("work")
        self.assertEqual(page.rows[1][1], "running")
        self.assertFalse(os.path.exists(self.at("work/index.html")))
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertEqual(self.page_of("work")[0].rows[1][1], "dead")

    def test_half_a_line_lost_steps_and_many_lines(self):
        shutil.copytree(self.at("second"), self.at("long"))
        with open(self.at("long/metrics.jsonl"), "w", encoding="utf-8") as file:
            for step in range(1, 5001):
                line = {"step": step, "tokens": 10 * step, "loss": None if step % 7 == 0 else 2 + 8 / step, "lr": 1e-3, "grad_norm": 1.0,
                        "seconds": 1.0, "tokens_per_second": 10.0}
                file.write(json.dumps(line) + "\n")
            file.write('{"step": 5001, "lo')
        page, text = self.page_of("long", "second")
        self.assertEqual(page.rows[1][2], "5,000")
        self.assertIn("400 points", text)
        self.assertLess(len(text), 1_000_000)

    def test_without_gnuplot_the_tables_are_there(self):
        self.plot("first", "--out", "tables.html", env={"PATH": self.at("nowhere")})
        with open(self.at("tables.html"), encoding="utf-8") as file:
            text = file.read()
        self.assertNotIn("<svg", text)
        self.assertEqual(Page(text).rows[1][0], "first")
        self.plot("first", "--out", "none.svg", status=66, env={"PATH": self.at("nowhere")})
        self.assertFalse(os.path.exists(self.at("none.svg")))

    def test_a_training_without_templates_or_gnuplot_is_trained(self):
        for name, env, *words in (("untold", {"BAGPIPE_SHARE": "/nowhere"}, "[report.file_missing]", "/nowhere/report/pages/training.html"),
                                  ("undrawn", {"PATH": self.at("nowhere")})):
            process = self.background([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at(name)}", "train.steps=2"],
                                      env=env)
            process.wait(TIMEOUT)
            self.assertEqual(process.returncode, 0, str(process.result()))
            if words:
                self.assert_warning(process.result(), *words)
            self.assertEqual(os.path.exists(self.at(name + "/index.html")), name == "undrawn")

    # ---- pictures ----

    def test_pictures_have_their_axis(self):
        if not self.gnuplot:
            self.skipTest("there is no gnuplot")
        pictures = []
        for x in ("steps", "tokens", "hours"):
            self.plot("first", "second", "--out", f"{x}.svg", "--x", x)
            tree = xml.etree.ElementTree.parse(self.at(f"{x}.svg"))
            pictures.append(" ".join(tree.getroot().itertext()))
        for words, label in zip(pictures, ("steps", "tokens", "seconds")):  # it took some
            self.assertIn(label, words)
            for name in ("first", "second", "loss, nats a token", "validation loss", "learning rate", "gradient norm", "tokens/s"):
                self.assertIn(name, words)
        self.plot("first", "--out=one.png")
        with open(self.at("one.png"), "rb") as file:
            self.assertEqual(file.read(8), b"\x89PNG\r\n\x1a\n")

    # ---- what is refused ----

    def test_what_is_no_training_is_refused(self):
        os.mkdir(self.at("folder"))
        shutil.copytree(self.at("second"), self.at("begun"))
        self.write("begun/metrics.jsonl", "")
        for status, words, *said in ((64, ["first", "--out", "x.pdf"], "[command.bad_ending]", "x.pdf"), (64, ["first", "--x", "days"], "[command.bad_axis]", "days"),
                                     (64, ["first", "--x", "hours"], "[command.bad_axis]"), (64, ["first", "--colour"], "[command.not_understood]"),
                                     (66, ["nothing"], "[run.missing]", "nothing"), (65, ["folder"], "[run.no_record]"),
                                     (65, ["train.h5"], "[run.no_record]", "train.h5"), (65, ["begun"], "[run.no_steps]"),
                                     (73, ["first", "--out", "no/such/folder.html"], "[file.no_folder]", "no/such")):
            with self.subTest(words=words):
                result = self.plot(*words, status=status)
                self.assert_error(result, status, *said)
                self.assertEqual(len(result.err.splitlines()), 1, str(result))
        self.assert_error(self.plot(status=64), 64, "[command.no_run]")  # after the help
        self.assertIn("Usage: bagpipe plot", self.plot("--help").out)

    # ---- tables ----

    def table(self, *words, status=0):
        result = run([program("bagpipe-data"), "table"] + list(words), cwd=self.folder)
        self.assertEqual(result.status, status, str(result))
        return list(csv.DictReader(io.StringIO(result.out))), result

    def test_runs_stand_side_by_side_the_best_first(self):
        for name, lines in (("t1", [(1, 3.0, 5.0), (2, 2.0, 4.0), (3, 1.0, 4.5)]), ("t2", [(1, 9.0, 3.0)]), ("t3", [(1, 0.5, None)]),
                            ("t4", [(1, 0.25, None)]), ("t5", [(1, None, None)])):
            shutil.copytree(self.at("second"), self.at(name))
            with open(self.at(name + "/metrics.jsonl"), "w", encoding="utf-8") as file:
                for step, loss, valid in lines:
                    line = {"step": step, "tokens": 9 * step, "loss": loss, "seconds": 36, "tokens_per_second": 10 * step}
                    file.write(json.dumps(line if valid is None else dict(line, valid_loss=valid)) + "\n")
        with open(self.at("t3/config.ini"), encoding="utf-8") as file:
            text = file.read()
        self.write("t3/config.ini", text.replace("lr = 0.001", "lr = 0.5"))
        self.write("stray.txt", "no run")
        rows, result = self.table("t5", "t3", "t1", "stray.txt", "t4", "t2")
        self.assertEqual([row["run"] for row in rows], ["t2", "t1", "t4", "t3", "t5"])
        self.assert_warning(result, "[run.missing]")
        self.assertEqual(list(rows[0]), ["run", "state", "step", "tokens", "hours", "loss", "best_valid_loss", "best_step",
                                         "tokens_per_second", "optimizer.lr"])
        self.assertEqual(list(rows[1].values()), ["t1", "finished", "3", "27", "0.03", "1", "4", "2", "20", "0.001"])
        self.assertEqual([row["optimizer.lr"] for row in rows], ["0.001", "0.001", "0.001", "0.5", "0.001"])
        self.assertEqual(rows[4]["loss"], "")
        rows, _ = self.table("--head", "1", "t3", "t1")
        self.assertEqual([row["run"] for row in rows], ["t1"])
        self.assertIn("optimizer.lr", rows[0])  # it differs from a run that is not shown

    def test_table_of_what_is_no_run_is_refused(self):
        os.makedirs(self.at("no run"), exist_ok=True)
        self.assert_error(self.table("no run", status=65)[1], 65, "[run.no_record]")
        self.assert_error(self.table("no run", "train.txt", status=65)[1], 65, "[run.no_training]")


if __name__ == "__main__":
    bagpipe_test.main()
