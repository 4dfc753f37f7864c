"""Folders of transformers' classes that put the head of a task on a causal stack: classes, a number and tags are numpy's float64 (decoders_numpy.py), or those of a language
model whose first words have the head's rows; and folders come back to the byte."""
import csv
import json
import os

import bagpipe_test
from bagpipe_test import FolderTest, read_json

try:
    import decoders_numpy
    import h5py
    import numpy
    from encoders_numpy import softmax
    from test_decoder_shapes import COMMON, OF, read_tensors, write_tensors
except ImportError:
    h5py = None

WORDS, SPECIAL, CONTEXT = 50, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], 24
CLASSES, TAGS = ["no", "perhaps", "yes"], ["O", "B-A", "I-A", "B-B"]
SEQUENCE, TOKEN = "ForSequenceClassification", "ForTokenClassification"
NUMPYS = (("llama", "Llama", TOKEN), ("mistral", "Mistral", TOKEN), ("qwen2", "Qwen2", TOKEN), ("qwen3", "Qwen3", TOKEN), ("gemma2", "Gemma2", TOKEN), ("gemma3_text", "Gemma3Text", None),
          ("olmo2", "Olmo2", None), ("smollm3", "SmolLM3", TOKEN), ("phi3", "Phi3", TOKEN), ("mixtral", "Mixtral", TOKEN), ("qwen3_moe", "Qwen3Moe", TOKEN))
KEYS = {"gemma2": {"num_hidden_layers": 3}, "gemma3_text": {"num_hidden_layers": 3, "sliding_window_pattern": 2}, "smollm3": {"num_hidden_layers": 4}}
LEARNED = (("gpt", "GPT2", "lm_head.weight"), ("gpt_neox", "GPTNeoX", "embed_out.weight"), ("opt", "OPT", "lm_head.weight"), ("gptj", "GPTJ", "lm_head.weight"),
           ("bloom", "Bloom", "lm_head.weight"), ("openai_gpt", "OpenAIGPT", "lm_head.weight"))


class Classes(FolderTest):
    @classmethod
    def setUpClass(cls):
        if h5py is None:
            raise bagpipe_test.unittest.SkipTest("there is no h5py")
        super().setUpClass()
        draw = numpy.random.default_rng(7)
        cls.texts = [[f"w{draw.integers(WORDS)}" for _ in range(n)] for n in (1, 6, 9, 14)]
        cls.pairs = [(text[:k], text[k:]) for text, k in zip(cls.texts[1:], (2, 5, 4))]
        cls.write("texts.txt", "".join(" ".join(text) + "\n" for text in cls.texts))
        cls.write("pairs.tsv", "a\tb\n" + "".join(" ".join(a) + "\t" + " ".join(b) + "\n" for a, b in cls.pairs))
        cls.write("tags.conll", "\n".join("".join(word + "\n" for word in text) for text in cls.texts))
        cls.write("classes.txt", "\n".join(CLASSES) + "\n")
        cls.write("score.ini", "[math]\nprecision = f32\nthreads = 1\n")
        cls.write("words.txt", "\n".join(SPECIAL + [f"w{k}" for k in range(WORDS)]) + "\n")
        cls.must(["bagpipe-data", "tokenizer", "--vocab", cls.at("words.txt"), "--out", cls.at("framed.json")])
        # as GPT-2's, which puts nothing before a text, and LLaMA's, with a token before each of two
        for name, begins in (("bare", False), ("begun", True)):
            tokenizer = read_json(cls.at("framed.json"))
            if begins:
                for template in ("single", "pair"):
                    pieces = [piece for piece in tokenizer["post_processor"][template] if "Sequence" in piece]
                    tokenizer["post_processor"][template] = [part for piece in pieces for part in ({"SpecialToken": {"id": "[CLS]", "type_id": 0}}, piece)]
            else:
                tokenizer["post_processor"] = None
            cls.write(name + ".json", json.dumps(tokenizer))
            for corpus, file, *keys in (("texts", "texts.txt", "--format", "lines"), ("pairs", "pairs.tsv", "--format", "tsv", "--fields", "a,b"),
                                        ("tags", "tags.conll", "--format", "conll", "--no-tags")):
                cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at(name + ".json"), *keys, "--out", cls.at(f"{corpus}-{name}.h5"), cls.at(file)])

    def predictions(self, name, corpus, *keys):
        self.must(["bagpipe", "score", self.at("score.ini"), f"score.model={self.at(name)}", f"score.corpus={self.at(corpus + '.h5')}", f"run.dir={self.at(f'{name}-{corpus}.run')}", *keys])
        with open(os.path.join(self.at(f"{name}-{corpus}.run"), "score", "predictions.csv"), newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    @staticmethod
    def ids(begun, *texts):
        return [part for text in texts for part in [2] * begun + [5 + int(word[1:]) for word in text]]

    def imported(self, name, config, tensors, tokenizer):
        os.makedirs(self.at(name + "-folder"))
        write_tensors(os.path.join(self.at(name + "-folder"), "model.safetensors"), tensors)
        self.write(f"{name}-folder/config.json", json.dumps(config))
        self.must(["bagpipe-data", "import", self.at(name + "-folder"), "--tokenizer", self.at(tokenizer + ".json"), "--out", self.at(name)])

    def check_back(self, name, config, tensors):
        self.must(["bagpipe-data", "export", self.at(name), "--out", self.at(name + "-out")])
        written, back = read_json(self.at(name + "-out"), "config.json"), read_tensors(os.path.join(self.at(name + "-out"), "model.safetensors"))
        self.assertEqual([written[key] for key in ("model_type", "architectures", "id2label")], [config[key] for key in ("model_type", "architectures", "id2label")])
        self.assertEqual(set(back), set(tensors))
        for tensor, values in tensors.items():
            numpy.testing.assert_array_equal(back[tensor], values, tensor)

    def check_sequence(self, name, begun, logits_of, *keys):
        tokenizer = "begun" if begun else "bare"
        for corpus, documents in (("texts", [(text,) for text in self.texts]), ("pairs", self.pairs)):
            logits = numpy.array([logits_of(self.ids(begun, *document)) for document in documents])
            rows = self.predictions(name, f"{corpus}-{tokenizer}", *keys)
            if logits.shape[1] == 1:
                numpy.testing.assert_allclose([float(row["prediction"]) for row in rows], logits[:, 0], atol=5e-5)
            else:
                numpy.testing.assert_allclose([[float(row["p_" + one]) for one in CLASSES] for row in rows], softmax(logits), atol=1e-5)

    def check_tags(self, name, begun, states_of, tensors, head):
        rows = iter(self.predictions(name, "tags-begun" if begun else "tags-bare"))
        for text in self.texts:
            p = softmax(states_of(self.ids(begun, text)) @ tensors[head + ".weight"].T.astype(float) + tensors[head + ".bias"])[begun:]
            for one in p:
                row = next(rows)
                self.assertEqual(row["prediction"], TAGS[one.argmax()])
                self.assertAlmostEqual(float(row["probability"]), one.max(), delta=1e-5)

    def test_states_are_numpys(self):
        for k, (kind, stem, tags) in enumerate(NUMPYS):
            for head, names in ((SEQUENCE, CLASSES), (SEQUENCE, ["LABEL_0"])) + (((tags, TAGS),) if tags else ()):
                with self.subTest(stem + head, outcomes=len(names)):
                    config = {"model_type": kind, "architectures": [stem + head], **COMMON, **OF.get(kind, {}), **KEYS.get(kind, {}), "vocab_size": WORDS + 5,
                              "max_position_embeddings": CONTEXT, "id2label": {str(n): one for n, one in enumerate(names)}, "label2id": {one: n for n, one in enumerate(names)}}
                    draw = numpy.random.default_rng(k)
                    tensors = {tensor: draw.normal(len(shape) == 1 and not tensor.endswith("bias") and kind not in decoders_numpy.GEMMA, 0.2 if len(shape) == 1 else 0.5, shape).astype("f4")
                               for tensor, shape in decoders_numpy.names_and_shapes(config) if tensor != "lm_head.weight"}
                    tensors["score.weight"] = draw.normal(0, 0.5, (len(names), config["hidden_size"])).astype("f4")
                    if head == TOKEN:
                        tensors["score.bias"] = draw.normal(0, 1, len(names)).astype("f4")
                    name, begun = f"{kind}-{head}-{len(names)}", k % 2 == 0
                    self.imported(name, config, tensors, "begun" if begun else "bare")
                    if head == TOKEN:
                        self.check_tags(name, begun, lambda ids: decoders_numpy.states(config, tensors, ids), tensors, "score")
                    else:
                        self.check_sequence(name, begun, lambda ids: decoders_numpy.states(config, tensors, ids)[-1] @ tensors["score.weight"].T.astype(float))
                    self.check_back(name, config, tensors)

    def test_a_text_is_read_up_to_its_last_token_that_is_no_padding(self):
        """Whatever the token is: a word, an unknown one, the end that the tokenizer writes; of a text of nothing else the first place is read. pad_token_id null is no token, an olmo2's is 1
        where it is absent."""
        texts = [["w1", "w3", "w3"], ["w3", "w3"], ["w2", "none", "none"], ["w4", "w3", "w5"], ["w7"]]
        self.write("ends.txt", "".join(" ".join(text) + "\n" for text in texts))
        ended = read_json(self.at("framed.json"))
        for template in ("single", "pair"):
            ended["post_processor"][template] = [piece for piece in ended["post_processor"][template] if piece.get("SpecialToken", {}).get("id") != "[CLS]"]
        self.write("ended.json", json.dumps(ended))
        for tokenizer in ("bare", "ended"):
            self.must(["bagpipe-data", "corpus", "--tokenizer", self.at(tokenizer + ".json"), "--format", "lines", "--out", self.at(f"ends-{tokenizer}.h5"), self.at("ends.txt")])
        for kind, stem, tokenizer, keys, pad in (("llama", "Llama", "bare", {"pad_token_id": 8}, 8), ("llama", "Llama", "bare", {"pad_token_id": None}, None), ("llama", "Llama", "bare", {}, None),
                                                 ("llama", "Llama", "bare", {"pad_token_id": 1 << 40}, None),
                                                 ("llama", "Llama", "ended", {"pad_token_id": 3}, 3), ("llama", "Llama", "ended", {}, None), ("olmo2", "Olmo2", "bare", {}, 1), ("phi3", "Phi3", "bare", {}, None), ("olmo2", "Olmo2", "bare", {"pad_token_id": None}, None)):
            with self.subTest(kind, tokenizer=tokenizer, **keys):
                config = {"model_type": kind, "architectures": [stem + SEQUENCE], **COMMON, **OF.get(kind, {}), "vocab_size": WORDS + 5, "max_position_embeddings": CONTEXT,
                          "id2label": {str(n): one for n, one in enumerate(CLASSES)}, "label2id": {one: n for n, one in enumerate(CLASSES)}, **keys}
                draw = numpy.random.default_rng(4)
                tensors = {name: draw.normal(len(shape) == 1, 0.5, shape).astype("f4") for name, shape in decoders_numpy.names_and_shapes(config) if name != "lm_head.weight"}
                tensors["score.weight"] = draw.normal(0, 0.5, (len(CLASSES), config["hidden_size"])).astype("f4")
                name, expected = f"ends-{kind}-{tokenizer}-{keys.get('pad_token_id', 'absent')}", []
                self.imported(name, config, tensors, tokenizer)
                for text in texts:
                    ids = [5 + int(word[1:]) if word != "none" else 1 for word in text]
                    ids = [*ids, 3] if tokenizer == "ended" else ids
                    last = max([t for t, token in enumerate(ids) if token != pad], default=0)
                    expected.append(decoders_numpy.states(config, tensors, ids)[last] @ tensors["score.weight"].T.astype(float))
                rows = self.predictions(name, f"ends-{tokenizer}")
                numpy.testing.assert_allclose([[float(row["p_" + one]) for one in CLASSES] for row in rows], softmax(numpy.array(expected)), atol=1e-5)
                self.check_back(name, config, tensors)
                self.assertEqual(read_json(self.at(name + "-out"), "config.json")["pad_token_id"], pad)
        for value, word in ((-2, "[model.bad_size]"), ("w3", "[json.wrong_type]")):
            bagpipe_test.edit_manifest(self.at(name), lambda manifest, value=value: manifest["state"]["model"].update(padding=value))
            result = bagpipe_test.run([bagpipe_test.program("bagpipe"), "score", self.at("score.ini"), f"score.model={self.at(name)}", f"score.corpus={self.at('ends-bare.h5')}",
                                       f"run.dir={self.at('damaged')}"])
            self.assert_error(result, 65, word)
            self.assertFalse(os.path.exists(self.at("damaged")))

    def test_an_ensemble_reads_texts_in_one_way(self):
        """Members with other paddings are refused; no padding at all is that of a checkpoint of an earlier version, too."""
        draw = numpy.random.default_rng(5)
        for name, keys in (("other", {"pad_token_id": 8}), ("null", {"pad_token_id": None}), ("absent", {})):
            config = {"model_type": "llama", "architectures": ["Llama" + SEQUENCE], **COMMON, "vocab_size": WORDS + 5, "max_position_embeddings": CONTEXT,
                      "id2label": {str(n): one for n, one in enumerate(CLASSES)}, "label2id": {one: n for n, one in enumerate(CLASSES)}, **keys}
            tensors = {tensor: draw.normal(len(shape) == 1, 0.5, shape).astype("f4") for tensor, shape in decoders_numpy.names_and_shapes(config) if tensor != "lm_head.weight"}
            tensors["score.weight"] = draw.normal(0, 0.5, (len(CLASSES), config["hidden_size"])).astype("f4")
            self.imported("pads-" + name, config, tensors, "bare")
        bagpipe_test.edit_manifest(self.at("pads-absent"), lambda manifest: manifest["state"]["model"].pop("padding"))
        for name, members in (("alike", ("null", "absent")), ("unlike", ("null", "other")), ("unlike-first", ("other", "absent"))):
            self.write(name + ".json", json.dumps({"members": [{"name": member, "path": "pads-" + member} for member in members]}))
        alone = [[float(row["p_" + one]) for row in self.predictions("pads-" + name, "texts-bare") for one in CLASSES] for name in ("null", "absent")]
        both = [float(row["p_" + one]) for row in self.predictions("alike.json", "texts-bare") for one in CLASSES]
        numpy.testing.assert_allclose(both, numpy.mean(alone, axis=0), atol=1e-6)
        for name in ("unlike", "unlike-first"):
            result = bagpipe_test.run([bagpipe_test.program("bagpipe"), "score", self.at("score.ini"), f"score.model={self.at(name + '.json')}", f"score.corpus={self.at('texts-bare.h5')}",
                                       f"run.dir={self.at(name + '.run')}"])
            self.assert_error(result, 65, "[ensemble.unlike_members]", "paddings", "-1", "8")

    def test_a_classifier_is_tuned_further_and_exported(self):
        """Alone and on tensor ranks it reads the same texts, and goes back as the class that it was."""
        config = {"model_type": "llama", "architectures": ["LlamaForSequenceClassification"], **COMMON, "vocab_size": WORDS + 5, "max_position_embeddings": CONTEXT,
                  "pad_token_id": 5 + int(self.texts[1][-1][1:]), "id2label": {str(n): one for n, one in enumerate(CLASSES)}, "label2id": {one: n for n, one in enumerate(CLASSES)}}
        draw = numpy.random.default_rng(3)
        tensors = {name: draw.normal(len(shape) == 1, 0.2, shape).astype("f4") for name, shape in decoders_numpy.names_and_shapes(config) if name != "lm_head.weight"}
        tensors["score.weight"] = draw.normal(0, 0.5, (3, config["hidden_size"])).astype("f4")
        self.imported("tuned", config, tensors, "begun")
        self.write("labelled.tsv", "a\tis\n" + "".join(" ".join(text) + f"\t{CLASSES[k % 3]}\n" for k, text in enumerate(self.texts)))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("begun.json"), "--format", "tsv", "--fields", "a", "--label", "is", "--out", self.at("labelled.h5"), self.at("labelled.tsv")])
        losses = []
        for name, ranks, *keys in (("alone", 0), ("ranks", 2, "mesh.tensor=2")):
            self.must(["bagpipe", "finetune", self.at("score.ini"), f"run.dir={self.at(name)}", f"model.init={self.at('tuned')}", "task.kind=classes", "task.label=is",
                       f"task.labels={self.at('classes.txt')}", f"corpus.train={self.at('labelled.h5')}", "train.steps=3", "train.batch=4", "train.log_every=1", *keys], ranks)
            losses.append([row["loss"] for row in bagpipe_test.metrics(self.at(name)) if "loss" in row])
        numpy.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
        self.write("turned.txt", "\n".join(reversed(CLASSES)) + "\n")
        for key, word in ((f"task.labels={self.at('classes.txt')}", "task.pool"), (f"task.labels={self.at('turned.txt')}", "task.labels")):
            result = bagpipe_test.run([bagpipe_test.program("bagpipe"), "finetune", self.at("score.ini"), f"run.dir={self.at('other')}", f"model.init={self.at('tuned')}",
                                       "task.kind=classes", "task.label=is", f"corpus.train={self.at('labelled.h5')}", "train.steps=3", "train.batch=4", key,
                                       *(["task.pool=mean"] if word == "task.pool" else [])])
            self.assert_error(result, 65, "[task.other_task]", word)
        logits = numpy.array([decoders_numpy.states(config, tensors, self.ids(True, text))[-1 - (self.texts[1][-1] == text[-1])] @ tensors["score.weight"].T.astype(float)
                              for text in self.texts])
        self.assertAlmostEqual(losses[0][0], -numpy.log(softmax(logits)[numpy.arange(4), numpy.arange(4) % 3]).mean(), delta=1e-4)
        self.must(["bagpipe-data", "export", self.at("alone"), "--out", self.at("alone-out")])
        for key in ("architectures", "pad_token_id"):
            self.assertEqual(read_json(self.at("alone-out"), "config.json")[key], config[key])
        self.assertEqual(set(read_tensors(os.path.join(self.at("alone-out"), "model.safetensors"))), set(tensors))

    def test_a_head_without_a_class_is_refused(self):
        config = {"model_type": "llama", **COMMON}
        tensors = {name: numpy.ones(shape, "f4") for name, shape in decoders_numpy.names_and_shapes(config)}
        os.makedirs(self.at("nameless"))
        write_tensors(os.path.join(self.at("nameless"), "model.safetensors"), {**tensors, "score.weight": numpy.ones((2, 24), "f4")})
        self.write("nameless/config.json", json.dumps(config))
        for keys, name in ((config, "no_class"), ({**config, "architectures": ["LlamaForQuestionAnswering"]}, "unknown_class")):
            self.write("nameless/config.json", json.dumps(keys))
            result = bagpipe_test.run([bagpipe_test.program("bagpipe-data"), "import", self.at("nameless"), "--out", self.at("refused"), "--no-tokenizer"])
            self.assert_error(result, 65, f"[huggingface.{name}]")
            self.assertFalse(os.path.exists(self.at("refused")))

    def language_model(self, kind):
        """config.json and tensors of one that has hardly been trained, with weights that are far from 0."""
        self.must(["bagpipe", "pretrain", f"model.kind={kind}", f"run.dir={self.at(kind + '.run')}", f"corpus.train={self.at('texts-bare.h5')}", "model.layers=2", "model.width=24",
                   "model.heads=4", f"model.context={CONTEXT}", "train.steps=1", "train.batch=2", "math.precision=f32", "math.threads=1"] +
                  {"gpt_neox": ["model.rope_fraction=1"], "gptj": ["model.rope_width=4"]}.get(kind, ["model.tied=no"]))
        self.must(["bagpipe-data", "export", self.at(kind + ".run"), "--out", self.at(kind + "-lm"), "--no-tokenizer"])
        draw, tensors = numpy.random.default_rng(5), read_tensors(os.path.join(self.at(kind + "-lm"), "model.safetensors"))
        return read_json(self.at(kind + "-lm"), "config.json"), {name: (values + draw.normal(0, 0.3, values.shape)).astype("f4") for name, values in tensors.items()}

    def test_states_are_those_of_the_language_model(self):
        for kind, stem, words in LEARNED:
            with self.subTest(stem):
                config, tensors = self.language_model(kind)
                score = numpy.random.default_rng(6).normal(0, 0.5, (len(CLASSES), 24)).astype("f4")
                stack = {name: values for name, values in tensors.items() if not name.startswith(words.split(".")[0])}
                named = {**config, "architectures": [stem + SEQUENCE], "id2label": dict(enumerate(CLASSES)), "label2id": {one: n for n, one in enumerate(CLASSES)}}
                named["id2label"] = {str(n): one for n, one in enumerate(CLASSES)}
                self.imported(kind, named, {**stack, "score.weight": score}, "bare")
                head = numpy.zeros_like(tensors[words])
                head[5:5 + len(CLASSES)] = score
                self.imported(kind + "-words", config, {**{name: 0 * values if name == "lm_head.bias" else values for name, values in tensors.items()}, words: head}, "bare")
                lines = [" ".join(text) + f" w{k}" for text in self.texts for k in range(len(CLASSES))]
                self.write("words-texts.txt", "\n".join(lines) + "\n")
                self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("bare.json"), "--format", "lines", "--out", self.at(kind + "-words.h5"), self.at("words-texts.txt")])
                self.must(["bagpipe", "score", self.at("score.ini"), f"score.model={self.at(kind + '-words')}", f"score.corpus={self.at(kind + '-words.h5')}", "score.prefix=none",
                           "score.tokens=yes", f"run.dir={self.at(kind + '-words.run')}"])
                with h5py.File(os.path.join(self.at(kind + "-words.run"), "score", "tokens.h5")) as file:
                    last = file["logprob"][:][numpy.cumsum([len(line.split()) + 1 for line in lines]) - 2].reshape(-1, len(CLASSES))
                rows = self.predictions(kind, "texts-bare")
                numpy.testing.assert_allclose([[float(row["p_" + one]) for one in CLASSES] for row in rows], softmax(last), atol=1e-5)
                self.check_back(kind, named, {**stack, "score.weight": score})


if __name__ == "__main__":
    bagpipe_test.main()
