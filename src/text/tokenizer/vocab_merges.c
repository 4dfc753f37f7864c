/* Pairs of files, vocab.json and merges.txt, as tokenizer.json: those of RoBERTa and BART, and of
 * the first GPT. */
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "text/tokenizer/bert_json.h"
#include "text/tokenizer/tokenizer_parts.h"

#include <string.h>

#define FILE_LIMIT_BYTES ((int64_t)1 << 28)

/* In the order of their roles: <mask> takes the blank before it. */
static const char *const SPECIALS[] = {"<s>", "<pad>", "</s>", BP_UNK_TOKEN, "<mask>"};
enum { START = 0, END = 2, UNKNOWN = 3, MASK = 4, SPECIAL_COUNT };
#define WORD_END "</w>"

static bp_err add_merges(json_t *merges, const char *text, size_t bytes, const char *path)
{
    int64_t line = 0;

    for (const char *at = text, *end = text + bytes; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((newline ? newline : end) - at), step = length + 1;

        line++;
        if (length > 0 && at[length - 1] == '\r')
            length--;
        if (length > 0 && !(line == 1 && length >= 8 && memcmp(at, "#version", 8) == 0) &&
            json_array_append_new(merges, json_stringn(at, length)) != 0)
            return BP_FAIL(BP_ERR_FORMAT, "vocabulary.not_utf8",
                           "a merge is not valid UTF-8: at %s, line %lld", path, (long long)line);
        at += step;
    }
    return BP_OK;
}

static json_t *added_of(const json_t *vocab)
{
    json_t *added = json_array();

    for (int k = 0; k < SPECIAL_COUNT; k++) {
        const json_t *id = json_object_get(vocab, SPECIALS[k]);

        if (json_is_integer(id))
            (void)json_array_append_new(
                added, json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id",
                                 json_integer_value(id), "content", SPECIALS[k], "single_word", 0,
                                 "lstrip", k == MASK, "rstrip", 0, "normalized", 0, "special", 1));
    }
    return added;
}

/* Source: huggingface/transformers, convert_slow_tokenizer.py (RobertaConverter). */
static json_t *roberta_json(json_t *vocab, json_t *merges, bool prefix_space)
{
    json_t *start = json_object_get(vocab, SPECIALS[START]),
           *end = json_object_get(vocab, SPECIALS[END]);

    return json_pack(
        "{s:s, s:n, s:n, s:o, s:n, s:{s:s, s:b, s:b, s:b}, s:{s:s, s:[s,O], s:[s,O], s:b, s:b}, "
        "s:{s:s, s:b, s:b, s:b}, s:{s:s, s:n, s:n, s:s, s:s, s:b, s:O, s:O}}",
        "version", "1.0", "truncation", "padding", "added_tokens", added_of(vocab), "normalizer",
        "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", (int)prefix_space, "trim_offsets",
        1, "use_regex", 1, "post_processor", "type", "RobertaProcessing", "sep", SPECIALS[END], end,
        "cls", SPECIALS[START], start, "trim_offsets", 1, "add_prefix_space", (int)prefix_space,
        "decoder", "type", "ByteLevel", "add_prefix_space", 1, "trim_offsets", 1, "use_regex", 1,
        "model", "type", "BPE", "dropout", "unk_token", "continuing_subword_prefix", "",
        "end_of_word_suffix", "", "fuse_unk", 0, "vocab", vocab, "merges", merges);
}

/* Words of letters, digits or single punctuation marks, in lower case, end in a piece with </w>.
 * Source: the same (OpenAIGPTConverter); of texts without ftfy and spaCy its tokenizer reads so. */
static json_t *openai_gpt_json(json_t *vocab, json_t *merges, bool prefix_space)
{
    json_t *added = json_array(), *unknown = json_object_get(vocab, BP_UNK_TOKEN);

    (void)prefix_space;
    if (json_is_integer(unknown))
        (void)json_array_append_new(added, json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id",
                                                     json_integer_value(unknown), "content",
                                                     BP_UNK_TOKEN, "single_word", 0, "lstrip", 0,
                                                     "rstrip", 0, "normalized", 0, "special", 1));
    return json_pack("{s:s, s:n, s:n, s:o, s:o, s:o, s:n, s:{s:s, s:s}, "
                     "s:{s:s, s:n, s:s, s:n, s:s, s:b, s:O, s:O}}",
                     "version", "1.0", "truncation", "padding", "added_tokens", added, "normalizer",
                     bp_bert_normalizer_json(true), "pre_tokenizer", bp_bert_pretokenizer_json(),
                     "post_processor", "decoder", "type", "BPEDecoder", "suffix", WORD_END, "model",
                     "type", "BPE", "dropout", "unk_token", BP_UNK_TOKEN,
                     "continuing_subword_prefix", "end_of_word_suffix", WORD_END, "fuse_unk", 0,
                     "vocab", vocab, "merges", merges);
}

/* `needed`: of SPECIALS, which the vocabulary must have. */
static bp_err load_pair(bp_tokenizer **out, const char *vocab_path, const char *merges_path,
                        unsigned needed, json_t *(*make)(json_t *, json_t *, bool),
                        bool prefix_space)
{
    json_t *vocab = NULL, *merges = json_array(), *root = NULL;
    char *text = NULL, *json = NULL;
    size_t bytes = 0;
    bp_err err = bp_json_load(&vocab, vocab_path, FILE_LIMIT_BYTES);

    *out = NULL;
    for (int k = 0; k < SPECIAL_COUNT && err == BP_OK; k++)
        if ((needed >> k & 1) && !json_is_integer(json_object_get(vocab, SPECIALS[k])))
            err = BP_FAIL(BP_ERR_FORMAT, "vocabulary.no_special", "the vocabulary lacks %s: at %s",
                          SPECIALS[k], vocab_path);
    if (err == BP_OK)
        err = bp_file_read(merges_path, FILE_LIMIT_BYTES, &text, &bytes);
    if (err == BP_OK) {
        size_t mark = bp_mark_bytes(text, bytes);

        err = add_merges(merges, text + mark, bytes - mark, merges_path);
    }
    if (err == BP_OK) {
        root = make(vocab, merges, prefix_space);
        json = root ? bp_json_text(root) : NULL;
        err = json ? bp_tokenizer_parse(out, json, strlen(json), vocab_path)
                   : bp_fail_memory("a vocabulary", (int64_t)bytes, 1);
    }
    bp_free(json);
    bp_free(text);
    json_decref(root);
    json_decref(merges);
    json_decref(vocab);
    return err;
}

bp_err bp_tokenizer_load_roberta(bp_tokenizer **out, const char *vocab_path,
                                 const char *merges_path, bool prefix_space)
{
    return load_pair(out, vocab_path, merges_path, 1u << START | 1u << END, roberta_json,
                     prefix_space);
}

bp_err bp_tokenizer_load_openai_gpt(bp_tokenizer **out, const char *vocab_path,
                                    const char *merges_path)
{
    return load_pair(out, vocab_path, merges_path, 1u << UNKNOWN, openai_gpt_json, false);
}
