"""Every mesh trains the same model: the losses of one rank, and the same bits at any power of two of data ranks."""
import os
import re

import bagpipe_test
from bagpipe_test import JobTest, digests, metrics, run, timeless

EIGHT = ("train.steps=8", "train.valid_every=4")


class Meshes(JobTest):
    def losses(self, name, ranks, *keys):
        return [line["loss"] for line in metrics(self.trained(name, ranks, *keys))]

    def plan(self, *keys):
        result = self.pretrain("planned", 0, "--plan", *keys)
        self.assertEqual(result.status, 0, str(result))
        return result.out

    def losses_of_one(self):
        """Of eight steps on one rank: what meshes are compared with."""
        return [line["loss"] for line in metrics(self.at("one"))] if os.path.exists(self.at("one")) else self.losses("one", 0, *EIGHT)

    def test_every_mesh_gives_the_losses_of_one_rank(self):
        expected = self.losses_of_one()
        self.assertEqual(len(expected), 8)
        for pipeline, data, tensor, dedicated in ((2, 1, 1, 0), (1, 2, 1, 1), (1, 1, 2, 0), (2, 1, 2, 0), (2, 2, 2, 1)):
            ranks = pipeline * data * tensor + dedicated
            with self.subTest(pipeline=pipeline, data=data, tensor=tensor, dedicated=dedicated):
                got = self.losses(f"mesh-{pipeline}{data}{tensor}", ranks, *EIGHT, f"mesh.pipeline={pipeline}", f"mesh.data={data}",
                                  f"mesh.tensor={tensor}")
                for a, b in zip(expected, got, strict=True):
                    self.assertLess(abs(a - b), 2e-5)

    def test_masks_of_dropout_are_those_of_one_rank(self):
        keys = ("model.dropout=0.2", "train.dropconnect=0.2", "train.steps=6")
        expected = self.losses("dropout", 0, *keys)
        for name, mesh in (("tensor", "mesh.tensor=2"), ("pipeline", "mesh.pipeline=2")):
            for a, b in zip(expected, self.losses("dropout-" + name, 2, mesh, *keys), strict=True):
                self.assertLess(abs(a - b), 2e-5)

    def test_data_ranks_give_the_bits_of_one(self):
        for extra, counts in (((), (2, 4)), (("mesh.pipeline=2", "mesh.schedule=gpipe"), (2,)),
                              (("model.dropout=0.1", "train.dropconnect=0.1", "train.recompute=yes"), (4,))):
            tag = "-".join(extra).replace("=", "_")
            factor = 2 if extra and extra[0].startswith("mesh.pipeline") else 1
            one = self.trained("data1" + tag, factor, *EIGHT, *extra)
            for data in counts:
                with self.subTest(data=data, extra=extra):
                    other = self.trained(f"data{data}" + tag, factor * data, *EIGHT, *extra)
                    self.assertEqual(timeless(metrics(one)), timeless(metrics(other)))
                    self.assertEqual(digests(one), digests(other))

    def test_ranks_that_are_dealt_to_nodes_in_turn_have_the_bits_of_one(self):
        one = self.trained("turns1", 0, *EIGHT)
        os.environ["BP_FAULT"] = "mesh.round_robin"
        self.addCleanup(os.environ.pop, "BP_FAULT", None)
        for name, ranks, keys in (("turns5", 5, ("mesh.data=4",)), ("turns3", 3, ("mesh.tensor=2", "mesh.coordinator=dedicated"))):
            result = self.pretrain(name, ranks, *EIGHT, *keys)
            self.assertEqual(result.status, 0, str(result))
            self.assertEqual("[mesh.tensor_apart]" in result.err, "mesh.tensor=2" in keys, str(result))
        self.assertEqual(digests(one), digests(self.at("turns5")))

    def test_the_watchdog_names_ranks_as_the_run_does(self):
        """Ranks dealt to nodes in turn are taken as 0, 2, 1, 3: the launcher's rank 1 is the third of the run, and so its stacks are named."""
        os.environ["BP_FAULT"] = "mesh.round_robin,step.end:2@1=spin"
        self.addCleanup(os.environ.pop, "BP_FAULT", None)
        result = self.pretrain("hung", 4, *EIGHT, "mesh.data=4", "watchdog.seconds=4")
        self.assertEqual(result.status, 75, str(result))
        self.assertIn("[run.hung]", result.err)
        self.assertRegex(result.err, r"\brank 2 on host")

    def test_interleaved_chunks_train_the_same_model(self):
        keys = ("mesh.pipeline=2", "mesh.schedule=interleaved", *EIGHT)
        expected = self.losses_of_one()
        one = self.trained("chunks", 2, *keys)
        for a, b in zip(expected, [line["loss"] for line in metrics(one)], strict=True):
            self.assertLess(abs(a - b), 2e-5)
        other = self.trained("chunks-data", 4, "mesh.data=2", *keys)
        self.assertEqual(timeless(metrics(one)), timeless(metrics(other)))
        self.assertEqual(digests(one), digests(other))

    def test_messages_beside_compute_change_no_bit(self):
        keys = ("mesh.pipeline=2", "mesh.data=2", *EIGHT, "train.digest_every=2")
        one, other = self.trained("beside", 4, *keys), self.trained("at-once", 4, "mesh.overlap=no", *keys)
        self.assertEqual(timeless(metrics(one)), timeless(metrics(other)))
        self.assertEqual(digests(one), digests(other))

    def test_gradients_of_two_bytes_train_nearly_the_same_model(self):
        """On 2, 3 and 4 ranks; on one there is no message; the same command has the same bits, and goes on with either form."""
        keys = ("train.batch=12", "train.steps=8")
        expected = self.losses("bytes-one", 0, *keys)
        self.assertEqual(expected, self.losses("bytes-one-bf16", 0, "mesh.sums=bf16", *keys))
        for ranks in (2, 3, 4):
            got = self.losses(f"bytes-{ranks}", ranks, "mesh.sums=bf16", *keys)
            self.assertNotEqual(expected, got)
            for a, b in zip(expected, got, strict=True):
                self.assertLess(abs(a - b), 1e-3)
        again = self.trained("bytes-again", 2, "mesh.sums=bf16", *keys)
        self.assertEqual(digests(again), digests(self.at("bytes-2")))
        result = self.pretrain("bytes-again", 4, *keys[:1], "train.steps=10", "mesh.sums=float32")
        self.assertEqual(result.status, 0, str(result))
        self.assertEqual(len(metrics(self.at("bytes-again"))), 10)
        more = self.pretrain("bytes-2", 4, *keys[:1], "train.steps=10", "mesh.sums=bf16")  # rounded in other places
        self.assert_warning(more, "[run.other_bits]", "mesh.data is 4 and was 2")

    def test_tensor_ranks_share_rows_or_not(self):
        keys = ("mesh.tensor=2", "mesh.data=2", "model.dropout=0.1", *EIGHT)
        shared, whole = (self.losses(f"rows-{way}", 4, f"mesh.sequence_parallel={way}", *keys) for way in ("yes", "no"))
        self.assertEqual(shared[0], whole[0])  # forward adds up in the same order
        self.assertNotEqual(shared, whole)
        for a, b in zip(shared, whole, strict=True):
            self.assertLess(abs(a - b), 2e-5)
        one = self.trained("rows-one", 2, "mesh.tensor=2", *keys[2:])
        self.assertEqual(digests(one), digests(self.at("rows-yes")))

    def test_the_plan_says_what_shared_rows_save(self):
        plans = [self.plan("mesh.tensor=2", f"mesh.sequence_parallel={way}") for way in ("auto", "no")]
        self.assertIn("tensor 2 (rows shared out)", plans[0])
        self.assertIn("tensor 2 (all rows on each)", plans[1])
        shared, whole = (float(re.search(r"activations +([0-9.]+) MiB", plan)[1]) for plan in plans)
        self.assertLess(shared, whole)

    def test_keys_without_effect_are_said_once(self):
        for key in ("mesh.chunks=3", "mesh.schedule=interleaved", "mesh.sequence_parallel=yes"):
            result = self.pretrain("unused-" + key, 2, "train.steps=1", key)
            self.assertEqual((result.status, result.err.count("\n")), (0, 1), str(result))
            self.assert_warning(result, "[config.unused_key]", key.replace("=", " = "))
        self.trained("all-used", 0, "train.steps=1")
        resolved = run([bagpipe_test.program("bagpipe"), "check", "pretrain", self.at("all-used/config.ini")])
        self.assertEqual((resolved.status, resolved.err), (0, ""))

    def test_a_run_goes_on_with_another_mesh(self):
        expected = self.losses("straight", 0)
        meshes = (("mesh.tensor=2",), ("mesh.pipeline=2",), ("mesh.pipeline=2", "mesh.schedule=interleaved"), ("mesh.data=2",))
        for number, mesh in enumerate(meshes):  # stopped by the clock of a short job: the rate's schedule stays that of 20 steps
            result = self.pretrain("moved", 2, "checkpoint.every=1", *mesh, kill_after=None if number == 3 else 1.5)
        self.assertEqual(result.status, 0, str(result))
        for a, b in zip(expected, [line["loss"] for line in metrics(self.at("moved"))], strict=True):
            self.assertLess(abs(a - b), 2e-5)

    def test_a_change_of_mesh_is_warned_of_only_where_bits_change(self):
        keys = ("optimizer.decay=constant", "train.steps=4")
        expected = self.trained("steady", 0, *keys, "train.steps=8")
        changes = ("train.steps=8", "mesh.overlap=no", "mesh.schedule=gpipe", "mesh.chunks=3", "mesh.coordinator=dedicated",
                   "mesh.sequence_parallel=no")
        self.trained("changed", 2, *keys, "mesh.data=2", "train.steps=4")
        result = self.pretrain("changed", 2, *keys, *changes)
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[run.other_bits]", times=0)
        self.assertEqual(digests(expected), digests(self.at("changed")))
        result = self.pretrain("changed", 2, *keys, "train.steps=9", "mesh.pipeline=2", "mesh.schedule=interleaved", "mesh.chunks=2")
        self.assertEqual(result.status, 0, str(result))
        again = self.pretrain("changed", 0, keys[0], "train.steps=9", "train.log_every=3", "math.threads=2")
        self.assertEqual((again.status, again.err), (0, ""))  # nothing is left to train, whatever else was changed
        more = self.pretrain("changed", 0, *keys, "train.steps=10", "math.threads=2")
        self.assert_warning(more, "[run.other_bits]", "math.threads is 2 and was 1")  # and now there is
        self.assert_warning(result, "[run.other_bits]",
                            "mesh.pipeline is 2 and was 1, mesh.schedule is interleaved and was gpipe, mesh.chunks is 2 and was 3")


if __name__ == "__main__":
    bagpipe_test.main()
