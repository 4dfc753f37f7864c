/* Byte pair encoding: the table of merges, and encoding one piece. */
#include "text/pipeline/bpe.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define SCRATCH_KEEP 65536 /* symbols: working memory for longer pieces is freed at once */

/* ---- the table of merges ---- */

static uint64_t hash_pair(uint32_t left, uint32_t right)
{
    uint64_t key = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;

    return key ^ key >> 32;
}

/* The slot of a pair, or the free one where it belongs. */
static bp_pair_slot *slot_of(const bp_merges *merges, uint32_t left, uint32_t right)
{
    uint64_t at = hash_pair(left, right) & merges->mask;
    bp_pair_slot *slot = &merges->slots[at];

    while (slot->rank != BP_NO_RANK && (slot->left != left || slot->right != right)) {
        at = (at + 1) & merges->mask;
        slot = &merges->slots[at];
    }
    return slot;
}

static inline uint32_t rank_of(const bp_merges *merges, uint32_t left, uint32_t right)
{
    return slot_of(merges, left, right)->rank;
}

static void alloc_tables(bp_merges *merges)
{
    int64_t slots = 1024;

    while (slots < 2 * merges->count)
        slots *= 2;
    merges->mask = (uint64_t)slots - 1;
    merges->slots = bp_alloc("text.merges", slots, sizeof *merges->slots);
    merges->byte_ranks = bp_alloc("text.merges", 256 * 256, sizeof *merges->byte_ranks);
    for (int64_t k = 0; k < slots; k++)
        merges->slots[k].rank = BP_NO_RANK;
}

static int compare_pairs(const void *a, const void *b)
{
    const bp_merge *p = a, *q = b;

    if (p->left != q->left)
        return p->left < q->left ? -1 : 1;
    return (p->right > q->right) - (p->right < q->right);
}

/* The result of merging the pair of this rank. */
static inline uint32_t result_of(const bp_merges *merges, uint32_t rank, uint32_t left,
                                 uint32_t right)
{
    const bp_merge key = {.left = left, .right = right}, *found;

    if (!merges->groups)
        return merges->list[rank].result;
    found = bsearch(&key, merges->list + merges->groups[rank],
                    (size_t)(merges->groups[rank + 1] - merges->groups[rank]), sizeof key,
                    compare_pairs);
    return found->result;
}

bp_err bp_merges_init(bp_merges *merges, bp_merge *list, int64_t count)
{
    int64_t group = 0;

    merges->list = list;
    merges->count = count;
    alloc_tables(merges);
    for (int64_t rank = 0; rank < count; rank++) {
        bp_pair_slot *slot = slot_of(merges, list[rank].left, list[rank].right);

        if (slot->rank != BP_NO_RANK)
            return BP_FAIL(BP_ERR_FORMAT, "merges.twice", "merge %lld repeats merge %lld",
                           (long long)rank, (long long)slot->rank);
        while (merges->groups && rank == merges->groups[group + 1])
            group++;
        *slot = (bp_pair_slot){list[rank].left, list[rank].right,
                               (uint32_t)(merges->groups ? group : rank)};
    }
    for (int left = 0; left < 256; left++)
        for (int right = 0; right < 256; right++)
            merges->byte_ranks[256 * left + right] =
                rank_of(merges, merges->byte_ids[left], merges->byte_ids[right]);
    return BP_OK;
}

void bp_merges_clear(bp_merges *merges)
{
    bp_free(merges->list);
    bp_free(merges->groups);
    bp_free(merges->slots);
    bp_free(merges->byte_ranks);
    *merges = (bp_merges){0};
}

/* ---- ids ---- */

void bp_ids_reserve(bp_ids *ids, int64_t more)
{
    ids->data =
        bp_grow("text.ids", ids->data, &ids->capacity, ids->count + more, sizeof *ids->data);
}

void bp_ids_clear(bp_ids *ids)
{
    bp_free(ids->data);
    *ids = (bp_ids){0};
}

/* ---- short pieces: look at all pairs for every merge ---- */

/* rank[k]: of symbols k and k + 1. Both arrays are used up. */
static void merge_few(const bp_merges *merges, uint32_t *symbol, uint32_t *rank, size_t count,
                      bp_ids *ids)
{
    while (count > 1) {
        size_t best = 0;

        for (size_t k = 1; k + 1 < count; k++)
            if (rank[k] < rank[best])
                best = k;
        if (rank[best] == BP_NO_RANK)
            break;
        symbol[best] = result_of(merges, rank[best], symbol[best], symbol[best + 1]);
        count--;
        memmove(symbol + best + 1, symbol + best + 2, (count - best - 1) * sizeof *symbol);
        memmove(rank + best, rank + best + 1, (count - best) * sizeof *rank);
        if (best + 1 < count)
            rank[best] = rank_of(merges, symbol[best], symbol[best + 1]);
        if (best > 0)
            rank[best - 1] = rank_of(merges, symbol[best - 1], symbol[best]);
    }
    bp_ids_reserve(ids, (int64_t)count);
    memcpy(ids->data + ids->count, symbol, count * sizeof *symbol);
    ids->count += (int64_t)count;
}

static void merge_short(const bp_merges *merges, const uint8_t *piece, size_t count, bp_ids *ids)
{
    uint32_t symbol[BP_BPE_SHORT], rank[BP_BPE_SHORT];

    for (size_t k = 0; k < count; k++) {
        symbol[k] = merges->byte_ids[piece[k]];
        rank[k] = k + 1 < count ? merges->byte_ranks[256 * piece[k] + piece[k + 1]] : BP_NO_RANK;
    }
    merge_few(merges, symbol, rank, count, ids);
}

static void merge_short_symbols(const bp_merges *merges, const uint32_t *symbols, size_t count,
                                bp_ids *ids)
{
    uint32_t symbol[BP_BPE_SHORT], rank[BP_BPE_SHORT];

    for (size_t k = 0; k < count; k++) {
        symbol[k] = symbols[k];
        rank[k] = k + 1 < count ? rank_of(merges, symbols[k], symbols[k + 1]) : BP_NO_RANK;
    }
    merge_few(merges, symbol, rank, count, ids);
}

/* ---- long pieces: a list of symbols and a heap of pairs ---- */

#define NONE UINT32_MAX

typedef struct merging {
    uint32_t *symbol,
        *rank; /* rank[k]: of symbol k and its right neighbour; NONE when merged away */
    uint32_t *left, *right; /* neighbours */
    uint64_t *heap; /* rank << 32 | place; entries that rank[] no longer confirms are skipped */
    int64_t heap_count;
} merging;

#define SYMBOL_BYTES                                                                               \
    (4 * sizeof(uint32_t) + 2 * sizeof(uint64_t)) /* a merge pops one and pushes two */

void bp_bpe_scratch_clear(bp_bpe_scratch *scratch)
{
    bp_free(scratch->base);
    *scratch = (bp_bpe_scratch){0};
}

static void take_scratch(bp_bpe_scratch *scratch, merging *m, int64_t count)
{
    if (scratch->symbols < count) {
        bp_bpe_scratch_clear(scratch);
        scratch->base = bp_alloc("text.bpe", count, SYMBOL_BYTES);
        scratch->symbols = count;
    }
    m->heap = scratch->base;
    m->symbol = (uint32_t *)(m->heap + 2 * count);
    m->rank = m->symbol + count;
    m->left = m->rank + count;
    m->right = m->left + count;
    m->heap_count = 0;
}

static void sift_down(uint64_t *heap, int64_t count, int64_t at)
{
    uint64_t moved = heap[at];

    for (;;) {
        int64_t child = 2 * at + 1;

        if (child >= count)
            break;
        if (child + 1 < count && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= moved)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

static void push(merging *m, uint64_t entry)
{
    int64_t at = m->heap_count++;

    while (at > 0 && m->heap[(at - 1) / 2] > entry) {
        m->heap[at] = m->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    m->heap[at] = entry;
}

static uint64_t pop(merging *m)
{
    uint64_t top = m->heap[0];

    m->heap[0] = m->heap[--m->heap_count];
    if (m->heap_count > 1)
        sift_down(m->heap, m->heap_count, 0);
    return top;
}

/* symbol[] and rank[] are filled in. */
static void start_merging(merging *m, uint32_t count)
{
    for (uint32_t k = 0; k < count; k++) {
        m->left[k] = k == 0 ? NONE : k - 1;
        m->right[k] = k + 1 == count ? NONE : k + 1;
        if (m->rank[k] != NONE)
            m->heap[m->heap_count++] = (uint64_t)m->rank[k] << 32 | k;
    }
    for (int64_t at = m->heap_count / 2 - 1; at >= 0; at--)
        sift_down(m->heap, m->heap_count, at);
}

static void rank_again(merging *m, const bp_merges *merges, uint32_t at)
{
    m->rank[at] = NONE;
    if (m->right[at] != NONE)
        m->rank[at] = rank_of(merges, m->symbol[at], m->symbol[m->right[at]]);
    if (m->rank[at] != NONE)
        push(m, (uint64_t)m->rank[at] << 32 | at);
}

static void merge_long(const bp_merges *merges, merging *m, size_t count, bp_ids *ids)
{
    start_merging(m, (uint32_t)count);
    while (m->heap_count > 0) {
        uint64_t entry = pop(m);
        uint32_t at = (uint32_t)entry, rank = (uint32_t)(entry >> 32), gone;

        if (m->rank[at] != rank)
            continue;
        gone = m->right[at];
        m->symbol[at] = result_of(merges, rank, m->symbol[at], m->symbol[gone]);
        m->rank[gone] = NONE;
        m->right[at] = m->right[gone];
        if (m->right[at] != NONE)
            m->left[m->right[at]] = at;
        rank_again(m, merges, at);
        if (m->left[at] != NONE)
            rank_again(m, merges, m->left[at]);
    }
    for (uint32_t at = 0; at != NONE; at = m->right[at]) {
        bp_ids_reserve(ids, 1);
        ids->data[ids->count++] = m->symbol[at];
    }
}

static bp_err check_length(size_t count)
{
    return count < NONE
               ? BP_OK
               : BP_FAIL(BP_ERR_SYSTEM, "text.too_long", "a piece of text is longer than 4 GiB");
}

static void give_back(bp_bpe_scratch *scratch)
{
    if (scratch->symbols > SCRATCH_KEEP)
        bp_bpe_scratch_clear(scratch);
}

bp_err bp_bpe_piece(const bp_merges *merges, const uint8_t *piece, size_t bytes,
                    bp_bpe_scratch *scratch, bp_ids *ids)
{
    merging m = {0};
    bp_err err = check_length(bytes);

    if (err != BP_OK)
        return err;
    if (bytes <= BP_BPE_SHORT) {
        merge_short(merges, piece, bytes, ids);
        return BP_OK;
    }
    take_scratch(scratch, &m, (int64_t)bytes);
    for (size_t k = 0; k < bytes; k++) {
        m.symbol[k] = merges->byte_ids[piece[k]];
        m.rank[k] = k + 1 < bytes ? merges->byte_ranks[256 * piece[k] + piece[k + 1]] : NONE;
    }
    merge_long(merges, &m, bytes, ids);
    give_back(scratch);
    return BP_OK;
}

bp_err bp_bpe_symbols(const bp_merges *merges, const uint32_t *symbols, size_t count,
                      bp_bpe_scratch *scratch, bp_ids *ids)
{
    merging m = {0};
    bp_err err = check_length(count);

    if (err != BP_OK || count == 0)
        return err;
    if (count <= BP_BPE_SHORT) {
        merge_short_symbols(merges, symbols, count, ids);
        return BP_OK;
    }
    take_scratch(scratch, &m, (int64_t)count);
    for (size_t k = 0; k < count; k++) {
        m.symbol[k] = symbols[k];
        m.rank[k] = k + 1 < count ? rank_of(merges, symbols[k], symbols[k + 1]) : NONE;
    }
    merge_long(merges, &m, count, ids);
    give_back(scratch);
    return BP_OK;
}
