/* Pre-tokenizers, run: the third step of a pipeline cuts normalized text into pieces. */
#include "text/pipeline/pretokenizer.h"
#include "base/mem.h"
#include "text/pipeline/normalizer.h"
#include "text/unicode/invalid_bytes.h"
#include "text/unicode/scan.h"
#include "text/unicode/unicode.h"

#include <string.h>
#include <utf8proc.h>

/* ---- lists of spans ---- */

void bp_spans_add(bp_spans *spans, size_t start, size_t bytes)
{
    if (bytes == 0)
        return;
    spans->data =
        bp_grow("text.spans", spans->data, &spans->capacity, spans->count + 1, sizeof *spans->data);
    spans->data[spans->count++] = (bp_span){start, bytes};
}

void bp_spans_clear(bp_spans *spans)
{
    bp_free(spans->data);
    *spans = (bp_spans){0};
}

void bp_pre_work_clear(bp_pre_work *work)
{
    for (int k = 0; k < 2; k++) {
        bp_buffer_clear(&work->text[k]);
        bp_spans_clear(&work->spans[k]);
    }
    bp_spans_clear(&work->found);
    bp_free(work->is_match);
    *work = (bp_pre_work){0};
}

/* ---- matches ---- */

static void add_found(bp_pre_work *work, size_t start, size_t end, bool is_match)
{
    bp_spans_add(&work->found, start, end - start);
    work->is_match =
        bp_grow("text.spans", work->is_match, &work->match_capacity, work->found.count, 1);
    if (end > start)
        work->is_match[work->found.count - 1] = is_match;
}

/* Does a character match by itself? */
static bool matches(bp_pre_kind kind, const uint8_t *classes, uint32_t c)
{
    unsigned class = classes[c] & BP_CLASS_MASK;
    int category;

    if (kind == BP_PRE_SPACE)
        return class == BP_CLASS_SPACE;
    if (kind == BP_PRE_DIGITS)
        return class == BP_CLASS_NUMBER;
    if (c < 0x80)
        return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
               (c >= 123 && c <= 126);
    category = utf8proc_category((utf8proc_int32_t)c);
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

static void find_characters(bp_pre_kind kind, bp_pre_work *work, const char *text, bp_span span)
{
    const uint8_t *classes = bp_unicode_classes();
    size_t plain = span.start, end = span.start + span.bytes;

    for (size_t at = span.start; at < end;) {
        uint32_t c = 0;
        size_t length = bp_utf8_decode((const uint8_t *)text + at, end - at, &c);

        if (matches(kind, classes, c)) {
            add_found(work, plain, at, false);
            add_found(work, at, at + length, true);
            plain = at + length;
        }
        at += length;
    }
    add_found(work, plain, end, false);
}

static void find_strings(const bp_pre_step *step, bp_pre_work *work, const char *text, bp_span span)
{
    size_t at = span.start, end = span.start + span.bytes;
    const char *found;

    while ((found = memmem(text + at, end - at, step->pattern, step->pattern_bytes))) {
        size_t start = (size_t)(found - text);

        add_found(work, at, start, false);
        at = start + step->pattern_bytes;
        add_found(work, start, at, true);
    }
    add_found(work, at, end, false);
}

static bp_err find_regex(const bp_pre_step *step, bp_pre_work *work, const char *text, bp_span span)
{
    bp_regex_matches matches =
        bp_regex_matches_of(step->regex, work->regex, text + span.start, span.bytes);
    size_t at = 0;
    bool found = true;
    bp_err err = BP_OK;

    while (err == BP_OK && found) {
        err = bp_regex_next(&matches, &found);
        if (err != BP_OK || !found)
            break;
        add_found(work, span.start + at, span.start + matches.start, false);
        add_found(work, span.start + matches.start, span.start + matches.end, true);
        at = matches.end;
    }
    add_found(work, span.start + at, span.start + span.bytes, false);
    return err;
}

/* ---- their results ---- */

static void extend(bp_spans *out, bp_span next)
{
    out->data[out->count - 1].bytes += next.bytes;
}

static void merge_next(const bp_pre_work *work, bool invert, bp_spans *out)
{
    const bp_spans *found = &work->found;

    for (int64_t k = 0; k < found->count; k++) {
        bool match = work->is_match[k] != invert;
        bool next = k + 1 < found->count && work->is_match[k + 1] != invert;
        bp_span span = found->data[k];

        if (match && !next && k + 1 < found->count) { /* goes to the one after it */
            span.bytes += found->data[k + 1].bytes;
            k++;
        }
        bp_spans_add(out, span.start, span.bytes);
    }
}

static void take(const bp_pre_work *work, bp_behavior behavior, bool invert, bp_spans *out)
{
    bool previous = false;
    int64_t first = out->count; /* nothing is merged with another piece's */

    if (behavior == BP_MERGED_NEXT) {
        merge_next(work, invert, out);
        return;
    }
    for (int64_t k = 0; k < work->found.count; k++) {
        bool match = work->is_match[k] != invert;
        bp_span span = work->found.data[k];
        bool has_last = out->count > first;
        /* an empty match is between two stretches without one */
        bool goes_on = k > 0 && work->is_match[k] && work->is_match[k - 1];

        if (behavior == BP_REMOVED && match)
            continue;
        if ((behavior == BP_MERGED_PREVIOUS && match && !previous && has_last) ||
            (behavior == BP_CONTIGUOUS && goes_on && has_last))
            extend(out, span);
        else
            bp_spans_add(out, span.start, span.bytes);
        previous = match;
    }
}

static bp_err split(const bp_pre_step *step, bp_pre_work *work, const char *text, bp_span span,
                    bp_spans *out)
{
    bp_err err = BP_OK;

    work->found.count = 0;
    if (step->kind != BP_PRE_SPLIT)
        find_characters(step->kind, work, text, span);
    else if (step->regex)
        err = find_regex(step, work, text, span);
    else
        find_strings(step, work, text, span);
    if (err == BP_OK)
        take(work, step->behavior, step->invert, out);
    return err;
}

/* ---- scanners ---- */

/* Words between White_Space, in which each punctuation mark is a piece. */
static void split_bert(const char *text, bp_span span, bp_spans *out)
{
    const uint8_t *classes = bp_unicode_classes(), *p = (const uint8_t *)text;
    size_t word = span.start, end = span.start + span.bytes;

    for (size_t at = span.start; at < end;) {
        uint32_t c = 0;
        size_t length = bp_utf8_decode(p + at, end - at, &c);
        bool space = (classes[c] & BP_CLASS_MASK) == BP_CLASS_SPACE;
        bool alone = !space && matches(BP_PRE_PUNCTUATION, classes, c);

        if (space || alone) {
            bp_spans_add(out, word, at - word);
            if (alone)
                bp_spans_add(out, at, length);
            word = at + length;
        }
        at += length;
    }
    bp_spans_add(out, word, end - word);
}

static void scan_stretch(const bp_pre_step *step, const char *text, size_t at, size_t end,
                         bp_spans *out)
{
    const uint8_t *classes = bp_unicode_classes(), *p = (const uint8_t *)text;
    size_t length;

    for (; at < end; at += length) {
        length = step->kind == BP_PRE_GPT2 ? bp_scan_piece(classes, p + at, end - at)
                                           : bp_scan_llama(classes, p + at, end - at, step->digits);
        bp_spans_add(out, at, length);
    }
}

/* Each invalid byte is a piece, as with a scanner that sees the bytes. */
static void scan(const bp_pre_step *step, const bp_pre_work *work, const char *text, bp_span span,
                 bp_spans *out)
{
    const uint8_t *p = (const uint8_t *)text;
    size_t end = span.start + span.bytes;

    for (size_t at = span.start; at < end;) {
        size_t stretch = bp_hidden_before(work->hidden, p + at, end - at);

        scan_stretch(step, text, at, at + stretch, out);
        at += stretch;
        if (at < end) {
            bp_spans_add(out, at, 4);
            at += 4;
        }
    }
}

/* ---- steps that change the text ---- */

static bool starts_with(const char *text, size_t bytes, const char *start, size_t start_bytes)
{
    return bytes >= start_bytes && memcmp(text, start, start_bytes) == 0;
}

static void add_prefixed(const char *text, bp_span span, bp_buffer *copy, bp_spans *out)
{
    size_t start = copy->bytes;

    if (!starts_with(text + span.start, span.bytes, " ", 1))
        bp_buffer_add(copy, " ", 1);
    bp_buffer_add(copy, text + span.start, span.bytes);
    bp_spans_add(out, start, copy->bytes - start);
}

static void add_marked(const bp_pre_step *step, const char *text, bp_span span, bool first,
                       bp_buffer *copy)
{
    const char *at = text + span.start, *end = at + span.bytes, *space;
    bool marked = *at == ' ' || starts_with(at, span.bytes, step->pattern, step->pattern_bytes);

    if (!marked && (step->scheme == BP_PREPEND_ALWAYS ||
                    (step->scheme == BP_PREPEND_FIRST && first && span.start == 0)))
        bp_buffer_add(copy, step->pattern, step->pattern_bytes);
    while ((space = memchr(at, ' ', (size_t)(end - at)))) {
        bp_buffer_add(copy, at, (size_t)(space - at));
        bp_buffer_add(copy, step->pattern, step->pattern_bytes);
        at = space + 1;
    }
    bp_buffer_add(copy, at, (size_t)(end - at));
}

static void metaspace(const bp_pre_step *step, bp_pre_work *work, const char *text, bp_span span,
                      bool first, bp_buffer *copy, bp_spans *out)
{
    size_t start = copy->bytes;
    bp_span made;

    add_marked(step, text, span, first, copy);
    made = (bp_span){start, copy->bytes - start};
    if (!step->split) {
        bp_spans_add(out, made.start, made.bytes);
        return;
    }
    work->found.count = 0;
    find_strings(step, work, copy->data, made);
    take(work, BP_MERGED_NEXT, false, out);
}

/* ---- all of them ---- */

static bp_err apply(const bp_pre_step *step, bp_pre_work *work, const char *text, bp_span span,
                    bool first, bp_buffer *copy, bp_spans *out)
{
    switch (step->kind) {
    case BP_PRE_GPT2:
    case BP_PRE_LLAMA:
        scan(step, work, text, span, out);
        return BP_OK;
    case BP_PRE_BERT:
        split_bert(text, span, out);
        return BP_OK;
    case BP_PRE_PREFIX:
        add_prefixed(text, span, copy, out);
        return BP_OK;
    case BP_PRE_METASPACE:
        metaspace(step, work, text, span, first, copy, out);
        return BP_OK;
    default:
        return split(step, work, text, span, out);
    }
}

bp_err bp_pretokenize(const bp_pretokenizer *pretokenizer, bp_pre_work *work, bool first,
                      const char **text, size_t bytes, const bp_spans **pieces)
{
    bp_spans *from = &work->spans[0], *to = &work->spans[1];
    bp_buffer *copy = &work->text[0];
    bp_err err = BP_OK;

    from->count = 0;
    bp_spans_add(from, 0, bytes);
    for (int k = 0; k < pretokenizer->count && err == BP_OK; k++) {
        const bp_pre_step *step = &pretokenizer->steps[k];
        bool changes = step->kind == BP_PRE_PREFIX || step->kind == BP_PRE_METASPACE;
        bp_spans *swap = from;

        to->count = 0;
        copy->bytes = 0;
        for (int64_t at = 0; at < from->count && err == BP_OK; at++) {
            err = apply(step, work, *text, from->data[at], first && at == 0, copy, to);
            if (err == BP_OK && copy->bytes > bp_norm_most(bytes))
                err = bp_norm_grew(bytes);
        }
        if (changes) {
            *text = !copy->data ? "" : copy->data;
            copy = copy == &work->text[0] ? &work->text[1] : &work->text[0];
        }
        from = to;
        to = swap;
    }
    *pieces = from;
    return err;
}
