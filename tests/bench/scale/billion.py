"""A score of very many tokens on one rank: what each step takes.

billion.py --bin build/release/bin --out FOLDER [--tokens 1000000000] [--documents 10000000]

A foreign corpus of that size, made by repetition, is converted, scored by n-gram models of order 2 and 3 of a part of it, compared and
tabled. Prints user CPU seconds and the peak memory of each command. The folder needs 2.5 bytes a token; it is not removed.
"""
import argparse
import array
import os
import random
import subprocess
import time

VOCABULARY = 500
END = 0
PART = 50  # repetitions of a block: models are made of one block


def block(tokens, documents, seed):
    """Zipf's words in documents of about equal length, each with its end."""
    draw = random.Random(seed)
    words = draw.choices(range(1, VOCABULARY), [1 / k for k in range(1, VOCABULARY)], k=tokens - documents)
    out, at = array.array("H"), 0
    for k in range(documents):
        end = at + max(1, (len(words) - at) // (documents - k) + draw.randrange(-2, 3)) if k + 1 < documents else len(words)
        out.extend(words[at:end])
        out.append(END)
        at = min(end, len(words))
    return out


def measured(command):
    began = time.time()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"failed: {' '.join(command)}")
    print(f"{' '.join(os.path.basename(word) for word in command[:2])}: {usage.ru_utime:.1f} s user, {usage.ru_maxrss / 1024:.0f} MiB, "
          f"{time.time() - began:.0f} s wall", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--tokens", type=int, default=1_000_000_000)
    parser.add_argument("--documents", type=int, default=10_000_000)
    given = parser.parse_args()
    os.makedirs(given.out, exist_ok=True)
    at = lambda name: os.path.join(given.out, name)  # noqa: E731
    tool, job = os.path.join(given.bin, "bagpipe-data"), os.path.join(given.bin, "bagpipe")
    one = block(given.tokens // PART, given.documents // PART, 1)
    for name, count in (("part.bin", 1), ("all.bin", PART)):
        with open(at(name), "wb") as file:
            for _ in range(count):
                one.tofile(file)
        measured([tool, "corpus", "--format", "nanogpt", "--vocab-size", str(VOCABULARY), "--eod", str(END), "--out",
                  at(name.replace(".bin", ".h5")), at(name)])
        os.remove(at(name))
    for order in (3, 2):
        measured([job, "pretrain", f"run.dir={at(f'model-{order}')}", "model.kind=ngram", f"ngram.order={order}", f"corpus.train={at('part.h5')}"])
        measured([job, "score", f"run.dir={at(f'score-{order}')}", f"score.model={at(f'model-{order}')}", f"score.corpus={at('all.h5')}"])
    measured([tool, "compare", at("score-3"), at("score-2")])
    measured([tool, "table", at("score-3"), at("score-2")])


if __name__ == "__main__":
    main()
