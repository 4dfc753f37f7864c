"""Validation and score of one model give one loss, for every task and family that has a head for it, and of language models for every family that
continues texts or translates: classes with every family, other tasks with a family of each shape (--all: with every one, too). Models have trained at
a high rate, so that no gain is 1, no bias 0 and no table small; segments, positions, padding and masks of both ways are then the same."""
import csv
import json
import math
import os
import random

import bagpipe_test
import h5py
from bagpipe_test import metrics, read_json, run
from test_finetune import KINDS, WORDS, TaskTest

(ALL,) = bagpipe_test.take(all=False)
SIZES = ["model.layers=2", "model.width=16", "model.heads=2", "model.context=24", "model.dropout=0.1"]
EXPERTS = ["model.experts=4", "model.experts_chosen=2", "model.experts_balance=0.1"]
FAMILIES = {
    "gpt": [], "llama": [], "mistral": ["model.window=5"], "gpt_neox": [], "mamba2": [], "qwen3": [], "olmo2": [], "gemma2": [], "smollm3": [], "granite": [], "opt": [], "gptj": [], "bloom": [], "openai_gpt": [],
    "gemma3": [], "phi3": [], "granite_hybrid": ["model.attention_layers=2"], "bamba": ["model.attention_layers=1"], "mixtral": EXPERTS, "olmoe": [*EXPERTS, "model.clip=1.5"],
    "qwen3_moe": [*EXPERTS, "model.experts_dense=1", "model.experts_inner=12"], "bert": [], "roberta": [], "distilbert": [], "modernbert": ["model.window=6"], "mpnet": [], "t5_encoder": [], "deberta": ["model.buckets=6"], "one_segment": ["model.segments=1"], "electra": [],
    "transformer": ["model.encoder_layers=1"], "bart": ["model.encoder_layers=1"], "t5": ["model.encoder_layers=1"],
    "mbart": ["model.encoder_layers=1"]}
SHAPES = ("gpt", "mamba2", "qwen3_moe", "one_segment", "deberta", "electra", "bart", "t5")  # one of each shape
KIND = {"mistral": "llama", "one_segment": "bert"}  # whose family has another name
LACKS = {"rnn": ("model.heads",), "lstm": ("model.heads",), "gru": ("model.heads",), "cell": ("model.heads",), "feedforward": ("model.heads", "model.layers")}
WILD = ["optimizer.lr=0.03", "train.steps=4", "train.log_every=4", "train.batch=8", "optimizer.warmup=0", "math.precision=f32"]


class SameLoss(TaskTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("empty.ini", "[math]\nprecision = f32\n")

    def scored(self, name, model, corpus):
        result = run([bagpipe_test.program("bagpipe"), "score", self.at("empty.ini"), f"run.dir={self.at(name)}", f"score.model={model}", f"score.corpus={self.at(corpus)}",
                      "math.precision=f32"])
        self.assertEqual(result.status, 0, str(result))
        return read_json(self.at(name), "score", "summary.json")

    def check(self, task, valid, loss_of, *keys, families=SHAPES):
        """loss_of(summary, folder): what the score says is the validation's loss."""
        for family in FAMILIES if ALL else families:
            with self.subTest(family=family):
                name, kind, own = f"{task}-{family}", KIND.get(family, family), FAMILIES[family]
                tuned = self.tuned(name, 0, f"model.kind={kind}", *SIZES, *own, *WILD, f"corpus.train={self.at(valid)}", f"corpus.valid={self.at(valid)}", *keys)
                summary = self.scored(name + "-score", tuned, valid)
                expected = metrics(tuned)[-1]["valid_loss"]
                self.assertLess(abs(loss_of(summary, name + "-score") - expected), 2e-6 * max(1, abs(expected)))

    def test_classes(self):
        self.check("classes", "valid.h5", lambda summary, _: summary["nll_nats"] / summary["documents"], families=FAMILIES)

    def test_pairs(self):
        draw = random.Random(4)
        rows = [(" ".join(draw.choice(WORDS) for _ in range(draw.randrange(1, 9))), " ".join(draw.choice(WORDS) for _ in range(draw.randrange(1, 16))),
                 draw.choice(sorted(KINDS))) for _ in range(30)]
        self.write("pairs.tsv", "a\tb\ttopic\n" + "".join("\t".join(row) + "\n" for row in rows))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "tsv", "--fields", "a,b", "--label", "topic", "--out", self.at("pairs.h5"),
                   self.at("pairs.tsv")])
        self.check("pairs", "pairs.h5", lambda summary, _: summary["nll_nats"] / summary["documents"])

    def test_regression(self):
        self.check("regression", "valid.h5", lambda summary, _: summary["task"]["mse"]["value"], "task.kind=regression", "task.label=score", "task.pool=mean")

    def test_tags(self):
        self.conll("tags", self.sentences(25, 3))
        self.check("tags", "tags.h5", lambda summary, _: summary["nll_nats"] / summary["words"], "task.kind=tags")

    def test_spans(self):
        """Of contexts of one word, so that the best answer is the right one."""
        draw, questions = random.Random(5), []
        for k in range(30):
            answer = draw.choice(WORDS)
            questions.append({"context": answer, "qas": [{"id": f"q{k}", "question": " ".join(draw.choice(WORDS) for _ in range(draw.randrange(1, 10))),
                                                          "answers": [{"text": answer, "answer_start": 0}]}]})
        self.write("words.json", json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": questions}]}))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "squad", "--out", self.at("words.h5"), self.at("words.json")])

        def loss(_, name):
            with open(os.path.join(self.at(name), "score", "predictions.csv"), newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            return -sum(math.log(float(row["probability"])) for row in rows) / 2 / len(rows)

        self.check("spans", "words.h5", loss, "task.kind=spans")


class SameLanguageModel(bagpipe_test.FolderTest):
    CONTEXT = 12

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("vocab.txt", "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + WORDS) + "\n")
        cls.must(["bagpipe-data", "tokenizer", "--vocab", cls.at("vocab.txt"), "--out", cls.at("tokenizer.json")])
        cls.write("empty.ini", "[math]\nprecision = f32\n")

    def corpus(self, name, *texts, form="lines"):
        paths = [self.write(f"{name}.{k}", "".join(line + "\n" for line in lines)) for k, lines in enumerate(texts)]
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", form, "--out", self.at(f"{name}.h5"), *paths])
        return self.at(f"{name}.h5")

    def job(self, name, *keys):
        result = run([bagpipe_test.program("bagpipe"), name, self.at("empty.ini"), *keys])
        self.assertEqual(result.status, 0, str(result))

    def nll(self, name, model, corpus, *keys):
        self.job("score", f"run.dir={self.at(name)}", f"score.model={model}", f"score.corpus={corpus}", "math.precision=f32", *keys)
        summary = read_json(self.at(name), "score", "summary.json")
        with h5py.File(os.path.join(self.at(name), "score", "documents.h5")) as file:
            self.assertEqual(len(file["tokens"]), summary["documents"])
        return summary["nll_nats"], summary["tokens"]

    def trained(self, family, own, *corpora):
        run_dir = self.at(family)
        sizes = [key for key in SIZES if not key.startswith(("model.context", *LACKS.get(family, ())))]
        self.job("pretrain", f"run.dir={run_dir}", f"model.kind={KIND.get(family, family)}", *sizes, f"model.context={self.CONTEXT}", *own, *WILD, *corpora)
        return run_dir, metrics(run_dir)[-1]["valid_loss"]

    def test_texts(self):
        """Windows of the stream begin where documents do: the first window is all of the first document, the others a document each behind the end of
        the one before."""
        draw, C = random.Random(6), self.CONTEXT
        lines = [" ".join(draw.choice(WORDS) for _ in range(n)) for n in [C] + [C - 1] * 9]
        whole, first, rest = (self.corpus(name, part) for name, part in (("whole", lines), ("first", lines[:1]), ("rest", lines[1:])))
        for family in ("gpt", "llama", "mistral", "gpt_neox", "mamba2", "qwen3", "olmo2", "gemma2", "smollm3", "granite", "opt", "gptj", "bloom", "openai_gpt", "gemma3", "phi3", "granite_hybrid", "bamba",
                       "mixtral", "olmoe", "qwen3_moe", "feedforward"):
            with self.subTest(family=family):
                model, expected = self.trained(family, FAMILIES.get(family, []), f"corpus.train={whole}", f"corpus.valid={whole}")
                parts = [self.nll(f"{family}-{name}", model, corpus, "score.end=yes", f"score.prefix={prefix}", f"score.context={C}")
                         for name, corpus, prefix in (("first", first, "none"), ("rest", rest, "eod"))]
                self.assertEqual(sum(tokens for _, tokens in parts), C * len(lines))
                self.assertLess(abs(sum(nll for nll, _ in parts) / (C * len(lines)) - expected), 2e-6 * expected)

    def test_a_text_of_many_windows(self):
        """Whose state goes from window to window."""
        draw, C = random.Random(8), self.CONTEXT
        one = self.corpus("one", [" ".join(draw.choice(WORDS) for _ in range(9 * C))])
        for family in ("rnn", "lstm", "gru", "cell"):
            with self.subTest(family=family):
                model, expected = self.trained(family, [], f"corpus.train={one}", f"corpus.valid={one}", "train.batch=1")
                nll, tokens = self.nll(f"{family}-score", model, one, "score.end=yes", "score.prefix=none")
                self.assertEqual(tokens, 9 * C)
                self.assertLess(abs(nll / tokens - expected), 2e-6 * expected)

    def test_masked_tokens(self):
        """In windows of one token, so that it is known which is masked."""
        draw = random.Random(9)
        texts = self.corpus("masked", [" ".join(draw.choice(WORDS) for _ in range(draw.randrange(1, 9))) for _ in range(20)])
        for family in ("bert", "one_segment", "roberta", "distilbert", "modernbert"):
            with self.subTest(family=family):
                own = [*FAMILIES[family], "model.context=3", "mask.random=0", "mask.keep=0", "mask.next_sentence=no"]
                own += ["model.first_position=1"] if family == "roberta" else []
                model, expected = self.trained(family, own, f"corpus.train={texts}", f"corpus.valid={texts}")
                nll, tokens = self.nll(f"{family}-score", model, texts)
                self.assertLess(abs(nll / tokens - expected), 2e-6 * expected)

    def test_pairs(self):
        draw = random.Random(7)
        sides = [[" ".join(draw.choice(WORDS) for _ in range(draw.randrange(1, self.CONTEXT - 2))) for _ in range(16)] for _ in range(2)]
        pairs = self.corpus("pairs", *sides, form="pairs")
        for family in ("transformer", "bart", "marian", "mbart", "m2m_100", "t5"):
            with self.subTest(family=family):
                model, expected = self.trained(family, ["model.encoder_layers=1"], f"corpus.train={pairs}", f"corpus.valid={pairs}")
                nll, tokens = self.nll(f"{family}-score", model, pairs)
                self.assertLess(abs(nll / tokens - expected), 2e-6 * expected)
                self.check_export(family, model, family == "transformer")

    def check_export(self, family, model, unknown):
        """A folder that transformers has no class for is warned of."""
        made = run([bagpipe_test.program("bagpipe-data"), "export", model, "--out", self.at(f"{family}-hf")])
        self.assertEqual(made.status, 0, str(made))
        self.assert_warning(made, "[export.only_bagpipe]", *(["marian"] if unknown else []), times=int(unknown))
        beside = os.path.join(self.at(f"{family}-hf"), "generation_config.json")
        self.assertEqual(os.path.exists(beside), not unknown)
        if not unknown:  # what transformers would take from config.json, and the longest target
            config, generation = (read_json(self.at(f"{family}-hf"), name) for name in ("config.json", "generation_config.json"))
            self.assertEqual(generation.pop("max_length"), self.CONTEXT)
            self.assertEqual(generation, {key: config[key] for key in generation})
            self.assertLessEqual({"eos_token_id", "decoder_start_token_id"}, set(generation))
            self.assertIn("pad_token", read_json(self.at(f"{family}-hf"), "tokenizer_config.json"))


if __name__ == "__main__":
    bagpipe_test.main()
