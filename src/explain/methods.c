/* The list of methods. */
#include "explain/method.h"

#include <string.h>

const bp_explain_method *const bp_explain_methods[] = {
    &bp_explain_saliency, &bp_explain_gradient, &bp_explain_integrated, &bp_explain_lens, NULL};

const bp_explain_method *bp_explain_method_named(const char *name, size_t length)
{
    for (const bp_explain_method *const *method = bp_explain_methods; *method; method++)
        if (strlen((*method)->name) == length && strncmp((*method)->name, name, length) == 0)
            return *method;
    return NULL;
}

int64_t bp_explain_values(const bp_explain_array *array, int64_t T, int64_t layers)
{
    const int64_t each[] = {[BP_EXPLAIN_BY_TARGET] = 1,
                            [BP_EXPLAIN_BY_INPUT] = T,
                            [BP_EXPLAIN_BY_LAYER] = layers + 1,
                            [BP_EXPLAIN_TOPS] = (layers + 1) * BP_EXPLAIN_TOP};

    return T * each[array->shape];
}

int64_t bp_explain_floats(const bp_explain_method *method, int64_t T, int64_t layers)
{
    int64_t floats = 0;

    for (int k = 0; k < BP_EXPLAIN_ARRAYS && method->arrays[k].name; k++)
        floats += bp_explain_values(&method->arrays[k], T, layers);
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
