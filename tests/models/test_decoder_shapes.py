"""Decoders of Hugging Face's folders in shapes that published models may have: the log-probabilities of numpy's float64, of the folder that is imported and
of the one that is exported. decoders_numpy.py and older_numpy.py give those of the references, where ../shared is."""
import json
import os
import struct

import bagpipe_test
from bagpipe_test import FolderTest, read_json

try:
    import decoders_numpy
    import h5py
    import numpy
    import older_numpy
    import slopes
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
    ("qwen3", {"head_dim": 10, "num_key_value_heads": 1, "num_attention_heads": 3, "tie_word_embeddings": True, "rms_norm_eps": 1e-3, "rope_theta": None, "rope_parameters": dict(YARN, rope_theta=700.0)}),
    ("gemma3_text", {"num_hidden_layers": 4, "sliding_window_pattern": 3, "rope_local_base_freq": 77.0, "sliding_window": 3, "num_key_value_heads": 4}),
    ("gemma2", {"num_hidden_layers": 2, "head_dim": 16, "hidden_size": 23, "query_pre_attn_scalar": 3, "num_key_value_heads": 4}),
    ("olmo2", {"tie_word_embeddings": True, "num_key_value_heads": 4, "rope_scaling": {"rope_type": "linear", "factor": 3.0}}),
    ("phi3", {"hidden_size": 32, "partial_rotary_factor": 0.75, "num_key_value_heads": 1, "tie_word_embeddings": True,
              "rope_parameters": {"rope_type": "longrope", "rope_theta": 300.0, "partial_rotary_factor": 0.75, **{key: LONGROPE[key] for key in ("short_factor", "long_factor")}},
              "original_max_position_embeddings": 40}),
    ("llama", {"num_key_value_heads": 1, "rope_scaling": {"type": "dynamic", "factor": 2.0}, "max_position_embeddings": 64}),
    ("llama", {"attention_bias": False, "rope_scaling": {"rope_type": "longrope", "short_factor": [1.1, 1.3, 2.0], "long_factor": [2.0, 2.5, 6.0], "factor": 4.0,
                                                         "original_max_position_embeddings": 20}}),
    ("smollm3", {"no_rope_layer_interval": 2, "num_hidden_layers": 4, "num_key_value_heads": 1}),
    ("granite", {"tie_word_embeddings": True, "attention_multiplier": 0.05, "rope_scaling": LLAMA3, "num_key_value_heads": 1}),
    ("mixtral", {"num_experts_per_tok": 1, "num_local_experts": 7, "rope_theta": None}),
    ("olmoe", {"num_experts": 6, "num_experts_per_tok": 3, "num_key_value_heads": 1, "norm_topk_prob": False, "tie_word_embeddings": True}),
    ("qwen3_moe", {"num_hidden_layers": 3, "mlp_only_layers": [0, 2], "num_experts": 3, "num_experts_per_tok": 3, "norm_topk_prob": False, "num_key_value_heads": 1}),
    ("opt", {"num_attention_heads": 3, "ffn_dim": 31}),
    ("opt", {"do_layer_norm_before": False, "word_embed_proj_dim": 7, "num_hidden_layers": 3}),
    ("opt", {"word_embed_proj_dim": 40, "num_hidden_layers": 1, "tie_word_embeddings": False}),
    ("opt", {"do_layer_norm_before": False, "num_attention_heads": 1, "hidden_size": 15, "word_embed_proj_dim": 15}),
    ("gptj", {"rotary_dim": 2, "n_head": 3, "n_inner": 37}),
    ("gptj", {"rotary_dim": 6, "n_layer": 3, "layer_norm_epsilon": 1e-3}),
    ("gptj", {"n_head": 1, "rotary_dim": 10, "n_inner": 20}),
    ("bloom", {"n_head": 12, "n_layer": 3}),
    ("bloom", {"n_head": 5, "hidden_size": 35, "layer_norm_epsilon": 1e-3}),
    ("bloom", {"n_head": 1, "n_layer": 1, "hidden_size": 9, "tie_word_embeddings": False}),
    ("bloom", {"n_head": 3, "hidden_size": 27}),
    ("openai-gpt", {"n_head": 3, "n_layer": 1, "layer_norm_epsilon": 1e-3}),
    ("openai-gpt", {"n_head": 5, "n_embd": 35, "n_layer": 3}),
    ("gpt_neox", {"num_attention_heads": 3, "rotary_pct": 0.25, "use_parallel_residual": False, "rotary_emb_base": 100}),
    ("gpt_neox", {"num_attention_heads": 2, "rotary_pct": 1.0, "intermediate_size": 17, "tie_word_embeddings": True}),
    ("gpt2", {"n_head": 5, "n_embd": 35, "n_inner": 31}),
    ("gpt2", {"n_head": 1, "n_layer": 1, "n_embd": 7, "layer_norm_epsilon": 1e-3}),
    ("mamba2", {"num_heads": 12, "head_dim": 4, "n_groups": 3, "state_size": 5, "conv_kernel": 2}),
    ("mamba2", {"num_heads": 3, "head_dim": 16, "n_groups": 3, "state_size": 7, "conv_kernel": 3, "tie_word_embeddings": True, "chunk_size": 3}),
    ("mamba2", {"num_heads": 5, "head_dim": 4, "hidden_size": 10, "n_groups": 1, "state_size": 1, "conv_kernel": 4, "num_hidden_layers": 1, "chunk_size": 16}),
    ("mamba2", {"num_heads": 9, "head_dim": 9, "hidden_size": 27, "expand": 3, "n_groups": 1, "state_size": 16, "layer_norm_epsilon": 1e-3}),
)
N = {"n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 61}
OLDER = {
    "opt": {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 36, "max_position_embeddings": 64, "vocab_size": 61, "word_embed_proj_dim": 24,
            "do_layer_norm_before": True, "activation_function": "relu"},
    "bloom": {"hidden_size": 24, "n_layer": 2, "n_head": 4, "vocab_size": 61},
    "gpt_neox": {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 36, "max_position_embeddings": 64, "vocab_size": 61, "rotary_pct": 0.5,
                 "rotary_emb_base": 300, "hidden_act": "gelu"},
    "gptj": {**N, "rotary_dim": 4}, "openai-gpt": N, "gpt2": N,
    "mamba2": {"hidden_size": 24, "num_hidden_layers": 2, "expand": 2, "conv_kernel": 4, "chunk_size": 8, "use_bias": False, "use_conv_bias": True, "rms_norm": True, "vocab_size": 61},
}


ONE, TENSOR, STAGES = (0, ()), (2, ("mesh.tensor=2",)), (2, ("mesh.pipeline=2",))
EXPERTS = 2, ("mesh.expert=2", "train.batch=2", "mesh.micro_batch=1")  # each rank has the whole text
TRAINED = (
    ("qwen3", *TENSOR, {"head_dim": 14, "num_key_value_heads": 1, "tie_word_embeddings": True}),
    ("gemma2", *STAGES, {"hidden_size": 23, "head_dim": 16, "query_pre_attn_scalar": 3, "attn_logit_softcapping": 3.0, "sliding_window": 3}),
    ("phi3", *ONE, {"hidden_size": 32, "partial_rotary_factor": 0.75, "num_key_value_heads": 1, "rope_scaling": LONGROPE, "original_max_position_embeddings": 40}),
    ("mixtral", *TENSOR, {"num_experts_per_tok": 1, "num_local_experts": 7, "router_aux_loss_coef": 0.0}),
    ("olmoe", *ONE, {"num_experts": 6, "num_experts_per_tok": 3, "num_key_value_heads": 1, "clip_qkv": 0.5, "router_aux_loss_coef": 0.2}),
    ("qwen3_moe", *EXPERTS, {"num_hidden_layers": 3, "mlp_only_layers": [1], "num_experts": 6, "num_experts_per_tok": 5, "norm_topk_prob": True, "router_aux_loss_coef": 0.3}),
    ("bloom", *ONE, {"n_head": 5, "hidden_size": 35}),
    ("opt", *STAGES, {"do_layer_norm_before": False, "word_embed_proj_dim": 7}),
    ("gptj", *ONE, {"rotary_dim": 6, "n_head": 3, "n_inner": 37}),
    ("mamba2", *ONE, {"num_heads": 9, "head_dim": 9, "hidden_size": 27, "expand": 3, "n_groups": 3, "state_size": 5, "conv_kernel": 2, "chunk_size": 3}),
)


def oracle_of(kind):
    return older_numpy if kind in OLDER else decoders_numpy


def weights(config):
    draw, out = numpy.random.default_rng(1), {}
    for name, shape in oracle_of(config["model_type"]).names_and_shapes(config):
        gain = len(shape) == 1 and not name.endswith(("bias", "A_log"))
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

    def corpus(self, name, config):
        """The tokens of NAME.h5."""
        tokens = numpy.random.default_rng(2).integers(0, config["vocab_size"] - 1, self.T + 1)
        tokens[-1] = config["vocab_size"] - 1
        with h5py.File(self.at(name + ".h5"), "w") as file:
            file["tokens"] = tokens.astype(numpy.uint16)
            file["doc_start"] = numpy.array([0, len(tokens)], numpy.uint64)
            file.attrs["vocab_size"] = config["vocab_size"]
            file.attrs["eod_id"] = config["vocab_size"] - 1
        self.convert(name + ".h5")
        return tokens

    def scored(self, name, config):
        """Tokens, and the log-probability of each but the first."""
        tokens = self.corpus(name, config)
        self.must(["bagpipe", "score", f"run.dir={self.at(name + '.run')}", f"score.corpus={self.at(name + '.h5')}", f"score.model={self.at(name + '.model')}", "score.prefix=none",
                   "score.tokens=yes", "score.end=yes", "math.precision=f32", "math.threads=1"])
        with h5py.File(os.path.join(self.at(name + ".run"), "score", "tokens.h5")) as file:
            return tokens, file["logprob"][1:self.T + 1]

    def imported(self, name, kind, keys):
        """The configuration and tensors of a folder that is imported as NAME.model."""
        config = {"model_type": kind, **OLDER.get(kind, {**COMMON, **OF.get(kind, {})}), **keys}
        tensors = weights(config)
        os.makedirs(self.at(name))
        write_tensors(os.path.join(self.at(name), "model.safetensors"), tensors)
        self.write(f"{name}/config.json", json.dumps({key: value for key, value in config.items() if value is not None or key in ("sliding_window", "num_key_value_heads")
                                                      or key.endswith("softcapping")}))
        self.must(["bagpipe-data", "import", self.at(name), "--out", self.at(name + ".model"), "--no-tokenizer"])
        return config, tensors

    def test_gradients_are_slopes_of_the_loss(self):
        """Of each tensor along one direction: a step of plain descent against numpy's float64, on one rank, two tensor ranks or two stages."""
        for kind, ranks, mesh, keys in TRAINED:
            with self.subTest(kind, **keys):
                name, oracle = "trained-" + kind, oracle_of(kind)
                config, tensors = self.imported(name, kind, keys)
                tokens = self.corpus(name, config)
                self.must(["bagpipe", "pretrain", f"run.dir={self.at(name + '.run')}", f"corpus.train={self.at(name + '.h5')}", f"model.init={self.at(name + '.model')}", f"model.context={self.T}",
                           "model.dropout=0", *slopes.DESCENT, "train.batch=1", *mesh], ranks)
                self.must(["bagpipe-data", "export", self.at(name + ".run"), "--out", self.at(name + ".out")])
                after, w = read_tensors(os.path.join(self.at(name + ".out"), "model.safetensors")), {one: value.astype(float) for one, value in tensors.items()}
                weight = config.get("router_aux_loss_coef", 0)
                slopes.check(lambda: -oracle.logprobs(config, w, tokens).mean() + (weight and weight * oracle.balance(config, w, tokens)), w, {one: w[one] - after[one] for one in w})

    def test_experts_in_no_layer_are_refused(self):
        for k, keys in enumerate(({"decoder_sparse_step": 3}, {"mlp_only_layers": [0, 1]})):
            config = {"model_type": "qwen3_moe", **COMMON, **OF["qwen3_moe"], **keys}
            os.makedirs(self.at(f"dense{k}"))
            write_tensors(self.at(f"dense{k}/model.safetensors"), weights(config))
            self.write(f"dense{k}/config.json", json.dumps(config))
            self.assert_error(bagpipe_test.run([bagpipe_test.program("bagpipe-data"), "import", self.at(f"dense{k}"), "--out", self.at("never"), "--no-tokenizer"]), 65,
                              "[huggingface.unsupported]", "mlp_only_layers")
            self.assertFalse(os.path.exists(self.at("never")))

    def test_probabilities_are_numpys(self):
        for k, (kind, keys) in enumerate(SHAPES):
            with self.subTest(kind, **keys):
                name, oracle = f"{kind}-{k}", oracle_of(kind)
                config, tensors = self.imported(name, kind, keys)
                tokens, mine = self.scored(name, config)
                expected = oracle.logprobs(config, tensors, tokens)
                self.assertLess(numpy.abs(mine - expected).max(), 5e-5)
                self.must(["bagpipe-data", "export", self.at(name + ".model"), "--out", self.at(name + ".out")])
                written = read_tensors(os.path.join(self.at(name + ".out"), "model.safetensors"))
                again = oracle.logprobs(read_json(self.at(name + ".out"), "config.json"), written, tokens)
                self.assertLess(numpy.abs(again - expected).max(), 1e-12)

    def test_the_oracle_gives_what_the_references_have(self):
        families = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "olmo2", "smollm3", "granite", "phi3", "mixtral", "olmoe", "qwen3_moe", "llama-llama3", "llama-yarn", "llama-dynamic",
                    "opt", "opt-350m", "gptj", "bloom", "openai-gpt", "gpt_neox", "gpt2-lmhead", "mamba2")
        if bagpipe_test.shared("reference") is None:
            raise bagpipe_test.unittest.SkipTest("there is no ../shared")
        for family in families:
            with self.subTest(family):
                folder = bagpipe_test.shared(f"reference/{family}-tiny")
                config = read_json(folder, "config.json")
                tensors, expected = (read_tensors(os.path.join(folder, f"{name}.safetensors")) for name in ("model", "expected"))
                for row, logprob in zip(read_json(folder, "tokens.json")["tokens"], expected["logprob"], strict=True):
                    self.assertLess(numpy.abs(oracle_of(config["model_type"]).logprobs(config, tensors, row) - logprob).max(), 1e-6)


if __name__ == "__main__":
    bagpipe_test.main()
