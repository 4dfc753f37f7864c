"""A `_priv.h` header is included only in its own folder.

The includes of KNOWN were there when this test was written. That list may only shrink.
"""
import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'#include "([^"]+_priv\.h)"')
KNOWN = {tuple(line.split()) for line in """
models/word2vec/vectors.c models/ngram/ngram_arpa_priv.h
models/word2vec/vectors_read.c models/ngram/ngram_arpa_priv.h
""".strip().splitlines()}

source = Path(sys.argv[1]).resolve()
found = set()
for path in sorted(source.rglob("*.[ch]")):
    for name in INCLUDE.findall(path.read_text()):
        target = source / name if "/" in name else path.parent / name
        assert target.exists(), f"{path}: {name} is not there"
        if target.parent != path.parent:
            found.add((str(path.relative_to(source)), name))
for file, name in sorted(found - KNOWN):
    print(f"{file} includes {name}, which is private to its folder: move what is shared into a header without _priv")
for file, name in sorted(KNOWN - found):
    print(f"{file} includes {name} no longer: take it off KNOWN")
sys.exit("private headers leave their folders; see docs/architecture.md" if found != KNOWN else 0)
