/* Bytes in memory, then in an unlinked file. */
#include "io/corpus/spool.h"

#include "base/fs.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct bp_spool {
    char *folder;
    char *tail; /* the last bytes, not in the file yet */
    size_t tail_bytes, room_bytes;
    int64_t file_bytes;
    int fd; /* -1: none yet */
};

bp_err bp_spool_new(bp_spool **out, const char *folder, size_t memory_bytes)
{
    bp_spool *spool = bp_alloc("store.spool", 1, sizeof *spool);

    *out = NULL;
    spool->fd = -1;
    spool->room_bytes = memory_bytes;
    spool->folder = bp_strdup(folder);
    spool->tail = bp_alloc("store.spool", (int64_t)memory_bytes, 1);
    if (spool->folder == NULL || spool->tail == NULL) {
        bp_spool_free(&spool);
        return bp_fail_memory("a spool", (int64_t)memory_bytes, 1);
    }
    *out = spool;
    return BP_OK;
}

void bp_spool_free(bp_spool **spool)
{
    if (*spool != NULL) {
        if ((*spool)->fd >= 0)
            (void)close((*spool)->fd); /* unlinked: nothing of it is wanted any more */
        bp_free((*spool)->tail);
        bp_free((*spool)->folder);
    }
    bp_free(*spool);
    *spool = NULL;
}

/* O_TMPFILE where the file system has it (most; not all networked ones), else a name that is
 * removed at once. */
static bp_err open_file(bp_spool *spool)
{
    bp_err err = BP_OK;
    char *name;

    spool->fd = open(spool->folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (spool->fd >= 0)
        return BP_OK;
    name = bp_sprintf("%s/.bp-spool-XXXXXX", spool->folder);
    spool->fd = mkostemp(name, O_CLOEXEC);
    if (spool->fd < 0 || unlink(name) != 0)
        err = bp_fail_create("can't create a temporary file", name);
    bp_free(name);
    return err;
}

static bp_err flush(bp_spool *spool)
{
    bp_err err = spool->fd < 0 ? open_file(spool) : BP_OK;

    if (err != BP_OK)
        return err;
    if (bp_write_all(spool->fd, spool->tail, spool->tail_bytes) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't write a temporary file in", spool->folder);
    spool->file_bytes += (int64_t)spool->tail_bytes;
    spool->tail_bytes = 0;
    return BP_OK;
}

bp_err bp_spool_add(bp_spool *spool, const void *data, size_t bytes)
{
    const char *from = data;
    bp_err err = BP_OK;

    while (err == BP_OK && bytes > 0) {
        size_t room = spool->room_bytes - spool->tail_bytes;
        size_t now = bytes < room ? bytes : room;
        memcpy(spool->tail + spool->tail_bytes, from, now);
        spool->tail_bytes += now;
        from += now;
        bytes -= now;
        if (spool->tail_bytes == spool->room_bytes && bytes > 0)
            err = flush(spool);
    }
    return err;
}

bp_err bp_spool_read(bp_spool *spool, int64_t offset, void *data, size_t bytes)
{
    char *to = data;

    BP_ASSERT(offset >= 0 && offset + (int64_t)bytes <= bp_spool_bytes(spool));
    if (bytes > 0 && offset < spool->file_bytes) {
        int64_t left = spool->file_bytes - offset;
        size_t now = (int64_t)bytes < left ? bytes : (size_t)left;
        if (bp_pread_all(spool->fd, to, now, offset) != 0)
            return bp_fail_errno(BP_ERR_IO, "can't read a temporary file in", spool->folder);
        to += now;
        offset += (int64_t)now;
        bytes -= now;
    }
    if (bytes > 0)
        memcpy(to, spool->tail + (offset - spool->file_bytes), bytes);
    return BP_OK;
}

int64_t bp_spool_bytes(const bp_spool *spool)
{
    return spool->file_bytes + (int64_t)spool->tail_bytes;
}
