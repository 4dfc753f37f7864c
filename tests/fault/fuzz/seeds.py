#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets into seeds/THING. The files are kept in the repository; those called regression-*
once broke a target and are not made here. HDF5 images need h5py; without it they are left as they are."""
import gzip, json, os, struct, zlib

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "seeds")


def put(thing, name, data):
    folder = os.path.join(HERE, thing)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


def json_seeds():
    texts = {
        "object": '{"a": 1, "b": [1.5, -2e-3, true, null, "x\\u00e9\\n"], "c": {"d": {}}}\n',
        "scalar": "-0.0", "string": '"\\ud83d\\ude00 \\"q\\" \\\\"', "big": "9223372036854775807",
        "huge": "9223372036854775808", "infinite": "1e400", "tiny": "[5e-324, 1.7976931348623157e308]",
        "duplicate": '{"a": 1, "a": 2}', "trailing": "[1,]", "rest": "{} {}", "surrogate": '"\\ud800"',
        "nul": '"\\u0000"', "deep": "[" * 60 + "]" * 60, "bom": "\ufeff{}", "empty": "", "hex": "0x10", "nan": "NaN",
        "types": '{"i": 7, "r": 0.1, "s": "", "t": false, "n": null}',
    }
    for name, text in texts.items():
        put("json", name, text)
    put("json", "invalid-utf8", b'{"a": "\xff\xfe"}')
    put("json", "utf16", '{"a": 1}'.encode("utf-16"))


def config_seeds():
    good = "[train]\nsteps = 100\nrate = 1e-3\nmemory = 512 MiB\ntrace = yes\norder = running\n[run]\ndir = /tmp/r ; where\n"
    texts = {
        "good": good, "bom": "\ufeff" + good, "crlf": good.replace("\n", "\r\n"),
        "plain-keys": "train.steps = 5\nrun.dir = r\n", "comments": "; a\n# b\n\n[run] ; c\n dir = r\n   note = x y  \n",
        "continued": "[run]\ndir = abc\\\n  def\\\nghi\nnote = n\n", "faults": "[train]\nsteps = 0\nrate = nan\norder = x\nstep = 3\n[score]\nstride = 101\n",
        "twice": "[run]\ndir = a\ndir = b\n", "long": "[run]\ndir = " + "x" * 300 + "\n", "no-section-end": "[run\ndir = r\n",
        "long-section": "[" + "s" * 60 + "]\ndir = r\n", "empty-value": "[run]\ndir =\nnote =\n[train]\nrate =\n",
        "numbers": "[run]\ndir=r\n[train]\nsteps=+7\nshift=-9223372036854775808\nlimit=1e308\nmemory=1125899906842624\n",
        "control": "[run]\ndir = a\x1b[31m\n", "hash": "[run]\ndir = a #b\n", "many": "".join(f"k{i} = 1\n" for i in range(30)),
        "empty": "", "equals": "[run]\ndir = a=b=c\nnote: colon\n",
    }
    for name, text in texts.items():
        put("config", name, text)
    put("config", "arguments", good.encode() + b"\xfftrain.steps=7\0run.note=x\0train.rate=\0")
    put("config", "bad-arguments", b"[run]\ndir = r\n\xfftrain.steps\0=\0run.dir=\0nosuch.key=1\0")
    put("config", "zero-byte", b"[run]\ndir = a\0b\n")


def manifest(tensors, files=("shard-00000.h5", "shard-00001.h5"), **more):
    root = {"format": "bagpipe checkpoint", "format_version": 1,
            "files": [{"name": name, "bytes": 100 + k, "sha256": "%064x" % (k + 1)} for k, name in enumerate(files)],
            "tensors": tensors, "state": {"step": 3}}
    root.update(more)
    return json.dumps(root)


def tensor(name, shape, pieces):
    return {"name": name, "dtype": "float32", "shape": shape, "digest": "0123456789abcdef" * 2,
            "pieces": [{"file": "shard-0000%d.h5" % (k % 2), "dataset": "/%s/p%d" % (name, k), "offset": offset, "extent": extent}
                       for k, (offset, extent) in enumerate(pieces)]}


def manifest_seeds():
    two = [tensor("a.weight", [4, 6], [([0, 0], [4, 3]), ([0, 3], [4, 3])]), tensor("b", [5], [([0], [2]), ([2], [3])])]
    put("manifest", "two", manifest(two))
    put("manifest", "none", manifest([]))
    put("manifest", "four-dims", manifest([tensor("adamw.m/h.0.w", [2, 3, 2, 2], [([0, 0, 0, 0], [1, 3, 2, 2]), ([1, 0, 0, 0], [1, 3, 2, 2])])]))
    put("manifest", "empty-piece", manifest([tensor("a", [3], [([0], [0]), ([0], [3])])]))
    put("manifest", "hole", manifest([tensor("a", [4], [([0], [1]), ([2], [2])])]))
    put("manifest", "overlap", manifest([tensor("a", [4], [([0], [3]), ([2], [2])])]))
    put("manifest", "overlap-and-hole", manifest([tensor("a", [2, 2], [([0, 0], [2, 1]), ([0, 0], [2, 1])])]))
    put("manifest", "beyond", manifest([tensor("a", [4], [([0], [9223372036854775807])])]))
    put("manifest", "huge", manifest([tensor("a", [2147483648, 2147483648], [])]))
    put("manifest", "version", manifest(two, format_version=2))
    put("manifest", "order", manifest(two[::-1]))
    put("manifest", "files", manifest([], files=("../x", "shard-00000.h5")))
    put("manifest", "tokenizer", manifest([], files=("shard-00000.h5", "tokenizer.json")))
    put("manifest", "no-state", json.dumps({k: v for k, v in json.loads(manifest(two)).items() if k != "state"}))
    put("manifest", "not-object", "[]")


def safetensors_seeds():
    header = {"__metadata__": {"format": "pt"},
              "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
              "b": {"dtype": "F16", "shape": [2], "data_offsets": [24, 28]},
              "c": {"dtype": "BF16", "shape": [], "data_offsets": [28, 30]},
              "d": {"dtype": "F64", "shape": [1], "data_offsets": [30, 38]},
              "e": {"dtype": "I64", "shape": [0, 5], "data_offsets": [38, 38]},
              "f": {"dtype": "BOOL", "shape": [1], "data_offsets": [38, 39]}}
    values = struct.pack("<6f", 0, 1, -2, 3.5, 1e-40, 1e30) + b"\x00\x3c\x01\x00" + b"\x80\x3f" + struct.pack("<d", 0.1) + b"\1"
    text = json.dumps(header).encode()
    put("safetensors", "whole", struct.pack("<Q", len(text)) + text + values)
    put("safetensors", "short", text + b"\n" + values)
    put("safetensors", "cut", text + b"\n" + values[:-1])
    put("safetensors", "longer", text + b"\n" + values + b"x")
    put("safetensors", "not-finite", b'{"a": {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]}}\n\x00\x7c\x00\x00')
    put("safetensors", "wide", b'{"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}\n' + struct.pack("<d", 1e300))
    put("safetensors", "wraps", b'{"a": {"dtype": "F32", "shape": [4194305, 4194305, 211106198978564], "data_offsets": [0, 16]}}\n' + bytes(16))
    put("safetensors", "overlap", b'{"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}, "b": {"dtype": "U8", "shape": [4], "data_offsets": [2, 6]}}\n' + bytes(6))
    put("safetensors", "hole", b'{"a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}}\n' + bytes(2))
    put("safetensors", "dtype", b'{"a": {"dtype": "Q4", "shape": [1], "data_offsets": [0, 1]}}\n\0')
    put("safetensors", "metadata", b'{"__metadata__": {"a": 1}}\n')
    put("safetensors", "empty", b"{}\n")
    put("safetensors", "long-length", b"\xff" * 8 + b"{}")
    put("safetensors", "swapped", b'{"a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 0]}}\n\0')
    put("safetensors", "nine-dims", b'{"a": {"dtype": "U8", "shape": [1,1,1,1,1,1,1,1,1], "data_offsets": [0, 1]}}\n\0')


def tokenizer_seeds():
    special = [{"id": 0, "content": "<unk>", "special": True}]
    word = {"version": "1.0", "added_tokens": special, "pre_tokenizer": {"type": "WhitespaceSplit"},
            "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "a": 1, "abc": 2, "Hello,": 3}, "unk_token": "<unk>"}}
    char = {"version": "1.0", "added_tokens": special,
            "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[\\s\\S]"}, "behavior": "Isolated", "invert": False},
            "decoder": {"type": "Fuse"},
            "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "a": 1, " ": 2, "\n": 3, "\u00e9": 4}, "unk_token": "<unk>"}}
    put("tokenizer_load", "word", json.dumps(word))
    put("tokenizer_load", "char", json.dumps(char))
    for settings in range(8):
        put("tokenizer_load", "bpe-%d" % settings, bytes([settings]) + "a b\nab c\n\u0120 a\n\u00c3 \u00a9".encode())
    put("tokenizer_load", "bpe-no-part", b"\2ab c\n")
    put("tokenizer_load", "bpe-twice", b"\2a b\na b\n")
    put("tokenizer_load", "bpe-parts", b"\2a b c\n")
    bad = dict(word)
    for name, change in {"version": {"version": "2.0"}, "normalizer": {"normalizer": {"type": "NFC"}},
                         "padding": {"padding": {}}, "pre": {"pre_tokenizer": {"type": "Whitespace"}},
                         "model": {"model": {"type": "Unigram", "vocab": []}},
                         "gap": {"model": {"type": "WordLevel", "vocab": {"<unk>": 0, "a": 2}, "unk_token": "<unk>"}},
                         "same-id": {"model": {"type": "WordLevel", "vocab": {"<unk>": 0, "a": 0}, "unk_token": "<unk>"}},
                         "negative": {"model": {"type": "WordLevel", "vocab": {"<unk>": 0, "a": -1}, "unk_token": "<unk>"}},
                         "empty": {"model": {"type": "WordLevel", "vocab": {}, "unk_token": "<unk>"}},
                         "no-unk": {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "<unk>"}, "added_tokens": []},
                         "added-elsewhere": {"added_tokens": [{"id": 1, "content": "<unk>", "special": True}]},
                         "eod": {"added_tokens": special + [{"id": 4, "content": "<|endoftext|>", "special": True}]},
                         "lstrip": {"added_tokens": [{"id": 0, "content": "<unk>", "special": True, "lstrip": True}]}}.items():
        put("tokenizer_load", "word-" + name, json.dumps({**bad, **change}))


def encode_seeds():
    texts = ["", "the theatre in the inn 1123 12", "aaaaaaaaaaaaaaaaa aaaa", "don't we'll I'd they've", "\n\n\n  the  \t in ",
             "\u00e9t\u00e9 \u65e5\u672c \U0001f600", "  \u2003 wide\u00a0", "<unk> <|endoftext|>"]
    for k, text in enumerate(texts):
        for kind in range(4):
            put("encode", "%d-%d" % (k, kind), bytes([kind, 3 + 5 * k]) + text.encode())
    put("encode", "invalid", b"\0\2the \xff\xfe\xc3 in\xe6\x97 a")
    put("encode", "invalid-word", b"\2\2the \xff\xfe\xc3 in\xe6\x97 a")
    put("encode", "invalid-char", b"\3\1the \xff\xfe\xc3 in\xe6\x97 a")


def text_seeds():
    import subprocess
    plain = b"one line\n\nanother  line, longer than the piece that was asked for\r\n\xc3\xa9t\xc3\xa9 no newline at the end"
    jsonl = b'{"text": "one", "id": "x", "genre": "news", "year": 1999}\n\n{"text": "two\\nlines", "genre": null, "year": 1.5}\n{"text": "", "id": 7, "genre": true}\n'
    packed = {"plain": lambda b: b, "gzip": lambda b: gzip.compress(b, 9, mtime=0),
              "zstd": lambda b: subprocess.run(["zstd", "-q", "-3", "-c"], input=b, stdout=subprocess.PIPE, check=True).stdout}
    for name, pack in packed.items():
        for form in range(3):
            put("text", "%s-%d" % (name, form), bytes([form, form, 20]) + pack(jsonl if form == 2 else plain))
        put("text", name + "-never", bytes([0, 3, 0]) + pack(plain))
        put("text", name + "-two", bytes([1, 1, 9]) + pack(plain) + pack(plain))
        put("text", name + "-cut", bytes([1, 0, 9]) + pack(plain)[:-5])
        put("text", name + "-more", bytes([0, 2, 9]) + pack(plain) + b"more")
    for name, line in {"no-text": b'{"id": 1}', "array": b"[1]", "bad": b'{"text": ', "nul": b'{"text": "a\\u0000b"}', "id": b'{"text": "a", "id": []}',
                       "nul-id": b'{"text": "a", "id": "a\\u0000b"}', "utf8": b'{"text": "\xff"}', "number": b'{"text": 3}', "label": b'{"text": "a", "genre": {}}'}.items():
        put("text", "jsonl-" + name, bytes([2, 0, 9]) + line + b"\n")
    put("text", "window", bytes([0, 0, 9]) + bytes.fromhex("28b52ffd00b8") + bytes(8))
    put("text", "skippable", bytes([0, 0, 9]) + bytes.fromhex("502a4d1803000000") + b"abc")
    put("text", "long", bytes([1, 1, 0]) + b"word " * 100 + b"x" * 300 + b" 12345678901234567890" * 5)
    put("text", "empty", bytes([1, 0, 0]))


def metrics_seeds():
    lines = b"".join(b'{"step": %d, "loss": %f}\n' % (step, 1 / step) for step in range(10, 60, 10))
    put("metrics_resume", "cut", struct.pack("<q", 30) + lines)
    put("metrics_resume", "all", struct.pack("<q", 100) + lines)
    put("metrics_resume", "none", struct.pack("<q", 0) + lines)
    put("metrics_resume", "half", struct.pack("<q", 100) + lines[:-7])
    put("metrics_resume", "no-step", struct.pack("<q", 100) + b'{"step": 1}\n{"loss": 1}\n{"step": 2}\n')
    put("metrics_resume", "real-step", struct.pack("<q", 100) + b'{"step": 1.0}\n')
    put("metrics_resume", "zeros", struct.pack("<q", 100) + b'{"step": 1}\n' + bytes(40) + b"\n")
    put("metrics_resume", "blank", struct.pack("<q", 100) + b"\n\n")
    put("metrics_resume", "empty", struct.pack("<q", 100))
    put("metrics_resume", "negative", struct.pack("<q", -1) + b'{"step": -1}\n{"step": -9223372036854775808}\n')


if __name__ == "__main__":
    for make in (json_seeds, config_seeds, manifest_seeds, safetensors_seeds, tokenizer_seeds, encode_seeds, text_seeds, metrics_seeds):
        make()
