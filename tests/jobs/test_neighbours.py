"""Datastores, and models with nearest neighbours: keys against numpy, neighbours against scikit-learn, the mixture against numpy; the same
bytes on every number of data ranks, and in any memory; what cite prints; and what is refused."""
import math
import os
import re
import unittest

import bagpipe_test
from bagpipe_test import JobTest, ScoreFiles, program, read_json, run, steps
from plain_gpt import gpt_logits

try:
    import h5py
    import numpy
    from sklearn.neighbors import NearestNeighbors
    from tensors import tensors_of
except ImportError:
    h5py = None

K, TEMPERATURE, WEIGHT = 12, 3.0, 0.3
KEYS = [f"neighbours.k={K}", f"neighbours.temperature={TEMPERATURE}", f"neighbours.weight={WEIGHT}", "score.tokens=yes"]


class Neighbours(ScoreFiles, JobTest):
    """A small GPT, the datastore of a part of its training text, and a text that is scored with it."""

    TEXT_BYTES = 60_000

    @classmethod
    def setUpClass(cls):
        if h5py is None:
            raise bagpipe_test.unittest.SkipTest("there is no h5py or scikit-learn")
        super().setUpClass()
        cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.at('model')}"])
        with open(cls.at("train.txt"), encoding="utf-8") as file:
            cls.write("part.txt", file.read(9_000))
        with open(cls.at("valid.txt"), encoding="utf-8") as file:
            cls.write("text.txt", file.read(2_500))
        for name in ("part", "text"):
            cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "lines", "--out", cls.at(name + ".h5"),
                      cls.at(name + ".txt")])
        cls.write("score.ini", f"[score]\nmodel = {cls.at('model')}\n[math]\nprecision = f32\nthreads = 1\n")
        cls.store = os.path.join(cls.at("store"), "score", "states.h5")
        cls.must(cls.command("store", "part", "score.states=yes"))

    @classmethod
    def command(cls, name, corpus, *keys):
        return ["bagpipe", "score", cls.at("score.ini"), f"run.dir={cls.at(name)}", f"score.corpus={cls.at(corpus + '.h5')}", *keys]

    def scored(self, name, ranks=0, *keys):
        """The summary of the text, scored with neighbours, and what tokens.h5 has of it."""
        self.must(self.command(name, "text", f"score.neighbours={self.store}", *KEYS, *keys), ranks)
        with h5py.File(os.path.join(self.at(name), "score", "tokens.h5")) as file:
            return read_json(self.at(name), "score", "summary.json"), file["logprob"][:].astype(float), file["logprob_alone"][:].astype(float)

    @staticmethod
    def entries(path):
        """Keys of a datastore, their rows and values."""
        with h5py.File(path) as file:
            rows = numpy.flatnonzero(file["scored"][:])
            return file["layer_0"][:][rows].astype(float), rows, file["tokens"][:][rows]

    def test_keys_are_numpys_in_the_windows_of_scoring(self):
        w = tensors_of(os.path.join(self.at("model"), "checkpoints", steps(self.at("model"))[-1]))
        with h5py.File(self.at("part.h5")) as file:
            eod, vocabulary = int(file.attrs["eod_id"]), int(file.attrs["vocab_size"])
        self.assertEqual(vocabulary, w["wte"].shape[0])
        self.must(self.command("dense", "part", "score.states=yes", "score.context=16", "score.stride=5", "score.tokens=yes"))
        for name, context, stride in (("store", 32, 32), ("dense", 16, 5)):
            with h5py.File(os.path.join(self.at(name), "score", "states.h5")) as file:
                tokens, starts, got, scored = (file[key][:] for key in ("tokens", "doc_start", "layer_0", "scored"))
                self.assertEqual(file.attrs["model_digest"].decode(), read_json(self.at(name), "score", "summary.json")["model"]["digest"])
                self.assertEqual(file.attrs["precision"].decode(), "f32")
            want = numpy.full(got.shape, numpy.nan)
            for a, b in zip(starts[:-1], starts[1:]):
                line = [eod, *tokens[a:b - 1].astype(int)]  # place j of the line is token a + j - 1
                at = 1
                while at < len(line):
                    end = min(context + 1, len(line)) if at == 1 else min(at + stride, len(line))
                    first, keys = max(0, end - context - 1), []
                    gpt_logits(w, numpy.array([line[first:end - 1]]), 4, keys)
                    want[a + at - 1:a + end - 1] = keys[-1][0][at - 1 - first:]
                    at = end
            numpy.testing.assert_allclose(got, want, atol=2e-5, err_msg=name)
            numpy.testing.assert_array_equal(scored, ~numpy.isnan(want[:, 0]), err_msg=name)
        self.must(["bagpipe-data", "verify", self.store])

    def test_keys_of_other_families_lie_behind_the_last_norm_before_an_mlp(self):
        """Without its gain and bias a key has a square of 1 a number, and no other norm's would give it that."""
        for name in ("llama", "gpt_neox"):
            folder = bagpipe_test.shared(os.path.join("reference", name + "-tiny"))
            if folder is None:
                self.skipTest("it needs ../shared/reference")
            with h5py.File(self.at(name + ".h5"), "w") as file:
                file["tokens"] = numpy.random.default_rng(1).integers(3, 96, 200).astype("u2")
                file["doc_start"] = numpy.array([0, 20, 90, 200], "u8")
                file.attrs["vocab_size"] = 97
            self.convert(name + ".h5")
            self.must(["bagpipe-data", "import", folder, "--out", self.at(name)])
            self.must(self.command("keys-" + name, name, "score.states=yes", f"score.model={self.at(name)}"))
            weights, fits = tensors_of(self.at(name)), []
            keys = self.entries(os.path.join(self.at("keys-" + name), "score", "states.h5"))[0]
            for norm in [tensor[:-len(".gain")] for tensor in weights if tensor.endswith(".gain")]:
                plain = (keys - weights.get(norm + ".bias", 0)) / weights[norm + ".gain"]
                if abs((plain ** 2).mean(1) - 1).max() < 1e-3:
                    fits.append(norm)
            self.assertEqual(fits, ["h.1.ln2"], name)

    def test_the_mixture_is_numpys_of_the_neighbours_of_scikit_learn(self):
        self.must(self.command("queries", "text", "score.states=yes", "score.tokens=yes"))
        keys, _, values = self.entries(self.store)
        queries, rows, targets = self.entries(os.path.join(self.at("queries"), "score", "states.h5"))
        with h5py.File(os.path.join(self.at("queries"), "score", "tokens.h5")) as file:
            alone = file["logprob"][:].astype(float)
        distances, found = NearestNeighbors(n_neighbors=K, algorithm="brute").fit(keys).kneighbors(queries)
        weights = numpy.exp((distances[:, :1] ** 2 - distances ** 2) / TEMPERATURE)
        near = (weights * (values[found] == targets[:, None])).sum(1) / weights.sum(1)
        want = numpy.log(WEIGHT * near + (1 - WEIGHT) * numpy.exp(alone[rows]))
        summary, mixed, own = self.scored("mixed")
        self.assertGreater((near > 0).mean(), 0.1)
        numpy.testing.assert_allclose(mixed[rows], want, atol=1e-6)
        numpy.testing.assert_array_equal(own, alone)
        self.assertEqual(numpy.isnan(mixed).sum(), len(mixed) - len(rows))
        plain = read_json(self.at("queries"), "score", "summary.json")
        self.assertEqual(summary["without_neighbours"], {key: plain[key] for key in ("nll_nats", "perplexity")})
        self.assertEqual(summary["corpora"]["text"]["without_neighbours"], summary["without_neighbours"])
        self.assertAlmostEqual(summary["perplexity"], math.exp(-mixed[rows].mean()), delta=1e-4)
        self.assertEqual({key: summary["neighbours"][key] for key in ("k", "temperature", "weight", "entries")},
                         {"k": K, "temperature": TEMPERATURE, "weight": WEIGHT, "entries": len(keys)})
        self.assertNotIn("neighbours", plain)
        alone, mixed, _ = self.scored("neighbours-alone", 0, "neighbours.weight=1")
        self.assertEqual((alone["zero_probability"], alone["perplexity"]), ((near == 0).sum(), None))
        numpy.testing.assert_array_equal(mixed[rows] == -numpy.inf, near == 0)
        numpy.testing.assert_allclose(mixed[rows][near > 0], numpy.log(near[near > 0]), atol=1e-6)

    @unittest.skipIf(bagpipe_test.SANITIZED, "the sanitizer's own memory is measured too")
    def test_plan_counts_the_buffers_of_states(self):
        def planned(*keys):
            found = self.must([*self.command("planned", "part"), "--plan", *keys])
            total, measured = (float(re.search(rf"{words} ([\d.]+) MiB", found.out)[1]) for words in ("takes about", "model and batch take"))
            return total - measured  # what a trial batch takes of a process differs from run to run
        wide = ["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={self.at('wide')}", "train.steps=1", "model.width=256", "model.heads=4"]
        self.must(wide)
        model = f"score.model={self.at('wide')}"
        rows = 16384 + 4096 + 2048 + 32  # of a unit, a batch, a gap; a window more
        more = planned(model, "score.states=yes") - planned(model)
        self.assertLess(abs(more - rows * 256 * 4 / 2**20), 1)  # less than any of them; what a process takes at its start differs too

    def test_every_mesh_and_memory_gives_the_same(self):
        one, mixed, _ = self.scored("one")
        for name, ranks, keys in (("four", 4, []), ("streamed", 0, ["neighbours.memory=1"]), ("dedicated", 3, ["mesh.coordinator=dedicated"])):
            self.assertEqual(self.scored(name, ranks, *keys)[0], one, name)
            self.assert_same_bytes("one", name)
        for name, ranks, keys in (("tensor", 2, ["mesh.tensor=2"]), ("all", 4, ["mesh.tensor=2", "mesh.pipeline=2"])):
            numpy.testing.assert_allclose(self.scored(name, ranks, *keys)[1], mixed, atol=2e-5, err_msg=name)
            self.must(self.command("store-" + name, "part", "score.states=yes", *keys), ranks)
            numpy.testing.assert_allclose(self.entries(os.path.join(self.at("store-" + name), "score", "states.h5"))[0], self.entries(self.store)[0],
                                          atol=2e-5, err_msg=name)
        self.must(self.command("store-two", "part", "score.states=yes"), 2)
        self.assertEqual(self.data("store", "states.h5"), self.data("store-two", "states.h5"))

    def test_keys_and_neighbours_come_of_one_pass(self):
        mixed, _, _ = self.scored("near-alone")
        self.assertEqual(self.scored("near-keys", 0, "score.states=yes")[0], mixed)
        self.must(self.command("keys-alone", "text", "score.states=yes"))
        with h5py.File(os.path.join(self.at("near-keys"), "score", "states.h5")) as one, h5py.File(os.path.join(self.at("keys-alone"), "score", "states.h5")) as other:
            for name in ("layer_0", "scored", "tokens"):
                numpy.testing.assert_array_equal(one[name][:], other[name][:], err_msg=name)

    def test_cite_prints_the_neighbours_of_scikit_learn(self):
        with open(self.at("part.txt"), encoding="utf-8") as file:
            number, line = next((k + 1, line) for k, line in enumerate(file.read().splitlines()[:-1]) if k > 5 and 20 < len(line) < 60)
        arguments = ["bagpipe-data", "cite", "--neighbours", 5, self.at("model"), self.store, line]
        documents = self.must(arguments).out.splitlines()
        self.assertEqual(self.must(arguments, 2).out.splitlines(), documents)
        rows = [row.split("\t") for row in self.must([*arguments[:2], "--entries", *arguments[2:]]).out.splitlines()]
        self.assertEqual(rows[0], ["token", "rank", "distance", "document", "doc_id", "position", "text"])
        with h5py.File(self.store) as file:
            starts, ids = file["doc_start"][:], file["doc_id"][:]
        keys, entries, _ = self.entries(self.store)
        document = [name.decode() for name in ids].index(f"part.txt:{number}")
        first, count = int(starts[document]), int(starts[document + 1] - starts[document]) - 1
        # what is known of a token is the key of the next one, but for the last
        queries = keys[numpy.searchsorted(entries, numpy.arange(first + 1, first + count))]
        distances, found = NearestNeighbors(n_neighbors=5, algorithm="brute").fit(keys).kneighbors(queries)
        got = numpy.array([[int(row[3]), int(row[5])] for row in rows[1:]]).reshape(count, 5, 2)
        places = starts[got[:-1, :, 0]] + got[:-1, :, 1]
        near = keys[numpy.searchsorted(entries, places)]
        self.assertGreater((places == entries[found]).mean(), 0.8)  # equally far ones come in another order
        numpy.testing.assert_allclose(((near - queries[:, None]) ** 2).sum(-1), distances ** 2, atol=1e-5)
        numpy.testing.assert_allclose([float(row[2]) for row in rows[1:1 + 5 * (count - 1)]], distances.ravel() ** 2, atol=1e-5)
        best = documents[1].split("\t")
        self.assertEqual((documents[0].split("\t")[0], int(best[2]), best[3]), ("share", document, ids[document].decode()))
        self.assertLessEqual(sum(float(row.split("\t")[0]) for row in documents[1:]), 1 + 1e-5)

    def test_bad_input(self):
        other = ["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={self.at('other')}", "run.seed=2", "train.steps=1"]
        self.must(other)
        with open(self.store, "rb") as file:
            data = bytearray(file.read())
        data[-200] ^= 1
        with open(self.at("flipped.h5"), "wb") as file:
            file.write(data)
        near = f"score.neighbours={self.store}"
        for name, status, words, keys in (
                ("other", 65, ["[datastore.other_model]", self.store], [near, f"score.model={self.at('other')}", "neighbours.k=4"]),
                ("many", 78, ["[neighbours.too_many]", "neighbours.k = 99999"], [near, "neighbours.k=99999"]),
                ("weight", 78, ["neighbours.weight", "1.5"], [near, "neighbours.weight=1.5"]),
                ("kind", 65, ["tokens.h5"], [f"score.neighbours={self.at('tokens')}/score/tokens.h5"]),
                ("flipped", 65, ["damaged", "flipped.h5"], [f"score.neighbours={self.at('flipped.h5')}"]),
                ("missing", 66, ["nowhere.h5"], [f"score.neighbours={self.at('nowhere.h5')}"])):
            if name == "kind":
                self.must(self.command("tokens", "text", "score.tokens=yes"))
            command = self.command("bad-" + name, "text", *keys)
            self.assert_error(run([program("bagpipe"), *command[1:]], 2 if name == "other" else 0), status, *words)
        cite = [program("bagpipe-data"), "cite", self.at("model"), self.store]
        for status, words, rest in ((65, ["[cite.empty_text]"], [""]), (65, ["[cite.long_text]"], ["word " * 40]), (64, ["[command.wrong_count]"], []),
                                    (78, ["[cite.too_many]"], ["--neighbours", "99999", "word"]), (64, ["[command.bad_number]"], ["--temperature", "0", "word"])):
            self.assert_error(run([*cite, *rest]), status, *words)
        self.assert_error(run([*cite[:2], self.at("other"), self.store, "word"]), 65, "[datastore.other_model]")
        self.assert_warning(run([*cite, "the sea"]), "[datastore.rounded_keys]", times=0)
        rounded = run([program("bagpipe"), *self.command("rounded", "part", "score.states=yes", "math.precision=bf16")[1:]])
        if "[math.no_bf16]" in rounded.err:
            self.skipTest("this CPU has no bf16")
        self.assertEqual(rounded.status, 0, str(rounded))
        result = run([*cite[:3], os.path.join(self.at("rounded"), "score", "states.h5"), "the sea"])
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[datastore.rounded_keys]", "bf16", "score.states=yes", "math.precision=f32")

    def test_a_run_goes_on_with_its_own_datastore_alone(self):
        """A killed run has the bits of one that was not; another weight or datastore is another run."""
        whole, _, _ = self.scored("whole")
        command = self.command("killed", "text", f"score.neighbours={self.store}", *KEYS)
        command[0] = program("bagpipe")
        killed = self.background(command, env={"BP_FAULT": "work.merge:1=kill"}).result()
        self.assertLess(killed.status, 0, str(killed))
        self.assertEqual(self.scored("killed")[0], whole)
        self.must(self.command("near", "text", "score.states=yes"))
        changed = run([*command, "neighbours.weight=0.5"])
        self.assert_error(changed, 78, "neighbours.weight")
        changed = run([*command, f"score.neighbours={self.at('near')}/score/states.h5"])
        self.assert_error(changed, 78, "score.neighbours")


if __name__ == "__main__":
    bagpipe_test.main()
