"""bagpipe bench: what it leaves is whole, finite and in its bounds; no figure is compared with a clock's."""
import configparser
import json
import math
import os
import re
import signal
import time
import unittest

import bagpipe_test
from bagpipe_test import Background, FolderTest, program, run

QUICK = ("bench.seconds=0.02", "bench.models=tiny", "bench.corpus=1MiB", "bench.message=16KiB", "math.threads=1")
SPREAD = ("median", "low", "high")
TINY_FLOPS = 6 * (12 * 2 * 64**2 + 1000 * 64) + 12 * 2 * 64 * 64  # a token's training: 6 (12 L C² + V C) + 12 L T C


class Bench(FolderTest):
    def bench(self, name, ranks=0, *keys):
        return run([program("bagpipe"), "bench", f"run.dir={self.at(name)}", *QUICK, *keys], ranks)

    def measured(self, name, ranks=0, *keys):
        result = self.bench(name, ranks, *keys)
        self.assertEqual(result.status, 0, str(result))
        with open(os.path.join(self.at(name), "bench.json"), encoding="utf-8") as file:
            return result, json.load(file)

    def check_network(self, name):
        """network.ini is what --network reads: all its keys, in their ranges."""
        file = configparser.ConfigParser(comment_prefixes=(";",))
        file.read(os.path.join(self.at(name), "network.ini"), encoding="utf-8")
        self.assertEqual(sorted(file.sections()), ["compute", "network"])
        for section in file.sections():
            for key, value in file[section].items():
                least = 0 if key == "round_pause" else 1e-300
                self.assertTrue(math.isfinite(float(value)) and float(value) >= least, f"{section}.{key} = {value}")
        self.assertEqual(len(file["network"]) + len(file["compute"]), 8)

    def check_spread(self, spread, what):
        for key in SPREAD:
            self.assertTrue(math.isfinite(spread[key]) and spread[key] > 0, f"{key} of {what}: {spread}")
        self.assertLessEqual(spread["low"], spread["median"] * (1 + 1e-9), what)
        self.assertLessEqual(spread["median"], spread["high"] * (1 + 1e-9), what)
        self.assertGreaterEqual(spread["repeats"], 1, what)

    def check_figure(self, figure, unit, ranks, what):
        self.check_spread(figure, what)
        self.assertEqual(figure["unit"], unit, what)
        self.assertEqual(len(figure["ranks"]), ranks, what)
        self.assertAlmostEqual(sum(figure["ranks"]) / figure["median"], 1, 9, what)
        for end in ("slowest", "fastest"):
            self.assertIn(figure[end]["rank"], range(ranks + 1), what)  # of all: a coordinator is rank 0
            self.assertTrue(figure[end]["host"], what)

    def check_products(self, found, ranks):
        for precision in ("f32", "bf16") if found["machine"]["bf16"] else ("f32",):
            for key in ("silicon", "gemm"):
                self.check_figure(found[key][precision], "FLOP/s", ranks, f"{key} {precision}")
                self.assertEqual(found[key][precision]["one"] is None, ranks == 1)
            products, ceiling = found["products"][precision], found["silicon"][precision]["high"]
            for form in ("forward", "input", "weight", "step"):
                self.check_figure(products[form], "FLOP/s", ranks, f"{form} {precision}")
                self.assertAlmostEqual(products[form]["share"] * ceiling / products[form]["median"], 1, 9, form)
            self.assertEqual([(m["outs"], m["ins"], m["count"]) for m in products["matrices"]],
                             [(192, 64, 2), (64, 64, 2), (256, 64, 2), (64, 256, 2), (1000, 64, 1)])

    def check_exchange(self, exchange, ranks):
        if ranks == 1:
            self.assertIsNone(exchange)
            return
        self.assertIsNone(exchange["send_across"])
        self.assertIsNone(exchange["rate_across"])
        self.assertEqual(exchange["rate_host"]["bytes"], 8)
        self.check_spread(exchange["rate_host"]["seconds"], "a small message of many")
        self.assertLess(exchange["rate_host"]["seconds"]["low"], exchange["send_host"][-1]["seconds"]["high"])
        rounds = exchange["rounds"]
        self.assertEqual((rounds["sums"], rounds["rounds"], rounds["bytes"]), (32, 1, 65536))
        self.assertTrue(rounds["alone_seconds"] > 0 and rounds["beside_seconds"] > 0, rounds)
        for kind in ("all_sum", "shards", "send_host"):
            self.assertEqual([row["bytes"] for row in exchange[kind]], [1024, 16384])
            for row in exchange[kind]:
                self.check_spread(row["seconds"], kind)
                self.assertGreater(row["bytes_per_second"], 0)

    def check(self, found, ranks):
        self.assertEqual((found["format"], found["format_version"]), ("bagpipe bench", 1))
        self.assertEqual(found["machine"]["ranks"], ranks)
        self.assertEqual(len(found["machine"]["hosts"]), 1)
        for key in ("cpu", "features", "math_library", "mpi"):
            self.assertIsInstance(found["machine"][key], str)
        self.check_products(found, ranks)
        for key in ("copy", "triad"):
            self.check_figure(found["memory"][key], "B/s", ranks, key)
        self.check_figure(found["corpus"]["read"], "B/s", ranks, "reading")
        self.assertEqual(found["corpus"]["bytes"], 1 << 20)
        self.check_figure(found["tokenizer"]["encode"], "B/s", ranks, "tokenizing")
        self.check_figure(found["ngram"]["count"], "tokens/s", ranks, "counting")
        self.check_figure(found["ngram"]["score"], "tokens/s", ranks, "looking up")
        self.check_exchange(found["exchange"], ranks)
        (model,) = found["models"]
        self.assertEqual((model["name"], model["parameters"], model["skipped"]), ("tiny", 168192, None))
        for key, flops in (("train", TINY_FLOPS), ("score", TINY_FLOPS / 3)):
            self.check_spread(model[key], key)
            ceiling = found["silicon"][found["precision"]]["high"]
            self.assertAlmostEqual(model[key]["mfu"] * ceiling / (model[key]["median"] * flops), 1, 9, model[key])
        self.assertGreater(model["peak_bytes"], 0)

    def test_one_rank_measures_all_but_messages_and_the_same_command_prints_it_again(self):
        result, found = self.measured("one")
        self.check(found, 1)
        self.check_network("one")
        for word in ("peak in registers f32", "memory copy", "tiny train", "tiny score", "bench.json"):
            self.assertIn(word, result.out)
        for name in ("bench-corpus.h5", "bench-text.txt", "metrics.jsonl"):
            self.assertFalse(os.path.exists(os.path.join(self.at("one"), name)))
        again, same = self.measured("one")
        self.assertEqual(found, same)
        self.assertIn("measured before", again.out)
        self.assertEqual(result.out.count("of peak"), again.out.count("of peak"))

    def test_two_ranks_measure_messages_between_them(self):
        _, found = self.measured("two", 2)
        self.assertFalse(found["mesh"]["coordinator"])
        self.check(found, 2)
        self.check_network("two")
        with open(self.at("two/network.ini"), encoding="utf-8") as file:
            pause = float(re.search(r"^round_pause = (.*)$", file.read(), re.M).group(1))
        rounds = found["exchange"]["rounds"]
        self.assertNotEqual(pause, 2e-4)  # the default
        self.assertLess(pause, rounds["beside_seconds"])
        self.assertGreaterEqual(pause, max(0, 0.9999 * (rounds["beside_seconds"] - rounds["alone_seconds"])))

    @unittest.skipUnless(os.environ.get("BAGPIPE_TEST_ALL"), "three ranks, on two cores: only with BAGPIPE_TEST_ALL")
    def test_two_ranks_with_a_coordinator_of_their_own(self):
        _, found = self.measured("three", 3, "mesh.data=2")
        self.assertTrue(found["mesh"]["coordinator"])
        self.check(found, 2)

    def test_stages_and_a_model_that_they_are_too_many_for(self):
        result = self.bench("plan", 0, "--plan", "mesh.pipeline=2", "bench.models=small,gpt2")
        self.assertEqual(result.status, 0, str(result))
        self.assertIn("gpt2", result.out)
        result = self.bench("plan", 0, "--plan", "mesh.pipeline=2", "mesh.schedule=interleaved", "mesh.chunks=4")
        self.assertEqual(result.status, 0, str(result))
        self.assertIn("4 blocks are fewer than mesh.pipeline = 2 x mesh.chunks = 4", result.out)
        result = self.bench("plan", 0, "--plan", "mesh.pipeline=7")
        self.assertEqual(result.status, 0, str(result))
        self.assertIn("tiny    left out", result.out)
        self.assertFalse(os.path.exists(self.at("plan")))

    def test_a_plan_says_what_the_run_says_and_needs_no_folder(self):
        plan = run([program("bagpipe"), "bench", "--plan", *QUICK])
        self.assertEqual(plan.status, 0, str(plan))
        planned = re.search(r"tiny +about (\d+) MiB", plan.out)
        self.assertTrue(planned and re.search(r"time: about [1-9][0-9.]* s at bench.seconds = 0.02", plan.out), plan.out)
        _, found = self.measured("estimated")
        # of the process, whose pages differ a little from start to start
        self.assertLess(abs(int(planned.group(1)) - found["models"][0]["plan_bytes"] / (1 << 20)), 4)

    def test_wrong_keys_are_78_and_another_jobs_folder_too(self):
        for key, *words in (("bench.models=smal", "[bench.unknown_model]", "'smal'"), ("bench.second=1", "[config.unknown_key]", "bench.seconds"),
                            ("mesh.members=2", "[mesh.one_model]"), ("bench.seconds=0", "[config.bad_value]", "bench.seconds")):
            self.assert_error(self.bench("wrong", 0, key), 78, *words)
        self.assert_error(run([program("bagpipe"), "bench", "bench.seconds=1"]), 78, "[config.missing_key]", "run.dir")
        self.assert_error(self.bench("wrong", 0, "tokenizer.path=/nonexistent/tokenizer.json"), 66, "[file.missing]")
        self.assertFalse(os.path.exists(self.at("wrong")))

    def test_usr1_stops_between_measurements_with_75(self):
        process = Background([program("bagpipe"), "bench", f"run.dir={self.at('stopped')}", *QUICK, "bench.seconds=0.3"])
        self.addCleanup(process.end)
        log = os.path.join(self.at("stopped"), "log.txt")
        while process.poll() is None and not (os.path.exists(log) and os.path.getsize(log) > 0):
            time.sleep(0.02)
        process.send_signal(signal.SIGUSR1)
        process.wait(bagpipe_test.TIMEOUT)
        self.assert_stopped(process.result())
        self.assertFalse(os.path.exists(os.path.join(self.at("stopped"), "bench.json")))


if __name__ == "__main__":
    bagpipe_test.main()
