/* Rows by target of what methods leave. Called by pages/words.c, pages/agreement.c and
 * pages/example.c. */
#include "explain/pages/matrices.h"

int explain_matrices_in(explain_matrix out[EXPLAIN_MATRICES],
                        const bp_explain_method *const *methods, int count, const float *results,
                        const bp_explain_form *form)
{
    const float *at = results;
    int found = 0;

    for (int m = 0; m < count; m++)
        for (int k = 0; k < BP_EXPLAIN_ARRAYS && methods[m]->arrays[k].name; k++) {
            const bp_explain_array *array = &methods[m]->arrays[k];

            bool by_place = array->shape == BP_EXPLAIN_BY_PLACES;

            if ((by_place || array->shape == BP_EXPLAIN_BY_INPUT) && found < EXPLAIN_MATRICES)
                out[found++] = (explain_matrix){methods[m], array, at, by_place};
            at += bp_explain_values(array, form);
        }
    return found;
}

const float *explain_matrix_row(const explain_matrix *matrix, const bp_explained *document,
                                int64_t k)
{
    return matrix->values + (matrix->by_place ? document->places[k] : k) * document->T;
}
