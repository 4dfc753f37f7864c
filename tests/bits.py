"""Do two builds compute the same bits?

    python3 tests/bits.py OLD_BIN NEW_BIN [KIND...]        e.g. ../before/build/release/bin build/release/bin

Both builds run every job of fault/every_job.py (or the KINDs among them: trainings of all families, fine-tunings, ensembles, scores of
windows, tasks, candidates and states, generations, studies) on each of its meshes, in float32 and (where the CPU has it) in bfloat16, on
inputs that the old build made. Compared is all that no clock may change: the digests of all tensors of the last checkpoint, the lines of
metrics.jsonl, and every other file but pages, to the byte. Last, the new build goes on with runs that the old one began. Prints a table,
and `equal` or what differs. The exit status is 0 if all is equal, else 1; 2 for a wrong command line.

For changes that must keep the bits. It needs two builds, so it is not in the test suite. It takes about half an hour on two quiet cores.
"""
import hashlib
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "fault"), os.path.join(HERE, "jobs")]
import bagpipe_test  # noqa: E402
from every_job import WAYS, EveryJob, whole_result  # noqa: E402


F32 = ("word2vec", "neighbours")  # refuse bf16: the first always, the other since its datastore is in float32


def has_bf16():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = file.read()
    return "amx_bf16" in flags or "avx512_bf16" in flags


def digest(result):
    return hashlib.sha256(repr(sorted(result.items())).encode()).hexdigest()[:12]


class Bits(EveryJob):
    def by(self, build, kind, name, mesh, *keys):
        """A job by a build; all of what it left."""
        bagpipe_test.options["bin"] = build
        start = self.begin(kind, name, mesh, keys if not WAYS[kind][0].startswith("bagpipe-data") else ())
        status = start.wait()
        bagpipe_test.options["bin"] = self.bins[0]
        if status != 0:
            print(start, flush=True)
        return whole_result(self.at(name)) if status == 0 else {"status": (name, status)}

    def compare(self, title, old, new):
        parts = sorted(part for part in old.keys() | new.keys() if old.get(part) != new.get(part))
        print(f"{title:<60} {digest(old)} {digest(new)} {'DIFFERENT: ' + ', '.join(parts) if parts else 'equal'}", flush=True)
        self.different += [title] if parts else []

    def compare_builds(self, kind, key):
        for k, mesh in enumerate(WAYS[kind][2]):
            name = f"{kind}-{key[-4:].strip('=')}-{k}"
            old, new = (self.by(build, kind, f"{name}-{b}", mesh, key) for b, build in enumerate(self.bins))
            ranks, keys = mesh
            self.compare(f"{kind}, {key[15:]}, {max(ranks, 1)} ranks {' '.join(keys)}", old, new)

    def go_on(self, kind, key):
        """The new build ends what the old one began: it is killed after half of the time that a whole run takes."""
        mesh, begun = WAYS[kind][2][0], time.monotonic()
        whole = self.by(self.bins[0], kind, f"{kind}-whole", mesh, key)
        seconds = time.monotonic() - begun
        start = self.begin(kind, f"{kind}-begun", mesh, (key,))
        time.sleep(seconds / 2)
        bagpipe_test.kill_all(start.process)
        start.wait()
        self.compare(f"{kind}, begun by the old build", whole, self.by(self.bins[1], kind, f"{kind}-begun", mesh, key))


def main():
    bins = [os.path.abspath(path) for path in sys.argv[1:3]]
    kinds = sys.argv[3:] or list(WAYS)
    if len(bins) != 2 or not all(os.access(os.path.join(path, "bagpipe"), os.X_OK) for path in bins) or not set(kinds) <= set(WAYS):
        print(__doc__, file=sys.stderr)
        return 2
    bagpipe_test.options["bin"] = bins[0]
    Bits.bins, Bits.different = bins, []
    Bits.setUpClass()
    try:
        bits = Bits("compare_builds")
        for precision in ("f32", "bf16") if has_bf16() else ("f32",):
            for kind in kinds if precision == "f32" else [kind for kind in kinds if kind not in F32]:
                bits.compare_builds(kind, f"math.precision={precision}")
        for kind in kinds:
            if not WAYS[kind][0].startswith("bagpipe-data"):
                bits.go_on(kind, "math.precision=f32")
    finally:
        Bits.tearDownClass()
    print("\n".join(["different:"] + Bits.different) if Bits.different else "equal")
    return 1 if Bits.different else 0


if __name__ == "__main__":
    sys.exit(main())
