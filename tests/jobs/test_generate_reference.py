"""Generation against transformers' generate(): greedy and beams, on the fixtures' models."""
import json
import os

import bagpipe_test
from bagpipe_test import FolderTest, program, run, shared

MODELS = ("gpt2-tiny", "gpt2-lmhead-tiny", "llama-tiny", "llama-llama3-tiny", "llama-yarn-tiny", "llama-dynamic-tiny", "mamba2-tiny", "qwen3-tiny",
          "olmo2-tiny", "gemma2-tiny", "smollm3-tiny", "granite-tiny", "gemma3-tiny", "phi3-tiny", "opt-tiny", "opt-350m-tiny", "openai-gpt-tiny", "gptj-tiny", "bloom-tiny",
          "mixtral-tiny", "olmoe-tiny", "qwen3_moe-tiny")

SHAPES = ("gpt2-tiny", "llama-tiny", "mamba2-tiny", "bloom-tiny", "mixtral-tiny")  # one of each shape of layers: stages and data ranks too


class GenerateReference(FolderTest):

    def generated(self, model, number, case, ranks, *mesh):
        beams = case["num_beams"]
        keys = [f"generate.end={-1 if case['eos_token_id'] is None else case['eos_token_id']}"] + list(mesh)
        if beams > 1:
            keys += ["generate.strategy=beam", f"generate.beams={beams}", f"generate.samples={beams}",
                     f"generate.length_penalty={case['length_penalty']}"]
        name = self.at(f"{model}-{number}" + "".join(mesh))
        result = run([program("bagpipe"), "generate", self.write("empty.ini", ""), f"run.dir={name}", f"generate.model={self.at(model)}",
                      f"generate.prompts={self.at(model + '.jsonl')}", "generate.tokens=12", "math.precision=f32", "math.threads=1"] + keys, ranks)
        self.assertEqual(result.status, 0, str(result))
        with open(os.path.join(name, "generate", "outputs.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def compare(self, lines, case):
        for row, sequences in enumerate(case["sequences"]):
            mine = [line for line in lines if line["index"] == row]
            self.assertEqual([line["tokens"] for line in mine], sequences)
            for k, line in enumerate(mine):
                ended = case["eos_token_id"] is not None and line["tokens"][-1] == case["eos_token_id"]
                self.assertEqual(line["finish"], "eod" if ended else "length")
                if case["num_beams"] > 1:
                    score = line["logprob"] / len(line["tokens"]) ** case["length_penalty"]
                    self.assertAlmostEqual(score, case["scores"][row][k], delta=5e-5)
                else:
                    for value, expected in zip(line["logprobs"], case["logprobs"][row][k]):
                        self.assertAlmostEqual(value, expected, delta=2e-5)

    def tensors(self, folder):
        with open(os.path.join(folder, "model.safetensors"), "rb") as file:
            head, data = json.loads(file.read(int.from_bytes(file.read(8), "little"))), file.read()
        return {name: (tensor["shape"], data[slice(*tensor["data_offsets"])]) for name, tensor in head.items() if name != "__metadata__"}

    def check_export(self, model, source):
        """The bytes of every tensor come back; a prefix that the folder did not have is new."""
        self.must(["bagpipe-data", "export", self.at(model), "--out", self.at(model + "-out"), "--no-tokenizer"])
        there, back = self.tensors(source), self.tensors(self.at(model + "-out"))
        self.assertEqual({name.removeprefix("transformer."): tensor for name, tensor in there.items()},
                         {name.removeprefix("transformer."): tensor for name, tensor in back.items()})

    def test_sequences_and_scores_are_those_of_transformers(self):
        for model in MODELS:
            source = shared(os.path.join("reference", model))
            if source is None:
                self.skipTest(f"there is no ../shared/reference/{model}")
            with open(os.path.join(source, "generation.json"), encoding="utf-8") as file:
                truth = json.load(file)
            self.must(["bagpipe-data", "import", source, "--out", self.at(model)])
            self.check_export(model, source)
            self.write(model + ".jsonl", "".join(json.dumps({"tokens": tokens}) + "\n" for tokens in truth["prompt"]))
            self.assertEqual(truth["max_new_tokens"], 12)
            for number, case in enumerate(truth["cases"]):
                self.compare(self.generated(model, number, case, 0), case)
            with open(os.path.join(source, "config.json"), encoding="utf-8") as file:
                config = json.load(file)
            heads = config.get("num_attention_heads", config.get("n_head", config.get("num_heads", 2)))
            tensors = 3 if heads % 2 else 2
            splits = config.get("intermediate_size", tensors) % tensors == 0
            axes = (("tensor", tensors if splits else 1), ("pipeline", 2), ("data", 2))
            for axis, ranks in axes if model in SHAPES else axes[:1]:
                case = truth["cases"][-1]
                self.compare(self.generated(model, "last", case, ranks, f"mesh.{axis}={ranks}"), case)


if __name__ == "__main__":
    bagpipe_test.main()
