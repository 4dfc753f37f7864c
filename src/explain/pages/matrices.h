/* The matrices of methods by target and input, wherever they are in a document's results. Local: no
 * MPI. */
#pragma once

#include "explain/method.h"

#define EXPLAIN_MATRICES 64

typedef struct explain_matrix {
    const bp_explain_method *method;
    const bp_explain_array *array;
    const float *values;
    bool by_place;  /* one row per input, not per target */
    bool last;      /* a text is classified at its last place */
    bool of_source; /* columns are positions of the source */
    int64_t stride; /* stride between rows */
} explain_matrix;

/** List all matrices of `count` methods' results, in their order; returns how many. */
int explain_matrices_in(explain_matrix out[EXPLAIN_MATRICES], const bp_model_info *info,
                        const bp_explain_method *const *methods, int count, const float *results,
                        const bp_explain_form *form);
/** Its name in lists: the method's for methods that change inputs, else the array's. */
const char *explain_matrix_title(const bp_explain_method *method, const bp_explain_array *array);
/** Is it its method's matrix of attributions (bp_explain_method.ranks)? */
bool explain_matrix_is_main(const explain_matrix *matrix);
/** False of what a method by changed inputs has beside its attributions: their errors. */
bool explain_matrix_is_shown(const explain_matrix *matrix);
/** Columns, and row of target k. */
int64_t explain_matrix_columns(const explain_matrix *matrix, const bp_explained *document);
const float *explain_matrix_row(const explain_matrix *matrix, const bp_explained *document,
                                int64_t k);
