"""What a training reads: bags, and corpora with weights."""
import os

import h5py

import bagpipe_test
from bagpipe_test import JobTest, digests, edit_manifest, metrics, program, read_json, run, state_of, steps


class Bags(JobTest):
    TEXT_BYTES = 60_000
    KEYS = ("corpus.resample=bag", "optimizer.decay=constant")

    def test_a_run_with_bags_of_version_1_does_not_go_on(self):
        folder = self.trained("older", 0, "train.steps=3", *self.KEYS)
        self.assertEqual(state_of(folder)["bag_version"], 2)
        edit_manifest(os.path.join(folder, "checkpoints", steps(folder)[-1]), lambda manifest: manifest["state"].pop("bag_version"))
        before = digests(folder)
        result = self.pretrain("older", 0, "train.steps=3", *self.KEYS)
        self.assertEqual(result.status, 0, str(result))  # it is finished, whatever its bag
        self.assertIn("finished", result.out)
        for ranks in (0, 2):
            result = self.pretrain("older", ranks, "train.steps=6", *self.KEYS)
            self.assert_error(result, 78, "[run.other_bag]", "run.dir", "older")
            self.assertEqual(digests(folder), before)

    def test_members_of_an_ensemble_with_bags_of_version_1_do_not_go_on(self):
        command = [program("bagpipe"), "ensemble", self.at("small.ini"), f"run.dir={self.at('many')}", "ensemble.members=2",
                   "ensemble.kind=bag", "optimizer.decay=constant"]
        self.assertEqual(run(command + ["train.steps=2"]).status, 0)
        step = os.path.join(self.at("many/members/m01/checkpoints"), steps(self.at("many/members/m01"))[-1])
        edit_manifest(step, lambda manifest: manifest["state"].pop("bag_version"))
        self.assertEqual(run(command + ["train.steps=2"]).status, 0)
        self.assert_error(run(command + ["train.steps=4"]), 78, "[run.other_bag]", "m01")

    def test_a_run_with_bags_goes_on_with_the_same_bits(self):
        folder = self.trained("parts", 0, "train.steps=3", *self.KEYS)
        self.trained("parts", 0, "train.steps=6", *self.KEYS)
        self.assertEqual(digests(folder), digests(self.trained("at_once", 0, "train.steps=6", *self.KEYS)))

    def test_without_bags_no_checkpoint_names_a_version(self):
        self.assertNotIn("bag_version", state_of(self.trained("plain", 0, "train.steps=1")))


class BagsWithWeights(JobTest):
    TEXT_BYTES = 60_000

    def test_a_bag_that_lacks_a_file_is_reported_before_any_member_trains(self):
        with open(self.at("train.txt"), encoding="utf-8") as file:
            lines = file.readlines()
        for name, part in (("many", lines[:-2]), ("few", lines[-2:])):
            self.write(f"{name}.txt", "".join(part))
            self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "lines", "--out",
                       self.at(f"{name}.h5"), self.at(f"{name}.txt")])
        # of two documents among hundreds a bag has none with probability exp(-2): of 40 members some lack both
        result = run([program("bagpipe"), "ensemble", self.at("small.ini"), f"run.dir={self.at('lacking')}", "ensemble.members=40",
                      f"corpus.train={self.at('many.h5')},{self.at('few.h5')}", "corpus.weights=1,1", "model.context=4"])
        self.assert_error(result, 65, "[corpus.too_short]", "few.h5", "run.seed")
        self.assertFalse(os.path.exists(self.at("lacking/members")))


class Weights(JobTest):
    TEXT_BYTES = 60_000

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(cls.at("train.txt"), encoding="utf-8") as file:
            lines = file.readlines()
        cuts = (0, len(lines) // 2, len(lines) // 2 + 40, len(lines))
        for k in range(3):
            cls.write(f"part{k}.txt", "".join(lines[cuts[k]:cuts[k + 1]]))
            cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "lines", "--out",
                      cls.at(f"part{k}.h5"), cls.at(f"part{k}.txt")])
        cls.parts = f"corpus.train={cls.at('part*.h5')}"

    def windows(self, *parts):
        """Of the corpora, each by itself."""
        sizes = []
        for k in parts:
            with h5py.File(self.at(f"part{k}.h5")) as file:
                sizes.append((len(file["tokens"]) - 1) // 32)
        return sum(sizes)

    def refused(self, status, words, *keys):
        for ranks in (0, 2):
            result = self.pretrain("refused", ranks, self.parts, *keys)
            self.assert_error(result, status, *words)
        self.assertFalse(os.path.exists(self.at("refused/checkpoints")))

    def test_data_are_the_same_at_any_number_of_ranks_and_across_restarts(self):
        for name, keys in (("plain", ()), ("bagged", ("corpus.resample=bag", "run.member=3"))):
            keys = (self.parts, "corpus.weights=2,1,0.5", "optimizer.decay=constant") + keys
            one = self.trained(f"{name}-1", 0, *keys)
            many = self.trained(f"{name}-4", 4, *keys)
            self.assertEqual(digests(one), digests(many))
            self.assertEqual([line["loss"] for line in metrics(one)], [line["loss"] for line in metrics(many)])
            self.trained(f"{name}-again", 0, "train.steps=7", *keys)
            again = self.trained(f"{name}-again", 2, *keys)
            self.assertEqual(digests(one), digests(again))
        self.assertNotEqual(digests(self.at("plain-1")), digests(self.at("bagged-1")))
        unweighted = self.trained("unweighted", 0, self.parts, "optimizer.decay=constant")
        self.assertNotEqual(digests(self.at("plain-1")), digests(unweighted))

    def test_a_weight_of_0_leaves_a_corpus_out(self):
        keys = ("train.steps=", "train.epochs=0.2", "optimizer.decay=constant")
        two = self.trained("two", 0, f"corpus.train={self.at('part0.h5')},{self.at('part1.h5')}", "corpus.weights=3,1", *keys)
        three = self.trained("three", 0, self.parts, "corpus.weights=3,1,0", *keys)
        self.assertEqual(digests(two), digests(three))
        for folder in (two, three):
            self.assertEqual(read_json(folder, "run.json")["steps"], round(0.2 * (self.windows(0, 1) // 8)))

    def test_an_epoch_has_the_windows_of_all(self):
        folder = self.trained("epoch", 0, self.parts, "corpus.weights=1,1,1", "train.steps=", "train.epochs=0.2", "corpus.resample=bag")
        self.assertEqual(metrics(folder)[-1]["step"], round(0.2 * (self.windows(0, 1, 2) // 8)))
        with open(os.path.join(folder, "log.txt"), encoding="utf-8") as file:
            self.assertEqual(file.read().count("33.3 % of the windows are of "), 3)

    def test_they_may_not_change(self):
        folder = self.trained("fixed", 0, self.parts, "corpus.weights= 1, 2.0 ,3e0", "train.steps=2")
        with open(os.path.join(folder, "config.ini"), encoding="utf-8") as file:
            self.assertIn("\nweights = 1,2,3\n", file.read())
        self.assertEqual(self.pretrain("fixed", 0, self.parts, "corpus.weights=1,2,3", "train.steps=3").status, 0)
        for keys in (("corpus.weights=1,2,4",), ()):
            result = self.pretrain("fixed", 0, self.parts, "train.steps=4", *keys)
            self.assert_error(result, 78, "[run.other_keys]", "corpus.weights")
        self.assertEqual(metrics(folder)[-1]["step"], 3)

    def test_refusals(self):
        self.refused(78, ["[corpus.weights_mismatch]", "2 numbers", "3 files"], "corpus.weights=1,2")
        self.refused(78, ["[corpus.weights_mismatch]", "4 numbers", "3 files"], "corpus.weights=1,2,3,4")
        self.refused(78, ["[corpus.bad_weights]", "place 2"], "corpus.weights=1,-2,3")
        self.refused(78, ["[corpus.bad_weights]", "place 3"], "corpus.weights=1,2,")
        self.refused(78, ["[corpus.zero_weights]", "3 numbers"], "corpus.weights=0,0,0")
        self.refused(65, ["[corpus.too_short]", "part1.h5"], "corpus.weights=1,1,1", "model.context=3000", "train.batch=2")

    def test_plan_counts_their_memory(self):
        keys = (self.parts, "corpus.weights=1,1,1", "train.batch=64")
        plan = self.pretrain("planned", 0, "--plan", *keys)
        self.assertEqual(plan.status, 0, str(plan))
        self.assertEqual(plan.out.count("33.3 % of the windows are of "), 3)

    def test_few_windows_are_warned_of(self):
        result = self.pretrain("few", 0, self.parts, "corpus.weights=1,1,1", "train.batch=512", "mesh.micro_batch=64", "train.steps=2")
        self.assertEqual(result.status, 0, str(result))
        self.assertLess(self.windows(1), 512 / 3)
        self.assert_warning(result, "[corpus.few_windows]")


if __name__ == "__main__":
    bagpipe_test.main()
