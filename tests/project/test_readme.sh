#!/bin/sh
# README.md's commands, as they stand there and in their order, and its Python where pandas is installed; but blocks below the
# marker "<!-- not run by a test", and "Two commands", which whoever runs this has used. It takes as long as README says.
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/bagpipe-readme.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT

blocks_of() { # LANGUAGE
    awk -v fence='```'"$1" '
        /^## / { section = $0 }
        /^<!-- not run by a test/ { marked = 1 }
        /^```/ && inside { inside = 0; next }
        $0 == fence { inside = !marked && section != "## Two commands"; marked = 0; next }
        inside' "$top/README.md"
}
blocks_of sh >"$work/commands"
blocks_of python >"$work/snippet.py"
for job in pretrain score ensemble uncertainty; do
    grep -q "bagpipe $job " "$work/commands" || {
        echo "FAILED: README.md has no command of $job"
        exit 1
    }
done

# in a copy of the sources, with the build of this tree: a newcomer's clone
mkdir "$work/clone" && cd "$top" && tar -c --exclude=./build --exclude=./runs --exclude=./.git . | tar -x -C "$work/clone" || exit 1
cd "$work/clone" && sh -e -v "$work/commands" || {
    echo "FAILED: a command of README.md"
    exit 1
}
if /usr/bin/python3 -c 'import pandas' 2>/dev/null; then
    /usr/bin/python3 "$work/snippet.py" || {
        echo "FAILED: README.md's Python"
        exit 1
    }
fi
# what README says of the ensemble: better than its single model
grep -q '"perplexity"' runs/cmake/scored/score/summary.json || exit 1
bagpipe=$work/clone/build/release/bin/bagpipe-data
"$bagpipe" compare runs/cmake/scored runs/cmake/scored-four | awk '/^all/ { exit !($5 < 0.95) }' || {
    echo "FAILED: the ensemble is not 5 % better than the single model"
    exit 1
}
