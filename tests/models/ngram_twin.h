/* N-gram models in memory, for tests: estimated from sentences of ids on one rank, and their
 * probabilities in doubles by a search that knows nothing of the file. */
#pragma once

#include "base/err.h"
#include "base/mem.h"
#include "models/counting.h"
#include "models/ngram/ngram_count_priv.h"
#include "models/ngram/ngram_prune_priv.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct ngram_twin {
    ngram_spec spec;
    ngram_levels levels;
    const int32_t *tokens;
} ngram_twin;

static bp_err twin_read(void *context, int64_t first, int64_t count, int32_t *tokens)
{
    memcpy(tokens, ((const ngram_twin *)context)->tokens + first, (size_t)count * sizeof *tokens);
    return BP_OK;
}

static void twin_progress(void *context, const char *what, int64_t done, int64_t of)
{
    (void)context, (void)what, (void)done, (void)of;
}

/* tokens[count] end with eod, which is vocab_size - 1. spec: order, rule, prune and entropy are
 * set. */
static bp_err twin_make(ngram_twin *twin, const int32_t *tokens, int64_t count, int64_t vocab_size,
                        const char *folder)
{
    bp_counting counting = {.comm = MPI_COMM_SELF,
                            .tokens = count,
                            .eod_id = vocab_size - 1,
                            .read = twin_read,
                            .progress = twin_progress,
                            .context = twin,
                            .folder = folder};
    ngram_counts counts = {0};
    ngram_run *runs = NULL;
    int64_t run_count = 0;

    twin->tokens = tokens;
    twin->spec.bits = ngram_bits(vocab_size);
    twin->spec.vocab_size = twin->spec.rule.outcomes = vocab_size;
    twin->spec.eod_id = vocab_size - 1;
    twin->spec.memory_bytes = 1 << 20;
    bp_err err = ngram_count_stream(&runs, &run_count, &counting, &twin->spec,
                                    "00000000000000000000000000000000");
    if (err == BP_OK)
        err = ngram_merge(&counts, &counting, &twin->spec, runs, run_count);
    for (int64_t k = 0; runs && k < run_count; k++)
        (void)remove(runs[k].path);
    ngram_runs_free(&runs, run_count);
    if (err == BP_OK)
        err = ngram_estimate(&twin->levels, &counting, &twin->spec, &counts);
    if (err == BP_OK && twin->spec.entropy > 0 && twin->spec.order > 1)
        err = ngram_prune(&twin->levels, &counting, &twin->spec);
    ngram_counts_clear(&counts);
    return err;
}

/* The place of the n-gram words[n]; -1: it was not kept. */
static int64_t twin_find(const ngram_twin *twin, const int32_t *words, int n)
{
    ngram_key key = 0;

    if (n == 1)
        return words[0];
    for (int k = 0; k < n; k++)
        key = (key << twin->spec.bits) | (ngram_key)(uint64_t)(words[k] + 1);
    for (int64_t k = 0; k < twin->levels.of[n].count; k++)
        if (twin->levels.of[n].key[k] == key)
            return k;
    return -1;
}

/* p(word | history[n]), n below the order; the history's first word may be <s>. */
static double twin_probability(const ngram_twin *twin, const int32_t *history, int n, int32_t word)
{
    bool backs_off = ngram_backs_off(twin->spec.rule.smoothing);
    double factor = 1;

    for (int skip = 0; skip <= n; skip++) {
        int32_t words[NGRAM_ORDER_MOST];
        int length = n - skip;
        int64_t at, before;

        memcpy(words, history + skip, (size_t)length * sizeof *words);
        words[length] = word;
        at = twin_find(twin, words, length + 1);
        if (at >= 0)
            return factor * twin->levels.of[length + 1].prob[at];
        before = twin_find(twin, words, length);
        if (!backs_off && before < 0)
            return twin->spec.rule.smoothing == NGRAM_MLE ? 0 : 1 / (double)twin->spec.vocab_size;
        if (!backs_off)
            return twin->levels.of[length].left[before];
        factor *= before >= 0 ? twin->levels.of[length].left[before] : 1;
    }
    return 0;
}
