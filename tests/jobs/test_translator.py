"""The way of a translator: pairs, a training that is extended, texts with references, what its card says, an explanation of what it wrote, an export."""
import json
import os
import re
import shutil
import signal
import unittest.mock

import bagpipe_test
import h5py
from bagpipe_test import JobTest, events, metrics, program, read_json, run, state_of

PAIRS = ["model.kind=marian", "model.activation=relu", "corpus.valid=", "train.valid_every=0"]
SENTENCES = 230  # more than the page shows


class Translator(JobTest):
    TEXT_BYTES = 60_000
    VOCABULARY = 400

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(cls.at("train.txt"), encoding="utf-8") as file:
            lines = [line.split() for line in file.read().splitlines() if len(line.split()) > 3][:SENTENCES]
        cls.sources = cls.write("sources.txt", "".join(" ".join(words[:2 + k % 3]) + "\n" for k, words in enumerate(lines)))
        cls.targets = cls.write("targets.txt", "".join(" ".join(words[2 - k % 2::-1]) + "\n" for k, words in enumerate(lines)))
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "pairs", "--out", cls.at("pairs.h5"), cls.sources, cls.targets])
        cls.keys = [f"corpus.train={cls.at('pairs.h5')}", *PAIRS]
        cls.model = cls.at("model")
        for steps in (3, 6):
            cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.model}", *cls.keys, f"train.steps={steps}"])
        for name, model, more in (("written", cls.model, [f"generate.references={cls.targets}"]), ("bare", cls.model, [])):
            cls.must(["bagpipe", "generate", cls.at("small.ini"), f"run.dir={cls.at(name)}", f"generate.model={model}", f"generate.prompts={cls.sources}",
                      "generate.tokens=4", *more])

    def outputs(self, name="written"):
        with open(os.path.join(self.at(name), "generate", "outputs.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def page(self, name):
        with open(os.path.join(self.at(name), "generate", "index.html"), encoding="utf-8") as file:
            return file.read()

    def card(self, *results):
        return self.must(["bagpipe-data", "card", self.model, *results]).out

    def test_tokens_are_counted_without_padding(self):
        """Of an epoch a step: the tokens of both sides, an end after each. Any mesh, and a run that goes on, count the same; one without a count has none."""
        with h5py.File(self.at("pairs.h5")) as file:
            inside = int(file["doc_start"][-1]) - int(file["doc_start"][0])
            per_document = set((file["doc_start"][1:] - file["doc_start"][:-1]).tolist())
        self.assertGreater(len(per_document), 3)
        epoch = [f"train.batch={SENTENCES}", "train.steps=2", "mesh.micro_batch=23"]
        for name, ranks, more in (("epochs", 0, []), ("epochs_of_two", 2, []), ("epochs_by_length", 0, ["corpus.bucket=2"]), ("epochs_apart", 2, ["mesh.coordinator=dedicated"])):
            self.trained(name, ranks, *self.keys, *epoch, *more)
            lines = metrics(self.at(name))
            self.assertEqual([line["tokens"] for line in lines], [32 * SENTENCES, 64 * SENTENCES])
            counted = [line["tokens_without_padding"] for line in lines]
            self.assertEqual(counted[1], 2 * counted[0], name)
            self.assertEqual(counted[0], inside + SENTENCES, name)  # the corpus has an end after a pair, an example one after each side
        straight = metrics(self.trained("straight", 2, *self.keys, "train.steps=6", "train.log_every=4"))
        self.assertEqual(straight[-1]["tokens_without_padding"], metrics(self.model)[-1]["tokens_without_padding"])
        self.assertTrue(all(line["tokens_without_padding"] < line["tokens"] for line in straight))
        self.assertNotIn("tokens_without_padding", metrics(self.trained("windows", 0, "train.steps=1"))[-1])
        self.assertIn(f"{counted[1]:,}", self.plot("epochs_apart"))

    def test_a_stop_between_lines_counts_each_token_once(self):
        """The batch that a stopped start has read and not trained on is the next start's."""
        keys = [*self.keys, "corpus.bucket=2", "train.steps=90", "train.log_every=20"]
        whole = metrics(self.trained("whole", 0, *keys))
        for name in (f"stopped-{k}" for k in range(8)):  # by chance it stops at a line
            process = self.background([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at(name)}", *keys])
            self.until(lambda: self.trains(name), process)
            process.send_signal(signal.SIGUSR1)
            if process.result().status == 75 and state_of(self.at(name))["step"] % 20 != 0:
                break
        self.assertNotEqual(state_of(self.at(name))["step"] % 20, 0)
        self.trained(name, 2, *keys)
        for key in ("step", "tokens_without_padding", "padding"):
            self.assertEqual([line[key] for line in metrics(self.at(name))], [line[key] for line in whole], key)
        self.assertRegex(self.must(["bagpipe-data", "card", self.at(name)]).out, r"\| starts \| 2: it was interrupted, and went on \|")

    def plot(self, name):
        self.must(["bagpipe", "plot", self.at(name), "--out", self.at("plot.html")])
        with open(self.at("plot.html"), encoding="utf-8") as file:
            return file.read()

    def test_a_card_has_tokens_starts_and_translations(self):
        import yaml
        text = self.card(self.at("written"))
        figures = read_json(self.at("written"), "generate", "summary.json")["figures"]
        (result,) = yaml.safe_load(text.split("---\n")[1])["model-index"][0]["results"]
        self.assertEqual((result["task"]["type"], result["dataset"]["name"]), ("text2text-generation", "sources.txt"))
        self.assertEqual([metric["type"] for metric in result["metrics"]], ["bleu", "chrf"])
        for metric, name in zip(result["metrics"], ("bleu", "chrf2")):
            self.assertAlmostEqual(metric["value"], figures[name]["value"], delta=1e-4)
        self.assertRegex(text, r"\| sources\.txt \| [0-9.e-]+ \([0-9.e-]+ to [0-9.e-]+\) \| [0-9.]+ \([0-9.]+ to [0-9.]+\) \|")
        self.assertIn("| starts | 2: it was extended from 3 to 6 steps |", text)
        tokens, parameters = metrics(self.model)[-1]["tokens_without_padding"], read_json(self.model, "run.json")["parameters"]
        self.assertIn(f"| tokens | {tokens:,} |", text)
        self.assertIn(f"{tokens / parameters:.3g} tokens a parameter, counting repetitions.", text)
        self.assert_error(run([program("bagpipe-data"), "card", self.model, self.at("bare")]), 65, "[card.no_references]", "generate.references")
        self.trained("other", 0, *self.keys, "train.steps=1", "run.seed=7")
        self.assert_error(run([program("bagpipe-data"), "card", self.at("other"), self.at("written")]), 65, "[card.other_model]")
        # of an older version, whose lines do not tell
        path = os.path.join(self.at("other"), "metrics.jsonl")
        (line,) = metrics(self.at("other"))
        del line["tokens_without_padding"]
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self.assertIn("| tokens | 256, each example counted as `model.context` |", self.must(["bagpipe-data", "card", self.at("other")]).out)
        self.assertEqual([event["start"] for event in events(self.model, "opened")], [1, 2])

    def test_metrics_of_several_kinds_in_one_call(self):
        command = [program("bagpipe-data"), "metrics", "--reference", self.targets, "--hypothesis", self.at("written")]
        both, alone = run([*command, "--kind", "chrf,bleu"]), [json.loads(run([*command, "--kind", kind]).out) for kind in ("chrf", "bleu")]
        self.assertEqual(json.loads(both.out), dict(zip(("chrf", "bleu"), alone)))
        self.assertEqual(list(json.loads(both.out)), ["chrf", "bleu"])
        short = run([*command, "--kind", "bleu,chrf", "--short"]).out.splitlines()
        self.assertEqual(short[0].split()[0], "bleu")
        self.assertEqual([line.split(" by ")[0] for line in short if "surest" in line], ["bleu of the surest", "chrf2 of the surest"])
        [surest] = [line for line in short if line.startswith("bleu of the surest")]
        curve = alone[1]["coverage"]["logprob"]
        for k, at in ((4, 1), (9, 2), (19, 3)):  # the surest part has its own BLEU, and an interval
            self.assertIn(f"{100 * curve['coverage'][k]:.0f} % {curve['bleu'][k]:.2f}", surest.split(":")[1].split(",")[at])
        self.assertAlmostEqual(curve["bleu"][-1], alone[1]["figures"]["bleu"]["value"], delta=1e-9)
        lines = self.outputs("written")
        with open(self.targets, encoding="utf-8") as file:
            targets = file.read().splitlines()
        sure = sorted(range(len(lines)), key=lambda k: (-lines[k]["logprob"] / max(1, len(lines[k]["logprobs"])), k))[:-(-len(lines) // 2)]
        self.write("sure.ref", "".join(targets[k] + "\n" for k in sure))
        self.write("sure.txt", "".join(re.sub(r"[\r\n]", " ", lines[k]["text"]) + "\n" for k in sure))
        part = json.loads(run([program("bagpipe-data"), "metrics", "--kind", "bleu", "--reference", self.at("sure.ref"), "--hypothesis", self.at("sure.txt")]).out)
        self.assertAlmostEqual(curve["bleu"][9], part["figures"]["bleu"]["value"], delta=1e-9)
        for k in range(20):
            few = -(-len(lines) * (k + 1) // 20) < 10
            self.assertEqual(curve["bleu_low"][k] is None, few)
            self.assertTrue(few or curve["bleu_low"][k] <= curve["bleu_high"][k])
        for kinds in ("bleu,bleu", "bleu,tags", "classes,bleu"):
            self.assert_error(run([*command, "--kind", kinds]), 64, "[metrics.no_list]", kinds)
        for kinds in ("bleu,blue", "bleu,", ""):
            self.assert_error(run([*command, "--kind", kinds]), 64, "[metrics.unknown_kind]")
        swapped = run([program("bagpipe-data"), "metrics", "--kind", "bleu", "--reference", self.at("written"), "--hypothesis", self.targets])
        self.assertEqual(swapped.status, 0, str(swapped))
        self.assert_warning(swapped, "[metrics.written_reference]", self.at("written"))
        shutil.copytree(self.at("written"), self.at("elsewhere"))
        against = [*command, "--kind", "bleu", "--short", "--against", self.at("elsewhere")]
        self.assertNotIn("[metrics.other_prompts]", run(against).err)
        path = os.path.join(self.at("elsewhere"), "generate/summary.json")
        with open(path, encoding="utf-8") as file:
            summary = json.load(file)
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**summary, "prompts_hash": "0" * 64}, file)
        self.assert_warning(run(against), "[metrics.other_prompts]", self.at("elsewhere"))
        self.assert_error(run([*command, "--kind", "bleu", "--out", self.at("curve.svg")]), 64, "[metrics.bad_ending]", "curve.svg")

    def test_what_it_wrote_is_explained(self):
        """As the corpus of its prompts and texts is: the same figures to the bit."""
        self.must(["bagpipe", "generate", self.at("small.ini"), f"run.dir={self.at('drawn')}", f"generate.model={self.model}", f"generate.prompts={self.sources}",
                   "generate.tokens=6", "generate.strategy=sample", "generate.temperature=2"])
        lines = [line for line in self.outputs("drawn") if line["text"].strip()][:5]
        texts = self.write("outputs.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        for side, key in (("s.txt", "prompt"), ("t.txt", "text")):
            self.write(side, "".join(re.sub(r"[\r\n\0]", " ", line[key]) + "\n" for line in lines))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "pairs", "--out", self.at("said.h5"), self.at("s.txt"), self.at("t.txt")])
        for name, ranks, key, words in (("by_texts", 2, f"explain.texts={texts}", "in what generate wrote"),
                                        ("by_corpus", 0, f"explain.corpus={self.at('said.h5')}", "in the corpus's target, not in what the model writes")):
            self.must(["bagpipe", "explain", self.at("small.ini"), f"run.dir={self.at(name)}", f"explain.model={self.model}", key, "explain.methods=saliency"], ranks)
            with open(os.path.join(self.at(name), "explain", "index.html"), encoding="utf-8") as file:
                page = file.read().replace("&#39;", "'")
            self.assertIn(words, page)
            for k, line in enumerate(lines):  # as generate's page and `index` name it
                self.assertEqual(f"prompt {line['index']} (outputs.jsonl:{k + 1})" in page, name == "by_texts")
        with h5py.File(os.path.join(self.at("by_texts"), "explain", "saliency.h5")) as one, h5py.File(os.path.join(self.at("by_corpus"), "explain", "saliency.h5")) as other:
            self.assertEqual(set(one), set(other))
            for name in one:
                if isinstance(one[name], h5py.Dataset) and name != "doc_id":
                    self.assertTrue((one[name][:] == other[name][:]).all(), name)
            self.assertEqual([name.decode() for name in one["doc_id"][:]], [f"outputs.jsonl:{k}" for k in range(1, 6)])
        inside = os.path.join(self.at("drawn"), "generate", "outputs.jsonl")
        stranger = self.at("stranger")
        self.must(["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={stranger}", *self.keys, "run.seed=7", "train.steps=2", "model.start_token=5"])
        for name, model, times in ((self.model, "eod", 1), (stranger, "five", 0)):  # of one the targets begin with the end of texts, as Marian's padding
            self.assert_warning(run([program("bagpipe-data"), "export", name, "--out", self.at("begins-" + model)]), "[export.padding_ends_texts]", times=times)
        for name, model, ranks in (("own", self.model, 0), ("others", stranger, 2)):
            made = run([program("bagpipe"), "explain", self.at("small.ini"), f"run.dir={self.at('by_' + name)}", f"explain.model={model}", f"explain.texts={inside}",
                        "explain.methods=saliency"], ranks)
            self.assertEqual(made.status, 0, str(made))
            self.assert_warning(made, "[explain.other_writer]", *([self.model] if name == "others" else []), times=int(name == "others"))
            with open(os.path.join(self.at("by_" + name), "explain", "index.html"), encoding="utf-8") as file:
                self.assertEqual("the texts were written by another model" in file.read(), name == "others")
        command = [program("bagpipe"), "explain", self.at("small.ini"), f"run.dir={self.at('badly')}", f"explain.model={self.model}", "explain.methods=saliency"]
        self.write("no_pairs.jsonl", json.dumps({"text": "the ship"}) + "\n")
        self.write("none.jsonl", json.dumps({"index": 0, "prompt": "x", "error": "too long"}) + "\n")
        for ranks in (0, 2):
            self.assert_error(run([*command, f"explain.texts={self.at('no_pairs.jsonl')}"], ranks), 65, "[explain.no_pair]", '"prompt"', "line 1")
            self.assert_error(run([*command, f"explain.texts={self.at('none.jsonl')}"], ranks), 65, "[explain.no_text]")
        left = self.write("left.jsonl", json.dumps({"index": 0, "prompt": "x", "error": "too long"}) + "\n" + json.dumps(dict(lines[0], text="")) + "\n" + json.dumps(lines[0]) + "\n")
        os.mkdir(self.at("tmp"))
        with unittest.mock.patch.dict(os.environ, TMPDIR=self.at("tmp")):
            self.assert_warning(run([*command, f"explain.texts={left}"]), "[explain.left_out]", "2 lines")
        self.assertEqual([name for name in os.listdir(self.at("tmp")) if "texts" in name], [])
        with h5py.File(os.path.join(self.at("badly"), "explain", "saliency.h5")) as file:
            self.assertEqual(file["doc_id"][:].tolist(), [b"left.jsonl:3"])  # its line in the file

    def test_least_sure_texts_after_the_first_are_shown(self):
        page, lines = self.page("written"), self.outputs()
        order = sorted(range(len(lines)), key=lambda k: -lines[k]["perplexity"])[:10]
        self.assertEqual([int(k) for k in re.findall(r'<a href="#text-(\d+)"', page)], order)
        shown = [int(k) for k in re.findall(r'<h3 id="text-(\d+)"', page)]
        later = sorted(k for k in order if k >= 200)
        self.assertEqual(shown, [*range(200), *later])
        self.assertEqual(page.count("Least sure texts that come later"), 1 if later else 0)
        (least,) = re.findall(r"darkest token: probability ([0-9.e-]+)", page.split('id="text-0"')[1].split("</p>")[1])
        self.assertAlmostEqual(float(least) / 2.718281828 ** min(lines[0]["logprobs"]), 1, delta=0.06)
        self.assertNotIn("mutual information", page)

    def test_an_exported_folder_is_named_as_its_file_names_it(self):
        self.must(["bagpipe-data", "export", self.model, "--out", self.at("folder")])
        said = self.must(["bagpipe-data", "import", self.at("folder"), "--out", self.at("back")]).out
        with open(os.path.join(self.at("folder"), "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        self.assertIn(f", decoder_start_token_id {config['decoder_start_token_id']},", said)
        self.assertIn(f", activation {config['activation_function']},", said)
        self.assertIn(", scale_embedding yes", said)


if __name__ == "__main__":
    bagpipe_test.main()
