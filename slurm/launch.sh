# What the batch scripts share: starts the ranks, hands Slurm's warning on to them, and queues the job again when it was
# stopped in time. Sourced by slurm/*.sbatch, which set `slurm_folder`.
. "$slurm_folder/site.env"
. "$slurm_folder/sweep.sh" # run.dir of a configuration

# The path of bagpipe: where site.env says, in this tree's build, where it is installed, or in PATH.
find_bagpipe() {
    local folder
    for folder in "$BAGPIPE_BIN" "$slurm_folder/../build/release/bin" "$slurm_folder/../../../bin"; do
        if [[ -n $folder && -x $folder/bagpipe ]]; then
            echo "$folder/bagpipe"
            return
        fi
    done
    command -v bagpipe
}

# When the job's time ends, in seconds since 1970, where Slurm does not say so itself: bagpipe stops ahead of it
# (slurm.margin) even if no warning comes. By its first task's number Slurm would answer about a whole array.
tell_end_time() {
    local end
    end=$(timeout 20 squeue -h -j "$self" -o %e 2>/dev/null) && end=$(date -d "$end" +%s 2>/dev/null) &&
        export SLURM_JOB_END_TIME=$end
}

# The first lines of each start in the job's log, and what will not go as these scripts are made for. A time limit is
# too short where Slurm's warning comes before anything is done.
introduce() {
    local word folder="" left
    [[ $# -lt 2 || ! -r $2 ]] || folder=$(sweep_dir_of "$2")
    for word; do
        [[ $word != run.dir=* ]] || folder=${word#run.dir=}
    done
    echo "---- bagpipe $1: Slurm job $self, restart ${SLURM_RESTART_COUNT:-0}, on $SLURM_JOB_NODELIST, $(date '+%F %T %z')"
    echo "     run folder ${folder:-(not set)}; programs $bagpipe; scripts $slurm_folder"
    left=$((${SLURM_JOB_END_TIME:-9999999999} - $(date +%s)))
    ((left > slurm_warning + 60)) ||
        echo "warning: the job's time ends in $left s, but Slurm warns it $slurm_warning s before the end, and then it stops:" \
            "submit it with a longer --time" >&2
    [[ $(timeout 20 scontrol show job "$self" 2>/dev/null) != *" Requeue=0 "* ]] ||
        echo "warning: the job was submitted with --no-requeue: it will not go on by itself after a time limit, a preemption or" \
            "a failure; submit it again then" >&2
}

# Which of the job's nodes Slurm has lost.
lost_nodes() {
    timeout 20 sinfo -h -N -n "$SLURM_JOB_NODELIST" -t down,no_respond -o %N 2>/dev/null | sort -u | paste -s -d,
}

# Why the ranks ended, as far as this shell knows more than the job; what it prints goes into run.json. A warning well
# ahead of the time's end is no warning of that end.
find_cause() {
    local nodes
    nodes=$(lost_nodes)
    if [[ -n $nodes && $1 != 0 ]]; then
        echo "node $nodes failed"
    elif [[ -n $warned$ended && $((${SLURM_JOB_END_TIME:-0} - $(date +%s))) -gt $((slurm_warning + 90)) ]]; then
        echo "preemption, or a signal"
    elif [[ -n $warned ]]; then
        echo "time limit"
    fi
}

# TERM comes when the job is cancelled, and when it is preempted by another one: then Slurm still has it running.
is_running() {
    [[ $(timeout 20 squeue -h -j "$self" -o %T 2>/dev/null) == RUNNING ]]
}

# Slurm's PMIx leaves a socket on a node that died, named by job and step, and can never start that step there again; a
# job that is queued again counts its steps from 0. So each restart begins at a number that none before it had.
skip_steps() {
    local k
    for ((k = 0; k < SLURM_RESTART_COUNT && k < 50; k++)); do
        timeout 60 srun --mpi=none --nodes=1 --ntasks=1 true 2>/dev/null
    done
}

# go_on STATUS JOB CONFIG.ini ...: is the same job to be started again? bagpipe knows: not when it is halted, finished,
# or gets nowhere. Where it can't be asked, a job that was stopped in time is.
go_on() {
    local status=$1 answer
    shift
    [[ $status != 0 ]] || return 1
    # what is wrong with the command line the job has said already
    answer=$("$bagpipe" requeue "$@" --status "$status" --most "$BAGPIPE_REQUEUES" "--cause=$(find_cause "$status")" 2>/dev/null)
    case $? in
    0) echo "${answer#yes: }" ;;
    1)
        echo "not queued again: ${answer#no: }"
        return 1
        ;;
    *) [[ $status == 75 && ${SLURM_RESTART_COUNT:-0} -lt $BAGPIPE_REQUEUES ]] ;;
    esac
}

# warn_of_threads: without --cpus-per-task a task has one thread, whatever the node has.
warn_of_threads() {
    local tasks=${SLURM_NTASKS_PER_NODE:-${SLURM_TASKS_PER_NODE%%[^0-9]*}} cores=${SLURM_CPUS_ON_NODE:-0}
    [[ -z ${SLURM_CPUS_PER_TASK:-} && ${tasks:-0} -gt 0 && $cores -ge $((2 * tasks)) ]] || return 0
    echo "warning: $tasks task(s) a node run one thread each on $cores cores: give sbatch --cpus-per-task=$((cores / tasks))" >&2
}

# run_job JOB CONFIG.ini [section.key=value ...]: ends the batch script with the job's status.
#
# Slurm sends USR1 to this shell alone (--signal=B:USR1@SECONDS), ahead of the time limit or of preemption; srun and
# mpirun hand it on to all ranks, which commit a checkpoint and leave with 75. Slurm queues nothing again because of an
# exit status, so that is done here, at most BAGPIPE_REQUEUES times; but not for a job that was cancelled.
run_job() {
    local bagpipe child="" warned="" ended="" status slurm_warning=300 # --signal of the scripts
    # by its first task's number Slurm would queue a whole array again
    local self=${SLURM_ARRAY_TASK_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
    self=${self:-$SLURM_JOB_ID}
    trap 'warned=yes; [[ -z $child ]] || kill -USR1 "$child" 2>/dev/null' USR1
    trap 'ended=yes; [[ -z $child ]] || kill -TERM "$child" 2>/dev/null' TERM
    bagpipe=$(find_bagpipe) || {
        echo "there is no program bagpipe: build it, or set BAGPIPE_BIN in $slurm_folder/site.env" >&2
        exit 66
    }
    # srun does not take over --cpus-per-task of the batch job from Slurm 22.05 on
    export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
    export OMP_NUM_THREADS=$SRUN_CPUS_PER_TASK
    tell_end_time
    warn_of_threads
    introduce "$@"
    skip_steps
    status=75
    if [[ -z $warned$ended ]]; then # else there is no time to begin
        $BAGPIPE_LAUNCH "$bagpipe" "$@" &
        child=$!
        [[ -z $warned ]] || kill -USR1 "$child" 2>/dev/null # it came between these two lines
        # a signal ends the wait, not the child; once that is gone, bash still knows its status
        wait "$child"
        while kill -0 "$child" 2>/dev/null; do
            wait "$child"
        done
        wait "$child"
        status=$?
    fi
    trap - USR1 TERM
    if { [[ -z $ended ]] || is_running; } && go_on "$status" "$@" && scontrol requeue "$self"; then
        echo "queued again"
        sleep 120 # Slurm ends this job meanwhile
    fi
    exit "$status"
}
