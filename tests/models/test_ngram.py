"""An n-gram model is counted by all ranks: the same bytes at 1 to 4 ranks, with little memory, and after a kill; it is scored."""
import hashlib
import json
import os
import shutil
import signal

import h5py

import bagpipe_test
from bagpipe_test import JobTest, metrics, program, read_json, state_of, steps

KILLS = ["count.spill:3@1", "count.run:1@0", "count.exchange:2@1", "count.write:1@0", "ckpt.rename:1"]

GPT = ["model.layers=1", "model.width=8", "model.heads=1", "model.context=8", "train.steps=1", "train.batch=1"]


class Ngram(JobTest):
    @classmethod
    def config(cls):
        return f"""[corpus]
train = {cls.at('train.h5')}
[model]
kind = ngram
[math]
precision = f32
threads = 1
"""

    def whole(self):
        """The model of one rank, which most tests compare with: trained once."""
        return self.at("whole") if os.path.exists(self.at("whole")) else self.trained("whole", 0)

    @staticmethod
    def model(run_dir):
        with open(os.path.join(run_dir, "checkpoints", steps(run_dir)[-1], "model.bin"), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def arpa(self, name, ranks):
        self.must(["bagpipe-data", "export", self.at(name), "--out", self.at(name + ".arpa")], ranks)
        with open(self.at(name + ".arpa"), "rb") as file:
            return file.read()

    def test_ranks_and_little_memory_give_the_same_bytes(self):
        one = self.model(self.whole())
        for ranks in (3, 4):
            self.assertEqual(self.model(self.trained(f"ranks{ranks}", ranks)), one)
        self.assertEqual(self.model(self.trained("spilled", 2, "ngram.memory=1MiB")), one)
        self.assertEqual(self.arpa("spilled", 0), self.arpa("whole", 3))
        self.assertFalse(os.path.exists(self.at("spilled/counts")))
        os.makedirs(self.at("spilled/counts"))  # killed between its commit and this folder's end
        self.write("spilled/counts/1.run", "left")
        self.trained("spilled", 2, "ngram.memory=1MiB")
        self.assertFalse(os.path.exists(self.at("spilled/counts")))
        self.assertEqual(metrics(self.whole())[0]["tokens"], state_of(self.whole())["tokens"])

    def test_a_dedicated_coordinator_writes_the_same_manifest(self):
        shared, dedicated = self.trained("shared", 2), self.trained("dedicated", 2, "mesh.coordinator=dedicated")
        self.assertEqual(self.model(dedicated), self.model(shared))
        self.assertIn("ngrams", state_of(shared))
        self.assertEqual(state_of(dedicated), state_of(shared))

    def test_a_killed_count_goes_on_with_its_runs(self):
        whole = self.model(self.whole())
        for number, fault in enumerate(KILLS):
            with self.subTest(fault):
                name = f"killed{number}"
                killed = self.background([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at(name)}"], 2,
                                         env={"BP_FAULT": fault + "=kill"})
                killed.communicate()
                self.assertEqual(killed.returncode, 128 + signal.SIGKILL)
                self.assertEqual(steps(self.at(name)), [])
                self.assertEqual(self.model(self.trained(name, 3)), whole)

    def test_it_may_be_killed_again_and_again(self):
        whole = self.model(self.whole())
        for ranks, fault in ((2, "count.run:2@1"), (3, "count.exchange:1@2"), (1, "count.write:2"), (4, "count.exchange:3@0")):
            killed = self.background([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('often')}", "ngram.memory=1MiB"],
                                     ranks, env={"BP_FAULT": fault + "=kill"})
            killed.communicate()
            self.assertEqual(killed.returncode, 128 + signal.SIGKILL)
            self.assertEqual(steps(self.at("often")), [])
        last = self.pretrain("often", 2)
        self.assertEqual(last.status, 0, str(last))
        self.assertIn("runs of counts are whole", last.out)
        self.assertEqual(self.model(self.at("often")), whole)

    def test_a_full_disk_is_said_and_gone_on_from(self):
        for number, fault in enumerate(("count.spill", "count.write")):
            stopped = self.background([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at(f'full{number}')}"], 2,
                                      env={"BP_FAULT": fault + "=enospc"})
            stopped.communicate()
            self.assert_error(stopped.result(), 74, "[file.no_space]")
            self.trained(f"full{number}", 2)

    def test_a_damaged_run_is_counted_again(self):
        whole = self.model(self.whole())
        killed = self.background([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('hurt')}"], 0,
                                 env={"BP_FAULT": "count.write=kill"})
        killed.communicate()
        (run,) = [name for name in os.listdir(self.at("hurt/counts")) if name.endswith(".run")]
        with open(self.at("hurt/counts/" + run), "r+b") as file:
            file.seek(100)
            byte = file.read(1)
            file.seek(100)
            file.write(bytes([byte[0] ^ 1]))
        result = self.pretrain("hurt")
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[ngram.damaged_counts]")
        self.assertEqual(self.model(self.at("hurt")), whole)

    def test_an_empty_corpus_and_other_tokenizers_are_refused(self):
        result = bagpipe_test.run([program("bagpipe-data"), "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "lines", "--out",
                                   self.at("empty.h5"), self.write("empty.txt", "")])
        self.assert_error(result, 65, "[corpus.no_documents]")
        self.must(["bagpipe-data", "tokenizer", "--kind", "char", "--size", 60, "--out", self.at("chars.json"), self.at("train.txt")])
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("chars.json"), "--out", self.at("chars.h5"), self.at("valid.txt")])
        result = self.pretrain("refused65", 2, f"corpus.valid={self.at('chars.h5')}")
        self.assert_error(result, 65, "[vocabulary.mismatch]")
        result = bagpipe_test.run([program("bagpipe"), "score", self.at("small.ini"), f"run.dir={self.at('other-score')}",
                                   f"score.model={self.whole()}", f"score.corpus={self.at('chars.h5')}"])
        self.assert_error(result, 65, "[tokenizer.mismatch]")

    def test_it_is_scored_the_same_on_any_ranks(self):
        trained = self.whole()
        found = []
        for ranks in (0, 2):
            folder = self.at(f"score{ranks}")
            self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={folder}", f"score.model={trained}",
                       f"score.corpus={self.at('valid.h5')}", "score.end=yes"], ranks)
            with open(os.path.join(folder, "score", "summary.json"), "rb") as file:
                found.append(file.read())
        self.assertEqual(found[0], found[1])
        self.assertLess(json.loads(found[0])["perplexity"], 100)

    def test_a_split_model_gives_the_same_scores(self):
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--out", self.at("whole.h5"), self.at("valid.txt")])
        corpora = f"{self.at('valid.h5')},{self.at('whole.h5')}"  # short documents, and one that is scored in many pieces
        for smoothing in ("kneser-ney", "mle"):
            trained = self.trained("split-" + smoothing, 0, f"ngram.smoothing={smoothing}", "ngram.order=4")
            found = set()
            for ranks, keys in ((0, []), (2, ["mesh.tensor=2"]), (3, ["mesh.pipeline=3"]), (4, ["mesh.tensor=2", "mesh.pipeline=2"]))[0 if smoothing == "kneser-ney" else 2:]:
                folder = self.at(f"split-{smoothing}{ranks}")
                self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={folder}", f"score.model={trained}", f"score.corpus={corpora}",
                           "score.end=yes", "score.tokens=yes", *keys], ranks)
                with h5py.File(os.path.join(folder, "score", "tokens.h5")) as file:
                    found.add(file["logprob"][:].tobytes())
            self.assertEqual(len(found), 1, smoothing)

    def test_members_of_an_ensemble_are_not_split(self):
        self.write("pair.json", json.dumps({"members": [{"name": str(order), "path": self.trained(f"member{order}", 0, f"ngram.order={order}")}
                                                       for order in (2, 3)]}))
        result = bagpipe_test.run([program("bagpipe"), "score", self.at("small.ini"), f"run.dir={self.at('pair')}",
                                   f"score.model={self.at('pair.json')}", f"score.corpus={self.at('valid.h5')}", "mesh.tensor=2"], 2)
        self.assert_error(result, 78, "[ensemble.split_member]")

    def test_verify_finds_a_flipped_byte(self):
        trained = shutil.copytree(self.whole(), self.at("flipped"), symlinks=True)
        path = os.path.join(trained, "checkpoints", "step-000000000001", "model.bin")
        size = os.path.getsize(path)
        for place in (3, 600, size // 2, size - 1):
            with open(path, "r+b") as file:
                file.seek(place)
                byte = file.read(1)
                file.seek(place)
                file.write(bytes([byte[0] ^ 4]))
            self.assertEqual(bagpipe_test.run([program("bagpipe-data"), "verify", trained]).status, 65, place)
            with open(path, "r+b") as file:
                file.seek(place)
                file.write(byte)
        self.must(["bagpipe-data", "verify", trained])

    def test_words_out_of_the_vocabulary_and_of_probability_zero(self):
        self.must(["bagpipe-data", "tokenizer", "--kind", "word", "--size", 300, "--out", self.at("words.json"), self.at("train.txt")])
        for part in ("train", "valid"):
            self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("words.json"), "--format", "lines", "--out", self.at(f"words-{part}.h5"),
                       self.at(part + ".txt")])
        for smoothing in ("kneser-ney", "mle"):
            self.trained(smoothing, 0, f"corpus.train={self.at('words-train.h5')}", f"ngram.smoothing={smoothing}")
            self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={self.at(smoothing + '-score')}", f"score.model={self.at(smoothing)}",
                       f"score.corpus={self.at('words-valid.h5')}", "score.tokens=yes"])
        sound = read_json(self.at("kneser-ney-score"), "score", "summary.json")
        known = set(read_json(self.at("words.json"))["model"]["vocab"])
        with open(self.at("valid.txt"), encoding="utf-8") as file:
            self.assertEqual(sound["oov"], sum(word not in known for line in file for word in line.split()))
        self.assertEqual(sound["zero_probability"], 0)
        self.assertGreater(sound["perplexity_without_oov"], 0)
        zero = read_json(self.at("mle-score"), "score", "summary.json")
        self.assertGreater(zero["zero_probability"], 100)
        self.assertIsNone(zero["perplexity"])
        self.assertIsNone(zero["nll_nats"])
        self.assertEqual(zero["corpora"]["words-valid"]["zero_probability"], zero["zero_probability"])

    def test_an_ensemble_of_bags_is_mixed(self):
        many = bagpipe_test.run([program("bagpipe"), "ensemble", self.at("small.ini"), f"run.dir={self.at('many')}", "ensemble.members=3",
                                 "ensemble.kind=bag", "ngram.order=3"], 2)
        self.assertEqual(many.status, 0, str(many))
        members = read_json(self.at("many"), "ensemble.json")["members"]
        self.assertEqual(len(members), 3)
        self.assertGreater(members[0]["oob_perplexity"], 1)
        self.assertEqual(len({self.model(self.at(f"many/members/m0{k}")) for k in range(3)}), 3)
        folder = self.at("score-many")
        self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={folder}", f"score.model={self.at('many')}",
                   f"score.corpus={self.at('valid.h5')}"], 2)
        mixed = read_json(folder, "score", "summary.json")["corpora"]["valid"]
        self.assertGreater(mixed["mutual_information"], 0)
        self.assertLess(mixed["perplexity"], min(member["perplexity"] for member in mixed["members"]))
        seeds = bagpipe_test.run([program("bagpipe"), "ensemble", self.at("small.ini"), f"run.dir={self.at('seeds')}", "ensemble.members=2",
                                  "ensemble.kind=seed"])
        self.assert_error(seeds, 78, "[ensemble.only_bags]")
        dropout = bagpipe_test.run([program("bagpipe"), "uncertainty", self.at("small.ini"), f"run.dir={self.at('dropout')}",
                                    f"uncertainty.models=d={self.at('many/members/m00')}:dropout",
                                    f"uncertainty.in_domain=v={self.at('train.h5')}"])
        self.assert_error(dropout, 78, "[ensemble.no_dropout]")

    def test_a_count_that_is_asked_to_stop_goes_on_from_its_runs(self):
        whole = self.model(self.whole())
        for number, fault in enumerate(("count.exchange:1=delay3", "count.write:1=delay3")):  # the runs are whole: merged, written
            with self.subTest(fault):
                name = f"stopped{number}"
                reported = self.background([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at(name)}"], 0, env={"BP_FAULT": fault})
                wanted = ".run" if number == 0 else "model.bin"
                self.until(lambda: any(found.endswith(wanted) for found in self.files(name + "/counts")), reported)
                reported.send_signal(signal.SIGTERM)
                reported.communicate()
                self.assert_stopped(reported.result(), "estimating" if number == 0 else "writing")
                self.assertEqual(steps(self.at(name)), [])
                again = self.pretrain(name, 2)
                self.assertEqual(again.status, 0, str(again))
                self.assertIn("going on: 1 runs of counts", again.out)
                self.assertEqual(self.model(self.at(name)), whole)

    def files(self, name):
        return os.listdir(self.at(name)) if os.path.isdir(self.at(name)) else []

    def test_the_validation_corpus_is_scored(self):
        valid = f"corpus.valid={self.at('valid.h5')}"
        trained = self.trained("valid", 0, valid)
        loss = metrics(trained)[0]["valid_loss"]
        self.assertEqual(metrics(self.trained("valid3", 3, valid))[0]["valid_loss"], loss)
        self.assertEqual(state_of(trained)["best_valid_loss"], loss)
        self.assertEqual(os.readlink(os.path.join(trained, "checkpoints", "best")), steps(trained)[-1])
        self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={self.at('valid-score')}", f"score.model={trained}",
                   f"score.corpus={self.at('valid.h5')}", "score.end=yes"])
        summary = read_json(self.at("valid-score"), "score", "summary.json")
        self.assertAlmostEqual(loss, summary["nll_nats"] / summary["tokens"], delta=1e-6)  # of float32 numbers
        self.assertIsNone(metrics(self.trained("valid-mle", 0, valid, "ngram.smoothing=mle"))[0]["valid_loss"])

    def test_a_mixture_tells_words_out_of_the_vocabulary(self):
        self.must(["bagpipe-data", "tokenizer", "--kind", "word", "--size", 300, "--out", self.at("few.json"), self.at("train.txt")])
        for part in ("train", "valid"):
            self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("few.json"), "--format", "lines", "--out", self.at(f"few-{part}.h5"),
                       self.at(part + ".txt")])
        for smoothing in ("kneser-ney", "mle"):
            self.trained("few-" + smoothing, 0, f"corpus.train={self.at('few-train.h5')}", f"ngram.smoothing={smoothing}")
            self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={self.at(smoothing + '-few')}", f"score.model={self.at('few-' + smoothing)}",
                       f"score.corpus={self.at('few-valid.h5')}", "score.tokens=yes"])
        folders = [self.at("kneser-ney-few"), self.at("mle-few")]
        self.must(["bagpipe-data", "mix", *folders, "--out", self.at("w.json")])
        weights = read_json(self.at("w.json"))
        self.assertIsNone(weights["models"][1]["perplexity"])  # it has tokens of probability 0, and helps all the same
        for name, shares in (("all", (1, 0)), ("none", (0, 1))):
            for model, share in zip(weights["models"], shares, strict=True):
                model["weight"] = share
            self.write(name + ".json", json.dumps(weights))
        self.must(["bagpipe-data", "mix", "--weights", self.at("all.json"), *folders, "--out", self.at("mixed")])
        mixed, first = read_json(self.at("mixed"), "summary.json"), read_json(folders[0], "score", "summary.json")
        self.assertGreater(first["oov"], 100)
        for key in ("nll_nats", "oov", "perplexity_without_oov", "zero_probability", "corpora"):
            self.assertEqual(mixed[key], first[key], key)
        result = bagpipe_test.run([program("bagpipe-data"), "mix", "--weights", self.at("none.json"), *folders, "--out", self.at("never")])
        self.assert_error(result, 65, "[mixture.zero_probability]")
        result = bagpipe_test.run([program("bagpipe-data"), "compare", *folders])
        self.assert_error(result, 65, "[scores.zero_probability]")

    def test_what_does_not_fit_is_said(self):
        for keys, *words in ((["model.layers=2"], "[model.unused_key]", "model.layers"),
                             (["model.kind=gpt", *GPT, "ngram.order=3"], "[model.unused_key]", "ngram.order"),
                             (["mesh.tensor=2"], "[ngram.split_mesh]"), (["corpus.weights=1"], "[ngram.has_weights]"),
                             (["ngram.order=8"], "[config.bad_value]", "ngram.order"), (["ngram.memory=1KiB"], "[config.bad_value]", "ngram.memory"),
                             (["ngram.prune=2,1"], "[ngram.bad_prune]"),
                             (["ngram.prune=1", "ngram.smoothing=mle"], "[ngram.prune_without_back_off]", "ngram.prune is set")):
            with self.subTest(keys):
                self.assert_error(self.pretrain("refused", 2 if "mesh.tensor=2" in keys else 0, *keys), 78, *words)

    def test_an_order_above_a_documents_length_is_fine(self):
        self.write("short.txt", "\n".join(["a", "b", "a b"]) + "\n")
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "lines", "--out", self.at("short.h5"),
                   self.at("short.txt")])
        for ranks in (0, 2):
            result = self.pretrain(f"short{ranks}", ranks, f"corpus.train={self.at('short.h5')}", "ngram.order=7")
            self.assertEqual(result.status, 0, str(result))
            self.assert_warning(result, "[ngram.no_discounts]", times=7)  # of so short a text no order has them
            self.assertEqual(read_json(self.at(f"short{ranks}"), "run.json")["exit"]["state"], "finished")


if __name__ == "__main__":
    bagpipe_test.main()
