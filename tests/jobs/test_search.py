"""bagpipe search: trials, shared weights, rankings and winners, with the same bytes on any ranks and over kills."""
import csv
import json
import os
import signal

import bagpipe_test
from bagpipe_test import JobTest, digests, metrics, program, read_json, run, state_of

SPACE = "search.space=model.layers=1,2,3; model.width=16,32; model.heads=2,4; model.inner=16,32,64"
RANKED = ("search.method=ranked", "search.trials=9", "search.shared_steps=12", "search.final=2", "train.steps=6")


class Search(JobTest):
    TEXT_BYTES = 40_000

    def search(self, name, ranks=0, *keys, **more):
        return run([program("bagpipe"), "search", self.at("small.ini"), f"run.dir={self.at(name)}", SPACE, "train.log_every=5"] + list(keys),
                   ranks, **more)

    def made(self, name, ranks=0, *keys):
        result = self.search(name, ranks, *keys)
        self.assertEqual(result.status, 0, str(result))
        return self.at(name)

    def table(self, name):
        with open(os.path.join(self.at(name), "search", "table.csv"), encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def file(self, name, file):
        with open(os.path.join(self.at(name), "search", file), "rb") as stream:
            return stream.read()

    def same(self, one, other, files=("table.csv", "summary.json", "best.ini", "trials.json")):
        for file in files:
            self.assertEqual(self.file(one, file), self.file(other, file), file)

    def ranked(self):
        """The search of one rank that others are compared with."""
        if not os.path.exists(self.at("ranked")):
            self.made("ranked", 0, *RANKED)
        return "ranked"

    # ---- random ----

    def test_random_trials_are_pretrain_runs_of_their_keys(self):
        self.made("random", 0, "search.trials=3", "search.steps=3", "search.final=1", "train.steps=5")
        rows = self.table("random")
        self.assertEqual(len({tuple(row[key] for key in row if key.startswith("model.")) for row in rows}), 3)
        scores = [float(row["score"]) for row in rows]
        self.assertEqual(scores, sorted(scores))
        self.assertEqual([row["final_loss"] != "" for row in rows], [True, False, False])
        row = rows[1]
        keys = [f"{key}={value}" for key, value in row.items() if key.startswith("model.")]
        plain = self.trained("plain", 0, "train.steps=3", *keys)
        trial = os.path.join(self.at("random"), "search", "trials", row["trial"])
        self.assertEqual(digests(plain), digests(trial))
        self.assertEqual(metrics(plain)[-1]["valid_loss"], float(row["score"]))
        self.assertEqual(int(row["bytes"]), 4 * int(row["parameters"]))
        best = read_json(self.at("random"), "search", "summary.json")["winner"]
        self.assertEqual((best["trial"], best["final_loss"]), (rows[0]["trial"], float(rows[0]["final_loss"])))

        # best.ini is the configuration of the winner's training, which is that of a final
        final = os.path.join(self.at("random"), "search", "final", best["trial"])
        result = run([program("bagpipe"), "pretrain", os.path.join(self.at("random"), "search", "best.ini"), f"run.dir={self.at('best')}"])
        self.assertEqual(result.status, 0, str(result))
        self.assertEqual(digests(self.at("best")), digests(final))

        # the same command again has nothing to do
        result = self.search("random", 0, "search.trials=3", "search.steps=3", "search.final=1", "train.steps=5")
        self.assertEqual(result.status, 0, str(result))
        self.assertIn("the search is finished", result.out)

    def test_groups_of_ranks_train_side_by_side_with_the_same_bytes(self):
        keys = ("search.trials=4", "search.steps=2", "search.final=2", "train.steps=3")
        self.made("alone", 0, *keys)
        self.made("groups", 2, "mesh.members=2", *keys)
        self.same("alone", "groups")
        self.made("dedicated", 3, "mesh.members=2", "mesh.data=1", *keys)
        self.same("alone", "dedicated")

    def test_a_space_of_few_models_is_tried_once_each(self):
        self.made("few", 0, "search.space=model.layers=1,2; model.width=16; model.heads=3,16", "search.trials=9", "search.final=0",
                  "train.steps=1")
        self.assertEqual(sorted(row["model.layers"] for row in self.table("few")), ["1", "2"])  # 3 heads do not divide 16

    # ---- limits ----

    def test_limits_are_kept(self):
        self.made("limit", 0, "search.limit=parameters<=30000,tokens_per_second>=1", "search.trials=3", "search.final=0", "train.steps=1")
        rows = self.table("limit")
        self.assertTrue(all(int(row["parameters"]) <= 30000 for row in rows), rows)
        self.assertTrue(all(float(row["tokens_per_second"]) > 1 for row in rows), rows)
        for limit in ("parameters<=10", "bytes<=4000"):
            self.assert_error(self.search("none", 0, "search.limit=" + limit), 78, "[search.no_model]", limit)
        self.assertFalse(os.path.exists(self.at("none")))
        self.assert_error(self.search("slow", 0, "search.limit=tokens_per_second>=1e15"), 78, "[search.no_model]", "1e15")

    # ---- evolution ----

    def test_evolution_goes_on_from_the_best(self):
        self.made("evolved", 0, "search.method=evolution", "search.trials=8", "search.population=4", "search.steps=1", "search.final=0",
                  "train.steps=2")
        rows = sorted(self.table("evolved"), key=lambda row: row["trial"])
        self.assertEqual(len(rows), 8)
        best = sorted(rows[:4], key=lambda row: float(row["score"]))[:2]
        shapes = [tuple(row[key] for key in row if key.startswith("model.")) for row in rows]
        self.assertEqual(len(set(shapes)), 8)
        parents = [shapes[rows.index(row)] for row in best]
        for child in shapes[4:]:  # a mutation or a crossover: it has something of a parent
            self.assertTrue(any(a == b for parent in parents for a, b in zip(child, parent)), (child, parents))

    def test_evolution_goes_through_shared_weights_too(self):
        self.made("shared", 0, "search.method=evolution", "search.shared=yes", "search.trials=6", "search.population=4", "search.shared_steps=4",
                  "search.final=1", "train.steps=2")
        rows = self.table("shared")
        self.assertEqual((len(rows), {row["train_flops"] for row in rows}), (6, {"0"}))
        self.assertEqual([row["final_loss"] != "" for row in rows], [True] + 5 * [False])

    # ---- shared weights ----

    def test_ranked_orders_by_a_ranking_of_shared_scores(self):
        self.ranked()
        rows, summary = self.table("ranked"), read_json(self.at("ranked"), "search", "summary.json")
        self.assertEqual((len(rows), summary["ranking"]["pairs"] > 30), (11, True))
        orders = [float(row["order"]) for row in rows]
        self.assertEqual(orders, sorted(orders))
        self.assertEqual({row["train_flops"] for row in rows}, {"0"})
        self.assertEqual(sum(row["final_loss"] != "" for row in rows), 2)
        self.assertGreater(summary["flops"]["shared_weights"], 0)
        names = [feature["name"] for feature in summary["ranking"]["features"]]
        self.assertEqual(names[:2] + names[-1:], ["model.layers", "log model.layers", "log FLOPs"])
        # shared weights are those of the largest model
        shape = state_of(os.path.join(self.at("ranked"), "search", "shared"))["model"]
        self.assertEqual([shape[key] for key in ("layers", "width", "heads", "inner")], [3, 32, 4, 64])
        with open(os.path.join(self.at("ranked"), "search", "index.html"), encoding="utf-8") as file:
            page = file.read()
        self.assertNotRegex(page, "https?://(?!www.w3.org)")
        self.assertIn(rows[0]["trial"], page)
        self.assertIn("<h1>Search for the shape of a model: ranked</h1>", page)
        self.assertIn("<th>score</th><th>from scratch</th>", page)

    def test_boosted_trees_order_the_same_trials_another_way(self):
        self.made("boosted", 0, *RANKED, "search.ranker=boosted", "search.final=1")
        ranking = read_json(self.at("boosted"), "search", "summary.json")["ranking"]
        self.assertEqual((ranking["ranker"], {feature["weight"] for feature in ranking["features"]}), ("boosted", {None}))
        orders = [float(row["order"]) for row in self.table("boosted")]
        self.assertEqual(orders, sorted(orders))
        self.assertGreater(len(set(orders)), 1)
        self.assert_error(self.search("boosted", 0, *RANKED, "search.final=1"), 78, "search.ranker")

    def test_shared_scores_are_those_of_the_first_rows_and_columns(self):
        """A trial's score is the validation loss of a model with these weights: cut out here, and scored by a training of rate 0."""
        import numpy
        self.ranked()
        row = next(row for row in self.table("ranked") if (row["model.layers"], row["model.width"]) == ("2", "16"))
        keys = [f"{key}={value}" for key, value in row.items() if key.startswith("model.")]
        self.trained("cut", 0, "train.steps=1", "optimizer.lr=1e-30", "optimizer.weight_decay=0", *keys)
        whole, part = {}, {}
        for tensors, folder in ((whole, os.path.join(self.at("ranked"), "search", "shared")), (part, self.at("cut"))):
            self.must(["bagpipe-data", "export", folder, "--out", folder + ".hf"])
            tensors.update(self.safetensors(os.path.join(folder + ".hf", "model.safetensors")))
        fused = {name for name in part if "c_attn" in name}  # q, k and v side by side: each is cut for itself
        for name, values in part.items():
            cut = whole[name]
            if name in fused:
                thirds = numpy.split(cut, 3, axis=-1)
                cut = numpy.concatenate([third[tuple(slice(n) for n in third.shape[:-1])][..., :values.shape[-1] // 3] for third in thirds], axis=-1)
                cut = cut[:values.shape[0]] if values.ndim == 2 else cut
            else:
                cut = cut[tuple(slice(n) for n in values.shape)]
            part[name] = numpy.ascontiguousarray(cut)
        self.write_safetensors(os.path.join(self.at("cut") + ".hf", "model.safetensors"), part)
        self.must(["bagpipe-data", "import", self.at("cut") + ".hf", "--out", self.at("cut.ckpt")])
        result = run([program("bagpipe"), "pretrain", self.bare(), f"run.dir={self.at('again')}", "train.steps=1", "optimizer.lr=1e-30",
                      "optimizer.weight_decay=0", f"model.init={self.at('cut.ckpt')}"])
        self.assertEqual(result.status, 0, str(result))
        self.assertAlmostEqual(metrics(self.at("again"))[-1]["valid_loss"], float(row["score"]), delta=1e-6)

    def bare(self):
        """The configuration without sizes of the model."""
        return self.write("bare.ini", self.config().replace("layers = 2\nwidth = 32\nheads = 4\n", ""))

    @staticmethod
    def safetensors(path):
        import numpy
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            head = json.loads(file.read(size))
            data = file.read()
        head.pop("__metadata__", None)
        return {name: numpy.frombuffer(data[slice(*entry["data_offsets"])], numpy.float32).reshape(entry["shape"])
                for name, entry in head.items()}

    @staticmethod
    def write_safetensors(path, tensors):
        head, data = {}, b""
        for name, values in tensors.items():
            head[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), len(data) + values.nbytes]}
            data += values.tobytes()
        text = json.dumps(head).encode()
        with open(path, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text + data)

    def test_ranked_has_the_same_bytes_on_data_ranks_and_groups(self):
        self.ranked()
        self.made("two", 2, "mesh.data=2", *RANKED)
        self.same("ranked", "two")
        self.made("side", 2, "mesh.members=2", *RANKED)
        self.same("ranked", "side")
        self.made("apart", 3, "mesh.data=2", *RANKED)  # and a coordinator
        self.same("ranked", "apart")

    def test_a_killed_search_goes_on_with_the_same_bytes(self):
        self.ranked()
        killed = 0
        for seconds in (0.4, 0.8, 1.2, 1.6, 2.5, 4, 9):
            result = self.search("killed", 0, *RANKED, "checkpoint.every=2", kill_after=seconds)
            if result.status == 0:
                break
            self.assertEqual(result.status, -signal.SIGKILL, str(result))
            killed += 1
        self.assertGreater(killed, 0)
        self.made("killed", 0, *RANKED, "checkpoint.every=2")
        self.same("ranked", "killed", ("table.csv", "summary.json", "trials.json"))

    def test_a_stopped_search_goes_on_with_the_same_bytes(self):
        self.ranked()
        process = self.background([program("bagpipe"), "search", self.at("small.ini"), f"run.dir={self.at('stopped')}", SPACE, "train.log_every=5",
                                   *RANKED])
        self.until(lambda: os.path.exists(os.path.join(self.at("stopped"), "search", "shared", "metrics.jsonl")), process)
        with open(os.path.join(self.at("stopped"), "halt"), "w", encoding="ascii"):
            pass
        process.wait(bagpipe_test.TIMEOUT)
        self.assertIn(process.returncode, (0, 75))
        status = json.loads(run([program("bagpipe"), "status", "--json", self.at("stopped")]).out)
        self.assertRegex(status["doing"], "search/shared|with shared weights" if process.returncode == 75 else "search/final")
        os.remove(os.path.join(self.at("stopped"), "halt"))
        self.made("stopped", 0, *RANKED)
        self.same("ranked", "stopped")

    # ---- what is refused ----

    def test_keys_that_the_method_does_not_use_are_said(self):
        """On the command line and in a file, but not where they have their defaults, as in config.ini."""
        check = [program("bagpipe"), "check", "search", self.at("small.ini"), "run.dir=x", SPACE]
        for method, unused, used in (("random", "search.ranker=boosted", "search.steps=3"), ("random", "search.mutation=0.5", "search.shared=yes"),
                                     ("random", "search.shared_steps=9", "search.trials=9"), ("evolution", "search.ranker=boosted", "search.population=4"),
                                     ("ranked", "search.population=4", "search.ranker=boosted"), ("ranked", "search.steps=3", "search.shared_steps=9"),
                                     ("ranked", "search.nodes=3", "search.crossover=0.1")):
            with self.subTest(method, unused=unused):
                result = run([*check, f"search.method={method}", unused, used])
                self.assertEqual((result.status, len(result.lines("warning"))), (0, 1), str(result))
                self.assert_warning(result, "[config.unused_key]", unused.replace("=", " = "))
        result = run([*check, "search.ranker=linear", "search.population=8", "search.nodes=8"])
        self.assertEqual((result.status, result.lines("warning")), (0, []), str(result))

    def test_bad_configurations_are_refused(self):
        for keys, identifier, words in (
                (("search.space=model.foo=1,2",), "[search.bad_key]", ("model.foo",)),
                (("search.space=run.seed=1,2",), "[search.bad_key]", ("run.seed",)),
                (("search.space=model.layers=1,,2",), "[search.bad_space]", ("model.layers",)),
                (("search.space=model.layers=1;model.layers=2",), "[search.bad_space]", ("model.layers",)),
                (("search.space=model.layers=1,two",), "[config.bad_value]", ("model.layers", "two", "at search.space")),
                (("search.limit=parameters<5",), "[search.bad_limit]", ("parameters<5",)),
                (("search.space=",), "[search.no_space]", ("random",)),
                (("corpus.valid=",), "[search.no_validation]", ("corpus.valid",)),
                (("search.method=ranked", "mesh.tensor=2"), "[search.mesh]", ("mesh.tensor = 2",)),
                (("search.shared=yes", "model.init=x"), "[search.init]", ("model.init",)),
                (("mesh.members=9", "search.trials=8"), "[mesh.too_many_members]", ("9", "8"))):
            self.assert_error(self.search("bad", 0, *keys), 78, identifier, *words)
        for keys in (("search.trials=2",), ("search.method=ranked",)):  # 3 data ranks, of which the batch of 8 is no multiple
            self.assert_error(self.search("bad", 3, "mesh.coordinator=shared", *keys), 78, "[mesh.batch_not_multiple]", "3 data ranks")
        self.assertFalse(os.path.exists(self.at("bad")))

    def test_what_can_not_share_weights_is_refused(self):
        for keys in (("search.shared=yes", "train.dropconnect=0.1"),
                     ("search.shared=yes", "model.kind=lstm", "search.space=model.width=16,32; model.layers=1,2")):
            result = run([program("bagpipe"), "search", self.bare(), f"run.dir={self.at('unshared')}", SPACE, *keys])
            self.assert_error(result, 78, "[search.not_elastic]")
        self.assertFalse(os.path.exists(self.at("unshared")))

    def test_few_trials_make_no_ranking(self):
        self.assert_error(self.search("bad", 0, "search.method=ranked", "search.trials=3"), 78, "[search.few_trials]", "search.trials = 3")
        self.assert_error(self.search("fewer", 0, "search.method=ranked", "search.space=model.layers=1,2", "search.shared_steps=1", "train.steps=1"),
                          78, "[search.few_trials]", "2 trials")

    def test_a_damaged_record_of_trials_is_named(self):
        folder = self.made("damaged", 0, "search.trials=1", "search.final=0", "train.steps=1")
        os.remove(os.path.join(folder, "search", "table.csv"))
        for text in ("{}", '{"trials": [{}], "speeds": {}}', "nothing"):
            with open(os.path.join(folder, "search", "trials.json"), "w", encoding="ascii") as file:
                file.write(text)
            result = self.search("damaged", 0, "search.trials=1", "search.final=0", "train.steps=1")
            self.assertEqual(result.status, 65, str(result))
        os.remove(os.path.join(folder, "search", "trials.json"))
        self.made("damaged", 0, "search.trials=1", "search.final=0", "train.steps=1")

    def test_plan_names_speeds_and_memory(self):
        result = self.search("planned", 0, "--plan")
        self.assertEqual(result.status, 0, str(result))
        for words in ("16 trials of 36 models by random", "the largest model: ", "tokens a second", "memory estimated"):
            self.assertIn(words, result.out)
        result = self.search("planned", 0, "search.method=ranked", "--plan")
        self.assertRegex(result.out, r"(?s)the training of shared weights.*the part of the model that a step trains.*the training of the largest")
        result = run([program("bagpipe"), "search", self.at("small.ini"), f"run.dir={self.at('planned')}", "model.kind=cell", "model.heads=",
                      "mesh.micro_batch=2", "search.method=differentiable", "search.nodes=3", "search.trials=4", "--plan"])
        self.assertRegex(result.out, r"(?s)4 trials of 384 models.*a mixed cell.*model: cell, 1 layers.*the training of a cell that was found")
        self.assertFalse(os.path.exists(self.at("planned")))

    def test_memory_is_that_of_all_groups(self):
        result = self.search("too-many", 0, "--plan", "search.trials=4", "mesh.members=3", "--ranks=6", "--nodes=2")
        self.assertEqual(result.status, 0, str(result))
        self.assertIn("on each of 2 nodes 3 ranks take about", result.out)
        self.assertIn("this is one training of 4; 3 train at a time, so 2 after another", result.out)
        result = self.search("too-many", 3, "--plan", "mesh.members=2", "mesh.coordinator=dedicated", *RANKED)
        self.assertEqual(result.status, 0, str(result))
        self.assertIn("this is one training of 2; 2 train at a time", result.out)
        self.assert_error(self.search("too-many", 2, "search.trials=4", "mesh.members=2", "run.memory=100MiB"), 71, "[memory.over_limit]", "2 ranks on")
        self.assertFalse(os.path.exists(self.at("too-many")))


class Translation(JobTest):
    """An encoder-decoder, whose encoder and decoder have layers of their own."""
    TEXT_BYTES = 20_000

    def test_layers_of_both_stacks_are_elastic(self):
        with open(self.at("train.txt"), encoding="utf-8") as file:
            lines = [line.strip() for line in file if line.strip()][:80]
        for name, chosen in (("train", lines[:60]), ("valid", lines[60:])):
            self.write(f"{name}.a", "".join(line[:40] + "\n" for line in chosen))
            self.write(f"{name}.b", "".join(line[:40][::-1] + "\n" for line in chosen))
            self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "pairs", "--out", self.at(f"p{name}.h5"),
                       self.at(f"{name}.a"), self.at(f"{name}.b")])
        ini = self.write("pairs.ini", f"""[corpus]
train = {self.at('ptrain.h5')}
valid = {self.at('pvalid.h5')}
cut = yes
[model]
kind = transformer
context = 24
[train]
steps = 4
batch = 4
[math]
precision = f32
threads = 1
[search]
space = model.encoder_layers=1,2,3; model.decoder_layers=1,2; model.width=16,32; model.heads=2,4; model.inner=16,32; \\
  model.decoder_heads=2,4; model.decoder_inner=16,48
method = ranked
trials = 8
final = 1
""")
        result = run([program("bagpipe"), "search", ini, f"run.dir={self.at('pairs')}"])
        self.assertEqual(result.status, 0, str(result))
        summary = read_json(self.at("pairs"), "search", "summary.json")
        self.assertEqual(summary["trials"], 9)
        self.assertGreater(summary["winner"]["final_loss"], 0)
        names = [feature["name"] for feature in summary["ranking"]["features"]]
        self.assertIn("model.decoder_inner", names)
        # a decoder of its own shape: its parameters, and the same losses on tensor ranks
        keys = ["model.layers=1", "model.width=16", "model.heads=2", "model.inner=24", "model.decoder_heads=4", "model.decoder_inner=40"]
        losses = []
        for name, ranks, more in (("one", 0, []), ("tensor", 2, ["mesh.tensor=2"])):
            result = run([program("bagpipe"), "pretrain", ini, f"run.dir={self.at(name)}", *keys, *more], ranks)
            self.assertEqual(result.status, 0, str(result))
            losses.append([line["loss"] for line in metrics(self.at(name))])
        for one, other in zip(*losses):
            self.assertAlmostEqual(one, other, 4)
        shapes = {tensor: shape for tensor, shape in self.shapes("one").items() if "encoder.0." in tensor or "decoder.0." in tensor}
        self.assertEqual([shapes[f"{stack}.0.{tensor}.weight"] for stack in ("encoder", "decoder") for tensor in ("attn.q", "attn.out", "mlp.up", "mlp.down")],
                         [[16, 16], [16, 16], [24, 16], [16, 24], [16, 16], [16, 16], [40, 16], [16, 40]])
        # heads only share columns out: the encoder's number as the decoder's own changes no bit, another one does
        losses = [[line["loss"] for line in metrics(self.made_pair(ini, f"heads-{count}", *keys[:4], f"model.decoder_heads={count}"))] for count in (2, 4)]
        plain = [line["loss"] for line in metrics(self.made_pair(ini, "heads", *keys[:4]))]
        self.assertEqual(losses[0], plain)
        self.assertNotEqual(losses[1], plain)
        self.assert_error(run([program("bagpipe"), "pretrain", ini, f"run.dir={self.at('odd')}", *keys, "model.decoder_heads=1", "mesh.tensor=2"], 2), 78, "[mesh.not_dividing]")
        self.assert_error(run([program("bagpipe"), "pretrain", ini, f"run.dir={self.at('odd')}", *keys, "model.decoder_heads=3"]), 78, "[model.not_dividing]")
        self.assertFalse(os.path.exists(self.at("odd")))
        for name in ("one", "heads-4"):  # of another inner width, and of no other size of a tensor
            self.assert_error(run([program("bagpipe-data"), "export", self.at(name), "--out", self.at("exported")]), 65, "[export.no_counterpart]")
            self.assertFalse(os.path.exists(self.at("exported")))
        for key in ("heads=2", "inner=40"):
            result = run([program("bagpipe"), "pretrain", ini, f"run.dir={self.at('odd')}", "model.kind=bart", *keys[:4], f"model.decoder_{key}"])
            self.assert_error(result, 78, "[model.unused_key]")
            self.assertFalse(os.path.exists(self.at("odd")))

    def made_pair(self, ini, name, *keys):
        result = run([program("bagpipe"), "pretrain", ini, f"run.dir={self.at(name)}", *keys])
        self.assertEqual(result.status, 0, str(result))
        return self.at(name)

    def shapes(self, name):
        manifest = read_json(self.at(name), "checkpoints", "step-000000000004", "manifest.json")
        return {tensor["name"]: tensor["shape"] for tensor in manifest["tensors"]}


if __name__ == "__main__":
    bagpipe_test.main()
