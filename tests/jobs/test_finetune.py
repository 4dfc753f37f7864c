"""Fine-tuning: a model of each shape learns to tell texts apart, to the same losses on every mesh, to the same bits on 1 and 4 data ranks
and across a kill; it begins with a pretrained backbone; what is wrong with labels is said."""
import json
import os
import pathlib
import random

import numpy

import bagpipe_test
from bagpipe_test import FolderTest, digests, metrics, parts_miss, read_json, run, state_of, timeless
from plain_gpt import gpt_logits, log_softmax
from tensors import tensors_of

WORDS = """the a of and to in is was he for on with as at by from his that it had her she they we you not are but be have""".split()
KINDS = {"sea": "ship wave sail salt".split(), "wood": "tree leaf bird root".split(), "town": "street house shop lamp".split()}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MODEL = ["model.kind=bert", "model.layers=2", "model.width=32", "model.heads=4", "model.context=24"]
TUNE = ["task.kind=classes", "train.batch=8", "train.steps=12", "train.log_every=1", "optimizer.lr=3e-3"]
GPT = ["model.kind=gpt", *MODEL[1:]]


def document(draw, kind, n):
    words = [draw.choice(WORDS) for _ in range(n)]
    for _ in range(3):
        words[draw.randrange(n)] = draw.choice(KINDS[kind])
    return " ".join(words)


class TaskTest(FolderTest):
    """Texts of three topics."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        draw = random.Random(3)
        cls.write("vocab.txt", "\n".join(SPECIAL + WORDS + [word for words in KINDS.values() for word in words]) + "\n")
        cls.must(["bagpipe-data", "tokenizer", "--vocab", cls.at("vocab.txt"), "--out", cls.at("tokenizer.json")])
        rows = [{"text": document(draw, kind, 6 + k % 25), "topic": kind, "length": str(6 + k % 25), "score": str(len(kind) / 4)}
                for k in range(60) for kind in KINDS]
        cls.corpus("train", rows[:150])
        cls.corpus("valid", rows[150:])
        cls.corpus("again", rows[150:])  # the same texts with other ids, for figures of a study that are those of its corpus.valid
        cls.write("tune.ini", "[corpus]\ntrain = %s\nvalid = %s\n[task]\nlabel = topic\n[math]\nprecision = f32\n" % (cls.at("train.h5"), cls.at("valid.h5")))

    @classmethod
    def corpus(cls, name, rows, tokenizer="tokenizer.json"):
        cls.write(f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        labels = [word for label in rows[0] if label not in ("text", "id") for word in ("--label", label)]
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at(tokenizer), "--format", "jsonl", *labels, "--out", cls.at(f"{name}.h5"),
                  cls.at(f"{name}.jsonl")])
        return cls.at(f"{name}.h5")

    def conll(self, name, sentences, *options):
        self.write(f"{name}.conll", "\n".join("".join(f"{word}\t{tag}\n" for word, tag in words) for words in sentences))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "conll", *options, "--out",
                   self.at(f"{name}.h5"), self.at(f"{name}.conll")])
        return self.at(f"{name}.h5")

    @staticmethod
    def sentences(n, seed):
        """Two words of a topic are an entity; some words are two tokens, the first of them tagged."""
        draw, out = random.Random(seed), []
        for _ in range(n):
            words = [(draw.choice(WORDS), "O") for _ in range(draw.randrange(3, 7))]
            for kind in draw.sample(sorted(KINDS), 2):
                at = draw.randrange(len(words) + 1)
                words[at:at] = [(draw.choice(KINDS[kind]) + draw.choice(["", "-a"]), f"B-{kind}"), (draw.choice(KINDS[kind]), f"I-{kind}")]
            out.append(words)
        return out

    def squad(self, name, n, seed, prefix="q"):
        """A question after a thing of the sea, which is in the context or not; contexts of one to three windows. Returns the answers by id."""
        draw, questions, answers = random.Random(seed), [], {}
        for k in range(n):
            words = [draw.choice(WORDS + KINDS["town"]) for _ in range(draw.randrange(4, 40))]
            at, there = draw.randrange(len(words)), draw.random() < 0.8
            if there:
                words[at] = draw.choice(KINDS["sea"]).capitalize() + draw.choice(["", ",", "!"])
            answers[f"{prefix}{k}"] = words[at].rstrip(",!") if there else ""
            text = {"text": answers[f"{prefix}{k}"], "answer_start": len(" ".join(words[:at] + [""]))}
            questions.append({"context": " ".join(words), "qas": [{"id": f"{prefix}{k}", "question": "what is on the sea", "is_impossible": not there,
                                                                   "answers": [text] if there else []}]})
        self.write(f"{name}.json", json.dumps({"version": "v2.0", "data": [{"title": name, "paragraphs": questions}]}))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "squad", "--out", self.at(f"{name}.h5"),
                   self.at(f"{name}.json")])
        return answers

    def finetune(self, name, ranks, *keys, env=(), tune=TUNE):
        label = ["task.label="] if {"task.kind=tags", "task.kind=spans"} & set(keys) else []  # which tune.ini names
        return run([*env, bagpipe_test.program("bagpipe"), "finetune", self.at("tune.ini"), f"run.dir={self.at(name)}", *tune, *label, *keys], ranks)

    def tuned(self, name, ranks, *keys):
        result = self.finetune(name, ranks, *keys)
        self.assertEqual(result.status, 0, str(result))
        return self.at(name)


class Finetune(TaskTest):
    def test_every_mesh_trains_the_same_model(self):
        meshes = (("tensor", 4, ["mesh.tensor=2", "mesh.data=2", "mesh.micro_batch=2"]), ("pipeline", 2, ["mesh.pipeline=2"]))
        for kind, model, some in (("bert", MODEL, meshes), ("gpt", GPT, meshes[:1]), ("mean", [*MODEL, "task.pool=mean"], meshes[1:])):
            one = metrics(self.tuned(f"{kind}-one", 0, *model))
            for name, ranks, mesh in some:
                with self.subTest(name, kind=kind):
                    for a, b in zip(one, metrics(self.tuned(f"{kind}-{name}", ranks, *model, *mesh)), strict=True):
                        self.assertLess(abs(a["loss"] - b["loss"]), 3e-5)
                        self.assertLess(abs(a.get("valid_loss", 0) - b.get("valid_loss", 0)), 3e-5)

    def test_data_ranks_give_the_bits_of_one(self):
        one = self.tuned("one", 0, *MODEL, "model.dropout=0.1")
        other = self.tuned("data4", 4, *MODEL, "model.dropout=0.1")
        self.assertEqual(timeless(metrics(one)), timeless(metrics(other)))
        self.assertEqual(digests(one), digests(other))

    def test_a_killed_training_goes_on_and_has_learnt(self):
        keys = [*MODEL, "task.pool=mean", "optimizer.lr=5e-3", "train.steps=80", "train.log_every=20", "checkpoint.every=10", "train.valid_every=40"]
        straight = self.tuned("straight", 0, *keys)
        self.assertGreater(metrics(straight)[-1]["valid_accuracy"], 0.9)
        page = pathlib.Path(straight, "index.html").read_text(encoding="utf-8")
        self.assertRegex(page, r"(?s)loss, nats a document.*validation accuracy|There are no plots")
        result = self.finetune("killed", 0, *keys, env=["env", "BP_FAULT=step.end:33=kill"])
        self.assertEqual(result.status, -9, str(result))
        killed = self.tuned("killed", 0, *keys)
        self.assertEqual(timeless(metrics(straight)), timeless(metrics(killed)))
        self.assertEqual(digests(straight), digests(killed))
        task = read_json(straight, "task.json")
        self.assertEqual((task["kind"], task["label"], task["labels"]), ("classes", "topic", ["sea", "town", "wood"]))
        self.assertEqual(read_json(straight, "run.json")["job"], "finetune")
        self.assertEqual(state_of(straight)["model"]["labels"], ["sea", "town", "wood"])

    def test_defaults_are_those_of_fine_tuning(self):
        result = self.finetune("defaults", 0, *MODEL, "train.log_every=1", tune=["task.kind=classes", "train.batch=30"])
        self.assertEqual(result.status, 0, str(result))
        folder = self.at("defaults")
        config = pathlib.Path(folder, "config.ini").read_text(encoding="utf-8")
        for line in ("lr = 5e-05", "decay = linear", "warmup = 1", "epochs = 3"):
            self.assertIn(line, config)
        self.assertEqual(len(metrics(folder)), 15)

    def test_a_backbone_is_taken_and_new_heads_are_named(self):
        result = self.must([bagpipe_test.program("bagpipe"), "pretrain", self.at("tune.ini"), f"run.dir={self.at('pretrained')}", *MODEL,
                            "train.steps=3", "train.batch=4", "mask.next_sentence=no", "sngp.features=8"])
        self.assert_warning(result, "[config.unused_key]", "sngp.features")
        result = self.finetune("from-bert", 0, f"model.init={self.at('pretrained')}", "optimizer.lr=0", "train.steps=1")
        self.assertEqual(result.status, 0, str(result))
        self.assertIn("new, with initial values of run.seed: task.weight", result.out)
        self.assertNotIn("values of run.seed: pooler", result.out)
        before, after = digests(self.at("pretrained")), digests(self.at("from-bert"))
        for name, digest in after.items():
            if "/" not in name and not name.startswith("task."):
                self.assertEqual(digest, before[name], name)
        self.assertNotIn("class.weight", after)
        frozen = digests(self.tuned("frozen", 0, f"model.init={self.at('pretrained')}", "task.frozen_layers=1"))
        for name in before:
            if name in ("wte", "wpe", "embedding.ln.gain") or name.startswith("h.0."):
                self.assertEqual(frozen[name], before[name], name)
                self.assertNotIn(f"adamw.m/{name}", frozen)
        self.assertNotEqual(frozen["h.1.mlp.up.weight"], before["h.1.mlp.up.weight"])
        self.assert_error(self.finetune("twice", 0, f"model.init={self.at('from-bert')}", "task.kind=regression", "task.label=length"), 65,
                          "[task.other_task]")
        self.assert_error(run([bagpipe_test.program("bagpipe"), "pretrain", self.at("tune.ini"), f"run.dir={self.at('back')}", "train.steps=3",
                               "train.batch=4", f"model.init={self.at('from-bert')}", "mask.next_sentence=no"]), 65, "[task.other_task]")

    def test_words_beside_a_task_need_no_last_norm(self):
        """The first GPT's layers end with norms (Radford et al. 2018)."""
        keys = [*GPT, "model.kind=openai_gpt", "train.batch=150", "optimizer.kind=sgd", "optimizer.momentum=0", "optimizer.weight_decay=0", "optimizer.clip=0",
                "optimizer.warmup=0", "optimizer.decay=constant", "train.steps=2"]
        start = metrics(self.tuned("first-start", 0, *keys, "optimizer.lr=0"))
        for name, ranks, mesh in (("one", 0, []), ("tensor", 2, ["mesh.tensor=2"])):
            one = metrics(self.tuned("first-" + name, ranks, *keys, "optimizer.lr=1e-3", "task.lm_weight=0.5", *mesh))
            self.assertAlmostEqual(one[0]["loss"], start[0]["loss"] + 0.5 * one[0]["loss_words"], delta=1e-4)
            self.assertAlmostEqual((one[0]["loss"] - one[1]["loss"]) / 1e-3, one[0]["grad_norm"] ** 2, delta=0.05 * one[0]["grad_norm"] ** 2)

    def test_a_language_model_is_kept_beside_the_task(self):
        """The loss of the texts' own words is added; with sgd the sum falls by rate x norm^2 of its gradient."""
        keys = ["train.batch=150", "optimizer.kind=sgd", "optimizer.momentum=0", "optimizer.weight_decay=0", "optimizer.clip=0", "optimizer.warmup=0",
                "optimizer.decay=constant", "train.steps=2", "task.pool=mean"]
        start = self.tuned("words-start", 0, *GPT, *keys, "optimizer.lr=0")
        one = metrics(self.tuned("words", 0, *GPT, *keys, "optimizer.lr=1e-3", "task.lm_weight=0.5"))
        w = tensors_of(os.path.join(start, "checkpoints", "step-000000000002"))
        vocabulary = pathlib.Path(self.at("vocab.txt")).read_text(encoding="utf-8").split()
        total = count = 0
        for line in pathlib.Path(self.at("train.jsonl")).read_text(encoding="utf-8").splitlines():
            ids = [vocabulary.index(word) for word in json.loads(line)["text"].split()][:23] + [vocabulary.index("[SEP]")]
            values = log_softmax(gpt_logits(w, numpy.array([ids]), 4))[0]
            total -= sum(values[t, ids[t + 1]] for t in range(len(ids) - 1))
            count += len(ids) - 1
        self.assertAlmostEqual(one[0]["loss"], metrics(start)[0]["loss"] + 0.5 * total / count, delta=1e-4)
        self.assertAlmostEqual(one[0]["loss_words"], total / count, delta=1e-4)
        self.assertLess(parts_miss(one[0], {"classes": 1, "words": 0.5}), 1e-12)
        self.assertFalse([key for key in metrics(start)[0] if key.startswith("loss_")])
        self.assertAlmostEqual((one[0]["loss"] - one[1]["loss"]) / 1e-3, one[0]["grad_norm"] ** 2, delta=0.05 * one[0]["grad_norm"] ** 2)
        keys = [*GPT, "task.lm_weight=0.5", "model.dropout=0.1"]
        one = self.tuned("words-one", 0, *keys)
        for name, ranks, mesh in (("tensor", 2, ["mesh.tensor=2"]), ("stages", 2, ["mesh.pipeline=2"])):
            for a, b in zip(metrics(one), metrics(self.tuned(f"words-{name}", ranks, *keys, *mesh)), strict=True):
                self.assertLess(abs(a["loss"] - b["loss"]), 1e-4, name)
        self.assertEqual(digests(one), digests(self.tuned("words-data", 2, *keys)))
        result = self.finetune("words-diverged", 0, *keys, env=["env", "BP_FAULT=train.nan_weight:2"])
        self.assert_error(result, 70, "[training.diverged]")
        lost = [line for line in metrics(self.at("words-diverged")) if line["loss"] is None]
        self.assertTrue(lost)
        self.assertEqual([(line["loss_classes"], line["loss_words"]) for line in lost], [(None, None)] * len(lost))
        self.assertEqual(set(digests(one)), set(digests(self.tuned("wordless", 0, *GPT))))
        corpus = self.conll("words-tags", self.sentences(20, 1))
        tags = self.tuned("words-of-tags", 0, *GPT, "task.kind=tags", "task.lm_weight=0.5", f"corpus.train={corpus}", f"corpus.valid={corpus}", "train.steps=1")
        number = r"[0-9.]+"
        for folder, kind, last in ((one, "classes", rf"\({number} % right\)"), (tags, "tags", rf"\(F1 {number}\)")):
            parts = rf"{number} \({kind} {number}, words {number}\)"
            self.assertRegex(pathlib.Path(folder, "log.txt").read_text(encoding="utf-8"), rf"loss {parts}  valid {parts} {last}")
        self.assert_error(self.finetune("never", 0, *MODEL, "task.lm_weight=0.5"), 78, "[task.no_words]", "bert")
        self.assert_error(self.finetune("never", 0, *GPT, "task.lm_weight=0.5", f"distill.model={one}"), 78, "[task.no_words]", "distill.model")

    def test_lower_layers_go_slower(self):
        keys = [*MODEL, "optimizer.kind=sgd", "optimizer.momentum=0", "optimizer.weight_decay=0", "optimizer.warmup=0", "optimizer.decay=constant",
                "optimizer.lr=0.1", "train.steps=1"]
        start, whole, slow = (tensors_of(os.path.join(self.tuned(f"layers-{k}", 0, *keys, *more), "checkpoints", "step-000000000001"))
                              for k, more in enumerate((["optimizer.lr=0"], [], ["optimizer.layer_decay=0.5"])))
        for name, power in (("task.weight", 0), ("h.1.mlp.up.weight", 1), ("h.0.attn.q.weight", 2), ("embedding.ln.gain", 3), ("wte", 3)):
            before, after = (numpy.linalg.norm(end[name] - start[name]) for end in (whole, slow))
            self.assertGreater(before, 0)
            self.assertAlmostEqual(after / before, 0.5 ** power, delta=1e-2, msg=name)
        self.assert_error(run([bagpipe_test.program("bagpipe"), "pretrain", self.at("tune.ini"), f"run.dir={self.at('flat')}", "model.kind=lstm",
                               "model.layers=1", "model.width=16", "model.context=8", "train.steps=1", "train.batch=2",
                               "optimizer.layer_decay=0.5"]), 78, "[optimizer.no_layers]")

    def test_pairs_are_read(self):
        """Whether both texts name the same thing: what each alone does not tell."""
        draw = random.Random(5)
        lines = ["id\tone\tother\tsame\tscore"]
        for k in range(60):
            one, other = draw.choice(list(KINDS)), draw.choice(list(KINDS))
            lines.append(f"{k}\t{document(draw, one, 6)}\t{document(draw, other, 9)}\t{'yes' if one == other else 'no'}\t{(one == other) / 4}")
        self.write("pairs.tsv", "\n".join(lines) + "\n")
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "tsv", "--fields", "one,other", "--label", "same",
                   "--value", "score", "--out", self.at("pairs.h5"), self.at("pairs.tsv")])
        keys = [f"corpus.train={self.at('pairs.h5')}", f"corpus.valid={self.at('pairs.h5')}", *MODEL, "train.log_every=20"]
        lines = metrics(self.tuned("pairs", 0, *keys, "task.label=same", "train.steps=20"))
        self.assertIn("valid_accuracy", lines[-1])
        lines = metrics(self.tuned("scores", 0, *keys, "task.kind=regression", "task.label=score", "train.steps=60", "task.pool=mean"))
        self.assertLess(lines[-1]["valid_loss"], 0.02)
        result = self.finetune("cut", 0, *keys, "model.context=12", "task.label=same", "train.steps=1")
        self.assertEqual(result.status, 0, str(result))
        self.assertEqual(read_json(self.at("cut"), "task.json")["tokens_cut"], 60 * (6 + 9 + 3 - 12))

    def test_buckets_change_no_probability(self):
        for name, keys in (("bert", MODEL), ("gpt", GPT), ("mean", [*MODEL, "task.pool=mean"]),
                           ("number", [*MODEL, "task.kind=regression", "task.label=score"])):
            keys = [*keys, "mesh.micro_batch=4", "optimizer.lr=0", "train.steps=1"]
            plain = metrics(self.tuned(f"plain-{name}", 0, *keys))[-1]
            line = metrics(self.tuned(f"bucket-{name}", 0, *keys, "corpus.bucket=4"))[-1]
            self.assertLess(abs(plain["valid_loss"] - line["valid_loss"]), 1e-6, name)
            self.assertLess(line["padding"], 0.3, name)
        keys = [*MODEL, "mesh.micro_batch=4", "corpus.bucket=4"]
        self.assertEqual(digests(self.tuned("bucket-one", 0, *keys)), digests(self.tuned("bucket-two", 2, *keys)))

    def test_a_resume_between_two_lines_counts_the_same_padding(self):
        keys = [*MODEL, "mesh.micro_batch=2", "corpus.bucket=8", "train.log_every=5", "checkpoint.every=3", "checkpoint.async=no"]
        whole = timeless(metrics(self.tuned("places", 0, *keys)))
        self.assertEqual([line["step"] for line in whole], [5, 10, 12])
        for name, meshes in (("places-same", (0, 0)), ("places-other", (2, 0)), ("places-apart", (3, 3))):
            for ranks, fault, status in ((meshes[0], "step.end:4=kill", None), (meshes[1], "step.begin:5", 74), (meshes[0], "none", 0)):
                more = ["mesh.coordinator=dedicated"] if ranks == 3 else []
                env = [] if fault == "none" else ["env", f"BP_FAULT={fault}"]  # ends after step 4 and after step 7
                result = self.finetune(name, ranks, *keys, *more, env=env)
                self.assertEqual(result.status if status is not None else result.status != 0, True if status is None else status, str(result))
            self.assertEqual(timeless(metrics(self.at(name))), whole, name)

    def test_a_number_is_learnt(self):
        self.assert_error(self.finetune("smooth", 0, *MODEL, "task.kind=regression", "task.label=length", "train.label_smoothing=0.1"), 78,
                          "[train.no_smoothing]")
        lines = metrics(self.tuned("number", 0, *MODEL, "task.kind=regression", "task.label=length", "task.pool=mean", "train.steps=60"))
        self.assertLess(lines[-1]["valid_loss"], 0.3 * lines[0]["loss"])
        self.assertNotIn("valid_accuracy", lines[-1])
        page = pathlib.Path(self.at("number"), "index.html").read_text(encoding="utf-8")
        self.assertIn("<dd>Mean squared error of a prediction", page)
        self.assertIn(f"<dt>Validation corpus</dt><dd>{self.at('valid.h5')}</dd>", page)
        self.assertNotRegex(page, "likelihood|nats|label_smoothing|an ensemble|run.seed</code>: the shaded")

    def test_a_hugging_face_folder_comes_back_as_it_went(self):
        for name, keys in (("classes", MODEL), ("roberta", ["model.kind=roberta", "model.first_position=1", *MODEL[1:]]),
                           ("value", [*MODEL, "task.kind=regression", "task.label=length"])):
            tuned = self.tuned(f"hf-{name}", 0, *keys, "train.steps=1")
            self.must(["bagpipe-data", "export", tuned, "--out", self.at(f"{name}-folder")])
            self.must(["bagpipe-data", "import", self.at(f"{name}-folder"), "--out", self.at(f"{name}-back")])
            self.must(["bagpipe-data", "export", self.at(f"{name}-back"), "--out", self.at(f"{name}-again")])
            for file in ("config.json", "model.safetensors"):
                self.assertEqual(pathlib.Path(self.at(f"{name}-folder"), file).read_bytes(),
                                 pathlib.Path(self.at(f"{name}-again"), file).read_bytes(), file)
            config = read_json(self.at(f"{name}-folder"), "config.json")
            self.assertIn("ForSequenceClassification", config["architectures"][0])
            self.assertEqual(config["id2label"], {"0": "LABEL_0"} if name == "value" else {"0": "sea", "1": "town", "2": "wood"})

    def test_what_is_wrong_with_labels_is_said(self):
        rows = [{"text": "the ship was at sea", "topic": kind} for kind in ("sea", "sea", "sea", "wood")]
        self.corpus("other", [*rows, {"text": "a of and", "topic": "moon"}])
        self.corpus("alike", rows[:3])
        self.corpus("none", [{"text": "the ship"}])
        self.corpus("odd", [{"text": "the ship", "topic": value} for value in ("1", "nan")])
        self.corpus("two", [{"text": "the ship was", "topic": "a", "genre": "b"}] * 2)
        self.assert_error(self.finetune("e1", 0, *MODEL, f"corpus.valid={self.at('other.h5')}"), 65, "[task.unknown_class]", "moon")
        self.assert_error(self.finetune("e2", 0, *MODEL, f"corpus.train={self.at('alike.h5')}"), 65, "[task.one_class]", "sea")
        self.assert_error(self.finetune("e3", 0, *MODEL, f"corpus.train={self.at('none.h5')}"), 65, "[corpus.no_column]")
        self.assert_error(self.finetune("e4", 0, *MODEL, "task.kind=regression", f"corpus.train={self.at('odd.h5')}"), 65, "[task.bad_value]", "nan")
        self.corpus("bare", [{"text": "the ship", "id": "0"}])
        self.write("bare.ini", "[corpus]\ntrain = %s\n[math]\nprecision = f32\n" % self.at("bare.h5"))
        self.assert_error(run([bagpipe_test.program("bagpipe"), "finetune", self.at("bare.ini"), f"run.dir={self.at('e5')}", *TUNE, *MODEL]), 65,
                          "[task.no_label]")
        self.write("bare.ini", "[corpus]\ntrain = %s\n[math]\nprecision = f32\n" % self.at("two.h5"))
        self.assert_error(run([bagpipe_test.program("bagpipe"), "finetune", self.at("bare.ini"), f"run.dir={self.at('e5')}", *TUNE, *MODEL]), 78,
                          "[task.several_labels]")
        self.assert_error(self.finetune("e6", 0, *MODEL, "task.frozen_layers=3"), 78, "[task.too_many_layers]")
        self.assert_error(self.finetune("e7", 0, "model.kind=lstm", *MODEL[1:3], MODEL[4]), 78, "[task.no_backbone]")
        self.assert_error(self.finetune("e8", 0, f"model.init={self.at('pretrained')}", "task.frozen_layers=1", "adapter.kind=lora"), 78,
                          "[task.frozen_adapters]")
        self.assert_error(self.finetune("e9", 0, *MODEL, "model.context=3"), 78, "[task.short_context]")
        result = self.finetune("rare", 0, *MODEL, f"corpus.train={self.at('other.h5')}", "train.batch=2", "train.steps=1")
        self.assert_error(result, 65, "[task.unknown_class]", "town")
        result = self.finetune("rare", 0, *MODEL, f"corpus.train={self.at('other.h5')}", "corpus.valid=", "train.batch=2", "train.steps=1")
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[task.rare_class]")

    def test_a_list_of_labels_takes_what_training_never_saw(self):
        labels = self.write("labels.txt", "wood\r\n\nmoon\ntown\nsea\n")
        rows = [json.loads(line) for line in pathlib.Path(self.at("valid.jsonl")).read_text(encoding="utf-8").splitlines()]
        self.corpus("with-moon", [*rows, {**rows[0], "topic": "moon"}])
        keys = [*MODEL, f"corpus.valid={self.at('with-moon.h5')}", "task.pool=mean", "optimizer.lr=5e-3", "train.steps=80", "train.log_every=20"]
        tuned = self.tuned("listed", 2, *keys, f"task.labels={labels}")
        order = ["wood", "moon", "town", "sea"]
        self.assertEqual((read_json(tuned, "task.json")["labels"], state_of(tuned)["model"]["labels"]), (order, order))
        self.assertIn(f"labels = {labels}", pathlib.Path(tuned, "config.ini").read_text(encoding="utf-8"))
        result = run([bagpipe_test.program("bagpipe"), "score", self.at("tune.ini"), f"run.dir={self.at('listed-score')}", f"score.model={tuned}",
                      f"score.corpus={self.at('with-moon.h5')}"])
        self.assertEqual(result.status, 0, str(result))
        task = read_json(self.at("listed-score"), "score", "summary.json")["task"]
        confusion = numpy.array(task["confusion"])
        self.assertEqual((task["labels"], confusion[1].sum(), confusion[1, 1], confusion.sum()), (order, 1, 0, len(rows) + 1))
        self.assertAlmostEqual(task["accuracy"]["value"], numpy.trace(confusion) / (len(rows) + 1), 12)
        self.assertAlmostEqual(task["accuracy"]["value"], metrics(tuned)[-1]["valid_accuracy"], 9)
        other = self.write("labels.txt", "sea\nmoon\ntown\nwood\n")
        self.assert_error(self.finetune("listed", 2, *keys, "train.steps=90", f"task.labels={other}"), 78, "task.labels", "[run.other_keys]")

    def test_lists_of_labels_that_do_not_fit_are_refused(self):
        self.corpus("moons", [{"text": "a of and", "topic": topic} for topic in ("moon", "star")])
        everything = self.write("everything.txt", "moon\nsea\nstar\ntown\nwood\n")
        for name, text, word in (("lacking", "sea\nwood\n", "[task.unlisted_label]"), ("twice", "sea\nwood\ntown\nsea\n", "[task.repeated_label]"),
                                 ("alone", "sea\n", "[task.one_class]"), ("zero", "sea\nwo\0od\n", "[task.bad_label]")):
            path = self.write(f"{name}.txt", text)
            for ranks in (0, 2):
                self.assert_error(self.finetune("unlisted", ranks, *MODEL, f"task.labels={path}"), 65, word, path)
        self.assert_error(self.finetune("unlisted", 0, *MODEL, f"task.labels={self.at('gone.txt')}"), 66, "[file.missing]")
        self.assert_error(self.finetune("unlisted", 0, *MODEL, f"task.labels={everything}", f"corpus.valid={self.at('moons.h5')}"), 65,
                          "[task.no_shared_label]", "moons.h5")
        self.assert_error(self.finetune("unlisted", 0, *MODEL, f"task.labels={everything}", "task.kind=regression"), 78, "[task.unused_key]")

    def test_a_tokenizer_without_the_tokens_of_a_pair_is_refused(self):
        self.must(["bagpipe-data", "tokenizer", "--kind", "word", "--out", self.at("plain.json"), self.at("train.jsonl")])
        self.corpus("plain", [{"text": "the ship", "topic": topic} for topic in ("a", "b")], "plain.json")
        self.assert_error(self.finetune("plain", 0, *MODEL, f"corpus.train={self.at('plain.h5')}", "corpus.valid="), 78, "[corpus.no_special_token]")

    def test_long_texts_are_cut_and_counted(self):
        result = self.finetune("long", 0, *MODEL, "model.context=10", "train.steps=1")
        self.assertEqual(result.status, 0, str(result))
        self.assertIn("tokens are cut", result.out)
        task = read_json(self.at("long"), "task.json")
        expected = [max(0, int(json.loads(line)["length"]) - 8)
                    for line in pathlib.Path(self.at("train.jsonl")).read_text(encoding="utf-8").splitlines()]
        self.assertEqual((task["documents_cut"], task["tokens_cut"]), (sum(n > 0 for n in expected), sum(expected)))
        lengths = [int(json.loads(line)["length"]) + 2 for line in pathlib.Path(self.at("train.jsonl")).read_text(encoding="utf-8").splitlines()]
        self.assertAlmostEqual(task["padding"], 1 - sum(min(n, 10) for n in lengths) / (10 * len(lengths)), 9)


if __name__ == "__main__":
    bagpipe_test.main()
