/* The entries of a datastore as pages show them. Local: no MPI. */
#ifndef BP_EXPLAIN_PAGES_SOURCES_H
#define BP_EXPLAIN_PAGES_SOURCES_H

#include "explain/pages/spans.h"
#include "io/h5/h5.h"

typedef struct explain_entries {
    bp_h5 *h5; /* NULL: there is no datastore */
    bool has_tokens;
    bool has_documents; /* they are whole documents */
    int64_t documents;
    int64_t *starts; /* [documents + 1] where it has tokens */
    size_t id_bytes;
} explain_entries;

/** Of the file at `path`; NULL: there is none. Errors: those of reading. Clear after an error too.
 */
bp_err explain_entries_open(explain_entries *out, const char *path);
void explain_entries_clear(explain_entries *entries);
/** {"entries": [{"id", "before", "token", "after"}...], "near": [[[entry, distance]...]...]}, a
 * list of `near` for each target: documents[K][k], places[K][k], distances[K][k]. Whole
 * documents have the beginning of their text as "after", or, in a file without texts, an id alone.
 * New reference. Errors: those of reading, and of texts of
 * tokens. */
bp_err explain_entries_json(json_t **out, const explain_entries *entries,
                            const explain_speller *speller, const float *const near[3], int64_t K,
                            int64_t k);

#endif
