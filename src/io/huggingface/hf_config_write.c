/* config.json of a model, by a family's table. */
#include "base/config/json.h"
#include "base/err.h"
#include "io/huggingface/hf_config_priv.h"

#include <string.h>

/* New reference. */
static json_t *list_json(const bp_hf_shape *shape, int k)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < (int64_t)shape->sizes[k]; i++)
        (void)json_array_append_new(list, json_real(bp_hf_list_of(shape, k)[i]));
    return list;
}

/* The word of a list. New reference. */
static json_t *word_of(const char *at, int number)
{
    for (int k = 0; k < number; k++)
        at += strcspn(at, "|") + 1;
    return json_stringn(at, strcspn(at, "|"));
}

json_t *hf_size_json(const bp_hf_shape *shape, int k)
{
    const bp_hf_size *size = &shape->table->sizes[k];
    double value = shape->sizes[k];

    return size->type == BP_HF_REAL     ? json_real(value)
           : size->type == BP_HF_PAIRS  ? hf_pairs_json(size, bp_hf_list_of(shape, k))
           : hf_is_list(size)           ? list_json(shape, k)
           : size->type == BP_HF_FLAG   ? json_boolean(value != 0)
           : size->type == BP_HF_CHOICE ? word_of(size->words, (int)value)
                                        : json_integer((json_int_t)value);
}

void bp_hf_size_text(bp_buffer *out, const bp_hf_shape *shape, int k)
{
    const bp_hf_size *size = &shape->table->sizes[k];
    bool is_id = size->plus && strcmp(size->plus, "-1") == 0;
    json_t *value = hf_size_json(shape, k);

    bp_buffer_printf(out, "%s ", is_id ? size->theirs : size->ours);
    if (json_is_string(value))
        bp_buffer_printf(out, "%s", json_string_value(value));
    else if (json_is_boolean(value))
        bp_buffer_printf(out, "%s", json_is_true(value) ? "yes" : "no");
    else
        bp_buffer_printf(out, "%.12g", shape->sizes[k] - is_id);
    json_decref(value);
}

/* In config.json's form. */
static json_t *their_json(const bp_hf_shape *shape, int k)
{
    const bp_hf_size *size = &shape->table->sizes[k];

    if (size->written || (size->type == BP_HF_FLAG && size->words))
        return word_of(size->written ? size->written : size->words, (int)shape->sizes[k]);
    if (size->type == BP_HF_LAYERS)
        return hf_layers_json(shape, k);
    if (size->type == BP_HF_PERIOD)
        return hf_period_json(shape, size, shape->sizes[k]);
    return size->plus ? json_integer((json_int_t)shape->sizes[k] + hf_surplus(shape, size))
                      : hf_size_json(shape, k);
}

/* The value in config.json: null for a zero count; objects omit members that are 0 or quiet, and an
 * empty object becomes null. */
static void put_size(json_t *config, const bp_hf_shape *shape, int k, const char *name)
{
    const char *dot = strchr(name, '.');
    const bp_hf_size *size = &shape->table->sizes[k];
    bool words = size->type == BP_HF_LAYERS && size->words,
         nothing = shape->sizes[k] == 0 && size->type != BP_HF_FLAG && !words && !size->written &&
                   !size->zero;
    char parent[64] = "";

    if (size->type == BP_HF_LABELS) {
        hf_labels_write(config, (int64_t)shape->sizes[k], shape->labels);
        return;
    }
    if (!dot && nothing && size->quiet && !size->or_none)
        return;
    if (!dot) {
        (void)json_object_set_new(config, name,
                                  !nothing        ? their_json(shape, k)
                                  : size->or_none ? json_loads(size->or_none, JSON_DECODE_ANY, NULL)
                                                  : json_null());
        return;
    }
    BP_ASSERT((size_t)(dot - name) < sizeof parent);
    memcpy(parent, name, (size_t)(dot - name));
    if (!json_object_get(config, parent))
        (void)json_object_set_new(config, parent, json_null());
    if (nothing || !bp_hf_is_given(shape, k))
        return;
    if (json_is_null(json_object_get(config, parent)))
        (void)json_object_set_new(config, parent, json_object());
    (void)json_object_set_new(json_object_get(config, parent), dot + 1, their_json(shape, k));
}

/* As save_pretrained writes it; members equal to the defaults are written for other readers. The
 * defaults of eos_token_id and of a table's `pad` may not exist in other vocabularies, so null is
 * written. */
json_t *hf_config_json(const bp_hf_shape *shape)
{
    const bp_hf_table *table = shape->table;
    json_t *config = json_loads(table->more, 0, NULL),
           *eos = shape->eos_id < 0 ? json_null() : json_integer(shape->eos_id);
    char base[HF_CLASS_NAME];

    BP_ASSERT(config != NULL);
    (void)json_object_set_new(config, "model_type", bp_json_string(table->model_type));
    (void)json_object_set_new(
        config, "architectures",
        json_pack("[s]", shape->headless ? hf_base_class(base, table) : table->architecture));
    if (shape->no_pad || (shape->pad_id < 0 && table->pad))
        (void)json_object_set_new(config, "pad_token_id", json_null());
    else if (shape->pad_id >= 0)
        (void)json_object_set_new(config, "pad_token_id", json_integer(shape->pad_id));
    for (int k = 0; table->sizes[k].ours; k++) {
        if (table->sizes[k].theirs)
            put_size(config, shape, k, table->sizes[k].theirs);
        if (table->sizes[k].also && table->sizes[k].type == BP_HF_PERIOD)
            (void)json_object_set_new(config, table->sizes[k].also, hf_size_json(shape, k));
        else if (table->sizes[k].also)
            put_size(config, shape, k, table->sizes[k].also);
    }
    for (const bp_hf_setting *setting = table->settings; setting->key; setting++)
        if (hf_is_set(shape, setting->only_if) && setting->is[0] != '*' && setting->is[0] != '[' &&
            !strchr(setting->key, '.'))
            (void)json_object_set_new(
                config, setting->key,
                hf_setting_value(shape, setting->is, strcspn(setting->is, "|")));
    if (json_is_null(json_object_get(config, "decoder_start_token_id"))) /* it is that one */
        (void)json_object_set(config, "decoder_start_token_id", eos);
    if (json_integer_value(json_object_get(config, "pad_token_id")) < 0) /* Marian's begins, too */
        (void)json_object_set(config, "pad_token_id", eos);
    if (shape->bos_id >= 0)
        (void)json_object_set_new(config, "bos_token_id", json_integer(shape->bos_id));
    else
        (void)json_object_set(config, "bos_token_id", eos);
    if (shape->end_ids)
        (void)json_object_set_new(config, "eos_token_id", json_deep_copy(shape->end_ids));
    else
        (void)json_object_set(config, "eos_token_id", eos);
    if (shape->forced)
        (void)json_object_update(config, (json_t *)shape->forced);
    json_decref(eos);
    return config;
}

/* Without max_length, transformers ends targets at 20 tokens. */
json_t *hf_generation_json(const bp_hf_shape *shape, const json_t *config)
{
    static const char *const KEYS[] = {
        "bos_token_id",        "eos_token_id",        "pad_token_id", "decoder_start_token_id",
        "forced_bos_token_id", "forced_eos_token_id", "bad_words_ids"};
    json_t *out;

    if (!json_is_true(json_object_get(config, "is_encoder_decoder")) || shape->headless ||
        shape->table->instead || bp_hf_has_size(shape->table, "task"))
        return NULL;
    out = json_pack("{s:I}", "max_length", (json_int_t)bp_hf_size_of(shape, "context"));
    for (size_t k = 0; k < sizeof KEYS / sizeof *KEYS; k++) {
        json_t *value = json_object_get(config, KEYS[k]);

        if (value && !json_is_null(value))
            (void)json_object_set(out, KEYS[k], value);
    }
    return out;
}
