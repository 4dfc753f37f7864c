/* Rows of logits as logarithms of a Dirichlet's parameters: a prior network's loss, over tensor
 * ranks. */
#pragma once

#include "nn/core/layers.h"

/** loss[rows] = KL(the target's Dirichlet || the row's Dirichlet), 0 for a row without a target.
 * max and sums are those of bp_logit_statistics. The target `classes` marks a text outside the
 * domain. Collective over `tensor`, with equal targets. Source: Malinin and Gales 2018,
 * "Predictive uncertainty estimation via prior networks", eq. 12. */
void dirichlet_rows_forward(double *loss, const bp_dirichlet_shape *shape, const bp_logit_rows *in,
                            const float *max, const double *sums, MPI_Comm tensor);
/** logits[rows][V here] become weight times the derivative of the loss. Local. */
void dirichlet_rows_gradient(float *logits, const bp_dirichlet_shape *shape,
                             const bp_logit_rows *in, const float *max, const double *sums,
                             const float *weight);
