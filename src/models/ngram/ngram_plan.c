/* The estimate of counting: n-grams of each order, estimated from the beginning of the stream.
 * Called by ngram.c for --plan. */
#include "models/ngram/ngram_count_priv.h"

#include "base/buffer.h"
#include "base/log.h"
#include "base/mem.h"
#include "models/ngram/ngram_file_priv.h"

#include <inttypes.h>
#include <math.h>

#define SAMPLE_TOKENS ((int64_t)1 << 20)
/* Bytes of an n-gram: before, during and after the step of its order. */
#define COUNTED_BYTES (sizeof(ngram_key) + sizeof(ngram_tally))
#define LEVEL_BYTES   (sizeof(ngram_key) + 2 * sizeof(int64_t) + 2 * sizeof(double))
#define TURN_BYTES    (sizeof(ngram_tally) + sizeof(ngram_item) + LEVEL_BYTES)

/* Distinct n-grams of each order among sorted items. */
static void count_distinct(int64_t distinct[NGRAM_ORDERS], const ngram_item *items, int64_t count,
                           const ngram_spec *spec)
{
    for (int k = 1; k <= spec->order; k++) {
        int below = spec->bits * (spec->order - k);
        ngram_key before = 0;

        distinct[k] = 0;
        for (int64_t i = 0; i < count; i++) {
            ngram_key key = ngram_item_key(&items[i]) >> below;
            bool whole = ngram_slot(key, spec->bits, 0) != 0; /* else it begins before <s> */

            distinct[k] += whole && (i == 0 || key != before);
            before = key;
        }
    }
}

/* n-grams grow as a power of the text (Heaps): the growth from its first half to the whole
 * determines the exponent. */
static int64_t extrapolate(int64_t half, int64_t all, double times)
{
    double power = half > 0 ? log2((double)all / (double)half) : 0;

    power = power < 0 ? 0 : power > 1 ? 1 : power;
    return (int64_t)((double)all * pow(times, power));
}

/* The peak memory of computing probabilities, one order after another. */
static double held_bytes(const int64_t *counts, int order)
{
    double most = 0;

    for (int turn = 2; turn <= order; turn++) {
        double bytes = 0;

        for (int k = 2; k <= order; k++)
            bytes += (double)counts[k] * (double)(k < turn    ? LEVEL_BYTES
                                                  : k == turn ? TURN_BYTES
                                                              : COUNTED_BYTES);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void print(const ngram_spec *spec, const int64_t *counts, int64_t sample, int64_t tokens,
                  int ranks)
{
    ngram_header header = {.order = (uint32_t)spec->order,
                           .word_bytes = ngram_word_bytes(spec->vocab_size)};
    int64_t before = 0;

    bp_log("estimated from %" PRId64 " of %" PRId64 " tokens, without ngram.prune:", sample,
           tokens);
    for (int k = 1; k <= spec->order; k++) {
        header.count[k - 1] = (uint64_t)counts[k];
    }
    ngram_layout layout = ngram_layout_of(&header);
    for (int k = 1; k <= spec->order; k++) {
        int64_t end = k < spec->order ? layout.nodes[k + 1] : layout.bytes;

        before = layout.nodes[k];
        bp_log("order %d: %" PRId64 " n-grams, %s of the model", k, counts[k],
               bp_size_text((double)(end - before)).text);
    }
    bp_log("model: %s; memory of a rank: %s for sorting (ngram.memory), then %s",
           bp_size_text((double)layout.bytes).text, bp_size_text((double)spec->memory_bytes).text,
           bp_size_text(held_bytes(counts, spec->order) / ranks).text);
}

bp_err ngram_plan(const bp_counting *counting, int ranks)
{
    ngram_spec spec = ngram_spec_of(counting->config, counting->shape, counting->eod_id);
    int64_t sample = counting->tokens < SAMPLE_TOKENS ? counting->tokens : SAMPLE_TOKENS;
    int64_t half[NGRAM_ORDERS] = {0}, whole[NGRAM_ORDERS] = {0};
    ngram_item *items = bp_try_alloc("ngram.plan", sample, sizeof *items);
    ngram_item *scratch = bp_try_alloc("ngram.plan", sample, sizeof *scratch);
    bp_err err = items && scratch ? BP_OK : bp_fail_memory("a sample", 2 * sample, sizeof *items);

    for (int part = 1; part <= 2 && err == BP_OK; part++) {
        int64_t count = sample * part / 2;

        err = ngram_read_sample(counting, &spec, count, items);
        if (err != BP_OK)
            break;
        ngram_sort(items, scratch, count, spec.bits * spec.order);
        count_distinct(part == 1 ? half : whole, items, count, &spec);
    }
    whole[1] = spec.vocab_size + 1;
    for (int k = 2; k <= spec.order; k++)
        whole[k] = extrapolate(half[k], whole[k], (double)counting->tokens / (double)sample);
    if (err == BP_OK)
        print(&spec, whole, sample, counting->tokens, ranks);
    bp_free(items);
    bp_free(scratch);
    return err;
}
