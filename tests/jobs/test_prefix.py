"""What stands before a text and what ends it: roles by the files of a model's folder, score.prefix, generate.prefix, corpus --bos."""
import csv
import glob
import hashlib
import json
import math
import os
import re
import shutil

import bagpipe_test
from bagpipe_test import JobTest, program, run

try:
    import h5py
    import numpy
except ImportError:
    h5py = None

GO, STOP, HALT = 509, 510, 511
NAMES = {GO: "<|go|>", STOP: "<|stop\u2581it|>", HALT: "<|halt|>"}
TEMPLATE = {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": NAMES[GO], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"SpecialToken": {"id": NAMES[GO], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {NAMES[GO]: {"id": NAMES[GO], "ids": [GO], "tokens": [NAMES[GO]]}}}
TEXTS = ["the rain in spain falls mainly on the plain, as they say", "all on the train", "a"]


class Prefix(JobTest):
    @classmethod
    def setUpClass(cls):
        if h5py is None:
            raise bagpipe_test.unittest.SkipTest("there is no h5py")
        super().setUpClass()
        with open(cls.at("tokenizer.json"), encoding="utf-8") as file:
            tokenizer = json.load(file)
        keep = tokenizer["added_tokens"][0]
        tokenizer["added_tokens"] = [dict(keep, id=number, content=name) for number, name in NAMES.items()]
        tokenizer["model"]["vocab"] = {("<|pad|>" if name == keep["content"] else name): number
                                       for name, number in tokenizer["model"]["vocab"].items()}
        cls.tokenizer = tokenizer
        cls.save("bare/tokenizer.json", tokenizer)
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("bare/tokenizer.json"), "--format", "lines", "--out", cls.at("bare.h5"),
                  cls.at("train.txt")])
        cls.write("llama.ini", cls.config().replace(cls.at("train.h5"), cls.at("bare.h5")).replace(f"valid = {cls.at('valid.h5')}\n", ""))
        cls.must(["bagpipe", "pretrain", cls.at("llama.ini"), f"run.dir={cls.at('trained')}", "model.kind=llama"])
        cls.must(["bagpipe-data", "export", cls.at("trained"), "--out", cls.at("plain")])
        cls.write("texts.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
        cls.write("score.ini", "[score]\ntokens = yes\n[math]\nprecision = f32\nthreads = 1\n")

    @classmethod
    def save(cls, name, value):
        os.makedirs(os.path.dirname(cls.at(name)), exist_ok=True)
        with open(cls.at(name), "w", encoding="utf-8") as file:
            json.dump(value, file)

    @classmethod
    def model(cls, name, template=False, ids=None, **files):
        """A folder of the model whose files say this of its roles: config.json the numbers, the others what they hold."""
        shutil.copytree(cls.at("plain"), cls.at(name))
        with open(cls.at(name + "/config.json"), encoding="utf-8") as file:
            config = json.load(file)
        for key in ("bos_token_id", "eos_token_id"):
            config.pop(key)
        cls.save(name + "/config.json", dict(config, **(ids or {})))
        cls.save(name + "/tokenizer.json", dict(cls.tokenizer, **({"post_processor": TEMPLATE if template is True else template} if template else {})))
        for file, value in files.items():
            cls.save(f"{name}/{file}.json", value)
        result = run([program("bagpipe-data"), "import", cls.at(name), "--out", cls.at(name + ".c")])
        assert result.status == 0, str(result)
        return result

    def tuned_on_pairs(self, name, **more):
        """A model of this name, tuned to NAME-written.c: the command, and the loss of scoring <bos> (or not), source, separator, target, end, from the target on."""
        self.model(name, True, {"bos_token_id": GO, "eos_token_id": STOP, **more})
        tokenizer, pairs = self.at(name + "/tokenizer.json"), [("the rain", "in spain"), ("they say", "it falls"), ("a", "plain")]
        for side in (0, 1):
            self.write(f"side{side}.txt", "".join(pair[side] + "\n" for pair in pairs))
        self.must(["bagpipe-data", "corpus", "--tokenizer", tokenizer, "--format", "pairs", "--out", self.at(name + "-pairs.h5"), self.at("side0.txt"), self.at("side1.txt")])
        corpora = f"[corpus]\ntrain = {self.at(name + '-pairs.h5')}\nvalid = {self.at(name + '-pairs.h5')}\n"
        config = self.write(name + ".ini", f"[run]\ndir = {self.at(name + '-written.c')}\n{corpora}[train]\nbatch = 1\n[checkpoint]\nkeep = 1\n"
                            "[math]\nprecision = f32\nthreads = 1\n")
        tune = ["bagpipe", "finetune", config, "task.kind=text", "task.separator==>", f"model.init={self.at(name + '.c')}"]
        self.must([*tune, "train.epochs=2"])

        separator, *ids = self.ids(name, ["=>", *sum(pairs, ())])
        parts = [(source + separator, target + [STOP]) for source, target in zip(ids[::2], ids[1::2])]
        streams = self.documents(name + "-streams", [source + target for source, target in parts])

        def loss(prefix):
            values = self.scored(name + "-scores", name + "-written", streams, "score.prefix=" + prefix)[0]
            return -numpy.concatenate([one[len(source):] for one, (source, _) in zip(values, parts)]).astype(float).mean()

        return tune, loss, [len(source) + len(target) for source, target in parts]

    def test_tuned_texts_turn_by_their_own_length(self):
        """Not by that of the window: one is longer than the original context, others are not."""
        longrope = {"type": "longrope", "short_factor": [1.0, 1.0, 1.0, 1.0], "long_factor": [2.0, 4.0, 8.0, 16.0], "original_max_position_embeddings": 11}
        _, loss, lengths = self.tuned_on_pairs("turner", rope_scaling=longrope)
        self.assertTrue(min(lengths) <= 11 < max(lengths) < 32, lengths)
        self.assertLess(abs(bagpipe_test.metrics(self.at("turner-written.c"))[-1]["valid_loss"] - loss("bos")), 1e-5)

    def test_a_tuned_causal_model_of_texts_begins_them_as_prompts_do(self):
        """Validation's loss of task.kind=text is that of scoring <bos>, source, separator, target, end, from the target on."""
        tune, loss, _ = self.tuned_on_pairs("writer")
        valid = bagpipe_test.metrics(self.at("writer-written.c"))[-1]["valid_loss"]
        self.assertLess(abs(valid - loss("bos")), 1e-5)
        self.assertGreater(abs(valid - loss("none")), 1e-3)
        # what an earlier version began goes on as it was
        step, = glob.glob(self.at("writer-written.c/checkpoints/step-*"))
        with open(step + "/manifest.json", encoding="utf-8") as file:
            text = file.read()
        self.assertIn('"sources_begin": true', text)
        text = re.sub(r',\s*"sources_begin": true', "", text)
        self.write(step + "/manifest.json", text)
        self.write(step + "/manifest.sha256", hashlib.sha256(text.encode()).hexdigest() + "  manifest.json\n")
        self.must([*tune, "train.epochs=3"])
        with open(self.at("writer-written.c/checkpoints/best/manifest.json"), encoding="utf-8") as file:
            self.assertNotIn("sources_begin", file.read())
        self.assertLess(abs(bagpipe_test.metrics(self.at("writer-written.c"))[-1]["valid_loss"] - loss("none")), 1e-5)

    def roles(self, name):
        with open(self.at(name + ".c/manifest.json"), encoding="utf-8") as file:
            state = json.load(file)
        state = state.get("state", state)
        return state["eod_id"], state.get("roles", {}).get("bos", -1), state.get("roles", {}).get("first", -1), state.get("end_ids")

    def corpus(self, name, *more):
        """The texts by the tokenizer of a folder."""
        out = self.at("_".join((name,) + more).replace("--", "") + ".h5")
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at(name + "/tokenizer.json"), "--format", "jsonl", *more, "--out", out,
                   self.at("texts.jsonl")])
        return out

    def ids(self, name, texts=TEXTS):
        """Each text's ids."""
        lists = [[] for _ in texts]
        rows = csv.reader(self.must(["bagpipe-data", "encode", "--tokenizer", self.at(name + "/tokenizer.json"), *texts]).out.splitlines())
        for row in list(rows)[1:]:
            lists[int(row[0]) - 1].append(int(row[1]))
        return lists

    def documents(self, name, lists):
        """A corpus of these ids, as another program writes it."""
        with h5py.File(self.at(name + "_raw.h5"), "w") as file:
            file["tokens"] = numpy.array([token for one in lists for token in one], dtype="uint32")
            file["doc_start"] = numpy.cumsum([0] + [len(one) for one in lists]).astype("int64")
            file.attrs["vocab_size"] = 512
        self.must(["bagpipe-data", "corpus", "--format", "hdf5", "--out", self.at(name + ".h5"), self.at(name + "_raw.h5")])
        return self.at(name + ".h5")

    def scored(self, run_dir, model, corpus, *keys):
        """The log-probabilities of each document's stored tokens, and the summary."""
        shutil.rmtree(self.at(run_dir), ignore_errors=True)
        self.said = self.must(["bagpipe", "score", self.at("score.ini"), f"run.dir={self.at(run_dir)}", f"score.model={self.at(model + '.c')}",
                               f"score.corpus={corpus}", *keys])
        with open(self.at(run_dir + "/score/summary.json"), encoding="utf-8") as file:
            summary = json.load(file)
        with h5py.File(self.at(run_dir + "/score/tokens.h5")) as file:
            starts, values = file["doc_start"][:], file["logprob"][:]
        return [values[a:b] for a, b in zip(starts, starts[1:])], summary

    def near(self, got, want):
        self.assertEqual([len(one) for one in got], [len(one) for one in want])
        for one, other in zip(got, want):
            numpy.testing.assert_allclose(one, other, rtol=0, atol=2e-5)

    def test_roles_are_found_in_order(self):
        said = lambda result: [line for line in result.err.splitlines() if "[tokenizer.roles_disagree]" in line]
        for name, want, template, ids, files in (
                ("by_ids", (STOP, GO, -1, None), False, {"bos_token_id": GO, "eos_token_id": STOP}, {}),
                ("by_template", (-1, GO, GO, None), True, {}, {}),
                ("by_name", (HALT, GO, GO, None), False, {},
                 {"tokenizer_config": {"bos_token": {"content": NAMES[GO]}, "eos_token": NAMES[HALT], "add_bos_token": True,
                                       "model_max_length": 1000000000000000019884624838656}}),  # as transformers writes "none"
                ("by_map", (HALT, GO, -1, None), False, {}, {"special_tokens_map": {"bos_token": NAMES[GO], "eos_token": {"content": NAMES[HALT]}}}),
                ("not_added", (STOP, GO, -1, None), True, {"eos_token_id": [STOP]}, {"tokenizer_config": {"add_bos_token": False}}),
                ("by_list", (STOP, -1, -1, [STOP, HALT]), False, {"eos_token_id": STOP}, {"generation_config": {"eos_token_id": [HALT, STOP]}}),
                ("no_special", (STOP, -1, -1, None), False, {"bos_token_id": 7, "eos_token_id": [9, STOP]}, {})):
            with self.subTest(name):
                self.assertEqual(said(self.model(name, template, ids, **files)), [])
                self.assertEqual(self.roles(name), want)
        begin, end = said(self.model("apart", True, {"bos_token_id": HALT, "eos_token_id": STOP},
                                 tokenizer_config={"bos_token": NAMES[STOP], "eos_token": NAMES[HALT]}))
        for line, *words in ((begin, f"tokenizer_config.json says {STOP} (", f"template of tokenizer.json says {GO} ({NAMES[GO]})",
                              f"config.json says {HALT}"), (end, f"tokenizer_config.json says {HALT}", f"config.json says {STOP}")):
            self.assert_words([line], words, line)
        self.assertEqual(self.roles("apart"), (HALT, STOP, GO, [HALT, STOP]))
        (begin,) = said(self.model("lacking", True, {}, tokenizer_config={"bos_token": "<nowhere>"}))
        self.assert_words([begin], ["tokenizer_config.json says <nowhere>, which is not a token", f"template of tokenizer.json says {GO}"], begin)
        self.assertEqual(self.roles("lacking"), (-1, GO, GO, None))
        (begin,) = said(self.model("written", True, {}, generation_config={"bos_token_id": STOP}))
        self.assert_words([begin], [f"template of tokenizer.json says {GO}", f"generation_config.json says {STOP}"], begin)
        self.assertEqual(self.roles("written"), (-1, GO, GO, None))
        for name, ids, files in (("eos_token_id of config.json", {"eos_token_id": str(STOP)}, {}),
                                 ("bos_token_id of config.json", {"bos_token_id": float(GO)}, {}),
                                 ("eos_token_id of generation_config.json", {}, {"generation_config": {"eos_token_id": [STOP, None, "x"]}}),
                                 ("bos_token of tokenizer_config.json", {}, {"tokenizer_config": {"bos_token": GO}})):
            self.assertIn(f"{name} is not a token, and says nothing of special tokens", self.model("typed by " + name, True, ids, **files).err)
        self.write("apart/tokenizer_config.json", '{"bos_token": ')
        line = self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("apart/tokenizer.json"), "--format", "lines", "--out",
                          self.at("unread.h5"), self.at("valid.txt")]).err
        self.assertIn("tokenizer_config.json is not a JSON object", line)
        self.assertIn("[tokenizer.roles_unread]", line)
        self.must(["bagpipe-data", "export", self.at("by_name.c"), "--out", self.at("again")])
        self.must(["bagpipe-data", "import", self.at("again"), "--out", self.at("again.c")])
        self.assertEqual(self.roles("again"), self.roles("by_name"))
        self.must(["bagpipe-data", "import", self.at("by_list"), "--no-tokenizer", "--out", self.at("bare_list.c")])
        self.assertEqual(self.roles("bare_list"), (STOP, -1, -1, [STOP, HALT]))

    def test_documents_are_scored_behind_the_models_beginning(self):
        self.model("m", True, {"bos_token_id": GO, "eos_token_id": STOP})
        ids, keys = self.ids("m"), ("score.prefix=none",)
        want, _ = self.scored("want", "m", self.documents("by_hand", [[GO] + one for one in ids]), *keys)
        got, summary = self.scored("auto", "m", self.corpus("m"))
        self.assertEqual((summary["convention"]["prefix"], summary["tokens"]), ("bos", sum(map(len, ids))))
        self.assertIsNotNone(summary["bits_per_byte"])
        self.near([one[:-1] for one in got], [one[1:] for one in want])
        for corpus, cut in ((self.corpus("m", "--bos"), -1), (self.at("by_hand.h5"), None)):  # they begin with it: none is added
            twice, summary = self.scored("twice", "m", corpus)
            self.assertEqual(summary["tokens"], sum(map(len, ids)))
            self.near([one[1:cut] for one in twice], [one[1:] for one in want])
            self.assertTrue(all(math.isnan(one[0]) for one in twice))
        _, summary = self.scored("twice", "m", self.corpus("m", "--bos"), "score.convention=stride")
        self.assertEqual(summary["tokens"], sum(map(len, ids)))
        self.assertIsNotNone(summary["bits_per_byte"])  # its own beginning is no text
        behind_end, _ = self.scored("want", "m", self.documents("by_end", [[STOP] + one for one in ids]), *keys)
        got, summary = self.scored("eod", "m", self.corpus("m"), "score.prefix=eod")
        self.assertEqual(summary["convention"]["prefix"], "eod")
        self.near([one[:-1] for one in got], [one[1:] for one in behind_end])
        own, summary = self.scored("eod", "m", self.corpus("m", "--bos"), "score.prefix=eod")  # in the place of its own beginning
        self.assertEqual((summary["convention"]["prefix"], summary["tokens"]), ("eod", sum(map(len, ids))))
        self.assertIsNotNone(summary["bits_per_byte"])
        self.near([one[1:-1] for one in own], [one[:-1] for one in got])
        self.assertTrue(all(math.isnan(one[0]) for one in own))

    def test_each_window_may_begin_so(self):
        self.model("every", True, {"bos_token_id": GO, "eos_token_id": STOP})
        ids, C = self.ids("every"), 8
        whole = [one[:len(one) // C * C] for one in ids]  # full windows alone
        parts = [[GO] + one[k:k + C] for one in whole for k in range(0, len(one), C)]
        self.assertGreater(len(parts), 2)
        want, _ = self.scored("want", "every", self.documents("parts", parts), "score.prefix=none")
        got, summary = self.scored("got", "every", self.documents("whole", [[GO] + one for one in whole if one]), f"score.context={C}",
                                   "score.prefix_every=yes")
        self.assertIs(summary["convention"]["prefix_every"], True)
        numpy.testing.assert_allclose(numpy.concatenate([one[1:] for one in got]), numpy.concatenate([one[1:] for one in want]), rtol=0, atol=2e-5)

    def test_choices_are_encoded_as_pairs(self):
        self.model("pairs", True, {"bos_token_id": GO, "eos_token_id": STOP})
        contexts = ["the rain", "all on \u00a0\n", " ", "the"]
        choices = [[" in"], ["the train", ""], ["a", "the"], ["s" * 200, " plain"]]
        path = self.write("choices.jsonl", "".join(json.dumps({"choices": one, "answer": 0}) + "\n" for one in choices))
        self.write("contexts.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in contexts))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("pairs/tokenizer.json"), "--format", "jsonl", "--out", self.at("contexts.h5"),
                   self.at("contexts.jsonl")])
        self.scored("chosen", "pairs", self.at("contexts.h5"), f"score.candidates={path}")
        self.assert_warning(self.said, "[choices.unscored]", "2 of 7 choices")
        with open(self.at("chosen/score/candidates.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        texts = [context + choice for context, one in zip(contexts, choices) for choice in one]
        ids = self.ids("pairs", texts + [text.rstrip() for text in contexts])
        logprobs = [value for line in lines for value in line["logprobs"]]
        before = [ids[len(texts) + d] for d, one in enumerate(choices) for _ in one]
        rows = [[GO] + b + all_[len(b):] for b, all_ in zip(before, ids)]
        want, _ = self.scored("rows", "pairs", self.documents("rows", [row[-33:] for row in rows]), "score.prefix=none")
        for k, value in enumerate(logprobs):
            if k in (2, 5):  # empty, and longer than the context
                self.assertIsNone(value)
            else:
                self.assertAlmostEqual(value, float(sum(want[k][len(want[k]) - (len(ids[k]) - len(before[k])):])), delta=1e-4)
        self.assertEqual([line["best"] for line in lines][1], 0)
        self.assertEqual(lines[3]["best"], 1)
        begun = self.at("contexts_bos.h5")
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("pairs/tokenizer.json"), "--format", "jsonl", "--bos", "--out", begun, self.at("contexts.jsonl")])
        said = {}
        for prefix in ("auto", "eod"):
            for corpus in (self.at("contexts.h5"), begun):  # what its corpus begins a document with is replaced
                self.scored("chosen", "pairs", corpus, f"score.candidates={path}", f"score.prefix={prefix}")
                with open(self.at("chosen/score/candidates.jsonl"), encoding="utf-8") as file:
                    said.setdefault(prefix, []).append([json.loads(line)["logprobs"] for line in file])
            self.assertEqual(*said[prefix])
        self.assertNotEqual(*(one[0] for one in said.values()))

    def test_texts_begin_and_end_as_the_files_say(self):
        self.model("chat", False, {"eos_token_id": STOP}, generation_config={"eos_token_id": [STOP, HALT]},
                    tokenizer_config={"bos_token": NAMES[GO], "add_bos_token": True})
        ids = self.ids("chat")[1]
        prompts = {"text": json.dumps({"prompt": TEXTS[1]}), "behind": json.dumps({"tokens": [GO] + ids}), "bare": json.dumps({"tokens": ids})}

        def made(name, prompt, *keys):
            shutil.rmtree(self.at(name), ignore_errors=True)
            self.must(["bagpipe", "generate", self.at("small_generate.ini"), f"run.dir={self.at(name)}",
                       f"generate.prompts={self.write(name + '.jsonl', prompts[prompt] + chr(10))}", *keys])
            with open(self.at(name + "/generate/outputs.jsonl"), encoding="utf-8") as file:
                return [json.loads(line) for line in file]
        self.write("small_generate.ini", f"[generate]\nmodel = {self.at('chat.c')}\ntokens = 12\n[math]\nprecision = f32\nthreads = 1\n")
        pick = lambda lines: [(line["tokens"], line["logprobs"]) for line in lines]
        self.assertEqual(pick(made("g1", "text")), pick(made("g2", "behind")))
        self.assertEqual(pick(made("g3", "text", "generate.prefix=none")), pick(made("g4", "bare")))
        self.assertEqual(pick(made("g5", "bare", "generate.prefix=bos")), pick(made("g6", "behind", "generate.prefix=bos")))
        self.assertNotEqual(pick(made("g1", "text")), pick(made("g3", "text", "generate.prefix=none")))
        lines = made("ends", "text", "generate.strategy=sample", "generate.temperature=9", "generate.samples=200")
        last = [line["tokens"][-1] for line in lines if line["finish"] == "eod"]
        self.assertEqual(set(last), {STOP, HALT})
        self.assertFalse(any({STOP, HALT} & set(line["tokens"][:-1]) for line in lines))
        self.assertFalse(any(token in line["text"] for line in lines for token in (NAMES[STOP], NAMES[HALT])))

    def test_several_tokens_before_a_text_are_refused_where_they_count(self):
        pieces = [{"SpecialToken": {"id": NAMES[token], "type_id": 0}} for token in (GO, HALT)] + [{"Sequence": {"id": "A", "type_id": 0}}]
        lists = [{"SpecialToken": {"id": "both", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
        specials = {NAMES[token]: {"id": NAMES[token], "ids": [token], "tokens": [NAMES[token]]} for token in (GO, HALT)}
        both = {NAMES[GO]: {"id": NAMES[GO], "ids": [GO, HALT], "tokens": [NAMES[GO], NAMES[HALT]]}}
        lists[0]["SpecialToken"]["id"] = NAMES[GO]
        for name, single, special in (("two", pieces, specials), ("double", lists, both)):
            self.model(name, {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": special}, {"eos_token_id": STOP})
            self.assertEqual(self.roles(name)[1:3], (GO, GO))
            generate = lambda folder, prompt, *keys: run([
                program("bagpipe"), "generate", self.write("g.ini", "[math]\nprecision = f32\nthreads = 1\n"), f"run.dir={self.at(name + folder)}",
                f"generate.model={self.at(name + '.c')}", "generate.tokens=2", f"generate.prompts={self.write(folder + '.jsonl', json.dumps(prompt))}",
                *keys])
            self.assert_error(generate("text", {"prompt": "the"}), 78, "[tokenizer.several_first]", "2 tokens", "generate.prefix")
            self.assertEqual(generate("bos", {"prompt": "the"}, "generate.prefix=bos").status, 0)
            self.assertEqual(generate("ids", {"tokens": [GO, HALT, 5]}).status, 0)
            corpus = self.corpus(name)
            _, summary = self.scored(name + "scored", name, corpus)  # the harness's prefix is one token
            self.assertEqual(summary["convention"]["prefix"], "bos")
            choices = self.write("few.jsonl", "".join(json.dumps({"choices": [" a", " the"], "answer": 0}) + "\n" for _ in TEXTS))
            score = lambda *keys: run([program("bagpipe"), "score", self.at("score.ini"), f"run.dir={self.at(name + 'choices')}",
                                       f"score.model={self.at(name + '.c')}", f"score.corpus={corpus}", f"score.candidates={choices}", *keys])
            self.assert_error(score(), 78, "[tokenizer.several_first]", "2 tokens", "score.prefix")
            self.assertEqual(score("score.prefix=bos").status, 0)

    def labelled(self, tokenizer, *more):
        """A corpus of texts of two classes."""
        self.write("labelled.jsonl", "".join(json.dumps({"text": f"{text} {k}", "topic": "ab"[k % 2]}) + "\n" for k in range(8) for text in TEXTS))
        out = self.at("_".join((tokenizer, "labelled") + more).replace("--", "") + ".h5")
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at(tokenizer + "/tokenizer.json"), "--format", "jsonl", "--label", "topic", *more,
                   "--out", out, self.at("labelled.jsonl")])
        return out

    def test_heads_of_tasks_read_texts_as_the_tokenizer_begins_them(self):
        for name, template in (("begun", True), ("bare_begun", False)):
            self.model(name, template, {"bos_token_id": GO, "eos_token_id": STOP})
        plain, with_bos = self.labelled("begun"), self.labelled("begun", "--bos")
        self.write("tune.ini", "[task]\nkind = classes\nlabel = topic\n[train]\nbatch = 4\nlog_every = 1\n[math]\nprecision = f32\nthreads = 1\n")

        def tuned(name, model, corpus, steps=4):
            self.must(["bagpipe", "finetune", self.at("tune.ini"), f"run.dir={self.at(name)}", f"model.init={self.at(model + '.c')}",
                       f"corpus.train={corpus}", f"corpus.valid={corpus}", f"train.steps={steps}"])
            return [line["loss"] for line in bagpipe_test.metrics(self.at(name))], bagpipe_test.state_of(self.at(name))["model"]

        def nll(name, model, corpus):
            self.must(["bagpipe", "score", self.write("s.ini", "[math]\nprecision = f32\nthreads = 1\n"), f"run.dir={self.at(name)}",
                       f"score.model={self.at(model)}", f"score.corpus={corpus}"])
            return bagpipe_test.read_json(self.at(name), "score", "summary.json")["nll_nats"]
        losses, model = tuned("tune", "begun", plain)
        self.assertIs(model["begins"], True)
        self.assertEqual(tuned("tune_bos", "begun", with_bos)[0], losses)  # its documents get no second one
        others, model = tuned("tune_bare", "bare_begun", self.labelled("bare_begun"))
        self.assertNotIn("begins", model)
        self.assertNotEqual(others, losses)
        begun = nll("tune_scored", "tune", plain)
        self.assertAlmostEqual(begun / 24, bagpipe_test.metrics(self.at("tune"))[-1]["valid_loss"], delta=1e-6)
        self.assertEqual(nll("tune_bos_scored", "tune", with_bos), begun)
        # an earlier version's: it reads documents as they are
        shutil.copytree(self.at("tune"), self.at("older"), symlinks=True)
        forget = lambda manifest: manifest["state"]["model"].pop("begins")
        bagpipe_test.edit_manifest(os.path.join(self.at("older/checkpoints"), bagpipe_test.steps(self.at("older"))[-1]), forget)
        self.assertNotEqual(nll("older_plain", "older", plain), begun)
        self.assertEqual(nll("older_bos", "older", with_bos), begun)  # [GO] text [STOP], by hand
        _, model = tuned("older", "begun", plain, 6)
        self.assertNotIn("begins", model)
        keys = [self.at("tune.ini"), f"model.init={self.at('begun.c')}", f"corpus.train={plain}", "train.steps=1"]
        taught = lambda teacher: run([program("bagpipe"), "finetune", *keys, f"run.dir={self.at('taught')}", f"distill.model={self.at(teacher)}"])
        self.assert_error(taught("older"), 78, "[distill.other_frame]", "another beginning")
        self.assertEqual(taught("tune").status, 0)
        # a member that has not begun is like the others
        many = ["bagpipe", "ensemble", *keys, f"run.dir={self.at('many')}", "ensemble.members=2"]
        self.must(many)
        begins = lambda: [bagpipe_test.state_of(self.at(f"many/members/{name}"))["model"].get("begins", False) for name in ("m00", "m01")]
        self.assertEqual(begins(), [True, True])
        bagpipe_test.edit_manifest(os.path.join(self.at("many/members/m00/checkpoints"), bagpipe_test.steps(self.at("many/members/m00"))[-1]), forget)
        shutil.rmtree(self.at("many/members/m01"))
        self.must(many)
        self.assertEqual(begins(), [False, False])

    def test_texts_of_a_task_that_begin_by_hand(self):
        """They get no second beginning, and where their words and answers are follows: as of a model that gives none."""
        for name, template in (("hand", True), ("bare_hand", False)):
            self.model(name, template, {"bos_token_id": GO, "eos_token_id": STOP})
        words = "".join(f"{NAMES[GO]}\tX\n" + "".join(f"{word}\t{'ABC'[(k + at) % 3]}\n" for at, word in enumerate(TEXTS[1].split())) + "\n" for k in range(12))
        questions = [{"id": str(k), "question": NAMES[GO] + "all" * (1 + k % 2), "answers": [{"text": word, "answer_start": TEXTS[1].index(word)}]}
                     for k, word in enumerate(TEXTS[1].split() * 3)]
        squad = json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": TEXTS[1], "qas": questions}]}]})
        for kind, form, text in (("tags", "conll", words), ("spans", "squad", squad)):
            path, found = self.write(f"hand.{form}", text), []
            for model in ("hand", "bare_hand"):
                corpus, name = self.at(f"{model}.{form}.h5"), f"{model}_{kind}"
                self.must(["bagpipe-data", "corpus", "--tokenizer", self.at(model + "/tokenizer.json"), "--format", form, "--special", "--out", corpus, path])
                self.must(["bagpipe", "finetune", self.write("hand.ini", "[train]\nbatch = 4\nsteps = 4\nlog_every = 1\n[math]\nprecision = f32\nthreads = 1\n"),
                           f"run.dir={self.at(name)}", f"model.init={self.at(model + '.c')}", f"task.kind={kind}", f"corpus.train={corpus}", f"corpus.valid={corpus}"])
                lines = bagpipe_test.metrics(self.at(name))
                self.assertIs(bagpipe_test.state_of(self.at(name))["model"].get("begins", False), model == "hand")
                self.must(["bagpipe", "score", self.write("s.ini", "[math]\nprecision = f32\nthreads = 1\n"), f"run.dir={self.at(name + '_scored')}",
                           f"score.model={self.at(name)}", f"score.corpus={corpus}"])
                summary = bagpipe_test.read_json(self.at(name + "_scored"), "score", "summary.json")
                found.append(([line["loss"] for line in lines], lines[-1]["valid_loss"], summary["task"], summary.get("nll_nats")))
                if kind == "tags":
                    self.assertAlmostEqual(summary["nll_nats"] / summary["words"], lines[-1]["valid_loss"], delta=1e-5)
            self.assertEqual(found[0], found[1], kind)

    def test_training_behind_the_beginning(self):
        self.save("own/tokenizer.json", dict(self.tokenizer, post_processor=TEMPLATE))
        self.save("own/tokenizer_config.json", {"eos_token": NAMES[STOP]})
        counts = []
        for name, more, bos in (("with", ("--bos",), GO), ("without", (), -1)):
            self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("own/tokenizer.json"), "--format", "lines", *more, "--out",
                       self.at(name + ".h5"), self.at("valid.txt")])
            with h5py.File(self.at(name + ".h5")) as file:
                self.assertEqual("begins_with_bos" in file.attrs, bos == GO)
                counts.append((file["tokens"].shape[0], file["doc_start"].shape[0] - 1))
            self.write("t.ini", self.config().replace(self.at("train.h5"), self.at(name + ".h5")).replace(f"valid = {self.at('valid.h5')}\n", ""))
            self.must(["bagpipe", "pretrain", self.at("t.ini"), f"run.dir={self.at(name)}", "train.steps=2"])
            with open(self.at(name + "/checkpoints/step-000000000002/manifest.json"), encoding="utf-8") as file:
                state = json.load(file)
            roles = state.get("state", state).get("roles", {})
            self.assertEqual((roles.get("bos", -1), roles.get("first", -1)), (bos, bos))
        self.assertEqual(counts[0][0] - counts[1][0], counts[0][1])
        losses = []  # of a recurrent model that knows that beginning, on documents that lack it: they begin after the end of the one before
        for name, more in (("gru", (f"corpus.train={self.at('with.h5')}",)), *((order, (f"model.init={self.at('order-gru')}", f"corpus.order={order}")) for order in ("documents", "auto", "stream"))):
            self.must(["bagpipe", "pretrain", self.at("t.ini"), f"run.dir={self.at('order-' + name)}", "model.kind=gru", "model.heads=", "train.steps=2", *more])
            losses.append(bagpipe_test.metrics(self.at("order-" + name))[-1]["loss"])
        self.assertEqual(losses[1], losses[2])
        self.assertNotEqual(losses[2], losses[3])
        for status, words, *arguments in ((65, ["[corpus.no_bos]"], "--tokenizer", self.at("bare/tokenizer.json"), "--format", "lines"),
                                          (64, ["[command.no_bos]"], "--tokenizer", self.at("own/tokenizer.json"), "--format", "lines",
                                           "--sentences", "lines")):
            self.assert_error(run([program("bagpipe-data"), "corpus", "--bos", "--out", self.at("no.h5"), *arguments, self.at("valid.txt")]),
                              status, *words)

    def test_one_document_has_no_interval(self):
        self.model("few", False, {"eos_token_id": STOP})
        _, summary = self.scored("few_run", "few", self.documents("lone", [[5], [6], [7, 8, 9]]), "score.prefix=none")
        self.assertIsNone(summary["perplexity_stderr_documents"])
        self.assertIsNotNone(summary["perplexity_stderr"])


if __name__ == "__main__":
    bagpipe_test.main()
