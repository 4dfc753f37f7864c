"""bagpipe-data import of real saves: names of tensors that other programs changed, base classes without a head, tokenizers of older folders,
and files of other kinds, which are refused by what they are."""
import gzip
import json
import os
import shutil
import subprocess

import bagpipe_test
import encoders
import numpy
from bagpipe_test import JobTest, program, read_json, run

SHORT = ["train.steps=1", "train.batch=2", "corpus.valid="]


def byte_names():
    """GPT-2's characters for the 256 bytes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(byte if byte in shown else 256 + sum(b not in shown for b in range(byte))) for byte in range(256)]


def tensors_of(folder):
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        head, data = json.loads(file.read(int.from_bytes(file.read(8), "little"))), file.read()
    return {name: (tensor["shape"], data[slice(*tensor["data_offsets"])]) for name, tensor in head.items() if name != "__metadata__"}


class Import(JobTest):
    VOCABULARY = 280
    TEXT_BYTES = 6000

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.must(["bagpipe-data", "tokenizer", "--kind", "wordpiece", "--size", 200, "--out", cls.at("pieces.json"), cls.at("train.txt")])
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("pieces.json"), "--format", "lines", "--out", cls.at("pieces.h5"), cls.at("train.txt")])
        for kind, keys in (("gpt", []), ("bert", [f"corpus.train={cls.at('pieces.h5')}", "mask.next_sentence=no"]),
                           ("roberta", [f"corpus.train={cls.at('pieces.h5')}", "model.first_position=1"])):
            cls.must(["bagpipe", "pretrain", cls.at("small.ini"), "run.dir=" + cls.at(kind), "model.kind=" + kind, *SHORT, *keys])
            cls.must(["bagpipe-data", "export", cls.at(kind), "--out", cls.at(kind + "-folder"), "--no-tokenizer"])

    def changed(self, name, of, rename=lambda name: name, architecture=None):
        """A copy of a folder, its tensors renamed (None: left out)."""
        folder = self.at(name)
        shutil.copytree(self.at(of + "-folder"), folder)
        with open(os.path.join(folder, "model.safetensors"), "rb") as file:
            head, data, out = json.loads(file.read(int.from_bytes(file.read(8), "little"))), file.read(), b""
        head.pop("__metadata__", None)
        tensors = {}
        for old, tensor in head.items():
            if rename(old) is not None:
                first, end = tensor["data_offsets"]
                tensors[rename(old)] = {**tensor, "data_offsets": [len(out), len(out) + end - first]}
                out += data[first:end]
        text = json.dumps(tensors).encode()
        with open(os.path.join(folder, "model.safetensors"), "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text + out)
        if architecture:
            config = read_json(folder, "config.json")
            config["architectures"] = [architecture]
            self.write(name + "/config.json", json.dumps(config))
        return folder

    def imported(self, folder, *more):
        out = folder + "-in"
        return out, self.must(["bagpipe-data", "import", folder, "--out", out, *more])

    def digests_of(self, folder):
        return {tensor["name"]: tensor["digest"] for tensor in read_json(folder, "manifest.json")["tensors"]}

    def test_names_of_real_saves(self):
        for kind in ("gpt", "bert", "roberta"):
            plain = self.digests_of(self.imported(self.changed(kind + "-plain", kind))[0])
            for number, prefix in enumerate(("_orig_mod.", "module.", "base_model.model.", "module._orig_mod.")):
                with self.subTest(kind, prefix=prefix):
                    out, result = self.imported(self.changed(f"{kind}-{number}", kind, lambda name: prefix + name))
                    self.assertEqual(self.digests_of(out), plain)
                    self.assertIn(f"without '{prefix}'", str(result))
        out, result = self.imported(self.changed("gpt-inside", "gpt", lambda name: "_orig_mod." + name.replace("h.1.", "h.1._fsdp_wrapped_module.")))
        self.assertEqual(self.digests_of(out), self.digests_of(self.at("gpt-plain-in")))
        self.assertRegex(str(result), r"without '_orig_mod\.(_fsdp_wrapped_module\.)?'")
        out, _ = self.imported(self.changed("gpt-tied", "gpt", lambda name: "lm_head.weight" if name.endswith("wte.weight") else name))
        self.assertEqual(self.digests_of(out), self.digests_of(self.at("gpt-plain-in")))

    def test_a_base_class_is_tuned_and_no_more(self):
        self.write("rows.jsonl", "".join(json.dumps({"text": "the ship was at sea", "topic": "ab"[k % 2]}) + "\n" for k in range(8)))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("pieces.json"), "--format", "jsonl", "--label", "topic", "--out", self.at("rows.h5"),
                   self.at("rows.jsonl")])
        for kind, head, name in (("bert", "cls.", "BertModel"), ("roberta", "lm_head.", "RobertaModel")):
            with self.subTest(kind):
                folder = self.changed(kind + "-base", kind, lambda name: None if name.startswith(head) else name.removeprefix(kind + "."), name)
                base, result = self.imported(folder, "--tokenizer", self.at("pieces.json"))
                self.assertIn("head: none", str(result))
                self.must(["bagpipe", "finetune", self.at("small.ini"), "run.dir=" + self.at(kind + "-tuned"), "model.init=" + base,
                           *[f"model.{size}=" for size in ("layers", "width", "heads", "context")], f"corpus.train={self.at('rows.h5')}", *SHORT,
                           "task.kind=classes", "task.label=topic"])
                self.assert_error(run([program("bagpipe"), "score", self.at("small.ini"), "run.dir=" + self.at(kind + "-scored"), "score.model=" + base,
                                       "score.corpus=" + self.at("pieces.h5")]), 65, "[tensor.no_head]")
                again = self.at(kind + "-again")
                self.must(["bagpipe-data", "export", base, "--out", again])
                self.assertEqual(read_json(again, "config.json")["architectures"], [name])
                self.assertEqual(tensors_of(again), tensors_of(folder))

    def test_tokenizers_of_older_folders(self):
        vocabulary = sorted(read_json(self.at("pieces.json"))["model"]["vocab"].items(), key=lambda item: item[1])
        folder = self.changed("old-bert", "bert")
        self.write("old-bert/vocab.txt", "".join(token + "\n" for token, _ in vocabulary))
        self.assertIn("tokenizer: wordpiece", str(self.imported(folder)[1]))
        self.write("old-bert/tokenizer_config.json", json.dumps({"do_lower_case": False, "strip_accents": True, "model_max_length": 10 ** 30}))
        self.assert_error(run([program("bagpipe-data"), "import", folder, "--out", self.at("x")]), 65, "[import.other_bert]", "--no-tokenizer")
        folder = self.changed("old-roberta", "roberta")
        tokens = ["<s>", "<pad>", "</s>", "<unk>", *byte_names()[:100]]
        self.write("old-roberta/vocab.json", json.dumps({token: k for k, token in enumerate(tokens)}))
        self.write("old-roberta/merges.txt", "#version: 0.2\n")
        self.assert_error(run([program("bagpipe-data"), "import", folder, "--out", self.at("x")]), 65, "[vocabulary.no_byte]", "--no-tokenizer")
        folder = self.changed("spm", "gpt")
        self.write("spm/tokenizer.model", "x")
        _, result = self.imported(folder)
        self.assertIn("[import.tokenizer_left]", str(result))
        self.assertIn("tokenizer.model", str(result))

    def test_the_pair_of_roberta(self):
        """Its ids are those of the tokenizer.json that transformers makes of the pair."""
        tokens = ["<s>", "<pad>", "</s>", "<unk>", *byte_names(), "th", "the", "\u0120the", "<mask>"]
        vocabulary, merges = {token: k for k, token in enumerate(tokens)}, [["t", "h"], ["th", "e"], ["\u0120", "the"]]
        flags = {"single_word": False, "rstrip": False, "normalized": False, "special": True}
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
        ends = {"sep": ["</s>", 2], "cls": ["<s>", 0]}
        self.write("whole.json", json.dumps({
            "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": level, "decoder": level,
            "added_tokens": [{"id": vocabulary[token], "content": token, "lstrip": token == "<mask>", **flags} for token in (*tokens[:4], "<mask>")],
            "post_processor": {"type": "RobertaProcessing", **ends, "trim_offsets": True, "add_prefix_space": False},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False,
                      "vocab": vocabulary, "merges": merges}}))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("whole.json"), "--format", "lines", "--out", self.at("whole.h5"), self.at("train.txt")])
        self.must(["bagpipe", "pretrain", self.at("small.ini"), "run.dir=" + self.at("whole"), "model.kind=roberta", *SHORT, f"corpus.train={self.at('whole.h5')}"])
        self.must(["bagpipe-data", "export", self.at("whole"), "--out", self.at("whole-folder"), "--no-tokenizer"])
        self.write("whole-folder/vocab.json", json.dumps(vocabulary))
        self.write("whole-folder/merges.txt", "#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in merges))
        out, result = self.imported(self.at("whole-folder"))
        self.assertIn(f"tokenizer: bpe, {len(tokens)} tokens", str(result))
        texts = ["the ship, the sea <mask> the", "  then th\u00e9 </s>", "in the"]
        encoded = [self.must(["bagpipe-data", "encode", "--tokenizer", json_file, *texts]).out
                   for json_file in (self.at("whole.json"), os.path.join(out, "tokenizer.json"))]
        self.assertEqual(*encoded)
        self.assertIn(str(vocabulary["\u0120the"]), encoded[0])

    def test_the_pair_of_the_first_gpt(self):
        """Lower case without accents, words and marks apart, and </w> after each; names of tensors without a prefix, as its folder has them."""
        letters, merges = "abcdefghijklmnopqrstuvwxyz.,!", [("t", "h"), ("th", "e</w>"), ("l", "o"), ("lo", "w</w>")]
        tokens = ["<unk>", *letters, *(one + "</w>" for one in letters), *(a + b for a, b in merges)]
        random = numpy.random.default_rng(1)
        shapes = {"tokens_embed.weight": (len(tokens), 8), "positions_embed.weight": (12, 8), "h.0.attn.bias": (1, 1, 12, 12)}
        for name, rows, columns in (("attn.c_attn", 8, 24), ("attn.c_proj", 8, 8), ("mlp.c_fc", 8, 32), ("mlp.c_proj", 32, 8)):
            shapes.update({f"h.0.{name}.weight": (rows, columns), f"h.0.{name}.bias": (columns,)})
        for name in ("ln_1", "ln_2"):
            shapes.update({f"h.0.{name}.weight": (8,), f"h.0.{name}.bias": (8,)})
        config = {"model_type": "openai-gpt", "architectures": ["OpenAIGPTLMHeadModel"], "afn": "gelu", "n_layer": 1, "n_embd": 8, "n_head": 2, "n_positions": 12, "n_ctx": 12,
                  "n_special": 0, "predict_special_tokens": True, "summary_type": "cls_index", "vocab_size": len(tokens)}
        encoders.write_folder(self.at("first"), config, {name: random.normal(size=shape) for name, shape in shapes.items()})
        self.write("first/vocab.json", json.dumps({token: k for k, token in enumerate(tokens)}))
        self.write("first/merges.txt", "#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in merges))
        out, result = self.imported(self.at("first"))
        self.assertIn("1 buffers and copies", str(result))
        lines = self.must(["bagpipe-data", "encode", "--tokenizer", os.path.join(out, "tokenizer.json"), "The LOW, th\u00e9 lot 7!"]).out.splitlines()[1:]
        self.assertEqual([tokens[int(line.split(",")[1])] for line in lines], ["the</w>", "low</w>", ",</w>", "the</w>", "lo", "t</w>", "<unk>", "!</w>"])
        self.write("first/vocab.json", json.dumps({token: k for k, token in enumerate(tokens) if k}))
        self.assert_error(run([program("bagpipe-data"), "import", self.at("first"), "--out", self.at("x")]), 65, "[vocabulary.no_special]", "<unk>")

    def test_a_compressed_file_that_is_cut_short_is_no_empty_one(self):
        whole = gzip.compress(b"\\data\\\nngram 1=3\n\n\\1-grams:\n-1 <s> -1\n-1 </s>\n-1 a\n\n\\end\\\n")
        for length in (15, 40, len(whole) - 1):
            with open(self.at("cut.arpa.gz"), "wb") as file:
                file.write(whole[:length])
            self.assert_error(run([program("bagpipe-data"), "import", self.at("cut.arpa.gz"), "--out", self.at("never")]), 65, "[text.damaged]", "truncated")

    def test_a_pickle_is_refused_with_the_command_that_converts_it(self):
        """The command is run with modules in the place of PyTorch and safetensors."""
        folder = self.changed("pickled", "gpt")
        os.rename(os.path.join(folder, "model.safetensors"), self.at("weights"))
        for name in ("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin", "pytorch_model.bin.index.json"):
            self.write("pickled/" + name, name)
        result = run([program("bagpipe-data"), "import", folder, "--out", self.at("never")])
        self.assert_error(result, 66, "[huggingface.no_weights]", "weights_only=True")
        command = str(result)[str(result).index("python3 -c"):].split(" [huggingface")[0]
        os.makedirs(self.at("modules/safetensors"))
        self.write("modules/torch.py", "class Tensor:\n    def clone(self):\n        return self\n\n\ndef load(path, place, weights_only):\n"
                   "    assert place == 'cpu' and weights_only\n    return {path: Tensor()}\n")
        self.write("modules/safetensors/__init__.py", "")
        self.write("modules/safetensors/torch.py", "import shutil\n\n\ndef save_file(tensors, path, metadata):\n    assert len(tensors) == 2 and metadata == {'format': 'pt'}\n"
                   f"    shutil.copy({self.at('weights')!r}, path)\n")
        subprocess.run(["sh", "-c", command], cwd=folder, env={**os.environ, "PYTHONPATH": self.at("modules")}, check=True)
        self.imported(folder)

    def test_pointers_of_git_lfs_are_named(self):
        """What a clone without git-lfs has in the place of large files: alone, as weights, and as tokenizers."""
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 4976698672\n"
        folder = self.changed("pointer", "gpt")
        for file in (self.write("pointer/model.safetensors", pointer), self.write("pointer.json", pointer)):
            self.assert_error(run([program("bagpipe-data"), "import", file, "--out", self.at("never")]), 65, "[file.lfs_pointer]", file)
        self.assert_error(run([program("bagpipe-data"), "import", folder, "--out", self.at("never")]), 65, "[file.lfs_pointer]", "model.safetensors")
        self.assert_error(run([program("bagpipe-data"), "encode", "--tokenizer", self.at("pointer.json"), "a"]), 65, "[file.lfs_pointer]")

    def test_files_of_other_kinds_are_named(self):
        header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        files = {"m.ggml": (b"ggml\3\0\0\0", "GGML"), "pytorch_model.bin": (b"PK\3\4" + bytes(30), "PyTorch"), "old.bin": (b"\x80\2}q\0.", "pickle"),
                 "model.safetensors": (len(header).to_bytes(8, "little") + header + bytes(4), "safetensors"), "w.h5": (b"\x89HDF\r\n\x1a\n" + bytes(9), "HDF5"),
                 "lm.binary": (b"mmap lm http://kheafield.com/code format version 5\n\0", "KenLM"), "lm.arpa": (b"ngram 1=5\n\n\\1-grams:\n", "\\data\\"),
                 "glove.txt": (b"the " + b"0.25 " * 49 + b"0.5\n", "first line"), "config.json": (b"{}", "JSON"), "text.txt": (b"a text\n", "no kind"),
                 "text.gz": (gzip.compress(b"a text\n"), "no kind"), "empty": (b"", "empty"), "m.tar": (bytes(257) + b"ustar\x0000", "tar"),
                 "page.arpa": (b"<!DOCTYPE html>\n<html>", "web"), "utf16.arpa": ("\\data\\\nngram 1=5\n".encode("utf-16"), "UTF-16")}
        for name, (content, word) in files.items():
            with self.subTest(name):
                with open(self.at(name), "wb") as file:
                    file.write(content)
                self.assert_error(run([program("bagpipe-data"), "import", self.at(name), "--out", self.at("never")]), 65, "[import.other_kind]", word)
        for name, word in (("adapter_config.json", "PEFT"), ("m.gguf", "GGUF"), ("a.safetensors", "config.json"), ("params.json", "makers"), ("manifest.json", "checkpoint")):
            with self.subTest(name):
                os.mkdir(self.at("folder-" + name))
                self.write(f"folder-{name}/{name}", "{}")
                self.assert_error(run([program("bagpipe-data"), "import", self.at("folder-" + name), "--out", self.at("never")]), 65, "[import.other_kind]", word)
        scored = self.at("scored")
        self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={scored}", f"score.model={self.at('gpt')}", f"score.corpus={self.at('valid.h5')}"])
        for folder, words in ((self.at("gpt"), ["job pretrain", "score.model", "export"]), (scored, ["job score", "bagpipe-data compare", "table its score/documents.h5"]),
                              (os.path.join(self.at("gpt"), "checkpoints"), ["checkpoints", "run folder"])):
            self.assert_error(run([program("bagpipe-data"), "import", folder, "--out", self.at("never")]), 65, "[import.other_kind]", *words)
        for name, lacks, has in (("text.txt", ["config.json and model.safetensors", "*options.json and *weights.hdf5"], []),
                                 ("a.index.json", ["config.json and model.safetensors"], []), ("x_options.json", ["*weights.hdf5"], ["*options.json"]),
                                 ("model.safetensors.index.json", ["config.json,"], ["model.safetensors"])):
            with self.subTest(name):
                os.mkdir(self.at("no-" + name))
                self.write(f"no-{name}/{name}", "{}")
                result = run([program("bagpipe-data"), "import", self.at("no-" + name), "--out", self.at("never")])
                self.assert_error(result, 66, "[import.no_model]", *lacks)
                for word in has:
                    self.assertNotIn(word, result.err.split(": at ")[0])
        self.assert_error(run([program("bagpipe-data"), "import", self.at("nowhere"), "--out", self.at("never")]), 66, "[huggingface.no_folder]")

    def test_what_is_no_file_is_refused_and_not_waited_for(self):
        """Nobody writes to this pipe: who opens it waits for ever."""
        pipe, never = self.at("pipe"), self.at("never")
        os.mkfifo(pipe)
        for command in (["import", pipe], ["import", "/dev/zero"], ["tokenizer", "--vocab", pipe], ["tokenizer", "--vocab", pipe, "--merges", pipe], ["tokenizer", "--from", pipe]):
            with self.subTest(" ".join(command)):
                self.assert_error(run([program("bagpipe-data"), *command, "--out", never]), 66, "[file.not_regular]", command[-1])


if __name__ == "__main__":
    bagpipe_test.main()
