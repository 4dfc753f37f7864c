"""BERT's second objective, whether a sentence follows another: the same bits on 1 and 4 data ranks and across a kill, the same losses on
other meshes; where it is not trained, its head keeps its values. The loss itself is held to PyTorch's in models.references."""
import glob
import json
import os
import random

import bagpipe_test
import numpy
import tfevents
from bagpipe_test import FolderTest, digests, metrics, parts_miss, read_json, run, timeless

WORDS = "the a of and to in is was he for on with as at by from his that it had her she they we you not are but be have".split()
KEYS = ["model.kind=bert", "model.layers=2", "model.width=32", "model.heads=4", "model.context=24", "model.dropout=0.1", "train.batch=8",
        "train.valid_every=3", "train.log_every=1", "optimizer.lr=1e-2"]


class NextSentence(FolderTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        draw = random.Random(3)
        cls.write("vocab.txt", "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "."] + WORDS) + "\n")
        cls.must(["bagpipe-data", "tokenizer", "--vocab", cls.at("vocab.txt"), "--out", cls.at("tokenizer.json")])
        for name, documents in (("train", 40), ("valid", 7)):
            texts = ["\n".join(" ".join(draw.choice(WORDS) for _ in range(draw.randint(2, 9))) + " ." for _ in range(draw.randint(1, 12)))
                     for _ in range(documents)]
            cls.write(f"{name}.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in texts))
            cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "jsonl", "--sentences", "lines",
                      "--out", cls.at(f"{name}.h5"), cls.at(f"{name}.jsonl")])
        cls.write("bert.ini", "[corpus]\ntrain = %s\nvalid = %s\n[math]\nprecision = f32\n" % (cls.at("train.h5"), cls.at("valid.h5")))

    def pretrain(self, name, ranks, *keys, before=()):
        return run([*before, bagpipe_test.program("bagpipe"), "pretrain", self.at("bert.ini"), f"run.dir={self.at(name)}", *KEYS, *keys], ranks)

    def trained(self, name, ranks, *keys):
        result = self.pretrain(name, ranks, *keys)
        self.assertEqual(result.status, 0, str(result))
        return self.at(name)

    def test_data_ranks_give_the_bits_of_one_and_other_meshes_its_losses(self):
        one = self.trained("one", 0, "train.steps=6", "train.tensorboard=yes")
        for tag in ("loss_masked", "loss_next_sentence", "valid_loss_masked", "valid_loss_next_sentence"):
            shown, written = tfevents.curve(glob.glob(os.path.join(one, "tensorboard", "*")), tag), [(line["step"], line[tag]) for line in metrics(one) if tag in line]
            self.assertGreater(len(written), 0, tag)
            numpy.testing.assert_allclose(shown, written, rtol=1e-6, err_msg=tag)
        other = self.trained("data4", 4, "train.steps=6")
        self.assertEqual(timeless(metrics(one)), timeless(metrics(other)))
        self.assertEqual(digests(one), digests(other))
        mesh = self.trained("mesh", 4, "train.steps=6", "mesh.tensor=2", "mesh.pipeline=2", "mesh.micro_batch=2")
        for a, b in zip(metrics(one), metrics(mesh), strict=True):
            self.assertLess(abs(a["loss"] - b["loss"]), 2e-5)
            self.assertLess(abs(a.get("valid_loss", 0) - b.get("valid_loss", 0)), 2e-5)
            self.assertLess(abs(a["loss_next_sentence"] - b["loss_next_sentence"]), 2e-5)
            self.assertLess(parts_miss(b, {"masked": 1, "next_sentence": 1}), 1e-12)
        self.assertLess(parts_miss(metrics(mesh)[-1], {"masked": 1, "next_sentence": 1}, "valid_loss"), 1e-12)
        with open(os.path.join(one, "log.txt"), encoding="utf-8") as log:
            self.assertRegex(log.read(),
                             r"loss [0-9.]+ \(masked [0-9.]+, next_sentence [0-9.]+\)  valid [0-9.]+ \(masked")

    def test_a_killed_training_goes_on(self):
        keys = ["checkpoint.every=2", "train.epochs=2", "corpus.resample=bag"]
        straight = self.trained("straight", 0, *keys)
        result = self.pretrain("killed", 0, *keys, before=["env", "BP_FAULT=step.end:5=kill"])
        self.assertEqual(result.status, -9, str(result))
        killed = self.trained("killed", 0, *keys)
        self.assertEqual(timeless(metrics(straight)), timeless(metrics(killed)))
        self.assertEqual(digests(straight), digests(killed))

    def test_its_head_keeps_its_values_where_it_is_not_trained(self):
        tensors = {}
        for pairs in ("no", "yes"):
            for steps in (1, 3):
                folder = self.trained(f"{pairs}{steps}", 0, f"train.steps={steps}", f"mask.next_sentence={pairs}", "optimizer.weight_decay=0.5")
                manifest = read_json(folder, f"checkpoints/step-{steps:012d}", "manifest.json")
                tensors[pairs, steps] = {tensor["name"]: tensor["digest"] for tensor in manifest["tensors"]}
        for name in ("pooler.weight", "pooler.bias", "class.weight", "class.bias"):
            self.assertEqual(tensors["no", 1][name], tensors["no", 3][name], name)
            self.assertNotEqual(tensors["yes", 1][name], tensors["yes", 3][name], name)
        self.assertLess(len(tensors["no", 1]), len(tensors["yes", 1]))  # it has no moments

    def test_what_does_not_fit_is_said(self):
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--out", self.at("plain.h5"),
                   self.at("train.jsonl")])
        for keys, name in ((["model.pooler=no", "mask.next_sentence=yes"], "mask.no_pooler"),
                           (["model.context=4"], "mask.short_context"),
                           ([f"corpus.valid={self.at('plain.h5')}"], "corpus.no_sentences")):
            result = self.pretrain("refused", 0, "train.steps=1", *keys)
            self.assert_error(result, 78, f"[{name}]", *([self.at("plain.h5")] if name == "corpus.no_sentences" else []))

    def test_a_corpus_whose_pairs_are_all_of_one_kind_is_reported(self):
        self.write("lone.txt", "the a of .\n")
        self.write("lines.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in ("the a of .", "he was on it .")))
        for name, text, warned in (("document", "lone.txt", ("lone_document", "lone_sentences")),
                                   ("sentences", "lines.jsonl", ("lone_sentences",))):
            form = "text" if text.endswith("txt") else "jsonl"
            self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", form, "--sentences", "lines",
                       "--out", self.at(f"{name}.h5"), self.at(text)])
            result = self.pretrain(name, 0, "train.steps=1", f"corpus.train={self.at(name + '.h5')}", "corpus.valid=")
            for warning in ("lone_document", "lone_sentences"):
                self.assert_warning(result, f"[corpus.{warning}]", "corpus.train", times=int(warning in warned))


if __name__ == "__main__":
    bagpipe_test.main()
