"""mesh.expert: data ranks share out the experts of a mixture, and train the bits of one rank that has them all."""
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

    def test_other_jobs_have_all_experts(self):
        model = self.trained("scored", 2, "mesh.expert=2", *MIXTRAL)
        keys = (f"score.model={model}", f"score.corpus={self.at('valid.h5')}", "math.precision=f32")
        result = run([bagpipe_test.program("bagpipe"), "score", self.at("small.ini"), f"run.dir={self.at('score')}", *keys])
        self.assertEqual(result.status, 0, str(result))
        refused = run([bagpipe_test.program("bagpipe"), "score", self.at("small.ini"), f"run.dir={self.at('score2')}", "mesh.expert=2", *keys], 2)
        self.assertEqual(refused.status, 78, str(refused))
        self.assertIn("[mesh.expert_trains]", refused.err)


if __name__ == "__main__":
    bagpipe_test.main()
