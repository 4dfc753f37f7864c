"""Corpora as other programs write them with h5py: foreign.py FOLDER makes good ones (good-*.h5, all of the same
tokens and documents) and bad ones (bad-*.h5)."""
import os
import sys

import h5py
import numpy as np

FOLDER = sys.argv[1]
TOKENS = (np.arange(5000, dtype=np.int64) * 7919 + 13) % 120
TOKENS[999::1000] = 120  # the end of each of five documents
STARTS = np.arange(0, 5001, 1000, dtype=np.int64)


def corpus(name, tokens=None, starts=None, dtype="u2", vocab_size=121, eod_id=120, **storage):
    """One file; `storage` goes to h5py's create_dataset. Left open, for more to be added."""
    file = h5py.File(os.path.join(FOLDER, name + ".h5"), "w")
    if tokens is None:
        tokens = TOKENS
    if tokens is not False:
        file.create_dataset("tokens", data=np.asarray(tokens).astype(dtype), **storage)
    if starts is None:
        starts = STARTS
    if starts is not False:
        file["doc_start"] = starts
    if vocab_size is not None:
        file.attrs["vocab_size"] = vocab_size
    if eod_id is not None:
        file.attrs["eod_id"] = eod_id
    return file


STORAGES = {"none": {}, "gzip": {"compression": "gzip"}, "lzf": {"compression": "lzf"}, "zstd": {"compression": 32015},
            "gzip-sum": {"compression": "gzip", "shuffle": True, "fletcher32": True},
            "shuffle": {"shuffle": True}, "zstd-shuffle": {"compression": 32015, "shuffle": True}}


def other_length(name, storage, length, dataset="tokens", chunk=2):
    """A corpus of which one chunk holds `length` values, and not as many as the dataset says."""
    values, size = (TOKENS.astype("u2"), 1000) if dataset == "tokens" else (STARTS, 2)
    with h5py.File("memory", "w", driver="core", backing_store=False) as memory:
        donor = memory.create_dataset("x", data=np.resize(values, length), chunks=(length,), **storage)
        memory.flush()
        mask, stored = donor.id.read_direct_chunk((0,))
    with corpus(name, tokens=False if dataset == "tokens" else None, starts=None if dataset == "tokens" else False) as file:
        target = file.create_dataset(dataset, data=values, chunks=(size,), **storage)
        target.id.write_direct_chunk((chunk * size,), stored, mask)


def without_filter():
    """One chunk is stored without the filter, as its mask says."""
    with corpus("good-mask", tokens=False) as file:
        target = file.create_dataset("tokens", data=TOKENS.astype("u2"), chunks=(1000,), compression="gzip")
        target.id.write_direct_chunk((2000,), TOKENS[2000:3000].astype("u2").tobytes(), 1)


def good():
    for dtype in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">u2", ">i8"):
        corpus("good-" + dtype.replace(">", "big"), dtype=dtype).close()
    corpus("good-chunked", chunks=(300,)).close()
    corpus("good-gzip", chunks=(300,), compression="gzip").close()
    corpus("good-shuffle", dtype="i8", chunks=(1000,), compression="gzip", shuffle=True, fletcher32=True).close()
    corpus("good-lzf", chunks=(1000,), compression="lzf").close()
    corpus("good-lzf-shuffle", dtype="i4", chunks=(999,), compression="lzf", shuffle=True).close()
    corpus("good-zstd", chunks=(1000,), compression=32015).close()
    corpus("good-zstd-level", dtype="i4", chunks=(700,), compression=32015, compression_opts=(9,), shuffle=True).close()
    corpus("good-one-chunk", chunks=(100000,), maxshape=(None,), compression="lzf").close()
    corpus("good-latest", chunks=(300,)).close()
    without_filter()
    with h5py.File(os.path.join(FOLDER, "good-libver.h5"), "w", libver="latest") as file:
        file.create_dataset("tokens", data=TOKENS.astype("u2"), chunks=(300,), maxshape=(None,))
        file.create_dataset("doc_start", data=STARTS.astype("u4"), chunks=(2,), compression="gzip")
        file.attrs["vocab_size"] = np.array([121], dtype="u1")
        file.attrs["eod_id"] = np.int16(120)
    with corpus("good-all") as file:
        file.attrs["tokenizer_hash"] = "ab" * 32  # h5py writes variable-length text
        file["doc_bytes"] = np.arange(5) * 100
        file["doc_words"] = np.arange(5, dtype="u2") * 10
        file["doc_id"] = np.array([b"one", b"two", b"three", b"four", b"five"])
        file["labels/genre"] = np.array([0, 1, 0, 1, 1], dtype="u1")
        file["label_names/genre"] = np.array([b"news", b"fiction"])
        file["something"] = ["else", "of", "variable", "length"]  # nobody reads it


def links(name, make):
    with corpus("bad-" + name, tokens=False) as file:
        make(file)


def virtual(file):
    layout = h5py.VirtualLayout(shape=(5000,), dtype="u2")
    layout[:] = h5py.VirtualSource(os.path.join(FOLDER, "good-u2.h5"), "tokens", shape=(5000,))
    file.create_virtual_dataset("tokens", layout)


def external_storage(file):
    space = h5py.h5s.create_simple((5000,))
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_external(b"/etc/passwd", 0, 5000 * 2)
    h5py.h5d.create(file.id, b"tokens", h5py.h5t.STD_U16LE, space, creation)


def bad():
    for name, storage in STORAGES.items():
        other_length(f"bad-{name}-short", storage, 600)
        other_length(f"bad-{name}-long", storage, 1400)
    other_length("bad-starts-short", {"compression": "gzip"}, 1, "doc_start")
    other_length("bad-starts-long", {"compression": "gzip"}, 3, "doc_start", 1)
    tokens = TOKENS.copy()
    tokens[4321] = 121
    corpus("bad-beyond", tokens=tokens).close()
    tokens[4321] = -1
    corpus("bad-negative", tokens=tokens, dtype="i4").close()
    tokens = TOKENS.astype("u8")
    tokens[17] = 2**64 - 1
    corpus("bad-huge", tokens=tokens, dtype="u8").close()
    corpus("bad-unsorted", starts=[0, 2000, 1000, 3000, 4000, 5000]).close()
    corpus("bad-start", starts=[5, 2000, 5000]).close()
    corpus("bad-end", starts=[0, 2000, 5001]).close()
    corpus("bad-short", starts=[0, 2000, 4999]).close()
    corpus("bad-no-starts", starts=np.zeros(0, "i8")).close()
    corpus("bad-real-starts", starts=STARTS.astype("f8")).close()
    corpus("bad-no-tokens", tokens=False).close()
    corpus("bad-no-doc-start", starts=False).close()
    corpus("bad-no-vocab", vocab_size=None).close()
    corpus("bad-vocab", vocab_size=0).close()
    corpus("bad-vocab-text", vocab_size="121").close()
    corpus("bad-eod", eod_id=121).close()
    corpus("bad-reals", dtype="f4").close()
    corpus("bad-2d", tokens=TOKENS.reshape(50, 100)).close()
    corpus("bad-filter", dtype="i4", chunks=(300,), scaleoffset=4).close()
    links("soft", lambda file: file.__setitem__("tokens", h5py.SoftLink("/doc_start")))
    links("loop", lambda file: file.__setitem__("tokens", h5py.SoftLink("/tokens")))
    links("external-link",
          lambda file: file.__setitem__("tokens", h5py.ExternalLink(os.path.join(FOLDER, "good-u2.h5"), "tokens")))
    links("group", lambda file: file.create_group("tokens"))
    links("type", lambda file: file.__setitem__("tokens", np.dtype("u2")))
    links("virtual", virtual)
    links("external-storage", external_storage)
    links("vlen", lambda file: file.create_dataset("tokens", (5,), dtype=h5py.vlen_dtype("u2")))
    links("text", lambda file: file.create_dataset("tokens", data=np.array([b"a", b"b"])))
    links("absurd", lambda file: file.create_dataset("tokens", (2**60,), dtype="u2", chunks=(2**20,)))
    links("unwritten", lambda file: file.create_dataset("tokens", (2**40,), dtype="u2"))
    links("half", lambda file: file.create_dataset("tokens", (5000,), dtype="u2", chunks=(1000,)).write_direct(
        TOKENS[:2000].astype("u2"), dest_sel=np.s_[:2000]))
    links("chunk", lambda file: file.create_dataset("tokens", (2**29,), dtype="u2", chunks=(2**29,)))
    links("unknown-filter", unknown_filter)
    for name, column in (("bytes", "doc_bytes"), ("words", "doc_words")):
        with corpus("bad-" + name) as file:
            file[column] = np.arange(4)
    with corpus("bad-soft-column") as file:
        file["doc_bytes"] = h5py.SoftLink("/doc_start")
    with corpus("bad-soft-labels") as file:
        file["labels"] = h5py.SoftLink("/elsewhere")
    with corpus("bad-ids") as file:
        file["doc_id"] = ["variable", "length", "text", "by", "h5py"]
    with corpus("bad-label") as file:
        file["labels/genre"] = np.array([0, 1, 2, 1, 1])
        file["label_names/genre"] = np.array([b"news", b"fiction"])
    with corpus("bad-label-names") as file:
        file["labels/genre"] = np.array([0, 1, 0, 1, 1])


def unknown_filter(file):
    """Filter 32099, which no one here has: the chunk is written raw."""
    space = h5py.h5s.create_simple((1000,))
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_chunk((1000,))
    creation.set_filter(32099, h5py.h5z.FLAG_OPTIONAL, ())
    dataset = h5py.h5d.create(file.id, b"tokens", h5py.h5t.STD_U16LE, space, creation)
    dataset.write_direct_chunk((0,), bytes(2000))


good()
bad()
