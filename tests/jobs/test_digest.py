"""One bit flipped in one rank's memory ends the job before its next commit and is reported with tensor, step, rank and host; nothing
that is not finite is ever committed."""
import json
import os
import socket

import bagpipe_test
from bagpipe_test import JobTest, digests, events, metrics, steps, timeless

KEYS = ("train.steps=12", "checkpoint.every=4", "train.valid_every=100")


class Faulty(JobTest):
    def faulty(self, name, fault, ranks, *keys):
        return self.pretrain(name, ranks, *KEYS, *keys, environment={"BP_FAULT": fault})

    def pretrain(self, name, ranks=0, *keys, environment=None):
        before = dict(os.environ)
        os.environ.update(environment or {})
        try:
            return super().pretrain(name, ranks, *keys)
        finally:
            os.environ.clear()
            os.environ.update(before)


class Flips(Faulty):
    wholes = {}

    def whole(self, ranks, *keys):
        """A run on this mesh that nothing disturbed."""
        mesh = (ranks,) + tuple(key for key in keys if key.startswith("mesh."))
        if mesh not in self.wholes:
            self.wholes[mesh] = self.trained(f"whole{len(self.wholes)}", ranks, *KEYS, *mesh[1:])
        return self.wholes[mesh]

    def caught(self, name, fault, ranks, *keys, step, committed, tensor, suspects):
        """Leaves with 75 and the event; the same command without the fault ends as a run that never had it."""
        result = self.faulty(name, fault, ranks, *keys)
        self.assert_error(result, 75, "[memory.bits_differ]" if "copy" in fault or "gradient" in fault else "[memory.bits_changed]", tensor, *(f"rank {rank} on {socket.gethostname()}" for rank in suspects))
        self.assertEqual([int(s[5:]) for s in steps(self.at(name))], committed)
        found = events(self.at(name), "digest_mismatch")
        self.assertEqual([(event["step"], event["ranks"]) for event in found], [(step, suspects)])
        self.assertIn(tensor, found[0]["tensor"])
        self.assertEqual(self.faulty(name, "", ranks, *keys).status, 0)
        whole = self.whole(ranks, *keys)
        self.assertEqual(digests(whole), digests(self.at(name)))
        self.assertEqual(timeless(metrics(whole)), timeless(metrics(self.at(name))))

    def test_a_weight_on_one_rank_alone(self):
        self.caught("alone", "train.flip_weight:6", 0, step=7, committed=[4], tensor="wte", suspects=[0])

    def test_a_weight_of_a_ranks_own_shard_at_the_next_step(self):
        self.caught("weight", "train.flip_weight:6@1", 2, step=7, committed=[4], tensor="wte", suspects=[1])

    def test_a_moment_at_the_next_step(self):
        self.caught("moment", "train.flip_moment:6@1", 2, step=7, committed=[4], tensor="adamw.m/", suspects=[1])

    def test_a_moment_just_before_a_commit(self):
        self.caught("late", "train.flip_moment:8@1", 2, step=8, committed=[4], tensor="adamw.m/", suspects=[1])

    def test_two_copies_that_differ_are_both_named(self):
        self.caught("copy", "train.flip_copy:6@1", 2, "train.digest_every=1", step=7, committed=[4], tensor="wte", suspects=[0, 1])

    def test_of_four_copies_the_odd_one_is_named(self):
        self.caught("odd", "train.flip_copy:6@2", 4, "train.digest_every=1", step=7, committed=[4], tensor="wte", suspects=[2])

    def test_a_copy_just_before_a_commit(self):
        self.caught("unread", "train.flip_copy:8@2", 4, step=8, committed=[4], tensor="wte", suspects=[2])

    def test_a_gradient_of_what_tensor_ranks_hold_in_common(self):
        self.caught("gradient", "train.flip_gradient:6@1", 2, "mesh.tensor=2", "train.digest_every=2", step=8, committed=[4],
                    tensor="w", suspects=[0, 1])

    def test_the_tied_embedding_of_the_first_and_the_last_stage(self):
        result = self.faulty("tied", "train.flip_weight:6@1", 2, "mesh.pipeline=2")
        self.assert_error(result, 75, "[memory.bits_changed]", "wte")

    def test_never_looks_where_it_is_asked_not_to(self):
        result = self.faulty("unchecked", "train.flip_weight:6", 0, "train.digest_every=0")
        self.assertEqual(result.status, 0, str(result))


class NotFinite(Faulty):
    def diverges(self, name, fault, ranks, *keys, committed, skipped, words=(), good=None, before=0):
        result = self.faulty(name, fault, ranks, *keys)
        good = good or max(committed, default=0)
        self.assert_error(result, 70, "[training.diverged]", "optimizer.lr", f"{self.at(name)}/checkpoints/step-{good:012d}" if good else "no checkpoint", *words)
        self.assertEqual([int(s[5:]) for s in steps(self.at(name))], committed)
        self.assertEqual(len(events(self.at(name), "skipped")), skipped)
        self.assert_warning(result, "[training.skipped]", times=skipped - before)
        with open(os.path.join(self.at(name), "run.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["exit"]["code"], 70)

    def skips(self, name, fault, ranks, *keys):
        result = self.faulty(name, fault, ranks, *keys)
        self.assertEqual(result.status, 0, str(result))
        lines = metrics(self.at(name))
        self.assertEqual([line["step"] for line in lines if line["grad_norm"] is None], [4])
        self.assertEqual([(event["step"], event["in_row"]) for event in events(self.at(name), "skipped")], [(4, 1)])
        self.assertEqual([int(s[5:]) for s in steps(self.at(name))], [4, 8, 12])
        with open(os.path.join(self.at(name), "checkpoints", steps(self.at(name))[-1], "manifest.json"), encoding="utf-8") as file:
            state = json.load(file)["state"]
        self.assertEqual((state["skipped"], state["skipped_in_row"], state["updates"]), (1, 0, 11))

    def test_a_gradient_on_one_rank_skips_the_step(self):
        self.skips("one", "train.nan_gradient:4@1", 2)

    def test_a_gradient_on_all_ranks_skips_the_step(self):
        self.skips("all", "train.nan_gradient:4", 2)

    def test_a_gradient_on_one_tensor_rank_skips_the_step(self):
        self.skips("tensor", "train.nan_gradient:4@1", 2, "mesh.tensor=2")

    def test_a_gradient_of_one_stage_skips_the_step(self):
        self.skips("stage", "train.nan_gradient:4@0", 2, "mesh.pipeline=2")

    def test_ten_gradients_in_a_row_end_the_job(self):
        self.diverges("row", "train.nan_gradient:2+@1", 2, "checkpoint.every=100", committed=[], skipped=10)

    def test_a_training_that_ends_with_skipped_steps_is_not_finished(self):
        whole = self.trained("whole", 2, *KEYS)
        for name, fault, ranks in (("end", "train.nan_gradient:10+", 0), ("end2", "train.nan_gradient:10+@1", 2)):
            self.diverges(name, fault, ranks, committed=[4, 8], skipped=3, words=["at step 12"])
            folder = self.trained(name, ranks, *KEYS)  # the fault is gone: the same command goes on from step 8
            self.assertEqual(digests(folder), digests(whole))

    def test_a_training_whose_steps_are_all_skipped_is_not_finished(self):
        self.diverges("none", "train.nan_gradient:1", 0, "train.steps=1", committed=[], skipped=1)

    def test_a_validation_loss_that_is_not_finite_is_no_result(self):
        self.assert_error(self.faulty("valid", "train.nan_weight:12", 2, "checkpoint.every=100"), 70, "[training.diverged]", "validation loss", "no checkpoint")
        self.assertEqual(steps(self.at("valid")), [])

    def test_one_skipped_step_at_the_end_is_no_failure(self):
        result = self.faulty("last", "train.nan_gradient:12@1", 2)
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[training.skipped]", "step 12")
        self.assertEqual([int(s[5:]) for s in steps(self.at("last"))], [4, 8, 12])

    def test_checkpoints_of_skipped_steps_remove_no_good_one(self):
        keys = ("train.steps=14", "checkpoint.every=1", "checkpoint.keep=2", "checkpoint.async=no")
        self.diverges("keep", "train.nan_gradient:4+", 0, *keys, committed=list(range(2, 13)), skipped=10, good=2)
        self.diverges("keep", "train.nan_gradient:1", 0, *keys, committed=list(range(2, 13)), skipped=11, before=10, good=2)  # it goes on from 9 in a row

    def test_a_weight_is_not_committed(self):
        self.diverges("weight", "train.nan_weight:6@1", 2, committed=[4], skipped=2, words=["wte"])

    def test_a_weight_at_a_checkpoints_step_is_not_committed(self):
        self.diverges("weight_at", "train.nan_weight:8", 2, committed=[4], skipped=0)

    def test_a_weight_ends_the_job_after_ten_steps(self):
        self.diverges("weight_row", "train.nan_weight:2", 2, "checkpoint.every=100", committed=[], skipped=10)

    def test_a_moment_is_not_committed(self):
        self.diverges("moment", "train.nan_moment:6@1", 2, committed=[4], skipped=1)

    def test_a_moment_at_a_checkpoints_step_is_not_committed(self):
        self.diverges("moment_at", "train.nan_moment:8@1", 2, committed=[4], skipped=0, words=["adamw.m/"])


if __name__ == "__main__":
    bagpipe_test.main()
