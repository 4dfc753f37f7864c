"""A rank that stands still is named with its host, stacks are written, the job ends with 75, and the same command goes on to
the undisturbed result. --all: every kind of job and standstill."""
import contextlib
import glob
import json
import os
import re
import signal
import socket
import time
import unittest

import bagpipe_test
from fault_test import HANG, KINDS, KindsOfJob, is_alive, send, wait_gone

(ALL,) = bagpipe_test.take(all=False)
SECONDS = 6  # of silence; a busy machine may keep a process waiting for longer than fewer
KEY = f"watchdog.seconds={SECONDS}"
LINE = re.compile(r"^bagpipe: error\[75\]: \D+ (\d+) s: rank (\d+) on host (\S+) \((silent, )?phase (\w+), step (\d+), \w+ collective \w+\): "
                  r"at (\S+); .* (\S+)/stacks; .* \[run\.hung\]$", re.M)
HOST = socket.gethostname()

for job in ("train", "pipeline", "ensemble", "score"):
    KINDS[job] = (KINDS[job][0], KINDS[job][1], KINDS[job][2] + (KEY,))
KINDS["dedicated"] = ("pretrain", 3, ("mesh.data=2", "mesh.coordinator=dedicated", KEY))
KINDS["four"] = ("pretrain", 4, ("mesh.data=2", "mesh.pipeline=1", "mesh.tensor=2", KEY))
KINDS["endless"] = ("pretrain", 2, ("mesh.data=2", "train.steps=1000000", "checkpoint.every=1000000", "train.valid_every=0",
                                    "train.log_every=100", KEY))


class Standstill(KindsOfJob):
    def setUp(self):
        self.name = "run-" + self.id().rsplit(".", 1)[1]
        self.folder = self.at(self.name)

    def read(self, *path):
        with open(os.path.join(self.folder, *path), encoding="utf-8") as file:
            return file.read()

    def events(self, name):
        return bagpipe_test.events(self.folder, name)

    def wait_for(self, what, start):
        end = time.monotonic() + HANG
        while not what():
            self.assertIsNone(start.process.poll(), str(start))
            self.assertLess(time.monotonic(), end, str(start))
            time.sleep(0.02)

    def wait_for_steps(self, start, starts=1):
        """The start number `starts` on this folder trains: all ranks have been through its first steps."""
        def trains():
            return (os.path.exists(os.path.join(self.folder, "events.jsonl")) and len(self.events("started")) == starts and
                    self.read("metrics.jsonl") != "")  # cut back, here to nothing, before the event
        self.wait_for(trains, start)

    def has_thread(self, pid):
        """Does its watchdog run?"""
        names = []
        for path in glob.glob(f"/proc/{pid}/task/*/comm"):
            with contextlib.suppress(OSError), open(path, encoding="ascii") as file:
                names.append(file.read().strip())
        return "watchdog" in names

    def check_named(self, start, rank, phase, silent):
        """The line, the status, the event, the exit state, the and the stacks."""
        status = start.wait()
        self.assertEqual(status, 75, str(start))
        found = LINE.findall(start.err)
        self.assertEqual(len(found), 1, str(start))
        seconds, named, host, word, at_phase, _, run, stacks = found[0]
        if silent:  # its last heartbeat had it, and the phase may have been another one after that
            phase = at_phase
        self.assertEqual((int(named), host, word != "", at_phase, run, stacks),
                         (rank, HOST, silent, phase, self.folder, self.folder), str(start))
        self.assertGreaterEqual(int(seconds), SECONDS)
        events = self.events("no_progress")
        self.assertEqual([(e["rank"], e["host"], e["phase"]) for e in events], [(rank, HOST, phase)])
        state = json.loads(self.read("run.json"))["exit"]
        self.assertEqual((state["state"], state["code"]), ("stopped", 75), state)
        self.assertIn(f"rank {rank} on host {HOST}", state["message"])
        # and where rank 0 could not write that down
        self.assertRegex(self.read("last_words.txt"), rf"^\S+ start \d+ status 75: .*: rank {rank} on host ")
        for other in range(start.ranks):
            if other != rank:
                self.assertIn("bp_", self.read("stacks", f"rank-{other}.txt"))
        return self.read("stacks", f"rank-{rank}.txt")

    def check_line(self, start, rank):
        """Of a rank that is silent before the run folder is there, or just after."""
        self.assert_error(start.result(), 75, "[run.hung]", f"rank {rank} on host {HOST} (silent")

    def absent(self, rank):
        """Nobody knows where it is yet, and no run folder is there."""
        start = self.start("pretrain", self.name, "mesh.data=2", "watchdog.seconds=1", env={"BP_FAULT": f"init.after_mpi@{rank}=stop"})
        self.assert_error(start.result(), 75, "[run.hung]", f"rank {rank} on host unknown")
        self.assertFalse(os.path.exists(self.folder))

    def stopped_early(self, rank, point):
        self.check_line(self.start("pretrain", self.name, "mesh.data=2", KEY, env={"BP_FAULT": f"{point}@{rank}=stop"}), rank)

    def fault(self, kind, point, rank, phase, action):
        self.undisturbed_of(kind)  # what a score job scores with is made first
        start = self.launch(kind, self.name, env={"BP_FAULT": f"{point}@{rank}={action}"})
        stack = self.check_named(start, rank, phase, action == "stop")
        self.assertIn("state T (stopped)" if action == "stop" else "bp_fault", stack)
        self.expect_end(kind, self.name)


class Watchdog(Standstill):
    def test_rank_0_stopped_in_a_checkpoint_is_named_by_rank_1(self):
        self.fault("train", "ckpt.manifest_half:4", 0, "checkpoint", "stop")

    def test_rank_that_computes_without_an_end(self):
        self.fault("train", "bwd.mid:40", 1, "step", "spin")
        self.assertIn("bp_engine_step", self.read("stacks", "rank-1.txt"))

    def test_rank_stopped_as_soon_as_all_watch(self):
        """Its thread may not have had its first turn: it is missed all the same."""
        start = self.launch("endless", self.name)
        self.wait_for(lambda: len(start.pids()) == 2 and self.has_thread(start.pids()[0]), start)
        send(start.pids()[1], signal.SIGSTOP)
        self.check_line(start, 1)

    def test_rank_that_does_not_come_to_the_start(self):
        self.absent(1)

    def test_rank_stopped_before_the_ranks_met(self):
        """Inside of MPI_Init, or before: the other one ends the job, and names what it finds on its host."""
        for victim, others in ((1, 0), (0, 1)):
            start = self.start("pretrain", f"{self.name}-{victim}", "mesh.data=2", "watchdog.seconds=0.3")
            self.wait_for(lambda start=start: len(start.pids()) == 2 and all(self.is_loaded(pid) for pid in start.pids()), start)
            pid = start.pids()[victim]
            self.assertTrue(send(pid, signal.SIGSTOP))
            self.assertEqual(start.wait(), 75, str(start))
            self.assertIn(f"rank {others} of 2 on host {HOST} waits for MPI to begin: rank {victim} (process {pid} on this host) is stopped; ",
                          start.err)
            self.assertEqual(start.err.count("[mpi.not_met]"), 1, str(start))

    @staticmethod
    def is_loaded(pid):
        """Launchers wait for a rank until it has become the program."""
        try:
            return os.readlink(f"/proc/{pid}/exe").endswith("/bagpipe")
        except OSError:
            return False

    def test_rank_0_stopped_while_the_run_is_opened(self):
        self.stopped_early(0, "lock.acquired")

    def test_ranks_leave_when_mpirun_is_killed(self):
        start = self.launch("endless", self.name)
        self.wait_for_steps(start)
        ranks = start.pids()
        self.assertEqual(len(ranks), 2)
        send(start.process.pid, signal.SIGKILL)
        start.process.wait()
        self.assertTrue(wait_gone(ranks))
        self.assertEqual(len(self.events("no_launcher")), 1)

    @unittest.skipIf(bagpipe_test.SANITIZED, "the sanitizer takes fatal signals itself")
    def test_fatal_signal_leaves_a_stack(self):
        start = self.launch("endless", self.name)
        self.wait_for_steps(start)
        send(start.pids()[1], signal.SIGSEGV)
        self.assert_error(start.result(), 128 + signal.SIGSEGV, "[program.crashed]", "SEGV", f"rank 1 on host {HOST} (phase step, step ",
                          "/stacks/signal-rank-1.txt")
        self.assertIn("main", self.read("stacks", "signal-rank-1.txt"))

    def test_USR2_leaves_stacks(self):
        start = self.launch("endless", self.name)
        self.wait_for_steps(start)
        send(start.process.pid, signal.SIGUSR2)  # mpirun hands it on: stacks, and nothing else
        self.wait_for(lambda: os.path.exists(os.path.join(self.folder, "stacks", "rank-0.txt")), start)
        send(start.process.pid, signal.SIGUSR1)
        self.assertEqual(start.wait(), 75, str(start))
        self.assertNotIn("[run.hung]", start.err)


class Longer(Standstill):
    def test_rank_that_never_leaves_MPI(self):
        self.undisturbed_of("train")
        start = self.launch("train", self.name, env={"BP_FAULT": "finalize@1=stop"})
        self.check_line(start, 1)
        self.assertEqual(json.loads(self.read("run.json"))["exit"]["state"], "finished")
        self.expect_end("train", self.name)

    def test_rank_of_a_score_job(self):
        self.fault("score", "work.unit_done:2", 1, "score", "spin")

    def test_rank_of_a_score_job_as_its_first_part_begins(self):
        self.undisturbed_of("score")
        self.check_line(self.launch("score", self.name, env={"BP_FAULT": "work.part:1@1=stop"}), 1)
        self.expect_end("score", self.name)

    def test_rank_0_does_not_come_to_the_start(self):
        self.absent(0)

    def test_rank_stopped_while_the_corpus_is_opened(self):
        self.stopped_early(1, "corpus.open")

    def test_rank_stopped_from_outside(self):
        start = self.launch("endless", self.name)
        self.wait_for_steps(start)
        send(start.pids()[1], signal.SIGSTOP)
        self.assertIn("state T (stopped)", self.check_named(start, 1, "step", True))

    def test_rank_0_stopped_in_a_step(self):
        self.fault("train", "step.begin:20", 0, "step", "stop")

    def test_rank_0_computes_without_an_end_in_a_checkpoint(self):
        self.fault("train", "ckpt.manifest_half:4", 0, "checkpoint", "spin")

    def test_writer_behind_the_steps_that_never_ends_is_found_when_it_is_waited_for(self):
        self.undisturbed_of("train")
        start = self.launch("train", self.name, env={"BP_FAULT": "ckpt.shard_close:2@0=spin"})
        self.assertIn("bp_checkpoint_finish", self.check_named(start, 0, "checkpoint", False))
        self.expect_end("train", self.name)

    def test_dedicated_coordinator_names_a_rank(self):
        self.fault("dedicated", "step.begin:20", 2, "step", "stop")

    def test_dedicated_coordinator_is_named(self):
        self.fault("dedicated", "ckpt.manifest_half:4", 0, "checkpoint", "stop")

    def test_stage_of_a_pipeline(self):
        self.fault("pipeline", "fwd.mid:40", 1, "step", "spin")

    def test_one_of_four(self):
        self.fault("four", "allreduce.before:20", 2, "step", "stop")

    def test_member_of_an_ensemble(self):
        self.fault("ensemble", "step.begin:5", 1, "step", "stop")

    def test_job_that_sleeps_as_a_whole_goes_on(self):
        """As the batch system suspends it: ranks first, and the launcher."""
        start = self.launch("endless", self.name)
        self.wait_for_steps(start)
        ranks = start.pids()
        for pid in ranks:
            send(pid, signal.SIGSTOP)
        time.sleep(3 * SECONDS)
        for pid in ranks:
            send(pid, signal.SIGCONT)
        time.sleep(2 * SECONDS)
        self.assertTrue(all(is_alive(pid) for pid in ranks), str(start))
        send(start.process.pid, signal.SIGUSR1)
        self.assertEqual(start.wait(), 75, str(start))
        self.assertEqual(self.events("no_progress"), [])

    def test_slow_rank_is_named_and_lives(self):
        start = self.launch("endless", self.name, env={"BP_FAULT": "opt.before:1+@1=delay0.05"})
        self.wait_for(lambda: os.path.exists(os.path.join(self.folder, "events.jsonl")) and self.events("slow_rank"), start)
        event = self.events("slow_rank")[0]
        self.assertEqual((event["rank"], event["host"]), (1, HOST))
        self.assertGreater(event["ratio"], 1.5)
        send(start.process.pid, signal.SIGUSR1)
        self.assertEqual(start.wait(), 75, str(start))
        self.assertEqual(json.loads(self.read("status.json"))["events"]["slow_rank"], 1)

    def test_it_may_be_turned_off(self):
        KINDS["off"] = ("pretrain", 2, ("mesh.data=2", "watchdog.seconds=0"))
        start = self.launch("off", self.name, env={"BP_FAULT": "step.begin:20@1=stop"})
        self.assertIsNone(start.wait(4 * SECONDS))
        self.assertNotIn("[run.hung]", start.err)


if not ALL:
    del Longer

if __name__ == "__main__":
    bagpipe_test.main()
