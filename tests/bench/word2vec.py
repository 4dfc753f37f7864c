"""Word vectors beside gensim's: the same text, width, window, noise words and epochs, one thread each, the programs in turns. CPU time of an
epoch, that of a longer training less that of one of an epoch, which other work on the machine disturbs less than the clock; and words a second.

/usr/bin/python3 tests/bench/word2vec.py TEXT [--mode skipgram] [--output negative] [--width 100] [--rounds 5] [--ranks 1,2] BIN...
a BIN is a folder with bagpipe and bagpipe-data; gensim's share is measured once a round
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

GENSIM = """
import json, sys, time
from gensim.models import Word2Vec
text, mode, output, width, window, negative, epochs = sys.argv[1:]
model = Word2Vec(vector_size=int(width), window=int(window), min_count=1, sample=1e-3, workers=1, sg=mode == "skipgram", hs=output == "hierarchical",
                 negative=0 if output == "hierarchical" else int(negative), alpha=0.025 if mode == "skipgram" else 0.05, seed=1)
model.build_vocab(corpus_file=text)
def train(epochs):
    cpu, wall = time.process_time(), time.time()
    model.train(corpus_file=text, total_words=model.corpus_total_words, total_examples=model.corpus_count, epochs=epochs)
    return time.process_time() - cpu, time.time() - wall
short, long = train(1), train(1 + int(epochs))
print(json.dumps([long[0] - short[0], long[1] - short[1]]))
"""


def child_cpu():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def corpus(binary, folder, text):
    tool, words, out = os.path.join(binary, "bagpipe-data"), os.path.join(folder, "words.json"), os.path.join(folder, "text.h5")
    subprocess.run([tool, "tokenizer", "--kind", "word", "--out", words, text], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([tool, "corpus", "--tokenizer", words, "--format", "lines", "--out", out, text], check=True, stdout=subprocess.DEVNULL)
    return out


def train(binary, folder, text, options, ranks, epochs):
    """CPU time of all ranks, and the clock's."""
    run, ini = tempfile.mkdtemp(dir=folder), os.path.join(folder, "empty.ini")
    open(ini, "w", encoding="utf-8").close()
    start = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
    cpu, wall = child_cpu(), time.time()
    subprocess.run(start + [os.path.join(binary, "bagpipe"), "pretrain", ini, f"run.dir={run}/run", f"corpus.train={text}", "model.kind=word2vec",
                            f"model.width={options.width}", f"word2vec.mode={options.mode}", f"word2vec.output={options.output}",
                            f"word2vec.window={options.window}", f"word2vec.negative={options.negative}", f"train.epochs={epochs}",
                            "train.batch=16", "math.threads=1", "checkpoint.every=100000"], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return child_cpu() - cpu, time.time() - wall


def main():
    parser = argparse.ArgumentParser()
    for name, value in (("width", 100), ("window", 5), ("negative", 5), ("rounds", 5), ("epochs", 1)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--mode", default="skipgram")
    parser.add_argument("--output", default="negative")
    parser.add_argument("--ranks", default="1")
    parser.add_argument("text")
    parser.add_argument("binaries", nargs="+", metavar="BIN")
    options = parser.parse_args()
    with open(options.text, encoding="utf-8") as file:
        words = sum(len(line.split()) for line in file)
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        text = corpus(options.binaries[0], folder, options.text)
        for _ in range(options.rounds):
            answer = subprocess.run([sys.executable, "-c", GENSIM, options.text, options.mode, options.output] +
                                    [str(n) for n in (options.width, options.window, options.negative, options.epochs)],
                                    check=True, capture_output=True, text=True).stdout
            rows.setdefault("gensim", []).append(json.loads(answer))
            for binary in options.binaries:
                for ranks in map(int, options.ranks.split(",")):
                    short, long = (train(binary, folder, text, options, ranks, epochs) for epochs in (1, 1 + options.epochs))
                    rows.setdefault(f"{binary}, ranks: {ranks}", []).append([b - a for a, b in zip(short, long)])
    base = [statistics.median(row[k] for row in rows["gensim"]) for k in (0, 1)]
    print(f"{options.mode}, {options.output}, width {options.width}: {words} words, epochs measured: {options.epochs}; medians of {options.rounds}")
    for name, times in rows.items():
        cpu, wall = (statistics.median(row[k] for row in times) for k in (0, 1))
        ratios = [statistics.median(mine[k] / other[k] for mine, other in zip(times, rows["gensim"])) for k in (0, 1)]
        print(f"{name}: {cpu:.2f} s of CPU ({min(row[0] for row in times):.2f} to {max(row[0] for row in times):.2f}), {wall:.2f} s; "
              f"{words * options.epochs / cpu / 1e3:.0f} thousand words/s of CPU; median ratio to gensim {ratios[0]:.2f} of CPU, {ratios[1]:.2f} by the clock")
    return base


if __name__ == "__main__":
    main()
