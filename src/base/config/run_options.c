/* The keys that every job has: its folder, its seed, its tokenizer. */
#include "base/config/run_options.h"

#include <stddef.h>

const bp_option bp_run_options[] = {
    {BP_STRING_KEY("run.dir", NULL), .help = "the run folder", .required = true,
     .at = BP_AT(bp_run_keys, dir)},
    {BP_INT_KEY("run.seed", "1", 0, 9007199254740992.0), .help = "initialisation, order, dropout",
     .at = BP_AT(bp_run_keys, seed)},
    {BP_STRING_KEY("tokenizer.path", NULL),
     .help = "tokenizer.json, the one that the corpus names; a bench times it",
     .at = BP_AT(bp_run_keys, tokenizer_path)},
    {0},
};
