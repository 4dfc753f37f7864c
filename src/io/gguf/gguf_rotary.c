/* Rotary positions in GGUF files: the rotated share of a head, and scaling. GGUF files have
 * llama3's and longrope's scalings as tensors of factors that divide frequencies. */
#include "io/gguf/gguf_rotary_priv.h"

#include <math.h>
#include <string.h>

#define LLAMA3_LOW     1.0
#define LLAMA3_HIGH    4.0
#define LLAMA3_CONTEXT 8192 /* of the published models; not in files */
#define PI             3.14159265358979323846

static const char *const FACTORS[GGUF_ROTARY_TENSORS] = {"rope_freqs.weight",
                                                         "rope_factors_short.weight",
                                                         "rope_factors_long.weight"},
                         *const ORIGINAL = "original_max_position_embeddings";

bool gguf_is_rotary(const bp_gguf_family *family, const char *tensor)
{
    for (int k = 0; k < GGUF_ROTARY_TENSORS; k++)
        if (family->rotary && strcmp(tensor, FACTORS[k]) == 0)
            return true;
    return false;
}

bool gguf_is_rotary_key(const char *key)
{
    static const char *const KEYS[] = {
        "rope.dimension_count", "rope.scaling.type", "rope.scaling.factor",
        "rope.scaling.original_context_length", "rope.scaling.attn_factor"};

    for (size_t k = 0; k < sizeof KEYS / sizeof *KEYS; k++)
        if (strcmp(key, KEYS[k]) == 0)
            return true;
    return false;
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* The divisor of pair i's frequency in llama3's scaling. */
static double llama3_factor(const gguf_llama3 *of, int64_t i)
{
    double turns = pow(of->theta, -2.0 * (double)i / (double)of->rotated) * of->original / (2 * PI),
           share = (turns - of->low) / (of->high - of->low);

    share = share < 0 ? 0 : share > 1 ? 1 : share;
    return 1 / (share + (1 - share) / of->factor);
}

/* ---- reading ---- */

static bp_err refuse(const bp_gguf *file, const char *scaling, const char *why)
{
    return BP_FAIL(BP_ERR_FORMAT, "gguf.unknown_key",
                   "positions are scaled by '%.20s'%s: at %s; give the folder with safetensors "
                   "that the file was made from",
                   scaling, why, file->path);
}

/* factors[rotated / 2] of a tensor, if present. */
static bp_err read_factors(const bp_gguf *file, const char *name, int64_t rotated, bool *there,
                           float factors[GGUF_ROTARY_PAIRS])
{
    const bp_gguf_tensor *tensor = bp_gguf_find(file, name);
    bp_err err = BP_OK;

    *there = tensor != NULL;
    if (!tensor)
        return BP_OK;
    if (tensor->dims != 1 || 2 * tensor->count != rotated || tensor->count > GGUF_ROTARY_PAIRS)
        return BP_FAIL(
            BP_ERR_FORMAT, "gguf.bad_tensor",
            "tensor '%s' does not have a number for each of %lld pairs that positions turn: "
            "at %s",
            name, (long long)(rotated / 2), file->path);
    err = bp_gguf_read(file, tensor, 0, tensor->count, factors);
    for (int64_t i = 0; i < tensor->count && err == BP_OK; i++)
        if (!isfinite(factors[i]) || factors[i] <= 0)
            err = BP_FAIL(BP_ERR_FORMAT, "gguf.bad_tensor", "tensor '%s' has a factor %g: at %s",
                          name, (double)factors[i], file->path);
    return err;
}

static json_t *list_of(const float *factors, int64_t count)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < count; i++)
        (void)json_array_append_new(list, gguf_short_real((double)factors[i]));
    return list;
}

/* Are the factors llama3's? Else they are longrope's, for texts of all lengths. */
static json_t *scaling_of_factors(const json_t *config, const float *factors, int64_t rotated,
                                  double original)
{
    gguf_llama3 of = {.theta = number_of(config, "rope_theta"),
                      .rotated = rotated,
                      .low = LLAMA3_LOW,
                      .high = LLAMA3_HIGH,
                      .original = original > 0 ? original : LLAMA3_CONTEXT,
                      .factor = (double)factors[rotated / 2 - 1]};
    bool fits = of.theta > 0 && of.factor > 1;

    for (int64_t i = 0; i < rotated / 2 && fits; i++)
        fits = fabs(llama3_factor(&of, i) / (double)factors[i] - 1) < 1e-5;
    if (fits)
        return json_pack("{s:s, s:o, s:f, s:f, s:I}", "rope_type", "llama3", "factor",
                         gguf_short_real(of.factor), "low_freq_factor", of.low, "high_freq_factor",
                         of.high, ORIGINAL, (json_int_t)of.original);
    return json_pack("{s:s, s:o, s:o, s:f, s:o}", "rope_type", "longrope", "short_factor",
                     list_of(factors, rotated / 2), "long_factor", list_of(factors, rotated / 2),
                     "attention_factor", 1.0, ORIGINAL,
                     json_incref(json_object_get(config, "max_position_embeddings")));
}

/* Longrope's default factor of cosines and sines. */
static double longrope_attention(const json_t *config, double original)
{
    double times = number_of(config, "max_position_embeddings") / original;

    return times > 1 && original > 1 ? sqrt(1 + log(times) / log(original)) : 1;
}

static bp_err take_longrope(json_t *config, const bp_gguf *file, const bp_gguf_family *family,
                            const float *factors[2], int64_t rotated)
{
    const json_t *attention = gguf_key_of(file->keys, family, "rope.scaling.attn_factor"),
                 *original =
                     gguf_key_of(file->keys, family, "rope.scaling.original_context_length");
    double by = attention ? json_number_value(attention) : 1;
    json_t *scaling;

    if (json_integer_value(original) < 1)
        return refuse(file, "longrope", ", without an original context");
    scaling = json_pack("{s:s, s:o, s:o}", family->original_beside ? "type" : "rope_type",
                        "longrope", "short_factor", list_of(factors[0], rotated / 2), "long_factor",
                        list_of(factors[1], rotated / 2));
    if (fabs(by / longrope_attention(config, json_number_value(original)) - 1) > 1e-6)
        (void)json_object_set_new(scaling, "attention_factor", gguf_short_real(by));
    (void)json_object_set(family->original_beside ? config : scaling, ORIGINAL, (json_t *)original);
    (void)json_object_set_new(config, "rope_scaling", scaling);
    return BP_OK;
}

/* From tensors; *scaled: there are some. */
static bp_err take_factors(json_t *config, const bp_gguf *file, const bp_gguf_family *family,
                           int64_t rotated, bool *scaled)
{
    float factors[GGUF_ROTARY_TENSORS][GGUF_ROTARY_PAIRS];
    bool there[GGUF_ROTARY_TENSORS] = {false};
    bp_err err = BP_OK;

    for (int k = 0; k < GGUF_ROTARY_TENSORS && err == BP_OK; k++)
        err = read_factors(file, FACTORS[k], rotated, &there[k], factors[k]);
    *scaled = there[0] || there[1] || there[2];
    if (err != BP_OK || !*scaled)
        return err;
    if (there[1] != there[2] || there[0] == there[1])
        return refuse(file, "factors", " of which some are missing, or too many are there");
    if (there[1])
        return take_longrope(config, file, family, (const float *[]){factors[1], factors[2]},
                             rotated);
    (void)json_object_set_new(
        config, "rope_scaling",
        scaling_of_factors(config, factors[0], rotated,
                           json_number_value(gguf_key_of(file->keys, family,
                                                         "rope.scaling.original_context_length"))));
    return BP_OK;
}

/* From keys. */
static bp_err take_scaling(json_t *config, const bp_gguf *file, const bp_gguf_family *family,
                           bool by_tensors)
{
    const json_t *factor = gguf_key_of(file->keys, family, "rope.scaling.factor"),
                 *original =
                     gguf_key_of(file->keys, family, "rope.scaling.original_context_length"),
                 *attention = gguf_key_of(file->keys, family, "rope.scaling.attn_factor");
    const char *scaling = json_string_value(gguf_key_of(file->keys, family, "rope.scaling.type"));
    bool by_longrope = bp_gguf_find(file, FACTORS[1]) != NULL; /* then attn_factor is longrope's */
    json_t *out;

    if (attention && json_number_value(attention) != 1 && !by_longrope)
        return refuse(file, scaling ? scaling : "none", " with a factor of attention");
    if (!scaling && factor && json_number_value(factor) != 0 && json_number_value(factor) != 1)
        scaling = "linear"; /* llama.cpp's default */
    if (!scaling || strcmp(scaling, "none") == 0 ||
        (by_tensors && strcmp(scaling, "longrope") == 0))
        return BP_OK;
    if (by_tensors || (strcmp(scaling, "linear") != 0 && strcmp(scaling, "yarn") != 0))
        return refuse(file, scaling, "");
    if (json_number_value(factor) <= 0)
        return refuse(file, scaling, ", without a factor");
    out = json_pack("{s:s, s:o}", "rope_type", scaling, "factor",
                    gguf_short_real(json_number_value(factor)));
    if (strcmp(scaling, "yarn") == 0)
        (void)json_object_set(out, ORIGINAL,
                              original ? (json_t *)original
                                       : json_object_get(config, "max_position_embeddings"));
    (void)json_object_set_new(config, "rope_scaling", out);
    return BP_OK;
}

/* Positions rotate whole heads, or a share of them if the family supports it. */
bp_err gguf_take_rotary(json_t *config, const bp_gguf *file, const bp_gguf_family *family)
{
    const json_t *dimensions = gguf_key_of(file->keys, family, "rope.dimension_count");
    json_int_t heads = json_integer_value(json_object_get(config, "num_attention_heads")), width,
               rotated;
    bool scaled = false;
    bp_err err;

    if (!json_object_get(config, "head_dim") && heads > 0)
        (void)json_object_set_new(
            config, "head_dim",
            json_integer(json_integer_value(json_object_get(config, "hidden_size")) / heads));
    width = json_integer_value(json_object_get(config, "head_dim"));
    rotated = dimensions ? json_integer_value(dimensions) : width;
    if (rotated != width && (!family->partial || rotated < 2 || rotated > width))
        return BP_FAIL(BP_ERR_FORMAT, "gguf.bad_key",
                       "key %s.rope.dimension_count is %lld, and heads have %lld entries: at %s",
                       family->architecture, (long long)rotated, (long long)width, file->path);
    if (family->partial && width > 0)
        (void)json_object_set_new(config, "partial_rotary_factor",
                                  json_real((double)rotated / (double)width));
    err = take_factors(config, file, family, rotated, &scaled);
    return err == BP_OK ? take_scaling(config, file, family, scaled) : err;
}

/* ---- writing ---- */

static void put_factors(gguf_factors *out, const json_t *list)
{
    out->count = (int64_t)json_array_size(list);
    for (int64_t i = 0; i < out->count && i < GGUF_ROTARY_PAIRS; i++)
        out->values[i] = (float)json_number_value(json_array_get(list, (size_t)i));
}

static bp_err put_longrope(gguf_rotary *out, json_t *keys, const json_t *config,
                           const json_t *scaling, const bp_gguf_family *family)
{
    const json_t *original = json_object_get(scaling, ORIGINAL),
                 *attention = json_object_get(scaling, "attention_factor");

    if (!original)
        original = json_object_get(config, ORIGINAL);
    if (!original || json_number_value(json_object_get(scaling, "factor")) > 0)
        return gguf_no_counterpart("positions scaled by longrope",
                                   original ? " with a factor" : " without a context");
    gguf_set_key(keys, family, "rope.scaling.type", json_string("longrope"));
    put_factors(&out->factors[1], json_object_get(scaling, "short_factor"));
    put_factors(&out->factors[2], json_object_get(scaling, "long_factor"));
    gguf_set_key(keys, family, "rope.scaling.original_context_length",
                 json_integer(json_integer_value(original)));
    gguf_set_key(keys, family, "rope.scaling.attn_factor",
                 json_real(json_number_value(attention) > 0
                               ? json_number_value(attention)
                               : longrope_attention(config, json_number_value(original))));
    return BP_OK;
}

static void put_llama3(gguf_rotary *out, json_t *keys, const json_t *config, const json_t *scaling,
                       const bp_gguf_family *family, int64_t rotated)
{
    gguf_llama3 of = {.theta = number_of(config, "rope_theta"),
                      .rotated = rotated,
                      .low = number_of(scaling, "low_freq_factor"),
                      .high = number_of(scaling, "high_freq_factor"),
                      .original = number_of(scaling, ORIGINAL),
                      .factor = number_of(scaling, "factor")};

    out->factors[0].count = rotated / 2;
    for (int64_t i = 0; i < rotated / 2 && i < GGUF_ROTARY_PAIRS; i++)
        out->factors[0].values[i] = (float)llama3_factor(&of, i);
    gguf_set_key(keys, family, "rope.scaling.original_context_length",
                 json_integer((json_int_t)of.original));
}

/* llama.cpp's yarn is that of the default parameters. */
static bp_err put_yarn(json_t *keys, const json_t *scaling, const bp_gguf_family *family)
{
    static const char *const OTHERS[] = {"attention_factor", "mscale",    "mscale_all_dim",
                                         "beta_fast",        "beta_slow", "truncate"};

    for (size_t k = 0; k < sizeof OTHERS / sizeof *OTHERS; k++)
        if (json_object_get(scaling, OTHERS[k]))
            return gguf_no_counterpart("positions scaled by yarn with ", OTHERS[k]);
    if (!json_object_get(scaling, ORIGINAL))
        return gguf_no_counterpart("positions scaled by yarn without ", ORIGINAL);
    gguf_set_key(keys, family, "rope.scaling.original_context_length",
                 json_incref(json_object_get(scaling, ORIGINAL)));
    return BP_OK;
}

bp_err gguf_put_rotary(gguf_rotary *out, json_t *keys, const json_t *config,
                       const bp_gguf_family *family)
{
    const json_t *scaling = json_object_get(config, "rope_scaling"),
                 *width = json_object_get(config, "head_dim"),
                 *share = json_object_get(config, "partial_rotary_factor");
    json_int_t rotated = json_integer_value(width);
    const char *type;
    bp_err err = BP_OK;

    if (!json_is_integer(width))
        rotated = json_integer_value(json_object_get(config, "hidden_size")) /
                  json_integer_value(json_object_get(config, "num_attention_heads"));
    if (family->partial && json_is_number(share))
        rotated = (json_int_t)((double)rotated * json_number_value(share));
    if (!json_is_object(scaling))
        scaling = json_object_get(config, "rope_parameters");
    type = json_string_value(json_object_get(scaling, "rope_type"));
    if (!type)
        type = json_string_value(json_object_get(scaling, "type"));
    gguf_set_key(keys, family, "rope.dimension_count", json_integer(rotated));
    if (!type || strcmp(type, "default") == 0)
        return BP_OK;
    if (rotated / 2 > GGUF_ROTARY_PAIRS)
        return gguf_no_counterpart("scaled positions of heads that are so wide", "");
    if (strcmp(type, "longrope") == 0 && family->longrope)
        return put_longrope(out, keys, config, scaling, family);
    if (strcmp(type, "llama3") == 0 && family->llama3) {
        put_llama3(out, keys, config, scaling, family, rotated);
        return BP_OK;
    }
    if (strcmp(type, "yarn") == 0)
        err = put_yarn(keys, scaling, family);
    else if (strcmp(type, "linear") != 0)
        return gguf_no_counterpart("positions scaled by ", type);
    gguf_set_key(keys, family, "rope.scaling.type", json_string(type));
    gguf_set_key(keys, family, "rope.scaling.factor", json_real(number_of(scaling, "factor")));
    return err;
}

const char *gguf_rotary_name(int number)
{
    return FACTORS[number];
}
