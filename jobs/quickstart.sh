#!/bin/sh
# sh jobs/quickstart.sh [FOLDER|FILE]: from nothing to the perplexity of a small GPT, in about 4 minutes on two quiet cores.
#
# It builds bagpipe, makes a tokenizer and two corpora, pretrains a GPT on several ranks, and scores text that was held
# out. The text is FILE, or what FOLDER holds: text files at any depth, .gz and .zst too, or .jsonl. Otherwise it is CMake's
# manual (Debian's cmake-data) or, where CMake came without it, Perl's manuals and the licences. Everything goes to
# runs/quickstart. Run again it goes on where it was stopped; with other text it starts anew. As root it first installs
# what is missing of .ci/packages; as an ordinary user these packages must be there.
set -u
export LC_ALL=C.UTF-8
top=$(cd "$(dirname "$0")/.." && pwd) || exit 1
run=$top/runs/quickstart
bin=$top/build/release/bin
packages=$top/.ci/packages
text_limit=16000000 # bytes: more could not be read in the time that this takes
path_limit=1000000  # bytes of all paths together: they go on one command line
train_seconds=90    # the training takes about this long, or less
. "$top/jobs/local.sh"

began=$(date +%s)
passed() { # "1 min 05 s" since the start
    seconds=$(($(date +%s) - began))
    printf '%d min %02d s' $((seconds / 60)) $((seconds % 60))
}
stage() { printf '\n== %s  (after %s)\n' "$*" "$(passed)"; }
stop() {
    echo "quickstart: $*" >&2
    exit 1
}

# ---- which text ----

# "BYTES PATH" of each text file in folders, sorted by path: list_text FOLDER... [FIND'S CONDITIONS]. Packed files are
# known by their names, others by what they hold.
list_text() {
    {
        find "$@" -type f -size +0 ! -path '*/.*' ! -name '*.gz' ! -name '*.zst' -print0 | xargs -0 -r grep -IlZ ''
        find "$@" -type f ! -path '*/.*' ! -name '*.tar.*' \( -name '*.gz' -o -name '*.zst' \) -print0
    } 2>/dev/null | grep -zv '[[:cntrl:],]' | xargs -0 -r stat -c '%s %n' -- | sort -k 2
}

# Of one package, where it is there: what other packages install changes nothing.
default_text() {
    list_text /usr/share/cmake*/Help -name '*.rst' >"$run/default.list"
    [ -s "$run/default.list" ] || list_text /usr/share/perl /usr/share/common-licenses \
        \( -name '*.pod' -o -path '*/common-licenses/*' \) >"$run/default.list"
    cat "$run/default.list"
    rm -f "$run/default.list"
}

# Of a list of many files, every k-th, so that what is left keeps to the limits; few files are cut by split_lines.
thin_out() {
    awk -v text="$text_limit" -v paths="$path_limit" '
        { line[NR] = $0; bytes += $1; length_sum += length($0) }
        END {
            k = bytes / text > length_sum / paths ? bytes / text : length_sum / paths
            k = k > 1 && NR >= 10 ? int(k) + 1 : 1
            for (i = 1; i <= NR; i += k) print line[i]
        }' "$1"
}

unpacked() {
    case $1 in
    *.gz) gzip -cd -- "$1" ;;
    *.zst) zstd -qcd -- "$1" ;;
    *) cat -- "$1" ;;
    esac
}

# A long text becomes parts of 400 lines or more, each of which is a document: figures between documents need some.
# split_text FILE LIST
split_text() {
    parts=$(($(wc -l <"$1") / 400))
    if [ "$parts" -lt 2 ]; then
        printf '%s\n' "$1" >>"$2"
        return
    fi
    split -n "l/$((parts > 200 ? 200 : parts))" -d -a 3 -- "$1" "$1." || stop "cannot write $1"
    rm -f "$1"
    find "$(dirname "$1")" -path "$1.*" -size +0 | sort >>"$2"
}

# Few files, or JSON lines: the last tenth of each file's lines is held out.
split_lines() {
    count=$(wc -l <"$run/text.list")
    number=0
    while read -r _ path; do
        number=$((number + 1))
        unpacked "$path" | head -c $((text_limit / count)) >"$run/text/all" || stop "cannot read $path"
        [ "$(wc -c <"$run/text/all")" -lt $((text_limit / count)) ] || sed -i '$d' "$run/text/all" # cut within a line
        lines=$(wc -l <"$run/text/all")
        if [ "$lines" -lt 10 ]; then
            echo "$path is left out: it has fewer than 10 lines, of which a tenth is held out."
            continue
        fi
        head -n $((lines - lines / 10)) "$run/text/all" >"$run/text/train.$number.$1"
        tail -n +$((lines - lines / 10 + 1)) "$run/text/all" >"$run/text/held_out.$number.$1"
        for part in train held_out; do
            if [ "$1" = txt ]; then
                split_text "$run/text/$part.$number.$1" "$run/$part.list"
            else
                printf '%s\n' "$run/text/$part.$number.$1" >>"$run/$part.list"
            fi
        done
    done <"$run/text.list"
    rm -f "$run/text/all"
    [ -s "$run/train.list" ] || stop "the text is too short: give a folder with 10 text files, or with files of 10 lines and more"
}

# train.list and held_out.list, and `format`; all that was made of other text goes.
choose_text() {
    mkdir -p "$run/text" || stop "$run cannot be made"
    if [ -n "$1" ]; then list_text "$1"; else default_text; fi >"$run/found.list"
    thin_out "$run/found.list" >"$run/new.list"
    [ -s "$run/new.list" ] || stop "no text was found in ${1:-/usr/share}: give a folder with text files, sh jobs/quickstart.sh FOLDER"
    if [ -s "$run/text.list" ] && ! cmp -s "$run/new.list" "$run/text.list"; then # another text: another run
        before=$run.$(date +%Y%m%d-%H%M%S)
        mv "$run" "$before" && mkdir -p "$run/text" && mv "$before/new.list" "$run/new.list" || stop "$run cannot be written"
        echo "The text is not that of the last time: starting anew; the run before is now $before."
    fi
    mv "$run/new.list" "$run/text.list" || stop "$run cannot be written"

    format=text
    grep -qvE '\.jsonl(\.gz|\.zst)?$' "$run/text.list" || format=jsonl
    rm -f "$run/train.list" "$run/held_out.list"
    if [ "$format" = jsonl ]; then
        split_lines jsonl
    elif [ "$(wc -l <"$run/text.list")" -lt 10 ]; then
        split_lines txt
    else # every tenth file is held out
        sed 's/^[0-9]* //' "$run/text.list" >"$run/paths.list"
        awk 'NR % 10 != 0' "$run/paths.list" >"$run/train.list"
        awk 'NR % 10 == 0' "$run/paths.list" >"$run/held_out.list"
    fi
    awk '{ bytes += $1 } END { printf "%d files, %.1f MB", NR, bytes / 1e6 }' "$run/text.list"
    echo ", such as $(sed -n '1s/^[0-9]* //p' "$run/text.list"); $(wc -l <"$run/held_out.list") of $(cat "$run"/train.list \
        "$run"/held_out.list | wc -l) parts are held out"
}

# How long it takes: what is missing, and the rest.
print_time() {
    minutes=2
    parts="2 to train and score"
    [ -x "$bin/bagpipe" ] || minutes=$((minutes + 1)) parts="1 to build, $parts"
    [ -z "$(local_missing "$packages")" ] || minutes=$((minutes + 1)) parts="1 to install packages, $parts"
    echo "This takes about $minutes minutes on two quiet cores ($parts), and longer on a busy machine."
}

# ---- what is done with it ----

# with_files LIST COMMAND...: the command with the paths of a list after it, all on one command line
with_files() {
    list=$1
    shift
    tr '\n' '\0' <"$list" | xargs -0 -n 1000000 -s 1500000 -x "$@"
}

make_corpora() {
    if [ ! -e "$run/tokenizer.json" ]; then
        with_files "$run/train.list" "$bin/bagpipe-data" tokenizer --kind bpe --size 4096 --out "$run/tokenizer.json" ||
            stop "the tokenizer could not be made"
    fi
    for part in train held_out; do
        [ -e "$run/$part.h5" ] || with_files "$run/$part.list" $ranks_do "$bin/bagpipe-data" corpus \
            --tokenizer "$run/tokenizer.json" --format $format --out "$run/$part.h5" || stop "the corpus $part.h5 could not be made"
    done
}

write_config() { # write_config STEPS STEPS_BETWEEN_CHECKPOINTS
    cat >"$run/gpt.ini" <<END
; written by jobs/quickstart.sh; every key: build/release/bin/bagpipe pretrain --help
[run]
dir = $run/gpt

[corpus]
train = $run/train.h5
valid = $run/held_out.h5

[model]
layers = 4
width = 128
heads = 4
context = 128

[train]
steps = $1
batch = 16
log_every = 10
valid_every = $2

[optimizer]
lr = 2e-3
warmup = $((1 + $1 / 10))

[checkpoint]
every = $2

[score]
model = $run/gpt
corpus = $run/held_out.h5
tokens = yes
END
}

# job NAME [KEY=VALUE...]
job() {
    name=$1
    shift
    # shellcheck disable=SC2086  # a list of words
    $ranks_do "$bin/bagpipe" "$name" "$run/gpt.ini" math.threads=$threads mesh.micro_batch=$((16 / ranks)) "$@" ||
        stop "bagpipe $name ended with status $?; the same command goes on from the last checkpoint"
}

# How many steps this machine does in $train_seconds, at most 500: measured by twenty steps of a run that is thrown away.
choose_steps() {
    echo "Measuring the speed of this machine by 20 steps (seconds; minutes on a busy one)."
    write_config 20 20
    rm -rf "$run/trial"
    job pretrain "run.dir=$run/trial" train.valid_every=0 corpus.valid= >"$run/trial.log" || exit 1
    speed=$(sed -n '$s/.*"tokens_per_second": *\([0-9]*\).*/\1/p' "$run/trial/metrics.jsonl")
    rm -rf "$run/trial" "$run/trial.log" "$run/gpt.ini"
    steps=$((${speed:-0} * train_seconds / (16 * 128)))
    steps=$((steps > 500 ? 500 : steps < 50 ? 50 : steps))
    every=$((${speed:-0} * 60 / (16 * 128))) # a checkpoint a minute
    every=$((every < 10 ? 10 : every > steps ? steps : every))
    echo "They reached $speed tokens a second: $steps steps are taken. More steps make a better model:"
    echo "set train.steps in runs/quickstart/gpt.ini and run this again; it goes on where it ended."
    write_config $steps $every
}

draw_loss() {
    command -v gnuplot >/dev/null || return 0
    sed -n 's/.*"step": *\([0-9]*\).*/\1/p' "$run/gpt/metrics.jsonl" >"$run/steps"
    sed -n 's/.*"loss": *\([0-9.e+-]*\).*/\1/p' "$run/gpt/metrics.jsonl" | paste "$run/steps" - >"$run/loss.txt"
    rm -f "$run/steps"
    # with a label of few rows each: gnuplot drops those that meet
    gnuplot -e "stats '$run/loss.txt' using 2 nooutput; span = STATS_max - STATS_min" \
        -e "gap = span > 5 ? 2 : span > 2 ? 1 : span > 1 ? 0.5 : 0.2; set ytics gap; step = span > 2 ? 1 : 0.2" \
        -e "set yrange [step * floor(STATS_min / step):step * ceil(STATS_max / step)]" \
        -e "set terminal dumb 76 16; set tics scale 0.5; set xlabel 'step'; unset key" \
        -e "set title 'training loss, nats a token'; plot '$run/loss.txt' with lines" 2>/dev/null
}

figure() { sed -n "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p" "$run/held_out/score/summary.json" | head -n 1; }

report() {
    vocab=$(sed -n 's/.*"vocab_size": *\([0-9]*\).*/\1/p' "$run"/gpt/checkpoints/step-*/manifest.json | head -n 1)
    awk -v tokens="$(figure tokens)" -v perplexity="$(figure perplexity)" -v bits="$(figure bits_per_byte)" -v size="$vocab" 'BEGIN {
        printf "Perplexity of the held-out text: %.2f a token, over %d tokens (%.3f bits a byte).\n", perplexity, tokens, bits
        printf "A model that knows nothing would have %d, the size of its vocabulary.\n", size
    }'
    printf '\nDone after %s. Where to look (below runs/quickstart):\n' "$(passed)"
    places | while IFS='|' read -r path what; do
        [ ! -e "$run/$path" ] || printf '  %-28s %s\n' "$path" "$what"
    done
    echo "README.md goes on: a real run on your own text, ensembles and uncertainty, a cluster."
}

# What may be there to look at, and what it is.
places() {
    cat <<'END'
gpt/index.html|loss, rate and speed as a page: open it in a browser
held_out/score/index.html|the scores as a page: the hardest documents, text by token
held_out/score/summary.json|perplexity and its relatives, with standard errors
held_out/score/documents.h5|the same for each document (bagpipe-data table FILE: as CSV)
held_out/score/tokens.h5|the log-probability of each token
gpt/metrics.jsonl|loss, rate and speed along the training
gpt/checkpoints|what the training goes on from, and what can be scored
gpt.ini|the configuration of both jobs
END
}

case ${1:-} in -h | --help)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
[ $# -le 1 ] || stop "too many arguments: sh jobs/quickstart.sh [FOLDER|FILE]"
folder=""
if [ $# = 1 ]; then
    if [ -f "$1" ]; then
        folder=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
    else
        folder=$(cd "$1" 2>/dev/null && pwd) || stop "there is no folder $1"
    fi
    [ -n "$(list_text "$folder")" ] || stop "there is no text in $folder: give a folder with text files (.txt, .gz, .zst, .jsonl, ...)"
fi
cores=$(nproc)
ranks=$((cores < 4 ? 2 : 4))
threads=$((cores / ranks > 4 ? 4 : cores / ranks > 0 ? cores / ranks : 1))
ranks_do="mpirun -n $ranks"
local_mpi

print_time
stage "1/6  Packages"
local_packages "$packages" || exit 1
echo "Packages are there."
stage "2/6  Building bagpipe into build/release (log: build/release.log)"
local_build bagpipe bagpipe-data h5zstd || exit 1
"$bin/bagpipe" --version
stage "3/6  Choosing text"
choose_text "$folder"
stage "4/6  A tokenizer and two compressed corpora"
make_corpora
stage "5/6  Pretraining a GPT on $ranks ranks (mpirun -n $ranks)"
[ -s "$run/gpt.ini" ] || choose_steps
job pretrain
draw_loss
stage "6/6  Scoring the held-out text"
job score "run.dir=$run/held_out"
report
