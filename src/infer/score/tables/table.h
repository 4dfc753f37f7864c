/* The results of scoring in memory, a few values per document and the sums of groups: a function of
 * the parts and the corpora. Local: no MPI. */
#pragma once

#include "infer/score/plan.h"
#include "infer/score/tables/bootstrap.h"
#include "infer/score/tables/sums.h"
#include "infer/score/tables/token_statistics.h"

#define BP_SCORE_COUNTS 8192 /* documents whose counts are read at a time */

/** Sums over documents. */
typedef struct bp_score_group {
    bp_score_sums sums;
    bp_fixed *statistics; /* [statistics - 1]: sums of the statistics after the log-probability */
} bp_score_group;

/** A label column of all corpora together: corpora that have a label of one name share its
 * values. */
typedef struct bp_score_column {
    char *name;
    char **values; /* [value_count], in the order of the first corpus that has them */
    int64_t value_count;
    int32_t
        *codes; /* [documents]: index into values; -1: the document's corpus has no such label */
    bp_score_group *groups; /* [value_count] */
} bp_score_column;

typedef struct bp_score_table {
    const bp_score_plan *plan;             /* borrowed */
    const bp_token_statistics *statistics; /* borrowed */
    bp_fixed *nll;                         /* [documents] */
    int64_t *tokens;                       /* [documents]: scored tokens */
    bool *has_zero;        /* [documents]: a token has probability 0, which nll does not include */
    bp_fixed *sums;        /* [documents][statistics - 1]: of the statistics after the first */
    bp_score_group *files; /* [files]: the documents of each */
    bp_score_column *columns;
    int64_t column_count;
    uint64_t seed;           /* of the bootstrap; set by the caller, like the next two */
    const int64_t *clusters; /* [documents] that are drawn together, borrowed; NULL: none are */
    bp_requests *helpers;    /* of bp_score_bootstrap; NULL if there are none */
} bp_score_table;

/** Add a part's sums of a document: the fields of `more` that do not describe its text, and
 * statistics[statistics - 1]. */
void bp_score_table_add(bp_score_table *table, int64_t document, const bp_score_sums *more,
                        const bp_fixed *statistics);
/** After the last part: add to the groups their numbers of documents, bytes and words.
 * Errors: those of bp_corpus_file_read_counts. */
bp_err bp_score_table_count(bp_score_table *table);

/** Read the corpora's labels, and allocate for all documents. Clear after an error too.
 *  Errors: BP_ERR_SYSTEM; those of bp_corpus_file_label. */
bp_err bp_score_table_init(bp_score_table *table, const bp_score_plan *plan,
                           const bp_token_statistics *statistics);
void bp_score_table_clear(bp_score_table *table);

/** Bytes and words of some documents of a file. */
typedef struct bp_score_counts {
    bool has_bytes, has_words, has_words_split; /* the file has them */
    int64_t bytes[BP_SCORE_COUNTS], words[BP_SCORE_COUNTS], words_split[BP_SCORE_COUNTS];
} bp_score_counts;
/** Read those of documents [first, first + count) of all corpora; at most BP_SCORE_COUNTS, all in
 * `file`. */
bp_err bp_score_counts_read(bp_score_counts *out, const bp_score_plan *plan, int64_t file,
                            int64_t first, int64_t count);
/** The NLL of a document: infinite if a token has probability 0. */
double bp_score_document_nll(const bp_score_table *table, int64_t document);
/** sums[statistics - 1] of a document; borrowed. */
const bp_fixed *bp_score_document_statistics(const bp_score_table *table, int64_t document);
