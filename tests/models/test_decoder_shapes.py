"""Decoders of Hugging Face's folders in shapes that published models may have: the log-probabilities of numpy's float64, of the folder that is imported and
of the one that is exported. decoders_numpy.py gives those of the references, where ../shared is."""
import json
import os
import struct

import bagpipe_test
from bagpipe_test import FolderTest, read_json

try:
    import decoders_numpy
    import h5py
    import numpy
except ImportError:
    h5py = None

FULL, SLIDE = "full_attention", "sliding_attention"
COMMON = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 36, "max_position_embeddings": 64,
          "vocab_size": 61, "rope_theta": 300.0}
GEMMA = {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 10, "sliding_window": 7, "head_dim": 6}
OF = {"gemma2": GEMMA, "gemma3_text": GEMMA, "qwen3": {"head_dim": 6}, "mixtral": {"num_local_experts": 5, "num_experts_per_tok": 2}, "olmoe": {"num_experts": 5, "num_experts_per_tok": 2},
      "qwen3_moe": {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 20}}
LLAMA3 = {"rope_type": "llama3", "factor": 6.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 24}
YARN = {"rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 16, "beta_fast": 20.0, "mscale": 1.0, "mscale_all_dim": 0.5, "truncate": False}
LONGROPE = {"type": "longrope", "short_factor": [1.0, 1.2, 1.5], "long_factor": [2.0, 3.0, 5.0]}
SHAPES = (
    ("llama", {"num_hidden_layers": 1, "num_attention_heads": 3, "num_key_value_heads": None, "intermediate_size": 31, "vocab_size": 67}),
    ("llama", {"head_dim": 16, "num_attention_heads": 5, "num_key_value_heads": 1, "rope_theta": None, "rope_parameters": dict(LLAMA3, rope_theta=500.0)}),
    ("mistral", {"sliding_window": 5, "num_hidden_layers": 3, "layer_types": [SLIDE, FULL, SLIDE], "tie_word_embeddings": True}),
    ("mistral", {"sliding_window": None, "head_dim": 10, "rope_scaling": YARN}),
    ("qwen2", {"num_key_value_heads": 1, "num_attention_heads": 3, "tie_word_embeddings": True}),
    ("qwen3", {"head_dim": 14, "num_key_value_heads": 1, "rope_scaling": {"type": "linear", "factor": 2.5}}),
    ("gemma2", {"num_hidden_layers": 4, "layer_types": [SLIDE, SLIDE, FULL, SLIDE], "attn_logit_softcapping": None, "final_logit_softcapping": 2.0}),
    ("gemma2", {"num_hidden_layers": 3, "attn_logit_softcapping": 3.0, "sliding_window": 1, "num_attention_heads": 3, "num_key_value_heads": 1}),
    ("gemma3_text", {"num_hidden_layers": 5, "sliding_window_pattern": 2, "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "tie_word_embeddings": False}),
    ("gemma3_text", {"rope_theta": None, "num_hidden_layers": 3, "layer_types": [FULL] * 3,
                     "rope_parameters": {FULL: {"rope_type": "default", "rope_theta": 500.0}, SLIDE: {"rope_type": "default", "rope_theta": 50.0}}}),
    ("olmo2", {"num_key_value_heads": 1, "num_attention_heads": 3, "rms_norm_eps": 1e-3}),
    ("smollm3", {"num_hidden_layers": 5, "tie_word_embeddings": False}),
    ("smollm3", {"num_hidden_layers": 3, "no_rope_layers": [1, 0, 1]}),
    ("granite", {"embedding_multiplier": 3.0, "attention_multiplier": 0.3, "residual_multiplier": 0.4, "logits_scaling": 2.0, "num_key_value_heads": 4}),
    ("phi3", {"rope_scaling": LONGROPE, "original_max_position_embeddings": 16, "sliding_window": 6}),
    ("phi3", {"rope_scaling": dict(LONGROPE, type="su")}),
    ("phi3", {"head_dim": None, "hidden_size": 48, "partial_rotary_factor": 0.5, "rope_scaling": LONGROPE, "original_max_position_embeddings": 40}),
    ("mixtral", {"num_experts_per_tok": 5, "head_dim": 10, "sliding_window": 5}),
    ("mixtral", {"num_local_experts": 1, "num_experts_per_tok": 1, "num_key_value_heads": 1, "tie_word_embeddings": True}),
    ("olmoe", {"norm_topk_prob": True, "clip_qkv": 0.5, "num_key_value_heads": None}),
    ("olmoe", {"num_experts_per_tok": 1, "num_hidden_layers": 1}),
    ("qwen3_moe", {"num_hidden_layers": 4, "decoder_sparse_step": 2, "mlp_only_layers": [1], "norm_topk_prob": True, "head_dim": 10}),
)


def weights(config):
    draw, out = numpy.random.default_rng(1), {}
    for name, shape in decoders_numpy.names_and_shapes(config):
        gain = len(shape) == 1 and not name.endswith("bias")
        mean, by = (1 - (config["model_type"] in decoders_numpy.GEMMA), 0.2) if gain else (0, 1 if "embed" in name else 0.4)
        out[name] = draw.normal(mean, by, shape).astype(numpy.float32)
    return out


def write_tensors(path, tensors):
    header, data = {}, b""
    for name, value in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [len(data), len(data) + value.nbytes]}
        data += value.tobytes()
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read_tensors(path):
    with open(path, "rb") as file:
        data = file.read()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    return {name: numpy.frombuffer(data[start + entry["data_offsets"][0]:start + entry["data_offsets"][1]], numpy.float32).reshape(entry["shape"])
            for name, entry in json.loads(data[8:start]).items() if name != "__metadata__"}


class Shapes(FolderTest):
    T = 40

    @classmethod
    def setUpClass(cls):
        if h5py is None:
            raise bagpipe_test.unittest.SkipTest("there is no h5py")
        super().setUpClass()

    def scored(self, name, config):
        """Tokens, and the log-probability of each but the first."""
        tokens = numpy.random.default_rng(2).integers(0, config["vocab_size"] - 1, self.T + 1)
        tokens[-1] = config["vocab_size"] - 1
        with h5py.File(self.at(name + ".h5"), "w") as file:
            file["tokens"] = tokens.astype(numpy.uint16)
            file["doc_start"] = numpy.array([0, len(tokens)], numpy.uint64)
            file.attrs["vocab_size"] = config["vocab_size"]
            file.attrs["eod_id"] = config["vocab_size"] - 1
        self.convert(name + ".h5")
        self.must(["bagpipe", "score", f"run.dir={self.at(name + '.run')}", f"score.corpus={self.at(name + '.h5')}", f"score.model={self.at(name + '.model')}", "score.prefix=none",
                   "score.tokens=yes", "score.end=yes", "math.precision=f32", "math.threads=1"])
        with h5py.File(os.path.join(self.at(name + ".run"), "score", "tokens.h5")) as file:
            return tokens, file["logprob"][1:self.T + 1]

    def test_probabilities_are_numpys(self):
        for k, (kind, keys) in enumerate(SHAPES):
            with self.subTest(kind, **keys):
                config = {"model_type": kind, **COMMON, **OF.get(kind, {}), **keys}
                name, tensors = f"{kind}-{k}", weights(config)
                os.makedirs(self.at(name))
                write_tensors(os.path.join(self.at(name), "model.safetensors"), tensors)
                self.write(f"{name}/config.json", json.dumps({key: value for key, value in config.items() if value is not None or key in ("sliding_window", "num_key_value_heads")
                                                              or key.endswith("softcapping")}))
                self.must(["bagpipe-data", "import", self.at(name), "--out", self.at(name + ".model"), "--no-tokenizer"])
                tokens, mine = self.scored(name, config)
                expected = decoders_numpy.logprobs(config, tensors, tokens)
                self.assertLess(numpy.abs(mine - expected).max(), 5e-5)
                self.must(["bagpipe-data", "export", self.at(name + ".model"), "--out", self.at(name + ".out")])
                written = read_tensors(os.path.join(self.at(name + ".out"), "model.safetensors"))
                again = decoders_numpy.logprobs(read_json(self.at(name + ".out"), "config.json"), written, tokens)
                self.assertLess(numpy.abs(again - expected).max(), 1e-12)

    def test_the_oracle_gives_what_the_references_have(self):
        families = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "olmo2", "smollm3", "granite", "phi3", "mixtral", "olmoe", "qwen3_moe", "llama-llama3", "llama-yarn", "llama-dynamic")
        if bagpipe_test.shared("reference") is None:
            raise bagpipe_test.unittest.SkipTest("there is no ../shared")
        for family in families:
            with self.subTest(family):
                folder = bagpipe_test.shared(f"reference/{family}-tiny")
                tensors, expected = (read_tensors(os.path.join(folder, f"{name}.safetensors")) for name in ("model", "expected"))
                for row, logprob in zip(read_json(folder, "tokens.json")["tokens"], expected["logprob"], strict=True):
                    self.assertLess(numpy.abs(decoders_numpy.logprobs(read_json(folder, "config.json"), tensors, row) - logprob).max(), 1e-6)


if __name__ == "__main__":
    bagpipe_test.main()
