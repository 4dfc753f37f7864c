"""What the tests of uncertainty studies share: models, corpora, a study of all methods, and reading what it left."""
import csv
import json
import os
import random

import bagpipe_test
from bagpipe_test import JobTest, program, run

try:
    import h5py
    import numpy
    import sklearn
except ImportError:
    h5py = numpy = sklearn = None

FIGURES = ("nll", "accuracy", "brier", "ece", "ece_adaptive", "squared_calibration_error", "aurc", "nll_tempered", "brier_tempered", "ece_tempered",
           "squared_calibration_error_tempered", "accuracy_at_50", "accuracy_at_80", "accuracy_at_90")
WITHOUT_INTERVAL = ("ece", "ece_adaptive", "ece_tempered")
METHODS = ("single", "three", "passes", "last")


class UncertaintyTest(JobTest):
    """Three members trained for some seconds, a corpus of labelled documents and one of other texts."""

    TEXT_BYTES = 120_000
    STEPS = 400

    @classmethod
    def setUpClass(cls):
        if sklearn is None:
            raise bagpipe_test.unittest.SkipTest("there is no h5py or scikit-learn")
        super().setUpClass()
        draw = random.Random(5)
        # half of the text is so regular that a small model is sure of it: all bins of confidence are used
        with open(cls.at("train.txt"), encoding="utf-8") as file:
            mixed = [line + "\n" + cls.regular(draw) for line in file.read().splitlines()]
        cls.write("mixed.txt", "\n".join(mixed))
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "lines", "--out", cls.at("mixed.h5"),
                  cls.at("mixed.txt")])
        for k in range(3):
            cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.at(f'm{k}')}", f"run.seed={k + 1}", f"train.steps={cls.STEPS}",
                      f"corpus.train={cls.at('mixed.h5')}", "optimizer.lr=1e-2", "train.log_every=50"])
        os.mkdir(cls.at("three"))
        cls.write("three/ensemble.json", json.dumps({"members": [{"name": f"m{k}", "path": f"../m{k}"} for k in range(3)]}))
        with open(cls.at("valid.txt"), encoding="utf-8") as file:
            lines = [line for line in file.read().splitlines() if len(line) > 20]
        documents = []
        for k in range(80):
            words = " ".join(draw.sample(lines, 2) + [cls.regular(draw)]).split()
            genre = ("news", "backward <b>", "noise")[k % 3]
            if genre == "backward <b>":
                words.reverse()
            elif genre == "noise":
                words = ["".join(draw.choice("abcdefgxyz ,.") for _ in range(8)) for _ in words[:20]]
            documents.append({"id": f"d{k}", "text": " ".join(words), "genre": genre})
        documents[6]["text"] = ""
        cls.corpus("labelled", documents, "genre")
        cls.corpus("other", [{"id": f"o{k}", "text": " ".join(str(draw.randrange(10**9)) for _ in range(12))} for k in range(15)])
        cls.write("study.ini", cls.study())

    @staticmethod
    def regular(draw):
        return "The " + draw.choice(["first", "second", "third"]) + " of the words is followed by the one that comes after it , as always ."

    @classmethod
    def corpus(cls, name, documents, label=None):
        cls.write(name + ".jsonl", "".join(json.dumps(d) + "\n" for d in documents))
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "jsonl"] + (["--label", label] if label else []) +
                 ["--out", cls.at(name + ".h5"), cls.at(name + ".jsonl")])

    @classmethod
    def study(cls):
        m0 = cls.at("m0")
        return f"""[uncertainty]
models = single={m0}, three={cls.at('three')}, passes={m0}:dropout, last={m0}:laplace
in_domain = {cls.at('labelled.h5')}:genre=news
shifted = {cls.at('labelled.h5')}:genre=backward <b>, {cls.at('other.h5')}, both={cls.at('other.h5')}, both={cls.at('labelled.h5')}:genre=noise
passes = 3
resamples = 200
temper_tokens = 2000
[laplace]
samples = 3
tokens = 3000
[corpus]
train = {cls.at('mixed.h5')}
valid = {cls.at('valid.h5')}
[math]
precision = f32
threads = 1
"""

    def command(self, name, *keys):
        return [program("bagpipe"), "uncertainty", self.at("study.ini"), f"run.dir={self.at(name)}"] + list(keys)

    def studied(self, name, ranks=0, *keys):
        result = run(self.command(name, *keys), ranks)
        self.assertEqual(result.status, 0, str(result))
        return result

    def file(self, name, *parts):
        return os.path.join(self.at(name), "uncertainty", *parts)

    def summary(self, name):
        with open(self.file(name, "summary.json"), encoding="utf-8") as file:
            return json.load(file)

    def table(self, name, table):
        with open(self.file(name, table + ".csv"), encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
