/* Texts of tokens, and where words begin. Called by pages/example.c and pages/words.c. */
#include "explain/pages/spans.h"

#include "base/mem.h"
#include "infer/score/page/page.h"

#include <inttypes.h>
#include <string.h>

#define LONGEST 3              /* tokens that may precede one whose byte ends a character */
#define MARK    "##"           /* WordPiece's mark of a token that continues a word */
#define BLANK   "\xE2\x96\x81" /* U+2581, SentencePiece's mark of a space */

bp_err explain_speller_open(explain_speller *out, const bp_corpus *corpus, const bp_config *config)
{
    bp_err err = bp_score_page_tokenizer(&out->tokenizer, corpus, config);
    const char *kind;

    if (err != BP_OK || !out->tokenizer)
        return err;
    kind = bp_tokenizer_kind(out->tokenizer);
    out->spaced = strcmp(kind, "word") == 0;
    out->pieces = strcmp(kind, "wordpiece") == 0;
    out->continues =
        bp_alloc("explain.spans", bp_tokenizer_size(out->tokenizer), sizeof *out->continues);
    return bp_tokenizer_word_parts(out->tokenizer, out->continues);
}

void explain_speller_clear(explain_speller *speller)
{
    bp_free(speller->continues);
    bp_tokenizer_free(&speller->tokenizer);
}

static bool begins_with(const char *text, size_t bytes, const char *with)
{
    return bytes >= strlen(with) && memcmp(text, with, strlen(with)) == 0;
}

/* A token as in a text: without marks of its tokenizer. */
static void add_text(const explain_speller *speller, bool begins, const char *text, size_t bytes,
                     bp_buffer *out)
{
    if (speller->pieces && !begins && begins_with(text, bytes, MARK)) {
        text += strlen(MARK);
        bytes -= strlen(MARK);
    }
    if (begins_with(text, bytes, BLANK)) {
        bp_buffer_printf(out, " ");
        text += strlen(BLANK);
        bytes -= strlen(BLANK);
    }
    bp_buffer_add(out, text, bytes);
}

static bp_err add_span(explain_spans *out, const explain_speller *speller, const int32_t *tokens,
                       int64_t count, int64_t at)
{
    explain_span *span = &out->list[out->count++];
    bp_buffer text = {0};
    bp_err err = BP_OK;

    *span = (explain_span){.first = at, .count = 1, .text = out->texts.bytes, .begins = true};
    if (speller->tokenizer) {
        err = bp_tokenizer_characters(speller->tokenizer, tokens + at, count - at, &text,
                                      &span->count);
        span->begins = at == 0 || !speller->continues[tokens[at]];
        if (err == BP_OK)
            add_text(speller, span->begins, text.data ? text.data : "", text.bytes, &out->texts);
    } else {
        bp_buffer_printf(&out->texts, "%" PRId32, tokens[at]);
    }
    span->bytes = out->texts.bytes - span->text;
    span->space =
        at > 0 && span->begins && (!speller->tokenizer || speller->spaced || speller->pieces);
    bp_buffer_clear(&text);
    return err;
}

bp_err explain_spans_of(explain_spans *out, const explain_speller *speller, const int32_t *tokens,
                        int64_t count)
{
    bp_err err = BP_OK;

    *out = (explain_spans){.list = bp_alloc("explain.spans", count, sizeof *out->list)};
    for (int64_t at = 0; at < count && err == BP_OK; at += out->list[out->count - 1].count)
        err = add_span(out, speller, tokens, count, at);
    return err;
}

void explain_spans_clear(explain_spans *spans)
{
    bp_buffer_clear(&spans->texts);
    bp_free(spans->list);
    *spans = (explain_spans){0};
}

json_t *explain_spans_text(const explain_spans *spans, int64_t first, int64_t end, size_t most)
{
    bp_buffer text = {0};
    json_t *out;

    for (int64_t s = first; s < end && text.bytes + spans->list[s].bytes <= most; s++) {
        if (spans->list[s].space)
            bp_buffer_printf(&text, " ");
        bp_buffer_add(&text, spans->texts.data + spans->list[s].text, spans->list[s].bytes);
    }
    out = json_stringn(text.data ? text.data : "", text.bytes);
    bp_buffer_clear(&text);
    return out;
}

json_t *explain_spans_json(const explain_spans *spans)
{
    json_t *text = json_array(), *count = json_array(), *begins = json_array(),
           *space = json_array();

    for (int64_t k = 0; k < spans->count; k++) {
        const explain_span *span = &spans->list[k];

        (void)json_array_append_new(
            text,
            json_stringn(spans->texts.data ? spans->texts.data + span->text : "", span->bytes));
        (void)json_array_append_new(count, json_integer((json_int_t)span->count));
        (void)json_array_append_new(begins, json_integer(span->begins));
        (void)json_array_append_new(space, json_integer(span->space));
    }
    return json_pack("{so so so so}", "text", text, "count", count, "begins", begins, "space",
                     space);
}

json_t *explain_token_json(const explain_speller *speller, int64_t token)
{
    bp_buffer name = {0}, text = {0};
    json_t *out;

    if (!speller->tokenizer || token < 0 ||
        bp_tokenizer_token_text(speller->tokenizer, token, &name) != BP_OK)
        bp_buffer_printf(&text, "%" PRId64, token);
    else
        add_text(speller, !speller->continues[token], name.data ? name.data : "", name.bytes,
                 &text);
    out = json_stringn(text.data ? text.data : "", text.bytes);
    bp_buffer_clear(&text);
    bp_buffer_clear(&name);
    return out;
}

json_t *explain_joined_json(const explain_speller *speller, const int32_t *tokens, int64_t count,
                            int64_t at)
{
    json_t *out = NULL;

    for (int64_t first = at > LONGEST ? at - LONGEST : 0; speller->tokenizer && !out && first <= at;
         first++) {
        bp_buffer name = {0}, text = {0};
        int64_t taken = 1;
        bp_err err = bp_tokenizer_characters(speller->tokenizer, tokens + first, count - first,
                                             &name, &taken);

        if (err == BP_OK && taken > 1 && first + taken > at) {
            add_text(speller, !speller->continues[tokens[first]], name.data, name.bytes, &text);
            out = json_stringn(text.data, text.bytes);
        }
        bp_buffer_clear(&text);
        bp_buffer_clear(&name);
    }
    return out ? out : explain_token_json(speller, tokens[at]);
}

void explain_word_at(const explain_spans *spans, int64_t first, int64_t *end, bp_buffer *text)
{
    const char *from = spans->texts.data ? spans->texts.data + spans->list[first].text : "";
    size_t bytes = 0;

    *end = first;
    do
        bytes += spans->list[*end].bytes;
    while (++*end < spans->count && !spans->list[*end].begins);
    while (bytes > 0 && *from == ' ') {
        from++;
        bytes--;
    }
    bp_buffer_add(text, from, bytes);
}
