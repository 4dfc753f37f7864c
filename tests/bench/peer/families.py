"""Rows of other families than GPT: the Transformer of 2017 and its greedy decoding, BERT-base's shape, an LSTM."""
import json
import os
import shutil

import h5py
import numpy

from programs import Model
from rows import median, same_losses, training

TRANSLATE = Model("translate", 3, 128, 4, 104, 6000, kind="transformer", inner=256)  # docs/results.md's, without dropout
BERT = {T: Model(f"bert-{T}", 12, 768, 12, T, 30522, "model.pooler=no", kind="bert") for T in (128, 512)}
LSTM = Model("lstm", 2, 650, 0, 35, 10000, kind="lstm")  # the medium size of Zaremba et al. 2014, without dropout
SMOOTHED = ("train.label_smoothing=0.1",)
BATCH, POOL, MOST = 64, 20, 64  # pairs; batches that are sorted by length together; new tokens of a text at most


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


def decoder(bench):
    """Functions that decode all sources: lists of new ids, and seconds."""
    p, (run, weights) = bench.programs, translator(bench)
    prompts, begins = sources(bench), start(bench, pairs(bench, "test_2016"))

    def ours():
        job = p.bagpipe("generate", [f"generate.model={run}", f"generate.prompts={prompts}", f"generate.batch={BATCH}", f"generate.tokens={MOST}",
                                     "math.precision=f32"])
        with open(p.at("run", "generate", "outputs.jsonl"), encoding="utf-8") as file:
            ids = [json.loads(line)["tokens"] for line in file]
        return ids, job.moments(f"{len(ids)} texts ")[0] - job.moments("continuing ")[0]

    return ours, lambda peer: peer("greedy", TRANSLATE, prompts, "f32", BATCH, MOST, weights, *begins)


def same_translation(bench):
    """Losses step by step over 64 ragged pairs, and greedy texts to the last id."""
    corpus = pairs(bench, "train", BATCH)
    checks = same_losses(bench, TRANSLATE, "f32", BATCH, 5, corpus, *start(bench, corpus), keys=SMOOTHED)
    ours, theirs = decoder(bench)
    ids = ours()[0]
    for peer in bench.programs.peers(TRANSLATE.kind):
        found = theirs(peer)
        equal = sum(a == b for a, b in zip(ids, found["written"], strict=True))
        checks.append({"what": f"translate, f32: texts decoded greedily, equal ones, {found['name']}", "ours": [equal], "theirs": [len(ids)],
                       "same": equal == len(ids)})
    return {"checks": checks}


def translating(bench):
    """Two epochs of 20 batches, which all sort by length; the second one counts: all its tokens, of sources and targets, over all its time."""
    corpus, runs = pairs(bench, "train", BATCH * POOL), []
    tokens = bench.programs.peers(TRANSLATE.kind)[0]("train", TRANSLATE, corpus, "f32", BATCH, 1, None, *start(bench, corpus))["tokens"]

    def ours():
        runs.append(bench.train(TRANSLATE, corpus, "f32", BATCH, 2 * POOL, *SMOOTHED, f"corpus.bucket={POOL}", "optimizer.decay=constant"))
        return sum(tokens) / sum(line["seconds"] for line in runs[-1].metrics[POOL:])

    def theirs(peer):
        found = peer("train", TRANSLATE, corpus, "f32", BATCH, 2 * POOL, None, *start(bench, corpus))
        return found["name"], sum(tokens) / sum(found["seconds"][POOL:])

    return {**bench.turns(TRANSLATE.kind, ours, theirs), "precision": "f32",
            "mfu": [median([line["mfu"] or 0 for line in run.metrics[POOL:]]) for run in runs]}


def decoding(bench):
    """New tokens a second of all sources, their encoding included."""
    decode, theirs = decoder(bench)

    def ours():
        ids, seconds = decode()
        return sum(map(len, ids)) / seconds

    def other(peer):
        found = theirs(peer)
        return found["name"], sum(map(len, found["written"])) / sum(found["seconds"])

    return {**bench.turns(TRANSLATE.kind, ours, other), "precision": "f32"}


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


def same_masks(bench):
    """A corpus of one window, which all batch slots have, with masks of their own in each slot and step."""
    return {"checks": [check for T, batch in ((128, 4), (512, 1))
                       for check in same_losses(bench, BERT[T], "f32", batch, 3, wordpieces(bench, 19 * T // 20))]}


def trained(model, corpus_of, batch, steps):
    return training(model, "f32", batch, steps, corpus_of, ("optimizer.decay=constant",))


ROWS = {
    "same-translate": same_translation,
    "translate-f32": translating,
    "translate-greedy": decoding,
    "same-bert": same_masks,
    "bert-128": trained(BERT[128], wordpieces, 8, 4),
    "bert-512": trained(BERT[512], wordpieces, 2, 4),
    "same-lstm": lambda bench: {"checks": same_losses(bench, LSTM, "f32", 20, 5, zipf(bench))},
    "lstm-f32": trained(LSTM, zipf, 20, 21),
}
