"""The tensors of a checkpoint, read as docs/formats.md describes it, in float64."""
import os

import h5py
import numpy

from bagpipe_test import read_json


def tensors_of(step):
    out = {}
    manifest = read_json(step, "manifest.json")
    for tensor in manifest["tensors"]:
        whole = numpy.zeros(tensor["shape"])
        dims = whole.ndim
        for piece in tensor["pieces"]:
            if isinstance(piece, list):
                piece = {"file": manifest["files"][piece[0]]["name"], "dataset": "/%s/p%d" % (tensor["name"], piece[1]),
                         "offset": piece[2:2 + dims], "extent": piece[2 + dims:]}
            with h5py.File(os.path.join(step, piece["file"])) as file:
                place = tuple(slice(o, o + e) for o, e in zip(piece["offset"], piece["extent"]))
                whole[place] = numpy.reshape(file[piece["dataset"]][:], piece["extent"])
        out[tensor["name"]] = whole
    return out
