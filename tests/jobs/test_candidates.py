"""score.candidates: choices of documents, against the log-probabilities that scoring gives the whole texts."""
import json
import math
import os

import bagpipe_test
from bagpipe_test import JobTest, program, read_json, run
from page_test import Page

try:
    import h5py
except ImportError:
    h5py = None


class Candidates(JobTest):
    DOCUMENTS = 23

    @classmethod
    def setUpClass(cls):
        if h5py is None:
            raise bagpipe_test.unittest.SkipTest("there is no h5py")
        super().setUpClass()
        cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.at('model')}"])
        with open(cls.at("valid.txt"), encoding="utf-8") as file:
            words = [line.split() for line in file.read().splitlines() if len(line.split()) > 6]
        cls.lines = []
        for k in range(cls.DOCUMENTS):
            context = " ".join(words[k][:3]) + (" " if k % 5 == 0 else "")
            space = "" if k % 5 == 0 else " "
            choices = [space + " ".join(words[k + j][3:4 + (k + j) % 3]) for j in range(2 + k % 3)]
            cls.lines.append((context, choices, k % len(choices)))
        cls.write("contexts.jsonl", "".join(json.dumps({"text": context}) + "\n" for context, _, _ in cls.lines))
        cls.write("choices.jsonl", "".join(json.dumps({"choices": choices, "answer": answer}) + "\n" for _, choices, answer in cls.lines))
        cls.corpus("contexts")
        cls.write("score.ini", f"[score]\nmodel = {cls.at('model')}\n[math]\nprecision = f32\nthreads = 1\n")

    @classmethod
    def corpus(cls, name):
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "jsonl", "--out", cls.at(name + ".h5"),
                  cls.at(name + ".jsonl")])

    def result(self, name, ranks=0, *keys):
        return run([program("bagpipe"), "score", self.at("score.ini"), f"run.dir={self.at(name)}", f"score.corpus={self.at('contexts.h5')}",
                    f"score.candidates={self.at('choices.jsonl')}"] + list(keys), ranks)

    def scored(self, name, ranks=0, *keys):
        result = self.result(name, ranks, *keys)
        self.assertEqual(result.status, 0, str(result))
        with open(self.file(name, "candidates.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def file(self, name, part):
        return os.path.join(self.at(name), "score", part)

    def test_sums_are_those_of_scoring_the_whole_texts(self):
        lines = self.scored("chosen")
        self.write("whole.jsonl", "".join(json.dumps({"text": context + choice}) + "\n" for context, choices, _ in self.lines for choice in choices))
        self.corpus("whole")
        self.must(["bagpipe", "score", self.at("score.ini"), f"run.dir={self.at('whole')}", f"score.corpus={self.at('whole.h5')}",
                   "score.tokens=yes", "score.prefix=none"])
        at = 0
        with h5py.File(self.file("whole", "tokens.h5")) as file:
            for (_, choices, answer), line in zip(self.lines, lines):
                self.assertEqual(line["bytes"], [len(choice.encode()) for choice in choices])
                self.assertEqual(line["answer"], answer)
                for logprob, tokens in zip(line["logprobs"], line["tokens"]):
                    end = int(file["doc_start"][at + 1]) - 1  # without the end-of-document token
                    self.assertAlmostEqual(logprob, math.fsum(map(float, file["logprob"][end - tokens:end])), delta=1e-4)
                    at += 1
                self.assertEqual(line["best"], max(range(len(choices)), key=lambda k: line["logprobs"][k]))
        with open(self.file("chosen", "summary.json"), encoding="utf-8") as file:
            summary = json.load(file)["candidates"]
        self.assertEqual((summary["documents"], summary["answered"], summary["choices"]), (self.DOCUMENTS, self.DOCUMENTS, at))
        for name, weight in (("accuracy", lambda line, k: 1), ("accuracy_per_token", lambda line, k: line["tokens"][k]),
                             ("accuracy_per_byte", lambda line, k: line["bytes"][k])):
            right = sum(max(range(len(line["logprobs"])), key=lambda k: line["logprobs"][k] / weight(line, k)) == line["answer"] for line in lines)
            self.assertAlmostEqual(summary[name]["value"], right / self.DOCUMENTS, delta=1e-12)
            self.assertLess(summary[name]["low"], summary[name]["value"])
            self.assertGreater(summary[name]["high"], summary[name]["value"])
            normal = 1.96 * math.sqrt(summary[name]["value"] * (1 - summary[name]["value"]) / self.DOCUMENTS)
            self.assertLess(abs(summary[name]["high"] - summary[name]["low"] - 2 * normal), 0.15 + 0.2 * normal)

    def test_the_page_has_the_accuracies(self):
        self.scored("shown")
        figures = read_json(self.at("shown"), "score", "summary.json")["candidates"]
        with open(self.file("shown", "index.html"), encoding="utf-8") as file:
            page = Page(file.read())
        rows = {row[0]: row[1:] for row in page.rows if len(row) == 3}
        for title, name in (("by log-probability", "accuracy"), ("over tokens", "accuracy_per_token"), ("over bytes", "accuracy_per_byte")):
            figure = figures[name]
            self.assertEqual(rows[title], [f"{figure['value']:.3f}", f"{figure['low']:.3f} to {figure['high']:.3f}"])
        self.assertIn("candidates.jsonl", page.links)

    def test_equal_choices_are_counted(self):
        lines = [{"choices": [choices[0], *choices], "answer": (answer + 1) % 2} for _, choices, answer in self.lines]
        path = self.write("equal.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        result = self.result("equal", 0, f"score.candidates={path}")
        self.assertEqual(result.status, 0, str(result))
        with open(self.file("equal", "candidates.jsonl"), encoding="utf-8") as file:
            scored = [json.loads(line) for line in file]
        ties = [line["logprobs"].count(max(line["logprobs"])) > 1 and line["logprobs"][line["answer"]] == max(line["logprobs"]) for line in scored]
        right = [0.5 if tie else float(line["best"] == line["answer"]) for tie, line in zip(ties, scored)]
        figure = read_json(self.at("equal"), "score", "summary.json")["candidates"]["accuracy"]
        self.assertGreater(sum(ties), 0)
        self.assertEqual(figure["ties"], sum(ties))
        self.assertAlmostEqual(figure["shared"], sum(right) / len(right), delta=1e-12)
        self.assert_warning(result, "[choices.ties]", f"{sum(ties)} of {self.DOCUMENTS}")
        with open(self.file("equal", "index.html"), encoding="utf-8") as file:
            self.assertIn(f"of {sum(ties)} documents the answer is one of several equal choices", file.read())

    def test_bytes_are_equal_at_any_number_of_data_ranks(self):
        self.scored("alone")
        for name, ranks, *mesh in (("two", 2), ("four", 4), ("apart", 3, "mesh.coordinator=dedicated")):
            self.scored(name, ranks, *mesh)
            for part in ("candidates.jsonl", "summary.json"):
                with open(self.file("alone", part), "rb") as one, open(self.file(name, part), "rb") as other:
                    self.assertEqual(one.read(), other.read(), f"{part} of {name}")
        for mesh in ("mesh.tensor=2", "mesh.pipeline=2"):
            for one, other in zip(self.scored("alone"), self.scored(mesh, 2, mesh)):
                for a, b in zip(one["logprobs"], other["logprobs"]):
                    self.assertAlmostEqual(a, b, delta=1e-4)

    def test_what_the_model_would_write_is_greedy(self):
        contexts = [context.strip() for context, _, _ in self.lines[:8]]
        self.write("greedy.jsonl", "".join(json.dumps({"prompt": context}) + "\n" for context in contexts))
        self.write("greedy.ini", f"[generate]\nmodel = {self.at('model')}\nprompts = {self.at('greedy.jsonl')}\ntokens = 3\n"
                                 "[math]\nprecision = f32\nthreads = 1\n")
        self.must(["bagpipe", "generate", self.at("greedy.ini"), f"run.dir={self.at('written')}"])
        with open(os.path.join(self.at("written"), "generate", "outputs.jsonl"), encoding="utf-8") as file:
            written = [json.loads(line) for line in file]
        self.write("greedy_contexts.jsonl", "".join(json.dumps({"text": context}) + "\n" for context in contexts))
        self.corpus("greedy_contexts")
        choices = [[line["text"], line["text"] + " zebra", " zebra"] for line in written]
        path = self.write("greedy_choices.jsonl", "".join(json.dumps({"choices": one}) + "\n" for one in choices))
        keys = (f"score.corpus={self.at('greedy_contexts.h5')}", f"score.candidates={path}")
        lines = self.scored("greedy", 0, *keys)
        texts = [context + choice for context, one in zip(contexts, choices) for choice in one[:1]]
        rows = [[] for _ in texts]
        for row in self.must(["bagpipe-data", "encode", "--tokenizer", self.at("tokenizer.json"), *texts]).out.splitlines()[1:]:
            rows[int(row.split(",")[0]) - 1].append(int(row.split(",")[1]))
        same = [row[-len(line["tokens"]):] == line["tokens"] and not "\ufffd" in line["text"] for row, line in zip(rows, written)]
        self.assertGreater(sum(same), 3)
        self.assertEqual(self.scored("greedy-words", 0, *keys, "score.tokens=yes", "score.boundaries=yes"), lines)
        for line, is_same in zip(lines, same):
            self.assertEqual(line["greedy"][1:], [False, False])
            if is_same:
                self.assertIs(line["greedy"][0], True, line)
        for mesh in ("mesh.tensor=2", "mesh.pipeline=2"):
            self.assertEqual([line["greedy"] for line in self.scored("greedy_" + mesh, 2, mesh, *keys)], [line["greedy"] for line in lines])

    def test_long_documents_lose_their_beginning(self):
        with open(self.at("train.txt"), encoding="utf-8") as file:
            self.write("long.jsonl", json.dumps({"text": file.read(2000).strip()}) + "\n")
        self.corpus("long")
        choices = self.write("long_choices.jsonl", json.dumps({"choices": [" the", " and so on"]}) + "\n")
        line, = self.scored("long", 0, f"score.corpus={self.at('long.h5')}", f"score.candidates={choices}")
        self.assertIsNone(line["answer"])
        self.assertTrue(all(math.isfinite(value) for value in line["logprobs"]))

    def test_wrong_choices_are_refused(self):
        good = [json.dumps({"choices": choices}) for _, choices, _ in self.lines]
        for number, (line, words) in enumerate((("{", ["[json.invalid]"]), ("[1]", ["[choices.not_a_list]"]),
                                                ('{"choices": []}', ["[choices.not_a_list]", "\"choices\""]),
                                                ('{"choices": ["a", 1]}', ["[choices.no_text]", "choice 1"]),
                                                ('{"choices": ["a", "b"], "answer": 2}', ["[choices.bad_answer]", "\"answer\"", "from 0 to 1"]))):
            path = self.write("wrong.jsonl", "\n".join(good[:2] + [line] + good[3:]) + "\n")
            self.refused(65, words + ["wrong.jsonl:3"], f"score.candidates={path}", ranks=2 * (number % 2))
        self.refused(65, ["[choices.too_few_lines]", "22", "23"], f"score.candidates={self.write('few.jsonl', chr(10).join(good[:-1]) + chr(10))}")
        self.refused(65, ["[choices.too_many_lines]", "many.jsonl:24"], f"score.candidates={self.write('many.jsonl', chr(10).join(good + good[:1]))}")
        self.refused(66, ["[file.missing]", "none.jsonl"], f"score.candidates={self.at('none.jsonl')}")

    def refused(self, status, words, *keys, ranks=0):
        result = self.result("refused", ranks, *keys)
        self.assert_error(result, status, *words)
        self.assertFalse(os.path.exists(self.file("refused", "summary.json")))


if __name__ == "__main__":
    bagpipe_test.main()
