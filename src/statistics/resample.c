/* The bootstrap: draws, resamples over threads, percentile intervals. */
#include "statistics/resample.h"

#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "base/sort.h"

#include <math.h>
#include <omp.h>
#include <stdbool.h>
#include <string.h>

#define STREAM_BLOCKS 16 /* parallel blocks of the generator */
#define LANES         8  /* parallel partial sums */

bp_rng_key bp_resample_key(uint64_t seed, int64_t r, int64_t stream)
{
    return bp_rng_key_of(seed, BP_RNG_BOOTSTRAP, 0, r, stream);
}

/* 64 random bits to [0, n): the bias is below n / 2^64. */
static int64_t scale(uint64_t bits, int64_t n)
{
    return (int64_t)(((unsigned __int128)bits * (uint64_t)n) >> 64);
}

/* ---- draws of a block ---- */

/* A stream of random 64-bit words, far from those of the draws. */
typedef struct bit_stream {
    const bp_rng_key *key;
    uint64_t next; /* block of the generator */
    int used;      /* of `words` */
    uint64_t words[2 * STREAM_BLOCKS];
} bit_stream;

static uint64_t next_word(bit_stream *bits)
{
    if (bits->used == 2 * STREAM_BLOCKS) {
        bp_rng_blocks(bits->words, bits->key, bits->next, STREAM_BLOCKS);
        bits->next += STREAM_BLOCKS;
        bits->used = 0;
    }
    return bits->words[bits->used++];
}

/* The number of successes in `trials` with probability p / 2^64 each, 64 at once: a trial succeeds
 * if its random binary fraction is below p, which the first differing digit decides. */
static int64_t count_trials(bit_stream *bits, int64_t trials, uint64_t p)
{
    int64_t happened = 0;

    for (; trials > 0; trials -= 64) {
        uint64_t open = trials >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << trials) - 1;

        for (uint64_t digits = p; open != 0 && digits != 0; digits <<= 1) {
            uint64_t word = next_word(bits);

            if (digits >> 63 != 0) {
                happened += __builtin_popcountll(open & ~word);
                open &= word;
            } else {
                open &= ~word;
            }
        }
    }
    return happened;
}

/* Documents [first, end) have `trials` draws; the left part is 2^k blocks. */
static void split(int32_t *draws, bit_stream *bits, int64_t first, int64_t end, int64_t trials)
{
    int64_t left = BP_RESAMPLE_BLOCK, documents = end - first;

    if (documents <= BP_RESAMPLE_BLOCK) {
        draws[first / BP_RESAMPLE_BLOCK] = (int32_t)trials;
        return;
    }
    while (2 * left < documents)
        left *= 2;
    int64_t there = count_trials(
        bits, trials, (uint64_t)(((unsigned __int128)left << 64) / (unsigned __int128)documents));

    split(draws, bits, first, first + left, there);
    split(draws, bits, first + left, end, trials - there);
}

void bp_resample_split(int32_t *draws, int64_t n, const bp_rng_key *key)
{
    bit_stream bits = {.key = key, .next = UINT64_C(1) << 63, .used = 2 * STREAM_BLOCKS};

    BP_ASSERT(n <= INT32_MAX);
    if (n > 0)
        split(draws, &bits, 0, n, n);
}

/* ---- which documents ---- */

/* Twelve bits a draw, five of a word. */
static void draw_whole(int32_t *counts, int64_t draws, uint64_t base, const bp_rng_key *key)
{
    uint64_t words[2 * STREAM_BLOCKS];

    for (int64_t left = draws; left > 0; base += STREAM_BLOCKS) {
        bp_rng_blocks(words, key, base, STREAM_BLOCKS);
        if (left < 10 * STREAM_BLOCKS) {
            for (int64_t i = 0; i < left; i++)
                counts[words[i / 5] >> 12 * (i % 5) & (BP_RESAMPLE_BLOCK - 1)]++;
            return;
        }
        for (int w = 0; w < 2 * STREAM_BLOCKS; w++)
            for (int k = 0; k < 5; k++)
                counts[words[w] >> 12 * k & (BP_RESAMPLE_BLOCK - 1)]++;
        left -= 10 * STREAM_BLOCKS;
    }
}

/* A word a draw. */
static void draw_any(int32_t *counts, int64_t n, int64_t draws, uint64_t base,
                     const bp_rng_key *key)
{
    uint64_t words[2 * STREAM_BLOCKS];

    for (int64_t first = 0; first < draws; first += 2 * STREAM_BLOCKS, base += STREAM_BLOCKS) {
        int64_t count = draws - first < 2 * STREAM_BLOCKS ? draws - first : 2 * STREAM_BLOCKS;

        bp_rng_blocks(words, key, base, (count + 1) / 2);
        for (int64_t i = 0; i < count; i++)
            counts[scale(words[i], n)]++;
    }
}

/* counts[documents of the block]: how often each is among the block's `draws`. */
static void draw_block(int32_t *counts, int64_t block, int32_t draws, int64_t n,
                       const bp_rng_key *key)
{
    int64_t first = block * BP_RESAMPLE_BLOCK, left = n - first;
    int64_t documents = left < BP_RESAMPLE_BLOCK ? left : BP_RESAMPLE_BLOCK;

    memset(counts, 0, (size_t)documents * sizeof *counts);
    if (documents == BP_RESAMPLE_BLOCK)
        draw_whole(counts, draws, (uint64_t)first, key);
    else
        draw_any(counts, documents, draws, (uint64_t)first, key);
}

void bp_resample_counts(int32_t *counts, int64_t n, const bp_rng_key *key)
{
    /* numbers of draws are at the beginning, where the first block is written last */
    bp_resample_split(counts, n, key);
    for (int64_t b = bp_resample_blocks(n) - 1; b >= 0; b--)
        draw_block(counts + b * BP_RESAMPLE_BLOCK, b, counts[b], n, key);
}

/* What a thread draws into: the counts of all groups side by side. */
typedef struct counts_place {
    int32_t *counts;        /* [documents of all groups] */
    const int32_t **groups; /* [groups] into counts */
    int32_t *drawn;         /* [largest number of clusters] */
} counts_place;

static bp_err places_new(counts_place **out, int threads, const bp_bootstrap *spec)
{
    counts_place *places = bp_try_alloc("statistics.counts", threads, sizeof *places);
    int64_t documents = 0, clusters = 0;
    bool ok = places != NULL;

    *out = places;
    for (int64_t g = 0; g < spec->groups; g++) {
        documents += spec->documents[g];
        if (spec->clusters && spec->cluster_count[g] > clusters)
            clusters = spec->cluster_count[g];
    }
    for (int t = 0; t < threads && ok; t++) {
        int64_t start = 0;

        places[t].counts = bp_try_alloc("statistics.counts", documents, sizeof(int32_t));
        places[t].groups = bp_try_alloc("statistics.counts", spec->groups, sizeof(int32_t *));
        places[t].drawn = bp_try_alloc("statistics.counts", clusters, sizeof(int32_t));
        ok = places[t].counts && places[t].groups && places[t].drawn;
        for (int64_t g = 0; g < spec->groups && ok; g++) {
            places[t].groups[g] = places[t].counts + start;
            start += spec->documents[g];
        }
    }
    return ok ? BP_OK : bp_fail_memory("resamples of documents", documents, sizeof(int32_t));
}

static void places_free(counts_place *places, int threads)
{
    for (int t = 0; t < threads && places; t++) {
        bp_free(places[t].drawn);
        bp_free(places[t].groups);
        bp_free(places[t].counts);
    }
    bp_free(places);
}

static void draw_resample(const counts_place *place, const bp_bootstrap *spec, int64_t r)
{
    int64_t start = 0;

    for (int64_t g = 0; g < spec->groups; g++) {
        bp_rng_key key = bp_resample_key(spec->seed, r, g);
        int32_t *counts = place->counts + start;

        if (spec->clusters) {
            bp_resample_counts(place->drawn, spec->cluster_count[g], &key);
            for (int64_t d = 0; d < spec->documents[g]; d++)
                counts[d] = place->drawn[spec->clusters[g][d]];
        } else {
            bp_resample_counts(counts, spec->documents[g], &key);
        }
        start += spec->documents[g];
    }
}

/* ---- values that depend on one document, or on one cluster ---- */

/* Is document d of all sets drawn exactly in the resamples in which the value is defined? Then the
 * value depends on no other document. lone[d]: not yet refuted. */
static void refute(bool *lone, const int32_t *counts, int64_t documents, bool defined)
{
    for (int64_t d = 0; d < documents; d++)
        lone[d] = lone[d] && (counts[d] > 0) == defined;
}

static bool has_gap(const double *values, const bp_bootstrap *spec)
{
    int64_t defined = 0;

    for (int64_t r = 0; r < spec->resamples; r++)
        defined += isfinite(values[r * spec->width]) != 0;
    return defined > 0 && defined < spec->resamples;
}

/* One document has no spread: a value that depends only on it becomes undefined in all
 * resamples. */
static void forget(double *values, const bp_bootstrap *spec)
{
    for (int64_t r = 0; r < spec->resamples; r++)
        values[r * spec->width] = NAN;
}

static bool rests_on_one(const double *values, const bp_bootstrap *spec, const counts_place *place,
                         bool *lone, int64_t documents)
{
    bool any = false;

    for (int64_t d = 0; d < documents; d++)
        lone[d] = true;
    for (int64_t r = 0; r < spec->resamples; r++) {
        draw_resample(place, spec, r);
        refute(lone, place->counts, documents, isfinite(values[r * spec->width]) != 0);
    }
    for (int64_t d = 0; d < documents; d++)
        any = any || lone[d];
    return any;
}

static bp_err forget_lone(double *values, const bp_bootstrap *spec, const counts_place *place)
{
    int64_t documents = 0, draws = 0;
    bool *lone;

    for (int64_t g = 0; g < spec->groups; g++) {
        documents += spec->documents[g];
        draws += spec->clusters ? spec->cluster_count[g] : spec->documents[g];
    }
    lone = bp_try_alloc("statistics.counts", documents, sizeof *lone);
    if (!lone)
        return bp_fail_memory("resamples of documents", documents, sizeof *lone);
    for (int64_t c = 0; c < spec->width; c++)
        if (draws < 2 ||
            (has_gap(values + c, spec) && rests_on_one(values + c, spec, place, lone, documents)))
            forget(values + c, spec);
    bp_free(lone);
    return BP_OK;
}

bp_err bp_bootstrap_run(double *values, const bp_bootstrap *spec, bp_statistic statistic,
                        const void *data)
{
    int threads = omp_get_max_threads();
    counts_place *places;
    bp_err err = places_new(&places, threads, spec);

    if (err == BP_OK) {
#pragma omp parallel for schedule(static) num_threads(threads)
        for (int64_t r = 0; r < spec->resamples; r++) {
            const counts_place *place = &places[omp_get_thread_num()];

            draw_resample(place, spec, r);
            statistic(values + r * spec->width, place->groups, data);
            if (omp_get_thread_num() == 0) /* the main thread: no other may heartbeat */
                bp_heartbeat_progress();
        }
        err = forget_lone(values, spec, &places[0]);
    }
    places_free(places, threads);
    return err;
}

/* ---- sums ---- */

bp_err bp_resample_sums_init(bp_resample_sums *self)
{
    int64_t blocks = bp_resample_blocks(self->n);
    bp_heartbeat_progress();

    self->threads = omp_get_max_threads();
    self->sums = bp_try_alloc("statistics.sums", self->count * self->width, sizeof *self->sums);
    self->draws = bp_try_alloc("statistics.counts", self->count * blocks, sizeof *self->draws);
    self->counts = bp_try_alloc("statistics.counts", (int64_t)self->threads * BP_RESAMPLE_BLOCK,
                                sizeof *self->counts);
    if (!self->sums || !self->draws || !self->counts)
        return bp_fail_memory("resamples of documents", self->count * blocks, sizeof *self->draws);
#pragma omp parallel for schedule(dynamic) num_threads(self->threads)
    for (int64_t r = 0; r < self->count; r++) {
        bp_rng_key key = bp_resample_key(self->seed, self->first + r, 0);

        bp_resample_split(self->draws + r * blocks, self->n, &key);
        if (omp_get_thread_num() == 0)
            bp_heartbeat_progress();
    }
    return BP_OK;
}

/* Weighted by counts, in parallel partial sums. */
static double sum_block(const double *values, const int32_t *counts, int64_t documents)
{
    double lanes[LANES] = {0}, sum = 0;
    int64_t d = 0;

    for (; d + LANES <= documents; d += LANES)
        for (int l = 0; l < LANES; l++)
            lanes[l] += counts[d + l] * values[d + l];
    for (; d < documents; d++)
        lanes[0] += counts[d] * values[d];
    for (int l = 0; l < LANES; l++)
        sum += lanes[l];
    return sum;
}

void bp_resample_sums_add(bp_resample_sums *self, int64_t block, int64_t blocks,
                          const double *const *columns)
{
    int64_t all = bp_resample_blocks(self->n);

#pragma omp parallel for schedule(dynamic) num_threads(self->threads)
    for (int64_t r = 0; r < self->count; r++) {
        int32_t *counts = self->counts + (int64_t)omp_get_thread_num() * BP_RESAMPLE_BLOCK;
        bp_rng_key key = bp_resample_key(self->seed, self->first + r, 0);

        for (int64_t b = 0; b < blocks; b++) {
            int64_t left = self->n - (block + b) * BP_RESAMPLE_BLOCK;
            int64_t documents = left < BP_RESAMPLE_BLOCK ? left : BP_RESAMPLE_BLOCK;

            draw_block(counts, block + b, self->draws[r * all + block + b], self->n, &key);
            for (int64_t c = 0; c < self->width; c++)
                self->sums[r * self->width + c] +=
                    sum_block(columns[c] + b * BP_RESAMPLE_BLOCK, counts, documents);
        }
        if (omp_get_thread_num() == 0) /* the main thread: no other may heartbeat */
            bp_heartbeat_progress();
    }
}

void bp_resample_sums_clear(bp_resample_sums *self)
{
    bp_free(self->counts);
    bp_free(self->draws);
    bp_free(self->sums);
}

bp_err bp_bootstrap_of_sums(double *values, const bp_bootstrap *spec, const double *const *columns,
                            int64_t count, bp_sums_statistic statistic, const void *data)
{
    bp_resample_sums sums = {
        .seed = spec->seed, .n = spec->documents[0], .width = count, .count = spec->resamples};
    counts_place *places = NULL;
    bp_err err;

    BP_ASSERT(spec->groups == 1);
    err = bp_resample_sums_init(&sums);
    if (err == BP_OK) {
        bp_resample_sums_add(&sums, 0, bp_resample_blocks(sums.n), columns);
        for (int64_t r = 0; r < spec->resamples; r++)
            statistic(values + r * spec->width, sums.sums + r * count, data);
        err = places_new(&places, 1, spec);
    }
    if (err == BP_OK)
        err = forget_lone(values, spec, &places[0]);
    places_free(places, 1);
    bp_resample_sums_clear(&sums);
    return err;
}

double bp_quantile(const double *sorted, int64_t n, double p)
{
    double place = p * (double)(n - 1), below = floor(place);
    int64_t low = (int64_t)below, high = low + 1 < n ? low + 1 : low;

    return sorted[low] + (place - below) * (sorted[high] - sorted[low]);
}

bp_err bp_interval_of_difference(bp_interval *out, const double *one, const double *other,
                                 int64_t resamples, int64_t stride, int64_t documents)
{
    double *kept = bp_try_alloc("statistics.interval", resamples, sizeof *kept);
    int64_t n = 0;

    *out = (bp_interval){NAN, NAN};
    if (!kept)
        return bp_fail_memory("resamples", resamples, sizeof *kept);
    for (int64_t r = 0; r < resamples; r++) {
        double value = one[r * stride] - (other ? other[r * stride] : 0);

        if (isfinite(value))
            kept[n++] = value;
    }
    if (n >= 2 && documents >= BP_FEW_DOCUMENTS) {
        double level = bp_percentile_level(documents);

        bp_sort_reals(kept, n);
        *out = (bp_interval){bp_quantile(kept, n, level), bp_quantile(kept, n, 1 - level)};
    }
    bp_free(kept);
    return BP_OK;
}

bp_err bp_interval_of(bp_interval *out, const double *values, int64_t resamples, int64_t stride,
                      int64_t documents)
{
    return bp_interval_of_difference(out, values, NULL, resamples, stride, documents);
}

/* Clipped to what this many documents can distinguish from 0 and 1. */
static double logit_within(double share, int64_t documents)
{
    double least = 1e-3 / (double)documents;
    double p = share < least ? least : share > 1 - least ? 1 - least : share;

    return log(p) - log1p(-p);
}

bp_err bp_interval_of_logits(bp_interval *out, double value, const double *values,
                             int64_t resamples, int64_t stride, int64_t documents)
{
    double sum = 0, squares = 0, middle, half;
    int64_t n = 0;

    *out = (bp_interval){NAN, NAN};
    if (documents < BP_FEW_DOCUMENTS || isnan(value))
        return BP_OK;
    if (value <= 0 || value >= 1) {
        *out = bp_wilson_interval(value, documents);
        return BP_OK;
    }
    middle = logit_within(value, documents);
    for (int64_t r = 0; r < resamples; r++) {
        double off = logit_within(values[r * stride], documents) - middle;

        if (isfinite(off)) {
            n++;
            sum += off;
            squares += off * off;
        }
    }
    if (n < 2)
        return BP_OK;
    half = 1.96 * sqrt(fmax(0, squares - sum * sum / (double)n) / (double)(n - 1));
    *out = (bp_interval){1 / (1 + exp(half - middle)), 1 / (1 + exp(-half - middle))};
    return BP_OK;
}
