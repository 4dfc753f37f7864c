#!/bin/sh
# sh tests/run.sh [CTEST OPTION...]: builds bagpipe and runs its tests.
#
#   sh tests/run.sh                everything but the long tests
#   sh tests/run.sh -L quick       one label: quick (one process), mpi (several ranks), slurm (a cluster of two nodes), long
#   sh tests/run.sh -R corpus      tests whose name matches
#
# As root it first installs the missing ones of .ci/packages, and of .ci/packages-slurm where a cluster can be started
# (../shared/cluster); as an ordinary user they must be there.
set -u
top=$(cd "$(dirname "$0")/.." && pwd) || exit 1
. "$top/jobs/local.sh"

local_packages "$top/.ci/packages" || exit 1
if [ "$(id -u)" = 0 ] && [ -x "$top/../shared/cluster/cluster" ]; then
    local_packages "$top/.ci/packages-slurm" || exit 1
fi
echo "Building into build/release (log: build/release.log)"
local_build || exit 1

# the long tests run when they, or tests by name, are asked for
case " $* " in
*" -L "* | *" -R "* | *" -I "* | *" --label-regex "* | *" --tests-regex "* | *" --rerun-failed "*) ;;
*) set -- -LE long "$@" ;;
esac
cd "$top" || exit 1
log=$top/build/tests.log
{ ctest --preset release --parallel 2 "$@"; echo $? >"$log.status"; } 2>&1 | tee "$log"
status=$(cat "$log.status")

passed=$(grep -c ' Passed ' "$log")
skipped=$(grep -c '\*\*\*Skipped' "$log")
total=$(grep -c '^ *[0-9]*/[0-9]* Test ' "$log")
echo "$passed of $total tests passed, $skipped skipped, $((total - passed - skipped)) failed (log: build/tests.log)"
exit "$status"
