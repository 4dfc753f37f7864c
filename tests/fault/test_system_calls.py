"""SQLite's method on whole jobs: the n-th system call that changes the run folder, or the n-th allocation, kills the job or
fails, for n = 1, 2, ... until a job comes through (allocations: bagpipe's, which jansson's are part of; HDF5 does not live through all of its own). Whatever n, the job dies or says what failed in one line, nothing that was
announced is lost, and the next start ends as an undisturbed job does.

    test_system_calls.py --bin FOLDER --shim libbp_shim.so [--all]   by default a few n of each sweep; --all is every n"""
import os
import shutil

import bagpipe_test
from bagpipe_test import steps
from fault_test import KINDS, KindsOfJob, announced

ALL, SHIM = bagpipe_test.take(all=False, shim=None)
SAMPLES = 2  # of a sweep that is not whole; of one on two ranks, which starts slower, one
KILLED = (137, -9)


class Calls(KindsOfJob):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.totals = {}

    def shimmed(self, kind, name, action, n, rank, calls):
        """A start whose n-th call is hit; whether it was, and its status."""
        env = {"LD_PRELOAD": SHIM, "BP_SHIM": f"{action}:{n}@{rank}", "BP_SHIM_FIRED": self.at("fired"), "BP_SHIM_CALLS": calls,
               "BP_SHIM_COUNT": self.at("count.txt"),
               "OMPI_MCA_odls_base_sigkill_timeout": "0" if action == "kill" else "2"}
        if "malloc" not in calls:
            env["BP_SHIM_PREFIX"] = self.at(name)
        if os.path.exists(self.at("fired")):
            os.remove(self.at("fired"))
        start = self.launch(kind, name, env)
        status = start.wait()
        self.assertIsNotNone(status, f"hangs\n{start}")
        return start, status, os.path.exists(self.at("fired"))

    def check_reported(self, start, status, statuses):
        """It came through, warned or not; or one line says what failed, with the status."""
        self.assertIn(status, (0,) + statuses, str(start))
        lines = [line for line in start.err.splitlines() if line.startswith("bagpipe: error")]
        self.assertEqual(len(lines), 0 if status == 0 else 1, str(start))
        if status != 0:
            self.assertTrue(lines[0].startswith(f"bagpipe: error[{status}]: "), str(start))

    def check_hit(self, kind, action, n, rank, calls, statuses):
        """False: there is no n-th call."""
        name = f"{kind}-{action}-{n}-{rank}"
        start, status, fired = self.shimmed(kind, name, action, n, rank, calls)
        where = open_text(self.at("fired")) if fired else ""
        with self.subTest(kind=kind, action=action, n=n, rank=rank, call=where):
            if not fired:
                self.assertEqual(status, 0, str(start))
            elif action == "kill":
                self.assertIn(status, KILLED, str(start))
            else:
                self.check_reported(start, status, statuses)
            if kind.startswith("short"):
                newest = int(steps(self.at(name))[-1][5:]) if steps(self.at(name)) else 0
                self.assertGreaterEqual(newest, announced(self.at(name), start.out), str(start))
            self.expect_end(kind, name)
        shutil.rmtree(self.at(name), ignore_errors=True)
        return fired

    def numbers(self, kind, action, rank, calls):
        """Every n, or a few of them from the first to the last."""
        if ALL:
            yield from range(1, 100000)  # the sweep ends it
        self.shimmed(kind, "count", action, 10**9, rank, calls)
        total = int(open_text(self.at("count.txt")))
        shutil.rmtree(self.at("count"))
        samples = SAMPLES if KINDS[kind][1] == 0 else 1
        for k in range(samples):
            yield 1 + (total - 1) * (2 * k + 1) // (2 * samples)

    def sweep(self, kind, action, rank=0, calls="", statuses=(73, 74)):
        if "malloc" in calls and bagpipe_test.SANITIZED:
            self.skipTest("the sanitizer's malloc is in the program: no library takes its place")
        self.undisturbed_of(kind)
        count = 0
        for n in self.numbers(kind, action, rank, calls):
            hit = self.check_hit(kind, action, n, rank, calls, statuses)
            while not hit and not ALL and n > 1:  # of several ranks one may have had more of the work when its calls were counted
                n //= 2
                hit = self.check_hit(kind, action, n, rank, calls, statuses)
            if not hit:
                break
            count += 1
        print(f"{kind} {action} {calls or 'all calls'} rank {rank}: {count} hit", flush=True)
        self.assertGreater(count, 0)


    def test_training_killed(self):
        self.sweep("short1", "kill")

    def test_training_on_two_ranks_killed(self):
        self.sweep("short2", "kill")

    def test_training_without_space(self):
        self.sweep("short1", "enospc")

    def test_training_on_two_ranks_without_space(self):
        self.sweep("short2", "enospc")

    def test_training_over_quota(self):
        self.sweep("short1", "edquot", calls="write,open,mkdir")

    def test_training_on_a_failing_disk(self):
        self.sweep("short1", "eio")

    def test_half_a_write_is_followed_by_the_rest(self):
        self.sweep("short1", "short", calls="write", statuses=())

    def test_interrupted_calls(self):
        self.sweep("short1", "eintr", calls="write,open")

    def test_scoring_killed(self):
        self.sweep("score1", "kill")

    def test_second_scoring_rank_killed(self):
        self.sweep("score", "kill", rank=1)

    def test_scoring_without_space(self):
        self.sweep("score1", "enospc")

    def test_training_without_memory(self):
        self.sweep("short1", "enomem", calls="malloc@bagpipe", statuses=(71,))

    def test_second_rank_without_memory(self):
        self.sweep("short2", "enomem", rank=1, calls="malloc@bagpipe", statuses=(71,))

    def test_scoring_without_memory(self):
        self.sweep("score1", "enomem", calls="malloc@bagpipe", statuses=(71,))


def open_text(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().strip()


if __name__ == "__main__":
    bagpipe_test.main()
