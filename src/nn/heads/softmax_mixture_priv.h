/* A mixture of softmaxes, between the rows of a head and its vocabulary.
 *
 * p(v | h) = sum over k of pi_k softmax(V s_k)_v, with states s_k = tanh(W_k h) and priors pi =
 * softmax(P h). In the vocabulary's product a row's K states are K rows. W and P are cut by rows
 * over tensor ranks; each rank gathers all states. Source: Yang et al. 2018, "Breaking the Softmax
 * Bottleneck", section 2.3. */
#pragma once

#include "nn/core/block.h"

typedef struct softmax_mixture softmax_mixture;

/** K softmaxes of width C: adds "head.states.weight" [K C][C] and "head.priors.weight" [K][C] to
 * `split`. Owns: the caller's, softmax_mixture_free(); nn and split are borrowed. Local. */
softmax_mixture *softmax_mixture_new(const bp_nn *nn, int64_t K, int64_t C, bp_group *split);
void softmax_mixture_free(softmax_mixture **mixture);

/** As those of bp_block_ops, for rows of the head. Errors: BP_ERR_SYSTEM. Local. */
bp_err softmax_mixture_bind(softmax_mixture *self);
void softmax_mixture_refresh(softmax_mixture *self);
void softmax_mixture_products(const softmax_mixture *self, bp_product_bytes *bytes, int64_t rows);

/** Memory for at most this many rows n of the head. */
typedef struct mixture_rows {
    float *states;      /* [n][K][C] */
    bp_operand operand; /* [n K][C] the same, as the vocabulary's product reads it */
    float *log_prior;   /* [n][K] */
    float *posterior;   /* [n][K] the share of each softmax in p(target) */
    double *logprob;    /* [n] of the target */
    int32_t *targets;   /* [n][K] the row's, for each of its states */
    float *own;         /* this rank's columns of one map's result */
    float *scratch;     /* of sums over tensor ranks */
    float *dstates;     /* [n][K][C] only in training */
    bp_operand down[2]; /* [n][own columns] the gradient of each map's result */
} mixture_rows;
mixture_rows softmax_mixture_alloc(const softmax_mixture *self, bp_arena *arena, int64_t rows,
                                   bool training);

/** States, priors and targets of all rows of `normed`. Collective over nn->tensor. */
void softmax_mixture_forward(const softmax_mixture *self, mixture_rows *to,
                             const bp_operand *normed, const int32_t *targets, int64_t rows);
/** logprob and posterior of `rows` rows from the statistics of their K rows each
 * (bp_logit_statistics). Local. */
void softmax_mixture_combine(const softmax_mixture *self, mixture_rows *to, const float *max,
                             const double *sums, int64_t rows);
/** From dstates of this rank's part of the vocabulary: dnormed [rows][C], this rank's part of a sum
 * over tensor ranks, and the gradients of W and P. weight[rows]: of each row's loss. Overwrites the
 * states. Collective over nn->tensor. */
void softmax_mixture_backward(const softmax_mixture *self, mixture_rows *of, float *dnormed,
                              const bp_operand *normed, const float *weight);

/** logs[rows][V]: natural logs of this rank's part of the mixture's distributions, of rows
 * hidden[rows][C]; `map` and `bias` are this rank's part of the vocabulary, of V rows (NULL if it
 * has no rows). Collective over nn->tensor. The first call allocates memory for some rows at a
 * time. */
typedef struct mixture_outcomes {
    const bp_weight *map;
    const float *bias;
    int64_t V;
} mixture_outcomes;
void softmax_mixture_log_probabilities(softmax_mixture *self, float *logs,
                                       const mixture_outcomes *outcomes, const float *hidden,
                                       int64_t rows);
