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
from tensors import tensors_of
from test_finetune import GPT, MODEL, TaskTest

CONTEXT = 32


def log_softmax(z):
    z = z - z.max(-1, keepdims=True)
    return z - numpy.log(numpy.exp(z).sum(-1, keepdims=True))


def norm(x, gain, bias):
    x = x - x.mean(-1, keepdims=True)
    return x / numpy.sqrt((x ** 2).mean(-1, keepdims=True) + 1e-5) * gain + bias


def gpt_logits(w, tokens, heads):
    """Of a GPT-2, in float64; tokens [windows][T]."""
    T = tokens.shape[1]
    h = w["wte"][tokens] + w["wpe"][:T]
    hidden = numpy.triu(numpy.full((T, T), -numpy.inf), 1)
    for layer in range(sum(name.endswith("attn.q.weight") and "/" not in name for name in w)):
        def of(name):
            return w[f"h.{layer}.{name}"]
        x = norm(h, of("ln1.gain"), of("ln1.bias"))
        q, k, v = ((x @ of(f"attn.{n}.weight").T + of(f"attn.{n}.bias")).reshape(*x.shape[:2], heads, -1).swapaxes(1, 2) for n in "qkv")
        p = numpy.exp(log_softmax(q @ k.swapaxes(2, 3) / numpy.sqrt(q.shape[-1]) + hidden))
        h = h + (p @ v).swapaxes(1, 2).reshape(x.shape) @ of("attn.out.weight").T + of("attn.out.bias")
        x = norm(h, of("ln2.gain"), of("ln2.bias")) @ of("mlp.up.weight").T + of("mlp.up.bias")
        x = 0.5 * x * (1 + numpy.tanh(numpy.sqrt(2 / numpy.pi) * (x + 0.044715 * x ** 3)))
        h = h + x @ of("mlp.down.weight").T + of("mlp.down.bias")
    return norm(h, w["ln_f.gain"], w["ln_f.bias"]) @ w["wte"].T


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
        for name, ranks, keys in (("tensor", 2, ["mesh.tensor=2"]), ("stages", 2, ["mesh.pipeline=2"]),
                                  ("all", 4, ["mesh.tensor=2", "mesh.pipeline=2", "mesh.sequence_parallel=no"])):
            with self.subTest(name):
                for a, b in zip(one, metrics(self.student(name, ranks, *keys)), strict=True):
                    self.assertLess(abs(a["loss"] - b["loss"]), 4e-5)
        for ranks in (2, 4):
            other = self.student(f"data{ranks}", ranks)
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
        self.assert_error(self.pretrain("never", 0, f"distill.model={counted}"), 78, "[distill.no_teacher]")
        self.assert_error(self.pretrain("never", 0, "model.kind=lstm", "model.heads=", "mask.rate=0.15", f"distill.model={counted}"), 78, "[distill.no_teacher]")
        self.assert_error(self.pretrain("never", 0, "model.kind=word2vec", "model.heads=", "model.layers=", "model.context=",
                                        f"distill.model={self.at('a')}"), 78, "[distill.no_student]")
        self.assert_error(self.pretrain("never", 0, f"distill.model={self.at('missing')}"), 66, "[checkpoint.missing]")

    def test_a_training_keeps_its_teacher(self):
        keys = ["model.layers=1", "train.steps=4", "checkpoint.every=2", "checkpoint.async=no", f"distill.model={self.at('grows')}"]
        self.trained("grows", 0, "train.steps=2", "optimizer.decay=constant")
        killed = run(["env", "BP_FAULT=step.end:3=kill", program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('kept')}", *keys])
        self.assertLess(killed.status, 0)
        self.trained("grows", 0, "train.steps=3", "optimizer.decay=constant")
        self.assert_error(self.pretrain("kept", 2, *keys), 78, "[distill.changed]")
        self.assert_warning(self.pretrain("alone", 0, "train.steps=1", "distill.weight=0.3"), "[config.unused_key]", "distill.model")


class DistillTask(TaskTest):
    """A classifier learns from the classes' probabilities of others."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, seed in (("a", 1), ("b", 2)):
            result = run([program("bagpipe"), "finetune", cls.at("tune.ini"), f"run.dir={cls.at(name)}", *MODEL, "task.kind=classes", "task.pool=mean",
                          "train.batch=8", "train.steps=60", "train.valid_every=60", "optimizer.lr=5e-3", f"run.seed={seed}"])
            assert result.status == 0, result
        cls.write("two.json", json.dumps({"members": [{"name": name, "path": cls.at(name)} for name in "ab"]}))

    def student(self, name, ranks=0, *keys):
        return self.tuned(name, ranks, *MODEL, "model.layers=1", "task.pool=mean", "distill.weight=1", "distill.temperature=2",
                          f"distill.model={self.at('two.json')}", "optimizer.lr=5e-3", *keys)

    def test_it_learns_without_labels(self):
        lines = metrics(self.student("learns", 0, "train.steps=60", "train.valid_every=60"))
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

    def test_what_does_not_fit_is_refused(self):
        gpt = self.tuned("gpt", 0, *GPT, "train.steps=1")
        self.assert_error(self.finetune("never", 0, *MODEL, f"distill.model={gpt}"), 78, "[distill.other_frame]")
        self.assert_error(self.finetune("never", 0, *MODEL, "task.kind=regression", "task.label=length", f"distill.model={gpt}"), 78,
                          "[distill.no_student]")
        length = self.tuned("length", 0, *MODEL, "task.label=score", "train.steps=1")
        self.assert_error(self.finetune("never", 0, *MODEL, f"distill.model={length}"), 78, "[distill.other_task]")


if __name__ == "__main__":
    bagpipe_test.main()
