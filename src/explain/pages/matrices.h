/* The matrices of methods by target and input, wherever they are in a document's results. Local: no
 * MPI. */
#ifndef BP_EXPLAIN_PAGES_MATRICES_H
#define BP_EXPLAIN_PAGES_MATRICES_H

#include "explain/method.h"

#define EXPLAIN_MATRICES 64

typedef struct explain_matrix {
    const bp_explain_method *method;
    const bp_explain_array *array;
    const float *values;
    bool by_place;  /* a row an input, not a target */
    bool last;      /* a text is judged at its last place */
    bool of_source; /* columns are places of the source */
    int64_t stride; /* from row to row */
} explain_matrix;

/** All of `count` methods' results, in their order: how many. */
int explain_matrices_in(explain_matrix out[EXPLAIN_MATRICES], const bp_model_info *info,
                        const bp_explain_method *const *methods, int count, const float *results,
                        const bp_explain_form *form);
/** How lists name it: methods by changed inputs by their own name, others by their array's. */
const char *explain_matrix_title(const bp_explain_method *method, const bp_explain_array *array);
/** Does it say how much inputs count, and no other matrix of its method? */
bool explain_matrix_is_main(const explain_matrix *matrix);
/** Columns, and row of target k. */
int64_t explain_matrix_columns(const explain_matrix *matrix, const bp_explained *document);
const float *explain_matrix_row(const explain_matrix *matrix, const bp_explained *document,
                                int64_t k);

#endif
