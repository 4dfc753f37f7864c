"""model.weights=q8: scores near those of float32 weights and equal on all meshes, texts likewise, what a run records, and what is refused."""
import json
import os
import re

import bagpipe_test
from bagpipe_test import program, read_json, run
from generate_test import GenerateTest


class Weights(GenerateTest):
    """A model whose tensor ranks have whole blocks of 32."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.at('wide')}", "model.width=64", "model.heads=2", "math.precision=f32"])
        cls.write("score.ini", f"[score]\nmodel = {cls.at('wide')}\ncorpus = {cls.at('valid.h5')}\n[math]\nprecision = f32\nthreads = 1\n")

    def scored(self, name, ranks=0, *keys):
        result = run([program("bagpipe"), "score", self.at("score.ini"), f"run.dir={self.at(name)}", *keys], ranks)
        self.assertEqual(result.status, 0, str(result))
        return read_json(self.at(name), "score", "summary.json")

    def test_scores_are_near_and_equal_on_all_meshes(self):
        plain, want = self.scored("plain"), self.scored("q8", 0, "model.weights=q8")
        self.assertNotIn("weights", plain["model"])
        self.assertEqual(want["model"]["weights"], "q8")
        self.assertNotEqual(want["nll_nats"], plain["nll_nats"])
        self.assertLess(abs(want["perplexity"] / plain["perplexity"] - 1), 1e-3)
        self.assertEqual(self.scored("data", 2, "model.weights=q8")["nll_nats"], want["nll_nats"])
        got = self.scored("both", 4, "model.weights=q8", "mesh.tensor=2", "mesh.pipeline=2")
        self.assertLess(abs(got["nll_nats"] / want["nll_nats"] - 1), 1e-6)

    def test_texts_are_equal_on_all_meshes_and_batches(self):
        keys = (f"generate.model={self.at('wide')}", "model.weights=q8")
        alone = self.made("text", 0, *keys)
        self.assertEqual(json.loads(self.data("text", "summary.json"))["model"]["weights"], "q8")
        for name, ranks, *more in (("text_data", 2), ("text_one", 0, "generate.batch=1"), ("text_tensor", 2, "mesh.tensor=2"),
                                   ("text_pipeline", 2, "mesh.pipeline=2")):
            for one, other in zip(alone, self.made(name, ranks, *keys, *more)):
                self.assertEqual(one["tokens"], other["tokens"], name)
                self.assertAlmostEqual(one["logprob"], other["logprob"], delta=1e-3)

    def test_another_form_in_the_folder_is_78(self):
        self.made("kept", 0, f"generate.model={self.at('wide')}")
        result = self.result("kept", 0, f"generate.model={self.at('wide')}", "model.weights=q8")
        self.assert_error(result, 78, "[run.other_keys]", "model.weights")

    def test_what_does_not_fit_is_refused(self):
        result = self.result("cut", 2, "model.weights=q8", "mesh.tensor=2")  # of width 32
        self.assert_error(result, 78, "[model.q8_cut]", "mesh.tensor")
        self.assertEqual(self.result("bad", 0, "model.weights=q4").status, 78)
        self.must(["bagpipe", "pretrain", self.write("counts.ini", f"[corpus]\ntrain={self.at('train.h5')}\n"), f"run.dir={self.at('ngram')}",
                   "model.kind=ngram", "ngram.order=2"])
        result = self.result("counts", 0, f"generate.model={self.at('ngram')}", "model.weights=q8")
        self.assert_error(result, 78, "[model.no_products]", "model.weights")

    def test_the_plan_has_fewer_bytes(self):
        """Of a model whose weights take 25 MiB in float32 and 7 in q8: what a process takes besides differs by less than one."""
        self.must(["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={self.at('large')}", "model.width=512", "train.steps=1", "train.batch=1"])

        def megabytes(*keys):
            result = self.result("planned", 0, "--plan", f"generate.model={self.at('large')}", *keys)
            self.assertEqual(result.status, 0, str(result))
            return float(re.search(r"takes about ([\d.]+) MiB", result.out).group(1))

        self.assertLess(megabytes("model.weights=q8") + 10, megabytes())
        self.assertFalse(os.path.exists(self.at("planned")))


if __name__ == "__main__":
    bagpipe_test.main()
