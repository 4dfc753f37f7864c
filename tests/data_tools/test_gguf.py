"""GGUF files in and out: the same tensors as the Hugging Face folders of the same models, tokenizers with the same ids, and files that are refused."""
import json
import os
import struct

import numpy

import bagpipe_test
import gguf_file
from bagpipe_test import JobTest, program, read_json, run
from tensors import tensors_of

SHORT = ["train.steps=1", "train.batch=2", "corpus.valid="]
ROTARY = {"embed_tokens": "token_embd", "norm": "output_norm", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
          "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
          "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
BRANCH_NORMS = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
GEMMA = {**ROTARY, **BRANCH_NORMS, "pre_feedforward_layernorm": "ffn_norm"}
PHI3 = {"embed_tokens": "token_embd", "norm": "output_norm", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
        "self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output", "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
GPT2 = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
        "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
BERT = {"embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
        "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm", "attention.self.query": "attn_q",
        "attention.self.key": "attn_k", "attention.self.value": "attn_v", "attention.output.dense": "attn_output",
        "attention.output.LayerNorm": "attn_output_norm", "intermediate.dense": "ffn_up", "output.dense": "ffn_down",
        "output.LayerNorm": "layer_output_norm"}
# kind: names, keys of `bagpipe pretrain`, keys of files with the members of config.json.
NAMES = {"llama": ROTARY, "qwen2": ROTARY, "qwen3": ROTARY, "olmo2": {**ROTARY, **BRANCH_NORMS}, "granite": ROTARY, "smollm3": ROTARY, "gemma2": GEMMA,
         "gemma3": GEMMA, "phi3": PHI3, "gpt": GPT2, "bert": BERT}
OWN_KEYS = {"llama": ["model.kv_heads=2", "model.inner=96"], "qwen2": ["model.attention_bias=yes", "model.tied=yes"], "gpt": [], "qwen3": ["model.head_width=32"], "phi3": ["model.kv_heads=2", "model.rope_fraction=0.5", "model.window=8"],
            "olmo2": ["model.kv_heads=2"], "smollm3": [],
            "granite": ["model.embedding_multiplier=3", "model.attention_multiplier=0.2", "model.residual_multiplier=0.5", "model.logits_scaling=2"],
            "gemma2": ["model.head_width=32", "model.window=8", "model.score_cap=4", "model.logit_cap=8"],
            "gemma3": ["model.head_width=32", "model.window=8", "model.window_period=2", "model.rope_local_theta=5000", "model.rope_scaling=linear",
                       "model.rope_factor=8"]}
OWN_REALS = {"granite": {"attention.scale": "attention_multiplier", "embedding_scale": "embedding_multiplier", "residual_scale": "residual_multiplier",
                         "logit_scale": "logits_scaling"},
             "gemma2": {"attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping"},
             "gemma3": {"rope.freq_base_swa": "rope_local_base_freq"}}
WITH_PAIRS = ("llama", "granite", "smollm3")  # whose rows of queries and keys are in other order


def safetensors_of(folder):
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        head, data = json.loads(file.read(int.from_bytes(file.read(8), "little"))), file.read()
    head.pop("__metadata__", None)
    return {name: numpy.frombuffer(data[slice(*one["data_offsets"])], "<f4").reshape(one["shape"]) for name, one in head.items()}


def quantized(matrix):
    """Q8_0: a half d and 32 signed bytes a block; and what they stand for."""
    blocks = matrix.astype("f4").reshape(-1, 32)
    d = numpy.abs(blocks).max(1) / numpy.float32(127)
    scaled = blocks * numpy.where(d > 0, 1 / numpy.where(d > 0, d, 1), 0).astype("f4")[:, None]
    q = (numpy.sign(scaled) * numpy.floor(numpy.abs(scaled) + numpy.float32(0.5))).astype("i1")
    half = d.astype("<f2")
    data = b"".join(struct.pack("<e", float(h)) + row.tobytes() for h, row in zip(half, q))
    return data, (half.astype("f4")[:, None] * q.astype("f4")).reshape(matrix.shape)


class Gguf(JobTest):
    VOCABULARY = 280
    TEXT_BYTES = 6000

    KINDS = ("llama", "qwen2", "qwen3", "olmo2", "granite", "smollm3", "gemma2", "gemma3", "phi3", "gpt", "bert")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.must(["bagpipe-data", "tokenizer", "--kind", "wordpiece", "--size", 200, "--out", cls.at("pieces.json"), cls.at("train.txt")])
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("pieces.json"), "--format", "lines", "--out", cls.at("pieces.h5"), cls.at("train.txt")])
        for kind, keys in {**OWN_KEYS, "bert": [f"corpus.train={cls.at('pieces.h5')}", "mask.next_sentence=no"]}.items():
            cls.must(["bagpipe", "pretrain", cls.at("small.ini"), "run.dir=" + cls.at(kind), "model.kind=" + kind.replace("qwen2", "llama"), "model.layers=2", "model.width=64",
                      "model.heads=4", *SHORT, *keys])
            cls.must(["bagpipe-data", "export", cls.at(kind), "--out", cls.at(kind + "-folder"), "--no-tokenizer"])
            cls.must(["bagpipe-data", "import", cls.at(kind + "-folder"), "--out", cls.at(kind + "-folder-in"), "--no-tokenizer"])

    def digests_of(self, folder):
        return {tensor["name"]: tensor["digest"] for tensor in read_json(folder, "manifest.json")["tensors"]}

    def assert_same_tensors(self, kind, mine, plain, out, folder=None):
        """Bit by bit; norms that files keep with 1 added within what the sum rounds."""
        if kind.startswith("gemma"):
            a, b = tensors_of(out), tensors_of(folder or self.at(kind + "-folder-in"))
            for name in [name for name in plain if name.endswith(".gain")]:
                self.assertLess(numpy.abs(a[name] - b[name]).max(), 1.2e-7, name)
                mine, plain = [{key: value for key, value in one.items() if key != name} for one in (mine, plain)]
        self.assertEqual(mine, plain)

    def parts(self, kind):
        """Keys and {name: matrix} of a folder's model, as llama.cpp's converter lays them out."""
        config, folder = read_json(self.at(kind + "-folder"), "config.json"), safetensors_of(self.at(kind + "-folder"))
        names = NAMES[kind]
        tensors, architecture = {}, "gpt2" if kind == "gpt" else kind
        for name, matrix in folder.items():
            base, end = name.rsplit(".", 1)
            base = base.removeprefix("model.").removeprefix("transformer.").removeprefix("bert.")
            layer = next((part for part in base.split(".") if part.isdigit()), None)
            if layer is not None:
                base = base.split(layer + ".", 1)[1]
            if base == "lm_head":
                tensors["output.weight"] = matrix
                continue
            if base not in names:
                self.assertTrue(base.startswith(("cls.", "pooler.")), name)
                continue
            theirs = names[base]
            if kind == "gpt" and base.startswith(("attn.", "mlp.")) and matrix.ndim == 2:
                matrix = matrix.T
            if kind.startswith("gemma") and "norm" in theirs:
                matrix = matrix + numpy.float32(1)
            if kind in WITH_PAIRS and theirs in ("attn_q", "attn_k"):
                heads = config["num_attention_heads" if theirs == "attn_q" else "num_key_value_heads"]
                matrix = matrix.reshape(heads, 2, -1, matrix.shape[1]).swapaxes(1, 2).reshape(matrix.shape)
            tensors[("" if layer is None else f"blk.{layer}.") + f"{theirs}.{end}"] = numpy.ascontiguousarray(matrix)
        of = {"gpt2": ("n_positions", "n_embd", "n_layer", "n_head")}.get(
            architecture, ("max_position_embeddings", "hidden_size", "num_hidden_layers", "num_attention_heads"))
        keys = {"general.architecture": architecture, **{f"{architecture}.{key}": ("u32", config[name]) for key, name in zip(
            ("context_length", "embedding_length", "block_count", "attention.head_count"), of)}}
        if "intermediate_size" in config:
            keys[f"{architecture}.feed_forward_length"] = ("u32", config["intermediate_size"])
        keys.update({f"{kind}.{key}": ("f32", config[name]) for key, name in OWN_REALS.get(kind, {}).items()})
        if kind.startswith("gemma") or kind == "phi3":
            keys[f"{kind}.attention.sliding_window"] = ("u32", 8)
        if kind == "gemma3":
            keys.update({"gemma3.attention.sliding_window_pattern": ("u32", 2), "gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": ("f32", 8.0)})
        if architecture not in ("gpt2", "bert"):
            keys.update({f"{architecture}.attention.head_count_kv": ("u32", config["num_key_value_heads"]),
                         f"{architecture}.attention.layer_norm_rms_epsilon": ("f32", config["rms_norm_eps"]),
                         f"{architecture}.rope.freq_base": ("f32", config["rope_theta"]),
                         f"{architecture}.rope.dimension_count": ("u32", int((config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]) *
                                                                              (config.get("partial_rotary_factor") or 1)))})
            if config.get("head_dim"):
                keys.update({f"{architecture}.attention.{part}_length": ("u32", config["head_dim"]) for part in ("key", "value")})
        else:
            keys[f"{architecture}.attention.layer_norm_epsilon"] = ("f32", config.get("layer_norm_eps", config.get("layer_norm_epsilon")))
        return keys, tensors

    def made(self, name, keys, tensors, kind=gguf_file.F32, **more):
        """The file, matrices of a type, and what they stand for."""
        listed, stands = [], {}
        for tensor, matrix in tensors.items():
            own = kind if matrix.ndim == 2 else gguf_file.F32
            if own == gguf_file.Q8_0 and matrix.shape[1] % 32 == 0:
                data, stands[tensor] = quantized(matrix)
            elif own == gguf_file.BF16:
                bits = matrix.astype("<f4").view("<u4")
                stands[tensor] = (bits & 0xFFFF0000).view("<f4")
                data = (bits >> 16).astype("<u2").tobytes()
            else:
                own = gguf_file.F16 if own == gguf_file.Q8_0 else own
                form = "<f2" if own == gguf_file.F16 else "<f4"
                data, stands[tensor] = matrix.astype(form).tobytes(), matrix.astype(form).astype("f4")
            listed.append((tensor, matrix.shape, own, data))
        with open(self.at(name), "wb") as file:
            file.write(gguf_file.file_bytes(keys, listed, **more))
        return self.at(name), stands

    def imported(self, path, *more):
        out = path + "-in"
        return out, self.must(["bagpipe-data", "import", path, "--out", out, *more])

    def test_a_file_of_float32_is_the_folder(self):
        for kind in self.KINDS:
            with self.subTest(kind):
                keys, tensors = self.parts(kind)
                path, _ = self.made(kind + ".gguf", keys, tensors)
                plain = self.digests_of(self.at(kind + "-folder-in"))
                out, _ = self.imported(path)
                mine = self.digests_of(out)
                if kind == "bert":
                    plain = {name: digest for name, digest in plain.items() if name in mine}
                self.assert_same_tensors(kind, mine, plain, out)
                self.assertGreater(len(mine), 19)
                shapes = [read_json(folder, "state.json")["model"] if os.path.exists(os.path.join(folder, "state.json")) else
                          read_json(folder, "manifest.json")["state"]["model"] for folder in (out, self.at(kind + "-folder-in"))]
                self.assertEqual(*[{key: value for key, value in shape.items() if key != "pooler"} for shape in shapes])

    def exported(self, model, name, *more):
        path = self.at(name)
        return path, self.must(["bagpipe-data", "export", model, "--out", path, "--form", "gguf", *more])

    def test_what_is_exported_is_read_again_to_equal_values(self):
        """And by a reader of its own; bytes of Q8_0 are those of the definition."""
        for kind in self.KINDS:
            keys, tensors = self.parts(kind)
            for form in ("f32", "f16", "q8_0") if kind in ("llama", "gpt", "bert") else ("f32",):  # halves and blocks are of rows, whoever has them
                with self.subTest(kind, form=form):
                    path, result = self.exported(self.at(kind), f"{kind}-{form}.gguf", "--type", form)
                    self.assertEqual("left out" in str(result), kind == "bert")
                    theirs = gguf_file.Reader(path)
                    self.assertEqual(set(theirs.tensors), set(tensors))
                    for key, value in keys.items():
                        self.assertEqual(theirs.keys[key], value if isinstance(value, str) else numpy.float32(value[1]) if value[0] == "f32" else value[1], key)
                    for name, matrix in tensors.items():
                        shape, own, data = theirs.tensors[name]
                        self.assertEqual(shape, matrix.shape)
                        plain = matrix.ndim == 1 or name.startswith(("position_embd", "token_types"))
                        block = form == "q8_0" and matrix.shape[-1] % 32 == 0
                        self.assertEqual(own, gguf_file.F32 if plain or form == "f32" else gguf_file.Q8_0 if block else gguf_file.F16, name)
                        self.assertEqual(data, quantized(matrix)[0] if own == gguf_file.Q8_0 else matrix.astype("<f2" if own == gguf_file.F16 else "<f4").tobytes())
                    out, _ = self.imported(path)
                    if form == "f32":
                        mine, plain = self.digests_of(out), self.digests_of(self.at(kind + "-folder-in"))
                        self.assert_same_tensors(kind, mine, {name: plain[name] for name in mine}, out)
                    again, _ = self.exported(out, f"{kind}-{form}-again.gguf", "--type", form)
                    self.assertEqual({name: one[1:] for name, one in gguf_file.Reader(again).tensors.items()},
                                     {name: one[1:] for name, one in theirs.tensors.items()})
                    if kind != "bert" and form == "f32":
                        ids = [self.must(["bagpipe-data", "encode", "--tokenizer", file, "the ship, 12 caf\u00e9s"]).out
                               for file in (self.at("tokenizer.json"), os.path.join(out, "tokenizer.json"))]
                        self.assertEqual(*ids)
        self.assert_error(run([program("bagpipe-data"), "export", self.at("gpt"), "--out", self.at("never"), "--type", "f16"]), 64, "[command.exclusive]")
        self.assert_error(run([program("bagpipe-data"), "export", self.at("gpt"), "--out", self.at("never"), "--form", "ggml"]), 64, "[command.bad_form]")
        self.assert_error(run([program("bagpipe-data"), "export", self.at("gpt"), "--out", self.at("never"), "--form", "gguf", "--type", "q4"]), 64,
                          "[command.bad_dtype]")

    def test_heads_are_tied_or_not_as_the_model_is(self):
        """And a file of gpt2 whose head is the table of tokens again is tied: older converters wrote such."""
        for kind in self.KINDS:
            for tied in ("yes" if "output.weight" in self.parts(kind)[1] else "no",) if kind != "bert" else ():  # the other one than in the other tests
                with self.subTest(kind, tied=tied):
                    model = self.at(f"{kind}-tied-{tied}")
                    self.must(["bagpipe", "pretrain", self.at("small.ini"), "run.dir=" + model, "model.kind=" + kind.replace("qwen2", "llama"), "model.layers=2", "model.width=64", "model.heads=4",
                               *SHORT, *[key for key in OWN_KEYS[kind] if "tied" not in key], "model.tied=" + tied])
                    if kind == "gemma2" and tied == "no":  # llama.cpp's has no such tensor
                        self.assert_error(run([program("bagpipe-data"), "export", model, "--out", self.at("never.gguf"), "--form", "gguf"]), 65, "[gguf.no_counterpart]", "lm_head.weight")
                        continue
                    path, _ = self.exported(model, f"{kind}-tied-{tied}.gguf", "--type", "f32")
                    file = gguf_file.Reader(path)
                    self.assertEqual("output.weight" in file.tensors, tied == "no")
                    out, _ = self.imported(path)
                    self.must(["bagpipe-data", "export", model, "--out", model + "-folder"])
                    self.must(["bagpipe-data", "import", model + "-folder", "--out", model + "-folder-in"])
                    self.assert_same_tensors(kind, self.digests_of(out), self.digests_of(model + "-folder-in"), out, model + "-folder-in")
        keys, tensors = self.parts("gpt")
        path, _ = self.made("twice.gguf", keys, {**tensors, "output.weight": tensors["token_embd.weight"]})
        self.assert_same_tensors("gpt", self.digests_of(self.imported(path)[0]), self.digests_of(self.at("gpt-folder-in")), path)

    def test_an_encoder_keeps_how_its_vectors_are_made(self):
        """A file of BERT has no head: what is made of it is a base class, written and read again."""
        keys, tensors = self.parts("bert")
        for number, pool in ((1, "mean"), (2, "first"), (3, "last")):
            path, _ = self.made(f"pool-{pool}.gguf", {**keys, "bert.pooling_type": ("u32", number)}, tensors)
            out, result = self.imported(path)
            self.assertIn("head: none", str(result))
            state = read_json(out, "manifest.json")["state"]
            self.assertEqual((state["vectors"], state["headless"]), ({"pool": pool}, True))
            again, _ = self.exported(out, f"pool-{pool}-again.gguf", "--type", "f32")
            self.assertEqual(gguf_file.Reader(again).keys["bert.pooling_type"], number)
            self.assertEqual({name: one[2] for name, one in gguf_file.Reader(again).tensors.items()},
                             {name: one[2] for name, one in gguf_file.Reader(path).tensors.items()})

    def test_what_layers_are_is_said_or_refused(self):
        for kind, change, wanted in (("gemma2", {"gemma2.attention.sliding_window_pattern": ("bool", [True, False])}, None),
                                     ("gemma2", {"gemma2.attention.sliding_window_pattern": ("u32", 0)}, "gguf.bad_key"),
                                     ("gemma3", {"gemma3.attention.sliding_window_pattern": ("i32", [1, 0])}, "gguf.bad_key"),
                                     ("gemma2", {"gemma2.attn_logit_softcapping": ("bool", True)}, "gguf.bad_key"),
                                     ("smollm3", {"smollm3.attention.sliding_window_pattern": ("u32", 2)}, "gguf.unknown_key")):
            keys, tensors = self.parts(kind)
            path, _ = self.made("layers.gguf", {**keys, **change}, tensors)
            if wanted:
                self.assert_error(run([program("bagpipe-data"), "import", path, "--out", self.at("never")]), 65, f"[{wanted}]")
            else:
                model = read_json(self.imported(path)[0], "manifest.json")["state"]["model"]
                self.assertEqual(model, read_json(self.at(kind + "-folder-in"), "manifest.json")["state"]["model"])
        for kind, keys in (("gemma2", ["model.score_width=20"]), ("gemma3", ["model.score_cap=4"]), ("smollm3", ["model.rope_period=2"])):
            name = f"{kind}-other"
            self.must(["bagpipe", "pretrain", self.at("small.ini"), "run.dir=" + self.at(name), "model.kind=" + kind, "model.layers=2", "model.width=64",
                       "model.heads=4", *SHORT, *OWN_KEYS[kind], *keys])
            self.assert_error(run([program("bagpipe-data"), "export", self.at(name), "--out", self.at("never.gguf"), "--form", "gguf"]), 65,
                              "[gguf.no_counterpart]")

    def test_scaled_positions_are_written_and_read_again(self):
        """Of llama3 and longrope as the factors by which frequencies are divided; llama3's from its formula."""
        short, long = [1 + 0.125 * k for k in range(8)], [1 + 0.5 * k for k in range(8)]
        lists = [f"model.rope_{name}_factors={','.join(map(str, values))}" for name, values in (("short", short), ("long", long))]
        llama3 = ["model.rope_scaling=llama3", "model.rope_factor=8", "model.rope_low_freq_factor=1", "model.rope_high_freq_factor=4", "model.rope_original_context=16"]
        yarn, longrope = ["model.rope_scaling=yarn", "model.rope_factor=4", "model.rope_original_context=8"], ["model.rope_scaling=longrope", "model.rope_original_context=16", *lists]
        turns = 16 / (2 * numpy.pi) * 10000.0 ** (-numpy.arange(8) / 8)
        share = numpy.clip((turns - 1) / 3, 0, 1)
        for kind, keys, factors in (("llama", llama3, {"rope_freqs": 1 / (share + (1 - share) / 8)}), ("qwen3", yarn, {}),
                                    ("phi3", longrope, {"rope_factors_short": short, "rope_factors_long": long}), ("llama", longrope, {"rope_factors_short": short, "rope_factors_long": long})):
            name = f"{kind}-{keys[0][-6:]}"
            with self.subTest(name):
                self.must(["bagpipe", "pretrain", self.at("small.ini"), "run.dir=" + self.at(name), "model.kind=" + kind, "model.layers=1", "model.width=64", "model.heads=4", *SHORT, *keys])
                path, _ = self.exported(self.at(name), name + ".gguf", "--type", "f32")
                theirs = gguf_file.Reader(path)
                self.assertEqual({tensor[:-7] for tensor in theirs.tensors if tensor.startswith("rope_")}, set(factors))
                self.assertEqual(theirs.keys.get(f"{kind}.rope.scaling.type"), {"llama3": None}.get(keys[0].split("=")[1], keys[0].split("=")[1]))
                for tensor, values in factors.items():
                    numpy.testing.assert_allclose(numpy.frombuffer(theirs.tensors[tensor + ".weight"][2], "<f4"), values, rtol=1e-6)
                out, _ = self.imported(path)
                self.must(["bagpipe-data", "export", self.at(name), "--out", self.at(name + "-folder")])
                self.must(["bagpipe-data", "import", self.at(name + "-folder"), "--out", self.at(name + "-folder-in")])
                self.assertEqual(*[read_json(folder, "manifest.json")["state"]["model"] for folder in (out, self.at(name + "-folder-in"))])
        keys, tensors = self.parts("llama")
        odd = numpy.array([1, 1, 2, 1.5, 3, 3, 5, 7.25], "f4")
        model = read_json(self.imported(self.made("odd.gguf", keys, {**tensors, "rope_freqs.weight": odd})[0])[0], "manifest.json")["state"]["model"]
        self.assertEqual((model["rope_scaling"], model["rope_short_factors"], model["rope_long_factors"], model["rope_attention_factor"]), ("longrope", odd.tolist(), odd.tolist(), 1))
        for number, (kind, keys) in enumerate((("llama", ["model.rope_scaling=dynamic", "model.rope_factor=2"]), ("llama", [*yarn, "model.rope_beta_fast=16"]),
                                               ("llama", [*longrope, "model.rope_factor=3"]), ("qwen3", llama3), ("olmo2", longrope), ("phi3", llama3))):
            self.must(["bagpipe", "pretrain", self.at("small.ini"), "run.dir=" + self.at(f"no-{number}"), "model.kind=" + kind, "model.layers=1", "model.width=64", "model.heads=4", *SHORT, *keys])
            self.assert_error(run([program("bagpipe-data"), "export", self.at(f"no-{number}"), "--out", self.at("never.gguf"), "--form", "gguf"]), 65, "[gguf.no_counterpart]",
                              keys[0].split("=")[1])

    def test_a_run_keeps_the_type_that_its_file_was_of(self):
        keys, tensors = self.parts("qwen2")
        out, _ = self.imported(self.made("qwen2-run.gguf", keys, tensors)[0])
        self.must(["bagpipe", "pretrain", self.at("small.ini"), "run.dir=" + self.at("run"), "model.init=" + out, "model.kind=llama", "model.layers=2", "model.width=64",
                   "model.heads=4", *SHORT])
        for model, name in ((out, "of-file"), (self.at("run"), "of-run")):
            self.must(["bagpipe-data", "export", model, "--out", self.at(name), "--no-tokenizer"])
            self.assertEqual(read_json(self.at(name), "config.json")["model_type"], "qwen2")

    def test_ids_without_a_token_are_unused(self):
        """llama.cpp wants a name for each row of the table of tokens."""
        first, _ = self.exported(self.at("llama"), "full.gguf", "--type", "f32")
        keys, tensors = self.parts("llama")
        rows = tensors["token_embd.weight"].shape[0]
        for name in ("token_embd.weight", "output.weight"):
            tensors[name] = numpy.concatenate([tensors[name], numpy.zeros((5, 64), "f4")])
        names = gguf_file.Reader(first).keys["tokenizer.ggml.tokens"]
        own = {**keys, **self.keys_of_tokens(names + [f"[PAD{k}]" for k in range(rows, rows + 5)], [5] * 5)}
        out, _ = self.imported(self.made("padded.gguf", own, tensors)[0])
        ids = [self.must(["bagpipe-data", "encode", "--tokenizer", file, "the ship [PAD281] 12"]).out
               for file in (self.at("tokenizer.json"), os.path.join(out, "tokenizer.json"))]
        self.assertEqual(*ids)
        again = gguf_file.Reader(self.exported(out, "padded-again.gguf")[0]).keys
        self.assertEqual(again["tokenizer.ggml.tokens"], names + [f"[PAD{k}]" for k in range(rows, rows + 5)])
        self.assertEqual(again["tokenizer.ggml.token_type"][-6:], [3, 5, 5, 5, 5, 5])
        none = gguf_file.Reader(self.exported(out, "none.gguf", "--no-tokenizer")[0]).keys
        self.assertEqual((none["tokenizer.ggml.model"], none["llama.vocab_size"]), ("none", rows + 5))

    def keys_of_tokens(self, names, last_types=(), pre="gpt-2"):
        root = read_json(self.at("tokenizer.json"))
        specials = {one["content"] for one in root["added_tokens"]}
        types = [3 if name in specials else 1 for name in names]
        types[len(types) - len(last_types):] = last_types
        end = names.index("<|endoftext|>")
        return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": ("str", names), "tokenizer.ggml.token_type": ("i32", types),
                "tokenizer.ggml.merges": ("str", [one if isinstance(one, str) else " ".join(one) for one in root["model"]["merges"]]),
                "tokenizer.ggml.eos_token_id": ("u32", end), "tokenizer.ggml.bos_token_id": ("u32", end)}

    def test_a_file_that_does_not_say_how_texts_begin(self):
        """llama.cpp's default of the kind of tokenizer."""
        keys, tensors = self.parts("llama")
        names = gguf_file.Reader(self.exported(self.at("llama"), "begin.gguf")[0]).keys["tokenizer.ggml.tokens"]
        for pre, begins in (("gpt-2", False), ("llama-bpe", True)):
            own = self.keys_of_tokens(names, pre=pre)
            out, _ = self.imported(self.made(f"begin-{pre}.gguf", {**keys, **own}, tensors)[0])
            again = gguf_file.Reader(self.exported(out, f"begin-{pre}-again.gguf")[0]).keys
            self.assertEqual(again["tokenizer.ggml.add_bos_token"], begins)

    def test_a_name_that_is_not_utf8_is_written_as_such(self):
        path, _ = self.exported(self.at("gpt"), "a-\udcff.gguf", "--no-tokenizer")
        self.assertEqual(gguf_file.Reader(path).keys["general.name"], "a-\\xFF.gguf")

    def test_other_types_and_forms(self):
        keys, tensors = self.parts("llama")
        plain = None
        for number, (kind, more) in enumerate(((gguf_file.F16, {}), (gguf_file.BF16, {"version": 2}), (gguf_file.Q8_0, {}), (gguf_file.F16, {"alignment": 256}))):
            with self.subTest(kind, **more):
                own = {**keys, "general.alignment": ("u32", more["alignment"])} if "alignment" in more else keys
                path, stands = self.made(f"type-{number}.gguf", own, tensors, kind, **more)
                mine = tensors_of(self.imported(path)[0])
                self.assertTrue(numpy.array_equal(mine["wte"], stands["token_embd.weight"]))
                self.assertTrue(numpy.array_equal(mine["h.1.mlp.down.weight"], stands["blk.1.ffn_down.weight"]))
                turned = stands["blk.0.attn_q.weight"].reshape(4, 8, 2, 64).swapaxes(1, 2).reshape(64, 64)
                self.assertTrue(numpy.array_equal(mine["h.0.attn.q.weight"], turned))
                self.assertTrue(numpy.array_equal(mine["ln_f.gain"], stands["output_norm.weight"]))

    def test_what_is_not_known_is_refused_by_name(self):
        keys, tensors = self.parts("llama")
        square = numpy.zeros((64, 64), "f4")
        for name, change, more, code, word in (
                ("key", {"llama.attention.clamp_kqv": ("f32", 8.0)}, {}, "gguf.unknown_key", "clamp_kqv"),
                ("experts", {"llama.expert_count": ("u32", 8)}, {}, "gguf.unknown_key", "expert_count"),
                ("scaling", {"llama.rope.scaling.type": "yarn"}, {}, "gguf.unknown_key", "yarn"),
                ("attention", {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": ("f32", 4.0), "llama.rope.scaling.attn_factor": ("f32", 2.0)}, {},
                 "gguf.unknown_key", "attention"),
                ("attention-alone", {"llama.rope.scaling.attn_factor": ("f32", 2.0)}, {}, "gguf.unknown_key", "attention"),
                ("attention-freqs", {"llama.rope.scaling.attn_factor": ("f32", 2.0)}, {"rope_freqs.weight": square[0, :8] + 1}, "gguf.unknown_key", "attention"),
                ("scalings", {"llama.rope.scaling.type": "linear"}, {"rope_freqs.weight": square[0, :8] + 1}, "gguf.unknown_key", "linear"),
                ("pairs", {}, {"rope_freqs.weight": square[0] + 1}, "gguf.bad_tensor", "rope_freqs"),
                ("factors", {}, {"rope_freqs.weight": square[0, :8]}, "gguf.bad_tensor", "factor 0"),
                ("long", {}, {"rope_factors_long.weight": square[0, :8] + 1}, "gguf.unknown_key", "missing"),
                ("context", {}, {f"rope_factors_{k}.weight": square[0, :8] + 1 for k in ("long", "short")}, "gguf.unknown_key", "original context"),
                ("lists", {"llama.feed_forward_length": ("u32", [96, 96])}, {}, "gguf.bad_key", "list"),
                ("partial", {"llama.rope.dimension_count": ("u32", 8)}, {}, "gguf.bad_key", "dimension_count"),
                ("rows", {"llama.vocab_size": ("u32", 7)}, {}, "gguf.bad_key", "vocab_size"),
                ("architecture", {"general.architecture": "rwkv6"}, {}, "gguf.unknown_architecture", "rwkv6"),
                ("adapter", {"general.type": "adapter"}, {}, "gguf.no_model", "adapter"),
                ("split", {"split.count": ("u16", 3)}, {}, "gguf.split", "3 parts"),
                ("tensor", {}, {"blk.0.attn_sinks.weight": square}, "gguf.unknown_tensor", "attn_sinks"),
                ("bias", {}, {"blk.0.attn_q.bias": square[0]}, "gguf.unknown_tensor", "q_proj.bias"),
                ("shape", {}, {"blk.0.ffn_up.weight": square}, "huggingface.wrong_shape", "up_proj"),
                ("tokenizer", {"tokenizer.ggml.model": "rwkv", "tokenizer.ggml.tokens": ("str", ["a"])}, {}, "gguf.unknown_tokenizer", "--tokenizer")):
            with self.subTest(name):
                path, _ = self.made(f"no-{name}.gguf", {**keys, **change}, {**tensors, **more})
                self.assert_error(run([program("bagpipe-data"), "import", path, "--out", self.at("never")]), 65, f"[{code}]", word)

    def test_unsound_files_are_refused(self):
        keys, tensors = self.parts("llama")
        path, _ = self.made("sound.gguf", keys, tensors)
        with open(path, "rb") as file:
            sound = file.read()
        first = sound.index(b"token_embd.weight") + len(b"token_embd.weight")

        def changed(at, form, *values):
            return sound[:at] + struct.pack("<" + form, *values) + sound[at + struct.calcsize("<" + form):]

        second = sound.index(b"output_norm.weight") + len(b"output_norm.weight") + 4 + 8 + 4
        cases = {"version": (changed(4, "I", 1), "unknown_version"), "big-endian": (changed(4, ">I".replace(">", ""), 3 << 24), "unknown_version"),
                 "tensors": (changed(8, "Q", 1 << 40), "damaged"), "keys": (changed(16, "Q", 1 << 63), "damaged"),
                 "string": (changed(24, "Q", 1 << 62), "damaged"), "type": (changed(first + 20, "I", 2), "other_type"),
                 "dimensions": (changed(first, "I", 5), "damaged"), "size": (changed(first + 4, "QQ", 1 << 40, 1 << 40), "damaged"),
                 "offset": (changed(first + 24, "Q", 33), "damaged"), "far": (changed(first + 24, "Q", 1 << 62), "damaged"),
                 "overlap": (changed(second, "Q", 0), "bad_tensor"), "longer": (sound + bytes(64), "too_long"), "cut": (sound[:-64], "damaged|bad_tensor"),
                 "twice": (sound.replace(b"blk.0.attn_q", b"blk.0.attn_k"), "bad_tensor"), "not-utf8": (sound.replace(b"general.arch", b"general.a\xff\xfeh"), "damaged"),
                 "not-finite": (sound[:-4] + b"\0\0\xc0\x7f", None)}
        for length in (3, 4, 8, 23, 40, first + 3):
            cases[f"head-{length}"] = (sound[:length], "truncated|damaged" if length >= 4 else "other_kind")
        for name, (content, codes) in cases.items():
            with self.subTest(name):
                with open(self.at("bad.gguf"), "wb") as file:
                    file.write(content)
                result = run([program("bagpipe-data"), "import", self.at("bad.gguf"), "--out", self.at("never")])
                wanted = ["[safetensors.not_finite]"] if codes is None else ["[import.other_kind]"] if codes == "other_kind" else \
                    [f"[gguf.{code}]" for code in codes.split("|")]
                self.assertEqual(result.status, 65, str(result))
                self.assertTrue(any(code in str(result) for code in wanted), str(result))

    def test_a_tokenizer_of_bytes_has_the_same_ids(self):
        root = read_json(self.at("tokenizer.json"))
        names = sorted(root["model"]["vocab"], key=root["model"]["vocab"].get)
        names += [one["content"] for one in sorted(root["added_tokens"], key=lambda one: one["id"]) if one["content"] not in names]
        specials = {one["content"] for one in root["added_tokens"]}
        merges = [one if isinstance(one, str) else " ".join(one) for one in root["model"]["merges"]]
        keys, tensors = self.parts("llama")
        tokens = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": ("str", names),
                  "tokenizer.ggml.token_type": ("i32", [3 if name in specials else 1 for name in names]), "tokenizer.ggml.merges": ("str", merges),
                  "tokenizer.ggml.eos_token_id": ("u32", names.index("<|endoftext|>")), "tokenizer.ggml.bos_token_id": ("u32", names.index("<|endoftext|>")),
                  "tokenizer.ggml.add_bos_token": ("bool", False)}
        path, _ = self.made("bytes.gguf", {**keys, **tokens}, tensors)
        out, result = self.imported(path)
        self.assertIn("tokenizer: bpe", str(result))
        texts = ["the ship was at sea", "  12 caf\u00e9s\n\n\u4e2d <|endoftext|>"]
        encoded = [self.must(["bagpipe-data", "encode", "--tokenizer", file, *texts]).out for file in (self.at("tokenizer.json"), os.path.join(out, "tokenizer.json"))]
        self.assertEqual(*encoded)
        path, _ = self.made("pre.gguf", {**keys, **tokens, "tokenizer.ggml.pre": "tekken"}, tensors)
        self.assert_error(run([program("bagpipe-data"), "import", path, "--out", self.at("never")]), 65, "[gguf.unknown_pattern]", "tekken")
        path, _ = self.made("short.gguf", {**keys, **tokens, "tokenizer.ggml.token_type": ("i32", [1])}, tensors)
        self.assert_error(run([program("bagpipe-data"), "import", path, "--out", self.at("never")]), 65, "[gguf.bad_tokenizer]")

    def test_a_tokenizer_of_words_has_the_same_ids(self):
        root = read_json(self.at("pieces.json"))
        names = sorted(root["model"]["vocab"], key=root["model"]["vocab"].get)
        special = {one["content"] for one in root["added_tokens"]}
        theirs = [name if name in special else name[2:] if name.startswith("##") else "\u2581" + name for name in names]
        keys, tensors = self.parts("bert")
        path, _ = self.made("words.gguf", {**keys, "tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": ("str", theirs),
                                           "tokenizer.ggml.cls_token_id": ("u32", names.index("[CLS]")), "tokenizer.ggml.seperator_token_id": ("u32", names.index("[SEP]"))},
                            tensors)
        out, result = self.imported(path)
        self.assertIn("tokenizer: wordpiece", str(result))
        texts = ["the ship was at sea", "unknown \u4e2d words, and more"]
        encoded = [self.must(["bagpipe-data", "encode", "--tokenizer", file, *texts]).out for file in (self.at("pieces.json"), os.path.join(out, "tokenizer.json"))]
        self.assertEqual(*encoded)


if __name__ == "__main__":
    bagpipe_test.main()
