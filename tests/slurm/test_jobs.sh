#!/bin/bash
# test_jobs.sh BUILD_FOLDER: slurm/*.sbatch on a Slurm cluster of two nodes, which is started for it and taken down.
#
# Claims: 4 ranks on two nodes (tensor 2 x data 2) and a pipeline across the nodes have the losses of one rank; scoring
# there gives the bytes of one rank, by srun and by mpirun; an ensemble trained side by side on the nodes, and one trained
# by an array of jobs and gathered, are that of one rank; a study of uncertainty there has the figures of one rank; a job
# that is warned commits a checkpoint, queues itself again, and ends with the losses of one that was never stopped.
set -u
build=$1
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

# ---- one rank, without Slurm: what all else is compared with ----
"$BAGPIPE_BIN/bagpipe-data" tokenizer --kind bpe --size 400 --out tokenizer.json "$top"/src/*/*.h >one.log 2>&1 &&
    "$BAGPIPE_BIN/bagpipe-data" corpus --tokenizer tokenizer.json --out text.h5 "$top"/src/*/*.h >>one.log 2>&1 ||
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
"$BAGPIPE_BIN/bagpipe" pretrain job.ini >>one.log 2>&1 || fail "one rank did not train"
"$BAGPIPE_BIN/bagpipe" score job.ini run.dir="$work/scored-one" >>one.log 2>&1 || fail "one rank did not score"

losses() { sed -n 's/.*"loss": *\([0-9.eE+-]*\).*/\1/p' "$1/metrics.jsonl"; }

# same_losses RUN RUN TOLERANCE
same_losses() {
    [[ $(losses "$1" | wc -l) == $(losses "$2" | wc -l) && -n $(losses "$1") ]] || fail "$2 has not the lines of $1"
    paste <(losses "$1") <(losses "$2") | awk -v most="$3" '
        { d = $1 > $2 ? $1 - $2 : $2 - $1; if (!(d <= most)) { print "step " NR ": " $1 " and " $2; bad = 1 } if (d > worst) worst = d }
        END { printf "%d losses, the largest difference is %.1e\n", NR, worst; exit bad }' || fail "the losses of $1 and $2 differ"
}

field() { scontrol show job "$1" 2>/dev/null | sed -n "s/.*\<$2=\([^ ]*\).*/\1/p" | head -n 1; }

# until SECONDS COMMAND...: false when it has not come true by then
until_true() {
    local tenths=$(($1 * 10)) i
    shift
    for ((i = 0; i < tenths; i++)); do
        "$@" && return
        sleep 0.1
    done
    return 1
}
is_over() { [[ $(field "$1" JobState) =~ COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL ]]; }
is_queued_again() { [[ $(field "$1" Restarts) == 1 && $(field "$1" JobState) == PENDING ]]; }

# start NAME OPTIONS...: submit, and set `job`. The limit is beyond the 300 s at which the scripts ask for the warning.
start() {
    local name=$1
    shift
    job=$(sbatch --parsable --job-name="$name" --output="$work/$name.log" --time=20 "$@") || fail "job $name was refused"
}
# finish NAME: wait for the end of `job`
finish() {
    until_true 120 is_over "$job" || fail "job $1 does not end: $(field "$job" JobState)"
    [[ $(field "$job" JobState) == COMPLETED ]] || fail "job $1 ended as $(field "$job" JobState) $(field "$job" ExitCode)"
}
submit() {
    start "$@"
    finish "$1"
}

echo "tensor 2 x data 2 on two nodes"
submit split --nodes=2 --ntasks-per-node=2 "$top/slurm/pretrain.sbatch" job.ini mesh.tensor=2 mesh.data=2 run.dir="$work/split"
same_losses one split 2e-5
echo "pipeline 2 across the nodes"
submit pipeline --nodes=2 --ntasks-per-node=1 "$top/slurm/pretrain.sbatch" job.ini mesh.pipeline=2 run.dir="$work/pipeline"
same_losses one pipeline 2e-5

echo "scoring on 4 ranks of two nodes, by srun and by mpirun"
submit scored-srun --nodes=2 --ntasks-per-node=2 "$top/slurm/score.sbatch" job.ini run.dir="$work/scored-srun"
cmp scored-one/score/summary.json scored-srun/score/summary.json || fail "summary.json is another by srun"
BAGPIPE_LAUNCH="mpirun -q" submit scored-mpirun --nodes=2 --ntasks-per-node=2 "$top/slurm/score.sbatch" job.ini \
    run.dir="$work/scored-mpirun"
cmp scored-one/score/summary.json scored-mpirun/score/summary.json || fail "summary.json is another by mpirun"

echo "an ensemble side by side on the nodes, and as an array of jobs that is gathered"
members=(job.ini ensemble.members=2 ensemble.kind=both mesh.data=1)
"$BAGPIPE_BIN/bagpipe" ensemble "${members[@]}" run.dir="$work/members-one" >>one.log 2>&1 || fail "one rank trained no ensemble"
submit members --nodes=2 --ntasks-per-node=1 "$top/slurm/ensemble.sbatch" "${members[@]}" mesh.members=2 \
    run.dir="$work/members"
start array --array=0-1 --nodes=1 --ntasks-per-node=1 "$top/slurm/ensemble-array.sbatch" "${members[@]}" \
    run.dir="$work/members-array"
submit gathered --dependency="afterany:$job" --nodes=1 --ntasks-per-node=1 "$top/slurm/ensemble.sbatch" "${members[@]}" \
    run.dir="$work/members-array"
grep -q "m01 is trained" gathered.log || fail "the members were not gathered"
[[ $(grep -c '"checkpoint"' members-array/members/m01/events.jsonl) == 1 ]] || fail "the gathering step trained members again"
for file in ensemble.json metrics.jsonl; do
    cmp "members-one/$file" "members/$file" || fail "$file is another side by side"
    cmp "members-one/$file" "members-array/$file" || fail "$file is another by an array"
done

echo "a study of uncertainty on the nodes"
cat >study.ini <<END
[uncertainty]
models = single=$work/one, passes=$work/one:dropout
in_domain = $work/text.h5
passes = 2
resamples = 100
temper_tokens = 500
[corpus]
valid = $work/text.h5
[math]
precision = f32
threads = 1
END
"$BAGPIPE_BIN/bagpipe" uncertainty study.ini run.dir="$work/study-one" >>one.log 2>&1 || fail "one rank made no study"
submit study --nodes=2 --ntasks-per-node=1 "$top/slurm/uncertainty.sbatch" study.ini run.dir="$work/study"
# what a clock or the machine says is each run's own
for run in study-one study; do
    grep -v '"\(train_seconds\|fit_seconds\|score_seconds\|memory_mib\)"' "$run/uncertainty/summary.json" >"$run.figures" ||
        fail "$run has no figures"
done
grep -q '"ece"' study.figures || fail "the summary's figures have no lines of their own"
cmp study-one.figures study.figures || fail "the figures of the study are others on the nodes"

echo "a warned job goes on"
long=(--nodes=2 --ntasks-per-node=1 "$top/slurm/pretrain.sbatch" job.ini mesh.data=2 train.steps=2000 train.log_every=100)
submit whole "${long[@]}" run.dir="$work/whole"
start warned "${long[@]}" run.dir="$work/warned"
until_true 60 test -s warned/metrics.jsonl || fail "the job to warn does not train"
scancel --batch --signal=USR1 "$job"
until_true 60 is_queued_again "$job" || fail "the warned job did not queue itself again: $(field "$job" JobState)"
[[ $(losses warned | wc -l) -lt 20 ]] || fail "the warned job was not stopped"
compgen -G "warned/checkpoints/step-*" >/dev/null || fail "the warned job left no checkpoint"
echo "stopped at $(cd warned/checkpoints && echo step-*), started again"
scontrol update JobId="$job" StartTime=now # else Slurm waits for two minutes
finish warned
[[ $(field "$job" Restarts) == 1 ]] || fail "the warned job was stopped more than once"
same_losses whole warned 0
echo "all as on one rank"
