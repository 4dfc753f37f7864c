"""bagpipe explain over states and activations: the numbers of float64 on every mesh, and NumPy's definitions."""
import json
import os
import signal

import bagpipe_test
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


class References(Explained):
    """What NumPy, SciPy, scikit-learn and torch give in float64: ../shared/reference/explain-tiny."""

    @classmethod
    def setUpClass(cls):
        if shared("reference/explain-tiny") is None:
            raise bagpipe_test.unittest.SkipTest("there is no ../shared/reference/explain-tiny")
        super().setUpClass()
        cls.arrays_of, cls.figures, cls.special = {}, {}, {}
        for model in CAUSAL:
            folder = shared(f"reference/explain-tiny/{model}")
            with open(os.path.join(folder, "inputs.json"), encoding="utf-8") as file:
                inputs = json.load(file)
            with open(os.path.join(folder, "expected.json"), encoding="utf-8") as file:
                cls.figures[model] = json.load(file)["corpus"]
            with open(os.path.join(shared("reference/" + model), "config.json"), encoding="utf-8") as file:
                config = json.load(file)
            path = os.path.join(folder, "expected.safetensors")
            cls.arrays_of[model] = {**read_tensors(path), **read_tensors(path, "I32")}
            cls.must(["bagpipe-data", "import", shared("reference/" + model), "--out", cls.at(model)])
            cls.corpus(model + ".h5", [document["tokens"][1:] for document in inputs["documents"]], config["vocab_size"],
                       config.get("eos_token_id", inputs["roles"]["begin"]))

    def run_on(self, name, model, mesh, *keys):
        self.explained(name, mesh[0], f"explain.model={self.at(model)}", f"explain.corpus={self.at(model + '.h5')}", *mesh[1:], *keys)
        with open(os.path.join(self.at(name), "explain", "summary.json"), encoding="utf-8") as file:
            return json.load(file)["methods"]

    def datasets(self, name, method):
        with h5py.File(os.path.join(self.at(name), "explain", method + ".h5")) as file:
            return {key: file[key][()] for key in file}

    def test_similarity_is_that_of_float64(self):
        for model in CAUSAL:
            expected, geometry = self.arrays_of[model], self.figures[model]["geometry"]
            first = None
            for mesh, ranks in meshes(model).items():
                name = f"alike_{mesh}_{model}"
                figures = self.run_on(name, model, ranks, "explain.methods=similarity", "explain.neighbours=10")["similarity"]
                found = self.datasets(name, "similarity")
                numpy.testing.assert_array_equal(found["point_token"], geometry["tokens"])
                numpy.testing.assert_array_equal(numpy.stack([found["point_document"], found["point_place"]], 1), geometry["where"])
                numpy.testing.assert_array_equal(found["type"], geometry["types"])
                numpy.testing.assert_array_equal(found["occurrences"], geometry["occurrences"])
                numpy.testing.assert_allclose(found["self_similarity"], geometry["self_similarity"], rtol=0, atol=2e-6)
                numpy.testing.assert_allclose(found["within_document"], geometry["within_document"], rtol=0, atol=2e-6)
                numpy.testing.assert_allclose(found["anisotropy"], geometry["anisotropy"], rtol=0, atol=2e-6)
                numpy.testing.assert_allclose(figures["adjusted"], geometry["self_similarity_adjusted"], rtol=0, atol=2e-6)
                cosines = found["neighbour_cosine"].reshape(len(found["layer"]), len(found["query"]), 10)
                numpy.testing.assert_allclose(cosines[1:, :12], expected["neighbours.cosine"], rtol=0, atol=2e-6)
                neighbours = found["neighbour"].reshape(cosines.shape)[1:, :12]
                for layer, gap in enumerate(geometry["neighbours.smallest_gap"]):
                    if gap > 2e-6:
                        numpy.testing.assert_array_equal(neighbours[layer], expected["neighbours"][layer])
                first = first or self.files(name)
                if mesh != "tensor":
                    self.assertEqual(first, self.files(name), mesh)

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
        keys = (*self.keys, "explain.methods=similarity,lens")
        self.explained("whole", 0, *keys)
        os.environ["BP_FAULT"] = "work.unit_done:2=kill"
        try:
            self.assertEqual(self.explain("killed", 0, *keys).status, -signal.SIGKILL)
        finally:
            del os.environ["BP_FAULT"]
        self.explained("killed", 2, *keys)
        self.assertEqual(self.files("whole"), self.files("killed"))

    def test_bad_use(self):
        keys = (*self.keys, "explain.methods=similarity")
        for words, more in ((["[explain.no_layer]", "0-3"], ["explain.layers=0-3"]), (["[explain.no_layer]"], ["explain.layers=1,"]),
                            (["[explain.no_layer]"], ["explain.layers=last"]), (["[explain.no_word]", "qqqxq"], ["explain.words=qqqxq"]),
                            (["[config.bad_value]"], ["explain.neighbours=1"])):
            for ranks in (0, 2):
                self.assert_error(self.explain("bad", ranks, *keys, *more), 78, *words)


if __name__ == "__main__":
    bagpipe_test.main()
