/* The passes of a state-space layer between its products: the convolution over the last positions,
 * the steps, and the gated norm. Called by state_space.c. Threads share rows, or columns where sums
 * cross rows: these are added in row order. */
#include "nn/recurrent/state_space_priv.h"

#include "math/kernels/kernels.h"
#include "math/loops/loops.h"
#include "mesh/collective.h"

#include <math.h>
#include <string.h>

#define RUN 256 /* columns at once */

static int64_t run_at(int64_t columns, int64_t first)
{
    return columns - first < RUN ? columns - first : RUN;
}

/* ---- the convolution ---- */

int64_t mix_scratch(const mixed_columns *by, int64_t K)
{
    return K * by->columns;
}

/* transposed[K][columns] */
static void transpose_taps(float *transposed, const mixed_columns *by, int64_t K)
{
    for (int64_t c = 0; c < by->columns; c++)
        for (int64_t k = 0; k < K; k++)
            transposed[k * by->columns + c] = by->taps->value[c * K + k];
}

/* The row of place t of sequence b, perhaps before the first one; NULL: zeros. */
static const float *row_at(const mixed_rows *in, int64_t K, int64_t b, int64_t t)
{
    if (t >= 0)
        return in->rows + (b * in->T + t) * in->row;
    return in->before ? in->before + b * in->before_sequence + (K - 1 + t) * in->before_row : NULL;
}

/* sums[n] of columns [first, first + n) of one place. */
static void mix_sums(float *sums, const float *transposed, const mixed_columns *by, int64_t K,
                     const mixed_rows *in, int64_t place, int64_t first, int64_t n)
{
    int64_t b = place / in->T, t = place % in->T;

    memcpy(sums, by->bias->value + first, (size_t)n * sizeof *sums);
    for (int64_t k = 0; k < K; k++) {
        const float *x = row_at(in, K, b, t - K + 1 + k),
                    *tap = transposed + k * by->columns + first;

        for (int64_t c = 0; x && c < n; c++)
            sums[c] += tap[c] * x[first + c];
    }
}

static void set_ones(float ones[RUN])
{
    for (int64_t c = 0; c < RUN; c++)
        ones[c] = 1;
}

void mix_forward(float *to, const mixed_columns *by, int64_t K, const mixed_rows *in,
                 float *scratch)
{
    const bp_loops *loops = bp_loops_best();
    float ones[RUN];

    set_ones(ones);
    transpose_taps(scratch, by, K);
#pragma omp parallel for schedule(static) if (in->B * in->T * by->columns > 8192)
    for (int64_t r = 0; r < in->B * in->T; r++)
        for (int64_t c = 0; c < by->columns; c += RUN) {
            int64_t n = run_at(by->columns, c);
            float sums[RUN];

            mix_sums(sums, scratch, by, K, in, r, c, n);
            loops->swiglu_forward(to + r * by->columns + c, sums, ones, n);
        }
}

/* d of the results becomes that of their sums. */
static void open_silu(float *d, const float *transposed, const mixed_columns *by, int64_t K,
                      const mixed_rows *in)
{
    const bp_loops *loops = bp_loops_best();
    float ones[RUN];

    set_ones(ones);
#pragma omp parallel for schedule(static) if (in->B * in->T * by->columns > 8192)
    for (int64_t r = 0; r < in->B * in->T; r++)
        for (int64_t c = 0; c < by->columns; c += RUN) {
            int64_t n = run_at(by->columns, c);
            float sums[RUN], again[RUN], slopes[RUN], unused[RUN];
            float *at = d + r * by->columns + c;

            mix_sums(sums, transposed, by, K, in, r, c, n);
            loops->swiglu_backward(again, slopes, unused, at, sums, ones, n);
            memcpy(at, slopes, (size_t)n * sizeof *at);
        }
}

/* A row is read by its own place and the next K - 1. */
static void give_rows(float *dx, int64_t dx_row, const float *d, const float *transposed,
                      const mixed_columns *by, int64_t K, const mixed_rows *in)
{
#pragma omp parallel for schedule(static) if (in->B * in->T * by->columns > 8192)
    for (int64_t r = 0; r < in->B * in->T; r++) {
        float *to = dx + r * dx_row;

        bp_zero(to, by->columns);
        for (int64_t k = K - 1; k >= 0 && r % in->T + K - 1 - k < in->T; k--) {
            const float *from = d + (r + K - 1 - k) * by->columns,
                        *tap = transposed + k * by->columns;

            for (int64_t c = 0; c < by->columns; c++)
                to[c] += tap[c] * from[c];
        }
    }
}

/* One column. */
static void give_taps(const mixed_columns *by, const float *d, int64_t K, const mixed_rows *in,
                      int64_t c)
{
    double bias = 0;

    for (int64_t r = 0; r < in->B * in->T; r++)
        bias += (double)d[r * by->columns + c];
    if (by->bias->gradient)
        by->bias->gradient[c] += (float)bias;
    for (int64_t k = 0; by->taps->gradient && k < K; k++) {
        double sum = 0;

        for (int64_t r = 0; r < in->B * in->T; r++) {
            const float *x = row_at(in, K, r / in->T, r % in->T - K + 1 + k);

            sum += x ? (double)d[r * by->columns + c] * (double)x[c] : 0;
        }
        by->taps->gradient[c * K + k] += (float)sum;
    }
}

void mix_backward(float *dx, int64_t dx_row, float *d, const mixed_columns *by, int64_t K,
                  const mixed_rows *in, float *scratch)
{
    transpose_taps(scratch, by, K);
    open_silu(d, scratch, by, K, in);
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < by->columns; c++)
        give_taps(by, d, K, in, c);
    give_rows(dx, dx_row, d, scratch, by, K, in);
}

/* ---- steps ---- */

static double softplus(double x)
{
    return x > 20 ? x : log1p(exp(x));
}

static float limited(const state_space *self, double dt)
{
    const bp_state_space_shape *s = &self->shape;

    if (dt < (double)s->least_step)
        return s->least_step;
    return s->most_step > 0 && dt > (double)s->most_step ? s->most_step : (float)dt;
}

void steps_forward(float *dt, const state_space *self, const float *raw, int64_t row, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < self->Hl; h++)
            dt[r * self->Hl + h] = limited(
                self, softplus((double)raw[r * row + h] + (double)self->step_bias->value[h]));
}

void steps_backward(float *draw, const state_space *self, const float *ddt, const float *raw,
                    int64_t row, int64_t rows)
{
    for (int64_t h = 0; h < self->Hl; h++) {
        double sum = 0;

        for (int64_t r = 0; r < rows; r++) {
            double x = (double)raw[r * row + h] + (double)self->step_bias->value[h],
                   dt = softplus(x), slope = (double)ddt[r * self->Hl + h] / (1 + exp(-x));
            float *to = &draw[r * row + h];

            *to = limited(self, dt) == (float)dt ? (float)slope : 0;
            sum += (double)*to;
        }
        if (self->step_bias->gradient)
            self->step_bias->gradient[h] += (float)sum;
    }
}

/* ---- the gated norm ---- */

static void sum_over_ranks(const state_space *self, double *sums, int64_t rows)
{
    if (self->block.nn->tensor_ranks > 1)
        bp_all_sum_double(sums, rows, self->block.nn->tensor);
}

static double all_columns(const state_space *self)
{
    return (double)(self->shape.H * self->shape.P);
}

void gate_forward(float *v, const state_space *self, const float *y, const float *z, int64_t z_row,
                  int64_t rows)
{
    const bp_loops *loops = bp_loops_best();
    int64_t M = self->Ml;

#pragma omp parallel for schedule(static) if (rows * M > 8192)
    for (int64_t r = 0; r < rows; r++)
        loops->swiglu_forward(v + r * M, z + r * z_row, y + r * M, M);
}

void gate_statistics(float *rstd, double *sums, const state_space *self, const float *v,
                     int64_t rows)
{
    const bp_loops *loops = bp_loops_best();

#pragma omp parallel for schedule(static) if (rows * self->Ml > 8192)
    for (int64_t r = 0; r < rows; r++)
        sums[r] = loops->square_sum(v + r * self->Ml, self->Ml);
    sum_over_ranks(self, sums, rows);
    for (int64_t r = 0; r < rows; r++)
        rstd[r] = (float)(1 / sqrt(sums[r] / all_columns(self) + (double)self->shape.epsilon));
}

void gate_norm(const bp_operand *n, const state_space *self, float *v, const float *rstd)
{
    const float *gain = self->gate_gain->value;
    int64_t M = self->Ml;

#pragma omp parallel for schedule(static) if (n->rows * M > 8192)
    for (int64_t r = 0; r < n->rows; r++)
        for (int64_t c = 0; c < M; c++)
            v[r * M + c] *= rstd[r] * gain[c];
    bp_operand_fill(n, v);
}

static void give_gain(const state_space *self, const float *dn, const float *v, const float *rstd,
                      int64_t rows)
{
    int64_t M = self->Ml;
    float *to = self->gate_gain->gradient;

#pragma omp parallel for schedule(static) if (rows * M > 8192)
    for (int64_t c = 0; c < M; c++) {
        double sum = 0;

        for (int64_t r = 0; r < rows; r++)
            sum += (double)dn[r * M + c] * (double)v[r * M + c] * (double)rstd[r];
        to[c] += (float)sum;
    }
}

/* dn becomes the gradient of v. */
static void open_norm(float *dn, const state_space *self, const float *v, double *sums,
                      const float *rstd, int64_t rows)
{
    const float *gain = self->gate_gain->value;
    int64_t M = self->Ml;

#pragma omp parallel for schedule(static) if (rows * M > 8192)
    for (int64_t r = 0; r < rows; r++) {
        sums[r] = 0;
        for (int64_t c = 0; c < M; c++)
            sums[r] += (double)dn[r * M + c] * (double)gain[c] * (double)v[r * M + c];
    }
    sum_over_ranks(self, sums, rows);
#pragma omp parallel for schedule(static) if (rows * M > 8192)
    for (int64_t r = 0; r < rows; r++) {
        float less = (float)(sums[r] * (double)rstd[r] * (double)rstd[r] / all_columns(self));

        for (int64_t c = 0; c < M; c++)
            dn[r * M + c] = rstd[r] * (dn[r * M + c] * gain[c] - v[r * M + c] * less);
    }
}

void gate_backward(float *dn, float *dz, const state_space *self, const float *v, double *sums,
                   const float *rstd, const float *y, const float *z, int64_t z_row, int64_t rows)
{
    const bp_loops *loops = bp_loops_best();
    int64_t M = self->Ml;

    if (self->gate_gain->gradient)
        give_gain(self, dn, v, rstd, rows);
    open_norm(dn, self, v, sums, rstd, rows);
#pragma omp parallel for schedule(static) if (rows * M > 8192)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < M; c += RUN) {
            int64_t n = run_at(M, c), at = r * M + c;
            float again[RUN], dy[RUN];

            loops->swiglu_backward(again, dz + r * z_row + c, dy, dn + at, z + r * z_row + c,
                                   y + at, n);
            memcpy(dn + at, dy, (size_t)n * sizeof *dy);
        }
}

static float dropout_of(const state_space *self, const bp_pass *pass)
{
    return pass->dropout ? self->block.nn->dropout : 0;
}

void branch_add(float *h, const float *base, float *branch, const state_space *self,
                const bp_pass *pass)
{
    const bp_nn *nn = self->block.nn;
    int64_t C = self->shape.C, floats = pass->B * pass->T * C;
    bp_rng_key key = bp_dropout_key(nn, pass, self->shape.dropout_stream);

    if (self->shape.branch_scale > 0)
        bp_scale(branch, self->shape.branch_scale, floats);
    bp_add_dropout(h, base, branch, floats, dropout_of(self, pass), &key,
                   bp_nn_first_row(nn, pass) * C);
}

void branch_open(const bp_operand *dbranch, const float *dh, float *rows, const state_space *self,
                 const bp_pass *pass)
{
    const bp_nn *nn = self->block.nn;
    int64_t N = pass->B * pass->T, C = self->shape.C;
    bp_rng_key key = bp_dropout_key(nn, pass, self->shape.dropout_stream);
    bool scaled = self->shape.branch_scale > 0;
    bp_operand to = bp_operand_floats(rows, N, C);

    bp_dropout_backward_operand(scaled ? &to : dbranch, NULL, dh, dropout_of(self, pass), &key,
                                bp_nn_first_row(nn, pass) * C);
    if (!scaled)
        return;
    bp_scale(rows, self->shape.branch_scale, N * C);
    bp_operand_fill(dbranch, rows);
}
