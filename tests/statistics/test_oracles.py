"""Every figure of src/statistics again, by numpy, scipy and scikit-learn, on numbers drawn at random.

    test_oracles.py PROBE      the program statistics_probe
"""
import math
import os
import subprocess
import sys
import unittest

try:
    import numpy
    import scipy.optimize
    import scipy.special
    import scipy.stats
    import sklearn.metrics
except ImportError:
    print("skipped: there is no numpy, scipy or scikit-learn")
    sys.exit(77)

PROBE = None


def probe(kind, *arrays):
    words = []
    for array in arrays:
        array = numpy.atleast_1d(numpy.asarray(array, dtype=numpy.float64))
        words.append(str(array.size))
        words += [repr(float(x)) for x in array]
    environment = dict(os.environ, ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0")  # the probe leaves its memory to its end
    result = subprocess.run([PROBE, kind], input=" ".join(words), capture_output=True, text=True, check=True, env=environment)
    return numpy.array([float(x) for x in result.stdout.split()])


def tokens_of(draw, documents, ties):
    """Documents of confidences with a tie now and then, and what came of them."""
    lengths = draw.integers(0, 40, documents)
    start = numpy.concatenate([[0], numpy.cumsum(lengths)])
    n = int(start[-1])
    confidence = draw.beta(1, 2, n).astype(numpy.float32)
    if ties:
        confidence = (numpy.round(confidence * 12) / 12).astype(numpy.float32)
    correct = (draw.random(n) < confidence ** 1.3).astype(int)
    nll = draw.exponential(3, n).astype(numpy.float32)
    return start, lengths, confidence, correct, nll


class Oracles(unittest.TestCase):
    def near(self, got, want, delta=1e-12):
        got, want = numpy.asarray(got, float), numpy.asarray(want, float)
        self.assertEqual(got.shape, want.shape)
        self.assertTrue(numpy.allclose(got, want, rtol=delta, atol=delta, equal_nan=True), f"{got} is not {want}")

    def cases(self, seed):
        """Tokens, and how often each counts: once, and by documents drawn with replacement."""
        draw = numpy.random.default_rng(seed)
        for documents, ties in ((1, False), (3, True), (40, False), (40, True), (400, True)):
            start, lengths, *columns = tokens_of(draw, documents, ties)
            if start[-1] == 0:
                continue
            yield start, [], columns
            counts = draw.multinomial(documents, [1 / documents] * documents)
            if counts @ lengths > 0:
                yield start, counts, columns

    @staticmethod
    def repeated(start, counts, columns):
        """The tokens of a resample, each as often as its document was drawn."""
        if not len(counts):
            return columns
        each = numpy.repeat(counts, numpy.diff(start))
        return [numpy.repeat(column, each) for column in columns]

    # ---- calibration ----

    @staticmethod
    def adaptive(confidence, correct):
        """Equal counts; tokens of equal confidence share what is correct among them."""
        order = numpy.argsort(confidence, kind="stable")
        confidence = confidence[order].astype(float)
        values, which, sizes = numpy.unique(confidence, return_inverse=True, return_counts=True)
        shares = numpy.bincount(which, weights=correct[order]) / sizes
        edges = [k * len(confidence) // 15 for k in range(16)]
        gaps = (shares[which] - confidence)
        return sum(abs(gaps[a:b].sum()) for a, b in zip(edges, edges[1:])) / len(confidence)

    def test_calibration(self):
        cases = 0
        for start, counts, columns in self.cases(1):
            brier = numpy.linspace(0, 2, int(start[-1]))
            got = probe("calibration", *columns, brier, start, counts)
            confidence, correct, nll, brier = self.repeated(start, counts, columns + [brier])
            exact = confidence.astype(float)
            which = numpy.digitize(exact, numpy.linspace(0, 1, 16)[1:-1], right=True)
            sizes = numpy.bincount(which, minlength=15)
            with numpy.errstate(invalid="ignore"):
                mean = numpy.bincount(which, weights=exact, minlength=15) / sizes
                accuracy = numpy.bincount(which, weights=correct, minlength=15) / sizes
            ece = numpy.nansum(sizes / len(exact) * abs(accuracy - mean))
            self.near(got[:5], [ece, self.adaptive(confidence, correct), correct.mean(), nll.astype(float).mean(), brier.mean()], 1e-11)
            bars = got[5:].reshape(15, 3)
            self.near(bars[:, 0], sizes)
            self.near(bars[:, 1], mean)
            self.near(bars[:, 2], accuracy)
            cases += 1
        self.assertGreaterEqual(cases, 8)

    # ---- detection ----

    def test_detection(self):
        draw = numpy.random.default_rng(2)
        for n, m, steps in ((5, 4, 3), (30, 20, 5), (200, 40, 0), (21, 300, 8), (500, 500, 40)):
            scores = [draw.normal(0, 1, n), draw.normal(0.7, 1.2, m)]
            if steps:
                scores = [numpy.round(s * steps) / steps for s in scores]
            resample = [draw.multinomial(s.size, [1 / s.size] * s.size) for s in scores]
            for counts in ([[], []], resample):
                in_domain, shifted = (numpy.repeat(s, c) if len(c) else s for s, c in zip(scores, counts))
                truth = numpy.r_[numpy.zeros(in_domain.size), numpy.ones(shifted.size)]
                both = numpy.r_[in_domain, shifted]
                fpr, tpr, _ = sklearn.metrics.roc_curve(truth, both, drop_intermediate=False)
                self.near(probe("detection", *scores, *counts),
                          [sklearn.metrics.roc_auc_score(truth, both), sklearn.metrics.average_precision_score(truth, both),
                           fpr[tpr >= 0.95].min()])

    # ---- risk ----

    @staticmethod
    def risks(uncertainty, loss):
        order = numpy.argsort(uncertainty, kind="stable")
        _, which, sizes = numpy.unique(uncertainty[order], return_inverse=True, return_counts=True)
        loss = (numpy.bincount(which, weights=loss[order]) / sizes)[which]  # a group is its mean
        sums = numpy.concatenate([[0], numpy.cumsum(loss)])
        n = loss.size
        at = numpy.arange(1, 101) * n / 100
        return (sums[1:] / numpy.arange(1, n + 1)).mean(), numpy.interp(at, numpy.arange(n + 1), sums) / at

    def test_risk(self):
        for start, counts, columns in self.cases(3):
            got = probe("risk", *columns, start, counts)
            uncertainty, correct, nll = self.repeated(start, counts, columns)
            error_area, error = self.risks(uncertainty, 1.0 - correct)
            nll_area, nlls = self.risks(uncertainty, nll.astype(float))
            self.near(got, numpy.r_[error_area, nll_area, error, nlls], 1e-10)

    # ---- temperature ----

    def test_temperature(self):
        """Real distributions over 50 tokens, the minimum by scipy on the very function."""
        draw = numpy.random.default_rng(4)
        beta = 2.0 ** (numpy.arange(-12, 13) / 8)
        for sharpness in (0.5, 1.0, 1.7):
            logits = draw.normal(0, 2, (400, 50))
            target = numpy.array([draw.choice(50, p=scipy.special.softmax(row)) for row in logits])
            logp = scipy.special.log_softmax(sharpness * logits, axis=1)
            hit = logp[numpy.arange(400), target]

            def sums(b):
                q = scipy.special.softmax(b * logp, axis=1)
                mean = (q * logp).sum(1)
                return ((scipy.special.logsumexp(b * logp, axis=1) - b * hit).sum(), (mean - hit).sum(),
                        ((q * logp ** 2).sum(1) - mean ** 2).sum())

            value, first, second = numpy.array([sums(b) for b in beta]).T
            temperatures = numpy.array([0.36, 0.5, 0.93, 1, 1.2, 2.8])
            got = probe("temperature", 400, beta, value, first, second, temperatures)
            best = scipy.optimize.minimize_scalar(lambda b: sums(b)[0], bounds=(beta[0], beta[-1]), method="bounded",
                                                  options={"xatol": 1e-10})
            self.assertAlmostEqual(got[0] * best.x, 1, delta=1e-6)  # a minimum is flat: scipy knows it to 1e-8
            # the quintic's remainder: h^6 f6 / (64 * 720) with steps h of up to 0.24 and f6 near 1 here
            self.near(got[1], best.fun / 400, 1e-8)
            self.assertEqual(got[2], 0)
            self.near(got[3:], [sums(1 / t)[0] / 400 for t in temperatures], 1e-7)

    # ---- the bootstrap ----

    def test_bootstrap(self):
        draw = numpy.random.default_rng(5)
        for n, resamples in ((2, 50), (7, 333), (300, 1000)):
            weights = draw.integers(1, 50, n)
            sums = weights * draw.normal(4, 1, n)
            got = probe("bootstrap", [11, resamples], sums, weights)
            values, counts = got[2:2 + resamples], got[2 + resamples:]
            self.assertEqual(counts.sum(), n)
            self.near(values[0], (counts @ sums) / (counts @ weights))
            self.near(got[:2], numpy.percentile(values, [2.5, 97.5]))
        # a thousand resamples know the deviation of a ratio to 1 / sqrt(2000); the linear theory of it to less
        ratio = sums.sum() / weights.sum()
        deviation = numpy.sqrt(((sums - ratio * weights) ** 2).sum()) / weights.sum()
        self.assertAlmostEqual(values.std() / deviation, 1, delta=0.1)

    # ---- small samples ----

    def test_inference(self):
        """Student's t, Wilson's interval and Holm's p-values; the last by its definition."""
        t = [0, 0.1, 1, 2.5, 12, 300]
        for n in (2, 3, 10, 31, 1000):
            got = probe("inference", [n], t, [0, 1 / n, 0.5, 1], [])
            self.near(got[:2], [scipy.stats.t.ppf(0.975, n - 1), scipy.stats.norm.cdf(-math.sqrt(n / (n - 1)) * scipy.stats.t.ppf(0.975, n - 1))], 1e-9)
            self.near(got[2:8], 2 * scipy.stats.t.sf(t, n - 1), 1e-9)
            for k, right in enumerate((0, 1, n / 2, n)):
                if right == int(right):
                    want = scipy.stats.binomtest(int(right), n).proportion_ci(method="wilson")
                    self.assertLess(numpy.abs(got[8 + 2 * k:10 + 2 * k] - [want.low, want.high]).max(), 1e-12)
        self.near(probe("inference", [5], [], [], [0.01, 0.04, numpy.nan, 0.03, 0.005])[2:], [0.03, 0.06, numpy.nan, 0.06, 0.02])

    # ---- metrics of tasks ----

    @staticmethod
    def drawn(draw, n):
        """No counts, and those of a resample."""
        return [], draw.multinomial(n, [1 / n] * n)

    def test_classes(self):
        draw = numpy.random.default_rng(6)
        cases = [(numpy.zeros(5, int), numpy.zeros(5, int), 3), (numpy.arange(4) % 2, numpy.zeros(4, int), 2)]
        for n, many in ((1, 2), (7, 2), (40, 5), (500, 15), (60, 200)):
            label = draw.integers(0, many, n)
            cases.append((label, numpy.where(draw.random(n) < 0.6, label, draw.integers(0, many, n)), many))
        for label, predicted, many in cases:
            for counts in self.drawn(draw, label.size):
                truth, said = (numpy.repeat(x, counts) if len(counts) else x for x in (label, predicted))
                self.near(probe("classes", label, predicted, counts, many),
                          [sklearn.metrics.accuracy_score(truth, said),
                           sklearn.metrics.f1_score(truth, said, average="macro", zero_division=0),
                           sklearn.metrics.f1_score(truth, said, average="micro"),
                           sklearn.metrics.matthews_corrcoef(truth, said)])

    def test_regression(self):
        draw = numpy.random.default_rng(7)
        for n, steps in ((3, 0), (50, 0), (50, 2), (700, 3)):
            label = draw.normal(3, 1, n)
            predicted = label + draw.normal(0, 0.7, n)
            if steps:
                label, predicted = numpy.round(label * steps) / steps, numpy.round(predicted * steps) / steps
            for counts in self.drawn(draw, n):
                truth, said = (numpy.repeat(x, counts) if len(counts) else x for x in (label, predicted))
                if numpy.unique(truth).size < 2:
                    continue
                self.near(probe("regression", label, predicted, counts),
                          [scipy.stats.pearsonr(truth, said)[0], scipy.stats.spearmanr(truth, said)[0],
                           sklearn.metrics.mean_squared_error(truth, said),
                           sklearn.metrics.mean_absolute_error(truth, said)], 1e-11)
        self.assertTrue(numpy.isnan(probe("regression", [1, 1, 1], [1, 2, 3], [])[:2]).all())
        self.assertTrue(numpy.isnan(probe("regression", [1, 2, 3, 4, 5, 6], [0.1] * 6, [])[:2]).all())
        self.assertTrue(numpy.isnan(probe("regression", [0.1, 0.1, 2, 0.1], [1, 2, 3, 5], [3, 2, 0, 1])[:2]).all())

    def test_kendall(self):
        draw = numpy.random.default_rng(8)
        for n, steps in ((2, 0), (5, 0), (30, 0), (30, 3)):
            x, y = draw.normal(0, 1, (2, n))
            if steps:
                x, y = numpy.round(x * steps) / steps, numpy.round((x + y) * steps) / steps
            tau = scipy.stats.kendalltau(x, y)[0]
            z = 1.959963984540054 * math.sqrt(0.437 / (n - 4)) if n > 4 else math.nan
            self.near(probe("kendall", x, y), [tau] + [math.tanh(math.atanh(min(max(tau, -1 + 2 / n / (n - 1)), 1 - 2 / n / (n - 1))) + sign * z)
                                                       for sign in (-1, 1)])
        self.near(probe("kendall", [1, 2, 3, 4, 5], [1, 2, 3, 4, 5])[[0, 2]], [1, 1])
        self.assertTrue(numpy.isnan(probe("kendall", [1, 1, 1], [1, 2, 3])).all())

    def test_dirichlet(self):
        """The divergence of two, from its definition by scipy's functions; its slope by differences; the information by drawing."""
        draw = numpy.random.default_rng(9)
        ln, psi = scipy.special.gammaln, scipy.special.digamma
        for classes in (2, 3, 15):
            for scale in (0.05, 1, 300):
                beta, alpha = draw.gamma(1, scale, (2, classes)) + 0.01

                def divergence(a):
                    return ln(beta.sum()) - ln(beta).sum() - ln(a.sum()) + ln(a).sum() + ((beta - a) * (psi(beta) - psi(beta.sum()))).sum()
                got = probe("dirichlet", beta, alpha)
                self.near(got[:2], [divergence(alpha), scipy.stats.dirichlet.entropy(alpha)], 1e-9)
                p = draw.dirichlet(alpha, 100_000)
                inside = scipy.special.xlogy(p, p).sum(1)
                mean = alpha / alpha.sum()
                self.assertLess(abs(inside.mean() - (mean * numpy.log(mean)).sum() - got[2]), 4 * inside.std() / 300 + 1e-12)
                step = 1e-6 * alpha
                slopes = [(divergence(alpha + e) - divergence(alpha - e)) / (2 * e.sum()) for e in numpy.diag(step)]
                self.assertTrue(numpy.allclose(got[3:3 + classes], slopes, rtol=1e-4, atol=1e-5 * max(1, 1 / scale)), (got, slopes))
                self.near(got[3 + classes:], psi(alpha), 1e-13)

    def test_two_systems(self):
        """Differences, their intervals, and how often one wins, of the very resamples."""
        draw = numpy.random.default_rng(8)
        n = 30
        one, other = draw.random((2, n)) < 0.6, draw.random((2, n)) < 0.5
        got = probe("compare", one[0], one[1], other[0], other[0])
        figures, counts = got[:14].reshape(2, 7), got[14:].reshape(1000, n)
        level = scipy.stats.norm.cdf(-math.sqrt(n / (n - 1)) * scipy.stats.t.ppf(0.975, n - 1))
        for k, against in ((0, other[0]), (1, other[0])):
            gap = one[k].mean() - against.mean()
            differences = counts @ (one[k].astype(float) - against) / n
            self.near(figures[k], [one[k].mean(), against.mean(), gap, *numpy.percentile(differences, [100 * level, 100 - 100 * level]),
                                   ((differences > 1e-9).sum() + (abs(differences) <= 1e-9).sum() / 2) / 1000,
                                   ((abs(differences - differences.mean()) >= abs(gap)).sum() + 1) / 1001], 1e-9)
        same = probe("compare", one[0], one[1], one[0], one[1])[:7]
        self.near(same[2:], [0, 0, 0, 0.5, 1])

    def test_conformal_sets_are_those_of_sorted_probabilities(self):
        draw = numpy.random.default_rng(11)
        for coverage, penalty, free, outcomes, n in ((0.9, 0.05, 2, 8, 60), (0.8, 0, 0, 3, 25), (0.5, 0.3, 1, 30, 200), (0.99, 0.1, 2, 5, 20)):
            p, other = (draw.dirichlet(numpy.full(outcomes, 0.3), size) for size in (n, 40))
            label = numpy.array([draw.choice(outcomes, p=0.7 * row + 0.3 / outcomes) for row in p])
            u, other_u = draw.random(n), draw.random(40)

            def scores(rows, uniform):
                order = numpy.argsort(-rows, axis=1, kind="stable")
                falling = numpy.take_along_axis(rows, order, axis=1)
                aps = numpy.cumsum(falling, axis=1) - falling + uniform[:, None] * falling
                raps = aps + penalty * numpy.maximum(0, numpy.arange(1, outcomes + 1) - free)[None, :]
                rank = numpy.argsort(order, axis=1)
                return 1 - rows, numpy.take_along_axis(aps, rank, axis=1), numpy.take_along_axis(raps, rank, axis=1)

            level = int(numpy.ceil((n + 1) * coverage))
            thresholds = [numpy.inf if level > n else numpy.sort(s[numpy.arange(n), label])[level - 1] for s in scores(p, u)]
            sizes = numpy.stack([(s <= q).sum(axis=1) for s, q in zip(scores(other, other_u), thresholds)], axis=1)
            got = probe("conformal", [coverage, penalty, free, outcomes], p.ravel(), label, u, other.ravel(), other_u)
            self.near(got[:3], thresholds)
            self.near(got[3:], sizes.ravel())


if __name__ == "__main__":
    PROBE = sys.argv.pop(1)
    unittest.main(verbosity=2)
