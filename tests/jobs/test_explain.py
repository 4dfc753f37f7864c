"""bagpipe explain: attributions against those of float64 on every mesh, completeness of all families that continue texts, resumption, bad use."""
import json
import os
import shutil
import signal
import struct
import time

import bagpipe_test
from bagpipe_test import FolderTest, program, run, shared
from english import english

try:
    import h5py
    import numpy
except ImportError:
    h5py = None

ARRAYS = {"saliency": ("saliency_l1", "saliency_l2"), "gradient": ("gradient_x_input",), "integrated": ("integrated",)}
METHODS = ",".join(ARRAYS)


def read_tensors(path, code="F64"):
    """All tensors of a type in a safetensors file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    kind = {"F64": numpy.float64, "I32": numpy.int32, "F32": numpy.float32}[code]
    return {name: numpy.frombuffer(data[tensor["data_offsets"][0]:tensor["data_offsets"][1]], kind).reshape(tensor["shape"])
            for name, tensor in header.items() if name != "__metadata__" and tensor["dtype"] == code}


class Explained(FolderTest):
    @classmethod
    def setUpClass(cls):
        if h5py is None:
            raise bagpipe_test.unittest.SkipTest("there is no h5py")
        super().setUpClass()

    @classmethod
    def corpus(cls, name, documents, vocabulary, eod):
        """Documents of token ids, each with an end-of-document token."""
        starts = numpy.cumsum([0] + [len(document) + 1 for document in documents])
        with h5py.File(cls.at(name), "w") as file:
            file["tokens"] = numpy.concatenate([[*document, eod] for document in documents]).astype("u2")
            file["doc_start"] = starts.astype("i8")
            file.attrs["vocab_size"] = vocabulary
            file.attrs["eod_id"] = eod
        return cls.convert(name)

    def explain(self, name, ranks, *keys):
        return run([program("bagpipe"), "explain", f"run.dir={self.at(name)}", "math.precision=f32", *keys], ranks)

    def explained(self, name, ranks, *keys):
        result = self.explain(name, ranks, *keys)
        self.assertEqual(result.status, 0, str(result))
        return result

    def arrays(self, name, method):
        """{array: a matrix (or a row) for each document}"""
        with h5py.File(os.path.join(self.at(name), "explain", method + ".h5")) as file:
            targets, cells = file["target_start"][:], file["square_start" if method == "attention" else "matrix_start"][:]
            found = {}
            for array in file:
                values = file[array]
                if values.dtype != numpy.float32:
                    continue
                square = len(values) == cells[-1]
                found[array] = [values[cells[d]:cells[d + 1]].reshape(-1, targets[d + 1] - targets[d]) if square else values[targets[d]:targets[d + 1]]
                                for d in range(len(targets) - 1)]
            return found

    def weights(self, name, e, shape, prefix=""):
        """The weights that examples.h5 keeps of example e, of one kind of attention, as an array of `shape`: layers, heads, queries, keys."""
        with h5py.File(os.path.join(self.at(name), "explain", "examples.h5")) as file:
            start, end = file[prefix + "weight_start"][e:e + 2]
            kept = file[prefix + "kept"][e]
            keys = file[prefix + "key"][start:end].reshape(*shape[:3], kept)
            weights = file[prefix + "weight"][start:end].reshape(keys.shape)
        self.assertTrue((numpy.diff(weights, axis=-1) <= 0).all(), "the largest come first")
        found = numpy.zeros(shape)
        for at in numpy.argwhere(keys >= 0):
            found[at[0], at[1], at[2], int(keys[tuple(at)])] = weights[tuple(at)]
        return found

    def check_differences(self, model, *_):
        """Derivatives along random directions of all word vectors together are central differences of forward passes, which are in float32."""
        result = run([os.path.join(os.path.dirname(program("bagpipe")), "..", "tests", "explain_gradients"), model.removeprefix("explain.model=")])
        self.assertEqual(result.status, 0, str(result))
        along, differences = numpy.array([line.split() for line in result.out.splitlines()], float).T
        self.assertEqual(len(along), 4)
        self.assertGreater(numpy.abs(along).max(), 1e-3)
        numpy.testing.assert_allclose(along, differences, rtol=0, atol=1e-2 * numpy.abs(along).max())

    def files(self, name):
        folder = os.path.join(self.at(name), "explain")
        return {file: self.content(os.path.join(folder, file)) for file in sorted(os.listdir(folder)) if file.endswith((".h5", ".json"))}

    def content(self, path):
        with open(path, "rb") as file:
            return file.read()


class References(Explained):
    """What torch's autograd gives in float64: ../shared/reference/explain-tiny."""

    @classmethod
    def setUpClass(cls):
        if shared("reference/explain-tiny") is None:
            raise bagpipe_test.unittest.SkipTest("there is no ../shared/reference/explain-tiny")
        super().setUpClass()
        cls.expected, cls.integers, cls.documents, cls.separators = {}, {}, {}, {}
        for model in ("gpt2-lmhead-tiny", "llama-tiny"):
            folder = shared(f"reference/explain-tiny/{model}")
            with open(os.path.join(folder, "inputs.json"), encoding="utf-8") as file:
                inputs = json.load(file)
            with open(os.path.join(shared("reference/" + model), "config.json"), encoding="utf-8") as file:
                config = json.load(file)
            cls.expected[model] = read_tensors(os.path.join(folder, "expected.safetensors"))
            cls.integers[model] = read_tensors(os.path.join(folder, "expected.safetensors"), "I32")
            cls.documents[model] = [document["tokens"][1:] for document in inputs["documents"][:3]]
            cls.separators[model] = ",".join(map(str, inputs["separator_ids"]))
            cls.must(["bagpipe-data", "import", shared("reference/" + model), "--out", cls.at(model)])
            cls.corpus(model + ".h5", cls.documents[model], config["vocab_size"], config.get("eos_token_id", inputs["roles"]["begin"]))

    def keys(self, model):
        return f"explain.model={self.at(model)}", f"explain.corpus={self.at(model + '.h5')}", f"explain.methods={METHODS}"

    def compare(self, name, model, target, baseline):
        expected = self.expected[model]
        for method, names in ARRAYS.items():
            found = self.arrays(name, method)
            for array in names:
                reference = array if method != "integrated" else f"ig_{baseline}_50"
                for d in range(3):
                    want = expected[f"doc{d}.{target}.{reference}"]
                    most = 2e-5 if method == "integrated" else 1e-5 + 5e-6 * numpy.abs(want).max()
                    numpy.testing.assert_allclose(found[array][d], want, rtol=0, atol=most, err_msg=f"{name} {array} {d}")

    def test_attributions_are_those_of_float64(self):
        for model in self.expected:
            for target, theirs in (("next", "next"), ("best", "argmax")):
                for baseline, token in (("zero", "zero"), ("eod", "baseline_token")):
                    name = f"{model}_{target}_{baseline}"
                    self.explained(name, 0, *self.keys(model), f"explain.target={target}", f"explain.baseline={baseline}")
                    self.compare(name, model, theirs, token)

    def test_the_lens_is_that_of_float64(self):
        """The last layer is the model's own distribution."""
        names = {"rank_next": "rank", "rank_final": "rank_best", "logprob_next": "logprob", "logprob_final": "logprob_best", "entropy": "entropy",
                 "kl": "kl", "kl_clipped": "kl_clipped"}
        for model in self.expected:
            keys = (*self.keys(model)[:2], "explain.methods=lens")
            self.explained("lens_" + model, 0, *keys)
            self.explained("lens_two_" + model, 2, *keys, "mesh.pipeline=2")
            self.assertEqual(self.files("lens_" + model), self.files("lens_two_" + model), model)
            with h5py.File(os.path.join(self.at("lens_" + model), "explain", "lens.h5")) as file:
                starts = file["target_start"][:]
                for d in range(3):
                    rows = slice(starts[d], starts[d + 1])
                    for theirs, ours in names.items():
                        want = self.integers[model].get(f"doc{d}.lens.{theirs}", self.expected[model].get(f"doc{d}.lens.{theirs}"))
                        numpy.testing.assert_allclose(file[ours][rows].T, want, rtol=0, atol=1e-5, err_msg=f"{model} {ours} {d}")
                    top = file["top5"][rows].reshape(len(file["top5"][rows]), -1, 5)
                    numpy.testing.assert_array_equal(top.transpose(1, 0, 2), self.integers[model][f"doc{d}.lens.top5"])
                    with open(os.path.join(shared(f"reference/explain-tiny/{model}"), "expected.json"), encoding="utf-8") as expected:
                        numpy.testing.assert_array_equal(file["settles"][rows], json.load(expected)[f"doc{d}"]["lens"]["settles"])

    def test_the_lens_of_a_narrow_embedding_reads_what_layers_leave(self):
        """Layer 0 is behind the projection; the head is behind the one back. The fixture's own states, and NumPy."""
        folder, model = shared("reference/opt-350m-tiny"), "opt-350m-tiny"
        weights, expected = (read_tensors(os.path.join(folder, name + ".safetensors"), "F32") for name in ("model", "expected"))
        with open(os.path.join(folder, "tokens.json"), encoding="utf-8") as file:
            tokens = json.load(file)["tokens"][0]
        shutil.copytree(folder, self.at("narrow"))
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        self.write("narrow/config.json", json.dumps({**config, "eos_token_id": tokens[0], "bos_token_id": tokens[0]}))  # which is before texts
        self.must(["bagpipe-data", "import", self.at("narrow"), "--out", self.at(model)])
        self.corpus("narrow.h5", [tokens[1:]], 97, tokens[0])
        out, table = (weights[f"model.decoder.{name}.weight"].astype(float) for name in ("project_out", "embed_tokens"))
        logits = expected["layers"].astype(float) @ out.T @ table.T
        want = logits - numpy.log(numpy.exp(logits).sum(axis=-1, keepdims=True))
        for name, ranks, mesh in (("narrow_one", 0, ()), ("narrow_stages", 2, ("mesh.pipeline=2",)), ("narrow_tensor", 2, ("mesh.tensor=2",))):
            self.explained(name, ranks, f"explain.model={self.at(model)}", f"explain.corpus={self.at('narrow.h5')}",
                           "explain.methods=lens,similarity", "explain.neighbours=2", *mesh)
            with h5py.File(os.path.join(self.at(name), "explain", "lens.h5")) as file:
                found = file["logprob"][:]
            numpy.testing.assert_allclose(found, want[:, range(20), tokens[1:]].T, rtol=0, atol=1e-5)
            with h5py.File(os.path.join(self.at(name), "explain", "similarity.h5")) as file:
                unit = [layer / numpy.linalg.norm(layer, axis=-1, keepdims=True) for layer in expected["layers"].astype(float)[:, file["point_place"][:]]]
                n = len(unit[0])
                numpy.testing.assert_allclose(file["anisotropy"][:], [((layer.sum(0) ** 2).sum() - n) / (n * (n - 1)) for layer in unit], rtol=0, atol=2e-6)
        self.assert_error(self.explain("bad", 0, f"explain.model={self.at(model)}", f"explain.corpus={self.at('narrow.h5')}",
                                       "explain.methods=memories"), 78, "[explain.lacking]", "memories")

    def test_attention_is_that_of_float64(self):
        for model in self.expected:
            keys = (*self.keys(model)[:2], "explain.methods=attention", "explain.separators=" + self.separators[model])
            self.explained("look_" + model, 0, *keys)
            self.explained("look_two_" + model, 2, *keys, "mesh.pipeline=2")
            self.assertEqual(self.files("look_" + model), self.files("look_two_" + model), model)
            with open(os.path.join(shared(f"reference/explain-tiny/{model}"), "expected.json"), encoding="utf-8") as file:
                expected = json.load(file)
            with open(os.path.join(self.at("look_" + model), "explain", "summary.json"), encoding="utf-8") as file:
                corpus = json.load(file)["methods"]["attention"]
            rollout = self.arrays("look_" + model, "attention")["rollout"]
            with h5py.File(os.path.join(self.at("look_" + model), "explain", "attention.h5")) as file:
                for d in range(3):
                    numpy.testing.assert_allclose(rollout[d], self.expected[model][f"doc{d}.rollout"][-1], rtol=0, atol=2e-6)
                    for name in ("entropy", "distance", "self", "first", "separators", "previous", "induction"):
                        want = numpy.array(expected[f"doc{d}"]["attention_statistics"]["attention"][name], float).ravel()
                        numpy.testing.assert_allclose(file[name][d], want, rtol=0, atol=2e-6, err_msg=f"{model} {name} {d}")
            for name in ("entropy", "distance", "self", "first", "separators", "previous", "induction"):
                want = numpy.array(expected["corpus"]["attention_statistics_of_the_three"]["attention"][name], float).ravel()
                numpy.testing.assert_allclose(corpus[name], want, rtol=0, atol=2e-6, err_msg=f"{model} {name}")
        self.explained("look_tensor", 3, *self.keys("gpt2-lmhead-tiny")[:2], "explain.methods=attention", "mesh.tensor=3")
        numpy.testing.assert_allclose(self.arrays("look_tensor", "attention")["rollout"][0], self.arrays("look_gpt2-lmhead-tiny", "attention")["rollout"][0],
                                      atol=1e-6)

    def test_what_sets_a_target_off_from_another_is_that_of_float64(self):
        """From the model's first choice, or its second: the fixture has the last target."""
        for model in self.expected:
            self.explained("foils_" + model, 0, *self.keys(model)[:2], "explain.methods=contrast")
            with open(os.path.join(shared(f"reference/explain-tiny/{model}"), "expected.json"), encoding="utf-8") as file:
                figures = json.load(file)
            with h5py.File(os.path.join(self.at("foils_" + model), "explain", "contrast.h5")) as file:
                for d in range(3):
                    self.assertEqual(file["foil"][file["target_start"][d + 1] - 1], figures[f"doc{d}"]["contrast"][0]["foil"][1])
                    first, end = file["foil_matrix_start"][d:d + 2]
                    for ours, theirs in (("contrast_l1", "l1"), ("contrast_l2", "l2"), ("contrast_x_input", "x_input")):
                        want = self.expected[model][f"doc{d}.contrast.{theirs}"][0]
                        numpy.testing.assert_allclose(file[ours][first:end][-len(want):], want, rtol=0, atol=1e-5 + 5e-6 * numpy.abs(want).max())

    def test_they_are_on_all_meshes(self):
        self.explained("one", 0, *self.keys("gpt2-lmhead-tiny"))
        for mesh in ("data", "pipeline"):
            self.explained(mesh, 2, *self.keys("gpt2-lmhead-tiny"), f"mesh.{mesh}=2")
            self.assertEqual(self.files("one"), self.files(mesh), mesh)
        self.explained("tensor", 3, *self.keys("gpt2-lmhead-tiny"), "mesh.tensor=3")
        self.compare("tensor", "gpt2-lmhead-tiny", "next", "baseline_token")


class Families(Explained):
    KEYS = {"gpt": (), "llama": ("model.kv_heads=1",), "gemma2": ("model.logit_cap=5", "model.score_cap=5"), "gpt_neox": (), "bloom": (),
            "mamba2": ("model.heads=2", "model.head_width=16", "model.state=8"), "lstm": ("model.heads=",),
            "feedforward": ("model.heads=", "model.layers=", "model.context=5")}  # no mixture: its choices jump on the way

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("text.txt", english(400))
        cls.must(["bagpipe-data", "tokenizer", "--size", "300", "--out", cls.at("tokenizer.json"), cls.at("text.txt")])
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "lines", "--out", cls.at("text.h5"), cls.at("text.txt")])
        cls.write("few.txt", "".join(cls.content(cls, cls.at("text.txt")).decode().splitlines(True)[:3]))
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "lines", "--out", cls.at("few.h5"), cls.at("few.txt")])

    def trained(self, kind):
        if not os.path.exists(self.at(kind)):
            base = {"model.layers": "2", "model.width": "16", "model.heads": "2", "model.context": "24"}
            base.update(key.split("=", 1) for key in self.KEYS[kind])
            self.must(["bagpipe", "pretrain", f"run.dir={self.at(kind)}", f"model.kind={kind}", f"corpus.train={self.at('text.h5')}", "train.steps=4",
                       "train.batch=4", "optimizer.lr=0.02", "math.precision=f32", *(f"{key}={value}" for key, value in base.items())])
        return f"explain.model={self.at(kind)}", f"explain.corpus={self.at('few.h5')}", "explain.context=" + ("4" if kind == "feedforward" else "12")

    def test_integrated_gradients_sum_to_what_the_baseline_changes(self):
        """Forward passes alone give both ends; gradients that are wrong somewhere miss the difference."""
        self.trained("gpt")
        for name, keys in (("lora", (f"model.init={self.at('gpt')}", "adapter.kind=lora")), ("mixed", ("head.softmaxes=2",))):
            self.must(["bagpipe", "pretrain", f"run.dir={self.at(name)}", f"corpus.train={self.at('text.h5')}", "train.steps=4", "train.batch=4",
                       "optimizer.lr=0.02", "math.precision=f32", "model.layers=2", "model.width=16", "model.heads=2", "model.context=24", *keys])
        for kind in (*self.KEYS, "lora", "mixed"):
            with self.subTest(kind):
                self.explained("sum_" + kind, 0, *self.trained(kind), "explain.methods=integrated", "explain.steps=40")
                found = self.arrays("sum_" + kind, "integrated")
                for d in range(3):
                    change = found["logprob"][d] - found["logprob_baseline"][d]
                    self.assertGreater(numpy.abs(change).max(), 1e-3)
                    numpy.testing.assert_allclose(found["integrated"][d].sum(axis=1) - change, found["delta"][d], atol=1e-5)
                    numpy.testing.assert_allclose(found["delta"][d], 0, atol=2e-4 + 0.01 * numpy.abs(change).max())

    def test_gradients_are_finite_differences(self):
        for kind in self.KEYS:
            with self.subTest(kind):
                self.check_differences(*self.trained(kind))

    def test_a_killed_job_goes_on(self):
        keys = (*self.trained("gpt"), "explain.methods=gradient,integrated", "explain.steps=5")
        self.explained("whole", 0, *keys)
        os.environ["BP_FAULT"] = "work.unit_done:2=kill"
        try:
            self.assertEqual(self.explain("killed", 0, *keys).status, -signal.SIGKILL)
        finally:
            del os.environ["BP_FAULT"]
        self.explained("killed", 2, *keys)
        self.assertEqual(self.files("whole"), self.files("killed"))

    def test_a_stop_request_ends_a_document(self):
        """There is one unit: a job that asked between units alone would finish it."""
        keys = (*self.trained("gpt"), "explain.methods=integrated", "explain.steps=1000", "explain.context=24")
        self.write("one.txt", " ".join(self.content(self.at("few.txt")).decode().split()[:60]) + "\n")
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "lines", "--out", self.at("one.h5"), self.at("one.txt")])
        for ranks, more in ((0, ()), (2, ("mesh.pipeline=2",))):
            name = f"stopped{ranks}"
            process = bagpipe_test.Background([program("bagpipe"), "explain", f"run.dir={self.at(name)}", "math.precision=f32", *keys,
                                               f"explain.corpus={self.at('one.h5')}", *more], ranks)
            self.addCleanup(process.end)
            while process.poll() is None and not os.path.isdir(os.path.join(self.at(name), "explain", "parts")):
                time.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            result = process.result()
            if ranks == 0:  # mpirun has a status of its own where it is signalled itself
                self.assertEqual(result.status, 75, str(result))
            self.assertIn("after 0 of 1 work units", result.err)

    def test_weights_in_8_bits_go_forward(self):
        """What needs no gradient: the last layer of the lens is what bagpipe score has of the same weights."""
        keys = (*self.trained("gpt"), "model.weights=q8")
        self.explained("q8", 0, *keys, "explain.methods=lens,attention,shapley,similarity,factors", "explain.neighbours=3", "explain.steps=5", "explain.samples=20")
        self.must(["bagpipe", "score", f"run.dir={self.at('q8_score')}", keys[0].replace("explain.", "score."), keys[1].replace("explain.", "score."), "score.tokens=yes",
                   "model.weights=q8", "math.precision=f32"])
        with h5py.File(os.path.join(self.at("q8"), "explain", "lens.h5")) as file:
            starts, found = file["target_start"][:], file["logprob"][:, -1]
        with h5py.File(os.path.join(self.at("q8_score"), "score", "tokens.h5")) as file:
            own, want = file["doc_start"][:], file["logprob"][:]
        for d in range(len(starts) - 1):
            n = starts[d + 1] - starts[d]
            numpy.testing.assert_allclose(found[starts[d]:starts[d + 1]], want[own[d]:own[d] + n], atol=2e-6)
        self.explained("not_q8", 0, *keys[:-1], "explain.methods=lens")
        with h5py.File(os.path.join(self.at("not_q8"), "explain", "lens.h5")) as file:
            self.assertGreater(numpy.abs(file["logprob"][:, -1] - found).max(), 1e-4)
        for method in ("saliency", "gradient", "integrated", "contrast", "counterfactual", "memories"):
            self.assert_error(self.explain("bad", 0, *keys, f"explain.methods={method}"), 78, "[model.q8_backward]")

    def test_bad_use(self):
        keys = self.trained("gpt")
        for words, more in ((["[explain.no_method]", "salience", "use some of attention, lens, saliency, "], ["explain.methods=salience"]), (["[config.empty_value]"], ["explain.methods="]),
                            (["[explain.twice]"], ["explain.methods=gradient,gradient"]), (["[explain.context_too_long]"], ["explain.context=99"]),
                            (["[explain.no_token]", "mask"], ["explain.methods=integrated", "explain.baseline=mask"]),
                            (["[explain.no_target]", "label"], ["explain.target=label"]), (["[explain.no_target]", "genre"], ["explain.target=genre"]),
                            (["[explain.unused_masks]"], ["explain.masks=x"]), (["[explain.bad_separators]"], ["explain.separators=1,b"]),
                            (["[model.q8_backward]"], ["model.weights=q8"])):
            for ranks in (0, 2):
                result = self.explain("bad", ranks, *keys, *more)
                self.assert_error(result, 78, *words)
        for name, head, words, more in (("entmax", "head.activation=entmax15", "[explain.lacking]", ()),
                                        ("mixed2", "head.softmaxes=2", "[explain.no_best]", ("explain.target=best",))):
            self.must(["bagpipe", "pretrain", f"run.dir={self.at(name)}", f"corpus.train={self.at('text.h5')}", "train.steps=1", "train.batch=2", "model.layers=1",
                       "model.width=16", "model.heads=2", "model.context=24", head])
            self.assert_error(self.explain("bad", 0, f"explain.model={self.at(name)}", keys[1], "explain.context=4", *more), 78, words)
        damaged = self.at("damaged")
        shutil.copytree(os.path.join(self.at("entmax"), "checkpoints", bagpipe_test.steps(self.at("entmax"))[-1]), damaged)
        for key, value, word in (("layers", [], "[json.wrong_type]"), ("context", 0, "[model.bad_size]"), ("layers", 2**31, "[model.bad_size]")):
            bagpipe_test.edit_manifest(damaged, lambda manifest, key=key, value=value: manifest["state"]["model"].update({"layers": 1, "context": 24, key: value}))
            self.assert_error(self.explain("bad", 0, f"explain.model={damaged}", keys[1]), 65, word)
        check = [bagpipe_test.program("bagpipe"), "check", "explain", "run.dir=x", *keys]
        for methods, unused, used in (("gradient", "explain.steps=7", "explain.examples=3"), ("factors", "explain.flips=3", "explain.steps=7"),
                                      ("attention,shapley", "explain.baseline=zero", "explain.samples=30"), ("lens", "explain.layers=1", "explain.choose=random"),
                                      ("sources", "explain.perplexity=5", "explain.neighbours=3"), ("saliency", "explain.sets=a", "explain.context=8")):
            given = [key for key in check if key.split("=")[0] not in (unused.split("=")[0], used.split("=")[0])]
            result = bagpipe_test.run([*given, "explain.methods=" + methods, unused, used])
            self.assertEqual((result.status, len(result.lines("warning"))), (0, 1), str(result))
            self.assert_warning(result, "[config.unused_key]", unused.replace("=", " = "), "of explain.methods")
        self.assert_warning(self.explained("cut", 0, *keys, "explain.context=5"), "[explain.cut_documents]", "3 of 3")
        self.assert_warning(self.explained("coarse", 0, *keys, "explain.methods=integrated", "explain.baseline=zero", "explain.steps=1"), "[explain.incomplete]")


if __name__ == "__main__":
    bagpipe_test.main()
