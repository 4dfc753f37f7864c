"""Pages of bagpipe explain, and what they show: single files without addresses, in which text stays text; the figures behind them against numpy."""
import base64
import json
import os
import re
import shutil
import signal
import subprocess
import time

import bagpipe_test
from bagpipe_test import program, read_json, run, shared
from english import english
from page_test import Page, data_of
from test_explain import Explained, read_tensors

try:
    import h5py
    import numpy
except ImportError:
    h5py = None

HOSTILE = ('<script>alert(1)</script> <b>markup</b> & "quotes" </script><!-- \u202eevil\u202c', "قال الرجل إن السفينة the ship ועוד מילים",
           "雨が石に降る。 猫 坐 在 門 邊, é, the ship")
METHODS = "attention,lens,saliency,gradient"
MATRICES = ("attention", "saliency", "gradient")


def values_of(text):
    """Of a page's matrix: the three upper bytes of each float32."""
    return numpy.insert(numpy.frombuffer(base64.b64decode(text), numpy.uint8).reshape(-1, 3), 0, 0, axis=1).copy().view("<f4").ravel()


class Weights(Explained):
    """examples.h5 against ../shared/reference/explain-tiny."""

    @classmethod
    def setUpClass(cls):
        if shared("reference/explain-tiny") is None:
            raise bagpipe_test.unittest.SkipTest("there is no ../shared/reference/explain-tiny")
        super().setUpClass()

    def test_weights_and_flow_are_those_of_float64(self):
        for model in ("gpt2-lmhead-tiny", "llama-tiny"):
            inputs = read_json(shared(f"reference/explain-tiny/{model}/inputs.json"))
            config = read_json(shared(f"reference/{model}/config.json"))
            expected = read_tensors(os.path.join(shared(f"reference/explain-tiny/{model}"), "expected.safetensors"))
            self.must(["bagpipe-data", "import", shared("reference/" + model), "--out", self.at(model)])
            self.corpus(model + ".h5", [document["tokens"][1:] for document in inputs["documents"][:3]], config["vocab_size"],
                        config.get("eos_token_id", inputs["roles"]["begin"]))
            self.explained("weights_" + model, 0, f"explain.model={self.at(model)}", f"explain.corpus={self.at(model + '.h5')}", "explain.methods=attention",
                           "explain.examples=2")
            with h5py.File(os.path.join(self.at("weights_" + model), "explain", "examples.h5")) as file:
                self.assertEqual(file["document"][:].tolist(), [0, 1])
                self.assertNotIn("cross_weight", file)
                for d in range(2):
                    want = expected[f"doc{d}.attention"]
                    self.assertEqual(file["kept"][d], want.shape[-1])
                    numpy.testing.assert_allclose(self.weights("weights_" + model, d, want.shape), want, rtol=0, atol=2e-6)
                flow = expected["doc0.flow"]
                numpy.testing.assert_allclose(file["flow"][:file["flow_start"][1]].reshape(flow.shape), flow, rtol=0, atol=2e-6)


class Pages(Explained):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        text = english(4000)
        cls.write("text.txt", text)
        cls.must(["bagpipe-data", "tokenizer", "--size", "300", "--out", cls.at("tokenizer.json"), cls.at("text.txt")])
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "lines", "--out", cls.at("text.h5"), cls.at("text.txt")])
        cls.write("few.txt", "".join(line + "\n" for line in [*text.splitlines()[:11], *HOSTILE]))
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "lines", "--out", cls.at("few.h5"), cls.at("few.txt")])
        cls.must(["bagpipe", "pretrain", f"run.dir={cls.at('gpt')}", "model.kind=gpt", f"corpus.train={cls.at('text.h5')}", "train.steps=4", "train.batch=4",
                  "optimizer.lr=0.02", "math.precision=f32", "model.layers=2", "model.width=16", "model.heads=2", "model.context=32"])
        cls.keys = (f"explain.model={cls.at('gpt')}", f"explain.corpus={cls.at('few.h5')}", "explain.context=24", f"explain.methods={METHODS}")

    def page(self, name, file):
        with open(os.path.join(self.at(name), "explain", file), encoding="utf-8") as page:
            return page.read()

    def whole(self):
        if not os.path.exists(self.at("whole")):
            self.explained("whole", 0, *self.keys)
        return "whole"

    def test_pages_are_single_files_in_which_text_stays_text(self):
        name = self.whole()
        pages = [file for file in os.listdir(os.path.join(self.at(name), "explain")) if file.endswith(".html")]
        self.assertEqual(len(pages), 15)
        for file in pages:
            text = self.page(name, file)
            page = Page(text)
            self.assertEqual(page.stack, [], file)
            self.assertEqual(len(page.ids), len(set(page.ids)), file)
            self.assertNotIn("://", text, file)
            self.assertNotIn("alert(1)</script>", text, file)
            for link in page.links:
                self.assertTrue(os.path.exists(os.path.join(self.at(name), "explain", link)), link)
            for about in ("Run", "Model", "Corpus", "Command", "Version", "Date"):
                self.assertIn(about, page.named("dt"), file)
        index = Page(self.page(name, "index.html"))
        self.assertIn("few.txt:12", index.named("a"))
        for heading in ("Attention", "Logit lens", "Saliency", "Gradient times input", "Weight on the first token"):
            self.assertIn(heading, index.named("h2") + index.named("h3"))
        self.assertTrue(any(text.startswith("Equal to the table") for text in index.named("p")))  # of weights on separators
        hostile = data_of(self.page(name, "example-12.html"))
        self.assertIn("<script>", "".join(hostile["inputs"]["text"]))
        self.assertEqual(sum(hostile["inputs"]["count"]), len(hostile["places"]))
        cjk = "".join(data_of(self.page(name, "example-14.html"))["inputs"]["text"])
        self.assertIn("雨", cjk)

    def test_colours_have_a_direction_only_where_values_have(self):
        browser = shutil.which("chromium")
        if not browser:
            self.skipTest("there is no chromium to run the pages' script")
        for method, says, other in (("saliency", "no value is negative", "Orange raises"), ("gradient", "Orange raises", "no value is negative")):
            self.explained("way-" + method, 0, *self.keys[:3], f"explain.methods={method}", "explain.examples=1")
            dom = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "file://" + os.path.join(self.at("way-" + method), "explain", "example-1.html")],
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True, timeout=60).stdout
            shown = re.sub(r"<script.*?</script>", "", dom, flags=re.S)
            self.assertIn(says, shown)
            self.assertNotIn(other, shown)

    def test_bytes_of_a_character_are_shown_together(self):
        """Of targets and of what the lens predicts: tokens of a byte, and a model that knows which ones follow."""
        line = "雨が石に降る猫坐"
        self.write("rain.txt", (line + "\n") * 60)
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "lines", "--out", self.at("rain.h5"), self.at("rain.txt")])
        self.must(["bagpipe", "pretrain", f"run.dir={self.at('rain')}", "model.kind=gpt", f"corpus.train={self.at('rain.h5')}", "train.steps=60", "train.batch=4",
                   "optimizer.lr=0.02", "math.precision=f32", "model.layers=1", "model.width=16", "model.heads=2", "model.context=32"])
        self.write("one.txt", line + "\n")
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "lines", "--out", self.at("one.h5"), self.at("one.txt")])
        self.explained("rained", 0, f"explain.model={self.at('rain')}", f"explain.corpus={self.at('one.h5')}", "explain.methods=lens")
        data = data_of(self.page("rained", "example-1.html"))
        whole = [character for character in line for _ in character.encode()]
        self.assertEqual(data["targets"][:len(whole)], whole)
        with h5py.File(os.path.join(self.at("rained"), "explain", "lens.h5")) as file:
            ids, top = file["target"][:len(whole)], file["top5"][:].reshape(-1, 2, 5)
        ends = [k for k, target in enumerate(ids) if target == top[k][1][0] and k % 3 == 2]
        self.assertGreater(len(ends), 4)
        for k in ends:
            self.assertEqual(data["lens"]["joined"][str(k)][str(ids[k])], whole[k])
            self.assertIn("\\x", data["lens"]["names"][str(ids[k])])
        for k, texts in data["lens"]["joined"].items():  # each ends what the bytes before have begun, or is of the text's character
            begun = line.encode()[int(k) - int(k) % 3:int(k)]
            for number, text in texts.items():
                own = bytes.fromhex(data["lens"]["names"][number].replace("\\x", ""))
                right = int(k) < len(ids) and int(number) == ids[int(k)]
                self.assertEqual((text.encode(), len(text)), (whole[int(k)].encode() if right else begun + own, 1))

    def overflowing(self):
        """The model with a bias so large that scores of attention are infinite."""
        self.must(["bagpipe-data", "export", self.at("gpt"), "--out", self.at("damaged-hf")])
        path = os.path.join(self.at("damaged-hf"), "model.safetensors")
        with open(path, "r+b") as file:
            bytes_of_header = int.from_bytes(file.read(8), "little")
            tensors = json.loads(file.read(bytes_of_header))
            name, = (name for name in tensors if name.endswith("h.0.ln_1.bias"))
            self.assertEqual(tensors[name]["dtype"], "F32")
            file.seek(8 + bytes_of_header + tensors[name]["data_offsets"][0])
            file.write(numpy.float32(3e38).tobytes())
        self.must(["bagpipe-data", "import", self.at("damaged-hf"), "--out", self.at("damaged")])
        return f"explain.model={self.at('damaged')}"

    def test_a_model_without_numbers_is_warned_of(self):
        """Once a run, with the documents; values that exist only sometimes are no fault."""
        keys = (self.overflowing(), *self.keys[1:3], "explain.examples=1", "explain.steps=2")
        for ranks in (0, 2):
            for methods in ("saliency,lens,counterfactual", "similarity", "memories"):
                name = f"damaged_{methods}{ranks}"
                result = self.explained(name, ranks, *keys, f"explain.methods={methods}", "explain.flips=2", "explain.edits=1", "explain.neighbours=3")
                self.assertEqual(result.err.count("[explain.not_finite]"), 1, str(result))
                self.assertIn("of 14 of 14 documents", result.err)
                self.assertEqual(read_json(self.at(name), "explain", "summary.json")["not_finite"], 14)
                self.assertIn("Note: of 14 documents", self.page(name, "index.html"))
        for ranks in (0, 2):
            result = self.explain(f"damaged_map{ranks}", ranks, *keys, "explain.methods=projection", "explain.neighbours=3", "explain.perplexity=3")
            self.assert_error(result, 65, "[explain.states_not_finite]", "after layer 1", "document 0, place 1", self.at("damaged"))
            self.assertEqual(result.err.count("not_finite]"), 2, str(result))  # after the warning that counts documents
            self.assertFalse(os.path.exists(os.path.join(self.at(f"damaged_map{ranks}"), "explain", "projection.h5")))
        result = self.explained("healthy", 0, *self.keys[:3], "explain.methods=attention,counterfactual,shapley,saliency,faithfulness,similarity,factors", "explain.samples=20", "explain.examples=0",
                                "explain.flips=2", "explain.edits=1", "explain.steps=2", "explain.neighbours=3")
        self.assertNotIn("[explain.not_finite]", str(result))
        self.assertEqual(read_json(self.at("healthy"), "explain", "summary.json")["not_finite"], 0)
        self.assertNotIn("not finite", self.page("healthy", "index.html"))

    def test_colours_are_the_values_of_the_files(self):
        name = self.whole()
        arrays = {array: values for method in MATRICES for array, values in self.arrays(name, method).items()}
        data = data_of(self.page(name, "example-3.html"))
        self.assertLessEqual({"rollout", "saliency_l1", "saliency_l2", "gradient_x_input"}, {matrix["name"] for matrix in data["matrices"]})
        for matrix in data["matrices"]:
            if matrix["name"] == "flow":
                continue
            cells = values_of(matrix["values"])
            self.assertEqual(matrix["signed"], bool((cells < 0).any()))
            rows = numpy.split(cells, numpy.cumsum(range(1, len(data["targets"]))))
            self.assertEqual(len(rows[-1]), len(data["targets"]))
            for k, row in enumerate(rows):
                numpy.testing.assert_allclose(row, arrays[matrix["name"]][2][k][:k + 1], rtol=2 ** -16, err_msg=matrix["name"])
        with h5py.File(os.path.join(self.at(name), "explain", "lens.h5")) as file:
            start, end = file["target_start"][2:4]
            numpy.testing.assert_array_equal(file["rank"][start:end].ravel(), data["lens"]["rank"])
            numpy.testing.assert_array_equal(file["top5"][start:end].ravel(), data["lens"]["top5"])

    def test_intervals_words_and_agreement_are_those_of_numpy(self):
        name = self.whole()
        summary = read_json(self.at(name), "explain", "summary.json")
        with h5py.File(os.path.join(self.at(name), "explain", "lens.h5")) as file:
            starts, values = file["target_start"][:], file["entropy"][:].astype(float)
        sums = numpy.array([values[starts[d]:starts[d + 1]].sum(axis=0) for d in range(len(starts) - 1)])
        sizes = numpy.diff(starts)
        mean, n = sums.sum(axis=0) / sizes.sum(), len(sizes)
        error = numpy.sqrt(((sums - mean * sizes[:, None]) ** 2).sum(axis=0) * n / (n - 1)) / sizes.sum() * 2.1603686564610127  # t, 13 degrees of freedom
        figures = summary["methods"]["lens"]
        numpy.testing.assert_allclose(figures["entropy"], mean, rtol=1e-6)
        numpy.testing.assert_allclose(figures["intervals"]["entropy"], numpy.stack([mean - error, mean + error], 1), rtol=1e-5)
        arrays = {array: values for method in MATRICES for array, values in self.arrays(name, method).items()}
        found = {(row["one"], row["other"]): row["spearman"] for row in summary["agreement"]}
        self.assertEqual(set(found), {("rollout", "saliency_l2"), ("rollout", "gradient_x_input"), ("saliency_l2", "gradient_x_input")})
        self.assertAlmostEqual(found["saliency_l2", "gradient_x_input"], self.agreement(arrays["saliency_l2"], arrays["gradient_x_input"]), delta=1e-6)
        word = summary["methods"]["saliency"]["words"]["saliency_l2"]["largest"][0]
        self.assertAlmostEqual(word["mean"], self.mean_of(name, word["word"], arrays["saliency_l2"]), delta=1e-5 * word["mean"])

    def agreement(self, one, other):
        means = []
        for a, b in zip(one, other):
            correlations = []
            for k in range(4, len(a)):
                x, y = (numpy.argsort(numpy.argsort(numpy.abs(m[k][:k + 1]))) for m in (a, b))  # no two magnitudes are equal
                correlations.append(numpy.corrcoef(x, y)[0, 1])
            if correlations:
                means.append(numpy.mean(correlations))
        return numpy.mean(means)

    def mean_of(self, name, word, matrices, target=None):
        """Over all pairs of the word and a target that depends on it, by the tokens of the pages."""
        total = pairs = 0
        for d, matrix in enumerate(matrices):
            inputs, at, words = data_of(self.page(name, f"example-{d + 1}.html"))["inputs"], 0, []
            for text, count, begins in zip(inputs["text"], inputs["count"], inputs["begins"]):
                if begins or not words:
                    words.append([text, at, at])
                else:
                    words[-1][0] += text
                at += count
                words[-1][2] = at
            for text, first, end in words:
                for k in (range(end - 1, len(matrix)) if target is None else (target,)) if text.strip(" ") == word else ():
                    total, pairs = total + matrix[k][first:end].sum(dtype=float), pairs + 1
        return total / pairs

    def test_the_largest_statistics_name_their_documents(self):
        name = self.whole()
        largest = read_json(self.at(name), "explain", "summary.json")["methods"]["attention"]["largest"]
        with h5py.File(os.path.join(self.at(name), "explain", "attention.h5")) as file:
            for statistic in ("entropy", "previous", "distance"):
                values = file[statistic][:].reshape(14, -1)
                order = numpy.argsort(-numpy.nanmax(values, axis=1), kind="stable")[:5]
                self.assertEqual([row["document"] for row in largest[statistic]], order.tolist())
                row = largest[statistic][0]
                self.assertEqual(2 * row["layer"] + row["head"], numpy.nanargmax(values[order[0]]))

    def test_examples_are_chosen_the_same_at_any_number_of_ranks(self):
        with h5py.File(os.path.join(self.at(self.whole()), "explain", "lens.h5")) as file:
            starts, values = file["target_start"][:], file["logprob"][:, -1].astype(float)
        hardness = [values[starts[d]:starts[d + 1]].mean() for d in range(len(starts) - 1)]
        few = (*self.keys[:3], "explain.methods=attention,lens", "explain.examples=3")
        for choose, want in (("hardest", sorted(numpy.argsort(hardness)[:3])), ("random", None)):
            keys = (*few, f"explain.choose={choose}")
            self.explained(choose, 0, *keys)
            os.environ["BP_FAULT"] = "work.unit_done:8=kill"
            try:
                self.assertEqual(self.explain("two_" + choose, 0, *keys).status, -signal.SIGKILL)
            finally:
                del os.environ["BP_FAULT"]
            self.explained("two_" + choose, 2, *keys)
            self.assertEqual(self.files(choose), self.files("two_" + choose))
            found = [example["document"] for example in read_json(self.at(choose), "explain", "summary.json")["examples"]]
            self.assertEqual(len(found), 3)
            if want is not None:
                self.assertEqual(found, want)
            for k in range(1, 4):
                self.assertEqual(data_of(self.page(choose, f"example-{k}.html")), data_of(self.page("two_" + choose, f"example-{k}.html")))
        self.explained("pipeline", 2, *few, "mesh.pipeline=2")
        self.explained("alone", 0, *few)
        self.assertEqual(self.files("alone"), self.files("pipeline"))

    def test_texts_are_read_from_lines_and_json(self):
        lines = ["The old ship sailed.", "It rained again and again."]
        self.write("texts.txt", "\n".join(lines) + "\n")
        self.write("texts.jsonl", "".join(json.dumps({"text": line, "id": f"t{k}"}) + "\n" for k, line in enumerate(lines)))
        keys = (self.keys[0], "explain.context=24", "explain.methods=gradient")
        values = {}
        for name in ("texts.txt", "texts.jsonl"):
            self.explained(name + ".run", 0, *keys, f"explain.texts={self.at(name)}")
            self.explained(name + ".two", 2, *keys, f"explain.texts={self.at(name)}")
            self.assertEqual(self.files(name + ".run"), self.files(name + ".two"))
            values[name] = self.arrays(name + ".run", "gradient")["gradient_x_input"]
            self.assertEqual(len(values[name]), 2)
        for one, other in zip(*values.values()):
            numpy.testing.assert_array_equal(one, other)
        self.assertEqual([example["id"] for example in read_json(self.at("texts.jsonl.run"), "explain", "summary.json")["examples"]], ["t0", "t1"])

    @classmethod
    def classes(cls):
        """A model that tells one letter from the other."""
        if os.path.exists(cls.at("classes")):
            return
        rows = [{"text": ("sea ship sail " if k % 2 else "wood oak leaf ") * 3 + "the old one", "kind": ("<i>wood</i>", "sea")[k % 2]} for k in range(24)]
        cls.write("classes.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "jsonl", "--label", "kind", "--out", cls.at("classes.h5"),
                  cls.at("classes.jsonl")])
        cls.must(["bagpipe", "finetune", f"run.dir={cls.at('classes')}", f"corpus.train={cls.at('classes.h5')}", "task.kind=classes", "task.label=kind",
                  f"model.init={cls.at('gpt')}", "train.steps=40", "train.batch=8", "optimizer.lr=0.01", "math.precision=f32"])

    def test_classes_have_words_of_their_own(self):
        self.classes()
        self.explained("of_classes", 0, f"explain.model={self.at('classes')}", f"explain.corpus={self.at('classes.h5')}", "explain.methods=gradient,integrated",
                       "explain.target=every", "explain.examples=24")
        words = read_json(self.at("of_classes"), "explain", "summary.json")["methods"]["integrated"]["words"]["integrated"]
        self.assertEqual(set(words), {"<i>wood</i>", "sea"})
        with h5py.File(os.path.join(self.at("of_classes"), "explain", "integrated.h5")) as file:
            cells, values = file["matrix_start"][:], file["integrated"][:]
        matrices = [values[cells[d]:cells[d + 1]].reshape(2, -1) for d in range(24)]
        self.assertEqual(data_of(self.page("of_classes", "example-1.html"))["targets"], ["<i>wood</i>", "sea"])
        for k, name in enumerate(("<i>wood</i>", "sea")):
            found = {row["word"]: row["mean"] for row in words[name]["largest"] + words[name]["smallest"]}
            for word in ("sea", "oak"):
                self.assertAlmostEqual(found[word], self.mean_of("of_classes", word, matrices, k), delta=1e-5 * abs(found[word]))
        page = self.page("of_classes", "index.html")
        self.assertIn("&lt;i&gt;wood&lt;/i&gt;", page)
        self.assertNotIn("<i>", page)

    def test_maps_show_the_points_of_the_file(self):
        self.classes()
        rows = [{"text": HOSTILE[k % 3] + " the old ship sailed", "kind": ("<i>wood</i>", "sea")[k % 2], "id": f"<b>{k}</b>"} for k in range(8)]
        self.write("labelled.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--label", "kind", "--out", self.at("labelled.h5"),
                   self.at("labelled.jsonl")])
        self.explained("maps", 0, self.keys[0], f"explain.corpus={self.at('labelled.h5')}", "explain.context=24", "explain.methods=projection",
                       "explain.perplexity=5", "explain.examples=0")
        text = self.page("maps", "projection.html")
        page, data = Page(text), data_of(text)
        self.assertEqual((page.stack, page.links), ([], ["index.html"]))
        self.assertIn("projection.html", Page(self.page("maps", "index.html")).links)
        for part in ("://", "alert(1)</script>", "<b>", "<i>"):
            self.assertNotIn(part, text)
        self.assertEqual(data["labels"], {"kind": ["<i>wood</i>", "sea"] * 4})
        self.assertEqual(data["documents"], [f"<b>{k}</b>" for k in range(8)])
        with h5py.File(os.path.join(self.at("maps"), "explain", "projection.h5")) as file:
            n, layers = len(file["point_place"]), len(file["layer"])
            self.assertEqual((data["document"], data["place"]), (file["point_document"][:].tolist(), file["point_place"][:].tolist()))
            tables = {("pca", int(file["layer"][at])): file["pca"][at * n:(at + 1) * n, :2] for at in range(layers)}
            tables.update({(name, int(file["map_layer"][0])): file[name][:] for name in ("tsne", "umap")})
        self.assertEqual({(found["name"], found["layer"]) for found in data["maps"]}, set(tables))
        for found in data["maps"]:
            want, low, high = tables[found["name"], found["layer"]], numpy.array(found["low"]), numpy.array(found["high"])
            steps = numpy.frombuffer(base64.b64decode(found["bytes"]), "<u2").reshape(n, 2)
            numpy.testing.assert_allclose(low + steps / 65535 * (high - low), want, rtol=0, atol=2e-5 * numpy.abs(want).max())
        first = "".join(data[part][0] for part in ("before", "token", "after"))
        self.assertIn("<script>alert(", first)
        quality = read_json(self.at("maps"), "explain", "summary.json")["methods"]["projection"]["maps"][0]
        self.assertIn(["UMAP", "2", f"{quality['umap']['trustworthiness']:.3f}", f"{quality['umap']['continuity']:.3f}"], page.rows)

    def test_ticks_of_an_axis_are_told_apart(self):
        node = shutil.which("node")
        if not node:
            self.skipTest("there is no node to run the pages' script")
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../src/job/report/pages/script.js")
        with open(path, encoding="utf-8") as file:
            tick = re.search(r"^  function tick\(.*?^  }$", file.read(), re.S | re.M)[0]
        for step in (1e-7, 3e-5, 1.2e-4, 2.5e-3, 0.0025, 0.01, 0.03, 0.25, 30):
            script = f"{tick} console.log([0, 1, 2, 3, 4].map(function (k) {{ return tick(k * {step}, {step}); }}).join(' '));"
            ticks = subprocess.run([node, "-e", script], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
            self.assertEqual(len(set(ticks)), 5, ticks)
            numpy.testing.assert_allclose([float(t) for t in ticks], step * numpy.arange(5), atol=0.51 * step)

    def states_page(self, name, file):
        """What a page's script reads, once it is seen to be a single file in which text stays text."""
        text = self.page(name, file)
        page = Page(text)
        self.assertEqual((page.stack, page.links[:1]), ([], ["index.html"]), file)
        self.assertIn(file, Page(self.page(name, "index.html")).links)
        for part in ("://", "alert(1)</script>", "<b>"):
            self.assertNotIn(part, text)
        return data_of(text), page

    def contexts(self, data):
        """(number of its document, place) of each place of a page, whose token is that of the corpus."""
        ids = [f"few.txt:{k + 1}" for k in range(14)]
        return [(ids.index(data["documents"][d]), place) for d, place in zip(data["document"], data["place"])]

    def test_pages_of_states_show_what_the_files_have(self):
        keys = (*self.keys[:3], "explain.methods=memories,similarity,factors", "explain.neighbours=3", "explain.keys=4", "explain.factors=3",
                "explain.steps=20", "explain.words=the,of", "explain.examples=14")
        self.explained("states", 0, *keys)
        summary = read_json(self.at("states"), "explain", "summary.json")["methods"]
        self.check_memories(*self.states_page("states", "memories.html"), summary["memories"])
        self.check_similarity(*self.states_page("states", "similarity.html"), summary["similarity"])
        self.check_factors(*self.states_page("states", "factors.html"))
        for file in ("similarity.html", "factors.html"):  # what is gone is made again
            text = self.page("states", file)
            os.remove(os.path.join(self.at("states"), "explain", file))
            self.explained("states", 0, *keys)
            self.assertEqual(data_of(self.page("states", file)), data_of(text))
        index = Page(self.page("states", "index.html"))
        self.assertNotIn("lowers targets", index.named("th"))
        self.assertIn("There are no two methods that give inputs values.", index.named("p"))
        self.assertTrue(any("no single prediction" in text for text in index.named("p")))
        self.assertFalse(any("probability" in text for text in index.named("p")))
        self.assertIn("No document has a page of its own: no method of this job explains a single document.", index.named("p"))
        self.assertEqual([file for file in os.listdir(os.path.join(self.at("states"), "explain")) if file.startswith("example")], [])
        self.assertFalse(any("page" in one for one in read_json(self.at("states"), "explain", "summary.json")["examples"]))

    def check_memories(self, data, page, figures):
        with h5py.File(os.path.join(self.at("states"), "explain", "memories.h5")) as file:
            found = {key: file[key][:] for key in file if isinstance(file[key], h5py.Dataset)}
        rows, places = len(found["value_logprob"]), self.contexts(data)
        self.assertEqual(data["layers"], [1, 2])
        for key in data["keys"]:
            row = data["layers"].index(key["layer"]) * rows // 2 + key["key"]
            self.assertEqual(key["top"], found["value_top5"][row].tolist())
            self.assertAlmostEqual(key["logprob"], found["value_logprob"][row], delta=1e-3 * abs(found["value_logprob"][row]))
            triggers = [m for m in range(4) if found["trigger_document"][row][m] >= 0]
            self.assertEqual(len(key["triggers"]), len(triggers))
            for m, (place, coefficient, following, rank) in zip(triggers, key["triggers"]):
                self.assertEqual(places[place], (found["trigger_document"][row][m], found["trigger_place"][row][m]))
                self.assertAlmostEqual(coefficient, found["trigger_coefficient"][row][m], delta=1e-3 * abs(coefficient))
                self.assertEqual((following, rank), (found["trigger_next"][row][m], found["rank_of_next"][row][m]))
        self.assertEqual(len(data["keys"]), int((found["trigger_document"][:, 0] >= 0).sum()))  # all have room here
        drawn = next(one["values"] for one in data["figures"] if one["name"] == "agreement_all")
        numpy.testing.assert_allclose(drawn, figures["agreement_all"], rtol=1e-5)
        self.assertIn(["1", *(f"{figures[name][0]:.4f}" for name in ("agreement_first", "agreement_all", "reciprocal_rank_first")),
                       str(figures["keys_with_trigger"][0])], page.rows)

    def check_similarity(self, data, page, figures):
        with h5py.File(os.path.join(self.at("states"), "explain", "similarity.h5")) as file:
            found = {key: file[key][:] for key in file if isinstance(file[key], h5py.Dataset)}
        places, points = self.contexts(data), list(zip(found["point_document"].tolist(), found["point_place"].tolist()))
        self.assertEqual([places[q] for q in data["queries"]], [points[q] for q in found["query"]])
        for q, layers in enumerate(data["near"]):
            for at, near in enumerate(layers):
                row = at * len(found["query"]) + q
                self.assertEqual([places[place] for place, _ in near], [points[n] for n in found["neighbour"][row]])
                numpy.testing.assert_allclose([cosine for _, cosine in near], found["neighbour_cosine"][row], atol=1e-3)
        self.assertEqual([word["text"] for word in data["words"]], ["the", "of"])
        numpy.testing.assert_allclose(data["words"][0]["values"], found["word_self_similarity"][:, 0], atol=1e-4)
        self.assertEqual([one["occurrences"] for one in data["types"]], sorted(found["occurrences"].tolist(), reverse=True))
        self.assertIn(["0", *(f"{figures[name][0]:.4f}" for name in ("self_similarity", "anisotropy", "adjusted", "within_document"))], page.rows)

    def check_factors(self, data, page):
        with h5py.File(os.path.join(self.at("states"), "explain", "factors.h5")) as file:
            starts, w, h, left = (file[name][:] for name in ("place_start", "w", "h", "left"))
        self.assertEqual([one["id"] for one in data["documents"]], [f"few.txt:{k + 1}" for k in range(14)])
        for d, one in enumerate(data["documents"]):
            own = w[starts[d]:starts[d + 1]]
            lights = numpy.frombuffer(base64.b64decode(one["lights"]), numpy.uint8).reshape(3, -1).T / 255 * numpy.array(one["scale"])
            numpy.testing.assert_allclose(lights, own, atol=3e-3 * own.max())
            self.assertEqual(sum(one["inputs"]["count"]), len(own))
            self.assertAlmostEqual(one["left"], left[d], delta=1e-3)
            for f, neurons in enumerate(one["neurons"]):
                row = h[3 * d + f]
                want = numpy.argsort(-row, kind="stable")[:5]
                self.assertEqual([(layer - 1) * (len(row) // 2) + n for layer, n, _ in neurons], [n for n in want if row[n] > 0])
        self.assertTrue(any("14 of 14 documents" in text for text in page.named("p")))

    def near(self, name):
        """documents, places and distances [targets][k] of sources.h5, and where documents begin."""
        with h5py.File(os.path.join(self.at(name), "explain", "sources.h5")) as file:
            return [file["near_" + part][:] for part in ("document", "place", "distance")], file["target_start"][:]

    def test_sources_are_the_nearest_entries(self):
        """Of a language model contexts, of a classifier documents: numpy finds the same ones among all; on every mesh."""
        for name, corpus in (("store", "text.h5"), ("queries", "few.h5")):
            self.must(["bagpipe", "score", f"run.dir={self.at(name)}", f"score.model={self.at('gpt')}", f"score.corpus={self.at(corpus)}", "score.states=yes",
                       "score.context=24", "math.precision=f32"])
        store, queries = (h5py.File(os.path.join(self.at(name), "score", "states.h5")) for name in ("store", "queries"))
        keys = (*self.keys[:3], "explain.methods=sources", f"explain.datastore={self.at('store')}/score/states.h5", "explain.neighbours=4", "explain.examples=13")
        self.explained("near", 0, *keys)
        (documents, places, distances), targets = self.near("near")
        entries, starts, own = store["layer_0"][:].astype(float), store["doc_start"][:], queries["doc_start"][:]
        entries[store["scored"][:] == 0] = numpy.inf
        for d in range(0, len(targets) - 1, 3):
            for k in range(targets[d], targets[d + 1], 7):
                query = queries["layer_0"][own[d] + k - targets[d]].astype(float)
                want = ((entries - query) ** 2).sum(axis=1)
                found = (starts[documents[k].astype(int)] + places[k]).astype(int)
                numpy.testing.assert_allclose(distances[k], numpy.sort(want)[:4], rtol=1e-4, atol=1e-5)
                numpy.testing.assert_allclose(want[found], distances[k], rtol=1e-4, atol=1e-5)
        data = data_of(self.page("near", "example-13.html"))
        shown, entry = data["nearest"]["near"][5][0], data["nearest"]["entries"]
        self.assertAlmostEqual(shown[1], distances[targets[12] + 5][0], delta=1e-4 * shown[1])
        ids = store["doc_id"][:]
        self.assertEqual(entry[shown[0]]["id"], ids[int(documents[targets[12] + 5][0])].decode())
        for mesh in ("data", "pipeline"):
            self.explained("near_" + mesh, 2, *keys, f"mesh.{mesh}=2")
            self.assertEqual(self.files("near"), self.files("near_" + mesh), mesh)
        self.classes()
        rows = [{"text": ("sea ship", "wood oak")[k % 2] + " the one two"[:4 + k // 2], "kind": "sea"} for k in range(16)]
        self.write("short.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--label", "kind", "--out", self.at("short.h5"),
                   self.at("short.jsonl")])
        self.must(["bagpipe", "score", f"run.dir={self.at('vectors')}", f"score.model={self.at('classes')}", f"score.corpus={self.at('short.h5')}",
                   "score.vectors=mean", "math.precision=f32"])
        keys = (f"explain.model={self.at('classes')}", f"explain.corpus={self.at('short.h5')}", "explain.methods=sources", "explain.neighbours=3")
        vectors = f"explain.datastore={self.at('vectors')}/score/vectors.h5"
        self.explained("near_classes", 0, *keys, vectors)
        (documents, _, distances), _ = self.near("near_classes")
        with h5py.File(os.path.join(self.at("vectors"), "score", "vectors.h5")) as file:
            rows = file["vector"][:].astype(float)
        self.assertEqual(documents[:, 0].tolist(), list(range(16)))  # each text is its own nearest one
        for d in range(16):
            want = ((rows - rows[d]) ** 2).sum(axis=1)
            numpy.testing.assert_allclose(distances[d], numpy.sort(want)[:3], rtol=1e-3, atol=1e-6)
        data = data_of(self.page("near_classes", "example-2.html"))
        first = data["nearest"]["entries"][data["nearest"]["near"][0][0][0]]
        self.assertEqual((first["id"], first["after"].removesuffix("<|endoftext|>").split()), ("short.jsonl:2", "wood oak the".split()))
        self.check_a_datastore_that_changes(keys)
        other = f"explain.datastore={self.at('store')}/score/states.h5"
        for status, words, more in ((78, ["[explain.no_datastore]", "score.vectors"], keys), (65, ["[explain.no_vectors]"], (*keys, other)),
                                    (78, ["[explain.few_entries]", "16 entries"], (*keys[:3], "explain.neighbours=17", vectors)),
                                    (78, ["[explain.unused_datastore]"], (*keys[:2], "explain.methods=saliency", vectors)),
                                    (65, ["[h5.wrong_kind]"], (*self.keys[:3], "explain.methods=sources", vectors))):
            for ranks in (0, 2):
                self.assert_error(self.explain("bad_store", ranks, *more), status, *words)

    def check_a_datastore_that_changes(self, keys):
        """While a document is explained another file, of three documents, takes its place."""
        self.write("three.jsonl", "".join((json.dumps({"text": "sea ship", "kind": "sea"}) + "\n") * 3))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--label", "kind", "--out", self.at("three.h5"),
                   self.at("three.jsonl")])
        self.must(["bagpipe", "score", f"run.dir={self.at('three')}", f"score.model={self.at('classes')}", f"score.corpus={self.at('three.h5')}",
                   "score.vectors=mean", "math.precision=f32"])
        shutil.copy(os.path.join(self.at("vectors"), "score", "vectors.h5"), self.at("changing.h5"))
        for ranks in (0, 2):
            shutil.copy(os.path.join(self.at("vectors"), "score", "vectors.h5"), self.at("changing.h5"))
            shutil.copy(os.path.join(self.at("three"), "score", "vectors.h5"), self.at("other.h5"))
            log = os.path.join(self.at("changed") + str(ranks), "log.txt")
            job = bagpipe_test.Background([bagpipe_test.program("bagpipe"), "explain", f"run.dir={self.at('changed')}{ranks}", "math.precision=f32", *keys,
                                           f"explain.datastore={self.at('changing.h5')}"], ranks, env={"BP_FAULT": "work.unit_done:1+=delay0.5"})
            try:
                while job.poll() is None and not (os.path.exists(log) and b"explaining 16 predictions" in self.content(log)):
                    time.sleep(0.02)
                os.replace(self.at("other.h5"), self.at("changing.h5"))
                self.assert_error(job.result(), 65, "[explain.other_datastore]")
            finally:
                job.end()

    def test_bad_use(self):
        self.write("empty.txt", "\n\n")
        self.write("bad.jsonl", '{"text": "one"}\n{"words": "two"}\n')
        with open(self.at("bad.txt"), "wb") as file:
            file.write(b"good\nb\xffd\n")
        self.classes()
        self.corpus("ids.h5", [[1, 2, 3, 4] * 5], 10, 0)
        self.must(["bagpipe", "pretrain", f"run.dir={self.at('ids')}", "model.kind=gpt", f"corpus.train={self.at('ids.h5')}", "train.steps=1", "train.batch=2",
                   "model.layers=1", "model.width=16", "model.heads=2", "model.context=8"])
        model = self.keys[0]
        for status, words, more in ((66, ["[file.missing]", "none.txt"], (model, f"explain.texts={self.at('none.txt')}")),
                                    (65, ["[explain.columns]", "items.tsv", "explain.corpus"], (model, "explain.texts=" + self.write("items.tsv", "text\tkind\n"))),
                                    (65, ["[explain.no_text]", "empty.txt"], (model, f"explain.texts={self.at('empty.txt')}")),
                                    (65, ["[text.not_utf8]", "bad.txt, line 2"], (model, f"explain.texts={self.at('bad.txt')}")),
                                    (65, ["[text.missing_field]", "bad.jsonl, line 2"], (model, f"explain.texts={self.at('bad.jsonl')}")),
                                    (78, ["[config.missing_key]", "explain.texts"], (model,)),
                                    (78, ["[config.exclusive_keys]"], (*self.keys, f"explain.texts={self.at('few.txt')}")),
                                    (78, ["[config.bad_value]", "hardest"], (*self.keys, "explain.choose=easiest")),
                                    (78, ["[explain.no_tokenizer]"], (f"explain.model={self.at('ids')}", f"explain.texts={self.at('few.txt')}")),
                                    (78, ["[explain.no_hardest]"], (f"explain.model={self.at('classes')}", f"explain.corpus={self.at('classes.h5')}",
                                                                    "explain.methods=saliency", "explain.choose=hardest"))):
            for ranks in (0, 2) if words[0] in ("[explain.no_text]", "[explain.no_tokenizer]", "[explain.no_hardest]") else (0,):
                self.assert_error(self.explain("bad", ranks, *more), status, *words)
                self.assertFalse(os.path.exists(os.path.join(self.at("bad"), "explain", "summary.json")))


if __name__ == "__main__":
    bagpipe_test.main()
