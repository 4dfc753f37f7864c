"""What ../shared has that nobody here wrote: a GPT-2 with the probabilities that PyTorch gives, GPT-2's vocabulary, the Brown corpus, tweets with
tags, SQuAD."""
import collections
import json
import os
import re
import struct

import bagpipe_test
from bagpipe_test import ScoreFiles, program, run, shared

try:
    import h5py
    import numpy
except ImportError:
    h5py = None

REFERENCE, GPT2, BROWN = "reference/gpt2-tiny", "data/gpt2", "data/brown/brown.jsonl"
WNUT, SQUAD = "data/wnut17", "data/squad"


def safetensor(path, wanted):
    """The one tensor of a file whose name begins so."""
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
        (name,) = [name for name in header if name.startswith(wanted)]
        begin, end = header[name]["data_offsets"]
        file.seek(8 + length + begin)
        kind = {"F32": numpy.float32, "F64": numpy.float64}[header[name]["dtype"]]
        return numpy.frombuffer(file.read(end - begin), dtype=kind).reshape(header[name]["shape"])


class RealData(ScoreFiles, bagpipe_test.FolderTest):
    @classmethod
    def setUpClass(cls):
        for name in (REFERENCE, GPT2, BROWN):
            if shared(name) is None:
                raise bagpipe_test.unittest.SkipTest(f"there is no {bagpipe_test.options['shared']}/{name}")
        super().setUpClass()

    def same_file(self, *names):
        contents = []
        for name in names:
            with open(self.at(name), "rb") as file:
                contents.append(file.read())
        self.assertEqual(contents[0], contents[1], names)

    def gpt2(self, name):
        """GPT-2's vocabulary as tokenizer.json."""
        pair = [os.path.join(shared(GPT2), file) for file in ("vocab.json", "merges.txt")]
        result = self.must(["bagpipe-data", "tokenizer", "--vocab", pair[0], "--merges", pair[1], "--out", self.at(name)])
        self.assertIn("50257 tokens, eod 50256", result.out)

    def test_reference_model_gives_the_reference_probabilities(self):
        if h5py is None:
            self.skipTest("there is no h5py")
        folder = shared(REFERENCE)
        result = self.must(["bagpipe-data", "import", folder, "--out", self.at("tiny")])
        self.assertIn("used: 28 of 28 tensors (prefix ''), which make 36 tensors of the checkpoint", result.out)
        with open(os.path.join(folder, "tokens.json"), encoding="utf-8") as file:
            documents = json.load(file)["tokens"]
        with h5py.File(self.at("tiny.h5"), "w") as file:
            file["tokens"] = numpy.array(documents, dtype=numpy.int32).reshape(-1)
            file["doc_start"] = numpy.cumsum([0] + [len(document) for document in documents]).astype(numpy.uint64)
            file.attrs["vocab_size"] = 300
        self.convert("tiny.h5")
        self.write("score.ini", "[score]\ntokens = yes\n[math]\nprecision = f32\nthreads = 1\n")
        self.must(["bagpipe", "score", self.at("score.ini"), f"run.dir={self.at('scored')}", f"score.model={self.at('tiny')}",
                   f"score.corpus={self.at('tiny.h5')}"])
        with h5py.File(self.at("scored/score/tokens.h5")) as file:
            got = file["logprob"][:].reshape(len(documents), -1)
        want = safetensor(os.path.join(folder, "expected.safetensors"), "logprob")
        self.assertTrue(numpy.isnan(got[:, 0]).all())  # no end-of-document token: the first takes the prefix's place
        numpy.testing.assert_allclose(got[:, 1:], want.reshape(len(documents), -1), atol=1e-4)

    def test_gpt2s_vocabulary_is_converted_and_stays(self):
        self.gpt2("gpt2.json")
        self.must(["bagpipe-data", "tokenizer", "--from", self.at("gpt2.json"), "--out", self.at("again.json")], ranks=2)
        self.same_file("gpt2.json", "again.json")
        result = run([program("bagpipe-data"), "import", shared(REFERENCE), "--out", self.at("large"), "--tokenizer", self.at("gpt2.json")])
        self.assert_error(result, 65, "[vocabulary.mismatch]", "50257", "300")

    def test_brown_is_the_same_corpus_on_two_ranks(self):
        self.gpt2("brown.json")
        for ranks in (1, 2):
            result = self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("brown.json"), "--format", "jsonl", "--label", "genre", "--out",
                                self.at(f"brown{ranks}.h5"), shared(BROWN)], ranks)
            self.assertIn("500 documents", result.out)
        self.same_file("brown1.h5", "brown2.h5")
        self.assertIn("genre: 15 values: news (44)", self.must(["bagpipe-data", "inspect", self.at("brown1.h5")]).out)
        self.assertIn("sound, 500 documents", self.must(["bagpipe-data", "verify", self.at("brown1.h5")]).out)


class RealTasks(bagpipe_test.FolderTest):
    """A few steps on tags of tweets and answers of SQuAD: killed and resumed with the same bits, and scored."""

    @classmethod
    def setUpClass(cls):
        for name in (WNUT, SQUAD):
            if shared(name) is None:
                raise bagpipe_test.unittest.SkipTest(f"there is no {bagpipe_test.options['shared']}/{name}")
        super().setUpClass()
        cls.write("empty.ini", "")

    def corpus(self, name, kind, folder, file):
        """The words that occur most often in it are the vocabulary, and letters; training's comes first."""
        path = os.path.join(shared(folder), file)
        if not os.path.exists(self.at("vocab.txt")):
            with open(path, encoding="utf-8") as text:
                words = collections.Counter(re.findall(r"[a-z]+|[^a-z\s]", text.read().lower()))
            letters = [chr(k) for k in range(ord("a"), ord("z") + 1)]
            common = [word for word, _ in words.most_common(500) if word not in letters and '"' not in word]
            self.write("vocab.txt", "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + c for c in letters), *common]) + "\n")
            self.must(["bagpipe-data", "tokenizer", "--vocab", self.at("vocab.txt"), "--out", self.at("words.json")])
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("words.json"), "--format", kind, "--out", self.at(name), path])
        return self.at(name)

    def finetune(self, name, train, *keys, env=()):
        return run([*env, program("bagpipe"), "finetune", self.at("empty.ini"), f"run.dir={self.at(name)}", f"corpus.train={train}", "model.kind=bert", "model.layers=1",
                    "model.width=32", "model.heads=2", "model.context=96", "train.batch=8", "train.steps=20", "train.log_every=5", "checkpoint.every=5",
                    "optimizer.lr=5e-3", *keys])

    def tuned_twice(self, kind, train):
        whole, broken = f"{kind}-whole", f"{kind}-killed"
        first = self.finetune(whole, train, f"task.kind={kind}")
        self.assertEqual(first.status, 0, str(first))
        killed = self.finetune(broken, train, f"task.kind={kind}", env=["env", "BP_FAULT=step.end:13=kill"])
        self.assertEqual(killed.status, -9, str(killed))
        resumed = self.finetune(broken, train, f"task.kind={kind}")
        self.assertEqual(resumed.status, 0, str(resumed))
        lines = bagpipe_test.metrics(self.at(whole))
        self.assertLess(lines[-1]["loss"], lines[0]["loss"])
        self.assertEqual(bagpipe_test.digests(self.at(whole)), bagpipe_test.digests(self.at(broken)))
        return self.at(whole)

    def scored(self, kind, model, corpus):
        name = f"{kind}-score"
        result = run([program("bagpipe"), "score", self.at("empty.ini"), f"run.dir={self.at(name)}", f"score.model={model}", f"score.corpus={corpus}"])
        self.assertEqual(result.status, 0, str(result))
        return bagpipe_test.read_json(self.at(name), "score", "summary.json")

    def test_tags_of_tweets(self):
        train, dev = (self.corpus(f"tags-{name}.h5", "conll", WNUT, f"{name}.conll") for name in ("train", "dev"))
        summary = self.scored("tags", self.tuned_twice("tags", train), dev)
        with open(os.path.join(shared(WNUT), "dev.conll"), encoding="utf-8") as file:
            words = [line.rstrip("\n").split("\t") for line in file if line.strip()]
        self.assertEqual(summary["words"] + summary["words_cut"], len(words))
        self.assertLessEqual({word[-1] for word in words}, set(summary["task"]["labels"]))
        outside = sum(word[-1] == "O" for word in words) / len(words)
        self.assertGreater(summary["task"]["accuracy"]["value"], 0.9 * outside)

    def test_answers_of_squad(self):
        train, test = (self.corpus(f"spans-{name}.h5", "squad", SQUAD, f"{name}.json") for name in ("train", "test"))
        summary = self.scored("spans", self.tuned_twice("spans", train), test)
        with open(os.path.join(shared(SQUAD), "test.json"), encoding="utf-8") as file:
            asked = [(text["context"], one["id"]) for title in json.load(file)["data"] for text in title["paragraphs"] for one in text["qas"]]
        said = bagpipe_test.read_json(self.at("spans-score"), "score", "predictions.json")
        self.assertEqual((summary["documents"], list(said)), (len(asked), [name for _, name in asked]))
        self.assertTrue(all(said[name] and said[name] in context for context, name in asked))
        self.assertGreater(summary["windows"], len(asked))
        self.assertLessEqual(summary["task"]["exact_match"]["value"], summary["task"]["f1"]["value"])


if __name__ == "__main__":
    bagpipe_test.main()
