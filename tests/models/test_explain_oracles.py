"""bagpipe explain of tags, answers, classes of causal stacks, marian and mbart: attributions are those of slopes of numpy's float64 models (encoders_numpy.py, decoders_numpy.py,
seq2seq_numpy.py, t5_numpy.py), folders of Hugging Face's names with random weights."""
import json
import os

import bagpipe_test
from test_explain import Explained

try:
    import decoders_numpy
    import encoders
    import encoders_numpy
    import h5py
    import numpy
    import seq2seq_numpy
    import test_encoder_shapes
    import test_seq2seq_shapes
    from t5_numpy import T5
    from test_decoder_shapes import COMMON, OF, write_tensors
except ImportError:
    h5py = None

WORDS, STEPS = 60, 10
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
METHODS = "explain.methods=saliency,gradient,integrated"


def slopes(function, at, by=1e-5):
    """d function / d at, of each of its numbers: [numbers][places][width]."""
    out = []
    for place in range(len(at)):
        for column in range(at.shape[1]):
            ends = []
            for sign in (1, -1):
                moved = at.copy()
                moved[place, column] += sign * by
                ends.append(function(moved))
            out.append((ends[0] - ends[1]) / (2 * by))
    return numpy.array(out).T.reshape(-1, *at.shape)


def log_softmax(logits):
    return numpy.log(encoders_numpy.softmax(logits))


class Oracles(Explained):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        draw = numpy.random.default_rng(7)
        cls.pairs = [([f"w{draw.integers(WORDS)}" for _ in range(n)], [f"w{draw.integers(WORDS)}" for _ in range(m)]) for n, m in ((2, 4), (3, 6))]
        cls.write("words.txt", "\n".join(SPECIAL + [f"w{k}" for k in range(WORDS)]) + "\n")
        cls.must(["bagpipe-data", "tokenizer", "--vocab", cls.at("words.txt"), "--out", cls.at("framed.json")])
        cls.write("tags.conll", "\n".join("".join(word + "\n" for word in text) for _, text in cls.pairs))
        cls.write("texts.txt", "".join(" ".join(text) + "\n" for _, text in cls.pairs))
        cls.write("questions.json", json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": [
            {"context": " ".join(b), "qas": [{"id": str(k), "question": " ".join(a), "answers": [{"text": b[1], "answer_start": len(b[0]) + 1}]}]} for k, (a, b) in enumerate(cls.pairs)]}]}))

    def file(self, name, method):
        with h5py.File(os.path.join(self.at(name), "explain", method + ".h5")) as file:
            return {array: values[:] for array, values in file.items() if hasattr(values, "shape")}

    def check_rows(self, name, d, side, gradients, inputs, integrated):
        """gradients [targets][places][width] of document d, whose rows follow each other in the files."""
        for method, array, want in (("saliency", "saliency_l1", abs(gradients).sum(-1)), ("saliency", "saliency_l2", numpy.sqrt((gradients ** 2).sum(-1))),
                                    ("gradient", "gradient_x_input", (gradients * inputs).sum(-1)), ("integrated", "integrated", integrated)):
            file = self.file(name, method)
            start = file[side + "matrix_start"]
            found = file[side + array][start[d]:start[d + 1]].reshape(want.shape)
            numpy.testing.assert_allclose(found, want, rtol=0, atol=(1e-3 if method == "integrated" else 1e-4) * (1 + numpy.abs(want).max()), err_msg=f"{name} {side}{array} {d}")

    def check(self, name, d, functions, inputs):
        """functions {side: function of that side's inputs and of the share of the other's}, inputs {side: them}; all move together on the way from zeros (Gauss and Legendre's rule)."""
        points, shares = numpy.polynomial.legendre.leggauss(STEPS)
        for side, function in functions.items():
            along = sum(share / 2 * slopes(lambda x, at=at, function=function: function(x, (at + 1) / 2), inputs[side] * (at + 1) / 2) for at, share in zip(points, shares))
            self.check_rows(name, d, side, slopes(lambda x, side=side: function(x, 1), inputs[side]), inputs[side], (along * inputs[side]).sum(-1))

    def explain_as(self, name, corpus, target):
        self.explained(name, 0, f"explain.model={self.at(name + '.model')}", f"explain.corpus={self.at(corpus)}", METHODS, f"explain.target={target}", "explain.baseline=zero",
                       f"explain.steps={STEPS}", "math.threads=1")

    def encoder(self, name, head, form, *keys):
        config = test_encoder_shapes.config_of("Bert", head, {"hidden_size": 12, "num_attention_heads": 2, "intermediate_size": 18})
        tensors = test_encoder_shapes.weights(config)
        encoders.write_folder(self.at(name + "-folder"), config, tensors)
        self.must(["bagpipe-data", "import", self.at(name + "-folder"), "--tokenizer", self.at("framed.json"), "--out", self.at(name + ".model")])
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("framed.json"), "--format", form, *keys[:-1], "--out", self.at(name + ".h5"), self.at(keys[-1])])
        return config, tensors

    @staticmethod
    def encoded(config, tensors, ids, segments):
        """(its logits as a function of its inputs, those inputs)."""
        twin = encoders_numpy.Encoder(config, tensors)
        inputs = twin.words(ids)

        def outputs(x):
            twin.words = lambda _: x
            return twin.outputs(ids, segments)
        return outputs, inputs

    def test_tags_are_those_of_float64(self):
        config, tensors = self.encoder("tags", "ForTokenClassification", "conll", "--no-tags", "tags.conll")
        self.explain_as("tags", "tags.h5", "best")
        for d, (_, text) in enumerate(self.pairs):
            ids = numpy.array([2] + [5 + int(word[1:]) for word in text] + [3])
            outputs, inputs = self.encoded(config, tensors, ids, numpy.zeros(len(ids), int))
            best = outputs(inputs)[1:-1].argmax(-1)
            self.check("tags", d, {"": lambda x, _, outputs=outputs, best=best: log_softmax(outputs(x)[1:-1])[numpy.arange(len(best)), best]}, {"": inputs})

    def test_answers_are_those_of_float64(self):
        config, tensors = self.encoder("spans", "ForQuestionAnswering", "squad", "questions.json")
        self.explain_as("spans", "spans.h5", "label")
        for d, (a, b) in enumerate(self.pairs):
            ids = numpy.array([2] + [5 + int(word[1:]) for word in a] + [3] + [5 + int(word[1:]) for word in b] + [3])
            outputs, inputs = self.encoded(config, tensors, ids, numpy.array([0] * (len(a) + 2) + [1] * (len(b) + 1)))
            place = len(a) + 3  # of the context's second word
            self.check("spans", d, {"": lambda x, _, outputs=outputs, place=place: log_softmax(outputs(x).T)[:, place]}, {"": inputs})

    def test_classes_of_causal_stacks_are_those_of_float64(self):
        tokenizer = bagpipe_test.read_json(self.at("framed.json"))
        self.write("bare.json", json.dumps({**tokenizer, "post_processor": None}))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("bare.json"), "--format", "lines", "--out", self.at("texts.h5"), self.at("texts.txt")])
        names = ["no", "perhaps", "yes"]
        for kind, stem in (("llama", "Llama"), ("qwen3", "Qwen3")):
            with self.subTest(kind):
                config = {"model_type": kind, "architectures": [stem + "ForSequenceClassification"], **COMMON, **OF.get(kind, {}), "hidden_size": 12, "head_dim": 4, "vocab_size": WORDS + 5,
                          "id2label": {str(n): one for n, one in enumerate(names)}, "label2id": {one: n for n, one in enumerate(names)}}
                draw = numpy.random.default_rng(1)
                tensors = {name: draw.normal(len(shape) == 1, 0.2 if len(shape) == 1 else 0.5, shape).astype("f4") for name, shape in decoders_numpy.names_and_shapes(config)
                           if name != "lm_head.weight"}
                tensors["score.weight"] = draw.normal(0, 0.5, (3, 12)).astype("f4")
                os.makedirs(self.at(kind))
                write_tensors(os.path.join(self.at(kind), "model.safetensors"), tensors)
                self.write(kind + "/config.json", json.dumps(config))
                self.must(["bagpipe-data", "import", self.at(kind), "--tokenizer", self.at("bare.json"), "--out", self.at(kind + "-x.model")])
                self.explain_as(kind + "-x", "texts.h5", "every")
                for d, (_, text) in enumerate(self.pairs):
                    table, ids = tensors["model.embed_tokens.weight"].astype(float), [5 + int(word[1:]) for word in text]

                    def logits(x, _, config=config, tensors=tensors):
                        own = {**tensors, "model.embed_tokens.weight": x}
                        return log_softmax(decoders_numpy.states(config, own, numpy.arange(len(x)))[-1] @ tensors["score.weight"].T.astype(float))
                    self.check(kind + "-x", d, {"": logits}, {"": table[ids]})

    def test_tags_of_t5s_encoder_are_those_of_float64(self):
        """Each sees the whole text, without a token before it."""
        self.plain()
        config = test_seq2seq_shapes.config_of("T5", "ForTokenClassification", {"d_model": 12, "num_heads": 2, "d_ff": 18, "num_layers": 1, "id2label": test_seq2seq_shapes.LABELS})
        tensors = test_seq2seq_shapes.weights(config)
        encoders.write_folder(self.at("t5-folder"), config, tensors)
        self.must(["bagpipe-data", "import", self.at("t5-folder"), "--tokenizer", self.at("plain.json"), "--out", self.at("t5.model")])
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("plain.json"), "--format", "conll", "--no-tags", "--out", self.at("t5.h5"), self.at("tags.conll")])
        self.explain_as("t5", "t5.h5", "best")
        own = {name.removeprefix("transformer."): values for name, values in tensors.items()}
        for d, (_, text) in enumerate(self.pairs):
            inputs = own["shared.weight"][[4 + int(word[1:]) for word in text] + [2]].astype(float)

            def outputs(x):
                states = T5(config, {**own, "shared.weight": x}).stack("encoder", numpy.arange(len(x)))[:-1]
                return log_softmax(states @ own["classifier.weight"].T.astype(float) + own["classifier.bias"])
            best = outputs(inputs).argmax(-1)
            self.check("t5", d, {"": lambda x, _, best=best: outputs(x)[numpy.arange(len(best)), best]}, {"": inputs})

    def test_classes_of_encoder_decoders_are_those_of_float64(self):
        """A vector that the encoder reads, and the decoder a place later, after its start token, which stays as it is."""
        self.plain()
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("plain.json"), "--format", "lines", "--out", self.at("lines.h5"), self.at("texts.txt")])
        for kind, keys in (("T5", {"d_model": 12, "num_heads": 2, "d_ff": 18, "num_layers": 1, "num_decoder_layers": 1}),
                           ("MBart", {"d_model": 12, "encoder_attention_heads": 2, "encoder_ffn_dim": 18, "encoder_layers": 1, "decoder_layers": 1})):
            with self.subTest(kind):
                config = test_seq2seq_shapes.config_of(kind, "ForSequenceClassification", {**keys, "id2label": test_seq2seq_shapes.LABELS})
                tensors = test_seq2seq_shapes.weights(config)
                name = kind + "-read"
                encoders.write_folder(self.at(name + "-folder"), config, tensors)
                self.must(["bagpipe-data", "import", self.at(name + "-folder"), "--tokenizer", self.at("plain.json"), "--out", self.at(name + ".model")])
                self.explain_as(name, "lines.h5", "every")
                for d, (_, text) in enumerate(self.pairs):
                    ids, start = [4 + int(word[1:]) for word in text] + [2], config["decoder_start_token_id"]
                    if kind == "T5":
                        own = {tensor.removeprefix("transformer."): values for tensor, values in tensors.items()}
                        head = [tensors["classification_head." + part].astype(float) for part in ("dense.weight", "dense.bias", "out_proj.weight", "out_proj.bias")]
                        table = own["shared.weight"].astype(float)

                        def logits(x, _, own=own, head=head, table=table, start=start):
                            twin, places = T5(config, {**own, "shared.weight": numpy.concatenate([x, table[[start]]])}), list(range(len(x)))
                            state = twin.stack("decoder", [len(x)] + places[:-1], twin.stack("encoder", places))[-1]
                            return log_softmax(head[2] @ numpy.tanh(head[0] @ state + head[1]) + head[3])
                        inputs = table[ids]
                    else:
                        twin = seq2seq_numpy.Model(config, tensors)
                        inputs, begun = twin.words("encoder", ids), twin.words("decoder", [start])

                        def logits(x, _, ids=ids, begun=begun):
                            words, seq2seq_numpy.Model.words = seq2seq_numpy.Model.words, lambda _, stack, __: x if stack == "encoder" else numpy.concatenate([begun, x[:-1]])
                            try:
                                return log_softmax(seq2seq_numpy.outcomes(config, tensors, ids))
                            finally:
                                seq2seq_numpy.Model.words = words
                    self.check(name, d, {"": logits}, {"": inputs})

    def plain(self):
        special = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
        self.write("plain.json", json.dumps({
            "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": None,
            "added_tokens": [{"id": k, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for token, k in special.items()],
            "post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                               "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}},
                                        {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                               "special_tokens": {"</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}},
            "model": {"type": "WordLevel", "vocab": {**special, **{f"w{k}": k + 4 for k in range(WORDS)}}, "unk_token": "<unk>"}}))

    def test_translations_of_marian_and_mbart_are_those_of_float64(self):
        self.plain()
        for side in (0, 1):
            self.write(f"side-{side}.txt", "".join(" ".join(pair[side]) + "\n" for pair in self.pairs))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("plain.json"), "--format", "pairs", "--out", self.at("pairs.h5"), self.at("side-0.txt"), self.at("side-1.txt")])
        for kind, head in (("MarianMTModel", ""), ("MBart", "ForConditionalGeneration")):
            with self.subTest(kind):
                config = test_seq2seq_shapes.config_of(kind, head, {"d_model": 12, "encoder_attention_heads": 2, "encoder_ffn_dim": 18, "encoder_layers": 1, "decoder_layers": 1})
                tensors = test_seq2seq_shapes.weights(config)
                encoders.write_folder(self.at(kind + "-folder"), config, tensors)
                self.must(["bagpipe-data", "import", self.at(kind + "-folder"), "--tokenizer", self.at("plain.json"), "--out", self.at(kind + ".model")])
                self.explain_as(kind, "pairs.h5", "next")
                for d, (a, b) in enumerate(self.pairs):
                    source, target = ([4 + int(word[1:]) for word in words] + [2] for words in (a, b))
                    begun = [config["decoder_start_token_id"]] + target[:-1]
                    twin = seq2seq_numpy.Model(config, tensors)
                    own = {"encoder": twin.words("encoder", source), "decoder": twin.words("decoder", begun)}

                    def of(which, twin=twin, own=own, source=source, target=target, begun=begun):
                        other = {"encoder": "decoder", "decoder": "encoder"}[which]

                        def function(x, share):
                            twin.words = lambda stack, _: x if stack == which else share * own[other]
                            return twin.logprobs(source, begun)[numpy.arange(len(target)), target]
                        return function
                    self.check(kind, d, {"source_": of("encoder"), "": of("decoder")}, {"source_": own["encoder"], "": own["decoder"]})


if __name__ == "__main__":
    bagpipe_test.main()
