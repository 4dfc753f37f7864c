/* summary.json: figures over all documents, by corpus and by label value. Local: no MPI. */
#pragma once

#include "base/config/json.h"
#include "infer/score/tables/table.h"
#include "models/model.h"

/** The whole summary, keys in the order of docs/formats.md. A function of the table, its seed,
 * the rule, and the model's digest and step.
 *
 * Owns:       *out is a new reference; NULL after an error.
 * Errors:     those of bp_corpus_file_doc_counts; BP_ERR_FORMAT a name that is not UTF-8. */
bp_err bp_score_summarise(json_t **out, const bp_score_table *table, const bp_model_info *model);

/** A corpus's name in the summary: its file name without folder and suffix. Free with bp_free(). */
char *bp_score_corpus_name(const char *path);
/** Errors: BP_ERR_CONFIG two corpora have one name. */
bp_err bp_score_check_names(const bp_corpus *corpus);

const char *bp_score_convention_name(bp_score_convention convention);
/** The token before a document: "bos", "eod" (also if it is both), "start" (for pairs) or
 * "none". */
const char *bp_score_prefix_name(const bp_score_rule *rule);
