"""One small case of every kind of job, with the meshes whose results must not differ, and everything that it leaves which no clock,
no start and no stop may change: what storms of kills and tests of lost files go through."""
import csv
import json
import os
import random
import struct

from bagpipe_test import digests, metrics, program, steps, timeless
from fault_test import KindsOfJob, Start, best, content

STAGES = ("model.layers=4", "mesh.micro_batch=1", "train.steps=60")
MANY = ("ensemble.members=3", "ensemble.kind=both", "train.steps=24")
TASK = ("task.kind=classes", "task.label=topic", "train.batch=8", "train.steps=24", "corpus.train=@task.h5", "corpus.valid=@task-valid.h5")
SPANS = ("mesh.micro_batch=2", "corpus.bucket=4", "train.log_every=3")
SCORED = ("score.model=@model", "score.corpus=@valid.h5")
STUDY = ("uncertainty.models=one=@model,passes=@model:dropout,pair=@pair", "uncertainty.in_domain=@train.h5", "uncertainty.passes=3",
         "uncertainty.resamples=100", "uncertainty.temper_tokens=500")
PAIRS = ("model.kind=transformer", "corpus.train=@pairs.h5", "corpus.valid=@pairs.h5", "model.context=32", "train.steps=24", "train.valid_every=6")
ANY = [(2, ()), (0, ()), (3, ())]
DATA = [(2, ("mesh.data=2",)), (0, ()), (4, ("mesh.data=4",))]
ROLES = ("corpus.train=@roles.h5", "corpus.valid=@roles.h5", "train.steps=24", "model.dropout=0.1")
ELMO = ("model.kind=elmo", "model.heads=", "model.char_filters=1:4,2:8", "corpus.train=@words.h5", "corpus.valid=@words.h5", "train.steps=16")
TAGS = ("task.kind=tags", "train.batch=8", "train.steps=24", "corpus.train=@tags.h5", "corpus.valid=@tags.h5")
QUESTIONS = ("task.kind=spans", "train.batch=8", "train.steps=24", "corpus.train=@questions.h5", "corpus.valid=@questions.h5")
MANY_DOCUMENTS = 960  # of tasks: 30 work units
WAYS = {  # job, keys, and meshes (ranks, 0: without mpirun; keys), the first one for the job that is left alone
    "train": ("pretrain", (), DATA),
    "waiting": ("pretrain", ("checkpoint.async=no", "train.log_every=7"), DATA[:2]),
    "pipeline": ("pretrain", STAGES, [(2, ("mesh.pipeline=2",)), (4, ("mesh.pipeline=2", "mesh.data=2"))]),
    "interleaved": ("pretrain", STAGES + ("mesh.schedule=interleaved", "mesh.chunks=2"),
                    [(2, ("mesh.pipeline=2",)), (4, ("mesh.pipeline=2", "mesh.data=2"))]),
    "masked": ("pretrain", ("model.kind=roberta", "corpus.train=@roles.h5", "corpus.valid=@roles.h5", "train.steps=24", "train.log_every=5",
                            "model.first_position=1"), DATA[:2]),
    "tensor": ("pretrain", ("train.steps=24", "model.dropout=0.1"), [(2, ("mesh.tensor=2",)), (4, ("mesh.tensor=2", "mesh.data=2"))]),
    "both": ("pretrain", STAGES, [(4, ("mesh.tensor=2", "mesh.pipeline=2"))]),
    "llama": ("pretrain", ("model.kind=llama", "model.kv_heads=1", "train.steps=24"), DATA[:2]),
    "neox": ("pretrain", ("model.kind=gpt_neox", "train.steps=24"), DATA[:2]),
    "mamba2": ("pretrain", ("model.kind=mamba2", "train.steps=24"), DATA[:2]),
    "bert": ("pretrain", ("model.kind=bert", "mask.next_sentence=no") + ROLES, DATA[:2]),
    "electra": ("pretrain", ("model.kind=electra", "model.generator_width=8", "model.generator_heads=2", "model.embedding=16") + ROLES, DATA[:2]),
    "bart": ("pretrain", PAIRS + ("model.kind=bart",), DATA[:2]),
    "t5": ("pretrain", PAIRS + ("model.kind=t5",), DATA[:2]),
    "experts": ("pretrain", ("model.kind=mixtral", "model.experts=4", "model.experts_chosen=2", "model.experts_balance=0.1", "train.steps=24"),
                DATA + [(2, ("mesh.expert=2",)), (4, ("mesh.expert=2",)), (4, ("mesh.expert=4",))]),
    "recurrent": ("pretrain", ("model.kind=lstm", "model.heads=", "train.steps=40"), DATA[:2]),
    "ngram": ("pretrain", ("model.kind=ngram", "ngram.order=3", "train.steps=", "train.batch=", "model.layers=", "model.width=", "model.heads=",
                           "model.context="), ANY[:2]),
    "word2vec": ("pretrain", ("model.kind=word2vec", "model.layers=", "model.heads=", "train.steps=24"), ANY[:2]),
    "elmo": ("pretrain", ELMO, DATA[:2]),
    "seq2seq": ("pretrain", PAIRS, DATA[:2]),
    "bucket": ("pretrain", PAIRS + SPANS, DATA[:2]),
    "finetune": ("finetune", TASK, DATA[:2]),
    "tune_bucket": ("finetune", TASK + SPANS, DATA[:2]),
    "tags": ("finetune", TAGS, DATA[:2]),
    "spans": ("finetune", QUESTIONS, DATA[:2]),
    "score": ("score", SCORED + ("score.stride=1", "score.tokens=yes", "score.corpus=@train.h5"), ANY + [(2, ("mesh.pipeline=2",))]),
    "datastore": ("score", SCORED + ("score.states=yes", "score.stride=1", "score.corpus=@train.h5"), ANY),
    "states": ("score", ("score.model=@bilm", "score.corpus=@many-words.h5", "score.states=yes", "score.context=40", "score.mix=0,1"), ANY),
    "candidates": ("score", ("score.model=@model", "score.corpus=@contexts.h5", "score.candidates=@choices.jsonl"), ANY),
    "questions": ("score", ("score.model=@model", "score.questions=@quiz.jsonl", "score.questions_form=lm-eval"), ANY),
    "questions_ensemble": ("score", ("score.model=@pair", "score.questions=@quiz.jsonl"), ANY[:2]),
    "vectors": ("score", SCORED + ("score.vectors=mean", "score.vectors_norm=yes", "score.corpus=@train.h5"), ANY),
    "task": ("score", ("score.model=@tuned", "score.corpus=@many-texts.h5"), ANY[:2]),
    "task_tags": ("score", ("score.model=@tagger", "score.corpus=@many-tags.h5"), ANY[:2]),
    "task_spans": ("score", ("score.model=@reader", "score.corpus=@many-questions.h5"), ANY[:2]),
    "task_ensemble": ("score", ("score.model=@taggers", "score.corpus=@many-tags.h5"), ANY[:2]),
    "neighbours": ("score", SCORED + ("score.neighbours=@store/score/states.h5", "neighbours.k=4", "score.tokens=yes"), ANY[:2]),
    "score_ensemble": ("score", SCORED + ("score.model=@pair",), ANY[:2]),
    "explain": ("explain", ("explain.model=@model", "explain.corpus=@valid.h5",
                            "explain.methods=saliency,integrated,contrast,lens,attention,surrogate,shapley,counterfactual,faithfulness,"
                            "similarity,factors,memories", "explain.steps=3",
                            "explain.samples=12", "explain.edits=2", "explain.context=6"), ANY + [(2, ("mesh.pipeline=2",))]),
    "generate": ("generate", ("generate.model=@model", "generate.prompts=@prompts.txt"), ANY[:2]),
    "beams": ("generate", ("generate.model=@pair", "generate.prompts=@prompts.txt", "generate.strategy=beam", "generate.beams=3"), ANY[:2]),
    "ensemble": ("ensemble", MANY, [(2, ("mesh.members=2",)), (0, ()), (3, ("mesh.members=3",))]),
    "search": ("search", ("search.method=ranked", "search.space=model.layers=1,2;model.inner=16,32,48;model.heads=1,2", "search.trials=8",
                          "search.shared_steps=12", "search.final=2", "train.steps=8"),
               [(2, ("mesh.members=2",)), (0, ()), (2, ("mesh.data=2",))]),
    "bags_of_ngrams": ("ensemble", ("model.kind=ngram", "ngram.order=3", "ensemble.members=3", "train.steps=", "train.batch=", "model.layers=",
                                    "model.width=", "model.heads=", "model.context="), ANY[:2]),
    "uncertainty": ("uncertainty", STUDY, [(2, ("mesh.data=2",)), (0, ()), (3, ("mesh.coordinator=dedicated",))]),
    "task_uncertainty": ("uncertainty", ("uncertainty.models=one=@tuned,many=@tuneds", "uncertainty.in_domain=@many-texts.h5",
                                         "uncertainty.resamples=100", "corpus.valid=@task-valid.h5"),
                         [(2, ("mesh.data=2",)), (0, ())]),
    "conformal": ("uncertainty", ("uncertainty.models=one=@model,pair=@pair", "uncertainty.in_domain=@train.h5", "corpus.valid=@valid.h5",
                                  "uncertainty.resamples=100"), [(2, ("mesh.data=2",)), (0, ()), (3, ())]),
    "foreign": ("uncertainty", ("uncertainty.models=one=@tuned,members=@foreign.npy,table=@foreign.csv", "uncertainty.in_domain=@many-texts.h5",
                                "corpus.valid=@task-valid.h5", "uncertainty.resamples=100"), [(2, ("mesh.data=2",)), (0, ())]),
    "compare": ("bagpipe-data compare", ("@a", "@b", "--resamples", "2000"), [(2, ()), (0, ())]),
}
WITHOUT_CLOCK = {"seconds", "tokens_per_second", "mfu", "train_seconds", "fit_seconds", "score_seconds", "memory_mib", "hash"}
OF_A_START = {"run.json", "status.json", "events.jsonl", "log.txt", "config.ini", "halt", "lock", "stacks", "checkpoints", "metrics.jsonl"}


def clockless(value):
    if isinstance(value, dict):
        return {key: clockless(v) for key, v in value.items() if key not in WITHOUT_CLOCK}
    return [clockless(v) for v in value] if isinstance(value, list) else value


def whole_result(folder):
    """Everything of a finished run that must not depend on what happened to it, nor on its mesh: tensors, whole lines of metrics, and
    every other file; of pages only that they are there."""
    found = {}
    for at, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in OF_A_START]
        where = os.path.relpath(at, folder)
        for name in files:
            path = os.path.join(at, name)
            if name == "metrics.jsonl":
                found[os.path.join(where, name)] = timeless(metrics(at))
            elif name in OF_A_START or name.startswith("lock"):
                continue
            elif name.endswith((".html", ".svg")):
                found[os.path.join(where, name)] = "a page"
            elif name == "methods.csv":
                lines = list(csv.DictReader(content(path).decode().splitlines()))
                found[os.path.join(where, name)] = clockless(lines)
            elif name.endswith(".json"):
                found[os.path.join(where, name)] = clockless(json.loads(content(path)))
            else:
                found[os.path.join(where, name)] = content(path)
        if steps(at):
            found[os.path.join(where, "checkpoints")] = (digests(at), best(at), steps(at)[-1])
    return found


class EveryJob(KindsOfJob):
    """The inputs are made once, models as they are asked for."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.made = set()

    def corpus(self, name, kind, *more, tokenizer="tokenizer.json"):
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at(tokenizer), "--format", kind, *more[:-1], "--out", self.at(name + ".h5"),
                   *([self.at(more[-1])] if isinstance(more[-1], str) else [self.at(m) for m in more[-1]])])

    def need(self, *names):
        """Inputs by name; each is made at its first use."""
        for name in names:
            if name not in self.made:
                self.made.add(name)
                getattr(self, "make_" + name.replace("-", "_").split("/")[0].split(".")[0])()

    def make_model(self):
        self.done("pretrain", "model", "mesh.data=2", "train.steps=8")

    def make_other(self):
        self.done("pretrain", "other", "mesh.data=2", "train.steps=4", "run.seed=2")

    def make_bilm(self):
        self.done("pretrain", "bilm", *self.filled(ELMO), "mesh.data=2", "train.steps=4")

    def members(self, folder, *names):
        self.need(*names)
        os.mkdir(self.at(folder))
        self.write(folder + "/ensemble.json", json.dumps({"members": [{"name": name, "path": "../" + name} for name in names]}))

    def make_pair(self):
        self.members("pair", "model", "other")

    def make_prompts(self):
        self.write("prompts.txt", "rank node\ntensor sums\ntoken keeps word\nqueue\nmodel reads\n")

    def rows(self, name, count, seed):
        draw, words = random.Random(seed), {"town": ["rank", "node", "host"], "sea": ["token", "word", "text"]}
        rows = [{"text": " ".join(draw.choice(words[kind] + ["reads", "writes", "sends"]) for _ in range(2 + k % 9)), "topic": kind}
                for k in range(count // 2) for kind in words]
        self.write(name, "".join(json.dumps(row) + "\n" for row in rows))

    def make_task(self):
        for name, count, seed in (("task", 60, 1), ("task-valid", 16, 2)):
            self.rows(name + ".jsonl", count, seed)
            self.corpus(name, "jsonl", "--label", "topic", name + ".jsonl")

    def make_task_valid(self):
        self.need("task")

    def make_many_texts(self):
        self.rows("many-texts.jsonl", MANY_DOCUMENTS, 5)
        self.corpus("many-texts", "jsonl", "--label", "topic", "many-texts.jsonl")

    def make_tuned(self):
        self.need("task")
        self.done("finetune", "tuned", *self.filled(TASK), "train.steps=8")

    def make_tuned2(self):
        self.done("finetune", "tuned2", *self.filled(TASK), "train.steps=8", "run.seed=2")

    def make_tuneds(self):
        self.members("tuneds", "tuned", "tuned2")

    def make_foreign(self):
        """Predictions of others for many-texts: an array of three members, and a table."""
        draw, rows = random.Random(9), MANY_DOCUMENTS
        p = [[draw.uniform(0.1, 0.9) for _ in range(rows)] for _ in range(3)]
        head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': (3, {rows}, 2), }}"
        head += " " * (117 - len(head)) + "\n"
        with open(self.at("foreign.npy"), "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
            file.write(b"".join(struct.pack("<2d", x, 1 - x) for member in p for x in member))
        self.write("foreign.csv", "town,sea\n" + "".join(f"{x!r},{1 - x!r}\n" for x in p[0]))

    def tagged(self, name, count, seed):
        draw, kinds = random.Random(seed), {"rank": "B-place", "node": "B-place", "token": "B-thing"}
        words = [[draw.choice(["rank", "node", "token", "reads", "writes", "sends"]) for _ in range(2 + k % 7)] for k in range(count)]
        self.write(f"{name}.conll", "\n".join("".join(f"{word}\t{kinds.get(word, 'O')}\n" for word in line) for line in words))
        self.corpus(name, "conll", f"{name}.conll")

    def make_tags(self):
        self.tagged("tags", 60, 3)

    def make_many_tags(self):
        self.tagged("many-tags", MANY_DOCUMENTS, 6)

    def make_tagger(self):
        self.done("finetune", "tagger", *self.filled(TAGS), "train.steps=8")

    def make_tagger2(self):
        self.done("finetune", "tagger2", *self.filled(TAGS), "train.steps=8", "run.seed=2")

    def make_taggers(self):
        self.members("taggers", "tagger", "tagger2")

    def asked(self, name, count, seed):
        draw, asked = random.Random(seed), []
        for k in range(count):
            words = [draw.choice(["rank", "node", "reads", "writes", "sends"]) for _ in range(3 + k % 6)]
            at = draw.randrange(len(words))
            words[at] = "token"
            answer = {"text": "token", "answer_start": len(" ".join(words[:at] + [""]))}
            asked.append({"context": " ".join(words), "qas": [{"id": f"q{k}", "question": "what", "is_impossible": False, "answers": [answer]}]})
        self.write(f"{name}.json", json.dumps({"version": "v2.0", "data": [{"title": "", "paragraphs": asked}]}))
        self.corpus(name, "squad", f"{name}.json")

    def make_questions(self):
        self.asked("questions", 40, 4)

    def make_many_questions(self):
        self.asked("many-questions", MANY_DOCUMENTS, 7)

    def make_reader(self):
        self.done("finetune", "reader", *self.filled(QUESTIONS), "train.steps=8")

    def make_pairs(self):
        lines = [" ".join(line.split()[:2 + k % 5]) for k, line in enumerate(content(self.at("train.txt")).decode().splitlines()[:60])]
        self.write("pairs.src", "\n".join(lines) + "\n")
        self.write("pairs.tgt", "\n".join(" ".join(reversed(line.split())) for line in lines) + "\n")
        self.corpus("pairs", "pairs", ("pairs.src", "pairs.tgt"))

    def make_words(self):
        self.must(["bagpipe-data", "tokenizer", "--kind", "word", "--size", "40", "--out", self.at("words.json"), self.at("train.txt")])
        self.corpus("words", "lines", "valid.txt", tokenizer="words.json")

    def make_many_words(self):
        self.need("words")
        self.corpus("many-words", "lines", "train.txt", tokenizer="words.json")

    def make_roles(self):
        vocabulary = "[PAD] [UNK] [CLS] [SEP] [MASK] rank node tensor token corpus word model queue reads writes sends sums splits keeps".split()
        self.write("vocab.txt", "\n".join(vocabulary) + "\n")
        self.must(["bagpipe-data", "tokenizer", "--vocab", self.at("vocab.txt"), "--out", self.at("roles.json")])
        self.corpus("roles", "lines", "valid.txt", tokenizer="roles.json")

    def make_contexts(self):
        lines = [line.split() for line in 40 * content(self.at("valid.txt")).decode().splitlines()[:30]]  # some units of work
        self.write("contexts.jsonl", "".join(json.dumps({"text": " ".join(line[:3])}) + "\n" for line in lines))
        self.write("quiz.jsonl", "".join(json.dumps({"task": "words", "context": " ".join(line[:3]), "choices": [" " + word for word in line[3:6]],
                                                          "answer": 0}) + "\n" for line in lines))
        self.write("choices.jsonl", "".join(json.dumps({"choices": [" " + " ".join(line[3:5]), " " + line[6]], "answer": 0}) + "\n" for line in lines))
        self.corpus("contexts", "jsonl", "contexts.jsonl")

    def make_choices(self):
        self.need("contexts")

    make_quiz = make_choices

    def make_store(self):
        self.need("model")
        self.done("score", "store", *self.filled(SCORED), "score.states=yes")

    def make_a(self):
        self.need("model", "other")
        for name, model in (("a", "model"), ("b", "other")):
            self.done("score", name, f"score.model={self.at(model)}", f"score.corpus={self.at('valid.h5')}")

    def make_b(self):
        self.need("a")

    def make_train(self):
        pass

    make_valid = make_train

    def filled(self, keys):
        """`@name` is a file of this test's folder; it is made first."""
        out = []
        for key in keys:
            at = key.split("@")
            for part in at[1:]:
                self.need(part.split(",")[0].split(":")[0])
            out.append((self.folder + "/").join(at))
        return out

    def begin(self, kind, name, mesh=None, more=(), env=None):
        """Start a job of a kind."""
        job, keys, meshes = WAYS[kind]
        ranks, on = meshes[0] if mesh is None else mesh
        keys = self.filled(keys)
        if job.startswith("bagpipe-data"):
            type(self).serial += 1
            os.makedirs(self.at(name), exist_ok=True)
            outputs = ["--json", self.at(name + "/compare.json"), "--csv", self.at(name + "/compare.csv")]
            return Start(self.at(f"start-{self.serial}"), [program("bagpipe-data"), job.split()[1], *keys, *outputs], ranks=ranks, env=env)
        return self.start(job, name, *keys, *on, *more, ranks=ranks, env=env)

    def ended(self, kind, name, mesh=None):
        start = self.begin(kind, name, mesh)
        self.assertEqual(start.wait(), 0, str(start))
        return start
