"""score.cluster: intervals over documents that share a label's value are numpy's, equal at any number of ranks; compare and table follow."""
import csv
import json
import math
import pathlib
import random

import bagpipe_test
import numpy
import scipy.stats
import test_finetune
from bagpipe_test import digests, program, read_json, run
from test_finetune import GPT, MODEL

SOURCES = 14


def expanded(documents):
    """The lower percentile of resamples of so many."""
    return scipy.stats.norm.cdf(scipy.stats.t.ppf(0.025, documents - 1) * math.sqrt(documents / (documents - 1)))


class ScoreClusters(test_finetune.TaskTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        draw = random.Random(8)
        cls.rows = []
        for k in range(SOURCES):  # passages of a source are of its length and topic, mostly
            kind = draw.choice(["sea", "wood", "town"])
            cls.rows += [{"text": test_finetune.document(draw, draw.choice([kind, kind, "sea"]), 5 + 2 * (k % 7)), "topic": kind, "source": f"s{k}",
                          "genre": "xyz"[k % 3]} for _ in range(1 + k % 6)]
        draw.shuffle(cls.rows)
        cls.rows[20]["source"] = ""  # a source of its own
        cls.corpora = ",".join([cls.corpus("part-a", cls.rows[:18]), cls.corpus("part-b", cls.rows[18:])])
        names = [row["source"] or "alone" for row in cls.rows]
        cls.cluster = numpy.array([sorted(set(names)).index(name) for name in names])
        cls.clusters = len(set(names))
        cls.write("lm.ini", f"[corpus]\ntrain = {cls.at('train.h5')}\n[train]\nsteps = 6\nbatch = 4\n[math]\nprecision = f32\n")
        cls.write("score.ini", "[math]\nprecision = f32\n")
        cls.must(["bagpipe", "pretrain", cls.at("lm.ini"), f"run.dir={cls.at('lm')}", *GPT])
        for name, *keys in (("alone",), ("over", "score.cluster=source"), ("again", "score.cluster=source", "run.seed=5")):
            cls.must(["bagpipe", "score", cls.at("score.ini"), f"run.dir={cls.at(name)}", f"score.model={cls.at('lm')}", f"score.corpus={cls.corpora}",
                      *keys])

    def score(self, name, model, *keys, ranks=0, corpora=None):
        return run([program("bagpipe"), "score", self.at("score.ini"), f"run.dir={self.at(name)}", f"score.model={model}",
                    f"score.corpus={corpora or self.corpora}", *keys], ranks)

    def summary(self, name):
        return read_json(self.at(name), "score", "summary.json")

    def documents(self, name):
        import h5py
        with h5py.File(self.at(name) + "/score/documents.h5") as file:
            return file["nll"][:], file["tokens"][:].astype(float)

    def counts(self, of, resamples=20000):
        """How often each document comes in resamples of the clusters among `of`, which is a mask."""
        numbers, local = numpy.unique(self.cluster[of], return_inverse=True)
        n = len(numbers)
        return numpy.random.default_rng(1).multinomial(n, [1 / n] * n, size=resamples)[:, local], n

    def test_errors_of_perplexities_are_over_clusters(self):
        alone, over = self.summary("alone"), self.summary("over")
        nll, tokens = self.documents("over")
        self.assertEqual((over["cluster"], over["clusters"], over["documents"]), ("source", self.clusters, len(self.rows)))
        self.assertEqual((alone.get("cluster"), alone.get("clusters")), (None, None))
        parts = numpy.arange(len(self.rows)) < 18
        genre = numpy.array([row["genre"] for row in self.rows])
        for figures, before, of in ((over, alone, parts | True), (over["corpora"]["part-a"], alone["corpora"]["part-a"], parts),
                                    (over["labels"]["genre"]["x"], alone["labels"]["genre"]["x"], genre == "x")):
            counts, n = self.counts(of)
            want = numpy.exp((counts * nll[of]).sum(1) / (counts * tokens[of]).sum(1)).std()
            self.assertEqual(figures["clusters"], n)
            self.assertLess(abs(figures["perplexity_stderr_clusters"] / want - 1), 0.1)  # the deviation of 1,000: 2 %
            self.assertNotIn("perplexity_stderr_documents", figures)
            for key in ("perplexity", "perplexity_stderr", "documents", "tokens"):
                self.assertEqual(figures[key], before[key])
        page = pathlib.Path(self.at("over"), "score", "index.html").read_text(encoding="utf-8")
        self.assertIn(f"standard errors and intervals are over these {self.clusters} clusters", page)
        self.assertNotIn("clusters.</p>", pathlib.Path(self.at("alone"), "score", "index.html").read_text(encoding="utf-8"))

    def test_any_number_of_ranks_gives_the_same_bytes(self):
        for ranks in (2, 3):
            result = self.score(f"over{ranks}", self.at("lm"), "score.cluster=source", ranks=ranks)
            self.assertEqual(result.status, 0, str(result))
            self.assertIn(f"those with one value of the label source: {self.clusters} clusters", result.out)
            for file in ("summary.json", "documents.h5"):
                self.assertEqual(*(pathlib.Path(self.at(name), "score", file).read_bytes() for name in ("over", f"over{ranks}")))

    def compared(self, a, b):
        result = run([program("bagpipe-data"), "compare", self.at(a), self.at(b), "--json", self.at("out.json")])
        self.assertEqual(result.status, 0, str(result))
        return result.out, read_json(self.at("out.json"))

    def test_compare_pairs_clusters(self):
        self.must(["bagpipe", "pretrain", self.at("lm.ini"), f"run.dir={self.at('lm2')}", "run.seed=2", *GPT])
        for name, keys in (("other", ()), ("other-over", ("score.cluster=source",))):
            self.assertEqual(self.score(name, self.at("lm2"), *keys).status, 0)
        (nll, tokens), (nll2, _) = self.documents("alone"), self.documents("other")
        plain, before = self.compared("alone", "other")
        self.assertNotIn("cluster", before)
        self.assertIn("paired resamples of documents", plain)
        counts, n = self.counts(tokens > -1)
        low, high = numpy.quantile((counts * (nll2 - nll)).sum(1) / (counts * tokens).sum(1), [expanded(n), 1 - expanded(n)])
        sums = [numpy.bincount(self.cluster, each) for each in (nll2 - nll, tokens)]
        t = scipy.stats.ttest_1samp(sums[0] - sums[0].sum() / sums[1].sum() * sums[1] + sums[0].mean(), 0)  # Cochran's linear term
        for a, b, said in (("over", "other-over", ""), ("over", "other", "of A, documents with one value of 'source'"),
                           ("alone", "other-over", "of B, documents with one value of 'source'")):
            text, out = self.compared(a, b)
            self.assertEqual((out["cluster"], out["clusters"]), ("source", n))
            self.assertIn("paired resamples of clusters of documents", text)
            self.assertIn(said, text)
            self.assertEqual("A and B differ in score.cluster" in text, said != "")
            self.assertEqual(out["all"]["difference"], before["all"]["difference"])
            for end, want in (("difference_low", low), ("difference_high", high)):
                self.assertLess(abs(out["all"][end] - want), 0.12 * (high - low), end)
            self.assertLess(abs(out["all"]["p_value"] - t.pvalue), 1e-9)
            self.assertIsNone(out["labels"]["genre"]["x"]["ratio_low"])  # of five sources
        text = run([program("bagpipe-data"), "compare", self.at("over"), "--between", "genre"]).out
        self.assertIn("not over the clusters of score.cluster (source)", text)

    def test_table_has_intervals_over_clusters(self):
        nll, tokens = self.documents("over")
        counts, n = self.counts(tokens > -1)
        low, high = numpy.quantile(numpy.exp((counts * nll).sum(1) / (counts * tokens).sum(1)), [expanded(n), 1 - expanded(n)])
        out = run([program("bagpipe-data"), "table", self.at("over")])
        rows = list(csv.DictReader(out.out.splitlines()))
        for end, want in (("perplexity_low", low), ("perplexity_high", high)):
            self.assertLess(abs(float(rows[0][end]) - want), 0.12 * (high - low), end)
        for row in rows:
            self.assertEqual(row["perplexity_low"] == "", row["scope"] == "label" or row["name"] != "" and
                             self.summary("over")["corpora"][row["name"]]["clusters"] < 10, row)
        for names, words in ((["over", "again"], "intervals are over clusters of documents with one value of 'source'"),
                             (["over", "alone"], "intervals do not compare: they are over clusters of 'source' of over, documents of alone")):
            self.assertIn(words, run([program("bagpipe-data"), "table", *map(self.at, names), "--form", "text"]).out.replace("\n", " "))

    def check_share(self, figure, right, of):
        counts, n = self.counts(of)
        low, high = numpy.quantile((counts * right[of]).sum(1) / counts.sum(1), [expanded(n), 1 - expanded(n)])
        self.assertAlmostEqual(figure["value"], right[of].mean(), 12)
        for end, want in (("low", low), ("high", high)):
            self.assertLess(abs(figure[end] - want), 0.12 * (high - low), end)
        return n

    def test_figures_of_a_task_are_over_clusters(self):
        tuned = self.tuned("tuned", 0, *MODEL, "train.steps=15")
        for name, keys, ranks in (("task", (), 0), ("task-over", ("score.cluster=source",), 0), ("task-over2", ("score.cluster=source",), 2)):
            result = self.score(name, tuned, *keys, ranks=ranks)
            self.assertEqual(result.status, 0, str(result))
        alone, over = self.summary("task"), self.summary("task-over")
        self.assertEqual(*(pathlib.Path(self.at(name), "score", "summary.json").read_bytes() for name in ("task-over", "task-over2")))
        with open(self.at("task-over") + "/score/predictions.csv", encoding="utf-8", newline="") as file:
            right = numpy.array([row["label"] == row["prediction"] for row in csv.DictReader(file)], float)
        n = self.check_share(over["task"]["accuracy"], right, right > -1)
        self.assertEqual((over["cluster"], over["clusters"], n), ("source", n, self.clusters))
        wilson = scipy.stats.binomtest(int(right.sum()), len(right)).proportion_ci(method="wilson")
        self.assertAlmostEqual(alone["task"]["accuracy"]["low"], wilson.low, 9)
        width = [figures["task"]["accuracy"]["high"] - figures["task"]["accuracy"]["low"] for figures in (over, alone)]
        self.assertGreater(width[0], width[1])
        self.assertIn(f"intervals are over these {n} clusters", pathlib.Path(self.at("task-over"), "score", "index.html").read_text(encoding="utf-8"))
        few = self.score("task-few", tuned, "score.cluster=genre")
        self.assertIn("label genre: 3 clusters, too few for intervals", few.out)
        self.assertTrue(all(figure["low"] is None for figure in self.summary("task-few")["task"].values() if isinstance(figure, dict)))
        number = self.tuned("number", 0, *MODEL, "task.kind=regression", "task.label=length", "train.steps=1")
        lengths = self.corpus("lengths", [{**row, "length": str(len(row["text"].split()))} for row in self.rows])
        self.assertEqual(self.score("values", number, "score.cluster=source", corpora=lengths).status, 0)
        with open(self.at("values") + "/score/predictions.csv", encoding="utf-8", newline="") as file:
            off = numpy.array([abs(float(row["label"]) - float(row["prediction"])) for row in csv.DictReader(file)])
        self.check_share(self.summary("values")["task"]["mae"], off, off > -1)

    def test_choices_are_over_clusters(self):
        lines = "".join(json.dumps({"choices": [" ship", " tree house", " the"], "answer": k % 3}) + "\n" for k in range(len(self.rows)))
        choices = self.write("choices.jsonl", lines)
        self.assertEqual(self.score("choices", self.at("lm"), "score.cluster=source", f"score.candidates={choices}").status, 0)
        with open(self.at("choices") + "/score/candidates.jsonl", encoding="utf-8") as file:
            right = numpy.array([json.loads(line)["best"] == k % 3 for k, line in enumerate(file)], float)
        self.check_share(self.summary("choices")["candidates"]["accuracy"], right, right > -1)

    def test_a_label_of_many_values_is_hinted_at(self):
        many = self.corpus("many", [{**row, "book": f"b{k // 2}"} for k, row in enumerate(self.rows + self.rows[:3])])
        hinted = self.score("hinted", self.at("lm"), corpora=many)
        self.assertIn("values of 'book'", hinted.out)
        self.assertIn("score.cluster=book", hinted.out)
        self.assertNotIn("score.cluster", self.score("followed", self.at("lm"), "score.cluster=book", corpora=many).out.replace("score.cluster = book", ""))
        few = self.corpus("few", [{**row, "source": row["source"][:2]} for row in self.rows])  # eleven of them: with rows of their own
        self.assertNotIn("score.cluster=", self.score("few-values", self.at("lm"), corpora=few).out)

    def ensemble(self, name, *keys, ranks=0):
        return run([program("bagpipe"), "ensemble", self.at("lm.ini"), f"run.dir={self.at(name)}", f"corpus.train={self.corpora}", *GPT,
                    "ensemble.members=3", "ensemble.kind=bag", "optimizer.decay=constant", *keys], ranks)

    def outside(self, name, member):
        nll, tokens = self.documents(f"{name}/members/{member}/oob")
        return tokens > 0

    def test_a_bag_has_all_documents_of_a_source_or_none(self):
        one = self.ensemble("bags", "ensemble.cluster=source")
        self.assertEqual(one.status, 0, str(one))
        self.assertEqual(self.ensemble("begun", "ensemble.cluster=source", "train.steps=3").status, 0)
        for name in ("begun", "bags2"):  # goes on, and begins anew, on other meshes
            result = self.ensemble(name, "ensemble.cluster=source", "mesh.members=2", ranks=2)
            self.assertEqual(result.status, 0, str(result))
            self.assertEqual(*(pathlib.Path(self.at(other), "ensemble.json").read_bytes() for other in ("bags", name)))
        self.assertEqual(self.ensemble("plain").status, 0)
        whole = {"bags": 0, "plain": 0}
        for member in ("m00", "m01", "m02"):
            for name in ("begun", "bags2"):
                self.assertEqual(*(digests(self.at(f"{other}/members/{member}")) for other in ("bags", name)))
                self.assertEqual(self.outside("bags", member).tolist(), self.outside(name, member).tolist())
            for name in whole:
                out = self.outside(name, member)
                whole[name] += all(len(set(out[self.cluster == k])) == 1 for k in range(self.clusters))
            summary = read_json(self.at(f"bags/members/{member}/oob"), "score", "summary.json")
            out = self.outside("bags", member)
            self.assertEqual((summary["cluster"], summary["clusters"]), ("source", len(set(self.cluster[out]))))
            log = pathlib.Path(self.at(f"bags/members/{member}"), "log.txt").read_text(encoding="utf-8")
            self.assertIn(f"the bag has {self.clusters - len(set(self.cluster[out]))} of {self.clusters} clusters", log)
        self.assertEqual(whole["bags"], 3)
        self.assertLess(whole["plain"], 3)
        counts = ["model.kind=ngram", "ngram.order=2"]
        result = run([program("bagpipe"), "ensemble", f"corpus.train={self.corpora}", f"run.dir={self.at('counts')}", "ensemble.members=2",
                      "ensemble.cluster=source", self.at("score.ini"), *counts])
        self.assertEqual(result.status, 0, str(result))
        out = self.outside("counts", "m01")
        self.assertTrue(all(len(set(out[self.cluster == k])) == 1 for k in range(self.clusters)))

    def test_bags_of_clusters_that_can_not_be_drawn_are_refused(self):
        for ranks in (0, 2):
            self.assert_error(self.ensemble("no-label", "ensemble.cluster=book", ranks=ranks), 65, "[label.unknown]", "--label book")
        self.assert_error(self.ensemble("seeds", "ensemble.cluster=source", "ensemble.kind=seed"), 78, "[ensemble.no_bags]", "ensemble.cluster")
        self.assert_error(self.ensemble("both", "ensemble.cluster=source", "corpus.cluster=genre"), 78, "[ensemble.contradiction]")
        same = self.corpus("same", [{**row, "source": "s"} for row in self.rows])
        self.assert_error(self.ensemble("same-source", "ensemble.cluster=source", f"corpus.train={same}"), 65, "[corpus.too_few_documents]")
        plain = run([program("bagpipe"), "pretrain", self.at("lm.ini"), f"run.dir={self.at('no-bag')}", "corpus.cluster=topic", "train.steps=1", *GPT])
        self.assert_warning(plain, "[config.unused_key]", "corpus.cluster")

    def test_documents_out_of_another_bag_are_warned_of(self):
        self.must(["bagpipe", "pretrain", self.at("lm.ini"), f"run.dir={self.at('bag')}", f"corpus.train={self.corpora}", "corpus.resample=bag",
                   "corpus.cluster=source", *GPT])
        for ranks in (0, 2):
            other = self.score(f"other-bag{ranks}", self.at("bag"), "score.select=out_of_bag", ranks=ranks)
            self.assert_warning(other, "[score.other_bag]", "corpus.cluster = source", "none")
            same = self.score(f"same-bag{ranks}", self.at("bag"), "score.select=out_of_bag", "corpus.cluster=source", ranks=ranks)
            self.assertEqual(same.status, 0, str(same))
            self.assertNotIn("[score.other_bag]", str(same))

    def test_what_can_not_be_clustered_is_refused(self):
        for ranks in (0, 2):
            self.assert_error(self.score("none", self.at("lm"), "score.cluster=book", ranks=ranks), 65, "[label.unknown]", "it has", "--label book")
        self.assert_error(self.score("one", self.at("lm"), "score.cluster=source", corpora=f"{self.corpora},{self.at('train.h5')}"), 65,
                          "[label.unknown]", "train.h5")
        self.assert_error(self.score("vectors", self.at("lm"), "score.cluster=source", "score.vectors=mean"), 78, "[score.vectors_alone]")


if __name__ == "__main__":
    bagpipe_test.main()
