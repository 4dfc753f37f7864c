"""Every family that `bagpipe pretrain --help` lists, by its name: a run that is killed goes on with another mesh to the bits of one that was not, is fine-tuned with an
adapter, ensembled and scored, generates, and is exported and imported to equal bytes. What a family cannot do is refused by the identifier that OTHERWISE names, and by no other.
A new family is in by itself, with the keys of MODEL; what else it needs is a line of NEEDS."""
import filecmp
import os
import random
import re

import bagpipe_test
from bagpipe_test import FolderTest, digests, metrics, program, read_json, run, steps, take, timeless

SPECIAL = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]  # padding is 1, as of a RoBERTa
MODEL = {"model.layers": 2, "model.width": 16, "model.heads": 2, "model.context": 16, "train.batch": 4, "train.steps": 4, "corpus.train": "texts", "corpus.valid": "texts"}
PAIRS = {"corpus.train": "pairs", "corpus.valid": "pairs"}
CELLS = {"model.heads": ""}
STACKLESS = {**CELLS, "model.layers": ""}
NEEDS = {"rnn": CELLS, "lstm": CELLS, "gru": CELLS, "cell": CELLS, "word2vec": STACKLESS, "feedforward": {**STACKLESS, "model.embedding": 8, "model.order": 3},
         "elmo": {**CELLS, "model.char_filters": "1:4,2:8", "corpus.train": "whole", "corpus.valid": "whole"}, "electra": {"model.generator_width": 8, "model.generator_heads": 2},
         "ngram": {**{key: "" for key in MODEL if not key.startswith("corpus")}, "ngram.order": 3}, "bert": {"mask.next_sentence": "no"},
         **{kind: {"model.experts": 4, "model.experts_chosen": 2} for kind in ("mixtral", "olmoe", "qwen3_moe")},
         **{kind: {"model.attention_layers": 2} for kind in ("granite_hybrid", "bamba")}, **{kind: PAIRS for kind in ("transformer", "bart", "marian", "mbart", "m2m_100", "t5")}}
COUNTED = ("ngram",)  # has no steps
MASKED = ("bert", "roberta", "distilbert", "modernbert", "deberta", "mpnet", "t5_encoder")  # fill in masks
RECURRENT = ("rnn", "lstm", "gru", "cell", "elmo", "mamba2", "feedforward", "ngram", "word2vec")
OTHERWISE = {  # what a family is asked for: how some refuse it
    "adapter": {"[adapter.no_place]": RECURRENT, "[adapter.shared_products]": ("deberta",)},
    "ensemble": {"[model.no_distribution]": ("word2vec", "electra")},
    "generate": {"[model.not_causal]": ("ngram", "elmo"), "[model.no_distribution]": ("word2vec", "electra")},
    "export": {"[export.unknown_kind]": ("feedforward",)}}
(FEW,) = take(few="")  # some families, with ',' between, not all


class Families(FolderTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        draw = random.Random(1)
        cls.write("words.txt", "\n".join(SPECIAL + [f"w{k}" for k in range(40)]) + "\n")
        lines = [" ".join(f"w{draw.randrange(40)}" for _ in range(3 + k % 9)) for k in range(60)]
        cls.write("texts.txt", "\n".join(lines) + "\n")
        cls.write("back.txt", "\n".join(" ".join(reversed(line.split())) for line in lines) + "\n")
        cls.write("prompts.txt", "w1 [MASK] w3\n")
        cls.must(["bagpipe-data", "tokenizer", "--vocab", cls.at("words.txt"), "--out", cls.at("words.json")])
        for name, form, *files in (("texts", "lines", "texts.txt"), ("pairs", "pairs", "texts.txt", "back.txt")):
            cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("words.json"), "--format", form, "--out", cls.at(name + ".h5"), *map(cls.at, files)])
        cls.must(["bagpipe-data", "tokenizer", "--kind", "word", "--size", "45", "--out", cls.at("whole.json"), cls.at("texts.txt")])
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("whole.json"), "--format", "lines", "--out", cls.at("whole.h5"), cls.at("texts.txt")])
        cls.write("empty.ini", "[math]\nprecision = f32\nthreads = 1\n[train]\nlog_every = 1\n")

    def families(self):
        text = re.sub(r"\s+", "", self.must(["bagpipe", "pretrain", "--help"]).out)
        return re.search(r"model\.kindfamilyofmodels;.*?\((.*?);default", text)[1].split("|")

    def keys(self, kind, **more):
        values = {"model.kind": kind, **MODEL, **NEEDS.get(kind, {}), **more}
        return [f"{key}={self.at(value + '.h5') if key.startswith('corpus.') and value else value}" for key, value in values.items()]

    def job(self, word, name, *keys, ranks=0, fault=None):
        return run([*(["env", "BP_FAULT=" + fault] if fault else []), program("bagpipe"), word, self.at("empty.ini"), f"run.dir={self.at(name)}", *keys], ranks)

    def does(self, what, kind, result):
        """Did it, or was it refused as it should be?"""
        refused = next((identifier for identifier, kinds in OTHERWISE.get(what, {}).items() if kind in kinds), None)
        if refused:
            self.assertIn(result.status, (65, 78), str(result))
            self.assert_error(result, result.status, refused)
        else:
            self.assertEqual(result.status, 0, f"{kind} {what}: {result}")
        return not refused

    def check(self, kind):
        for part in (self.resumes, self.adapts, self.ensembles, self.generates, self.returns):
            part(kind)

    def resumes(self, kind):
        """On two data ranks."""
        counted = kind in COUNTED
        keys = [*self.keys(kind), *([] if counted else ["checkpoint.every=2", "checkpoint.async=no"])]
        straight = self.job("pretrain", kind, *keys)
        self.assertEqual(straight.status, 0, str(straight))
        killed = self.job("pretrain", kind + "-killed", *keys, fault="count.run:1=kill" if counted else "step.end:3=kill")
        self.assertLess(killed.status, 0, str(killed))
        self.assertEqual([step[-1] for step in steps(self.at(kind + "-killed"))], [] if counted else ["2"])
        resumed = self.job("pretrain", kind + "-killed", *keys, ranks=2)
        self.assertEqual(resumed.status, 0, str(resumed))
        self.assertEqual(digests(self.at(kind)), digests(self.at(kind + "-killed")))
        if not counted:
            self.assertEqual(timeless(metrics(self.at(kind))), timeless(metrics(self.at(kind + "-killed"))))

    def adapts(self, kind):
        """What it adapts keeps its bits. A bottleneck, where LoRA is refused for what the layers share."""
        for way in ("lora", "bottleneck")[:1 + (kind in OTHERWISE["adapter"]["[adapter.shared_products]"])]:
            keys = [key for key in self.keys(kind, **{"train.batch": 4, "train.steps": 2}) if not key.startswith("model.")]
            result = self.job("pretrain", f"{kind}-{way}", *keys, f"model.init={self.at(kind)}", f"adapter.kind={way}", "adapter.rank=2")
            if self.does("adapter" if way == "lora" else way, kind, result):
                before, after = digests(self.at(kind)), digests(self.at(f"{kind}-{way}"))
                self.assertEqual({name: after.get(name) for name in before if "/" not in name}, {name: value for name, value in before.items() if "/" not in name})
                self.assertTrue(set(after) - set(before))

    def ensembles(self, kind):
        result = self.job("ensemble", kind + "-many", *self.keys(kind, **({} if kind in COUNTED else {"train.steps": 2})), "ensemble.members=2")
        if self.does("ensemble", kind, result):
            corpus = dict(key.split("=") for key in self.keys(kind))["corpus.train"]
            result = self.job("score", kind + "-scored", f"score.model={self.at(kind + '-many')}", f"score.corpus={corpus}")
            if self.does("score", kind, result):
                self.assertGreater(read_json(self.at(kind + "-scored"), "score", "summary.json")["nll_nats"], 0)

    def generates(self, kind):
        how = ["generate.strategy=fill"] if kind in MASKED else ["generate.tokens=4"]
        result = self.job("generate", kind + "-made", f"generate.model={self.at(kind)}", f"generate.prompts={self.at('prompts.txt')}", *how)
        if self.does("generate", kind, result):
            self.assertGreater(len(read_json(self.at(kind + "-made"), "generate", "outputs.jsonl")["logprobs"]), 0)

    def returns(self, kind):
        result = run([program("bagpipe-data"), "export", self.at(kind), "--out", self.at(kind + "-out")])
        if not self.does("export", kind, result):
            return
        words = [] if os.path.isdir(self.at(kind + "-out")) else ["--tokenizer", self.at("words.json")]  # of counts and vectors
        self.must(["bagpipe-data", "import", self.at(kind + "-out"), "--out", self.at(kind + "-in"), *words])
        self.must(["bagpipe-data", "export", self.at(kind + "-in"), "--out", self.at(kind + "-back")])
        first, second = ([os.path.join(folder, name) for folder, _, names in sorted(os.walk(self.at(kind + end))) for name in sorted(names)]
                         or [self.at(kind + end)] for end in ("-out", "-back"))
        for one, other in zip(first, second, strict=True):
            if kind == "word2vec":  # whose lines are in the order of counts, which the file does not have
                self.assertEqual(*(sorted(open(path, encoding="utf-8")) for path in (one, other)))
            else:
                self.assertTrue(filecmp.cmp(one, other, shallow=False), one)

    def test_each_does_all_or_refuses_it_by_name(self):
        kinds = self.families()
        self.assertGreater(len(kinds), 40)
        self.assertLessEqual(set(NEEDS) | {kind for refusals in OTHERWISE.values() for some in refusals.values() for kind in some}, set(kinds))
        for kind in FEW.split(",") if FEW else kinds:
            with self.subTest(kind):
                self.check(kind)


if __name__ == "__main__":
    bagpipe_test.main()
