"""Adapters: LoRA or bottlenecks alone are trained, on every mesh to the same losses, on 1 and 4 data ranks to the same bits; a run that was killed goes on
with the same bits; merged by export it gives the same scores; what does not fit is refused."""
import json
import os
import pathlib
import shutil

import numpy

import bagpipe_test
from bagpipe_test import JobTest, digests, metrics, program, run, state_of, steps, timeless
from tensors import tensors_of

LORA = ["adapter.kind=lora", "adapter.rank=3", "adapter.targets=q,k,v,out,up,down", "train.steps=6", "model.dropout=0.1"]
BOTTLENECK = ["adapter.kind=bottleneck", "adapter.rank=6", "train.steps=6", "model.dropout=0.1"]
LLAMA = ["model.kind=llama", "model.kv_heads=2", "model.inner=44"]


class Adapter(JobTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, keys in (("gpt", []), ("llama", LLAMA)):
            cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.at(name)}", "train.steps=30", *keys])

    def adapted(self, name, ranks=0, *keys, base="gpt"):
        return self.trained(name, ranks, f"model.init={self.at(base)}", *LORA, *keys)

    def bottled(self, name, ranks=0, *keys, base="gpt"):
        return self.trained(name, ranks, f"model.init={self.at(base)}", *BOTTLENECK, *keys)

    def last(self, name):
        return tensors_of(os.path.join(self.at(name), "checkpoints", steps(self.at(name))[-1]))

    def nll(self, name, model):
        self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={self.at(name)}", f"score.model={model}", f"score.corpus={self.at('valid.h5')}"])
        return bagpipe_test.read_json(self.at(name), "score", "summary.json")["nll_nats"]

    def test_every_mesh_trains_the_same_adapter(self):
        for base in ("gpt", "llama"):
            one = metrics(self.adapted(f"one-{base}", base=base))
            for name, ranks, keys in (("rows", 2, ["mesh.tensor=2", "mesh.sequence_parallel=no", "train.recompute=yes"]),
                                      ("all", 4, ["mesh.tensor=2", "mesh.pipeline=2", "mesh.schedule=interleaved"])):
                with self.subTest(name, base=base):
                    other = metrics(self.adapted(f"{name}-{base}", ranks, *keys, base=base))
                    for a, b in zip(one, other, strict=True):
                        self.assertLess(abs(a["loss"] - b["loss"]), 2e-5)
                        self.assertLess(abs(a["grad_norm"] - b["grad_norm"]), 1e-3 * a["grad_norm"])

    def test_data_ranks_give_the_bits_of_one(self):
        for train in (self.adapted, self.bottled):
            one = train(f"one-{train.__name__}")
            other = train(f"data4-{train.__name__}", 4)
            self.assertEqual(timeless(metrics(one)), timeless(metrics(other)))
            self.assertEqual(digests(one), digests(other))

    def test_every_mesh_trains_the_same_bottlenecks(self):
        one = metrics(self.bottled("bottled"))
        base = metrics(self.trained("plain", 0, f"model.init={self.at('gpt')}", "train.steps=6", "model.dropout=0.1"))
        self.assertLess(abs(one[0]["loss"] - base[0]["loss"]), 1e-2)
        self.assertNotEqual(one[0]["loss"], base[0]["loss"])
        for name, ranks, keys in (("rows", 2, ["mesh.tensor=2", "mesh.sequence_parallel=no"]),
                                  ("all", 4, ["mesh.tensor=2", "mesh.pipeline=2", "train.recompute=yes"])):
            for a, b in zip(one, metrics(self.bottled(f"bottled-{name}", ranks, *keys)), strict=True):
                self.assertLess(abs(a["loss"] - b["loss"]), 2e-5, name)
                self.assertLess(abs(a["grad_norm"] - b["grad_norm"]), 1e-3 * a["grad_norm"], name)

    def test_bottlenecks_go_on_with_the_same_bits_and_are_used(self):
        keys = ["checkpoint.every=2", f"model.init={self.at('gpt')}", *BOTTLENECK, "optimizer.lr=0.02"]
        straight = self.trained("bottled-straight", 0, *keys)
        killed = run(["env", "BP_FAULT=step.end:5=kill", program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('bottled-cut')}", *keys])
        self.assertLess(killed.status, 0)
        self.assertEqual(digests(straight), digests(self.trained("bottled-cut", 0, *keys)))
        base, tensors = self.last("gpt"), self.last("bottled-straight")
        for name, values in base.items():
            if "/" not in name:
                numpy.testing.assert_array_equal(values, tensors[name])
        self.assertEqual({name.split("/")[1] for name in tensors if "/" in name},
                         {f"h.{k}.{branch}.adapter.{part}" for k in range(2) for branch in ("attn", "mlp")
                          for part in ("down.weight", "down.bias", "up.weight", "up.bias")})
        self.assertEqual(state_of(straight)["model"]["adapter"], {"kind": "bottleneck", "rank": 6})
        self.assertGreater(abs(self.nll("score-bottled", straight) - self.nll("score-unbottled", self.at("gpt"))), 1)
        self.assert_error(run([program("bagpipe-data"), "export", straight, "--out", self.at("bottled-hf")]), 65, "[adapter.no_merge]", "bottleneck")
        self.check_generation(straight)

    def check_generation(self, model):
        """What is generated token by token has the probabilities that scoring gives whole texts."""
        self.write("empty.ini", "[run]\nseed = 1\n[math]\nprecision = f32\n")
        self.write("prompts.jsonl", '{"tokens": [5, 9, 3]}\n')
        self.must(["bagpipe", "generate", f"run.dir={self.at('generated')}", f"generate.model={model}", self.at("empty.ini"),
                   f"generate.prompts={self.at('prompts.jsonl')}", "generate.strategy=greedy", "generate.tokens=8"])
        line = bagpipe_test.read_json(self.at("generated"), "generate", "outputs.jsonl")
        self.assertEqual(len(line["logprobs"]), 8)

    def test_the_base_stays_as_it_is(self):
        base, tensors = self.last("gpt"), None
        self.adapted("kept")
        tensors = self.last("kept")
        for name, values in base.items():
            if "/" not in name:
                numpy.testing.assert_array_equal(values, tensors[name])
        moments = [name for name in tensors if "/" in name]
        self.assertEqual(len(moments), 2 * 2 * 2 * 6)
        self.assertTrue(all(name.endswith((".lora_a", ".lora_b")) for name in moments))
        self.assertEqual(state_of(self.at("kept"))["model"]["adapter"], {"kind": "lora", "rank": 3, "scale": 16.0, "targets": "q,k,v,out,up,down"})

    def test_a_killed_run_goes_on_with_the_same_bits(self):
        keys = ["checkpoint.every=2", f"model.init={self.at('gpt')}", *LORA]
        straight = self.adapted("straight", 0, *keys)
        killed = run(["env", "BP_FAULT=step.end:5=kill", program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('cut')}", *keys])
        self.assertLess(killed.status, 0)
        self.assertLess(steps(self.at("cut"))[-1], "step-000000000006")
        cut = self.adapted("cut", 0, *keys)
        self.assertEqual(digests(straight), digests(cut))
        self.assertEqual(timeless(metrics(straight)), timeless(metrics(cut)))

    def test_checkpoints_of_adapters_alone(self):
        """They hold what is trained, name the base, are read like whole ones with the same digest, and go on with the same bits."""
        base = self.at("base-model")
        shutil.copytree(os.path.join(self.at("gpt"), "checkpoints", steps(self.at("gpt"))[-1]), base)
        keys = [f"model.init={base}", *LORA, "optimizer.lr=0.05", "checkpoint.every=2"]
        whole = self.trained("whole", 0, *keys)
        killed = run(["env", "BP_FAULT=step.end:5=kill", program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('alone')}", *keys,
                      "adapter.alone=yes"])
        self.assertLess(killed.status, 0)
        alone = self.trained("alone", 0, *keys, "adapter.alone=yes")
        self.assertEqual({name.split("/")[-1] for name in self.last("alone")}, {name.split("/")[1] for name in self.last("whole") if "/" in name})
        self.assertEqual(state_of(alone)["base"]["path"], os.path.realpath(base))
        self.assertEqual(self.nll("score-whole", whole), self.nll("score-alone", alone))
        digest = [bagpipe_test.read_json(self.at(name), "score", "summary.json")["model"]["digest"] for name in ("score-whole", "score-alone")]
        self.assertEqual(digest[0], digest[1])
        for tool in ("verify", "inspect"):
            self.must(["bagpipe-data", tool, os.path.join(alone, "checkpoints", steps(alone)[-1])])
        for name in ("whole", "alone"):
            self.must(["bagpipe-data", "export", self.at(name), "--out", self.at(f"hf-{name}")])
        exported = [pathlib.Path(self.at(name), "model.safetensors").read_bytes() for name in ("hf-whole", "hf-alone")]
        self.assertEqual(exported[0], exported[1])
        on = self.trained("alone-on", 2, f"model.init={alone}", *LORA, "adapter.alone=yes", "train.steps=1", "mesh.tensor=2")
        self.assertEqual(state_of(on)["base"], state_of(alone)["base"])
        os.rename(base, base + "-gone")
        score = [program("bagpipe"), "score", self.at("small.ini"), f"score.model={alone}", f"score.corpus={self.at('valid.h5')}"]
        self.assert_error(run([*score, f"run.dir={self.at('gone')}"]), 66, "[checkpoint.no_base]")
        self.assert_error(self.pretrain("alone", 0, *keys, "adapter.alone=yes", "train.steps=8"), 66, "[checkpoint.missing]")
        for name, missing in (("alone", os.path.realpath(base)), ("whole", None)):
            self.assertEqual(json.loads(self.must(["bagpipe", "status", self.at(name), "--json"]).out).get("missing_base"), missing)
            self.assertEqual("base model" in self.must(["bagpipe", "status", self.at(name)]).out, missing is not None)
        shutil.copytree(os.path.join(whole, "checkpoints", steps(whole)[-1]), base)
        self.assert_error(run([*score, f"run.dir={self.at('other')}"]), 65, "[checkpoint.other_base]")

    def test_it_learns(self):
        trained = self.adapted("learns", 0, "train.steps=40", "model.dropout=0", "adapter.rank=16")
        self.assertLess(metrics(trained)[-1]["valid_loss"], metrics(self.at("gpt"))[-1]["valid_loss"] - 0.002)

    def test_merged_it_gives_the_same_scores(self):
        for base in ("gpt", "llama"):
            trained = self.adapted(f"scored-{base}", 0, "optimizer.lr=0.05", base=base)
            unmerged = self.nll(f"score-{base}", trained)
            self.assertGreater(abs(unmerged - self.nll(f"score-base-{base}", self.at(base))), 1e-3 * unmerged)
            self.must(["bagpipe-data", "export", trained, "--out", self.at(f"hf-{base}")])
            self.must(["bagpipe-data", "import", self.at(f"hf-{base}"), "--out", self.at(f"merged-{base}")])
            merged = self.nll(f"score-merged-{base}", self.at(f"merged-{base}"))
            self.assertLess(abs(merged - unmerged), 1e-6 * unmerged)

    def test_merged_weights_are_those_of_the_paper(self):
        trained = self.adapted("algebra", 0, "optimizer.lr=0.05")
        self.must(["bagpipe-data", "export", trained, "--out", self.at("hf-algebra")])
        self.must(["bagpipe-data", "import", self.at("hf-algebra"), "--out", self.at("merged-algebra")])
        ours, merged = self.last("algebra"), tensors_of(self.at("merged-algebra"))
        for name in ("h.0.attn.q", "h.1.attn.out", "h.0.mlp.up", "h.1.mlp.down"):
            wanted = ours[name + ".weight"] + 16 / 3 * ours[name + ".lora_b"] @ ours[name + ".lora_a"]
            self.assertGreater(abs(wanted - ours[name + ".weight"]).max(), 1e-3)
            numpy.testing.assert_allclose(merged[name + ".weight"], wanted, atol=1e-6)

    def test_a_trained_adapter_is_trained_on(self):
        first = self.adapted("first")
        second = self.trained("second", 0, f"model.init={first}", *LORA)
        self.assertLess(metrics(second)[0]["loss"], metrics(first)[0]["loss"])
        self.assert_error(self.pretrain("third", 0, f"model.init={first}"), 78, "[adapter.mismatch]")

    def test_what_does_not_fit_is_refused(self):
        init = f"model.init={self.at('gpt')}"
        for keys, identifier in ((["adapter.kind=lora"], "adapter.no_base"),
                                 ([init, "adapter.kind=lora", "adapter.targets=q,x"], "adapter.bad_targets"),
                                 ([init, "adapter.kind=lora", "adapter.targets=q,,v"], "adapter.bad_targets"),
                                 ([init, "adapter.kind=lora", "adapter.rank=33"], "adapter.rank_too_large")):
            with self.subTest(identifier):
                self.assert_error(self.pretrain("never", 0, *keys), 78, f"[{identifier}]")
        self.assert_warning(self.pretrain("warned", 0, "train.steps=1", "adapter.rank=4"), "[config.unused_key]", "adapter.kind")
        lstm = self.trained("lstm", 0, "model.kind=lstm", "model.heads=", "train.steps=1")
        self.assert_error(self.pretrain("never", 0, f"model.init={lstm}", "adapter.kind=lora", "model.heads="), 78, "[adapter.no_place]")
        sparse = self.trained("sparse", 0, "model.kind=mixtral", "model.experts=4", "model.experts_chosen=2", "model.inner=32", "train.steps=1")
        hybrid = self.trained("hybrid", 0, "model.kind=granite_hybrid", "model.inner=32", "model.state=8", "train.steps=1")
        for base, targets, left in ((sparse, "up,down", "take some of q,k,v,out"), (sparse, "q,up", "take some of q,k,v,out"), (hybrid, "q,v", "take some of up,down")):
            with self.subTest(base, targets=targets):
                result = self.pretrain("never", 0, f"model.init={base}", "adapter.kind=lora", f"adapter.targets={targets}")
                self.assert_error(result, 78, "[adapter.no_weights]", left)
        narrow = self.trained("narrow", 0, *LLAMA, "model.kv_heads=1", "train.steps=1")
        self.assert_error(self.pretrain("never", 2, f"model.init={narrow}", "adapter.kind=lora", "mesh.tensor=2"), 78, "[mesh.not_dividing]")


if __name__ == "__main__":
    bagpipe_test.main()
