"""train.profile adds up to the steps' time and counts the formula's FLOPs; train.trace is a timeline of all ranks."""
import json
import os

import bagpipe_test
import timeline
from bagpipe_test import JobTest, digests, metrics, run, timeless

WIDTH, LAYERS, CONTEXT, BATCH, VOCABULARY, STEPS, FIRST = 32, 2, 32, 8, 509, 20, 3
APART = ("validation", "checkpoint", "checkpoint_copy", "checkpoint_wait")


class Trace(JobTest):
    def profile(self, name):
        with open(self.at(name) + "/profile.json", encoding="utf-8") as file:
            return json.load(file)

    def flops(self, profile, *kinds):
        return sum(rank["work"][kind]["flops"] for rank in profile["ranks"] for kind in kinds)

    def check_profile(self, name, ranks):
        profile = self.profile(name)
        tokens = (STEPS - FIRST + 1) * BATCH * CONTEXT
        self.assertEqual((profile["first_step"], profile["steps"], len(profile["ranks"])), (FIRST, STEPS - FIRST + 1, ranks))
        for rank in profile["ranks"]:
            total = sum(work["seconds"] for work in rank["work"].values())
            self.assertLess(abs(total - rank["seconds"]), 0.001 * rank["seconds"])
        products = self.flops(profile, "products_forward", "products_input_gradient", "products_weight_gradient")
        self.assertEqual(products, tokens * 6 * (12 * LAYERS * WIDTH * WIDTH + VOCABULARY * WIDTH))
        pairs = tokens * (CONTEXT + 1) / 2 * WIDTH * LAYERS
        self.assertEqual(self.flops(profile, "attention_forward"), 4 * pairs)
        self.assertEqual(self.flops(profile, "attention_backward"), 10 * pairs)
        return profile

    def test_profile_adds_up(self):
        result = self.pretrain("alone", 0, "train.profile=yes", "train.log_every=1", "train.batch=8")
        self.assertEqual(result.status, 0, str(result))
        profile = self.check_profile("alone", 1)
        self.assertIn("products, weight gradient", result.out)
        self.assertRegex(result.out, r"computing [0-9.]+ %, waiting for other ranks [0-9.]+ %, waiting for input [0-9.]+ %, checkpoints and validation")
        self.assertNotIn("  receive ", result.out)  # one rank: none is received
        self.assertAlmostEqual(sum(profile["shares"].values()), 1, 3)
        self.assertLess(profile["shares"]["ranks"], 0.1)
        reported = sum(line["seconds"] for line in metrics(self.at("alone"))[FIRST - 1:])  # by another clock of the loop
        rank = profile["ranks"][0]
        apart = sum(rank["work"][kind]["seconds"] for kind in APART)
        self.assertGreater(rank["seconds"] - apart, 0.9 * reported)  # by clocks that begin and end at other points
        self.assertGreater(rank["silicon_flops"], 0)
        self.assertGreater(rank["memory_bytes"], 0)
        self.assertFalse(os.path.exists(self.at("alone") + "/trace.json"))

    def test_timeline_of_a_mesh(self):
        keys = ("mesh.pipeline=2", "mesh.data=2", "mesh.coordinator=dedicated", "checkpoint.every=5", "train.profile=yes")
        path = self.at("trace.json")
        whole = self.trained("mesh", 5, *keys, "train.trace=" + path)
        self.assertEqual(timeline.faults(path, 5), [])
        events, processes, threads, about = timeline.load(path)
        self.assertEqual((about["first_step"], about["dropped"]), (FIRST, 0))
        self.assertIn("coordinator", processes[0])
        self.assertIn("stage 1, data 1, tensor 0", processes[4])
        for rank in range(1, 5):
            names = {name for (pid, _), name in threads.items() if pid == rank}
            self.assertLessEqual({"compute", "communication"}, names)
            self.assertEqual([e["args"]["number"] for e in events[rank, 0] if e["name"] == "step"], list(range(3, 13)))
            self.assertTrue(any(e["name"] == "checkpoint" for e in events[rank, 0]))
            flights = {e["name"] for (pid, tid), line in events.items() if pid == rank and tid >= 10 for e in line}
            self.assertLessEqual({"reduction", "gather", "send", "receive"}, flights)
        self.assertEqual({name for (pid, _), name in threads.items() if name == "input"}, {"input"})
        self.check_profile("mesh", 4)
        plain = self.trained("plain", 5, *keys[:-1])
        self.assertEqual(digests(plain), digests(whole))
        self.assertEqual(timeless(metrics(plain)), timeless(metrics(whole)))

    def test_a_run_goes_on_with_other_keys(self):
        self.trained("resumed", 0, "train.steps=4", "optimizer.decay=constant")
        path = self.at("resumed.json")
        keys = ("train.steps=6", "optimizer.decay=constant", "train.profile=yes", "train.trace=" + path)
        self.assertEqual(self.pretrain("resumed", 0, *keys).status, 0)
        self.assertEqual(timeline.faults(path, 1), [])
        self.assertEqual(self.profile("resumed")["first_step"], 5)  # two are left: none warms up
        before = os.stat(path)
        result = self.pretrain("resumed", 0, "train.steps=9", *keys[1:])
        self.assertEqual(result.status, 0, str(result))
        self.assertEqual(os.stat(path), before)
        self.assertIn("timeline: " + self.at("resumed.start-3.json"), result.out)
        self.assertEqual(timeline.load(self.at("resumed.start-3.json"))[3]["first_step"], 9)

    def test_passes_tell_their_chunk(self):
        for name, keys, chunks in (("runs", ("mesh.schedule=interleaved",), {0, 1}), ("whole", (), {None})):
            path = self.at(name + ".json")
            self.trained(name, 2, "mesh.pipeline=2", "train.steps=4", "train.trace=" + path, *keys)
            self.assertEqual(timeline.faults(path, 2), [])
            passes = [e for line in timeline.load(path)[0].values() for e in line if e["name"] in ("forward pass", "backward pass")]
            self.assertEqual({e["args"].get("chunk") for e in passes}, chunks)
            self.assertEqual({e["args"]["number"] for e in passes}, set(range(BATCH)))

    def test_a_path_that_cannot_be_written_is_refused_at_start(self):
        for path, identifier in ((self.at("missing/trace.json"), "[file.no_folder]"), (self.folder, "[file.not_replaced]")):
            result = self.pretrain("refused", 2, "train.trace=" + path)
            self.assert_error(result, 73, identifier, "train.trace")
            self.assertEqual(metrics(self.at("refused")), [])
        result = self.pretrain("refused", 0, "train.trace=/proc/trace.json")
        self.assertIn(result.status, (73, 77), str(result))
        self.assertEqual([name for name in os.listdir(self.folder) if name.endswith(".tmp")], [])

    def test_the_plan_counts_events(self):
        command = [bagpipe_test.program("bagpipe"), "pretrain", self.at("small.ini"), "run.dir=" + self.at("planned"), "--plan"]
        self.assertNotIn("timeline", run(command).out)
        self.assertIn("events of the timeline", run(command + ["train.trace=" + self.at("planned.json")]).out)


if __name__ == "__main__":
    bagpipe_test.main()
