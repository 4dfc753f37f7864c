"""A job that sleeps at a commit while another job takes its run over and finishes it: woken up, it says so, and touches no file.

    test_lost_owner.py --bin FOLDER [--all]

Without --all a score is stopped at every commit, and a generation and a study at some."""
import glob
import json
import os
import shutil
import signal
import time

import bagpipe_test
from fault_test import KINDS, KindsOfJob, leftovers

ALL, = bagpipe_test.take(all=False)
KINDS.update({"texts": ("generate", 0, ()), "study": ("uncertainty", 0, ())})
# before the lock is looked at, and between that and the rename
POINTS = ("base.commit", "base.place")
COMMITS = {"score1": range(1, 30), "texts": range(4, 30, 2), "study": range(5, 200, 16)}
SECONDS = 60 * bagpipe_test.SLOWER  # in which a start reaches any commit, many times over


class LostOwner(KindsOfJob):
    def state(self, process):
        try:
            with open(f"/proc/{process.pid}/stat", encoding="ascii", errors="replace") as file:
                return file.read().rsplit(")", 1)[1].split()[0]
        except OSError:
            return "X"

    def stopped_at(self, kind, run, point, number):
        """A job that sleeps at its commit of that number; None: it has fewer, and ended."""
        start = self.launch(kind, run, {"BP_FAULT": f"{point}:{number}@0=stop"})
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            if self.state(start.process) == "T":
                return start
            if start.process.poll() is not None:
                self.assertEqual(start.wait(), 0, str(start))
                return None
            time.sleep(0.02)
        self.fail(f"it neither stops nor ends: {start}")

    def snapshot(self, run):
        """Every file with its content and the moment of its last change, and every folder; not the lock, which the test removed."""
        found = {}
        for at, folders, files in os.walk(self.at(run)):
            folders[:] = [name for name in folders if name != "lock"]
            found.update((os.path.join(at, name), None) for name in folders)
            for name in files:
                path = os.path.join(at, name)
                with open(path, "rb") as file:
                    found[path] = (os.stat(path).st_mtime_ns, file.read())
        return found

    def is_finished(self, run):
        try:
            with open(self.at(run + "/run.json"), encoding="utf-8") as file:
                return json.load(file)["exit"]["state"] == "finished"
        except FileNotFoundError:
            return False

    def check(self, kind, point, number):
        """False: the job has fewer commits."""
        run = f"{kind}-{point}-{number}"
        start = self.stopped_at(kind, run, point, number)
        if start is None:
            return False
        self.addCleanup(start.process.kill)
        finished = self.is_finished(run)
        if finished and point == "base.commit":  # of the lock, which is let go last: what goes with the end has gone
            self.assertEqual(glob.glob(self.at(run + "/*/parts")), [])
        for lock in glob.glob(self.at(run + "/**/lock"), recursive=True):  # those of runs in it, too
            shutil.rmtree(lock)
        self.expect_end(kind, run)
        before = self.snapshot(run)
        os.kill(start.process.pid, signal.SIGCONT)
        status = start.wait()
        after = self.snapshot(run)
        self.assertEqual(sorted(path for path in before.keys() | after.keys() if before.get(path, 0) != after.get(path, 0)), [],
                         f"changed by the owner that lost its run\n{start}")
        self.assertEqual(leftovers(self.at(run)), [])
        self.assertEqual(status, 0 if finished else 69, str(start))
        if not finished:
            self.assert_error(start.result(), 69, "[lock.lost]")
        return True

    def test_owner_that_lost_its_run_leaves_nothing_behind(self):
        for kind in COMMITS:
            self.undisturbed_of(kind)
            for point in POINTS:
                count = 0
                for number in COMMITS[kind] if not ALL else range(1, 1000):
                    with self.subTest(kind, point=point, number=number):
                        if not self.check(kind, point, number):
                            break
                        count += 1
                print(f"{kind}: lost at {count} of its commits, {point}", flush=True)
                self.assertGreater(count, 2)


if __name__ == "__main__":
    bagpipe_test.main()
