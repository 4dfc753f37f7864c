/* Rotary positions of stacks: sizes without a key, and checks. Called by stack.c. */
#include "models/stack/stack_priv.h"

#include <string.h>

#define THETA          10000
#define LOW_FREQUENCY  1 /* LLaMA 3.1's */
#define HIGH_FREQUENCY 4
#define BETA_FAST      32 /* YaRN's */
#define BETA_SLOW      1

static int64_t head_width(const bp_model_shape *shape)
{
    return bp_given_or(shape->stack.head_width, shape->width / shape->heads);
}

/* Rotary dimensions of a head: even, at least 2. */
static int64_t rotated(const bp_model_shape *shape)
{
    double fraction = real_or(shape->stack.rope_fraction, shape->family->stack->rope_fraction);
    int64_t D = head_width(shape);

    if (shape->stack.rope_width > 0)
        return shape->stack.rope_width;
    return fraction > 0 ? (int64_t)((double)D * fraction) : D;
}

static bool has_pairs(const bp_model_shape *shape)
{
    int64_t n = rotated(shape);

    return n >= 2 && n % 2 == 0 && n <= head_width(shape);
}

/* The factor may follow from the contexts. */
static bool has_own_factor(const bp_stack_sizes *own)
{
    return own->rope_scaling == BP_ROPE_YARN || own->rope_scaling == BP_ROPE_LONGROPE;
}

void stack_fill_rope(bp_model_shape *shape)
{
    bp_stack_sizes *own = &shape->stack;

    own->rope_theta = real_or(own->rope_theta, THETA);
    own->rope_fraction = real_or(own->rope_fraction, shape->family->stack->rope_fraction);
    if (own->rope_scaling == BP_ROPE_LLAMA3) {
        own->rope_low = real_or(own->rope_low, LOW_FREQUENCY);
        own->rope_high = real_or(own->rope_high, HIGH_FREQUENCY);
    }
    if (own->rope_scaling == BP_ROPE_YARN) {
        own->rope_beta_fast = real_or(own->rope_beta_fast, BETA_FAST);
        own->rope_beta_slow = real_or(own->rope_beta_slow, BETA_SLOW);
    }
    if (has_own_factor(own) || own->rope_scaling == BP_ROPE_DYNAMIC)
        own->rope_original = bp_given_or(own->rope_original, shape->context);
    if (has_own_factor(own))
        own->rope_factor =
            real_or(own->rope_factor, (double)shape->context / (double)own->rope_original);
}

int stack_ropes(bp_rope ropes[BP_ROPES], const bp_model_shape *shape)
{
    bp_model_shape filled = *shape;
    const bp_stack_sizes *own = &filled.stack;

    stack_fill_rope(&filled);
    ropes[0] = (bp_rope){.theta = own->rope_theta,
                         .rotated = rotated(shape),
                         .scaling = (bp_rope_scaling)own->rope_scaling,
                         .factor = own->rope_factor,
                         .low_freq_factor = own->rope_low,
                         .high_freq_factor = own->rope_high,
                         .beta_fast = own->rope_beta_fast,
                         .beta_slow = own->rope_beta_slow,
                         .truncated = own->rope_untruncated == 0,
                         .attention_factor = own->rope_attention_factor,
                         .mscale = own->rope_mscale,
                         .mscale_all_dim = own->rope_mscale_all,
                         .original_context = own->rope_original,
                         .short_factors = shape->stack.rope_short,
                         .long_factors = shape->stack.rope_long};
    if (own->rope_local_theta == 0)
        return 1;
    ropes[1] = (bp_rope){.theta = own->rope_local_theta, .rotated = rotated(shape)};
    return 2;
}

int stack_rope_of(const bp_model_shape *shape, int64_t window)
{
    return window > 0 && shape->stack.rope_local_theta > 0;
}

/* ---- valid combinations of sizes ---- */

#define OF(scaling) (1U << BP_ROPE_##scaling)
#define OF_FACTOR   (OF(LINEAR) | OF(LLAMA3) | OF(DYNAMIC))

/* A parameter: the scalings that have it, and those that need it. */
typedef struct parameter {
    const char *key;
    double value;
    unsigned of, needed;
} parameter;

#define PARAMETERS 12
static void list_parameters(parameter out[PARAMETERS], const bp_model_shape *shape)
{
    const bp_stack_sizes *own = &shape->stack;
    const parameter all[PARAMETERS] = {
        {"model.rope_factor", own->rope_factor, OF_FACTOR | OF(YARN) | OF(LONGROPE), OF_FACTOR},
        {"model.rope_original_context", (double)own->rope_original,
         OF(LLAMA3) | OF(YARN) | OF(DYNAMIC) | OF(LONGROPE), OF(LLAMA3)},
        {"model.rope_low_freq_factor", own->rope_low, OF(LLAMA3), 0},
        {"model.rope_high_freq_factor", own->rope_high, OF(LLAMA3), 0},
        {"model.rope_beta_fast", own->rope_beta_fast, OF(YARN), 0},
        {"model.rope_beta_slow", own->rope_beta_slow, OF(YARN), 0},
        {"model.rope_truncate", (double)own->rope_untruncated, OF(YARN), 0},
        {"model.rope_mscale", own->rope_mscale, OF(YARN), 0},
        {"model.rope_mscale_all_dim", own->rope_mscale_all, OF(YARN), 0},
        {"model.rope_attention_factor", own->rope_attention_factor, OF(YARN) | OF(LONGROPE), 0},
        {"model.rope_short_factors", own->rope_short[0], OF(LONGROPE), OF(LONGROPE)},
        {"model.rope_long_factors", own->rope_long[0], OF(LONGROPE), OF(LONGROPE)}};

    for (int k = 0; k < PARAMETERS; k++)
        out[k] = all[k];
}

static void check_parameters(const bp_model_shape *shape, bp_config *config)
{
    parameter all[PARAMETERS];
    unsigned scaling = 1U << shape->stack.rope_scaling;
    const char *name = bp_model_keys_of(config)->rope_scaling;

    list_parameters(all, shape);
    for (int k = 0; k < PARAMETERS; k++) {
        if ((all[k].needed & scaling) && all[k].value == 0)
            bp_config_fault(config, "model.missing_key",
                            "%s is missing: at the configuration; model.rope_scaling = %s needs it",
                            all[k].key, name ? name : "of the checkpoint");
        if (!(all[k].of & scaling) && all[k].value != 0)
            bp_config_fault(config, "model.unused_key",
                            "model.rope_scaling = %s has no %s: at %s; leave the key out",
                            name ? name : "none", all[k].key, all[k].key);
    }
}

/* LLaMA's factors in the wrong order. */
static bool is_turned(const bp_model_shape *shape)
{
    return shape->stack.rope_scaling == BP_ROPE_LLAMA3 &&
           shape->stack.rope_high <= shape->stack.rope_low;
}

static int64_t count_of(const double reals[BP_MODEL_REALS])
{
    int64_t count = 0;

    while (count < BP_MODEL_REALS && reals[count] > 0)
        count++;
    return count;
}

/* The fault in the values of a complete scaling, and its key; NULL if valid. */
static const char *fault_of(const bp_model_shape *shape, const char **key)
{
    const bp_stack_sizes *own = &shape->stack;
    int64_t pairs = rotated(shape) / 2;

    *key = "rope_beta_fast";
    if (own->rope_scaling == BP_ROPE_YARN && own->rope_beta_fast < own->rope_beta_slow)
        return "it is less than rope_beta_slow; YaRN's are 32 and 1";
    *key = "rope_scaling";
    if (own->rope_scaling == BP_ROPE_DYNAMIC && pairs < 2)
        return "dynamic needs heads with more than one pair to turn";
    *key = "rope_original_context";
    if (own->rope_scaling == BP_ROPE_LONGROPE && own->rope_original < 2)
        return "longrope needs 2 or more";
    *key = "rope_short_factors";
    if (own->rope_scaling == BP_ROPE_LONGROPE && count_of(own->rope_short) != pairs)
        return "longrope has one factor for each pair of a head";
    *key = "rope_long_factors";
    if (own->rope_scaling == BP_ROPE_LONGROPE && count_of(own->rope_long) != pairs)
        return "longrope has one factor for each pair of a head";
    return NULL;
}

static bool has_fraction_key(const bp_model_shape *shape)
{
    for (const bp_model_size *size = shape->family->sizes; size->name; size++)
        if (strcmp(size->name, "rope_fraction") == 0)
            return true;
    return false;
}

static void check_pairs(const bp_model_shape *shape, bp_config *config)
{
    int64_t D = head_width(shape);

    if (has_pairs(shape))
        return;
    if (shape->stack.rope_width > 0)
        bp_config_fault(
            config, "model.bad_rope",
            "model.rope_width = %lld is not an even number of 2 or more, up to the %lld "
            "numbers of a head: at model.rope_width; use one that is",
            (long long)shape->stack.rope_width, (long long)D);
    else if (has_fraction_key(shape))
        bp_config_fault(config, "model.bad_rope",
                        "model.rope_fraction = %g turns %lld of the %lld numbers of a head: at "
                        "model.rope_fraction; an even number of 2 or more fits",
                        shape->stack.rope_fraction, (long long)rotated(shape), (long long)D);
    else
        bp_config_fault(config, "model.odd_heads",
                        "heads of width %lld have %lld numbers to turn, which is not a whole "
                        "number of pairs: at "
                        "model.heads; use "
                        "heads of another width",
                        (long long)D, (long long)rotated(shape));
}

void stack_check_rope(const bp_model_shape *shape, bp_config *config)
{
    const char *key, *fault = NULL;

    check_parameters(shape, config);
    if (is_turned(shape))
        bp_config_fault(config, "model.bad_rope",
                        "model.rope_high_freq_factor = %g is not above model.rope_low_freq_factor "
                        "= %g: at model.rope_high_freq_factor; LLaMA 3.1's are 4 and 1",
                        shape->stack.rope_high, shape->stack.rope_low);
    if (shape->stack.head_width == 0)
        return;
    check_pairs(shape, config);
    if (has_pairs(shape) && (shape->stack.rope_scaling != BP_ROPE_LONGROPE ||
                             (shape->stack.rope_short[0] > 0 && shape->stack.rope_long[0] > 0)))
        fault = fault_of(shape, &key);
    if (fault)
        bp_config_fault(config, "model.bad_rope",
                        "rotary positions can't be scaled so: at model.%s; %s", key, fault);
}

bp_err stack_check_read_rope(const bp_model_shape *shape, const char *where)
{
    unsigned scaling = 1U << shape->stack.rope_scaling;
    parameter all[PARAMETERS];
    const char *key;
    bool lacks = false;

    if (!has_pairs(shape))
        return BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                       "the model turns %lld of the %lld numbers of a head, which is not a whole "
                       "number of pairs: at "
                       "%s; the checkpoint is wrong",
                       (long long)rotated(shape), (long long)head_width(shape), where);
    list_parameters(all, shape);
    for (int k = 0; k < PARAMETERS; k++)
        lacks = lacks || ((all[k].needed & scaling) && all[k].value == 0);
    if (lacks || is_turned(shape) || fault_of(shape, &key))
        return BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                       "the model's rope_scaling lacks a parameter, or has one that can't be: at "
                       "%s; the checkpoint is wrong",
                       where);
    return BP_OK;
}
