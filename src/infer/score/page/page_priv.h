/* index.html of a scoring job: the distribution of documents' perplexities, the hardest and the
 * easiest documents, and texts coloured token by token. Private to src/infer/score/page; local. */
#ifndef BP_INFER_SCORE_PAGE_PAGE_PRIV_H
#define BP_INFER_SCORE_PAGE_PAGE_PRIV_H

#include "infer/score/scorer_priv.h"

/** Write `folder`/index.html of what was scored, once tokens.h5 is there (or was not asked for).
 * What fails is a warning; where gnuplot does, the page says so. */
void score_page_write(const scorer *self, const bp_score_table *table);

/** exp(nll / tokens) of a document; NaN: nothing of it was scored. */
double score_page_perplexity(const bp_score_table *table, int64_t document);

/** Any bytes as a string of valid UTF-8 (bp_text_escape). New reference. */
json_t *score_page_text(const char *text, size_t bytes);

/** object[key]: the value as text, or null if it is not finite. */
void score_page_add_value(json_t *object, const char *key, const char *format, double value);

/** Fill the page's "hardest", "easiest" and "samples". Errors: those of reading the corpora and
 * tokens.h5; BP_ERR_SYSTEM. */
bp_err score_page_add_texts(json_t *page, const scorer *self, const bp_score_table *table);

#endif
