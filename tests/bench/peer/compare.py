"""bagpipe beside PyTorch on this machine: both do the same work in turns, and a table of ratios comes out.

  sh tests/bench/compare.sh OUT [--rows NAME,...] [--pairs N] [--texts FOLDER] [--bin FOLDER] [--chroot FOLDER] [--realtime] [--lock FILE]

OUT keeps a file for each row (rows/NAME.json), and the table of all that were ever measured there: reach.md, reach.json.
"""
import argparse
import json
import os
import platform
import sys
import time

import families
import programs
import report
import rows

ROWS = {**rows.ROWS, **families.ROWS}
HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.join(HERE, "..", "..", "..")


def arguments():
    parser = argparse.ArgumentParser(prog="compare.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="rows: " + " ".join(ROWS))
    parser.add_argument("out", metavar="OUT")
    parser.add_argument("--rows", default=",".join(ROWS), help="some of the rows, with commas; none: the table alone")
    parser.add_argument("--pairs", type=int, default=3, help="how often both run, one after the other (3)")
    parser.add_argument("--texts", default=os.path.join(TOP, "..", "shared", "data"),
                        help="has wikitext-2/train.txt, gpt2/{vocab.json,merges.txt} and multi30k (../shared/data)")
    parser.add_argument("--bin", default=os.path.join(TOP, "build", "release", "bin"), help="bagpipe and bagpipe-data, built")
    parser.add_argument("--chroot", metavar="FOLDER", help="a Debian with another PyTorch, which runs too, as it is and compiled (README.md makes it)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of both sides (all cores)")
    parser.add_argument("--realtime", action="store_true", help="before both: chrt -r 1, for a machine that does other work too")
    parser.add_argument("--lock", help="hold this file's lock (flock) during each run")
    parser.add_argument("--verbose", action="store_true", help="print each command")
    return parser.parse_args()


def machine(threads):
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    has = [name for name in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if name in flags]
    tuned = " ".join("=".join(setting) for setting in programs.for_cpu().items())
    return f"{model}, {threads} threads, {' '.join(has) or 'no AVX2'}; PyTorch with {tuned}; {time.strftime('%Y-%m-%d')}"


def read_rows(folder):
    found = {}
    for name in ROWS:
        path = os.path.join(folder, name + ".json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                found[name] = json.load(file)
    return found


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text + "\n")


def main():
    args = arguments()
    wanted = [name for name in args.rows.split(",") if name not in ("", "none")]
    unknown = [name for name in wanted if name not in ROWS]
    if unknown:
        sys.exit(f"no row {unknown[0]}: {' '.join(ROWS)}")
    p = programs.Programs(args)
    bench = rows.Bench(p, os.path.abspath(args.texts), args.pairs)
    folder = p.at("rows")
    os.makedirs(folder, exist_ok=True)
    failed = 0
    for name in wanted:
        print(f"{time.strftime('%H:%M:%S')} {name}", file=sys.stderr, flush=True)
        try:
            row = ROWS[name](bench)
            write(os.path.join(folder, name + ".json"), json.dumps(row, indent=1))
        except programs.Failed as reason:
            failed += 1
            print(f"{name}: {reason}", file=sys.stderr, flush=True)
    found = read_rows(folder)
    table = report.markdown(found, machine(args.threads))
    print(table)
    write(p.at("reach.md"), table)
    write(p.at("reach.json"), json.dumps({"machine": machine(args.threads), "lines": report.lines(found), "rows": found}, indent=1))
    differ = [check["what"] for check in report.checks(found) if not check["same"]]
    if differ:
        print(f"not the same work: {', '.join(differ)}", file=sys.stderr)
    return 1 if failed or differ else 0


if __name__ == "__main__":
    sys.exit(main())
