#!/usr/bin/env python3
"""Texts of the ensemble study, cut from a folder of texts: study_text.py TEXTS OUT

OUT/train.jsonl   nonfiction documents of the Brown corpus (8 of 10)
OUT/valid.jsonl   nonfiction, for the temperature (1 of 10)
OUT/{nonfiction,fiction,shakespeare,wikitext}.jsonl   PIECES pieces of about WORDS words from texts
                  that the models have not seen, so that telling the domain of a piece is not easy
"""
import json
import pathlib
import sys

PIECES, WORDS = 400, 100
FICTION = {"fiction", "mystery", "science_fiction", "adventure", "romance", "humor"}


def pieces(name, lines):
    """Runs of whole lines with at least WORDS words."""
    held, count = [], 0
    for line in lines:
        if not line.strip():
            continue
        held.append(line.strip())
        count += len(line.split())
        if count >= WORDS:
            yield {"id": name, "text": "\n".join(held)}
            held, count = [], 0


def spread(items):
    """PIECES of them, evenly over the whole."""
    return [items[k * len(items) // PIECES] for k in range(min(PIECES, len(items)))]


def write(path, items):
    with open(path, "w", encoding="utf-8") as out:
        for number, item in enumerate(items):
            named = {"id": f"{number:04d}-{item['id']}", "text": item["text"]}
            out.write(json.dumps(named, ensure_ascii=False) + "\n")


def main():
    texts, out = map(pathlib.Path, sys.argv[1:3])
    out.mkdir(parents=True, exist_ok=True)
    with open(texts / "brown/brown.jsonl", encoding="utf-8") as file:
        brown = [json.loads(line) for line in file]
    nonfiction = [doc for doc in brown if doc["genre"] not in FICTION]
    fiction = [doc for doc in brown if doc["genre"] in FICTION]
    write(out / "train.jsonl", [d for k, d in enumerate(nonfiction) if k % 10 not in (3, 7)])
    write(out / "valid.jsonl", [d for k, d in enumerate(nonfiction) if k % 10 == 7])
    held = [d for k, d in enumerate(nonfiction) if k % 10 == 3]

    def of(docs):
        return [p for doc in docs for p in pieces(doc["id"], doc["text"].split("\n"))]

    write(out / "nonfiction.jsonl", spread(of(held)))
    write(out / "fiction.jsonl", spread(of(fiction)))
    for name, path in (("shakespeare", "shakespeare/input.txt"), ("wikitext", "wikitext-2/test.txt")):
        lines = (texts / path).read_text(encoding="utf-8").split("\n")
        write(out / f"{name}.jsonl", spread(list(pieces(name, lines))))


main()
