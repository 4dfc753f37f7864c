/* Passages of documents by a rolling hash. Called by training_text.c. */
#include "infer/score/passages.h"

#include "base/mem.h"

#include <stdlib.h>

#define MOST        (INT64_C(1) << 21) /* kept passages, about; of more, a sample */
#define FILTER_BITS 24                 /* of the table that most searches end at */
#define FACTOR      UINT64_C(0x9e3779b97f4a7c15)

typedef struct passage {
    uint64_t hash;
    int64_t document;
    bool found;
} passage;

struct bp_passages {
    passage *all;
    int64_t count, capacity, documents;
    uint64_t every;  /* one in this many is kept */
    uint8_t *filter; /* a bit for each low part of a hash */
    bool sorted;
};

bp_passages *bp_passages_new(int64_t tokens)
{
    bp_passages *self = bp_alloc("score.passages", 1, sizeof *self);

    self->every = 1 + (uint64_t)(tokens / MOST);
    self->filter = bp_alloc("score.passages", INT64_C(1) << (FILTER_BITS - 3), 1);
    return self;
}

void bp_passages_free(bp_passages **passages)
{
    if (!*passages)
        return;
    bp_free((*passages)->all);
    bp_free((*passages)->filter);
    bp_free(*passages);
    *passages = NULL;
}

/* The hash of the tokens before `end`, from that of the same number before end - 1. */
static uint64_t roll(uint64_t hash, const int32_t *tokens, int64_t end, uint64_t leaving)
{
    hash = hash * FACTOR + (uint64_t)(uint32_t)tokens[end - 1] + 1;
    return end <= BP_PASSAGE
               ? hash
               : hash - ((uint64_t)(uint32_t)tokens[end - 1 - BP_PASSAGE] + 1) * leaving;
}

/* The low bits of a polynomial depend on few of its tokens. */
static uint64_t mixed(uint64_t hash)
{
    hash = (hash ^ (hash >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return hash ^ (hash >> 32);
}

static uint64_t power_of(int n)
{
    uint64_t power = 1;

    for (int k = 0; k < n; k++)
        power *= FACTOR;
    return power;
}

typedef void visit_passage(bp_passages *self, uint64_t hash);

static void each_passage(bp_passages *self, const int32_t *tokens, int64_t count,
                         visit_passage *visit)
{
    uint64_t hash = 0, leaving = power_of(BP_PASSAGE);

    for (int64_t end = 1; end <= count; end++) {
        hash = roll(hash, tokens, end, leaving);
        if (end >= BP_PASSAGE && mixed(hash) % self->every == 0)
            visit(self, mixed(hash));
    }
}

static uint64_t place_of(uint64_t hash)
{
    return hash >> (64 - FILTER_BITS);
}

static void keep(bp_passages *self, uint64_t hash)
{
    uint64_t at = place_of(hash);

    self->all =
        bp_grow("score.passages", self->all, &self->capacity, self->count + 1, sizeof *self->all);
    self->all[self->count++] = (passage){hash, self->documents, false};
    self->filter[at / 8] |= (uint8_t)(1U << at % 8);
}

void bp_passages_add(bp_passages *self, const int32_t *tokens, int64_t count)
{
    each_passage(self, tokens, count, keep);
    self->documents++;
}

static int by_hash(const void *a, const void *b)
{
    const passage *one = a, *other = b;

    return (one->hash > other->hash) - (one->hash < other->hash);
}

static void look_for(bp_passages *self, uint64_t hash)
{
    uint64_t at = place_of(hash);
    int64_t low = 0, high = self->count;

    if (!(self->filter[at / 8] >> at % 8 & 1))
        return;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;

        if (self->all[middle].hash < hash)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < self->count && self->all[low].hash == hash && !self->all[low].found; low++)
        self->all[low].found = true;
}

void bp_passages_find(bp_passages *self, const int32_t *tokens, int64_t count)
{
    if (!self->sorted && self->count > 0)
        qsort(self->all, (size_t)self->count, sizeof *self->all, by_hash);
    self->sorted = true;
    each_passage(self, tokens, count, look_for);
}

void bp_passages_mark(const bp_passages *self, bool *found)
{
    int64_t *balance = bp_alloc("score.passages", self->documents, sizeof *balance);
    bool *any = bp_alloc("score.passages", self->documents, sizeof *any);

    for (int64_t k = 0; k < self->count; k++) {
        any[self->all[k].document] = true;
        balance[self->all[k].document] += self->all[k].found ? 1 : -1;
    }
    for (int64_t d = 0; d < self->documents; d++)
        if (any[d])
            found[d] = balance[d] >= 0;
    bp_free(any);
    bp_free(balance);
}
