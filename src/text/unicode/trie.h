/* A trie of byte strings: the keys that a text begins with, shortest first. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define BP_TRIE_ROOT 1u
#define BP_TRIE_NONE 0u

typedef struct bp_trie_slot {
    uint64_t key;   /* node << 8 | byte */
    uint32_t child; /* BP_TRIE_NONE: free */
} bp_trie_slot;

typedef struct bp_trie { /* {0} is an empty one; bp_trie_clear ends it */
    bp_trie_slot *slots; /* [mask + 1] */
    uint64_t mask;
    uint32_t *values; /* [nodes]: value + 1, 0: no key ends here */
    int64_t nodes, capacity;
} bp_trie;

/** Give a key (not empty) its value; an existing key gets the new one. */
void bp_trie_add(bp_trie *trie, const char *key, size_t bytes, uint32_t value);
void bp_trie_clear(bp_trie *trie);

static inline uint64_t bp_trie_hash(uint64_t key)
{
    key *= 0x9E3779B97F4A7C15u;
    return key ^ key >> 29;
}

/** The node after `byte`; BP_TRIE_NONE if no key continues this way. Begin at BP_TRIE_ROOT. */
static inline uint32_t bp_trie_step(const bp_trie *trie, uint32_t node, uint8_t byte)
{
    uint64_t key = (uint64_t)node << 8 | byte;

    if (!trie->slots)
        return BP_TRIE_NONE;
    for (uint64_t at = bp_trie_hash(key) & trie->mask;; at = (at + 1) & trie->mask) {
        const bp_trie_slot *slot = &trie->slots[at];

        if (slot->key == key || slot->child == BP_TRIE_NONE)
            return slot->child;
    }
}

/** The value of the key that ends at a node; -1 if none does. */
static inline int64_t bp_trie_value(const bp_trie *trie, uint32_t node)
{
    return (int64_t)trie->values[node] - 1;
}
