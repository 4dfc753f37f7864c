"""Encoder-decoders: folders of Hugging Face's form come back as they went. Their numbers are those of models.references."""
import csv
import json
import math
import os
import pathlib
import shutil
import signal

import h5py
import numpy

import bagpipe_test
from bagpipe_test import JobTest, digests, metrics, program, read_json, state_of, steps, timeless
from english import english
from t5_numpy import T5, read_tensors, write_tensors
from tensors import tensors_of

PAIRS = ["model.layers=2", "model.encoder_layers=1", "model.inner=44", "model.dropout=0.1", "train.label_smoothing=0.1", "optimizer.decay=inverse_sqrt", "optimizer.warmup=2",
         "train.steps=6", "train.valid_every=3", "model.context=32"]
ENTMAX = ["head.activation=entmax15", "model.attention_activation=entmax15"]
MIXTURE = ["head.softmaxes=3", "model.attention_activation=entmax15"]
FOLDERS = ("transformer-tiny", "bart-tiny", "t5-tiny", "t5-plain-tiny", "mt5-tiny", "marian-tiny", "mbart-tiny", "m2m_100-tiny")
FIRST_T5 = ["model.tied=yes", "model.gated=no", "model.relative_buckets=8", "model.relative_distance=12"]


def tensors(folder):
    """What model.safetensors says of its tensors, and all their bytes."""
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        head.pop("__metadata__", None)
        return head, file.read()


def framed(tokenizer, *texts):
    """The ids that the template of a tokenizer.json makes of a text or two."""
    template, out = tokenizer["post_processor"], []
    for part in template["single" if len(texts) == 1 else "pair"]:
        (kind, about), = part.items()
        out += texts["AB".index(about["id"])] if kind == "Sequence" else template["special_tokens"][about["id"]]["ids"]
    return out


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
        for kind in ("transformer", "bart", "mbart", "t5"):
            sizes = FIRST_T5 if kind == "t5" else []
            one = metrics(self.pairs("one-" + kind, 0, "train.recompute=yes", *sizes, kind=kind))
            for name, ranks, keys in (("pipeline", 3, ["mesh.pipeline=3"]), ("all", 4, ["mesh.tensor=2", "mesh.pipeline=2", "mesh.schedule=interleaved"])):
                with self.subTest(name, kind=kind):
                    other = metrics(self.pairs(f"{name}-{kind}", ranks, *keys, *sizes, kind=kind))
                    for a, b in zip(one, other, strict=True):
                        self.assertLess(abs(a["loss"] - b["loss"]), 2e-5)

    def test_tables_of_layers_are_written_only_where_they_are(self):
        """As in umt5, on a mesh too. Other runs of t5 go on, also those that began before there was the key, which their config.ini does not have."""
        keys, line = [*FIRST_T5, "model.encoder_layers=2", "train.steps=3"], "\nrelative_layers = yes\n"
        one = self.pairs("own-tables", 0, *keys, "model.relative_layers=yes", kind="t5")
        other = self.pairs("own-tables-mesh", 4, *keys, "model.relative_layers=yes", "mesh.tensor=2", "mesh.pipeline=2", kind="t5")
        for a, b in zip(metrics(one), metrics(other), strict=True):
            self.assertLess(abs(a["loss"] - b["loss"]), 2e-5)
        shared = self.pairs("shared-table", 0, *keys, "model.relative_layers=no", kind="t5")
        self.assertNotEqual(metrics(shared)[-1]["loss"], metrics(one)[-1]["loss"])
        for folder, text, value in ((one, line, True), (self.pairs("usual-table", 0, *keys, kind="t5"), "\n; relative_layers =", None)):
            self.assertEqual(state_of(folder)["model"].get("relative_layers"), value)
            with open(os.path.join(folder, "config.ini"), encoding="utf-8") as file:
                self.assertIn(text, file.read())

    def test_data_ranks_give_the_bits_of_one(self):
        one = self.pairs("data1")
        self.assertLess(metrics(one)[-1]["loss"], metrics(one)[0]["loss"])
        other = self.pairs("data4", 4)
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

    def test_variants_train_on_every_mesh_and_write_what_they_score(self):
        """Entmax in attention and output, and mixtures of softmaxes; of words, so that the tokenizer makes the same tokens of what is written."""
        words = [f"{c}{k}" for c in "abcd" for k in range(9)]
        self.must(["bagpipe-data", "tokenizer", "--kind", "word", "--out", self.at("all.json"), self.write("all.txt", " ".join(words) + "\n")])
        source, target = ([" ".join(words[(k * 7 + j * step) % 36] for j in range(2 + k % 5)) + "\n" for k in range(40)] for step in (3, 5))
        corpus = self.word_pairs("variants", source, target)
        keep = [f"corpus.train={corpus}", f"corpus.valid={corpus}", "train.label_smoothing=0", "train.steps=4", "train.valid_every=0", "optimizer.lr=1e-2"]
        for kind, keys, ranks, mesh in (("transformer", ENTMAX, 2, ["mesh.tensor=2"]), ("bart", MIXTURE, 2, ["mesh.tensor=2"]),
                                        ("t5", ENTMAX, 4, ["mesh.tensor=2", "mesh.pipeline=2"])):
            one = self.pairs("variant-" + kind, 0, *keys, *keep, kind=kind)
            for a, b in zip(metrics(one), metrics(self.pairs("variant-mesh-" + kind, ranks, *keys, *keep, *mesh, kind=kind)), strict=True):
                self.assertLess(abs(a["loss"] - b["loss"]), 5e-5, kind)
            lines = self.written("variant-written-" + kind, 2, one, "mesh.tensor=2", "generate.strategy=sample", "generate.temperature=3", "generate.end=-1",
                                 f"generate.prompts={self.at('variants.src')}")
            lines = [line for line in lines if line["text"] and "<" not in line["text"]]
            again = self.word_pairs("again-" + kind, [line["prompt"] + "\n" for line in lines], [line["text"] + "\n" for line in lines])
            folder = self.at("variant-scores-" + kind)
            self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={folder}", f"score.model={one}", f"score.corpus={again}", "score.end=no",
                       "math.precision=f32"])
            self.assertGreater(len(lines), 2, kind)
            with h5py.File(os.path.join(folder, "score", "documents.h5")) as file:
                for line, nll, tokens in zip(lines, file["nll"][:], file["tokens"][:], strict=True):
                    self.assertEqual(tokens, len(line["tokens"]), kind)
                    self.assertLess(abs(nll + sum(line["logprobs"])), 1e-4, kind)

    def word_pairs(self, name, source, target):
        files = [self.write(f"{name}.{side}", "".join(lines)) for side, lines in (("src", source), ("tgt", target))]
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("all.json"), "--format", "pairs", "--out", self.at(name + ".h5"), *files])
        return self.at(name + ".h5")

    def test_adapters_alone_are_trained(self):
        """Of cross-attention too; merged by export they give the same scores."""
        corpus, fine = self.at("pairs-valid.h5"), ["adapter.rank=3", "optimizer.lr=1e-2", "model.dropout=0", "train.label_smoothing=0"]
        base = self.pairs("adapter-base")
        for kind, more in (("lora", ["adapter.targets=q,k,v,out,up,down"]), ("bottleneck", [])):
            keys = [f"model.init={base}", f"adapter.kind={kind}", *more, *fine]
            one = self.pairs("adapter-" + kind, 0, *keys)
            self.assertLess(metrics(one)[-1]["valid_loss"], metrics(base)[-1]["valid_loss"])
            for mesh in (["mesh.tensor=2"], ["mesh.pipeline=2", "train.recompute=yes"])[:1 + (kind == "lora")]:
                for a, b in zip(metrics(one), metrics(self.pairs(f"adapter-{kind}-{mesh[0][5:7]}", 2, *keys, *mesh)), strict=True):
                    self.assertLess(abs(a["loss"] - b["loss"]), 2e-5)
                    self.assertLess(abs(a["grad_norm"] - b["grad_norm"]), 1e-3 * a["grad_norm"])
        before, after = (tensors_of(os.path.join(folder, "checkpoints", steps(folder)[-1])) for folder in (base, self.at("adapter-lora")))
        added = [name for name in after if "lora" in name and "/" not in name]
        self.assertEqual(sum(".cross." in name for name in added), 2 * 2 * 4)
        for name in before:
            if "/" not in name:
                numpy.testing.assert_array_equal(before[name], after[name])
        self.must(["bagpipe-data", "export", self.at("adapter-lora"), "--out", self.at("merged-folder")])
        self.must(["bagpipe-data", "import", self.at("merged-folder"), "--out", self.at("merged")])
        values = []
        for name in ("adapter-lora", "merged", "adapter-base"):
            self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={self.at('scores-of-' + name)}", f"score.model={self.at(name)}",
                       f"score.corpus={corpus}", "math.precision=f32"])
            values.append(read_json(self.at("scores-of-" + name), "score", "summary.json")["nll_nats"])
        self.assertLess(abs(values[0] - values[1]), 1e-6 * values[0])
        self.assertGreater(abs(values[0] - values[2]), 1e-3 * values[0])

    def written(self, name, ranks, model, *keys):
        folder = self.at("write-" + name)
        self.must(["bagpipe", "generate", self.at("small.ini"), f"run.dir={folder}", f"generate.model={model}", f"generate.prompts={self.at('valid.src')}",
                   "generate.strategy=beam", "generate.tokens=12", "math.precision=f32", *keys], ranks)
        with open(os.path.join(folder, "generate", "outputs.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def test_every_mesh_writes_the_same(self):
        """From texts, by beams, that sources of several lengths are given for."""
        model, texts = self.pairs("writer"), []
        for name, ranks, mesh in (("one", 0, []), ("data", 2, []), ("both", 4, ["mesh.tensor=2", "mesh.pipeline=2"])):
            texts.append([(line["tokens"], line["logprob"]) for line in self.written(name, ranks, model, *mesh)])
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
        for bad in (0, 1):  # the file is named that has the byte
            sides = [self.at(f"bad{bad}{side}.txt") for side in (0, 1)]
            for side, path in enumerate(sides):
                pathlib.Path(path).write_bytes(b"a b\nc " + (b"\xff" if side == bad else b"d") + b"\n")
            result = self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "pairs", "--out", self.at(f"bad{bad}.h5"), *sides])
            self.assert_warning(result, "[text.not_utf8]", f"at {sides[bad]}, line 2;")
        self.assert_error(self.pretrain("beyond", 0, *pairs, "model.start_token=2000000"), 78, "[model.no_start]")

    def language_model(self, name, kind):
        """Of the tokenizer NAME.json; its weights are the initial ones."""
        sides = [self.write(f"{name}.{side}", "a1 b2\nb3 a4 a5\n") for side in ("src", "tgt")]
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at(name + ".json"), "--format", "pairs", "--out", self.at(name + ".h5"), *sides])
        return self.trained(f"{kind}-of-{name}", 0, "model.kind=" + kind, *PAIRS, f"corpus.train={self.at(name + '.h5')}", "corpus.valid=", "train.valid_every=0", "train.steps=1",
                            "optimizer.lr=0")

    def lines_of(self, name, model, prompts, *keys):
        path = self.write(name + ".jsonl", "".join(json.dumps(prompt) + "\n" for prompt in prompts))
        return [(line["tokens"], line["logprobs"]) for line in self.written(name, 0, model, f"generate.prompts={path}", "generate.end=-1", "generate.tokens=6", *keys)]

    def test_languages_have_names(self):
        """The source's tag is where the tokenizer's template puts one, the target's is the first token; or begins the target; or the source."""
        self.must(["bagpipe-data", "tokenizer", "--kind", "word", "--special", "<pad>,eng_Latn,__fr__,>>de<<", "--out", self.at("tags.json"),
                   self.write("tags.words", " ".join(f"{c}{k}" for c in "ab" for k in range(9)) + "\n")])
        root = read_json(self.at("tags.json"))
        ids = {**root["model"]["vocab"], **{token["content"]: token["id"] for token in root["added_tokens"]}}
        texts, end = ("a1 b2 a3", "b4"), ids["<|endoftext|>"]
        sources = [[ids[word] for word in text.split()] + [end] for text in texts]
        model, prompts = self.language_model("tags", "m2m_100"), [{"prompt": text} for text in texts]
        plain = self.lines_of("tag-plain", model, prompts)
        self.assertEqual(plain, self.lines_of("tag-ids", model, [{"tokens": source} for source in sources]))
        both = self.lines_of("tag-both", model, prompts, "generate.source_language=eng_Latn", "generate.language=fr")
        self.assertEqual(both, self.lines_of("tag-both-ids", model, [{"tokens": [ids["eng_Latn"], *source]} for source in sources], "generate.first=__fr__"))
        for (tokens, logprobs), (others, _) in zip(both, plain, strict=True):
            self.assertEqual((tokens[0], logprobs[0]), (ids["__fr__"], 0))
            self.assertNotEqual(tokens, others)
        before = self.lines_of("tag-before", model, prompts, "generate.language=de")
        self.assertEqual(before, self.lines_of("tag-before-ids", model, [{"tokens": [ids[">>de<<"], *source]} for source in sources]))
        special = {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in ("eng_Latn", "<|endoftext|>")}
        root["post_processor"] = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, *({"SpecialToken": {"id": name, "type_id": 0}} for name in
                                                                                                                       ("<|endoftext|>", "eng_Latn"))],
                                  "pair": [], "special_tokens": special}
        self.write("after.json", json.dumps(root))
        model, other = self.language_model("after", "mbart"), self.at("other-start")
        shutil.copytree(model, other)
        bagpipe_test.edit_manifest(os.path.join(other, "checkpoints", steps(other)[-1]), lambda manifest: manifest["state"]["model"].update(start_token=ids["__fr__"] + 1))
        after = self.lines_of("tag-after", model, prompts, "generate.source_language=eng_Latn", "generate.language=fr")
        self.assertEqual(after, self.lines_of("tag-after-ids", other, [{"tokens": [*source, ids["eng_Latn"]]} for source in sources]))
        self.assertNotEqual(after[0][0][0], ids["__fr__"])
        words = [ids[f"{c}{k}"] for c in "ab" for k in range(9)] * 3  # longer than the context; ids have no tag after their end, which they keep
        for tail in ([end], [end, ids["eng_Latn"]]):
            cut, own = (self.lines_of(f"cut{len(tail)}-{name}", model, [{"tokens": source + tail}], "generate.source_language=eng_Latn", *keys)
                        for name, source, keys in (("all", words, ["generate.cut=yes"]), ("own", words[:32 - len(tail)], [])))
            self.assertEqual(cut, own)
        nllb = self.lines_of("tag-nllb", self.language_model("after", "m2m_100"), prompts, "generate.language=fr")
        self.assertEqual(nllb[0][0][0], ids["__fr__"])
        for keys, status, identifier in ((["generate.language=xx"], 78, "generate.no_language"), (["generate.first=xx"], 78, "generate.no_token"),
                                         (["generate.last=1000000"], 78, "generate.no_token"), (["generate.first=5", "generate.language=fr"], 78, "generate.two_firsts")):
            self.assert_error(bagpipe_test.run([program("bagpipe"), "generate", self.at("small.ini"), f"run.dir={self.at('no-tags')}", f"generate.model={model}",
                                                f"generate.prompts={self.at('tag-after.jsonl')}", *keys]), status, f"[{identifier}]")
        gpt = self.trained("causal", 0, "train.steps=1")
        self.assert_error(bagpipe_test.run([program("bagpipe"), "generate", self.at("small.ini"), f"run.dir={self.at('no-source')}", f"generate.model={gpt}",
                                            f"generate.prompts={self.at('tag-after.jsonl')}", "generate.language=fr"]), 78, "[generate.no_source]")

    def test_what_a_folder_forces_is_written(self):
        """Its first and last tokens, and none of those that it rules out; training keeps that, and export writes it."""
        config = {"forced_bos_token_id": 7, "forced_eos_token_id": 0, "bad_words_ids": [[89], [45], [3, 4]]}
        folder, _ = self.changed("marian-tiny", "forcing", **{**config, "bad_words_ids": [[70]]})
        self.write("forcing/generation_config.json", json.dumps(config))
        model, prompts = self.at("forcing-model"), [{"tokens": [5, 6, 0]}, {"tokens": [8, 0]}]
        self.must(["bagpipe-data", "import", folder, "--out", model, "--no-tokenizer"])
        for strategy in ("greedy", "beam", "sample"):
            for tokens, logprobs in self.lines_of("forced-" + strategy, model, prompts, "generate.strategy=" + strategy):
                self.assertEqual((tokens[0], tokens[-1], logprobs[0], logprobs[-1], len(tokens)), (7, 0, 0, 0, 6))
                self.assertFalse({89, 45} & set(tokens))
        free = self.lines_of("unforced", model, prompts, "generate.first=none", "generate.last=none", "generate.strategy=greedy")
        for tokens, logprobs in free:
            self.assertFalse({89, 45} & set(tokens))
            self.assertLess(max(logprobs), 0)
        self.must(["bagpipe-data", "export", model, "--out", self.at("forcing-back"), "--no-tokenizer"])
        back = read_json(self.at("forcing-back"), "config.json")
        self.assertEqual({key: back[key] for key in config}, {**config, "bad_words_ids": [[89], [45]]})
        base = self.pairs("forced-base", 0, "train.steps=1")
        bagpipe_test.edit_manifest(os.path.join(base, "checkpoints", steps(base)[-1]), lambda manifest: manifest["state"].update(forced={"forced_bos_token_id": 3}))
        tuned = self.pairs("forced-tuned", 0, f"model.init={base}", "train.steps=1")
        self.assertEqual(bagpipe_test.state_of(tuned)["forced"], {"forced_bos_token_id": 3})

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

    def topics(self, tokenizer):
        """Corpora of two topics, and the configuration of a task."""
        for name, count in (("train", 40), ("valid", 12)):
            rows = [{"text": " ".join(f"{'ab'[k % 2]}{(k * 5 + j * 3) % 9}" for j in range(2 + k % 5)), "topic": "ab"[k % 2], "far": k % 4 / 4} for k in range(count)]
            self.write(f"topics-{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
            self.must(["bagpipe-data", "corpus", "--tokenizer", self.at(tokenizer), "--format", "jsonl", "--label", "topic", "--value", "far", "--out",
                       self.at(f"topics-{name}.h5"), self.at(f"topics-{name}.jsonl")])
        self.write("topics.ini", f"[corpus]\ntrain = {self.at('topics-train.h5')}\nvalid = {self.at('topics-valid.h5')}\n[task]\nlabel = topic\nkind = classes\n"
                   "[train]\nbatch = 4\nlog_every = 1\n[math]\nprecision = f32\n")
        return rows

    def tuned(self, name, ranks, *keys):
        self.must(["bagpipe", "finetune", self.at("topics.ini"), f"run.dir={self.at(name)}", *keys], ranks)
        return self.at(name)

    def check_classes(self, rows, ids, end):
        """The folder that is exported holds what classifies so, and comes back as it went. A head of an earlier version has the linear map alone."""
        learnt, folder, back = self.at("topics-learn"), self.at("topics-folder"), self.at("topics-back")
        self.must(["bagpipe-data", "export", learnt, "--out", folder])
        self.must(["bagpipe-data", "import", folder, "--out", back])
        self.assertEqual(read_json(folder, "config.json")["architectures"], ["T5ForSequenceClassification"])
        self.assertEqual(read_json(folder, "config.json")["id2label"], {"0": "a", "1": "b"})
        self.assertEqual(read_json(folder, "tokenizer_config.json")["model_max_length"], bagpipe_test.state_of(learnt)["model"]["context"])
        self.assertEqual(read_json(back, "manifest.json")["state"]["tokenizer_hash"], bagpipe_test.state_of(learnt)["tokenizer_hash"])
        self.must(["bagpipe-data", "export", back, "--out", self.at("topics-again")])
        self.assertEqual(tensors(folder), tensors(self.at("topics-again")))
        for name in ("tokenizer.json", "tokenizer_config.json"):
            self.assertEqual(read_json(folder, name), read_json(self.at("topics-again"), name))
        w = {name.removeprefix("transformer."): values for name, values in read_tensors(folder).items()}
        twin, head = T5(read_json(folder, "config.json"), w), [w.pop(f"classification_head.{name}") for name in ("dense.weight", "dense.bias", "out_proj.weight", "out_proj.bias")]
        shutil.copytree(learnt, self.at("topics-linear"))
        bagpipe_test.edit_manifest(os.path.join(self.at("topics-linear"), "checkpoints", steps(learnt)[-1]), lambda manifest: manifest["state"]["model"].pop("dense"))
        for name, ranks, model, mesh, dense in (("tensor", 3, learnt, ["mesh.tensor=3"], True), ("stages", 2, back, ["mesh.pipeline=2"], True),
                                                ("linear", 0, self.at("topics-linear"), [], False)):
            self.must(["bagpipe", "score", self.at("topics.ini"), f"run.dir={self.at('topics-scored-' + name)}", f"score.model={model}",
                       f"score.corpus={self.at('topics-valid.h5')}", "math.precision=f32", *mesh], ranks)
            with open(os.path.join(self.at("topics-scored-" + name), "score", "predictions.csv"), encoding="utf-8") as file:
                for row, line in zip(rows, csv.DictReader(file), strict=True):
                    text = [ids[word] for word in row["text"].split()] + [end]
                    state = twin.stack("decoder", [0] + text[:-1], twin.stack("encoder", text))[-1]
                    logits = head[2] @ (numpy.tanh(head[0] @ state + head[1]) if dense else state) + head[3]
                    self.assertEqual(line["prediction"], "ab"[logits.argmax()])
                    self.assertLess(abs(float(line["probability"]) - 1 / numpy.exp(logits - logits.max()).sum()), 1e-5)

    def check_older_head(self, base):
        """A run that an earlier version began, whose head has no layer with tanh, goes on as it is; export says why it can't be written."""
        mean, older = (self.tuned("topics-" + name, 0, base, "train.steps=2", *keys) for name, keys in (("mean", ["task.pool=mean"]), ("older", [])))
        export = [program("bagpipe-data"), "export", mean, "--out", self.at("topics-nowhere")]
        self.assert_error(bagpipe_test.run(export), 65, "[export.no_counterpart]", "pool = mean")
        step = os.path.join(older, "checkpoints", steps(older)[-1])
        shutil.rmtree(step)
        shutil.copytree(os.path.join(mean, "checkpoints", steps(mean)[-1]), step)
        bagpipe_test.edit_manifest(step, lambda manifest: manifest["state"]["model"].update(pool="last"))
        self.tuned("topics-older", 0, base, "train.steps=4")
        self.assertNotIn("pooler.weight", tensors_of(os.path.join(older, "checkpoints", steps(older)[-1])))
        self.assertEqual([line["step"] for line in metrics(older)], [1, 2, 3, 4])
        export[2] = older
        self.assert_error(bagpipe_test.run(export), 65, "[export.no_counterpart]", "earlier version")

    def check_places(self, base, twin, ids, end):
        """As BartForQuestionAnswering: the decoder's state at a place, which has read the tokens before it and the whole source, tells of the token there."""
        sentences = [[(f"{'ab'[j % 2]}{(k + j) % 9}", "O" if (k + j) % 9 > 3 else "XY"[j % 2]) for j in range(2 + k % 4)] for k in range(12)]
        self.write("tags.txt", "\n".join("".join(f"{word} {tag}\n" for word, tag in words) for words in sentences))
        contexts = [[f"{'ab'[(k + j) % 2]}{(k * 2 + j) % 9}" for j in range(3 + k % 3)] for k in range(12)]
        questions = [{"context": " ".join(words), "qas": [{"id": str(k), "question": f"b{k % 9} a1", "is_impossible": k % 4 == 0,
                                                           "answers": [{"text": " ".join(words[1:2 + k % 2]), "answer_start": 3}] if k % 4 else []}]} for k, words in enumerate(contexts)]
        pad = {token["content"]: token["id"] for token in read_json(self.at("words.json"))["added_tokens"]}["<pad>"]
        self.write("spans.txt", json.dumps({"version": "v2.0", "data": [{"title": "a", "paragraphs": questions}]}))
        for kind, form in (("tags", "conll"), ("spans", "squad")):
            corpus = self.at(kind + ".h5")
            self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("words.json"), "--format", form, "--out", corpus, self.at(kind + ".txt")])
            keys = [base, f"task.kind={kind}", "task.label=", f"corpus.train={corpus}", f"corpus.valid={corpus}", "train.batch=12", "model.context=16"]
            still = self.tuned(kind + "-still", 0, *keys, "optimizer.lr=0", "train.steps=1")
            w, losses = tensors_of(os.path.join(still, "checkpoints", steps(still)[-1])), {"loss": [], "valid_loss": []}
            for k in range(12):
                text = [ids[word] for word, _ in sentences[k]] + [end] if kind == "tags" else [ids[f"b{k % 9}"], ids["a1"], end, *(ids[word] for word in contexts[k]), end]
                padded = text + [pad] * (16 - len(text))  # in training padding has a share of where a span begins and ends
                states = twin.stack("decoder", [0] + padded[:-1], twin.stack("encoder", text), len(text))
                if kind == "tags":
                    names = read_json(still, "task.json")["labels"]
                    targets, rows = [names.index(tag) for _, tag in sentences[k]], states[:len(text) - 1] @ w["task.weight"].T + w["task.bias"]
                else:
                    targets = [len(text) - 1] * 2 if k % 4 == 0 else [4, 4 + k % 2]
                    rows = (states @ w["task.weight"].T + w["task.bias"]).T
                for row, target in zip(rows, targets, strict=True):
                    for name, places in (("loss", len(row)), ("valid_loss", len(text) if kind == "spans" else len(row))):
                        losses[name].append(numpy.log(numpy.exp(row[:places]).sum()) - row[target])
            for name, values in losses.items():
                self.assertLess(abs(metrics(still)[-1][name] - numpy.mean(values)), 1e-5)
                for k, part in enumerate(("begin", "end") if kind == "spans" else ()):
                    self.assertLess(abs(metrics(still)[-1][f"{name}_{part}"] - numpy.mean(values[k::2])), 1e-5)
            self.assertEqual(numpy.mean(losses["loss"]) - numpy.mean(losses["valid_loss"]) > 1e-3, kind == "spans")
            one = metrics(self.tuned(kind + "-learn", 0, *keys, "optimizer.lr=1e-2", "train.steps=30"))
            self.assertLess(one[-1]["valid_loss"], 0.5 * one[0]["loss"])
            for name, ranks, mesh in (("tensor", 3, ["mesh.tensor=3"]), ("stages", 2, ["mesh.pipeline=2"])):
                other = metrics(self.tuned(f"{kind}-{name}", ranks, *keys, "optimizer.lr=1e-2", "train.steps=4", *mesh))
                self.assertLess(abs(other[0]["loss"] - one[0]["loss"]), 3e-5)
            self.must(["bagpipe", "score", self.at("topics.ini"), f"run.dir={self.at(kind + '-scored')}", f"score.model={self.at(kind + '-learn')}", f"score.corpus={corpus}"])
            scored = read_json(self.at(kind + "-scored"), "score", "summary.json")["task"]
            self.assertGreater(scored["accuracy" if kind == "tags" else "exact_match"]["value"], 0.7)
        self.check_exchange(ids, end)

    def check_exchange(self, ids, end):
        """A BART or T5 that finds answers comes back from a folder of BartForQuestionAnswering or T5ForQuestionAnswering, a BART that predicts classes or a
        number from one of BartForSequenceClassification, and so an mBART; with another head it has none."""
        sizes = ["model.layers=1", "model.width=16", "model.heads=2", "model.context=16", "train.steps=1"]
        keys = ["task.kind=spans", "task.label=", f"corpus.train={self.at('spans.h5')}", "corpus.valid="]
        classifier = {f"classification_head.{layer}.{part}" for layer in ("dense", "out_proj") for part in ("weight", "bias")}
        for name, of, head, more in (("spans", "BartForQuestionAnswering", {"qa_outputs.weight", "qa_outputs.bias"}, keys),
                                     ("classes", "BartForSequenceClassification", classifier, []),
                                     ("number", "BartForSequenceClassification", classifier, ["task.kind=regression", "task.label=far"]),
                                     ("many", "MBartForSequenceClassification", classifier, ["model.kind=mbart"])):
            more = more if "model.kind=mbart" in more else [*more, "model.kind=bart"]
            tuned, folder, back = self.tuned("bart-" + name, 0, *sizes, *more), self.at("bart-folder-" + name), self.at("bart-back-" + name)
            self.must(["bagpipe-data", "export", tuned, "--out", folder])
            self.must(["bagpipe-data", "import", folder, "--out", back])
            self.assertEqual(read_json(folder, "config.json")["architectures"], [of])
            self.assertEqual(read_json(folder, "config.json")["pad_token_id"], ids["<pad>"])
            self.assertEqual({key: value for key, value in read_json(folder, "tokenizer_config.json").items() if key in ("pad_token", "eos_token", "model_input_names")},
                             {"pad_token": "<pad>", "eos_token": "<|endoftext|>", "model_input_names": ["input_ids", "attention_mask"]})
            self.assertEqual(framed(read_json(folder, "tokenizer.json"), [5], [7, 6]), [5, end, 7, 6, end])
            self.assertEqual(framed(read_json(folder, "tokenizer.json"), [5]), [5, end])
            names = set(tensors(folder)[0])
            self.assertLessEqual({"model.shared.weight", "model.decoder.layers.0.fc1.weight", *head}, names)
            self.assertFalse([other for other in names if "model." not in other and other not in head])
            if name in ("spans", "many"):
                self.must(["bagpipe-data", "export", back, "--out", folder + "-again"])
                self.assertEqual(tensors(folder), tensors(folder + "-again"))
            for run, model in (("there", tuned), ("again", back)) if name == "number" else ():
                self.must(["bagpipe", "score", self.at("topics.ini"), f"run.dir={self.at('bart-' + run)}", f"score.model={model}", f"score.corpus={self.at('topics-valid.h5')}"])
        self.assertEqual(*(read_json(self.at("bart-" + run), "score", "summary.json")["task"] for run in ("there", "again")))
        for command in (["export", self.at("spans-learn"), "--out", self.at("t5-folder")], ["import", self.at("t5-folder"), "--out", self.at("t5-spans")],
                        ["export", self.at("t5-spans"), "--out", self.at("t5-folder-again")]):
            self.must(["bagpipe-data", *command])
        self.assertEqual(read_json(self.at("t5-folder"), "config.json")["architectures"], ["T5ForQuestionAnswering"])
        self.assertEqual(tensors(self.at("t5-folder")), tensors(self.at("t5-folder-again")))
        self.assertLessEqual({"qa_outputs.weight", "qa_outputs.bias", "shared.weight"}, set(tensors(self.at("t5-folder"))[0]))
        self.assert_error(bagpipe_test.run([program("bagpipe-data"), "export", self.at("tags-learn"), "--out", self.at("no-folder")]), 65, "[export.no_counterpart]", "task = tags")

    def test_a_head_of_classes_reads_the_decoder_behind_the_text(self):
        """As T5ForSequenceClassification: the decoder reads what the encoder does, a place later; its last state goes through a layer with tanh."""
        self.must(["bagpipe-data", "tokenizer", "--kind", "word", "--special", "<pad>", "--out", self.at("words.json"),
                   self.write("words.txt", " ".join(f"{c}{k}" for c in "ab" for k in range(9)) + "\n")])
        rows, words = self.topics("words.json"), read_json(self.at("words.json"))
        ids, end = words["model"]["vocab"], max(token["id"] for token in words["added_tokens"])
        self.must(["bagpipe-data", "import", self.tiny("t5-tiny"), "--out", self.at("t5-words"), "--tokenizer", self.at("words.json")])
        base = f"model.init={self.at('t5-words')}"
        one = metrics(self.tuned("topics-learn", 0, base, "optimizer.lr=1e-2", "train.steps=30", "model.dropout=0.1"))
        self.assertGreater(one[-1]["valid_accuracy"], 0.9)
        self.check_classes(rows, ids, end)
        self.check_older_head(base)
        for name, ranks, mesh in (("tensor", 3, ["mesh.tensor=3"]), ("stages", 2, ["mesh.pipeline=2"]), ("lora", 0, ["adapter.kind=lora", "adapter.rank=3"])):
            other = metrics(self.tuned("topics-" + name, ranks, base, "optimizer.lr=1e-2", "train.steps=4", "model.dropout=0.1", *mesh))
            self.assertLess(abs(other[0]["loss"] - one[0]["loss"]), 3e-5)
        self.check_places(base, T5(read_json(self.tiny("t5-tiny"), "config.json"), read_tensors(self.tiny("t5-tiny"))), ids, end)
        for keys, identifier in ((["task.frozen_layers=1"], "task.frozen_decoder"), ([f"distill.model={self.at('topics-learn')}"], "distill.other_frame")):
            self.assert_error(bagpipe_test.run([program("bagpipe"), "finetune", self.at("topics.ini"), f"run.dir={self.at('never')}", base, "train.steps=1",
                                                *keys]), 78, f"[{identifier}]")

    def test_folders_come_back_as_they_went(self):
        for folder in FOLDERS:
            with self.subTest(folder):
                taken, back = self.at(folder), self.at(folder + "-back")
                self.must(["bagpipe-data", "import", self.tiny(folder), "--out", taken, "--no-tokenizer"])
                self.must(["bagpipe-data", "export", taken, "--out", back, "--no-tokenizer"])
                self.assertEqual(tensors(self.tiny(folder)), tensors(back))
                before, after = read_json(self.tiny(folder), "config.json"), read_json(back, "config.json")
                if os.path.exists(os.path.join(self.tiny(folder), "config-old.json")):  # as transformers 4 writes it
                    old, _ = self.changed(folder, folder + "-old")
                    shutil.copy(os.path.join(old, "config-old.json"), os.path.join(old, "config.json"))
                    self.must(["bagpipe-data", "import", old, "--out", taken + "-from-old", "--no-tokenizer"])
                    self.assertEqual(*(read_json(path, "manifest.json")["state"] for path in (taken, taken + "-from-old")))
                for key in ("model_type", "d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads", "encoder_ffn_dim",
                            "decoder_ffn_dim", "vocab_size", "decoder_start_token_id", "eos_token_id", "is_encoder_decoder", "tie_word_embeddings", "scale_embedding",
                            "num_layers", "num_decoder_layers", "num_heads", "d_kv", "d_ff", "feed_forward_proj", "relative_attention_num_buckets", "relative_attention_max_distance",
                            "layer_norm_epsilon"):
                    self.assertEqual(before.get(key), after.get(key) if key in before else None, key)
        short = self.pairs("short-bart", 0, "model.positions=40", "train.steps=1", kind="bart")
        self.must(["bagpipe-data", "export", short, "--out", self.at("short-folder"), "--no-tokenizer"])
        self.assertEqual(read_json(self.at("short-folder"), "config.json")["max_position_embeddings"], 40)
        self.must(["bagpipe-data", "import", self.at("short-folder"), "--out", self.at("short-back"), "--no-tokenizer"])
        self.assertEqual(read_json(self.at("short-back"), "manifest.json")["state"]["model"]["context"], 40)
        self.pairs("longer-bart", 0, f"model.init={short}", "model.context=40", "train.steps=1", kind="bart")

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
                                         ("marian-tiny", "pad_token_id", 3, "unsupported"), ("marian-tiny", "share_encoder_decoder_embeddings", False, "unsupported"),
                                         ("marian-tiny", "decoder_vocab_size", 91, "unsupported"), ("mbart-tiny", "activation_function", "tanh", "unsupported"),
                                         ("mbart-tiny", "normalize_before", False, "unsupported"), ("m2m_100-tiny", "pad_token_id", 2, "unsupported"),
                                         ("t5-tiny", "feed_forward_proj", "gated-silu", "unsupported"), ("t5-tiny", "dense_act_fn", "relu", "unsupported"),
                                         ("t5-tiny", "is_gated_act", False, "unsupported"), ("t5-tiny", "relative_attention_num_buckets", 7, "bad_buckets"),
                                         ("t5-tiny", "relative_attention_max_distance", 4, "bad_buckets")):
            with self.subTest(key):
                folder, _ = self.changed(family, f"other-{family}-{key}", **{key: value})
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
