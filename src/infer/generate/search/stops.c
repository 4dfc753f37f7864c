/* Stop texts: read from a key, checked against a tokenizer, found. Called by setup.c, and by
 * search.c after each token. */
#include "infer/generate/search/stops.h"

#include "base/buffer.h"
#include "base/mem.h"
#include "infer/generate/spell.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

/* Append the character of an escape sequence to `text`; returns the length of the sequence, 0 if it
 * is invalid. */
static size_t read_escape(const char *at, bp_buffer *text)
{
    static const char NAMES[] = "ntr\\,", MEANINGS[] = "\n\t\r\\,";
    const char *name = at[0] ? strchr(NAMES, at[0]) : NULL;

    if (name) {
        bp_buffer_add(text, &MEANINGS[name - NAMES], 1);
        return 1;
    }
    if (at[0] == 'x' && isxdigit((unsigned char)at[1]) && isxdigit((unsigned char)at[2])) {
        char digits[3] = {at[1], at[2], '\0'}, byte = (char)strtol(digits, NULL, 16);

        bp_buffer_add(text, &byte, 1);
        return 3;
    }
    return 0;
}

/* One text up to a comma or the end; *at moves past it. */
static bp_err read_text(const char **at, bp_buffer *text)
{
    const char *from = *at;

    while (**at && **at != ',') {
        size_t bytes;

        if (**at != '\\') {
            bp_buffer_add(text, (*at)++, 1);
            continue;
        }
        bytes = read_escape(*at + 1, text);
        if (bytes == 0)
            return BP_FAIL(BP_ERR_CONFIG, "generate.bad_escape",
                           "'\\%.1s' in a stop text means nothing: at generate.stop; use \\n, \\t, "
                           "\\r, \\\\, \\, or \\xNN",
                           *at + 1);
        *at += 1 + bytes;
    }
    if (text->bytes == 0)
        return BP_FAIL(BP_ERR_CONFIG, "generate.empty_stop",
                       "a stop text is empty, before '%s': at generate.stop; leave it out, or "
                       "write a comma that is meant as \\,",
                       from);
    return BP_OK;
}

bp_err bp_stops_read(bp_stops *stops, const char *list)
{
    const char *at = list;
    bp_err err = BP_OK;

    *stops = (bp_stops){0};
    do {
        bp_buffer text = {0};
        int64_t n = stops->count + 1;

        err = read_text(&at, &text);
        stops->texts = bp_realloc("generate.stops", stops->texts, n, sizeof *stops->texts);
        stops->bytes = bp_realloc("generate.stops", stops->bytes, n, sizeof *stops->bytes);
        stops->bytes[n - 1] = text.bytes;
        stops->texts[n - 1] = bp_buffer_take(&text);
        stops->count = n;
    } while (err == BP_OK && *at++ == ',');
    return err;
}

void bp_stops_clear(bp_stops *stops)
{
    for (int64_t k = 0; k < stops->count; k++)
        bp_free(stops->texts[k]);
    bp_free(stops->texts);
    bp_free(stops->bytes);
    *stops = (bp_stops){0};
}

/* ---- with a tokenizer ---- */

/* Check that encoding and decoding return the same text. */
static bp_err spells(bool *can, bp_encoder *encoder, const bp_tokenizer *tokenizer,
                     const char *text, size_t bytes)
{
    bp_ids ids = {0};
    char *again = NULL;
    size_t again_bytes = 0;
    bp_err err = bp_encode(encoder, text, bytes, &ids);

    *can = err == BP_OK;
    for (int64_t k = 0; *can && k < ids.count; k++)
        *can = (int64_t)ids.data[k] != bp_tokenizer_unk(tokenizer);
    if (*can)
        err = bp_decode(tokenizer, ids.data, ids.count, &again, &again_bytes);
    *can = *can && err == BP_OK && again_bytes == bytes && memcmp(again, text, bytes) == 0;
    bp_free(again);
    bp_ids_clear(&ids);
    return err;
}

static bp_err fail_spelling(const char *text, size_t bytes)
{
    bp_buffer shown = {0};
    bp_err err;

    bp_text_escape(&shown, text, bytes);
    err = BP_FAIL(BP_ERR_CONFIG, "generate.stop_not_encodable",
                  "the stop text '%s' can't be encoded by the model's tokenizer: at generate.stop; "
                  "use a text of its vocabulary",
                  shown.data);
    bp_buffer_clear(&shown);
    return err;
}

bp_err bp_stops_use(bp_stops *stops, const bp_tokenizer *tokenizer)
{
    bp_encoder *encoder = NULL;
    bp_err err = bp_encoder_new(&encoder, tokenizer);

    stops->tokenizer = tokenizer;
    for (int64_t k = 0; err == BP_OK && k < stops->count; k++) {
        bool can = false;

        err = spells(&can, encoder, tokenizer, stops->texts[k], stops->bytes[k]);
        if (err == BP_OK && !can)
            err = fail_spelling(stops->texts[k], stops->bytes[k]);
    }
    bp_encoder_free(&encoder);
    return err;
}

int64_t bp_stops_find(const bp_stops *stops, const char *text, size_t bytes)
{
    int64_t first = -1;

    for (int64_t k = 0; k < stops->count; k++) {
        const char *found = memmem(text, bytes, stops->texts[k], stops->bytes[k]);

        if (found && (first < 0 || found - text < first))
            first = found - text;
    }
    return first;
}

#define WINDOW 16 /* tokens decoded at first */
#define SEAM   8  /* bytes that a decoder may still change once another token follows */

/* Where in the text of the last `window` tokens a new hit can begin; -1 if the window is too short
 * to know. A hit is new only if it reaches into the last token, or its seam. */
static int64_t new_from(const bp_stops *stops, const int32_t *last, int64_t window, size_t longest)
{
    char *text = NULL;
    size_t bytes = 0;
    bp_err err = bp_spell(stops->tokenizer, last, window - 1, &text, &bytes);

    bp_free(text);
    return err == BP_OK && bytes >= longest + 2 * SEAM ? (int64_t)(bytes - longest - SEAM) : -1;
}

bool bp_stops_hit(const bp_stops *stops, const int32_t *tokens, int64_t count)
{
    int64_t window = WINDOW, from = 0;
    size_t longest = 0, bytes = 0;
    char *text = NULL;
    bool hit = false;

    if (stops->count == 0)
        return false;
    for (int64_t k = 0; k < stops->count; k++)
        longest = stops->bytes[k] > longest ? stops->bytes[k] : longest;
    while (window < count && (from = new_from(stops, tokens + count - window, window, longest)) < 0)
        window *= 2;
    if (window >= count) {
        window = count;
        from = 0;
    }
    if (bp_spell(stops->tokenizer, tokens + count - window, window, &text, &bytes) == BP_OK &&
        bytes > (size_t)from)
        hit = bp_stops_find(stops, text + from, bytes - (size_t)from) >= 0;
    bp_free(text);
    return hit;
}
