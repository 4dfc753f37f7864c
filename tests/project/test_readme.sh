#!/bin/sh
# The commands of README.md's section "A real run", as they stand there, on text made of the project's own files.
top=$(cd "$(dirname "$0")/../.." && pwd)
. "$top/jobs/local.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/bagpipe-readme.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
local_mpi

awk '/^## / { inside = ($0 == "## A real run") } /^```/ { code = !code && inside; next } inside && code' \
    "$top/README.md" >"$work/commands"
[ "$(wc -l <"$work/commands")" -ge 10 ] || {
    echo "FAILED: README.md has no section 'A real run' with its commands"
    exit 1
}
mkdir "$work/text"
cat "$top"/src/*/*.c >"$work/text/train.txt"
cat "$top"/src/*/*.h >"$work/text/valid.txt"
cat "$top"/docs/*.md >"$work/text/test.txt"

# in a copy of the sources, with the build of this tree: a newcomer's clone
mkdir "$work/clone" && cd "$top" && tar -c --exclude=./build --exclude=./runs --exclude=./.git . | tar -x -C "$work/clone" || exit 1
cd "$work/clone" && BAGPIPE_TEXT=$work/text sh -e -x "$work/commands" || {
    echo "FAILED: a command of README.md"
    exit 1
}
