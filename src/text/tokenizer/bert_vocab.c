/* A BERT vocabulary, vocab.txt, as tokenizer.json. */
#include "base/buffer.h"
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "text/tokenizer/bert_json.h"
#include "text/tokenizer/template.h"
#include "text/tokenizer/tokenizer_parts.h"

#include <string.h>

#define FILE_LIMIT_BYTES ((int64_t)1 << 28)

const char *const bp_bert_specials[BP_BERT_SPECIALS] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]",
                                                        "[MASK]"};

json_t *bp_bert_special_json(const char *name, int64_t id)
{
    return json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)id, "content", name,
                     "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
}

json_t *bp_bert_normalizer_json(bool lowercase)
{
    return json_pack("{s:s, s:b, s:b, s:n, s:b}", "type", "BertNormalizer", "clean_text", 1,
                     "handle_chinese_chars", 1, "strip_accents", "lowercase", (int)lowercase);
}

json_t *bp_bert_pretokenizer_json(void)
{
    return json_pack("{s:s}", "type", "BertPreTokenizer");
}

/* A token on two lines has the last one, as in transformers. */
static bp_err read_lines(json_t *vocab, const char *text, size_t bytes, const char *path)
{
    int64_t line = 0;

    for (const char *at = text, *end = text + bytes; at < end; line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((!newline ? end : newline) - at), step = length + 1;
        char *token;

        if (length > 0 && at[length - 1] == '\r')
            length--;
        if (length == 0 || memchr(at, 0, length))
            return BP_FAIL(BP_ERR_FORMAT, "vocabulary.empty_token",
                           "a token is empty: at %s, line %lld", path, (long long)line + 1);
        token = bp_sprintf("%.*s", (int)length, at);
        if (json_object_set_new(vocab, token, json_integer((json_int_t)line)) != 0) {
            bp_free(token);
            return BP_FAIL(BP_ERR_FORMAT, "vocabulary.not_utf8",
                           "a token is not valid UTF-8: at %s, line %lld", path,
                           (long long)line + 1);
        }
        bp_free(token);
        at += step;
    }
    return BP_OK;
}

static bp_err add_specials(json_t *added, const json_t *vocab, const char *path)
{
    for (int k = 0; k < BP_BERT_SPECIALS; k++) {
        const json_t *id = json_object_get(vocab, bp_bert_specials[k]);

        if (!id)
            return BP_FAIL(BP_ERR_FORMAT, "vocabulary.no_special",
                           "the vocabulary lacks \"%s\": at %s", bp_bert_specials[k], path);
        json_array_append_new(added,
                              bp_bert_special_json(bp_bert_specials[k], json_integer_value(id)));
    }
    return BP_OK;
}

static json_t *template_json(const json_t *vocab)
{
    return bp_template_json(
        &(bp_template){"[CLS]", json_integer_value(json_object_get(vocab, "[CLS]")), "[SEP]",
                       json_integer_value(json_object_get(vocab, "[SEP]")), 1});
}

json_t *bp_bert_json(json_t *vocab, json_t *added, bool lowercase)
{
    return json_pack("{s:s, s:n, s:n, s:O, s:o, s:o, s:o,"
                     " s:{s:s, s:s, s:b}, s:{s:s, s:s, s:s, s:i, s:O}}",
                     "version", "1.0", "truncation", "padding", "added_tokens", added, "normalizer",
                     bp_bert_normalizer_json(lowercase), "pre_tokenizer",
                     bp_bert_pretokenizer_json(), "post_processor", template_json(vocab), "decoder",
                     "type", "WordPiece", "prefix", BP_BERT_PREFIX, "cleanup", 1, "model", "type",
                     "WordPiece", "unk_token", "[UNK]", "continuing_subword_prefix", BP_BERT_PREFIX,
                     "max_input_chars_per_word", 100, "vocab", vocab);
}

bp_err bp_tokenizer_parse_bert(bp_tokenizer **out, const char *text, size_t bytes, bool lowercase,
                               const char *name)
{
    json_t *vocab = json_object(), *added = json_array(), *root = NULL;
    char *json = NULL;
    size_t mark = bp_mark_bytes(text, bytes);
    bp_err err = read_lines(vocab, text + mark, bytes - mark, name);

    *out = NULL;
    if (err == BP_OK)
        err = add_specials(added, vocab, name);
    if (err == BP_OK) {
        root = bp_bert_json(vocab, added, lowercase);
        json = !root ? NULL : bp_json_text(root);
        err = !json ? bp_fail_memory("a vocabulary", (int64_t)bytes, 1)
                    : bp_tokenizer_parse(out, json, strlen(json), name);
    }
    if (err == BP_OK)
        bp_tokenizer_warn(*out, name);
    bp_free(json);
    json_decref(root);
    json_decref(added);
    json_decref(vocab);
    return err;
}

bp_err bp_tokenizer_load_bert(bp_tokenizer **out, const char *vocab_path, bool lowercase)
{
    char *text = NULL;
    size_t bytes;
    bp_err err = bp_file_read(vocab_path, FILE_LIMIT_BYTES, &text, &bytes);

    *out = NULL;
    if (err == BP_OK)
        err = bp_tokenizer_parse_bert(out, text, bytes, lowercase, vocab_path);
    bp_free(text);
    return bp_err_advise(err, "give a whole vocab.txt");
}
