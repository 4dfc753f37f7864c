"""How jobs are stopped in time and go on: signals, a halt file, the Slurm job's clock; who owns a run; what is queued again.

Called with --twenty, starts at once are tried 20 times instead of 4; with --lease, a stopped owner is waited out (a minute)."""
import json
import os
import shutil
import signal
import subprocess
import time

import bagpipe_test
from bagpipe_test import JobTest, children, digests, environment, events, metrics, program, steps, timeless

LONG = "train.steps=1000000"
TWENTY, LEASE = bagpipe_test.take(twenty=False, lease=False)


def run_json(folder):
    with open(os.path.join(folder, "run.json"), encoding="utf-8") as file:
        return json.load(file)


class Stopping(JobTest):
    @classmethod
    def config(cls):
        return super().config() + "[checkpoint]\nevery = 100000000\n"  # else a fast machine commits some before it is asked to stop

    def launch(self, job, name, *keys, ranks=0, more=None, config="small.ini"):
        return self.background([program("bagpipe"), job, self.at(config), f"run.dir={self.at(name)}"] + list(keys), ranks, more)

    def started(self, name, *keys, **more):
        process = self.launch("pretrain", name, *keys, **more)
        self.until(lambda: self.trains(name), process)
        return process

    def paused(self, job, name, point, *keys, **more):
        """A job that has stopped itself at a point (a fault's name) for the first time. It goes on with SIGCONT, and not before what is
        asked of it; then it takes 2 s at each such point, so that it does not end before it looks for a halt file, once a second."""
        process = self.launch(job, name, *keys, more={"BP_FAULT": f"{point}=stop,{point}:2+=delay2"}, **more)
        self.until(lambda: os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT), process)
        return process

    def stopped(self, process, status=75):
        result = process.result()
        self.assertEqual(result.status, status, str(result))
        if status == 75:
            self.assert_stopped(result)
        return result.err

    @staticmethod
    def catches(process, number):
        """Has the process a handler of this signal?"""
        with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
            caught = [line for line in file if line.startswith("SigCgt")]
        return bool(caught and int(caught[0].split()[1], 16) >> (number - 1) & 1)

    def ranks_of(self, process):
        """Processes named bagpipe below a launcher, in order of their rank."""
        found, at = [process.pid], 0
        while at < len(found):
            found += children(found[at])
            at += 1
        ranks = []
        for pid in found:
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    rank = [word for word in file.read().split(b"\0") if word.startswith(b"OMPI_COMM_WORLD_RANK=")]
                with open(f"/proc/{pid}/comm", encoding="ascii") as file:
                    if rank and file.read().strip() == "bagpipe":
                        ranks.append((int(rank[0].split(b"=")[1]), pid))
            except OSError:
                pass
        return [pid for _, pid in sorted(ranks)]

    def goes_on_as_undisturbed(self, name, length, ranks=0, *keys):
        """The last step that a stopped run has, and then all to the end: as if nothing had been."""
        self.assertEqual(metrics(self.at(name))[-1]["step"], int(steps(self.at(name))[-1][5:]))
        whole = f"whole_{length}"
        if not os.path.exists(self.at(whole)):
            self.trained(whole, 0, f"train.steps={length}")
        self.trained(name, ranks, f"train.steps={length}", *keys)
        self.assertEqual(timeless(metrics(self.at(whole))), timeless(metrics(self.at(name))))
        self.assertEqual(digests(self.at(whole)), digests(self.at(name)))

    # ---- signals ----

    def test_usr1_again_and_again_and_while_a_checkpoint_is_committed_is_one_request(self):
        process = self.started("again", "train.steps=400", more={"BP_FAULT": "ckpt.shard_half=delay1,ckpt.rename=delay1"})
        for _ in range(60):  # the first one makes the checkpoint begin
            process.send_signal(signal.SIGUSR1)
            time.sleep(0.05)
            if process.poll() is not None:
                break
        self.stopped(process)
        self.assertEqual(len(steps(self.at("again"))), 1)
        self.assertEqual(run_json(self.at("again"))["exit"]["reason"], "USR1")
        self.goes_on_as_undisturbed("again", 400)

    def test_usr1_before_the_first_step_leaves_with_75_and_nothing_is_committed(self):
        process = self.launch("pretrain", "early", LONG, more={"BP_FAULT": "init.after_mpi=delay1"})

        self.until(lambda: self.catches(process, signal.SIGTERM), process)
        process.send_signal(signal.SIGUSR1)
        self.assertIn("at step 0", self.stopped(process))
        self.assertEqual(steps(self.at("early")), [])
        self.trained("early", 0, "train.steps=3")

    def test_usr1_in_the_first_tenth_of_a_second(self):
        """Kept as soon as the program is loaded, before its libraries are initialised: 75. Before: the system's, 138 to a shell."""
        for k in range(0, 8, 2):
            process = self.launch("pretrain", f"soon-{k}", LONG)
            time.sleep(0.008 * k)
            kept = self.catches(process, signal.SIGUSR1)
            process.send_signal(signal.SIGUSR1)
            status = process.result().status
            self.assertIn(status, (75,) if kept else (75, -signal.SIGUSR1), k)
            self.trained(f"soon-{k}", 0, "train.steps=1")
        for command in (["status", "--watch", self.at("soon-0")], ["check", "pretrain", self.at("small.ini")]):  # have nothing to stop
            process = self.background([program("bagpipe")] + command)
            self.until(lambda: process.poll() is not None or not self.catches(process, signal.SIGUSR1), process)
            process.send_signal(signal.SIGUSR1)
            self.assertIn(process.result().status, (0, -signal.SIGUSR1), command)

    def test_term_commits_where_nobody_kills_soon_after_and_not_under_mpirun(self):
        process = self.started("term", LONG)
        process.send_signal(signal.SIGTERM)
        self.stopped(process)
        self.assertEqual(len(steps(self.at("term"))), 1)
        self.assertEqual(run_json(self.at("term"))["exit"]["reason"], "TERM")
        process = self.started("term_mpirun", LONG, ranks=2)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate()
        self.assertNotEqual(process.returncode, 0, out + err)
        self.assertEqual(steps(self.at("term_mpirun")), [])
        self.assertFalse([name for name in os.listdir(self.at("term_mpirun/checkpoints")) if name.startswith(".tmp-")])

    def test_dedicated_coordinator_alone_hears_usr1_and_term(self):
        for word, committed in ((signal.SIGUSR1, 1), (signal.SIGTERM, 0)):
            name = f"dedicated_{committed}"
            process = self.started(name, LONG, "mesh.data=2", ranks=3)
            ranks = self.ranks_of(process)
            self.assertEqual(len(ranks), 3)
            os.kill(ranks[0], word)
            self.stopped(process)
            self.assertEqual(len(steps(self.at(name))), committed)

    # ---- the halt file ----

    def halt(self, process, name, job, *keys, **more):
        """Halt a job at work; it leaves, and does not start again until the file is gone."""
        with open(self.at(name) + "/halt", "w", encoding="ascii"):
            pass
        process.send_signal(signal.SIGCONT)  # where it has paused
        self.assertIn(f"{self.at(name)}/halt", self.stopped(process))
        self.assertEqual(run_json(self.at(name))["exit"]["reason"], "halt")
        before = run_json(self.at(name))["starts"]
        self.assertIn(f"{self.at(name)}/halt", self.stopped(self.launch(job, name, *keys, **more)))
        self.assertEqual(run_json(self.at(name))["starts"], before)
        os.remove(self.at(name) + "/halt")

    def test_halted_training_commits_and_goes_on_once_the_file_is_gone(self):
        self.halt(self.paused("pretrain", "halted", "step.end", "train.steps=400"), "halted", "pretrain", "train.steps=400")
        self.goes_on_as_undisturbed("halted", 400)
        with open(self.at("halted/halt"), "w", encoding="ascii"):
            pass
        self.trained("halted", 0, "train.steps=400")  # a finished run has nothing to halt

    def test_halted_training_with_a_dedicated_coordinator_commits(self):
        process = self.started("halted_dedicated", LONG, "mesh.data=2", ranks=3)
        with open(self.at("halted_dedicated/halt"), "w", encoding="ascii"):
            pass
        self.assertIn("halted by ", self.stopped(process))
        self.assertEqual(len(steps(self.at("halted_dedicated"))), 1)

    def test_halted_ensemble_stops_all_its_members(self):
        keys = ("ensemble.members=2", "ensemble.kind=seed", "mesh.members=2", LONG)
        process = self.launch("ensemble", "halted_ensemble", *keys, ranks=2)
        self.until(lambda: self.trains("halted_ensemble/members/m00") and self.trains("halted_ensemble/members/m01"), process)
        self.halt(process, "halted_ensemble", "ensemble", *keys, ranks=2)
        for member in ("m00", "m01"):
            self.assertEqual(len(steps(self.at("halted_ensemble/members/" + member))), 1)
        # one member of an array looks into the ensemble's folder as well
        process = self.launch("ensemble", "halted_ensemble", *keys, "ensemble.only=0")
        self.until(lambda: len(events(self.at("halted_ensemble/members/m00"), "resumed")) == 1, process)
        with open(self.at("halted_ensemble/halt"), "w", encoding="ascii"):
            pass
        self.stopped(process)
        self.assertIn("halted by ", self.stopped(self.launch("ensemble", "halted_ensemble", *keys, "ensemble.only=1")))

    def test_halted_score_and_study_go_on_once_the_file_is_gone(self):
        model = self.trained("scored_model", 0, "train.steps=5")
        keys = (f"score.model={model}", f"score.corpus={self.at('train.h5')}", "score.stride=4")
        self.write("empty.ini", "[math]\nprecision = f32\nthreads = 1\n")
        process = self.paused("score", "halted_score", "work.unit_done", *keys, config="empty.ini")
        self.halt(process, "halted_score", "score", *keys, config="empty.ini")
        keys = (f"uncertainty.models=passes={model}:dropout", f"uncertainty.in_domain={self.at('train.h5')}", "uncertainty.passes=8")
        process = self.paused("uncertainty", "halted_study", "work.unit_done", *keys, config="empty.ini")
        self.halt(process, "halted_study", "uncertainty", *keys, config="empty.ini")

    # ---- the job's clock ----

    def test_job_stops_ahead_of_the_end_of_its_time(self):
        for seconds in (12, 60, 300):  # a busy machine may need more than the first of these for its first step
            name = f"clock{seconds}"
            self.stopped(self.launch("pretrain", name, LONG, more={"SLURM_JOB_END_TIME": str(int(time.time()) + seconds)}))
            self.assertEqual(run_json(self.at(name))["exit"]["reason"], "time limit")
            if self.trains(name):
                break
        self.assertEqual(metrics(self.at(name))[-1]["step"], int(steps(self.at(name))[-1][5:]))

    def test_nonsense_of_slurm_is_reported_once_and_left_alone(self):
        past, far = str(int(time.time()) - 10), str(int(time.time()) + 400 * 365 * 86400)
        for k, (end, restarts) in enumerate((("abc", "abc"), (past, "-1"), (far, "0"), ("9" * 30, "0"))):
            process = self.launch("pretrain", f"nonsense_{k}", "train.steps=1",
                                  more={"SLURM_JOB_END_TIME": end, "SLURM_RESTART_COUNT": restarts, "SLURM_JOB_ID": "4711"})
            self.stopped(process, 0)
            wrong = ["SLURM_JOB_END_TIME"] + ["SLURM_RESTART_COUNT"] * (restarts != "0")
            self.assert_warning(process.result(), "[environment.bad_value]", *wrong, times=len(wrong))
            self.assertEqual(events(self.at(f"nonsense_{k}"), "opened")[0]["slurm_restart"], 0)

    def test_restarts_stand_in_log_record_and_events(self):
        for restart in ("0", "3"):
            self.stopped(self.launch("pretrain", "restarts", more={"SLURM_JOB_ID": "4711", "SLURM_RESTART_COUNT": restart,
                                                                    "BP_FAULT": "train.diverge:5", "BP_FAULT_IN_JOB": "yes"}), 70)
        self.assertEqual([event["slurm_restart"] for event in events(self.at("restarts"), "opened")], [0, 3])
        self.assertEqual([(one["start"], one["slurm_restart"]) for one in run_json(self.at("restarts"))["recent_starts"]], [(1, 0), (2, 3)])
        with open(self.at("restarts/log.txt"), encoding="utf-8") as file:
            self.assertIn("start 2 of this run: Slurm job 4711, restart 3", file.read())

    # ---- what is queued again ----

    def requeue(self, name, status, *more, restarts="0"):
        env = dict(environment(), SLURM_RESTART_COUNT=restarts, SLURM_JOB_ID="4711")
        done = subprocess.run([program("bagpipe"), "requeue", "pretrain", self.at("small.ini"), f"run.dir={self.at(name)}",
                               "--status", str(status)] + list(more), env=env, capture_output=True, text=True, check=False)
        self.assertEqual(done.stdout.count("\n"), 1, done)
        self.assertEqual(done.returncode, 0 if done.stdout.startswith("yes: ") else 1, done)
        return done.stdout

    def test_queued_again_is_what_a_start_can_help(self):
        name = "queue"
        process = self.started(name, LONG)
        process.kill()
        process.communicate()
        for status in (75, 137, 134, 139, 135, 205):
            self.assertTrue(self.requeue(name, status).startswith("yes: "), status)
        for status in (0, 1, 64, 65, 66, 69, 70, 71, 73, 74, 77, 78, 127, 143):
            self.assertTrue(self.requeue(name, status).startswith("no: "), status)
        self.assertIn("at most 0", self.requeue(name, 75, "--most", "0"))
        self.assertTrue(self.requeue(name, 75, restarts="30").startswith("yes: it was stopped: restart 31"))  # the starts before were none of failure
        self.assertIn("preemption, or a signal: restart 4", self.requeue(name, 75, "--cause=preemption, or a signal", restarts="3"))
        with open(self.at(name) + "/halt", "w", encoding="ascii"):
            pass
        self.assertIn("halted", self.requeue(name, 75))
        self.trained("queue_done", 0, "train.steps=2")
        self.assertIn("finished", self.requeue("queue_done", 137))
        for restarts, word in (("0", "yes"), ("2", "no progress")):
            self.assertIn(word, self.requeue("queue_none", 137, restarts=restarts))

    def test_three_starts_that_commit_nothing_are_enough(self):
        for number in (1, 2, 3):
            self.stopped(self.launch("pretrain", "stuck", LONG, more={"BP_FAULT": "step.end:2=kill"}), -signal.SIGKILL)
            self.assertTrue(self.requeue("stuck", 137).startswith("yes" if number < 3 else "no: no progress, 3 starts"), number)
        # a commit, and the count begins again
        self.stopped(self.launch("pretrain", "stuck", LONG, "checkpoint.every=2", "checkpoint.async=no", more={"BP_FAULT": "step.end:3=kill"}), -signal.SIGKILL)
        self.assertTrue(self.requeue("stuck", 137).startswith("yes"))

    def test_only_failures_without_progress_count(self):
        """The batch script's question leaves a line in last_words.txt; where there is none Slurm did it by itself, or a person."""
        def start(restart, cause):
            more = {"SLURM_JOB_ID": "4711", "SLURM_RESTART_COUNT": str(restart), "BP_FAULT": "step.end:2=kill", "BP_FAULT_IN_JOB": "yes"}
            self.stopped(self.launch("pretrain", "counted", LONG, more=more), -signal.SIGKILL)
            last = run_json(self.at("counted"))["recent_starts"][-1]
            self.assertEqual(last.get("after"), cause)
            if cause is not None:
                self.assertEqual(events(self.at("counted"), "opened")[-1]["after"], cause)
            return last.get("fruitless", 0)
        by_itself = "died: Slurm queued its job again by itself: a node failed, or scontrol requeue"
        self.assertEqual(start(0, None), 0)
        for restart in (1, 2, 3, 4):  # nobody asked: as after scontrol requeue
            self.assertEqual(start(restart, by_itself), 0)
        self.assertTrue(self.requeue("counted", 75, "--most", "1", "--cause=preemption, or a signal", restarts="4").startswith("yes"))
        self.assertEqual(start(5, "was stopped: preemption, or a signal"), 0)
        self.assertTrue(self.requeue("counted", 137, "--most", "1", "--cause=node n2 failed", restarts="5").startswith("yes"))
        reported = subprocess.run([program("bagpipe"), "status", self.at("counted")], env=environment(), capture_output=True, text=True, check=True)
        self.assertIn("node n2 failed", reported.stdout)
        self.assertEqual(start(6, "died: node n2 failed"), 1)
        self.assertIn("at most 1", self.requeue("counted", 137, "--most", "1", restarts="6"))
        self.assertTrue(self.requeue("counted", 137, restarts="6").startswith("yes: it died: a rank was killed by signal 9"))
        with open(self.at("counted/log.txt"), encoding="utf-8") as file:
            self.assertIn("the previous start died: node n2 failed", file.read())

    # ---- one owner ----

    def test_of_two_starts_at_once_one_runs_and_the_other_leaves_with_69(self):
        for number in range(20 if TWENTY else 2):
            pair = [self.launch("pretrain", "owned", LONG) for _ in range(2)]
            self.until(lambda: any(process.poll() is not None for process in pair))
            loser = [process for process in pair if process.poll() is not None]
            self.assertEqual(len(loser), 1, number)
            winner = [process for process in pair if process is not loser[0]][0]
            self.assert_error(loser[0].result(), 69, "[lock.held]", str(winner.pid))
            self.assertIsNone(winner.poll())
            winner.kill()
            winner.wait()

    def test_owner_that_slept_through_its_lease_commits_nothing_more(self):
        if not LEASE:
            self.skipTest("it takes the lease's 60 s: --lease")
        if os.geteuid() != 0 or shutil.which("unshare") is None:
            self.skipTest("a process that can't see the owner needs root and unshare")
        first = self.started("lease", LONG)
        first.send_signal(signal.SIGSTOP)
        # in a namespace of its own the other can't ask the kernel for the owner: it watches its counter for a minute
        second = self.background(["unshare", "--pid", "--fork", "--mount-proc", program("bagpipe"), "pretrain", self.at("small.ini"),
                                  f"run.dir={self.at('lease')}", "train.steps=2000"])
        self.stopped(second, 0)
        self.assert_warning(second.result(), "[lock.owner_unreachable]", "60 s")
        first.send_signal(signal.SIGCONT)
        first.send_signal(signal.SIGUSR1)  # commit!
        # before a commit, or before the line of a step that comes sooner
        self.assert_error(first.result(), 69, "[lock.lost]")
        self.assertEqual(steps(self.at("lease")), ["step-000000002000"])
        self.trained("lease_whole", 0, "train.steps=2000")
        self.assertEqual(timeless(metrics(self.at("lease"))), timeless(metrics(self.at("lease_whole"))))
        self.assertEqual(digests(self.at("lease")), digests(self.at("lease_whole")))


if __name__ == "__main__":
    bagpipe_test.main()
