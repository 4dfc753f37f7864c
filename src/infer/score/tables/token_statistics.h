/* Names in score files of the statistics that a model returns for each token (bp_model_statistic),
 * and of the members whose log-probabilities are among them. Local, except for
 * bp_token_statistics_share. */
#pragma once

#include "base/config/json.h"
#include "infer/score/tables/sums.h"
#include "models/model.h"

typedef struct bp_token_statistics {
    int64_t count;   /* values per token, the log-probability first: bp_model_info.statistics */
    int64_t members; /* for an ensemble; 0: a plain model with one statistic, those below, or the
                        log-probability with its neighbours, then its own (BP_MODEL_ALONE) */
    bool boundaries; /* the second one is BP_MODEL_BOUNDARY */
    bool entropy;    /* the last one is the entropy of the model's distribution */
    char **names;    /* [members] */
    double *oob;     /* [members]: perplexity of the documents out of its bag; NaN: unknown */
} bp_token_statistics;

/** The statistics of a model, with empty names. */
void bp_token_statistics_init(bp_token_statistics *statistics, const bp_model_info *info);
void bp_token_statistics_name(bp_token_statistics *statistics, int64_t member, const char *name,
                              double oob);
/** Send names and perplexities from rank `from` to rank 0, which has none yet.
 *
 * Collective: over `comm`; the counts are equal on all ranks. */
void bp_token_statistics_share(bp_token_statistics *statistics, int from, MPI_Comm comm);
void bp_token_statistics_clear(bp_token_statistics *statistics);

/** The name of a statistic that does not belong to a member. */
const char *bp_token_statistics_column(const bp_token_statistics *statistics, int64_t c);

/** An ensemble's variance of log p_m(target) as an estimate of the population's: divided by M - 1.
 * Models do not return this statistic: files and figures compute it from
 * BP_MODEL_LOGPROB_VARIANCE. */
#define BP_SCORE_UNBIASED "logprob_variance_unbiased"
/** The factor from BP_MODEL_LOGPROB_VARIANCE to it; NaN for one member. */
double bp_score_unbiased_factor(int64_t members);

/** Add an ensemble's figures to those of a set: the means of its statistics over tokens, and each
 * member's sum and perplexity, with the out-of-bag perplexity if `oob`. For a model with
 * neighbours: the figures without them; with `entropy` its mean. Nothing for another plain model.
 *
 * Shapes:     sums[count - 1], of the statistics after the log-probability.
 * Errors:     BP_ERR_FORMAT a member's name is not UTF-8. */
bp_err bp_token_statistics_figure(json_t *figures, const bp_token_statistics *statistics,
                                  const bp_fixed *sums, int64_t tokens, bool oob);
