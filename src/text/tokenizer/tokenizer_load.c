/* tokenizer.json, read: exactly, or refused by name. */
#include "base/buffer.h"
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "text/pipeline/load.h"
#include "text/tokenizer/pipeline_load_priv.h"
#include "text/tokenizer/template.h"
#include "text/tokenizer/tokenizer_parts.h"
#include "text/tokenizer/vocab_load_priv.h"

#include <string.h>

#define FILE_LIMIT_BYTES ((int64_t)1 << 28)
#define REMEDY           "make the tokenizer anew"

/* ---- unsupported features ---- */

static bp_err check_root(const json_t *root, const char *name)
{
    const json_t *version = json_object_get(root, "version");

    if (!json_is_object(root) || !json_is_object(json_object_get(root, "model")))
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.not_a_tokenizer",
                       "not a tokenizer.json (an object with a \"model\"): at %s", name);
    if (version && strcmp(bp_load_string(root, "version"), "1.0") != 0)
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.unknown_version",
                       "the version is \"%s\", not \"1.0\": at %s", bp_load_string(root, "version"),
                       name);
    return BP_OK;
}

static bp_err read_byte_level(bp_tokenizer *tokenizer, const json_t *pre, const char *name)
{
    const json_t *use_regex = json_object_get(pre, "use_regex");

    if (use_regex && !json_is_boolean(use_regex))
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.bad_component",
                       "\"use_regex\" is not true or false: at %s", name);
    tokenizer->use_regex = !use_regex || json_is_true(use_regex);
    return bp_json_get_bool(pre, "add_prefix_space", &tokenizer->add_prefix_space, name);
}

/* ---- special tokens ---- */

/* Only the name of an added token is kept: text is never searched for special tokens, so how they
 * would match does not matter. In order of id. */
static bp_err mark_added(bp_tokenizer *tokenizer, const json_t *added)
{
    size_t k;
    const json_t *token;
    bp_err err = BP_OK;

    json_array_foreach(added, k, token)
        tokenizer->names.entries[json_integer_value(json_object_get(token, "id"))]
            .value = 1;
    for (int64_t id = 0; id < tokenizer->names.count && err == BP_OK; id++)
        if (tokenizer->names.entries[id].value == 1)
            err = bp_tokenizer_add_special(tokenizer, id);
    return err;
}

/* ---- the whole ---- */

/* Forms that are written in one spelling, and encoded without a list of steps. */
static bool is_plain_words(const json_t *root, bp_kind *kind)
{
    const json_t *pre = json_object_get(root, "pre_tokenizer");
    const char *type = bp_load_string(pre, "type");

    *kind = strcmp(type, "WhitespaceSplit") == 0 ? BP_KIND_WORD : BP_KIND_CHAR;
    if (strcmp(bp_load_string(json_object_get(root, "model"), "unk_token"), BP_UNK_TOKEN) != 0)
        return false;
    return *kind == BP_KIND_WORD ||
           (strcmp(type, "Split") == 0 &&
            strcmp(bp_load_string(json_object_get(pre, "pattern"), "Regex"), BP_CHAR_PATTERN) ==
                0 &&
            strcmp(bp_load_string(pre, "behavior"), "Isolated") == 0 &&
            !json_is_true(json_object_get(pre, "invert")));
}

static bool is_plain_bpe(const json_t *root)
{
    const json_t *model = json_object_get(root, "model");

    return strcmp(bp_load_string(json_object_get(root, "pre_tokenizer"), "type"), "ByteLevel") ==
               0 &&
           bp_load_string(model, "continuing_subword_prefix")[0] == '\0' &&
           bp_load_string(model, "end_of_word_suffix")[0] == '\0' &&
           !json_is_true(json_object_get(model, "byte_fallback"));
}

static bool is_plain(const json_t *root, bp_kind *kind)
{
    const json_t *post = json_object_get(root, "post_processor"), *token;
    const char *type = bp_load_string(json_object_get(root, "model"), "type");
    size_t k;

    json_array_foreach(json_object_get(root, "added_tokens"), k,
                       token) if (!json_is_true(json_object_get(token, "special"))) return false;
    if (!bp_load_absent(json_object_get(root, "normalizer")) ||
        (!bp_load_absent(post) && strcmp(bp_load_string(post, "type"), "ByteLevel") != 0))
        return false;
    *kind = BP_KIND_BPE;
    return strcmp(type, "BPE") == 0         ? is_plain_bpe(root)
           : strcmp(type, "WordLevel") == 0 ? is_plain_words(root, kind)
                                            : false;
}

static bp_err read_root(bp_tokenizer *tokenizer, const json_t *root, const char *name)
{
    const json_t *added = json_object_get(root, "added_tokens");
    json_t *model = json_object_get(root, "model");
    const json_t *merges = json_object_get(model, "merges");
    bp_merge *list = NULL;
    bp_err err = bp_check_added(added, name);

    if (err == BP_OK)
        err = bp_read_vocab(tokenizer, json_object_get(model, "vocab"), added, name);
    if (err == BP_OK)
        err = mark_added(tokenizer, added);
    if (err == BP_OK && tokenizer->kind == BP_KIND_BPE) {
        tokenizer->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
        err = read_byte_level(tokenizer, json_object_get(root, "pre_tokenizer"), name);
        if (err == BP_OK)
            err = bp_read_merges(tokenizer, merges, &list, name);
    }
    if (err != BP_OK)
        return err;
    return bp_tokenizer_finish(tokenizer, list, (int64_t)json_array_size(merges), name);
}

bp_err bp_tokenizer_parse(bp_tokenizer **out, const char *text, size_t bytes, const char *name)
{
    json_t *root = NULL;
    char *restored = NULL;
    bp_kind kind;
    bp_err err = bp_json_parse(&root, text, bytes, name);

    *out = NULL;
    if (err == BP_OK)
        err = check_root(root, name);
    if (err == BP_OK && bp_template_restore(root)) {
        restored = bp_json_text(root);
        err = restored ? BP_OK : bp_fail_memory("a tokenizer", 1, 1);
        text = restored;
        bytes = restored ? strlen(restored) : 0;
    }
    if (err == BP_OK && is_plain(root, &kind)) {
        err = bp_check_bpe_settings(json_object_get(root, "model"), name);
        if (err == BP_OK)
            err = bp_tokenizer_new(out, kind);
        if (err == BP_OK)
            err = read_root(*out, root, name);
    } else if (err == BP_OK) {
        err = bp_pipeline_parse(out, root, text, bytes, name);
    }
    if (err != BP_OK) {
        bp_tokenizer_free(out);
    } else {
        (*out)->framed = restored != NULL;
        (*out)->truncates = !bp_load_absent(json_object_get(root, "truncation"));
        (*out)->pads = !bp_load_absent(json_object_get(root, "padding"));
    }
    bp_free(restored);
    json_decref(root);
    return bp_err_advise(err, REMEDY);
}

/* That of the file. */
static void take_own_folder(bp_tokenizer *tokenizer, const char *path)
{
    char *folder = bp_path_folder(path);

    bp_tokenizer_take_folder(tokenizer, folder);
    bp_free(folder);
}

void bp_tokenizer_warn(const bp_tokenizer *tokenizer, const char *path)
{
    if (tokenizer->truncates || tokenizer->pads)
        BP_WARN("tokenizer.ignored", "%s of the tokenizer %s ignored, texts are kept whole: at %s",
                tokenizer->truncates && tokenizer->pads ? "\"truncation\" and \"padding\""
                : tokenizer->truncates                  ? "\"truncation\""
                                                        : "\"padding\"",
                tokenizer->truncates && tokenizer->pads ? "are" : "is", path);
    if (tokenizer->holes > 0)
        BP_WARN("vocabulary.holes", "%lld of %lld ids have no token, the first is %lld: at %s",
                (long long)tokenizer->holes, (long long)tokenizer->names.count,
                (long long)tokenizer->first_hole, path);
}

bp_err bp_tokenizer_load(bp_tokenizer **out, const char *path)
{
    char *text;
    size_t bytes;
    bp_err err = bp_file_read(path, FILE_LIMIT_BYTES, &text, &bytes);

    *out = NULL;
    if (err == BP_OK) {
        size_t mark = bp_mark_bytes(text, bytes);

        err = bp_tokenizer_parse(out, text + mark, bytes - mark, path);
        if (err == BP_OK)
            bp_tokenizer_warn(*out, path);
    }
    if (err == BP_OK)
        take_own_folder(*out, path);
    bp_free(text);
    return err;
}

/* ---- GPT-2's pair of files ---- */

static bp_err read_merge_line(bp_tokenizer *tokenizer, const char *line, size_t bytes,
                              bp_merge *out)
{
    const char *space = memchr(line, ' ', bytes);

    if (!space || memchr(space + 1, ' ', bytes - (size_t)(space + 1 - line)))
        return BP_FAIL(BP_ERR_FORMAT, "merges.bad_pair",
                       "the merge \"%.*s\" is not two tokens with a space between", (int)bytes,
                       line);
    return bp_read_merge(tokenizer, out, line, bytes, (size_t)(space - line));
}

static bp_err read_merge_lines(bp_tokenizer *tokenizer, const char *text, size_t bytes,
                               const char *path, bp_merge **out, int64_t *count)
{
    int64_t capacity = 1, line = 0;
    bp_err err = BP_OK;

    for (size_t k = 0; k < bytes; k++)
        capacity += text[k] == '\n';
    *count = 0;
    *out = bp_alloc("text.merges", capacity, sizeof **out);
    for (const char *at = text + bp_mark_bytes(text, bytes), *end = text + bytes;
         at < end && err == BP_OK;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((!newline ? end : newline) - at);
        size_t step = length + 1;

        line++;
        if (length > 0 && at[length - 1] == '\r')
            length--;
        if (length > 0 && !(line == 1 && length >= 8 && memcmp(at, "#version", 8) == 0))
            err = read_merge_line(tokenizer, at, length, &(*out)[(*count)++]);
        at += step;
    }
    return err == BP_OK
               ? err
               : bp_err_wrap(err, "%s: at %s, line %lld", bp_err_text(), path, (long long)line);
}

static bp_err read_pair(bp_tokenizer *tokenizer, json_t *vocab, const char *vocab_path,
                        const char *merges_path)
{
    char *text = NULL;
    size_t bytes = 0;
    int64_t count = 0, eod;
    bp_merge *list = NULL;
    bp_err err = bp_read_vocab(tokenizer, vocab, NULL, vocab_path);

    if (err != BP_OK)
        return err;
    eod = bp_tokenizer_id(tokenizer, BP_EOD_TOKEN, strlen(BP_EOD_TOKEN));
    if (eod < 0)
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.no_special",
                       "the vocabulary lacks " BP_EOD_TOKEN ": at %s", vocab_path);
    err = bp_tokenizer_add_special(tokenizer, eod);
    if (err == BP_OK)
        err = bp_file_read(merges_path, FILE_LIMIT_BYTES, &text, &bytes);
    if (err == BP_OK)
        err = read_merge_lines(tokenizer, text, bytes, merges_path, &list, &count);
    bp_free(text);
    if (err != BP_OK) {
        bp_free(list);
        return err;
    }
    return bp_tokenizer_finish(tokenizer, list, count, vocab_path);
}

bp_err bp_tokenizer_load_gpt2(bp_tokenizer **out, const char *vocab_path, const char *merges_path)
{
    json_t *vocab = NULL;
    bp_err err = bp_json_load(&vocab, vocab_path, FILE_LIMIT_BYTES);

    *out = NULL;
    if (err == BP_OK)
        err = bp_tokenizer_new(out, BP_KIND_BPE);
    if (err == BP_OK)
        err = read_pair(*out, vocab, vocab_path, merges_path);
    if (err == BP_OK) {
        take_own_folder(*out, vocab_path);
        bp_tokenizer_warn(*out, vocab_path);
    } else {
        bp_tokenizer_free(out);
    }
    json_decref(vocab);
    return bp_err_advise(err, REMEDY);
}
