"""BART and its relatives (mbart, marian, m2m_100) in numpy's float64, written from their formulas, from folders of Hugging Face's names.

    names_and_shapes(config): the tensors of a folder; states(config, tensors, source, inputs): of the decoder, before any head;
    logprobs(config, tensors, source, inputs): [places][vocabulary], of the token behind each input of the decoder
"""
import math

import numpy

LEARNED, PRE_NORM, EMBEDDING_NORM = ("bart", "mbart"), ("mbart", "m2m_100"), ("bart", "mbart")
erf = numpy.vectorize(math.erf)


def silu(x):
    return x / (1 + numpy.exp(-x))


ACTIVATIONS = {"gelu": lambda x: x * (1 + erf(x / math.sqrt(2))) / 2, "relu": lambda x: numpy.maximum(x, 0), "swish": silu, "silu": silu,
               "gelu_new": lambda x: x / 2 * (1 + numpy.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))}


def head_of(config):
    return config["architectures"][0].partition("For")[2]


def names_and_shapes(config):
    kind, C, inner = config["model_type"], config["d_model"], config["encoder_ffn_dim"]
    if head_of(config) not in ("SequenceClassification", "QuestionAnswering") and kind != "m2m_100":
        yield "final_logits_bias", (1, config["vocab_size"])
    yield "model.shared.weight", (config["vocab_size"], C)
    for stack in ("encoder", "decoder"):
        if kind in LEARNED:
            yield f"model.{stack}.embed_positions.weight", (config["max_position_embeddings"] + 2, C)
        norms = [f"model.{stack}.layernorm_embedding"] * (kind in EMBEDDING_NORM) + [f"model.{stack}.layer_norm"] * (kind in PRE_NORM)
        for k in range(config[stack + "_layers"]):
            at = f"model.{stack}.layers.{k}."
            for part in ("self_attn", "encoder_attn")[:1 + (stack == "decoder")]:
                for name in "kvq":
                    yield from ((f"{at}{part}.{name}_proj.weight", (C, C)), (f"{at}{part}.{name}_proj.bias", (C,)))
                yield from ((f"{at}{part}.out_proj.weight", (C, C)), (f"{at}{part}.out_proj.bias", (C,)))
                norms.append(f"{at}{part}_layer_norm")
            yield from ((at + "fc1.weight", (inner, C)), (at + "fc1.bias", (inner,)), (at + "fc2.weight", (C, inner)), (at + "fc2.bias", (C,)))
            norms.append(at + "final_layer_norm")
        for name in norms:
            yield from ((name + ".weight", (C,)), (name + ".bias", (C,)))
    if head_of(config) == "SequenceClassification":
        outcomes = len(config["id2label"])
        yield from (("classification_head.dense.weight", (C, C)), ("classification_head.dense.bias", (C,)), ("classification_head.out_proj.weight", (outcomes, C)),
                    ("classification_head.out_proj.bias", (outcomes,)))
    if head_of(config) == "QuestionAnswering":
        yield from (("qa_outputs.weight", (2, C)), ("qa_outputs.bias", (2,)))


class Model:
    def __init__(self, config, tensors):
        self.config, self.tensors, self.kind = config, {name: numpy.asarray(value, float) for name, value in tensors.items()}, config["model_type"]

    def linear(self, name, x):
        return x @ self.tensors[name + ".weight"].T + self.tensors[name + ".bias"]

    def norm(self, name, x):
        centred = x - x.mean(-1, keepdims=True)
        return centred / numpy.sqrt((centred ** 2).mean(-1, keepdims=True) + 1e-5) * self.tensors[name + ".weight"] + self.tensors[name + ".bias"]

    def sines(self, n):
        C = self.config["d_model"]
        places, half = numpy.arange(n)[:, None], C // 2
        if self.kind == "marian":
            angle = places * 10000.0 ** (-2 * numpy.arange(half) / C)
        else:
            angle = (places + self.config["pad_token_id"] + 1) * numpy.exp(-math.log(10000) * numpy.arange(half) / (half - 1))
        return numpy.concatenate([numpy.sin(angle), numpy.cos(angle)], -1)

    def attend(self, name, x, source, causal):
        heads, n = self.config["encoder_attention_heads"], len(x)
        q, k, v = (self.linear(f"{name}.{part}_proj", y).reshape(len(y), heads, -1).transpose(1, 0, 2) for part, y in (("q", x), ("k", source), ("v", source)))
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        if causal:
            scores[:, numpy.arange(n)[:, None] < numpy.arange(n)] = -numpy.inf
        p = numpy.exp(scores - scores.max(-1, keepdims=True))
        return self.linear(name + ".out_proj", (p / p.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(x.shape))

    def branch(self, norm, x, function):
        """x + f(norm x), or norm(x + f(x))."""
        return x + function(self.norm(norm, x)) if self.kind in PRE_NORM else self.norm(norm, x + function(x))

    def words(self, stack, ids):
        """The inputs of "encoder" or "decoder"."""
        return self.tensors["model.shared.weight"][ids]

    def logprobs(self, source, inputs):
        logits = self.stack("decoder", inputs, self.stack("encoder", source)) @ self.tensors["model.shared.weight"].T + self.tensors.get("final_logits_bias", 0)
        logits = logits - logits.max(-1, keepdims=True)
        return logits - numpy.log(numpy.exp(logits).sum(-1, keepdims=True))

    def stack(self, stack, ids, source=None):
        config, scale = self.config, math.sqrt(self.config["d_model"]) if self.config.get("scale_embedding") else 1
        x = self.words(stack, ids) * scale
        x = x + (self.tensors[f"model.{stack}.embed_positions.weight"][2:2 + len(ids)] if self.kind in LEARNED else self.sines(len(ids)))
        x = self.norm(f"model.{stack}.layernorm_embedding", x) if self.kind in EMBEDDING_NORM else x
        for k in range(config[stack + "_layers"]):
            at = f"model.{stack}.layers.{k}."
            x = self.branch(at + "self_attn_layer_norm", x, lambda y, at=at: self.attend(at + "self_attn", y, y, source is not None))
            if source is not None:
                x = self.branch(at + "encoder_attn_layer_norm", x, lambda y, at=at: self.attend(at + "encoder_attn", y, source, False))
            x = self.branch(at + "final_layer_norm", x, lambda y, at=at: self.linear(at + "fc2", ACTIVATIONS[config["activation_function"]](self.linear(at + "fc1", y))))
        return self.norm(f"model.{stack}.layer_norm", x) if self.kind in PRE_NORM else x


def states(config, tensors, source, inputs):
    model = Model(config, tensors)
    return model.stack("decoder", inputs, model.stack("encoder", source))


def logprobs(config, tensors, source, inputs):
    return Model(config, tensors).logprobs(source, inputs)


def outcomes(config, tensors, ids):
    """Of a text that both halves read: logits of its classes, or of where an answer begins and ends [places][2]."""
    model, x = Model(config, tensors), states(config, tensors, ids, [config["decoder_start_token_id"]] + list(ids[:-1]))
    if head_of(config) == "QuestionAnswering":
        return model.linear("qa_outputs", x)
    return model.linear("classification_head.out_proj", numpy.tanh(model.linear("classification_head.dense", x[-1])))
