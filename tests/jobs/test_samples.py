"""train.sample_every: texts that the training model writes, on every mesh, through kills, without a changed bit."""
import json
import os

from bagpipe_test import JobTest, program, digests, main, run, state_of

EVERY = ("train.steps=6", "checkpoint.every=2", "checkpoint.keep=9", "checkpoint.async=no",
         "train.sample_every=2", "train.sample_tokens=12")
PROMPT = ("train.sample_prompt=the king",)


class Samples(JobTest):

    def samples(self, name):
        with open(os.path.join(self.at(name), "samples.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def generated(self, name, step, prompt="the king"):
        """What generate makes of a checkpoint."""
        self.write("prompt.txt", prompt + "\n")
        folder = f"{name}-{step}"
        self.must(["bagpipe", "generate", self.at("small.ini"), f"run.dir={self.at(folder)}", f"generate.prompts={self.at('prompt.txt')}", "generate.tokens=12",
                   f"generate.model={os.path.join(self.at(name), 'checkpoints', f'step-{step:012d}')}", "math.threads=1", "math.precision=f32"])
        with open(os.path.join(self.at(folder), "generate", "outputs.jsonl"), encoding="utf-8") as file:
            return json.loads(file.read())

    def test_texts_are_those_of_generate_and_no_bit_changes(self):
        self.trained("plain", 0, *EVERY, "train.sample_every=0")
        self.trained("alone", 0, *EVERY, *PROMPT)
        self.assertEqual(digests(self.at("plain")), digests(self.at("alone")))
        self.assertFalse(os.path.exists(os.path.join(self.at("plain"), "samples.jsonl")))
        lines = self.samples("alone")
        self.assertEqual([line["step"] for line in lines], [2, 4, 6])
        for line in lines:
            self.assertEqual(list(line), ["step", "prompt", "text", "tokens", "logprob", "finish"])
            made = self.generated("alone", line["step"])
            for key in ("prompt", "text", "tokens", "finish"):
                self.assertEqual(line[key], made[key])
            self.assertAlmostEqual(line["logprob"], made["logprob"], delta=1e-9)
        with open(os.path.join(self.at("alone"), "log.txt"), encoding="utf-8") as file:
            self.assertEqual(file.read().count("sample of step"), 3)

    def test_texts_are_the_same_on_every_mesh(self):
        self.trained("one", 0, *EVERY, *PROMPT)
        for name, keys in (("split", ("mesh.tensor=2", "mesh.pipeline=2")),
                           ("data", ("mesh.data=2", "mesh.tensor=2")),
                           ("chunks", ("mesh.pipeline=2", "mesh.data=2", "mesh.schedule=interleaved", "model.layers=6"))):
            same = self.samples("one")
            if name == "chunks":
                self.trained("deep", 0, *EVERY, *PROMPT, "model.layers=6")
                same = self.samples("deep")
            self.trained(name, 4, *EVERY, *PROMPT, *keys)
            lines = self.samples(name)
            self.assertEqual([line["tokens"] for line in lines], [line["tokens"] for line in same])
            for mine, other in zip(lines, same):
                self.assertAlmostEqual(mine["logprob"], other["logprob"], delta=1e-3)
        dedicated = run([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('apart')}", *EVERY, *PROMPT,
                         "mesh.coordinator=dedicated"], 3)
        self.assertEqual(dedicated.status, 0, str(dedicated))
        self.assertEqual([line["text"] for line in self.samples("apart")], [line["text"] for line in self.samples("one")])

    def test_draws_are_a_function_of_seed_and_step_through_a_kill(self):
        drawn = EVERY + ("train.sample_temperature=1",)
        self.trained("whole", 0, *drawn)
        killed = self.background([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('killed')}", *drawn],
                                 env={"BP_FAULT": "step.end:5=kill"})
        killed.communicate()
        self.assertEqual(killed.returncode, -9)
        self.assertEqual(state_of(self.at("killed"))["step"], 4)
        with open(os.path.join(self.at("killed"), "samples.jsonl"), "a", encoding="utf-8") as file:
            file.write('{"step": 5, "text": "behind the checkpoint"}\n{"step": 6, "te')
        self.trained("killed", 0, *drawn)
        self.assertEqual(self.samples("killed"), self.samples("whole"))
        self.assertEqual(self.samples("whole")[0]["prompt"], None)
        self.trained("other", 0, *drawn, "run.seed=2")
        self.assertNotEqual([line["tokens"] for line in self.samples("other")], [line["tokens"] for line in self.samples("whole")])

    def test_keys_may_change_on_a_resume(self):
        self.trained("changed", 0, *EVERY, *PROMPT, "train.steps=2")
        self.trained("changed", 0, *EVERY, "train.steps=4", "train.sample_tokens=3", "train.sample_every=1")
        lines = self.samples("changed")
        self.assertEqual([(line["step"], line["prompt"]) for line in lines], [(2, "the king"), (3, None), (4, None)])
        self.trained("changed", 0, *EVERY, "train.steps=6", "train.sample_every=0")
        self.assertEqual(self.samples("changed"), lines)

    def test_what_cannot_be_is_refused(self):
        result = run([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('never')}", *EVERY,
                      f"train.sample_prompt={'king ' * 40}"], 2)
        self.assert_error(result, 78, "[train.bad_sample_prompt]")
        self.write("counts.ini", f"[corpus]\ntrain = {self.at('train.h5')}\n[model]\nkind = ngram\n[train]\nsample_every = 1\n")
        result = run([program("bagpipe"), "pretrain", self.at("counts.ini"), f"run.dir={self.at('never')}"])
        self.assert_error(result, 78, "[model.not_causal]")
        self.assertFalse(os.path.exists(self.at("never")))

    def test_a_recurrent_model_writes_behind_a_prompt_of_any_length(self):
        prompt = " ".join(["king"] * 40)
        self.trained("lstm", 0, *EVERY, "model.heads=", "model.kind=lstm", f"train.sample_prompt={prompt}")
        for line in self.samples("lstm"):
            made = self.generated("lstm", line["step"], prompt)
            self.assertEqual(line["tokens"], made["tokens"])

    def test_the_plan_names_it(self):
        result = run([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('planned')}", *EVERY, "--plan"])
        self.assertEqual(result.status, 0, str(result))
        self.assertIn("samples", result.out)


if __name__ == "__main__":
    main()
