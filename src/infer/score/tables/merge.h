/* From parts to documents: a pure function of the parts and the corpora. Local: no MPI. */
#ifndef BP_INFER_SCORE_TABLES_MERGE_H
#define BP_INFER_SCORE_TABLES_MERGE_H

#include "infer/score/tables/parts.h"
#include "infer/score/tables/table.h"

/** Read the corpora's labels, and room for all documents. Clear after an error too.
 *  Errors: BP_ERR_SYSTEM; those of bp_corpus_file_label. */
bp_err bp_score_table_init(bp_score_table *table, const bp_score_plan *plan,
                           const bp_token_statistics *statistics);
void bp_score_table_clear(bp_score_table *table);

/** Add the results of all units; if `tokens_path` is not NULL, also write tokens.h5 there.
 *
 * Errors: those of bp_parts_read; BP_ERR_IO, BP_ERR_CREATE, BP_ERR_DENIED of tokens.h5. */
bp_err bp_score_table_merge(bp_score_table *table, bp_parts *parts, const char *tokens_path);

#endif
