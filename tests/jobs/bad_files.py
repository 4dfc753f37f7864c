"""Makers of bad files, by the numbers of the list in docs/reliability.md: each function writes one file (or folder).

h5py makes the HDF5 files; what it would not write is patched into the bytes.
"""
import base64
import json
import os
import random
import shutil
import struct
import subprocess

try:
    import h5py
    import numpy as np
except ImportError:  # the rows of HDF5 are skipped
    h5py = None

TOKENS, STARTS = 5000, (0, 1000, 2000, 3000, 4000, 5000)


def put(path, data):
    with open(path, "wb") as file:
        file.write(data)


def get(path):
    with open(path, "rb") as file:
        return file.read()


# ---- zstd frames by hand: RLE blocks give 128 KiB for 4 bytes


def zstd_bomb(blocks, window=0x58, content=None, last=True, rest=1):
    """`rest`: bytes of the last block; `content`: the size that the header claims; `window`: its descriptor byte (0xA8 is 2^31)."""
    if content is None:
        head = b"\x28\xb5\x2f\xfd" + bytes([0, window])
    else:
        head = b"\x28\xb5\x2f\xfd" + bytes([0xC0, window]) + struct.pack("<Q", content)
    block = struct.pack("<I", (1 << 17) << 3 | 1 << 1)[:3] + b"a"
    end = struct.pack("<I", rest << 3 | 1 << 1 | 1)[:3] + b"a"
    return head + block * blocks + (end if last else b"")


def zstd_raw(data, checksum=None, garbage=b""):
    """One raw block; `checksum` is written as given."""
    head = b"\x28\xb5\x2f\xfd" + bytes([0x84 if checksum is not None else 0x80, 0x58]) + struct.pack("<I", len(data))
    return (head + struct.pack("<I", len(data) << 3 | 1)[:3] + data +
            (struct.pack("<I", checksum) if checksum is not None else b"") + garbage)


# ---- foreign corpora


def corpus(path, tokens=True, starts=STARTS, vocab_size=121, **storage):
    """A good one, but for what is left out; open, for more to be added."""
    file = h5py.File(path, "w", **({"userblock_size": storage.pop("userblock")} if "userblock" in storage else {}))
    if tokens is True:
        tokens = (np.arange(TOKENS) * 7919 + 13) % 120
    if tokens is not False:
        file.create_dataset("tokens", data=np.asarray(tokens).astype(storage.pop("dtype", "u2")), **storage)
    file["doc_start"] = np.array(starts, dtype="i8")
    file.attrs["vocab_size"] = vocab_size
    file.attrs["eod_id"] = 120
    return file


def with_tokens(place, value):
    def make(path):
        tokens = (np.arange(TOKENS) * 7919 + 13) % 120
        tokens[place] = value
        corpus(path, tokens=tokens, dtype="i4").close()
    return make


def with_starts(*starts):
    return lambda path: corpus(path, starts=starts).close()


def with_(change):
    """A good corpus to which something is done."""
    def make(path):
        with corpus(path) as file:
            change(file)
    return make


def instead(change):
    """A corpus whose /tokens something else makes."""
    def make(path):
        with corpus(path, tokens=False) as file:
            change(file)
    return make


def raw_chunk(filter_id, *chunks, dtype="u2", count=TOKENS, chunk=TOKENS, name=b"tokens", values=()):
    """A corpus whose /tokens has chunks whose stored bytes are given; or a good one with such a dataset of another name."""
    def change(file):
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_chunk((chunk,))
        creation.set_filter(filter_id, h5py.h5z.FLAG_OPTIONAL, values)
        dataset = h5py.h5d.create(file.id, name, h5py.h5t.py_create(np.dtype(dtype)),
                                  h5py.h5s.create_simple((count,)), creation)
        for k, data in enumerate(chunks):
            dataset.write_direct_chunk((k * chunk,), data)
    return instead(change) if name == b"tokens" else with_(change)


def external(name, target):
    def change(file):
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_external(target, 0, 1000)
        h5py.h5d.create(file.id, name, h5py.h5t.STD_U8LE, h5py.h5s.create_simple((1000,)), creation)
    return change


def virtual(file):
    layout = h5py.VirtualLayout(shape=(100,), dtype="u2")
    layout[:] = h5py.VirtualSource("/etc/passwd", "tokens", shape=(100,))
    file.create_virtual_dataset("extra", layout)


def cycle(file):
    file.create_group("a/b/c")
    file["a/b/c/up"] = file["a"]


def nested(file):
    file.create_group("/".join("abcdefghi"))


def compound(file):
    file["tokens"] = np.zeros(TOKENS, dtype=[("x", "i4"), ("y", "f8")])


def reference(file):
    file.create_dataset("tokens", (TOKENS,), dtype=h5py.ref_dtype)


def reference_attribute(file):
    file.attrs.create("vocab_size", file["doc_start"].ref, dtype=h5py.ref_dtype)


def named_type(file):
    file["type"] = np.dtype("u2")
    file.create_dataset("tokens", data=np.arange(TOKENS) % 120, dtype=file["type"])


def scales(file):
    """As netCDF4 and xarray leave it: lists of references both ways, types with names, complex numbers, no value at all."""
    file["token"] = np.arange(TOKENS)
    file["token"].make_scale("token")
    file["tokens"].dims[0].attach_scale(file["token"])
    file["doc_start"].dims[0].attach_scale(file.create_dataset("document", data=np.arange(len(STARTS))))
    file["document"].attrs["origin"] = file.ref
    file["complex"] = np.dtype("c16")
    file["embedding"] = np.zeros((3, 4), "c16")
    file["embedding"].attrs["gain"] = 1 + 2j
    file.attrs["_FillValue"] = h5py.Empty("f4")
    file.attrs["history"] = ["made", "by", "a", "test"]


def tables(file):
    """As PyTables and pandas leave it: tables of records, times, truth values, lists, an index in groups below, aliases."""
    group = file.create_group("frame")
    group.attrs["pandas_type"] = np.bytes_("frame_table")
    rows = np.zeros(7, dtype=[("index", "i8"), ("values_block_0", "f8", (3,)), ("name", "S5"), ("flag", "?")])
    group.create_dataset("table", data=rows, chunks=(4,), compression="gzip").attrs["FIELD_0_FILL"] = np.int64(0)
    group.create_dataset("_i_table/index/sorted", data=np.arange(7), dtype="i4", chunks=(7,), scaleoffset=0)
    group.create_dataset("when", data=np.zeros(3, "i8").astype(h5py.opaque_dtype(np.dtype("M8[ns]"))))
    space = h5py.h5s.create_simple((3,))
    h5py.h5d.create(group.id, b"truth", h5py.h5t.STD_B8LE, space)
    group.create_dataset("lists", (5,), dtype=h5py.vlen_dtype("u2"))[0] = [1, 2]
    group.create_dataset("images", data=np.zeros((2, 1, 2, 1, 2), "f4"))
    group["names"] = ["variable", "length"]
    file["alias"] = h5py.SoftLink("/frame/table")
    file["loop"] = h5py.SoftLink("/loop")


def column_elsewhere(file):
    file["counts"] = np.full(len(STARTS) - 1, 9)
    file["doc_bytes"] = h5py.SoftLink("/counts")


def labels_elsewhere(file):
    file["groups/genre"] = np.zeros(len(STARTS) - 1, "i4")
    file["labels"] = h5py.SoftLink("/groups")


def many_attributes(file):
    dataset = file.create_dataset("extra", (1,), dtype="u1", track_order=True)
    for k in range(5000):
        dataset.attrs["a%d" % k] = np.uint8(1)


def vlen_names(file):
    file["doc_id"] = ["variable", "length", "text", "by", "h5py"]


# ---- tokenizers


def letters():
    """The 256 characters that stand for bytes in GPT-2's vocabulary."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    names, more = {}, 0
    for byte in range(256):
        names[byte] = chr(byte if byte in plain else 256 + more)
        more += byte not in plain
    return [names[byte] for byte in range(256)]


def tokenizer(vocab=None, merges=(), text=None):
    """A byte-level BPE tokenizer.json; `vocab` adds to the 256 letters and <|endoftext|>."""
    def make(path):
        base = {letter: k for k, letter in enumerate(letters())}
        base.update(vocab if vocab is not None else {"aa": 256})
        size = max([v for v in base.values() if isinstance(v, int)] + [255]) + 1 if vocab is None else 257
        document = {"version": "1.0", "truncation": None, "padding": None,
                    "added_tokens": [{"id": size, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False,
                                      "normalized": True, "special": True}],
                    "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                    "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                              "fuse_unk": False, "byte_fallback": False, "vocab": base, "merges": list(merges)}}
        data = json.dumps(document, ensure_ascii=False).encode()
        put(path, text(data) if text else data)
    return make


def steps(change):
    """A Unigram tokenizer.json of nine pieces, with `change` made to it."""
    def make(path):
        document = {"version": "1.0", "truncation": None, "padding": None,
                    "added_tokens": [{"id": k, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                                      "special": True} for k, name in enumerate(["<pad>", "</s>", "<unk>"])],
                    "normalizer": {"type": "NFKC"}, "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"},
                    "post_processor": None, "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"},
                    "model": {"type": "Unigram", "unk_id": 2, "byte_fallback": False,
                              "vocab": [["<pad>", 0], ["</s>", 0], ["<unk>", 0]] + [[c, -2 - k] for k, c in enumerate("\u2581abcde")]}}
        change(document)
        put(path, json.dumps(document).encode())
    return make


def charsmap(trie_bytes, units, texts):
    """A "Precompiled" normalizer that tells `trie_bytes` of trie."""
    blob = struct.pack("<I", trie_bytes) + struct.pack(f"<{len(units)}I", *units) + texts
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(blob).decode()}


def doubling(path):
    """aa, aaaa, aaaaaaaa...: merges that a careless encoder does in quadratic time."""
    names = ["a" * 2**k for k in range(1, 12)]
    tokenizer({name: 256 + k for k, name in enumerate(names)}, [f"{'a' * 2**k} {'a' * 2**k}" for k in range(11)],
              text=lambda data: data.replace(b'"id": 257', b'"id": %d' % (256 + len(names))))(path)


# ---- Hugging Face folders


GPT2 = {"wte.weight": (11, 8), "wpe.weight": (6, 8), "ln_f.weight": (8,), "ln_f.bias": (8,), "h.0.ln_1.weight": (8,), "h.0.ln_1.bias": (8,),
        "h.0.attn.c_attn.weight": (8, 24), "h.0.attn.c_attn.bias": (24,), "h.0.attn.c_proj.weight": (8, 8), "h.0.attn.c_proj.bias": (8,),
        "h.0.ln_2.weight": (8,), "h.0.ln_2.bias": (8,), "h.0.mlp.c_fc.weight": (8, 32), "h.0.mlp.c_fc.bias": (32,),
        "h.0.mlp.c_proj.weight": (32, 8), "h.0.mlp.c_proj.bias": (8,)}
CONFIG = {"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 2, "n_positions": 6, "vocab_size": 11}


def header(change=None):
    """The tensors of a small GPT-2, side by side; `change` alters the dictionary. Returns it and the data's length."""
    at, tensors = 0, {}
    for name, shape in GPT2.items():
        size = 4
        for extent in shape:
            size *= extent
        tensors[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    if change:
        change(tensors)
    return tensors, at


def hf(change=None, config=None, length=None, text=None, rest=b"", index=None):
    """A folder; `text` replaces the header's JSON, `length` the length before it."""
    def make(path):
        os.makedirs(path)
        with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
            json.dump(dict(CONFIG, **(config or {})), file)
        tensors, size = header(change)
        data = json.dumps(tensors).encode() if text is None else text(json.dumps(tensors)).encode()
        put(os.path.join(path, "model.safetensors"),
            struct.pack("<Q", len(data) if length is None else length(len(data))) + data + bytes(size) + rest)
        if index is not None:
            os.rename(os.path.join(path, "model.safetensors"), os.path.join(path, "model-1.safetensors"))
            with open(os.path.join(path, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
                json.dump({"weight_map": {name: index for name in GPT2}}, file)
    return make


def set_(name, **values):
    return lambda tensors: tensors[name].update(values)


def shift(name, first, last):
    """Move a tensor's place."""
    def change(tensors):
        places = tensors[name]["data_offsets"]
        tensors[name]["data_offsets"] = [places[0] + first, places[1] + last]
    return change


def add(name, **values):
    return lambda tensors: tensors.__setitem__(name, values)


def many(tensors):
    for k in range(1000000):
        tensors["t%d" % k] = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}


# ---- a plugin that tells when it is loaded


def spy_plugin(folder, marker):
    """A shared library in `folder` that makes the file `marker` when it is loaded; False without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return False
    source = os.path.join(folder, "spy.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write('#include <fcntl.h>\n__attribute__((constructor)) static void tell(void) { (void)!open("%s", O_CREAT | O_WRONLY, 0600); }\n'
                   % marker)
    return subprocess.run([compiler, "-shared", "-fPIC", "-o", os.path.join(folder, "libspy.so"), source], check=False).returncode == 0


def some_bytes(count, seed=5):
    return random.Random(seed).randbytes(count)
