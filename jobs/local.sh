# What scripts share that build and run bagpipe on this machine: packages, the build, MPI's settings.
# Sourced by jobs/quickstart.sh, tests/run.sh and tests/mpirun.sh, which set `top` to the project's folder; else it is here.
: "${top:=$PWD}"

# Settings under which mpirun starts any number of ranks for any user: root too, more ranks than cores,
# ranks that give way while they wait, no binding (two jobs would share the first core), and no single-copy
# messages (containers forbid them).
local_mpi() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
    export OMPI_MCA_btl_vader_single_copy_mechanism=none
}

# local_missing LIST: names of the packages in a file that are not installed.
local_missing() {
    while read -r package; do
        [ "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null)" = "install ok installed" ] || printf '%s ' "$package"
    done <"$1"
}

# local_install PACKAGE...: with a policy, while it lasts, by which no daemon of a package is started.
local_install() {
    policy=/usr/sbin/policy-rc.d
    if [ -e "$policy" ]; then policy=""; else printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"; fi
    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
    status=$?
    [ -z "$policy" ] || rm -f "$policy"
    return $status
}

# local_packages LIST: install what is missing when root; else say what is missing and go on: it may come from
# somewhere else.
local_packages() {
    command -v dpkg-query >/dev/null || return 0
    missing=$(local_missing "$1")
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" != 0 ]; then
        echo "These Debian packages are not installed: $missing" >&2
        echo "If it stops below, have root run: apt-get install --no-install-recommends $missing" >&2
        return 0
    fi
    mkdir -p "$top/build"
    echo "Installing packages: $missing(log: build/packages.log)"
    # shellcheck disable=SC2086  # a list of words
    if ! local_install $missing >"$top/build/packages.log" 2>&1 </dev/null; then
        tail -n 15 "$top/build/packages.log" >&2
        echo "The packages could not be installed: see build/packages.log" >&2
        return 1
    fi
}

# Build into build/release; the arguments are for cmake --build (--target ...).
local_build() {
    mkdir -p "$top/build"
    if ! (cd "$top" && cmake --preset release && cmake --build --preset release --parallel "$(nproc)" "$@") \
        >"$top/build/release.log" 2>&1; then
        grep -n -m 5 -A 4 -e 'error:' -e 'CMake Error' -e 'Could NOT find' "$top/build/release.log" >&2 ||
            tail -n 15 "$top/build/release.log" >&2
        echo "The build failed: see build/release.log" >&2
        return 1
    fi
}
