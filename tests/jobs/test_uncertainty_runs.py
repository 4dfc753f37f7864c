"""An uncertainty study on any mesh, stopped, killed and continued; and what is refused before anything is computed."""
import json
import os
import random
import shutil
import signal

import bagpipe_test
from bagpipe_test import program, run
from uncertainty_test import FIGURES, METHODS, UncertaintyTest, h5py, numpy


class UncertaintyRuns(UncertaintyTest):
    STEPS = 60  # nothing here asks how good a model is

    @classmethod
    def models(cls):
        return f"uncertainty.models=single={cls.at('m0')},three={cls.at('three')},passes={cls.at('m0')}:dropout"

    def one(self):
        """The summary of one rank, undisturbed, of all methods but Laplace, whose samples agree to rounding."""
        if not os.path.exists(self.file("one", "summary.json")):
            self.studied("one", 0, self.models())
        return self.summary("one")

    # ---- meshes, starts and stops ----

    def timeless(self, summary):
        for method in summary["methods"].values():
            for key in ("train_seconds", "fit_seconds", "score_seconds", "memory_mib"):
                method.pop(key)
        return summary

    def test_the_summary_is_equal_at_any_number_of_data_ranks(self):
        """mesh.members spreads the ensemble alone."""
        self.studied("two", 2, self.models())
        self.studied("three_ranks", 3, self.models(), "mesh.coordinator=dedicated")
        want = self.timeless(self.one())
        for name in ("two", "three_ranks"):
            self.assertEqual(want, self.timeless(self.summary(name)))
        few = (self.models(), f"uncertainty.in_domain={self.at('other.h5')}", "uncertainty.shifted=")  # each token takes messages between the ranks
        self.studied("few", 0, *few)
        self.studied("spread", 2, *few, "mesh.members=2")
        got, want = (self.summary(name)["methods"] for name in ("spread", "few"))
        for method in want:
            for figure in ("nll", "nll_tempered"):
                self.assertAlmostEqual(got[method][figure] / want[method][figure], 1, delta=1e-5)
            for kind in ("lac", "aps", "raps"):
                self.assertAlmostEqual(got[method]["sets"]["in_domain"][kind]["size"] / want[method]["sets"]["in_domain"][kind]["size"], 1, delta=0.02)

    def test_stopped_it_says_75_and_goes_on(self):
        process = self.background(self.command("stopped"), 2)
        self.until(lambda: os.path.isdir(self.file("stopped", "scores", "three")), process)
        process.send_signal(signal.SIGUSR1)
        self.assert_stopped(process.result())
        done = self.file("stopped", "scores", "single", "score", "summary.json")
        before = os.stat(done).st_mtime_ns
        result = self.studied("stopped", 2, "mesh.data=2", "mesh.micro_batch=2")
        self.assert_warning(result, "[run.other_bits]", ": mesh.data is 2 and was 0 [")  # by :laplace
        self.assertEqual(os.stat(done).st_mtime_ns, before)
        got, want = self.summary("stopped")["methods"], self.one()["methods"]
        for method in ("single", "three", "passes"):
            for figure in FIGURES:
                self.assertEqual(got[method][figure], want[method][figure])

    def test_a_method_whose_temperature_is_missing_is_not_done(self):
        keys = [f"uncertainty.models=single={self.at('m0')},three={self.at('three')}"]
        process = self.background(self.command("unfitted", *keys), 2, {"BP_FAULT": "corpus.open:1+=delay0.4"})  # it leaves time for the signal
        self.until(lambda: "three: fitting its temperature" in self.last_line("unfitted"), process)
        process.send_signal(signal.SIGUSR1)
        self.assert_stopped(process.result())
        self.assertFalse(os.path.exists(self.file("unfitted", "scores", "three")))  # it is scored at that temperature too
        status = json.loads(run([program("bagpipe"), "status", "--json", self.at("unfitted")]).out)
        self.assertEqual((status["methods_scored"], status["methods"], status["progress"]), (1, 2, 0.5))
        self.studied("unfitted", 2, *keys)
        status = json.loads(run([program("bagpipe"), "status", "--json", self.at("unfitted")]).out)
        self.assertEqual((status["methods_scored"], status["progress"]), (2, 1))
        for again in (False, True):
            if again:  # it is scored once more, at the temperature of the record
                shutil.rmtree(self.file("unfitted", "scores", "three"))
                self.studied("unfitted", 2, *keys)
            for method, got in self.summary("unfitted")["methods"].items():
                self.assertEqual(got["nll_tempered"], self.one()["methods"][method]["nll_tempered"])

    @classmethod
    def wide(cls, vocabulary):
        """A model whose eigenproblem takes some seconds, and its corpus."""
        if not os.path.exists(cls.at("vast")):
            with h5py.File(cls.at("vast.h5"), "w") as file:
                file["tokens"] = (numpy.arange(20_000, dtype=numpy.int32) * 7919) % vocabulary
                file["doc_start"] = numpy.arange(0, 20_001, 50).astype(numpy.uint64)
                file.attrs["vocab_size"] = vocabulary
            cls.convert("vast.h5")
            cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.at('vast')}", f"corpus.train={cls.at('vast.h5')}",
                      "corpus.valid=", "model.layers=1", "model.width=8", "model.heads=2", "model.context=8", "train.steps=1"])
        return [f"uncertainty.models=last={cls.at('vast')}:laplace", f"uncertainty.in_domain={cls.at('vast.h5')}", "uncertainty.shifted=",
                "corpus.valid=", f"corpus.train={cls.at('vast.h5')}", "laplace.tokens=2000"]

    def last_line(self, name):
        try:
            with open(os.path.join(self.at(name), "log.txt"), encoding="utf-8") as file:
                return file.read().splitlines()[-1]
        except (OSError, IndexError):
            return ""

    def stopped_in_the_eigenproblem(self, name, ranks, ask, reason, *keys):
        """Nothing interrupts the library: all ranks leave it to itself, close the run and end."""
        keys = self.wide(5000) + list(keys)
        process = self.background(self.command(name, *keys), ranks)
        self.until(lambda: "eigenvectors" in self.last_line(name), process)
        status = run([program("bagpipe"), "status", self.at(name)])
        self.assertRegex(status.out, r"last: fit, step 3 of 4, eigenvectors: \d+ %, .* left")
        ask(process, os.path.join(self.at(name), "halt"))
        self.assert_stopped(process.result())
        with open(os.path.join(self.at(name), "log.txt"), encoding="utf-8") as file:
            self.assertNotIn("step 4 of 4", file.read(), "the eigenproblem was waited for")
        with open(os.path.join(self.at(name), "run.json"), encoding="utf-8") as file:
            end = json.load(file)["exit"]
        self.assertEqual((end["state"], end["reason"]), ("stopped", reason))
        self.assertEqual(os.listdir(self.file(name, "laplace")), [])
        if os.path.exists(os.path.join(self.at(name), "halt")):
            os.remove(os.path.join(self.at(name), "halt"))
        self.studied(name, ranks, *keys, f"uncertainty.models=single={self.at('vast')}")  # nobody holds it, and it goes on

    def test_a_signal_is_heard_in_the_eigenproblem(self):
        self.stopped_in_the_eigenproblem("signalled", 2, lambda process, halt: process.send_signal(signal.SIGUSR1), "USR1")

    def test_a_halt_file_is_heard_in_the_eigenproblem(self):
        """A dedicated coordinator looks for the file, and tells those that compute."""
        self.stopped_in_the_eigenproblem("halted", 3, lambda process, halt: open(halt, "w", encoding="utf-8").close(), "halt",
                                         "mesh.coordinator=dedicated")

    def test_killed_at_any_moment_it_goes_on(self):
        draw, kills = random.Random(4), 0
        while True:
            result = run(self.command("killed"), 2, kill_after=0.5 + 1.5 * draw.random() if kills < 4 else None)
            if result.status == 0:
                break
            self.assertEqual(result.status, -signal.SIGKILL, str(result))
            kills += 1
        self.assertGreater(kills, 0)
        got, want = self.summary("killed")["methods"], self.one()["methods"]
        for method in ("single", "three", "passes"):
            for figure in FIGURES + ("temperature",):
                self.assertEqual(got[method][figure], want[method][figure], f"{method} {figure}")

    def test_finished_it_exits_0_and_takes_new_methods_and_groups(self):
        models = f"uncertainty.models=single={self.at('m0')}"
        self.studied("grown", 0, models)
        self.assertIn("finished", self.studied("grown", 0, models).out)
        self.studied("grown", 0, models + f",three={self.at('three')}", f"uncertainty.shifted={self.at('other.h5')}, {self.at('labelled.h5')}:genre=noise")
        summary = self.summary("grown")
        self.assertEqual(list(summary["methods"]), ["single", "three"])
        self.assertEqual(list(summary["methods"]["single"]["ood"]), ["other", "noise"])
        self.assertIn("finished", run(self.command("grown", models + f",three={self.at('three')}",
                                                   f"uncertainty.shifted={self.at('other.h5')}, {self.at('labelled.h5')}:genre=noise")).out)
        for keys, words in (((f"uncertainty.shifted={self.at('valid.h5')}",), ("uncertainty.in_domain and uncertainty.shifted", "only groups")),
                            ((f"uncertainty.models=single={self.at('m1')}",), ("method single", "score.model"))):
            result = run(self.command("grown", *((models,) + keys)))
            self.assertEqual(result.status, 78, str(result))
            for word in words:
                self.assertIn(word, result.err)

    # ---- refusals ----

    def refused(self, status, words, *keys, name="refused"):
        result = run(self.command(name, *keys))
        self.assert_error(result, status, *(words if isinstance(words, tuple) else (words,)))
        self.assertFalse(os.path.isdir(self.file(name, "scores")), "something was computed")

    def test_wrong_lists_are_refused_before_anything_is_computed(self):
        m0, labelled = self.at("m0"), self.at("labelled.h5")
        self.refused(78, ("[comparison.unknown_method]", ":mcmc"), f"uncertainty.models=a={m0}:mcmc")
        self.refused(78, ("[comparison.same_name]", "'a'"), f"uncertainty.models=a={m0},a={self.at('m1')}")
        self.refused(78, "[comparison.no_name]", f"uncertainty.models={m0}")
        self.refused(78, ("[comparison.bad_name]", "'a/b'"), f"uncertainty.models=a/b={m0}")
        self.refused(66, ("[checkpoint.missing]", "method b", self.at("nowhere")), f"uncertainty.models=a={m0},b={self.at('nowhere')}")
        self.refused(66, "[checkpoint.none]", f"uncertainty.models=a={self.at('.')}")
        self.refused(78, "[comparison.ensemble_method]", f"uncertainty.models=a={self.at('three')}:dropout")
        self.refused(65, ("[label.unknown]", "'kind'", "genre"), f"uncertainty.in_domain={labelled}:kind=news")
        self.refused(65, ("[label.unknown_value]", "'sports'", "news", "noise"), f"uncertainty.in_domain={labelled}:genre=sports")
        self.refused(78, ("[comparison.shared_documents]", "in_domain", "'noise'"), f"uncertainty.in_domain={labelled}", f"uncertainty.shifted={labelled}:genre=noise")
        self.refused(78, ("[comparison.same_name]", "'other'"), f"uncertainty.shifted={self.at('other.h5')},{self.at('other.h5')}")
        self.refused(78, ("[comparison.no_label_value]", "labelled.h5:genre=VALUE"), f"uncertainty.shifted={labelled}:genre")
        self.refused(66, ("[file.missing]", "nothing.h5"), f"uncertainty.shifted={self.at('nothing.h5')}")
        self.refused(66, "[corpus.no_match]", f"uncertainty.shifted={self.at('nothing*.h5')}")
        self.refused(78, "[laplace.no_corpus]", f"uncertainty.models=a={m0}:laplace", "corpus.train=")

    def test_a_group_of_one_document_is_refused(self):
        self.corpus("lonely", [{"id": "x", "text": "One document alone ."}])
        self.refused(65, ("[comparison.group_too_small]", "lonely", "1 document"), f"uncertainty.shifted={self.at('lonely.h5')}")

    def test_a_member_that_is_missing_is_named(self):
        os.makedirs(self.at("broken"), exist_ok=True)
        self.write("broken/ensemble.json", json.dumps({"members": [{"name": "a", "path": "../m0"}, {"name": "b", "path": "../gone"}]}))
        self.refused(66, ("[checkpoint.missing]", "method x", "member b", "gone"), f"uncertainty.models=x={self.at('broken')}")

    def test_other_tokenizers_are_refused(self):
        self.must(["bagpipe-data", "tokenizer", "--kind", "bpe", "--size", 300, "--out", self.at("t300.json"), self.at("train.txt")])
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("t300.json"), "--format", "lines", "--out", self.at("t300.h5"),
                   self.at("valid.txt")])
        self.refused(65, ("[tokenizer.mismatch]", "method single"), f"uncertainty.in_domain={self.at('t300.h5')}", "uncertainty.shifted=")
        self.refused(65, "[tokenizer.mismatch]", f"corpus.valid={self.at('t300.h5')}")

    def test_a_vocabulary_beyond_laplace_is_refused(self):
        with h5py.File(self.at("wide.h5"), "w") as file:
            file["tokens"] = numpy.arange(400, dtype=numpy.int32) % 7
            file["doc_start"] = numpy.arange(0, 401, 50).astype(numpy.uint64)
            file.attrs["vocab_size"] = 20_000
        self.convert("wide.h5")
        self.trained("wide", 0, f"corpus.train={self.at('wide.h5')}", "corpus.valid=", "model.layers=1", "model.width=8", "model.heads=2",
                     "model.context=8", "train.steps=1")
        self.refused(78, ("[laplace.vocabulary_too_large]", "method w", "20000", "16384"), f"uncertainty.models=w={self.at('wide')}:laplace",
                     f"uncertainty.in_domain={self.at('wide.h5')}", "uncertainty.shifted=", "corpus.valid=", f"corpus.train={self.at('wide.h5')}")

    def test_damaged_scores_are_named(self):
        models = f"uncertainty.models=single={self.at('m0')}"
        self.studied("damaged", 0, models)
        tokens = self.file("damaged", "scores", "single", "score", "tokens.h5")
        with open(tokens, "r+b") as file:
            file.seek(2000)
            byte = file.read(1)
            file.seek(2000)
            file.write(bytes([byte[0] ^ 1]))
        result = run(self.command("damaged", models, "uncertainty.resamples=300"))
        self.assert_error(result, 65, "tokens.h5")

    def test_what_tells_little_is_warned_of(self):
        reported = {"corpus.train=" + self.at("valid.h5"): ("[laplace.other_corpus]", "[laplace.few_tokens]", "[comparison.calibrated_on_training]"),
                "laplace.tokens=500": ("[laplace.few_tokens]",), "uncertainty.dropout=0": ("[comparison.no_dropout]",),
                "uncertainty.passes=1": ("[comparison.one_pass]",)}
        quiet = run(self.command("warned", "laplace.tokens=10000", "--plan"))
        self.assertEqual((quiet.status, quiet.err), (0, ""), str(quiet))
        for key, identifiers in reported.items():
            result = run(self.command("warned", *(["laplace.tokens=10000"] if not key.startswith("laplace.") else []), key, "--plan"))
            self.assertEqual(result.status, 0, str(result))
            self.assert_words(result.lines("warning"), identifiers, str(result))

    def test_plan_and_check_compute_nothing(self):
        result = run(self.command("planned", "mesh.members=2") + ["--plan"])
        self.assertEqual(result.status, 0, str(result))
        for word in METHODS + ("in domain", "backward <b>", "memory", "time"):
            self.assertIn(word, result.out)
        self.assertFalse(os.path.exists(self.at("planned")))
        result = run([program("bagpipe"), "check"] + self.command("planned")[1:])
        self.assertEqual(result.status, 0, str(result))


if __name__ == "__main__":
    bagpipe_test.main()
