"""kill -9 of a random process of a job at a random moment, again and again until the job is done; then the next one.

    test_random_kills.py --bin FOLDER [--runs KILLS] [--stops PERCENT] [--seed N] [--jobs NAMES] [--append FILE]

Jobs are trainings (in one stage, in stages one after another and interleaved, with checkpoints written behind the steps and
not), scoring, ensembles and uncertainty studies, in turn, or those of NAMES, with commas; each start draws one of the job's
meshes, whose results must not differ. Kills fall on a rank, on all, or on mpirun, at any moment of a start: while MPI starts,
while a checkpoint is read, in a step, in a commit. Besides, about PERCENT of so many starts have a rank stopped for good
(SIGSTOP) in a step, which the watchdog has to end. The last line counts kills, hangs (a start that did not end after its
kill), lost commits (a step that was printed or noted as committed, and is not there at the next start) and jobs that ended
with other bits, metrics or links than one that was left alone, or with temporary names left over. "stuck" counts mpirun
alone: Open MPI 4.1's stands still at its own end (in PMIx_server_finalize) when a rank dies while it shakes hands; no rank
lives then, and it is ended here."""
import json
import os
import random
import shutil
import signal
import time

import bagpipe_test
from bagpipe_test import kill_all, steps
from fault_test import HANG, KINDS, KindsOfJob, announced, is_alive, leftovers, send, wait_gone

WATCHDOG = 10  # seconds
STUCK = 30.0  # seconds that mpirun may be without ranks, on a busy machine too
KILLS, STOPS, SEED, JOBS, APPEND = bagpipe_test.take(runs=10, stops=0.0, seed=1, jobs="train", append=None)

STAGES = ("model.layers=4", "mesh.micro_batch=1", "train.steps=60")
MANY = ("ensemble.members=3", "ensemble.kind=both", "train.steps=24")
WAYS = {  # job, keys, and meshes (ranks, 0: without mpirun; keys), the first one for the job that is left alone
    "train": ("pretrain", (), [(2, ("mesh.data=2",)), (0, ()), (4, ("mesh.data=4",))]),
    "waiting": ("pretrain", ("checkpoint.async=no",), [(2, ("mesh.data=2",)), (0, ())]),
    "pipeline": ("pretrain", STAGES, [(2, ("mesh.pipeline=2",)), (4, ("mesh.pipeline=2", "mesh.data=2"))]),
    "interleaved": ("pretrain", STAGES + ("mesh.schedule=interleaved", "mesh.chunks=2"),
                    [(2, ("mesh.pipeline=2",)), (4, ("mesh.pipeline=2", "mesh.data=2"))]),
    "score": ("score", ("score.stride=1", "score.tokens=yes"), [(2, ()), (0, ()), (3, ()), (2, ("mesh.pipeline=2",))]),
    "ensemble": ("ensemble", MANY, [(2, ("mesh.members=2",)), (0, ()), (3, ("mesh.members=3",))]),
    "uncertainty": ("uncertainty", (), [(2, ("mesh.data=2",)), (0, ()), (3, ("mesh.coordinator=dedicated",))]),
}


class RandomKills(KindsOfJob):
    STEPS, EVERY, VALID = 200, 2, 50
    LONGEST = 1.5  # seconds that a start may live: one that is left alone takes as long

    def setUp(self):
        self.draw = random.Random(SEED)
        self.count = dict(kills=0, starts=0, jobs=0, hangs=0, stuck=0, lost=0, wrong=0, refused=0, rank=0, all=0, mpirun=0, stop=0)

    def complain(self, what, start):
        print(f"{what}: kill {self.count['kills']}, seed {SEED}\n{start}", flush=True)

    def hit(self, start):
        """What is to be killed after a while; the kind, or None where the job was faster."""
        kind = self.draw.choices(["rank", "all", "mpirun", "stop"], [80, 10, 10, STOPS])[0]
        time.sleep(self.draw.uniform(0.02, self.LONGEST))
        if kind == "stop" and start.ranks > 1:
            return self.stop(start)
        pids = start.pids()
        chosen = [self.draw.choice(pids)] if kind == "rank" and pids else pids if kind == "all" else [start.process.pid]
        if start.process.poll() is not None:
            return None, pids
        if not chosen:  # no rank has been started yet
            kind, chosen = "mpirun", [start.process.pid]
        self.count["kills"] += 1
        self.count[kind] += 1
        for pid in chosen:
            send(pid, signal.SIGKILL)
        return kind, pids

    def stop(self, start):
        """SIGSTOP to a rank that trains: the watchdog ends the job."""
        while start.process.poll() is None and "step " not in start.out:
            time.sleep(0.02)
        pids = start.pids()
        if start.process.poll() is not None or len(pids) < 2:
            return None, pids
        self.count["stop"] += 1
        send(self.draw.choice(pids), signal.SIGSTOP)
        status = self.end(start)
        if status == 0:  # it stood before the signal came
            return None, pids
        if status != 75:
            self.count["hangs"] += 1
            self.complain(f"status {status} of a job with a rank that was stopped", start)
        return "stop", pids

    def end(self, start):
        """The exit status; None: it hangs. A launcher that outlives all its ranks for long does nothing any more."""
        begun = alone = time.monotonic()
        while start.process.poll() is None:
            now = time.monotonic()
            if any(is_alive(pid) for pid in start.pids()):
                alone = now
            if now - alone > STUCK or now - begun > HANG:
                self.count["stuck"] += now - alone > STUCK
                kill_all(start.process)
                start.process.wait()
                return start.process.returncode if now - alone > STUCK else None
            time.sleep(0.02)
        return start.process.returncode

    def begin(self, kind, name, mesh, env=None):
        job, keys, _ = WAYS[kind]
        ranks, on = mesh
        return self.start(job, name, *keys, *self.keys_of(job), *on, f"watchdog.seconds={WATCHDOG}", ranks=ranks, env=env)

    def results(self, kind, name):
        """All of a finished job that must not depend on what happened to it, and on its mesh."""
        KINDS[kind] = (WAYS[kind][0], 0, ())
        return self.outcome(kind, name)

    def check_start(self, folder, start, known):
        """After a start has gone: nothing that was announced is missing."""
        now = max(known, announced(folder, start.out))
        newest = int(steps(folder)[-1][5:]) if steps(folder) else now if os.path.isdir(f"{folder}/members") else 0
        if newest < now:
            self.count["lost"] += 1
            self.complain(f"lost: {now} was announced, {newest} is there", start)
        for line in start.out.splitlines():
            if line.startswith("going on from step ") and int(line.split()[-1]) < known:
                self.count["lost"] += 1
                self.complain(f"lost: {known} was announced", start)
        return now

    def run_killed(self, kind, name, undisturbed):
        folder, known = self.at(name), 0
        self.count["jobs"] += 1
        while True:
            spare = self.count["kills"] >= KILLS  # the last training comes to its end in peace
            # Open MPI gives the ranks that are left 2 s to go; without, most of a start would be waiting
            gentle = self.draw.random() < 0.1
            start = self.begin(kind, name, self.draw.choice(WAYS[kind][2]), env={} if gentle else {"OMPI_MCA_odls_base_sigkill_timeout": "0"})
            self.count["starts"] += 1
            hit, pids = (None, start.pids()) if spare else self.hit(start)
            status = self.end(start)
            if status is None:
                self.count["hangs"] += 1
                self.complain(f"hang after {hit}", start)
            if not wait_gone(pids):
                self.count["hangs"] += 1
                self.complain(f"ranks that outlive {hit}", start)
                for pid in pids:
                    send(pid, signal.SIGKILL)
            known = self.check_start(folder, start, known)
            if status == 69:
                self.count["refused"] += 1  # ranks of a killed mpirun were still at it
            if status == 0:
                break
            if hit is None and status != 69:
                self.complain("failed without a kill", start)
                self.count["wrong"] += 1
                break
        if status == 0 and (self.results(kind, name) != undisturbed or leftovers(folder)):
            self.count["wrong"] += 1
            self.complain(f"other results, or leftovers {leftovers(folder)}", start)
        shutil.rmtree(folder)

    def test_no_kill_costs_more_than_the_work_since_the_last_commit(self):
        begun = time.monotonic()
        kinds, undisturbed = list(WAYS) if JOBS == "all" else JOBS.split(","), {}
        while self.count["kills"] < KILLS:
            kind = kinds[self.count["jobs"] % len(kinds)]
            if kind not in undisturbed:
                start = self.begin(kind, "whole-" + kind, WAYS[kind][2][0])
                self.assertEqual(start.wait(), 0, str(start))
                undisturbed[kind] = self.results(kind, "whole-" + kind)
            self.run_killed(kind, f"killed-{self.count['jobs']}", undisturbed[kind])
        line = ", ".join(f"{v} {k}" for k, v in self.count.items()) + f"; seed {SEED}, {time.monotonic() - begun:.0f} s"
        print(line, flush=True)
        if APPEND:
            with open(APPEND, "a", encoding="utf-8") as file:
                file.write(line + "\n")
        self.assertEqual((self.count["hangs"], self.count["lost"], self.count["wrong"]), (0, 0, 0))


if __name__ == "__main__":
    bagpipe_test.main()
