/* Normalizers, run: the second step of a pipeline, after added tokens are cut out. */
#include "text/pipeline/normalizer.h"
#include "base/mem.h"
#include "text/unicode/characters.h"
#include "text/unicode/unicode.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define MARKS (1u << UTF8PROC_CATEGORY_MN | 1u << UTF8PROC_CATEGORY_MC | 1u << UTF8PROC_CATEGORY_ME)

static unsigned category_bit(uint32_t code_point)
{
    return 1u << utf8proc_category((utf8proc_int32_t)code_point);
}

static void add_code_point(bp_buffer *out, uint32_t code_point)
{
    uint8_t bytes[4];

    bp_buffer_add(out, bytes, bp_utf8_encode(bytes, code_point));
}

/* Bytes of ASCII at the start of text. */
static size_t ascii_run(const char *text, size_t bytes)
{
    size_t at = 0;

    while (at < bytes && (uint8_t)text[at] < 0x80)
        at++;
    return at;
}

static size_t other_run(const char *text, size_t bytes)
{
    size_t at = 0;

    while (at < bytes && (uint8_t)text[at] >= 0x80)
        at++;
    return at;
}

/* ---- forms ---- */

static void drop_marks(unsigned drop, const char *text, size_t bytes, bp_buffer *out)
{
    for (size_t at = 0; at < bytes;) {
        uint32_t code_point = 0;
        size_t length = bp_utf8_decode((const uint8_t *)text + at, bytes - at, &code_point);

        if ((drop & category_bit(code_point)) == 0)
            bp_buffer_add(out, text + at, length);
        at += length;
    }
}

/* utf8proc sorts a run of combining marks by exchanging neighbours, in quadratic time. Long runs
 * are sorted beforehand, to the same order. */
#define LONG_RUN 30

typedef struct mark {
    uint32_t code, place;
    int class;
} mark;

typedef struct mark_run {
    mark *data;
    int64_t count, capacity;
} mark_run;

static int by_class(const void *left, const void *right)
{
    const mark *a = left, *b = right;

    if (a->class != b->class)
        return a->class < b->class ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

static void add_mark(mark_run *run, uint32_t code, int class)
{
    run->data =
        bp_grow("text.normalizer", run->data, &run->capacity, run->count + 1, sizeof *run->data);
    run->data[run->count] = (mark){code, (uint32_t)run->count, class};
    run->count++;
}

/* A mark, or a character that is marks when it is decomposed; false for others. */
static bool take_mark(mark_run *run, int form, uint32_t c)
{
    static const uint32_t PAIRS[][3] = {
        {0xF73, 0xF72, 130}, {0xF75, 0xF74, 132}, {0xF81, 0xF80, 130}};
    int class = utf8proc_get_property((utf8proc_int32_t)c)->combining_class;

    for (size_t k = 0; k < sizeof PAIRS / sizeof *PAIRS; k++)
        if (c == PAIRS[k][0]) {
            add_mark(run, 0xF71, 129);
            add_mark(run, PAIRS[k][1], (int)PAIRS[k][2]);
            return true;
        }
    if ((form & UTF8PROC_COMPAT) != 0 && (c == 0xFF9E || c == 0xFF9F))
        class = 8;
    if (class > 0)
        add_mark(run, c, class);
    return class > 0;
}

static void end_run(mark_run *run, const char *text, size_t bytes, bp_buffer *out)
{
    if (run->count <= LONG_RUN) {
        bp_buffer_add(out, text, bytes);
    } else {
        qsort(run->data, (size_t)run->count, sizeof *run->data, by_class);
        for (int64_t k = 0; k < run->count; k++)
            add_code_point(out, run->data[k].code);
    }
    run->count = 0;
}

static void sort_marks(int form, const char *text, size_t bytes, bp_buffer *out)
{
    mark_run run = {0};
    size_t start = 0; /* of the run */

    for (size_t at = 0, length; at < bytes; at += length) {
        uint32_t c = 0;

        length = bp_utf8_decode((const uint8_t *)text + at, bytes - at, &c);
        if (take_mark(&run, form, c))
            continue;
        end_run(&run, text + start, at - start, out);
        bp_buffer_add(out, text + at, length);
        start = at + length;
    }
    end_run(&run, text + start, bytes - start, out);
    bp_free(run.data);
}

static bp_err add_form(int form, unsigned drop, const char *text, size_t bytes, bp_buffer *out)
{
    utf8proc_uint8_t *made = NULL;
    utf8proc_ssize_t length;
    bp_buffer sorted = {0};

    if (bytes > 2 * LONG_RUN) { /* a mark has two bytes at least */
        sort_marks(form, text, bytes, &sorted);
        text = sorted.data;
        bytes = sorted.bytes;
    }
    length = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes, &made,
                          (utf8proc_option_t)form);
    bp_buffer_clear(&sorted);

    if (length < 0)
        return BP_FAIL(BP_ERR_SYSTEM, "text.not_normalized", "text can't be normalized (%s)",
                       utf8proc_errmsg(length));
    if (drop == 0)
        bp_buffer_add(out, made, (size_t)length);
    else
        drop_marks(drop, (const char *)made, (size_t)length, out);
    free(made);
    return BP_OK;
}

/* ASCII characters never compose with what comes before them, and do not change: only runs of other
 * characters are normalized, each with the character before it. */
bp_err bp_norm_form(int form, unsigned drop, const char *text, size_t bytes, bp_buffer *out)
{
    bp_err err = BP_OK;

    for (size_t at = 0; at < bytes && err == BP_OK;) {
        size_t plain = ascii_run(text + at, bytes - at), length;

        if (at + plain < bytes && plain > 0)
            plain--;
        bp_buffer_add(out, text + at, plain);
        at += plain;
        length = at < bytes && (uint8_t)text[at] < 0x80 ? 1 : 0;
        length += other_run(text + at + length, bytes - at - length);
        if (length > 0)
            err = add_form(form, drop, text + at, length, out);
        at += length;
    }
    return err;
}

/* ---- BERT's ---- */

static bool is_chinese(uint32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B820 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

static bool is_control(uint32_t c)
{
    return c != '\t' && c != '\n' && c != '\r' &&
           (category_bit(c) & (1u << UTF8PROC_CATEGORY_CC | 1u << UTF8PROC_CATEGORY_CF |
                               1u << UTF8PROC_CATEGORY_CO | 1u << UTF8PROC_CATEGORY_CS)) != 0;
}

static void clean(const bp_norm_step *step, const char *text, size_t bytes, bp_buffer *out)
{
    const uint8_t *classes = bp_unicode_classes();

    for (size_t at = 0; at < bytes;) {
        uint32_t c = 0;
        size_t length = bp_utf8_decode((const uint8_t *)text + at, bytes - at, &c);
        bool spaced = step->chinese && c >= 0x3400 && is_chinese(c);

        at += length;
        if (step->clean && (c == 0 || c == 0xFFFD || is_control(c)))
            continue;
        if (step->clean && (classes[c] & BP_CLASS_MASK) == BP_CLASS_SPACE) {
            bp_buffer_add(out, " ", 1);
            continue;
        }
        if (spaced)
            bp_buffer_add(out, " ", 1);
        bp_buffer_add(out, text + at - length, length);
        if (spaced)
            bp_buffer_add(out, " ", 1);
    }
}

/* All steps for one ASCII character; 0 if it is removed. */
static char bert_ascii(const bp_norm_step *step, char c)
{
    if (step->clean && (c == '\t' || c == '\n' || c == '\r'))
        return ' ';
    if (step->clean && ((uint8_t)c < 0x20 || c == 0x7F))
        return 0;
    return step->lowercase && c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
}

static void add_bert_ascii(const bp_norm_step *step, const char *text, size_t bytes, bp_buffer *out)
{
    char scratch[256];

    for (size_t at = 0; at < bytes;) {
        size_t used = 0;

        for (; at < bytes && used < sizeof scratch; at++) {
            char c = bert_ascii(step, text[at]);

            if (c != 0 || !step->clean)
                scratch[used++] = c;
        }
        bp_buffer_add(out, scratch, used);
    }
}

/* A run of other characters with the one of ASCII before it. */
static bp_err add_bert_run(const bp_norm_step *step, const char *text, size_t bytes, bp_buffer *out)
{
    bp_buffer cleaned = {0}, bare = {0};
    bp_err err = BP_OK;

    clean(step, text, bytes, &cleaned);
    if (step->no_accents)
        err = bp_norm_form(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, 1u << UTF8PROC_CATEGORY_MN,
                           cleaned.data, cleaned.bytes, &bare);
    if (err == BP_OK) {
        const bp_buffer *last = step->no_accents ? &bare : &cleaned;

        if (step->lowercase)
            bp_text_lowercase_each(out, last->data, last->bytes);
        else
            bp_buffer_add(out, last->data, last->bytes);
    }
    bp_buffer_clear(&cleaned);
    bp_buffer_clear(&bare);
    return err;
}

/* BERT's: clean text, spaces around Chinese characters, without accents, in lower case. */
static bp_err normalize_bert(const bp_norm_step *step, const char *text, size_t bytes,
                             bp_buffer *out)
{
    bp_err err = BP_OK;

    for (size_t at = 0; at < bytes && err == BP_OK;) {
        size_t plain = ascii_run(text + at, bytes - at), length;

        if (at + plain < bytes && plain > 0)
            plain--;
        add_bert_ascii(step, text + at, plain, out);
        at += plain;
        length = at < bytes && (uint8_t)text[at] < 0x80 ? 1 : 0;
        length += other_run(text + at + length, bytes - at - length);
        if (length > 0)
            err = add_bert_run(step, text + at, length, out);
        at += length;
    }
    return err;
}

/* ---- the rest ---- */

static void strip(const bp_norm_step *step, const char *text, size_t bytes, bp_buffer *out)
{
    const uint8_t *p = (const uint8_t *)text, *classes = bp_unicode_classes();
    size_t start = 0, length;
    uint32_t c = 0;

    while (step->left && start < bytes && (length = bp_utf8_decode(p + start, bytes - start, &c)) &&
           (classes[c] & BP_CLASS_MASK) == BP_CLASS_SPACE)
        start += length;
    while (step->right && bytes > start && (length = bp_space_before(p, bytes)) > 0)
        bytes -= length;
    bp_buffer_add(out, text + start, bytes - start);
}

/* Removes control characters; some others become a space. Source: huggingface/tokenizers,
 * normalizers/unicode.rs (do_nmt). */
static void normalize_nmt(const char *text, size_t bytes, bp_buffer *out)
{
    for (size_t at = 0; at < bytes;) {
        uint32_t c = 0;
        size_t length = bp_utf8_decode((const uint8_t *)text + at, bytes - at, &c);

        if (c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
            (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
            c == 0xFEFF || c == 0xFFFD)
            bp_buffer_add(out, " ", 1);
        else if (!((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
                   c == 0x8F || c == 0x9F))
            bp_buffer_add(out, text + at, length);
        at += length;
    }
}

static bp_err replace_regex(const bp_norm_step *step, bp_regex_work *work, const char *text,
                            size_t bytes, size_t most, bp_buffer *out)
{
    bp_regex_matches matches = bp_regex_matches_of(step->regex, work, text, bytes);
    size_t at = 0;
    bool found = bytes > 0; /* tokenizers looks for nothing in an empty text */
    bp_err err = BP_OK;

    while (found && err == BP_OK && out->bytes <= most) {
        err = bp_regex_next(&matches, &found);
        if (err != BP_OK || !found)
            break;
        bp_buffer_add(out, text + at, matches.start - at);
        bp_buffer_add(out, step->content, step->content_bytes);
        at = matches.end;
    }
    bp_buffer_add(out, text + at, bytes - at);
    return err;
}

static void replace_string(const bp_norm_step *step, const char *text, size_t bytes, size_t most,
                           bp_buffer *out)
{
    const char *at = text, *end = text + bytes, *found;

    while (out->bytes <= most &&
           (found = memmem(at, (size_t)(end - at), step->pattern, step->pattern_bytes))) {
        bp_buffer_add(out, at, (size_t)(found - at));
        bp_buffer_add(out, step->content, step->content_bytes);
        at = found + step->pattern_bytes;
    }
    bp_buffer_add(out, at, (size_t)(end - at));
}

/* Beyond `most` bytes it may end before the text does. */
static bp_err apply(const bp_norm_step *step, bp_regex_work *regex, const char *text, size_t bytes,
                    size_t most, bp_buffer *out)
{
    switch (step->kind) {
    case BP_NORM_FORM:
        return bp_norm_form(step->form, 0, text, bytes, out);
    case BP_NORM_LOWERCASE:
        bp_text_lowercase_each(out, text, bytes);
        break;
    case BP_NORM_STRIP:
        strip(step, text, bytes, out);
        break;
    case BP_NORM_ACCENTS:
        drop_marks(MARKS, text, bytes, out);
        break;
    case BP_NORM_BERT:
        return normalize_bert(step, text, bytes, out);
    case BP_NORM_PREPEND:
        if (bytes > 0)
            bp_buffer_add(out, step->content, step->content_bytes);
        bp_buffer_add(out, text, bytes);
        break;
    case BP_NORM_REPLACE:
        if (step->regex)
            return replace_regex(step, regex, text, bytes, most, out);
        replace_string(step, text, bytes, most, out);
        break;
    case BP_NORM_CHARSMAP:
        if (step->longest)
            bp_charsmap_apply_longest(step->map, &step->keep, text, bytes, out);
        else
            bp_charsmap_apply(step->map, text, bytes, out);
        break;
    case BP_NORM_NMT:
        normalize_nmt(text, bytes, out);
        break;
    }
    return BP_OK;
}

bp_err bp_norm_apply(const bp_norm_step *step, bp_regex_work *regex, const char *text, size_t bytes,
                     bp_buffer *out)
{
    return apply(step, regex, text, bytes, SIZE_MAX, out);
}

bp_err bp_norm_grew(size_t bytes)
{
    return BP_FAIL(
        BP_ERR_FORMAT, "tokenizer.text_grew",
        "the tokenizer makes a text of %zu bytes more than %d times as long, and 64 KiB: "
        "give another tokenizer",
        bytes, BP_NORM_GROWTH);
}

/* Does the step remove the first characters without replacement? */
static bool takes_start(const bp_norm_step *step, bp_regex_work *work, const char *text,
                        size_t bytes)
{
    bp_regex_matches matches;
    uint32_t c = 0;
    bool found;

    if (bytes == 0)
        return false;
    if (step->kind == BP_NORM_STRIP)
        return step->left && bp_utf8_decode((const uint8_t *)text, bytes, &c) > 0 &&
               (bp_unicode_classes()[c] & BP_CLASS_MASK) == BP_CLASS_SPACE;
    if (step->kind != BP_NORM_REPLACE || step->content_bytes > 0)
        return false;
    if (!step->regex)
        return bytes >= step->pattern_bytes &&
               memcmp(text, step->pattern, step->pattern_bytes) == 0;
    matches = bp_regex_matches_of(step->regex, work, text, bytes);
    return bp_regex_next(&matches, &found) == BP_OK && found && matches.start == 0 &&
           matches.end > 0;
}

bp_err bp_normalize(const bp_normalizer *normalizer, bp_regex_work *regex, bp_buffer scratch[2],
                    const char **text, size_t *bytes, bool *first)
{
    size_t given = *bytes, most = bp_norm_most(given);

    for (int k = 0; k < normalizer->count; k++) {
        const bp_norm_step *step = &normalizer->steps[k];
        bp_buffer *out = &scratch[k % 2];
        bp_err err;

        if (*first && takes_start(step, regex, *text, *bytes))
            *first = false;
        out->bytes = 0;
        err = apply(step, regex, *text, *bytes, most, out);
        if (err == BP_OK && out->bytes > most)
            err = bp_norm_grew(given);
        if (err != BP_OK)
            return err;
        *text = !out->data ? "" : out->data;
        *bytes = out->bytes;
    }
    return BP_OK;
}

const char *bp_normalizer_loses(const bp_normalizer *normalizer)
{
    bool lower = false, accents = false, other = false;

    for (int k = 0; k < normalizer->count; k++) {
        const bp_norm_step *step = &normalizer->steps[k];
        bool bert = step->kind == BP_NORM_BERT;

        lower = lower || step->kind == BP_NORM_LOWERCASE || (bert && step->lowercase);
        accents = accents || step->kind == BP_NORM_ACCENTS || (bert && step->no_accents);
        other = other || step->kind == BP_NORM_CHARSMAP || step->kind == BP_NORM_NMT ||
                (step->kind == BP_NORM_FORM && (step->form & UTF8PROC_COMPAT) != 0);
    }
    if (lower)
        return accents ? "letter case and accents" : "letter case";
    return accents ? "accents" : other ? "compatibility characters" : NULL;
}
