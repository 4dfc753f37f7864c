"""BERT and RoBERTa: masked models train to the same losses on every mesh, to the same bits on 1 and 4 data ranks and across a kill;
they go into Hugging Face folders and back, whatever names those have. Their numbers are those of models.references."""
import json
import os
import pathlib
import struct

import bagpipe_test
import h5py
import numpy
import plain_bert
from bagpipe_test import FolderTest, digests, metrics, parts_miss, read_json, run, state_of, timeless

WORDS = """the a of and to in is was he for on with as at by from his that it had her she they we you not are but be have this one all were
when your can said there each which do how their if will up other about out many then them these so some would make like him""".split()
ENDS = ["##ing", "##ed", "##s"]
BERT = ["model.layers=2", "model.width=32", "model.heads=4", "model.context=24", "model.dropout=0.1", "train.batch=8", "train.steps=6",
        "train.valid_every=3", "train.log_every=1", "optimizer.lr=1e-2", "mask.next_sentence=no"]
FIRST = {"bert": [], "roberta": ["model.first_position=1"]}  # the tokenizer's padding token is 0


def tensors_of(folder):
    data = pathlib.Path(folder, "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return header, data[8 + size:]


def write_tensors(folder, header, data):
    text = json.dumps(header).encode()
    pathlib.Path(folder, "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


class WordsTest(FolderTest):
    """Corpora of WORDS, and trainings on them with KEYS."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("vocab.txt", "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "."] + WORDS + ENDS) + "\n")
        cls.must(["bagpipe-data", "tokenizer", "--vocab", cls.at("vocab.txt"), "--out", cls.at("tokenizer.json")])
        for name, documents in (("train", 90), ("valid", 11)):
            lines = [" ".join(WORDS[(d * 7 + k * k + k // 3) % len(WORDS)] + ("ing", "", "", "ed", "")[(d + k) % 5] for k in range(20 + d % 17))
                     + " ." for d in range(documents)]
            cls.write(f"{name}.txt", "\n".join(lines) + "\n")
            cls.must(["bagpipe-data", "corpus", "--tokenizer", cls.at("tokenizer.json"), "--format", "lines", "--out", cls.at(f"{name}.h5"),
                      cls.at(f"{name}.txt")])
        cls.write("words.ini", "[corpus]\ntrain = %s\nvalid = %s\n[math]\nprecision = f32\n" % (cls.at("train.h5"), cls.at("valid.h5")))

    def pretrain(self, name, ranks, *keys):
        return run([bagpipe_test.program("bagpipe"), "pretrain", self.at("words.ini"), f"run.dir={self.at(name)}", *self.KEYS, *keys], ranks)

    def trained(self, name, ranks, *keys):
        result = self.pretrain(name, ranks, *keys)
        self.assertEqual(result.status, 0, str(result))
        return self.at(name)


class Bert(WordsTest):
    KEYS = BERT

    def test_every_mesh_trains_the_same_model(self):
        meshes = (("all", 4, ["mesh.tensor=2", "mesh.data=2", "mesh.micro_batch=2"]),
                  ("chunks", 2, ["mesh.pipeline=2", "mesh.schedule=interleaved"]))
        for kind, many, more in (("bert", 2, []), ("roberta", 1, ["mask.span=3", "mask.whole_words=yes", "model.tied=no", "model.boundary=yes"])):
            keys = [f"model.kind={kind}", *FIRST[kind], *more]
            one = metrics(self.trained(f"{kind}-one", 0, *keys, "train.recompute=yes"))
            for name, ranks, mesh in meshes[:many]:
                with self.subTest(name, kind=kind):
                    for a, b in zip(one, metrics(self.trained(f"{kind}-{name}", ranks, *keys, *mesh)), strict=True):
                        self.assertLess(abs(a["loss"] - b["loss"]), 2e-5)
                        self.assertLess(abs(a.get("valid_loss", 0) - b.get("valid_loss", 0)), 2e-5)
                        if kind == "roberta":
                            self.assertLess(parts_miss(b, {"masked": 1, "boundary": 1}), 1e-12)
                            self.assertLess(abs(a["loss_boundary"] - b["loss_boundary"]), 2e-5)

    def filled(self, name, model, ranks, *keys):
        result = run([bagpipe_test.program("bagpipe"), "generate", self.at("fill.ini"), f"run.dir={self.at(name)}", f"generate.model={model}",
                      f"generate.prompts={self.at('prompts.jsonl')}", *keys], ranks)
        self.assertEqual(result.status, 0, str(result))
        return [json.loads(line) for line in pathlib.Path(self.at(name), "generate", "outputs.jsonl").read_text(encoding="utf-8").splitlines()]

    def test_masks_are_filled_in_by_rounds(self):
        for kind in ("bert", "roberta"):
            model = self.trained(f"fill-{kind}", 0, f"model.kind={kind}", *FIRST[kind], "train.steps=30")
            self.check_filling(kind, model)

    def check_filling(self, kind, model):
        vocabulary = pathlib.Path(self.at("vocab.txt")).read_text(encoding="utf-8").splitlines()
        mask = vocabulary.index("[MASK]")
        texts = [[vocabulary.index(word) for word in line.split() if word in vocabulary][:10]
                 for line in pathlib.Path(self.at("valid.txt")).read_text(encoding="utf-8").splitlines()[:3]]
        holes = [[mask if k % 3 == 1 else token for k, token in enumerate(text)] for text in texts]
        self.write("prompts.jsonl", "".join(json.dumps({"tokens": tokens}) + "\n" for tokens in [*holes, texts[0][:4]]))
        self.write("fill.ini", "[generate]\nstrategy = fill\ntokens = 5\nbatch = 3\n[math]\nprecision = f32\n")
        one = self.filled(f"{kind}-filled", model, 0, "generate.rounds=3")
        self.assertEqual([len(line["tokens"]) for line in one], [sum(token == mask for token in hole) for hole in holes] + [5])
        for line in one:
            self.assertFalse({mask, vocabulary.index("[CLS]"), vocabulary.index("[SEP]")} & set(line["tokens"]))
        self.assertEqual(self.filled(f"{kind}-data", model, 2, "generate.rounds=3", "mesh.data=2"), one)
        for a, b in zip(one, self.filled(f"{kind}-split", model, 4, "generate.rounds=3", "mesh.tensor=2", "mesh.pipeline=2"), strict=True):
            self.assertEqual(a["tokens"], b["tokens"])
            numpy.testing.assert_allclose(a["logprobs"], b["logprobs"], atol=2e-5)
        self.must(["bagpipe-data", "export", model, "--out", self.at(f"fill-plain-{kind}"), "--no-tokenizer"])
        self.must(["bagpipe-data", "import", self.at(f"fill-plain-{kind}"), "--out", self.at(f"wordless-{kind}")])
        self.assert_error(run([bagpipe_test.program("bagpipe"), "generate", self.at("fill.ini"), f"run.dir={self.at('none-' + kind)}",
                               f"generate.model={self.at('wordless-' + kind)}", f"generate.prompts={self.at('prompts.jsonl')}"]), 78,
                          "[generate.no_special_token]")
        self.assert_error(run([bagpipe_test.program("bagpipe"), "generate", self.at("fill.ini"), f"run.dir={self.at('greedy-' + kind)}",
                               f"generate.model={model}", f"generate.prompts={self.at('prompts.jsonl')}", "generate.strategy=greedy"]), 78,
                          "[model.not_causal]", "use fill")
        plain = plain_bert.Bert(self.at(f"fill-plain-{kind}"))
        for hole, line in zip([*holes, texts[0][:4] + [mask] * 5], one):
            tokens, logprobs = plain.fill(hole, vocabulary, 3)
            self.assertEqual(line["tokens"], tokens)
            numpy.testing.assert_allclose(line["logprobs"], logprobs, atol=2e-5)
        again = self.filled(f"{kind}-remasked", model, 0, "generate.rounds=3", "generate.remask=yes")
        for hole, line in zip([*holes, texts[0][:4] + [mask] * 5], again):
            tokens, logprobs = plain.fill_again(hole, vocabulary, 3)
            self.assertEqual(line["tokens"], tokens)
            numpy.testing.assert_allclose(line["logprobs"], logprobs, atol=2e-5)
        self.write("prompts.jsonl", json.dumps({"tokens": texts[0][:1] * 21 + [mask]}) + "\n")  # context - 2
        self.assertEqual(len(self.filled(f"{kind}-filled-whole", model, 0)[0]["tokens"]), 1)
        words = [vocabulary[token] for token in texts[0][:3]]
        self.write("prompts.jsonl", json.dumps({"prompt": f"{words[0]} [MASK] {words[1]} [MASK] {words[2]}"}) + "\n")
        self.assertEqual(len(self.filled(f"{kind}-filled-text", model, 0)[0]["tokens"]), 2)
        self.assert_error(run([bagpipe_test.program("bagpipe"), "generate", self.at("fill.ini"), f"run.dir={self.at('never-' + kind)}",
                               f"generate.model={model}", f"generate.prompts={self.at('prompts.jsonl')}", "generate.strategy=greedy"]), 78,
                          "[model.not_causal]")
        self.write("long.jsonl", json.dumps({"tokens": texts[0][:1] * 22}) + "\n")
        self.assert_error(run([bagpipe_test.program("bagpipe"), "generate", self.at("fill.ini"), f"run.dir={self.at('long-' + kind)}", f"generate.model={model}",
                               f"generate.prompts={self.at('long.jsonl')}"]), 65, "[prompt.too_long]", "context of 24 less 3")

    def test_data_ranks_give_the_bits_of_one(self):
        one = self.trained("one", 0, "model.kind=bert")
        other = self.trained("data4", 4, "model.kind=bert")
        self.assertEqual(timeless(metrics(one)), timeless(metrics(other)))
        self.assertEqual(digests(one), digests(other))

    def test_a_killed_training_goes_on(self):
        keys = ["model.kind=roberta", *FIRST["roberta"], "checkpoint.every=2", "train.steps=40"]
        straight = self.trained("straight", 0, *keys)
        self.assertLess(metrics(straight)[-1]["valid_loss"], metrics(straight)[0]["loss"] - 0.25)
        result = run(["env", "BP_FAULT=step.end:3=kill", bagpipe_test.program("bagpipe"), "pretrain", self.at("words.ini"),
                      f"run.dir={self.at('killed')}", *BERT, *keys])
        self.assertEqual(result.status, -9, str(result))
        self.assertLess(len(metrics(self.at("killed"))), 40)
        killed = self.trained("killed", 0, *keys)
        self.assertEqual(timeless(metrics(straight)), timeless(metrics(killed)))
        self.assertEqual(digests(straight), digests(killed))

    def test_a_hugging_face_folder_comes_back_as_it_went(self):
        for name, keys in (("bert", ["model.kind=bert", "model.positions=48"]), ("masked", ["model.kind=bert", "model.pooler=no", "model.segments=3"]),
                           ("roberta", ["model.kind=roberta", "model.first_position=1", "model.inner=48", "model.tied=no", "model.positions=40"])):
            trained = self.trained(f"hf-{name}", 0, "train.steps=1", *keys)
            self.must(["bagpipe-data", "export", trained, "--out", self.at(f"{name}-folder")])
            self.must(["bagpipe-data", "import", self.at(f"{name}-folder"), "--out", self.at(f"{name}-back")])
            self.must(["bagpipe-data", "export", self.at(f"{name}-back"), "--out", self.at(f"{name}-again")])
            for file in ("config.json", "model.safetensors"):
                self.assertEqual(pathlib.Path(self.at(f"{name}-folder"), file).read_bytes(),
                                 pathlib.Path(self.at(f"{name}-again"), file).read_bytes(), file)
            model = state_of(trained)["model"]
            model["context"] = model.pop("positions", model["context"])  # Hugging Face's folders have one number of both
            self.assertEqual(model, read_json(self.at(f"{name}-back"), "manifest.json")["state"]["model"])
            self.trained(f"hf-{name}-longer", 0, "train.steps=1", f"model.init={trained}", f"model.context={model['context']}", *keys)

    def test_older_names_are_read(self):
        """Under the name of a class without the second head; without the prefix; with gamma and beta; with tensors that hold no parameters."""
        trained = self.trained("older", 0, "train.steps=1", "model.kind=bert")
        self.must(["bagpipe-data", "export", trained, "--out", self.at("new-names")])
        header, data = tensors_of(self.at("new-names"))
        config = pathlib.Path(self.at("new-names"), "config.json").read_text(encoding="utf-8")
        changes = {"masked-class": lambda name: name, "bare": lambda name: name.removeprefix("bert."),
                   "gamma": lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")}
        for folder, change in changes.items():
            os.mkdir(self.at(folder))
            self.write(f"{folder}/config.json", config.replace("BertForPreTraining", "BertForMaskedLM") if folder == "masked-class" else config)
            write_tensors(self.at(folder), {change(name): tensor for name, tensor in header.items()}, data)
            self.must(["bagpipe-data", "import", self.at(folder), "--out", self.at(f"{folder}-in"), "--no-tokenizer"])
            self.must(["bagpipe-data", "export", self.at(f"{folder}-in"), "--out", self.at(f"{folder}-out"), "--no-tokenizer"])
            self.assertEqual(pathlib.Path(self.at(f"{folder}-out"), "model.safetensors").read_bytes(),
                             pathlib.Path(self.at("new-names"), "model.safetensors").read_bytes())
        both = dict(header)
        both["bert.embeddings.LayerNorm.gamma"] = dict(header["bert.embeddings.LayerNorm.weight"])
        os.mkdir(self.at("both"))
        self.write("both/config.json", config)
        end = len(data)
        both["bert.embeddings.LayerNorm.gamma"]["data_offsets"] = [end, end + 128]
        write_tensors(self.at("both"), both, data + bytes(128))
        arguments = ["bagpipe-data", "import", self.at("both"), "--out", self.at("both-in"), "--no-tokenizer"]
        self.assert_error(run([bagpipe_test.program(arguments[0]), *arguments[1:]]), 65, "[huggingface.copies_differ]", "LayerNorm.gamma")
        begin, end = header["bert.embeddings.LayerNorm.weight"]["data_offsets"]
        write_tensors(self.at("both"), both, data + data[begin:end])
        result = self.must(arguments)
        self.assertIn("46 of 47 tensors", result.out)

    def score(self, name, model, ranks=0, *keys):
        self.must(["bagpipe", "score", self.at("score.ini"), f"run.dir={self.at(name)}", f"score.model={model}",
                   f"score.corpus={self.at('few.h5')}", *keys], ranks)
        return pathlib.Path(self.at(name), "score", "summary.json").read_bytes()

    def store(self, name):
        return os.path.join(self.at(name), "score", "states.h5")

    def check_neighbours(self, kind, model):
        """In its own datastore each token of a text finds itself, with a distance of rounding; half of the mixture is that one then."""
        store = self.store(f"{kind}-pll")
        for name, ranks, mesh in (("split", 4, ["mesh.tensor=2", "mesh.pipeline=2"]), ("data", 2, [])):
            self.score(f"{kind}-store-{name}", model, ranks, "score.states=yes", *mesh)
            with h5py.File(self.store(f"{kind}-store-{name}")) as file, h5py.File(store) as one:
                numpy.testing.assert_allclose(file["layer_0"][:], one["layer_0"][:], atol=2e-5)
        self.score(f"{kind}-near", model, 2, f"score.neighbours={store}", "neighbours.k=1", "neighbours.weight=0.5", "score.tokens=yes")
        with h5py.File(os.path.join(self.at(f"{kind}-near"), "score", "tokens.h5")) as file:
            mixed, alone = file["logprob"][:].astype(float), file["logprob_alone"][:].astype(float)
        numpy.testing.assert_allclose(mixed, numpy.log(0.5 + 0.5 * numpy.exp(alone)), atol=1e-6)
        cite = [bagpipe_test.program("bagpipe-data"), "cite", "--neighbours", "1"]
        for ranks in (0, 2):
            lines = self.must([*cite, "--entries", model, store, " ".join(WORDS[:8])], ranks).out.splitlines()[1:]
            rows = [line.split("\t") for line in lines]
            self.assertEqual([(row[3], row[5]) for row in rows], [("2", str(k)) for k in range(8)])
            self.assertLess(max(float(row[2]) for row in rows), 1e-6)
        if kind == "bert":
            return
        for status, name, rest in ((65, "cite.long_text", [" ".join(WORDS[:9])]), (64, "cite.other_source", ["--source", "the", "the"])):
            self.assert_error(run([*cite, model, store, *rest]), status, f"[{name}]")
        self.write("pair.json", json.dumps({"members": [{"name": name, "path": model} for name in "ab"]}))
        for keys, name in (([f"score.neighbours={store}"], "neighbours.no_keys"), (["score.states=yes"], "score.no_states")):
            self.assert_error(run([bagpipe_test.program("bagpipe"), "score", self.at("score.ini"), f"run.dir={self.at('no')}",
                                   f"score.model={self.at('pair.json')}", f"score.corpus={self.at('few.h5')}", *keys]), 78, f"[{name}]", *(["ensemble of 2"] if "states" in name else []))

    def test_pseudo_log_likelihoods_are_those_of_a_plain_program(self):
        """Of plain_bert.py, which masks each token itself: pll and pll_word, documents longer than a window, an ensemble of one model."""
        lines = ["the man", "looking for it the had theyed ing . thes wased", " ".join(WORDS[:9])]
        self.write("few.txt", "\n".join(lines) + "\n")
        self.write("score.ini", "[math]\nthreads = 1\nprecision = f32\n")
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "lines", "--out", self.at("few.h5"),
                   self.at("few.txt")])
        for kind in ("bert", "roberta"):
            model = self.trained(f"scored-{kind}", 0, f"model.kind={kind}", *FIRST[kind], "train.steps=20", "model.context=10")
            self.must(["bagpipe-data", "export", model, "--out", self.at(f"plain-{kind}"), "--no-tokenizer"])
            plain = plain_bert.Bert(self.at(f"plain-{kind}"))
            for convention in ("pll", "pll_word"):
                summary = json.loads(self.score(f"{kind}-{convention}", model, 0, f"score.convention={convention}", "score.states=yes"))
                vocabulary = pathlib.Path(self.at("vocab.txt")).read_text(encoding="utf-8").split("\n")
                total, keys = plain.score(lines, vocabulary, 8, convention == "pll_word")
                self.assertEqual(summary["tokens"], len(keys))
                self.assertLess(abs(summary["nll_nats"] - total), 1e-4, (kind, convention))
                self.assertEqual(summary["convention"]["name"], convention)
                with h5py.File(self.store(f"{kind}-{convention}")) as file:
                    numpy.testing.assert_allclose(file["layer_0"][:][file["scored"][:] == 1], keys, atol=2e-5)
            self.check_neighbours(kind, model)
        one = self.score("default", model)
        self.assertEqual(one, pathlib.Path(self.at("roberta-pll"), "score", "summary.json").read_bytes())
        self.assertEqual(one, self.score("two", model, 2))
        split = json.loads(self.score("split", model, 4, "mesh.tensor=2", "mesh.pipeline=2"))
        self.assertLess(abs(split["nll_nats"] - json.loads(one)["nll_nats"]), 1e-4)
        self.write("both.json", json.dumps({"members": [{"name": "a", "path": model}, {"name": "b", "path": model}]}))
        both = json.loads(self.score("ensembled", self.at("both.json")))
        self.assertLess(abs(both["nll_nats"] - json.loads(one)["nll_nats"]), 1e-4)
        again = self.score("again", model, 0, "score.stride=8", "score.context=10")  # as config.ini has them
        self.assertEqual(one, again)
        self.must(["bagpipe", "uncertainty", self.at("score.ini"), f"run.dir={self.at('methods')}",
                   f"uncertainty.models=two={self.at('both.json')},passes={model}:dropout,laplace={model}:laplace", "uncertainty.passes=2",
                   f"uncertainty.in_domain={self.at('few.h5')}", f"corpus.train={self.at('valid.h5')}", "uncertainty.resamples=100"])
        for keys, name in ((["score.convention=rolling"], "other_convention"), (["score.convention=pll", "score.stride=3"], "stride_not_context")):
            result = run([bagpipe_test.program("bagpipe"), "score", self.at("score.ini"), f"run.dir={self.at('no')}", f"score.model={model}",
                          f"score.corpus={self.at('few.h5')}", *keys])
            self.assert_error(result, 78, f"[score.{name}]")

    def test_what_does_not_fit_is_said(self):
        self.must(["bagpipe-data", "tokenizer", "--kind", "char", "--out", self.at("char.json"), self.at("valid.txt")])
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("char.json"), "--format", "lines", "--out", self.at("char.h5"),
                   self.at("valid.txt")])
        chars = [f"corpus.{part}={self.at('char.h5')}" for part in ("train", "valid")]
        for keys, name in ((["model.kind=bert", "mask.next_sentence=yes"], "corpus.no_sentences"),
                           (["model.kind=roberta", *chars], "corpus.no_special_token"),
                           (["model.kind=roberta"], "model.other_padding"),
                           (["model.kind=roberta", "model.pooler=yes"], "model.unused_key"),
                           (["model.kind=bert", "model.first_position=1"], "model.unused_key"),
                           (["model.kind=gpt"], "model.unused_key"),
                           (["model.kind=bert", "mask.keep=0.6", "mask.random=0.6"], "mask.shares"),
                           (["model.kind=bert", "model.context=2"], "model.short_context"),
                           (["model.kind=bert", "model.heads=3", "model.head_width=8", "mesh.tensor=3"], "mesh.not_dividing"),
                           (["model.kind=bert", "train.sample_every=1"], "model.not_causal")):
            result = self.pretrain("refused", {"corpus.no_sentences": 2, "mesh.not_dividing": 3}.get(name, 0), *keys)
            self.assert_error(result, 78, f"[{name}]", *([self.at("train.h5")] if name == "corpus.no_sentences" else []))
        self.assert_error(self.pretrain("refused", 0, "model.kind=mpnet"), 78, "[model.other_padding]", "kind mpnet", "at corpus.train")  # it has no such key


if __name__ == "__main__":
    bagpipe_test.main()
