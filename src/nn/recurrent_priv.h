/* The inside of a recurrent layer. */
#ifndef BP_NN_RECURRENT_PRIV_H
#define BP_NN_RECURRENT_PRIV_H

#include "nn/layers.h"

typedef struct recurrent_layer {
    bp_block block;
    bp_recurrent_shape shape;
    int64_t G; /* gates */
    bp_param *input, *hidden, *input_bias, *hidden_bias;
    bp_weight *input_map, *hidden_map;
} recurrent_layer;

static inline recurrent_layer *recurrent_layer_of(const bp_block *block)
{
    return (recurrent_layer *)block;
}

/** One row of a position. new_h may be h, new_c c. */
typedef struct recurrent_row {
    float *gates;       /* [G H] their sums by the input, which become the gates */
    const float *u;     /* [G H] their sums by the state */
    const float *h, *c; /* [H] the state before; c: LSTM */
    float *new_h, *new_c;
    float *kept; /* [H] GRU: the new gate's part of the state, before the reset */
} recurrent_row;

/** Gradients of such a row. */
typedef struct recurrent_gradient {
    float *da, *du; /* [G H] of the sums; du: GRU */
    float *dh;      /* [H] of the new state; in a GRU it leaves with what goes past the gates */
    float *dc;      /* [H] LSTM: of the new cell, and then of the one before */
} recurrent_gradient;

void recurrent_cell_forward(const recurrent_layer *self, const recurrent_row *row);
void recurrent_cell_backward(const recurrent_layer *self, const recurrent_row *row,
                             const recurrent_gradient *to);

/* Decoding: as bp_block_ops.cache, and forward of a pass that continues sequences. */
bool recurrent_cache(const bp_block *block, int64_t slots, int64_t room, bp_cache_need *need);
void recurrent_continue(const recurrent_layer *self, bp_pass *pass, float *rows);

#endif
