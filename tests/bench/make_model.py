"""A Hugging Face folder of a real model's shape, with random weights.

    python3 tests/bench/make_model.py tinyllama-1.1b FOLDER [--dtype bf16] [--layers 2] [--shard-size 2000] [--seed 1]

Shapes: smollm-135m, qwen2-0.5b, qwen3-1.7b, gemma2-2b, llama-3.2-1b, tinyllama-1.1b, pythia-160m. The folder has config.json, model.safetensors (or shards
of at most so many MB with model.safetensors.index.json), and a byte-level BPE tokenizer.json of the model's size, whose merges
are of random tokens. --layers takes fewer layers than the real model has.

For measurements of memory and time at the sizes of real models where no weights can be had. Weights are normal, 0.02 wide, written
tensor by tensor: memory holds two copies of the largest one. Needs numpy.
"""
import argparse
import json
import os
import struct
import sys

import numpy as np

WIDTH = 0.02  # of the normal distribution


def llama(layers, width, heads, kv_heads, inner, vocab, context, theta, tied, model_type="llama", bias=False, scaling=None):
    config = {"model_type": model_type, "architectures": ["Qwen2ForCausalLM" if model_type == "qwen2" else "LlamaForCausalLM"],
              "num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
              "intermediate_size": inner, "vocab_size": vocab, "max_position_embeddings": context, "rope_theta": theta,
              "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": tied}
    if scaling:
        config["rope_scaling"] = scaling
    return config, lambda: llama_tensors(config, bias)


def llama_tensors(c, bias):
    C, I, V = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    kv = c["num_key_value_heads"] * C // c["num_attention_heads"]
    yield "model.embed_tokens.weight", (V, C)
    for k in range(c["num_hidden_layers"]):
        at = f"model.layers.{k}."
        yield at + "input_layernorm.weight", (C,)
        for name, rows in (("q", C), ("k", kv), ("v", kv)):
            yield f"{at}self_attn.{name}_proj.weight", (rows, C)
            if bias:
                yield f"{at}self_attn.{name}_proj.bias", (rows,)
        yield at + "self_attn.o_proj.weight", (C, C)
        yield at + "post_attention_layernorm.weight", (C,)
        yield at + "mlp.gate_proj.weight", (I, C)
        yield at + "mlp.up_proj.weight", (I, C)
        yield at + "mlp.down_proj.weight", (C, I)
    yield "model.norm.weight", (C,)
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (V, C)


def qwen3(layers):
    config, _ = llama(layers, 2048, 16, 8, 6144, 151936, 40960, 1000000.0, True, "qwen3")
    config.update(architectures=["Qwen3ForCausalLM"], head_dim=128, rms_norm_eps=1e-6)
    return config, lambda: heads_tensors(config, ("post_attention_layernorm",), ("self_attn.q_norm", "self_attn.k_norm"))


def gemma2(layers):
    config = {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "num_hidden_layers": layers, "hidden_size": 2304, "num_attention_heads": 8,
              "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 9216, "vocab_size": 256000, "max_position_embeddings": 8192,
              "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True, "sliding_window": 4096,
              "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    return config, lambda: heads_tensors(config, ("post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"), ())


def heads_tensors(c, norms, head_norms):
    """Heads of a width of their own, the head tied; norms of a layer, and of queries and keys."""
    C, D = c["hidden_size"], c["head_dim"]
    rows = {"q": c["num_attention_heads"] * D, "k": c["num_key_value_heads"] * D, "v": c["num_key_value_heads"] * D}
    yield "model.embed_tokens.weight", (c["vocab_size"], C)
    for k in range(c["num_hidden_layers"]):
        at = f"model.layers.{k}."
        for name in ("input_layernorm", *norms):
            yield f"{at}{name}.weight", (C,)
        for name in head_norms:
            yield f"{at}{name}.weight", (D,)
        for name, count in rows.items():
            yield f"{at}self_attn.{name}_proj.weight", (count, C)
        yield at + "self_attn.o_proj.weight", (C, rows["q"])
        yield at + "mlp.gate_proj.weight", (c["intermediate_size"], C)
        yield at + "mlp.up_proj.weight", (c["intermediate_size"], C)
        yield at + "mlp.down_proj.weight", (C, c["intermediate_size"])
    yield "model.norm.weight", (C,)


def neox(layers, width, heads, inner, vocab, context):
    config = {"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "num_hidden_layers": layers, "hidden_size": width,
              "num_attention_heads": heads, "intermediate_size": inner, "vocab_size": vocab, "max_position_embeddings": context,
              "rotary_pct": 0.25, "rotary_emb_base": 10000, "layer_norm_eps": 1e-5, "hidden_act": "gelu",
              "use_parallel_residual": True, "tie_word_embeddings": False}
    return config, lambda: neox_tensors(config)


def neox_tensors(c):
    C, I, V = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    yield "gpt_neox.embed_in.weight", (V, C)
    for k in range(c["num_hidden_layers"]):
        at = f"gpt_neox.layers.{k}."
        for name, shape in (("input_layernorm", (C,)), ("post_attention_layernorm", (C,)), ("attention.query_key_value", (3 * C, C)),
                            ("attention.dense", (C, C)), ("mlp.dense_h_to_4h", (I, C)), ("mlp.dense_4h_to_h", (C, I))):
            yield f"{at}{name}.weight", shape
            yield f"{at}{name}.bias", shape[:1]
    yield "gpt_neox.final_layer_norm.weight", (C,)
    yield "gpt_neox.final_layer_norm.bias", (C,)
    yield "embed_out.weight", (V, C)


LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
MODELS = {
    "smollm-135m": lambda n: llama(n or 30, 576, 9, 3, 1536, 49152, 2048, 10000.0, True),
    "qwen2-0.5b": lambda n: llama(n or 24, 896, 14, 2, 4864, 151936, 32768, 1000000.0, True, "qwen2", True),
    "qwen3-1.7b": lambda n: qwen3(n or 28),
    "gemma2-2b": lambda n: gemma2(n or 26),
    "llama-3.2-1b": lambda n: llama(n or 16, 2048, 32, 8, 8192, 128256, 131072, 500000.0, True, scaling=LLAMA3),
    "tinyllama-1.1b": lambda n: llama(n or 22, 2048, 32, 4, 5632, 32000, 2048, 10000.0, False),
    "pythia-160m": lambda n: neox(n or 12, 768, 12, 3072, 50304, 2048),
}
TYPES = {"f32": ("F32", "float32", 4), "f16": ("F16", "float16", 2), "bf16": ("BF16", "bfloat16", 2)}


def encode(values, dtype):
    """The bytes of float32 values in the type: the nearest, of two equally near the even one."""
    if dtype == "f32":
        return values.tobytes()
    if dtype == "f16":
        return values.astype(np.float16).tobytes()
    bits = values.view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16).tobytes()


def values_of(name, shape, random):
    if len(shape) == 2 or name.endswith("bias"):
        values = random.standard_normal(shape, dtype=np.float32)
        values *= WIDTH
        return values
    return np.ones(shape, np.float32)  # the gains of norms


def shards_of(tensors, size, limit):
    """Runs of tensors that a file of `limit` bytes holds."""
    shards, used = [[]], 0
    for name, shape in tensors:
        count = int(np.prod(shape)) * size
        if shards[-1] and used + count > limit:
            shards.append([])
            used = 0
        shards[-1].append((name, shape))
        used += count
    return shards


def write_shard(path, tensors, dtype, random):
    kind, _, size = TYPES[dtype]
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors:
        count = int(np.prod(shape)) * size
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + count]}
        at += count
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors:
            file.write(encode(values_of(name, shape, random), dtype))
    return at


def write_weights(folder, tensors, dtype, limit, random):
    shards = shards_of(tensors, TYPES[dtype][2], limit)
    if len(shards) == 1:
        return write_shard(os.path.join(folder, "model.safetensors"), shards[0], dtype, random)
    total, files = 0, {}
    for k, shard in enumerate(shards):
        file = f"model-{k + 1:05d}-of-{len(shards):05d}.safetensors"
        total += write_shard(os.path.join(folder, file), shard, dtype, random)
        files.update((name, file) for name, _ in shard)
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": files}, file, indent=2)
    return total


def byte_letters():
    """The letters that byte-level BPE writes the 256 bytes with."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, other = {byte: chr(byte) for byte in plain}, 256
    for byte in range(256):
        if byte not in letters:
            letters[byte] = chr(other)
            other += 1
    return [letters[byte] for byte in range(256)]


def make_tokenizer(size, random):
    """Byte-level BPE of `size` tokens: pairs of tokens, the first ones of letters, so that some of them are met in text."""
    tokens = byte_letters()
    known, merges = set(tokens), []
    letters = [chr(byte) for byte in range(ord("a"), ord("z") + 1)] + ["\u0120"]
    short = list(letters)
    while len(tokens) < size - 1:
        left = short[int(random.integers(len(short)))]
        right = letters[int(random.integers(len(letters)))]
        joined = left + right
        if joined in known or "\u0120" in joined[1:] or len(joined) > 12:
            continue
        known.add(joined)
        tokens.append(joined)
        short.append(joined)
        merges.append(f"{left} {right}")
    tokens.append("<|endoftext|>")
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": size - 1, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False,
                              "normalized": False, "special": True}],
            "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "vocab": {token: k for k, token in enumerate(tokens)},
                      "merges": merges}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("folder")
    parser.add_argument("--dtype", choices=sorted(TYPES), default="bf16")
    parser.add_argument("--layers", type=int, default=0, help="fewer than the real model's")
    parser.add_argument("--shard-size", type=int, default=2000, metavar="MB")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    random = np.random.default_rng(given.seed)
    config, tensors = MODELS[given.model](given.layers)
    os.makedirs(given.folder)
    end = config["vocab_size"] - 1
    config.update(torch_dtype=TYPES[given.dtype][1], bos_token_id=end, eos_token_id=end)
    with open(os.path.join(given.folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)
    with open(os.path.join(given.folder, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(make_tokenizer(config["vocab_size"], random), file, ensure_ascii=False)
    total = write_weights(given.folder, list(tensors()), given.dtype, given.shard_size * 1000000, random)
    print(f"{given.folder}: {total // TYPES[given.dtype][2]} parameters, {total} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
