/* The inside of a state-space layer: its saved data, and the passes between its products. */
#pragma once

#include "math/kernels/scan.h"
#include "nn/core/layers.h"

/** A convolution over the last positions, per column, and SiLU. */
typedef struct mixed_columns {
    int64_t columns;
    bp_param *taps, *bias; /* [columns][K], the last tap is the present place's; [columns] */
} mixed_columns;

typedef struct state_space {
    bp_block block;
    bp_state_space_shape shape;
    int64_t Hl, Ml, first_head; /* this tensor rank's heads, their width together, and the first */
    int64_t W;                  /* columns of z, x and dt: one product */
    int64_t BC;                 /* columns of B and C of all groups, present on all ranks */
    bp_param *gain;
    bp_param *z, *bc, *out; /* z, x and dt are contiguous */
    bp_weight *wide_map, *bc_map, *out_map;
    mixed_columns x, both; /* of x; of B and C */
    bp_param *step_bias, *decay, *skip, *gate_gain;
    float *first_steps, *first_decays; /* [H] initial values of step_bias and decay */
} state_space;

static inline state_space *state_space_of(const bp_block *block)
{
    return (state_space *)block;
}

/** Add the parameters, for `split` this rank's part. The shape and the layer's sizes are set. */
void state_space_add_params(state_space *self, bp_group *split, bp_group *whole);

/** Rows of a mix of columns: [rows] of `row` floats, one sequence after another. */
typedef struct mixed_rows {
    int64_t B, T, row;
    const float *rows;
    const float
        *before; /* [B][K - 1][all columns that are carried]: the positions before; NULL: zeros
                  */
    int64_t before_row, before_sequence; /* floats from place to place, and sequence to sequence */
} mixed_rows;

/** to[B T][columns] = silu(bias + sum over taps). `ones`, `taps`: scratch of mix_scratch floats. */
void mix_forward(float *to, const mixed_columns *by, int64_t K, const mixed_rows *in,
                 float *scratch);
/** d[B T][columns], gradients of the results, become gradients of the sums. The rows' gradients go
 * to dx (`dx_row` floats from row to row), those of taps and bias to theirs. */
void mix_backward(float *dx, int64_t dx_row, float *d, const mixed_columns *by, int64_t K,
                  const mixed_rows *in, float *scratch);
int64_t mix_scratch(const mixed_columns *by, int64_t K);

/** dt[rows][Hl] = softplus(raw + bias), within the layer's limits. */
void steps_forward(float *dt, const state_space *self, const float *raw, int64_t row, int64_t rows);
/** draw (`row` floats from row to row) from ddt[rows][Hl]; adds to the bias's gradient. */
void steps_backward(float *draw, const state_space *self, const float *ddt, const float *raw,
                    int64_t row, int64_t rows);

/** v = y silu(z), [rows][Ml]. */
void gate_forward(float *v, const state_space *self, const float *y, const float *z, int64_t z_row,
                  int64_t rows);
/** rstd[rows] of v over the heads of all tensor ranks; sums: [rows]. Collective over nn->tensor. */
void gate_statistics(float *rstd, double *sums, const state_space *self, const float *v,
                     int64_t rows);
/** n = v rstd gain. */
void gate_norm(const bp_operand *n, const state_space *self, float *v, const float *rstd);
/** dn[rows][Ml] becomes dy; writes dz (`z_row` floats from row to row) and adds to the gain's
 * gradient. v as gate_forward left it. Collective over nn->tensor. */
void gate_backward(float *dn, float *dz, const state_space *self, const float *v, double *sums,
                   const float *rstd, const float *y, const float *z, int64_t z_row, int64_t rows);

/** h = base + the branch [rows][C], scaled (in place) and dropped. */
void branch_add(float *h, const float *base, float *branch, const state_space *self,
                const bp_pass *pass);
/** The branch's gradient from that of the sum it was added to; `rows`: scratch [rows][C]. */
void branch_open(const bp_operand *dbranch, const float *dh, float *rows, const state_space *self,
                 const bp_pass *pass);
