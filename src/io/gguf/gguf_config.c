/* Keys of a GGUF file by the table of its family. Called by gguf_model.c and gguf_export.c. */
#include "io/gguf/gguf_config_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PERIOD "attention.sliding_window_pattern"

const json_t *gguf_key_of(const json_t *keys, const bp_gguf_family *family, const char *key)
{
    char name[GGUF_KEY_BYTES];

    (void)snprintf(name, sizeof name, "%s.%s", family->architecture, key);
    return json_object_get(keys, name);
}

void gguf_set_key(json_t *keys, const bp_gguf_family *family, const char *key, json_t *value)
{
    char name[GGUF_KEY_BYTES];

    (void)snprintf(name, sizeof name, "%s.%s", family->architecture, key);
    (void)json_object_set_new(keys, name, value);
}

bp_err gguf_no_counterpart(const char *what, const char *value)
{
    return BP_FAIL(BP_ERR_FORMAT, "gguf.no_counterpart",
                   "GGUF files have no place for %s%s; export a Hugging Face folder", what, value);
}

bool gguf_is_padding(const char *name, size_t id)
{
    char padding[32];

    (void)snprintf(padding, sizeof padding, "[PAD%zu]", id);
    return strcmp(name, padding) == 0;
}

json_t *gguf_short_real(double value)
{
    char text[32];

    for (int digits = 6; digits <= 9; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtof(text, NULL) == (float)value)
            break;
    }
    return json_real((double)(float)value == value ? strtod(text, NULL) : value);
}

/* ---- the width that scales scores ---- */

/* llama.cpp's: the head width, or in the largest models the model's width over the heads. */
static json_int_t score_width(const json_t *config, const bp_gguf_family *family)
{
    json_int_t heads = json_integer_value(json_object_get(config, "num_attention_heads"));

    if (heads > 0 && json_integer_value(json_object_get(config, "num_hidden_layers")) ==
                         family->layers_of_largest)
        return json_integer_value(json_object_get(config, "hidden_size")) / heads;
    return json_integer_value(json_object_get(config, "head_dim"));
}

/* ---- layers that differ ---- */

/* The least n for which each n-th layer differs from the rest; 0 if there is no such n. */
static int64_t period_of(const json_t *list, const bp_gguf_family *family)
{
    json_t *rest = json_loads(family->rest, JSON_DECODE_ANY, NULL);
    int64_t count = (int64_t)json_array_size(list), period = 1;
    bool fits = true;

    while (period <= count && json_equal(json_array_get(list, (size_t)period - 1), rest))
        period++;
    for (int64_t k = 0; k < count; k++)
        fits = fits && json_equal(json_array_get(list, (size_t)k), rest) == ((k + 1) % period != 0);
    json_decref(rest);
    return fits ? period : 0;
}

/* A period beyond the layers changes none of them. */
static bool same_layers(int64_t a, int64_t b, int64_t layers)
{
    return a == b || (a > layers && b > layers);
}

bp_err gguf_put_layers(json_t *keys, const json_t *config, const bp_gguf_family *family)
{
    const json_t *scores = json_object_get(config, "query_pre_attn_scalar"),
                 *list = family->by_layer ? json_object_get(config, family->by_layer) : NULL;
    int64_t period = list ? period_of(list, family) : family->period;

    if (scores && json_integer_value(scores) != score_width(config, family))
        return gguf_no_counterpart("scores scaled by another width than a head's", "");
    for (const char *const *absent = family->absent; absent && *absent; absent++)
        if (json_is_number(json_object_get(config, *absent)))
            return gguf_no_counterpart("a model with ", *absent);
    if (same_layers(period, family->period, (int64_t)json_array_size(list)))
        return BP_OK;
    if (period == 0 || !family->has_period_key)
        return gguf_no_counterpart("such a list of ", family->by_layer);
    gguf_set_key(keys, family, PERIOD, json_integer(period));
    return BP_OK;
}

/* A list of flags: is the layer like the rest? */
static bp_err take_list(json_t *config, const json_t *flags, const bp_gguf_family *family,
                        const char *path)
{
    static const char *const words[] = {"full_attention", "sliding_attention"};
    json_t *list = json_array();
    const json_t *one;
    size_t k;
    bool sound = true;

    json_array_foreach(flags, k, one)
    {
        sound = sound && json_is_boolean(one);
        (void)json_array_append_new(list, json_string(words[json_is_true(one)]));
    }
    (void)json_object_set_new(config, family->by_layer, list);
    return sound ? BP_OK
                 : BP_FAIL(BP_ERR_FORMAT, "gguf.bad_key",
                           "key %s." PERIOD " is not a list of booleans: at %s",
                           family->architecture, path);
}

bp_err gguf_take_layers(json_t *config, const json_t *keys, const bp_gguf_family *family,
                        const char *path)
{
    const json_t *period = family->has_period_key ? gguf_key_of(keys, family, PERIOD) : NULL;

    if (family->layers_of_largest > 0)
        (void)json_object_set_new(config, "query_pre_attn_scalar",
                                  json_integer(score_width(config, family)));
    if (json_is_array(period))
        return take_list(config, period, family, path);
    if (json_integer_value(period) > 0)
        (void)json_object_set(config, "sliding_window_pattern", (json_t *)period);
    else if (period)
        return BP_FAIL(BP_ERR_FORMAT, "gguf.bad_key", "key %s." PERIOD " is not a period: at %s",
                       family->architecture, path);
    return BP_OK;
}
