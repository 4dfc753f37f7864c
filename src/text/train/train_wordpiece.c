/* A WordPiece vocabulary: BERT's special tokens, all characters, and merges of pieces of words.
 *
 * Google's trainer of BERT was never published; Hugging Face's, followed here, is that of BPE on
 * characters, with ## before those that go on in a word. */
#include "base/mem.h"
#include "text/pipeline/pipeline.h"
#include "text/tokenizer/bert_json.h"
#include "text/train/tokenizer_train_priv.h"
#include "text/unicode/invalid_bytes.h"
#include "text/unicode/unicode.h"

#include <string.h>

/* ---- words ---- */

struct bp_word_cutter {
    bp_normalizer normalizer;
    bp_pretokenizer pre;
    bp_buffer scratch[2], hidden;
    bp_pre_work work;
};

bp_err bp_word_cutter_new(bp_word_cutter **out, bool lowercase)
{
    bp_word_cutter *cutter = bp_alloc("text.trainer", 1, sizeof *cutter);
    json_t *normalizer = bp_bert_normalizer_json(lowercase), *pre = bp_bert_pretokenizer_json();
    bp_err err = bp_normalizer_read(&cutter->normalizer, normalizer, "BERT");

    if (err == BP_OK)
        err = bp_pretokenizer_read(&cutter->pre, pre, "BERT");
    cutter->work.regex = bp_regex_work_new();
    json_decref(normalizer);
    json_decref(pre);
    if (err != BP_OK)
        bp_word_cutter_free(&cutter);
    *out = cutter;
    return err;
}

void bp_word_cutter_free(bp_word_cutter **cutter)
{
    bp_word_cutter *c = *cutter;

    if (!c)
        return;
    bp_normalizer_clear(&c->normalizer);
    bp_pretokenizer_clear(&c->pre);
    bp_buffer_clear(&c->scratch[0]);
    bp_buffer_clear(&c->scratch[1]);
    bp_buffer_clear(&c->hidden);
    bp_regex_work_free(&c->work.regex);
    bp_pre_work_clear(&c->work);
    bp_free(c);
    *cutter = NULL;
}

/* A word with an invalid byte is [UNK], as the encoder sees it: it is not counted. */
bp_err bp_word_cutter_count(bp_word_cutter *cutter, bp_strmap *words, const char *text,
                            size_t bytes)
{
    const bp_spans *spans;
    uint32_t *hidden = &cutter->work.hidden;
    bool first = true;
    bp_err err = BP_OK;

    *hidden = 0;
    if (!bp_is_valid(text, bytes)) {
        cutter->hidden.bytes = 0;
        err = bp_hidden_hide(hidden, &cutter->hidden, text, bytes, NULL);
        text = cutter->hidden.data;
        bytes = cutter->hidden.bytes;
    }
    if (err == BP_OK)
        err = bp_normalize(&cutter->normalizer, cutter->work.regex, cutter->scratch, &text, &bytes,
                           &first);
    if (err == BP_OK)
        err = bp_pretokenize(&cutter->pre, &cutter->work, first, &text, bytes, &spans);
    for (int64_t k = 0; err == BP_OK && k < spans->count; k++) {
        const char *word = text + spans->data[k].start;
        size_t length = spans->data[k].bytes;

        if (bp_hidden_before(*hidden, (const uint8_t *)word, length) == length)
            err = bp_strmap_add(words, word, length, 1, NULL);
    }
    return err;
}

/* ---- characters ---- */

enum { SEEN = 1, SEEN_INNER = 2 };

/* seen[BP_CODE_POINTS]; the number of tokens that they are. */
static int64_t find_characters(uint8_t *seen, const bp_strmap *words)
{
    int64_t count = 0;

    for (int64_t k = 0; k < words->count; k++) {
        const uint8_t *word = (const uint8_t *)bp_strmap_key(words, k);
        size_t bytes = words->entries[k].bytes;

        for (size_t at = 0; at < bytes;) {
            uint32_t code = 0;
            size_t length = bp_utf8_decode(word + at, bytes - at, &code);

            seen[code] |= at > 0 ? SEEN | SEEN_INNER : SEEN;
            at += length;
        }
    }
    for (uint32_t code = 0; code < BP_CODE_POINTS; code++)
        count += (seen[code] & SEEN) / SEEN + (seen[code] & SEEN_INNER) / SEEN_INNER;
    return count;
}

/* In order of code points: all characters, then those within words. */
static bp_err add_characters(bp_tokenizer *tokenizer, const uint8_t *seen)
{
    bp_err err = BP_OK;

    for (int inner = 0; inner < 2; inner++)
        for (uint32_t code = 0; code < BP_CODE_POINTS && err == BP_OK; code++) {
            char name[8] = BP_BERT_PREFIX;
            size_t prefix = inner ? strlen(BP_BERT_PREFIX) : 0;

            if ((seen[code] & (inner ? SEEN_INNER : SEEN)) != 0)
                err = bp_tokenizer_add(tokenizer, name,
                                       prefix + bp_utf8_encode((uint8_t *)name + prefix, code));
        }
    return err;
}

static bp_err check_capacity(const bp_trainer_options *options, int64_t characters)
{
    int64_t specials = BP_BERT_SPECIALS + options->special_count;

    if (characters == 0)
        return BP_FAIL(BP_ERR_FORMAT, "text.no_words",
                       "there are no words to train on: in the files given");
    if (options->size >= characters + specials)
        return BP_OK;
    return BP_FAIL(BP_ERR_USAGE, "tokenizer.bad_size",
                   "a wordpiece vocabulary of %lld tokens is too small for the %lld characters of "
                   "the text, at the start of words and within them, and %lld special tokens: at "
                   "--size; give %lld at least",
                   (long long)options->size, (long long)characters, (long long)specials,
                   (long long)(characters + specials));
}

/* ---- the whole ---- */

/* Only BERT's tokens, then characters and merges; `names` is not a tokenizer that encodes. */
static bp_err learn(bp_tokenizer *names, const bp_strmap *words, const bp_trainer_options *options,
                    int64_t *merge_count)
{
    uint8_t *seen = bp_alloc("text.letters", BP_CODE_POINTS, sizeof *seen);
    bp_merge *merges = NULL;
    bp_err err = check_capacity(options, find_characters(seen, words));

    for (int k = 0; k < BP_BERT_SPECIALS && err == BP_OK; k++)
        err = bp_tokenizer_add(names, bp_bert_specials[k], strlen(bp_bert_specials[k]));
    if (err == BP_OK)
        err = add_characters(names, seen);
    if (err == BP_OK)
        err =
            bp_learn_merges(&merges, merge_count,
                            &(bp_learning){.tokenizer = names,
                                           .words = words,
                                           .pieces = true,
                                           .size = options->size,
                                           .reserved = options->special_count,
                                           .min_count = options->min_count > 0 ? options->min_count
                                                                               : BP_BPE_MIN_COUNT,
                                           .progress = options->progress});
    if (err == BP_OK)
        err = bp_add_specials(names, options);
    bp_free(merges);
    bp_free(seen);
    return err;
}

static bp_err write_out(bp_tokenizer **out, const bp_tokenizer *names,
                        const bp_trainer_options *options)
{
    int64_t count = names->names.count, own = count - options->special_count;
    json_t *vocab = json_object(), *added = json_array(), *root = NULL;
    char *text = NULL;
    bool ok = true;
    bp_err err;

    for (int64_t id = 0; id < count; id++) {
        const char *name = bp_strmap_key(&names->names, id);

        ok = json_object_set_new(vocab, name, json_integer(id)) == 0 && ok;
        if (id < BP_BERT_SPECIALS || id >= own)
            ok = json_array_append_new(added, bp_bert_special_json(name, id)) == 0 && ok;
    }
    if (ok)
        root = bp_bert_json(vocab, added, !options->cased);
    if (root)
        text = bp_json_text(root);
    err = !text ? bp_fail_memory("the text of a tokenizer", count, 1)
                : bp_tokenizer_parse(out, text, strlen(text), "a trained tokenizer");
    bp_free(text);
    json_decref(root);
    json_decref(added);
    json_decref(vocab);
    return err;
}

bp_err bp_build_wordpiece(bp_tokenizer **out, const bp_strmap *words,
                          const bp_trainer_options *options, int64_t *merges)
{
    bp_tokenizer *names;
    bp_err err = bp_tokenizer_new(&names, BP_KIND_WORDPIECE);

    *out = NULL;
    if (err == BP_OK)
        err = learn(names, words, options, merges);
    if (err == BP_OK)
        err = write_out(out, names, options);
    bp_tokenizer_free(&names);
    return err;
}
