"""Flipped bits and cut files: none is read as if it were sound, none crashes the reader, each is reported in one line.

    test_flips.py --bin FOLDER --flips flips [--count N] [--starts N]

The samples are made by jobs; `flips` damages and reads them in one process (see flips.c). What only a start of a job reads
(run.json, config.ini) is damaged here, --starts times, before a real start."""
import os
import random
import shutil
import subprocess

import bagpipe_test
from bagpipe_test import steps
from fault_test import KindsOfJob

FLIPS, COUNT, STARTS, SEED = bagpipe_test.take(flips=None, count=600, starts=6, seed=1)


class Flips(KindsOfJob):
    def make_samples(self):
        self.undisturbed_of("short1")
        self.undisturbed_of("score1")
        start = self.launch("score1", "begun", {"BP_FAULT": "work.unit_done:4=kill"})
        self.assertEqual(start.wait(), -9, str(start))
        top = self.at("samples")
        run = self.at("whole-short1")
        shutil.copytree(os.path.join(run, "checkpoints", steps(run)[-1]), os.path.join(top, "checkpoint"))
        os.mkdir(os.path.join(top, "corpus"))
        shutil.copy(self.at("train.h5"), os.path.join(top, "corpus"))
        os.mkdir(os.path.join(top, "table"))
        for name in ("documents.h5", "tokens.h5"):
            shutil.copy(os.path.join(self.at("whole-score1"), "score", name), os.path.join(top, "table"))
        shutil.copytree(os.path.join(self.at("begun"), "score", "parts"), os.path.join(top, "parts"))
        os.mkdir(os.path.join(top, "journal"))
        for name in ("metrics.jsonl", "events.jsonl"):
            shutil.copy(os.path.join(run, name), os.path.join(top, "journal"))
        os.makedirs(os.path.join(top, "run", "lock"))  # of a job that was killed
        owners = sorted(name for name in os.listdir(os.path.join(self.at("begun"), "lock")) if name.startswith("owner-"))
        shutil.copy(os.path.join(self.at("begun"), "lock", owners[-1]), os.path.join(top, "run", "lock"))
        return top

    def test_no_damage_goes_unnoticed(self):
        top = self.make_samples()
        done = subprocess.run([FLIPS, top, str(COUNT), str(SEED)], capture_output=True, text=True, env=bagpipe_test.environment(),
                              check=False)
        print(done.stdout, flush=True)
        unnoticed = "\n".join(line for line in done.stderr.splitlines() if line.startswith("unnoticed"))
        self.assertEqual(done.returncode, 0, f"{done.stdout}\n{unnoticed or done.stderr[-3000:]}")

    def test_damaged_record_or_configuration_is_reported_or_harmless(self):
        """The run's own text files have no checksum: a start says in one line what it can't take, or goes on to the same end."""
        self.undisturbed_of("short1")
        draw, reported = random.Random(SEED), 0
        for k in range(STARTS):
            name = ("run.json", "config.ini")[k % 2]
            shutil.rmtree(self.at("damaged"), ignore_errors=True)
            start = self.launch("short1", "damaged", {"BP_FAULT": "step.begin:7=kill"})
            self.assertEqual(start.wait(), -9, str(start))
            path = os.path.join(self.at("damaged"), name)
            with open(path, "rb") as file:
                content = bytearray(file.read())
            at, bit = draw.randrange(len(content)), draw.randrange(8)
            if draw.random() < 0.2:
                del content[at:]
            else:
                content[at] ^= 1 << bit
            with open(path, "wb") as file:
                file.write(content)
            with self.subTest(file=name, at=at, bit=bit):
                start = self.launch("short1", "damaged")
                status = start.wait()
                lines = [line for line in start.err.splitlines() if line.startswith("bagpipe: error")]
                if status == 0:
                    self.assertEqual(self.outcome("short1", "damaged"), self.undisturbed_of("short1"))
                else:
                    reported += 1
                    self.assertIn(status, (65, 78), str(start))
                    # a configuration has up to 20 faults, a line each
                    self.assertTrue(1 <= len(lines) <= (1 if status == 65 else 20), str(start))
        print(f"{STARTS} starts with a damaged record or configuration, {reported} refused", flush=True)


if __name__ == "__main__":
    bagpipe_test.main()
