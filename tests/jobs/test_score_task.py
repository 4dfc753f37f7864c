"""Scoring a task: figures are scikit-learn's and scipy's of the predictions, equal at any number of data ranks; an ensemble of equal models gives
its member's bits and no mutual information; an ensemble is fine-tuned, and scored out of its bags."""
import csv
import json
import math
import os
import pathlib
import re
import signal
import string

import bagpipe_test
import h5py
import numpy
import scipy.stats
import sklearn.metrics
import test_finetune
from bagpipe_test import read_json, run
from page_test import Page
from test_finetune import GPT, KINDS, MODEL


class ScoreTask(test_finetune.TaskTest):
    def score(self, name, model, ranks=0, *keys, corpus="valid.h5", fault="none"):
        env = [] if fault == "none" else ["env", f"BP_FAULT={fault}"]
        return run([*env, bagpipe_test.program("bagpipe"), "score", f"run.dir={self.at(name)}", f"score.model={model}",
                    f"score.corpus={self.at(corpus)}", self.at("empty.ini"), *keys], ranks)

    def scored(self, name, model, ranks=0, *keys, corpus="valid.h5"):
        result = self.score(name, model, ranks, *keys, corpus=corpus)
        self.assertEqual(result.status, 0, str(result))
        return read_json(self.at(name), "score", "summary.json")

    def predictions(self, name):
        with open(pathlib.Path(self.at(name), "score", "predictions.csv"), newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def nameless(self, name):
        """Predictions without doc_id, which names the file of a text."""
        return [{key: value for key, value in row.items() if key != "doc_id"} for row in self.predictions(name)]

    def check_columns(self, name, *columns):
        """New columns stand behind those that were there; a text is named, and the probabilities of its classes are a distribution."""
        rows, texts = self.predictions(name), self.texts("valid")
        self.assertEqual(list(rows[0]), list(columns))
        self.assertEqual([row["doc_id"] for row in rows], [f"valid.jsonl:{k + 1}" for k in range(len(texts))])
        self.assertEqual([int(row["tokens"]) for row in rows], [len(row["text"].split()) for row in texts])
        for row in rows if "p_sea" in columns else ():
            p = {kind: float(row[f"p_{kind}"]) for kind in KINDS}
            self.assertAlmostEqual(sum(p.values()), 1, 5)
            self.assertEqual((max(p, key=p.get), row["probability"]), (row["prediction"], row[f"p_{row['prediction']}"]))

    def ensemble(self, name, *paths):
        os.mkdir(self.at(name))
        self.write(f"{name}/ensemble.json", json.dumps({"members": [{"name": f"m{k}", "path": path} for k, path in enumerate(paths)]}))
        return self.at(f"{name}/ensemble.json")

    def bytes_of(self, name, file):
        return pathlib.Path(self.at(name), "score", file).read_bytes()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("empty.ini", "[run]\nseed = 1\n[math]\nprecision = f32\n")

    def check_page(self, folder, confusion):
        page = pathlib.Path(folder, "score", "index.html").read_text(encoding="utf-8")
        rows = [re.findall(r'<td class="cell"[^>]*>(\d+)</td>', line) for line in page.splitlines()]
        self.assertEqual([row for row in rows if row], confusion)
        table = [row for row in Page(page).rows if len(row) == 6 and row[0] in KINDS]
        for k, (kind, labelled, predicted, *shares) in enumerate(table[:3]):
            counts = [[int(n) for n in row] for row in confusion]
            right, of_label, of_prediction = counts[k][k], sum(counts[k]), sum(row[k] for row in counts)
            self.assertEqual((kind, int(labelled), int(predicted)), (sorted(KINDS)[k], of_label, of_prediction))
            for shown, share in zip(shares, ((right, of_prediction), (right, of_label), (2 * right, of_label + of_prediction))):
                self.assertEqual(shown, f"{share[0] / share[1]:.3f}" if share[1] else "–")
        self.check_mistakes(folder, [row for row in Page(page).rows if len(row) == 6 and row[1] in KINDS and row[2] in KINDS])
        self.assertRegex(page, r"(?s)<svg.*expected calibration error is 0\.\d{3}|There is no plot")

    def page(self, name):
        return Page(pathlib.Path(self.at(name), "score", "index.html").read_text(encoding="utf-8"))

    def test_both_texts_of_a_pair_are_shown_apart(self):
        sea, town = (KINDS[kind] for kind in ("sea", "town"))
        rows = [(sea[k % len(sea)], f"{town[k % len(town)]} the", ("yes", "no")[k % 2], str(k % 3)) for k in range(30)]
        self.write("pairs.tsv", "one\tother\tsame\tscore\n" + "".join("\t".join(row) + "\n" for row in rows))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "tsv", "--fields", "one,other", "--label", "same",
                   "--value", "score", "--out", self.at("pairs.h5"), self.at("pairs.tsv")])
        keys = [f"corpus.train={self.at('pairs.h5')}", f"corpus.valid={self.at('pairs.h5')}", *MODEL, "train.steps=1"]
        for name, more in (("same", ["task.label=same"]), ("how", ["task.kind=regression", "task.label=score"])):
            self.scored(f"pairs-{name}", self.tuned(f"pairs-{name}-model", 0, *keys, *more), corpus="pairs.h5")
            shown = [row[-2:] for row in self.page(f"pairs-{name}").rows if row[0].startswith("pairs.tsv:")]
            self.assertEqual(len(shown), 10)
            self.assertTrue({tuple(row) for row in shown} <= {row[:2] for row in rows}, shown)

    def test_words_without_an_entity_come_first(self):
        """A model that finds no entity has no precision: the page says so."""
        self.conll("none", [[("the", "O")] * 12 + [("gull", "B-sea" if k == 0 else "O")] for k in range(20)])
        tuned = self.tuned("none-model", 0, *MODEL, "task.kind=tags", f"corpus.train={self.at('none.h5')}", f"corpus.valid={self.at('none.h5')}",
                           "train.steps=20", "optimizer.lr=1e-2")
        summary = self.scored("none-score", tuned, corpus="none.h5")
        self.assertEqual({row["prediction"] for row in self.predictions("none-score")}, {"O"})
        page = self.page("none-score")
        figures = {row[0]: row[1] for row in page.rows if len(row) == 3}
        self.assertEqual(figures["precision"], "\u2013")
        self.assertEqual(figures["recall"], "0.000")
        self.assertEqual(figures["accuracy"], f"{summary['task']['accuracy']['value']:.3f}")
        self.assertIn(["label", "O", "B-sea"], page.rows)

    def check_mistakes(self, folder, shown):
        """Ten of those that the model was surest of, the surest first."""
        with open(pathlib.Path(folder, "score", "predictions.csv"), newline="", encoding="utf-8") as file:
            wrong = [row for row in csv.DictReader(file) if row["label"] != row["prediction"]]
        sure = sorted((float(row["probability"]) for row in wrong), reverse=True)[:10]
        self.assertEqual([row[3] for row in shown], [f"{p:.3f}" for p in sure])
        known = {(row["doc_id"], row["label"], row["prediction"]) for row in wrong}
        self.assertTrue({tuple(row[:3]) for row in shown} <= known, shown)
        texts = {f"valid.jsonl:{k + 1}": one["text"] for k, one in enumerate(self.texts("valid"))}
        for row in shown:
            self.assertTrue(texts[row[0]].startswith(row[5].removesuffix(" \u2026")), row)

    def same_without_labels(self, name, model, bare, labelled):
        """Of `bare`, the texts of score folder `labelled` without labels: the predictions are the same, with an empty label, and there are no figures."""
        result = self.score(name, model, corpus=bare)
        self.assertEqual(result.status, 0, str(result))
        self.assertIn("without figures", result.out)
        summary = read_json(self.at(name), "score", "summary.json")
        self.assertFalse({"nll_nats", "perplexity"} & set(summary))
        self.assertEqual({key for key, value in summary["task"].items() if isinstance(value, dict) or key == "confusion"}, set())
        self.assertEqual(summary["task"]["unlabelled"], len(self.predictions(labelled)))
        self.assertEqual(self.nameless(name), [{**row, "label": ""} for row in self.nameless(labelled)])
        self.assertIn("no labels", pathlib.Path(self.at(name), "score", "index.html").read_text(encoding="utf-8"))

    def texts(self, name):
        return [json.loads(line) for line in pathlib.Path(self.at(f"{name}.jsonl")).read_text(encoding="utf-8").splitlines()]

    def test_figures_are_those_of_the_predictions(self):
        for kind, model in (("bert", MODEL), ("gpt", GPT)):
            tuned = self.tuned(f"{kind}", 0, *model, "train.steps=25")
            summary = self.scored(f"{kind}-score", tuned)
            rows = self.predictions(f"{kind}-score")
            self.assertEqual([row["label"] for row in rows], [json.loads(line)["topic"] for line in
                                                              pathlib.Path(self.at("valid.jsonl")).read_text(encoding="utf-8").splitlines()])
            truth, said = [row["label"] for row in rows], [row["prediction"] for row in rows]
            expected = {"accuracy": sklearn.metrics.accuracy_score(truth, said),
                        "f1_macro": sklearn.metrics.f1_score(truth, said, average="macro"),
                        "f1_micro": sklearn.metrics.f1_score(truth, said, average="micro"),
                        "matthews": sklearn.metrics.matthews_corrcoef(truth, said)}
            for name, value in expected.items():
                self.assertAlmostEqual(summary["task"][name]["value"], value, 9, name)
                self.assertLessEqual(summary["task"][name]["low"], value)
            self.assertEqual(summary["task"]["confusion"], sklearn.metrics.confusion_matrix(truth, said, labels=sorted(KINDS)).tolist())
            last = bagpipe_test.metrics(tuned)[-1]
            self.assertAlmostEqual(summary["nll_nats"] / len(rows), last["valid_loss"], 5)
            self.assertAlmostEqual(summary["task"]["accuracy"]["value"], last["valid_accuracy"], 9)
            self.assertTrue(all(1 / 3 <= float(row["probability"]) <= 1 for row in rows))
            self.check_columns(f"{kind}-score", "document", "label", "prediction", "probability", "doc_id", "tokens", "p_sea", "p_town", "p_wood")
            self.check_page(self.at(f"{kind}-score"), [[str(n) for n in row] for row in summary["task"]["confusion"]])
            self.assertIn("score: index.html predictions.csv summary.json", self.must(["bagpipe-data", "inspect", self.at(f"{kind}-score")]).out)
            self.scored(f"{kind}-4", tuned, 4)
            for file in ("summary.json", "predictions.csv"):
                self.assertEqual(self.bytes_of(f"{kind}-score", file), self.bytes_of(f"{kind}-4", file))
            other = self.scored(f"{kind}-mesh", tuned, 4, "mesh.tensor=2", "mesh.pipeline=2")
            self.assertAlmostEqual(other["nll_nats"], summary["nll_nats"], 3)
            again = self.score(f"{kind}-score", tuned)
            self.assertEqual((again.status, "finished" in again.out), (0, True), str(again))

    def test_numbers_are_correlated(self):
        tuned = self.tuned("number", 0, *MODEL, "task.kind=regression", "task.label=score", "task.pool=mean", "train.steps=60",
                           "optimizer.lr=5e-3")
        summary = self.scored("number-score", tuned)
        rows = self.predictions("number-score")
        truth, said = [float(row["label"]) for row in rows], [float(row["prediction"]) for row in rows]
        self.check_columns("number-score", "document", "label", "prediction", "doc_id", "tokens")
        self.assertAlmostEqual(summary["task"]["pearson"]["value"], scipy.stats.pearsonr(truth, said)[0], 5)
        self.assertAlmostEqual(summary["task"]["spearman"]["value"], scipy.stats.spearmanr(truth, said)[0], 5)
        self.assertAlmostEqual(summary["task"]["mse"]["value"], bagpipe_test.metrics(tuned)[-1]["valid_loss"], 3)
        page = self.page("number-score")
        self.assertRegex("".join(page.text), "a prediction that is right|There is no plot")
        texts = {f"valid.jsonl:{k + 1}": one["text"] for k, one in enumerate(self.texts("valid"))}
        misses = [row for row in page.rows if row[0] in texts]
        for row, gap in zip(misses, sorted((abs(a - b) for a, b in zip(truth, said)), reverse=True)[:10], strict=True):
            self.assertAlmostEqual(abs(float(row[1]) - float(row[2])), gap, 2)
            self.assertTrue(texts[row[0]].startswith(row[3].removesuffix(" \u2026")), row)
        made = run([bagpipe_test.program("bagpipe"), "ensemble", self.at("tune.ini"), f"run.dir={self.at('number-pair')}", *test_finetune.TUNE, *MODEL,
                    "task.kind=regression", "task.label=score", "task.pool=mean", "train.steps=10", "ensemble.members=2"])
        self.assertEqual(made.status, 0, str(made))
        members = [f"{self.at('number-pair')}/members/{name}" for name in sorted(os.listdir(f"{self.at('number-pair')}/members"))]
        self.check_mixed_values("numbers", [tuned, *members])
        self.corpus("number-bare", [{"text": row["text"]} for row in self.texts("valid")])
        self.same_without_labels("number-bare-score", tuned, "number-bare.h5", "number-score")
        self.same_without_labels("numbers-bare-score", self.at("numbers/ensemble.json"), "number-bare.h5", "numbers-score")
        both = self.scored("equal-numbers", self.ensemble("twice", tuned, tuned, tuned))
        self.assertEqual(both["task"].pop("variance"), 0)
        self.assertEqual(both["task"], summary["task"])

    def check_mixed_values(self, name, models):
        """The mean of the members' values and their variance; the same bytes where members lie on several ranks."""
        values = []
        for k, model in enumerate(models):
            self.scored(f"{name}-{k}", model)
            values.append([float(row["prediction"]) for row in self.predictions(f"{name}-{k}")])
        told = self.scored(f"{name}-score", self.ensemble(name, *models))
        rows = self.predictions(f"{name}-score")
        numpy.testing.assert_allclose([float(row["prediction"]) for row in rows], numpy.mean(values, 0), rtol=1e-6)
        numpy.testing.assert_allclose([float(row["variance"]) for row in rows], numpy.var(values, 0), rtol=1e-5, atol=1e-9)
        self.assertAlmostEqual(told["task"]["variance"], numpy.var(values, 0).mean(), 5)
        self.assertGreater(told["task"]["variance"], 0)
        self.same_on_meshes(name, "valid.h5", "summary.json", "predictions.csv")

    def same_on_meshes(self, name, corpus, *files):
        for ranks, keys in ((2, []), (2, ["mesh.members=2"])):
            other = f"{name}-{ranks}{len(keys)}"
            self.scored(other, self.at(f"{name}/ensemble.json"), ranks, *keys, corpus=corpus)
            for file in files:
                self.assertEqual(self.bytes_of(f"{name}-score", file), self.bytes_of(other, file))

    def test_an_ensemble_of_equal_models_is_its_member(self):
        tuned = self.tuned("member", 0, *MODEL, "train.steps=25")
        equal = self.ensemble("equal", tuned, tuned)
        one = self.scored("one-member", tuned)
        for name, ranks, keys in (("equal-score", 0, []), ("equal-two", 2, ["mesh.members=2"])):
            both = self.scored(name, equal, ranks, *keys)
            self.assertEqual(both["task"]["mutual_information"], 0)
            self.assertEqual(both["nll_nats"], one["nll_nats"])
            for a, b in zip(self.predictions("one-member"), self.predictions(name), strict=True):
                self.assertEqual(a, {key: b[key] for key in a})
                self.assertEqual(float(b["mutual_information"]), 0)
        self.check_columns("equal-score", *list(a)[:4], "entropy", "mutual_information", *list(a)[4:])
        self.check_new_texts(tuned, equal)

    def check_new_texts(self, tuned, equal):
        """Texts without labels, scored by a model, an ensemble and an import; some with labels and some without."""
        rows = [{"text": row["text"], "topic": row["topic"]} for row in self.texts("valid")]
        self.corpus("new", [{"text": row["text"]} for row in rows])
        self.same_without_labels("new-score", tuned, "new.h5", "one-member")
        self.same_without_labels("new-equal", equal, "new.h5", "equal-score")
        self.scored("new-two", tuned, 2, corpus="new.h5")
        self.assertEqual(self.bytes_of("new-two", "summary.json"), self.bytes_of("new-score", "summary.json"))
        self.must(["bagpipe-data", "export", tuned, "--out", self.at("classifier")])
        self.must(["bagpipe-data", "import", self.at("classifier"), "--out", self.at("classifier-back")])
        self.same_without_labels("new-back", self.at("classifier-back"), "new.h5", "one-member")
        self.corpus("known", rows)
        labels = {"new.h5": [""] * len(rows), "known.h5": [row["topic"] for row in rows]}
        for name, files in (("new-known", ("new.h5", "known.h5")), ("known-new", ("known.h5", "new.h5"))):
            self.scored(name, self.at("classifier-back"), corpus=f"{files[0]},{self.at(files[1])}")
            self.assertEqual([row["label"] for row in self.predictions(name)], labels[files[0]] + labels[files[1]])
        self.corpus("half", [row if k % 2 == 0 else {"text": row["text"]} for k, row in enumerate(rows)])
        summary = self.scored("half-score", tuned, corpus="half.h5")["task"]
        known = [row for k, row in enumerate(self.nameless("one-member")) if k % 2 == 0]
        truth, said = [row["label"] for row in known], [row["prediction"] for row in known]
        self.assertEqual(summary["unlabelled"], len(rows) - len(known))
        self.assertAlmostEqual(summary["accuracy"]["value"], sklearn.metrics.accuracy_score(truth, said), 9)
        self.assertEqual(summary["confusion"], sklearn.metrics.confusion_matrix(truth, said, labels=sorted(KINDS)).tolist())
        self.assertEqual([row for k, row in enumerate(self.nameless("half-score")) if k % 2 == 0], known)

    def test_new_pairs_need_no_label(self):
        lines = [("a", "b", "same"), ("the ship", "the sail", "yes"), ("a tree", "the house of salt", "no"), ("lamp", "a lamp", "yes")]
        self.write("pairs.tsv", "".join("\t".join(line) + "\n" for line in lines))
        for name, label in (("pairs", ["--label", "same"]), ("pairs-bare", [])):
            self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "tsv", "--fields", "a,b", *label, "--out",
                       self.at(f"{name}.h5"), self.at("pairs.tsv")])
        self.write("unknown.txt", "the zebra\n")
        self.assert_warning(self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--out", self.at("unknown.h5"),
                                       self.at("unknown.txt")]), "[corpus.unknown_tokens]", "([UNK])")
        tuned = self.tuned("pair-classifier", 0, *MODEL, "task.label=same", f"corpus.train={self.at('pairs.h5')}", "corpus.valid=", "train.steps=1")
        self.scored("pairs-score", tuned, corpus="pairs.h5")
        self.same_without_labels("pairs-bare-score", tuned, "pairs-bare.h5", "pairs-score")

    def test_an_ensemble_is_fine_tuned(self):
        result = run([bagpipe_test.program("bagpipe"), "ensemble", self.at("tune.ini"), f"run.dir={self.at('ensemble')}", *test_finetune.TUNE, *MODEL,
                      "ensemble.members=3"])
        self.assertEqual(result.status, 0, str(result))
        members = read_json(self.at("ensemble"), "ensemble.json")["members"]
        self.assertEqual(len(members), 3)
        self.assertTrue(all(1 < member["oob_perplexity"] < 4 for member in members), members)
        self.assertIn(f"out-of-bag loss {math.log(members[0]['oob_perplexity']):.4f}", result.out)
        self.assertNotIn("perplexity", result.out)
        for arguments in (["export", self.at("ensemble"), "--out", self.at("never")],
                          ["metrics", "--kind", "perplexity", "--model", self.at("ensemble"), "--hypothesis", self.at("vocab.txt")]):
            self.assert_error(run([bagpipe_test.program("bagpipe-data"), *arguments]), 66, "[ensemble.not_one_model]", "members/m00")
        summary = self.scored("ensemble-score", self.at("ensemble"))
        self.assertGreater(summary["task"]["mutual_information"], 0)
        self.assertLess(summary["task"]["entropy"], math.log(3) + 1e-6)

    @staticmethod
    def entities(rows, key):
        """(document, first word, last word, type) of IOB2, as conlleval reads it."""
        out, begun = set(), None
        for k, row in enumerate([*rows, {"document": None, key: "O"}]):
            tag = row[key]
            if begun and (tag[0] != "I" or tag[2:] != begun[1] or row["document"] != begun[2]):
                out.add((begun[2], begun[0], k - 1, begun[1]))
                begun = None
            if tag != "O" and not begun:
                begun = (k, tag[2:], row["document"])
        return out

    def test_tags_of_words(self):
        train, valid = self.sentences(120, 1), self.sentences(20, 2)
        corpora = [f"corpus.train={self.conll('tags', train)}", f"corpus.valid={self.conll('tags-valid', valid)}"]
        keys = [*MODEL, "task.kind=tags", *corpora, "optimizer.lr=1e-2", "train.steps=120", "train.log_every=40"]
        tuned = self.tuned("tagger", 0, *keys)
        for name, ranks, mesh in (("data", 2, ()), ("mesh", 4, ("mesh.tensor=2", "mesh.pipeline=2"))):
            other = self.tuned(f"tagger-{name}", ranks, *keys, *mesh)
            for a, b in zip(bagpipe_test.metrics(tuned), bagpipe_test.metrics(other), strict=True):
                self.assertLessEqual(abs(a["loss"] - b["loss"]), 0 if name == "data" else 5e-3)
        self.assertEqual(read_json(tuned, "task.json")["labels"], sorted([f"{a}-{b}" for a in "BI" for b in KINDS] + ["O"]))
        summary = self.scored("tags-score", tuned, corpus="tags-valid.h5")
        rows = self.predictions("tags-score")
        self.assertEqual([(row["document"], row["doc_id"].split(":")[0], row["word"], row["label"]) for row in rows],
                         [(str(d), "tags-valid.conll", str(w), tag) for d, sentence in enumerate(valid) for w, (_, tag) in enumerate(sentence)])
        self.assertGreater(summary["task"]["f1"]["value"], 0.6)
        found = {key: self.entities(rows, key) for key in ("label", "prediction")}
        right = len(found["label"] & found["prediction"])
        self.assertAlmostEqual(summary["task"]["precision"]["value"], right / len(found["prediction"]), 9)
        self.assertAlmostEqual(summary["task"]["recall"]["value"], right / len(found["label"]), 9)
        last = bagpipe_test.metrics(tuned)[-1]
        self.assertAlmostEqual(summary["nll_nats"] / len(rows), last["valid_loss"], 5)
        self.assertAlmostEqual(summary["task"]["accuracy"]["value"], last["valid_accuracy"], 9)
        self.assertAlmostEqual(summary["task"]["f1"]["value"], last["valid_f1"], 9)
        for name in ("data", "mesh"):
            self.assertAlmostEqual(last["valid_f1"], bagpipe_test.metrics(self.at(f"tagger-{name}"))[-1]["valid_f1"], 9 if name == "data" else 1)
        self.assertEqual(sum(map(sum, summary["task"]["confusion"])), len(rows))
        for name, ranks, mesh in (("tags-2", 2, ()), ("tags-mesh", 4, ("mesh.tensor=2", "mesh.pipeline=2"))):
            other = self.scored(name, tuned, ranks, *mesh, corpus="tags-valid.h5")
            self.assertAlmostEqual(other["nll_nats"], summary["nll_nats"], 3)
        for file in ("summary.json", "predictions.csv"):
            self.assertEqual(self.bytes_of("tags-score", file), self.bytes_of("tags-2", file))
        both = self.scored("tags-both", self.ensemble("tags-pair", tuned, tuned), corpus="tags-valid.h5")
        self.assertAlmostEqual(both["nll_nats"], summary["nll_nats"], 4)
        self.assertLess(both["task"]["mutual_information"], 1e-6)
        bare = self.conll("tags-bare", [[(word, "") for word, _ in words] for words in valid], "--no-tags")
        self.same_without_labels("tags-bare-score", tuned, "tags-bare.h5", "tags-score")
        self.same_without_labels("tags-bare-both", self.at("tags-pair/ensemble.json"), "tags-bare.h5", "tags-both")
        self.assert_error(self.finetune("tags-untold", 0, *keys, f"corpus.train={bare}"), 65, "[task.one_class]")
        self.conll("tags-long", [[("the", "O")] * 30, [("the", "O")]])
        result = self.score("tags-cut", tuned, corpus="tags-long.h5")
        self.assertIn("the end of each is cut", result.out)
        cut = read_json(self.at("tags-cut"), "score", "summary.json")
        self.assertEqual((cut["words"], cut["words_cut"], cut["documents_cut"]), (22 + 1, 8, 1))

    def test_tags_that_do_not_fit_are_refused(self):
        latin = pathlib.Path(self.at("latin.conll"))
        latin.write_bytes("ship\tB-m\u00e9r\nthe\tO\n".encode("latin-1"))
        made = run([bagpipe_test.program("bagpipe-data"), "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "conll", "--out", self.at("latin.h5"), str(latin)])
        if made.status == 0:
            self.assert_error(self.finetune("latin", 0, *MODEL, "task.kind=tags", f"corpus.train={self.at('latin.h5')}", "corpus.valid="), 65, "[task.bad_label]")
        valid, alike, strange = (self.conll(*case) for case in (
            ("few", self.sentences(3, 1)), ("alike", [[("ship", "O"), ("the", "O")]]), ("strange", [[("ship", "B-moon"), ("the", "O")]])))
        keys = [*MODEL, "task.kind=tags", f"corpus.train={valid}", "train.steps=1", "corpus.valid="]
        tuned = self.tuned("small-tagger", 0, *keys)
        self.assert_error(self.score("strange-score", tuned, corpus="strange.h5"), 65, "[task.unknown_tag]", "document 0 (strange.conll:1)", "B-moon")
        for name, key, word in (("valid", f"corpus.valid={strange}", "[task.unknown_tag]"), ("untagged", f"corpus.train={self.at('train.h5')}", "[corpus.no_tags]"),
                                ("alike", f"corpus.train={alike}", "[task.one_class]")):
            self.assert_error(self.finetune(f"tags-{name}", 0, *keys, key), 65, word)
        self.assert_error(self.finetune("tags-label", 0, *keys, "task.label=topic"), 78, "[task.unused_key]", "at task.label")
        labels = self.write("tags.txt", "".join(f"{tag}\n" for tag in ("B-moon", "O", *(f"{a}-{b}" for b in KINDS for a in "BI"))))
        listed = self.tuned("tags-listed", 0, *keys, f"task.labels={labels}", f"corpus.valid={strange}")
        figures = self.scored("tags-listed-score", listed, corpus="strange.h5")["task"]
        self.assertEqual((figures["labels"][:2], numpy.array(figures["confusion"]).sum(1).tolist()[:2]), (["B-moon", "O"], [1, 1]))
        self.assert_error(self.finetune("tags-other", 0, *keys, f"corpus.train={strange}", f"model.init={tuned}"), 65, "[task.other_task]")

    def check_padding(self):
        """A short context has the same figures alone as beside a long one, whose padding has no probability."""
        text = {"is_impossible": False, "question": "what is on the sea"}
        paragraphs = [{"context": context, "qas": [{"id": name, **text, "answers": [{"text": "Ship", "answer_start": context.index("Ship")}]}]}
                      for name, context in (("short", "the Ship of"), ("long", "the town of the Ship is on a road to the town of it"))]
        for name, count in (("alone", 1), ("group", 2)):
            self.write(f"{name}.json", json.dumps({"version": "v2.0", "data": [{"title": name, "paragraphs": paragraphs[:count]}]}))
            self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "squad", "--out", self.at(f"{name}.h5"),
                       self.at(f"{name}.json")])
            self.scored(f"padding-{name}", self.at("spans-both/ensemble.json"), corpus=f"{name}.h5")
        alone, group = (self.predictions(f"padding-{name}") for name in ("alone", "group"))
        self.assertEqual((len(alone), len(group), alone[0]["prediction"]), (1, 2, group[0]["prediction"]))
        for figure in ("probability", "entropy", "nll"):
            if figure in alone[0]:
                self.assertAlmostEqual(float(alone[0][figure]), float(group[0][figure]), 6, figure)
        self.assertLess(float(alone[0]["entropy"]), 2 * math.log(10))  # of eight words and what frames them

    def test_answers_in_long_contexts(self):
        train, valid = self.squad("spans", 200, 1), self.squad("spans-valid", 30, 2)
        keys = [*MODEL, "task.kind=spans", f"corpus.train={self.at('spans.h5')}", f"corpus.valid={self.at('spans-valid.h5')}", "task.stride=8",
                "optimizer.lr=1e-2", "train.batch=16", "train.steps=100", "train.log_every=50"]
        tuned = self.tuned("answerer", 0, *keys)
        for name, ranks, mesh in (("data", 2, ()), ("mesh", 4, ("mesh.tensor=2", "mesh.pipeline=2"))):
            for a, b in zip(bagpipe_test.metrics(tuned), bagpipe_test.metrics(self.tuned(f"answerer-{name}", ranks, *keys, *mesh)), strict=True):
                self.assertLessEqual(abs(a["loss"] - b["loss"]), 0 if name == "data" else 5e-3)
        self.assertIn(f"{len(train)} questions", pathlib.Path(tuned, "log.txt").read_text(encoding="utf-8"))
        task = read_json(tuned, "task.json")
        self.assertEqual((task["documents"], task["answers_lost"], task["unanswered"]), (len(train), 0, True))
        self.assertGreater(task["windows"], 1.5 * len(train))
        summary = self.scored("spans-score", tuned, corpus="spans-valid.h5")
        said = read_json(self.at("spans-score"), "score", "predictions.json")
        self.assertEqual(list(said), list(valid))
        right = [self.normal(said[key]) == self.normal(valid[key]) for key in valid]
        self.assertAlmostEqual(summary["task"]["exact_match"]["value"], sum(right) / len(right), 9)
        self.assertGreater(sum(right) / len(right), 0.8)
        self.assertTrue(any(said[key] == "" == valid[key] for key in valid))
        self.assertEqual((summary["documents"], len(self.predictions("spans-score"))), (len(valid), len(valid)))
        for key, row in zip(valid, self.predictions("spans-score"), strict=True):
            self.assertEqual((row["doc_id"], row["label"], row["prediction"]), (key, valid[key], said[key]))
        wrong = {row["doc_id"]: row for row, is_right in zip(self.predictions("spans-score"), right) if not is_right}
        shown = [row for row in self.page("spans-score").rows if row[0] in valid]
        self.assertEqual([row[-1] for row in shown], [f"{p:.3g}" for p in sorted((float(row["probability"]) for row in wrong.values()), reverse=True)[:10]])
        for key, question, answer, prediction, _ in shown:
            self.assertEqual((question, answer, prediction), ("what is on the sea", valid[key] or "(none)", said[key] or "(none)"))
        self.scored("spans-2", tuned, 2, corpus="spans-valid.h5")
        for file in ("summary.json", "predictions.csv", "predictions.json"):
            self.assertEqual(self.bytes_of("spans-score", file), self.bytes_of("spans-2", file))
        other = self.scored("spans-mesh", tuned, 4, "mesh.tensor=2", "mesh.pipeline=2", corpus="spans-valid.h5")
        self.assertEqual(other["task"]["exact_match"], summary["task"]["exact_match"])
        self.must(["bagpipe-data", "export", tuned, "--out", self.at("spans-folder")])
        self.must(["bagpipe-data", "import", self.at("spans-folder"), "--out", self.at("spans-back")])
        back = self.scored("spans-back-score", self.at("spans-back"), corpus="spans-valid.h5")  # with the default stride, and always an answer
        self.assertEqual(back["documents"], len(valid))
        self.scored("spans-back-8", self.at("spans-back"), 0, "task.stride=8", corpus="spans-valid.h5")
        pairs = list(zip(self.predictions("spans-score"), self.predictions("spans-back-8"), strict=True))
        self.assertEqual([a for a, _ in pairs if a["prediction"]], [b for a, b in pairs if a["prediction"]])
        self.scored("spans-short", tuned, 0, "task.answer_tokens=1", "task.stride=4", corpus="spans-valid.h5")
        self.assertLessEqual({len(row["prediction"].split()) for row in self.predictions("spans-short")}, {0, 1})
        self.assertNotIn("", read_json(self.at("spans-back-score"), "score", "predictions.json").values())
        self.assert_error(self.score("spans-other", tuned, corpus="train.h5"), 65, "[corpus.no_spans]")
        both = self.scored("spans-pair", self.ensemble("spans-both", tuned, tuned), corpus="spans-valid.h5")
        self.assertEqual((both["task"]["mutual_information"], both["task"]["f1"]), (0, summary["task"]["f1"]))
        for a, b in zip(self.predictions("spans-score"), self.predictions("spans-pair"), strict=True):
            self.assertEqual(a, {key: b[key] for key in a})
            self.assertLess(float(b["entropy"]), 2 * math.log(24))
        self.check_padding()
        self.ensemble("spans-three", tuned, *(self.tuned(f"answerer-{k}", 0, *keys, f"run.seed={k}", "train.steps=20") for k in (2, 3)))
        self.assertGreater(self.scored("spans-three-score", self.at("spans-three/ensemble.json"), corpus="spans-valid.h5")["task"]["mutual_information"], 0)
        self.same_on_meshes("spans-three", "spans-valid.h5", "summary.json", "predictions.csv", "predictions.json")
        asked = read_json(self.at("spans-valid.json"))
        for paragraph in asked["data"][0]["paragraphs"]:
            for question in paragraph["qas"]:
                del question["answers"], question["is_impossible"]
        self.write("spans-bare.json", json.dumps(asked))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "squad", "--out", self.at("spans-bare.h5"),
                   self.at("spans-bare.json")])
        self.same_without_labels("spans-bare-score", tuned, "spans-bare.h5", "spans-score")
        self.same_without_labels("spans-bare-pair", self.at("spans-both/ensemble.json"), "spans-bare.h5", "spans-pair")
        self.assertEqual(self.bytes_of("spans-bare-score", "predictions.json"), self.bytes_of("spans-score", "predictions.json"))
        self.assert_error(self.finetune("spans-untold", 0, *keys, f"corpus.valid={self.at('spans-bare.h5')}"), 65, "[corpus.no_answers]")
        self.assert_error(self.finetune("spans-bucket", 0, *keys, "corpus.bucket=4"), 78, "[corpus.bucket_unused]")
        self.assert_error(self.finetune("spans-train", 0, *keys, f"corpus.train={self.at('train.h5')}"), 65, "[corpus.no_spans]")

    def check_resumption(self, name, model, corpus, *files):
        """A job that is killed after some units computes the missing ones, on any number of data ranks, to the bytes of one that was left alone."""
        self.scored(f"{name}-whole", model, corpus=corpus)
        parts = pathlib.Path(self.at(name), "score", "parts")
        killed = self.score(name, model, corpus=corpus, fault="work.unit_done:2=kill")
        self.assertEqual(killed.status, -signal.SIGKILL, str(killed))
        units = int(re.search(r"in (\d+) work units", killed.out)[1])
        self.assertGreater(units, 4)
        second = self.score(name, model, 3, "mesh.coordinator=dedicated", corpus=corpus, fault="work.unit_done:1@1=kill,work.unit_done:1+@2=delay5")
        self.assertIn(f"going on: 2 of {units} work units are done", second.out)
        self.assertNotEqual(second.status, 0, str(second))
        self.assertGreaterEqual(len(list(parts.iterdir())), 2)
        left = units - 3  # rank 2 has written one at most before it was killed too
        last = self.score(name, model, corpus=corpus, fault=f"work.unit_done:{left + 1}=kill")
        self.assertEqual(last.status, 0, str(last))
        self.assertRegex(last.out, rf"going on: [34] of {units} work units are done")
        for file in files:
            self.assertEqual(self.bytes_of(f"{name}-whole", file), self.bytes_of(name, file))
        self.assertFalse(parts.exists())

    def test_a_killed_job_goes_on_with_what_is_missing(self):
        self.corpus("many", self.texts("train") * 2)
        one, two = (self.tuned(f"resumed-{seed}", 0, *MODEL, "train.steps=4", f"run.seed={seed}") for seed in (1, 2))
        self.check_resumption("goes-on", one, "many.h5", "summary.json", "predictions.csv")
        self.check_resumption("pair-goes-on", self.ensemble("resumed-pair", one, two), "many.h5", "summary.json", "predictions.csv")
        self.conll("many-tags", self.sentences(160, 5))
        self.squad("many-spans", 120, 6)
        keys = [*MODEL, "corpus.valid=", "train.steps=2"]
        tagger = self.tuned("resumed-tagger", 0, *keys, "task.kind=tags", f"corpus.train={self.at('many-tags.h5')}")
        self.check_resumption("tags-go-on", tagger, "many-tags.h5", "summary.json", "predictions.csv")
        reader = self.tuned("resumed-reader", 0, *keys, "task.kind=spans", "task.stride=8", f"corpus.train={self.at('many-spans.h5')}")
        self.check_resumption("spans-go-on", reader, "many-spans.h5", "summary.json", "predictions.csv", "predictions.json")
        self.check_other_mesh(one)

    def check_other_mesh(self, model):
        """Tensor ranks change bits: what was done without them is not used."""
        self.assertEqual(self.score("other-mesh", model, corpus="many.h5", fault="work.unit_done:2=kill").status, -signal.SIGKILL)
        result = self.score("other-mesh", model, 2, "mesh.tensor=2", corpus="many.h5")
        self.assertEqual(result.status, 0, str(result))
        self.assertNotIn("going on: ", result.out)
        self.assertIn("[parts.unusable]", result.err)
        self.scored("tensor-mesh", model, 2, "mesh.tensor=2", corpus="many.h5")
        self.assertEqual(self.bytes_of("other-mesh", "predictions.csv"), self.bytes_of("tensor-mesh", "predictions.csv"))

    def test_stopped_by_a_signal_it_says_75_and_goes_on(self):
        self.corpus("slow", self.texts("train") * 2)
        model = self.tuned("halted-model", 0, *MODEL, "train.steps=2")
        self.scored("unhalted", model, corpus="slow.h5")
        command = [bagpipe_test.program("bagpipe"), "score", f"run.dir={self.at('halted')}", f"score.model={model}", f"score.corpus={self.at('slow.h5')}",
                   self.at("empty.ini")]
        job = bagpipe_test.Background(command, 2, env={"BP_FAULT": "work.unit_done:1+=delay0.5"})
        self.addCleanup(job.end)
        parts = pathlib.Path(self.at("halted"), "score", "parts")
        bagpipe_test.JobTest.until(self, lambda: parts.exists() and any(part.stat().st_size > 128 for part in parts.iterdir()), job)
        job.send_signal(signal.SIGUSR1)
        job.wait(bagpipe_test.TIMEOUT)
        self.assert_stopped(job.result(), " of 10 work units")
        result = self.score("halted", model, corpus="slow.h5")
        self.assertEqual((result.status, "going on: " in result.out), (0, True), str(result))
        for file in ("summary.json", "predictions.csv"):
            self.assertEqual(self.bytes_of("unhalted", file), self.bytes_of("halted", file))

    @staticmethod
    def normal(text):
        """SQuAD's normalize_answer."""
        text = "".join(c for c in text.lower() if c not in string.punctuation)
        return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())

    def test_what_has_no_place_here_is_refused(self):
        tuned = self.tuned("plain", 0, *MODEL, "train.steps=1")
        self.corpus("moons", [{"text": "the ship", "topic": topic} for topic in ("sea", "moon")])
        self.assert_error(self.score("unknown", tuned, corpus="moons.h5"), 65, "[task.unknown_class]", "document 1 (moons.jsonl:2)", "moon", "sea, town, wood")
        for key in ("score.tokens", "score.states"):
            for model in (tuned, self.ensemble(f"with-{key}", tuned, tuned)):
                self.assert_error(self.score("tokens", model, 0, f"{key}=yes"), 78, "[task.unused_key]", key, "head of a task, classes")
        for key in ("task.stride=8", "task.answer_tokens=2"):
            self.assert_error(self.score("spanless", tuned, 0, key), 78, "[task.unused_key]", key.split("=")[0])
        self.corpus("capital", [{"text": "the ship", "Topic": "sea"}])
        self.assert_error(self.score("capital", tuned, corpus="capital.h5"), 65, "[corpus.no_column]", "topic", "Topic")
        self.assert_error(self.score("untagged", self.tuned("tagless", 0, *MODEL, "task.kind=tags", "train.steps=1", "corpus.valid=",
                                                            f"corpus.train={self.conll('two', self.sentences(2, 1))}")), 65, "[corpus.no_tags]")
        self.scored("plain-score", tuned)
        compared = run([bagpipe_test.program("bagpipe-data"), "compare", self.at("plain-score"), self.at("plain-score")])
        self.assert_error(compared, 65, "[scores.of_task]")
        self.write("prompts.txt", "the ship\n")
        written = run([bagpipe_test.program("bagpipe"), "generate", self.at("empty.ini"), f"run.dir={self.at('written')}", f"generate.model={tuned}",
                       f"generate.prompts={self.at('prompts.txt')}"])
        self.assert_error(written, 78, "[generate.of_task]", "classes")
        other = self.tuned("other-task", 0, *MODEL, "task.kind=regression", "task.label=length", "train.steps=1")
        self.assert_error(self.score("mixed", self.ensemble("mixed", tuned, other)), 65, "[ensemble.unlike_members]")
        ends = self.tuned("ends", 0, *test_finetune.GPT, "train.steps=1")  # reads no cls and no sep
        for name, *members in (("ends-last", tuned, ends), ("ends-first", ends, tuned)):
            path = self.ensemble(name, *members)
            for ranks in (0, 2):
                self.assert_error(self.score(name + "-score", path, ranks), 65, "[ensemble.unlike_members]", "cls and sep", "an end")

    def test_columns_of_tasks_that_a_conversion_leaves_out_are_named(self):
        with h5py.File(self.at("foreign.h5"), "w") as file:
            file["tokens"], file["doc_start"], file["tags"] = numpy.arange(6), numpy.array([0, 3, 6]), numpy.zeros(6, numpy.uint32)
            file["segment_start"], file["doc_segments"] = numpy.array([0, 3]), numpy.array([0, 1, 2])
            file.attrs["vocab_size"] = 10
        made = run([bagpipe_test.program("bagpipe-data"), "corpus", "--format", "hdf5", "--out", self.at("native.h5"), self.at("foreign.h5")])
        self.assertEqual(made.status, 0, str(made))
        self.assert_warning(made, "[corpus.left_out]", "/segment_start, /tags")

    def test_a_damaged_newest_step_leaves_the_one_before(self):
        tuned = self.tuned("damaged", 0, *MODEL, "train.steps=2", "checkpoint.every=1")
        newest = bagpipe_test.steps(tuned)[-1]
        manifest = pathlib.Path(tuned, "checkpoints", newest, "manifest.json")
        os.chmod(manifest, 0o644)
        manifest.write_bytes(manifest.read_bytes()[:100])
        self.assertEqual(self.scored("damaged-score", tuned)["model"]["step"], 1)


if __name__ == "__main__":
    bagpipe_test.main()
