"""Scoring with ensembles: identities on every token, figures that numpy recomputes, meshes, kills, refusals."""
import json
import math
import os
import random
import re
import shutil

import bagpipe_test
from bagpipe_test import JobTest, ScoreFiles, program, run

try:
    import h5py
    import numpy
except ImportError:
    h5py = None

PLAIN = ("logprob", "total_entropy", "expected_entropy", "mutual_information", "logprob_variance", "agreement", "confidence",
         "correct", "brier")
MEANS = {"total_entropy": "total_entropy", "expected_entropy": "expected_entropy", "mutual_information": "mutual_information",
         "logprob_variance": "logprob_variance", "agreement": "agreement", "accuracy": "correct", "brier": "brier"}
OOB = 123.25


class ScoreEnsemble(ScoreFiles, JobTest):
    """Three models of other seeds, widths and contexts; a corpus of labelled documents, some empty."""

    TEXT_BYTES = 100_000

    @classmethod
    def setUpClass(cls):
        if h5py is None:
            raise bagpipe_test.unittest.SkipTest("there is no h5py")
        super().setUpClass()
        for k, keys in enumerate((["model.width=16"], ["model.context=40"], ["optimizer.lr=1e-2"])):
            cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.at(f'model{k}')}", f"run.seed={k + 1}",
                      "train.steps=12"] + keys)
        cls.list("ensemble", [("first", "model0", None), ("m01", "model1", OOB), ("m02", "model2", None)])
        draw = random.Random(5)
        with open(cls.at("valid.txt"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        with open(cls.at("labelled.jsonl"), "w", encoding="utf-8") as file:
            for k in range(40):
                text = "\n".join(lines[2 * k:2 * k + draw.randrange(3)])  # some are empty
                file.write(json.dumps({"id": f"d{k}", "text": text, "genre": draw.choice(["news", "fiction"])}) + "\n")
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "jsonl", "--label", "genre",
                  "--out", cls.at("labelled.h5"), cls.at("labelled.jsonl")])
        cls.write("score.ini", "[score]\ntokens = yes\n[math]\nprecision = f32\nthreads = 1\n")
        cls.corpora = f"{cls.at('valid.h5')},{cls.at('labelled.h5')}"

    @classmethod
    def list(cls, name, members):
        entries = [dict({"name": m, "path": path}, **({} if oob is None else {"oob_perplexity": oob})) for m, path, oob in members]
        cls.write(name + ".json", json.dumps({"members": entries}))

    def command(self, name, model, *keys):
        return [program("bagpipe"), "score", self.at("score.ini"), f"run.dir={self.at(name)}", f"score.model={self.at(model)}",
                f"score.corpus={self.corpora}"] + list(keys)

    def scored(self, name, model="ensemble.json", ranks=0, *keys):
        result = run(self.command(name, model, *keys), ranks)
        self.assertEqual(result.status, 0, str(result))
        return self.summary(name)

    def refused(self, status, words, model, ranks=0, *keys):
        result = run(self.command("refused", model, *keys), ranks)
        self.assert_error(result, status, *words)
        self.assertNotIn("scoring", result.out)  # before any compute

    def read(self, name, file="tokens.h5"):
        with h5py.File(os.path.join(self.at(name), "score", file)) as tables:
            return {key: tables[key][:] for key in tables if isinstance(tables[key], h5py.Dataset)}

    def documents(self):
        """First and end entry in tokens.h5, genre or None, of every document."""
        out, first = [], 0
        for corpus in ("valid.h5", "labelled.h5"):
            with h5py.File(self.at(corpus)) as file:
                starts = file["doc_start"][:].astype(int) + first
                genres = [file["label_names/genre"][c].decode() for c in file["labels/genre"][:]] if "labels" in file else None
                out += [(a, b, genres[d] if genres else None, corpus[:-3]) for d, (a, b) in enumerate(zip(starts[:-1], starts[1:]))]
                first += len(file["tokens"])
        return out

    # ---- tokens ----

    def check_identities(self, tokens, members):
        known = ~numpy.isnan(tokens["logprob"])
        self.assertGreater(known.sum(), 5000)
        for key in PLAIN:
            self.assertEqual(tokens[key].dtype, numpy.float32)
            numpy.testing.assert_array_equal(numpy.isnan(tokens[key]), ~known, key)
        self.assertEqual(tokens["member_logprob"].shape, (len(known), members))
        numpy.testing.assert_array_equal(numpy.isnan(tokens["member_logprob"]), numpy.repeat(~known[:, None], members, axis=1))
        t = {key: tokens[key][known].astype(numpy.float64) for key in PLAIN}
        each = tokens["member_logprob"][known].astype(numpy.float64)
        information = t["mutual_information"]
        numpy.testing.assert_allclose(t["total_entropy"], t["expected_entropy"] + information, rtol=1e-6)
        self.assertTrue((information >= 0).all())
        self.assertTrue((t["total_entropy"] <= math.log(self.VOCABULARY) * (1 + 1e-6)).all())
        # a logarithm in float32 near 0 is known to 6e-8 of the probability, not of itself
        numpy.testing.assert_allclose(t["logprob"], numpy.log(numpy.exp(each).mean(axis=1)), rtol=1e-6, atol=1e-6)
        numpy.testing.assert_allclose(t["logprob_variance"], each.var(axis=1), rtol=1e-4, atol=1e-6)
        unbiased = tokens["logprob_variance_unbiased"]
        self.assertEqual(unbiased.dtype, numpy.float32)
        self.assertTrue(numpy.isnan(unbiased[~known]).all())
        if members > 1:
            numpy.testing.assert_allclose(unbiased[known], each.var(axis=1, ddof=1), rtol=1e-4, atol=1e-6)
        else:
            self.assertTrue(numpy.isnan(unbiased).all())
        self.assertTrue((-t["logprob"] <= -each.mean(axis=1) + 1e-6).all())
        numpy.testing.assert_allclose(t["agreement"] * members, numpy.rint(t["agreement"] * members), atol=1e-5)
        self.assertTrue(((t["correct"] == 0) | (t["correct"] == 1)).all())
        right = t["correct"] == 1
        self.assertTrue(0 < right.sum() < len(right))
        numpy.testing.assert_allclose(numpy.exp(t["logprob"][right]), t["confidence"][right], rtol=1e-5)
        self.assertTrue((numpy.exp(t["logprob"][~right]) <= t["confidence"][~right] * (1 + 1e-5)).all())
        # of sum p^2 - 2 p(target) + 1 the first lies between max p^2 and max p
        p, top = numpy.exp(t["logprob"]), t["confidence"]
        self.assertTrue((t["brier"] >= top ** 2 - 2 * p + 1 - 1e-5).all() and (t["brier"] <= top - 2 * p + 1 + 1e-5).all())
        return known

    def test_identities_hold_on_every_token(self):
        self.scored("identities")
        tokens = self.read("identities")
        known = self.check_identities(tokens, 3)
        self.assertEqual(list(tokens["member_names"]), [b"first", b"m01", b"m02"])
        self.assertTrue((tokens["mutual_information"][known] > 0).all())  # these members differ
        for k in range(3):  # each member as it scores alone, to the bit
            self.scored(f"alone{k}", f"model{k}", 0, "score.context=32")
            numpy.testing.assert_array_equal(self.read(f"alone{k}")["logprob"], tokens["member_logprob"][:, k])

    def test_one_member_is_plain_scoring_to_the_bit(self):
        self.list("one", [("m00", "model1", None)])
        plain, one = self.scored("plain", "model1"), self.scored("one", "one.json")
        tokens = self.read("one")
        known = self.check_identities(tokens, 1)
        self.assertEqual(self.read("plain")["logprob"].tobytes(), tokens["logprob"].tobytes())
        self.assertEqual(tokens["logprob"].tobytes(), tokens["member_logprob"].tobytes())
        for key, value in (("mutual_information", 0), ("logprob_variance", 0), ("agreement", 1)):
            self.assertTrue((tokens[key][known] == value).all(), key)
        self.assertIsNone(one["logprob_variance_unbiased"])
        a, b = self.read("plain", "documents.h5"), self.read("one", "documents.h5")
        self.assertTrue(numpy.isnan(b["logprob_variance_unbiased"]).all())
        for key in a:
            self.assertEqual(a[key].tobytes(), b[key].tobytes(), key)
        for key in plain:
            if key not in ("model", "corpora", "labels"):  # an ensemble's digest is of its list
                self.assertEqual(plain[key], one[key], key)

    def test_copies_of_one_member_know_nothing_of_each_other(self):
        self.list("copies", [(f"c{k}", "model2", None) for k in range(4)])
        self.scored("copies", "copies.json")
        self.scored("original", "model2")
        tokens = self.read("copies")
        known = self.check_identities(tokens, 4)
        self.assertTrue((tokens["mutual_information"][known] == 0).all())
        self.assertTrue((tokens["logprob_variance"][known] == 0).all())
        self.assertTrue((tokens["agreement"][known] == 1).all())
        numpy.testing.assert_allclose(tokens["logprob"][known], self.read("original")["logprob"][known], rtol=1e-6)

    # ---- documents and the summary ----

    def check_figures(self, got, tokens, pieces, oob):
        chosen = numpy.concatenate([numpy.arange(a, b) for a, b in pieces])
        chosen = chosen[~numpy.isnan(tokens["logprob"][chosen])]
        self.assertEqual(got["tokens"], len(chosen))
        nll = -math.fsum(tokens["logprob"][chosen].astype(numpy.float64))
        self.assertAlmostEqual(got["nll_nats"] / nll, 1, delta=1e-9)
        self.assertAlmostEqual(got["perplexity"] / math.exp(nll / len(chosen)), 1, delta=1e-9)
        for key, channel in MEANS.items():
            mean = math.fsum(tokens[channel][chosen].astype(numpy.float64)) / len(chosen)
            self.assertAlmostEqual(got[key], mean, delta=1e-9 * abs(mean) + 1e-12, msg=key)
        unbiased = tokens["member_logprob"][chosen].astype(numpy.float64).var(axis=1, ddof=1).mean()
        self.assertAlmostEqual(got["logprob_variance_unbiased"] / unbiased, 1, delta=1e-5)
        self.assertEqual([m["name"] for m in got["members"]], ["first", "m01", "m02"])
        for k, member in enumerate(got["members"]):
            nll = -math.fsum(tokens["member_logprob"][chosen, k].astype(numpy.float64))
            self.assertAlmostEqual(member["nll_nats"] / nll, 1, delta=1e-9)
            self.assertAlmostEqual(member["perplexity"] / math.exp(nll / len(chosen)), 1, delta=1e-9)
            self.assertEqual(member.get("oob_perplexity"), OOB if oob and k == 1 else None)

    def test_figures_are_what_numpy_makes_of_the_tokens(self):
        summary = self.scored("figures", "ensemble.json", 0, "score.end=yes")
        tokens, documents = self.read("figures"), self.documents()
        self.check_figures(summary, tokens, [d[:2] for d in documents], True)
        for corpus in ("valid", "labelled"):
            self.check_figures(summary["corpora"][corpus], tokens, [d[:2] for d in documents if d[3] == corpus], False)
        for genre in ("news", "fiction"):
            self.check_figures(summary["labels"]["genre"][genre], tokens, [d[:2] for d in documents if d[2] == genre], False)
        with h5py.File(self.at("figures/score/documents.h5")) as table:
            self.assertEqual(list(table["member_names"][:]), [b"first", b"m01", b"m02"])
            for key in PLAIN + ("member_logprob",):
                got = table[key][:]
                self.assertEqual(got.dtype, numpy.float64)
                for d, (a, b, _, _) in enumerate(documents):
                    values = tokens[key][a:b].astype(numpy.float64)
                    values = values[~numpy.isnan(tokens["logprob"][a:b])]
                    numpy.testing.assert_allclose(got[d], values.mean(axis=0), rtol=1e-9, atol=1e-12)
            numpy.testing.assert_allclose(table["logprob_variance_unbiased"][:], table["logprob_variance"][:] * 3 / 2, rtol=1e-12)

    def test_documents_without_scored_tokens_have_no_means(self):
        self.scored("empty")
        with h5py.File(self.at("empty/score/documents.h5")) as table:
            empty = table["tokens"][:] == 0
            self.assertGreater(empty.sum(), 0)
            for key in PLAIN:
                numpy.testing.assert_array_equal(numpy.isnan(table[key][:]), empty)
            self.assertTrue(numpy.isnan(table["member_logprob"][:][empty]).all())

    def test_the_report_and_the_plan_tell_of_the_members(self):
        result = run(self.command("reported", "ensemble.json"))
        self.assertEqual(result.status, 0, str(result))
        for word in ("mixture", "best member", "worst member", "mutual inf.", "accuracy"):
            self.assertIn(word, result.out)
        result = run(self.command("planned", "ensemble.json", "--plan", "mesh.members=3", "mesh.data=2"))
        self.assertEqual(result.status, 0, str(result))
        self.assertRegex(result.out, r"mesh: members 3 x pipeline 1 x data 2 x tensor 1")
        self.assertRegex(result.out, r"tried: 3 members .* take [\d.]+ MiB of a rank's memory .*score.memory = 1024.0 MiB")
        self.assertEqual(len(re.findall(r"^memory: ", result.out, re.M)), 1, result.out)
        self.assertRegex(result.out, r"(?m)^the time supposes that .*each copy is as fast as the one that was tried here$")
        one = run(self.command("planned", "ensemble.json", "--plan", "mesh.members=1", "mesh.data=1"))
        self.assertRegex(one.out, r"(?m)^time: about ")
        self.assertNotIn("each copy", one.out)
        self.assertFalse(os.path.exists(self.at("planned")))

    # ---- meshes ----

    def test_members_side_by_side_agree_to_rounding(self):
        want = self.scored("one_by_one")
        for name, ranks, keys in (("pair", 2, ["mesh.members=2"]), ("trio", 3, ["mesh.members=3"]),
                                  ("split", 4, ["mesh.members=2", "mesh.tensor=2"])):
            got = self.scored(name, "ensemble.json", ranks, *keys)
            self.assertEqual(got["tokens"], want["tokens"])
            self.assertAlmostEqual(got["nll_nats"] / want["nll_nats"], 1, delta=1e-6)
            self.assertAlmostEqual(got["mutual_information"] / want["mutual_information"], 1, delta=1e-4)
            self.check_identities(self.read(name), 3)
        self.scored("pairs", "ensemble.json", 4, "mesh.members=2")  # two data ranks of two members
        self.assert_same_bytes("pair", "pairs")
        self.scored("watched", "ensemble.json", 3, "mesh.members=2", "mesh.coordinator=dedicated")
        self.assert_same_bytes("pair", "watched")

    def test_bytes_are_equal_at_any_number_of_data_ranks(self):
        self.scored("data1")
        for ranks in (2, 3):
            self.scored(f"data{ranks}", "ensemble.json", ranks)
            self.assert_same_bytes("data1", f"data{ranks}")
        self.scored("frugal", "ensemble.json", 0, "score.memory=64KiB")  # another cut, the same bits
        self.assert_same_bytes("data1", "frugal")

    def test_killed_at_any_moment_it_goes_on(self):
        self.scored("whole", "ensemble.json", 2, "score.stride=4")
        draw, went_on = random.Random(3), False
        for k in range(6):
            result = run(self.command("killed", "ensemble.json", "score.stride=4"), 2, kill_after=0.6 + draw.random() if k < 5 else None)
            went_on = went_on or "going on" in result.out
            if result.status == 0:
                break
        self.assertEqual(result.status, 0, str(result))
        self.assert_same_bytes("whole", "killed")

    def test_another_ensemble_in_the_folder_is_78(self):
        self.scored("taken")
        self.list("fewer", [("first", "model0", None), ("m01", "model1", None)])
        result = run(self.command("taken", "fewer.json"))
        self.assert_error(result, 78, "[run.other_keys]", "score.model")
        self.list("single", [("m00", "model1", None)])
        self.scored("of_one", "single.json")
        result = run(self.command("of_one", "model1"))  # the same weights, but fewer values a token
        self.assertEqual(result.status, 78, str(result))

    # ---- refusals, before any compute ----

    def test_members_that_are_missing_are_66_and_named(self):
        self.list("missing", [("m00", "model0", None), ("gone", "nowhere", None)])
        self.refused(66, ["[ensemble.member_missing]", "gone", "nowhere"], "missing.json")
        self.refused(66, ["[ensemble.member_missing]", "gone"], "missing.json", 2, "mesh.members=2")
        os.makedirs(self.at("hollow"), exist_ok=True)  # a folder without a checkpoint
        self.list("hollow", [("m00", "model0", None), ("hollow", "hollow", None)])
        self.refused(66, ["[checkpoint.none]", "hollow"], "hollow.json")

    def test_members_of_another_tokenizer_or_vocabulary_are_65_and_named(self):
        self.must(["bagpipe-data", "tokenizer", "--kind", "bpe", "--size", self.VOCABULARY, "--out", self.at("other.json"),
                   self.at("valid.txt")])
        self.must(["bagpipe-data", "tokenizer", "--kind", "bpe", "--size", 400, "--out", self.at("little.json"), self.at("valid.txt")])
        for name in ("other", "little"):
            self.must(["bagpipe-data", "corpus", "--tokenizer", self.at(name + ".json"), "--format", "lines", "--out",
                       self.at(name + ".h5"), self.at("valid.txt")])
            self.must(["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={self.at(name)}", "train.steps=2", "corpus.valid=",
                       f"corpus.train={self.at(name + '.h5')}"])
            self.list("with_" + name, [("m00", "model0", None), (f"the-{name}", name, None)])
        self.refused(65, ["[ensemble.unlike_members]", "the-other", "m00"], "with_other.json")
        self.refused(65, ["[ensemble.unlike_members]", "the-little", "m00", "509", "400"], "with_little.json")
        self.refused(65, ["[ensemble.unlike_members]", "the-little", "509"], "with_little.json", 2, "mesh.members=2")

    def test_members_whose_files_force_other_tokens_are_65_and_named(self):
        """One that forces none goes with all."""
        steps = os.path.join(self.at("model0"), "checkpoints")
        step = os.path.join(steps, sorted(name for name in os.listdir(steps) if name.startswith("step-"))[-1])
        for name, forced in (("five", {"forced_bos_token_id": 5}), ("six", {"forced_bos_token_id": 6}), ("last", {"forced_eos_token_id": 7}), ("end", {"forced_eos_token_id": 8})):
            shutil.copytree(step, self.at(name))
            bagpipe_test.edit_manifest(self.at(name), lambda manifest, forced=forced: manifest["state"].update(forced=forced))
        for name, members in (("firsts", ("model1", "five", "six")), ("lasts", ("last", "five", "end"))):
            self.list(name, [(f"the-{member}", member, None) for member in members])
        self.refused(65, ["[ensemble.unlike_members]", "the-five", "the-six", "5", "6"], "firsts.json")
        self.refused(65, ["[ensemble.unlike_members]", "the-last", "the-end", "7", "8"], "lasts.json")
        self.list("agreeing", [(f"the-{member}", member, None) for member in ("model1", "five", "last")])
        self.scored("agreeing", "agreeing.json")

    def test_meshes_that_do_not_fit_are_78(self):
        self.refused(78, ["[mesh.one_model]", "mesh.members = 2"], "model0", 2, "mesh.members=2")
        self.refused(78, ["[mesh.too_many_members]", "mesh.members = 4", "3"], "ensemble.json", 4, "mesh.members=4")
        self.refused(78, ["[score.memory_too_small]", "score.memory"], "ensemble.json", 0, "score.memory=100")
        self.write("broken.json", '{"members": []}')
        self.refused(65, ["[ensemble.bad_file]", "broken.json"], "broken.json")

    # ---- tools ----

    def test_tools_read_the_files(self):
        self.scored("tools", "ensemble.json", 0, "score.end=yes")
        for file in ("tokens.h5", "documents.h5"):
            path = os.path.join(self.at("tools"), "score", file)
            self.must(["bagpipe-data", "verify", path])
            shown = self.must(["bagpipe-data", "inspect", path]).out
            self.assertRegex(shown, r"member_logprob +[\d,]+ x 3 float")
            rows = self.must(["bagpipe-data", "table", path]).out.splitlines()
            head, table = rows[0].split(","), self.read("tools", file)
            for name in ("member_logprob.first", "member_logprob.m01", "member_logprob.m02", "mutual_information"):
                self.assertIn(name, head)
            self.assertEqual(len(rows) - 1, len(table["logprob"]))
            for row in (0, len(rows) // 2, len(rows) - 2):
                cells = rows[row + 1].split(",")
                for k, name in enumerate(("first", "m01", "m02")):
                    self.assertEqual(float(cells[head.index("member_logprob." + name)]), float("%.9g" % table["member_logprob"][row, k])
                                     if file == "tokens.h5" else table["member_logprob"][row, k])


if __name__ == "__main__":
    bagpipe_test.main()
