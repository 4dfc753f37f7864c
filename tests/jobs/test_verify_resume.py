"""bagpipe pretrain ... --verify-resume: proves that resume is exact, says so in one line, and leaves nothing behind."""
import glob
import os
import re
import signal

import bagpipe_test
from bagpipe_test import JobTest, program, run


class VerifyResume(JobTest):
    def verify(self, name, ranks, *keys, fault=None):
        command = [program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at(name)}"] + list(keys)
        if fault is None:
            return run(command, ranks)
        os.environ["BP_FAULT"] = fault
        try:
            return run(command, ranks)
        finally:
            del os.environ["BP_FAULT"]

    def left(self, name):
        return glob.glob(self.at(name) + "*")

    def verified(self, name, ranks, *keys, steps=12):
        result = self.verify(name, ranks, *keys)
        self.assertEqual(result.status, 0, str(result))
        line = result.out.strip().split("\n")[-1]
        match = re.fullmatch(rf"resume verified: {steps} steps straight, and (\d+) steps \+ kill -9 of rank (\d+) \+ resume on "
                             rf"{ranks or 1} ranks?, have equal bits \(digest [0-9a-f]{{12}}\.\.\.\)", line)
        self.assertIsNotNone(match, str(result))
        step, rank = int(match.group(1)), int(match.group(2))
        self.assertTrue(steps // 3 < step < steps, line)
        self.assertTrue(rank < max(ranks, 1), line)
        self.assertEqual(self.left(name), [])
        return rank

    def test_bare(self):
        self.verified("bare", 0, "--verify-resume")

    def test_two_data_ranks_and_three_steps(self):
        self.verified("data", 2, "--verify-resume=3", steps=3)

    def test_four_ranks_of_two_stages_and_two_tensor_ranks(self):
        self.verified("four", 4, "--verify-resume=6", "mesh.pipeline=2", "mesh.tensor=2", steps=6)

    def test_a_dedicated_coordinator_is_not_the_one_to_be_killed(self):
        rank = self.verified("dedicated", 2, "--verify-resume=3", "mesh.data=1", steps=3)
        self.assertEqual(rank, 1)

    def test_the_users_run_is_not_touched(self):
        folder = self.trained("own", 0, "train.steps=2")
        before = sorted((path, os.stat(path).st_mtime_ns) for path in glob.glob(folder + "/**", recursive=True))
        result = self.verify("own", 0, "--verify-resume=3")
        self.assertEqual(result.status, 0, str(result))
        self.assertEqual(before, sorted((path, os.stat(path).st_mtime_ns) for path in glob.glob(folder + "/**", recursive=True)))
        self.assertEqual(self.left("own"), [folder])

    def test_a_resume_that_changes_one_weight_is_told(self):
        for ranks, steps in ((0, 6), (2, 3)):
            name = f"broken{ranks}"
            result = self.verify(name, ranks, f"--verify-resume={steps}", fault="train.flip_loaded")
            self.assertEqual(result.status, 70, str(result))
            self.assertRegex(result.err, r"resume is not exact: (loss|grad_norm) is [0-9.]+ without the kill, [0-9.]+ with it: at step")
            self.assertEqual(result.err.count("error["), 1, result.err)
            kept = self.left(name)
            self.assertEqual(len(kept), 1, kept)
            self.assertIn(kept[0], result.err)
            self.assertEqual(sorted(os.listdir(kept[0])), ["killed", "output.txt", "straight"])
            with open(kept[0] + "/killed/config.ini", encoding="utf-8") as file:
                self.assertIn("behind = yes\n", file.read())  # as the user's run writes them

    def test_a_training_that_fails_is_told_in_its_own_words(self):
        result = self.verify("failing", 2, "--verify-resume", f"corpus.train={self.at('missing.h5')}")
        self.assertEqual(result.status, 66, str(result))
        self.assertIn("missing.h5", result.err)
        self.assertEqual(self.left("failing"), [])

    def test_steps_that_make_no_sense_are_a_wrong_command_line(self):
        for word in ("--verify-resume=2", "--verify-resume=", "--verify-resume=x"):
            result = self.verify("usage", 0, word)
            self.assertEqual(result.status, 64, str(result))
        result = run([program("bagpipe"), "score", self.at("small.ini"), "--verify-resume"])
        self.assertEqual(result.status, 64, str(result))

    def signalled(self, name, ranks, number):
        """Sent once the first training is at work."""
        command = [program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at(name)}", "--verify-resume=100000"]
        process = self.background(command, ranks)
        self.until(lambda: glob.glob(self.at(name + ".verify-*/straight/metrics.jsonl")), process)
        self.assertEqual(len(self.left(name)), 1)
        process.send_signal(number)
        _, err = process.communicate()
        self.assertEqual(process.returncode, 75, err)
        self.assertIn("bagpipe: stopped: ", err)
        self.assertEqual(self.left(name), [])

    def test_a_signal_ends_it_and_leaves_nothing(self):
        self.signalled("usr1", 2, signal.SIGUSR1)
        self.signalled("int", 0, signal.SIGINT)  # mpirun hands no INT on: it ends its ranks within a second


if __name__ == "__main__":
    bagpipe_test.main()
