/* A trie whose edges are in one hash table. */
#include "text/unicode/trie.h"
#include "base/mem.h"

static void place(bp_trie *trie, bp_trie_slot slot)
{
    uint64_t at = bp_trie_hash(slot.key) & trie->mask;

    while (trie->slots[at].child != BP_TRIE_NONE)
        at = (at + 1) & trie->mask;
    trie->slots[at] = slot;
}

/* Reserve capacity for one more node: the table stays half empty. */
static void grow(bp_trie *trie)
{
    bp_trie_slot *old = trie->slots;
    uint64_t old_slots = !old ? 0 : trie->mask + 1;

    trie->values = bp_grow("text.trie", trie->values, &trie->capacity, (int64_t)trie->nodes + 1,
                           sizeof *trie->values);
    if (2 * (uint64_t)trie->nodes < old_slots)
        return;
    trie->mask = (old_slots == 0 ? 2048 : 2 * old_slots) - 1;
    trie->slots = bp_alloc("text.trie", (int64_t)trie->mask + 1, sizeof *trie->slots);
    for (uint64_t k = 0; k < old_slots; k++)
        if (old[k].child != BP_TRIE_NONE)
            place(trie, old[k]);
    bp_free(old);
}

void bp_trie_add(bp_trie *trie, const char *key, size_t bytes, uint32_t value)
{
    uint32_t node = BP_TRIE_ROOT;

    if (trie->nodes == 0)
        trie->nodes = BP_TRIE_ROOT + 1;
    grow(trie);
    for (size_t k = 0; k < bytes; k++) {
        uint8_t byte = (uint8_t)key[k];
        uint32_t next = bp_trie_step(trie, node, byte);

        if (next == BP_TRIE_NONE) {
            grow(trie);
            next = (uint32_t)trie->nodes++;
            place(trie, (bp_trie_slot){(uint64_t)node << 8 | byte, next});
        }
        node = next;
    }
    trie->values[node] = value + 1;
}

void bp_trie_clear(bp_trie *trie)
{
    bp_free(trie->slots);
    bp_free(trie->values);
    *trie = (bp_trie){0};
}
