"""How fast a training learns and how long it goes on: least rate, epochs, patience; and what it leaves for TensorBoard."""
import glob
import json
import math
import os
import re
import signal
import struct
import time

import h5py

import bagpipe_test
import tfevents
from bagpipe_test import JobTest, digests, events, metrics, program, read_json, run, state_of, steps, timeless


class Rates(JobTest):
    TEXT_BYTES = 60_000

    def test_a_key_is_read_by_the_name_that_it_had(self):
        run_dir = self.trained("old_key", 0, "checkpoint.behind=no", "train.steps=2")
        with open(os.path.join(run_dir, "config.ini"), encoding="utf-8") as file:
            text = file.read()
        self.assertRegex(text, r"(?m)^async = no$")
        self.assertNotIn("behind", text)
        result = self.pretrain("old_key", 0, "checkpoint.behind=no", "train.steps=2")
        self.assertIn("finished", result.out + result.err)

    def test_decay_ends_at_the_least_rate(self):
        for decay in ("cosine", "linear", "constant"):
            folder = self.trained(decay, 0, f"optimizer.decay={decay}", "optimizer.min_lr=0.2")
            for line in metrics(folder):
                step, u = line["step"], (line["step"] - 1 - 5) / (20 - 5)
                share = {"cosine": (1 + math.cos(math.pi * u)) / 2, "linear": 1 - u, "constant": 1}[decay]
                wanted = 3e-3 * (step / 5 if step <= 5 else 0.2 + 0.8 * share)
                self.assertAlmostEqual(line["lr"], wanted, delta=1e-15)
        self.assertEqual(digests(self.trained("all", 0, "optimizer.min_lr=1")), digests(self.at("constant")))

    def test_it_is_a_share(self):
        for value in ("-0.1", "1.1"):
            self.assertEqual(self.pretrain("refused", 0, f"optimizer.min_lr={value}").status, 78)


class Epochs(JobTest):
    TEXT_BYTES = 60_000

    @classmethod
    def config(cls):
        return super().config().replace("steps = 20\n", "")

    def each(self, batch=8):
        """Steps of an epoch: by the corpus, without a bag."""
        with h5py.File(self.at("train.h5")) as file:
            tokens = len(file["tokens"])
        return max(1, (tokens - 1) // 32 // batch)

    def test_steps_are_epochs_of_the_corpus(self):
        each = self.each()
        for ranks, epochs, keys in ((0, 0.05, ()), (2, 0.11, ()), (0, 0.05, ("corpus.resample=bag",)), (0, 1e-6, ())):
            with self.subTest(ranks=ranks, epochs=epochs, keys=keys):
                name = f"epochs-{ranks}-{epochs}-{len(keys)}"
                folder = self.trained(name, ranks, f"train.epochs={epochs}", *keys)
                wanted = max(1, round(epochs * each))
                self.assertEqual(metrics(folder)[-1]["step"], wanted)
                self.assertEqual(read_json(folder, "run.json")["steps"], wanted)
                with open(os.path.join(folder, "log.txt"), encoding="utf-8") as file:
                    self.assertRegex(file.read(), rf"train.epochs = \S+: {wanted} steps")
        few = self.trained("few", 0, "train.epochs=3", "train.batch=8192")  # more than an epoch has
        self.assertEqual(metrics(few)[-1]["step"], 3)

    def test_as_many_steps_have_the_same_bits(self):
        wanted = round(0.05 * self.each())
        epochs = self.trained("by_epochs", 0, "train.epochs=0.05")
        count = self.trained("by_steps", 0, f"train.steps={wanted}")
        self.assertEqual(digests(epochs), digests(count))
        self.assertEqual(timeless(metrics(epochs)), timeless(metrics(count)))

    def test_the_configuration_keeps_what_was_given_and_may_be_given_again(self):
        folder = self.trained("kept", 0, "train.epochs=0.05")
        with open(os.path.join(folder, "config.ini"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn("\nepochs = 0.05\n", text)
        self.assertIn("\n; steps =\n", text)
        result = run([program("bagpipe"), "pretrain", os.path.join(folder, "config.ini")])
        self.assertEqual(result.status, 0, str(result))
        self.assertIn("the run is finished", result.out)

    def test_a_resume_may_change_from_steps_to_epochs_and_back(self):
        constant, each = "optimizer.decay=constant", self.each()
        folder = self.trained("changed", 0, "train.steps=2", constant)
        self.trained("changed", 0, "train.epochs=0.05", constant)
        self.assertEqual(metrics(folder)[-1]["step"], round(0.05 * each))
        self.trained("changed", 0, f"train.steps={round(0.05 * each) + 2}", constant)
        straight = self.trained("straight", 0, f"train.steps={round(0.05 * each) + 2}", constant)
        self.assertEqual(digests(folder), digests(straight))

    def test_exactly_one_of_steps_and_epochs(self):
        for keys, words in (((), ("[config.missing_key]", "train.steps", "train.epochs")),
                            (("train.steps=3", "train.epochs=2"), ("[config.exclusive_keys]", "train.steps = 3", "train.epochs = 2")),
                            (("train.epochs=0",), ("[train.no_epochs]", "train.epochs")),
                            (("train.epochs=-1",), ("[config.bad_value]", "train.epochs"))):
            for ranks in (0, 2):
                with self.subTest(keys=keys, ranks=ranks):
                    self.assert_error(self.pretrain("refused", ranks, *keys), 78, *words)
        self.assertFalse(os.path.exists(self.at("refused")))
        unset = self.pretrain("unset", 0, "train.steps=3", "train.epochs=2", "train.epochs=")
        self.assertEqual(unset.status, 0, str(unset))

    def test_plan_and_status_count_with_them(self):
        wanted = round(0.05 * self.each())
        result = self.pretrain("planned", 0, "train.epochs=0.05", "--plan")
        self.assertEqual(result.status, 0, str(result))
        self.assertIn(f"{wanted} steps", result.out)
        folder = self.trained("reported", 0, "train.epochs=0.05")
        status = json.loads(run([program("bagpipe"), "status", "--json", folder]).out)
        self.assertEqual((status["step"], status["steps"], status["progress"]), (wanted, wanted, 1))

    def test_members_of_an_ensemble_have_the_same_steps(self):
        wanted = round(0.05 * self.each())
        command = [program("bagpipe"), "ensemble", self.at("small.ini"), f"run.dir={self.at('many')}", "ensemble.members=3",
                   "ensemble.kind=both", "mesh.members=2", "train.epochs=0.05"]
        for _ in range(2):  # the second time it is finished
            result = run(command, 2)
            self.assertEqual(result.status, 0, str(result))
            for k in range(3):
                self.assertEqual(steps(self.at(f"many/members/m{k:02}"))[-1], f"step-{wanted:012d}")
        self.assertIn("the ensemble is finished", result.out)
        self.assertEqual(read_json(self.at("many"), "run.json")["steps"], wanted)
        status = json.loads(run([program("bagpipe"), "status", "--json", self.at("many")]).out)
        self.assertEqual((status["members_finished"], status["progress"]), (3, 1))
        longer = run(command + ["train.epochs=0.07"], 2)
        self.assertEqual(longer.status, 0, str(longer))
        self.assertIn(f"stretched from {wanted} to {round(0.07 * self.each())} steps", longer.out)
        plan = run(command + ["--plan"])
        self.assertEqual(plan.status, 0, str(plan))
        self.assertIn(f"{wanted} steps", plan.out)


class Patience(JobTest):
    TEXT_BYTES = 60_000
    FLAT = ("optimizer.lr=0", "train.valid_every=2")  # all validations have one loss: the first one stays the best

    def ended(self, folder):
        """Step, steps, and the reason of a finished run."""
        record = read_json(folder, "run.json")
        self.assertEqual(record["exit"]["state"], "finished")
        return metrics(folder)[-1]["step"], record["steps"], record["exit"].get("reason")

    def test_the_run_ends_after_so_many_validations_without_a_new_best(self):
        for ranks, keys in ((0, ()), (2, ()), (3, ("mesh.data=2",)), (2, ("mesh.pipeline=2",)), (2, ("checkpoint.async=no",))):
            with self.subTest(ranks=ranks, keys=keys):
                name = f"flat-{ranks}-{'-'.join(keys)}"
                result = self.pretrain(name, ranks, "train.patience=2", *self.FLAT, *keys)
                self.assertEqual(result.status, 0, str(result))
                folder = self.at(name)
                self.assertEqual(self.ended(folder), (6, 20, "patience"))
                self.assertIn("after 2 validations without a new best", result.out)
                self.assertEqual(steps(folder)[-1], "step-000000000006")
                self.assertEqual(os.readlink(os.path.join(folder, "checkpoints", "best")), "step-000000000002")
                (event,) = events(folder, "patience")
                self.assertEqual((event["step"], event["validations"], event["best_step"]), (6, 2, 2))
                self.assertEqual(event["best_valid_loss"], metrics(folder)[1]["valid_loss"])
                self.assertEqual(events(folder, "closed")[-1]["reason"], "patience")

    def test_the_screen_names_the_best_step_and_no_other(self):
        for patience in ("1", "2"):
            result = self.pretrain(f"best-{patience}", 0, f"train.patience={patience}", "optimizer.lr=0", "train.valid_every=5", "train.log_every=10")
            self.assertEqual(result.status, 0, str(result))
            self.assertLessEqual(set(re.findall(r"committed (?:step )?(\d+) \((?:the )?best", result.out)), {"5"}, result.out)
            self.assertRegex(result.out, rf"(?m)^committed step {5 + 5 * int(patience)}$")

    def test_the_same_command_has_nothing_to_do_and_a_larger_patience_goes_on(self):
        folder = self.trained("longer", 0, "train.patience=2", *self.FLAT)
        before = metrics(folder)
        result = self.pretrain("longer", 0, "train.patience=2", *self.FLAT)
        self.assertEqual(result.status, 0, str(result))
        self.assertIn("finished", result.out)
        self.assertEqual(self.ended(folder), (6, 20, "patience"))
        self.assertEqual(len(events(folder, "patience")), 1)
        self.assertEqual(metrics(folder), before)
        status = run([program("bagpipe"), "status", folder])
        self.assertIn("finished (patience)", status.out)
        self.assertIn("a larger train.patience goes on", status.out)
        self.trained("longer", 0, "train.patience=4", *self.FLAT)
        self.assertEqual(self.ended(folder), (10, 20, "patience"))
        self.assertEqual(timeless(metrics(folder))[:6], timeless(before))
        self.trained("longer", 0, *self.FLAT)
        self.assertEqual(self.ended(folder), (20, 20, None))

    def test_validations_are_counted_across_starts(self):
        keys = ("train.patience=3", "checkpoint.every=1", "checkpoint.async=no") + self.FLAT
        whole = self.trained("at_once", 0, *keys)
        self.assertEqual(self.ended(whole), (8, 20, "patience"))
        for fault in ("step.end:5=kill", "step.end:6=kill", "ckpt.rename:8=kill"):  # behind 2 validations, 3, and before the last commit
            with self.subTest(fault=fault):
                name = f"parts-{fault[:11]}"
                killed = run(["env", f"BP_FAULT={fault}", program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at(name)}"] +
                             list(keys))
                self.assertEqual(killed.status, -signal.SIGKILL, str(killed))
                folder = self.trained(name, 0, *keys)
                self.assertEqual(self.ended(folder), (8, 20, "patience"))
                self.assertEqual(digests(folder), digests(whole))
                self.assertEqual(timeless(metrics(folder)), timeless(metrics(whole)))
        other = self.trained("two_ranks", 0, "train.patience=3", "train.steps=4", *self.FLAT)
        self.trained("two_ranks", 2, "train.patience=3", *self.FLAT)
        self.assertEqual(self.ended(other), (8, 20, "patience"))

    def test_a_better_validation_starts_the_count_anew(self):
        folder = self.trained("learns", 0, "train.patience=2", "train.valid_every=1", "optimizer.lr=0.1", "train.steps=60")
        best, stale, wanted = math.inf, 0, None
        for line in metrics(folder):
            stale = 0 if line["valid_loss"] < best else stale + 1
            best = min(best, line["valid_loss"])
            if stale == 2:
                wanted = line["step"]
                break
        self.assertEqual(wanted, metrics(folder)[-1]["step"])
        self.assertGreater(wanted, 3)
        self.assertEqual(state_of(folder)["validations_since_best"], 2)

    def test_it_needs_validations(self):
        for keys, words in ((("train.patience=2",), ("[train.no_validation]", "train.valid_every")),
                            (("train.patience=2", "train.valid_every=2", "corpus.valid="), ("[train.no_validation]", "corpus.valid")),
                            (("train.patience=-1",), ("[config.bad_value]", "train.patience"))):
            self.assert_error(self.pretrain("refused", 0, *keys), 78, *words)

    def test_members_end_each_by_itself(self):
        keys = ["ensemble.members=4", "ensemble.kind=both", "train.patience=1", "train.valid_every=1", "train.steps=60", "train.batch=2",
                "optimizer.lr=0.03", "optimizer.decay=constant", "optimizer.warmup=0"]  # noise ends them
        command = [program("bagpipe"), "ensemble", self.at("small.ini"), f"run.dir={self.at('many')}"] + keys
        result = run(command)
        self.assertEqual(result.status, 0, str(result))
        members = [self.at(f"many/members/m{k:02}") for k in range(4)]
        last = [self.ended(folder)[0] for folder in members]
        self.assertGreater(len(set(last)), 1, "all members end at one step: the test shows nothing")
        self.assertEqual([self.ended(folder)[2] for folder in members], ["patience" if step < 60 else None for step in last])
        lines = metrics(self.at("many"))
        self.assertEqual([line["step"] for line in lines], list(range(1, max(last) + 1)))
        for line in lines:
            self.assertEqual(sorted(line["loss"]), [f"m{k:02}" for k in range(4) if last[k] >= line["step"]])
        self.assertEqual([member["name"] for member in read_json(self.at("many"), "ensemble.json")["members"]], ["m00", "m01", "m02", "m03"])
        again = run(command)
        self.assertEqual(again.status, 0, str(again))
        self.assertIn("the ensemble is finished", again.out)
        status = json.loads(run([program("bagpipe"), "status", "--json", self.at("many")]).out)
        self.assertEqual((status["state"], status["members_finished"], status["progress"]), ("finished", 4, 1))


TAGS = ("loss", "valid_loss", "lr", "grad_norm", "tokens_per_second", "mfu")


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


class TensorBoard(JobTest):
    TEXT_BYTES = 60_000
    KEYS = ("train.tensorboard=yes", "optimizer.decay=constant", "train.valid_every=2")

    def files(self, folder):
        return sorted(glob.glob(os.path.join(folder, "tensorboard", "*")))

    def figures(self, folder):
        """{tag: [(step, value)]} of metrics.jsonl, rounded to what an event holds."""
        return {tag: [(line["step"], float32(line[tag])) for line in metrics(folder) if line.get(tag) is not None] for tag in TAGS}

    def shown(self, folder):
        return {tag: tfevents.curve(self.files(folder), tag) for tag in TAGS}

    def test_it_has_the_figures_of_the_metrics(self):
        for ranks, keys in ((0, ()), (2, ()), (3, ("mesh.data=2",))):
            with self.subTest(ranks=ranks):
                folder = self.trained(f"figures-{ranks}", ranks, "train.steps=6", *self.KEYS, *keys)
                (path,) = self.files(folder)
                self.assertRegex(os.path.basename(path), r"^events\.out\.tfevents\.\d{10}\.\S+$")
                reported = tfevents.events(path)
                self.assertEqual((reported[0]["version"], reported[0]["step"]), ("brain.Event:2", 0))
                self.assertEqual((reported[1]["start"], reported[1]["step"]), (True, 1))
                self.assertEqual(len(reported), 2 + 6)
                self.assertTrue(all(abs(event["time"] - time.time()) < 3600 for event in reported))
                self.assertEqual(self.shown(folder), self.figures(folder))
                self.assertEqual(len(self.shown(folder)["valid_loss"]), 3)

    def test_protoc_reads_the_same(self):
        if not tfevents.has_protoc():
            self.skipTest("there is no protoc")
        (path,) = self.files(self.trained("decoded", 0, "train.steps=4", *self.KEYS))
        for one, other in zip(tfevents.events(path), tfevents.events(path, tfevents.by_protoc), strict=True):
            self.assertAlmostEqual(one.pop("time"), other.pop("time"), delta=1e-3)
            self.assertEqual(one, other)

    def test_a_resume_drops_the_steps_that_are_done_again(self):
        keys = ("checkpoint.every=4", "checkpoint.async=no") + self.KEYS
        killed = run(["env", "BP_FAULT=step.end:7=kill", program("bagpipe"), "pretrain", self.at("small.ini"),
                      f"run.dir={self.at('again')}"] + list(keys))
        self.assertEqual(killed.status, -signal.SIGKILL, str(killed))
        folder = self.at("again")
        self.assertEqual([step for step, _ in self.shown(folder)["loss"]], [1, 2, 3, 4, 5, 6, 7])
        self.trained("again", 0, "train.steps=9", *keys)  # at once: within the same second, maybe
        first, second = self.files(folder)
        start = tfevents.events(second)[1]["step"]
        self.assertIn(start, (5, 7))  # a validated step that is the best so far is committed too
        self.assertEqual([event["step"] for event in tfevents.events(second)[2:]], list(range(start, 10)))
        self.assertEqual(len(tfevents.events(first)), 2 + 7)
        self.assertEqual(self.shown(folder), self.figures(folder))
        self.trained("again", 0, "train.steps=9", *keys)  # finished
        self.assertEqual(self.files(folder), [first, second])

    def test_only_where_it_is_asked_for(self):
        folder = self.trained("later", 0, "train.steps=2", *self.KEYS[1:])
        self.assertEqual(self.files(folder), [])
        self.trained("later", 0, "train.steps=4", *self.KEYS)  # the key may change
        self.assertEqual([step for step, _ in self.shown(folder)["loss"]], [3, 4])
        self.assertEqual(digests(folder), digests(self.trained("never", 0, "train.steps=4", *self.KEYS[1:])))

    def test_members_have_their_own(self):
        result = run([program("bagpipe"), "ensemble", self.at("small.ini"), f"run.dir={self.at('many')}", "ensemble.members=2",
                      "train.steps=3"] + list(self.KEYS))
        self.assertEqual(result.status, 0, str(result))
        for k in range(2):
            folder = self.at(f"many/members/m{k:02}")
            self.assertEqual(self.shown(folder), self.figures(folder))
        self.assertEqual(self.files(self.at("many")), [])

    def test_a_file_that_cannot_be_written_ends_the_run_as_metrics_do(self):
        result = run(["env", "BP_FAULT=metrics.append_half:7", program("bagpipe"), "pretrain", self.at("small.ini"),
                      f"run.dir={self.at('half')}"] + list(self.KEYS))  # behind 2 events, a start, the first step's 2, a line
        self.assert_error(result, 74, "[file.io_error]", "tensorboard")
        reported = tfevents.events(self.files(self.at("half"))[0])  # whole records alone
        self.assertEqual([event["step"] for event in reported], [0, 1, 1])
        folder = self.trained("half", 0, *self.KEYS)
        self.assertEqual(self.shown(folder), self.figures(folder))
        os.mkdir(self.at("taken"))
        self.write("taken/tensorboard", "a file")
        result = self.pretrain("taken", 2, *self.KEYS)
        self.assert_error(result, 73, "[file.in_the_way]", "tensorboard")


if __name__ == "__main__":
    bagpipe_test.main()
