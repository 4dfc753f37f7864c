#!/bin/sh
# The commands of README.md's section "A real run", as they stand there, on text made of the project's own files; those of
# ensembles and uncertainty, which compute for long, as far as `bagpipe check` goes: their keys, values and lists.
top=$(cd "$(dirname "$0")/../.." && pwd)
. "$top/jobs/local.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/bagpipe-readme.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
local_mpi

commands_of() {
    awk -v title="## $1" '/^## / { inside = ($0 == title) } /^```/ { code = !code && inside; next } inside && code' \
        "$top/README.md"
}
commands_of "A real run" >"$work/commands"
[ "$(wc -l <"$work/commands")" -ge 10 ] || {
    echo "FAILED: README.md has no section 'A real run' with its commands"
    exit 1
}
{ commands_of "An ensemble"; commands_of "How sure is it?"; } | sed '/^bagpipe-data /d; s/mpirun \(-q \)\{0,1\}-n 2 bagpipe/bagpipe check/' >"$work/checks"
for job in ensemble score uncertainty; do
    grep -q "^bagpipe check $job " "$work/checks" || {
        echo "FAILED: README.md has no command of $job on ensembles"
        exit 1
    }
done
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
PATH=$PWD/build/release/bin:$PATH sh -e -x "$work/checks" || {
    echo "FAILED: a command of README.md on ensembles"
    exit 1
}
