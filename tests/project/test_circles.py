"""No circle between files: a file is X.c with X.h, X_parts.h and X_priv.h, and an arrow is an #include."""
import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'#include "([^"]+)"')


def unit_of(path):
    return path.parent / re.sub(r"(_priv|_parts)?\.[ch]$", "", path.name)


def arrows(source):
    """{unit: units that it includes}"""
    found = {}
    for path in sorted(source.rglob("*.[ch]")):
        unit = unit_of(path.relative_to(source))
        found.setdefault(unit, set())
        for name in INCLUDE.findall(path.read_text()):
            for target in (path.parent / name, source / name):
                if target.exists():
                    found[unit].add(unit_of(target.resolve().relative_to(source)))
                    break
    return {unit: {to for to in targets if to != unit} for unit, targets in found.items()}


def circles(graph):
    """What is left once units that include nothing that is left, or that nothing left includes, are taken away, again
    and again."""
    left = dict(graph)
    while True:
        included = set().union(*left.values())
        ends = [unit for unit, targets in left.items() if unit not in included or not targets & left.keys()]
        if not ends:
            return left
        for unit in ends:
            del left[unit]


source = Path(sys.argv[1]).resolve()
graph = arrows(source)
assert len(graph) > 1, f"no files under {source}"
left = circles(graph)
for unit in sorted(left):
    print(f"{unit} -> {', '.join(str(to) for to in sorted(left[unit] & left.keys()))}")
sys.exit("these files include each other in a circle, or include such; see docs/architecture.md" if left else 0)
