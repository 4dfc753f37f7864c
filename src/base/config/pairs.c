/* Lists of pairs. */
#include "base/config/pairs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST ((int64_t)1 << 20)

int bp_word_number(const char *words, const char *word, size_t bytes)
{
    const char *at = words;

    for (int k = 0;; k++) {
        size_t length = strcspn(at, "|");

        if (length == bytes && strncmp(at, word, bytes) == 0)
            return k;
        if (at[length] == '\0')
            return -1;
        at += length + 1;
    }
}

const char *bp_word_at(const char *words, int number, size_t *bytes)
{
    const char *at = words;

    for (int k = 0; k < number; k++)
        at += strcspn(at, "|") + 1;
    *bytes = strcspn(at, "|");
    return at;
}

/* *end: what follows the number; the text itself if there is no number within the bounds. */
static int64_t number_of(const char *text, char **end, int64_t least)
{
    int64_t number = strtoll(text, end, 10);

    if (number < least || number > MOST)
        *end = (char *)(uintptr_t)text;
    return number;
}

static int64_t word_of(const char *text, char **end, const char *words)
{
    size_t bytes = strcspn(text, ":, ");
    int number = bp_word_number(words, text, bytes);

    *end = (char *)(uintptr_t)(number < 0 ? text : text + bytes);
    return number + 1;
}

bool bp_pairs_read(int64_t *pairs, int most, const char *text, const char *words)
{
    int64_t number[2];
    int count = 0;

    memset(pairs, 0, (size_t)most * sizeof *pairs);
    for (const char *at = text + strspn(text, "[ "); *at != '\0'; count++) {
        for (int k = 0; k < 2; k++) {
            char *end;

            number[k] =
                words && k == 0 ? word_of(at, &end, words) : number_of(at, &end, words ? 0 : 1);
            if (end == at)
                return false;
            at = end + strspn(end, k == 0 ? ":, " : "], [");
            if (at == end && (k == 0 || *at != '\0'))
                return false;
        }
        if (count == most)
            return false;
        pairs[count] = bp_pair_of(number[0], number[1]);
    }
    return count > 0;
}

void bp_pairs_write(char *text, size_t bytes, const int64_t *pairs, int most, const char *words)
{
    size_t used = 0;

    text[0] = '\0';
    for (int k = 0; k < most && pairs[k] != 0 && used < bytes; k++) {
        const char *comma = k > 0 ? "," : "";
        long long first = bp_pair_first(pairs[k]), second = bp_pair_second(pairs[k]);
        size_t word_bytes;
        const char *word = words ? bp_word_at(words, (int)first - 1, &word_bytes) : NULL;

        used += (size_t)(word ? snprintf(text + used, bytes - used, "%s%.*s:%lld", comma,
                                         (int)word_bytes, word, second)
                              : snprintf(text + used, bytes - used, "%s%lld:%lld", comma, first,
                                         second));
    }
}
