/* Merges parts into documents: a pure function of the parts and the corpora. Local: no MPI. */
#pragma once

#include "infer/score/tables/table.h"
#include "job/parts.h"

/** Add the results of all units, which begin with keys of this many columns (0: without keys); if
 * `tokens_path` is not NULL, also write tokens.h5 there.
 *
 * Errors: those of bp_parts_read; BP_ERR_IO, BP_ERR_CREATE, BP_ERR_DENIED of tokens.h5. */
bp_err bp_score_table_merge(bp_score_table *table, bp_parts *parts, int64_t key_columns,
                            const char *tokens_path);
