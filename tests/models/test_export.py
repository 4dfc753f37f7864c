"""A model of every family, trained with every default, goes into a Hugging Face folder and comes back with the same bits. Sizes that a
checkpoint leaves out at their defaults are the danger."""
import json
import pathlib
import shutil

import bagpipe_test
from bagpipe_test import JobTest

SHORT = ["train.steps=1", "train.batch=2", "corpus.valid="]
CAUSAL = ("gpt", "llama", "gpt_neox", "mamba2", "qwen3", "olmo2", "gemma2", "smollm3", "granite", "opt", "openai_gpt", "gptj", "bloom", "gemma3", "phi3", "granite_hybrid", "bamba", "mixtral", "olmoe", "qwen3_moe")
RECURRENT = ("rnn", "lstm", "gru", "cell")
MASKED = ("bert", "roberta", "distilbert", "modernbert", "deberta", "electra")
EXPERTS = ["model.experts=4", "model.experts_chosen=2"]
MORE = {"bamba": ["model.attention_layers=2"], "mixtral": EXPERTS, "olmoe": EXPERTS, "qwen3_moe": EXPERTS, "bert": ["mask.next_sentence=no"],
        "deberta": ["model.buckets=6", "model.segments=2", "model.embedding=24", "model.convolution=3", "model.convolution_groups=2", "model.convolution_activation=gelu"], "modernbert": ["model.window=6", "model.rope_local_theta=100"], "roberta": ["model.first_position=1"]}  # the tokenizer's padding is 0
PAIRS = ("transformer", "bart", "t5")
PADS = {"phi3": 32000, "smollm3": 128004, "modernbert": 50283, "marian": 58100}  # of classes of transformers, where a folder names none; of other ones a small number


class Export(JobTest):
    VOCABULARY = 280
    TEXT_BYTES = 6000

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.must(["bagpipe-data", "tokenizer", "--kind", "wordpiece", "--size", 200, "--out", cls.at("pieces.json"), cls.at("train.txt")])
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("pieces.json"), "--format", "lines", "--out", cls.at("pieces.h5"), cls.at("train.txt")])
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "pairs", "--out", cls.at("pairs.h5"), cls.at("train.txt"),
                  cls.at("train.txt")])

        rows = [{"text": "the ship was at sea", "topic": "ab"[k % 2], "size": k} for k in range(8)]
        cls.write("rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        for name in ("pieces", "tokenizer"):
            cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at(name + ".json"), "--format", "jsonl", "--label", "topic", "--value", "size", "--out",
                      cls.at(f"rows-{name}.h5"), cls.at("rows.jsonl")])

    def comes_back(self, kind, *keys, job="pretrain", task=""):
        kind, of = kind + task, kind
        trained = self.at(kind)
        self.must(["bagpipe", job, self.at("small.ini"), "run.dir=" + trained, "model.kind=" + of, *SHORT, *keys])
        step = f"{trained}/checkpoints/step-000000000001"
        self.must(["bagpipe-data", "export", trained, "--out", self.at(kind + "-folder")])
        self.must(["bagpipe-data", "import", self.at(kind + "-folder"), "--out", self.at(kind + "-back")])
        self.must(["bagpipe-data", "export", self.at(kind + "-back"), "--out", self.at(kind + "-again")])
        self.assertEqual(self.tensors(step), self.tensors(self.at(kind + "-back")), kind)
        for folder in ("generator/", "discriminator/") if kind == "electra" else ("",):
            self.check_read(bagpipe_test.read_json(self.at(kind + "-folder"), folder + "config.json"))
            for file in ("config.json", "model.safetensors"):
                a, b = (pathlib.Path(self.at(f"{kind}-{end}"), folder, file).read_bytes() for end in ("folder", "again"))
                self.assertTrue(a == b, (kind, folder + file))

    def check_read(self, config):
        """What transformers' classes fail at: a share of a head that is null, a padding beyond the words, a list of layers with windows and no width of one."""
        self.assertIsNotNone(config.get("partial_rotary_factor", 1))
        self.assertLess(config.get("pad_token_id", PADS.get(config["model_type"], 0)) or 0, config["vocab_size"])
        if config["model_type"].startswith("gemma"):
            self.assertIsNotNone(config["sliding_window"])

    def test_gemmas_without_windows_have_full_attention_in_all_layers(self):
        for kind in ("gemma2", "gemma3"):
            self.comes_back(kind, "model.layers=3", task="-full")
            config = bagpipe_test.read_json(self.at(kind + "-full-folder"), "config.json")
            self.assertEqual((config["layer_types"], config["sliding_window"]), (["full_attention"] * 3, 32))
            self.comes_back(kind, "model.layers=3", "model.window=5", "model.window_period=2", task="-windows")
            config = bagpipe_test.read_json(self.at(kind + "-windows-folder"), "config.json")
            self.assertEqual((config["layer_types"], config["sliding_window"]), (["sliding_attention", "full_attention", "sliding_attention"], 5))

    def test_olmo2s_scaling_has_the_two_members_that_transformers_4_allows(self):
        self.comes_back("olmo2", "model.rope_scaling=linear", "model.rope_factor=4", task="-scaled")
        self.assertEqual(bagpipe_test.read_json(self.at("olmo2-scaled-folder"), "config.json")["rope_scaling"], {"type": "linear", "factor": 4.0})

    def test_a_run_goes_out_as_the_type_that_it_began_with(self):
        """Also after a stop; a RoBERTa that was trained from nothing stays one."""
        keys = [self.at("small.ini"), "model.kind=roberta", *SHORT, *MORE["roberta"], f"corpus.train={self.at('pieces.h5')}"]
        self.must(["bagpipe", "pretrain", *keys, "run.dir=" + self.at("plain")])
        self.must(["bagpipe-data", "export", self.at("plain"), "--out", self.at("plain-folder")])
        config = bagpipe_test.read_json(self.at("plain-folder"), "config.json")
        self.assertEqual(config["model_type"], "roberta")
        self.write("plain-folder/config.json", json.dumps(dict(config, model_type="xlm-roberta", architectures=["XLMRobertaForMaskedLM"])))
        self.must(["bagpipe-data", "import", self.at("plain-folder"), "--out", self.at("begun")])
        for steps in (1, 2):
            self.must(["bagpipe", "pretrain", *keys, "run.dir=" + self.at("tuned"), "model.init=" + self.at("begun"), f"train.steps={steps}", "optimizer.decay=constant"])
            self.must(["bagpipe-data", "export", self.at("tuned"), "--out", self.at(f"tuned{steps}")])
            config = bagpipe_test.read_json(self.at(f"tuned{steps}"), "config.json")
            self.assertEqual((config["model_type"], config["architectures"]), ("xlm-roberta", ["XLMRobertaForMaskedLM"]))

    def test_opts_with_norms_after_and_projections_come_back(self):
        for name, keys in (("-350m", ["model.embedding=24", "model.norms_first=no"]), ("-wide", ["model.embedding=40", "model.tied=no"])):
            self.comes_back("opt", *keys, task=name)
        config = bagpipe_test.read_json(self.at("opt-350m-folder"), "config.json")
        self.assertEqual((config["word_embed_proj_dim"], config["do_layer_norm_before"]), (24, False))

    def test_scores_without_a_multiplier_are_written_with_theirs(self):
        for kind in ("granite", "granite_hybrid"):
            self.comes_back(kind, task="-plain")
            config = bagpipe_test.read_json(self.at(kind + "-plain-folder"), "config.json")
            self.assertAlmostEqual(config["attention_multiplier"], 8 ** -0.5, delta=1e-12)

    def test_longrope_is_written_as_transformers_4_reads_it(self):
        """Which wants just these members in rope_scaling, and the original context beside it."""
        short, long = [1.0, 1.1, 1.3, 1.5], [1.2, 2.0, 3.0, 5.0]
        self.comes_back("phi3", "model.rope_scaling=longrope", "model.rope_original_context=8", "model.rope_short_factors=1,1.1,1.3,1.5",
                        "model.rope_long_factors=1.2,2,3,5", "model.rope_fraction=1", task="-long", job="pretrain")
        config = bagpipe_test.read_json(self.at("phi3-long-folder"), "config.json")
        self.assertEqual(config["rope_scaling"], {"type": "longrope", "short_factor": short, "long_factor": long})
        self.assertEqual((config["original_max_position_embeddings"], config["max_position_embeddings"]), (8, 32))
        self.comes_back("phi3", task="-plain")
        config = bagpipe_test.read_json(self.at("phi3-plain-folder"), "config.json")
        self.assertIsNone(config["rope_scaling"])
        self.assertNotIn("original_max_position_embeddings", config)

    def tensors(self, folder):
        manifest = bagpipe_test.read_json(folder, "manifest.json")
        return {tensor["name"]: (tensor["shape"], tensor["digest"]) for tensor in manifest["tensors"] if "/" not in tensor["name"]}

    def test_every_family_with_every_default(self):
        for kind in CAUSAL + MASKED + PAIRS + RECURRENT:
            with self.subTest(kind):
                keys = MORE.get(kind, []) if kind in CAUSAL else []
                if kind in MASKED:
                    keys = [f"corpus.train={self.at('pieces.h5')}"] + MORE.get(kind, [])
                elif kind in PAIRS:
                    keys = [f"corpus.train={self.at('pairs.h5')}", "corpus.cut=yes"]
                elif kind in RECURRENT:
                    keys = ["model.heads="]
                self.comes_back(kind, *keys)

    def test_every_family_with_the_head_of_a_task(self):
        for kind in MASKED + ("bart", "t5"):
            corpus = f"corpus.train={self.at('rows-pieces.h5' if kind in MASKED else 'rows-tokenizer.h5')}"
            for task, label in (("classes", "topic"), ("regression", "size"))[:2 if kind in ("bert", "t5") else 1]:
                with self.subTest(kind, task=task):
                    more = MORE[kind] if kind == "roberta" else []
                    self.comes_back(kind, corpus, "task.kind=" + task, "task.label=" + label, *more, job="finetune", task="-" + task)

    def test_sizes_of_a_manifest_are_held_to_their_keys(self):
        trained = self.trained("sizes", 0, "model.kind=llama", *SHORT)
        self.write("prompts.txt", "the\n")
        for key, value in (("layers", 1 << 31), ("layers", 10001), ("width", (1 << 20) + 1), ("context", 1 << 25), ("norm_epsilon", 2), ("rope_theta", 0.5)):
            with self.subTest(key, value=value):
                wrong = self.at(f"wrong-{key}-{value}")
                shutil.copytree(f"{trained}/checkpoints/step-000000000001", wrong)
                bagpipe_test.edit_manifest(wrong, lambda manifest: manifest["state"]["model"].update({key: value}))
                new = [self.at("small.ini"), "run.dir=" + self.at("never")]
                readers = (["score", *new, "score.model=" + wrong, "score.corpus=" + self.at("valid.h5")],
                           ["generate", *new, "generate.model=" + wrong, "generate.prompts=" + self.at("prompts.txt")],
                           ["pretrain", *new, "model.init=" + wrong, "model.layers=", "model.width=", "model.heads=", "model.context=", *SHORT])
                for arguments in readers if value == 1 << 31 else readers[:1]:  # they have one check
                    self.assert_error(bagpipe_test.run([bagpipe_test.program("bagpipe"), *arguments]), 65, "[model.bad_size]", "model." + key)
                result = bagpipe_test.run([bagpipe_test.program("bagpipe-data"), "export", wrong, "--out", self.at("never")])
                self.assert_error(result, 65, "[model.bad_size]", "model." + key)


if __name__ == "__main__":
    bagpipe_test.main()
