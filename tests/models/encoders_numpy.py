"""Encoders of Hugging Face's folders in numpy's float64, written from their formulas, with the head of the class that config.json names.

    names_and_shapes(config): the tensors of a folder; outputs(config, tensors, ids, segments): what its head gives for one text without padding,
    logits of words or of outcomes at each place, of sequence classification one row of them; of a base class the last states
"""
import math

import numpy

ROBERTAS = ("roberta", "xlm-roberta", "camembert")
LIKE_ROBERTA = (*ROBERTAS, "mpnet")  # their heads, pairs, and positions
PREFIX = {"mpnet": "mpnet.", "bert": "bert.", "electra": "electra.", "distilbert": "distilbert.", "deberta-v2": "deberta.", "modernbert": "model.", **{name: "roberta." for name in ROBERTAS}}
erf = numpy.vectorize(math.erf)


def head_of(config):
    """Of BertForMaskedLM "MaskedLM", of BertModel nothing."""
    return config["architectures"][0].partition("For")[2]


def prefix_of(config):
    return PREFIX[config["model_type"]] if head_of(config) else ""


def sizes_of(config):
    """Width, inner width, heads and layers."""
    names = ("dim", "hidden_dim", "n_heads", "n_layers") if config["model_type"] == "distilbert" else ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers")
    return [config[name] for name in names]


def outcomes_of(config):
    return len(config.get("id2label", "ab"))


def span_of(config):
    """How many distances to either side a DeBERTa has in its table."""
    buckets, most = config.get("position_buckets", -1), config.get("max_relative_positions", -1)
    return buckets if buckets > 0 else most if most > 0 else config["max_position_embeddings"]


# ---- names ----

def linear(name, rows, columns, bias=True):
    yield name + ".weight", (rows, columns)
    if bias:
        yield name + ".bias", (rows,)


def norm(name, width, bias=True):
    yield name + ".weight", (width,)
    if bias:
        yield name + ".bias", (width,)


LAYERS = {  # a layer's name; q, k, v, what follows attention, its norm, both of the MLP, its norm
    "distilbert": ("transformer.layer", "attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin", "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm"),
    "deberta-v2": ("encoder.layer", "attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj", "attention.output.dense", "attention.output.LayerNorm",
                   "intermediate.dense", "output.dense", "output.LayerNorm"),
    "mpnet": ("encoder.layer", "attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o", "attention.LayerNorm", "intermediate.dense", "output.dense",
              "output.LayerNorm"),
    "": ("encoder.layer", "attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense", "attention.output.LayerNorm", "intermediate.dense",
         "output.dense", "output.LayerNorm")}


def layer_names(config):
    return LAYERS.get(config["model_type"], LAYERS[""])


def embedding_names(config):
    kind, E, C = config["model_type"], config.get("embedding_size", sizes_of(config)[0]), sizes_of(config)[0]
    yield "embeddings.word_embeddings.weight", (config["vocab_size"], E)
    if kind != "deberta-v2" or config["position_biased_input"]:
        yield "embeddings.position_embeddings.weight", (config["max_position_embeddings"], E)
    if config.get("type_vocab_size", 0) > 0:
        yield "embeddings.token_type_embeddings.weight", (config["type_vocab_size"], E)
    if kind == "deberta-v2" and E != C:
        yield from linear("embeddings.embed_proj", C, E, False)
    yield from norm("embeddings.LayerNorm", E if kind == "electra" else C)
    if kind == "electra" and E != C:
        yield from linear("embeddings_project", C, E)


def deberta_names(config):
    C, taps = config["hidden_size"], config.get("conv_kernel_size", 0)
    yield "encoder.rel_embeddings.weight", (2 * span_of(config), C)
    if config.get("norm_rel_ebd") == "layer_norm":
        yield from norm("encoder.LayerNorm", C)
    if taps:
        yield "encoder.conv.conv.weight", (C, C // config.get("conv_groups", 1), taps)
        yield "encoder.conv.conv.bias", (C,)
        yield from norm("encoder.conv.LayerNorm", C)


def encoder_names(config):
    (C, inner, _, layers), kind = sizes_of(config), config["model_type"]
    if kind == "modernbert":
        yield "embeddings.tok_embeddings.weight", (config["vocab_size"], C)
        yield "embeddings.norm.weight", (C,)
        for k in range(layers):
            yield from norm(f"layers.{k}.attn_norm", C, False) if k else ()
            yield from linear(f"layers.{k}.attn.Wqkv", 3 * C, C, False)
            yield from linear(f"layers.{k}.attn.Wo", C, C, False)
            yield from norm(f"layers.{k}.mlp_norm", C, False)
            yield from linear(f"layers.{k}.mlp.Wi", 2 * inner, C, False)
            yield from linear(f"layers.{k}.mlp.Wo", C, inner, False)
        yield from norm("final_norm", C, False)
        return
    yield from embedding_names(config)
    yield from deberta_names(config) if kind == "deberta-v2" else ()
    if kind == "mpnet":
        yield "encoder.relative_attention_bias.weight", (32, config["num_attention_heads"])
    layer, *square, ln1, up, down, ln2 = layer_names(config)
    for k in range(layers):
        at = f"{layer}.{k}."
        if kind == "deberta-v2" and not config.get("share_att_key", False):
            square += [f"attention.self.pos_{name}_proj" for name in ("key", "query") if f"attention.self.pos_{name}_proj" not in square]
        for name in square:
            yield from linear(at + name, C, C)
        yield from (*norm(at + ln1, C), *linear(at + up, inner, C), *linear(at + down, C, inner), *norm(at + ln2, C))


WORDS = {"bert": ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias", "cls.predictions.decoder.weight"),
         "deberta-v2": ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias", "cls.predictions.decoder.weight"),
         "electra": ("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias", "generator_lm_head.weight"),
         "distilbert": ("vocab_transform", "vocab_layer_norm", "vocab_projector.bias", "vocab_projector.weight"),
         "modernbert": ("head.dense", "head.norm", "decoder.bias", "decoder.weight"),
         **{name: ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder.weight") for name in LIKE_ROBERTA}}
POOLERS = {"bert": ("bert.pooler.dense", "classifier"), "distilbert": ("pre_classifier", "classifier"), "deberta-v2": ("pooler.dense", "classifier"),
           **{name: ("classifier.dense", "classifier.out_proj") for name in (*LIKE_ROBERTA, "electra")}}


def used_bias(bias):
    """The name of the bias that classes compute with: transformers 5 saves a second one, which is another tensor if the head is not tied."""
    return bias.replace("lm_head.", "lm_head.decoder.").replace("cls.predictions.", "cls.predictions.decoder.") if ".decoder." not in bias else bias


def head_names(config):
    kind, head, C, E = config["model_type"], head_of(config), sizes_of(config)[0], config.get("embedding_size", sizes_of(config)[0])
    if head == "MaskedLM":
        dense, ln, bias, decoder = WORDS[kind]
        yield from (*linear(dense, E, C, kind != "modernbert"), *norm(ln, E, kind != "modernbert"), (bias, (config["vocab_size"],)))
        if not config.get("tie_word_embeddings", True):
            yield decoder, (config["vocab_size"], E)
            if bias != used_bias(bias):
                yield used_bias(bias), (config["vocab_size"],)
    elif head == "PreTraining":
        yield from (*linear("discriminator_predictions.dense", C, C), *linear("discriminator_predictions.dense_prediction", 1, C))
    elif head:
        if kind == "modernbert":
            yield from (*linear("head.dense", C, C, False), *norm("head.norm", C, False))
        elif head == "SequenceClassification":
            yield from linear(POOLERS[kind][0], C, C)
        yield from linear(outcome_name(config), outcomes_of(config), C)


def outcome_name(config):
    kind, head = config["model_type"], head_of(config)
    if head == "SequenceClassification" and kind in POOLERS:
        return POOLERS[kind][1]
    return "qa_outputs" if head == "QuestionAnswering" and kind != "modernbert" else "classifier"


def names_and_shapes(config):
    for name, shape in encoder_names(config):
        yield prefix_of(config) + name, shape
    yield from head_names(config)


# ---- numbers ----

def gelu(x):
    return x * (1 + erf(x / math.sqrt(2))) / 2


def softmax(scores):
    p = numpy.exp(scores - scores.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


class Encoder:
    def __init__(self, config, tensors):
        self.config, self.tensors, self.kind, self.before = config, {name: numpy.asarray(value, float) for name, value in tensors.items()}, config["model_type"], prefix_of(config)
        self.epsilon = config.get("norm_eps", config.get("layer_norm_eps", {"modernbert": 1e-5, "deberta-v2": 1e-7}.get(self.kind, 1e-12)))

    def w(self, name):
        return self.tensors[self.before + name]

    def linear(self, name, x):
        return x @ self.tensors[name + ".weight"].T + self.tensors.get(name + ".bias", 0)

    def norm(self, name, x):
        centred = x - x.mean(-1, keepdims=True)
        return centred / numpy.sqrt((centred ** 2).mean(-1, keepdims=True) + self.epsilon) * self.tensors[name + ".weight"] + self.tensors.get(name + ".bias", 0)

    def heads(self, x):
        return x.reshape(len(x), sizes_of(self.config)[2], -1).transpose(1, 0, 2)

    def words(self, ids):
        return self.w("embeddings.word_embeddings.weight")[ids]

    def embedded(self, ids, segments):
        x, config = self.words(ids), self.config
        first = config["pad_token_id"] + 1 if self.kind in LIKE_ROBERTA else 0
        if self.kind != "deberta-v2" or config["position_biased_input"]:
            x = x + self.w("embeddings.position_embeddings.weight")[first:first + len(ids)]
        if config.get("type_vocab_size", 0) > 0:
            x = x + self.w("embeddings.token_type_embeddings.weight")[numpy.minimum(segments, config["type_vocab_size"] - 1)]
        if self.kind == "deberta-v2" and self.before + "embeddings.embed_proj.weight" in self.tensors:
            x = self.linear(self.before + "embeddings.embed_proj", x)
        x = self.norm(self.before + "embeddings.LayerNorm", x)
        return self.linear(self.before + "embeddings_project", x) if self.before + "embeddings_project.weight" in self.tensors else x

    def distances(self, at, scores, q, k):
        """What the distances of a DeBERTa add to the scores of content."""
        config, n, span = self.config, scores.shape[-1], span_of(self.config)
        table, shared = self.w("encoder.rel_embeddings.weight"), config.get("share_att_key", False)
        table = self.norm(self.before + "encoder.LayerNorm", table) if config.get("norm_rel_ebd") == "layer_norm" else table
        keys, queries = (self.heads(self.linear(f"{at}attention.self.{'' if shared else 'pos_'}{name}_proj", table)) for name in ("key", "query"))
        delta, half, most = numpy.arange(n)[:, None] - numpy.arange(n), config.get("position_buckets", -1) // 2, config.get("max_relative_positions", -1)
        if half > 0:
            most = most if most > 0 else config["max_position_embeddings"]
            far = numpy.ceil(numpy.log(numpy.maximum(abs(delta), half) / half) / math.log((most - 1) / half) * (half - 1)) + half
            delta = numpy.where(abs(delta) <= half, delta, numpy.sign(delta) * far).astype(int)
        rows = numpy.clip(delta + span, 0, 2 * span - 1)
        i, j = numpy.indices((n, n))
        return scores + (q @ keys.transpose(0, 2, 1))[:, i, rows] + (k @ queries.transpose(0, 2, 1))[:, j, rows]

    def buckets(self, n):
        """What MPNet adds to the scores of n places [heads][query][key]: 16 buckets for keys before, 16 after; 8 of them exact, 8 logarithmic up to 128 places."""
        delta = numpy.arange(n) - numpy.arange(n)[:, None]
        far = 8 + (numpy.log(numpy.maximum(abs(delta), 8) / 8) / math.log(128 / 8) * 8).astype(int)
        return self.w("encoder.relative_attention_bias.weight")[numpy.where(abs(delta) < 8, abs(delta), numpy.minimum(far, 15)) + 16 * (delta > 0)].transpose(2, 0, 1)

    def layer(self, k, x):
        layer, query, key, value, out, ln1, up, down, ln2 = layer_names(self.config)
        at = f"{self.before}{layer}.{k}."
        q, key, v = (self.heads(self.linear(at + name, x)) for name in (query, key, value))
        scores = q @ key.transpose(0, 2, 1)
        scores = self.distances(at, scores, q, key) / math.sqrt(3 * q.shape[-1]) if self.kind == "deberta-v2" else scores / math.sqrt(q.shape[-1])
        scores = scores + self.buckets(len(x)) if self.kind == "mpnet" else scores
        y = self.norm(at + ln1, x + self.linear(at + out, (softmax(scores) @ v).transpose(1, 0, 2).reshape(x.shape)))
        return self.norm(at + ln2, y + self.linear(at + down, gelu(self.linear(at + up, y))))

    def convolved(self, x, after):
        """A DeBERTa's first layer with its convolution over the embeddings beside it."""
        config, weight = self.config, self.w("encoder.conv.conv.weight")
        taps, groups, C = weight.shape[2], config.get("conv_groups", 1), len(weight)
        padded = numpy.concatenate([numpy.zeros((taps // 2, C)), x, numpy.zeros((taps // 2, C))])
        parts = [sum(padded[t:t + len(x), g * C // groups:(g + 1) * C // groups] @ weight[g * C // groups:(g + 1) * C // groups, :, t].T for t in range(taps)) for g in range(groups)]
        y = numpy.concatenate(parts, -1) + self.w("encoder.conv.conv.bias")
        y = {"tanh": numpy.tanh, "gelu": gelu, "relu": lambda z: numpy.maximum(z, 0)}[config.get("conv_act", "tanh")](y)
        return self.norm(self.before + "encoder.conv.LayerNorm", after + y)

    def modern(self, ids):
        config, n = self.config, len(ids)
        C, _, heads, layers = sizes_of(config)
        x, D = self.norm(self.before + "embeddings.norm", self.w("embeddings.tok_embeddings.weight")[ids]), C // heads
        for k in range(layers):
            at, full = f"{self.before}layers.{k}.", k % config.get("global_attn_every_n_layers", 3) == 0
            qkv = self.linear(at + "attn.Wqkv", self.norm(at + "attn_norm", x) if k else x)
            angle = numpy.arange(n)[:, None] * config["global_rope_theta" if full else "local_rope_theta"] ** (-numpy.arange(0, D, 2) / D)
            q, key, v = (self.heads(part) for part in numpy.split(qkv, 3, -1))
            q, key = (numpy.concatenate([a * numpy.cos(angle) - b * numpy.sin(angle), b * numpy.cos(angle) + a * numpy.sin(angle)], -1)
                      for a, b in (numpy.split(part, 2, -1) for part in (q, key)))
            scores = q @ key.transpose(0, 2, 1) / math.sqrt(D)
            if not full:
                scores[:, abs(numpy.arange(n)[:, None] - numpy.arange(n)) > config["local_attention"] // 2] = -numpy.inf
            x = x + self.linear(at + "attn.Wo", (softmax(scores) @ v).transpose(1, 0, 2).reshape(n, C))
            gate, up = numpy.split(self.linear(at + "mlp.Wi", self.norm(at + "mlp_norm", x)), 2, -1)
            x = x + self.linear(at + "mlp.Wo", gelu(gate) * up)
        return self.norm(self.before + "final_norm", x)

    def states(self, ids, segments):
        if self.kind == "modernbert":
            return self.modern(ids)
        x = first = self.embedded(ids, segments)
        for k in range(sizes_of(self.config)[3]):
            x = self.layer(k, x)
            x = self.convolved(first, x) if k == 0 and self.config.get("conv_kernel_size") else x
        return x

    def pooled(self, x):
        """What sequence classification reads."""
        dense = "head.dense" if self.kind == "modernbert" else POOLERS[self.kind][0]
        if self.kind == "modernbert":
            return self.norm("head.norm", gelu(self.linear(dense, x.mean(0) if self.config.get("classifier_pooling") == "mean" else x[0])))
        acts = {"distilbert": lambda y: numpy.maximum(y, 0), "deberta-v2": gelu, "electra": gelu}
        return acts.get(self.kind, numpy.tanh)(self.linear(dense, x[0]))

    def outputs(self, ids, segments):
        x, head = self.states(ids, segments), head_of(self.config)
        if head == "MaskedLM":
            dense, ln, bias, decoder = WORDS[self.kind]
            word = "embeddings.tok_embeddings.weight" if self.kind == "modernbert" else "embeddings.word_embeddings.weight"
            act = self.norm(ln, gelu(self.linear(dense, x)))
            return act @ (self.w(word) if self.config.get("tie_word_embeddings", True) else self.tensors[decoder]).T + self.tensors[used_bias(bias) if used_bias(bias) in self.tensors else bias]
        if head == "PreTraining":
            return self.linear("discriminator_predictions.dense_prediction", gelu(self.linear("discriminator_predictions.dense", x)))[:, 0]
        if head == "SequenceClassification":
            return self.linear(outcome_name(self.config), self.pooled(x))
        if head and self.kind == "modernbert":
            x = self.norm("head.norm", gelu(self.linear("head.dense", x)))
        return self.linear(outcome_name(self.config), x) if head else x


def outputs(config, tensors, ids, segments=None):
    ids = numpy.asarray(ids)
    return Encoder(config, tensors).outputs(ids, numpy.zeros(len(ids), int) if segments is None else numpy.asarray(segments))
