#!/usr/bin/env python3
"""Ids of our tokenizers against implementations that are not ours, on shared text and random Unicode.

compare_ids.py --build BUILD --shared SHARED --modules FOLDER [--megabytes N] [--only NAME]

FOLDER holds node_modules with some of `tokenizers`, `@huggingface/tokenizers`, `@xenova/transformers@2`, `tiktoken` (npm);
spm_train and spm_encode are Debian's `sentencepiece`. What is not there is said and skipped: exit status 77 if nothing was
compared, 1 if any id differs. Tokenizers are made from shared text, in a temporary folder.
"""
import argparse
import base64
import collections
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unicodedata

HERE = pathlib.Path(__file__).resolve().parent
MARK = "\u2581"
LLAMA = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")


# ---- text ----

def random_unicode(bytes_wanted, end=0x30000, without=""):
    """Lines of characters by block of 128: those whose category has not changed since Unicode 3.2, as libraries' tables
    are of different versions."""
    old = unicodedata.ucd_3_2_0
    by_block = collections.defaultdict(list)
    for code in range(0x20, end):
        category = old.category(chr(code))
        if category not in ("Cn", "Cs", "Co") and category == unicodedata.category(chr(code)) and chr(code) not in without:
            by_block[code >> 7].append(chr(code))
    blocks, rng, out, size = list(by_block.values()), random.Random(7), [], 0
    while size < bytes_wanted:
        line = ""
        for _ in range(rng.randrange(1, 12)):
            block = rng.choice(blocks[:16] if rng.random() < 0.5 else blocks)
            line += "".join(rng.choice(block) for _ in range(rng.randrange(1, 9))) + rng.choice(["", " ", "  ", "\t"])
        line = line.replace("\n", "").replace("\r", "")
        out.append(line)
        size += len(line.encode()) + 1
    return "\n".join(out) + "\n"


def texts(shared, most, folder):
    data = shared / "data"
    tang = "".join(json.loads(line)["text"].replace("\n", " ") + "\n"
                   for line in (data / "tang/train.jsonl").read_text().splitlines())
    found = {"brown": (data / "brown/train.txt").read_text(), "wikitext": (data / "wikitext-2/train.txt").read_text(),
             "tang": tang, "random": random_unicode(most),
             # JavaScript's \s and toLowerCase are others for these, and characters have 16 bits in some places
             "randomjs": random_unicode(most, 0xD800, "\x85\ufeff\u03a3\u0130\u1e9e")}
    for name, text in found.items():
        text = text.encode()[:most].decode(errors="ignore").replace("\r", "")
        lines = [line for line in text.split("\n") if line]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return list(found)


# ---- tokenizers ----

def dump(folder, name, tokenizer):
    (folder / f"{name}.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    return folder / f"{name}.json"


def special(content, token_id, **flags):
    return {"id": token_id, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True, **flags}


def whole(model, added, normalizer=None, pre=None, decoder=None):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": normalizer,
            "pre_tokenizer": pre, "post_processor": None, "decoder": decoder, "model": model}


def make_gpt2(args, folder):
    data = args.shared / "data/gpt2"
    path = folder / "gpt2.json"
    subprocess.run([args.build / "bin/bagpipe-data", "tokenizer", "--vocab", data / "vocab.json", "--merges",
                    data / "merges.txt", "--out", path], check=True, stdout=subprocess.DEVNULL)
    return path


def make_llama3(args, folder):
    """Llama 3's pattern and settings, with the tokens of GPT-2."""
    tokenizer = json.loads(make_gpt2(args, folder).read_text())
    tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": LLAMA}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}
    return dump(folder, "llama3", tokenizer)


def make_split(args, folder):
    """A pattern that no scanner of ours knows: Oniguruma runs it."""
    tokenizer = json.loads(make_llama3(args, folder).read_text())
    tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = LLAMA.replace("{1,3}", "{1,2}")
    return dump(folder, "split", tokenizer)


def make_roberta(args, folder):
    """GPT-2's pieces with digits apart, added tokens that take spaces, a prefix space."""
    tokenizer = json.loads(make_gpt2(args, folder).read_text())
    count = len(tokenizer["model"]["vocab"])
    tokenizer["added_tokens"] += [special("<mask>", count, lstrip=True), special("of the", count + 1, special=False,
                                                                                single_word=True)]
    tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}]}
    return dump(folder, "digits", tokenizer)


def fields(message):
    """(field, value) of a protocol buffer's wire format."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or number()
            yield key >> 3, message[at:at + size]
            at += size


def spm(folder, name, text, *options):
    if not shutil.which("spm_train"):
        print(f"skipped: {name}: there is no spm_train (Debian: sentencepiece)")
        return None
    subprocess.run(["spm_train", f"--input={text}", f"--model_prefix={folder / name}", "--vocab_size=4000",
                    "--num_threads=2", "--minloglevel=2", *options], check=True, stderr=subprocess.DEVNULL)
    pieces, charsmap = [], b""
    for field, value in fields((folder / f"{name}.model").read_bytes()):
        if field == 1:
            piece = dict(fields(value))
            pieces.append((piece[1].decode(), struct.unpack("<f", piece.get(2, b"\0\0\0\0"))[0]))
        if field == 3:
            charsmap = dict(fields(value)).get(2, b"")
    return pieces, charsmap


def make_llama2(args, folder):
    """SentencePiece's BPE as Llama 2's: merges by score, bytes for what is not known."""
    made = spm(folder, "llama2", folder / "brown.txt", "--model_type=bpe", "--byte_fallback", "--character_coverage=0.9995",
               "--normalization_rule_name=identity", "--remove_extra_whitespaces=false")
    if made is None:
        return None
    vocab = {piece: k for k, (piece, _) in enumerate(made[0])}
    merges = []
    for piece, score in made[0]:
        local = [(piece[:k], piece[k:], score) for k in range(1, len(piece)) if piece[:k] in vocab and piece[k:] in vocab]
        merges += sorted(local, key=lambda m: (vocab[m[0]], vocab[m[1]]))
    merges.sort(key=lambda m: (m[2], len(m[0]), len(m[1])), reverse=True)
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": vocab,
             "merges": [f"{a} {b}" for a, b, _ in merges]}
    normalizer = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": MARK}, {"type": "Replace", "pattern": {"String": " "}, "content": MARK}]}
    decoder = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    return dump(folder, "llama2", whole(model, [special(t, k) for k, t in enumerate(["<unk>", "<s>", "</s>"])], normalizer,
                                        None, decoder))


def unigram(folder, name, normalization):
    made = spm(folder, name, folder / "wikitext.txt", "--model_type=unigram", f"--normalization_rule_name={normalization}")
    if made is None:
        return None
    model = {"type": "Unigram", "unk_id": 0, "vocab": [[p, s] for p, s in made[0]], "byte_fallback": False}
    normalizer = {"type": "Sequence", "normalizers": [
        *([{"type": "Precompiled", "precompiled_charsmap": base64.b64encode(made[1]).decode()}] if made[1] else []),
        {"type": "Replace", "pattern": {"Regex": "^ +| +$"}, "content": ""},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}
    return dump(folder, name, whole(
        model, [special(t, k) for k, t in enumerate(["<unk>", "<s>", "</s>"])], normalizer,
        {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True},
        {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True}))


def make_unigram(args, folder):
    return unigram(folder, "unigram", "identity")


def make_charsmap(args, folder):
    return unigram(folder, "charsmap", "nmt_nfkc")


def make_ours(args, folder):
    """A Unigram vocabulary that our tool trained."""
    path = folder / "ours.json"
    subprocess.run([args.build / "bin/bagpipe-data", "tokenizer", "--kind", "unigram", "--size", "4000", "--sentinels", "10",
                    "--format", "lines", "--out", path, folder / "wikitext.txt"], check=True, stdout=subprocess.DEVNULL)
    return path


def make_bert(args, folder):
    """A BERT vocabulary: the words and endings that a byte-level BPE of Brown has, and all characters of it."""
    names = json.loads(make_gpt2(args, folder).read_text())["model"]["vocab"]
    words = {n[1:].lower() for n in names if n[0] == "\u0120" and n[1:].isascii() and n[1:].isalnum()}
    endings = {"##" + n.lower() for n in names if n.isascii() and n.isalnum()}
    letters = set((folder / "brown.txt").read_text().lower() + (folder / "tang.txt").read_text()[:400000]) - set(" \n\t")
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + sorted(words | endings | letters | {"##" + c for c in letters})
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n")
    path = folder / "bert.json"
    subprocess.run([args.build / "bin/bagpipe-data", "tokenizer", "--vocab", folder / "vocab.txt", "--out", path],
                   check=True, stdout=subprocess.DEVNULL)
    return path


def wordpiece(args, folder, name, *options):
    path = folder / f"{name}.json"
    texts_of = [folder / f"{text}.txt" for text in ("brown", "wikitext", "tang")]
    subprocess.run([args.build / "bin/bagpipe-data", "tokenizer", "--kind", "wordpiece", "--size", "30000", *options,
                    "--out", path, *texts_of], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return path


def make_wordpiece(args, folder):
    """A WordPiece vocabulary that our tool trained."""
    return wordpiece(args, folder, "wordpiece")


def make_cased(args, folder):
    return wordpiece(args, folder, "cased", "--cased", "--special", "[A],[B]")


# name, maker, libraries. "plain": special tokens' names are text, as for tiktoken and SentencePiece.
RUST, HUGGINGFACE, XENOVA, TIKTOKEN, SPM = "tokenizers", "huggingface", "xenova", "tiktoken", "sentencepiece"
CASES = [("gpt2", make_gpt2, [RUST, HUGGINGFACE, XENOVA, TIKTOKEN]), ("llama3", make_llama3, [RUST, HUGGINGFACE, TIKTOKEN]),
         ("split", make_split, [RUST, TIKTOKEN]), ("digits", make_roberta, [RUST]), ("llama2", make_llama2, [RUST, SPM]),
         ("unigram", make_unigram, [RUST, SPM]), ("charsmap", make_charsmap, [RUST, SPM]),
         ("ours", make_ours, [RUST, HUGGINGFACE]), ("bert", make_bert, [RUST, HUGGINGFACE, XENOVA]),
         ("wordpiece", make_wordpiece, [RUST, HUGGINGFACE, XENOVA]), ("cased", make_cased, [RUST, HUGGINGFACE, XENOVA])]
PLAIN = (TIKTOKEN, SPM)
PACKAGES = {RUST: "tokenizers", HUGGINGFACE: "@huggingface/tokenizers", XENOVA: "@xenova/transformers", TIKTOKEN: "tiktoken"}


def foreign(args, library, name, tokenizer, text):
    if library == SPM:
        return ["spm_encode", f"--model={tokenizer.with_suffix('.model')}", "--output_format=id", str(text)]
    return ["node", "--max-old-space-size=4096", str(HERE / "foreign_ids.mjs"), library, str(tokenizer), str(text)]


def is_there(args, library):
    if library == SPM:
        return shutil.which("spm_encode") is not None
    return args.modules and shutil.which("node") and (args.modules / "node_modules" / PACKAGES[library]).is_dir()


def without_ties(bad, ours, theirs, tokenizer):
    """Lines whose two splits have one score, to what float32 keeps of it: SentencePiece adds scores in float32, Hugging Face's library in
    float64."""
    scores = [score for _, score in json.loads(tokenizer.read_text())["model"]["vocab"]]

    def total(line):
        return sum(scores[int(word)] for word in line.split())

    differ = [k for k in bad if abs(total(ours[k]) - total(theirs[k])) > 1e-4 + 2 ** -22 * abs(total(ours[k]))]
    return differ, len(bad) - len(differ)


def is_read_otherwise(library, name, line):
    """BERT's normalizer in JavaScript sees halves of characters beyond U+FFFF, Chinese ones too, and xenova's strips the marks
    U+0300 to U+036F alone."""
    if name not in ("bert", "wordpiece", "cased") or library not in (HUGGINGFACE, XENOVA):
        return False
    marks = library == XENOVA and name != "cased"
    return any(c > "\uffff" or marks and not "\u0300" <= c <= "\u036f" and unicodedata.category(c) == "Mn"
               for c in unicodedata.normalize("NFD", line.decode()))


def compare(args, name, library, tokenizer, text):
    ours = subprocess.run([args.build / "tests/ids_of_lines", tokenizer, text, "plain" if library in PLAIN else "specials"],
                          check=True, capture_output=True).stdout.split(b"\n")
    theirs = subprocess.run(foreign(args, library, name, tokenizer, text), check=True, capture_output=True,
                            cwd=args.modules or ".").stdout.split(b"\n")
    lines, ties = text.read_bytes().split(b"\n"), 0
    bad = [k for k in range(max(len(ours), len(theirs))) if ours[k:k + 1] != theirs[k:k + 1]]
    otherwise = {k for k in bad if is_read_otherwise(library, name, lines[k])}
    bad = [k for k in bad if k not in otherwise]
    if library == SPM and name in ("unigram", "charsmap"):
        bad, ties = without_ties(bad, ours, theirs, tokenizer)
    tokens = sum(len(line.split()) for line in theirs)
    print(f"{name:9} {library:14} {text.stem:9} {text.stat().st_size:9} bytes {len(lines) - 1:7} lines {tokens:8} tokens: "
          f"{len(bad)} lines differ" + (f", {ties} ties" if ties else "")
          + (f", {len(otherwise)} read otherwise" if otherwise else ""), flush=True)
    for k in bad[:args.show]:
        print(f"  line {k + 1}: {lines[k].decode()!r}\n    ours   {ours[k].decode()}\n    theirs {theirs[k].decode()}")
    return len(bad)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--shared", type=pathlib.Path, required=True)
    parser.add_argument("--modules", type=pathlib.Path, default=os.environ.get("BAGPIPE_NPM") or None,
                        help="the folder of node_modules (BAGPIPE_NPM)")
    parser.add_argument("--megabytes", type=float, default=1)
    parser.add_argument("--only", help="names of cases, with commas")
    parser.add_argument("--show", type=int, default=3, help="differing lines to show")
    args = parser.parse_args()
    args.build, args.modules = args.build.resolve(), args.modules and pathlib.Path(args.modules)
    compared = differing = 0
    if not (pathlib.Path(args.shared) / "data/tang/train.jsonl").exists():
        print(f"skipped text.compare_ids: there is no {args.shared}/data")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        names = texts(args.shared, int(args.megabytes * 1e6), folder)
        for name, make, libraries in CASES:
            if args.only and name not in args.only.split(","):
                continue
            there = [library for library in libraries if is_there(args, library)]
            for library in set(libraries) - set(there):
                print(f"skipped: {name} by {library}, which is not here")
            tokenizer = make(args, folder) if there else None
            for library in there if tokenizer else []:
                for text in names:
                    # a grapheme is replaced whole by the first match in it: Hugging Face's way, and not SentencePiece's
                    if (text == "random" and library in (HUGGINGFACE, XENOVA)) or (
                            text.startswith("random") and (name, library) == ("charsmap", SPM)) or (
                            text == "randomjs" and library not in (HUGGINGFACE, XENOVA)):
                        continue
                    differing += compare(args, name, library, tokenizer, folder / f"{text}.txt")
                    compared += 1
    print(f"{compared} comparisons, {differing} differing lines")
    return 77 if compared == 0 else differing > 0


if __name__ == "__main__":
    sys.exit(main())
