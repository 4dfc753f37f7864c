"""Small inputs from public bug reports of systems of this kind (../shared/reference/field), each with what is right for it.

A folder there has a command, run.sh, which finds the programs in PATH; here is what its output must have, what it must not have, and its
status. Figures are those of the folder's README: of KenLM, of tokenizers' native package, of float64 models of the same folder.
"""
import os
import re
import shutil
import subprocess

import bagpipe_test
from bagpipe_test import FolderTest, shared

ANY = (0, 65)  # read, or refused: either is right where the message names the reason


def pieces(*ids):
    """The rows of `encode`: line, id, piece."""
    return ["".join(rf"(?m:^\d+,{token},.*\n)" for token in ids) + r"\Z"]


# NAME: (status, what the output has, what it has not); texts are regular expressions
CASES = {
    "arpa-UNK": (0, [r"perplexity", r"\b3\.63\d"], [r"null"]),
    "bert-without-head": (ANY, [r"checkpoint: c|has no head"], [r"export the model again"]),
    "bos-candidates": (0, [r"-29\.52[12]\d*, -36\.106\d*"], []),
    "bos-llama3-names": (0, [r"\b68\.26\d"], []),
    "bos-rolling": (0, [r"\b108\.46\d"], []),
    "bos-twice": (0, [r"-4\.736\d*\n.*-4\.824\d*\n.*-5\.431\d*\n.*-5\.00[45]"], []),
    "bytes-anchor": (0, [r"tokens      6"], []),
    "bytes-prepend": (0, [r"tokens      10"], []),
    "choices-blank": (0, [r"in \S*/r/score"], [r"error"]),
    "choices-lambada": (0, [r"in \S*/r/score"], [r"error"]),
    "choices-merged": (0, [r"in \S*/r/score"], [r"error"]),
    "chunk-long-gzip": (None, [r"status 65\n(.*\n)*.*status 65", r"chunk"], [r"status 0"]),
    "chunk-short-zstd": (None, [r"status 65\n(.*\n)*.*status 65", r"chunk"], [r"status 0"]),
    "conll-docstart": (0, [r"documents   2\b"], []),
    "doctor-one-core": (None, [r"binding"], [r"(?m)^all is well"]),
    "end-instruct-generate": (0, [r"(?m)^0 texts go on behind id 2; [1-9]"], []),
    "end-name-score": (0, [r"(?m)^all +2 +20 "], [r"were not scored"]),
    "folder-roberta-bpe": (ANY, [r"checkpoint: c|--no-tokenizer"], []),
    "folder-vocab-txt": (0, [r"vocab\.txt|tokenizer: (?!none)"], []),
    "import-arpa-bom": (0, [], [r"no such folder"]),
    "import-arpa-head": (0, [], [r"no such folder"]),
    "import-gguf": (65, [r"GGUF", r"safetensors"], [r"no such folder"]),
    "mistral-layer-types": (None, [r"\b156\.3[23]|error\[65\]: .layer_types"], [r"184\.47"]),
    "mistral-window-default": (0, [r"window 4096"], []),
    "nul-metrics-first": (0, [r"'rouge1': 1\.0"], []),
    "nul-metrics-second": (0, [r"'rouge1': 1\.0"], []),
    "prefix-compile": (ANY, [r"checkpoint: c|_orig_mod\."], []),
    "prefix-ddp": (ANY, [r"checkpoint: c|module\."], []),
    "record-nan": (0, [r"3 documents"], []),
    "record-null": (65, [r"line 2"], []),
    "record-real": (0, [r"3 documents"], []),
    "record-repeated-key": (0, [r"3 documents"], []),
    "record-squad-offset": (65, [r"question b"], []),
    "record-surrogate": (65, [r"line 2"], []),
    "regex-alpha-mark": (0, pieces(207, 132), []),
    "regex-bloom": (0, pieces(35, 43, 44, 47), []),
    "regex-dotall": (0, pieces(123, 101), []),
    "regex-intersection": (0, pieces(104, 114), []),
    "regex-interval-plus": (0, pieces(259, 259), []),
    "regex-kimi": (0, pieces(35, 43, 44, 35, 35), []),
    "regex-punct": (0, pieces(100, 101, 102, 103), []),
    "regex-replace-word": (0, pieces(123, 123, 197, 192, 35, 123), []),
    "regex-word-boundary": (0, pieces(52, 207, 132, 35, 100), []),
    "roberta-pairs": (0, [r"roberta:"], []),
    "special-names-text": (0, [r"(?m)^1,31,"], []),
    "squad-trailing-space": (0, [r"6, 7, 0, 18"], []),
    "stderr-one-document": (0, [r"604\.68\d+ +- "], []),
    "tags-last-blank-line": (0, [r"f1"], []),
    "tied-head-only": (0, [r"checkpoint: c"], []),
    "tokenizer-nmt": (0, [r"(?m)^1,\d+,"], []),
    "tokenizer-respelled": (0, [r"in \S*/r/score"], []),
    "tokenizer-truncation": (0, [r"warning.*truncation", r'"the"', r'"rain"'], []),
    "vocabulary-hole": (0, [r"warning", r'"the"', r'"rain"'], []),
}

# NAME: what else to run there, with {} for its folder, and what the output has
MORE = {
    "record-null": ("bagpipe-data corpus --tokenizer {}/tokenizer.json --format jsonl --skip-bad 1 --out x.h5 {}/x.jsonl && cat x.h5.skipped.jsonl",
                    [r"2 documents", r'"line": ?2']),
    "record-surrogate": ("bagpipe-data corpus --tokenizer {}/tokenizer.json --format jsonl --skip-bad 1 --out x.h5 {}/x.jsonl",
                         [r"2 documents"]),
    "record-squad-offset": ("bagpipe-data corpus --tokenizer {}/tokenizer.json --format squad --skip-bad 1 --out x.h5 {}/s.json "
                            "&& cat x.h5.skipped.jsonl", [r"\bb\b"]),
    "special-names-text": ("bagpipe-data encode --special --tokenizer {}/tokenizer.json '<s>user</s>'", [r"(?m)^1,1,", r"(?m)^1,2,"]),
}


class Field(FolderTest):

    def output(self, command):
        """Status, standard output and standard error together, of a shell's COMMAND."""
        environment = bagpipe_test.environment()
        environment["PATH"] = os.path.abspath(bagpipe_test.options["bin"]) + os.pathsep + environment["PATH"]
        environment["TMPDIR"] = self.folder_of_case
        done = subprocess.run(["sh", "-c", command], env=environment, cwd=self.folder_of_case, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=bagpipe_test.TIMEOUT, check=False)
        return done.returncode, done.stdout.decode("utf-8", "replace")

    def holds(self, status, expected, text, has, has_not):
        if expected is not None:
            self.assertIn(status, expected if isinstance(expected, tuple) else (expected,), text)
        for pattern in has:
            self.assertRegex(text, pattern)
        for pattern in has_not:
            self.assertNotRegex(text, pattern)

    def losses_agree(self, text):
        """roberta-pairs: the loss of validation is that of score, of each family."""
        lines = re.findall(r'"valid_loss": *([0-9.e+-]+), score: "nll_nats": *([0-9.e+-]+) over (\d+)', text)
        self.assertEqual(len(lines), 2, text)
        for valid, score, documents in lines:
            self.assertAlmostEqual(float(valid), float(score) / int(documents), delta=1e-5)

    def test_each_case_gives_what_is_right(self):
        field = shared(os.path.join("reference", "field"))
        if field is None:
            self.skipTest("there is no ../shared/reference/field")
        field = os.path.abspath(field)
        for name, (expected, has, has_not) in CASES.items():
            if name == "squad-trailing-space" and not shutil.which("h5dump"):
                continue
            with self.subTest(name):
                self.folder_of_case = self.at(name)
                os.mkdir(self.folder_of_case)
                folder = os.path.join(field, name)
                status, text = self.output(f"sh {folder}/run.sh")
                self.holds(status, expected, text, has, has_not)
                if name == "roberta-pairs":
                    self.losses_agree(text)
                if name in MORE:
                    command, has = MORE[name]
                    status, text = self.output(command.replace("{}", folder))
                    self.holds(status, 0, text, has, [])


if __name__ == "__main__":
    bagpipe_test.main()
