"""Steps of word2vec agree with numpy; gensim has the same Huffman codes; planted clusters are found."""
import os
import random

import h5py
import numpy as np

import bagpipe_test
from bagpipe_test import FolderTest, metrics, program, read_json, steps
from word2vec_numpy import Twin, huffman

try:
    from gensim.models import Word2Vec
except ImportError:
    Word2Vec = None

WIDTH, STEPS, RATE = 20, 3, 0.02
COUNTS = [101, 67, 47, 37, 28, 19, 13, 9, 6, 4, 1]  # no two nodes of their Huffman tree tie
CLUSTERS, MEMBERS = 12, 8


def tensors_of(run_dir):
    """Vectors without what fills their last block."""
    step = os.path.join(run_dir, "checkpoints", steps(run_dir)[-1])
    out = {}
    for tensor in read_json(step, "manifest.json")["tensors"]:
        whole = np.zeros(tensor["shape"], dtype=np.float32)
        for piece in tensor["pieces"]:
            with h5py.File(os.path.join(step, piece["file"])) as file:
                at = tuple(slice(o, o + e) for o, e in zip(piece["offset"], piece["extent"]))
                whole[at] = file[piece["dataset"]][()].reshape(piece["extent"])
        out[tensor["name"]] = whole.reshape(whole.shape[0], -1)
    return out


class Word2vecTwin(FolderTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("empty.ini", "[model]\nkind = word2vec\n")
        draw = random.Random(3)
        words = [f"w{k:02d}" for k, count in enumerate(COUNTS) for _ in range(count)]
        draw.shuffle(words)
        cls.write("text.txt", "\n".join(" ".join(words[k:k + 12]) for k in range(0, len(words), 12)) + "\n")
        cls.must(["bagpipe-data", "tokenizer", "--kind", "word", "--out", cls.at("words.json"), cls.at("text.txt")])
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("words.json"), "--format", "lines", "--out", cls.at("text.h5"), cls.at("text.txt")])
        vocab = read_json(cls.at("words.json"))["model"]["vocab"]
        cls.V, cls.eod = len(vocab), vocab["<|endoftext|>"]
        cls.tokens = np.array([number for k in range(0, len(words), 12) for number in [vocab[w] for w in words[k:k + 12]] + [cls.eod]])
        cls.vectors = np.random.default_rng(5).normal(0, 0.3, (cls.V, WIDTH)).astype(np.float32)
        by_id = {number: word for word, number in vocab.items()}
        with open(cls.at("begin.txt"), "w", encoding="utf-8") as file:
            file.write(f"{cls.V} {WIDTH}\n")
            for number in range(cls.V):
                word = "</s>" if number == cls.eod else by_id[number]
                file.write(" ".join([word] + [f"{x:.9g}" for x in cls.vectors[number]]) + "\n")
        cls.must(["bagpipe-data", "import", cls.at("begin.txt"), "--tokenizer", cls.at("words.json"), "--out", cls.at("begin")])

    def train(self, name, *keys):
        context = len(self.tokens) - 1  # one window, which each step goes through
        self.must(["bagpipe", "pretrain", self.at("empty.ini"), f"run.dir={self.at(name)}", f"corpus.train={self.at('text.h5')}",
                   f"model.init={self.at('begin')}", f"model.context={context}", f"train.steps={STEPS}", "train.batch=1", "train.log_every=1",
                   f"optimizer.lr={RATE}", "optimizer.decay=constant", "math.threads=1", *keys])
        return self.at(name)

    def check(self, name, twin, *keys):
        run_dir = self.train(name, *keys)
        for step in range(1, STEPS + 1):
            self.assertAlmostEqual(metrics(run_dir)[step - 1]["loss"], twin.step(self.tokens[:-1], step, RATE), 5)
        found = tensors_of(run_dir)
        self.assertGreater(np.abs(found["output.weight"][:, :WIDTH]).max(), 0.02)
        np.testing.assert_allclose(found["input.weight"][:, :WIDTH], twin.input, atol=2e-5)  # float32, some hundred sums
        np.testing.assert_allclose(found["output.weight"][:, :WIDTH], twin.output, atol=2e-5)
        np.testing.assert_array_equal(found["input.weight"][:, WIDTH:], 0)
        np.testing.assert_array_equal(found["counts"][:, 1], twin.counts)

    def twin(self, **more):
        return Twin(self.tokens, self.eod, self.V, self.vectors, **more)

    def test_steps_agree_with_numpy(self):
        for number, more in enumerate(({}, {"mode": "cbow"}, {"window": 2, "negative": 3, "sample": 0.05}, {"mode": "cbow", "negative": 8, "sample": 0})):
            with self.subTest(more):
                self.check(f"run{number}", self.twin(**more), *(f"word2vec.{key}={value}" for key, value in more.items()))

    def gensim_codes(self):
        """Of gensim, where it is; its words are our ids."""
        words = self.twin().words
        model = Word2Vec(hs=1, negative=0, min_count=1, vector_size=4)
        model.build_vocab_from_freq({str(k): int(words[k]) for k in range(self.V) if words[k]})
        return {int(word): ([int(p) for p in model.wv.get_vecattr(word, "point")], [int(c) for c in model.wv.get_vecattr(word, "code")])
                for word in model.wv.index_to_key}

    def test_hierarchical_steps_agree_with_numpy(self):
        codes = self.gensim_codes() if Word2Vec else huffman(self.twin().words)
        for mode in ("skipgram", "cbow"):
            with self.subTest(mode):
                self.check(f"tree-{mode}", self.twin(mode=mode, output="hierarchical", codes=codes), f"word2vec.mode={mode}",
                           "word2vec.output=hierarchical")

    @bagpipe_test.unittest.skipIf(Word2Vec is None, "there is no gensim")
    def test_gensim_has_the_same_codes(self):
        """Those of numpy are ours, by the test above; without gensim that one has them alone."""
        ours, theirs = huffman(self.twin().words), self.gensim_codes()
        self.assertEqual(ours, theirs)

    def test_planted_clusters_are_found(self):
        draw = random.Random(7)
        lines = []
        for _ in range(3000):
            cluster = draw.randrange(CLUSTERS)
            lines.append(" ".join(f"c{cluster:02d}x{draw.randrange(MEMBERS)}" for _ in range(10)))
        self.write("clusters.txt", "\n".join(lines) + "\n")
        self.must(["bagpipe-data", "tokenizer", "--kind", "word", "--out", self.at("clusters.json"), self.at("clusters.txt")])
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("clusters.json"), "--format", "lines", "--out", self.at("clusters.h5"),
                   self.at("clusters.txt")])
        for mode, output in (("skipgram", "negative"), ("skipgram", "hierarchical"), ("cbow", "negative"), ("cbow", "hierarchical")):
            with self.subTest(mode=mode, output=output):
                run_dir = self.at(f"clusters-{mode}-{output}")
                self.must(["bagpipe", "pretrain", self.at("empty.ini"), f"run.dir={run_dir}", f"corpus.train={self.at('clusters.h5')}", "model.width=16",
                           "word2vec.sample=0", f"word2vec.mode={mode}", f"word2vec.output={output}", "train.epochs=6", "train.batch=1",
                           "math.threads=1"])
                found = 0
                words = [f"c{c:02d}x{m}" for c in range(CLUSTERS) for m in range(MEMBERS)]
                near = self.must(["bagpipe-data", "vectors", run_dir, "nearest", *words, "--count", str(MEMBERS - 1)]).out
                for word, part in zip(words, near.strip().split("\n\n")):
                    found += sum(line.startswith(word[:4]) for line in part.split("\n")[1:])
                self.assertGreaterEqual(found / (len(words) * (MEMBERS - 1)), 0.95)


if __name__ == "__main__":
    bagpipe_test.main()
