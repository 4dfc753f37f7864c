# What the tests on a cluster share: a Slurm cluster of two nodes, started here and taken down at the end, a corpus, a
# configuration, and words to submit jobs and to wait for them. Sourced with `build` set; leaves in the folder $work.
top=$(cd "$(dirname "$0")/../.." && pwd)
cluster=$top/../shared/cluster/cluster
. "$top/jobs/local.sh"

skip() {
    echo "skipped: $*"
    exit 77
}
[[ $(id -u) == 0 ]] || skip "the cluster's virtual nodes need root"
[[ -x $cluster ]] || skip "there is no $cluster to start a cluster with"
for tool in slurmctld slurmd sbatch srun munged ip nsenter unshare; do
    command -v $tool >/dev/null || skip "there is no $tool"
done
! ip link show sbr0 >/dev/null 2>&1 || skip "a cluster is up already (bridge sbr0)"

work=$(mktemp -d /tmp/bagpipe-slurm.XXXXXX)
export CLUSTER_DIR=$work/cluster SLURM_CONF=$work/cluster/slurm.conf
munge_was_up=no
munge -n >/dev/null 2>&1 && munge_was_up=yes
leave() {
    local status=$?
    [[ $status == 0 ]] || "$cluster" logs 2>/dev/null | tail -n 60
    "$cluster" down
    [[ $munge_was_up == yes ]] || kill "$(cat /run/munge/munged.pid)" 2>/dev/null
    rm -rf "$work"
    exit $status
}
trap leave EXIT
trap 'exit 1' INT TERM

fail() {
    echo "FAILED: $*"
    tail -n 25 "$work"/*.log
    exit 1
}

"$cluster" up 2 >"$work/up.log" 2>&1 || { cat "$work/up.log"; skip "the cluster did not start"; }
[[ $(sinfo -h -t idle -o %D | head -n 1) == 2 ]] || { cat "$work/up.log"; skip "the cluster's nodes did not come up"; }
cd "$work" || exit 1
export BAGPIPE_BIN=$build/bin
unset OMP_NUM_THREADS
local_mpi

"$BAGPIPE_BIN/bagpipe-data" tokenizer --kind bpe --size 400 --out tokenizer.json "$top"/src/*/*.h >corpus.log 2>&1 &&
    "$BAGPIPE_BIN/bagpipe-data" corpus --tokenizer tokenizer.json --out text.h5 "$top"/src/*/*.h >>corpus.log 2>&1 ||
    fail "no corpus was made"
cat >job.ini <<END
[run]
dir = $work/one
[corpus]
train = $work/text.h5
[model]
layers = 3
width = 32
heads = 4
context = 32
dropout = 0.1
[train]
steps = 20
batch = 8
log_every = 1
[checkpoint]
every = 1000
[math]
precision = f32
threads = 1
[score]
model = $work/one
corpus = $work/text.h5
END
losses() { sed -n 's/.*"loss": *\([0-9.eE+-]*\).*/\1/p' "$1/metrics.jsonl"; }

# same_losses RUN RUN TOLERANCE
same_losses() {
    [[ $(losses "$1" | wc -l) == $(losses "$2" | wc -l) && -n $(losses "$1") ]] || fail "$2 has not the lines of $1"
    paste <(losses "$1") <(losses "$2") | awk -v most="$3" '
        { d = $1 > $2 ? $1 - $2 : $2 - $1; if (!(d <= most)) { print "step " NR ": " $1 " and " $2; bad = 1 } if (d > worst) worst = d }
        END { printf "%d losses, the largest difference is %.1e\n", NR, worst; exit bad }' || fail "the losses of $1 and $2 differ"
}

field() { scontrol show job "$1" 2>/dev/null | sed -n "s/.*\<$2=\([^ ]*\).*/\1/p" | head -n 1; }

# until_true COMMAND...: false when it has not come true shortly before CTest ends the test, or in $WITHIN seconds
until_true() {
    local end=$((${BAGPIPE_TEST_LIMIT:-1200} * 9 / 10))
    [[ -z ${WITHIN:-} ]] || end=$((SECONDS + WITHIN))
    until "$@"; do
        ((SECONDS < end)) || return 1
        sleep 0.1
    done
}
# A busy machine may keep a node from answering for 20 s: then Slurm takes it for gone until somebody says that it is there.
take_nodes_back() {
    local node
    for node in $(sinfo -h -N -t down -o %N 2>/dev/null); do
        scontrol update NodeName="$node" State=RESUME 2>/dev/null
    done
}
is_over() {
    take_nodes_back
    [[ $(field "$1" JobState) =~ COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL ]]
}
is_queued_again() { [[ $(field "$1" Restarts) == 1 && $(field "$1" JobState) == PENDING ]]; }

# start NAME OPTIONS...: submit, and set `job`. The limit is beyond the 300 s at which the scripts ask for the warning.
start() {
    local name=$1
    shift
    started=("$@")
    job=$(sbatch --parsable --job-name="$name" --output="$work/$name.log" --time=20 "$@") || fail "job $name was refused"
}
# Slurm 22.05 may remove its own copy of a script before it runs it: nothing of ours has run then
is_lost() { grep -q 'error: execve(): .*/slurm_script: No such file or directory' "$work/$1.log" 2>/dev/null; }
# finish NAME: wait for the end of `job`
finish() {
    until_true is_over "$job" || fail "job $1 does not end: $(field "$job" JobState)"
    if [[ $(field "$job" JobState) == FAILED ]] && is_lost "$1"; then
        echo "Slurm lost its copy of the script of job $1 before it ran: submitted again"
        rm "$work/$1.log"
        start "$1" "${started[@]}"
        until_true is_over "$job" || fail "job $1 does not end: $(field "$job" JobState)"
    fi
    [[ $(field "$job" JobState) == COMPLETED ]] || fail "job $1 ended as $(field "$job" JobState) $(field "$job" ExitCode)"
}
submit() {
    start "$@"
    finish "$1"
}
