"""Uncertainty of classifiers, of tags, of answers and of values: figures are those of what each method says of each document; texts without a class that the models know are
shifted; an ensemble of equal models is its member; the same at any number of data ranks."""
import csv
import json
import math
import os
import pathlib
import random
import re
import shutil
import signal

import bagpipe_test
import h5py
import numpy
import scipy.optimize
import scipy.stats
import sklearn.metrics
import test_finetune
from bagpipe_test import read_json, run
from test_finetune import MODEL


class UncertaintyTask(test_finetune.TaskTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("empty.ini", "[run]\nseed = 1\n[math]\nprecision = f32\n")

    def ensemble(self, name, *paths):
        os.mkdir(self.at(name))
        self.write(f"{name}/ensemble.json", json.dumps({"members": [{"name": f"m{k}", "path": path} for k, path in enumerate(paths)]}))
        return self.at(f"{name}/ensemble.json")

    def study(self, name, models, *keys, ranks=0):
        command = [bagpipe_test.program("bagpipe"), "uncertainty", f"run.dir={self.at(name)}", f"uncertainty.models={models}",
                   f"uncertainty.in_domain={self.at('valid.h5')}", "uncertainty.passes=3", "uncertainty.resamples=100", "laplace.samples=3",
                   self.at("empty.ini"), *keys]
        return run(command, ranks)

    def studied(self, name, models, *keys, ranks=0):
        result = self.study(name, models, *keys, ranks=ranks)
        self.assertEqual(result.status, 0, str(result))
        return read_json(self.at(name), "uncertainty", "summary.json")

    def outcomes(self, name, method):
        with h5py.File(pathlib.Path(self.at(name), "uncertainty", "scores", method, "score", "outcomes.h5")) as file:
            return {key: file[key][()].astype(numpy.float64) for key in file if file[key].dtype.kind == "f"}

    def test_methods_are_compared(self):
        """Figures are those of the predictions; texts without a class that the models know are shifted."""
        tuned = [self.tuned(f"study-{k}", 0, *MODEL, f"run.seed={k}", "train.steps=25") for k in range(2)]
        pair, equal = self.ensemble("pair", *tuned), self.ensemble("same", tuned[0], tuned[0])
        draw = numpy.random.default_rng(3)
        words = test_finetune.WORDS
        self.corpus("strange", [{"text": " ".join(draw.choice(words, 9)), "topic": "none"} for _ in range(20)])
        self.corpus("bare", [{"text": " ".join(draw.choice(words, 9))} for _ in range(20)])
        models = f"one={tuned[0]}, pair={pair}, same={equal}, drop={tuned[0]}:dropout, weights={tuned[0]}:dropconnect, last={tuned[0]}:laplace"
        keys = [f"uncertainty.shifted={self.at('strange.h5')},{self.at('bare.h5')}", f"corpus.valid={self.at('again.h5')}",
                f"corpus.train={self.at('train.h5')}", "uncertainty.dropconnect=0.5", "uncertainty.coverages=20, 50,100"]
        summary = self.studied("methods", models, *keys)
        scored = run([bagpipe_test.program("bagpipe"), "score", f"run.dir={self.at('alone')}", f"score.model={tuned[0]}",
                      f"score.corpus={self.at('valid.h5')}", self.at("empty.ini")])
        self.assertEqual(scored.status, 0, str(scored))
        one = read_json(self.at("alone"), "score", "summary.json")
        self.assertEqual(summary["predictions"], "documents")
        known = 30
        for method, got in summary["methods"].items():
            reported = self.outcomes("methods", method)
            self.assertTrue(numpy.isnan(reported["logprob"][known:]).all())
            self.assertFalse(numpy.isnan(reported["total_entropy"]).any())
            for figure, want in (("nll", -reported["logprob"][:known].mean()), ("accuracy", reported["correct"][:known].mean()),
                                 ("brier", reported["brier"][:known].mean())):
                self.assertAlmostEqual(got[figure], want, 7, (method, figure))
            self.assertLessEqual(got["temperature_nll"], got["temperature_nll_before"] + 1e-9)
            self.assertAlmostEqual(got["temperature_nll_before"], got["nll"], 5)
            self.assertEqual(got["temperature_tokens"], known)
            self.check_tempered(got, reported, known)
            for k, shift in enumerate(("strange", "bare")):
                for score, values in (("entropy", reported["total_entropy"]), ("confidence", -numpy.log(reported["confidence"])),
                                      ("mutual_information", reported["mutual_information"]), ("energy", -reported["log_normaliser"])):
                    scores = numpy.concatenate([values[:known], values[known + 20 * k:known + 20 * (k + 1)]])
                    auroc = sklearn.metrics.roc_auc_score([0] * known + [1] * 20, scores)
                    if method != "one" or score != "mutual_information":
                        self.assertAlmostEqual(got["ood"][shift]["auroc"][score], auroc, 6, (method, shift, score))
                self.assertEqual(set(got["ood"][shift]["auroc"]), {"mutual_information", "entropy", "confidence", "energy"})
            surest = reported["correct"][numpy.argsort(-reported["confidence"][:known], kind="stable")]
            for percent in (20, 50, 100):
                right = surest[:known * percent // 100].mean()
                low, high = (got[f"accuracy_at_{percent}_{end}"] for end in ("low", "high"))
                self.assertAlmostEqual(got[f"accuracy_at_{percent}"], right, 9, (method, percent))
                self.assertEqual(low is None, percent == 20)  # which are 6 documents
                if low is not None:
                    self.assertTrue(low <= right <= high and low < high, (method, percent))
            self.assertAlmostEqual(got["accuracy_at_100"], got["accuracy"], 12)
        self.assertAlmostEqual(summary["methods"]["one"]["nll"], one["nll_nats"] / known, 12)
        self.assertEqual(summary["methods"]["one"]["accuracy"], one["task"]["accuracy"]["value"])
        self.check_powers(summary["methods"]["one"], self.outcomes("methods", "one"))
        a, b = (self.outcomes("methods", method) for method in ("one", "same"))
        for column in ("logprob", "total_entropy", "brier", "confidence", "log_normaliser"):
            numpy.testing.assert_array_equal(a[column], b[column])
        self.assertEqual(b["mutual_information"].max(), 0)
        self.assertGreater(self.outcomes("methods", "pair")["mutual_information"].min(), 0)
        for method in ("drop", "weights", "last"):
            self.assertGreater(self.outcomes("methods", method)["mutual_information"].max(), 1e-7)
        self.assertGreater(summary["methods"]["last"]["fit_seconds"], 0)
        page = pathlib.Path(self.at("methods"), "uncertainty", "index.html").read_text(encoding="utf-8")
        for word in ("Accuracy at 50 % coverage", ">energy<"):
            self.assertIn(word, page)
        self.studied("methods-two", models.replace(f", last={tuned[0]}:laplace", ""), *keys, ranks=2)
        for method in ("one", "pair", "drop", "weights"):
            for column, values in self.outcomes("methods-two", method).items():
                numpy.testing.assert_array_equal(values, self.outcomes("methods", method)[column])
        self.studied("methods-four", f"pair={pair}", keys[0], "mesh.members=2", "mesh.tensor=2", ranks=4)
        for column, values in self.outcomes("methods-four", "pair").items():
            numpy.testing.assert_allclose(values, self.outcomes("methods", "pair")[column], atol=2e-6, rtol=2e-5)

    def check_tempered(self, got, told, known):
        """The domain has the text of corpus.valid under another name: what the fit found there is what the scores have."""
        self.assertAlmostEqual(got["nll_tempered"], got["temperature_nll"], 5)
        for figure, want in (("nll_tempered", -told["tempered_logprob"][:known].mean()), ("brier_tempered", told["tempered_brier"][:known].mean())):
            self.assertAlmostEqual(got[figure], want, 6)
            for end in ("_low", "_high"):
                self.assertTrue(math.isfinite(got[figure + end]))
        self.assertIsNone(got["ece_tempered_low"])
        self.assertGreaterEqual(got["rms_calibration_error_tempered"], 0)

    def check_powers(self, got, told):
        """Each document's distribution to the power 1/T, by numpy on the probabilities of another job."""
        with open(pathlib.Path(self.at("alone"), "score", "predictions.csv"), encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        names = [name for name in rows[0] if name.startswith("p_")]
        p = numpy.array([[float(row[name]) for name in names] for row in rows])
        target = numpy.array([names.index("p_" + row["label"]) for row in rows])
        q = p ** (1 / got["temperature"])
        q /= q.sum(1, keepdims=True)
        truth, known = numpy.eye(len(names))[target], len(rows)
        self.assertGreater(abs(numpy.log(got["temperature"])), 1e-3)
        for column, want in (("tempered_logprob", numpy.log((q * truth).sum(1))), ("tempered_confidence", q.max(1)),
                             ("tempered_brier", ((q - truth) ** 2).sum(1))):
            numpy.testing.assert_allclose(told[column][:known], want, rtol=2e-5, atol=2e-6, err_msg=column)
        right, bins, gap = q.argmax(1) == target, numpy.ceil(q.max(1) * 15).clip(1), 0
        for b in range(1, 16):
            if (bins == b).any():
                gap += (bins == b).mean() * abs(right[bins == b].mean() - q.max(1)[bins == b].mean())
        self.assertAlmostEqual(got["ece_tempered"], gap, 5)

    def check_parts(self, name, method, got, groups):
        """Figures over the parts of documents, and detection by means of documents; returns what is told."""
        told = self.outcomes(name, method)
        with h5py.File(pathlib.Path(self.at(name), "uncertainty", "scores", method, "score", "outcomes.h5")) as file:
            counts = file["predictions"][()]
        ends = counts.cumsum()
        known = ends[groups[0] - 1]
        for figure, want in (("nll", -told["logprob"][:known].mean()), ("accuracy", told["correct"][:known].mean()), ("brier", told["brier"][:known].mean())):
            self.assertAlmostEqual(got[figure], want, 6, (method, figure))
        numpy.testing.assert_allclose(told["logprob"], numpy.log(numpy.exp(told["member_logprob"]).mean(1)), atol=2e-6, rtol=1e-5)
        self.assertAlmostEqual(got["temperature_nll_before"], got["nll"], 5)
        self.assertLessEqual(got["temperature_nll"], got["temperature_nll_before"] + 1e-9)
        self.assertEqual(got["temperature_tokens"], known)
        self.check_tempered(got, told, known)
        means = numpy.array([told["total_entropy"][end - count:end].mean() for end, count in zip(ends, counts)])
        auroc = sklearn.metrics.roc_auc_score([0] * groups[0] + [1] * groups[1], means)
        self.assertAlmostEqual(got["ood"]["shift"]["auroc"]["entropy"], auroc, 6)
        return told

    def test_tags_are_compared_word_by_word(self):
        keys = [*MODEL, "task.kind=tags", f"corpus.train={self.conll('tags', self.sentences(60, 1))}", "corpus.valid=", "optimizer.lr=1e-2"]
        tuned = [self.tuned(f"tagger-{k}", 0, *keys, f"run.seed={k}", "train.steps=20") for k in range(2)]
        valid, strange = self.sentences(20, 2), [[(word, "B-moon" if tag != "O" else "O") for word, tag in words] for words in self.sentences(20, 3)]
        files = [self.conll("tags-valid", valid), self.conll("tags-strange", strange)]
        models = f"one={tuned[0]}, pair={self.ensemble('tag-pair', *tuned)}, drop={tuned[0]}:dropout, last={tuned[0]}:laplace"
        keys = [f"uncertainty.in_domain={files[0]}", f"uncertainty.shifted=shift={files[1]}", f"corpus.valid={self.conll('tags-again', valid)}", f"corpus.train={self.at('tags.h5')}"]
        summary = self.studied("tag-study", models, *keys)
        self.assertEqual(summary["predictions"], "words")
        words = sum(map(len, valid))
        for method, got in summary["methods"].items():
            told = self.check_parts("tag-study", method, got, (20, 20))
            unknown = [tag == "B-moon" for sentence in strange for _, tag in sentence]
            numpy.testing.assert_array_equal(numpy.isnan(told["logprob"][words:]), unknown)
            self.assertEqual(told["mutual_information"].max() > 1e-7, method != "one")
        scored = run([bagpipe_test.program("bagpipe"), "score", f"run.dir={self.at('tags-alone')}", f"score.model={tuned[0]}", f"score.corpus={files[0]}",
                      self.at("empty.ini")])
        self.assertEqual(scored.status, 0, str(scored))
        one = read_json(self.at("tags-alone"), "score", "summary.json")
        self.assertAlmostEqual(summary["methods"]["one"]["nll"], one["nll_nats"] / words, 6)
        self.assertIn("words of 20 documents", pathlib.Path(self.at("tag-study"), "uncertainty", "index.html").read_text(encoding="utf-8"))

    def test_answers_are_compared_end_by_end(self):
        for name, seed in (("spans", 1), ("spans-valid", 2), ("spans-shift", 3)):
            self.squad(name, 20 if seed > 1 else 60, seed)
        self.squad("spans-again", 20, 2, "again")
        keys = [*MODEL, "task.kind=spans", f"corpus.train={self.at('spans.h5')}", f"corpus.valid={self.at('spans-valid.h5')}", "task.stride=8", "optimizer.lr=1e-2", "train.batch=16"]
        tuned = [self.tuned(f"answerer-{k}", 0, *keys, f"run.seed={k}", "train.steps=20") for k in range(2)]
        models = f"one={tuned[0]}, pair={self.ensemble('span-pair', *tuned)}, same={self.ensemble('span-same', tuned[0], tuned[0])}, drop={tuned[0]}:dropout"
        keys = [f"uncertainty.in_domain={self.at('spans-valid.h5')}", f"uncertainty.shifted=shift={self.at('spans-shift.h5')}",
                f"corpus.valid={self.at('spans-again.h5')}"]
        summary = self.studied("span-study", models, *keys)
        self.assertEqual(summary["predictions"], "ends")
        last = bagpipe_test.metrics(tuned[0])[-1]
        self.assertLess(abs(last["valid_loss"] - summary["methods"]["one"]["nll"]), 0.02)  # of windows that are padded otherwise
        told = {method: self.check_parts("span-study", method, got, (20, 20)) for method, got in summary["methods"].items()}
        for column, values in told["one"].items():
            if not column.startswith(("member", "logprob_variance")):
                numpy.testing.assert_array_equal(values, told["same"][column], column)
        self.assertEqual(told["same"]["mutual_information"].max(), 0)
        for method in ("pair", "drop"):
            self.assertGreater(told[method]["mutual_information"].max(), 1e-7)
        self.assert_error(self.study("span-last", f"last={tuned[0]}:laplace", *keys, f"corpus.train={self.at('spans.h5')}"), 78, "[laplace.no_softmax]")

    def test_values_are_compared_as_gaussians(self):
        keys = [*MODEL, "task.kind=regression", "task.label=score", "task.pool=mean", "optimizer.lr=5e-3", "train.steps=20"]
        tuned = [self.tuned(f"value-{k}", 0, *keys, f"run.seed={k}") for k in range(2)]
        self.corpus("far", [{"text": " ".join(numpy.random.default_rng(k).choice(test_finetune.WORDS, 9)), "score": "1"} for k in range(20)])
        models = f"one={tuned[0]}, pair={self.ensemble('value-pair', *tuned)}, drop={tuned[0]}:dropout"
        summary = self.studied("value-study", models, f"uncertainty.shifted={self.at('far.h5')}", f"corpus.valid={self.at('again.h5')}")
        known, levels = 30, (numpy.arange(15) + 0.5) / 15
        for method, got in summary["methods"].items():
            told = self.outcomes("value-study", method)
            numpy.testing.assert_allclose(told["prediction"], told["member_prediction"].mean(1), rtol=1e-6)
            numpy.testing.assert_allclose(told["variance"], told["member_prediction"].var(1), rtol=1e-4, atol=1e-10)
            error, between = (told["label"] - told["prediction"])[:known], told["variance"][:known]

            def nll(u):
                return -scipy.stats.norm.logpdf(error, scale=numpy.sqrt(between + numpy.exp(u))).mean()

            best = min((scipy.optimize.minimize_scalar(nll, bounds=(low, low + 2), method="bounded", options={"xatol": 1e-9}) for low in range(-16, 4)),
                       key=lambda one: one.fun)
            self.assertAlmostEqual(numpy.log(got["noise_variance"]), best.x, 4)
            scale = numpy.sqrt(between + got["noise_variance"])
            within = 2 * scipy.stats.norm.cdf(abs(error) / scale) - 1
            covered = (within[:, None] <= levels).mean(0)
            order = numpy.argsort(between, kind="stable")
            risk = (numpy.cumsum((error ** 2)[order]) / numpy.arange(1, known + 1)).mean()
            for figure, want in (("nll", best.fun), ("coverage_95", (within <= 0.95).mean()), ("mae", abs(error).mean()), ("mse", (error ** 2).mean()),
                                 ("rmse", numpy.sqrt((error ** 2).mean())), ("variance", between.mean()), ("calibration_error", abs(covered - levels).mean()),
                                 ("aurc", None if method == "one" else risk)):
                self.assertEqual(got[figure] is None, want is None)
                self.assertAlmostEqual(got[figure] or 0, want or 0, 5, (method, figure))
            self.assertLess(got["mse_low"], got["mse_high"])
            numpy.testing.assert_allclose([bar["accuracy"] for bar in got["reliability"]], covered, atol=1e-12)
            auroc = sklearn.metrics.roc_auc_score([0] * known + [1] * 20, told["variance"])
            self.assertAlmostEqual(got["ood"]["far"]["auroc"]["entropy"], auroc, 6)
            self.assertEqual(got["ood"]["far"]["auroc"]["mutual_information"] is None, method == "one")
        self.assertIn("Coverage, 95 %", pathlib.Path(self.at("value-study"), "uncertainty", "index.html").read_text(encoding="utf-8"))

    def test_a_killed_study_goes_on_within_a_method(self):
        """What each method says of the documents is kept unit by unit, too."""
        tuned = [self.tuned(f"cut-{k}", 0, *MODEL, f"run.seed={k}", "train.steps=4") for k in range(2)]
        models = f"pair={self.ensemble('cut-pair', *tuned)}"
        keys = [f"uncertainty.in_domain={self.at('train.h5')}", f"corpus.valid={self.at('valid.h5')}"]
        whole = self.studied("uncut-study", models, *keys)
        os.environ["BP_FAULT"] = "work.unit_done:3=kill"
        try:
            killed = self.study("cut-study", models, *keys)
        finally:
            del os.environ["BP_FAULT"]
        self.assertEqual(killed.status, -signal.SIGKILL, str(killed))
        again = self.study("cut-study", models, *keys, ranks=2)
        self.assertEqual(again.status, 0, str(again))
        log = pathlib.Path(self.at("cut-study"), "uncertainty", "scores", "pair", "log.txt").read_text(encoding="utf-8")
        self.assertIn("going on: 3 of 5 work units are done", log)
        for column, values in self.outcomes("uncut-study", "pair").items():
            numpy.testing.assert_array_equal(values, self.outcomes("cut-study", "pair")[column], column)
        self.assertEqual(whole["methods"]["pair"]["nll"], read_json(self.at("cut-study"), "uncertainty", "summary.json")["methods"]["pair"]["nll"])

    def test_text_that_is_calibrated_on_is_other_text(self):
        """What is fitted to text in the domain is refused; text of training, or what chose a checkpoint, is warned of by the methods' names."""
        rows = [json.loads(line) for line in pathlib.Path(self.at("valid.jsonl")).read_text(encoding="utf-8").splitlines()]
        wrong = self.corpus("wrong", [dict(row, topic={"sea": "wood", "wood": "town", "town": "sea"}[row["topic"]]) for row in rows])  # gets worse
        tuned = self.tuned("chosen", 0, *MODEL, "train.steps=24", "train.valid_every=4", "checkpoint.every=4", f"corpus.valid={wrong}")
        shutil.copy(self.at("valid.h5"), self.at("copied.h5"))
        for valid, keys in (("valid", ()), ("copied", ()), ("valid", (f"uncertainty.in_domain={self.at('valid.h5')}:topic=sea",))):
            for ranks in (0, 2):
                self.assert_error(self.study("same-text", f"one={tuned}", f"corpus.valid={self.at(valid + '.h5')}", *keys, ranks=ranks), 78,
                                  "[comparison.calibrated_in_domain]", "10 documents" if keys else "30 documents", "at " + self.at(valid + ".h5"))
        self.assertFalse(os.path.exists(self.at("same-text")))
        best, both = tuned + "/checkpoints/best", self.ensemble("of-the-best", tuned + "/checkpoints/best", tuned + "/checkpoints/best")
        domain, plan = f"uncertainty.in_domain={self.at('again.h5')}", "--plan"
        self.assertNotEqual(os.readlink(best), self.newest(tuned))
        step = int(re.sub(r"\D", "", os.readlink(best)))
        costs = {name: got["train_seconds"] for name, got in self.studied("costs", f"newest={tuned}, best={best}, both={both}")["methods"].items()}
        self.assert_error(self.study("costs", f"newest={best}, best={best}, both={both}"), 78, "[run.other_keys]", "another name in uncertainty.models")
        whole = sum(line["seconds"] for line in bagpipe_test.metrics(tuned))
        for name, seconds in (("newest", whole), ("best", whole), ("both", 2 * whole)):  # the best one is known by what comes after it
            self.assertAlmostEqual(costs[name], seconds, 9, name)
        self.assertLess(sum(line["seconds"] for line in bagpipe_test.metrics(tuned) if line["step"] <= step), whole)
        warned = self.study("planned", f"newest={tuned}, best={best}, both={both}", domain, f"corpus.valid={wrong}", plan)
        self.assertEqual(warned.status, 0, str(warned))
        self.assert_warning(warned, "[comparison.calibrated_on_selection]", "checkpoint of best, both,")
        warned = self.study("planned", f"newest={tuned}, both={both}", domain, f"corpus.valid={self.at('train.h5')}", plan, ranks=2)
        self.assertEqual(warned.status, 0, str(warned))
        self.assert_warning(warned, "[comparison.calibrated_on_training]", "newest, both,")
        silent = self.study("planned", f"newest={tuned}", domain, f"corpus.valid={self.corpus('third', [{'text': 'the ship of the sea', 'topic': 'sea'}] * 8)}", plan)
        self.assertEqual((silent.status, "comparison." in silent.err), (0, False), str(silent))
        shutil.copy(self.at("train.h5"), self.at("copied-train.h5"))
        for ranks, corpora in ((0, ["copied-train.h5"]), (2, ["train.h5:topic=sea"]), (0, ["again.h5", "train.h5"])):  # whole, in part, beside others
            text = "uncertainty.in_domain=" + ", ".join(map(self.at, corpora))
            warned = self.study("planned", f"newest={tuned}, both={both}", text, f"corpus.valid={self.at('third.h5')}", plan, ranks=ranks)
            self.assertEqual(warned.status, 0, str(warned))
            self.assert_warning(warned, "[comparison.measured_on_training]", "newest, both,")
        warned = self.study("planned", f"newest={tuned}, best={best}, both={both}", f"uncertainty.in_domain={wrong}", f"corpus.valid={self.at('third.h5')}", plan)
        self.assert_warning(warned, "[comparison.measured_on_selection]", "checkpoint of best, both,")

    def limits(self, name):
        """Of the first method: accuracy of each bin, error rate at each coverage, with the ends of their error bars."""
        tables = []
        for table, key in (("reliability", "accuracy"), ("risk_coverage", "error")):
            with open(pathlib.Path(self.at(name), "uncertainty", table + ".csv"), encoding="utf-8", newline="") as file:
                rows = [row for row in csv.DictReader(file) if row.get("score", "confidence") == "confidence"]
            tables.append([[float(row[key + end] or "nan") for end in ("", "_low", "_high")] for row in rows])
        return tables

    def test_passages_of_a_source_are_resampled_together(self):
        """Copies of 14 texts, in two files: intervals over texts are those of numpy, and wider than those over copies."""
        tuned, draw = self.tuned("of-sources", 0, *MODEL, "train.steps=10"), random.Random(8)
        rows = [{"text": test_finetune.document(draw, kind, 5), "topic": draw.choice(["sea", kind]), "source": f"s{k % 14}"}
                for k, kind in enumerate((["sea", "wood", "town"] * 5)[:14])]
        copies = [row for k, row in enumerate(rows) for _ in range(1 + k % 6)]
        draw.shuffle(copies)
        corpora = [self.corpus(name, some) for name, some in (("source-a", copies[:20]), ("source-b", copies[20:]))]
        keys = [f"uncertainty.in_domain={', '.join(corpora)}", f"uncertainty.shifted={self.at('again.h5')}", f"corpus.valid={self.at('valid.h5')}",
                "uncertainty.resamples=2000"]
        alone = self.studied("sources", f"one={tuned}", *keys)
        whole_bars, whole_risks = self.limits("sources")
        got = self.studied("sources", f"one={tuned}", *keys, "uncertainty.cluster=source", ranks=2)
        self.assertEqual((alone["groups"]["in_domain"].get("clusters"), alone["groups"].get("cluster")), (None, None))
        self.assertEqual((got["groups"]["in_domain"]["clusters"], got["groups"]["cluster"]), (14, "source"))
        self.assertEqual((got["groups"]["shifted"]["again"]["clusters"], got["groups"]["shifted"]["again"]["documents"]), (30, 30))  # it has no such label
        told, n = self.outcomes("sources", "one"), len(copies)
        source = numpy.array([int(row["source"][1:]) for row in copies])
        counts = numpy.random.default_rng(2).multinomial(14, [1 / 14] * 14, size=20000)[:, source]
        covered = told["target_rank"][:n] <= told["set_size_lac"][:n]
        for figure, each, one, whole in (("nll", -told["logprob"][:n], got["methods"]["one"], alone["methods"]["one"]),
                                         ("brier_tempered", told["tempered_brier"][:n], got["methods"]["one"], alone["methods"]["one"]),
                                         ("accuracy", told["correct"][:n], got["methods"]["one"], alone["methods"]["one"]),
                                         ("size", told["set_size_lac"][:n], got["methods"]["one"]["sets"]["in_domain"]["lac"],
                                          alone["methods"]["one"]["sets"]["in_domain"]["lac"])):
            self.assertEqual(one[figure], whole[figure], figure)
            alpha = scipy.stats.norm.cdf(scipy.stats.t.ppf(0.025, 13) * math.sqrt(14 / 13))  # wider for few draws
            low, high = numpy.quantile((counts * each).sum(1) / counts.sum(1), [alpha, 1 - alpha])
            for end, want in (("_low", low), ("_high", high)):
                self.assertLess(abs(one[figure + end] - want), 0.12 * (high - low), figure + end)
            self.assertGreater(one[figure + "_high"] - one[figure + "_low"], 1.2 * (whole[figure + "_high"] - whole[figure + "_low"]), figure)
        self.assertGreater(covered.mean(), 0.5)
        bars, risks = self.limits("sources")
        for (share, low, high), count in zip(whole_bars, [bar["tokens"] for bar in alone["methods"]["one"]["reliability"]]):
            if count:
                wilson = scipy.stats.binomtest(round(share * count), count).proportion_ci(method="wilson")
                self.assertAlmostEqual(low, wilson.low, 4)
                self.assertAlmostEqual(high, wilson.high, 4)
        bins, right = numpy.ceil(told["confidence"][:n] * 15) - 1, told["correct"][:n]
        some = 0
        for b, (share, low, high) in enumerate(bars):
            units = len(set(source[bins == b]))
            self.assertEqual(math.isnan(low), units < 10, b)
            if 0 < share < 1 and units >= 10:
                alpha = scipy.stats.norm.cdf(scipy.stats.t.ppf(0.025, units - 1) * math.sqrt(units / (units - 1)))
                want = numpy.nanquantile((counts * (bins == b) * right).sum(1) / (counts * (bins == b)).sum(1), [alpha, 1 - alpha])
                self.assertLess(abs(numpy.array([low, high]) - want).max(), 0.12 * (want[1] - want[0]), b)
                some += 1
        self.assertGreater(some, 0)
        for got_risks, one in ((risks, got), (whole_risks, alone)):  # at coverage 1 it is the accuracy of the table
            for end, other in ((1, "accuracy_high"), (2, "accuracy_low")):
                self.assertAlmostEqual(got_risks[-1][end], 1 - one["methods"]["one"][other], 6)
        page = pathlib.Path(self.at("sources"), "uncertainty", "index.html").read_text(encoding="utf-8")
        for words in (f"intervals over 14 clusters of {n} documents", "interval over clusters; lower", "intervals over clusters, which are resampled"):
            self.assertIn(words, page)
        self.assertNotIn("Wilson", page[:page.index("What the figures mean")])
        self.assertIn("14 clusters", page)
        self.assert_error(self.study("no-sources", f"one={tuned}", *keys, "uncertainty.cluster=book"), 65, "[label.unknown]", "it has source topic")
        others = [{"text": test_finetune.document(draw, "sea", 5), "topic": "sea", "source": f"s{k}"} for k in (3, 5, 5, 99)]  # other passages of two
        shared = self.study("shared", f"one={tuned}", keys[0], f"corpus.valid={self.corpus('others', others)}", "uncertainty.cluster=source", "--plan")
        self.assert_warning(shared, "[comparison.shared_clusters]", "2 of 14 values of 'source'", "'s3'", "in corpus.valid too")

    def test_a_second_start_keeps_what_each_method_has(self):
        """A model by every method, an ensemble and predictions of others: another figure is asked for, and nothing is fitted or scored again."""
        tuned = self.tuned("kept", 0, *MODEL, "train.steps=15")
        unknown = self.study("unknown", f"one={tuned}:nosuch")
        self.assert_error(unknown, 78, "[comparison.unknown_method]")
        words = sorted(set(re.findall(r":([a-z]+)(?=,| or | \()", unknown.err)))
        self.assertTrue({"dropout", "dropconnect", "laplace", "mahalanobis"} <= set(words), words)
        numpy.save(self.at("kept.npy"), numpy.random.default_rng(4).dirichlet([1, 1, 1], 72))
        models = ", ".join([f"one={tuned}", f"pair={self.ensemble('kept-pair', tuned, tuned)}", f"others={self.at('kept.npy')}",
                            *(f"{word}={tuned}:{word}" for word in words)])
        long = self.corpus("long", [{"text": " ".join(test_finetune.WORDS[:1] * (16 + 2 * k)), "topic": "sea"} for k in range(12)])  # of 24 places
        keys = [f"corpus.valid={self.at('again.h5')}", f"corpus.train={self.at('train.h5')}", "uncertainty.dropconnect=0.5", f"uncertainty.shifted={long}"]
        folder = pathlib.Path(self.at("twice"), "uncertainty")
        first = self.studied("twice", models, *keys)["methods"]
        self.assertEqual(len(first), 3 + len(words))
        sets = (folder / "sets.csv").read_bytes()
        again = self.study("twice", models, *keys, "uncertainty.coverages=50", ranks=2)
        self.assertEqual(again.status, 0, str(again))
        self.assert_warning(again, "[comparison.cut_documents]", "read 24 tokens", "8 of 42 documents are longer")  # those of more than 22 words
        self.assertEqual((again.out + again.err).count("comparison.cut_documents"), 1)
        self.assertIn("read 24 tokens of a document: 8 of 42 documents are longer", (folder / "index.html").read_text(encoding="utf-8"))
        groups = read_json(folder, "summary.json")["groups"]
        self.assertEqual((groups["documents_cut"], groups["places"]), (8, 24))
        self.assertNotRegex(again.out + again.err, "fitting its|calibrating its")
        self.assertEqual((folder / "sets.csv").read_bytes(), sets)
        for method, got in read_json(folder, "summary.json")["methods"].items():
            self.assertIn("sets", got, method)
            for key in ("sets", "temperature", "temperature_nll", "nll", "nll_tempered", "fit_seconds"):
                self.assertEqual(got.get(key), first[method].get(key), (method, key))

    def test_plots_of_values_have_no_bars_over_clusters(self):
        number, draw = self.tuned("of-lengths", 0, *MODEL, "task.kind=regression", "task.label=length", "train.steps=1"), random.Random(9)
        rows = [{"text": test_finetune.document(draw, "sea", 4 + k % 9), "length": str(4 + k % 9), "source": f"s{k % 12}"} for k in range(36)]
        keys = [f"uncertainty.in_domain={self.corpus('lengths', rows)}", f"corpus.valid={self.at('valid.h5')}"]
        for more, none, words in (((), False, "(Wilson)"), (("uncertainty.cluster=source",), True, "there are no error bars")):
            self.studied("lengths-study", f"one={number}", *keys, *more)
            bars, risks = self.limits("lengths-study")
            self.assertEqual([math.isnan(low) and math.isnan(high) for _, low, high in bars], [none] * 15)
            self.assertTrue(all(math.isnan(low) for _, low, _ in risks))
            self.assertIn(words, pathlib.Path(self.at("lengths-study"), "uncertainty", "index.html").read_text(encoding="utf-8"))

    def newest(self, run_dir):
        return sorted(name for name in os.listdir(run_dir + "/checkpoints") if name.startswith("step"))[-1]

    def test_what_can_not_be_compared_is_refused(self):
        tuned = self.tuned("other-classes", 0, *MODEL, "train.steps=1")
        number = self.tuned("a-number", 0, *MODEL, "task.kind=regression", "task.label=length", "train.steps=1")
        self.corpus("moons", [{"text": "the ship", "topic": topic} for topic in ("sea", "moon")])
        keys = [f"uncertainty.in_domain={self.at('moons.h5')}"]
        for coverages in ("0", "50, 50", "101", "half", "1,2,3,4,5,6,7,8,9"):
            self.assert_error(self.study("bad-coverages", f"one={tuned}", f"uncertainty.coverages={coverages}"), 78, "[comparison.bad_coverages]")
        self.assert_error(self.study("moon-study", f"one={tuned}", *keys), 65, "[comparison.unknown_class]")
        self.assert_error(self.study("number-study", f"one={number}"), 78, "[comparison.no_noise]")
        valid = [f"corpus.{name}={self.at('train.h5')}" for name in ("valid", "train")]
        self.assert_error(self.study("number-last", f"one={number}:laplace", *valid), 78, "[laplace.no_softmax]", "a value")
        more = run([bagpipe_test.program("bagpipe"), "finetune", self.at("tune.ini"), f"run.dir={self.at('two')}", *test_finetune.TUNE, *MODEL,
                    "task.label=length", "train.steps=1"])
        self.assertEqual(more.status, 0, str(more))
        self.assert_error(self.study("two-tasks", f"one={tuned}, two={self.at('two')}"), 65, "[comparison.unlike_tasks]")


if __name__ == "__main__":
    bagpipe_test.main()
