"""A LLaMA with scaled rotary positions, imported from a Hugging Face folder, gives the log-probabilities that numpy computes in float64:
without scaling, linear, llama3, in all spellings; also on tensor ranks that share heads of keys."""
import json
import os
import struct

import bagpipe_test
from bagpipe_test import FolderTest, read_json

try:
    import h5py
    import numpy
except ImportError:
    h5py = None

L, C, H, G, D, F, T, V = 2, 24, 4, 2, 10, 36, 96, 61
THETA = 300.0
YARN = {"rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 32}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}
LONGROPE = {"type": "su", "original_max_position_embeddings": 70, "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0], "long_factor": [1.5, 2.0, 3.0, 5.0, 8.0]}
LLAMA3 = {"rope_type": "llama3", "factor": 6.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 40}


def weights():
    draw = numpy.random.default_rng(7)
    out = {"model.embed_tokens.weight": draw.normal(0, 1, (V, C)), "lm_head.weight": draw.normal(0, 0.5, (V, C)),
           "model.norm.weight": draw.normal(1, 0.1, C)}
    for k in range(L):
        layer = f"model.layers.{k}."
        for name, shape in (("self_attn.q_proj", (H * D, C)), ("self_attn.k_proj", (G * D, C)), ("self_attn.v_proj", (G * D, C)),
                            ("self_attn.o_proj", (C, H * D)), ("mlp.gate_proj", (F, C)), ("mlp.up_proj", (F, C)), ("mlp.down_proj", (C, F))):
            out[layer + name + ".weight"] = draw.normal(0, 0.3, shape)
        for name in ("input_layernorm", "post_attention_layernorm"):
            out[layer + name + ".weight"] = draw.normal(1, 0.1, C)
    return {name: value.astype(numpy.float32) for name, value in out.items()}


def write_folder(folder, tensors, more):
    os.makedirs(folder)
    header, data = {}, b""
    for name, value in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [len(data), len(data) + value.nbytes]}
        data += value.tobytes()
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    config = {"model_type": "llama", "hidden_size": C, "num_hidden_layers": L, "num_attention_heads": H, "num_key_value_heads": G,
              "head_dim": D, "intermediate_size": F, "hidden_act": "silu", "max_position_embeddings": T, "rms_norm_eps": 1e-5,
              "vocab_size": V, "rope_theta": THETA, "tie_word_embeddings": False}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(dict(config, **more), file)


def frequencies(scaling, length):
    """As transformers defines them, by wavelengths; of a text of this length, in a context of T."""
    pairs = numpy.arange(0, D, 2) / D
    plain = 1 / THETA ** pairs
    kind = (scaling or {}).get("rope_type", (scaling or {}).get("type"))
    if kind == "linear":
        return plain / scaling["factor"]
    if kind == "dynamic":
        beyond = scaling["factor"] * max(length, T) / T - scaling["factor"] + 1
        return 1 / (THETA * beyond ** (D / (D - 2))) ** pairs
    if kind in ("longrope", "su"):
        return plain / scaling["long_factor" if length > scaling["original_max_position_embeddings"] else "short_factor"]
    if kind == "yarn":
        edges = [D * numpy.log(scaling["original_max_position_embeddings"] / (2 * numpy.pi * turns)) / (2 * numpy.log(THETA)) for turns in (32, 1)]
        low, high = max(numpy.floor(edges[0]), 0), min(numpy.ceil(edges[1]), D - 1)
        ramp = numpy.clip((numpy.arange(D // 2) - low) / (high - low), 0, 1)
        return plain * (1 - ramp) + plain / scaling["factor"] * ramp
    if kind != "llama3":
        return plain
    low, high, old = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["original_max_position_embeddings"]
    wave = 2 * numpy.pi / plain
    smooth = (old / wave - low) / (high - low)
    middle = (1 - smooth) * plain / scaling["factor"] + smooth * plain
    return numpy.where(wave > old / low, plain / scaling["factor"], numpy.where(wave < old / high, plain, middle))


def attention_factor(scaling):
    kind = (scaling or {}).get("rope_type", (scaling or {}).get("type"))
    if kind == "yarn":
        return 0.1 * numpy.log(scaling["factor"]) + 1
    if kind in ("longrope", "su"):
        original = scaling["original_max_position_embeddings"]
        return numpy.sqrt(1 + numpy.log(T / original) / numpy.log(original))
    return 1


def logprobs(tensors, tokens, scaling):
    """log p of tokens[1:], each given those before it."""
    w = {name: value.astype(numpy.float64) for name, value in tensors.items()}
    angle = numpy.arange(len(tokens) - 1)[:, None] * frequencies(scaling, len(tokens) - 1)[None, :]
    cosine, sine = attention_factor(scaling) * numpy.cos(angle), attention_factor(scaling) * numpy.sin(angle)

    def norm(x, gain):
        return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gain

    def turn(x):
        a, b = x[..., :D // 2], x[..., D // 2:]
        return numpy.concatenate([a * cosine - b * sine, b * cosine + a * sine], -1)

    h = w["model.embed_tokens.weight"][tokens[:-1]]
    n = len(h)
    for k in range(L):
        layer = f"model.layers.{k}."
        x = norm(h, w[layer + "input_layernorm.weight"])
        q, key, value = (x @ w[f"{layer}self_attn.{name}_proj.weight"].T for name in "qkv")
        heads = []
        for head in range(H):
            group = head * G // H
            scores = turn(q[:, head * D:(head + 1) * D]) @ turn(key[:, group * D:(group + 1) * D]).T / numpy.sqrt(D)
            scores[numpy.triu_indices(n, 1)] = -numpy.inf
            p = numpy.exp(scores - scores.max(-1, keepdims=True))
            heads.append(p / p.sum(-1, keepdims=True) @ value[:, group * D:(group + 1) * D])
        h = h + numpy.concatenate(heads, -1) @ w[layer + "self_attn.o_proj.weight"].T
        x = norm(h, w[layer + "post_attention_layernorm.weight"])
        gate = x @ w[layer + "mlp.gate_proj.weight"].T
        h = h + (gate / (1 + numpy.exp(-gate)) * (x @ w[layer + "mlp.up_proj.weight"].T)) @ w[layer + "mlp.down_proj.weight"].T
    logits = norm(h, w["model.norm.weight"]) @ w["lm_head.weight"].T
    logits -= logits.max(-1, keepdims=True)
    return (logits - numpy.log(numpy.exp(logits).sum(-1, keepdims=True)))[numpy.arange(n), tokens[1:]]


class Rope(FolderTest):
    @classmethod
    def setUpClass(cls):
        if h5py is None:
            raise bagpipe_test.unittest.SkipTest("there is no h5py")
        super().setUpClass()
        cls.tokens = numpy.random.default_rng(3).integers(0, V - 1, T + 30)
        cls.tokens[-1] = V - 1
        with h5py.File(cls.at("text.h5"), "w") as file:
            file["tokens"] = cls.tokens.astype(numpy.uint16)
            file["doc_start"] = numpy.array([0, len(cls.tokens)], numpy.uint64)
            file.attrs["vocab_size"] = V
            file.attrs["eod_id"] = V - 1
        cls.convert("text.h5")
        cls.tensors = weights()
        cls.write("score.ini", f"[score]\ncorpus = {cls.at('text.h5')}\nprefix = none\ntokens = yes\n[math]\nprecision = f32\nthreads = 1\n")

    def imported(self, name, more):
        write_folder(self.at(name), self.tensors, more)
        self.must(["bagpipe-data", "import", self.at(name), "--out", self.at(name + ".model"), "--no-tokenizer"])
        return self.at(name + ".model")

    def scored(self, name, model, ranks=0, *keys):
        """The log-probabilities of the first window, which begins with token 0."""
        self.must(["bagpipe", "score", self.at("score.ini"), f"run.dir={self.at(name)}", f"score.model={model}", *keys], ranks)
        with h5py.File(os.path.join(self.at(name), "score", "tokens.h5")) as file:
            return file["logprob"][1:T + 1]

    def test_probabilities_are_numpys(self):
        plain = logprobs(self.tensors, self.tokens[:T + 1], None)
        for name, scaling in (("none", None), ("linear", {"type": "linear", "factor": 2.5}), ("yarn", YARN), ("long", LONGROPE), ("llama3", LLAMA3)):
            with self.subTest(name):
                expected = logprobs(self.tensors, self.tokens[:T + 1], scaling)
                model = self.imported(name, {"rope_scaling": scaling})
                self.assertLess(numpy.abs(self.scored(name + ".one", model) - expected).max(), 5e-5)
                self.assertEqual(numpy.abs(plain - expected).max() > 0.05, scaling is not None)
        model = self.imported("parameters", {"rope_theta": None, "rope_parameters": dict(LLAMA3, rope_theta=THETA)})
        numpy.testing.assert_array_equal(self.scored("parameters.one", model), self.scored("llama3.again", self.at("llama3.model")))
        # two heads of keys on four ranks
        self.assertLess(numpy.abs(self.scored("ranks4", self.at("llama3.model"), 4, "mesh.tensor=4") - expected).max(), 5e-5)

    def test_frequencies_that_go_by_the_length_do_so_whatever_is_scored_beside_a_text(self):
        """Texts of 40, 69, 71, 96, 100 and 120 tokens, whose windows are padded to those of others, and shared out among ranks."""
        lengths = (41, 70, 72, 97, 101, 121)
        ends = numpy.cumsum((0,) + lengths)
        tokens = numpy.random.default_rng(5).integers(0, V - 1, ends[-1])
        tokens[ends[1:] - 1] = V - 1
        with h5py.File(self.at("texts.h5"), "w") as file:
            file["tokens"] = tokens.astype(numpy.uint16)
            file["doc_start"] = ends.astype(numpy.uint64)
            file.attrs["vocab_size"] = V
            file.attrs["eod_id"] = V - 1
        self.convert("texts.h5")
        for name, scaling in (("dynamic", DYNAMIC), ("lengths", LONGROPE)):
            model = self.imported(name, {"rope_scaling": scaling})
            for ranks in (0, 2):
                with self.subTest(name, ranks=ranks):
                    self.scored(f"{name}.{ranks}.texts", model, ranks, f"score.corpus={self.at('texts.h5')}", "score.context=120", "score.end=yes")
                    with h5py.File(os.path.join(self.at(f"{name}.{ranks}.texts"), "score", "tokens.h5")) as file:
                        mine = file["logprob"][:]
                    for k, length in enumerate(lengths):
                        expected = logprobs(self.tensors, tokens[ends[k]:ends[k + 1]], scaling)
                        self.assertLess(numpy.abs(mine[ends[k] + 1:ends[k + 1]] - expected).max(), 5e-5, (name, length))

    def test_a_folder_comes_back_with_its_scaling(self):
        longrope = dict(LONGROPE, rope_type="longrope")
        del longrope["type"]
        for name, scaling in (("a", LLAMA3), ("b", {"rope_type": "linear", "factor": 2.5}), ("c", None), ("d", YARN), ("e", DYNAMIC),
                              ("f", longrope)):
            model = self.imported(name, {"rope_scaling": scaling})
            self.must(["bagpipe-data", "export", model, "--out", self.at(name + ".out"), "--no-tokenizer"])
            config = read_json(self.at(name + ".out"), "config.json")
            self.assertEqual((config["rope_scaling"], config["head_dim"]), (scaling, D))


if __name__ == "__main__":
    bagpipe_test.main()
