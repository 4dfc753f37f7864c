"""bagpipe status: what is reported of runs in every state they can be in, by a program that starts no MPI and changes nothing."""
import json
import os
import re
import signal
import subprocess
import unittest

import bagpipe_test
from bagpipe_test import JobTest, environment, events, program, read_json, run, steps


def tree(folder):
    """Everything in a folder: names, sizes, times."""
    found = {}
    for path, _, names in os.walk(folder):
        for name in names:
            status = os.lstat(os.path.join(path, name))
            found[os.path.join(path, name)] = (status.st_size, status.st_mtime_ns)
    return found


class Status(JobTest):
    def asked(self, *names, status=0):
        result = run([program("bagpipe"), "status"] + [self.at(name) for name in names])
        self.assertEqual(result.status, status, str(result))
        return result

    def reported(self, name, **expected):
        """The status as an object; some of its members are compared."""
        result = run([program("bagpipe"), "status", "--json", self.at(name)])
        self.assertEqual(result.status, 0, str(result))
        reported = json.loads(result.out)
        for key, value in expected.items():
            self.assertEqual(reported.get(key), value, f"{key}: {result}")
        return reported

    def start(self, name, *keys):
        """A training that goes on until it is asked to stop."""
        return self.background([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at(name)}", "train.steps=1000000",
                                "checkpoint.every=20"] + list(keys))

    def committed(self, name):
        return os.path.isdir(self.at(name + "/checkpoints")) and len(steps(self.at(name))) > 1

    def applied(self, name):
        """A job that applies the run's model, as far as its plan."""
        result = run([program("bagpipe"), "score", self.at("small.ini"), f"run.dir={self.at('scored')}", f"score.model={self.at(name)}",
                      f"score.corpus={self.at('valid.h5')}", "--plan"])
        self.assertEqual(result.status, 0, str(result))
        return result

    def resumed(self, name):
        return len(events(self.at(name), "resumed")) > 0

    def test_a_run_through_its_states(self):
        process = self.start("run")
        self.until(lambda: self.committed("run"), process)
        self.until(lambda: "tokens_per_second_median" in self.reported("run"), process)  # status.json lags behind where lines come fast
        reported = self.reported("run", job="pretrain", state="running", steps=1000000, restarts=0, pid=process.pid)
        self.assertGreater(reported["commit"]["bytes"], 100_000)
        self.assertGreater(reported["tokens_per_second_median"], 0)
        self.assertGreater(reported["seconds_left"], 0)
        self.assertGreaterEqual(reported["step"], reported["commit"]["step"])
        text = self.asked("run").out
        self.assertRegex(text, r": pretrain, running on \S+, 1 rank; seen alive .* ago\n")
        self.assertRegex(text, r"progress +step \d+ of 1000000 .* left\n")
        self.assert_warning(self.applied("run"), "[checkpoint.unfinished]", " of 1000000 is taken", "(running)", "bagpipe status")

        process.send_signal(signal.SIGKILL)
        process.wait()
        with open(self.at("run/metrics.jsonl"), "a", encoding="utf-8") as file:
            file.write('{"step": 999999, "tokens": 99999')  # torn, as a killed writer leaves it
        newest = int(steps(self.at("run"))[-1][5:])
        reported = self.reported("run", state="dead")
        self.assertLess(reported["step"], 999999)
        self.assertIn(f"goes on from step {newest}", reported["next"])
        before = tree(self.at("run"))
        self.assertIn("dead: its job is gone", self.asked("run").out)
        self.assert_warning(self.applied("run"), "[checkpoint.unfinished]", f"step {newest} of 1000000", "(dead)")
        self.assertEqual(tree(self.at("run")), before)  # nothing is written, not even to the torn file

        process = self.start("run")
        self.until(lambda: self.reported("run")["restarts"] == 1 and self.resumed("run"), process)
        process.send_signal(signal.SIGUSR1)
        self.assertEqual(process.wait(), 75)
        reported = self.reported("run", state="stopped", code=75, starts=2, restarts=1)
        self.assertEqual(reported["next"], f"the same command goes on from step {reported['step']}")
        self.assertEqual(reported["commit"]["step"], reported["step"])
        self.assertRegex(self.asked("run").out, r"stopped \(USR1\) .* ago\n(.*\n)*.*time .*, 1 restart")

        result = self.pretrain("run", 0, f"train.steps={reported['step'] + 5}")
        self.assertEqual(result.status, 0, str(result))
        self.reported("run", state="finished", code=0, step=reported["step"] + 5, progress=1.0)
        again = self.pretrain("run", 0, f"train.steps={reported['step'] + 5}")  # it only says that it is finished
        self.assertEqual(again.status, 0, str(again))
        self.reported("run", state="finished", restarts=2)

    def test_failed_says_with_what_and_what_to_do(self):
        env = dict(environment(), BP_FAULT="train.diverge")
        process = subprocess.run([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('failed')}"], env=env,
                                 capture_output=True, check=False)
        self.assertEqual(process.returncode, 70)
        reported = self.reported("failed", state="failed", code=70)
        self.assertIn("diverged", reported["message"])
        self.assertIn("a new run, as the message says: the same command ends the same way", self.asked("failed").out)
        result = self.pretrain("worse", 0, "train.steps=12", "optimizer.warmup=0", "optimizer.lr=4")
        self.assertEqual(result.status, 0, str(result))
        self.assertEqual(self.reported("worse", state="finished")["events"], {"worse_than_guessing": 1})
        self.assertRegex(self.asked("worse").out, r"events +worse than guessing at step 12,(.*\n)*.*next +its loss is worse than that of a guess")

    def test_ensemble_and_score_tell_members_and_units(self):
        result = run([program("bagpipe"), "ensemble", self.at("small.ini"), f"run.dir={self.at('many')}", "ensemble.members=2",
                      "train.steps=5"])
        self.assertEqual(result.status, 0, str(result))
        reported = self.reported("many", job="ensemble", state="finished", members_wanted=2, members_finished=2, progress=1.0)
        self.assertEqual([m["name"] for m in reported["members"]], ["m00", "m01"])
        self.assertEqual([m["state"] for m in reported["members"]], ["finished"] * 2)
        self.assertRegex(self.asked("many").out, r"m01 +finished 5/5 ")
        with open(self.at("many/members/m01/run.json"), "w", encoding="utf-8") as file:
            file.write("{")
        reported = self.reported("many", members_finished=1)
        self.assertEqual(reported["members"][1]["state"], "damaged")

        result = run([program("bagpipe"), "score", self.at("small.ini"), f"run.dir={self.at('score')}",
                      f"score.model={self.at('many/members/m00')}", f"score.corpus={self.at('train.h5')}"])
        self.assertEqual(result.status, 0, str(result))
        reported = self.reported("score", job="score", state="finished", progress=1.0)
        self.assertEqual(reported["units"], reported["units_done"])
        self.assertGreater(reported["units"], 1)

    def test_members_that_jobs_of_their_own_train(self):
        result = run([program("bagpipe"), "ensemble", self.at("small.ini"), f"run.dir={self.at('array')}", "ensemble.members=2",
                      "ensemble.only=1", "train.steps=3"])
        self.assertEqual(result.status, 0, str(result))
        reported = self.reported("array", job="ensemble", state="waiting", members_finished=1)
        self.assertEqual([m["name"] for m in reported["members"]], ["m01"])
        self.assertIn("without ensemble.only", self.asked("array").out)

    def test_halted(self):
        self.trained("halted", 0, "train.steps=2")
        self.write("halted/halt", "")
        self.assertEqual(self.pretrain("halted", 0, "train.steps=4").status, 75)
        self.reported("halted", halt=True)
        self.assertIn("it was asked to stop", self.asked("halted").out)

    def test_a_start_that_fails_before_it_holds_the_folder_is_reported(self):
        self.trained("refused", 0, "train.steps=2")
        lock = sorted(os.listdir(self.at("refused/lock")))
        for keys, status, word in (((f"corpus.train={self.at('nowhere.h5')}",), 66, "nowhere.h5"), (("run.seed=7",), 78, "run.seed"),
                                   (("mesh.tensor=3",), 78, "mesh.tensor")):
            result = self.pretrain("refused", 0, "train.steps=4", *keys)
            self.assertEqual(result.status, status, str(result))
            reported = self.reported("refused", state="finished", restarts=0)
            if status == 66:
                self.assertEqual(sorted(os.listdir(self.at("refused/lock"))), lock)  # it was not taken
            self.assertEqual(reported["start_failed"]["code"], status)
            self.assertIn(word, reported["start_failed"]["message"])
            self.assertIn(f"the last start failed with status {status}, ", self.asked("refused").out)
        self.assert_error(self.pretrain("refused", 0, "train.steps=4", "run.seed=7", "train.batch=4"), 78, "[run.other_keys]", lines=2)
        said = self.asked("refused").out.splitlines()
        at = next(k for k, line in enumerate(said) if line.startswith("  start "))
        faults = said[at + 1:at + 3]  # a fault a line, beside the labels, each with its remedy
        self.assertEqual([line.split(" is ")[0] for line in faults], [13 * " " + "- run.seed", 13 * " " + "- train.batch"], said)
        self.assertEqual([line.endswith("[run.other_keys]") and "; keep it, or " in line for line in faults], [True, True], said)
        self.assertEqual([line for line in said[1:] if not line.startswith("  ")], [])
        self.assertEqual(self.pretrain("refused", 0, "train.steps=4").status, 0)
        self.assertNotIn("start_failed", self.reported("refused", state="finished", step=4))
        # what holds the folder is not disturbed, and no folder is made
        process = self.start("busy")
        self.until(lambda: self.committed("busy"))
        self.assertEqual(self.pretrain("busy", 0, f"corpus.train={self.at('nowhere.h5')}").status, 66)
        self.assertNotIn("start_failed", self.reported("busy", state="running", pid=process.pid))
        with open(self.at("busy/events.jsonl"), encoding="utf-8") as file:
            self.assertNotIn("start_failed", file.read())
        self.assertEqual(self.pretrain("none", 0, f"corpus.train={self.at('nowhere.h5')}").status, 66)
        self.assertFalse(os.path.exists(self.at("none")))

    def test_no_progress_is_reported_as_by_requeue(self):
        for _ in range(3):
            env = dict(environment(), BP_FAULT="step.end:2=kill")
            subprocess.run([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('stuck')}"], env=env,
                           capture_output=True, check=False)
        reported = self.reported("stuck", state="dead", stuck_starts=3)
        self.assertIn("no progress, 3 starts in a row", reported["next"])
        result = run([program("bagpipe"), "requeue", "pretrain", self.at("small.ini"), f"run.dir={self.at('stuck')}", "--status", "137"])
        self.assertIn("stuck/log.txt", result.out)

    def test_units_of_a_score_job_that_was_killed(self):
        self.trained("model", 0, "train.steps=2")
        env = dict(environment(), BP_FAULT="work.unit_done:2=delay1.5,work.unit_done:3=delay1.5,work.unit_done:4=kill")
        command = [program("bagpipe"), "score", self.at("small.ini"), f"run.dir={self.at('killed')}", f"score.model={self.at('model')}",
                   f"score.corpus={self.at('train.h5')}"]
        process = subprocess.run(command, env=env, capture_output=True, check=False)
        self.assertEqual(process.returncode, -signal.SIGKILL)
        reported = self.reported("killed", state="dead")
        self.assertIn(reported["units_done"], (1, 2, 3, 4))
        self.assertGreater(reported["units"], 4)
        self.assertRegex(self.asked("killed").out, r"progress +[1-4] of \d+ work units")
        self.assertEqual(run(command).status, 0)
        self.reported("killed", state="finished", units_done=reported["units"], restarts=1)

    def test_the_last_words_of_a_job_are_reported(self):
        """A bug ends all ranks at once, and a signal the process: nobody writes run.json then."""
        self.killed("bug", "step.end:3=bug", 70)
        reported = self.reported("bug", state="failed", code=70)
        self.assertIn("no bug was injected", reported["message"])
        self.assertNotIn("without a word", self.asked("bug").out)
        self.killed("kill", "step.end:3=kill", -signal.SIGKILL)
        self.assertIn("without a word", self.reported("kill", state="dead")["next"])
        run([program("bagpipe"), "requeue", "pretrain", self.at("small.ini"), f"run.dir={self.at('kill')}", "--status", "137"])
        self.assertIn("killed by signal 9", self.reported("kill", state="dead", code=137)["message"])
        self.check_next_start(("bug", "failed with status 70: a bug"), ("kill", "killed by signal 9"))

    @unittest.skipIf(bagpipe_test.SANITIZED, "the sanitizer takes fatal signals itself")
    def test_a_fatal_signal_is_reported(self):
        process = self.start("segv")
        self.until(lambda: self.committed("segv"), process)
        process.send_signal(signal.SIGSEGV)
        process.wait()
        reported = self.reported("segv", state="dead", code=139)
        self.assertIn("signal 11", reported["message"])
        self.assertNotIn("without a word", reported["next"])
        self.check_next_start(("segv", "signal 11"))

    def check_next_start(self, *ends):
        """It says what ended the last one, in its log and in status, and clears the words away."""
        for name, word in ends:
            out = self.killed(name, "step.end:30=kill", -signal.SIGKILL, "train.steps=1000000", "checkpoint.every=20")
            self.assertIn(word, out.split("the previous start ")[1].split("\n")[0])
            self.assertIn(word, self.text(name + "/log.txt").split("the previous start ")[-1])
            reported = self.reported(name, state="dead", restarts=1)
            self.assertNotIn("message", reported)
            self.assertIn(word, reported["after"])
            self.assertIn(word, read_json(self.at(name), "run.json")["recent_starts"][-1]["after"])
            self.assertIn(word, events(self.at(name), "opened")[-1]["after"])
            self.assertIn("the previous start", self.asked(name).out)

    def killed(self, name, fault, status, *keys, **more):
        env = dict(environment(), BP_FAULT=fault, **more)
        result = subprocess.run([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at(name)}"] + list(keys), env=env,
                                capture_output=True, check=False)
        self.assertEqual(result.returncode, status, result.stderr)
        return result.stdout.decode()

    def text(self, name):
        with open(self.at(name), encoding="utf-8") as file:
            return file.read()

    def slurm(self, **answers):
        """A Slurm of our own, first in PATH: what its commands print."""
        os.makedirs(self.at("slurm"), exist_ok=True)
        for name, answer in answers.items():
            self.write(f"slurm/{name}", f"#!/bin/sh\n{answer}\n")
            os.chmod(self.at(f"slurm/{name}"), 0o755)
        return dict(environment(), PATH=self.at("slurm") + ":" + os.environ["PATH"])

    def test_slurm_is_asked_what_becomes_of_the_job(self):
        env = self.slurm(squeue="exit 0", sacct="echo TIMEOUT; echo NODE_FAIL; echo RUNNING",
                         sinfo="echo n1 idle; echo n2 'down*'; echo n2 'down*'")
        slurm = {"SLURM_JOB_ID": "17", "BP_FAULT_IN_JOB": "yes", "PATH": env["PATH"]}
        self.killed("lost", "step.end:3=kill", -signal.SIGKILL, **slurm)
        for squeue, state, word in (("echo 17 PENDING BeginTime", "queued", "queued again, PENDING (BeginTime), Slurm job 17"),
                                    ("echo 18 PENDING Priority", "dead", "its job is gone"),
                                    ("echo 17 TIMEOUT TimeLimit", "dead", "Slurm says TIMEOUT (TimeLimit)"),
                                    ("echo 17 RUNNING None", "dead", "its job is gone"),
                                    ("sleep 100", "dead", "its job is gone"),
                                    ("exit 0", "dead", "its job is gone")):
            env = self.slurm(squeue=squeue)
            result = subprocess.run([program("bagpipe"), "status", self.at("lost")], env=env, capture_output=True, check=False, timeout=60)
            out = result.stdout.decode()
            self.assertEqual(result.returncode, 0, out)
            self.assertIn(f"pretrain, {state}", out)
            self.assertIn(word, " ".join(out.split()))
            self.assertEqual("scancel 17" in " ".join(out.split()), state == "queued", out)
        # whoever starts it by hand, or in another job, would race with the job that is queued
        env = self.slurm(squeue="echo 17 PENDING BeginTime")
        for own in ({}, {"SLURM_JOB_ID": "18"}):
            result = subprocess.run([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('lost')}"], env=dict(env, **own),
                                    capture_output=True, check=False)
            self.assertEqual(result.returncode, 69, result.stderr)
            self.assertIn("Slurm job 17 is queued again, PENDING (BeginTime), and goes on with this run", result.stderr.decode())
            self.assertIn("'scancel 17' before", result.stderr.decode())
            self.assertEqual(json.loads(run([program("bagpipe"), "status", "--json", self.at("lost")]).out)["state"], "dead")
        self.slurm(squeue="echo 17 RUNNING None")
        self.killed("lost", "", 0, "train.steps=5", SLURM_RESTART_COUNT="1", **slurm)
        self.assertIn("died: Slurm says NODE_FAIL, node n2 is down*\n", self.text("lost/log.txt"))
        self.assertIn("NODE_FAIL", self.reported("lost", state="finished")["after"])
        slurm["PATH"] = self.slurm(sacct="echo no accounting; exit 1", sinfo="exit 1", squeue="echo 17 TIMEOUT TimeLimit")["PATH"]
        self.killed("late", "step.end:3=kill", -signal.SIGKILL, **slurm)
        self.killed("late", "", 0, "train.steps=5", **dict(slurm, SLURM_JOB_ID="18"))
        self.assertIn("the previous start died: Slurm says TIMEOUT (TimeLimit)\n", self.text("late/log.txt"))

    def test_a_run_of_an_older_program_is_reported_from_what_there_is(self):
        self.trained("old", 0, "train.steps=4", "checkpoint.every=2")
        os.remove(self.at("old/status.json"))
        reported = self.reported("old", state="finished", step=4, steps=4, progress=1.0)
        self.assertNotIn("loss", reported)
        self.assertIn("there is no status.json", self.asked("old").out)
        for garbage in ("", "{", "[]", "\x00"):
            self.write("old/status.json", garbage)
            self.reported("old", state="finished", step=4)
        os.remove(self.at("old/status.json"))
        os.mkfifo(self.at("old/status.json"))
        self.reported("old", state="finished", step=4)
        os.remove(self.at("old/status.json"))
        self.assertEqual(self.pretrain("old", 0, "train.steps=6").status, 0)
        self.reported("old", state="finished", step=6, restarts=1)

    def test_status_json_is_written_at_each_phase_and_line(self):
        process = self.start("phases")
        self.until(lambda: self.committed("phases"), process)
        seen = set()
        self.until(lambda: seen.add(json.loads(self.text("phases/status.json"))["phase"]) or len(seen) > 1, process)
        file = json.loads(self.text("phases/status.json"))
        self.assertEqual(file["format"], "bagpipe status")
        self.assertLess(os.path.getsize(self.at("phases/status.json")), 8192)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(), 75)
        with open(self.at("phases/run.json"), encoding="utf-8") as record:
            self.assertEqual(json.load(record)["exit"], json.loads(self.text("phases/status.json"))["exit"])

    def test_what_is_no_run(self):
        os.makedirs(self.at("empty"), exist_ok=True)
        self.write("file", "")
        for name in ("empty", "file", "missing"):
            result = self.asked(name, status=66)
            self.assertEqual(len(re.findall("bagpipe: error", result.err)), 1, str(result))
            self.assertEqual(result.out, "")
        os.makedirs(self.at("broken"), exist_ok=True)
        self.write("broken/run.json", '{"format": "bagpipe ru')
        self.assertIn("[json.invalid]", self.asked("broken", status=65).err)

    def test_several_runs_are_reported_whatever_one_of_them_is_like(self):
        self.trained("good", 0, "train.steps=1")
        result = self.asked("missing", "good", "file")
        self.assertIn("pretrain, finished", result.out)
        self.assertEqual(result.err, "bagpipe: 2 of the names are not runs\n")
        result = self.asked("missing", "missing too", status=66)
        self.assertEqual(len(re.findall("bagpipe: error", result.err)), 1, str(result))
        result = run([program("bagpipe"), "status", "--json", self.at("good"), self.at("missing")])
        self.assertEqual([one["state"] for one in json.loads(result.out)], ["finished"])

    def test_command_line_and_no_mpi(self):
        self.assertEqual(run([program("bagpipe"), "status"]).status, 64)
        self.assertEqual(run([program("bagpipe"), "status", "--fast"]).status, 64)
        result = run([program("bagpipe"), "status", "--help"])
        self.assertEqual(result.status, 0)
        self.assertIn("bagpipe status RUN", result.out)
        self.assertIn("bagpipe status", run([program("bagpipe"), "--help"]).out)
        result = run([program("bagpipe"), "stats"])
        self.assert_error(result, 64, "[command.unknown_job]", "status")
        self.assert_error(self.pretrain("unknown", 0, "watchdog=5"), 78, "[config.unknown_key]", "watchdog.seconds")
        result = run([program("bagpipe"), "requeue", "--help"])
        self.assertEqual(result.status, 0)
        self.assertIn("--status N", result.out)
        self.trained("alone", 0, "train.steps=1")
        env = dict(environment(), OMPI_MCA_pml="none_of_these", OMPI_MCA_ess="none_of_these")  # MPI can't start
        command = [program("bagpipe"), "status", self.at("alone")]
        self.assertEqual(subprocess.run(command, env=env, capture_output=True, check=False).returncode, 0)


if __name__ == "__main__":
    bagpipe_test.main()
