/* Bytes in memory, then in an unlinked file: columns of a corpus until its commit. */
#include "io/corpus/spill.h"

#include "base/files/fs.h"
#include "base/mem.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WINDOW_BYTES ((size_t)1 << 16) /* buffer shared by small reads of the file */

struct bp_spill {
    char *folder;
    char *tail; /* the last bytes, not in the file yet */
    size_t tail_bytes, capacity_bytes;
    int64_t file_bytes;
    int fd;       /* -1: none yet */
    char *window; /* the last bytes read from the file; NULL: none yet */
    int64_t window_at;
    size_t window_bytes;
};

bp_spill *bp_spill_new(const char *folder, size_t memory_bytes)
{
    bp_spill *spill = bp_alloc("io.spill", 1, sizeof *spill);

    spill->fd = -1;
    spill->capacity_bytes = memory_bytes;
    spill->folder = bp_strdup(folder);
    spill->tail = bp_alloc("io.spill", (int64_t)memory_bytes, 1);
    return spill;
}

void bp_spill_free(bp_spill **spill)
{
    if (*spill) {
        if ((*spill)->fd >= 0)
            (void)close((*spill)->fd); /* unlinked: its contents are no longer needed */
        bp_free((*spill)->tail);
        bp_free((*spill)->window);
        bp_free((*spill)->folder);
    }
    bp_free(*spill);
    *spill = NULL;
}

/* Moves to a file: O_TMPFILE if the file system supports it (most; not all networked ones), else a
 * name that is unlinked at once. */
static bp_err flush(bp_spill *spill)
{
    bp_err err = BP_OK;

    if (spill->fd < 0)
        spill->fd = open(spill->folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (spill->fd < 0) {
        char *name = bp_sprintf("%s/.bp-spool-XXXXXX", spill->folder);

        spill->fd = mkostemp(name, O_CLOEXEC);
        if (spill->fd < 0 || unlink(name) != 0)
            err = bp_fail_create("can't create a temporary file", name);
        bp_free(name);
    }
    if (err == BP_OK && bp_write_all(spill->fd, spill->tail, spill->tail_bytes) != 0)
        err = bp_fail_errno(BP_ERR_IO, "can't write a temporary file in", spill->folder);
    if (err == BP_OK) {
        spill->file_bytes += (int64_t)spill->tail_bytes;
        spill->tail_bytes = 0;
    }
    return err;
}

bp_err bp_spill_add(bp_spill *spill, const void *data, size_t bytes)
{
    const char *from = data;
    bp_err err = BP_OK;

    while (err == BP_OK && bytes > 0) {
        size_t capacity = spill->capacity_bytes - spill->tail_bytes;
        size_t now = bytes < capacity ? bytes : capacity;
        memcpy(spill->tail + spill->tail_bytes, from, now);
        spill->tail_bytes += now;
        from += now;
        bytes -= now;
        if (spill->tail_bytes == spill->capacity_bytes && bytes > 0)
            err = flush(spill);
    }
    return err;
}

void bp_spill_forget(bp_spill *spill, int64_t end)
{
    int64_t bytes = end < spill->file_bytes ? end : spill->file_bytes;

    if (bytes > 0) /* where the file system can't, the file is as large as before */
        (void)fallocate(spill->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes);
}

/* Reads bytes of the file; small sequential reads come from the buffer. */
static bp_err read_file(bp_spill *spill, int64_t offset, char *to, size_t bytes)
{
    int64_t left = spill->file_bytes - offset;
    bool is_there = offset >= spill->window_at &&
                    offset + (int64_t)bytes <= spill->window_at + (int64_t)spill->window_bytes;

    if (bytes >= WINDOW_BYTES)
        return bp_pread_all(spill->fd, to, bytes, offset) == 0
                   ? BP_OK
                   : bp_fail_errno(BP_ERR_IO, "can't read a temporary file in", spill->folder);
    if (!is_there) {
        if (!spill->window)
            spill->window = bp_alloc("io.spill", WINDOW_BYTES, 1);
        spill->window_at = offset;
        spill->window_bytes = (int64_t)WINDOW_BYTES < left ? WINDOW_BYTES : (size_t)left;
        if (bp_pread_all(spill->fd, spill->window, spill->window_bytes, offset) != 0) {
            spill->window_bytes = 0;
            return bp_fail_errno(BP_ERR_IO, "can't read a temporary file in", spill->folder);
        }
    }
    memcpy(to, spill->window + (offset - spill->window_at), bytes);
    return BP_OK;
}

bp_err bp_spill_read(bp_spill *spill, int64_t offset, void *data, size_t bytes)
{
    char *to = data;

    BP_ASSERT(offset >= 0 &&
              offset + (int64_t)bytes <= spill->file_bytes + (int64_t)spill->tail_bytes);
    if (bytes > 0 && offset < spill->file_bytes) {
        int64_t left = spill->file_bytes - offset;
        size_t now = (int64_t)bytes < left ? bytes : (size_t)left;
        bp_err err = read_file(spill, offset, to, now);

        if (err != BP_OK)
            return err;
        to += now;
        offset += (int64_t)now;
        bytes -= now;
    }
    if (bytes > 0)
        memcpy(to, spill->tail + (offset - spill->file_bytes), bytes);
    return BP_OK;
}
