"""generate.entails: samples grouped by what a fine-tuned classifier says of each pair of them, against a score of the same pairs; entropies by
numpy; the same bytes on any number of data ranks; what is no such classifier is refused."""
import json
import math
import os
import pathlib
import random

import numpy

import bagpipe_test
import test_finetune
from bagpipe_test import read_json, run
from test_finetune import KINDS, MODEL, WORDS


class Semantic(test_finetune.TaskTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        things = [word for words in KINDS.values() for word in words]
        kind_of = {word: kind for kind, words in KINDS.items() for word in words}
        lines = [f"{a}\t{b}\t{'ENTAILMENT' if kind_of[a] == kind_of[b] else 'NEUTRAL'}\n" for a in things for b in things] * 3
        cls.write("pairs.tsv", "A\tB\tjudgment\n" + "".join(lines))
        cls.pairs("pairs")
        cls.write("words.txt", "".join(f"the {a} and {b} of it\n" for a in things for b in things))
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "lines", "--out", cls.at("words.h5"), cls.at("words.txt")])
        cls.write("plain.ini", "[math]\nprecision = f32\nthreads = 1\n")
        cls.must(["bagpipe", "pretrain", cls.at("plain.ini"), f"run.dir={cls.at('writer')}", f"corpus.train={cls.at('words.h5')}", "model.kind=gpt", *MODEL[1:], "train.steps=20",
                  "train.batch=8", "optimizer.lr=1e-2"])
        cls.write("prompts.txt", "the\nthe ship\nit\n")

    @classmethod
    def pairs(cls, name):
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "tsv", "--fields", "A,B", "--label", "judgment",
                  "--out", cls.at(f"{name}.h5"), cls.at(f"{name}.tsv")])

    def classifier(self):
        if not os.path.exists(self.at("entails")):
            self.tuned("entails", 0, *MODEL, "task.label=judgment", f"corpus.train={self.at('pairs.h5')}", "corpus.valid=", "train.steps=60",
                       "optimizer.lr=1e-2")
        return self.at("entails")

    def generate(self, name, *keys, ranks=0):
        return run([bagpipe_test.program("bagpipe"), "generate", self.at("plain.ini"), f"run.dir={self.at(name)}", f"generate.model={self.at('writer')}",
                    f"generate.prompts={self.at('prompts.txt')}", "generate.strategy=sample", "generate.samples=6", "generate.tokens=4",
                    f"generate.entails={self.classifier()}", *keys], ranks)

    def lines(self, name, *keys, ranks=0):
        result = self.generate(name, *keys, ranks=ranks)
        self.assertEqual(result.status, 0, str(result))
        with open(pathlib.Path(self.at(name), "generate", "outputs.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def judged(self, name, pairs, classifier=None):
        """Which of the pairs an ordinary score of the classifier calls entailment."""
        self.write(f"{name}.tsv", "A\tB\tjudgment\n" + "".join(f"{a}\t{b}\tNEUTRAL\n" for a, b in pairs))
        self.pairs(name)
        scored = run([bagpipe_test.program("bagpipe"), "score", self.at("plain.ini"), f"run.dir={self.at(name)}", f"score.model={classifier or self.classifier()}",
                      f"score.corpus={self.at(name + '.h5')}"])
        self.assertEqual(scored.status, 0, str(scored))
        table = pathlib.Path(self.at(name), "score", "predictions.csv").read_text(encoding="utf-8").splitlines()
        at = table[0].split(",").index("prediction")
        return [line.split(",")[at] == "ENTAILMENT" for line in table[1:]]

    @staticmethod
    def clusters(texts, holds):
        firsts, of = [], []
        for k, text in enumerate(texts):
            found = [c for c, first in enumerate(firsts) if text == texts[first] or (holds[k, first] and holds[first, k])]
            if not found:
                firsts.append(k)
            of.append(found[0] if found else len(firsts) - 1)
        return of

    def things_entail(self):
        """A classifier by the second text alone: does it name a thing of the sea or of the wood?"""
        draw = random.Random(5)
        rows = []
        for k in range(240):
            a, b = ([draw.choice(WORDS) for _ in range(4 + k % 7)] for _ in range(2))
            for _ in range(2 * (k % 2)):
                b[-1 - draw.randrange(3)] = draw.choice(KINDS["sea"] + KINDS["wood"])
            rows.append(f"{' '.join(a)}\t{' '.join(b)}\t{('NEUTRAL', 'ENTAILMENT')[k % 2]}\n")
        self.write("things.tsv", "A\tB\tjudgment\n" + "".join(rows))
        self.pairs("things")
        return self.tuned("thing-entails", 0, *MODEL, "task.label=judgment", f"corpus.train={self.at('things.h5')}", "corpus.valid=", "train.steps=60",
                          "train.batch=16")

    def test_long_prompts_lose_their_beginning_and_no_text_its_answer(self):
        prompt, context, n, classifier = "it was the he of you and she had her by his at that not we".split(), 24, 10, self.things_entail()
        self.write("long.txt", " ".join(prompt) + "\n")
        result = self.generate("long", f"generate.prompts={self.at('long.txt')}", "generate.temperature=3", f"generate.samples={n}",
                               f"generate.entails={classifier}")
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[generate.cut_pairs]")
        with open(pathlib.Path(self.at("long"), "generate", "outputs.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        texts, pairs = [line["text"].split() for line in lines], []
        for a in texts:
            for b in texts:
                lost = next(k for k in range(context) if 2 * (len(prompt) - k) + len(a) + len(b) + 3 <= context)
                self.assertGreater(lost, 0)
                pairs.append(tuple(" ".join(prompt[lost:] + text) for text in (a, b)))
        want = self.clusters(texts, numpy.array(self.judged("long-pairs", pairs, classifier)).reshape(n, n))
        self.assertEqual([line["cluster"] for line in lines], want)
        self.assertIn(max(want), range(1, len({line["text"] for line in lines}) - 1))  # neither all alike, nor all apart

    def test_clusters_and_entropies_are_those_of_the_scored_pairs(self):
        for name, keys in (("with", []), ("without", ["generate.entails_prompt=no"])):
            lines = self.lines(name, *keys)
            summary = read_json(self.at(name), "generate", "summary.json")
            before = "" if keys else "{} "
            sizes = []
            for index in range(3):
                of = [line for line in lines if line["index"] == index]
                self.assertEqual(len(of), 6)
                texts = [before.format(line["prompt"]) + line["text"] for line in of]
                pairs = [(a, b) for a in texts for b in texts]
                whole = [pair for pair in pairs if all(text.strip() for text in pair)]  # no token entails nothing
                judged = dict(zip(whole, self.judged(f"{name}-{index}", whole)))
                want = self.clusters(texts, numpy.array([judged.get(pair, False) for pair in pairs]).reshape(6, 6))
                self.assertEqual([line["cluster"] for line in of], want)
                sizes.append(max(want) + 1)
                p = numpy.exp([line["logprob"] / len(line["tokens"]) for line in of])
                for key, weights in (("semantic_entropy", p), ("semantic_entropy_discrete", numpy.ones(6))):
                    mass = numpy.bincount(want, weights) / weights.sum()
                    self.assertEqual(len({line[key] for line in of}), 1)
                    self.assertAlmostEqual(of[0][key], -(mass * numpy.log(mass)).sum(), 9)
            self.assertGreater(max(sizes), 1)
            self.assertAlmostEqual(summary["clusters"], sum(sizes) / 3, 9)
            for key in ("semantic_entropy", "semantic_entropy_discrete"):
                self.assertAlmostEqual(summary[key], sum(lines[6 * k][key] for k in range(3)) / 3, 9)
                self.assertLessEqual(summary[key], math.log(6))
        self.assertIn("semantic entropy", pathlib.Path(self.at("with"), "generate", "index.html").read_text(encoding="utf-8"))

    def test_bytes_are_equal_at_any_number_of_data_ranks(self):
        self.lines("alone")
        self.lines("ranks", ranks=2)
        for file in ("outputs.jsonl", "summary.json"):
            one, two = (pathlib.Path(self.at(name), "generate", file).read_bytes() for name in ("alone", "ranks"))
            self.assertEqual(one, two)

    def test_what_is_no_entailment_classifier_is_refused_before_a_text_is_written(self):
        topics = self.tuned("topics", 0, *MODEL, "train.steps=1")
        for name, keys, status, identifier in (("topic", [f"generate.entails={topics}"], 78, "[generate.no_entailment]"),
                                               ("writes", [f"generate.entails={self.at('writer')}"], 78, "[generate.no_entailment]"),
                                               ("gone", [f"generate.entails={self.at('gone')}"], 66, "["),
                                               ("single", ["generate.samples=1"], 78, "[generate.too_few_samples]"),
                                               ("cold", ["generate.temperature=0"], 78, "[generate.not_drawn]"),
                                               ("greedy", ["generate.strategy=greedy"], 78, "[generate.not_drawn]"),
                                               ("beams", ["generate.strategy=beam", "generate.beams=6"], 78, "[generate.not_drawn]")):
            for ranks in (0, 2):
                self.assert_error(self.generate(name, *keys, ranks=ranks), status, identifier)
                self.assertFalse(os.path.exists(pathlib.Path(self.at(name), "generate", "outputs.jsonl")))


if __name__ == "__main__":
    bagpipe_test.main()
