/* A map from byte strings to numbers that keeps its keys, in the order in which they came. */
#pragma once

#include "base/err.h"

#include <stdint.h>

typedef struct bp_strmap_entry {
    int64_t offset; /* of its bytes in keys */
    int64_t value;
    uint32_t bytes;
    uint32_t hash;
} bp_strmap_entry;

typedef struct bp_strmap { /* {0} is an empty one */
    bp_strmap_entry *entries;
    int64_t count, capacity;
    char *keys; /* each with a zero byte after it */
    int64_t key_bytes, key_capacity;
    uint32_t *slots; /* [slot_mask + 1]: number of the entry + 1, 0: free */
    int64_t slot_mask;
} bp_strmap;

/** The entry of a key; NULL if none. Borrowed until the next addition. */
const bp_strmap_entry *bp_strmap_find(const bp_strmap *map, const char *key, size_t bytes);

/** Add `value` to the entry of a key, which is created with 0 if missing; *index is its number, if
 * not NULL.
 *
 * Errors: BP_ERR_SYSTEM.
 */
bp_err bp_strmap_add(bp_strmap *map, const char *key, size_t bytes, int64_t value, int64_t *index);

static inline const char *bp_strmap_key(const bp_strmap *map, int64_t index)
{
    return map->keys + map->entries[index].offset;
}

void bp_strmap_clear(bp_strmap *map);
