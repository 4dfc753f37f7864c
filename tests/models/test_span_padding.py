"""Answers to questions are trained over all places, padding too: the loss of bert, roberta, bart and t5 is that of Hugging Face's models, written
down in float64 from their formulas, of random gains, biases and tables. The padding token is the tokenizer's, and not token 0."""
import json
import math
import os

import numpy

import bagpipe_test
from bagpipe_test import metrics, run
from perturbed import perturbed
from t5_numpy import T5
from test_finetune import TaskTest

SPECIAL = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
PAD = SPECIAL.index("[PAD]")
WORDS = "what is on the sea a of and ship wave sail salt town".split()
QUESTIONS = [("what is on the sea", "the ship of the town and salt", 1, 2), ("what is a wave", "a wave is salt", 3, 4), ("is a sail on the ship", "and the sea", 2, 3),
             ("what is salt", "salt is of the sea and the town is a town of the sea and of salt", 5, 6)]
CONTEXT = 32
MODEL = ["model.layers=2", "model.width=16", "model.heads=2", f"model.context={CONTEXT}"]
FAMILIES = {"bert": [], "roberta": [f"model.first_position={PAD + 1}"], "bart": ["model.encoder_layers=1"], "t5": ["model.encoder_layers=1", "model.head_width=10"]}


class Layers:
    """Layers behind whose branches norms stand."""

    def __init__(self, config, tensors, epsilon):
        self.config, self.tensors, self.epsilon = config, tensors, epsilon

    def linear(self, name, x):
        return x @ self.tensors[name + ".weight"].T + self.tensors[name + ".bias"]

    def norm(self, name, x):
        x = x - x.mean(-1, keepdims=True)
        return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon) * self.tensors[name + ".weight"] + self.tensors[name + ".bias"]

    def attend(self, names, x, source, heads, seen, causal):
        """seen: keys that are no padding."""
        q, k, v = (self.linear(name, y).reshape(len(y), heads, -1) for name, y in zip(names, (x, source, source)))
        scores = numpy.einsum("thd,shd->hts", q, k) / math.sqrt(q.shape[-1])
        scores[:, :, seen:] = -numpy.inf
        if causal:
            scores = numpy.where(numpy.tril(numpy.ones(scores.shape[1:], bool)), scores, -numpy.inf)
        weights = numpy.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return self.linear(names[3], numpy.einsum("hts,shd->thd", weights, v).reshape(len(x), -1))

    @staticmethod
    def gelu(x):
        return x / 2 * (1 + numpy.vectorize(math.erf)(x / math.sqrt(2)))


class Bert(Layers):
    def states(self, ids, length, second):
        kind = self.config["model_type"]
        table = {name: self.tensors[f"{kind}.embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")}
        places, segments = numpy.arange(len(ids)), numpy.zeros(len(ids), int)
        if kind == "roberta":
            places = numpy.where(places < length, places + PAD + 1, PAD)
        else:
            segments[second:length] = 1
        x = self.norm(f"{kind}.embeddings.LayerNorm", table["word"][ids] + table["position"][places] + table["token_type"][segments])
        for k in range(self.config["num_hidden_layers"]):
            layer = f"{kind}.encoder.layer.{k}."
            names = [f"{layer}attention.{part}" for part in ("self.query", "self.key", "self.value", "output.dense")]
            x = self.norm(layer + "attention.output.LayerNorm", x + self.attend(names, x, x, self.config["num_attention_heads"], length, False))
            x = self.norm(layer + "output.LayerNorm", x + self.linear(layer + "output.dense", self.gelu(self.linear(layer + "intermediate.dense", x))))
        return x


class Bart(Layers):
    def stack(self, side, ids, source, seen):
        heads = self.config[f"{side}_attention_heads"]
        x = self.tensors["model.shared.weight"][ids] + self.tensors[f"model.{side}.embed_positions.weight"][2:2 + len(ids)]
        x = self.norm(f"model.{side}.layernorm_embedding", x)
        for k in range(self.config[f"{side}_layers"]):
            layer = f"model.{side}.layers.{k}."
            own, other = ([f"{layer}{part}.{name}_proj" for name in "q k v out".split()] for part in ("self_attn", "encoder_attn"))
            x = self.norm(layer + "self_attn_layer_norm", x + self.attend(own, x, x, heads, seen if source is None else len(ids), source is not None))
            if source is not None:
                x = self.norm(layer + "encoder_attn_layer_norm", x + self.attend(other, x, source, heads, seen, False))
            x = self.norm(layer + "final_layer_norm", x + self.linear(layer + "fc2", self.gelu(self.linear(layer + "fc1", x))))
        return x

    def states(self, ids, length, start):
        source = self.stack("encoder", ids, None, length)
        return self.stack("decoder", [start] + ids[:-1], source, length)


class Spans(TaskTest):
    @classmethod
    def setUpClass(cls):
        bagpipe_test.FolderTest.setUpClass.__func__(cls)
        cls.write("vocab.txt", "\n".join(SPECIAL + WORDS) + "\n")
        cls.must(["bagpipe-data", "tokenizer", "--vocab", cls.at("vocab.txt"), "--out", cls.at("tokenizer.json")])
        paragraphs = []
        for k, (question, context, first, end) in enumerate(QUESTIONS):
            words = context.split()
            answer = {"text": " ".join(words[first:end]), "answer_start": len(" ".join(words[:first] + [""]))}
            paragraphs.append({"context": context, "qas": [{"id": f"q{k}", "question": question, "answers": [answer]}]})
        cls.write("train.json", json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}))
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "squad", "--out", cls.at("train.h5"), cls.at("train.json")])
        cls.write("empty.ini", "[math]\nprecision = f32\n")

    def first_loss(self, name, *keys):
        """Of a training of one step over all questions."""
        result = run([bagpipe_test.program("bagpipe"), "finetune", self.at("empty.ini"), f"run.dir={self.at(name)}", "task.kind=spans", f"corpus.train={self.at('train.h5')}",
                      "train.batch=4", "train.steps=1", "train.log_every=1", "optimizer.lr=1e-3", "model.dropout=0", "math.precision=f32", *keys])
        self.assertEqual(result.status, 0, str(result))
        return metrics(self.at(name))[0]["loss"]

    def expected(self, kind, folder, tensors):
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        vocabulary, total = SPECIAL + WORDS, 0
        for question, context, first, end in QUESTIONS:
            texts = [[vocabulary.index(word) for word in text.split()] for text in (question, context)]
            ids = ([1] if kind in ("bert", "roberta") else []) + texts[0] + [2]
            second = len(ids)
            ids += texts[1] + [2]
            length = len(ids)
            ids += [PAD] * (CONTEXT - length)
            if kind in ("bert", "roberta"):
                x = Bert(config, tensors, config["layer_norm_eps"]).states(ids, length, second)
            elif kind == "bart":
                x = Bart(config, tensors, 1e-5).states(ids, length, config["decoder_start_token_id"])
            else:
                t5 = T5(config, tensors)
                x = t5.stack("decoder", [config["decoder_start_token_id"]] + ids[:-1], t5.stack("encoder", ids, seen=length), length)
            logits = x @ tensors["qa_outputs.weight"].T + tensors["qa_outputs.bias"]
            logprobs = logits - numpy.log(numpy.exp(logits).sum(0))
            total -= (logprobs[second + first, 0] + logprobs[second + end - 1, 1]) / 2
        return total / len(QUESTIONS)

    def test_the_loss_is_that_of_hugging_face(self):
        for kind, keys in FAMILIES.items():
            with self.subTest(kind=kind):
                self.first_loss(f"{kind}-fresh", f"model.kind={kind}", *MODEL, *keys)
                self.must(["bagpipe-data", "export", self.at(f"{kind}-fresh"), "--out", self.at(f"{kind}-folder")])
                tensors = perturbed(self.at(f"{kind}-folder"), self.at(f"{kind}-random"), by=0.2)
                self.must(["bagpipe-data", "import", self.at(f"{kind}-random"), "--out", self.at(f"{kind}-model")])
                loss = self.first_loss(f"{kind}-tuned", f"model.init={self.at(kind + '-model')}")
                self.assertAlmostEqual(loss, self.expected(kind, self.at(f"{kind}-random"), tensors), 5)


if __name__ == "__main__":
    bagpipe_test.main()
