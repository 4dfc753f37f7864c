/* The keys of config.json that tables do not name: keys without effect, keys with a single
 * supported value, and the rest, which are refused. */
#include "io/huggingface/hf_config_priv.h"

#include <stdio.h>
#include <string.h>

/* Without meaning for a model's numbers: names and versions, types in files, how Hugging Face runs,
 * initialises or trains it, and how it generates text. */
static const char *const HARMLESS[] = {"_attn_implementation",
                                       "_attn_implementation_autoset",
                                       "_attn_implementation_internal",
                                       "_commit_hash",
                                       "_flash_attn_2_enabled",
                                       "_from_model_config",
                                       "_name_or_path",
                                       "_num_labels",
                                       "architectures",
                                       "attn_implementation",
                                       "bad_words_ids",
                                       "begin_suppress_tokens",
                                       "bos_token_id",
                                       "chunk_size_feed_forward",
                                       "cls_token_id",
                                       "custom_pipelines",
                                       "decoder_start_token_id",
                                       "diversity_penalty",
                                       "do_sample",
                                       "dtype",
                                       "early_stopping",
                                       "encoder_no_repeat_ngram_size",
                                       "eos_token_id",
                                       "eos_token_ids",
                                       "exponential_decay_length_penalty",
                                       "finetuning_task",
                                       "forced_bos_token_id",
                                       "forced_eos_token_id",
                                       "gradient_checkpointing",
                                       "id2label",
                                       "initializer_range",
                                       "is_decoder",
                                       "keys_to_ignore_at_inference",
                                       "label2id",
                                       "language",
                                       "length_penalty",
                                       "license",
                                       "mask_token_id",
                                       "max_length",
                                       "max_new_tokens",
                                       "min_length",
                                       "min_new_tokens",
                                       "model_max_length",
                                       "model_type",
                                       "name",
                                       "neftune_noise_alpha",
                                       "no_repeat_ngram_size",
                                       "num_beam_groups",
                                       "num_beams",
                                       "num_labels",
                                       "num_return_sequences",
                                       "output_attentions",
                                       "output_hidden_states",
                                       "output_past",
                                       "output_scores",
                                       "pad_token_id",
                                       "prefix",
                                       "problem_type",
                                       "remove_invalid_values",
                                       "repetition_penalty",
                                       "return_dict",
                                       "return_dict_in_generate",
                                       "sentence_transformers",
                                       "sep_token_id",
                                       "suppress_tokens",
                                       "task_specific_params",
                                       "temperature",
                                       "tf_legacy_loss",
                                       "tokenizer_class",
                                       "top_k",
                                       "top_p",
                                       "torch_dtype",
                                       "torchscript",
                                       "transformers.js_config",
                                       "transformers_version",
                                       "typical_p",
                                       "unk_token_id",
                                       "unsloth_fixed",
                                       "unsloth_version",
                                       "use_bfloat16",
                                       "use_cache",
                                       "use_flash_attention_2",
                                       "vocab_file",
                                       "xla_device",
                                       NULL};

/* For any type of model: other values change the computation. */
const bp_hf_setting hf_common_settings[] = {
    {"quantization_config", "null"},  {"auto_map", "null"},
    {"pruned_heads", "{}"},           {"is_encoder_decoder", "false"},
    {"add_cross_attention", "false"}, {"cross_attention_hidden_size", "null"},
    {"tie_encoder_decoder", "false"}, {0}};

static bool is_in(const char *const *list, const char *key)
{
    for (; list && *list; list++)
        if (strcmp(*list, key) == 0)
            return true;
    return false;
}

bool hf_is_set_by(const bp_hf_setting *settings, const char *key)
{
    for (; settings->key; settings++)
        if (strcmp(settings->key, key) == 0)
            return true;
    return false;
}

/* Is it one of the names in "a|b.c", or an object that contains one? */
static bool is_name_in(const char *names, const char *key)
{
    size_t bytes = strlen(key);

    for (const char *at = names; at && *at; at += strcspn(at, "|"), at += *at == '|')
        if (strncmp(at, key, bytes) == 0 && strchr("|.", at[bytes]))
            return true; /* strchr finds the end, too */
    return false;
}

static bool is_known(const bp_hf_table *table, const char *key)
{
    for (const bp_hf_size *size = table->sizes; size->ours; size++)
        if (is_name_in(size->theirs, key) || is_name_in(size->also, key) ||
            is_name_in(size->older, key))
            return true;
    return is_in(HARMLESS, key) || is_in(table->harmless, key) ||
           hf_is_set_by(hf_common_settings, key) || hf_is_set_by(table->settings, key);
}

bp_err hf_config_check_unknown(const bp_hf_table *table, json_t *config, const char *path)
{
    bp_buffer unknown = {0};
    const char *key;
    json_t *value;
    bp_err err = BP_OK;

    json_object_foreach(config, key, value)
    {
        if (!is_known(table, key) && !json_is_null(value) && unknown.bytes < HF_UNKNOWN_BYTES)
            bp_buffer_printf(&unknown, "%s\"%.80s\"", unknown.bytes > 0 ? ", " : "", key);
    }
    if (unknown.bytes > 0)
        err = BP_FAIL(BP_ERR_FORMAT, "huggingface.unknown_key",
                      "bagpipe does not know %s of a %s, which may change what it computes: at %s; "
                      "remove from config.json what changes nothing",
                      unknown.data, table->model_type, path);
    bp_buffer_clear(&unknown);
    return err;
}

/* Does a name of "NAME|NAME" (NULL: none) begin with this prefix? */
static bool has_name_in(const char *names, const char *prefix)
{
    for (; names; names = strchr(names, '|'), names = names ? names + 1 : NULL)
        if (strncmp(names, prefix, strlen(prefix)) == 0)
            return true;
    return false;
}

/* Is a size of the table a member of this object, "NAME", or of one in it? */
static bool holds_sizes(const bp_hf_table *table, const char *object)
{
    char prefix[192];

    (void)snprintf(prefix, sizeof prefix, "%s.", object);
    for (const bp_hf_size *size = table->sizes; size->ours; size++)
        if (has_name_in(size->theirs, prefix) || has_name_in(size->older, prefix))
            return true;
    return false;
}

static bool is_member(const bp_hf_table *table, const char *name)
{
    for (const bp_hf_size *size = table->sizes; size->ours; size++)
        if (is_name_in(size->theirs, name) || is_name_in(size->older, name))
            return true;
    return hf_is_set_by(table->settings, name);
}

/* Checks the members of an object with sizes: each is a size, a setting, or such an object. */
static bp_err check_object(const bp_hf_table *table, const char *object, json_t *value,
                           const char *path)
{
    const char *member;
    json_t *inner;
    bp_err err = BP_OK;

    if (!json_is_object(value))
        return BP_FAIL(BP_ERR_FORMAT, "json.wrong_type", "\"%s\" is not an object: at %s", object,
                       path);
    json_object_foreach(value, member, inner)
    {
        char name[160];

        (void)snprintf(name, sizeof name, "%.80s.%.70s", object, member);
        if (err != BP_OK || json_is_null(inner))
            continue;
        if (!is_member(table, name))
            err = BP_FAIL(BP_ERR_FORMAT, "huggingface.unknown_key",
                          "\"%s\" has \"%.70s\", which this program's %s does not "
                          "know: at %s; give another model",
                          object, member, table->kind, path);
        else if (holds_sizes(table, name))
            err = check_object(table, name, inner, path);
    }
    return err;
}

bp_err hf_config_check_members(const bp_hf_table *table, json_t *config, const char *path)
{
    const char *object;
    json_t *value;
    bp_err err = BP_OK;

    json_object_foreach(config, object, value)
    {
        if (err == BP_OK && holds_sizes(table, object) && !json_is_null(value))
            err = check_object(table, object, value, path);
    }
    return err;
}
