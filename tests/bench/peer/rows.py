"""The rows of the table: each measures one of them in turns, and gives plain values that report.py makes a table of."""
import os
import shutil

import h5py

from programs import Model

GPT2 = Model("gpt2", 12, 768, 12, 1024, 50257)
SMALL = Model("small", 4, 256, 4, 256, 8000)
TOLERANCE = {"f32": lambda ours, theirs: abs(ours - theirs) <= 1e-4 * abs(theirs), "bf16": lambda ours, theirs: abs(ours - theirs) <= 1e-2}


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


class Bench:
    """What all rows need: the programs, the corpora, how often."""

    def __init__(self, programs, texts, pairs):
        self.programs, self.texts, self.pairs = programs, texts, pairs

    def turns(self, kind, ours, theirs):
        """Tokens/s of bagpipe and of each PyTorch, one after the other, as often as asked. The fastest PyTorch is the peer of the row."""
        mine, others = [], {}
        for _ in range(self.pairs):
            mine.append(ours())
            for peer in self.programs.peers(kind):
                name, speed = theirs(peer)
                others.setdefault(name, []).append(speed)
        best = max(others, key=lambda name: median(others[name]))
        return {"pairs": list(zip(mine, others[best])), "peer": best, "peers": others}

    def corpus(self, model):
        """The text as one document, in tokens of the model's vocabulary; made once."""
        p, text = self.programs, os.path.join(self.texts, "wikitext-2", "train.txt")
        corpus, tokenizer = p.at(f"{model.name}.h5"), p.at(f"{model.name}.json")
        if not os.path.exists(corpus):
            how = ["--kind", "bpe", "--size", model.vocabulary, text]
            if model.vocabulary == 50257:
                how = ["--vocab", os.path.join(self.texts, "gpt2", "vocab.json"), "--merges",
                       os.path.join(self.texts, "gpt2", "merges.txt")]
            p.data("tokenizer", "--out", tokenizer, *how)
            p.data("corpus", "--tokenizer", tokenizer, "--format", "text", "--out", corpus, text)
        return corpus

    def windows(self, model, count):
        """The first `count` windows as a corpus of their own: a document of count x T + 1 tokens."""
        corpus, cut = self.corpus(model), self.programs.at(f"{model.name}-{count}.h5")
        if not os.path.exists(cut):
            h5py.h5pl.prepend(self.programs.plugin().encode())
            with h5py.File(corpus, "r") as whole, h5py.File(cut + ".foreign", "w") as part:
                tokens = whole["tokens"][:count * model.context + 1]
                part["tokens"], part["doc_start"] = tokens, [0, len(tokens)]
                part.attrs["vocab_size"] = model.vocabulary
            self.programs.data("corpus", "--format", "hdf5", "--out", cut, cut + ".foreign")
        return cut

    def train(self, model, corpus, precision, batch, steps, *keys, **how):
        """micro_batch: all of the batch at once, if no key says otherwise."""
        own = [f"corpus.train={corpus}", *model.keys(), f"train.steps={steps}", f"train.batch={batch}", "train.log_every=1",
               f"mesh.micro_batch={batch}", "train.reduction=running", f"math.precision={precision}", "checkpoint.every=1000000"]
        return self.programs.bagpipe("pretrain", own + list(keys), **how)


# ---- the same work ----

def initial_weights(bench, model, corpus):
    """bagpipe's first weights, exported: a step at rate 0 changes nothing."""
    p, folder = bench.programs, bench.programs.at(f"{model.name}-initial")
    if not os.path.exists(folder):
        bench.train(model, corpus, "f32", 1, 1, "optimizer.lr=0")
        p.data("export", p.at("run"), "--out", folder)
    return os.path.join(folder, "model.safetensors")


def scored_loss(bench, model, corpus, precision):
    """Nats a token of bagpipe's first model on the corpus, by a score job."""
    weights = os.path.dirname(initial_weights(bench, model, corpus))
    checkpoint = bench.programs.at(f"{model.name}-imported")
    if not os.path.exists(checkpoint):
        bench.programs.data("import", weights, "--out", checkpoint)
    run = bench.programs.bagpipe("score", [f"score.model={checkpoint}", f"score.corpus={corpus}", "score.prefix=none",
                                           f"math.precision={precision}"])
    return run.summary["nll_nats"] / run.summary["tokens"]


def checked(what, precision, ours, others):
    """Losses of bagpipe against those of each PyTorch."""
    return [{"what": f"{what}, {found['name']}", "ours": ours, "theirs": found["losses"],
             "same": all(map(TOLERANCE[precision], ours, found["losses"]))} for found in others]


def losses(run):
    return [line["loss"] for line in run.metrics]


def same_losses(bench, model, precision, batch, steps, corpus, *options, keys=()):
    """`options`: what peer.py is told besides, `keys`: what bagpipe is."""
    weights = initial_weights(bench, model, corpus)
    ours = losses(bench.train(model, corpus, precision, batch, steps, "optimizer.decay=constant", *keys))
    others = [peer("train", model, corpus, precision, batch, steps, weights, *options) for peer in bench.programs.peers(model.kind)]
    return checked(f"{model.name}, {precision}, batch {batch}: training", precision, ours, others)


def same_scores(bench, model, precision, batch, corpus):
    ours, weights = [scored_loss(bench, model, corpus, precision)], initial_weights(bench, model, corpus)
    return checked(f"{model.name}, {precision}: scoring", precision, ours,
                   [peer("score", model, corpus, precision, batch, 1, weights) for peer in bench.programs.peers(model.kind)])


def same(bench):
    """The same windows, first weights and rule of updates give all the same losses, step by step."""
    checks = []
    for model, batch, steps in ((SMALL, 8, 5), (GPT2, 1, 3)):
        corpus = bench.windows(model, batch)
        for precision in ("f32", "bf16"):
            checks += [*same_losses(bench, model, precision, batch, steps, corpus), *same_scores(bench, model, precision, batch, corpus)]
    return {"checks": checks}


# ---- tokens a second against PyTorch ----

def training(model, precision, batch, steps, corpus_of=None, keys=()):
    """The first step of each run warms up and is left out. `corpus_of`: of the bench; the text in the model's vocabulary if there is none."""

    def measure(bench):
        corpus, tokens, runs = (corpus_of or (lambda bench: bench.corpus(model)))(bench), batch * model.context, []

        def ours():
            runs.append(bench.train(model, corpus, precision, batch, steps, *keys))
            return tokens / median([line["seconds"] for line in runs[-1].metrics[1:]])

        def theirs(peer):
            found = peer("train", model, corpus, precision, batch, steps)
            return found["name"], tokens / median(found["seconds"][1:])

        return {**bench.turns(model.kind, ours, theirs), "precision": precision, "memory": [run.memory() for run in runs],
                "mfu": [median([line["mfu"] or 0 for line in run.metrics[1:]]) for run in runs]}

    return measure


def scoring(model, windows, batch):
    """bagpipe: from the line that says what is scored to the first line of results; PyTorch: all batches but the first."""

    def measure(bench):
        corpus, first = bench.windows(model, windows), bench.windows(model, batch)
        weights = initial_weights(bench, model, first)
        scored_loss(bench, model, first, "bf16")  # imports the checkpoint
        keys = [f"score.model={bench.programs.at(model.name + '-imported')}", f"score.corpus={corpus}", "score.prefix=none",
                "math.precision=bf16"]

        def ours():
            run = bench.programs.bagpipe("score", keys)
            return run.summary["tokens"] / (run.moments("all ")[0] - run.moments("scoring ")[0])

        def theirs(peer):
            found = peer("score", model, corpus, "bf16", batch, windows // batch, weights)
            return found["name"], found["tokens"] / median(found["seconds"][1:])

        return {**bench.turns(model.kind, ours, theirs), "precision": "bf16"}

    return measure


# ---- bagpipe against itself ----

MESHES = {"data": ("mesh.micro_batch=4",), "tensor": ("mesh.tensor=2", "mesh.micro_batch=8"),
          "pipeline": ("mesh.pipeline=2", "mesh.schedule=interleaved", "mesh.micro_batch=1")}


def two_ranks(model, axis, steps):
    """Two ranks of one thread against one rank of two, a batch of 8. One rank takes the micro-batch that suits it: 8."""

    def measure(bench):
        corpus, pairs = bench.corpus(model), []
        for _ in range(bench.pairs):
            one = bench.train(model, corpus, "bf16", 8, steps, threads=2)
            two = bench.train(model, corpus, "bf16", 8, steps, *MESHES[axis], ranks=2, threads=1)
            pairs.append(tuple(8 * model.context / median([line["seconds"] for line in run.metrics[1:]]) for run in (two, one)))
        return {"pairs": pairs}

    return measure


def checkpoints(model, steps, every):
    """Steps' whole time, from line to line, while a checkpoint is being written against those of the same run in which none is: what one
    costs, over how long it takes to write. The last one, after the last step, is not counted."""

    def measure(bench):
        corpus, found = bench.corpus(model), []
        for _ in range(bench.pairs):
            run = bench.train(model, corpus, "bf16", 1, steps, f"checkpoint.every={every}", "checkpoint.keep=1")
            lines, ends = run.moments("step "), run.moments("committed step ")[:(steps - 1) // every]
            begins = [lines[every * (k + 1) - 1] for k in range(len(ends))]
            inside = [[b - a for a, b in zip(lines, lines[1:]) if begin <= a < end] for begin, end in zip(begins, ends)]
            step = median([b - a for a, b in zip(lines[1:], lines[2:])
                           if not any(begin <= a < end for begin, end in zip(begins, ends))])
            found += [{"step": step, "lost": sum(gaps) - step * len(gaps), "written": end - begin}
                      for gaps, begin, end in zip(inside, begins, ends)]
        return {"checkpoints": found}

    return measure


def profile(bench):
    """Of one training: the share of steps that waits for input, and the products' speed over the silicon's."""
    if not bench.programs.knows("pretrain", "train.profile"):
        return {"lacks": "train.profile"}
    corpus, waits, products = bench.corpus(GPT2), [], []
    for batch in (1, 4):
        run = bench.train(GPT2, corpus, "bf16", batch, 5, "train.profile=yes").profile
        waits.append(run["input_wait"])
        rank = run["ranks"][0]
        work = [row for name, row in rank["work"].items() if name.startswith("products")]
        products.append(sum(row["flops"] for row in work) / sum(row["seconds"] for row in work) / rank["silicon_flops"])
        shutil.copy(bench.programs.at("run", "profile.json"), bench.programs.at(f"profile-{batch}.json"))
    return {"input_wait": waits, "products_share": products}


def silicon(bench):
    """FLOP/s of the cores multiplying in registers, and of a step's products, by `bagpipe bench`."""
    p = bench.programs
    if not p.knows("bench", "bench.seconds"):
        return {"lacks": "bagpipe bench"}
    found = p.bagpipe("bench", ["bench.models=none", "bench.seconds=0.3", "bench.corpus=1MiB"]).bench
    return {"silicon": {name: peak["median"] for name, peak in found["silicon"].items()}, "products": found["products"]}


ROWS = {
    "same": same,
    "silicon": silicon,
    "train-bf16-1": training(GPT2, "bf16", 1, 6),
    "train-bf16-4": training(GPT2, "bf16", 4, 3),
    "score-bf16": scoring(GPT2, 32, 4),
    "train-f32-1": training(GPT2, "f32", 1, 4),
    "train-f32-4": training(GPT2, "f32", 4, 3),
    "small-bf16": training(SMALL, "bf16", 8, 16),
    "small-f32": training(SMALL, "f32", 8, 16),
    "small-score": scoring(SMALL, 512, 8),
    "mesh-data": two_ranks(GPT2, "data", 2),
    "mesh-tensor": two_ranks(GPT2, "tensor", 2),
    "mesh-pipeline": two_ranks(GPT2, "pipeline", 2),
    "profile": profile,
    "checkpoint": checkpoints(GPT2, 36, 12),
}
