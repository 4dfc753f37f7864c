"""Decoders of Hugging Face's folders in numpy's float64, written from their formulas: RMS norms, rotary positions, gated MLPs or experts.

    names_and_shapes(config): the tensors of a folder; states(config, tensors, tokens): what a head reads at each token;
    logprobs(config, tensors, tokens): log p of tokens[1:], each given those before it; balance(...): the balance loss of experts over tokens[:-1]
"""
import numpy

DEFAULT_HEADS = {"qwen3": 128, "gemma2": 256, "gemma3_text": 256}
EPSILON = {"olmo2": 1e-5, "olmoe": 1e-5, "mixtral": 1e-5, "phi3": 1e-5}
TIED = ("gemma2", "gemma3_text", "smollm3")
GEMMA = ("gemma2", "gemma3_text")
EXPERTS = ("mixtral", "olmoe", "qwen3_moe")


def head_width(config):
    return config.get("head_dim") or DEFAULT_HEADS.get(config["model_type"]) or config["hidden_size"] // config["num_attention_heads"]


def is_tied(config):
    return config.get("tie_word_embeddings", config["model_type"] in TIED)


def is_sparse(config, k):
    kind = config["model_type"]
    return kind in EXPERTS and not (kind == "qwen3_moe" and (k in config.get("mlp_only_layers", []) or (k + 1) % config.get("decoder_sparse_step", 1)))


def mlp_shapes(config, k):
    kind, width, inner = config["model_type"], config["hidden_size"], config["intermediate_size"]
    if is_sparse(config, k):
        before, names = ("block_sparse_moe.", ("w1", "w3", "w2")) if kind == "mixtral" else ("mlp.", ("gate_proj", "up_proj", "down_proj"))
        inner = config.get("moe_intermediate_size", inner)
        count = config.get("num_local_experts", config.get("num_experts"))
        yield before + "gate", (count, width)
        for e in range(count):
            for name, shape in zip(names, ((inner, width), (inner, width), (width, inner))):
                yield f"{before}experts.{e}.{name}", shape
    elif kind == "phi3":
        yield from (("mlp.gate_up_proj", (2 * inner, width)), ("mlp.down_proj", (width, inner)))
    else:
        yield from (("mlp.gate_proj", (inner, width)), ("mlp.up_proj", (inner, width)), ("mlp.down_proj", (width, inner)))


def norm_shapes(config):
    kind, width, d = config["model_type"], config["hidden_size"], head_width(config)
    heads, keys = config["num_attention_heads"], config.get("num_key_value_heads") or config["num_attention_heads"]
    after = ("post_attention_layernorm", "post_feedforward_layernorm")
    yield from ((name, width) for name in (("input_layernorm", "pre_feedforward_layernorm") + after if kind in GEMMA else after if kind == "olmo2"
                                           else ("input_layernorm", "post_attention_layernorm")))
    if kind in ("qwen3", "qwen3_moe", "gemma3_text"):
        yield from (("self_attn.q_norm", d), ("self_attn.k_norm", d))
    if kind in ("olmo2", "olmoe"):
        yield from (("self_attn.q_norm", heads * d), ("self_attn.k_norm", keys * d))


def names_and_shapes(config):
    kind, width, d = config["model_type"], config["hidden_size"], head_width(config)
    heads, keys = config["num_attention_heads"], config.get("num_key_value_heads") or config["num_attention_heads"]
    yield "model.embed_tokens.weight", (config["vocab_size"], width)
    for k in range(config["num_hidden_layers"]):
        layer = f"model.layers.{k}."
        if kind == "phi3":
            yield layer + "self_attn.qkv_proj.weight", ((heads + 2 * keys) * d, width)
        else:
            for name, rows in (("q", heads), ("k", keys), ("v", keys)):
                yield f"{layer}self_attn.{name}_proj.weight", (rows * d, width)
                if kind == "qwen2":
                    yield f"{layer}self_attn.{name}_proj.bias", (rows * d,)
        yield layer + "self_attn.o_proj.weight", (width, heads * d)
        for name, shape in mlp_shapes(config, k):
            yield f"{layer}{name}.weight", shape
        for name, size in norm_shapes(config):
            yield f"{layer}{name}.weight", (size,)
    yield "model.norm.weight", (width,)
    if not is_tied(config):
        yield "lm_head.weight", (config["vocab_size"], width)


# ---- positions ----

def rotary(config, kind_of_layer, length):
    """(frequencies, factor of cosines and sines) of a layer, for rows of this length."""
    kind = config["model_type"]
    given = config.get("rope_parameters") or {}
    given = given.get(kind_of_layer, given)
    scaling = given or config.get("rope_scaling") or {}
    theta = given.get("rope_theta") or config.get("rope_theta") or {"mixtral": 1e6, "smollm3": 2e6, "gemma3_text": 1e6}.get(kind, 1e4)
    if kind == "gemma3_text" and kind_of_layer == "sliding_attention":
        scaling, theta = {}, given.get("rope_theta") or config.get("rope_local_base_freq", 1e4)
    d = int(head_width(config) * (config.get("partial_rotary_factor") or 1 if kind == "phi3" else 1))
    powers, most = numpy.arange(0, d, 2) / d, config["max_position_embeddings"]
    plain, name = theta ** -powers, scaling.get("rope_type", scaling.get("type", "default"))
    old = scaling.get("original_max_position_embeddings") or config.get("original_max_position_embeddings") or most
    if name == "linear":
        return plain / scaling["factor"], 1
    if name == "dynamic":
        return (theta * (scaling["factor"] * max(length, most) / most - (scaling["factor"] - 1)) ** (d / (d - 2))) ** -powers, 1
    if name == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        s = numpy.clip((old * plain / (2 * numpy.pi) - low) / (high - low), 0, 1)
        return plain * (s + (1 - s) / scaling["factor"]), 1
    if name == "yarn":
        factor = scaling.get("factor") or most / old
        edges = [d * numpy.log(old / (2 * numpy.pi * scaling.get(key, turns))) / (2 * numpy.log(theta)) for key, turns in (("beta_fast", 32), ("beta_slow", 1))]
        low, high = (numpy.floor(edges[0]), numpy.ceil(edges[1])) if scaling.get("truncate", True) else edges
        low, high = max(low, 0), min(high, d - 1)
        ramp = numpy.clip((numpy.arange(d // 2) - low) / (high - low if high != low else 0.001), 0, 1)
        scale = [0.1 * m * numpy.log(factor) + 1 if factor > 1 else 1 for m in (1, scaling.get("mscale"), scaling.get("mscale_all_dim")) if m]
        return plain * (1 - ramp) + plain / factor * ramp, scaling.get("attention_factor") or (scale[1] / scale[2] if len(scale) == 3 else scale[0])
    if name in ("longrope", "su"):
        factor = scaling.get("factor") or most / old
        scale = scaling.get("attention_factor") or (numpy.sqrt(1 + numpy.log(factor) / numpy.log(old)) if factor > 1 else 1)
        return plain / numpy.array(scaling["long_factor" if length > old else "short_factor"]), scale
    return plain, 1


def turned(x, frequencies, factor):
    """The first 2 n entries of each head x[T][heads][d], of n frequencies: pairs (i, i + n)."""
    n = len(frequencies)
    angle = numpy.arange(len(x))[:, None, None] * frequencies
    a, b, cosine, sine = x[..., :n], x[..., n:2 * n], factor * numpy.cos(angle), factor * numpy.sin(angle)
    return numpy.concatenate([a * cosine - b * sine, b * cosine + a * sine, x[..., 2 * n:]], -1)


# ---- layers ----

def kind_of(config, k):
    kind, types = config["model_type"], config.get("layer_types")
    if types:
        return types[k]
    slides = {"mistral": True, "phi3": True, "mixtral": True, "gemma2": k % 2 == 0, "gemma3_text": (k + 1) % config.get("sliding_window_pattern", 6) != 0}
    return "sliding_attention" if slides.get(kind, False) else "full_attention"


def window_of(config, k):
    default = 4096 if config["model_type"] in GEMMA + ("mistral",) else None
    return config.get("sliding_window", default) if kind_of(config, k) == "sliding_attention" else None


def norm_by(config, x, gain):
    eps = config.get("rms_norm_eps", EPSILON.get(config["model_type"], 1e-6))
    return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + eps) * (gain + (config["model_type"] in GEMMA))


def projections(config, w, layer, x):
    """q, k and v [T][heads][d], as they are before positions."""
    kind, d, n = config["model_type"], head_width(config), len(x)
    heads, keys = config["num_attention_heads"], config.get("num_key_value_heads") or config["num_attention_heads"]
    if kind == "phi3":
        q, k, v = numpy.split(x @ w[layer + "self_attn.qkv_proj.weight"].T, (heads * d, (heads + keys) * d), -1)
    else:
        q, k, v = (x @ w[f"{layer}self_attn.{c}_proj.weight"].T + w.get(f"{layer}self_attn.{c}_proj.bias", 0) for c in "qkv")
    if kind in ("olmo2", "olmoe"):
        q, k = (norm_by(config, y, w[f"{layer}self_attn.{c}_norm.weight"]) for y, c in ((q, "q"), (k, "k")))
    if config.get("clip_qkv"):
        q, k, v = (numpy.clip(y, -config["clip_qkv"], config["clip_qkv"]) for y in (q, k, v))
    q, k, v = q.reshape(n, heads, d), k.reshape(n, keys, d), v.reshape(n, keys, d)
    if kind in ("qwen3", "qwen3_moe", "gemma3_text"):
        q, k = (norm_by(config, y, w[f"{layer}self_attn.{c}_norm.weight"]) for y, c in ((q, "q"), (k, "k")))
    return q, k, v


def turns(config, k):
    if config["model_type"] != "smollm3":
        return True
    listed, every = config.get("no_rope_layers"), config.get("no_rope_layer_interval", 4)
    return bool(listed[k]) if listed else (k + 1) % every != 0


def attention(config, w, k, x):
    layer, kind, n = f"model.layers.{k}.", config["model_type"], len(x)
    q, key, v = projections(config, w, layer, x)
    if turns(config, k):
        frequencies, factor = rotary(config, kind_of(config, k), n)
        q, key = turned(q, frequencies, factor), turned(key, frequencies, factor)
    scale = config.get("query_pre_attn_scalar", 256) ** -0.5 if kind in GEMMA else config.get("attention_multiplier", 1) if kind == "granite" else head_width(config) ** -0.5
    cap = config.get("attn_logit_softcapping", 50 if kind == "gemma2" else None)
    distance, window, out = numpy.arange(n)[:, None] - numpy.arange(n), window_of(config, k), []
    hidden = (distance < 0) | (distance >= window if window else False)
    for head in range(q.shape[1]):
        group = head * key.shape[1] // q.shape[1]
        scores = q[:, head] @ key[:, group].T * scale
        scores = cap * numpy.tanh(scores / cap) if cap else scores
        scores[hidden] = -numpy.inf
        p = numpy.exp(scores - scores.max(-1, keepdims=True))
        out.append(p / p.sum(-1, keepdims=True) @ v[:, group])
    return numpy.concatenate(out, -1) @ w[layer + "self_attn.o_proj.weight"].T


def silu(x):
    return x / (1 + numpy.exp(-x))


def gated(config, gate, up):
    return (0.5 * gate * (1 + numpy.tanh(numpy.sqrt(2 / numpy.pi) * (gate + 0.044715 * gate ** 3))) if config["model_type"] in GEMMA else silu(gate)) * up


def experts(config, w, layer, x, routed):
    kind, chosen = config["model_type"], config["num_experts_per_tok"]
    before, (gate, up, down) = (layer + "block_sparse_moe.", ("w1", "w3", "w2")) if kind == "mixtral" else (layer + "mlp.", ("gate_proj", "up_proj", "down_proj"))
    logits = x @ w[before + "gate.weight"].T
    p = numpy.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    out = numpy.zeros_like(x)
    routed.append((p, numpy.zeros_like(p)))
    for t, row in enumerate(p):
        best = numpy.argsort(-row)[:chosen]
        routed[-1][1][t, best] = 1
        shares = row[best] / (row[best].sum() if kind == "mixtral" or config.get("norm_topk_prob", False) else 1)
        for e, share in zip(best, shares):
            one = f"{before}experts.{e}."
            out[t] += share * ((silu(w[one + gate + ".weight"] @ x[t]) * (w[one + up + ".weight"] @ x[t])) @ w[one + down + ".weight"].T)
    return out


def mlp(config, w, k, x, routed):
    layer = f"model.layers.{k}."
    if is_sparse(config, k):
        return experts(config, w, layer, x, routed)
    if config["model_type"] == "phi3":
        gate, up = numpy.split(x @ w[layer + "mlp.gate_up_proj.weight"].T, 2, -1)
    else:
        gate, up = (x @ w[f"{layer}mlp.{name}_proj.weight"].T for name in ("gate", "up"))
    return gated(config, gate, up) @ w[layer + "mlp.down_proj.weight"].T


def states(config, tensors, tokens, routed=None):
    kind, w = config["model_type"], {name: numpy.asarray(value, numpy.float64) for name, value in tensors.items()}
    branch, routed = config.get("residual_multiplier", 1), [] if routed is None else routed
    h = w["model.embed_tokens.weight"][numpy.asarray(tokens)] * (config["hidden_size"] ** 0.5 if kind in GEMMA else config.get("embedding_multiplier", 1))
    for k in range(config["num_hidden_layers"]):
        def norm(name, x, layer=f"model.layers.{k}."):
            return norm_by(config, x, w[f"{layer}{name}.weight"])

        if kind == "olmo2":
            h = h + norm("post_attention_layernorm", attention(config, w, k, h))
            h = h + norm("post_feedforward_layernorm", mlp(config, w, k, h, routed))
        elif kind in GEMMA:
            h = h + norm("post_attention_layernorm", attention(config, w, k, norm("input_layernorm", h)))
            h = h + norm("post_feedforward_layernorm", mlp(config, w, k, norm("pre_feedforward_layernorm", h), routed))
        else:
            h = h + branch * attention(config, w, k, norm("input_layernorm", h))
            h = h + branch * mlp(config, w, k, norm("post_attention_layernorm", h), routed)
    return norm_by(config, h, w["model.norm.weight"])


def balance(config, tensors, tokens):
    """E times the sum over experts of their share of rows times their mean probability, over the rows of all layers; 0 without experts."""
    routed = []
    states(config, tensors, tokens[:-1], routed)
    if not routed:
        return 0
    p, chosen = (numpy.concatenate(part) for part in zip(*routed))
    return p.shape[1] * (chosen.mean(0) * p.mean(0)).sum()


def logprobs(config, tensors, tokens):
    h, tokens = states(config, tensors, tokens[:-1]), numpy.asarray(tokens)
    head = numpy.asarray(tensors["model.embed_tokens.weight" if is_tied(config) else "lm_head.weight"], numpy.float64)
    logits = h @ head.T / config.get("logits_scaling", 1)
    cap = config.get("final_logit_softcapping", 30 if config["model_type"] == "gemma2" else None)
    logits = cap * numpy.tanh(logits / cap) if cap else logits
    logits -= logits.max(-1, keepdims=True)
    return (logits - numpy.log(numpy.exp(logits).sum(-1, keepdims=True)))[numpy.arange(len(h)), tokens[1:]]
