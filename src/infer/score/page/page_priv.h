/* Shared by the files of this folder. */
#pragma once

#include "infer/score/page/page.h"
#include "infer/score/scorer.h"

/** exp(nll / tokens) of a document; NaN if no token was scored. */
double score_page_perplexity(const bp_score_table *table, int64_t document);

/** Fill the page's "hardest", "easiest" and "samples". Errors: those of reading the corpora and
 * tokens.h5; BP_ERR_SYSTEM. */
bp_err score_page_add_texts(json_t *page, const scorer *self, const bp_score_table *table);
