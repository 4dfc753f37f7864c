/* Learning merges: counts of pairs are kept up to date at the places that a merge changes.
 *
 * All words are stored one after another as nodes, one a byte at first. A node stands for the pair
 * of its symbol and the next one of its word; the nodes of one pair are chained, so a merge goes to
 * its places and to no other.
 */
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/signals.h"
#include "text/tokenizer/bert_json.h"
#include "text/train/tokenizer_train_priv.h"
#include "text/unicode/unicode.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

typedef struct node {
    uint32_t symbol;
    uint32_t left, right;   /* neighbours in the word */
    uint32_t before, after; /* in the chain of its pair */
    uint32_t pair;          /* NONE: the last of its word, or merged away */
    uint32_t word;          /* whose count it has */
} node;

typedef struct pair {
    uint32_t left, right; /* symbols */
    int64_t count;
    uint32_t first;   /* node of its chain */
    uint32_t touched; /* by this merge, so that it is queued once */
} pair;

typedef struct queued {
    int64_t count; /* when it was queued */
    uint32_t pair;
} queued;

typedef struct learner {
    const bp_strmap *words;
    bp_tokenizer *tokenizer;
    bool pieces;           /* characters, with BP_BERT_PREFIX within a word; else bytes */
    int64_t min_count;     /* of a pair that is merged */
    uint32_t symbols[256]; /* of bytes */
    node *nodes;
    int64_t node_count;
    pair *pairs;
    int64_t pair_count, pair_capacity;
    uint32_t *slots; /* [slot_mask + 1]: number of the pair + 1 */
    uint64_t slot_mask;
    queued *heap;
    int64_t heap_count, heap_capacity;
    uint32_t *touched, *places; /* pairs that a merge made or enlarged; nodes that it changes */
    int64_t touched_count, touched_capacity, places_capacity;
    bp_merge *merges;
    int64_t merge_count, merge_capacity;
} learner;

static uint64_t slot_start(const learner *l, uint32_t left, uint32_t right)
{
    uint64_t key = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;

    return (key ^ key >> 32) & l->slot_mask;
}

static void grow_slots(learner *l, int64_t pairs)
{
    uint64_t slots = !l->slots ? 1 << 16 : l->slot_mask + 1;

    if (l->slots && 2 * (uint64_t)pairs <= slots)
        return;
    while (2 * (uint64_t)pairs > slots)
        slots *= 2;
    bp_free(l->slots);
    l->slots = bp_alloc("text.trainer", (int64_t)slots, sizeof *l->slots);
    l->slot_mask = slots - 1;
    for (int64_t k = 0; k < l->pair_count; k++) {
        uint64_t slot = slot_start(l, l->pairs[k].left, l->pairs[k].right);

        while (l->slots[slot] != 0)
            slot = (slot + 1) & l->slot_mask;
        l->slots[slot] = (uint32_t)(k + 1);
    }
}

/* Reserve capacity for `more` new pairs, so that changes of pairs can't fail. */
static bp_err reserve_pairs(learner *l, int64_t more)
{

    if (l->pair_count + more >= NONE)
        return BP_FAIL(BP_ERR_SYSTEM, "text.too_many_words",
                       "more than 4,294,967,294 different pairs of symbols");
    grow_slots(l, l->pair_count + more);
    l->pairs = bp_grow("text.trainer", l->pairs, &l->pair_capacity, l->pair_count + more,
                       sizeof *l->pairs);
    l->touched = bp_grow("text.trainer", l->touched, &l->touched_capacity, l->touched_count + more,
                         sizeof *l->touched);
    l->heap =
        bp_grow("text.trainer", l->heap, &l->heap_capacity, l->heap_count + more, sizeof *l->heap);
    return BP_OK;
}

static uint32_t pair_of(learner *l, uint32_t left, uint32_t right)
{
    uint64_t slot = slot_start(l, left, right);

    for (; l->slots[slot] != 0; slot = (slot + 1) & l->slot_mask) {
        const pair *p = &l->pairs[l->slots[slot] - 1];

        if (p->left == left && p->right == right)
            return l->slots[slot] - 1;
    }
    l->pairs[l->pair_count] = (pair){.left = left, .right = right, .first = NONE, .touched = NONE};
    l->slots[slot] = (uint32_t)++l->pair_count;
    return (uint32_t)(l->pair_count - 1);
}

/* ---- chains ---- */

static int64_t count_of(const learner *l, uint32_t at)
{
    return l->words->entries[l->nodes[at].word].value;
}

/* The node's pair is not there any more. */
static void unlink_pair(learner *l, uint32_t at)
{
    node *n = &l->nodes[at];
    pair *p;

    if (n->pair == NONE)
        return;
    p = &l->pairs[n->pair];
    p->count -= count_of(l, at);
    if (n->before == NONE)
        p->first = n->after;
    else
        l->nodes[n->before].after = n->after;
    if (n->after != NONE)
        l->nodes[n->after].before = n->before;
    n->pair = NONE;
}

/* The node and the one to its right are a pair now. `round` marks what this merge changes. */
static void link_pair(learner *l, uint32_t at, uint32_t round)
{
    node *n = &l->nodes[at];
    pair *p;

    n->pair = NONE;
    if (n->right == NONE)
        return;
    n->pair = pair_of(l, n->symbol, l->nodes[n->right].symbol);
    p = &l->pairs[n->pair];
    p->count += count_of(l, at);
    n->before = NONE;
    n->after = p->first;
    if (p->first != NONE)
        l->nodes[p->first].before = at;
    p->first = at;
    if (p->touched != round) {
        p->touched = round;
        l->touched[l->touched_count++] = n->pair;
    }
}

/* ---- the queue: the most frequent pair, of the smaller symbols where several are ---- */

static bool goes_before(const learner *l, const queued *a, const queued *b)
{
    const pair *p = &l->pairs[a->pair], *q = &l->pairs[b->pair];

    if (a->count != b->count)
        return a->count > b->count;
    return p->left != q->left ? p->left < q->left : p->right < q->right;
}

/* reserve_pairs has reserved the capacity. */
static void push(learner *l, uint32_t number)
{
    queued entry = {l->pairs[number].count, number};
    int64_t at = l->heap_count;

    if (entry.count < l->min_count)
        return;
    l->heap_count++;
    while (at > 0 && goes_before(l, &entry, &l->heap[(at - 1) / 2])) {
        l->heap[at] = l->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    l->heap[at] = entry;
}

static queued pop(learner *l)
{
    queued top = l->heap[0], moved = l->heap[--l->heap_count];
    int64_t at = 0;

    for (;;) {
        int64_t child = 2 * at + 1;

        if (child >= l->heap_count)
            break;
        if (child + 1 < l->heap_count && goes_before(l, &l->heap[child + 1], &l->heap[child]))
            child++;
        if (!goes_before(l, &l->heap[child], &moved))
            break;
        l->heap[at] = l->heap[child];
        at = child;
    }
    l->heap[at] = moved;
    return top;
}

/* The pair to merge next; NONE: no pair is left that is frequent enough. Counts only fall while a
 * pair waits, and one that fell is queued again; one that rose was queued again when it did. */
static uint32_t next_pair(learner *l)
{
    while (l->heap_count > 0) {
        queued top = pop(l);

        if (l->pairs[top.pair].count == top.count)
            return top.pair;
        if (l->pairs[top.pair].count < top.count)
            push(l, top.pair);
    }
    return NONE;
}

static void queue_touched(learner *l)
{
    for (int64_t k = 0; k < l->touched_count; k++)
        push(l, l->touched[k]);
    l->touched_count = 0;
}

/* ---- merging ---- */

static int compare_places(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

    return (a > b) - (a < b);
}

/* The nodes of a pair; from left to right where occurrences can overlap ("aaa"). */
static void list_places(learner *l, uint32_t number, int64_t *count)
{
    const pair *p = &l->pairs[number];

    *count = 0;
    for (uint32_t at = p->first; at != NONE; at = l->nodes[at].after) {
        l->places =
            bp_grow("text.trainer", l->places, &l->places_capacity, *count + 1, sizeof *l->places);
        l->places[(*count)++] = at;
    }
    if (p->left == p->right)
        qsort(l->places, (size_t)*count, sizeof *l->places, compare_places);
}

static void merge_at(learner *l, uint32_t at, uint32_t symbol, uint32_t round)
{
    uint32_t gone = l->nodes[at].right, left = l->nodes[at].left;
    uint32_t right = l->nodes[gone].right;

    if (left != NONE)
        unlink_pair(l, left);
    unlink_pair(l, at);
    unlink_pair(l, gone);
    l->nodes[at].symbol = symbol;
    l->nodes[at].right = right;
    if (right != NONE)
        l->nodes[right].left = at;
    if (left != NONE)
        link_pair(l, left, round);
    link_pair(l, at, round);
}

static bp_err merge_everywhere(learner *l, uint32_t number, uint32_t symbol)
{
    int64_t count, most;
    uint32_t round = (uint32_t)l->merge_count;
    bp_err err = BP_OK;

    list_places(l, number, &count);
    if (err != BP_OK)
        return err;
    most = 2 * (l->tokenizer->names.count + 1); /* the new symbol with any, on either side */
    err = reserve_pairs(l, 2 * count < most ? 2 * count : most);
    for (int64_t k = 0; k < count && err == BP_OK; k++)
        if (l->nodes[l->places[k]].pair == number) /* an overlapping one took it otherwise */
            merge_at(l, l->places[k], symbol, round);
    queue_touched(l);
    return err;
}

/* The token of both parts: a new one, unless other merges made it already. *symbol is NONE where it
 * would be too long. */
static bp_err name_merge(learner *l, const pair *p, uint32_t *symbol)
{
    const bp_strmap *names = &l->tokenizer->names;
    size_t prefix = l->pieces ? strlen(BP_BERT_PREFIX) : 0; /* a right part always has it */
    size_t left = names->entries[p->left].bytes, right = names->entries[p->right].bytes - prefix;
    char name[BP_TOKEN_LIMIT_BYTES];
    int64_t id;
    bp_err err = BP_OK;

    *symbol = NONE;
    if (left + right > BP_TOKEN_LIMIT_BYTES)
        return BP_OK;
    memcpy(name, bp_strmap_key(names, p->left), left);
    memcpy(name + left, bp_strmap_key(names, p->right) + prefix, right);
    id = bp_tokenizer_id(l->tokenizer, name, left + right);
    if (id < 0) {
        id = names->count;
        err = bp_tokenizer_add(l->tokenizer, name, left + right);
    }
    *symbol = (uint32_t)id;
    return err;
}

static void report_merging(const learner *l, int64_t size, double *last)
{
    double now = bp_clock_now();

    if (now - *last < 1)
        return;
    *last = now;
    bp_log_progress("merging: %lld of %lld tokens", (long long)l->tokenizer->names.count,
                    (long long)size);
}

/* Merge until there are this many tokens. */
static bp_err learn(learner *l, int64_t size, bool progress)
{
    double last = bp_clock_now();
    bp_err err = BP_OK;

    while (l->tokenizer->names.count < size && err == BP_OK) {
        uint32_t number = next_pair(l), symbol;

        if (number == NONE)
            break;
        pair best = l->pairs[number];
        err = name_merge(l, &best, &symbol);
        if (err == BP_OK && symbol == NONE)
            continue;
        if (err == BP_OK)
            l->merges = bp_grow("text.trainer", l->merges, &l->merge_capacity, l->merge_count + 1,
                                sizeof *l->merges);
        if (err == BP_OK) {
            l->merges[l->merge_count++] = (bp_merge){best.left, best.right, symbol};
            err = merge_everywhere(l, number, symbol);
        }
        if (err == BP_OK && bp_signals_stop_asked())
            err = bp_fail_stopped(BP_TRAINING_STOPPED);
        if (progress)
            report_merging(l, size, &last);
    }
    return err;
}

/* ---- the start ---- */

static bp_err add_bytes(bp_tokenizer *tokenizer)
{
    bp_err err = BP_OK;

    for (int k = 0; k < 256 && err == BP_OK; k++) {
        uint8_t byte = bp_byte_of_rank(k);
        char name[4];

        err = bp_tokenizer_add(tokenizer, name, bp_name_of_bytes(name, &byte, 1));
    }
    return err;
}

/* The symbol at text[0], and its length. */
static uint32_t symbol_at(const learner *l, const uint8_t *text, size_t bytes, bool inner,
                          size_t *length)
{
    char name[8] = BP_BERT_PREFIX;
    size_t prefix = inner ? strlen(BP_BERT_PREFIX) : 0;
    uint32_t code;

    if (!l->pieces) {
        *length = 1;
        return l->symbols[*text];
    }
    *length = bp_utf8_decode(text, bytes, &code);
    memcpy(name + prefix, text, *length);
    return (uint32_t)bp_tokenizer_id(l->tokenizer, name, prefix + *length);
}

static void add_word(learner *l, int64_t word)
{
    const uint8_t *text = (const uint8_t *)bp_strmap_key(l->words, word);
    size_t bytes = l->words->entries[word].bytes, length;
    uint32_t first = (uint32_t)l->node_count, count = 0;

    for (size_t at = 0; at < bytes; at += length, count++)
        l->nodes[first + count] =
            (node){.symbol = symbol_at(l, text + at, bytes - at, at > 0, &length),
                   .left = at == 0 ? NONE : first + count - 1,
                   .right = first + count + 1,
                   .pair = NONE,
                   .word = (uint32_t)word};
    l->nodes[first + count - 1].right = NONE;
    l->node_count += count;
    for (uint32_t k = 0; k < count; k++)
        link_pair(l, first + k, NONE - 1);
}

static bp_err start(learner *l)
{
    int64_t bytes = 0, symbols = l->tokenizer->names.count;
    bp_err err = BP_OK;

    for (int k = 0; k < 256; k++)
        l->symbols[bp_byte_of_rank(k)] = (uint32_t)k;
    for (int64_t k = 0; k < l->words->count; k++)
        bytes += l->words->entries[k].bytes;
    if (bytes >= NONE)
        err = BP_FAIL(BP_ERR_SYSTEM, "text.too_large",
                      "the different pieces of the text have %lld bytes, more than "
                      "4 GiB; train on less text",
                      (long long)bytes);
    if (err == BP_OK) /* pairs are no more than nodes, nor than symbols make */
        err = reserve_pairs(l, symbols < bytes / symbols ? symbols * symbols : bytes);
    if (err != BP_OK)
        return err;
    l->nodes = bp_alloc("text.trainer", bytes, sizeof *l->nodes);
    for (int64_t k = 0; k < l->words->count; k++)
        add_word(l, k);
    queue_touched(l);
    return BP_OK;
}

static void clear(learner *l)
{
    bp_free(l->nodes);
    bp_free(l->pairs);
    bp_free(l->slots);
    bp_free(l->heap);
    bp_free(l->touched);
    bp_free(l->places);
    bp_free(l->merges);
}

bp_err bp_learn_merges(bp_merge **list, int64_t *count, const bp_learning *learning)
{
    learner l = {.words = learning->words,
                 .tokenizer = learning->tokenizer,
                 .pieces = learning->pieces,
                 .min_count = learning->min_count};
    bp_err err = start(&l);

    *list = NULL;
    *count = 0;
    if (err == BP_OK)
        err = learn(&l, learning->size - learning->reserved, learning->progress);
    if (err == BP_OK) {
        *list = l.merges;
        *count = l.merge_count;
        l.merges = NULL; /* taken */
    }
    clear(&l);
    return err;
}

bp_err bp_build_bpe(bp_tokenizer **out, const bp_strmap *words, const bp_trainer_options *options)
{
    bp_merge *merges = NULL;
    int64_t count;
    bp_err err = bp_tokenizer_new(out, BP_KIND_BPE);

    if (err == BP_OK)
        err = add_bytes(*out);
    if (err == BP_OK)
        err = bp_learn_merges(&merges, &count,
                              &(bp_learning){.tokenizer = *out,
                                             .words = words,
                                             .size = options->size,
                                             .reserved = options->special_count + 1,
                                             .min_count = BP_BPE_MIN_COUNT,
                                             .progress = options->progress});
    if (err == BP_OK)
        err = bp_add_specials(*out, options);
    if (err == BP_OK)
        err = bp_tokenizer_add(*out, BP_EOD_TOKEN, strlen(BP_EOD_TOKEN));
    if (err == BP_OK)
        err = bp_tokenizer_add_special(*out, (*out)->names.count - 1);
    if (err == BP_OK) {
        err = bp_tokenizer_finish(*out, merges, count, "a trained tokenizer");
        merges = NULL; /* taken */
    }
    bp_free(merges);
    if (err != BP_OK)
        bp_tokenizer_free(out);
    return err;
}
