"""Two network namespaces with a rank in each, and the wire between them: cut for good in the middle of a training, slow, and
losing packets. A cut ends the job on both sides, with 75 and within the watchdog's limit; a bad wire is no fault.

Needs root, ip and veth (skipped with the reason otherwise)."""
import json
import os
import shutil
import stat
import subprocess
import time

import bagpipe_test
from bagpipe_test import program
from fault_test import KindsOfJob, Start, wait_gone

LIMIT = 4  # watchdog.seconds
ADDRESSES = ("10.213.77.1", "10.213.77.2")


def ip(*arguments):
    return subprocess.run(["ip"] + list(arguments), capture_output=True, text=True, check=False)


class Network(KindsOfJob):
    STEPS, EVERY, VALID = 60, 5, 30

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        tag = os.getpid() % 100000
        cls.spaces = [f"bp{tag}a", f"bp{tag}b"]
        cls.wires = [f"bpw{tag}a", f"bpw{tag}b"]
        cls.reason = cls.lay_wire()

    @classmethod
    def lay_wire(cls):
        if os.geteuid() != 0:
            return "network namespaces need root"
        steps = [("netns", "add", space) for space in cls.spaces]
        steps += [("link", "add", cls.wires[0], "netns", cls.spaces[0], "type", "veth", "peer", "name", cls.wires[1], "netns", cls.spaces[1])]
        for space, wire, address in zip(cls.spaces, cls.wires, ADDRESSES):
            steps += [("-n", space, "addr", "add", address + "/24", "dev", wire), ("-n", space, "link", "set", wire, "up"),
                      ("-n", space, "link", "set", "lo", "up")]
        if shutil.which("ip") is None:
            return "there is no program ip (iproute2)"
        for step in steps:
            done = ip(*step)
            if done.returncode != 0:
                return f"no network namespaces here: ip {' '.join(step)}: {done.stderr.strip()}"
        return None

    @classmethod
    def tearDownClass(cls):
        if os.geteuid() == 0 and shutil.which("ip"):
            for space in cls.spaces:
                ip("netns", "del", space)
        super().tearDownClass()

    def setUp(self):
        if self.reason:
            self.skipTest(self.reason)
        self.agent = self.write("agent.sh", f'#!/bin/sh\nshift\nexec ip netns exec {self.spaces[1]} sh -c "$*"\n')
        os.chmod(self.agent, os.stat(self.agent).st_mode | stat.S_IXUSR)

    def train(self, name, env=None):
        """A rank in each namespace; mpirun is in the first. A step takes long enough to cut the wire in the middle."""
        type(self).serial += 1
        mca = {"plm_rsh_agent": self.agent, "btl": "tcp,self", "pml": "ob1", "btl_tcp_if_include": "10.213.77.0/24",
               "oob_tcp_if_include": "10.213.77.0/24"}
        pairs = {f"OMPI_MCA_{key}": value for key, value in mca.items()}
        hosts = ["--host", ",".join(ADDRESSES), "-x", "BP_FAULT"] if env else ["--host", ",".join(ADDRESSES)]
        command = ["ip", "netns", "exec", self.spaces[0], "sh", bagpipe_test.MPIRUN, "2"] + hosts
        command += [program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at(name)}", "mesh.data=2",
                    f"watchdog.seconds={LIMIT}"]
        return Start(self.at(f"start-{self.serial}"), command, ranks=0, env=dict(pairs, **(env or {})))

    def ranks(self):
        """Every bagpipe process of this test, in both namespaces."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:
                continue
            if words[0].endswith(b"bagpipe") and any(self.folder.encode() in word for word in words):
                found.append(int(pid))
        return found

    def test_cut_wire_ends_both_sides_and_the_run_goes_on(self):
        whole = self.train("whole")
        self.assertEqual(whole.wait(), 0, str(whole))
        start = self.train("cut", {"BP_FAULT": "step.begin:1+=delay0.1"})
        while "step 12/" not in start.out and start.process.poll() is None:
            time.sleep(0.02)
        ranks = self.ranks()
        self.assertEqual(len(ranks), 2, str(start))
        ip("-n", self.spaces[1], "link", "set", self.wires[1], "down")
        cut = time.monotonic()
        status = start.wait()
        gone = wait_gone(ranks)
        seconds = time.monotonic() - cut
        ip("-n", self.spaces[1], "link", "set", self.wires[1], "up")
        self.assertTrue(gone, f"ranks that stay\n{start}")
        # mpirun has lost its own other half, and crashes or is ended at last; what counts stands in the run folder
        self.assertIsNotNone(status, f"mpirun stays\n{start}")
        self.assertNotEqual(status, 0, str(start))
        self.assertRegex(start.err, r"(?m)^bagpipe: error\[75\]: .* \[run\.hung\]$")
        with open(os.path.join(self.at("cut"), "run.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["exit"]["code"], 75)
        print(f"cut at step 12: all gone after {seconds:.0f} s with watchdog.seconds={LIMIT}, mpirun's status {status}", flush=True)
        again = self.train("cut")
        self.assertEqual(again.wait(), 0, str(again))
        self.assertIn("going on from step ", again.out)
        self.assertEqual(self.outcome("train", "cut"), self.outcome("train", "whole"))

    def test_slow_wire_that_loses_packets_is_no_alarm(self):
        done = subprocess.run(["tc", "-n", self.spaces[0], "qdisc", "add", "dev", self.wires[0], "root", "netem", "delay", "5ms", "loss", "2%"],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self.skipTest(f"no netem here: {done.stderr.strip()}")
        try:
            start = self.train("slow")
            self.assertEqual(start.wait(), 0, str(start))
        finally:
            subprocess.run(["tc", "-n", self.spaces[0], "qdisc", "del", "dev", self.wires[0], "root"], check=False)


if __name__ == "__main__":
    bagpipe_test.main()
