#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets into seeds/THING. The files are kept in the repository; those called regression-*
once broke a target and are not made here. HDF5 images need h5py; without it they are left as they are."""
import gzip, json, os, struct

from seeds_models import HERE, MODELS, put


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


def members_seeds():
    put("json", "members", '{"a": [1, {"x": "]}", "text": "t\\"", "y": {}}], "b": [{"a": [[]]}, null], "text": "", "\\u0061b": 1.5e3}')
    put("json", "unread", '{"x": NaN, "a": {"b": 1e999, "b": "\\ud800"}, "y": [Infinity, {}]}')


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
    squad = b'{"data": [{"paragraphs": [{"context": "\\u00c4h, the (cat) sat.", "qas": [{"id": "q", "question": "Who?", "answers": %s}, ' \
        b'{"id": "r", "question": "Why?", "is_impossible": true}]}]}]}'
    for name, answers in {"one": b'[{"text": "cat", "answer_start": 9}]', "other": b'[{"text": "hat", "answer_start": 9}]', "none": b"[]", "bad": b'[{"text": 3}]',
                          "far": b'[{"text": "cat", "answer_start": 99}]'}.items():
        put("text", "squad-" + name, bytes([3, 0, 9, 5]) + squad % answers)
    put("text", "window", bytes([0, 0, 9]) + bytes.fromhex("28b52ffd00b8") + bytes(8))
    put("text", "skippable", bytes([0, 0, 9]) + bytes.fromhex("502a4d1803000000") + b"abc")
    put("text", "long", bytes([1, 1, 0]) + b"word " * 100 + b"x" * 300 + b" 12345678901234567890" * 5)
    put("text", "empty", bytes([1, 0, 0]))


def web_seeds():
    def record(kind, body, *lines):
        return "\r\n".join(["WARC/1.0", "WARC-Type: " + kind, *lines, "Content-Length: %d" % len(body), "", ""]).encode() + body + b"\r\n\r\n"

    info, page = record("warcinfo", b"Software: x\r\n"), record("conversion", b"A page, and more.\n", "WARC-Target-URI: http://a/b")
    other = record("conversion", b"\xc3\x89T\xc3\x89 don't \xe6\x9d\xb1\xe4\xba\xac", "warc-target-uri:  http://c  ")
    for name, data in {"two": info + page + other, "gzip": gzip.compress(info, mtime=0) + gzip.compress(page, mtime=0) + gzip.compress(other, mtime=0),
                       "junk": page + b"junk\r\n\r\nmore" + other, "cut": page + other[:-12], "long": page.replace(b"18", b"181818") + other,
                       "no-length": page.replace(b"Length", b"Width") + other, "response": record("response", b"WARC/1.0\r\n\r\n" * 9) + page, "newlines": page.replace(b"\r", b""),
                       "number": page.replace(b"18", b"99999999999999999999"), "head": b"WARC/1.0\r\nA: b\r\n", "empty": b""}.items():
        put("web", "warc-" + name, b"\0" + data)
    for name, data in {"plain": b"one<>two\nlines<><>\n<>last<", "end": b"<>a<>b<> \n", "none": b"no such thing", "white": b" \n", "many": b"<>" * 40,
                       "words": "\u00c9t\u00e9, \u00abl'\u0130le\u00bb<>\u6771\u4eac x\u00ad\u2009y 2+2".encode()}.items():
        put("web", "separator-" + name, bytes([1, 2]) + b"<>" + data)
        put("web", "separator-default-" + name, bytes([1, 0]) + data.replace(b"<>", b"\n\n"))


def token_file_seeds():
    def whole(layout, kind, vocab, eod, index, tokens):
        return bytes([layout, kind, vocab - 1, eod]) + struct.pack("<H", len(index)) + index + tokens

    def megatron(lengths, ends, code=8, width=2):
        firsts = [width * sum(lengths[:k]) for k in range(len(lengths))]
        return b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(ends)) + struct.pack("<%di%dq%dq" % (len(lengths), len(lengths), len(ends)), *lengths, *firsts, *ends)

    tokens = struct.pack("<6H", 1, 2, 9, 4, 5, 9)
    put("token_files", "megatron", whole(0, 0, 10, 9, megatron([3, 2, 1], [0, 1, 3]), tokens))
    put("token_files", "megatron-wide", whole(0, 1, 10, 9, megatron([2, 0], [0, 0, 2], 5, 8), struct.pack("<2q", 1, 9)))
    put("token_files", "megatron-order", whole(0, 0, 10, 9, megatron([3, 3], [0, 2, 1]), tokens))
    put("token_files", "megatron-cut", whole(0, 0, 10, 9, megatron([3, 3], [0, 1, 2])[:-3], tokens))
    for kind in range(4):
        put("token_files", "llmc-%d" % kind, whole(1, kind, 10, 9, b"", struct.pack("<3i", 20240520, 1, 6) + bytes(1012) + tokens))
        put("token_files", "nanogpt-%d" % kind, whole(2, kind, 10, 9, b"", tokens))
        put("token_files", "datatrove-%d" % kind, whole(3, kind, 10, 9, struct.pack("<2Q", 3, 6), tokens))
    put("token_files", "llmc-wide", whole(1, 0, 10, 9, b"", struct.pack("<3i", 20240801, 7, 2) + bytes(1012) + struct.pack("<2I", 9, 1)))
    put("token_files", "nanogpt-odd", whole(2, 0, 10, 9, b"", tokens[:-1]))
    put("token_files", "datatrove-wide", whole(3, 0, 10, 9, struct.pack("<2Q", 1, 3), struct.pack("<3I", 1, 2, 9)))
    put("token_files", "datatrove-far", whole(3, 0, 10, 9, struct.pack("<2Q", 7, 6), tokens))


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


def record_seeds():
    import subprocess
    text = b"the same words and the same words again, " * 8

    def zstd(data, *options):
        return subprocess.run(["zstd", "-q", "-c", *options], input=data, stdout=subprocess.PIPE, check=True).stdout

    put("record", "zstd", b"\0" + zstd(text))
    put("record", "zstd-no-size", b"\0" + zstd(text, "--no-content-size"))
    put("record", "zstd-check", b"\0" + zstd(text, "--check"))
    put("record", "zstd-cut", b"\0" + zstd(text)[:-4])
    put("record", "zstd-no-size-cut", b"\0" + zstd(text, "--no-content-size")[:-4])
    put("record", "zstd-huge", b"\0" + bytes.fromhex("28b52ffde0") + struct.pack("<Q", 1 << 40) + b"\1\0\0")
    put("record", "zstd-empty", b"\0" + zstd(b""))
    put("record", "both-ways", b"\1\3" + text)
    put("record", "both-ways-fast", b"\1\xff" + bytes(range(256)))
    put("record", "lzf", b"\2\x20\0" + b"\4hello" + bytes([0x20 | 0, 4]) + bytes([0xe0, 3, 4]))
    put("record", "lzf-beyond", b"\2\x08\0" + b"\4hello" + bytes([0xe0, 200, 4]))
    put("record", "parts", b"\3" + b"".join(bytes([0, unit, 5]) + b"12345" for unit in (3, 0, 15, 3)))
    put("record", "parts-empty", b"\3" + bytes([0, 1, 0]) * 3)
    for flags in (1, 2, 4, 8):
        put("record", "parts-unsound-%d" % flags, b"\3" + b"\0\2\3abc" + bytes([flags, 3, 4]) + b"12345678wxyz" + b"\0\4\3def" + b"\0")
    put("record", "parts-outside", b"\3" + b"\0\x10\1a" + b"\0\xff\1b" + b"\0\1\1c")
    piece = struct.pack("<4q", 0, 1, 1, 1) + bytes(32)
    put("record", "result", b"\4\0" + struct.pack("<4q", 1, 1, 2, 1) + piece + struct.pack("<2q2f", 0, 2, -1, -2))
    put("record", "result-more", b"\4\1" + struct.pack("<4q", 1 << 60, 0, 0, 2) + bytes(64))
    put("record", "result-negative", b"\4\0" + struct.pack("<4q", 0, -1, 0, 1))
    tokens = zstd(struct.pack("<H", 7) * 65536)
    put("record", "chunk", b"\5" + struct.pack("<HHBB", 9, 65000, 255, 0) + tokens)
    put("record", "chunk-beyond", b"\5" + struct.pack("<HHBB", 6, 0, 3, 0) + tokens)
    put("record", "chunk-wrong", b"\5" + struct.pack("<HHBB", 9, 0, 3, 7) + tokens)
    put("record", "chunk-short", b"\5" + struct.pack("<HHBB", 9, 0, 3, 0) + zstd(bytes(1000)))


def corpus_index_seeds():
    put("corpus_index", "block", b"\0\0\0\0\0detail" + bytes(40))
    put("corpus_index", "block-changed", b"\0\1\0\1\4abcd" + struct.pack("<H", 20) + b"x" + bytes(40))
    put("corpus_index", "block-cut", b"\0\0\2\1\0" + bytes(30) + struct.pack("<H", 500))
    lines = b"bagpipe corpus 1\nbytes 520\nxxh3-128 " + b"0" * 32 + b"\n\n" + b"HDF5 begins after these 512 bytes. bagpipe-data inspect FILE; bagpipe-data verify FILE\n"
    for name, head in {"raw": lines, "version": lines.replace(b" 1\n", b" 99\n"), "kind": lines.replace(b"corpus", b"CORPUS"), "other": b"something else\n"}.items():
        put("corpus_index", "raw-" + name, b"\1" + (head + b"block xxh3-64 " + b"0" * 16 + b"\n").ljust(511) + b"\n" + bytes(8))
    put("corpus_index", "raw-hdf5", b"\1\x89HDF\r\n\x1a\n" + bytes(600))
    put("corpus_index", "raw-empty", b"\1")
    rows = b"".join(b"\0" + struct.pack("<HB", 512 + 30 * k, 30) for k in range(4))
    put("corpus_index", "checksums", b"\2\0\4" + rows + struct.pack("<HB", 520, 50) + struct.pack("<HB", 512, 30) * 3 + struct.pack("<qq", 512, 2) + bytes(100))
    put("corpus_index", "checksums-wrong", b"\2\3\4" + rows + struct.pack("<HB", 520, 50) + bytes(100))
    put("corpus_index", "checksums-overlap", b"\2\0\2" + b"\0" + struct.pack("<HB", 512, 30) + b"\0" + struct.pack("<HB", 530, 30) + bytes(100))
    put("corpus_index", "checksums-far", b"\2\0\2" + b"\xff" + struct.pack("<qB", -1, 1) + b"\xfe" + struct.pack("<Hq", 512, 1 << 62) + bytes(100))
    # documents, tokens; for each of six columns: signed, place, width (of tokenizer: length first); label codes, label names
    columns = b"\2\5" + bytes([0, 0, 0]) + bytes([0, 24, 0]) * 3 + bytes([0, 40, 7]) + bytes([10, 0, 60, 4]) + bytes([0, 24, 0]) + bytes([2, 0, 70, 3])
    values = struct.pack("<3q", 0, 2, 5) + struct.pack("<2q", 1, 0) + b"doc-one\0doc-two\0" + b'{"a": 1}  ' + b"yes\0no\0\0"
    put("corpus_index", "columns", b"\3" + columns + values + bytes(64))
    put("corpus_index", "columns-unsorted", b"\3" + columns + struct.pack("<3q", 0, 6, 5) + values[24:] + bytes(64))
    put("corpus_index", "columns-code", b"\3" + columns + struct.pack("<3q", 0, 2, 5) + struct.pack("<2q", 1, 7) + values[40:] + bytes(64))
    put("corpus_index", "columns-negative", b"\3" + columns + struct.pack("<3q", 0, -2, 5) + values[24:] + bytes(64))
    put("corpus_index", "columns-short", b"\3" + columns + values[:30])


def reshard_seeds():
    put("reshard", "plain", bytes([0, 1, 3, 5, 50]))
    put("reshard", "cuts", bytes([1, 1, 7, 8, 2]) + bytes([3, 0, 0, 4, 1, 1, 4, 0, 0, 2]) + bytes([2, 0, 1, 3, 0, 0, 1]))
    put("reshard", "four", bytes([1, 3, 3, 2, 4, 2, 5]) + bytes(range(1, 60, 3)))
    put("reshard", "empty-parts", bytes([3, 2, 2, 2, 2, 1]) + bytes([4] + [0, 0, 0] * 4) + bytes([3] + [0, 1, 3] * 3))
    put("reshard", "one-value", bytes([2, 0, 0, 0]))


def coord_seeds():
    put("coord", "queue", b"\0\2\x14" + bytes(range(20)) + b"\0\1" * 30 + b"\6\0" * 3)
    put("coord", "queue-early", b"\0\3\x10" + bytes(16) + b"\1\1" * 4 + b"\7\0" + b"\1\1" * 4)
    put("coord", "commit", b"\1\3" + b"\1" * 40)
    for step in range(11):
        put("coord", "commit-fails-%02d" % step, b"\1\0" + b"\1" * step + b"\0" + b"\1" * 8)
    put("coord", "commit-unreported", b"\1\3" + b"\1" * 5 + b"\x0f" * 3 + b"\1" * 20)
    put("coord", "lease", b"\2" + b"".join(bytes([k % 4, 5]) for k in range(60)))
    put("coord", "lease-dead", b"\2" + b"\0\5" * 5 + b"\0\0" + b"\1\5" * 3 + b"\1\5\1" * 6 + b"\2\5" * 9)
    put("coord", "lease-watch", b"\2" + b"\0\5" * 5 + b"\1\5\1\5" + b"\1\5\0" + b"\1\5" + b"\0\1\x63" + b"\1\5" * 5 + b"\0\5" * 2)
    put("coord", "names", b"\3\7\0owner-000007")
    put("coord", "names-claim", b"\3\7\0claim-000007-abc")
    put("coord", "watch", b"\4\3\0" + b"".join(bytes([k % 3, 2, 0, 1]) for k in range(60)))
    put("coord", "watch-silent", b"\4\2\0" + b"\0\2\0\1\1\2\0\1" + b"\0\2\7\x32\1" * 20)
    put("coord", "watch-waits", b"\4\2\0" + b"\0\7\0\1\7\0" + b"\0\9\7\x20\1\9\7\x20" * 10)


def wire_seeds():
    for how in range(4):
        for kind in range(4):
            put("wire", "%d-%d" % (how, kind), bytes([how, kind, 1]) + bytes(40) + struct.pack("<iiiii", 3, 1, 1, 2, 1) + b"\0\0\x20\x41" + b"allreduce".ljust(24, b"\0"))
    put("wire", "cut", b"\3\0\1" + bytes(20))
    put("wire", "full-name", b"\1\3\1" + bytes(64) + b"x" * 24)


def notes_seeds():
    members = [{"name": "m00", "path": "members/m00", "oob_perplexity": 12.5}, {"name": "m01", "path": "/abs/m01", "oob_perplexity": None}, {"name": "m02", "path": "x"}]
    put("notes", "ensemble", json.dumps({"format_version": 1, "members": members}))
    put("notes", "ensemble-plain", json.dumps({"members": members[:1]}))
    put("notes", "ensemble-twice", json.dumps({"members": members[:1] * 2}))
    put("notes", "ensemble-key", json.dumps({"members": members, "more": 1}))
    put("notes", "ensemble-member-key", json.dumps({"members": [dict(members[0], weight=1)]}))
    put("notes", "ensemble-version", json.dumps({"format_version": 2, "members": members}))
    put("notes", "ensemble-none", json.dumps({"members": []}))
    put("notes", "ensemble-oob", json.dumps({"members": [dict(members[0], oob_perplexity="x")]}))
    put("notes", "ensemble-empty-path", json.dumps({"members": [{"name": "a", "path": ""}]}))
    put("notes", "ensemble-member", json.dumps({"members": [3]}))
    put("notes", "array", "[]")
    config = {"model_type": "gpt2", "n_layer": 2, "n_embd": 12, "n_head": 3, "n_positions": 16, "vocab_size": 100, "eos_token_id": 99,
              "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "n_inner": None, "tie_word_embeddings": True}
    put("notes", "config", json.dumps(config))
    for name, change in {"type": {"model_type": "bert"}, "activation": {"activation_function": "relu"}, "epsilon": {"layer_norm_epsilon": 1e-6},
                         "inner": {"n_inner": 7}, "inner-right": {"n_inner": 48}, "heads": {"n_head": 5}, "size": {"n_embd": 1 << 40}, "zero": {"n_layer": 0},
                         "layers": {"n_layer": 20000}, "flag": {"scale_attn_weights": False}, "eos": {"eos_token_id": 100}}.items():
        put("notes", "config-" + name, json.dumps({**config, **change}))
    old = dict(config, n_ctx=16)
    del old["n_positions"]
    put("notes", "config-old", json.dumps(old))


def prompts_seeds():
    texts = {
        "lines": b"\0a b c\nc b\r\n\xef\xbb\xbfa\n", "mark": b"\0\xef\xbb\xbfa b\n", "empty-line": b"\0a\n\nb\n", "empty": b"\0", "no-end": b"\0a b",
        "detected": b'\0{"prompt": "a b"}\n{"tokens": [0, 1]}\n', "invalid": b"\0a \xff\xfe b\n", "long": b"\0" + b"a " * 60 + b"\n",
        "objects": b'\1{"prompt": "a c", "id": 1}\n{"tokens": [4, 0, 2]}\n', "outside": b'\1{"tokens": [5]}\n', "huge": b'\1{"tokens": [18446744073709551616]}\n',
        "real": b'\1{"tokens": [1.0]}\n', "both": b'\1{"prompt": "a", "tokens": [1]}\n', "neither": b'\1{"text": "a"}\n', "list": b"\1[1, 2]\n",
        "cut": b'\1{"prompt": "a', "nul": b'\1{"prompt": "a\\u0000b"}\n', "twice": b'\1{"prompt": "a", "prompt": "b"}\n',
        "fields": b"\2{a} b {n}\n\n", "braces": b"\2{{a}} {a}", "open": b"\2a {a", "list-field": b"\2{l}", "lacks": b"\2{x}", "nothing": b"\2\n\n",
        "nested": b"\2{a{n}}", "stops": b"\3a,b c,\\x61", "escapes": b"\3\\n,\\\\,\\,", "wrong": b"\3\\q", "hex": b"\3\\x4", "commas": b"\3,,",
        "zero": b"\3\\x00a",
    }
    for name, text in texts.items():
        put("prompts", name, text)
    put("prompts", "one-more", b"\0" + b"a " * 41 + b"\n" + b"a " * 40)
    put("prompts", "unread", b'\1{"prompt": "a\\u0000b", "x": NaN}\n')


def rows_seeds():
    """A byte for the format (tsv, conll, pairs, squad, jsonl), one for words without tags, then the file."""
    question = ('{"data": [{"title": NaN, "paragraphs": [{"context": "the cat sat ", "qas": [{"id": "q", "question": "Who?", "answers": '
                '[{"text": " cat ", "answer_start": 3}, {"text": "x"}]}, {"id": 2}, {"id": "r", "question": "?", "is_impossible": true}]}]}]}')
    for name, data in (("table", b"\0\0id\ta\tb\tclass\tn\n1\tx\ty\tz\t-1.5\n2\tx\n\n3\tx\ty\tz\tnan\n"),
                       ("words", b"\1\0-DOCSTART- -X- O\n\n# text = a\na NN B-X\n# NN O\n\nb\nc O\n-X- O\n#d NN O\n"),
                       ("no-tags", b"\1\1# a b\nthe\n#\n\n cat\n"), ("pairs", b"\2\0a\n\nb\n\n\xfec\n\n \n"), ("more", b"\2\0a\n\xfeb\n\n\nc"),
                       ("squad", b"\3\0" + question.encode()), ("not-squad", b'\3\0{"data": [{"paragraphs": [{}]}]}'),
                       ("objects", b'\4\0{"text": "a", "n": 1, "x": [NaN, {"y": 1e999}], "class": true}\n{"text": null}\n{"n": 2, "text": "\\u0000", "x": "\\ud800"}\n'),
                       ("cut", b'\4\0{"text": "a", "n": 1, "x": [NaN, {}\n{"text": "a\n'), ("empty", b"\1\0")):
        put("rows", name, data)


def candidates_seeds():
    """A byte for the tokens before a context and its length, then a line for each of three documents."""
    lines = (b'{"choices": ["b", " a"], "answer": 1}\n{"choices": ["ab"]}\n{"choices": ["", "a"], "x": NaN}\n',
             b'{"choices": ["a"], "answer": null}\n{"choices": ["\\u0000"], "answer": 0}\n{"choices": ["b "]}')
    for name, data in (("plain", b"\x40" + lines[0]), ("lead", b"\x47" + lines[0]), ("short", b"\x03" + lines[0]), ("nul", b"\x81" + lines[1]),
                       ("few", b"\x40" + lines[0][:60]), ("more", b"\x40" + 2 * lines[0]), ("no-list", b'\x40{"choices": {}}\n'),
                       ("no-text", b'\x40{"choices": [1]}\n'), ("wrong-answer", b'\x40{"choices": ["a"], "answer": 1}\n'),
                       ("long", b'\x20{"choices": ["' + b"a b" * 40 + b'"]}\n'), ("empty", b""),
                       ("question", b'\x47{"task": "t", "group": "g", "context": "ab ", "choices": ["b", " a", ""], "answer": 1, "x": NaN}\n'),
                       ("target", b'\x43{"context": "", "target": "b a"}\n{"contexts": ["a", "b a "], "target": " b", "answer": 0}\n')):
        put("candidates", name, data)


def mixture_seeds():
    def weights(first, second, **more):
        models = [{"folder": "a", "digest": "a1", "weight": first}, {"folder": "b", "digest": "", "weight": second}]
        return json.dumps({"format": "bagpipe mixture", "format_version": 1, "models": models, **more})

    for name, text in (("good", weights(0.25, 0.75)), ("sum", weights(0.25, 0.7)), ("below", weights(-0.25, 1.25)), ("text", weights("0.25", 0.75)),
                       ("version", weights(0, 1, format_version=2)), ("one", weights(0, 1, models=[])), ("other", weights(0, 1).replace("a1", "a2")),
                       ("huge", weights(0, 1).replace("0,", "1e999,")), ("rest", weights(0, 1) + "x"), ("empty", ""), ("list", "[]")):
        put("mixture", name, text)


def h5_seeds():
    try:
        import h5py, numpy
    except ImportError:
        return
    folder = os.path.join(HERE, "h5_walk")
    os.makedirs(folder, exist_ok=True)

    def corpus(name, tokens=numpy.arange(12, dtype="<u2") % 5, vocab_size=5, change=lambda file: None, libver="earliest", **options):
        path = os.path.join(folder, name)
        with h5py.File(path, "w", libver=libver) as file:
            file.create_dataset("tokens", data=tokens, track_times=False, **options)
            file.create_dataset("doc_start", data=numpy.array([0, 5, 12], dtype="<u8"), track_times=False)
            file.attrs["vocab_size"] = vocab_size
            change(file)

    def label(file):
        file["labels/genre"] = numpy.array([1, 0], dtype="<u4")
        file["label_names/genre"] = numpy.array([b"news", b"fiction"])
        file["doc_id"] = numpy.array([b"one", b"two"])
        file.attrs["eod_id"] = 4

    def again(name):
        def change(file):
            del file["tokens"]
            file["tokens"] = name
        return change

    corpus("plain")
    corpus("latest", libver="latest")
    corpus("gzip", chunks=(4,), compression="gzip", shuffle=True, fletcher32=True)
    corpus("lzf", chunks=(8,), compression="lzf")
    corpus("labels", change=label)
    corpus("signed-wide", tokens=numpy.arange(12, dtype=">i8") % 5)
    corpus("beyond", vocab_size=3)
    corpus("real", tokens=numpy.arange(12, dtype="<f4"))
    corpus("grid", tokens=numpy.zeros((3, 4), dtype="<u2"))
    corpus("soft", change=again(h5py.SoftLink("/doc_start")))
    corpus("external-link", change=again(h5py.ExternalLink("/etc/passwd", "/tokens")))
    corpus("cycle", change=lambda file: file.create_group("g").__setitem__("again", file["/"]))
    corpus("vlen", change=lambda file: file.create_dataset("text", data=["a", "bc"], dtype=h5py.string_dtype()))
    corpus("compound", change=lambda file: file.create_dataset("c", data=numpy.zeros(2, dtype=[("a", "<i4"), ("b", "<f8")])))
    corpus("scaleoffset", chunks=(4,), scaleoffset=0)

    def huge(file):
        del file["tokens"]
        file.create_dataset("tokens", shape=(1 << 40,), dtype="<u2")

    def external(file):
        del file["tokens"]
        file.create_dataset("tokens", shape=(12,), dtype="<u2", external=[("/etc/passwd", 0, 24)])

    def virtual(file):
        del file["tokens"]
        layout = h5py.VirtualLayout(shape=(12,), dtype="<u2")
        layout[:] = h5py.VirtualSource("other.h5", "tokens", shape=(12,))
        file.create_virtual_dataset("tokens", layout)

    corpus("huge", change=huge)
    corpus("external", change=external)
    corpus("virtual", change=virtual, libver="latest")


def cli_seeds():
    good = "run.dir=r\0corpus.train=c.h5\0model.layers=2\0model.width=8\0model.heads=2\0model.context=16\0train.steps=3\0train.batch=2"
    lines = {
        "none": "", "help": "--help", "help-word": "help\0doctor", "help-none": "help\0dance", "version": "--version", "no-job": "dance", "check": "check", "check-help": "check\0--help",
        "job-help": "pretrain\0--help", "score-help": "score\0-h", "ensemble-help": "ensemble\0--help", "uncertainty-help": "uncertainty\0--help",
        "good": "check\0pretrain\0CONFIG\0" + good, "missing": "check\0pretrain\0CONFIG", "option": "check\0pretrain\0--fast",
        "unknown": "check\0pretrain\0CONFIG\0train.step=3", "range": "check\0pretrain\0CONFIG\0train.steps=-1\0model.dropout=2",
        "no-file": "check\0score\0nowhere.ini", "score": "check\0score\0CONFIG\0run.dir=r\0score.model=m\0score.corpus=c.h5\0score.stride=3",
        "batch": "check\0pretrain\0CONFIG\0" + good + "\0mesh.data=3\0mesh.micro_batch=7", "mesh": "check\0pretrain\0CONFIG\0" + good + "\0mesh.tensor=3\0mesh.pipeline=9",
        "ensemble": "check\0ensemble\0CONFIG\0" + good + "\0ensemble.members=3", "uncertainty": "check\0uncertainty\0CONFIG\0run.dir=u",
        "line-break": "check\0pretrain\0CONFIG\0a\nb", "escape": "check\0pretrain\0\x1b[31m%s%n", "folder": "check\0pretrain\0/", "equals": "check\0pretrain\0=\0CONFIG",
        "no-value": "check\0pretrain\0CONFIG\0run.dir=", "plan": "check\0pretrain\0--plan\0CONFIG",
        "requeue": "requeue\0pretrain\0CONFIG\0run.dir=r\0--status\0" + "75", "requeue-none": "requeue\0pretrain\0CONFIG", "requeue-bad": "requeue\0pretrain\0CONFIG\0--status\0x",
        "status": "status\0nowhere", "status-none": "status", "empty-word": "\0",
    }
    for name, words in lines.items():
        put("cli", name, words)


def question_rows_seeds():
    choices = [{"text": "ice", "label": "A"}, {"text": "", "label": "B"}]
    columns = {"text": ["x", " "], "label": ["1", "2"]}
    rows = [  # in the order of the target's tasks
        [{"text": "She saw the dog"}, {"text": "one "}], [{"sentence_good": "a", "sentence_bad": "", "UID": "x", "pairID": 3}],
        [{"activity_label": "Cars [x]", "ctx_a": "[header] How to [title] Drive  [", "ctx_b": "\u00c9 \u039f\u03a3", "endings": ["[step] a", "b"], "label": "1", "ind": 4}],
        [{"sentence": "Ann _ kind.", "option1": "is", "option2": "was", "answer": "2"}, {"sentence": "_", "option1": "", "option2": "", "answer": ""}],
        [{"id": "M", "question": {"stem": "What?", "choices": choices}, "answerKey": "B"}, {"question": "What?", "choices": columns, "answerKey": "1"}],
        [{"question_stem": "What", "choices": columns, "answerKey": " 2"}], [{"goal": "g", "sol1": "a", "sol2": "b", "label": 1}, {"goal": "g", "sol1": "a", "sol2": "b"}],
        [{"question": "q", "passage": "p", "label": True, "idx": 1}, {"question": "q", "passage": "p", "answer": False}],
        [{"premise": "It fell.", "choice1": "The", "choice2": "the", "question": "cause", "label": 1}, {"premise": "", "choice1": "\u0130", "choice2": " ", "question": "effect"}],
        [{"question": " q ", "subject": "anatomy", "choices": ["a", "b", "c", "d"], "answer": 3}],
    ]
    for k, lines in enumerate(rows):
        for labels in (0, 1):
            put("question_rows", f"task-{k}-{labels}", bytes([k, labels]) + "".join(json.dumps(line) + "\n" for line in lines).encode())
    put("question_rows", "csv", b'\x09\x00"Which\n""one""? ",a,"b, c",,d,D\r\n\r\n{x},1,2,3,4,A')
    put("question_rows", "csv-open", b'\x09\x00q,"a,b,c,d,A\n')
    put("question_rows", "csv-cells", b"\x09\x00q,a,b\xff,d,A,\n")
    put("question_rows", "nul", b'\x06\x00{"goal": "a\\u0000b", "sol1": "\\u0000", "sol2": "", "label": -1}\n')
    put("question_rows", "empty", b"\x00\x00\n \n")
    put("question_rows", "no-object", b"\x08\x00[1]\n")


def pii_seeds():
    """Two bytes of countries, then a text."""
    texts = ["a.b@c.org, git@c.org:d/e.git x@y.to(z) u@2x.io \u00fc@\u00fc.de", "+49 30 1234 5678 (212) 555-2368 1-800-555-2368 0033 1 42 68 53 00 030/1234567 +44 (0)20 7946 0958", "4111 1111 1111 1111 2025 3782-822463-10005 5500000000000004",
             "DE89 3704 0044 0532 0130 00 GB82WEST12345698765432 XX82", "8.8.8.8 v1.2.3.4 1.2.3.4.5 Chrome/1.2.3.4 1.2.3.4 Scope", "2001:db8::1 ::1 a[1::2] ::ffff:1.2.3.4 1:2:3:4:5:6:7:8 fe80::%eth0 :::",
             "536-90-4399 193 456 787 1 84 12 2A 451 089 33 86095742719 111222333 85.07.30-033.28 12345678Z X1234567L 811228-9874", "131052-308T 131052A308T 01010750160 RSSMRA85T10A562S 44051401359 AB 12 34 56 C 756.9217.0769.85 529.982.247-25 2341 2341 2346 11010519491231002X"]
    for k, text in enumerate(texts):
        put("pii", f"text-{k}", b"\xff\xff" + text.encode())
    put("pii", "lines", b"\xff\xff" + "\n".join(texts).encode())
    put("pii", "none", b"\0\0" + " ".join(texts).encode())
    put("pii", "nul", b"\xff\xff1\x00@\x00.\x00:\x00:\xff@\xc3\xbc.de 4111\x00")


def report_seeds():
    """A byte for word lists (a list, a zero byte, a text) or outputs of generate."""
    put("reports", "words", b"\0# list\nBad!\nvery bad\r\n\xe6\x9d\xb1\xe4\xba\xac\nbad\n\0It is bad, VERY bad. \xe6\x9d\xb1\xe4\xba\xac")
    put("reports", "words-long", b"\0a b c d e f g h i\n\0a")
    put("reports", "words-none", b"\0#\n \n!\n\0a")
    lines = [{"index": 0, "prompt": "a", "text": "b", "tokens": [1, 2]}, {"index": 0, "prompt": None, "text": "c\u0000d", "tokens": []}, {"index": 3, "tokens": [5]}]
    put("reports", "outputs", b"\1" + "".join(json.dumps(line) + "\n" for line in lines).encode())
    for name, line in (("index", {"index": -1, "tokens": []}), ("tokens", {"index": 0, "tokens": ["1"]}), ("large", {"index": 0, "tokens": [1 << 40]}), ("list", [])):
        put("reports", f"outputs-{name}", b"\1" + json.dumps(line).encode())


def predictions_seeds():
    """A byte for .npy or CSV, then the file."""
    def npy(shape, values, kind="<f8", order=False, version=1):
        header = f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}".encode()
        header += b" " * (53 - len(header) % 64 if len(header) % 64 < 53 else 117 - len(header) % 64) + b"\n"
        return b"\0\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(header)) + header + \
            struct.pack(f"<{len(values)}{'d' if '8' in kind else 'f'}", *values)

    row = [0.5, 0.25, 0.25]
    for name, data in (("one", npy((2, 3), row * 2)), ("members", npy((2, 2, 3), row * 4, "<f4")), ("three", npy((1, 3), row, version=3)),
                       ("order", npy((1, 3), row, order=True)), ("kind", npy((1, 3), row, ">f8")), ("shape", npy((3,), row)), ("more", npy((2, 3), row)),
                       ("huge", npy((2147483647, 2147483647), row)), ("sum", npy((1, 2), row[:2])), ("nan", npy((1, 2), [float("nan"), 1])), ("none", b"\0"),
                       ("cut", npy((2, 3), row * 2)[:40])):
        put("predictions", "npy-" + name, data)
    for name, text in (("plain", "b,a,c\n0.5,0.25,0.25\n1,0,0\n"), ("quotes", '"a","b","c"\r\n"0.5",0.25,2.5e-1\r\n'), ("lines", "a,b,c\r0,1,0\r1,0,0\r"),
                       ("twice", "a,a,b\n0,0,1\n"), ("unknown", "a,b,d\n0,0,1\n"), ("ragged", "a,b,c\n0,1\n"), ("open", 'a,b,c\n0,0,"1\n'), ("head", "a,b,c"),
                       ("nan", "a,b,c\nnan,1,0\n"), ("nul", "a,b,c\n0\0,1,0\n"), ("bom", "\ufeffa,b,c\n0,0,1\n"), ("blank", "a,b,c\n\n0,1,0\n"),
                       ("ids", 'c,doc_id,a,b\n0,"x,1",0,1\n0.5,,0.5,0\n'), ("index", ",a,b,c\n0,0,0,1\n"), ("percent", "a,b,c\n50,25,25\n"),
                       ("own", "document,label,prediction,probability,doc_id,tokens,p_b,p_a,p_c\n0,a,b,0.5,'=x,3,0.5,0.25,0.25\n1,,b,1,,2,1,0,0\n")):
        put("predictions", "csv-" + name, b"\1" + text.encode())


if __name__ == "__main__":
    for make in MODELS + (
            json_seeds, members_seeds, config_seeds, tokenizer_seeds, encode_seeds, text_seeds, web_seeds, token_file_seeds,
            metrics_seeds, record_seeds, corpus_index_seeds, reshard_seeds, coord_seeds, wire_seeds, notes_seeds, prompts_seeds,
            rows_seeds, candidates_seeds, mixture_seeds, h5_seeds, cli_seeds, question_rows_seeds, pii_seeds, report_seeds,
            predictions_seeds):
        make()
