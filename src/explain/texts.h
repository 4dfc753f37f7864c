/* The documents of corpora as a language model reads them for explanations. Local: no MPI. */
#ifndef BP_EXPLAIN_TEXTS_H
#define BP_EXPLAIN_TEXTS_H

#include "explain/method.h"
#include "infer/score/plan.h"

typedef struct explain_texts {
    bp_corpus *corpus;
    bp_score_plan plan;
    int64_t most;        /* inputs of a document */
    int64_t tokens, cut; /* inputs of all documents; documents that lose their end */
    int64_t *places;     /* [plan.documents] of each; 0: it has no target */
} explain_texts;

/** Errors: those of bp_corpus_open and of reading corpora; BP_ERR_FORMAT a tokenizer that is not
 * the model's. Clear after an error too. */
bp_err explain_texts_open(explain_texts *texts, const char *corpus, const bp_model_info *model,
                          int64_t most);
void explain_texts_clear(explain_texts *texts);
/** tokens[places + 1]: inputs, and the last target. Errors: those of bp_corpus_file_read. */
bp_err explain_texts_read(const explain_texts *texts, int64_t document, int32_t *tokens);

#endif
