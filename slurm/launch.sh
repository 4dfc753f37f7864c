# What the batch scripts share: starts the ranks, hands Slurm's warning on to them, and queues the job again when it was
# stopped in time. Sourced by slurm/*.sbatch, which set `slurm_folder`.
. "$slurm_folder/site.env"

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
# (slurm.margin) even if no warning comes. By its first task's number Slurm would tell of a whole array.
tell_end_time() {
    local end
    end=$(timeout 20 squeue -h -j "$self" -o %e 2>/dev/null) && end=$(date -d "$end" +%s 2>/dev/null) &&
        export SLURM_JOB_END_TIME=$end
}

# TERM comes when the job is cancelled, and when it is to make room for another one: then Slurm still has it running.
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
    answer=$("$bagpipe" requeue "$@" --status "$status" --most "$BAGPIPE_REQUEUES")
    case $? in
    0) echo "${answer#yes: }" ;;
    1)
        [[ $status == 0 ]] || echo "not queued again: ${answer#no: }"
        return 1
        ;;
    *) [[ $status == 75 && ${SLURM_RESTART_COUNT:-0} -lt $BAGPIPE_REQUEUES ]] ;;
    esac
}

# run_job JOB CONFIG.ini [section.key=value ...]: ends the batch script with the job's status.
#
# Slurm sends USR1 to this shell alone (--signal=B:USR1@SECONDS), ahead of the time limit or of preemption; srun and
# mpirun hand it on to all ranks, which commit a checkpoint and leave with 75. Slurm queues nothing again because of an
# exit status, so that is done here, at most BAGPIPE_REQUEUES times; but not for a job that was cancelled.
run_job() {
    local bagpipe child="" warned="" ended="" status
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
