"""A GPT with sizes that GPT-2 has no choice of: an inner width, a width of heads, an epsilon, a head of its own. It trains to the same losses
on every mesh, goes into a Hugging Face folder and back as far as that has them, and leaves GPT-2's own checkpoints as they were."""
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
            for name, ranks, keys in (("tensor", 2, ["mesh.tensor=2"]), ("pipeline", 2, ["mesh.pipeline=2"])):
                with self.subTest(name, tied=tied):
                    for a, b in zip(one, self.losses(f"{name}-{tied}", ranks, f"model.tied={tied}", *keys), strict=True):
                        self.assertLess(abs(a - b), 2e-5)
        self.assertEqual(digests(self.at("one-no")).keys() - digests(self.at("one-yes")).keys(), {"head", "adamw.m/head", "adamw.v/head"})
        for key, value in (("model.inner=48", "44"), ("model.tied=yes", "no")):
            result = self.pretrain("other", 0, f"model.init={self.at('one-no')}", key)
            self.assertEqual(result.status, 78, str(result))
            self.assertIn(f"{key.replace('=', ' = ')}, but the checkpoint of model.init has {value}", result.err)

    def test_a_plain_one_says_nothing_of_them(self):
        self.trained("plain", 0, "train.steps=2")
        self.trained("said", 0, "train.steps=2", "model.inner=128", "model.head_width=8", "model.norm_epsilon=1e-5", "model.tied=yes")
        for name in ("plain", "said"):
            self.assertEqual(set(state_of(self.at(name))["model"]), {"kind", "layers", "width", "heads", "context", "vocab_size"})
        self.assertEqual(digests(self.at("plain")), digests(self.at("said")))
        self.trained("plain", 0, "train.steps=3")  # goes on

    def test_hugging_face_has_some_of_them(self):
        trained = self.trained("exported", 0, "model.inner=44", "model.norm_epsilon=1e-4", "train.steps=2")
        self.must(["bagpipe-data", "export", trained, "--out", self.at("folder"), "--no-tokenizer"])
        config = read_json(self.at("folder"), "config.json")
        self.assertEqual((config["n_inner"], config["layer_norm_epsilon"], config["tie_word_embeddings"]), (44, 1e-4, True))
        self.must(["bagpipe-data", "import", self.at("folder"), "--out", self.at("back"), "--no-tokenizer"])
        self.must(["bagpipe-data", "export", self.at("back"), "--out", self.at("again"), "--no-tokenizer"])
        for file in ("config.json", "model.safetensors"):
            with open(os.path.join(self.at("folder"), file), "rb") as a, open(os.path.join(self.at("again"), file), "rb") as b:
                self.assertEqual(a.read(), b.read(), file)
        for key, words in (("model.head_width=16", "head_width = 16"), ("model.tied=no", "tied = 0")):
            name = key.replace("=", "-")
            self.trained(name, 0, key, "train.steps=1")
            result = run([program("bagpipe-data"), "export", self.at(name), "--out", self.at("refused"), "--no-tokenizer"])
            self.assertEqual(result.status, 65, str(result))
            self.assertIn(words + ", which a gpt2 of Hugging Face has not", result.err)


if __name__ == "__main__":
    bagpipe_test.main()
