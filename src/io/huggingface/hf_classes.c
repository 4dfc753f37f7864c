/* "architectures" of config.json: the supported classes of transformers for a type. The computation
 * of another class does not follow from its tensors, so it is refused by name. */
#include "base/suffix.h"
#include "io/huggingface/hf_config_priv.h"

#include <stdio.h>
#include <string.h>

const char *hf_base_class(char name[HF_CLASS_NAME], const bp_hf_table *table)
{
    static const char *const HEADS[] = {"LMHead", "MTModel", "For", NULL};
    const char *from = table->stem ? table->stem : table->architecture, *end = NULL;

    for (int k = 0; HEADS[k] && !end && !table->stem; k++)
        end = strstr(from, HEADS[k]);
    (void)snprintf(name, HF_CLASS_NAME, "%.*sModel",
                   (int)(end ? (size_t)(end - from) : strlen(from)), from);
    return name;
}

static bool is_class_of(const bp_hf_table *table, const char *name)
{
    for (const char *const *other = table->classes; other && *other; other++)
        if (strcmp(name, *other) == 0)
            return true;
    return strcmp(name, table->architecture) == 0;
}

bool hf_config_names(const json_t *config, const bp_hf_table *table)
{
    const json_t *name;
    size_t k;

    json_array_foreach(json_object_get(config, "architectures"), k, name)
    {
        if (json_is_string(name) && is_class_of(table, json_string_value(name)))
            return true;
    }
    return false;
}

/* A model of images and text has its text model under text_config; shared settings may be outside
 * it. */
json_t *hf_text_config(const json_t *config, const bp_hf_table *const *tables)
{
    static const char *const BESIDE[] = {"eos_token_id",
                                         "bos_token_id",
                                         "pad_token_id",
                                         "tie_word_embeddings",
                                         "auto_map",
                                         "quantization_config",
                                         NULL};
    const char *type = json_string_value(json_object_get(config, "model_type"));
    json_t *text = json_object_get(config, "text_config");
    bool known = !json_is_object(text);

    for (; *tables; tables++)
        known = known || (type && strcmp(type, (*tables)->model_type) == 0);
    if (known)
        return json_incref((json_t *)config);
    text = json_copy(text);
    for (int k = 0; BESIDE[k]; k++)
        if (!json_object_get(text, BESIDE[k]) && json_object_get(config, BESIDE[k]))
            (void)json_object_set(text, BESIDE[k], json_object_get(config, BESIDE[k]));
    return text;
}

/* The first class that config.json names; NULL if none. */
static const char *class_of(const json_t *config)
{
    return json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
}

/* A model of images and text generates text, so it has the head of its text model. */
static bp_err check_around(const json_t *config, const char *path)
{
    static const char *const WRITES[] = {"ForConditionalGeneration", "ForCausalLM",
                                         "ForImageTextToText", "ForVision2Seq", NULL};
    const char *name = class_of(config);
    bool writes = !name;

    for (int k = 0; WRITES[k]; k++)
        writes = writes || bp_ends_with(name, WRITES[k]);
    return writes || (bp_ends_with(name, "Model") && !strstr(name, "For"))
               ? BP_OK
               : BP_FAIL(BP_ERR_FORMAT, "huggingface.unknown_class",
                         "\"architectures\" is \"%.60s\", whose head this program does not read; "
                         "of models of images and text it reads the language model: at %s; export "
                         "that",
                         name, path);
}

bp_err hf_check_class(const json_t *config, const bp_hf_table *const *tables, const char *path)
{
    json_t *text = hf_text_config(config, tables);
    const char *type = json_string_value(json_object_get(text, "model_type")),
               *name = class_of(text);
    bp_err err = text != config ? check_around(config, path) : BP_OK;
    bool known = !name, typed = false;
    char base[HF_CLASS_NAME];
    bp_buffer classes = {0};

    for (const bp_hf_table *const *table = tables; *table; table++) {
        if (!type || strcmp(type, (*table)->model_type) != 0)
            continue;
        known =
            known || is_class_of(*table, name) || strcmp(name, hf_base_class(base, *table)) == 0;
        if (!typed)
            bp_buffer_printf(&classes, "%s", hf_base_class(base, *table));
        if (!typed || strcmp((*table)->architecture, table[-1]->architecture) != 0)
            bp_buffer_printf(&classes, ", %s", (*table)->architecture);
        typed = true;
    }
    if (err == BP_OK && typed && !known)
        err = BP_FAIL(BP_ERR_FORMAT, "huggingface.unknown_class",
                      "\"architectures\" is \"%.60s\", and a %s is read from %s: at %s; export the "
                      "model as one of these classes",
                      name, type, classes.data, path);
    bp_buffer_clear(&classes);
    json_decref(text);
    return err;
}
