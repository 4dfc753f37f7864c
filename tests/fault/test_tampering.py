"""Every file and folder of a run folder, in every way that it can lie: missing, empty, cut, garbage, one wrong byte, a FIFO, a link,
a folder. The next start answers within ten seconds as docs/reliability.md says. Either it goes on, to the very end of an undisturbed
run, and warns of what is lost; or it refuses with one line that names the file, and goes on once that is as it was.

    test_tampering.py --bin FOLDER [--all]
"""
import collections
import fnmatch
import json
import os
import shutil
import signal
import stat
import time

import bagpipe_test
from fault_test import KINDS, KindsOfJob, digests, timeless

(ALL,) = bagpipe_test.take(all=False)
SECONDS = 10 * bagpipe_test.SLOWER  # for an answer, whatever was done to the folder
KINDS["pretrain"] = ("pretrain", 0, ("train.steps=20", "checkpoint.every=4", "checkpoint.async=no", "train.valid_every=8"))
KINDS["scoring"] = ("score", 0, ("score.stride=1", "score.tokens=yes"))
KINDS["texts"] = ("generate", 0, ("generate.batch=1", "generate.tokens=8"))
KINDS["members"] = ("ensemble", 0, ("ensemble.members=2", "ensemble.kind=seed", "train.steps=8", "checkpoint.every=4", "checkpoint.async=no"))
KINDS["study"] = ("uncertainty", 0, ())
KILLS = {"pretrain": "step.begin:11=kill", "scoring": "work.unit_done:3=kill", "texts": "work.unit_done:3=kill",
         "members": "step.begin:14=kill", "study": "work.unit_done:3=kill"}


def missing(path, old):
    pass


def emptied(path, old):
    write(path, b"")


def cut(path, old):
    write(path, old[:len(old) // 2])


def garbage(path, old):
    write(path, bytes(range(1, 10)) * 50)


def one_byte(path, old):
    """In the middle."""
    at = len(old) // 2
    write(path, old[:at] + bytes([old[at] ^ 0x1f]) + old[at + 1:] if old else b"\x1f")


def fifo(path, old):
    os.mkfifo(path)


def link(path, old):
    """To what was there, elsewhere."""
    elsewhere = os.path.join(Tampering.folder, "elsewhere")
    write(elsewhere, old)
    os.symlink(elsewhere, path)


def folder(path, old):
    os.mkdir(path)


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


OF_FILES = (missing, emptied, cut, garbage, one_byte, fifo, link, folder)
OF_FOLDERS = (missing, emptied, fifo)
# No warning is needed of what no result depends on: a journal's or log's line, the status, which the next start writes anew, a lock
# that nobody holds, a page; nor of a text or number in run.json that nothing reads (its structure and what is read is looked at);
# of what is made anew with the same bits; of what a killed job leaves by itself; nor of a checkpoint that is older than the newest,
# and a member that has ended.
SILENT = (("*checkpoints/step-000000000004*", "*"), ("*checkpoints/best", "missing"), ("*checkpoints/best", "link"), ("score", "missing"),
          ("generate", "missing"), ("generate/parts*", "missing"), ("generate/parts/*", "emptied"), ("generate/parts/*", "cut"),
          ("*score/parts*", "missing"), ("*score/parts/*", "emptied"), ("*score/parts/*", "cut"), ("uncertainty*", "missing"),
          ("uncertainty/scores/*/score/summary.json", "*"), ("*lock/*", "*"), ("*lock", "missing"),
          ("*log.txt", "*"), ("*events.jsonl", "*"), ("*status.json", "*"), ("*/index.html", "*"), ("*metrics.jsonl", "cut"),
          ("*metrics.jsonl", "one_byte"), ("*run.json", "one_byte"))


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


def readable(path):
    lines = []
    with open(path, "rb") as file:
        for line in file:
            try:
                lines += timeless([json.loads(line)])
            except ValueError:
                pass
    return lines


def words(line):
    """What a line may name of a path: any of its parts, or the step in it."""
    return [part for part in line.split("/") if part]


class Tampering(KindsOfJob):
    def killed(self, kind):
        """The run folder that a killed job leaves, its files and folders."""
        self.undisturbed_of(kind)
        start = self.launch(kind, "killed-" + kind, {"BP_FAULT": KILLS[kind]})
        self.assertEqual(start.wait(), -9, str(start))
        root, names = self.at("killed-" + kind), []
        for at, folders, files in os.walk(root):
            names += [os.path.relpath(os.path.join(at, name), root) for name in folders + files]
        return root, sorted(names)

    def tamper(self, root, name, damage, to):
        """A copy of `root` with one file that lies."""
        shutil.copytree(root, to, symlinks=True)
        path, old = os.path.join(to, name), b""
        if os.path.isfile(path):
            with open(path, "rb") as file:
                old = file.read()
        remove(path)
        damage(path, old)

    def answers(self, kind, root, name, damage):
        run = "lies"
        to = self.at(run)
        remove(to)
        self.tamper(root, name, damage, to)
        start = self.launch(kind, run)
        began = time.monotonic()
        status = start.wait(SECONDS)
        self.assertIsNotNone(status, f"no answer within {SECONDS} s: {start}")
        if status == 0:
            self.went_on(kind, run, name, damage, start)
        else:
            self.refused(start, status, name)
            remove(os.path.join(to, name))
            if os.path.isdir(os.path.join(root, name)) and not os.path.islink(os.path.join(root, name)):
                shutil.copytree(os.path.join(root, name), os.path.join(to, name), symlinks=True)
            else:
                shutil.copy2(os.path.join(root, name), os.path.join(to, name), follow_symlinks=False)
            self.expect_end(kind, run)
        return status, time.monotonic() - began, [line for line in start.err.splitlines() if "warning" in line or "error" in line]

    def refused(self, start, status, name):
        self.assertIn(status, (65, 73), str(start))
        self.assert_error(start.result(), status)
        (line,) = start.result().lines("error")
        self.assertRegex(line, bagpipe_test.IDENTIFIER)
        self.assertTrue(any(part in line for part in words(name)), f"names not the file: {line}")
        self.assertIn(";", line, "no remedy")

    def went_on(self, kind, run, name, damage, start):
        if name == "metrics.jsonl" and kind != "members":  # whose own has no steps
            self.assertEqual(digests(self.at(run)), self.undisturbed_of(kind)["digests"])
            lines, whole = readable(os.path.join(self.at(run), "metrics.jsonl")), self.undisturbed_of(kind)["metrics"]
            kept = [line.get("step") for line in lines]
            self.assertEqual(kept, [line["step"] for line in whole if line["step"] in kept])  # in order, none twice
            self.assertEqual([line for line in lines if line.get("step", 0) > 8], [line for line in whole if line["step"] > 8])
        else:
            self.assertEqual(self.outcome(kind, run), self.undisturbed_of(kind))
        if not any(fnmatch.fnmatch(name, pattern) and fnmatch.fnmatch(damage.__name__, how) for pattern, how in SILENT):
            self.assertTrue([line for line in start.result().lines("warning") if not line.endswith("[comparison.temperature_at_edge]")], f"lost in silence: {start}")

    def sweep(self, kind, wanted):
        root, names = self.killed(kind)
        reported = collections.Counter()
        for name in names:
            mode, size = os.lstat(os.path.join(root, name)).st_mode, os.path.getsize(os.path.join(root, name))
            for damage in OF_FOLDERS if stat.S_ISDIR(mode) else OF_FILES:
                if damage is emptied and size == 0:  # it was so before
                    continue
                if ALL or wanted(name, damage):
                    with self.subTest(kind=kind, name=name, damage=damage.__name__):
                        status, seconds, lines = self.answers(kind, root, name, damage)
                        reported[status] += 1
                        if ALL:
                            print(f"{kind:9} {name:50} {damage.__name__:8} {status:3} {seconds:4.1f} s  {' | '.join(lines)[:230]}", flush=True)
        self.assertGreater(sum(reported.values()), 0)
        print(f"{kind}: {sum(reported.values())} damages, {dict(reported)}")

    # ---- while the job runs ----

    def stopped(self, kind, run):
        """A job that stands still in the midst of its work."""
        self.undisturbed_of(kind)
        start = self.launch(kind, run, {"BP_FAULT": KILLS[kind].replace("=kill", "=stop")})
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with open(f"/proc/{start.process.pid}/stat", encoding="ascii", errors="replace") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "T":
                    return start
            time.sleep(0.05)
        self.fail(f"it does not stop: {start}")

    def leaves(self, start, status, identifier):
        """Woken up, it says so in one line, and leaves."""
        os.kill(start.process.pid, signal.SIGCONT)
        self.assertEqual(start.wait(2 * SECONDS), status, str(start))
        self.assert_error(start.result(), status, identifier)

    def test_lock_is_removed(self):
        for kind in KILLS if ALL else ("pretrain", "study"):
            with self.subTest(kind=kind):
                run = "unlocked-" + kind
                start = self.stopped(kind, run)
                remove(self.at(run + "/lock"))
                self.leaves(start, 69, "[lock.removed]")
                self.expect_end(kind, run)

    def test_lock_is_removed_and_another_job_begins(self):
        run = "two"
        start = self.stopped("scoring", run)
        remove(self.at(run + "/lock"))
        self.expect_end("scoring", run)
        self.leaves(start, 69, "[lock.lost]")
        self.assertEqual(self.outcome("scoring", run), self.undisturbed_of("scoring"))

    def test_folder_is_renamed(self):
        for kind in KILLS if ALL else ("scoring", "members"):
            with self.subTest(kind=kind):
                run = "moved-" + kind
                start = self.stopped(kind, run)
                os.rename(self.at(run), self.at(run + "-away"))
                self.leaves(start, 74, "[run.folder_gone]")
                self.assertFalse(os.path.exists(self.at(run)))
                os.rename(self.at(run + "-away"), self.at(run))
                self.expect_end(kind, run)

    # ---- where no run belongs ----

    def test_folders_that_are_none_of_a_run(self):
        self.undisturbed_of("pretrain")
        step = sorted(os.listdir(self.at("whole-pretrain/checkpoints")))[-1]
        for place in ("/", "//", "/usr/..", "/etc", "/tmp", self.at("whole-pretrain/checkpoints/" + step)):
            result = bagpipe_test.run([bagpipe_test.program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={place}"])
            self.assert_error(result, 78, "[run.bad_folder]", place)
        self.assertFalse(os.path.exists("/run.json"))

    def test_names_that_no_job_makes(self):
        self.undisturbed_of("pretrain")
        for name, identifier in (("lock/owner-18446744073709551615", "[lock.damaged]"), ("checkpoints/best", "[checkpoint.bad_link]")):
            shutil.copytree(self.at("whole-pretrain"), self.at("odd"), symlinks=True)
            remove(self.at("odd/" + name))
            os.makedirs(self.at("odd/" + name))
            result = bagpipe_test.run([bagpipe_test.program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('odd')}",
                                       "train.steps=24"])
            self.assert_error(result, 65, identifier)
            remove(self.at("odd"))

    # ---- once it is finished ----

    def test_scores_are_gone(self):
        self.undisturbed_of("scoring")
        shutil.copytree(self.at("whole-scoring"), self.at("gone"), symlinks=True)
        os.remove(self.at("gone/score/tokens.h5"))
        start = self.launch("scoring", "gone", env={"BP_FAULT": "exit.agree=kill"})  # in the middle of it
        self.assertNotEqual(start.wait(), 0, str(start))
        self.assertIn("made again: tokens.h5", start.out)
        self.expect_end("scoring", "gone")

    # ---- between two starts ----

    def test_pretrain(self):
        self.sweep("pretrain", lambda name, damage: name in ("log.txt", "run.json", "config.ini", "metrics.jsonl", "lock", "checkpoints/best")
                   and damage in (emptied, fifo))

    def test_score(self):
        self.sweep("scoring", lambda name, damage: damage is fifo or name.startswith("score/") and damage is garbage)

    def test_generate(self):
        self.sweep("texts", lambda name, damage: name.startswith("generate/") and damage in (fifo, garbage))

    def test_ensemble(self):
        self.sweep("members", lambda name, damage: damage is missing and name == "metrics.jsonl"
                   or name.startswith("members/m0") and name.endswith("/metrics.jsonl") and damage in (missing, garbage))

    def test_uncertainty(self):
        self.sweep("study", lambda name, damage: name == "uncertainty/record.json" and damage in (one_byte, garbage)
                   or name in ("uncertainty/scores/one/run.json", "uncertainty/scores/one/score") and damage in (emptied, missing))


if __name__ == "__main__":
    bagpipe_test.main()
