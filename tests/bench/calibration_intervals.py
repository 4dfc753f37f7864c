#!/usr/bin/env python3
"""How often 95 % intervals of calibration errors cover the truth, simulated: calibration_intervals.py [CORPORA [SEED]]

Documents are the unit: their tokens are right together more often, or less, than their confidences say. Intervals by 400
resamples of the documents: of the plain ECE (L1) and of the squared error over the same 15 bins (L2), plug-in T and debiased
D = T - noise, where noise is the variance of the bins' gaps, estimated from differences between documents.

    ece percentile     percentiles of the resampled ECE
    ece basic          2 ECE minus these
    D percentile       percentiles of the resampled D
    D basic            D + T minus these
    T inverted         errors at which T would not be extreme, in the direction of the gaps that were seen
    T shifted          percentiles of the resampled T, less twice the noise; deviations widened for few documents: what
                       bp_calibration_squared_resampled does
"""
import sys

import numpy
import scipy.stats

BINS, TOKENS, RESAMPLES = 15, 120, 400


def gap(confidence, kind, size):
    if kind == "over":
        return -2 * size * confidence * (1 - confidence)
    return 2 * size * numpy.sin(2 * numpy.pi * confidence) * confidence * (1 - confidence)


def bin_of(confidence):
    return numpy.clip(numpy.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)


def truth(kind, size):
    logit = numpy.random.default_rng(99).normal(-1.8, numpy.hypot(1.5, 0.4), 5_000_000)
    confidence = 1 / (1 + numpy.exp(-logit))
    at, off = bin_of(confidence), gap(confidence, kind, size)
    tokens, sums = numpy.bincount(at, minlength=BINS), numpy.bincount(at, weights=off, minlength=BINS)
    return numpy.abs(sums).sum() / len(logit), (sums ** 2 / numpy.maximum(tokens, 1)).sum() / len(logit)


def corpus(draw, documents, kind, size, dependent):
    """Tokens, and sums of right minus confidence, by document and bin."""
    owner = numpy.repeat(numpy.arange(documents), draw.integers(TOKENS // 2, 3 * TOKENS // 2, documents))
    logit = draw.normal(-1.8, 1.5, len(owner)) + draw.normal(0, 0.4, documents)[owner]
    confidence = 1 / (1 + numpy.exp(-logit))
    right = confidence + gap(confidence, kind, size)
    right += dependent * draw.choice([-1, 1], documents)[owner] * numpy.minimum(right, 1 - right)
    off = (draw.random(len(owner)) < right) - confidence
    place = owner * BINS + bin_of(confidence)
    shape = (documents, BINS)
    return (numpy.bincount(place, minlength=documents * BINS).reshape(shape).astype(float),
            numpy.bincount(place, weights=off, minlength=documents * BINS).reshape(shape))


def figures(counts, tokens, sums):
    """Of resamples, a row of counts each: ECE, T, noise, and the gaps whose squares add up to T."""
    n, s, present = counts @ tokens, counts @ sums, counts @ (tokens > 0)
    total = n.sum(1, keepdims=True)
    ratio = s / numpy.maximum(n, 1)
    rest = counts @ sums ** 2 - 2 * ratio * (counts @ (sums * tokens)) + ratio ** 2 * (counts @ tokens ** 2)
    variance = numpy.where(present > 1, rest / numpy.maximum(n, 1) ** 2 * present / numpy.maximum(present - 1, 1), ratio ** 2)
    gaps = s / numpy.sqrt(numpy.maximum(n, 1) * total)
    return numpy.abs(s).sum(1) / total[:, 0], (gaps ** 2).sum(1), (n / total * variance).sum(1), gaps


def inverted(gaps, deviations, plug_in):
    """The roots of the errors between which T is not extreme, squared."""
    along, squares = deviations @ gaps / numpy.sqrt(gaps @ gaps), (deviations ** 2).sum(1)
    ends = []
    for percent in (97.5, 2.5):
        low, high = 0.0, 1.0
        if numpy.percentile(squares, percent) >= plug_in:
            high = 0.0
        while high - low > 1e-6:
            middle = (low + high) / 2
            below = numpy.percentile(middle ** 2 + 2 * middle * along + squares, percent) < plug_in
            low, high = (middle, high) if below else (low, middle)
        ends.append(low ** 2)
    return ends


def intervals(draw, tokens, sums):
    documents = len(tokens)
    ece, plug_in, noise, gaps = (x[0] for x in figures(numpy.ones((1, documents)), tokens, sums))
    counts = draw.multinomial(documents, numpy.full(documents, 1 / documents), RESAMPLES).astype(float)
    eces, plug_ins, noises, all_gaps = figures(counts, tokens, sums)
    ends = lambda values: numpy.percentile(values, [2.5, 97.5])
    few = numpy.sqrt(documents / (documents - 1))
    widen = few * scipy.stats.t.ppf(0.975, documents - 1) / scipy.stats.norm.ppf(0.975)
    debiased = ends(plug_ins - noises)
    shifted = ends(((gaps + widen * (all_gaps - gaps)) ** 2).sum(1)) - 2 * noise
    return plug_in - noise, {
        "ece percentile": ends(eces), "ece basic": 2 * ece - ends(eces)[::-1], "D percentile": debiased,
        "D basic": 2 * plug_in - noise - debiased[::-1], "T inverted": inverted(gaps, few * (all_gaps - gaps), plug_in),
        "T shifted": shifted}


def main():
    corpora = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    draw = numpy.random.default_rng(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    print("documents, miscalibration, dependence: true ECE, true RMS error, RMS of the mean D; coverage")
    for documents in (10, 30, 100, 400):
        for kind, size in (("over", 0), ("over", 0.02), ("over", 0.05), ("over", 0.15), ("over", 0.4), ("wave", 0.1), ("wave", 0.3)):
            true = truth(kind, size)
            for dependent in (0, 0.3):
                covered, mean = {}, 0.0
                for _ in range(corpora):
                    got, found = intervals(draw, *corpus(draw, documents, kind, size, dependent))
                    mean += got / corpora
                    for name, (low, high) in found.items():
                        value = true[0] if name.startswith("ece") else true[1]
                        covered[name] = covered.get(name, 0) + (max(low, 0) <= value <= max(high, 0)) / corpora
                print(f"{documents}, {kind} {size}, {dependent}: {true[0]:.4f}, {true[1] ** 0.5:.4f}, {max(mean, 0) ** 0.5:.4f}; " +
                      ", ".join(f"{name} {share:.3f}" for name, share in covered.items()), flush=True)


main()
