"""What people type who know other programs: keys and jobs by other names, text where a corpus is wanted."""
import gzip
import json
import os
import re
import subprocess

import bagpipe_test
from bagpipe_test import HERE, JobTest, program, run

TREE = os.path.join(HERE, "..", "..")


def rows(path, fields):
    """The rows of a C table of strings and NULLs."""
    with open(os.path.join(TREE, path), encoding="ascii") as file:
        text = file.read()
    names = dict(re.findall(r'#define (\w+) +"(.*)"', text))
    cell = r'(NULL|\w+|(?:"[^"]*"\s*)+)'
    found = re.findall(r"\{" + r",\s*".join([cell] * fields) + r"\}", text)
    clean = [[None if c == "NULL" else names.get(c) or "".join(re.findall(r'"([^"]*)"', c)) for c in row] for row in found]
    return [row for row in clean if row[0]]


def keys_of_all_jobs():
    found = set()
    for job in ("pretrain", "ensemble", "score", "generate", "uncertainty", "bench"):
        out = run([program("bagpipe"), job, "--help"]).out
        found.update(re.findall(r"^ +([a-z]+\.[a-z0-9_]+)\b", out, re.M))
    return found


class Words(JobTest):
    def check(self, *keys, job="pretrain"):
        return run([program("bagpipe"), "check", job, self.at("small.ini"), "run.dir=x"] + list(keys))

    def test_every_word_names_keys_that_exist(self):
        known, table = keys_of_all_jobs(), rows("src/base/config/config_words.c", 3)
        self.assertGreater(len(known), 80)
        words = {}
        table = [(word, keys, note) for row, keys, note in table for word in row.split()]
        self.assertGreater(len(table), 200)
        for word, keys, note in table:
            exist = set((keys or "").split()) <= known
            if exist and word not in words:
                words[word] = (keys, note)
            self.assertEqual(word, word.lower())
        self.assertEqual({word for word, keys, _ in table if word not in words}, set())
        given = [f"{word if '.' in word else 'any.' + word}=1" for word in sorted(words)]
        given = [key for key in given if key.split("=")[0] not in known]
        for first in range(0, len(given), 20):  # so many faults are reported at once
            part = given[first:first + 20]
            result = self.check(*part)
            self.assertEqual(result.status, 78, str(result))
            for key in part:
                name = key.split("=")[0]
                keys, note = words[name] if name in words else words[name[4:]]
                line = next(line for line in result.lines("error") if f" {name}: " in line and line.endswith("[config.unknown_key]"))
                for expected in (keys or "").split():
                    self.assertRegex(line, rf"\b{re.escape(expected)}\b", line)
                self.assertTrue(keys or note in line, line)

    def test_words_of_the_field_in_any_section_and_none(self):
        expected = {"learning_rate": "optimizer.lr", "batch_size": "train.batch", "hidden_size": "model.width", "n_layer": "model.layers",
                    "num_heads": "model.heads", "max_steps": "train.steps", "block_size": "model.context", "output_dir": "run.dir",
                    "train_file": "corpus.train", "validation_file": "corpus.valid", "tp": "mesh.tensor", "save_steps": "checkpoint.every",
                    "max_grad_norm": "optimizer.clip", "warmup_steps": "optimizer.warmup", "bf16": "math.precision"}
        for word, key in expected.items():
            for name in (word, f"train.{word}", f"optimizer.{word.upper()}", word.replace("_", "-")):
                self.assert_error(self.check(f"{name}=1"), 78, "[config.unknown_key]", key)
        path = self.write("words.ini", "learning_rate = 1\n[training]\nnum_train_epochs = 2\n")
        result = run([program("bagpipe"), "check", "pretrain", path])
        first, second = [line for line in result.lines("error") if line.endswith("[config.unknown_key]")]
        self.assert_words([first], ("words.ini:1", "optimizer.lr"), first)
        self.assertRegex(second, r"words.ini:3.*train\.(epochs|steps)")

    def test_scores_take_their_own_meaning(self):
        for key, expected in (("score.dataset", "score.corpus"), ("score.checkpoint", "score.model"), ("score.max_length", "score.context")):
            result = self.check(f"{key}=1", "score.model=x", f"score.corpus={expected}", job="score")
            self.assert_error(result, 78, "[config.unknown_key]", f"use {expected} ")

    def test_words_of_programs_that_generate(self):
        for word, key in (("lenpen", "generate.length_penalty"), ("max_new_tokens", "generate.tokens"), ("num_beams", "generate.beams"), ("num_return_sequences", "generate.samples")):
            result = self.check(f"generate.{word}=1", "generate.model=x", "generate.prompts=x", job="generate")
            self.assert_error(result, 78, "[config.unknown_key]", f"use {key}")
        self.assert_error(self.check("train.bsz=1"), 78, "[config.unknown_key]", "train.batch")

    def test_misspelled_keys_still_name_the_nearest(self):
        for key, expected in (("model.widht", "model.width"), ("train.stesp", "train.steps"), ("mesh.tensro", "mesh.tensor")):
            self.assert_error(self.check(f"{key}=1"), 78, "[config.unknown_key]", expected)
        # not optimizer.momentum, which is a key of trainings
        result = self.check("uncertainty.momentum=1", "uncertainty.models=a=b", "uncertainty.in_domain=c", job="uncertainty")
        self.assert_error(result, 78, "[config.unknown_key]", "the nearest is uncertainty.")

    def test_of_very_many_choices_a_near_one_is_named(self):
        self.assert_error(self.check("model.kind=lama"), 78, "[config.bad_value]", "the nearest is llama, and --help lists all")
        far = self.check("model.kind=kenlm")  # elmo would not help
        self.assert_error(far, 78, "[config.bad_value]", "; --help lists all")
        self.assertNotIn("nearest", far.err)

    def test_every_word_for_a_job_names_one_that_exists(self):
        table, commands, seen = rows("jobs/words.c", 3), {}, set()
        self.assertGreater(len(table), 40)
        for word, command, note in table:
            if command and command not in commands:
                parts = command.split() if " " in command else ["bagpipe", command]
                commands[command] = run([program(parts[0])] + parts[1:] + ["--help"]).status == 0
            if word in seen or (command and not commands[command]):
                continue
            seen.add(word)
            result = run([program("bagpipe"), word])
            if word == command and commands[command]:
                continue  # a job of this version
            self.assert_error(result, 64, "[command.unknown_job]", command or note)
        self.assertEqual({word for word, command, _ in table if word not in seen}, set())

    def test_jobs_by_other_names(self):
        for word, expected in (("train", "bagpipe pretrain"), ("Eval", "bagpipe score"), ("perplexity", "bagpipe score"), ("bagging", "bagpipe ensemble"),
                               ("tokenizer", "bagpipe-data tokenizer"), ("pretrian", "pretrain")):
            result = run([program("bagpipe"), word])
            self.assert_error(result, 64, "[command.unknown_job]", expected)

    # ---- text where a corpus is wanted ----

    def refused(self, path, *keys, job="pretrain", status=65):
        for ranks in (0, 2):
            result = run([program("bagpipe"), job, self.at("small.ini"), f"run.dir={self.at('refused')}"] + list(keys), ranks)
            self.assertEqual(result.status, status, str(result))
            lines = [line for line in result.err.split("\n") if line.startswith(f"bagpipe: error[{status}]: ")]
            self.assertEqual(len(lines), 1, str(result))
            self.assertIn(path, lines[0])
            self.assertFalse(os.path.exists(self.at("refused")))
        return lines[0]

    def made_by(self, line):
        """Do what the message says, with the corpora's own tokenizer; the corpus that comes of it."""
        command = re.search(r"(bagpipe-data corpus .*?) \(", line)[1]
        self.assertIn("--tokenizer tokenizer.json", command)
        done = subprocess.run(["sh", "-c", f"PATH={os.path.abspath(bagpipe_test.options['bin'])}:$PATH; cd {self.folder} && {command}"], capture_output=True,
                              text=True, env=bagpipe_test.environment(), check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return re.search(r"--out (\S+)", command)[1]

    def test_text_as_a_corpus_names_the_tool_with_a_command_that_works(self):
        with open(self.at("valid.txt"), encoding="utf-8") as file:
            text = file.read()
        self.write("plain.txt", text)
        self.write("objects.jsonl", "".join(json.dumps({"text": line}) + "\n" for line in text.split("\n") if line))
        with gzip.open(self.at("packed.txt.gz"), "wt", encoding="utf-8") as file:
            file.write(text)
        os.makedirs(self.at("texts"), exist_ok=True)
        self.write("texts/a.txt", text)
        for name, status in (("plain.txt", 65), ("objects.jsonl", 65), ("packed.txt.gz", 65), ("texts", 66)):
            for job, keys in (("pretrain", [f"corpus.train={self.at(name)}"]), ("pretrain", [f"corpus.valid={self.at(name)}"])):
                line = self.refused(self.at(name), *keys, job=job, status=status)
                self.assertIn("bagpipe-data corpus", line)
            corpus = self.made_by(line)
            self.trained("from_" + name.split(".")[0], 0, f"corpus.train={corpus}", "train.steps=1")
        model = self.trained("scorer", 0, "train.steps=1")
        line = self.refused("plain.txt", f"score.model={model}", f"score.corpus={self.at('plain.txt')}", job="score")
        self.assertIn("bagpipe-data corpus", line)

    def test_folder_of_corpora_names_a_pattern(self):
        os.makedirs(self.at("corpora"), exist_ok=True)
        os.symlink(self.at("train.h5"), self.at("corpora/train.h5"))
        line = self.refused(self.at("corpora"), f"corpus.train={self.at('corpora')}", status=66)
        pattern = re.search(r"'(\S+)'", line)[1]
        self.trained("by_pattern", 0, f"corpus.train={pattern}", "train.steps=1")

    def test_a_tool_without_options_refuses_one(self):
        for tool in ("inspect", "verify"):
            for option in ("--bogus", "-x", "--bogus=1"):
                self.assert_error(run([program("bagpipe-data"), tool, option, self.at("valid.h5")]), 64, "[command.not_understood]", f"'{option}'")

    def test_a_job_is_not_a_tool(self):
        for job in ("generate", "score", "status"):
            self.assert_error(run([program("bagpipe-data"), job]), 64, "[command.unknown_tool]", f"it is bagpipe {job}")

    def test_a_text_as_a_configuration_is_one_fault(self):
        for ranks in (0, 2):
            result = run([program("bagpipe"), "pretrain", self.at("train.txt")], ranks)
            self.assert_error(result, 78, "[config.not_ini]", "train.txt")
            self.assertNotIn("[config.not_a_pair]", result.err)

    def test_csv_is_not_read_and_says_what_is(self):
        for more in ([], ["--label", "kind"]):
            result = run([program("bagpipe-data"), "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "csv", *more, "--out", self.at("x.h5"), self.at("train.txt")])
            self.assert_error(result, 64, "[text.unknown_format]", "quote=FALSE", "tsv")

    def test_a_missing_path_says_from_where(self):
        self.assert_error(run([program("bagpipe-data"), "inspect", "none.h5"]), 66, "[file.missing]", f"from the folder {os.getcwd()}")
        self.assertNotIn("from the folder", run([program("bagpipe-data"), "inspect", self.at("none.h5")]).err)

    def test_a_reader_that_had_enough_is_no_failure(self):
        """Of a pipe that is closed before the first line; a full device is named."""
        self.write("few-lines.txt", "a b c d\n" * 12)
        texts = ["metrics", "--kind", "bleu", "--reference", self.at("few-lines.txt"), "--hypothesis", self.at("few-lines.txt")]
        for words, out, status, said in ((words, *of) for words in (["inspect", self.at("valid.h5")], texts) for of in (("pipe", 0, ""), ("/dev/full", 74, "No space left"))):
            if out == "pipe":
                reader, writer = os.pipe()
                os.close(reader)
            else:
                writer = os.open(out, os.O_WRONLY)
            process = subprocess.run([program("bagpipe-data"), *words], stdout=writer, stderr=subprocess.PIPE, env=bagpipe_test.environment(), check=False)
            os.close(writer)
            self.assertEqual(process.returncode, status, process.stderr)
            self.assertIn(said, process.stderr.decode())

    def test_a_text_of_one_document_is_warned_of(self):
        for name, more, times in (("one", [], 1), ("many", ["--format", "lines"], 0)):
            result = run([program("bagpipe-data"), "corpus", "--tokenizer", self.at("tokenizer.json"), *more, "--out", self.at(name + ".h5"), self.at("train.txt")])
            self.assertEqual(result.status, 0, str(result))
            self.assert_warning(result, "[corpus.one_document]", *(["--separator"] if times else []), times=times)

    def test_bagpipe_data_calls_itself_by_its_name(self):
        for arguments in (["corpus", "--tokenizer", "none.json", "--out", "x.h5", "none.txt"], ["nothing"], ["inspect", "none.h5"]):
            result = run([program("bagpipe-data")] + arguments)
            self.assertRegex(result.err, r"(?m)^bagpipe-data: error\[6\d\]: ")
            self.assertNotRegex(result.err, r"(?m)^bagpipe: ")
        small = self.write("few.txt", "a few words\n")
        result = run([program("bagpipe-data"), "tokenizer", "--kind", "bpe", "--size", "5000", "--out", self.at("few.json"), small])
        self.assertRegex(result.err, r"(?m)^bagpipe-data: warning: .* \[tokenizer\.too_few_tokens\]$")


if __name__ == "__main__":
    bagpipe_test.main()
