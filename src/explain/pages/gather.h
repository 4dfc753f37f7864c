/* Pages for people: index.html, with the figures over the corpus, and one page per example. Also
 * the figures of summary.json that need all methods, or words. Local: no MPI. */
#pragma once

#include "explain/explainer.h"
#include "explain/pages/example.h"
#include "explain/pages/words.h"

/** The data gathered as documents are read. */
typedef struct explain_gathered {
    explain_speller speller;
    const char *const *outcomes; /* [groups] names of classes or tags; NULL if there are none */
    int64_t groups;
    explain_words *words[2]; /* of inputs, and of sources */
    explain_agreement *agreement;
    explain_entries entries;
    json_t *largest;  /* {"METHOD": {"STATISTIC": [{"value", "layer", "head", "document"}...]}} */
    json_t *examples; /* [{"document", "id", "page", "targets"}...] of summary.json; no "page" if
                         no method explains a single document */
    json_t *listed;   /* the same for the page, with texts */
    explain_matrix matrices[2][EXPLAIN_MATRICES]; /* of either; their values are a document's */
    int matrix_counts[2];
} explain_gathered;

/** Errors: those of explain_speller_open. Clear after an error too. */
bp_err explain_gather_begin(explain_gathered *gathered, const explainer *self);
void explain_gather_clear(explain_gathered *gathered);
/** Add the next document; write the page of an example. Errors: those of texts of tokens; failure
 * to write a page is a warning. */
bp_err explain_gather_add(explain_gathered *gathered, explainer *self, int64_t number,
                          const explain_shown *shown);
/** Adds "words" and "largest" to the methods of summary.json, and "agreement" and "examples". */
void explain_gather_finish(const explain_gathered *gathered, const explainer *self,
                           json_t *summary);
/** The file of a document, and the document's number in it; NULL if there is none. */
bp_corpus_file *explain_file_of(const explainer *self, int64_t number, int64_t *own);
/** A document's id, else "document N". New reference. */
json_t *explain_id_of(const explainer *self, int64_t number);
/** "Explanations of MODEL", or of a document. New reference. */
json_t *explain_title(const char *model, const json_t *id);
/** index.html (index.c). A failure is a warning. */
void explain_index_write(const explain_gathered *gathered, explainer *self, const json_t *summary);
