"""Encoder-decoders: folders of Hugging Face's form come back as they went. Their numbers are those of models.references."""
import json
import os
import shutil
import signal

import bagpipe_test
from bagpipe_test import JobTest, digests, metrics, program, read_json, timeless
from english import english

PAIRS = ["model.layers=2", "model.encoder_layers=1", "model.inner=44", "model.dropout=0.1", "train.label_smoothing=0.1", "optimizer.decay=inverse_sqrt", "optimizer.warmup=2",
         "train.steps=6", "train.valid_every=3", "model.context=32"]
FOLDERS = ("transformer-tiny", "bart-tiny")


def tensors(folder):
    """What model.safetensors says of its tensors, and all their bytes."""
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        head.pop("__metadata__", None)
        return head, file.read()


class Seq2Seq(JobTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        words = english(4000).split()
        for name, count in (("train", 90), ("valid", 14)):
            with open(cls.at(name + ".src"), "w", encoding="utf-8") as source, open(cls.at(name + ".tgt"), "w", encoding="utf-8") as target:
                for k in range(count):
                    text = [words[(k * 7 + j * 3) % len(words)] for j in range(2 + k % 5)]
                    source.write(" ".join(text) + "\n")
                    target.write(" ".join(reversed(text)) + "\n")
            cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "pairs", "--out", cls.at("pairs-" + name + ".h5"),
                      cls.at(name + ".src"), cls.at(name + ".tgt")])

    def pairs(self, name, ranks=0, *keys, kind="transformer"):
        return self.trained(name, ranks, "model.kind=" + kind, f"corpus.train={self.at('pairs-train.h5')}", f"corpus.valid={self.at('pairs-valid.h5')}", *PAIRS, *keys)

    def test_every_mesh_trains_the_same_model(self):
        for kind in ("transformer", "bart"):
            one = metrics(self.pairs("one-" + kind, 0, "train.recompute=yes", kind=kind))
            for name, ranks, keys in (("tensor", 2, ["mesh.tensor=2"]), ("pipeline", 3, ["mesh.pipeline=3"]), ("all", 4, ["mesh.tensor=2", "mesh.pipeline=2", "mesh.schedule=interleaved"])):
                with self.subTest(name, kind=kind):
                    other = metrics(self.pairs(f"{name}-{kind}", ranks, *keys, kind=kind))
                    for a, b in zip(one, other, strict=True):
                        self.assertLess(abs(a["loss"] - b["loss"]), 2e-5)

    def test_data_ranks_give_the_bits_of_one(self):
        one = self.pairs("data1")
        self.assertLess(metrics(one)[-1]["loss"], metrics(one)[0]["loss"])
        for ranks in (2, 4):
            other = self.pairs(f"data{ranks}", ranks)
            self.assertEqual(timeless(metrics(one)), timeless(metrics(other)))
            self.assertEqual(digests(one), digests(other))

    def test_a_killed_run_goes_on_with_the_same_bits(self):
        keys = ["mesh.data=2", "checkpoint.every=2"]
        straight = self.pairs("straight", 2, *keys)
        command = [program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('killed')}", "model.kind=transformer",
                   f"corpus.train={self.at('pairs-train.h5')}", f"corpus.valid={self.at('pairs-valid.h5')}", *PAIRS, *keys]
        killed = self.background(command, 2, env={"BP_FAULT": "step.end:5@1=kill"})
        killed.communicate()
        self.assertNotIn(killed.returncode, (0, -signal.SIGKILL))
        self.pairs("killed", 2, *keys)
        self.assertEqual(timeless(metrics(straight)), timeless(metrics(self.at("killed"))))
        self.assertEqual(digests(straight), digests(self.at("killed")))

    def test_every_mesh_writes_the_same(self):
        """From texts, by beams, that sources of several lengths are given for."""
        model, prompts = self.pairs("writer"), self.at("valid.src")
        texts = []
        for name, ranks, mesh in (("one", 0, []), ("tensor", 2, ["mesh.tensor=2"]), ("data", 2, []), ("both", 4, ["mesh.tensor=2", "mesh.pipeline=2"])):
            folder = self.at("write-" + name)
            self.must(["bagpipe", "generate", self.at("small.ini"), f"run.dir={folder}", f"generate.model={model}", f"generate.prompts={prompts}", "generate.strategy=beam",
                       "generate.tokens=12", "math.precision=f32", *mesh], ranks)
            with open(os.path.join(folder, "generate", "outputs.jsonl"), encoding="utf-8") as file:
                texts.append([(line["tokens"], line["logprob"]) for line in map(json.loads, file)])
        self.assertEqual(len(texts[0]), 14)
        for other in texts[1:]:
            for (tokens, logprob), (same, near) in zip(texts[0], other, strict=True):
                self.assertEqual(tokens, same)
                self.assertLess(abs(logprob - near), 1e-4)

    def test_what_is_no_pair_or_too_long_is_said(self):
        pairs = ["model.kind=transformer", f"corpus.train={self.at('pairs-train.h5')}", f"corpus.valid={self.at('pairs-valid.h5')}", *PAIRS]
        self.assert_error(self.pretrain("long", 0, *pairs, "model.context=4"), 65, "[corpus.long_pairs]")
        result = self.pretrain("cut", 0, *pairs, "model.context=4", "corpus.cut=yes")
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[corpus.cut_pairs]", times=2)
        self.assert_error(self.pretrain("texts", 0, "model.kind=transformer", *PAIRS), 78, "[corpus.no_pairs]")
        self.assert_error(self.pretrain("beyond", 0, *pairs, "model.start_token=2000000"), 78, "[model.no_start]")

    def test_what_is_written_is_the_reference(self):
        """Greedy texts and beams with their scores, of all cases, on stages too."""
        for folder in FOLDERS:
            tokens, truth = read_json(self.tiny(folder), "tokens.json"), read_json(self.tiny(folder), "generation.json")
            model, prompts = self.at("written-" + folder), self.at(folder + ".jsonl")
            self.must(["bagpipe-data", "import", self.tiny(folder), "--out", model, "--no-tokenizer"])
            with open(prompts, "w", encoding="utf-8") as file:
                for ids, seen in zip(tokens["input_ids"], tokens["attention_mask"]):
                    file.write(json.dumps({"tokens": ids[:sum(seen)]}) + "\n")
            for mesh, ranks in (([], 0), (["mesh.pipeline=2"], 2), (["mesh.pipeline=3"], 3)):
                for k, case in enumerate(truth["cases"] if ranks == 0 else truth["cases"][-1:]):
                    with self.subTest(folder, case=k, ranks=ranks):
                        self.check_case(self.at(f"out-{folder}-{k}-{ranks}"), model, prompts, case, ranks, mesh)

    def check_case(self, folder, model, prompts, case, ranks, mesh):
        beams, end = case["num_beams"], case["eos_token_id"]
        keys = [f"generate.strategy={'beam' if beams > 1 else 'greedy'}", f"generate.end={-1 if end is None else end}", "generate.tokens=12", "math.precision=f32"]
        if beams > 1:
            keys += [f"generate.beams={beams}", f"generate.samples={beams}", f"generate.length_penalty={case['length_penalty']}"]
        self.must(["bagpipe", "generate", self.at("small.ini"), f"run.dir={folder}", f"generate.model={model}", f"generate.prompts={prompts}", *keys, *mesh], ranks)
        with open(os.path.join(folder, "generate", "outputs.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        self.assertEqual([line["tokens"] for line in lines], [text for row in case["sequences"] for text in row])
        if beams > 1:
            for line, score in zip(lines, [score for row in case["scores"] for score in row], strict=True):
                self.assertLess(abs(line["logprob"] / len(line["tokens"]) ** case["length_penalty"] - score), 5e-5)
        else:
            for line, logprobs in zip(lines, [text for row in case["logprobs"] for text in row], strict=True):
                self.assertLess(max(abs(a - b) for a, b in zip(line["logprobs"], logprobs, strict=True)), 2e-5)

    def tiny(self, folder):
        path = bagpipe_test.shared(os.path.join("reference", folder))
        if path is None:
            self.skipTest("it needs ../shared/reference")
        return path

    def test_folders_come_back_as_they_went(self):
        for folder in FOLDERS:
            with self.subTest(folder):
                taken, back = self.at(folder), self.at(folder + "-back")
                self.must(["bagpipe-data", "import", self.tiny(folder), "--out", taken, "--no-tokenizer"])
                self.must(["bagpipe-data", "export", taken, "--out", back, "--no-tokenizer"])
                self.assertEqual(tensors(self.tiny(folder)), tensors(back))
                before, after = read_json(self.tiny(folder), "config.json"), read_json(back, "config.json")
                for key in ("model_type", "d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads", "encoder_ffn_dim",
                            "decoder_ffn_dim", "vocab_size", "decoder_start_token_id", "eos_token_id", "is_encoder_decoder", "tie_word_embeddings", "scale_embedding"):
                    self.assertEqual(before[key], after[key], key)

    def test_other_computations_are_refused(self):
        for key, value in (("activation_function", "gelu_new"), ("scale_embedding", True), ("decoder_attention_heads", 2), ("normalize_before", True)):
            with self.subTest(key):
                folder = self.at("other-" + key)
                shutil.copytree(self.tiny("bart-tiny"), folder)
                os.chmod(folder, 0o755)
                config = read_json(folder, "config.json")
                config[key] = value
                path = os.path.join(folder, "config.json")
                os.chmod(path, 0o644)
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(config, file)
                result = bagpipe_test.run([program("bagpipe-data"), "import", folder, "--out", self.at("refused"), "--no-tokenizer"])
                self.assert_error(result, 65, "[huggingface.unsupported]")


if __name__ == "__main__":
    bagpipe_test.main()
