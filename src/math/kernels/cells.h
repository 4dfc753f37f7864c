/* Recurrent cells between their matrix products: the gates of rows, forward and backward. */
#ifndef BP_MATH_KERNELS_CELLS_H
#define BP_MATH_KERNELS_CELLS_H

#include <stdint.h>

/** Elman's with tanh; LSTM, gates i, f, g, o; GRU as torch.nn has it, gates r, z, n. */
typedef enum bp_recurrent_cell { BP_CELL_RNN, BP_CELL_LSTM, BP_CELL_GRU } bp_recurrent_cell;

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

/** y = tanh(x); y may be x. */
void bp_tanh(float *y, const float *x, int64_t n);

#endif
