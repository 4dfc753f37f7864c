/* The inside of a recurrent layer. */
#ifndef BP_NN_RECURRENT_PRIV_H
#define BP_NN_RECURRENT_PRIV_H

#include "math/gemm/step.h"
#include "nn/core/layers.h"

typedef struct recurrent_layer {
    bp_block block;
    bp_recurrent_shape shape;
    int64_t G; /* gates */
    bp_param *input, *hidden, *input_bias, *hidden_bias;
    bp_weight *input_map;
    bp_step_weight *hidden_map;
} recurrent_layer;

static inline recurrent_layer *recurrent_layer_of(const bp_block *block)
{
    return (recurrent_layer *)block;
}

/* Decoding: as bp_block_ops.cache, and forward of a pass that continues sequences. */
bool recurrent_cache(const bp_block *block, int64_t slots, int64_t capacity, bp_cache_need *need);
void recurrent_continue(const recurrent_layer *self, bp_pass *pass, float *rows);

#endif
