"""Recurrent language models in numpy, in float64, from an exported folder: an oracle beside bagpipe's layers."""
import json
import os
import struct

import numpy

GATES = {"rnn": 1, "lstm": 4, "gru": 3}


def tensors_of(folder):
    """The tensors of a folder's model.safetensors."""
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    head = json.loads(data[8:8 + length])
    out = {}
    for name, entry in head.items():
        if name == "__metadata__":
            continue
        first, end = entry["data_offsets"]
        out[name] = numpy.frombuffer(data[8 + length + first:8 + length + end], "<f4").reshape(entry["shape"]).astype(numpy.float64)
    return out


def logistic(x):
    return 1 / (1 + numpy.exp(-x))


OPERATIONS = {"none": lambda h: None, "tanh": numpy.tanh, "relu": lambda h: numpy.maximum(h, 0), "sigmoid": logistic, "identity": lambda h: h}


def bypass(s, sums, operation):
    """DARTS' node: what an operation makes of a state, past which the state may go."""
    c, h = numpy.split(sums, 2)
    h = OPERATIONS[operation](h)
    return s * 0 if h is None else s + logistic(c) * (h - s)


class Recurrent:
    """step(token) gives log p of all tokens that may follow; a new object has the zero state."""

    def __init__(self, folder):
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        self.kind, self.layers, self.width = config["model_type"], config["num_layers"], config["hidden_size"]
        self.cell = [(word, int(reads)) for word, reads in (node.split(":") for node in config.get("cell", "").split(",") if node)]
        self.tensors = tensors_of(folder)
        self.reset()

    def reset(self):
        self.h = numpy.zeros((self.layers, self.width))
        self.c = numpy.zeros((self.layers, self.width))

    def layer(self, k, x):
        t, H = self.tensors, self.width
        if self.kind == "cell":
            nodes = [bypass(self.h[k], t[f"rnn.weight_ih_l{k}"] @ x + t[f"rnn.weight_hh_l{k}"] @ self.h[k], "tanh")]
            weights = t[f"rnn.weight_nodes_l{k}"].reshape(len(self.cell), 2 * H, H)
            for weight, (operation, reads) in zip(weights, self.cell, strict=True):
                nodes.append(bypass(nodes[reads], weight @ nodes[reads], operation))
            self.h[k] = numpy.mean(nodes[1:], axis=0)
            return self.h[k]
        a = t[f"rnn.weight_ih_l{k}"] @ x + t[f"rnn.bias_ih_l{k}"]
        u = t[f"rnn.weight_hh_l{k}"] @ self.h[k] + t[f"rnn.bias_hh_l{k}"]
        if self.kind == "rnn":
            self.h[k] = numpy.tanh(a + u)
        elif self.kind == "lstm":
            i, f, g, o = (a + u).reshape(4, H)
            self.c[k] = logistic(f) * self.c[k] + logistic(i) * numpy.tanh(g)
            self.h[k] = logistic(o) * numpy.tanh(self.c[k])
        else:
            r, z = logistic(a[:H] + u[:H]), logistic(a[H:2 * H] + u[H:2 * H])
            n = numpy.tanh(a[2 * H:] + r * u[2 * H:])
            self.h[k] = (1 - z) * n + z * self.h[k]
        return self.h[k]

    def step(self, token):
        x = self.tensors["encoder.weight"][token]
        for k in range(self.layers):
            x = self.layer(k, x)
        logits = self.tensors.get("decoder.weight", self.tensors["encoder.weight"]) @ x + self.tensors["decoder.bias"]
        most = logits.max()
        return logits - most - numpy.log(numpy.exp(logits - most).sum())

    def logprobs(self, line):
        """Of each token of a line but the first, given all before it."""
        self.reset()
        return numpy.array([self.step(a)[b] for a, b in zip(line[:-1], line[1:])])
