#!/bin/sh
# sh tests/run.sh [CTEST OPTION...]: builds bagpipe and runs its tests, in about 25 minutes on two quiet cores.
#
#   sh tests/run.sh                everything but the long tests
#   sh tests/run.sh -L quick       one label: quick (one process), mpi (several ranks), data (needs ../shared), slurm (a
#                                  cluster of two nodes), long (hours)
#   sh tests/run.sh -R corpus      tests whose name matches
#
# The last line is "N passed, N failed, N skipped"; what is skipped is named with the reason. As root it first installs the
# missing ones of .ci/packages and .ci/packages-tests, and of .ci/packages-slurm where a cluster can be started
# (../shared/cluster); as an ordinary user they must be there.
set -u
case ${1:-} in -h | --help)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
top=$(cd "$(dirname "$0")/.." && pwd) || exit 1
. "$top/jobs/local.sh"

slurm=""
if [ "$(id -u)" = 0 ] && [ -x "$top/../shared/cluster/cluster" ]; then
    slurm=$top/.ci/packages-slurm
fi
# the long tests run when they, or tests by name, are asked for
case " $* " in
*" -L "* | *" -R "* | *" -I "* | *" --label-regex "* | *" --tests-regex "* | *" --rerun-failed "*) ;;
*)
    echo "All of it takes about 25 minutes on two quiet cores (2 to install packages, 3 to build, 20 to test)."
    set -- -LE long "$@"
    ;;
esac
local_packages "$top/.ci/packages" "$top/.ci/packages-tests" ${slurm:+"$slurm"} || exit 1
target=""
[ "$*" != "-L data" ] || target=data_tests
echo "Building into build/release (log: build/release.log)"
local_build -DBAGPIPE_TESTS=ON "-DBAGPIPE_WERROR=${BAGPIPE_WERROR:-OFF}" $target || exit 1

cd "$top" || exit 1
log=$top/build/tests.log
details=$top/build/release/Testing/Temporary/LastTest.log
# a test that ran out of time on a loaded machine is run once more; one that failed is not
{ ctest --preset release --parallel 3 --repeat after-timeout:2 "$@"; echo $? >"$log.status"; } 2>&1 | tee "$log"
status=$(cat "$log.status")

# each test that was skipped, with the first reason it gave
awk 'FNR == NR { if (/\*\*\*Skipped/) { sub(/.*: /, ""); skipped[$1] = 1 } next }
    / Test: / { name = $3 }
    /^skipped: / && (name in skipped) { print "skipped " name substr($0, 8); delete skipped[name] }' "$log" "$details"
passed=$(grep -c ' Passed ' "$log")
skipped=$(grep -c '\*\*\*Skipped' "$log")
total=$(grep -c '^ *[0-9]*/[0-9]* Test ' "$log")
failed=$((total - passed - skipped))
[ "$status" = 0 ] || [ $failed -gt 0 ] || failed=1 # ctest itself
if [ "$total" -gt 20 ]; then
    echo "Slowest, in seconds:"
    awk '/ Test / && / sec$/ { print $(NF - 1), $4 }' "$log" | sort -rn | head -15 | awk '{ printf "%8.1f  %s\n", $1, $2 }'
fi
echo "The log is build/tests.log."
echo "$passed passed, $failed failed, $skipped skipped"
exit "$status"
