"""What the tests of whole jobs share: text, corpora, running a job on some ranks, and reading what it left.

A test is a Python program (unittest) called with --bin FOLDER (the build's programs) and --shared FOLDER (real data, may be absent).
"""
import glob
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from english import english

HERE = os.path.dirname(os.path.abspath(__file__))
MPIRUN = os.path.join(HERE, "..", "mpirun.sh")
TIMEOUT = int(os.environ.get("BAGPIPE_TEST_LIMIT", "1200")) * 9 // 10  # for anything to happen: CTest ends the test soon after
SCORES = ("summary.json", "documents.h5", "tokens.h5")  # what a score job leaves

SANITIZED = os.environ.get("BAGPIPE_TEST_SANITIZED", "")  # the sanitizers of this build: it needs more time and memory, and its malloc is another
SLOWER = 10 if SANITIZED else 1  # by how much a test's own limits of time grow, as CTest's do

options = {"bin": None, "shared": None}


# What mpirun adds where a rank left with a status, or was killed: known, and not ours. All else that it says is an error.
BANNER = re.compile(r"^-{70,}\n(?:Primary job  terminated normally|mpirun detected that one or more processes exited with non-zero|"
                    r"mpirun noticed that process)(?:.*\n)*?-{70,}\n", re.M)


IDENTIFIER = re.compile(r"\[[a-z][a-z0-9]*\.[a-z][a-z0-9_]*\]$")  # at the end of a message


class Result:
    """How a program ended; `err` is without mpirun's banners."""

    def __init__(self, status, out, err):
        self.status, self.out, self.err, self.whole_err = status, out, BANNER.sub("", err), err

    def lines(self, kind):
        """Its messages of a kind: "error", "warning", "stopped"."""
        return [line for line in self.err.splitlines() if re.match(rf"bagpipe(-data)?: {kind}(\[\d+\])?: ", line)]

    def __str__(self):
        return f"status {self.status}\n--- out\n{self.out}\n--- err\n{self.whole_err}"


def program(name):
    return os.path.join(options["bin"], name)


def shared(name):
    path = os.path.join(options["shared"] or "", name)
    return path if os.path.exists(path) else None


def environment(threads=1):
    env = dict(os.environ, OMP_NUM_THREADS=str(threads), LC_ALL="C.UTF-8")
    env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    for key, value in (("pml", "ob1"), ("btl", "^openib,ofi")):  # as jobs/local.sh has them: a start by itself is as quick as mpirun's
        env.setdefault("OMPI_MCA_" + key, value)
    return env


def run(arguments, ranks=0, kill_after=None, cwd=None):
    """Run a program, bare (ranks=0) or under mpirun. kill_after: SIGKILL to the whole group after so many seconds."""
    command = [str(a) for a in arguments]
    if ranks > 0:
        command = ["sh", MPIRUN, str(ranks)] + command
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
                               start_new_session=True, cwd=cwd)
    try:
        out, err = process.communicate(timeout=kill_after or TIMEOUT)
    except subprocess.TimeoutExpired:
        kill_all(process)
        out, err = process.communicate()
        if kill_after is None:
            raise AssertionError(f"no end after {TIMEOUT} s: {command}\n{out.decode()}\n{err.decode()}")
        return Result(-signal.SIGKILL, out.decode(errors="replace"), err.decode(errors="replace"))
    return Result(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))


def children(pid):
    found = []
    for task in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            with open(task, encoding="ascii") as file:
                found += [int(child) for child in file.read().split()]
        except OSError:
            pass
    return found


def kill_all(process):
    """SIGKILL to the launcher and to every rank: Open MPI puts ranks into groups of their own."""
    pids, at = [process.pid], 0
    while at < len(pids):
        pids += children(pids[at])
        at += 1
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Background(subprocess.Popen):
    """A job that runs beside the test, in a session of its own, bare (ranks=0) or under mpirun. Its output goes to files: a pipe
    that nobody reads would fill, and stop it."""

    def __init__(self, arguments, ranks=0, env=None):
        command = (["sh", MPIRUN, str(ranks)] if ranks > 0 else []) + [str(a) for a in arguments]
        self.said = [tempfile.TemporaryFile() for _ in range(2)]
        super().__init__(command, stdout=self.said[0], stderr=self.said[1], env=dict(environment(), **(env or {})), start_new_session=True)

    def communicate(self, input=None, timeout=TIMEOUT):
        """Its output and errors, once it has ended."""
        self.wait(timeout)
        return tuple(os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace") for file in self.said)

    def result(self):
        """How it ended, once it has."""
        out, err = self.communicate()
        return Result(self.returncode, out, err)

    def end(self):
        kill_all(self)
        self.wait()
        for file in self.said:
            file.close()


def metrics(folder):
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def events(folder, name=None):
    """The events of a run; those of one name."""
    with open(os.path.join(folder, "events.jsonl"), encoding="utf-8") as file:
        return [event for event in map(json.loads, file) if name is None or event["event"] == name]


def timeless(lines):
    """Metrics without what a clock says."""
    return [{k: v for k, v in line.items() if k not in ("seconds", "tokens_per_second", "mfu")} for line in lines]


def parts_miss(line, weights, loss="loss"):
    """How far from a line's loss the sum of weight times part is; `weights` names all parts."""
    parts = {key.removeprefix(f"{loss}_"): value for key, value in line.items() if key.startswith(f"{loss}_")}
    assert set(parts) == set(weights), parts
    return abs(line[loss] - sum(weights[name] * value for name, value in parts.items()))


def steps(folder):
    return sorted(os.path.basename(p) for p in glob.glob(os.path.join(folder, "checkpoints", "step-*")))


def read_json(*parts):
    with open(os.path.join(*parts), encoding="utf-8") as file:
        return json.load(file)


def state_of(folder):
    """The state of the newest checkpoint of a run."""
    return read_json(folder, "checkpoints", steps(folder)[-1], "manifest.json")["state"]


def digests(folder, which=-1):
    """Digests of all tensors of the newest checkpoint, or of another."""
    with open(os.path.join(folder, "checkpoints", steps(folder)[which], "manifest.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    return {tensor["name"]: tensor["digest"] for tensor in manifest["tensors"]}


def edit_manifest(step, change):
    """Change the manifest of the checkpoint in folder `step`, and make its hash right again."""
    path = os.path.join(step, "manifest.json")
    with open(path, encoding="utf-8") as file:
        manifest = json.load(file)
    change(manifest)
    text = json.dumps(manifest).encode() + b"\n"
    with open(path, "wb") as file:
        file.write(text)
    with open(os.path.join(step, "manifest.sha256"), "w", encoding="ascii") as file:
        file.write(hashlib.sha256(text).hexdigest() + "  manifest.json\n")


class FolderTest(unittest.TestCase):
    """A folder for files, which goes at the end."""

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="bp_jobs_")
        cls.folder = cls.temporary.name

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def at(cls, name):
        return os.path.join(cls.folder, name)

    @classmethod
    def write(cls, name, text):
        with open(cls.at(name), "w", encoding="utf-8") as file:
            file.write(text)
        return cls.at(name)

    @classmethod
    def convert(cls, name):
        """What h5py wrote there becomes a native corpus."""
        os.replace(cls.at(name), cls.at(name) + ".foreign")
        cls.must(["bagpipe-data", "corpus", "--format", "hdf5", "--out", cls.at(name), cls.at(name) + ".foreign"])
        return cls.at(name)

    def assert_error(self, result, status, *words, lines=1):
        """It ended with this status and so many lines of error, each with an identifier of `words` ("[file.missing]"), in which the
        names and values among `words` stand, too."""
        self.assertEqual(result.status, status, str(result))
        said = result.lines("error")
        self.assertEqual([line.startswith((f"bagpipe: error[{status}]: ", f"bagpipe-data: error[{status}]: ")) for line in said], [True] * lines, str(result))
        self.assert_words(said, words, str(result))

    def assert_warning(self, result, *words, times=1):
        """Its warnings with this identifier, the first of `words`, are so many, and name the other `words`."""
        said = [line for line in result.lines("warning") if line.endswith(" " + words[0])]
        self.assertEqual(len(said), times, str(result))
        self.assert_words(said, words if times else (), str(result))

    def assert_stopped(self, result, *words):
        """It was stopped in time, as it was asked, and names these words: that is no error."""
        self.assertEqual((result.status, result.lines("error")), (75, []), str(result))
        said = result.lines("stopped")
        self.assertEqual(len(said), 1, str(result))
        self.assert_words(said, ("[run.stopped]",) + words, str(result))

    def assert_words(self, lines, words, context):
        identifiers = {word for word in words if IDENTIFIER.fullmatch(word)}
        if identifiers:
            self.assertEqual({(IDENTIFIER.search(line) or [None])[0] for line in lines}, identifiers, context)
        for word in words:
            self.assertIn(word, "\n".join(lines), context)

    @classmethod
    def must(cls, arguments, ranks=0):
        result = run([program(arguments[0])] + list(arguments[1:]), ranks)
        if result.status != 0:
            raise AssertionError(f"{arguments}: {result}")
        return result


class JobTest(FolderTest):
    """A folder with a corpus and the configuration of a small model."""

    VOCABULARY = 509
    TEXT_BYTES = 200_000

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        text = english(cls.TEXT_BYTES)
        cut = text.rindex("\n", 0, len(text) * 9 // 10)
        cls.write("train.txt", text[:cut])
        cls.write("valid.txt", text[cut:])
        cls.must(["bagpipe-data", "tokenizer", "--kind", "bpe", "--size", cls.VOCABULARY, "--out", cls.at("tokenizer.json"),
                  cls.at("train.txt")])
        for part in ("train", "valid"):
            cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "lines", "--out",
                      cls.at(part + ".h5"), cls.at(part + ".txt")])
        cls.write("small.ini", cls.config())

    @classmethod
    def config(cls):
        return f"""[corpus]
train = {cls.at('train.h5')}
valid = {cls.at('valid.h5')}
[model]
layers = 2
width = 32
heads = 4
context = 32
[train]
steps = 20
batch = 8
log_every = 1
[optimizer]
lr = 3e-3
warmup = 5
[math]
precision = f32
threads = 1
"""

    def pretrain(self, name, ranks=0, *keys, **more):
        return run([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at(name)}"] + list(keys), ranks, **more)

    def trained(self, name, ranks=0, *keys):
        result = self.pretrain(name, ranks, *keys)
        self.assertEqual(result.status, 0, str(result))
        return self.at(name)

    def background(self, arguments, ranks=0, env=None):
        """Start a job that ends with the test, if not before."""
        process = Background(arguments, ranks, env)
        self.addCleanup(process.end)
        return process

    def until(self, question, process=None):
        """Wait for something to come true, as long as the job is there that makes it so."""
        for _ in range(TIMEOUT * 50):
            ended = process is not None and process.poll() is not None  # before the question: its last act may be the answer
            if question():
                return
            if ended:
                break
            time.sleep(0.02)
        self.fail("it does not come true" + (f": {process.communicate()}" if process is not None and process.poll() is not None else ""))

    def trains(self, name):
        """Has the training on run folder `name` logged a step?"""
        path = os.path.join(self.at(name), "metrics.jsonl")
        return os.path.exists(path) and os.path.getsize(path) > 0


class ScoreFiles:
    """What score jobs leave, for tests of them."""

    def data(self, name, file):
        with open(os.path.join(self.at(name), "score", file), "rb") as stream:
            return stream.read()

    def summary(self, name):
        return json.loads(self.data(name, "summary.json"))

    def assert_same_bytes(self, a, b):
        for file in SCORES:
            self.assertEqual(self.data(a, file), self.data(b, file), f"{file} of {a} and {b}")


def take(**defaults):
    """A test's own arguments, taken out of sys.argv: `--name value` of the default's type (text where that is None), or `--name` alone
    where it is False. Their values, in the order given."""
    taken, rest, arguments = dict(defaults), [], iter(sys.argv)
    for argument in arguments:
        name = argument[2:]
        if not argument.startswith("--") or name not in defaults:
            rest.append(argument)
        elif defaults[name] is False:
            taken[name] = True
        else:
            taken[name] = (str if defaults[name] is None else type(defaults[name]))(next(arguments))
    sys.argv = rest
    return list(taken.values())


def main():
    arguments = sys.argv[:1]
    rest = sys.argv[1:]
    while rest:
        if rest[0] in ("--bin", "--shared"):
            options[rest[0][2:]] = rest[1] and os.path.abspath(rest[1])
            rest = rest[2:]
        else:
            arguments.append(rest.pop(0))
    result = unittest.main(argv=arguments, verbosity=2, exit=False).result
    if result.skipped and len(result.skipped) >= result.testsRun and result.wasSuccessful():
        print("skipped: " + result.skipped[0][1])
        sys.exit(77)
    sys.exit(0 if result.wasSuccessful() else 1)
