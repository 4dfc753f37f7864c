/* Split-conformal sets: sets of outcomes that contain the true one with probability at least
 * `coverage`, if predictions are exchangeable with those of the calibration corpus. Local: no MPI.
 *
 * Outcomes in order of falling probability have the ranks 1, 2, ...; S_k is the mass of the first
 * k. A set has the outcomes whose score is at most the threshold, and with each outcome all more
 * probable ones. The scores of rank k, given a u that is uniform in [0, 1) and equal for all
 * outcomes of one prediction:
 *
 *     lac   1 - p_k                                     Sadinle, Lei and Wasserman 2019
 *     aps   S_(k-1) + u p_k                             Romano, Sesia and Candes 2020
 *     raps  S_(k-1) + u p_k + penalty max(0, k - free)  Angelopoulos et al. 2021
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef enum bp_conformal_kind {
    BP_CONFORMAL_LAC,
    BP_CONFORMAL_APS,
    BP_CONFORMAL_RAPS,
    BP_CONFORMAL_KINDS
} bp_conformal_kind;
extern const char *const bp_conformal_names[]; /* "lac", ... */

typedef struct bp_conformal_rule {
    double threshold[BP_CONFORMAL_KINDS]; /* infinite: sets have all outcomes */
    double penalty;                       /* of raps */
    int64_t free;                         /* of raps: number of ranks without a penalty */
} bp_conformal_rule;

/** The true outcome among all. */
typedef struct bp_conformal_target {
    double p, above; /* its probability, and the mass of outcomes of smaller rank */
    int64_t before;  /* number of outcomes of smaller rank */
} bp_conformal_target;

/** Is an outcome of probability p in a set of lac? */
static inline bool bp_conformal_holds(const bp_conformal_rule *rule, double p)
{
    return 1 - p <= rule->threshold[BP_CONFORMAL_LAC];
}

/** Its score. */
double bp_conformal_score(bp_conformal_kind kind, const bp_conformal_rule *rule,
                          const bp_conformal_target *target, double u);

/** The k-th smallest of n scores, k = ceil((n + 1) coverage); infinite if k > n. Sorts the
 * scores. */
double bp_conformal_threshold(double *scores, int64_t n, double coverage);

/** u of a prediction: a function of the seed and of the prediction's index in its corpus.
 * Thresholds and sets draw from separate streams. */
typedef enum bp_conformal_stream {
    BP_CONFORMAL_SETS,
    BP_CONFORMAL_CALIBRATION
} bp_conformal_stream;
double bp_conformal_uniform(uint64_t seed, bp_conformal_stream stream, int64_t document,
                            int64_t position);

/** A set before its u is drawn: the `whole` most probable outcomes, and one more if u <= next. */
typedef struct bp_conformal_set {
    int64_t whole;
    double next; /* below 0: no further outcome */
} bp_conformal_set;
static inline int64_t bp_conformal_size(const bp_conformal_set *set, double u)
{
    return set->whole + (u <= set->next);
}

/** Outcomes of the smallest ranks. */
typedef struct bp_conformal_prefix {
    double count, mass;
} bp_conformal_prefix;

/** For aps or raps: outcomes in groups, the most probable first, counts[k] with the mass mass[k] in
 * group k. Adds to *prefix the groups up to the first that holds the last outcome of a set, or the
 * one after it; returns that group, or `groups` if all are in the set. */
int64_t bp_conformal_walk(bp_conformal_prefix *prefix, bp_conformal_kind kind,
                          const bp_conformal_rule *rule, const double *counts, const double *mass,
                          int64_t groups);
/** The set, if `count` outcomes of probability p follow the prefix, and not all of them are in the
 * set. */
bp_conformal_set bp_conformal_end(const bp_conformal_prefix *prefix, bp_conformal_kind kind,
                                  const bp_conformal_rule *rule, double p, int64_t count);
