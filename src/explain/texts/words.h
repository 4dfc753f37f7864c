/* Words of a model's inputs: which tokens continue the preceding word, and which spell the same
 * word. */
#pragma once

#include "data/corpus.h"
#include "explain/method.h"

typedef struct explain_words {
    bool *parts; /* bp_explain_words with both arrays, of `count` tokens */
    int32_t *same;
    int64_t count; /* 0: each token is a word */
} explain_words;

/** Find them by the tokenizer in the corpus; without one each token is a word. Local. Owns:
 * explain_words_clear(), after an error too. Errors: those of bp_corpus_file_tokenizer and of
 * bp_tokenizer_parse. */
bp_err explain_words_open(explain_words *out, const bp_corpus *corpus, int64_t tokens);
/** Broadcast rank 0's words to all ranks. Collective over comm. */
void explain_words_share(explain_words *words, MPI_Comm comm);
void explain_words_clear(explain_words *words);
