"""Encoder-decoders scored, ensembled and asked for their uncertainty: log p(target | source), a document a pair."""
import json
import math
import os
import random
import re
import signal

import bagpipe_test
from bagpipe_test import Background, FolderTest, ScoreFiles, digests, metrics, program, read_json, run, steps, timeless

try:
    import h5py
    import numpy
    from tensors import tensors_of
except ImportError:
    h5py = None

LETTERS = "abcdefgh"
KEY_NORMS = {"bart-tiny": "decoder.1.cross.ln", "t5-tiny": "decoder.1.ln2", "transformer-tiny": "decoder.1.cross.ln"}  # what the last MLP of the decoder reads
CONFIG = """[corpus]
train = {folder}/train.h5
valid = {folder}/valid.h5
[model]
kind = transformer
layers = 2
encoder_layers = 1
width = 16
heads = 2
context = 16
[train]
steps = 12
batch = 8
log_every = 1
[optimizer]
lr = 1e-2
warmup = 2
[math]
precision = f32
threads = 1
"""


class Scoring(ScoreFiles, FolderTest):
    """An ensemble of two members, on bags of pairs of letters and the same letters backwards."""

    @classmethod
    def setUpClass(cls):
        if h5py is None:
            raise bagpipe_test.unittest.SkipTest("there is no h5py")
        super().setUpClass()
        draw = random.Random(2)
        cls.must(["bagpipe-data", "tokenizer", "--kind", "char", "--out", cls.at("tokenizer.json"), cls.write("letters.txt", LETTERS)])
        for name, count in (("train", 120), ("valid", 30), ("many", 3000)):
            cls.make_pairs(name, [["".join(draw.choice(LETTERS) for _ in range(draw.randrange(1, 9)))] for _ in range(count)])
        config = CONFIG.format(folder=cls.folder)
        cls.write("small.ini", config)
        cls.write("tune.ini", "".join(line + "\n" for line in config.splitlines() if line.split(" ")[0] not in ("kind", "encoder_layers", "context", "steps", "warmup")))
        cls.must(["bagpipe", "ensemble", cls.at("small.ini"), f"run.dir={cls.at('ensemble')}", "ensemble.members=2"])
        cls.model, cls.mixture = cls.at("ensemble/members/m00"), cls.at("ensemble/ensemble.json")

    @classmethod
    def make_pairs(cls, name, pairs, tokenizer=None):
        """A corpus of pairs [source, target]; the target is the source backwards where it is not given."""
        cls.write(name + ".src", "".join(pair[0] + "\n" for pair in pairs))
        cls.write(name + ".tgt", "".join((pair + [pair[0][::-1]])[1] + "\n" for pair in pairs))
        cls.must(["bagpipe-data", "corpus", "--tokenizer", tokenizer or cls.at("tokenizer.json"), "--format", "pairs", "--out", cls.at(name + ".h5"), cls.at(name + ".src"),
                  cls.at(name + ".tgt")])
        return cls.at(name + ".h5")

    def job(self, name, *keys, job="score"):
        return [program("bagpipe"), job, self.at("small.ini"), f"run.dir={self.at(name)}", *keys]

    def scored(self, name, ranks=0, *keys, model=None, corpus="valid"):
        result = run(self.job(name, f"score.model={model or self.model}", f"score.corpus={self.at(corpus + '.h5')}", "score.tokens=yes", *keys), ranks)
        self.assertEqual(result.status, 0, str(result))
        return self.summary(name)

    def tokens(self, name):
        """Of each document the log-probabilities of its target and its end; those of its source are missing."""
        with h5py.File(os.path.join(self.at(name), "score", "tokens.h5")) as file:
            starts, logprobs = file["doc_start"][:], file["logprob"][:]
        return [logprobs[a:b] for a, b in zip(starts[:-1].astype(int), starts[1:].astype(int))]

    def written(self, name, *keys, model=None, prompts=None):
        result = run(self.job(name, f"generate.model={model or self.model}", f"generate.prompts={prompts or self.at('valid.src')}", *keys, job="generate"))
        self.assertEqual(result.status, 0, str(result))
        with open(os.path.join(self.at(name), "generate", "outputs.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file], result

    def check_keys(self, name, count):
        """A key of each scored token lies behind the last norm before the last MLP of the decoder: without its gain and bias it has a
        square of 1 a number, and no other norm's would give it that."""
        weights, fits = tensors_of(self.at(name + ".checkpoint")), []
        with h5py.File(os.path.join(self.at(name), "score", "states.h5")) as file:
            keys = file["layer_0"][:][file["scored"][:] == 1].astype(float)
        for norm in [tensor[:-len(".gain")] for tensor in weights if tensor.endswith(".gain")]:
            plain = (keys - weights.get(norm + ".bias", 0)) / weights[norm + ".gain"]
            if abs((plain ** 2).mean(1) - 1).max() < 1e-3:
                fits.append(norm)
        self.assertEqual((len(keys), fits), (count, [KEY_NORMS[name]]))

    def test_scores_are_the_reference(self):
        """Words stand for the ids of the fixtures, whose sources and targets have their end already."""
        for name in ("bart-tiny", "t5-tiny", "transformer-tiny"):
            folder = bagpipe_test.shared(os.path.join("reference", name))
            if folder is None:
                self.skipTest("it needs ../shared/reference")
            config, tokens = read_json(folder, "config.json"), read_json(folder, "tokens.json")
            end, words = config["eos_token_id"], {f"w{k}": k for k in range(config["vocab_size"])}
            special = {"<|endoftext|>": end, "<unk>": 3}
            words = {word: k for word, k in words.items() if k not in special.values()} | special
            added = [{"id": k, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": True}
                     for word, k in sorted(special.items(), key=lambda item: item[1])]
            tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"},
                         "post_processor": None, "decoder": None, "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"}}
            pairs = [[" ".join(f"w{k}" for k in source[:sum(seen) - 1]), " ".join(f"w{k}" for k in target if k not in (-100, end))]
                     for source, seen, target in zip(tokens["input_ids"], tokens["attention_mask"], tokens["labels"])]
            corpus = self.make_pairs(name, pairs, self.write(name + ".json", json.dumps(tokenizer)))
            self.must(["bagpipe-data", "import", folder, "--out", self.at(name + ".checkpoint"), "--no-tokenizer"])
            result = run(self.job(name, f"score.model={self.at(name + '.checkpoint')}", f"score.corpus={corpus}", "score.tokens=yes", "score.states=yes"))
            self.assertEqual(result.status, 0, str(result))
            with open(os.path.join(self.at(name), "score", "index.html"), encoding="utf-8") as file:
                page = file.read()
            listed = re.findall(r'<td class="text wide"><bdi>(.*?)</bdi></td><td class="text wide">(.*?)</td></tr>', page)
            self.assertEqual(sorted(map(tuple, listed)), sorted((source, target) for source, target in pairs if (source, target) in listed))
            self.assertGreaterEqual(len(listed), len(pairs) // 2)
            self.assertIn(f'<p class="prompt">Source: {listed[0][0]}</p>', page)
            self.check_keys(name, sum(label >= 0 for labels in tokens["labels"] for label in labels))
            with open(os.path.join(folder, "expected.safetensors"), "rb") as file:
                head = json.loads(file.read(int.from_bytes(file.read(8), "little")))["logprob"]
                (first, last), start = head["data_offsets"], file.tell()
                file.seek(start + first)
                expected = numpy.frombuffer(file.read(last - first), "<f4").reshape(head["shape"])
            for got, want, labels in zip(self.tokens(name), expected, tokens["labels"], strict=True):
                got = got[~numpy.isnan(got)]
                self.assertEqual(len(got), sum(label >= 0 for label in labels))
                self.assertLess(abs(got - want[:len(got)]).max(), 2e-5)

    def test_a_target_cites_itself_with_its_source(self):
        """What follows each token of a target of the datastore is found there, with a distance of rounding; another source is further off."""
        self.scored("store", 0, "score.states=yes")
        store = os.path.join(self.at("store"), "score", "states.h5")
        with open(self.at("valid.src"), encoding="utf-8") as file:
            number, source = next((k, line.strip()) for k, line in enumerate(file) if len(line) > 6)
        cite = [program("bagpipe-data"), "cite", "--neighbours", "1", "--entries"]
        for ranks in (0, 2):
            lines = self.must([*cite, "--source", source, self.model, store, source[::-1]], ranks).out.splitlines()[1:]
            rows = [line.split("\t") for line in lines]
            self.assertEqual([(row[3], int(row[5]), row[6], row[7]) for row in rows],
                             [(str(number), k + 1, source, "".join([*source[::-1], "<|endoftext|>"][:k + 2])) for k in range(len(source))])
            self.assertLess(max(float(row[2]) for row in rows), 1e-6)
        other = self.must([*cite, "--source", source[:3], self.model, store, source[::-1]]).out.splitlines()[1:]
        self.assertGreater(float(other[0].split("\t")[2]), 1e-4)
        for status, name, rest, *words in ((64, "cite.other_source", ["a"]), (65, "cite.long_text", ["--source", "a" * 16, "a"], "source has 16 tokens, and 15 fit"),
                                   (65, "cite.long_text", ["--source", "a", "a" * 16], "text has 16 tokens"), (65, "cite.empty_text", ["--source", "", "a"], "source has no token")):
            self.assert_error(run([*cite[:4], *rest[:-1], self.model, store, rest[-1]]), status, f"[{name}]", *words)
        self.must([*cite[:4], "--source", "a" * 15, self.model, store, "a"])

    def test_scores_are_those_of_validation_on_every_mesh(self):
        one = self.scored("one")
        self.assertLess(abs(math.log(one["perplexity"]) - metrics(self.model)[-1]["valid_loss"]), 1e-6)
        self.assertEqual((one["convention"]["name"], one["convention"]["prefix"], one["convention"]["end"], one["bits_per_byte"]), ("pairs", "start", True, None))
        with open(self.at("valid.src"), encoding="utf-8") as file:
            sources = [len(line.rstrip("\n")) for line in file]
        for logprobs, source in zip(self.tokens("one"), sources, strict=True):
            self.assertEqual(numpy.isnan(logprobs).tolist(), [True] * source + [False] * (source + 1))
        self.scored("data4", 4)
        self.assert_same_bytes("one", "data4")
        for name, ranks, mesh in (("pipeline", 2, ["mesh.pipeline=2"]), ("both", 4, ["mesh.tensor=2", "mesh.pipeline=2"])):
            self.scored(name, ranks, *mesh)
            for a, b in zip(self.tokens("one"), self.tokens(name), strict=True):
                self.assertLess(numpy.nanmax(abs(a - b)), 1e-5)

    def test_killed_it_goes_on_with_the_same_bytes(self):
        self.scored("straight", 2, corpus="many")
        command = self.job("killed", f"score.model={self.model}", f"score.corpus={self.at('many.h5')}", "score.tokens=yes")
        killed = Background(command, 2, {"BP_FAULT": "work.unit_done:1@1=kill"})
        killed.communicate()
        killed.end()
        self.assertNotIn(killed.returncode, (0, -signal.SIGKILL))
        self.scored("killed", 2, corpus="many")
        self.assert_same_bytes("straight", "killed")

    def test_what_is_written_scores_as_it_was_written(self):
        """Sampled targets become pairs; scoring gives each token the log-probability that decoding returned, of an ensemble too."""
        for name, model in (("one", self.model), ("both", self.mixture)):
            lines, _ = self.written("sampled-" + name, "generate.strategy=sample", "generate.tokens=12", model=model)
            lines = [line for line in lines if line["text"] and set(line["text"]) <= set(LETTERS)]
            self.assertGreater(len(lines), 5)
            self.make_pairs("written-" + name, [[line["prompt"], line["text"]] for line in lines])
            self.scored("rescored-" + name, model=model, corpus="written-" + name)
            for line, logprobs in zip(lines, self.tokens("rescored-" + name), strict=True):
                reported = numpy.array(line["logprobs"])
                self.assertLess(abs(logprobs[~numpy.isnan(logprobs)][:len(reported)] - reported).max(), 1e-5)

    def test_members_of_an_ensemble_are_mixed(self):
        """Their probabilities; out-of-bag pairs were scored."""
        self.assertTrue(all(member["oob_perplexity"] > 1 for member in read_json(self.mixture)["members"]))
        one, other = (self.scored(f"member{k}", model=self.at(f"ensemble/members/m0{k}")) for k in range(2))
        both = self.scored("mixed", model=self.mixture)
        self.assertGreater(both["mutual_information"], 0)
        self.assertLess(both["nll_nats"], max(one["nll_nats"], other["nll_nats"]))
        for a, b, c in zip(*map(self.tokens, ("member0", "member1", "mixed")), strict=True):
            reported = ~numpy.isnan(a)
            self.assertLess(abs(numpy.logaddexp(a[reported], b[reported]) - math.log(2) - c[reported]).max(), 2e-6)
        self.scored("apart", 2, "mesh.members=2", model=self.mixture)
        self.assertLess(abs(self.summary("apart")["nll_nats"] - both["nll_nats"]), 1e-3)

    def test_equal_members_are_their_member(self):
        path = self.write("same.json", json.dumps({"members": [{"name": name, "path": self.model} for name in "abc"]}))
        one, same = self.scored("alone"), self.scored("same", model=path)
        self.assertEqual((one["nll_nats"], one["perplexity"], same["mutual_information"]), (same["nll_nats"], same["perplexity"], 0))
        keys = ["generate.strategy=beam", "generate.tokens=12", "generate.beams=3"]
        alone, together = self.written("alone-written", *keys)[0], self.written("same-written", *keys, model=path)[0]
        for a, b in zip(alone, together, strict=True):
            self.assertEqual(a["tokens"], b["tokens"])
            self.assertLess(abs(a["logprob"] - b["logprob"]), 1e-5)
            self.assertEqual(set(b["mutual_information"]), {0})

    def test_the_uncertainty_of_pairs_is_reported(self):
        """Letters that training had no source of are detected somehow; the comparison has its figures."""
        self.make_pairs("odd", [["h" * 8, "a" * (k % 8 + 1)] for k in range(12)])
        result = run(self.job("uncertainty", f"uncertainty.models=one={self.model},both={self.mixture},laplace={self.model}:laplace", f"uncertainty.in_domain={self.at('train.h5')}",
                              f"uncertainty.shifted={self.at('odd.h5')}", "laplace.samples=2", "laplace.tokens=100", job="uncertainty"))
        self.assertEqual(result.status, 0, str(result))
        mixed = read_json(self.at("uncertainty"), "uncertainty", "summary.json")["methods"]["both"]
        self.assertTrue(0 <= mixed["ood"]["odd"]["auroc"]["mutual_information"] <= 1)
        with h5py.File(os.path.join(self.at("uncertainty"), "uncertainty", "laplace", "laplace.h5")) as file:
            self.assertEqual(json.loads(file.attrs["notes"])["data_tokens"], self.targets())

    def test_a_source_that_is_too_long_keeps_no_other_from_its_text(self):
        """Its line says so; cut, it has a text. bagpipe-data metrics reads the lines, of several samples the first."""
        sources = ["abc", "a" * 20, "hgf"]
        prompts, few = self.write("long.txt", "".join(text + "\n" for text in sources)), self.write("few.txt", "abc\nb\nhgf\n")
        keys = ["generate.strategy=sample", "generate.samples=2", "generate.tokens=8"]
        (lines, result), short = self.written("too-long", *keys, prompts=prompts), self.written("short", *keys, prompts=few)[0]
        self.assert_warning(result, "[generate.too_long]", "1 of 3")
        self.assertEqual([line["index"] for line in lines], [0, 0, 1, 2, 2])
        self.assertEqual(lines[:2] + lines[3:], short[:2] + short[4:])
        self.assertEqual((lines[2]["prompt"], lines[2]["text"], lines[2]["tokens"], lines[2]["finish"]), ("a" * 20, None, [], "error"))
        self.assertIn("21 tokens", lines[2]["error"])
        self.assertEqual(read_json(self.at("too-long"), "generate", "summary.json")["left_out"], 1)
        cut, result = self.written("cut-long", *keys, "generate.cut=yes", prompts=prompts)
        self.assert_warning(result, "[generate.too_long]", "1 of 3")
        self.assertEqual((len(cut), cut[:2], cut[2]["finish"] == "error"), (6, short[:2], False))
        texts = self.write("plain.txt", "".join((line["text"] or "").replace("\n", " ") + "\n" for line in (lines[0], lines[2], lines[3])))
        reference = self.write("reference.txt", "abc def\nb c\nhgf a\n")
        outputs = os.path.join(self.at("too-long"), "generate", "outputs.jsonl")
        measure = [program("bagpipe-data"), "metrics", "--kind", "chrf", "--reference", reference, "--hypothesis"]
        read, plain = run(measure + [outputs]), run(measure + [texts])
        self.assertEqual(read.status, 0, str(read))
        reported = json.loads(read.out)
        curve = reported.pop("coverage")["logprob"]
        self.assertEqual(reported, json.loads(plain.out))
        self.assertEqual((curve["coverage"][-1], curve["chrf2"][-1]), (1, reported["figures"]["chrf2"]["value"]))
        self.assert_warning(read, "[metrics.left_out]", "1 of 3")
        broken = self.write("broken.jsonl", json.dumps(lines[0]) + "\n" + json.dumps(lines[3]) + "\n")
        self.assert_error(run(measure + [broken]), 65, "[outputs.bad_line]", "broken.jsonl:2")

    def test_texts_that_an_ensemble_is_sure_of_are_measured_apart(self):
        """Its figures of the surest twentieths are those of files of these documents."""
        lines, _ = self.written("sure", "generate.strategy=sample", "generate.tokens=12", model=self.mixture)
        outputs = os.path.join(self.at("sure"), "generate", "outputs.jsonl")
        reported = json.loads(self.must(["bagpipe-data", "metrics", "--kind", "chrf", "--reference", self.at("valid.tgt"), "--hypothesis", outputs]).out)["coverage"]
        with open(self.at("valid.tgt"), encoding="utf-8") as file:
            references = file.read().splitlines()
        for order, sign in (("logprob", -1), ("mutual_information", 1)):
            key = "logprobs" if order == "logprob" else order
            surest = sorted(range(len(lines)), key=lambda k: (sign * sum(lines[k][key]) / len(lines[k][key]), k))
            self.assertEqual(len(reported[order]["coverage"]), 20)
            for point in (4, 11, 19):
                chosen = surest[:round(reported[order]["coverage"][point] * len(lines))]
                hypothesis = self.write("some.txt", "".join(lines[k]["text"].replace("\n", " ") + "\n" for k in chosen))
                reference = self.write("some.ref", "".join(references[k] + "\n" for k in chosen))
                some = json.loads(self.must(["bagpipe-data", "metrics", "--kind", "chrf", "--reference", reference, "--hypothesis", hypothesis]).out)
                self.assertLess(abs(reported[order]["chrf2"][point] - some["figures"]["chrf2"]["value"]), 1e-9)

    def bucket(self, name, ranks=0, *keys):
        result = run(self.job(name, "corpus.bucket=4", "train.valid_every=4", "checkpoint.every=5", *keys, job="pretrain"), ranks)
        self.assertEqual(result.status, 0, str(result))
        return metrics(self.at(name))

    def test_batches_of_similar_lengths_are_short(self):
        """The same on any mesh, and after a kill; validation's loss, of short batches too, is that of scoring."""
        one = self.bucket("bucket", 0, "mesh.micro_batch=2")
        self.assertLess(one[-1]["padding"], 0.5)  # it is 0.65 in windows of the context
        other = self.bucket("bucket4", 4, "mesh.micro_batch=2")
        self.assertEqual(timeless(one), timeless(other))
        self.assertEqual(digests(self.at("bucket")), digests(self.at("bucket4")))
        for name, ranks, mesh in (("pipeline", 2, ["mesh.pipeline=2"]), ("both", 4, ["mesh.tensor=2", "mesh.pipeline=2", "mesh.schedule=interleaved"])):
            for a, b in zip(one, self.bucket("bucket-" + name, ranks, "mesh.micro_batch=2", *mesh), strict=True):
                self.assertLess(abs(a["loss"] - b["loss"]), 2e-5)
                self.assertEqual(a["padding"], b["padding"])
        killed = Background(self.job("bucket-killed", "corpus.bucket=4", "train.valid_every=4", "checkpoint.every=5", "mesh.micro_batch=2", job="pretrain"), 2,
                            {"BP_FAULT": "step.end:7@1=kill"})
        killed.communicate()
        killed.end()
        self.assertNotIn(killed.returncode, (0, -signal.SIGKILL))
        self.assertEqual(timeless(one), timeless(self.bucket("bucket-killed", 2, "mesh.micro_batch=2")))
        self.assertEqual(digests(self.at("bucket")), digests(self.at("bucket-killed")))
        scored = self.scored("bucket-scored", model=self.at("bucket"))
        self.assertLess(abs(math.log(scored["perplexity"]) - one[-1]["valid_loss"]), 1e-6)
        gpt = [program("bagpipe"), "pretrain", self.at("tune.ini"), f"run.dir={self.at('bucket-gpt')}", "model.kind=gpt", "model.context=16", "train.steps=2", "corpus.bucket=4"]
        self.assert_error(run(gpt), 78, "[corpus.bucket_unused]")

    def targets(self):
        """Tokens of the targets of corpus.train, ends with them."""
        with open(self.at("train.tgt"), encoding="utf-8") as file:
            return len(file.read())

    def test_langevin_noise_is_of_the_targets(self):
        for name, keys in (("langevin", []), ("langevin-text", ["model.kind=gpt", "model.context=24", "task.separator=hh"])):
            for T in (4, 0):
                self.tuned(f"{name}-{T}", 0, *(keys or [f"model.init={self.model}"]), "train.steps=1", "optimizer.kind=sgld", "optimizer.lr=0.1", "optimizer.warmup=0",
                           f"optimizer.temperature={T}")
            noisy, still = (tensors_of(os.path.join(self.at(f"{name}-{T}"), "checkpoints", steps(self.at(f"{name}-{T}"))[0])) for T in (4, 0))
            noise = numpy.concatenate([(values - still[key]).ravel() for key, values in noisy.items()]) / math.sqrt(2 * 0.1 * 4 / self.targets())
            self.assertLess(abs((noise ** 2).mean() - 1), 3 * math.sqrt(2 / noise.size))

    def tune(self, name, *keys):
        return [program("bagpipe"), "finetune", self.at("tune.ini"), f"run.dir={self.at(name)}", "task.kind=text", *keys]

    def tuned(self, name, ranks=0, *keys):
        result = run(self.tune(name, *keys), ranks)
        self.assertEqual(result.status, 0, str(result))
        return metrics(self.at(name))

    def test_an_encoder_decoder_is_tuned_for_texts(self):
        """From the weights of another training; it begins where that one ended, with the defaults of finetune."""
        lines = self.tuned("tuned", 0, f"model.init={self.model}", "train.valid_every=1", "train.epochs=2")
        self.assertEqual(len(lines), 30)
        self.assertLess(lines[0]["loss"], metrics(self.model)[0]["loss"])
        self.assertLess(lines[-1]["valid_loss"], lines[0]["valid_loss"])
        self.assertAlmostEqual(lines[-1]["lr"], 1e-2 / 27, 12)  # linear decay, three steps of warmup
        self.assertEqual(read_json(self.at("tuned"), "task.json"), {"kind": "text", "documents": 120})
        self.written("tuned-texts", model=self.at("tuned"))
        self.assert_error(run(self.tune("separator", f"model.init={self.model}", "task.separator=hh")), 78, "[task.unused_key]", "task.separator")

    def test_a_causal_model_is_tuned_for_texts(self):
        """Source, separator, target in one stream: validation's loss is that of scoring such streams from the target on, on any mesh."""
        gpt = ["model.kind=gpt", "model.context=24", "task.separator=hh", "train.epochs=1"]
        one = self.tuned("gpt", 0, *gpt)
        two = self.tuned("gpt2", 2, *gpt)
        self.assertEqual((timeless(one), digests(self.at("gpt"))), (timeless(two), digests(self.at("gpt2"))))
        for a, b in zip(one, self.tuned("gpt-mesh", 4, *gpt, "mesh.tensor=2", "mesh.pipeline=2"), strict=True):
            self.assertLess(abs(a["loss"] - b["loss"]), 2e-5)
        with open(self.at("valid.src"), encoding="utf-8") as file:
            sources = file.read().splitlines()
        self.write("streams.txt", "".join(f"{text}hh{text[::-1]}\n" for text in sources))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "lines", "--out", self.at("streams.h5"), self.at("streams.txt")])
        self.scored("streams", 0, "score.prefix=none", "score.end=yes", model=self.at("gpt"), corpus="streams")
        targets = numpy.concatenate([logprobs[len(text) + 2:] for logprobs, text in zip(self.tokens("streams"), sources, strict=True)])
        self.assertLess(abs(one[-1]["valid_loss"] + targets.astype(float).mean()), 1e-5)
        self.assertEqual(read_json(self.at("gpt"), "task.json"), {"kind": "text", "documents": 120, "separator": "hh"})
        for name, identifier, status, keys in (("length", "corpus.long_pairs", 65, ["model.context=8"]), ("unknown", "task.separator_unknown", 78, ["task.separator=?"]),
                                               ("label", "task.unused_key", 78, ["task.label=x"]), ("weight", "task.unused_key", 78, ["task.lm_weight=1"]), ("kind", "task.no_text", 78, ["model.kind=bert"])):
            self.assert_error(run(self.tune("gpt-" + name, *gpt, *keys)), status, f"[{identifier}]")
        self.assert_error(run(self.tune("gpt-lines", *gpt, f"corpus.train={self.at('streams.h5')}")), 78, "[corpus.no_pairs]", "task.kind = text reads")
        result = run(self.job("gpt-cut", f"score.model={self.at('gpt')}", f"score.corpus={self.at('streams.h5')}", "score.cut=yes"))
        self.assert_warning(result, "[config.unused_key]", "score.cut")

    def test_what_does_not_fit_is_said(self):
        long = self.make_pairs("long", [["abc"], ["a" * 20, "b"], ["b", "a" * 20]])
        keys = [f"score.model={self.model}", f"score.corpus={long}", "score.tokens=yes"]
        result = run(self.job("left", *keys))
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[score.too_long]", "2 of 3")
        self.assertNotIn("score.prefix", result.out)
        self.assertEqual([int((~numpy.isnan(x)).sum()) for x in self.tokens("left")], [4, 0, 0])
        result = run(self.job("cut", *keys, "score.cut=yes"))
        self.assert_warning(result, "[score.too_long]", "2 of 3")
        self.assertEqual([int((~numpy.isnan(x)).sum()) for x in self.tokens("cut")], [4, 2, 16])
        self.assert_error(run(self.job("convention", *keys, "score.convention=rolling")), 78, "[score.other_convention]")
        self.assert_error(run(self.job("choices", *keys, f"score.candidates={self.write('choices.jsonl', '{}')}")), 78, "[score.other_convention]")
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "lines", "--out", self.at("lines.h5"), self.at("valid.src")])
        self.assert_error(run(self.job("lines", keys[0], f"score.corpus={self.at('lines.h5')}")), 78, "[corpus.no_pairs]")
        for given, identifier in (("train.log_every=1", "corpus.no_pairs"), ("train.objective=denoise", "model.unused_key")):
            tune = self.tune("lines-tuned", "model.kind=bart", "model.context=16", given, f"corpus.train={self.at('lines.h5')}", "corpus.valid=")
            self.assert_error(run(tune), 78, f"[{identifier}]")


if __name__ == "__main__":
    bagpipe_test.main()
