/* The page of one document: RUN/explain/example-N.html. Local: no MPI. */
#pragma once

#include "explain/examples/examples.h"
#include "explain/pages/matrices.h"
#include "explain/pages/sources.h"
#include "explain/pages/spans.h"

/** The contents of a document's page. */
typedef struct explain_shown {
    const bp_explain_settings *settings;
    const bp_explained *document;
    const bp_explain_form *form;
    const bp_explain_method *const *methods; /* [count] */
    int count;
    const float *results;           /* of the methods, one after another */
    const float *weights;           /* explain_weights_of; NULL if there are none */
    const char *const *outcomes;    /* names of classes or tags; NULL if targets are tokens */
    const explain_entries *entries; /* of explain.datastore */
} explain_shown;

/** The data of the page's script, as text without "</script>": docs/explanation.md. NULL if no
 * method explains a single document. Errors: those of texts of tokens. Owns: bp_free(). */
bp_err explain_example_data(char **out, const explain_shown *shown, const explain_speller *speller);

/** What replaced tokens change, by the results of `counterfactual` (edits.c): {"source": of the
 * source, "explained", "preferred", "before" and "after": its ln p, "new": what is preferred then,
 * "list": [[place, token, new token]...] or null if no edit was found, "most": tokens that an edit
 * may have, "flips":
 * [[place, token, new token, first-order change, change]...]}. New reference. */
json_t *explain_edits_json(const explain_shown *shown, const explain_speller *speller,
                           const float *results);

/** Bytes in base64, for a script's atob(). New reference. */
json_t *explain_base64_json(const uint8_t *bytes, size_t count);

/** A number rounded to the digits that a page shows; null if it is not finite. New reference. */
json_t *explain_number_json(double value);

/** Text of JSON for a <script>. Free with bp_free(). */
char *explain_script_text(const json_t *value);
