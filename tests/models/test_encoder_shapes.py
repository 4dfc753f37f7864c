"""Encoders of Hugging Face's folders in shapes that published models may have, with every head that their classes have: numpy's float64 gives the
log-probabilities of masked words, the probabilities of classes, tags and answers, and the states; and folders come back to the byte.
encoders_numpy.py gives those of the references, where ../shared is."""
import csv
import json
import os

import bagpipe_test
from bagpipe_test import FolderTest, read_json

try:
    import encoders
    import encoders_numpy
    import h5py
    import numpy
    from encoders_numpy import LIKE_ROBERTA, head_of, softmax
except ImportError:
    h5py = None

WORDS, CONTEXT = 60, 24
CLASSES = ["no", "perhaps", "yes"]
SPECIAL = {"zero": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], "one": ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"],
           "three": ["[CLS]", "[SEP]", "[UNK]", "[PAD]", "[MASK]"]}  # by the padding's number
BERT = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 36, "max_position_embeddings": CONTEXT, "type_vocab_size": 2, "pad_token_id": 0,
        "layer_norm_eps": 1e-12, "hidden_act": "gelu"}
ROBERTA = dict(BERT, type_vocab_size=1, pad_token_id=1, max_position_embeddings=CONTEXT + 2, layer_norm_eps=1e-5)
DISTIL = {"dim": 24, "n_layers": 2, "n_heads": 4, "hidden_dim": 36, "max_position_embeddings": CONTEXT, "pad_token_id": 0}
ELECTRA = dict(BERT, embedding_size=10)
DEBERTA = dict(BERT, type_vocab_size=0, layer_norm_eps=1e-7, relative_attention=True, pos_att_type=["p2c", "c2p"], position_biased_input=False, position_buckets=8,
               max_relative_positions=-1, norm_rel_ebd="layer_norm", share_att_key=True)
MPNET = {**{key: value for key, value in BERT.items() if key != "type_vocab_size"}, "pad_token_id": 1, "max_position_embeddings": CONTEXT + 2, "relative_attention_num_buckets": 32}
MODERN = {"hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 20, "max_position_embeddings": CONTEXT, "pad_token_id": 0, "norm_eps": 1e-5,
          "global_rope_theta": 500.0, "local_rope_theta": 60.0, "local_attention": 6, "global_attn_every_n_layers": 3}
OF = {"Bert": ("bert", BERT), "Roberta": ("roberta", ROBERTA), "XLMRoberta": ("xlm-roberta", ROBERTA), "Camembert": ("camembert", ROBERTA), "DistilBert": ("distilbert", DISTIL),
      "Electra": ("electra", ELECTRA), "DebertaV2": ("deberta-v2", DEBERTA), "ModernBert": ("modernbert", MODERN), "MPNet": ("mpnet", MPNET)}
SEQUENCE, TOKEN, SPANS, WORDS_HEAD = "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMaskedLM"
PUBLISHED = tuple((name, head, {}) for name in OF for head in (SEQUENCE, TOKEN, SPANS, WORDS_HEAD, "Model")
                  if name not in ("XLMRoberta", "Camembert") or head in (SEQUENCE, WORDS_HEAD))
SHAPES = (
    ("Bert", WORDS_HEAD, {"num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 7}),
    ("Bert", WORDS_HEAD, {"hidden_size": 21, "num_attention_heads": 3, "type_vocab_size": 5, "tie_word_embeddings": False}),
    ("Bert", SEQUENCE, {"hidden_size": 35, "num_attention_heads": 5, "intermediate_size": 70, "id2label": {"0": "LABEL_0"}}),
    ("Bert", TOKEN, {"num_hidden_layers": 3, "num_attention_heads": 24, "type_vocab_size": 1}),
    ("Roberta", WORDS_HEAD, {"pad_token_id": 3, "max_position_embeddings": CONTEXT + 4, "type_vocab_size": 2, "hidden_size": 27, "num_attention_heads": 3}),
    ("Roberta", SEQUENCE, {"id2label": {"0": "LABEL_0"}, "num_hidden_layers": 1}),
    ("Roberta", SEQUENCE, {"type_vocab_size": 2, "num_attention_heads": 3}),
    ("XLMRoberta", WORDS_HEAD, {"pad_token_id": 0, "max_position_embeddings": CONTEXT + 1, "tie_word_embeddings": False}),
    ("Camembert", SPANS, {"hidden_size": 20, "num_attention_heads": 5, "intermediate_size": 13}),
    ("DistilBert", WORDS_HEAD, {"n_layers": 1, "n_heads": 3, "hidden_dim": 5, "dim": 33}),
    ("DistilBert", SEQUENCE, {"dim": 20, "n_heads": 5, "id2label": {"0": "LABEL_0"}}),
    ("Electra", WORDS_HEAD, {"embedding_size": 24}),
    ("Electra", WORDS_HEAD, {"embedding_size": 40, "hidden_size": 15, "num_attention_heads": 5, "num_hidden_layers": 1}),
    ("Electra", SEQUENCE, {"embedding_size": 7, "num_attention_heads": 3, "intermediate_size": 11, "id2label": {"0": "LABEL_0"}}),
    ("DebertaV2", WORDS_HEAD, {"position_buckets": 4, "num_attention_heads": 3, "max_relative_positions": 20, "tie_word_embeddings": False}),
    ("DebertaV2", WORDS_HEAD, {"position_buckets": -1, "max_relative_positions": 5, "share_att_key": False, "position_biased_input": True, "type_vocab_size": 2, "num_hidden_layers": 3}),
    ("DebertaV2", SEQUENCE, {"position_buckets": -1, "norm_rel_ebd": "none", "conv_kernel_size": 3, "conv_act": "gelu", "conv_groups": 2, "attention_head_size": 6}),
    ("DebertaV2", SPANS, {"embedding_size": 10, "conv_kernel_size": 5, "num_hidden_layers": 1, "share_att_key": False}),
    ("DebertaV2", TOKEN, {"embedding_size": 31, "hidden_size": 21, "num_attention_heads": 3, "intermediate_size": 6}),
    ("DebertaV2", WORDS_HEAD, {"position_buckets": None, "max_relative_positions": None, "share_att_key": None, "position_biased_input": True, "norm_rel_ebd": None, "num_attention_heads": 3}),
    ("DebertaV2", SEQUENCE, {"share_att_key": None, "pos_att_type": "p2c|c2p", "position_buckets": 6, "max_relative_positions": 10, "hidden_size": 20, "num_attention_heads": 5}),
    ("MPNet", WORDS_HEAD, {"num_hidden_layers": 1, "num_attention_heads": 3, "tie_word_embeddings": False}),
    ("MPNet", SEQUENCE, {"hidden_size": 21, "num_attention_heads": 1, "intermediate_size": 5, "id2label": {"0": "LABEL_0"}}),
    ("ModernBert", WORDS_HEAD, {"num_hidden_layers": 1, "num_attention_heads": 3, "local_attention": 4}),
    ("ModernBert", WORDS_HEAD, {"num_hidden_layers": 5, "global_attn_every_n_layers": 2, "local_attention": 7, "tie_word_embeddings": False, "num_attention_heads": 2, "intermediate_size": 33}),
    ("ModernBert", SEQUENCE, {"classifier_pooling": "mean", "local_attention": 100, "global_attn_every_n_layers": 1}),
    ("ModernBert", WORDS_HEAD, {"global_attn_every_n_layers": 1, "num_hidden_layers": 3, "global_rope_theta": 77.0, "num_attention_heads": 6}),
    ("ModernBert", TOKEN, {"global_attn_every_n_layers": 4, "local_attention": 2, "local_rope_theta": 5.0, "hidden_size": 20, "num_attention_heads": 5}),
    ("Electra", TOKEN, {"embedding_size": 35, "hidden_size": 30, "num_attention_heads": 5, "type_vocab_size": 1}),
    ("ModernBert", SEQUENCE, {"num_attention_heads": 6, "id2label": {"0": "LABEL_0"}}),
)


def config_of(name, head, keys):
    kind, sizes = OF[name]
    out = {"model_type": kind, "architectures": [name + head], "vocab_size": WORDS + 5, **sizes}
    if head == SEQUENCE or head == TOKEN:
        names = CLASSES if head == SEQUENCE else ["O", "B-A", "I-A", "B-B"]
        out.update(id2label={str(k): one for k, one in enumerate(names)}, label2id={one: k for k, one in enumerate(names)})
    return {key: value for key, value in {**out, **keys, **({"label2id": {"LABEL_0": 0}} if "id2label" in keys else {})}.items() if value is not None}


def weights(config):
    draw, out = numpy.random.default_rng(3), {}
    for name, shape in encoders_numpy.names_and_shapes(config):
        gain = len(shape) == 1 and name.endswith("weight")
        out[name] = draw.normal(gain, 0.2 if gain else 0.5 if len(shape) == 1 else 1 if "embeddings" in name else 2 / shape[1] ** 0.5, shape).astype(numpy.float32)
    return out


class Shapes(FolderTest):
    @classmethod
    def setUpClass(cls):
        if h5py is None:
            raise bagpipe_test.unittest.SkipTest("there is no h5py")
        super().setUpClass()
        draw = numpy.random.default_rng(7)
        words = [[f"w{draw.integers(WORDS)}" for _ in range(n)] for n in (1, 6, 9, 14)]
        cls.texts, cls.pairs = words, [(text[:k], text[k:]) for text, k in zip(words[1:], (2, 5, 4))]
        cls.write("texts.txt", "".join(" ".join(text) + "\n" for text in words))
        cls.write("pairs.tsv", "a\tb\n" + "".join(" ".join(a) + "\t" + " ".join(b) + "\n" for a, b in cls.pairs))
        cls.write("tags.conll", "\n".join("".join(word + "\n" for word in text) for text in words))
        cls.write("questions.json", json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": [
            {"context": " ".join(b), "qas": [{"id": str(k), "question": " ".join(a)}]} for k, (a, b) in enumerate(cls.pairs)]}]}))
        cls.write("score.ini", "[math]\nprecision = f32\nthreads = 1\n")
        for name, special in SPECIAL.items():
            cls.write(name + ".txt", "\n".join(special + [f"w{k}" for k in range(WORDS)]) + "\n")
            cls.must(["bagpipe-data", "tokenizer", "--vocab", cls.at(name + ".txt"), "--out", cls.at(name + ".json")])
            if name != "zero":  # RoBERTa's pairs have two separators
                os.rename(cls.at(name + ".json"), cls.at(name + "-separated.json"))
                tokenizer = read_json(cls.at(name + "-separated.json"))
                pair = tokenizer["post_processor"]["pair"]
                pair.insert(2, pair[2])
                for piece in pair:  # and one segment
                    for part in piece.values():
                        part["type_id"] = 0
                cls.write(name + ".json", json.dumps(tokenizer))
            for corpus, file, *keys in (("texts", "texts.txt", "--format", "lines"), ("pairs", "pairs.tsv", "--format", "tsv", "--fields", "a,b"),
                                        ("tags", "tags.conll", "--format", "conll", "--no-tags"), ("questions", "questions.json", "--format", "squad")):
                cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at(name + ".json"), *keys, "--out", cls.at(f"{corpus}-{name}.h5"), cls.at(file)])

    def scored(self, name, config, corpus, *keys):
        """The folder of results of a model on a corpus of its tokenizer."""
        corpus = self.at(f"{corpus}-{list(SPECIAL)[[0, 1, 3].index(config['pad_token_id'])]}.h5")
        self.must(["bagpipe", "score", self.at("score.ini"), f"score.model={self.at(name)}", f"score.corpus={corpus}", f"run.dir={self.at(name + '.run')}", *keys])
        return os.path.join(self.at(name + ".run"), "score")

    def predictions(self, *where):
        with open(os.path.join(self.scored(*where), "predictions.csv"), newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def framed(self, config, *texts):
        """Ids and segments of a text, or of two, and where each begins."""
        special = list(SPECIAL.values())[[0, 1, 3].index(config["pad_token_id"])]
        ids, segments, begins = [special.index("[CLS]")], [0], []
        for k, text in enumerate(texts):
            if k and config["model_type"] in LIKE_ROBERTA:
                ids, segments = ids + [special.index("[SEP]")], segments + [0]
            begins.append(len(ids))
            ids += [5 + int(word[1:]) for word in text] + [special.index("[SEP]")]
            segments += [k * (config["model_type"] not in LIKE_ROBERTA)] * (len(text) + 1)
        return ids, segments, begins

    def check_words(self, name, config, tensors):
        """Each word masked alone."""
        with h5py.File(os.path.join(self.scored(name, config, "texts", "score.tokens=yes"), "tokens.h5")) as file:
            mine, expected = file["logprob"][:], []
        for text in self.texts:
            ids, segments, _ = self.framed(config, text)
            for place in range(1, len(ids) - 1):
                masked = ids[:place] + [4] + ids[place + 1:]
                expected.append(numpy.log(softmax(encoders_numpy.outputs(config, tensors, masked, segments)[place])[ids[place]]))
        numpy.testing.assert_allclose(mine[~numpy.isnan(mine)], expected, atol=3e-5, rtol=2e-5)

    def check_sequence(self, name, config, tensors):
        logits = numpy.array([encoders_numpy.outputs(config, tensors, *self.framed(config, a, b)[:2]) for a, b in self.pairs])
        rows = self.predictions(name, config, "pairs")
        if logits.shape[1] == 1:
            numpy.testing.assert_allclose([float(row["prediction"]) for row in rows], logits[:, 0], atol=3e-5)
        else:
            numpy.testing.assert_allclose([[float(row["p_" + one]) for one in CLASSES] for row in rows], softmax(logits), atol=5e-6)

    def check_tags(self, name, config, tensors):
        rows = iter(self.predictions(name, config, "tags"))
        for text in self.texts:
            p = softmax(encoders_numpy.outputs(config, tensors, *self.framed(config, text)[:2]))[1:-1]
            for k in range(len(text)):
                row = next(rows)
                self.assertEqual(row["prediction"], config["id2label"][str(p[k].argmax())])
                self.assertAlmostEqual(float(row["probability"]), p[k].max(), delta=1e-5)

    def check_answers(self, name, config, tensors):
        for row, (a, b) in zip(self.predictions(name, config, "questions"), self.pairs, strict=True):
            ids, segments, (_, first) = self.framed(config, a, b)
            p = softmax(encoders_numpy.outputs(config, tensors, ids, segments).T)
            best = max((p[0, i] * p[1, j], i, j) for i in range(first, len(ids) - 1) for j in range(i, len(ids) - 1))
            self.assertEqual(row["prediction"], " ".join(b[best[1] - first:best[2] - first + 1]))
            self.assertAlmostEqual(float(row["probability"]), best[0], delta=5e-6)

    def check_states(self, name, config, tensors):
        with h5py.File(os.path.join(self.scored(name, config, "texts", "score.vectors=mean"), "vectors.h5")) as file:
            numpy.testing.assert_allclose(file["vector"][:], [encoders_numpy.outputs(config, tensors, *self.framed(config, text)[:2]).mean(0) for text in self.texts], atol=3e-5)

    def check(self, name, config, tensors):
        encoders.write_folder(self.at(name + "-folder"), config, tensors)
        vocabulary = list(SPECIAL)[[0, 1, 3].index(config["pad_token_id"])]
        self.must(["bagpipe-data", "import", self.at(name + "-folder"), "--tokenizer", self.at(vocabulary + ".json"), "--out", self.at(name)])
        {"MaskedLM": self.check_words, "SequenceClassification": self.check_sequence, "TokenClassification": self.check_tags, "QuestionAnswering": self.check_answers,
         "": self.check_states}[head_of(config)](name, config, tensors)
        self.must(["bagpipe-data", "export", self.at(name), "--out", self.at(name + "-out")])
        written = read_json(self.at(name + "-out"), "config.json")
        self.assertEqual((written["model_type"], written["architectures"]), (config["model_type"], config["architectures"]))
        back = encoders.read_tensors(self.at(name + "-out"))
        self.assertEqual(set(back), set(tensors))
        for tensor, values in tensors.items():  # of two biases of a head the one that is not computed with is a copy now
            numpy.testing.assert_array_equal(back[tensor], tensors.get(encoders_numpy.used_bias(tensor), values), tensor)
        ids, segments, _ = self.framed(config, *self.pairs[0])
        numpy.testing.assert_array_equal(encoders_numpy.outputs(dict(written, conv_act=written.get("conv_act", "tanh")), back, ids, segments), encoders_numpy.outputs(config, tensors, ids, segments))

    def test_names_of_classes_that_do_not_go_are_refused(self):
        for k, names in enumerate(({"0": "a", "1": "b", "2": "a"}, {"0": "a", "1": "b", "5": "c"}, {"0": "a", "1": 2, "2": "c"})):
            config = config_of("Bert", SEQUENCE, {})
            tensors = weights(config)
            encoders.write_folder(self.at(f"named-{k}"), {**config, "id2label": names}, tensors)
            result = bagpipe_test.run([bagpipe_test.program("bagpipe-data"), "import", self.at(f"named-{k}"), "--out", self.at("refused"), "--no-tokenizer"])
            self.assert_error(result, 65, "[huggingface.bad_labels]")
            self.assertFalse(os.path.exists(self.at("refused")))

    def test_an_mpnet_with_other_buckets_is_not_exported(self):
        """transformers' class puts distances into 32 buckets, whatever its table has."""
        keys = ["model.kind=mpnet", "model.layers=1", "model.width=8", "model.heads=2", "model.context=8", "train.steps=1", "train.batch=1", "math.threads=1"]
        self.must(["bagpipe", "pretrain", *keys, f"corpus.train={self.at('texts-one.h5')}", "model.relative_buckets=16", f"run.dir={self.at('buckets')}"])
        result = bagpipe_test.run([bagpipe_test.program("bagpipe-data"), "export", self.at("buckets"), "--out", self.at("buckets-out")])
        self.assert_error(result, 65, "[export.no_counterpart]")
        self.assertFalse(os.path.exists(self.at("buckets-out")))
        result = bagpipe_test.run([bagpipe_test.program("bagpipe"), "pretrain", *keys, f"corpus.train={self.at('texts-zero.h5')}", f"run.dir={self.at('refused')}"])
        self.assert_error(result, 78, "[model.other_padding]")

    def test_the_heads_of_published_folders(self):
        for k, (name, head, keys) in enumerate(PUBLISHED):
            with self.subTest(name + head):
                config = config_of(name, head, keys)
                self.check(f"head-{k}", config, weights(config))

    def test_other_shapes(self):
        for k, (name, head, keys) in enumerate(SHAPES):
            with self.subTest(name + head, **keys):
                config = config_of(name, head, keys)
                self.check(f"shape-{k}", config, weights(config))

    def test_the_bias_of_words_by_either_name(self):
        """transformers 4 saves one tensor, transformers 5 two, which are equal if the head is tied; where they are not, it computes with the decoder's."""
        for k, (name, tied) in enumerate((name, tied) for name in ("Bert", "Roberta", "DebertaV2", "MPNet") for tied in (False, True)):
            config = config_of(name, WORDS_HEAD, {"tie_word_embeddings": tied})
            tensors = weights(config)
            one = encoders_numpy.WORDS[config["model_type"]][2]
            used = encoders_numpy.used_bias(one)
            tensors[used] = tensors[one] + numpy.arange(len(tensors[one]), dtype="f4") % 3
            for form, change in (("both", {}), ("old", {one: tensors[used], used: None}), ("new", {one: None})):
                with self.subTest(name + form, tied=tied):
                    folder = {key: value for key, value in {**tensors, **change}.items() if value is not None}
                    encoders.write_folder(self.at(f"bias-{k}{form}-folder"), config, folder)
                    vocabulary = list(SPECIAL)[[0, 1, 3].index(config["pad_token_id"])]
                    result = self.must(["bagpipe-data", "import", self.at(f"bias-{k}{form}-folder"), "--tokenizer", self.at(vocabulary + ".json"), "--out", self.at(f"bias-{k}{form}")])
                    self.assertEqual(f"{one} is not {used}" in str(result), form == "both")
                    self.must(["bagpipe-data", "export", self.at(f"bias-{k}{form}"), "--out", self.at(f"bias-{k}{form}-out")])
                    back = encoders.read_tensors(self.at(f"bias-{k}{form}-out"))
                    self.assertEqual(set(back) - set(tensors), set())
                    self.assertEqual(used in back, not tied)
                    for values in (back[one], back.get(used, back[one])):
                        numpy.testing.assert_array_equal(values, tensors[used])
            self.check_words(f"bias-{k}both", config, tensors)

    def test_other_copies_must_be_equal(self):
        config = config_of("Bert", WORDS_HEAD, {})
        tensors = weights(config)
        copies = {"bert.embeddings.LayerNorm.gamma": "bert.embeddings.LayerNorm.weight", "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight"}
        for k, (copy, of) in enumerate(copies.items()):
            for change in (0, 1):
                encoders.write_folder(self.at(f"copy-{k}{change}-folder"), config, {**tensors, copy: tensors[of] + change})
                result = bagpipe_test.run([bagpipe_test.program("bagpipe-data"), "import", self.at(f"copy-{k}{change}-folder"), "--out", self.at(f"copy-{k}{change}"), "--no-tokenizer"])
                if change:
                    self.assert_error(result, 65, "[huggingface.untied]" if k else "[huggingface.copies_differ]", copy)
                self.assertEqual((result.status != 0, os.path.exists(self.at(f"copy-{k}{change}"))), (change == 1, change == 0), str(result))

    def test_the_tokenizer_says_how_many_separators_pairs_have(self):
        """One where its template has one, as in what bagpipe exports of its own tunings."""
        config = config_of("Roberta", SEQUENCE, {})
        tensors, ids = weights(config), lambda a, b: self.framed(config, a, b)[0]
        encoders.write_folder(self.at("once-folder"), config, tensors)
        self.must(["bagpipe-data", "import", self.at("once-folder"), "--tokenizer", self.at("one-separated.json"), "--out", self.at("once")])
        logits = [encoders_numpy.outputs(config, tensors, ids(a, b)[:len(a) + 1] + ids(a, b)[len(a) + 2:]) for a, b in self.pairs]
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("one-separated.json"), "--format", "tsv", "--fields", "a,b", "--out", self.at("once.h5"), self.at("pairs.tsv")])
        rows = self.predictions("once", config, "pairs", f"score.corpus={self.at('once.h5')}")
        numpy.testing.assert_allclose([[float(row["p_" + one]) for one in CLASSES] for row in rows], softmax(numpy.array(logits)), atol=5e-6)
        for name, folder, keys in (("twice", "once-folder", ["--tokenizer", self.at("one.json")]), ("again", "twice-out", [])):
            self.must(["bagpipe-data", "import", self.at(folder), "--out", self.at(name), *keys])
            self.must(["bagpipe-data", "export", self.at(name), "--out", self.at(name + "-out")])
            self.assertEqual(read_json(self.at(name), "manifest.json")["state"]["model"]["separators"], 2)

    def test_heads_that_no_class_reads_are_left_out(self):
        """Microsoft's DeBERTaV3 names no class, and has the heads of its training: transformers reads that of words where "legacy" is false, and no other."""
        config = config_of("DebertaV2", WORDS_HEAD, {})
        tensors = weights(config)
        own = {name.replace("cls.predictions.transform.", "lm_predictions.lm_head.").replace("cls.predictions.", "lm_predictions.lm_head."): values for name, values in tensors.items()}
        own.update({f"mask_predictions.{name}": numpy.ones(shape) for name, shape in (("dense.weight", (24, 24)), ("LayerNorm.weight", (24,)), ("classifer.weight", (1, 24)))})
        for name, keys in (("published", {}), ("named", {"architectures": config["architectures"]}), ("words", {"legacy": False, "architectures": config["architectures"]})):
            with self.subTest(name):
                keys = {**{key: value for key, value in config.items() if key != "architectures"}, **keys}
                encoders.write_folder(self.at(name + "-folder"), keys, own)
                result = self.must(["bagpipe-data", "import", self.at(name + "-folder"), "--tokenizer", self.at("zero.json"), "--out", self.at(name)])
                self.assertIn("mask_predictions.classifer.weight", str(result))
                if name == "words":
                    self.check_words(name, config, tensors)
                else:
                    self.assertIn("head: none", str(result))
                    self.check_states(name, dict(config, architectures=["DebertaV2Model"]),
                                      {tensor.removeprefix("deberta."): values for tensor, values in tensors.items() if tensor.startswith("deberta.")})

    def test_the_oracle_gives_what_the_references_have(self):
        families = ("bert", "roberta", "xlm-roberta", "distilbert", "modernbert", "deberta-v3", "minilm", "bert-sequence", "bert-token", "bert-span", "deberta-v2-sequence",
                    "electra-generator", "electra-discriminator")
        if bagpipe_test.shared("reference") is None:
            raise bagpipe_test.unittest.SkipTest("there is no ../shared")
        for family in families:
            with self.subTest(family):
                folder = bagpipe_test.shared(f"reference/{family}-tiny")
                config = read_json(bagpipe_test.shared(f"reference/{family}-tiny/config-old.json") or os.path.join(folder, "config.json"))
                if family == "bert":
                    config["architectures"] = ["BertForMaskedLM"]  # besides a head that this oracle has not
                tokens, tensors, expected = read_json(folder, "tokens.json"), encoders.read_tensors(folder), encoders.read_tensors(folder, "expected.safetensors")
                for row, (ids, seen) in enumerate(zip(tokens["input_ids"], tokens["attention_mask"], strict=True)):
                    n, segments = sum(seen), tokens["token_type_ids"][row] if "token_type_ids" in tokens else [0] * len(ids)
                    got, name = encoders_numpy.outputs(config, tensors, ids[:n], segments[:n]), "hidden" if family == "minilm" else "logits"
                    want = numpy.stack([expected["start_logits"][row], expected["end_logits"][row]], -1) if family == "bert-span" else expected[name][row]
                    numpy.testing.assert_allclose(got, want[:n] if got.shape != want.shape else want, atol=1e-6)


if __name__ == "__main__":
    bagpipe_test.main()
