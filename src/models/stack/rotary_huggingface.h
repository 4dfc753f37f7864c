/* Scaled rotary positions in config.json: rows and functions for the tables of families that have
 * them (io/huggingface/hf_table.h), whose sizes are those of BP_STACK_SCALING. */
#pragma once

#include "io/huggingface/hf_table.h"

#define BP_HF_ROPE_MEMBER(in, ours, member, kind, more)                                            \
    {                                                                                              \
        ours, "rope_scaling." member, NULL, kind, "0", in member more, .quiet = true,              \
                                                                       .null_is = "0"              \
    }
#define BP_HF_ROPE_REAL(in, ours, member) BP_HF_ROPE_MEMBER(in, ours, member, BP_HF_REAL, "")

/** Sizes: transformers 4 has them in rope_scaling, 5 in rope_parameters; "su" is an older name of
 * longrope. With several kinds of layers, `in` is an object there. `type`: the member that is
 * written, `others` that are read. */
#define BP_HF_ROPE_TYPE(type, others)                                                              \
    {                                                                                              \
        "rope_scaling", "rope_scaling." type, NULL, BP_HF_CHOICE, "0", others,                     \
            .words = "none|linear|llama3|yarn|dynamic|longrope|su", .quiet = true, .null_is = "0"  \
    }
#define BP_HF_ROPE_NUMBERS(in)                                                                     \
    BP_HF_ROPE_REAL(in, "rope_factor", "factor"),                                                  \
        BP_HF_ROPE_REAL(in, "rope_low_freq_factor", "low_freq_factor"),                            \
        BP_HF_ROPE_REAL(in, "rope_high_freq_factor", "high_freq_factor"),                          \
        BP_HF_ROPE_REAL(in, "rope_beta_fast", "beta_fast"),                                        \
        BP_HF_ROPE_REAL(in, "rope_beta_slow", "beta_slow"),                                        \
        BP_HF_ROPE_REAL(in, "rope_attention_factor", "attention_factor"),                          \
        BP_HF_ROPE_REAL(in, "rope_mscale", "mscale"),                                              \
        BP_HF_ROPE_REAL(in, "rope_mscale_all_dim", "mscale_all_dim"),                              \
        {"rope_truncate", "rope_scaling.truncate", NULL,          BP_HF_FLAG, "1",                 \
         in "truncate",   .quiet = true,           .null_is = "1"},                                \
        BP_HF_ROPE_MEMBER(in, "rope_short_factors", "short_factor", BP_HF_REALS, ""),              \
        BP_HF_ROPE_MEMBER(in, "rope_long_factors", "long_factor", BP_HF_REALS, "")
#define BP_HF_ROPE_ORIGINAL(in)                                                                    \
    BP_HF_ROPE_MEMBER(in, "rope_original_context", "original_max_position_embeddings",             \
                      BP_HF_COUNT, "|original_max_position_embeddings")
#define BP_HF_ROPE_SCALING_IN(in)                                                                  \
    BP_HF_ROPE_TYPE("rope_type", "rope_scaling.type|" in "rope_type|" in "type"),                  \
        BP_HF_ROPE_NUMBERS(in), BP_HF_ROPE_ORIGINAL(in)
#define BP_HF_ROPE_SCALING BP_HF_ROPE_SCALING_IN("rope_parameters.")

/** bp_hf_table.derive. */
void bp_rope_hf_derive(bp_hf_shape *shape, bool written);
/** For bp_hf_table.check: a scaling has all its parameters and no others, and lists have one number
 * for each pair of the `rotated` dimensions of a head. Errors: BP_ERR_FORMAT. */
bp_err bp_rope_hf_check(const bp_hf_shape *shape, int64_t rotated, const char *path);
