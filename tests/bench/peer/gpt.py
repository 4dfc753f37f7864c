"""GPT-2 in PyTorch as a practised user writes it for torch 1.13 and 2.6: the same work as bagpipe's model of kind gpt, to the parameter.

Tied embeddings, biases everywhere, no dropout. What was tried for speed, and what was kept, is in README.md.
"""
import json
import math
import struct

import numpy
import torch
import torch.nn.functional as F
from torch import nn


def flash(q):
    """Is PyTorch 2's own attention the faster one? Its backward pass in bf16 is 15 times slower than matrices written out."""
    return hasattr(F, "scaled_dot_product_attention") and (q.dtype == torch.float32 or not torch.is_grad_enabled())


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x, mask):
        """x: [B, T, C]; mask: [T, T], 0 or -inf, added by the same product that scales."""
        B, T, C = x.shape
        H, D = self.heads, C // self.heads
        q, k, v = self.qkv(x).view(B, T, 3, H, D).permute(2, 0, 3, 1, 4)
        if flash(q):
            return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C))
        q, k, v = (part.reshape(B * H, T, D) for part in (q, k, v))
        weights = F.softmax(torch.baddbmm(mask.expand(B * H, T, T), q, k.transpose(1, 2), alpha=1 / math.sqrt(D)), dim=-1)
        return self.out(torch.bmm(weights, v).view(B, H, T, D).transpose(1, 2).reshape(B, T, C))

    def forward(self, x, mask):
        x = x + self.attention(self.ln_1(x), mask)
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, width, heads, context, vocabulary):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        never = torch.ones(context, context, dtype=torch.bool).triu(1)
        for name, dtype in (("mask", torch.float32), ("mask_bf16", torch.bfloat16)):
            self.register_buffer(name, torch.zeros(context, context, dtype=dtype).masked_fill(never, -math.inf), persistent=False)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, inputs, targets, reduction="mean"):
        """inputs, targets: int64 [B, T] -> the cross-entropy in nats, of float32 logits as in every recipe."""
        T = inputs.shape[1]
        mask = (self.mask_bf16 if torch.is_autocast_cpu_enabled() else self.mask)[:T, :T]
        x = self.wte(inputs) + self.wpe.weight[:T]
        for layer in self.layers:
            x = layer(x, mask)
        logits = F.linear(self.ln_f(x), self.wte.weight).view(inputs.numel(), -1).float()
        return F.cross_entropy(logits, targets.reshape(-1), reduction=reduction)


def decayed(model, weight_decay):
    """Parameter groups for AdamW: decay on matrices and embeddings only."""
    parameters = list(model.parameters())
    return [{"params": [p for p in parameters if p.dim() == 2], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0}]


# ---- weights, as `bagpipe-data export` writes them ----

NAMES = {"attn.c_attn": "qkv", "attn.c_proj": "out", "mlp.c_fc": "up", "mlp.c_proj": "down"}


def safetensors(path):
    """{name: float32 array} of a safetensors file: eight bytes of length, a JSON header, data."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    found = {}
    for name, tensor in header.items():
        if name != "__metadata__":
            first, end = tensor["data_offsets"]
            found[name] = numpy.frombuffer(data[first:end], "<f4").reshape(tensor["shape"])
    return found


def load(model, path):
    """GPT-2's tensors of a Hugging Face file; its matrices have a row for each input, nn.Linear's for each output."""
    own = dict(model.named_parameters())
    for name, value in safetensors(path).items():
        name = name.removeprefix("transformer.")
        if name.startswith("h."):
            name = "layers." + name[2:]
            for theirs, ours in NAMES.items():
                if theirs in name:
                    name, value = name.replace(theirs, ours), value.T
        with torch.no_grad():
            own.pop(name).copy_(torch.from_numpy(value.copy()))
    assert not own, f"not in the file: {sorted(own)}"
