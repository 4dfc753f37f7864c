/* Finds documents for which a model gives no numbers: damaged weights, or values that overflow.
 * Called by document.c and by methods of the whole corpus. */
#include "explain/explainer.h"

#include <math.h>
#include <string.h>

void bp_explain_look(const bp_explain_settings *settings, const float *values, int64_t count)
{
    bool zeros = settings->info->may_be_zero; /* probabilities, whose logarithms are infinite */

    for (int64_t i = 0; i < count && !*settings->broken; i++)
        *settings->broken = isnan(values[i]) || (isinf(values[i]) && !zeros);
}

/* Does NaN mean there that something does not exist: a query, a flip, an edit? */
static bool may_miss(const bp_explain_method *method, const bp_explain_array *array)
{
    bool by_name = false;

    for (int k = 0; k < BP_EXPLAIN_MISSING && method->missing[k]; k++)
        by_name = by_name || strcmp(method->missing[k], array->name) == 0;
    switch (array->shape) {
    case BP_EXPLAIN_BY_HEAD:
    case BP_EXPLAIN_BY_SOURCE_HEAD:
    case BP_EXPLAIN_BY_CROSS_HEAD:
    case BP_EXPLAIN_FLIPS:
    case BP_EXPLAIN_SOURCE_FLIPS:
    case BP_EXPLAIN_CURVES:
        return true;
    default:
        return by_name;
    }
}

void explain_look_at_results(const explainer *self, const bp_explain_form *form)
{
    const float *at = self->results;

    for (int64_t m = 0; m <= self->members; m++)
        for (int k = 0; k < self->count; k++)
            for (int a = 0; a < BP_EXPLAIN_ARRAYS && self->methods[k]->arrays[a].name; a++) {
                const bp_explain_array *array = &self->methods[k]->arrays[a];
                int64_t count = bp_explain_values(array, form);

                if (!may_miss(self->methods[k], array))
                    bp_explain_look(&self->settings, at, count);
                at += count;
            }
}
