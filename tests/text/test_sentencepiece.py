"""Models of SentencePiece: the same ids as SentencePiece's own library on texts that are made to hurt; files that are damaged or ask for what is not
done. Where Debian's python3-sentencepiece is missing, only the latter."""
import csv
import io
import itertools
import json
import os
import random
import shutil
import subprocess
import unittest

import bagpipe_test
from bagpipe_test import JobTest, program, read_json, run

try:
    import sentencepiece
except ImportError:
    sentencepiece = None

MARK = "\u2581"


def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def whole(number, value):
    return varint(number << 3) + varint(value)


def piece(text, score=0.0, kind=1):
    import struct
    return field(1, field(1, text.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score) + whole(3, kind))


def hostile(seed, words, count=300):
    """Lines of words, of runs of one character, and of any characters of Unicode but line ends and U+0000."""
    draw, out = random.Random(seed), []
    odd = ["\u00a0", "\u3000", "\u200b", "\ufeff", "\u2581", "\u2028", "\t", "  ", "    ", "\u0301", "\ufb01", "\u00bd", "\u1e9b\u0323", "\uac00", "\u1100\u1161", "\U0001f1e9\U0001f1ea",
           "\U0001f468\u200d\U0001f469\u200d\U0001f467", "e\u0301\u0323", "\u0e33", "\uff76\uff9e", "\u2460", "\ufdfa", "<s>", "</s>", "<unk>", "<0x41>", "<sep>", "<two words>", "\u00ad", "\U000e0041",
           "\u0130", "\u1fbc", "\ufffd", "\u202e", "aaaa", "aaaaaaa", "-----", "......", "a\u2581b", "\u2581\u2581"]
    for k in range(count):
        parts = []
        for _ in range(draw.randint(1, 9)):
            kind = draw.random()
            if kind < 0.45:
                parts.append(draw.choice(words))
            elif kind < 0.75:
                parts.append(draw.choice(odd))
            else:
                code = draw.choice((draw.randint(0x20, 0x24f), draw.randint(0x250, 0x2fff), draw.randint(0x3000, 0xffff), draw.randint(0x10000, 0x10ffff)))
                parts.append("x" if 0xd800 <= code <= 0xdfff or code == 0x85 else chr(code) * draw.choice((1, 1, 3)))
            parts.append(draw.choice(("", " ", " ", "  ")))
        out.append("".join(parts))
    return [line for line in out + [" ", "   ", " a", "a ", " a  b ", MARK, MARK + " a", "a" + MARK] if "\r" not in line and "\n" not in line]


def best_cut(text, scores, unknown):
    """The cut with the highest sum of scores; characters in no piece are unknown, runs of them one piece."""
    best = [(0, 0)] + [(-1e9, 0)] * len(text)
    for end in range(1, len(text) + 1):
        for start in range(end):
            score = scores.get(text[start:end], unknown if end == start + 1 else None)
            if score is not None and best[start][0] + score > best[end][0]:
                best[end] = best[start][0] + score, start
    cut, end = [], len(text)
    while end > 0:
        cut.append(text[best[end][1]:end])
        end = best[end][1]
    joined = []
    for part in reversed(cut):
        if joined and part not in scores and joined[-1] not in scores:
            joined[-1] += part
        else:
            joined.append(part)
    return joined


class Pieces(JobTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(cls.at("train.txt"), encoding="utf-8") as file:
            cls.words = file.read().split()[:2000]
        cls.write("lines.txt", "".join(" ".join(group) + "\n" for group in itertools.zip_longest(*[iter(cls.words)] * 10, fillvalue="caf\u00e9 na\u00efve \u4e2d\u6587 aaaa aaaaaa")))

    def ids_of(self, tokenizer, lines):
        self.write("hostile.txt", "".join(line + "\n" for line in lines))
        with open(self.at("hostile.txt"), "rb") as file:
            result = subprocess.run([program("bagpipe-data"), "encode", "--tokenizer", tokenizer, "-"], stdin=file, capture_output=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        ids = [[] for _ in lines]
        for row in list(csv.reader(io.StringIO(result.stdout.decode())))[1:]:
            ids[int(row[0]) - 1].append(int(row[1]))
        return ids

    @unittest.skipIf(sentencepiece is None, "python3-sentencepiece is not installed")
    def test_ids_are_those_of_the_library(self):
        cases = {
            "unigram": {}, "bpe": {"model_type": "bpe"}, "unigram-bytes": {"byte_fallback": True}, "bpe-bytes": {"model_type": "bpe", "byte_fallback": True},
            "unigram-plain": {"normalization_rule_name": "identity", "add_dummy_prefix": False, "remove_extra_whitespaces": False},
            "llama": {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False},
            "unigram-identity": {"normalization_rule_name": "identity"}, "nfkc-folded": {"normalization_rule_name": "nmt_nfkc_cf"},
            "unigram-symbols": {"user_defined_symbols": ["<sep>", "\u00bd", "ship"]}, "bpe-symbols": {"model_type": "bpe", "user_defined_symbols": ["<sep>", "\u00bd", "ship"]},
            "bpe-symbols-bytes": {"model_type": "bpe", "byte_fallback": True, "user_defined_symbols": ["<sep>", "aaa"], "control_symbols": ["<two words>"]},
            "across-words": {"model_type": "bpe", "split_by_whitespace": False}, "t5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}}
        for seed, (name, settings) in enumerate(cases.items()):
            with self.subTest(name):
                size = 340 + (256 if settings.get("byte_fallback") else 0)
                sentencepiece.SentencePieceTrainer.train(input=self.at("lines.txt"), model_prefix=self.at(name), vocab_size=size, hard_vocab_limit=False,
                                                         character_coverage=0.9995, minloglevel=2, num_threads=1, **settings)
                oracle = sentencepiece.SentencePieceProcessor(model_file=self.at(name + ".model"))
                self.must(["bagpipe-data", "tokenizer", "--vocab", self.at(name + ".model"), "--out", self.at(name + ".json")])
                lines = hostile(seed, self.words)
                for line, mine in zip(lines, self.ids_of(self.at(name + ".json"), lines)):
                    self.assertEqual(mine, oracle.encode(line), ascii(line))
                names = {**{text: id for id, (text, _) in enumerate(read_json(self.at(name + ".json"))["model"]["vocab"])}} if "bpe" not in settings.get("model_type", "") \
                    else read_json(self.at(name + ".json"))["model"]["vocab"]
                self.assertEqual({oracle.id_to_piece(k): k for k in range(oracle.get_piece_size())}, names)

    def test_unsound_files_are_refused(self):
        import struct
        sound = piece("<unk>", 0, 2) + piece("a", -1) + piece("b", -2) + piece("ab", -3) + piece(MARK, -4)
        spec = field(2, whole(3, 2)) + field(3, whole(3, 0) + whole(4, 0))
        with open(self.at("sound.model"), "wb") as file:
            file.write(sound + spec)
        self.must(["bagpipe-data", "tokenizer", "--vocab", self.at("sound.model"), "--out", self.at("sound.json")])
        self.assertEqual(self.ids_of(self.at("sound.json"), ["abba ab"]), [[3, 2, 1, 4, 3]])
        cases = {"empty": (b"", "sentencepiece.damaged"), "cut": (sound[:-1], "sentencepiece.damaged"), "text": (b"[PAD]\n[UNK]\n", "sentencepiece.damaged"),
                 "long": (sound + varint(1 << 3 | 2) + varint(1 << 40), "sentencepiece.damaged"), "kind": (sound + field(1, field(1, b"c") + whole(3, 9)), "sentencepiece.damaged"),
                 "utf-8": (sound + field(1, field(1, b"\xff")), "sentencepiece.damaged"), "no-text": (sound + field(1, whole(3, 1)), "sentencepiece.damaged"),
                 "nan": (sound + field(1, field(1, b"c") + varint(2 << 3 | 5) + struct.pack("<f", float("nan"))), "sentencepiece.damaged"),
                 "group": (sound + varint(9 << 3 | 3), "sentencepiece.damaged"), "varint": (sound + b"\x10" + b"\xff" * 11, "sentencepiece.damaged"),
                 "twice": (sound + piece("a", -5), "vocabulary.token_twice"), "no-unk": (sound[len(piece("<unk>", 0, 2)):], "vocabulary.no_unk"),
                 "words": (sound + field(2, whole(3, 3)), "sentencepiece.unsupported"), "suffix": (sound + field(2, whole(24, 1)), "sentencepiece.unsupported"),
                 "spaces": (sound + field(3, whole(5, 0)), "sentencepiece.unsupported"), "decoding": (sound + field(5, field(2, b"x")), "sentencepiece.unsupported"),
                 "long-piece": (sound + piece("a" * 5000, -5) + spec, "sentencepiece.unsupported"), "unused": (sound + piece("ba", -5, 5) + spec, "sentencepiece.unsupported"), "charsmap": (sound + field(3, field(2, b"\1\0\0\0x")), "tokenizer.bad_charsmap")}
        for name, (content, code) in cases.items():
            with self.subTest(name):
                with open(self.at("bad.model"), "wb") as file:
                    file.write(content)
                self.assert_error(run([program("bagpipe-data"), "tokenizer", "--vocab", self.at("bad.model"), "--out", self.at("never.json")]), 65, f"[{code}]")

    def test_classes_number_the_pieces(self):
        """A folder's model is read with the ids of its type's class."""
        with open(self.at("spiece.model"), "wb") as file:
            file.write(piece("<pad>", 0, 3) + piece("</s>", 0, 3) + piece("<unk>", 0, 2) + b"".join(piece(text, -1 - k / 8) for k, text in enumerate([MARK, "a", "b", "ab", MARK + "a"])))
        with open(self.at("sentencepiece.bpe.model"), "wb") as file:
            file.write(piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + b"".join(piece(text, -1 - k / 8) for k, text in enumerate([MARK, "a", "b", "ab", MARK + "a"])))
        with open(self.at("spm.model"), "wb") as file:
            file.write(piece("[PAD]", 0, 3) + piece("[CLS]", 0, 3) + piece("[SEP]", 0, 3) + piece("[UNK]", 0, 2) + b"".join(piece(text, -1 - k / 8) for k, text in enumerate([MARK, "a", "b"])))
        for kind, file, keys, ids, ends in (("deberta-v2", "spm.model", {"do_lower_case": False}, {"[UNK]": 3, MARK: 4, "[MASK]": 7}, ("[CLS]", "[SEP]")),
                                            ("t5", "spiece.model", {"extra_ids": 3}, {"a": 4, "<extra_id_2>": 8, "<extra_id_0>": 10}, (None, "</s>")),
                                            ("xlm-roberta", "sentencepiece.bpe.model", {}, {"<s>": 0, "<unk>": 3, MARK: 4, "<mask>": 9}, ("<s>", "</s>")),
                                            ("camembert", "sentencepiece.bpe.model", {}, {"<unk>": 3, "</s>": 6, MARK: 7, "<mask>": 12}, ("<s>", "</s>"))):
            with self.subTest(kind):
                root = self.tokenizer_of(kind, file, keys)
                if root is None:
                    continue
                names = {text: k for k, (text, _) in enumerate(root["model"]["vocab"])}
                self.assertEqual({name: names[name] for name in ids}, ids)
                frame = [part["SpecialToken"]["id"] if "SpecialToken" in part else None for part in root["post_processor"]["single"]]
                self.assertEqual(frame, [end for end in (ends[0],) if end] + [None] + [ends[1]])

    def test_marian_has_the_ids_of_a_vocabulary_beside_two_models(self):
        """Texts are cut by source.spm, into the pieces of the highest sum of scores; pieces of targets alone are in none."""
        draw, folder = random.Random(5), self.folder_of("marian")
        texts = sorted({"".join(draw.choices("abc", k=draw.randint(1, 4))) for _ in range(60)} | {"a", "b"})
        scores = {text: -draw.randint(8, 60) / 8 for text in [MARK, *texts[:40], *(MARK + text for text in texts[:20])]}
        names = ["</s>", "<unk>", ">>fra<<", *draw.sample(sorted(set(scores) | {"c", "target"}), len(set(scores) | {"c", "target"}))]
        names += [f"only-{k}" for k in range(read_json(folder, "config.json")["vocab_size"] - 1 - len(names))] + ["<pad>"]
        with open(os.path.join(folder, "source.spm"), "wb") as file:
            file.write(piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + b"".join(piece(text, score) for text, score in scores.items()) + piece("lost", -20))
        targets = {text: -draw.randint(8, 60) / 8 for text in scores}
        with open(os.path.join(folder, "target.spm"), "wb") as file:
            file.write(piece("<unk>", 0, 2) + piece("</s>", 0, 3) + b"".join(piece(text, score) for text, score in targets.items()))
        self.write("folder-marian/vocab.json", json.dumps({name: k for k, name in enumerate(names)}))
        result = run([program("bagpipe-data"), "import", folder, "--out", self.at("marian-in")])
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[import.lost_pieces]", "1 pieces of source.spm")
        self.assert_warning(result, "[import.one_side]")
        lines = [" ".join("".join(draw.choices("abcz", weights=(5, 5, 5, 1), k=draw.randint(1, 9))) for _ in range(draw.randint(1, 5))) for _ in range(200)]
        for line, ids in zip(lines, self.ids_of(self.at("marian-in/tokenizer.json"), lines)):
            self.assertEqual(ids, [names.index(text) if text in scores else 1 for text in best_cut(MARK + line.replace(" ", MARK), scores, min(scores.values()) - 10)], line)
        self.assertEqual(self.ids_of(self.at("marian-in/tokenizer.json"), [">>fra<< a"])[0][0], 2)
        post = read_json(self.at("marian-in"), "tokenizer.json")["post_processor"]["single"]
        self.assertEqual([list(part)[0] for part in post], ["Sequence", "SpecialToken"])
        self.check_targets(folder, names, lines, targets)
        self.write("folder-marian/vocab.json", json.dumps({name: k + 1 for k, name in enumerate(names)}))
        self.assert_error(run([program("bagpipe-data"), "import", folder, "--out", self.at("never")]), 65, "[vocabulary.bad_id]")

    def check_targets(self, folder, names, lines, scores):
        """A corpus of pairs whose second texts are cut by target.spm; other vocabularies are refused."""
        self.must(["bagpipe-data", "tokenizer", "--vocab", os.path.join(folder, "target.spm"), "--ids", os.path.join(folder, "vocab.json"), "--out", self.at("target.json")])
        self.write("lines.txt", "\n".join(lines) + "\n")
        corpus = ["bagpipe-data", "corpus", "--tokenizer", self.at("marian-in/tokenizer.json"), "--format", "pairs", "--target-tokenizer"]
        for ranks in (0, 2):
            self.must([*corpus, self.at("target.json"), "--out", self.at(f"sides{ranks}.h5"), self.at("lines.txt"), self.at("lines.txt")], ranks)
        with open(self.at("sides0.h5"), "rb") as one, open(self.at("sides2.h5"), "rb") as other:
            self.assertEqual(one.read(), other.read())
        os.environ.setdefault("HDF5_PLUGIN_PATH", os.path.join(bagpipe_test.options["bin"], "..", "plugin"))
        import h5py  # reads the path of plugins when it is loaded
        with h5py.File(self.at("sides0.h5")) as file:
            tokens, starts = file["tokens"][:].tolist(), file["doc_start"][:].tolist()
            target = file["source/target_tokenizer_hash"][0]
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("target.json"), "--format", "lines", "--out", self.at("targets.h5"), self.at("lines.txt")])
        with h5py.File(self.at("targets.h5")) as file:
            self.assertEqual(target, file.attrs["tokenizer_hash"])
        sources = self.ids_of(self.at("marian-in/tokenizer.json"), lines)
        for k, line in enumerate(lines):
            cut = [names.index(text) if text in scores else 1 for text in best_cut(MARK + line.replace(" ", MARK), scores, min(scores.values()) - 10)]
            self.assertEqual(tokens[starts[k]:starts[k + 1]], sources[k] + cut + [0], line)
        self.assertNotEqual(sources[3], cut)
        self.assert_error(run([program("bagpipe-data"), *corpus[1:], self.at("tiny.json"), "--out", self.at("never.h5"), *[self.at("lines.txt")] * 2]), 65, "[corpus.other_target]", "token 0")
        self.assert_error(run([program("bagpipe-data"), *corpus[1:-2], "lines", corpus[-1], self.at("target.json"), "--out", self.at("never.h5"), self.at("lines.txt")]), 64, "[command.needs_two]")
        self.assert_error(run([program("bagpipe-data"), "tokenizer", "--ids", os.path.join(folder, "vocab.json"), "--out", self.at("never.json")]), 64, "[command.bad_ids]")

    def folder_of(self, kind):
        """A model of that type, without a tokenizer."""
        base = {"deberta-v2": ["model.kind=deberta"], "t5": ["model.kind=t5", "noise.kinds=infill"], "marian": ["model.kind=marian", "model.start_token=1", "corpus.cut=yes"],
                "xlm-roberta": ["model.kind=roberta", "model.first_position=1"], "camembert": ["model.kind=roberta", "model.first_position=1"]}[kind]
        folder = self.at("folder-" + kind)
        if not os.path.exists(self.at("tiny.h5")):
            self.must(["bagpipe-data", "tokenizer", "--kind", "wordpiece", "--size", 200, "--out", self.at("tiny.json"), self.at("train.txt")])
            for name, files in (("lines", 1), ("pairs", 2)):
                self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tiny.json"), "--format", name, "--out", self.at("pairs.h5" if files == 2 else "tiny.h5"), *[self.at("train.txt")] * files])
        result = run([program("bagpipe"), "pretrain", self.at("small.ini"), "run.dir=" + self.at("run-" + kind), f"corpus.train={self.at('pairs.h5' if kind == 'marian' else 'tiny.h5')}", "corpus.valid=",
                      "train.steps=1", "train.batch=2", *base])
        self.assertEqual(result.status, 0, str(result))
        self.must(["bagpipe-data", "export", self.at("run-" + kind), "--out", folder, "--no-tokenizer"])
        return folder

    def tokenizer_of(self, kind, file, keys):
        """tokenizer.json of a checkpoint that was imported from a folder with `file`; None: the type is not read."""
        folder = self.folder_of(kind)
        config = read_json(folder, "config.json")
        if kind in ("xlm-roberta", "camembert"):
            config.update(model_type=kind, architectures=[{"xlm-roberta": "XLMRobertaForMaskedLM", "camembert": "CamembertForMaskedLM"}[kind]])
            self.write(f"folder-{kind}/config.json", json.dumps(config))
        shutil.copy(self.at(file), os.path.join(folder, file))
        self.write(f"folder-{kind}/tokenizer_config.json", json.dumps(keys))
        result = run([program("bagpipe-data"), "import", folder, "--out", folder + "-in"])
        if kind != "t5" and "huggingface.unknown_type" in str(result):
            return None
        self.assertEqual(result.status, 0, str(result))
        return read_json(folder + "-in", "tokenizer.json")


if __name__ == "__main__":
    bagpipe_test.main()
