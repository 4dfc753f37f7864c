/* The keys that every job has: its folder, its seed, its tokenizer. */
#include "base/config/run_options.h"

#include <stddef.h>

const bp_option bp_run_options[] = {
    {"run.dir", BP_OPTION_STRING, NULL, 0, 0, NULL, NULL, "the run folder", true,
     .at = BP_AT(bp_run_keys, dir)},
    {"run.seed", BP_OPTION_INT, "1", 0, 9007199254740992.0, NULL, NULL,
     "initialisation, order, dropout", false, .at = BP_AT(bp_run_keys, seed)},
    {"tokenizer.path", BP_OPTION_STRING, NULL, 0, 0, NULL, NULL,
     "tokenizer.json, the one that the corpus names; a bench times it", false,
     .at = BP_AT(bp_run_keys, tokenizer_path)},
    {NULL, BP_OPTION_STRING, NULL, 0, 0, NULL, NULL, NULL, false},
};
