/* The router of a layer with experts: the experts of each row, and their shares. Called by
 * experts.c. */
#include "nn/transformer/experts_priv.h"

#include "base/err.h"

#include <math.h>
#include <string.h>

#define PANEL 256 /* columns that a thread takes at a time */

static int32_t *ints_of(bp_arena *arena, int64_t count)
{
    return (int32_t *)(void *)bp_arena_floats(arena, count);
}

routing router_alloc(const layer *self, bp_arena *arena, int64_t rows)
{
    int64_t E = self->shape.experts.count, k = self->shape.experts.chosen;
    routing routes = {.probabilities = bp_arena_floats(arena, rows * E),
                      .shares = bp_arena_floats(arena, rows * k),
                      .chosen = ints_of(arena, rows * k),
                      .order = ints_of(arena, rows * k),
                      .first = ints_of(arena, E + 1)};

    if (bp_nn_experts(self->block.nn) > 1) {
        int64_t counts = bp_nn_experts(self->block.nn) * (self->own_experts + 1);

        routes.leaving = ints_of(arena, counts);
        routes.coming = ints_of(arena, counts);
    }
    return routes;
}

static float dot(const float *a, const float *b, int64_t n)
{
    float sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* p[E] = softmax(router x), of a row of operands, a panel of columns at a time. */
static void softmax_row(const layer *self, float *p, const bp_operand *x, int64_t r)
{
    const bp_loops *loops = bp_loops_best();
    int64_t E = self->shape.experts.count, C = self->shape.C;
    float buffer[PANEL], most = -INFINITY, sum = 0;

    memset(p, 0, (size_t)E * sizeof *p);
    for (int64_t c = 0; c < C; c += PANEL) {
        int64_t n = bp_min(PANEL, C - c);
        const float *part = bp_operand_load(loops, x, r, c, buffer, n);

        for (int64_t e = 0; e < E; e++)
            p[e] += dot(self->router->value + e * C + c, part, n);
    }
    for (int64_t e = 0; e < E; e++)
        most = p[e] > most ? p[e] : most;
    for (int64_t e = 0; e < E; e++) {
        p[e] = expf(p[e] - most);
        sum += p[e];
    }
    for (int64_t e = 0; e < E; e++)
        p[e] /= sum;
}

/* The k largest of p[E], in ascending order of their places. */
static void choose(int32_t *chosen, const float *p, int64_t E, int64_t k)
{
    for (int64_t j = 0; j < k; j++) {
        int32_t best = -1;
        int64_t at = j;

        for (int32_t e = 0; e < (int32_t)E; e++) {
            bool taken = false;

            for (int64_t i = 0; i < j; i++)
                taken = taken || chosen[i] == e;
            if (!taken && (best < 0 || p[e] > p[best]))
                best = e;
        }
        for (; at > 0 && chosen[at - 1] > best; at--)
            chosen[at] = chosen[at - 1];
        chosen[at] = best;
    }
}

static void share_row(const layer *self, const routing *routes, int64_t r)
{
    int64_t E = self->shape.experts.count, k = self->shape.experts.chosen;
    const float *p = routes->probabilities + r * E;
    float *shares = routes->shares + r * k, sum = 0;

    choose(routes->chosen + r * k, p, E, k);
    for (int64_t j = 0; j < k; j++) {
        shares[j] = p[routes->chosen[r * k + j]];
        sum += shares[j];
    }
    for (int64_t j = 0; j < k && self->shape.experts.renormalised; j++)
        shares[j] /= sum;
}

/* By counting: stable. */
static void sort_by_expert(const layer *self, const routing *routes, int64_t rows)
{
    int64_t E = self->shape.experts.count, all = rows * self->shape.experts.chosen;
    int32_t *first = routes->first;

    memset(first, 0, (size_t)(E + 1) * sizeof *first);
    for (int64_t i = 0; i < all; i++)
        first[routes->chosen[i] + 1]++;
    for (int64_t e = 0; e < E; e++)
        first[e + 1] += first[e];
    for (int64_t i = 0; i < all; i++)
        routes->order[first[routes->chosen[i]]++] = (int32_t)i;
    memmove(first + 1, first, (size_t)E * sizeof *first); /* each has become the next one's */
    first[0] = 0;
}

void router_forward(const layer *self, const routing *routes, const bp_operand *normed)
{
    BP_ASSERT(normed->rows * self->shape.experts.chosen < INT32_MAX);
#pragma omp parallel for schedule(static) if (normed->rows >= PARALLEL_ROWS)
    for (int64_t r = 0; r < normed->rows; r++) {
        softmax_row(self, routes->probabilities + r * self->shape.experts.count, normed, r);
        share_row(self, routes, r);
    }
    sort_by_expert(self, routes, normed->rows);
}

/* dp[E] of the shares of a row. */
static void share_backward(const layer *self, const routing *routes, int64_t r,
                           const float *dshares, float *dp)
{
    int64_t E = self->shape.experts.count, k = self->shape.experts.chosen;
    const float *p = routes->probabilities + r * E;
    float sum = 1, mean = 0;

    memset(dp, 0, (size_t)E * sizeof *dp);
    if (self->shape.experts.renormalised) {
        sum = 0;
        for (int64_t j = 0; j < k; j++) {
            sum += p[routes->chosen[r * k + j]];
            mean += dshares[j] * routes->shares[r * k + j];
        }
    }
    for (int64_t j = 0; j < k; j++)
        dp[routes->chosen[r * k + j]] = (dshares[j] - mean) / sum;
}

void router_backward(const layer *self, const bp_pass *pass, const saved *kept, float *dlogits,
                     const float *dshares, const float *dP)
{
    int64_t E = self->shape.experts.count, k = self->shape.experts.chosen;

#pragma omp parallel for schedule(static) if (pass->B * pass->T >= PARALLEL_ROWS)
    for (int64_t r = 0; r < pass->B * pass->T; r++) {
        float *d = dlogits + r * E, mean = 0;
        const float *p = kept->routes.probabilities + r * E;

        share_backward(self, &kept->routes, r, dshares + r * k, d);
        for (int64_t e = 0; dP && balance_counts(pass, r) && e < E; e++)
            d[e] += pass->balance_weight * dP[e];
        for (int64_t e = 0; e < E; e++)
            mean += d[e] * p[e];
        for (int64_t e = 0; e < E; e++)
            d[e] = p[e] * (d[e] - mean);
    }
}

static void add_scaled(float *y, float factor, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] += factor * x[i];
}

void router_backward_input(const layer *self, float *dx, const float *dlogits, int64_t rows)
{
    int64_t E = self->shape.experts.count, C = self->shape.C;

#pragma omp parallel for schedule(static) if (rows >= PARALLEL_ROWS)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t e = 0; e < E; e++)
            add_scaled(dx + r * C, dlogits[r * E + e], self->router->value + e * C, C);
}

void router_backward_weight(const layer *self, const float *dlogits, const bp_operand *normed)
{
    const bp_loops *loops = bp_loops_best();
    int64_t E = self->shape.experts.count, C = self->shape.C;

    if (!self->router->gradient)
        return;
#pragma omp parallel for schedule(static) if (normed->rows >= PARALLEL_ROWS)
    for (int64_t c = 0; c < C; c += PANEL) {
        int64_t n = bp_min(PANEL, C - c);
        float buffer[PANEL];

        for (int64_t r = 0; r < normed->rows; r++) {
            const float *x = bp_operand_load(loops, normed, r, c, buffer, n);

            for (int64_t e = 0; e < E; e++)
                add_scaled(self->router->gradient + e * C + c, dlogits[r * E + e], x, n);
        }
    }
}
