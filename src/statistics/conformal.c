/* Scores of outcomes, their threshold, and sizes of sets. */
#include "statistics/conformal.h"

#include "base/rng.h"
#include "base/sort.h"

#include <math.h>
#include <stdlib.h>

const char *const bp_conformal_names[] = {"lac", "aps", "raps"};

static double penalty_of(bp_conformal_kind kind, const bp_conformal_rule *rule, double rank)
{
    return kind == BP_CONFORMAL_RAPS ? rule->penalty * fmax(0, rank - (double)rule->free) : 0;
}

double bp_conformal_score(bp_conformal_kind kind, const bp_conformal_rule *rule,
                          const bp_conformal_target *target, double u)
{
    if (kind == BP_CONFORMAL_LAC)
        return 1 - target->p;
    return target->above + u * target->p + penalty_of(kind, rule, (double)target->before + 1);
}

double bp_conformal_threshold(double *scores, int64_t n, double coverage)
{
    /* coverage is rounded: 0.9 of 10 is the 9th */
    double k = ceil((double)(n + 1) * coverage * (1 - 1e-12));

    qsort(scores, (size_t)n, sizeof *scores, bp_by_real);
    return k > (double)n ? INFINITY : scores[k < 1 ? 0 : (int64_t)k - 1];
}

double bp_conformal_uniform(uint64_t seed, bp_conformal_stream stream, int64_t document,
                            int64_t position)
{
    bp_rng_key key = bp_rng_key_of(seed, BP_RNG_CONFORMAL, 0, document, (int64_t)stream);

    return bp_rng_uniform(&key, (uint64_t)position);
}

int64_t bp_conformal_walk(bp_conformal_prefix *prefix, bp_conformal_kind kind,
                          const bp_conformal_rule *rule, const double *counts, const double *mass,
                          int64_t groups)
{
    for (int64_t k = 0; k < groups; k++) {
        bp_conformal_prefix longer = {prefix->count + counts[k], prefix->mass + mass[k]};

        if (longer.mass + penalty_of(kind, rule, longer.count) > rule->threshold[kind])
            return k;
        *prefix = longer;
    }
    return groups;
}

/* Is the outcome `more` places after the prefix within, for any u? */
static bool is_within(const bp_conformal_prefix *prefix, bp_conformal_kind kind,
                      const bp_conformal_rule *rule, double p, int64_t more)
{
    return prefix->mass + (double)more * p + penalty_of(kind, rule, prefix->count + (double)more) <=
           rule->threshold[kind];
}

bp_conformal_set bp_conformal_end(const bp_conformal_prefix *prefix, bp_conformal_kind kind,
                                  const bp_conformal_rule *rule, double p, int64_t count)
{
    int64_t within = 0, beyond = count;
    bp_conformal_set set;

    while (within + 1 < beyond) { /* the first `within` are, those from `beyond` on are not */
        int64_t middle = within + (beyond - within) / 2;

        if (is_within(prefix, kind, rule, p, middle))
            within = middle;
        else
            beyond = middle;
    }
    set.whole = (int64_t)prefix->count + within;
    set.next = (rule->threshold[kind] - (prefix->mass + (double)within * p) -
                penalty_of(kind, rule, (double)set.whole + 1)) /
               p;
    if (p <= 0 || set.next < 0) /* of no probability: as far as `within` says */
        set.next = -1;
    if (set.next > 1)
        set.next = 1;
    return set;
}
