#!/usr/bin/env python3
"""Texts of the encoder study, cut from a folder of texts: encoder_text.py TEXTS OUT

OUT/pretrain.jsonl, held.jsonl   documents without labels: WikiText-2's articles and Brown's documents,
                                 of which 6 of 10 train (with those articles), and 1 of 10 is held out
OUT/{train,valid,test}.jsonl     pieces of about WORDS words of Brown with their genre, cut by document:
                                 6, 1 and 3 of 10, so no document is in two files
OUT/known-*.jsonl, other.jsonl   the same without, and with alone, the genres in OTHER
OUT/sick-*.tsv                   SICK's three parts, columns as they are
OUT/wnut-*.conll, squad-*.json   WNUT-17 and the SQuAD articles; the last tenth of train (the last article) is valid
"""
import json
import pathlib
import re
import shutil
import sys

WORDS = 64
OTHER = {"religion", "reviews", "government"}
PART_OF = ["train", "train", "test", "train", "valid", "train", "test", "train", "test", "train"]


def pieces(doc):
    """Runs of whole sentences with at least WORDS words; a short rest goes to the last piece."""
    held, count, found = [], 0, []
    for line in filter(str.strip, doc["text"].split("\n")):
        held.append(line.strip())
        count += len(line.split())
        if count >= WORDS:
            found.append(held)
            held, count = [], 0
    if held and found:
        found[-1] = found[-1] + held
    return [{"id": f"{doc['id']}-{k:03d}", "genre": doc["genre"], "text": "\n".join(p)} for k, p in enumerate(found)]


def articles(path):
    """WikiText's articles: each begins with a line ' = Title = '."""
    article = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith(" = ") and not line.startswith(" = =") and article:
                yield "\n".join(article)
                article = []
            if line.strip():
                article.append(line.strip())
    yield "\n".join(article)


def write(path, items):
    with open(path, "w", encoding="utf-8") as out:
        for item in items:
            out.write(json.dumps(item, ensure_ascii=False) + "\n")


def main():
    texts, out = map(pathlib.Path, sys.argv[1:3])
    out.mkdir(parents=True, exist_ok=True)
    with open(texts / "brown/brown.jsonl", encoding="utf-8") as file:
        brown = [json.loads(line) for line in file]
    parts = {"train": [], "valid": [], "test": []}
    seen = {}
    for doc in brown:  # documents of a genre go to the parts in turns
        place = seen[doc["genre"]] = seen.get(doc["genre"], -1) + 1
        parts[PART_OF[place % 10]].append(doc)
    wiki = [{"id": f"wiki-{k}", "text": text} for k, text in enumerate(articles(texts / "wikitext-2/train.txt"))]
    write(out / "pretrain.jsonl", [{"id": d["id"], "text": d["text"]} for d in parts["train"]] + wiki)
    held = [{"id": d["id"], "text": d["text"]} for d in parts["valid"]]
    write(out / "held.jsonl", held)
    write(out / "few.jsonl", held[::13])
    for name, docs in parts.items():
        cut = [piece for doc in docs for piece in pieces(doc)]
        write(out / f"{name}.jsonl", cut)
        write(out / f"known-{name}.jsonl", [p for p in cut if p["genre"] not in OTHER])
        if name == "test":
            write(out / "other.jsonl", [p for p in cut if p["genre"] in OTHER])
    for ours, theirs in (("train", "train"), ("valid", "trial"), ("test", "test")):
        shutil.copy(texts / f"sick/{theirs}.tsv", out / f"sick-{ours}.tsv")
    sentences = re.split(r"\n\s*\n", (texts / "wnut17/train.conll").read_text(encoding="utf-8").strip())
    cut = len(sentences) * 9 // 10
    (out / "wnut-train.conll").write_text("\n\n".join(sentences[:cut]) + "\n", encoding="utf-8")
    (out / "wnut-valid.conll").write_text("\n\n".join(sentences[cut:]) + "\n", encoding="utf-8")
    shutil.copy(texts / "wnut17/dev.conll", out / "wnut-test.conll")
    with open(texts / "squad/train.json", encoding="utf-8") as file:
        squad = json.load(file)
    for name, data in (("train", squad["data"][:-1]), ("valid", squad["data"][-1:])):
        with open(out / f"squad-{name}.json", "w", encoding="utf-8") as file:
            json.dump({"version": squad["version"], "data": data}, file)
    shutil.copy(texts / "squad/test.json", out / "squad-test.json")


if __name__ == "__main__":
    main()
