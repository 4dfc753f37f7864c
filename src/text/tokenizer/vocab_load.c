/* Vocabulary, merges and added tokens of tokenizer.json, for plain tokenizers (tokenizer_load.c)
 * and for those with a pipeline (model_load.c). */
#include "base/mem.h"
#include "text/pipeline/load.h"
#include "text/tokenizer/vocab_load_priv.h"

#include <string.h>

#define NAME_LIMIT_BYTES ((size_t)1 << 16)

int64_t bp_tokenizer_size_limit = (int64_t)1 << 22; /* a dozen times the largest vocabularies */

/* ---- vocabulary ---- */

typedef struct id_list {
    const char **names; /* [size]; NULL: not seen */
    int64_t size, capacity;
} id_list;

static bp_err take_id(id_list *list, const char *name, const json_t *value, const char *file)
{
    int64_t id = json_integer_value(value);

    if (name[0] == '\0') /* a merge with it would be its own result */
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.empty_token", "a token is empty: at %s", file);
    if (strlen(name) > NAME_LIMIT_BYTES)
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.token_too_long",
                       "a token has %zu bytes; 64 KiB are possible: at %s", strlen(name), file);
    if (!json_is_integer(value))
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.bad_id",
                       "the id of token \"%s\" is not an integer: at %s", name, file);
    if (id < 0 || id >= bp_tokenizer_size_limit)
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.bad_id",
                       "token \"%s\" has id %lld, outside [0, %lld): at %s", name, (long long)id,
                       (long long)bp_tokenizer_size_limit, file);
    list->names = bp_grow("text.load", list->names, &list->capacity, id + 1, sizeof *list->names);
    while (list->size <= id)
        list->names[list->size++] = NULL;
    if (list->names[id] && strcmp(list->names[id], name) != 0)
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.id_twice",
                       "tokens \"%s\" and \"%s\" both have id %lld: at %s", list->names[id], name,
                       (long long)id, file);
    list->names[id] = name;
    return BP_OK;
}

/* Added tokens may be outside the model's vocabulary. */
static int64_t count_tokens(const json_t *vocab, const json_t *added)
{
    int64_t count = (int64_t)json_object_size(vocab);

    for (size_t k = 0; k < json_array_size(added); k++)
        count +=
            json_object_get(vocab, bp_load_string(json_array_get(added, k), "content")) == NULL;
    return count;
}

/* Hugging Face's library numbers added tokens outside the vocabulary itself, whatever their ids
 * say. Source: huggingface/tokenizers, tokenizer/added_vocabulary.rs (add_tokens). */
static bp_err check_added_id(int64_t *highest, int64_t size, const char *name, const json_t *value,
                             bool is_in_vocab, const char *file)
{
    int64_t id = json_integer_value(value), expected = *highest >= size ? *highest + 1 : size;

    if (!is_in_vocab && json_is_integer(value) && id >= 0 && id != expected)
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.bad_id",
                       "the added token \"%s\" has id %lld, but in its place Hugging Face's "
                       "library gives it id %lld: at %s",
                       name, (long long)id, (long long)expected, file);
    if (id > *highest)
        *highest = id;
    return BP_OK;
}

static bp_err take_ids(id_list *list, json_t *vocab, const json_t *added, const char *file)
{
    const char *name;
    size_t k;
    json_t *value;
    int64_t highest = -1; /* id of an added token */
    bp_err err = BP_OK;

    json_object_foreach(vocab, name, value)
    {
        err = take_id(list, name, value, file);
        if (err != BP_OK)
            return err;
    }
    json_array_foreach(added, k, value)
    {
        name = bp_load_string(value, "content");
        const json_t *id = json_object_get(value, "id");
        const json_t *in_vocab = json_object_get(vocab, name);

        if (in_vocab && !json_equal(in_vocab, id))
            return BP_FAIL(BP_ERR_FORMAT, "vocabulary.contradiction",
                           "token \"%s\" has one id in added_tokens and another in the vocabulary: "
                           "at %s",
                           name, file);
        err = check_added_id(&highest, (int64_t)json_object_size(vocab), name, id, in_vocab != NULL,
                             file);
        if (err == BP_OK)
            err = take_id(list, name, id, file);
        if (err != BP_OK)
            return err;
    }
    return BP_OK;
}

/* An id that no token has: models of other programs have rows for such. */
static bp_err add_hole(bp_tokenizer *tokenizer, int64_t id)
{
    char name[40];
    bp_err err;

    snprintf(name, sizeof name, "<no token %lld>", (long long)id);
    err = bp_tokenizer_add(tokenizer, name, strlen(name));
    if (err == BP_OK)
        tokenizer->names.entries[id].value = BP_HOLE;
    if (tokenizer->holes++ == 0)
        tokenizer->first_hole = id;
    return err;
}

bp_err bp_read_vocab(bp_tokenizer *tokenizer, json_t *vocab, const json_t *added, const char *name)
{
    id_list list = {0};
    int64_t count = count_tokens(vocab, added);
    bp_err err = BP_OK;

    if (!json_is_object(vocab) || json_object_size(vocab) == 0)
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.missing", "the vocabulary is %s: at %s",
                       json_is_object(vocab) ? "empty" : "missing", name);
    if (count > bp_tokenizer_size_limit)
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.too_large",
                       "the vocabulary has %lld tokens, and %lld are possible: at %s",
                       (long long)count, (long long)bp_tokenizer_size_limit, name);
    err = take_ids(&list, vocab, added, name);
    for (int64_t id = 0; id < list.size && err == BP_OK; id++)
        err = !list.names[id] ? add_hole(tokenizer, id)
                              : bp_tokenizer_add(tokenizer, list.names[id], strlen(list.names[id]));
    bp_free(list.names);
    return err;
}

/* ---- merges ---- */

bp_err bp_read_merge(const bp_tokenizer *tokenizer, bp_merge *out, const char *text, size_t bytes,
                     size_t split)
{
    size_t right_bytes = bytes - split - 1, inside = tokenizer->merge_prefix_bytes;
    const char *right = text + split + 1;
    int64_t ids[3] = {bp_tokenizer_id(tokenizer, text, split),
                      bp_tokenizer_id(tokenizer, right, right_bytes), -1};
    bp_buffer both = {0};

    if (split == 0 || right_bytes == 0)
        return BP_FAIL(BP_ERR_FORMAT, "merges.bad_pair", "the merge \"%.*s\" has an empty part",
                       (int)bytes, text);
    bp_buffer_add(&both, text, split);
    if (right_bytes > inside) /* a prefix of pieces within a word is left out */
        bp_buffer_add(&both, right + inside, right_bytes - inside);
    ids[2] = bp_tokenizer_id(tokenizer, both.data, both.bytes);
    bp_buffer_clear(&both);
    for (int k = 0; k < 3; k++)
        if (ids[k] < 0)
            return BP_FAIL(
                BP_ERR_FORMAT, "merges.unknown_part",
                "the merge of \"%.*s\" and \"%.*s\" has %s that is not in the vocabulary",
                (int)split, text, (int)right_bytes, right,
                k == 0   ? "a left part"
                : k == 1 ? "a right part"
                         : "a result");
    *out = (bp_merge){(uint32_t)ids[0], (uint32_t)ids[1], (uint32_t)ids[2]};
    return BP_OK;
}

/* "a b", or ["a", "b"]. */
static bp_err read_json_merge(const bp_tokenizer *tokenizer, bp_merge *out, const json_t *merge)
{
    const char *text = json_string_value(merge);
    bp_buffer joined = {0};
    bp_err err;

    if (text) {
        const char *space = strchr(text, ' ');

        if (!space || strchr(space + 1, ' '))
            return BP_FAIL(BP_ERR_FORMAT, "merges.bad_pair",
                           "the merge \"%s\" is not two tokens with a space between", text);
        return bp_read_merge(tokenizer, out, text, json_string_length(merge),
                             (size_t)(space - text));
    }
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right))
        return BP_FAIL(BP_ERR_FORMAT, "merges.bad_pair",
                       "a merge is neither a string nor two of them");
    bp_buffer_add(&joined, json_string_value(left), json_string_length(left));
    bp_buffer_add(&joined, " ", 1);
    bp_buffer_add(&joined, json_string_value(right), json_string_length(right));
    err = bp_read_merge(tokenizer, out, joined.data, joined.bytes, json_string_length(left));
    bp_buffer_clear(&joined);
    return err;
}

bp_err bp_read_merges(bp_tokenizer *tokenizer, const json_t *merges, bp_merge **out,
                      const char *name)
{
    int64_t count = (int64_t)json_array_size(merges);
    bp_merge *list;
    bp_err err = BP_OK;

    *out = NULL;
    if (!json_is_array(merges))
        return BP_FAIL(BP_ERR_FORMAT, "merges.bad_pair", "\"merges\" is not a list: at %s", name);
    list = bp_alloc("text.merges", count, sizeof *list);
    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        err = read_json_merge(tokenizer, &list[k], json_array_get(merges, (size_t)k));
        if (err != BP_OK)
            err = bp_err_wrap(err, "%s: at %s, merge %lld", bp_err_text(), name, (long long)k);
    }
    if (err != BP_OK) {
        bp_free(list);
        list = NULL;
    }
    *out = list;
    return err;
}

/* ---- settings ---- */

bp_err bp_check_bpe_settings(const json_t *model, const char *name)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix",
                                          "unk_token"};
    const json_t *dropout = json_object_get(model, "dropout");
    const char *value;
    bp_err err = BP_OK;

    if (strcmp(bp_load_string(model, "type"), "BPE") != 0)
        return BP_OK;
    if (!bp_load_absent(dropout) && json_number_value(dropout) != 0)
        return bp_load_refuse("dropout", "", name);
    for (size_t k = 0; k < sizeof affixes / sizeof *affixes && err == BP_OK; k++)
        err = bp_load_optional(&value, model, affixes[k], name);
    return err;
}

bp_err bp_check_added(const json_t *added, const char *name)
{
    size_t k;
    const json_t *token;

    if (added && !json_is_array(added))
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.bad_added_token",
                       "\"added_tokens\" is not a list: at %s", name);
    json_array_foreach(added, k, token)
    {
        if (bp_load_string(token, "content")[0] == 0)
            return BP_FAIL(BP_ERR_FORMAT, "tokenizer.bad_added_token",
                           "an added token has no content: at %s", name);
    }
    return BP_OK;
}
