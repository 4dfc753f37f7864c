/* Rows of a pass over tensor ranks: who has which, and how they become whole. */
#include "base/err.h"
#include "mesh/collective.h"
#include "nn/block.h"

static bool is_shared(const bp_nn *nn, const bp_pass *pass)
{
    return nn->sequence_parallel && nn->tensors > 1 && pass->training;
}

bp_row_range bp_nn_rows(const bp_nn *nn, const bp_pass *pass)
{
    int64_t rows = pass->B * pass->T;

    if (!is_shared(nn, pass))
        return (bp_row_range){0, rows};
    BP_ASSERT(bp_rows_divide(rows, nn->tensors));
    return (bp_row_range){bp_shard_first(rows, nn->tensor_at, nn->tensors), rows / nn->tensors};
}

int64_t bp_nn_sum_floats(const bp_nn *nn, const bp_pass *pass, int64_t C)
{
    int64_t n = pass->B * pass->T * C;

    if (nn->tensors == 1)
        return 0;
    return is_shared(nn, pass) ? bp_reduce_scatter_scratch(n, nn->tensors) : n;
}

void bp_nn_sum(const bp_nn *nn, bp_pass *pass, float *x, int64_t C)
{
    size_t mark = pass->scratch->used_bytes;
    int64_t n = pass->B * pass->T * C;
    float *scratch;

    if (nn->tensors == 1)
        return;
    scratch = bp_arena_floats(pass->scratch, bp_nn_sum_floats(nn, pass, C));
    if (is_shared(nn, pass))
        bp_reduce_scatter(x, n, scratch, nn->tensor);
    else
        bp_all_sum(x, n, scratch, nn->tensor);
    pass->scratch->used_bytes = mark;
}

bp_operand bp_nn_own(const bp_nn *nn, const bp_pass *pass, const bp_operand *all)
{
    bp_row_range own = bp_nn_rows(nn, pass);

    return bp_operand_part(all, own.first, own.count);
}

void bp_nn_gather(const bp_nn *nn, const bp_pass *pass, const bp_operand *all)
{
    BP_ASSERT(all->stride == all->columns);
    if (is_shared(nn, pass))
        bp_all_gather_bytes(
            all->data, (int64_t)bp_operand_bytes(all->form, all->rows, all->columns), nn->tensor);
}
