/* The tools of bagpipe-data: each is one file with one entry point. */
#pragma once

#include "base/config/help.h"
#include "base/err.h"

typedef struct bp_tool {
    const char *name;
    bp_help help; /* of "bagpipe-data NAME"; printed without MPI */
    /** argv[0] is the tool; there are arguments, and none requests help. Collective over
     * MPI_COMM_WORLD: the error is the same on all ranks. */
    bp_err (*run)(int argc, char **argv);
} bp_tool;

struct bp_tokenizer;
/** Warn about disagreements between the files next to a tokenizer; `where` names them. */
void tool_warn_of_roles(const struct bp_tokenizer *tokenizer, const char *where);

extern const bp_tool bp_tool_tokenizer, bp_tool_corpus, bp_tool_inspect, bp_tool_verify,
    bp_tool_table, bp_tool_import, bp_tool_export, bp_tool_compare, bp_tool_mix, bp_tool_vectors,
    bp_tool_metrics, bp_tool_average, bp_tool_cite, bp_tool_encode, bp_tool_questions,
    bp_tool_surprisal, bp_tool_filter, bp_tool_overlap, bp_tool_pii, bp_tool_card, bp_tool_leakage,
    bp_tool_toxicity;
