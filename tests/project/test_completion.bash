#!/bin/bash
# test_completion.bash COMPLETION BIN: what bash offers behind a line.
completion=$1 bin=$2
PATH=$bin:$PATH
export PATH LC_ALL=C.UTF-8
. "$completion" || exit 1
work=$(mktemp -d "${TMPDIR:-/tmp}/bagpipe-completion.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
mkdir -p runs/small runs/large && touch small.ini notes.txt train.h5 runs/deep.ini "runs/with blank.ini"
failed=0

# What is offered, sorted, as words between '|'.
offered() {
    COMP_LINE=$1 COMP_POINT=${#1}
    COMPREPLY=()
    _bagpipe
    sorted "${COMPREPLY[@]}"
}
sorted() {
    printf '|%s|\n' "$(printf '%s\n' "$@" | sort | paste -s -d '|')"
}
gives() { # LINE EXPECTED
    local got expected
    got=$(offered "$1")
    IFS='|' read -ra expected <<<"$2"
    expected=$(sorted "${expected[@]}")
    [[ $got == "$expected" ]] || {
        echo "FAILED: '$1' gives $got, and not $expected"
        failed=1
    }
}
has() { # LINE WORD...
    local line=$1 got
    got=$(offered "$line")
    shift
    for word; do
        [[ $got == *"|$word|"* ]] || {
            echo "FAILED: '$line' gives $got, which lacks $word"
            failed=1
        }
    done
}
lacks() { # LINE WORD
    [[ $(offered "$1") != *"|$2|"* ]] || {
        echo "FAILED: '$1' gives $2"
        failed=1
    }
}

has "bagpipe " pretrain score uncertainty check status doctor help --help --version
gives "bagpipe pre" pretrain
gives "bagpipe help en" ensemble
gives "bagpipe-data cor" corpus
has "bagpipe-data " tokenizer table compare help
has "bagpipe-data help " verify
gives "$bin/bagpipe pre" pretrain

# options, their choices, and files behind them
has "bagpipe pretrain small.ini --" --plan --help
gives "bagpipe pretrain small.ini --pl" --plan
gives "bagpipe-data corpus --tokeni" --tokenizer=
gives "bagpipe-data corpus --format li" lines
gives "bagpipe-data corpus --format=" "text|lines|jsonl|tsv|pairs|conll|squad|warc|hdf5|megatron|llmc|nanogpt|datatrove"
gives "bagpipe-data tokenizer --kind " "bpe|wordpiece|unigram|word|char"
gives "bagpipe-data corpus --out=tr" train.h5
gives "bagpipe-data corpus --tokenizer no" notes.txt
has "bagpipe requeue pretrain small.ini --" --status= --most=

# configurations and keys
gives "bagpipe pretrain " "small.ini|runs"
gives "bagpipe pretrain sm" small.ini
has "bagpipe pretrain runs/" runs/deep.ini "runs/with blank.ini" runs/small
gives "bagpipe pretrain small.ini train.log" train.log_every=
has "bagpipe pretrain small.ini " run.dir= model.width= optimizer.lr=
lacks "bagpipe pretrain small.ini " score.model=
gives "bagpipe pretrain small.ini model.embedding" "model.embedding=|model.embedding_multiplier="
has "bagpipe pretrain small.ini model.kind=llama " model.rope_theta= model.inner= run.dir=
lacks "bagpipe pretrain small.ini model.kind=llama " model.order=
gives "bagpipe check pretrain small.ini model.kind=t5 model.rel" "model.relative_buckets=|model.relative_distance=|model.relative_layers="
has "bagpipe pretrain small.ini model.kind=nosuch " model.order=
gives "bagpipe pretrain small.ini model.kind=el" "electra|elmo"
gives "bagpipe score small.ini score.mo" score.model=
gives "bagpipe bench run.d" run.dir=
gives "bagpipe check score small.ini score.prefix_" score.prefix_every=
gives "bagpipe check sc" score
lacks "bagpipe check " status
lacks "bagpipe check pretrain small.ini --" --plan

# values: readline takes what follows '=' for a word of its own
gives "bagpipe pretrain small.ini mesh.schedule=" "gpipe|1f1b|interleaved"
gives "bagpipe pretrain small.ini mesh.schedule=in" interleaved
gives "bagpipe pretrain small.ini train.recompute=" "yes|no"
gives "bagpipe pretrain small.ini run.dir=runs/s" runs/small
gives "bagpipe pretrain small.ini corpus.train=tr" train.h5
gives "bagpipe check score small.ini score.convention=st" stride
COMP_WORDBREAKS=${COMP_WORDBREAKS//=/}
gives "bagpipe pretrain small.ini mesh.schedule=in" mesh.schedule=interleaved
gives "bagpipe pretrain small.ini run.dir=runs/s" run.dir=runs/small

# folders of runs, files of tools, and nothing where nothing fits
gives "bagpipe status runs/" "runs/large|runs/small"
gives "bagpipe doctor " "small.ini|runs"
gives "bagpipe doctor --" "--help|--json"
has "bagpipe-data inspect " train.h5 notes.txt runs
gives "bagpipe nosuch " ""
gives "bagpipe help pretrain " ""

# every key and option of every help can be offered
for page in "bagpipe pretrain" "bagpipe ensemble" "bagpipe score" "bagpipe uncertainty" "bagpipe bench"; do
    [[ $($page --help | grep -oE '^  [a-z0-9]+\.[a-z0-9_]+' | sort -u | wc -l) == $(offered "$page x.ini " | tr '|' '\n' | grep -c '=$') ]] || {
        echo "FAILED: $page: not all of its keys are offered"
        failed=1
    }
done
exit $failed
