/* Shared by the files of score.vectors. */
#ifndef BP_INFER_SCORE_VECTORS_VECTORS_PRIV_H
#define BP_INFER_SCORE_VECTORS_VECTORS_PRIV_H

#include "infer/score/plan.h"
#include "infer/score/vectors/vectors.h"
#include "job/work.h"
#include "models/model.h"

/** Documents are sorted by length within this many, so that those of a batch need little padding
 * and the file is written in whole runs of rows. */
#define VECTORS_SORTED 4096
#define VECTORS_UNIT   128  /* documents of a unit of work */
#define VECTORS_BATCH  32   /* documents of a batch at most, */
#define VECTORS_TOKENS 8192 /* and their places, where there are several */

typedef struct vector_text {
    int64_t document;
    int64_t places; /* of its example: what is read of it, with what is put around it */
} vector_text;

/** The documents of corpora as examples, in the order in which they are read. Local. */
typedef struct vector_texts {
    const bp_vectors_wish *wish; /* borrowed */
    bp_score_plan plan;
    int64_t begin, end; /* tokens around a text; -1: none */
    bool once;          /* a text that begins with `begin` gets no second one */
    int64_t most;       /* places of an example */
    int64_t cut;        /* documents that are longer */
    int64_t tokens;     /* places of all */
    vector_text *order; /* [plan.documents] */
} vector_texts;

/** List the corpus's documents; `begin`, `end` and `most` are given. Errors: BP_ERR_FORMAT a
 * document of which nothing is read; those of bp_score_plan_init. Clear after an error too. */
bp_err vector_texts_open(vector_texts *texts, bp_corpus *corpus);
void vector_texts_clear(vector_texts *texts);

/** Examples [*first, returned) of the order that are a batch, of a unit's up to `end`. */
int64_t vector_texts_batch(const vector_texts *texts, int64_t first, int64_t end);
/** inputs[last - first][length] of these, -1 after a text's end; `length` is the longest's. Errors:
 * those of reading the corpus. */
bp_err vector_texts_read(const vector_texts *texts, int64_t first, int64_t last, int64_t length,
                         int32_t *inputs);

/** score/index.html, once vectors.h5 is there; width: of a vector. On the coordinator. */
void vectors_page_write(bp_work_job *job, const vector_texts *texts, int64_t width);

#endif
