"""Word vectors have the same bits at any number of ranks and after a kill; what gives no probabilities is refused by what scores."""
import glob
import os
import signal

import bagpipe_test
from bagpipe_test import JobTest, digests, metrics, program, state_of, steps, timeless

VARIANTS = [("skipgram", "negative"), ("skipgram", "hierarchical"), ("cbow", "negative"), ("cbow", "hierarchical")]


class Word2vec(JobTest):
    TEXT_BYTES = 60_000

    @classmethod
    def config(cls):
        return f"""[corpus]
train = {cls.at('train.h5')}
valid = {cls.at('valid.h5')}
[model]
kind = word2vec
width = 40
context = 64
[word2vec]
sample = 0.01
[train]
steps = 6
batch = 8
log_every = 1
valid_every = 3
[math]
precision = f32
threads = 1
"""

    def test_ranks_give_the_same_bits(self):
        for mode, output in VARIANTS:
            with self.subTest(mode=mode, output=output):
                keys = (f"word2vec.mode={mode}", f"word2vec.output={output}", f"optimizer.lr={0.5 if mode == 'cbow' else 0.1}")
                one = self.trained(f"{mode}-{output}", 0, *keys)
                losses = [line["loss"] for line in metrics(one)]
                self.assertLess(losses[-1], losses[0])
                for ranks in (3, 4) if (mode, output) == VARIANTS[0] else (4,):
                    other = self.trained(f"{mode}-{output}-{ranks}", ranks, *keys)
                    self.assertEqual(digests(other), digests(one))
                    self.assertEqual(timeless(metrics(other)), timeless(metrics(one)))

    def test_a_dedicated_coordinator_changes_nothing(self):
        one = self.trained("shared", 2)
        self.assertEqual(digests(self.trained("dedicated", 3, "mesh.coordinator=dedicated")), digests(one))

    def test_a_killed_training_goes_on_with_the_same_bits(self):
        whole = self.trained("whole", 0)
        for name, fault in (("step", "step.begin:5@0"), ("commit", "ckpt.rename:2")):
            with self.subTest(fault):
                killed = self.background([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at(name)}", "checkpoint.every=2"],
                                         2, env={"BP_FAULT": fault + "=kill"})
                killed.communicate()
                self.assertNotEqual(killed.returncode, 0)
                self.assertTrue(steps(self.at(name)))
                self.assertNotIn("step-000000000006", steps(self.at(name)))
                self.trained(name, 4, "checkpoint.every=2")
                self.assertEqual(digests(self.at(name)), digests(whole))
                self.assertEqual(timeless(metrics(self.at(name))), timeless(metrics(whole)))

    def test_what_is_resumed_has_the_defaults_of_word2vec(self):
        run_dir = self.trained("defaults", 0)
        with open(os.path.join(run_dir, "config.ini"), encoding="utf-8") as file:
            text = file.read()
        for line in ("kind = sgd", "lr = 0.025", "decay = linear", "min_lr = 0.0001", "window = 5", "negative = 5", "mode = skipgram"):
            self.assertIn(line + "\n", text)
        again = self.pretrain("defaults", 2, "train.steps=8")
        self.assertEqual(again.status, 0, str(again))
        self.assertEqual(metrics(run_dir)[0]["lr"], 0.025)

    def test_another_corpus_begins_with_its_vectors(self):
        first = self.trained("first", 0, "optimizer.lr=0.1", "train.steps=20")
        anew = self.trained("anew", 0, "train.steps=1")
        more = self.trained("more", 2, f"model.init={first}", "run.seed=2", "train.steps=1")
        self.assertLess(metrics(more)[0]["loss"], metrics(anew)[0]["loss"] - 0.05)
        tree = self.trained("tree", 2, f"model.init={first}", "word2vec.output=hierarchical", "train.steps=1")  # its own output vectors
        self.assertEqual(state_of(tree)["model"]["output"], "hierarchical")

    def test_scores_are_refused_before_anything_is_computed(self):
        run_dir = self.trained("vectors", 0)
        for job, keys in (("score", [f"score.model={run_dir}", f"score.corpus={self.at('valid.h5')}"]),
                          ("uncertainty", [f"uncertainty.models=a={run_dir}", f"uncertainty.in_domain={self.at('train.h5')}"]),
                          ("generate", [f"generate.model={run_dir}", f"generate.prompts={self.at('valid.txt')}"]),
                          ("ensemble", ["ensemble.members=2"])):
            for ranks in (0, 2) if job == "score" else (0,):
                with self.subTest(job, ranks=ranks):
                    result = bagpipe_test.run([program("bagpipe"), job, self.at("small.ini"), f"run.dir={self.at(job)}"] + keys, ranks)
                    self.assert_error(result, 78, "[model.no_distribution]")
                    self.assertEqual(glob.glob(self.at(job + "/*/*.h*")), [])

    def test_what_does_not_fit_is_said(self):
        for keys, name in ((["mesh.tensor=2"], "word2vec.split_mesh"), (["optimizer.kind=adamw"], "word2vec.other_optimizer"),
                           (["optimizer.momentum=0.9"], "word2vec.other_optimizer"), (["model.dropout=0.1"], "word2vec.dropout"),
                           (["model.layers=2"], "model.unused_key"), (["word2vec.window=101"], "config.bad_value"),
                           (["train.sample_every=2"], "model.not_causal"), (["model.kind=gpt", "model.layers=1", "model.heads=1"], "model.unused_key"),
                           (["mesh.micro_batch=2", "train.recompute=yes", "train.reduction=running", "math.precision=bf16", "optimizer.beta1=0.8",
                             "optimizer.beta2=0.8", "optimizer.epsilon=1e-6", "mesh.schedule=gpipe", "mesh.chunks=3", "corpus.weights=1"],
                            "word2vec.unused_key")):
            with self.subTest(keys):
                result = self.pretrain("refused", 2 if "mesh.tensor=2" in keys else 0, *keys)
                lines = len(keys) if name == "word2vec.unused_key" else 1
                self.assert_error(result, 78, f"[{name}]", *([key.split("=")[0] for key in keys] if lines > 1 else []), lines=lines)

    def test_a_training_that_diverges_leaves_no_such_checkpoint(self):
        result = self.pretrain("diverges", 2, "optimizer.lr=1000", "checkpoint.every=1", "word2vec.sample=0")
        self.assert_error(result, 70, "[training.diverged]")
        for step in steps(self.at("diverges")):  # only finite vectors are exported
            self.must(["bagpipe-data", "export", self.at(f"diverges/checkpoints/{step}"), "--out", self.at("diverges.txt")])

    def test_one_rank_that_cannot_read_the_validation_ends_all(self):
        job = self.background([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('unread')}"], 2,
                              env={"BP_FAULT": "train.read_valid:2@1"})
        self.assert_error(job.result(), 74, "[fault.injected]")

    def test_a_stop_request_is_heard_while_words_are_counted(self):
        command = [program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('stopped')}"]
        job = self.background(command, 2, env={"BP_FAULT": "count.run=delay3"})
        self.until(lambda: os.path.exists(self.at("stopped/config.ini")), job)
        job.send_signal(signal.SIGUSR1)
        self.assert_stopped(job.result())
        self.assertEqual(digests(self.trained("stopped", 2)), digests(self.trained("unstopped", 2)))

    def test_any_batch_fits_any_ranks(self):
        first = self.trained("batch", 2, "train.batch=5")
        more = self.trained("batch-more", 2, f"model.init={first}", "train.batch=5", "run.seed=2")
        self.assertEqual(self.pretrain("batch-more", 3, f"model.init={first}", "train.batch=5", "run.seed=2", "train.steps=8").status, 0)
        self.assertEqual(metrics(more)[-1]["step"], 8)

    def test_a_corpus_without_words_is_said(self):
        self.write("short.txt", "ab\n")
        self.write("one.txt", "a\n" * 80)
        for name, found in (("short", "corpus.too_short"), ("one", "word2vec.no_words")):
            self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "lines", "--out", self.at(f"{name}.h5"),
                       self.at(name + ".txt")])
            for ranks in (0, 2):
                with self.subTest(name, ranks=ranks):
                    result = self.pretrain(name, ranks, f"corpus.train={self.at(name + '.h5')}")
                    self.assert_error(result, 65, f"[{found}]")

    def test_the_plan_says_what_a_rank_holds(self):
        planned = self.pretrain("planned", 0, "--plan", "mesh.data=4")
        self.assertEqual(planned.status, 0, str(planned))
        self.assertIn("word2vec", planned.out)
        self.assertIn("columns shared out", planned.out)


if __name__ == "__main__":
    bagpipe_test.main()
