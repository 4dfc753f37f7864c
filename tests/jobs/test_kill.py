"""Killed at any moment and started again, a run ends with the bits and the metrics of one that was never killed."""
import os
import random

import bagpipe_test
from bagpipe_test import JobTest, digests, metrics, timeless


class Kill(JobTest):
    KEYS = ("train.steps=600", "checkpoint.every=4", "train.valid_every=40", "train.log_every=5")
    KILLS = int(os.environ.get("BAGPIPE_TEST_KILLS", "3"))

    def kill_until_done(self, name, ranks, *keys):
        draw, kills = random.Random(3), 0
        for _ in range(self.KILLS + 1):
            # a start takes most of a second, and a commit every 4 steps falls into most of what is left
            life = 0.5 + draw.random() if kills < self.KILLS else None
            result = self.pretrain(name, ranks, *self.KEYS, *keys, kill_after=life)
            if result.status == 0:
                return kills
            self.assertEqual(result.status, -9, str(result))
            kills += 1
        raise AssertionError("never done")

    def compare(self, ranks, *keys):
        tag = f"{ranks}" + "".join(keys).replace("=", "_")
        whole = self.trained("whole" + tag, ranks, *self.KEYS, *keys)
        kills = self.kill_until_done("killed" + tag, ranks, *keys)
        print(f"{ranks} ranks {keys}: {kills} kills")
        self.assertEqual(timeless(metrics(whole)), timeless(metrics(self.at("killed" + tag))))
        self.assertEqual(digests(whole), digests(self.at("killed" + tag)))
        best = [os.readlink(os.path.join(folder, "checkpoints", "best")) for folder in (whole, self.at("killed" + tag))]
        self.assertEqual(*best)

    def test_one_rank(self):
        self.compare(0)

    def test_two_data_ranks(self):
        self.compare(2)

    def test_pipeline_with_dedicated_coordinator(self):
        self.compare(3, "mesh.pipeline=2", "mesh.data=1")


if __name__ == "__main__":
    bagpipe_test.main()
