/* The list of methods. */
#include "explain/method.h"

#include <string.h>

const bp_explain_method *const bp_explain_methods[] = {&bp_explain_attention,
                                                       &bp_explain_lens,
                                                       &bp_explain_saliency,
                                                       &bp_explain_gradient,
                                                       &bp_explain_integrated,
                                                       &bp_explain_contrast,
                                                       &bp_explain_surrogate,
                                                       &bp_explain_shapley,
                                                       &bp_explain_counterfactual,
                                                       &bp_explain_faithfulness,
                                                       &bp_explain_contrast_sets,
                                                       &bp_explain_sources,
                                                       &bp_explain_similarity,
                                                       &bp_explain_projection,
                                                       &bp_explain_factors,
                                                       &bp_explain_memories,
                                                       NULL};

const char *const bp_explain_files[] = {"summary.json",
                                        "attention.h5",
                                        "lens.h5",
                                        "saliency.h5",
                                        "gradient.h5",
                                        "integrated.h5",
                                        "contrast.h5",
                                        "surrogate.h5",
                                        "shapley.h5",
                                        "counterfactual.h5",
                                        "faithfulness.h5",
                                        "contrast_sets.h5",
                                        "sources.h5",
                                        "similarity.h5",
                                        "projection.h5",
                                        "factors.h5",
                                        "memories.h5",
                                        "examples.h5",
                                        NULL};

const bp_explain_method *bp_explain_method_named(const char *name, size_t length)
{
    for (const bp_explain_method *const *method = bp_explain_methods; *method; method++)
        if (strlen((*method)->name) == length && strncmp((*method)->name, name, length) == 0)
            return *method;
    return NULL;
}

const char *bp_explain_position(const char *list, const bp_explain_method *method)
{
    for (const char *at = list; *at;) {
        size_t length = strcspn(at, ",");

        if (bp_explain_method_named(at, length) == method)
            return at;
        at += length + (at[length] == ',');
    }
    return NULL;
}
