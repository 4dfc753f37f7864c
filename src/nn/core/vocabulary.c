/* A vocabulary split over tensor ranks: the distribution of its rows, and softmax statistics over
 * all of it. */
#include "math/kernels/kernels.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"
#include "nn/core/layers.h"

#include <math.h>
#include <string.h>

void bp_vocab_share(const bp_nn *nn, int64_t V, int64_t *first, int64_t *count)
{
    int64_t each = (V + nn->tensor_ranks - 1) / nn->tensor_ranks;
    int64_t begin = each * nn->tensor_rank;

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
    float *here = max + rows;

    bp_softmax_statistics(here, sums, sums + rows, in);
    memcpy(max, here, (size_t)rows * sizeof *max);
    if (bp_comm_size(tensor) == 1)
        return;
    bp_all_max(max, rows, tensor);
    for (int64_t r = 0; r < rows; r++) /* a part without columns has the sum 0 */
        sums[r] *= in->V > 0 ? exp((double)here[r] - (double)max[r]) : 1.0;
    bp_all_sum_double(sums, 2 * rows, tensor);
}

double bp_logit_logprob(const float *max, const double *sums, int64_t rows, int64_t r)
{
    return bp_logit_log_p(max, sums, r, sums[rows + r]);
}

double bp_logit_log_p(const float *max, const double *sums, int64_t r, double logit)
{
    return logit - (double)max[r] - log(sums[r]);
}

void bp_logit_column_sums(float *sums, const bp_operand *dlogits)
{
    enum { COLUMNS = 256 };

#pragma omp parallel for schedule(static) if (dlogits->rows * dlogits->columns > 8192)
    for (int64_t first = 0; first < dlogits->columns; first += COLUMNS) {
        int64_t end = first + COLUMNS < dlogits->columns ? first + COLUMNS : dlogits->columns;

        for (int64_t r = 0; r < dlogits->rows; r++)
            for (int64_t v = first; v < end; v++)
                sums[v] += bp_operand_value(dlogits, r * dlogits->stride + v);
    }
}
