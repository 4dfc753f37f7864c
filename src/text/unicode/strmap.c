/* A hash map from byte strings to numbers, in the order of insertion. */
#include "text/unicode/strmap.h"
#include "base/files/hash.h"
#include "base/mem.h"

#include <string.h>

#define LABEL "text.strmap"

static uint32_t hash_of(const char *key, size_t bytes)
{
    return (uint32_t)bp_xxh3(key, bytes);
}

/* The slot that holds the key, or the free one where it belongs. */
static int64_t slot_of(const bp_strmap *map, const char *key, size_t bytes, uint32_t hash)
{
    int64_t slot = hash & map->slot_mask;

    for (; map->slots[slot] != 0; slot = (slot + 1) & map->slot_mask) {
        const bp_strmap_entry *entry = &map->entries[map->slots[slot] - 1];

        if (entry->hash == hash && entry->bytes == bytes &&
            memcmp(map->keys + entry->offset, key, bytes) == 0)
            break;
    }
    return slot;
}

const bp_strmap_entry *bp_strmap_find(const bp_strmap *map, const char *key, size_t bytes)
{
    uint32_t number;

    if (map->count == 0)
        return NULL;
    number = map->slots[slot_of(map, key, bytes, hash_of(key, bytes))];
    return number == 0 ? NULL : &map->entries[number - 1];
}

/* Slots are kept at most half full. */
static void grow_slots(bp_strmap *map)
{
    int64_t slots = !map->slots ? 1024 : 2 * (map->slot_mask + 1);
    uint32_t *grown = bp_alloc(LABEL, slots, sizeof *grown);

    bp_free(map->slots);
    map->slots = grown;
    map->slot_mask = slots - 1;
    for (int64_t k = 0; k < map->count; k++) {
        int64_t slot = map->entries[k].hash & map->slot_mask;

        while (grown[slot] != 0)
            slot = (slot + 1) & map->slot_mask;
        grown[slot] = (uint32_t)(k + 1);
    }
}

static bp_err reserve(bp_strmap *map, size_t bytes)
{

    if (map->count >= UINT32_MAX - 1 || bytes > UINT32_MAX)
        return BP_FAIL(BP_ERR_SYSTEM, "text.too_many_words",
                       "more than 4,294,967,294 different words, or one as long");
    if (!map->slots || 2 * map->count > map->slot_mask)
        grow_slots(map);
    map->entries =
        bp_grow(LABEL, map->entries, &map->capacity, map->count + 1, sizeof *map->entries);
    map->keys =
        bp_grow(LABEL, map->keys, &map->key_capacity, map->key_bytes + (int64_t)bytes + 1, 1);
    return BP_OK;
}

bp_err bp_strmap_add(bp_strmap *map, const char *key, size_t bytes, int64_t value, int64_t *index)
{
    uint32_t hash = hash_of(key, bytes);
    int64_t slot;
    bp_err err = reserve(map, bytes);

    if (err != BP_OK)
        return err;
    slot = slot_of(map, key, bytes, hash);
    if (map->slots[slot] == 0) {
        map->entries[map->count] =
            (bp_strmap_entry){.offset = map->key_bytes, .bytes = (uint32_t)bytes, .hash = hash};
        if (bytes > 0)
            memcpy(map->keys + map->key_bytes, key, bytes);
        map->keys[map->key_bytes + (int64_t)bytes] = 0;
        map->key_bytes += (int64_t)bytes + 1;
        map->slots[slot] = (uint32_t)++map->count;
    }
    map->entries[map->slots[slot] - 1].value += value;
    if (index)
        *index = map->slots[slot] - 1;
    return BP_OK;
}

void bp_strmap_clear(bp_strmap *map)
{
    bp_free(map->entries);
    bp_free(map->keys);
    bp_free(map->slots);
    *map = (bp_strmap){0};
}
