"""score.questions: every form against score.candidates and plain formulas, on every mesh, of ensembles, and what is refused."""
import csv
import io
import json
import math
import os
import shutil

import bagpipe_test
from bagpipe_test import JobTest, program, read_json, run
from page_test import Page


def best(values):
    known = [k for k, value in enumerate(values) if value is not None]
    return max(known, key=lambda k: (values[k], -k)) if known else None


class Questions(JobTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.at('model')}"])
        cls.write("score.ini", f"[score]\nmodel = {cls.at('model')}\n[math]\nprecision = f32\nthreads = 1\n")
        with open(cls.at("valid.txt"), encoding="utf-8") as file:
            words = [line.split() for line in file.read().splitlines() if len(line.split()) > 6]
        cls.questions = []
        for k in range(24):
            blank = " " if k % 2 else ""
            context = " ".join(words[k][:3]) + blank
            few = [("" if blank else " ") + " ".join(words[k + j][3:4 + (k + j) % 3]) for j in range(2 + k % 3)]
            cls.questions.append({"task": "sentences", "id": k, "context": context, "choices": few, "answer": k % len(few),
                                  "group": ("even", "odd")[k % 2], "other": {"kept": [1.5, None]}})
        for k in range(6):
            cls.questions.append({"task": "letters", "context": " ".join(words[k]) + "\nAnswer:", "choices": [" a", " b", " c", " d"], "answer": k % 4})
        for k in range(5):
            cls.questions.append({"task": "contexts", "contexts": [" ".join(words[k + j][:4]) for j in range(2)], "target": " " + words[k][4], "answer": k % 2})
        for k in range(5):
            cls.questions.append({"task": "targets", "context": " ".join(words[k][:-1]), "target": " " + words[k][-1]})
        for k in range(4):
            cls.questions.append({"task": "pairs", "context": "", "choices": [" ".join(words[k][:5]), " ".join(reversed(words[k][:5]))], "answer": 0})
        cls.path = cls.write_questions("questions.jsonl", cls.questions)

    @classmethod
    def write_questions(cls, name, questions):
        return cls.write(name, "".join(json.dumps(question) + "\n" for question in questions))

    def result(self, name, ranks=0, *keys, path=None):
        return run([program("bagpipe"), "score", self.at("score.ini"), f"run.dir={self.at(name)}", f"score.questions={path or self.path}", *keys], ranks)

    def asked(self, name, ranks=0, *keys, path=None):
        result = self.result(name, ranks, *keys, path=path)
        self.assertEqual(result.status, 0, str(result))
        with open(self.file(name, "questions.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def file(self, name, part):
        return os.path.join(self.at(name), "score", part)

    def bytes_of(self, name, part):
        with open(self.file(name, part), "rb") as file:
            return file.read()

    def chosen(self, name, contexts, choices):
        """What score.candidates gives to lists of choices behind contexts: the sums, and what is greedy."""
        self.write("contexts.jsonl", "".join(json.dumps({"text": context}) + "\n" for context in contexts))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--out", self.at("contexts.h5"),
                   self.at("contexts.jsonl")])
        path = self.write("choices.jsonl", "".join(json.dumps({"choices": one}) + "\n" for one in choices))
        self.must(["bagpipe", "score", self.at("score.ini"), f"run.dir={self.at(name)}", f"score.corpus={self.at('contexts.h5')}",
                   f"score.candidates={path}"])
        with open(self.file(name, "candidates.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def assert_near(self, ones, others):
        for a, b in zip(ones, others, strict=True):
            self.assertAlmostEqual(a, b, delta=2e-5)

    def test_each_form_is_that_of_candidates(self):
        lines = self.asked("forms")
        self.assertEqual([{key: line[key] for key in question} for question, line in zip(self.questions, lines, strict=True)], self.questions)
        plain = [k for k, line in enumerate(lines) if "context" in line]
        others = self.chosen("plain", [lines[k]["context"] for k in plain], [lines[k].get("choices") or [lines[k]["target"]] for k in plain])
        for k, other in zip(plain, others, strict=True):
            self.assert_near(lines[k]["logprobs"], other["logprobs"])
            for name in ("tokens", "bytes", "greedy", "best"):
                self.assertEqual(lines[k][name], other[name], lines[k])
        several = [line for line in lines if "contexts" in line]
        others = self.chosen("several", [context for line in several for context in line["contexts"]],
                             [[line["target"]] for line in several for _ in line["contexts"]])
        self.assert_near([value for line in several for value in line["logprobs"]], [other["logprobs"][0] for other in others])
        bare = [line for line in lines if line.get("context") and "choices" in line]
        ends = [line["context"][len(line["context"].rstrip()):] for line in bare]
        others = self.chosen("bare", ["" for _ in bare], [[end + text for text in line["choices"]] for line, end in zip(bare, ends)])
        for line, other in zip(bare, others, strict=True):
            self.assert_near(line["logprobs_bare"], other["logprobs"])
        self.assertFalse(any("logprobs_bare" in line for line in lines if line not in bare))  # nor of contexts that are the bare prefix

    def assert_wilson(self, figure, n):
        """Where the distance to the share is 1.96 of its own standard errors; none of few questions."""
        if n < 10:
            self.assertEqual((figure["low"], figure["high"]), (None, None))
            return
        for bound in (figure["low"], figure["high"]):
            self.assertAlmostEqual(n * (bound - figure["value"]) ** 2, 1.959964 ** 2 * bound * (1 - bound), delta=1e-5)

    def test_figures_are_those_of_the_lines(self):
        lines = self.asked("figures")
        summary = read_json(self.at("figures"), "score", "summary.json")
        self.assertEqual(sorted(summary["tasks"]), ["contexts", "letters", "pairs", "sentences", "targets"])
        self.assertEqual(sorted(summary["tasks"]["sentences"]["groups"]), ["even", "odd"])
        ways = {"acc": lambda line, k: line["logprobs"][k], "acc_norm": lambda line, k: line["logprobs"][k] / line["bytes"][k],
                "acc_token": lambda line, k: line["logprobs"][k] / line["tokens"][k],
                "acc_mutual": lambda line, k: line["logprobs"][k] - line["logprobs_bare"][k]}
        for figures, chosen in ((summary["tasks"]["sentences"], lines[:24]), (summary["tasks"]["sentences"]["groups"]["odd"], lines[1:24:2]),
                                (summary["tasks"]["letters"], lines[24:30]), (summary["tasks"]["pairs"], lines[40:])):
            self.assertEqual(figures["questions"], len(chosen))
            for name, way in ways.items():
                if name == "acc_mutual" and "logprobs_bare" not in chosen[0]:
                    self.assertNotIn(name, figures)
                    continue
                right = [best([way(line, k) for k in range(len(line["logprobs"]))]) == line["answer"] for line in chosen]
                self.assertAlmostEqual(figures[name]["value"], sum(right) / len(right), delta=1e-12)
                self.assert_wilson(figures[name], len(chosen))
            nll = brier = 0
            for line in chosen:
                p = [math.exp(value) for value in line["logprobs"]]
                p = [value / sum(p) for value in p]
                nll -= math.log(p[line["answer"]]) / len(chosen)
                brier += sum((value - (k == line["answer"])) ** 2 for k, value in enumerate(p)) / len(chosen)
            self.assertAlmostEqual(figures["nll"]["value"], nll, delta=1e-9 * nll)
            self.assertAlmostEqual(figures["brier"]["value"], brier, delta=1e-9)
        targets = summary["tasks"]["targets"]
        self.assertAlmostEqual(targets["perplexity"]["value"], math.exp(-sum(line["logprobs"][0] for line in lines[35:40]) / 5), delta=1e-6 * targets["perplexity"]["value"])
        self.assertEqual(targets["acc"]["value"], sum(line["greedy"][0] for line in lines[35:40]) / 5)
        self.assertNotIn("acc_norm", targets)
        self.assertEqual(summary["all"]["questions"], 44)

    def test_characters_and_bytes_are_told_apart(self):
        """The harness's acc_norm is by characters, its acc_bytes by bytes."""
        texts = ["éa", "xqzj", "öb", "kv", "日本", "jjxx kw", "über"]
        questions = [{"context": "the ", "choices": [texts[k % 7], texts[(k + 1 + k // 7) % 7]], "answer": 0} for k in range(35)]
        lines = self.asked("characters", 0, "score.questions_form=lm-eval", path=self.write_questions("characters.jsonl", questions))
        figures = read_json(self.at("characters"), "score", "results.json")["results"]["questions"]
        chosen = {}
        for name, size in (("acc_norm", len), ("acc_bytes", lambda text: len(text.encode()))):
            chosen[name] = [best([value / size(text) for value, text in zip(line["logprobs"], line["choices"], strict=True)]) for line in lines]
            self.assertAlmostEqual(figures[name + ",none"], chosen[name].count(0) / 35, delta=1e-12)
        self.assertNotEqual(chosen["acc_norm"], chosen["acc_bytes"])
        with open(self.file("characters", "samples_questions.jsonl"), encoding="utf-8") as file:
            samples = [json.loads(line) for line in file]
        for name, which in chosen.items():
            self.assertEqual([sample[name] for sample in samples], [float(k == 0) for k in which])

    def test_bytes_are_equal_at_any_number_of_data_ranks(self):
        one = self.asked("alone")
        for name, ranks, *mesh in (("four", 4), ("apart", 3, "mesh.coordinator=dedicated")):
            self.asked(name, ranks, *mesh)
            for part in ("questions.jsonl", "summary.json"):
                self.assertEqual(self.bytes_of("alone", part), self.bytes_of(name, part), f"{part} of {name}")
        for mesh in ("mesh.tensor=2", "mesh.pipeline=2"):
            for a, b in zip(one, self.asked(mesh, 2, mesh), strict=True):
                for x, y in zip(a["logprobs"], b["logprobs"], strict=True):
                    self.assertAlmostEqual(x, y, delta=1e-4)

    def test_names_of_lm_evaluation_harness(self):
        lines = self.asked("harness", 0, "score.questions_form=lm-eval")
        results = read_json(self.at("harness"), "score", "results.json")
        summary = read_json(self.at("harness"), "score", "summary.json")
        for task, figures in summary["tasks"].items():
            theirs = results["results"][task]
            for ours, name in (("acc", "acc"), ("acc_character", "acc_norm"), ("acc_norm", "acc_bytes"), ("acc_mutual", "acc_mutual_info"), ("perplexity", "perplexity")):
                self.assertEqual(theirs.get(name + ",none"), figures.get(ours, {}).get("value"))
            self.assertEqual(results["n-samples"][task]["effective"], figures["questions"])
            p, n = theirs["acc,none"], figures["questions"]
            self.assertEqual(figures["acc"]["questions"], n)
            self.assertAlmostEqual(theirs["acc_stderr,none"], math.sqrt(p * (1 - p) / (n - 1)), delta=1e-12)
        with open(self.file("harness", "samples_sentences.jsonl"), encoding="utf-8") as file:
            samples = [json.loads(line) for line in file]
        for sample, line in zip(samples, lines[:24], strict=True):
            self.assertEqual([pair[0] for pair in sample["filtered_resps"]], line["logprobs"])
            self.assertEqual([pair[1] for pair in sample["filtered_resps"]], line["greedy"])
            self.assertEqual((sample["doc"], sample["target"]), ({key: line[key] for key in sample["doc"]}, line["answer"]))
            self.assertEqual(sample["acc"], float(line["best"] == line["answer"]))

    def test_an_ensemble_says_how_far_its_members_agree(self):
        members = []
        for member in range(2):
            name = f"member{member}"
            self.must(["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={self.at(name)}", f"run.seed={member + 7}"])
            members.append([line["logprobs"] for line in self.asked(f"asked{member}", 0, f"score.model={self.at(name)}")])
        os.makedirs(self.at("both"))
        self.write("both/ensemble.json", json.dumps({"members": [{"name": f"m{k}", "path": self.at(f"member{k}")} for k in range(2)]}))
        lines = self.asked("together", 0, f"score.model={self.at('both')}")
        for k, line in enumerate(lines):
            if "target" in line and "context" in line:
                self.assertNotIn("mutual_information", line)
                continue
            each = []
            for member in members:
                p = [math.exp(value) for value in member[k]]
                each.append([value / sum(p) for value in p])
            mean = [sum(values) / 2 for values in zip(*each)]
            entropy = [-sum(value * math.log(value) for value in p if value > 0) for p in (mean, *each)]
            self.assertAlmostEqual(line["total_entropy"], entropy[0], delta=1e-4)
            self.assertAlmostEqual(line["mutual_information"], entropy[0] - (entropy[1] + entropy[2]) / 2, delta=1e-4)
        summary = read_json(self.at("together"), "score", "summary.json")
        known = [line["mutual_information"] for line in lines[:24]]
        self.assertAlmostEqual(summary["tasks"]["sentences"]["mutual_information"]["value"], sum(known) / 24, delta=1e-12)

    def test_the_page_shows_what_the_files_hold(self):
        """Its rows are tasks and groups with chance, its lists the surest mistakes and the least probable targets, harmless whatever they hold."""
        hostile = {"task": "<b>signs</b>", "id": "<i>", "context": "<script>alert(1)</script> \u6f22 ", "choices": [" <u>", " b"], "answer": 1}
        path = self.write_questions("page.jsonl", [*self.questions, hostile, dict(hostile, answer=0)])
        lines = self.asked("page", 2, path=path)
        summary = read_json(self.at("page"), "score", "summary.json")
        with open(self.file("page", "index.html"), encoding="utf-8") as file:
            text = file.read()
        page = Page(text)
        self.assertEqual(page.stack, [])
        self.assertEqual(len(page.ids), len(set(page.ids)))
        for tag in ("<script", "<b>", "<i>", "<u>"):
            self.assertNotIn(tag, text)
        self.assertEqual(sorted(link for link in page.links if not link.startswith("#")), ["questions.jsonl", "summary.json"])
        rows = [row for row in page.rows if len(row) == 8]
        self.assertEqual(rows[0][0], "task")
        names = ["all questions", "sentences", "even", "odd", "letters", "contexts", "targets", "pairs", "<b>signs</b>"]
        self.assertEqual([row[0] for row in rows[1:10]], names)
        for row, chance in zip(rows[1:10], [None, sum(1 / (2 + k % 3) for k in range(24)) / 24, None, None, 0.25, 0.5, None, 0.5, 0.5]):
            if chance:
                self.assertEqual(row[2], f"{chance:.3f}")
        acc = summary["tasks"]["sentences"]["acc"]
        self.assertEqual(rows[2][1], "24")
        self.assertIn(f"{acc['value']:.3f}", rows[2][3])
        self.assertIn(f"{acc['low']:.3f} to {acc['high']:.3f}", page.named("span"))
        self.assertEqual(rows[7][2], "\u2013")  # a target has no chance
        self.assertEqual(rows[1][2], "\u2013")  # so neither do questions with targets among them
        known = summary["all"]["acc_norm"]["questions"]
        self.assertLess(known, summary["all"]["questions"])
        self.assertIn(f"of {known} questions", page.named("span"))
        self.assertNotIn("of 24 questions", page.named("span"))
        self.assertEqual(summary["all"]["perplexity"], summary["tasks"]["targets"]["perplexity"])
        self.assertIn("empty one is the token <code>&lt;|endoftext|&gt;</code>", text)
        wrong = []
        for line in lines:
            if "answer" in line and line["best"] != line["answer"]:
                p = [math.exp(value) for value in line["logprobs"]]
                wrong.append((p[line["best"]] / sum(p), line["task"]))
        wrong.sort(key=lambda one: -one[0])
        shown = [row for row in page.rows if len(row) == 7 and row[0] != "task"]
        self.assertEqual([row[4] for row in shown], [f"{share:.3f}" for share, _ in wrong[:10]])
        targets = sorted(line["logprobs"][0] for line in lines if "choices" not in line and "contexts" not in line)
        listed = [row for row in page.rows if len(row) == 5 and row[0] == "targets"]
        self.assertEqual([row[4] for row in listed], [f"{value:.1f}" for value in targets[:10]])
        if shutil.which("gnuplot"):
            self.assertEqual(text.count("<svg"), 2)
        os.remove(self.file("page", "index.html"))  # one that is gone is made again
        self.asked("page", 0, path=path)
        self.assertTrue(os.path.exists(self.file("page", "index.html")))

    def test_choices_without_a_prefix(self):
        """Nothing is fed before a choice: each has its own first token."""
        path = self.write_questions("bare.jsonl", [{"context": "", "choices": ["the sea", "a sea", "one sea"], "answer": 0},
                                                   {"context": "the", "choices": [" sea", " ship", " sand"], "answer": 0}])
        lines = self.asked("no-prefix", 0, "score.prefix=none", path=path)
        others = self.asked("no-prefix-alone", 0, "score.prefix=none", path=self.write_questions(
            "alone.jsonl", [{"context": "", "choices": [text]} for text in ("the sea", "a sea", "one sea", " sea", " ship", " sand")]))
        self.assert_near(lines[0]["logprobs"] + lines[1]["logprobs_bare"], [line["logprobs"][0] for line in others])

    def test_strange_texts(self):
        with open(self.at("train.txt"), encoding="utf-8") as file:
            long = file.read(3000)
        path = self.write_questions("strange.jsonl", [
            {"context": "the", "choices": ["", " ", "  x", "日本"], "answer": 3}, {"context": "   ", "choices": [" a", "a"], "answer": 0},
            {"context": long, "choices": [" the", " the"], "answer": 1}, {"context": "a\u0000b", "target": "\u0000"},
            {"context": "the", "target": long}, {"context": "the", "choices": ["", ""], "answer": 0},
            {"context": "the ", "choices": ["", "x"]}])
        with open(path, "a", encoding="utf-8") as file:
            file.write('{"context": "the", "choices": [" a", " b"], "answer": 0, "unread": [NaN, 1e999]}\n')
        result = self.result("strange", 2, path=path)
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[choices.unscored]")
        self.assert_warning(result, "[questions.cut]")
        with open(self.file("strange", "questions.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        self.assertEqual([value is None for value in lines[0]["logprobs"]], [True, False, False, False])
        self.assertEqual(lines[2]["logprobs"][0], lines[2]["logprobs"][1])
        self.assertEqual(lines[2]["best"], 0)  # of equal ones the first
        self.assert_warning(result, "[questions.ties]", "1 of 8 questions", "(acc_ties_shared)")
        self.assertEqual((lines[4]["logprobs"], lines[4]["best"], lines[5]["best"]), ([None], None, None))
        self.assertAlmostEqual(lines[6]["logprobs"][0], lines[0]["logprobs"][1], delta=2e-5)  # the context's blank is what is asked
        self.assertEqual((lines[7]["context"], "unread" in lines[7]), ("the", False))
        summary = read_json(self.at("strange"), "score", "summary.json")
        self.assertEqual((summary["unscored"], summary["tasks"]["questions"]["questions"]), (4, 8))
        answered = [line for line in lines if line["best"] is not None and "answer" in line]
        right = [line["best"] == line["answer"] for line in answered]
        self.assertAlmostEqual(summary["all"]["acc"]["value"], (sum(right) + lines[3]["greedy"][0]) / (len(right) + 1), delta=1e-12)
        self.assertEqual((summary["all"]["ties"], summary["all"]["acc_ties_shared"]), (1, (sum(right) + 0.5) / len(right)))
        self.assert_error(run([program("bagpipe-data"), "filter", self.at("strange"), "--by", "perplexity", "--keep", "0..1%"]), 65, "[scores.of_questions]")

    def table(self, *words):
        return run([program("bagpipe-data"), "table", *words])

    def compared(self, *words):
        return run([program("bagpipe-data"), "compare", *words])

    def test_models_are_side_by_side_and_paired_by_question(self):
        """The table has the summaries' figures; the difference is that of the questions that one model alone answers right, with McNemar's p."""
        self.must(["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={self.at('rival')}", "run.seed=5", "train.steps=60"])
        sides = [self.asked("side-a"), self.asked("side-b", 0, f"score.model={self.at('rival')}")]
        summaries = [read_json(self.at(f"side-{name}"), "score", "summary.json") for name in "ab"]
        result = self.table(f"one={self.at('side-a')}", f"two={self.at('side-b')}")
        self.assertEqual(result.status, 0, str(result))
        rows = list(csv.DictReader(io.StringIO(result.out)))
        self.assertEqual(len(rows), 2 * 8)  # all, five tasks, two groups
        for row in rows:
            figures = summaries[row["model"] == "two"]
            figures = figures["tasks"][row["task"]] if row["task"] else figures["all"]
            figures = figures["groups"][row["group"]] if row["group"] else figures
            self.assertEqual(int(row["questions"]), figures["questions"])
            for name in ("acc", "acc_norm", "nll"):
                if name in figures:
                    for part in ("value", "low", "high"):
                        text = row[name if part == "value" else f"{name}_{part}"]
                        self.assertEqual(float(text) if text else None, figures[name][part])
        out = self.at("answers.md")
        self.assertEqual(self.table(self.at("side-a"), self.at("side-b"), "--figure", "acc_norm", "--out", out).status, 0)
        with open(out, encoding="utf-8") as file:
            text = file.read()
        self.assertIn("| acc_norm", text)
        self.assertIn(f"{summaries[0]['tasks']['sentences']['acc_norm']['value']:.2f} [", text)
        for figure, sizes in (("acc", None), ("acc_norm", "bytes"), ("acc_token", "tokens")):
            result = self.compared(self.at("side-a"), self.at("side-b"), "--figure", figure, "--csv", self.at("answers.csv"))
            self.assertEqual(result.status, 0, str(result))
            with open(self.at("answers.csv"), encoding="utf-8") as file:
                row = next(row for row in csv.DictReader(file) if (row["task"], row["group"]) == ("sentences", ""))
            right = [[best([value / size for value, size in zip(line["logprobs"], line[sizes] if sizes else [1] * 9)]) == line["answer"] for line in side[:24]] for side in sides]
            only = [sum(a and not b for a, b in zip(*right)), sum(b and not a for a, b in zip(*right))]
            self.assertEqual([int(row[name]) for name in ("questions", "right_a", "right_b", "only_a", "only_b")], [24, sum(right[0]), sum(right[1]), *only])
            p = min(1, 2 * sum(math.comb(sum(only), k) for k in range(min(only) + 1)) / 2 ** sum(only))
            self.assertAlmostEqual(float(row["p_value"]), p, delta=1e-9)
            share = [(value + 0.5) / 26 for value in only]
            half = 1.959964 * math.sqrt((sum(share) - (share[1] - share[0]) ** 2) / 26)
            self.assertAlmostEqual(float(row["difference_low"]), share[1] - share[0] - half, delta=1e-6)
            self.assertAlmostEqual(float(row["difference"]), (only[1] - only[0]) / 24, delta=1e-12)
        self.assertIn("No clear difference" if float(row["p_value"]) > 0.05 else "answers better", result.out)
        self.asked("others", path=self.write_questions("others.jsonl", [*self.questions[:5], dict(self.questions[5], answer=0, context="the")]))
        self.assert_error(self.compared(self.at("side-a"), self.at("others")), 65, "[compare.other_questions]", "question 6")
        self.assert_error(self.compared(self.at("side-a"), self.at("side-b"), "--figure", "acc_mutual"), 64, "[table.bad_figure]")
        self.assert_error(self.compared(self.at("side-a"), self.at("side-b"), "--seed", "3"), 64, "[command.exclusive]")
        self.assert_error(self.table(self.at("side-a"), "--figure", "perplexities"), 64, "[table.bad_figure]")
        self.assert_error(self.table(self.at("side-a"), "--out", self.at("a.svg")), 64, "[table.bad_ending]")
        self.assert_error(self.table(self.at("side-a"), self.at("model")), 66, "[scores.missing]")

    def test_ties_of_counts_prove_nothing(self):
        """Contexts that differ beyond an n-gram model's order: whichever comes first is the best one, and a comparison leaves them out."""
        self.write("counts.ini", f"[corpus]\ntrain = {self.at('train.h5')}\n[model]\nkind = ngram\n[ngram]\norder = 2\n")
        self.must(["bagpipe", "pretrain", self.at("counts.ini"), f"run.dir={self.at('counts')}"])
        path = self.write_questions("far.jsonl", [{"contexts": [f"{a} ship of the", f"{b} ship of the"], "target": " sea", "answer": k % 2}
                                                  for k, (a, b) in enumerate(zip("abcdefghijkl", "mnopqrstuvwx"))])
        result = self.result("far-counts", 0, f"score.model={self.at('counts')}", path=path)
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[questions.ties]", "12 of 12")
        with open(self.file("far-counts", "index.html"), encoding="utf-8") as file:
            self.assertIn("12 of 12 questions have best options that are equally probable", file.read())
        result = self.table(self.at("far-counts"))
        self.assertEqual((result.status, next(csv.DictReader(io.StringIO(result.out)))["acc_ties_shared"]), (0, "0.5"))
        shared = self.table(self.at("far-counts"), "--form", "markdown", "--figure", "acc_ties_shared")
        self.assertIn("| 0.5", shared.out)
        self.assert_warning(result, "[table.answers]", "12 of 12")
        self.asked("far-model", path=path)
        self.assert_error(self.compared(self.at("far-counts"), self.at("far-model")), 65, "[compare.no_questions]")
        self.assertRegex(self.table(self.at("far-counts"), self.at("far-model"), "--form", "markdown").out, r"differ in context \(\w+ and \w+\)")

    def test_what_is_no_question_is_refused(self):
        good = [json.dumps(question) for question in self.questions[:4]]
        for number, (line, words) in enumerate((
                ("{", ["[json.invalid]"]), ('{"sentence_good": "a", "sentence_bad": "b"}', ["[questions.of_blimp]", "--task blimp"]), ('{"choices": ["a"]}', ["[questions.no_context]"]), ('{"context": "a"}', ["[questions.no_choices]"]),
                ('{"context": 1, "target": "a"}', ["[questions.no_text]"]), ('{"context": "a", "choices": []}', ["[questions.no_text]"]),
                ('{"contexts": ["a", "b"], "choices": ["c", "d"]}', ["[questions.two_lists]"]),
                ('{"context": "a", "choices": ["b", "c"], "answer": 2}', ["[questions.bad_answer]", "from 0 to 1"]),
                ('{"context": "a", "choices": ["b", "c"], "answer": "1"}', ["[questions.bad_answer]"]),
                ('{"context": "a", "target": "b", "task": ""}', ["[questions.bad_name]", '"task"']))):
            path = self.write("wrong.jsonl", "\n".join(good[:2] + [line] + good[2:]) + "\n")
            self.refused(65, words + ["wrong.jsonl:3"], ranks=2 * (number % 2), path=path)
        self.refused(65, ["[questions.none]"], path=self.write("none.jsonl", "\n\n"))
        self.refused(66, ["[file.missing]"], path=self.at("missing.jsonl"))
        for key in ("score.tokens", "score.entropy"):
            self.refused(78, ["[questions.other_key]", key], f"{key}=yes")
        self.refused(78, ["[config.exclusive_keys]"], f"score.corpus={self.at('train.h5')}")
        self.refused(78, ["[score.context_too_long]"], "score.context=100000")

    def refused(self, status, words, *keys, ranks=0, path=None):
        self.assert_error(self.result("refused", ranks, *keys, path=path), status, *words)
        self.assertFalse(os.path.exists(self.file("refused", "summary.json")))


if __name__ == "__main__":
    bagpipe_test.main()
