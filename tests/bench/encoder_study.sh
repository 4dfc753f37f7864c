#!/bin/bash
# A study of a small BERT: pretrained on two meshes and killed between them, fine-tuned for
# genres, pairs, tags and answers beside the same model from random weights, an ensemble of classifiers and a
# student of it. On one core about an hour and a quarter.
#
#   tests/bench/encoder_study.sh TEXTS OUT
#
# TEXTS holds brown, wikitext-2, sick, wnut17 and squad. All results lie in OUT; the same command again goes on
# where it was stopped. At its end encoder_study.py adds the bag-of-words models and prints the tables.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
[ $# -eq 2 ] || { sed -n '2,9p' "$0" | sed 's/^# \{0,1\}//'; exit 64; }
texts=$(cd "$1" && pwd)
out=$2
PATH=${BAGPIPE_BIN:-$top/build/release/bin}:$PATH
. "$top/jobs/local.sh"
local_mpi
mkdir -p "$out"
cd "$out"

corpus() { # corpus NAME FILE [OPTION...]: NAME.h5 of FILE
    name=$1 file=$2
    shift 2
    [ -e "$name.h5" ] || bagpipe-data corpus --tokenizer bert.json --out "$name.h5" "$@" "$file"
}
[ -e text ] || /usr/bin/python3 "$here/encoder_text.py" "$texts" text
[ -e bert.json ] || bagpipe-data tokenizer --kind wordpiece --size 2500 --format jsonl --out bert.json text/pretrain.jsonl
corpus pretrain text/pretrain.jsonl --format jsonl --sentences punctuation
corpus held text/held.jsonl --format jsonl --sentences punctuation
corpus few text/few.jsonl --format jsonl
for part in train valid test; do
    corpus "genres-$part" "text/$part.jsonl" --format jsonl --label genre
    corpus "known-$part" "text/known-$part.jsonl" --format jsonl --label genre
    corpus "sick-$part" "text/sick-$part.tsv" --format tsv --fields sentence_A,sentence_B \
        --label entailment_judgment --value relatedness_score
    corpus "wnut-$part" "text/wnut-$part.conll" --format conll
    corpus "squad-$part" "text/squad-$part.json" --format squad
done
corpus other text/other.jsonl --format jsonl --label genre

cat >shape.ini <<'END'
[model]
kind = bert
layers = 2
width = 128
heads = 4
positions = 128
context = 128
END
cat shape.ini - >pretrain.ini <<'END'
[corpus]
train = pretrain.h5
valid = held.h5
[mask]
rate = 0.3
next_sentence = no
[train]
steps = 3500
batch = 16
valid_every = 250
log_every = 100
[optimizer]
lr = 1.5e-3
warmup = 100
[mesh]
micro_batch = 8
[checkpoint]
every = 50
[math]
threads = 1
END

# 1. Pretraining in short windows, in which attention soon finds a word's neighbours. Then in long ones on
# tensor 2 x data 2: killed after its first checkpoint, resumed there, stopped after the second, and ended on one
# rank. pretrained_until CHECKPOINT SIGNAL: starts it, and sends all ranks SIGNAL once it is there.
bagpipe pretrain pretrain.ini run.dir=short model.context=16 train.steps=2800 train.batch=64 mesh.micro_batch=64 \
    optimizer.lr=3e-3 optimizer.warmup=200 optimizer.decay=constant checkpoint.every=500
pretrained_until() {
    mpirun -n 4 bagpipe pretrain pretrain.ini run.dir=bert model.init=short mesh.tensor=2 &
    while [ ! -e "bert/checkpoints/$1" ] && kill -0 $! 2>/dev/null; do sleep 1; done
    pkill "-$2" -f "^bagpipe pretrain pretrain.ini run.dir=bert" || true
    wait $! || true
}
if [ ! -e four.txt ]; then
    pretrained_until step-000000000050 KILL
    pretrained_until step-000000000100 TERM
    cp bert/events.jsonl four.txt
fi
bagpipe pretrain pretrain.ini run.dir=bert model.init=short
bagpipe score pretrain.ini run.dir=bert-held score.model=bert score.corpus=few.h5

# 2. The tasks, each from the pretrained model and from random weights
tuned() { # tuned NAME STEPS-OR-EPOCHS... : NAME-from and NAME-new, scored on the test part
    name=$1 corpora=$2
    shift 2
    for start in from new; do
        if [ $start = from ]; then model=model.init=bert; else model=model.kind=bert; fi
        cp task.ini "$start.ini"
        [ $start = from ] || cat shape.ini task.ini >new.ini
        bagpipe finetune $start.ini "run.dir=$name-$start" "corpus.train=$corpora-train.h5" "corpus.valid=$corpora-valid.h5" \
            "$model" "$@"
        bagpipe score $start.ini "run.dir=$name-$start-scored" \
            "score.model=$name-$start/checkpoints/best" "score.corpus=$corpora-test.h5"
    done
}
cat >task.ini <<'END'
[corpus]
bucket = 20
[train]
batch = 32
[optimizer]
lr = 5e-4
[mesh]
micro_batch = 32
[math]
threads = 1
END
tuned genres genres task.kind=classes task.pool=mean train.epochs=2 corpus.bucket=0
tuned entailment sick task.kind=classes task.pool=mean train.epochs=5
tuned relatedness sick task.kind=regression task.label=relatedness_score task.pool=mean train.epochs=5
tuned names wnut task.kind=tags train.epochs=6
tuned answers squad task.kind=spans train.epochs=2 corpus.bucket=0

# 3. Five members, each of which goes on from the pretrained model with a seed of its own, and is fine-tuned on the
# genres but three, which are the other domain
bagpipe ensemble pretrain.ini run.dir=five ensemble.members=5 ensemble.kind=seed model.init=bert corpus.valid= \
    train.steps=200 optimizer.lr=5e-4 train.valid_every=0 checkpoint.every=200
for member in 0 1 2 3 4; do
    bagpipe finetune task.ini run.dir=known/m0$member model.init=five/members/m0$member corpus.train=known-train.h5 \
        corpus.valid=known-valid.h5 task.kind=classes task.pool=mean train.epochs=2 corpus.bucket=0 run.seed=$((member + 1))
done
printf '{"format_version": 1, "members": [%s]}\n' "$(for m in 0 1 2 3 4; do
    printf '%s{"name": "m0%s", "path": "m0%s"}' "$([ $m = 0 ] || echo ', ')" $m $m
done)" >known/ensemble.json
cat >study.ini <<'END'
[run]
dir = study
[uncertainty]
models = single=known/m00, dropout=known/m00:dropout, five=known
in_domain = known-test.h5
shifted = other.h5
[corpus]
valid = known-valid.h5
[math]
threads = 1
END
bagpipe uncertainty study.ini

# 4. A student of a quarter of the weights, taught by the five, beside the same model that learns from the labels alone
cat >student.ini <<'END'
[model]
kind = bert
layers = 1
width = 56
inner = 224
heads = 4
context = 128
END
cat task.ini >>student.ini
for weight in 0 0.8; do
    teacher="distill.model=known distill.weight=$weight"
    [ $weight != 0 ] || teacher=
    bagpipe finetune student.ini run.dir=student-$weight corpus.train=known-train.h5 corpus.valid=known-valid.h5 \
        task.kind=classes task.pool=mean train.epochs=3 corpus.bucket=0 optimizer.lr=2e-3 $teacher
    bagpipe score student.ini run.dir=student-$weight-scored score.model=student-$weight/checkpoints/best \
        score.corpus=known-test.h5
done
bagpipe score student.ini run.dir=known-scored score.model=known score.corpus=known-test.h5
/usr/bin/python3 "$here/encoder_study.py" text .
