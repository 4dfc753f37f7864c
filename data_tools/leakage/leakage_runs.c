/* A suffix automaton over tokens, whose edges are in one hash table. */
#include "leakage_runs.h"

#include "base/mem.h"

#include <stdlib.h>

static uint64_t hash_of(int64_t state, int32_t token)
{
    uint64_t x = (uint64_t)state * UINT64_C(0x9e3779b97f4a7c15) + (uint32_t)token;

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ (x >> 27);
}

/* The place of an edge, or where it would be. */
static int64_t slot_of(const run_index *self, int64_t state, int32_t token)
{
    int64_t slot = (int64_t)(hash_of(state, token) & (uint64_t)self->mask);

    while (self->edges[slot].from >= 0 &&
           (self->edges[slot].from != state || self->edges[slot].token != token))
        slot = (slot + 1) & self->mask;
    return slot;
}

static int64_t next_of(const run_index *self, int64_t state, int32_t token)
{
    const run_edge *edge = &self->edges[slot_of(self, state, token)];

    return edge->from >= 0 ? edge->to : -1;
}

static run_edge *new_edges(int64_t count)
{
    run_edge *edges = bp_alloc("tool.leakage", count, sizeof *edges);

    for (int64_t k = 0; k < count; k++)
        edges[k].from = -1;
    return edges;
}

static void put_edge(run_index *self, const run_edge *edge)
{
    int64_t slot = slot_of(self, edge->from, edge->token);

    self->edges[slot] = *edge;
    self->edges[slot].next = self->states[edge->from].edges;
    self->states[edge->from].edges = slot;
}

/* Lists are of places, which change: all are made again. */
static void grow_edges(run_index *self)
{
    run_edge *old = self->edges;
    int64_t size = self->mask + 1;

    self->mask = old ? 2 * size - 1 : 4095;
    self->edges = new_edges(self->mask + 1);
    for (int64_t k = 0; k < self->count; k++)
        self->states[k].edges = -1;
    for (int64_t k = 0; old && k < size; k++)
        if (old[k].from >= 0)
            put_edge(self, &old[k]);
    bp_free(old);
}

static void set_next(run_index *self, int64_t state, int32_t token, int64_t to)
{
    int64_t slot = slot_of(self, state, token);

    if (self->edges[slot].from >= 0) {
        self->edges[slot].to = to;
        return;
    }
    if (2 * ++self->edge_count > self->mask)
        grow_edges(self);
    put_edge(self, &(run_edge){state, to, -1, token});
}

static int64_t new_state(run_index *self, int32_t length, int64_t link)
{
    self->states = bp_grow("tool.leakage", self->states, &self->capacity, self->count + 1,
                           sizeof *self->states);
    self->states[self->count] = (run_state){link, length, -1};
    return self->count++;
}

/* A state for the shorter texts of q, which end elsewhere too. */
static int64_t split(run_index *self, int64_t p, int32_t token, int64_t q)
{
    int64_t clone = new_state(self, self->states[p].length + 1, self->states[q].link), count = 0;
    run_edge *list = NULL;

    for (int64_t slot = self->states[q].edges; slot >= 0; slot = self->edges[slot].next)
        count++;
    list = bp_alloc("tool.leakage", count, sizeof *list);
    for (int64_t slot = self->states[q].edges, k = 0; slot >= 0; slot = self->edges[slot].next)
        list[k++] = self->edges[slot];
    for (int64_t k = 0; k < count; k++) /* the table may grow, and its places change */
        set_next(self, clone, list[k].token, list[k].to);
    bp_free(list);
    self->states[q].link = clone;
    for (; p >= 0 && next_of(self, p, token) == q; p = self->states[p].link)
        set_next(self, p, token, clone);
    return clone;
}

static int64_t extend(run_index *self, int64_t last, int32_t token)
{
    int64_t q = next_of(self, last, token), p = last, state;

    if (q >= 0)
        return self->states[q].length == self->states[last].length + 1
                   ? q
                   : split(self, last, token, q);
    state = new_state(self, self->states[last].length + 1, 0);
    for (; p >= 0 && next_of(self, p, token) < 0; p = self->states[p].link)
        set_next(self, p, token, state);
    if (p >= 0) {
        q = next_of(self, p, token);
        self->states[state].link =
            self->states[q].length == self->states[p].length + 1 ? q : split(self, p, token, q);
    }
    return state;
}

void run_index_add(run_index *self, const int32_t *tokens, int64_t count)
{
    int64_t last = 0;

    if (self->count == 0) {
        grow_edges(self);
        (void)new_state(self, 0, -1);
    }
    for (int64_t k = 0; k < count; k++)
        last = extend(self, last, tokens[k]);
}

void run_index_clear(run_index *self)
{
    bp_free(self->states);
    bp_free(self->found);
    bp_free(self->edges);
    *self = (run_index){0};
}

void run_index_read(run_index *self, const int32_t *tokens, int64_t count)
{
    int64_t at = 0;
    int32_t matched = 0;

    if (self->count == 0)
        return;
    if (!self->found)
        self->found = bp_alloc("tool.leakage", self->count, sizeof *self->found);
    for (int64_t k = 0; k < count; k++) {
        int64_t to;

        while ((to = next_of(self, at, tokens[k])) < 0 && at > 0) {
            at = self->states[at].link;
            matched = self->states[at].length;
        }
        if (to < 0)
            continue;
        at = to;
        matched++;
        if (matched > self->found[at])
            self->found[at] = matched;
    }
}

typedef struct ordered_state {
    int32_t length;
    int64_t state;
} ordered_state;

static int by_length(const void *a, const void *b)
{
    const ordered_state *one = a, *other = b;

    return (one->length < other->length) - (one->length > other->length);
}

void run_index_finish(run_index *self)
{
    ordered_state *order = bp_alloc("tool.leakage", self->count, sizeof *order);

    for (int64_t k = 0; k < self->count; k++)
        order[k] = (ordered_state){self->states[k].length, k};
    if (self->count > 0)
        qsort(order, (size_t)self->count, sizeof *order, by_length);
    for (int64_t k = 0; k < self->count && self->found; k++) {
        int64_t state = order[k].state, link = self->states[state].link;

        /* a text that is there has its suffixes there */
        if (link >= 0 && self->found[state] > 0)
            self->found[link] = self->states[link].length;
    }
    bp_free(order);
}

int64_t run_index_longest(const run_index *self, const int32_t *tokens, int64_t count,
                          int64_t *start)
{
    int64_t at = 0, best = 0;

    *start = 0;
    for (int64_t k = 0; k < count && self->found; k++) {
        int64_t state, run = 0;

        at = next_of(self, at, tokens[k]);
        if (at < 0)
            break; /* it was not added */
        for (state = at; state > 0 && self->found[state] == 0;)
            state = self->states[state].link;
        if (state > 0)
            run = self->found[state] < k + 1 ? self->found[state] : k + 1;
        if (run > best) {
            best = run;
            *start = k + 1 - run;
        }
    }
    return best;
}
