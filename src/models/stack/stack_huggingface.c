/* What the tables of stacks in Hugging Face's folders have in common. */
#include "models/stack/stack_huggingface.h"

#include <math.h>

const char *const bp_stack_hf_buffers[] = {"self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq",
                                           NULL},
                  *const bp_stack_hf_head[] = {"lm_head.", NULL};

bp_err bp_stack_hf_check(const bp_hf_shape *shape, const char *path)
{
    int64_t heads = bp_hf_size_of(shape, "heads"), width = bp_hf_size_of(shape, "width"),
            D = bp_hf_size_of(shape, "head_width"), rotated = D;

    if (bp_hf_has_size(shape->table, "experts") &&
        bp_hf_size_of(shape, "experts_chosen") > bp_hf_size_of(shape, "experts"))
        return BP_FAIL(BP_ERR_FORMAT, "huggingface.few_experts",
                       "\"num_experts_per_tok\" is %lld of %lld experts: at %s",
                       (long long)bp_hf_size_of(shape, "experts_chosen"),
                       (long long)bp_hf_size_of(shape, "experts"), path);
    if (D == width / heads && bp_hf_check_heads(shape, path) != BP_OK)
        return BP_ERR_FORMAT;
    if (bp_hf_check_divides(shape, "kv_heads", "heads", path) != BP_OK)
        return BP_ERR_FORMAT;
    if (bp_hf_has_size(shape->table, "rope_fraction"))
        rotated = (int64_t)((double)D * bp_hf_value_of(shape, "rope_fraction"));
    if (rotated % 2 != 0 || rotated < 2 || rotated > D)
        return BP_FAIL(BP_ERR_FORMAT, "huggingface.odd_heads",
                       "heads have %lld numbers to turn, which is not a whole number of pairs: at "
                       "%s; give a model with an even "
                       "\"head_dim\"",
                       (long long)rotated, path);
    return bp_rope_hf_check(shape, rotated, path);
}

bp_err bp_stack_hf_check_states(const bp_hf_shape *shape, const char *path)
{
    bp_err err = bp_hf_check_divides(shape, "groups", "state_heads", path);

    return err == BP_OK ? bp_stack_hf_check(shape, path) : err;
}

void bp_stack_hf_derive_scores(bp_hf_shape *shape, bool written)
{
    bp_rope_hf_derive(shape, written);
    if (written && bp_hf_value_of(shape, "attention_multiplier") == 0)
        bp_hf_set_size(shape, "attention_multiplier",
                       1 / sqrt(bp_hf_value_of(shape, "head_width")));
}
