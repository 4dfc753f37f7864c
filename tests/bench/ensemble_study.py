#!/usr/bin/env python3
"""The tables of docs/results.md from a finished study: ensemble_study.py OUT (made by ensemble_study.sh)

Every figure is a mean over the base seeds. Its interval [low, high] covers retraining too: 2,000 times as many base seeds are
drawn as there are, with replacement, and texts likewise, the same texts for all methods and seeds, since all have scored the same
ones. A text is a document of the Brown corpus with all of its pieces, or one piece of Shakespeare or WikiText-2. Three seeds drawn
from three vary less than new ones would: their deviations are widened by the root of 3/2. A difference has the interval of Student's
t over its three values besides, which asks how far a fourth seed might lie.
"""
import json
import pathlib
import sys

import h5py
import numpy
import scipy.stats

METHODS = ("single", "dropout", "laplace", "deep", "bagging", "both")
SHIFTS = ("fiction", "shakespeare", "wikitext")
SCORES = ("mutual_information", "entropy", "nll")
PAIRS = (("deep", "bagging"), ("bagging", "both"), ("deep", "both"), ("deep", "single"), ("dropout", "single"), ("laplace", "single"))
BINS, RESAMPLES = 15, 2000


class Scored:
    """What a method said of each piece, by corpus."""

    def __init__(self, folder):
        with h5py.File(folder / "documents.h5") as file:
            self.tokens = file["tokens"][:].astype(float)
            self.start = file["corpus_start"][:]
            self.ids = [text.decode().split("-", 1)[1] for text in file["doc_id"][:]]
            means = {name: file[name][:] for name in ("total_entropy", "mutual_information", "correct", "brier")}
            members = file["member_logprob"][:]
            self.nll = file["nll"][:]
        with h5py.File(folder / "tokens.h5") as file:
            known = ~numpy.isnan(file["logprob"][:])
            sure, right = file["confidence"][:][known].astype(float), file["correct"][:][known].astype(float)
        self.sums = {"tokens": self.tokens, "nll": self.nll, "accuracy": means["correct"] * self.tokens, "brier": means["brier"] * self.tokens,
                     "information": means["mutual_information"] * self.tokens}
        self.scores = {"mutual_information": means["mutual_information"], "entropy": means["total_entropy"], "nll": self.nll / self.tokens}
        place = numpy.repeat(numpy.arange(len(self.tokens)), self.tokens.astype(int)) * BINS
        place += numpy.clip(numpy.ceil(sure * BINS).astype(int) - 1, 0, BINS - 1)
        shape = (len(self.tokens), BINS)
        self.bin_tokens = numpy.bincount(place, minlength=shape[0] * BINS).reshape(shape).astype(float)
        self.bin_gaps = numpy.bincount(place, weights=right - sure, minlength=shape[0] * BINS).reshape(shape)
        domain = slice(0, self.start[1])
        self.member_perplexity = numpy.exp(-(members[domain] * self.tokens[domain, None]).sum(0) / self.tokens[domain].sum())

    def group(self, corpus):
        return numpy.arange(self.start[corpus], self.start[corpus + 1])


def texts_of(scored, corpus):
    """The text of each piece: its number."""
    ids = [scored.ids[k] for k in scored.group(corpus)]
    alone = len(set(ids)) == 1
    return numpy.arange(len(ids)) if alone else numpy.unique(ids, return_inverse=True)[1]


def draws_of(texts, draw):
    """counts[RESAMPLES, pieces], the sample itself first."""
    n = texts.max() + 1
    return numpy.concatenate([numpy.ones((1, len(texts))), draw.multinomial(n, numpy.full(n, 1 / n), RESAMPLES)[:, texts]])


def squared_error(counts, scored, pieces, texts):
    """As bp_calibration_squared, of texts in the place of documents: the estimate, then what its interval is made of."""
    n = texts.max() + 1
    add = lambda values: numpy.array([numpy.bincount(texts, weights=values[pieces, b], minlength=n) for b in range(BINS)]).T
    tokens, gaps = add(scored.bin_tokens), add(scored.bin_gaps)
    total, present = tokens.sum(0), (tokens > 0).sum(0)
    ratio = gaps.sum(0) / numpy.maximum(total, 1)
    rest = ((gaps - ratio * tokens) ** 2).sum(0) / numpy.maximum(total, 1) ** 2
    noise = (total / total.sum() * numpy.where(present > 1, rest * present / numpy.maximum(present - 1, 1), ratio ** 2)).sum()
    all_tokens, all_gaps = counts @ scored.bin_tokens[pieces], counts @ scored.bin_gaps[pieces]
    y = all_gaps / numpy.sqrt(numpy.maximum(all_tokens, 1) * all_tokens.sum(1, keepdims=True))
    widen = scipy.stats.t.ppf(0.975, n - 1) / scipy.stats.norm.ppf(0.975) * numpy.sqrt(n / (n - 1))
    values = ((y[0] + widen * (y - y[0])) ** 2).sum(1) - 2 * noise
    values[0] += noise
    return values


def measure(scored, counts, texts):
    """{figure: [1 + RESAMPLES]} of one method and seed."""
    pieces = scored.group(0)
    sums = {name: counts[0] @ values[pieces] for name, values in scored.sums.items()}
    out = {name: sums[name] / sums["tokens"] for name in ("nll", "accuracy", "brier", "information")}
    out["squared"] = squared_error(counts[0], scored, pieces, texts[0])
    gaps = counts[0] @ scored.bin_gaps[pieces]
    out["ece"] = numpy.abs(gaps).sum(1) / sums["tokens"]
    for s, shift in enumerate(SHIFTS):
        for score in SCORES:
            inside, outside = scored.scores[score][pieces], scored.scores[score][scored.group(1 + s)]
            above = (inside[:, None] < outside) + 0.5 * (inside[:, None] == outside)
            pairs = counts[0].sum(1) * counts[1 + s].sum(1)
            out[shift, score] = ((counts[0] @ above) * counts[1 + s]).sum(1) / pairs
    return out


class Study:
    def __init__(self, folder):
        self.folder = folder
        self.seeds = sorted(int(path.name.split("-")[0]) for path in folder.glob("*-uncertainty"))
        draw = numpy.random.default_rng(1)
        scored = {(seed, method): Scored(folder / f"{seed}-uncertainty/uncertainty/scores/{method}/score")
                  for seed in self.seeds for method in METHODS}
        first = scored[self.seeds[0], METHODS[0]]
        texts = [texts_of(first, corpus) for corpus in range(1 + len(SHIFTS))]
        self.texts = [t.max() + 1 for t in texts]
        counts = [draws_of(t, draw) for t in texts]
        self.found = {key: measure(one, counts, texts) for key, one in scored.items()}
        self.members = {key: one.member_perplexity for key, one in scored.items()}
        self.drawn = draw.integers(len(self.seeds), size=(RESAMPLES, len(self.seeds)))
        self.summaries = {seed: json.loads((folder / f"{seed}-uncertainty/uncertainty/summary.json").read_text()) for seed in self.seeds}

    def values(self, method, figure, other=None):
        """[seeds, 1 + RESAMPLES]"""
        return numpy.array([self.found[seed, method][figure] - (self.found[seed, other][figure] if other else 0) for seed in self.seeds])

    def interval(self, values):
        """Mean over seeds, low, high. values[seeds, 1 + RESAMPLES]."""
        n = len(values)
        mean = values[:, 0].mean()
        all_seeds = values[:, 1:].mean(0)  # other texts, these seeds
        drawn = values[self.drawn.T, 1 + numpy.arange(RESAMPLES)].mean(0)  # and other seeds
        widened = all_seeds + (drawn - all_seeds) * numpy.sqrt(n / (n - 1))
        return (mean, *numpy.percentile(widened, [2.5, 97.5]))

    def costs(self, method, key):
        return [self.summaries[seed]["methods"][method][key] for seed in self.seeds]


def cell(values, digits):
    return f"{values[0]:.{digits}f} [{values[1]:.{digits}f}, {values[2]:.{digits}f}]"


def mean_of(values, digits):
    return "" if values[0] is None else f"{numpy.mean(values):,.{digits}f}"


def table(titles, rows):
    print("| " + " | ".join(titles) + " |\n|" + " --- |" * len(titles))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def methods_table(study):
    rows = []
    for method in METHODS:
        at = lambda figure: study.interval(study.values(method, figure))
        roots = numpy.sqrt(numpy.maximum(at("squared"), 0))
        rows.append([method, cell(at("nll"), 3), f"{numpy.exp(at('nll')[0]):.1f}", cell(at("accuracy"), 4), cell(at("brier"), 4),
                     f"{at('ece')[0]:.4f}", cell(roots, 4), mean_of(study.costs(method, "temperature"), 3)] +
                    ["" if method == "single" else f"{at('information')[0]:.3f}"] +
                    [mean_of(study.costs(method, key), 0) for key in ("train_seconds", "fit_seconds", "score_seconds", "memory_mib")])
    table(["in the domain", "NLL a token, nats", "perplexity", "accuracy", "Brier", "ECE", "RMS calibration error", "temperature",
           "mutual information", "training, s", "fit, s", "scoring, s", "memory, MiB"], rows)


def members_table(study):
    rows = []
    for method, kind in (("deep", "seed"), ("bagging", "bag"), ("both", "both")):
        row = [method]
        for seed in study.seeds:
            each = study.members[seed, method]
            listed = json.loads((study.folder / f"{seed}-{kind}/ensemble.json").read_text())["members"]
            outside = [m["oob_perplexity"] for m in listed if m.get("oob_perplexity")]
            mixture = numpy.exp(study.found[seed, method]["nll"][0])
            row.append(f"{each.min():.1f} to {each.max():.1f}; {mixture:.1f}" + (f"; {min(outside):.0f} to {max(outside):.0f}" if outside else ""))
        rows.append(row)
    table(["perplexity of members; of the mixture; of members out of their bags"] + [f"seed {seed}" for seed in study.seeds], rows)


def detection_table(study):
    rows = [[shift, score.replace("_", " ")] + ["" if (method, score) == ("single", "mutual_information") else
                                               cell(study.interval(study.values(method, (shift, score))), 3) for method in METHODS]
            for shift in SHIFTS for score in SCORES]
    table(["AUROC, shifted against the domain", "by"] + list(METHODS), rows)


def differences_table(study):
    rows = []
    for one, other in PAIRS:
        figures = [("nll", "NLL"), ("accuracy", "accuracy"), ("squared", "squared calibration error")]
        if other != "single":
            figures += [((shift, "mutual_information"), f"AUROC of {shift} by mutual information") for shift in SHIFTS]
        for figure, title in figures:
            values = study.values(one, figure, other)
            each, n = values[:, 0], len(values)
            reach = scipy.stats.t.ppf(0.975, n - 1) * each.std(ddof=1) / numpy.sqrt(n) if n > 1 else numpy.nan
            digits = 5 if figure == "squared" else 4
            rows.append([f"{one} - {other}", title, ", ".join(f"{value:+.{digits}f}" for value in each), cell(study.interval(values), digits),
                         f"{each.mean() - reach:.{digits}f} to {each.mean() + reach:.{digits}f}"])
    table(["difference", "of", "each seed", "mean [seeds and texts resampled]", "seeds alone, Student's t"], rows)


def main():
    study = Study(pathlib.Path(sys.argv[1]))
    print(f"{len(study.seeds)} base seeds; texts resampled: {study.texts[0]} in the domain, " +
          ", ".join(f"{n} of {shift}" for shift, n in zip(SHIFTS, study.texts[1:])) + "\n")
    methods_table(study)
    members_table(study)
    detection_table(study)
    differences_table(study)


main()
