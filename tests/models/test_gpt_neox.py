"""A GPT-NeoX trains to the same losses on every mesh, to the same bits on 1 and 4 data ranks; it is stopped and goes on, is scored, and
goes into a Hugging Face folder and back. Its numbers are those of models.references."""
import os
import signal

import bagpipe_test
from bagpipe_test import JobTest, digests, metrics, program, read_json, timeless

NEOX = ["model.kind=gpt_neox", "model.inner=44", "model.dropout=0.1", "train.steps=6", "train.valid_every=3"]


class NeoX(JobTest):
    def neox(self, name, ranks=0, *keys):
        return self.trained(name, ranks, *NEOX, *keys)

    def test_every_mesh_trains_the_same_model(self):
        """Sequence parallelism, too, with branches beside each other and one after the other."""
        for parallel in ("yes", "no"):
            more = [f"model.parallel_residual={parallel}", f"model.tied={parallel}"]
            one = [line["loss"] for line in metrics(self.neox(f"one-{parallel}", 0, *more, "train.recompute=yes"))]
            for name, ranks, keys in (("alike", 2, ["mesh.tensor=2", "mesh.sequence_parallel=no"]),
                                      ("chunks", 2, ["mesh.pipeline=2", "mesh.schedule=interleaved"]),
                                      ("all", 4, ["mesh.tensor=2", "mesh.pipeline=2"]))[0 if parallel == "yes" else 2:]:
                with self.subTest(name, parallel=parallel):
                    other = metrics(self.neox(f"{name}-{parallel}", ranks, *more, *keys))
                    for a, b in zip(one, [line["loss"] for line in other], strict=True):
                        self.assertLess(abs(a - b), 2e-5)

    def test_data_ranks_give_the_bits_of_one(self):
        one = self.neox("data1")
        other = self.neox("data4", 4)
        self.assertEqual(timeless(metrics(one)), timeless(metrics(other)))
        self.assertEqual(digests(one), digests(other))

    def test_a_killed_run_goes_on_with_the_same_bits(self):
        mesh = ["mesh.tensor=2", "mesh.data=2", "checkpoint.every=2"]
        straight = self.neox("straight", 4, *mesh)
        config = [program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('killed')}", *NEOX, *mesh]
        killed = self.background(config, 4, env={"BP_FAULT": "step.end:5@3=kill"})
        killed.communicate()
        self.assertNotIn(killed.returncode, (0, -signal.SIGKILL))
        self.neox("killed", 4, *mesh)
        self.assertEqual(timeless(metrics(straight)), timeless(metrics(self.at("killed"))))
        self.assertEqual(digests(straight), digests(self.at("killed")))

    def test_a_hugging_face_folder_comes_back_as_it_went(self):
        trained = self.neox("exported", 0, "model.norm_epsilon=1e-6", "model.rope_theta=3e4", "model.rope_fraction=0.5")
        self.must(["bagpipe-data", "export", trained, "--out", self.at("folder"), "--no-tokenizer"])
        self.must(["bagpipe-data", "import", self.at("folder"), "--out", self.at("back"), "--no-tokenizer"])
        self.must(["bagpipe-data", "export", self.at("back"), "--out", self.at("again"), "--no-tokenizer"])
        for file in ("config.json", "model.safetensors"):
            with open(os.path.join(self.at("folder"), file), "rb") as a, open(os.path.join(self.at("again"), file), "rb") as b:
                self.assertEqual(a.read(), b.read(), file)
        config = read_json(self.at("folder"), "config.json")
        self.assertEqual((config["model_type"], config["rotary_pct"], config["use_parallel_residual"]), ("gpt_neox", 0.5, True))
        summaries = []
        for model in (trained, self.at("back")):
            folder = self.at("score-" + os.path.basename(model))
            self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={folder}", f"score.model={model}", f"score.corpus={self.at('valid.h5')}"])
            summaries.append(read_json(folder, "score", "summary.json")["corpora"])
        self.assertEqual(summaries[0], summaries[1])

    def test_sizes_that_hugging_face_lacks_stay_here(self):
        trained = self.neox("wide", 0, "model.head_width=16")
        result = bagpipe_test.run([program("bagpipe-data"), "export", trained, "--out", self.at("refused"), "--no-tokenizer"])
        self.assert_error(result, 65, "[export.no_counterpart]", "head_width = 16", "gpt_neox")

    def test_what_does_not_fit_is_said(self):
        for keys, words in ((["model.rope_fraction=0.1"], ("[model.bad_rope]", "model.rope_fraction = 0.1", " 0 ", " 8 ")),
                            (["model.rope_fraction=0.4"], ("[model.bad_rope]", "model.rope_fraction = 0.4", " 3 ", " 8 ")),
                            (["model.heads=5"], ("[model.not_dividing]", "model.heads = 5", "model.width = 32")),
                            (["mesh.tensor=3"], ("[mesh.not_dividing]", "mesh.tensor = 3", "model.heads = 4")),
                            (["mesh.tensor=4", "model.inner=46"], ("[mesh.not_dividing]", "mesh.tensor = 4", "model.inner = 46")),
                            (["model.kv_heads=2"], ("[model.unused_key]", "model.kind = gpt_neox", "model.kv_heads")),
                            (["model.rope_scaling=linear"], ("[model.missing_key]", "model.rope_factor", "model.rope_scaling = linear"))):
            ranks = next((int(key[-1]) for key in keys if key.startswith("mesh.tensor")), 0)
            result = self.pretrain("refused", ranks, *NEOX, *keys)
            self.assert_error(result, 78, *words, lines=2 if keys == ["mesh.tensor=3"] else 1)


if __name__ == "__main__":
    bagpipe_test.main()
