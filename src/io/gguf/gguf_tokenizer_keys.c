/* Writing the keys "tokenizer.ggml..." of a tokenizer. */
#include "io/gguf/gguf_tokenizer.h"

#include "base/buffer.h"
#include "base/mem.h"
#include "io/gguf/gguf_config_priv.h"
#include "io/gguf/gguf_pattern_priv.h"
#include "text/pipeline/load.h"
#include "text/sentencepiece/sentencepiece.h"

#include <stdio.h>
#include <string.h>

#define KEY           "tokenizer.ggml."
#define PADDING_SCORE (-10000)
#define MARK          "\xE2\x96\x81"

static bp_err fail(const char *what)
{
    return BP_FAIL(BP_ERR_FORMAT, "gguf.no_tokenizer",
                   "GGUF files have no keys for a tokenizer %s; export with --no-tokenizer", what);
}

static void set(json_t *keys, const char *name, json_t *value)
{
    char key[64];

    (void)snprintf(key, sizeof key, KEY "%s", name);
    (void)json_object_set_new(keys, key, value);
}

/* By id: names of the vocabulary and of added tokens, "[PADn]" for the rest. */
static json_t *names_of(const json_t *root, int64_t count)
{
    json_t *names = json_array(), *vocab = json_object_get(json_object_get(root, "model"), "vocab"),
           *value;
    const char *name;
    size_t k;

    for (int64_t id = 0; id < count; id++) {
        char hole[32];

        (void)snprintf(hole, sizeof hole, "[PAD%lld]", (long long)id);
        (void)json_array_append_new(names, json_string(hole));
    }
    if (json_is_array(vocab)) /* [name, score] */
        json_array_foreach(vocab, k, value)(void)
            json_array_set(names, k, json_array_get(value, 0));
    else
        json_object_foreach(vocab, name, value)(void)
            json_array_set_new(names, (size_t)json_integer_value(value), json_string(name));
    json_array_foreach(json_object_get(root, "added_tokens"), k, value)(void)
        json_array_set(names, (size_t)json_integer_value(json_object_get(value, "id")),
                       json_object_get(value, "content"));
    return names;
}

static bool is_byte(const char *name)
{
    return strlen(name) == 6 && strncmp(name, "<0x", 3) == 0 && name[5] == '>' &&
           strspn(name + 3, "0123456789ABCDEF") == 2;
}

static json_t *types_of(const json_t *root, const json_t *names, int64_t unknown, bool has_bytes)
{
    json_t *types = json_array();
    const json_t *one;
    size_t k;

    json_array_foreach(names, k, one)(void) json_array_append_new(
        types, json_integer(has_bytes && is_byte(json_string_value(one)) ? BP_PIECE_BYTE
                            : gguf_is_padding(json_string_value(one), k) ? BP_PIECE_UNUSED
                                                                         : BP_PIECE_NORMAL));
    json_array_foreach(json_object_get(root, "added_tokens"), k, one)(void) json_array_set_new(
        types, (size_t)json_integer_value(json_object_get(one, "id")),
        json_integer(json_is_true(json_object_get(one, "special")) ? BP_PIECE_CONTROL
                                                                   : BP_PIECE_USER_DEFINED));
    if (unknown >= 0 && has_bytes)
        (void)json_array_set_new(types, (size_t)unknown, json_integer(BP_PIECE_UNKNOWN));
    return types;
}

static void put_roles(json_t *keys, const bp_tokenizer *tokenizer)
{
    static const char *const NAMES[BP_ROLES] = {
        [BP_ROLE_PAD] = "padding_token_id", [BP_ROLE_UNKNOWN] = "unknown_token_id",
        [BP_ROLE_CLS] = "cls_token_id",     [BP_ROLE_SEP] = "seperator_token_id",
        [BP_ROLE_MASK] = "mask_token_id",   [BP_ROLE_END] = "eos_token_id",
        [BP_ROLE_BOS] = "bos_token_id"};
    bool words = strcmp(bp_tokenizer_kind(tokenizer), "wordpiece") == 0;

    for (int role = 0; role < BP_ROLES; role++) {
        int64_t id = bp_tokenizer_role(tokenizer, (bp_role)role);
        bool of_words = role == BP_ROLE_CLS || role == BP_ROLE_SEP || role == BP_ROLE_MASK;

        if (NAMES[role] && id >= 0 && (words || !of_words))
            set(keys, NAMES[role], json_integer(id));
    }
    if (!words)
        set(keys, "add_bos_token", json_boolean(bp_tokenizer_role(tokenizer, BP_ROLE_FIRST) >= 0));
}

static bp_err put_bytes(json_t *keys, const json_t *root)
{
    const gguf_pattern *pattern = gguf_pattern_of(root);
    const json_t *merges = json_object_get(json_object_get(root, "model"), "merges"), *one;
    json_t *list = json_array();
    size_t k;

    if (!pattern) {
        json_decref(list);
        return fail("that splits text as this one does");
    }
    json_array_foreach(merges, k, one)
    {
        char *text = json_is_string(one)
                         ? bp_strdup(json_string_value(one))
                         : bp_sprintf("%s %s", json_string_value(json_array_get(one, 0)),
                                      json_string_value(json_array_get(one, 1)));

        (void)json_array_append_new(list, json_string(text));
        bp_free(text);
    }
    set(keys, "model", json_string("gpt2"));
    set(keys, "pre", json_stringn(pattern->name, strcspn(pattern->name, "|")));
    set(keys, "merges", list);
    return BP_OK;
}

/* Scores of "bagpipe", or the order of merges, if a token's merges are consecutive. */
static bp_err scores_of(json_t **out, const json_t *model, const json_t *names)
{
    const json_t *given = json_object_get(json_object_get(model, BP_OURS), "scores"), *one;
    json_t *ids = json_object(), *last = NULL;
    int64_t place = 0;
    size_t k;
    bool sorted = true;

    *out = given ? json_deep_copy(given) : json_array();
    json_array_foreach(names, k, one)
    {
        if (k >= json_array_size(*out))
            (void)json_array_append_new(
                *out, json_real(gguf_is_padding(json_string_value(one), k) ? PADDING_SCORE : 0));
        (void)json_object_set_new(ids, json_string_value(one), json_integer((json_int_t)k));
    }
    json_array_foreach(given ? NULL : json_object_get(model, "merges"), k, one)
    {
        const char *text = json_string_value(one), *space = text ? strchr(text, ' ') : NULL;
        char *made = space ? bp_sprintf("%.*s%s", (int)(space - text), text, space + 1)
                           : bp_sprintf("%s%s", json_string_value(json_array_get(one, 0)),
                                        json_string_value(json_array_get(one, 1)));
        json_t *id = json_object_get(ids, made);

        sorted = sorted && id &&
                 (id == last ||
                  json_real_value(json_array_get(*out, (size_t)json_integer_value(id))) == 0);
        if (id && id != last)
            (void)json_array_set_new(*out, (size_t)json_integer_value(id),
                                     json_real((double)-++place));
        last = id;
        bp_free(made);
    }
    json_decref(ids);
    return sorted ? BP_OK : fail("whose merges have no order of scores");
}

/* Gemma's: it finds no space after the normalizer. */
static bool is_split_at_spaces(const json_t *pre)
{
    const json_t *pattern = json_object_get(pre, "pattern");

    return strcmp(bp_load_string(pre, "type"), "Split") == 0 &&
           strcmp(bp_load_string(pattern, "String"), " ") == 0;
}

/* Does it only replace spaces by U+2581, and perhaps prepend one? */
static bp_err check_steps(bool *prefix, const json_t *root)
{
    const json_t *normalizer = json_object_get(root, "normalizer"),
                 *pre = json_object_get(root, "pre_tokenizer"), *one,
                 *list = json_object_get(normalizer, "normalizers");
    bool replaces = false, other = false;
    json_t *steps = list ? json_deep_copy(list) : json_array();
    size_t k;

    *prefix = false;
    if (json_is_object(normalizer) && !list)
        (void)json_array_append(steps, (json_t *)normalizer);
    json_array_foreach(steps, k, one)
    {
        const char *type = bp_load_string(one, "type");

        if (strcmp(type, "Prepend") == 0 && strcmp(bp_load_string(one, "prepend"), MARK) == 0)
            *prefix = true;
        else if (strcmp(type, "Replace") == 0 && strcmp(bp_load_string(one, "content"), MARK) == 0)
            replaces = true;
        else
            other = true;
    }
    json_decref(steps);
    if (strcmp(bp_load_string(pre, "type"), "Metaspace") == 0) {
        replaces = true;
        *prefix = strcmp(bp_load_string(pre, "prepend_scheme"), "never") != 0;
    } else {
        other = other || !(bp_load_absent(pre) || is_split_at_spaces(pre));
    }
    return replaces && !other ? BP_OK : fail("that changes text as this one does");
}

static bp_err put_pieces(json_t *keys, const json_t *root, const json_t *names)
{
    json_t *scores = NULL;
    bool prefix = false;
    bp_err err = check_steps(&prefix, root);

    if (err == BP_OK)
        err = scores_of(&scores, json_object_get(root, "model"), names);
    if (err != BP_OK) {
        json_decref(scores);
        return err;
    }
    set(keys, "model", json_string("llama"));
    set(keys, "pre", json_string("default"));
    set(keys, "scores", scores);
    set(keys, "add_space_prefix", json_boolean(prefix));
    return BP_OK;
}

/* Words begin with U+2581 there, and continuations have no ##. */
static void put_words(json_t *keys, json_t *names)
{
    json_t *one;
    size_t k;

    set(keys, "model", json_string("bert"));
    set(keys, "pre", json_string("default"));
    json_array_foreach(names, k, one)
    {
        const char *name = json_string_value(one);
        size_t bytes = json_string_length(one);
        char *made;

        if (name[0] == '[' && name[bytes - 1] == ']' && bytes > 2)
            continue;
        made = strncmp(name, "##", 2) == 0 && bytes > 2 ? bp_strdup(name + 2)
                                                        : bp_sprintf(MARK "%s", name);
        (void)json_array_set_new(names, k, json_string(made));
        bp_free(made);
    }
}

bp_err bp_gguf_put_tokenizer(json_t *keys, const bp_tokenizer *tokenizer, int64_t vocab_size)
{
    char *text = bp_tokenizer_text(tokenizer);
    json_t *root = text ? json_loads(text, 0, NULL) : NULL, *names;
    const json_t *model = json_object_get(root, "model");
    bool has_bytes = json_is_true(json_object_get(model, "byte_fallback"));
    const char *kind = bp_tokenizer_kind(tokenizer);
    bp_err err = root ? BP_OK : bp_fail_memory("a tokenizer", 1, 1);

    bp_free(text);
    if (err != BP_OK)
        return err;
    names = names_of(root, vocab_size);
    set(keys, "token_type", types_of(root, names, bp_tokenizer_unk(tokenizer), has_bytes));
    if (strcmp(kind, "wordpiece") == 0)
        put_words(keys, names);
    else if (strcmp(kind, "bpe") == 0)
        err = has_bytes ? put_pieces(keys, root, names) : put_bytes(keys, root);
    else
        err = fail("of its kind");
    set(keys, "tokens", names);
    put_roles(keys, tokenizer);
    json_decref(root);
    return err;
}
