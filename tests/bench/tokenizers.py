#!/usr/bin/env python3
"""Speed of encoding, a line a document, beside tiktoken (WebAssembly, npm's) and Hugging Face's tokenizers (Rust, npm's binding).

tokenizers.py --build BUILD --shared SHARED --modules FOLDER [--megabytes 3] [--repeats 5]

One core each; the fastest of the passes over each text, in MB/s of wall time. FOLDER holds node_modules.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "text"))
import compare_ids  # noqa: E402

TOKENIZERS = [("gpt2", compare_ids.make_gpt2), ("llama3", compare_ids.make_llama3), ("split", compare_ids.make_split),
              ("llama2", compare_ids.make_llama2), ("unigram", compare_ids.make_unigram), ("bert", compare_ids.make_bert),
              ("wordpiece", compare_ids.make_wordpiece)]
FOREIGN = {"gpt2": ("tiktoken", "tokenizers"), "llama3": ("tiktoken", "tokenizers"), "split": ("tiktoken", "tokenizers")}


def seconds(command, **more):
    return float(subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--shared", type=pathlib.Path, required=True)
    parser.add_argument("--modules", type=pathlib.Path)
    parser.add_argument("--megabytes", type=float, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    args.build = args.build.resolve()
    one_core = {**os.environ, "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        compare_ids.texts(args.shared, int(args.megabytes * 1e6), folder)
        for name, make in TOKENIZERS:
            tokenizer = make(args, folder)
            for text in ("brown", "wikitext", "tang") if tokenizer else ():
                path = folder / f"{text}.txt"
                megabytes = path.stat().st_size / 1e6
                spent = {"ours": seconds([args.build / "tests/ids_of_lines", tokenizer, path, "plain", str(args.repeats)])}
                for library in FOREIGN.get(name, ()):
                    if compare_ids.is_there(args, library):
                        spent[library] = seconds(compare_ids.foreign(args, library, name, tokenizer, path) + [str(args.repeats)],
                                                 cwd=args.modules, env=one_core)
                print(f"{name:8} {text:9}" + "".join(f" {library} {megabytes / s:6.1f} MB/s" for library, s in spent.items()),
                      flush=True)


if __name__ == "__main__":
    main()
