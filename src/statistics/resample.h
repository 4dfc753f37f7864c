/* The bootstrap over documents: counts of draws, statistics of them, intervals. Compared methods
 * get the same resamples (paired). Local: no MPI. */
#pragma once

#include "base/err.h"
#include "base/rng.h"
#include "statistics/inference.h"

#include <stdint.h>

/** The default number of resamples. */
#define BP_RESAMPLES 1000

/** The key of resample r of n documents from n. `stream` distinguishes sets of documents that are
 * drawn separately (in-domain, shifted). */
bp_rng_key bp_resample_key(uint64_t seed, int64_t r, int64_t stream);

/** Documents of a block. */
#define BP_RESAMPLE_BLOCK 4096

static inline int64_t bp_resample_blocks(int64_t n)
{
    return (n + BP_RESAMPLE_BLOCK - 1) / BP_RESAMPLE_BLOCK;
}

/** draws[bp_resample_blocks(n)]: how many of n draws with replacement from n documents fall into
 * each block of them. Recursive halves have binomial counts, from random bits: exactly the
 * distribution of n independent draws, without rounding. */
void bp_resample_split(int32_t *draws, int64_t n, const bp_rng_key *key);
/** counts[n]: how often each of n documents is among n draws with replacement. */
void bp_resample_counts(int32_t *counts, int64_t n, const bp_rng_key *key);

/** A statistic of a resample: values[width] of counts[group][document]. Called by several threads
 * at once; NaN if it is undefined. Sums over documents are in document order, weighted by counts,
 * so nothing depends on the number of threads. */
typedef void (*bp_statistic)(double *values, const int32_t *const *counts, const void *data);

/** Sets of documents that are drawn from separately, and the statistic of each resample. */
typedef struct bp_bootstrap {
    uint64_t seed;
    int64_t resamples;        /* BP_RESAMPLES */
    int64_t groups;           /* set g is drawn with stream g */
    const int64_t *documents; /* [groups]; 0 is allowed */
    /* Documents of set g with one number in clusters[g] are drawn together: as many draws as there
       are clusters, numbered from 0. NULL: each document is drawn alone. */
    const int64_t *const *clusters; /* [groups][documents] */
    const int64_t *cluster_count;   /* [groups] */
    int64_t width;                  /* values of a resample */
} bp_bootstrap;

/** values[resamples][width]: the statistic of every resample. Equal whatever the number of threads.
 * A value that depends on only one document has no spread and becomes NaN in all resamples: it is
 * defined exactly in the resamples with that document.
 *
 * Errors:     BP_ERR_SYSTEM memory.
 * Source:     Efron and Tibshirani, An Introduction to the Bootstrap (1993), section 6.2; of
 *             clusters Davison and Hinkley, Bootstrap Methods and their Application (1997), section
 *             3.8, the first strategy.
 */
bp_err bp_bootstrap_run(double *values, const bp_bootstrap *spec, bp_statistic statistic,
                        const void *data);

/** Sums of columns over some resamples of n documents, block by block: the documents need not be in
 * memory at once. Resamples are independent, so ranks may divide them. Local. */
typedef struct bp_resample_sums {
    uint64_t seed;
    int64_t n, width;     /* numbers of documents and columns */
    int64_t first, count; /* resamples */
    double *sums;         /* [count][width] */
    int32_t *draws;       /* [count][blocks] */
    int32_t *counts; /* [threads][BP_RESAMPLE_BLOCK]; this and the next are private to resample.c */
    int threads;
} bp_resample_sums;

/** Set n, width, seed, first and count, and the rest to 0. The stream is 0. Clear also after an
 * error. Errors: BP_ERR_SYSTEM memory. */
bp_err bp_resample_sums_init(bp_resample_sums *self);
/** Add blocks [block, block + blocks), after those before them: columns[width] from their first
 * document on. A column with a value that is not finite has no finite sum. Equal at any number of
 * threads. */
void bp_resample_sums_add(bp_resample_sums *self, int64_t block, int64_t blocks,
                          const double *const *columns);
void bp_resample_sums_clear(bp_resample_sums *self);

/** A statistic of the sums of columns over a resample: values[width]; NaN if undefined. */
typedef void (*bp_sums_statistic)(double *values, const double *sums, const void *data);
/** bp_bootstrap_run, without clusters, of a statistic of sums over one group's documents:
 * columns[count][documents].
 * About twenty times faster for many documents. */
bp_err bp_bootstrap_of_sums(double *values, const bp_bootstrap *spec, const double *const *columns,
                            int64_t count, bp_sums_statistic statistic, const void *data);

/** The p-quantile of sorted values, p from 0 to 1, n > 0: interpolated linearly between the order
 * statistics around (n - 1) p (numpy.quantile's default). */
double bp_quantile(const double *sorted, int64_t n, double p);

/** For `documents`: use the plain 2.5 and 97.5 percentiles. */
#define BP_PLAIN_PERCENTILES INT64_MAX

/** The 95 % interval of values that are resamples of `documents` documents (the fewest that any of
 * several sets has): percentiles, wider for few documents (bp_percentile_level), interpolated
 * linearly between order statistics (numpy.percentile's default). Values that are not finite are
 * left out; NaN and NaN if fewer than 2 are left, and for fewer than BP_FEW_DOCUMENTS documents.
 *
 * Shapes:     value r is values[r * stride].
 * Errors:     BP_ERR_SYSTEM memory.
 * Source:     Efron and Tibshirani (1993), section 13.3; Hesterberg (2015).
 */
bp_err bp_interval_of(bp_interval *out, const double *values, int64_t resamples, int64_t stride,
                      int64_t documents);
/** The 95 % interval of a figure between 0 and 1 that is not a mean over documents, such as average
 * precision: 1.96 standard deviations of its resamples on each side, on the scale of logits. It
 * contains `value` even if the resamples are biased. If `value` is 0 or 1, it is the interval of a
 * share of `documents`, since no resample differs. NaN and NaN as above.
 *
 * Errors:     BP_ERR_SYSTEM memory.
 * Source:     Boyd, Eng and Page 2013, Area under the precision-recall curve: point estimates and
 *             confidence intervals, ECML PKDD, section 3.2, with the bootstrap's deviation. */
bp_err bp_interval_of_logits(bp_interval *out, double value, const double *values,
                             int64_t resamples, int64_t stride, int64_t documents);
/** bp_interval_of for one[r * stride] - other[r * stride]: two methods on the same resamples. */
bp_err bp_interval_of_difference(bp_interval *out, const double *one, const double *other,
                                 int64_t resamples, int64_t stride, int64_t documents);
