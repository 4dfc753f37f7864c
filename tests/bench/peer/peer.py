"""peer.py: trains, scores or decodes with PyTorch what bagpipe does, and prints one line of JSON with seconds and losses.

  peer.py train|score --corpus F.h5 [--kind KIND] --shape LAYERS,WIDTH,HEADS,CONTEXT,VOCABULARY,INNER --precision bf16|f32 --batch B
          --steps N [--threads N] [--weights model.safetensors] [--in-order]
  peer.py greedy --corpus PROMPTS.jsonl --steps TOKENS ...

A step is one batch of examples of the corpus. compare.py starts it with the settings that make PyTorch fast.
"""
import argparse
import json
import resource
import time

import h5py
import numpy
import torch
from torch import nn

import bert
import gpt
import lstm
import transformer

LR, BETAS, EPSILON, WEIGHT_DECAY, CLIP = 3e-4, (0.9, 0.95), 1e-8, 0.1, 1.0  # bagpipe's defaults


class Windows:
    """Batches of B windows of T+1 tokens: of a permutation, as one trains, or as they come. All in memory."""

    def __init__(self, path, context, batch, in_order):
        with h5py.File(path, "r") as file:
            self.ids = torch.from_numpy(file["tokens"][:].astype(numpy.int64))
        self.context, self.batch = context, batch
        count = (len(self.ids) - 1) // context
        self.order = torch.arange(count) if in_order else torch.randperm(count)
        assert count >= batch, f"{path} has {count} windows"

    def __getitem__(self, step):
        first = step * self.batch % (len(self.order) - self.batch + 1)
        rows = [self.ids[k * self.context:(k + 1) * self.context + 1] for k in self.order[first:first + self.batch].tolist()]
        both = torch.stack(rows)
        return both[:, :-1], both[:, 1:]

    def tokens(self):
        """Of a batch."""
        return self.batch * self.context


def autocast(args):
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.precision == "bf16")


def train(args, model, batches):
    fused = {"fused": True} if torch.__version__ >= "2" else {}
    optimizer = torch.optim.AdamW(gpt.decayed(model, WEIGHT_DECAY), lr=LR, betas=BETAS, eps=EPSILON, **fused)
    for step in range(args.steps):
        began = time.perf_counter()
        batch = batches[step]
        with autocast(args):
            loss = model(*batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        yield loss.item(), time.perf_counter() - began


def score(args, model, windows):
    """Of each token its log-probability. One autocast around all batches: weights are rounded once. It keeps no copies of
    parameters under inference_mode, so no_grad is the faster one."""
    with torch.no_grad(), autocast(args):
        for step in range(args.steps):
            began = time.perf_counter()
            inputs, targets = windows[step]
            nats = model(inputs, targets, reduction="none")
            yield nats.mean().item(), time.perf_counter() - began


def make(args):
    """The model of a kind, what reads its weights, and batches of examples."""
    layers, width, heads, context, vocabulary, inner = map(int, args.shape.split(","))
    if args.kind == "transformer":
        pairs = None if args.what == "greedy" else transformer.Pairs(args.corpus, args.batch, args.start, context)
        return transformer.Transformer(layers, width, heads, context, vocabulary, inner), transformer.load, pairs
    if args.kind == "bert":
        return bert.BERT(layers, width, heads, context, vocabulary), bert.load, bert.Windows(args.corpus, context, args.batch, args.steps)
    if args.kind == "lstm":
        return lstm.LSTM(layers, width, vocabulary), lstm.load, lstm.Stream(args.corpus, context, args.batch)
    return gpt.GPT(layers, width, heads, context, vocabulary), gpt.load, Windows(args.corpus, context, args.batch, args.in_order)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "score", "greedy"))
    parser.add_argument("--kind", default="gpt")
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--shape", required=True)
    parser.add_argument("--precision", choices=("bf16", "f32"), default="bf16")
    parser.add_argument("--weights")
    parser.add_argument("--compile", action="store_true", help="torch.compile: PyTorch 2 and a compiler")
    parser.add_argument("--in-order", action="store_true")
    for name, value in (("batch", 1), ("steps", 3), ("threads", 1), ("start", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args()


def main():
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    model, load, batches = make(args)
    if args.weights:
        load(model, args.weights)
    if args.compile:
        model = torch.compile(model)
    if args.what == "greedy":
        found = transformer.decode(args, model)
    else:
        steps = list((train if args.what == "train" else score)(args, model, batches))
        found = {"tokens": batches.tokens(), "losses": [loss for loss, _ in steps], "seconds": [seconds for _, seconds in steps]}
    print(json.dumps({"torch": torch.__version__, **found, "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))


if __name__ == "__main__":
    main()
