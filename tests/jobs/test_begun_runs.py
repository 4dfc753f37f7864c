"""Runs that an earlier program began go on: a score and a generation with some of their units done, and a pretraining after a checkpoint.
They are kept in begun.tar.gz (but for their locks, which name a host), with what that program made of each of them when it was left alone.

    python3 test_begun_runs.py --bin BIN_OF_THAT_PROGRAM --make begun.tar.gz     makes the archive anew
"""
import json
import os
import signal
import tarfile

import bagpipe_test
from bagpipe_test import FolderTest, main, metrics, program, run, take
from english import english

HERE = os.path.dirname(os.path.abspath(__file__))
KEYS = ("math.precision=f32", "math.threads=1")
TRAINING = ("model.kind=gpt", "model.layers=1", "model.width=4", "model.heads=1", "model.context=16", "train.batch=4",
            "train.valid_every=4", "checkpoint.every=4", "checkpoint.keep=1", "checkpoint.async=no", "corpus.train=text.h5",
            "corpus.valid=text.h5")
JOBS = {"score": ("score", "score.model=model", "score.corpus=text.h5", "score.stride=1"),
        "generate": ("generate", "generate.model=model", "generate.prompts=prompts.txt", "generate.tokens=6", "generate.batch=1"),
        "pretrain": ("pretrain", *TRAINING, "train.steps=12")}
DONE = "going on: 2 of "
(MAKE,) = take(make=None)


def start(folder, kind, name, fault=None):
    os.environ.pop("BP_FAULT", None)
    if fault:
        os.environ["BP_FAULT"] = fault
    job, *keys = JOBS[kind]
    result = run([program("bagpipe"), job, "empty.ini", f"run.dir={name}", *keys, *KEYS], cwd=folder)
    os.environ.pop("BP_FAULT", None)
    return result


def figures(folder, kind):
    """What does not depend on the last bits of a machine's arithmetic, by a tolerance."""
    if kind == "pretrain":
        return [line["loss"] for line in metrics(folder) if "loss" in line]
    if kind == "score":
        with open(os.path.join(folder, "score", "summary.json"), encoding="utf-8") as file:
            return [json.load(file)["perplexity"]]
    with open(os.path.join(folder, "generate", "outputs.jsonl"), encoding="utf-8") as file:
        return [line["logprob"] for line in map(json.loads, file)]


def make(folder, archive):
    """By the program of --bin, the archive and all that it takes."""
    def must(*words):
        result = run(words, cwd=folder)
        assert result.status == 0, result

    with open(os.path.join(folder, "text.txt"), "w", encoding="utf-8") as file:
        file.write(english(6000))
    with open(os.path.join(folder, "empty.ini"), "w", encoding="utf-8"):
        pass
    with open(os.path.join(folder, "prompts.txt"), "w", encoding="utf-8") as file:
        file.writelines(line[:6] + "\n" for line in english(3000, 9).splitlines()[:24])
    must(program("bagpipe-data"), "tokenizer", "--size", "270", "--out", "tokenizer.json", "text.txt")
    must(program("bagpipe-data"), "corpus", "--tokenizer", "tokenizer.json", "--out", "text.h5", "text.txt")
    must(program("bagpipe"), "pretrain", "empty.ini", "run.dir=model", *TRAINING, "train.steps=4", *KEYS)
    for kind in JOBS:
        whole = start(folder, kind, "whole-" + kind)
        assert whole.status == 0, whole
        faults = ("step.begin:7=kill",) if kind == "pretrain" else ("work.unit_done:2=kill", "score.chunk_done:2=kill")
        assert signal.SIGKILL in [-start(folder, kind, kind, fault).status for fault in faults]
    with open(os.path.join(folder, "whole.json"), "w", encoding="utf-8") as file:
        json.dump({kind: figures(os.path.join(folder, "whole-" + kind), kind) for kind in JOBS}, file)
    with tarfile.open(archive, "w:gz", compresslevel=9) as file:
        for name in (*JOBS, "empty.ini", "model/run.json", "model/checkpoints", "prompts.txt", "text.h5", "whole.json"):
            file.add(os.path.join(folder, name), name, filter=lambda entry: None if "/lock" in entry.name else entry)


class BegunRuns(FolderTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if MAKE:
            make(cls.folder, MAKE)
        with tarfile.open(MAKE or os.path.join(HERE, "begun.tar.gz")) as file:
            file.extractall(cls.folder)
        with open(cls.at("whole.json"), encoding="utf-8") as file:
            cls.whole = json.load(file)

    def test_go_on(self):
        for kind, whole in self.whole.items():
            with self.subTest(kind):
                result = start(self.folder, kind, kind)
                self.assertEqual(result.status, 0, str(result))
                self.assertNotIn("[parts.", str(result))
                self.assertIn("step 4" if kind == "pretrain" else DONE, result.out)
                found = figures(self.at(kind), kind)
                self.assertEqual(len(found), len(whole))
                for a, b in zip(found, whole):
                    self.assertAlmostEqual(a, b, delta=1e-3 * abs(b))
                again = start(self.folder, kind, kind)
                self.assertEqual((again.status, again.out.startswith("the run is finished")), (0, True), str(again))


if __name__ == "__main__":
    main()
