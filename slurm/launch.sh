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

# run_job JOB CONFIG.ini [section.key=value ...]: ends the batch script with the job's status.
#
# Slurm sends USR1 to this shell alone (--signal=B:USR1@SECONDS), ahead of the time limit or of preemption; srun and
# mpirun hand it on to all ranks, which commit a checkpoint and leave with 75. Slurm queues nothing again because of an
# exit status, so that is done here, at most BAGPIPE_REQUEUES times.
run_job() {
    local bagpipe child="" status
    # by its first task's number Slurm would queue a whole array again
    local self=${SLURM_ARRAY_TASK_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
    trap '[[ -z $child ]] || kill -USR1 "$child" 2>/dev/null' USR1
    trap '[[ -z $child ]] || kill -TERM "$child" 2>/dev/null' TERM
    bagpipe=$(find_bagpipe) || {
        echo "there is no program bagpipe: build it, or set BAGPIPE_BIN in $slurm_folder/site.env" >&2
        exit 66
    }
    # srun does not take over --cpus-per-task of the batch job from Slurm 22.05 on
    export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
    export OMP_NUM_THREADS=$SRUN_CPUS_PER_TASK
    $BAGPIPE_LAUNCH "$bagpipe" "$@" &
    child=$!
    # a signal ends the wait, not the child; once that is gone, bash still knows its status
    wait "$child"
    while kill -0 "$child" 2>/dev/null; do
        wait "$child"
    done
    wait "$child"
    status=$?
    trap - USR1 TERM
    if [[ $status == 75 && ${SLURM_RESTART_COUNT:-0} -lt $BAGPIPE_REQUEUES ]] && scontrol requeue "${self:-$SLURM_JOB_ID}"; then
        echo "stopped in time; queued again ($((${SLURM_RESTART_COUNT:-0} + 1)) of at most $BAGPIPE_REQUEUES times)"
        sleep 120 # Slurm ends this job meanwhile
    fi
    exit "$status"
}
