"""Dirichlet prior networks: the loss and the mutual information are scipy's of the logits that the weights give; texts outside the domain are
distinguished from those in it; the same bits on 1 and 2 data ranks, the same losses with tensor ranks."""
import os
import pathlib
import random
import sys

import h5py
import numpy
import scipy.special
import scipy.stats
import sklearn.metrics

import bagpipe_test
from bagpipe_test import digests, metrics, read_json, run, state_of, steps, timeless

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_finetune  # noqa: E402
from tensors import tensors_of  # noqa: E402
from test_langevin import TINY, mean_state  # noqa: E402

KINDS = sorted(test_finetune.KINDS)
PRECISION, SMOOTHING = 50.0, 0.02


def divergence(beta, alpha):
    """KL(Dir(beta) || Dir(alpha)) of rows."""
    ln, psi, total = scipy.special.gammaln, scipy.special.digamma, beta.sum(1, keepdims=True)
    return (ln(total[:, 0]) - ln(alpha.sum(1)) + (ln(alpha) - ln(beta)).sum(1) +
            ((beta - alpha) * (psi(beta) - psi(total))).sum(1))


def information(alpha):
    total = alpha.sum(1, keepdims=True)
    p, psi = alpha / total, scipy.special.digamma
    return -(p * (numpy.log(p) - psi(alpha + 1) + psi(total + 1))).sum(1)


class PriorNetwork(test_finetune.TaskTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("empty.ini", "[run]\nseed = 1\n[math]\nprecision = f32\n")
        draw = random.Random(4)
        kinds = [KINDS[k % 3] for k in range(45)] + ["strange"] * 15
        cls.texts = [test_finetune.document(draw, kind, 6) if kind != "strange" else " ".join(draw.choice(test_finetune.WORDS[:6]) for _ in range(7))
                     for kind in kinds]
        cls.rows = [{"text": text, "topic": kind} for text, kind in zip(cls.texts, kinds)]
        cls.corpus("all", cls.rows)
        cls.corpus("domain", cls.rows[:45])
        cls.corpus("outside", cls.rows[45:])

    def trained(self, name, ranks, *keys):
        return self.tuned(name, ranks, *TINY, "task.pool=mean", "train.batch=60", "mesh.micro_batch=15", f"corpus.train={self.at('all.h5')}",
                          f"corpus.valid={self.at('all.h5')}", "dirichlet.outside=strange", f"dirichlet.precision={PRECISION}",
                          f"dirichlet.smoothing={SMOOTHING}", "optimizer.weight_decay=0", *keys)

    def alphas(self, run_dir):
        weights = tensors_of(os.path.join(run_dir, "checkpoints", steps(run_dir)[-1]))
        vocabulary = pathlib.Path(self.at("vocab.txt")).read_text(encoding="utf-8").split()
        states = numpy.array([mean_state(weights, [vocabulary.index(word) for word in f"[CLS] {text} [SEP]".split()]) for text in self.texts])
        return numpy.exp(states @ weights["task.weight"].T + weights["task.bias"])

    def test_the_loss_is_the_divergence(self):
        still = self.trained("still", 0, "train.steps=1", "optimizer.lr=0")
        alpha = self.alphas(still)
        beta = numpy.array([[PRECISION * (1 - 2 * SMOOTHING if row["topic"] == kind else SMOOTHING) if row["topic"] in KINDS else 1 for kind in KINDS]
                            for row in self.rows])
        line = metrics(still)[-1]
        self.assertAlmostEqual(line["loss"], divergence(beta, alpha).mean(), 3)
        own = [-numpy.log(a[KINDS.index(row["topic"])] / a.sum()) for a, row in zip(alpha, self.rows) if row["topic"] in KINDS]
        self.assertAlmostEqual(line["valid_loss"], numpy.mean(own), 5)
        self.assertEqual(state_of(still)["model"]["labels"], KINDS)
        student = self.finetune("student", 0, *TINY, f"corpus.train={self.at('domain.h5')}", "corpus.valid=", f"distill.model={still}")
        self.assert_error(student, 78, "[distill.no_teacher]")

    def test_what_is_outside_is_distinguished(self):
        keys = ["train.steps=150", "optimizer.lr=1e-2", "train.log_every=50"]
        one = self.trained("one", 0, *keys)
        lines = metrics(one)
        self.assertLess(lines[-1]["loss"], lines[0]["loss"] / 3)
        self.assertGreater(lines[-1]["valid_accuracy"], 0.8)
        two = self.trained("two", 2, *keys)
        self.assertEqual((timeless(lines), digests(one)), (timeless(metrics(two)), digests(two)))
        tensor = self.trained("tensor", 2, "mesh.tensor=2", "train.steps=3", "train.log_every=1")
        for a, b in zip(metrics(self.trained("three", 0, "train.steps=3", "train.log_every=1")), metrics(tensor), strict=True):
            self.assertLess(abs(a["loss"] - b["loss"]), 1e-3 * a["loss"])
        for name, ranks, mesh in (("study", 0, []), ("study-tensor", 2, ["mesh.tensor=2"])):
            result = run([bagpipe_test.program("bagpipe"), "uncertainty", f"run.dir={self.at(name)}", f"uncertainty.models=prior={one}",
                          f"uncertainty.in_domain={self.at('domain.h5')}", f"uncertainty.shifted={self.at('outside.h5')}", "uncertainty.resamples=100",
                          self.at("empty.ini"), *mesh], ranks)
            self.assertEqual(result.status, 0, str(result))
            refused = run([bagpipe_test.program("bagpipe"), "uncertainty", f"run.dir={self.at('last')}", f"uncertainty.models=last={one}:laplace",
                           f"uncertainty.in_domain={self.at('domain.h5')}", f"corpus.train={self.at('domain.h5')}", self.at("empty.ini")])
            self.assert_error(refused, 78, "[laplace.no_softmax]", "Dirichlet")
            auroc = read_json(self.at(name), "uncertainty", "summary.json")["methods"]["prior"]["ood"]["outside"]["auroc"]
            self.assertGreater(auroc["mutual_information"], 0.9)
            with h5py.File(pathlib.Path(self.at(name), "uncertainty", "scores", "prior", "score", "outcomes.h5")) as file:
                reported = {key: file[key][()].astype(float) for key in ("mutual_information", "total_entropy", "expected_entropy", "differential_entropy")}
            alpha = self.alphas(one)
            numpy.testing.assert_allclose(reported["mutual_information"], information(alpha), atol=2e-5, rtol=1e-3)
            numpy.testing.assert_allclose(reported["differential_entropy"], [scipy.stats.dirichlet(a).entropy() for a in alpha], atol=1e-3, rtol=1e-3)
            label = [row["topic"] == "strange" for row in self.rows]
            self.assertAlmostEqual(auroc["differential_entropy"], sklearn.metrics.roc_auc_score(label, reported["differential_entropy"]), 9)
            self.assertIn("differential entropy", result.out + result.err)
            p = alpha / alpha.sum(1, keepdims=True)
            numpy.testing.assert_allclose(reported["total_entropy"], -(p * numpy.log(p)).sum(1), atol=2e-5, rtol=1e-3)
            numpy.testing.assert_allclose(reported["expected_entropy"], reported["total_entropy"] - reported["mutual_information"], atol=1e-6)

    def test_what_has_no_meaning_is_refused(self):
        self.assert_error(self.finetune("none", 0, *TINY, "dirichlet.outside=moon"), 65, "[dirichlet.no_outside]")
        self.assert_error(self.finetune("smooth", 0, *TINY, "dirichlet.outside=sea", "dirichlet.smoothing=0.5"), 78, "[dirichlet.too_smooth]")
        for key in ("distill.model=nothing", "train.softmax_samples=5", "train.label_smoothing=0.1"):
            self.assert_error(self.finetune("softmax", 0, *TINY, "dirichlet.outside=sea", key), 78, "[dirichlet.no_softmax]", "at " + key.split("=")[0])
        number = ["task.kind=regression", "task.label=length"]
        for key, *keys in (["dirichlet.outside=sea", *number], ["dirichlet.precision=5", *number], ["task.stride=5"], ["task.answer_tokens=5"], ["task.separator=x"]):
            self.assert_error(self.finetune("unused", 0, *TINY, key, *keys), 78, "[task.unused_key]", "at " + key.split("=")[0])
        for key in ("task.pool=mean", "dirichlet.outside=sea"):
            plain = run([bagpipe_test.program("bagpipe"), "ensemble", self.at("empty.ini"), f"run.dir={self.at('plain')}", f"corpus.train={self.at('domain.h5')}", "ensemble.members=2",
                         "train.steps=1", "train.batch=2", *TINY, key])
            self.assert_error(plain, 78, "[task.unused_key]", "at " + key.split("=")[0])
        warned = self.finetune("warned", 0, *TINY, "train.steps=1", "dirichlet.precision=5", "optimizer.temperature=2")
        self.assert_warning(warned, "[config.unused_key]", "dirichlet.precision", "optimizer.temperature", times=2)


if __name__ == "__main__":
    bagpipe_test.main()
