"""Kinds of tasks are told apart in src/models/task only: elsewhere no code names one, as others read the fields of its bp_task_kind."""
import re
import sys
from pathlib import Path

SOURCE = Path(sys.argv[1]).resolve()
HOME = SOURCE / "models" / "task"
rows = re.findall(r"^ {4}TASK\((\w+), (\w+)\)", (HOME / "list.h").read_text(), re.MULTILINE)
assert len(rows) > 3 and all((HOME / f"{name}.c").exists() for _, name in rows), rows
NAMED = re.compile(r"\bBP_TASK_(?:%s)\b|\bbp_task_(?:%s)\b" % tuple("|".join(column) for column in zip(*rows)))
assert NAMED.search("task->kind == BP_TASK_SPANS") and NAMED.search("kind == &bp_task_spans") and not NAMED.search("BP_TASK_CONTEXT")
found = [f"{path.relative_to(SOURCE.parent)}:{number}: {line.strip()}"
         for folder in (SOURCE, SOURCE.parent / "jobs", SOURCE.parent / "data_tools") for path in sorted(folder.rglob("*.[ch]"))
         if HOME not in path.parents for number, line in enumerate(path.read_text().splitlines(), 1) if NAMED.search(line)]
print("\n".join(found))
sys.exit("a kind of task is named outside src/models/task: read a field of bp_task_kind instead" if found else 0)
