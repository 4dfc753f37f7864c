/* Conformal sets of the mixture's outcomes, row by row, without sorting a vocabulary: the outcomes
 * of a row are counted by the leading bits of their log-probability, the group where the set ends
 * is counted again by the bits that follow, and once more by the last ones, where a group is of
 * equal probabilities. Counts are summed over the ranks that share the vocabulary, so that none
 * sees a whole row. Called after ensemble_mix.c, where sets are asked for. */
#include "infer/ensemble/ensemble_priv.h"

#include "mesh/collective.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define GROUPS 256 /* at most, of a level */

/* Of the 31 bits of a key: 8 (the exponent), 8, 8 and 7. */
static const int SHIFTS[] = {23, 15, 7, 0};
enum { LEVELS = 4, GROUPED = BP_CONFORMAL_KINDS - BP_CONFORMAL_APS };

/* Where the set of aps or raps of a row ends, so far. */
typedef struct set_search {
    bp_conformal_prefix prefix;
    uint32_t key; /* of the group: its leading bits */
    bool ended;
    bp_conformal_set set;
} set_search;

struct ensemble_sets {
    float *logprob;     /* [ENSEMBLE_SET_ROWS][columns] */
    float *of_target;   /* [ENSEMBLE_SET_ROWS] */
    double *sums;       /* [ENSEMBLE_SET_ROWS][3]: before, above, in the set of lac */
    double *groups;     /* [rows][2][GROUPS]: counts and mass; of later levels
                           [rows][GROUPED][2][GROUPS] */
    set_search *search; /* [ENSEMBLE_SET_ROWS][GROUPED] */
};

void ensemble_sets_lay_out(ensemble_work *work, int64_t columns, bp_arena *arena)
{
    ensemble_sets *sets = ensemble_take(arena, 1, sizeof *sets);
    ensemble_sets where = {
        .logprob = ensemble_take(arena, ENSEMBLE_SET_ROWS * columns, sizeof(float)),
        .of_target = ensemble_take(arena, ENSEMBLE_SET_ROWS, sizeof(float)),
        .sums = ensemble_take(arena, 3 * ENSEMBLE_SET_ROWS, sizeof(double)),
        .groups = ensemble_take(arena, ENSEMBLE_SET_ROWS * GROUPED * 2 * GROUPS, sizeof(double)),
        .search = ensemble_take(arena, ENSEMBLE_SET_ROWS * GROUPED, sizeof(set_search))};

    work->set_rows = ensemble_take(arena, work->chunk, sizeof *work->set_rows);
    work->sets = sets;
    if (sets)
        *sets = where;
}

/* ---- a level of groups ---- */

/* Of more probable outcomes the smaller one; 31 bits. */
static uint32_t key_of(float logprob)
{
    float minus = logprob < 0 ? -logprob : 0;
    uint32_t key;

    memcpy(&key, &minus, sizeof key);
    return key;
}

static double probability_of(uint32_t key)
{
    float minus;

    memcpy(&minus, &key, sizeof minus);
    return exp(-(double)minus);
}

/* counts[k] and mass[k] of the groups that this rank's columns are in. */
static void count_first(double *groups, const float *logprob, int64_t columns)
{
    memset(groups, 0, 2 * GROUPS * sizeof *groups);
    for (int64_t v = 0; v < columns; v++) {
        uint32_t key = key_of(logprob[v]), group = key >> SHIFTS[0];

        groups[group]++;
        groups[GROUPS + group] += probability_of(key);
    }
}

/* The same of what begins with the key of each search. */
static void count_next(double *groups, const float *logprob, int64_t columns, int level,
                       const set_search *search)
{
    const uint32_t last = (1U << (SHIFTS[level - 1] - SHIFTS[level])) - 1;

    memset(groups, 0, GROUPED * 2 * GROUPS * sizeof *groups);
    for (int64_t v = 0; v < columns; v++) {
        uint32_t key = key_of(logprob[v]);

        for (int k = 0; k < GROUPED; k++) {
            double *of = groups + (ptrdiff_t)k * 2 * GROUPS;
            uint32_t group = key >> SHIFTS[level] & last;

            if (search[k].ended || key >> SHIFTS[level - 1] != search[k].key)
                continue;
            of[group]++;
            of[GROUPS + group] += probability_of(key);
        }
    }
}

static void narrow(set_search *search, const ensemble *self, int kind, int level,
                   const double *groups, int64_t count)
{
    int64_t group =
        bp_conformal_walk(&search->prefix, kind, &self->sets, groups, groups + count, count);

    if (group == count && level == 0) { /* all outcomes */
        search->ended = true;
        search->set = (bp_conformal_set){(int64_t)search->prefix.count, -1};
        return;
    }
    if (group == count) { /* by rounding: the last one there is */
        for (group = count - 1; group > 0 && groups[group] == 0; group--)
            continue;
        search->prefix.count -= groups[group];
        search->prefix.mass -= groups[count + group];
    }
    search->key = level == 0 ? (uint32_t)group
                             : search->key << (SHIFTS[level - 1] - SHIFTS[level]) | (uint32_t)group;
    if (level + 1 < LEVELS)
        return;
    search->ended = true;
    search->set = bp_conformal_end(&search->prefix, kind, &self->sets, probability_of(search->key),
                                   (int64_t)groups[group]);
}

/* ---- a block of rows ---- */

static void sum_over_ranks(const ensemble *self, double *x, int64_t n)
{
    bp_all_sum_double(x, n, self->mesh->across);
    bp_all_sum_double(x, n, self->mesh->tensor);
}

/* The target's log-probability, known where its column is. */
static void find_targets(const ensemble *self, ensemble_sets *sets, const bp_mixture *in)
{
    for (int64_t r = 0; r < in->rows; r++) {
        int64_t column = in->targets[r] - in->first;

        sets->of_target[r] = column >= 0 && column < in->columns
                                 ? sets->logprob[r * in->columns + column]
                                 : -INFINITY;
    }
    bp_all_max(sets->of_target, in->rows, self->mesh->across);
    bp_all_max(sets->of_target, in->rows, self->mesh->tensor);
}

static void compare_with_target(const ensemble *self, double sums[3], const float *logprob,
                                const bp_mixture *in, int64_t target, float of_target)
{
    uint32_t least = key_of(of_target);

    sums[0] = sums[1] = sums[2] = 0;
    for (int64_t v = 0; v < in->columns; v++) {
        uint32_t key = key_of(logprob[v]);
        bool before = key < least || (key == least && in->first + v < target);

        if (before) {
            sums[0]++;
            sums[1] += probability_of(key);
        }
        sums[2] += bp_conformal_holds(&self->sets, probability_of(key));
    }
}

static void search_sets(const ensemble *self, ensemble_sets *sets, const bp_mixture *in)
{
    int64_t rows = in->rows, columns = in->columns;

    for (int64_t k = 0; k < rows * GROUPED; k++)
        sets->search[k] = (set_search){.ended = false};
    for (int level = 0; level < LEVELS; level++) {
        int64_t stride = (level > 0 ? GROUPED : 1) * 2 * GROUPS; /* of rows */

#pragma omp parallel for schedule(static) if (rows * columns > 8192)
        for (int64_t r = 0; r < rows; r++) {
            double *groups = sets->groups + r * stride;
            const float *logprob = sets->logprob + r * columns;

            if (level == 0)
                count_first(groups, logprob, columns);
            else
                count_next(groups, logprob, columns, level, sets->search + r * GROUPED);
        }
        sum_over_ranks(self, sets->groups, rows * stride);
        for (int64_t k = 0; k < rows * GROUPED; k++) {
            int64_t which = k % GROUPED;
            const double *groups =
                sets->groups + k / GROUPED * stride + (level > 0 ? which * 2 * GROUPS : 0);

            if (!sets->search[k].ended)
                narrow(&sets->search[k], self, BP_CONFORMAL_APS + (int)which, level, groups,
                       GROUPS);
        }
    }
}

static void find_block(ensemble *self, ensemble_work *work, const bp_mixture *in, int64_t first)
{
    ensemble_sets *sets = work->sets;
    bool ends = isfinite(self->sets.threshold[BP_CONFORMAL_APS]) ||
                isfinite(self->sets.threshold[BP_CONFORMAL_RAPS]);

    bp_mixture_logprobs(sets->logprob, in);
    find_targets(self, sets, in);
#pragma omp parallel for schedule(static) if (in->rows * in->columns > 8192)
    for (int64_t r = 0; r < in->rows; r++)
        compare_with_target(self, sets->sums + 3 * r, sets->logprob + r * in->columns, in,
                            in->targets[r], sets->of_target[r]);
    sum_over_ranks(self, sets->sums, 3 * in->rows);
    if (ends)
        search_sets(self, sets, in);
    for (int64_t r = 0; r < in->rows; r++) {
        ensemble_set_row *row = &work->set_rows[first + r];

        row->target = (bp_conformal_target){.p = probability_of(key_of(sets->of_target[r])),
                                            .above = sets->sums[3 * r + 1],
                                            .before = (int64_t)sets->sums[3 * r]};
        row->lac = (int64_t)sets->sums[3 * r + 2];
        for (int k = 0; k < GROUPED; k++)
            row->grouped[k] = ends ? sets->search[r * GROUPED + k].set
                                   : (bp_conformal_set){self->lm.info.vocab_size, -1};
    }
}

void ensemble_find_sets(ensemble *self, ensemble_work *work, const bp_mixture *all)
{
    for (int64_t first = 0; first < all->rows; first += ENSEMBLE_SET_ROWS) {
        int64_t left = all->rows - first;
        bp_mixture block = *all;

        block.rows = left < ENSEMBLE_SET_ROWS ? left : ENSEMBLE_SET_ROWS;
        block.logits += first * all->columns;
        block.known += first;
        block.targets += first;
        find_block(self, work, &block, first);
    }
}

void ensemble_fill_sets(float *values, int64_t stride, const ensemble_set_row *row)
{
    const bp_conformal_set *aps = &row->grouped[0], *raps = &row->grouped[1];

    values[BP_MODEL_SET_RANK * stride] = (float)(row->target.before + 1);
    values[BP_MODEL_SET_LAC * stride] = (float)row->lac;
    values[BP_MODEL_SET_APS * stride] = (float)aps->whole;
    values[BP_MODEL_SET_APS_NEXT * stride] = (float)aps->next;
    values[BP_MODEL_SET_RAPS * stride] = (float)raps->whole;
    values[BP_MODEL_SET_RAPS_NEXT * stride] = (float)raps->next;
}
