/* Recurrent cells between their matrix products: the gates of rows, forward and backward; and the
 * nodes of a graph cell. */
#pragma once

#include <stdint.h>

/** Elman's with tanh; LSTM, gates i, f, g, o; GRU as in torch.nn, gates r, z, n; a graph of nodes
 * (nn/core/layers.h), whose input and state have gates c, h: bp_node_edge. */
typedef enum bp_recurrent_cell {
    BP_CELL_RNN,
    BP_CELL_LSTM,
    BP_CELL_GRU,
    BP_CELL_GRAPH
} bp_recurrent_cell;

/** Units of rows, or of a part of one. new_h may be h, new_c c. */
typedef struct bp_cell_units {
    int64_t H, n;       /* width of the state; units of each gate, starting at the pointers */
    float *gates;       /* [gates][H] their sums by the input; forward turns them into the gates */
    const float *u;     /* [gates][H] their sums by the state */
    const float *h, *c; /* the state before; c: LSTM */
    float *new_h, *new_c;
    float *kept; /* GRU: the new gate's sum by the state, before the reset */
    float clip;  /* LSTM: the new cell is clipped to +-clip; 0: no clip */
} bp_cell_units;

/** Gradients of such units. */
typedef struct bp_cell_gradients {
    float *da, *du; /* [gates][H] of the sums; du: only for GRU; others use da */
    float *dh;      /* gradient of the new state; in a GRU it becomes the gradient that bypasses the
                       gates */
    float *dc;      /* LSTM: of the new cell, then of the previous one */
} bp_cell_gradients;

/** `rows` rows, contiguous in [gates H] and in the state's [H]; n is not read. Threads share the
 * units.
 *
 * Source:     Elman 1990; Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al.
 *             2000: c' = f c + i g, h' = o tanh(c'); Cho et al. 2014, with the reset after the
 *             product: n = tanh(a_n + r u_n), h' = (1 - z) n + z h. The cell is clipped before its
 *             tanh; a clipped cell passes no gradient (Sak et al. 2014). */
void bp_cell_forward(bp_recurrent_cell cell, const bp_cell_units *of, int64_t rows);
void bp_cell_backward(bp_recurrent_cell cell, const bp_cell_units *of, const bp_cell_gradients *to,
                      int64_t rows);

/** A graph node's operation on a state: none (zeros), or f(x). */
typedef enum bp_cell_operation {
    BP_NODE_NONE,
    BP_NODE_TANH,
    BP_NODE_RELU,
    BP_NODE_SIGMOID,
    BP_NODE_IDENTITY,
    BP_NODE_OPERATIONS
} bp_cell_operation;

/** An edge into a node, for rows: sum over operations f, except none, of share_f (s + c (f(h) -
 * s)), c the logistic function of the first half of the sums. */
typedef struct bp_node_edge {
    int64_t H;
    const float *state;              /* s [rows][H] */
    float *sums;                     /* [rows][2 H] c, h: products of the state */
    float share[BP_NODE_OPERATIONS]; /* with a single operation: 1 for it, else 0 */
} bp_node_edge;

/** node[rows][H] += the edge. Threads share the rows. Source: Liu, Simonyan and Yang 2019,
 * appendix A.1.2 (a highway bypass of each operation), and equation 2 of its mixture. */
void bp_node_forward(float *node, const bp_node_edge *edge, int64_t rows);
/** state[rows][H] += the gradient of s without the products' part; sums[rows][2 H] get that of the
 * edge's sums, and may alias them; share[operations] += those of the shares (may be NULL), in row
 * order for any threads. `scratch`: bp_node_scratch doubles, used with share. */
typedef struct bp_node_gradients {
    float *state, *sums;
    double *share, *scratch;
} bp_node_gradients;
void bp_node_backward(const bp_node_gradients *to, const float *node, const bp_node_edge *edge,
                      int64_t rows);
int64_t bp_node_scratch(int64_t rows);

/** Batch normalisation without an affine map: of each column of x[rows][H], in place, x = (x -
 * mean) rstd[H], over the rows, with the biased variance. Source: Ioffe and Szegedy 2015. */
void bp_batch_norm_forward(float *x, float *rstd, int64_t rows, int64_t H, float epsilon);
/** dx, in place, from the gradient of the result y[rows][H]. */
void bp_batch_norm_backward(float *dx, const float *y, const float *rstd, int64_t rows, int64_t H);

/** y = tanh(x); y may be x. */
void bp_tanh(float *y, const float *x, int64_t n);
