"""mesh.expert: data ranks share out the experts of a mixture, and train the bits of one rank that has them all."""
import json
import pathlib
import re

import bagpipe_test
from bagpipe_test import JobTest, digests, metrics, run, timeless

SIZES = ("model.layers=2", "model.width=16", "model.heads=2", "model.context=16", "model.experts=4", "model.experts_chosen=2")
BRIEF = ("train.steps=5", "train.valid_every=5", "train.digest_every=1", "optimizer.warmup=0")
MIXTRAL = ("model.kind=mixtral", *SIZES, "model.experts_balance=0.1", *BRIEF)
FAMILIES = {
    "mixtral": MIXTRAL,
    "olmoe": ("model.kind=olmoe", *SIZES, "model.dropout=0.1", "train.recompute=yes", "optimizer.clip=0.01", *BRIEF),
    "bf16": (*MIXTRAL, "math.precision=bf16"),
    "qwen3_moe": ("model.kind=qwen3_moe", *SIZES, "model.experts_dense=1", "model.experts_inner=12", "mesh.micro_batch=2", *BRIEF)}


class Experts(JobTest):
    TEXT_BYTES = 30_000

    def check_bits(self, one, name, ranks, *keys):
        other = self.trained(name, ranks, *keys)
        self.assertEqual(timeless(metrics(one)), timeless(metrics(other)))
        self.assertEqual(digests(one), digests(other))

    def test_any_number_of_ranks_gives_the_bits_of_one(self):
        for family, keys in FAMILIES.items():
            result = self.pretrain(family, 0, *keys)
            if "[math.no_bf16]" in result.err:
                continue
            self.assertEqual(result.status, 0, str(result))
            one = self.at(family)
            for data, experts in ((2, 2), (4, 2), (4, 4)):
                with self.subTest(family=family, data=data, experts=experts):
                    self.check_bits(one, f"{family}-{data}-{experts}", data, f"mesh.expert={experts}", *keys)

    def test_experts_beside_tensor_ranks_and_stages(self):
        for name, mesh, batches in (("tensor", "mesh.tensor=2", ()), ("pipeline", "mesh.pipeline=2", ("mesh.schedule=interleaved",))):
            with self.subTest(mesh=mesh):
                one = self.trained(name, 2, mesh, *batches, *MIXTRAL)
                self.check_bits(one, f"{name}-apart", 4, mesh, *batches, "mesh.expert=2", *MIXTRAL)

    def test_a_checkpoint_goes_on_on_another_mesh(self):
        longer = (*MIXTRAL, "train.steps=8", "train.valid_every=4", "checkpoint.every=4", "optimizer.decay=constant")
        whole = self.trained("whole", 0, *longer)
        for first, then in ((1, 2), (2, 1)):
            name = f"moved-{first}-{then}"
            self.trained(name, 2, f"mesh.expert={first}", *longer, "train.steps=4")
            self.check_bits(whole, name, 2, f"mesh.expert={then}", *longer)

    def test_killed_anywhere_it_goes_on_with_its_experts_on_other_ranks(self):
        """One rank is killed each time, in a pass, a snapshot, an update or between steps, and the next start has another mesh."""
        keys = (*MIXTRAL, "train.steps=12", "train.valid_every=6", "checkpoint.every=2", "optimizer.decay=constant")
        whole, name = self.trained("unkilled", 0, *keys), "killed"
        meshes = ((2, 2), (4, 4), (2, 1), (4, 2), (0, 1))
        faults = ("fwd.mid:9@1", "ckpt.snapshot:2@3", "opt.after:4@0", "step.end:5@2", None)
        for (ranks, experts), fault in zip(meshes, faults, strict=True):
            before = len(bagpipe_test.steps(self.at(name)))
            env = ["env", f"BP_FAULT={fault}=kill"] if fault else []
            result = run([*env, bagpipe_test.program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at(name)}", *keys, f"mesh.expert={experts}"], ranks)
            if fault:
                self.assertNotEqual(result.status, 0, str(result))
                self.assertRegex(result.whole_err, r"signal 9|Killed", fault)
            else:
                self.assertEqual(result.status, 0, str(result))
            print(f"{ranks} ranks, mesh.expert={experts}, {fault}: {before} checkpoints before, {len(bagpipe_test.steps(self.at(name)))} after")
        self.assertEqual(timeless(metrics(whole)), timeless(metrics(self.at(name))))
        self.assertEqual(digests(whole), digests(self.at(name)))

    def test_a_change_is_warned_of_where_bits_change(self):
        for ranks, times in ((2, 0), (6, 1)):  # data ranks
            keys = ("train.batch=6", *MIXTRAL, "optimizer.decay=constant", "train.valid_every=0")
            name = f"warned-{ranks}"
            self.trained(name, ranks, *keys, "train.steps=1")
            result = self.pretrain(name, ranks, *keys, "train.steps=2", "mesh.expert=2")
            self.assertEqual(result.status, 0, str(result))
            self.assert_warning(result, "[run.other_bits]", times=times)

    def test_one_sum_of_gradients_gives_the_losses_of_one_rank(self):
        lines = metrics(self.trained("one-sum", 2, "mesh.expert=2", "train.reduction=running", *MIXTRAL))
        for a, b in zip(metrics(self.trained("running", 0, "train.reduction=running", *MIXTRAL)), lines, strict=True):
            self.assertLess(abs(a["loss"] - b["loss"]), 2e-5)

    def test_all_tokens_may_go_to_one_expert(self):
        """All places of one word said again and again have the same states, and choose alike: of one expert, all."""
        self.write("vocab.txt", "\n".join(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "again")) + "\n")
        self.write("again.txt", " ".join(["again"] * 900) + "\n")
        self.must(["bagpipe-data", "tokenizer", "--vocab", self.at("vocab.txt"), "--out", self.at("words.json")])
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("words.json"), "--format", "lines", "--out", self.at("again.h5"), self.at("again.txt")])
        keys = (*MIXTRAL, "model.experts_chosen=1", *(f"corpus.{part}={self.at('again.h5')}" for part in ("train", "valid")))
        one = self.trained("alike", 0, *keys)
        self.assertEqual(metrics(one)[0]["experts_largest_layers"], [4, 4])
        for experts in (2, 4):
            self.check_bits(one, f"alike-{experts}", experts, f"mesh.expert={experts}", *keys)

    def test_members_of_an_ensemble_share_out_their_experts(self):
        def members(name, ranks, *keys):
            result = run([bagpipe_test.program("bagpipe"), "ensemble", self.at("small.ini"), f"run.dir={self.at(name)}", "ensemble.members=2", *MIXTRAL, "train.steps=2", *keys], ranks)
            self.assertEqual(result.status, 0, str(result))
            return [digests(self.at(f"{name}/members/m0{k}")) for k in range(2)]

        self.assertEqual(members("members", 0), members("members-apart", 4, "mesh.members=2", "mesh.expert=2"))

    def applied(self, job, name, model, ranks, *keys, files=("documents.h5", "tokens.h5")):
        """The job `job` over the model; returns what it leaves."""
        result = run([bagpipe_test.program("bagpipe"), job, self.at("small.ini"), f"run.dir={self.at(name)}", f"{job}.model={model}", *keys], ranks)
        self.assertEqual(result.status, 0, str(result))
        return [pathlib.Path(self.at(f"{name}/{job}/{file}")).read_bytes() for file in files]

    def test_scores_and_texts_have_the_bits_of_one_rank(self):
        """Documents and prompts differ in length, so that ranks have passes of different sizes, and some have none at the end."""
        prompts = self.write("prompts.txt", "".join(f"{'the ' * k}house\n" for k in range(1, 6)))
        questions = self.write("choices.jsonl", "".join(json.dumps({"context": "the " * k, "choices": ["house", "a house", "b" * k]}) + "\n" for k in range(1, 8)))
        corpus = f"score.corpus={self.at('valid.h5')}"
        for family, meshes in (("mixtral", ((2,), (4,))), ("bf16", ((4,),)), ("qwen3_moe", ((4, "mesh.pipeline=2"), (4, "mesh.tensor=2")))):
            result = self.pretrain(f"{family}-made", 0, *FAMILIES[family], "train.steps=1")
            if "[math.no_bf16]" in result.err:
                continue
            self.assertEqual(result.status, 0, str(result))
            model, precision = self.at(f"{family}-made"), f"math.precision={'bf16' if family == 'bf16' else 'f32'}"
            for name, job, keys, files in (
                ("score", "score", (corpus, "score.tokens=yes", "score.stride=5", "score.convention=stride"), ("documents.h5", "tokens.h5")),
                ("questions", "score", (f"score.questions={questions}",), ("questions.jsonl",)),
                ("generate", "generate", (f"generate.prompts={prompts}", "generate.tokens=7", "generate.batch=2"), ("outputs.jsonl",))):
                if name == "questions" and family != "mixtral":
                    continue
                for ranks, *mesh in meshes:
                    with self.subTest(family=family, job=name, ranks=ranks, mesh=mesh):
                        one = self.applied(job, f"{family}-{name}{mesh}", model, ranks // 2 if mesh else 0, *mesh, *keys, precision, files=files)
                        other = self.applied(job, f"{family}-{name}{ranks}{mesh}", model, ranks, "mesh.expert=2", *mesh, *keys, precision, files=files)
                        self.assertEqual(one, other)

    def test_after_a_fault_of_one_rank_others_get_no_more_work(self):
        """They need its experts for what they have begun, and only for that."""
        model, prompts = self.trained("faulty", 0, *MIXTRAL, "train.steps=1"), self.write("many.txt", "the house\n" * 40)
        for rank in range(2):
            with self.subTest(rank=rank):
                write = [bagpipe_test.program("bagpipe"), "generate", self.at("small.ini"), f"run.dir={self.at(f'full-{rank}')}", f"generate.model={model}", f"generate.prompts={prompts}", "generate.tokens=4", "generate.batch=1", "mesh.expert=2"]
                result = run(["env", f"BP_FAULT=work.part:2@{rank}", *write], 2)
                self.assertEqual(result.status, 74, str(result))
                result = run(write, 2)
                self.assertEqual(result.status, 0, str(result))
                done, units = map(int, re.search(r"going on: (\d+) of (\d+) work units", result.out).groups())
                self.assertEqual(units, 40)
                self.assertLess(done, 10)

    def test_members_of_an_ensemble_are_scored_with_their_experts_apart(self):
        """Two on a rank, whose passes are told apart, and side by side."""
        result = run([bagpipe_test.program("bagpipe"), "ensemble", self.at("small.ini"), f"run.dir={self.at('mixtures')}", "ensemble.members=2", *MIXTRAL, "train.steps=1"])
        self.assertEqual(result.status, 0, str(result))
        keys = (f"score.corpus={self.at('valid.h5')}", "score.tokens=yes", "math.precision=f32")
        one = self.applied("score", "mixture", self.at("mixtures"), 0, *keys)
        self.assertEqual(one, self.applied("score", "mixture-apart", self.at("mixtures"), 2, "mesh.expert=2", *keys))
        beside = self.applied("score", "beside", self.at("mixtures"), 2, "mesh.members=2", *keys)
        self.assertEqual(beside, self.applied("score", "beside-apart", self.at("mixtures"), 4, "mesh.members=2", "mesh.expert=2", *keys))

    def test_a_checkpoint_and_its_keys_begin_a_training(self):
        """With adapters, whose bits are those of one rank too."""
        first = self.trained("first", 0, *MIXTRAL, "train.steps=1")
        keys = (*MIXTRAL, f"model.init={first}", "adapter.kind=lora", "adapter.rank=2", "train.steps=2", "train.valid_every=0")
        self.check_bits(self.trained("tuned", 0, *keys), "tuned-apart", 2, "mesh.expert=2", *keys)

    def test_what_has_no_experts_to_share_out_is_refused(self):
        mixture, llama = self.trained("mixed", 0, *MIXTRAL, "train.steps=1"), self.trained("plain", 0, "model.layers=1", "model.width=16", "train.steps=1")
        corpus = f"score.corpus={self.at('valid.h5')}"
        self.write("three.json", json.dumps({"members": [{"name": f"m{k}", "path": mixture} for k in range(3)]}))
        for name, model, job, keys, ranks, words in (
            ("none", llama, "score", (corpus,), 2, "[mesh.no_experts]"), ("uneven", mixture, "score", (corpus, "mesh.expert=3"), 3, "[mesh.uneven_experts]"),
            ("members", self.at("three.json"), "score", (corpus, "mesh.members=2"), 4, "[mesh.expert_members]"),
            ("explained", mixture, "explain", (f"explain.corpus={self.at('valid.h5')}",), 2, "[mesh.expert_trains]")):
            with self.subTest(name):
                result = run([bagpipe_test.program("bagpipe"), job, self.at("small.ini"), f"run.dir={self.at(name)}", f"{job}.model={model}", "mesh.expert=2", *keys], ranks)
                self.assertEqual(result.status, 78, str(result))
                self.assertIn(words, result.err)


if __name__ == "__main__":
    bagpipe_test.main()
