"""The power goes while a job writes: whatever was not yet brought to disk (fsync) may be there, lost, torn or out of order.

A training is run once with all its writes, renames and flushes written down (shim.c). From that log, states of the disk at any
moment are put together: of what was not flushed, any subset of the writes of each file (some of them in part, some in another
order) and any subset of the changes of each folder. A start on each state must find the checkpoint that was announced last or
a newer one, whole: never a mixture. Journals are cut back to it.

    test_torn_writes.py --bin FOLDER --shim libbp_shim.so --check torn_check [--states N] [--resume N]"""
import collections
import os
import random
import re
import shutil
import subprocess
import tempfile

import bagpipe_test
from fault_test import KINDS, KindsOfJob, leftovers

SHIM, CHECK, STATES, RESUMES, SEED = bagpipe_test.take(shim=None, check=None, states=300, resume=3, seed=1)
KINDS["torn"] = ("pretrain", 0, ("train.steps=20", "checkpoint.every=4", "train.valid_every=8", "checkpoint.keep=2"))


class File:
    def __init__(self, target=None):
        self.durable, self.now, self.pending, self.target = b"", bytearray(), [], target

    def write(self, offset, data):
        self.pending.append((offset, data))
        put(self.now, offset, data)

    def truncate(self, length):
        self.pending.append((length, None))
        put(self.now, length, None)

    def sync(self):
        self.durable, self.pending = bytes(self.now), []

    def after_crash(self, draw):
        keep, writes = draw.choice((0.0, 1.0, draw.random())), []
        for offset, data in self.pending:
            if draw.random() >= keep:
                continue
            if data is not None and draw.random() < 0.2:  # torn: some first part
                data = data[:draw.randrange(len(data) + 1)]
            writes.append((offset, data))
        if draw.random() < 0.3:
            draw.shuffle(writes)
        image = bytearray(self.durable)
        for offset, data in writes:
            put(image, offset, data)
        return bytes(image)


class Folder:
    def __init__(self):
        self.durable, self.now, self.pending = {}, {}, []

    def change(self, *changes):
        """(name, node or None): all or nothing, where they are of one call."""
        self.pending.append(changes)
        apply(self.now, changes)

    def sync(self):
        self.durable, self.pending = dict(self.now), []

    def after_crash(self, draw):
        keep, entries = draw.choice((0.0, 1.0, draw.random())), dict(self.durable)
        for changes in self.pending:
            if draw.random() < keep:
                apply(entries, changes)
        return entries


def put(image, offset, data):
    if data is None:
        del image[offset:]
        image.extend(bytes(max(0, offset - len(image))))
    else:
        image.extend(bytes(max(0, offset + len(data) - len(image))))
        image[offset:offset + len(data)] = data


def apply(entries, changes):
    for name, node in changes:
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


Record = collections.namedtuple("Record", "op offset data path more")


def records(path):
    with open(path, "rb") as file:
        text, at = file.read(), 0
    while at < len(text):
        end = text.index(b"\n", at)
        op, _, offset, bytes_, path_bytes, more_bytes = text[at:end].split()
        at, parts = end + 1, []
        for length in (int(bytes_), int(path_bytes), int(more_bytes)):
            parts.append(text[at:at + length])
            at += length
        yield Record(op.decode(), int(offset), parts[0], parts[1].decode(), parts[2].decode())


class Disk:
    """The run folder as its calls leave it: what is there now, and what is certain to be there after a crash."""

    def __init__(self, root):
        self.root, self.folder = root, Folder()

    def find(self, path):
        node = self.folder
        for name in os.path.relpath(path, self.root).split("/"):
            if name == ".":
                continue
            if not isinstance(node, Folder) or name not in node.now:
                return None
            node = node.now[name]
        return node

    def parent(self, path):
        return self.find(os.path.dirname(path)), os.path.basename(path)

    def play(self, record):
        op, path = record.op, record.path
        if path == self.root and op == "mkdir":
            return
        if op in ("write", "ftruncate", "fsync"):
            node = self.find(path)
            if node is None:  # a file that has no name any more
                return
            if op == "write":
                node.write(record.offset, record.data)
            elif op == "ftruncate":
                node.truncate(record.offset)
            else:
                node.sync()
        elif op == "rename":
            source, name = self.parent(path)
            target, new = self.parent(record.more)
            node = source.now[name]
            if source is target:
                source.change((name, None), (new, node))
            else:
                target.change((new, node))
                source.change((name, None))
        elif op == "link":
            target, name = self.parent(record.more)
            target.change((name, self.find(path)))
        elif op == "symlink":
            target, name = self.parent(record.more)
            target.change((name, File(target=path)))
        else:
            folder, name = self.parent(path)
            folder.change((name, {"create": File, "mkdir": Folder}[op]() if op != "unlink" else None))

    def crash(self, to, draw, folder=None):
        """What is found when the power is back."""
        os.mkdir(to)
        for name, node in (folder or self.folder).after_crash(draw).items():
            path = os.path.join(to, name)
            if isinstance(node, Folder):
                self.crash(path, draw, node)
            elif node.target is not None:
                os.symlink(node.target, path)
            else:
                with open(path, "wb") as file:
                    file.write(node.after_crash(draw))


def tree(folder):
    """Every file below a folder, with its bytes."""
    found = {}
    for at, _, files in os.walk(folder):
        for name in files:
            with open(os.path.join(at, name), "rb") as file:
                found[os.path.relpath(os.path.join(at, name), folder)] = file.read()
    return found


class TornWrites(KindsOfJob):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.memory = tempfile.TemporaryDirectory(prefix="bp_torn_", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)

    @classmethod
    def tearDownClass(cls):
        cls.memory.cleanup()
        super().tearDownClass()

    def record(self):
        """A whole training, written down; its checkpoints as they were while they were there."""
        env = {"LD_PRELOAD": SHIM, "BP_SHIM_LOG": self.at("log"), "BP_SHIM_PREFIX": self.at("torn")}
        start = self.launch("torn", "torn", env)
        self.assertEqual(start.wait(), 0, str(start))
        self.log = list(records(self.at("log")))
        disk, self.whole, self.announced = Disk(self.at("torn")), {}, []
        step = 0
        for record in self.log:
            disk.play(record)
            if record.op == "write" and record.path.endswith("events.jsonl"):
                found = re.search(rb'"checkpoint".*"step": ?(\d+)', record.data) if b'"checkpoint"' in record.data else None
                step = int(found.group(1)) if found else step
                if found:  # between a commit and what is removed after it, all that was committed is there
                    name = f"step-{step:012d}"
                    folder = disk.find(self.at("torn") + "/checkpoints/" + name)
                    self.whole[name] = {file: bytes(node.now) for file, node in folder.now.items()}
            self.announced.append(step)
        self.metrics = bytes(disk.find(self.at("torn") + "/metrics.jsonl").now)
        self.events = bytes(disk.find(self.at("torn") + "/events.jsonl").now)
        self.assertEqual(len(self.whole), 5)

    def check_state(self, number, draw, check):
        at = draw.randrange(len(self.log))
        disk, folder = Disk(self.at("torn")), os.path.join(self.memory.name, "run")
        for record in self.log[:at + 1]:
            disk.play(record)
        shutil.rmtree(folder, ignore_errors=True)
        disk.crash(folder, draw)
        check.stdin.write(folder + "\n")
        check.stdin.flush()
        answer = check.stdout.readline().strip()
        if not answer:
            with open(self.at("check.err"), encoding="utf-8", errors="replace") as file:
                raise AssertionError(f"the check has died at state {number}: {file.read()[-3000:]}")
        context = f"state {number} (seed {SEED}): after call {at} ({self.log[at].op} {self.log[at].path}): {answer}"
        if answer == "none":
            self.assertEqual(self.announced[at], 0, context)
            kept = b""
        else:
            self.assertRegex(answer, r"^step step-\d{12}$", context)
            name = answer.split()[1]
            self.assertGreaterEqual(int(name[5:]), self.announced[at], context)
            self.assertTrue(tree(os.path.join(folder, "checkpoints", name)) == self.whole[name], context + ": another content")
            kept = b"".join(self.metrics.splitlines(True)[:int(name[5:])])
        with open(os.path.join(folder, "metrics.jsonl"), "rb") as file:
            self.assertEqual(file.read(), kept, context)
        with open(os.path.join(folder, "events.jsonl"), "rb") as file:
            events = file.read()
        self.assertTrue(not events or events.endswith(b"\n"), context)
        self.assertEqual([name for name in leftovers(folder) if ".bad-" not in name], [], context)
        return answer, folder

    def check_resume(self, folder):
        """And the real job goes on from there, to the same end."""
        name = "resumed"
        shutil.rmtree(self.at(name), ignore_errors=True)
        shutil.copytree(folder, self.at(name), symlinks=True)
        self.expect_end("torn", name)

    def test_a_start_finds_old_or_new_and_never_a_mixture(self):
        self.undisturbed_of("torn")
        self.record()
        draw, answers = random.Random(SEED), collections.Counter()
        with open(self.at("check.err"), "w", encoding="utf-8") as err, \
                subprocess.Popen([CHECK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True,
                                 env=dict(bagpipe_test.environment(), OMPI_MCA_orte_tmpdir_base=self.folder)) as check:
            for number in range(STATES):
                answer, folder = self.check_state(number, draw, check)
                answers[answer] += 1
                if number % max(1, STATES // max(1, RESUMES)) == 0:
                    self.check_resume(folder)
            check.stdin.close()
            self.assertEqual(check.wait(), 0)
        print(f"{STATES} states of {len(self.log)} calls: {dict(sorted(answers.items()))}", flush=True)
        self.assertGreater(len(answers), 3)


if __name__ == "__main__":
    bagpipe_test.main()
