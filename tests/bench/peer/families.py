"""Rows of other families than GPT: the Transformer of 2017 and its greedy decoding, BERT-base's shape, an LSTM."""
import json
import os
import shutil

import h5py
import numpy

from programs import Model
from rows import TOLERANCE, initial_weights, median

TRANSLATE = Model("translate", 3, 128, 4, 104, 6000, kind="transformer", inner=256)  # docs/results.md's, without dropout
BERT = {T: Model(f"bert-{T}", 12, 768, 12, T, 30522, "model.pooler=no", kind="bert") for T in (128, 512)}
LSTM = Model("lstm", 2, 650, 0, 35, 10000, kind="lstm")  # the medium size of Zaremba et al. 2014, without dropout
SMOOTHED = ("train.label_smoothing=0.1",)
BATCH, POOL, MOST = 64, 20, 64  # pairs; batches that are sorted by length together; new tokens of a text at most


def checked(what, ours, theirs):
    return {"what": what, "ours": ours, "theirs": theirs, "same": all(map(TOLERANCE["f32"], ours, theirs))}


def losses(run):
    return [line["loss"] for line in run.metrics]


# ---- translation ----

def multi30k(bench, part):
    return [os.path.join(bench.texts, "multi30k", f"{part}.{language}") for language in ("de", "en")]


def pairs(bench, part, count=None):
    """Multi30k's pairs, or the first of them, in one vocabulary of both languages; made once."""
    p = bench.programs
    tokenizer, corpus = p.at("translate.json"), p.at(f"translate-{part}-{count}.h5")
    if not os.path.exists(tokenizer):
        p.data("tokenizer", "--size", TRANSLATE.vocabulary, "--out", tokenizer, *multi30k(bench, "train"))
    if not os.path.exists(corpus):
        files = [p.at(f"pairs.{side}") for side in ("de", "en")]
        for path, text in zip(files, multi30k(bench, part)):
            with open(text, encoding="utf-8") as file, open(path, "w", encoding="utf-8") as cut:
                cut.writelines(file.readlines()[:count])
        p.data("corpus", "--format", "pairs", "--tokenizer", tokenizer, "--out", corpus, *files)
    return corpus


def start(bench, corpus):
    """The id that begins and ends texts, as the peer is told."""
    h5py.h5pl.prepend(bench.programs.plugin().encode())
    with h5py.File(corpus, "r") as file:
        return ["--start", int(file.attrs["eod_id"])]


def translator(bench):
    """A model that ends its texts where they end: 1,000 steps. Its run folder and its exported weights."""
    p, run, folder = bench.programs, bench.programs.at("translator"), bench.programs.at("translator-exported")
    if not os.path.exists(folder):
        bench.train(TRANSLATE, pairs(bench, "train"), "f32", BATCH, 1000, *SMOOTHED, "corpus.bucket=50", "optimizer.lr=2.5e-3", "optimizer.beta2=0.98",
                    "optimizer.weight_decay=0", "optimizer.warmup=150", "optimizer.decay=inverse_sqrt")
        shutil.rmtree(run, ignore_errors=True)
        shutil.move(p.at("run"), run)
        p.data("export", run, "--out", folder)
    return run, os.path.join(folder, "model.safetensors")


def sources(bench):
    """test_2016's German texts as ids with their end, sorted by length, so that batches have texts of similar lengths: bagpipe takes them as
    they come, and ids as they are."""
    path, corpus = bench.programs.at("sources.jsonl"), pairs(bench, "test_2016")
    end = start(bench, corpus)[1]
    with h5py.File(corpus, "r") as file:
        tokens, cuts = file["tokens"][:], file["segment_start"][:]
    texts = sorted((tokens[cuts[k]:cuts[k + 1]].tolist() + [end] for k in range(0, len(cuts), 2)), key=len)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"tokens": text}) + "\n" for text in texts)
    return path


def decoded(bench):
    """Both decode all sources: lists of new ids, and seconds."""
    p, (run, weights) = bench.programs, translator(bench)
    prompts, begins = sources(bench), start(bench, pairs(bench, "test_2016"))
    job = p.bagpipe("generate", [f"generate.model={run}", f"generate.prompts={prompts}", f"generate.batch={BATCH}", f"generate.tokens={MOST}",
                                 "math.precision=f32"])
    with open(p.at("run", "generate", "outputs.jsonl"), encoding="utf-8") as file:
        ours = [json.loads(line)["tokens"] for line in file]
    peer = p.peer("greedy", TRANSLATE, prompts, "f32", BATCH, MOST, weights, *begins)
    return (ours, job.moments(f"{len(ours)} texts ")[0] - job.moments("continuing ")[0]), (peer["written"], sum(peer["seconds"]))


def same_translation(bench):
    """Losses step by step over 64 ragged pairs, and greedy texts to the last id."""
    corpus = pairs(bench, "train", BATCH)
    ours = losses(bench.train(TRANSLATE, corpus, "f32", BATCH, 5, *SMOOTHED, "optimizer.decay=constant"))
    theirs = bench.programs.peer("train", TRANSLATE, corpus, "f32", BATCH, 5, initial_weights(bench, TRANSLATE, corpus), *start(bench, corpus))
    (ids, _), (others, _) = decoded(bench)
    equal = sum(a == b for a, b in zip(ids, others, strict=True))
    return {"checks": [checked("Transformer, f32, 64 pairs: training", ours, theirs["losses"]),
                       {"what": "Transformer, f32: texts decoded greedily, equal ones", "ours": [equal], "theirs": [len(ids)], "same": equal == len(ids)}]}


def translating(bench):
    """Two epochs of 20 batches, which both sort by length; the second one counts: all its tokens, of sources and targets, over all its time."""
    corpus, found, shares = pairs(bench, "train", BATCH * POOL), [], []
    for _ in range(bench.pairs):
        run = bench.train(TRANSLATE, corpus, "f32", BATCH, 2 * POOL, *SMOOTHED, f"corpus.bucket={POOL}", "optimizer.decay=constant")
        peer = bench.programs.peer("train", TRANSLATE, corpus, "f32", BATCH, 2 * POOL, None, *start(bench, corpus))
        tokens = sum(peer["tokens"])
        found.append((tokens / sum(line["seconds"] for line in run.metrics[POOL:]), tokens / sum(peer["seconds"][POOL:])))
        shares.append(median([line["mfu"] or 0 for line in run.metrics[POOL:]]))
    return {"pairs": found, "precision": "f32", "mfu": shares}


def decoding(bench):
    """New tokens a second of all sources, their encoding included."""
    found = []
    for _ in range(bench.pairs):
        found.append(tuple(sum(map(len, ids)) / seconds for ids, seconds in decoded(bench)))
    return {"pairs": found, "precision": "f32"}


# ---- BERT and the LSTM ----

def wordpieces(bench, words=None):
    """WikiText-2's training text, or its first words, in pieces of words; made once."""
    p, text = bench.programs, os.path.join(bench.texts, "wikitext-2", "train.txt")
    tokenizer, corpus = p.at("bert.json"), p.at(f"bert-{words}.h5")
    if not os.path.exists(tokenizer):
        p.data("tokenizer", "--kind", "wordpiece", "--size", 30522, "--out", tokenizer, text)
    if not os.path.exists(corpus):
        with open(text, encoding="utf-8") as file, open(p.at("bert.txt"), "w", encoding="utf-8") as cut:
            cut.write(" ".join(file.read().split()[:words]) + "\n")
        p.data("corpus", "--tokenizer", tokenizer, "--format", "text", "--out", corpus, p.at("bert.txt"))
    return corpus


def zipf(bench):
    """A stream of 10,000 words by Zipf's law: rows of the vocabulary are met as often as in a text."""
    p, path = bench.programs, bench.programs.at("zipf.h5")
    if not os.path.exists(path):
        tokens = numpy.minimum(numpy.random.default_rng(1).zipf(1.2, 200_000) - 1, LSTM.vocabulary - 1)
        with h5py.File(path + ".foreign", "w") as file:
            file["tokens"], file["doc_start"] = tokens.astype(numpy.int32), numpy.array([0, len(tokens)], dtype=numpy.uint64)
            file.attrs["vocab_size"] = LSTM.vocabulary
        p.data("corpus", "--format", "hdf5", "--out", path, path + ".foreign")
    return path


def same_steps(bench, model, corpus, batch, steps):
    ours = losses(bench.train(model, corpus, "f32", batch, steps, "optimizer.decay=constant"))
    theirs = bench.programs.peer("train", model, corpus, "f32", batch, steps, initial_weights(bench, model, corpus))["losses"]
    return checked(f"{model.name}, f32, batch {batch}: training", ours, theirs)


def same_masks(bench):
    """A corpus of one window, which all batch slots have, with masks of their own in each slot and step."""
    return {"checks": [same_steps(bench, BERT[T], wordpieces(bench, 19 * T // 20), batch, 3) for T, batch in ((128, 4), (512, 1))]}


def training(model, corpus_of, batch, steps):
    """The first step of each run warms up and is left out."""

    def measure(bench):
        corpus, found, shares, memory = corpus_of(bench), [], [], []
        for _ in range(bench.pairs):
            run = bench.train(model, corpus, "f32", batch, steps, "optimizer.decay=constant")
            peer = bench.programs.peer("train", model, corpus, "f32", batch, steps)
            found.append((peer["tokens"] / median([line["seconds"] for line in run.metrics[1:]]), peer["tokens"] / median(peer["seconds"][1:])))
            shares.append(median([line["mfu"] or 0 for line in run.metrics[1:]]))
            memory.append((run.memory(), peer["peak_bytes"] / 2 ** 20))
        return {"pairs": found, "precision": "f32", "mfu": shares, "peaks": memory}

    return measure


ROWS = {
    "same-translate": same_translation,
    "translate-f32": translating,
    "translate-greedy": decoding,
    "same-bert": same_masks,
    "bert-128": training(BERT[128], wordpieces, 8, 4),
    "bert-512": training(BERT[512], wordpieces, 2, 4),
    "same-lstm": lambda bench: {"checks": [same_steps(bench, LSTM, zipf(bench), 20, 5)]},
    "lstm-f32": training(LSTM, zipf, 20, 21),
}
