/* The inside of a recurrent layer. */
#pragma once

#include "math/gemm/step.h"
#include "nn/core/layers.h"

#define BP_GRAPH_EDGES (BP_CELL_NODES * (BP_CELL_NODES + 1) / 2) /* most */

typedef struct recurrent_layer {
    bp_block block;
    bp_recurrent_shape shape;
    int64_t G; /* gates */
    bp_param *input, *hidden, *input_bias, *hidden_bias;
    bp_weight *input_map;
    bp_step_weight *hidden_map;
    /* a graph's */
    bp_param *nodes;                                  /* [2 H nodes][H] */
    bp_step_weight *node_maps[BP_CELL_NODES];         /* of node i at i - 1 */
    bp_param *mix;                                    /* [edges][operations] of a mixed cell */
    float shares[BP_GRAPH_EDGES][BP_NODE_OPERATIONS]; /* of a mixed cell */
} recurrent_layer;

static inline recurrent_layer *recurrent_layer_of(const bp_block *block)
{
    return (recurrent_layer *)block;
}

/* Decoding: as bp_block_ops.cache, and forward of a pass that continues sequences. */
bool recurrent_cache(const bp_block *block, int64_t slots, int64_t capacity, bp_cache_need *need);
void recurrent_continue(const recurrent_layer *self, bp_pass *pass, float *rows);

/* ---- the nodes of a cell that is a graph (cell_graph.c) ---- */

/* Computed by forward and read by backward, for T positions of B sequences. */
typedef struct graph_states {
    int64_t B, T;
    float *node; /* [T][nodes + 1][B][H] */
    float *sums; /* for nodes from 1 on: [T][its edges][B][2 H], node by node */
    float *rstd; /* [T][nodes + 1][H] of a mixed cell */
} graph_states;

/* What backward works in. */
typedef struct graph_gradients {
    float *node;     /* [nodes + 1][B][H] of a position */
    float *past;     /* [edges of a node][B][H] */
    float *read;     /* [T][edges of a node][B][H] */
    double *scratch; /* bp_node_scratch */
    double share[BP_GRAPH_EDGES][BP_NODE_OPERATIONS];
} graph_gradients;

graph_states graph_alloc(const recurrent_layer *self, bp_arena *arena, int64_t B, int64_t T);
graph_gradients graph_alloc_gradients(const recurrent_layer *self, bp_arena *arena, int64_t B,
                                      int64_t T);
/* Position t: new_h from h, the gates' sums by the input and u. */
void graph_forward(const recurrent_layer *self, const graph_states *g, const bp_cell_units *units,
                   int64_t t);
/* da from dh, which becomes the gradient that bypasses the gates; sums become gradients. */
void graph_backward(const recurrent_layer *self, const graph_states *g, graph_gradients *to,
                    const bp_cell_units *units, const bp_cell_gradients *out, int64_t t);
/* After all positions. */
void graph_backward_weights(const recurrent_layer *self, const graph_states *g,
                            const graph_gradients *to);
bp_err graph_bind(recurrent_layer *self);
void graph_refresh(recurrent_layer *self);
void graph_free(recurrent_layer *self);
void graph_products(const recurrent_layer *self, const bp_extent *most, bp_product_bytes *bytes);

static inline bool recurrent_is_graph(const recurrent_layer *self)
{
    return self->shape.cell == BP_CELL_GRAPH;
}
