"""A family that a program brings of its own (pair_family.c) trains on any mesh, is stopped and goes on, is scored and ensembled as
GPT is, without a line of bagpipe that knows it."""
import json
import os

import bagpipe_test
from bagpipe_test import JobTest, digests, metrics, program, run, steps, timeless


class Family(JobTest):
    def start(self, job, name, ranks, *keys):
        config = self.at("small.ini")
        return run([program("bagpipe_with_family"), job, config, f"run.dir={self.at(name)}", *keys], ranks)

    def done(self, job, name, ranks, *keys):
        result = self.start(job, name, ranks, *keys)
        self.assertEqual(result.status, 0, str(result))
        return self.at(name)

    def trained(self, name, ranks, *keys):
        kind = [] if any(key.startswith("model.kind=") for key in keys) else ["model.kind=pair"]
        return self.done("pretrain", name, ranks, "train.steps=8", "train.valid_every=4", "model.dropout=0.1", *kind, *keys)

    def losses(self, folder):
        return [line["loss"] for line in metrics(folder)] + [line["valid_loss"] for line in metrics(folder) if "valid_loss" in line]

    def test_every_mesh_trains_the_same_model(self):
        one = self.losses(self.trained("one", 0, "train.recompute=yes"))
        for name, ranks, keys in (("chunks", 2, ["mesh.pipeline=2", "mesh.schedule=interleaved"]),
                                  ("all", 8, ["mesh.tensor=2", "mesh.pipeline=2", "mesh.data=2"])):
            with self.subTest(name):
                for a, b in zip(one, self.losses(self.trained(name, ranks, *keys)), strict=True):
                    self.assertLess(abs(a - b), 2e-5)
        data = self.trained("data", 2)
        self.assertEqual(timeless(metrics(self.at("one"))), timeless(metrics(data)))
        self.assertEqual(digests(self.at("one")), digests(data))

    def test_every_mesh_trains_the_same_stack(self):
        kind = ["model.kind=capped", "model.kv_heads=2", "model.window=9"]
        one = self.losses(self.trained("stack", 0, *kind, "train.recompute=yes"))
        for name, ranks, keys in (("shared keys", 4, ["mesh.tensor=4"]), ("pipeline", 2, ["mesh.pipeline=2"])):
            with self.subTest(name):
                for a, b in zip(one, self.losses(self.trained(f"stack {name}", ranks, *kind, *keys)), strict=True):
                    self.assertLess(abs(a - b), 2e-5)
        scores = []
        for name, ranks, keys in (("one", 0, []), ("split", 4, ["mesh.tensor=2", "mesh.pipeline=2"])):
            folder = self.done("score", f"stack score {name}", ranks, f"score.model={self.at('stack')}", f"score.corpus={self.at('valid.h5')}", *keys)
            with open(os.path.join(folder, "score", "summary.json"), encoding="utf-8") as file:
                summary = json.load(file)
            scores.append(summary["nll_nats"] / summary["tokens"])
        self.assertLess(max(scores) - min(scores), 1e-5)

    def test_a_killed_run_goes_on_with_the_same_bits(self):
        mesh = ["mesh.tensor=2", "mesh.pipeline=2", "mesh.data=2", "checkpoint.every=2"]
        straight = self.trained("straight", 8, *mesh)
        config = [program("bagpipe_with_family"), "pretrain", self.at("small.ini"), f"run.dir={self.at('killed')}", "model.kind=pair",
                  "train.steps=8", "train.valid_every=4", "model.dropout=0.1", *mesh]
        killed = self.background(config, 8, env={"BP_FAULT": "step.end:5@3=kill"})
        killed.communicate()
        self.assertNotEqual(killed.returncode, 0)
        self.assertLess(steps(self.at("killed"))[-1], "step-000000000008")
        self.trained("killed", 8, *mesh)
        self.assertEqual(timeless(metrics(straight)), timeless(metrics(self.at("killed"))))
        self.assertEqual(digests(straight), digests(self.at("killed")))
        first, last = digests(straight, 0), digests(straight)
        for name in first:  # source.wpe is frozen: it stays, and has no moments
            self.assertEqual(first[name] == last[name], name == "source.wpe", name)
        self.assertIn("adamw.m/wpe", last)
        self.assertNotIn("adamw.m/source.wpe", last)

    def test_it_is_scored_and_ensembled(self):
        keys = ["model.kind=pair", "train.steps=6", "ensemble.members=2", "ensemble.kind=seed", "math.precision=f32"]
        self.done("ensemble", "many", 2, "mesh.members=2", *keys)
        corpus = f"score.corpus={self.at('valid.h5')}"
        scores = []
        for name, ranks, mesh in (("one", 0, []), ("meshed", 4, ["mesh.tensor=2", "mesh.pipeline=2"])):
            folder = self.done("score", f"score-{name}", ranks, f"score.model={self.at('many')}", corpus, *mesh)
            with open(os.path.join(folder, "score", "summary.json"), encoding="utf-8") as file:
                scores.append(json.load(file)["corpora"]["valid"])
        one, meshed = scores
        self.assertGreater(one["mutual_information"], 0)
        self.assertLess(one["mutual_information"], one["total_entropy"])
        for key in ("total_entropy", "mutual_information"):
            self.assertAlmostEqual(one[key], meshed[key], places=5)

    def test_a_hugging_face_folder_comes_back_as_it_went(self):
        trained = self.trained("exported", 0)
        tool = program("bagpipe-data_with_family")
        for arguments in (["export", trained, "--out", self.at("folder"), "--no-tokenizer"],
                          ["import", self.at("folder"), "--out", self.at("back"), "--no-tokenizer"]):
            result = run([tool, *arguments])
            self.assertEqual(result.status, 0, str(result))
        with open(os.path.join(self.at("folder"), "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        self.assertEqual((config["model_type"], config["d_model"], config["classes"]), ("pair", 32, 4))
        with open(os.path.join(self.at("back"), "manifest.json"), encoding="utf-8") as file:
            back = {tensor["name"]: tensor["digest"] for tensor in json.load(file)["tensors"]}
        weights = {name: digest for name, digest in digests(trained).items() if "/" not in name}
        self.assertEqual(weights, back)

    def test_another_family_is_refused_by_name(self):
        run_of_pair = self.trained("pair", 0)
        result = run([program("bagpipe"), "score", self.at("small.ini"), f"run.dir={self.at('refused')}", f"score.model={run_of_pair}",
                      f"score.corpus={self.at('valid.h5')}"])
        self.assert_error(result, 65, "[model.unknown_kind]", "'pair'")
        other = self.start("pretrain", "other", 0, "model.kind=gpt", f"model.init={run_of_pair}")
        self.assert_error(other, 78, "[model.init_mismatch]", "model.kind = gpt", "pair")


if __name__ == "__main__":
    bagpipe_test.main()
