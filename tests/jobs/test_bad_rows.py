"""The numbered bad inputs of docs/bad_inputs.md that are a job's configuration, command line or run folder: the documented status
and one line (a configuration lists its faults) within the time, bare and on 4 ranks, and nothing half-written.

Every row runs bare; on 4 ranks those whose faults only a world can see, and with BAGPIPE_TEST_ALL=1 all.
"""
import hashlib
import json
import os
import shutil

import bagpipe_test
from bagpipe_test import JobTest, digests, edit_manifest, metrics, program, run, steps, timeless

ALL = os.environ.get("BAGPIPE_TEST_ALL") == "1"
LINE_LIMIT = 199


class Rows(JobTest):
    TEXT_BYTES = 60_000

    def bagpipe(self, arguments, ranks):
        return run([program("bagpipe")] + list(arguments), ranks)

    def check(self, result, status, words, lines):
        self.assertEqual(result.status, status, str(result))
        said = [line for line in result.err.split("\n") if line]
        errors = [line for line in said if line.startswith(f"bagpipe: error[{status}]: ")]
        self.assertEqual(len(errors), lines, str(result))
        self.assertEqual([line for line in said if not line.startswith("bagpipe: ")], [], str(result))
        for line in errors:
            self.assertLessEqual(len(line), 430, str(result))
            self.assertTrue(line.isascii() and line.isprintable(), str(result))
        for word in words:
            self.assertIn(word, "\n".join(errors))

    def refused(self, row, status, words, *arguments, lines=1, world=False):
        """arguments: what follows `bagpipe`; world: also on 4 ranks in the short run."""
        for ranks in (0, 4) if world or ALL else (0,):
            with self.subTest(row=row, ranks=ranks):
                self.check(self.bagpipe(arguments, ranks), status, words, lines)

    def keys(self, row, status, words, *keys, **more):
        self.refused(row, status, words, "pretrain", self.at("small.ini"), f"run.dir={self.at('refused')}", *keys, **more)
        self.assertFalse(os.path.exists(self.at("refused/checkpoints")) and steps(self.at("refused")), f"row {row}")

    def file(self, row, status, words, content, **more):
        """The configuration is the small one with `content` (bytes) in place of it, or after it ('+')."""
        path = self.at(f"row{row}.ini")
        with open(path, "wb") as file:
            file.write(content)
        self.refused(row, status, words, "pretrain", path, f"run.dir={self.at('refused')}", **more)

    def more(self, text):
        return self.config().encode() + text

    # ---- 1 to 25: configuration and command line ----

    def test_01_to_08_files_that_are_no_configuration(self):
        self.file(1, 78, ["[config.missing_key]", "corpus.train"], b"", lines=3, world=True)
        self.file(2, 78, ["[config.unknown_key]"], b'{"model": {"layers" = 2}}\n', lines=4)
        self.file(3, 78, ["[config.bad_value]"], self.more(b"[checkpoint]\nevery = 5\n[run]\nseed = 1\n").replace(b"log_every = 1", b"log_every = 1,"))
        self.file(5, 78, ["[config.bad_line]"], self.config().encode("utf-16"))
        self.file(6, 78, ["[config.bad_line]"], self.more(b"[run]\nseed = 1\0 2\n"))
        self.file(7, 78, ["[config.bad_line]"], self.more(b"[" * 100_000 + b"\n"))
        for length, words in ((LINE_LIMIT, None), (LINE_LIMIT + 1, ["[config.bad_line]"])):
            name = "x" * (length - len("path = "))
            content = self.more(f"[tokenizer]\npath = {name}\n".encode())
            self.file(8, 78 if words else 66, words or ["[file.missing]"], content)

    def test_04_a_byte_order_mark_is_passed_over(self):
        with open(self.at("row4.ini"), "wb") as file:
            file.write(b"\xef\xbb\xbf" + self.config().encode())
        result = self.bagpipe(["check", "pretrain", self.at("row4.ini"), "run.dir=x"], 0)
        self.assertEqual(result.status, 0, str(result))

    def test_09_to_13_keys_and_numbers(self):
        self.file(9, 78, ["[config.key_twice]", "train.steps"], self.more(b"[train]\nsteps = 5\n"))
        self.keys(10, 78, ["[config.unknown_key]", "model.layesr", "model.layers"], "model.layesr=2")
        for value in ("1e400", "NaN", "-0", "0x10", "1.5", "1_000", "\u0967", "9223372036854775808", "18446744073709551616", "-8"):
            self.keys(11, 78, ["[config.bad_value]", "train.batch"], f"train.batch={value}")
        for value in ("1e400", "nan", "inf", "-inf", "0x1p3", "-1"):
            self.keys(11, 78, ["[config.bad_value]", "optimizer.lr"], f"optimizer.lr={value}")

    def test_14_to_17_shapes_and_meshes(self):
        self.keys(14, 78, ["[model.not_dividing]", "model.heads", "7"], "model.heads=7", world=True)
        self.keys(15, 78, ["[mesh.wrong_ranks]"], "mesh.data=5", "train.batch=10", world=True)
        self.keys(16, 78, ["[mesh.not_dividing]", "mesh.tensor = 8"], "mesh.tensor=8")
        self.keys(17, 78, ["[mesh.too_few_blocks]", "mesh.pipeline = 9"], "mesh.pipeline=9", "train.batch=9")

    def test_18_to_24_paths_and_text(self):
        self.keys(18, 78, ["[config.bad_value]"], "corpus.train=/tmp/a\nb.h5")
        self.keys(18, 78, ["\\x1B"], "corpus.train=/tmp/\x1b[31mred.h5")
        self.keys(18, 66, ["%s%n"], "corpus.train=/tmp/%s%n%n.h5", world=True)
        self.keys(19, 66, ["[file.bad_path]"], "corpus.train=/" + "p" * 5000)
        self.refused(19, 66, ["[file.bad_path]"], "pretrain", "/" + "p" * 5000)
        self.refused(19, 73, ["[file.bad_path]"], "pretrain", self.at("small.ini"), "run.dir=/tmp/" + "p" * 5000, world=True)
        os.mkdir(self.at("folder.ini"))
        os.mkfifo(self.at("fifo.ini"))
        for name, identifier in ((self.at("folder.ini"), "[file.is_folder]"), (self.at("fifo.ini"), "[file.not_regular]"),
                                 ("/dev/zero", "[file.not_regular]")):
            self.refused(20, 66, [name, identifier], "pretrain", name)
        self.refused(20, 66, ["such as generate.model=", "[file.is_folder]"], "generate", self.at("folder.ini"))
        os.symlink(self.at("loop2"), self.at("loop1"))
        os.symlink(self.at("loop1"), self.at("loop2"))
        self.refused(21, 66, ["[file.bad_path]"], "pretrain", self.at("loop1"))
        self.keys(21, 66, ["[file.bad_path]"], f"corpus.train={self.at('loop1')}")
        with open(self.at("long.ini"), "wb") as file:
            file.write(self.more(b"[tokenizer]\npath = "))
            file.truncate(200 << 20)
        self.refused(23, 78, ["[file.too_long]"], "pretrain", self.at("long.ini"))
        os.remove(self.at("long.ini"))
        self.keys(24, 66, ["\\xED\\xA0\\x80"], os.fsdecode(b"corpus.train=/tmp/\xed\xa0\x80.h5"))
        self.keys(24, 78, ["\\xED\\xA0\\x80"], os.fsdecode(b"optimizer.kind=\xed\xa0\x80"))

    def test_25_a_configuration_that_changed_since(self):
        self.trained("changed", 0, "train.steps=1")
        for key, words in (("model.width=64", ["[run.other_keys]", "64", "32"]), ("optimizer.lr=1", ["[run.other_keys]", "0.003"]), (f"corpus.train={self.at('valid.h5')}", ["[run.other_keys]"])):
            self.refused(25, 78, words, "pretrain", self.at("small.ini"), f"run.dir={self.at('changed')}", "train.steps=2", key,
                         world=True)

    # ---- 84 to 110: checkpoints and the run folder ----

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.at('origin')}", "train.steps=4", "checkpoint.every=2"])

    def copy(self, name):
        folder = self.at(name)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.at("origin"), folder, symlinks=True)
        return folder

    def damage(self, row, spoil, word):
        """Spoiled, the newest checkpoint is passed over with a warning; with the older one spoiled too, the run ends with 65."""
        for ranks in (0, 4) if ALL else (0,):
            with self.subTest(row=row, ranks=ranks):
                folder = self.copy("damaged")
                spoil(os.path.join(folder, "checkpoints", steps(folder)[-1]))
                spoil(os.path.join(folder, "checkpoints", steps(folder)[0]))
                bad = self.pretrain("damaged", ranks, "train.steps=5")
                self.check(bad, 65, ["[checkpoint.all_damaged]"], 1)
                self.assertIn(word, bad.err)
                self.assertNotIn("step-000000000005", steps(folder))
                folder = self.copy("damaged")
                spoil(os.path.join(folder, "checkpoints", steps(folder)[-1]))
                result = self.pretrain("damaged", ranks, "train.steps=5")
                self.assertEqual(result.status, 0, str(result))
                self.assertRegex("\n".join(result.lines("warning")), "step-000000000004 .*" + word)  # and perhaps of too many threads
                self.assert_warning(result, "[checkpoint.put_aside]", "step-000000000004")
                self.assertEqual(digests(folder), self.expected)

    def test_84_to_92_checkpoints(self):
        shutil.copytree(self.at("origin"), self.at("straight"), symlinks=True)
        self.expected = digests(self.trained("straight", 0, "train.steps=5"))
        self.damage(84, lambda step: os.remove(os.path.join(step, "manifest.json")), "manifest.json")

        def spoil_hash(step):
            with open(os.path.join(step, "manifest.sha256"), "r+", encoding="ascii") as file:
                file.write("z")

        self.damage(85, spoil_hash, "manifest.sha256")
        self.damage(86, lambda step: os.remove(os.path.join(step, "shard-00000.h5")), "shard-00000.h5")
        self.damage(87, lambda step: shutil.copy(os.path.join(step, "shard-00000.h5"), os.path.join(step, "shard-00001.h5")),
                    "shard-00001.h5")

        def other_step(step):
            other = {"step-000000000002": "step-000000000004", "step-000000000004": "step-000000000002"}[os.path.basename(step)]
            shutil.copy(os.path.join(self.at("origin"), "checkpoints", other, "shard-00000.h5"), step)

        self.damage(88, other_step, "shard-00000.h5")

        def move_piece(by):
            def change(manifest):
                piece = next(t for t in manifest["tensors"] if t["shape"] == [32, 32])["pieces"][0]
                piece["extent"] = [piece["extent"][0] + by, 32]
            return lambda step: edit_manifest(step, change)

        def twice(manifest):
            tensor = manifest["tensors"][0]
            tensor["pieces"].append(dict(tensor["pieces"][0]))

        self.damage(89, lambda step: edit_manifest(step, twice), "")
        self.damage(90, move_piece(-1), "")
        self.damage(90, move_piece(1), "")

    def test_91_checkpoints_of_another_run(self):
        folder = self.copy("foreign")
        self.trained("other", 0, "train.steps=9", "model.width=64", "run.seed=5")
        shutil.move(os.path.join(self.at("other"), "checkpoints", "step-000000000009"), os.path.join(folder, "checkpoints"))
        result = self.pretrain("foreign", 0, "train.steps=12")
        self.assert_error(result, 65, "[tensor.wrong_shape]")

    def test_92_a_newer_format(self):
        folder = self.copy("newer")
        for step in steps(folder):
            edit_manifest(os.path.join(folder, "checkpoints", step), lambda manifest: manifest.update(format_version=99))
        self.check(self.pretrain("newer", 0, "train.steps=5"), 65, ["[manifest.unknown_version]", "99"], 1)

    def test_93_to_96_what_lies_among_checkpoints(self):
        folder = self.copy("litter")
        for step in steps(folder):
            shutil.rmtree(os.path.join(folder, "checkpoints", step))
        os.makedirs(os.path.join(folder, "checkpoints", ".tmp-step-000000000009-0123456789abcdef"))
        self.trained("litter", 0, "train.steps=5")  # from the start
        self.assertEqual(steps(folder), ["step-000000000005"])
        self.assertEqual(metrics(folder)[0]["step"], 1)
        self.assertEqual([n for n in os.listdir(os.path.join(folder, "checkpoints")) if n.startswith(".tmp")], [])

        folder = self.copy("litter")
        best = os.path.join(folder, "checkpoints", "best")
        if os.path.lexists(best):
            os.remove(best)
        os.symlink("/etc", best)
        listing = os.listdir("/etc")
        self.trained("litter", 0, "train.steps=5")
        self.assertEqual(os.listdir("/etc"), listing)
        self.assertNotEqual(os.readlink(best), "/etc")

        folder = self.copy("litter")
        newest = os.path.join(folder, "checkpoints", "step-000000000004")
        shutil.copytree(newest, os.path.join(folder, "checkpoints", "step-999999999999"))
        result = self.pretrain("litter", 0, "train.steps=5")
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[checkpoint.put_aside]", "step-999999999999")

    def test_98_to_101_disks(self):
        disk = self.at("disk")
        os.makedirs(disk)
        # row, how it is mounted, what is said, what is done to it first
        rows = ((98, "-t tmpfs -o size=300k", 74, "[file.no_space]", ""),
                (99, "-t tmpfs -o nr_inodes=8", 74, "[file.no_space]", ""),
                (101, "-t tmpfs -o size=64m", 77, "[file.denied]", f"mount -o remount,ro {disk};"))
        if run(["unshare", "-m", "sh", "-c", f"mount -t tmpfs none {disk}"]).status != 0:
            self.skipTest("a small disk can't be mounted here: that needs root")
        for row, kind, status, words, first in rows:
            for ranks in (1, 4) if ALL else (1,):
                with self.subTest(row=row, ranks=ranks):
                    job = (f"sh {bagpipe_test.MPIRUN} {ranks} {program('bagpipe')} pretrain {self.at('small.ini')} "
                           f"run.dir={disk}/run model.width=64 train.steps=4 checkpoint.every=2")
                    result = run(["unshare", "-m", "sh", "-c", f"mount {kind} none {disk} && {first} {job}; status=$?; "
                                  f"ls -A {disk}/run/checkpoints 2>/dev/null; exit $status"])
                    self.check(result, status, [words], 1)
                    self.assertEqual([line for line in result.out.split("\n") if line.startswith((".tmp-", "step-"))], [])

    def test_104_to_105_newest_or_all_are_damaged(self):
        def flip(step):
            path = os.path.join(step, "shard-00000.h5")
            with open(path, "r+b") as file:
                file.seek(os.path.getsize(path) // 2)
                byte = file.read(1)[0]
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte ^ 16]))

        shutil.copytree(self.at("origin"), self.at("straight2"), symlinks=True)
        self.expected = digests(self.trained("straight2", 0, "train.steps=5"))
        self.damage(104, flip, "shard-00000.h5")

    def test_107_a_journal_shorter_than_the_checkpoint(self):
        folder = self.copy("short")
        path = os.path.join(folder, "metrics.jsonl")
        with open(path, "r+b") as file:
            file.truncate(os.path.getsize(path) // 3)
        self.trained("short", 0, "train.steps=5")
        self.trained("whole", 0, "train.steps=5")
        after = timeless(metrics(folder))
        self.assertEqual(after[-1], timeless(metrics(self.at("whole")))[-1])
        self.assertEqual([line["step"] for line in after], sorted({line["step"] for line in after}))

    def test_110_umask(self):
        for mask in (0o077, 0o000):
            old = os.umask(mask)
            try:
                folder = self.trained(f"umask{mask:o}", 0, "train.steps=1")
            finally:
                os.umask(old)
            for place, _, names in os.walk(folder):
                for name in names:
                    mode = os.lstat(os.path.join(place, name)).st_mode
                    self.assertEqual(mode & 0o777 & mask, 0, name)
                    if not os.path.islink(os.path.join(place, name)):
                        self.assertEqual(mode & 0o111, 0, name)


if __name__ == "__main__":
    bagpipe_test.main()
