/* Runs become n-grams of all orders: one pass over the merged runs, in suffix order. Called by
 * ngram.c after ngram_count.c. */
#include "models/ngram/ngram_estimate_priv.h"

#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "mesh/collective.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define PROGRESS_ITEMS ((int64_t)1 << 16)
#define KEY_BEYOND     (~(ngram_key)0)

/* ---- ranges of ranks ---- */

static int compare_blocks(const void *a, const void *b)
{
    return ngram_compare_items(a, b);
}

/* begins[r]: the first n-gram of rank r's range. The runs' lists of blocks, by their first keys and
 * with their numbers of items, give the distribution of keys. All n-grams that end with the same
 * two words belong to one rank, so that n-grams of order 2 and more are counted whole. */
static void cut_keys(ngram_key *begins, int size, const ngram_spec *spec, const ngram_run *runs,
                     int64_t count)
{
    int low = spec->bits * (spec->order > 2 ? spec->order - 2 : 0);
    int64_t blocks = 0, items = 0, before = 0, at = 0;
    ngram_item *list;

    for (int64_t r = 0; r < count; r++)
        blocks += runs[r].count;
    list = bp_alloc("ngram.merge", blocks, sizeof *list);
    blocks = 0;
    for (int64_t r = 0; r < count; r++)
        for (int64_t b = 0; b < runs[r].count; b++) {
            const ngram_block *block = &runs[r].blocks[b];

            list[blocks++] = (ngram_item){block->high, block->low, block->items};
            items += block->items;
        }
    qsort(list, (size_t)blocks, sizeof *list, compare_blocks);
    begins[0] = 0;
    for (int rank = 1; rank < size; rank++) {
        while (at < blocks && before * size < items * rank)
            before += list[at++].value;
        begins[rank] = at < blocks ? ngram_item_key(&list[at]) >> low << low : KEY_BEYOND;
    }
    begins[size] = KEY_BEYOND;
    bp_free(list);
}

/* Collective. The root alone has the lists of blocks, which are no longer needed then. */
static void find_range(ngram_key *from, ngram_key *to, const bp_counting *counting,
                       const ngram_spec *spec, ngram_run *runs, int64_t count)
{
    int rank = bp_comm_rank(counting->comm), size = bp_comm_size(counting->comm);
    ngram_key *begins = bp_alloc("ngram.merge", size + 1, sizeof *begins);

    if (bp_comm_is_root(counting->comm))
        cut_keys(begins, size, spec, runs, count);
    ngram_runs_forget_blocks(runs, count);
    bp_bcast_bytes(begins, (size + 1) * (int64_t)sizeof *begins, 0, counting->comm);
    *from = begins[rank];
    *to = begins[rank + 1];
    bp_free(begins);
}

/* ---- the merge: a heap of cursors ---- */

typedef struct merger {
    ngram_cursor *cursors;
    int64_t *heap; /* cursors with an item, the smallest first */
    int64_t live;
} merger;

static bool is_less(const merger *self, int64_t a, int64_t b)
{
    return ngram_compare_items(ngram_cursor_item(&self->cursors[a]),
                               ngram_cursor_item(&self->cursors[b])) < 0;
}

static void sink(merger *self, int64_t at)
{
    int64_t top = self->heap[at];

    for (;;) {
        int64_t child = 2 * at + 1;

        if (child + 1 < self->live && is_less(self, self->heap[child + 1], self->heap[child]))
            child++;
        if (child >= self->live || !is_less(self, self->heap[child], top))
            break;
        self->heap[at] = self->heap[child];
        at = child;
    }
    self->heap[at] = top;
}

/* Runs that stay open while they are merged: half of the files that a process may have. */
static int64_t open_most(void)
{
    struct rlimit files;

    return getrlimit(RLIMIT_NOFILE, &files) != 0    ? 0
           : files.rlim_cur / 2 < (rlim_t)INT32_MAX ? (int64_t)(files.rlim_cur / 2)
                                                    : INT32_MAX;
}

static bp_err merger_open(merger *self, const ngram_run *runs, int64_t count, ngram_key from,
                          ngram_key to)
{
    bool closes = count > open_most();
    bp_err err = BP_OK;

    *self = (merger){0};
    self->cursors = bp_alloc("ngram.merge", count, sizeof *self->cursors);
    self->heap = bp_alloc("ngram.merge", count, sizeof *self->heap);
    for (int64_t r = 0; r < count && err == BP_OK; r++) {
        err = ngram_cursor_init(&self->cursors[r], &runs[r], from, to, closes);
        if (err == BP_OK && ngram_cursor_item(&self->cursors[r]))
            self->heap[self->live++] = r;
    }
    for (int64_t k = self->live / 2 - 1; err == BP_OK && k >= 0; k--)
        sink(self, k);
    return err;
}

static void merger_close(merger *self, int64_t count)
{
    for (int64_t r = 0; self->cursors && r < count; r++)
        ngram_cursor_clear(&self->cursors[r]);
    bp_free(self->cursors);
    bp_free(self->heap);
}

/* The smallest item; NULL at the end. */
static const ngram_item *merger_item(const merger *self)
{
    return self->live > 0 ? ngram_cursor_item(&self->cursors[self->heap[0]]) : NULL;
}

static bp_err merger_next(merger *self)
{
    ngram_cursor *top = &self->cursors[self->heap[0]];
    bp_err err = ngram_cursor_next(top);

    if (err == BP_OK && !ngram_cursor_item(top))
        self->heap[0] = self->heap[--self->live];
    if (err == BP_OK && self->live > 1)
        sink(self, 0);
    return err;
}

/* ---- n-grams of all orders ---- */

/* Allocates for `expected` n-grams: unused pages are never touched, while growing would copy. */
static bp_err reserve(ngram_suffixes *list, int64_t expected)
{
    int64_t capacity = list->capacity == 0 ? expected + 1024 : list->capacity + list->capacity / 2;
    ngram_key *key;
    ngram_tally *tally;

    if (list->count < list->capacity)
        return BP_OK;
    key = bp_try_realloc("ngram.counts", list->key, capacity, sizeof *list->key);
    if (!key)
        return bp_fail_memory("the n-grams", capacity, sizeof *list->key);
    list->key = key;
    tally = bp_try_realloc("ngram.counts", list->tally, capacity, sizeof *tally);
    if (!tally)
        return bp_fail_memory("the n-grams", capacity, sizeof *tally);
    list->tally = tally;
    list->capacity = capacity;
    return BP_OK;
}

/* Words of an n-gram: fewer than the order where it begins with <s>. */
static int words_of(ngram_key key, const ngram_spec *spec)
{
    int words = spec->order;

    while (words > 1 && ngram_slot(key, spec->bits, spec->order - words) == 0)
        words--;
    return words;
}

/* The number of words, from the last one on, that two n-grams share. */
static int common_words(ngram_key a, ngram_key b, const ngram_spec *spec)
{
    int words = 0;

    while (words < spec->order && (a ^ b) >> (spec->bits * (spec->order - words - 1)) == 0)
        words++;
    return words;
}

static bp_err add_ngram(ngram_counts *out, const ngram_spec *spec, const ngram_item *item,
                        ngram_key before)
{
    ngram_key key = ngram_item_key(item);
    int words = words_of(key, spec), common = common_words(key, before, spec);
    int64_t word = (int64_t)ngram_slot(key, spec->bits, spec->order - 1) - 1;

    out->word_seen[word] += item->value;
    for (int k = 2; k <= words; k++) {
        ngram_suffixes *list = &out->of[k];

        if (k > common) {
            bp_err err = reserve(list, out->expected);

            if (err != BP_OK)
                return err;
            list->key[list->count] = key >> (spec->bits * (spec->order - k));
            list->tally[list->count++].is.shorter = k == 2 ? word : out->of[k - 1].count - 1;
            if (k == 2)
                out->word_left[word]++;
            else
                out->of[k - 1].tally[out->of[k - 1].count - 1].is.left++;
        }
        list->tally[list->count - 1].is.seen += item->value;
    }
    return BP_OK;
}

static bp_err merge_range(ngram_counts *out, const bp_counting *counting, const ngram_spec *spec,
                          ngram_run *runs, int64_t count)
{
    ngram_key from, to, before = 0;
    int64_t done = 0, of = 0, share = bp_comm_size(counting->comm);
    merger self;
    bp_err err;

    for (int64_t r = 0; r < count; r++)
        of += runs[r].items;
    out->expected = of / share + of / share / 8;
    find_range(&from, &to, counting, spec, runs, count);
    err = merger_open(&self, runs, count, from, to);
    while (err == BP_OK) {
        const ngram_item *item = merger_item(&self);

        if (!item)
            break;
        err = add_ngram(out, spec, item, before);
        before = ngram_item_key(item);
        if (err == BP_OK)
            err = merger_next(&self);
        if (++done % PROGRESS_ITEMS == 0 && err == BP_OK) {
            bp_heartbeat_progress();
            counting->progress(counting->context, "merging", done, of / share);
            err = bp_counting_check_stop(counting, "merging");
        }
    }
    merger_close(&self, count);
    return err;
}

bp_err ngram_merge(ngram_counts *out, const bp_counting *counting, const ngram_spec *spec,
                   ngram_run *runs, int64_t count)
{
    int64_t ids = spec->vocab_size + 1;
    bp_err err;

    *out = (ngram_counts){0};
    out->word_seen = bp_alloc("ngram.counts", ids, sizeof *out->word_seen);
    out->word_left = bp_alloc("ngram.counts", ids, sizeof *out->word_left);
    err = bp_agree(counting->comm, merge_range(out, counting, spec, runs, count));
    if (err != BP_OK)
        return err;
    BP_MPI_WAIT("all_sum", MPI_Allreduce(MPI_IN_PLACE, out->word_seen, bp_mpi_count(ids),
                                         MPI_INT64_T, MPI_SUM, counting->comm));
    BP_MPI_WAIT("all_sum", MPI_Allreduce(MPI_IN_PLACE, out->word_left, bp_mpi_count(ids),
                                         MPI_INT64_T, MPI_SUM, counting->comm));
    return BP_OK;
}

void ngram_suffixes_clear(ngram_suffixes *list)
{
    bp_free(list->key);
    bp_free(list->tally);
    *list = (ngram_suffixes){0};
}

void ngram_counts_clear(ngram_counts *counts)
{
    for (int k = 0; k < NGRAM_ORDERS; k++)
        ngram_suffixes_clear(&counts->of[k]);
    bp_free(counts->word_seen);
    bp_free(counts->word_left);
    *counts = (ngram_counts){0};
}
