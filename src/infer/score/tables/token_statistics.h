/* Statistics that a model returns for each token (bp_model_statistic), and whose log-probabilities
 * are among them: how score files name them. Local, except for bp_token_statistics_share. */
#ifndef BP_INFER_SCORE_TABLES_TOKEN_STATISTICS_H
#define BP_INFER_SCORE_TABLES_TOKEN_STATISTICS_H

#include "base/config/json.h"
#include "infer/score/tables/sums.h"
#include "models/model.h"

typedef struct bp_token_statistics {
    int64_t count;   /* values a token, the log-probability first: bp_model_info.statistics */
    int64_t members; /* for an ensemble; 0: a plain model, of one statistic, or of two: its own
                        log-probability after that with its neighbours (BP_MODEL_ALONE) */
    bool boundaries; /* the second one is BP_MODEL_BOUNDARY */
    char **names;    /* [members] */
    double *oob;     /* [members]: perplexity of the documents that a bag lacks; NaN: not known */
} bp_token_statistics;

/** Channels of a model, names still empty. */
void bp_token_statistics_init(bp_token_statistics *statistics, const bp_model_info *info);
void bp_token_statistics_name(bp_token_statistics *statistics, int64_t member, const char *name,
                              double oob);
/** Names and perplexities of rank `from` go to rank 0, which has none yet.
 *
 * Collective: over `comm`; the counts are equal on all ranks. */
void bp_token_statistics_share(bp_token_statistics *statistics, int from, MPI_Comm comm);
void bp_token_statistics_clear(bp_token_statistics *statistics);

/** The name of a statistic that does not belong to a member. */
const char *bp_token_statistics_column(const bp_token_statistics *statistics, int64_t c);

/** An ensemble's variance of log p_m(target) as an estimate of that of all members there might be:
 * divided by M - 1. Not a statistic of models: it is made of BP_MODEL_LOGPROB_VARIANCE, in files
 * and figures. */
#define BP_SCORE_UNBIASED "logprob_variance_unbiased"
/** The factor on BP_MODEL_LOGPROB_VARIANCE for it; NaN for one member. */
double bp_score_unbiased_factor(int64_t members);

/** Add an ensemble's figures to those of a set: the means of its statistics over tokens, and each
 * member's sum and perplexity, with that out of its bag if `oob`; for a model with neighbours,
 * those without them. Nothing for a plain model.
 *
 * Shapes:     sums[count - 1], of the statistics after the log-probability.
 * Errors:     BP_ERR_FORMAT a member's name is not UTF-8. */
bp_err bp_token_statistics_figure(json_t *figures, const bp_token_statistics *statistics,
                                  const bp_fixed *sums, int64_t tokens, bool oob);

#endif
