/* A Unigram vocabulary from words: letters, seeds, EM and pruning in turns, and tokenizer.json. */
#include "base/buffer.h"
#include "base/config/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/signals.h"
#include "text/pipeline/normalizer.h"
#include "text/pipeline/pipeline.h"
#include "text/tokenizer/template.h"
#include "text/train/tokenizer_train_priv.h"
#include "text/train/train_unigram_priv.h"
#include "text/unicode/scan.h"
#include "text/unicode/unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define COVERAGE      0.9995 /* of all characters; rarer ones are unknown */
#define TURNS         2      /* of EM between prunings */
#define PRUNED_SHARE  1.1    /* pruning stops at this many times the size */
#define PENALTY       0.0001 /* between letters that EM has lost */
#define SPECIAL_COUNT 3

static const char *const SPECIALS[SPECIAL_COUNT] = {"<pad>", "</s>", BP_UNK_TOKEN};

/* ---- words as the tokenizer sees them ---- */

typedef struct text_word {
    const char *text;
    size_t bytes;
    int64_t count;
} text_word;

static int by_bytes(const void *left, const void *right)
{
    const text_word *a = left, *b = right;
    int order = memcmp(a->text, b->text, a->bytes < b->bytes ? a->bytes : b->bytes);

    return order != 0 ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* Words, and how often they are at the end of a line. */
typedef struct counted {
    bp_strmap words, ends;
} counted;

/* Bytes of the first BP_UNIGRAM_WORD characters at most. */
static size_t word_part(const uint8_t *p, size_t bytes)
{
    size_t at = 0;
    uint32_t c;

    for (int k = 0; k < BP_UNIGRAM_WORD && at < bytes; k++)
        at += bp_utf8_decode(p + at, bytes - at, &c);
    return at;
}

/* A word in parts that are not too long for a lattice; to *word its last one. */
static bp_err add_word(counted *out, const char *text, size_t bytes, int64_t count, bp_buffer *word)
{
    bp_err err = BP_OK;

    for (size_t at = 0, part; at < bytes && err == BP_OK; at += part) {
        part = word_part((const uint8_t *)text + at, bytes - at);
        word->bytes = 0;
        if (at == 0)
            bp_buffer_add(word, BP_SPACE_MARK, strlen(BP_SPACE_MARK));
        bp_buffer_add(word, text + at, part);
        err = bp_strmap_add(&out->words, word->data, word->bytes, count, NULL);
    }
    return err;
}

/* U+2581 and each word of a normalized text, which may have become several. */
static bp_err add_words(counted *out, const char *text, size_t bytes, int64_t count, bool ends)
{
    const uint8_t *classes = bp_unicode_classes(), *p = (const uint8_t *)text;
    bp_buffer word = {0};
    bp_err err = BP_OK;

    for (size_t at = 0; at < bytes && err == BP_OK;) {
        size_t length = bp_scan_word(classes, p + at, bytes - at);

        if (length > 0)
            err = add_word(out, text + at, length, count, &word);
        at += length;
        at += bp_scan_space(classes, p + at, bytes - at);
        if (err == BP_OK && length > 0 && ends && at >= bytes)
            err = bp_strmap_add(&out->ends, word.data, word.bytes, count, NULL);
    }
    bp_buffer_clear(&word);
    return err;
}

/* A word that a newline follows was counted with it. */
static bp_err normalize_words(counted *out, const bp_strmap *words)
{
    bp_buffer normalized = {0};
    bp_err err = BP_OK;

    for (int64_t k = 0; k < words->count && err == BP_OK; k++) {
        const char *word = bp_strmap_key(words, k);
        size_t bytes = words->entries[k].bytes;
        bool ends = bytes > 0 && word[bytes - 1] == '\n';

        normalized.bytes = 0;
        err = bp_norm_form(UTF8PROC_COMPOSE | UTF8PROC_STABLE | UTF8PROC_COMPAT, 0, word,
                           bytes - ends, &normalized);
        if (err == BP_OK && normalized.bytes > 0)
            err = add_words(out, normalized.data, normalized.bytes, words->entries[k].value, ends);
    }
    bp_buffer_clear(&normalized);
    return err;
}

/* In order of their bytes: how ranks met them does not matter from here. */
static bp_err sort_words(bp_strmap *words)
{
    text_word *list = bp_alloc("text.trainer", words->count, sizeof *list);
    bp_strmap sorted = {0};
    bp_err err = BP_OK;

    for (int64_t k = 0; k < words->count; k++)
        list[k] =
            (text_word){bp_strmap_key(words, k), words->entries[k].bytes, words->entries[k].value};
    qsort(list, (size_t)words->count, sizeof *list, by_bytes);
    for (int64_t k = 0; k < words->count && err == BP_OK; k++)
        err = bp_strmap_add(&sorted, list[k].text, list[k].bytes, list[k].count, NULL);
    bp_free(list);
    bp_strmap_clear(words);
    *words = sorted;
    return err;
}

/* ---- letters ---- */

typedef struct letter {
    uint32_t code;
    int64_t count;
} letter;

static int by_count(const void *left, const void *right)
{
    const letter *a = left, *b = right;

    if (a->count != b->count)
        return a->count > b->count ? -1 : 1;
    return (a->code > b->code) - (a->code < b->code);
}

static int by_code(const void *left, const void *right)
{
    const letter *a = left, *b = right;

    return (a->code > b->code) - (a->code < b->code);
}

/* U+0000 is not one: JSON as it is read here can't spell it. */
static letter *count_letters(const bp_strmap *words, int64_t *count, int64_t *total)
{
    int64_t *counts = bp_alloc("text.letters", BP_CODE_POINTS, sizeof *counts);
    letter *list;

    *count = *total = 0;
    for (int64_t k = 0; k < words->count; k++) {
        const uint8_t *word = (const uint8_t *)bp_strmap_key(words, k);
        size_t bytes = words->entries[k].bytes;

        for (size_t at = 0; at < bytes;) {
            uint32_t code = 0;

            at += bp_utf8_decode(word + at, bytes - at, &code);
            counts[code] += words->entries[k].value;
            *total += words->entries[k].value;
        }
    }
    list = bp_alloc("text.letters", BP_CODE_POINTS, sizeof *list);
    for (uint32_t code = 0; code < BP_CODE_POINTS; code++)
        if (counts[code] > 0 && code != 0 && code != BP_UNIGRAM_UNKNOWN_CODE)
            list[(*count)++] = (letter){code, counts[code]};
    bp_free(counts);
    return list;
}

/* The most frequent characters that make up COVERAGE of the text. */
static void choose_letters(bp_letters *out, const bp_strmap *words)
{
    int64_t count, total, covered = 0, kept = 0;
    letter *list = count_letters(words, &count, &total);

    qsort(list, (size_t)count, sizeof *list, by_count);
    for (; kept < count && (double)covered < COVERAGE * (double)total; kept++)
        covered += list[kept].count;
    qsort(list, (size_t)kept, sizeof *list, by_code);
    out->count = kept;
    out->codes = bp_alloc("text.letters", kept, sizeof *out->codes);
    out->counts = bp_alloc("text.letters", kept, sizeof *out->counts);
    for (int64_t k = 0; k < kept; k++) {
        out->codes[k] = list[k].code;
        out->counts[k] = list[k].count;
    }
    bp_free(list);
}

/* Other characters become the one that stands for all of them. */
static bp_err hide_rare(bp_strmap *words, const bp_letters *letters)
{
    bp_strmap out = {0};
    bp_buffer word = {0};
    bp_err err = BP_OK;

    for (int64_t k = 0; k < words->count && err == BP_OK; k++) {
        const uint8_t *text = (const uint8_t *)bp_strmap_key(words, k);
        size_t bytes = words->entries[k].bytes;

        word.bytes = 0;
        for (size_t at = 0; at < bytes;) {
            uint32_t code = 0;
            size_t length = bp_utf8_decode(text + at, bytes - at, &code);

            if (bp_letter_of(letters, code) >= 0)
                bp_buffer_add(&word, text + at, length);
            else
                bp_buffer_add(&word, BP_UNIGRAM_UNKNOWN, strlen(BP_UNIGRAM_UNKNOWN));
            at += length;
        }
        err = bp_strmap_add(&out, word.data, word.bytes, words->entries[k].value, NULL);
    }
    bp_buffer_clear(&word);
    bp_strmap_clear(words);
    *words = out;
    return err == BP_OK ? sort_words(words) : err;
}

/* ---- the vocabulary ---- */

static bp_err shrink(bp_unigrams *pieces, const bp_strmap *words, int64_t wanted, bool progress)
{
    for (;;) {
        for (int turn = 0; turn < TURNS; turn++) {
            bp_unigram_improve(pieces, words);
            if (bp_signals_stop_asked())
                return bp_fail_stopped(BP_TRAINING_STOPPED);
        }
        if (progress)
            bp_log_progress("building: %lld pieces", (long long)pieces->names.count);
        if (pieces->names.count <= wanted || !bp_unigram_prune(pieces, words, wanted))
            return BP_OK;
    }
}

typedef struct scored {
    const char *text;
    size_t bytes;
    double score;
    bool letter;
} scored;

static int by_worth(const void *left, const void *right)
{
    const scored *a = left, *b = right;
    int order;

    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    order = memcmp(a->text, b->text, a->bytes < b->bytes ? a->bytes : b->bytes);
    return order != 0 ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* Letters that EM has lost come back, just above the lowest score. */
static void add_lost_letters(bp_unigrams *pieces, const bp_letters *letters)
{
    double lowest = 0, above = 0;

    for (int64_t k = 0; k < pieces->names.count; k++)
        lowest = pieces->scores[k] < lowest ? pieces->scores[k] : lowest;
    for (int64_t k = 0; k < letters->count; k++) {
        uint8_t name[4];
        size_t bytes = bp_utf8_encode(name, letters->codes[k]);

        if (bp_strmap_find(&pieces->names, (char *)name, bytes))
            continue;
        bp_unigrams_add(pieces, (char *)name, bytes, lowest + above);
        above += PENALTY;
    }
}

static bool is_one_character(const scored *piece)
{
    uint32_t code;

    return bp_utf8_decode((const uint8_t *)piece->text, piece->bytes, &code) == piece->bytes;
}

/* The letters, and the best of the rest: `capacity` pieces, in order of score. Free with bp_free().
 */
static scored *choose_pieces(const bp_unigrams *pieces, int64_t letters, int64_t capacity,
                             int64_t *count)
{
    scored *list = bp_alloc("text.trainer", pieces->names.count, sizeof *list);
    int64_t others = capacity - letters;

    *count = 0;
    for (int64_t k = 0; k < pieces->names.count; k++) {
        list[k] = (scored){bp_strmap_key(&pieces->names, k), pieces->names.entries[k].bytes,
                           pieces->scores[k], false};
        list[k].letter = is_one_character(&list[k]);
    }
    qsort(list, (size_t)pieces->names.count, sizeof *list, by_worth);
    for (int64_t k = 0; k < pieces->names.count; k++)
        if (list[k].letter || others-- > 0)
            list[(*count)++] = list[k];
    return list;
}

/* ---- tokenizer.json ---- */

static int add_special(json_t *vocab, json_t *added, const char *name)
{
    json_t *token = json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id",
                              (json_int_t)json_array_size(vocab), "content", name, "single_word", 0,
                              "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);

    return json_array_append_new(added, token) |
           json_array_append_new(vocab, json_pack("[s, f]", name, 0.0));
}

/* Sentinel 0 is the last id, as T5 has it. */
static int fill_lists(json_t *vocab, json_t *added, const scored *list, int64_t count,
                      const bp_unigram_options *options)
{
    char name[32];
    int bad = 0;

    for (int k = 0; k < SPECIAL_COUNT; k++)
        bad |= add_special(vocab, added, SPECIALS[k]);
    for (int64_t k = 0; k < count; k++)
        bad |= json_array_append_new(
            vocab, json_pack("[s%, f]", list[k].text, list[k].bytes, list[k].score));
    for (int k = 0; k < options->special_count; k++)
        bad |= add_special(vocab, added, options->specials[k]);
    for (int64_t k = options->sentinels - 1; k >= 0; k--) {
        snprintf(name, sizeof name, "<extra_id_%lld>", (long long)k);
        bad |= add_special(vocab, added, name);
    }
    return bad;
}

static json_t *metaspace_json(void)
{
    return json_pack("{s:s, s:s, s:s, s:b}", "type", "Metaspace", "replacement", BP_SPACE_MARK,
                     "prepend_scheme", "always", "split", 1);
}

static json_t *root_json(json_t *vocab, json_t *added)
{
    return json_pack(
        "{s:s, s:n, s:n, s:O, s:{s:s}, s:{s:s, s:[{s:s}, o]}, s:o, s:o, s:{s:s, s:i, s:O, s:b}}",
        "version", "1.0", "truncation", "padding", "added_tokens", added, "normalizer", "type",
        "NFKC", "pre_tokenizer", "type", "Sequence", "pretokenizers", "type", "WhitespaceSplit",
        metaspace_json(), "post_processor",
        bp_template_json(&(bp_template){.end = "</s>", .end_id = 1}), "decoder", metaspace_json(),
        "model", "type", "Unigram", "unk_id", 2, "vocab", vocab, "byte_fallback", 0);
}

static bp_err write_out(bp_tokenizer **out, const scored *list, int64_t count,
                        const bp_unigram_options *options)
{
    json_t *vocab = json_array(), *added = json_array(), *root = NULL;
    char *text = NULL;
    bp_err err = BP_OK;

    if (fill_lists(vocab, added, list, count, options) == 0)
        root = root_json(vocab, added);
    if (root)
        text = bp_json_text(root);
    if (!text)
        err = bp_fail_memory("the text of a tokenizer", count, 1);
    if (err == BP_OK)
        err = bp_tokenizer_parse(out, text, strlen(text), "a trained tokenizer");
    bp_free(text);
    json_decref(root);
    json_decref(added);
    json_decref(vocab);
    return err;
}

/* ---- the whole ---- */

static bp_err build(bp_tokenizer **out, const counted *text, const bp_letters *letters,
                    int64_t size, const bp_unigram_options *options)
{
    int64_t specials = SPECIAL_COUNT + options->sentinels + options->special_count;
    int64_t capacity = size - specials, count = 0;
    bp_unigrams pieces = {0};
    scored *list;
    bp_err err;

    if (capacity < letters->count)
        return BP_FAIL(
            BP_ERR_USAGE, "tokenizer.bad_size",
            "a unigram vocabulary of %lld tokens is too small for the %lld characters of "
            "the text and %lld special tokens: at --size; give %lld at least",
            (long long)size, (long long)letters->count, (long long)specials,
            (long long)(letters->count + specials));
    if (!bp_unigram_fits(&text->words))
        return BP_FAIL(BP_ERR_FORMAT, "text.too_many_bytes",
                       "the text has %lld different words of %lld bytes together, more than a "
                       "suffix array of 4 G entries: in the files given; train on less text",
                       (long long)text->words.count, (long long)text->words.key_bytes);
    bp_unigram_seed(&pieces, &text->words, &text->ends, letters,
                    bp_unigram_most_seeds(&text->words, size));
    err = shrink(&pieces, &text->words, (int64_t)(PRUNED_SHARE * (double)size), options->progress);
    if (err == BP_OK) {
        add_lost_letters(&pieces, letters);
        list = choose_pieces(&pieces, letters->count, capacity, &count);
        err = write_out(out, list, count, options);
        bp_free(list);
    }
    bp_unigrams_clear(&pieces);
    return err;
}

bp_err bp_build_unigram(bp_tokenizer **out, const bp_strmap *raw, int64_t size,
                        const bp_unigram_options *options)
{
    counted text = {0};
    bp_letters letters = {0};
    bp_err err = normalize_words(&text, raw);

    *out = NULL;
    if (err == BP_OK && text.words.count == 0)
        err = BP_FAIL(BP_ERR_FORMAT, "text.no_words",
                      "there are no words to train on: in the files given");
    if (err == BP_OK)
        choose_letters(&letters, &text.words);
    if (err == BP_OK)
        err = hide_rare(&text.words, &letters);
    if (err == BP_OK)
        err = hide_rare(&text.ends, &letters);
    if (err == BP_OK)
        err = build(out, &text, &letters, size, options);
    bp_strmap_clear(&text.words);
    bp_strmap_clear(&text.ends);
    bp_free(letters.codes);
    bp_free(letters.counts);
    return err;
}
