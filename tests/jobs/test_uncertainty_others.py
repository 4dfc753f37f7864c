"""Conformal sets of a study's methods, and predictions of others among them: figures are those that numpy and scikit-learn make of the same
probabilities; what does not match the models is refused."""
import csv
import html
import json
import math
import os
import pathlib
import re
import shutil
import subprocess

import h5py
import numpy
import sklearn.metrics

import bagpipe_test
import test_finetune
from bagpipe_test import read_json, run
from test_finetune import MODEL

KINDS = ("lac", "aps", "raps")


class UncertaintyOthers(test_finetune.TaskTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("empty.ini", "[run]\nseed = 1\n[math]\nprecision = f32\n")
        cls.corpus("strange", [{"text": "the ship and the tree in a house", "topic": "none"} for _ in range(12)])
        cls.corpus("mixed", [{"text": f"the ship and the tree in {k} houses", "topic": "sea"} for k in range(12)])

    def model(self):
        if not os.path.exists(self.at("model")):
            self.tuned("model", 0, *MODEL, "train.steps=25")
        return self.at("model")

    def study(self, name, models, *keys, ranks=0, shifted="strange"):
        return run([bagpipe_test.program("bagpipe"), "uncertainty", f"run.dir={self.at(name)}", f"uncertainty.models={models}",
                    f"uncertainty.in_domain={self.at('valid.h5')}", f"uncertainty.shifted={self.at(shifted + '.h5')}", "uncertainty.resamples=100",
                    self.at("empty.ini"), *keys], ranks)

    def studied(self, name, models, *keys, ranks=0, shifted="strange"):
        result = self.study(name, models, *keys, ranks=ranks, shifted=shifted)
        self.assertEqual(result.status, 0, str(result))
        return read_json(self.at(name), "uncertainty", "summary.json")

    def outcomes(self, name, method):
        with h5py.File(pathlib.Path(self.at(name), "uncertainty", "scores", method, "score", "outcomes.h5")) as file:
            return {key: file[key][()] for key in file}

    # ---- conformal sets ----

    def test_sets_cover_the_text_that_they_were_calibrated_on(self):
        """Of the calibration corpus itself the quantile's share is covered, at least: without it the set of aps is random only at its edge."""
        model = self.model()
        keys = [f"corpus.valid={self.at('again.h5')}", "uncertainty.coverage=0.8"]
        summary = self.studied("covered", f"one={model}, drop={model}:dropout", "uncertainty.passes=3", *keys)
        n = 30
        least = math.ceil((n + 1) * 0.8)
        for method, got in summary["methods"].items():
            sets, table = got["sets"], self.outcomes("covered", method)
            self.assertEqual((sets["coverage"], sets["calibrated_on"]), (0.8, n))
            self.assertEqual(sets["in_domain"]["predictions"], n)
            rank, size = table["target_rank"][:n].astype(float), table["set_size_lac"][:n].astype(float)
            self.assertGreaterEqual((rank <= size).sum(), least)
            self.assertAlmostEqual(sets["in_domain"]["lac"]["coverage"], (rank <= size).mean(), 9)
            self.assertAlmostEqual(sets["in_domain"]["lac"]["size"], size.mean(), 9)
            q = 1 - numpy.sort(numpy.exp(table["logprob"][:n].astype(float)))[n - least]
            self.assertAlmostEqual(sets["threshold"]["lac"], q, 5)
            for kind in KINDS[1:]:
                whole, after = table[f"set_size_{kind}"][:n].astype(float), table[f"set_next_{kind}"][:n] >= 0
                self.assertLessEqual((rank <= whole).mean(), sets["in_domain"][kind]["coverage"] + 1e-9)
                self.assertGreaterEqual((rank <= whole + after).mean(), sets["in_domain"][kind]["coverage"] - 1e-9)
                self.assertLessEqual(whole.mean(), sets["in_domain"][kind]["size"] + 1e-9)
                self.assertGreaterEqual((whole + after).mean(), sets["in_domain"][kind]["size"] - 1e-9)
            names = [name.decode().rstrip("\0") for name in table["outcome_names"]]
            self.assertEqual(sorted(sets["outcomes"]), sorted(names))
            for k, name in enumerate(names):
                of = table["label"][:n] == k
                self.assertEqual(sets["outcomes"][name]["predictions"], of.sum())
                self.assertAlmostEqual(sets["outcomes"][name]["lac"]["coverage"], (rank <= size)[of].mean(), 9)
            self.assertEqual(sets["shifted"], {})  # no label of it is known
        with open(pathlib.Path(self.at("covered"), "uncertainty", "sets.csv"), encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual({row["sets"] for row in rows}, set(KINDS))
        self.assertEqual(float(rows[0]["coverage"]), summary["methods"]["one"]["sets"]["in_domain"]["lac"]["coverage"])
        page = pathlib.Path(self.at("covered"), "uncertainty", "index.html").read_text(encoding="utf-8")
        self.assertIn("Conformal sets", page)
        printed = run([bagpipe_test.program("bagpipe-data"), "table", os.path.join(self.at("covered"), "uncertainty", "scores", "one", "score", "outcomes.h5")])
        self.assertEqual(printed.status, 0, str(printed))
        rows = list(csv.DictReader(printed.out.splitlines()))
        self.assertEqual([float(row["target_rank"]) for row in rows[:n]], list(self.outcomes("covered", "one")["target_rank"][:n]))
        two = self.studied("covered-two", f"one={model}, drop={model}:dropout", "uncertainty.passes=3", *keys, ranks=2)
        for method in ("one", "drop"):
            self.assertEqual(two["methods"][method]["sets"], summary["methods"][method]["sets"])

    def test_too_few_predictions_have_sets_of_all_outcomes(self):
        keys = [f"corpus.valid={self.at('again.h5')}", "uncertainty.coverage=0.99"]
        result = self.study("few", f"one={self.model()}", *keys)
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[comparison.few_to_calibrate]")
        sets = read_json(self.at("few"), "uncertainty", "summary.json")["methods"]["one"]["sets"]
        self.assertEqual((sets["in_domain"]["lac"]["coverage"], sets["in_domain"]["aps"]["size"]), (1, 3))
        none = self.studied("none", f"one={self.model()}", keys[0], "uncertainty.coverage=0")
        self.assertNotIn("sets", none["methods"]["one"])

    # ---- predictions of others ----

    def foreign(self, members=3, rows=42, outcomes=3):
        draw = numpy.random.default_rng(8)
        return draw.dirichlet(numpy.full(outcomes, 0.5), (members, rows))

    def test_predictions_of_others_are_compared_as_ours_are(self):
        p = self.foreign()
        numpy.save(self.at("three.npy"), p.astype(numpy.float32))
        numpy.save(self.at("mean.npy"), p.mean(0))
        model = self.model()
        summary = self.studied("others", f"three={self.at('three.npy')}, one={model}, mean:{self.at('mean.npy')}")
        table, known = self.outcomes("others", "one"), 30
        label = table["label"][:known].astype(int)
        mean = p.mean(0)
        nll = -numpy.log(mean[numpy.arange(known), label])
        brier = ((mean[:known] - numpy.eye(3)[label]) ** 2).sum(1)
        entropy = -(mean * numpy.log(mean)).sum(1)
        information = entropy + (p * numpy.log(p)).sum(2).mean(0)
        for name in ("three", "mean"):
            got = summary["methods"][name]
            self.assertEqual(got["way"], "predictions")
            self.assertEqual(got["members"], 3 if name == "three" else 1)
            for figure, want in (("nll", nll.mean()), ("accuracy", (mean[:known].argmax(1) == label).mean()), ("brier", brier.mean())):
                self.assertAlmostEqual(got[figure], want, 5, (name, figure))
            self.assertAlmostEqual(got["ood"]["strange"]["auroc"]["entropy"],
                                   sklearn.metrics.roc_auc_score([0] * known + [1] * 12, entropy), 6)
            self.assertIsNone(got["train_seconds"])
        self.assertAlmostEqual(summary["methods"]["three"]["ood"]["strange"]["auroc"]["mutual_information"],
                               sklearn.metrics.roc_auc_score([0] * known + [1] * 12, information), 6)
        self.assertIsNone(summary["methods"]["mean"]["ood"]["strange"]["auroc"]["mutual_information"])
        self.assertIn("mean", summary["differences"]["one"])
        alone = self.studied("without", f"one={model}")
        self.assertEqual(alone["methods"]["one"]["nll"], summary["methods"]["one"]["nll"])

    def rows_of(self, name):
        """The cells of the first tables of a study's page: its methods."""
        page = pathlib.Path(self.at(name), "uncertainty", "index.html").read_text(encoding="utf-8")
        tables = page[page.index("<h2>Methods</h2>"):].split("</table>\n<p>")[0].split("<table")[1:]
        return [[[html.unescape(re.sub(r"<span.*?</span>|<[^>]*>", "", cell)) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in re.findall(r"<tr>.*?</tr>", table)]
                for table in tables]

    def test_methods_are_rows_where_they_are_many(self):
        numpy.save(self.at("many.npy"), self.foreign()[0])
        names = [f"t{k}" for k in range(6)]
        for count in (5, 6):
            summary = self.studied("many", f"one={self.model()}, " + ", ".join(f"{name}={self.at('many.npy')}" for name in names[:count]))
            tables = self.rows_of("many")
            if count == 5:
                (rows,) = tables
                self.assertEqual(rows[0], ["figure", "one", *names[:5]])
                figures = {row[0]: row[1:] for row in rows}
            else:
                self.assertEqual({len(rows) for rows in tables}, {8})
                for rows in tables:
                    self.assertEqual([row[0] for row in rows], ["method", "one", *names])
                figures = {head: [row[k] for row in rows[1:]] for rows in tables for k, head in enumerate(rows[0])}
            self.assertEqual(figures["ECE"], [f"{summary['methods'][name]['ece']:.4f}" for name in ["one", *names[:count]]])
            self.assertIn("Memory, MiB", figures)
        self.check_pdf(pathlib.Path(self.at("many"), "uncertainty"))

    def check_pdf(self, folder):
        """A script draws the formats that it is told, and refuses others."""
        if not shutil.which("gnuplot") or "pdfcairo" not in subprocess.run(["gnuplot", "-e", "print GPVAL_TERMINALS"], capture_output=True, text=True, check=True).stderr:
            self.skipTest("gnuplot draws no PDF here")
        script = (folder / "plots" / "reliability.gp").read_text(encoding="utf-8")
        for kind, starts in (("pdf", b"%PDF"), ("svg", b"<?xml"), ("jpeg", None)):
            (folder / "own.gp").write_text(script.replace("formats = 'svg png'", f"formats = '{kind}'").replace("output = 'plots/reliability'", "output = 'figure'"), encoding="utf-8")
            drawn = subprocess.run(["gnuplot", "own.gp"], cwd=folder, capture_output=True, text=True, check=False)
            self.assertEqual(drawn.returncode == 0, starts is not None, drawn.stderr)
            if starts:
                self.assertEqual((folder / f"figure.{kind}").read_bytes()[:len(starts)], starts)
            else:
                self.assertIn("jpeg cannot be drawn", drawn.stderr)
                self.assertFalse((folder / "figure.jpeg").exists())

    def test_studies_are_a_table_in_each_form(self):
        numpy.save(self.at("tabled.npy"), self.foreign())
        models = f"one={self.model()}, of_others={self.at('tabled.npy')}"
        summary = self.studied("tabled", models, f"corpus.valid={self.at('again.h5')}")["methods"]
        folder, nll = self.at("tabled"), summary["one"]["nll"]

        def table(*arguments):
            return run([bagpipe_test.program("bagpipe-data"), "table", *arguments])

        (one, others) = csv.DictReader(table(folder).out.splitlines())
        self.assertEqual((one["method"], one["way"], others["method"], others["members"]), ("one", "plain", "of_others", "3"))
        for row, method in ((one, summary["one"]), (others, summary["of_others"])):
            for figure in ("nll", "nll_low", "accuracy_high", "brier", "ece", "rms_calibration_error", "aurc", "accuracy_at_80"):
                self.assertEqual(float(row[figure]), method[figure], figure)
            self.assertEqual(row["ece_low"], "")
        detected = list(csv.DictReader(table(folder, folder + "/uncertainty", "--figure", "auroc").out.splitlines()))
        self.assertEqual(len(detected), 4)  # of two studies
        self.assertEqual(float(detected[1]["auroc.strange.mutual_information_low"]), summary["of_others"]["ood"]["strange"]["auroc_low"]["mutual_information"])
        self.assertEqual(detected[0]["auroc.strange.mutual_information"], "")
        asked = list(csv.DictReader(table(folder, "--figure", "temperature,sets,nll,coverage").out.splitlines()))
        names = [f"{figure}.{kind}" for kind in ("lac", "aps", "raps") for figure in ("coverage", "size")]
        self.assertEqual([key for key in asked[0] if key in ("nll", "temperature", *names)], ["temperature", *names, "nll"])
        self.assertEqual((float(asked[0]["temperature"]), asked[0]["temperature_low"]), (summary["one"]["temperature"], ""))
        self.assertEqual((asked[1]["temperature"], summary["of_others"]["temperature"]), ("", None))
        for name in names:
            figure, kind = name.split(".")
            got = summary["one"]["sets"]["in_domain"][kind]
            self.assertEqual([float(asked[0][name + end]) for end in ("", "_low", "_high")], [got[figure + end] for end in ("", "_low", "_high")])
            self.assertEqual(asked[1][name], "")
        self.assertEqual(list(csv.DictReader(table(folder, "--figure", "size").out.splitlines()))[0]["size.aps"], asked[0]["size.aps"])
        self.assertIn("size, raps", table(folder, "--form", "markdown", "--figure", "sets,sets").out)
        for form, ending, line in (("text", "txt", r"one +"), ("markdown", "md", r"\| one +\| "), ("latex", "tex", r"one +& ")):
            printed = table(folder, "--form", form)
            self.assertEqual(printed.status, 0, str(printed))
            self.assertRegex(printed.out, rf"(?m)^{line}{re.escape(f'{nll:.9f}'[:4])}\d* \[{re.escape(str(summary['one']['nll_low'])[:3])}")
            self.assertEqual(table(folder, "--out", self.at("table." + ending)).status, 0)
            self.assertEqual(pathlib.Path(self.at("table." + ending)).read_text(encoding="utf-8"), printed.out)
        self.assertIn("of\\_others", table(folder, "--form", "latex").out)
        self.assertEqual({row["study"] for row in csv.DictReader(table("mine=" + folder).out.splitlines())}, {"mine"})
        # a study is named by its run folder, however it is written, and by the whole path where names are alike
        other = self.at("elsewhere/tabled")
        shutil.copytree(folder, other)
        shutil.copytree(folder, self.at("third"))
        for ending in ("/", "/uncertainty", "/uncertainty/"):
            lines = table(folder + ending, other + ending, self.at("third") + ending, "--form", "text", "--figure", "nll").out.splitlines()
            self.assertEqual([line.split()[0] for line in lines[1::2]], [folder, other, "third"])
            self.assertEqual(table(folder + ending).out, table(folder).out)
        for arguments, status, words in (((folder, "--format", "latex"), 64, ("[command.not_understood]", "--form:")), ((folder, "--form", "xls"), 64, ("[table.bad_form]",)),
                                         ((folder + "-gone", "--form", "markdown"), 66, ("[file.missing]", "-gone")),
                                         ((folder, "--out", self.at("t.png")), 64, ("[table.bad_ending]", "uncertainty/plots")),
                                         ((folder, "--figure", "beauty"), 64, ("[table.bad_figure]", "beauty", "auroc", "temperature, ", "sets")),
                                         ((folder, "--figure", "nll,"), 64, ("[table.bad_figure]",))):
            self.assert_error(table(*arguments), status, *words)
        os.remove(folder + "/uncertainty/summary.json")
        self.assert_error(table(folder), 66, "summary.json")
        pathlib.Path(folder, "uncertainty", "summary.json").write_text("{}", encoding="utf-8")
        self.assert_error(table(folder), 65, "[table.no_study]")

    def written(self, name, header, p):
        with open(self.at(name), "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerows([[repr(float(x)) for x in row] for row in p])
        return self.at(name)

    def test_columns_of_a_csv_are_found_by_name(self):
        p = self.foreign()[0]
        numpy.save(self.at("ordered.npy"), p)
        names = ["sea", "town", "wood"]
        got = self.studied("named", f"one={self.model()}, array={self.at('ordered.npy')}, "
                           f"table={self.written('turned.csv', names[::-1], p[:, ::-1])}", ranks=2)
        table = self.outcomes("named", "one")
        self.assertEqual([name.decode().rstrip("\0") for name in table["outcome_names"]], names)
        self.assertEqual(got["methods"]["array"]["nll"], got["methods"]["table"]["nll"])
        with open(self.at("turned.csv"), "a", encoding="utf-8") as file:
            file.write("\n\r\n")  # blank lines are none
        blank = self.studied("blank", f"one={self.model()}, table={self.at('turned.csv')}")
        self.assertEqual(blank["methods"]["table"]["nll"], got["methods"]["table"]["nll"])
        # another file under the name: the study is made again
        self.written("turned.csv", names, p[:, ::-1])
        again = self.studied("named", f"one={self.model()}, array={self.at('ordered.npy')}, table={self.at('turned.csv')}")
        self.assertNotEqual(again["methods"]["table"]["nll"], got["methods"]["table"]["nll"])

    def test_a_column_doc_id_is_compared_with_the_corpora(self):
        p, names = self.foreign()[0], ["sea", "town", "wood"]
        with open(self.at("ids.csv"), "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*names[:2], "doc_id", names[2]])
            ids = [id for name in ("valid", "strange") for id in self.ids(name)]
            writer.writerows([[*map(repr, map(float, row[:2])), id, repr(float(row[2]))] for row, id in zip(p, ids)])
        numpy.save(self.at("unnamed.npy"), p)
        result = self.study("ids", f"one={self.model()}, table={self.at('ids.csv')}, array={self.at('unnamed.npy')}", ranks=2)
        self.assertEqual(result.status, 0, str(result))
        methods = read_json(self.at("ids"), "uncertainty", "summary.json")["methods"]
        self.assertEqual(methods["table"]["nll"], methods["array"]["nll"])
        # the order that is taken is written, and whether anything confirms it
        order = f"in the order of {self.at('valid.h5')}, then of {self.at('strange.h5')}: "
        lines = [line for line in (result.out + result.err).splitlines() if order in line]
        self.assertEqual([("doc_id is compared" in line, "nothing in the file confirms it" in line) for line in lines], [(True, False), (False, True)])
        rows = pathlib.Path(self.at("ids.csv")).read_text(encoding="utf-8").splitlines()
        rows[8], rows[9] = rows[9], rows[8]
        self.write("swapped.csv", "\n".join(rows))
        result = self.study("ids", f"one={self.model()}, table={self.at('swapped.csv')}", ranks=2)
        self.assert_error(result, 65, "[predictions.unlike_documents]", "row 7 of ", "swapped.csv", f"'{ids[8]}'", f"'{ids[7]}'")

    def ids(self, name):
        with h5py.File(self.at(name + ".h5")) as file:
            return [id.decode().rstrip("\0") for id in file["doc_id"][()]]

    def test_our_own_predictions_are_taken(self):
        model, lines = self.model(), []
        for name in ("valid", "mixed"):
            self.must(["bagpipe", "score", f"run.dir={self.at('own-' + name)}", f"score.model={model}", f"score.corpus={self.at(name + '.h5')}", self.at("empty.ini")])
            header, *rows = pathlib.Path(self.at("own-" + name), "score", "predictions.csv").read_text(encoding="utf-8").splitlines()
            lines += rows
        self.write("own.csv", "\n".join([header, *lines]) + "\n")
        got = self.studied("own", f"one={model}, again={self.at('own.csv')}", shifted="mixed")["methods"]
        for figure in ("nll", "accuracy", "brier", "ece", "aurc"):
            self.assertAlmostEqual(got["one"][figure], got["again"][figure], 6, figure)
        self.write("turned-own.csv", "\n".join([header, *lines[1:], lines[0]]) + "\n")
        self.assert_error(self.study("own", f"one={model}, again={self.at('turned-own.csv')}", shifted="mixed"), 65, "[predictions.unlike_documents]")

    # ---- predictions of corpus.valid after those of the study: temperature and conformal sets ----

    def labels(self, name):
        """The numbers of the documents' classes, in the models' order; -1 if the models do not know it."""
        with open(self.at(f"{name}.jsonl"), encoding="utf-8") as file:
            return numpy.array([["sea", "town", "wood", "none"].index(json.loads(line)["topic"]) for line in file])

    def test_predictions_of_corpus_valid_calibrate(self):
        """Against numpy: thresholds, coverage and sizes of the mean of the members, and the temperature of the least NLL."""
        n, known, keys = 30, 30, [f"corpus.valid={self.at('again.h5')}", "uncertainty.coverage=0.8"]
        p, label, truth = self.foreign(rows=42 + n), self.labels("again"), self.labels("valid")
        right = numpy.flatnonzero(numpy.random.default_rng(9).uniform(size=n) < 0.7)
        p[:, 42 + right] *= 1 + 4 * numpy.eye(3)[label[right]]  # so that the best temperature is not at an edge
        p /= p.sum(2, keepdims=True)
        numpy.save(self.at("tail.npy"), p)
        models = f"one={self.model()}, others={self.at('tail.npy')}"
        summary = self.studied("tail", models, *keys)
        sets, table, mean = summary["methods"]["others"]["sets"], self.outcomes("tail", "others"), p.mean(0)
        least = math.ceil((n + 1) * 0.8)
        self.assertEqual((sets["calibrated_on"], sets["coverage"]), (n, 0.8))
        of_truth = mean[42 + numpy.arange(n), label]
        threshold = numpy.sort(1 - of_truth)[least - 1]
        self.assertAlmostEqual(sets["threshold"]["lac"], threshold, 12)
        above = numpy.array([row[row > row[k]].sum() for row, k in zip(mean[42:], label, strict=True)])
        self.assertTrue(numpy.sort(above)[least - 1] <= sets["threshold"]["aps"] <= numpy.sort(above + of_truth)[least - 1])
        order = numpy.sort(mean[:42], axis=1)[:, ::-1]
        mass = numpy.cumsum(order, axis=1)
        rank = 1 + (mean[:known] > mean[numpy.arange(known), truth][:, None]).sum(1)
        numpy.testing.assert_array_equal(table["target_rank"][:known], rank)
        self.assertTrue(numpy.isnan(table["target_rank"][known:]).all())
        size = (1 - mean[:42] <= threshold).sum(1)
        numpy.testing.assert_array_equal(table["set_size_lac"], size)
        self.assertAlmostEqual(sets["in_domain"]["lac"]["coverage"], (rank <= size[:known]).mean(), 12)
        self.assertAlmostEqual(sets["in_domain"]["lac"]["size"], size[:known].mean(), 12)
        for k, name in enumerate(("sea", "town", "wood")):
            self.assertAlmostEqual(sets["outcomes"][name]["lac"]["coverage"], (rank <= size[:known])[truth == k].mean(), 12)
        free = sets["raps_rank"]
        for kind, penalty in (("aps", numpy.zeros(3)), ("raps", 0.01 * numpy.maximum(0, numpy.arange(1, 4) - free))):
            whole = (mass + penalty <= sets["threshold"][kind]).sum(1)  # sets are of outcomes of falling probability
            numpy.testing.assert_array_equal(table[f"set_size_{kind}"], whole)
            for row, w in enumerate(whole):
                after = (sets["threshold"][kind] - (mass[row][w - 1] if w else 0) - penalty[w]) / order[row][w] if w < 3 else -1
                self.assertAlmostEqual(table[f"set_next_{kind}"][row], min(1, after) if after >= 0 else -1, 5)
        betas = 1 / numpy.linspace(0.3, 3.3, 3001)
        nll = [-(beta * numpy.log(of_truth) - numpy.log((mean[42:] ** beta).sum(1))).mean() for beta in betas]
        got = summary["methods"]["others"]
        self.assertAlmostEqual(got["temperature"], 1 / betas[numpy.argmin(nll)], delta=2e-3)
        self.assertAlmostEqual(got["temperature_nll"], min(nll), 4)
        self.check_tempered(got, table, mean[:42], truth, known)
        without = self.studied("tail-no-sets", models, keys[0], "uncertainty.coverage=0")["methods"]["others"]  # the same without sets between
        self.check_tempered(without, self.outcomes("tail-no-sets", "others"), mean[:42], truth, known)
        self.assertNotIn("target_rank", self.outcomes("tail-no-sets", "others"))
        self.assertEqual(self.studied("tail-two", models, *keys, ranks=2)["methods"]["others"], summary["methods"]["others"])
        # without them there are none, also where an earlier start had them
        numpy.save(self.at("tail.npy"), p[:, :42])
        again = self.studied("tail", models, *keys)["methods"]
        self.assertNotIn("sets", again["others"])
        self.assertEqual((again["others"]["temperature"], again["others"]["nll_tempered"]), (None, None))
        for figure in ("sets", "nll_tempered"):
            self.assertEqual(again["one"][figure], summary["methods"]["one"][figure])
        numpy.save(self.at("tail.npy"), p[:, :-1])
        for ranks in (0, 2):
            self.assert_error(self.study("tail", models, *keys, ranks=ranks), 65, "[predictions.unlike_rows]", "42 predictions", "72 with those of corpus.valid")
        p[:, 42 + 3, label[3]] = 0
        numpy.save(self.at("tail.npy"), p / p.sum(2, keepdims=True))
        self.assert_error(self.study("tail", models, *keys), 65, "[predictions.zero_probability]", "row 45 of ")
        self.assertNotIn("sets", self.studied("tail", f"one={self.model()}, others={self.model()}", "uncertainty.coverage=0.8")["methods"]["others"])

    def check_tempered(self, got, table, p, truth, known):
        """Statistics of each row, and figures, of p to the power 1 / T."""
        q = p ** (1 / got["temperature"])
        q /= q.sum(1, keepdims=True)
        right = numpy.eye(3)[truth[:known]]
        logprob, brier = numpy.log((q[:known] * right).sum(1)), ((q[:known] - right) ** 2).sum(1)
        for column, want in (("tempered_logprob", logprob), ("tempered_brier", brier)):
            numpy.testing.assert_allclose(table[column][:known], want, rtol=1e-6, err_msg=column)
            self.assertTrue(numpy.isnan(table[column][known:]).all())
        numpy.testing.assert_allclose(table["tempered_confidence"], q.max(1), rtol=1e-6)
        self.assertGreater(abs(got["nll_tempered"] - got["nll"]), 1e-3)
        self.assertAlmostEqual(got["nll_tempered"], -logprob.mean(), 6)
        self.assertAlmostEqual(got["brier_tempered"], brier.mean(), 6)
        bins, correct = numpy.ceil(q[:known].max(1) * 15), q[:known].argmax(1) == truth[:known]
        self.assertAlmostEqual(got["ece_tempered"], sum((bins == b).mean() * abs((correct - q[:known].max(1))[bins == b].mean()) for b in set(bins)), 6)

    def test_predictions_have_nothing_of_a_model_that_had_their_name(self):
        numpy.save(self.at("after.npy"), self.foreign())
        valid, before = f"corpus.valid={self.at('again.h5')}", f"one={self.model()}, a={self.model()}"
        self.assertIsNotNone(self.studied("after", before, valid)["methods"]["a"]["temperature"])
        shutil.rmtree(pathlib.Path(self.at("after"), "uncertainty", "scores", "a"))  # the record still has its sets, its temperature and its costs
        got = self.studied("after", f"one={self.model()}, a={self.at('after.npy')}", valid)["methods"]["a"]
        self.assertEqual([got[key] for key in ("temperature", "temperature_nll", "nll_tempered", "score_seconds", "memory_mib")], [None] * 5)
        self.assertNotIn("sets", got)

    def test_corpus_valid_may_come_to_a_finished_study_and_go(self):
        models, valid = f"one={self.model()}, others={self.at('before.npy')}", f"corpus.valid={self.at('again.h5')}"
        numpy.save(self.at("before.npy"), self.foreign())
        without = self.studied("before", models)["methods"]
        self.assertNotIn("nll_tempered", without["one"])
        result = self.study("before", models, valid)  # nothing else is new
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[comparison.scored_before]", "method one", "tempered figures and conformal sets", "scores/one")
        got = read_json(self.at("before"), "uncertainty", "summary.json")["methods"]
        self.assertEqual((got["one"]["temperature_tokens"], "sets" in got["one"], got["others"]["temperature"]), (30, False, None))
        numpy.save(self.at("before.npy"), self.foreign(rows=72))  # predictions need no score run, and have all at once
        shutil.rmtree(pathlib.Path(self.at("before"), "uncertainty", "scores", "one"))  # as the message says
        result = self.study("before", models, valid, ranks=2)
        self.assertEqual((result.status, "scored_before" in result.err), (0, False), str(result))
        for method in read_json(self.at("before"), "uncertainty", "summary.json")["methods"].values():
            self.assertTrue(method["temperature"] and method["nll_tempered"] and method["sets"])
        numpy.save(self.at("before.npy"), self.foreign(rows=72)[:, :42])
        gone = self.studied("before", models)["methods"]["one"]
        self.assertEqual([gone.get(key) for key in ("temperature", "nll_tempered", "sets")], [None] * 3)
        self.assertEqual(gone["nll"], without["one"]["nll"])

    def test_our_own_predictions_are_calibrated_as_their_model(self):
        model, lines = self.model(), []
        for name in ("valid", "mixed", "again"):
            self.must(["bagpipe", "score", f"run.dir={self.at('tail-' + name)}", f"score.model={model}", f"score.corpus={self.at(name + '.h5')}", self.at("empty.ini")])
            header, *rows = pathlib.Path(self.at("tail-" + name), "score", "predictions.csv").read_text(encoding="utf-8").splitlines()
            lines += rows
        self.write("own-tail.csv", "\n".join([header, *lines]) + "\n")
        models = f"one={model}, again={self.at('own-tail.csv')}"
        got = self.studied("own-tail", models, f"corpus.valid={self.at('again.h5')}", shifted="mixed")["methods"]
        one, again = got["one"]["sets"], got["again"]["sets"]
        for kind in KINDS:
            self.assertAlmostEqual(one["threshold"][kind], again["threshold"][kind], 5)
            for group in ("in_domain", "shifted"):
                for a, b in zip([one[group]] if group == "in_domain" else one[group].values(), [again[group]] if group == "in_domain" else again[group].values(), strict=True):
                    self.assertAlmostEqual(a[kind]["coverage"], b[kind]["coverage"], 9)
        self.assertAlmostEqual(got["one"]["temperature"], got["again"]["temperature"], 3)
        for figure in ("nll_tempered", "brier_tempered", "ece_tempered", "rms_calibration_error_tempered"):
            self.assertAlmostEqual(got["one"][figure], got["again"][figure], 4, figure)
        lines[-1], lines[-2] = lines[-2], lines[-1]
        self.write("own-tail.csv", "\n".join([header, *lines]) + "\n")
        self.assert_error(self.study("own-tail", models, f"corpus.valid={self.at('again.h5')}", shifted="mixed"), 65, "[predictions.unlike_documents]", "again.h5", "row 70 of ")

    def test_messages_name_what_is_wrong_with_a_csv(self):
        p, names, model = self.foreign()[0], ["sea", "town", "wood"], self.model()

        def refused(name, header, rows, identifier, *words):
            path = self.at(name)
            with open(path, "w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([header, *rows])
            self.assert_error(self.study("words", f"one={model}, theirs={path}"), 78 if name.endswith(".tsv") else 65, identifier, *words)

        refused("index.csv", ["", *names], [[k, *row] for k, row in enumerate(p)], "[predictions.unlike_outcomes]", "column 1 has no name", "index=False")
        refused("label.csv", [*names, "label"], [[*row, "sea"] for row in p], "[predictions.unlike_outcomes]", "'label', column 4,")
        refused("digits.csv", names, [[0.34, 0.34, 0.33]] * 42, "[predictions.not_normalised]", "0.001", "digits")
        refused("percent.csv", names, p * 100, "[predictions.no_probability]", "percent", "100")
        refused("text.csv", names, [[*row[:2], "much"] for row in p], "[predictions.damaged]", "'much'", "column 'wood'")
        refused("theirs.tsv", names, p, "[predictions.other_ending]", ".csv", "theirs.tsv")
        self.assertFalse(os.path.exists(self.at("words")))  # all before any compute

    def test_a_true_class_of_probability_0_is_refused_by_its_row(self):
        p, model = self.foreign(), self.model()
        self.studied("zeros", f"one={model}")
        table, row = self.outcomes("zeros", "one"), numpy.arange(42)
        label = table["label"].astype(int)
        self.assertTrue((label[30:] < 0).all())
        for members, name in ((3, "all.npy"), (1, "member.npy")):
            q = p.copy()
            q[:members, 7, label[7]] = 0
            q[:, 30:, 0] = 0  # no label of theirs is known: nothing is true
            q /= q.sum(2, keepdims=True)
            numpy.save(self.at(name), q)
        self.assert_error(self.study("zeros", f"one={model}, others={self.at('all.npy')}", ranks=2), 65, "[predictions.zero_probability]", "row 7 of ", "all.npy")
        got = self.studied("zeros", f"one={model}, others={self.at('member.npy')}")
        mean = q.mean(0)[row[:30], label[:30]]
        self.assertAlmostEqual(got["methods"]["others"]["nll"], -numpy.log(mean).mean(), 5)

    def test_what_does_not_match_is_refused(self):
        p, names = self.foreign()[0], ["sea", "town", "wood"]

        def refused(file, identifier, status=65):
            result = self.study("refused", f"one={self.model()}, others={self.at(file)}, two={self.model()}", ranks=refused.ranks)
            refused.ranks = 0
            self.assert_error(result, status, identifier)

        refused.ranks = 2
        bad = p.copy()
        bad[3] *= 1.1
        for name, rows, identifier in (("short", p[:-1], "[predictions.unlike_rows]"), ("wide", numpy.hstack([p, 0 * p[:, :1]]), "[predictions.unlike_outcomes]"),
                                       ("sum", bad, "[predictions.not_normalised]"), ("nan", numpy.where(p == p[7, 1], numpy.nan, p), "[predictions.no_probability]"),
                                       ("logits", numpy.log(p), "[predictions.no_probability]"), ("flat", p[0], "[predictions.damaged]"),
                                       ("whole", (p > 0.5).astype(int), "[predictions.damaged]"), ("fortran", numpy.asfortranarray(p), "[predictions.damaged]")):
            numpy.save(self.at(f"{name}.npy"), rows)
            refused(f"{name}.npy", identifier)
        self.assertTrue(os.path.exists(pathlib.Path(self.at("refused"), "uncertainty", "scores", "one", "run.json")))
        self.assertFalse(os.path.exists(pathlib.Path(self.at("refused"), "uncertainty", "scores", "two")))  # said before hours of work
        data = pathlib.Path(self.at("short.npy")).read_bytes()
        for cut in (5, 11, 60, len(data) - 1):
            pathlib.Path(self.at("cut.npy")).write_bytes(data[:cut])
            refused("cut.npy", "[predictions.damaged]")
        for name, header, rows, identifier in (("unknown", ["sea", "town", "moon"], p, "[predictions.unlike_outcomes]"),
                                               ("twice", ["sea", "sea", "wood"], p, "[predictions.unlike_outcomes]"),
                                               ("missing", ["sea", "town"], p[:, :2] / p[:, :2].sum(1, keepdims=True), "[predictions.unlike_outcomes]"),
                                               ("ragged", names, [*p[:5], p[5][:2]], "[predictions.damaged]")):
            self.written(f"{name}.csv", header, rows)
            refused(f"{name}.csv", identifier)
        number = self.tuned("a-number", 0, *MODEL, "task.kind=regression", "task.label=length", "train.steps=1")
        self.assert_error(self.study("numbers", f"one={number}, others={self.at('short.npy')}", f"corpus.valid={self.at('again.h5')}"), 78,
                          "[predictions.no_outcomes]")
        self.assert_error(self.study("only", f"others={self.at('short.npy')}"), 78, "[predictions.no_model]")
        self.assert_error(self.study("gone", f"one={self.model()}, others={self.at('gone.npy')}"), 66, "[")
        self.assertFalse(os.path.exists(pathlib.Path(self.at("refused"), "uncertainty", "summary.json")))
        numpy.save(self.at("wide.npy"), numpy.hstack([p, 0 * p[:, :1]]))  # of .npy the number of outcomes is compared before anything is made
        self.assert_error(self.study("wide-only", f"one={self.model()}, others={self.at('wide.npy')}"), 65, "[predictions.unlike_outcomes]")
        self.assertFalse(os.path.exists(self.at("wide-only")))

    def test_predictions_do_not_take_the_name_of_a_scored_model(self):
        numpy.save(self.at("taking.npy"), self.foreign().mean(0))
        before = self.studied("taken", f"a={self.model()}")
        table = pathlib.Path(self.at("taken"), "uncertainty", "scores", "a", "score", "outcomes.h5")
        scored = table.read_bytes()
        for ranks in (0, 2):
            self.assert_error(self.study("taken", f"b={self.model()}, a={self.at('taking.npy')}", ranks=ranks), 78, "[predictions.name_taken]", "a")
        self.assertEqual(table.read_bytes(), scored)
        self.assertEqual(self.studied("taken", f"a={self.model()}"), before)
        # the other way round there is no score run under the name yet
        self.studied("given", f"b={self.model()}, a={self.at('taking.npy')}")
        got, want = (summary["methods"]["a"] for summary in (self.studied("given", f"b={self.model()}, a={self.model()}"), before))
        self.assertEqual((got["way"], got["nll"], got["brier"]), (want["way"], want["nll"], want["brier"]))


if __name__ == "__main__":
    bagpipe_test.main()
