"""Hybrids of state-space layers and attention (Granite 4.0's and Bamba), against numpy in float64: log-probabilities, generation, folders that come back with equal
bytes; losses of training on every mesh, a run that goes on on another one, and what is refused."""
import json
import os
import pathlib

import bagpipe_test
from bagpipe_test import JobTest, digests, metrics, read_json, timeless

try:
    import numpy
    from t5_numpy import read_tensors, write_tensors
except ImportError:
    numpy = None

V, C, H, G, F, HEADS, P, N, GROUPS, K = 61, 24, 4, 2, 20, 6, 8, 5, 2, 4
INNER, BC = HEADS * P, 2 * GROUPS * N
TYPES = ["mamba", "attention", "mamba", "attention", "mamba"]
CONFIG = {"model_type": "granitemoehybrid", "architectures": ["GraniteMoeHybridForCausalLM"], "vocab_size": V, "hidden_size": C, "num_hidden_layers": len(TYPES),
          "num_attention_heads": H, "num_key_value_heads": G, "hidden_act": "silu", "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 300.0,
          "rope_scaling": None, "tie_word_embeddings": True, "attention_bias": False, "attention_dropout": 0.0, "embedding_multiplier": 3.0,
          "logits_scaling": 1.5, "residual_multiplier": 0.7, "attention_multiplier": 0.6, "num_local_experts": 0, "num_experts_per_tok": 0,
          "shared_intermediate_size": F, "intermediate_size": 999, "position_embedding_type": "nope", "layer_types": TYPES, "mamba_n_heads": HEADS,
          "mamba_n_groups": GROUPS, "mamba_d_state": N, "mamba_d_head": P, "mamba_d_conv": K, "mamba_expand": 2, "mamba_chunk_size": 256,
          "mamba_conv_bias": True, "mamba_proj_bias": False, "eos_token_id": 0}
SMALL = ["model.kind=granite_hybrid", "model.layers=4", "model.attention_layers=2,3", "model.kv_heads=2", "model.inner=44", "model.state=8", "model.groups=2",
         "model.state_heads=8", "model.state_head_width=6", "model.residual_multiplier=0.8", "model.dropout=0.1", "train.steps=6"]


# Bamba's: without multipliers, other names, and positions that turn half of a head of 8.
BAMBA = {"model_type": "bamba", "architectures": ["BambaForCausalLM"], "vocab_size": V, "hidden_size": C, "num_hidden_layers": len(TYPES), "num_attention_heads": 3,
         "num_key_value_heads": 1, "hidden_act": "silu", "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 300.0, "rope_scaling": None,
         "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0, "intermediate_size": F, "attn_layer_indices": [1, 3],
         "partial_rotary_factor": 0.5, "mamba_n_heads": HEADS, "mamba_n_groups": GROUPS, "mamba_d_state": N, "mamba_d_head": P, "mamba_d_conv": K, "mamba_expand": 2,
         "mamba_chunk_size": 256, "mamba_conv_bias": True, "mamba_proj_bias": False, "eos_token_id": 0}
BAMBA_NAMES = {"model.norm.weight": "model.final_layernorm.weight", "post_attention_layernorm": "pre_ff_layernorm", "shared_mlp.output_linear": "feed_forward.down_proj"}


def sizes_of(config):
    """Heads, those of keys, their width, and how much of it positions turn."""
    heads, width = config["num_attention_heads"], C // config["num_attention_heads"]
    return heads, config["num_key_value_heads"], width, int(width * config.get("partial_rotary_factor", 1))


def as_bamba(tensors):
    out = {}
    for name, value in tensors.items():
        if "shared_mlp.input_linear" in name:
            for part, rows in (("gate_proj", value[:F]), ("up_proj", value[F:])):
                out[name.replace("shared_mlp.input_linear", "feed_forward." + part)] = rows
            continue
        for theirs, own in BAMBA_NAMES.items():
            name = name.replace(theirs, own)
        out[name] = value
    return {name: out[name] for name in sorted(out)}


def weights(config):
    draw = numpy.random.default_rng(11)
    H, G, D, _ = sizes_of(config)
    out = {"model.embed_tokens.weight": draw.normal(0, 0.5, (V, C)), "model.norm.weight": draw.normal(1, 0.1, C)}
    if not config["tie_word_embeddings"]:
        out["lm_head.weight"] = draw.normal(0, 0.5, (V, C))
    for k, kind in enumerate(config["layer_types"]):
        layer = {"input_layernorm.weight": draw.normal(1, 0.1, C), "post_attention_layernorm.weight": draw.normal(1, 0.1, C),
                 "shared_mlp.input_linear.weight": draw.normal(0, 0.3, (2 * F, C)), "shared_mlp.output_linear.weight": draw.normal(0, 0.3, (C, F))}
        if kind == "attention":
            for name, rows, columns in (("q", H * D, C), ("k", G * D, C), ("v", G * D, C), ("o", C, H * D)):
                layer[f"self_attn.{name}_proj.weight"] = draw.normal(0, 0.3, (rows, columns))
        else:
            layer.update({"mamba.in_proj.weight": draw.normal(0, 0.3, (2 * INNER + BC + HEADS, C)), "mamba.out_proj.weight": draw.normal(0, 0.3, (C, INNER)),
                          "mamba.conv1d.weight": draw.normal(0, 0.5, (INNER + BC, 1, K)), "mamba.conv1d.bias": draw.normal(0, 0.2, INNER + BC),
                          "mamba.dt_bias": draw.normal(-0.5, 0.5, HEADS), "mamba.A_log": draw.normal(0, 0.5, HEADS), "mamba.D": draw.normal(1, 0.3, HEADS),
                          "mamba.norm.weight": draw.normal(1, 0.1, INNER)})
        out.update({f"model.layers.{k}.{name}": value for name, value in layer.items()})
    return {name: out[name].astype(numpy.float32) for name in sorted(out)}


def norm(x, gain):
    return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + CONFIG["rms_norm_eps"]) * gain


def silu(x):
    return x / (1 + numpy.exp(-x))


def turn(x, t, rotated):
    """The head x at place t, of which the first numbers turn."""
    angles = t * CONFIG["rope_theta"] ** (-numpy.arange(0, rotated, 2) / rotated)
    a, b = x[:rotated // 2], x[rotated // 2:rotated]
    return numpy.concatenate([a * numpy.cos(angles) - b * numpy.sin(angles), b * numpy.cos(angles) + a * numpy.sin(angles), x[rotated:]])


def attention(of, x, config):
    H, G, D, rotated = sizes_of(config)
    q, k, v = (x @ of[f"self_attn.{name}_proj.weight"].T for name in "qkv")
    out = numpy.zeros((len(x), H * D))
    for t in range(len(x)):
        for h in range(H):
            mine, keys, g = q[t, h * D:][:D], [], h // (H // G)
            for u in range(t + 1):
                keys.append(k[u, g * D:][:D])
            if config["position_embedding_type"] == "rope":
                mine, keys = turn(mine, t, rotated), [turn(key, u, rotated) for u, key in enumerate(keys)]
            scores = numpy.exp([mine @ key * config["attention_multiplier"] for key in keys])
            out[t, h * D:(h + 1) * D] = sum(score * v[u, g * D:][:D] for u, score in enumerate(scores)) / scores.sum()
    return out @ of["self_attn.o_proj.weight"].T


def states(of, x):
    """The recurrence, place by place."""
    z, mixed, dt = numpy.split(x @ of["mamba.in_proj.weight"].T, [INNER, 2 * INNER + BC], axis=1)
    taps, state, y = of["mamba.conv1d.weight"][:, 0], numpy.zeros((HEADS, P, N)), numpy.zeros((len(x), INNER))
    for t in range(len(x)):
        seen = silu(of["mamba.conv1d.bias"] + sum(taps[:, K - 1 - j] * mixed[t - j] for j in range(K) if t >= j))
        steps = numpy.log1p(numpy.exp(dt[t] + of["mamba.dt_bias"]))
        for h in range(HEADS):
            mine, g = seen[h * P:(h + 1) * P], h // (HEADS // GROUPS)
            b, c = seen[INNER + g * N:][:N], seen[INNER + (GROUPS + g) * N:][:N]
            state[h] = numpy.exp(-numpy.exp(of["mamba.A_log"][h]) * steps[h]) * state[h] + steps[h] * numpy.outer(mine, b)
            y[t, h * P:(h + 1) * P] = state[h] @ c + of["mamba.D"][h] * mine
    return norm(y * silu(z), of["mamba.norm.weight"]) @ of["mamba.out_proj.weight"].T


def logprobs(tensors, tokens, config):
    """[places][V]: of what follows each of the tokens."""
    tensors = {name: value.astype(float) for name, value in tensors.items()}
    h = tensors["model.embed_tokens.weight"][tokens] * config["embedding_multiplier"]
    for k, kind in enumerate(config["layer_types"]):
        of = {name.split(".", 3)[3]: value for name, value in tensors.items() if name.startswith(f"model.layers.{k}.")}
        x = norm(h, of["input_layernorm.weight"])
        h = h + config["residual_multiplier"] * (attention(of, x, config) if kind == "attention" else states(of, x))
        gate, up = numpy.split(norm(h, of["post_attention_layernorm.weight"]) @ of["shared_mlp.input_linear.weight"].T, 2, axis=1)
        h = h + config["residual_multiplier"] * (silu(gate) * up) @ of["shared_mlp.output_linear.weight"].T
    logits = norm(h, tensors["model.norm.weight"]) @ tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"]).T / config["logits_scaling"]
    return logits - numpy.log(numpy.exp(logits).sum(-1, keepdims=True))


class Hybrid(JobTest):
    VOCABULARY = 280
    TEXT_BYTES = 20_000

    def setUp(self):
        if numpy is None:
            self.skipTest("there is no numpy")

    def foreign(self, name, tensors, **more):
        os.makedirs(self.at(name))
        write_tensors(self.at(name), tensors)
        self.write(name + "/config.json", json.dumps({key: value for key, value in {**CONFIG, **more}.items() if value != "left out"}))
        return self.at(name)

    def imported(self, name, **more):
        config = {**CONFIG, **more}
        tensors = weights(config)
        self.must(["bagpipe-data", "import", self.foreign(name + "-folder", tensors, **more), "--out", self.at(name), "--no-tokenizer"])
        return tensors, config

    def prompts(self, rows):
        return self.write("prompts.jsonl", "".join(json.dumps({"tokens": row}) + "\n" for row in rows))

    def generated(self, name, model, rows, *keys, ranks=0):
        self.must(["bagpipe", "generate", self.write("empty.ini", ""), "run.dir=" + self.at(name), "generate.model=" + self.at(model), "generate.prompts=" + self.prompts(rows),
                   "generate.tokens=9", "generate.end=-1", "math.precision=f32", "math.threads=1", *keys], ranks)
        return [json.loads(line) for line in pathlib.Path(self.at(name), "generate", "outputs.jsonl").read_text(encoding="utf-8").splitlines()]

    def test_log_probabilities_are_numpys(self):
        """As the tokens of greedy continuations have them, whose cache is of both kinds; and of beams."""
        rows = [[3, 17, 42, 8, 8, 60, 25], [5], list(range(1, 40))]
        for name, more in (("nope", {}), ("rope", {"position_embedding_type": "rope", "tie_word_embeddings": False}), ("states", {"layer_types": ["mamba"] * 5}),
                           ("attention", {"layer_types": ["attention"] * 3, "num_hidden_layers": 3, "position_embedding_type": "rope"})):
            with self.subTest(name):
                tensors, config = self.imported(name, **more)
                for ranks, mesh in ((0, []), (2, ["mesh.tensor=2"]), (2, ["mesh.pipeline=2"]))[:3 if name == "nope" else 1]:
                    for strategy in ([], ["generate.strategy=beam", "generate.beams=3", "generate.samples=3"]):
                        for line in self.generated(f"{name}-{''.join(mesh + strategy)}", name, rows, *mesh, *strategy, ranks=ranks):
                            row, own = rows[line["index"]], line["tokens"]
                            self.assertEqual(len(own), 9)
                            truth = logprobs(tensors, row + own[:-1], config)[len(row) - 1:]
                            picked = [truth[k, token] for k, token in enumerate(own)]
                            self.assertAlmostEqual(line["logprob"], sum(picked), delta=1e-4)
                            if not strategy:
                                self.assertTrue(all(truth[k].max() - value < 1e-5 for k, value in enumerate(picked)))

    def test_folders_come_back_as_they_went(self):
        for name, more in (("both", {}), ("only-states", {"layer_types": ["mamba"] * 5}), ("turned", {"position_embedding_type": "rope", "tie_word_embeddings": False})):
            tensors, _ = self.imported(name + "-back", **more)
            self.must(["bagpipe-data", "export", self.at(name + "-back"), "--out", self.at(name + "-out"), "--no-tokenizer"])
            out = pathlib.Path(self.at(name + "-out"), "model.safetensors").read_bytes()
            head = json.loads(out[8:8 + int.from_bytes(out[:8], "little")])
            data = out[8 + int.from_bytes(out[:8], "little"):]
            self.assertEqual({key: data[slice(*about["data_offsets"])] for key, about in head.items() if key != "__metadata__"},
                             {key: value.tobytes() for key, value in tensors.items()})
            config = read_json(self.at(name + "-out"), "config.json")
            for key in {**CONFIG, **more}.keys() - {"intermediate_size", "num_experts_per_tok", "mamba_chunk_size"}:
                self.assertEqual(config[key], {**CONFIG, **more}[key], key)

    def test_bambas_are_numpys_and_come_back(self):
        plain = {"embedding_multiplier": 1, "residual_multiplier": 1, "logits_scaling": 1, "attention_multiplier": 8 ** -0.5, "position_embedding_type": "rope", "layer_types": TYPES}
        rows = [[3, 17, 42, 8, 8, 60, 25], [5], list(range(1, 40))]
        own = weights({**BAMBA, **plain})
        os.makedirs(self.at("bamba-folder"))
        write_tensors(self.at("bamba-folder"), as_bamba(own))
        self.write("bamba-folder/config.json", json.dumps(BAMBA))
        self.must(["bagpipe-data", "import", self.at("bamba-folder"), "--out", self.at("bamba"), "--no-tokenizer"])
        for ranks, mesh in ((0, []), (2, ["mesh.pipeline=2"])):
            for line in self.generated("bamba-run" + "".join(mesh), "bamba", rows, *mesh, ranks=ranks):
                row, tokens = rows[line["index"]], line["tokens"]
                truth = logprobs(own, row + tokens[:-1], {**BAMBA, **plain})[len(row) - 1:]
                picked = [truth[k, token] for k, token in enumerate(tokens)]
                self.assertAlmostEqual(line["logprob"], sum(picked), delta=1e-4)
                self.assertTrue(all(truth[k].max() - value < 1e-5 for k, value in enumerate(picked)))
        self.must(["bagpipe-data", "export", self.at("bamba"), "--out", self.at("bamba-out"), "--no-tokenizer"])
        back = read_tensors(self.at("bamba-out"))
        self.assertEqual(back.keys(), as_bamba(own).keys())
        for name, value in as_bamba(own).items():
            numpy.testing.assert_array_equal(back[name], value)
        config = read_json(self.at("bamba-out"), "config.json")
        for key in BAMBA.keys() - {"mamba_chunk_size"}:
            self.assertEqual(config[key], BAMBA[key], key)
        for key, value in (("partial_rotary_factor", 0.25), ("mlp_bias", True), ("attn_rotary_emb", 8), ("mamba_proj_bias", True)):
            folder = self.at("bamba-" + key)
            os.makedirs(folder)
            write_tensors(folder, as_bamba(own))
            self.write(f"bamba-{key}/config.json", json.dumps({**BAMBA, key: value}))
            self.assert_error(bagpipe_test.run([bagpipe_test.program("bagpipe-data"), "import", folder, "--out", self.at("never")]), 65, "[huggingface.unsupported]", key)

    def test_a_key_that_is_not_there_means_the_class_default(self):
        defaults = {"num_key_value_heads": H, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False, "embedding_multiplier": 1.0,
                    "logits_scaling": 1.0, "residual_multiplier": 1.0, "attention_multiplier": 1.0, "position_embedding_type": None, "layer_types": None,
                    "mamba_n_groups": 1, "mamba_d_head": "auto", "mamba_d_conv": 4, "hidden_act": "silu", "attention_bias": False, "mamba_conv_bias": True,
                    "mamba_proj_bias": False, "mamba_expand": 2, "num_local_experts": 8, "shared_intermediate_size": 1024, "mamba_d_state": 256,
                    "mamba_n_heads": 128, "max_position_embeddings": 2048, "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
                    "vocab_size": 32000, "rope_scaling": None, "intermediate_size": 11008, "num_experts_per_tok": 2, "mamba_chunk_size": 256}
        self.assertEqual(CONFIG.keys() - defaults.keys(), {"model_type", "architectures", "attention_dropout", "eos_token_id"})
        tensors, taken = weights(CONFIG), 0
        for key, value in defaults.items():
            models = []
            for name, is_ in (("without-", "left out"), ("with-", value)):
                folder = self.foreign(name + key, tensors, **{key: is_})
                result = bagpipe_test.run([bagpipe_test.program("bagpipe-data"), "import", folder, "--out", self.at(name + key + "-model"), "--no-tokenizer"])
                models.append(read_json(self.at(name + key + "-model"), "manifest.json")["state"]["model"] if result.status == 0 else result.lines("error")[0].split("[")[-1])
            self.assertEqual(*models, key)
            taken += isinstance(models[0], dict)
        self.assertGreater(taken, 14)

    def test_what_is_not_computed_is_refused(self):
        tensors = weights(CONFIG)
        for k, (words, more) in enumerate((("num_local_experts", {"num_local_experts": 4}), ("layer_types", {"layer_types": ["mamba", "window", "mamba", "attention", "mamba"]}),
                                           ("mamba_proj_bias", {"mamba_proj_bias": True}), ("attention_bias", {"attention_bias": True}),
                                           ("mamba_expand", {"mamba_expand": 4}), ("position_embedding_type", {"position_embedding_type": "alibi"}),
                                           ("time_step_limit", {"time_step_limit": [0.0, 0.1]}))):
            folder = self.foreign(f"refused{k}", tensors, **more)
            self.assert_error(bagpipe_test.run([bagpipe_test.program("bagpipe-data"), "import", folder, "--out", self.at("never")]), 65, "[huggingface.unsupported]", words)
        for keys, words in ((["model.attention_layers=5"], ("[model.bad_layers]", "4")), (["model.attention_layers=3,2"], ("[model.bad_layers]", "rising")),
                            (["mesh.tensor=4", "model.state_heads=6"], ("[mesh.not_dividing]", "model.state_heads = 6")), (["model.groups=3"], ("[model.not_dividing]", "model.state_heads = 8"))):
            self.assert_error(self.pretrain("never", 0, *SMALL, *keys), 78, *words)

    def test_every_mesh_trains_the_same_model(self):
        one = self.trained("one", 0, *SMALL)
        for name, ranks, keys in (("chunks", 2, ["mesh.pipeline=2", "mesh.schedule=interleaved", "train.recompute=yes"]), ("all", 4, ["mesh.tensor=2", "mesh.pipeline=2"])):
            with self.subTest(name):
                for a, b in zip(metrics(one), metrics(self.trained(name, ranks, *SMALL, *keys)), strict=True):
                    self.assertLess(abs(a["loss"] - b["loss"]), 2e-5)
        other = self.trained("data4", 4, *SMALL)
        self.assertEqual(timeless(metrics(one)), timeless(metrics(other)))
        self.assertEqual(digests(one), digests(other))

    def test_a_run_goes_on_on_another_mesh(self):
        keys = [*SMALL, "checkpoint.every=3", "optimizer.decay=constant"]
        straight = self.trained("straight", 0, *keys)
        self.trained("moved", 2, *keys, "mesh.tensor=2", "train.steps=3")
        moved = self.trained("moved", 2, *keys, "mesh.pipeline=2")
        self.assertLess(abs(metrics(straight)[-1]["loss"] - metrics(moved)[-1]["loss"]), 2e-5)


if __name__ == "__main__":
    bagpipe_test.main()
