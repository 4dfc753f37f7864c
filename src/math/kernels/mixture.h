/* Rows of an ensemble's distributions, mixed entry by entry, with the members' agreement.
 *
 * For one entry of the vocabulary, with the members' log-probabilities lp_m in member order: mx =
 * max_m lp_m, s = sum_m exp(lp_m - mx), a = sum_m exp(lp_m - mx) (lp_m - mx). Then log p = mx +
 * log(s/M), p = exp(mx) s/M, sum_m p_m (lp_m - log p) = exp(mx) (a - s log(s/M)), and sum_m p_m
 * lp_m = exp(mx) (a + s mx): one exponential a member, one more and a logarithm an entry. M equal
 * members give lp_m and 0 exactly. Sums over the vocabulary: float32 within blocks of
 * BP_MIXTURE_BLOCK entries, float64 over blocks in their order. Threads take rows. Products may be
 * fused with sums, so that bits may differ between instruction sets.
 */
#pragma once

#include "math/kernels/kernels.h"

#include <stdint.h>

#define BP_MIXTURE_BLOCK 512

typedef struct bp_mixture {
    int64_t members, rows, columns;
    const float *logits; /* member m's rows [rows][columns] at logits + m * member_stride */
    int64_t member_stride;
    const bp_member_row *known; /* of member m and row r at known[m * known_stride + r] */
    int64_t known_stride;
    const int32_t *targets; /* [rows] */
    int64_t first;          /* the vocabulary entry of column 0 */
} bp_mixture;

/** For the columns of this rank. */
typedef struct bp_mixture_row {
    double entropy;     /* mean_m -sum_v p_m lp_m */
    double information; /* mean_m sum_v p_m (lp_m - log p) */
    double squares;     /* sum_v p^2, without the target's */
    float top_logprob;  /* the largest log p; -infinity without columns */
    int32_t top;        /* the first entry that has it; INT32_MAX without columns */
} bp_mixture_row;

void bp_mixture_rows(bp_mixture_row *out, const bp_mixture *in);

/** logprob[rows][columns]: log p of the columns here. */
void bp_mixture_logprobs(float *logprob, const bp_mixture *in);

/** p[rows][columns]: the probabilities themselves. */
void bp_mixture_probabilities(float *p, const bp_mixture *in);

/** First entry, counted from `first`, of the largest (logit - max) - log_sum of each row;
 * INT32_MAX if it is not here. Writes known[r].top; the rest of known[r] is input. */
void bp_member_tops(bp_member_row *known, const float *logits, int64_t rows, int64_t columns,
                    int64_t first);

/** Over the columns here, with u_v = log p_v - shift[r]: sums[r][beta] of exp(b u), u exp(b u) and
 * u^2 exp(b u). */
typedef struct bp_scaled_row {
    double power, first, second;
} bp_scaled_row;
void bp_scaled_rows(bp_scaled_row *sums, const bp_mixture *in, const float *shift,
                    const float *betas, int count);
