/* Porter's stemmer: rules by suffix, each with the least measure of the stem that it leaves. */
#include "text_metrics/porter_priv.h"

#include <stdbool.h>
#include <string.h>

#define LONGEST 200 /* longer runs of letters are not words */

typedef struct rule {
    const char *suffix, *to;
    int above; /* the stem's measure has to be above; -1: any */
} rule;

static bool is_consonant(const uint32_t *word, int64_t at)
{
    if (word[at] < 0x80 && word[at] != 0 && strchr("aeiou", (int)word[at]))
        return false;
    return word[at] != 'y' || at == 0 || !is_consonant(word, at - 1);
}

/* How often a vowel is followed by a consonant. */
static int64_t measure(const uint32_t *word, int64_t length)
{
    int64_t count = 0;

    for (int64_t k = 1; k < length; k++)
        count += is_consonant(word, k) && !is_consonant(word, k - 1);
    return count;
}

static bool has_vowel(const uint32_t *word, int64_t length)
{
    for (int64_t k = 0; k < length; k++)
        if (!is_consonant(word, k))
            return true;
    return false;
}

static bool ends(const uint32_t *word, int64_t length, const char *suffix)
{
    int64_t bytes = (int64_t)strlen(suffix);

    if (length < bytes)
        return false;
    for (int64_t k = 0; k < bytes; k++)
        if (word[length - bytes + k] != (unsigned char)suffix[k])
            return false;
    return true;
}

static bool ends_cvc(const uint32_t *word, int64_t n)
{
    if (n == 2)
        return !is_consonant(word, 0) && is_consonant(word, 1);
    return n >= 3 && is_consonant(word, n - 3) && !is_consonant(word, n - 2) &&
           is_consonant(word, n - 1) && word[n - 1] != 'w' && word[n - 1] != 'x' &&
           word[n - 1] != 'y';
}

static int64_t put(uint32_t *word, int64_t stem, const char *to)
{
    for (; *to != '\0'; to++)
        word[stem++] = (unsigned char)*to;
    return stem;
}

/* The first rule whose suffix fits decides. */
static int64_t apply(uint32_t *word, int64_t length, const rule *rules)
{
    for (; rules->suffix; rules++) {
        int64_t stem = length - (int64_t)strlen(rules->suffix);

        if (!ends(word, length, rules->suffix))
            continue;
        return measure(word, stem) > rules->above ? put(word, stem, rules->to) : length;
    }
    return length;
}

static int64_t step_1a(uint32_t *word, int64_t length)
{
    static const rule rules[] = {
        {"sses", "ss", -1}, {"ies", "i", -1}, {"ss", "ss", -1}, {"s", "", -1}, {0}};

    if (length == 4 && ends(word, length, "ies"))
        return 3;
    return apply(word, length, rules);
}

static int64_t step_1b(uint32_t *word, int64_t length)
{
    static const rule rules[] = {{"at", "ate", -1}, {"bl", "ble", -1}, {"iz", "ize", -1}, {0}};
    int64_t stem, longer;
    uint32_t last;

    if (ends(word, length, "ied"))
        return length == 4 ? 3 : length - 2;
    if (ends(word, length, "eed"))
        return measure(word, length - 3) > 0 ? length - 1 : length;
    stem = ends(word, length, "ed") ? length - 2 : length;
    if (stem == length || !has_vowel(word, stem))
        stem = ends(word, length, "ing") ? length - 3 : length;
    if (stem == length || !has_vowel(word, stem))
        return length;
    longer = apply(word, stem, rules);
    if (longer != stem)
        return longer;
    last = word[stem - 1];
    if (stem >= 2 && last == word[stem - 2] && is_consonant(word, stem - 1))
        return last == 'l' || last == 's' || last == 'z' ? stem : stem - 1;
    return measure(word, stem) == 1 && ends_cvc(word, stem) ? put(word, stem, "e") : stem;
}

static int64_t step_2(uint32_t *word, int64_t length)
{
    static const rule rules[] = {{"ational", "ate", 0}, {"tional", "tion", 0},
                                 {"enci", "ence", 0},   {"anci", "ance", 0},
                                 {"izer", "ize", 0},    {"bli", "ble", 0},
                                 {"alli", "al", 0},     {"entli", "ent", 0},
                                 {"eli", "e", 0},       {"ousli", "ous", 0},
                                 {"ization", "ize", 0}, {"ation", "ate", 0},
                                 {"ator", "ate", 0},    {"alism", "al", 0},
                                 {"iveness", "ive", 0}, {"fulness", "ful", 0},
                                 {"ousness", "ous", 0}, {"aliti", "al", 0},
                                 {"iviti", "ive", 0},   {"biliti", "ble", 0},
                                 {"fulli", "ful", 0},   {0}};
    int64_t shorter;

    if (ends(word, length, "alli") && measure(word, length - 4) > 0)
        return step_2(word, length - 2);
    shorter = apply(word, length, rules);
    if (shorter == length && ends(word, length, "logi") && measure(word, length - 3) > 0)
        return length - 1;
    return shorter;
}

static int64_t step_4(uint32_t *word, int64_t length)
{
    static const rule rules[] = {{"al", "", 1},    {"ance", "", 1}, {"ence", "", 1}, {"er", "", 1},
                                 {"ic", "", 1},    {"able", "", 1}, {"ible", "", 1}, {"ant", "", 1},
                                 {"ement", "", 1}, {"ment", "", 1}, {"ent", "", 1},  {0}};
    static const rule others[] = {{"ou", "", 1},  {"ism", "", 1}, {"ate", "", 1}, {"iti", "", 1},
                                  {"ous", "", 1}, {"ive", "", 1}, {"ize", "", 1}, {0}};

    for (const rule *r = rules; r->suffix; r++)
        if (ends(word, length, r->suffix))
            return apply(word, length, rules);
    if (ends(word, length, "ion"))
        return measure(word, length - 3) > 1 && (word[length - 4] == 's' || word[length - 4] == 't')
                   ? length - 3
                   : length;
    return apply(word, length, others);
}

static int64_t step_5(uint32_t *word, int64_t length)
{
    if (ends(word, length, "e")) {
        int64_t m = measure(word, length - 1);

        if (m > 1 || (m == 1 && !ends_cvc(word, length - 1)))
            length--;
    }
    return ends(word, length, "ll") && measure(word, length - 1) > 1 ? length - 1 : length;
}

static bool is_irregular(uint32_t *word, int64_t *length)
{
    static const char *const forms[][2] = {
        {"sky", "sky"},        {"skies", "sky"},        {"dying", "die"},
        {"lying", "lie"},      {"tying", "tie"},        {"news", "news"},
        {"innings", "inning"}, {"inning", "inning"},    {"outings", "outing"},
        {"outing", "outing"},  {"cannings", "canning"}, {"canning", "canning"},
        {"howe", "howe"},      {"proceed", "proceed"},  {"exceed", "exceed"},
        {"succeed", "succeed"}};

    for (size_t k = 0; k < sizeof forms / sizeof forms[0]; k++)
        if (*length == (int64_t)strlen(forms[k][0]) && ends(word, *length, forms[k][0])) {
            *length = put(word, 0, forms[k][1]);
            return true;
        }
    return false;
}

int64_t bp_porter_stem(uint32_t *word, int64_t length)
{
    static const rule step_3[] = {
        {"icate", "ic", 0}, {"ative", "", 0}, {"alize", "al", 0}, {"iciti", "ic", 0},
        {"ical", "ic", 0},  {"ful", "", 0},   {"ness", "", 0},    {0}};

    if (is_irregular(word, &length) || length <= 2 || length > LONGEST)
        return length;
    length = step_1b(word, step_1a(word, length));
    if (length > 2 && word[length - 1] == 'y' && is_consonant(word, length - 2))
        word[length - 1] = 'i';
    length = apply(word, step_2(word, length), step_3);
    return step_5(word, step_4(word, length));
}
