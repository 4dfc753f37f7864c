#!/bin/bash
# test_jobs.sh BUILD_FOLDER: slurm/*.sbatch on a Slurm cluster of two nodes, which is started for it and taken down.
#
# Claims: 4 ranks on two nodes (tensor 2 x data 2) and a pipeline across the nodes have the losses of one rank; scoring
# there gives the bytes of one rank, by srun and by mpirun; an ensemble trained side by side on the nodes, and one trained
# by an array of jobs and gathered, are that of one rank; a sweep trains each point of its grid, and a wrong array is refused with the right one; a study of uncertainty there has the figures of one rank; a bench
# there measures messages across the nodes; tasks that do not see each other are refused; a job that is warned commits a checkpoint, queues itself again, and ends with the
# losses of one that was never stopped; so does one of which a rank is killed; one that is halted or cancelled is not queued
# again, and goes on when it is submitted again.
set -u
build=$1
. "$(dirname "$0")/cluster.sh"

# ---- one rank, without Slurm: what all else is compared with ----
"$BAGPIPE_BIN/bagpipe" pretrain job.ini >one.log 2>&1 || fail "one rank did not train"
"$BAGPIPE_BIN/bagpipe" score job.ini run.dir="$work/scored-one" >>one.log 2>&1 || fail "one rank did not score"

echo "tensor 2 x data 2 on two nodes"
submit split --nodes=2 --ntasks-per-node=2 "$top/slurm/pretrain.sbatch" job.ini mesh.tensor=2 mesh.data=2 run.dir="$work/split"
same_losses one split 2e-5
echo "pipeline 2 across the nodes"
submit pipeline --nodes=2 --ntasks-per-node=1 "$top/slurm/pretrain.sbatch" job.ini mesh.pipeline=2 run.dir="$work/pipeline"
same_losses one pipeline 2e-5

echo "scoring on 4 ranks of two nodes, by srun and by mpirun"
submit scored-srun --nodes=2 --ntasks-per-node=2 "$top/slurm/score.sbatch" job.ini run.dir="$work/scored-srun"
cmp scored-one/score/summary.json scored-srun/score/summary.json || fail "summary.json is another by srun"
BAGPIPE_LAUNCH="mpirun" submit scored-mpirun --nodes=2 --ntasks-per-node=2 "$top/slurm/score.sbatch" job.ini \
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

echo "a sweep as an array of jobs"
grid=(job.ini run.dir="$work/sweep" optimizer.lr=1e-3,3e-3 run.seed=1,2)
is_gone() { [[ -z $(squeue -h -j "$1" 2>/dev/null) ]]; }
start sweep --array=0-3 --nodes=1 --ntasks-per-node=1 "$top/slurm/sweep.sbatch" "${grid[@]}"
until_true is_gone "$job" || fail "the sweep does not end"
"$BAGPIPE_BIN/bagpipe" pretrain job.ini optimizer.lr=3e-3 run.seed=2 run.dir="$work/point" >>one.log 2>&1 || fail "one rank did not train"
same_losses point "sweep/lr=3e-3_seed=2" 0
[[ $(head -n 1 sweep/table.csv) == *,run.seed,optimizer.lr && $(grep -c ,finished, sweep/table.csv) == 4 ]] ||
    { cat sweep/table.csv; fail "the table of the sweep is another"; }
start wrong --array=0-4 --nodes=1 --ntasks-per-node=1 "$top/slurm/sweep.sbatch" "${grid[@]}"
until_true is_gone "$job" || fail "the array that does not fit does not end"
[[ $(grep -c -- "--array=0-3" wrong.log) == 5 ]] || fail "the message about a wrong array lacks the right one"

echo "a fine-tuning over a grid as an array of jobs"
{
    printf 'text\tkind\n'
    for ((k = 0; k < 40; k++)); do printf 'int of %d;\tone\nstruct %d *\tother\n' "$k" "$k"; done
} >task.tsv
"$BAGPIPE_BIN/bagpipe-data" corpus --tokenizer tokenizer.json --format tsv --fields text --label kind --out task.h5 task.tsv >>corpus.log 2>&1 || fail "no corpus of a task"
start tuned --array=0-3 --nodes=1 --ntasks-per-node=1 "$top/slurm/finetune.sbatch" job.ini run.dir="$work/tuned" model.init="$work/one" \
    corpus.train="$work/task.h5" corpus.valid="$work/task.h5" task.kind=classes task.label=kind train.steps=4 train.batch=4 optimizer.lr=1e-3,3e-3 run.seed=1,2
until_true is_gone "$job" || fail "the array of fine-tunings does not end"
[[ $(head -n 1 tuned/table.csv) == *,run.seed,optimizer.lr && $(grep -c ,finished, tuned/table.csv) == 4 ]] ||
    { cat tuned/table.csv; fail "the table of the fine-tunings is another"; }

echo "a study of uncertainty on the nodes"
cat >study.ini <<END
[uncertainty]
models = single=$work/one, passes=$work/one:dropout
in_domain = $work/text.h5
passes = 2
resamples = 100
temper_tokens = 500
[corpus]
valid = $work/task.h5
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

echo "a bench on the nodes"
submit bench --nodes=2 --ntasks-per-node=1 "$top/slurm/bench.sbatch" run.dir="$work/bench" bench.seconds=0.02 bench.models=small \
    bench.corpus=1MiB bench.message=16KiB math.threads=1
python3 - "$work/bench/bench.json" <<'END' || fail "the bench did not measure both nodes"
import json, sys
found = json.load(open(sys.argv[1], encoding="utf-8"))
assert found["machine"]["hosts"] == ["n1", "n2"], found["machine"]
assert found["exchange"]["send_host"] is None, "there is one rank a node"
assert all(row["bytes_per_second"] > 0 for row in found["exchange"]["send_across"])
END

echo "tasks that do not see each other are refused"
BAGPIPE_LAUNCH="srun --mpi=none" start blind --nodes=2 --ntasks-per-node=1 "$top/slurm/pretrain.sbatch" job.ini run.dir="$work/blind"
until_true is_over "$job" || fail "the blind job does not end"
[[ $(field "$job" ExitCode) == 78:0 && ! -e blind ]] || fail "the blind job ended with $(field "$job" ExitCode)"
[[ $(grep -c "srun started 2 tasks that do not see each other" blind.log) == 1 ]] || fail "the blind job does not say why"

echo "the message about an Open MPI without PMI-2 says what to use"
BAGPIPE_LAUNCH="srun --mpi=pmi2" start pmi2 --nodes=2 --ntasks-per-node=1 "$top/slurm/pretrain.sbatch" job.ini run.dir="$work/pmi2"
until_true is_over "$job" || fail "the job by PMI-2 does not end"
[[ $(field "$job" JobState) == COMPLETED || $(grep -c "use srun --mpi=pmix, or mpirun" pmi2.log) == 1 ]] || fail "the job by PMI-2 does not say why"

echo "scripts in a folder with a blank, as an array, and copied"
mkdir "my tree" private
cp -r "$top/slurm" "my tree/slurm"
cp "$top/slurm/pretrain.sbatch" copy.sbatch
start blank --array=0-2 --nodes=1 --ntasks-per-node=1 "my tree/slurm/ensemble-array.sbatch" job.ini ensemble.members=3 \
    ensemble.kind=seed run.dir="$work/blank"
until_true is_gone "$job" || fail "the array does not end"
[[ $(ls -d blank/members/*/checkpoints/step-* | wc -l) == 3 ]] || fail "the tasks of the array did not all train"
grep -q "scripts $work/my tree/slurm" blank.log || fail "the log does not say where the scripts are"
BAGPIPE_SLURM="$work/my tree/slurm" submit copied --nodes=1 --ntasks-per-node=1 copy.sbatch job.ini run.dir="$work/copied"

echo "a run folder of each node's own is found at the start"
printf '#!/bin/bash\nexec unshare -m sh -c '"'"'mount -t tmpfs none %s && exec "$@"'"'"' - "$@"\n' "$work/private" >private.sh
chmod +x private.sh
for name in pretrain score uncertainty ensemble; do
    ini=job.ini
    [[ $name != uncertainty ]] || ini=study.ini
    BAGPIPE_LAUNCH="srun --mpi=pmix --kill-on-bad-exit=0 --wait=60 $work/private.sh" start "private-$name" --nodes=2 --ntasks-per-node=1 \
        "$top/slurm/$name.sbatch" "$ini" run.dir="$work/private/r" $([[ $name != ensemble ]] || echo ensemble.members=2)
    until_true is_over "$job" || fail "the job without a shared folder does not end"
    [[ $(field "$job" ExitCode) == 74:0 && $(grep -c "do not share the run folder: n2 does not see" "private-$name.log") == 1 ]] ||
        fail "$name on a run folder that is not shared ended with $(field "$job" ExitCode)"
done

echo "a warned job goes on"
long=(--nodes=2 --ntasks-per-node=1 "$top/slurm/pretrain.sbatch" job.ini mesh.data=2 train.steps=2000 train.log_every=100)
submit whole "${long[@]}" run.dir="$work/whole"
start warned "${long[@]}" run.dir="$work/warned"
until_true test -s warned/metrics.jsonl || fail "the job to warn does not train"
scancel --batch --signal=USR1 "$job"
until_true is_queued_again "$job" || fail "the warned job did not queue itself again: $(field "$job" JobState)"
[[ $(losses warned | wc -l) -lt 20 ]] || fail "the warned job was not stopped"
compgen -G "warned/checkpoints/step-*" >/dev/null || fail "the warned job left no checkpoint"
echo "stopped at $(cd warned/checkpoints && echo step-*), started again"
"$BAGPIPE_BIN/bagpipe" pretrain job.ini train.steps=2000 run.dir="$work/warned" >by-hand.log 2>&1
[[ $? == 69 ]] && grep -q "Slurm job $job is queued again, PENDING" by-hand.log || fail "a start by hand took the run of a queued job: $(cat by-hand.log)"
sleep 2 # Slurm refuses a job that begins in the second in which it ended
scontrol update JobId="$job" StartTime=now # else it waits for two minutes
finish warned
[[ $(field "$job" Restarts) == 1 ]] || fail "the warned job was stopped more than once"
same_losses whole warned 0

echo "a job whose rank was killed goes on, a halted one and a cancelled one do not"
# a rank that died is waited for in vain: 5 s instead of the site's 60
BAGPIPE_LAUNCH="srun --mpi=pmix --kill-on-bad-exit=0 --wait=5" start killed "${long[@]}" run.dir="$work/killed"
until_true test -s killed/metrics.jsonl || fail "the job to kill does not train"
for pid in $(ip netns pids n2); do
    [[ $(cat "/proc/$pid/comm" 2>/dev/null) == bagpipe ]] && kill -9 "$pid"
done
until_true is_queued_again "$job" || fail "the killed job did not queue itself again: $(field "$job" JobState)"
sleep 2
scontrol update JobId="$job" StartTime=now
until_true grep -q '"start": 2' killed/events.jsonl || fail "the killed job was not started again"
until_true test -s killed/metrics.jsonl || fail "the killed job does not train"
touch killed/halt
until_true is_over "$job" || fail "the halted job does not end"
[[ $(field "$job" ExitCode) == 75:0 ]] || fail "the halted job ended with $(field "$job" ExitCode)"
grep -q "not queued again: stopped: halted by" killed.log || fail "it is not said why the job was not queued again"
rm killed/halt
start cancelled "${long[@]}" run.dir="$work/killed"
until_true grep -q '"start": 3' killed/events.jsonl || fail "the halted run does not go on"
scancel "$job"
until_true is_over "$job" || fail "the cancelled job does not end"
[[ $(field "$job" JobState) == CANCELLED && $(field "$job" Restarts) == 0 ]] || fail "the cancelled job is $(field "$job" JobState)"
submit ended "${long[@]}" run.dir="$work/killed"
same_losses whole killed 0
echo "all as on one rank"
