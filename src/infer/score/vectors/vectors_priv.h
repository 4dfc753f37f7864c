/* Shared by the files of score.vectors. */
#pragma once

#include "infer/score/plan.h"
#include "infer/score/vectors/vectors.h"
#include "job/work.h"
#include "models/model.h"

/** Documents are sorted by length within blocks of this many, so that batches need little padding
 * and the file is written in whole runs of rows. */
#define VECTORS_SORTED 4096
#define VECTORS_UNIT   128  /* documents of a unit of work */
#define VECTORS_BATCH  32   /* the most documents of a batch, */
#define VECTORS_TOKENS 8192 /* and their positions, if there are several */

typedef struct vector_text {
    int64_t document;
    int64_t positions; /* of its example: the tokens read, and the tokens put around them */
} vector_text;

/** The documents of corpora as examples, in the order in which they are read. Local. */
typedef struct vector_texts {
    const bp_vectors_wish *wish; /* borrowed */
    bp_score_plan plan;
    int64_t begin, end; /* tokens around a text; -1 if there is none */
    bool once;          /* `begin` is not added to a text that begins with it */
    int64_t most;       /* positions of an example */
    int64_t cut;        /* number of longer documents */
    int64_t tokens;     /* positions of all examples */
    vector_text *order; /* [plan.documents] */
} vector_texts;

/** List the corpus's documents; the caller sets `begin`, `end` and `most`. Errors: BP_ERR_FORMAT a
 * document without tokens to read; those of bp_score_plan_init. Clear after an error too. */
bp_err vector_texts_open(vector_texts *texts, bp_corpus *corpus);
void vector_texts_clear(vector_texts *texts);

/** The next batch: examples [*first, returned) of the order, of a unit that ends at `end`. */
int64_t vector_texts_batch(const vector_texts *texts, int64_t first, int64_t end);
/** inputs[last - first][length] of these examples, -1 after a text's end; `length` is that of the
 * longest. Errors: those of reading the corpus. */
bp_err vector_texts_read(const vector_texts *texts, int64_t first, int64_t last, int64_t length,
                         int32_t *inputs);

/** Write score/index.html, after vectors.h5 is written; width: of a vector. On the coordinator. */
void vectors_page_write(bp_work_job *job, const vector_texts *texts, int64_t width);
