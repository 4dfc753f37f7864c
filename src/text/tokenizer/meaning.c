/* The meaning of a tokenizer.json, independent of its spelling: its hash, and equal hashes. */
#include "base/mem.h"
#include "text/tokenizer/meaning_priv.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the canonical form ---- */

static const char *string_of(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));

    return !value ? "" : value;
}

/* Members at the reader's defaults, which mean the same as absent ones. */
static bool is_default(const json_t *object, const char *key, const json_t *value)
{
    static const char *const when_true[] = {
        "add_prefix_space",     "use_regex",  "split",       "clean_text", "lowercase",
        "handle_chinese_chars", "strip_left", "strip_right", "cleanup"};
    static const char *const when_false[] = {"invert",        "individual_digits",
                                             "byte_fallback", "ignore_merges",
                                             "single_word",   "lstrip",
                                             "rstrip",        "special"};
    const char *type = string_of(object, "type");

    if (json_is_null(value) || strcmp(key, "trim_offsets") == 0)
        return true;
    if (strcmp(key, "fuse_unk") == 0)
        return json_is_boolean(value) && json_is_true(value) == (strcmp(type, "Unigram") == 0);
    for (size_t k = 0; k < sizeof when_true / sizeof *when_true; k++)
        if (json_is_true(value) && strcmp(key, when_true[k]) == 0)
            return true;
    for (size_t k = 0; k < sizeof when_false / sizeof *when_false; k++)
        if (json_is_false(value) && strcmp(key, when_false[k]) == 0)
            return true;
    if (strcmp(type, "BPE") == 0)
        return (strcmp(key, "dropout") == 0 && json_number_value(value) == 0) ||
               (json_is_string(value) && json_string_length(value) == 0);
    return strcmp(type, "WordPiece") == 0 &&
           ((strcmp(key, "max_input_chars_per_word") == 0 && json_integer_value(value) == 100) ||
            ((strcmp(key, "continuing_subword_prefix") == 0 || strcmp(key, "prefix") == 0) &&
             strcmp(string_of(object, key), "##") == 0));
}

/* Its older spelling has only add_prefix_space. */
static void spell_metaspace(json_t *object)
{
    bool prefix = !json_is_false(json_object_get(object, "add_prefix_space"));

    if (string_of(object, "prepend_scheme")[0] == '\0')
        (void)json_object_set_new(object, "prepend_scheme",
                                  json_string(prefix ? "always" : "never"));
    (void)json_object_del(object, "add_prefix_space");
    (void)json_object_del(object, "str_rep");
}

/* `depth` is bounded by that of the parser. */
static void spell(json_t *value)
{
    const char *key;
    json_t *member;
    void *next;
    size_t k;

    json_array_foreach(value, k, member) spell(member);
    if (!json_is_object(value))
        return;
    if (strcmp(string_of(value, "type"), "Metaspace") == 0)
        spell_metaspace(value);
    json_object_foreach_safe(value, next, key, member)
    {
        if (is_default(value, key, member))
            (void)json_object_del(value, key);
        else if (strcmp(key, "vocab") != 0 && strcmp(key, "merges") != 0)
            spell(member);
    }
}

static void spell_scores(json_t *list)
{
    json_t *row;
    size_t k;

    json_array_foreach(list, k, row) if (json_is_integer(json_array_get(row, 1)))(void)
        json_array_set_new(row, 1, json_real(json_number_value(json_array_get(row, 1))));
}

static void spell_merges(json_t *list)
{
    json_t *merge;
    size_t k;

    json_array_foreach(list, k, merge)
    {
        const char *text = json_string_value(merge), *space = text ? strchr(text, ' ') : NULL;

        if (space)
            (void)json_array_set_new(list, k,
                                     json_pack("[s%, s]", text, (size_t)(space - text), space + 1));
    }
}

static int by_id(const void *left, const void *right)
{
    json_int_t a = json_integer_value(json_object_get(*(json_t *const *)left, "id")),
               b = json_integer_value(json_object_get(*(json_t *const *)right, "id"));

    return (a > b) - (a < b);
}

/* In order of ids; each has "normalized" explicitly. */
static json_t *added_in_order(const json_t *added)
{
    int64_t count = (int64_t)json_array_size(added);
    json_t **tokens = bp_alloc("text.meaning", count, sizeof *tokens), *list = json_array();

    for (int64_t k = 0; k < count; k++) {
        json_t *token = tokens[k] = json_array_get(added, (size_t)k);

        if (!json_is_boolean(json_object_get(token, "normalized")))
            (void)json_object_set_new(
                token, "normalized",
                json_boolean(!json_is_true(json_object_get(token, "special"))));
    }
    if (count > 0)
        qsort(tokens, (size_t)count, sizeof *tokens, by_id);
    for (int64_t k = 0; k < count; k++)
        (void)json_array_append(list, tokens[k]);
    bp_free(tokens);
    return list;
}

bp_err bp_meaning_hash(char hash[BP_SHA256_HEX], const json_t *root)
{
    json_t *all = json_deep_copy(root), *model = json_object_get(all, "model");
    json_t *vocab = json_object_get(model, "vocab");
    char *text = NULL;

    if (all) {
        json_t *added = added_in_order(json_object_get(all, "added_tokens"));

        (void)json_object_del(all, "truncation");
        (void)json_object_del(all, "padding");
        (void)json_object_del(all, "version");
        (void)json_object_set_new(all, "added_tokens", added);
        if (json_is_array(vocab))
            spell_scores(vocab);
        spell_merges(json_object_get(model, "merges"));
        spell(all);
        text = json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS);
    }
    json_decref(all);
    if (!text)
        return bp_fail_memory("the text of a tokenizer", 1, 0);
    bp_sha256_of(text, strlen(text), hash);
    free(text);
    return BP_OK;
}

/* ---- equal hashes ---- */

/* In files of older versions the hash is of the text. A job has a few tokenizers at most; if there
 * are more, the last ones are known. */
#define MOST 32

typedef bp_known_hash known_hash;

static known_hash known[MOST];
static int known_count; /* that ever came: the next one is known[known_count % MOST] */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static known_hash *find(const char *hash)
{
    for (int k = 0; k < known_count && k < MOST; k++)
        if (strcmp(known[k].hash, hash) == 0)
            return &known[k];
    return NULL;
}

static known_hash *add(const char *hash)
{
    known_hash *one = find(hash);

    if (!one && hash[0] != '\0') {
        one = &known[known_count % MOST];
        known_count = known_count + 1 < 2 * MOST ? known_count + 1 : MOST;
        *one = (known_hash){.read = NULL};
        snprintf(one->hash, sizeof one->hash, "%s", hash);
    }
    return one;
}

void bp_meaning_remember(const char *text_hash, const char *meaning)
{
    known_hash *one;

    BP_CHECK(pthread_mutex_lock(&lock) == 0);
    one = add(text_hash);
    if (one)
        snprintf(one->meaning, sizeof one->meaning, "%s", meaning);
    BP_CHECK(pthread_mutex_unlock(&lock) == 0);
}

void bp_meaning_is_in(const char *hash, const char *path, bp_meaning_source *read)
{
    known_hash *one;

    BP_CHECK(pthread_mutex_lock(&lock) == 0);
    one = add(hash);
    if (one && one->meaning[0] == '\0' && one->path[0] == '\0' && strlen(path) < sizeof one->path) {
        snprintf(one->path, sizeof one->path, "%s", path);
        one->read = read;
    }
    BP_CHECK(pthread_mutex_unlock(&lock) == 0);
}

bool bp_meaning_find(bp_known_hash *out, const char *hash)
{
    known_hash *one;

    BP_CHECK(pthread_mutex_lock(&lock) == 0);
    one = find(hash);
    if (one)
        *out = *one;
    BP_CHECK(pthread_mutex_unlock(&lock) == 0);
    return one != NULL;
}
