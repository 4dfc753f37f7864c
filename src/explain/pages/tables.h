/* Shared by the pages of methods of the whole corpus: tables of a file, figures by layer. Local: no
 * MPI. */
#pragma once

#include "explain/pages/contexts.h"

/** A page of a method, linked from index.html. */
typedef struct explain_page {
    const bp_explain_method *method;
    const char *file, *template; /* of RUN/explain; of the job's report, without its ending */
    const char *title, *link;    /* before the model's name; in index.html */
    /** Fills in what the script reads from METHOD.h5. Errors: those of reading. */
    bp_err (*fill)(json_t *data, json_t *page, bp_h5 *h5, const explain_gathered *gathered,
                   explainer *self, const json_t *figures);
} explain_page;
extern const explain_page explain_page_projection, explain_page_similarity, explain_page_memories,
    explain_page_factors;

/** Read a table of a file into new memory, bp_free(); *rows and *columns may be NULL. Errors: those
 * of reading. */
bp_err explain_table_read(bp_h5 *h5, const char *name, bp_h5_type type, void **out, int64_t *rows,
                          int64_t *columns);
/** Add figures.NAME of each layer as lines of a plot, data.figures = [{"name", "title": in words,
 * "values"}...], and as a table, page.layers. */
void explain_add_layers(json_t *data, json_t *page, const json_t *figures);
