"""Means of a BertModel's states in PyTorch, on one core: what score.vectors is measured beside, with the same batches. Not a test:
    python3 bench_vectors.py FOLDER IDS.json
FOLDER holds config.json and model.safetensors; IDS.json is a list of lists of ids, with [CLS] and [SEP]. It prints seconds."""
import json
import struct
import sys
import time

import numpy
import torch
import torch.nn.functional as F

torch.set_num_threads(1)
torch.set_grad_enabled(False)
SORTED, UNIT, BATCH, TOKENS = 4096, 128, 32, 8192  # src/infer/score/vectors/vectors_priv.h


def read(folder):
    with open(folder + "/config.json", encoding="utf-8") as file:
        config = json.load(file)
    with open(folder + "/model.safetensors", "rb") as file:
        head, data = json.loads(file.read(struct.unpack("<Q", file.read(8))[0])), file.read()
    head.pop("__metadata__", None)
    return config, {name: torch.from_numpy(numpy.frombuffer(data[slice(*t["data_offsets"])], "<f4").reshape(t["shape"]).copy())
                    for name, t in head.items()}


def batches(ids):
    for start in range(0, len(ids), SORTED):
        order = sorted(range(start, min(start + SORTED, len(ids))), key=lambda k: (len(ids[k]), k))
        for first in range(0, len(order), UNIT):
            unit = order[first:first + UNIT]
            while unit:
                count = 1
                while count < min(len(unit), BATCH) and (count + 1) * len(ids[unit[count]]) <= TOKENS:
                    count += 1
                yield unit[:count]
                unit = unit[count:]


def eager(q, k, v, attn_mask):
    """As transformers' BertSelfAttention has it, for a PyTorch before 2."""
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    return scores.masked_fill(~attn_mask, torch.finfo(scores.dtype).min).softmax(-1) @ v


ATTENTION = getattr(F, "scaled_dot_product_attention", eager)


def states(config, w, x, seen):
    def linear(name, value):
        return F.linear(value, w[name + ".weight"], w[name + ".bias"])

    def norm(name, value):
        return F.layer_norm(value, (width,), w[name + ".weight"], w[name + ".bias"], 1e-12)

    B, T = x.shape
    width, heads = config["hidden_size"], config["num_attention_heads"]
    mask = seen[:, None, None, :].expand(-1, 1, T, -1)
    y = norm("embeddings.LayerNorm", F.embedding(x, w["embeddings.word_embeddings.weight"]) + w["embeddings.position_embeddings.weight"][:T]
             + w["embeddings.token_type_embeddings.weight"][0])
    for layer in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{layer}."
        q, k, v = (linear(at + "attention.self." + name, y).view(B, T, heads, -1).transpose(1, 2) for name in ("query", "key", "value"))
        mixed = ATTENTION(q, k, v, attn_mask=mask).transpose(1, 2).reshape(B, T, width)
        y = norm(at + "attention.output.LayerNorm", y + linear(at + "attention.output.dense", mixed))
        y = norm(at + "output.LayerNorm", y + linear(at + "output.dense", F.gelu(linear(at + "intermediate.dense", y))))
    return y


def main():
    config, weights = read(sys.argv[1])
    with open(sys.argv[2], encoding="utf-8") as file:
        ids = json.load(file)
    out, began = torch.empty(len(ids), config["hidden_size"]), time.time()
    for batch in batches(ids):
        T = max(len(ids[k]) for k in batch)
        x, seen = torch.zeros(len(batch), T, dtype=torch.long), torch.zeros(len(batch), T, dtype=torch.bool)
        for row, k in enumerate(batch):
            x[row, :len(ids[k])], seen[row, :len(ids[k])] = torch.tensor(ids[k]), True
        real = seen.unsqueeze(-1).float()
        out[batch] = (states(config, weights, x, seen) * real).sum(1) / real.sum(1)
    print("seconds", time.time() - began)


if __name__ == "__main__":
    main()
