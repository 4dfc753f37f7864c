#!/bin/sh
# The shell scripts parse, and refuse with a message what they cannot do.
top=$(cd "$(dirname "$0")/../.." && pwd)
cd "$top" || exit 1
failed=0

claim() { # claim TEXT COMMAND...
    text=$1
    shift
    "$@" || {
        echo "FAILED: $text"
        failed=1
    }
}

# says MESSAGE COMMAND...: it fails, and says so on standard error
says() {
    message=$1
    shift
    said=$("$@" 2>&1 >/dev/null) && return 1
    case $said in
    *"$message"*) ;;
    *)
        echo "$said"
        return 1
        ;;
    esac
}

for script in jobs/*.sh docs/help/*.sh tests/*.sh tests/project/*.sh; do
    shell=sh
    head -n 1 "$script" | grep -q '^#!.*bash$' && shell=bash
    claim "$script parses" "$shell" -n "$script"
done
for script in .ci/run .ci/long slurm/*.sh slurm/*.sbatch tests/slurm/*.sh docs/help/*.bash tests/project/*.bash; do
    claim "$script parses" bash -n "$script"
done
# ends_with_64 COMMAND...: the command line was wrong
ends_with_64() {
    "$@" >/dev/null 2>&1
    [ $? = 64 ]
}
for script in slurm/*.sbatch; do
    for shell in sh bash; do
        claim "$script by $shell names sbatch" says "sbatch $script" env -u SLURM_JOB_ID $shell "$script" x.ini
        claim "$script by $shell ends with 64" ends_with_64 env -u SLURM_JOB_ID $shell "$script" x.ini
    done
    claim "$script by sh within a job names sbatch" ends_with_64 env SLURM_JOB_ID=1 SLURM_ARRAY_TASK_ID=1 sh "$script" x.ini
done
claim "a folder that is missing is named" says "there is no folder /nonexistent" sh jobs/quickstart.sh /nonexistent
# in a tree without a build: what is answered at once builds nothing
bare=$(mktemp -d "${TMPDIR:-/tmp}/bagpipe-bare.XXXXXX") || exit 1
mkdir "$bare/tests" "$bare/empty" && cp -r jobs .ci "$bare/" && cp tests/run.sh "$bare/tests/"
helps() { # helps SCRIPT WORDS
    sh "$bare/$1" --help | grep -q "$2" && [ ! -e "$bare/build" ]
}
claim "the quickstart has a help" helps jobs/quickstart.sh "^sh jobs/quickstart.sh \[FOLDER|FILE\]"
claim "the tests have a help" helps tests/run.sh "^sh tests/run.sh \[CTEST OPTION...\]"
claim "a folder without text is refused" says "there is no text in $bare/empty" sh "$bare/jobs/quickstart.sh" "$bare/empty"
claim "and nothing is built for it" [ ! -e "$bare/build" ]
rm -rf "$bare"
claim "arguments too many are refused" says "too many arguments" sh jobs/quickstart.sh a b
claim "a batch script without its folder says so" says "launch.sh" env SLURM_JOB_ID=1 BAGPIPE_SLURM=/nonexistent bash slurm/score.sbatch x.ini
claim "a member array without an array says so" says "sbatch --array" env -u SLURM_ARRAY_TASK_ID SLURM_JOB_ID=1 BAGPIPE_SLURM=slurm bash slurm/ensemble-array.sbatch x.ini
claim "a missing program is named" says "there is no program bagpipe" \
    env SLURM_JOB_ID=1 PATH=/usr/bin:/bin BAGPIPE_BIN=/nonexistent bash -c '
        mkdir -p "$1" && cp slurm/* "$1" && BAGPIPE_SLURM=$1 bash "$1/score.sbatch" x.ini
        status=$?
        rm -rf "$1"
        exit $status' sh "${TMPDIR:-/tmp}/bagpipe-scripts.$$"

# Open MPI says why it starts nothing, unless -q has it say nothing at all
claim "nothing starts mpirun with -q" sh -c "! grep -rnE 'mpirun\"?,? +\"?-q' src jobs data_tools slurm tests/*.sh tests/slurm tests/bench"
. jobs/local.sh
local_mpi
claim "too few slots are named" says "not enough slots" env -u OMPI_MCA_rmaps_base_oversubscribe mpirun -n 1000 true
[ "$(id -u)" != 0 ] || claim "root without permission gets a message" says "OMPI_ALLOW_RUN_AS_ROOT=1" \
    env -u OMPI_ALLOW_RUN_AS_ROOT mpirun -n 2 true
exit $failed
