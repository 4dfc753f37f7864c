/* DropConnect: weights of Transformer layers that are dropped at random, in training and in passes
 * at test time. */
#pragma once

#include "models/family.h"
#include "models/network/network.h"

/** Which weights: each one by itself with probability `rate`; the others are multiplied by 1 / (1 -
 * rate). The mask is a function of (seed, training, draw, tensor, place in the whole tensor): the
 * same on every mesh; masks of activations use other members of the same purpose. Source: Wan et
 * al. 2013, "Regularization of neural networks using DropConnect", eq. 2, with one mask for all
 * examples of a draw, and the scale of inverted dropout. */
typedef struct bp_dropconnect {
    float rate; /* 0: no weight is dropped */
    uint64_t seed;
    bool training; /* draw is a step; else a pass at test time */
    int64_t draw;
} bp_dropconnect;

/** Refuse a nonzero rate, set by `key`, for a shape without such weights. Errors: BP_ERR_CONFIG.
 * Local. */
bp_err bp_dropconnect_check(const bp_model_shape *shape, double rate, const char *key);

/** Is it a weight of a product in a Transformer layer, not of an adapter? Local. */
bool bp_dropconnect_drops(const bp_network *network, const bp_group *group, const bp_param *param);
/** y = x with the mask of elements [first, first + count) of the slice of a matrix: weights, or
 * their gradients. y may be x. Local. */
void bp_dropconnect_apply(float *y, const float *x, const bp_param *param, int64_t first,
                          int64_t count, const bp_dropconnect *with);
/** The parameters of a block, from the flat memory `values` to where they are bound. Local. */
void bp_dropconnect_copy(const bp_network *network, int block, const float *values,
                         const bp_dropconnect *with);
