/* What small samples need: Student's t, levels of percentiles, shares, several comparisons at once.
 * Local: no MPI. */
#ifndef BP_STATISTICS_INFERENCE_H
#define BP_STATISTICS_INFERENCE_H

#include "base/err.h"

#include <stdint.h>

typedef struct bp_interval {
    double low, high;
} bp_interval;

/** An interval of fewer documents misses more often than it says: there is none
 * (tests/statistics/test_interval_coverage.c, docs/scoring.md). */
#define BP_FEW_DOCUMENTS 10

/** The same of the rate of false positives at which 95 % are found: of few it is biased. */
#define BP_FEW_FOUND 50

/** The same of Matthews' correlation: of few documents many resamples lack a class. */
#define BP_FEW_OF_CLASSES 20

/** P(|T| >= |t|) of Student's t with `freedom` > 0 degrees of freedom; NaN of NaN. */
double bp_student_two_sided(double t, double freedom);
/** The t whose bp_student_two_sided is 0.05: the 0.975 quantile. */
double bp_student_quantile(double freedom);

/** The lower percentile of resamples of n >= 2 documents, between whose ends a 95 % interval is:
 * 0.025 of very many, less of few, for a bootstrap's deviations are too small by
 * sqrt((n - 1) / n), and their distribution is Student's.
 *
 * Source:     Hesterberg 2015, What teachers should know about the bootstrap, The American
 *             Statistician 69, section 3.3: the expanded percentile interval. */
double bp_percentile_level(int64_t documents);

/** 95 % interval of a share of n independent documents; NaN of none.
 *
 * Source:     Wilson 1927, JASA 22, 209-212; Brown, Cai and DasGupta 2001. */
bp_interval bp_wilson_interval(double share, int64_t documents);

/** p[n] to p-values adjusted for n comparisons; NaN stays, and counts as none.
 *
 * Errors:     BP_ERR_SYSTEM memory.
 * Source:     Holm 1979, A simple sequentially rejective multiple test procedure. */
bp_err bp_holm_adjust(double *p, int64_t n);

#endif
