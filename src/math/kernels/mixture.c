/* The mixture of an ensemble's distributions: a row is one thread's work, block after block. */
#include "math/kernels/mixture.h"

#include "math/loops/loops.h"
#include <math.h>

/* Columns [first, first + BP_MIXTURE_BLOCK) of row r, cut at its end. */
static bp_mixture_block block_of(const bp_mixture *in, int64_t r, int64_t first)
{
    int64_t left = in->columns - first;

    return (bp_mixture_block){.members = in->members,
                              .columns = left < BP_MIXTURE_BLOCK ? left : BP_MIXTURE_BLOCK,
                              .logits = in->logits + r * in->columns + first,
                              .member_stride = in->member_stride,
                              .known = in->known + r,
                              .known_stride = in->known_stride};
}

/* The first entry of the largest log p so far: NaN is larger than all. */
static void take_top(bp_mixture_row *row, const bp_loops *loops, const float *logprob, int64_t n,
                     int64_t first)
{
    float top = loops->row_max(logprob, n);

    if (!(top > row->top_logprob) && !(isnan(top) && !isnan(row->top_logprob)))
        return;
    row->top_logprob = top;
    for (int64_t i = 0; i < n; i++)
        if (logprob[i] == top || isnan(logprob[i])) {
            row->top = (int32_t)(first + i);
            return;
        }
}

static void mix_row(bp_mixture_row *row, const bp_loops *loops, const bp_mixture *in, int64_t r)
{
    float logprob[BP_MIXTURE_BLOCK], p[BP_MIXTURE_BLOCK];
    double M = (double)in->members;

    *row = (bp_mixture_row){.top_logprob = -INFINITY, .top = INT32_MAX};
    for (int64_t c = 0; c < in->columns; c += BP_MIXTURE_BLOCK) {
        bp_mixture_block block = block_of(in, r, c);
        int64_t target = in->targets[r] - in->first - c;
        double ends[2];

        loops->mixture(logprob, p, ends, &block);
        row->entropy += ends[0];
        row->information += ends[1];
        if (target >= 0 && target < block.columns)
            p[target] = 0;
        row->squares += loops->square_sum(p, block.columns);
        take_top(row, loops, logprob, block.columns, in->first + c);
    }
    row->entropy /= M;
    row->information /= M;
}

void bp_mixture_rows(bp_mixture_row *out, const bp_mixture *in)
{
    const bp_loops *loops = bp_loops_best();

#pragma omp parallel for schedule(static) if (in->rows * in->columns > 8192)
    for (int64_t r = 0; r < in->rows; r++)
        mix_row(&out[r], loops, in, r);
}

void bp_mixture_logprobs(float *logprob, const bp_mixture *in)
{
    const bp_loops *loops = bp_loops_best();

#pragma omp parallel for schedule(static) if (in->rows * in->columns > 8192)
    for (int64_t r = 0; r < in->rows; r++)
        for (int64_t c = 0; c < in->columns; c += BP_MIXTURE_BLOCK) {
            bp_mixture_block block = block_of(in, r, c);
            float p[BP_MIXTURE_BLOCK];
            double ends[2];

            loops->mixture(logprob + r * in->columns + c, p, ends, &block);
        }
}

void bp_mixture_probabilities(float *p, const bp_mixture *in)
{
    const bp_loops *loops = bp_loops_best();

#pragma omp parallel for schedule(static) if (in->rows * in->columns > 8192)
    for (int64_t r = 0; r < in->rows; r++)
        for (int64_t c = 0; c < in->columns; c += BP_MIXTURE_BLOCK) {
            bp_mixture_block block = block_of(in, r, c);
            float logprob[BP_MIXTURE_BLOCK];
            double ends[2];

            loops->mixture(logprob, p + r * in->columns + c, ends, &block);
        }
}

void bp_member_tops(bp_member_row *known, const float *logits, int64_t rows, int64_t columns,
                    int64_t first)
{
    const bp_loops *loops = bp_loops_best();

#pragma omp parallel for schedule(static) if (rows * columns > 8192)
    for (int64_t r = 0; r < rows; r++) {
        int64_t at =
            loops->first_top(logits + r * columns, columns, known[r].max, known[r].log_sum);
        known[r].top = at < columns ? (int32_t)(first + at) : INT32_MAX;
    }
}

static void add_scaled_row(bp_scaled_row *sums, const bp_loops *loops, const bp_mixture *in,
                           int64_t r, float shift, const float *betas, int count)
{
    float logprob[BP_MIXTURE_BLOCK], p[BP_MIXTURE_BLOCK];

    for (int k = 0; k < count; k++)
        sums[k] = (bp_scaled_row){0, 0, 0};
    for (int64_t c = 0; c < in->columns; c += BP_MIXTURE_BLOCK) {
        bp_mixture_block block = block_of(in, r, c);
        double ends[2], some[3];

        loops->mixture(logprob, p, ends, &block);
        for (int k = 0; k < count; k++) {
            loops->temperature(some, logprob, block.columns, shift, betas[k]);
            sums[k].power += some[0];
            sums[k].first += some[1];
            sums[k].second += some[2];
        }
    }
}

void bp_scaled_rows(bp_scaled_row *sums, const bp_mixture *in, const float *shift,
                    const float *betas, int count)
{
    const bp_loops *loops = bp_loops_best();

#pragma omp parallel for schedule(static) if (in->rows * in->columns > 1024)
    for (int64_t r = 0; r < in->rows; r++)
        add_scaled_row(sums + r * count, loops, in, r, shift[r], betas, count);
}
