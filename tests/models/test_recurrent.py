"""A recurrent model carries its state from window to window: it trains on every mesh, to the same bits on 1 and 4 data ranks, is
killed and goes on with the state it had, on another mesh too; it is scored, ensembled, and goes into a folder and back. Its numbers
are those of models.recurrent."""
import json
import os

import h5py
import numpy

import bagpipe_test
from bagpipe_test import JobTest, digests, metrics, program, read_json, run, steps, timeless
from recurrent_numpy import Recurrent as Oracle

COMMON = ["model.heads=", "model.dropout=0.1", "train.valid_every=3"]


def lines_of(folder):
    with open(os.path.join(folder, "generate", "outputs.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def clockless(value):
    """Without what a clock or the machine tells."""
    if isinstance(value, dict):
        return {k: clockless(v) for k, v in value.items() if not k.endswith("_seconds") and k != "memory_mib"}
    return [clockless(v) for v in value] if isinstance(value, list) else value


class Recurrent(JobTest):
    def keys(self, kind, *more):
        return [f"model.kind={kind}", "train.steps=6", *COMMON, *more]

    def recurrent(self, kind, name, ranks=0, *more):
        return self.trained(name, ranks, *self.keys(kind, *more))

    def test_every_mesh_trains_the_same_model(self):
        for kind in ("rnn", "lstm", "gru", "cell"):
            one = metrics(self.recurrent(kind, f"one-{kind}", 0, "train.recompute=yes"))
            for name, ranks, keys in (("tensor", 2, ["mesh.tensor=2"]), ("all", 4, ["mesh.tensor=2", "mesh.pipeline=2"]))[0 if kind == "lstm" else 1:]:
                with self.subTest(name, kind=kind):
                    other = metrics(self.recurrent(kind, f"{name}-{kind}", ranks, *keys))
                    for a, b in zip(one, other, strict=True):
                        self.assertLess(abs(a["loss"] - b["loss"]), 2e-5)

    def test_data_ranks_give_the_bits_of_one(self):
        for kind in ("lstm", "cell"):
            one = self.recurrent(kind, f"data1-{kind}")
            other = self.recurrent(kind, f"data4-{kind}", 4)
            self.assertEqual(timeless(metrics(one)), timeless(metrics(other)))
            self.assertEqual(digests(one), digests(other))

    def test_the_state_is_carried_over_a_kill_and_to_another_mesh(self):
        straight = self.recurrent("gru", "straight", 0)
        self.assertIn("carry/h.0.state", digests(straight))
        killed = self.background([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('killed')}", "checkpoint.every=2",
                                  *self.keys("gru")], 2, env={"BP_FAULT": "step.end:5@1=kill"})
        killed.communicate()
        self.assertNotEqual(killed.returncode, 0)
        self.assertLess(steps(self.at("killed"))[-1], "step-000000000006")
        self.recurrent("gru", "killed", 0, "checkpoint.every=2")
        self.assertEqual(timeless(metrics(straight)), timeless(metrics(self.at("killed"))))
        self.assertEqual(digests(straight), digests(self.at("killed")))

    def test_windows_in_order_are_what_carries_a_state(self):
        documents = metrics(self.recurrent("rnn", "documents"))
        losses = {documents[-1]["loss"]}
        for order in ("shuffle", "stream"):
            losses.add(metrics(self.recurrent("rnn", order, 0, f"corpus.order={order}"))[-1]["loss"])
        self.assertEqual(len(losses), 3)
        self.assertEqual(timeless(documents), timeless(metrics(self.recurrent("rnn", "said", 0, "corpus.order=documents"))))

    def test_a_run_goes_on_with_the_order_that_it_began_with(self):
        """Older programs carried the state over all documents, and recorded corpus.order=auto."""
        whole = self.recurrent("gru", "whole-stream", 0, "corpus.order=stream")
        begun = self.recurrent("gru", "begun", 0, "corpus.order=stream", "train.steps=3")
        with open(os.path.join(begun, "config.ini"), encoding="utf-8") as file:
            text = file.read()
        with open(os.path.join(begun, "config.ini"), "w", encoding="utf-8") as file:
            file.write(text.replace("order = stream", "order = auto"))
        record = read_json(begun, "run.json")
        del record["config_sha256"]
        with open(os.path.join(begun, "run.json"), "w", encoding="utf-8") as file:
            json.dump(record, file)
        self.recurrent("gru", "begun")
        self.assertEqual(timeless(metrics(whole)), timeless(metrics(begun)))
        self.assertEqual(digests(whole), digests(begun))

    def test_it_is_scored_ensembled_and_goes_into_a_folder_and_back(self):
        trained = self.recurrent("lstm", "exported", 0, "model.embedding=20")
        self.must(["bagpipe-data", "export", trained, "--out", self.at("folder"), "--no-tokenizer"])
        self.must(["bagpipe-data", "import", self.at("folder"), "--out", self.at("back"), "--no-tokenizer"])
        self.must(["bagpipe-data", "export", self.at("back"), "--out", self.at("again"), "--no-tokenizer"])
        for file in ("config.json", "model.safetensors"):
            with open(os.path.join(self.at("folder"), file), "rb") as a, open(os.path.join(self.at("again"), file), "rb") as b:
                self.assertEqual(a.read(), b.read(), file)
        scores = []
        for model, ranks in ((trained, 0), (self.at("back"), 2)):
            folder = self.at("score-" + os.path.basename(model))
            self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={folder}", f"score.model={model}", f"score.corpus={self.at('valid.h5')}"],
                      ranks)
            scores.append(read_json(folder, "score", "summary.json")["corpora"])
        self.assertEqual(scores[0], scores[1])
        many = run([program("bagpipe"), "ensemble", self.at("small.ini"), f"run.dir={self.at('many')}", "ensemble.members=2",
                    "mesh.members=2", *self.keys("rnn")], 2)
        self.assertEqual(many.status, 0, str(many))
        folder = self.at("score-many")
        self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={folder}", f"score.model={self.at('many')}", f"score.corpus={self.at('valid.h5')}"])
        self.assertGreater(read_json(folder, "score", "summary.json")["corpora"]["valid"]["mutual_information"], 0)

    def long_documents(self):
        """Shorter and longer than a piece of scoring, of 256 inputs: (path, documents)."""
        random = numpy.random.default_rng(5)
        documents = [random.integers(0, self.VOCABULARY - 1, n) for n in (1, 700, 256, 3, 257, 255, 0, 40, 513, 512, 300)]
        if not os.path.exists(self.at("long.h5")):
            with h5py.File(self.at("long.h5"), "w") as file:
                file["tokens"] = numpy.concatenate(documents).astype(numpy.int32)
                file["doc_start"] = numpy.cumsum([0] + [len(d) for d in documents]).astype(numpy.uint64)
                file.attrs["vocab_size"] = self.VOCABULARY
            self.convert("long.h5")
        return self.at("long.h5"), documents

    def score_long(self, name, model, ranks=0, *keys):
        path, documents = self.long_documents()
        self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={self.at(name)}", f"score.model={model}", f"score.corpus={path}",
                   "score.tokens=yes", *keys], ranks)
        with h5py.File(os.path.join(self.at(name), "score", "tokens.h5")) as file:
            values = file["logprob"][:]
        return numpy.split(values, numpy.cumsum([len(d) for d in documents])[:-1]), read_json(self.at(name), "score", "summary.json")

    def test_a_document_is_scored_as_one_window(self):
        documents = self.long_documents()[1]
        for kind, keys, ranks, mesh in (("rnn", [], 2, []), ("lstm", ["model.embedding=20"], 2, ["mesh.tensor=2"]),
                                        ("gru", ["model.tied=yes"], 3, ["mesh.pipeline=3"]),
                                        ("cell", ["model.cell=none:0,identity:0,tanh:2,relu:2,sigmoid:4"], 2, [])):
            model = self.recurrent(kind, f"scored-{kind}", 0, *keys)
            self.must(["bagpipe-data", "export", model, "--out", self.at(f"folder-{kind}"), "--no-tokenizer"])
            oracle = Oracle(self.at(f"folder-{kind}"))
            got, summary = self.score_long(f"long-{kind}", model)
            other = self.score_long(f"many-{kind}", model, ranks, *mesh)
            if not mesh:
                self.assertEqual(summary, other[1])
            for a, b in zip(got, other[0], strict=True):
                numpy.testing.assert_allclose(a, b, atol=2e-5)
            for document, values in zip(documents, got, strict=True):
                want = oracle.logprobs([self.VOCABULARY - 1, *document])  # the end-of-document token before it
                numpy.testing.assert_allclose(values, want, atol=2e-5)
            self.assertEqual(summary["convention"]["context"], 0)
            cut = self.score_long(f"cut-{kind}", model, 0, "score.context=300")[0]
            numpy.testing.assert_allclose(cut[1][:300], got[1][:300], atol=2e-5)
            numpy.testing.assert_allclose(cut[1][300:600], oracle.logprobs([*documents[1][299:600]]), atol=2e-5)

    def test_it_generates_whatever_the_length(self):
        for kind in ("rnn", "lstm", "gru", "cell"):
            model = self.recurrent(kind, f"writes-{kind}")
            self.must(["bagpipe-data", "export", model, "--out", self.at(f"writes-folder-{kind}"), "--no-tokenizer"])
            oracle, prompts = Oracle(self.at(f"writes-folder-{kind}")), [[5, 7, 9], [100], list(range(40, 100))]  # more than model.context = 32
            self.write("prompts.jsonl", "".join(f'{{"tokens": {p}}}\n' for p in prompts))
            command = ["bagpipe", "generate", self.write("generate.ini", ""), "math.precision=f32", "math.threads=1", f"generate.model={model}",
                       f"generate.prompts={self.at('prompts.jsonl')}", "generate.tokens=50"]
            self.must([*command, f"run.dir={self.at(f'greedy-{kind}')}", "generate.strategy=greedy"])
            for prompt, line in zip(prompts, lines_of(self.at(f"greedy-{kind}")), strict=True):
                oracle.reset()
                for token in prompt:
                    logprobs = oracle.step(token)
                for token, logprob in zip(line["tokens"], line["logprobs"], strict=True):
                    self.assertGreaterEqual(logprobs[token], logprobs.max() - 1e-4)
                    self.assertAlmostEqual(logprobs[token], logprob, delta=1e-4)
                    logprobs = oracle.step(token)
            beams = [*command, "generate.strategy=beam", "generate.beams=3", "generate.samples=3", "generate.tokens=12"]
            self.must([*beams, f"run.dir={self.at(f'beams-{kind}')}"])
            self.must([*beams, f"run.dir={self.at(f'beams2-{kind}')}"], 2)
            for line in lines_of(self.at(f"beams-{kind}")):
                want = oracle.logprobs([*prompts[line["index"]], *line["tokens"]])[-len(line["tokens"]):]
                self.assertAlmostEqual(line["logprob"], want.sum(), delta=1e-3)
            self.assertEqual(lines_of(self.at(f"beams-{kind}")), lines_of(self.at(f"beams2-{kind}")))

    def test_how_sure_it_is_of_documents_in_pieces(self):
        many = run([program("bagpipe"), "ensemble", self.at("small.ini"), f"run.dir={self.at('sure')}", "ensemble.members=2", "ensemble.kind=seed",
                    *self.keys("lstm")])
        self.assertEqual(many.status, 0, str(many))
        documents = self.long_documents()[1]
        values, summary = self.score_long("sure-long", self.at("sure"), 0)
        self.assertEqual(summary["members"][0]["name"], "m00")
        mixed = numpy.zeros(sum(map(len, documents)))
        for member in ("m00", "m01"):
            alone = self.score_long(f"sure-{member}", os.path.join(self.at("sure"), "members", member))[0]
            mixed += numpy.exp(numpy.concatenate(alone).astype(numpy.float64)) / 2
        numpy.testing.assert_allclose(numpy.concatenate(values), numpy.log(mixed), atol=1e-5)
        self.assertEqual(self.score_long("sure-two", self.at("sure"), 2, "mesh.members=2")[1]["members"], summary["members"])
        with open(self.at("valid.txt"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        texts = [" ".join(lines[k:k + 1 + k % 90]) for k in range(0, len(lines), 40)]  # some of several pieces
        self.write("sure.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in texts))
        path = self.at("sure.h5")
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "jsonl", "--out", path, self.at("sure.jsonl")])
        studies = []
        for ranks in (0, 2):
            name = f"study-{ranks}"
            self.must(["bagpipe", "uncertainty", self.at("small.ini"), f"run.dir={self.at(name)}", f"uncertainty.in_domain={path}",
                       f"uncertainty.shifted={self.at('valid.h5')}", "uncertainty.passes=3", "laplace.samples=2", "laplace.tokens=500",
                       f"uncertainty.models=four={self.at('sure')}, drop={os.path.join(self.at('sure'), 'members', 'm00')}:dropout, "
                       f"laplace={os.path.join(self.at('sure'), 'members', 'm01')}:laplace"], ranks)
            studies.append(read_json(self.at(name), "uncertainty", "summary.json"))
        self.assertEqual(clockless(studies[0]), clockless(studies[1]))

    def test_validation_reads_the_stream_in_slots(self):
        random, eod = numpy.random.default_rng(6), self.VOCABULARY - 1
        tokens = random.integers(0, eod, 711)
        tokens[[100, 300, -1]] = eod
        with h5py.File(self.at("slots.h5"), "w") as file:
            file["tokens"] = tokens.astype(numpy.int32)
            file["doc_start"] = numpy.array([0, 101, 301, len(tokens)], dtype=numpy.uint64)
            file.attrs["vocab_size"], file.attrs["eod_id"] = self.VOCABULARY, eod
        keys = ["model.dropout=0", f"corpus.valid={self.convert('slots.h5')}", "tokenizer.path=" + self.at("tokenizer.json"), "mesh.micro_batch=2"]
        one = self.recurrent("gru", "valid-one", 0, *keys)
        two = self.recurrent("gru", "valid-two", 2, *keys)
        stages = self.recurrent("gru", "valid-stages", 2, *keys, "mesh.pipeline=2")
        stream = self.recurrent("gru", "valid-stream", 0, *keys, "corpus.order=stream")
        self.assertEqual(timeless(metrics(one)), timeless(metrics(two)))
        windows, tail = divmod(len(tokens) - 1, 32)  # 22 and 6: eight slots, of 3 windows the first six, of 2 the others; the last has the tail
        lengths = [32 * (windows // 8 + (slot < windows % 8)) + (tail if slot == 7 else 0) for slot in range(8)]
        for folder, begins in ((one, [eod]), (stages, [eod]), (stream, [])):
            self.must(["bagpipe-data", "export", folder, "--out", folder + "-folder", "--no-tokenizer"])
            oracle, logprobs, first = Oracle(folder + "-folder"), [], 0
            for length in lengths:
                pieces = numpy.array_split(tokens[first:first + length + 1], [k for k in range(1, length) if tokens[first + k] in begins])  # each from the zero state
                for piece, after in zip(pieces, [*(piece[:1] for piece in pieces[1:]), []]):
                    logprobs += [*oracle.logprobs([*piece, *after])]
                first += length
            self.assertEqual(len(logprobs), len(tokens) - 1)
            self.assertAlmostEqual(metrics(folder)[-1]["valid_loss"], -numpy.mean(logprobs), delta=1e-5)

    def test_what_does_not_fit_is_said(self):
        for keys, words in ((["model.tied=yes", "model.embedding=20"], ("[model.unlike_widths]", "model.embedding = 20")),
                            (["mesh.tensor=2", "mesh.sequence_parallel=yes"], ("[mesh.no_sequence_parallel]", "mesh.sequence_parallel = yes")),
                            (["model.heads=4"], ("[model.unused_key]", "model.kind = lstm", "model.heads")),
                            (["corpus.weights=1"], ("[corpus.weights_unused]", "corpus.weights"))):
            result = self.pretrain("refused", 2 if "mesh.tensor=2" in keys else 0, *self.keys("lstm"), *keys)
            self.assert_error(result, 78, *words)
        self.assert_error(self.pretrain("refused", 0, "corpus.order=documents"), 78, "[corpus.no_restarts]", "not gpt")


if __name__ == "__main__":
    bagpipe_test.main()
