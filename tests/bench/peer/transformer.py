"""The Transformer of Vaswani et al. 2017 in PyTorch: nn.Transformer's layers in training, as bagpipe's model of kind transformer. nn.Transformer
has no decoding with a cache: greedy decoding is written over the same layers' weights, and keeps keys and values.
"""
import json
import math
import time

import h5py
import numpy
import torch
import torch.nn.functional as F
from torch import nn

import gpt

SMOOTHING = 0.1
FEWER = 0.75  # finished texts leave the batch when so few are left: a copy of the cache each time


def sinusoids(count, width):
    """[count, C]: sines at even columns, cosines at odd ones."""
    angle = torch.arange(count)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10000) / width))
    return torch.stack((angle.sin(), angle.cos()), dim=2).reshape(count, width)


def padded(texts, value=0):
    """int64 [B, the longest]"""
    return nn.utils.rnn.pad_sequence([torch.as_tensor(text) for text in texts], batch_first=True, padding_value=value)


class Transformer(nn.Module):
    def __init__(self, layers, width, heads, context, vocabulary, inner):
        super().__init__()
        self.shared = nn.Embedding(vocabulary, width)
        sizes = {"d_model": width, "nhead": heads, "dim_feedforward": inner, "dropout": 0.0, "batch_first": True}
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**sizes), layers)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**sizes), layers)
        self.register_buffer("positions", sinusoids(context, width), persistent=False)
        self.register_buffer("future", torch.ones(context, context, dtype=torch.bool).triu(1), persistent=False)
        nn.init.normal_(self.shared.weight, std=width ** -0.5)

    def embed(self, ids):
        return self.shared(ids) * self.shared.embedding_dim ** 0.5 + self.positions[:ids.shape[1]]

    def forward(self, sources, padding, inputs, targets):
        """sources [B, S], padding [B, S] bool, inputs and targets [B, T], -1 where there is none. The vocabulary sees real places alone."""
        memory, T = self.encoder(self.embed(sources), src_key_padding_mask=padding), inputs.shape[1]
        states = self.decoder(self.embed(inputs), memory, tgt_mask=self.future[:T, :T], memory_key_padding_mask=padding)
        real = targets >= 0
        return F.cross_entropy(F.linear(states[real], self.shared.weight), targets[real], label_smoothing=SMOOTHING)


def load(model, path):
    """The names are torch.nn's."""
    model.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in gpt.safetensors(path).items()})


class Pairs:
    """Batches of pairs: sorted by length and cut, so that each has pairs of similar lengths, in an order of their own in each epoch."""

    def __init__(self, path, batch, start, longest):
        with h5py.File(path, "r") as file:
            tokens, begin, cuts = file["tokens"][:].astype(numpy.int64), file["doc_start"][:], file["segment_start"][:]
            end = int(file.attrs["eod_id"])
        pairs = []
        for k in range(len(begin) - 1):
            source, target = tokens[cuts[2 * k]:cuts[2 * k + 1]], tokens[cuts[2 * k + 1]:begin[k + 1]]
            target = target[:-1] if len(target) and target[-1] == end else target
            pairs.append([numpy.append(text[:longest - 1], end) for text in (source, target)])
        pairs.sort(key=lambda pair: (max(map(len, pair)), sum(map(len, pair))))
        self.batches = [pairs[k:k + batch] for k in range(0, len(pairs) - batch + 1, batch)]
        self.start, self.order = start, []

    def __getitem__(self, step):
        at = step % len(self.batches)
        if at == 0:
            self.order = torch.randperm(len(self.batches)).tolist()
        pairs = self.batches[self.order[at]]
        sources, targets = padded([pair[0] for pair in pairs]), padded([pair[1] for pair in pairs], -1)
        lengths = torch.tensor([len(pair[0]) for pair in pairs])
        inputs = torch.cat((torch.full((len(pairs), 1), self.start), targets[:, :-1].clamp(min=0)), dim=1)
        return sources, torch.arange(sources.shape[1]) >= lengths[:, None], inputs, targets

    def tokens(self):
        """Of an epoch: those of sources and of targets, ends included."""
        return [sum(len(text) for batch in self.batches for pair in batch for text in pair[side:side + 1]) for side in (0, 1)]


# ---- greedy decoding ----

class Cached:
    """A decoder layer over its weights, for a token a text: keys [B, H, D, T] and values [B, H, T, D] of what was read, and of the sources."""

    def __init__(self, layer, memory, hidden, most):
        self.layer, self.heads, self.hidden = layer, layer.self_attn.num_heads, hidden
        B, _, C = memory.shape
        keys, values = F.linear(memory, layer.multihead_attn.in_proj_weight[C:], layer.multihead_attn.in_proj_bias[C:]).chunk(2, dim=2)
        self.source = [self.split(keys).permute(0, 2, 3, 1).contiguous(), self.split(values).transpose(1, 2).contiguous()]
        self.own = [memory.new_empty(B, self.heads, C // self.heads, most), memory.new_empty(B, self.heads, most, C // self.heads)]

    def split(self, x):
        return x.view(*x.shape[:-1], self.heads, -1)

    def attend(self, q, keys, values, hidden=None):
        """q [B, C] -> [B, C]; hidden: what is added to scores [B, 1, 1, S]."""
        scores = self.split(q)[:, :, None] @ keys / math.sqrt(keys.shape[2])
        return (F.softmax(scores if hidden is None else scores + hidden, dim=-1) @ values).view(q.shape)

    def step(self, x, t):
        layer, C = self.layer, x.shape[1]
        q, k, v = F.linear(x, layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias).chunk(3, dim=1)
        self.own[0][:, :, :, t], self.own[1][:, :, t] = self.split(k), self.split(v)
        x = layer.norm1(x + layer.self_attn.out_proj(self.attend(q, self.own[0][..., :t + 1], self.own[1][:, :, :t + 1])))
        q = F.linear(x, layer.multihead_attn.in_proj_weight[:C], layer.multihead_attn.in_proj_bias[:C])
        x = layer.norm2(x + layer.multihead_attn.out_proj(self.attend(q, *self.source, self.hidden)))
        return layer.norm3(x + layer.linear2(F.relu(layer.linear1(x))))

    def keep(self, rows, hidden):
        self.hidden, self.source, self.own = hidden, [x[rows] for x in self.source], [x[rows] for x in self.own]


def greedy(model, texts, start, end, most):
    """The new tokens of each source, its end included."""
    sources, longest = padded(texts), max(map(len, texts))
    padding = torch.arange(longest) >= torch.tensor([len(text) for text in texts])[:, None]
    memory = model.encoder(model.embed(sources), src_key_padding_mask=padding)
    if memory.shape[1] < longest:  # nested tensors are as long as the longest text
        padding = padding[:, :memory.shape[1]]
    hidden = torch.zeros(padding.shape).masked_fill(padding, -math.inf)[:, None, None]
    layers = [Cached(layer, memory, hidden, most) for layer in model.decoder.layers]
    out, rows = torch.full((len(texts), most), end), torch.arange(len(texts))
    ids, going = torch.full((len(texts),), start), torch.ones(len(texts), dtype=torch.bool)
    for t in range(most):
        x = model.shared(ids) * model.shared.embedding_dim ** 0.5 + model.positions[t]
        for layer in layers:
            x = layer.step(x, t)
        ids = F.linear(x, model.shared.weight).argmax(dim=1)
        out[rows, t] = ids.where(going, torch.tensor(end))
        going &= ids != end
        left = int(going.sum())
        if left == 0:
            break
        if left <= FEWER * len(going):
            kept = going.nonzero()[:, 0]
            rows, ids, hidden, going = rows[kept], ids[kept], hidden[kept], going[kept]
            for layer in layers:
                layer.keep(kept, hidden)
    return [row[:row.index(end) + 1] if end in row else row for row in out.tolist()]


def decode(args, model):
    """All sources of a file of prompts, in batches of neighbours; the first one is decoded once more before the clock begins."""
    with open(args.corpus, encoding="utf-8") as file:
        texts = [json.loads(line)["tokens"] for line in file]
    model.eval()
    written, seconds = [], []
    with torch.inference_mode():
        for first in (0, *range(0, len(texts), args.batch)):
            began = time.perf_counter()
            found = greedy(model, texts[first:first + args.batch], args.start, args.start, args.steps)
            seconds.append(time.perf_counter() - began)
            written.append(found)
    return {"written": [text for found in written[1:] for text in found], "seconds": seconds[1:]}
