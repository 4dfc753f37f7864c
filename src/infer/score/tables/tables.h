/* The score files that are HDF5: tokens.h5, documents.h5 and outcomes.h5. docs/formats.md has the
 * layout. Local: no MPI. */
#pragma once

#include "infer/score/tables/table.h"
#include "io/h5/h5.h"

/** tokens.h5, written in order. */
typedef struct bp_tokens_writer bp_tokens_writer;
/** Errors: those of bp_h5_create. `plan` and `statistics` are borrowed. */
bp_err bp_tokens_writer_new(bp_tokens_writer **out, const char *path, const bp_score_plan *plan,
                            const bp_token_statistics *statistics);
/** Write the values of entries [first, first + count) of /tokens. `first` never decreases; skipped
 * entries are NaN.
 *
 * Shapes:     values[count] of float, maybe not aligned, for each statistic; the next statistic's
 *             begin `stride` values later.
 * Errors:     BP_ERR_IO; BP_ERR_FORMAT a run that is out of order or beyond the end. */
bp_err bp_tokens_writer_add(bp_tokens_writer *writer, int64_t first, int64_t count,
                            const char *values, int64_t stride);
/** Write the rest, fsync, and rename the file to its final name. Errors: BP_ERR_IO. */
bp_err bp_tokens_writer_commit(bp_tokens_writer *writer);
/** Without a preceding commit, removes the file. NULL is accepted. */
void bp_tokens_writer_free(bp_tokens_writer **writer);

/** An ensemble's statistics of each prediction of a task; a document has one or more
 * predictions. */
typedef struct bp_outcomes {
    const bp_score_plan *plan;
    const bp_token_statistics *statistics;
    const int64_t *predictions; /* [plan->documents] predictions of each document */
    int64_t count;              /* their sum */
    const float *values;        /* [statistics->count and extras][count]; NaN: unknown */
    unsigned extras;            /* bp_model_info.extras; last in `values` */
    float *label; /* [count] for named outcomes: the true one, -1 if unknown; NULL: not written */
    const char *const *outcome_names; /* [outcomes]; NULL if they have no names */
    int64_t outcomes;
    int64_t cut,
        positions; /* documents that are longer than what a model reads, and how much it is */
} bp_outcomes;
/** outcomes.h5. Errors: BP_ERR_IO, those of bp_h5_create and of the corpora. */
bp_err bp_outcomes_write(const char *path, const bp_outcomes *outcomes);
/** outcomes.h5 of regressions, whose members return values, with label[count]. */
bp_err bp_outcomes_write_values(const char *path, const bp_outcomes *outcomes, const float *label);

/** documents.h5, from the merged table. Errors: BP_ERR_IO, those of bp_h5_create and of the
 * corpora. */
bp_err bp_documents_write(const bp_score_table *table, const char *path);

/** /doc_id of all documents, from the corpora. Errors: BP_ERR_IO, those of the corpora. */
bp_err bp_score_ids_write(bp_h5 *out, const bp_score_plan *plan);
/** The datasets that make tokens.h5 readable without the corpora: /tokens, /doc_start, /doc_id,
 * /source/tokenizer (if the corpus has one), named as in a corpus file. Errors: as above. */
bp_err bp_score_text_write(bp_h5 *out, const bp_score_plan *plan);
