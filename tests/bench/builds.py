"""Two builds in turns on the same work: how fast each trains, scores and generates, and its peak of memory.

    python3 tests/bench/builds.py OLD/bin NEW/bin [--pairs 5] [WORK...]

Works: training, scoring, task (a classifier's ensemble of three), tags (the same of taggers), generation. Each job is one process with one
thread. Prints the median of OLD's user CPU time over NEW's, then that of NEW's peak resident memory over OLD's, and each pair's: machines are
noisy, and pairs follow each other closely. CPU time, unlike the clock, counts no other work that the machine does meanwhile."""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "jobs"))
from english import english  # noqa: E402

MODEL = ("model.layers=4", "model.width=256", "model.heads=4", "model.context=256", "train.batch=8")
ENCODER = ("model.kind=bert", "model.layers=4", "model.width=128", "model.heads=4", "model.context=64", "train.batch=8")
MEMBERS = 3
WORKS = ("training", "scoring", "task", "tags", "generation")
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")


def precisions():
    """Those that this CPU multiplies in."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = file.read()
    return ("bf16", "f32") if "amx_bf16" in flags or "avx512_bf16" in flags else ("f32",)


class Work:
    def __init__(self, folder, program):
        self.folder, self.program, self.runs = folder, program, 0
        open(self.at("empty.ini"), "w", encoding="utf-8").close()
        self.write("text.txt", english(3_000_000))
        self.write("some.txt", english(300_000, seed=8))
        self.data("tokenizer", "--size", "8000", "--out", self.at("t.json"), self.at("text.txt"))
        self.corpus("c.h5", self.at("text.txt"))
        self.corpus("some.h5", self.at("some.txt"))

    def at(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.at(name), "w", encoding="utf-8") as file:
            file.write(text)

    def data(self, *arguments):
        subprocess.run((self.program + "/bagpipe-data",) + arguments, env=ENVIRONMENT, capture_output=True, check=True)

    def corpus(self, name, *arguments, tokenizer="t.json"):
        self.data("corpus", "--tokenizer", self.at(tokenizer), "--out", self.at(name), *arguments)

    def job(self, program, name, *keys):
        """User CPU seconds and the peak of resident KiB of a job, and its run folder."""
        self.runs += 1
        run_dir = self.at(f"run{self.runs}")
        with open(self.at("out.txt"), "wb") as out:
            process = subprocess.Popen((program + "/bagpipe", name, self.at("empty.ini"), f"run.dir={run_dir}") + keys, env=ENVIRONMENT,
                                       stdout=out, stderr=out)
            _, status, used = os.wait4(process.pid, 0)
        if status != 0:
            with open(self.at("out.txt"), encoding="utf-8") as out:
                sys.exit(out.read())
        return used.ru_utime, used.ru_maxrss, run_dir

    def training(self, program, precision, steps=16):
        return self.job(program, "pretrain", f"corpus.train={self.at('c.h5')}", *MODEL, f"train.steps={steps}", f"math.precision={precision}")

    def make_model(self):
        self.model = self.training(self.program, precisions()[0], 2)[2]

    make_scoring = make_generation = make_model

    def scoring(self, program, precision):
        return self.job(program, "score", f"score.model={self.model}", f"score.corpus={self.at('some.h5')}", f"math.precision={precision}")

    def generation(self, program, precision):
        self.write("prompts.txt", "".join(f"The {word}\n" for word in english(2_000, seed=9).split()[:64]))
        return self.job(program, "generate", f"generate.model={self.model}", f"generate.prompts={self.at('prompts.txt')}", "generate.tokens=128",
                        f"math.precision={precision}")

    def ensemble(self, name, keys):
        """Members that are tuned for two steps."""
        self.data("tokenizer", "--kind", "wordpiece", "--size", "4000", "--out", self.at("w.json"), self.at("text.txt"))
        self.corpus(name + ".h5", *keys, tokenizer="w.json")
        task = ("task.kind=tags",) if name == "tags" else ("task.kind=classes", "task.label=topic")
        members = [self.job(self.program, "finetune", f"corpus.train={self.at(name + '.h5')}", *task, *ENCODER, "train.steps=2", f"run.seed={k}")[2]
                   for k in range(1, MEMBERS + 1)]
        os.mkdir(self.at(name))
        self.write(name + "/ensemble.json", json.dumps({"members": [{"name": f"m{k}", "path": path} for k, path in enumerate(members)]}))

    def make_task(self):
        draw, rows = random.Random(1), english(200_000, seed=4).replace("\n", " ").split(". ")
        self.write("task.jsonl", "".join(json.dumps({"text": row + ".", "topic": draw.choice(["town", "sea"])}) + "\n" for row in rows if row))
        self.ensemble("task", ("--format", "jsonl", "--label", "topic", self.at("task.jsonl")))

    def task(self, program, precision):
        return self.job(program, "score", f"score.model={self.at('task')}", f"score.corpus={self.at('task.h5')}", f"math.precision={precision}")

    def make_tags(self):
        draw, rows = random.Random(2), english(30_000, seed=5).replace("\n", " ").split(". ")
        self.write("tags.conll", "\n".join("".join(f"{word}\t{draw.choice(['O', 'O', 'B-a', 'B-b', 'B-c'])}\n" for word in row.split())
                                           for row in rows if row))
        self.ensemble("tags", ("--format", "conll", self.at("tags.conll")))

    def tags(self, program, precision):
        return self.job(program, "score", f"score.model={self.at('tags')}", f"score.corpus={self.at('tags.h5')}", f"math.precision={precision}")


def say(what, ratios):
    print(f"{what:24} {statistics.median(ratios):.3f}   {' '.join(f'{ratio:.3f}' for ratio in ratios)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("works", nargs="*", metavar="WORK")
    parser.add_argument("--pairs", type=int, default=5)
    given = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Work(folder, given.old)
        print(f"{'':24} median  each pair")
        for name in given.works or WORKS:
            getattr(work, "make_" + name, lambda: None)()
            for precision in precisions():
                pairs = [(getattr(work, name)(given.old, precision), getattr(work, name)(given.new, precision)) for _ in range(given.pairs)]
                say(f"{name}, {precision}: speed", [old[0] / new[0] for old, new in pairs])
                say("  peak of memory", [new[1] / old[1] for old, new in pairs])
                print(f"  CPU seconds {statistics.median(old[0] for old, _ in pairs):.2f}, {statistics.median(new[0] for _, new in pairs):.2f}; "
                      f"MiB {pairs[0][0][1] / 1024:.1f}, {pairs[0][1][1] / 1024:.1f}", flush=True)


if __name__ == "__main__":
    main()
