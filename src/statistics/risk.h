/* Selective prediction: how much better is a model when it is confident? Local: no MPI. */
#pragma once

#include "statistics/token_order.h"

#include <stdint.h>

#define BP_RISK_POINTS 100

/** Risk of the most certain share of the tokens. Tokens of equal uncertainty form a group: each
 * counts as the group's mean, so that their order does not matter. */
typedef struct bp_risk {
    int64_t tokens;
    /* at coverage (k+1)/100, which may end within a token: that token counts in part */
    double error[BP_RISK_POINTS], nll[BP_RISK_POINTS];
    /* the mean of the risk of the k most certain tokens over k = 1 .. N: the exact area under the
     * step curve */
    double area_error, area_nll;
} bp_risk;

/** `order` is by uncertainty; counts: how often each document counts, NULL: once. All are NaN
 * without tokens. Source: El-Yaniv and Wiener 2010 (JMLR 11), risk and coverage; AURC: Geifman,
 * Uziel and El-Yaniv 2019 (arXiv:1805.08206), with the error rate and with the NLL as the loss. */
void bp_risk_of(bp_risk *out, const bp_token_order *order, const int32_t *counts);
