"""score.vectors: against an encoder in numpy, on every mesh, resumed; folders of sentence-transformers; what is cut, refused and exported."""
import json
import os
import random

import bagpipe_test
from bagpipe_test import FolderTest, program, read_json, run
from page_test import Page

try:
    import encoders
    import h5py
    import numpy
except ImportError:
    h5py = None

CONTEXT = 20
DOCUMENTS = 300


class Vectors(FolderTest):
    @classmethod
    def setUpClass(cls):
        if h5py is None:
            raise bagpipe_test.unittest.SkipTest("there is no h5py")
        super().setUpClass()
        encoders.random_bert(cls.at("folder"), CONTEXT)
        cls.bert = encoders.Bert(cls.at("folder"))
        cls.write("vocab.txt", "\n".join(encoders.VOCABULARY) + "\n")
        cls.must(["bagpipe-data", "tokenizer", "--vocab", cls.at("vocab.txt"), "--out", cls.at("tokenizer.json")])
        draw = random.Random(5)
        cls.texts = [[draw.choice(encoders.WORDS) for _ in range(draw.randrange(1, CONTEXT + 8))] for _ in range(DOCUMENTS)]
        cls.write("texts.jsonl", "".join(json.dumps({"id": f"text {k}", "text": " ".join(words)}) + "\n" for k, words in enumerate(cls.texts)))
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "jsonl", "--out", cls.at("texts.h5"),
                  cls.at("texts.jsonl")])
        cls.must(["bagpipe-data", "import", cls.at("folder"), "--tokenizer", cls.at("tokenizer.json"), "--out", cls.at("model")])
        cls.write("score.ini", f"[score]\nmodel = {cls.at('model')}\ncorpus = {cls.at('texts.h5')}\n[math]\nprecision = f32\n")

    def result(self, name, ranks, *keys):
        return run([program("bagpipe"), "score", self.at("score.ini"), f"run.dir={self.at(name)}", *keys], ranks)

    def file(self, name):
        return os.path.join(self.at(name), "score", "vectors.h5")

    def vectors(self, name, ranks, *keys):
        result = self.result(name, ranks, *keys)
        self.assertEqual(result.status, 0, str(result))
        with h5py.File(self.file(name)) as file:
            return file["vector"][:].astype(float), result

    def expected(self, pool, norm=False, most=CONTEXT, prompt=()):
        name = encoders.VOCABULARY.index
        return numpy.array([encoders.pooled(self.bert.states([name("[CLS]"), *[name(word) for word in [*prompt, *words]][:most - 2], name("[SEP]")]),
                                            pool, norm) for words in self.texts])

    def test_vectors_are_those_of_numpy(self):
        for pool in ("mean", "first", "last"):
            with self.subTest(pool):
                got, _ = self.vectors(pool, 0, "score.vectors=" + pool)
                numpy.testing.assert_allclose(got, self.expected(pool), atol=2e-5)
        got, result = self.vectors("norm", 0, "score.vectors=mean", "score.vectors_norm=yes")
        numpy.testing.assert_allclose(got, self.expected("mean", True), atol=2e-5)
        cut = sum(len(words) + 2 > CONTEXT for words in self.texts)
        self.assertGreater(cut, 10)
        self.assertTrue(any(f"{cut} of {DOCUMENTS} documents" in line and "[score.cut_documents]" in line for line in result.lines("warning")), str(result))
        with h5py.File(self.file("norm")) as file:
            self.assertEqual([x.decode() for x in file["doc_id"][:]], [f"text {k}" for k in range(DOCUMENTS)])
            self.assertEqual(file.attrs["cut_documents"], cut)

    def test_the_page_shows_lengths_and_nearest_documents(self):
        got, _ = self.vectors("page", 0, "score.vectors=mean")
        with open(os.path.join(self.at("page"), "score", "index.html"), encoding="utf-8") as file:
            page = Page(file.read())
        self.assertEqual(page.stack, ["html", "body"][:len(page.stack)])
        self.assertIn(f"{DOCUMENTS} documents", "".join(page.text))
        self.assertEqual(page.links, ["vectors.h5"])
        norms = numpy.linalg.norm(got, axis=1)
        cosines = got @ got.T / numpy.outer(norms, norms)
        shown = [k * DOCUMENTS // 8 for k in range(8)]
        others = numpy.concatenate([numpy.delete(cosines[k], k) for k in shown])
        for values, row in ((norms, page.rows[1]), (others, page.rows[2])):
            numpy.testing.assert_allclose([float(cell) for cell in row[1:]], numpy.quantile(values, [0, .05, .5, .95, 1]), rtol=2e-3, atol=2e-3)
        self.assertEqual(page.named("h3"), [f"text {k}" for k in shown])
        tables = [row for row in page.rows if row[0].startswith("text ")]
        for n, k in enumerate(shown):
            rows = tables[5 * n:5 * n + 5]
            best = numpy.sort(numpy.delete(cosines[k], k))[::-1][:5]
            numpy.testing.assert_allclose([float(row[1]) for row in rows], best, atol=6e-5)
            numpy.testing.assert_allclose([cosines[k, int(row[0].split()[1])] for row in rows], best, atol=1e-5)
            self.assertTrue(rows[0][2].startswith(" ".join(self.texts[int(rows[0][0].split()[1])][:3])), rows[0])

    def test_every_mesh(self):
        one, _ = self.vectors("one", 0, "score.vectors=mean")
        with open(self.file("one"), "rb") as file:
            bytes_of_one = file.read()
        for ranks in (2, 3):
            self.vectors(f"data{ranks}", ranks, "score.vectors=mean", f"mesh.data={ranks}")
            with open(self.file(f"data{ranks}"), "rb") as file:
                self.assertEqual(file.read(), bytes_of_one)
        other, _ = self.vectors("stages", 2, "score.vectors=mean", "mesh.pipeline=2")
        numpy.testing.assert_allclose(other, one, atol=2e-5)

    def test_a_killed_job_goes_on(self):
        self.vectors("straight", 0, "score.vectors=mean")
        os.environ["BP_FAULT"] = "work.unit_done:2=kill"
        try:
            self.assertEqual(self.result("killed", 0, "score.vectors=mean").status, -9)
        finally:
            del os.environ["BP_FAULT"]
        self.assertFalse(os.path.exists(self.file("killed")))
        result = self.vectors("killed", 2, "score.vectors=mean")[1]
        self.assertIn("2 of 3", str(result))
        with open(self.file("killed"), "rb") as one, open(self.file("straight"), "rb") as other:
            self.assertEqual(one.read(), other.read())

    def sentences(self, name, pooling, *more, length=12, prompts=None):
        """A folder of sentence-transformers, imported."""
        encoders.random_bert(self.at(name), CONTEXT)
        modules = ["Transformer", "Pooling", *more]
        self.write(name + "/modules.json", json.dumps([{"idx": k, "name": str(k), "path": "" if k == 0 else f"{k}_{module}",
                                                       "type": "sentence_transformers.models." + module} for k, module in enumerate(modules)]))
        self.write(name + "/sentence_bert_config.json", json.dumps({"max_seq_length": length, "do_lower_case": False}))
        os.mkdir(self.at(name + "/1_Pooling"))
        self.write(name + "/1_Pooling/config.json", json.dumps({"word_embedding_dimension": 24, **pooling}))
        if prompts:
            self.write(name + "/config_sentence_transformers.json", json.dumps({"prompts": prompts, "default_prompt_name": "query"}))
        return run([program("bagpipe-data"), "import", self.at(name), "--tokenizer", self.at("tokenizer.json"), "--out", self.at(name + "-in")], 0)

    def test_folders_of_sentence_transformers(self):
        mean = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False}
        result = self.sentences("minilm", mean, "Normalize")
        self.assertIn("vectors: mean of up to 12 tokens, of length 1", str(result))
        got, _ = self.vectors("default", 0, f"score.model={self.at('minilm-in')}")
        numpy.testing.assert_allclose(got, self.expected("mean", True, 12), atol=2e-5)
        got, _ = self.vectors("longer", 0, f"score.model={self.at('minilm-in')}", "score.vectors=first", "score.context=16", "score.vectors_norm=no")
        numpy.testing.assert_allclose(got, self.expected("first", False, 16), atol=2e-5)
        self.assertEqual(self.sentences("prompted", {"pooling_mode": "cls"}, prompts={"query": "a : "}).status, 0)
        got, _ = self.vectors("query", 0, f"score.model={self.at('prompted-in')}")
        numpy.testing.assert_allclose(got, self.expected("first", False, 12, ["a", ":"]), atol=2e-5)
        for name, norm in (("minilm", True), ("prompted", False)):
            self.must(["bagpipe-data", "export", self.at(name + "-in"), "--out", self.at(name + "-out")])
            self.assertEqual([one["type"].rsplit(".")[-1] for one in read_json(self.at(name + "-out"), "modules.json")], ["Transformer", "Pooling"] + norm * ["Normalize"])
            self.assertEqual(read_json(self.at(name + "-out"), "1_Pooling/config.json")["word_embedding_dimension"], 24)
            self.must(["bagpipe-data", "import", self.at(name + "-out"), "--out", self.at(name + "-back")])
            before, after = (read_json(self.at(name + end), "manifest.json") for end in ("-in", "-back"))
            self.assertEqual(before["state"]["vectors"], after["state"]["vectors"])
            self.assertEqual(before["tensors"], after["tensors"])
        for name, pooling, more, words in (("max", {"pooling_mode_max_tokens": True}, [], "max_tokens"), ("twice", mean, ["Normalize", "Normalize2"], "models.Normalize2"),
                                           ("without", {**mean, "include_prompt": False}, [], "include_prompt")):
            self.assert_error(self.sentences(name, pooling, *more), 65, "[import.other_module]", words)
        self.assert_error(self.sentences("joined", {"pooling_mode": "mean"}, prompts={"query": "w1w"}), 65, "[import.prompt_joins]")

    def dense(self, name, columns, activation, bias=True, norm=False, weights="model.safetensors", **keys):
        """A folder with Dense after pooling, its values, and what import says."""
        folder, draw = name + "/2_Dense", numpy.random.default_rng(columns)
        tensors = {"linear.weight": draw.normal(0, 0.3, (columns, 24)), **({"linear.bias": draw.normal(0, 1, columns)} if bias else {})}
        tensors = {key: value.astype(numpy.float32) for key, value in tensors.items()}
        encoders.write_folder(self.at(folder), {"in_features": 24, "out_features": columns, "bias": bias, "activation_function": "torch.nn.modules." + activation, **keys}, tensors)
        os.rename(self.at(folder + "/model.safetensors"), self.at(f"{folder}/{weights}"))
        return tensors, self.sentences(name, {"pooling_mode": "mean"}, "Dense", *norm * ["Normalize"])

    def test_a_map_after_pooling(self):
        """As LaBSE, distiluse and sentence-t5 have it, and back; of tensor ranks in models/test_seq2seq_shapes.py."""
        functions = {"activation.Tanh": numpy.tanh, "linear.Identity": lambda x: x, "activation.ReLU": lambda x: numpy.maximum(x, 0)}
        for name, columns, activation, bias, norm in (("distiluse", 10, "activation.Tanh", True, False), ("labse", 24, "activation.Tanh", True, True),
                                                      ("sentence-t5", 40, "linear.Identity", False, True), ("relu", 7, "activation.ReLU", True, False)):
            with self.subTest(name):
                tensors, result = self.dense(name, columns, activation, bias, norm)
                self.assertEqual(result.status, 0, str(result))
                self.assertIn(f"{columns} numbers of a map", str(result))
                expected = functions[activation](self.expected("mean", False, 12) @ tensors["linear.weight"].T.astype(float) + tensors.get("linear.bias", 0))
                expected = expected / numpy.linalg.norm(expected, axis=1, keepdims=True) if norm else expected
                meshes = ((0, ()), (2, ("mesh.data=2",)), (2, ("mesh.pipeline=2",)))[:3 if name == "distiluse" else 1]
                for k, (ranks, mesh) in enumerate(meshes):
                    got, _ = self.vectors(f"{name}-run{k}", ranks, f"score.model={self.at(name + '-in')}", *mesh)
                    numpy.testing.assert_allclose(got, expected, atol=3e-5)
                for k in range(1, min(2, len(meshes))):
                    with open(self.file(f"{name}-run0"), "rb") as one, open(self.file(f"{name}-run{k}"), "rb") as other:
                        self.assertEqual(one.read(), other.read())
                self.must(["bagpipe-data", "export", self.at(name + "-in"), "--out", self.at(name + "-out")])
                back = encoders.read_tensors(self.at(name + "-out/2_Dense"))
                self.assertEqual({key: value.tolist() for key, value in back.items()}, {key: value.tolist() for key, value in tensors.items()})
                self.assertEqual(read_json(self.at(name + "-out/2_Dense"), "config.json"), read_json(self.at(name + "/2_Dense"), "config.json"))
                self.must(["bagpipe-data", "import", self.at(name + "-out"), "--out", self.at(name + "-back")])
                before, after = (read_json(self.at(name + end), "manifest.json") for end in ("-in", "-back"))
                self.assertEqual((before["state"]["vectors"], before["tensors"]), (after["state"]["vectors"], after["tensors"]))
        self.assert_error(run([program("bagpipe-data"), "export", self.at("labse-in"), "--form", "gguf", "--out", self.at("labse.gguf")], 0), 65, "[gguf.no_counterpart]")
        self.assertFalse(os.path.exists(self.at("labse.gguf")))

    def test_a_map_that_is_refused(self):
        for name, keys, status, *words in (("sigmoid", {"activation": "activation.Sigmoid"}, 65, "[import.other_module]", "Sigmoid"),
                                           ("renamed", {"module_output_name": "other"}, 65, "[import.other_module]", "module_output_name"),
                                           ("pickled", {"weights": "pytorch_model.bin"}, 66, "[import.dense_missing]", "2_Dense"),
                                           ("short", {"out_features": 9}, 65, "[import.dense_shape]", "linear.weight"),
                                           ("narrow", {"in_features": 23}, 65, "[import.dense_shape]"), ("none", {"out_features": 0}, 65, "[import.other_module]")):
            with self.subTest(name):
                self.assert_error(self.dense(name, 10, **{"activation": "activation.Tanh", **keys})[1], status, *words)
                self.assertFalse(os.path.exists(self.at(name + "-in")))

    def test_what_is_refused(self):
        self.assert_error(self.result("scores", 0), 65, "[tensor.no_head]", "score.vectors=mean")
        for key in ("score.tokens", "score.entropy"):
            self.assert_error(self.result("both", 0, "score.vectors=mean", f"{key}=yes"), 78, "[score.vectors_alone]", key)
        self.assert_error(self.result("long", 0, "score.vectors=mean", "score.context=21"), 78, "[score.context_too_long]")

    def test_a_dataset_as_npy(self):
        got, _ = self.vectors("table", 0, "score.vectors=mean")
        for dataset in ("vector", "doc_id"):
            self.must(["bagpipe-data", "table", "--form", "npy", self.file("table"), dataset, "--out", self.at(dataset + ".npy")])
        numpy.testing.assert_array_equal(numpy.load(self.at("vector.npy")), got.astype("f4"))
        self.assertEqual(numpy.load(self.at("doc_id.npy"))[7], b"text 7")
        table = [program("bagpipe-data"), "table", "--form", "npy"]
        self.assert_error(run([*table, self.file("table"), "vectors", "--out", self.at("x.npy")], 0), 65, "[table.no_dataset]")
        self.assert_error(run([*table, self.file("table")], 0), 64, "[table.bad_form]")
        self.assert_error(run([*table[:2], self.file("table"), "--out", self.at("x.csv")], 0), 64, "[table.bad_form]", "x.csv", "> OUT.csv")
        self.assertFalse(os.path.exists(self.at("x.csv")))
        self.assertFalse(os.path.exists(self.at("x.npy")))

    def test_decoders(self):
        """A GPT: the state after the last norm, of the last token, and the mean."""
        self.must(["bagpipe-data", "tokenizer", "--kind", "word", "--size", "80", "--out", self.at("words.json"), self.at("vocab.txt")])
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("words.json"), "--format", "jsonl", "--out", self.at("words.h5"),
                   self.at("texts.jsonl")])
        self.write("gpt.ini", f"[corpus]\ntrain = {self.at('words.h5')}\n[model]\nlayers = 2\nwidth = 16\nheads = 2\ncontext = 32\n"
                              "[train]\nsteps = 3\nbatch = 4\n[math]\nprecision = f32\n")
        for kind in ("gpt", "mamba2"):
            self.must(["bagpipe", "pretrain", self.at("gpt.ini"), f"run.dir={self.at(kind)}", f"model.kind={kind}"])
        # one that continues texts of any length reads them up to its context, in the plan too
        states, result = self.vectors("mamba2-first", 0, f"score.model={self.at('mamba2')}", f"score.corpus={self.at('words.h5')}", "score.vectors=first")
        self.assertIn("up to 32", result.out)
        self.assertEqual(len({words[0] for words in self.texts}), len(numpy.unique(states.round(4), axis=0)))
        keys = [f"score.model={self.at('gpt')}", f"score.corpus={self.at('words.h5')}"]
        last, _ = self.vectors("gpt-last", 0, *keys, "score.vectors=last")
        first, _ = self.vectors("gpt-first", 2, *keys, "score.vectors=first", "mesh.tensor=2")
        self.assertEqual(last.shape, (DOCUMENTS, 16))
        same = {}
        for vector, words in zip(first, self.texts):  # a decoder's first token sees itself alone
            numpy.testing.assert_allclose(vector, same.setdefault(words[0], vector), atol=2e-5)
        one = [k for k, words in enumerate(self.texts) if len(words) == 1]
        numpy.testing.assert_allclose(last[one], first[one], atol=2e-5)
        self.assertAlmostEqual(float(abs(last.mean(1)).max()), 0, delta=0.1)  # a norm comes last


if __name__ == "__main__":
    bagpipe_test.main()
