"""Uncertainty of classifiers: figures are those of what each method says of each document; texts without a class that the models know are
shifted; an ensemble of equal models is its member; the same at any number of data ranks."""
import json
import os
import pathlib

import bagpipe_test
import h5py
import numpy
import sklearn.metrics
import test_finetune
from bagpipe_test import read_json, run
from test_finetune import MODEL


class UncertaintyTask(test_finetune.TaskTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("empty.ini", "[run]\nseed = 1\n")

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
        keys = [f"uncertainty.shifted={self.at('strange.h5')},{self.at('bare.h5')}", f"corpus.valid={self.at('valid.h5')}",
                f"corpus.train={self.at('train.h5')}", "uncertainty.dropconnect=0.5"]
        summary = self.studied("methods", models, *keys)
        scored = run([bagpipe_test.program("bagpipe"), "score", f"run.dir={self.at('alone')}", f"score.model={tuned[0]}",
                      f"score.corpus={self.at('valid.h5')}", self.at("empty.ini")])
        self.assertEqual(scored.status, 0, str(scored))
        one = read_json(self.at("alone"), "score", "summary.json")
        self.assertEqual(summary["predictions"], "documents")
        known = 30
        for method, got in summary["methods"].items():
            told = self.outcomes("methods", method)
            self.assertTrue(numpy.isnan(told["logprob"][known:]).all())
            self.assertFalse(numpy.isnan(told["total_entropy"]).any())
            for figure, want in (("nll", -told["logprob"][:known].mean()), ("accuracy", told["correct"][:known].mean()),
                                 ("brier", told["brier"][:known].mean())):
                self.assertAlmostEqual(got[figure], want, 7, (method, figure))
            self.assertLessEqual(got["temperature_nll"], got["temperature_nll_before"] + 1e-9)
            self.assertAlmostEqual(got["temperature_nll_before"], got["nll"], 5)
            self.assertEqual(got["temperature_tokens"], known)
            for k, shift in enumerate(("strange", "bare")):
                for score, values in (("entropy", told["total_entropy"]), ("confidence", -numpy.log(told["confidence"])),
                                      ("mutual_information", told["mutual_information"])):
                    scores = numpy.concatenate([values[:known], values[known + 20 * k:known + 20 * (k + 1)]])
                    auroc = sklearn.metrics.roc_auc_score([0] * known + [1] * 20, scores)
                    if method != "one" or score != "mutual_information":
                        self.assertAlmostEqual(got["ood"][shift]["auroc"][score], auroc, 6, (method, shift, score))
        self.assertAlmostEqual(summary["methods"]["one"]["nll"], one["nll_nats"] / known, 12)
        self.assertEqual(summary["methods"]["one"]["accuracy"], one["task"]["accuracy"]["value"])
        a, b = (self.outcomes("methods", method) for method in ("one", "same"))
        for column in ("logprob", "total_entropy", "brier", "confidence"):
            numpy.testing.assert_array_equal(a[column], b[column])
        self.assertEqual(b["mutual_information"].max(), 0)
        self.assertGreater(self.outcomes("methods", "pair")["mutual_information"].min(), 0)
        for method in ("drop", "weights", "last"):
            self.assertGreater(self.outcomes("methods", method)["mutual_information"].max(), 1e-7)
        self.assertGreater(summary["methods"]["last"]["fit_seconds"], 0)
        self.studied("methods-two", models.replace(f", last={tuned[0]}:laplace", ""), *keys, ranks=2)
        for method in ("one", "pair", "drop", "weights"):
            for column, values in self.outcomes("methods-two", method).items():
                numpy.testing.assert_array_equal(values, self.outcomes("methods", method)[column])
        self.studied("methods-four", f"pair={pair}", keys[0], "mesh.members=2", "mesh.tensor=2", ranks=4)
        for column, values in self.outcomes("methods-four", "pair").items():
            numpy.testing.assert_allclose(values, self.outcomes("methods", "pair")[column], atol=2e-6, rtol=2e-5)

    def test_what_can_not_be_compared_is_refused(self):
        tuned = self.tuned("other-classes", 0, *MODEL, "train.steps=1")
        number = self.tuned("a-number", 0, *MODEL, "task.kind=regression", "task.label=length", "train.steps=1")
        self.corpus("moons", [{"text": "the ship", "topic": topic} for topic in ("sea", "moon")])
        keys = [f"uncertainty.in_domain={self.at('moons.h5')}"]
        self.assert_error(self.study("moon-study", f"one={tuned}", *keys), 65, "[comparison.unknown_class]")
        self.assert_error(self.study("number-study", f"one={number}"), 78, "[comparison.no_distribution]")
        more = run([bagpipe_test.program("bagpipe"), "finetune", self.at("tune.ini"), f"run.dir={self.at('two')}", *test_finetune.TUNE, *MODEL,
                    "task.label=length", "train.steps=1"])
        self.assertEqual(more.status, 0, str(more))
        self.assert_error(self.study("two-tasks", f"one={tuned}, two={self.at('two')}"), 65, "[comparison.unlike_tasks]")


if __name__ == "__main__":
    bagpipe_test.main()
