#!/bin/bash
# A study of damaged poems: a BART learns to fill gaps in Tang poems (text infilling), and restores
# poems that it has not seen. On one core an hour and a quarter.
#
#   tests/bench/poems_study.sh TEXTS OUT
#
# TEXTS holds tang/{train,valid,test}.jsonl. All results lie in OUT; the same command again goes on where it was stopped.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
[ $# -eq 2 ] || { sed -n '2,7p' "$0" | sed 's/^# \{0,1\}//'; exit 64; }
texts=$(cd "$1" && pwd)
out=$2
PATH=${BAGPIPE_BIN:-$top/build/release/bin}:$PATH
. "$top/jobs/local.sh"
local_mpi
mkdir -p "$out"
cd "$out"

[ -e chars.json ] || bagpipe-data tokenizer --kind char --min-count 4 --special '[MASK]' --format jsonl --out chars.json \
    "$texts/tang/train.jsonl"
# Validation takes the first 300 poems: a pass over all would take as long as a hundred steps.
head -n 300 "$texts/tang/valid.jsonl" >valid.jsonl
[ -e train.h5 ] || bagpipe-data corpus --tokenizer chars.json --format jsonl --sentences lines --out train.h5 "$texts/tang/train.jsonl"
[ -e valid.h5 ] || bagpipe-data corpus --tokenizer chars.json --format jsonl --sentences lines --out valid.h5 valid.jsonl
cat >poems.ini <<'END'
[corpus]
train = train.h5
valid = valid.h5
[model]
kind = bart
layers = 2
width = 128
heads = 4
positions = 64
context = 64
[noise]
kinds = infill
rate = 0.2
span = 2
[train]
steps = 4000
batch = 32
valid_every = 500
[mesh]
micro_batch = 32
[optimizer]
lr = 2e-3
warmup = 200
[math]
threads = 1
[generate]
strategy = beam
END
# First in short windows, in which a decoder soon finds the place that it copies from.
bagpipe pretrain poems.ini run.dir=short model.context=16 train.steps=800 train.batch=64 mesh.micro_batch=64 optimizer.decay=constant
bagpipe pretrain poems.ini run.dir=bart model.init=short

# Damage as in training, of 300 poems: spans of 1 to 3 characters become one mask each, a sixth of the characters in all
/usr/bin/python3 - "$texts/tang/test.jsonl" <<'END'
import json, random, sys
random.seed(1)
with open(sys.argv[1]) as poems, open("damaged.jsonl", "w") as damaged, open("whole.txt", "w") as whole, open("gaps.txt", "w") as gaps:
    for line in list(poems)[::9][:300]:
        title, *verses = json.loads(line)["text"].split("\n")
        text, lines = title, 0
        while lines < len(verses) and len(text) + 1 + len(verses[lines]) <= 60:
            text += "\n" + verses[lines]
            lines += 1
        spoilt, place = list(title), len(title)  # a title stays as it is
        while place < len(text):
            if text[place] != "\n" and random.random() < 0.1:
                spoilt.append("[MASK]")
                place += random.randint(1, 3)
            else:
                spoilt.append(text[place])
                place += 1
        if lines < 2:
            continue
        damaged.write(json.dumps({"prompt": "".join(spoilt)}, ensure_ascii=False) + "\n")
        whole.write(text.replace("\n", " ") + "\n")
        gaps.write("".join(s for s in spoilt if s != "[MASK]").replace("\n", " ") + "\n")
END
bagpipe generate poems.ini run.dir=restored generate.model=bart generate.prompts=damaged.jsonl
head -n 3 restored/generate/outputs.jsonl
bagpipe-data metrics --kind chrf --reference whole.txt --hypothesis restored/generate/outputs.jsonl --against gaps.txt
bagpipe-data metrics --kind bleu --words zh --reference whole.txt --hypothesis restored/generate/outputs.jsonl --against gaps.txt

# What stands where the gaps were, of texts that came out as they were around them
/usr/bin/python3 - <<'END'
import json, re
texts = kept = gaps = right = alike = 0
for spoilt, whole, written in zip(open("damaged.jsonl"), open("whole.txt"), open("restored/generate/outputs.jsonl")):
    parts = re.split(r"(?:\[MASK\])+", json.loads(spoilt)["prompt"].replace("\n", " "))  # neighbours are one gap
    frame = re.compile("(.*?)".join(map(re.escape, parts)), re.S)
    truth, found = frame.fullmatch(whole.rstrip("\n")), frame.fullmatch(json.loads(written)["text"].replace("\n", " "))
    texts += 1
    if truth and found:
        kept += 1
        gaps += len(parts) - 1
        right += sum(a == b for a, b in zip(truth.groups(), found.groups()))
        alike += sum(len(a) == len(b) for a, b in zip(truth.groups(), found.groups()))
print(f"{kept} of {texts} texts are kept around their gaps; of their {gaps} gaps {right} hold what was there, {alike} as many characters")
END
