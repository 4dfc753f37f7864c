"""bagpipe-data toxicity: words of lists against plain Python, probabilities against those of bagpipe score, figures by their definitions."""
import csv
import itertools
import json
import os
import random

import numpy as np
import scipy.stats

import bagpipe_test
from bagpipe_test import JobTest, program, read_json, run
from test_overlap import plain_words


class Toxicity(JobTest):
    TEXT_BYTES = 40_000

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(cls.at("train.txt"), encoding="utf-8") as file:
            cls.lines = [line for line in file.read().splitlines() if line]
        cls.words = sorted({word for line in cls.lines for word in plain_words(line)})

    def bytes_of(self, *names):
        with open(os.path.join(self.folder, *names), "rb") as file:
            return file.read()

    def test_a_word_of_two_lists_counts_in_each(self):
        self.write("two.txt", "One cat.\nA dog\nnothing\n")
        self.write("c.lst", "cat\ncat\n")
        self.write("d.lst", "dog\nCat\n")
        lists = ["--words", self.at("c.lst"), "--words", self.at("d.lst")]
        self.must(["bagpipe-data", "toxicity", self.at("two.txt"), "--format", "lines", *lists, "--show-words", "--out", self.at("two")])
        texts = read_json(self.at("two"), "toxicity.json")["texts"]
        self.assertEqual((texts["documents_with"], [row["documents"] for row in texts["lists"]]), (2, [1, 2]))
        self.assertEqual([(row["word"], row["list"], row["occurrences"]) for row in texts["words"]], [("Cat", "d.lst", 1), ("cat", "c.lst", 1), ("dog", "d.lst", 1)])

    def test_words_and_phrases_are_counted_as_by_plain_python_on_any_ranks(self):
        draw = random.Random(1)
        pairs = [" ".join(plain_words(line)[k:k + 2]) for line in self.lines[:40] for k in (0, 3)]
        first, second = draw.sample(self.words, 12) + pairs[:5], draw.sample(self.words, 5) + pairs[5:7] + ["none of them"]
        self.write("a.lst", "# a comment\n" + "\n".join(word.upper() + "!" for word in first) + "\n\n")
        self.write("b.lst", "\r\n".join(second))
        texts = [" ".join(self.lines[k:k + 2]) for k in range(0, 120, 2)] + ["", "nothing"]
        self.write("t.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in texts))
        ask = ["bagpipe-data", "toxicity", self.at("t.jsonl"), "--format", "jsonl", "--words", self.at("a.lst"), "--words", self.at("b.lst"), "--show-words", "--out"]
        self.must([*ask, self.at("w1")])
        report = read_json(self.at("w1"), "toxicity.json")["texts"]
        lists = {"a.lst": first, "b.lst": [word for word in second if word not in first]}
        expected, with_list = {}, {name: set() for name in lists}
        for name, entries in lists.items():
            for entry in entries:
                parts = plain_words(entry)
                for d, text in enumerate(texts):
                    words = plain_words(text)
                    count = sum(words[k:k + len(parts)] == parts for k in range(len(words) - len(parts) + 1))
                    if count:
                        before = expected.get(" ".join(parts), (name, 0, 0))
                        expected[" ".join(parts)] = (name, before[1] + count, before[2] + 1)
                        with_list[name].add(d)
        found = {" ".join(plain_words(row["word"])): (row["list"], row["occurrences"], row["texts"]) for row in report["words"]}
        self.assertEqual(found, expected)
        self.assertEqual({row["list"]: row["documents"] for row in report["lists"]}, {name: len(documents) for name, documents in with_list.items()})
        self.assertEqual((report["documents"], report["documents_with"]), (62, len(set().union(*with_list.values()))))
        for ranks in (2, 3):
            self.must([*ask, self.at(f"w{ranks}")], ranks)
            self.assertEqual(self.bytes_of("w1", "toxicity.json"), self.bytes_of(f"w{ranks}", "toxicity.json"))
        self.must([argument for argument in ask if argument != "--show-words"] + [self.at("masked")])
        for file in ("toxicity.json", "index.html"):
            for word in expected:
                if len(word) > 6:
                    self.assertNotIn(word.upper() + "!", self.bytes_of("masked", file).decode())
        self.assertIn("*****", self.bytes_of("masked", "index.html").decode())

    def outputs(self, name, rows):
        os.makedirs(self.at(f"{name}/generate"), exist_ok=True)
        with open(self.at(f"{name}/generate/outputs.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"index": index, "prompt": prompt, "text": text, "tokens": [1]}) + "\n" for index, prompt, text in rows)
        with open(self.at(f"{name}/generate/summary.json"), "w", encoding="utf-8") as file:
            json.dump({"model": {"digest": "d", "step": 1, "members": 0}}, file)
        return self.at(name)

    def classifier(self):
        lines = [(line[:60 if k % 2 else 12], "toxic" if k % 2 else "fine") for k, line in enumerate(self.lines[:80])]  # long ones: easily learnt
        self.write("task.jsonl", "".join(json.dumps({"text": text, "kind": kind}) + "\n" for text, kind in lines))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--label", "kind", "--out", self.at("task.h5"), self.at("task.jsonl")])
        base = self.trained("base", 0, "train.steps=5")
        self.must(["bagpipe", "finetune", self.at("small.ini"), f"run.dir={self.at('judge')}", f"model.init={base}", f"corpus.train={self.at('task.h5')}", "corpus.valid=", "task.kind=classes", "task.label=kind", "train.steps=30", "optimizer.lr=1e-2"])
        return self.at("judge")

    def probabilities(self, judge, texts):
        """Of the class toxic, as bagpipe score has them."""
        self.write("asked.jsonl", "".join(json.dumps({"text": text, "kind": "toxic"}) + "\n" for text in texts))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--label", "kind", "--out", self.at("asked.h5"), self.at("asked.jsonl")])
        self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={self.at('asked')}", f"score.model={judge}", f"score.corpus={self.at('asked.h5')}"])
        with open(self.at("asked/score/predictions.csv"), encoding="utf-8") as file:
            return [float(row["probability"]) if row["prediction"] == "toxic" else 1 - float(row["probability"]) for row in csv.DictReader(file)]

    def check(self, figures, samples):
        """Figures of a group from each prompt's probabilities."""
        prompts = len(samples)
        self.assertEqual((figures["prompts"], figures["samples"]), (prompts, sum(map(len, samples))))
        largest = [max(p) for p in samples]
        self.assertAlmostEqual(figures["expected_maximum"]["value"], np.mean(largest), places=5)
        if prompts >= 10:
            half = scipy.stats.t.ppf(0.975, prompts - 1) * np.std(largest, ddof=1) / np.sqrt(prompts)
            self.assertAlmostEqual(figures["expected_maximum"]["high"] - figures["expected_maximum"]["value"], half, places=5)
        toxic = sum(value >= 0.5 for value in largest)
        self.assertAlmostEqual(figures["any_toxic"]["value"], toxic / prompts)
        self.assertAlmostEqual(figures["any_toxic"]["low"], scipy.stats.binomtest(toxic, prompts).proportion_ci(method="wilson")[0], places=6)
        self.assertAlmostEqual(figures["mean"]["value"], np.mean(np.concatenate(samples)), places=5)
        self.assertAlmostEqual(figures["toxic_samples"]["value"], np.mean(np.concatenate(samples) >= 0.5))
        for k, of in figures["expected_maximum_of"].items():
            drawn = [np.mean([max(some) for some in itertools.combinations(p, int(k))]) for p in samples]
            self.assertAlmostEqual(of["value"], np.mean(drawn), places=5)

    def test_samples_have_the_figures_of_real_toxicity_prompts(self):
        judge, draw = self.classifier(), random.Random(2)
        prompts = [draw.choice(self.lines)[:60 if k % 3 else 12] for k in range(12)]
        rows = [(k, prompt, draw.choice(self.lines)[:draw.choice([12, 12, 30, 60])]) for k, prompt in enumerate(prompts) for _ in range(7)]
        rows[5] = (rows[5][0], rows[5][1], "")  # a text without a token
        made = self.outputs("samples", rows)
        self.write("prompts.jsonl", "".join(json.dumps({"prompt": prompt, "kind": "ab"[k % 2]}) + "\n" for k, prompt in enumerate(prompts)))
        self.write("one.lst", plain_words(rows[0][2])[0])
        ask = ["bagpipe-data", "toxicity", "--outputs", made, "--model", judge, "--group", "kind", "--prompts", self.at("prompts.jsonl"), "--words", self.at("one.lst"), "--out"]
        self.must([*ask, self.at("t1")])
        p = self.probabilities(judge, [text or "x" for _, _, text in rows] + prompts)
        p[5] = 0
        samples = [np.array(p[7 * k:7 * k + 7]) for k in range(12)]
        of_prompts = p[len(rows):]
        self.assertTrue(0 < sum(value >= 0.5 for value in of_prompts) < 12, of_prompts)
        report = read_json(self.at("t1"), "toxicity.json")
        groups = report["runs"][0]["groups"]
        self.check(groups["all"], samples)
        self.check(groups["toxic prompts"], [s for s, value in zip(samples, of_prompts) if value >= 0.5])
        self.check(groups["prompts that are not toxic"], [s for s, value in zip(samples, of_prompts) if value < 0.5])
        self.check(groups["kind = a"], samples[::2])
        self.assertEqual(set(groups["all"]["expected_maximum_of"]), {"1", "5"})
        word = plain_words(rows[0][2])[0]
        listed = [word in plain_words(text) for _, _, text in rows]
        self.assertAlmostEqual(groups["all"]["listed_samples"]["value"], np.mean(listed))
        self.assertAlmostEqual(groups["all"]["any_listed"]["value"], np.mean([any(listed[7 * k:7 * k + 7]) for k in range(12)]))
        self.assertEqual(report["classifier"]["class"], "toxic")
        for ranks in (2, 3):
            self.must([*ask, self.at(f"t{ranks}")], ranks)
            self.assertEqual(self.bytes_of("t1", "toxicity.json"), self.bytes_of(f"t{ranks}", "toxicity.json"))
        page = self.bytes_of("t1", "index.html").decode()
        self.assertIn("bagpipe-data toxicity", page)
        self.assertNotIn("http", page)
        self.bad_models(made, judge)

    def bad_models(self, made, judge):
        for more, status, identifier in ((["--class", "rude"], 78, "toxicity.no_class"), (["--model", self.at("base")], 78, "toxicity.no_class"), (["--model", self.at("none")], 66, None),
                                         (["--group", "kind", "--prompts", self.at("task.jsonl").replace("task", "few")], 65, "toxicity.other_prompts")):
            self.write("few.jsonl", '{"prompt": "a"}\n')
            for ranks in (0, 2):
                result = run([program("bagpipe-data"), "toxicity", "--outputs", made, "--model", judge, *more], ranks)
                self.assertEqual(result.status, status, result)
                self.assertEqual(len(result.lines("error")), 1, result)
                if identifier:
                    self.assertIn(f"[{identifier}]", result.err)

    def test_bad_input(self):
        made, text = self.outputs("made", [(0, "a", "b")]), self.at("valid.txt")
        self.write("w.lst", "a\n")
        self.write("empty.lst", "# nothing\n")
        self.write("long.lst", "a b c d e f g h i\n")
        for arguments, status, identifier in (
                (["--words", self.at("w.lst")], 64, "command.no_input"), ([text], 64, "command.bad_value"), ([text, "--outputs", made, "--words", self.at("w.lst")], 64, "command.bad_value"),
                ([text, "--model", made, "--words", self.at("w.lst")], 64, "command.bad_value"), (["--outputs", made], 64, "command.bad_value"), (["--outputs", made, "--words", self.at("w.lst"), "--group", "a"], 64, "command.bad_value"),
                ([text, "--words", self.at("empty.lst")], 65, "toxicity.no_entries"), ([text, "--words", self.at("long.lst")], 65, "toxicity.long_entry"), ([text, "--words", self.at("none.lst")], 66, "file.missing"),
                (["--outputs", self.at("none"), "--words", self.at("w.lst")], 66, "outputs.missing")):
            for ranks in (0, 2):
                result = run([program("bagpipe-data"), "toxicity", *arguments], ranks)
                self.assertEqual(result.status, status, result)
                self.assertEqual(len(result.lines("error")), 1, result)
                self.assertIn(f"[{identifier}]", result.err)


if __name__ == "__main__":
    bagpipe_test.main()
