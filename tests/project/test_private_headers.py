"""A `_priv.h` header is included only in its own folder."""
import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'#include "([^"]+_priv\.h)"')

source = Path(sys.argv[1]).resolve()
found = False
for path in sorted(source.rglob("*.[ch]")):
    for name in INCLUDE.findall(path.read_text()):
        target = source / name if "/" in name else path.parent / name
        assert target.exists(), f"{path}: {name} is not there"
        if target.parent != path.parent:
            print(f"{path.relative_to(source)} includes {name}, which is private to its folder: move what is shared into a header without _priv")
            found = True
sys.exit("private headers leave their folders; see docs/architecture.md" if found else 0)
