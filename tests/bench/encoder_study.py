#!/usr/bin/env python3
"""Tables of the encoder study: encoder_study.py TEXTS OUT

TEXTS is the folder that encoder_text.py wrote, OUT that of encoder_study.sh. Logistic regressions of
scikit-learn on bags of words learn the same tasks from the same parts. Measures are computed here, from
predictions.csv, for all models alike, and checked against summary.json; intervals are those of 1,000
resamples of whole documents (of Brown and SQuAD: all pieces or questions of one), the same for both of a pair.
"""
import csv
import json
import pathlib
import re
import sys

import numpy as np
from scipy.sparse import hstack
from scipy.stats import pearsonr
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, f1_score

RESAMPLES = 1000
TEXTS, OUT = map(pathlib.Path, sys.argv[1:3])


def jsonl(name):
    with open(TEXTS / f"{name}.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def table(name):
    with open(TEXTS / f"{name}.tsv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def predictions(name):
    with open(OUT / f"{name}-scored" / "score/predictions.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# ---- measures, each of the rows (arrays of truth and prediction) that a resample has ----

def accuracy(truth, guess):
    return accuracy_score(truth, guess)


def macro_f1(truth, guess):
    return f1_score(truth, guess, average="macro", zero_division=0)


def pearson(truth, guess):
    return pearsonr(truth, guess)[0]


def ratio_f1(truth, guess):
    """truth has (found, true) and guess (right,) counts of a document each: entities of IOB2 tags."""
    right, given = guess[:, 0].sum(), guess[:, 1].sum()
    return 2 * right / max(given + truth.sum(), 1)


def mean(_, guess):
    return guess.mean()


def resampled(groups, measure, truth, *guesses):
    """The measure of each model, and resampled ones [RESAMPLES x models]; groups tells each row's document."""
    rows = {}
    for row, group in enumerate(groups):
        rows.setdefault(group, []).append(row)
    rows = [np.array(r) for r in rows.values()]
    random = np.random.default_rng(1)
    values = np.empty((RESAMPLES, len(guesses)))
    for k in range(RESAMPLES):
        drawn = np.concatenate([rows[i] for i in random.integers(0, len(rows), len(rows))])
        values[k] = [measure(truth[drawn], guess[drawn]) for guess in guesses]
    return [measure(truth, guess) for guess in guesses], values


def interval(values):
    low, high = np.percentile(values, [2.5, 97.5])
    return f"{low:.3f} to {high:.3f}"


def print_row(name, groups, measure, truth, fresh, pretrained, words):
    points, values = resampled(groups, measure, truth, fresh, pretrained, words)
    cells = [f"{p:.3f} ({interval(values[:, k])})" for k, p in enumerate(points)]
    for other in (0, 2):
        cells.append(f"{points[1] - points[other]:+.3f} ({interval(values[:, 1] - values[:, other])})")
    print("| " + " | ".join([name] + cells) + " |")
    return points


# ---- the tasks: rows of truth, of both models, of bags of words ----

def classes(name, groups, words):
    new, tuned = predictions(f"{name}-new"), predictions(f"{name}-from")
    truth = np.array([row["label"] for row in tuned])
    guesses = [np.array([row["prediction"] for row in rows]) for rows in (new, tuned)] + [np.array(words)]
    for label, measure in (("accuracy", accuracy), ("macro F1", macro_f1)):
        print_row(f"{name}, {label}", groups, measure, truth, *guesses)
    told = json.loads((OUT / f"{name}-from-scored/score/summary.json").read_text())
    assert abs(find(told, "accuracy") - accuracy(truth, guesses[1])) < 1e-9


def find(tree, key):
    """The first number under this key."""
    if isinstance(tree, dict):
        if key in tree:
            return tree[key] if not isinstance(tree[key], dict) else next(iter(tree[key].values()))
        for value in tree.values():
            found = find(value, key)
            if found is not None:
                return found
    return None


def genres():
    train, test = jsonl("train"), jsonl("test")
    bag = TfidfVectorizer(sublinear_tf=True, min_df=2)
    model = LogisticRegression(C=10, max_iter=500).fit(bag.fit_transform([d["text"] for d in train]), [d["genre"] for d in train])
    words = model.predict(bag.transform([d["text"] for d in test]))
    classes("genres", [d["id"].split("-")[0] for d in test], words)


def pairs_of(rows, first, second):
    """Bags of both texts side by side, and of the words that both have."""
    return hstack([first.transform([r["sentence_A"] for r in rows]), first.transform([r["sentence_B"] for r in rows]),
                   second.transform([" ".join(set(r["sentence_A"].lower().split()) & set(r["sentence_B"].lower().split()))
                                     for r in rows])]).tocsr()


def pairs():
    train, test = table("sick-train"), table("sick-test")
    first = CountVectorizer(binary=True).fit([r["sentence_A"] + " " + r["sentence_B"] for r in train])
    inputs, asked = pairs_of(train, first, first), pairs_of(test, first, first)
    model = LogisticRegression(max_iter=1000).fit(inputs, [r["entailment_judgment"] for r in train])
    classes("entailment", range(len(test)), model.predict(asked))
    line = Ridge(alpha=3).fit(inputs, [float(r["relatedness_score"]) for r in train])
    new, tuned = predictions("relatedness-new"), predictions("relatedness-from")
    guesses = [np.array([float(row["prediction"]) for row in rows]) for rows in (new, tuned)]
    truth = np.array([float(row["label"]) for row in tuned])
    print_row("relatedness, Pearson", range(len(test)), pearson, truth, *guesses, line.predict(asked))


def sentences(name):
    text = (TEXTS / f"{name}.conll").read_text(encoding="utf-8").strip()
    found = [[line.rstrip("\n").split("\t") for line in part.split("\n") if line.strip()] for part in re.split(r"\n\s*\n", text)]
    return [([w[0] for w in s], [w[-1] for w in s]) for s in found]


def entities(tags):
    found, begin = set(), None
    for k, tag in enumerate(list(tags) + ["O"]):
        if begin is not None and (tag[0] != "I" or tag[2:] != tags[begin][2:]):
            found.add((begin, k, tags[begin][2:]))
            begin = None
        if tag[0] == "B" or (tag[0] == "I" and begin is None):
            begin = k
    return found


def features(words, k):
    found = {}
    for place in (-1, 0, 1):
        word = words[k + place] if 0 <= k + place < len(words) else "-"
        found[f"{place}={word.lower()}"] = 1
        found[f"{place}:{re.sub(r'[A-Z]+', 'A', re.sub(r'[a-z]+', 'a', word))[:8]}"] = 1
    return found


def names():
    train, test = sentences("wnut-train"), sentences("wnut-test")
    bag = DictVectorizer()
    inputs = bag.fit_transform([features(w, k) for w, _ in train for k in range(len(w))])
    model = LogisticRegression(max_iter=300, C=10).fit(inputs, [tag for _, tags in train for tag in tags])
    asked = model.predict(bag.transform([features(w, k) for w, _ in test for k in range(len(w))]))
    guesses, place = [], 0
    truth = np.array([len(entities(tags)) for _, tags in test])
    bags = []
    for words, tags in test:
        found = entities(asked[place:place + len(words)])
        bags.append((len(found & entities(tags)), len(found)))
        place += len(words)
    for start in ("new", "from"):
        rows, counts = {}, []
        for row in predictions(f"names-{start}"):
            rows.setdefault(int(row["document"]), []).append(row["prediction"])
        for number, (words, tags) in enumerate(test):
            found = entities((rows.get(number, []) + ["O"] * len(words))[:len(words)])
            counts.append((len(found & entities(tags)), len(found)))
        guesses.append(np.array(counts))
    print_row("names, F1 of entities", range(len(test)), ratio_f1, truth, *guesses, np.array(bags))


def questions(name):
    with open(TEXTS / f"{name}.json", encoding="utf-8") as file:
        data = json.load(file)["data"]
    return [(a["title"], p["context"], q) for a in data for p in a["paragraphs"] for q in p["qas"]]


def normal(text):
    """SQuAD's: lower case, no punctuation, no articles, single blanks."""
    text = re.sub(r"\b(a|an|the)\b", " ", re.sub(r"[^\w\s]", "", text.lower()))
    return text.split()


def overlap_f1(answers, guess):
    best = 0.0
    for answer in answers:
        truth, said = normal(answer["text"]), normal(guess)
        both = sum(min(truth.count(w), said.count(w)) for w in set(truth))
        best = max(best, 2 * both / max(len(truth) + len(said), 1) if truth or said else 1.0)
    return best


def span_features(question, words, k):
    asked = [w.lower() for w in re.findall(r"\w+", question)]
    kind = next((w for w in asked if w in ("who", "when", "where", "what", "which", "how", "why")), "-")
    near = sum(w in asked for w in words[max(k - 6, 0):k + 7])
    shape = re.sub(r"[A-Z]+", "A", re.sub(r"[a-z]+", "a", re.sub(r"\d+", "0", words[k])))[:6]
    return {"near": near / 13, "in": words[k].lower() in asked, f"w={words[k].lower()}": 1, f"{kind}:{shape}": 1,
            f"{kind}/{words[k - 1].lower() if k else '-'}": 1}


def answers():
    bag, inputs, begins, ends = DictVectorizer(), [], [], []
    for _, context, q in questions("squad-train"):
        words = [(m.group(), m.start(), m.end()) for m in re.finditer(r"\S+", context)]
        first, text = q["answers"][0]["answer_start"], q["answers"][0]["text"]
        for k, (_, a, b) in enumerate(words):
            inside = a < first + len(text) and b > first
            if inside or k % 8 == 0:
                inputs.append(span_features(q["question"], [w[0] for w in words], k))
                begins.append(a <= first < b)
                ends.append(a < first + len(text) <= b)
    matrix = bag.fit_transform(inputs)
    begin = LogisticRegression(max_iter=300).fit(matrix, begins)
    end = LogisticRegression(max_iter=300).fit(matrix, ends)
    asked = questions("squad-test")
    guesses = []
    for _, context, q in asked:
        words = [(m.group(), m.start(), m.end()) for m in re.finditer(r"\S+", context)]
        rows = bag.transform([span_features(q["question"], [w[0] for w in words], k) for k in range(len(words))])
        a, b = begin.decision_function(rows), end.decision_function(rows)
        i, j = max(((i, j) for i in range(len(words)) for j in range(i, min(i + 10, len(words)))), key=lambda p: a[p[0]] + b[p[1]])
        guesses.append(context[words[i][1]:words[j][2]])
    found = [np.array([overlap_f1(q["answers"], row["prediction"]) for (_, _, q), row in zip(asked, predictions(f"answers-{start}"))])
             for start in ("new", "from")]
    found.append(np.array([overlap_f1(q["answers"], guess) for (_, _, q), guess in zip(asked, guesses)]))
    print_row("answers, F1", [title for title, _, _ in asked], mean, found[0], *found)


def students():
    rows = {name: predictions(name) for name in ("student-0", "student-0.8", "known")}
    test = jsonl("known-test")
    truth = np.array([row["label"] for row in rows["known"]])
    points, values = resampled([d["id"].split("-")[0] for d in test], accuracy, truth,
                               *(np.array([row["prediction"] for row in r]) for r in rows.values()))
    print("\n| model | accuracy on the known genres |\n| --- | --- |")
    for k, name in enumerate(("student, labels alone", "student, taught by the five", "the five")):
        print(f"| {name} | {points[k]:.3f} ({interval(values[:, k])}) |")
    print(f"| taught less labels alone | {points[1] - points[0]:+.3f} ({interval(values[:, 1] - values[:, 0])}) |")


print("| task | random weights | pretrained | bag of words | pretrained less random | less bag of words |\n" + "| --- " * 6 + "|")
genres()
pairs()
names()
answers()
students()
