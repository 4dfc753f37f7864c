"""A student learns from the probabilities of a teacher on its own ranks: loss and gradient against numpy, on every mesh the same, on 1, 2 and 4
data ranks to the same bits, after a kill too; a teacher that does not fit is refused."""
import ctypes
import json
import os
import pathlib

import h5py
import numpy

import bagpipe_test
from bagpipe_test import JobTest, digests, metrics, program, run, steps, timeless
from plain_gpt import gpt_logits, gpt_states, log_softmax
from tensors import tensors_of
from test_finetune import GPT, MODEL, TaskTest

CONTEXT = 32


def first_chunk(corpus):
    """The tokens of a small corpus: one zstd frame, which h5py has no filter for."""
    zstd = ctypes.CDLL("libzstd.so.1")
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    with h5py.File(corpus) as file:
        tokens = file["tokens"]
        frame = tokens.id.read_direct_chunk((0,))[1]
        out = numpy.zeros(tokens.chunks[0], tokens.dtype)
        zstd.ZSTD_decompress(ctypes.c_void_p(out.ctypes.data), ctypes.c_size_t(out.nbytes), frame, ctypes.c_size_t(len(frame)))
        return out[:len(tokens)]


class Distill(JobTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, keys in (("a", ["train.steps=12"]), ("b", ["train.steps=12", "run.seed=2", "model.width=48"]), ("start", ["train.steps=1"])):
            cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.at(name)}", *keys])
        cls.write("two.json", json.dumps({"members": [{"name": "a", "path": cls.at("a")}, {"name": "b", "path": cls.at("b")}]}))
        cls.write("few.txt", "".join(pathlib.Path(cls.at("valid.txt")).read_text(encoding="utf-8").splitlines(True)[:30]))
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "lines", "--out", cls.at("few.h5"), cls.at("few.txt")])

    def student(self, name, ranks=0, *keys):
        return self.trained(name, ranks, "model.layers=1", "train.steps=6", "model.dropout=0.1", f"distill.model={self.at('two.json')}", *keys)

    def last(self, name):
        return tensors_of(os.path.join(self.at(name), "checkpoints", steps(self.at(name))[-1]))

    def test_loss_and_gradient_are_those_of_the_paper(self):
        """The batch is the whole corpus, so the loss falls by rate x norm^2 of the gradient in the step behind."""
        tokens = first_chunk(self.at("few.h5")).astype(int)
        windows = (len(tokens) - 1) // CONTEXT
        x, y = tokens[:windows * CONTEXT].reshape(windows, -1), tokens[1:windows * CONTEXT + 1].reshape(windows, -1)
        student, teachers = gpt_logits(self.last("start"), x, 4), [gpt_logits(self.last(name), x, 4) for name in "ab"]
        for temperature, weight, model in ((1, 1, "a"), (3, 0.7, "a"), (2, 0.5, "two.json")):
            q = numpy.mean([numpy.exp(log_softmax(z / temperature)) for z in (teachers if model == "two.json" else teachers[:1])], axis=0)
            hard = -numpy.take_along_axis(log_softmax(student), y[..., None], -1).mean()
            soft = -(q * log_softmax(student / temperature)).sum(-1).mean()
            lines = metrics(self.trained(f"paper-{temperature}", 0, f"model.init={self.at('start')}", f"corpus.train={self.at('few.h5')}",
                                         f"train.batch={windows}", "train.steps=2", "optimizer.kind=sgd", "optimizer.momentum=0",
                                         "optimizer.weight_decay=0", "optimizer.clip=0", "optimizer.warmup=0", "optimizer.decay=constant",
                                         "optimizer.lr=1e-3", f"distill.model={self.at(model)}", f"distill.temperature={temperature}",
                                         f"distill.weight={weight}"))
            self.assertAlmostEqual(lines[0]["loss"], (1 - weight) * hard + weight * temperature ** 2 * soft, delta=1e-5)
            self.assertAlmostEqual((lines[0]["loss"] - lines[1]["loss"]) / 1e-3, lines[0]["grad_norm"] ** 2, delta=0.05 * lines[0]["grad_norm"] ** 2)

    def few(self):
        """Inputs and targets of all windows of few.h5, which is a batch."""
        tokens = first_chunk(self.at("few.h5")).astype(int)
        windows = (len(tokens) - 1) // CONTEXT
        return tokens[:windows * CONTEXT].reshape(windows, -1), tokens[1:windows * CONTEXT + 1].reshape(windows, -1)

    def test_states_are_those_of_the_papers(self):
        """Mean squared error through a projection; the cosine without one. The projection's gradient is numpy's."""
        x, y = self.few()
        start = self.last("start")
        hard = -numpy.take_along_axis(log_softmax(gpt_logits(start, x, 4)), y[..., None], -1).mean()
        states = gpt_states(start, x, 4)
        keys = [f"model.init={self.at('start')}", f"corpus.train={self.at('few.h5')}", f"train.batch={len(x)}", "optimizer.kind=sgd", "optimizer.momentum=0",
                "optimizer.weight_decay=0", "optimizer.clip=0", "optimizer.warmup=0", "optimizer.decay=constant", "distill.weight=0"]
        mse = [*keys, f"distill.model={self.at('b')}", "distill.layers=0:1,2:2", "distill.states_weight=3"]
        self.trained("still", 0, *mse, "optimizer.lr=0", "train.steps=1")
        self.trained("moved", 0, *mse, "optimizer.lr=10", "train.steps=1")
        lines = metrics(self.trained("mse", 0, *mse, "optimizer.lr=1e-3", "train.steps=2"))
        teacher, before, after = gpt_states(self.last("b"), x, 4), self.last("still"), self.last("moved")
        loss = hard
        for ours, theirs in ((0, 1), (2, 2)):
            name = f"distill.{ours}.weight"
            d = states[ours] @ before[name].T.astype(float) - teacher[theirs]
            loss += 3 * (d ** 2).mean()
            gradient = 3 * 2 * numpy.einsum("btw,btc->wc", d, states[ours]) / d.size
            self.assertLess(abs(((before[name] - after[name]) / 10 - gradient)).max(), 2e-3 * abs(gradient).max())
        self.assertAlmostEqual(lines[0]["loss"], loss, delta=1e-5)
        self.assertAlmostEqual(lines[0]["loss_states"], (loss - hard) / 3, delta=1e-5)
        self.assertAlmostEqual((lines[0]["loss"] - lines[1]["loss"]) / 1e-3, lines[0]["grad_norm"] ** 2, delta=0.05 * lines[0]["grad_norm"] ** 2)
        lines = metrics(self.trained("cosine", 0, *keys, "optimizer.lr=1e-3", "train.steps=2", f"distill.model={self.at('a')}", "distill.layers=1:2",
                                     "distill.states=cosine"))
        s = gpt_states(self.last("a"), x, 4)[2]
        cosine = (states[1] * s).sum(-1) / numpy.linalg.norm(states[1], axis=-1) / numpy.linalg.norm(s, axis=-1)
        self.assertAlmostEqual(lines[0]["loss"], hard + 1 - cosine.mean(), delta=1e-5)
        self.assertAlmostEqual((lines[0]["loss"] - lines[1]["loss"]) / 1e-3, lines[0]["grad_norm"] ** 2, delta=0.05 * lines[0]["grad_norm"] ** 2)

    def test_states_of_a_model_with_wider_embeddings(self):
        """The model is the teacher, so its states lie at a distance of 0, those before its first layer too."""
        keys = ["model.kind=opt", "model.embedding=24", "model.width=16", "model.heads=2", "optimizer.lr=0", "train.steps=1"]
        teacher = self.trained("wide", 0, *keys)
        own = [*keys, f"model.init={teacher}", f"distill.model={teacher}", "distill.layers=0:0,1:1,2:2", "distill.weight=0"]
        for name, ranks, mesh in (("one", 0, []), ("stages", 2, ["mesh.pipeline=2"])):
            line = metrics(self.trained(f"wide-{name}", ranks, *own, "distill.states=cosine", *mesh))[0]
            self.assertLess(abs(line["loss_states"]), 1e-5)
            self.assertAlmostEqual(line["loss"], metrics(teacher)[0]["loss"], delta=1e-5)

    def test_states_on_every_mesh_and_after_a_kill(self):
        """Layers of teacher and model lie on different stages; both learn from soft targets too."""
        keys = ["train.steps=4", "model.dropout=0.1", f"distill.model={self.at('b')}", "distill.layers=0:2,1:0,2:1", "checkpoint.every=2"]
        one = self.trained("states-one", 0, *keys)
        for name, ranks, mesh in (("again", 0, ["train.recompute=yes"]),
                                  ("all", 4, ["mesh.tensor=2", "mesh.pipeline=2", "mesh.schedule=interleaved"])):
            with self.subTest(name):
                for a, b in zip(metrics(one), metrics(self.trained(f"states-{name}", ranks, *keys, *mesh)), strict=True):
                    self.assertLess(abs(a["loss"] - b["loss"]), 4e-5)
                    self.assertLess(abs(a["loss_states"] - b["loss_states"]), 4e-5)
        dropped = metrics(self.trained("states-dropped", 0, *keys, "train.dropconnect=0.3"))
        self.assertGreater(abs(dropped[0]["loss"] - metrics(one)[0]["loss"]), 1e-3)  # compared layers are masked too
        other = self.trained("states-data2", 2, *keys)
        self.assertEqual(timeless(metrics(one)), timeless(metrics(other)))
        self.assertEqual(digests(one), digests(other))
        killed = run(["env", "BP_FAULT=step.end:3=kill", program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('states-cut')}", *keys])
        self.assertLess(killed.status, 0)
        self.assertEqual(digests(one), digests(self.trained("states-cut", 0, *keys)))
        self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={self.at('states-score')}", f"score.model={one}", f"score.corpus={self.at('few.h5')}"])
        self.must(["bagpipe-data", "export", one, "--out", self.at("states-hf")])
        self.trained("states-on", 0, f"model.init={one}", "train.steps=1", f"distill.model={self.at('b')}", "distill.layers=1:1")

    def test_of_itself_a_model_learns_nothing(self):
        keys = [f"model.init={self.at('a')}", "train.steps=1"]
        plain = metrics(self.trained("plain", 0, *keys))[0]
        for weight in (1, 0.5):
            line = metrics(self.trained(f"self-{weight}", 0, *keys, f"distill.model={self.at('a')}", f"distill.weight={weight}"))[0]
            self.assertAlmostEqual(line["grad_norm"], (1 - weight) * plain["grad_norm"], delta=1e-4)

    def test_without_weight_it_is_the_training_without_a_teacher(self):
        keys = ["model.layers=1", "train.steps=4"]
        self.assertEqual(digests(self.trained("none", 0, *keys)), digests(self.trained("zero", 0, *keys, f"distill.model={self.at('a')}", "distill.weight=0")))

    def test_every_mesh_learns_the_same(self):
        one = metrics(self.student("one"))
        for name, ranks, keys in (("tensor", 2, ["mesh.tensor=2"]),
                                  ("all", 4, ["mesh.tensor=2", "mesh.pipeline=2", "mesh.sequence_parallel=no"])):
            with self.subTest(name):
                for a, b in zip(one, metrics(self.student(name, ranks, *keys)), strict=True):
                    self.assertLess(abs(a["loss"] - b["loss"]), 4e-5)
        other = self.student("data4", 4)
        self.assertEqual(timeless(one), timeless(metrics(other)))
        self.assertEqual(digests(self.at("one")), digests(other))

    def test_a_killed_run_goes_on_with_the_same_bits(self):
        keys = ["model.layers=1", "train.steps=6", "checkpoint.every=2", f"distill.model={self.at('two.json')}"]
        straight = self.trained("straight", 0, *keys)
        killed = run(["env", "BP_FAULT=step.end:5=kill", program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('cut')}", *keys])
        self.assertLess(killed.status, 0)
        self.assertEqual(digests(straight), digests(self.trained("cut", 0, *keys)))

    def test_what_does_not_fit_is_refused(self):
        self.must(["bagpipe-data", "tokenizer", "--kind", "bpe", "--size", 300, "--out", self.at("other.json"), self.at("train.txt")])
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("other.json"), "--format", "lines", "--out", self.at("other.h5"), self.at("train.txt")])
        other = self.trained("other", 0, f"corpus.train={self.at('other.h5')}", "corpus.valid=", "train.steps=1")
        self.assert_error(self.pretrain("never", 0, f"distill.model={other}"), 78, "[distill.vocabulary]")
        self.assert_error(self.pretrain("never", 0, f"distill.model={self.at('a')}", "model.context=64"), 78, "[distill.short_context]")
        counted = self.trained("counted", 0, "model.kind=ngram", "model.heads=", "model.layers=", "model.width=", "model.context=")
        for weight in ("0.5", "0"):
            self.assert_error(self.pretrain("never", 0, f"distill.model={counted}", f"distill.weight={weight}"), 78, "[distill.no_teacher]")
        self.assert_error(self.pretrain("never", 0, "model.kind=lstm", "model.heads=", "mask.rate=0.15", f"distill.model={counted}"), 78, "[distill.no_teacher]")
        self.assert_error(self.pretrain("never", 0, "model.kind=word2vec", "model.heads=", "model.layers=", "model.context=",
                                        f"distill.model={self.at('a')}"), 78, "[distill.no_student]")
        self.assert_error(self.pretrain("never", 0, f"distill.model={self.at('missing')}"), 66, "[checkpoint.missing]")
        for layers in ("1:", "1:1,", "1:1,1:2", "3:1", "1:3", ",".join(f"{k}:1" for k in range(33))):
            self.assert_error(self.pretrain("never", 0, f"distill.model={self.at('a')}", f"distill.layers={layers}"), 78, "[distill.bad_layers]")
        self.assert_error(self.pretrain("never", 0, f"distill.model={self.at('two.json')}", "distill.layers=1:1"), 78, "[distill.no_states]")
        self.assert_error(self.pretrain("never", 0, f"distill.model={counted}", "distill.layers=1:1", "distill.weight=0"), 78, "[distill.no_states]")
        self.assert_error(self.pretrain("never", 0, "model.kind=lstm", "model.heads=", f"distill.model={self.at('a')}", "distill.layers=1:1",
                                        "distill.weight=0"), 78, "[distill.no_states]")

    def test_a_training_keeps_its_teacher(self):
        keys = ["model.layers=1", "train.steps=4", "checkpoint.every=2", "checkpoint.async=no", f"distill.model={self.at('grows')}"]
        self.trained("grows", 0, "train.steps=2", "optimizer.decay=constant")
        killed = run(["env", "BP_FAULT=step.end:3=kill", program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('kept')}", *keys])
        self.assertLess(killed.status, 0)
        self.trained("grows", 0, "train.steps=3", "optimizer.decay=constant")
        self.assert_error(self.pretrain("kept", 2, *keys), 78, "[distill.changed]")
        self.assert_warning(self.pretrain("alone", 0, "train.steps=1", "distill.weight=0.3"), "[config.unused_key]", "distill.model")
        self.assert_warning(self.pretrain("stateless", 0, "train.steps=1", f"distill.model={self.at('a')}", "distill.states=cosine"), "[config.unused_key]",
                            "distill.layers")


class DistillTask(TaskTest):
    """A classifier learns from the classes' probabilities of others."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, seed in (("a", 1), ("b", 2)):
            result = run([program("bagpipe"), "finetune", cls.at("tune.ini"), f"run.dir={cls.at(name)}", *MODEL, "task.kind=classes", "task.pool=mean",
                          "train.batch=8", "train.steps=100", "train.valid_every=100", "optimizer.lr=5e-3", f"run.seed={seed}"])
            assert result.status == 0, result
        cls.write("two.json", json.dumps({"members": [{"name": name, "path": cls.at(name)} for name in "ab"]}))

    def student(self, name, ranks=0, *keys):
        return self.tuned(name, ranks, *MODEL, "model.layers=1", "task.pool=mean", "distill.weight=1", "distill.temperature=2",
                          f"distill.model={self.at('two.json')}", "optimizer.lr=5e-3", *keys)

    def test_it_learns_without_labels(self):
        lines = metrics(self.student("learns", 0, "train.steps=100", "train.valid_every=100"))
        self.assertGreater(lines[-1]["valid_accuracy"], 0.85)

    def test_of_itself_a_model_learns_nothing(self):
        plain = metrics(self.tuned("plain", 0, f"model.init={self.at('a')}", "task.pool=mean", "train.steps=1"))[0]
        for weight in (1, 0.5):
            line = metrics(self.tuned(f"self-{weight}", 0, f"model.init={self.at('a')}", "task.pool=mean", "train.steps=1",
                                      f"distill.model={self.at('a')}", f"distill.weight={weight}"))[0]
            self.assertAlmostEqual(line["grad_norm"], (1 - weight) * plain["grad_norm"], delta=1e-4)
        self.assertEqual(digests(self.at("plain")), digests(self.tuned("zero", 0, f"model.init={self.at('a')}", "task.pool=mean", "train.steps=1",
                                                                       f"distill.model={self.at('b')}", "distill.weight=0")))

    def test_every_mesh_learns_the_same(self):
        one = metrics(self.student("one"))
        for name, ranks, keys in (("tensor", 2, ["mesh.tensor=2"]), ("stages", 2, ["mesh.pipeline=2"])):
            for a, b in zip(one, metrics(self.student(name, ranks, *keys)), strict=True):
                self.assertLess(abs(a["loss"] - b["loss"]), 4e-5, name)
        other = self.student("data", 2)
        self.assertEqual(timeless(one), timeless(metrics(other)))
        self.assertEqual(digests(self.at("one")), digests(other))

    def test_states_of_texts_with_padding(self):
        """A regression has no soft targets, but states; the model is the teacher, so its states lie at a distance of 0, and padding adds none."""
        keys = [*MODEL, "task.kind=regression", "task.label=score", "train.steps=2", "optimizer.lr=0"]
        teacher = self.tuned("value", 0, *keys)
        own = [f"model.init={teacher}", *keys[1:], f"distill.model={teacher}", "distill.layers=0:0,1:1,2:2", "distill.weight=0"]
        plain = metrics(teacher)
        for kind in ("mse", "cosine"):
            for a, b in zip(plain, metrics(self.tuned(f"value-{kind}", 0, *own, f"distill.states={kind}")), strict=True):
                self.assertAlmostEqual(a["loss"], b["loss"], delta=1e-5)
                self.assertAlmostEqual(a["grad_norm"], b["grad_norm"], delta=1e-4)
        keys = [*MODEL, "model.width=16", f"distill.model={self.at('a')}", "distill.layers=0:0,2:1", "distill.weight=0.9", "task.pool=mean", "train.steps=3"]
        one = self.tuned("padded", 0, *keys)
        for name, ranks, mesh in (("data", 2, []), ("tensor", 2, ["mesh.tensor=2"])):
            for a, b in zip(metrics(one), metrics(self.tuned(f"padded-{name}", ranks, *keys, *mesh)), strict=True):
                self.assertLess(abs(a["loss"] - b["loss"]), 4e-5, name)
        self.assertEqual(digests(one), digests(self.at("padded-data")))

    def test_masked_words_and_states_in_pretraining(self):
        """DistilBERT's three losses: of itself a model learns nothing but the targets' share."""
        def pretrained(name, *keys):
            self.must(["bagpipe", "pretrain", self.at("tune.ini"), f"run.dir={self.at(name)}", "train.steps=1", "train.batch=4", "train.log_every=1",
                       "mask.next_sentence=no", *keys])
            return metrics(self.at(name))[0]
        pretrained("words", *MODEL, "optimizer.lr=1e-2")
        init = f"model.init={self.at('words')}"
        plain, teacher = pretrained("words-plain", init), f"distill.model={self.at('words')}"
        states = pretrained("words-states", init, teacher, "distill.weight=0", "distill.layers=1:1,2:2", "distill.states=cosine")
        self.assertAlmostEqual(states["loss"], plain["loss"], delta=1e-5)
        half = pretrained("words-half", init, teacher, "distill.weight=0.5", "distill.layers=2:2")
        self.assertAlmostEqual(half["grad_norm"], 0.5 * plain["grad_norm"], delta=1e-4)
        self.assertLess(abs(states["loss_states"]), 1e-5)
        self.assertNotIn("loss_states", plain)
        self.assert_error(run([program("bagpipe"), "pretrain", self.at("tune.ini"), f"run.dir={self.at('never')}", *GPT, "train.steps=1", "train.batch=4", teacher]), 78,
                          "[distill.other_frame]")

    def test_what_does_not_fit_is_refused(self):
        gpt = self.tuned("gpt", 0, *GPT, "train.steps=1")
        self.assert_error(self.finetune("never", 0, *MODEL, f"distill.model={gpt}"), 78, "[distill.other_frame]")
        self.assert_error(self.finetune("never", 0, *MODEL, "task.kind=regression", "task.label=length", f"distill.model={gpt}"), 78,
                          "[distill.no_student]")
        length = self.tuned("length", 0, *MODEL, "task.label=score", "train.steps=1")
        self.assert_error(self.finetune("never", 0, *MODEL, f"distill.model={length}"), 78, "[distill.other_task]")


if __name__ == "__main__":
    bagpipe_test.main()
