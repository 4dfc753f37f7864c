/* A growing list of token ids. */
#pragma once

#include <stdint.h>

/** A growing list of ids; the caller owns it: start with {0}, end with bp_ids_clear. */
typedef struct bp_ids {
    uint32_t *data;
    int64_t count, capacity;
} bp_ids;
void bp_ids_clear(bp_ids *ids);
/** Reserve capacity for `more` ids; ends the program when out of memory (bp_alloc). */
void bp_ids_reserve(bp_ids *ids, int64_t more);
