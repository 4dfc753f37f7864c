/* Coefficients of the MLPs' keys in a document. Called by memories.c and factors.c. */
#include "explain/states/collection.h"

#include "base/mem.h"

const char *bp_explain_lacks_keys(const bp_model_info *info)
{
    return info->keys > 0 ? NULL
                          : "its layers have no MLPs, or mixtures of experts, or an adapter's "
                            "change of them";
}

bp_err bp_explain_coefficients(bp_model *lm, const bp_explained *document, float *coefficients)
{
    int64_t T = document->T;
    int32_t *targets = bp_alloc("explain.coefficients", T, sizeof *targets);
    bp_model_batch batch = {
        .windows = 1, .length = T, .inputs = document->inputs, .targets = targets};
    bp_err err;

    for (int64_t t = 0; t < T; t++) /* a head needs a target, whose result is not used */
        targets[t] = t == T - 1 ? document->inputs[t] : -1;
    err = lm->ops->coefficients(lm, &batch, coefficients);
    bp_free(targets);
    return err;
}
