"""Explanations of a language model of GPT-2's small shape (12 layers of 768, 12 heads, 50,257 words, random weights), in user time of processors.

    /usr/bin/python3 tests/bench/explain.py peer BIN      gradients and integrated gradients beside Captum's formulas in PyTorch
    /usr/bin/python3 tests/bench/explain.py limits BIN    integrated gradients, lens and attention in forward passes of `bagpipe score`
    [--documents 200] [--places 16] [--steps 50] [--methods saliency,integrated] [--layers 12] [--precision f32]

BIN is a folder with bagpipe and bagpipe-data. All is on one thread, in float32 unless --precision
says otherwise. User time of a job is that of a run over all documents less
that of a run over two, which has the same start and end. The peer is what Captum's Saliency and IntegratedGradients (50 points of Gauss and
Legendre's rule) do with forward(vectors) = ln p(target) of GPT2LMHeadModel: a call a target, the text up to it, gradients of the word vectors alone
(parameters ask for none). Texts of equal length are one batch, and all points of a path. --head target spares the peer the logits of
other places, which GPT2LMHeadModel computes too. Values of the first document are compared. Needs numpy, h5py, and for `peer` PyTorch.
"""
import argparse
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile

import h5py
import numpy

C, HEADS, CONTEXT = 768, 12, 1024


def tensors_of(options, words):
    draw = numpy.random.default_rng(1)
    shapes = {"wte.weight": (words, C), "wpe.weight": (CONTEXT, C), "ln_f.weight": (C,), "ln_f.bias": (C,)}
    for k in range(options.layers):
        for name, shape in (("ln_1", (C,)), ("attn.c_attn", (C, 3 * C)), ("attn.c_proj", (C, C)), ("ln_2", (C,)), ("mlp.c_fc", (C, 4 * C)),
                            ("mlp.c_proj", (4 * C, C))):
            shapes[f"h.{k}.{name}.weight"], shapes[f"h.{k}.{name}.bias"] = shape, shape[-1:]
    return {"transformer." + name: numpy.ones(shape, numpy.float32) if "ln_" in name and name.endswith("weight") else
            0.02 * draw.standard_normal(shape, dtype=numpy.float32) for name, shape in shapes.items()}


def write_model(folder, options, words):
    os.makedirs(folder)
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": words, "n_embd": C, "n_layer": options.layers, "n_head": HEADS,
              "n_positions": CONTEXT, "n_ctx": CONTEXT, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True,
              "bos_token_id": words - 1, "eos_token_id": words - 1}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    tensors, header, at = tensors_of(options, words), {}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            file.write(values.tobytes())
    return tensors


def write_corpus(binary, path, documents, words):
    with h5py.File(path + ".foreign", "w") as file:
        file["tokens"] = numpy.concatenate([*documents, []]).astype(numpy.int32)
        file["doc_start"] = numpy.cumsum([0, *(len(d) for d in documents)]).astype(numpy.uint64)
        file.attrs["vocab_size"], file.attrs["eod_id"] = words, words - 1
    subprocess.run([os.path.join(binary, "bagpipe-data"), "corpus", "--format", "hdf5", "--out", path, path + ".foreign"], check=True,
                   stdout=subprocess.DEVNULL)
    return path


class Job:
    """Runs over all documents, and over two."""

    def __init__(self, options, folder, words):
        self.options, self.folder, self.runs = options, folder, 0
        draw = numpy.random.default_rng(2)
        self.documents = [draw.integers(0, words - 1, options.places) for _ in range(options.documents)]
        self.tensors = write_model(os.path.join(folder, "hf"), options, words)
        subprocess.run([os.path.join(options.bin, "bagpipe-data"), "import", os.path.join(folder, "hf"), "--out", os.path.join(folder, "model")],
                       check=True, stdout=subprocess.DEVNULL)
        self.corpora = [write_corpus(options.bin, os.path.join(folder, name), some, words)
                        for name, some in (("all.h5", self.documents), ("two.h5", self.documents[:2]))]
        open(os.path.join(folder, "empty.ini"), "w", encoding="utf-8").close()

    def run(self, job, corpus, *keys):
        self.runs += 1
        name = os.path.join(self.folder, f"run{self.runs}")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([os.path.join(self.options.bin, "bagpipe"), job, os.path.join(self.folder, "empty.ini"), f"run.dir={name}",
                        f"{job}.model={os.path.join(self.folder, 'model')}", f"{job}.corpus={corpus}", f"math.precision={self.options.precision}", "math.threads=1", *keys],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ, OMP_NUM_THREADS="1"))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime, name

    def seconds(self, job, *keys):
        """Of a document."""
        whole, name = self.run(job, self.corpora[0], *keys)
        return (whole - self.run(job, self.corpora[1], *keys)[0]) / (len(self.documents) - 2), name

    def explained(self, method, *keys):
        return self.seconds("explain", f"explain.methods={method}", f"explain.context={self.options.places}", "explain.examples=0", *keys)


class Peer:
    """GPT2LMHeadModel from word vectors on, in PyTorch."""

    def __init__(self, tensors, options):
        import torch
        self.torch, self.options = torch, options
        torch.set_num_threads(1)
        self.of = {name[len("transformer."):]: torch.from_numpy(values) for name, values in tensors.items()}

    def norm(self, x, name):
        return self.torch.nn.functional.layer_norm(x, (C,), self.of[name + ".weight"], self.of[name + ".bias"], 1e-5)

    def map(self, x, name):
        return self.torch.addmm(self.of[name + ".bias"], x.reshape(-1, x.shape[-1]), self.of[name + ".weight"]).view(*x.shape[:-1], -1)

    def forward(self, vectors, targets):
        """ln p(targets[b]) after the last place of each text."""
        torch, T = self.torch, vectors.shape[1]
        x = vectors + self.of["wpe.weight"][:T]
        mask = torch.full((T, T), float("-inf")).triu(1)
        for k in range(self.options.layers):
            q, key, v = (part.view(len(x), T, HEADS, -1).transpose(1, 2) for part in self.map(self.norm(x, f"h.{k}.ln_1"), f"h.{k}.attn.c_attn").split(C, 2))
            a = (q @ key.transpose(-1, -2) / (C // HEADS) ** 0.5 + mask).softmax(-1) @ v
            x = x + self.map(a.transpose(1, 2).reshape(x.shape), f"h.{k}.attn.c_proj")
            x = x + self.map(torch.nn.functional.gelu(self.map(self.norm(x, f"h.{k}.ln_2"), f"h.{k}.mlp.c_fc"), approximate="tanh"), f"h.{k}.mlp.c_proj")
        x = self.norm(x if self.options.head == "all" else x[:, -1:], "ln_f")
        return (x @ self.of["wte.weight"].T).log_softmax(-1)[:, -1].gather(1, targets[:, None])[:, 0]

    def gradients(self, vectors, targets):
        vectors = vectors.requires_grad_()
        return self.torch.autograd.grad(self.forward(vectors, targets).sum(), vectors)[0]

    def saliency(self, documents, end):
        """The sum of |g| of the texts' inputs, for each target: texts are a batch."""
        torch, batch, first = self.torch, 16, None
        for at in range(0, len(documents), batch):
            texts = torch.from_numpy(numpy.stack([numpy.concatenate([[end], d]) for d in documents[at:at + batch]]))
            for k in range(texts.shape[1] - 1):
                g = self.gradients(self.of["wte.weight"][texts[:, :k + 1]], texts[:, k + 1]).abs().sum(-1)
                first = g[0] if at == 0 else first
        return first.numpy()  # of the first document's last target

    def integrated(self, documents, end):
        torch = self.torch
        nodes, weights = (torch.from_numpy(part.astype(numpy.float32)) for part in numpy.polynomial.legendre.leggauss(self.options.steps))
        first = None
        for d in documents:
            text = torch.from_numpy(numpy.concatenate([[end], d]))
            for k in range(len(text) - 1):
                own = self.of["wte.weight"][text[:k + 1]]
                base = self.of["wte.weight"][torch.full((k + 1,), end)]
                path = base + (1 + nodes[:, None, None]) / 2 * (own - base)
                targets = text[k + 1].expand(len(path))
                found = ((own - base) * (weights[:, None, None] / 2 * self.gradients(path, targets)).sum(0)).sum(-1)
                with torch.no_grad():  # delta
                    self.forward(torch.stack([own, base]), targets[:2])
            first = found if first is None else first
        return first.numpy()


def compare(options, folder):
    words = 50257
    job = Job(options, folder, words)
    peer = Peer(job.tensors, options)
    for method, array in (("saliency", "saliency_l1"), ("integrated", "integrated")):
        if method not in options.methods.split(","):
            continue
        ours, name = job.explained(method, f"explain.steps={options.steps}", "explain.baseline=eod")
        getattr(peer, method)(job.documents[:1], words - 1)  # PyTorch's start
        began = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        theirs = getattr(peer, method)(job.documents, words - 1)
        seconds = (resource.getrusage(resource.RUSAGE_SELF).ru_utime - began) / len(job.documents)
        with h5py.File(os.path.join(name, "explain", method + ".h5")) as file:
            T = options.places
            row = file[array][T * (T - 1):T * T]
        print(f"{method}: {options.documents} documents of {options.places} targets: bagpipe {ours:.3f} s a document, PyTorch {seconds:.3f} s: "
              f"{seconds / ours:.2f} times; largest difference {numpy.abs(row - theirs).max():.1e} of {numpy.abs(theirs).max():.3g}", flush=True)


def limits(options, folder):
    """A vocabulary so small that the head's products do not count."""
    job = Job(options, folder, 64)
    forward, _ = job.seconds("score", f"score.context={options.places}")
    print(f"a forward pass: {forward:.4f} s a document of {options.places} places")
    for method, limit in (("lens", 1.3), ("attention", 1.5)):
        if method in options.methods.split(","):
            print(f"{method}: {job.explained(method)[0] / forward:.2f} forward passes (limit {limit})", flush=True)
    if "integrated" in options.methods.split(","):
        one, _ = job.explained("gradient")
        many, _ = job.explained("integrated", f"explain.steps={options.steps}", "explain.baseline=eod")
        print(f"integrated, {options.steps} steps: {many / one:.1f} forward and backward passes (limit 55)", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("what", choices=("peer", "limits"))
    parser.add_argument("bin")
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--places", type=int, default=16)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--methods", default="saliency,integrated,lens,attention")
    parser.add_argument("--precision", choices=("f32", "bf16", "auto"), default="f32", help="of bagpipe; PyTorch's is f32")
    parser.add_argument("--head", choices=("all", "target"), default="all")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        {"peer": compare, "limits": limits}[options.what](options, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
