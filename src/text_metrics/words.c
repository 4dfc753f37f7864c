/* Words of a line, as each metric cuts them: the first step of all. */
#include "base/files/hash.h"
#include "base/mem.h"
#include "text/unicode/characters.h"
#include "text_metrics/words_priv.h"

#include <string.h>

void bp_words_clear(bp_words *words)
{
    bp_free(words->list);
    bp_free(words->places);
    bp_buffer_clear(&words->text[0]);
    bp_buffer_clear(&words->text[1]);
    *words = (bp_words){0};
}

void bp_words_add(bp_words *words, uint64_t word)
{
    words->list = bp_grow("metrics.words", words->list, &words->capacity, words->count + 1,
                          sizeof *words->list);
    words->list[words->count++] = word;
}

static void add_span(bp_words *words, const char *text, size_t bytes)
{
    bp_words_add(words, bp_xxh3(text, bytes));
    if (words->spans) {
        words->places =
            bp_realloc("metrics.words", words->places, words->capacity, sizeof(bp_line));
        words->places[words->count - 1] = (bp_line){text, bytes};
    }
}

/* Runs between white space. */
static void split(bp_words *words, const char *text, size_t bytes)
{
    size_t start = 0, length;
    uint32_t c;

    words->count = 0;
    for (size_t at = 0; at < bytes; at += length) {
        length = bp_character_at(text + at, bytes - at, &c);
        if (!bp_character_is_space(c))
            continue;
        if (at > start)
            add_span(words, text + start, at - start);
        start = at + length;
    }
    if (bytes > start)
        add_span(words, text + start, bytes - start);
}

/* ---- BLEU ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_point(char c)
{
    return c == '.' || c == ',';
}

/* ASCII that is always a word of its own: all punctuation but ' , - and . */
static bool is_punctuation(char c)
{
    return strchr("{|}~[\\]^_`!\"#$%&()*+:;<=>?@/", c) && c != '\0';
}

static const char *const ENTITIES[][2] = {
    {"&quot;", "\""}, {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}};

/* One after another over the whole line, as the original does: "&amp;lt;" becomes "<". */
static void replace(bp_words *words, const char *from, const char *to)
{
    bp_buffer *in = &words->text[0], *out = &words->text[1], other;
    size_t bytes = strlen(from);

    out->bytes = 0;
    for (size_t at = 0; at < in->bytes;) {
        bool here = at + bytes <= in->bytes && memcmp(in->data + at, from, bytes) == 0;

        bp_buffer_add(out, here ? to : in->data + at, here ? strlen(to) : 1);
        at += here ? bytes : 1;
    }
    other = *in;
    *in = *out;
    *out = other;
}

/* The four rules of mteval-v13a.pl, one after another. `rule` gives how many bytes it takes at `in`
 * and puts what they become; bytes of longer characters behave as one that is not a digit. */
typedef size_t (*rewrite)(bp_buffer *out, const char *in, size_t bytes);

static size_t rule_always(bp_buffer *out, const char *in, size_t bytes)
{
    (void)bytes;
    if (is_punctuation(in[0]))
        bp_buffer_printf(out, " %c ", in[0]);
    else
        bp_buffer_add(out, in, 1);
    return 1;
}

static size_t rule_before(bp_buffer *out, const char *in, size_t bytes)
{
    bp_buffer_add(out, in, 1);
    if (bytes < 2 || is_digit(in[0]) || !is_point(in[1]))
        return 1;
    bp_buffer_printf(out, " %c ", in[1]);
    return 2;
}

static size_t rule_after(bp_buffer *out, const char *in, size_t bytes)
{
    if (bytes < 2 || !is_point(in[0]) || is_digit(in[1])) {
        bp_buffer_add(out, in, 1);
        return 1;
    }
    bp_buffer_printf(out, " %c ", in[0]);
    bp_buffer_add(out, in + 1, 1);
    return 2;
}

static size_t rule_dash(bp_buffer *out, const char *in, size_t bytes)
{
    bp_buffer_add(out, in, 1);
    if (bytes < 2 || !is_digit(in[0]) || in[1] != '-')
        return 1;
    bp_buffer_add(out, " - ", 3);
    return 2;
}

static void apply_rules(bp_words *words)
{
    static const rewrite rules[] = {rule_always, rule_before, rule_after, rule_dash};

    for (size_t r = 0; r < sizeof rules / sizeof rules[0]; r++) {
        bp_buffer *in = &words->text[0], *out = &words->text[1], other;

        out->bytes = 0;
        for (size_t at = 0; at < in->bytes;)
            at += rules[r](out, in->data + at, in->bytes - at);
        other = *in;
        *in = *out;
        *out = other;
    }
    split(words, words->text[0].data, words->text[0].bytes);
}

/* sacreBLEU's ranges. Two of them were meant to be beyond U+FFFF, but "\u20000" to "\u2a6d6" are
 * strings of two characters in Python: what is compared with them is within U+2001 and U+2A6D. */
static bool is_chinese(uint32_t c)
{
    static const uint32_t ranges[][2] = {
        {0x3400, 0x4DB5}, {0x4E00, 0x9FA5}, {0x9FA6, 0x9FBB}, {0xF900, 0xFA2D}, {0xFA30, 0xFA6A},
        {0xFA70, 0xFAD9}, {0x2001, 0x2A6D}, {0x2F81, 0x2FA1}, {0xFF00, 0xFFEF}, {0x2E80, 0x2EFF},
        {0x3000, 0x303F}, {0x31C0, 0x31EF}, {0x2F00, 0x2FDF}, {0x2FF0, 0x2FFF}, {0x3100, 0x312F},
        {0x31A0, 0x31BF}, {0xFE10, 0xFE1F}, {0xFE30, 0xFE4F}, {0x3200, 0x32FF}, {0x3300, 0x33FF}};

    for (size_t k = 0; k < sizeof ranges / sizeof ranges[0]; k++)
        if (c >= ranges[k][0] && c <= ranges[k][1])
            return true;
    return false;
}

/* The line without white space at its ends. */
static bp_line strip(bp_line line, bool left)
{
    size_t first = line.bytes, end = 0, length;
    uint32_t c;

    for (size_t at = 0; at < line.bytes; at += length) {
        length = bp_character_at(line.text + at, line.bytes - at, &c);
        if (bp_character_is_space(c))
            continue;
        first = first < at ? first : at;
        end = at + length;
    }
    if (end == 0) /* nothing else; the text may be NULL */
        return (bp_line){line.text, 0};
    first = left ? first : 0;
    return (bp_line){line.text + first, end - first};
}

void bp_words_of_bleu(bp_words *words, bp_line line, bp_bleu_words how)
{
    bp_buffer *text = &words->text[0];

    text->bytes = 0;
    line = strip(line, how == BP_WORDS_ZH);
    if (how == BP_WORDS_NONE) {
        split(words, line.text, line.bytes);
        return;
    }
    if (how == BP_WORDS_13A) {
        bp_buffer_add(text, " ", 1);
        bp_buffer_add(text, line.text, line.bytes);
        replace(words, "<skipped>", "");
        for (size_t k = 0; k < sizeof ENTITIES / sizeof ENTITIES[0]; k++)
            replace(words, ENTITIES[k][0], ENTITIES[k][1]);
        bp_buffer_add(text, " ", 1);
        apply_rules(words);
        return;
    }
    for (size_t at = 0, length; at < line.bytes; at += length) {
        uint32_t c;

        length = bp_character_at(line.text + at, line.bytes - at, &c);
        bp_buffer_add(text, " ", is_chinese(c));
        bp_buffer_add(text, line.text + at, length);
        bp_buffer_add(text, " ", is_chinese(c));
    }
    apply_rules(words);
}

/* ---- others ---- */

void bp_words_of_rouge(bp_words *words, bp_line line)
{
    bp_buffer *text = &words->text[0];

    text->bytes = 0;
    bp_text_lowercase(text, line.text, line.bytes);
    for (size_t k = 0; k < text->bytes; k++)
        if (!is_digit(text->data[k]) && !(text->data[k] >= 'a' && text->data[k] <= 'z'))
            text->data[k] = ' ';
    split(words, text->data, text->bytes);
}

static bool is_article(const char *text, size_t bytes)
{
    return (bytes == 1 && text[0] == 'a') || (bytes == 2 && memcmp(text, "an", 2) == 0) ||
           (bytes == 3 && memcmp(text, "the", 3) == 0);
}

/* Runs of letters, numbers and "_" that are articles become a space. */
static void drop_articles(bp_buffer *out, const bp_buffer *in)
{
    size_t start = 0, length;
    uint32_t c;

    for (size_t at = 0; at <= in->bytes && in->bytes > 0; at += length) {
        length = at < in->bytes ? bp_character_at(in->data + at, in->bytes - at, &c) : 1;
        if (at < in->bytes && bp_character_is_word(c))
            continue;
        if (is_article(in->data + start, at - start))
            bp_buffer_add(out, " ", 1);
        else
            bp_buffer_add(out, in->data + start, at - start);
        if (at < in->bytes)
            bp_buffer_add(out, in->data + at, length);
        start = at + length;
    }
}

void bp_words_of_answer(bp_words *words, bp_line line)
{
    bp_buffer *lower = &words->text[0], *out = &words->text[1];
    size_t kept = 0;

    lower->bytes = out->bytes = 0;
    bp_text_lowercase(lower, line.text, line.bytes);
    for (size_t k = 0; k < lower->bytes; k++)
        if (lower->data[k] == '\0' ||
            (!is_punctuation(lower->data[k]) && !strchr("',-.", lower->data[k])))
            lower->data[kept++] = lower->data[k];
    lower->bytes = kept;
    drop_articles(out, lower);
    split(words, out->data, out->bytes);
}

void bp_words_of_characters(bp_words *words, bp_line line)
{
    words->count = 0;
    for (size_t at = 0, length; at < line.bytes; at += length) {
        uint32_t c;

        length = bp_character_at(line.text + at, line.bytes - at, &c);
        if (!bp_character_is_space(c))
            bp_words_add(words, c);
    }
}
