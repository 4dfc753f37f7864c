"""jobs/verify_resume.sh: proves that resume is exact, says so in one line, and leaves nothing behind."""
import glob
import os
import re
import signal
import subprocess

import bagpipe_test
from bagpipe_test import TIMEOUT, JobTest, environment, program, run

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../jobs/verify_resume.sh")


class VerifyResume(JobTest):
    def start(self, name, ranks, *keys, steps="12", **variables):
        launch = f"sh {bagpipe_test.MPIRUN} {ranks}" if ranks else ""
        variables = {"BAGPIPE_BIN": os.path.dirname(program("bagpipe")), "BAGPIPE_LAUNCH": launch, "STEPS": steps, **variables}
        return subprocess.Popen(["bash", SCRIPT, self.at("small.ini"), f"run.dir={self.at(name)}", *keys], text=True,
                                env={**environment(), **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def verify(self, name, ranks, *keys, **variables):
        process = self.start(name, ranks, *keys, **variables)
        out, err = process.communicate(timeout=TIMEOUT)
        return process.returncode, out, err

    def left(self, name):
        return glob.glob(self.at(name) + "*")

    def verified(self, name, ranks, *keys, steps=12):
        status, out, err = self.verify(name, ranks, *keys, steps=str(steps))
        self.assertEqual(status, 0, out + err)
        line = out.strip().split("\n")[-1]
        match = re.fullmatch(rf"resume verified: {steps} steps straight, and (\d+) steps \+ kill -9 of rank (\d+) \+ resume on "
                             rf"{ranks or 1} rank\(s\), have equal bits \(digest [0-9a-f]{{12}}\.\.\.\)", line)
        self.assertIsNotNone(match, out + err)
        step, rank = int(match.group(1)), int(match.group(2))
        self.assertTrue(steps // 3 < step < steps, line)
        self.assertTrue(rank < max(ranks, 1), line)
        self.assertEqual(self.left(name), [])
        return rank

    def test_two_data_ranks_and_three_steps(self):
        self.verified("data", 2, steps=3)

    def test_four_ranks_of_two_stages_and_two_tensor_ranks(self):
        self.verified("four", 4, "mesh.pipeline=2", "mesh.tensor=2", steps=6)

    def test_a_dedicated_coordinator_is_not_the_one_to_be_killed(self):
        self.assertEqual(self.verified("dedicated", 2, "mesh.data=1", steps=3), 1)

    def test_epochs_are_counted_in_its_own_steps(self):
        self.verified("epochs", 0, "train.epochs=5", steps=5)

    def test_the_users_run_is_not_touched(self):
        folder = self.trained("own", 0, "train.steps=2")
        before = sorted((path, os.stat(path).st_mtime_ns) for path in glob.glob(folder + "/**", recursive=True))
        status, out, err = self.verify("own", 0, steps="3")
        self.assertEqual(status, 0, out + err)
        self.assertEqual(before, sorted((path, os.stat(path).st_mtime_ns) for path in glob.glob(folder + "/**", recursive=True)))
        self.assertEqual(self.left("own"), [folder])

    def test_a_resume_that_changes_one_weight_is_reported(self):
        status, out, err = self.verify("broken", 2, steps="3", BP_FAULT="train.flip_loaded")
        self.assertEqual(status, 70, out + err)
        kept = self.left("broken")
        self.assertEqual(len(kept), 1, kept)
        said = [line for line in err.splitlines() if line.startswith("verify_resume: error[70]: ")]  # of the script: it has no identifiers
        self.assertEqual((len(said), err.count("error[")), (1, 1), err)
        self.assertRegex(said[0], r'"step": ?\d+.*"step": ?\d+')
        self.assertIn(kept[0], said[0])
        with open(kept[0] + "/killed/config.ini", encoding="utf-8") as file:
            self.assertIn("async = yes\n", file.read())  # as the user's run writes them

    def test_a_training_that_fails_is_reported_in_its_own_words(self):
        status, out, err = self.verify("failing", 2, f"corpus.train={self.at('missing.h5')}")
        self.assertEqual(status, 66, out + err)
        self.assertRegex(err, r"missing\.h5.*\[file\.missing\]")
        self.assertEqual(self.left("failing"), [])

    def test_a_wrong_command_line_is_reported(self):
        for steps in ("2", "x", "-3"):
            self.assertEqual(self.verify("usage", 0, steps=steps)[0], 64)
        self.assertEqual(self.verify("usage", 0, "word")[0], 64)
        self.assertEqual(self.left("usage"), [])

    def test_the_option_points_at_the_script(self):
        result = run([program("bagpipe"), "pretrain", self.at("small.ini"), "--verify-resume=3"])
        self.assert_error(result, 64, "[command.is_script]", "jobs/verify_resume.sh")

    def test_a_signal_ends_it_and_leaves_nothing(self):
        for name, ranks, number in (("usr1", 2, signal.SIGUSR1), ("int", 0, signal.SIGINT)):
            process = self.start(name, ranks, steps="100000")
            self.until(lambda name=name: glob.glob(self.at(name + ".verify-*/straight/metrics.jsonl")), process)
            process.send_signal(number)
            _, err = process.communicate(timeout=TIMEOUT)
            self.assertEqual(process.returncode, 75, err)
            self.assertIn("stopped: ", err)
            self.assertEqual(self.left(name), [])


class CompareCheckpoints(JobTest):
    def compare(self, a, b, status, *words):
        result = run([program("bagpipe-data"), "compare", a, b])
        self.assert_error(result, status, *words) if status else self.assertEqual(result.status, 0, str(result))
        return result

    def test_equal_ones_of_two_meshes_and_one_that_differs(self):
        one, two = self.trained("one", 0, "train.steps=4"), self.trained("two", 2, "train.steps=4")
        other = self.trained("other", 0, "train.steps=4", "run.seed=2")
        step = "/checkpoints/step-000000000004"
        self.assertIn("equal to the bit", self.compare(one, two + step, 0).out)
        self.compare(one, other, 65, "[compare.other_tensor]", "scoring one corpus with both")
        self.compare(one, self.trained("llama", 0, "train.steps=4", "model.kind=llama"), 65, "[compare.other_kind]", "gpt", "llama")
        wider = self.trained("wider", 0, "train.steps=4", "model.width=64")
        self.compare(one, wider, 65, "[compare.other_shape]")
        bare = self.at("bare")  # without the optimizer's tensors
        self.must(["bagpipe-data", "export", one, "--out", self.at("exported")])
        self.must(["bagpipe-data", "import", self.at("exported"), "--out", bare])
        for pair in ((one, bare), (bare, one)):
            self.assertIn(f"weights alone, as only one has the optimizer's state: {one}", self.compare(*pair, 0).out)
        self.compare(bare, other, 65, "[compare.other_tensor]")
        still = ("train.steps=1", "optimizer.lr=1e-30", "model.kind=llama")  # initial values, which names decide
        pair = [self.trained(f"tied-{tied}", 0, *still, f"model.tied={tied}") for tied in ("yes", "no")]
        self.must(["bagpipe-data", "export", pair[0], "--out", self.at("exported-tied")])
        self.must(["bagpipe-data", "import", self.at("exported-tied"), "--out", self.at("bare-tied")])
        for sides in ((pair[1], self.at("bare-tied")), (self.at("bare-tied"), pair[1])):
            self.compare(*sides, 65, "[compare.tensor_missing]", self.at("bare-tied"))
        shard = glob.glob(two + step + "/shard-*")[0]
        with open(shard, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_END)
            file.write(bytes([byte ^ 1]))
        self.compare(one, two + step, 65, "[checkpoint.damaged]")
        self.compare(one, self.at("nowhere"), 66, "[scores.missing]")


if __name__ == "__main__":
    bagpipe_test.main()
