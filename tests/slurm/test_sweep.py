"""slurm/sweep.sh: the points of a grid and their folders, without Slurm; and what slurm/sweep.sbatch says to an array that does not fit."""
import os
import shlex
import subprocess
import tempfile
import unittest

import bagpipe_test

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class Sweep(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="bp_sweep_")
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name

    def sweep(self, *words, status=0):
        result = subprocess.run(["bash", os.path.join(TOP, "slurm", "sweep.sh"), *words], capture_output=True, text=True, cwd=self.folder,
                                check=False)
        self.assertEqual(result.returncode, status, result.stderr)
        return result

    def points(self, *words):
        """The words of each point; the last line is the command that submits them."""
        lines = self.sweep("x.ini", *words).stdout.splitlines()
        self.assertIn(f"{len(lines) - 1} points: sbatch --array=0-{len(lines) - 2} ", lines[-1])
        self.assertEqual(shlex.split(lines[-1])[-len(words):], list(words))
        found = [shlex.split(line) for line in lines[:-1]]
        self.assertEqual([point[0] for point in found], [str(k) for k in range(len(found))])
        return [point[1:] for point in found]

    def folders(self, *words):
        return [point[-1] for point in self.points(*words)]

    def test_keys_with_several_values_make_a_grid(self):
        self.assertEqual(self.points("run.dir=r", "optimizer.lr=1e-3,2e-3,3e-3", "train.steps=5", "run.seed=1,2"),
                         [[f"optimizer.lr={lr}", "train.steps=5", f"run.seed={seed}", f"run.dir=r/lr={lr}_seed={seed}"]
                          for lr in ("1e-3", "2e-3", "3e-3") for seed in (1, 2)])

    def test_a_comma_of_a_value_stands_behind_a_backslash(self):
        self.assertEqual(self.points("run.dir=r", r"corpus.train=a.h5\,b.h5,c.h5"),
                         [["corpus.train=a.h5,b.h5", "run.dir=r/train=a.h5_b.h5"], ["corpus.train=c.h5", "run.dir=r/train=c.h5"]])
        self.assertEqual(self.points("run.dir=r", r"corpus.valid=a\,b", "run.seed=1,2")[0][0], "corpus.valid=a,b")

    def test_folders_are_named_safely_and_distinct(self):
        self.assertEqual(self.folders("run.dir=r", "a.x=1,2", "b.x=3"), ["run.dir=r/x=1", "run.dir=r/x=2"])
        self.assertEqual(self.folders("run.dir=r", "a.x=1,2", "b.x=3,4")[0], "run.dir=r/a.x=1_b.x=3")
        self.assertEqual(self.folders("run.dir=r", "corpus.train=/a/b c.h5,../$(d)"), ["run.dir=r/train=_a_b_c.h5", "run.dir=r/train=..___d_"])
        self.assertEqual(self.folders("run.dir=r", "a.x=a/b,a_b"), ["run.dir=r/point-0", "run.dir=r/point-1"])
        self.assertEqual(self.folders("run.dir=r", "a.x=1," + "9" * 150), ["run.dir=r/point-0", "run.dir=r/point-1"])
        self.assertEqual(self.folders("run.dir=a folder/r", "a.x=1,2")[0], "run.dir=a folder/r/x=1")

    def test_run_dir_may_stand_in_the_configuration(self):
        for text, folder in (("[run]\ndir = runs/a ; here\n[corpus]\ndir = no\n", "runs/a"), ("run.dir=b\r\n", "b"),
                             ("# [run]\n[run]\nseed = 1\n  dir=c d\n", "c d")):
            with open(os.path.join(self.folder, "x.ini"), "w", encoding="utf-8") as file:
                file.write(text)
            self.assertEqual(self.folders("a.x=1,2")[0], f"run.dir={folder}/x=1")
        self.assertEqual(self.folders("run.dir=z", "a.x=1,2")[0], "run.dir=z/x=1")

    def test_what_is_no_grid_is_refused(self):
        for words, said in (([], "no configuration"), (["a.x=1,2"], "no configuration"), (["x.ini", "a.x=1,2"], "run.dir is not set"),
                            (["x.ini", "run.dir=a,b"], "run.dir has several values"), (["x.ini", "run.dir=r"], "no key has several values"),
                            (["x.ini", "run.dir=r", "a.x=1,,2"], "a.x has an empty value"), (["x.ini", "run.dir=r", "a.x=1,"], "empty value"),
                            (["x.ini", "run.dir=r", "a.x=1,2", "a.x=3"], "a.x is given twice"), (["x.ini", "fast"], "section.key=value")):
            with self.subTest(words=words):
                self.assertIn(said, self.sweep(*words, status=64).stderr)

    def batch(self, task, most, count, job="pretrain", script="sweep"):
        """The batch script as a task of an array, with a bagpipe that prints what it is called with."""
        for name, text in (("bagpipe", f"[ $1 = {job} ] || exit 1\nmkdir -p r/x=2\nprintf '%s\\n' \"$@\"\n"), ("bagpipe-data", "echo \"$@\"\n")):
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\n" + text)
            os.chmod(os.path.join(self.folder, name), 0o755)
        env = dict(os.environ, SLURM_JOB_ID="7", SLURM_ARRAY_JOB_ID="7", SLURM_ARRAY_TASK_ID=str(task), SLURM_ARRAY_TASK_MAX=str(most),
                   SLURM_ARRAY_TASK_COUNT=str(count), BAGPIPE_SLURM=os.path.join(TOP, "slurm"), BAGPIPE_BIN=self.folder, BAGPIPE_LAUNCH="env")
        return subprocess.run(["bash", os.path.join(TOP, "slurm", script + ".sbatch"), "x.ini", "run.dir=r", "a.x=1,2,3"], capture_output=True,
                              text=True, cwd=self.folder, env=env, check=False)

    def test_a_task_trains_its_point(self):
        result = self.batch(1, 2, 3)
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertEqual(lines[:1] + lines[3:], ["point 1 of 0-2: a.x=2 run.dir=r/x=2", "pretrain", "x.ini", "a.x=2", "run.dir=r/x=2",
                                                 "table of 1 of 3 points: r/table.csv"])
        self.assertIn("bagpipe pretrain: Slurm job 7_1, restart 0, on ", lines[1])
        self.assertIn("run folder r/x=2; programs ", lines[2])
        self.assertNotIn("sweep:", result.stderr)

    def test_an_array_of_fine_tunings_is_a_sweep_with_a_table(self):
        result = self.batch(1, 2, 3, "finetune", "finetune")
        self.assertEqual((result.returncode, result.stdout.splitlines()[3:]),
                         (0, ["finetune", "x.ini", "a.x=2", "run.dir=r/x=2", "table of 1 of 3 points: r/table.csv"]), result.stderr)
        with open(os.path.join(self.folder, "r", "table.csv"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "table r/x=2\n")

    def test_an_array_that_does_not_fit_names_the_right_one(self):
        for task in (0, 5):
            result = self.batch(task, 5, 6)
            self.assertEqual(result.returncode, 64)
            self.assertIn("--array=0-2", result.stderr)
            self.assertNotIn("pretrain", result.stdout)
        result = self.batch(1, 1, 1)
        self.assertEqual(result.returncode, 0)
        self.assertIn("all of them are --array=0-2", result.stderr)


if __name__ == "__main__":
    bagpipe_test.main()
