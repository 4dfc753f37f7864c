"""Bad input of jobs: one clear line, the documented status, on one rank and on two, and nothing left behind."""
import os
import shutil

import bagpipe_test
from bagpipe_test import JobTest, program, run, steps


class BadInput(JobTest):
    def refused(self, status, words, *keys, ranks=(0, 2), config=None, lines=1):
        """The job leaves with this status and exactly so many error lines, in which these words stand."""
        for number in ranks:
            with self.subTest(keys=keys, ranks=number):
                result = run([program("bagpipe"), "pretrain", config or self.at("small.ini"), f"run.dir={self.at('refused')}"] +
                             list(keys), number)
                self.assert_error(result, status, *words, lines=lines)
                self.assertFalse(os.path.exists(self.at("refused/checkpoints")) and steps(self.at("refused")))

    def test_key_of_another_job_is_accepted(self):
        result = self.pretrain("accepted", 0, "score.stride=4", "train.steps=1")
        self.assertEqual(result.status, 0, str(result))

    def test_all_faults_are_said_at_once(self):
        values = {"train.batch": "0", "model.dropout": "1.5", "train.steps": "1.5", "optimizer.lr": "nan", "train.recompute": "perhaps",
                  "optimizer.kind": "adam"}
        self.refused(78, ["[config.bad_value]", *values, "[config.unknown_key]", "model.widht", "model.width"],
                     *(f"{key}={value}" for key, value in values.items()), "model.widht=64", lines=len(values) + 1)

    def test_width_that_heads_do_not_divide_says_which_would(self):
        self.refused(78, ["[model.not_dividing]", "model.heads", "5", "32", "4, 8"], "model.heads=5", ranks=(2,))

    def test_heads_that_tensor_ranks_do_not_divide_say_which_would(self):
        self.refused(78, ["[mesh.not_dividing]", "mesh.tensor", "2"], "model.heads=1", "mesh.tensor=2", ranks=(2,))
        self.refused(78, ["[mesh.not_dividing]", "mesh.tensor", "3"], "mesh.tensor=3", ranks=(3,))

    def test_inner_widths_are_held_to_tensor_ranks_where_heads_have_a_width(self):
        for kind, inner in (("bert", ()), ("gpt_neox", ()), ("gpt", ()), ("llama", ("model.inner=256",))):
            self.refused(78, ["[mesh.not_dividing]", "mesh.tensor = 3", "model.inner = 256"], f"model.kind={kind}", "model.width=64", "model.heads=6",
                         "model.head_width=16", "mesh.tensor=3", *inner, ranks=(3,))

    def test_experts_that_ranks_do_not_share_out(self):
        experts = ("model.kind=mixtral", "model.experts=4", "model.experts_chosen=2")
        self.refused(78, ["[mesh.expert_ranks]", "mesh.expert = 2", "3 data ranks", "1, 3"], "mesh.expert=2", *experts, ranks=(3,))
        self.refused(78, ["[mesh.uneven_experts]", "mesh.expert = 2", "model.experts = 3", "1, 3"], "mesh.expert=2", *experts, "model.experts=3", ranks=(2,))
        self.refused(78, ["[mesh.no_experts]", "mesh.expert = 2", "leave it at 1"], "mesh.expert=2", ranks=(2,))
        counts = self.write("counts.ini", f"[corpus]\ntrain = {self.at('train.h5')}\n[model]\nkind = ngram\n")
        result = run([program("bagpipe"), "pretrain", counts, f"run.dir={self.at('counts')}", "mesh.expert=2"], 2)
        self.assertEqual(result.status, 78, str(result))
        self.assertIn("[mesh.no_experts]", result.err)
        for kind in ("lamb", "adafactor", "vogn"):
            self.refused(78, ["[mesh.expert_optimizer]", f"optimizer.kind = {kind}"], "mesh.expert=2", *experts, f"optimizer.kind={kind}", ranks=(2,))
        self.refused(78, ["[mesh.expert_samples]", "train.sample_every"], "mesh.expert=2", *experts, "train.sample_every=1", ranks=(2,))

    def test_world_that_fits_no_mesh_says_which_would(self):
        self.refused(78, ["[mesh.wrong_ranks]"], "mesh.tensor=2", "mesh.data=2", ranks=(3,))

    def test_batch_that_does_not_divide_says_what_fits(self):
        self.refused(78, ["[mesh.batch_not_multiple]", "train.batch", "6", "9"], "train.batch=8", "mesh.micro_batch=3", ranks=(0,))

    def test_more_stages_than_blocks(self):
        chunks = ("mesh.schedule=interleaved", "mesh.pipeline=2")
        self.refused(78, ["[mesh.too_few_blocks]", "mesh.chunks", "4 blocks"], "mesh.chunks=3", *chunks, ranks=(2,))
        self.refused(78, ["[mesh.batch_not_multiple]", "interleaved", "train.batch", "multiple of 4", "8 or 12, times the data ranks", "1f1b"], "mesh.micro_batch=2", "train.batch=10", *chunks, ranks=(2,))
        self.refused(78, ["[mesh.too_few_blocks]", "mesh.pipeline", "4"], "mesh.pipeline=5", "train.batch=10", ranks=(5,))

    def test_rows_that_tensor_ranks_can_not_share(self):
        self.refused(78, ["[mesh.no_sequence_parallel]", "mesh.sequence_parallel", "1 x 15", "auto", "mesh.micro_batch=2"], "mesh.sequence_parallel=yes", "mesh.tensor=2", "model.context=15",
                     ranks=(2,))
        self.refused(78, ["[mesh.no_sequence_parallel]", "corpus.bucket", "1 x 8", "mesh.tensor = 3", "mesh.micro_batch=3"], "mesh.sequence_parallel=yes", "mesh.tensor=3",
                     "model.context=24", "model.width=48", "model.heads=6", "corpus.bucket=2", ranks=(3,))

    def test_missing_keys_and_files(self):
        config = self.write("nothing.ini", "[train]\nsteps = 3\n")
        self.refused(78, ["[config.missing_key]", "corpus.train", "train.batch"], config=config, lines=2)
        self.refused(66, ["[file.missing]", "no.h5"], f"corpus.train={self.at('no.h5')}")
        self.refused(66, ["[file.missing]", "no.ini"], config=self.at("no.ini"), ranks=(2,))
        self.refused(66, ["[corpus.no_match]", "*.none"], f"corpus.train={self.at('*.none')}", ranks=(2,))

    def test_command_line(self):
        for arguments, ranks in ((["pretrian"], 0), (["pretrain"], 2), (["pretrain", "--fast"], 0), (["pretrain", "--fast"], 2),
                                 (["pretrain", self.at("small.ini"), "stray"], 0)):
            self.assert_error(run([program("bagpipe")] + arguments, ranks), 64)

    def test_corpora_that_are_none(self):
        for name, content, words in (("empty.h5", b"", ["[h5.empty]"]),
                                     ("text.h5", b"no corpus at all, but text " * 40, ["[corpus.is_text]", "--format pairs SOURCE TARGET"])):
            with open(self.at(name), "wb") as file:
                file.write(content)
            self.refused(65, [*words, name], f"corpus.train={self.at(name)}", ranks=(2,))

    def test_damaged_corpus(self):
        data = bytearray(open(self.at("train.h5"), "rb").read())
        for place in (3, 200, len(data) // 2):
            data[place] ^= 1
            with open(self.at("flipped.h5"), "wb") as file:
                file.write(data)
            data[place] ^= 1
            self.refused(65, ["[h5.not_hdf5]" if place == 3 else "[h5.damaged]", "flipped.h5"], f"corpus.train={self.at('flipped.h5')}", ranks=(0,))
        with open(self.at("cut.h5"), "wb") as file:
            file.write(data[:len(data) * 2 // 3])
        self.refused(65, ["[h5.wrong_bytes]", "cut.h5"], f"corpus.train={self.at('cut.h5')}", ranks=(2,))

    def test_tokenizer_that_is_not_the_corpus_s(self):
        self.must(["bagpipe-data", "tokenizer", "--kind", "char", "--size", 60, "--out", self.at("other.json"), self.at("valid.txt")])
        self.refused(65, ["[tokenizer.mismatch]"], f"tokenizer.path={self.at('other.json')}", ranks=(2,))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("other.json"), "--format", "lines", "--out", self.at("other.h5"),
                   self.at("valid.txt")])
        self.refused(65, ["[vocabulary.mismatch]", "other.h5"], f"corpus.valid={self.at('other.h5')}", ranks=(2,))

    def test_corpus_shorter_than_a_window(self):
        self.refused(65, ["[corpus.too_short]", "model.context"], "model.context=1000000", ranks=(2,))

    def test_unwritable_run_folder(self):
        with open(self.at("file"), "w") as file:
            file.write("a file where the folder should be")
        result = run([program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('file/run')}"])
        self.assertIn(result.status, (73, 77), str(result))
        result = run([program("bagpipe"), "pretrain", self.at("small.ini"), "run.dir=/proc/run"], 2)
        self.assertIn(result.status, (73, 77), str(result))

    def test_full_disk_ends_with_74_and_leaves_nothing_half_written(self):
        disk = self.at("disk")
        os.makedirs(disk, exist_ok=True)
        mount = f"mount -t tmpfs -o size=1m none {disk}"
        if run(["unshare", "-m", "sh", "-c", mount]).status != 0:
            self.skipTest("a small disk can't be mounted here: that needs root")
        for ranks in (1, 2):  # the model's 3 MB do not fit; what the run folder held before stays
            with self.subTest(ranks=ranks):
                job = (f"sh {bagpipe_test.MPIRUN} {ranks} {program('bagpipe')} pretrain {self.at('small.ini')} run.dir={disk}/run "
                       "model.width=128 train.steps=3")
                result = run(["unshare", "-m", "sh", "-c", f"{mount} && {job}; status=$?; ls -A {disk}/run/checkpoints; exit $status"])
                self.assert_error(result, 74, "[file.no_space]")
                left = [line for line in result.out.split("\n") if line.startswith(("step-", ".tmp-"))]
                self.assertEqual(left, [])

    def test_run_folder_of_another_job(self):
        folder = self.trained("trained", 0, "train.steps=1")
        result = run([program("bagpipe"), "score", self.at("small.ini"), f"run.dir={folder}", f"score.model={folder}",
                      f"score.corpus={self.at('valid.h5')}"])
        self.assert_error(result, 78, "[run.other_job]", "pretrain")

    def test_a_break_in_a_name_breaks_no_line(self):
        name = self.at("two\nlines")
        for arguments in ([f"run.dir={name}"], [f"run.dir={self.at('run')}", f"corpus.valid={name}"]):
            self.assert_error(run([program("bagpipe"), "pretrain", self.at("small.ini"), *arguments]), 78, "[config.bad_value]", "two\\x0Alines")
        for arguments in (["pretrain", name], ["status", name]):
            self.assert_error(run([program("bagpipe"), *arguments]), 66, "[file.missing]", "two\\x0Alines")
        os.mkdir(name)
        self.write("two\nlines/wrong.ini", "[train]\nstep = 3\n[model]\nwidht = 3\n")
        self.assert_error(run([program("bagpipe"), "pretrain", os.path.join(name, "wrong.ini"), f"run.dir={self.at('run')}"]), 78,
                          "train.step:", "model.widht:", "two lines/wrong.ini", lines=5)

    def test_damaged_checkpoints(self):
        folder = self.trained("damaged", 0, "train.steps=6", "checkpoint.every=2")
        shard = os.path.join(folder, "checkpoints", steps(folder)[-1], "shard-00000.h5")
        self.flip(shard, os.path.getsize(shard) // 2)
        result = self.pretrain("damaged", 2, "train.steps=8")  # an older one is left: a warning, and on it goes
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[checkpoint.put_aside]", "step-000000000006")
        for step in steps(folder):
            self.flip(os.path.join(folder, "checkpoints", step, "manifest.json"), 40)
        result = self.pretrain("damaged", 2, "train.steps=9")
        self.assert_error(result, 65, "[checkpoint.all_damaged]")

    def test_checkpoint_of_another_shape_and_with_a_missing_file(self):
        folder = self.trained("shape", 0, "train.steps=1")
        self.refused(78, ["[model.init_mismatch]", "model.width"], f"model.init={folder}", "model.width=64", ranks=(0,))
        shutil.copytree(os.path.join(folder, "checkpoints", steps(folder)[0]), self.at("without"))
        os.remove(self.at("without/shard-00000.h5"))
        self.refused(65, ["[checkpoint.not_whole]", "shard-00000.h5"], f"model.init={self.at('without')}", ranks=(2,))
        self.refused(66, ["[checkpoint.missing]", "nowhere"], f"model.init={self.at('nowhere')}", ranks=(2,))

    @staticmethod
    def flip(path, place):
        with open(path, "r+b") as file:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 4]))


if __name__ == "__main__":
    bagpipe_test.main()
