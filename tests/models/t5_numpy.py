"""T5 in float64, written down from its formulas: versions 1.0 and 1.1, and umT5, by the names of a folder of Hugging Face's."""
import json
import math
import os

import numpy


def read_tensors(folder):
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    return {name: numpy.frombuffer(data[slice(*about["data_offsets"])], "<f4").reshape(about["shape"]).astype(float) for name, about in head.items() if name != "__metadata__"}


def write_tensors(folder, tensors):
    head, data = {}, b""
    for name, values in tensors.items():
        head[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), len(data) + 4 * values.size]}
        data += values.astype("<f4").tobytes()
    text = json.dumps(head).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)


def bucket(behind, buckets, distance, two_sided):
    side, n = 0, max(behind, 0)
    if two_sided:
        buckets //= 2
        side, n = (0 if behind >= 0 else buckets), abs(behind)
    exact = buckets // 2
    if n < exact:
        return side + n
    return side + min(exact + int(math.log(n / exact) / math.log(distance / exact) * (buckets - exact)), buckets - 1)


class T5:
    def __init__(self, config, tensors):
        self.config, self.tensors = config, tensors

    def norm(self, name, x):
        return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + self.config["layer_norm_epsilon"]) * self.tensors[name + ".weight"]

    def attend(self, name, x, source, bias, causal, seen=None):
        heads, width = self.config["num_heads"], self.config["d_kv"]
        q, k, v = ((y @ self.tensors[f"{name}.{part}.weight"].T).reshape(-1, heads, width) for part, y in (("q", x), ("k", source), ("v", source)))
        scores = numpy.einsum("thd,shd->hts", q, k) + bias
        if causal:
            scores = numpy.where(numpy.tril(numpy.ones(scores.shape[1:], bool)), scores, -numpy.inf)
        scores[:, :, seen if seen else len(source):] = -numpy.inf
        weights = numpy.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return numpy.einsum("hts,shd->thd", weights, v).reshape(len(x), -1) @ self.tensors[name + ".o.weight"].T

    def bias(self, stack, size, layer=0):
        """Of a layer; but for umt5 the first layer's is that of all."""
        table = self.tensors[f"{stack}.block.{layer if self.config['model_type'] == 'umt5' else 0}.layer.0.SelfAttention.relative_attention_bias.weight"]
        numbers = [[bucket(t - s, self.config["relative_attention_num_buckets"], self.config["relative_attention_max_distance"], stack == "encoder") for s in range(size)] for t in range(size)]
        return table[numbers].transpose(2, 0, 1)

    def inner(self, name, x):
        if self.config["feed_forward_proj"] == "relu":
            return numpy.maximum(x @ self.tensors[name + ".wi.weight"].T, 0) @ self.tensors[name + ".wo.weight"].T
        gate = x @ self.tensors[name + ".wi_0.weight"].T
        gelu = gate / 2 * (1 + numpy.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate ** 3)))
        return (gelu * (x @ self.tensors[name + ".wi_1.weight"].T)) @ self.tensors[name + ".wo.weight"].T

    def stack(self, name, ids, source=None, seen=None):
        """seen: inputs of the encoder that are no padding; None: all. A decoder sees its own padding, as Hugging Face gives it no mask."""
        x = self.tensors["shared.weight"][ids]
        for k in range(self.config["num_layers" if source is None else "num_decoder_layers"]):
            layer, bias = f"{name}.block.{k}.layer.", self.bias(name, len(ids), k)
            y = self.norm(layer + "0.layer_norm", x)
            x = x + self.attend(layer + "0.SelfAttention", y, y, bias, source is not None, seen if source is None else None)
            if source is not None:
                x = x + self.attend(layer + "1.EncDecAttention", self.norm(layer + "1.layer_norm", x), source, 0, False, seen)
            last = layer + ("1" if source is None else "2")
            x = x + self.inner(last + ".DenseReluDense", self.norm(last + ".layer_norm", x))
        return self.norm(name + ".final_layer_norm", x)

    def logprobs(self, source, inputs):
        """[places][vocabulary], of the token behind each input of the decoder."""
        x = self.stack("decoder", inputs, self.stack("encoder", source))
        if self.config["tie_word_embeddings"]:
            logits = x * self.config["d_model"] ** -0.5 @ self.tensors["shared.weight"].T
        else:
            logits = x @ self.tensors["lm_head.weight"].T
        logits = logits - logits.max(-1, keepdims=True)
        return logits - numpy.log(numpy.exp(logits).sum(-1, keepdims=True))
