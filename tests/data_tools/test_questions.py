"""bagpipe-data questions: of each task the prompts written out by hand as lm-evaluation-harness has them, examples as Python's own random draws
them, and what is refused."""
import gzip
import json
import random

import bagpipe_test
from bagpipe_test import FolderTest, program, run


def lines_of(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


class Questions(FolderTest):
    def made(self, task, files, *more):
        """The questions of files {name: rows or text}; of `more` the files of examples are there already."""
        for name, rows in files.items():
            self.write(name, rows if isinstance(rows, str) else lines_of(rows))
        self.must(["bagpipe-data", "questions", "--task", task, "--out", self.at("q.jsonl"), *more, *[self.at(name) for name in files]])
        with open(self.at("q.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def refused(self, status, task, text, *words, more=(), name="bad.jsonl"):
        path = self.write(name, text if isinstance(text, str) else lines_of(text))
        out = self.at("refused.jsonl")
        result = run([program("bagpipe-data"), "questions", "--task", task, "--out", out, *more, path])
        self.assert_error(result, status, *words)
        with self.assertRaises(FileNotFoundError):
            open(out, encoding="utf-8").close()

    # ---- each task ----

    def test_lambada_asks_for_the_last_word(self):
        rows = [{"text": "She saw the dog bark"}, {"text": "Word"}, {"text": "two  blanks"}, {"text": "it ends. "}, {"text": "größer ist „weiß“"}]
        expected = [("She saw the dog", " bark"), ("", " Word"), ("two ", " blanks"), ("it ends.", " "), ("größer ist", " „weiß“")]
        made = self.made("lambada", {"lambada_test_en.jsonl": rows})
        self.assertEqual(made, [{"task": "lambada_openai", "id": k, "context": context, "target": target} for k, (context, target) in enumerate(expected)])
        self.assertEqual({line["task"] for line in self.made("lambada_standard", {"x.jsonl": rows})}, {"lambada_standard"})

    def test_pairs_of_blimp_follow_a_blank(self):
        row = {"sentence_good": "Who goes?", "sentence_bad": "Who go?", "field": "syntax", "linguistics_term": "agreement", "UID": "wh_x", "pairID": "7"}
        other = {"sentence_good": "ä b", "sentence_bad": " "}
        expected = [{"task": "blimp_wh_x", "id": "7", "context": " ", "choices": ["Who goes?", "Who go?"], "answer": 0, "group": "agreement"},
                    {"task": "blimp_tough_x", "id": 1, "context": " ", "choices": ["ä b", " "], "answer": 0}]
        self.assertEqual(self.made("blimp", {"tough_x.jsonl": [row, other]}), expected)

    def test_texts_of_hellaswag_are_cleaned(self):
        rows = [{"ind": 24, "activity_label": "Roof shingle removal", "ctx_a": "A man is sitting on a roof.", "ctx_b": "he",
                 "endings": ["is using wrap. [step] Go  on", "[substeps] is ripping  tiles.", " ", "a [b] c [d\ne] [f"], "label": 3,
                 "split_type": "indomain"},
                {"activity_label": "Cars [x]", "ctx_a": "[header] How to [title] Drive [title] far", "ctx_b": "ÉCOUTE Bob ΟΔΟΣ", "endings": ["", "ß"], "label": "1"},
                {"activity_label": "", "ctx_a": "", "ctx_b": "", "endings": ["a", "b"], "label": ""}]
        expected = [{"task": "hellaswag", "id": 24, "context": "Roof shingle removal: A man is sitting on a roof. He ",
                     "choices": ["is using wrap. Go on", " is ripping tiles.", "", "a c [d\ne] [f"], "answer": 3, "group": "indomain"},
                    {"task": "hellaswag", "id": 1, "context": "Cars : How to. Drive. far Écoute bob οδος ", "choices": ["", "ß"], "answer": 1},
                    {"task": "hellaswag", "id": 2, "context": ": ", "choices": ["a", "b"]}]
        self.assertEqual(self.made("hellaswag", {"hellaswag_val.jsonl": rows}), expected)

    def test_winogrande_has_two_contexts(self):
        rows = [{"qID": "3-1", "sentence": "Ann likes Bea because _ is kind.", "option1": "Ann", "option2": "Bea", "answer": "2"},
                {"sentence": "So _", "option1": "a", "option2": "ü ", "answer": ""},
                {"sentence": "_ and _ fit . ", "option1": "A", "option2": "", "answer": "1"}]
        expected = [{"task": "winogrande", "id": "3-1", "contexts": ["Ann likes Bea because Ann ", "Ann likes Bea because Bea "], "target": "is kind.", "answer": 1},
                    {"task": "winogrande", "id": 1, "contexts": ["So a ", "So ü  "], "target": ""},
                    {"task": "winogrande", "id": 2, "contexts": ["A ", " "], "target": "and _ fit .", "answer": 0}]
        self.assertEqual(self.made("winogrande", {"dev.jsonl": rows}), expected)

    def test_arc_and_openbookqa_have_labelled_choices(self):
        choices = [{"text": "ice", "label": "A"}, {"text": "", "label": "B"}, {"text": " ", "label": "C"}]
        published = {"id": "M_1", "question": {"stem": "What melts?", "choices": choices}, "answerKey": "C"}
        columns = {"id": "M_2", "question": "Wie heißt\nes?", "choices": {"text": ["x", "y"], "label": ["1", "2"]}, "answerKey": "1"}
        expected = [{"task": "arc_challenge", "id": "M_1", "context": "Question: What melts?\nAnswer: ", "choices": ["ice", "", " "], "answer": 2},
                    {"task": "arc_challenge", "id": "M_2", "context": "Question: Wie heißt\nes?\nAnswer: ", "choices": ["x", "y"], "answer": 0}]
        self.assertEqual(self.made("arc", {"ARC-Challenge-Test.jsonl": [published, columns]}), expected)
        self.assertEqual(self.made("arc", {"ARC-Easy-Dev.jsonl": [published]}), [dict(expected[0], task="arc_easy")])
        self.assertEqual(self.made("arc_easy", {"mine.jsonl": [published]}), [dict(expected[0], task="arc_easy")])
        self.refused(64, "arc", [published], "easy challenge", "[questions.no_part]")
        rows = [dict(published, answerKey=" B"), {"question_stem": "Ice", "choices": columns["choices"], "answerKey": ""}]
        self.assertEqual(self.made("openbookqa", {"test.jsonl": rows}),
                         [{"task": "openbookqa", "id": "M_1", "context": "What melts? ", "choices": ["ice", "", " "], "answer": 1},
                          {"task": "openbookqa", "id": 1, "context": "Ice ", "choices": ["x", "y"]}])

    def test_labels_of_piqa_are_beside(self):
        rows = [{"goal": "Cut paper", "sol1": "scissors", "sol2": "spoon"}, {"goal": "", "sol1": "é", "sol2": ""}]
        expected = [{"task": "piqa", "id": 0, "context": "Question: Cut paper\nAnswer: ", "choices": ["scissors", "spoon"]},
                    {"task": "piqa", "id": 1, "context": "Question: \nAnswer: ", "choices": ["é", ""]}]
        self.assertEqual(self.made("piqa", {"tests.jsonl": rows}), expected)
        self.write("valid-labels.lst", "0\n1\n")
        answered = [dict(question, answer=k) for k, question in enumerate(expected)]
        self.assertEqual(self.made("piqa", {"valid.jsonl": rows}), answered)
        self.assertEqual(self.made("piqa", {"own.jsonl": [dict(row, label=k) for k, row in enumerate(rows)]}), answered)
        self.refused(65, "piqa", rows + rows, "valid.jsonl:3", "[questions.no_label]", name="valid.jsonl")
        self.refused(65, "piqa", rows[:1], "valid.jsonl", "[questions.more_labels]", name="valid.jsonl")

    def test_boolq_and_copa_of_superglue(self):
        rows = [{"question": "is ice cold", "passage": "Ice is frozen.", "idx": 5, "label": True}, {"question": "", "passage": "", "answer": False},
                {"question": "x", "passage": "y", "idx": 9, "label": -1}]
        expected = [{"task": "boolq", "id": 5, "context": "Ice is frozen.\nQuestion: is ice cold?\nAnswer: ", "choices": ["no", "yes"], "answer": 1},
                    {"task": "boolq", "id": 1, "context": "\nQuestion: ?\nAnswer: ", "choices": ["no", "yes"], "answer": 0},
                    {"task": "boolq", "id": 9, "context": "y\nQuestion: x?\nAnswer: ", "choices": ["no", "yes"]}]
        self.assertEqual(self.made("boolq", {"val.jsonl": rows}), expected)
        rows = [{"premise": " My body cast a shadow. ", "choice1": "The sun rose.", "choice2": "É.", "question": "cause", "label": 1, "idx": 4},
                {"premise": "Tür…", "choice1": "Same", "choice2": "same", "question": "effect", "label": 1},
                {"premise": "", "choice1": "İx", "choice2": " ", "question": "effect"}]
        expected = [{"task": "copa", "id": 4, "context": "My body cast a shadow because ", "choices": [" the sun rose.", " é."], "answer": 1},
                    {"task": "copa", "id": 1, "context": "Tür therefore ", "choices": [" same", " same"], "answer": 0},
                    {"task": "copa", "id": 2, "context": " therefore ", "choices": [" i̇x", "  "]}]
        self.assertEqual(self.made("copa", {"val.jsonl": rows}), expected)

    def test_mmlu_is_csv_with_a_subject(self):
        text = '"Which\n""one""?  ",a,"b, c",,ü,D\r\n\r\n What? ,1,2,3,4,A'
        head = "The following are multiple choice questions (with answers) about high school biology.\n\n"
        expected = [{"task": "mmlu_high_school_biology", "id": 0, "group": "mmlu_stem", "choices": ["A", "B", "C", "D"], "answer": 3,
                     "context": head + 'Which\n"one"?\nA. a\nB. b, c\nC. \nD. ü\nAnswer: '},
                    {"task": "mmlu_high_school_biology", "id": 1, "group": "mmlu_stem", "choices": ["A", "B", "C", "D"], "answer": 0,
                     "context": head + "What?\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer: "}]
        self.assertEqual(self.made("mmlu", {"high_school_biology_test.csv": text}), expected)
        row = {"question": "What?", "subject": "high_school_biology", "choices": ["1", "2", "3", "4"], "answer": 0}
        self.assertEqual(self.made("mmlu", {"all.jsonl": [row]}), [dict(expected[1], id=0)])
        self.assertIn("\n\n{x}\nA. ", self.made("mmlu", {"anatomy_test.csv": "{x},a,b,c,d,A\n"})[0]["context"])
        self.assertEqual([line.get("group") for line in self.made("mmlu", {"biology_test.csv": text, "anatomy_test.csv": text})], [None, None, "mmlu_stem", "mmlu_stem"])
        self.write("high_school_biology_dev.csv", 'One?,a,b,c,d,B\nTwo?,a,b,c,d,C\n')
        self.write("anatomy_dev.csv", 'Bone?,a,b,c,d,B\n')
        made = self.made("mmlu", {"high_school_biology_test.csv": text, "anatomy_test.csv": text}, "--shots", 1, "--from", self.at("anatomy_dev.csv"), "--from",
                         self.at("high_school_biology_dev.csv"))
        self.assertEqual(made[1]["context"], head + "One?\nA. a\nB. b\nC. c\nD. d\nAnswer: B\n\nWhat?\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer: ")
        self.assertIn("about anatomy.\n\nBone?\nA. a\nB. b\nC. c\nD. d\nAnswer: B\n\nWhich\n", made[2]["context"])

    # ---- examples ----

    def drawn(self, task, rows, pool, shots, seed, *files):
        """The numbers of the examples of each question, whose goals are "gN"."""
        self.write("train.jsonl", lines_of(pool))
        made = self.made(task, {"asked.jsonl": rows}, "--shots", shots, "--seed", seed, "--from", self.at("train.jsonl"))
        return [[int(part.split("\n")[0]) for part in question["context"].split("Question: g")[1:-1]] for question in made]

    def test_examples_are_those_that_python_draws(self):
        sizes = [(1, 2), (3, 21), (4, 22), (5, 9), (5, 4000), (6, 80), (6, 86), (25, 277), (25, 278), (70, 100)]
        for seed, (shots, size) in zip([0, 1, 1234, 2**32 - 1, 2**32 + 5, 2**63 - 1] * 2, sizes):
            pool = [{"goal": f"g{k}", "sol1": "x", "sol2": "y", "label": k % 2} for k in range(size)]
            asked = [dict(pool[k]) for k in (0, size // 2)] + [{"goal": "g-1", "sol1": "x", "sol2": "y", "label": 0}] * 40
            generator, expected = random.Random(seed), []
            for row in asked:  # one more is drawn, and the question itself left out
                expected.append([k for k in generator.sample(range(size), shots + 1) if pool[k] != row][:shots])
            self.assertEqual(self.drawn("piqa", asked, pool, shots, seed), expected, (seed, shots, size))

    def test_examples_of_arc_are_drawn_without_one_more(self):
        pool = [{"question": f"g{k}", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "AB"[k % 2]} for k in range(50)]
        generator = random.Random(1234)
        self.assertEqual(self.drawn("arc_easy", pool[:20], pool, 3, 1234), [generator.sample(range(50), 3) for _ in range(20)])

    def test_an_example_is_a_context_a_blank_and_the_answer(self):
        self.write("more.jsonl", lines_of([{"goal": "g", "sol1": "", "sol2": "c", "label": 0}]))
        self.write("train.jsonl", lines_of([{"sentence": "So _", "option1": "a", "option2": "b", "answer": "2"},
                                            {"sentence": "So _", "option1": "a", "option2": "b", "answer": "2"}]))
        row = {"sentence": "X _ is.", "option1": "a", "option2": "b", "answer": "1"}
        made = self.made("winogrande", {"dev.jsonl": [row]}, "--shots", 1, "--from", self.at("train.jsonl"))
        self.assertEqual(made[0]["contexts"], ["So bX a ", "So bX b "])  # an empty target has no end, in the harness either
        self.write("train.jsonl", lines_of([{"goal": "g", "sol1": "", "sol2": "b", "label": 0}]))
        made = self.made("piqa", {"valid.jsonl": [{"goal": "h", "sol1": "x", "sol2": "y"}]}, "--shots", 1, "--from", self.at("more.jsonl"), "--from", self.at("train.jsonl"))
        self.assertEqual(made[0]["context"], "Question: g\nAnswer: \n\nQuestion: h\nAnswer: ")  # an empty choice has one
        self.write("train.jsonl", lines_of([row] + [dict(row, sentence="Y _ was.", answer="2")]))
        made = self.made("winogrande", {"dev.jsonl": [row]}, "--shots", 1, "--from", self.at("train.jsonl"))
        self.assertEqual(made[0]["contexts"], ["Y b was.\n\nX a ", "Y b was.\n\nX b "])
        self.assertEqual(made[0]["target"], "is.")
        self.write("train.jsonl", lines_of([{"text": "a b c"}]))
        made = self.made("lambada", {"test.jsonl": [{"text": "d e"}]}, "--shots", 1, "--from", self.at("train.jsonl"))
        self.assertEqual((made[0]["context"], made[0]["target"]), ("a b  c\n\nd", " e"))
        copa = {"premise": "P.", "choice1": "A.", "choice2": "B.", "question": "cause", "label": 1}
        self.write("train.jsonl", lines_of([copa, dict(copa, premise="Q.")]))
        made = self.made("copa", {"val.jsonl": [copa]}, "--shots", 1, "--from", self.at("train.jsonl"))
        self.assertEqual(made[0]["context"], "Q because  b.\n\nP because ")

    # ---- inputs ----

    def test_compressed_files_and_marks_are_read(self):
        rows = lines_of([{"text": "a b"}])
        with gzip.open(self.at("x.jsonl.gz"), "wt", encoding="utf-8") as file:
            file.write("\ufeff" + rows + "\n\r\n")
        self.assertEqual(self.made("lambada", {}, self.at("x.jsonl.gz")), self.made("lambada", {"x.jsonl": rows}))

    def test_what_is_wrong_is_named(self):
        good = {"goal": "a", "sol1": "x", "sol2": "y", "label": 0}
        for bad, words in ((dict(good, label=2), "[questions.wrong_answer]"), (dict(good, label="left"), "[questions.wrong_answer]"),
                           (dict(good, sol2=None), "[questions.no_field]"), ({"goal": "a"}, "[questions.no_field]"), ([], "[questions.no_row]")):
            self.refused(65, "piqa", [good, bad], "bad.jsonl:2", words)
        self.refused(65, "piqa", "{\n", "bad.jsonl:1", "[json.invalid]")
        self.refused(65, "piqa", '{"goal": "\\ud800", "sol1": "x", "sol2": "y"}\n', "bad.jsonl:1", "[json.invalid]")
        self.refused(65, "piqa", "\n", "[questions.no_rows]")
        self.refused(65, "winogrande", [{"sentence": "x", "option1": "a", "option2": "b"}], "bad.jsonl:1", "[questions.no_blank]")
        self.refused(65, "copa", [{"premise": "x", "choice1": "", "choice2": "b", "question": "cause"}], "bad.jsonl:1", "[questions.empty]")
        self.refused(65, "copa", [{"premise": "x", "choice1": "a", "choice2": "b", "question": "why"}], "bad.jsonl:1", "[questions.no_field]")
        self.refused(65, "hellaswag", [{"activity_label": "a", "ctx_a": "b", "ctx_b": "c", "endings": [1]}], "bad.jsonl:1", "[questions.no_field]")
        self.refused(65, "hellaswag", [{"activity_label": "a", "ctx_a": "b", "ctx_b": "c"}], "bad.jsonl:1", "[questions.no_field]")
        choices = {"text": ["x"], "label": ["A"]}
        self.refused(65, "openbookqa", [{"question": "x", "choices": choices, "answerKey": "B"}], "bad.jsonl:1", "[questions.wrong_answer]")
        self.refused(65, "mmlu", 'q,"a\n",b,c,d,A\nq,a,b,c,A\n', "bad.csv:3", "[questions.bad_row]", name="bad.csv")
        self.refused(65, "mmlu", 'q,a,b,c,d,A\nq,"a,b,c,d,A\n', "bad.csv:2", "[questions.open_quote]", name="bad.csv")
        self.refused(65, "mmlu", "q,a,b,c,d,E\n", "bad.csv:1", "[questions.wrong_answer]", name="bad.csv")

    def test_examples_must_be_there(self):
        row = {"goal": "a", "sol1": "x", "sol2": "y"}
        few = self.write("few.jsonl", lines_of([dict(row, label=0)] * 3))
        self.refused(65, "piqa", [dict(row, goal="b")], "--shots 3", "[questions.few_examples]", more=["--shots", "3", "--from", few])
        self.refused(65, "piqa", [dict(row, label=0)], "[questions.few_examples]", more=["--shots", "1", "--from", few])
        self.refused(65, "piqa", [row], "[questions.no_answer]", more=["--shots", "1", "--from", self.write("bare.jsonl", lines_of([row, dict(row, goal="b")]))])
        self.refused(65, "arc_easy", [{"question": "x", "choices": {"text": ["x"], "label": ["A"]}, "answerKey": "A"}], "few.jsonl:1", more=["--shots", "1", "--from", few])
        self.refused(64, "piqa", [row], "[command.needs_from]", more=["--shots", "1"])
        self.refused(64, "piqa", [row], "[command.needs_from]", more=["--from", few])
        self.refused(64, "blimp", [row], "[command.no_shots]", more=["--shots", "1", "--from", few])
        self.refused(64, "nothing", [row], "[questions.no_task]")
        self.refused(64, "piqa_easy", [row], "[questions.no_task]")
        path = self.write("same.jsonl", lines_of([row]))
        self.assert_error(run([program("bagpipe-data"), "questions", "--task", "piqa", "--out", path, path]), 64, "[command.same_output]")
        self.assert_error(run([program("bagpipe-data"), "questions", "--task", "piqa", path]), 64, "[command.no_input]")
        self.assert_error(run([program("bagpipe-data"), "questions", "--task", "piqa", "--out", self.at("o"), self.at("missing")]), 66, "[file.missing]")


if __name__ == "__main__":
    bagpipe_test.main()
