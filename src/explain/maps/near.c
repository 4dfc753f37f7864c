/* Nearest neighbours of points, by all pairs; graphs of them; and whether maps keep them. Called by
 * projection.c. */
#include "explain/maps/maps.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

#define ROWS 256 /* between two calls of the watch */

static double square_of(const double *a, const double *b, int64_t C)
{
    double sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < C; c++)
        sum += (a[c] - b[c]) * (a[c] - b[c]);
    return sum;
}

/* Inserts a point into an ascending row of k, which has `count` entries; of equal distances the
 * first stays first. */
static void insert(int32_t *points, double *distances, int64_t k, int64_t *count, int32_t point,
                   double distance)
{
    int64_t at = *count;

    while (at > 0 && distances[at - 1] > distance)
        at--;
    if (at == k)
        return;
    *count += *count < k;
    memmove(distances + at + 1, distances + at, (size_t)(*count - at - 1) * sizeof *distances);
    memmove(points + at + 1, points + at, (size_t)(*count - at - 1) * sizeof *points);
    distances[at] = distance;
    points[at] = point;
}

static void find_row(bp_near *out, const bp_map_points *points, int64_t i)
{
    double *distances = out->distance + i * out->k;
    int64_t count = 0;

    for (int64_t j = 0; j < points->n; j++)
        if (j != i)
            insert(out->point + i * out->k, distances, out->k, &count, (int32_t)j,
                   square_of(points->x + i * points->C, points->x + j * points->C, points->C));
    for (int64_t m = 0; m < count; m++)
        distances[m] = sqrt(distances[m]);
}

bp_err bp_near_of(bp_near *out, const bp_map_points *points, int64_t k)
{
    int64_t n = points->n;
    bp_err err = BP_OK;

    *out = (bp_near){.n = n,
                     .k = k,
                     .point = bp_try_alloc("explain.near", n * k, sizeof(int32_t)),
                     .distance = bp_try_alloc("explain.near", n * k, sizeof(double))};
    BP_ASSERT(k < n);
    if (!out->point || !out->distance)
        return bp_fail_memory("nearest neighbours", n * k, sizeof(double));
    for (int64_t first = 0; first < n && err == BP_OK; first += ROWS) {
        int64_t end = first + ROWS < n ? first + ROWS : n;

#pragma omp parallel for schedule(dynamic, 8)
        for (int64_t i = first; i < end; i++)
            find_row(out, points, i);
        err = points->watch.look(points->watch.context);
    }
    return err;
}

void bp_near_clear(bp_near *near)
{
    bp_free(near->point);
    bp_free(near->distance);
    *near = (bp_near){0};
}

/* ---- quality ---- */

/* The k nearest of row i, without itself. */
static void nearest(int32_t *points, double *scratch, const double *distances, int64_t n, int64_t i,
                    int64_t k)
{
    int64_t count = 0;

    for (int64_t j = 0; j < n; j++)
        if (j != i)
            insert(points, scratch, k, &count, (int32_t)j, distances[j]);
}

/* The cost of one side's k `near` on the other side, whose distances are given: ranks above k. */
static double cost(const int32_t *near, int64_t k, const double *distances, int64_t n, int64_t i)
{
    double sum = 0;

    for (int64_t m = 0; m < k; m++) {
        double own = distances[near[m]];
        int64_t rank = 1;

        for (int64_t j = 0; j < n; j++)
            rank += j != i && j != near[m] &&
                    (distances[j] < own || (distances[j] <= own && j < near[m]));
        sum += rank > k ? (double)(rank - k) : 0;
    }
    return sum;
}

/* For row i: costs[2 * count] of false neighbours, and of lost ones. */
static void row_costs(double *costs, const bp_map_quality *maps, int count,
                      const bp_map_points *points, int64_t i, int64_t k)
{
    int64_t n = points->n;
    double *high = bp_alloc("explain.quality", 2 * n + k, sizeof *high), *low = high + n,
           *scratch = low + n;
    int32_t *near = bp_alloc("explain.quality", 2 * k, sizeof *near), *near_low = near + k;

    for (int64_t j = 0; j < n; j++)
        high[j] = square_of(points->x + i * points->C, points->x + j * points->C, points->C);
    nearest(near, scratch, high, n, i, k);
    for (int m = 0; m < count; m++) {
        for (int64_t j = 0; j < n; j++)
            low[j] = square_of(maps[m].y + 2 * i, maps[m].y + 2 * j, 2);
        nearest(near_low, scratch, low, n, i, k);
        costs[2 * m] = cost(near_low, k, high, n, i);
        costs[2 * m + 1] = cost(near, k, low, n, i);
    }
    bp_free(near);
    bp_free(high);
}

bp_err bp_map_qualities(bp_map_quality *maps, int count, const bp_map_points *points, int64_t k)
{
    int64_t n = points->n;
    double *costs = bp_alloc("explain.quality", (int64_t)2 * count * n, sizeof *costs),
           scale = 2 / ((double)n * (double)k * (double)(2 * n - 3 * k - 1));
    bp_err err = BP_OK;

    for (int64_t first = 0; first < n && err == BP_OK; first += ROWS) {
        int64_t end = first + ROWS < n ? first + ROWS : n;

#pragma omp parallel for schedule(dynamic, 8)
        for (int64_t i = first; i < end; i++)
            row_costs(costs + 2 * count * i, maps, count, points, i, k);
        err = points->watch.look(points->watch.context);
    }
    for (int m = 0; m < count; m++) {
        double wrong = 0, lost = 0;

        for (int64_t i = 0; i < n; i++) {
            wrong += costs[2 * count * i + 2 * m];
            lost += costs[2 * count * i + 2 * m + 1];
        }
        maps[m].trustworthiness = 1 - scale * wrong;
        maps[m].continuity = 1 - scale * lost;
    }
    bp_free(costs);
    return err;
}

/* ---- edges ---- */

/* The weight of a row to a point; 0 if it is not among its neighbours. */
static double weight_of(const bp_near *near, const double *w, int64_t i, int32_t j)
{
    for (int64_t m = 0; m < near->k; m++)
        if (near->point[i * near->k + m] == j)
            return w[i * near->k + m];
    return 0;
}

static bool is_near(const bp_near *near, int64_t i, int32_t j)
{
    for (int64_t m = 0; m < near->k; m++)
        if (near->point[i * near->k + m] == j)
            return true;
    return false;
}

static void sort_row(int32_t *to, double *weight, int64_t count)
{
    for (int64_t m = 1; m < count; m++) { /* short rows, nearly in order */
        int32_t point = to[m];
        double own = weight[m];
        int64_t at = m;

        for (; at > 0 && to[at - 1] > point; at--) {
            to[at] = to[at - 1];
            weight[at] = weight[at - 1];
        }
        to[at] = point;
        weight[at] = own;
    }
}

void bp_edges_of(bp_edges *out, const bp_near *near, const double *w, bool fuzzy)
{
    int64_t n = near->n, k = near->k, *next = bp_alloc("explain.edges", n, sizeof *next);

    *out = (bp_edges){.n = n, .first = bp_alloc("explain.edges", n + 1, sizeof(int64_t))};
    for (int64_t i = 0; i < n; i++) /* its own neighbours, and those that it is one of */
        for (int64_t m = 0; m < k; m++) {
            int32_t j = near->point[i * k + m];

            out->first[i + 1]++;
            if (!is_near(near, j, (int32_t)i))
                out->first[j + 1]++;
        }
    for (int64_t i = 0; i < n; i++) {
        out->first[i + 1] += out->first[i];
        next[i] = out->first[i];
    }
    out->to = bp_alloc("explain.edges", out->first[n], sizeof *out->to);
    out->weight = bp_alloc("explain.edges", out->first[n], sizeof *out->weight);
    for (int64_t i = 0; i < n; i++)
        for (int64_t m = 0; m < k; m++) {
            int32_t j = near->point[i * k + m];
            double own = w[i * k + m], other = weight_of(near, w, j, (int32_t)i),
                   both = fuzzy ? own + other - own * other : (own + other) / (2 * (double)n);

            out->to[next[i]] = j;
            out->weight[next[i]++] = both;
            if (!is_near(near, j, (int32_t)i)) {
                out->to[next[j]] = (int32_t)i;
                out->weight[next[j]++] = both;
            }
        }
    for (int64_t i = 0; i < n; i++)
        sort_row(out->to + out->first[i], out->weight + out->first[i],
                 out->first[i + 1] - out->first[i]);
    bp_free(next);
}

void bp_edges_clear(bp_edges *edges)
{
    bp_free(edges->first);
    bp_free(edges->to);
    bp_free(edges->weight);
    *edges = (bp_edges){0};
}
