"""The life of a run: stopped and gone on with, finished, refused, diverged, started from another's weights."""
import math
import os
import shutil
import signal

import bagpipe_test
from bagpipe_test import JobTest, digests, events, metrics, program, run, steps


class Runs(JobTest):
    def start(self, name, *keys):
        """A job in the background, past its first metrics line."""
        process = self.background([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at(name)}"] + list(keys))
        self.until(lambda: self.trains(name), process)
        return process

    def test_second_job_on_a_run_folder_is_refused_and_names_the_first(self):
        process = self.start("held", "train.steps=100000")
        try:
            result = self.pretrain("held", 0, "train.steps=100000")
            self.assert_error(result, 69, "[lock.held]", str(process.pid))
        finally:
            process.kill()
            process.communicate()
        # its holder is dead for certain: the lock is taken at once, and not watched for a minute
        result = self.pretrain("held", 0, "train.steps=3")
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[lock.owner_unreachable]", times=0)

    def test_finished_run_exits_0_and_leaves_its_metrics(self):
        folder = self.trained("finished")
        before = metrics(folder)
        result = self.pretrain("finished")
        self.assertEqual(result.status, 0, str(result))
        self.assertIn("finished", result.out)
        self.assertEqual(before, metrics(folder))

    def test_more_steps_go_on_where_a_finished_run_ended(self):
        folder = self.trained("longer", 0, "optimizer.decay=constant", "train.steps=10")
        self.trained("longer", 0, "optimizer.decay=constant", "train.steps=20")
        straight = self.trained("straight", 0, "optimizer.decay=constant", "train.steps=20")
        self.assertEqual([line["step"] for line in metrics(folder)], list(range(1, 21)))
        self.assertEqual(digests(folder), digests(straight))

    def test_another_configuration_in_a_run_folder_is_78_with_both_values(self):
        self.trained("fixed", 0, "train.steps=2")
        result = self.pretrain("fixed", 0, "train.steps=2", "optimizer.lr=0.5", "model.dropout=0.25")
        self.assert_error(result, 78, "[run.other_keys]", "optimizer.lr", "0.5", "0.003", "model.dropout", "0.25", lines=2)
        self.assert_error(self.pretrain("fixed", 0, "train.steps=2", f"corpus.train={self.at('valid.h5')}"), 78, "[run.other_keys]",
                          f"corpus.train is {self.at('valid.h5')} (hash ", f"began with {self.at('train.h5')} (hash ")
        shutil.copy(self.at("valid.h5"), self.at("copy.h5"))
        self.trained("changed", 0, "train.steps=1", f"corpus.train={self.at('copy.h5')}")
        shutil.copy(self.at("train.h5"), self.at("copy.h5"))
        self.assert_error(self.pretrain("changed", 0, "train.steps=2", f"corpus.train={self.at('copy.h5')}"), 78, "[run.other_keys]",
                          "began with what was there then (hash ")

    def test_a_refused_rate_names_the_way_to_train_on(self):
        folder = self.trained("rate", 0, "train.steps=4")
        for key in ("optimizer.lr=0.001", "optimizer.min_lr=0.5", "train.batch=4", f"corpus.train={self.at('valid.h5')}"):
            result = self.pretrain("rate", 0, "train.steps=4", key)
            self.assert_error(result, 78, "[run.other_keys]", f"model.init={folder} run.dir=NEW")
        result = self.pretrain("rate", 0, "train.steps=4", "model.width=64")  # no weights of it would fit
        self.assert_error(result, 78, "[run.other_keys]", "model.width")
        self.assertNotIn("model.init", result.err)
        self.trained("slower", 0, "train.steps=2", "optimizer.lr=0.001", "optimizer.warmup=0", f"model.init={folder}")
        self.assertEqual(metrics(self.at("slower"))[0]["lr"], 0.001)
        self.assertLess(metrics(self.at("slower"))[0]["loss"], metrics(folder)[0]["loss"])

    def test_more_steps_stretch_the_schedule_and_say_so(self):
        def rate(step, steps):
            u = (step - 1 - 5) / (steps - 5)
            return 3e-3 * (1 + math.cos(math.pi * u)) / 2

        folder = self.trained("stretched", 0, "train.steps=10")
        result = self.pretrain("stretched", 2, "train.steps=30")
        self.assertEqual(result.status, 0, str(result))
        words = (f"stretched from 10 to 30 steps: the rate of step 11 is {rate(11, 30):.3g} and was {rate(10, 10):.3g} in the last step")
        with open(os.path.join(folder, "log.txt"), encoding="utf-8") as file:
            log = file.read()
        for text in (result.out, log):
            self.assertEqual(text.count(words), 1, text)
        self.assertEqual(result.err, "")  # no warning
        self.assertAlmostEqual(metrics(folder)[10]["lr"], rate(11, 30), delta=1e-12)
        for name, decay, count in (("same", "cosine", 10), ("fewer", "cosine", 8), ("flat", "constant", 30)):
            keys = ("checkpoint.every=2", f"optimizer.decay={decay}")
            killed = run(["env", "BP_FAULT=step.end:5=kill", program("bagpipe"), "pretrain", self.at("small.ini"),
                          f"run.dir={self.at(name)}", "train.steps=10"] + list(keys))
            self.assertEqual(killed.status, -signal.SIGKILL, str(killed))
            result = self.pretrain(name, 0, f"train.steps={count}", *keys)
            self.assertEqual(result.status, 0, str(result))
            self.assertIn("going on from step", result.out)
            self.assertNotIn("stretched", result.out)

    def test_corpora_are_compared_by_content(self):
        self.trained("content", 0, "train.steps=2")
        os.link(self.at("train.h5"), self.at("same.h5"))
        result = self.pretrain("content", 0, "train.steps=3", f"corpus.train={self.at('same.h5')}")
        self.assertEqual(result.status, 0, str(result))

    def test_run_folder_may_be_moved(self):
        self.trained("here", 0, "train.steps=3")
        os.rename(self.at("here"), self.at("there"))
        self.trained("there", 0, "train.steps=5")
        self.assertEqual(len(metrics(self.at("there"))), 5)

    def test_divergence_ends_with_70_and_no_state_that_is_not_finite_is_committed(self):
        result = self.pretrain("diverged", 0, "optimizer.kind=sgd", "optimizer.lr=900", "optimizer.warmup=0", "optimizer.clip=0",
                               "optimizer.weight_decay=100", "train.steps=300", "checkpoint.every=1000")
        self.assert_error(result, 70, "[training.diverged]")
        self.assertEqual(steps(self.at("diverged")), [])
        self.assertEqual(len(events(self.at("diverged"), "skipped")), 10)

    def test_init_takes_weights_alone(self):
        first = self.trained("first", 0, "train.steps=20")
        config = self.write("init.ini", "\n".join(line for line in self.config().split("\n")
                                                 if not line.startswith(("layers", "width", "heads", "context"))))
        result = run([program("bagpipe"), "pretrain", config, f"run.dir={self.at('second')}", f"model.init={first}", "train.steps=2"])
        self.assertEqual(result.status, 0, str(result))
        self.assertLess(metrics(self.at("second"))[0]["loss"], metrics(first)[0]["loss"] - 0.5)
        result = run([program("bagpipe"), "pretrain", config, f"run.dir={self.at('third')}", f"model.init={first}", "model.layers=3"])
        self.assert_error(result, 78, "[model.init_mismatch]", "model.layers")

    def test_tokenizer_travels_with_the_checkpoints(self):
        folder = self.trained("named_tokenizer", 2, "train.steps=1", f"tokenizer.path={self.at('tokenizer.json')}")
        folder = self.trained("with_tokenizer", 2, "train.steps=1")  # the corpus has it
        self.must(["bagpipe-data", "export", folder, "--out", self.at("exported")])
        for name in (os.path.join(folder, "checkpoints", steps(folder)[0], "tokenizer.json"), self.at("exported/tokenizer.json")):
            with open(name, "rb") as kept, open(self.at("tokenizer.json"), "rb") as given:
                self.assertEqual(kept.read(), given.read())

    def test_best_is_kept_besides(self):
        folder = self.trained("kept", 0, "train.steps=40", "train.valid_every=5", "checkpoint.every=10", "checkpoint.keep=1")
        best = os.readlink(os.path.join(folder, "checkpoints", "best"))
        lines = [line for line in metrics(folder) if "valid_loss" in line]
        lowest = min(lines, key=lambda line: line["valid_loss"])
        self.assertEqual(best, f"step-{lowest['step']:012d}")
        self.assertEqual(steps(folder)[-1], "step-000000000040")
        self.assertLessEqual(len(steps(folder)), 2)

    def test_a_rank_with_fewer_cores_than_threads_is_warned_about(self):
        core = str(min(os.sched_getaffinity(0)))
        command = ["taskset", "-c", core, program("bagpipe"), "pretrain", self.at("small.ini"), "train.steps=2"]
        few = run(command + [f"run.dir={self.at('few_cores')}", "math.threads=2"])
        self.assertEqual(few.status, 0, str(few))
        self.assert_warning(few, "[math.too_many_threads]", "1 for 2", "--cpus-per-task=2")
        enough = run(command + [f"run.dir={self.at('enough_cores')}"])
        self.assertEqual((enough.status, enough.err), (0, ""))

    def test_plan_says_memory_and_writes_nothing(self):
        result = self.pretrain("planned", 0, "--plan", "mesh.tensor=2", "mesh.pipeline=2", "mesh.data=2")
        self.assertEqual(result.status, 0, str(result))
        for word in ("parameters", "gradients", "optimizer", "activations", "total", "time estimated",
                     "pipeline 2 (1f1b, busy 80 % at most with 4 micro-batches)", "8 ranks of", "for the time on a cluster, give the same command on one of its nodes"):
            self.assertIn(word, result.out)
        self.assertFalse(os.path.exists(self.at("planned")))
        self.assertNotIn("holds a run", result.out)
        self.must(["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={self.at('begun-run')}", "train.steps=1"])
        self.assertIn("begun-run holds a run", self.pretrain("begun-run", 0, "--plan", "train.batch=64").out)

    def test_peak_stands_beside_the_plan(self):
        result = self.pretrain("peak", 0, "train.steps=2")
        self.assertRegex(result.out, r"memory: [\d.]+ MiB estimated, [\d.]+ MiB seen")


if __name__ == "__main__":
    bagpipe_test.main()
