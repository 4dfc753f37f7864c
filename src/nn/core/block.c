/* Shared by all blocks: rows carried from step to step, and the memory of products. */
#include "nn/core/block.h"

#include "base/mem.h"

/* In training step s reads the rows of s - 1 and leaves those of s. */
static float *carried_rows(const bp_carry *carry, const bp_pass *pass, int64_t step, bool goes_on)
{
    if (!pass->training)
        return goes_on ? carry->kept + pass->first_window * carry->columns : NULL;
    if (!carry->rows[0])
        return NULL;
    return carry->rows[step & 1] + (pass->first_slot - carry->first_slot) * carry->columns;
}

const float *bp_carry_before(const bp_carry *carry, const bp_pass *pass)
{
    return carried_rows(carry, pass, pass->step - 1, pass->resumes);
}

float *bp_carry_after(const bp_carry *carry, const bp_pass *pass)
{
    return carried_rows(carry, pass, pass->step, pass->suspends);
}

static void add_product(bp_product_bytes *bytes, const bp_nn *nn, size_t scratch, int64_t outs,
                        int64_t ins)
{
    bytes->copies += bp_weight_copy_bytes(nn->gemm, outs, ins);
    bytes->scratch = scratch > bytes->scratch ? scratch : bytes->scratch;
}

void bp_product_bytes_add(bp_product_bytes *bytes, const bp_nn *nn, int64_t rows, int64_t outs,
                          int64_t ins)
{
    add_product(bytes, nn, bp_linear_scratch_bytes(nn->gemm, rows, outs, ins), outs, ins);
}

void bp_product_bytes_add_operands(bp_product_bytes *bytes, const bp_nn *nn, int64_t rows,
                                   int64_t outs, int64_t ins)
{
    add_product(bytes, nn, bp_linear_operand_scratch_bytes(nn->gemm, rows, outs, ins), outs, ins);
}

size_t bp_block_saves_nothing(const bp_block *block, const bp_extent *most)
{
    (void)block, (void)most;
    return 0;
}

bp_product_bytes bp_block_no_products(const bp_block *block, const bp_extent *most)
{
    (void)block, (void)most;
    return (bp_product_bytes){0};
}

bp_err bp_block_binds_nothing(bp_block *block)
{
    (void)block;
    return BP_OK;
}

void bp_block_refreshes_nothing(bp_block *block)
{
    (void)block;
}

void bp_block_free_alone(bp_block *block)
{
    bp_free(block);
}
