"""ELMo against numpy: its losses in both directions and every token that it scores; on every mesh, to the same bits on 1, 2 and 4 data
ranks; killed and resumed, ensembled; and what it refuses."""
import json
import os
import shutil

import h5py
import numpy

import bagpipe_test
from bagpipe_test import JobTest, digests, metrics, parts_miss, program, read_json, run, steps, timeless
from elmo_numpy import Elmo as Oracle, names_of, tensors_of_bilm
from english import english
from tensors import tensors_of

KEYS = ["train.steps=6", "train.valid_every=3"]


class Elmo(JobTest):
    VOCABULARY = 301

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        text = english(30_000)
        cls.lines = [line for line in text.splitlines() if line.strip()] + ["", "Ωmega " + "x" * 60 + " naïve \\n"]
        train, valid = cls.lines[:-12], cls.lines[-12:]
        cls.write("train.txt", "\n".join(train + ["Ωmega " + "x" * 60 + " naïve \\n"] * 3))
        cls.write("valid.txt", "\n".join(valid))
        cls.valid = [line.split() for line in valid if line.strip()]
        cls.must(["bagpipe-data", "tokenizer", "--kind", "word", "--size", cls.VOCABULARY, "--out", cls.at("words.json"), cls.at("train.txt")])
        for part in ("train", "valid"):
            cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("words.json"), "--format", "lines", "--out", cls.at(part + ".h5"),
                      cls.at(part + ".txt")])
        cls.write("small.ini", cls.config())
        with open(cls.at("words.json"), encoding="utf-8") as file:
            cls.ids = json.load(file)["model"]["vocab"]
        cls.words = sorted(cls.ids, key=cls.ids.get)

    @classmethod
    def config(cls):
        return super().config().replace("heads = 4", "kind = elmo\nprojection = 12\nchar_filters = 1:5,2:6,3:8,7:4\ndropout = 0.1")

    def plain(self):
        """The run folder of one model that several tests read; trained once."""
        folder = self.at("plain")
        return folder if os.path.exists(os.path.join(folder, "checkpoints", "step-000000000006")) else self.trained("plain", 0, *KEYS)

    def line_of(self, words):
        return [self.ids.get(word, self.ids["<unk>"]) for word in words]

    def oracle(self, folder):
        step = os.path.join(folder, "checkpoints", steps(folder)[-1])
        words = [None if word == "<|endoftext|>" else word for word in self.words]
        if len(words) < self.VOCABULARY:
            words.append(None)
        return Oracle(tensors_of(step), read_json(step, "manifest.json")["state"]["model"], words)

    def test_the_loss_is_numpys_in_both_directions(self):
        for name, keys in (("relu", []), ("tanh", ["model.char_activation=tanh", "model.projection=32", "model.skip=no", "model.highway=1"]),
                           ("clips", ["model.cell_clip=0.1", "model.projection_clip=0.05", "model.layers=3", "model.projection=23"])):
            context = 64
            folder = self.trained(name, 0, *KEYS, f"model.context={context}", *keys)
            oracle, forward, losses = self.oracle(folder), None, [[], []]
            stream = [token for words in self.valid for token in [*self.line_of(words), self.VOCABULARY - 1]]
            self.assertLess(len(stream), 8 * context)  # each window is a batch slot of its own, but for the tail
            for first in range(0, len(stream) - 1, context):
                line = stream[first:first + context + 1]
                if len(line) == context + 1 or forward is None:
                    forward = oracle.direction("forward")
                losses[0].extend(oracle.logprobs(line, forward))
                losses[1].extend(oracle.logprobs(line[::-1], oracle.direction("backward")))
            last = metrics(folder)[-1]
            self.assertAlmostEqual(last["valid_loss"], -(numpy.mean(losses[0]) + numpy.mean(losses[1])) / 2, delta=2e-6)
            for part, values in zip(("forward", "backward"), losses):
                self.assertAlmostEqual(last[f"valid_loss_{part}"], -numpy.mean(values), delta=4e-6)
            self.assertLess(parts_miss(last, {"forward": 0.5, "backward": 0.5}), 1e-12)

    def test_a_document_is_scored_by_the_forward_model(self):
        folder = self.plain()
        oracle, want, summaries = self.oracle(folder), [], []
        for words in self.valid:
            want.extend(oracle.logprobs([self.VOCABULARY - 1, *self.line_of(words)]))
            want.append(numpy.nan)
        for name, ranks, keys in (("one", 0, []), ("two", 2, []), ("split", 4, ["mesh.tensor=2", "mesh.pipeline=2"])):
            self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={self.at('score-' + name)}", f"score.model={folder}",
                       f"score.corpus={self.at('valid.h5')}", "score.tokens=yes", *keys], ranks)
            with h5py.File(os.path.join(self.at("score-" + name), "score", "tokens.h5")) as file:
                numpy.testing.assert_allclose(file["logprob"][:], want, atol=1e-5, err_msg=name)
            summaries.append(read_json(self.at("score-" + name), "score", "summary.json"))
        self.assertEqual(summaries[0], summaries[1])

    def test_states_are_numpys_and_those_of_a_whole_text(self):
        folder = self.plain()
        oracle, files = self.oracle(folder), []
        for name, ranks, keys in (("one", 0, []), ("three", 3, []), ("split", 4, ["mesh.tensor=2", "mesh.pipeline=2"]),
                                  ("cut", 3, ["score.context=7", "mesh.coordinator=dedicated"])):
            self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={self.at('states-' + name)}", f"score.model={folder}",
                       f"score.corpus={self.at('valid.h5')}", "score.states=yes", "score.mix=0.5,-1,2", "score.mix_scale=1.5", *keys], ranks)
            path, cut = os.path.join(self.at("states-" + name), "score", "states.h5"), 7 if name == "cut" else 10 ** 6
            weights, gap = numpy.exp([0.5, -1, 2]) / numpy.exp([0.5, -1, 2]).sum(), numpy.full((3, 1, 24), numpy.nan)
            want = numpy.concatenate([part for words in self.valid for line in [self.line_of(words)]
                                      for part in [*(oracle.states(line[k:k + cut]) for k in range(0, len(line), cut)), gap]], axis=1)
            with h5py.File(path) as file:
                for k in range(3):
                    numpy.testing.assert_allclose(file[f"layer_{k}"][:], want[k], atol=1e-5, err_msg=name)
                numpy.testing.assert_allclose(file["mix"][:], 1.5 * numpy.tensordot(weights, want, axes=1), atol=1e-5, err_msg=name)
                numpy.testing.assert_allclose(file["mix_weights"][:], weights, atol=1e-15)
            with open(path, "rb") as file:
                files.append(file.read())
        self.assertEqual(files[0], files[1])
        self.must(["bagpipe-data", "verify", path])

    def test_a_long_document_is_cut_aloud_and_read_whole_on_demand(self):
        folder, draw = self.plain(), numpy.random.default_rng(4)
        line = draw.integers(1, self.VOCABULARY - 1, 2060)
        self.write("long.txt", " ".join(self.words[k] for k in line) + "\n")
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("words.json"), "--format", "lines", "--out", self.at("long.h5"), self.at("long.txt")])
        oracle = self.oracle(folder)
        for name, keys, texts in (("pieces", [], [line[:2048], line[2048:]]), ("whole", ["score.context=2060"], [line])):
            result = self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={self.at('long-' + name)}", f"score.model={folder}",
                                f"score.corpus={self.at('long.h5')}", "score.states=yes", *keys])
            if name == "pieces":
                self.assert_warning(result, "[score.cut_states]", "score.context=2060")
            else:
                self.assertNotIn("[score.cut_states]", result.err)
            want = numpy.concatenate([oracle.states(list(text)) for text in texts], axis=1)
            with h5py.File(os.path.join(self.at("long-" + name), "score", "states.h5")) as file:
                for k in range(3):
                    numpy.testing.assert_allclose(file[f"layer_{k}"][:len(line)], want[k], atol=1e-5, err_msg=name)

    def test_every_mesh_trains_the_same_model(self):
        one = self.plain()
        for name, ranks, keys in (("data4", 4, []), ("again", 0, ["train.recompute=yes"]),
                                  ("all", 4, ["mesh.tensor=2", "mesh.pipeline=2"])):
            other = self.trained(name, ranks, *KEYS, *keys)
            if keys == [] or name == "again":
                self.assertEqual(timeless(metrics(one)), timeless(metrics(other)), name)
                self.assertEqual(digests(one), digests(other), name)
            for a, b in zip(metrics(one), metrics(other), strict=True):
                self.assertLess(abs(a["loss"] - b["loss"]), 2e-5, name)
        self.assertIn("carry/forward.1.state", digests(one))
        self.assertEqual({n for n in digests(one) if n.startswith("carry/backward")}, set())
        killed = self.background([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('killed')}", *KEYS,
                                  "checkpoint.every=2"], 2, env={"BP_FAULT": "step.end:5@1=kill"})
        killed.communicate()
        self.assertNotEqual(killed.returncode, 0)
        self.assertLess(steps(self.at("killed"))[-1], "step-000000000006")
        self.trained("killed", 0, *KEYS, "checkpoint.every=2")
        self.assertEqual(timeless(metrics(one)), timeless(metrics(self.at("killed"))))
        self.assertEqual(digests(one), digests(self.at("killed")))

    def test_it_is_ensembled_and_its_uncertainty_decomposed(self):
        many = run([program("bagpipe"), "ensemble", self.at("small.ini"), f"run.dir={self.at('many')}", "ensemble.members=2", "mesh.members=2",
                    *KEYS], 2)
        self.assertEqual(many.status, 0, str(many))
        self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={self.at('score-many')}", f"score.model={self.at('many')}",
                   f"score.corpus={self.at('valid.h5')}"])
        self.assertGreater(read_json(self.at("score-many"), "score", "summary.json")["corpora"]["valid"]["mutual_information"], 0)
        member = os.path.join(self.at("many"), "members", "m00")
        self.must(["bagpipe", "uncertainty", self.at("small.ini"), f"run.dir={self.at('study')}", f"uncertainty.in_domain={self.at('train.h5')}",
                   f"uncertainty.shifted={self.at('valid.h5')}", "uncertainty.passes=2", "laplace.samples=2", "laplace.tokens=200",
                   f"uncertainty.models=two={self.at('many')}, drop={member}:dropout, laplace={member}:laplace"])
        study = json.dumps(read_json(self.at("study"), "uncertainty", "summary.json"))
        for method in ("two", "drop", "laplace"):
            self.assertIn(f'"{method}"', study)

    def test_a_model_starts_from_a_checkpoint_of_its_words(self):
        first = self.plain()
        second = self.trained("second", 0, *KEYS, f"model.init={first}")
        self.assertEqual(digests(first)["characters"], digests(second)["characters"])
        self.assertLess(metrics(second)[0]["loss"], metrics(first)[0]["loss"])

    def bilm(self, folder):
        """What another program reads of a bilm-tf folder."""
        options = read_json(folder, "options.json")
        with h5py.File(os.path.join(folder, "weights.hdf5")) as file:
            return tensors_of_bilm(file, options)

    def test_it_goes_into_a_folder_of_bilm_and_back(self):
        for name, keys in (("plain", []), ("other", ["model.char_activation=tanh", "model.projection=23", "model.highway=1", "model.skip=no",
                                                     "model.cell_clip=2.5", "model.projection_clip=1.5"])):
            trained = self.trained(f"bilm-{name}", 0, *KEYS, *keys) if keys else self.plain()
            folder, back, again = self.at(f"folder-{name}"), self.at(f"back-{name}"), self.at(f"again-{name}")
            for arguments in (["export", trained, "--out", folder], ["import", folder, "--out", back], ["export", back, "--out", again]):
                self.must(["bagpipe-data", *arguments])
            oracle = self.oracle(trained)
            for key, tensor in tensors_of(back).items():
                numpy.testing.assert_array_equal(tensor, oracle.t[key], err_msg=key)
            tensors, sizes = self.bilm(folder)
            for key, tensor in tensors.items():
                numpy.testing.assert_array_equal(tensor, oracle.t[key], err_msg=key)
            self.assertEqual(sizes, {key: oracle.model[key] for key in sizes})
            self.assertEqual(set(tensors) | {"characters"}, set(tensors_of(back)))
            for file in ("options.json", "weights.hdf5", "vocab.txt", "tokenizer.json"):
                with open(os.path.join(folder, file), "rb") as a, open(os.path.join(again, file), "rb") as b:
                    self.assertEqual(a.read(), b.read(), file)
            with open(os.path.join(folder, "vocab.txt"), encoding="utf-8") as file:
                words = file.read().splitlines()
            self.assertEqual((words[0], words[-1], words[1:-1]), ("<UNK>", "</S>", self.words[1:self.VOCABULARY - 1]))

    def test_a_released_model_is_read(self):
        """As bilm-tf releases them: names before the files', no softmax, words alone, chunked and compressed datasets."""
        trained, folder = self.plain(), self.at("released-folder")
        self.must(["bagpipe-data", "export", trained, "--out", folder])
        os.remove(os.path.join(folder, "tokenizer.json"))
        os.rename(os.path.join(folder, "options.json"), os.path.join(folder, "elmo_2x32_options.json"))
        with h5py.File(os.path.join(folder, "weights.hdf5")) as old, h5py.File(os.path.join(folder, "elmo_2x32_weights.hdf5"), "w") as new:
            for name in names_of(old):
                if not name.startswith("softmax"):
                    new.create_dataset(name, data=old[name][:], compression="gzip")
        os.remove(os.path.join(folder, "weights.hdf5"))
        result = run([program("bagpipe-data"), "import", folder, "--out", self.at("released-back")])
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[bilm.no_softmax]")
        back = tensors_of(self.at("released-back"))
        ours = tensors_of(os.path.join(trained, "checkpoints", steps(trained)[-1]))
        for key in back:
            if not key.startswith("head"):
                numpy.testing.assert_array_equal(back[key], ours[key], err_msg=key)
        self.assertEqual(abs(back["head"]).max(), 0)
        numpy.testing.assert_array_equal(back["characters"][0, :7], [258, *b"<UNK>", 259])
        self.must(["bagpipe-data", "export", self.at("released-back"), "--out", self.at("released-again")])
        for name, keys in (("own", []), ("given", ["--tokenizer", self.at("words.json")])):
            out = self.at(f"released-{name}")
            self.must(["bagpipe-data", "import", self.at("released-again"), "--out", out, *keys])
            numpy.testing.assert_array_equal(tensors_of(out)["characters"], back["characters"], err_msg=name)

    def test_folders_that_are_no_model_are_refused(self):
        trained, good = self.plain(), self.at("good")
        self.must(["bagpipe-data", "export", trained, "--out", good])

        def options(change):
            def write(folder):
                path = os.path.join(folder, "options.json")
                value = read_json(folder, "options.json")
                change(value)
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(value, file)
            return write

        def dataset(name, change):
            def write(folder):
                with h5py.File(os.path.join(folder, "weights.hdf5"), "r+") as file:
                    value = file[name][:]
                    del file[name]
                    if change is not None:
                        file[name] = change(value)
            return write

        def cut(folder):
            with open(os.path.join(folder, "weights.hdf5"), "r+b") as file:
                file.truncate(4000)

        def both(folder):
            shutil.copy(os.path.join(folder, "options.json"), os.path.join(folder, "other_options.json"))

        def no_words(folder):
            os.remove(os.path.join(folder, "vocab.txt"))
            os.remove(os.path.join(folder, "tokenizer.json"))
        cases = (("bilm.unsupported", 65, options(lambda o: o.update(bidirectional=False))),
                 ("bilm.unsupported", 65, options(lambda o: o.pop("char_cnn"))),
                 ("bilm.unsupported", 65, options(lambda o: o["char_cnn"].update(n_characters=100))),
                 ("bilm.unsupported", 65, options(lambda o: o["char_cnn"].update(activation="gelu"))),
                 ("bilm.other_words", 65, options(lambda o: o.update(n_tokens_vocab=7))),
                 ("h5.wrong_dims", 65, options(lambda o: o["lstm"].update(dim=33))),
                 ("h5.missing", 65, dataset("RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/B", None)),
                 ("h5.wrong_type", 65, dataset("CNN/b_cnn_0", lambda x: x.astype(int))),
                 ("h5.wrong_dims", 65, dataset("char_embed", lambda x: x[:-1])),
                 ("bilm.ambiguous", 65, both), ("bilm.no_words", 66, no_words), ("h5.failed", 65, cut))
        for number, (identifier, status, damage) in enumerate(cases):
            with self.subTest(identifier, number=number):
                folder = self.at(f"bad-{number}")
                shutil.copytree(good, folder)
                damage(folder)
                result = run([program("bagpipe-data"), "import", folder, "--out", self.at("never")])
                self.assert_error(result, status, f"[{identifier}]")
                self.assertFalse(os.path.exists(self.at("never")))

    def gru(self):
        others = ["model.projection=", "model.char_filters="]
        return self.trained("gru", 0, "model.kind=gru", "train.steps=1", *others)

    def test_what_it_cannot_do_is_refused(self):
        pieces = [f"corpus.train={self.at('pieces.h5')}", "corpus.valid="]
        self.must(["bagpipe-data", "tokenizer", "--kind", "bpe", "--size", 300, "--out", self.at("pieces.json"), self.at("train.txt")])
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("pieces.json"), "--format", "lines", "--out", self.at("pieces.h5"),
                   self.at("train.txt")])
        model, scores = self.plain(), [f"score.corpus={self.at('valid.h5')}"]
        for identifier, ranks, arguments in (("elmo.not_words", 2, ["pretrain", *pieces]),
                                             ("model.bad_pairs", 0, ["pretrain", "model.char_filters=1:2,3"]),
                                             ("model.bad_pairs", 0, ["pretrain", "model.char_filters=0:2"]),
                                             ("model.missing_key", 0, ["pretrain", "model.char_filters="]),
                                             ("elmo.too_wide_filter", 0, ["pretrain", "model.char_filters=51:2"]),
                                             ("elmo.wide_projection", 0, ["pretrain", "model.projection=33"]),
                                             ("score.no_states", 2, ["score", f"score.model={self.gru()}", "score.states=yes", *scores]),
                                             ("score.bad_mix", 0, ["score", f"score.model={model}", "score.states=yes", "score.mix=1,2",
                                                                   *scores]),
                                             ("score.mix_without_states", 0, ["score", f"score.model={model}", "score.mix=1,2,3", *scores]),
                                             ("score.scale_without_mix", 0, ["score", f"score.model={model}", "score.states=yes",
                                                                             "score.mix_scale=2", *scores]),
                                             ("score.scale_without_mix", 2, ["score", f"score.model={model}", "score.mix_scale=2", *scores]),
                                             ("model.unused_key", 0, ["pretrain", "model.heads=4"]),
                                             ("model.not_causal", 2, ["generate", f"generate.model={model}",
                                                                           f"generate.prompts={self.write('prompts.txt', 'the')}"])):
            with self.subTest(arguments):
                job, *keys = arguments
                result = run([program("bagpipe"), job, self.at("small.ini"), f"run.dir={self.at('refused')}", *KEYS, *keys], ranks)
                self.assert_error(result, 78, f"[{identifier}]")
        self.assert_error(run([program("bagpipe-data"), "cite", self.gru(), self.at("none.h5"), "the"]), 78, "[cite.no_keys]")


if __name__ == "__main__":
    bagpipe_test.main()
