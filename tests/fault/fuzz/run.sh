#!/bin/bash
# Fuzzing: builds the targets with clang and libFuzzer, feeds each its seeds and what it has found before, lets it look for
# more, and prints a table. In turn, one process at a time.
#
#   tests/fault/fuzz/run.sh [-s SECONDS] [-n] [-c] [TARGET...]     60 s each of all targets
#     -s SECONDS  for each target, those it has been given before counted: a run that was cut short goes on where it was
#     -n          no build: the programs that are in the build folder
#     -c          coverage: line coverage of each target's parser by seeds, what was found, and the unit tests
#
# BAGPIPE_FUZZ_TIMEOUT: seconds that one input may take (5; more where the machine is busy with other things).
# BAGPIPE_FUZZ_BUILD: the build folder (build/fuzz). In it: corpus/TARGET what was found, crashes/ inputs that broke a
# target, results.txt a line for each stretch (target, seconds, executions, crashes).
set -u
cd "$(dirname "$0")/../../.." || exit 1
here=tests/fault/fuzz
build=${BAGPIPE_FUZZ_BUILD:-build/fuzz}
seconds=60 with_build=yes coverage=no
while getopts s:nc option; do
    case $option in
    s) seconds=$OPTARG ;;
    n) with_build=no ;;
    c) coverage=yes ;;
    *) sed -n '2,13p' "$0" >&2; exit 64 ;;
    esac
done
shift $((OPTIND - 1))
# shellcheck source=/dev/null
. jobs/local.sh # Open MPI as root, where a library is started

# The parsers of each target.
parsers() {
    case $1 in
    json) echo src/base/config/json.c src/base/config/json_members.c ;;
    config) echo src/base/config/config_read.c src/base/config/config_value.c src/base/config/config_text.c src/base/config/config.c ;;
    manifest) echo src/io/checkpoint/manifest.c src/tensor/slice.c ;;
    safetensors) echo src/io/huggingface/safetensors.c ;;
    gguf) echo src/io/gguf/gguf_file.c src/io/gguf/gguf_values.c src/io/gguf/gguf_tokenizer.c src/text/sentencepiece/pieces_json.c ;;
    sentencepiece) echo src/text/sentencepiece/model_file.c src/text/sentencepiece/pieces_json.c ;;
    tokenizer_load) echo src/text/tokenizer/tokenizer_load.c src/text/tokenizer/vocab_load.c src/text/tokenizer/tokenizer_parts.c src/text/tokenizer/tokenizer_text.c src/text/tokenizer/tokenizer.c ;;
    encode) echo src/text/tokenizer/encoder.c src/text/pipeline/bpe.c src/text/unicode/scan.c src/text/unicode/tally.c ;;
    text) echo src/text/documents/source.c src/text/documents/documents.c src/text/documents/spans.c src/text/documents/jsonl.c ;;
    rows) echo src/text/documents/documents.c src/text/documents/spans.c src/text/documents/tagged.c src/text/documents/tsv.c src/text/documents/conll.c src/text/documents/squad.c src/text/documents/jsonl.c src/base/config/json_members.c ;;
    web) echo src/text/documents/warc.c src/text/documents/spans.c src/text/unicode/plain_words.c ;;
    token_files) echo src/io/corpus/token_layouts.c src/io/corpus/token_files.c ;;
    prompts) echo src/infer/generate/prompts/prompts.c src/infer/generate/prompts/text.c src/infer/generate/search/stops.c ;;
    corpus_index) echo src/io/corpus/corpus_file.c src/io/corpus/corpus_columns.c src/io/corpus/extents.c src/io/h5/user_block.c ;;
    record) echo src/job/parts.c src/io/corpus/corpus_chunks.c src/io/h5/zstd_filter.c src/io/h5/lzf_filter.c ;;
    h5_walk) echo src/io/h5/h5_walk.c src/io/h5/h5_read.c src/io/h5/h5_array.c ;;
    ngram) echo src/models/ngram/ngram_file.c src/models/ngram/ngram_lookup.c ;;
    arpa) echo src/models/ngram/ngram_arpa_read.c src/models/words/words_file.c ;;
    vectors) echo src/models/word2vec/vectors_read.c src/models/words/words_file.c ;;
    reshard) echo src/io/checkpoint/shard.c src/tensor/slice.c ;;
    coord) echo src/job/work_scheduler.c src/run/lock/run_lock_record.c src/run/watchdog/watch_state.c src/io/checkpoint/commit_steps.c ;;
    wire) echo src/run/watchdog/watchdog_wire.c ;;
    cli) echo jobs/bagpipe.c ;;
    metrics_resume) echo src/run/run_journal.c ;;
    bilm) echo src/models/elmo/bilm_options.c ;;
    candidates) echo src/infer/score/candidates/read.c ;;
    pii) echo data_tools/pii/pii_scan.c data_tools/pii/pii_numbers.c data_tools/pii/pii_addresses.c ;;
    reports) echo data_tools/outputs.c data_tools/toxicity/word_lists.c ;;
    mixture) echo data_tools/mix/mixture_weights.c ;;
    notes) echo src/io/checkpoint/ensemble_file.c src/io/huggingface/hf_config.c ;;
    esac
}
all=$(sed -n 's/^bp_fuzz(\([a-z0-9_]*\).*/\1/p' $here/CMakeLists.txt)
targets=${*:-$all}

compile() { # compile FOLDER TARGETS... -- OPTIONS...
    local folder=$1 goals=()
    shift
    while [[ $1 != -- ]]; do goals+=("$1"); shift; done
    shift
    mkdir -p "$folder"
    { cmake -S . -B "$folder" -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=Debug -DBAGPIPE_WERROR=OFF "$@" &&
        cmake --build "$folder" --parallel "$(nproc)" --target "${goals[@]}"; } >"$folder/build.log" 2>&1 ||
        { grep -m 5 -A 4 -e 'error:' -e 'CMake Error' "$folder/build.log"; return 1; }
}

if [[ $with_build == yes ]]; then
    # shellcheck disable=SC2086,SC2046
    compile "$build" $(printf 'fz_%s ' $targets) -- -DBAGPIPE_FUZZ=ON "-DCMAKE_C_FLAGS_DEBUG=-O1 -g" || exit 1
fi
scratch=$(mktemp -d "/dev/shm/bp_fuzz_run_XXXXXX" 2>/dev/null || mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$build/corpus" "$build/crashes" "$build/logs"
touch "$build/results.txt"

spent() { awk -v t="$1" -v c="$2" '$1 == t { sum += $c } END { print sum + 0 }' "$build/results.txt"; }

fuzz() { # fuzz TARGET: for what is left of its seconds
    local t=$1 left=$((seconds - $(spent "$1" 2))) log=$build/logs/$1.log before=$SECONDS runs crashes dict=()
    ((left > 0)) || return 0
    mkdir -p "$build/corpus/$t"
    [[ -e $here/dict/$t.dict ]] && dict=("-dict=$here/dict/$t.dict")
    local most=4096
    TMPDIR=$scratch ASAN_OPTIONS=abort_on_error=0:detect_leaks=1 "$build/fuzz/fz_$t" -max_total_time="$left" -timeout="${BAGPIPE_FUZZ_TIMEOUT:-5}" \
        -rss_limit_mb=2048 -max_len=$most -print_final_stats=1 -artifact_prefix="$build/crashes/$t-" "${dict[@]}" \
        "$build/corpus/$t" "$here/seeds/$t" >"$log" 2>&1
    local rc=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    crashes=$((rc != 0))
    printf '%s %d %d %d\n' "$t" $((SECONDS - before)) "${runs:-0}" $crashes >>"$build/results.txt"
    rm -rf "${scratch:?}"/*
    return $rc
}

lines_of() { # lines_of PROFILE FILE: "covered/all" of the programs in `programs`
    llvm-cov report "${programs[@]}" -instr-profile="$1" "$2" 2>/dev/null |
        awk '$1 == "TOTAL" { printf "%d/%d", $8 - $9, $8 }'
}

measure() { # line coverage of all parsers, to cov/lines.txt
    local cov=$build-coverage t name goals=() tests programs=()
    tests="base_json base_config base_err tensor_slice io_safetensors io_hf_import io_user_block io_corpus_file io_corpus_convert
           io_checkpoint_folder run_run_lock run_run_folder run_watchdog_state run_simulator text_scan text_tally text_source text_documents text_bpe text_tokenizer text_encode job_parts"
    for t in $targets; do goals+=("fz_$t"); done
    for t in $tests; do goals+=("test_$t"); done
    compile "$cov" "${goals[@]}" h5zstd -- "-DCMAKE_C_FLAGS=-fprofile-instr-generate -fcoverage-mapping" || return 1
    rm -rf "$cov/profiles" && mkdir -p "$cov/profiles"
    for t in $targets; do
        LLVM_PROFILE_FILE=$cov/profiles/fz_$t-%m.profraw TMPDIR=$scratch timeout 600 "$cov/fuzz/fz_$t" "$here/seeds/$t" \
            $(ls -d "$build/corpus/$t" 2>/dev/null) >/dev/null 2>&1 || echo "coverage: fz_$t ended with $?"
    done
    for t in $tests; do
        (cd "$cov" && LLVM_PROFILE_FILE=$PWD/profiles/test_$t-%p.profraw timeout 600 "tests/test_$t" >/dev/null 2>&1) ||
            echo "coverage: test_$t ended with $?"
    done
    llvm-profdata merge -sparse "$cov"/profiles/*.profraw -o "$cov/all.profdata" || return 1
    for name in "${goals[@]}"; do
        local program=$cov/fuzz/$name
        [[ $name == test_* ]] && program=$cov/tests/$name
        ((${#programs[@]} == 0)) && programs=("$program") || programs+=(-object "$program")
    done
    for t in $targets; do
        for name in $(parsers "$t"); do
            [[ -e $name ]] && printf '%s %s %s\n' "$t" "$name" "$(lines_of "$cov/all.profdata" "$PWD/$name")"
        done
    done >"$build/lines.txt"
}

failed=0
for t in $targets; do
    fuzz "$t" || { failed=1; grep -m 3 -e 'does not hold' -e 'ERROR' -e 'runtime error' "$build/logs/$t.log"; }
done
[[ $coverage == no ]] || measure || failed=1
printf '%-16s %8s %12s %8s  %s\n' target seconds executions crashes 'lines of its parsers'
for t in $targets; do
    printf '%-16s %8d %12d %8d  %s\n' "$t" "$(spent "$t" 2)" "$(spent "$t" 3)" "$(spent "$t" 4)" \
        "$(awk -v t="$t" '$1 == t { n = split($2, p, "/"); split($3, c, "/"); printf "%s %d%% ", p[n], c[2] ? 100 * c[1] / c[2] : 0 }' \
            "$build/lines.txt" 2>/dev/null)"
done
exit $failed
