# What scripts share that build and run bagpipe on this machine: packages, the build, MPI's settings.
# Sourced by jobs/quickstart.sh, tests/run.sh and tests/mpirun.sh, which set `top` to the project's folder; else it is here.
: "${top:=$PWD}"

# Settings under which mpirun starts any number of ranks for any user: root too, more ranks than cores,
# ranks that give way while they wait, no binding (two jobs would share the first core), no single-copy
# messages (containers forbid them), and no look for InfiniBand or Omni-Path, which takes a fifth of a second of each start.
local_mpi() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
    export OMPI_MCA_btl_vader_single_copy_mechanism=none
    export OMPI_MCA_pml="${OMPI_MCA_pml:-ob1}" OMPI_MCA_btl="${OMPI_MCA_btl:-^openib,ofi}"
}

# ---- progress ----

# local_WHAT_done LOG: how far the installation (each package is fetched, unpacked and set up) or the build with this log is.
local_packages_done() {
    awk '/ newly installed/ { all = $3 } /^Get:/ && all { fetched++ } /^Unpacking / { unpacked++ } /^Setting up / { ready++ }
        END {
            if (!all) { print "fetching the lists of packages"; exit }
            if (fetched > all) fetched = all
            printf "%d %% (%d packages: %d fetched, %d unpacked, %d ready)", 100 * (fetched + unpacked + ready) / (3 * all),
                all, fetched, unpacked, ready
        }' "$1"
}
local_build_done() {
    awk '/^\[ *[0-9]+%\]/ { now = $0; sub(/^\[ */, "", now); sub(/%.*/, "", now); if (done == "" || now + 0 > done + 0) done = now }
        END { if (done == "") print "configuring"; else printf "%d %%", done }' "$1"
}

# local_report LOG WHAT: says how far LOG is (by local_WHAT_done) until it is killed or its shell is gone: on a terminal
# in one line each second, else in a line each 15 seconds. Output of its own goes nowhere, so that no pipe waits for it.
local_report() {
    passed=0
    while sleep 1 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
        passed=$((passed + 1))
        if [ -t 1 ]; then
            printf '\r  %d s: %s\033[K' $passed "$("local_$2_done" "$1")"
        elif [ $((passed % 15)) = 0 ]; then
            printf '  %d s: %s\n' $passed "$("local_$2_done" "$1")"
        fi
    done
}

# local_watched WHAT LOG COMMAND...: runs it with its output in LOG, and prints how far it is.
local_watched() {
    what=$1 log=$2
    shift 2
    : >"$log"
    local_report "$log" "$what" &
    teller=$!
    "$@" >"$log" 2>&1 </dev/null
    status=$?
    kill $teller 2>/dev/null
    wait $teller 2>/dev/null
    [ ! -t 1 ] || printf '\r\033[K'
    return $status
}

# ---- packages ----

# local_missing LIST...: names of the packages in files that are not installed; none where that is not Debian's to know.
local_missing() {
    command -v dpkg-query >/dev/null || return 0
    cat "$@" | while read -r package; do
        [ "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null)" = "install ok installed" ] || printf '%s ' "$package"
    done
}

# local_install PACKAGE...: with a policy, while it lasts, by which no daemon of a package is started.
local_install() {
    policy=/usr/sbin/policy-rc.d
    if [ -e "$policy" ]; then policy=""; else printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"; fi
    [ -z "$policy" ] || trap 'rm -f "$policy"; exit 130' HUP INT TERM
    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
    status=$?
    [ -z "$policy" ] || { rm -f "$policy" && trap - HUP INT TERM; }
    return $status
}

# local_packages LIST...: install what is missing when root; else say what is missing and go on: it may come from
# somewhere else.
local_packages() {
    missing=$(local_missing "$@")
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" != 0 ]; then
        echo "These Debian packages are not installed: $missing" >&2
        echo "If it stops below, have root run: apt-get install --no-install-recommends $missing" >&2
        return 0
    fi
    mkdir -p "$top/build"
    echo "Installing packages: $missing(log: build/packages.log)"
    # shellcheck disable=SC2086  # a list of words
    if ! local_watched packages "$top/build/packages.log" local_install $missing; then
        tail -n 15 "$top/build/packages.log" >&2
        echo "The packages could not be installed: see build/packages.log" >&2
        return 1
    fi
}

# ---- the build ----

# local_cmake OPTIONS TARGETS: configure and build; both are lists of words.
local_cmake() {
    # shellcheck disable=SC2086
    (cd "$top" && cmake --preset release $1 && cmake --build --preset release --parallel "$(nproc)" ${2:+--target $2})
}

# local_build [OPTION...] [TARGET...]: build into build/release; options (-D...) are for configuring.
local_build() {
    options="" targets=""
    for word; do
        case $word in -*) options="$options $word" ;; *) targets="$targets $word" ;; esac
    done
    mkdir -p "$top/build"
    if ! local_watched build "$top/build/release.log" local_cmake "$options" "$targets"; then
        grep -n -m 5 -A 4 -e 'error:' -e 'CMake Error' -e 'Could NOT find' "$top/build/release.log" >&2 ||
            tail -n 15 "$top/build/release.log" >&2
        echo "The build failed: see build/release.log" >&2
        return 1
    fi
}
