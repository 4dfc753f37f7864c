# The grid of a sweep: what slurm/sweep.sbatch, and an array of slurm/finetune.sbatch, train. Sourced by them; started by
# bash it prints the points and the command that submits them:
#
#   bash slurm/sweep.sh CONFIG.ini run.dir=runs/sweep optimizer.lr=1e-3,2e-3,3e-3 run.seed=1,2
#
# KEY=A,B,C gives a key three values; keys with several values make a grid, of which the last key changes fastest. A comma
# that belongs to a value stands behind a backslash: 'corpus.train=a.h5\,b.h5'. Keys with one value are as in any job.
#
# The point lr=1e-3, seed=2 trains in RUN/lr=1e-3_seed=2, RUN being run.dir: of a key what follows its dot, or all of it where
# two keys would be alike; characters that no folder's name should have become '_'. Where names would be too long, or two
# points would have one name, they are point-0, point-1, ... So a grid with more values goes on where the smaller one was.

sweep_fail() {
    echo "sweep: $*" >&2
    exit 64
}

# sweep_read CONFIG.ini KEY=VALUES...: sets sweep_config, sweep_keys, sweep_values (of each key, one a line), sweep_count (of
# points) and sweep_dir.
sweep_read() {
    local word key value list
    sweep_config=$1 sweep_dir="" sweep_count=1 sweep_keys=() sweep_values=()
    [[ $# -gt 0 && $1 != *=* ]] || sweep_fail "no configuration was given: CONFIG.ini comes first"
    shift
    for word; do
        [[ $word == *=* ]] || sweep_fail "'$word' is not section.key=value"
        key=${word%%=*} list=${word#*=}
        [[ " ${sweep_keys[*]} " != *" $key "* ]] || sweep_fail "$key is given twice"
        list=${list//\\,/$'\x1f'} # a comma of a value
        [[ ,$list, != *,,* || $list != *,* ]] || sweep_fail "$key has an empty value: $word"
        list=${list//,/$'\n'}
        list=${list//$'\x1f'/,}
        sweep_keys+=("$key") sweep_values+=("$list")
        value=$(wc -l <<<"$list")
        sweep_count=$((sweep_count * value))
        [[ $key != run.dir ]] || sweep_dir=$list
    done
    [[ $(wc -l <<<"$sweep_dir") == 1 ]] || sweep_fail "run.dir has several values: a point's folder is named by the other keys"
    [[ -n $sweep_dir || ! -r $sweep_config ]] || sweep_dir=$(sweep_dir_of "$sweep_config")
    [[ -n $sweep_dir ]] || sweep_fail "run.dir is not set: give run.dir=FOLDER"
    [[ "${sweep_values[*]}" == *$'\n'* ]] || sweep_fail "no key has several values: give KEY=A,B"
}

# run.dir of a configuration
sweep_dir_of() {
    awk '{ sub(/^[ \t]+/, ""); sub(/[ \t\r]+$/, "") }
        /^\[/ { section = $0; next }
        /^[;#]/ { next }
        section == "[run]" && /^dir[ \t]*=/ || section == "" && /^run\.dir[ \t]*=/ { sub(/^[^=]*=[ \t]*/, ""); sub(/[ \t]+;.*/, ""); dir = $0 }
        END { print dir }' "$1"
}

# sweep_point K: sets sweep_words, the keys of point K.
sweep_point() {
    local rest=$1 k count
    local -a values
    sweep_words=()
    for ((k = ${#sweep_keys[@]} - 1; k >= 0; k--)); do
        mapfile -t values <<<"${sweep_values[k]}"
        count=${#values[@]}
        sweep_words=("${sweep_keys[k]}=${values[rest % count]}" "${sweep_words[@]}")
        rest=$((rest / count))
    done
}

# What a point's folder is called; sweep_words is set.
sweep_name() {
    local k j key short name=""
    for k in "${!sweep_keys[@]}"; do
        [[ ${sweep_values[k]} == *$'\n'* ]] || continue
        key=${sweep_keys[k]} short=${sweep_keys[k]##*.}
        for j in "${!sweep_keys[@]}"; do
            [[ $j == "$k" || ${sweep_values[j]} != *$'\n'* || ${sweep_keys[j]##*.} != "$short" ]] || short=$key
        done
        name+=${name:+_}$short=${sweep_words[k]#*=}
    done
    echo "${name//[^A-Za-z0-9._=+-]/_}"
}

# sweep_folders: sets sweep_folder[K] of all points.
sweep_folders() {
    local k name plain=""
    local -A seen=()
    sweep_folder=()
    for ((k = 0; k < sweep_count; k++)); do
        sweep_point "$k"
        name=$(sweep_name)
        [[ ${#name} -le 120 && -z ${seen[$name]} ]] || plain=yes
        seen[$name]=yes
        sweep_folder[k]=$sweep_dir/$name
    done
    [[ -z $plain ]] || for ((k = 0; k < sweep_count; k++)); do
        sweep_folder[k]=$sweep_dir/point-$k
    done
}

# The words of point K for a job: the configuration, its keys, and its folder last.
sweep_job() {
    local k=$1 word
    sweep_point "$k"
    sweep_job_words=("$sweep_config")
    for word in "${sweep_words[@]}"; do
        [[ $word == run.dir=* ]] || sweep_job_words+=("$word")
    done
    sweep_job_words+=("run.dir=${sweep_folder[k]}")
}

# sweep_run JOB CONFIG.ini KEY=VALUES...: as task K of an array, point K; ends the batch script as run_job does.
sweep_run() {
    local job=$1 last
    shift
    [[ -n $SLURM_ARRAY_TASK_ID ]] || {
        echo "this script is for an array of jobs: submit it with sbatch --array=0-LAST; bash slurm/sweep.sh prints it" >&2
        exit 64
    }
    sweep_read "$@"
    last=$((sweep_count - 1))
    if [[ $SLURM_ARRAY_TASK_ID -gt $last || ${SLURM_ARRAY_TASK_MAX:-0} -gt $last ]]; then
        sweep_fail "the array goes to task ${SLURM_ARRAY_TASK_MAX:-$SLURM_ARRAY_TASK_ID}, but the grid has $sweep_count points:" \
            "submit it with --array=0-$last"
    fi
    [[ ${SLURM_ARRAY_TASK_COUNT:-1} -ge $sweep_count ]] ||
        echo "sweep: this array has $SLURM_ARRAY_TASK_COUNT of the grid's $sweep_count points; all of them are --array=0-$last" >&2
    sweep_folders
    sweep_job "$SLURM_ARRAY_TASK_ID"
    echo "point $SLURM_ARRAY_TASK_ID of 0-$last: ${sweep_job_words[*]:1}"
    trap sweep_table EXIT
    run_job "$job" "${sweep_job_words[@]}"
}

# Each task leaves the table of what is there by now: the last one to end, that of all points. One task at a time writes it.
sweep_table() {
    local bagpipe folders=() k
    bagpipe=$(find_bagpipe)
    for k in "${!sweep_folder[@]}"; do
        [[ ! -d ${sweep_folder[k]} ]] || folders+=("${sweep_folder[k]}")
    done
    [[ -x $bagpipe-data && ${#folders[@]} -gt 0 ]] || return
    {
        timeout 60 flock 9
        "$bagpipe-data" table "${folders[@]}" >"$sweep_dir/.table.csv" 2>/dev/null &&
            mv "$sweep_dir/.table.csv" "$sweep_dir/table.csv" && echo "table of ${#folders[@]} of $sweep_count points: $sweep_dir/table.csv"
    } 9>"$sweep_dir/.table.lock"
}

# Words as a shell reads them.
sweep_print() {
    local word
    for word; do
        [[ $word =~ ^[A-Za-z0-9_./=,:+-]+$ ]] || word=${word@Q}
        printf ' %s' "$word"
    done
    echo
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
    sweep_read "$@"
    sweep_folders
    for ((k = 0; k < sweep_count; k++)); do
        sweep_job "$k"
        printf '%d' "$k"
        sweep_print "${sweep_job_words[@]:1}"
    done
    printf '%d points: sbatch --array=0-%d %s/sweep.sbatch' "$sweep_count" $((sweep_count - 1)) "$(dirname "$0")"
    sweep_print "$@"
fi
