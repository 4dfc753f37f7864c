/* What a model tells of each token (bp_lm_channel), and whose log-probabilities are among it: how
 * score files name it. Local, but for bp_score_channels_share. */
#ifndef BP_INFER_SCORE_CHANNELS_H
#define BP_INFER_SCORE_CHANNELS_H

#include "base/json.h"
#include "infer/score/sums.h"
#include "models/lm.h"

typedef struct bp_score_channels {
    int64_t count;   /* values a token, the log-probability first: bp_lm_info.channels */
    int64_t members; /* of an ensemble; 0: a plain model, of one channel */
    char **names;    /* [members] */
    double *oob;     /* [members]: perplexity of the documents that a bag lacks; NaN: not known */
} bp_score_channels;

/** Channels of a model, names still empty. Clear after an error too. Errors: BP_ERR_SYSTEM. */
bp_err bp_score_channels_init(bp_score_channels *channels, const bp_lm_info *info);
/** Name a member. Errors: BP_ERR_SYSTEM. */
bp_err bp_score_channels_name(bp_score_channels *channels, int64_t member, const char *name,
                              double oob);
/** Names and perplexities of rank `from` go to rank 0, which has none yet.
 *
 * Collective: over `comm`; the counts are equal on all ranks. Errors: BP_ERR_SYSTEM: the same on
 * all ranks. */
bp_err bp_score_channels_share(bp_score_channels *channels, int from, MPI_Comm comm);
void bp_score_channels_clear(bp_score_channels *channels);

/** An ensemble's variance of log p_m(target) as an estimate of that of all members there might be:
 * divided by M - 1. Not a channel of models: it is made of BP_LM_LOGPROB_VARIANCE, in files and
 * figures. */
#define BP_SCORE_UNBIASED "logprob_variance_unbiased"
/** By what BP_LM_LOGPROB_VARIANCE is multiplied for it; NaN of one member. */
double bp_score_unbiased_factor(int64_t members);

/** Add an ensemble's figures to those of a set: the means of its channels over tokens, and each
 * member's sum and perplexity, with that out of its bag if `oob`. Nothing for a plain model.
 *
 * Shapes:     sums[count - 1], of the channels behind the log-probability.
 * Errors:     BP_ERR_SYSTEM memory; BP_ERR_FORMAT a member's name is not UTF-8.
 */
bp_err bp_score_channels_figure(json_t *figures, const bp_score_channels *channels,
                                const bp_fixed *sums, int64_t tokens, bool oob);

#endif
