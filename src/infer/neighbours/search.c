/* The exact search: blocks of keys times blocks of queries, and a heap for each query. Called by
 * neighbours.c for each batch. */
#include "infer/neighbours/datastore_priv.h"

#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "mesh/collective.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TILE         256 /* queries multiplied at once */
#define TILE_STEP    64  /* the last tile is padded to a multiple of this */
#define GATHER_BYTES ((int64_t)16 << 20)

/* A tile of queries, as the weight of a product. */
typedef struct tile {
    bp_weight *weight;
    int64_t first, count,
        columns; /* count queries, filled up to this many columns of the product */
} tile;

typedef struct search {
    bp_datastore *store;
    const float *queries;
    int64_t count, k;
    bp_neighbour *out; /* [count][k] heaps, the farthest on top */
    int64_t *filled;   /* [count] */
    double *squares;   /* [count] of the queries' lengths */
    float *padded;     /* [count, filled up][columns] */
    float *products;   /* [DATASTORE_BLOCK][TILE] */
    tile *tiles;
    int64_t tile_count;
} search;

/* ---- heaps ---- */

static bool is_before(const bp_neighbour *a, const bp_neighbour *b)
{
    return a->distance < b->distance || (a->distance == b->distance && a->row < b->row);
}

static void sift_down(bp_neighbour *heap, int64_t n, int64_t at)
{
    bp_neighbour moved = heap[at];

    for (int64_t child = 2 * at + 1; child < n; at = child, child = 2 * at + 1) {
        child += child + 1 < n && is_before(&heap[child], &heap[child + 1]);
        if (!is_before(&moved, &heap[child]))
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void sift_up(bp_neighbour *heap, int64_t at)
{
    bp_neighbour moved = heap[at];

    for (; at > 0 && is_before(&heap[(at - 1) / 2], &moved); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = moved;
}

static void put(search *self, int64_t q, const bp_neighbour *one)
{
    bp_neighbour *heap = self->out + q * self->k;

    if (self->filled[q] < self->k) {
        heap[self->filled[q]] = *one;
        sift_up(heap, self->filled[q]++);
    } else if (is_before(one, &heap[0])) {
        heap[0] = *one;
        sift_down(heap, self->k, 0);
    }
}

static int compare(const void *a, const void *b)
{
    return is_before(a, b) ? -1 : is_before(b, a);
}

/* ---- distances ---- */

/* In eight sums, so that bits do not depend on the compiler. */
static double measure(const float *a, const float *b, int64_t C)
{
    double sums[8] = {0}, sum = 0;

    for (int64_t c = 0; c < C; c++) {
        double difference = (double)a[c] - (double)b[c];

        sums[c % 8] += difference * difference;
    }
    for (int k = 0; k < 8; k++)
        sum += sums[k];
    return sum;
}

/* |a - b|^2 = |a|^2 + |b|^2 - 2 ab, where a float32 product has ab with error at most (C + 2) 2^-24
 * |a||b| (Higham 2002, section 3.1): what is less than the farthest neighbour by twice that, and as
 * much again for the sums here, is measured. A product that overflows is not a number, and is
 * measured. */
static void scan(search *self, const tile *of, int64_t q, int64_t first, int64_t count,
                 const float *keys)
{
    const bp_datastore *store = self->store;
    int64_t C = store->info.columns, query = of->first + q;
    const bp_neighbour *heap = self->out + query * self->k;
    double slack = 4 * (double)(C + 8) * ldexp(1, -24), square = self->squares[query],
           length = sqrt(square);

    for (int64_t i = 0; i < count; i++) {
        double own = store->squares[first + i];
        double least = square + own - 2 * (double)self->products[i * of->columns + q] -
                       slack * (length * sqrt(own)) - 1e-30;

        if (store->tokens[first + i] < 0 ||
            (self->filled[query] == self->k && least > heap[0].distance))
            continue;
        bp_neighbour one = {.distance = measure(self->queries + query * C, keys + i * C, C),
                            .row = store->first + first + i,
                            .token = store->tokens[first + i]};
        put(self, query, &one);
    }
}

static bp_err search_share(search *self)
{
    bp_datastore *store = self->store;

    for (int64_t first = 0; first < store->count; first += DATASTORE_BLOCK) {
        int64_t left = store->count - first,
                count = left < DATASTORE_BLOCK ? left : DATASTORE_BLOCK;
        const float *keys;
        bp_err err = datastore_keys(store, first, count, &keys);

        if (err != BP_OK)
            return err;
        bp_heartbeat_progress();
        for (int64_t t = 0; t < self->tile_count; t++) {
            const tile *of = &self->tiles[t];

            bp_linear_forward(store->gemm, self->products, keys, of->weight, NULL, count);
#pragma omp parallel for schedule(dynamic, 8)
            for (int64_t q = 0; q < of->count; q++)
                scan(self, of, q, first, count, keys);
        }
    }
    return BP_OK;
}

/* ---- over ranks ---- */

/* The k nearest of all ranks' lists, of some queries at a time. Entries that a rank lacks are
 * infinitely far away. */
static void merge(search *self)
{
    MPI_Comm group = self->store->group;
    int64_t size = bp_comm_size(group), k = self->k, row = k * (int64_t)sizeof *self->out;
    int64_t most = GATHER_BYTES / (size * row) > 0 ? GATHER_BYTES / (size * row) : 1;
    bp_neighbour *all = bp_alloc("datastore.search", size * most * k, sizeof *all);
    bp_neighbour *list = bp_alloc("datastore.search", size * k, sizeof *list);

    for (int64_t first = 0; first < self->count; first += most) {
        int64_t left = self->count - first, count = left < most ? left : most;
        int64_t bytes = count * row;

        memcpy((char *)all + bp_shard_first(size * bytes, bp_comm_rank(group), (int)size),
               self->out + first * k, (size_t)bytes);
        bp_all_gather_bytes(all, size * bytes, group);
        for (int64_t q = 0; q < count; q++) {
            for (int64_t r = 0; r < size; r++)
                memcpy(list + r * k, all + (r * count + q) * k, (size_t)row);
            qsort(list, (size_t)(size * k), sizeof *list, compare);
            memcpy(self->out + (first + q) * k, list, (size_t)row);
        }
    }
    bp_free(list);
    bp_free(all);
}

/* ---- before and after ---- */

static bp_err cut_tiles(search *self)
{
    int64_t C = self->store->info.columns;
    bp_err err = BP_OK;

    for (int64_t first = 0; first < self->count && err == BP_OK; first += TILE) {
        int64_t left = self->count - first;
        tile *to = &self->tiles[self->tile_count++];

        to->first = first;
        to->count = left < TILE ? left : TILE;
        to->columns = (to->count + TILE_STEP - 1) / TILE_STEP * TILE_STEP;
        err =
            bp_weight_new(&to->weight, self->store->gemm, self->padded + first * C, to->columns, C);
        if (err == BP_OK)
            bp_weight_refresh(to->weight);
    }
    return err;
}

static bp_err prepare(search *self)
{
    int64_t C = self->store->info.columns, tiles = (self->count + TILE - 1) / TILE;
    int64_t rows = (self->count + TILE_STEP - 1) / TILE_STEP * TILE_STEP;

    self->filled = bp_alloc("datastore.search", self->count, sizeof *self->filled);
    self->squares = bp_alloc("datastore.search", self->count, sizeof *self->squares);
    self->tiles = bp_alloc("datastore.search", tiles, sizeof *self->tiles);
    self->padded = bp_try_alloc("datastore.search", rows * C, sizeof *self->padded);
    self->products = bp_try_alloc("datastore.search", DATASTORE_BLOCK * TILE, sizeof(float));
    if (!self->padded || !self->products)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "memory is short: at %lld queries of a datastore; use a smaller "
                       "neighbours.memory",
                       (long long)self->count);
    memset(self->padded, 0, (size_t)(rows * C) * sizeof *self->padded);
    memcpy(self->padded, self->queries, (size_t)(self->count * C) * sizeof *self->padded);
    for (int64_t q = 0; q < self->count; q++)
        for (int64_t c = 0; c < C; c++)
            self->squares[q] += (double)self->queries[q * C + c] * (double)self->queries[q * C + c];
    return cut_tiles(self);
}

static void sort_heaps(search *self)
{
    static const bp_neighbour NONE = {INFINITY, INT64_MAX, -1};

#pragma omp parallel for schedule(static)
    for (int64_t q = 0; q < self->count; q++) {
        for (int64_t i = self->filled[q]; i < self->k; i++)
            self->out[q * self->k + i] = NONE;
        qsort(self->out + q * self->k, (size_t)self->k, sizeof *self->out, compare);
    }
}

bp_err bp_datastore_search(bp_datastore *store, const float *queries, int64_t count, int64_t k,
                           bp_neighbour *out)
{
    search self = {.store = store, .queries = queries, .count = count, .k = k, .out = out};
    bp_err err = bp_agree(store->group, prepare(&self));

    BP_ASSERT(k >= 1 && k <= store->info.entries);
    if (err == BP_OK)
        err = bp_agree(store->group, search_share(&self));
    if (err == BP_OK) {
        sort_heaps(&self);
        if (bp_comm_size(store->group) > 1)
            merge(&self);
    }
    for (int64_t t = 0; t < self.tile_count; t++)
        bp_weight_free(&self.tiles[t].weight);
    bp_free(self.products);
    bp_free(self.padded);
    bp_free(self.tiles);
    bp_free(self.squares);
    bp_free(self.filled);
    return err;
}

int64_t bp_datastore_bytes(int64_t file_bytes, int64_t columns, int ranks, int64_t memory_bytes,
                           int64_t queries, int64_t k)
{
    int64_t key = columns * (int64_t)sizeof(float), rows = file_bytes / key / ranks + 1;
    int64_t held = rows * key < memory_bytes ? rows * key : memory_bytes + DATASTORE_BLOCK * key;

    return held + rows * (int64_t)(sizeof(double) + sizeof(int32_t)) +
           queries * (k * (int64_t)sizeof(bp_neighbour) + 4 * key) +
           DATASTORE_BLOCK * TILE * (int64_t)sizeof(float) +
           (ranks > 1 ? GATHER_BYTES + 2 * ranks * k * (int64_t)sizeof(bp_neighbour) : 0);
}
