"""bagpipe-data card: the front matter by a YAML parser, figures as the runs' files have them, and what nobody told is an open question."""
import json
import os
import re
import shutil

import yaml

import bagpipe_test
from bagpipe_test import JobTest, metrics, program, read_json, run


class Card(JobTest):
    TEXT_BYTES = 60_000

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.at('a: "b" [c]|d')  # a name that neither YAML nor Markdown may take for its own
        cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.model}"])
        cls.must(["bagpipe", "score", cls.at("small.ini"), f"run.dir={cls.at('scored')}", f"score.model={cls.model}", f"score.corpus={cls.at('valid.h5')}"])
        cls.write("mail.txt", "write to a.b@mail.org\nor not\n")
        cls.must(["bagpipe-data", "pii", cls.at("mail.txt"), "--format", "lines", "--out", cls.at("pii")])

    def card(self, *arguments):
        """Its front matter, its sections, and all of it."""
        self.must(["bagpipe-data", "card", *arguments, "--out", self.at("card.md")])
        with open(self.at("card.md"), encoding="utf-8") as file:
            text = file.read()
        self.assertEqual(self.must(["bagpipe-data", "card", *arguments]).out.split("## ", 1)[1], text.split("## ", 1)[1])
        _, front, body = text.split("---\n", 2)
        sections = dict(part.split("\n", 1) for part in re.split(r"^##+ ", body, flags=re.M)[1:])
        return yaml.safe_load(front), sections, text

    @staticmethod
    def table(section):
        """Rows of two columns."""
        return dict((cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:3]) for line in section.splitlines() if line.startswith("| ") and "---" not in line)

    def test_what_a_run_left_is_in_its_card(self):
        front, sections, text = self.card(self.model, self.at("scored"), self.at("pii"))
        summary, record = read_json(self.at("scored"), "score", "summary.json"), read_json(self.model, "run.json")
        self.assertNotIn("license", front)
        self.assertNotIn("language", front)
        self.assertEqual((front["library_name"], front["pipeline_tag"], front["tags"], front["datasets"]), ("transformers", "text-generation", ["bagpipe", "gpt"], ["train"]))
        (index,) = front["model-index"]
        self.assertEqual(index["name"], os.path.basename(self.model))
        (result,) = index["results"]
        self.assertEqual((result["task"], result["dataset"]), ({"type": "text-generation"}, {"name": "valid", "type": "valid"}))
        values = {metric["type"]: metric["value"] for metric in result["metrics"]}
        self.assertEqual(set(values), {"perplexity", "bits_per_byte", "word_perplexity"})
        for name, value in values.items():
            self.assertIsInstance(value, (int, float))
            self.assertAlmostEqual(value / summary[name], 1, delta=1e-5)
        details, procedure, keys = self.table(sections["Model details"]), self.table(sections["Training procedure"]), self.table(sections["Hyperparameters"])
        self.assertEqual(details["parameters"].replace(",", ""), str(record["parameters"]))
        self.assertEqual(details["digest of the weights"], f"`{summary['model']['digest']}`")
        self.assertEqual((details["kind"], details["layers"], details["width"], details["step"]), ("gpt", "2", "32", "20"))
        self.assertEqual((procedure["steps"], procedure["tokens"].replace(",", "")), ("20", str(metrics(self.model)[-1]["tokens"])))
        self.assertEqual((keys["`optimizer.lr`"], keys["`train.batch`"], keys["`run.seed`"]), ("0.003", "8", "1"))
        self.assertFalse([key for key in keys if key.startswith(("`mask.", "`noise.", "`adapter.", "`distill."))])
        hours = sum(line["seconds"] for line in metrics(self.model)) / 3600
        shown = self.table(sections["Environmental impact"])["core hours of training steps"].split()[0]
        self.assertAlmostEqual(float(shown) / hours, 1, delta=0.01)
        corpus = self.table(sections["Training data"])
        found = self.must(["bagpipe-data", "inspect", self.at("train.h5")]).out
        self.assertIn(corpus["documents"], found)
        self.assertIn(corpus["XXH3-128 of the content"].strip("`"), found)
        self.assertEqual(corpus["files"], "train.txt")
        self.assertIn("E-mail addresses: 1 in 1 documents", sections["Personal data"])
        self.assertIn(f"{summary['perplexity']:.5g}", sections["Evaluation"])
        for question in ("Developed by", "License", "Language", "Intended use", "Bias and harm", "Training data", "Environment", "Citation"):
            self.assertIn(f"- **{question}", sections["Open questions"])
        self.assertNotIn("None", text)
        self.assertNotIn("nan", re.sub(r"[a-z]*nan[a-z]+|[a-z]+nan[a-z]*", "", text))

    def test_answers_of_people_leave_the_questions(self):
        front, sections, _ = self.card(self.model, "--license", "apache-2.0", "--language", "no")
        self.assertEqual((front["license"], front["language"]), ("apache-2.0", "no"))  # "no" is no boolean
        self.assertEqual(self.card(self.model, "--language", "de,no")[0]["language"], ["de", "no"])
        self.assertNotIn("**License", sections["Open questions"])
        self.assertNotIn("**Language", sections["Open questions"])
        self.assertIn("No scores were given", sections["Evaluation"])

    def test_a_corpus_that_is_gone_or_changed_is_named_by_its_hash(self):
        gone = self.at("gone")
        shutil.copytree(self.model, gone, symlinks=True)
        path = os.path.join(gone, "config.ini")
        with open(path, encoding="utf-8") as file:
            config = file.read()
        for other, words in ((self.at("none.h5"), "can't be read from here"), (self.at("valid.h5"), "have another content now")):
            with open(path, "w", encoding="utf-8") as file:
                file.write(config.replace(self.at("train.h5"), other))
            front, sections, _ = self.card(gone)
            self.assertNotIn("datasets", front)
            self.assertIn(words, sections["Training data"])
            self.assertIn(read_json(gone, "run.json")["identities"]["corpus.train"], sections["Training data"])

    def test_a_step_folder_and_a_copy_without_its_run(self):
        front, sections, _ = self.card(os.path.join(self.model, "checkpoints", "step-000000000020"))
        self.assertEqual(front["datasets"], ["train"])
        shutil.copytree(os.path.join(self.model, "checkpoints", "step-000000000020"), self.at("alone"))
        front, sections, _ = self.card(self.at("alone"), self.at("scored"))
        self.assertIn("model-index", front)
        self.assertIn("not trained by a run of bagpipe that is here", sections["Training procedure"])
        self.assertIn("**Training**: how was it trained", sections["Open questions"])

    def test_an_ensemble_and_a_task(self):
        self.must(["bagpipe", "ensemble", self.at("small.ini"), f"run.dir={self.at('bag')}", "ensemble.members=2", "train.steps=5"])
        self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={self.at('bag-scored')}", f"score.model={self.at('bag')}", f"score.corpus={self.at('valid.h5')}"])
        front, sections, _ = self.card(self.at("bag"), self.at("bag-scored"))
        self.assertEqual((front["tags"], front["library_name"]), (["bagpipe", "gpt", "ensemble"], "bagpipe"))
        self.write("beginnings.txt", "The\nA\n")  # a report of the whole ensemble, beside another model's
        for name, model in (("alone-texts", self.model), ("bag-texts", self.at("bag"))):
            self.must(["bagpipe", "generate", self.at("small.ini"), f"run.dir={self.at(name)}", f"generate.model={model}", f"generate.prompts={self.at('beginnings.txt')}", "generate.tokens=5"])
        outputs = ["--outputs", self.at("alone-texts"), "--outputs", self.at("bag-texts")]
        self.must(["bagpipe-data", "leakage", "measure", self.at("train.h5"), *outputs, "--out", self.at("bag-leakage")])
        for model in (self.model, self.at("bag")):
            self.assertIn("bag-texts: of", self.card(model, self.at("bag-leakage"))[2])
        self.must(["bagpipe-data", "leakage", "measure", self.at("train.h5"), *outputs[:2], "--out", self.at("alone-leakage")])
        result = run([program("bagpipe-data"), "card", self.at("bag"), self.at("alone-leakage")], 0)
        self.assertIn("[card.other_model]", result.err)
        self.assertIn("2; what follows is of each", self.table(sections["Model details"])["members"])
        both = []
        for k in range(2):
            with open(self.at(f"bag/members/m0{k}/metrics.jsonl"), encoding="utf-8") as file:
                both.append(json.loads(file.read().splitlines()[-1])["tokens"])
        procedure = self.table(sections["Training procedure"])  # what both took, not one of them
        self.assertEqual(procedure["tokens"], f"{sum(both):,} (all members together)")
        self.assertIn("(all members together)", procedure["hours of training steps"])
        self.assertIn(read_json(self.at("bag/members/m00"), "run.json")["cpu"], sections["Environmental impact"])
        self.assertEqual(len(front["model-index"][0]["results"]), 1)
        with open(self.at("valid.txt"), encoding="utf-8") as file:
            lines = [line for line in file.read().splitlines() if line][:40]
        self.write("task.jsonl", "".join(json.dumps({"text": line, "kind": "short" if len(line) < 70 else "long"}) + "\n" for line in lines))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--label", "kind", "--out", self.at("task.h5"), self.at("task.jsonl")])
        self.must(["bagpipe", "finetune", self.at("small.ini"), f"run.dir={self.at('task')}", f"model.init={self.model}", f"corpus.train={self.at('task.h5')}", "corpus.valid=", "task.kind=classes", "task.label=kind", "train.steps=4"])
        self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={self.at('task-scored')}", f"score.model={self.at('task')}", f"score.corpus={self.at('task.h5')}"])
        front, sections, _ = self.card(self.at("task"), self.at("task-scored"))
        self.assertEqual(front["pipeline_tag"], "text-classification")
        values = {metric["type"]: metric["value"] for metric in front["model-index"][0]["results"][0]["metrics"]}
        task = read_json(self.at("task-scored"), "score", "summary.json")["task"]
        self.assertAlmostEqual(values["accuracy"], task["accuracy"]["value"], places=5)
        self.assertIn("`task.kind`", sections["Hyperparameters"])

    def test_generated_texts_have_their_figures(self):
        self.write("starts.txt", "The\nA man\n")
        self.write("meant.txt", "of the sea\nwas there\n")
        generate = ["bagpipe", "generate", self.at("small.ini"), f"generate.model={self.model}", f"generate.prompts={self.at('starts.txt')}", "generate.tokens=5"]
        self.must([*generate, f"run.dir={self.at('made')}", f"generate.references={self.at('meant.txt')}"])
        figures = read_json(self.at("made"), "generate", "summary.json")["figures"]
        front, _, text = self.card(self.model, self.at("made"))
        values = {metric["type"]: metric["value"] for metric in front["model-index"][0]["results"][0]["metrics"]}
        self.assertAlmostEqual(values["bleu"], figures["bleu"]["value"], places=4)
        self.assertEqual({metric["name"] for metric in front["model-index"][0]["results"][0]["metrics"]}, {"BLEU (greedy)", "chrF2 (greedy)"})
        self.assertIn("against their references, with 95 % intervals", text)
        self.must([*generate, f"run.dir={self.at('made-bare')}"])
        self.assertIn("[card.no_references]", run([program("bagpipe-data"), "card", self.model, self.at("made-bare")], 0).err)

    def test_a_command_with_backticks_is_no_markup(self):
        self.must(["bagpipe-data", "pii", self.at("mail.txt"), "--out", self.at("r`<b>``x`")])
        for subject in (self.model, self.at("train.h5")):
            _, _, text = self.card(subject, self.at("r`<b>``x`"))
            line = next(line for line in text.splitlines() if line.startswith("Written by "))
            fence, code = re.match(r"Written by (`+) (.*?) \1(?!`)", line).groups()
            self.assertEqual(fence, "```")
            self.assertTrue("bagpipe-data card " in code and code.endswith("--out " + self.at("card.md")), line)

    def test_a_data_sheet(self):
        import h5py
        self.write("sheet.jsonl", "".join(json.dumps({"text": text, "genre": genre}) + "\n" for text, genre in (("one two", "a|b"), ("three", "x"), ("one two", "x"), ("one two", ""))) + "bad\n")
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--label", "genre", "--skip-bad", "1", "--out", self.at("sheet.h5"), self.at("sheet.jsonl")])
        front, sections, text = self.card(self.at("sheet.h5"), self.at("pii"))
        self.assertEqual((front["pretty_name"], front["size_categories"]), ("sheet.h5", ["n<1K"]))
        composition = self.table(sections["Composition"])
        with h5py.File(self.at("sheet.h5")) as file:
            self.assertEqual((composition["documents"], composition["tokens"], composition["bytes of text"]), ("4", str(len(file["tokens"])), str(int(file["doc_bytes"][:].sum()))))
        self.assertEqual(composition["duplicates"].split()[0], "2")
        self.assertIn("a\\|b", sections["Label genre"])
        self.assertEqual(self.table(sections["Collection"])["bad lines and documents left out"], "1")
        self.assertIn("**Motivation**", sections["Open questions"])
        self.assertIn("in 2 documents of mail.txt: ", text)

    def test_a_report_of_another_corpus_is_refused(self):
        for name, word in (("one", "a"), ("two", "b")):
            self.write(f"{name}.txt", f"{word} jane@gmail.com\n" * 3)
            self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "lines", "--out", self.at(f"{name}.h5"), self.at(f"{name}.txt")])
            self.must(["bagpipe-data", "pii", self.at(f"{name}.h5"), "--out", self.at(f"pii-{name}")])
        self.write("words.txt", "jane\n")
        self.must(["bagpipe-data", "toxicity", self.at("two.h5"), "--words", self.at("words.txt"), "--out", self.at("words-two")])
        self.must(["bagpipe-data", "pii", self.at("one.txt"), "--out", self.at("pii-text")])
        for other in ("pii-two", "words-two"):
            result = run([program("bagpipe-data"), "card", self.at("one.h5"), self.at(other)])
            self.assertEqual((result.status, len(result.lines("error"))), (65, 1), result)
            self.assertIn("[card.other_corpus]", result.err)
        result = self.must(["bagpipe-data", "card", self.at("one.h5"), self.at("pii-one"), self.at("pii-text")])
        self.assertEqual(result.err.count("[card.not_compared]"), 1)
        self.must(["bagpipe-data", "card", self.at("two.h5"), self.at("pii-two"), self.at("words-two")])

    def test_bad_input(self):
        self.must(["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={self.at('other')}", "run.seed=2", "train.steps=1"])
        self.write("report.json", '{"report": "pii", "format_version": 9}')
        self.write("no-report.json", '{"report": "x", "format_version": 1}')
        for arguments, status, identifier in (
                (["--license", "mit"], 64, "command.no_input"), ([self.model, "--license", "a b"], 64, "command.bad_value"), ([self.at("none")], 66, None), ([self.at("scored")], 65, "card.no_model"),
                ([self.at("other"), self.at("scored")], 65, "card.other_model"), ([self.model, self.at("none")], 66, "file.missing"), ([self.model, self.at("other")], 65, "card.no_results"),
                ([self.model, self.at("report.json")], 65, "report.version"), ([self.model, self.at("no-report.json")], 65, "report.unknown"), ([self.at("train.h5"), "--out", self.at("train.h5")], 64, "command.same_output")):
            for ranks in (0, 2):
                result = run([program("bagpipe-data"), "card", *arguments], ranks)
                self.assertEqual(result.status, status, result)
                self.assertEqual(len(result.lines("error")), 1, result)
                if identifier:
                    self.assertIn(f"[{identifier}]", result.err)


if __name__ == "__main__":
    bagpipe_test.main()
