/* Layer normalisation: threads share the rows; the gradients of gain and bias are sums over blocks
 * of rows, in order. */
#include "base/err.h"
#include "base/trace.h"
#include "math/gemm/operand_pass.h"
#include <math.h>
#include <omp.h>

/* A panel of the residual sum; h NULL: only base, in place. */
static const float *residual_panel(const bp_loops *loops, float *h, const bp_residual *x,
                                   const bp_mask *mask, int64_t at, int64_t n)
{
    if (!h)
        return x->base + at;
    if (x->branch && x->dropout > 0.0f)
        loops->dropout(h + at, x->base + at, x->branch + at, n, mask, x->first + at);
    else if (x->branch)
        loops->sum(h + at, x->base + at, x->branch + at, n);
    else if (h != x->base)
        memcpy(h + at, x->base + at, (size_t)n * sizeof *h);
    return h + at;
}

typedef struct forward {
    const bp_loops *loops;
    const bp_operand *y;
    float *h;
    const bp_norm *norm;
    const bp_residual *x;
    bp_mask mask;
} forward;

static const float ZEROS[BP_PASS_COLUMNS];

/* False: by the root mean square. */
static bool takes_mean(const bp_norm *norm)
{
    return norm->bias || norm->centred;
}

/* For a norm without a mean. */
static float root_mean_square(const bp_loops *loops, const float *row, int64_t C, float epsilon)
{
    return (float)(1.0 / sqrt(loops->square_sum(row, C) / (double)C + (double)epsilon));
}

static void forward_row(const forward *in, int64_t r)
{
    const bp_norm *norm = in->norm;
    int64_t C = in->y->columns;
    float mean, rstd, workspace[BP_PASS_COLUMNS];

    bp_fetch(in->x->base + (r + 1) * C, C);
    if (in->x->branch)
        bp_fetch(in->x->branch + (r + 1) * C, C);
    const float *row = residual_panel(in->loops, in->h, in->x, &in->mask, r * C, C);

    if (takes_mean(norm)) {
        in->loops->norm_statistics(&mean, &rstd, row, C, norm->epsilon);
    } else {
        mean = 0;
        rstd = root_mean_square(in->loops, row, C, norm->epsilon);
    }
    for (int64_t c = 0; c < C; c += BP_PASS_COLUMNS) {
        int64_t n = bp_min(BP_PASS_COLUMNS, C - c);
        float *y = bp_operand_workspace(in->y, r, c, workspace);
        in->loops->norm_apply(y, row + c, norm->gain + c, norm->bias ? norm->bias + c : ZEROS, mean,
                              rstd, n);
        bp_operand_store(in->loops, in->y, r, c, y, n);
    }
    if (norm->mean && takes_mean(norm))
        norm->mean[r] = mean;
    if (norm->rstd)
        norm->rstd[r] = rstd;
}

void bp_layer_norm_forward(const bp_operand *y, float *h, const bp_norm *norm, const bp_residual *x)
{
    forward in = {.loops = bp_loops_best(), .y = y, .h = h, .norm = norm, .x = x};

    BP_TRACE(BP_TRACE_NORM, 0,
             bp_float_bytes(y, 1 + (x->branch != NULL) + (h != NULL)) + bp_operand_moved(y));
    BP_ASSERT(h || !x->branch);
    if (x->branch && x->dropout > 0.0f)
        in.mask = bp_mask_of(x->dropout, x->key);
#pragma omp parallel for schedule(static) if (y->rows * y->columns > 8192)
    for (int64_t r = 0; r < y->rows; r++)
        forward_row(&in, r);
}

int64_t bp_layer_norm_scratch(int64_t rows, int64_t C)
{
    return bp_block_count(rows) * 2 * C;
}

typedef struct backward {
    const bp_loops *loops;
    const bp_norm_gradients *to;
    const bp_operand *y;
    const float *dy, *x;
    const bp_norm *norm;
    int64_t C;
} backward;

/* sums: those of gain, then those of bias */
static void backward_row(const backward *in, int64_t r, float *sums)
{
    const bp_norm *norm = in->norm;
    int64_t C = in->C;
    const float *x = in->x + r * C, *dy = in->dy + r * C;
    float *dx = in->to->dx + r * C, workspace[BP_PASS_COLUMNS];
    bp_norm_row row = {.mean = takes_mean(norm) ? norm->mean[r] : 0, .rstd = norm->rstd[r]};

    in->loops->norm_means(&row.mean_d, &row.mean_dot, dy, x, norm->gain, row.mean, row.rstd, C);
    if (!takes_mean(norm))
        row.mean_d = 0;
    if (in->to->fresh)
        memset(dx, 0, (size_t)C * sizeof *dx);
    for (int64_t c = 0; c < C; c += BP_PASS_COLUMNS) {
        int64_t n = bp_min(BP_PASS_COLUMNS, C - c);
        in->loops->norm_gradient(dx + c, sums + c, sums + C + c, dy + c, x + c, norm->gain + c,
                                 &row, n);
        if (!in->y)
            continue;
        float *y = bp_operand_workspace(in->y, r, c, workspace);
        in->loops->norm_apply(y, x + c, norm->gain + c, norm->bias ? norm->bias + c : ZEROS,
                              row.mean, row.rstd, n);
        bp_operand_store(in->loops, in->y, r, c, y, n);
    }
}

void bp_layer_norm_backward(const bp_norm_gradients *to, const bp_operand *y, const float *dy,
                            const float *x, const bp_norm *norm, int64_t rows, int64_t C,
                            float *scratch)
{
    backward in = {bp_loops_best(), to, y, dy, x, norm, C};
    int64_t blocks = bp_block_count(rows);

    BP_TRACE(BP_TRACE_NORM, 0,
             (to->fresh ? 12.0 : 16.0) * (double)(rows * C) + (y ? bp_operand_moved(y) : 0.0));
#pragma omp parallel if (rows * C > 8192)
    {
#pragma omp for schedule(static)
        for (int64_t block = 0; block < blocks; block++) {
            float *sums = scratch + block * 2 * C;
            memset(sums, 0, (size_t)(2 * C) * sizeof *sums);
            for (int64_t r = block * BP_BLOCK_ROWS; r < bp_min((block + 1) * BP_BLOCK_ROWS, rows);
                 r++)
                backward_row(&in, r, sums);
        }
        int64_t first, last;
        bp_share(C, 16, omp_get_num_threads(), omp_get_thread_num(), &first, &last);
        if (to->dgain)
            in.loops->column_sums(to->dgain + first, scratch + first, blocks, last - first, 2 * C);
        if (norm->bias && to->dbias)
            in.loops->column_sums(to->dbias + first, scratch + C + first, blocks, last - first,
                                  2 * C);
    }
}
