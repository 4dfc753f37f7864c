"""A corpus as another reader sees it: h5py with the zstd filter of this build."""
import os

import bagpipe_test


def read_corpus(path):
    """Its documents as lists of ids, their ids, and the attributes."""
    os.environ.setdefault("HDF5_PLUGIN_PATH", os.path.join(bagpipe_test.options["bin"], "..", "plugin"))
    import h5py  # reads the path of plugins when it is loaded
    with h5py.File(path) as corpus:
        tokens, start = corpus["tokens"][:].tolist(), corpus["doc_start"][:].tolist()
        ids = [name.decode() for name in corpus["doc_id"][:]] if "doc_id" in corpus else None
        sources = {name: [text.decode() for text in data[:]] for name, data in corpus["source"].items() if data.dtype.kind == "S"}
        return [tokens[a:b] for a, b in zip(start, start[1:])], ids, dict(corpus.attrs), sources
