"""No circle between files by calls: an arrow goes from an object file to the one that defines what it calls (nm).

The circles of KNOWN were there when this test was written. That list may only shrink: a circle that is gone, or has become
smaller, is taken off or cut here.
"""
import re
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"
KNOWN = [circle.split() for circle in """
infer/score/page/page.c infer/score/page/page_texts.c

math/attention/attention.c math/attention/attention_f32.c

models/network/decoding.c models/network/decoding_step.c

infer/score/task/page.c infer/score/task/report.c infer/score/task/spans.c

io/checkpoint/checkpoint_base.c io/checkpoint/checkpoint_load.c io/checkpoint/checkpoint_open.c

io/h5/h5_data.c io/h5/h5_read.c

models/ngram/ngram.c models/ngram/ngram_plan.c
""".split("\n\n")]


def symbols(path):
    """What an object file defines, and what it calls."""
    defined, called = set(), set()
    for line in subprocess.run(["nm", str(path)], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines():
        *_, kind, name = line.split()
        if kind in "TDBRVWC":
            defined.add(name)
        elif kind == "U":
            called.add(name)
    return defined, called


def arrows(build):
    """{file: files that define what it calls}"""
    home, calls = {}, {}
    for path in sorted(build.rglob("*.c.o")):
        file = re.sub(r"CMakeFiles/[^/]*/", "", str(path.relative_to(build))[:-2])
        if not (SOURCE / file).exists():
            continue # left by an older build
        defined, called = symbols(path)
        home.update(dict.fromkeys(defined, file))
        calls.setdefault(file, set()).update(called) # a file may be built more than once, for several instruction sets
    return {file: {home[name] for name in called if name in home} - {file} for file, called in calls.items()}


def circles(graph):
    """The files of each circle: those that reach each other (Tarjan's strongly connected components, without recursion)."""
    order, low, stack, found = {}, {}, [], []
    for root in graph:
        walk = [(root, iter(sorted(graph[root])))] if root not in order else []
        if walk:
            order[root] = low[root] = len(order)
            stack.append(root)
        while walk:
            file, targets = walk[-1]
            for to in targets:
                if to not in order:
                    order[to] = low[to] = len(order)
                    stack.append(to)
                    walk.append((to, iter(sorted(graph[to]))))
                    break
                if to in stack:
                    low[file] = min(low[file], order[to])
            else:
                walk.pop()
                if walk:
                    low[walk[-1][0]] = min(low[walk[-1][0]], low[file])
                if low[file] == order[file]:
                    at = stack.index(file)
                    if len(stack) - at > 1:
                        found.append(sorted(stack[at:]))
                    del stack[at:]
    return found


graph = arrows(Path(sys.argv[1]).resolve())
assert len(graph) > 1, f"no object files under {sys.argv[1]}"
found = circles(graph)
new = [circle for circle in found if not any(set(circle) <= set(known) for known in KNOWN)]
for circle in new:
    print("files that call each other in a circle: " + " ".join(circle))
# a build without oneDNN has not all files of a circle
gone = [known for known in KNOWN if known not in found and all(file in graph for file in known)]
for known in gone:
    print("no circle any more, or a smaller one: take it off KNOWN or cut it: " + " ".join(known))
sys.exit("circles by calls have changed; see docs/architecture.md" if new or gone else 0)
