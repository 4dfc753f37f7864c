/* Ranges of a file and their hashes: /checksums, for writer, reader and verify. */
#include "extents.h"

#include "base/files/fs.h"
#include "base/files/hash.h"
#include "base/files/xxh.h"
#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(bp_extent) == 24, "rows are read as they are in the file");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian");

void bp_extents_clear(bp_extents *extents)
{
    bp_free(extents->rows);
    bp_free(extents->order);
    memset(extents, 0, sizeof *extents);
}

static int by_offset(const void *a, const void *b, void *context)
{
    const bp_extent *rows = context;
    uint64_t x = rows[*(const int64_t *)a].offset;
    uint64_t y = rows[*(const int64_t *)b].offset;

    return x < y ? -1 : x > y;
}

bp_err bp_extents_sort(bp_extents *extents, int64_t file_bytes, const char *path)
{
    uint64_t end = BP_USER_BLOCK_BYTES;

    bp_free(extents->order);
    extents->order = bp_alloc("io.extents", extents->count, sizeof *extents->order);
    for (int64_t k = 0; k < extents->count; k++)
        extents->order[k] = k;
    qsort_r(extents->order, (size_t)extents->count, sizeof *extents->order, by_offset,
            extents->rows);
    for (int64_t k = 0; k < extents->count; k++) {
        const bp_extent *row = &extents->rows[extents->order[k]];
        if (row->offset < end || row->offset > (uint64_t)file_bytes ||
            row->bytes > (uint64_t)file_bytes - row->offset)
            return BP_FAIL(BP_ERR_FORMAT, "corpus.damaged",
                           "damaged: at %s, row %" PRId64
                           " of /checksums, which doesn't fit the file; make it anew",
                           path, extents->order[k]);
        end = row->offset + row->bytes;
    }
    return BP_OK;
}

bp_err bp_extents_read(bp_extents *extents, int fd, int64_t offset, int64_t count,
                       int64_t file_bytes, const char *path)
{
    memset(extents, 0, sizeof *extents);
    if (offset < BP_USER_BLOCK_BYTES || count < 0 || offset > file_bytes ||
        count > (file_bytes - offset) / (int64_t)sizeof(bp_extent))
        return BP_FAIL(BP_ERR_FORMAT, "corpus.damaged",
                       "damaged: at %s, in the user block (bytes 0 to 511); make it anew", path);
    extents->rows = bp_alloc("io.extents", count, sizeof *extents->rows);
    extents->count = count;
    if (bp_pread_all(fd, extents->rows, (size_t)count * sizeof *extents->rows, offset) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't read", path);
    return bp_extents_sort(extents, file_bytes, path);
}

bp_err bp_extents_outside(const bp_extents *extents, int fd, int64_t file_bytes, const char *path,
                          char hash[BP_USER_BLOCK_HASH])
{
    XXH3_state_t *state = bp_xxh128_new();
    int64_t at = BP_USER_BLOCK_BYTES;
    bp_err err = BP_OK;

    for (int64_t k = 0; k < extents->count && err == BP_OK; k++) {
        const bp_extent *row = &extents->rows[extents->order[k]];

        err = bp_xxh128_add_file(state, fd, at, (int64_t)row->offset, path);
        at = (int64_t)(row->offset + row->bytes);
    }
    if (err == BP_OK)
        err = bp_xxh128_add_file(state, fd, at, file_bytes, path);
    bp_xxh128_hex(hash, XXH3_128bits_digest(state));
    XXH3_freeState(state);
    return err;
}

bp_err bp_extent_read(const bp_extent *extent, int fd, void *data, const char *what,
                      const char *path)
{
    if (bp_pread_all(fd, data, extent->bytes, (int64_t)extent->offset) != 0) {
        if (errno == ENODATA)
            return BP_FAIL(BP_ERR_FORMAT, "corpus.truncated",
                           "damaged (truncated while it was read): at %s, in %s", path, what);
        return bp_fail_errno(BP_ERR_IO, "can't read", path);
    }
    if (bp_xxh3(data, extent->bytes) != extent->xxh3)
        return BP_FAIL(BP_ERR_FORMAT, "corpus.damaged",
                       "damaged: at %s, in %s (bytes %" PRIu64 " to %" PRIu64
                       "), which have another XXH3 than was written; make it anew",
                       path, what, extent->offset, extent->offset + extent->bytes - 1);
    return BP_OK;
}

bp_err bp_extents_load(const bp_extents *extents, int fd, int64_t offset, void *data, int64_t bytes,
                       const char *what, const char *path)
{
    char *to = data;
    bp_err err = BP_OK;
    int64_t k = 0, high = extents->count;

    while (k < high) { /* the first row that ends beyond `offset` */
        int64_t middle = k + (high - k) / 2;
        const bp_extent *row = &extents->rows[extents->order[middle]];

        if ((int64_t)(row->offset + row->bytes) > offset)
            high = middle;
        else
            k = middle + 1;
    }
    for (; err == BP_OK && bytes > 0; k++) {
        const bp_extent *row = k < extents->count ? &extents->rows[extents->order[k]] : NULL;

        if (!row || (int64_t)row->offset > offset)
            return BP_FAIL(BP_ERR_FORMAT, "corpus.damaged",
                           "damaged: at %s, where %s has no checksum; make it anew", path, what);
        int64_t skip = offset - (int64_t)row->offset, left = (int64_t)row->bytes - skip;
        int64_t now = left < bytes ? left : bytes;
        bool is_whole = now == (int64_t)row->bytes;
        char *piece = is_whole ? to : bp_alloc("io.extents.piece", (int64_t)row->bytes, 1);

        err = bp_extent_read(row, fd, piece, what, path);
        if (!is_whole) {
            if (err == BP_OK)
                memcpy(to, piece + skip, (size_t)now);
            bp_free(piece);
        }
        to += now;
        offset += now;
        bytes -= now;
    }
    return err;
}
