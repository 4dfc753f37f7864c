/* Runs: sorted n-grams with their counts, as files that are complete or absent.
 *
 * A run holds the n-grams of a range of the stream's tokens, in blocks that zstd has compressed,
 * with a list of the blocks and a trailer at its end. Its name has the work and the range, so a
 * later start, on any number of ranks, reuses the runs that it finds. These files are only in
 * RUN/counts, and are removed with it. Local: no MPI. */
#pragma once

#include "base/err.h"
#include "models/ngram/ngram_key_priv.h"

#define NGRAM_BLOCK_ITEMS 4096
#define NGRAM_WORK_HEX    24 /* digits of bp_counting.work that name a run */

typedef struct ngram_block {
    uint64_t high, low; /* its first key */
    int64_t offset;
    uint32_t bytes, items;
    uint64_t xxh3; /* of its compressed bytes */
} ngram_block;

typedef struct ngram_run {
    char *path;
    char work[NGRAM_WORK_HEX];
    int64_t first, end; /* tokens of the stream */
    int64_t items;
    ngram_block *blocks; /* NULL: forgotten */
    int64_t count;       /* of blocks */
} ngram_run;

/** Write the run of tokens [first, end): `items` are sorted and combined. Errors: BP_ERR_IO (disk
 * full), BP_ERR_CREATE, BP_ERR_DENIED; no file is left then. Injected faults: count.spill. */
bp_err ngram_run_write(const char *folder, const char *work, int64_t first, int64_t end,
                       const ngram_item *items, int64_t count);

/** The complete runs of this work in `folder`, in the order of their tokens. Removes damaged runs,
 * those of other work, and those whose tokens other runs hold.
 *
 * how:        NGRAM_VERIFY: compare every hash, not only the trailer's. NGRAM_LISTS: keep the
 *             lists of blocks; else they are checked and forgotten.
 * Owns:       *runs is the caller's, ngram_runs_free().
 * Errors:     BP_ERR_IO, BP_ERR_DENIED. */
bp_err ngram_runs_open(ngram_run **runs, int64_t *count, const char *folder, const char *work,
                       int how);
enum { NGRAM_VERIFY = 1, NGRAM_LISTS = 2 };
void ngram_runs_free(ngram_run **runs, int64_t count);
/** Free the lists of blocks, which grow with the whole stream: cursors need only their paths. */
void ngram_runs_forget_blocks(ngram_run *runs, int64_t count);

/** Reads a run in order. */
typedef struct ngram_cursor {
    const ngram_run *run;
    ngram_block *blocks; /* [count] those of the range, read again from the file */
    int64_t count;
    int64_t block;      /* the next one */
    int64_t at, filled; /* in items */
    ngram_item *items;  /* [filled] */
    ngram_key from, to; /* other items are left out */
    int fd;             /* -1: the file is not open */
    bool closes;        /* it is opened for each block: there are too many runs to keep all open */
} ngram_cursor;

/** The first item of a key in [from, to), or the end. Memory: the list of the range's blocks, and
 * the items of that range in a block. Errors: those of ngram_cursor_next. Clear it after an error
 * too. */
bp_err ngram_cursor_init(ngram_cursor *cursor, const ngram_run *run, ngram_key from, ngram_key to,
                         bool closes);
void ngram_cursor_clear(ngram_cursor *cursor);
/** The item at the cursor; NULL at the end. */
static inline const ngram_item *ngram_cursor_item(const ngram_cursor *cursor)
{
    return cursor->at < cursor->filled ? &cursor->items[cursor->at] : NULL;
}
/** Move to the next item. Errors: BP_ERR_FORMAT the run is damaged; BP_ERR_IO, BP_ERR_INPUT. */
bp_err ngram_cursor_next(ngram_cursor *cursor);
