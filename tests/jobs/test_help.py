"""--help of both programs, of every job, command and tool: one form, at most 79 columns of prose, examples to copy, and no MPI."""
import os
import re
import subprocess
import tempfile
import unittest

import bagpipe_test
from bagpipe_test import environment, program, run

# mpirun's variables for root are not there, and MPI can't start: help has to do without
NO_MPI = {"OMPI_MCA_pml": "none_of_these", "OMPI_MCA_ess": "none_of_these"}


def bare(*arguments):
    env = {name: value for name, value in environment().items() if not name.startswith("OMPI_ALLOW")}
    return subprocess.run([program(arguments[0]), *arguments[1:]], env=dict(env, **NO_MPI), capture_output=True, text=True, check=False)


def names(text, heading):
    """First words of the rows under a heading."""
    rows = re.search(rf"(?m)^{heading}:\n((?:  .*\n)+)", text).group(1)
    return re.findall(r"(?m)^  (\S+)", rows)


class OtherJobs(bagpipe_test.FolderTest):
    def test_a_key_of_another_job_is_warned_of_on_the_command_line(self):
        """A file may serve several jobs: nothing is said of its keys."""
        self.write("x.ini", "[train]\nsteps = 4\n[score]\nmodel = m\n")
        arguments = ("check", "score", self.at("x.ini"), f"run.dir={self.at('r')}", "score.corpus=c.h5")
        result = run([program("bagpipe"), *arguments, "ensemble.kind=seed"])
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[config.other_job]", "ensemble.kind", "bagpipe score --help")
        self.assert_warning(run([program("bagpipe"), *arguments]), "[config.other_job]", times=0)


class Help(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pages = {}
        for name, heading in (("bagpipe", "Jobs and commands"), ("bagpipe-data", "Tools")):
            cls.pages[name,] = bare(name, "--help").stdout
            for word in names(cls.pages[name,], heading):
                cls.pages[name, word] = bare(name, word, "--help").stdout

    def test_all_are_there(self):
        for page in (("bagpipe", "pretrain"), ("bagpipe", "score"), ("bagpipe", "doctor"), ("bagpipe-data", "corpus"), ("bagpipe-data", "compare")):
            self.assertIn(page, self.pages)

    def test_parts_in_one_order(self):
        for page, text in self.pages.items():
            with self.subTest(page=page):
                self.assertTrue(text.startswith(f"Usage: {' '.join(page)} "), text)
                self.assertIn(f"\n\n{' '.join(page)} ", text)
                heads = [head for head in re.findall(r"(?m)^([A-Z][A-Za-z ]+):$", text) if head in ("Options", "Keys", "Examples", "Exit status")]
                self.assertEqual([head for head in heads if head != "Keys"], ["Options", "Examples", "Exit status"], text)
                self.assertIn("0", names(text, "Exit status"))
                self.assertIn("--help", text)
                if page[0] == "bagpipe" and "Keys" in heads:  # its options have no groups: what is between is an option without its name
                    self.assertRegex(text, r"(?m)^Options:\n(  .*\n)+\nKeys:$")

    def test_prose_fits_and_examples_are_whole(self):
        for page, text in self.pages.items():
            with self.subTest(page=page):
                self.assertEqual([line for line in text.splitlines() if len(line) > 79], [])
                examples = re.search(r"(?m)^Examples:\n((?:  .*\n)+)", text).group(1).replace("\\\n", "")
                self.assertEqual([line for line in text.splitlines() if line.startswith("  ") and line[2:].startswith(("bagpipe", "mpirun"))
                                  and len(line) > 75], [], "a man page is indented")
                for line in examples.splitlines():
                    self.assertRegex(line, r"^  (mpirun -n 4 |zcat .*\| )?bagpipe(-data)? ", "it does not begin with a program")
                    self.assertEqual(subprocess.run(["bash", "-n", "-c", line], check=False).returncode, 0, line)

    def test_keys_of_a_family_are_under_its_name(self):
        for job in ("pretrain", "finetune", "ensemble"):
            text = self.pages["bagpipe", job]
            groups = dict(re.findall(r"(?m)^model\.kind = (.*):\n((?:  .*\n)+)", text))
            self.assertIn("model.char_filters", groups["elmo"])
            self.assertIn("model.embedding", groups["rnn, lstm, gru"])
            self.assertIn("ngram.order", groups["ngram"])
            self.assertEqual(len(re.findall(r"(?m)^  model\.char_filters ", text)), 1)
            self.assertRegex(text, r"(?m)^  model\.rope_theta +llama, gpt_neox[,:]")

    def test_keys_of_one_family(self):
        every = set(re.findall(r"(?m)^  ([a-z0-9_]+\.[a-z0-9_]+)", self.pages["bagpipe", "pretrain"]))
        found = set()
        for kind in re.search(r"(?s)model\.kind .*?\((.*?);", self.pages["bagpipe", "pretrain"]).group(1).split("|"):
            text = bare("bagpipe", "pretrain", "--help", f"model.kind={kind.strip()}").stdout
            keys = re.findall(r"(?m)^  ([a-z0-9_]+\.[a-z0-9_]+)", text)
            self.assertEqual(len(keys), len(set(keys)), "a key is there once")
            self.assertEqual(bare("bagpipe", "help", "pretrain", f"model.kind={kind.strip()}").stdout, text)
            found |= set(keys)
            if kind.strip() == "llama":
                self.assertTrue({"model.layers", "model.rope_theta", "model.inner", "train.steps", "adapter.kind"} <= set(keys))
                self.assertFalse({"model.positions", "model.order", "ngram.order"} & set(keys))
                self.assertRegex(text, r"(?m)^model\.kind = llama:$")
            if kind.strip() == "ngram":
                self.assertFalse({"model.layers", "adapter.kind", "head.softmaxes"} & set(keys))
        self.assertEqual(found, every, "every key is of a family")
        result = bare("bagpipe", "pretrain", "--help", "model.kind=lama")
        self.assertEqual(result.returncode, 78)
        self.assertIn("[config.bad_value]", result.stderr)

    def test_no_technical_bounds(self):
        for page, text in self.pages.items():
            self.assertNotRegex(text, r"2147483647|1000000000000|9007199254740992", page)

    def test_help_word_is_the_same(self):
        for page, text in self.pages.items():
            self.assertEqual(bare(page[0], "help", *page[1:]).stdout, text)
            self.assertEqual(bare(page[0], *page[1:], "-h").stdout, text)
        self.assertEqual(bare("bagpipe", "score", "x.ini", "--help").stdout, self.pages["bagpipe", "score"])
        for name in ("bagpipe", "bagpipe-data"):
            result = bare(name, "help", "corpsu")
            self.assertEqual(result.returncode, 64)
            self.assertEqual(result.stderr.count("error[64]"), 1)
            self.assertEqual(bare(name, "--version").returncode, 0)

    def test_one_rank_prints(self):
        for arguments in (["bagpipe", "pretrain", "--help"], ["bagpipe-data", "corpus", "--help"]):
            result = run([program(arguments[0])] + arguments[1:], 3)
            self.assertEqual(result.status, 0, str(result))
            self.assertEqual(result.out.count("Usage: "), 1)

    def test_nothing_said_prints_help_and_is_64(self):
        for page, text in self.pages.items():
            if page == ("bagpipe", "doctor"):  # is called so
                continue
            with self.subTest(page=page):
                result = run([program(page[0]), *page[1:]])
                self.assertEqual(result.status, 64, str(result))
                self.assertEqual(result.out, "")
                self.assertTrue(result.err.startswith(text), result.err)
                self.assertRegex(result.err[len(text):], r"^\S+: error\[64\]: .*\n$")
        result = run([program("bagpipe"), "pretrain"], 3)
        self.assertEqual(result.err.count("Usage: bagpipe pretrain"), 1, str(result))

    def test_full_disk_is_noticed(self):
        for command in (["bagpipe", "--help"], ["bagpipe", "score", "--help"], ["bagpipe-data", "help"]):
            self.assert_full(command)

    def assert_full(self, command):
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = subprocess.run([program(command[0])] + command[1:], stdout=full, stderr=subprocess.PIPE, check=False)
        self.assertEqual(result.returncode, 74, command)
        self.assertRegex(result.stderr.decode(), r"^bagpipe(-data)?: error\[74\]: can't write: No space left on device: at standard output; .* \[file\.no_space\]\n$")

    def test_a_reader_that_has_gone_is_no_failure(self):
        """Whatever has flushed standard output in between: metrics does, and longer outputs do by themselves. A full disk is named there too."""
        with tempfile.TemporaryDirectory() as folder:
            lines = self.write(folder, "lines.txt", "the ship\n" * 3)
            many = self.write(folder, "many.txt", "".join(f"{k}\n" for k in range(9000)))
            tokenizer, corpus = os.path.join(folder, "t.json"), os.path.join(folder, "many.h5")
            for command in (["tokenizer", "--kind", "char", "--out", tokenizer, many], ["corpus", "--tokenizer", tokenizer, "--format", "lines", "--out", corpus, many]):
                self.assertEqual(run([program("bagpipe-data"), *command]).status, 0)
            model = [f"model.{name}" for name in ("layers=1", "width=8", "heads=1", "context=8")]
            plan = ["bagpipe", "pretrain", f"corpus.train={corpus}", *model, "train.steps=1", "train.batch=1", f"run.dir={folder}/run", "math.threads=1", "--plan"]
            for command in (["bagpipe-data", "metrics", "--kind", "bleu", "--reference", lines, "--hypothesis", lines], ["bagpipe-data", "table", corpus], plan):
                whole = run([program(command[0]), *command[1:]])
                self.assertEqual(whole.status, 0, str(whole))
                reader, writer = os.pipe()
                os.close(reader)
                result = subprocess.run([program(command[0]), *command[1:]], stdout=writer, stderr=subprocess.PIPE, check=False)
                os.close(writer)
                self.assertEqual((result.returncode, result.stderr), (0, b""), command)
                self.assert_full(command)

    @staticmethod
    def write(folder, name, text):
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path


if __name__ == "__main__":
    bagpipe_test.main()
