/* The list of methods. */
#include "explain/method.h"

#include <string.h>

const bp_explain_method *const bp_explain_methods[] = {&bp_explain_saliency, &bp_explain_gradient,
                                                       &bp_explain_integrated, NULL};

const bp_explain_method *bp_explain_method_named(const char *name, size_t length)
{
    for (const bp_explain_method *const *method = bp_explain_methods; *method; method++)
        if (strlen((*method)->name) == length && strncmp((*method)->name, name, length) == 0)
            return *method;
    return NULL;
}

int64_t bp_explain_floats(const bp_explain_method *method, int64_t T)
{
    int64_t floats = 0;

    for (int k = 0; k < BP_EXPLAIN_ARRAYS && method->arrays[k].name; k++)
        floats += method->arrays[k].by_input ? T * T : T;
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
