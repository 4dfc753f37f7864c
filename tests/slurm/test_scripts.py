"""slurm/*.sbatch without Slurm: where a script finds launch.sh, with a scontrol and a squeue of the test's own, and what a start says."""
import glob
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

import bagpipe_test

SLURM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "slurm")
NAMES = ("pretrain", "score", "ensemble", "uncertainty", "bench", "ensemble-array", "sweep", "generate", "finetune", "job")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class Scripts(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="bp_scripts_")
        self.addCleanup(temporary.cleanup)
        self.folder = os.path.join(temporary.name, "with a blank")
        shutil.copytree(SLURM, os.path.join(self.folder, "tree", "slurm"))
        self.program("bagpipe", "[ $1 != requeue ] || { echo 'error: said again' >&2; echo \"no: $FAKE_NO\"; exit 1; }\n"
                                "echo 'error: said' >&2; exit ${FAKE_STATUS:-0}")
        self.program("scontrol", "[ \"$3\" = \"$FAKE_JOB\" ] || { echo '   Command=/other/one.sbatch x'; }\n"
                                 "echo \"   Requeue=${FAKE_REQUEUE:-1} Restarts=0\"; echo \"   Command=$FAKE_COMMAND a.ini b=c.sbatch\"")
        self.program("squeue", "date -d \"@$FAKE_END\" +%FT%T")

    def program(self, name, text):
        path = os.path.join(self.folder, "bin", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + text + "\n")
        os.chmod(path, 0o755)

    def batch(self, script="pretrain", left=7200, words=("x.ini", "run.dir=a run"), **more):
        """The script as Slurm runs it: a copy, somewhere else."""
        copy = os.path.join(self.folder, "spool", "slurm_script")
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        shutil.copy(os.path.join(self.folder, "tree", "slurm", script + ".sbatch"), copy)
        env = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "BAGPIPE_SLURM"))}
        programs = os.path.join(self.folder, "bin")
        env.update(PATH=programs + ":" + env["PATH"], BAGPIPE_BIN=programs, BAGPIPE_LAUNCH="env", SLURM_JOB_ID="9",
                   SLURM_JOB_NODELIST="n[1-2]", SLURM_SUBMIT_DIR=self.folder, FAKE_COMMAND="/nowhere/my.sh",
                   FAKE_END=str(int(time.time()) + left))
        env.update({"FAKE_JOB": "9", **more})
        return subprocess.run(["bash", copy, *words], capture_output=True, text=True, cwd=self.folder, env=env, check=False)

    def found(self, folder, **more):
        result = self.batch(**more)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(f"scripts {folder}\n", result.stdout)

    def test_all_scripts_share_one_text(self):
        self.assertEqual(sorted(os.path.basename(path)[:-7] for path in glob.glob(os.path.join(SLURM, "*.sbatch"))), sorted(NAMES))
        texts = {re.search(r"# ---- the same lines.*# ---- to here ----\n", read(os.path.join(SLURM, f"{name}.sbatch")), re.S).group(0)
                 for name in NAMES}
        self.assertEqual(len(texts), 1)

    def test_launcher_beside_the_script(self):
        tree = os.path.join(self.folder, "tree", "slurm")
        self.found(tree, FAKE_COMMAND=os.path.join(tree, "pretrain.sbatch"))

    def test_the_script_of_any_job_takes_its_name(self):
        tree = os.path.join(self.folder, "tree", "slurm")
        result = self.batch("job", words=("score", "x.ini", "run.dir=a run"), FAKE_COMMAND=os.path.join(tree, "job.sbatch"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("---- bagpipe score: ", result.stdout)
        self.assertIn("run folder a run;", result.stdout)

    def test_a_task_of_an_array_asks_for_itself(self):
        tree = os.path.join(self.folder, "tree", "slurm")
        result = self.batch("ensemble-array", FAKE_COMMAND=os.path.join(tree, "ensemble-array.sbatch"), FAKE_JOB="9_2",
                            SLURM_ARRAY_JOB_ID="9", SLURM_ARRAY_TASK_ID="2")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(f"scripts {tree}\n", result.stdout)

    def test_copied_script(self):
        result = self.batch()
        self.assertEqual(result.returncode, 66)
        self.assertIn("set BAGPIPE_SLURM", result.stderr)
        tree = os.path.join(self.folder, "tree", "slurm")
        self.found(tree, BAGPIPE_SLURM=tree)
        shutil.copytree(tree, os.path.join(self.folder, "slurm"))
        self.found(os.path.join(self.folder, "slurm"))
        result = self.batch(BAGPIPE_SLURM="/nowhere")  # is believed, or refused
        self.assertEqual(result.returncode, 66)
        self.assertIn("/nowhere", result.stderr)

    def test_installed_path(self):
        script = os.path.join(self.folder, "tree", "slurm", "pretrain.sbatch")
        there = os.path.join(self.folder, "prefix", "share")
        shutil.copytree(os.path.dirname(script), there)
        text = read(script)
        self.assertEqual(text.count("@installed_slurm@"), 1)
        with open(script, "w", encoding="utf-8") as file:
            file.write(text.replace("@installed_slurm@", there))
        self.found(there)

    def test_a_start_says_what_will_not_work(self):
        tree = os.path.join(self.folder, "tree", "slurm")
        result = self.batch(BAGPIPE_SLURM=tree)
        self.assertIn("Slurm job 9, restart 0, on n[1-2]", result.stdout)
        self.assertIn("run folder a run;", result.stdout)
        self.assertNotIn("warning", result.stderr)
        self.assertIn("--no-requeue", self.batch(BAGPIPE_SLURM=tree, FAKE_REQUEUE="0").stderr)
        self.assertIn("longer --time", self.batch(BAGPIPE_SLURM=tree, left=290).stderr)

    def test_tasks_of_one_thread_on_many_cores_are_warned_of(self):
        tree = os.path.join(self.folder, "tree", "slurm")
        nodes = {"BAGPIPE_SLURM": tree, "SLURM_CPUS_ON_NODE": "48"}
        self.assertIn("warning: 2 task(s) a node run one thread each on 48 cores: give sbatch --cpus-per-task=24\n", self.batch(SLURM_TASKS_PER_NODE="2(x4)", **nodes).stderr)
        self.assertIn("--cpus-per-task=12", self.batch(SLURM_NTASKS_PER_NODE="4", **nodes).stderr)
        self.assertNotIn("warning", self.batch(SLURM_NTASKS_PER_NODE="4", SLURM_CPUS_PER_TASK="12", **nodes).stderr)
        self.assertNotIn("warning", self.batch(SLURM_NTASKS_PER_NODE="48", **nodes).stderr)

    def test_examples_ask_for_cores(self):
        """An example that says how many nodes or tasks there are says how many cores a task has."""
        top = pathlib.Path(__file__).resolve().parents[2]
        wrong, right = [], 0
        for path in (top / "README.md", *(top / "docs").glob("*.md"), *(top / "slurm").glob("*.sbatch")):
            for line in path.read_text(encoding="utf-8").splitlines():
                if re.search(r"sbatch [^#]*--(nodes|array)\b[^#]*slurm/[\w-]+\.sbatch \S", line):
                    right += "--cpus-per-task" in line
                    wrong += [] if "--cpus-per-task" in line else [f"{path.name}: {line}"]
        self.assertEqual(wrong, [])
        self.assertGreater(right, 15)

    def test_errors_are_said_once(self):
        result = self.batch(BAGPIPE_SLURM=os.path.join(self.folder, "tree", "slurm"), FAKE_STATUS="78", FAKE_NO="78 stays")
        self.assertEqual(result.returncode, 78)
        self.assertEqual(result.stderr.count("error:"), 1, result.stderr)
        self.assertIn("not queued again: 78 stays", result.stdout)


if __name__ == "__main__":
    bagpipe_test.main()
