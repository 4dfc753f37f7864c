"""restart.py BUILD/bin: seconds from starting again after kill -9 to the first new step, for a small model on 1, 2 and 4 ranks.

A training (two layers, width 32, a metrics line a step, a checkpoint every 20) is killed with its launcher, four times; timed is from
the start of the same command until metrics.jsonl has a line beyond the step that it went on from.
"""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "jobs"))
import bagpipe_test
from bagpipe_test import JobTest, metrics, program, steps

KEYS = ("train.steps=100000", "checkpoint.every=20", "corpus.valid=")


def start(folder, ranks):
    command = [program("bagpipe"), "pretrain", JobTest.at("small.ini"), f"run.dir={folder}", *KEYS]
    if ranks > 1:
        command = ["sh", bagpipe_test.MPIRUN, str(ranks)] + command
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=bagpipe_test.environment(),
                            start_new_session=True)


def last_step(folder):
    try:
        return metrics(folder)[-1]["step"]
    except (OSError, IndexError, ValueError):  # not there yet, or a line is half written
        return 0


def wait_until(condition):
    while not condition():
        time.sleep(0.005)


def went_on(folder, times):
    """The step that the start after `times` kills went on from; 0: not yet."""
    with open(os.path.join(folder, "log.txt"), encoding="utf-8") as file:
        lines = [line for line in file if "going on from step" in line]
    return int(lines[times - 1].split()[-1]) if len(lines) >= times else 0


def main():
    bagpipe_test.options.update(bin=sys.argv[1])
    JobTest.setUpClass()
    for ranks in (1, 2, 4):
        folder, took = JobTest.at(f"ranks{ranks}"), []
        job = start(folder, ranks)
        wait_until(lambda: os.path.isdir(folder) and os.path.isdir(os.path.join(folder, "checkpoints")) and steps(folder))
        for kill in range(1, 5):
            time.sleep(0.3)
            bagpipe_test.kill_all(job)
            job.communicate()
            began = time.monotonic()
            job = start(folder, ranks)
            wait_until(lambda: went_on(folder, kill))
            wait_until(lambda: last_step(folder) > went_on(folder, kill))
            took.append(time.monotonic() - began)
        bagpipe_test.kill_all(job)
        job.communicate()
        print(f"{ranks} ranks: " + " ".join(f"{seconds:.2f}" for seconds in took) + " s", flush=True)
    JobTest.tearDownClass()


if __name__ == "__main__":
    main()
