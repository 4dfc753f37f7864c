/* Coefficients of the MLPs' keys in a document. Called by memories.c and factors.c. */
#include "explain/states/collection.h"

#include "base/mem.h"

const char *bp_explain_lacks_keys(const bp_model_info *info)
{
    return info->keys == 0 ? "its layers have no MLPs, or mixtures of experts, or an adapter's "
                             "change of them"
           : info->source_layers > 0 && !info->reads_source
               ? "it reads its text twice, by encoder and decoder"
               : NULL;
}

bp_err bp_explain_coefficients(bp_model *model, const bp_explain_settings *settings,
                               const bp_explained *document, float *coefficients)
{
    int32_t *targets = bp_alloc("explain.coefficients", document->T, sizeof *targets),
            source_length;
    bp_model_batch batch = bp_explain_whole(document, targets, &source_length);
    bp_err err = model->ops->coefficients(model, &batch, coefficients);
    if (err == BP_OK)
        bp_explain_look(settings, coefficients,
                        settings->info->layers * document->T * settings->info->keys);
    bp_free(targets);
    return err;
}
