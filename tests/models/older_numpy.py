"""Older decoders of Hugging Face's folders, and Mamba 2, in numpy's float64, written from their formulas: LayerNorms with biases, learned positions, pairs that turn, ALiBi.

    names_and_shapes(config), logprobs(config, tensors, tokens): as those of decoders_numpy.py
"""
import numpy

# Of each kind: keys of the width, layers, heads and the inner width; what is before names, before a layer's, and the names of its parts.
KEYS = {"opt": ("hidden_size", "num_hidden_layers", "num_attention_heads", "ffn_dim"), "bloom": ("hidden_size", "n_layer", "n_head", None),
        "gpt_neox": ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"), "mamba2": ("hidden_size", "num_hidden_layers", "num_heads", None)}
LAYERS = {"opt": "model.decoder.layers.", "bloom": "transformer.h.", "gpt_neox": "gpt_neox.layers.", "mamba2": "backbone.layers."}
WORDS = {"opt": "model.decoder.embed_tokens", "bloom": "transformer.word_embeddings", "gpt_neox": "gpt_neox.embed_in", "openai-gpt": "transformer.tokens_embed", "mamba2": "backbone.embeddings"}
POSITIONS = {"opt": "model.decoder.embed_positions", "openai-gpt": "transformer.positions_embed", "gpt2": "transformer.wpe"}
NORMS = {"opt": ("self_attn_layer_norm", "final_layer_norm"), "bloom": ("input_layernorm", "post_attention_layernorm"), "gpt_neox": ("input_layernorm", "post_attention_layernorm")}
PARTS = {"opt": ("self_attn.out_proj", "fc1", "fc2"), "bloom": ("self_attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), "gptj": ("attn.out_proj", "mlp.fc_in", "mlp.fc_out"),
         "gpt_neox": ("attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h")}
FUSED = {"bloom": "self_attention.query_key_value", "gpt_neox": "attention.query_key_value"}
LAST = {"opt": "model.decoder.final_layer_norm", "gpt_neox": "gpt_neox.final_layer_norm", "mamba2": "backbone.norm_f"}
TURNED_ROWS = ("gpt2", "openai-gpt")  # Conv1D: weights are [in][out]
HEADS = {"gpt_neox": "embed_out"}


def sizes_of(config):
    """Width, layers, heads, inner width."""
    width, layers, heads, inner = (config.get(key) for key in KEYS.get(config["model_type"], ("n_embd", "n_layer", "n_head", "n_inner")))
    return width, layers, heads, inner or 4 * width


def is_tied(config):
    return config.get("tie_word_embeddings", config["model_type"] not in ("gptj", "gpt_neox", "mamba2"))


def is_post(config):
    return config["model_type"] == "openai-gpt" or not config.get("do_layer_norm_before", True)


def context_of(config):
    return config.get("max_position_embeddings", config.get("n_positions"))


def linear(config, name, rows, columns, bias=True):
    yield name + ".weight", (columns, rows) if config["model_type"] in TURNED_ROWS else (rows, columns)
    if bias:
        yield name + ".bias", (rows,)


def norm(name, width):
    yield from ((name + ".weight", (width,)), (name + ".bias", (width,)))


def mamba_sizes(config):
    """Of all heads, of B and C, heads, states, groups, taps."""
    inner, groups, N = config["num_heads"] * config["head_dim"], config["n_groups"], config["state_size"]
    return inner, 2 * groups * N, config["num_heads"], N, groups, config["conv_kernel"]


def mixer_names(config, at):
    (inner, bc, heads, _, _, taps), width = mamba_sizes(config), config["hidden_size"]
    yield at + "norm.weight", (width,)
    for name, shape in (("dt_bias", (heads,)), ("A_log", (heads,)), ("D", (heads,)), ("conv1d.weight", (inner + bc, 1, taps)), ("conv1d.bias", (inner + bc,)),
                        ("in_proj.weight", (2 * inner + bc + heads, width)), ("norm.weight", (inner,)), ("out_proj.weight", (width, inner))):
        yield f"{at}mixer.{name}", shape


def layer_names(config, at):
    kind, (C, _, _, inner) = config["model_type"], sizes_of(config)
    if kind == "mamba2":
        yield from mixer_names(config, at)
        return
    out, up, down = PARTS.get(kind, ("attn.c_proj", "mlp.c_fc", "mlp.c_proj"))
    for name in NORMS.get(kind, ("ln_1", "ln_2"))[:1 + (kind != "gptj")]:
        yield from norm(at + name, C)
    if kind in ("opt", "gptj"):
        for name in "kvq":
            yield from linear(config, f"{at}{'self_attn' if kind == 'opt' else 'attn'}.{name}_proj", C, C, kind == "opt")
    else:
        yield from linear(config, at + FUSED.get(kind, "attn.c_attn"), 3 * C, C)
    yield from (*linear(config, at + out, C, C, kind != "gptj"), *linear(config, at + up, inner, C), *linear(config, at + down, C, inner))


def names_and_shapes(config):
    kind, (C, layers, _, _), V = config["model_type"], sizes_of(config), config["vocab_size"]
    E = config.get("word_embed_proj_dim", C)
    yield WORDS.get(kind, "transformer.wte") + ".weight", (V, E)
    if kind in POSITIONS:
        yield POSITIONS[kind] + ".weight", (context_of(config) + 2 * (kind == "opt"), C)
    if E != C:
        yield from (("model.decoder.project_in.weight", (C, E)), ("model.decoder.project_out.weight", (E, C)))
    if kind == "bloom":
        yield from norm("transformer.word_embeddings_layernorm", C)
    for k in range(layers):
        yield from layer_names(config, f"{LAYERS.get(kind, 'transformer.h.')}{k}.")
    if kind == "mamba2":
        yield LAST[kind] + ".weight", (C,)
    elif not is_post(config):
        yield from norm(LAST.get(kind, "transformer.ln_f"), C)
    if not is_tied(config):
        yield HEADS.get(kind, "lm_head") + ".weight", (V, E)
        if kind == "gptj":
            yield "lm_head.bias", (V,)


# ---- numbers ----

def gelu_tanh(x):
    return 0.5 * x * (1 + numpy.tanh(numpy.sqrt(2 / numpy.pi) * (x + 0.044715 * x ** 3)))


def gelu_erf(x):
    from math import erf
    return 0.5 * x * (1 + numpy.vectorize(erf)(x / 2 ** 0.5))


def slopes(n):
    """Of ALiBi, for any number of heads."""
    m = 2 ** int(numpy.log2(n))
    return numpy.array([2.0 ** (-8 * (h + 1) / m) for h in range(m)] + [2.0 ** (-4 * (2 * h + 1) / m) for h in range(n - m)])


class Decoder:
    def __init__(self, config, tensors):
        self.config, self.kind, self.w = config, config["model_type"], {name: numpy.asarray(value, numpy.float64) for name, value in tensors.items()}
        self.C, self.layers, self.heads, _ = sizes_of(config)
        self.eps = config.get("layer_norm_epsilon", config.get("layer_norm_eps", 1e-5))

    def linear(self, name, x):
        weight = self.w[name + ".weight"]
        return x @ (weight if self.kind in TURNED_ROWS else weight.T) + self.w.get(name + ".bias", 0)

    def norm(self, name, x):
        if self.kind == "mamba2":
            return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.w[name + ".weight"]
        centred = x - x.mean(-1, keepdims=True)
        return centred / numpy.sqrt((centred ** 2).mean(-1, keepdims=True) + self.eps) * self.w[name + ".weight"] + self.w[name + ".bias"]

    def turned(self, x):
        """Heads x [heads][T][d]: GPT-J pairs neighbours, GPT-NeoX halves."""
        d, config = x.shape[-1], self.config
        n = config["rotary_dim"] if self.kind == "gptj" else int(d * config["rotary_pct"])
        angle = numpy.arange(x.shape[1])[:, None] * config.get("rotary_emb_base", 10000.0) ** (-numpy.arange(0, n, 2) / n)
        first, second = (slice(0, n, 2), slice(1, n, 2)) if self.kind == "gptj" else (slice(0, n // 2), slice(n // 2, n))
        out, a, b = x.copy(), x[..., first], x[..., second]
        out[..., first], out[..., second] = a * numpy.cos(angle) - b * numpy.sin(angle), b * numpy.cos(angle) + a * numpy.sin(angle)
        return out

    def attention(self, at, x):
        T, kind = len(x), self.kind
        if kind in ("opt", "gptj"):
            q, k, v = (self.linear(f"{at}{'self_attn' if kind == 'opt' else 'attn'}.{name}_proj", x).reshape(T, self.heads, -1).transpose(1, 0, 2) for name in "qkv")
        elif kind in FUSED:
            q, k, v = self.linear(at + FUSED[kind], x).reshape(T, self.heads, 3, -1).transpose(2, 1, 0, 3)
        else:
            q, k, v = self.linear(at + "attn.c_attn", x).reshape(T, 3, self.heads, -1).transpose(1, 2, 0, 3)
        if kind in ("gptj", "gpt_neox"):
            q, k = self.turned(q), self.turned(k)
        scores, distance = q @ k.transpose(0, 2, 1) / q.shape[-1] ** 0.5, numpy.arange(T) - numpy.arange(T)[:, None]
        if kind == "bloom":
            scores = scores + slopes(self.heads)[:, None, None] * distance
        scores[:, distance > 0] = -numpy.inf
        p = numpy.exp(scores - scores.max(-1, keepdims=True))
        return self.linear(at + PARTS.get(kind, ("attn.c_proj",))[0], (p / p.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(T, -1))

    def mlp(self, at, x):
        _, up, down = PARTS.get(self.kind, ("", "mlp.c_fc", "mlp.c_proj"))
        act = {"opt": lambda y: numpy.maximum(y, 0), "gpt_neox": gelu_erf}.get(self.kind, gelu_tanh)
        return self.linear(at + down, act(self.linear(at + up, x)))

    def mixer(self, at, x):
        """The recurrence, place by place."""
        (inner, bc, heads, N, groups, taps), w = mamba_sizes(self.config), {name: self.w[f"{at}mixer.{name}"] for name in ("dt_bias", "A_log", "D")}
        z, mixed, dt = numpy.split(self.linear(at + "mixer.in_proj", x), [inner, 2 * inner + bc], -1)
        weight, out, state = self.w[at + "mixer.conv1d.weight"][:, 0], numpy.zeros((len(x), inner)), numpy.zeros((heads, inner // heads, N))
        for t in range(len(x)):
            seen = self.w[at + "mixer.conv1d.bias"] + sum(weight[:, taps - 1 - j] * mixed[t - j] for j in range(min(taps, t + 1)))
            seen = seen / (1 + numpy.exp(-seen))
            step = numpy.log1p(numpy.exp(dt[t] + w["dt_bias"]))
            own = seen[:inner].reshape(heads, -1)
            b, c = (numpy.repeat(part.reshape(groups, N), heads // groups, 0) for part in numpy.split(seen[inner:], 2))
            state = numpy.exp(-numpy.exp(w["A_log"]) * step)[:, None, None] * state + step[:, None, None] * own[:, :, None] * b[:, None]
            out[t] = ((state * c[:, None]).sum(-1) + w["D"][:, None] * own).reshape(-1)
        return self.linear(at + "mixer.out_proj", self.norm(at + "mixer.norm", out * z / (1 + numpy.exp(-z))))

    def layer(self, at, x):
        first, second = ("norm", None) if self.kind == "mamba2" else (at + name for name in NORMS.get(self.kind, ("ln_1", "ln_2")))
        if self.kind == "mamba2":
            return x + self.mixer(at, self.norm(at + first, x))
        if self.kind == "gptj":
            y = self.norm(first, x)
            return x + self.attention(at, y) + self.mlp(at, y)
        if self.kind == "gpt_neox" and self.config.get("use_parallel_residual", True):
            return x + self.attention(at, self.norm(first, x)) + self.mlp(at, self.norm(second, x))
        if is_post(self.config):
            x = self.norm(first, x + self.attention(at, x))
            return self.norm(second, x + self.mlp(at, x))
        x = x + self.attention(at, self.norm(first, x))
        return x + self.mlp(at, self.norm(second, x))

    def states(self, tokens):
        x = self.w[WORDS.get(self.kind, "transformer.wte") + ".weight"][numpy.asarray(tokens)]
        if "model.decoder.project_in.weight" in self.w:
            x = self.linear("model.decoder.project_in", x)
        if self.kind in POSITIONS:
            first = 2 * (self.kind == "opt")
            x = x + self.w[POSITIONS[self.kind] + ".weight"][first:first + len(x)]
        if self.kind == "bloom":
            x = self.norm("transformer.word_embeddings_layernorm", x)
        for k in range(self.layers):
            x = self.layer(f"{LAYERS.get(self.kind, 'transformer.h.')}{k}.", x)
        x = x if is_post(self.config) else self.norm(LAST.get(self.kind, "transformer.ln_f"), x)
        return self.linear("model.decoder.project_out", x) if "model.decoder.project_out.weight" in self.w else x


def logprobs(config, tensors, tokens):
    model, tokens = Decoder(config, tensors), numpy.asarray(tokens)
    h = model.states(tokens[:-1])
    head = (WORDS.get(model.kind, "transformer.wte") if is_tied(config) else HEADS.get(model.kind, "lm_head")) + ".weight"
    logits = h @ model.w[head].T + model.w.get("lm_head.bias", 0)
    logits -= logits.max(-1, keepdims=True)
    return (logits - numpy.log(numpy.exp(logits).sum(-1, keepdims=True)))[numpy.arange(len(h)), tokens[1:]]
