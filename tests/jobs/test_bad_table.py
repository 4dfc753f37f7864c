"""Bad inputs as a table: a command, what is wrong with its input, the exit status and words of the one line that says so; nothing is left
at the output. Each row stands in docs/bad_inputs.md by its name, which the test compares."""
import concurrent.futures
import json
import os
import re
import shutil

import bagpipe_test
from bagpipe_test import JobTest, program, run

DOCS = os.path.join(bagpipe_test.HERE, "..", "..", "docs", "bad_inputs.md")
BOM = b"\xef\xbb\xbf"
ID = "i" * 1025


def lines(*objects):
    return b"".join(json.dumps(o).encode() + b"\n" for o in objects)


# The words of a command: {x} is file x of the test's folder, {out} a name for the output. CORPUS, PRETRAIN, SCORE, COMPARE begin many.
CORPUS = "bagpipe-data corpus --tokenizer {tokenizer.json} --out {out}"
JSONL = CORPUS + " --format jsonl"
TOKENIZER = "bagpipe-data tokenizer --out {out}"
PRETRAIN = "bagpipe pretrain {small.ini} run.dir={out}"
SCORE = "bagpipe score {small.ini} run.dir={out} score.model={model}"
ENSEMBLE = "bagpipe ensemble {small.ini} run.dir={out} ensemble.members=2"
FOREIGN = "bagpipe score run.dir={out} score.corpus={valid.h5}"  # keys are enough
COMPARE = "bagpipe-data compare"
IMPORT = "bagpipe-data import {hf} --out {out}"


def llama(**members):
    """The configuration of a LLaMA with other members."""
    return {"hf/config.json": json.dumps(dict({
        "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 44, "hidden_act": "silu",
        "max_position_embeddings": 64, "vocab_size": 97}, **members)).encode()}


# (name of the row, command, {file: bytes}, status, words; status 0: it is accepted)
ROWS = [
    # JSON lines
    ("JSON lines behind a byte order mark", JSONL + " {f}", {"f": BOM + lines({"text": "a"})}, 0, []),
    ("a byte order mark in the middle of JSON lines", JSONL + " {f}", {"f": lines({"text": "a"}) + BOM + lines({"text": "b"})}, 65,
     ["[json.invalid]", "{f}, line 2"]),
    ("a label of one value as a number, then as a string", JSONL + " --label g {f}", {"f": lines({"text": "a", "g": 1}, {"text": "b", "g": "1"})}, 65,
     ["[label.mixed_types]", "{f}, line 2"]),
    ("a label that is true, then a string of that", JSONL + " --label g {f}",
     {"f": lines({"text": "a", "g": True}, {"text": "b"}, {"text": "c", "g": "true"})}, 65, ["[label.mixed_types]", "{f}, line 3"]),
    ("a label of one value as a string, then as a number in another file", JSONL + " --label g {f} {h}",
     {"f": lines({"text": "a", "g": "1"}), "h": lines({"text": "b", "g": 1})}, 65, ["[label.mixed_types]", "{h}, line 1"]),
    ("a label that is a list", JSONL + " --label g {f}", {"f": lines({"text": "a", "g": [1]})}, 65, ["[text.bad_field]", "line 1"]),
    ("a label that no line has", JSONL + " --label h {f}", {"f": lines({"text": "a", "g": 1})}, 65, ["h"]),
    ("a label that is named twice", JSONL + " --label g --label g {f}", {"f": lines({"text": "a", "g": 1})}, 64, ["[label.twice]"]),
    ("a label of 1,025 bytes", JSONL + " --label g {f}", {"f": lines({"text": "a", "g": "x"}, {"text": "a", "g": ID})}, 65,
     ["[text.field_too_long]", "{f}, line 2"]),
    ("an id of 1,025 bytes", JSONL + " {f}", {"f": lines({"text": "a"}, {"text": "a", "id": ID})}, 65,
     ["[text.field_too_long]", "{f}, line 2"]),
    ("an id with U+0000", JSONL + " {f}", {"f": lines({"text": "a", "id": "a\0b"})}, 65, ["[text.bad_field]", "line 1"]),
    ("an integer of 2^64 in JSON lines", JSONL + " {f}", {"f": b'{"text": "a", "id": 18446744073709551616}\n'}, 65, ["[json.invalid]", "line 1"]),
    ("a key twice in a JSON line", JSONL + " {f}", {"f": b'{"text": "a", "text": "b"}\n'}, 65, ["[json.invalid]", "line 1"]),
    ("fields of JSON lines that nobody reads, with NaN, 2^64, a lone surrogate, a key twice, or nested deeper than 2,048", JSONL + " {f}",
     {"f": b'{"text": "a", "x": [NaN, 18446744073709551616, 1e999, {"y": 1, "y": "\\ud800"}], "x": Infinity, "z": ' + b"[" * 5000 + b"]" * 5000 + b'}\n'}, 0, []),
    ("bad lines beyond --skip-bad", JSONL + " --skip-bad 1 {f}", {"f": b'{"text": 1}\n{"text": "a"}\n{}\n'}, 65,
     ["[corpus.too_many_bad]", "f, line 1"]),
    ("bad lines within --skip-bad", JSONL + " --skip-bad 70% {f}", {"f": b'{"text": 1}\n{"text": "a"}\n{}\n'}, 0, []),
    ("no number behind --skip-bad", JSONL + " --skip-bad=-1 {f}", {"f": lines({"text": "a"})}, 64, ["[command.bad_skip]"]),
    ("JSON lines in one list", JSONL + " {f}", {"f": b'[{"text": "a"}]\n'}, 65, ["[text.not_object]", "line 1"]),
    ("JSON lines that are indented over lines", JSONL + " {f}", {"f": b'{\n "text": "a"\n}\n'}, 65, ["[json.invalid]", "line 1"]),
    ("JSON lines in UTF-16", JSONL + " {f}", {"f": '{"text": "a"}\n'.encode("utf-16")}, 65, ["[text.other_coding]", "UTF-16"]),
    ("JSON lines of nothing", JSONL + " {f}", {"f": b"\n \n"}, 65, ["[corpus.no_documents]"]),
    ("a surrogate alone in JSON lines", JSONL + " {f}", {"f": b'{"text": "\\ud800"}\n'}, 65, ["[json.invalid]", "line 1"]),
    # the tools' command lines
    ("a text format that there is not", CORPUS + " --format xml {train.txt}", {}, 64, ["[text.unknown_format]"]),
    ("a label of text that has none", CORPUS + " --label g {train.txt}", {}, 64, ["--label"]),
    ("a corpus without a tokenizer", "bagpipe-data corpus --out {out} {train.txt}", {}, 64, ["--tokenizer"]),
    ("a corpus without text", CORPUS, {}, 64, ["no"]),
    ("a corpus over its own text", "bagpipe-data corpus --tokenizer {tokenizer.json} --out {f} {f}", {"f": b"a\n"}, 64, ["[command.same_output]"]),
    ("a corpus into a folder that is not there", "bagpipe-data corpus --tokenizer {tokenizer.json} --out {out}/x/y.h5 {train.txt}", {}, 73, ["No such file"]),
    ("a vocabulary without a size", TOKENIZER + " {train.txt}", {}, 64, ["--size"]),
    ("a vocabulary of 256 in byte-level BPE", TOKENIZER + " --size 256 {train.txt}", {}, 64, ["257"]),
    ("a size that is no number", TOKENIZER + " --size 1e3 {train.txt}", {}, 64, ["1e3"]),
    ("a size of 2^64", TOKENIZER + " --size 18446744073709551616 {train.txt}", {}, 64, ["18446744073709551616"]),
    ("a kind of tokenizer that there is not", TOKENIZER + " --kind sentence --size 99 {train.txt}", {}, 64, ["sentence"]),
    ("a vocab.json without merges.txt", TOKENIZER + " --vocab {f}", {"f": b"{}"}, 64, ["--merges"]),
    ("a tokenizer.json behind a byte order mark", TOKENIZER + " --from {f}", {"f": ("mark", "tokenizer.json")}, 0, []),
    ("a tokenizer.json that is a list", TOKENIZER + " --from {f}", {"f": b"[]"}, 65, ["{f}"]),
    ("a tokenizer.json of zero bytes", TOKENIZER + " --from {f}", {"f": b""}, 65, ["[json.invalid]"]),
    ("texts to encode without a tokenizer", "bagpipe-data encode the", {}, 64, ["[command.no_input]", "there is no tokenizer"]),
    ("a tokenizer to encode with, but no text", "bagpipe-data encode --tokenizer {tokenizer.json}", {}, 64, ["[command.no_input]", "there is no text"]),
    ("texts to encode with a tokenizer that is missing", "bagpipe-data encode --tokenizer {none} the", {}, 66, ["{none}", "No such file"]),
    ("a file to inspect that is missing", "bagpipe-data inspect {none}", {}, 66, ["No such file"]),
    ("a file to verify that is text", "bagpipe-data verify {train.txt}", {}, 65, ["{train.txt}"]),
    ("rows of a table that are no number", "bagpipe-data table --head many {train.h5}", {}, 64, ["many"]),
    ("a table of text", "bagpipe-data table {train.txt}", {}, 65, ["{train.txt}"]),
    # import and export
    ("an export to where something is", "bagpipe-data export {model} --out {f}", {"f": b""}, 73, ["[file.in_the_way]"]),
    ("an export of a run that is none", "bagpipe-data export {none} --out {out}", {}, 66, ["{none}"]),
    ("an export of a corpus", "bagpipe-data export {train.h5} --out {out}", {}, 66, ["[checkpoint.none]", "{train.h5}"]),
    ("an export with another tokenizer", "bagpipe-data export {model} --out {out} --tokenizer {other.json}", {}, 65, ["[tokenizer.mismatch]"]),
    ("an import of a folder without config.json", "bagpipe-data import {hf} --out {out}", {"hf/notes.txt": b"-"}, 66, ["config.json", "[import.no_model]"]),
    ("an import of a config.json that is a list", "bagpipe-data import {hf} --out {out}", {"hf/config.json": b"[]"}, 65, ["config.json"]),
    ("an import of a quantized model", IMPORT, llama(quantization_config={"bits": 4}), 65, ["[huggingface.unsupported]", "\"quantization_config\""]),
    ("an import of a model with code of its own", IMPORT, llama(auto_map={"AutoModel": "x.Y"}), 65, ["[huggingface.unsupported]", "\"auto_map\""]),
    ("an import of scaled positions of a type that there is not", IMPORT, llama(rope_scaling={"rope_type": "mrope", "factor": 2.0}), 65,
     ["[huggingface.unsupported]", "\"rope_scaling.rope_type\""]),
    ("an import of scaled positions with two types", IMPORT, llama(rope_scaling={"rope_type": "llama3", "type": "linear"}), 65, ["[huggingface.contradiction]"]),
    ("an import of scaled positions without a factor", IMPORT, llama(rope_scaling={"type": "linear"}), 65, ["[huggingface.bad_rope]", "\"rope_scaling\""]),
    ("an import of scaled positions with a member that nobody knows", IMPORT, llama(rope_scaling={"type": "linear", "factor": 2.0, "mystery": 1}), 65,
     ["[huggingface.unknown_key]", "\"rope_scaling\""]),
    ("an import of heads that key heads do not divide", IMPORT, llama(num_key_value_heads=3), 65,
     ["[huggingface.not_dividing]", "\"num_key_value_heads\""]),
    ("an import of heads without pairs to turn", IMPORT, llama(head_dim=7), 65, ["[huggingface.odd_heads]"]),
    ("an import of a GPT-NeoX that turns an odd part of a head", IMPORT, llama(model_type="gpt_neox", hidden_act="gelu", rotary_pct=0.4), 65,
     ["[huggingface.bad_rope]", "\"rotary_pct\""]),
    ("an import of a Qwen2 with windows", IMPORT, llama(model_type="qwen2", layer_types=["sliding_attention"]), 65, ["[huggingface.unsupported]", "\"layer_types\""]),
    ("a key of another family", PRETRAIN + " model.rope_theta=1000", {}, 78, ["[model.unused_key]", "model.kind = gpt"]),
    ("a list of factors of positions that is none", PRETRAIN + " model.kind=llama model.rope_short_factors=1,0", {}, 78,
     ["[model.bad_reals]", "model.rope_short_factors = 1,0"]),
    ("a list of factors of positions that has not one for each pair", PRETRAIN + " model.kind=llama model.rope_scaling=longrope"
     " model.rope_short_factors=1,2 model.rope_long_factors=1,2", {}, 78, ["[model.bad_rope]", "model.rope_short_factors"]),
    ("scaled positions without a factor", PRETRAIN + " model.kind=llama model.rope_scaling=linear", {}, 78, ["[model.missing_key]", "model.rope_factor"]),
    ("a factor without scaled positions", PRETRAIN + " model.kind=llama model.rope_factor=2", {}, 78, ["[model.unused_key]", "model.rope_scaling = none"]),
    ("a fraction of a head that has no pairs", PRETRAIN + " model.kind=gpt_neox model.rope_fraction=0.1", {}, 78,
     ["[model.bad_rope]", "model.rope_fraction = 0.1"]),
    ("an import of another architecture", "bagpipe-data import {hf} --out {out}", {"hf/config.json": b'{"model_type": "mamba"}'}, 65, ["mamba"]),
    ("an import with and without a tokenizer", "bagpipe-data import {hf} --out {out} --tokenizer {tokenizer.json} --no-tokenizer", {}, 64, ["exclude"]),
    # configuration and command line of jobs
    ("an integer above its range by one, beyond what doubles hold", PRETRAIN + " run.seed=9007199254740993", {}, 78, ["[config.bad_value]", "run.seed = 9007199254740993"]),
    ("an integer of 2^63 - 1", PRETRAIN + " train.batch=9223372036854775807", {}, 78, ["[config.bad_value]", "train.batch = 9223372036854775807"]),
    ("a configuration with '=' in its name", "bagpipe check pretrain {lr=0.1.ini} run.dir={out}", {"lr=0.1.ini": ("copy", "small.ini")}, 0, []),
    ("a configuration with '=' in its name, by a name without a folder", "bagpipe check pretrain run.dir={out} lr=0.1.ini",
     {"lr=0.1.ini": ("copy", "small.ini")}, 0, []),
    ("a file with '=' in its name that is missing", "bagpipe pretrain {lr=0.1/none.ini} run.dir={out}", {}, 66, ["No such file"]),
    ("bytes in a unit that there is not", PRETRAIN + " run.memory=4GB", {}, 78, ["[config.bad_value]", "run.memory = 4GB"]),
    ("bytes beyond 2^63", PRETRAIN + " run.memory=9223372036854775807GiB", {}, 78, ["[config.bad_value]"]),
    ("a key without a section", PRETRAIN + " steps=4", {}, 78, ["[config.unknown_key]", "train.steps"]),
    ("an option that there is not", PRETRAIN + " --dry-run", {}, 64, ["[command.unknown_option]"]),
    ("ranks of a plan that are no number", PRETRAIN + " --plan --ranks many", {}, 64, ["[command.bad_number]"]),
    ("nodes without ranks", PRETRAIN + " --plan --nodes 2", {}, 64, ["[command.no_ranks]"]),
    ("more nodes than ranks", PRETRAIN + " --plan --ranks 2 --nodes 4", {}, 64, ["[command.bad_nodes]"]),
    ("a network file without a job to come", PRETRAIN + " --plan --network net.ini", {}, 64, ["[command.no_scale]"]),
    ("a schedule without a file's name", PRETRAIN + " --plan --ranks 2 --schedule=", {}, 64, ["[command.no_file]"]),
    ("a network file with a key that there is not", PRETRAIN + " --plan --ranks 2 --network {net.ini}", {"net.ini": b"[network]\nspeed = 1\n"}, 78,
     ["[config.unknown_key]", "network.speed"]),
    ("a network file with a latency below 0", PRETRAIN + " --plan --ranks 2 --network {net.ini}", {"net.ini": b"[network]\nnode_latency = -1\n"}, 78,
     ["[config.bad_value]", "network.node_latency"]),
    ("a network file that is missing", PRETRAIN + " --plan --ranks 2 --network {none.ini}", {}, 66, ["No such file"]),
    ("a model kind that there is not", PRETRAIN + " model.kind=mamba", {}, 78, ["[config.bad_value]", "model.kind = mamba"]),
    ("a rate of warmup beyond a number", PRETRAIN + " optimizer.warmup=0.1", {}, 78, ["[config.bad_value]", "optimizer.warmup = 0.1"]),
    ("an initial model that is a corpus", PRETRAIN + " model.init={train.h5}", {}, 66, ["[checkpoint.none]", "train.h5"]),
    # scores, ensembles
    ("a Hugging Face folder where a checkpoint is asked for", FOREIGN + " score.model={hf}", {"hf/config.json": b"{}"}, 66,
     ["[checkpoint.foreign]", "bagpipe-data import {hf} --out {hf}.checkpoint"]),
    ("an ARPA file, with gzip, where a checkpoint is asked for", FOREIGN + " score.model={lm.arpa.gz}", {"lm.arpa.gz": b"\x1f\x8b"}, 66,
     ["[checkpoint.foreign]", "bagpipe-data import {lm.arpa.gz} --out {lm.arpa.gz}.checkpoint"]),
    ("a GGUF file where a checkpoint is asked for", FOREIGN + " score.model={lm.gguf}", {"lm.gguf": b"GGUF"}, 66,
     ["[checkpoint.foreign]", "bagpipe-data import {lm.gguf} --out"]),
    ("a scored model that is missing", "bagpipe score {small.ini} run.dir={out} score.corpus={valid.h5} score.model={none}", {}, 66, ["{none}"]),
    ("a scored corpus that is missing", SCORE + " score.corpus={none}", {}, 66, ["{none}"]),
    ("two scored corpora of one name", SCORE + " score.corpus={valid.h5},{twin/valid.h5}", {"twin/valid.h5": ("copy", "valid.h5")}, 78, ["valid"]),
    ("a context longer than the model's", SCORE + " score.corpus={valid.h5} score.context=33", {}, 78, ["score.context", "32"]),
    ("a stride longer than the context", SCORE + " score.corpus={valid.h5} score.stride=33", {}, 78, ["score.stride"]),
    ("a convention that there is not", SCORE + " score.corpus={valid.h5} score.convention=sliding", {}, 78, ["[config.bad_value]", "score.convention = sliding"]),
    ("an ensemble.json without members", "bagpipe score {small.ini} run.dir={out} score.corpus={valid.h5} score.model={list}",
     {"list/ensemble.json": b'{"members": []}'}, 65, ["members"]),
    ("an ensemble.json with a key that is not known", "bagpipe score {small.ini} run.dir={out} score.corpus={valid.h5} score.model={list}",
     {"list/ensemble.json": b'{"members": [{"name": "a", "path": "a", "weight": 1}]}'}, 65, ["weight"]),
    ("an ensemble.json whose member is missing", "bagpipe score {small.ini} run.dir={out} score.corpus={valid.h5} score.model={list}",
     {"list/ensemble.json": b'{"members": [{"name": "a", "path": "gone"}]}'}, 66, ["gone"]),
    ("a member that an ensemble has not", ENSEMBLE + " ensemble.only=2", {}, 78, ["ensemble.only"]),
    ("an ensemble of no members", "bagpipe ensemble {small.ini} run.dir={out} ensemble.members=0", {}, 78, ["[config.bad_value]", "ensemble.members = 0"]),
    # compare
    ("scores that are missing", COMPARE + " {scores} {none}", {}, 66, ["{none}"]),
    ("one score folder", COMPARE + " {scores}", {}, 64, ["two"]),
    ("resamples below 100", COMPARE + " {scores} {scores} --resamples 9", {}, 64, ["[command.bad_number]"]),
    ("a summary with another number of documents than its table", COMPARE + " {scores} {lying}", {"lying/": ("summary", ["documents"])}, 65,
     ["[scores.not_of_one_run]", "{lying}"]),
    ("a summary with another number of a corpus's documents", COMPARE + " {lying} {scores}",
     {"lying/": ("summary", ["corpora", "valid", "documents"])}, 65, ["[scores.not_of_one_run]", "{lying}"]),
    ("a summary with another number of tokens", COMPARE + " {scores} {lying}", {"lying/": ("summary", ["tokens"])}, 65, ["[scores.not_of_one_run]"]),
    ("a summary that is cut", COMPARE + " {scores} {lying}", {"lying/": ("cut", None)}, 65, ["[json.invalid]", "summary.json"]),
]


class BadTable(JobTest):
    TEXT_BYTES = 30_000

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.at('model')}", "train.steps=1"])
        cls.must(["bagpipe", "score", cls.at("small.ini"), f"run.dir={cls.at('scores')}", f"score.model={cls.at('model')}",
                  f"score.corpus={cls.at('valid.h5')}"])
        cls.must(["bagpipe-data", "tokenizer", "--kind", "char", "--size", 60, "--out", cls.at("other.json"), cls.at("valid.txt")])

    def put(self, folder, name, what):
        """A file of the row: bytes, or a change of one that is there."""
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if isinstance(what, bytes):
            content = what
        elif what[0] in ("copy", "mark"):
            with open(self.at(what[1]), "rb") as file:
                content = (BOM if what[0] == "mark" else b"") + file.read()
        else:
            shutil.copytree(self.at("scores"), path, dirs_exist_ok=True)
            path = os.path.join(path, "score", "summary.json")
            with open(path, "rb") as file:
                content = file.read()
            if what[0] == "cut":
                content = content[:len(content) // 2]
            else:
                summary = place = json.loads(content)
                for key in what[1][:-1]:
                    place = place[key]
                place[what[1][-1]] += 1
                content = json.dumps(summary).encode()
        with open(path, "wb") as file:
            file.write(content)

    def check(self, number):
        name, command, files, status, words = ROWS[number]
        folder = self.at(f"row{number}")
        os.mkdir(folder)
        for file, what in files.items():
            self.put(folder, file, what)

        def spell(word):
            return re.sub(r"\{([^}]*)\}", lambda m: os.path.join(folder, m[1]) if not os.path.exists(self.at(m[1])) or m[1] in files else self.at(m[1]), word)

        arguments = [spell(word) for word in command.split(" ")]
        result = run([program(arguments[0])] + arguments[1:], cwd=folder)
        errors = [line for line in result.err.split("\n") if re.match(r"bagpipe(-data)?: error\[", line)]
        what = f"{name}: {result}"
        self.assertEqual(result.status, status, what)
        self.assertEqual(len(errors), 1 if status else 0, what)
        for word in words:
            self.assertIn(spell(word), errors[0], what)
        out = os.path.join(folder, "out")
        made = os.path.isfile(out) or os.path.exists(os.path.join(out, "checkpoints"))
        self.assertEqual(made, status == 0 and arguments[1] != "check", what)
        self.assertEqual([n for n in os.listdir(folder) if ".tmp" in n], [], what)

    def test_every_row_is_answered_as_documented(self):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for number, future in enumerate([pool.submit(self.check, n) for n in range(len(ROWS))]):
                with self.subTest(row=ROWS[number][0]):
                    future.result()

    def test_every_row_is_in_the_docs(self):
        with open(DOCS, encoding="utf-8") as file:
            docs = file.read()
        for name, _, _, status, words in ROWS:
            with self.subTest(row=name):
                self.assertIn(f"| {name} | {status} |", docs)
                row = docs.split(f"| {name} | {status} |")[1].split("\n")[0]
                self.assertEqual([word for word in words if re.fullmatch(r"\[.*\]", word) and word not in row], [])

    def test_values_of_labels_are_of_one_type_whatever_rank_reads_them(self):
        self.write("mixed.jsonl", "".join(json.dumps({"text": "a", "g": g}) + "\n" for g in (1, 1.0, "a", None, "1", 3)))
        arguments = ["corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--label", "g", "--out", self.at("labels.h5")]
        said = {run([program("bagpipe-data")] + arguments + [self.at("mixed.jsonl")], ranks).err for ranks in (0, 3)}
        self.assertEqual(len(said), 1, said)
        self.assertIn("mixed.jsonl, line 5;", said.pop())
        self.write("numbers.jsonl", "".join(json.dumps({"text": "a", "g": g}) + "\n" for g in (1, 1.0, 1e20, 1)))
        self.must(["bagpipe-data"] + arguments + [self.at("numbers.jsonl")])
        rows = self.must(["bagpipe-data", "table", self.at("labels.h5")]).out.split()
        self.assertEqual([row.split(",")[-1] for row in rows[1:]], ["1", "1.0", "1e+20", "1"])

    # ---- what killed commands leave ----

    def hidden(self, name):
        return [n for n in os.listdir(self.folder) if n.startswith(f".tmp-{name}")]

    def killed_and_repeated(self, name, arguments):
        """The command is killed as its hidden folder is there; what it and older ones left goes with the next one, and nothing else."""
        older, other = f".tmp-{name}-0123456789abcdef", f".tmp-{name}-more-0123456789abcdef"
        for folder in (older, other):
            os.mkdir(self.at(folder))
        process = self.background([program("bagpipe-data")] + arguments)
        self.until(lambda: [n for n in self.hidden(name) if n not in (older, other)])
        self.assertNotIn(older, self.hidden(name))
        self.assertIn(other, self.hidden(name))
        process.kill()
        process.wait()
        self.assertGreater(len(self.hidden(name)), 1)  # it was killed at work
        self.must(["bagpipe-data"] + arguments)
        self.assertEqual(self.hidden(name), [other])
        os.rmdir(self.at(other))

    def test_what_killed_imports_and_exports_left_goes_with_the_next(self):
        self.must(["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={self.at('large')}", "train.steps=1", "train.batch=1",
                   "model.width=1024", "model.layers=4"])
        self.killed_and_repeated("hf-large", ["export", self.at("large"), "--out", self.at("hf-large")])
        self.killed_and_repeated("imported", ["import", self.at("hf-large"), "--out", self.at("imported")])


if __name__ == "__main__":
    bagpipe_test.main()
