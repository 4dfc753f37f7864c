"""How well figures of certainty tell wrong texts from right ones: AUROC with 95 % intervals over prompts.

    semantic_entropy.py GREEDY SAMPLES REFERENCES     two run folders of generate, of the same prompts, and a file of a text a line

A greedy text is wrong if its Rouge-L (F) is 0.5 or less.
"""
import json
import sys

import numpy
from sklearn.metrics import roc_auc_score


def rouge(one, other):
    one, other = one.lower().split(), other.lower().split()
    common = numpy.zeros((len(one) + 1, len(other) + 1))
    for i, x in enumerate(one):
        for j, y in enumerate(other):
            common[i + 1, j + 1] = common[i, j] + 1 if x == y else max(common[i, j + 1], common[i + 1, j])
    return 2 * common[-1, -1] / max(len(one) + len(other), 1)


def first_lines(folder):
    """The first text of each prompt, whose line has the figures of all."""
    lines = {}
    with open(f"{folder}/generate/outputs.jsonl", encoding="utf-8") as file:
        for line in map(json.loads, file):
            lines.setdefault(line["index"], line)
    return list(lines.values())


def main(greedy, samples, references):
    greedy, samples = first_lines(greedy), first_lines(samples)
    with open(references, encoding="utf-8") as file:
        wrong = numpy.array([rouge(line["text"], reference) <= 0.5 for line, reference in zip(greedy, file)])
    print(f"{len(wrong)} texts, of them wrong: {wrong.mean():.3f}")
    draw = numpy.random.default_rng(1)
    resamples = [draw.integers(0, len(wrong), len(wrong)) for _ in range(1000)]
    for key, lines, sign in (("semantic_entropy", samples, 1), ("semantic_entropy_discrete", samples, 1), ("perplexity", greedy, 1),
                             ("least_probability", greedy, -1), ("mean_entropy", greedy, 1)):
        score = sign * numpy.array([line[key] for line in lines])
        low, high = numpy.percentile([roc_auc_score(wrong[k], score[k]) for k in resamples], [2.5, 97.5])
        print(f"{key}: AUROC {roc_auc_score(wrong, score):.3f} ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main(*sys.argv[1:])
