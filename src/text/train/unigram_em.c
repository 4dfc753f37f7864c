/* Expectation maximisation and pruning of a Unigram vocabulary. Words are shared out in blocks that
 * do not depend on the number of threads, and sums are made block after block: the same bits with
 * any number of them. */
#include "base/mem.h"
#include "text/pipeline/pieces.h"
#include "text/train/train_unigram_priv.h"
#include "text/unicode/unicode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS         16
#define LEAST_EXPECTED 0.5  /* pieces of a smaller expected count go */
#define KEPT_SHARE     0.75 /* of the pieces stay at each pruning, at least */
#define UNKNOWN        (-1)

/* ---- pieces ---- */

void bp_unigrams_add(bp_unigrams *pieces, const char *name, size_t bytes, double score)
{
    int64_t index;

    BP_CHECK(bp_strmap_add(&pieces->names, name, bytes, 0, &index) == BP_OK);
    pieces->scores = bp_grow("text.unigrams", pieces->scores, &pieces->capacity, index + 1,
                             sizeof *pieces->scores);
    pieces->scores[index] = score;
}

void bp_unigrams_clear(bp_unigrams *pieces)
{
    bp_strmap_clear(&pieces->names);
    bp_free(pieces->scores);
    *pieces = (bp_unigrams){0};
}

/* Keep the pieces that `keep` marks, in their order. */
static void keep_pieces(bp_unigrams *pieces, const bool *keep)
{
    bp_unigrams kept = {0};

    for (int64_t k = 0; k < pieces->names.count; k++)
        if (keep[k])
            bp_unigrams_add(&kept, bp_strmap_key(&pieces->names, k), pieces->names.entries[k].bytes,
                            pieces->scores[k]);
    bp_unigrams_clear(pieces);
    *pieces = kept;
}

/* ---- the lattice of a word ---- */

typedef struct edge { /* a piece at a place */
    uint32_t start, end;
    int32_t id;
    double score;
} edge;

typedef struct lattice { /* {0}: the scratch of one thread */
    edge *edges;         /* in order of start */
    int64_t count, capacity;
    double *forward, *backward; /* [place_capacity] */
    int32_t *best;              /* [place_capacity]: edge */
    int64_t place_capacity;
} lattice;

typedef struct view { /* pieces, as they are looked up */
    const bp_unigrams *pieces;
    bp_trie trie;
    double unknown_score;
} view;

static void view_init(view *self, const bp_unigrams *pieces)
{
    double lowest = 0;

    *self = (view){.pieces = pieces};
    for (int64_t k = 0; k < pieces->names.count; k++) {
        bp_trie_add(&self->trie, bp_strmap_key(&pieces->names, k), pieces->names.entries[k].bytes,
                    (uint32_t)k);
        lowest = pieces->scores[k] < lowest ? pieces->scores[k] : lowest;
    }
    self->unknown_score = lowest - BP_UNKNOWN_PENALTY;
}

static void lattice_clear(lattice *self)
{
    bp_free(self->edges);
    bp_free(self->forward);
    bp_free(self->backward);
    bp_free(self->best);
}

static void add_edge(lattice *self, edge added)
{
    self->edges =
        bp_grow("text.lattice", self->edges, &self->capacity, self->count + 1, sizeof *self->edges);
    self->edges[self->count++] = added;
}

static void need_places(lattice *self, size_t bytes)
{
    if (self->place_capacity > (int64_t)bytes)
        return;
    self->place_capacity = (int64_t)bytes + 1 < 256 ? 256 : 2 * ((int64_t)bytes + 1);
    bp_free(self->forward);
    bp_free(self->backward);
    bp_free(self->best);
    self->forward = bp_alloc("text.lattice", self->place_capacity, sizeof *self->forward);
    self->backward = bp_alloc("text.lattice", self->place_capacity, sizeof *self->backward);
    self->best = bp_alloc("text.lattice", self->place_capacity, sizeof *self->best);
}

/* All pieces in a word; `without_whole`: but the one that is all of it. */
static void fill(lattice *self, const view *v, const uint8_t *word, size_t bytes,
                 bool without_whole)
{
    size_t length;

    need_places(self, bytes);
    self->count = 0;
    for (size_t at = 0; at < bytes; at += length) {
        uint32_t node = BP_TRIE_ROOT, code_point;
        bool single = false;

        length = bp_utf8_decode(word + at, bytes - at, &code_point);
        for (size_t k = at; k < bytes; k++) {
            int64_t id;

            node = bp_trie_step(&v->trie, node, word[k]);
            if (node == BP_TRIE_NONE)
                break;
            id = bp_trie_value(&v->trie, node);
            if (id < 0)
                continue;
            single = single || k + 1 == at + length;
            if (!(without_whole && at == 0 && k + 1 == bytes))
                add_edge(self,
                         (edge){(uint32_t)at, (uint32_t)k + 1, (int32_t)id, v->pieces->scores[id]});
        }
        if (!single)
            add_edge(self,
                     (edge){(uint32_t)at, (uint32_t)(at + length), UNKNOWN, v->unknown_score});
    }
}

static double add_logarithms(double a, double b)
{
    if (a == -INFINITY)
        return b;
    return a > b ? a + log1p(exp(b - a)) : b + log1p(exp(a - b));
}

/* Add `times` the expected number of each piece in the word. */
static void add_expected(lattice *self, size_t bytes, double times, double *expected)
{
    for (size_t k = 0; k <= bytes; k++)
        self->forward[k] = self->backward[k] = -INFINITY;
    self->forward[0] = self->backward[bytes] = 0;
    for (int64_t k = 0; k < self->count; k++) {
        const edge *e = &self->edges[k];

        self->forward[e->end] =
            add_logarithms(self->forward[e->end], self->forward[e->start] + e->score);
    }
    for (int64_t k = self->count - 1; k >= 0; k--) {
        const edge *e = &self->edges[k];

        self->backward[e->start] =
            add_logarithms(self->backward[e->start], self->backward[e->end] + e->score);
    }
    for (int64_t k = 0; k < self->count; k++) {
        const edge *e = &self->edges[k];

        if (e->id != UNKNOWN)
            expected[e->id] += times * exp(self->forward[e->start] + e->score +
                                           self->backward[e->end] - self->forward[bytes]);
    }
}

/* best[end]: the last edge of the best split that ends there. The score of the whole, -INFINITY:
 * there is no split. */
static double find_best(lattice *self, size_t bytes)
{
    for (size_t k = 0; k <= bytes; k++)
        self->forward[k] = -INFINITY;
    self->forward[0] = 0;
    for (int64_t k = 0; k < self->count; k++) {
        const edge *e = &self->edges[k];

        if (self->forward[e->start] + e->score > self->forward[e->end]) {
            self->forward[e->end] = self->forward[e->start] + e->score;
            self->best[e->end] = (int32_t)k;
        }
    }
    return self->forward[bytes];
}

/* ---- all words, in blocks ---- */

typedef struct sweep {
    const view *v;
    const bp_strmap *words;
    double *sums[BLOCKS]; /* [pieces] each */
    bool best;            /* count the pieces of the best splits, not expected ones */
} sweep;

static void sweep_block(sweep *self, int block)
{
    const bp_strmap *words = self->words;
    lattice scratch = {0};

    for (int64_t k = words->count * block / BLOCKS; k < words->count * (block + 1) / BLOCKS; k++) {
        size_t bytes = words->entries[k].bytes;
        double times = (double)words->entries[k].value;

        fill(&scratch, self->v, (const uint8_t *)bp_strmap_key(words, k), bytes, false);
        if (!self->best) {
            add_expected(&scratch, bytes, times, self->sums[block]);
            continue;
        }
        (void)find_best(&scratch, bytes);
        for (size_t at = bytes; at > 0; at = scratch.edges[scratch.best[at]].start)
            if (scratch.edges[scratch.best[at]].id != UNKNOWN)
                self->sums[block][scratch.edges[scratch.best[at]].id] += times;
    }
    lattice_clear(&scratch);
}

/* How often each piece is expected, or is in best splits. Free with bp_free(). */
static double *count_pieces(const view *v, const bp_strmap *words, bool best)
{
    int64_t pieces = v->pieces->names.count;
    sweep self = {.v = v, .words = words, .best = best};
    double *total = bp_alloc("text.expected", pieces, sizeof *total);

    for (int block = 0; block < BLOCKS; block++)
        self.sums[block] = bp_alloc("text.expected", pieces, sizeof *total);
#pragma omp parallel for schedule(dynamic)
    for (int block = 0; block < BLOCKS; block++)
        sweep_block(&self, block);
    for (int block = 0; block < BLOCKS; block++) {
        for (int64_t k = 0; k < pieces; k++)
            total[k] += self.sums[block][k];
        bp_free(self.sums[block]);
    }
    return total;
}

/* ---- the M step ---- */

/* Digamma by its asymptotic series about x - 1/2. */
static double digamma(double x)
{
    double result = 0, y, y2;

    for (; x < 7; x++)
        result -= 1 / x;
    y = 1 / (x - 0.5);
    y2 = y * y;
    return result + log(x - 0.5) + y2 / 24 - 7 * y2 * y2 / 960 + 31 * y2 * y2 * y2 / 8064 -
           127 * y2 * y2 * y2 * y2 / 30720;
}

void bp_unigram_improve(bp_unigrams *pieces, const bp_strmap *words)
{
    view v;
    double *expected, sum = 0;
    bool *keep = bp_alloc("text.expected", pieces->names.count, sizeof *keep);

    view_init(&v, pieces);
    expected = count_pieces(&v, words, false);
    bp_trie_clear(&v.trie);
    for (int64_t k = 0; k < pieces->names.count; k++) {
        keep[k] = expected[k] >= LEAST_EXPECTED;
        sum += keep[k] ? expected[k] : 0;
    }
    for (int64_t k = 0; k < pieces->names.count; k++)
        if (keep[k])
            pieces->scores[k] = digamma(expected[k]) - digamma(sum);
    keep_pieces(pieces, keep);
    bp_free(keep);
    bp_free(expected);
}

/* ---- pruning ---- */

typedef struct candidate {
    int64_t id;
    double loss;
} candidate;

/* The larger loss first. */
static int by_loss(const void *left, const void *right)
{
    const candidate *a = left, *b = right;

    if (a->loss != b->loss)
        return a->loss > b->loss ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

typedef enum fate { GOES, STAYS, MAY_GO } fate;

/* What becomes of a piece, and the loss of likelihood if it goes: its occurrences are split as well
 * as the others allow. */
static fate fate_of(const view *v, lattice *scratch, int64_t id, const double *counts, double sum,
                    double *loss)
{
    const bp_strmap *names = &v->pieces->names;
    size_t bytes = names->entries[id].bytes;
    double other, alone, split = 0;
    int parts = 0;

    if (counts[id] == 0)
        return GOES;
    fill(scratch, v, (const uint8_t *)bp_strmap_key(names, id), bytes, true);
    other = find_best(scratch, bytes);
    if (other == -INFINITY)
        return STAYS;
    if (other > v->pieces->scores[id])
        return GOES;
    for (size_t at = bytes; at > 0; at = scratch->edges[scratch->best[at]].start)
        parts++;
    alone = log(counts[id]) - log(sum);
    for (size_t at = bytes; at > 0; at = scratch->edges[scratch->best[at]].start) {
        int32_t part = scratch->edges[scratch->best[at]].id;

        split += log((part == UNKNOWN ? 0 : counts[part]) + counts[id]) -
                 log(sum + counts[id] * (parts - 1));
    }
    *loss = counts[id] * (alone - split);
    return MAY_GO;
}

bool bp_unigram_prune(bp_unigrams *pieces, const bp_strmap *words, int64_t wanted)
{
    int64_t before = pieces->names.count, kept = 0, candidates = 0;
    int64_t most = (int64_t)(KEPT_SHARE * (double)before);
    bool *keep = bp_alloc("text.prune", before, sizeof *keep);
    candidate *list = bp_alloc("text.prune", before, sizeof *list);
    lattice scratch = {0};
    double *counts, sum = 0;
    view v;

    most = most < wanted ? wanted : most;
    view_init(&v, pieces);
    counts = count_pieces(&v, words, true);
    for (int64_t k = 0; k < before; k++)
        sum += counts[k];
    for (int64_t k = 0; k < before; k++) {
        double loss = 0;
        fate what = fate_of(&v, &scratch, k, counts, sum, &loss);

        keep[k] = what == STAYS;
        kept += keep[k];
        if (what == MAY_GO)
            list[candidates++] = (candidate){k, loss};
    }
    qsort(list, (size_t)candidates, sizeof *list, by_loss);
    for (int64_t k = 0; k < candidates && kept < most; k++, kept++)
        keep[list[k].id] = true;
    lattice_clear(&scratch);
    bp_trie_clear(&v.trie);
    keep_pieces(pieces, keep);
    bp_free(counts);
    bp_free(list);
    bp_free(keep);
    return kept < before;
}
