#!/bin/bash
# Proves, on this machine, file system and mesh, that a training that was killed goes on to the bits of one that was not:
#
#   jobs/verify_resume.sh CONFIG.ini [section.key=value ...]
#
# It trains STEPS steps; trains them again, where kill -9 takes a random rank at a random step; lets the same command go on;
# and compares all tensors of both last checkpoints, and all metrics but times. The three trainings lie in
# RUN.verify-XXXXXX beside run.dir, which is removed unless bits differ; run.dir itself is not touched.
#
#   STEPS            12; 3 or more
#   BAGPIPE_LAUNCH   what starts the ranks: in a Slurm allocation as slurm/site.env says, else "mpirun -n 2"; empty: no
#                    launcher, one rank. With a blank inside it is cut into words
#   BAGPIPE_BIN      the folder of the programs
#
# Status: 0 equal bits, 70 other bits (the first metric or tensor is named), 75 stopped by a signal, 64 a wrong command line,
# else that of the training that failed.
launch=${BAGPIPE_LAUNCH-unset}
slurm_folder=$(dirname "$(readlink -f "$0")")/../slurm
. "$slurm_folder/launch.sh" || exit 66

fail() { # STATUS TEXT
    echo "verify_resume: error[$1]: $2" >&2
    exit "$1"
}

case ${1-} in
-h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit 0 ;;
esac
steps=${STEPS:-12} config=${1-}
[[ -n $config && $config != *=* ]] || fail 64 "no configuration was given: at the command line; see $0 --help"
[[ $steps =~ ^[0-9]{1,6}$ && $((10#$steps)) -ge 3 ]] || fail 64 "STEPS is 3 to 999999, not '$steps': in the environment"
[[ -r $config ]] || fail 66 "there is no configuration that can be read: at $config"
steps=$((10#$steps))
shift
bagpipe=$(find_bagpipe) || fail 66 "there is no program bagpipe: build it, or set BAGPIPE_BIN to its folder"
if [[ $launch == unset ]]; then
    launch="mpirun -n 2"
    [[ -z $SLURM_JOB_ID ]] || launch=$BAGPIPE_LAUNCH
fi
# the ranks that are left after the kill need not wait for it; and srun does not take over --cpus-per-task from Slurm 22.05 on
[[ $launch != srun* ]] || launch+=" --kill-on-bad-exit=1"
[[ -z $SLURM_CPUS_PER_TASK ]] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

run=$(sweep_dir_of "$config")
for word; do
    [[ $word == *=* ]] || fail 64 "'$word' is not section.key=value: at the command line"
    [[ $word != run.dir=* ]] || run=${word#run.dir=}
done
[[ -n $run ]] || fail 64 "run.dir is not set: at $config; give run.dir=FOLDER"
while [[ $run == ?*/ ]]; do run=${run%/}; done
mkdir -p -- "$(dirname -- "$run")" && scratch=$(mktemp -d -- "$run.verify-XXXXXX") || fail 73 "no folder can be made: beside $run"

child="" stopped=""
stop() {
    stopped=yes
    [[ -z $child ]] || kill -TERM "$child" 2>/dev/null
}
trap stop INT TERM USR1 HUP

leave() { # STATUS: without a trace
    rm -rf -- "$scratch"
    exit "$1"
}

# train FOLDER FAULT KEYS...: the status is in $status. A launcher that is asked to stop ends its ranks.
every=$((steps / 3))
train() {
    local folder=$1 fault=$2
    shift 2
    # shellcheck disable=SC2086  # a list of words
    BP_FAULT=$fault BP_FAULT_IN_JOB=yes $launch "$bagpipe" pretrain "$config" "$@" "run.dir=$scratch/$folder" train.steps=$steps \
        train.epochs= train.patience=0 checkpoint.every=$every checkpoint.keep=2 train.log_every=1 train.valid_every=0 \
        corpus.valid= train.trace= >"$scratch/output.txt" 2>&1 &
    child=$!
    [[ -z $stopped ]] || stop
    # a signal ends the wait, not the child; bash's word of a child that was killed goes nowhere
    while { wait $child; } 2>/dev/null; status=$?; kill -0 $child 2>/dev/null; do :; done
    child=""
    if [[ -n $stopped ]]; then
        echo "verify_resume: stopped: nothing was proved" >&2
        leave 75
    fi
}

# failed WHAT: the training's own last words, and its status
failed() {
    local words
    words=$(sed -n 's/^bagpipe: error\[[0-9]*\]: //p' "$scratch/output.txt" | tail -n 1)
    if [[ -z $words ]]; then # of a launcher
        grep '[[:alnum:]]' "$scratch/output.txt" | tail -n 10 >&2
        words="see above"
    fi
    echo "verify_resume: error[$status]: the $1 failed: $words" >&2
    ((status >= 64 && status <= 78)) || status=71
    leave "$status"
}

# The lines of a training without what a clock says.
metrics() { sed -E 's/, *"(seconds|tokens_per_second|mfu)": *[^,}]*//g' "$scratch/$1/metrics.jsonl"; }

differs() { # WHAT
    echo "verify_resume: error[70]: resume is not exact: $1: see $scratch; please report it" >&2
    exit 70
}

echo "training 1 of 3: $steps steps straight"
train straight "$BP_FAULT" "$@"
((status == 0)) || failed "straight run"

# A checkpoint that is written asynchronously is in place once the next one has begun; a dedicated coordinator computes
# no step.
ranks=$(tr -d '\n' <"$scratch/straight/run.json" | sed -n 's/.*"mesh": *{[^}]*"ranks": *\([0-9]*\).*/\1/p')
first=0
tr -d '\n' <"$scratch/straight/run.json" | grep -q '"mesh": *{[^}]*"dedicated_coordinator": *true' && first=1
at=$((2 * every + RANDOM % (steps - 2 * every))) rank=$((first + RANDOM % (${ranks:-1} - first)))
echo "training 2 of 3: $at steps, then kill -9 of rank $rank"
train killed "${BP_FAULT:+$BP_FAULT,}step.end:$at@$rank=kill" "$@"
((status != 0 && (status < 64 || status > 78 || status == 75))) || failed "run to be killed"
compgen -G "$scratch/killed/checkpoints/step-*" >"$scratch/steps.txt" ||
    differs "there is no checkpoint after kill -9 of rank $rank at step $at"

echo "training 3 of 3: the same command goes on"
train killed "$BP_FAULT" "$@"
((status == 0)) || failed "resumed run"

metrics straight >"$scratch/straight.txt"
metrics killed >"$scratch/killed.txt"
if ! diff "$scratch/straight.txt" "$scratch/killed.txt" >"$scratch/diff.txt"; then
    one=$(sed -n '/^< /{s///p;q}' "$scratch/diff.txt") other=$(sed -n '/^> /{s///p;q}' "$scratch/diff.txt")
    differs "without the kill ${one:-no line}, with it ${other:-no line} in metrics.jsonl"
fi
step=$(printf 'checkpoints/step-%012d' "$steps")
words=$("${bagpipe%/*}/bagpipe-data" compare "$scratch/straight/$step" "$scratch/killed/$step" 2>&1) || differs "$words"
digest=$(sed -n 's/.*digest of the model \([0-9a-f]*\).*/\1/p' <<<"$words")
echo "resume verified: $steps steps straight, and $at steps + kill -9 of rank $rank + resume on ${ranks:-1} rank(s)," \
    "have equal bits (digest $digest...)"
leave 0
