/* Files of sorted n-grams: written at once, read by ranges of keys. Called by ngram.c,
 * ngram_count.c and ngram_merge.c. */
#include "models/ngram/ngram_runs_priv.h"

#include "base/fault.h"
#include "base/files/fs.h"
#include "base/files/xxh.h"
#include "base/log.h"
#include "base/mem.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#define MAGIC        "bpngrun1"
#define ZSTD_LEVEL   1
#define BLOCKS_LEAST 64 /* of a run, but where they would have fewer items than */
#define ITEMS_LEAST  64
#define BLOCKS_MOST  ((int64_t)1 << 32) /* more are not one of our lists */

/* The last bytes of a run. */
typedef struct trailer {
    char magic[8];
    char work[NGRAM_WORK_HEX];
    int64_t first, end, items, blocks, list; /* `list`: the offset of the list of blocks */
    uint64_t xxh3;                           /* of the list, and of all members before this one */
} trailer;

static char *run_path(const char *folder, const char *work, int64_t first, int64_t end)
{
    return bp_sprintf("%s/%.*s-%" PRId64 "-%" PRId64 ".run", folder, NGRAM_WORK_HEX, work, first,
                      end);
}

static uint64_t hash_trailer(const trailer *end, const ngram_block *blocks)
{
    uint64_t list = XXH3_64bits(blocks, (size_t)end->blocks * sizeof *blocks);

    return XXH3_64bits_withSeed(end, offsetof(trailer, xxh3), list);
}

/* Columns compress better than rows. */
static void split_columns(uint64_t *to, const ngram_item *items, int64_t count)
{
    for (int64_t k = 0; k < count; k++) {
        to[k] = items[k].high;
        to[count + k] = items[k].low;
        to[2 * count + k] = (uint64_t)items[k].value;
    }
}

static void join_columns(ngram_item *items, const uint64_t *from, int64_t count)
{
    for (int64_t k = 0; k < count; k++)
        items[k] = (ngram_item){from[k], from[count + k], (int64_t)from[2 * count + k]};
}

/* A run has some 64 blocks or more, so that the lists of blocks say how keys are distributed even
 * where runs are short. */
static int64_t items_of_block(int64_t items)
{
    int64_t most = items / BLOCKS_LEAST;

    return most < ITEMS_LEAST ? ITEMS_LEAST : most < NGRAM_BLOCK_ITEMS ? most : NGRAM_BLOCK_ITEMS;
}

/* The first block is shorter, by the place of the run: blocks of runs of like text would begin at
 * like keys, and ranks that divide the keys by these would have to take them together. */
static int64_t items_of_first(int64_t first, int64_t items)
{
    return 1 + (int64_t)(XXH3_64bits(&first, sizeof first) % (uint64_t)items);
}

static bp_err write_blocks(bp_draft *draft, trailer *end, ngram_block *blocks,
                           const ngram_item *items)
{
    size_t bound = ZSTD_compressBound(NGRAM_BLOCK_ITEMS * sizeof *items);
    uint64_t *columns = bp_alloc("ngram.run", NGRAM_BLOCK_ITEMS, sizeof *items);
    char *packed = bp_alloc("ngram.run", (int64_t)bound, 1);
    int64_t most = items_of_block(end->items), next = items_of_first(end->first, most);
    bp_err err = BP_OK;

    for (int64_t at = 0, now; at < end->items && err == BP_OK; at += now) {
        const ngram_item *from = items + at;
        size_t bytes;

        now = end->items - at < next ? end->items - at : next;
        next = most;
        split_columns(columns, from, now);
        bytes = ZSTD_compress(packed, bound, columns, (size_t)now * sizeof *items, ZSTD_LEVEL);
        BP_CHECK(!ZSTD_isError(bytes));
        blocks[end->blocks++] = (ngram_block){.high = from->high,
                                              .low = from->low,
                                              .offset = end->list,
                                              .bytes = (uint32_t)bytes,
                                              .items = (uint32_t)now,
                                              .xxh3 = XXH3_64bits(packed, bytes)};
        end->list += (int64_t)bytes;
        err = bp_draft_write(draft, packed, bytes);
        if (err == BP_OK && bp_fault("count.spill"))
            err = bp_fail_errno(BP_ERR_IO, "can't write the counts", draft->path);
    }
    bp_free(packed);
    bp_free(columns);
    return err;
}

bp_err ngram_run_write(const char *folder, const char *work, int64_t first, int64_t end,
                       const ngram_item *items, int64_t count)
{
    char *path = run_path(folder, work, first, end);
    trailer last = {.magic = MAGIC, .first = first, .end = end, .items = count};
    bp_draft draft;
    bp_err err = bp_draft_open(&draft, path);

    memcpy(last.magic, MAGIC, sizeof last.magic);
    memcpy(last.work, work, sizeof last.work);
    if (err == BP_OK) {
        ngram_block *blocks =
            bp_alloc("ngram.run", 2 + count / items_of_block(count), sizeof *blocks);

        err = write_blocks(&draft, &last, blocks, items);
        last.xxh3 = hash_trailer(&last, blocks);
        if (err == BP_OK)
            err = bp_draft_write(&draft, blocks, (size_t)last.blocks * sizeof *blocks);
        if (err == BP_OK)
            err = bp_draft_write(&draft, &last, sizeof last);
        err = bp_draft_end(&draft, err);
        bp_free(blocks);
    }
    bp_free(path);
    return err;
}

/* ---- opening ---- */

static bp_err damaged(const char *path)
{
    return BP_FAIL(BP_ERR_FORMAT, "ngram.damaged_counts",
                   "the counts are damaged: at %s; remove the file, and give the command again",
                   path);
}

static bool is_sane(const ngram_run *run, const trailer *end, int64_t bytes)
{
    int64_t offset = 0, items = 0;

    for (int64_t b = 0; b < end->blocks; b++) {
        const ngram_block *block = &run->blocks[b];

        if (block->offset != offset || block->items == 0 || block->items > NGRAM_BLOCK_ITEMS ||
            block->bytes > ZSTD_COMPRESSBOUND(NGRAM_BLOCK_ITEMS * sizeof(ngram_item)))
            return false;
        offset += block->bytes;
        items += block->items;
    }
    return offset == end->list && items == end->items && end->first < end->end &&
           end->list + end->blocks * (int64_t)sizeof(ngram_block) + (int64_t)sizeof *end == bytes;
}

static bp_err read_list(ngram_run *run, int fd)
{
    int64_t bytes = lseek(fd, 0, SEEK_END);
    trailer end;

    if (bytes < (int64_t)sizeof end)
        return damaged(run->path);
    if (bp_pread_all(fd, &end, sizeof end, bytes - (int64_t)sizeof end) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't read the counts", run->path);
    if (memcmp(end.magic, MAGIC, sizeof end.magic) != 0 ||
        memcmp(end.work, run->work, sizeof end.work) != 0 || end.blocks < 0 ||
        end.blocks > bytes / (int64_t)sizeof *run->blocks || end.list < 0 || end.list > bytes)
        return damaged(run->path);
    run->blocks = bp_alloc("ngram.run", end.blocks, sizeof *run->blocks);
    run->count = end.blocks;
    run->first = end.first;
    run->end = end.end;
    run->items = end.items;
    if (end.list + end.blocks * (int64_t)sizeof *run->blocks > bytes ||
        bp_pread_all(fd, run->blocks, (size_t)end.blocks * sizeof *run->blocks, end.list) != 0 ||
        hash_trailer(&end, run->blocks) != end.xxh3 || !is_sane(run, &end, bytes))
        return damaged(run->path);
    return BP_OK;
}

static bp_err read_block(const char *path, const ngram_block *block, int fd, char *scratch)
{
    if (bp_pread_all(fd, scratch, block->bytes, block->offset) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't read the counts", path);
    return XXH3_64bits(scratch, block->bytes) == block->xxh3 ? BP_OK : damaged(path);
}

static bp_err open_run(ngram_run *run, bool verify)
{
    int fd;
    bp_err err = bp_plain_open(run->path, O_RDONLY, &fd);

    if (err != BP_OK)
        return err;
    err = read_list(run, fd);
    if (err == BP_OK && verify) {
        char *scratch =
            bp_alloc("ngram.run", ZSTD_COMPRESSBOUND(NGRAM_BLOCK_ITEMS * sizeof(ngram_item)), 1);

        for (int64_t b = 0; b < run->count && err == BP_OK; b++)
            err = read_block(run->path, &run->blocks[b], fd, scratch);
        bp_free(scratch);
    }
    (void)close(fd); /* read only: nothing can be lost */
    return err;
}

static void clear_run(ngram_run *run)
{
    bp_free(run->path);
    bp_free(run->blocks);
    *run = (ngram_run){0};
}

void ngram_runs_forget_blocks(ngram_run *runs, int64_t count)
{
    for (int64_t k = 0; k < count; k++) {
        bp_free(runs[k].blocks);
        runs[k].blocks = NULL;
    }
}

static int by_first(const void *a, const void *b)
{
    const ngram_run *p = a, *q = b;

    return (p->first > q->first) - (p->first < q->first);
}

/* The first of runs that hold the same tokens stays. */
static int64_t drop_overlaps(ngram_run *runs, int64_t count)
{
    int64_t kept = 0;

    qsort(runs, (size_t)count, sizeof *runs, by_first);
    for (int64_t k = 0; k < count; k++) {
        if (kept == 0 || runs[k].first >= runs[kept - 1].end) {
            runs[kept++] = runs[k];
            continue;
        }
        (void)unlink(runs[k].path);
        clear_run(&runs[k]);
    }
    return kept;
}

static bool is_run(const char *name, const char *work)
{
    size_t length = strlen(name);

    return length > NGRAM_WORK_HEX + 4 && strncmp(name, work, NGRAM_WORK_HEX) == 0 &&
           strcmp(name + length - 4, ".run") == 0;
}

bp_err ngram_runs_open(ngram_run **runs, int64_t *count, const char *folder, const char *work,
                       int how)
{
    bool verify = (how & NGRAM_VERIFY) != 0;
    char **names = NULL;
    int64_t listed = 0;
    bp_err err;

    *runs = NULL;
    *count = 0;
    bp_dir_refresh(folder);
    err = bp_dir_list(folder, &names, &listed);
    if (err != BP_OK)
        return err;
    *runs = bp_alloc("ngram.runs", listed, sizeof **runs);
    for (int64_t k = 0; k < listed && err == BP_OK; k++) {
        ngram_run *run = &(*runs)[*count];

        run->path = bp_path_join(folder, names[k]);
        memcpy(run->work, work, sizeof run->work);
        if (is_run(names[k], work))
            err = open_run(run, verify);
        else
            err = verify ? BP_ERR_FORMAT : BP_OK; /* of another work */
        if (err == BP_OK && !(how & NGRAM_LISTS))
            ngram_runs_forget_blocks(run, 1);
        if (err == BP_OK && run->end > 0) {
            (*count)++;
            continue;
        }
        if (err == BP_ERR_FORMAT && verify) {
            if (is_run(names[k], work))
                bp_warn_failure("%s: it is removed, and its part is counted again", bp_err_text());
            (void)unlink(run->path);
            err = BP_OK;
        }
        clear_run(run);
    }
    bp_names_free(&names, listed);
    *count = drop_overlaps(*runs, *count);
    if (err != BP_OK)
        ngram_runs_free(runs, *count);
    return err;
}

void ngram_runs_free(ngram_run **runs, int64_t count)
{
    for (int64_t k = 0; *runs && k < count; k++)
        clear_run(&(*runs)[k]);
    bp_free(*runs);
    *runs = NULL;
}

/* ---- reading ---- */

static void close_file(ngram_cursor *cursor)
{
    if (cursor->fd >= 0)
        (void)close(cursor->fd);
    cursor->fd = -1;
}

static bp_err read_next(ngram_cursor *cursor, char *scratch)
{
    bp_err err = cursor->fd < 0 ? bp_plain_open(cursor->run->path, O_RDONLY, &cursor->fd) : BP_OK;

    if (err != BP_OK) {
        cursor->fd = -1;
        return err;
    }
    err = read_block(cursor->run->path, &cursor->blocks[cursor->block++], cursor->fd, scratch);
    if (cursor->closes)
        close_file(cursor);
    return err;
}

/* A block's items, all of them. */
static bp_err read_items(ngram_cursor *cursor, ngram_item *items, int64_t *count)
{
    const ngram_block *block = &cursor->blocks[cursor->block];
    const size_t block_bytes = NGRAM_BLOCK_ITEMS * sizeof(ngram_item);
    uint64_t *columns = bp_alloc("ngram.run", NGRAM_BLOCK_ITEMS, sizeof(ngram_item));
    char *scratch = bp_alloc("ngram.run", ZSTD_COMPRESSBOUND(block_bytes), 1);
    bp_err err = read_next(cursor, scratch);

    if (err == BP_OK && ZSTD_decompress(columns, block_bytes, scratch, block->bytes) !=
                            block->items * sizeof(ngram_item))
        err = damaged(cursor->run->path);
    *count = err == BP_OK ? block->items : 0;
    join_columns(items, columns, *count);
    bp_free(scratch);
    bp_free(columns);
    return err;
}

/* The next block. Only items of the cursor's range stay in memory: runs are as many as ranks times
 * spills, and a rank's range has few items of each. */
static bp_err fill(ngram_cursor *cursor)
{
    bp_err err = BP_OK;

    cursor->at = cursor->filled = 0;
    while (err == BP_OK && cursor->filled == 0 && cursor->block < cursor->count) {
        ngram_item *all = bp_alloc("ngram.cursor", NGRAM_BLOCK_ITEMS, sizeof *all);
        int64_t first = 0, end;

        err = read_items(cursor, all, &end);
        if (end > 0 && ngram_item_key(&all[end - 1]) >= cursor->to)
            cursor->block = cursor->count; /* later ones are beyond the range */
        while (end > 0 && ngram_item_key(&all[end - 1]) >= cursor->to)
            end--;
        while (first < end && ngram_item_key(&all[first]) < cursor->from)
            first++;
        cursor->filled = end - first;
        bp_free(cursor->items);
        cursor->items = bp_alloc("ngram.cursor", cursor->filled, sizeof *cursor->items);
        if (cursor->filled > 0)
            memcpy(cursor->items, all + first, (size_t)cursor->filled * sizeof *all);
        bp_free(all);
    }
    return err;
}

bp_err ngram_cursor_next(ngram_cursor *cursor)
{
    return ++cursor->at < cursor->filled ? BP_OK : fill(cursor);
}

/* The first block that begins at or above `key`; the number of blocks if there is none. */
static int64_t block_at(const ngram_run *run, ngram_key key)
{
    ngram_item least = ngram_item_of(key, 0);
    int64_t low = 0, high = run->count;

    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        ngram_item first = {run->blocks[middle].high, run->blocks[middle].low, 0};

        if (ngram_compare_items(&first, &least) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The blocks that may have items of the range. */
static bp_err list_blocks(ngram_cursor *cursor)
{
    ngram_run whole = {.path = cursor->run->path};
    bp_err err = bp_plain_open(whole.path, O_RDONLY, &cursor->fd);

    if (err != BP_OK) {
        cursor->fd = -1;
        return err;
    }
    memcpy(whole.work, cursor->run->work, sizeof whole.work);
    err = read_list(&whole, cursor->fd);
    if (err == BP_OK && (whole.first != cursor->run->first || whole.items != cursor->run->items))
        err = damaged(whole.path);
    if (err == BP_OK) {
        int64_t first = block_at(&whole, cursor->from), end = block_at(&whole, cursor->to);

        first -= first > 0; /* items before the first key of a block are in the one before it */
        cursor->count = end - first;
        cursor->blocks = bp_alloc("ngram.cursor", cursor->count, sizeof *cursor->blocks);
        memcpy(cursor->blocks, whole.blocks + first,
               (size_t)cursor->count * sizeof *cursor->blocks);
    }
    bp_free(whole.blocks);
    return err;
}

bp_err ngram_cursor_init(ngram_cursor *cursor, const ngram_run *run, ngram_key from, ngram_key to,
                         bool closes)
{
    *cursor = (ngram_cursor){.run = run, .from = from, .to = to, .fd = -1, .closes = closes};

    bp_err err = list_blocks(cursor);
    if (err == BP_OK)
        err = fill(cursor);
    if (closes) /* also where no block is of the range, and none was read */
        close_file(cursor);
    return err;
}

void ngram_cursor_clear(ngram_cursor *cursor)
{
    if (cursor->run)
        close_file(cursor);
    bp_free(cursor->items);
    bp_free(cursor->blocks);
    *cursor = (ngram_cursor){0};
}
