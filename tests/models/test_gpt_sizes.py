"""A GPT with sizes that GPT-2 has no choice of: an inner width, a width of heads, an epsilon, a head of its own. It trains to the same losses
on every mesh, goes into a Hugging Face folder and back as far as that has them, and leaves GPT-2's own checkpoints as they were."""
import json
import os

import bagpipe_test
from bagpipe_test import JobTest, digests, metrics, program, read_json, run, state_of

SIZES = ["model.inner=44", "model.head_width=10", "model.norm_epsilon=1e-4", "train.steps=5"]


class Sizes(JobTest):
    def losses(self, name, ranks, *keys):
        return [line["loss"] for line in metrics(self.trained(name, ranks, *SIZES, *keys))]

    def test_every_mesh_trains_the_same_model(self):
        for tied in ("yes", "no"):
            one = self.losses(f"one-{tied}", 0, f"model.tied={tied}")
            for name, ranks, keys in (("tensor", 2, ["mesh.tensor=2"]), ("pipeline", 2, ["mesh.pipeline=2"]))[:2 if tied == "yes" else 1]:
                with self.subTest(name, tied=tied):
                    for a, b in zip(one, self.losses(f"{name}-{tied}", ranks, f"model.tied={tied}", *keys), strict=True):
                        self.assertLess(abs(a - b), 2e-5)
        self.assertEqual(digests(self.at("one-no")).keys() - digests(self.at("one-yes")).keys(), {"head", "adamw.m/head", "adamw.v/head"})
        for key, value in (("model.inner=48", "44"), ("model.tied=yes", "no")):
            self.assert_error(self.pretrain("other", 0, f"model.init={self.at('one-no')}", key), 78, "[model.init_mismatch]", key.replace("=", " = "), value)

    def test_a_plain_one_says_nothing_of_them(self):
        self.trained("plain", 0, "train.steps=2")
        self.trained("said", 0, "train.steps=2", "model.inner=128", "model.head_width=8", "model.norm_epsilon=1e-5", "model.tied=yes")
        for name in ("plain", "said"):
            self.assertEqual(set(state_of(self.at(name))["model"]), {"kind", "layers", "width", "heads", "context", "vocab_size"})
        self.assertEqual(digests(self.at("plain")), digests(self.at("said")))
        self.trained("plain", 0, "train.steps=3")  # goes on

    def test_hugging_face_has_some_of_them(self):
        for tied in (True, False):
            trained, folder, back, again = (self.at(f"{name}-{tied}") for name in ("exported", "folder", "back", "again"))
            self.trained(trained, 0, "model.inner=44", "model.norm_epsilon=1e-4", f"model.tied={'yes' if tied else 'no'}", "train.steps=2")
            self.must(["bagpipe-data", "export", trained, "--out", folder, "--no-tokenizer"])
            config = read_json(folder, "config.json")
            self.assertEqual((config["n_inner"], config["layer_norm_epsilon"], config["tie_word_embeddings"]), (44, 1e-4, tied))
            self.must(["bagpipe-data", "import", folder, "--out", back, "--no-tokenizer"])
            values = {name: digest for name, digest in digests(trained).items() if not name.startswith("adamw.")}
            self.assertEqual({tensor["name"]: tensor["digest"] for tensor in read_json(back, "manifest.json")["tensors"]}, values)
            self.assertEqual("head" in values, not tied)
            self.must(["bagpipe-data", "export", back, "--out", again, "--no-tokenizer"])
            for file in ("config.json", "model.safetensors"):
                with open(os.path.join(folder, file), "rb") as a, open(os.path.join(again, file), "rb") as b:
                    self.assertEqual(a.read(), b.read(), file)
        self.trained("wide", 0, "model.head_width=16", "train.steps=1")
        self.assert_error(run([program("bagpipe-data"), "export", self.at("wide"), "--out", self.at("refused"), "--no-tokenizer"]), 65,
                          "[export.no_counterpart]", "head_width = 16")

    def test_windows_may_be_shorter_than_the_table_of_positions(self):
        sizes = {}
        for name, keys in (("short", ["model.context=16", "model.positions=32"]), ("long", [f"model.init={self.at('short')}", "model.context=32"]),
                           ("shorter", [f"model.init={self.at('long')}", "model.context=8", "mesh.micro_batch=4"])):
            model = state_of(self.trained(name, 0, "train.steps=2", *keys))["model"]
            sizes[name] = (model["context"], model.get("positions"))
        self.assertEqual(sizes, {"short": (16, 32), "long": (32, None), "shorter": (8, 32)})
        self.trained("shorter", 0, "train.steps=3", f"model.init={self.at('long')}", "model.context=8", "mesh.micro_batch=4")  # goes on
        for keys, words in (([f"model.init={self.at('short')}", "model.context=33"], ["[model.few_positions]", "model.context = 33", "32"]),
                            (["model.positions=31", "model.context=32"], ["[model.few_positions]", "model.positions = 31"]),
                                (["model.kind=llama", "model.positions=64"], ["[model.unused_key]", "model.positions"])):
            self.assert_error(self.pretrain("refused", 0, *keys), 78, *words)
        self.must(["bagpipe-data", "export", self.at("short"), "--out", self.at("all-rows"), "--no-tokenizer"])
        self.assertEqual(read_json(self.at("all-rows"), "config.json")["n_positions"], 32)
        self.must(["bagpipe-data", "import", self.at("all-rows"), "--out", self.at("wide-again"), "--no-tokenizer"])
        perplexity = {}
        for model, context in (("short", 16), ("short", 32), ("wide-again", 32)):
            scored = self.at(f"{model}-{context}-scored")
            said = self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={scored}", f"score.model={self.at(model)}",
                              f"score.corpus={self.at('valid.h5')}", f"score.context={context}"], 2 if context == 32 else 0)
            self.assert_warning(said, "[model.untrained_positions]", "windows of 16", "score.context = 32", times=int((model, context) == ("short", 32)))
            perplexity[model, context] = read_json(scored, "score", "summary.json")["perplexity"]
        self.assertEqual(perplexity["short", 32], perplexity["wide-again", 32])
        self.assertNotEqual(perplexity["short", 32], perplexity["short", 16])

    def test_one_with_a_head_of_its_own_is_scored_and_continues_texts(self):
        trained = self.trained("own", 0, *SIZES, "model.tied=no")
        with open(self.at("valid.txt"), encoding="utf-8") as file:
            lines = [line.split() for line in file.read().splitlines() if line.strip()]
        self.write("prompts.txt", "".join(" ".join(words[:2]) + "\n" for words in lines[:3]))
        perplexity, written = {}, {}
        for name, ranks, keys in (("one", 0, []), ("split", 4, ["mesh.tensor=2", "mesh.pipeline=2"])):
            self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={self.at('score-' + name)}", f"score.model={trained}",
                       f"score.corpus={self.at('valid.h5')}", *keys], ranks)
            self.must(["bagpipe", "generate", self.at("small.ini"), f"run.dir={self.at('write-' + name)}", f"generate.model={trained}",
                       f"generate.prompts={self.at('prompts.txt')}", "generate.tokens=10", *keys], ranks)
            perplexity[name] = read_json(self.at("score-" + name), "score", "summary.json")["perplexity"]
            with open(self.at(f"write-{name}/generate/outputs.jsonl"), encoding="utf-8") as file:
                written[name] = [json.loads(line)["tokens"] for line in file]
            self.assertAlmostEqual(perplexity[name] / perplexity["one"], 1, delta=1e-5)
            self.assertEqual(written[name], written["one"])


if __name__ == "__main__":
    bagpipe_test.main()
