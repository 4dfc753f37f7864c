/* The files that sentence-transformers saves next to a model. */
#include "import_sentences.h"

#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"

#include <string.h>

#define LIMIT ((int64_t)1 << 20)

/* An object or list of a file; *out NULL, and BP_OK: there is no such file. */
static bp_err load(json_t **out, char **path, const char *folder, const char *name)
{
    *path = bp_path_join(folder, name);
    *out = NULL;
    return bp_path_exists(*path) ? bp_json_load(out, *path, LIMIT) : BP_OK;
}

static bp_err refuse(const char *what, const char *value, const char *path)
{
    return BP_FAIL(BP_ERR_FORMAT, "import.other_module",
                   "%s is '%.80s', which score.vectors does not compute: at %s; import the folder "
                   "of the model itself, without modules.json",
                   what, value, path);
}

/* ---- pooling ---- */

static const char *pool_named(const char *word)
{
    return strcmp(word, "cls") == 0 || strcmp(word, "cls_token") == 0      ? "first"
           : strcmp(word, "mean") == 0 || strcmp(word, "mean_tokens") == 0 ? "mean"
           : strcmp(word, "lasttoken") == 0                                ? "last"
                                                                           : NULL;
}

/* "pooling_mode": "mean", or "pooling_mode_mean_tokens": true. */
static bp_err read_pooling(json_t *vectors, const char *folder)
{
    static const char PREFIX[] = "pooling_mode";
    const char *key, *word = NULL, *pool;
    char *path;
    json_t *config, *value;
    bp_err err = load(&config, &path, folder, "config.json");

    json_object_foreach(config, key, value)
    {
        if (err != BP_OK || strncmp(key, PREFIX, strlen(PREFIX)) != 0 || json_is_false(value))
            continue;
        if (word)
            err = refuse("more than one kind of pooling", key, path);
        word = json_is_string(value) ? json_string_value(value)
               : key[strlen(PREFIX)] ? key + strlen(PREFIX) + 1
                                     : key;
    }
    if (err == BP_OK && json_is_false(json_object_get(config, "include_prompt")))
        err = refuse("\"include_prompt\"", "false", path);
    pool = word ? pool_named(word) : "mean";
    if (err == BP_OK && !pool)
        err = refuse("the pooling", word, path);
    if (err == BP_OK)
        (void)json_object_set_new(vectors, "pool", bp_json_string(pool));
    json_decref(config);
    bp_free(path);
    return err;
}

/* ---- modules ---- */

static bp_err read_module(json_t *vectors, sentence_map *map, char **model, const char *folder,
                          const json_t *module, const char *path)
{
    const char *type = json_string_value(json_object_get(module, "type")),
               *at = json_string_value(json_object_get(module, "path")), *name;
    char *own;
    bp_err err = BP_OK;

    if (!type || !at || strstr(at, "..") || at[0] == '/')
        return BP_FAIL(BP_ERR_FORMAT, "json.wrong_type",
                       "a module has no \"type\" and \"path\" within the folder: at %s; save the "
                       "model again",
                       path);
    name = strrchr(type, '.');
    name = name ? name + 1 : type;
    own = at[0] ? bp_path_join(folder, at) : bp_strdup(folder);
    if (strcmp(name, "Transformer") == 0 && !*model) {
        *model = own;
        return BP_OK;
    }
    if (strcmp(name, "Pooling") == 0 && *model && !json_object_get(vectors, "pool"))
        err = read_pooling(vectors, own);
    else if (strcmp(name, "Dense") == 0 && json_object_get(vectors, "pool") &&
             !json_object_get(vectors, "map") && !json_object_get(vectors, "norm"))
        err = sentence_map_read(map, vectors, own);
    else if (strcmp(name, "Normalize") == 0 && json_object_get(vectors, "pool"))
        (void)json_object_set_new(vectors, "norm", json_true());
    else
        err = refuse("a module", type, path);
    bp_free(own);
    return err;
}

/* ---- lengths and prompts ---- */

static void limit(json_t *vectors, const json_t *most)
{
    json_int_t before = json_integer_value(json_object_get(vectors, "context"));

    if (json_is_integer(most) && json_integer_value(most) > 0 &&
        (before == 0 || json_integer_value(most) < before))
        (void)json_object_set_new(vectors, "context", json_integer(json_integer_value(most)));
}

/* Without max_seq_length it is the tokenizer's. */
static bp_err read_length(json_t *vectors, const char *model)
{
    char *path, *of_tokenizer;
    json_t *config, *tokenizer = NULL;
    bp_err err = load(&config, &path, model, "sentence_bert_config.json");

    if (err == BP_OK)
        err = load(&tokenizer, &of_tokenizer, model, "tokenizer_config.json");
    else
        of_tokenizer = NULL;
    limit(vectors, json_object_get(config, "max_seq_length"));
    if (!json_object_get(vectors, "context"))
        limit(vectors, json_object_get(tokenizer, "model_max_length"));
    if (json_is_true(json_object_get(config, "do_lower_case")))
        (void)json_object_set_new(vectors, "lowercase", json_true());
    json_decref(tokenizer);
    json_decref(config);
    bp_free(of_tokenizer);
    bp_free(path);
    return err;
}

static bp_err read_prompt(json_t *vectors, const char *folder)
{
    char *path;
    json_t *config;
    bp_err err = load(&config, &path, folder, "config_sentence_transformers.json");
    const char *name = json_string_value(json_object_get(config, "default_prompt_name"));
    const json_t *text = name ? json_object_get(json_object_get(config, "prompts"), name) : NULL;

    if (err == BP_OK && name && !json_is_string(text))
        err =
            BP_FAIL(BP_ERR_FORMAT, "json.wrong_type",
                    "\"prompts\" has no text '%.80s', which \"default_prompt_name\" names: at %s; "
                    "save the model again",
                    name, path);
    if (err == BP_OK && text && json_string_length(text) > 0)
        (void)json_object_set(vectors, "prompt_text", (json_t *)text);
    json_decref(config);
    bp_free(path);
    return err;
}

bp_err import_sentences(json_t **vectors, sentence_map *map, char **model, const char *folder)
{
    char *path;
    json_t *modules, *module, *out = json_object();
    size_t k;
    bp_err err = load(&modules, &path, folder, "modules.json");

    *vectors = NULL;
    *model = NULL;
    json_array_foreach(modules, k, module)
    {
        if (err == BP_OK)
            err = read_module(out, map, model, folder, module, path);
    }
    if (err == BP_OK && modules && !json_object_get(out, "pool"))
        err = refuse("the list of modules", "without Pooling", path);
    if (err == BP_OK && modules)
        err = read_length(out, *model);
    if (err == BP_OK && modules)
        err = read_prompt(out, folder);
    if (err == BP_OK && modules)
        *vectors = json_incref(out);
    if (!*model)
        *model = bp_strdup(folder);
    json_decref(out);
    json_decref(modules);
    bp_free(path);
    return err;
}

/* ---- with the tokenizer ---- */

static bp_err encode(bp_ids *ids, const bp_tokenizer *tokenizer, const char *text)
{
    bp_encoder *encoder = NULL;
    bp_err err = bp_encoder_new(&encoder, tokenizer);

    if (err == BP_OK)
        err = bp_encode(encoder, text, strlen(text), ids);
    bp_encoder_free(&encoder);
    return err;
}

static bool same(const bp_ids *a, const bp_ids *b)
{
    return a->count == b->count &&
           memcmp(a->data, b->data, (size_t)a->count * sizeof *a->data) == 0;
}

static bp_err check_lowercase(const bp_tokenizer *tokenizer, const char *folder)
{
    bp_ids upper = {0}, lower = {0};
    bp_err err = encode(&upper, tokenizer, "A Text OF Letters");

    if (err == BP_OK)
        err = encode(&lower, tokenizer, "a text of letters");
    if (err == BP_OK && !same(&upper, &lower))
        err = refuse("\"do_lower_case\"", "true, and the tokenizer keeps capitals", folder);
    bp_ids_clear(&upper);
    bp_ids_clear(&lower);
    return err;
}

/* Is prompt and text together what `bytes` of the prompt and the text are apart? `ids` gets those
 * of the prompt. */
static bp_err encode_apart(bool *is_so, bp_ids *ids, const bp_tokenizer *tokenizer,
                           const char *prompt, size_t bytes)
{
    static const char TEXT[] = "text";
    char *both = bp_sprintf("%s%s", prompt, TEXT), *own = bp_sprintf("%.*s", (int)bytes, prompt);
    bp_ids whole = {0}, parts = {0};
    bp_err err = encode(&whole, tokenizer, both);

    if (err == BP_OK)
        err = encode(&parts, tokenizer, own);
    if (err == BP_OK)
        err = encode(ids, tokenizer, own);
    if (err == BP_OK)
        err = encode(&parts, tokenizer, TEXT);
    *is_so = err == BP_OK && same(&whole, &parts);
    bp_ids_clear(&parts);
    bp_ids_clear(&whole);
    bp_free(own);
    bp_free(both);
    return err;
}

/* A space at its end may be a part of the text's first token. */
static bp_err encode_prompt(bp_ids *ids, const bp_tokenizer *tokenizer, const char *prompt,
                            const char *folder)
{
    size_t bytes = strlen(prompt), bare = bytes;
    bool apart = false;
    bp_err err;

    while (bare > 0 && strchr(" \t\n", prompt[bare - 1]))
        bare--;
    err = encode_apart(&apart, ids, tokenizer, prompt, bare);
    if (err == BP_OK && !apart && bare < bytes) {
        ids->count = 0;
        err = encode_apart(&apart, ids, tokenizer, prompt, bytes);
    }
    if (err == BP_OK && !apart)
        err = BP_FAIL(BP_ERR_FORMAT, "import.prompt_joins",
                      "the tokenizer joins the prompt '%.80s' with the text after it: at %s; write "
                      "it into the texts, and set \"default_prompt_name\": null",
                      prompt, folder);
    return err;
}

bp_err import_sentences_encode(json_t *vectors, const bp_tokenizer *tokenizer, const char *folder)
{
    const char *text = json_string_value(json_object_get(vectors, "prompt_text"));
    json_t *list = json_array();
    bp_ids ids = {0};
    bp_err err = BP_OK;

    if (tokenizer && json_is_true(json_object_get(vectors, "lowercase")))
        err = check_lowercase(tokenizer, folder);
    if (err == BP_OK && text && tokenizer)
        err = encode_prompt(&ids, tokenizer, text, folder);
    else if (err == BP_OK && text)
        err = BP_FAIL(BP_ERR_FORMAT, "import.prompt_joins",
                      "without a tokenizer the prompt '%.80s' has no tokens: at %s; give it with "
                      "--tokenizer",
                      text, folder);
    for (int64_t k = 0; k < ids.count; k++)
        (void)json_array_append_new(list, json_integer((json_int_t)ids.data[k]));
    if (ids.count > 0)
        (void)json_object_set(vectors, "prompt", list);
    (void)json_object_del(vectors, "lowercase");
    bp_ids_clear(&ids);
    json_decref(list);
    return err;
}

/* "vectors: mean of up to 256 tokens, 512 numbers of a map with tanh, of length 1, after the prompt
 * 'query: '" */
void import_sentences_report(const json_t *vectors)
{
    const char *prompt = json_string_value(json_object_get(vectors, "prompt_text"));
    const json_t *map = json_object_get(vectors, "map");
    json_int_t most = json_integer_value(json_object_get(vectors, "context"));
    bp_buffer line = {0};

    bp_buffer_printf(&line, "vectors: %s", json_string_value(json_object_get(vectors, "pool")));
    if (most > 0)
        bp_buffer_printf(&line, " of up to %lld tokens", (long long)most);
    if (map)
        bp_buffer_printf(&line, ", %lld numbers of a map with activation %s",
                         (long long)json_integer_value(json_object_get(map, "columns")),
                         json_string_value(json_object_get(map, "activation")));
    if (json_is_true(json_object_get(vectors, "norm")))
        bp_buffer_printf(&line, ", of length 1");
    if (prompt)
        bp_buffer_printf(&line, ", after the prompt '%.200s'", prompt);
    bp_log("%s", line.data);
    bp_buffer_clear(&line);
}
