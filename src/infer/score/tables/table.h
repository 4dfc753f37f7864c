/* The results of scoring, a row a document, in memory: a function of the parts and the corpora.
 * Local: no MPI. */
#ifndef BP_INFER_SCORE_TABLES_TABLE_H
#define BP_INFER_SCORE_TABLES_TABLE_H

#include "infer/score/plan.h"
#include "infer/score/tables/sums.h"
#include "infer/score/tables/token_statistics.h"

/** The results of one document. */
typedef struct bp_score_row {
    bp_fixed nll, square;
    int64_t tokens;                /* scored */
    int64_t unscored;              /* text tokens that were not */
    int64_t oov, zeros, oov_zeros; /* as bp_score_piece has them */
    bp_fixed oov_nll;
} bp_score_row;

/** A label column of all corpora together: corpora that have a label of one name share its
 * values. */
typedef struct bp_score_column {
    char *name;
    char **values; /* [value_count], in the order of the first corpus that has them */
    int64_t value_count;
    int32_t
        *codes; /* [documents]: index into values; -1: the document's corpus has no such label */
} bp_score_column;

typedef struct bp_score_table {
    const bp_score_plan *plan;             /* borrowed */
    const bp_token_statistics *statistics; /* borrowed */
    bp_score_row *rows;                    /* [documents] */
    bp_fixed *sums; /* [documents][statistics - 1]: of the statistics after the log-probability */
    bp_score_column *columns;
    int64_t column_count;
} bp_score_table;

/** Read the corpora's labels, and allocate for all documents. Clear after an error too.
 *  Errors: BP_ERR_SYSTEM; those of bp_corpus_file_label. */
bp_err bp_score_table_init(bp_score_table *table, const bp_score_plan *plan,
                           const bp_token_statistics *statistics);
void bp_score_table_clear(bp_score_table *table);

/** The sums of one document, its counts of bytes and words among them. The counts of its file are
 *  borrowed once for all by bp_score_counts_of. */
typedef struct bp_score_counts {
    const int64_t *bytes, *words, *words_split; /* of a file's documents; NULL: unknown */
} bp_score_counts;
bp_err bp_score_counts_of(const bp_score_plan *plan, int64_t file, bp_score_counts *out);
bp_score_sums bp_score_document_sums(const bp_score_table *table, const bp_score_counts *counts,
                                     int64_t file, int64_t document);
/** sums[statistics - 1] of a document; borrowed. */
const bp_fixed *bp_score_document_statistics(const bp_score_table *table, int64_t document);

#endif
