/* config.json of a GPT-2: what of it this program's GPT has, and what must be as it is there. */
#include "io/huggingface/hf_config_priv.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MAX_SIZE ((int64_t)1 << 31)

/* A size that must be there: 1 .. 2^31. The second name is the one of old files; NULL: none. */
static bp_err get_size(const json_t *config, const char *key, const char *other, int64_t *out,
                       const char *path)
{
    const char *name = other != NULL && json_object_get(config, key) == NULL ? other : key;
    bp_err err = bp_json_get_int(config, name, out, path);

    if (err == BP_OK && (*out < 1 || *out > MAX_SIZE))
        err = BP_FAIL(BP_ERR_FORMAT, "\"%s\" is %" PRId64 "; 1 to 2^31 are possible: at %s", name,
                      *out, path);
    return err;
}

/* What our GPT computes. A key that is not there has GPT2Config's default, which is the same. */
static bp_err check_flags(const json_t *config, const char *path)
{
    static const struct {
        const char *key;
        bool value;
    } flags[] = {{"tie_word_embeddings", true},
                 {"scale_attn_weights", true},
                 {"scale_attn_by_inverse_layer_idx", false},
                 {"add_cross_attention", false},
                 {"is_encoder_decoder", false},
                 {"reorder_and_upcast_attn", false}};

    for (size_t k = 0; k < sizeof flags / sizeof flags[0]; k++) {
        const json_t *value = json_object_get(config, flags[k].key);

        if (value == NULL || json_is_null(value))
            continue;
        if (!json_is_boolean(value) || json_is_true(value) != flags[k].value)
            return BP_FAIL(BP_ERR_FORMAT,
                           "\"%s\" is not %s, which is all that this program's GPT knows: at %s; "
                           "give another model",
                           flags[k].key, flags[k].value ? "true" : "false", path);
    }
    return BP_OK;
}

static bp_err check_kind(const json_t *config, const char *path)
{
    const char *kind = json_string_value(json_object_get(config, "model_type"));
    const json_t *activation = json_object_get(config, "activation_function");
    const char *name = activation == NULL ? "gelu_new" : json_string_value(activation);

    if (kind == NULL || strcmp(kind, "gpt2") != 0)
        return BP_FAIL(
            BP_ERR_FORMAT,
            "\"model_type\" is \"%.40s\", and only gpt2 can be imported: at %s; give another model",
            kind == NULL ? "" : kind, path);
    if (name == NULL || (strcmp(name, "gelu_new") != 0 && strcmp(name, "gelu_pytorch_tanh") != 0))
        return BP_FAIL(BP_ERR_FORMAT,
                       "\"activation_function\" is \"%.40s\"; gelu_new and gelu_pytorch_tanh, "
                       "which are one, are "
                       "possible: at %s; give another model",
                       name == NULL ? "" : name, path);
    return BP_OK;
}

static bp_err check_numbers(const json_t *config, const bp_hf_shape *shape, const char *path)
{
    const json_t *epsilon = json_object_get(config, "layer_norm_epsilon"),
                 *inner = json_object_get(config, "n_inner");

    if (epsilon != NULL &&
        !(json_is_number(epsilon) && fabs(json_number_value(epsilon) - 1e-5) < 1e-11))
        return BP_FAIL(
            BP_ERR_FORMAT,
            "\"layer_norm_epsilon\" is %g; this program's GPT has 1e-5: at %s; give another model",
            json_number_value(epsilon), path);
    if (inner != NULL && !json_is_null(inner) &&
        !(json_is_integer(inner) && json_integer_value(inner) == 4 * shape->width))
        return BP_FAIL(BP_ERR_FORMAT,
                       "\"n_inner\" is %lld; this program's GPT has 4 x n_embd = %lld: at %s; give "
                       "another model",
                       (long long)json_integer_value(inner), (long long)(4 * shape->width), path);
    if (shape->width % shape->heads != 0)
        return BP_FAIL(BP_ERR_FORMAT, "\"n_head\" %lld does not divide \"n_embd\" %lld: at %s",
                       (long long)shape->heads, (long long)shape->width, path);
    return BP_OK;
}

bp_err hf_config_read(bp_hf_shape *out, const json_t *config, const char *path)
{
    const json_t *eos = json_object_get(config, "eos_token_id");
    bp_err err = check_kind(config, path);

    if (err == BP_OK)
        err = get_size(config, "n_layer", NULL, &out->layers, path);
    if (err == BP_OK)
        err = get_size(config, "n_embd", NULL, &out->width, path);
    if (err == BP_OK)
        err = get_size(config, "n_head", NULL, &out->heads, path);
    if (err == BP_OK)
        err = get_size(config, "n_positions", "n_ctx", &out->context, path);
    if (err == BP_OK)
        err = get_size(config, "vocab_size", NULL, &out->vocab_size, path);
    if (err == BP_OK && out->layers > HF_MAX_LAYERS)
        err = BP_FAIL(BP_ERR_FORMAT, "\"n_layer\" is %lld; %d are possible: at %s",
                      (long long)out->layers, HF_MAX_LAYERS, path);
    if (err == BP_OK)
        err = check_flags(config, path);
    if (err == BP_OK)
        err = check_numbers(config, out, path);
    out->eos_id = json_is_integer(eos) && json_integer_value(eos) >= 0 &&
                          json_integer_value(eos) < out->vocab_size
                      ? json_integer_value(eos)
                      : -1;
    return bp_err_advise(err, "export the model again");
}

/* As save_pretrained writes it; keys that say what GPT2Config's defaults say anyway are there for
 * other readers. */
json_t *hf_config_json(const bp_hf_shape *shape)
{
    json_t *config = json_pack(
        "{s:s, s:[s], s:s, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:n, s:I, s:I, s:b, s:b, s:b, s:b, "
        "s:s, s:b, s:I}",
        "activation_function", "gelu_new", "architectures", "GPT2LMHeadModel", "model_type", "gpt2",
        "attn_pdrop", 0.0, "embd_pdrop", 0.0, "resid_pdrop", 0.0, "layer_norm_epsilon", 1e-5,
        "n_ctx", (json_int_t)shape->context, "n_embd", (json_int_t)shape->width, "n_head",
        (json_int_t)shape->heads, "n_inner", "n_layer", (json_int_t)shape->layers, "n_positions",
        (json_int_t)shape->context, "reorder_and_upcast_attn", 0, "scale_attn_by_inverse_layer_idx",
        0, "scale_attn_weights", 1, "tie_word_embeddings", 1, "torch_dtype", "float32", "use_cache",
        1, "vocab_size", (json_int_t)shape->vocab_size);
    json_t *eos = shape->eos_id < 0 ? json_null() : json_integer(shape->eos_id);

    /* GPT2Config's own default is 50256, which other vocabularies don't have: so null is said. */
    if (config == NULL || json_object_set(config, "bos_token_id", eos) != 0 ||
        json_object_set(config, "eos_token_id", eos) != 0) {
        json_decref(config);
        config = NULL;
    }
    json_decref(eos);
    return config;
}
