/* The documents of corpora as a language model reads them for explanations. Local: no MPI. */
#ifndef BP_EXPLAIN_TEXTS_H
#define BP_EXPLAIN_TEXTS_H

#include "explain/method.h"
#include "infer/score/plan.h"

/** Sizes of a document, as bp_explained has them. K 0: nothing is explained. */
typedef struct explain_sizes {
    int64_t K, T, S;
} explain_sizes;

/** A document that is read, and where its arrays are. */
typedef struct explain_reading {
    bp_explained document; /* borrows what follows */
    int32_t *inputs;       /* [most + 1] */
    int32_t *targets;      /* [most] */
    int32_t *places;       /* [most] */
} explain_reading;

typedef struct explain_texts {
    bp_corpus *corpus;
    bp_score_plan plan;
    int64_t most;         /* inputs of a document */
    int64_t targets;      /* of all documents */
    int64_t cut;          /* documents that lose their end */
    explain_sizes *sizes; /* [plan.documents] */
} explain_texts;

/** Errors: those of bp_corpus_open and of reading corpora; BP_ERR_FORMAT a tokenizer that is not
 * the model's. Clear after an error too. */
bp_err explain_texts_open(explain_texts *texts, const char *corpus, const bp_model_info *model,
                          int64_t most);
void explain_texts_clear(explain_texts *texts);

/** For documents of at most `most` inputs. Owns: explain_reading_clear(). */
void explain_reading_new(explain_reading *read, int64_t most);
void explain_reading_clear(explain_reading *read);
/** A document. Errors: those of bp_corpus_file_read. */
bp_err explain_texts_read(const explain_texts *texts, int64_t document, explain_reading *read);

#endif
