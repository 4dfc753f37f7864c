"""Training of a recurrent model of Zaremba et al. 2014's medium size (2 layers of 650, batch 20, 35 steps, 10,000 words), as a job, for one or
several builds in turn: tokens a second and the share of the peak that the job measured itself, the best of the steps; and the CPU time of a step
(that of a longer run less that of a shorter one), which other work on the machine disturbs less, with its share of the peak of numpy's product.

/usr/bin/python3 tests/bench/recurrent.py [--kind lstm] [--threads 2] [--rounds 3] BIN...     a BIN is a folder with bagpipe and bagpipe-data
"""
import argparse
import json
import os
import resource
import subprocess
import tempfile
import time

import h5py
import numpy

WORDS = 10_000


def corpus(binary, folder):
    """Zipf's law, so that rows of the vocabulary are met as often as in a text."""
    path = os.path.join(folder, "zipf.h5")
    tokens = numpy.minimum(numpy.random.default_rng(1).zipf(1.2, 200_000) - 1, WORDS - 1)
    with h5py.File(path + ".foreign", "w") as file:
        file["tokens"] = tokens.astype(numpy.int32)
        file["doc_start"] = numpy.array([0, len(tokens)], dtype=numpy.uint64)
        file.attrs["vocab_size"] = WORDS
    subprocess.run([os.path.join(binary, "bagpipe-data"), "corpus", "--format", "hdf5", "--out", path, path + ".foreign"], check=True,
                   stdout=subprocess.DEVNULL)
    return path


def peak():
    """FLOP in a second of CPU time, of numpy's product of 1024 x 1024."""
    a, best = numpy.ones((1024, 1024), dtype=numpy.float32), 0
    for _ in range(20):
        began = time.process_time()
        a @ a
        best = max(best, 2 * 1024 ** 3 / (time.process_time() - began))
    return best


def flops(options):
    """Of a step, forward and backward: products alone."""
    gates = {"rnn": 1, "lstm": 4, "gru": 3}[options.kind]
    return 6 * options.batch * 35 * (2 * gates * options.width * 2 * options.width + WORDS * options.width)


def train(binary, folder, name, options, text, steps):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    run = os.path.join(folder, name)
    ini = os.path.join(folder, "empty.ini")
    open(ini, "w", encoding="utf-8").close()
    subprocess.run([os.path.join(binary, "bagpipe"), "pretrain", ini, f"run.dir={run}", f"corpus.train={text}", f"model.kind={options.kind}",
                    "model.layers=2", f"model.width={options.width}", "model.context=35", f"train.batch={options.batch}",
                    f"mesh.micro_batch={options.batch}", f"train.steps={steps}", "train.log_every=1", "math.precision=f32",
                    f"math.threads={options.threads}", "model.dropout=0.5", "checkpoint.every=100000"], check=True, stdout=subprocess.DEVNULL,
                   env=dict(os.environ, OMP_NUM_THREADS=str(options.threads)))
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file][2:]
    return (max(line["tokens_per_second"] for line in lines), max(line["mfu"] or 0 for line in lines), lines[-1]["loss"],
            resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)


def main():
    parser = argparse.ArgumentParser()
    for name, value in (("threads", 2), ("rounds", 3), ("steps", 12), ("width", 650), ("batch", 20)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--kind", default="lstm")
    parser.add_argument("binaries", nargs="+", metavar="BIN")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = corpus(options.binaries[0], folder)
        best = {}
        for k in range(options.rounds):
            for binary in options.binaries:
                short = train(binary, folder, f"{k}-{len(os.listdir(folder))}", options, text, 3)[3]
                speed, share, loss, cpu = train(binary, folder, f"{k}-{len(os.listdir(folder))}", options, text, 3 + options.steps)
                best.setdefault(binary, []).append((speed, share, loss, (cpu - short) / options.steps))
        most = peak()
        for binary, rounds in best.items():
            speed, share, loss, _ = max(rounds)
            cpu = min(each[3] for each in rounds)
            print(f"{binary}: {speed:.0f} tokens/s, {100 * share:.1f} % of the job's peak; {cpu:.3f} s of CPU a step, "
                  f"{100 * flops(options) / cpu / most:.1f} % of numpy's {most / 1e9:.0f} GFLOP/s; loss {loss:.5f} ({len(rounds)} rounds)")


if __name__ == "__main__":
    main()
