"""bagpipe-data leakage against plain Python: copies of windows, runs of tokens, exposures; a model that was made to remember; any number of ranks."""
import json
import math
import os
import random

import numpy as np
import scipy.stats

import bagpipe_test
from bagpipe_test import JobTest, program, read_json, run
from corpus_reader import read_corpus


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def has_run(document, tokens):
    n = len(tokens)
    return any(document[k:k + n] == tokens for k in range(len(document) - n + 1))


def longest_run(documents, tokens):
    """The longest run of tokens that a document has, by trying all."""
    best = 0
    for first in range(len(tokens)):
        while first + best < len(tokens) and any(has_run(document, tokens[first:first + best + 1]) for document in documents):
            best += 1
    return best


class Leakage(JobTest):
    TEXT_BYTES = 30_000

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(cls.at("train.txt"), encoding="utf-8") as file:
            lines = [line for line in file.read().splitlines() if len(line) > 60]
        cls.lines = lines[:30] + [lines[0]] * 3 + [lines[1] + " " + lines[2], lines[3] + " and so on"]
        cls.write("few.txt", "\n".join(cls.lines) + "\n")
        cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "lines", "--out", cls.at("few.h5"), cls.at("few.txt")])
        cls.documents, _, attributes, _ = read_corpus(cls.at("few.h5"))
        cls.eod = int(attributes["eod_id"])

    def leakage(self, *arguments, ranks=0):
        return self.must(["bagpipe-data", "leakage", *arguments], ranks).out

    def outputs(self, name, rows, model="d"):
        """A run of generate that wrote these tokens for its prompts."""
        os.makedirs(self.at(f"{name}/generate"), exist_ok=True)
        with open(self.at(f"{name}/generate/outputs.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"index": index, "prompt": "p", "text": "t", "tokens": tokens}) + "\n" for index, tokens in rows)
        with open(self.at(f"{name}/generate/summary.json"), "w", encoding="utf-8") as file:
            json.dump({"model": {"digest": model, "step": 1, "members": 0}}, file)
        return self.at(name)

    def test_prompts_are_windows_of_the_corpus_with_all_their_copies(self):
        self.leakage("prompts", self.at("few.h5"), "--lengths", "3,6", "--continuation", "5", "--count", "12", "--out", self.at("cut"))
        rows = lines_of(self.at("cut/prompts.jsonl"))
        texts = [document[:-1] if document[-1] == self.eod else document for document in self.documents]
        windows = {}
        for text in texts:
            for k in range(len(text) - 10):
                windows[tuple(text[k:k + 11])] = windows.get(tuple(text[k:k + 11]), 0) + 1
        groups, places = {}, set()
        for short, long in zip(rows[::2], rows[1::2]):
            self.assertEqual((short["length"], long["length"], short["continuation"], long["tokens"][3:]), (3, 6, long["continuation"], short["tokens"]))
            d = int(long["document"].split(":")[1]) - 1
            at = long["at"]
            self.assertEqual(texts[d][at - 6:at + 5], long["tokens"] + long["continuation"])
            self.assertEqual(long["document_tokens"], len(texts[d]))
            self.assertEqual(long["copies"], windows[tuple(long["tokens"] + long["continuation"])])
            self.assertFalse([k for k in range(at - 16, at + 17) if (d, k) in places and abs(k - at) < 11])
            places.add((d, at))
            groups[math.ceil(math.log2(long["copies"]))] = groups.get(math.ceil(math.log2(long["copies"])), 0) + 1
        self.assertEqual(set(groups), {math.ceil(math.log2(copies)) for copies in windows.values()})
        self.assertEqual(groups[0], 12)
        self.leakage("prompts", self.at("few.h5"), "--lengths", "4", "--continuation", "3", "--position", "start", "--out", self.at("starts"))
        for row in lines_of(self.at("starts/prompts.jsonl")):
            self.assertEqual(row["at"], 4)

    def test_runs_of_tokens_are_those_of_trying_all_on_any_ranks(self):
        draw = random.Random(1)
        rows = []
        for index in range(60):
            for _ in range(draw.randrange(1, 3)):
                tokens = []
                while len(tokens) < 14:
                    document = draw.choice(self.documents)
                    first = draw.randrange(len(document))
                    tokens += document[first:first + draw.randrange(1, 9)] if draw.random() < 0.8 else [draw.randrange(509)]
                rows.append((index, tokens[:draw.randrange(0, 15)]))
        runs = [self.outputs("r1", rows), self.outputs("r2", rows[:30], "e")]
        ask = ["measure", self.at("few.h5"), "--outputs", runs[0], "--outputs", runs[1], "--out"]
        self.leakage(*ask, self.at("m1"))
        lines = lines_of(self.at("m1/continuations.jsonl"))
        for name, rows_of in (("r1", rows), ("r2", rows[:30])):
            for line in (line for line in lines if line["run"] == name):
                mine = [tokens for index, tokens in rows_of if index == line["index"]]
                found = [longest_run(self.documents, tokens) for tokens in mine]
                self.assertEqual((line["texts"], line["corpus_run"], line["whole"]),
                                 (len(mine), max(found, default=0), any(k == len(t) and k >= 10 for k, t in zip(found, mine))))
        report = read_json(self.at("m1"), "leakage.json")
        mean = np.mean([line["corpus_run"] for line in lines if line["run"] == "r1"])
        self.assertAlmostEqual(report["models"][0]["all"]["corpus_run_tokens"]["value"], mean, places=9)
        self.assertEqual([model["model"]["digest"] for model in report["models"]], ["d", "e"])
        for ranks in (2, 3):
            self.leakage(*ask, self.at(f"m{ranks}"), ranks=ranks)
            for file in ("leakage.json", "continuations.jsonl"):
                with open(self.at(f"m1/{file}"), "rb") as one, open(self.at(f"m{ranks}/{file}"), "rb") as other:
                    self.assertEqual(one.read(), other.read())

    def test_a_model_that_remembers_is_found_out(self):
        self.must(["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={self.at('learnt')}", f"corpus.train={self.at('few.h5')}", "corpus.valid=", "train.steps=400", "model.kind=llama", "model.width=64", "train.log_every=50"])
        self.leakage("prompts", self.at("few.h5"), "--lengths", "3,8", "--continuation", "8", "--count", "30", "--out", self.at("cut2"))
        prompts = lines_of(self.at("cut2/prompts.jsonl"))
        self.must(["bagpipe", "generate", self.at("small.ini"), f"run.dir={self.at('wrote')}", f"generate.model={self.at('learnt')}", f"generate.prompts={self.at('cut2/prompts.jsonl')}", "generate.tokens=8", "generate.prefix=none"])
        self.leakage("measure", self.at("few.h5"), "--prompts", self.at("cut2"), "--outputs", self.at("wrote"), "--out", self.at("found"))
        report, lines = read_json(self.at("found"), "leakage.json"), lines_of(self.at("found/continuations.jsonl"))
        wrote = {line["index"]: line["tokens"] for line in lines_of(self.at("wrote/generate/outputs.jsonl"))}
        for line, prompt in zip(lines, prompts):
            tokens, source = wrote[line["index"]], prompt["continuation"]
            prefix = next((k for k, (a, b) in enumerate(zip(tokens, source)) if a != b), min(len(tokens), len(source)))
            self.assertEqual((line["prefix"], line["extracted"], line["source_run"]), (prefix, prefix == 8, longest_run([source], tokens)))
        (model,) = report["models"]
        for length in ("3", "8"):
            mine = [line["extracted"] for line in lines if line["length"] == int(length)]
            row = model["lengths"][length]
            self.assertEqual((row["prompts"], row["extracted"]), (len(mine), sum(mine)))
            low, high = scipy.stats.binomtest(sum(mine), len(mine)).proportion_ci(method="wilson")
            self.assertAlmostEqual(row["share"]["low"], low, places=6)
            self.assertAlmostEqual(row["share"]["high"], high, places=6)
        self.assertGreater(model["lengths"]["8"]["share"]["value"], 0.25)  # of what it was shown in windows that begin elsewhere
        self.assertGreater(model["lengths"]["8"]["extracted"], model["lengths"]["3"]["extracted"])
        self.assertEqual(sum(row["prompts"] for row in model["copies"].values()), len(lines))
        with open(self.at("found/index.html"), encoding="utf-8") as file:
            page = file.read()
        self.assertIn("leakage measure", page)
        self.assertNotIn("http", page)
        text = self.must(["bagpipe-data", "card", self.at("learnt"), self.at("found")]).out
        self.assertIn("of prompts of 8 tokens", text)
        card = run([program("bagpipe-data"), "card", self.trained("another", 0, "train.steps=1"), self.at("found")])
        self.assertIn("[card.other_model]", card.err)

    def test_canaries_are_planted_and_their_exposure_is_their_rank(self):
        self.leakage("canaries", self.at("few.txt"), "--format", "lines", "--count", "8", "--copies", "1,3", "--references", "300", "--pattern", "code @@ is ######", "--out", self.at("can"))
        planted, candidates, canaries = lines_of(self.at("can/train.jsonl")), lines_of(self.at("can/candidates.jsonl")), read_json(self.at("can"), "canaries.json")
        self.assertEqual([line["text"] for line in planted if not line["id"].startswith("planted")], self.lines)
        texts = [line["text"] for line in planted]
        for k, canary in enumerate(canaries["canaries"]):
            self.assertRegex(canary["text"], r"^code [a-z]{2} is \d{6}$")
            self.assertEqual((canary["copies"], texts.count(canary["text"])), ((1, 3)[k % 2],) * 2)
            self.assertEqual(candidates[k], {"id": f"canary-{k}", "text": canary["text"]})
        self.assertEqual(len({line["text"] for line in candidates}), 308)
        self.assertAlmostEqual(canaries["bits"], 2 * math.log2(26) + 6 * math.log2(10))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--out", self.at("can.h5"), self.at("can/candidates.jsonl")])
        self.trained("plain")
        self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={self.at('can-scored')}", f"score.model={self.at('plain')}", f"score.corpus={self.at('can.h5')}"])
        self.leakage("exposure", "--canaries", self.at("can"), "--scores", self.at("can-scored"), "--out", self.at("exposed"))
        import h5py
        with h5py.File(self.at("can-scored/score/documents.h5")) as file:
            nll = dict(zip((one.decode() for one in file["doc_id"][:]), file["nll"][:]))
        references = sorted(value for name, value in nll.items() if name.startswith("reference"))
        (model,) = read_json(self.at("exposed"), "exposure.json")["models"]
        rest = model["rest"]
        skew = scipy.stats.skewnorm(rest["slope"], rest["place"], rest["scale"])
        mean, variance, third = skew.stats("mvs")
        self.assertAlmostEqual(float(mean), np.mean(references), places=6)
        self.assertAlmostEqual(float(variance), np.var(references), places=5)
        self.assertAlmostEqual(float(third), np.clip(scipy.stats.skew(references), -0.99, 0.99), places=5)
        for row in model["canaries"]:
            rank = 1 + sum(value <= nll[row["id"]] for value in references)
            self.assertEqual(row["rank"], rank)
            self.assertAlmostEqual(row["exposure"], math.log2(301 / rank))
            self.assertAlmostEqual(row["fitted"], min(-skew.logcdf(nll[row["id"]]) / math.log(2), canaries["bits"]), places=3)
        copies, fitted = zip(*((row["copies"], row["fitted"]) for row in model["canaries"]))
        self.assertAlmostEqual(model["spearman_of_copies"], scipy.stats.spearmanr(copies, fitted)[0], places=9)
        self.assertEqual([(row["copies"], row["canaries"]) for row in model["levels"]], [(1, 4), (3, 4)])
        self.assertAlmostEqual(model["levels"][1]["exposure"]["value"], np.mean([row["exposure"] for row in model["canaries"] if row["copies"] == 3]))
        self.assertIsNone(model["levels"][0]["exposure"]["low"])  # of fewer than 10
        self.assertIn("Exposure of canaries", self.must(["bagpipe-data", "card", self.at("plain"), self.at("exposed")]).out)

    def test_bad_input(self):
        few = self.at("few.h5")
        self.outputs("ok", [(0, [1, 2])])
        self.outputs("bad", [(0, ["x"])])
        self.outputs("descends", [(1, [1]), (0, [1])])
        self.leakage("prompts", few, "--lengths", "3", "--continuation", "3", "--count", "1", "--out", self.at("one"))
        self.leakage("canaries", "--count", "2", "--references", "10", "--out", self.at("two"))
        self.outputs("more", [(k, [1]) for k in range(9)])
        out = ["--out", self.at("bad-out")]
        for arguments, status, identifier in (
                (["dance", few, *out], 64, "command.bad_value"), (["prompts", *out], 64, "command.no_input"), (["prompts", few], 64, "command.bad_value"), (["prompts", few, "--lengths", "5,5", *out], 64, "command.bad_value"),
                (["prompts", few, "--position", "end", *out], 64, "command.bad_value"), (["prompts", few, "--lengths", "400", *out], 65, "leakage.short_documents"), (["prompts", self.at("none.h5"), *out], 66, "file.missing"),
                (["measure", few, *out], 64, "command.bad_value"), (["measure", few, "--outputs", self.at("none"), *out], 66, "outputs.missing"), (["measure", few, "--outputs", self.at("bad"), *out], 65, "outputs.bad_line"),
                (["measure", few, "--outputs", self.at("descends"), *out], 65, "outputs.bad_line"), (["measure", few, "--outputs", self.at("more"), "--prompts", self.at("one"), *out], 65, "leakage.other_prompts"),
                (["canaries", "--pattern", "a#", *out], 64, "command.bad_value"), (["exposure", "--canaries", self.at("two"), *out], 64, "command.bad_value"), (["exposure", "--canaries", self.at("one"), "--scores", self.at("ok"), *out], 66, "file.missing")):
            for ranks in (0, 2):
                result = run([program("bagpipe-data"), "leakage", *arguments], ranks)
                self.assertEqual(result.status, status, result)
                self.assertEqual(len(result.lines("error")), 1, result)
                self.assertIn(f"[{identifier}]", result.err)
                self.assertFalse(os.path.exists(self.at("bad-out")), arguments)


if __name__ == "__main__":
    bagpipe_test.main()
