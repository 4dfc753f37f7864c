#!/usr/bin/env python3
"""How much faster are two ranks than one in making a corpus? In turns: one rank; two ranks; and, as the most that the
machine gives, two separate runs of one rank on half of the text each.

    corpus_ranks.py BAGPIPE_DATA TOKENIZER TEXT [TURNS]

A line a run (wall clock, user and system CPU seconds, MB of text a second as the tool prints it), then medians and ratios.
Works in the folder at hand, which needs twice the size of TEXT; at the highest priority where it may."""

import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import time

KINDS = ("one rank", "two ranks", "two runs")


def halves(text):
    """TEXT cut at a line's end."""
    data = pathlib.Path(text).read_bytes()
    cut = data.index(b"\n", len(data) // 2) + 1
    paths = ("half-1.txt", "half-2.txt")
    for path, part in zip(paths, (data[:cut], data[cut:])):
        pathlib.Path(path).write_bytes(part)
    return paths


def measure(commands):
    """Wall clock, CPU seconds and MB/s of commands that run side by side; the last to end counts."""
    for path in ("out-1.h5", "out-2.h5"):
        pathlib.Path(path).unlink(missing_ok=True)
    os.sync()
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    texts = [" ".join(run.communicate()[0].split()) for run in runs]
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if any(run.returncode for run in runs):
        sys.exit("corpus_ranks.py: a run failed")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    read = [(int(re.search(r"(\d+) bytes of text", text)[1]), float(re.search(r"([\d.]+) MB/s", text)[1])) for text in texts]
    return wall, cpu, sum(size for size, _ in read) / max(size / speed for size, speed in read)


def main():
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    tool, tokenizer, text = sys.argv[1:4]
    parts = halves(text)
    nice = ["nice", "-n", "-18"] if os.geteuid() == 0 else []

    def corpus(number, path, before=()):
        return [*nice, *before, tool, "corpus", "--tokenizer", tokenizer, "--format", "lines", "--out", f"out-{number}.h5", path]

    commands = dict(zip(KINDS, ([corpus(1, text)], [corpus(1, text, ("mpirun", "-n", "2"))], [corpus(n + 1, parts[n]) for n in (0, 1)])))
    found = {kind: [] for kind in KINDS}
    for turn in range(int(sys.argv[4]) if len(sys.argv) == 5 else 5):
        for kind in KINDS:
            found[kind].append(measure(commands[kind]))
            print(f"{turn + 1}  {kind:9}  {found[kind][-1][0]:6.2f} s  {found[kind][-1][1]:6.2f} CPU s  {found[kind][-1][2]:6.1f} MB/s", flush=True)
    median = {kind: [statistics.median(column) for column in zip(*found[kind])] for kind in KINDS}
    for kind in KINDS:
        wall, cpu, speed = median[kind]
        print(f"median  {kind:9}  {wall:.2f} s  {cpu:.2f} CPU s  {speed:.1f} MB/s; of one rank: by MB/s {speed / median[KINDS[0]][2]:.2f}, "
              f"by wall clock {median[KINDS[0]][0] / wall:.2f}")
    by_turn = [f"{two[2] / one[2]:.2f}" for one, two in zip(found[KINDS[0]], found[KINDS[1]])]
    print("two ranks by MB/s in each turn:", ", ".join(by_turn))


if __name__ == "__main__":
    main()
