/* The softmax of a target and some sampled outcomes: the training loss of a large vocabulary. */
#pragma once

#include "nn/core/layers.h"

/** In each step `samples` different outcomes are drawn from the log-uniform distribution, the same
 * for all targets on all ranks. A row's softmax is over them and its target, each logit less the
 * log of the outcome's expected count among the samples; a sample that is the row's target counts
 * once. The last column before the padding of `columns` is each row's target.
 *
 * Source: Jean et al. 2015, "On Using Very Large Target Vocabulary for Neural Machine
 *         Translation", equation 8; the distribution and its expected counts are those of
 *         TensorFlow's log_uniform_candidate_sampler (unique), with which bilm-tf trains: outcome
 *         of rank k has the probability log((k + 2) / (k + 1)) / log(V + 1). The last id, which is
 *         the end of a document, has rank 0, id i the rank i + 1. */
typedef struct sampled_softmax sampled_softmax;

/** NULL if nn->softmax_samples is 0 or not less than the vocabulary: all outcomes are computed.
 * bias may be NULL. Owns: sampled_softmax_free(). */
sampled_softmax *sampled_softmax_new(const bp_nn *nn, const bp_param *wte, const bp_param *bias);
void sampled_softmax_free(sampled_softmax **self);
/** Memory of the samples' rows. Errors: BP_ERR_SYSTEM. Local. */
bp_err sampled_softmax_bind(sampled_softmax *self);
void sampled_softmax_products(const sampled_softmax *self, bp_product_bytes *bytes, int64_t rows);
/** Weights have changed: the next step copies its samples' rows. */
void sampled_softmax_refresh(sampled_softmax *self);
/** Columns of a row of logits on each tensor rank. */
int64_t sampled_softmax_columns(const sampled_softmax *self);

/** logits[rows][columns], corrected, of normed[rows][C] at a step; own[rows] is each target's
 * column here, -1 without a target, `columns` if another tensor rank has it. Local. */
void sampled_softmax_forward(sampled_softmax *self, float *logits, int32_t *own,
                             const bp_operand *normed, const int32_t *targets, int64_t step);
/** From the gradient of logits: dnormed[rows][C] is written, the gradients of the vocabulary and
 * its bias are added to, fresh ones written. sampled[columns][C], sums[columns]: scratch. Local. */
typedef struct sampled_gradients {
    float *dnormed, *sampled, *sums;
} sampled_gradients;
void sampled_softmax_backward(sampled_softmax *self, const sampled_gradients *to,
                              const bp_operand *dlogits, const bp_operand *normed,
                              const int32_t *targets, bool fresh);
