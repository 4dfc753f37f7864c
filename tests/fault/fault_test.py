"""What the tests of faults share: a training so small that a start takes half a second, killing its ranks, and comparing what
it left with an undisturbed run."""
import glob
import json
import os
import random
import re
import signal
import subprocess
import time

import bagpipe_test
from bagpipe_test import JobTest, children, digests, environment, kill_all, metrics, program, timeless

HANG = bagpipe_test.TIMEOUT  # what takes so long hangs


def text(lines):
    draw, words = random.Random(7), "rank node tensor token corpus word model queue reads writes sends sums splits keeps".split()
    return "\n".join(" ".join(draw.choice(words) for _ in range(12)) for _ in range(lines))


class Start:
    """One start of a program, bare (ranks=0) or under mpirun, in a session of its own. Its output goes to files: a pipe would
    stay open for as long as an orphan lives."""

    def __init__(self, out, arguments, ranks=2, env=None, cwd=None, prefix=()):
        command = [str(a) for a in arguments]
        if ranks > 0:
            command = ["sh", bagpipe_test.MPIRUN, str(ranks)] + command
        self.paths = [out + ".out", out + ".err"]
        command = list(prefix) + command
        # killed launchers and ranks leave files: not in /tmp and /dev/shm, where they would stay, and where launchers that end
        # and begin at the same time get into each other's way
        mpi = os.path.join(os.path.dirname(out), "mpi")
        os.makedirs(mpi, exist_ok=True)
        places = {"OMPI_MCA_orte_tmpdir_base": mpi, "OMPI_MCA_btl_vader_backing_directory": mpi}
        with open(self.paths[0], "wb") as stdout, open(self.paths[1], "wb") as stderr:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, cwd=cwd,
                                            env=dict(environment(), **places, **(env or {})), start_new_session=True)
        self.ranks = ranks

    @property
    def out(self):
        return self._read(0)

    @property
    def err(self):
        return self._read(1)

    def _read(self, k):
        with open(self.paths[k], encoding="utf-8", errors="replace") as file:
            return file.read()

    def pids(self):
        """The processes of ranks, by rank, as far as they have been started. mpirun.sh becomes mpirun by exec."""
        return [self.process.pid] if self.ranks == 0 else sorted(children(self.process.pid))

    def wait(self, seconds=HANG):
        """The exit status; None: it hangs (and is ended)."""
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            kill_all(self.process)
            self.process.wait()
            return None

    def result(self):
        """How it ended, once it has; no status: it hangs."""
        return bagpipe_test.Result(self.wait(), self.out, self.err)

    def __str__(self):
        return f"status {self.process.returncode}\n--- out\n{self.out}\n--- err\n{self.err}"


def send(pid, number):
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except OSError:
        return False


def wait_gone(pids, seconds=HANG):
    end = time.monotonic() + seconds
    while any(is_alive(pid) for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def announced(folder, out=""):
    """The highest step that was said to be committed: printed, or an event."""
    step = max((int(number) for number in re.findall(r"\bcommitted (?:step )?(\d+)", out)), default=0)
    try:
        with open(os.path.join(folder, "events.jsonl"), encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    event = json.loads(line)
                except ValueError:
                    continue  # the half line of a killed job
                if event.get("event") == "checkpoint":
                    step = max(step, event["step"])
    except FileNotFoundError:
        pass
    return step


def leftovers(folder):
    """Temporary names in a run folder, in any depth."""
    found = []
    for at, folders, files in os.walk(folder):
        for name in folders + files:
            if name.startswith((".tmp-", ".del-", ".bad-", ".bp-", "claim-")) or name.endswith(".tmp"):
                found.append(os.path.relpath(os.path.join(at, name), folder))
    return sorted(found)


def best(folder):
    try:
        return os.readlink(os.path.join(folder, "checkpoints", "best"))
    except OSError:
        return None


def result(folder):
    """All of a finished training that must not depend on what happened to it."""
    return {"digests": digests(folder), "metrics": timeless(metrics(folder)), "best": best(folder),
            "steps": sorted(os.path.basename(p) for p in glob.glob(os.path.join(folder, "checkpoints", "step-*")))[-1]}


class TinyJob(JobTest):
    """A corpus of 14,000 tokens, a model of one layer, two data ranks."""

    STEPS, EVERY, VALID = 40, 4, 20

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.serial = 0

    @classmethod
    def write(cls, name, content):
        if name == "train.txt":
            content = text(600)
        elif name == "valid.txt":
            content = text(20)
        return super().write(name, content)

    VOCABULARY = 300
    TEXT_BYTES = 2000  # what JobTest makes is not used

    @classmethod
    def config(cls):
        return f"""[corpus]
train = {cls.at('train.h5')}
valid = {cls.at('valid.h5')}
[model]
layers = 1
width = 16
heads = 2
context = 16
[train]
steps = {cls.STEPS}
batch = 4
log_every = 1
valid_every = {cls.VALID}
[checkpoint]
every = {cls.EVERY}
[math]
precision = f32
threads = 1
"""

    def start(self, job, name, *keys, ranks=2, env=None, prefix=()):
        """Start a job on the run folder `name`; `prefix`: a program that starts it (nsenter ..., prlimit ...)."""
        type(self).serial += 1
        return Start(self.at(f"start-{self.serial}"), [program("bagpipe"), job, self.at("small.ini"), f"run.dir={self.at(name)}"] +
                     list(keys), ranks=ranks, env=env, prefix=prefix)

    def done(self, job, name, *keys, ranks=2, env=None):
        """Run a job to its end, which must be a good one."""
        start = self.start(job, name, *keys, ranks=ranks, env=env)
        self.assertEqual(start.wait(), 0, str(start))
        return start


SHORT = ("train.steps=8", "checkpoint.every=4", "train.valid_every=4", "checkpoint.keep=1")
SCORE = ("score.stride=1", "score.tokens=yes")
KINDS = {  # job, ranks (0: without mpirun), keys
    "train": ("pretrain", 2, ("mesh.data=2",)),
    "stop": ("pretrain", 2, ("mesh.data=2",)),
    "pipeline": ("pretrain", 2, ("mesh.data=1", "mesh.pipeline=2")),
    "ensemble": ("ensemble", 2, ("ensemble.members=2", "ensemble.kind=seed", "mesh.members=2", "train.steps=8")),
    "score": ("score", 2, SCORE),
    "short1": ("pretrain", 0, SHORT),
    "short2": ("pretrain", 2, SHORT + ("mesh.data=2",)),
    "score1": ("score", 0, SCORE),
}


def content(path):
    with open(path, "rb") as file:
        return file.read()


class KindsOfJob(TinyJob):
    """Small jobs of every kind, and what each ends with when it is left alone."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.undisturbed = {}

    def keys_of(self, job):
        """What a job that looks at a model needs; the model is trained at the first call."""
        if job not in ("score", "generate", "uncertainty"):
            return ()
        model = self.at("model")
        if not os.path.exists(model):
            self.done("pretrain", "model", "mesh.data=2", "train.steps=8")
        if job == "generate":
            self.write("prompts.txt", "rank node\ntensor sums\ntoken keeps word\nqueue\nmodel reads\n")
            return (f"generate.model={model}", f"generate.prompts={self.at('prompts.txt')}")
        if job == "score":
            return (f"score.model={model}", f"score.corpus={self.at('train.h5')}")
        return (f"uncertainty.models=one={model},passes={model}:dropout", f"uncertainty.in_domain={self.at('train.h5')}",
                "uncertainty.passes=3", "uncertainty.resamples=100", "uncertainty.temper_tokens=500")

    def launch(self, kind, name, env=None, prefix=()):
        job, ranks, keys = KINDS[kind]
        return self.start(job, name, *keys, *self.keys_of(job), env=env, ranks=ranks, prefix=prefix)

    def outcome(self, kind, name):
        folder = self.at(name)
        if KINDS[kind][0] == "score":
            return {path: content(os.path.join(folder, "score", path)) for path in ("summary.json", "documents.h5", "tokens.h5")}
        if KINDS[kind][0] == "generate":
            return {path: content(os.path.join(folder, "generate", path)) for path in ("outputs.jsonl", "summary.json")}
        if KINDS[kind][0] == "ensemble":
            return [digests(member) for member in sorted(glob.glob(os.path.join(folder, "members", "m*")))]
        if KINDS[kind][0] == "uncertainty":
            summary = json.loads(content(os.path.join(folder, "uncertainty", "summary.json")))
            for method in summary["methods"].values():
                for key in ("train_seconds", "fit_seconds", "score_seconds", "memory_mib"):
                    method.pop(key)
            return summary
        return result(folder)

    def expect_end(self, kind, name, prefix=()):
        """A start without faults ends as if nothing had been."""
        start = self.launch(kind, name, prefix=prefix)
        self.assertEqual(start.wait(), 0, str(start))
        self.assertEqual(self.outcome(kind, name), self.undisturbed_of(kind))
        self.assertEqual(leftovers(self.at(name)), [])
        if KINDS[kind][0] == "score":
            left = set(os.listdir(os.path.join(self.at(name), "score"))) - {"index.html"}  # a page that fails costs a warning
            self.assertEqual(sorted(left), ["documents.h5", "summary.json", "tokens.h5"])

    def undisturbed_of(self, kind):
        if kind not in self.undisturbed:
            start = self.launch(kind, "whole-" + kind)
            self.assertEqual(start.wait(), 0, str(start))
            self.undisturbed[kind] = self.outcome(kind, "whole-" + kind)
        return self.undisturbed[kind]
