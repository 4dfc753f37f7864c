"""Disks that are full, out of inodes, limited or read-only, and a clock that leaps: a job says so in one line with the status
that is documented, and the same command ends well when there is space again.

    test_disks.py --bin FOLDER [--shim libbp_shim.so]

Needs root for mounts of its own (skipped with the reason otherwise)."""
import json
import os
import subprocess

import bagpipe_test
from fault_test import KINDS, KindsOfJob

(SHIM,) = bagpipe_test.take(shim=None)
KINDS["many"] = ("pretrain", 0, ("train.steps=20", "checkpoint.every=1", "checkpoint.keep=100", "train.valid_every=10"))


class Disks(KindsOfJob):
    def capacity(self, options):
        """A small disk at the folder `disk`, seen by what nsenter (the list returned) starts."""
        disk = self.at("disk")
        os.makedirs(disk, exist_ok=True)
        command = f"mount --make-rprivate / && mount -t tmpfs -o {options} none {disk} && echo mounted && exec sleep 600"
        holder = subprocess.Popen(["unshare", "-m", "sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(holder.communicate)
        self.addCleanup(holder.kill)
        if holder.stdout.readline().strip() != "mounted":
            self.skipTest("a disk can't be mounted here: that needs root")
        return ["nsenter", "-t", str(holder.pid), "-m", "-r", "-w", "--"]  # its root too: this may be a changed one

    def inside(self, enter, *command):
        subprocess.run(enter + list(command), check=True)

    def refused(self, start, statuses):
        status = start.wait()
        self.assertIn(status, statuses, str(start))
        self.assert_error(start.result(), status)
        return start.result().lines("error")[0]

    def check_end(self, enter):
        """From inside, where the disk is; then its files are brought out to be compared."""
        start = self.launch("many", "disk/run", prefix=enter)
        self.assertEqual(start.wait(), 0, str(start))
        out = self.at(f"out-{self.serial}")
        self.inside(enter, "cp", "-a", self.at("disk/run"), out)  # the test's folder itself is not covered
        self.undisturbed_of("many")
        self.assertEqual(self.outcome("many", os.path.basename(out)), self.undisturbed_of("many"))

    def test_full_disk(self):
        enter = self.capacity("size=700k")
        self.refused(self.launch("many", "disk/run", prefix=enter), (74,))
        self.inside(enter, "mount", "-o", "remount,size=64m", self.at("disk"))
        self.check_end(enter)

    def test_full_disk_of_a_score(self):
        """What did not fit is reported, the exit state has its space, and what can't be written any more replaces neither."""
        self.undisturbed_of("score")
        enter = self.capacity("size=300k")
        line = self.refused(self.launch("score", "disk/run", prefix=enter), (74,))
        self.assertIn("/score/", line)
        record = subprocess.run(enter + ["cat", self.at("disk/run/run.json")], check=True, stdout=subprocess.PIPE).stdout
        exit_state = json.loads(record)["exit"]
        self.assertEqual((exit_state["state"], exit_state["code"]), ("failed", 74), record)
        self.assertIn("/score/", exit_state["message"])

    def test_no_inodes(self):
        enter = self.capacity("size=64m,nr_inodes=60")
        self.refused(self.launch("many", "disk/run", prefix=enter), (73, 74))
        self.inside(enter, "mount", "-o", "remount,nr_inodes=0", self.at("disk"))
        self.check_end(enter)

    def test_read_only_disk(self):
        enter = self.capacity("size=64m")
        start = self.launch("many", "disk/run", {"BP_FAULT": "step.begin:7=kill"}, prefix=enter)
        self.assertEqual(start.wait(), -9, str(start))
        self.inside(enter, "mount", "-o", "remount,ro", self.at("disk"))
        self.refused(self.launch("many", "disk/run", prefix=enter), (77,))
        self.inside(enter, "mount", "-o", "remount,rw", self.at("disk"))
        self.check_end(enter)

    def test_limited_size_of_files(self):
        """ulimit -f: SIGXFSZ kills nobody."""
        line = self.refused(self.launch("many", "limited", prefix=["prlimit", "--fsize=20000", "--"]), (74,))
        self.assertIn("[file.no_space]", line)
        self.expect_end("many", "limited")

    def test_output_that_nobody_takes(self):
        """Standard output on a full disk: lines are lost, the run is not."""
        start = self.launch("many", "mute", prefix=["sh", "-c", 'exec "$@" >/dev/full', "sh"])
        self.assertEqual(start.wait(), 0, str(start))
        self.assertEqual(self.outcome("many", "mute"), self.undisturbed_of("many"))

    def test_wall_clock_that_leaps(self):
        """By ten years, back and forth: it is printed, and decides nothing."""
        if not SHIM:
            self.skipTest("no shim in this build")
        env = {"LD_PRELOAD": SHIM, "BP_SHIM_CLOCK": "1"}
        start = self.launch("short2", "leaps", dict(env, BP_FAULT="step.begin:7@0=kill", OMPI_MCA_odls_base_sigkill_timeout="0"))
        self.assertEqual(start.wait(), 137, str(start))
        start = self.launch("short2", "leaps", env)
        self.assertEqual(start.wait(), 0, str(start))
        self.assertEqual(self.outcome("short2", "leaps"), self.undisturbed_of("short2"))


if __name__ == "__main__":
    bagpipe_test.main()
