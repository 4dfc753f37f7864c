"""A fresh model has gains of 1, biases of 0 and small tables, which hide mistakes: `perturbed` makes a folder whose tensors are all random."""
import os
import shutil

import numpy

from t5_numpy import read_tensors, write_tensors


def perturbed(folder, out, seed=1, by=0.3):
    """A copy of a Hugging Face folder with noise on every value: its tensors, as they then are."""
    draw = numpy.random.default_rng(seed)
    shutil.copytree(folder, out)
    write_tensors(out, {name: values + by * draw.standard_normal(values.shape) for name, values in read_tensors(folder).items()})
    assert os.path.exists(os.path.join(out, "config.json"))
    return read_tensors(out)
