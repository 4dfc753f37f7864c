"""Jobs on 16 to 128 ranks that share a few cores: the bits of one rank, and what ranks send grows as it may.

test_scale.py --bin build/release/bin --counter build/release/tests/count_messages.so [--ranks 16,64,128] [TEST...]

A run of N ranks on fewer cores takes about N seconds. Nothing is read from its times: only bits and counts, of messages,
bytes and collective calls, by a library between the program and MPI (count_messages.c).
"""
import math
import os
import shutil
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "jobs"))
from bagpipe_test import JobTest, digests, main, metrics, program, run, steps, take  # noqa: E402

scale = {"counter": None, "ranks": [16, 64, 128]}
BLOCK = 4 * 4096  # bytes of parameters that stay together when ranks share them out


class Counts:
    """What each rank of a run sent: [sends, bytes, collectives of all ranks, of half of them or more, of fewer]."""

    def __init__(self, folder, ranks):
        self.of = []
        for rank in range(ranks):
            with open(os.path.join(folder, str(rank)), encoding="ascii") as file:
                self.of.append([int(word) for word in file.read().split()])

    def most(self, column):
        return max(line[column] for line in self.of)

    def sum(self, column):
        return sum(line[column] for line in self.of)


class Scale(JobTest):
    STEPS = 4

    @classmethod
    def config(cls):
        return super().config().replace("steps = 20", f"steps = {cls.STEPS}").replace("batch = 8", "batch = 128")

    def counted(self, arguments, ranks):
        """Run under the counter; the counts."""
        folder = self.at("counts")
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
        os.environ.update(LD_PRELOAD=scale["counter"], BAGPIPE_COUNTS=folder, OMPI_MCA_mpi_yield_when_idle="1")
        try:
            result = run(arguments, ranks)
        finally:
            del os.environ["LD_PRELOAD"], os.environ["BAGPIPE_COUNTS"], os.environ["OMPI_MCA_mpi_yield_when_idle"]
        self.assertEqual(result.status, 0, str(result))
        return Counts(folder, ranks)

    def equal_files(self, one, other, *names):
        for name in names:
            with open(os.path.join(one, name), "rb") as a, open(os.path.join(other, name), "rb") as b:
                self.assertEqual(a.read(), b.read(), name)

    def job(self, name, kind, name_of_run, ranks, *keys):
        return self.counted([program("bagpipe"), kind, f"run.dir={self.at(name_of_run)}", *keys], ranks)

    def logarithmic(self, counts, column, what, slack=1.25):
        """From few ranks to many the most of a rank grows as the logarithm of the ranks, or less."""
        few, many = min(counts), max(counts)
        if few == many:
            return
        may = slack * counts[few].most(column) * math.log2(many) / math.log2(few)
        self.assertLessEqual(counts[many].most(column), may, f"{what} from {few} to {many} ranks")

    def constant(self, counts, column, what):
        few, many = min(counts), max(counts)
        self.assertLessEqual(counts[many].most(column), 1.1 * counts[few].most(column) + 8, f"{what} from {few} to {many} ranks")

    def say(self, what, counts):
        for ranks, of in sorted(counts.items()):
            print(f"{what}, {ranks} ranks: a rank sends at most {of.most(0)} messages, {of.most(1)} bytes; "
                  f"all {of.sum(0)}, {of.sum(1)}; collectives of all {of.most(2)}, of many {of.most(3)}, of few {of.most(4)}")

    def test_training(self):
        """Data ranks: bits of one, sends of a rank by the logarithm, collectives of all constant."""
        keys = ("corpus.train=" + self.at("train.h5"),)
        one = self.trained("one")
        counts = {}
        for ranks in scale["ranks"]:
            name = f"data-{ranks}"
            counts[ranks] = self.counted([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at(name)}", *keys], ranks)
            self.assertEqual(steps(one), steps(self.at(name)))
            self.assertEqual(digests(one), digests(self.at(name)))
            self.assertEqual([line["loss"] for line in metrics(one)], [line["loss"] for line in metrics(self.at(name))])
        self.say("training", counts)
        self.logarithmic(counts, 0, "messages of a rank")
        self.constant(counts, 2, "collectives of all ranks")
        few, many = min(counts), max(counts)
        # A sum and a gather go to twice the model in the limit. A model of fewer blocks than ranks, as this one: in further
        # rounds a rank gives its one block on.
        limit = (1 - 1 / many) / (1 - 1 / few) * counts[few].most(1)
        further = counts[many].most(0) - counts[few].most(0)
        self.assertLessEqual(counts[many].most(1), 1.02 * limit + BLOCK * further, "bytes of a rank")

    def test_dedicated(self):
        """A coordinator that does not compute changes no bit."""
        ranks = max(scale["ranks"])
        one = self.trained("alone")
        self.counted([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('dedicated')}",
                      "mesh.coordinator=dedicated"], ranks + 1)
        self.assertEqual(digests(one), digests(self.at("dedicated")))

    def test_ensemble(self):
        """Members side by side: the bits of members one after another."""
        ranks = (max(scale["ranks"]) + 3) // 4 * 4
        keys = ("ensemble.members=4",)
        result = run([program("bagpipe"), "ensemble", self.at("small.ini"), f"run.dir={self.at('members-1')}", *keys], 1)
        self.assertEqual(result.status, 0, str(result))
        self.counted([program("bagpipe"), "ensemble", self.at("small.ini"), f"run.dir={self.at('members')}", "mesh.members=4", *keys], ranks)
        for member in range(4):
            place = os.path.join("members", f"m{member:02d}")
            self.assertEqual(digests(os.path.join(self.at("members-1"), place)), digests(os.path.join(self.at("members"), place)))

    def test_scoring(self):
        """The bytes of one rank; units keep all ranks busy; a rank sends a message a unit and a few more."""
        model = self.trained("scorer")
        keys = (f"score.model={model}", f"score.corpus={self.at('train.h5')}", "score.tokens=yes", "math.threads=1")
        one = self.job("score", "score", "score-1", 1, *keys)
        self.assertEqual(one.sum(0), 0)
        counts = {}
        for ranks in scale["ranks"]:
            counts[ranks] = self.job("score", "score", f"score-{ranks}", ranks, *keys)
            self.equal_files(self.at("score-1/score"), self.at(f"score-{ranks}/score"), "summary.json", "tokens.h5")
        self.say("scoring", counts)
        self.constant(counts, 2, "collectives of all ranks")
        few, many = min(counts), max(counts)
        # all together: a question and its answer a unit, which are as many at any number of ranks, and two of each rank
        self.assertLessEqual(counts[many].sum(0), counts[few].sum(0) + 8 * (many - few), "messages of all ranks")

    def test_ngrams(self):
        """The model's file and scores by it are those of one rank."""
        keys = ("model.kind=ngram", "ngram.order=3", "ngram.memory=16MiB", f"corpus.train={self.at('train.h5')}", "math.threads=1")
        self.job("ngram", "pretrain", "ngram-1", 1, *keys)
        counts = {}
        for ranks in scale["ranks"]:
            counts[ranks] = self.job("ngram", "pretrain", f"ngram-{ranks}", ranks, *keys)
            self.equal_files(self.at("ngram-1/checkpoints/step-000000000001"),
                             self.at(f"ngram-{ranks}/checkpoints/step-000000000001"), "model.bin")
        self.say("n-grams", counts)
        self.constant(counts, 2, "collectives of all ranks")
        for ranks, of in counts.items():
            # of each order but the first three exchanges of all with all, but of ranks that have nothing for each other
            self.assertLessEqual(of.most(0), 6 * ranks, f"messages of one of {ranks} ranks")
            self.assertLessEqual(of.most(1), 4 * of.sum(1) / ranks, f"bytes of one of {ranks} ranks: all have a share of the n-grams")

    def test_generation(self):
        """Samples are those of one rank."""
        model = self.trained("writer")
        self.write("prompts.txt", "\n".join(f"the {k}" for k in range(200)) + "\n")
        keys = (f"generate.model={model}", f"generate.prompts={self.at('prompts.txt')}", "generate.tokens=8",
                "generate.strategy=sample", "generate.batch=8", "math.threads=1")
        self.job("generate", "generate", "texts-1", 1, *keys)
        for ranks in scale["ranks"]:
            self.job("generate", "generate", f"texts-{ranks}", ranks, *keys)
            self.equal_files(self.at("texts-1/generate"), self.at(f"texts-{ranks}/generate"), "outputs.jsonl")

    def test_corpus(self):
        """A corpus of lines has the bytes of one rank's."""
        text = self.at("train.txt")
        for ranks in [1] + scale["ranks"]:
            self.counted([program("bagpipe-data"), "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "lines",
                          "--out", self.at(f"corpus-{ranks}.h5"), text], ranks)
            with open(self.at("corpus-1.h5"), "rb") as a, open(self.at(f"corpus-{ranks}.h5"), "rb") as b:
                self.assertEqual(a.read(), b.read())


if __name__ == "__main__":
    counter, ranks = take(counter=None, ranks="16,64,128")
    scale.update(counter=os.path.abspath(counter), ranks=[int(word) for word in ranks.split(",")])
    main()
