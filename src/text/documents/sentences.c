/* Where sentences begin: at lines, or after full stops. */
#include "text/documents/sentences_priv.h"

#include "base/err.h"
#include "text/unicode/unicode.h"

#include <stdbool.h>
#include <string.h>
#include <utf8proc.h>

#define LOOK_BYTES 16 /* beyond white space: this many decide whether a sentence begins */

bp_err bp_sentences_of(bp_sentences *out, const char *name)
{
    static const char *const names[] = {"none", "lines", "punctuation"};

    for (int k = 0; k < 3; k++)
        if (strcmp(name, names[k]) == 0) {
            *out = (bp_sentences)k;
            return BP_OK;
        }
    return BP_FAIL(BP_ERR_USAGE, "text.unknown_sentences",
                   "there is no rule '%s' of sentences: at --sentences; choose none, lines or "
                   "punctuation",
                   name);
}

/* ---- characters ---- */

/* The character at text[at], at < bytes; a byte that is not UTF-8 is one of no class. */
static uint32_t character(const uint8_t *text, size_t bytes, size_t at, size_t *length)
{
    uint32_t code_point = 0;

    *length = bp_utf8_decode(text + at, bytes - at, &code_point);
    if (*length > 0)
        return code_point;
    *length = 1;
    return 0xFFFD;
}

static bool is_one_of(uint32_t character, const uint32_t *set)
{
    while (*set != 0 && *set != character)
        set++;
    return *set != 0;
}

static bool ends_sentence(uint32_t c)
{
    static const uint32_t ENDS[] = {'.', '!', '?', 0x2026, 0x203C, 0x2047, 0x2048, 0x2049, 0};

    return is_one_of(c, ENDS);
}

/* Full stops of scripts that are written without spaces. */
static bool ends_without_space(uint32_t c)
{
    static const uint32_t ENDS[] = {0x3002, 0xFF01, 0xFF1F, 0xFF0E, 0xFF61, 0};

    return is_one_of(c, ENDS);
}

static bool closes(uint32_t c)
{
    static const uint32_t CLOSERS[] = {'"',    '\'',   ')',    ']',    '}',    0xBB,   0x2019,
                                       0x201D, 0x203A, 0x300D, 0x300F, 0xFF09, 0x3011, 0};

    return is_one_of(c, CLOSERS);
}

static bool opens(uint32_t c)
{
    static const uint32_t OPENERS[] = {'"',  '\'',   '(',    '[',    '{',    '`', '-',
                                       0xAB, 0x2018, 0x201C, 0x2039, 0x2014, 0};

    return is_one_of(c, OPENERS);
}

/* The end of the White_Space run at text[at), and the newlines in it. */
static size_t skip_space(const uint8_t *text, size_t bytes, size_t at, int *newlines)
{
    const uint8_t *classes = bp_unicode_classes();

    *newlines = 0;
    while (at < bytes) {
        size_t length;
        uint32_t c = character(text, bytes, at, &length);

        if ((classes[c] & BP_CLASS_MASK) != BP_CLASS_SPACE)
            break;
        *newlines += c == '\n';
        at += length;
    }
    return at;
}

/* ---- full stops ---- */

bool bp_sentence_abbreviates(const char *given, size_t word, size_t at)
{
    const uint8_t *text = (const uint8_t *)given;
    static const char *const WORDS[] = {"Mr",  "Mrs", "Ms",  "Dr",  "Prof", "St",  "Jr",
                                        "Sr",  "vs",  "Gen", "Col", "Lt",   "Sgt", "Capt",
                                        "Rev", "Hon", "Sen", "Rep", "Gov",  "Inc", "Ltd",
                                        "Co",  "No",  "Fig", "cf",  "e.g",  "i.e", "approx"};
    size_t length = at - word;

    while (length > 0 && opens(text[at - length]))
        length--;
    if (length == 1 && text[at - 1] >= 'A' && text[at - 1] <= 'Z')
        return true; /* an initial */
    for (size_t k = 0; k < sizeof WORDS / sizeof WORDS[0]; k++)
        if (strlen(WORDS[k]) == length && memcmp(text + at - length, WORDS[k], length) == 0)
            return true;
    return false;
}

/* Text after a full stop and white space begins a sentence, unless with a lower-case letter. */
static bool begins_sentence(const uint8_t *text, size_t bytes, size_t at)
{
    size_t limit = bytes - at < LOOK_BYTES ? bytes : at + LOOK_BYTES, length;

    while (at < limit) {
        uint32_t c = character(text, bytes, at, &length);

        if (!opens(c))
            return utf8proc_category((utf8proc_int32_t)c) != UTF8PROC_CATEGORY_LL;
        at += length;
    }
    return true;
}

/* ---- sentences ---- */

typedef struct stop_state {
    size_t word;         /* start of the current word */
    bool ended, is_wide; /* a full stop was there, of a script without spaces */
} stop_state;

/* One more character that is not White_Space; does a sentence begin with it? */
static bool step(stop_state *state, const uint8_t *text, size_t at, uint32_t c)
{
    if (ends_without_space(c)) {
        state->ended = state->is_wide = true;
    } else if (ends_sentence(c)) {
        state->ended = c != '.' || !bp_sentence_abbreviates((const char *)text, state->word, at);
    } else if (!state->ended || !closes(c)) {
        if (state->is_wide)
            return true;
        state->ended = false;
    }
    return false;
}

size_t bp_sentence_next(bp_sentences rule, const char *given, size_t bytes, size_t from)
{
    const uint8_t *text = (const uint8_t *)given;
    int newlines;
    size_t at = skip_space(text, bytes, from, &newlines);
    stop_state state = {.word = at};

    while (at < bytes) {
        size_t length, next = skip_space(text, bytes, at, &newlines);

        if (next > at) {
            bool begins =
                rule == BP_SENTENCES_LINES
                    ? newlines > 0
                    : newlines > 1 ||
                          (state.ended && (state.is_wide || begins_sentence(text, bytes, next)));
            if (next < bytes && begins)
                return at;
            at = next;
            state = (stop_state){.word = at};
            continue;
        }
        uint32_t c = character(text, bytes, at, &length);
        if (rule == BP_SENTENCES_PUNCTUATION && step(&state, text, at, c))
            return at;
        at += length;
    }
    return bytes;
}

size_t bp_sentence_cut(bp_sentences rule, const char *text, size_t bytes)
{
    size_t cut = 0;

    for (size_t at = bp_sentence_next(rule, text, bytes, 0); at < bytes;
         at = bp_sentence_next(rule, text, bytes, at)) {
        int newlines;

        if (skip_space((const uint8_t *)text, bytes, at, &newlines) + LOOK_BYTES > bytes)
            break;
        cut = at;
    }
    return cut;
}
