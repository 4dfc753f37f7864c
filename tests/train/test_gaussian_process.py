"""SNGP: gradients are those of numpy's model of the features; spectral norms keep their bound; the covariance is that of a dense float64
posterior of the training texts; scores are the mean field's; texts of another domain have larger variances; the same bits on 1 and 4 data
ranks and after a kill, with tensor ranks and stages to rounding."""
import os
import pathlib
import random
import sys

import h5py
import numpy
import scipy.special
import sklearn.covariance
import sklearn.metrics

import bagpipe_test
from bagpipe_test import digests, metrics, read_json, run, state_of, steps, timeless

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_finetune  # noqa: E402
from tensors import tensors_of  # noqa: E402
from test_langevin import TINY, mean_state  # noqa: E402

KINDS = sorted(test_finetune.KINDS)
D, PRIOR, BOUND, SCALE = 24, 0.5, 0.3, 0.7
SNGP = [*TINY, "task.pool=mean", f"sngp.features={D}", f"sngp.prior={PRIOR}", f"sngp.bound={BOUND}", f"sngp.length_scale={SCALE}"]
ELSEWHERE = test_finetune.WORDS[-6:]


def weights_of(folder, which=-1):
    return tensors_of(os.path.join(folder, "checkpoints", steps(folder)[which]))


class GaussianProcess(test_finetune.TaskTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("empty.ini", "[run]\nseed = 1\n[math]\nprecision = f32\n")
        cls.vocabulary = pathlib.Path(cls.at("vocab.txt")).read_text(encoding="utf-8").split()
        draw = random.Random(4)

        def text(words):
            return " ".join(draw.choice(words) for _ in range(7))
        cls.topics = [KINDS[k % 3] for k in range(48)]
        cls.texts = [text(test_finetune.KINDS[kind] + test_finetune.WORDS[:4]) for kind in cls.topics]
        cls.strange = [text(ELSEWHERE) for _ in range(16)]
        cls.corpus("domain", [{"text": words, "topic": kind} for words, kind in zip(cls.texts, cls.topics)])
        cls.corpus("outside", [{"text": words, "topic": "sea"} for words in cls.strange])

    def trained(self, name, ranks, *keys, env=(), status=0):
        result = self.finetune(name, ranks, *SNGP, "train.batch=16", "mesh.micro_batch=4", f"corpus.train={self.at('domain.h5')}",
                               f"corpus.valid={self.at('domain.h5')}", "optimizer.weight_decay=0", *keys, env=env)
        self.assertEqual(result.status, status, str(result))
        return self.at(name)

    def states(self, w, texts):
        return numpy.array([mean_state(w, [self.vocabulary.index(word) for word in f"[CLS] {text} [SEP]".split()]) for text in texts])

    def features(self, w, texts):
        return numpy.sqrt(2 / D) * numpy.cos(self.states(w, texts) @ w["sngp.directions"].T + w["sngp.phases"])

    def covariances(self, w):
        """Of the weights of each class, dense, by Laplace's method."""
        phi = self.features(w, self.texts)
        p = scipy.special.softmax(phi @ w["task.weight"].T, axis=1)
        return [numpy.linalg.inv(PRIOR * numpy.eye(D) + (phi * (p[:, k] * (1 - p[:, k]))[:, None]).T @ phi) for k in range(3)]

    def variances(self, w, texts):
        phi = self.features(w, texts)
        return numpy.stack([(phi @ covariance * phi).sum(1) for covariance in self.covariances(w)], axis=1)

    def loss(self, w):
        logp = scipy.special.log_softmax(self.features(w, self.texts) @ w["task.weight"].T, axis=1)
        return -numpy.mean([logp[i, KINDS.index(kind)] for i, kind in enumerate(self.topics)])

    def test_gradients_are_those_of_finite_differences(self):
        plain = ["optimizer.kind=sgd", "optimizer.momentum=0", "optimizer.clip=0", "optimizer.warmup=0", "train.batch=48", "train.steps=1", "sngp.bound=0"]
        still = self.trained("still", 0, *plain, "optimizer.lr=0")
        w, moved = weights_of(still), weights_of(self.trained("moved", 0, *plain, "optimizer.lr=1"))
        self.assertAlmostEqual(metrics(still)[-1]["loss"], self.loss(w), 5)
        self.assertLess(numpy.abs(w["sngp.directions"]).mean(), 1 / SCALE)
        self.assertGreater(w["sngp.phases"].max(), 2)
        for name in ("task.weight", "h.0.ln2.gain", "h.0.mlp.down.bias"):
            gradient, values = w[name] - moved[name], w[name]
            measured = numpy.zeros_like(values)
            for at in numpy.ndindex(values.shape):
                sides = []
                for step in (1e-5, -1e-5):
                    shifted = values.copy()
                    shifted[at] += step
                    sides.append(self.loss({**w, name: shifted}))
                measured[at] = (sides[0] - sides[1]) / 2e-5
            self.assertLess(abs(gradient - measured).max(), 1e-4 * abs(measured).max() + 2e-7, name)
        for name in ("sngp.directions", "sngp.phases", "sngp.logits"):
            numpy.testing.assert_array_equal(w[name], moved[name])
            self.assertNotIn(f"adamw.m/{name}", digests(still))

    def test_the_posterior_is_that_of_numpy(self):
        keys = ["train.steps=60", "optimizer.lr=1e-2", "train.log_every=30"]
        one = self.trained("one", 0, *keys)
        w = weights_of(one)
        self.assertGreater(metrics(one)[-1]["valid_accuracy"], 0.8)
        self.assertEqual(state_of(one)["model"]["sngp"], {"features": D, "length_scale": SCALE, "prior": PRIOR, "fitted": True})
        norms = {name: numpy.linalg.norm(values, 2) for name, values in w.items() if name.endswith(".weight") and (".attn." in name or ".mlp." in name)}
        norms = {name: norm for name, norm in norms.items() if "/" not in name}
        self.assertEqual(len(norms), 6)
        self.assertLessEqual(max(norms.values()), BOUND * 1.001, norms)
        self.assertGreater(sum(norm > 0.99 * BOUND for norm in norms.values()), 2, norms)
        for k, covariance in enumerate(self.covariances(w)):
            factor = w["sngp.factor"][k * D:(k + 1) * D]
            numpy.testing.assert_array_equal(factor, numpy.triu(factor))
            numpy.testing.assert_allclose(factor @ factor.T, covariance, atol=1e-6)
        inside, outside = self.variances(w, self.texts).mean(1), self.variances(w, self.strange).mean(1)
        self.assertGreater(numpy.mean(outside[:, None] > inside[None, :]), 0.9)
        other = self.trained("data4", 4, *keys)
        self.assertEqual((timeless(metrics(one)), digests(one)), (timeless(metrics(other)), digests(other)))
        self.check_study(one, w)

    def check_study(self, model, w):
        for name, ranks, mesh in (("study", 0, []), ("study-tensor", 2, ["mesh.tensor=2"])):
            result = run([bagpipe_test.program("bagpipe"), "uncertainty", f"run.dir={self.at(name)}", f"uncertainty.models=sngp={model}",
                          f"uncertainty.in_domain={self.at('domain.h5')}", f"uncertainty.shifted={self.at('outside.h5')}", "uncertainty.resamples=100",
                          self.at("empty.ini"), *mesh], ranks)
            self.assertEqual(result.status, 0, str(result))
            with h5py.File(pathlib.Path(self.at(name), "uncertainty", "scores", "sngp", "score", "outcomes.h5")) as file:
                told, normaliser, variance = (file[name][()].astype(float) for name in ("total_entropy", "log_normaliser", "logit_variance"))
            texts = self.texts + self.strange
            logits = self.features(w, texts) @ w["task.weight"].T
            logits /= numpy.sqrt(1 + numpy.pi / 8 * self.variances(w, texts))
            p = scipy.special.softmax(logits, axis=1)
            numpy.testing.assert_allclose(told, -(p * numpy.log(p)).sum(1), atol=1e-5)
            numpy.testing.assert_allclose(normaliser, scipy.special.logsumexp(logits, axis=1), atol=1e-5)
            numpy.testing.assert_allclose(variance, self.variances(w, texts).mean(1), atol=1e-5)
            shift = read_json(self.at(name), "uncertainty", "summary.json")["methods"]["sngp"]["ood"]["outside"]
            self.assertGreater(shift["auroc"]["entropy"], 0.8)
            label = [0] * len(self.texts) + [1] * len(self.strange)
            for score, values in (("energy", -normaliser), ("logit_variance", variance)):
                self.assertAlmostEqual(shift["auroc"][score], sklearn.metrics.roc_auc_score(label, values), 9)
                self.assertAlmostEqual(shift["aupr"][score], sklearn.metrics.average_precision_score(label, values), 9)
                self.assertLessEqual(shift["auroc_low"][score], shift["auroc"][score])
        laplace = run([bagpipe_test.program("bagpipe"), "uncertainty", f"run.dir={self.at('laplace')}", f"uncertainty.models=sngp={model}:laplace",
                       f"uncertainty.in_domain={self.at('domain.h5')}", f"corpus.train={self.at('domain.h5')}", self.at("empty.ini")])
        self.assert_error(laplace, 78, "[sngp.no_laplace]")
        export = run([bagpipe_test.program("bagpipe-data"), "export", model, "--out", self.at("exported")])
        self.assert_error(export, 65, "[export.no_counterpart]", "sngp")
        adapted = self.finetune("adapted", 0, *SNGP, f"model.init={model}", "adapter.kind=lora")
        self.assert_error(adapted, 78, "[sngp.other_method]", "at adapter.kind")
        scaled = self.finetune("scaled", 0, *SNGP, f"model.init={model}", "sngp.length_scale=3")
        self.assert_error(scaled, 65, "[task.other_task]", "sngp.length_scale")

    def test_distances_are_those_of_numpy(self):
        """:mahalanobis of a plain head: class means and shared covariance of the last states; and energy, of its logits."""
        plain = [*TINY, "task.pool=mean", "train.batch=16", "mesh.micro_batch=4", "train.steps=30", "optimizer.lr=1e-2",
                 f"corpus.train={self.at('domain.h5')}", f"corpus.valid={self.at('domain.h5')}"]
        tuned = self.tuned("plain", 0, *plain)
        w = weights_of(tuned)
        inside, outside = self.states(w, self.texts), self.states(w, self.strange)
        kinds = numpy.array(self.topics)
        means = numpy.array([inside[kinds == kind].mean(0) for kind in KINDS])
        centred = inside - means[[KINDS.index(kind) for kind in self.topics]]
        covariance = centred.T @ centred / len(centred)
        covariance += 1e-6 * numpy.trace(covariance) / len(covariance) * numpy.eye(len(covariance))
        gaps = numpy.concatenate([inside, outside])[:, None] - means[None]
        want = numpy.einsum("nki,ij,nkj->nk", gaps, numpy.linalg.inv(covariance), gaps).min(1)
        fitted = sklearn.covariance.EmpiricalCovariance(assume_centered=True).fit(centred)
        theirs = numpy.array([fitted.mahalanobis(gaps[:, k]) for k in range(3)]).min(0)
        numpy.testing.assert_allclose(want, theirs, rtol=1e-2)
        label = [0] * len(self.texts) + [1] * len(self.strange)
        for name, ranks, mesh in (("far", 0, []), ("far-data", 2, []), ("far-mesh", 4, ["mesh.tensor=2", "mesh.pipeline=2"])):
            result = run(self.far(name, f"far={tuned}:mahalanobis, one={tuned}", *mesh), ranks)
            self.assertEqual(result.status, 0, str(result))
            with h5py.File(pathlib.Path(self.at(name), "uncertainty", "scores", "far", "score", "outcomes.h5")) as file:
                told, normaliser = file["mahalanobis"][()].astype(float), file["log_normaliser"][()].astype(float)
            numpy.testing.assert_allclose(told, want, rtol=2e-3, err_msg=name)
            logits = numpy.concatenate([inside, outside]) @ w["task.weight"].T + w["task.bias"]
            numpy.testing.assert_allclose(normaliser, scipy.special.logsumexp(logits, axis=1), atol=2e-5)
            methods = read_json(self.at(name), "uncertainty", "summary.json")["methods"]
            shift = methods["far"]["ood"]["outside"]
            self.assertAlmostEqual(shift["auroc"]["mahalanobis"], sklearn.metrics.roc_auc_score(label, told), 9)
            self.assertAlmostEqual(shift["aupr"]["mahalanobis"], sklearn.metrics.average_precision_score(label, told), 9)
            self.assertAlmostEqual(shift["auroc"]["energy"], sklearn.metrics.roc_auc_score(label, -normaliser), 9)
            self.assertGreater(shift["auroc"]["mahalanobis"], 0.8)
            self.assertIsNone(methods["one"]["ood"]["outside"]["auroc"]["mahalanobis"])
            self.assertEqual(methods["far"]["nll"], methods["one"]["nll"])
        page = pathlib.Path(self.at("far"), "uncertainty", "index.html").read_text(encoding="utf-8")
        self.assertIn("Mahalanobis distance", page)
        again = run(self.far("far", f"far={tuned}:mahalanobis, one={tuned}, more={tuned}:dropout"))
        self.assertEqual(again.status, 0, str(again))
        number = self.tuned("value", 0, *TINY, "task.kind=regression", "task.label=length", "train.steps=1", "train.batch=8", f"corpus.train={self.at('train.h5')}",
                            f"corpus.valid={self.at('valid.h5')}")
        self.assert_error(run(self.far("no-classes", f"far={number}:mahalanobis", f"corpus.valid={self.at('valid.h5')}")), 78, "[mahalanobis.no_classes]")
        self.assert_error(run([*self.far("no-corpus", f"far={tuned}:mahalanobis"), "corpus.train="]), 78, "[mahalanobis.no_corpus]")

    def far(self, name, models, *keys):
        return [bagpipe_test.program("bagpipe"), "uncertainty", f"run.dir={self.at(name)}", f"uncertainty.models={models}",
                f"uncertainty.in_domain={self.at('domain.h5')}", f"uncertainty.shifted={self.at('outside.h5')}", "uncertainty.resamples=100",
                f"corpus.train={self.at('domain.h5')}", self.at("empty.ini"), *keys]

    def test_meshes_and_kills(self):
        keys = ["train.steps=12", "optimizer.lr=1e-2", "checkpoint.every=5", "checkpoint.async=no", "corpus.valid="]
        one = self.trained("short", 0, *keys)
        for name, ranks, mesh in (("tensor", 2, ["mesh.tensor=2"]), ("pipeline", 2, ["mesh.pipeline=2"])):
            other = self.trained(name, ranks, *keys, *mesh)
            for a, b in zip(metrics(one), metrics(other), strict=True):
                self.assertLess(abs(a["loss"] - b["loss"]), 3e-5, name)
            a, b = weights_of(one), weights_of(other)
            self.assertLess(abs(a["sngp.factor"] - b["sngp.factor"]).max(), 1e-4, name)
            self.assertLess(abs(a["spectral.u/h.0.mlp.up.weight"] - b["spectral.u/h.0.mlp.up.weight"]).max(), 1e-2, name)
        killed = self.trained("killed", 0, *keys, env=["env", "BP_FAULT=step.end:8=kill"], status=-9)
        self.assertFalse(state_of(killed)["model"]["sngp"]["fitted"])
        self.assertFalse(weights_of(killed)["sngp.factor"].any())
        scored = run([bagpipe_test.program("bagpipe"), "score", f"run.dir={self.at('scored')}", f"score.model={killed}",
                      f"score.corpus={self.at('domain.h5')}", self.at("empty.ini")])
        self.assert_error(scored, 78, "[sngp.no_covariance]")
        self.assertEqual(digests(one), digests(self.trained("killed", 0, *keys)))

    def test_what_has_no_meaning_is_refused(self):
        self.assert_error(self.finetune("few", 0, *TINY, "sngp.features=2"), 78, "[sngp.few_features]")
        self.assert_error(self.finetune("many", 0, *TINY, "model.width=2", "model.heads=1", "sngp.features=8"), 78, "[sngp.many_classes]")
        for key in ("dirichlet.outside=sea", "train.softmax_samples=2", "train.dropconnect=0.1", "optimizer.kind=sgld"):
            self.assert_error(self.finetune("other", 0, *TINY, "sngp.features=8", key), 78, "[sngp.other_method]", "at " + key.split("=")[0])
        number = ["task.kind=regression", "task.label=length"]
        self.assert_error(self.finetune("kind", 0, *TINY, *number, "sngp.features=8"), 78, "[task.unused_key]", "at sngp.features")
        config = self.write("text.ini", f"[corpus]\ntrain = {self.at('train.h5')}\n")
        text = run([bagpipe_test.program("bagpipe"), "finetune", config, f"run.dir={self.at('text')}", "model.kind=gpt", *TINY[1:], "task.kind=text",
                    "train.batch=8", "train.steps=1", "sngp.features=8"])
        self.assert_error(text, 78, "[task.unused_key]", "at sngp.features")
        warned = self.finetune("warned", 0, *TINY, "train.steps=1", "sngp.bound=2")
        self.assert_warning(warned, "[config.unused_key]", "sngp.bound")


if __name__ == "__main__":
    bagpipe_test.main()
