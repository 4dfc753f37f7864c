"""Uncertainty of methods side by side: every figure again by numpy and scikit-learn, and the files that show them."""
import math
import os
import shutil
import subprocess
import xml.etree.ElementTree

import bagpipe_test
from bagpipe_test import TIMEOUT, environment, metrics, program, run
from page_test import Page
from uncertainty_test import FIGURES, METHODS, WITHOUT_INTERVAL, UncertaintyTest, h5py, numpy, sklearn

if sklearn is not None:
    import scipy.stats
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

SCORES = {"mutual_information": "mutual_information", "entropy": "total_entropy", "nll": "nll"}


def mean_of_ties(key, value):
    """`value` in ascending order of `key`, where tokens of equal key all have their group's mean."""
    order = numpy.argsort(key, kind="stable")
    key, value = key[order], value[order].astype(numpy.float64)
    _, group = numpy.unique(key, return_inverse=True)
    return (numpy.bincount(group, weights=value) / numpy.bincount(group))[group]


def ece(confidence, correct, bins=15):
    edges = numpy.floor(numpy.ceil(confidence.astype(numpy.float64) * bins) - 1).clip(0)
    total = 0.0
    for b in range(bins):
        here = edges == b
        if here.any():
            total += here.mean() * abs(correct[here].mean() - confidence[here].astype(numpy.float64).mean())
    return total


def ece_adaptive(confidence, correct, bins=15):
    right = mean_of_ties(confidence, correct)
    sure = numpy.sort(confidence).astype(numpy.float64)
    n = len(sure)
    cuts = [b * n // bins for b in range(bins + 1)]
    return sum(abs(right[a:b].sum() - sure[a:b].sum()) for a, b in zip(cuts[:-1], cuts[1:])) / n


class Gaps:
    """Of documents: (accuracy - confidence) of each bin times the root of its share of the tokens, and what noise adds to their squares."""

    def __init__(self, owner, confidence, correct, bins=15):
        documents, owner = numpy.unique(owner, return_inverse=True)
        self.n = len(documents)
        bin_of = numpy.clip(numpy.ceil(confidence.astype(numpy.float64) * bins) - 1, 0, None).astype(int)
        shape, place = (self.n, bins), owner * bins + bin_of
        self.tokens = numpy.bincount(place, minlength=self.n * bins).reshape(shape).astype(float)
        self.sums = numpy.bincount(place, weights=correct - confidence.astype(numpy.float64), minlength=self.n * bins).reshape(shape)
        total, ratio = self.tokens.sum(0), self.sums.sum(0) / numpy.maximum(self.tokens.sum(0), 1)
        present = (self.tokens > 0).sum(0)
        rest = ((self.sums - ratio * self.tokens) ** 2).sum(0)
        variance = numpy.where(present > 1, rest / numpy.maximum(total, 1) ** 2 * present / numpy.maximum(present - 1, 1), ratio ** 2)
        self.noise = (total / total.sum() * variance).sum()
        self.gaps = self.of(numpy.ones(self.n))

    def of(self, counts):
        tokens, sums = counts @ self.tokens, counts @ self.sums
        return sums / numpy.sqrt(numpy.maximum(tokens, 1) * tokens.sum())

    def squared(self):
        return (self.gaps ** 2).sum() - self.noise

    def resampled(self, counts):
        widen = scipy.stats.t.ppf(0.975, self.n - 1) / scipy.stats.norm.ppf(0.975) * math.sqrt(self.n / (self.n - 1))
        return ((self.gaps + widen * (self.of(counts) - self.gaps)) ** 2).sum() - 2 * self.noise


def risks(uncertain, wrong):
    """Risk of the k most certain tokens for k = 1 .. N."""
    return numpy.cumsum(mean_of_ties(uncertain, wrong)) / numpy.arange(1, len(wrong) + 1)


def fpr95(labels, scores):
    fpr, tpr, _ = roc_curve(labels, scores, drop_intermediate=False)
    return fpr[tpr >= 0.95].min()


class Scores:
    """What a method said of each token and document, from its score folder."""

    def __init__(self, folder):
        self.tokens = {}
        with h5py.File(os.path.join(folder, "tokens.h5")) as file:
            scored = ~numpy.isnan(file["logprob"][:])
            self.members = file["member_logprob"].shape[1]
            for name in ("logprob", "confidence", "correct", "brier", "total_entropy", "mutual_information", "tempered_logprob", "tempered_confidence",
                         "tempered_brier"):
                self.tokens[name] = file[name][:][scored]
        self.tokens["nll"] = -self.tokens["logprob"]
        with h5py.File(os.path.join(folder, "documents.h5")) as file:
            self.counts = file["tokens"][:]
        self.owner = numpy.repeat(numpy.arange(len(self.counts)), self.counts)

    def means(self, name):
        sums = numpy.bincount(self.owner, weights=self.tokens[name].astype(numpy.float64), minlength=len(self.counts))
        with numpy.errstate(invalid="ignore"):
            return sums / self.counts

    def figures(self, documents):
        """Figures of the tokens of some documents, which may repeat."""
        start = numpy.concatenate([[0], numpy.cumsum(self.counts)])
        at = numpy.concatenate([numpy.arange(start[d], start[d + 1]) for d in documents])
        t = {name: values[at] for name, values in self.tokens.items()}
        correct = t["correct"].astype(numpy.float64)
        squared, tempered = (Gaps(self.owner[at], t[name], correct).squared() for name in ("confidence", "tempered_confidence"))
        risk = risks(-t["confidence"], 1 - correct)
        wrong, places = numpy.concatenate([[0], risk * numpy.arange(1, len(risk) + 1)]), numpy.array([0.5, 0.8, 0.9]) * len(risk)
        surest = 1 - numpy.interp(places, numpy.arange(len(wrong)), wrong) / places
        return {"nll": t["nll"].astype(numpy.float64).mean(), "accuracy": correct.mean(),
                "brier": t["brier"].astype(numpy.float64).mean(), "ece": ece(t["confidence"], correct),
                "ece_adaptive": ece_adaptive(t["confidence"], correct), "squared_calibration_error": squared,
                "nll_tempered": -t["tempered_logprob"].astype(numpy.float64).mean(), "brier_tempered": t["tempered_brier"].astype(numpy.float64).mean(),
                "ece_tempered": ece(t["tempered_confidence"], correct), "squared_calibration_error_tempered": tempered,
                "aurc": risk.mean(), **{f"accuracy_at_{p}": value for p, value in zip((50, 80, 90), surest)}}, t


class Uncertainty(UncertaintyTest):
    def groups(self, counts):
        """Documents of each group that have scored tokens: the labelled corpus comes first."""
        with h5py.File(self.at("labelled.h5")) as file:
            names = [v.decode() for v in file["label_names/genre"][:]]
            genre = [names[code] for code in file["labels/genre"][:]]
        n = len(genre)
        of = lambda wanted: [d for d in range(n) if genre[d] == wanted]
        other = list(range(n, len(counts)))
        groups = {"in_domain": of("news"), "backward <b>": of("backward <b>"), "other": other, "both": of("noise") + other}
        return {name: numpy.array([d for d in documents if counts[d] > 0]) for name, documents in groups.items()}

    @classmethod
    def whole(cls):
        """One study of all methods, for all tests that only look."""
        if not hasattr(cls, "whole_result"):
            cls.whole_result = run([program("bagpipe"), "uncertainty", cls.at("study.ini"), f"run.dir={cls.at('whole')}"])
            if cls.whole_result.status != 0:
                raise AssertionError(str(cls.whole_result))
        return "whole"

    def scores(self, name, method):
        return Scores(self.file(name, "scores", method, "score"))

    # ---- figures ----

    def assert_close(self, got, want, what):
        self.assertIsNotNone(got, what)
        self.assertLess(abs(got - want), 1e-9 + 1e-7 * abs(want), f"{what}: {got} and {want}")

    def test_figures_are_what_numpy_makes_of_the_tokens(self):
        name = self.whole()
        summary = self.summary(name)
        self.assertEqual(tuple(summary["methods"]), METHODS)
        for method in METHODS:
            scores, got = self.scores(name, method), summary["methods"][method]
            groups = self.groups(scores.counts)
            self.assertEqual(summary["groups"]["in_domain"]["documents"], len(groups["in_domain"]))
            want, tokens = scores.figures(groups["in_domain"])
            for figure in FIGURES:
                self.assert_close(got[figure], want[figure], f"{method} {figure}")
            self.assert_close(got["rms_calibration_error"], math.sqrt(max(want["squared_calibration_error"], 0)), method)
            self.assert_close(got["perplexity"], math.exp(want["nll"]), method)
            for end in ("_low", "_high"):
                self.assert_close(got["perplexity" + end], math.exp(got["nll" + end]), method)
                self.assert_close(got["rms_calibration_error" + end], math.sqrt(max(got["squared_calibration_error" + end], 0)), method)
                for figure in WITHOUT_INTERVAL:
                    self.assertIsNone(got[figure + end])
            self.assertEqual(summary["groups"]["in_domain"]["tokens"], len(tokens["nll"]))
            for order, key in (("confidence", -tokens["confidence"]), ("entropy", tokens["total_entropy"]),
                               ("mutual_information", tokens["mutual_information"])):
                area = got["risk_coverage"][order]
                if (method, order) == ("single", "mutual_information"):
                    self.assertEqual(area, {"area_error": None, "area_nll": None})
                    continue
                self.assert_close(area["area_error"], risks(key, 1 - tokens["correct"]).mean(), f"{method} {order}")
                self.assert_close(area["area_nll"], risks(key, tokens["nll"]).mean(), f"{method} {order}")
            self.check_reliability(got["reliability"], tokens)
            self.assertGreater(sum(bar["tokens"] > 0 for bar in got["reliability"]), 10)
            self.assertEqual(got["members"], {"single": 1}.get(method, 3))
            self.assertEqual(scores.members, got["members"])
            self.assertEqual(tokens["mutual_information"].max() > 1e-6, method != "single")
        self.assertEqual(summary["groups"]["in_domain"]["documents_without_tokens"], 1)

    def check_reliability(self, bars, tokens):
        self.assertEqual(len(bars), 15)
        confidence, correct = tokens["confidence"].astype(numpy.float64), tokens["correct"]
        for k, bar in enumerate(bars):
            here = (confidence > k / 15) & (confidence <= (k + 1) / 15)
            self.assertEqual(bar["tokens"], here.sum())
            if here.any():
                self.assert_close(bar["confidence"], confidence[here].mean(), "bar")
                self.assert_close(bar["accuracy"], correct[here].astype(numpy.float64).mean(), "bar")
            else:
                self.assertIsNone(bar["accuracy"])

    def test_detection_is_what_sklearn_says(self):
        name = self.whole()
        for method, got in self.summary(name)["methods"].items():
            scores = self.scores(name, method)
            groups = self.groups(scores.counts)
            self.assertEqual(list(got["ood"]), ["backward <b>", "other", "both"])
            self.assertEqual(list(got["scores"]), ["in_domain", *got["ood"]])
            for group, means in got["scores"].items():
                for score, column in SCORES.items():
                    if (method, score) == ("single", "mutual_information"):
                        self.assertNotIn(score, means["mean"])
                        continue
                    x = scores.means(column)[groups[group]]
                    self.assert_close(means["mean"][score], x.mean(), f"{method} {group} {score}")
                    if len(x) >= 10:
                        half = (means["mean_high"][score] - means["mean_low"][score]) / 2 / (x.std(ddof=1) / math.sqrt(len(x)))
                        self.assertTrue(1.95 < half < 2.27, half)
            for figure, begin in (("mutual_information", "mean."), ("nll", "nll")):  # nll is a figure of methods, too
                heads = run([program("bagpipe-data"), "table", self.at(name), "--figure", figure]).out.splitlines()[0].split(",")[4:]
                self.assertEqual({head.startswith(begin) for head in heads}, {True}, heads)
            for shift in got["ood"]:
                chosen = numpy.concatenate([groups["in_domain"], groups[shift]])
                labels = numpy.concatenate([numpy.zeros(len(groups["in_domain"])), numpy.ones(len(groups[shift]))])
                for score, column in SCORES.items():
                    if (method, score) == ("single", "mutual_information"):
                        continue
                    x = scores.means(column)[chosen]
                    what = f"{method} {shift} {score}"
                    self.assert_close(got["ood"][shift]["auroc"][score], roc_auc_score(labels, x), what)
                    self.assert_close(got["ood"][shift]["aupr"][score], average_precision_score(labels, x), what)
                    self.assert_close(got["ood"][shift]["fpr95"][score], fpr95(labels, x), what)

    def test_one_distribution_has_no_mutual_information(self):
        single = self.summary(self.whole())["methods"]["single"]
        for shift in single["ood"].values():
            for figure in ("auroc", "aupr", "fpr95"):
                for end in ("", "_low", "_high"):
                    self.assertIsNone(shift[figure + end]["mutual_information"])
        self.assertEqual(single["members"], 1)

    def test_the_mixture_beats_the_mean_of_its_members(self):
        name = self.whole()
        with h5py.File(self.file(name, "scores", "three", "score", "tokens.h5")) as file:
            members = file["member_logprob"][:]
            mixture = file["logprob"][:]
        scored = ~numpy.isnan(mixture)
        self.assertLessEqual(-mixture[scored].mean(), -members[scored].mean())

    def test_intervals_are_those_of_a_bootstrap(self):
        """The resamples are others than numpy's: the ends agree to a part of the interval's width."""
        name = self.whole()
        summary = self.summary(name)
        draw = numpy.random.default_rng(1)
        both = {method: self.scores(name, method) for method in ("single", "three")}
        documents = self.groups(both["single"].counts)["in_domain"]
        figures = [figure for figure in FIGURES if figure not in WITHOUT_INTERVAL]
        values, gaps = {method: [] for method in both}, {}
        for method, scores in both.items():
            at = numpy.isin(scores.owner, documents)
            gaps[method] = {"squared_calibration_error" + end: Gaps(scores.owner[at], scores.tokens[name][at], scores.tokens["correct"][at].astype(numpy.float64))
                            for end, name in (("", "confidence"), ("_tempered", "tempered_confidence"))}
        for _ in range(250):
            places = draw.integers(len(documents), size=len(documents))
            for method, scores in both.items():
                got = scores.figures(documents[places])[0]
                for figure, of in gaps[method].items():
                    got[figure] = of.resampled(numpy.bincount(places, minlength=len(documents)))
                values[method].append([got[figure] for figure in figures])
        values = {method: numpy.array(v) for method, v in values.items()}

        def check(got, figure, samples):
            low, high = numpy.percentile(samples, [2.5, 97.5])
            width = high - low
            self.assertGreater(width, 0)
            self.assertLess(abs(got[figure + "_low"] - low), 0.3 * width, figure)
            self.assertLess(abs(got[figure + "_high"] - high), 0.3 * width, figure)

        for k, figure in enumerate(figures):
            for method in both:
                check(summary["methods"][method], figure, values[method][:, k])
            check(summary["differences"]["single"]["three"], figure, values["single"][:, k] - values["three"][:, k])

    def test_differences_are_differences(self):
        summary = self.summary(self.whole())
        for a, row in summary["differences"].items():
            for b, got in row.items():
                one, other = summary["methods"][a], summary["methods"][b]
                for figure in FIGURES:
                    self.assertEqual(got[figure], one[figure] - other[figure])
                    if figure in WITHOUT_INTERVAL:
                        self.assertEqual((got[figure + "_low"], got[figure + "_high"]), (None, None))
                    else:
                        self.assertLessEqual(got[figure + "_low"], got[figure + "_high"])
                for shift in got["ood"]:
                    for score in SCORES:
                        if (a, score) == ("single", "mutual_information"):
                            self.assertIsNone(got["ood"][shift]["auroc"][score])
                            continue
                        self.assertEqual(got["ood"][shift]["auroc"][score],
                                         one["ood"][shift]["auroc"][score] - other["ood"][shift]["auroc"][score])
        self.assertEqual([(a, b) for a, row in summary["differences"].items() for b in row],
                         [(a, b) for i, a in enumerate(METHODS) for b in METHODS[i + 1:]])

    def test_sets_of_tokens_are_those_of_the_files(self):
        name = self.whole()
        for method, got in self.summary(name)["methods"].items():
            folder = self.file(name, "scores", method, "score")
            with h5py.File(os.path.join(folder, "tokens.h5")) as file:
                scored = ~numpy.isnan(file["logprob"][:])
                rank, size = (file[column][:][scored].astype(float) for column in ("target_rank", "set_size_lac"))
                correct = file["correct"][:][scored]
            with h5py.File(os.path.join(folder, "documents.h5")) as file:
                counts = file["tokens"][:]
            numpy.testing.assert_array_equal(rank == 1, correct == 1)
            owner, sets = numpy.repeat(numpy.arange(len(counts)), counts), got["sets"]
            self.assertEqual((sets["coverage"], sets["calibrated_on"]), (0.9, 2000))
            self.assertEqual(sets["labels"], {"genre=news": sets["in_domain"]})
            self.assertEqual(sets["outcomes"], {})
            for group, documents in self.groups(counts).items():
                at = numpy.isin(owner, documents) if group != "both" else numpy.isin(owner, numpy.unique(documents))
                one = sets["in_domain"] if group == "in_domain" else sets["shifted"][group]
                self.assertEqual((one["documents"], one["predictions"]), (len(documents), at.sum()))
                self.assertAlmostEqual(one["lac"]["coverage"], (rank <= size)[at].mean(), 9)
                self.assertAlmostEqual(one["lac"]["size"], size[at].mean(), 9)
                for kind in ("lac", "aps", "raps"):
                    self.assertLessEqual(one[kind]["coverage_low"], one[kind]["coverage"])
                    self.assertGreaterEqual(one[kind]["coverage_high"], one[kind]["coverage"])

    def test_predictions_of_others_of_each_token(self):
        """A row a scored token, a column a token of the vocabulary."""
        with h5py.File(self.file(self.whole(), "scores", "single", "score", "tokens.h5")) as file:
            scored = ~numpy.isnan(file["logprob"][:])
            target, vocabulary = file["tokens"][:][scored].astype(int), int(file.attrs["vocab_size"])
        draw = numpy.random.default_rng(4)
        p = draw.gamma(0.5, size=(len(target), vocabulary)) + 1e-6
        p /= p.sum(1, keepdims=True)
        numpy.save(self.at("foreign.npy"), p.astype(numpy.float32))
        models = f"uncertainty.models=others={self.at('foreign.npy')}, single={self.at('m0')}"
        self.studied("foreign", 0, models)
        self.assertIn("the run is finished", self.studied("foreign", 0, models).out)
        got, scores = self.summary("foreign")["methods"], self.scores(self.whole(), "single")
        rows = numpy.arange(len(target))
        in_domain = numpy.isin(scores.owner, self.groups(scores.counts)["in_domain"])
        self.assertAlmostEqual(got["others"]["nll"], -numpy.log(p[rows, target])[in_domain].mean(), delta=1e-5)
        self.assertAlmostEqual(got["others"]["accuracy"], (p.argmax(1) == target)[in_domain].mean(), delta=1e-9)
        self.assertEqual(got["single"]["nll"], self.summary(self.whole())["methods"]["single"]["nll"])
        self.assertNotIn("sets", got["others"])
        numpy.save(self.at("foreign.npy"), p[1:])
        self.assert_error(run(self.command("foreign-short", models)), 65, "[predictions.unlike_rows]")
        numpy.save(self.at("foreign.npy"), numpy.vstack([p, p[:1]]))  # neither none of corpus.valid nor all
        self.assert_error(run(self.command("foreign-short", models)), 65, "[predictions.unlike_rows]", "with those of corpus.valid")
        with h5py.File(self.file("foreign-short", "calibration", "single", "score", "tokens.h5")) as file:
            held = file["tokens"][:][~numpy.isnan(file["logprob"][:])].astype(int)
        tail = draw.gamma(0.5, size=(len(held), vocabulary)) + 1e-6
        tail[numpy.arange(len(held)), held] += 2
        tail /= tail.sum(1, keepdims=True)
        numpy.save(self.at("foreign.npy"), numpy.vstack([p, tail]).astype(numpy.float32))
        self.studied("foreign-short", 2, models)
        sets = self.summary("foreign-short")["methods"]["others"]["sets"]
        least = math.ceil((len(held) + 1) * 0.9)
        threshold = numpy.sort(1 - tail[numpy.arange(len(held)), held])[least - 1]
        self.assertAlmostEqual(sets["threshold"]["lac"], threshold, 6)
        self.assertEqual(sets["calibrated_on"], len(held))
        size, rank = (1 - p <= sets["threshold"]["lac"]).sum(1), 1 + (p > p[rows, target][:, None]).sum(1)
        self.assertAlmostEqual(sets["in_domain"]["lac"]["coverage"], (rank <= size)[in_domain].mean(), 2)  # float32 at the edge

    def test_temperature_improves_the_validation_text(self):
        for method, got in self.summary(self.whole())["methods"].items():
            self.assertGreater(got["temperature"], 0.3, method)
            self.assertLess(got["temperature"], 3, method)
            self.assertLessEqual(got["temperature_nll"], got["temperature_nll_before"])
            self.assertFalse(got["temperature_at_edge"])
            self.assertGreaterEqual(got["temperature_tokens"], 1900)

    def test_costs_are_those_of_the_journals(self):
        methods = self.summary(self.whole())["methods"]
        seconds = [math.fsum(line["seconds"] for line in metrics(self.at(f"m{k}"))) for k in range(3)]
        for method in ("single", "passes", "last"):
            self.assertAlmostEqual(methods[method]["train_seconds"], seconds[0], delta=1e-9)
        self.assertAlmostEqual(methods["three"]["train_seconds"], math.fsum(seconds), delta=1e-9)
        for method, got in methods.items():
            self.assertGreater(got["score_seconds"], 0)
            self.assertGreater(got["memory_mib"], 1)
            self.assertEqual(got["fit_seconds"] is not None, method == "last")

    # ---- files ----

    def test_tables_hold_what_the_summary_holds(self):
        name = self.whole()
        summary = self.summary(name)
        real = lambda text: None if text == "" else float(text)
        rows = self.table(name, "methods")
        self.assertEqual([row["method"] for row in rows], list(METHODS))
        for row in rows:
            got = summary["methods"][row["method"]]
            self.assertEqual(row["temperature_at_edge"], "yes" if got["temperature_at_edge"] else "no")
            for key in [f + end for f in ("perplexity", "rms_calibration_error") + FIGURES for end in ("", "_low", "_high")] + ["temperature", "train_seconds", "fit_seconds",
                                                                                   "score_seconds", "memory_mib"]:
                self.assertEqual(real(row[key]), got[key], key)
        rows = self.table(name, "detection")
        self.assertEqual(len(rows), 4 * 3 * 3)
        for row in rows:
            got = summary["methods"][row["method"]]["ood"][row["shift"]]
            for key in [f + end for f in ("auroc", "aupr", "fpr95") for end in ("", "_low", "_high")]:
                self.assertEqual(real(row[key]), got[key][row["score"]])
        rows = self.table(name, "differences")
        self.assertEqual(len(rows), 6 * (len(FIGURES) + 3 * 3))
        for row in rows:
            got = summary["differences"][row["method"]][row["other"]]
            for end in ("", "_low", "_high"):
                want = got["ood"][row["shift"]]["auroc" + end][row["score"]] if row["shift"] else got[row["figure"] + end]
                self.assertEqual(real(row["difference" + end]), want)
        for row, bar in zip(self.table(name, "reliability"), [bar for m in METHODS for bar in summary["methods"][m]["reliability"]]):
            self.assertEqual(real(row["accuracy"]), bar["accuracy"])

    def test_curves_are_those_of_the_tokens(self):
        name = self.whole()
        scores = self.scores(name, "three")
        groups = self.groups(scores.counts)
        tokens = scores.figures(groups["in_domain"])[1]
        curve = risks(-tokens["confidence"], 1 - tokens["correct"])
        rows = [row for row in self.table(name, "risk_coverage") if row["method"] == "three" and row["score"] == "confidence"]
        self.assertEqual(len(rows), 100)
        n = len(curve)
        for row in rows:
            k = float(row["coverage"]) * n
            self.assertLess(abs(float(row["error"]) - curve[min(n, max(1, round(k))) - 1]), 2 / k + 1e-9)
        self.assert_close(float(rows[-1]["error"]), 1 - tokens["correct"].astype(numpy.float64).mean(), "risk of all")
        x = scores.means("mutual_information")
        chosen = numpy.concatenate([groups["in_domain"], groups["both"]])
        labels = numpy.repeat([0, 1], [len(groups["in_domain"]), len(groups["both"])])
        fpr, tpr, _ = roc_curve(labels, x[chosen], drop_intermediate=False)
        rows = [row for row in self.table(name, "roc")
                if (row["method"], row["shift"], row["score"]) == ("three", "both", "mutual_information")]
        numpy.testing.assert_allclose([[float(row["fpr"]), float(row["tpr"])] for row in rows], numpy.stack([fpr, tpr], 1), atol=1e-12)
        rows = [row for row in self.table(name, "histogram") if row["method"] == "three"]
        for group in ("in_domain", "other"):
            here = [row for row in rows if row["group"] == group]
            want, _ = numpy.histogram(x[groups[group]], [float(row["low"]) for row in here] + [float(here[-1]["high"])])
            self.assertEqual([int(row["documents"]) for row in here], list(want))

    def test_the_page_needs_nothing_else(self):
        name = self.whole()
        with open(self.file(name, "index.html"), encoding="utf-8") as file:
            text = file.read()
        page = Page(text)
        self.assertEqual(page.stack, [])
        self.assertIn("backward &lt;b&gt;", text)
        self.assertNotIn("backward <b>", text)
        for link in page.links:
            self.assertFalse(link.startswith(("http:", "https:", "//")), link)
            if not link.startswith("#"):
                self.assertTrue(os.path.exists(self.file(name, link)), link)
        self.assertEqual(len(page.ids), len(set(page.ids)))
        for link in page.links:
            if link.startswith("#"):
                self.assertIn(link[1:], page.ids)
        self.assertEqual(text.count("<title>"), 1)
        for method in METHODS:
            self.assertIn(method, "".join(page.text))
        self.assertIn("bagpipe uncertainty", "".join(page.text))
        for name in ("Perplexity", "Adaptive ECE"):  # which it does not show
            self.assertNotIn(name, page.named("dt"))
        self.assertNotRegex("".join(page.named("dd")), r"\bnull\b|differences\.A|_low|_tempered|_calibration_error")
        self.assertIn("NLL, nats a token", [row[0] for row in page.rows])

    def test_plots_are_drawn(self):
        if shutil.which("gnuplot") is None:
            self.skipTest("there is no gnuplot")
        name = self.whole()
        plots = [f[:-3] for f in sorted(os.listdir(self.file(name, "plots"))) if f.endswith(".gp")]
        self.assertEqual(plots, ["histogram-last", "histogram-passes", "histogram-three", "nll", "reliability", "risk_coverage",
                                 "roc-01-backward__b_", "roc-02-other", "roc-03-both"])
        with open(self.file(name, "index.html"), encoding="utf-8") as file:
            self.assertEqual(file.read().count("<svg"), len(plots))
        for plot in plots:
            tree = xml.etree.ElementTree.parse(self.file(name, "plots", plot + ".svg"))
            self.assertTrue(tree.getroot().tag.endswith("svg"))
            with open(self.file(name, "plots", plot + ".png"), "rb") as file:
                self.assertEqual(file.read(8), b"\x89PNG\r\n\x1a\n")

    def without(self, name, **env):
        """A small study in another environment: what it says."""
        process = subprocess.run(self.command(name, f"uncertainty.models=single={self.at('m0')}", "uncertainty.shifted="),
                                 env=dict(environment(), **env), capture_output=True, timeout=TIMEOUT, check=False)
        self.assertEqual(process.returncode, 0, process.stderr.decode())
        for file in ("summary.json", "methods.csv"):
            self.assertTrue(os.path.exists(self.file(name, file)), file)
        return process.stderr.decode()

    def test_without_gnuplot_all_else_is_there(self):
        tools = self.at("no_gnuplot")
        os.makedirs(tools, exist_ok=True)
        self.assertIn("there is no gnuplot", self.without("plotless", PATH=tools))
        for file in ("index.html", os.path.join("plots", "nll.gp")):
            self.assertTrue(os.path.exists(self.file("plotless", file)), file)

    def test_without_templates_the_tables_are_there(self):
        said = self.without("pageless", BAGPIPE_SHARE="/nowhere")
        self.assertEqual(said.count("no page and no plots"), 1, said)
        self.assertIn("/nowhere/report/plots", said)
        self.assertFalse(os.path.exists(self.file("pageless", "index.html")))


if __name__ == "__main__":
    bagpipe_test.main()
