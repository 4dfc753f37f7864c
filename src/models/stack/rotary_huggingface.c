/* Scaled rotary positions in config.json. */
#include "models/stack/rotary_huggingface.h"

#include "models/stack/rotary.h"

#define OLDER_LONGROPE (BP_ROPE_LONGROPE + 1) /* the index of "su" */

static int scaling_of(const bp_hf_shape *shape)
{
    return (int)bp_hf_size_of(shape, "rope_scaling");
}

/* Ignores the original context in files whose scaling has none (Phi-3's always have one). That of
 * dynamic is the context itself, which training may have changed. transformers 4 requires the
 * factor of yarn. */
void bp_rope_hf_derive(bp_hf_shape *shape, bool written)
{
    double original = bp_hf_value_of(shape, "rope_original_context"),
           context = bp_hf_value_of(shape, "context");
    int scaling = scaling_of(shape);

    if (scaling == OLDER_LONGROPE)
        bp_hf_set_size(shape, "rope_scaling", scaling = BP_ROPE_LONGROPE);
    if (written && scaling == BP_ROPE_DYNAMIC && original > 0)
        bp_hf_set_size(shape, "context", original);
    if (scaling == BP_ROPE_PLAIN || scaling == BP_ROPE_LINEAR || scaling == BP_ROPE_DYNAMIC)
        bp_hf_set_size(shape, "rope_original_context", 0);
    if (written && scaling == BP_ROPE_YARN && original > 0 &&
        bp_hf_value_of(shape, "rope_factor") == 0)
        bp_hf_set_size(shape, "rope_factor", context / original);
}

#define OF(scaling) (1U << BP_ROPE_##scaling)
#define OF_FACTOR   (OF(LINEAR) | OF(LLAMA3) | OF(DYNAMIC))

static const struct {
    const char *ours, *theirs;
    unsigned of, needed; /* scalings that have it, and those that need it */
} PARAMETERS[] = {{"rope_factor", "factor", OF_FACTOR | OF(YARN) | OF(LONGROPE), OF_FACTOR},
                  {"rope_low_freq_factor", "low_freq_factor", OF(LLAMA3), OF(LLAMA3)},
                  {"rope_high_freq_factor", "high_freq_factor", OF(LLAMA3), OF(LLAMA3)},
                  {"rope_original_context", "original_max_position_embeddings",
                   OF(LLAMA3) | OF(YARN) | OF(LONGROPE), OF(LLAMA3)},
                  {"rope_beta_fast", "beta_fast", OF(YARN), 0},
                  {"rope_beta_slow", "beta_slow", OF(YARN), 0},
                  {"rope_attention_factor", "attention_factor", OF(YARN) | OF(LONGROPE), 0},
                  {"rope_mscale", "mscale", OF(YARN), 0},
                  {"rope_mscale_all_dim", "mscale_all_dim", OF(YARN), 0},
                  {"rope_short_factors", "short_factor", OF(LONGROPE), OF(LONGROPE)},
                  {"rope_long_factors", "long_factor", OF(LONGROPE), OF(LONGROPE)}};

static bp_err check_parameters(const bp_hf_shape *shape, const char *path)
{
    unsigned scaling = 1U << scaling_of(shape);

    for (size_t k = 0; k < sizeof PARAMETERS / sizeof *PARAMETERS; k++) {
        bool there = bp_hf_value_of(shape, PARAMETERS[k].ours) > 0;

        if ((there && !(PARAMETERS[k].of & scaling)) ||
            (!there && (PARAMETERS[k].needed & scaling)))
            return BP_FAIL(
                BP_ERR_FORMAT, "huggingface.bad_rope", "\"rope_scaling\" %s \"%s\": at %s",
                there ? "is of a type that has no" : "lacks", PARAMETERS[k].theirs, path);
    }
    if (scaling != OF(YARN) && bp_hf_value_of(shape, "rope_truncate") == 0)
        return BP_FAIL(BP_ERR_FORMAT, "huggingface.bad_rope", "\"rope_scaling\" %s \"%s\": at %s",
                       "is of a type that has no", "truncate", path);
    return BP_OK;
}

bp_err bp_rope_hf_check(const bp_hf_shape *shape, int64_t rotated, const char *path)
{
    bp_err err = check_parameters(shape, path);
    int scaling = scaling_of(shape);

    if (err != BP_OK)
        return err;
    if (scaling == BP_ROPE_LLAMA3 && bp_hf_value_of(shape, "rope_high_freq_factor") <=
                                         bp_hf_value_of(shape, "rope_low_freq_factor"))
        return BP_FAIL(BP_ERR_FORMAT, "huggingface.bad_rope",
                       "\"high_freq_factor\" is not above \"low_freq_factor\" in \"rope_scaling\": "
                       "at %s",
                       path);
    if (scaling == BP_ROPE_DYNAMIC && rotated < 4)
        return BP_FAIL(BP_ERR_FORMAT, "huggingface.bad_rope",
                       "\"rope_scaling\" is dynamic, and heads have but one pair to turn: at %s",
                       path);
    if (scaling == BP_ROPE_LONGROPE && (bp_hf_size_of(shape, "rope_short_factors") != rotated / 2 ||
                                        bp_hf_size_of(shape, "rope_long_factors") != rotated / 2))
        return BP_FAIL(BP_ERR_FORMAT, "huggingface.bad_rope",
                       "\"short_factor\" and \"long_factor\" have %lld and %lld numbers, and heads "
                       "%lld pairs to turn: at %s",
                       (long long)bp_hf_size_of(shape, "rope_short_factors"),
                       (long long)bp_hf_size_of(shape, "rope_long_factors"),
                       (long long)(rotated / 2), path);
    return BP_OK;
}
