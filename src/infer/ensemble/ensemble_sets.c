/* Conformal sets of the mixture's outcomes, row by row, without sorting a vocabulary: the outcomes
 * of a row are counted by the leading bits of their probability. The group in which the set ends is
 * counted again by the next bits, and finally by the last bits, where a group has equal
 * probabilities. Counts are summed over the ranks that divide the vocabulary, so that no rank needs
 * a whole row. Called after ensemble_mix.c, if sets are requested. */
#include "infer/ensemble/ensemble_priv.h"

#include "mesh/collective.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define GROUPS      256         /* maximum, of a level */
#define BITS_OF_ONE 0x3f800000U /* as a float */

/* The passes sort the 30 bits of a key by 7 (each a factor of 2), 8, 8 and 7. */
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
    uint32_t *keys;     /* [ENSEMBLE_SET_ROWS][columns]; at first probabilities */
    int64_t *left;      /* [ENSEMBLE_SET_ROWS] keys at which a set may end */
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
        .keys = ensemble_take(arena, ENSEMBLE_SET_ROWS * columns, sizeof(uint32_t)),
        .left = ensemble_take(arena, ENSEMBLE_SET_ROWS, sizeof(int64_t)),
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

/* More probable outcomes have smaller keys: the distance from 1 in units of floats, 30 bits. */
static uint32_t key_of(float p)
{
    float within = p > 0 ? p : 0;
    uint32_t bits;

    memcpy(&bits, &within, sizeof bits);
    return bits < BITS_OF_ONE ? BITS_OF_ONE - bits : 0;
}

static double probability_of(uint32_t key)
{
    uint32_t bits = BITS_OF_ONE - key;
    float p;

    memcpy(&p, &bits, sizeof p);
    return (double)p;
}

/* counts[k] and mass[k] of the groups that this rank's columns are in. Two sums of each, so that
 * one does not wait for the other. */
static void count_first(double *groups, const uint32_t *keys, int64_t columns)
{
    uint32_t counts[2][GROUPS] = {{0}};
    double mass[2][GROUPS] = {{0}};

    for (int64_t v = 0; v < columns; v++) {
        uint32_t group = keys[v] >> SHIFTS[0];

        counts[v & 1][group]++;
        mass[v & 1][group] += probability_of(keys[v]);
    }
    for (int64_t k = 0; k < GROUPS; k++) {
        groups[k] = (double)counts[0][k] + (double)counts[1][k];
        groups[GROUPS + k] = mass[0][k] + mass[1][k];
    }
}

/* The same for keys with the leading bits of a search's key; the others are removed. Returns how
 * many keys remain. */
static int64_t count_next(double *groups, uint32_t *keys, int64_t count, int level,
                          const set_search *search)
{
    const int before = SHIFTS[level - 1], shift = SHIFTS[level];
    const uint32_t last = (1U << (before - shift)) - 1;
    int64_t kept = 0;

    memset(groups, 0, GROUPED * 2 * GROUPS * sizeof *groups);
    for (int64_t v = 0; v < count; v++) {
        uint32_t key = keys[v], group = key >> shift & last;
        bool stays = false;

        for (int k = 0; k < GROUPED; k++) {
            double *of = groups + (ptrdiff_t)k * 2 * GROUPS;

            if (key >> before != search[k].key || search[k].ended)
                continue;
            of[group]++;
            of[GROUPS + group] += probability_of(key);
            stays = true;
        }
        if (stays)
            keys[kept++] = key;
    }
    return kept;
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
    if (group == count) { /* only by rounding: the last one */
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

/* The target's probability, known on the rank that has its column. */
static void find_targets(const ensemble *self, ensemble_sets *sets, const float *p,
                         const bp_mixture *in)
{
    for (int64_t r = 0; r < in->rows; r++) {
        int64_t column = in->targets[r] - in->first;

        sets->of_target[r] = column >= 0 && column < in->columns ? p[r * in->columns + column] : -1;
    }
    bp_all_max(sets->of_target, in->rows, self->mesh->across);
    bp_all_max(sets->of_target, in->rows, self->mesh->tensor);
}

/* Count a row's outcomes before its target, and in the set of lac; convert its probabilities to
 * keys. */
static void compare_with_target(const ensemble *self, double sums[3], uint32_t *keys,
                                const float *p, const bp_mixture *in, int64_t r, float of_target)
{
    uint32_t least = key_of(of_target);
    int64_t before = 0, within = 0, target = in->targets[r] - in->first;
    double above = 0;

    for (int64_t v = 0; v < in->columns; v++) {
        uint32_t key = key_of(p[v]);

        if (key < least || (key == least && v < target)) {
            before++;
            above += probability_of(key);
        }
        within += bp_conformal_holds(&self->sets, probability_of(key));
        keys[v] = key;
    }
    sums[0] = (double)before;
    sums[1] = above;
    sums[2] = (double)within;
}

static void search_sets(const ensemble *self, ensemble_sets *sets, const bp_mixture *in)
{
    int64_t rows = in->rows, columns = in->columns;

    for (int64_t k = 0; k < rows * GROUPED; k++)
        sets->search[k] = (set_search){.ended = false};
    for (int64_t r = 0; r < rows; r++)
        sets->left[r] = columns;
    for (int level = 0; level < LEVELS; level++) {
        int64_t stride = (level > 0 ? GROUPED : 1) * 2 * GROUPS; /* of rows */

#pragma omp parallel for schedule(static) if (rows * columns > 8192)
        for (int64_t r = 0; r < rows; r++) {
            double *groups = sets->groups + r * stride;
            uint32_t *keys = sets->keys + r * columns;

            if (level == 0)
                count_first(groups, keys, columns);
            else
                sets->left[r] =
                    count_next(groups, keys, sets->left[r], level, sets->search + r * GROUPED);
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

    float *p = (float *)(void *)sets->keys;

    bp_mixture_probabilities(p, in);
    find_targets(self, sets, p, in);
#pragma omp parallel for schedule(static) if (in->rows * in->columns > 8192)
    for (int64_t r = 0; r < in->rows; r++)
        compare_with_target(self, sets->sums + 3 * r, sets->keys + r * in->columns,
                            p + r * in->columns, in, r, sets->of_target[r]);
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
                                   : (bp_conformal_set){self->model.info.vocab_size, -1};
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
