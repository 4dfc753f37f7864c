#!/bin/sh
# bagpipe beside PyTorch, doing the same work in turns: tests/bench/peer/README.md.
#
#   sh tests/bench/compare.sh OUT [--rows NAME,...] [--pairs N] [--texts FOLDER] ...      (--help tells all)
#
# Builds nothing: build/release/bin must be there, and the packages of .ci/packages-bench.
here=$(cd "$(dirname "$0")" && pwd)
exec "${PYTHON:-/usr/bin/python3}" "$here/peer/compare.py" "$@"
