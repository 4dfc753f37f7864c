"""A LLaMA trains to the same losses on every mesh, to the same bits on 1 and 4 data ranks, in float32 and bf16; it is scored, and goes
into a Hugging Face folder and back. Its numbers are those of models.references."""
import json
import os
import pathlib

import bagpipe_test
from bagpipe_test import JobTest, digests, metrics, state_of, timeless

LLAMA = ["model.kind=llama", "model.kv_heads=2", "model.inner=44", "model.dropout=0.1", "train.steps=6", "train.valid_every=3"]


class Llama(JobTest):
    def llama(self, name, ranks=0, *keys):
        return self.trained(name, ranks, *LLAMA, *keys)

    def test_every_mesh_trains_the_same_model(self):
        for tied in ("no", "yes"):
            one = [line["loss"] for line in metrics(self.llama(f"one-{tied}", 0, f"model.tied={tied}", "train.recompute=yes"))]
            for name, ranks, keys in (("chunks", 2, ["mesh.pipeline=2", "mesh.schedule=interleaved"]),
                                      ("all", 4, ["mesh.tensor=2", "mesh.pipeline=2", "model.attention_bias=no"])):
                with self.subTest(name, tied=tied):
                    other = metrics(self.llama(f"{name}-{tied}", ranks, f"model.tied={tied}", *keys))
                    for a, b in zip(one, [line["loss"] for line in other], strict=True):
                        self.assertLess(abs(a - b), 2e-5)

    def test_data_ranks_give_the_bits_of_one(self):
        for precision in ("f32", "bf16"):
            key = f"math.precision={precision}"
            result = self.pretrain(f"one-{precision}", 0, *LLAMA, key)
            if result.status == 78 and "bf16" in result.err:
                self.skipTest("this CPU has no bf16")
            self.assertEqual(result.status, 0, str(result))
            one = self.at(f"one-{precision}")
            other = self.llama(f"data4-{precision}", 4, key)
            self.assertEqual(timeless(metrics(one)), timeless(metrics(other)))
            self.assertEqual(digests(one), digests(other))

    def test_tensor_ranks_share_heads_of_keys(self):
        """12 heads on 2 and 4 ranks: heads of keys that ranks do not divide are on several; each is in a checkpoint once."""
        for kv_heads in (2, 3):
            keys = ["model.width=96", "model.heads=12", f"model.kv_heads={kv_heads}", "model.attention_bias=yes", "train.steps=4"]
            one = self.llama(f"kv{kv_heads}", 0, *keys)
            rows = "yes" if kv_heads == 2 else "no"
            for ranks, more in ((2, ["mesh.tensor=2"]), (4, ["mesh.tensor=4", "train.recompute=yes", f"mesh.sequence_parallel={rows}"]),
                                (4, ["mesh.tensor=2", "mesh.data=2"])):
                with self.subTest(kv_heads=kv_heads, ranks=ranks, more=more):
                    name = f"kv{kv_heads}-" + "".join(more)
                    other = self.llama(name, ranks, *keys, *more)
                    self.assertEqual(digests(one).keys(), digests(other).keys())
                    for a, b in zip(metrics(one), metrics(other), strict=True):
                        self.assertLess(abs(a["loss"] - b["loss"]), 2e-5)
                        self.assertLess(abs(a["grad_norm"] - b["grad_norm"]), 1e-4 * a["grad_norm"])
            two = metrics(self.at(f"kv{kv_heads}-mesh.tensor=2"))
            self.assertEqual(timeless(two), timeless(metrics(self.at(f"kv{kv_heads}-mesh.tensor=2mesh.data=2"))))
            self.assertEqual(digests(self.at(f"kv{kv_heads}-mesh.tensor=2")), digests(self.at(f"kv{kv_heads}-mesh.tensor=2mesh.data=2")))

    def test_shared_heads_go_on_on_another_mesh(self):
        keys = ["model.width=96", "model.heads=12", "model.kv_heads=1", "checkpoint.every=3", "optimizer.decay=constant"]
        straight = self.llama("straight", 4, *keys, "mesh.tensor=4")
        self.llama("cut", 4, *keys, "mesh.tensor=4", "train.steps=3")
        cut = self.llama("cut", 4, *keys, "mesh.tensor=4")
        self.assertEqual(digests(straight), digests(cut))
        self.llama("moved", 4, *keys, "mesh.tensor=4", "train.steps=3")
        moved = self.llama("moved", 2, *keys, "mesh.tensor=2")
        self.assertLess(abs(metrics(straight)[-1]["loss"] - metrics(moved)[-1]["loss"]), 2e-5)

    def test_the_context_may_grow(self):
        """Positions are no parameters: a model goes on with another context, and with scaled wavelengths from its own start."""
        short = self.llama("short", 0)
        long = self.llama("long", 0, f"model.init={short}", "model.context=48")
        self.assertEqual(state_of(long)["model"]["context"], 48)
        result = self.pretrain("other", 0, *LLAMA, f"model.init={short}", "model.width=64")
        self.assert_error(result, 78, "[model.init_mismatch]", "model.width = 64", "32")

    def test_scores_may_have_a_longer_context(self):
        """As of a model that says so itself; alone and in an ensemble. Learned positions allow it no more than before."""
        short = self.llama("scored", 0)
        self.must(["bagpipe-data", "export", short, "--out", self.at("hf"), "--no-tokenizer"])
        config = json.loads(pathlib.Path(self.at("hf"), "config.json").read_text(encoding="utf-8"))
        self.assertEqual(config["max_position_embeddings"], 32)
        self.write("hf/config.json", json.dumps(dict(config, max_position_embeddings=64)))
        self.must(["bagpipe-data", "import", self.at("hf"), "--out", self.at("long-said"), "--no-tokenizer"])
        self.write("both.json", json.dumps({"members": [{"name": "a", "path": short}, {"name": "b", "path": short}]}))
        totals = []
        for name, model, ranks, keys in (("said", "long-said", 0, []), ("asked", "scored", 2, ["mesh.tensor=2"]), ("both", "both.json", 0, [])):
            self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={self.at('score-' + name)}", f"score.model={self.at(model)}",
                       f"score.corpus={self.at('valid.h5')}", "score.context=64", *keys], ranks)
            summary = bagpipe_test.read_json(self.at("score-" + name), "score", "summary.json")
            self.assertEqual(summary["convention"]["context"], 64)
            totals.append(summary["nll_nats"])
        self.assertAlmostEqual(totals[0], totals[1], delta=1e-5 * totals[0])
        self.assertAlmostEqual(totals[0], totals[2], delta=1e-6 * totals[0])
        result = bagpipe_test.run([bagpipe_test.program("bagpipe"), "score", self.at("small.ini"), f"run.dir={self.at('never')}",
                                   f"score.model={self.trained('learned', 0, 'train.steps=1')}", f"score.corpus={self.at('valid.h5')}",
                                   "score.context=64"])
        self.assert_error(result, 78, "[score.context_too_long]", "score.context = 64", "32")

    def test_a_hugging_face_folder_comes_back_as_it_went(self):
        trained = self.llama("exported", 0, "model.tied=yes", "model.attention_bias=yes", "model.norm_epsilon=1e-6", "model.rope_theta=1e6",
                             "model.head_width=10", "model.rope_scaling=llama3", "model.rope_factor=4", "model.rope_original_context=16")
        self.must(["bagpipe-data", "export", trained, "--out", self.at("folder"), "--no-tokenizer"])
        self.must(["bagpipe-data", "import", self.at("folder"), "--out", self.at("back"), "--no-tokenizer"])
        self.must(["bagpipe-data", "export", self.at("back"), "--out", self.at("again"), "--no-tokenizer"])
        for file in ("config.json", "model.safetensors"):
            with open(os.path.join(self.at("folder"), file), "rb") as a, open(os.path.join(self.at("again"), file), "rb") as b:
                self.assertEqual(a.read(), b.read(), file)
        summaries = []
        for model in (trained, self.at("back")):
            folder = self.at("score-" + os.path.basename(model))
            self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={folder}", f"score.model={model}", f"score.corpus={self.at('valid.h5')}"])
            summaries.append(bagpipe_test.read_json(folder, "score", "summary.json")["corpora"])
        self.assertEqual(summaries[0], summaries[1])

    def test_what_does_not_fit_is_said(self):
        for keys, words in ((["model.kv_heads=3"], ("[model.not_dividing]", "model.kv_heads = 3", "model.heads = 4")),
                            (["mesh.tensor=3"], ("[mesh.not_dividing]", "mesh.tensor = 3", "model.heads = 4", "1, 2, 4")),
                            (["mesh.tensor=4", "model.inner=46"], ("[mesh.not_dividing]", "model.inner = 46", "1, 2")),
                            (["model.heads=32", "model.kv_heads=32"], ("[model.odd_heads]", "1")),
                            (["model.heads=5", "model.kv_heads=1"], ("[model.not_dividing]", "model.heads = 5", "model.width = 32")),
                            (["model.rope_scaling=linear"], ("[model.missing_key]", "model.rope_factor")),
                            (["model.rope_scaling=llama3", "model.rope_factor=8"], ("[model.missing_key]", "model.rope_original_context")),
                            (["model.rope_factor=8"], ("[model.unused_key]", "model.rope_scaling = none", "model.rope_factor")),
                            (["model.rope_scaling=linear", "model.rope_factor=2", "model.rope_original_context=8"],
                             ("[model.unused_key]", "model.rope_scaling = linear", "model.rope_original_context")),
                            (["model.rope_scaling=llama3", "model.rope_factor=8", "model.rope_original_context=8", "model.rope_low_freq_factor=4"],
                             ("[model.bad_rope]", "model.rope_high_freq_factor = 4", "model.rope_low_freq_factor = 4")),
                            (["model.rope_scaling=ntk"], ("[config.bad_value]", "model.rope_scaling = ntk")),
                            (["model.rope_fraction=0.5"], ("[model.unused_key]", "model.kind = llama", "model.rope_fraction")),
                            (["model.kind=gpt"], ("[model.unused_key]", "model.kind = gpt", "model.kv_heads"))):
            ranks = next((int(key[-1]) for key in keys if key.startswith("mesh.tensor")), 0)
            result = self.pretrain("refused", ranks, *LLAMA, *keys)
            self.assert_error(result, 78, *words, lines=2 if keys == ["mesh.tensor=3"] else 1)


if __name__ == "__main__":
    bagpipe_test.main()
