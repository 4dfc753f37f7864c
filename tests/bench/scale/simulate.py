#!/usr/bin/env python3
"""Compares the plan's time of a step with a simulation of its messages.

    simulate.py STEP_PROGRAM FILE [FILE ...]

STEP_PROGRAM is step.c, built with smpicc; FILE is what `bagpipe pretrain CONFIG --plan --ranks N --nodes K --schedule
FILE` wrote. A line for each: the seconds of both, and their ratio. Status 1: a ratio is not within 5 %."""

import json
import pathlib
import subprocess
import sys
import tempfile

PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="nodes" prefix="node-" radical="0-{last}" suffix="" speed="1Gf" core="{cores}" bw="{bandwidth}Bps"
    lat="{latency}s" loopback_bw="{inner_bandwidth}Bps" loopback_lat="{inner_latency}s"/>
</platform>
"""

# A message takes latency + bytes / bandwidth: SMPI's factors, measured on other networks, are off.
SETTINGS = ["smpi/simulate-computation:no", "smpi/privatization:no", "smpi/bw-factor:0:1", "smpi/lat-factor:0:1",
            "network/weight-S:0", "network/crosstraffic:0", "network/TCP-gamma:1e18", "smpi/shared-malloc:global",
            "contexts/stack-size:256"]


def simulate(program, path):
    step = json.loads(pathlib.Path(path).read_text())
    rates, ranks, of_node = step["rates"], step["ranks"], step["node_ranks"]
    nodes = (ranks + of_node - 1) // of_node
    with tempfile.TemporaryDirectory() as folder:
        platform, hosts = pathlib.Path(folder, "platform.xml"), pathlib.Path(folder, "hosts")
        platform.write_text(PLATFORM.format(
            last=nodes - 1, cores=2 * of_node, bandwidth=rates["network.node_bandwidth"],
            latency=rates["network.node_latency"] / 2, inner_bandwidth=rates["network.inner_bandwidth"],
            inner_latency=rates["network.inner_latency"]))
        hosts.write_text("".join(f"node-{rank // of_node}\n" * 2 for rank in range(ranks)))
        command = ["smpirun", "-np", str(2 * ranks), "-platform", str(platform), "-hostfile", str(hosts)]
        command += [f"--cfg={setting}" for setting in SETTINGS] + ["--log=root.thresh:warning", program, str(path)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"simulate.py: smpirun ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return step["step_seconds"], float(done.stdout.split()[-1])


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    good = True
    for path in sys.argv[2:]:
        planned, simulated = simulate(str(pathlib.Path(sys.argv[1]).resolve()), path)
        good = good and abs(planned / simulated - 1) <= 0.05
        print(f"{path}: planned {planned:.5g} s, simulated {simulated:.5g} s, ratio {planned / simulated:.3f}", flush=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
