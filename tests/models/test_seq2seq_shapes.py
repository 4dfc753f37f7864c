"""Encoder-decoders of Hugging Face's folders in shapes that published models may have: log p(target | source) and the outcomes of BART's and T5's heads are
those of numpy's float64, and folders come back to the byte. So are vectors and tags of T5's encoders alone. seq2seq_numpy.py and t5_numpy.py give what the references have, where ../shared is."""
import csv
import json
import os
import shutil

import bagpipe_test
from bagpipe_test import FolderTest, read_json

try:
    import encoders
    import h5py
    import numpy
    import seq2seq_numpy
    import slopes
    from t5_numpy import T5
except ImportError:
    h5py = None

WORDS, START, PAD, END, UNKNOWN = 60, 0, 1, 2, 3  # fairseq's order of special tokens; the words follow
BART = {"d_model": 24, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 36, "max_position_embeddings": 32, "vocab_size": WORDS + 4,
        "activation_function": "gelu", "scale_embedding": False, "is_encoder_decoder": True, "pad_token_id": PAD, "bos_token_id": START, "eos_token_id": END,
        "decoder_start_token_id": END}
MARIAN = {"activation_function": "swish", "scale_embedding": True, "bos_token_id": None, "decoder_start_token_id": PAD}
T5S = {"d_model": 24, "d_ff": 36, "d_kv": 6, "num_heads": 4, "num_layers": 2, "num_decoder_layers": 2, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12,
       "feed_forward_proj": "gated-gelu", "layer_norm_epsilon": 1e-6, "vocab_size": WORDS + 4, "is_encoder_decoder": True, "pad_token_id": PAD, "eos_token_id": END,
       "decoder_start_token_id": PAD, "tie_word_embeddings": False}
OF = {"Bart": ("bart", BART), "MBart": ("mbart", dict(BART, scale_embedding=True)), "MarianMTModel": ("marian", dict(BART, **MARIAN)),
      "M2M100": ("m2m_100", dict(BART, activation_function="relu", scale_embedding=True)), "T5": ("t5", T5S), "MT5": ("mt5", T5S), "UMT5": ("umt5", T5S)}
LABELS = {"0": "no", "1": "perhaps", "2": "yes"}
WRITES, CLASSIFIES, ANSWERS = "ForConditionalGeneration", "ForSequenceClassification", "ForQuestionAnswering"
ENCODES, TAGS = "EncoderModel", "ForTokenClassification"
ONE, DATA, TENSOR, STAGES = MESHES = ((0, ()), (2, ("mesh.data=2",)), (2, ("mesh.tensor=2",)), (2, ("mesh.pipeline=2",)))
SHAPES = (
    ("Bart", WRITES, {"encoder_layers": 1, "decoder_layers": 3, "encoder_attention_heads": 3, "encoder_ffn_dim": 7}),
    ("Bart", CLASSIFIES, {"id2label": LABELS, "d_model": 20, "encoder_attention_heads": 5, "decoder_layers": 1}),
    ("Bart", CLASSIFIES, {"id2label": {"0": "LABEL_0"}}),
    ("Bart", ANSWERS, {"encoder_layers": 3, "decoder_layers": 1}),
    ("MBart", WRITES, {}),
    ("MBart", WRITES, {"encoder_layers": 3, "decoder_layers": 1, "d_model": 21, "encoder_attention_heads": 3, "activation_function": "relu", "scale_embedding": False}),
    ("MarianMTModel", "", {"encoder_layers": 3, "decoder_layers": 1, "d_model": 18, "encoder_attention_heads": 3}),
    ("MarianMTModel", "", {"decoder_layers": 4, "encoder_layers": 1, "encoder_attention_heads": 1, "activation_function": "relu", "scale_embedding": False}),
    ("M2M100", WRITES, {"d_model": 20, "encoder_attention_heads": 5, "encoder_layers": 1, "decoder_layers": 3}),
    ("M2M100", WRITES, {"activation_function": "swish", "encoder_ffn_dim": 5, "scale_embedding": False}),
    ("T5", WRITES, {"num_layers": 1, "num_decoder_layers": 3, "d_kv": 10, "num_heads": 3}),
    ("T5", WRITES, {"feed_forward_proj": "relu", "tie_word_embeddings": True, "d_kv": 4, "d_ff": 5, "relative_attention_num_buckets": 4, "relative_attention_max_distance": 20}),
    ("T5", WRITES, {"tie_word_embeddings": True, "num_layers": 3, "num_decoder_layers": 1}),
    ("T5", WRITES, {"feed_forward_proj": "relu", "d_model": 21, "num_heads": 1, "d_kv": 7}),
    ("T5", CLASSIFIES, {"id2label": LABELS, "num_heads": 3, "d_kv": 5}),
    ("MT5", WRITES, {"num_heads": 3, "d_kv": 16, "num_layers": 3, "num_decoder_layers": 2}),
    ("T5", ENCODES, {}),
    ("T5", ENCODES, {"feed_forward_proj": "relu", "d_kv": 10, "num_heads": 2, "num_layers": 3, "d_ff": 10, "relative_attention_num_buckets": 4, "relative_attention_max_distance": 20}),
    ("MT5", ENCODES, {"num_heads": 2, "d_kv": 16, "num_layers": 2, "tie_word_embeddings": True}),
    ("T5", TAGS, {"id2label": LABELS}),
    ("MT5", TAGS, {"id2label": LABELS, "num_layers": 1, "num_heads": 3}),
    ("UMT5", WRITES, {"num_layers": 3, "scalable_attention": True}),
    ("UMT5", WRITES, {"num_heads": 3, "d_kv": 10, "num_decoder_layers": 3, "feed_forward_proj": "relu", "tie_word_embeddings": True}),
    ("UMT5", CLASSIFIES, {"id2label": LABELS, "num_heads": 3, "d_kv": 5}),
    ("UMT5", ENCODES, {"num_layers": 3}),
    ("UMT5", TAGS, {"id2label": LABELS}),
    ("M2M100", WRITES, {"d_model": 26, "encoder_attention_heads": 1, "encoder_ffn_dim": 9, "max_position_embeddings": 30}),
    ("M2M100", WRITES, {"d_model": 30, "encoder_attention_heads": 15, "encoder_layers": 3, "decoder_layers": 1, "activation_function": "gelu"}),
    ("MBart", WRITES, {"d_model": 33, "encoder_attention_heads": 11, "activation_function": "gelu_new", "encoder_layers": 1}),
    ("MarianMTModel", "", {"d_model": 22, "encoder_attention_heads": 11, "encoder_ffn_dim": 3, "activation_function": "gelu"}),
)
TRAINED = (
    ("UMT5", ONE, {"num_layers": 3, "num_decoder_layers": 1}),
    ("UMT5", TENSOR, {"d_kv": 10, "feed_forward_proj": "relu", "tie_word_embeddings": True}),
    ("UMT5", STAGES, {"num_layers": 3, "num_heads": 3}),
    ("M2M100", TENSOR, {"d_model": 26, "encoder_attention_heads": 2, "encoder_ffn_dim": 10}),
    ("MBart", STAGES, {"d_model": 33, "encoder_attention_heads": 11, "encoder_layers": 1}),
)


def config_of(name, head, keys):
    kind, sizes = OF[name]
    config = {"model_type": kind, "architectures": [name + head], **sizes, **keys}
    if "encoder_ffn_dim" in config:
        config.update(decoder_ffn_dim=config["encoder_ffn_dim"], decoder_attention_heads=config["encoder_attention_heads"])
    if head in (ENCODES, TAGS):
        del config["num_decoder_layers"], config["decoder_start_token_id"]
        config["is_encoder_decoder"] = False
    if "id2label" in keys:
        config["label2id"] = {name: int(k) for k, name in keys["id2label"].items()}
    return config


def t5_names(config):
    C, inner, keys, before = config["d_model"], config["d_ff"], config["num_heads"] * config["d_kv"], "transformer." * ("id2label" in config)
    yield before + "shared.weight", (config["vocab_size"], C)
    for stack, layers in (("encoder", config["num_layers"]), ("decoder", config.get("num_decoder_layers", 0)))[:1 + ("num_decoder_layers" in config)]:
        for k in range(layers):
            at, parts = f"{before}{stack}.block.{k}.layer.", ["SelfAttention", "EncDecAttention"][:1 + (stack == "decoder")]
            for n, part in enumerate(parts):
                yield from ((f"{at}{n}.{part}.{name}.weight", (keys, C)) for name in "qkv")
                yield from ((f"{at}{n}.{part}.o.weight", (C, keys)), (f"{at}{n}.layer_norm.weight", (C,)))
            if k == 0 or config["model_type"] == "umt5":
                yield at + "0.SelfAttention.relative_attention_bias.weight", (config["relative_attention_num_buckets"], config["num_heads"])
            last = f"{at}{len(parts)}."
            yield from ((f"{last}DenseReluDense.{name}.weight", (inner, C)) for name in (["wi"] if config["feed_forward_proj"] == "relu" else ["wi_0", "wi_1"]))
            yield from ((last + "DenseReluDense.wo.weight", (C, inner)), (last + "layer_norm.weight", (C,)))
        yield f"{before}{stack}.final_layer_norm.weight", (C,)
    if config["architectures"][0].endswith(TAGS):
        yield from (("classifier.weight", (len(config["id2label"]), C)), ("classifier.bias", (len(config["id2label"]),)))
    elif before:
        yield from (("classification_head.dense.weight", (C, C)), ("classification_head.dense.bias", (C,)), ("classification_head.out_proj.weight", (len(config["id2label"]), C)),
                    ("classification_head.out_proj.bias", (len(config["id2label"]),)))
    elif "num_decoder_layers" in config and not config["tie_word_embeddings"]:
        yield "lm_head.weight", (config["vocab_size"], C)


def weights(config):
    draw, out = numpy.random.default_rng(3), {}
    for name, shape in (t5_names if "d_kv" in config else seq2seq_numpy.names_and_shapes)(config):
        gain = len(shape) == 1 and name.endswith("weight")
        out[name] = draw.normal(gain, 0.2 if gain else 0.5 if len(shape) == 1 else 1 if "shared" in name or "relative" in name else 1.5 / shape[1] ** 0.5, shape).astype(numpy.float32)
    return out


class Shapes(FolderTest):
    @classmethod
    def setUpClass(cls):
        if h5py is None:
            raise bagpipe_test.unittest.SkipTest("there is no h5py")
        super().setUpClass()
        draw = numpy.random.default_rng(7)
        cls.pairs = [([f"w{draw.integers(WORDS)}" for _ in range(n)], [f"w{draw.integers(WORDS)}" for _ in range(m)]) for n, m in ((1, 2), (9, 4), (14, 11))]
        special = {"<s>": START, "<pad>": PAD, "</s>": END, "<unk>": UNKNOWN}
        for name, begin in (("bart", "<s>"), ("plain", None)):
            sequence, both = ([{"SpecialToken": {"id": token, "type_id": 0}} if token[0] == "<" else {"Sequence": {"id": token, "type_id": 0}} for token in tokens if token]
                              for tokens in ((begin, "A", "</s>"), (begin, "A", "</s>", "</s>", "B", "</s>")))
            tokenizer = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": None,
                         "added_tokens": [{"id": k, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
                                          for token, k in special.items()],
                         "post_processor": {"type": "TemplateProcessing", "single": sequence, "pair": both,
                                            "special_tokens": {token: {"id": token, "ids": [special[token]], "tokens": [token]} for token in (begin, "</s>") if token}},
                         "model": {"type": "WordLevel", "vocab": {**special, **{f"w{k}": k + 4 for k in range(WORDS)}}, "unk_token": "<unk>"}}
            cls.write(name + ".json", json.dumps(tokenizer))
            cls.write("source.txt", "".join(" ".join(a) + "\n" for a, _ in cls.pairs))
            cls.write("target.txt", "".join(" ".join(b) + "\n" for _, b in cls.pairs))
            cls.write("tags.conll", "\n".join("".join(word + "\n" for word in a) for a, _ in cls.pairs))
            cls.write("both.tsv", "a\tb\n" + "".join(" ".join(a) + "\t" + " ".join(b) + "\n" for a, b in cls.pairs))
            cls.write("questions.json", json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": [
                {"context": " ".join(b), "qas": [{"id": str(k), "question": " ".join(a)}]} for k, (a, b) in enumerate(cls.pairs)]}]}))
            for corpus, *keys in (("pairs", "--format", "pairs", cls.at("source.txt"), cls.at("target.txt")), ("both", "--format", "tsv", "--fields", "a,b", cls.at("both.tsv")),
                                  ("questions", "--format", "squad", cls.at("questions.json")), ("tags", "--format", "conll", "--no-tags", cls.at("tags.conll")),
                                  ("texts", "--format", "lines", cls.at("source.txt"))):
                cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at(name + ".json"), "--out", cls.at(f"{corpus}-{name}.h5"), *keys])
        cls.write("score.ini", "[math]\nprecision = f32\nthreads = 1\n")

    def scored(self, name, config, corpus, *keys, ranks=0):
        tokenizer = "bart" if config["model_type"] == "bart" else "plain"
        self.must(["bagpipe", "score", self.at("score.ini"), f"score.model={self.at(name)}", f"score.corpus={self.at(f'{corpus}-{tokenizer}.h5')}", f"run.dir={self.at(name + '.run')}", *keys], ranks)
        return os.path.join(self.at(name + ".run"), "score")

    def ids(self, words):
        return [4 + int(word[1:]) for word in words]

    def framed(self, config, a, b):
        middle = [END, END] if config["model_type"] == "bart" else [END]
        return [START] * (config["model_type"] == "bart") + self.ids(a) + middle + self.ids(b) + [END]

    def logprobs(self, config, tensors):
        """Of each target with its end."""
        out = []
        for a, b in self.pairs:
            source, target = self.ids(a) + [END], self.ids(b) + [END]
            inputs = [config["decoder_start_token_id"]] + target[:-1]
            p = T5(config, tensors).logprobs(source, inputs) if "d_kv" in config else seq2seq_numpy.logprobs(config, tensors, source, inputs)
            out += list(p[numpy.arange(len(target)), target])
        return out

    def logits(self, config, tensors, ids):
        if "d_kv" not in config:
            return seq2seq_numpy.outcomes(config, tensors, ids)
        twin, w = T5(config, {name.removeprefix("transformer."): values for name, values in tensors.items()}), tensors
        state = twin.stack("decoder", [config["decoder_start_token_id"]] + ids[:-1], twin.stack("encoder", ids))[-1]
        head = [w["classification_head." + name] for name in ("dense.weight", "dense.bias", "out_proj.weight", "out_proj.bias")]
        return head[2] @ numpy.tanh(head[0] @ state + head[1]) + head[3]

    def check_text(self, name, config, tensors):
        with h5py.File(os.path.join(self.scored(name, config, "pairs", "score.tokens=yes"), "tokens.h5")) as file:
            mine = file["logprob"][:]
        numpy.testing.assert_allclose(mine[~numpy.isnan(mine)], self.logprobs(config, tensors), atol=5e-5, rtol=2e-5)

    def check_classes(self, name, config, tensors):
        logits = numpy.array([self.logits(config, tensors, self.framed(config, a, b)) for a, b in self.pairs])
        with open(os.path.join(self.scored(name, config, "both"), "predictions.csv"), encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        if logits.shape[1] == 1:
            numpy.testing.assert_allclose([float(row["prediction"]) for row in rows], logits[:, 0], atol=3e-5)
        else:
            p = numpy.exp(logits - logits.max(1, keepdims=True))
            numpy.testing.assert_allclose([[float(row["p_" + one]) for one in LABELS.values()] for row in rows], p / p.sum(1, keepdims=True), atol=5e-6)

    def check_answers(self, name, config, tensors):
        with open(os.path.join(self.scored(name, config, "questions"), "predictions.csv"), encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        for row, (a, b) in zip(rows, self.pairs, strict=True):
            ids = self.framed(config, a, b)
            logits = self.logits(config, tensors, ids).T
            p = numpy.exp(logits - logits.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            first = len(ids) - 1 - len(b)
            best = max((p[0, i] * p[1, j], i, j) for i in range(first, len(ids) - 1) for j in range(i, len(ids) - 1))
            self.assertEqual(row["prediction"], " ".join(b[best[1] - first:best[2] - first + 1]))
            self.assertAlmostEqual(float(row["probability"]), best[0], delta=5e-6)

    def states(self, config, tensors, words):
        return T5(config, {name.removeprefix("transformer."): values for name, values in tensors.items()}).stack("encoder", self.ids(words) + [END])

    def check_states(self, name, config, tensors):
        """On every mesh, with mesh.data the same bytes."""
        expected, files = [self.states(config, tensors, a).mean(0) for a, _ in self.pairs], []
        for ranks, mesh in MESHES:
            file = os.path.join(self.scored(name, config, "texts", "score.vectors=mean", *mesh, ranks=ranks), "vectors.h5")
            with h5py.File(file) as vectors:
                numpy.testing.assert_allclose(vectors["vector"][:], expected, atol=3e-5)
            with open(file, "rb") as same:
                files.append(same.read())
            shutil.rmtree(self.at(name + ".run"))
        self.assertEqual(files[0], files[1])

    def check_tags(self, name, config, tensors):
        with open(os.path.join(self.scored(name, config, "tags"), "predictions.csv"), encoding="utf-8") as file:
            rows = iter(csv.DictReader(file))
            for a, _ in self.pairs:
                logits = self.states(config, tensors, a)[:-1] @ tensors["classifier.weight"].T + tensors["classifier.bias"]
                p = numpy.exp(logits - logits.max(1, keepdims=True))
                for row, one in zip([next(rows) for _ in a], p / p.sum(1, keepdims=True)):
                    self.assertEqual(row["prediction"], LABELS[str(one.argmax())])
                    self.assertAlmostEqual(float(row["probability"]), one.max(), delta=5e-6)

    def check(self, name, config, tensors):
        encoders.write_folder(self.at(name + "-folder"), {key: value for key, value in config.items() if value is not None}, tensors)
        tokenizer = "bart" if config["model_type"] == "bart" else "plain"
        self.must(["bagpipe-data", "import", self.at(name + "-folder"), "--tokenizer", self.at(tokenizer + ".json"), "--out", self.at(name)])
        {CLASSIFIES[3:]: self.check_classes, ANSWERS[3:]: self.check_answers, TAGS[3:]: self.check_tags, **({"": self.check_states} if config["architectures"][0].endswith(ENCODES) else {})}.get(seq2seq_numpy.head_of(config), self.check_text)(name, config, tensors)
        self.must(["bagpipe-data", "export", self.at(name), "--out", self.at(name + "-out")])
        written, back = read_json(self.at(name + "-out"), "config.json"), encoders.read_tensors(self.at(name + "-out"))
        self.assertEqual((written["model_type"], written["architectures"]), (config["model_type"], config["architectures"]))
        self.assertEqual(set(back), set(tensors))
        for tensor, values in tensors.items():
            numpy.testing.assert_array_equal(back[tensor], values, tensor)
        for key, value in config.items():
            if value is not None and key not in ("label2id", "tie_word_embeddings", "scalable_attention"):
                self.assertEqual(written.get(key), value, key)

    def test_gradients_are_slopes_of_the_loss(self):
        for k, (name, (ranks, mesh), keys) in enumerate(TRAINED):
            with self.subTest(name, **keys):
                config = config_of(name, WRITES, keys)
                tensors, run = weights(config), f"trained-{k}"
                encoders.write_folder(self.at(run + "-folder"), config, tensors)
                self.must(["bagpipe-data", "import", self.at(run + "-folder"), "--tokenizer", self.at("plain.json"), "--out", self.at(run)])
                self.must(["bagpipe", "pretrain", f"run.dir={self.at(run + '.run')}", f"corpus.train={self.at('pairs-plain.h5')}", f"model.init={self.at(run)}", "model.dropout=0",
                           f"train.batch={len(self.pairs)}", "train.label_smoothing=0", *slopes.DESCENT, *mesh], ranks)
                self.must(["bagpipe-data", "export", self.at(run + ".run"), "--out", self.at(run + "-out")])
                after, w = encoders.read_tensors(self.at(run + "-out")), {one: value.astype(float) for one, value in tensors.items()}
                slopes.check(lambda: -numpy.mean(self.logprobs(config, w)), w, {one: w[one] - after[one] for one in w if one != "final_logits_bias"})

    def test_shapes(self):
        for k, (name, head, keys) in enumerate(SHAPES):
            with self.subTest(name + head, **keys):
                config = config_of(name, head, keys)
                self.check(f"shape-{k}", config, weights(config))

    def test_what_a_file_has_twice_must_be_equal(self):
        """Copies of the table of words, which transformers 5 computes with where they are there; and a Marian's positions. What the class does not read may differ."""
        sines = seq2seq_numpy.Model(config_of("MarianMTModel", "", {}), {}).sines(BART["max_position_embeddings"]).astype(numpy.float32)
        for k, (name, head, copy, like, refusal) in enumerate((("T5", WRITES, "encoder.embed_tokens.weight", "shared.weight", "copies_differ"),
                                                               ("MarianMTModel", "", "model.decoder.embed_tokens.weight", "model.shared.weight", "copies_differ"),
                                                               ("MarianMTModel", "", "model.encoder.embed_positions.weight", None, "other_constant"),
                                                               ("T5", ENCODES, "encoder.embed_tokens.weight", "shared.weight", "copies_differ"),
                                                               ("T5", ENCODES, "decoder.embed_tokens.weight", "shared.weight", None))):
            config = {key: value for key, value in config_of(name, head, {}).items() if value is not None}
            tensors = weights(config)
            for changed in (False, True):
                with self.subTest(name + head, copy=copy, changed=changed):
                    values = (tensors[like] if like else sines).copy()
                    values[3, 1] += changed
                    encoders.write_folder(self.at(f"copies-{k}{changed}-folder"), config, {**tensors, copy: values})
                    result = bagpipe_test.run([bagpipe_test.program("bagpipe-data"), "import", self.at(f"copies-{k}{changed}-folder"), "--no-tokenizer", "--out", self.at(f"copies-{k}{changed}")])
                    if changed and refusal:
                        self.assert_error(result, 65, f"[huggingface.{refusal}]", copy)
                    else:
                        self.assertEqual(result.status, 0, str(result))
                        self.assertIn("left out: 1 buffers and copies", str(result))

    def test_an_encoder_of_a_whole_model_or_of_sentence_transformers(self):
        """A file with a decoder too, whose tensors are left out; one without a class; one that names the table otherwise, with modules.json, where a Dense layer after Normalize is refused."""
        config, whole = config_of("T5", ENCODES, {}), config_of("T5", WRITES, {})
        tensors = weights(whole)
        encoder = {name: values for name, values in tensors.items() if name == "shared.weight" or name.startswith("encoder.")}
        expected = numpy.array([self.states(config, tensors, a).mean(0) for a, _ in self.pairs])
        nameless = {key: value for key, value in whole.items() if key != "architectures"}
        sentences = {name.replace("shared", "encoder.embed_tokens"): values for name, values in encoder.items()}
        modules = [{"idx": k, "name": str(k), "path": path, "type": "sentence_transformers.models." + name} for k, (name, path) in enumerate((("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense"), ("Normalize", "3_Normalize")))]
        table = numpy.random.default_rng(8).normal(0, 0.3, (16, config["d_model"])).astype(numpy.float32)
        for name, keys, values in (("whole", {**whole, "architectures": ["T5EncoderModel"]}, tensors), ("nameless", nameless, encoder), ("sentences", config, sentences)):
            with self.subTest(name):
                encoders.write_folder(self.at(name + "-folder"), keys, values)
                if name == "sentences":
                    os.mkdir(self.at("sentences-folder/1_Pooling"))
                    self.write("sentences-folder/1_Pooling/config.json", json.dumps({"pooling_mode_mean_tokens": True}))
                    self.write("sentences-folder/modules.json", json.dumps(modules))
                    encoders.write_folder(self.at("sentences-folder/2_Dense"), {"in_features": config["d_model"], "out_features": 16, "bias": False,
                                                                                "activation_function": "torch.nn.modules.linear.Identity"}, {"linear.weight": table})
                    expected = expected @ table.T.astype(float)
                    expected /= numpy.linalg.norm(expected, axis=1, keepdims=True)
                said = str(self.must(["bagpipe-data", "import", self.at(name + "-folder"), "--tokenizer", self.at("plain.json"), "--out", self.at(name)]))
                self.assertIn(f"{len(tensors) - len(encoder) if name == 'whole' else 0} unknown tensors", said)
                keys = ["score.vectors=mean"] if name != "sentences" else []
                for ranks, mesh in MESHES[:4 if name == "sentences" else 1]:
                    with h5py.File(os.path.join(self.scored(name, config, "texts", *keys, *mesh, ranks=ranks), "vectors.h5")) as file:
                        numpy.testing.assert_allclose(file["vector"][:], expected, atol=3e-5)
                    shutil.rmtree(self.at(name + ".run"))
                self.must(["bagpipe-data", "export", self.at(name), "--out", self.at(name + "-out")])
                back = encoders.read_tensors(self.at(name + "-out"))
                self.assertEqual((set(back), read_json(self.at(name + "-out"), "config.json")["architectures"]), (set(encoder), ["T5EncoderModel"]))
                for tensor, value in encoder.items():
                    numpy.testing.assert_array_equal(back[tensor], value, tensor)
        self.write("sentences-folder/modules.json", json.dumps([*modules, modules[2]]))
        self.assert_error(bagpipe_test.run([bagpipe_test.program("bagpipe-data"), "import", self.at("sentences-folder"), "--tokenizer", self.at("plain.json"), "--out", self.at("dense")]), 65,
                          "[import.other_module]", "models.Dense")
        self.assertFalse(os.path.exists(self.at("dense")))
        self.assert_error(bagpipe_test.run([bagpipe_test.program("bagpipe"), "score", self.at("score.ini"), f"score.model={self.at('whole')}", f"score.corpus={self.at('texts-plain.h5')}",
                                            f"run.dir={self.at('headless')}"]), 65, "[tensor.no_head]")

    def test_an_encoder_trained_on_masked_words_is_exported_without_their_head(self):
        self.write("masked.txt", "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [f"w{k}" for k in range(WORDS)]) + "\n")
        self.must(["bagpipe-data", "tokenizer", "--vocab", self.at("masked.txt"), "--out", self.at("masked.json")])
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("masked.json"), "--format", "lines", "--out", self.at("masked.h5"), self.at("source.txt")])
        self.must(["bagpipe", "pretrain", self.at("score.ini"), f"run.dir={self.at('masked')}", "model.kind=t5_encoder", f"corpus.train={self.at('masked.h5')}", "model.width=8",
                   "model.heads=2", "model.layers=1", "model.context=16", "train.steps=2", "train.batch=2"])
        self.assertIn("left out: the head of words", str(self.must(["bagpipe-data", "export", self.at("masked"), "--out", self.at("masked-out")])))
        tensors, config = encoders.read_tensors(self.at("masked-out")), read_json(self.at("masked-out"), "config.json")
        self.assertEqual((set(tensors), config["architectures"]), ({name for name, _ in t5_names(config)}, ["T5EncoderModel"]))
        self.write("named.tsv", "a\tis\n" + "".join(" ".join(a) + "\t" + "ny"[k % 2] + "\n" for k, (a, _) in enumerate(self.pairs)))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("masked.json"), "--format", "tsv", "--fields", "a", "--label", "is", "--out", self.at("named.h5"), self.at("named.tsv")])
        self.must(["bagpipe", "finetune", self.at("score.ini"), f"run.dir={self.at('named')}", f"model.init={self.at('masked')}", "task.kind=classes", f"corpus.train={self.at('named.h5')}",
                   "adapter.kind=lora", "train.steps=2", "train.batch=2"])
        self.assert_error(bagpipe_test.run([bagpipe_test.program("bagpipe-data"), "export", self.at("named"), "--out", self.at("named-out")]), 65, "[export.no_counterpart]", "task = classes",
                          "t5_encoder")

    def test_padding_of_a_trained_marian_is_what_targets_begin_with(self):
        """The end of a text, where no start token is given: there is no id below 0."""
        self.must(["bagpipe", "pretrain", self.at("score.ini"), f"run.dir={self.at('trained')}", "model.kind=marian", f"corpus.train={self.at('pairs-plain.h5')}", "model.width=8",
                   "model.heads=2", "model.layers=1", "model.encoder_layers=1", "model.context=16", "train.steps=1", "train.batch=1"])
        self.must(["bagpipe-data", "export", self.at("trained"), "--out", self.at("trained-out")])
        config = read_json(self.at("trained-out"), "config.json")
        self.assertEqual((config["pad_token_id"], config["decoder_start_token_id"]), (END, END))
        self.must(["bagpipe-data", "import", self.at("trained-out"), "--out", self.at("trained-in")])

    def test_the_oracles_give_what_the_references_have(self):
        if bagpipe_test.shared("reference") is None:
            raise bagpipe_test.unittest.SkipTest("there is no ../shared")
        for family in ("bart", "mbart", "marian", "m2m_100", "mt5", "t5-plain"):
            with self.subTest(family):
                folder = bagpipe_test.shared(f"reference/{family}-tiny")
                config, tokens, tensors = read_json(folder, "config.json"), read_json(folder, "tokens.json"), encoders.read_tensors(folder)
                expected, twin = encoders.read_tensors(folder, "expected.safetensors")["logprob"], T5(dict(config, tie_word_embeddings="lm_head.weight" not in tensors), tensors)
                for source, seen, inputs, labels, logprob in zip(*(tokens[name] for name in ("input_ids", "attention_mask", "decoder_input_ids", "labels")), expected, strict=True):
                    source = source[:sum(seen)]
                    p = twin.logprobs(source, inputs) if "d_kv" in config else seq2seq_numpy.logprobs(config, tensors, source, inputs)
                    for place, label in enumerate(labels):
                        self.assertLess(abs(p[place, label] - logprob[place]) if label >= 0 else 0, 1e-6)


if __name__ == "__main__":
    bagpipe_test.main()
