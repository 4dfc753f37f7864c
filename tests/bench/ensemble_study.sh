#!/bin/bash
# The study of docs/results.md: ensembles of small GPTs on the Brown corpus's nonfiction, and how sure they
# are there and on other text, with three base seeds. On two cores about an hour.
#
#   tests/bench/ensemble_study.sh TEXTS OUT [STEPS [MEMBERS]]
#
# TEXTS holds brown/brown.jsonl, shakespeare/input.txt and wikitext-2/test.txt. All results lie in OUT; the
# same command again goes on where it was stopped. At its end ensemble_study.py prints the tables of results.md.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
[ $# -ge 2 ] || { sed -n '2,8p' "$0" | sed 's/^# \{0,1\}//'; exit 64; }
texts=$(cd "$1" && pwd)
out=$2
steps=${3:-1000}
members=${4:-6}
PATH=${BAGPIPE_BIN:-$top/build/release/bin}:$PATH
. "$top/jobs/local.sh"
local_mpi
mkdir -p "$out"
cd "$out"
began=$(date +%s)

if [ ! -e wikitext.h5 ]; then
    /usr/bin/python3 "$here/study_text.py" "$texts" text
    bagpipe-data tokenizer --kind bpe --size 4096 --format jsonl --out bpe.json text/train.jsonl
    for name in train valid nonfiction fiction shakespeare wikitext; do
        bagpipe-data corpus --tokenizer bpe.json --format jsonl --out "$name.h5" "text/$name.jsonl"
    done
fi

cat >study.ini <<END
[run]
dir = study
[corpus]
train = train.h5
valid = valid.h5
[model]
layers = 4
width = 160
heads = 5
context = 128
dropout = 0.1
[train]
steps = $steps
batch = 8
log_every = 50
[mesh]
micro_batch = 8
[optimizer]
lr = 2e-3
warmup = 50
[checkpoint]
every = 1000
[math]
threads = 1
[ensemble]
members = $members
[uncertainty]
models = none
in_domain = nonfiction.h5
shifted = fiction.h5, shakespeare.h5, wikitext.h5
passes = $members
[laplace]
samples = $members
END

# A base seed is a whole repetition: other initialisations, orders of the text, bags and draws.
for seed in 1 2 3; do
    for kind in seed bag both; do
        mpirun -n 2 bagpipe ensemble study.ini run.dir=$seed-$kind run.seed=$seed ensemble.kind=$kind mesh.members=2
    done
    one=$seed-seed/members/m00
    models="single=$one, dropout=$one:dropout, laplace=$one:laplace, deep=$seed-seed, bagging=$seed-bag, both=$seed-both"
    mpirun -n 2 bagpipe uncertainty study.ini run.dir=$seed-uncertainty run.seed=$seed "uncertainty.models=$models"
done
/usr/bin/python3 "$here/ensemble_study.py" "$PWD" | tee tables.md
echo "the study took $((($(date +%s) - began) / 60)) minutes: $PWD/tables.md, and $PWD/1-uncertainty/uncertainty/index.html and its like"
