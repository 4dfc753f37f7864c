/* The vocabulary's head: what its training and its pieces share. */
#ifndef BP_NN_LM_HEAD_PRIV_H
#define BP_NN_LM_HEAD_PRIV_H

#include "nn/entmax_rows_priv.h"
#include "nn/layers.h"
#include "nn/sampled_softmax_priv.h"
#include "nn/softmax_mixture_priv.h"

typedef struct lm_head {
    bp_block block;
    bp_head_shape shape;
    bp_param *wte, *gain, *bias;
    bp_weight *vocabulary;    /* wte as a linear map; NULL where this rank has no row of it */
    softmax_mixture *mixture; /* NULL: there is one softmax */
    sampled_softmax *sampled; /* what training computes of it; NULL: all */
    entmax_rows rows;         /* of ENTMAX_ROWS rows, whose distributions are asked for, where */
    void *rows_memory;
} lm_head;
#define ENTMAX_ROWS 64

/** Memory for the distributions of rows. */
void lm_head_make_rows(lm_head *self);

/** What the vocabulary's matrix is applied to; mean and rstd are kept for backward (NULL: not).
 * Local. */
void lm_head_norm_rows(const lm_head *self, const bp_operand *to, const float *hidden, float *mean,
                       float *rstd);

#endif
