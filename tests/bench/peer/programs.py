"""Starting bagpipe and PyTorch alike, each with the settings that suit it, and reading what they tell."""
import json
import os
import shlex
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3"  # the one that Debian's python3-torch belongs to
OPENBLAS = "/usr/lib/x86_64-linux-gnu/openblas-openmp"

# Debian's PyTorch takes the single-threaded OpenBLAS where several are installed, and gives each large tensor back to the kernel: up to 1.9
# times slower.
TUNED = {"LD_LIBRARY_PATH": OPENBLAS, "GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=8589934592"}


class Failed(Exception):
    """A program ended with another status than 0; what it said."""


class Model:
    """A shape under a name, and the corpus of its vocabulary. `keys`: what its kind is told besides."""

    def __init__(self, name, layers, width, heads, context, vocabulary, *keys, kind="gpt", inner=0):
        self.name, self.layers, self.width, self.heads = name, layers, width, heads
        self.context, self.vocabulary, self.more, self.kind, self.inner = context, vocabulary, keys, kind, inner

    def shape(self):
        return ",".join(map(str, (self.layers, self.width, self.heads, self.context, self.vocabulary, self.inner)))

    def keys(self):
        sizes = [f"model.{key}={getattr(self, key)}" for key in ("layers", "width", "heads", "context", "inner") if getattr(self, key)]
        return [f"model.kind={self.kind}", *sizes, *self.more]

    def flops(self):
        """Of training, a token: 6 (12 L C^2 + V C) + 12 L T C."""
        L, C, T, V = self.layers, self.width, self.context, self.vocabulary
        return 6 * (12 * L * C * C + V * C) + 12 * L * T * C


class Peer:
    """A PyTorch: this machine's, or that of another Debian in a folder (`root`). `options`: what peer.py is told besides."""

    def __init__(self, programs, root=None, *options):
        self.programs, self.root, self.options = programs, root and os.path.abspath(root), options

    def __call__(self, what, model, corpus, precision, batch, steps, weights=None, *options):
        """One run of peer.py: its line of JSON."""
        p = self.programs
        command = [PYTHON, os.path.join(HERE, "peer.py"), what, "--kind", model.kind, "--corpus", corpus, "--shape", model.shape(),
                   "--precision", precision, "--batch", batch, "--steps", steps, "--threads", p.threads, *options, *self.options]
        if weights:
            command += ["--weights", weights, "--in-order"]
        if self.root:
            command = within(self.root, [os.path.join(HERE, "..", ".."), p.out, *filter(None, [p.plugin()])], command)
        found = json.loads(p.run(command, dict(TUNED, **for_cpu(), OMP_NUM_THREADS=str(p.threads)))[-1][1])
        return dict(found, name=f"PyTorch {found['torch'].partition('+')[0]}" + (", compiled" if "--compile" in self.options else ""))


def within(root, folders, command):
    """The command in a Debian in a folder, with /proc and /sys (without which PyTorch believes in no AVX), /dev, and folders of this machine.
    The mounts are the command's own and end with it."""
    mounts = [f"mkdir -p {there} && mount --rbind {here} {there}" for here, there in
              ((shlex.quote(folder), shlex.quote(root + folder)) for folder in map(os.path.abspath, ["/proc", "/sys", "/dev", *folders]))]
    return ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c",
            " && ".join([*mounts, f'exec chroot {shlex.quote(root)} "$@"']), "sh", *command]


class Programs:
    """Where they are and how they are started: --realtime puts `chrt -r 1` before both, --lock holds a file's lock meanwhile."""

    def __init__(self, args):
        self.bin, self.out, self.threads = os.path.abspath(args.bin), os.path.abspath(args.out), args.threads
        self.prefix = (["flock", args.lock] if args.lock else []) + (["chrt", "-r", "1"] if args.realtime else [])
        self.verbose = args.verbose
        self.chroot = args.chroot
        os.makedirs(self.out, exist_ok=True)

    def at(self, *names):
        return os.path.join(self.out, *names)

    def plugin(self):
        """The folder of the zstd filter that h5py needs: beside a build's bin, or installed."""
        folders = [os.path.normpath(os.path.join(self.bin, *names)) for names in (("..", "plugin"), ("..", "lib", "bagpipe", "hdf5-plugin"))]
        return next((folder for folder in folders if os.path.isdir(folder)), os.environ.get("HDF5_PLUGIN_PATH", ""))

    def run(self, command, environment=None, timed=True):
        """Lines of standard output, each with the moment at which it came."""
        command = (self.prefix if timed else []) + [str(word) for word in command]
        if self.verbose:
            print("+", " ".join(command), file=sys.stderr, flush=True)
        env = dict(os.environ, LC_ALL="C.UTF-8", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   HDF5_PLUGIN_PATH=self.plugin(), **(environment or {}))
        lines = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, text=True,
                              errors="replace") as job:
            for line in job.stdout:
                lines.append((time.monotonic(), line.rstrip("\n")))
        if job.returncode != 0:
            raise Failed("\n".join([" ".join(command), *(line for _, line in lines[-15:]), f"status {job.returncode}"]))
        return lines

    def data(self, *arguments):
        return self.run([os.path.join(self.bin, "bagpipe-data"), *arguments], timed=False)

    def bagpipe(self, job, keys, ranks=1, threads=None):
        """A job of bagpipe in an empty run folder; ranks > 1: under mpirun, a core each."""
        config = self.at("empty.ini")
        with open(config, "w", encoding="utf-8"):
            pass
        folder = self.at("run")
        shutil.rmtree(folder, ignore_errors=True)
        command = [os.path.join(self.bin, "bagpipe"), job, config, f"run.dir={folder}",
                   f"math.threads={threads or self.threads}", *keys]
        if ranks > 1:
            command = ["mpirun", "-n", ranks] + command
        return Run(folder, self.run(command, {"OMP_NUM_THREADS": str(threads or self.threads)}))

    def peers(self, kind):
        """Each PyTorch. Compiled where there is a compiler and that suits a kind: a translator's batches differ in shape, and nn.LSTM
        is not compiled."""
        if not self.chroot:
            return [Peer(self)]
        compiles = kind in ("gpt", "bert") and os.path.lexists(os.path.join(self.chroot, "usr", "bin", "g++"))
        return [Peer(self), Peer(self, self.chroot), *([Peer(self, self.chroot, "--compile")] if compiles else [])]

    def knows(self, job, key):
        """Does this build have the key (a row may be of a feature that it lacks)?"""
        return any(line.split()[:1] == [key] for _, line in self.run([os.path.join(self.bin, "bagpipe"), job, "--help"],
                                                                     timed=False))


class Run:
    """What a job of bagpipe left in its run folder, and said."""

    def __init__(self, folder, lines):
        self.lines = lines
        self.metrics = self.read_lines(os.path.join(folder, "metrics.jsonl"))
        self.profile = self.read(os.path.join(folder, "profile.json"))
        self.summary = self.read(os.path.join(folder, "score", "summary.json"))
        self.bench = self.read(os.path.join(folder, "bench.json"))

    @staticmethod
    def read(path):
        if not os.path.exists(path):
            return None
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    @staticmethod
    def read_lines(path):
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def moments(self, start):
        """When the lines came that begin so."""
        return [moment for moment, line in self.lines if line.startswith(start)]

    def memory(self):
        """(MiB estimated, MiB seen) of the line at the end of a training."""
        words = next(line for _, line in self.lines if line.startswith("memory: ") and "estimated," in line).split()
        return float(words[1]), float(words[4])


def for_cpu():
    """Debian's PyTorch 1.13 believes that a CPU with AVX-512 has AVX2, its OpenBLAS that one of a later year has SSE3: 6 times slower."""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        flags = file.read()
    if "avx512vl" not in flags:
        return {"ATEN_CPU_CAPABILITY": "default"}
    return {"ATEN_CPU_CAPABILITY": "avx512", "OPENBLAS_CORETYPE": "SKYLAKEX"}
