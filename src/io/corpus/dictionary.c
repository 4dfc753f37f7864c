/* Texts numbered in order of appearance: label values and tags of a corpus that is written. */
#include "dictionary.h"

#include "base/files/hash.h"
#include "base/mem.h"

#include <string.h>

/* The slot of `text`, or the empty slot for it. */
static int64_t slot_of(const bp_dictionary *dictionary, const char *text)
{
    int64_t mask = dictionary->slot_count - 1;
    int64_t at = (int64_t)(bp_xxh3(text, strlen(text)) & (uint64_t)mask);

    while (dictionary->slots[at] != 0 &&
           strcmp(dictionary->texts[dictionary->slots[at] - 1], text) != 0)
        at = (at + 1) & mask;
    return at;
}

static void grow(bp_dictionary *dictionary)
{
    int64_t capacity = dictionary->capacity == 0 ? 32 : 2 * dictionary->capacity;

    dictionary->texts =
        bp_realloc("io.dictionary", dictionary->texts, capacity, sizeof *dictionary->texts);
    bp_free(dictionary->slots);
    dictionary->slots = bp_alloc("io.dictionary", 2 * capacity, sizeof *dictionary->slots);
    dictionary->slot_count = 2 * capacity;
    dictionary->capacity = capacity;
    for (int64_t k = 0; k < dictionary->count; k++)
        dictionary->slots[slot_of(dictionary, dictionary->texts[k])] = k + 1;
}

int64_t bp_dictionary_code(bp_dictionary *dictionary, const char *text)
{
    int64_t slot;

    if (dictionary->count == dictionary->capacity)
        grow(dictionary);
    slot = slot_of(dictionary, text);
    if (dictionary->slots[slot] == 0) {
        dictionary->texts[dictionary->count++] = bp_strdup(text);
        dictionary->slots[slot] = dictionary->count;
    }
    return dictionary->slots[slot] - 1;
}

void bp_dictionary_clear(bp_dictionary *dictionary)
{
    for (int64_t k = 0; k < dictionary->count; k++)
        bp_free(dictionary->texts[k]);
    bp_free(dictionary->texts);
    bp_free(dictionary->slots);
    memset(dictionary, 0, sizeof *dictionary);
}
