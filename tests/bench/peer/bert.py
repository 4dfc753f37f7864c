"""BERT in PyTorch as a practised user writes it for torch 1.13 and 2.6, masked language modelling alone: the same work as bagpipe's model of kind bert
without its pooler, to the masks. The vocabulary sees masked places alone.
"""
import math
import os
import sys

import h5py
import torch
import torch.nn.functional as F
from torch import nn

import gpt

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models"))
from noise_numpy import Draws  # pylint: disable=wrong-import-position

EPSILON, MASKS, RATE, KEEP, RANDOM = 1e-12, 9, 0.15, 0.1, 0.1


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.ln_1, self.ln_2 = nn.LayerNorm(width, EPSILON), nn.LayerNorm(width, EPSILON)

    def attention(self, x):
        B, T, C = x.shape
        H, D = self.heads, C // self.heads
        q, k, v = self.qkv(x).view(B, T, 3, H, D).permute(2, 0, 3, 1, 4)
        if gpt.flash(q):
            return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, T, C))
        q, k, v = (part.reshape(B * H, T, D) for part in (q, k, v))
        scores = torch.baddbmm(q.new_zeros(()), q, k.transpose(1, 2), beta=0, alpha=1 / math.sqrt(D))
        return self.out(torch.bmm(F.softmax(scores, dim=-1), v).view(B, H, T, D).transpose(1, 2).reshape(B, T, C))

    def forward(self, x):
        x = self.ln_1(x + self.attention(x))
        return self.ln_2(x + self.down(F.gelu(self.up(x))))


class BERT(nn.Module):
    def __init__(self, layers, width, heads, context, vocabulary):
        super().__init__()
        self.wte, self.wpe, self.segments = nn.Embedding(vocabulary, width), nn.Embedding(context, width), nn.Embedding(2, width)
        self.ln = nn.LayerNorm(width, EPSILON)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.transform, self.ln_f, self.bias = nn.Linear(width, width), nn.LayerNorm(width, EPSILON), nn.Parameter(torch.zeros(vocabulary))
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, inputs, targets):
        """int64 [B, T], -1 where no token is masked -> mean cross-entropy of the masked ones."""
        x = self.ln(self.wte(inputs) + (self.wpe.weight[:inputs.shape[1]] + self.segments.weight[0]))
        for layer in self.layers:
            x = layer(x)
        asked = targets >= 0
        states = self.ln_f(F.gelu(self.transform(x[asked])))
        return F.cross_entropy(F.linear(states, self.wte.weight, self.bias), targets[asked])


# ---- weights, as `bagpipe-data export` writes them ----

NAMES = {"bert.embeddings.word_embeddings": "wte", "bert.embeddings.position_embeddings": "wpe", "bert.embeddings.token_type_embeddings": "segments",
         "bert.embeddings.LayerNorm": "ln", "bert.encoder.layer": "layers", "attention.output.dense": "out", "attention.output.LayerNorm": "ln_1",
         "intermediate.dense": "up", "output.dense": "down", "output.LayerNorm": "ln_2", "cls.predictions.transform.dense": "transform",
         "cls.predictions.transform.LayerNorm": "ln_f", "cls.predictions.bias": "bias"}


def load(model, path):
    found, state = gpt.safetensors(path), {}
    for name, value in found.items():
        value = torch.from_numpy(value.copy())
        if ".self.query." in name:
            parts = [value] + [torch.from_numpy(found[name.replace("query", other)].copy()) for other in ("key", "value")]
            name, value = name.replace("attention.self.query", "qkv"), torch.cat(parts)
        elif ".self." in name:
            continue
        for theirs, ours in NAMES.items():
            name = name.replace(theirs, ours)
        state[name] = value
    model.load_state_dict(state)


# ---- examples ----

def masked(text, step, slot, rules):
    """A text's inputs and targets: bagpipe's masks of seed 1, a function of step, batch slot and place (src/models/bert/masked.c)."""
    order, kind, token = (Draws(1, step, 4 * slot + k, MASKS) for k in range(3))
    inputs, targets, n = list(text), [-1] * len(text), len(text)
    wanted = max(1, math.floor(RATE * sum(id not in rules["special"] for id in text) + 0.5))
    for k in range(n):
        t = order.permute(k, n)
        if wanted == 0:
            break
        if text[t] in rules["special"]:
            continue
        targets[t], wanted, u = text[t], wanted - 1, kind.uniform(t)
        if u < RANDOM:
            inputs[t] = token.below(t, rules["vocabulary"])
        elif u >= RANDOM + KEEP:
            inputs[t] = rules["mask"]
    return [rules["cls"], *inputs, rules["sep"]], [-1, *targets, -1]


class Windows:
    """Batches of masked windows in the corpus' order, all made beforehand: a window's T - 2 tokens between the ids that begin and end a text."""

    def __init__(self, path, context, batch, steps):
        with h5py.File(path, "r") as file:
            rules = {name: int(file.attrs[name + "_id"]) for name in ("cls", "sep", "mask", "eod")}
            tokens = file["tokens"][:(batch * steps + 1) * context].tolist()
            rules["vocabulary"] = int(file.attrs["vocab_size"])
        rules["special"] = {rules[name] for name in ("cls", "sep", "eod")}
        windows = max(1, (len(tokens) - 1) // (context - 1))
        self.batches = []
        for step in range(steps):
            at = [(step * batch + slot) % windows * (context - 1) for slot in range(batch)]
            rows = [masked(tokens[a:a + context - 2], step + 1, slot, rules) for slot, a in enumerate(at)]
            self.batches.append([torch.tensor(side) for side in zip(*rows)])

    def __getitem__(self, step):
        return self.batches[step]

    def tokens(self):
        """Of a batch."""
        return self.batches[0][0].numel()
