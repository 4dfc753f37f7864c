"""Reads a timeline (Chrome trace) and says what is wrong with it: python3 timeline.py FILE"""
import json
import sys


def load(path):
    """Events by process and thread in the order of the file, names of processes, names of threads, and the rest of the file."""
    with open(path, encoding="utf-8") as file:
        whole = json.load(file)
    events, processes, threads = {}, {}, {}
    for event in whole["traceEvents"]:
        if event["ph"] == "M":
            if event["name"] == "process_name":
                processes[event["pid"]] = event["args"]["name"]
            elif event["name"] == "thread_name":
                threads[event["pid"], event["tid"]] = event["args"]["name"]
        else:
            events.setdefault((event["pid"], event["tid"]), []).append(event)
    return events, processes, threads, whole["otherData"]


def faults(path, ranks):
    """Complete events, in order, nested within a thread, of all ranks, each process and thread named."""
    events, processes, threads, _ = load(path)
    found = []
    if sorted(processes) != list(range(ranks)):
        found.append(f"processes {sorted(processes)} instead of {ranks}")
    for (pid, tid), line in events.items():
        if (pid, tid) not in threads:
            found.append(f"rank {pid}: thread {tid} has no name")
        open_until, before = [], 0
        for event in line:
            begin, end = event["ts"], event["ts"] + event["dur"]
            if event["ph"] != "X" or event["dur"] < 0 or begin < 0:
                found.append(f"rank {pid}: {event}")
            if begin < before:
                found.append(f"rank {pid}, thread {tid}: {event['name']} begins before the one in front of it")
            while open_until and open_until[-1] <= begin + 0.0015:  # times have three digits behind the microsecond
                open_until.pop()
            if open_until and end > open_until[-1] + 0.0015:
                found.append(f"rank {pid}, thread {tid}: {event['name']} at {begin} is not within the one around it")
            open_until.append(end)
            before = begin
    return found


if __name__ == "__main__":
    lanes, names, _, about = load(sys.argv[1])
    problems = faults(sys.argv[1], about["ranks"])
    print("\n".join(problems) or f"{sum(map(len, lanes.values()))} events of {len(names)} ranks: well formed")
    sys.exit(1 if problems else 0)
