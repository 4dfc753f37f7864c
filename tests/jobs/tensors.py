"""The tensors of a checkpoint, read as docs/formats.md describes it, in float64."""
import os

import h5py
import numpy

from bagpipe_test import read_json


def tensors_of(step):
    out = {}
    for tensor in read_json(step, "manifest.json")["tensors"]:
        whole = numpy.zeros(tensor["shape"])
        for piece in tensor["pieces"]:
            with h5py.File(os.path.join(step, piece["file"])) as file:
                place = tuple(slice(o, o + e) for o, e in zip(piece["offset"], piece["extent"]))
                whole[place] = numpy.reshape(file[piece["dataset"]][:], piece["extent"])
        out[tensor["name"]] = whole
    return out
