"""--plan of a job to come: the table of meshes, the network file, the schedule, and the simulator that checks them."""
import json
import os
import re
import subprocess
import sys

import bagpipe_test
from bagpipe_test import JobTest, program

SIMULATE = os.path.join(bagpipe_test.HERE, "..", "bench", "scale", "simulate.py")
NETWORK = """[network]
node_bandwidth = 1e9
node_latency = 5e-6
inner_bandwidth = 4e9
round_pause = 0
[compute]
flops = 1e10
memory_bandwidth = 1e10
"""


class Scale(JobTest):
    def keep(self, name, text):
        with open(self.at(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.at(name)

    def plan(self, *keys, network=None):
        options = ("--network", self.keep("network.ini", NETWORK)) if network is None else network
        return self.pretrain("planned", 0, "--plan", "train.batch=16", *options, *keys)

    def rows(self, result):
        """tensor, pipeline, data, step seconds and bound of each row; the configuration's own first."""
        text = result.out.split("the fastest of fewer ranks")[0]
        rows = re.findall(r"^([* ]) +(\d+) +(\d+) +(\d+) +\d+ x \d+ +\S+ +([\d.e-]+) \+-\d+% +([\d.]+) +([\d.]+)  (\w+)", text, re.M)
        self.assertTrue(rows, str(result))
        return sorted(((star, int(t), int(p), int(d), float(s), bound) for star, t, p, d, s, _, _, bound in rows), reverse=True)

    def test_the_time_is_that_of_a_core_for_each_thread(self):
        said = "on as many cores as fast as these"
        for threads, turns in ((1, False), (64 * os.cpu_count(), True)):
            result = self.plan("--ranks", "4", "--nodes", "4", f"math.threads={threads}")
            self.assertIn(f"of ranks with {threads} thread", result.out)
            self.assertEqual(f"{said} (measured on the" in result.out, turns, str(result))
            self.assertIn(f"memory {8 * threads:.3g} GB/s a rank", self.plan("--ranks", "4", "--nodes", "4", f"math.threads={threads}", network=()).out)

    def test_meshes_are_listed_with_what_bounds_them(self):
        result = self.plan("--ranks", "8", "--nodes", "4", "mesh.pipeline=2")
        self.assertEqual(result.status, 0, str(result))
        rows = self.rows(result)
        self.assertEqual(rows[0][:4], ("*", 1, 2, 4))
        self.assertTrue(all(t * p * d == 8 for _, t, p, d, _, _ in rows), str(rows))
        self.assertTrue(all(t <= 2 for _, t, *_ in rows))  # tensor ranks stay on a node
        self.assertRegex(result.out, r"error of an estimated step: \d+ %")
        self.assertRegex(result.out, r"a checkpoint: 6 files, [\d.]+ GiB; a restart: 8 opens")
        faster = self.rows(self.plan("--ranks", "8", "--nodes", "4", "mesh.pipeline=2", "mesh.sums=bf16"))
        self.assertLess(faster[0][4], rows[0][4])

    def test_fewer_ranks_of_more_threads_are_planned_as_a_plan_of_them(self):
        one = self.plan("--ranks", "8", "--nodes", "4")
        row = re.search(r"the fastest of fewer ranks: 4, each with 2 times.*\n +1 +(\d+) +(\d+) .*? ([\d.e-]+) \+-", one.out)
        self.assertTrue(row, str(one))
        twice = NETWORK.replace("flops = 1e10", "flops = 2e10").replace("memory_bandwidth = 1e10", "memory_bandwidth = 2e10")
        two = self.plan("--ranks", "4", "--nodes", "4", network=("--network", self.keep("twice.ini", twice)))
        self.assertNotIn("fewer ranks", two.out)  # a node has one
        best = min(self.rows(two), key=lambda row: row[4])
        self.assertEqual((int(row[1]), int(row[2]), float(row[3])), best[2:5])

    def test_bad_network_files_and_options_are_refused(self):
        for text, status, identifier in (("[network]\nbandwidth = 1\n", 78, "unknown"), ("[network]\nnode_latency = -1\n", 78, "node_latency"),
                                         ("[compute]\nflops = fast\n", 78, "flops")):
            result = self.plan("--ranks", "2", network=("--network", self.keep("bad.ini", text)))
            self.assert_error(result, status)
            self.assertIn(identifier, result.err)
        self.assert_error(self.plan("--ranks", "2", network=("--network", self.at("no.ini"))), 66)
        for options in (("--network", "x.ini"), ("--ranks", "2", "--network"), ("--schedule=", "--ranks", "2")):
            result = self.plan(network=options)
            self.assert_error(result, 64)
            self.assertRegex(result.err, r"\[command\.(no_scale|no_file)\]")
        self.assertFalse(os.path.exists(self.at("planned")))

    def test_a_simulated_step_takes_the_time_of_the_plan(self):
        for name, keys in (("data", ()), ("pipe", ("mesh.pipeline=2", "mesh.schedule=interleaved")), ("rows", ("mesh.tensor=2", "mesh.sums=bf16")),
                           ("experts", ("model.kind=mixtral", "model.width=128", "model.experts=4", "model.experts_chosen=2", "mesh.expert=4"))):
            path = self.at(name + ".json")
            result = self.plan("--ranks", "8", "--nodes", "4", "--schedule", path, *keys)
            self.assertEqual(result.status, 0, str(result))
            with open(path, encoding="utf-8") as file:
                step = json.load(file)
            self.assertEqual((step["format"], step["ranks"], step["node_ranks"]), ("bagpipe step", 8, 2))
            self.assertEqual(name == "experts", "rows of experts (mesh.expert = 4)" in result.out)
            if not os.path.exists(program("simulated_step")):
                self.skipTest("there is no SimGrid")
            done = subprocess.run([sys.executable, SIMULATE, program("simulated_step"), path], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    bagpipe_test.main()
