#!/bin/bash
# [CHAOS="WAY ..."] test_chaos.sh BUILD_FOLDER [DISTURBANCES [SEED]]: one training on a Slurm cluster of two nodes is disturbed 20 times, in
# ways drawn from a seed, and resumed each time until it is done. Its weights, moments and losses must be those of the
# same training undisturbed. It prints what was done to it, how many steps each disturbance cost, and how long all took.
#
# Ways: `warn` (USR1, as Slurm sends it ahead of a time limit), `limit` (the limit is cut short under the running job, and
# Slurm itself warns), `clock` (no warning comes: the job's own clock), `preempt` (a job of a higher partition), `step`
# (the step is killed), `rank` (kill -9 of a rank), `node` (a node dies and comes back), `requeue` (scontrol requeue),
# `halt` (a halt file), `cancel` (scancel), `stop` (a rank is stopped for good, and the watchdog must end the job), `cut`
# (a node's network link is cut, and comes back once the job has ended).
set -u
build=$1
wanted=${2:-20}
seed=${3:-1}
. "$(dirname "$0")/cluster.sh"

checkpoint_every=100
steps=$((170 * wanted + 1500))
read -r -a kinds <<<"${CHAOS:-warn limit clock preempt step rank node requeue halt cancel stop cut}"
declare -A done_to lost_by
# a rank that died is waited for in vain: 5 s instead of the site's 60
export BAGPIPE_LAUNCH="srun --mpi=pmix --kill-on-bad-exit=0 --wait=5" BAGPIPE_REQUEUES=1000
# a step takes so long at least, whatever the machine: else it has trained all before it was disturbed often enough
slow=BP_FAULT=step.begin:1+=delay0.04,BP_FAULT_IN_JOB=yes
chaos=(job.ini mesh.data=2 "train.steps=$steps" "checkpoint.every=$checkpoint_every" watchdog.seconds=15)
script=(--nodes=2 --ntasks-per-node=1 "$top/slurm/pretrain.sbatch")

# Draw a number below $1; a function of the seed alone.
draw() {
    state=$(((state * 1103515245 + 12345) % 2147483648))
    drawn=$((state / 65536 % $1))
}

# The step of the last line of a journal that has $2 in it, 0 where there is none.
step_of_last() {
    local step
    step=$(grep -h "$2" "chaos/$1" 2>/dev/null | sed -n 's/.*"step": *\([0-9]*\)[,}].*/\1/p' | tail -n 1)
    echo "${step:-0}"
}
last_step() { step_of_last metrics.jsonl '"loss"'; }
committed() { step_of_last events.jsonl '"checkpoint"'; }
resumed() { step_of_last events.jsonl '"resumed"'; }
# lines of the events that come when the metrics are cut back and the first step begins
starts() { grep -c '"event": "\(started\|resumed\)"' chaos/events.jsonl 2>/dev/null || true; }
trains_since() { [[ $(starts) -gt $1 && $(last_step) -gt $(resumed) ]]; }
is_pending() { [[ $(field "$job" JobState) == PENDING ]]; }
is_away() { is_over "$job" || is_pending; }
# Both nodes are free, and nothing of a job is left on them that Slurm thinks dead (a node that was cut off from it). A
# node that could not start a job is drained: its administrator would look at it, and take it back.
both_idle() {
    local node
    for node in $(sinfo -h -N -p batch -t drained -o %N); do
        scontrol update NodeName="$node" State=RESUME
    done
    [[ -z $(steps_on n1)$(steps_on n2) && $(sinfo -h -p batch -t idle -o %D | head -n 1) == 2 ]]
}

# The processes of a name on a node.
named_on() {
    local pid
    for pid in $(ip netns pids "$2"); do
        [[ $(cat "/proc/$pid/comm" 2>/dev/null) == "$1" ]] && echo "$pid"
    done
}
ranks_of() { named_on bagpipe "$1"; }
steps_on() { named_on slurmstepd "$1"; }

start_chaos() { # [SBATCH'S OPTIONS]
    job=$(sbatch --parsable --job-name=chaos --output="$work/chaos.log" --time=60 --export=ALL,"$slow" "$@" "${script[@]}" "${chaos[@]}" \
        run.dir="$work/chaos") || fail "the job was refused"
}

# Do one thing to the running job, and wait until it has left its nodes.
disturb() {
    local kind=$1 node=n$((1 + $2 % 2)) minutes
    case $kind in
    warn) scancel --batch --signal=USR1 "$job" ;;
    limit)
        minutes=$(scontrol show job "$job" | sed -n 's/.*RunTime=00:\([0-9]*\):.*/\1/p')
        scontrol update JobId="$job" TimeLimit=$((10#$minutes + 2))
        ;;
    clock) : ;; # it was started with a limit of a minute, and no warning
    preempt) sbatch --partition=urgent --nodes=2 --ntasks-per-node=2 --output=/dev/null --wrap "sleep 1" >/dev/null ;;
    step) scancel --signal=KILL "$job.$(squeue -h -s -j "$job" -o %i | sed -n 's/^[0-9]*\.\([0-9][0-9]*\)$/\1/p' | head -n 1)" ;;
    rank) kill -9 $(ranks_of "$node" | head -n 1) ;;
    stop) kill -STOP $(ranks_of "$node" | head -n 1) ;;
    node) "$cluster" kill "$node" 2>/dev/null ;;
    cut) "$cluster" cut "$node" 2>/dev/null ;;
    requeue) scontrol requeue "$job" ;;
    halt) touch chaos/halt ;;
    cancel) scancel "$job" ;;
    esac
    until_true is_away || fail "nothing came of '$kind' ($node): the job is $(field "$job" JobState)"
    case $kind in
    node) "$cluster" revive "$node" 2>/dev/null ;;
    cut) "$cluster" heal "$node" 2>/dev/null ;;
    esac
}

begin_now() {
    scontrol release "$job" 2>/dev/null # a job that could not be launched is held
    scontrol update JobId="$job" TimeLimit=60 StartTime=now # else Slurm waits for two minutes
}

# Let the job go on as a user would; $1 is what was done, $2 what will be.
go_on() {
    until_true both_idle || fail "after '$1' the nodes do not come back: $(sinfo -h -o '%N %T')"
    case $1 in
    halt)
        [[ $(field "$job" JobState) == FAILED && $(field "$job" ExitCode) == 75:0 ]] || fail "a halted job is $(field "$job" JobState)"
        grep -q "not queued again: stopped: halted by" chaos.log || fail "the wrapper does not say that the run is halted"
        rm chaos/halt
        ;;
    clock)
        grep -q "the job's time ends in" chaos.log || fail "the job's own clock did not stop it"
        is_pending || fail "after '$1' the job was not queued again: $(field "$job" JobState)"
        ;;
    cancel) [[ $(field "$job" JobState) == CANCELLED ]] || fail "a cancelled job is $(field "$job" JobState)" ;;
    *) is_pending || fail "after '$1' the job was not queued again: $(field "$job" JobState) $(field "$job" ExitCode)" ;;
    esac
    sleep 2 # Slurm refuses a job that begins in the second in which it ended
    if [[ $2 == clock ]]; then
        scancel "$job"
        start_chaos --time=1 --signal=B:CONT@1
    elif [[ $1 == halt || $1 == cancel || $1 == clock ]]; then
        scancel "$job"
        start_chaos
    else
        begin_now
    fi
}

echo "the training undisturbed: $steps steps on two nodes"
begun=$(date +%s)
start whole "${script[@]}" "${chaos[@]}" run.dir="$work/whole"
until_true is_over "$job" || fail "the undisturbed job does not end"
[[ $(field "$job" JobState) == COMPLETED ]] || fail "the undisturbed job ended as $(field "$job" JobState)"
undisturbed=$(($(date +%s) - begun))
echo "$undisturbed s; and now disturbed $wanted times, seed $seed"

# every way once, the rest drawn, and all in an order that is drawn
state=$seed
plan=()
for ((k = 0; k < wanted; k++)); do
    draw ${#kinds[@]}
    [[ $k -ge ${#kinds[@]} ]] && plan+=("${kinds[drawn]}") || plan+=("${kinds[k]}")
done
for ((k = wanted - 1; k > 0; k--)); do
    draw $((k + 1))
    swap=${plan[k]} plan[k]=${plan[drawn]} plan[drawn]=$swap
done

begun=$(date +%s)
before=0 total_lost=0
case ${plan[0]} in
clock) start_chaos --time=1 --signal=B:CONT@1 ;;
*) start_chaos ;;
esac
for ((k = 0; k < wanted; k++)); do
    kind=${plan[k]} next=${plan[k + 1]:-none} tries=0
    # a node that has just come back may refuse its first step: the wrapper queues the job again
    until WITHIN=60 until_true trains_since "$before"; do
        ((++tries < 4)) && is_pending || fail "the job does not train before '$kind': $(field "$job" JobState)"
        until_true both_idle
        begin_now
    done
    [[ $k == 0 ]] || {
        lost=$((reached > $(resumed) ? reached - $(resumed) : 0))
        ((total_lost += lost))
        lost_by[$was]=$((${lost_by[$was]:-0} + lost))
        echo "  resumed from step $(resumed), $lost lost"
        [[ $(resumed) -ge $kept ]] || fail "a checkpoint that was announced, step $kept, is lost"
        [[ ! $was =~ warn|limit|clock|halt || $lost == 0 ]] || fail "the job had time for a checkpoint after '$was'"
    }
    draw 30
    sleep "$(printf '%d.%d' $((drawn / 10)) $((drawn % 10)))"
    before=$(starts)
    draw 2
    reached=$(last_step)
    echo "$((k + 1)). at step $reached: $kind"
    disturb "$kind" "$drawn"
    reached=$(last_step) kept=$(committed) # it may have gone on for a while
    done_to[$kind]=$((${done_to[$kind]:-0} + 1))
    was=$kind
    go_on "$kind" "$next"
done
until_true is_over "$job" || fail "the disturbed job does not end"
[[ $(field "$job" JobState) == COMPLETED ]] || fail "the disturbed job ended as $(field "$job" JobState) $(field "$job" ExitCode)"
took=$(($(date +%s) - begun))

# ---- the same in the end ----
timeless() { sed 's/, "seconds": .*"mfu": [^,}]*//' "$1/metrics.jsonl"; }
tensors() { sed -n 's/.*"\(digest\|name\)": *"\([^"]*\)".*/\2/p' "$1"/checkpoints/step-*"$steps"/manifest.json; }
cmp <(timeless whole) <(timeless chaos) || fail "the losses are others than those of the undisturbed run"
[[ $(tensors whole | wc -l) -ge 20 ]] || fail "the manifest's digests were not found"
cmp <(tensors whole) <(tensors chaos) || fail "the weights or moments are others than those of the undisturbed run"
for kind in "${kinds[@]}"; do
    [[ -z ${done_to[$kind]:-} ]] || echo "$kind: ${done_to[$kind]} times, ${lost_by[$kind]:-0} steps lost"
done
echo "$wanted disturbances in $took s ($undisturbed s undisturbed), $(starts) starts, $total_lost of $steps steps done twice;"
echo "losses, weights and moments are those of the undisturbed run"
