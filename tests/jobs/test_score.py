"""Scoring with real models: figures that numpy recomputes, the same bytes on every mesh, kills, converted corpora."""
import glob
import json
import math
import os
import random
import signal
import time

import bagpipe_test
from bagpipe_test import SCORES, Background, JobTest, ScoreFiles, kill_all, program, run

try:
    import h5py
    import numpy
except ImportError:
    h5py = None


class Score(ScoreFiles, JobTest):
    """A model of context 32 trained for 20 steps, a corpus of lines, and one of labelled documents."""

    @classmethod
    def setUpClass(cls):
        if h5py is None:
            raise bagpipe_test.unittest.SkipTest("there is no h5py")
        super().setUpClass()
        cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.at('model')}"])
        draw = random.Random(5)
        with open(cls.at("valid.txt"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        with open(cls.at("labelled.jsonl"), "w", encoding="utf-8") as file:
            for k in range(60):
                text = "\n".join(lines[3 * k:3 * k + draw.randrange(4)])  # some are empty
                file.write(json.dumps({"id": f"d{k}", "text": text, "genre": draw.choice(["news", "étude", "fiction"])}) + "\n")
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "jsonl", "--label", "genre",
                  "--out", cls.at("labelled.h5"), cls.at("labelled.jsonl")])
        with open(cls.at("train.txt"), encoding="utf-8") as file:
            cls.write("long.txt", file.read(90_000))
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--out", cls.at("long.h5"), cls.at("long.txt")])
        cls.write("score.ini", f"[score]\nmodel = {cls.at('model')}\ntokens = yes\n[math]\nprecision = f32\nthreads = 1\n")

    def command(self, name, corpus, *keys):
        return [program("bagpipe"), "score", self.at("score.ini"), f"run.dir={self.at(name)}", f"score.corpus={corpus}"] + list(keys)

    def corpora(self):
        return f"{self.at('valid.h5')},{self.at('labelled.h5')}"

    def scored(self, name, ranks=0, *keys, corpus=None):
        result = run(self.command(name, corpus or self.corpora(), *keys), ranks)
        self.assertEqual(result.status, 0, str(result))
        return self.summary(name)

    # ---- figures ----

    def figures(self, logprobs, counts, chosen, has_end):
        """The figures of some documents, from the log-probabilities of their tokens."""
        scored = [x[~numpy.isnan(x)].astype(numpy.float64) for x in (logprobs[k] for k in chosen)]
        x = -numpy.concatenate(scored + [numpy.zeros(0)])
        n, nll = len(x), math.fsum(x)
        whole = all(not numpy.isnan(logprobs[k][:-1]).any() for k in chosen)
        size, words = (sum(int(counts[name][k]) for k in chosen) for name in ("bytes", "words"))
        out = {"documents": len(chosen), "tokens": n, "nll_nats": nll, "perplexity": math.exp(nll / n),
               "bytes": size if whole else None, "words": words if whole else None}
        variance = math.fsum(x * x) / n - (nll / n) ** 2
        out["perplexity_stderr"] = math.sqrt(variance / (n - 1)) * math.exp(nll / n)
        out["bits_per_byte"] = nll / math.log(2) / size if whole else None
        out["byte_perplexity"] = math.exp(nll / size) if whole else None
        out["word_perplexity"] = math.exp(nll / words) if whole else None
        out["words_split"] = sum(int(counts["words_split"][k]) for k in chosen) if whole else None
        return out

    def assert_figures(self, got, want):
        for key, value in want.items():
            if isinstance(value, float):
                self.assertAlmostEqual(got[key] / value, 1, delta=1e-9, msg=key)
            else:
                self.assertEqual(got[key], value, key)

    def check_summary(self, name, has_end):
        """Every figure again, by numpy, from tokens.h5 and the corpora."""
        logprobs, groups, at = [], {"genre": {}}, 0
        counts = {"bytes": [], "words": [], "words_split": []}
        corpora = {}
        with h5py.File(os.path.join(self.at(name), "score", "tokens.h5")) as tokens:
            values = tokens["logprob"][:]
            starts = tokens["corpus_start"][:]
        for k, corpus in enumerate(("valid", "labelled")):
            with h5py.File(self.at(corpus + ".h5")) as file:
                doc_start = file["doc_start"][:].astype(numpy.int64) + int(starts[k])
                first = len(logprobs)
                logprobs += [values[a:b] for a, b in zip(doc_start[:-1], doc_start[1:])]
                corpora[corpus] = list(range(first, len(logprobs)))
                for key in counts:
                    counts[key] += list(file["doc_" + key][:])
                if "labels" in file:
                    names = [v.decode() for v in file["label_names/genre"][:]]
                    for d, code in enumerate(file["labels/genre"][:]):
                        groups["genre"].setdefault(names[code], []).append(first + d)
        summary = self.summary(name)
        for x in logprobs:  # the last token of a document is its end-of-document token
            self.assertEqual(not math.isnan(x[-1]), has_end)
        self.assert_figures(summary, self.figures(logprobs, counts, list(range(len(logprobs))), has_end))
        for corpus, chosen in corpora.items():
            self.assert_figures(summary["corpora"][corpus], self.figures(logprobs, counts, chosen, has_end))
        of_corpora = summary["corpora"].values()
        self.assertEqual(summary["macro"]["corpora"], len(of_corpora))
        self.assertAlmostEqual(summary["macro"]["nll"], numpy.mean([one["nll_nats"] / one["tokens"] for one in of_corpora]), 9)
        if all(one["bits_per_byte"] is not None for one in of_corpora):
            self.assertAlmostEqual(summary["macro"]["bits_per_byte"], numpy.mean([one["bits_per_byte"] for one in of_corpora]), 9)
        else:
            self.assertIsNone(summary["macro"]["bits_per_byte"])
        self.assertEqual(set(summary["labels"]["genre"]), set(groups["genre"]))
        for value, chosen in groups["genre"].items():
            self.assert_figures(summary["labels"]["genre"][value], self.figures(logprobs, counts, chosen, has_end))
        return logprobs

    def check_documents(self, name, logprobs):
        with h5py.File(os.path.join(self.at(name), "score", "documents.h5")) as file:
            for k, x in enumerate(logprobs):
                scored = x[~numpy.isnan(x)].astype(numpy.float64)
                self.assertAlmostEqual(file["nll"][k], -math.fsum(scored), delta=1e-9)
                self.assertEqual(file["tokens"][k], len(scored))
            with h5py.File(self.at("labelled.h5")) as corpus:
                first = int(file["corpus_start"][1])
                self.assertEqual(list(file["doc_id"][first:]), list(corpus["doc_id"][:]))
                numpy.testing.assert_array_equal(file["labels/genre"][first:], corpus["labels/genre"][:])
                self.assertEqual(list(file["label_names/genre"][:]), list(corpus["label_names/genre"][:]))

    def test_figures_are_what_numpy_makes_of_the_tokens(self):
        self.scored("rolling")
        self.check_documents("rolling", self.check_summary("rolling", False))
        self.scored("ends", 0, "score.end=yes", "score.stride=5")
        self.check_documents("ends", self.check_summary("ends", True))
        self.scored("stride", 0, "score.convention=stride")
        self.check_summary("stride", False)
        half = self.scored("half", 0, "score.convention=half")
        self.check_summary("half", False)
        self.assertIsNone(half["bits_per_byte"])

    def test_a_column_of_the_table_has_one_format(self):
        result = run(self.command("table", self.corpora()))
        self.assertEqual(result.status, 0, str(result))
        heading, *rows = [line for line in result.out.splitlines()[1:-1] if "not scored" not in line]
        self.assertEqual(heading.split("  ")[-1].strip(), "word ppl")
        self.assertEqual({len(row) for row in rows}, {len(heading)})
        self.assertEqual([row.split("  ")[0] for row in rows[:3]], ["all", "corpus valid", "corpus labelled"])
        for cells in zip(*(row.split()[-6:] for row in rows)):
            self.assertEqual(len({len(cell.partition(".")[2]) for cell in cells}), 1, cells)
        summary = self.summary("table")
        self.assertEqual(rows[0].split()[1:3], [str(summary["documents"]), str(summary["tokens"])])
        self.assertAlmostEqual(float(rows[0].split()[3]), summary["perplexity"], 4)

    def test_a_state_carried_in_training_is_warned_of(self):
        """Of short documents, which begin with the zero state; not after a training whose documents did, nor of a long document."""
        with open(self.at("valid.txt"), encoding="utf-8") as file:
            self.write("whole-text.txt", file.read())
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "text", "--out", self.at("whole-text.h5"), self.at("whole-text.txt")])
        for order, corpus, warned in (("auto", "valid.h5", 0), ("stream", "valid.h5", 1), ("stream", "whole-text.h5", 0), ("shuffle", "valid.h5", 1)):
            model = self.at("lstm-" + order)
            if not os.path.exists(model):
                self.must(["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={model}", "model.kind=lstm", "model.heads=", f"corpus.order={order}", "train.steps=2"])
            result = run(self.command(f"{order}-{corpus}", self.at(corpus), f"score.model={model}"))
            self.assertEqual(result.status, 0, str(result))
            self.assert_warning(result, "[score.zero_state]", "corpus.order=documents", times=warned)
            self.assert_warning(result, "[score.other_documents]", "train.h5", times=corpus == "whole-text.h5")  # one document, and lines

    def test_a_model_worse_than_guessing_is_warned_of(self):
        """A training that diverged to a loss that is finite; not of one that has hardly begun."""
        for name, rate, warned in (("begun", "1e-3", 0), ("diverged", "4", 1)):
            trained = self.must(["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={self.at(name)}", "train.steps=12", "optimizer.warmup=0", f"optimizer.lr={rate}"])
            self.assert_warning(trained, "[training.worse_than_guessing]", f"optimizer.lr = {rate};", times=warned)
            self.assert_warning(run(self.command("of-" + name, self.at("valid.h5"), f"score.model={self.at(name)}")), "[score.worse_than_guessing]", times=warned)

    def test_text_of_the_training_is_warned_of(self):
        """The corpus itself, documents of it, and text of another form, whose line breaks no training document had; nothing of other text."""
        with open(self.at("train.txt"), encoding="utf-8") as file:
            lines = [line for line in file.read().splitlines() if len(line.split()) > 7]
        with open(self.at("valid.txt"), encoding="utf-8") as file:
            other = [line for line in file.read().splitlines() if len(line.split()) > 7]
        half = len(lines) // 2
        texts = {"lines": lines[:half], "part": lines[:half // 2], "some": other[:40] + lines[7:9], "few": other[:400] + lines[7:8], "apart": other[:40]}
        for name, of in texts.items():
            self.write(name + ".txt", "\n".join(of) + "\n")
            self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "lines", "--out", self.at(name + ".h5"), self.at(name + ".txt")])
        self.write("joined.jsonl", "".join(json.dumps({"text": "\n".join(other[k:k + 4])}) + "\n" for k in range(0, 40, 4)))
        self.write("rare.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in ["\n".join(other[:2]), *other[2:8]]))  # what is there once is a rare word
        for name in ("joined", "rare"):
            self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--out", self.at(name + ".h5"), self.at(name + ".jsonl")])
        self.must(["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={self.at('of-lines')}", f"corpus.train={self.at('lines.h5')}", "train.steps=2"])
        self.write("of-lines.json", json.dumps({"members": [{"name": "a", "path": self.at("of-lines")}]}))
        says = {"lines": ["is the text that the model was trained on"], "part": [f"{half // 2} of {half // 2} documents, 100 % of the tokens"], "some": ["2 of 42 documents", "document 40"], "few": [], "apart": [], "rare": [], "joined": ["the line break (30 times)"]}
        for name, said in says.items():
            for model, ranks in (("of-lines", 0), ("of-lines.json", 2)):
                result = run(self.command(f"{name}-{ranks}", self.at(name + ".h5"), f"score.model={self.at(model)}"), ranks)
                self.assertEqual(result.status, 0, str(result))
                identifier = "[score.untrained_tokens]" if name == "joined" else "[score.training_text]"
                if said:
                    self.assert_warning(result, identifier, *said)
                self.assertEqual([word for word in ("[score.untrained_tokens]", "[score.training_text]") if word in result.err], [identifier] if said else [], str(result))
                self.assertEqual("training_text" in self.summary(f"{name}-{ranks}"), name in ("lines", "part", "some"))
        self.results_repeat_it()
        many = self.write("many-lines.txt", "".join(f"{text}\n" for text in other[:40] * 10))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "lines", "--out", self.at("many-lines.h5"), many])
        several = run(self.command("several", f"{self.at('many-lines.h5')},{self.at('joined.h5')}", f"score.model={self.at('of-lines')}"))
        self.assert_warning(several, "[score.untrained_tokens]", "of corpus joined,", "(30 times)")  # beside it they are few
        self.must(["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={self.at('tuned')}", f"corpus.train={self.at('lines.h5')}", f"model.init={self.at('of-lines')}", "train.steps=2"])
        tuned = run(self.command("tuned-joined", self.at("joined.h5"), f"score.model={self.at('tuned')}"))
        self.assertNotIn("[score.", tuned.err)  # it may have learned them before
        store = run(self.command("store", self.at("lines.h5"), f"score.model={self.at('of-lines')}", "score.states=yes"))
        self.assertEqual((store.status, "[score." in store.err), (0, False), str(store))  # a datastore is made of the training text
        os.rename(self.at("lines.h5"), self.at("moved.h5"))
        gone = run(self.command("gone", self.at("some.h5"), f"score.model={self.at('of-lines')}"))
        self.assertEqual((gone.status, "[score." in gone.err), (0, False), str(gone))

    def test_passages_of_the_training_and_punctuation_of_another_form_are_warned_of(self):
        """A training text that is one document has the test text within it; commas and full stops are apart from words in one text, and attached in another."""
        lines = {}
        for name in ("train", "valid"):
            with open(self.at(f"{name}.txt"), encoding="utf-8") as file:
                lines[name] = [line.strip().rstrip(".").strip() for line in file if len(line.split()) > 7]
        apart = {name: [" . ".join(of[k:k + 5]) + " ." for k in range(0, len(of) - 5, 5)] for name, of in lines.items()}
        attached = [text.replace(" .", ".").replace(" ,", ",") for text in apart["valid"]]
        texts = {"apart": apart["train"], "whole": [" ".join(apart["train"])], "known": apart["train"][10:20], "fresh": apart["valid"], "attached": attached}
        for name, of in texts.items():
            self.write(f"form-{name}.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in of))
            if name == "apart":
                self.must(["bagpipe-data", "tokenizer", "--kind", "bpe", "--size", "500", "--format", "jsonl", "--out", self.at("form.json"), self.at("form-apart.jsonl")])
            self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("form.json"), "--format", "jsonl", "--out", self.at(f"form-{name}.h5"), self.at(f"form-{name}.jsonl")])
        for name in ("apart", "whole"):
            self.must(["bagpipe", "pretrain", "model.kind=ngram", f"corpus.train={self.at(f'form-{name}.h5')}", f"run.dir={self.at(f'of-{name}')}"])
        for name, model, said in (("known", "whole", ["[score.training_text]", "10 of 10 documents, 100 % of the tokens", "most of their passages"]),
                                  ("fresh", "apart", []), ("attached", "apart", ["[score.other_punctuation]", "'.' is "]), ("fresh", "whole", [])):
            result = run(self.command(f"{name}-by-{model}", self.at(f"form-{name}.h5"), f"score.model={self.at(f'of-{model}')}"))
            self.assertEqual(result.status, 0, str(result))
            if said:
                self.assert_warning(result, *said)
            for identifier in ("[score.training_text]", "[score.other_punctuation]"):
                self.assertEqual(identifier in result.err, identifier in said, str(result))

    def test_labels_with_many_values_have_no_rows(self):
        rows = [{"text": text, "item": str(k // 2), "condition": "ab"[k % 2]} for k, text in enumerate(["the old man left"] * 24)]
        self.write("items.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--label", "item", "--label", "condition", "--out", self.at("items.h5"), self.at("items.jsonl")])
        result = run(self.command("items", self.at("items.h5")))
        self.assertEqual(result.status, 0, str(result))
        self.assertEqual([line.split()[:2] for line in result.out.splitlines() if line.startswith(("item", "condition"))], [["condition", "a"], ["condition", "b"]])
        self.assertIn("no rows of labels with many values: item (12 values); summary.json has them", result.out)
        self.assertEqual(len(self.summary("items")["labels"]["item"]), 12)
        twice = run(self.command("twice", self.at("items.h5"), "score.end=yes", "score.end=no", "score.end=yes"), 2)
        self.assert_warning(twice, "[config.given_twice]", "score.end", "yes, counts")
        self.assertTrue(self.summary("twice")["convention"]["end"])

    def results_repeat_it(self):
        """What score has warned of is in its summary and page, and in comparisons and tables of it."""
        import h5py
        with h5py.File(self.at("some.h5")) as file:
            start = file["doc_start"][:].astype(int)
        known = self.summary("some-0")["training_text"]
        self.assertEqual((known["documents"], known["of"]), (2, 42))
        self.assertAlmostEqual(known["share"], (start[42] - start[40]) / start[42], places=12)
        self.assertEqual(self.summary("lines-0")["training_text"]["share"], 1)
        note = f"2 of 42 documents, {100 * known['share']:.3g} % of the tokens, are in the model's training text"
        with open(os.path.join(self.at("some-0"), "score", "index.html"), encoding="utf-8") as file:
            self.assertIn(note.replace("model's ", ""), file.read())
        said = self.must(["bagpipe-data", "compare", self.at("some-0"), self.at("some-2"), "--json", self.at("known.json")])
        self.assertIn("note: A: " + note, said.out)
        self.assertIn("B: " + note, bagpipe_test.read_json(self.at("known.json"))["remarks"])
        self.assert_warning(self.must(["bagpipe-data", "table", self.at("some-0"), self.at("apart-0")]), "[table.training_text]", note + " of some-0: ")
        self.assertIn(note + " of some-0", self.must(["bagpipe-data", "table", self.at("some-0"), "--form", "latex"]).out.replace("\\%", "%"))
        self.assertNotIn("training text", self.must(["bagpipe-data", "table", self.at("apart-0"), "--form", "text"]).out)

    def test_training_makes_text_more_probable(self):
        bits = self.scored("trained")["bits_per_byte"]
        self.assertLess(bits, 4.5)  # an untrained model of 509 tokens: 9 bits a token of about 1.5 bytes
        self.assertGreater(bits, 1)

    # ---- meshes ----

    def test_bytes_are_equal_at_any_number_of_data_ranks(self):
        self.scored("data1")
        for ranks in (3, 4):
            self.scored(f"data{ranks}", ranks)
            self.assert_same_bytes("data1", f"data{ranks}")
        self.scored("dedicated", 3, "mesh.coordinator=dedicated")
        self.assert_same_bytes("data1", "dedicated")

    def test_tensor_and_pipeline_ranks_agree_to_rounding(self):
        want = self.scored("alone")
        for name, ranks, keys in (("tensor", 2, ["mesh.tensor=2"]), ("both", 4, ["mesh.tensor=2", "mesh.pipeline=2"]),
                                  ("besides", 5, ["mesh.tensor=2", "mesh.data=2"])):
            got = self.scored(name, ranks, *keys)
            self.assertEqual(got["tokens"], want["tokens"])
            self.assertAlmostEqual(got["nll_nats"] / want["nll_nats"], 1, delta=1e-6)
        self.scored("tensor2", 4, "mesh.tensor=2")
        self.assert_same_bytes("tensor", "tensor2")

    # ---- stopping ----

    SLOW = ("score.stride=1", "mesh.data=2")  # of one long document: a window a token

    def kept(self):
        files = glob.glob(os.path.join(self.at("killed"), "score", "parts", "*"))
        return sum(os.path.getsize(file) for file in files if os.path.exists(file))

    def let_live(self, job, draw, until_kept):
        """For a random time, from the start or from when it has kept something: a busy machine comes there later."""
        before, changes = self.kept(), 0
        while until_kept and changes < 3 and job.poll() is None:
            time.sleep(0.002)
            changes += self.kept() > before
            before = self.kept()
        time.sleep(draw.random() * (0.2 if until_kept else 1.5))

    def test_killed_at_any_moment_it_goes_on(self):
        self.scored("whole", 2, *self.SLOW, corpus=self.at("long.h5"))
        draw, kills, went_on = random.Random(3), 0, False
        command = self.command("killed", self.at("long.h5"), *self.SLOW)
        for k in range(10):
            job = Background(command, 2)
            self.let_live(job, draw, k % 2 == 0)
            ended = job.poll() is not None
            if not ended:
                kill_all(job)
            out, _ = job.communicate()
            job.end()
            went_on = went_on or "going on" in str(out)
            if ended:
                break
            kills += 1
        result = run(command, 2)
        went_on = went_on or "going on" in result.out
        self.assertEqual(result.status, 0, str(result))
        self.assertTrue(kills == 0 or went_on, "killed, but nothing was kept")
        print(f"{kills} kills")
        self.assert_same_bytes("whole", "killed")
        self.assertEqual(sorted(os.listdir(os.path.join(self.at("killed"), "score"))), sorted(SCORES + ("index.html",)))

    def test_stopped_by_a_signal_it_says_75_and_goes_on(self):
        self.scored("unstopped", 2, *self.SLOW, corpus=self.at("long.h5"))
        process = self.background(self.command("stopped", self.at("long.h5"), *self.SLOW), 2)
        parts = os.path.join(self.at("stopped"), "score", "parts")
        self.until(lambda: os.path.isdir(parts) and any(os.path.getsize(os.path.join(parts, p)) > 128 for p in os.listdir(parts)), process)
        process.send_signal(signal.SIGUSR1)
        process.wait(bagpipe_test.TIMEOUT)
        self.assert_stopped(process.result())
        result = run(self.command("stopped", self.at("long.h5"), self.SLOW[0], "mesh.data=0", "mesh.micro_batch=2", "mesh.schedule=gpipe"), 2)
        self.assertEqual(result.status, 0, str(result))
        self.assertFalse([line for line in result.err.splitlines() if "[score." not in line], str(result))  # of the text: it is one document with line breaks
        self.assertIn("going on", result.out)
        self.assert_same_bytes("unstopped", "stopped")

    def test_finished_it_exits_0_and_touches_nothing(self):
        self.scored("done")
        before = {file: os.stat(os.path.join(self.at("done"), "score", file)).st_mtime_ns for file in SCORES}
        result = run(self.command("done", self.corpora()))
        self.assertEqual(result.status, 0, str(result))
        self.assertIn("finished", result.out)
        self.assertEqual(before, {file: os.stat(os.path.join(self.at("done"), "score", file)).st_mtime_ns for file in SCORES})

    def test_another_model_or_corpus_in_the_folder_is_78(self):
        self.scored("taken")
        result = run(self.command("taken", self.at("valid.h5")))
        self.assertEqual(result.status, 78, str(result))
        result = run(self.command("taken", self.corpora(), "score.context=8"))
        self.assert_error(result, 78, "[run.other_keys]", "score.context")  # one line: the stride follows it
        result = run(self.command("taken", self.corpora(), "score.stride=3"))
        self.assertEqual(result.status, 78, str(result))

    # ---- converted corpora ----

    def converted(self, name, documents, eod_id=None, vocab_size=300):
        tokens = [token for document in documents for token in document]
        with h5py.File(self.at(name), "w") as file:
            file["tokens"] = numpy.array(tokens, dtype=numpy.int32)
            file["doc_start"] = numpy.cumsum([0] + [len(document) for document in documents]).astype(numpy.uint64)
            file.attrs["vocab_size"] = vocab_size
            if eod_id is not None:
                file.attrs["eod_id"] = eod_id
        return self.convert(name)

    def logprobs(self, name):
        with h5py.File(os.path.join(self.at(name), "score", "tokens.h5")) as file:
            return file["logprob"][:]

    def test_documents_of_all_kinds_of_a_converted_corpus(self):
        documents = [[5, 6, 7], [], [9], list(range(100)), [11, 12]]
        corpus = self.converted("odd.h5", documents)
        summary = self.scored("odd_none", 0, "score.prefix=none", corpus=corpus)
        self.assertEqual((summary["documents"], summary["tokens"]), (5, 2 + 0 + 0 + 99 + 1))
        numpy.testing.assert_array_equal(numpy.isnan(self.logprobs("odd_none")).nonzero()[0], [0, 3, 4, 104])
        self.assertIsNone(summary["bytes"])
        # the model knows an end-of-document token, so it precedes the documents
        summary = self.scored("odd_eod", 0, corpus=corpus)
        self.assertEqual(summary["tokens"], 106)
        self.assertFalse(numpy.isnan(self.logprobs("odd_eod")).any())

    def test_end_of_document_tokens_of_a_converted_corpus_count_where_they_are(self):
        eod = self.VOCABULARY - 1
        corpus = self.converted("mixed.h5", [[1, 2, eod], [3, 4], [eod], []], eod, self.VOCABULARY)
        summary = self.scored("mixed", 0, corpus=corpus)
        self.assertEqual(summary["tokens"], 4)
        numpy.testing.assert_array_equal(numpy.isnan(self.logprobs("mixed")), [False, False, True, False, False, True])
        summary = self.scored("mixed_end", 0, "score.end=yes", corpus=corpus)
        self.assertEqual(summary["tokens"], 4 + 4)  # the token after each document, be it in the file or not
        self.assertFalse(numpy.isnan(self.logprobs("mixed_end")).any())

    def test_a_corpus_with_nothing_in_it(self):
        eod = self.VOCABULARY - 1
        summary = self.scored("hollow", 2, corpus=self.converted("hollow.h5", [[eod], [eod]], eod, self.VOCABULARY))
        self.assertEqual((summary["documents"], summary["tokens"]), (2, 0))
        self.assertIsNone(summary["perplexity"])


if __name__ == "__main__":
    bagpipe_test.main()
