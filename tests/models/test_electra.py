"""ELECTRA: generator and discriminator train together, to the same losses on tensor ranks, to the same bits on 1 and 4 data ranks, with
recomputation and across a kill; draws have the generator's distribution; the model goes into a pair of Hugging Face folders and back. A task is
learnt by the discriminator alone, whose head's probabilities are those of a plain computation.
"""
import csv
import glob
import json
import os
import pathlib

import numpy
from scipy.special import erf

import bagpipe_test
import tfevents
from bagpipe_test import digests, metrics, parts_miss, read_json, run, state_of, steps, timeless
from tensors import tensors_of
from test_bert import WordsTest
from test_finetune import SPECIAL, TaskTest

ELECTRA = ["model.kind=electra", "model.layers=2", "model.width=32", "model.heads=8", "model.generator_width=16", "model.generator_heads=2",
           "model.embedding=24", "model.context=24", "model.dropout=0.1", "train.batch=8", "train.steps=6", "train.valid_every=3",
           "train.log_every=1", "optimizer.lr=1e-2", "optimizer.weight_decay=0.01"]


class Electra(WordsTest):
    KEYS = ELECTRA

    def test_every_mesh_trains_the_same_model(self):
        one = self.trained("one", 0)
        other = self.trained("data4", 4)
        self.assertEqual(timeless(metrics(one)), timeless(metrics(other)))
        self.assertEqual(digests(one), digests(other))
        again = self.trained("again", 0, "train.recompute=yes", "train.tensorboard=yes")
        self.assertEqual(digests(one), digests(again))
        for tag in ("loss_masked", "loss_replaced", "valid_loss_replaced"):
            self.assertEqual(tfevents.curve(glob.glob(self.at("again/tensorboard/*")), tag),
                             [(line["step"], float(numpy.float32(line[tag]))) for line in metrics(again) if tag in line], tag)
        for a, b in zip(metrics(one), metrics(self.trained("all", 4, "mesh.tensor=2", "mesh.micro_batch=2")), strict=True):
            self.assertLess(abs(a["loss"] - b["loss"]), 1e-4 * a["loss"])
            self.assertLess(abs(a.get("valid_loss", 0) - b.get("valid_loss", 0)), 1e-2)
            for part in ("masked", "replaced"):
                self.assertLess(abs(a[f"loss_{part}"] - b[f"loss_{part}"]), 1e-4, part)
        for line in metrics(one):
            self.assertLess(parts_miss(line, {"masked": 1, "replaced": 50}), 1e-12)
        self.assertLess(parts_miss(metrics(one)[-1], {"masked": 1, "replaced": 50}, "valid_loss"), 1e-12)
        self.assertLess(0.1, metrics(one)[0]["loss_replaced"])  # of a yes or no, at the start
        self.assertLess(metrics(one)[0]["loss_replaced"], 1)

    def test_a_killed_training_goes_on_and_both_halves_learn(self):
        keys = ["checkpoint.every=2", "train.steps=40", "model.dropout=0", "train.batch=16"]
        straight = self.trained("straight", 0, *keys)
        self.assertLess(metrics(straight)[-1]["valid_loss"], metrics(straight)[2]["valid_loss"] - 1)
        result = run(["env", "BP_FAULT=step.end:3=kill", bagpipe_test.program("bagpipe"), "pretrain", self.at("words.ini"),
                      f"run.dir={self.at('killed')}", *ELECTRA, *keys])
        self.assertEqual(result.status, -9, str(result))
        self.assertLess(len(metrics(self.at("killed"))), 40)
        killed = self.trained("killed", 0, *keys)
        self.assertEqual(timeless(metrics(straight)), timeless(metrics(killed)))
        self.assertEqual(digests(straight), digests(killed))

    def test_a_pair_of_folders_comes_back_as_it_went(self):
        for name, keys in (("small", ["model.positions=40"]), ("wide", ["model.embedding=32", "model.generator_width=32", "model.generator_layers=1"])):
            trained = self.trained(f"hf-{name}", 0, "train.steps=1", *keys)
            self.must(["bagpipe-data", "export", trained, "--out", self.at(f"{name}-folder")])
            self.assertEqual(sorted(os.listdir(self.at(f"{name}-folder"))), ["discriminator", "generator"])
            self.must(["bagpipe-data", "import", self.at(f"{name}-folder"), "--out", self.at(f"{name}-back")])
            model = state_of(trained)["model"]
            model["context"] = model.pop("positions", model["context"])  # Hugging Face's folders have one number of both
            self.assertEqual(model, read_json(self.at(f"{name}-back"), "manifest.json")["state"]["model"])
            self.must(["bagpipe-data", "export", self.at(f"{name}-back"), "--out", self.at(f"{name}-again")])
            for half in ("generator", "discriminator"):
                self.assertEqual(read_json(self.at(f"{name}-folder"), half, "config.json")["embedding_size"], 24 if name == "small" else 32)
                self.must(["bagpipe-data", "import", self.at(f"{name}-folder/{half}"), "--out", self.at(f"{name}-{half}")])
                self.must(["bagpipe-data", "export", self.at(f"{name}-{half}"), "--out", self.at(f"{name}-{half}-again")])
                for file in ("config.json", "model.safetensors"):
                    for again in (f"{name}-again/{half}", f"{name}-{half}-again"):
                        self.assertEqual(pathlib.Path(self.at(f"{name}-folder"), half, file).read_bytes(),
                                         pathlib.Path(self.at(again), file).read_bytes(), file)

    def test_bad_input(self):
        self.assert_error(self.pretrain("stages", 2, "mesh.pipeline=2"), 78, "[model.one_stage]", "mesh.pipeline")
        self.assert_error(self.pretrain("heads", 0, "model.generator_heads=3"), 78, "[model.not_dividing]", "model.generator_heads")
        self.assert_error(self.pretrain("tensors", 2, "mesh.tensor=2", "model.generator_heads=1"), 78, "[mesh.not_dividing]")
        self.assert_error(self.pretrain("half", 0, "model.part=discriminator"), 78, "[electra.no_generator]", "model.part")
        trained = self.trained("scored", 0, "train.steps=1")
        result = run([bagpipe_test.program("bagpipe"), "score", self.at("words.ini"), f"score.model={trained}", f"score.corpus={self.at('valid.h5')}",
                      f"run.dir={self.at('scores')}"])
        self.assert_error(result, 78, "[model.no_distribution]", "electra")
        self.must(["bagpipe-data", "export", trained, "--out", self.at("pair")])
        self.must(["bagpipe-data", "import", self.at("pair/generator"), "--out", self.at("generator")])
        result = run([bagpipe_test.program("bagpipe"), "score", self.at("words.ini"), f"score.model={self.at('generator')}", f"score.corpus={self.at('valid.h5')}",
                      f"run.dir={self.at('stages')}", "mesh.pipeline=2"], 2)
        self.assert_error(result, 78, "[model.one_stage]", "mesh.pipeline")
        other = self.trained("other", 0, "train.steps=2")
        self.must(["bagpipe-data", "export", other, "--out", self.at("pair2")])
        os.rename(self.at("pair/generator"), self.at("pair/first"))
        os.rename(self.at("pair2/generator"), self.at("pair/generator"))
        self.assert_error(run([bagpipe_test.program("bagpipe-data"), "import", self.at("pair"), "--out", self.at("mixed")]), 65, "[electra.other_embeddings]")


def gelu(x):
    return x * (1 + erf(x / numpy.sqrt(2))) / 2


def norm(x, p, name):
    x = x - x.mean(-1, keepdims=True)
    return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + 1e-12) * p[f"{name}.gain"] + p[f"{name}.bias"]


def softmax(x):
    x = numpy.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def states(p, ids, heads):
    """ElectraModel of one text, from its definition."""
    def linear(x, name):
        return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]

    def split(x):
        return x.reshape(len(ids), heads, -1).transpose(1, 0, 2)
    h = norm(p["wte"][ids] + p["wpe"][:len(ids)] + p["segments"][0], p, "embedding.ln")
    h = linear(h, "project")
    for layer in range(2):
        q, k, v = (split(linear(h, f"h.{layer}.attn.{part}")) for part in "qkv")
        a = softmax(q @ k.transpose(0, 2, 1) / numpy.sqrt(q.shape[-1])) @ v
        h = norm(h + linear(a.transpose(1, 0, 2).reshape(len(ids), -1), f"h.{layer}.attn.out"), p, f"h.{layer}.ln1")
        h = norm(h + linear(gelu(linear(h, f"h.{layer}.mlp.up")), f"h.{layer}.mlp.down"), p, f"h.{layer}.ln2")
    return h


class ElectraTask(TaskTest):
    MODEL = ["model.kind=electra", "model.layers=2", "model.width=32", "model.heads=4", "model.context=24", "model.embedding=24"]

    def last(self, name):
        return os.path.join(self.at(name), "checkpoints", steps(self.at(name))[-1])

    def test_the_discriminator_learns_a_task(self):
        pretrained = self.at("pretrained")
        self.must([bagpipe_test.program("bagpipe"), "pretrain", self.at("tune.ini"), f"run.dir={pretrained}", *self.MODEL, "train.steps=3",
                   "train.batch=4"])
        init = [f"model.init={pretrained}", "task.pool=first", "optimizer.lr=2e-3"]
        one = self.tuned("tuned", 0, *init, "train.steps=100", "train.valid_every=100")
        self.assertLess(metrics(one)[-1]["valid_loss"], 0.8)
        names = set(tensors_of(self.last("tuned")))
        self.assertEqual({name for name in names if "/" not in name and name.startswith(("g.", "transform", "head", "judge", "replaced"))}, set())
        few = self.tuned("few", 0, *init, "model.dropout=0.1")
        split = self.tuned("split", 4, *init, "model.dropout=0.1", "mesh.tensor=2", "mesh.pipeline=2")
        for a, b in zip(metrics(few), metrics(split), strict=True):
            self.assertLess(abs(a["loss"] - b["loss"]), 1e-4)
        self.assertEqual(digests(few), digests(self.tuned("data", 2, *init, "model.dropout=0.1")))
        self.must(["bagpipe", "score", self.at("tune.ini"), f"run.dir={self.at('scores')}", f"score.model={one}", f"score.corpus={self.at('valid.h5')}"])
        self.check_predictions(tensors_of(self.last("tuned")))
        self.must(["bagpipe-data", "export", one, "--out", self.at("folder")])
        config = read_json(self.at("folder"), "config.json")
        self.assertEqual(config["architectures"], ["ElectraForSequenceClassification"])
        self.must(["bagpipe-data", "import", self.at("folder"), "--out", self.at("back")])
        self.must(["bagpipe-data", "export", self.at("back"), "--out", self.at("again")])
        for file in ("config.json", "model.safetensors"):
            self.assertEqual(pathlib.Path(self.at("folder"), file).read_bytes(), pathlib.Path(self.at("again"), file).read_bytes(), file)
        self.must(["bagpipe-data", "export", pretrained, "--out", self.at("pair")])
        self.must(["bagpipe-data", "import", self.at("pair/generator"), "--out", self.at("generator")])
        self.assert_error(self.finetune("none", 0, f"model.init={self.at('generator')}"), 78, "[electra.no_discriminator]")

    def check_predictions(self, p):
        vocabulary = pathlib.Path(self.at("vocab.txt")).read_text(encoding="utf-8").split()
        rows = [json.loads(line) for line in pathlib.Path(self.at("valid.jsonl")).read_text(encoding="utf-8").splitlines()]
        with open(self.at("scores/score/predictions.csv"), encoding="utf-8", newline="") as file:
            predictions = list(csv.DictReader(file))
        self.assertEqual(len(predictions), len(rows))
        for row, prediction in zip(rows, predictions):
            ids = [SPECIAL.index("[CLS]"), *(vocabulary.index(word) for word in row["text"].split()[:22]), SPECIAL.index("[SEP]")]
            pooled = gelu(states(p, ids, 4)[0] @ p["pooler.weight"].T + p["pooler.bias"])
            probabilities = softmax(pooled @ p["task.weight"].T + p["task.bias"])
            self.assertAlmostEqual(float(prediction["probability"]), probabilities.max(), delta=1e-5)


if __name__ == "__main__":
    bagpipe_test.main()
