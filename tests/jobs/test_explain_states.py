"""bagpipe explain over states and activations: the numbers of float64 on every mesh, and NumPy's definitions."""
import json
import os
import signal

import bagpipe_test
import test_explain_kinds
from bagpipe_test import shared
from english import english
from test_explain import Explained, read_tensors

try:
    import h5py
    import numpy
except ImportError:
    h5py = None

CAUSAL = {"gpt2-lmhead-tiny": 3, "llama-tiny": 2}  # models, and tensor ranks that divide their heads


def meshes(model):
    ranks = CAUSAL[model]
    return {"one": (0,), "data": (2, "mesh.data=2"), "pipeline": (2, "mesh.pipeline=2"), "tensor": (ranks, f"mesh.tensor={ranks}")}


def qualities(points, near=5):
    """Trustworthiness and continuity of a map of states, by Venna and Kaski's formula."""
    ranks = []
    for x in points:
        order = numpy.argsort(((x[:, None] - x[None]) ** 2).sum(-1) + numpy.diag(numpy.full(len(x), -1.0)), axis=1, kind="stable")
        ranks.append(numpy.argsort(order, axis=1))  # of itself 0
    n = len(points[0])
    scale = 2 / (n * near * (2 * n - 3 * near - 1))
    return [1 - scale * numpy.maximum(0, theirs - near)[(ours >= 1) & (ours <= near)].sum() for ours, theirs in (ranks[::-1], ranks)]


class References(Explained):
    """What NumPy, SciPy, scikit-learn and torch give in float64: ../shared/reference/explain-tiny."""

    @classmethod
    def setUpClass(cls):
        if shared("reference/explain-tiny") is None:
            raise bagpipe_test.unittest.SkipTest("there is no ../shared/reference/explain-tiny")
        super().setUpClass()
        cls.arrays_of, cls.figures, cls.states, cls.runs = {}, {}, {}, {}
        for model in CAUSAL:
            folder = shared(f"reference/explain-tiny/{model}")
            with open(os.path.join(folder, "inputs.json"), encoding="utf-8") as file:
                inputs = json.load(file)
            with open(os.path.join(folder, "expected.json"), encoding="utf-8") as file:
                cls.figures[model] = json.load(file)["corpus"]
            with open(os.path.join(shared("reference/" + model), "config.json"), encoding="utf-8") as file:
                config = json.load(file)
            path = os.path.join(folder, "expected.safetensors")
            cls.arrays_of[model] = {**read_tensors(path), **read_tensors(path, "I32"), **read_tensors(path, "F32")}
            cls.states[model] = cls.arrays_of[model]["states"].astype(float)
            cls.must(["bagpipe-data", "import", shared("reference/" + model), "--out", cls.at(model)])
            cls.corpus(model + ".h5", [document["tokens"][1:] for document in inputs["documents"]], config["vocab_size"],
                       config.get("eos_token_id", inputs["roles"]["begin"]))

    def run_on(self, name, model, mesh, *keys):
        self.explained(name, mesh[0], f"explain.model={self.at(model)}", f"explain.corpus={self.at(model + '.h5')}", *mesh[1:], *keys)
        with open(os.path.join(self.at(name), "explain", "summary.json"), encoding="utf-8") as file:
            return json.load(file)["methods"]

    def on(self, mesh, model):
        """The name and the figures of a run of all methods on one of `meshes`, which all cases share; of the bytes of the first one."""
        name = f"{mesh}_{model}"
        if name not in self.runs:
            self.runs[name] = self.run_on(name, model, meshes(model)[mesh], "explain.methods=similarity,projection,factors,memories",
                                          "explain.neighbours=10", "explain.factors=4", "explain.steps=20")
            if mesh not in ("one", "tensor"):
                self.assertEqual(self.files(self.on("one", model)[0]), self.files(name), mesh)
        return name, self.runs[name]

    def datasets(self, name, method):
        with h5py.File(os.path.join(self.at(name), "explain", method + ".h5")) as file:
            return {key: file[key][()] for key in file}

    def test_similarity_is_that_of_float64(self):
        for model in CAUSAL:
            expected, geometry = self.arrays_of[model], self.figures[model]["geometry"]
            for mesh in meshes(model):
                name, figures = self.on(mesh, model)
                found = self.datasets(name, "similarity")
                numpy.testing.assert_array_equal(found["point_token"], geometry["tokens"])
                numpy.testing.assert_array_equal(numpy.stack([found["point_document"], found["point_place"]], 1), geometry["where"])
                numpy.testing.assert_array_equal(found["type"], geometry["types"])
                numpy.testing.assert_array_equal(found["occurrences"], geometry["occurrences"])
                numpy.testing.assert_allclose(found["self_similarity"], geometry["self_similarity"], rtol=0, atol=2e-6)
                numpy.testing.assert_allclose(found["within_document"], geometry["within_document"], rtol=0, atol=2e-6)
                numpy.testing.assert_allclose(found["anisotropy"], geometry["anisotropy"], rtol=0, atol=2e-6)
                numpy.testing.assert_allclose(figures["similarity"]["adjusted"], geometry["self_similarity_adjusted"], rtol=0, atol=2e-6)
                cosines = found["neighbour_cosine"].reshape(len(found["layer"]), len(found["query"]), 10)
                numpy.testing.assert_allclose(cosines[1:, :12], expected["neighbours.cosine"], rtol=0, atol=2e-6)
                neighbours = found["neighbour"].reshape(cosines.shape)[1:, :12]
                for layer, gap in enumerate(geometry["neighbours.smallest_gap"]):
                    if gap > 2e-6:
                        numpy.testing.assert_array_equal(neighbours[layer], expected["neighbours"][layer])

    def test_words_are_chosen_and_layers_too(self):
        """Of a corpus without tokenizer words are ids."""
        model = "gpt2-lmhead-tiny"
        geometry = self.figures[model]["geometry"]
        figures = self.run_on("words", model, (0,), "explain.methods=similarity", "explain.words=20,72", "explain.layers=0,2")["similarity"]
        self.assertEqual(figures["layers"], [0, 2])
        for token in (20, 72):
            at = geometry["types"].index(token)
            self.assertEqual(figures["words"][str(token)]["occurrences"], geometry["occurrences"][at])
            numpy.testing.assert_allclose(figures["words"][str(token)]["self_similarity"], [geometry["self_similarity"][layer][at] for layer in (0, 2)],
                                          rtol=0, atol=2e-6)
        found = self.datasets("words", "similarity")
        self.assertEqual(set(found["point_token"][found["query"]]), {20, 72})

    def test_principal_components_are_those_of_float64(self):
        """Directions are as sharp as the gap between their variances. Maps have the same bytes on all meshes."""
        for model in CAUSAL:
            expected, gaps = self.arrays_of[model], self.figures[model]["geometry"]["pca.gap"]
            for mesh in meshes(model):
                name, figures = self.on(mesh, model)
                figures = figures["projection"]
                found = self.datasets(name, "projection")
                layers, n, width = len(found["layer"]), len(found["point"]), found["mean"].shape[1]
                numpy.testing.assert_allclose(found["mean"], expected["pca.mean"], rtol=0, atol=5e-6)
                numpy.testing.assert_allclose(found["variance"], expected["pca.variance"], rtol=1e-5, atol=1e-9)
                numpy.testing.assert_allclose(found["pca"].reshape(layers, n, 4), expected["pca.score"], rtol=0, atol=5e-5)
                for layer, gap in enumerate(gaps):
                    numpy.testing.assert_allclose(found["direction"].reshape(layers, 4, width)[layer], expected["pca.direction"][layer], rtol=0,
                                                  atol=1e-5 / gap)
                self.assertEqual([one["layer"] for one in figures["maps"]], [layers - 1])
            for kind in ("pca", "tsne", "umap"):
                drawn = found["pca"].reshape(layers, n, 4)[-1][:, :2] if kind == "pca" else found[kind]
                for measure, value in zip(("trustworthiness", "continuity"), qualities([self.states[model][-1], drawn])):
                    self.assertAlmostEqual(figures["maps"][0][kind][measure], value, delta=1e-3)  # ties within an error of float32
                self.assertGreater(figures["maps"][0][kind]["trustworthiness"], 0.8, kind)

    def test_factors_are_updates_of_the_activations(self):
        """One more update by NumPy, of the activations of float64, leads from a run to the one after it."""
        for model in CAUSAL:
            x = self.arrays_of[model]["nmf.x"]
            found = {}
            self.run_on("less_" + model, model, (0,), "explain.methods=factors", "explain.factors=4", "explain.steps=19")
            for steps, name in ((19, "less_" + model), *((20 + k, self.on(mesh, model)[0]) for k, mesh in enumerate(meshes(model)))):
                data = self.datasets(name, "factors")
                found[steps] = (data["w"][:len(x)].astype(float), data["h"][:4].astype(float), data["left"][0])
                numpy.testing.assert_array_equal(data["input"][1:len(x)], self.figures[model]["geometry"]["tokens"][:len(x) - 1])
            w, h, _ = found[19]
            w = w * (x @ h.T) / (w @ h @ h.T)
            below = w.T @ w @ h
            h = h * (w.T @ x) / numpy.where(below == 0, 2.0 ** -23, below)
            for steps in range(20, 24):
                numpy.testing.assert_allclose(found[steps][0], w, rtol=0, atol=2e-4)
                numpy.testing.assert_allclose(found[steps][1], h, rtol=0, atol=2e-4)
                self.assertAlmostEqual(found[steps][2], ((x - w @ h) ** 2).sum() / (x ** 2).sum(), delta=1e-5)
                self.assertLess(found[steps][2], found[19][2])

    def test_memories_are_those_of_float64(self):
        """The places of each key, both ends where there is a gate, and what its value predicts."""
        for model in CAUSAL:
            expected, corpus = self.arrays_of[model], self.figures[model]["mlp"]
            layers, keys, most = expected["mlp.trigger_coefficient"].shape
            self.assertGreater(corpus["smallest_gap_of_triggers"], 4e-6)
            for mesh in meshes(model):
                name, figures = self.on(mesh, model)
                figures = figures["memories"]
                found = {array: values.reshape(layers, keys, -1) if array not in ("layer", "doc_id") else values
                         for array, values in self.datasets(name, "memories").items()}
                numpy.testing.assert_array_equal(numpy.stack([found["trigger_document"], found["trigger_place"]], -1), expected["mlp.trigger"])
                numpy.testing.assert_allclose(found["trigger_coefficient"], expected["mlp.trigger_coefficient"], rtol=0, atol=2e-5)
                if "mlp.trigger_negative" in expected:
                    numpy.testing.assert_array_equal(numpy.stack([found["negative_document"], found["negative_place"]], -1), expected["mlp.trigger_negative"])
                    self.assertLess(found["negative_coefficient"].min(), 0)
                numpy.testing.assert_array_equal(found["value_top5"], expected["mlp.value_top5"])
                numpy.testing.assert_allclose(found["value_logprob"][..., 0], expected["mlp.value_top_logprob"], rtol=0, atol=1e-5)
                numpy.testing.assert_array_equal(found["rank_of_next"], expected["mlp.rank_of_next"])
                for ours, theirs in (("keys_with_trigger", "keys_with_trigger"), ("agreement_first", "agreement_top1"), ("agreement_all", "agreement_top10"),
                                     ("reciprocal_rank_first", "mean_reciprocal_rank_top1")):
                    numpy.testing.assert_allclose(figures[ours], corpus[theirs], rtol=0, atol=1e-9)
            figures = self.run_on(f"keys_of_one_{model}", model, (0,), "explain.methods=memories", "explain.layers=0,2", "explain.keys=3")["memories"]
            self.assertEqual(figures["layers"], [2])
            data = self.datasets(f"keys_of_one_{model}", "memories")
            numpy.testing.assert_array_equal(numpy.stack([data["trigger_document"], data["trigger_place"]], -1), expected["mlp.trigger"][1, :, :3])

    def test_a_coordinator_of_its_own_puts_them_together(self):
        name, alone = self.on("one", "llama-tiny")
        figures = self.run_on("dedicated", "llama-tiny", (3,), "mesh.coordinator=dedicated", "explain.methods=similarity,projection,factors,memories",
                              "explain.neighbours=10", "explain.factors=4", "explain.steps=20")
        self.assertEqual(figures, alone)
        self.assertEqual(self.files("dedicated"), self.files(name))


class Kinds(test_explain_kinds.Kinds):
    """Masked models, classifiers of two segments and encoder-decoders by the states of all twelve documents."""
    test_masked_models_are_those_of_float64 = test_classes_are_those_of_float64 = test_translations_are_those_of_float64 = None
    DOCUMENTS = None

    def run_on(self, name, keys, methods, *more):
        self.explained(name, 0, *keys, f"explain.methods={methods}", "explain.neighbours=10", "explain.factors=4", *more)
        with open(os.path.join(self.at(name), "explain", "summary.json"), encoding="utf-8") as file:
            return json.load(file)["methods"]

    def datasets(self, name, method):
        with h5py.File(os.path.join(self.at(name), "explain", method + ".h5")) as file:
            return {key: file[key][()] for key in file}

    def order(self, model):
        """Numbers of the fixture's documents as `framed` sorts them: of pairs first."""
        documents = self.loaded(model)[0]
        if "token_type_ids" not in documents[0]:
            return list(range(len(documents)))
        pairs = [any(document["token_type_ids"]) for document in documents]
        return [k for k, pair in enumerate(pairs) if pair] + [k for k, pair in enumerate(pairs) if not pair]

    def compare(self, name, model):
        """Points of our file against the fixture's, document by document."""
        _, expected, integers, figures = self.loaded(model)
        geometry, order = figures["corpus"]["geometry"], self.order(model)
        found = self.datasets(name, "similarity")
        ours = [(order[d], place) for d, place in zip(found["point_document"], found["point_place"])]
        self.assertEqual(sorted(ours), [tuple(at) for at in geometry["where"]])
        at = [geometry["where"].index(list(point)) for point in ours]
        numpy.testing.assert_array_equal(found["point_token"], numpy.array(geometry["tokens"])[at])
        numpy.testing.assert_array_equal(found["type"], geometry["types"])
        self.close(found["self_similarity"], geometry["self_similarity"], 2e-6, name)
        self.close(found["anisotropy"], geometry["anisotropy"], 2e-6, name)
        self.close(found["within_document"], numpy.array(geometry["within_document"])[:, order], 2e-6, name)
        found = self.datasets(name, "projection")
        self.close(found["mean"], expected["pca.mean"], 5e-6, name)
        numpy.testing.assert_allclose(found["variance"], expected["pca.variance"], rtol=1e-5, atol=1e-9)

    def compare_memories(self, name, model):
        """Coefficients fall; ours are those of the fixture, key by key."""
        _, expected, integers, _ = self.loaded(model)
        found, order = self.datasets(name, "memories"), self.order(model)
        want = expected["mlp.trigger_coefficient"]
        self.close(found["trigger_coefficient"].reshape(want.shape), want, 2e-5, name)
        theirs = integers["mlp.trigger"]
        where = numpy.stack([found["trigger_document"], found["trigger_place"]], -1).reshape(theirs.shape)
        numpy.testing.assert_array_equal(numpy.where(theirs[..., 0] < 0, -1, numpy.array(order)[where[..., 0]]), theirs[..., 0])
        numpy.testing.assert_array_equal(where[..., 1], theirs[..., 1])
        numpy.testing.assert_array_equal(found["value_top5"].reshape(*want.shape[:2], 5), integers["mlp.value_top5"])
        if "mlp.rank_of_next" in integers:
            numpy.testing.assert_array_equal(found["rank_of_next"].reshape(want.shape), integers["mlp.rank_of_next"])

    def compare_factors(self, name, model):
        """Nothing is left out of X: its squares are |X|^2, of which a share is left."""
        x = self.loaded(model)[1]["nmf.x"]
        found = self.datasets(name, "factors")
        w, h = found["w"][:len(x)].astype(float), found["h"][:4].astype(float)
        self.assertAlmostEqual(found["left"][0], ((x - w @ h) ** 2).sum() / (x ** 2).sum(), delta=1e-5)

    def test_masked_models_by_their_states(self):
        self.run_on("masked_states", self.masked_keys(), "similarity,projection,factors,memories", "explain.target=label")
        self.compare("masked_states", "bert-tiny")
        self.compare_memories("masked_states", "bert-tiny")
        self.compare_factors("masked_states", "bert-tiny")

    def test_segments_of_classifiers_by_their_states(self):
        keys = (f"explain.corpus={self.framed('bert-sequence-tiny')}", f"explain.model={self.at('bert-sequence-tiny')}")
        self.run_on("classifier_states", keys, "similarity,projection,factors")
        self.compare("classifier_states", "bert-sequence-tiny")
        self.compare_factors("classifier_states", "bert-sequence-tiny")
        self.assert_error(self.explain("bad", 0, *keys, "explain.methods=memories"), 78, "[explain.lacking]", "memories")

    def test_encoder_decoders_by_their_states(self):
        keys = self.pair_keys()
        self.run_on("pair_states", keys, "similarity,projection,memories")
        self.compare("pair_states", "transformer-tiny")
        self.compare_memories("pair_states", "transformer-tiny")
        self.assert_error(self.explain("bad", 0, *keys, "explain.methods=factors"), 78, "[explain.lacking]", "factors")


class Words(Explained):
    """A corpus with a tokenizer: words are what it makes of them, alone and after a blank."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        text = english(400)
        cls.write("text.txt", text)
        cls.write("few.txt", "".join(text.splitlines(True)[:4]))
        cls.must(["bagpipe-data", "tokenizer", "--size", "300", "--out", cls.at("tokenizer.json"), cls.at("text.txt")])
        for name in ("text", "few"):
            cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "lines", "--out", cls.at(name + ".h5"), cls.at(name + ".txt")])
        cls.must(["bagpipe", "pretrain", f"run.dir={cls.at('gpt')}", f"corpus.train={cls.at('text.h5')}", "train.steps=4", "train.batch=4", "optimizer.lr=0.02",
                  "math.precision=f32", "model.layers=2", "model.width=16", "model.heads=2", "model.context=24"])
        cls.keys = (f"explain.model={cls.at('gpt')}", f"explain.corpus={cls.at('few.h5')}")

    def test_words_are_those_of_the_tokenizer(self):
        """A word of several tokens is where its last one is."""
        keys = (*self.keys, "explain.methods=similarity")
        with open(self.at("few.txt"), encoding="utf-8") as file:
            lines = [line.split() for line in file]
        word = lines[0][1]
        self.explained("of_words", 0, *keys, f"explain.words={word}")
        with open(os.path.join(self.at("of_words"), "explain", "summary.json"), encoding="utf-8") as file:
            found = json.load(file)["methods"]["similarity"]["words"][word]
        self.assertGreaterEqual(found["occurrences"], sum(line[:3].count(word) for line in lines))

    def test_a_killed_job_goes_on(self):
        keys = (*self.keys, "explain.methods=similarity,lens,projection,factors,memories", "explain.perplexity=5", "explain.steps=5")
        self.explained("whole", 0, *keys)
        for unit in (2, 5):  # a document, and of what values predict
            name = f"killed_{unit}"
            os.environ["BP_FAULT"] = f"work.unit_done:{unit}=kill"
            try:
                self.assertEqual(self.explain(name, 0, *keys).status, -signal.SIGKILL)
            finally:
                del os.environ["BP_FAULT"]
            self.explained(name, 2, *keys)
            self.assertEqual(self.files("whole"), self.files(name))

    def test_bad_use(self):
        keys = (*self.keys, "explain.methods=similarity")
        for words, more in ((["[explain.no_layer]", "0-3"], ["explain.layers=0-3"]), (["[explain.no_layer]"], ["explain.layers=1,"]),
                            (["[explain.no_layer]"], ["explain.layers=last"]), (["[explain.no_word]", "qqqxq"], ["explain.words=qqqxq"]),
                            (["[config.bad_value]"], ["explain.neighbours=1"]), (["[explain.few_points]", "similarity"], ["explain.neighbours=1000"]),
                            (["[explain.few_points]", "projection"], ["explain.methods=projection", "explain.perplexity=999"]),
                            (["[explain.no_layer]"], ["explain.methods=factors", "explain.layers=0"])):
            for ranks in (0, 2):
                self.assert_error(self.explain("bad", ranks, *keys, *more), 78, *words)
        self.write("twice.json", json.dumps({"members": [{"name": name, "path": self.at("gpt")} for name in "ab"]}))
        os.makedirs(self.at("twice"), exist_ok=True)
        os.rename(self.at("twice.json"), self.at("twice/ensemble.json"))
        for method in ("similarity", "projection", "factors", "memories"):
            self.assert_error(self.explain("bad", 0, f"explain.model={self.at('twice')}", self.keys[1], f"explain.methods={method}"), 78, "[explain.of_one]", method)
        self.must(["bagpipe", "pretrain", f"run.dir={self.at('experts')}", "model.kind=mixtral", f"corpus.train={self.at('text.h5')}", "train.steps=1",
                   "train.batch=2", "model.layers=1", "model.width=16", "model.heads=2", "model.kv_heads=2", "model.experts=2", "model.experts_chosen=1", "model.context=24"])
        self.assert_error(self.explain("bad", 0, f"explain.model={self.at('experts')}", self.keys[1], "explain.methods=factors"), 78, "[explain.lacking]",
                          "factors")


if __name__ == "__main__":
    bagpipe_test.main()
