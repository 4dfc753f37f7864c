/* Rows of outcomes under 1.5-entmax, whose columns are split over tensor ranks. Called by
 * lm_head_chunk.c and lm_head_pieces.c. */
#include "nn/heads/entmax_rows_priv.h"

#include "math/kernels/entmax.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"

#include <math.h>
#include <string.h>

static double *doubles(bp_arena *arena, int64_t n)
{
    return (double *)(void *)bp_arena_floats(arena, 2 * n);
}

entmax_rows entmax_rows_alloc(bp_arena *arena, int64_t rows)
{
    entmax_rows to = {0};

    to.tau = doubles(arena, rows);
    to.loss = doubles(arena, rows);
    to.logprob = doubles(arena, rows);
    to.sums = doubles(arena, 3 * rows);
    to.target = doubles(arena, rows);
    to.max = bp_arena_floats(arena, rows);
    to.done = (bool *)(void *)bp_arena_floats(arena, rows);
    return to;
}

/* Sums of the rows above their thresholds; 0 for rows that are done, or without columns here. */
static void sum_rows(entmax_rows *to, const bp_logit_rows *in, MPI_Comm tensor)
{
    memset(to->sums, 0, (size_t)(3 * in->rows) * sizeof *to->sums);
    if (in->V > 0)
        bp_entmax_sums(to->sums, in->logits, in->rows, in->V, to->tau, to->done);
    if (bp_comm_size(tensor) > 1)
        bp_all_sum_double(to->sums, 3 * in->rows, tensor);
}

static void find_thresholds(entmax_rows *to, const bp_logit_rows *in, MPI_Comm tensor)
{
    bool all = false;

    bp_entmax_max(to->max, in->logits, in->rows, in->V);
    if (bp_comm_size(tensor) > 1)
        bp_all_max(to->max, in->rows, tensor);
    for (int64_t r = 0; r < in->rows; r++) {
        to->tau[r] = bp_entmax_begin(to->max[r]);
        to->done[r] = false;
    }
    for (int k = 0; k < BP_ENTMAX_STEPS && !all; k++) {
        sum_rows(to, in, tensor);
        all = true;
        for (int64_t r = 0; r < in->rows; r++) {
            to->done[r] =
                to->done[r] || bp_entmax_step(&to->tau[r], to->sums[3 * r], to->sums[3 * r + 1]);
            all = all && to->done[r];
        }
    }
    memset(to->done, 0, (size_t)in->rows * sizeof *to->done);
}

/* With d = sqrt(p): logits of the support are 2 (d + tau), so p z = 2 sum of d^3 + 2 tau. */
void entmax_rows_forward(entmax_rows *to, const bp_logit_rows *in, MPI_Comm tensor)
{
    find_thresholds(to, in, tensor);
    for (int64_t r = 0; r < in->rows; r++) {
        int64_t at = in->targets[r] - in->first;

        to->target[r] = at >= 0 && at < in->V ? (double)in->logits[r * in->V + at] : 0;
    }
    if (bp_comm_size(tensor) > 1)
        bp_all_sum_double(to->target, in->rows, tensor);
    sum_rows(to, in, tensor);
    for (int64_t r = 0; r < in->rows; r++) {
        double above = 0.5 * to->target[r] - to->tau[r];

        to->loss[r] = 2.0 / 3.0 * to->sums[3 * r + 2] + 2 * to->tau[r] + 4.0 / 3.0 - to->target[r];
        to->logprob[r] = above > 0 ? 2 * log(above) : isnan(to->tau[r]) ? NAN : (double)ENTMAX_ZERO;
    }
}
