"""h5py on a corpus of ours: read_ours.py CORPUS DUMP COPY

Compares /tokens with DUMP (the same tokens as raw uint32), checks the document columns against each other, every
checksum that can be checked without xxHash, and writes COPY: a foreign's corpus with the same content, its tokens
compressed by the same filter."""
import sys

import h5py
import numpy as np

source = h5py.File(sys.argv[1], "r")
tokens = source["tokens"]
assert tokens.chunks == (65536,), tokens.chunks
assert tokens.dtype == (np.uint16 if source.attrs["vocab_size"] < 65536 else np.uint32)
assert dict(tokens._filters) == {"32015": (3,)}, tokens._filters
values = tokens[:]
assert np.array_equal(values, np.fromfile(sys.argv[2], dtype="<u4")), "other tokens"
assert source.userblock_size == 512

starts = source["doc_start"][:]
documents = len(starts) - 1
assert starts.dtype == np.uint64 and starts[0] == 0 and starts[-1] == len(values)
assert np.all(np.diff(starts.astype(np.int64)) >= 0)
for name in ("doc_bytes", "doc_words", "doc_words_split", "doc_id", "labels/genre"):
    assert len(source[name]) == documents, name
eod = source.attrs["eod_id"]
assert np.all(values[starts[1:].astype(np.int64) - 1] == eod), "no end of document"
assert source["doc_id"].dtype.kind == "S" and source["doc_id"][7] == b"document-7"
assert h5py.check_string_dtype(source["doc_id"].dtype).encoding == "utf-8"
genres = [name.decode("utf-8") for name in source["label_names/genre"][:]]
assert source["labels/genre"].dtype == np.uint32
assert [genres[code] for code in source["labels/genre"][:6]] == ["news", "", "fiction", "\u00e9tude",
                                                                   "a longer name of a genre", "news"]
assert source["source/files"][:].tolist() == [b"a.txt", b"b.txt"]

# rows of /checksums: where chunk k lies, how long it is
rows = source["checksums"][:]
with open(sys.argv[1], "rb") as raw:
    for k in range((len(values) + 65535) // 65536):
        mask, frame = tokens.id.read_direct_chunk((k * 65536,))
        raw.seek(int(rows[k, 0]))
        assert mask == 0 and raw.read(int(rows[k, 1])) == frame, "chunk %d" % k

with h5py.File(sys.argv[3], "w") as copy:
    copy.create_dataset("tokens", data=values, chunks=(10000,), compression=32015, compression_opts=(3,))
    for name in ("doc_start", "doc_bytes", "doc_words", "doc_words_split", "doc_id"):
        copy[name] = source[name][:]
    for label in source["labels"]:
        copy["labels/" + label] = source["labels/" + label][:]
        copy["label_names/" + label] = source["label_names/" + label][:]
    copy["source/tokenizer"] = source["source/tokenizer"][:]
    for name in ("vocab_size", "eod_id"):
        copy.attrs[name] = source.attrs[name]
