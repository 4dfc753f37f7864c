"""Seeds of the fuzz targets that read models: checkpoints, files of other programs, n-grams and vectors. seeds.py calls them."""
import json, os, struct

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "seeds")


def put(thing, name, data):
    folder = os.path.join(HERE, thing)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


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
    lists = [{**one, "pieces": [[k % 2, k, *piece["offset"], *piece["extent"]] for k, piece in enumerate(one["pieces"])]} for one in two]
    put("manifest", "lists", manifest(lists, format_version=4))
    put("manifest", "hole", manifest([tensor("a", [4], [([0], [1]), ([2], [2])])]))
    put("manifest", "overlap", manifest([tensor("a", [4], [([0], [3]), ([2], [2])])]))
    put("manifest", "overlap-and-hole", manifest([tensor("a", [2, 2], [([0, 0], [2, 1]), ([0, 0], [2, 1])])]))
    put("manifest", "beyond", manifest([tensor("a", [4], [([0], [9223372036854775807])])]))
    put("manifest", "huge", manifest([tensor("a", [2147483648, 2147483648], [])]))
    put("manifest", "version", manifest(two, format_version=3))
    put("manifest", "order", manifest(two[::-1]))
    put("manifest", "files", manifest([], files=("../x", "shard-00000.h5")))
    quick = [{"name": "shard-00000.h5", "bytes": 600, "xxh3_128": "0123456789abcdef" * 2}]
    put("manifest", "quick-hash", json.dumps({**json.loads(manifest([])), "format_version": 2, "files": quick}))
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


def gguf_seeds():
    def text(data):
        return struct.pack("<Q", len(data)) + data

    def strings(*items):
        return struct.pack("<IIQ", 9, 8, len(items)) + b"".join(text(item) for item in items)

    def whole(keys, tensors, data, version=3):
        head = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(keys)) + b"".join(text(name) + value for name, value in keys)
        head += b"".join(tensors)
        return head + bytes(-len(head) % 32) + data

    def tensor(name, sizes, kind, offset):
        return text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)

    four = [tensor(b"a", (2, 3), 0, 0), tensor(b"b", (2,), 1, 32), tensor(b"c", (3,), 30, 64), tensor(b"d", (32, 2), 8, 96)]
    data = bytes(range(24)) + bytes(8) + bytes(32) + bytes(32) + bytes(68)
    kinds = [(b"u8", struct.pack("<IB", 0, 1)), (b"i16", struct.pack("<Ih", 3, -2)), (b"f32", struct.pack("<If", 6, 0.5)), (b"on", struct.pack("<I?", 7, True)),
             (b"u64", struct.pack("<IQ", 10, 5)), (b"f64", struct.pack("<Id", 12, 0.25)), (b"list", strings(b"x", b"y")),
             (b"lists", struct.pack("<IIQIQH", 9, 9, 1, 2, 1, 7)), (b"general.alignment", struct.pack("<II", 4, 32))]
    put("gguf", "whole", whole(kinds, four, data))
    put("gguf", "older", whole(kinds[:2], four, data, 2))
    put("gguf", "none", whole([], [], b""))
    put("gguf", "cut", whole(kinds, four, data)[:-1])
    put("gguf", "longer", whole(kinds, four, data) + bytes(40))
    put("gguf", "overlap", whole([], [tensor(b"a", (8,), 0, 0), tensor(b"b", (8,), 0, 0)], bytes(64)))
    put("gguf", "huge", whole([], [tensor(b"a", (1 << 40, 1 << 40), 0, 0)], bytes(64)))
    put("gguf", "wraps", whole([(b"k", struct.pack("<IIQ", 9, 8, 1 << 61))], [], b""))
    put("gguf", "deep", whole([(b"k", struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 9 + struct.pack("<IQB", 0, 1, 1))], [], b""))
    put("gguf", "other-type", whole([], [tensor(b"a", (32,), 2, 0)], bytes(32)))
    model, tokens = b"tokenizer.ggml.model", b"tokenizer.ggml.tokens"
    pieces = [b"<unk>", b"a", b"b", b"ab", b"\xe2\x96\x81"]
    put("gguf", "pieces", whole([(model, struct.pack("<I", 8) + text(b"llama")), (tokens, strings(*pieces)),
                                 (b"tokenizer.ggml.scores", struct.pack("<IIQ5f", 9, 6, 5, 0, -1, -2, -3, -4)),
                                 (b"tokenizer.ggml.token_type", struct.pack("<IIQ5i", 9, 5, 5, 2, 1, 1, 1, 1))], [], b""))
    put("gguf", "words", whole([(model, struct.pack("<I", 8) + text(b"bert")),
                                (tokens, strings(b"[PAD]", b"[UNK]", b"[CLS]", b"[SEP]", b"[MASK]", b"\xe2\x96\x81a", b"b"))], [], b""))
    put("gguf", "bytes", whole([(model, struct.pack("<I", 8) + text(b"gpt2")), (b"tokenizer.ggml.pre", struct.pack("<I", 8) + text(b"qwen2")),
                                (tokens, strings(b"a", b"b", b"ab")), (b"tokenizer.ggml.merges", strings(b"a b"))], [], b""))


def sentencepiece_seeds():
    def field(number, data):
        return bytes([number << 3 | 2, len(data)]) + data

    def piece(text, score, kind=1):
        return field(1, field(1, text) + b"\x15" + struct.pack("<f", score) + bytes([3 << 3, kind]))

    pieces = piece(b"<unk>", 0, 2) + piece(b"<s>", 0, 3) + b"".join(
        piece(text, -1 - k) for k, text in enumerate([b"\xe2\x96\x81", b"a", b"b", b"ab", b"\xe2\x96\x81ab", b"fi"]))
    symbols = piece(b"<0x61>", 0, 6) + piece(b"ba", 0, 4) + piece(b"zz", -9, 5)
    put("sentencepiece", "unigram", pieces + symbols)
    put("sentencepiece", "bpe", pieces + symbols + field(2, bytes([3 << 3, 2])))
    put("sentencepiece", "plain", pieces + field(3, bytes([3 << 3, 0, 4 << 3, 0])))
    put("sentencepiece", "charsmap", pieces + field(3, field(2, struct.pack("<I", 4) + bytes(4) + b"x\0")))
    put("sentencepiece", "unsupported", pieces + field(2, bytes([3 << 3, 4])))
    put("sentencepiece", "cut", pieces[:-3])
    put("sentencepiece", "twice", pieces + piece(b"a", -3))


def ngram_model(orders, unseen=None, vocab_size=3, change=lambda parts: None):
    """A file behind its user block. orders: of each order its n-grams, as {ids: (log10 of the probability, of the back-off weight)}."""
    places = [{words: k for k, words in enumerate(sorted(grams))} for grams in orders]
    header = struct.pack("<4IQ8Qf37I", len(orders), unseen is None, 2, 0, vocab_size, *[len(grams) for grams in orders], *[0] * (8 - len(orders)),
                         unseen or 0, *[0] * 37)
    parts = [bytearray(header)]
    for k, grams in enumerate(orders, 1):
        nodes = bytearray()
        for words in sorted(grams):
            link = 0 if k == 1 else words[1] if k == 2 else places[k - 2][words[1:]]
            if k == len(orders) and k > 1:
                nodes += struct.pack("<fI", grams[words][0], link)
                continue
            begin = 0 if k == len(orders) else sum(longer[:-1] < words for longer in orders[k])
            nodes += struct.pack("<ffII", *grams[words], begin, link)
        if k < len(orders) or k == 1:
            nodes += struct.pack("<ffII", 0, 0, len(orders[k]) if k < len(orders) else 0, 0)
        parts += [nodes, bytearray(b"".join(struct.pack("<H", words[-1]) for words in sorted(grams)) if k > 1 else b"")]
    change(parts)
    out = bytearray(512)
    for part in parts:
        out += bytes(-len(out) % 64 if part is not parts[0] else 0) + part
    return bytes(out + bytes(-len(out) % 64))[512:]


def ngram_seeds():
    words = {(w,): (-0.6, -0.2) for w in range(4)}
    pairs = {(3, 0): (-0.3, -0.1), (0, 1): (-0.4, -0.2), (0, 2): (-0.9, 0), (1, 0): (-0.5, -0.3), (1, 2): (-0.2, 0)}
    triples = {(3, 0, 1): (-0.1, 0), (0, 1, 0): (-0.7, 0), (0, 1, 2): (-0.3, 0), (1, 0, 2): (-0.2, 0)}

    def set_at(part, place, form, value):
        return lambda parts: struct.pack_into(form, parts[part], place, value)

    put("ngram", "one", ngram_model([words]))
    put("ngram", "two", ngram_model([words, pairs]))
    put("ngram", "three", ngram_model([words, pairs, triples]))
    put("ngram", "no-back-off", ngram_model([words, pairs, triples], unseen=-0.5))
    put("ngram", "no-triples", ngram_model([words, pairs, {}]))
    put("ngram", "empty", b"")
    for name, change in {"order": set_at(0, 0, "<I", 8), "word-bytes": set_at(0, 8, "<I", 4), "vocabulary": set_at(0, 16, "<Q", 1 << 40),
                         "count": set_at(0, 32, "<Q", 1 << 31), "begin": set_at(1, 16 + 8, "<I", 9), "link": set_at(3, 12, "<I", 5),
                         "word": set_at(4, 0, "<H", 77), "unsorted": set_at(4, 0, "<H", 2), "nan": set_at(1, 0, "<f", float("nan")),
                         "positive": set_at(5, 0, "<f", 1.0), "leaf-link": set_at(5, 4, "<I", 1 << 31), "weight": set_at(1, 4, "<f", float("inf"))}.items():
        put("ngram", name, ngram_model([words, pairs, triples], change=change))


def arpa_seeds():
    good = ("\\data\\\nngram 1=5\nngram 2=4\nngram 3=2\n\n\\1-grams:\n-1.2\t<unk>\t0\n0\t<s>\t-0.3\n-0.5\tb\t-0.2\n-0.9\t</s>\t0\n"
            "-0.4\ta\t-0.1\n\n\\2-grams:\n-0.3\tb </s>\t0\n-0.2\t<s> a\t-0.05\n-0.6\ta b\t-0.7\n-0.8\tb b\n\n\\3-grams:\n-0.15\t<s> a b\n"
            "-0.25\ta b a\n\n\\end\\\n")
    texts = {
        "good": good, "crlf": good.replace("\n", "\r\n"), "blanks": good.replace("\t", "   "), "truncated": good[:150], "no-end": good.replace("\\end\\\n", ""),
        "too-few": good.replace("2=4", "2=5"), "too-many": good.replace("2=4", "2=3"), "lie": good.replace("2=4", "2=4000000000000000000"),
        "orders": good.replace("ngram 3", "ngram 4"), "twice": good.replace("b b", "a b"), "no-history": good.replace("a b a", "</s> b a"),
        "no-word": good.replace("b b", "b c"), "positive": good.replace("-0.4\ta", "0.4\ta"), "nan": good.replace("-0.4\ta", "nan\ta"),
        "back-off": good.replace("a b a", "a b a\t-1"), "more": good + "more\n", "inside": good.replace("a b a", "a <s> a"), "empty": "", "head": "\\data\\\n",
        "comment": "a comment\n\n" + good, "one": good[:good.index("ngram 2")] + good[good.index("\n\\1-grams"):good.index("\\2-grams")] + "\\end\\\n",
        "no-start": good.replace("0\t<s>\t-0.3\n", "").replace("1=5", "1=4").replace("<s>", "b"), "zero-byte": good.replace("a b", "a\0b"),
        "no-unknown": good.replace("-1.2\t<unk>\t0\n", "").replace("1=5", "1=4"), "invalid": good.replace("b b", "b \udcff"),
    }
    for name, text in texts.items():
        put("arpa", name, text.encode(errors="surrogateescape"))


def vectors_seeds():
    good, row = "4 2\n</s> 0 0.5\na 1 -2e-3\nb 0.25 4\nc -1 1\n", struct.pack("<2f", 0.5, -3)
    texts = {
        "good": good, "tokens": "2 2\nb 1 2\na 3 4\n", "crlf": good.replace("\n", "\r\n"), "truncated": good[:-4], "word": good[:-5], "too-many": good + "d 1 2\n",
        "too-few": good.replace("4 2", "5 2"), "lie": good.replace("4 2", "2147483647 1048576"), "overflow": good.replace("4 2", "99999999999999999999 2"),
        "wide": good.replace("a 1", "a 1 1"), "narrow": good.replace("a 1", "a"), "twice": good.replace("b 0", "a 0"), "nan": good.replace("0.25", "nan"),
        "infinite": good.replace("0.25", "1e99"), "number": good.replace("0.25", "0.x"), "start": "1 2\n<s> 1 2\n", "unknown": "1 2\nzebra 1 2\n",
        "unk": "1 1\n<unk> 1\n", "reserved": good.replace("b 0", "<|endoftext|> 0"), "invalid": good.replace("b 0", "\udcff 0"), "zero-byte": good.replace("b 0", "b\0 0"),
        "no-word": good.replace("b 0", " 0"), "empty": "", "head": "4 2\n", "negative": "4 -2\n", "no-head": "the text of a book\n",
    }
    for name, text in texts.items():
        put("vectors", name, text.encode(errors="surrogateescape"))
    put("vectors", "binary", b"2 2\na " + row + b"\nb " + row + b"\n")
    put("vectors", "google", b"2 2\na " + row + b"b " + row)
    put("vectors", "binary-truncated", b"2 2\na " + row + b"\nb " + row[:5])
    put("vectors", "binary-nan", b"1 2\na " + struct.pack("<2f", 1, float("nan")))


def bilm_seeds():
    def options(**changes):
        lstm = {"cell_clip": 3, "proj_clip": 3, "dim": 8, "projection_dim": 4, "n_layers": 2, "use_skip_connections": True}
        cnn = {"activation": "relu", "embedding": {"dim": 4}, "filters": [[1, 2], [3, 4]], "max_characters_per_token": 50, "n_characters": 262,
               "n_highway": 2}
        for key, value in changes.items():
            (lstm if key in lstm else cnn if key in cnn else {})[key] = value
        return json.dumps({"bidirectional": True, "char_cnn": cnn, "lstm": lstm, "unroll_steps": 20})
    for name, text in {
            "whole": options(), "tanh": options(activation="tanh", n_characters=261), "no-clip": options(cell_clip=None, proj_clip=0), "wide": options(filters=[[51, 1]]),
            "no-filters": options(filters=[]), "pairs": options(filters=[[1], 2, [3, "a"]]), "many": options(filters=[[1, 1]] * 17), "projection": options(projection_dim=9),
            "layers": options(n_layers=2 ** 40), "zero": options(dim=0), "embedding": options(embedding=3), "empty": "{}", "cut": options()[:40],
            "words": "<S>\n</S>\n<UNK>\nthe\nof\n", "no-end": "<UNK>\nthe\n", "twice": "</S>\n<UNK>\nthe\nthe\n", "returns": "</S>\r\n<UNK>\r\nna\xefve", "blank": "\n</S>\n<UNK>\n",
            "reserved": "</S>\n<UNK>\n<unk>\n"}.items():
        put("bilm", name, text.encode("latin-1") if name == "returns" else text)


MODELS = (manifest_seeds, safetensors_seeds, gguf_seeds, sentencepiece_seeds, ngram_seeds, arpa_seeds, vectors_seeds, bilm_seeds)
