#!/bin/bash
# What it costs when the copies of a document stand next to each other in a bag's stream: the perplexity of bagged
# members after 0.7 epochs of short documents (lines of text), by one build or by several, beside training without a bag.
#
#   tests/bench/bag_copies.sh TRAIN.txt VALID.txt OUT BIN...
#
# BIN: folders of programs, such as build/release/bin, and one of a commit before bags went through their documents in
# passes. All results lie in OUT; the same command again goes on where it was stopped. Some 2 minutes a build on 2 cores.
set -eu
[ $# -ge 4 ] || { sed -n '2,8p' "$0" | sed 's/^# \{0,1\}//'; exit 64; }
train=$(realpath "$1") valid=$(realpath "$2") out=$3
shift 3
bins=
for bin in "$@"; do bins="$bins $(realpath "$bin")"; done
mkdir -p "$out"
cd "$out"

first=${bins# }
first=${first%% *}
if [ ! -e valid.h5 ]; then
    "$first/bagpipe-data" tokenizer --kind bpe --size 2048 --format lines --out bpe.json "$train"
    "$first/bagpipe-data" corpus --tokenizer bpe.json --format lines --out train.h5 "$train"
    "$first/bagpipe-data" corpus --tokenizer bpe.json --format lines --out valid.h5 "$valid"
fi

# steps of 16 windows of 64 tokens that make 0.7 epochs
tokens=$("$first/bagpipe-data" inspect train.h5 | awk '$1 == "tokens" { gsub(",", "", $2); print $2 }')
steps=$((tokens * 7 / 10 / (16 * 64)))
echo "$tokens tokens, $steps steps"

cat >bag.ini <<END
[corpus]
train = train.h5
[model]
layers = 2
width = 128
heads = 4
context = 64
[train]
steps = $steps
batch = 16
log_every = 100
[mesh]
micro_batch = 16
[optimizer]
lr = 3e-3
warmup = 50
[math]
precision = f32
threads = 1
END

# perplexity NAME BIN KEY...: trains, scores the valid text, prints
perplexity() {
    name=$1 bin=$2
    shift 2
    "$bin/bagpipe" pretrain bag.ini "run.dir=$name" "$@" >"$name.log" 2>&1
    "$bin/bagpipe" score bag.ini "run.dir=$name-score" "score.model=$name" score.corpus=valid.h5 >>"$name.log" 2>&1
    sed -n 's/^  *"perplexity": \([0-9.]*\).*/\1/p' "$name-score/score/summary.json" | tail -n 1
}

k=0
for bin in $bins; do
    k=$((k + 1))
    echo "build $k: $bin"
    echo "  no bag          $(perplexity "none-$k" "$bin")"
    for member in 0 1 2; do
        echo "  bag of member $member $(perplexity "bag-$k-$member" "$bin" corpus.resample=bag "run.member=$member")"
    done
done
