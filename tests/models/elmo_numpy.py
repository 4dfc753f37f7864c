"""ELMo in numpy, in float64, from a checkpoint's tensors: an oracle beside bagpipe's layers. Written after bilm-tf (Peters et al. 2018),
one word, one position, one filter at a time."""
import numpy

BEGIN_TEXT, END_TEXT, BEGIN_WORD, END_WORD, PADDING = 256, 257, 258, 259, 260


def characters_of(word):
    """50 numbers; the end-of-document token is None, and the unknown word is spelled as bilm-tf's."""
    inside = [END_TEXT] if word is None else list(word.replace("<unk>", "<UNK>").encode())[:48]
    out = [BEGIN_WORD, *inside, END_WORD]
    return out + [PADDING] * (50 - len(out))


def tensors_of_bilm(weights, options):
    """(tensors, sizes) with our names, of an open HDF5 file of bilm-tf and its options: matrices there are [in, out], gates i, j, f, o."""
    def gates(x):
        i, j, f, o = numpy.split(x, 4, axis=-1)
        return numpy.concatenate([i, f, j, o], axis=-1).T
    cnn, lstm = options["char_cnn"], options["lstm"]
    at = {name: weights[name][:].astype(numpy.float64) for name in names_of(weights)}
    out = {"char_embed": at["char_embed"]}
    for k, (width, count) in enumerate(cnn["filters"]):
        out[f"cnn.{k}.weight"], out[f"cnn.{k}.bias"] = at[f"CNN/W_cnn_{k}"].reshape(-1, count).T, at[f"CNN/b_cnn_{k}"]
        assert at[f"CNN/W_cnn_{k}"].shape == (1, width, cnn["embedding"]["dim"], count)
    for k in range(cnn["n_highway"]):
        for part in ("carry", "transform"):
            out[f"highway.{k}.{part}.weight"], out[f"highway.{k}.{part}.bias"] = at[f"CNN_high_{k}/W_{part}"].T, at[f"CNN_high_{k}/b_{part}"]
    if "CNN_proj/W_proj" in at:
        out["projection.weight"], out["projection.bias"] = at["CNN_proj/W_proj"].T, at["CNN_proj/b_proj"]
    for d, name in enumerate(("forward", "backward")):
        for k in range(lstm["n_layers"]):
            cell = f"RNN_{d}/RNN/MultiRNNCell/Cell{k}/LSTMCell/"
            kernel = gates(at[cell + "W_0"])
            out[f"{name}.{k}.input.weight"], out[f"{name}.{k}.hidden.weight"] = numpy.split(kernel, [lstm["projection_dim"]], axis=1)
            out[f"{name}.{k}.bias"] = gates(at[cell + "B"])
            if cell + "W_P_0" in at:
                out[f"{name}.{k}.projection.weight"] = at[cell + "W_P_0"].T
    if "softmax/W" in at:
        out["head"], out["head.bias"] = at["softmax/W"], at["softmax/b"]
    return out, {"char_filters": ",".join(f"{w}:{n}" for w, n in cnn["filters"]), "char_activation": cnn["activation"], "highway": cnn["n_highway"],
                 "layers": lstm["n_layers"], "cell_clip": lstm["cell_clip"], "projection_clip": lstm["proj_clip"],
                 "skip": lstm["use_skip_connections"]}


def names_of(group):
    """Of all datasets."""
    found = []
    group.visititems(lambda name, item: found.append(name) if hasattr(item, "shape") else None)
    return found


def logistic(x):
    return 1 / (1 + numpy.exp(-x))


class Lstm:
    """One layer of one direction, from the zero state on."""

    def __init__(self, tensors, name, clips, skips):
        self.t = {part: tensors[f"{name}.{part}"] for part in ("input.weight", "hidden.weight", "bias")}
        self.projection = tensors.get(f"{name}.projection.weight")
        self.clips, self.skips = clips, skips
        self.c = numpy.zeros(len(self.t["bias"]) // 4)
        self.h = numpy.zeros(self.t["hidden.weight"].shape[1])

    def step(self, x):
        i, f, j, o = (self.t["input.weight"] @ x + self.t["hidden.weight"] @ self.h + self.t["bias"]).reshape(4, -1)
        self.c = numpy.clip(logistic(f + 1) * self.c + logistic(i) * numpy.tanh(j), -self.clips[0], self.clips[0])
        self.h = logistic(o) * numpy.tanh(self.c)
        if self.projection is not None:
            self.h = numpy.clip(self.projection @ self.h, -self.clips[1], self.clips[1])
        return self.h + x if self.skips else self.h


class Elmo:
    def __init__(self, tensors, model, words):
        """The tensors and the "model" object of a checkpoint; the vocabulary's words in order of their ids."""
        self.t, self.model = tensors, model
        self.eod = words.index(None)
        self.characters = numpy.array([*(characters_of(word) for word in words), [BEGIN_WORD, BEGIN_TEXT, END_WORD] + 47 * [PADDING]])
        self.vectors = {}

    def convolved(self, characters):
        x, parts = self.t["char_embed"][characters], []
        for k, pair in enumerate(self.model["char_filters"].split(",")):
            width = int(pair.split(":")[0])
            windows = numpy.array([x[p:p + width].ravel() for p in range(len(characters) - width + 1)])
            values = (windows @ self.t[f"cnn.{k}.weight"].T + self.t[f"cnn.{k}.bias"]).max(axis=0)
            parts.append(numpy.tanh(values) if self.model["char_activation"] == "tanh" else numpy.maximum(values, 0))
        return numpy.concatenate(parts)

    def vector(self, word):
        if word not in self.vectors:
            x = self.convolved(self.characters[word])
            for k in range(self.model["highway"]):
                carry = logistic(self.t[f"highway.{k}.carry.weight"] @ x + self.t[f"highway.{k}.carry.bias"])
                transform = numpy.maximum(self.t[f"highway.{k}.transform.weight"] @ x + self.t[f"highway.{k}.transform.bias"], 0)
                x = carry * transform + (1 - carry) * x
            if "projection.weight" in self.t:
                x = self.t["projection.weight"] @ x + self.t["projection.bias"]
            self.vectors[word] = x
        return self.vectors[word]

    def direction(self, name):
        clips = self.model["cell_clip"], self.model["projection_clip"]
        layers = [Lstm(self.t, f"{name}.{k}", clips, k > 0 and self.model["skip"]) for k in range(self.model["layers"])]
        layers[0].begins = name == "forward"
        return layers

    def layers(self, line, direction):
        """[layers + 1][places][columns] of words in the order in which a direction reads them; it keeps its state. Between two texts the
        forward direction reads the begin of the next one, the backward direction the end of the one before."""
        out = []
        for word in line:
            x = self.vector(len(self.characters) - 1 if word == self.eod and direction[0].begins else word)
            out.append([x])
            for layer in direction:
                x = layer.step(x)
                out[-1].append(x)
        return numpy.array(out).swapaxes(0, 1)

    def states(self, text):
        """[layers + 1][words][2 columns]: what bilm-tf dumps of a sentence."""
        forward = self.layers([self.eod, *text], self.direction("forward"))[:, 1:]
        backward = self.layers([self.eod, *text[::-1]], self.direction("backward"))[:, :0:-1]
        return numpy.concatenate([forward, backward], axis=2)

    def logprobs(self, line, direction=None):
        """Of each word of a line but the first, given those before it."""
        states = self.layers(line[:-1], direction or self.direction("forward"))[-1]
        logits = states @ self.t["head"].T + self.t["head.bias"]
        logits -= logits.max(axis=1, keepdims=True)
        logits -= numpy.log(numpy.exp(logits).sum(axis=1, keepdims=True))
        return logits[numpy.arange(len(line) - 1), line[1:]]
