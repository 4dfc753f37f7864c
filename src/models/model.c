/* The face of all models: calls go to the model's table of functions. */
#include "models/model.h"

#include "base/err.h"

const char *bp_model_statistic_name(int64_t statistic)
{
    static const char *const NAMES[] = {"logprob",
                                        "total_entropy",
                                        "expected_entropy",
                                        "mutual_information",
                                        "logprob_variance",
                                        "agreement",
                                        "confidence",
                                        "correct",
                                        "brier"};

    BP_ASSERT(statistic >= 0 && statistic < BP_MODEL_MEMBER);
    return NAMES[statistic];
}

void bp_model_free(bp_model **lm)
{
    if (*lm)
        (*lm)->ops->free(*lm);
    *lm = NULL;
}

bp_err bp_model_score(bp_model *lm, const bp_model_batch *batch, float *values)
{
    return lm->ops->score(lm, batch, values);
}
