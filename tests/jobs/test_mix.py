"""bagpipe-data mix: weights by expectation maximisation against a direct search, the scores of a mixture against numpy, and what compare
makes of them."""
import json
import os
import shutil
import subprocess

import h5py
import numpy

import bagpipe_test
from bagpipe_test import JobTest, TIMEOUT, environment, program, read_json, run


def golden(f, low, high, steps=200):
    """The least of a convex function between two places."""
    ratio = (numpy.sqrt(5) - 1) / 2
    for _ in range(steps):
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, b) if f(a) < f(b) else (a, high)
    return (low + high) / 2


class Mix(JobTest):
    TEXT_BYTES = 60_000
    KINDS = {"gpt": [], "lstm": ["model.heads=", "model.kind=lstm"], "bengio": ["model.heads=", "model.layers=", "model.kind=feedforward"]}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(cls.at("valid.txt"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        for name, part in (("dev", lines[::2]), ("test", lines[1::2])):
            rows = [json.dumps({"text": line, "id": f"{name}{k}", "half": "one" if k % 3 else "two"}) for k, line in enumerate(part)]
            cls.write(name + ".jsonl", "\n".join(rows) + "\n")
            cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "jsonl", "--label", "half", "--out",
                      cls.at(name + ".h5"), cls.at(name + ".jsonl")])
        for kind, keys in cls.KINDS.items():
            cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.at(kind)}", "model.layers=1", "train.steps=30", *keys])
            for name in ("dev", "test"):
                cls.score(f"{kind}-{name}", kind, name)

    @classmethod
    def score(cls, name, model, corpus, *keys):
        cls.must(["bagpipe", "score", cls.at("small.ini"), f"run.dir={cls.at(name)}", f"score.model={cls.at(model)}",
                  f"score.corpus={cls.at(corpus + '.h5')}", "score.tokens=yes", "score.end=yes", *keys])

    def test_folders_of_any_names(self):
        """mix and compare --json tell folders whose names are no UTF-8, and a training may lie in one."""
        odd = os.fsencode(self.at("")) + b"caf\xe9"

        def call(*words):
            process = subprocess.run([os.fsencode(word) for word in words], env=environment(), capture_output=True, timeout=TIMEOUT, check=False)
            self.assertEqual(process.returncode, 0, process)
            return process.stdout

        shutil.copytree(os.fsencode(self.at("gpt-dev")), odd + b"-dev")
        call(program("bagpipe-data"), "mix", odd + b"-dev", self.at("lstm-dev"), "--out", self.at("odd-mix.json"))
        self.assertTrue(read_json(self.at("odd-mix.json"))["models"][0]["folder"].endswith("caf\\xE9-dev"))
        call(program("bagpipe-data"), "mix", "--weights", self.at("odd-mix.json"), odd + b"-dev", self.at("lstm-dev"), "--out", odd + b"-mix")
        call(program("bagpipe-data"), "compare", "--json", self.at("odd.json"), odd + b"-dev", self.at("lstm-dev"))
        self.assertIn("caf\\xE9-dev", json.dumps(read_json(self.at("odd.json"))).replace("\\\\", "\\"))
        call(program("bagpipe"), "pretrain", self.at("small.ini"), b"run.dir=" + odd, "train.steps=4")
        call(program("bagpipe"), "pretrain", self.at("small.ini"), b"run.dir=" + odd, "train.steps=8")
        call(program("bagpipe"), "score", self.at("small.ini"), b"run.dir=" + odd + b"-s", b"score.model=" + odd, "score.corpus=" + self.at("dev.h5"))
        with open(odd + b"-s/score/summary.json", encoding="utf-8") as file:
            self.assertIn("perplexity", json.load(file))

    def logprobs(self, folder):
        with h5py.File(os.path.join(folder, "tokens.h5")) as file:
            values = file["logprob"][:].astype(numpy.float64)
        return values[~numpy.isnan(values)]

    def fitted(self, out, *names):
        self.must(["bagpipe-data", "mix", *(self.at(name) for name in names), "--out", self.at(out)])
        return read_json(self.at(out))

    def test_weights_are_those_of_a_direct_search(self):
        names = [f"{kind}-dev" for kind in self.KINDS]
        p = [numpy.exp(self.logprobs(os.path.join(self.at(name), "score"))) for name in names]
        for a, b in ((0, 1), (1, 2), (0, 2)):
            found = self.fitted("two.json", names[a], names[b])
            want = golden(lambda w: -numpy.log(w * p[a] + (1 - w) * p[b]).mean(), 0, 1)
            weights = [model["weight"] for model in found["models"]]
            self.assertAlmostEqual(weights[0], want, delta=2e-4)
            nll = -numpy.log(weights[0] * p[a] + weights[1] * p[b])
            self.assertAlmostEqual(found["nll_nats"], nll.sum(), delta=1e-6 * nll.sum())
            self.assertLessEqual(nll.mean(), -numpy.log(want * p[a] + (1 - want) * p[b]).mean() + 1e-9)
            self.assertLessEqual(found["perplexity"], min(model["perplexity"] for model in found["models"]))
        found = self.fitted("three.json", *names)
        weights = numpy.array([model["weight"] for model in found["models"]])
        self.assertAlmostEqual(weights.sum(), 1, delta=1e-12)
        mixed = weights @ p
        self.assertLess(max((q / mixed).mean() for q in p), 1 + 1e-9)  # no weights are better by more than the log of that
        self.assertLessEqual(found["gap_nats"], 1e-10)
        for name, model in zip(names, found["models"], strict=True):
            self.assertAlmostEqual(model["perplexity"], read_json(self.at(name), "score", "summary.json")["perplexity"], delta=1e-6)

    def test_a_model_that_is_never_better_gets_nothing(self):
        found = self.fitted("same.json", "gpt-dev", "gpt-dev")
        self.assertEqual(found["perplexity"], found["models"][0]["perplexity"])
        self.must(["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={self.at('raw')}", "train.steps=1", "optimizer.lr=0"])
        self.score("raw-dev", "raw", "dev")
        found = self.fitted("raw.json", "gpt-dev", "raw-dev")
        self.assertLessEqual(found["perplexity"], found["models"][0]["perplexity"])
        self.assertGreater(found["models"][0]["weight"], 0.9)

    def test_a_mixture_is_a_score_folder(self):
        names = [f"{kind}-test" for kind in self.KINDS]
        weights = [model["weight"] for model in self.fitted("w.json", *(f"{kind}-dev" for kind in self.KINDS))["models"]]
        self.must(["bagpipe-data", "mix", "--weights", self.at("w.json"), *(self.at(name) for name in names), "--out", self.at("mixed")])
        want = numpy.log(weights @ numpy.exp([self.logprobs(os.path.join(self.at(name), "score")) for name in names]))
        numpy.testing.assert_allclose(self.logprobs(self.at("mixed")), want, atol=1e-6)
        summary, first = read_json(self.at("mixed"), "summary.json"), read_json(self.at(names[0]), "score", "summary.json")
        self.assertAlmostEqual(summary["nll_nats"], -want.sum(), delta=1e-3)
        for key in ("documents", "tokens", "bytes", "words", "words_split", "convention"):
            self.assertEqual(summary[key], first[key])
        self.assertEqual(sorted(summary["labels"]["half"]), ["one", "two"])
        halves = [summary["labels"]["half"][half] for half in ("one", "two")]
        self.assertAlmostEqual(sum(half["nll_nats"] for half in halves), summary["nll_nats"], delta=1e-9)
        self.assertEqual(summary["corpora"]["test"]["perplexity"], summary["perplexity"])
        for file in ("documents.h5", "tokens.h5"):
            self.must(["bagpipe-data", "verify", os.path.join(self.at("mixed"), file)])
        self.must(["bagpipe-data", "compare", self.at(names[1]), self.at("mixed"), "--json", self.at("c.json")])
        compared = read_json(self.at("c.json"))
        self.assertEqual(compared["texts_checked_by"], "token_hash")
        self.assertEqual(compared["unit"], "token")
        self.assertAlmostEqual(compared["all"]["perplexity_b"], summary["perplexity"], delta=1e-9)
        self.assertLess(compared["all"]["ratio"], 1)
        again = self.fitted("again.json", "mixed", names[0])  # a mixture may be mixed with another
        self.assertAlmostEqual(again["models"][0]["perplexity"], summary["perplexity"], delta=1e-6)
        self.assertLessEqual(again["perplexity"], min(model["perplexity"] for model in again["models"]))
        alone = self.at("one.json")  # all weight on one: its own figures
        copy = read_json(self.at("w.json"))
        for model, weight in zip(copy["models"], (1, 0, 0), strict=True):
            model["weight"] = weight
        with open(alone, "w", encoding="utf-8") as file:
            json.dump(copy, file)
        self.must(["bagpipe-data", "mix", "--weights", alone, *(self.at(name) for name in names), "--out", self.at("alone")])
        reported = read_json(self.at("alone"), "summary.json")
        for key in ("nll_nats", "perplexity", "perplexity_stderr", "perplexity_stderr_documents", "bits_per_byte", "labels", "corpora"):
            self.assertEqual(reported[key], first[key], key)

    def refused(self, status, words, *arguments):
        result = run([program("bagpipe-data"), "mix", *arguments])
        self.assert_error(result, status, words)

    def test_what_does_not_go_together_is_refused(self):
        gpt, lstm, out = self.at("gpt-dev"), self.at("lstm-dev"), self.at("never.json")
        self.refused(64, "[command.wrong_count]", gpt, "--out", out)
        self.refused(64, "[command.no_output]", gpt, lstm)
        self.refused(66, "[scores.missing]", gpt, self.at("nowhere"), "--out", out)
        self.refused(65, "[compare.other_texts]", gpt, self.at("lstm-test"), "--out", out)
        self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={self.at('plain')}", f"score.model={self.at('gpt')}",
                   f"score.corpus={self.at('dev.h5')}"])
        self.refused(66, "[scores.no_tokens]", self.at("plain"), self.at("plain"), "--out", out)
        self.score("noend", "gpt", "dev", "score.end=no")
        self.refused(65, "[mixture.other_tokens]", gpt, self.at("noend"), "--out", out)
        self.must(["bagpipe-data", "tokenizer", "--kind", "bpe", "--size", "400", "--out", self.at("other.json"), self.at("train.txt")])
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("other.json"), "--format", "jsonl", "--out", self.at("other.h5"),
                   self.at("dev.jsonl")])
        os.makedirs(self.at("elsewhere"), exist_ok=True)
        os.replace(self.at("other.h5"), self.at("elsewhere/dev.h5"))
        self.must(["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={self.at('third')}", "train.steps=1", "corpus.valid=",
                   f"corpus.train={self.at('elsewhere/dev.h5')}"])
        self.score("third-dev", "third", "elsewhere/dev")
        self.refused(65, "[mixture.other_tokens]", gpt, self.at("third-dev"), "--out", out)
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--out", self.at("void.h5"), self.write("void.txt", "")])
        self.score("void", "gpt", "void", "score.end=no")
        self.refused(65, "[mixture.no_tokens]", self.at("void"), self.at("void"), "--out", out)
        self.assertFalse(os.path.exists(out))

    def test_weights_that_are_wrong_are_refused(self):
        self.fitted("pair.json", "gpt-dev", "lstm-dev")
        gpt, lstm, out = self.at("gpt-test"), self.at("lstm-test"), self.at("never")
        pair = self.at("pair.json")
        self.refused(65, "[mixture.other_models]", "--weights", pair, lstm, gpt, "--out", out)
        self.refused(65, "[mixture.other_models]", "--weights", pair, gpt, lstm, gpt, "--out", out)
        self.refused(66, "[file.missing]", "--weights", self.at("never.json"), gpt, lstm, "--out", out)
        self.refused(65, "[mixture.bad_weights]", "--weights", self.write("odd.json", "{}"), gpt, lstm, "--out", out)
        wrong = read_json(pair)
        wrong["models"][0]["weight"] /= 2
        self.refused(65, "[mixture.bad_weights]", "--weights", self.write("half.json", json.dumps(wrong)), gpt, lstm, "--out", out)
        self.refused(73, "[mixture.folder_exists]", "--weights", pair, gpt, lstm, "--out", self.at("gpt-dev"))
        self.assertFalse(os.path.exists(out))


if __name__ == "__main__":
    bagpipe_test.main()
