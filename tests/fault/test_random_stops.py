"""SIGSTOP of a random rank at a random moment, from the moment that the rank knows how many there are to the end of its job:
the watchdog names it, and all leave with 75.

    test_random_stops.py --bin FOLDER [--runs STOPS] [--seed N]

One that stands still in MPI_Init is fault.watchdog's. One behind the last word of its watchdog is its launcher's to find: all other
ranks have ended, and the results are there; it is counted as `late`."""
import glob
import os
import random
import re
import shutil
import signal
import time

import bagpipe_test
from bagpipe_test import kill_all, read_json
from fault_test import KINDS, KindsOfJob, is_alive, send

STOPS, SEED = bagpipe_test.take(runs=4, seed=1)
SECONDS = 3  # of silence
LIMIT = 15 * SECONDS + 60  # a start may take ten times as long, the ranks that wait for rank 0 half as much more, a busy machine what it likes
WORDS = {rank: re.compile(rf"bagpipe: error\[75\]: no (progress for \d+ s: rank {rank} on host "
                          rf"{'|word from rank 0 on host ' if rank == 0 else ''})") for rank in (0, 1)}


def datagram_sockets():
    with open("/proc/net/udp", encoding="ascii") as file:
        return {f"socket:[{line.split()[9]}]" for line in file.readlines()[1:]}


def is_watched(pid):
    """Has it the socket of its watchdog? It is made as soon as MPI has begun."""
    known, own = datagram_sockets(), set()
    for path in glob.glob(f"/proc/{pid}/fd/*"):
        try:
            own.add(os.readlink(path))
        except OSError:
            pass  # closed meanwhile
    return bool(own & known)


class RandomStops(KindsOfJob):
    def setUp(self):
        self.draw = random.Random(SEED)
        self.count = dict(named=0, faster=0, late=0, wrong=0)

    def begin(self, kind, name):
        """A start whose rank, to be stopped, is watched: None, if it was over before."""
        rank, start = self.draw.randrange(2), self.launch(kind, name)
        while start.process.poll() is None:
            pids = start.pids()
            if len(pids) == 2 and is_watched(pids[rank]):
                return start, rank, pids
            time.sleep(0.002)
        return start, rank, []

    def ends_late(self, start, name, pids, rank):
        """All but the stopped one have gone, and the job is done."""
        record = read_json(self.at(name), "run.json") if os.path.exists(self.at(name + "/run.json")) else {}
        return (record.get("exit") or {}).get("state") == "finished" and not is_alive(pids[1 - rank])

    def stop_one(self, kind, longest):
        name = f"{kind}-{sum(self.count.values())}"
        start, rank, pids = self.begin(kind, name)
        wait = self.draw.uniform(0, 1) ** 2 * longest  # more of them early
        time.sleep(wait)
        if not pids or start.process.poll() is not None or not send(pids[rank], signal.SIGSTOP):
            start.wait()
            return "faster"
        begun = time.monotonic()
        while start.process.poll() is None and time.monotonic() - begun < LIMIT and not (
                time.monotonic() - begun > 3 * SECONDS and self.ends_late(start, name, pids, rank)):
            time.sleep(0.05)
        status = start.process.poll()
        if status is None:
            late = self.ends_late(start, name, pids, rank)
            kill_all(start.process)
            start.process.wait()
            if late:
                return "late"
        elif status == 75 and WORDS[rank].search(start.err):
            shutil.rmtree(self.at(name), ignore_errors=True)
            return "named"
        elif status == 0:
            return "faster"
        print(f"rank {rank} of {kind}, {wait:.3f} s after its watchdog began, seed {SEED}: status {status} after "
              f"{time.monotonic() - begun:.0f} s\n{start}", flush=True)
        return "wrong"

    def test_a_rank_that_stands_still_is_named(self):
        kinds, longest = ("train", "score", "ensemble", "pipeline"), {}
        for kind in kinds:
            KINDS[kind] = (KINDS[kind][0], KINDS[kind][1], KINDS[kind][2] + (f"watchdog.seconds={SECONDS}",))
        begun = time.monotonic()
        for k in range(STOPS):
            kind = kinds[k % len(kinds)]
            if kind not in longest:
                before = time.monotonic()
                self.undisturbed_of(kind)
                longest[kind] = time.monotonic() - before
            self.count[self.stop_one(kind, longest[kind])] += 1
        print(", ".join(f"{v} {k}" for k, v in self.count.items()) + f"; seed {SEED}, {time.monotonic() - begun:.0f} s", flush=True)
        self.assertEqual(self.count["wrong"], 0)


if __name__ == "__main__":
    bagpipe_test.main()
