/* The table of one instruction set's loops. */
#include "math/loops_names_priv.h"

extern const bp_loops LOOP(table);
const bp_loops LOOP(table) = {
    .name = LOOP_TEXT(BP_LOOPS_ISA),
    .gelu_forward = LOOP(gelu_forward),
    .gelu_backward = LOOP(gelu_backward),
    .add = LOOP(add),
    .sum = LOOP(sum),
    .scale = LOOP(scale),
    .dropout = LOOP(dropout),
    .to_bf16 = LOOP(to_bf16),
    .round_bf16 = LOOP(round_bf16),
    .pair_bf16 = LOOP(pair_bf16),
    .column_sums = LOOP(column_sums),
    .norm_forward = LOOP(norm_forward),
    .norm_backward = LOOP(norm_backward),
    .row_max = LOOP(row_max),
    .exp_sum = LOOP(exp_sum),
    .exp_scale = LOOP(exp_scale),
    .square_sum = LOOP(square_sum),
    .adamw = LOOP(adamw),
    .sgd = LOOP(sgd),
    .tile_product = LOOP(tile_product),
    .tile_softmax = LOOP(tile_softmax),
    .tile_weights = LOOP(tile_weights),
    .tile_score_gradient = LOOP(tile_score_gradient),
    .tile_mask = LOOP(tile_mask),
    .multiply = LOOP(multiply),
    .scale_columns = LOOP(scale_columns),
    .transpose_in = LOOP(transpose_in),
    .transpose_out = LOOP(transpose_out),
};
