"""What generation says to input that is wrong (docs/bad_inputs.md has the rows)."""
import gzip
import json
import os

import bagpipe_test
from generate_test import GenerateTest


class GenerateBad(GenerateTest):

    def refused(self, status, words, *keys, ranks=0):
        result = self.result("refused", ranks, *keys)
        self.assert_error(result, status, *words)
        self.assertFalse(os.path.exists(self.at("refused")), str(result))

    def prompts_refused(self, text, words, *keys, name="bad.jsonl", status=65, ranks=0):
        self.refused(status, words, f"generate.prompts={self.write(name, text)}", *keys, ranks=ranks)

    def test_prompts(self):
        ids = json.dumps({"tokens": [1, 2]}) + "\n"
        for ranks in (0, 2):
            self.prompts_refused("", ["[prompt.none]", "bad.txt"], name="bad.txt", ranks=ranks)
            self.prompts_refused("a prompt\n\nanother\n", ["[prompt.empty]", "bad.txt:2"], name="bad.txt", ranks=ranks)
        self.prompts_refused("a prompt\na \0 b\n", ["[prompt.no_text_file]", "bad.txt:2"], name="bad.txt")
        self.prompts_refused(ids + json.dumps({"prompt": ""}) + "\n", ["[prompt.empty]", "bad.jsonl:2"])
        self.prompts_refused(ids + json.dumps({"tokens": []}) + "\n", ["[prompt.empty]", "bad.jsonl:2"])
        self.prompts_refused(json.dumps({"tokens": [3] * 33}) + "\n", ["[prompt.too_long]", "bad.jsonl:1"])
        self.prompts_refused("a word and more " * 60 + "\n", ["[prompt.too_long]", "bad.txt:1"], name="bad.txt")
        for wrong in (509, -1, 1.5, "a", 2 ** 40):
            self.prompts_refused(ids + json.dumps({"tokens": [1, wrong]}) + "\n", ["[prompt.unknown_token]", "bad.jsonl:2"])
        self.prompts_refused("{\"prompt\": \"a\"\n", ["[json.invalid]", "bad.jsonl:1"])
        self.prompts_refused(ids + "\n", ["[json.invalid]", "bad.jsonl:2"])
        self.prompts_refused("[1, 2]\n", ["[prompt.not_object]", "bad.jsonl:1"])
        self.prompts_refused("{\"text\": \"a\"}\n", ["[prompt.no_text]"])
        self.prompts_refused("{\"prompt\": \"a\"}\n{\"messages\": []}\n", ["[prompt.messages]", "bad.jsonl:2"])
        self.prompts_refused("{\"prompt\": \"a\", \"tokens\": [1]}\n", ["[prompt.text_and_tokens]"])
        self.prompts_refused("{\"prompt\": 1}\n", ["[prompt.no_text]", "\"prompt\""])
        self.prompts_refused("{\"tokens\": 1}\n", ["[prompt.bad_tokens]", "\"tokens\""])
        self.prompts_refused("{\"prompt\": \"a\", \"prompt\": \"b\"}\n", ["[json.invalid]"])
        with gzip.open(self.at("cut.txt.gz"), "wb") as file:
            file.write(os.urandom(4000))
        with open(self.at("cut.txt.gz"), "rb+") as file:
            file.truncate(1000)
        self.refused(65, ["[text.damaged]", "cut.txt.gz"], f"generate.prompts={self.at('cut.txt.gz')}")
        self.refused(66, ["[file.missing]", "none.txt", "a prompt a line"], f"generate.prompts={self.at('none.txt')}")

    def test_prompts_that_are_not_utf8_are_warned_of(self):
        path = self.write("latin.txt", "")
        with open(path, "wb") as file:
            file.write(b"a prompt\na caf\xe9\n\xff and \xfe\n")
        result = self.result("latin", 0, f"generate.prompts={path}")
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[text.not_utf8]", "2 of 3 prompts", f"at {path}, line 2;")
        self.assert_warning(self.result("plain", 0, f"generate.prompts={self.write('plain.txt', 'a café')}"), "[text.not_utf8]", times=0)

    def test_templates(self):
        fields = self.write("fields.jsonl", "{\"a\": \"x\", \"b\": [1]}\n")
        for text, words in (("", ["[template.empty]"]), ("a\n{b", ["[template.open_brace]", "bad.tpl:2"]),
                            ("a\n{% for message in messages %}", ["[template.jinja]", "bad.tpl:2"]),
                            ("{c}", ["[template.missing_field]", "fields.jsonl:1"]),
                            ("{b}", ["[template.missing_field]"])):
            self.refused(65, words, f"generate.prompts={fields}", f"generate.template={self.write('bad.tpl', text)}")
        self.refused(66, ["[file.missing]", "none.tpl"], f"generate.prompts={fields}", f"generate.template={self.at('none.tpl')}")

    def test_keys(self):
        for keys, words in ((["generate.strategy=best"], ["[config.bad_value]", "generate.strategy = best"]),
                            (["generate.top_p=1.5"], ["[config.bad_value]", "generate.top_p = 1.5"]),
                            (["generate.top_p=-0.1"], ["[config.bad_value]", "generate.top_p = -0.1"]),
                            (["generate.no_repeat_ngram=-1"], ["[config.bad_value]", "generate.no_repeat_ngram = -1"]),
                            (["generate.repetition_penalty=0"], ["[config.bad_value]", "generate.repetition_penalty = 0"]),
                            (["generate.temperature=-1"], ["[config.bad_value]", "generate.temperature = -1"]),
                            (["generate.tokens=0"], ["[config.bad_value]", "generate.tokens = 0"]),
                            (["generate.strategy=fill"], ["[generate.no_masks]", "of kind gpt"]),
                            (["generate.strategy=beam", "generate.beams=510"], ["[generate.too_many_beams]", "generate.beams = 510"]),
                            (["generate.strategy=beam", "generate.samples=5"], ["[generate.too_many_samples]", "generate.samples = 5"]),
                            (["generate.end=509"], ["[generate.bad_end]", "generate.end = 509"]),
                            (["generate.stop=a,,b"], ["[generate.empty_stop]"]),
                            (["generate.stop=\\q"], ["[generate.bad_escape]"]),
                            (["mesh.members=2"], ["[mesh.one_model]", "generate.model"])):
            self.refused(78, words, *keys, ranks=2 if "mesh.members=2" in keys else 0)
        self.refused(66, ["[checkpoint.missing]", "none"], f"generate.model={self.at('none')}")
        self.assert_warning(self.result("cut-unused", 0, "generate.tokens=1", "generate.cut=yes"), "[config.unused_key]", "generate.cut")

    def test_tokenizers(self):
        """A checkpoint that keeps no tokenizer, and one of words, which can't spell every stop text."""
        bare = self.trained("bare", 0, "train.steps=1")
        step = os.path.join(bare, "checkpoints", bagpipe_test.steps(bare)[-1])

        def forget(manifest):
            manifest["files"] = [file for file in manifest["files"] if file["name"] != "tokenizer.json"]
        bagpipe_test.edit_manifest(step, forget)
        os.remove(os.path.join(step, "tokenizer.json"))
        model = f"generate.model={step}"
        self.refused(78, ["[prompt.no_tokenizer]", "tokenizer.path"], model)
        ids = self.write("ids.jsonl", json.dumps({"tokens": [1, 2]}) + "\n")
        self.refused(78, ["[generate.no_tokenizer]", "generate.stop"], model, f"generate.prompts={ids}", "generate.stop=a")
        for ranks in (0, 2):
            self.refused(78, ["[generate.no_tokenizer]", "generate.references"], model, f"generate.prompts={ids}", f"generate.references={ids}", ranks=ranks)
        self.assertIsNone(self.made("by_ids", 0, model, f"generate.prompts={ids}")[0]["text"])
        self.made("by_path", 0, model, f"tokenizer.path={self.at('tokenizer.json')}")
        self.refused(66, ["[file.missing]"], model, f"tokenizer.path={self.at('none.json')}")
        self.must(["bagpipe-data", "tokenizer", "--kind", "bpe", "--size", "300", "--out", self.at("other.json"), self.at("train.txt")])
        self.refused(65, ["[tokenizer.mismatch]"], f"tokenizer.path={self.at('other.json')}")

        def forget_hash(manifest):
            manifest["state"]["tokenizer_hash"] = ""
        bagpipe_test.edit_manifest(step, forget_hash)
        self.must(["bagpipe-data", "tokenizer", "--kind", "bpe", "--size", "600", "--out", self.at("large.json"), self.at("train.txt")])
        self.refused(65, ["[tokenizer.too_large]", "600"], model, f"tokenizer.path={self.at('large.json')}")

    def test_stop_texts_that_cannot_be_encoded(self):
        self.must(["bagpipe-data", "tokenizer", "--kind", "word", "--size", "300", "--out", self.at("words.json"), self.at("train.txt")])
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("words.json"), "--format", "lines", "--out", self.at("words.h5"),
                   self.at("train.txt")])
        model = self.trained("of_words", 0, f"corpus.train={self.at('words.h5')}", "corpus.valid=", "train.steps=2")
        for stop in ("xyzzyx", "a\\n"):
            self.refused(78, ["[generate.stop_not_encodable]", "generate.stop"], f"generate.model={model}", "generate.stop=" + stop)
        self.check_run_that_never_validated(model)

    def check_run_that_never_validated(self, run):
        """It has no best checkpoint, and then no checkpoint at all: the message says what there is."""
        step = bagpipe_test.steps(run)[-1]
        self.refused(66, ["[checkpoint.missing]", "first validation, but " + step, "the run folder"], f"generate.model={run}/checkpoints/best")
        os.rename(os.path.join(run, "checkpoints", step), self.at("elsewhere"))
        self.refused(66, ["[checkpoint.none]", "the run folder " + run, "checkpoint.every"], f"generate.model={run}")


if __name__ == "__main__":
    bagpipe_test.main()
