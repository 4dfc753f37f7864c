/* Rows of outcomes under 1.5-entmax (math/kernels/entmax.h), over tensor ranks. */
#pragma once

#include "nn/core/layers.h"

/** The natural log that represents a probability of 0: below BP_MODEL_ZERO (models/model.h), and
 * finite, so that its product with 0 is 0. */
#define ENTMAX_ZERO (-1000.0F)

/** For at most this many rows. */
typedef struct entmax_rows {
    double *tau;     /* [rows] thresholds, equal on all ranks */
    double *loss;    /* [rows] the entmax loss of each target */
    double *logprob; /* [rows] log p(target); ENTMAX_ZERO where p is 0 */
    double *sums;    /* [3][rows] */
    double *target;  /* [rows] its logit */
    float *max;      /* [rows] */
    bool *done;      /* [rows] */
} entmax_rows;
entmax_rows entmax_rows_alloc(bp_arena *arena, int64_t rows);

/** tau, loss and logprob. Collective over `tensor`, with equal targets. */
void entmax_rows_forward(entmax_rows *to, const bp_logit_rows *in, MPI_Comm tensor);
