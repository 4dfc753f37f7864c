/* Reading the keys "tokenizer.ggml...". */
#include "io/gguf/gguf_tokenizer.h"

#include "base/buffer.h"
#include "base/mem.h"
#include "io/gguf/gguf_config_priv.h"
#include "io/gguf/gguf_pattern_priv.h"
#include "text/sentencepiece/sentencepiece.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#define KEY  "tokenizer.ggml."
#define MARK "\xE2\x96\x81"

static json_t *key_of(const bp_gguf *file, const char *name)
{
    char key[64];

    (void)snprintf(key, sizeof key, KEY "%s", name);
    return json_object_get(bp_gguf_keys(file), key);
}

static const char *token_at(const bp_gguf *file, size_t id)
{
    return json_string_value(json_array_get(key_of(file, "tokens"), id));
}

/* Without the list all are ordinary. */
static int type_of(const bp_gguf *file, size_t id)
{
    const json_t *types = key_of(file, "token_type");

    return types ? (int)json_integer_value(json_array_get(types, id)) : BP_PIECE_NORMAL;
}

/* Tokens without the unused ones at the end, which pad the table of tokens. */
static size_t count_of(const bp_gguf *file)
{
    size_t count = json_array_size(key_of(file, "tokens"));

    while (count > 0 && type_of(file, count - 1) == BP_PIECE_UNUSED &&
           gguf_is_padding(token_at(file, count - 1), count - 1))
        count--;
    return count;
}

/* The lists have one element per token, of one type. */
static bp_err check_lists(const bp_gguf *file)
{
    const json_t *tokens = key_of(file, "tokens"), *types = key_of(file, "token_type"),
                 *scores = key_of(file, "scores"), *one;
    size_t count = json_array_size(tokens), k;

    if (count == 0 || (types && json_array_size(types) != count) ||
        (scores && json_array_size(scores) != count))
        return BP_FAIL(BP_ERR_FORMAT, "gguf.bad_tokenizer",
                       KEY
                       "tokens has %zu elements, and token_type or scores another number: at %s",
                       count, bp_gguf_path(file));
    json_array_foreach(tokens, k, one)
    {
        json_int_t type = types ? json_integer_value(json_array_get(types, k)) : BP_PIECE_NORMAL;

        if (json_string_length(one) == 0 || type < BP_PIECE_NORMAL || type > BP_PIECE_BYTE ||
            (scores && !json_is_number(json_array_get(scores, k))))
            return BP_FAIL(
                BP_ERR_FORMAT, "gguf.bad_tokenizer",
                "token %zu has no text, an unknown type or a score that is not a number: "
                "at %s",
                k, bp_gguf_path(file));
    }
    return BP_OK;
}

static bp_err parse(bp_tokenizer **out, json_t *root, const char *path)
{
    char *text = root ? bp_json_text(root) : NULL;
    bp_err err = text ? bp_tokenizer_parse(out, text, strlen(text), path)
                      : bp_fail_memory("a tokenizer", 1, 1);

    bp_free(text);
    json_decref(root);
    return err;
}

/* ---- BPE of bytes ---- */

static json_t *added_json(const bp_gguf *file)
{
    json_t *added = json_array();
    size_t count = count_of(file);

    for (size_t id = 0; id < count; id++) {
        int type = type_of(file, id);

        if (type == BP_PIECE_CONTROL || type == BP_PIECE_UNKNOWN || type == BP_PIECE_USER_DEFINED)
            (void)json_array_append_new(added, json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}",
                                                         "id", (json_int_t)id, "content",
                                                         token_at(file, id), "single_word", 0,
                                                         "lstrip", 0, "rstrip", 0, "normalized", 0,
                                                         "special", type != BP_PIECE_USER_DEFINED));
    }
    return added;
}

static bp_err vocab_json(json_t **out, const bp_gguf *file)
{
    size_t count = count_of(file);

    *out = json_object();
    for (size_t id = 0; id < count; id++) {
        if (json_object_get(*out, token_at(file, id)))
            return BP_FAIL(BP_ERR_FORMAT, "vocabulary.token_twice",
                           "the tokens %lld and %zu are both '%.80s': at %s",
                           (long long)json_integer_value(json_object_get(*out, token_at(file, id))),
                           id, token_at(file, id), bp_gguf_path(file));
        (void)json_object_set_new(*out, token_at(file, id), json_integer((json_int_t)id));
    }
    return BP_OK;
}

static bp_err read_bytes(bp_tokenizer **out, const bp_gguf *file)
{
    const char *name = json_string_value(key_of(file, "pre"));
    const gguf_pattern *pattern = gguf_pattern_called(name ? name : "");
    json_t *merges = key_of(file, "merges"), *vocab = NULL;
    bp_err err;

    if (!pattern)
        return BP_FAIL(BP_ERR_FORMAT, "gguf.unknown_pattern",
                       "text is split as '%.40s' says (" KEY
                       "pre), which is not known: at %s; give "
                       "the model's tokenizer.json with --tokenizer",
                       name ? name : "", bp_gguf_path(file));
    if (!json_is_array(merges))
        return BP_FAIL(BP_ERR_FORMAT, "gguf.bad_tokenizer", KEY "merges is missing: at %s",
                       bp_gguf_path(file));
    err = vocab_json(&vocab, file);
    if (err == BP_OK)
        err = parse(out,
                    json_pack("{s:s, s:n, s:n, s:o, s:o, s:o, s:n, s:{s:s, s:b, s:b, s:b},"
                              " s:{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:O, s:O}}",
                              "version", "1.0", "truncation", "padding", "added_tokens",
                              added_json(file), "normalizer", gguf_pattern_normalizer(pattern),
                              "pre_tokenizer", gguf_pattern_steps(pattern), "post_processor",
                              "decoder", "type", "ByteLevel", "add_prefix_space", 1, "trim_offsets",
                              1, "use_regex", 1, "model", "type", "BPE", "dropout", "unk_token",
                              "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
                              "byte_fallback", 0, "ignore_merges", pattern->whole_first, "vocab",
                              vocab, "merges", merges),
                    bp_gguf_path(file));
    json_decref(vocab);
    return err;
}

/* ---- SentencePiece ---- */

/* A list of bytes as base64; NULL if there is none. */
static char *charsmap_of(const bp_gguf *file)
{
    const json_t *list = key_of(file, "precompiled_charsmap"), *one;
    int64_t count = (int64_t)json_array_size(list);
    uint8_t *bytes = bp_alloc("text.charsmap", count + 1, 1);
    char *out = count > 0 ? bp_alloc("text.charsmap", 4 * (count / 3 + 2), 1) : NULL;
    size_t k;

    json_array_foreach(list, k, one) bytes[k] = (uint8_t)json_integer_value(one);
    if (out)
        (void)EVP_EncodeBlock((uint8_t *)out, bytes, (int)count);
    bp_free(bytes);
    return out;
}

static void take_pieces(bp_sentencepiece *out, const bp_gguf *file)
{
    out->count = out->capacity = (int64_t)count_of(file);
    out->pieces = bp_alloc("text.pieces", out->count, sizeof *out->pieces);
    for (size_t id = 0; id < (size_t)out->count; id++)
        out->pieces[id] = (bp_sentencepiece_piece){
            .text = bp_strdup(token_at(file, id)),
            .score = (float)json_number_value(json_array_get(key_of(file, "scores"), id)),
            .type = (bp_piece_type)type_of(file, id)};
}

static bp_err read_pieces(bp_tokenizer **out, const bp_gguf *file, bool is_bpe)
{
    const json_t *prefix = key_of(file, "add_space_prefix"),
                 *spaces = key_of(file, "remove_extra_whitespaces");
    bp_sentencepiece model = {.is_bpe = is_bpe,
                              .dummy_prefix = !json_is_false(prefix),
                              .remove_spaces = spaces ? json_is_true(spaces) : !is_bpe};
    char *text = NULL;
    bp_err err;

    if (!key_of(file, "scores"))
        return BP_FAIL(BP_ERR_FORMAT, "gguf.bad_tokenizer", KEY "scores is missing: at %s",
                       bp_gguf_path(file));
    take_pieces(&model, file);
    model.charsmap = charsmap_of(file);
    err = bp_sentencepiece_json(&text, &model, &(bp_sentencepiece_class){0}, bp_gguf_path(file));
    if (err == BP_OK)
        err = bp_tokenizer_parse(out, text, strlen(text), bp_gguf_path(file));
    bp_free(text);
    bp_sentencepiece_clear(&model);
    return err;
}

/* ---- WordPiece ---- */

/* Words begin with U+2581 there, and continuations have no ##; special tokens are unchanged. */
static bp_err read_words(bp_tokenizer **out, const bp_gguf *file)
{
    size_t count = count_of(file), mark = strlen(MARK);
    bool capitals = false;
    bp_buffer lines = {0};
    bp_err err = BP_OK;

    for (size_t id = 0; id < count && err == BP_OK; id++) {
        const char *token = token_at(file, id);
        size_t bytes = strlen(token);

        if (strchr(token, '\n'))
            err = BP_FAIL(BP_ERR_FORMAT, "gguf.bad_tokenizer", "token %zu has a line's end: at %s",
                          id, bp_gguf_path(file));
        else if (token[0] == '[' && token[bytes - 1] == ']' && bytes > 2)
            bp_buffer_printf(&lines, "%s\n", token);
        else if (strncmp(token, MARK, mark) == 0 && bytes > mark)
            bp_buffer_printf(&lines, "%s\n", token + mark);
        else
            bp_buffer_printf(&lines, "##%s\n", token);
        capitals = capitals || (token[0] != '[' && strpbrk(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"));
    }
    if (err == BP_OK)
        err = bp_tokenizer_parse_bert(out, lines.data, lines.bytes, !capitals, bp_gguf_path(file));
    bp_buffer_clear(&lines);
    return err;
}

/* ---- the whole ---- */

/* llama.cpp's defaults: texts begin with the beginning-of-text token in SentencePiece models, with
 * ids 1 and 2 for begin and end, and if text is split like LLaMA 3's. */
static void take_defaults(json_t *keys, const bp_gguf *file)
{
    const char *model = json_string_value(key_of(file, "model")),
               *pre = json_string_value(key_of(file, "pre"));
    bool pieces = model && strcmp(model, "llama") == 0;
    const gguf_pattern *pattern =
        model && strcmp(model, "gpt2") == 0 && pre ? gguf_pattern_called(pre) : NULL;

    json_t *defaults =
        json_pack("{s:b}", "add_bos_token", pieces || (pattern && pattern->whole_first));

    if (pieces)
        (void)json_object_update_new(defaults,
                                     json_pack("{s:i, s:i}", "bos_token_id", 1, "eos_token_id", 2));
    (void)json_object_update_missing(keys, defaults);
    json_decref(defaults);
}

/* The keys of roles. New reference. */
static json_t *role_keys(const bp_gguf *file)
{
    static const char *const KEYS[] = {"bos_token_id", "eos_token_id",       "padding_token_id",
                                       "cls_token_id", "seperator_token_id", "mask_token_id",
                                       "add_bos_token"};
    json_t *keys = json_object();

    for (size_t k = 0; k < sizeof KEYS / sizeof *KEYS; k++)
        if (key_of(file, KEYS[k]))
            (void)json_object_set(keys, KEYS[k], key_of(file, KEYS[k]));
    take_defaults(keys, file);
    return keys;
}

json_t *bp_gguf_token_names(const bp_gguf *file)
{
    static const char *const ROLES[][2] = {
        {"bos_token", "bos_token_id"},       {"eos_token", "eos_token_id"},
        {"pad_token", "padding_token_id"},   {"cls_token", "cls_token_id"},
        {"sep_token", "seperator_token_id"}, {"mask_token", "mask_token_id"}};
    json_t *config = json_object(), *keys = role_keys(file),
           *adds = json_object_get(keys, "add_bos_token");

    for (size_t k = 0; k < sizeof ROLES / sizeof ROLES[0]; k++) {
        const json_t *id = json_object_get(keys, ROLES[k][1]);
        const char *token = json_is_integer(id) && json_integer_value(id) >= 0
                                ? token_at(file, (size_t)json_integer_value(id))
                                : NULL;

        if (token)
            (void)json_object_set_new(config, ROLES[k][0], json_string(token));
    }
    if (json_is_boolean(adds))
        (void)json_object_set(config, "add_bos_token", adds);
    json_decref(keys);
    return config;
}

bp_err bp_gguf_tokenizer(bp_tokenizer **out, const bp_gguf *file)
{
    const char *model = json_string_value(key_of(file, "model"));
    bp_err err;

    *out = NULL;
    if (!model || strcmp(model, "none") == 0 || strcmp(model, "no_vocab") == 0)
        return BP_OK;
    err = check_lists(file);
    if (err != BP_OK)
        return err;
    if (strcmp(model, "gpt2") == 0)
        err = read_bytes(out, file);
    else if (strcmp(model, "llama") == 0 || strcmp(model, "t5") == 0)
        err = read_pieces(out, file, strcmp(model, "llama") == 0);
    else if (strcmp(model, "bert") == 0)
        err = read_words(out, file);
    else
        err =
            BP_FAIL(BP_ERR_FORMAT, "gguf.unknown_tokenizer",
                    "the tokenizer is of kind '%.40s', which is not read: at %s; give the model's "
                    "tokenizer.json with --tokenizer",
                    model, bp_gguf_path(file));
    if (err == BP_OK) {
        json_t *names = bp_gguf_token_names(file);

        bp_tokenizer_take_config(*out, names);
        json_decref(names);
    }
    return err;
}
