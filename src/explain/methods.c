/* The list of methods. */
#include "explain/method.h"

#include <string.h>

const bp_explain_method *const bp_explain_methods[] = {
    &bp_explain_attention,  &bp_explain_lens,
    &bp_explain_saliency,   &bp_explain_gradient,
    &bp_explain_integrated, &bp_explain_similarity,
    &bp_explain_projection, &bp_explain_factors,
    &bp_explain_memories,   NULL};

const char *const bp_explain_files[] = {
    "summary.json",  "attention.h5",  "lens.h5",    "saliency.h5", "gradient.h5", "integrated.h5",
    "similarity.h5", "projection.h5", "factors.h5", "memories.h5", NULL};

const bp_explain_method *bp_explain_method_named(const char *name, size_t length)
{
    for (const bp_explain_method *const *method = bp_explain_methods; *method; method++)
        if (strlen((*method)->name) == length && strncmp((*method)->name, name, length) == 0)
            return *method;
    return NULL;
}

int64_t bp_explain_values(const bp_explain_array *array, const bp_explain_form *form)
{
    const int64_t all[] = {[BP_EXPLAIN_BY_TARGET] = form->T,
                           [BP_EXPLAIN_BY_INPUT] = form->T * form->T,
                           [BP_EXPLAIN_BY_LAYER] = form->T * (form->layers + 1),
                           [BP_EXPLAIN_TOPS] = form->T * (form->layers + 1) * BP_EXPLAIN_TOP,
                           [BP_EXPLAIN_BY_HEAD] = form->layers * form->heads,
                           [BP_EXPLAIN_BY_DOCUMENT] = 1};

    return all[array->shape];
}

int64_t bp_explain_floats(const bp_explain_method *method, const bp_explain_form *form)
{
    int64_t floats = 0;

    for (int k = 0; k < BP_EXPLAIN_ARRAYS && method->arrays[k].name && form->T > 0; k++)
        floats += bp_explain_values(&method->arrays[k], form);
    return floats;
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
