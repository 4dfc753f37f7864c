/* Is scored text of another form than the training text: other marks, line breaks, or punctuation?
 * Local. */
#pragma once

#include "data/corpus.h"

typedef struct bp_token_frequencies {
    int64_t *scored, *trained; /* [vocab_size] how often each token is in the texts */
    int64_t vocab_size, tokens, trained_tokens;
} bp_token_frequencies;

/** Warn once, of what weighs more: tokens that the training text lacks, or punctuation and white
 * space that are much rarer there. `of`: " of corpus NAME", or ""; `training` its name. */
void bp_token_frequencies_warn(const bp_token_frequencies *counts, bp_corpus *corpus,
                               const char *of, const char *training);
