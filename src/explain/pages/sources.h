/* The entries of a datastore as pages show them. Local: no MPI. */
#pragma once

#include "explain/pages/spans.h"
#include "io/h5/h5.h"

typedef struct explain_entries {
    bp_h5 *h5; /* NULL if there is no datastore */
    bool has_tokens;
    bool has_documents; /* entries are whole documents */
    int64_t documents;
    int64_t *starts; /* [documents + 1] if it has tokens */
    size_t id_bytes;
} explain_entries;

/** Open the file at `path`; NULL if there is none. Errors: those of reading. Clear after an error
 * too.
 */
bp_err explain_entries_open(explain_entries *out, const char *path);
void explain_entries_clear(explain_entries *entries);
/** {"entries": [{"id", "before", "token", "after"}...], "near": [[[entry, distance]...]...]}, a
 * list of `near` for each target: documents[K][k], positions[K][k], distances[K][k]. For whole
 * documents, "after" is the beginning of the text; in a file without texts there is only an id. New
 * reference. Errors: those of reading, and of texts of tokens. */
bp_err explain_entries_json(json_t **out, const explain_entries *entries,
                            const explain_speller *speller, const float *const near[3], int64_t K,
                            int64_t k);
