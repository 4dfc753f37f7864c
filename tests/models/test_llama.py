"""A LLaMA trains to the same losses on every mesh, to the same bits on 1, 2 and 4 data ranks, in float32 and bf16; it is scored, and goes
into a Hugging Face folder and back. Its numbers are those of models.references."""
import os

import bagpipe_test
from bagpipe_test import JobTest, digests, metrics, program, run, timeless

LLAMA = ["model.kind=llama", "model.kv_heads=2", "model.inner=44", "model.dropout=0.1", "train.steps=6", "train.valid_every=3"]


class Llama(JobTest):
    def llama(self, name, ranks=0, *keys):
        return self.trained(name, ranks, *LLAMA, *keys)

    def test_every_mesh_trains_the_same_model(self):
        for tied in ("no", "yes"):
            one = [line["loss"] for line in metrics(self.llama(f"one-{tied}", 0, f"model.tied={tied}", "train.recompute=yes"))]
            for name, ranks, keys in (("tensor", 2, ["mesh.tensor=2"]), ("chunks", 2, ["mesh.pipeline=2", "mesh.schedule=interleaved"]),
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
            for ranks in (2, 4):
                other = self.llama(f"data{ranks}-{precision}", ranks, key)
                self.assertEqual(timeless(metrics(one)), timeless(metrics(other)))
                self.assertEqual(digests(one), digests(other))

    def test_a_hugging_face_folder_comes_back_as_it_went(self):
        trained = self.llama("exported", 0, "model.tied=yes", "model.attention_bias=yes", "model.norm_epsilon=1e-6", "model.rope_theta=1e6")
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
        for keys, words in ((["model.kv_heads=3"], "model.kv_heads = 3 does not divide model.heads = 4"),
                            (["mesh.tensor=4"], "mesh.tensor = 4 does not divide model.kv_heads = 2"),
                            (["model.heads=32", "model.kv_heads=32"], "heads of width 1 have no pairs to turn"),
                            (["model.kind=gpt"], "model.kind = gpt has no model.kv_heads")):
            result = self.pretrain("refused", 4 if "mesh.tensor=4" in keys else 0, *LLAMA, *keys)
            self.assertEqual(result.status, 78, str(result))
            self.assertIn(words, result.err)


if __name__ == "__main__":
    bagpipe_test.main()
