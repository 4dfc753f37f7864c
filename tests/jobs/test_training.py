"""What a training reads and how long it goes on: bags."""
import json
import os

import bagpipe_test
from bagpipe_test import JobTest, digests, edit_manifest, steps


def state_of(folder):
    """The state of the newest checkpoint of a run."""
    with open(os.path.join(folder, "checkpoints", steps(folder)[-1], "manifest.json"), encoding="utf-8") as file:
        return json.load(file)["state"]


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
            self.assertEqual(result.status, 78, str(result))
            said = [line for line in result.err.split("\n") if line.startswith("bagpipe: error[78]: ")]
            self.assertEqual(len(said), 1, str(result))
            for words in ("version 1", "version 2", "run.dir", "older"):
                self.assertIn(words, said[0])
            self.assertEqual(digests(folder), before)

    def test_a_run_with_bags_goes_on_with_the_same_bits(self):
        folder = self.trained("parts", 0, "train.steps=3", *self.KEYS)
        self.trained("parts", 0, "train.steps=6", *self.KEYS)
        self.assertEqual(digests(folder), digests(self.trained("at_once", 0, "train.steps=6", *self.KEYS)))

    def test_without_bags_no_checkpoint_names_a_version(self):
        self.assertNotIn("bag_version", state_of(self.trained("plain", 0, "train.steps=1")))


if __name__ == "__main__":
    bagpipe_test.main()
