/* Calibration of next-token prediction: does accuracy match confidence? Local: no MPI.
 *
 * Confidence is the largest probability of a token, float32; correct is whether that token is the
 * target. */
#pragma once

#include "statistics/token_order.h"

#include <stdbool.h>
#include <stdint.h>

#define BP_CALIBRATION_BINS 15

/** Sums over the tokens of a document, or of a set of documents. Bin k has the confidences in
 * (k/15, (k+1)/15], and bin 0 also 0. All zeros: no tokens. */
typedef struct bp_calibration {
    int64_t tokens[BP_CALIBRATION_BINS];
    int64_t correct[BP_CALIBRATION_BINS];
    double confidence[BP_CALIBRATION_BINS];
    double nll;   /* over all bins: -log p(target) in nats */
    double brier; /* over all bins: sum_v (p_v - [v = target])^2, 0 to 2 */
} bp_calibration;

/** The bin of a confidence. Exact: 15 times a float32 is a double. */
int bp_calibration_bin(float confidence);

/** Add a token. A token with confidence NaN was not scored and is ignored. */
void bp_calibration_add(bp_calibration *sums, float confidence, bool correct, double nll,
                        double brier);
/** The merge of documents[n], each counts[n] times (NULL: once), in their order. */
bp_calibration bp_calibration_of(const bp_calibration *documents, const int32_t *counts, int64_t n);

/** Figures of sums; NaN without tokens. */
int64_t bp_calibration_tokens(const bp_calibration *sums);
double bp_calibration_accuracy(const bp_calibration *sums); /* share of correct tokens */
double bp_calibration_nll(const bp_calibration *sums);      /* a token, in nats */
double bp_calibration_brier(const bp_calibration *sums);    /* a token; Brier 1950, all classes */

/** Expected calibration error with 15 equal-width bins: sum_b n_b / N |acc_b - conf_b|, where
 * conf_b is the mean confidence of the bin's tokens (not its middle).
 * Source: Guo et al. 2017 (arXiv:1706.04599), eq. 3; Naeini et al. 2015. */
double bp_calibration_ece(const bp_calibration *sums);

/** Parts of the squared calibration error of a set of documents. With the 15 bins of the ECE and
 * r_b = acc_b - conf_b it is sum_b n_b / N r_b^2. Its expectation is too large by that of sum_b n_b
 * / N Var(r_b), the noise. The ECE itself has no such simple correction: near its noise floor no
 * interval around it has its nominal coverage. */
typedef struct bp_calibration_gaps {
    double gap[BP_CALIBRATION_BINS]; /* r_b sqrt(n_b / N), 0 without tokens */
    double noise;                    /* from differences between documents, which are independent;
                                      * tokens within one need not be */
    double widen;                    /* of deviations of resamples: for few documents */
} bp_calibration_gaps;
/** For documents[n], each once. */
bp_calibration_gaps bp_calibration_gaps_of(const bp_calibration *documents, int64_t n);

/** The squared calibration error without its bias: may be a little below 0 if the true error is
 * near 0. Its root is comparable with the ECE: the true root is never below the true ECE. NaN
 * without tokens.
 *
 * Source: Kumar, Liang and Ma 2019 (arXiv:1909.10155), section 5, the debiased estimator, with the
 * variance of a ratio over documents (Cochran 1977, Sampling techniques, section 2.11) in the place
 * of the binomial one of independent tokens. */
double bp_calibration_squared(const bp_calibration_gaps *gaps);

/** A value for each resample, whose 2.5 and 97.5 percentiles are a 95 % interval of the squared
 * calibration error (ours): the plug-in error of the resample, with widened deviations, less twice
 * the noise: once for the sample, once for resampling. If the true error is near 0 the interval
 * covers more than 95 %, otherwise 95 % (tests/statistics). This also holds for differences of two
 * methods on the same resamples.
 *
 * resample: sums of the documents as they were drawn. */
double bp_calibration_squared_resampled(const bp_calibration_gaps *gaps,
                                        const bp_calibration *resample);

/** A bar of the reliability diagram. */
typedef struct bp_reliability {
    double low, high; /* the bin */
    int64_t tokens;
    double confidence, accuracy; /* means; NaN without tokens */
} bp_reliability;
bp_reliability bp_calibration_bar(const bp_calibration *sums, int bin);

/** Adaptive expected calibration error: the same sum over 15 bins of equal count. With N tokens in
 * the order of confidence bin k has places [floor(kN/15), floor((k+1)N/15)); where a bin ends
 * within tokens of equal confidence, each side gets its share of the correct ones (so the order of
 * tokens does not matter). Fewer than 15 tokens leave bins empty. NaN without tokens.
 *
 * `order` is by confidence; counts: how often each document counts, NULL: once.
 * Source: Nguyen and O'Connor 2015 (arXiv:1508.05154); top label only. */
double bp_calibration_ece_adaptive(const bp_token_order *order, const int32_t *counts);
