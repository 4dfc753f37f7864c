/* A dictionary: texts numbered in the order of their first appearance. Local: no MPI. */
#pragma once

#include <stdint.h>

typedef struct bp_dictionary { /* {0} is an empty one */
    char **texts;              /* [count] */
    int64_t count, capacity;
    int64_t *slots; /* [slot_count]: number + 1, 0 empty; open addressing */
    int64_t slot_count;
} bp_dictionary;

/** The number of `text`; adds it if it is new. */
int64_t bp_dictionary_code(bp_dictionary *dictionary, const char *text);
void bp_dictionary_clear(bp_dictionary *dictionary);
