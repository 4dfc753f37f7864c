"""What the tests of generation share: a trained model, prompts, and a run's files."""
import json
import os

from bagpipe_test import JobTest, program, run


class GenerateTest(JobTest):
    """A model of context 32 trained for 20 steps, and prompts of two words."""

    PROMPTS = 11

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.at('model')}"])
        with open(cls.at("valid.txt"), encoding="utf-8") as file:
            lines = [line.split() for line in file.read().splitlines() if len(line.split()) > 4]
        cls.prompts = [" ".join(words[:2 + k % 2]) for k, words in enumerate(lines[:cls.PROMPTS])]
        cls.write("prompts.txt", "".join(prompt + "\n" for prompt in cls.prompts))
        cls.write("generate.ini", f"[generate]\nmodel = {cls.at('model')}\nprompts = {cls.at('prompts.txt')}\ntokens = 10\n"
                                  "[math]\nprecision = f32\nthreads = 1\n")

    def command(self, name, *keys):
        return [program("bagpipe"), "generate", self.at("generate.ini"), f"run.dir={self.at(name)}"] + list(keys)

    def result(self, name, ranks=0, *keys):
        return run(self.command(name, *keys), ranks)

    def made(self, name, ranks=0, *keys):
        """The lines of outputs.jsonl."""
        result = self.result(name, ranks, *keys)
        self.assertEqual(result.status, 0, str(result))
        return self.outputs(name)

    def data(self, name, file):
        with open(os.path.join(self.at(name), "generate", file), "rb") as stream:
            return stream.read()

    def outputs(self, name):
        return [json.loads(line) for line in self.data(name, "outputs.jsonl").split(b"\n") if line]

    def texts(self, name):
        return [line["tokens"] for line in self.outputs(name)]
