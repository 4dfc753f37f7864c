"""Texts with noise: the program's examples are those of a twin, to the id; rates and lengths have the distributions that they should have; trainings on every mesh, and what is refused."""
import collections
import math
import os
import random
import subprocess

import scipy.stats

import bagpipe_test
from bagpipe_test import JobTest, digests, metrics, program, run, timeless
from english import english
from noise_numpy import END, FIRST_SENTINEL, MASKED, NAMES, Noise

SEED, FIRST_WORD = 3, 500
SIZES = ["model.kind=bart", "model.layers=2", "model.encoder_layers=1", "model.inner=44", "model.dropout=0.1", "model.context=24", "train.steps=6", "train.valid_every=3"]


def examples(inputs, places, kinds, rate=0.3, span=3.0, sentinels=0):
    """What the program makes of (step, slot, tokens, starts)."""
    bits = sum(1 << NAMES.index(kind) for kind in kinds)
    lines = "".join(" ".join(map(str, [step, slot, len(starts), *starts, *tokens])) + "\n" for step, slot, tokens, starts in inputs)
    out = subprocess.run([program("dump_noise"), str(SEED), str(places), str(bits), str(rate), str(span), str(sentinels)], input=lines, capture_output=True, text=True, check=True)
    return [[list(map(int, part.split())) for part in line.split("|")] for line in out.stdout.splitlines()]


def texts(count, most, sentences=True):
    """Runs of different words, of up to so many, in sentences."""
    draw = random.Random(1)
    for k in range(count):
        n = draw.randint(1, most) if most > 0 else -most
        starts = [0] + (sorted(draw.sample(range(1, n), min(n - 1, draw.randint(0, 5)))) if sentences else [])
        yield k // 7 + 1, k % 7, [FIRST_WORD + t for t in range(n)], starts


class Denoise(JobTest):
    def test_every_example_is_the_twin_s(self):
        for kinds, keys in ((["permute"], {}), (["mask"], {}), (["delete"], {"rate": 0.9}), (["infill"], {}), (["infill"], {"rate": 0.5, "span": 1.0}), (["rotate"], {}),
                            (["permute", "mask", "delete", "infill", "rotate"], {}), (["sentinels"], {"sentinels": 20}), (["sentinels"], {"rate": 0.6, "span": 2.0, "sentinels": 3})):
            with self.subTest(kinds, **keys):
                inputs, twin = list(texts(60, 50)), Noise(SEED, 41, kinds, **keys)
                for given, found in zip(inputs, examples(inputs, 41, kinds, **keys), strict=True):
                    if "sentinels" in kinds and len(given[2]) < 2:
                        self.assertEqual(found, [given[2] + [END], [0], [END]])
                    else:
                        self.assertEqual(found, [list(part) for part in twin.example(*given)])

    def check_counts(self, counts, shares):
        """Chi-squared; classes of few are put together."""
        total, found, expected = sum(counts), [0], [0.0]
        for count, share in zip(counts, shares, strict=True):
            if expected[-1] >= 10:
                found.append(0)
                expected.append(0.0)
            found[-1] += count
            expected[-1] += share * total
        found[-2:], expected[-2:] = [sum(found[-2:])], [sum(expected[-2:])]
        expected = [value * total / sum(expected) for value in expected]
        self.assertGreater(scipy.stats.chisquare(found, expected).pvalue, 1e-4, (found, expected))

    def test_rates_are_those_asked_for(self):
        inputs = list(texts(2000, -40, False))
        for kinds, left in ((["mask"], lambda source: source.count(MASKED)), (["delete"], lambda source: 40 - (len(source) - 1))):
            counts = collections.Counter(left(source) for source, _, _ in examples(inputs, 64, kinds))
            self.check_counts([counts[k] for k in range(41)], [scipy.stats.binom.pmf(k, 40, 0.3) for k in range(41)])
        for source, _, target in examples(inputs, 64, ["infill"]):
            self.assertEqual(40 - sum(token != MASKED for token in source[:-1]), 12)
            self.assertEqual(target[:-1], inputs[0][2])

    def test_lengths_of_spans_are_poisson_s(self):
        """Of masks that stand alone, by the words that are missing there."""
        counts = collections.Counter()
        for source, _, _ in examples(list(texts(40, -1500, False)), 4000, ["infill"]):
            for before, token, behind in zip(source, source[1:], source[2:]):
                if token == MASKED and MASKED not in (before, behind) and behind != END:
                    counts[behind - before - 1] += 1
        self.assertGreater(sum(counts.values()), 3000)
        self.check_counts([counts[k] for k in range(13)], [scipy.stats.poisson.pmf(k, 3) for k in range(13)])

    def test_orders_places_and_cuts_are_all_alike(self):
        orders = collections.Counter(tuple(source[:-1]) for source, _, _ in examples([(k, 0, [FIRST_WORD + t for t in range(4)], [0, 1, 2, 3]) for k in range(4800)], 16, ["permute"]))
        self.check_counts(list(orders.values()), [1 / 24] * 24)
        begins = collections.Counter(source[0] for source, _, _ in examples(list(texts(2000, -20, False)), 32, ["rotate"]))
        self.check_counts([begins[FIRST_WORD + k] for k in range(20)], [1 / 20] * 20)
        masks = collections.Counter(t for source, _, _ in examples(list(texts(3000, -30, False)), 64, ["mask"]) for t, token in enumerate(source) if token == MASKED)
        self.check_counts([masks[t] for t in range(30)], [1 / 30] * 30)
        # 9 of 30 words in 3 spans: C(8, 2) ways to cut the 9
        cuts = collections.Counter()
        for _, _, target in examples(list(texts(3000, -30, False)), 64, ["sentinels"], sentinels=20):
            at = [k for k, token in enumerate(target) if token < FIRST_WORD]
            self.assertEqual([target[k] for k in at], [FIRST_SENTINEL, FIRST_SENTINEL + 1, FIRST_SENTINEL + 2, END])
            cuts[tuple(b - a - 1 for a, b in zip(at, at[1:]))] += 1
        self.check_counts(list(cuts.values()), [1 / math.comb(8, 2)] * 28)


class Training(JobTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(cls.at("lines.txt"), "w", encoding="utf-8") as file:
            words = english(3000).split()
            for k in range(0, len(words) - 9, 9):
                file.write(" ".join(words[k:k + 9]) + (".\n" if k % 27 else ".\n\n"))
        cls.must(["bagpipe-data", "tokenizer", "--kind", "wordpiece", "--size", "200", "--out", cls.at("pieces.json"), cls.at("lines.txt")])
        cls.must(["bagpipe-data", "tokenizer", "--kind", "unigram", "--size", "200", "--sentinels", "12", "--out", cls.at("unigram.json"), cls.at("lines.txt")])
        for name, tokenizer, more in (("sentences", "pieces", ["--sentences", "lines"]), ("windows", "pieces", []), ("sentinels", "unigram", [])):
            cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at(tokenizer + ".json"), *more, "--out", cls.at(name + ".h5"), cls.at("lines.txt")])

    def noised(self, name, ranks, corpus, *keys):
        return self.trained(name, ranks, *SIZES, f"corpus.train={self.at(corpus + '.h5')}", f"corpus.valid={self.at(corpus + '.h5')}", *keys)

    def test_every_mesh_trains_the_same_model(self):
        one = self.noised("one", 0, "sentences")
        for name, ranks, keys in (("data", 2, []), ("pipeline", 2, ["mesh.pipeline=2"])):
            other = self.noised(name, ranks, "sentences", *keys)
            if name == "data":
                self.assertEqual(timeless(metrics(one)), timeless(metrics(other)))
                self.assertEqual(digests(one), digests(other))
            for a, b in zip(metrics(one), metrics(other), strict=True):
                self.assertLess(abs(a["loss"] - b["loss"]), 2e-5)
        with open(os.path.join(one, "config.ini"), encoding="utf-8") as file:
            self.assertIn("objective = denoise", file.read())

    def test_batches_of_similar_lengths_are_short(self):
        """The same on any mesh, and after a kill; windows are all of one length."""
        words = english(1500).split()
        with open(self.at("varied.txt"), "w", encoding="utf-8") as file:
            for k in range(0, len(words) - 9, 9):
                file.write(" ".join(words[k:k + 1 + k // 9 % 8]) + ".\n")  # a document each
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("pieces.json"), "--format", "lines", "--sentences", "punctuation",
                   "--out", self.at("varied.h5"), self.at("varied.txt")])
        keys = ["train.batch=8", "mesh.micro_batch=4", "checkpoint.every=2", "corpus.bucket=10", "model.context=48", "train.log_every=1"]
        one = self.noised("bucket", 0, "varied", *keys)
        mean, as_they_come = (sum(line["padding"] for line in metrics(run)) / 6 for run in
                              (one, self.noised("unsorted", 0, "varied", *keys, "corpus.bucket=1")))
        self.assertLess(mean, 0.9 * as_they_come)  # what noise takes away is padding too
        result = run(["env", "BP_FAULT=step.end:3=kill", program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('bucket-killed')}",
                      *SIZES, f"corpus.train={self.at('varied.h5')}", f"corpus.valid={self.at('varied.h5')}", *keys])
        self.assertEqual(result.status, -9, str(result))
        for other in (self.noised("bucket-two", 2, "varied", *keys), self.noised("bucket-killed", 0, "varied", *keys)):
            self.assertEqual(timeless(metrics(one)), timeless(metrics(other)))
            self.assertEqual(digests(one), digests(other))
        split = self.noised("bucket-split", 4, "varied", *keys, "mesh.tensor=2", "mesh.pipeline=2")
        for a, b in zip(metrics(one), metrics(split), strict=True):
            self.assertLess(abs(a["loss"] - b["loss"]), 2e-5)
        self.assert_error(self.pretrain("bucket-windows", 0, *SIZES, *(f"corpus.{part}={self.at('windows.h5')}" for part in ("train", "valid")), "noise.kinds=mask", "corpus.bucket=4"), 78,
                          "[corpus.bucket_unused]")

    def test_windows_and_sentinels_train(self):
        self.noised("windows", 0, "windows", "noise.kinds=mask,delete,infill,rotate")
        t5 = self.noised("t5", 0, "sentinels", "model.kind=t5", "noise.kinds=sentinels", "noise.rate=0.15", "train.steps=30")
        self.assertLess(metrics(t5)[-1]["loss"], metrics(t5)[0]["loss"])

    def test_what_is_not_there_is_said(self):
        for what, corpus, keys in (("78 [corpus.no_sentences]", "windows", []), ("78 [corpus.no_special_token]", "sentinels", ["noise.kinds=infill"]),
                                   ("78 [corpus.no_special_token]", "windows", ["noise.kinds=sentinels"]), ("78 [noise.bad_kinds]", "windows", ["noise.kinds=mask,shuffle"]),
                                   ("78 [noise.bad_kinds]", "windows", ["noise.kinds=mask,sentinels"]), ("78 [noise.short_context]", "windows", ["noise.kinds=mask", "model.context=2"]),
                                   ("78 [model.other_objective]", "windows", ["model.kind=transformer", "train.objective=denoise"]),
                                   ("78 [model.unused_key]", "windows", ["model.kind=gpt", "noise.rate=0.2"]), ("78 [corpus.no_pairs]", "windows", ["train.objective=seq2seq"])):
            with self.subTest(what, keys=keys):
                status, identifier = what.split()
                keys = [*SIZES, *keys] if "model.kind=gpt" not in keys else keys
                self.assert_error(self.pretrain("bad", 0, *keys, f"corpus.train={self.at(corpus + '.h5')}", f"corpus.valid={self.at(corpus + '.h5')}"), int(status), identifier,
                                  *([self.at("windows.h5")] if "no_sentences" in what else []))


if __name__ == "__main__":
    bagpipe_test.main()
