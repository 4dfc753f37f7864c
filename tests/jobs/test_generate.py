"""Generation by whole jobs: files, strategies, meshes, kills, ensembles."""
import html
import json
import math
import os
import re
import signal

import bagpipe_test
from bagpipe_test import program, run
from generate_test import GenerateTest


class Generate(GenerateTest):

    # ---- files ----

    def test_lines_are_whole_and_in_order_of_prompts(self):
        lines = self.made("greedy")
        self.assertEqual([line["index"] for line in lines], list(range(self.PROMPTS)))
        self.assertEqual([line["prompt"] for line in lines], self.prompts)
        for line in lines:
            self.assertEqual(list(line), ["index", "prompt", "text", "tokens", "logprob", "logprobs", "finish", "perplexity", "least_probability",
                                          "mean_entropy"])
            self.assertEqual(len(line["tokens"]), len(line["logprobs"]))
            self.assertAlmostEqual(line["logprob"], math.fsum(line["logprobs"]), delta=1e-9)
            self.assertTrue(all(value <= 0 for value in line["logprobs"]))
            self.assertEqual(line["finish"], "length" if len(line["tokens"]) == 10 else "eod")
        summary = json.loads(self.data("greedy", "summary.json"))
        self.assertEqual((summary["prompts"], summary["texts"]), (self.PROMPTS, self.PROMPTS))
        self.assertEqual(summary["tokens"], sum(len(line["tokens"]) for line in lines))
        self.assertAlmostEqual(summary["nll_nats"], -math.fsum(line["logprob"] for line in lines), delta=1e-6)
        self.assertNotIn(self.folder, json.dumps(summary))
        self.assertEqual(sorted(os.listdir(os.path.join(self.at("greedy"), "generate"))), ["index.html", "outputs.jsonl", "summary.json"])
        page = self.data("greedy", "index.html").decode()
        self.assertEqual(sum(len(ids.split()) for ids in re.findall(r'title="tokens? ([\d ]+),', page)), summary["tokens"])
        again = self.result("greedy")  # it is finished: nothing is touched
        self.assertEqual(again.status, 0, str(again))
        self.assertIn("the run is finished", again.out)

    def test_texts_are_measured_against_references(self):
        lines = self.made("bare", 0, "generate.samples=2", "generate.strategy=sample")
        texts = [line["text"].split() for line in lines[::2]]
        references = self.write("references.txt", "".join(" ".join(words[1:] if k % 2 else words) + "\n" for k, words in enumerate(texts)))
        for name, ranks in (("measured", 0), ("measured-2", 2)):
            self.made(name, ranks, "generate.samples=2", "generate.strategy=sample", f"generate.references={references}")
        bare, measured = (list(map(json.loads, self.data(name, "outputs.jsonl").splitlines())) for name in ("bare", "measured"))
        self.assertEqual(self.data("measured", "outputs.jsonl"), self.data("measured-2", "outputs.jsonl"))
        self.assertEqual(self.data("measured", "summary.json"), self.data("measured-2", "summary.json"))
        self.assertEqual([{key: value for key, value in line.items() if key not in ("reference", "sentence_bleu", "sentence_chrf2")} for line in measured], bare)
        self.assertEqual([line["reference"] for line in measured[::2]], [" ".join(words[1:] if k % 2 else words) for k, words in enumerate(texts)])
        summary = json.loads(self.data("measured", "summary.json"))
        figures = summary["figures"]
        for kind in ("bleu", "chrf"):
            told = run([program("bagpipe-data"), "metrics", "--kind", kind, "--reference", references, "--hypothesis",
                        os.path.join(self.at("measured"), "generate", "outputs.jsonl")])
            self.assertEqual(told.status, 0, str(told))
            for figure, want in json.loads(told.out)["figures"].items():
                self.assertEqual(figures[figure]["value"], want["value"], figure)
            if kind == "bleu":
                self.assertEqual(summary["coverage"], json.loads(told.out)["coverage"])  # of the first text of each prompt, the surest first
                self.assertAlmostEqual(sum(line["sentence_bleu"] for line in measured[::2]) / len(measured[::2]), figures["sentence_bleu"]["value"], places=9)
        pair = [program("bagpipe-data"), "metrics", "--kind", "bleu", "--reference", references, "--hypothesis", self.at("measured"), "--against"]
        inside = os.path.join(self.at("bare"), "generate", "outputs.jsonl")
        by_folder, by_file = run([*pair, self.at("bare")]), run([*pair, inside])
        self.assertEqual((by_folder.status, by_folder.out), (0, by_file.out), str(by_folder))
        self.assert_error(run([program("bagpipe-data"), "compare", self.at("measured"), self.at("bare")]), 66, "[scores.missing]", "metrics --hypothesis A --against B")
        page = self.data("measured", "index.html").decode()
        self.assertGreater(figures["bleu"]["value"], 20)
        self.assertIn(f"BLEU {figures['bleu']['value']:.2f}", page)
        self.assertIn(f"chrF2 {figures['chrf2']['value']:.2f}", page)
        self.assertEqual(re.findall(r'<p class="prompt">Reference: (.*?) <span class="range">\(BLEU [\d.]+, chrF2 [\d.]+ of this text\)</span></p>', page)[::2],
                         [html.escape(" ".join(words[1:] if k % 2 else words), quote=False).replace('"', "&quot;") for k, words in enumerate(texts)])
        self.assertTrue(all(words in page for words in ("ended at the limit of tokens", "ended with the end of the document")))
        self.assertIn("<h2>The surest texts</h2>", page)
        self.assertIn("by log-probability a token", page)  # the curve's
        self.assertNotIn("BLEU", self.data("bare", "index.html").decode())
        self.assertNotIn("The surest texts", self.data("bare", "index.html").decode())
        sources = self.write("sources.txt", "".join(line["prompt"] + "\n" for line in bare[::2]))
        self.assert_warning(self.result("sources", 0, f"generate.references={sources}"), "[generate.prompts_as_references]", f"{len(bare) // 2} of {len(bare) // 2} references")
        self.write("references.txt", "one\ntwo\n")
        for ranks in (0, 2):
            self.assert_error(self.result("few", ranks, f"generate.references={references}"), 65, "[generate.bad_references]", "references.txt")

    def test_the_page_lists_the_least_sure_texts(self):
        """The 10 of the largest perplexity, of an ensemble also of mutual information a token; a tool of tables says what outputs.jsonl is."""
        self.must(["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={self.at('stranger')}", "run.seed=5", "train.steps=5"])
        self.ensemble("unsure", "model", "stranger")
        for name, keys in (("page_alone", []), ("page_together", [f"generate.model={self.at('unsure')}"])):
            lines = self.made(name, 0, *keys)
            lists = re.findall(r"<h3>By ([a-z ]+)</h3>\n<table>\n(.*?)</table>", self.data(name, "index.html").decode(), re.S)
            orders = {"perplexity": lambda line: -line["perplexity"],
                      "mutual information": lambda line: -line["sequence_mutual_information"] / len(line["tokens"])}
            self.assertEqual([by for by, _ in lists], list(orders)[:1 + len(keys)])
            for by, table in lists:
                shown = [int(index) for index in re.findall(r"<tr><td><a href=\"#text-\d+\">(\d+)</a></td>", table)]
                self.assertEqual(shown, [line["index"] for line in sorted(lines, key=orders[by])][:10])
                self.assertIn(html.escape(lines[shown[0]]["text"], quote=False).split()[0], table)
        lines = self.made("page_thrice", 0, "generate.samples=3")  # greedy: a prompt has one text three times
        (table,) = re.findall(r"<h3>By perplexity</h3>\n<table>\n(.*?)</table>", self.data("page_thrice", "index.html").decode(), re.S)
        shown = [int(index) for index in re.findall(r"<tr><td><a href=\"#text-\d+\">(\d+)</a></td>", table)]
        self.assertEqual(shown, [line["index"] for line in sorted(lines[::3], key=lambda line: -line["perplexity"])][:10])
        self.assert_error(run([program("bagpipe-data"), "table", os.path.join(self.at("page_alone"), "generate", "outputs.jsonl")]), 65, "[h5.not_hdf5]", "JSON Lines")

    def test_few_texts_of_many_prompts_are_warned_of(self):
        """A model that has hardly learned begins all texts alike."""
        prompts = self.write("many.txt", "".join(f"{self.prompts[k % 10]} {self.prompts[k // 10]}\n" for k in range(80)))
        for tokens, name, strategy in ((1, "alike", "greedy"), (10, "alike_long", "greedy"), (10, "unlike", "sample")):
            made = self.result(name, 0, f"generate.prompts={prompts}", f"generate.tokens={tokens}", f"generate.strategy={strategy}")
            distinct = len({tuple(text) for text in self.texts(name)})
            self.assertEqual(made.status, 0, str(made))
            self.assertEqual(json.loads(self.data(name, "summary.json"))["distinct"], distinct)
            alike = name != "unlike"
            self.assertEqual((20 if tokens == 1 else 5) * distinct <= 80, alike, str(made))  # texts of a few tokens may be answers
            self.assertIn(f"80 texts, {distinct} distinct, of ", made.out)
            self.assert_warning(made, "[generate.same_texts]", *(["80 distinct prompts", f" {distinct} distinct text"] if alike else []), times=int(alike))

    def test_log_probabilities_are_those_of_scoring(self):
        """The texts as a corpus of one document each, scored: the same log-probabilities."""
        try:
            import h5py
        except ImportError:
            self.skipTest("there is no h5py")
        lines = [line for line in self.made("judged", 0, "generate.end=-1", "generate.repetition_penalty=1.4") if line["text"].strip()]
        self.write("whole.jsonl", "".join(json.dumps({"text": line["prompt"] + line["text"]}) + "\n" for line in lines))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--out", self.at("whole.h5"),
                   self.at("whole.jsonl")])
        self.must(["bagpipe", "score", self.at("generate.ini"), f"run.dir={self.at('scored')}", f"score.model={self.at('model')}",
                   f"score.corpus={self.at('whole.h5')}", "score.tokens=yes", "score.prefix=none"])
        self.ensemble("judges", "model", "model")  # whose scores have entropies
        self.must(["bagpipe", "score", self.at("generate.ini"), f"run.dir={self.at('scored_twice')}", f"score.model={self.at('judges')}",
                   f"score.corpus={self.at('whole.h5')}", "score.tokens=yes", "score.prefix=none"])
        with h5py.File(os.path.join(self.at("scored_twice"), "score", "tokens.h5")) as file:
            entropy = file["total_entropy"][:].astype(float)
        compared = 0
        with h5py.File(os.path.join(self.at("scored"), "score", "tokens.h5")) as file:
            for k, line in enumerate(lines):
                first, end = int(file["doc_start"][k]), int(file["doc_start"][k + 1]) - 1  # without the end-of-document token
                ids, values = list(file["tokens"][first:end]), file["logprob"][first:end]
                if ids[-len(line["tokens"]):] != line["tokens"]:
                    continue  # encoded anew the text has other tokens
                compared += 1
                # figures of the whole text are those of the same text, scored
                forced = values[-len(line["tokens"]):].astype(float)
                self.assertAlmostEqual(line["perplexity"], math.exp(-forced.mean()), delta=1e-4 * line["perplexity"])
                self.assertAlmostEqual(line["least_probability"], math.exp(forced.min()), delta=2e-5)
                self.assertAlmostEqual(line["mean_entropy"], entropy[end - len(line["tokens"]):end].mean(), delta=1e-4)
                for mine, other in zip(line["logprobs"], values[-len(line["tokens"]):]):
                    self.assertAlmostEqual(mine, float(other), delta=2e-5)
        self.assertGreater(compared, 0)

    # ---- strategies ----

    def test_no_temperature_is_greedy(self):
        self.made("plain")
        self.made("cold", 0, "generate.strategy=sample", "generate.temperature=0")
        self.assertEqual(self.data("plain", "outputs.jsonl"), self.data("cold", "outputs.jsonl"))

    def test_samples_are_as_many_and_keyed_by_the_seed(self):
        drawn = ("generate.strategy=sample", "generate.samples=3")
        lines = self.made("drawn", 0, *drawn)
        self.assertEqual([line["index"] for line in lines], [k for k in range(self.PROMPTS) for _ in range(3)])
        self.assertGreater(len({tuple(line["tokens"]) for line in lines}), 2 * self.PROMPTS)
        self.made("again", 0, *drawn)
        self.assertEqual(self.data("drawn", "outputs.jsonl"), self.data("again", "outputs.jsonl"))
        self.made("other", 0, *drawn, "run.seed=2")
        self.assertNotEqual(self.texts("drawn"), self.texts("other"))
        self.made("best", 0, *drawn, "generate.top_k=1")
        self.made("likely", 0, *drawn, "generate.top_p=0")
        self.made("plain3", 0, "generate.samples=3")
        for name in ("best", "likely"):
            self.assertEqual(self.texts(name), self.texts("plain3"))

    def test_beams_are_ranked_and_better_than_greedy(self):
        greedy = self.made("by_greedy", 0, "generate.end=-1")
        beams = self.made("by_beams", 0, "generate.strategy=beam", "generate.samples=4", "generate.end=-1")
        best = beams[::4]
        for k in range(self.PROMPTS):
            of_prompt = [line["logprob"] for line in beams[4 * k:4 * k + 4]]
            self.assertEqual(of_prompt, sorted(of_prompt, reverse=True))
        self.assertGreaterEqual(math.fsum(line["logprob"] for line in best), math.fsum(line["logprob"] for line in greedy))

    def test_nothing_is_repeated_where_that_is_asked(self):
        for line in self.made("varied", 0, "generate.no_repeat_ngram=1", "generate.tokens=20"):
            self.assertEqual(len(set(line["tokens"])), len(line["tokens"]))

    def test_text_ends_before_a_stop_text(self):
        whole = self.made("unstopped", 0, "generate.end=-1")
        stop = next(line["text"][3:5] for line in whole if len(line["text"]) > 8 and "," not in line["text"] and "\\" not in line["text"])
        lines, stopped = self.made("stopped", 0, "generate.end=-1", "generate.stop=" + stop.replace(" ", "\\x20")), 0
        for before, line in zip(whole, lines):
            if line["finish"] == "stop":
                stopped += 1
                self.assertEqual(line["text"], before["text"][:before["text"].index(stop)])
                self.assertEqual(line["tokens"], before["tokens"][:len(line["tokens"])])
            else:
                self.assertNotIn(stop, line["text"])
                self.assertEqual(line, before)
        self.assertGreater(stopped, 0)

    def test_the_end_token_is_the_last_one_and_no_text(self):
        whole = self.made("endless", 0, "generate.end=-1")
        end = whole[0]["tokens"][4]
        for before, line in zip(whole, self.made("ended", 0, f"generate.end={end}")):
            if end in before["tokens"]:
                at = before["tokens"].index(end)
                self.assertEqual((line["finish"], line["tokens"]), ("eod", before["tokens"][:at + 1]))
                self.assertTrue(before["text"].startswith(line["text"]))
            else:
                self.assertEqual(line["finish"], "length")

    def test_a_text_ends_where_the_context_does(self):
        self.write("long.jsonl", json.dumps({"tokens": list(range(30))}) + "\n" + json.dumps({"tokens": [5] * 32}) + "\n")
        result = self.result("short", 0, f"generate.prompts={self.at('long.jsonl')}", "generate.end=-1")
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[generate.cut_short]", "2 of 2", "generate.tokens = 10")
        self.assertEqual([(len(line["tokens"]), line["finish"]) for line in self.outputs("short")], [(3, "length"), (1, "length")])

    # ---- prompts ----

    def test_prompts_of_all_forms_are_the_same(self):
        self.made("lines")
        self.write("objects.jsonl", "".join(json.dumps({"prompt": prompt}) + "\n" for prompt in self.prompts))
        self.write("objects", "".join(json.dumps({"prompt": prompt, "more": 1}) + "\r\n" for prompt in self.prompts))
        self.write("template.txt", "{first} {rest}\n")
        self.write("fields.jsonl", "".join(json.dumps(dict(zip(("first", "rest"), prompt.split(" ", 1)))) + "\n" for prompt in self.prompts))
        for name, *keys in (("objects.jsonl",), ("objects",), ("fields.jsonl", f"generate.template={self.at('template.txt')}")):
            self.made("by_" + name, 0, f"generate.prompts={self.at(name)}", *keys)
            self.assertEqual(self.data("lines", "outputs.jsonl"), self.data("by_" + name, "outputs.jsonl"), name)

    def test_hostile_texts_come_through_every_reader(self):
        """U+0000, escapes, quotes, ends of lines, nothing at all: what is written is read again."""
        words = self.prompts[0]
        texts = [words + "\0", "\0" + words, "\0", words + "\x1b[31m" + words, words + ' "\\" </script>&', words + "\u2028\x85\x7f\x01", words + "\r\n" + words,
                 words + "\n", "\ufeff" + words, words + "\U0001f600", words + "\t", "\\u0000"]
        self.write("hostile", "".join(json.dumps({"prompt": text}) + "\n" for text in texts))  # of no name: the first line says what it is
        for name, keys in (("nul", []), ("nul2", ["generate.strategy=sample", "generate.temperature=4", "generate.samples=3"])):
            lines = self.made(name, 0, f"generate.prompts={self.at('hostile')}", *keys)
            self.assertEqual([line["prompt"] for line in lines if line["index"] < len(texts)][::len(lines) // len(texts)], texts)
            page = self.data(name, "index.html").decode()
            self.assertFalse(set(page) & set("\0\x1b\x01\x7f"), "control characters in the page")
            self.assertIn("\\x1B[31m", page)
        # a file of texts, some of which models rarely write, as generate writes them
        line = {"index": 0, "prompt": "p", "text": "", "tokens": [1], "logprob": -1.0, "logprobs": [-1.0], "finish": "length"}
        texts += ["", "a" * 100000]
        path = self.write("outputs.jsonl", "".join(json.dumps(dict(line, index=k, text=text)) + "\n" for k, text in enumerate(texts)))
        flat = self.write("flat.txt", "".join(text.replace("\r", " ").replace("\n", " ") + "\n" for text in texts))
        for kind in ("bleu", "chrf", "rouge", "meteor", "spans"):
            figures = []
            for hypothesis in (path, flat):
                result = run([program("bagpipe-data"), "metrics", "--kind", kind, "--reference", flat, "--hypothesis", hypothesis])
                self.assertEqual(result.status, 0, str(result))
                figures.append(json.loads(result.out)["figures"])
            self.assertEqual(*figures, kind)
            if kind == "spans":
                self.assertEqual(figures[0]["exact_match"]["value"], 1)
        result = run([program("bagpipe-data"), "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--out", self.at("hostile.h5"), path])
        self.assertEqual(result.status, 0, str(result))

    # ---- meshes ----

    def test_bytes_are_equal_at_any_number_of_data_ranks(self):
        keys = ("generate.strategy=sample", "generate.samples=2", "generate.batch=4", "generate.repetition_penalty=1.2")
        self.made("alone", 0, *keys)
        for name, ranks, *mesh in (("two", 2), ("four", 4), ("apart", 3, "mesh.coordinator=dedicated")):
            self.made(name, ranks, *keys, *mesh)
            for file in ("outputs.jsonl", "summary.json"):
                self.assertEqual(self.data("alone", file), self.data(name, file), f"{file} of {name}")

    def test_text_is_equal_on_all_meshes(self):
        for strategy in ("beam", "sample"):
            keys = (f"generate.strategy={strategy}", "generate.samples=2", "generate.batch=12")
            alone = self.made("mesh_" + strategy, 0, *keys)
            for pipeline in (1, 2):
                for data in (1, 2):
                    for tensor in (1, 2):
                        name, ranks = f"{strategy}_{pipeline}{data}{tensor}", pipeline * data * tensor
                        if ranks == 1:
                            continue
                        lines = self.made(name, ranks, f"mesh.pipeline={pipeline}", f"mesh.data={data}", f"mesh.tensor={tensor}", *keys)
                        for one, other in zip(alone, lines):
                            self.assertEqual((one["index"], one["tokens"], one["text"]), (other["index"], other["tokens"], other["text"]), name)
                            self.assertAlmostEqual(one["logprob"], other["logprob"], delta=1e-3)

    # ---- kills ----

    KEYS = ("generate.batch=1", "generate.tokens=24", "generate.end=-1")

    def parts(self, name):
        folder = os.path.join(self.at(name), "generate", "parts")
        return sum(os.path.getsize(os.path.join(folder, file)) for file in os.listdir(folder)) if os.path.isdir(folder) else 0

    def test_killed_it_goes_on(self):
        self.made("whole", 0, *self.KEYS)
        job = self.background(self.command("killed", *self.KEYS), env={"BP_FAULT": "work.unit_done:4=kill"})
        job.wait(bagpipe_test.TIMEOUT)
        self.assertEqual(job.returncode, -signal.SIGKILL, job.communicate())
        self.assertGreater(self.parts("killed"), 0)
        result = self.result("killed", 2, *self.KEYS)
        self.assertEqual(result.status, 0, str(result))
        self.assertIn("going on: 4 of 11 work units are done", result.out)
        for file in ("outputs.jsonl", "summary.json"):
            self.assertEqual(self.data("whole", file), self.data("killed", file))
        self.assertFalse(os.path.exists(os.path.join(self.at("killed"), "generate", "parts")))

    def test_stopped_by_a_signal_it_says_75_and_goes_on(self):
        keys = ("generate.batch=1", "generate.tokens=20", "generate.strategy=beam", "generate.beams=16", "generate.end=-1")
        self.made("unhalted", 0, *keys)
        job = self.background(self.command("halted", *keys), env={"BP_FAULT": "work.unit_done:3+=delay0.3"})
        self.until(lambda: self.parts("halted") > 300, job)
        job.send_signal(signal.SIGTERM)
        job.wait(bagpipe_test.TIMEOUT)
        self.assert_stopped(job.result(), " of 11 ")
        self.assertEqual(self.result("halted", 0, *keys).status, 0)
        self.assertEqual(self.data("unhalted", "outputs.jsonl"), self.data("halted", "outputs.jsonl"))

    def test_another_rule_or_model_in_the_folder_is_78(self):
        self.made("kept")
        for keys in (("generate.tokens=11",), ("generate.strategy=beam",), ("run.seed=3",)):
            result = self.result("kept", 0, *keys)
            self.assert_error(result, 78, "[run.other_keys]", keys[0].split("=")[0])

    # ---- ensembles ----

    def ensemble(self, name, *members):
        os.makedirs(self.at(name), exist_ok=True)
        self.write(f"{name}/ensemble.json", json.dumps({"members": [{"name": f"m{k}", "path": self.at(path)} for k, path in enumerate(members)]}))
        return f"generate.model={self.at(name)}"

    def test_an_ensemble_of_a_model_with_itself_is_the_model(self):
        alone = self.made("one_model")
        for ranks, *mesh in ((0,), (2, "mesh.members=2"), (2, "mesh.tensor=2"), (2, "mesh.pipeline=2")):
            name = "itself" + "".join(mesh)
            lines = self.made(name, ranks, self.ensemble("twice", "model", "model"), *mesh)
            for one, other in zip(alone, lines):
                self.assertEqual(one["tokens"], other["tokens"])
                self.assertNotIn("entropy", one)
                self.assertAlmostEqual(one["mean_entropy"], sum(other["entropy"]) / len(other["tokens"]), delta=1e-4)
                self.assertAlmostEqual(one["perplexity"], other["perplexity"], delta=1e-3 * one["perplexity"])
                self.assertAlmostEqual(one["logprob"], other["logprob"], delta=1e-4)
                self.assertEqual(list(other)[-2:], ["entropy", "mutual_information"])
                self.assertEqual(len(other["entropy"]), len(other["tokens"]))
                self.assertTrue(all(abs(value) < 1e-6 for value in other["mutual_information"]))
                self.assertTrue(all(0 < value < math.log(self.VOCABULARY) for value in other["entropy"]))
        self.assertIn("by-m", self.data("itself", "index.html").decode())

    def test_members_that_disagree_are_reported(self):
        self.trained("other_model", 0, "run.seed=2", "train.steps=10")
        model = self.ensemble("two_models", "model", "other_model")
        lines = self.made("mixed", 0, model)
        self.assertTrue(all(value > 1e-4 for line in lines for value in line["mutual_information"]))
        for line in lines:
            self.assertAlmostEqual(line["sequence_mutual_information"], sum(line["mutual_information"]), delta=1e-6)
            self.assertAlmostEqual(line["mean_entropy"], sum(line["entropy"]) / len(line["tokens"]), delta=1e-6)
        self.check_information([line for line in self.made("endless_mixture", 0, model, "generate.end=-1") if line["text"].strip()])
        beams = self.made("mixed_beams", 0, model, "generate.strategy=beam")
        self.assertEqual(len(beams), self.PROMPTS)
        for ranks, *mesh in ((2, "mesh.members=2"), (4, "mesh.members=2", "mesh.tensor=2")):
            other = self.made("mixed" + "".join(mesh), ranks, model, *mesh)
            for one, two in zip(lines, other):
                self.assertEqual(one["tokens"], two["tokens"])
                for a, b in zip(one["mutual_information"] + one["entropy"], two["mutual_information"] + two["entropy"]):
                    self.assertAlmostEqual(a, b, delta=1e-4)

    def check_information(self, lines):
        """Of a whole text: what the members disagree about where the same text is scored."""
        try:
            import h5py
        except ImportError:
            return
        self.write("mixed.jsonl", "".join(json.dumps({"text": line["prompt"] + line["text"]}) + "\n" for line in lines))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--out", self.at("mixed.h5"),
                   self.at("mixed.jsonl")])
        self.must(["bagpipe", "score", self.at("generate.ini"), f"run.dir={self.at('mixed_scored')}", f"score.model={self.at('two_models')}",
                   f"score.corpus={self.at('mixed.h5')}", "score.tokens=yes", "score.prefix=none"])
        compared = 0
        with h5py.File(os.path.join(self.at("mixed_scored"), "score", "tokens.h5")) as file:
            for k, line in enumerate(lines):
                end, count = int(file["doc_start"][k + 1]) - 1, len(line["tokens"])
                if list(file["tokens"][end - count:end]) != line["tokens"]:
                    continue
                compared += 1
                self.assertAlmostEqual(line["sequence_mutual_information"], float(file["mutual_information"][end - count:end].sum()), delta=1e-4)
                self.assertAlmostEqual(line["mean_entropy"], float(file["total_entropy"][end - count:end].mean()), delta=1e-4)
        self.assertGreater(compared, 0)

    # ---- plan, status ----

    def test_plan_tells_memory_of_keys_and_values_and_time(self):
        result = self.result("planned", 0, "--plan", "generate.batch=64")
        self.assertEqual(result.status, 0, str(result))
        self.assertRegex(result.out, r"of it [\d.]+ MiB for keys and values of 1 group of 11 sequences of up to \d+ positions")
        self.assertRegex(result.out, r"time: about .* a work unit")
        self.assertFalse(os.path.exists(self.at("planned")))
        result = self.result("planned", 0, "--plan", "--ranks", "4", "mesh.pipeline=2")
        self.assertEqual(result.status, 0, str(result))
        self.assertIn("mesh: pipeline 2 x data 2 x tensor 1", result.out)

    def test_memory_that_does_not_suffice_is_said_before_loading(self):
        result = self.result("crowded", 0, "run.memory=1MiB")
        self.assert_error(result, 71, "[memory.over_limit]", "run.memory")
        self.assertFalse(os.path.exists(self.at("crowded")))

    def test_memory_that_another_mesh_would_do_with_names_it(self):
        """Prompts of standard input are not known before they are read: they count as many, and as long as the context."""
        keys = ("--plan", "--ranks", "2", "generate.batch=16384", "generate.prompts=-")
        named = self.result("crowded", 0, *keys[:-1])
        result = self.piped(*keys)
        self.assertEqual((named.status, result.status), (0, 0), str(named) + str(result))
        of_file, value = (self.mebibytes(one.out) for one in (named, result))
        self.assertLess(of_file, value / 2)
        limit = f"run.memory={int(value * 0.75)}MiB"
        result = self.piped(*keys, limit)
        self.assert_error(result, 71, "[memory.over_limit]")
        remedy = re.search(r"(mesh\.[a-z]+=\d)", result.err)
        self.assertIsNotNone(remedy, str(result))
        result = self.piped(*keys, limit, remedy[1])
        self.assertEqual(result.status, 0, str(result))

    def piped(self, *keys):
        return run(["sh", "-c", f'exec "$@" < {self.at("prompts.txt")}', "sh"] + self.command("crowded", *keys))

    @staticmethod
    def mebibytes(out):
        value, unit = re.search(r"memory: 2 ranks take about ([\d.]+) (MiB|GiB)", out).groups()
        return float(value) * (1024 if unit == "GiB" else 1)

    def test_status_tells_where_the_texts_are(self):
        self.made("reported")
        result = run([program("bagpipe"), "status", self.at("reported")])
        self.assertEqual(result.status, 0, str(result))
        self.assertIn("finished", result.out)
        self.assertIn(os.path.join(self.at("reported"), "generate"), result.out)


if __name__ == "__main__":
    bagpipe_test.main()
