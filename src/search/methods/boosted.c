/* Boosted trees for the ranking of models. Called by ranker.c. */
#include "search/methods/boosted.h"

#include "base/err.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PENALTY 0.05 /* penalty of a leaf's second derivatives, as a share of a row's pairs */
#define LEAVES  (1 << NAS_DEPTH)

typedef struct boosting {
    const double *x; /* [n][d] */
    int64_t n, d;
    const bool *kept;
    int32_t *order; /* [d][n] rows by each feature, ascending */
    int32_t *node;  /* [n] in the current tree */
    double *u, *g, *h;
    double penalty;
} boosting;

/* Sums of the rows on one side of a split. */
typedef struct half {
    double g, h;
    int64_t rows;
    double last; /* value of its last row */
} half;

typedef struct split {
    double gain, threshold;
    int32_t feature;
} split;

double nas_boosted(const nas_tree *trees, const double *row)
{
    double sum = 0;

    for (int t = 0; t < NAS_TREES; t++) {
        int k = 0;

        while (k < LEAVES - 1) {
            int32_t f = trees[t].feature[k];

            k = 2 * k + (f < 0 || row[f] < trees[t].threshold[k] ? 1 : 2);
        }
        sum += trees[t].leaf[k - (LEAVES - 1)];
    }
    return sum;
}

typedef struct value {
    double x;
    int32_t row;
} value;

static int by_value(const void *a, const void *b)
{
    const value *one = a, *other = b;

    if (one->x != other->x)
        return one->x < other->x ? -1 : 1;
    return one->row < other->row ? -1 : one->row > other->row;
}

static void sort_features(boosting *b)
{
    value *values = bp_alloc("search", b->n, sizeof *values);

    for (int64_t f = 0; f < b->d; f++) {
        for (int64_t i = 0; i < b->n; i++)
            values[i] = (value){b->x[i * b->d + f], (int32_t)i};
        qsort(values, (size_t)b->n, sizeof *values, by_value);
        for (int64_t i = 0; i < b->n; i++)
            b->order[f * b->n + i] = values[i].row;
    }
    bp_free(values);
}

/* First and second derivatives of the mean loss of a row's pairs, at u. */
static void differentiate(boosting *b, const nas_pair *pairs, int64_t count)
{
    memset(b->g, 0, (size_t)b->n * sizeof *b->g);
    memset(b->h, 0, (size_t)b->n * sizeof *b->h);
    for (int64_t k = 0; k < count; k++) {
        int32_t i = pairs[k].better, j = pairs[k].worse;
        double p = 1 / (1 + exp(b->u[j] - b->u[i])), weight = p * (1 - p);

        b->g[i] += 1 - p;
        b->g[j] -= 1 - p;
        b->h[i] += weight;
        b->h[j] += weight;
    }
}

static double score(const boosting *b, double g, double h)
{
    return g * g / (h + b->penalty);
}

/* Finds the best split by feature f of each node of a level; all[]: sums of the nodes. */
static void try_feature(const boosting *b, int32_t f, int first, int nodes, const half *all,
                        split *best)
{
    half left[LEAVES] = {{0}};

    for (int64_t k = 0; k < b->n; k++) {
        int32_t row = b->order[f * b->n + k];
        int at = b->node[row] - first;
        double x = b->x[row * b->d + f];
        half *l = &left[at];

        BP_ASSERT(at >= 0 && at < nodes);
        if (l->rows > 0 && x > l->last) {
            double gain = score(b, l->g, l->h) + score(b, all[at].g - l->g, all[at].h - l->h) -
                          score(b, all[at].g, all[at].h);

            if (gain > best[at].gain)
                best[at] = (split){gain, l->last + (x - l->last) / 2, f};
        }
        l->g += b->g[row];
        l->h += b->h[row];
        l->rows++;
        l->last = x;
    }
}

/* Split the nodes of a level: [first, first + nodes) of the tree. */
static void grow_level(boosting *b, nas_tree *tree, int first, int nodes)
{
    half all[LEAVES] = {{0}};
    split best[LEAVES];

    for (int k = 0; k < nodes; k++)
        best[k] = (split){.gain = 1e-9, .feature = -1};
    for (int64_t i = 0; i < b->n; i++) {
        half *of = &all[b->node[i] - first];

        of->g += b->g[i];
        of->h += b->h[i];
    }
    for (int32_t f = 0; f < b->d; f++)
        if (b->kept[f])
            try_feature(b, f, first, nodes, all, best);
    for (int k = 0; k < nodes; k++) {
        tree->feature[first + k] = best[k].feature;
        tree->threshold[first + k] = best[k].threshold;
    }
    for (int64_t i = 0; i < b->n; i++) {
        int k = b->node[i];
        int32_t f = tree->feature[k];

        b->node[i] = 2 * k + (f < 0 || b->x[i * b->d + f] < tree->threshold[k] ? 1 : 2);
    }
}

static void grow(boosting *b, nas_tree *tree)
{
    double g[LEAVES] = {0}, h[LEAVES] = {0};

    memset(b->node, 0, (size_t)b->n * sizeof *b->node);
    for (int level = 0; level < NAS_DEPTH; level++)
        grow_level(b, tree, (1 << level) - 1, 1 << level);
    for (int64_t i = 0; i < b->n; i++) {
        g[b->node[i] - (LEAVES - 1)] += b->g[i];
        h[b->node[i] - (LEAVES - 1)] += b->h[i];
    }
    for (int k = 0; k < LEAVES; k++)
        tree->leaf[k] = NAS_SHRINKAGE * g[k] / (h[k] + b->penalty);
    for (int64_t i = 0; i < b->n; i++)
        b->u[i] += tree->leaf[b->node[i] - (LEAVES - 1)];
}

void nas_boost(nas_tree *trees, const double *x, int64_t n, int64_t d, const bool *kept,
               const nas_pair *pairs, int64_t count)
{
    boosting b = {.x = x, .n = n, .d = d, .kept = kept};

    memset(trees, 0, NAS_TREES * sizeof *trees);
    if (count == 0)
        return;
    b.penalty = PENALTY * 2 * (double)count / (double)n;
    b.order = bp_alloc("search", n * d, sizeof *b.order);
    b.node = bp_alloc("search", n, sizeof *b.node);
    b.u = bp_alloc("search", 3 * n, sizeof *b.u);
    b.g = b.u + n;
    b.h = b.g + n;
    sort_features(&b);
    for (int t = 0; t < NAS_TREES; t++) {
        differentiate(&b, pairs, count);
        grow(&b, &trees[t]);
    }
    bp_free(b.order);
    bp_free(b.node);
    bp_free(b.u);
}
