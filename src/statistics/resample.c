/* The bootstrap: draws, resamples over threads, percentile intervals. */
#include "statistics/resample.h"

#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "base/sort.h"

#include <math.h>
#include <omp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_DRAWS 512

bp_rng_key bp_resample_key(uint64_t seed, int64_t r, int64_t stream)
{
    return bp_rng_key_of(seed, BP_RNG_BOOTSTRAP, 0, r, stream);
}

/* 64 random bits to [0, n): the bias is below n / 2^64. */
static int64_t scale(uint64_t bits, int64_t n)
{
    return (int64_t)(((unsigned __int128)bits * (uint64_t)n) >> 64);
}

void bp_resample_draw(int64_t *drawn, int64_t first, int64_t count, const bp_rng_key *key,
                      int64_t n)
{
    BP_ASSERT(first % 2 == 0 && n > 0);
    for (int64_t i = 0; i < count; i += 2) {
        uint32_t words[4];

        bp_rng_block(words, key, (uint64_t)(first + i) / 2);
        drawn[i] = scale((uint64_t)words[1] << 32 | words[0], n);
        if (i + 1 < count)
            drawn[i + 1] = scale((uint64_t)words[3] << 32 | words[2], n);
    }
}

void bp_resample_counts(int32_t *counts, int64_t n, const bp_rng_key *key)
{
    int64_t drawn[BLOCK_DRAWS];

    memset(counts, 0, (size_t)n * sizeof *counts);
    for (int64_t first = 0; first < n; first += BLOCK_DRAWS) {
        int64_t count = n - first < BLOCK_DRAWS ? n - first : BLOCK_DRAWS;

        bp_resample_draw(drawn, first, count, key, n);
        for (int64_t i = 0; i < count; i++)
            counts[drawn[i]]++;
    }
}

/* What a thread draws into: the counts of all groups side by side. */
typedef struct counts_place {
    int32_t *counts;        /* [documents of all groups] */
    const int32_t **groups; /* [groups] into counts */
} counts_place;

static bp_err places_new(counts_place **out, int threads, const bp_bootstrap *spec)
{
    counts_place *places = bp_try_alloc("statistics.counts", threads, sizeof *places);
    int64_t documents = 0;
    bool ok = places != NULL;

    *out = places;
    for (int64_t g = 0; g < spec->groups; g++)
        documents += spec->documents[g];
    for (int t = 0; t < threads && ok; t++) {
        int64_t start = 0;

        places[t].counts = bp_try_alloc("statistics.counts", documents, sizeof(int32_t));
        places[t].groups = bp_try_alloc("statistics.counts", spec->groups, sizeof(int32_t *));
        ok = places[t].counts && places[t].groups;
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

        bp_resample_counts(place->counts + start, spec->documents[g], &key);
        start += spec->documents[g];
    }
}

/* ---- values that rest on one document ---- */

/* Is document d of all sets drawn in just those resamples in which the value is defined? Then no
 * other one says anything of it. lone[d]: not yet refuted. */
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

/* One document has no spread: what rests only on it is not defined in any resample. */
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
    int64_t documents = 0;
    bool *lone;

    for (int64_t g = 0; g < spec->groups; g++)
        documents += spec->documents[g];
    lone = bp_try_alloc("statistics.counts", documents, sizeof *lone);
    if (!lone)
        return bp_fail_memory("resamples of documents", documents, sizeof *lone);
    for (int64_t c = 0; c < spec->width; c++)
        if (documents < 2 ||
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

/* Within what so many documents can tell from 0 and 1. */
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
