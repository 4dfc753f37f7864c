/* Words of the corpus with the largest mean attributions, and the agreement between methods: sums
 * over documents as they are read. Local: no MPI. */
#pragma once

#include "explain/pages/matrices.h"
#include "explain/pages/spans.h"

#define EXPLAIN_WORDS_LISTED 20

typedef struct explain_words explain_words;
/** For models with classes or tags, words are grouped by the outcome explained: `groups` of them;
 * 1: all together. */
explain_words *explain_words_new(int64_t groups);
void explain_words_free(explain_words **words);
/** Adds the words of a document with these spans: of its inputs, or of its source where that is
 * what the matrices have. Errors: BP_ERR_SYSTEM. */
bp_err explain_words_add(explain_words *words, const bp_explain_settings *settings,
                         const bp_explained *document, const explain_spans *spans,
                         const explain_matrix *matrices, int count);
/** {"largest": [{"word", "mean", "interval", "occurrences", "documents"}...], "smallest": ...} of
 * matrix m and a group: words in at least `least` documents, by their mean attribution to a target.
 * New reference. */
json_t *explain_words_json(const explain_words *words, int m, int64_t group, int64_t least);

/** Correlations between methods: for each document, the mean over its targets. */
typedef struct explain_agreement explain_agreement;
explain_agreement *explain_agreement_new(void);
void explain_agreement_free(explain_agreement **agreement);
void explain_agreement_add(explain_agreement *agreement, const bp_explain_settings *settings,
                           const bp_explained *document, const explain_matrix *matrices, int count);
/** [{"one", "other", "spearman", "interval", "documents"}...]. New reference. */
json_t *explain_agreement_json(const explain_agreement *agreement);
