"""Files from elsewhere that are wrong, by number (docs/bad_inputs.md has the list): one line with these words, the documented status, an end
within the limit, and nothing left behind. Native corpora are given to a training on one rank and on four, the rest to the tools."""
import concurrent.futures
import os
import re
import shutil
import subprocess
import tempfile
import zlib

import bad_files as make
import bagpipe_test
from bagpipe_test import JobTest, program

ALL = os.environ.get("BAGPIPE_TEST_ALL") == "1"  # every row on four ranks too

# (number, name, maker, status, words)
TOKENIZERS = [
    (26, "empty vocabulary", make.tokenizer(text=lambda d: d.replace(d[d.index(b'"vocab"'):d.index(b', "merges"')], b'"vocab": {}')), 65,
     ["[vocabulary.missing]"]),
    (27, "token twice", make.tokenizer(text=lambda d: d.replace(b'"aa": 256', b'"aa": 256, "aa": 256')), 65, ["[json.invalid]"]),
    (28, "added token numbered otherwise", make.steps(lambda d: d["added_tokens"].append({"id": 4000, "content": "<x>"})), 65,
     ["[vocabulary.bad_id]", "4000"]),
    (29, "id beyond the size", make.tokenizer({"aa": 1 << 22}), 65, ["[vocabulary.bad_id]", "4194304"]),
    (29, "negative id", make.tokenizer({"aa": -1}), 65, ["[vocabulary.bad_id]", "-1"]),
    (30, "merge of an unknown part", make.tokenizer(merges=["a zz"]), 65, ["[merges.unknown_part]", "zz"]),
    (31, "id of 2^31", make.tokenizer({"aa": 2**31}), 65, ["[vocabulary.bad_id]", "2147483648"]),
    (32, "invalid UTF-8", make.tokenizer(text=lambda d: d.replace(b'"aa"', b'"\xff\xfe"')), 65, ["[json.invalid]"]),
    (33, "cut in the middle", make.tokenizer(text=lambda d: d[:len(d) // 2]), 65, ["[json.invalid]"]),
    (34, "bytes without a token", make.tokenizer(text=lambda d: d.replace(b'"b": 98', b'"bb": 98')), 65, ["[vocabulary.no_byte]", "0x62"]),
    (34, "empty token", make.tokenizer({"": 256}), 65, ["[vocabulary.empty_token]"]),
    (34, "unknown normalizer", make.steps(lambda d: d.update(normalizer={"type": "Rot13"})), 65, ["[tokenizer.unsupported]", "Rot13"]),
    (34, "unknown pre-tokenizer", make.steps(lambda d: d.update(pre_tokenizer={"type": "UnicodeScripts"})), 65, ["[tokenizer.unsupported]", "UnicodeScripts"]),
    (34, "unknown post-processor", make.steps(lambda d: d.update(post_processor={"type": "Rhyme"})), 65, ["[tokenizer.unsupported]", "Rhyme"]),
    (34, "unknown decoder", make.steps(lambda d: d.update(decoder={"type": "CTC"})), 65, ["[tokenizer.unsupported]", "CTC"]),
    (34, "unknown model", make.steps(lambda d: d["model"].update(type="Neural")), 65, ["[tokenizer.unsupported]", "Neural"]),
    (34, "bad regular expression", make.steps(lambda d: d.update(
        pre_tokenizer={"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated", "invert": False})), 65, ["[tokenizer.bad_regex]"]),
    (34, "charsmap longer than stated", make.steps(lambda d: d.update(normalizer=make.charsmap(4000, [0], b"a\0"))), 65, ["[tokenizer.bad_charsmap]"]),
    (34, "charsmap beyond itself", make.steps(lambda d: d.update(normalizer=make.charsmap(4, [0x7FFFFC00], b"a\0"))), 65, ["[tokenizer.bad_charsmap]"]),
    (34, "charsmap that is no base64", make.steps(lambda d: d.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "!"})), 65,
     ["[tokenizer.bad_charsmap]"]),
    (34, "score that is no number", make.steps(lambda d: d["model"]["vocab"].__setitem__(4, ["a", "NaN"])), 65, ["[vocabulary.bad_piece]", "4"]),
    (34, "score NaN", make.steps(lambda d: d["model"]["vocab"].__setitem__(4, ["a", float("nan")])), 65, ["[json.invalid]"]),
    (34, "two ids for a token", make.steps(lambda d: d["added_tokens"][1].update(id=5)), 65, ["[vocabulary.contradiction]"]),
    (34, "unk_id beyond the pieces", make.steps(lambda d: d["model"].update(unk_id=99)), 65, ["[vocabulary.no_unk]", "unk_id"]),
    (34, "template of an unknown token", make.steps(lambda d: d.update(post_processor={
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]})), 65,
     ["[vocabulary.no_special]", "<bos>"]),
]

SAFETENSORS = [
    (56, "header of 2^64 - 1 bytes", make.hf(length=lambda n: 2**64 - 1), 65, ["[safetensors.bad_header]", "18446744073709551615"]),
    (57, "header beyond the file", make.hf(length=lambda n: 50000), 65, ["[safetensors.truncated]", "50000"]),
    (58, "header of no bytes", make.hf(length=lambda n: 0), 65, ["[safetensors.truncated]", "0"]),
    (59, "header that is no object", make.hf(text=lambda t: "[" + t[1:-1] + "]"), 65, ["[safetensors.bad_header]"]),
    (60, "shape whose product wraps", make.hf(make.set_("ln_f.bias", shape=[4194305, 4194305, 211106198978564])), 65,
     ["ln_f.bias", "[safetensors.bad_tensor]"]),
    (60, "shape whose bytes wrap", make.hf(make.set_("ln_f.bias", shape=[2**62 + 2])), 65, ["ln_f.bias", "[safetensors.bad_tensor]"]),
    (61, "offsets swapped", make.hf(make.set_("ln_f.bias", data_offsets=[32, 0])), 65, ["ln_f.bias", "[safetensors.bad_tensor]"]),
    (62, "overlap", make.hf(make.shift("wpe.weight", -4, -4)), 65, ["[safetensors.bad_tensor]"]),
    (63, "hole", make.hf(lambda t: t.pop("wpe.weight")), 65, ["[safetensors.bad_tensor]"]),
    (64, "empty tensor inside another", make.hf(make.add("e", dtype="F32", shape=[0], data_offsets=[8, 8])), 65, ["[safetensors.bad_tensor]"]),
    (65, "a million tensors", make.hf(make.many), 65, ["[safetensors.bad_header]"]),
    (66, "unknown dtype", make.hf(make.set_("ln_f.bias", dtype="F33")), 65, ["[safetensors.unknown_dtype]", "'F33'"]),
    (67, "name twice", make.hf(text=lambda t: t.replace('"ln_f.bias"', '"ln_f.weight"')), 65, ["[json.invalid]"]),
    (68, "bytes after the last tensor", make.hf(rest=b"more"), 65, ["[safetensors.too_long]", "4"]),
    (69, "shard outside the folder", make.hf(index="../../x.safetensors"), 65, ["../../x.safetensors", "[huggingface.bad_index]"]),
    (69, "tensor named as a path", make.hf(text=lambda t: t.replace('"ln_f.bias"', '"../../x"')), 65, ["[huggingface.tensor_missing]", "ln_f.bias"]),
    (69, "config of 2^40 layers", make.hf(config={"n_layer": 2**40}), 65, ["[huggingface.bad_size]", "n_layer"]),
]

BOMB = make.zstd_bomb(9000)
TEXTS = [  # (..., format)
    (46, "invalid UTF-8 in JSON lines", lambda p: make.put(p, b'{"text": "good"}\n{"text": "\xff"}\n'), 65, ["[json.invalid]"], "jsonl"),
    (47, "line of 300 MB", lambda p: (make.put(p, b""), os.truncate(p, 300_000_000)), 65, ["[text.no_cut]"], "jsonl"),
    (50, "zstd bomb", lambda p: make.put(p, BOMB), 65, ["[text.damaged]"], "text"),
    (51, "zstd window of 2^31", lambda p: make.put(p, make.zstd_bomb(3, window=0xA8)), 65, ["[text.damaged]"], "text"),
    (52, "zstd frame cut", lambda p: make.put(p, make.zstd_bomb(3, last=False)), 65, ["[text.damaged]", "zstd"], "text"),
    (52, "zstd with a wrong checksum", lambda p: make.put(p, make.zstd_raw(b"some text\n" * 50, checksum=1)), 65, ["[text.damaged]", "zstd"], "text"),
    (52, "zstd and garbage", lambda p: make.put(p, make.zstd_raw(b"some text\n", garbage=b"garbage")), 65, ["[text.damaged]"], "text"),
]

CORPORA = [  # HDF5 of other programs
    (41, "token beyond the vocabulary", make.with_tokens(4321, 121), 65, ["[corpus.bad_token]", "121", "/tokens[4321]"]),
    (41, "negative token", make.with_tokens(4321, -1), 65, ["[corpus.bad_token]", "-1"]),
    (42, "doc_start not sorted", make.with_starts(0, 2000, 1000, 5000), 65, ["[corpus.bad_doc_start]"]),
    (43, "doc_start beyond the end", make.with_starts(0, 2000, 5001), 65, ["[corpus.bad_doc_start]", "5001"]),
    (44, "count times size wraps", make.instead(lambda f: f.create_dataset("tokens", (2**61 + 625,), dtype="u8", chunks=(2**16,))), 65, ["[h5.claims_too_much]"]),
    (50, "zstd bomb in a chunk", make.raw_chunk(32015, make.zstd_bomb(9000)), 65, ["[h5.failed]", "tokens"]),
    (50, "chunk that claims 2^40 bytes", make.raw_chunk(32015, make.zstd_bomb(1, content=2**40)), 65, ["[h5.failed]", "tokens"]),
    (50, "little file of a billion tokens", lambda p: bomb_of_chunks(p), 65, ["[corpus.claims_too_much]"]),
    (51, "chunk with a window of 2^31", make.raw_chunk(32015, make.zstd_bomb(1, window=0xA8)), 65, ["[h5.failed]", "tokens"]),
    (52, "chunk with a wrong checksum", make.raw_chunk(32015, make.zstd_raw(bytes(10000), checksum=1)), 65, ["[h5.failed]", "tokens"]),
    (52, "chunk cut short", make.raw_chunk(32015, make.zstd_raw(bytes(10000))[:900]), 65, ["[h5.failed]", "tokens"]),
    (52, "gzip chunk of noise", make.raw_chunk(1, make.some_bytes(400), values=(6,)), 65, ["[h5.failed]", "tokens"]),
    (52, "gzip chunk too short", make.raw_chunk(1, zlib.compress(bytes(700)), values=(6,)), 65, ["[h5.chunk_length]", "chunk 0 of /tokens", "fewer"]),
    (52, "gzip chunk too long", make.raw_chunk(1, zlib.compress(bytes(30000)), values=(6,)), 65, ["[h5.chunk_length]", "chunk 0 of /tokens", "more"]),
    (52, "gzip without a level", make.raw_chunk(1, make.some_bytes(400)), 65, ["[h5.failed]", "tokens"]),
    (54, "no documents", lambda p: make.corpus(p, tokens=[], starts=[0]).close(), 65, ["[corpus.no_documents]"]),
    (72, "2^62 values, none stored", make.with_(lambda f: f.create_dataset("extra", (2**40, 2**20, 4), dtype="u1", chunks=(2**10, 1, 1))), 0, []),
    (72, "five dimensions", make.instead(lambda f: f.create_dataset("tokens", (1, 1, 1, 1, 1))), 65, ["[h5.wrong_dims]", "tokens"]),
    (72, "five dimensions beside", make.with_(lambda f: f.create_dataset("extra", (1, 1, 1, 1, 1))), 0, []),
    (73, "tokens in /etc/passwd", make.instead(make.external(b"tokens", b"/etc/passwd")), 65, ["[h5.external]", "tokens"]),
    (73, "another dataset in /etc/passwd", make.with_(make.external(b"extra", b"/etc/passwd")), 0, []),
    (74, "external link", make.with_(lambda f: f.__setitem__("extra", make.h5py.ExternalLink("/etc/passwd", "/x"))), 0, []),
    (75, "soft link to itself", make.instead(lambda f: f.__setitem__("tokens", make.h5py.SoftLink("/tokens"))), 65, ["[h5.link]", "tokens"]),
    (75, "column behind a soft link", make.with_(make.column_elsewhere), 65, ["[h5.link]", "doc_bytes"]),
    (75, "labels behind a soft link", make.with_(make.labels_elsewhere), 65, ["[h5.link]", "labels"]),
    (76, "virtual dataset", make.with_(make.virtual), 0, []),
    (77, "unknown filter", make.raw_chunk(32099, bytes(10000)), 65, ["[h5.unknown_filter]", "tokens", "32099"]),
    (77, "unknown filter beside", make.raw_chunk(32099, bytes(10000), name=b"extra"), 0, []),
    (78, "chunk of 4 GiB - 1", make.with_(lambda f: f.create_dataset("extra", (2**33,), dtype="u1", chunks=(2**32 - 1,))), 0, []),
    (79, "tokens of variable length", make.instead(lambda f: f.create_dataset("tokens", (5,), dtype=make.h5py.vlen_dtype("u2"))), 65, ["[h5.wrong_type]", "tokens"]),
    (79, "names of variable length", make.with_(make.vlen_names), 65, ["[h5.wrong_type]", "doc_id"]),
    (79, "compound values", make.instead(make.compound), 65, ["[h5.wrong_type]", "tokens"]),
    (79, "references", make.instead(make.reference), 65, ["[h5.wrong_type]", "tokens"]),
    (79, "attribute that is a reference", make.with_(make.reference_attribute), 65, ["[h5.wrong_attribute]", "vocab_size"]),
    (79, "named type", make.instead(make.named_type), 65, ["[h5.named_type]", "tokens"]),
    (79, "scales of netCDF", make.with_(make.scales), 0, []),
    (79, "table of pandas", make.with_(make.tables), 0, []),
    (80, "5,000 attributes", make.with_(make.many_attributes), 0, []),
    (80, "groups nine deep", make.with_(make.nested), 0, []),
    (81, "user block of another", lambda p: make.corpus(p, userblock=512).close(), 65, ["[h5.not_hdf5]"]),
    (82, "group inside itself", make.with_(make.cycle), 0, []),
]


def bomb_of_chunks(path):
    """One chunk for all: a hard limit of HDF5's is that each is stored, so 2,000 of 1 MiB, of 36 bytes each."""
    make.raw_chunk(32015, *[make.zstd_bomb(7, rest=1 << 17)] * 1000, dtype="u1", count=2**20 * 1000, chunk=2**20)(path)


class BadFiles(JobTest):
    TEXT_BYTES = 20_000

    def refused(self, name, arguments, status, words, ranks=0, files=(), env=None):
        """Ends with this status and one line with these words; `files` are not there."""
        capacity = tempfile.mkdtemp(dir=self.folder)  # two of Open MPI's bare starts at once trip over each other in one
        os.chmod(capacity, 0o777)
        command = (["sh", bagpipe_test.MPIRUN, str(ranks)] if ranks else []) + [str(a) for a in arguments]
        try:
            result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=bagpipe_test.TIMEOUT, check=False,
                                    env=dict(bagpipe_test.environment(), TMPDIR=capacity, **(env or {})))
        except subprocess.TimeoutExpired:
            return f"{name}, {ranks} ranks: no end after {bagpipe_test.TIMEOUT} s"
        err = result.stderr.decode(errors="replace")
        said = [line for line in err.split("\n") if re.match(r"bagpipe(-data)?: error\[", line)]
        faults = []
        if result.returncode != status:
            faults.append(f"status {result.returncode}, not {status}")
        if len(said) != (status != 0) or (said and f": error[{status}]: " not in said[0]):
            faults.append("not one error line")
        if said and "; " not in said[0].rsplit(": at ", 1)[-1].rsplit(": in ", 1)[-1]:
            faults.append("no remedy")
        faults += [f"'{word}' is not said" for word in words if word not in err]
        faults += [f"{file} was left" for file in files if os.path.exists(file)]
        if os.environ.get("BP_TEST_TABLE"):  # rows for the documentation
            print(f"| {name} | {status} | {ranks or 1} | {said[0].replace(self.folder + '/', '') if said else ''} |")
        return f"{name}, {ranks} ranks: {', '.join(faults)}\n{err}" if faults else None

    def check(self, calls):
        """Three at a time: most of a start is waiting."""
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            found = [fault for fault in pool.map(lambda call: call(), calls) if fault]
        self.assertEqual(found, [], "\n".join(found))

    def train(self, number, name, path, status, words, *keys, ranks=0, env=None):
        run_dir = self.at(f"run-{number}-{name.replace(' ', '-').replace('/', '-')}-{ranks}")
        arguments = [program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={run_dir}", "train.steps=1",
                     f"corpus.train={path}", "corpus.valid="]
        return self.refused(f"{number} {name}", arguments + list(keys), status, words, ranks,
                            [os.path.join(run_dir, "checkpoints")] if status else [], env)

    def both(self, *row, all_ranks=True, **more):
        """The calls on one rank and on four."""
        return [lambda ranks=ranks: self.train(*row, ranks=ranks, **more) for ranks in ((0, 4) if all_ranks else (0,))]

    def file(self, number, name, maker, suffix=""):
        path = self.at(f"bad-{number}-{name.replace(' ', '-').replace('/', '-').replace(',', '')}{suffix}")
        maker(path)
        return path

    def test_tokenizers(self):
        calls = []
        for number, name, maker, status, words in TOKENIZERS:
            path, out = self.file(number, name, maker, ".json"), self.at(f"out-{len(calls)}.h5")
            calls.append(lambda number=number, name=name, path=path, out=out, status=status, words=words: self.refused(
                f"{number} {name}", [program("bagpipe-data"), "corpus", "--tokenizer", path, "--out", out, self.at("valid.txt")], status,
                words + [os.path.basename(path)], files=[out]))
        self.check(calls)

    def test_special_token_missing_of_a_pair(self):
        with open(self.at("vocab.json"), "w", encoding="utf-8") as file:
            file.write("{" + ", ".join(f'"x{k}": {k}' for k in range(300)) + "}")
        self.write("merges.txt", "#version: 0.2\n")
        fault = self.refused("34 special token missing", [program("bagpipe-data"), "tokenizer", "--vocab", self.at("vocab.json"), "--merges",
                                                          self.at("merges.txt"), "--out", self.at("none.json")], 65,
                             ["[vocabulary.no_special]"], files=[self.at("none.json")])
        self.assertIsNone(fault, fault)

    def test_tokenizer_of_another_corpus(self):
        self.must(["bagpipe-data", "tokenizer", "--kind", "char", "--size", 60, "--out", self.at("other.json"), self.at("valid.txt")])
        self.check(self.both(35, "tokenizer of another corpus", self.at("train.h5"), 65, ["[tokenizer.mismatch]", "other.json"],
                             f"tokenizer.path={self.at('other.json')}"))

    def test_merges_that_double_take_no_quadratic_time(self):
        make.doubling(self.at("doubling.json"))
        make.put(self.at("a.txt"), b"a" * 1_000_000)
        fault = self.refused("36 a million a's", [program("bagpipe-data"), "corpus", "--tokenizer", self.at("doubling.json"), "--out",
                                                  self.at("a.h5"), self.at("a.txt")], 0, [])
        self.assertIsNone(fault, fault)

    def test_safetensors(self):
        calls = []
        good = self.file(0, "sound folder", make.hf())
        self.must(["bagpipe-data", "import", good, "--out", self.at("imported")])
        for number, name, maker, status, words in SAFETENSORS:
            path, out = self.file(number, name, maker), self.at(f"imported-{len(calls)}")
            calls.append(lambda number=number, name=name, path=path, out=out, status=status, words=words: self.refused(
                f"{number} {name}", [program("bagpipe-data"), "import", path, "--out", out], status, words, files=[out]))
        self.check(calls)

    def test_texts(self):
        calls = []
        for number, name, maker, status, words, kind in TEXTS:
            path, out = self.file(number, name, maker, ".zst" if "zstd" in name else ".txt"), self.at(f"text-{len(calls)}.h5")
            for ranks in (0, 4) if number in (46, 52) else (0,):
                calls.append(lambda number=number, name=name, path=path, out=out, status=status, words=words, kind=kind, ranks=ranks: self.refused(
                    f"{number} {name}", [program("bagpipe-data"), "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", kind, "--out",
                                         f"{out}.{ranks}", path], status, words + [os.path.basename(path)], ranks, [f"{out}.{ranks}"]))
        self.check(calls)

    def test_corpora_of_ours(self):
        ours = make.get(self.at("train.h5"))
        other = make.get(self.at("valid.h5"))
        flipped = bytearray(ours)
        flipped[len(ours) // 2] ^= 4
        rows = [(38, "zero bytes", b"", ["[h5.empty]"]), (39, "cut", ours[:len(ours) * 2 // 3], ["[h5.wrong_bytes]"]), (40, "one bit", bytes(flipped), ["[h5.damaged]"]),
                (45, "tokens of another corpus", ours[:2048] + other[2048:len(ours)].ljust(len(ours) - 2048, b"\0"), ["[h5.damaged]"]),
                (45, "block of another corpus", other[:512] + ours[512:], ["[h5.wrong_bytes]"])]
        calls = self.both(37, "missing", self.at("no.h5"), 66, ["[file.missing]"])
        for number, name, data, words in rows:
            calls += self.both(number, name, self.file(number, name, lambda path, data=data: make.put(path, data), ".h5"), 65, words)
        self.check(calls)

    def test_corpora_that_are_too_small(self):
        self.write("line.txt", "One line alone.\n")
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "lines", "--out", self.at("line.h5"),
                   self.at("line.txt")])
        self.check(self.both(53, "fewer windows than a batch", self.at("valid.h5"), 0, ["[corpus.few_windows]"], "train.batch=512") +
                   self.both(53, "less than a window", self.at("line.h5"), 65, ["[corpus.too_short]"]) +
                   self.both(54, "bag of one document", self.at("line.h5"), 65, ["[corpus.too_few_documents]"], "corpus.resample=bag"))

    def test_permission(self):
        if os.geteuid() != 0 or shutil.which("setpriv") is None:
            self.skipTest("another user's file can't be tried: that needs root and setpriv")
        os.chmod(self.folder, 0o755)
        path = self.at("closed.h5")
        shutil.copy(self.at("train.h5"), path)
        os.chmod(path, 0)
        home = self.at("home")
        os.makedirs(home)
        os.chmod(home, 0o777)
        for ranks in (0, 4):
            launcher = ["sh", bagpipe_test.MPIRUN, str(ranks)] if ranks else []
            fault = self.refused(f"55 permission 000 on {ranks or 1} ranks",
                                 ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] + launcher +
                                 [program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={home}/run", f"corpus.train={path}"], 77,
                                 ["[file.denied]", "closed.h5"], env={"HOME": home})
            self.assertIsNone(fault, fault)

    def converted(self, number, name, path, status, words, env=None):
        out = path + ".native"
        return lambda: self.refused(f"{number} {name}", [program("bagpipe-data"), "corpus", "--format", "hdf5", "--out", out, path], status,
                                    words + [os.path.basename(path)] * (status != 0), files=[out] * (status != 0), env=env)

    def test_foreign_corpora(self):
        if make.h5py is None:
            self.skipTest("this Python has no h5py")
        good = self.file(0, "sound corpus", lambda path: make.corpus(path, chunks=(300,), compression="gzip").close(), ".h5")
        calls = [self.converted(0, "sound corpus", good, 0, [])] + self.both(0, "foreign corpus", good, 65, ["[corpus.foreign]"])
        calls += [self.converted(number, name, self.file(number, name, maker, ".h5"), status, words) for number, name, maker, status, words in CORPORA]
        self.check(calls)

    def test_no_plugin_is_loaded(self):
        if make.h5py is None:
            self.skipTest("this Python has no h5py")
        folder, marker = self.at("plugins"), self.at("loaded")
        os.makedirs(folder)
        if not make.spy_plugin(folder, marker):
            self.skipTest("there is no C compiler")
        path = self.file(77, "unknown filter with plugins", make.raw_chunk(32099, bytes(10000)), ".h5")
        self.check([self.converted(77, "unknown filter with plugins", path, 65, ["[h5.unknown_filter]", "32099"], env={"HDF5_PLUGIN_PATH": folder})])
        self.assertFalse(os.path.exists(marker), "a plugin was loaded for a foreign file")
        subprocess.run(["h5dump", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
                       env=dict(os.environ, HDF5_PLUGIN_PATH=folder)) if shutil.which("h5dump") else None
        if shutil.which("h5dump"):  # which shows that the spy works
            self.assertTrue(os.path.exists(marker))


if __name__ == "__main__":
    bagpipe_test.main()
