/* Recurrent cells between their matrix products: the gates of rows, forward and backward; and the
 * nodes of a cell that is a graph. */
#ifndef BP_MATH_KERNELS_CELLS_H
#define BP_MATH_KERNELS_CELLS_H

#include <stdint.h>

/** Elman's with tanh; LSTM, gates i, f, g, o; GRU as torch.nn has it, gates r, z, n; a graph of
 * nodes (nn/core/layers.h), whose input and state have gates c, h: bp_node_edge. */
typedef enum bp_recurrent_cell {
    BP_CELL_RNN,
    BP_CELL_LSTM,
    BP_CELL_GRU,
    BP_CELL_GRAPH
} bp_recurrent_cell;

/** Units of rows, or of a part of one. new_h may be h, new_c c. */
typedef struct bp_cell_units {
    int64_t H, n;       /* width of the state; units of each gate, from the pointers on */
    float *gates;       /* [gates][H] their sums by the input, which forward makes the gates */
    const float *u;     /* [gates][H] their sums by the state */
    const float *h, *c; /* the state before; c: LSTM */
    float *new_h, *new_c;
    float *kept; /* GRU: the new gate's sum by the state, before the reset */
    float clip;  /* LSTM: the new cell is kept within +-clip; 0: it is as it comes */
} bp_cell_units;

/** Gradients of such units. */
typedef struct bp_cell_gradients {
    float *da, *du; /* [gates][H] of the sums; du: only for GRU; for others it is da */
    float *dh;      /* of the new state; in a GRU it leaves with what goes past the gates */
    float *dc;      /* LSTM: of the new cell, and then of the one before */
} bp_cell_gradients;

/** `rows` of them, each row's [gates H] after the one before, its state's [H] too; n is not read.
 * Threads share the units.
 *
 * Source:     Elman 1990; Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al.
 * 2000: c' = f c + i g, h' = o tanh(c'); Cho et al. 2014, with the reset after the product: n =
 * tanh(a_n + r u_n), h' = (1 - z) n + z h. The cell is clipped before its tanh, and passes no
 * gradient where it is (Sak et al. 2014). */
void bp_cell_forward(bp_recurrent_cell cell, const bp_cell_units *of, int64_t rows);
void bp_cell_backward(bp_recurrent_cell cell, const bp_cell_units *of, const bp_cell_gradients *to,
                      int64_t rows);

/** What a node of a graph does with a state: nothing (it is zeros), or f(x). */
typedef enum bp_cell_operation {
    BP_NODE_NONE,
    BP_NODE_TANH,
    BP_NODE_RELU,
    BP_NODE_SIGMOID,
    BP_NODE_IDENTITY,
    BP_NODE_OPERATIONS
} bp_cell_operation;

/** An edge into a node, of rows: sum over operations f but none of share_f (s + c (f(h) - s)), c
 * the logistic function of the first half of the sums. */
typedef struct bp_node_edge {
    int64_t H;
    const float *state;              /* s [rows][H] */
    float *sums;                     /* [rows][2 H] c, h: products of the state */
    float share[BP_NODE_OPERATIONS]; /* of an edge with one operation: 1 of it, else 0 */
} bp_node_edge;

/** node[rows][H] += the edge. Threads share the rows. Source: Liu, Simonyan and Yang 2019,
 * appendix A.1.2 (a highway bypass of each operation), and equation 2 of its mixture. */
void bp_node_forward(float *node, const bp_node_edge *edge, int64_t rows);
/** state[rows][H] += the gradient of s but for the products; sums[rows][2 H] get that of the
 * edge's, which they may be; share[operations] += those of the shares (NULL: not asked), in row
 * order whatever the threads. `scratch`: bp_node_scratch doubles, read where share is. */
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

#endif
