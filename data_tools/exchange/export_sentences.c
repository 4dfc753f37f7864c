/* The additional files of sentence-transformers in a Hugging Face folder: the modules that follow
 * the model, the most tokens of a text, and a prompt. */
#include "export_sentences.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "sentence_map.h"

#include <stdio.h>
#include <string.h>

#define PROMPT "default"
#define DENSE  "2_Dense"

static void add_module(json_t *modules, const char *name)
{
    size_t number = json_array_size(modules);
    char id[24], path[64] = "", type[96];

    (void)snprintf(id, sizeof id, "%zu", number);
    if (number > 0)
        (void)snprintf(path, sizeof path, "%zu_%s", number, name);
    (void)snprintf(type, sizeof type, "sentence_transformers.models.%s", name);
    (void)json_array_append_new(modules,
                                json_pack("{s:I, s:s, s:s, s:s}", "idx", (json_int_t)number, "name",
                                          id, "path", path, "type", type));
}

static json_t *modules_of(const json_t *vectors)
{
    json_t *modules = json_array();

    add_module(modules, "Transformer");
    add_module(modules, "Pooling");
    if (json_object_get(vectors, "map"))
        add_module(modules, "Dense");
    if (json_is_true(json_object_get(vectors, "norm")))
        add_module(modules, "Normalize");
    return modules;
}

static json_t *pooling_of(const char *pool, json_int_t width)
{
    static const char *const MODES[][2] = {
        {"cls_token", "first"},         {"mean_tokens", "mean"},       {"max_tokens", NULL},
        {"mean_sqrt_len_tokens", NULL}, {"weightedmean_tokens", NULL}, {"lasttoken", "last"}};
    json_t *pooling = json_pack("{s:I}", "word_embedding_dimension", width);

    for (size_t k = 0; k < sizeof MODES / sizeof *MODES; k++) {
        char key[64];

        (void)snprintf(key, sizeof key, "pooling_mode_%s", MODES[k][0]);
        (void)json_object_set_new(pooling, key,
                                  json_boolean(MODES[k][1] && strcmp(pool, MODES[k][1]) == 0));
    }
    (void)json_object_set_new(pooling, "include_prompt", json_true());
    return pooling;
}

json_t *export_sentences(const json_t *state)
{
    const json_t *vectors = json_object_get(state, "vectors"),
                 *context = json_object_get(vectors, "context"),
                 *prompt = json_object_get(vectors, "prompt_text");
    const char *pool = json_string_value(json_object_get(vectors, "pool"));
    json_int_t width =
        json_integer_value(json_object_get(json_object_get(state, "model"), "width"));
    json_t *files, *length;

    if (!pool)
        return NULL;
    length = json_pack("{s:b}", "do_lower_case", 0);
    if (context)
        (void)json_object_set(length, "max_seq_length", (json_t *)context);
    files =
        json_pack("{s:o, s:o, s:o}", "modules.json", modules_of(vectors), "1_Pooling/config.json",
                  pooling_of(pool, width), "sentence_bert_config.json", length);
    if (json_object_get(vectors, "map"))
        (void)json_object_set_new(files, DENSE "/config.json", sentence_map_config(vectors, width));
    if (prompt)
        (void)json_object_set_new(
            files, "config_sentence_transformers.json",
            json_pack("{s:{s:O}, s:s}", "prompts", PROMPT, prompt, "default_prompt_name", PROMPT));
    return files;
}

bp_err export_sentences_map(bp_checkpoint *checkpoint, const char *dtype, const char *folder)
{
    const json_t *vectors = json_object_get(bp_checkpoint_state(checkpoint), "vectors");
    char *own = bp_path_join(folder, DENSE);
    bp_err err =
        json_object_get(vectors, "map") ? sentence_map_write(checkpoint, dtype, own) : BP_OK;

    if (err == BP_OK && json_object_get(vectors, "map"))
        err = bp_path_sync(own);
    bp_free(own);
    return err;
}
