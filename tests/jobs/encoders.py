"""Encoders in numpy and float64, as their published code computes them, from Hugging Face folders; and folders with random weights."""
import json
import math
import os
import struct

import numpy

WORDS = [f"w{k}" for k in range(60)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", ":", *WORDS]
erf = numpy.vectorize(math.erf)


def read_tensors(folder, name="model.safetensors"):
    with open(os.path.join(folder, name), "rb") as file:
        head, data = json.loads(file.read(int.from_bytes(file.read(8), "little"))), file.read()
    return {name: numpy.frombuffer(data[slice(*t["data_offsets"])], "<f4").astype(float).reshape(t["shape"])
            for name, t in head.items() if name != "__metadata__"}


def write_folder(folder, config, tensors):
    head, data = {}, b""
    for name, values in tensors.items():
        block = numpy.asarray(values, "<f4").tobytes()
        head[name] = {"dtype": "F32", "shape": list(numpy.shape(values)), "data_offsets": [len(data), len(data) + len(block)]}
        data += block
    text = json.dumps(head).encode()
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)


def random_bert(folder, context=20, seed=1):
    """A BertModel, with its pooler, and no head."""
    C, H, I = 24, 3, 40
    random = numpy.random.default_rng(seed)
    tensors = {"embeddings.word_embeddings.weight": (len(VOCABULARY), C), "embeddings.position_embeddings.weight": (context, C),
               "embeddings.token_type_embeddings.weight": (2, C), "embeddings.LayerNorm.weight": (C,), "embeddings.LayerNorm.bias": (C,)}
    for layer in range(2):
        at = f"encoder.layer.{layer}."
        for name, rows, columns in (("attention.self.query", C, C), ("attention.self.key", C, C), ("attention.self.value", C, C),
                                    ("attention.output.dense", C, C), ("intermediate.dense", I, C), ("output.dense", C, I), ):
            tensors[at + name + ".weight"], tensors[at + name + ".bias"] = (rows, columns), (rows,)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            tensors[at + name + ".weight"] = tensors[at + name + ".bias"] = (C,)
    tensors["pooler.dense.weight"], tensors["pooler.dense.bias"] = (C, C), (C,)
    config = {"architectures": ["BertModel"], "model_type": "bert", "vocab_size": len(VOCABULARY), "hidden_size": C, "num_hidden_layers": 2,
              "num_attention_heads": H, "intermediate_size": I, "max_position_embeddings": context}
    write_folder(folder, config, {name: random.normal(size=shape) * 0.4 + (".LayerNorm.weight" in name) for name, shape in tensors.items()})


class Bert:
    """States of the last layer."""

    def __init__(self, folder):
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            self.config = json.load(file)
        self.tensors = read_tensors(folder)

    def linear(self, name, x):
        return x @ self.tensors[name + ".weight"].T + self.tensors[name + ".bias"]

    def norm(self, name, x):
        centred = x - x.mean(-1, keepdims=True)
        return centred / numpy.sqrt((centred ** 2).mean(-1, keepdims=True) + 1e-12) * self.tensors[name + ".weight"] + self.tensors[name + ".bias"]

    def states(self, ids):
        table, T, heads = self.tensors["embeddings.word_embeddings.weight"], len(ids), self.config["num_attention_heads"]
        x = self.norm("embeddings.LayerNorm", table[ids] + self.tensors["embeddings.position_embeddings.weight"][:T]
                      + self.tensors["embeddings.token_type_embeddings.weight"][0])
        for layer in range(self.config["num_hidden_layers"]):
            at = f"encoder.layer.{layer}."
            q, k, v = (self.linear(f"{at}attention.self.{name}", x).reshape(T, heads, -1).transpose(1, 0, 2) for name in ("query", "key", "value"))
            scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
            shares = numpy.exp(scores - scores.max(-1, keepdims=True))
            mixed = (shares / shares.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(T, -1)
            x = self.norm(at + "attention.output.LayerNorm", x + self.linear(at + "attention.output.dense", mixed))
            inner = self.linear(at + "intermediate.dense", x)
            x = self.norm(at + "output.LayerNorm", x + self.linear(at + "output.dense", inner * (1 + erf(inner / math.sqrt(2))) / 2))
        return x


def pooled(states, pool, norm=False):
    vector = states[0] if pool == "first" else states[-1] if pool == "last" else states.mean(0)
    return vector / numpy.sqrt((vector ** 2).sum()) if norm else vector
