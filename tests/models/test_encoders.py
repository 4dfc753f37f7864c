"""Encoders of the references: into checkpoints and out again, to equal tensors under the same type and names, from configurations of
transformers 4 and 5; scored, and given vectors."""
import json
import os
import shutil

import bagpipe_test
from bagpipe_test import FolderTest, program, read_json, run, shared

try:
    import encoders
    import h5py
    import numpy
    from t5_numpy import write_tensors
except ImportError:
    h5py = None

FAMILIES = ["minilm", "bert", "roberta", "xlm-roberta", "distilbert", "modernbert", "deberta-v3"]
TYPES = {"minilm": "bert", "deberta-v3": "deberta-v2"}
HEADLESS = ("minilm",)
SPECIAL = {0: ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], 1: ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"],
           "modernbert": ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]}  # by the padding's number, or of a family


class Encoders(FolderTest):
    @classmethod
    def setUpClass(cls):
        if h5py is None or not shared("reference/minilm-tiny"):
            raise bagpipe_test.unittest.SkipTest("there is no h5py, or no ../shared/reference")
        super().setUpClass()
        cls.write("texts.txt", "".join(" ".join(f"w{(7 * d + k * k) % 96}" for k in range(1 + d % 11)) + "\n" for d in range(40)))
        for pad, names in SPECIAL.items():
            cls.write(f"vocab{pad}.txt", "\n".join(names + [f"w{k}" for k in range(96)]) + "\n")
            cls.must(["bagpipe-data", "tokenizer", "--vocab", cls.at(f"vocab{pad}.txt"), "--out", cls.at(f"tokenizer{pad}.json")])
            cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at(f"tokenizer{pad}.json"), "--format", "lines", "--out", cls.at(f"texts{pad}.h5"),
                      cls.at("texts.txt")])
        cls.pads = {family: family if family in SPECIAL else read_json(shared(f"reference/{family}-tiny/config.json"))["pad_token_id"]
                    for family in FAMILIES}
        for family in FAMILIES:
            cls.must(["bagpipe-data", "import", shared(f"reference/{family}-tiny"), "--tokenizer", cls.at(f"tokenizer{cls.pads[family]}.json"),
                      "--out", cls.at(family)])

    def test_export_gives_what_import_was_given(self):
        for family in FAMILIES:
            with self.subTest(family):
                folder, out = shared(f"reference/{family}-tiny"), self.at(family + "-out")
                self.must(["bagpipe-data", "export", self.at(family), "--out", out])
                before, after = encoders.read_tensors(folder), encoders.read_tensors(out)
                self.assertEqual(set(before), set(after))
                for name, values in before.items():
                    numpy.testing.assert_array_equal(values, after[name])
                self.assertEqual(read_json(out, "config.json")["model_type"], TYPES.get(family, family))
                self.assertEqual(read_json(out, "config.json")["architectures"], read_json(folder, "config.json")["architectures"])
                again = self.at(family + "-again")
                self.must(["bagpipe-data", "import", out, "--out", again])
                self.assertEqual(read_json(again, "manifest.json")["state"]["model"], read_json(self.at(family), "manifest.json")["state"]["model"])

    def test_both_forms_of_configurations(self):
        for family in FAMILIES:
            old = shared(f"reference/{family}-tiny/config-old.json")
            if not old:
                continue
            with self.subTest(family):
                os.mkdir(self.at(family + "-old"))
                shutil.copy(old, self.at(family + "-old/config.json"))
                shutil.copy(shared(f"reference/{family}-tiny/model.safetensors"), self.at(family + "-old/model.safetensors"))
                self.must(["bagpipe-data", "import", self.at(family + "-old"), "--out", self.at(family + "-of-old")])
                self.assertEqual(read_json(self.at(family + "-of-old"), "manifest.json")["state"]["model"],
                                 read_json(self.at(family), "manifest.json")["state"]["model"])

    def test_every_one_is_scored_and_gives_vectors(self):
        self.write("score.ini", "[math]\nprecision = f32\n")
        for family in FAMILIES:
            with self.subTest(family):
                command = ["score", self.at("score.ini"), f"score.model={self.at(family)}", f"score.corpus={self.at(f'texts{self.pads[family]}.h5')}"]
                result = run([program("bagpipe"), *command, f"run.dir={self.at(family + '-scored')}"], 2)
                if family in HEADLESS:
                    self.assert_error(result, 65, "[tensor.no_head]")
                else:
                    self.assertEqual(result.status, 0, str(result))
                    summary = read_json(self.at(family + "-scored"), "score", "summary.json")
                    self.assertEqual(summary["convention"]["name"], "pll")
                    self.assertGreater(summary["perplexity"], 1)
                self.must(["bagpipe", *command, f"run.dir={self.at(family + '-vectors')}", "score.vectors=mean"])
                with h5py.File(os.path.join(self.at(family + "-vectors"), "score", "vectors.h5")) as file:
                    self.assertTrue(numpy.isfinite(file["vector"][:]).all())
                    self.assertEqual(file["vector"].shape[0], 40)

    def changed_deberta(self, name, change=None, **keys):
        folder = shared("reference/deberta-v2-sequence-tiny")
        os.mkdir(self.at(name))
        self.write(name + "/config.json", json.dumps(dict(read_json(folder, "config.json"), **keys)))
        write_tensors(self.at(name), change(encoders.read_tensors(folder)) if change else encoders.read_tensors(folder))
        return self.at(name)

    def vectors_of(self, folder):
        self.must(["bagpipe-data", "import", folder, "--tokenizer", self.at("tokenizer0.json"), "--out", folder + "-in"])
        self.must(["bagpipe", "score", self.at("score.ini"), f"score.model={folder}-in", f"score.corpus={self.at('texts0.h5')}", f"run.dir={folder}-run", "score.vectors=mean"])
        with h5py.File(os.path.join(folder + "-run", "score", "vectors.h5")) as file:
            return file["vector"][:]

    def test_narrow_embeddings_are_the_product_with_their_projection(self):
        self.write("score.ini", "[math]\nprecision = f32\n")
        draw, tables = numpy.random.default_rng(5), ["deberta.embeddings." + table + "_embeddings.weight" for table in ("word", "position", "token_type")]
        narrow = {name: draw.standard_normal((rows, 9)).astype("f4") for name, rows in zip(tables, (101, 32, 2))}
        projection = draw.standard_normal((24, 9)).astype("f4")
        wide = self.changed_deberta("wide", lambda tensors: dict(tensors, **{name: values @ projection.T for name, values in narrow.items()}))
        split = self.changed_deberta("split", lambda tensors: dict(tensors, **narrow, **{"deberta.embeddings.embed_proj.weight": projection}), embedding_size=9)
        expected = self.vectors_of(wide)
        numpy.testing.assert_allclose(self.vectors_of(split), expected, atol=2e-5)
        self.must(["bagpipe-data", "export", split + "-in", "--out", split + "-out"])
        self.assertEqual(read_json(split + "-out", "config.json")["embedding_size"], 9)
        for name, values in encoders.read_tensors(split).items():
            numpy.testing.assert_array_equal(values, encoders.read_tensors(split + "-out")[name])

    def test_convolutions_that_do_not_go_are_refused(self):
        for key, value, what in (("conv_kernel_size", 4, "bad_size"), ("conv_groups", 5, "not_dividing"), ("conv_act", "silu", "unsupported")):
            with self.subTest(key):
                folder = self.changed_deberta("other-" + key, **{key: value})
                result = run([program("bagpipe-data"), "import", folder, "--out", self.at("refused"), "--no-tokenizer"])
                self.assert_error(result, 65, f"[huggingface.{what}]")

        self.write("pretrain.ini", f"corpus.train = {self.at('texts0.h5')}\n[model]\nkind = deberta\nlayers = 1\nwidth = 16\nheads = 2\ncontext = 8\n[train]\nsteps = 1\nbatch = 1\n")
        for keys, what in ((["convolution=4"], "bad_convolution"), (["convolution=3", "convolution_groups=3"], "bad_convolution"), (["convolution_groups=2"], "no_convolution"),
                           (["embedding=8", "head"], "projected_embedding")):
            with self.subTest(keys):
                keys = ["head.softmaxes=2" if key == "head" else "model." + key for key in keys]
                result = run([program("bagpipe"), "pretrain", self.at("pretrain.ini"), f"run.dir={self.at('never')}", *keys])
                self.assert_error(result, 78, f"[model.{what}]")


if __name__ == "__main__":
    bagpipe_test.main()
