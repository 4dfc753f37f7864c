"""Do two builds compute the same bits?

    python3 tests/bits.py OLD_BIN NEW_BIN        e.g. ../before/build/release/bin build/release/bin

Both builds train the same small GPT for 20 steps, with dropout, on several meshes, in float32 and (where the CPU has it) in bfloat16,
and then score the same text with one model and with an ensemble. Compared are the digests of all tensors of the last checkpoint,
the lines of metrics.jsonl without times, and score/summary.json to the byte. Prints a table, and `equal` or what differs.
The exit status is 0 if all is equal, else 1; 2 for a wrong command line.

For changes that must keep the bits of training. It needs two builds, so it is not in the test suite. It takes about a minute on
two quiet cores.
"""
import hashlib
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "jobs"))
from bagpipe_test import digests, metrics, run  # noqa: E402
from english import english  # noqa: E402

CONFIG = """[model]
layers = 4
width = 64
heads = 4
context = 64
dropout = 0.1
[train]
steps = 20
batch = 8
log_every = 1
valid_every = 10
[optimizer]
lr = 3e-3
warmup = 5
[math]
threads = 1
[score]
tokens = yes
"""
MESHES = [("1 data rank", 1, []), ("2 data ranks", 2, []), ("4 data ranks", 4, []), ("tensor 2", 2, ["mesh.tensor=2"]),
          ("pipeline 2, 1f1b", 2, ["mesh.pipeline=2"]),
          ("pipeline 2, interleaved", 2, ["mesh.pipeline=2", "mesh.schedule=interleaved"]),
          ("tensor 2, pipeline 2", 4, ["mesh.tensor=2", "mesh.pipeline=2"])]
SCORES = [("rolling", 1, []), ("rolling, 2 ranks", 2, []), ("stride", 1, ["score.convention=stride"]), ("half", 1, ["score.convention=half"])]
REPORTED = ("step", "tokens", "loss", "lr", "grad_norm", "valid_loss")


def has_bf16():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = file.read()
    return "amx_bf16" in flags or "avx512_bf16" in flags


class Builds:
    """Two builds side by side on files in one folder."""

    def __init__(self, bins, folder):
        self.bins, self.folder, self.different = bins, folder, []

    def at(self, name):
        return os.path.join(self.folder, name)

    def must(self, build, program, arguments, ranks=0):
        result = run([os.path.join(self.bins[build], program)] + arguments, ranks)
        if result.status != 0:
            sys.exit(f"{self.bins[build]}/{program} {' '.join(arguments)}: {result}")

    def prepare(self):
        """Text, and a tokenizer and corpora by the old build."""
        text = english(200_000).splitlines(keepends=True)
        for part, lines in (("train", text[:-150]), ("valid", text[-150:])):
            with open(self.at(part + ".txt"), "w", encoding="utf-8") as file:
                file.writelines(lines)
        self.must(0, "bagpipe-data", ["tokenizer", "--kind", "bpe", "--size", "509", "--out", self.at("bpe.json"), self.at("train.txt")])
        for part in ("train", "valid"):
            self.must(0, "bagpipe-data", ["corpus", "--tokenizer", self.at("bpe.json"), "--format", "lines", "--out",
                                          self.at(part + ".h5"), self.at(part + ".txt")])
        with open(self.at("small.ini"), "w", encoding="utf-8") as file:
            file.write(f"[corpus]\ntrain = {self.at('train.h5')}\nvalid = {self.at('valid.h5')}\n{CONFIG}")

    def job(self, build, job, name, ranks, keys):
        """Run a job by a build; its run folder."""
        folder = self.at(f"{name}-{build}")
        self.must(build, "bagpipe", [job, self.at("small.ini"), f"run.dir={folder}"] + keys, ranks)
        return folder

    def compare(self, title, what):
        """A row of the table; what: one value a build, which JSON can hold."""
        short = [hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12] for value in what]
        print(f"{title:<44} {short[0]} {short[1]} {'equal' if what[0] == what[1] else 'DIFFERENT'}", flush=True)
        if what[0] == what[1]:
            return
        names = [name for name in what[0] if what[0][name] != what[1].get(name)] if isinstance(what[0], dict) else []
        names += [name for name in what[1] if name not in what[0]] if isinstance(what[0], dict) else []
        self.different.append(title + (f": {len(names)} tensors, such as {names[0]}" if names else ""))

    def train(self, job, title, name, ranks, keys, inner=""):
        runs = [self.job(build, job, name, ranks, keys) + inner for build in (0, 1)]
        self.compare(title + ", tensors", [digests(folder) for folder in runs])
        self.compare(title + ", metrics", [[[line.get(key) for key in REPORTED] for line in metrics(folder)] for folder in runs])
        return runs[0]

    def score(self, title, model, name):
        """Both builds score with the old build's model."""
        for convention, ranks, keys in SCORES:
            summaries = []
            for build in (0, 1):
                folder = self.job(build, "score", f"{name}-{convention.replace(' ', '-')}", ranks,
                                  [f"score.model={model}", f"score.corpus={self.at('valid.h5')}"] + keys)
                with open(os.path.join(folder, "score", "summary.json"), encoding="utf-8") as file:
                    summaries.append(file.read())
            self.compare(f"{title}, {convention}", summaries)


def main():
    if len(sys.argv) != 3 or not all(os.access(os.path.join(path, "bagpipe"), os.X_OK) for path in sys.argv[1:]):
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="bp_bits_") as folder:
        builds = Builds(sys.argv[1:], folder)
        builds.prepare()
        print(f"{'':<44} {'old':<12} new")
        for precision in ("f32", "bf16"):
            if precision == "bf16" and not has_bf16():
                print("bf16: skipped, this CPU has neither AMX nor AVX512_BF16")
                continue
            key = [f"math.precision={precision}"]
            for mesh, ranks, keys in MESHES:
                model = builds.train("pretrain", f"{precision}, {mesh}", f"{precision}-{mesh.replace(' ', '-')}", ranks, keys + key)
            builds.score(f"{precision}, score one model", model, f"{precision}-score")
            many = ["ensemble.members=2", "ensemble.kind=seed", "mesh.members=2", "train.valid_every=0"]
            builds.train("ensemble", f"{precision}, ensemble's member 1", f"{precision}-many", 2, many + key, "/members/m01")
            builds.score(f"{precision}, score ensemble", builds.at(f"{precision}-many-0"), f"{precision}-score-many")
        if builds.different:
            print("\n".join(["different:"] + builds.different))
            return 1
        print("equal")
        return 0


if __name__ == "__main__":
    sys.exit(main())
