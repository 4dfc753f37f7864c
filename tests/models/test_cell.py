"""A mixed cell is searched while it trains: to the same bits on 1, 2 and 4 data ranks, after a kill and on another mesh too, with steps
of the architecture of both orders; its cell is in events.jsonl, and trains, is scored and exported as any model. What does not fit is
refused."""
import json
import os
import re

import bagpipe_test
from bagpipe_test import JobTest, digests, metrics, program, run, steps, timeless

MIXED = ["model.kind=cell", "model.heads=", "model.layers=1", "model.cell=mixed:3", "model.dropout=0.1", "train.steps=6", "train.valid_every=3",
         "train.log_every=3", "mesh.micro_batch=2"]


def cells(folder):
    with open(os.path.join(folder, "events.jsonl"), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return [{k: v for k, v in line.items() if k != "time"} for line in lines if line["event"] == "architecture"]


class Cell(JobTest):
    def mixed(self, name, ranks=0, *more):
        return self.trained(name, ranks, *MIXED, *more)

    def test_a_search_has_the_same_bits_on_all_data_ranks(self):
        for order in ("1", "2"):
            one, four = self.mixed(f"one-{order}", 0, f"architecture.order={order}"), self.mixed(f"four-{order}", 4, f"architecture.order={order}")
            self.assertEqual(timeless(metrics(one)), timeless(metrics(four)))
            self.assertEqual(digests(one), digests(four))
            self.assertEqual(cells(one), cells(four))
            self.assertEqual([line["step"] for line in cells(one)], [3, 6])
        self.assertNotEqual(cells(self.at("one-1"))[-1]["weights"], cells(self.at("one-2"))[-1]["weights"])
        stages = self.mixed("stages", 3, "mesh.pipeline=3")
        for a, b in zip(cells(self.at("one-2"))[-1]["weights"], cells(stages)[-1]["weights"], strict=True):
            self.assertAlmostEqual(a, b, delta=2e-3)

    def test_a_killed_search_goes_on_to_the_bit(self):
        straight = self.mixed("straight")
        self.assertIn("h.0.mix", digests(straight))
        self.assertIn("carry/h.0.second", digests(straight))
        killed = self.background([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('killed')}", "checkpoint.every=2",
                                  *MIXED], 2, env={"BP_FAULT": "step.end:5@1=kill"})
        killed.communicate()
        self.assertNotEqual(killed.returncode, 0)
        self.assertLess(steps(self.at("killed"))[-1], "step-000000000006")
        self.mixed("killed", 0, "checkpoint.every=2")
        self.assertEqual(timeless(metrics(straight)), timeless(metrics(self.at("killed"))))
        self.assertEqual(digests(straight), digests(self.at("killed")))

    def test_the_cell_that_is_found_is_a_model(self):
        cell = cells(self.mixed("found"))[-1]["cell"]
        nodes = cell.split(",")
        self.assertEqual(len(nodes), 3)
        for k, node in enumerate(nodes):
            word, reads = node.split(":")
            self.assertIn(word, ("tanh", "relu", "sigmoid", "identity"))
            self.assertLessEqual(int(reads), k)
        trained = self.trained("derived", 0, *[f"model.cell={cell}" if key.startswith("model.cell") else key for key in MIXED])
        self.must(["bagpipe-data", "export", trained, "--out", self.at("folder"), "--no-tokenizer"])
        with open(os.path.join(self.at("folder"), "config.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["cell"], cell)
        self.must(["bagpipe-data", "import", self.at("folder"), "--out", self.at("back"), "--no-tokenizer"])
        self.must(["bagpipe-data", "export", self.at("back"), "--out", self.at("again"), "--no-tokenizer"])
        for file in ("config.json", "model.safetensors"):
            with open(os.path.join(self.at("folder"), file), "rb") as a, open(os.path.join(self.at("again"), file), "rb") as b:
                self.assertEqual(a.read(), b.read(), file)

    def search(self, name, ranks, *more):
        return run([program("bagpipe"), "search", self.at("small.ini"), f"run.dir={self.at(name)}", "model.kind=cell", "model.heads=",
                    "model.dropout=0.1", "mesh.micro_batch=2", "search.method=differentiable", "search.nodes=2", "search.trials=2", "search.final=1",
                    "train.steps=3", "architecture.order=1", *more], ranks)

    def test_bagpipe_search_trains_the_cells_that_are_found(self):
        for name, ranks in (("search-one", 0), ("search-two", 2)):
            result = self.search(name, ranks)
            self.assertEqual(result.status, 0, str(result))
        with open(os.path.join(self.at("search-one"), "search", "best.ini"), encoding="utf-8") as file:
            best = file.read()
        for file in ("table.csv", "summary.json", "best.ini"):
            with open(os.path.join(self.at("search-one"), "search", file), "rb") as a, open(os.path.join(self.at("search-two"), "search", file), "rb") as b:
                self.assertEqual(a.read(), b.read(), file)
        found = [cells(os.path.join(self.at("search-one"), "search", "cells", name))[-1]["cell"] for name in ("c0000", "c0001")]
        self.assertIn(re.search(r"(?m)^cell = (.*)$", best)[1], found)
        result = run([program("bagpipe"), "pretrain", os.path.join(self.at("search-one"), "search", "best.ini"), f"run.dir={self.at('best')}"])
        self.assertEqual(result.status, 0, str(result))
        for keys, words in ((["model.kind=lstm"], "[search.no_cell]"), (["search.space=model.width=8,16"], "[search.cell_space]"),
                            (["mesh.micro_batch=1"], "[search.one_sequence]"),
                            (["search.limit=bytes<=4000"], "[search.no_model]")):
            self.assert_error(self.search("search-refused", 0, *keys), 78, words)
        self.assertFalse(os.path.exists(self.at("search-refused")))

    def test_what_does_not_fit_is_said(self):
        for keys, words in ((["mesh.micro_batch=1"], ("[architecture.one_sequence]", "mesh.micro_batch")),
                            (["corpus.valid="], ("[architecture.no_valid]", "corpus.valid")),
                            (["model.layers=2"], ("[model.bad_cell]", "model.layers is 1")),
                            (["model.cell=tanh:0,relu:2"], ("[model.bad_cell]", "node K, from 1 on")),
                            (["model.cell=tanh:0,cosine:1"], ("[model.bad_words]", "cosine")),
                            (["model.kind=lstm", "model.cell=", "architecture.lr=1"], ("[model.unused_key]", "architecture.lr")),
                            (["model.kind=lstm", "model.cell=tanh:0"], ("[model.unused_key]", "model.cell"))):
            for ranks in (0, 2):
                with self.subTest(keys=keys, ranks=ranks):
                    self.assert_error(self.pretrain("refused", ranks, *MIXED, *keys), 78, *words)
        mixed = self.mixed("no-model")
        self.assert_error(run([program("bagpipe-data"), "export", mixed, "--out", self.at("nowhere"), "--no-tokenizer"]), 65, "cell")
        result = run([program("bagpipe"), "score", self.at("small.ini"), f"run.dir={self.at('score')}", f"score.model={mixed}",
                      f"score.corpus={self.at('valid.h5')}"])
        self.assert_error(result, 78, "[model.no_distribution]", "a mixed cell")
        result = run([program("bagpipe"), "ensemble", self.at("small.ini"), f"run.dir={self.at('mixed-ensemble')}", "ensemble.members=2", *MIXED])
        self.assert_error(result, 78, "[model.no_distribution]", "a mixed cell")
        self.assertFalse(os.path.exists(self.at("mixed-ensemble")))


if __name__ == "__main__":
    bagpipe_test.main()
