"""Two builds in turns on the same work: how fast each trains and scores, and its peak of memory.

    python3 tests/bench/builds.py OLD/bin NEW/bin [--pairs 5]

Prints the median of NEW over OLD, and each pair's: machines are noisy, and pairs follow each other closely."""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "jobs"))
from english import english  # noqa: E402

MODEL = ("model.layers=6", "model.width=384", "model.heads=6", "model.context=256", "train.batch=16", "mesh.micro_batch=8")
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def precisions():
    """Those that this CPU multiplies in."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = file.read()
    return ("bf16", "f32") if "amx_bf16" in flags or "avx512_bf16" in flags else ("f32",)


def run(*command):
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout


class Work:
    def __init__(self, folder, program):
        self.folder, self.runs = folder, 0
        with open(self.at("text.txt"), "w", encoding="utf-8") as file:
            file.write(english(3_000_000))
        open(self.at("empty.ini"), "w", encoding="utf-8").close()
        run(program + "/bagpipe-data", "tokenizer", "--size", "8000", "--out", self.at("t.json"), self.at("text.txt"))
        run(program + "/bagpipe-data", "corpus", "--tokenizer", self.at("t.json"), "--out", self.at("c.h5"), self.at("text.txt"))
        self.model = self.train(program, precisions()[0], 2)[2]

    def at(self, name):
        return os.path.join(self.folder, name)

    def train(self, program, precision, steps=12):
        """Tokens a second of the second half, the peak in MiB, the run folder."""
        self.runs += 1
        run_dir = self.at(f"run{self.runs}")
        out = run(program + "/bagpipe", "pretrain", self.at("empty.ini"), f"run.dir={run_dir}", f"corpus.train={self.at('c.h5')}", *MODEL,
                  f"train.steps={steps}", f"train.log_every={steps // 2}", f"math.precision={precision}")
        with open(os.path.join(run_dir, "metrics.jsonl"), encoding="utf-8") as file:
            last = json.loads(file.read().splitlines()[-1])
        return last["tokens_per_second"], float(re.search(r"([\d.]+) MiB seen at the peak", out).group(1)), run_dir

    def score(self, program):
        """Jobs a second."""
        self.runs += 1
        start = time.monotonic()
        run(program + "/bagpipe", "score", self.at("empty.ini"), f"run.dir={self.at(f'run{self.runs}')}", f"score.model={self.model}",
            f"score.corpus={self.at('c.h5')}")
        return 1 / (time.monotonic() - start)


def say(what, ratios):
    print(f"{what:24} {statistics.median(ratios):.3f}   {' '.join(f'{ratio:.3f}' for ratio in ratios)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--pairs", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Work(folder, given.old)
        print(f"{'new over old':24} median  each pair")
        for precision in precisions():
            pairs = [(work.train(given.old, precision), work.train(given.new, precision)) for _ in range(given.pairs)]
            say(f"training, {precision}", [new[0] / old[0] for old, new in pairs])
            say(f"  peak of memory, {precision}", [new[1] / old[1] for old, new in pairs])
        pairs = [(work.score(given.old), work.score(given.new)) for _ in range(given.pairs)]
        say("scoring", [new / old for old, new in pairs])


if __name__ == "__main__":
    main()
