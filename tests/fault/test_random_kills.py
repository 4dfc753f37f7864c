"""kill -9 of a random process of a job at a random moment, again and again until the job is done; then the next one.

    test_random_kills.py --bin FOLDER [--runs KILLS] [--stops PERCENT] [--seed N] [--jobs NAMES] [--first JOB] [--seconds S] [--append FILE]

Jobs are those of every_job.WAYS, in turn (`--jobs all`), or those of NAMES, with commas: trainings of all families and in stages,
fine-tunings, scores of windows, tasks, candidates, states and neighbours, texts, ensembles, studies, comparisons. Each start draws one
of the job's meshes, whose results must not differ. Kills fall on a rank, on all, or on mpirun, at any moment of a start: while MPI
starts, while a checkpoint is read, in a step, in a commit. Besides, about PERCENT of so many starts of trainings have a rank stopped for
good (SIGSTOP) in a step, which the watchdog has to end. What is drawn for a job depends on the seed and its number: many kills may be
done in parts, of which each ends after about S seconds (`--seconds`), and the next begins with the job that the last line names
(`--first`). The last line counts kills, hangs (a start that did not end after its kill),
lost commits (a step that was printed or noted as committed, and is not there at the next start; a unit of work that
one start found done, and a later one does again) and jobs that ended with another result
than one that was left alone (every_job.whole_result: tensors, whole lines of metrics but for times, every other file), or with temporary
names left over. "stuck" counts mpirun alone: Open MPI 4.1's stands still at its own end (in PMIx_server_finalize) when a rank dies while
it shakes hands; no rank lives then, and it is ended here."""
import os
import random
import re
import shutil
import signal
import time

import bagpipe_test
from bagpipe_test import kill_all, steps
from every_job import WAYS, EveryJob, whole_result
from fault_test import HANG, announced, is_alive, leftovers, send, wait_gone

WATCHDOG = 10  # seconds
STUCK = 30.0  # seconds that mpirun may be without ranks, on a busy machine too
KILLS, STOPS, SEED, JOBS, FIRST, SECONDS, APPEND = bagpipe_test.take(runs=8, stops=0.0, seed=1, jobs="train,tune_bucket,score,task,generate",
                                                                     first=0, seconds=0.0, append=None)
NAMES = list(WAYS) if JOBS == "all" else JOBS.split(",")
MOST = max(2, 2 * KILLS // len(NAMES))  # kills of one job, so that all of them are hit


class RandomKills(EveryJob):
    STEPS, EVERY, VALID = 200, 2, 50

    def setUp(self):
        self.count = dict(kills=0, starts=0, jobs=0, hangs=0, stuck=0, lost=0, wrong=0, refused=0, rank=0, all=0, mpirun=0, stop=0)

    def complain(self, what, start):
        print(f"{what}: kill {self.count['kills']}, --first {self.number} --seed {SEED}\n{start}", flush=True)

    def hit(self, start, longest, trains):
        """What is to be killed after a while; the kind, or None where the job was faster."""
        kind = self.draw.choices(["rank", "all", "mpirun", "stop"], [80, 10, 10, STOPS if trains else 0])[0]
        time.sleep(self.draw.uniform(0.02, longest))
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

    def check_units(self, start, known):
        """Work units that a start of a score or generation found done, set after set: never fewer than the start before."""
        found = [int(done or 0) for done in re.findall(r"^(?:going on: (\d+) of|no work unit is done)", start.out, re.M)]
        if any(now < before for now, before in zip(found, known)):
            self.count["lost"] += 1
            self.complain(f"lost: {known} work units were done, {found} are", start)
        return found + known[len(found):]

    def started(self, kind, name, mesh, env=None):
        more = () if WAYS[kind][0].startswith("bagpipe-data") else (f"watchdog.seconds={WATCHDOG}",)
        return self.begin(kind, name, mesh, more, env)

    def run_killed(self, kind, name, undisturbed, longest):
        folder, known, units, before = self.at(name), 0, [], self.count["kills"]
        trains = WAYS[kind][0] in ("pretrain", "finetune")
        self.count["jobs"] += 1
        while True:
            # the last training comes to its end in peace
            spare = self.count["kills"] >= KILLS or self.count["kills"] - before >= MOST
            # Open MPI gives the ranks that are left 2 s to go; without, most of a start would be waiting
            gentle = self.draw.random() < 0.1
            start = self.started(kind, name, self.draw.choice(WAYS[kind][2]), {} if gentle else {"OMPI_MCA_odls_base_sigkill_timeout": "0"})
            self.count["starts"] += 1
            hit, pids = (None, start.pids()) if spare else self.hit(start, longest, trains)
            status = self.end(start)
            if status is None:
                self.count["hangs"] += 1
                self.complain(f"hang of {kind} after {hit}", start)
            if not wait_gone(pids):
                self.count["hangs"] += 1
                self.complain(f"ranks of {kind} that outlive {hit}", start)
                for pid in pids:
                    send(pid, signal.SIGKILL)
            known = self.check_start(folder, start, known)
            if WAYS[kind][0] in ("score", "generate"):
                units = self.check_units(start, units)
            if status == 69:
                self.count["refused"] += 1  # ranks of a killed mpirun were still at it
            if status == 0:
                break
            if hit is None and status != 69:
                self.complain(f"{kind} failed without a kill", start)
                self.count["wrong"] += 1
                break
        if status == 0:
            result = whole_result(folder)
            other = sorted(part for part in result.keys() | undisturbed.keys() if result.get(part) != undisturbed.get(part))
            if other or leftovers(folder):
                self.count["wrong"] += 1
                self.complain(f"{kind}: other results {other}, or leftovers {leftovers(folder)}", start)
        shutil.rmtree(folder, ignore_errors=True)

    def test_no_kill_costs_more_than_the_work_since_the_last_commit(self):
        begun, undisturbed, longest = time.monotonic(), {}, {}
        while self.count["kills"] < KILLS and (SECONDS <= 0 or time.monotonic() - begun < SECONDS):
            self.number = FIRST + self.count["jobs"]
            self.draw = random.Random(f"{SEED} {self.number}")
            kind = NAMES[self.number % len(NAMES)]
            if kind not in undisturbed:
                self.filled(WAYS[kind][1])  # inputs are made first
                before = time.monotonic()
                start = self.started(kind, "whole-" + kind, WAYS[kind][2][0])
                self.assertEqual(start.wait(), 0, str(start))
                longest[kind] = 0.9 * (time.monotonic() - before)
                undisturbed[kind] = whole_result(self.at("whole-" + kind))
            self.run_killed(kind, f"killed-{self.number}", undisturbed[kind], longest[kind])
            print(f"{self.number} {kind}: {self.count['kills']} kills, {time.monotonic() - begun:.0f} s", flush=True)
        line = ", ".join(f"{v} {k}" for k, v in self.count.items())
        line += f"; seed {SEED}, {time.monotonic() - begun:.0f} s, the next job is {FIRST + self.count['jobs']}"
        print(line, flush=True)
        if APPEND:
            with open(APPEND, "a", encoding="utf-8") as file:
                file.write(line + "\n")
        self.assertEqual((self.count["hangs"], self.count["lost"], self.count["wrong"]), (0, 0, 0))


if __name__ == "__main__":
    bagpipe_test.main()
