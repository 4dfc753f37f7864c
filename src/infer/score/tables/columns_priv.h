/* Label columns of several corpora as one. */
#ifndef BP_INFER_SCORE_TABLES_COLUMNS_PRIV_H
#define BP_INFER_SCORE_TABLES_COLUMNS_PRIV_H

#include "infer/score/tables/table.h"

/** Fill table->columns. Errors: BP_ERR_SYSTEM; those of bp_corpus_file_label. */
bp_err bp_score_columns_load(bp_score_table *table);
void bp_score_columns_clear(bp_score_table *table);

#endif
