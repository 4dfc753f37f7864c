"""Every named point of src/base/fault.c, on each of two ranks: the rank dies there, or the operation fails there (where it can;
else it takes long). The job dies or says what failed, with the status that is documented; the next start ends with what an
undisturbed run has, and leaves nothing behind.

    test_points.py --bin FOLDER [--all]     by default one case of each kind; --all is the whole matrix, case by case"""
import os
import re
import signal
import time

import bagpipe_test
from fault_test import KindsOfJob, Start

(ALL,) = bagpipe_test.take(all=False)


class Point:
    """ranks: those that come by it. eio: the status when it fails there; None: it can't fail, so it takes long; 0: a warning,
    or, where it is not reported, another way that does as well."""

    def __init__(self, name, call=1, ranks=(0, 1), eio=None, job="train", also="", reported=True):
        self.name, self.call, self.ranks, self.eio, self.job, self.also, self.reported = name, call, ranks, eio, job, also, reported


ROOT = (0,)
FAILURES = ("[fault.injected]", "[file.io_error]", "[file.no_space]", "[checkpoint.not_written]")  # a failed operation, or what came of it
POINTS = [
    Point("init.after_mpi"), Point("config.read", eio=74), Point("lock.acquired", ranks=ROOT, eio=74),
    Point("corpus.open", eio=74), Point("tok.load", 1, ROOT, 74), Point("step.begin", 6, eio=74), Point("fwd.mid", 11),
    Point("bwd.mid", 11), Point("allreduce.before", 6), Point("allreduce.after", 6), Point("opt.before", 6), Point("opt.after", 6),
    Point("step.end", 4), Point("ckpt.snapshot", 2, eio=74), Point("ckpt.mkdir_tmp", 2, ROOT, 73),
    Point("ckpt.share", eio=0, reported=False), Point("ckpt.shard_open", 2, ROOT, 73), Point("ckpt.shard_half", 50, ROOT, 74), Point("ckpt.shard_close", 2, ROOT, 74),
    Point("ckpt.fsync_file", 2, ROOT, 74), Point("ckpt.read_back", 2, ROOT, 74), Point("ckpt.verify", 2, ROOT, 74), Point("ckpt.manifest_half", 2, ROOT, 74),
    Point("ckpt.manifest_fsync", 2, ROOT, 74), Point("ckpt.fence_check", 2, ROOT, 74), Point("ckpt.rename", 2, ROOT, 74),
    Point("ckpt.fsync_dir", 2, ROOT, 74), Point("ckpt.best", 1, ROOT, 0), Point("ckpt.prune_rename", 1, ROOT, 0),
    Point("ckpt.prune_unlink", 1, ROOT, 0), Point("metrics.append_half", 5, ROOT, 74), Point("exit.agree", 1, ROOT),
    Point("finalize"), Point("stop.flag", job="stop", also="step.begin:3@0=delay1.5,"),
    Point("pp.send", 9, job="pipeline"), Point("pp.recv", 9, job="pipeline"), Point("ens.member_done", 1, job="ensemble"),
    Point("work.unit_done", 2, job="score"), Point("work.part", 2, eio=74, job="score"), Point("work.merge", 1, ROOT, 74, job="score"),
]
QUICK = ["config.read@1=eio", "lock.acquired@0=kill", "corpus.open@1=eio", "allreduce.before@1=kill", "allreduce.after@0=kill", "ckpt.snapshot@1=eio",
         "ckpt.shard_close@0=kill", "ckpt.rename@0=kill", "ckpt.fsync_dir@0=eio", "ckpt.prune_unlink@0=eio",
         "metrics.append_half@0=kill", "finalize@1=kill", "stop.flag@1=kill", "pp.recv@1=kill", "work.unit_done@1=kill"]

class Points(KindsOfJob):
    def check_death(self, start, status, reached):
        """A killed rank: mpirun says 137. A rank that never comes by the point has nothing to die of."""
        self.assertEqual(status, 137 if reached else 0, str(start))

    def check_failure(self, start, status, point, reached):
        """One line that says what failed, from one rank; or a warning."""
        lines = [line for line in start.err.splitlines() if line.startswith("bagpipe: ")]
        expected = point.eio if reached else 0
        self.assertEqual(status, expected, str(start))
        if expected:
            self.assert_error(start.result(), expected)
            (line,) = start.result().lines("error")
            self.assertIn(bagpipe_test.IDENTIFIER.search(line)[0], FAILURES, str(start))
        elif reached and not point.reported:
            self.assertEqual(lines, [], str(start))
        elif reached:
            self.assertTrue(lines and all(line.startswith("bagpipe: warning: ") for line in lines), str(start))

    def check_case(self, point, rank, action):
        self.undisturbed_of(point.job)
        name = f"{point.name}-{rank}-{action}"
        word = {"delay": "delay0.3"}.get(action, action)
        also = point.also
        if point.name == "work.unit_done":  # the other rank is slow, so that this one gets a second unit
            also += f"{point.name}:1+@{1 - rank}=delay0.5,"
        env = {"BP_FAULT": f"{also}{point.name}:{point.call}@{rank}={word}"}
        if action == "kill":  # Open MPI gives the ranks that are left 2 s to go
            env["OMPI_MCA_odls_base_sigkill_timeout"] = "0"
        start = self.launch(point.job, name, env)
        if point.job == "stop":  # while rank 0 takes its time before a step
            while "step 2/" not in start.out and start.process.poll() is None:
                time.sleep(0.02)
            start.process.send_signal(signal.SIGUSR1)
        status = start.wait()
        self.assertIsNotNone(status, f"hangs\n{start}")
        reached = rank in point.ranks
        if action == "kill":
            self.check_death(start, status, reached)
        elif action == "eio":
            self.check_failure(start, status, point, reached)
        else:
            self.assertEqual(status, 75 if point.job == "stop" else 0, str(start))
        self.expect_end(point.job, name)

    def cases(self):
        for point in POINTS:
            for rank in (0, 1):
                for action in ("kill", "delay" if point.eio is None else "eio"):
                    if ALL or f"{point.name}@{rank}={action}" in QUICK:
                        yield point, rank, action

    def test_death_or_failure_at_any_point_costs_nothing_but_time(self):
        count = 0
        for point, rank, action in self.cases():
            with self.subTest(point=point.name, rank=rank, action=action):
                self.check_case(point, rank, action)
                count += 1
        self.assertTrue(ALL or count == len(QUICK))
        print(f"{count} cases at {len(POINTS)} points", flush=True)

    def test_table_knows_every_point(self):
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src", "base", "fault.c"), encoding="utf-8") as file:
            text = file.read()
        table = text[text.index("NAMES[] = {"):]
        names = re.findall(r'"([a-z_.]+)"', table[:table.index("NULL")])
        elsewhere = re.compile(r"base\.|count\.|math\.|mesh\.|store\.|text\.|train\.")  # by the tests of those folders
        self.assertEqual({point.name for point in POINTS}, {name for name in names if not elsewhere.match(name)})

    def test_unknown_name_is_64_and_says_so(self):
        start = self.launch("train", "unknown", {"BP_FAULT": "ckpt.nowhere=kill"})
        self.assert_error(start.result(), 64, "[fault.unknown]", "ckpt.nowhere=kill")

    def test_fault_in_a_slurm_job_is_refused(self):
        start = Start(self.at("slurm"), [bagpipe_test.program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('slurm-run')}"],
                      ranks=1, env={"BP_FAULT": "step.begin=kill", "SLURM_JOB_ID": "7"})
        self.assert_error(start.result(), 64, "[fault.not_allowed]")


if __name__ == "__main__":
    bagpipe_test.main()
