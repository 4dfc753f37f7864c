/* The updates of factorise.h: sums over columns are by blocks. */
#include "explain/maps/factorise.h"

#include "mesh/collective.h"

#include <string.h>

#define LEAST 1.1920928955078125e-07 /* 2^-23 */

int64_t bp_factorise_work(int64_t n, int64_t k, int64_t blocks, int64_t width)
{
    return blocks * (n + k) * k + (n + k) * k + 2 * k * width;
}

/* Sums of blocks, in their order: to[count] = from[blocks][count] of all ranks. */
static void add_blocks(double *to, double *from, int64_t blocks, int64_t count, MPI_Comm group)
{
    bp_all_sum_double(from, blocks * count, group);
    memset(to, 0, (size_t)count * sizeof *to);
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t i = 0; i < count; i++)
            to[i] += from[b * count + i];
}

/* X Ht of a block, followed by H Ht. */
static void multiply_block(const bp_factorisation *self, int64_t b, double *products)
{
    int64_t n = self->n, k = self->k, width = self->width;
    const double *h = self->h[b], *x = self->x[b];

#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n + k; i++) {
        const double *row = i < n ? x + i * width : h + (i - n) * width;

        for (int64_t f = 0; f < k; f++) {
            double sum = 0;

#pragma omp simd reduction(+ : sum)
            for (int64_t c = 0; c < width; c++)
                sum += row[c] * h[f * width + c];
            products[i * k + f] = sum;
        }
    }
}

static double scaled(double value, double above, double below)
{
    return value * above / (below == 0 ? LEAST : below);
}

static void update_w(const bp_factorisation *self)
{
    int64_t n = self->n, k = self->k, each = (n + k) * k;
    double *blocks = self->work, *all = self->work + self->blocks * each, *gram = all + n * k;

    memset(blocks, 0, (size_t)(self->blocks * each) * sizeof *blocks);
    for (int64_t b = 0; b < self->blocks; b++)
        if (self->x[b])
            multiply_block(self, b, blocks + b * each);
    add_blocks(all, blocks, self->blocks, each, self->group);
    for (int64_t i = 0; i < n; i++) {
        double *w = self->w + i * k, *below = blocks; /* [k] */

        for (int64_t f = 0; f < k; f++) {
            below[f] = 0;
            for (int64_t g = 0; g < k; g++)
                below[f] += w[g] * gram[g * k + f];
        }
        for (int64_t f = 0; f < k; f++)
            w[f] = scaled(w[f], all[i * k + f], below[f]);
    }
}

/* Columns are independent. */
static void update_h(const bp_factorisation *self, int64_t b, const double *gram)
{
    int64_t n = self->n, k = self->k, width = self->width;
    double *above = self->work + self->blocks * (n + k) * k + (n + k) * k,
           *below = above + k * width, *h = self->h[b];

#pragma omp parallel for schedule(static)
    for (int64_t f = 0; f < k; f++) {
        memset(above + f * width, 0, (size_t)width * sizeof *above);
        memset(below + f * width, 0, (size_t)width * sizeof *below);
        for (int64_t i = 0; i < n; i++)
            for (int64_t c = 0; c < width; c++)
                above[f * width + c] += self->w[i * k + f] * self->x[b][i * width + c];
        for (int64_t g = 0; g < k; g++)
            for (int64_t c = 0; c < width; c++)
                below[f * width + c] += gram[f * k + g] * h[g * width + c];
    }
    for (int64_t c = 0; c < k * width; c++)
        h[c] = scaled(h[c], above[c], below[c]);
}

void bp_factorise_step(const bp_factorisation *self)
{
    int64_t n = self->n, k = self->k;
    double *gram = self->work + self->blocks * (n + k) * k;

    update_w(self);
    memset(gram, 0, (size_t)(k * k) * sizeof *gram);
    for (int64_t i = 0; i < n; i++)
        for (int64_t f = 0; f < k; f++)
            for (int64_t g = 0; g < k; g++)
                gram[f * k + g] += self->w[i * k + f] * self->w[i * k + g];
    for (int64_t b = 0; b < self->blocks; b++)
        if (self->x[b])
            update_h(self, b, gram);
}

double bp_factorise_objective(const bp_factorisation *self)
{
    int64_t n = self->n, k = self->k, width = self->width;
    double *sums = self->work, all;

    memset(sums, 0, (size_t)self->blocks * sizeof *sums);
    for (int64_t b = 0; b < self->blocks; b++)
        for (int64_t i = 0; self->x[b] && i < n; i++)
            for (int64_t c = 0; c < width; c++) {
                double rest = self->x[b][i * width + c];

                for (int64_t f = 0; f < k; f++)
                    rest -= self->w[i * k + f] * self->h[b][f * width + c];
                sums[b] += rest * rest / 2;
            }
    add_blocks(&all, sums, self->blocks, 1, self->group);
    return all;
}
