/* A vocabulary split over tensor ranks: who has which rows, and softmax statistics over all of it.
 */
#include "math/kernels.h"
#include "mesh/collective.h"
#include "nn/layers.h"

#include <math.h>

void bp_vocab_share(const bp_nn *nn, int64_t V, int64_t *first, int64_t *count)
{
    int64_t each = (V + nn->tensors - 1) / nn->tensors;
    int64_t begin = each * nn->tensor_at;

    if (begin > V)
        begin = V;
    *first = begin;
    *count = begin + each <= V ? each : V - begin;
}

int64_t bp_head_filled_rows(int64_t rows, int64_t most)
{
    int64_t filled = (rows + BP_HEAD_ROW_CLASS - 1) / BP_HEAD_ROW_CLASS * BP_HEAD_ROW_CLASS;

    return filled < most ? filled : most;
}

void bp_logit_statistics(float *max, double *sums, const bp_logit_rows *in, MPI_Comm tensor)
{
    int64_t rows = in->rows;

    bp_softmax_row_max(max, in->logits, rows, in->V);
    bp_all_max(max, rows, tensor);
    bp_softmax_row_sum(sums, sums + rows, in->logits, max, in->targets, rows, in->V, in->first);
    bp_all_sum_double(sums, 2 * rows, tensor);
}

double bp_logit_logprob(const float *max, const double *sums, int64_t rows, int64_t r)
{
    return sums[rows + r] - (double)max[r] - log(sums[r]);
}
