"""Encoder-decoders: folders of Hugging Face's form come back as they went. Their numbers are those of models.references."""
import json
import os
import shutil
import signal

import numpy

import bagpipe_test
from bagpipe_test import JobTest, digests, metrics, program, read_json, timeless
from english import english
from t5_numpy import T5, read_tensors, write_tensors

PAIRS = ["model.layers=2", "model.encoder_layers=1", "model.inner=44", "model.dropout=0.1", "train.label_smoothing=0.1", "optimizer.decay=inverse_sqrt", "optimizer.warmup=2",
         "train.steps=6", "train.valid_every=3", "model.context=32"]
FOLDERS = ("transformer-tiny", "bart-tiny", "t5-tiny")
FIRST_T5 = ["model.tied=yes", "model.gated=no", "model.relative_buckets=8", "model.relative_distance=12"]


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
        for kind in ("transformer", "bart", "t5"):
            sizes = FIRST_T5 if kind == "t5" else []
            one = metrics(self.pairs("one-" + kind, 0, "train.recompute=yes", *sizes, kind=kind))
            for name, ranks, keys in (("tensor", 2, ["mesh.tensor=2"]), ("pipeline", 3, ["mesh.pipeline=3"]), ("all", 4, ["mesh.tensor=2", "mesh.pipeline=2", "mesh.schedule=interleaved"])):
                with self.subTest(name, kind=kind):
                    other = metrics(self.pairs(f"{name}-{kind}", ranks, *keys, *sizes, kind=kind))
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
                            "decoder_ffn_dim", "vocab_size", "decoder_start_token_id", "eos_token_id", "is_encoder_decoder", "tie_word_embeddings", "scale_embedding",
                            "num_layers", "num_decoder_layers", "num_heads", "d_kv", "d_ff", "feed_forward_proj", "relative_attention_num_buckets", "relative_attention_max_distance",
                            "layer_norm_epsilon"):
                    self.assertEqual(before.get(key), after.get(key) if key in before else None, key)

    def changed(self, folder, name, **keys):
        """A copy of a folder whose config.json says something else."""
        copy = self.at(name)
        shutil.copytree(self.tiny(folder), copy)
        for path in (copy, *(os.path.join(copy, file) for file in os.listdir(copy))):
            os.chmod(path, 0o755)
        with open(os.path.join(copy, "config.json"), encoding="utf-8") as file:
            config = {**json.load(file), **keys}
        with open(os.path.join(copy, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        return copy, config

    def test_other_computations_are_refused(self):
        for family, key, value, what in (("bart-tiny", "activation_function", "gelu_new", "unsupported"), ("bart-tiny", "scale_embedding", True, "unsupported"),
                                         ("bart-tiny", "decoder_attention_heads", 2, "unsupported"), ("bart-tiny", "normalize_before", True, "unsupported"),
                                         ("t5-tiny", "feed_forward_proj", "gated-silu", "unsupported"), ("t5-tiny", "dense_act_fn", "relu", "unsupported"),
                                         ("t5-tiny", "is_gated_act", False, "unsupported"), ("t5-tiny", "relative_attention_num_buckets", 7, "bad_buckets"),
                                         ("t5-tiny", "relative_attention_max_distance", 4, "bad_buckets")):
            with self.subTest(key):
                folder, _ = self.changed(family, "other-" + key, **{key: value})
                result = bagpipe_test.run([program("bagpipe-data"), "import", folder, "--out", self.at("refused"), "--no-tokenizer"])
                self.assert_error(result, 65, f"[huggingface.{what}]")
        result = self.pretrain("buckets", 0, "model.kind=t5", f"corpus.train={self.at('pairs-train.h5')}", *PAIRS, "model.relative_buckets=32", "model.relative_distance=16")
        self.assert_error(result, 78, "[model.bad_buckets]")

    def test_the_first_t5_is_its_formulas(self):
        """ReLU, and a tied vocabulary. The twin is held to the reference of the version that there is one of; then what is written is compared, on stages too."""
        tokens, truth = read_json(self.tiny("t5-tiny"), "tokens.json"), read_json(self.tiny("t5-tiny"), "expected.json")
        later, rows = T5(read_json(self.tiny("t5-tiny"), "config.json"), read_tensors(self.tiny("t5-tiny"))), range(len(tokens["labels"]))
        sources = [ids[:sum(seen)] for ids, seen in zip(tokens["input_ids"], tokens["attention_mask"])]
        found = [later.logprobs(sources[b], tokens["decoder_input_ids"][b])[t][label] for b in rows for t, label in enumerate(tokens["labels"][b]) if label >= 0]
        self.assertLess(abs(-numpy.mean(found) - truth["loss"]), 1e-9)
        folder, config = self.changed("t5-tiny", "first-t5", feed_forward_proj="relu", tie_word_embeddings=True)
        tensors = {}
        for name, values in read_tensors(self.tiny("t5-tiny")).items():
            if name != "lm_head.weight" and "wi_1" not in name:
                tensors[name.replace("wi_0", "wi")] = values
        write_tensors(folder, tensors)
        model, back, prompts = self.at("first-model"), self.at("first-back"), self.at("first.jsonl")
        self.must(["bagpipe-data", "import", folder, "--out", model, "--no-tokenizer"])
        self.must(["bagpipe-data", "export", model, "--out", back, "--no-tokenizer"])
        for name, values in read_tensors(back).items():
            numpy.testing.assert_array_equal(values, tensors.pop(name))
        self.assertEqual(tensors, {})
        with open(prompts, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"tokens": ids}) + "\n" for ids in sources)
        twin = T5(config, read_tensors(folder))
        for mesh, ranks in (([], 0), (["mesh.pipeline=3"], 3)):
            out = self.at(f"first-out-{ranks}")
            self.must(["bagpipe", "generate", self.at("small.ini"), f"run.dir={out}", f"generate.model={model}", f"generate.prompts={prompts}", "generate.strategy=greedy",
                       "generate.end=-1", "generate.tokens=40", "math.precision=f32", *mesh], ranks)
            with open(os.path.join(out, "generate", "outputs.jsonl"), encoding="utf-8") as file:
                for source, line in zip(sources, map(json.loads, file), strict=True):
                    expected = twin.logprobs(source, [config["decoder_start_token_id"]] + line["tokens"][:-1])
                    for row, token, logprob in zip(expected, line["tokens"], line["logprobs"], strict=True):
                        self.assertLess(abs(row[token] - logprob), 2e-5)
                        self.assertLess(row.max() - row[token], 2e-5)


if __name__ == "__main__":
    bagpipe_test.main()
