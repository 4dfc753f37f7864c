/* Rows by target of the results of methods. Called by pages/words.c, pages/agreement.c and
 * pages/example.c. */
#include "explain/pages/matrices.h"

#include "models/task/kind.h"

#include <string.h>

#define SOURCE "source_" /* before the names of arrays over sources */

/* Is it a matrix, and of which kind? With several foils the first is shown. */
static bool take(explain_matrix *out, const bp_explain_method *method,
                 const bp_explain_array *array, const float *values, const bp_explain_form *form)
{
    const struct {
        bp_explain_shape shape;
        bool by_place, of_source;
        int64_t stride;
    } KINDS[] = {{BP_EXPLAIN_BY_INPUT, false, false, form->T},
                 {BP_EXPLAIN_BY_POSITIONS, true, false, form->T},
                 {BP_EXPLAIN_BY_SOURCE, false, true, form->S},
                 {BP_EXPLAIN_BY_FOIL_INPUT, false, false, form->foils * form->T},
                 {BP_EXPLAIN_BY_FOIL_SOURCE, false, true, form->foils * form->S}};

    for (size_t k = 0; k < sizeof KINDS / sizeof KINDS[0]; k++)
        if (KINDS[k].shape == array->shape && bp_explain_values(array, form) > 0) {
            *out = (explain_matrix){.method = method,
                                    .array = array,
                                    .values = values,
                                    .by_place = KINDS[k].by_place,
                                    .of_source = KINDS[k].of_source,
                                    .stride = KINDS[k].stride};
            return true;
        }
    return false;
}

int explain_matrices_in(explain_matrix out[EXPLAIN_MATRICES], const bp_model_info *info,
                        const bp_explain_method *const *methods, int count, const float *results,
                        const bp_explain_form *form)
{
    const float *at = results;
    int found = 0;

    for (int m = 0; m < count; m++)
        for (int k = 0; k < BP_EXPLAIN_ARRAYS && methods[m]->arrays[k].name; k++) {
            const bp_explain_array *array = &methods[m]->arrays[k];

            if (found < EXPLAIN_MATRICES && take(&out[found], methods[m], array, at, form))
                out[found++].last = bp_explain_is_causal(info) && bp_task_has_head(&info->task) &&
                                    !bp_task_kind_of(&info->task)->over_positions;
            at += bp_explain_values(array, form);
        }
    return found;
}

const char *explain_matrix_title(const bp_explain_method *method, const bp_explain_array *array)
{
    const char *name = strncmp(array->name, SOURCE, strlen(SOURCE)) == 0
                           ? array->name + strlen(SOURCE)
                           : array->name;
    bool main = method->ranks && strcmp(method->ranks, name) == 0;

    return method->changes && main ? method->name : array->name;
}

bool explain_matrix_is_main(const explain_matrix *matrix)
{
    return matrix->method->ranks && strcmp(matrix->method->ranks, matrix->array->name) == 0;
}

bool explain_matrix_is_shown(const explain_matrix *matrix)
{
    return !matrix->method->changes ||
           strcmp(explain_matrix_title(matrix->method, matrix->array), matrix->method->name) == 0;
}

int64_t explain_matrix_columns(const explain_matrix *matrix, const bp_explained *document)
{
    return matrix->of_source ? document->S : document->T;
}

const float *explain_matrix_row(const explain_matrix *matrix, const bp_explained *document,
                                int64_t k)
{
    int64_t place = matrix->last ? document->T - 1 : document->positions[k];

    return matrix->values + (matrix->by_place ? place : k) * matrix->stride;
}
