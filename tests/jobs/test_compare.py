"""bagpipe-data compare on real scores: every figure by numpy, refusals, and what it says when conventions differ."""
import csv
import json
import math
import os
import random
import re
import shutil

import bagpipe_test
from bagpipe_test import JobTest, environment, program, run

try:
    import h5py
    import numpy
except ImportError:
    h5py = None

FIGURES = ("documents tokens_a tokens_b bytes words nll_nats_a nll_nats_b perplexity_a perplexity_b bits_per_byte_a bits_per_byte_b "
           "ratio ratio_low ratio_high difference difference_low difference_high p_value p_holm").split()


class Compare(JobTest):
    """Two small models of one tokenizer and one of another, and the scores of labelled documents and of lines."""

    TEXT_BYTES = 60_000

    @classmethod
    def setUpClass(cls):
        if h5py is None:
            raise bagpipe_test.unittest.SkipTest("there is no h5py")
        super().setUpClass()
        draw = random.Random(5)
        with open(cls.at("valid.txt"), encoding="utf-8") as file:
            lines = file.read().splitlines()[:40]
        cls.rows = [{"id": f"d{k}", "text": "\n".join(draw.choice(lines) for _ in range(draw.randrange(1, 4))),
                     "genre": draw.choice(["news", "étude", "fiction"])} for k in range(40)]
        cls.rows[7]["text"] = ""
        cls.write("lines.txt", "\n".join(lines) + "\n")
        cls.corpus("tokenizer.json", "lines", "lines.txt", "lines")
        cls.labelled("docs", cls.rows)
        cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.at('m1')}", "train.steps=12"])
        cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.at('m2')}", "train.steps=6", "run.seed=2"])
        cls.write("score.ini", "[math]\nprecision = f32\nthreads = 1\n")
        cls.score("a", "m1", "lines", "docs")
        cls.score("b", "m2", "lines", "docs")

    @classmethod
    def corpus(cls, tokenizer, name, source, kind):
        labels = ["--label", "genre"] if kind == "jsonl" else []
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at(tokenizer), "--format", kind, *labels, "--out", cls.at(name + ".h5"),
                  cls.at(source)])

    @classmethod
    def labelled(cls, name, rows, tokenizer="tokenizer.json"):
        with open(cls.at(name + ".jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        cls.corpus(tokenizer, name, name + ".jsonl", "jsonl")

    @classmethod
    def score(cls, name, model, *corpora, keys=()):
        cls.must(["bagpipe", "score", cls.at("score.ini"), f"run.dir={cls.at(name)}", f"score.model={cls.at(model)}",
                  "score.corpus=" + ",".join(cls.at(c + ".h5") for c in corpora), *keys])

    def compare(self, a, b, *more, ranks=0):
        result = run([program("bagpipe-data"), "compare", self.at(a), self.at(b), *more], ranks)
        self.assertEqual(result.status, 0, str(result))
        return result

    def refused(self, a, b, status, *words, more=()):
        self.assert_error(run([program("bagpipe-data"), "compare", self.at(a), self.at(b), *more]), status, *words)

    def compared(self, a, b, *more):
        """The JSON of a comparison; the CSV has the same numbers."""
        self.compare(a, b, "--json", self.at("out.json"), "--csv", self.at("out.csv"), *more)
        with open(self.at("out.json"), encoding="utf-8") as file:
            out = json.load(file)
        with open(self.at("out.csv"), encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        groups = [("all", "", "", out["all"])] + [("corpus", k, "", v) for k, v in out["corpora"].items()]
        groups += [("label", name, k, v) for name, values in out["labels"].items() for k, v in values.items()]
        self.assertEqual([(r["scope"], r["name"], r["value"]) for r in rows], [g[:3] for g in groups])
        for row, (*_, figures) in zip(rows, groups):
            self.assertEqual(row["unit"], out["unit"])
            self.assertEqual(list(figures), FIGURES)
            self.assertEqual([None if row[k] == "" else float(row[k]) for k in FIGURES], list(figures.values()))
        return out

    def columns(self, name):
        with h5py.File(os.path.join(self.at(name), "score", "documents.h5")) as file:
            genre = [v.decode() for v in file["label_names/genre"][:]] + [None] if "labels" in file else None
            out = {key: file[key][:] for key in ("nll", "tokens", "bytes", "words", "corpus_start")}
            if genre:
                out["genre"] = numpy.array([genre[c] for c in file["labels/genre"][:]], dtype=object)
            return out

    def summary(self, name):
        with open(os.path.join(self.at(name), "score", "summary.json"), encoding="utf-8") as file:
            return json.load(file)

    # ---- figures ----

    def check_group(self, got, a, b, chosen, unit, resamples):
        """All figures of a group again, the intervals by a bootstrap of numpy's own. Both know an end of the interval to about 0.156
        / 0.058 / sqrt(resamples) = 2.7 % of a deviation at 10,000; unpaired intervals would be several times as wide."""
        nll = [x["nll"][chosen] for x in (a, b)]
        weight = a[{"token": "tokens", "byte": "bytes"}[unit]][chosen].astype(float)
        scale = math.log(2) if unit == "byte" else 1
        difference = (nll[1].sum() - nll[0].sum()) / weight.sum()
        want = {"documents": int(chosen.sum()), "tokens_a": int(a["tokens"][chosen].sum()), "tokens_b": int(b["tokens"][chosen].sum()),
                "bytes": int(a["bytes"][chosen].sum()), "words": int(a["words"][chosen].sum()), "nll_nats_a": nll[0].sum(),
                "nll_nats_b": nll[1].sum(), "ratio": math.exp(difference), "difference": difference / scale}
        for side, x in zip("ab", (a, b)):
            total = x["nll"][chosen].sum()
            want["perplexity_" + side] = math.exp(total / x["tokens"][chosen].sum())
            want["bits_per_byte_" + side] = total / x["bytes"][chosen].sum() / math.log(2)
        for key, value in want.items():
            if isinstance(value, int):
                self.assertEqual(got[key], value, key)
            else:
                self.assertAlmostEqual(got[key], value, delta=1e-10 * abs(value) + 1e-12, msg=key)
        rest = nll[1] - nll[0] - difference * weight
        n = len(rest)
        deviation = math.sqrt((rest ** 2).sum() * n / (n - 1)) / weight.sum()
        t, steps = abs(difference / deviation), 200_000  # the tail of Student's t by its density, at the middles of steps of x = t + u / (1 - u)
        u = (numpy.arange(steps) + 0.5) / steps
        log_density = math.lgamma(n / 2) - math.lgamma((n - 1) / 2) - math.log((n - 1) * math.pi) / 2
        x = t + u / (1 - u)
        tail = 2 * (numpy.exp(log_density - n / 2 * numpy.log1p(x ** 2 / (n - 1))) / (1 - u) ** 2).sum() / steps
        self.assertAlmostEqual(got["p_value"], tail, delta=1e-6 * tail + 1e-12)
        draw = numpy.random.default_rng(1)
        counts = draw.multinomial(chosen.sum(), numpy.full(chosen.sum(), 1 / chosen.sum()), size=resamples)
        values = (counts @ (nll[1] - nll[0])) / (counts @ weight)
        spread = values.std()
        near = 0.15 if n > 20 else 0.35  # the ends are farther out, where fewer resamples are
        z, f = 1.959963984540054, 1 / (n - 1)  # Student's t in powers of 1 / freedom: Abramowitz and Stegun 26.7.5
        student = z + f * (z ** 3 + z) / 4 + f ** 2 * (5 * z ** 5 + 16 * z ** 3 + 3 * z) / 96 + f ** 3 * (3 * z ** 7 + 19 * z ** 5 + 17 * z ** 3 - 15 * z) / 384
        level = 50 * math.erfc(math.sqrt(n / (n - 1)) * student / math.sqrt(2))
        for key, percent in (("low", level), ("high", 100 - level)):
            end = numpy.percentile(values, percent)
            self.assertAlmostEqual(got["difference_" + key] * scale, end, delta=near * spread)
            self.assertAlmostEqual(math.log(got["ratio_" + key]), end, delta=near * spread)

    def check_all(self, out, a, b):
        a, b = self.columns(a), self.columns(b)
        start = a["corpus_start"]
        place = numpy.arange(len(a["nll"]))
        self.check_group(out["all"], a, b, place >= 0, out["unit"], out["resamples"])
        for k, name in enumerate(out["corpora"]):
            self.check_group(out["corpora"][name], a, b, (place >= start[k]) & (place < start[k + 1]), out["unit"], out["resamples"])
        for name, figures in out["labels"].get("genre", {}).items():
            self.check_group(figures, a, b, a["genre"] == name, out["unit"], out["resamples"])

    def test_figures_are_numpys(self):
        out = self.compared("a", "b", "--resamples", "10000")
        self.assertEqual((out["unit"], out["seed"], out["resamples"], out["remarks"]), ("token", 1, 10000, []))
        self.assertEqual((out["differences"], out["no_verdict"], out["ratio_of"]), ([], None, "perplexities, B / A"))
        groups = [out["all"], *out["corpora"].values(), *out["labels"]["genre"].values()]
        self.assertEqual(out["comparisons"], len(groups))
        least = 0
        for k, group in enumerate(sorted(groups, key=lambda g: g["p_value"])):  # Holm 1979
            least = max(least, min(1, group["p_value"] * (len(groups) - k)))
            self.assertAlmostEqual(group["p_holm"], least, delta=1e-12)
        self.assertEqual(list(out["corpora"]), ["lines", "docs"])
        self.assertEqual(sorted(out["labels"]["genre"]), ["fiction", "news", "étude"])
        self.check_all(out, "a", "b")
        for side in "ab":  # and the job's own
            summary = self.summary(side)
            self.assertEqual({k: out[side][k] for k in ("convention", "model")}, {k: summary[k] for k in ("convention", "model")})
            for got, want in [(out["all"], summary)] + [(out["corpora"][k], summary["corpora"][k]) for k in out["corpora"]]:
                for key in ("perplexity", "bits_per_byte"):
                    self.assertAlmostEqual(got[f"{key}_{side}"] / want[key], 1, delta=1e-12)

    def test_a_model_is_as_good_as_itself(self):
        out = self.compared("a", "a")
        groups = [out["all"], *out["corpora"].values(), *out["labels"]["genre"].values()]
        self.assertEqual(len(groups), 6)
        for figures in groups:
            self.assertEqual([figures[k] for k in ("ratio", "ratio_low", "ratio_high")], [1, 1, 1])
            self.assertEqual([figures[k] for k in ("difference", "difference_low", "difference_high")], [0, 0, 0])
            self.assertEqual([figures[k] for k in ("p_value", "p_holm")], [1, 1])

    def test_the_other_way_round_is_the_inverse(self):
        one, other = self.compared("a", "b"), self.compared("b", "a")
        self.assertAlmostEqual(one["all"]["ratio"] * other["all"]["ratio"], 1, delta=1e-12)
        self.assertAlmostEqual(one["all"]["difference_low"], -other["all"]["difference_high"], delta=1e-12)

    def test_numbers_depend_on_the_seed_alone(self):
        one = self.compared("a", "b", "--seed", "3")
        self.assertEqual(self.compared("a", "b", "--seed", "3"), one)
        self.assertNotEqual(self.compared("a", "b", "--seed", "4")["all"]["ratio_low"], one["all"]["ratio_low"])
        old = bagpipe_test.environment
        try:
            bagpipe_test.environment = lambda threads=1: old(2)
            self.assertEqual(self.compared("a", "b", "--seed", "3"), one)
        finally:
            bagpipe_test.environment = old

    def test_the_table_is_printed_once(self):
        """The score/ folder will do as well as the run's; two ranks speak once."""
        out = self.compare("a/score", "b/", ranks=2).out
        self.assertEqual(out.count("paired resamples"), 1)
        figures = self.compared("a", "b")
        self.assertEqual([line for line in out.splitlines() if len(line) > 80], [])
        lines = {}
        for line in out.splitlines():  # of two tables
            lines[line.split("  ")[0]] = lines.get(line.split("  ")[0], "") + line
        for name, group in (("all", figures["all"]), ("corpus docs", figures["corpora"]["docs"]),
                            ("genre étude", figures["labels"]["genre"]["étude"])):
            for text in (f"{group['perplexity_a']:.4f}", f"{group['perplexity_b']:.4f}", f"{group['ratio']:.4f}",
                         f"[{group['ratio_low']:.4f}, {group['ratio_high']:.4f}]", f"{group['difference']:.5f}",
                         f"[{group['difference_low']:+.5f}, {group['difference_high']:+.5f}]"):
                self.assertIn(text, lines[name])

    def verdict(self, *sides):
        self.assertIn("6 sets of documents were compared: Holm is p adjusted", self.compare("a", "b").out) if sides == ("a", "b") else None
        return [line for line in self.compare(*sides).out.splitlines() if re.match("[AB] predicts better|No clear difference|No verdict", line)]

    def test_the_verdict_comes_first_and_is_that_of_the_interval(self):
        figures = self.compared("a", "b")["all"]
        self.assertGreater(figures["ratio_low"], 1)  # else no verdict of "a" is right
        percent = [100 * (figures[key] - 1) for key in ("ratio", "ratio_low", "ratio_high")]
        said = "A predicts better: B has {:.1f} % more perplexity (95 %: {:.1f} to {:.1f} %).".format(*percent)
        self.assertEqual(self.verdict("a", "b"), [said])
        out = self.compare("a", "b").out
        self.assertLess(out.index(said), out.index("documents perplexity A"))
        back = self.compared("b", "a")["all"]
        percent = [100 * (1 - back[key]) for key in ("ratio", "ratio_high", "ratio_low")]
        self.assertEqual(self.verdict("b", "a"), ["B predicts better: B has {:.1f} % less perplexity (95 %: {:.1f} to {:.1f} %).".format(*percent)])
        self.assertEqual(self.verdict("a", "a"), ["No clear difference: B has +0.0 % perplexity (95 %: +0.0 to +0.0 %)."])
        self.score("half", "m1", "lines", "docs", keys=["score.convention=half"])
        self.score("half-b", "m2", "lines", "docs", keys=["score.convention=half"])
        self.assertIn("A predicts better", self.verdict("half", "half-b")[0])
        shutil.copytree(os.path.join(self.at("b"), "score"), self.at("masked"))  # as a masked model's
        with open(self.at("masked/summary.json"), encoding="utf-8") as file:
            text = file.read()
        self.write("masked/summary.json", text.replace('"name": "rolling"', '"name": "pll"'))
        self.refused("a", "masked", 65, "[compare.not_comparable]", "pll", "rolling", "--anyway")
        out = self.compared("a", "masked", "--anyway")
        self.assertEqual(out["differences"], [{"what": "convention", "a": "rolling", "b": "pll"}])
        self.assertEqual(out["no_verdict"], "A and B were scored by two conventions")
        self.assertEqual(self.verdict("a", "masked", "--anyway"), ["No verdict: A and B were scored by two conventions."])
        self.assertIn("A and B differ in convention: rolling and pll\n", self.compare("a", "masked", "--anyway").out)
        self.labelled("nine", [row for row in self.rows if row["text"]][:9])
        for name, model in (("nine-a", "m1"), ("nine-b", "m2")):
            self.score(name, model, "nine")
        self.assertEqual(self.verdict("nine-a", "nine-b"), ["No verdict: it takes 10 documents or more, and there are 9."])

    def test_a_corpus_of_another_verdict_is_named(self):
        """Each of two n-gram models predicts the kind of text better that it has seen: the sum of both says nothing of either."""
        draw = random.Random(3)
        kinds = {"nouns": "stone river lamp chair".split(), "verbs": "walked sang fell rose".split()}
        for name, words in kinds.items():
            self.write(name + ".txt", "".join(" ".join(draw.choice(words) for _ in range(draw.randrange(3, 9))) + "\n" for _ in range(60)))
            self.corpus("tokenizer.json", name, name + ".txt", "lines")
            self.must(["bagpipe", "pretrain", f"run.dir={self.at('n-' + name)}", f"corpus.train={self.at(name + '.h5')}", "model.kind=ngram"])
        self.corpus("tokenizer.json", "verbs-again", "verbs.txt", "lines")
        for name in kinds:
            self.score("two-" + name, "n-" + name, "nouns", "verbs")
        lines = self.compare("two-nouns", "two-verbs").out.splitlines()
        verdicts = [line for line in lines if "predicts better" in line or "No clear" in line]
        first = next(k for k, line in enumerate(lines) if line == verdicts[0])
        whose = {"nouns": "A", "verbs": "B"}
        said = [f"  but corpus {name}: {side} predicts better" for name, side in whose.items() if not verdicts[0].startswith(side)]
        self.assertTrue(said)
        self.assertEqual([line.split(":")[0] + ":" + line.split(":")[1] for line in lines[first + 1:first + 1 + len(said)]], said)

    def between(self, name, *more):
        result = run([program("bagpipe-data"), "compare", self.at(name), "--between", "genre", "--csv", self.at("pairs.csv"), *more])
        self.assertEqual(result.status, 0, str(result))
        with open(self.at("pairs.csv"), encoding="utf-8", newline="") as file:
            return result.out, list(csv.DictReader(file))

    def test_values_of_a_label_are_compared(self):
        """Cochran's variance of a ratio of sums, and the limits that Student's t gives for at least these degrees of freedom."""
        rows = [{"text": row["text"], "genre": row["genre"] if k < 56 else "rare"} for k, row in enumerate(self.rows + self.rows)]
        self.labelled("registers", [row for row in rows if row["text"]][:60])
        self.score("by-genre", "m1", "registers")
        columns, by = self.columns("by-genre"), {}
        for figure, weight in (("perplexity", "tokens"), ("bits_per_byte", "bytes"), ("word_perplexity", "words")):
            out, pairs = self.between("by-genre", *(["--figure", figure] if weight != "tokens" else []))
            want = {}
            for value in set(columns["genre"]) - {None}:
                chosen = columns["genre"] == value
                nll, units = columns["nll"][chosen], columns[weight][chosen].astype(float)
                mean, n = nll.sum() / units.sum(), len(nll)
                want[value] = (mean, ((nll - mean * units) ** 2).sum() * n / (n - 1) / units.sum() ** 2, n)
            by[figure] = {frozenset((r["harder"], r["easier"])): r for r in pairs}
            order = sorted(want, key=lambda value: -want[value][0])
            self.assertEqual([(r["harder"], r["easier"]) for r in pairs], [(a, b) for k, a in enumerate(order) for b in order[k + 1:]])
            lack = sum(value is None for value in columns["genre"])
            self.assertEqual(f"note: {lack} of {len(columns['nll'])} documents have no label genre, and are left out" in out, lack > 0)
            lines = [line for line in out.splitlines() if line.split("  ")[0] in order]
            self.assertEqual([line.split("  ")[0] for line in lines], order)
            tested = [r for r in pairs if r["p_value"]]
            for row in pairs:
                (a, va, na), (b, vb, nb) = want[row["harder"]], want[row["easier"]]
                as_nats = (lambda x: float(x) * math.log(2)) if weight == "bytes" else (lambda x: math.log(float(x)))
                self.assertAlmostEqual(as_nats(row["difference" if weight == "bytes" else "ratio"]), a - b, places=9)
                self.assertEqual((int(row["harder_documents"]), int(row["easier_documents"])), (na, nb))
                self.assertEqual(bool(row["p_value"]), min(na, nb) >= 10)
                if not row["p_value"]:
                    self.assertEqual(row["low"] + row["high"] + row["p_holm"], "")
                    continue
                half = (as_nats(row["high"]) - as_nats(row["low"])) / 2 / math.sqrt(va + vb)
                self.assertAlmostEqual((as_nats(row["high"]) + as_nats(row["low"])) / 2, a - b, places=9)
                self.assertTrue(1.9599 < half < 2.2622, half)  # t of no limit, and of 9
                self.assertEqual(float(row["p_value"]) < 0.05, half * math.sqrt(va + vb) < a - b)
                self.assertLessEqual(float(row["p_value"]), float(row["p_holm"]))
            self.assertAlmostEqual(min(float(r["p_holm"]) for r in tested), min(1, len(tested) * min(float(r["p_value"]) for r in tested)), places=12)
            self.assertIn(f"{len(tested)} pairs were compared", out)
            self.assertTrue(0 < len(tested) < len(pairs))
            small = sum(float(r["p_holm"]) < 0.05 for r in tested)
            both = sum(r["agrees"] == "yes" for r in pairs)
            if small > 0:
                self.assertIn(f"Pairs that differ (Holm below 0.05): {small} by {figure}, ", out)
                self.assertIn(f", {both} by both in one direction.", out)
        for one, other in (("perplexity", "bits_per_byte"), ("bits_per_byte", "perplexity"), ("word_perplexity", "bits_per_byte")):
            for pair, row in by[one].items():
                also = by[other][pair]
                self.assertEqual((row["other_figure"], row["other_p_holm"]), (other, also["p_holm"]))
                small = [float(p or 1) < 0.05 for p in (row["p_holm"], also["p_holm"])]
                self.assertEqual(row["agrees"], "" if not small[0] else "no" if not small[1] else "yes" if row["harder"] == also["harder"] else "reversed")
        self.assert_error(run([program("bagpipe-data"), "compare", self.at("by-genre"), "--between", "gender"]), 65, "[label.unknown]", "it has genre")
        self.assert_error(run([program("bagpipe-data"), "compare", self.at("a"), self.at("b"), "--between", "genre"]), 64, "--between takes one score folder")
        self.assert_error(run([program("bagpipe-data"), "compare", self.at("a"), self.at("b"), "--figure", "perplexity"]), 64, "--figure is of --between")
        self.assert_error(run([program("bagpipe-data"), "compare", self.at("a"), "--between", "genre", "--figure", "loss"]), 64, "[table.bad_figure]")
        for key, value in (("--seed", "2"), ("--resamples", "500"), ("--anyway", None)):  # it would have no effect
            self.assert_error(run([program("bagpipe-data"), "compare", self.at("a"), "--between", "genre", key, *([value] if value else [])]), 64, "[command.exclusive]")
        self.assertNotIn("surprisal --critical", out)
        self.write("items.jsonl", "".join(json.dumps({"text": row["text"] or "a b", "genre": "ab"[k % 2], "item": str(k // 2)}) + "\n" for k, row in enumerate(self.rows[:20])))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--label", "genre", "--label", "item", "--out", self.at("items.h5"), self.at("items.jsonl")])
        self.score("of-items", "m1", "items")
        self.assertIn("surprisal --critical LABEL --between genre --items item", self.between("of-items")[0])
        self.assertNotIn("without a word", out)
        self.labelled("white", [*({"text": row["text"] or "a b", "genre": "ab"[k % 2]} for k, row in enumerate(self.rows[:20])), {"text": "  ", "genre": "a"}])
        self.score("of-white", "m1", "white")
        self.assertIn("1 scored documents without a word are left out", self.between("of-white", "--figure", "word_perplexity")[0])
        self.labelled("each", [{"text": "a", "genre": f"g{k}"} for k in range(1001)])
        self.score("of-each", "m1", "each")
        self.assert_error(run([program("bagpipe-data"), "compare", self.at("of-each"), "--between", "genre"]), 65, "[compare.many_values]", "1001 values")
        self.labelled("alike", [{"text": row["text"], "genre": "news"} for row in self.rows])
        self.score("one-genre", "m1", "alike")
        self.assert_error(run([program("bagpipe-data"), "compare", self.at("one-genre"), "--between", "genre"]), 65, "[compare.one_value]")

    def test_odd_values_of_a_label_are_named_whole(self):
        """One longer than its column is cut between characters, one with a line feed is shown as one line, and an empty one as quotes."""
        genres = ["\u00e9" * 25 + "x" + "\u00e9" * 25, "a\nb\x1b[31m", ""]
        self.labelled("odd", [{**row, "genre": genres[k % 3]} for k, row in enumerate(self.rows)])
        self.score("of-odd", "m1", "odd")
        out, pairs = self.between("of-odd")
        self.assertEqual({row[side] for row in pairs for side in ("harder", "easier")}, {genres[0], "a\nb\\x1b[31m".replace("1b", "1B"), ""})
        names = {"\u00e9" * 25 + "x" + "\u00e9" * 4, "a\\x0Ab\\x1B[31m", '""'}
        shown = [line.partition("  ")[0] for line in out.splitlines() if " [" in line and ", " in line.partition("  ")[0]]
        self.assertEqual(len(shown), 3, out)
        self.assertEqual({name for line in shown for name in line.split(", ")}, names)

    def test_unknown_words_make_a_value_look_easier(self):
        self.must(["bagpipe-data", "tokenizer", "--kind", "word", "--size", "100", "--out", self.at("words.json"), self.at("train.txt")])
        os.makedirs(self.at("of-words"))
        self.labelled("of-words/docs", self.rows, "words.json")
        self.must(["bagpipe", "pretrain", f"run.dir={self.at('bigrams')}", f"corpus.train={self.at('of-words/docs.h5')}", "model.kind=ngram", "ngram.order=2"])
        self.score("of-unknown", "bigrams", "of-words/docs")
        self.assertGreater(self.summary("of-unknown")["oov"], 0)
        said = "The tokens do not spell the text (unknown words): a value with more of that looks easier than it is."
        self.assertEqual(self.between("of-unknown")[0].splitlines()[-1], said)
        self.assertNotIn(said, self.between("a")[0])

    def test_names_of_a_table_are_kept_and_differ(self):
        for more in (["x=" + self.at("a"), "x=" + self.at("b")], ["x=" + self.at("a"), "x=" + self.at("a")]):
            self.assert_error(run([program("bagpipe-data"), "table", *more]), 64, "[command.same_names]")
        head = self.table("[1]=" + self.at("a"), "of/<two>=" + self.at("b"), "--form", "latex").out.splitlines()[2]
        self.assertEqual([cell.strip() for cell in head.split("&")], ["perplexity", "documents", "{}[1]", r"of/\textless{}two\textgreater{} \\"])
        many = [f"{'model' * 10}{k}=" + self.at("a") for k in range(25)]  # a long note is whole
        self.score("short-a", "m1", "lines", keys=["score.context=16", "score.end=yes"])
        self.assertIn("bits_per_byte may", self.table(*many, self.at("short-a"), "--form", "text").out)
        self.assert_error(run([program("bagpipe-data"), "table", "x=" + self.at("nowhere")]), 66, "x=" + self.at("nowhere"))

    def test_one_document_has_no_interval(self):
        self.labelled("one", self.rows[:1])
        for name, model in (("one-a", "m1"), ("one-b", "m2")):
            self.score(name, model, "one")
        figures = self.compared("one-a", "one-b")["all"]
        self.assertGreater(figures["ratio"], 0)
        self.assertEqual([figures[k] for k in ("ratio_low", "ratio_high", "difference_low")], [None, None, None])

    # ---- conventions ----

    def test_other_tokenizers_compare_per_byte(self):
        self.must(["bagpipe-data", "tokenizer", "--kind", "char", "--size", 128, "--out", self.at("char.json"), self.at("train.txt")])
        self.corpus("char.json", "char-train", "train.txt", "lines")
        os.makedirs(self.at("char"))
        self.corpus("char.json", "char/lines", "lines.txt", "lines")
        shutil.copy(self.at("docs.jsonl"), self.at("char/docs.jsonl"))
        self.corpus("char.json", "char/docs", "char/docs.jsonl", "jsonl")
        self.must(["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={self.at('m3')}", f"corpus.train={self.at('char-train.h5')}",
                   "corpus.valid=", "train.steps=6"])
        self.score("c", "m3", "char/lines", "char/docs")
        out = self.compared("a", "c", "--resamples", "10000")
        self.assertEqual((out["unit"], out["texts_checked_by"]), ("byte", "counts"))
        self.assertEqual(len(out["remarks"]), 1)
        self.assertIn("the tokenizers differ", out["remarks"][0])
        self.check_all(out, "a", "c")
        for side, name in zip("ab", "ac"):
            self.assertAlmostEqual(out["all"]["bits_per_byte_" + side] / self.summary(name)["bits_per_byte"], 1, delta=1e-12)
        self.assertIn("Per byte", self.compare("a", "c").out)
        self.assertRegex(self.verdict("a", "c")[0], r"^A predicts better: B has [\d.]+ more bits per byte \(95 %: [\d.]+ to [\d.]+\)\.$")

    def test_codes_that_do_not_spell_the_text(self):
        """Unknown words, and letter case: both perplexities are shown, and there is no verdict by the byte."""
        self.must(["bagpipe-data", "tokenizer", "--kind", "word", "--size", 200, "--out", self.at("word.json"), self.at("train.txt")])
        with open(self.at("tokenizer.json"), encoding="utf-8") as file:
            lower = json.load(file)
        lower["normalizer"] = {"type": "Lowercase"}
        self.write("lower.json", json.dumps(lower))
        for name, sides in (("word", "unknown words"), ("lower", "letter case")):
            os.makedirs(self.at(name))
            self.corpus(f"{name}.json", f"{name}/train", "train.txt", "lines")
            built = run([program("bagpipe-data"), "corpus", "--tokenizer", self.at(f"{name}.json"), "--format", "lines", "--out", self.at(f"{name}/lines.h5"), self.at("lines.txt")])
            self.assertIn({"word": "tokens are unknown to the tokenizer", "lower": "the tokenizer takes away letter case: "}[name], str(built))
            self.must(["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={self.at('m-' + name)}", f"corpus.train={self.at(name + '/train.h5')}",
                       "corpus.valid=", "train.steps=3"])
            self.score("lines-" + name, "m-" + name, name + "/lines")
            summary = self.summary("lines-" + name)
            self.assertEqual(summary["convention"].get("loses"), {"word": None, "lower": "letter case"}[name])
            said = "the tokenizer takes away letter case"
            if name == "word":
                self.assertGreater(summary["oov"], 0)
                said = (f"{summary['oov']} of {summary['tokens']} scored tokens are unknown words: perplexity {summary['perplexity']:.4f} with them, "
                        f"{summary['perplexity_without_oov']:.4f} without")
            for part in ("log.txt", "score/index.html"):
                with open(os.path.join(self.at("lines-" + name), part), encoding="utf-8") as file:
                    self.assertIn(said, file.read())
            self.score("lines-a", "m1", "lines") if name == "word" else None
            out = self.compared("lines-a", "lines-" + name)
            self.assertEqual((out["unit"], out["no_verdict"]), ("byte", "not all tokens spell the text, see the note"))
            self.assertIn(f"the tokens of B do not spell the text ({sides})", out["remarks"][-1])
            self.assertEqual(self.verdict("lines-" + name, "lines-a"), ["No verdict: not all tokens spell the text, see the note."])
            self.assertEqual((out["comparisons"], out["all"]["p_value"], out["all"]["p_holm"]), (0, None, None))  # p would be a verdict
            table = self.table(self.at("lines-a"), "theirs=" + self.at("lines-" + name), "--form", "latex", "--figure", "bits_per_byte")
            self.assertIn(f"better than they are where the tokens do not spell the text: theirs ({sides})", table.out)
            self.assertIn(" & theirs ", table.out.splitlines()[2])
            self.assertEqual(table.err, "")  # it is said once
            self.assertIsNone(self.compared("lines-" + name, "lines-" + name)["no_verdict"])  # of one code the same tokens compare
        self.assertNotIn("loses", self.summary("a")["convention"])

    def test_other_conventions_are_reported(self):
        self.score("short", "m1", "lines", "docs", keys=["score.context=16"])
        self.score("end", "m1", "lines", "docs", keys=["score.end=yes"])
        self.score("bare", "m1", "lines", "docs", keys=["score.prefix=none"])
        self.score("bare-b", "m2", "lines", "docs", keys=["score.prefix=none"])
        out = self.compared("a", "short")
        self.assertEqual(out["unit"], "token")
        self.assertEqual(out["remarks"], [])  # what differs is said once; the stride is the context
        self.assertEqual(out["differences"], [{"what": "context", "a": "32", "b": "16"}])
        self.assertEqual(self.compare("a", "short").out.count("context"), 1)
        self.assertIsNone(out["no_verdict"])
        out = self.compared("a", "end")  # the end of a document is scored besides
        self.assertEqual(out["unit"], "byte")
        self.assertIn("other tokens were scored", out["remarks"][0])
        self.assertEqual(out["all"]["tokens_b"] - out["all"]["tokens_a"], out["all"]["documents"])
        self.assertEqual(out["differences"], [{"what": "end", "a": "no", "b": "yes"}])
        self.assertEqual(self.verdict("a", "end"), ["No verdict: the ends of documents were scored on one side only."])
        self.refused("a", "bare", 65, "[compare.other_tokens]")  # the first tokens are not scored: no text in common
        out = self.compared("bare", "bare-b")  # but the same tokens in both
        self.assertEqual((out["unit"], out["remarks"]), ("token", []))
        self.assertIsNone(out["all"]["bits_per_byte_a"])

    def test_a_text_whose_bytes_are_unknown_compares_per_word(self):
        draw = numpy.random.default_rng(3)
        with h5py.File(self.at("converted.h5"), "w") as file:
            lengths = draw.integers(2, 30, 12)
            tokens = draw.integers(0, self.VOCABULARY - 1, lengths.sum())
            tokens[numpy.cumsum(lengths) - 1] = self.VOCABULARY - 1  # each ends with the end-of-document token
            file["tokens"] = tokens.astype("uint16")
            file["doc_start"] = numpy.concatenate([[0], numpy.cumsum(lengths)])
            file["doc_words"] = lengths
            file.attrs["vocab_size"] = self.VOCABULARY
            file.attrs["eod_id"] = self.VOCABULARY - 1
        self.convert("converted.h5")
        self.score("word-a", "m1", "converted")
        self.score("word-b", "m2", "converted", keys=["score.end=yes"])
        out = self.compared("word-a", "word-b")
        self.assertEqual((out["unit"], out["all"]["bytes"], out["all"]["words"]), ("word", None, int(lengths.sum())))
        self.assertIn("per word", out["remarks"][0])
        self.assertAlmostEqual(out["all"]["ratio"], self.summary("word-b")["word_perplexity"] / self.summary("word-a")["word_perplexity"],
                               delta=1e-9)
        with h5py.File(self.at("converted.h5.foreign"), "r+") as file:
            del file["doc_words"]
        os.replace(self.at("converted.h5.foreign"), self.at("converted.h5"))
        self.convert("converted.h5")
        self.score("bare-words", "m2", "converted", keys=["score.end=yes"])
        self.refused("word-a", "bare-words", 65, "[compare.other_tokens]")

    def test_only_documents_that_were_scored_count(self):
        for name, model in (("oob-a", "m1"), ("oob-b", "m2")):
            self.score(name, model, "lines", "docs", keys=["score.select=out_of_bag", "run.member=3"])
        out = self.compared("oob-a", "oob-b")
        self.assertEqual(out["all"]["documents"], int((self.columns("oob-a")["tokens"] > 0).sum()))
        self.assertLess(out["all"]["documents"], 60)
        self.assertEqual(out["all"]["bytes"], self.summary("oob-a")["bytes"])
        self.refused("a", "oob-b", 65, "[compare.other_selection]", "score.select")
        self.score("oob-other", "m1", "lines", "docs", keys=["score.select=out_of_bag", "run.member=4"])
        self.refused("oob-a", "oob-other", 65, "[compare.other_texts]")

    def test_labels_that_differ_are_left_out(self):
        os.makedirs(self.at("relabelled"))
        rows = [dict(row) for row in self.rows]
        rows[3]["genre"] = "poetry"
        self.labelled("relabelled/docs", rows)
        self.score("relabelled-b", "m2", "lines", "relabelled/docs")
        out = self.compared("a", "relabelled-b")
        self.assertEqual(out["labels"], {})
        self.assertEqual(out["remarks"], ["label 'genre' differs, first for document 3 ('d3') of corpus 'docs': left out"])

    # ---- bagpipe-data table SCORE-RUN... ----

    def table(self, *words, status=0):
        result = run([program("bagpipe-data"), "table", *words])
        self.assertEqual(result.status, status, str(result))
        return result

    def test_the_table_of_scores_has_the_figures_of_the_summaries(self):
        rows = list(csv.DictReader(self.table(self.at("a"), self.at("b/score")).out.splitlines()))
        self.assertEqual([(row["scope"], row["name"]) for row in rows[:3]], [("all", ""), ("corpus", "lines"), ("corpus", "docs")])
        self.assertEqual([row["model"] for row in rows], [self.at("a")] * 6 + [self.at("b")] * 6)
        for row in rows:
            summary = self.summary(os.path.basename(row["model"]))
            want = {"all": summary, "corpus": summary["corpora"].get(row["name"]),
                    "label": summary["labels"].get(row["name"], {}).get(row["value"])}[row["scope"]]
            for key in ("documents", "tokens"):
                self.assertEqual(int(row[key]), want[key])
            for key in ("perplexity", "bits_per_byte", "word_perplexity"):
                self.assertAlmostEqual(float(row[key]) / want[key], 1, delta=1e-9)
                self.assertLess(float(row[key + "_low"]), want[key])
                self.assertGreater(float(row[key + "_high"]), want[key])
            half = (float(row["perplexity_high"]) - float(row["perplexity_low"])) / 2
            self.assertLess(abs(half / 1.96 / want["perplexity_stderr_documents"] - 1), 0.45)  # of 11 documents t is 2.23, and deviations are 5 % wider

    def test_forms_of_the_table_of_scores(self):
        rows = list(csv.DictReader(self.table(self.at("a"), self.at("b")).out.splitlines()))
        want = {(os.path.basename(row["model"]), (row["name"] + " " + row["value"]).strip() or "all"): row for row in rows}
        for form, figure in (("text", "perplexity"), ("markdown", "bits_per_byte"), ("latex", "word_perplexity")):
            out = self.table(self.at("a"), self.at("b"), "--form", form, "--figure", figure).out
            if form == "latex":
                self.assertTrue(out.startswith("\\begin{tabular}{lrrr}\n\\hline\nword perplexity") and out.endswith("\\hline\n\\end{tabular}\n"), out)
            lines = [line for line in out.splitlines() if "[" in line]
            self.assertEqual(len(lines), 6)
            for line in lines:
                name, documents, *cells = [x.strip(" |\\") for x in re.split({"text": "  +", "markdown": r" \| ", "latex": " & "}[form], line.strip("| ").removesuffix(r"\\"))]
                self.assertEqual((len(cells), documents), (2, want["a", name]["documents"]))
                for model, cell in zip("ab", cells):
                    row = want[model, name]
                    value, low, high = re.fullmatch(r"([\d.]+) \[([\d.]+), ([\d.]+)\]", cell).groups()
                    for text, key in ((value, figure), (low, figure + "_low"), (high, figure + "_high")):
                        self.assertEqual(text, f"{float(row[key]):.{len(text.partition('.')[2])}f}")
                    half = (float(row[figure + "_high"]) - float(row[figure + "_low"])) / 2
                    self.assertEqual(len(value.partition(".")[2]), max(0, min(6, 1 - math.floor(math.log10(half)))))
        self.assertEqual(self.table(self.at("a"), "--form", "csv").out, self.table(self.at("a")).out)

    def test_a_table_of_scores_is_drawn_with_error_bars(self):
        if not shutil.which("gnuplot"):
            self.skipTest("there is no gnuplot")
        rows = list(csv.DictReader(self.table(self.at("a"), self.at("b")).out.splitlines()))
        groups = {(row["scope"], row["name"], row["value"]) for row in rows}
        for name, begin in (("models.svg", b"<?xml"), ("models.png", b"\x89PNG")):
            drawn = self.table(self.at("a"), self.at("b"), "--figure", "bits_per_byte", "--out", self.at(name))
            self.assertEqual(drawn.out, "")
            with open(self.at(name), "rb") as file:
                picture = file.read()
            self.assertTrue(picture.startswith(begin))
        with open(self.at("models.svg"), encoding="utf-8") as file:
            svg = file.read()
        texts = re.findall(r"<text[^>]*>([^<]*)</text>", re.sub(r"</?tspan[^>]*>", "", svg))
        for name in ("bits a byte", "a", "b", *((f"{name} {value}".strip() or "all") for _, name, value in groups)):
            self.assertIn(name, [text.strip() for text in texts])
        for name, begin in (("models.tex", "\\begin{tabular}{lrrr}"), ("models.md", "| perplexity"), ("models.txt", "perplexity "), ("models.csv", "model,scope")):
            form = {"tex": "latex", "md": "markdown", "txt": "text", "csv": "csv"}[name.partition(".")[2]]
            self.assertEqual(self.table(self.at("a"), self.at("b"), "--out", self.at(name)).out, "")
            with open(self.at(name), encoding="utf-8") as file:
                written = file.read()
            self.assertTrue(written.startswith(begin), written)
            self.assertEqual(written, self.table(self.at("a"), self.at("b"), "--form", form).out)
        for more in (["--out", self.at("x.pdf")], ["--out", self.at("x.svg"), "--form", "text"]):
            self.assert_error(run([program("bagpipe-data"), "table", self.at("a"), *more]), 64, "[table.bad_ending]")
        for form, name in (("markdown", "models.tex"), ("csv", "models.md"), ("latex", "models.csv")):
            with open(self.at(name), encoding="utf-8") as file:
                before = file.read()
            self.assert_error(run([program("bagpipe-data"), "table", self.at("a"), "--form", form, "--out", self.at(name)]), 64, "[table.other_form]", form, name)
            with open(self.at(name), encoding="utf-8") as file:
                self.assertEqual(file.read(), before)
        self.table(self.at("a"), "--form", "latex", "--out", self.at("models.table"))

    def test_a_point_without_an_interval_has_no_error_bar(self):
        if not shutil.which("gnuplot"):
            self.skipTest("there is no gnuplot")
        self.labelled("handful", [row for row in self.rows if row["text"]][:9])
        self.score("of-few", "m1", "handful")
        for name in ("a", "of-few"):
            rows = list(csv.DictReader(self.table(self.at(name)).out.splitlines()))
            points, bars = (sum(row[key] != "" for row in rows) for key in ("perplexity", "perplexity_low"))
            self.assertEqual(bars > 0, name == "a")
            self.table(self.at(name), "--out", self.at("bars.svg"))
            with open(self.at("bars.svg"), encoding="utf-8") as file:
                svg = file.read()
            self.assertEqual(len(re.findall(r"<use xlink:href=.#gpPt6.", svg)), points + 1)  # and the key's
            self.assertEqual(max(path.count("M") for path in re.findall(r"<path [^>]*?d='([^']*)'", svg)), 3 * (bars + 1), svg)  # a line and two ends each

    def test_a_figure_that_no_run_has_is_not_drawn(self):
        with open(self.at("ids.bin"), "wb") as file:
            file.write(bytes(b for k in range(40) for b in (1 + k % 9, 0)))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "nanogpt", "--out", self.at("ids.h5"), self.at("ids.bin")])
        self.score("ids", "m1", "ids")
        for figure in ("bits_per_byte", "word_perplexity"):
            result = run([program("bagpipe-data"), "table", self.at("ids"), "--figure", figure, "--out", self.at("none.svg")])
            self.assert_error(result, 65, "[table.no_figure]", figure)
        self.assertFalse(os.path.exists(self.at("none.svg")))

    def test_a_text_under_two_names_is_one_row(self):
        """The row has the first name; another text of as many documents has a row of its own, of as many bytes and words too."""
        texts = [{"text": row["text"], "genre": "x"} for row in self.rows[:12]]
        for name, rows in (("one-name", texts), ("other-name", texts), ("other-text", [{**row, "text": row["text"] + " more"} for row in texts]),
                           ("other-order", [{**row, "text": row["text"][::-1]} for row in texts])):
            self.labelled(name, rows)
        for name, model, corpus in (("named-1", "m1", "one-name"), ("named-2", "m2", "other-name"), ("named-3", "m2", "other-text"), ("named-4", "m1", "other-order")):
            self.score(name, model, corpus)
        rows = [row for row in csv.DictReader(self.table(*(self.at(f"named-{k}") for k in (1, 2, 3, 4))).out.splitlines()) if row["scope"] == "corpus"]
        self.assertEqual([row["name"] for row in rows], ["one-name", "one-name", "other-text", "other-order"])

    def test_head_is_of_files(self):
        self.assert_error(run([program("bagpipe-data"), "table", self.at("a"), "--head", "2"]), 64, "[table.bad_form]", "--head")

    def test_contexts_of_models_of_counts(self):
        """A 3-gram reads two tokens, whatever its window: compare, the table and the page say so, and no number of parameters."""
        self.must(["bagpipe", "pretrain", f"run.dir={self.at('three')}", f"corpus.train={self.at('valid.h5')}", "model.kind=ngram", "ngram.order=3"])
        self.labelled("twelve", self.rows[:12])
        self.score("by-three", "three", "twelve")
        self.score("by-gpt", "m1", "twelve")
        self.assertIn("2 (order 3)", self.compare("by-three", "by-gpt").out)
        self.assertIn("a token is predicted from at most 2 tokens (order 3) by by-three, 32 tokens by by-gpt", self.table(self.at("by-three"), self.at("by-gpt"), "--form", "text").out)
        with open(self.at("by-three/score/index.html"), encoding="utf-8") as file:
            self.assertIn("context 2 tokens (order 3)", file.read())
        with open(self.at("by-three/score/summary.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["convention"]["order"], 3)
        with open(self.at("three/run.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["parameters"], 0)
        self.must(["bagpipe", "pretrain", f"run.dir={self.at('of-cells')}", f"corpus.train={self.at('valid.h5')}", "model.kind=rnn", "model.layers=1", "model.width=8",
                   "model.context=16", "train.batch=2", "train.steps=1"])
        self.score("by-cells", "of-cells", "twelve")
        for runs in (("by-three", "by-cells"), ("by-cells", "by-three")):  # the setting that only one of them has
            self.assertIn("between the scores: order: a token is predicted from at most", self.table(*map(self.at, runs), "--form", "text").out)

    def test_what_a_table_of_scores_does_not_compare(self):
        self.labelled("few", [row for row in self.rows if row["text"]][:9])
        self.score("few-a", "m1", "few", keys=["score.context=16"])
        result = self.table(self.at("a"), self.at("few-a"), "--form", "text")
        self.assertTrue(result.out.endswith("; no interval of fewer than 10 documents\n"), result.out)
        self.assertIn("context, stride: a token is predicted from at most 32 tokens by", result.out)
        self.assertEqual(result.err, "")  # the table has it; a table in a file is not seen
        self.assert_warning(self.table(self.at("a"), self.at("few-a"), "--out", self.at("few.tex")), "[table.other_conventions]")
        few = next(line for line in result.out.splitlines() if line.startswith("few"))
        self.assertRegex(few, r"^few +9 +- +[\d.]+$")  # a has no such corpus; 9 documents have no interval
        self.assertNotIn("[table.other_conventions]", str(self.table(self.at("a"), self.at("b"))))
        for more in (["--form", "npy"], ["--figure", "loss"]):
            self.assert_error(run([program("bagpipe-data"), "table", self.at("a"), *more]), 64, "[table.bad_")
        self.assert_error(run([program("bagpipe-data"), "table", self.at("m1"), "--form", "text"]), 64, "[table.bad_form]")

    def test_corpora_have_their_names_in_tables(self):
        rows = list(csv.DictReader(self.table(os.path.join(self.at("a"), "score", "documents.h5")).out.splitlines()))
        lines = self.summary("a")["corpora"]["lines"]["documents"]
        self.assertEqual([row["corpus"] for row in rows], ["lines"] * lines + ["docs"] * 40)
        with h5py.File(os.path.join(self.at("a"), "score", "documents.h5")) as file:
            self.assertEqual(list(file["corpus_first_document"][:]), [0, lines, lines + 40])
            self.assertEqual(list(file["corpus_start"][:]), [0, lines, lines + 40])
        self.score("named", "m1", "lines", "docs", keys=["score.tokens=yes"])
        path = os.path.join(self.at("named"), "score", "tokens.h5")
        rows = list(csv.DictReader(self.table(path).out.splitlines()))
        with h5py.File(path) as file:
            self.assertEqual([x.decode() for x in file["corpus_names"][:]], ["lines", "docs"])
            first = file["corpus_first_entry"][:]
            numpy.testing.assert_array_equal(first, file["corpus_start"][:])
        self.assertEqual([row["corpus"] for row in rows], ["lines"] * first[1] + ["docs"] * (first[2] - first[1]))

    def test_records_that_nobody_called_records_are_warned_of(self):
        words = ["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--out", self.at("whole.h5"), self.at("docs.jsonl")]
        self.assert_warning(self.must(words), "[corpus.no_format]", "docs.jsonl", "--format jsonl")
        self.assert_warning(self.must([*words, "--format", "text"]), "[corpus.no_format]", times=0)

    # ---- refusals ----

    def test_other_texts_are_refused(self):
        def changed(k, **new):
            rows = [dict(row) for row in self.rows]
            rows[k].update(new)
            return rows

        text = self.rows[5]["text"]
        cases = {"bytes": (changed(5, text=text + "."), "'d5'", "'docs'"),
                 "words": (changed(5, text=text.replace(" ", "_", 1)), " words "),
                 "tokens": (changed(5, text="".join("q" if c.isalpha() else c for c in text)), " tokens "),
                 "count": (self.rows[:-1], "'docs'", "40", "39")}
        for name, (rows, *words) in cases.items():
            os.makedirs(self.at(name))
            self.labelled(f"{name}/docs", rows)
            self.score("other-" + name, "m2", "lines", f"{name}/docs")
            self.refused("a", "other-" + name, 65, "[compare.other_texts]", *words)
        self.score("fewer", "m2", "lines")
        self.refused("a", "fewer", 65, "[compare.other_texts]", "2", "1")

    def test_corpora_are_matched_by_content(self):
        """In any order, under other names, with other ids of documents: the figures are those of equal names."""
        want = self.compared("a", "b")
        self.score("swapped", "m2", "docs", "lines")
        got = self.compared("a", "swapped")
        self.assertEqual({k: got[k] for k in ("all", "corpora", "labels", "remarks")}, {k: want[k] for k in ("all", "corpora", "labels", "remarks")})
        shutil.copy(self.at("lines.txt"), self.at("copy.txt"))
        self.corpus("tokenizer.json", "copy", "copy.txt", "lines")  # ids are "copy.txt:1", not "lines.txt:1"
        rows = [dict(row, id="x" + row["id"]) for row in self.rows]
        os.makedirs(self.at("renamed"))
        self.labelled("renamed/docs", rows)
        self.score("renamed-b", "m2", "renamed/docs", "copy")
        got = self.compared("a", "renamed-b")
        self.assertEqual({k: got[k] for k in ("all", "corpora", "labels")}, {k: want[k] for k in ("all", "corpora", "labels")})
        self.assertEqual(len(got["remarks"]), 2)
        self.assertIn("corpus 'lines' of A is 'copy' in B", got["remarks"][0])
        self.assertIn("ids differ, first of document 0 ('d0')", got["remarks"][1])

    def test_other_texts_of_equal_counts_are_refused(self):
        """Lines of documents in another order: equal ids, bytes, words and numbers of tokens."""
        rows = [dict(row) for row in self.rows]
        first = next(k for k in range(5, 40) if len(set(rows[k]["text"].split("\n"))) > 1)
        for row in rows[first:]:
            row["text"] = "\n".join(reversed(row["text"].split("\n")))
        os.makedirs(self.at("turned"))
        self.labelled("turned/docs", rows)
        self.score("turned-b", "m2", "lines", "turned/docs")
        for key in ("tokens", "bytes", "words"):
            numpy.testing.assert_array_equal(self.columns("turned-b")[key], self.columns("b")[key])
        self.refused("a", "turned-b", 65, "[compare.other_texts]", f"'d{first}'", "'docs'")
        self.assertEqual(self.compared("a", "b")["texts_checked_by"], "token_hash")

    def test_hashes_are_of_the_text_alone(self):
        """Not of what was scored of it. The table prints them whole."""
        self.score("ended", "m2", "lines", "docs", keys=["score.end=yes", "score.context=16", "score.select=out_of_bag", "run.member=3"])
        hashes = []
        for name in ("a", "ended"):
            path = os.path.join(self.at(name), "score", "documents.h5")
            with h5py.File(path) as file:
                hashes.append(file["token_hash"][:])
                self.assertEqual(file["token_hash"].dtype, numpy.dtype("uint64"))
            rows = list(csv.DictReader(run([program("bagpipe-data"), "table", path]).out.splitlines()))
            self.assertEqual([int(row["token_hash"]) for row in rows], [int(x) for x in hashes[-1]])
        numpy.testing.assert_array_equal(*hashes)
        self.assertGreater(hashes[0].max(), 2 ** 63)

    def test_what_is_no_score_folder_is_refused(self):
        self.refused("a", "m1", 66, "[scores.missing]")
        self.refused("nothing", "a", 66, "[scores.missing]")
        broken = self.at("broken")
        shutil.copytree(os.path.join(self.at("b"), "score"), broken)
        os.remove(os.path.join(broken, "documents.h5"))
        self.refused("a", "broken", 66, "[file.missing]")
        with open(os.path.join(self.at("b"), "score", "documents.h5"), "rb") as file:
            data = bytearray(file.read())
        data[len(data) // 2] ^= 1
        with open(os.path.join(broken, "documents.h5"), "wb") as file:
            file.write(data)
        self.refused("a", "broken", 65, "[h5.damaged]")
        shutil.copy(os.path.join(self.at("a"), "score", "documents.h5"), broken)
        self.refused("a", "broken", 65, "[scores.not_of_one_run]")
        shutil.copy(self.at("docs.h5"), os.path.join(broken, "documents.h5"))
        self.refused("a", "broken", 65, "[h5.wrong_kind]", "'score-documents'")

    def test_the_command_line(self):
        for more, *words in ((["--resamples", "99"], "[command.bad_number]", "--resamples"), (["--seed", "x"], "[command.bad_number]", "--seed"),
                             (["third"], "[command.wrong_count]", "3"), (["--nonsense"], "[command.not_understood]", "--nonsense"),
                             (["--csv", self.at("x"), "--json", self.at("x")], "[command.same_output]", "--csv", "--json"),
                             (["--csv", os.path.join(self.at("a"), "score", "documents.h5")], "[command.same_output]"),
                             (["--json", os.path.join(self.at("b"), "score", "summary.json")], "[command.same_output]")):
            self.refused("a", "b", 64, *words, more=more)
        for option in ("--csv", "--json"):
            self.refused("a", "b", 73, "[file.no_folder]", more=(option, self.at("none/x")))
        shown = run([program("bagpipe-data"), "compare", "--help"])
        self.assertEqual(shown.status, 0)
        for word in ("--csv", "--json", "--seed", "--resamples", "B / A", "Exit status"):
            self.assertIn(word, shown.out)


if __name__ == "__main__":
    bagpipe_test.main()
