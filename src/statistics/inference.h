/* Inference for small samples: Student's t, levels of percentiles, shares, multiple comparisons.
 * Local: no MPI. */
#pragma once

#include "base/err.h"

#include <stdint.h>

typedef struct bp_interval {
    double low, high;
} bp_interval;

/** Fewer documents get no interval: its coverage would be below its level
 * (tests/statistics/test_interval_coverage.c, docs/scoring.md). */
#define BP_FEW_DOCUMENTS 10

/** The same for the false positive rate at 95 % true positives, which is biased for few
 * documents. */
#define BP_FEW_FOUND 50

/** The same for Matthews' correlation: with few documents many resamples lack a class. */
#define BP_FEW_OF_CLASSES 20

/** P(|T| >= |t|) of Student's t with `freedom` > 0 degrees of freedom; NaN for NaN. */
double bp_student_two_sided(double t, double freedom);
/** The t whose bp_student_two_sided is 0.05: the 0.975 quantile. */
double bp_student_quantile(double freedom);

/** The lower percentile of the 95 % interval of resamples of n >= 2 documents: 0.025 for very many
 * documents, less for few, because a bootstrap's deviations are too small by sqrt((n - 1) / n), and
 * their distribution is Student's.
 *
 * Source:     Hesterberg 2015, What teachers should know about the bootstrap, The American
 *             Statistician 69, section 3.3: the expanded percentile interval. */
double bp_percentile_level(int64_t documents);

/** 95 % interval of a share of n independent documents; NaN for n = 0.
 *
 * Source:     Wilson 1927, JASA 22, 209-212; Brown, Cai and DasGupta 2001. */
bp_interval bp_wilson_interval(double share, int64_t documents);

/** Two shares of the same n observations, of which `only_a` count in the first alone and `only_b`
 * in the second alone: p of McNemar's exact test, the two-sided binomial one of those; 1 if there
 * are none. *interval: 95 %, of the second share less the first; NaN for fewer than
 * BP_FEW_DOCUMENTS.
 *
 * Source:     McNemar 1947, Psychometrika 12; the interval is Agresti and Min 2005 (Statistics in
 *             Medicine 24, 729-740), section 3: Wald's with 1/2 added to each of the four counts.
 */
double bp_paired_shares(bp_interval *interval, int64_t only_a, int64_t only_b, int64_t n);

/** Adjusts p[n] for n comparisons; NaN stays NaN, and is not counted.
 *
 * Errors:     BP_ERR_SYSTEM memory.
 * Source:     Holm 1979, A simple sequentially rejective multiple test procedure. */
bp_err bp_holm_adjust(double *p, int64_t n);
