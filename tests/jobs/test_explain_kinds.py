"""bagpipe explain of masked models, tasks and encoder-decoders: against torch's autograd in float64, ../shared/reference/explain-tiny."""
import base64
import json
import os

import bagpipe_test
import test_finetune
from bagpipe_test import read_json, shared
from page_test import Page, data_of
from test_explain import Explained, read_tensors

try:
    import h5py
    import numpy
except ImportError:
    h5py = None

NAMES = {"bert": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], "transformer": ["<pad>", "</s>", "<s>", "<unk>"]}


class Opened(Explained):
    """What explain leaves, by document."""
    STARTS = {"rollout": "square_start", "encoder_rollout": "source_square_start"}

    def open(self, name, method):
        """{array: what it has of each document, as rows}"""
        with h5py.File(os.path.join(self.at(name), "explain", method + ".h5")) as file:
            found = {}
            lines = {"": numpy.diff(file["input_start"][:])}
            if "source_start" in file:
                lines["source_"] = numpy.diff(file["source_start"][:])
            documents = len(lines[""])
            for array, values in file.items():
                if values.dtype != numpy.float32:
                    continue
                side = "source_" if array.startswith(("source_", "encoder_")) else ""
                start = self.STARTS.get(array, side + ("foil_matrix_start" if "contrast_" in array else "matrix_start"))
                if values.ndim == 1 and start in file and len(values) == file[start][-1]:
                    cuts = file[start][:]
                    found[array] = [values[cuts[d]:cuts[d + 1]].reshape(-1, lines[side][d]) for d in range(documents)]
                else:
                    cuts = range(documents + 1) if method == "attention" else file["target_start"][:]
                    found[array] = [values[cuts[d]:cuts[d + 1]] for d in range(documents)]
            return found


class Kinds(Opened):
    DOCUMENTS = 3  # of which explain-tiny has attributions

    @classmethod
    def setUpClass(cls):
        if shared("reference/explain-tiny") is None:
            raise bagpipe_test.unittest.SkipTest("there is no ../shared/reference/explain-tiny")
        super().setUpClass()
        cls.models = {}

    @classmethod
    def words(cls, kind, size):
        """A tokenizer whose word tN is token N."""
        names = NAMES[kind]
        special = [{"id": k, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
                   for k, name in enumerate(names)]
        vocab = {name: k for k, name in enumerate(names)} | {f"t{k}": k for k in range(len(names), size)}
        cls.write(f"{kind}.json", json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
                                              "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
                                              "model": {"type": "WordLevel", "vocab": vocab, "unk_token": names[1 if kind == "bert" else 3]}}))
        return cls.at(f"{kind}.json")

    def loaded(self, model):
        """What explain-tiny has of a model: documents, arrays, whole numbers, figures."""
        if model not in self.models:
            folder = shared(f"reference/explain-tiny/{model}")
            with open(os.path.join(folder, "inputs.json"), encoding="utf-8") as file:
                inputs = json.load(file)
            with open(os.path.join(folder, "expected.json"), encoding="utf-8") as file:
                figures = json.load(file)
            arrays = os.path.join(folder, "expected.safetensors")
            self.models[model] = inputs["documents"][:self.DOCUMENTS], read_tensors(arrays), read_tensors(arrays, "I32"), figures
            self.must(["bagpipe-data", "import", shared("reference/" + model), "--out", self.at(model)])
        return self.models[model]

    def text(self, kind, tokens):
        return " ".join(NAMES[kind][k] if k < len(NAMES[kind]) else f"t{k}" for k in tokens)

    def framed(self, model):
        """Corpora of its documents: two of pairs, one of one text."""
        documents = self.loaded(model)[0]
        tokenizer = self.words("bert", 101)
        rows = []
        for document in documents:
            tokens, segments = document["input_ids"], document["token_type_ids"]
            parts = [[k for k, s in zip(tokens, segments) if s == side and k not in (2, 3)] for side in (0, 1)]
            rows.append([self.text("bert", part) for part in parts])
        self.write("pairs.tsv", "one\tother\tsame\n" + "".join(f"{a}\t{b}\tLABEL_{k}\n" for k, (a, b) in enumerate(rows) if b))
        self.write("alone.tsv", "one\tsame\n" + "".join(f"{a}\tLABEL_1\n" for a, b in rows if not b))
        for name, fields in (("pairs", "one,other"), ("alone", "one")):
            self.must(["bagpipe-data", "corpus", "--tokenizer", tokenizer, "--format", "tsv", "--fields", fields, "--label", "same", "--special",
                       "--out", self.at(f"{model}-{name}.h5"), self.at(name + ".tsv")])
        return ",".join(self.at(f"{model}-{name}.h5") for name in ("pairs", "alone"))

    def masked_keys(self):
        """The places with a label, of which the corpus holds what stands there."""
        lists = []
        for document in sorted(self.loaded("bert-tiny")[0], key=lambda document: not any(document["token_type_ids"])):  # as `framed`
            ordinary = [k for k, token in enumerate(document["input_ids"]) if token not in (2, 3)]
            lists.append([[n, document["labels"][k]] for n, k in enumerate(ordinary) if document["labels"][k] >= 0])
        self.write("masks.json", json.dumps(lists))
        return f"explain.corpus={self.framed('bert-tiny')}", f"explain.model={self.at('bert-tiny')}", f"explain.masks={self.at('masks.json')}"

    def pair_keys(self):
        documents = self.loaded("transformer-tiny")[0]
        tokenizer = self.words("transformer", 89)
        self.write("sources.txt", "".join(self.text("transformer", d["input_ids"][:-1]) + "\n" for d in documents))
        self.write("targets.txt", "".join(self.text("transformer", d["labels"][:-1]) + "\n" for d in documents))
        self.must(["bagpipe-data", "corpus", "--tokenizer", tokenizer, "--format", "pairs", "--out", self.at("translations.h5"),
                   self.at("sources.txt"), self.at("targets.txt")])
        return f"explain.corpus={self.at('translations.h5')}", f"explain.model={self.at('transformer-tiny')}"

    def close(self, found, want, most, what):
        numpy.testing.assert_allclose(found, want, rtol=0, atol=most, err_msg=what)

    def compare_gradients(self, name, model, prefix, baselines=(), source=False):
        expected = self.loaded(model)[1]
        for d in range(3):
            for side, theirs in ((("source_", ""), ("", "_target")) if source else (("", ""),)):
                for method, array in (("saliency", "saliency_l1"), ("saliency", "saliency_l2"), ("gradient", "gradient_x_input")):
                    want = expected[f"doc{d}.{prefix}{array}{theirs}"]
                    self.close(self.open(name, method)[side + array][d], want, 1e-5 + 5e-6 * numpy.abs(want).max(), f"{name} {side}{array} {d}")
                for baseline in baselines:
                    want = expected[f"doc{d}.{prefix}ig_{baseline}_50{theirs}"]
                    self.close(self.open(name, "integrated")[side + "integrated"][d], want, 2e-5, f"{name} {side}{baseline} {d}")

    def compare_delta(self, name, model, part, baseline):
        figures = self.loaded(model)[3]
        for d in range(3):
            want = figures[f"doc{d}"]["gradients"][part]
            found = self.open(name, "integrated")
            self.close(found["delta"][d], want[f"ig_{baseline}_50.delta"], 2e-5, f"{name} delta {d}")
            self.close(found["logprob"][d], want["logprob"], 1e-5, f"{name} log p {d}")
            self.close(found["logprob_baseline"][d], want[f"baseline_{baseline}.logprob"], 1e-5, f"{name} log p {d}")

    def compare_attention(self, name, model, kinds):
        _, expected, _, figures = self.loaded(model)
        found = self.open(name, "attention")
        with open(os.path.join(self.at(name), "explain", "summary.json"), encoding="utf-8") as file:
            corpus = json.load(file)["methods"]["attention"]
        for theirs, prefix in kinds.items():
            for d in range(3):
                if theirs != "cross_attention":
                    rollout = expected[f"doc{d}." + theirs.replace("attention", "rollout")][-1]
                    self.close(found[prefix + "rollout"][d], rollout, 2e-6, f"{name} {theirs} {d}")
                for statistic, value in figures[f"doc{d}"]["attention_statistics"][theirs].items():
                    if not statistic.endswith("queries"):
                        self.close(found[prefix + statistic][d].ravel(), numpy.array(value, float).ravel(), 2e-6, f"{name} {theirs} {statistic} {d}")
            for statistic, value in figures["corpus"]["attention_statistics_of_the_three"][theirs].items():
                if not statistic.endswith("queries"):
                    self.close(corpus[prefix + statistic], numpy.array(value, float).ravel(), 2e-6, f"{name} {theirs} {statistic}")

    KINDS = {"encoder_attention": "encoder_", "decoder_attention": "", "cross_attention": "cross_"}

    def compare_weights(self, name, model):
        """Of an encoder-decoder, in examples.h5, and in 255ths on the pages."""
        for d in range(self.DOCUMENTS):
            with open(os.path.join(self.at(name), "explain", f"example-{d + 1}.html"), encoding="utf-8") as page:
                drawn = {kind["of"]: kind for kind in data_of(page.read())["attention"]}
            for theirs, prefix in self.KINDS.items():
                want = self.loaded(model)[1][f"doc{d}.{theirs}"]
                found = self.weights(name, d, want.shape, prefix)
                self.close(found, want, 2e-6, f"{name} {theirs} {d}")
                kind = drawn.pop(prefix)
                self.assertEqual((kind["layers"], kind["heads"]), want.shape[:2])
                shown = numpy.frombuffer(base64.b64decode(kind["weights"]), "u1").reshape(*want.shape[:3], kind["kept"])
                keys = numpy.frombuffer(base64.b64decode(kind["keys"]), "<u2").reshape(shown.shape)
                drawing = numpy.zeros(want.shape)
                for at in numpy.argwhere(keys != 65535):
                    drawing[at[0], at[1], at[2], keys[tuple(at)]] = shown[tuple(at)]
                self.close(drawing / 255, want, 0.5 / 255 + 2e-6, f"{name} {theirs} {d} on its page")
            self.assertEqual(drawn, {})

    def compare_largest(self, name):
        """The documents with the largest statistics of each kind of attention, with the text in which its queries are."""
        found = self.open(name, "attention")
        with open(os.path.join(self.at(name), "explain", "summary.json"), encoding="utf-8") as file:
            largest = json.load(file)["methods"]["attention"]["largest"]
        with open(os.path.join(self.at(name), "explain", "index.html"), encoding="utf-8") as page:
            titles = Page(page.read()).named("h3")
        for prefix, texts in (("", "targets"), ("encoder_", "sources"), ("cross_", "targets")):
            with open(self.at(texts + ".txt"), encoding="utf-8") as file:
                lines = file.read().splitlines()
            values = numpy.array([numpy.nanmax(one) for one in found[prefix + "entropy"]])
            rows = largest[prefix + "entropy"]
            self.assertEqual([row["document"] for row in rows], numpy.argsort(-values, kind="stable")[:5].tolist())
            self.assertAlmostEqual(rows[0]["value"], values.max(), 6)
            self.assertIn(lines[rows[0]["document"]].split()[0], rows[0]["text"])
            self.assertIn("Entropy of the weights: " + {"": "target to target", "encoder_": "source to source", "cross_": "target to source"}[prefix], titles)

    def compare_lens(self, name, model):
        _, expected, integers, figures = self.loaded(model)
        names = {"rank_next": "rank", "rank_final": "rank_best", "logprob_next": "logprob", "logprob_final": "logprob_best", "entropy": "entropy",
                 "kl": "kl", "kl_clipped": "kl_clipped"}
        found = self.open(name, "lens")
        for d in range(3):
            for theirs, ours in names.items():
                want = integers.get(f"doc{d}.lens.{theirs}", expected.get(f"doc{d}.lens.{theirs}"))
                self.close(found[ours][d].T, want, 1e-5, f"{name} {ours} {d}")
            top = found["top5"][d].reshape(len(found["top5"][d]), -1, 5)
            numpy.testing.assert_array_equal(top.transpose(1, 0, 2), integers[f"doc{d}.lens.top5"])
            numpy.testing.assert_array_equal(found["settles"][d], figures[f"doc{d}"]["lens"]["settles"])

    def compare_contrast(self, name, model, source=False):
        """The fixture's pairs: of a model that writes the last target, of a class all others."""
        _, expected, _, figures = self.loaded(model)
        found = self.open(name, "contrast")
        for d in range(3):
            pairs = figures[f"doc{d}"]["contrast"]
            rows = slice(len(found["contrast_l1"][d]) - len(pairs), None)
            self.assertEqual(list(found["foil"][d].ravel()[rows]), [pair["foil"] if not isinstance(pair["foil"], list) else pair["foil"][-1] for pair in pairs])
            for side, theirs in ((("source_", ""), ("", "_target")) if source else (("", ""),)):
                for array, known in (("contrast_l1", "l1"), ("contrast_l2", "l2"), ("contrast_x_input", "x_input")):
                    want = expected[f"doc{d}.contrast.{known}{theirs}"]
                    self.close(found[side + array][d][rows], want, 1e-5 + 5e-6 * numpy.abs(want).max(), f"{name} {side}{array} {d}")

    def same_files(self, keys, name, *more):
        """On two data ranks the same bytes, on two stages too."""
        for mesh in ("data", "pipeline"):
            self.explained(f"{name}_{mesh}", 2, *keys, *more, f"mesh.{mesh}=2")
            self.assertEqual(self.files(name), self.files(f"{name}_{mesh}"), mesh)

    ALL = "saliency,gradient,integrated,attention,lens,contrast"

    def test_masked_models_are_those_of_float64(self):
        keys = (*self.masked_keys(), f"explain.methods={self.ALL}")
        self.explained("masked", 0, *keys, "explain.target=label", "explain.baseline=mask")
        self.compare_gradients("masked", "bert-tiny", "next.", ("mask",))
        self.compare_delta("masked", "bert-tiny", "next", "mask")
        self.compare_attention("masked", "bert-tiny", {"attention": ""})
        self.compare_lens("masked", "bert-tiny")
        self.compare_contrast("masked", "bert-tiny")
        self.same_files(keys, "masked", "explain.baseline=mask")
        self.explained("masked_best", 0, *keys, "explain.target=best", "explain.baseline=zero")
        self.compare_gradients("masked_best", "bert-tiny", "argmax.", ("zero",))
        self.compare_attention("masked_best", "bert-tiny", {"attention": ""})

    def test_classes_are_those_of_float64(self):
        corpus = self.framed("bert-sequence-tiny")
        keys = (f"explain.corpus={corpus}", f"explain.model={self.at('bert-sequence-tiny')}", "explain.methods=saliency,gradient,integrated,attention")
        for baseline in ("zero", "mask", "pad"):
            self.explained("classes_" + baseline, 0, *keys, "explain.target=every", f"explain.baseline={baseline}")
            self.compare_gradients("classes_" + baseline, "bert-sequence-tiny", "", (baseline,))
            self.compare_delta("classes_" + baseline, "bert-sequence-tiny", "classes", baseline)
        self.compare_attention("classes_mask", "bert-sequence-tiny", {"attention": ""})
        self.same_files(keys, "classes_mask", "explain.target=every", "explain.baseline=mask")
        keys = (*keys[:2], "explain.methods=contrast,saliency")
        self.explained("preferred", 0, *keys)
        self.compare_contrast("preferred", "bert-sequence-tiny")
        whole = self.open("classes_mask", "saliency")["saliency_l1"]
        for target, rows in (("best", [2, 2, 2]), ("LABEL_0", [0, 0, 0]), ("label", [0, 1, 1])):
            self.explained("one_" + target, 0, *keys, f"explain.target={target}")
            for d, found in enumerate(self.open("one_" + target, "saliency")["saliency_l1"]):
                numpy.testing.assert_allclose(found, whole[d][rows[d]:rows[d] + 1], atol=1e-6)

    def test_translations_are_those_of_float64(self):
        keys = (*self.pair_keys(), f"explain.methods={self.ALL}")
        for target, prefix in (("next", "next."), ("best", "argmax.")):
            self.explained(target, 0, *keys, f"explain.target={target}", "explain.baseline=pad")
            self.compare_gradients(target, "transformer-tiny", prefix, ("baseline_token",), True)
        self.compare_delta("next", "transformer-tiny", "next", "baseline_token")
        self.compare_attention("next", "transformer-tiny", self.KINDS)
        self.compare_weights("next", "transformer-tiny")
        self.compare_largest("next")
        self.compare_lens("next", "transformer-tiny")
        self.compare_contrast("next", "transformer-tiny", True)
        self.same_files(keys, "next", "explain.baseline=pad")
        self.explained("zeros", 0, *keys, "explain.baseline=zero")
        self.compare_gradients("zeros", "transformer-tiny", "next.", ("zero",), True)


class Trained(test_finetune.TaskTest, Opened):
    """Attributions of every kind of model sum to what the baseline changes, which forward passes alone give."""
    SMALL = ["model.layers=1", "model.width=16", "model.heads=2", "model.context=24"]

    def small(self, kind):
        """A model of a kind, and a corpus of it."""
        words, name, of_task = self.sentences(6, 2), kind, kind.split("_")[-1]
        self.write("few.txt", "".join(" ".join(word for word, _ in words[k]) + "\n" for k in range(3)))
        make = ("bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"))
        bert, gpt, bart, label = (*(["model.kind=" + family, *self.SMALL] for family in ("bert", "gpt", "bart")), ["task.label=topic"])
        both = ["model.kind=" + kind.split("_")[0], *self.SMALL] if "_" in kind else bert  # heads after an encoder and a decoder
        if kind in ("masked", "pairs"):
            form = ("lines", self.at("few.txt")) if kind == "masked" else ("pairs", self.at("few.txt"), self.at("few.txt"))
            corpus = self.at(kind + ".h5")
            self.must([*make, "--format", form[0], "--out", corpus, *form[1:]])
            model = [*bert, "mask.next_sentence=no"] if kind == "masked" else ["model.kind=transformer", *self.SMALL[:1], "model.encoder_layers=2", "model.decoder_layers=1", *self.SMALL[1:]]
            self.must(["bagpipe", "pretrain", f"run.dir={self.at(kind)}", f"corpus.train={corpus}", *model, "train.steps=2", "train.batch=2", "math.precision=f32"])
            return f"explain.model={self.at(kind)}", f"explain.corpus={corpus}"
        if of_task == "tags":
            corpus, keys = self.conll("words", words), [*both, "task.kind=tags"]
        elif of_task == "spans":
            self.squad("questions", 3, 1)
            corpus, keys = self.at("questions.h5"), [*both, "task.kind=spans", "task.stride=4"]
        else:
            rows = [{"text": test_finetune.document(test_finetune.random.Random(k), topic, 8), "topic": topic, "length": "0.5"} for k, topic in
                    enumerate(("sea", "town", "wood"))]
            corpus = self.corpus("texts", rows)
            keys = {"classes": [*bert, *label], "mean": [*bert, *label, "task.pool=mean"], "last": [*gpt, *label], "bart": [*bart, *label],
                    "sngp": [*bert, *label, "sngp.features=16"], "values": [*both, "task.kind=regression", "task.label=length"]}.get(of_task, [*both, *label])
        self.tuned(name, 0, f"corpus.train={corpus}", f"corpus.valid={corpus}", *keys, "train.steps=2", "train.batch=2")
        return f"explain.model={self.at(name)}", f"explain.corpus={corpus}"

    def test_texts_that_a_model_cannot_read(self):
        """A line has no source and no question; a text without a token is named by its own file."""
        self.write("lines.txt", "one line\nand another\n")
        for kind, form in (("pairs", ["--format pairs SOURCE TARGET"]), ("spans", [])):
            model = self.small(kind)[0]
            for ranks in (0, 2):
                self.assert_error(self.explained_badly(ranks, model, f"explain.texts={self.at('lines.txt')}"), 78, "[explain.no_pairs]", *form)
        rows = ({"text": "the ship"}, {"text": "   "}, {"text": "the old town"})
        self.write("blank.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        model = self.small("classes")[0]
        for ranks in (0, 2):
            result = self.explained_badly(ranks, model, f"explain.texts={self.at('blank.jsonl')}")
            self.assert_error(result, 65, "[explain.empty_text]", "1 of 3 texts", "blank.jsonl:2")
            self.assertNotIn("-texts.h5", str(result))

    def explained_badly(self, ranks, *keys):
        return self.explain("unread", ranks, *keys, f"tokenizer.path={self.at('tokenizer.json')}")

    def check_sums(self, name):
        found = self.open(name, "integrated")
        for d, rows in enumerate(found["integrated"]):
            change = found["logprob"][d] - found["logprob_baseline"][d]
            sums = rows.sum(axis=1) + (found["source_integrated"][d].sum(axis=1) if "source_integrated" in found else 0)
            numpy.testing.assert_allclose(sums - change, found["delta"][d], atol=1e-5)
            numpy.testing.assert_allclose(sums, change, atol=1e-4 + 0.01 * numpy.abs(change).max(), err_msg=f"{name} {d}")
        self.assertGreater(max(numpy.abs(found["logprob"][d] - found["logprob_baseline"][d]).max() for d in range(len(found["delta"]))), 1e-3, name)
        return found

    def test_targets_that_read_the_same_share_a_forward_pass(self):
        """To the bit what each gives by itself, in a batch of its own."""
        for kind in ("classes", "mean", "last"):
            keys = (*self.small(kind), "explain.methods=saliency,integrated", "explain.steps=3")
            self.explained("every_" + kind, 0, *keys, "explain.target=every")
            for c, name in enumerate(("sea", "town", "wood")):
                self.explained(f"one_{kind}{c}", 0, *keys, "explain.target=" + name)
                for method, arrays in (("saliency", ("saliency_l1", "saliency_l2")), ("integrated", ("integrated", "delta"))):
                    every, one = self.open("every_" + kind, method), self.open(f"one_{kind}{c}", method)
                    for array in arrays:
                        for d in range(3):
                            self.assertEqual(every[array][d][c].tobytes(), one[array][d][0].tobytes(), (kind, name, array))
                            self.assertGreater(numpy.abs(one[array][d]).max(), 0)

    def test_contrast_sets_are_read_together(self):
        """Against figures from what the documents are by themselves; on one rank and on two."""
        draw, rows = test_finetune.random.Random(9), []
        for k in range(14):  # an original, and one or two versions with the words of another topic
            topics = draw.sample(("sea", "town", "wood"), 3)
            words = test_finetune.document(draw, topics[0], 8).split()
            rows.append({"text": " ".join(words), "topic": topics[0], "group": f"g{k}"})
            for topic in topics[1:2 + k % 2]:
                versions = [draw.choice(test_finetune.KINDS[topic]) if word in test_finetune.KINDS[topics[0]] else word for word in words]
                rows.append({"text": " ".join(versions), "topic": topic, "group": f"g{k}"})
        rows += [{"text": "he had it", "topic": "sea", "group": "alone"}]
        draw.shuffle(rows)
        corpus = self.corpus("sets", rows)
        self.tuned("judge", 0, f"corpus.train={self.at('train.h5')}", f"corpus.valid={self.at('valid.h5')}", "model.kind=bert", *self.SMALL, "task.label=topic",
                   "train.steps=40", "train.batch=8", "optimizer.lr=0.02")
        keys = (f"explain.model={self.at('judge')}", f"explain.corpus={corpus}")
        self.explained("sets", 0, *keys, "explain.methods=contrast_sets", "explain.sets=group")
        self.explained("each", 0, *keys, "explain.methods=integrated", "explain.steps=1", "explain.target=every")
        found, log_p = read_json(self.at("sets"), "explain", "summary.json")["methods"]["contrast_sets"], self.open("each", "integrated")["logprob"]
        with h5py.File(os.path.join(self.at("sets"), "explain", "contrast_sets.h5")) as file:
            names = [name.decode() for name in file["outcome_names"][:]]
            numpy.testing.assert_allclose(file["outcome_logprob"][:], log_p, rtol=0, atol=1e-6)
            self.assertEqual([names[int(k)] for k in file["label"][:]], [row["topic"] for row in rows])
        sets = {}
        for row, values in zip(rows, log_p, strict=True):
            sets.setdefault(row["group"], []).append((names.index(row["topic"]), values))
        sets = [versions for versions in sets.values() if len(versions) > 1]
        pairs = [(versions[0], other) for versions in sets for other in versions[1:]]
        moves = [first[1].argmax() != other[1].argmax() for first, other in pairs]
        wanted = {"accuracy_first": [versions[0][1].argmax() == versions[0][0] for versions in sets],
                  "accuracy_others": [values.argmax() == label for _, (label, values) in pairs],
                  "consistency": [all(values.argmax() == label for label, values in versions) for versions in sets], "changed": moves,
                  "changed_as_labels": [moved == (first[0] != other[0]) for moved, (first, other) in zip(moves, pairs)],
                  "fall": [first[1].max() - other[1][first[1].argmax()] for first, other in pairs]}
        self.assertEqual((found["sets"], found["pairs"]), (len(sets), len(pairs)))
        for name, values in wanted.items():
            self.assertAlmostEqual(found[name][0], numpy.mean(values), delta=1e-5, msg=name)
            low, high = found["intervals"][name][0]
            self.assertTrue(low <= found[name][0] <= high)
        self.assertTrue(0 < found["changed"][0] < 1)
        self.explained("sets2", 2, *keys, "explain.methods=contrast_sets", "explain.sets=group")
        self.assertEqual(self.files("sets"), self.files("sets2"))
        for words, more in ((["[explain.no_sets]", "topic", ".h5"], ("explain.methods=contrast_sets", "explain.sets=sets")),
                            (["[explain.no_sets]"], ("explain.methods=contrast_sets",)),
                            (["[explain.lacking]", "contrast_sets"], ("explain.methods=contrast_sets", "explain.sets=group", *self.small("masked")))):
            for ranks in (0, 2):
                self.assert_error(self.explain("no_sets", ranks, *keys[:2 if len(more) < 4 else 0], *more), 78, *words)

    def sets_of(self, kind, name, corpus, model, groups):
        """Figures of contrast_sets with a list, on one rank and on two; and what the documents are by themselves: [(preferred, label)...]."""
        keys = (f"explain.model={model}", f"explain.corpus={corpus}", "explain.examples=0")
        self.write(name + "-sets.json", json.dumps(groups))
        for ranks in (0, 2):
            result = self.explained(f"{name}{ranks}", ranks, *keys, "explain.methods=contrast_sets", f"explain.sets={self.at(name + '-sets.json')}")
            self.assertNotIn("[explain.lone_sets]", result.err)
        self.assertEqual(self.files(name + "0"), self.files(name + "2"))
        found = {}
        for target in ("best", "label") if kind != "values" else ("best",):
            self.explained(f"{name}_{target}", 0, *keys, "explain.methods=integrated", "explain.steps=1", f"explain.target={target}")
            with h5py.File(os.path.join(self.at(f"{name}_{target}"), "explain", "integrated.h5")) as file:
                starts, numbers = file["target_start"][:], file["document"][:] if "document" in file else range(len(groups))
                values = file["logprob" if kind == "values" else "target"][:].tolist()
                found[target] = [[] for _ in groups]
                for d, number in enumerate(numbers):
                    found[target][number] += values[starts[d]:starts[d + 1]]
        return self.summary_of(name + "0")["contrast_sets"], found

    def sets_file(self, name):
        return h5py.File(os.path.join(self.at(name), "explain", "contrast_sets.h5"))

    def test_contrast_sets_of_tags_answers_and_values(self):
        """Right by word, by document with all its windows, and differences; from a list of sets."""
        draw = test_finetune.random.Random(5)
        groups = [None if k % 7 == 6 else f"g{k // 3}" for k in range(24)]
        sets = [[d for d, group in enumerate(groups) if group == name] for name in dict.fromkeys(groups) if name]
        sets = [documents for documents in sets if len(documents) > 1]
        self.squad("asked", 24, 1)
        scores = [round(draw.uniform(0, 3), 2) for _ in groups]
        scores[1] = scores[0]  # no direction
        values = self.corpus("scored", [{"text": test_finetune.document(draw, draw.choice(("sea", "town", "wood")), 8), "score": str(score)} for score in scores])
        for kind, corpus, keys in (("tags", self.conll("tagged", self.sentences(24, 2)), ["task.kind=tags"]), ("spans", self.at("asked.h5"), ["task.kind=spans", "task.stride=4"]),
                                   ("values", values, ["task.kind=regression", "task.label=score"])):
            with self.subTest(kind):
                model = self.tuned("of_" + kind, 0, f"corpus.train={corpus}", f"corpus.valid={corpus}", "model.kind=bert", *self.SMALL, *keys, "train.steps=30", "train.batch=8",
                                   "optimizer.lr=0.01")
                figures, found = self.sets_of(kind, "set_" + kind, corpus, model, groups)
                wanted = {}
                if kind == "values":
                    best = [value for value, in found["best"]]
                    pairs = [(documents[0], other) for documents in sets for other in documents[1:]]
                    moves = [(best[other] - best[first], scores[other] - scores[first]) for first, other in pairs]
                    self.assertIn(0, [gold for _, gold in moves])
                    wanted = {"error_first": [abs(best[documents[0]] - scores[documents[0]]) for documents in sets], "error_others": [abs(best[d] - scores[d]) for _, d in pairs],
                              "difference": [abs(own) for own, _ in moves], "error_of_difference": [abs(own - gold) for own, gold in moves],
                              "direction": [(own > 0) == (gold > 0) for own, gold in moves if gold]}
                else:
                    right = [[a == b for a, b in zip(*document, strict=True)] for document in zip(found["best"], found["label"], strict=True)]
                    shown = right if kind == "tags" else [[all(document)] for document in right]
                    wanted = {"accuracy_first": [one for documents in sets for one in shown[documents[0]]],
                              "accuracy_others": [one for documents in sets for d in documents[1:] for one in shown[d]],
                              "consistency": [all(all(right[d]) for d in documents) for documents in sets]}
                    if kind == "spans":
                        self.assertGreater(max(map(len, right)), 2)  # several windows
                    self.assertTrue(0 < figures["accuracy_others"][0] < 1, figures)
                self.assertEqual((figures["sets"], figures["pairs"]), (len(sets), sum(map(len, sets)) - len(sets)))
                self.assertEqual(set(figures) - {"sets", "pairs", "intervals"}, set(wanted))
                for name, list_of in wanted.items():
                    self.assertAlmostEqual(figures[name][0], numpy.mean(list_of), delta=1e-5, msg=f"{kind} {name}")
                if kind == "tags":  # a word counts once, however many of its outcomes are explained
                    self.explained("set_every", 0, f"explain.model={model}", f"explain.corpus={corpus}", "explain.examples=0", "explain.methods=contrast_sets",
                                   f"explain.sets={self.at('set_tags-sets.json')}", "explain.target=every")
                    self.assertEqual(self.summary_of("set_every")["contrast_sets"], figures)
                    for array in ("set", "labelled", "right"):
                        every, once = ([*file[array][:]] for file in map(self.sets_file, ("set_every", "set_tags0")))
                        self.assertEqual(every, once, array)
        keys = (f"explain.model={model}", f"explain.corpus={corpus}", "explain.methods=contrast_sets", f"explain.sets={self.at('wrong.json')}")
        for text in ("{}", '["a"]', json.dumps([1] * 24)):
            self.write("wrong.json", text)
            for ranks in (0, 2):
                self.assert_error(self.explain("wrong_sets", ranks, *keys), 65, "[explain.bad_sets]", "wrong.json")
        self.assert_error(self.explain("wrong_sets", 0, *keys[:3], f"explain.sets={self.at('none.json')}"), 66, "none.json")
        self.write("lone.json", json.dumps([None, "", *map(str, range(22))]))
        for ranks in (0, 2):
            result = self.explained(f"lone{ranks}", ranks, *keys[:3], f"explain.sets={self.at('lone.json')}")
            self.assert_warning(result, "[explain.lone_sets]", "lone.json")
            self.assertEqual(result.err.count("[explain.lone_sets]"), 1, str(result))
            self.assertEqual(self.summary_of(f"lone{ranks}")["contrast_sets"]["sets"], 0)

    def test_attributions_sum_to_what_the_baseline_changes(self):
        for kind, target in (("masked", "label"), ("pairs", "next"), ("classes", "every"), ("mean", "best"), ("last", "every"), ("values", "best"),
                             ("tags", "label"), ("spans", "label"), ("bart", "every"), ("bart_values", "best"), ("bart_tags", "label"), ("t5_spans", "label")):
            with self.subTest(kind):
                baseline = "pad" if kind.startswith("t5") else "zero"  # a root mean square has a jump near 0
                keys = (*self.small(kind), "explain.methods=integrated", f"explain.baseline={baseline}", "explain.steps=40")
                self.explained("sum_" + kind, 0, *keys, f"explain.target={target}")
                one = self.check_sums("sum_" + kind)
                if kind in ("masked", "values", "spans", "pairs", "bart", "bart_tags"):
                    self.explained("two_" + kind, 2, *keys, f"explain.target={target}", "mesh.pipeline=2" if kind in ("spans", "bart") else "mesh.tensor=2")
                    for a, b in zip(one["integrated"], self.open("two_" + kind, "integrated")["integrated"], strict=True):
                        numpy.testing.assert_allclose(a, b, atol=2e-5)

    def test_gradients_are_finite_differences(self):
        for kind in ("masked", "pairs"):
            with self.subTest(kind):
                self.check_differences(*self.small(kind))

    def test_attention_of_pairs_on_tensor_ranks(self):
        """Each rank has some of the heads."""
        keys = (*self.small("pairs"), "explain.methods=attention")
        self.explained("heads", 0, *keys)
        self.explained("heads_two", 2, *keys, "mesh.tensor=2")
        with h5py.File(os.path.join(self.at("heads"), "explain", "attention.h5")) as file:
            T, S = file["input_start"][1], file["source_start"][1]
        for prefix, shape in (("", (1, 2, T, T)), ("encoder_", (2, 2, S, S)), ("cross_", (1, 2, T, S))):
            one = self.weights("heads", 0, shape, prefix)
            numpy.testing.assert_allclose(one.sum(axis=-1), 1, atol=1e-5)
            numpy.testing.assert_allclose(self.weights("heads_two", 0, shape, prefix), one, atol=2e-6)

    def test_states_of_values_and_answers(self):
        """Their heads have no rows of words behind the layers; the same bytes on every mesh."""
        for kind in ("values", "spans"):
            keys = (*self.small(kind), "explain.methods=similarity,factors", "explain.neighbours=2", "explain.factors=2", "explain.steps=5")
            self.explained("states_" + kind, 0, *keys)
            with h5py.File(os.path.join(self.at("states_" + kind), "explain", "similarity.h5")) as file:
                alike = file["anisotropy"][:]
            self.assertTrue(numpy.isfinite(alike).all() and (numpy.abs(alike) <= 1).all(), alike)
            self.assertEqual(len(set(alike.tolist())), 2, "layers have states of their own")
            for mesh in ("data", "pipeline"):
                self.explained(f"states_{kind}_{mesh}", 2, *keys, f"mesh.{mesh}=2")
                self.assertEqual(self.files("states_" + kind), self.files(f"states_{kind}_{mesh}"), mesh)

    def test_texts_of_a_file_are_as_those_of_a_corpus(self):
        """Of masked models and classes too; a task has fewer outcomes than its tokenizer words."""
        for kind in ("masked", "classes"):
            model, corpus = self.small(kind)
            if kind == "classes":
                corpus = self.at("bare.h5")
                self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "lines", "--out", corpus, self.at("few.txt")])
                corpus = f"explain.corpus={corpus}"
            keys = (model, "explain.methods=saliency", "explain.target=best", f"tokenizer.path={self.at('tokenizer.json')}")
            self.explained("corpus_" + kind, 0, *keys, corpus)
            for ranks in (0, 2):
                name = f"file_{kind}_{ranks}"
                self.explained(name, ranks, *keys, f"explain.texts={self.at('few.txt')}")
                for a, b in zip(self.open("corpus_" + kind, "saliency")["saliency_l2"], self.open(name, "saliency")["saliency_l2"], strict=True):
                    numpy.testing.assert_array_equal(a, b)

    def test_texts_are_masked_in_turn(self):
        """As if one place after another were masked alone; of more than explain.places some."""
        keys = (*self.small("masked"), "explain.methods=saliency,lens")
        self.explained("turn", 0, *keys)
        turn = {method: self.open("turn", method) for method in ("saliency", "lens")}
        self.write("third.json", "[[2], [], [0]]")
        self.explained("third", 0, *keys, f"explain.masks={self.at('third.json')}")
        for method, array in (("saliency", "saliency_l2"), ("lens", "logprob"), ("lens", "kl")):
            alone = self.open("third", method)[array]
            numpy.testing.assert_allclose(alone[0][0], turn[method][array][0][2], atol=1e-6)
            self.assertEqual(len(alone[1]), 0)
            numpy.testing.assert_allclose(alone[2][0], turn[method][array][2][0], atol=1e-6)
        self.explained("some", 0, *keys, "explain.places=2")
        self.assertEqual([len(rows) for rows in self.open("some", "saliency")["saliency_l2"]], [2, 2, 2])

    def summary_of(self, name):
        with open(os.path.join(self.at(name), "explain", "summary.json"), encoding="utf-8") as file:
            return json.load(file)["methods"]

    def test_members_of_an_ensemble_and_their_mean(self):
        model, corpus = self.small("classes")
        self.tuned("other", 0, f"corpus.train={self.at('texts.h5')}", f"corpus.valid={self.at('texts.h5')}", "model.kind=bert", *self.SMALL, "task.label=topic",
                   "train.steps=3", "train.batch=2", "run.seed=7")
        self.write("ensemble.json", json.dumps({"format_version": 1, "members": [{"name": name, "path": self.at(path)} for name, path in
                                                                                (("m00", "classes"), ("m01", "other"))]}))
        methods = "explain.methods=saliency,integrated,contrast"
        keys = (f"explain.model={self.at('ensemble.json')}", corpus, methods, "explain.target=label", "explain.baseline=mask")
        self.explained("members", 0, *keys)
        self.explained("members_two", 2, *keys)
        self.assertEqual(self.files("members"), self.files("members_two"))
        for member, path in (("m00", "classes"), ("m01", "other")):
            self.explained("alone_" + member, 0, f"explain.model={self.at(path)}", *keys[1:])
        for method in ("saliency", "integrated", "contrast"):
            with h5py.File(os.path.join(self.at("members"), "explain", method + ".h5")) as file:
                for array, values in file.items():
                    if "." in array or values.dtype != numpy.float32:
                        continue
                    members = []
                    for member in ("m00", "m01"):
                        with h5py.File(os.path.join(self.at("alone_" + member), "explain", method + ".h5")) as alone:
                            members.append(alone[array][:])
                        numpy.testing.assert_array_equal(file[f"{member}.{array}"][:], members[-1], array)
                    numpy.testing.assert_allclose(values[:], numpy.mean(numpy.array(members, float), axis=0), rtol=1e-6, atol=1e-9, err_msg=array)
        own = (corpus, "explain.methods=attention,surrogate,shapley,counterfactual", "explain.samples=40", "explain.flips=2", "explain.edits=2", "explain.target=label")
        self.explained("own", 0, keys[0], *own)
        figures = self.summary_of("own")
        for member, path in (("m00", "classes"), ("m01", "other")):  # heads, and flips, have no mean
            self.explained("own_" + member, 0, f"explain.model={self.at(path)}", *own)
            for method in ("attention", "counterfactual"):
                with h5py.File(os.path.join(self.at("own"), "explain", method + ".h5")) as file, \
                        h5py.File(os.path.join(self.at("own_" + member), "explain", method + ".h5")) as alone:
                    for array, values in alone.items():
                        if values.dtype == numpy.float32:
                            self.assertNotIn(array, file)
                            numpy.testing.assert_array_equal(file[f"{member}.{array}"][:], values[:], array)
                self.assertEqual(figures[method]["members"][member]["intervals"], self.summary_of("own_" + member)[method]["intervals"])
        with h5py.File(os.path.join(self.at("own"), "explain", "shapley.h5")) as file:  # of the mixture: values are linear in probabilities
            for array in ("value", "all", "none"):
                numpy.testing.assert_allclose(file[array][:], (file["m00." + array][:] + file["m01." + array][:]) / 2, atol=1e-6)
        with open(os.path.join(self.at("own"), "explain", "index.html"), encoding="utf-8") as page:
            self.assertIn("Attention, member m01", page.read())
        self.tuned("deep", 0, f"corpus.train={self.at('texts.h5')}", f"corpus.valid={self.at('texts.h5')}", "model.kind=bert", "model.layers=2", *self.SMALL[1:],
                   "task.label=topic", "train.steps=1", "train.batch=2")
        self.write("unlike.json", json.dumps({"format_version": 1, "members": [{"name": path, "path": self.at(path)} for path in ("classes", "deep")]}))
        for ranks in (0, 2):  # heads of other layers
            self.assert_error(self.explain("bad", ranks, f"explain.model={self.at('unlike.json')}", corpus, "explain.methods=attention"), 78, "[explain.unlike_members]")
        self.explained("unlike", 0, f"explain.model={self.at('unlike.json')}", corpus, "explain.methods=saliency")
        for method in ("similarity", "sources"):
            self.assert_error(self.explain("bad", 0, keys[0], corpus, f"explain.methods={method}"), 78, "[explain.of_one]", method)
        self.assert_error(self.explain("bad", 2, *keys[:2], "mesh.members=2"), 78, "[explain.members_in_turn]")

    def test_bad_use(self):
        model, corpus = self.small("classes")
        bare = self.at("bare.h5")
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "lines", "--out", bare, self.at("few.txt")])
        other = {kind: self.small(kind) for kind in ("values", "bart", "sngp", "masked", "spans")}
        for kind in (("classes", model, corpus), ("spans", *other["spans"]), ("masked", *other["masked"])):  # the shortest
            self.explained("short_" + kind[0], 0, *kind[1:], "explain.context=4", "explain.methods=saliency")
        self.write("short.json", "[[0]]")
        self.write("wrong.json", "[[0], [99], []]")
        self.write("turned.json", "[[1, 0], [], []]")
        for keys, words in (((model, corpus, "explain.target=lake"), ("[explain.no_class]", "lake", "sea, town, wood")),
                            ((model, corpus, "explain.context=3"), ("[explain.context_too_short]", "3")),
                            ((model, corpus, "explain.target=next"), ("[explain.no_target]", "next")),
                            ((model, f"explain.corpus={bare}", "explain.target=label"), ("[explain.no_labels]",)),
                            ((model, corpus, "explain.methods=lens"), ("[explain.lacking]", "lens", "has attention, saliency, gradient")),
                            ((*other["values"], "explain.methods=contrast"), ("[explain.lacking]", "contrast")),
                            ((*other["values"], "explain.target=every"), ("[explain.no_target]", "every")),
                            ((*other["spans"], "explain.target=every"), ("[explain.no_target]", "every")),
                            ((*other["bart"], "explain.methods=attention"), ("[explain.lacking]", "attention", "has saliency, gradient")),
                            ((*other["bart"], "explain.methods=sources"), ("[explain.lacking]", "sources")),
                            (other["sngp"], ("[explain.lacking]", "gradient"))):
            for ranks in (0, 2) if words[0] in ("[explain.no_class]", "[explain.no_labels]") else (0,):
                self.assert_error(self.explain("bad", ranks, *keys), 78, *words)
        for name in ("short", "wrong", "turned"):
            self.assert_error(self.explain("bad", 0, *other["masked"], f"explain.masks={self.at(name + '.json')}"), 65, "[explain.bad_masks]")


if __name__ == "__main__":
    bagpipe_test.main()
