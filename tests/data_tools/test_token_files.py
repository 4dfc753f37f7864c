"""bagpipe-data corpus of token files of Megatron-LM, llm.c, nanoGPT and datatrove: the layouts as their writers have them, written here with
numpy alone, come back as documents; and what is refused, with file and byte."""
import os
import random
import struct

import numpy as np

import bagpipe_test
from bagpipe_test import FolderTest, program, run
from corpus_reader import read_corpus

EOD = 290


def documents_of(seed, count=40, vocabulary=EOD):
    draw = random.Random(seed)
    return [[draw.randrange(vocabulary) for _ in range(draw.choice((0, 1, 7, 300)))] + [EOD] for _ in range(count)]


def megatron(documents, dtype=np.uint16, code=8, version=1, magic=b"MMIDIDX\0\0", pieces=1):
    """(.bin, .idx); pieces: sequences of a document."""
    sequences, ends = [], [0]
    for document in documents:
        step = -(-len(document) // pieces) or 1
        sequences += [document[k:k + step] for k in range(0, len(document), step)]
        ends.append(len(sequences))
    lengths = np.array([len(s) for s in sequences], np.int32)
    pointers = (np.cumsum(lengths, dtype=np.int64) - lengths) * np.dtype(dtype).itemsize
    index = magic + struct.pack("<QBQQ", version, code, len(lengths), len(ends)) + lengths.tobytes() + pointers.tobytes() + np.array(ends, np.int64).tobytes()
    return np.array(sum(documents, []), dtype).tobytes(), index


def llmc(tokens, magic=20240520, version=1, dtype=np.uint16, count=None):
    head = np.zeros(256, np.int32)
    head[:3] = magic, version, len(tokens) if count is None else count
    return head.tobytes() + np.array(tokens, dtype).tobytes()


class TokenFiles(FolderTest):
    def bytes(self, name, data):
        with open(self.at(name), "wb") as file:
            file.write(data)
        return self.at(name)

    def made(self, layout, *arguments, sizes=("--vocab-size", "291", "--eod", str(EOD))):
        out = self.at("made.h5")
        self.must(["bagpipe-data", "corpus", "--format", layout, *sizes, "--out", out, *arguments])
        self.must(["bagpipe-data", "verify", out])
        documents, ids, attributes, sources = read_corpus(out)
        self.assertEqual(sources["format"], [layout])
        if "--eod" in sizes:
            self.assertEqual((attributes["vocab_size"], attributes["eod_id"]), (291, EOD))
        return documents, ids

    def write_megatron(self, name, documents, **more):
        tokens, index = megatron(documents, **more)
        self.bytes(f"{name}.idx", index)
        return self.bytes(f"{name}.bin", tokens)[:-4]

    # ---- round trips ----

    def test_megatron_of_each_type_of_integers(self):
        documents = documents_of(1)
        for dtype, code in ((np.uint16, 8), (np.int16, 3), (np.int32, 4), (np.int64, 5)):
            prefix = self.write_megatron("my_text_document", documents, dtype=dtype, code=code)
            made, ids = self.made("megatron", prefix)
            self.assertEqual(made, documents)
            self.assertEqual(ids[:2] + ids[-1:], ["my_text_document:1", "my_text_document:2", "my_text_document:40"])
        small = [[3, 2, 1], [255]]
        self.assertEqual(self.made("megatron", self.write_megatron("small", small, dtype=np.uint8, code=1))[0], small)

    def test_megatron_documents_are_those_of_the_index(self):
        documents = documents_of(2)
        sentences = self.write_megatron("sentences", documents, dtype=np.int32, code=4, pieces=3)
        self.assertEqual(self.made("megatron", sentences + ".bin")[0], documents)
        more = self.write_megatron("more", [[5, 6], []])
        self.assertEqual(self.made("megatron", sentences + ".idx", more)[0], documents + [[5, 6], []])

    def test_llmc_puts_the_token_before_documents(self):
        documents = documents_of(3)
        tokens = [EOD] + sum(documents, [])[:-1]
        made, ids = self.made("llmc", self.bytes("fineweb_train_000001.bin", llmc(tokens)))
        self.assertEqual(made, documents)
        self.assertEqual(ids[0], "fineweb_train_000001.bin:1")
        half = len(tokens) // 2 + 3  # within a document
        shards = [self.bytes("a.bin", llmc(tokens[:half])), self.bytes("b.bin", llmc(tokens[half:]))]
        self.assertEqual(self.made("llmc", *shards)[0], documents)
        wide = self.bytes("llama3.bin", llmc(tokens, 20240801, 7, np.uint32))
        self.assertEqual(self.made("llmc", wide)[0], documents)

    def test_llmc_of_gpt2_needs_no_vocabulary(self):
        self.made("llmc", self.bytes("gpt2.bin", llmc([50256, 1, 2, 50256, 3])), sizes=())
        documents, _, attributes, _ = read_corpus(self.at("made.h5"))
        self.assertEqual((documents, attributes["vocab_size"], attributes["eod_id"]), ([[1, 2, 50256], [3, 50256]], 50257, 50256))

    def test_nanogpt_ends_documents_with_the_token(self):
        documents = documents_of(4)
        tokens = sum(documents, [])
        narrow = self.bytes("train.bin", np.array(tokens, np.uint16).tobytes())
        made, ids = self.made("nanogpt", narrow)
        self.assertEqual((made, ids[2]), (documents, "train.bin:3"))
        wide = self.bytes("wide.bin", np.array(tokens, np.uint32).tobytes())
        self.assertEqual(self.made("nanogpt", "--token-bytes", "4", wide)[0], documents)
        large = self.bytes("large.bin", np.array([70000, 65536, 1], np.uint32).tobytes())
        self.made("nanogpt", large, large, sizes=("--vocab-size", "70001"))
        self.assertEqual(read_corpus(self.at("made.h5"))[0], [[70000, 65536, 1]] * 2)

    def test_datatrove_with_and_without_metadata(self):
        documents = documents_of(5)
        ends = np.cumsum([len(d) for d in documents])
        tokens = sum(documents, [])
        index = struct.pack(f"<{len(ends)}Q", *ends)
        for dtype, metadata in ((np.uint16, None), (np.uint32, None), (np.uint16, "gpt2"), (np.uint16, "gpt2|2"), (np.uint32, "a/b|4")):
            path = self.bytes("00000_shuffled.ds", np.array(tokens, dtype).tobytes())
            self.bytes("00000_shuffled.ds.index", index)
            if metadata:
                self.write("00000_shuffled.ds.metadata", f"{metadata}\n{len(tokens)}\n1.00 kT")
            self.assertEqual(self.made("datatrove", path)[0], documents)

    def test_a_tokenizer_gives_vocabulary_and_end(self):
        text = self.write("text.txt", "a few words of text\n" * 50)
        self.must(["bagpipe-data", "tokenizer", "--kind", "bpe", "--size", "260", "--format", "lines", "--out", self.at("t.json"), text])
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("t.json"), "--format", "lines", "--out", self.at("native.h5"), text])
        native, _, attributes, _ = read_corpus(self.at("native.h5"))
        prefix = self.write_megatron("same", native)
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("t.json"), "--format", "megatron", "--out", self.at("same.h5"), prefix])
        made, _, others, _ = read_corpus(self.at("same.h5"))
        self.assertEqual(made, native)
        for name in ("vocab_size", "eod_id", "tokenizer_hash"):
            self.assertEqual(others[name], attributes[name])
        ranks = self.at("ranks.h5")
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("t.json"), "--format", "megatron", "--out", ranks, prefix], 2)
        with open(ranks, "rb") as one, open(self.at("same.h5"), "rb") as other:
            self.assertEqual(one.read(), other.read())

    # ---- what is refused ----

    def refused(self, status, layout, path, *words, sizes=("--vocab-size", "291", "--eod", str(EOD))):
        out = self.at("refused.h5")
        result = run([program("bagpipe-data"), "corpus", "--format", layout, *sizes, "--out", out, path])
        self.assert_error(result, status, *words)
        self.assertFalse([name for name in os.listdir(self.folder) if "refused" in name])

    def test_megatron_that_is_wrong_is_refused(self):
        tokens, index = megatron([[1, 2, 3], [4, EOD]])
        path = self.bytes("bad.bin", tokens)

        def refused(changed, *words, data=tokens):
            self.bytes("bad.idx", changed)
            self.bytes("bad.bin", data)
            self.refused(65, "megatron", path, *words)

        refused(b"TNTIDX" + index[6:], "[tokens.bad_header]", "bad.idx, byte 0")
        refused(index[:9] + struct.pack("<Q", 2) + index[17:], "[tokens.bad_header]", "byte 9", "version 2")
        for code in (0, 6, 7, 9, 255):
            refused(index[:17] + bytes([code]) + index[18:], "[tokens.bad_header]", "byte 17", str(code))
        refused(index[:20], "[tokens.truncated]", "bad.idx, byte 20")
        refused(index[:-1], "[tokens.truncated]", "bad.idx")
        refused(index[:18] + struct.pack("<Q", 2**63) + index[26:], "[tokens.truncated]", "bad.idx")
        refused(index + b"\0\0", "[tokens.bad_index]", "modes")
        refused(index, "[tokens.bad_index]", "beyond the tokens", "bad.idx, byte 38", data=tokens[:-2])
        refused(index, "[tokens.bad_index]", "go on after", data=tokens + b"\1\0")
        refused(index, "[tokens.truncated]", "bad.bin, byte 9", data=tokens[:-1])
        refused(megatron([[1, 2], [4, EOD, 5]])[1].replace(struct.pack("<q", 4), struct.pack("<q", 6)), "[tokens.bad_index]", "byte 50")
        refused(index[:34] + struct.pack("<i", -3) + index[38:], "[tokens.bad_index]", "byte 42")
        refused(index[:-8] + struct.pack("<q", 1), "[tokens.bad_index]", "in order")
        refused(index, "[corpus.bad_token]", "291", "bad.bin, byte 4", data=np.array([1, 2, 291, 4, 5], np.uint16).tobytes())
        refused(megatron([])[1], "[tokens.empty]", "bad.bin", data=b"")
        refused(megatron([])[1], "[tokens.bad_index]", "bad.idx, byte 26", "no documents")
        refused(index[:26] + struct.pack("<Q", 1) + index[34:-16], "[tokens.bad_index]", "bad.idx, byte 26", "no documents")
        signed = megatron([[1, -2]], np.int32, 4)
        refused(signed[1], "[corpus.bad_token]", "-2", data=signed[0])
        os.remove(self.at("bad.idx"))
        self.refused(66, "megatron", path, "[file.missing]", "bad.idx")

    def test_an_output_over_a_file_of_the_input_is_refused(self):
        prefix = self.write_megatron("kept", [[1, EOD]])
        drove = self.bytes("kept.ds", b"\1\0")
        self.bytes("kept.ds.index", struct.pack("<Q", 1))
        self.write("kept.ds.metadata", "gpt2|2\n1\n")
        for layout, given, name in (("megatron", prefix, "kept.bin"), ("megatron", prefix + ".bin", "kept.idx"), ("datatrove", drove, "kept.ds"),
                                    ("datatrove", drove, "kept.ds.index"), ("datatrove", drove, "kept.ds.metadata")):
            with open(self.at(name), "rb") as file:
                before = file.read()
            result = run([program("bagpipe-data"), "corpus", "--format", layout, "--vocab-size", "291", "--out", self.at(name), given])
            self.assert_error(result, 64, "[command.same_output]", name)
            with open(self.at(name), "rb") as file:
                self.assertEqual(file.read(), before)

    def test_a_folder_of_corpora_knows_what_is_done(self):
        drove = self.bytes("many.ds", b"\1\0")
        self.bytes("many.ds.index", struct.pack("<Q", 1))
        for layout, given, index in (("megatron", self.write_megatron("many", [[1, EOD]]), "many.idx"), ("megatron", self.at("many.bin"), "many.idx"),
                                     ("datatrove", drove, "many.ds.index")):
            command = ["bagpipe-data", "corpus", "--format", layout, "--vocab-size", "291", "--out", self.at(f"{layout}{given[-3:]}/"), given]
            self.assertNotIn("done before", self.must(command).out)
            self.assertIn("1 of 1 files were done before", self.must(command).out)
            os.utime(self.at(index))  # newer than its corpus
            self.assertNotIn("done before", self.must(command).out)

    def test_llmc_that_is_wrong_is_refused(self):
        for data, words in ((llmc([1, 2], magic=20240522), ("[tokens.bad_header]", "20240522", "byte 0")), (llmc([1], version=7), ("[tokens.bad_header]", "byte 4")),
                            (llmc([1, 2], count=3), ("[tokens.truncated]",)), (llmc([1, 2], count=1), ("[tokens.truncated]",)),
                            (llmc([1, 2], count=-2), ("[tokens.truncated]",)), (llmc([1])[:500], ("[tokens.truncated]", "byte 500")),
                            (llmc([]), ("[tokens.empty]", "byte 1024")), (b"", ("[tokens.truncated]",)), (llmc([1, 9999]), ("[corpus.bad_token]", "byte 1026"))):
            self.refused(65, "llmc", self.bytes("bad.bin", data), "bad.bin", *words)
        self.refused(64, "llmc", self.bytes("bad.bin", llmc([1], 20240801, 7, np.uint32)), "[tokens.no_vocabulary]", sizes=())

    def test_nanogpt_that_is_wrong_is_refused(self):
        odd = self.bytes("odd.bin", b"\1\0\2")
        self.refused(65, "nanogpt", odd, "[tokens.truncated]", "odd.bin, byte 2")
        self.refused(65, "nanogpt", self.bytes("none.bin", b""), "[tokens.empty]")
        self.refused(65, "nanogpt", self.bytes("wide.bin", np.arange(100, dtype=np.uint32).tobytes()), "[tokens.bad_header]", "--token-bytes")
        self.refused(65, "nanogpt", self.bytes("far.bin", np.array([1, 500], np.uint16).tobytes()), "[corpus.bad_token]", "far.bin, byte 2")
        self.refused(65, "nanogpt", odd, "[tokens.truncated]", sizes=())
        self.refused(64, "nanogpt", self.at("far.bin"), "[tokens.no_vocabulary]", sizes=())
        self.refused(64, "nanogpt", self.bytes("far.bin", b"\1\0"), "[command.bad_number]", sizes=("--vocab-size", "5", "--eod", "5"))
        self.refused(66, "nanogpt", self.at("missing.bin"), "[file.missing]")

    def test_datatrove_that_is_wrong_is_refused(self):
        tokens = np.array([1, 2, 3], np.uint16).tobytes()
        path = self.bytes("bad.ds", tokens)
        for ends, data, metadata, words in (([2, 4], tokens, None, ("[tokens.bad_index]",)), ([4, 3], tokens, None, ("[tokens.bad_index]", "bad.ds.index, byte 0")),
                                            ([1, 3], tokens[:-1], None, ("[tokens.bad_index]",)), ([1, 3], tokens, "gpt2|2\n4\n", ("[tokens.bad_index]",)),
                                            ([1, 3], tokens, "gpt2|3\n3\n", ("[tokens.bad_header]", "bad.ds.metadata")), ([1, 3], tokens, "gpt2", ("[tokens.bad_header]",)),
                                            ([0], b"", None, ("[tokens.empty]",))):
            self.bytes("bad.ds", data)
            self.bytes("bad.ds.index", struct.pack(f"<{len(ends)}Q", *ends))
            if metadata:
                self.write("bad.ds.metadata", metadata)
            elif os.path.exists(self.at("bad.ds.metadata")):
                os.remove(self.at("bad.ds.metadata"))
            self.refused(65, "datatrove", path, *words)
        for data in (b"", b"\3\0\0"):
            self.bytes("bad.ds.index", data)
            self.refused(65, "datatrove", path, "[tokens.truncated]", "bad.ds.index")
        os.remove(self.at("bad.ds.index"))
        self.refused(66, "datatrove", path, "[file.missing]", "bad.ds.index")

    def test_options_of_text_are_refused(self):
        path = self.bytes("some.bin", llmc([1, 2]))
        for words, sizes in ((("[command.no_skip]",), ("--skip-bad", "1")), (("[command.no_text]",), ("--special",)), (("[command.no_list]",), ("--only", path)),
                             (("[command.no_bos]",), ("--bos",)), (("[command.bad_number]",), ("--token-bytes", "2")),
                             (("[command.no_separator]",), ("--separator", "x")), (("[command.no_sentences]",), ("--sentences", "lines")),
                             (("[command.two_vocabularies]",), ("--vocab-size", "9", "--tokenizer", path))):
            self.refused(64, "llmc", path, *words, sizes=sizes)
        self.refused(64, "lines", path, "[command.no_tokens]", sizes=("--vocab-size", "9", "--tokenizer", path))


if __name__ == "__main__":
    bagpipe_test.main()
