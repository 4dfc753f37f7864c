/* Rows of a pass over tensor ranks: which rank has which, and their sums and gathers. */
#include "base/err.h"
#include "base/process/heartbeat.h"
#include "mesh/collective.h"
#include "nn/core/block.h"

static bool is_shared(const bp_nn *nn, const bp_pass *pass)
{
    return nn->sequence_parallel && nn->tensor_ranks > 1 && pass->training;
}

bp_row_range bp_nn_rows(const bp_nn *nn, const bp_pass *pass)
{
    int64_t rows = pass->B * pass->T;

    if (!is_shared(nn, pass))
        return (bp_row_range){0, rows};
    BP_ASSERT(bp_rows_divide(rows, nn->tensor_ranks));
    return (bp_row_range){bp_shard_first(rows, nn->tensor_rank, nn->tensor_ranks),
                          rows / nn->tensor_ranks};
}

int64_t bp_nn_sum_floats(const bp_nn *nn, const bp_pass *pass, int64_t C)
{
    int64_t n = pass->B * pass->T * C;

    if (nn->tensor_ranks == 1)
        return 0;
    return is_shared(nn, pass) ? bp_reduce_scatter_scratch(n, nn->tensor_ranks) : n;
}

void bp_nn_sum(const bp_nn *nn, bp_pass *pass, float *x, int64_t C)
{
    size_t mark = pass->scratch->used_bytes;
    int64_t n = pass->B * pass->T * C;
    float *scratch;

    if (nn->tensor_ranks == 1)
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
    if (is_shared(nn, pass)) /* with what is between rows */
        bp_all_gather_bytes(all->data, (int64_t)bp_operand_bytes(all->form, all->rows, all->stride),
                            nn->tensor);
}

/* ---- passes, and the activations between their blocks ---- */

const bp_block *bp_block_inner(const bp_block *block)
{
    while (block->ops->inner)
        block = block->ops->inner(block);
    return block;
}

void bp_block_forward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved)
{
    bp_heartbeat_progress(); /* a batch may take minutes, a block never */
    bp_pass_go_by(pass, block->stream);
    block->ops->forward(block, pass, activations, saved);
    bp_probe_activations(pass, activations);
}

void bp_block_backward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved)
{
    bp_heartbeat_progress();
    bp_pass_go_by(pass, block->stream);
    block->ops->backward(block, pass, activations, saved);
}

bp_pass bp_pass_over(const bp_batch *batch)
{
    bp_pass pass = {.B = batch->B, .T = batch->stream[0].T, .batch = *batch};

    pass.extent.B = batch->B;
    for (int s = 0; s < BP_STREAMS; s++)
        pass.extent.T[s] = pass.slot_T[s] = batch->stream[s].T;
    return pass;
}

bp_pass bp_pass_planned(const bp_block *block, const bp_extent *most, bool training)
{
    return (bp_pass){.extent = *most,
                     .B = most->B,
                     .T = most->T[block->stream],
                     .stream = block->stream,
                     .training = training,
                     .lent = {.size_bytes = most->lent_bytes}};
}

static int64_t item_floats(const bp_activations *activations, int k, const bp_nn *nn,
                           const bp_pass *pass)
{
    int64_t columns = activations->item[k].columns, inside = activations->item[k].inside;
    bp_pass of_stream = *pass;

    bp_pass_go_by(&of_stream, activations->item[k].stream);
    return bp_nn_rows(nn, &of_stream).count * (inside > columns ? inside : columns);
}

int64_t bp_activations_floats(const bp_activations *activations, const bp_nn *nn,
                              const bp_pass *pass, bool gradients)
{
    int64_t floats = 0;

    for (int k = 0; k < activations->count; k++)
        if (activations->item[k].has_gradient || !gradients)
            floats += item_floats(activations, k, nn, pass);
    return floats;
}

void bp_activations_lay(bp_activations *activations, const bp_nn *nn, const bp_pass *pass,
                        float *data, bool gradients)
{
    for (int k = 0; k < activations->count; k++) {
        bool lies = activations->item[k].has_gradient || !gradients;

        activations->item[k].data = lies ? data : NULL;
        data += lies ? item_floats(activations, k, nn, pass) : 0;
    }
}

void bp_repeat_floats(float *to, const float *from, int64_t floats, int64_t times)
{
    for (int64_t k = 0; k < times && to && floats > 0; k++)
        memcpy(to + k * floats, from, (size_t)floats * sizeof *to);
}

void bp_repeat_rows(const bp_operand *to, const bp_operand *from, int64_t times)
{
    for (int64_t k = 0; k < times && to->data && from->rows > 0; k++)
        memcpy(bp_operand_part(to, k * from->rows, from->rows).data, from->data,
               bp_operand_bytes(from->form, from->rows, from->stride));
}

bool bp_block_repeat(const bp_block *block, const bp_extent *all, const bp_extent *some, void *to,
                     void *from)
{
    if (block->ops->repeat)
        return block->ops->repeat(block, all, some, to, from);
    return block->ops->saved_bytes(block, all) == 0;
}

void bp_activations_repeat(bp_activations *to, const bp_activations *from, const bp_nn *nn,
                           const bp_pass *all, const bp_pass *some)
{
    bp_pass of_stream = *some;

    for (int k = 0; k < to->count; k++) {
        bp_pass_go_by(&of_stream, to->item[k].stream);
        bp_repeat_floats(to->item[k].data, from->item[k].data,
                         bp_nn_rows(nn, &of_stream).count * to->item[k].columns, all->B / some->B);
    }
}

void bp_nn_backward_weight(const bp_nn *nn, bp_param *weights, int count, const bp_operand *dy,
                           const bp_operand *x)
{
    if (weights->gradient)
        bp_linear_backward_weight_operand(nn->gemm, weights->gradient, dy, x,
                                          bp_params_take_fresh(weights, count));
}
