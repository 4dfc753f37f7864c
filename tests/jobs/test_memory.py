"""Memory of a node: plans and starts that do not fit into it end with 71 and name what would, before anything is made."""
import os
import re
import unittest

import bagpipe_test
from bagpipe_test import JobTest, program, run, steps

SMALL = "run.memory=20MiB"  # less than a process takes with its libraries


class Memory(JobTest):
    def job(self, job, name, ranks, *keys, config=True):
        return run([program("bagpipe"), job] + ([self.at("small.ini")] if config else []) + [f"run.dir={self.at(name)}"] + list(keys), ranks)

    def refused(self, result, name=None, status=71):
        """One line, of one rank, and no folder of that name."""
        self.assert_error(result, status)
        if name:
            self.assertFalse(os.path.exists(self.at(name)), str(result))
        return result.lines("error")[0]

    def estimated(self, *keys, job="pretrain"):
        """MiB of the ranks of a node together, as --plan has them."""
        result = self.job(job, "planned", 0, "--plan", *keys)
        self.assertEqual(result.status, 0, str(result))
        value, unit = re.search(r"memory: .*ranks? takes? about ([\d.]+) (MiB|GiB)", result.out).groups()
        return float(value) * (1024 if unit == "GiB" else 1)

    def test_plan_sums_the_ranks_of_a_node(self):
        one, two = self.estimated("--ranks", "1"), self.estimated("--ranks", "2")
        self.assertGreater(two, 1.5 * one)
        self.assertLess(abs(self.estimated("--ranks", "2", "--nodes", "2") - two / 2), 10)
        self.assertLess(abs(self.estimated("mesh.data=2") - two), 10)  # the mesh names as many ranks
        self.assertLess(abs(self.estimated("mesh.data=2", "--nodes", "2") - two / 2), 10)
        self.assertFalse(os.path.exists(self.at("planned")))

    @unittest.skipIf(bagpipe_test.SANITIZED, "the sanitizer's own memory is counted too: a mesh saves a smaller share")
    def test_plan_that_does_not_fit_names_keys_that_do(self):
        wide = ("model.width=512", "model.layers=6", "model.heads=8", "train.batch=16", "mesh.micro_batch=4")
        needs = self.estimated(*wide, "--ranks", "2")
        found = set()
        for share in (0.95, 0.8, 0.7, 0.6):
            limit = f"run.memory={int(share * needs * 1024)}KiB"
            result = self.job("pretrain", "planned", 0, "--plan", "--ranks", "2", limit, *wide)
            line = self.refused(result, "planned")
            self.assertIn("run.memory", line)
            self.assertRegex(result.out, r"memory: 2 ranks take about")
            for remedy in re.findall(r"use ((?:[a-z]+\.[a-z_]+=\w+ ?)+)", line) if "; and use" not in line else []:
                keys = remedy.split()
                found.update(key.split("=")[0] for key in keys)
                again = self.job("pretrain", "planned", 0, "--plan", "--ranks", "2", limit, *wide, *keys)
                self.assertEqual(again.status, 0, f"{keys}: {again}")
        self.assertIn("checkpoint.async", found)
        self.assertTrue(found & {"mesh.pipeline", "mesh.tensor"}, found)

    def test_plan_of_shared_experts_names_keys_that_fit(self):
        """Four ranks hold one copy of the experts, and their gradients once where they run on."""
        keys = ("model.kind=mixtral", "model.width=512", "model.inner=2048", "model.experts=16", "model.experts_chosen=1", "train.batch=16", "mesh.expert=4", "--ranks", "4")
        limit = f"run.memory={int(1.1 * self.estimated(*keys, 'train.reduction=running', 'checkpoint.async=no'))}MiB"
        line = self.refused(self.job("pretrain", "planned", 0, "--plan", limit, *keys))
        self.assertIn("use checkpoint.async=no train.reduction=running", line)

    @unittest.skipIf(bagpipe_test.SANITIZED, "the sanitizer's own memory is counted too: a mesh saves a smaller share")
    def test_plan_that_fits_no_mesh_names_nodes(self):
        wide = ("model.width=512", "model.layers=8", "--ranks", "1")
        limit = f"run.memory={int(self.estimated(*wide) * 0.35)}MiB"
        line = self.refused(self.job("pretrain", "planned", 0, "--plan", limit, *wide))
        match = re.search(r"start (\d+) ranks on (\d+) nodes with ((?:mesh\.\w+=\d+ ?)+)", line)
        self.assertTrue(match, line)
        again = self.job("pretrain", "planned", 0, "--plan", limit, *wide[:2], "--ranks", match[1], "--nodes", match[2], *match[3].split())
        self.assertEqual(again.status, 0, str(again))

    def test_plan_s_ranks_and_nodes_are_checked(self):
        for words in (("--ranks", "0"), ("--ranks", "two"), ("--ranks",), ("--ranks", "2", "--nodes", "3"), ("--ranks", "2", "--nodes", "0")):
            self.refused(self.job("pretrain", "planned", 0, "--plan", *words), "planned", status=64)
        self.refused(self.job("pretrain", "planned", 0, "--ranks", "2"), "planned", status=64)
        self.refused(self.job("pretrain", "planned", 2, "--plan", "--nodes", "2"), "planned", status=64)
        self.refused(self.job("pretrain", "planned", 0, "--plan", "--ranks", "3", "mesh.pipeline=2"), status=78)

    def test_several_processes_plan_too(self):
        for words in ((), ("--ranks=4", "--nodes=2")):
            result = self.job("pretrain", "planned", 2, "--plan", *words)
            self.assertEqual(result.status, 0, str(result))
            self.assertEqual(len(re.findall("ranks take about", result.out)), 1, str(result))
            self.refused(self.job("pretrain", "planned", 2, "--plan", SMALL, *words), "planned")

    def test_slurm_s_limit_counts(self):
        for variable in ("SLURM_MEM_PER_NODE=20", "SLURM_MEM_PER_CPU=10"):
            result = run(["env", "SLURM_JOB_ID=1", "SLURM_CPUS_ON_NODE=2", variable, program("bagpipe"), "pretrain", self.at("small.ini"),
                          f"run.dir={self.at('planned')}", "--plan"])
            self.assertIn(variable.split("=")[0], self.refused(result, "planned"))

    def test_start_that_does_not_fit_makes_no_folder(self):
        for ranks in (1, 2):
            self.assertIn("run.memory", self.refused(self.job("pretrain", "refused", ranks, SMALL), "refused"))

    def test_runs_go_on_with_another_limit(self):
        folder = self.trained("goes_on", 2, "train.steps=2")
        before = steps(folder)
        result = self.job("pretrain", "goes_on", 2, "train.steps=2", SMALL)  # a finished run needs none
        self.assertEqual(result.status, 0, str(result))
        self.refused(self.job("pretrain", "goes_on", 2, "train.steps=4", SMALL))
        self.assertEqual(steps(folder), before)
        result = self.job("pretrain", "goes_on", 2, "train.steps=4", "run.memory=2GiB")
        self.assertEqual(result.status, 0, str(result))

    def test_ensembles_count_members_side_by_side(self):
        keys = ("ensemble.members=4", "mesh.members=2")
        two, one = self.estimated(*keys, job="ensemble"), self.estimated(keys[0], job="ensemble")
        self.assertGreater(two, 1.8 * one)
        for ranks in (0, 2):
            plan = ("--plan",) if ranks == 0 else ()
            self.refused(self.job("ensemble", "refused", ranks, *keys, *plan, f"run.memory={int(1.5 * one)}MiB"), "refused")

    def test_scoring_and_studies(self):
        model = self.trained("model", 0, "train.steps=1", "corpus.valid=", "model.width=256")  # a unit's states take more than starts of a process differ by
        score = (f"score.model={model}", f"score.corpus={self.at('valid.h5')}")
        study = (f"uncertainty.models=plain={model}, dropout={model}:dropout", f"uncertainty.in_domain={self.at('train.h5')}", "uncertainty.dropout=0.1")
        for job, keys in (("score", score), ("uncertainty", study)):
            for ranks in (0, 1, 2):
                self.refused(self.job(job, "refused", ranks, *keys, SMALL), "refused")
            result = self.job(job, "planned", 0, *keys, "--plan", "--ranks", "4", "--nodes", "2")
            self.assertEqual(result.status, 0, str(result))
            self.assertRegex(result.out, r"on each of 2 nodes 2 ranks take about")
            self.refused(self.job(job, "planned", 0, *keys, "--plan", SMALL), "planned")
        states = [self.estimated(*score, "mesh.coordinator=dedicated", "--ranks", "3", f"score.states={word}", job="score") for word in ("yes", "no")]
        alone = [self.estimated(*score, "--ranks", "1", f"score.states={word}", job="score") for word in ("yes", "no")]
        self.assertGreater(alone[0], alone[1] + 15)
        self.assertGreater(states[0] - states[1], 2.5 * (alone[0] - alone[1]))  # the coordinator, too, holds some
        scored = self.job("score", "scored", 0, *score)
        self.assertEqual(scored.status, 0, str(scored))
        self.assertEqual(self.job("score", "scored", 2, *score, SMALL).status, 0)  # finished
        os.remove(self.at("scored/score/documents.h5"))
        for ranks in (0, 2):
            self.refused(self.job("score", "scored", ranks, *score, SMALL))
        again = self.job("score", "scored", 2, *score)
        self.assertEqual(again.status, 0, str(again))
        self.assertTrue(os.path.exists(self.at("scored/score/documents.h5")))

    def test_a_loaded_model_does_not_count_twice(self):
        model = self.trained("large", 0, "train.steps=1", "train.batch=2", "optimizer.kind=sgd", "model.width=768", "model.layers=3",
                             "corpus.valid=")
        self.write("few.txt", "the ship was at sea\n" * 5)
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "lines", "--out", self.at("few.h5"), self.at("few.txt")])
        keys = (f"score.model={model}", f"score.corpus={self.at('few.h5')}", "score.states=no")
        needs = self.estimated(*keys, "--ranks", "1", job="score")
        keys += (f"run.memory={int(1.25 * needs)}MiB",)
        for state in ("is new", "is finished", "lacks a result"):
            result = self.job("score", "once", 0, *keys)
            self.assertEqual(result.status, 0, f"{state}: {result}")
            if state == "is finished":
                os.remove(self.at("once/score/documents.h5"))
        self.assertTrue(os.path.exists(self.at("once/score/documents.h5")))

    def test_scores_of_a_large_ensemble_name_members_side_by_side(self):
        model = self.trained("wide", 0, "train.steps=1", "train.batch=2", "corpus.valid=", "model.width=512", "model.heads=8")
        members = ", ".join(f'{{"name": "m{k}", "path": "{model}"}}' for k in range(4))
        path = self.write("ensemble.json", f'{{"members": [{members}]}}')
        keys = (f"score.model={path}", f"score.corpus={self.at('valid.h5')}", "--plan", "--ranks", "2")
        needs = self.estimated(*keys, job="score")
        line = self.refused(self.job("score", "planned", 0, *keys, f"run.memory={int(0.85 * needs)}MiB"))
        self.assertIn("mesh.members=2", line)
        again = self.job("score", "planned", 0, *keys, f"run.memory={int(0.85 * needs)}MiB", "mesh.members=2")
        self.assertEqual(again.status, 0, str(again))

    def test_bench_leaves_out_what_does_not_fit(self):
        keys = ("bench.models=tiny, gpt2", "--plan", "run.memory=1GiB")
        result = self.job("bench", "planned", 0, *keys, config=False)
        self.assertEqual(result.status, 0, str(result))
        self.assertRegex(result.out, r"gpt2 +left out")
        self.assertNotRegex(result.out, r"tiny +left out")
        result = self.job("bench", "planned", 0, *keys, "--ranks", "16", config=False)
        self.assertRegex(result.out, r"tiny +left out")

    # ---- what makes a job slow ----

    def test_micro_batches_of_few_rows_are_warned_of_with_what_is_better(self):
        wide = ("model.width=128", "model.context=64", "train.batch=32")
        reported = "[mesh.few_rows]"

        def warned(*keys, job="pretrain"):
            result = self.job(job, "rows", 0, "--plan", *wide, *keys)
            self.assertEqual(result.status, 0, str(result))
            self.assertLessEqual(result.err.count(reported), 1, str(result))
            found = re.search(r"use mesh\.micro_batch=(\d+)", result.err)
            return int(found[1]) if reported in result.err else None

        self.assertEqual(warned(), 16)  # 1,024 rows
        self.assertIsNone(warned("mesh.micro_batch=16"))
        self.assertIsNone(warned("mesh.micro_batch=8"))  # half of it is nearly as fast
        self.assertIsNone(warned("model.width=32"))
        self.assertIsNone(warned("train.batch=1"))
        self.assertEqual(warned("train.batch=8"), 8)  # as many as there are
        self.assertEqual(warned("mesh.data=8", "train.batch=64"), 8)
        self.assertEqual(warned("mesh.pipeline=2"), 8)  # four micro-batches to fill two stages
        self.assertEqual(warned("ensemble.members=2", job="ensemble"), 16)
        once = self.job("ensemble", "rows", 0, *wide, "ensemble.members=2", "train.steps=1", "ensemble.kind=seed")
        self.assertEqual((once.status, once.err.count(reported)), (0, 1), str(once))
        again = self.job("ensemble", "rows", 0, *wide, "ensemble.members=3", "train.steps=1", "ensemble.kind=seed")
        self.assertEqual((again.status, again.err.count(reported)), (0, 0), str(again))
        started = self.job("pretrain", "few_rows", 2, *wide, "train.steps=1")
        self.assertEqual((started.status, started.err.count(reported)), (0, 1), str(started))
        resumed = self.job("pretrain", "few_rows", 2, *wide, "train.steps=2")  # it would get other bits
        self.assertEqual((resumed.status, resumed.err.count(reported)), (0, 0), str(resumed))

    def test_more_threads_than_cores_are_warned_of_in_every_job(self):
        core = str(min(os.sched_getaffinity(0)))
        model = self.trained("threads_model", 0, "train.steps=1")
        score = (f"score.model={model}", f"score.corpus={self.at('valid.h5')}")
        jobs = {"pretrain": ("train.steps=1",), "ensemble": ("train.steps=1", "ensemble.members=2", "mesh.members=2", "ensemble.kind=seed"),
                "score": score, "bench": ("bench.models=tiny", "bench.seconds=0.01", "bench.corpus=1MiB", "bench.message=64KiB"),
                "uncertainty": (f"uncertainty.models=plain={model}", f"uncertainty.in_domain={self.at('train.h5')}", "uncertainty.resamples=100")}
        for job, keys in jobs.items():
            with self.subTest(job=job):
                command = [program("bagpipe"), job, self.at("small.ini"), f"run.dir={self.at('threads_' + job)}"] + list(keys)
                result = run(["taskset", "-c", core, "sh", bagpipe_test.MPIRUN, "2"] + command)
                self.assertEqual(result.status, 0, str(result))
                self.assert_warning(result, "[math.too_many_threads]", "1 core", "start 1 rank")


if __name__ == "__main__":
    bagpipe_test.main()
