/* Part files: appended records, each checked by hashes. Called by work_units.c. */
#include "job/parts.h"

#include "base/fault.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/heartbeat.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_BYTES  128
#define SYNC_SECONDS 1.0
#define OPEN_MOST    256 /* files that are read from at a time */
#define SUFFIX       ".part"
#define MAGIC        UINT64_C(0x31544e5554524150) /* "PARTUNT1" */

typedef struct record {
    uint64_t magic;
    int64_t unit, bytes;
    uint64_t result_hash;
    uint64_t header_hash; /* of all above */
} record;

struct bp_part_writer {
    int fd;
    char *path;
    double synced;
    bool failed;
};

static void block_text(char block[BLOCK_BYTES + 1], const char *key)
{
    /* "score" for every job, as in existing runs that must resume */
    int used = snprintf(block, BLOCK_BYTES + 1, "bagpipe score part 2\nwork %s\n", key);

    BP_ASSERT(used > 0 && used < BLOCK_BYTES);
    memset(block + used, ' ', (size_t)(BLOCK_BYTES - used));
    block[BLOCK_BYTES - 1] = '\n';
    block[BLOCK_BYTES] = '\0';
}

bp_err bp_part_writer_new(bp_part_writer **out, const char *path, const char *key)
{
    bp_part_writer *writer = bp_alloc("job.parts", 1, sizeof(*writer));
    char block[BLOCK_BYTES + 1];
    bp_err err = BP_OK;

    block_text(block, key);
    writer->path = bp_strdup(path);
    writer->synced = bp_clock_now();
    writer->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (writer->fd < 0)
        err = bp_fail_errno(BP_ERR_CREATE, "create", path);
    else if (bp_write_all(writer->fd, block, BLOCK_BYTES) != 0)
        err = bp_fail_errno(BP_ERR_IO, "write", path);
    writer->failed = err != BP_OK;
    if (err != BP_OK)
        (void)bp_part_writer_close(&writer);
    *out = writer;
    return err;
}

static bp_err sync_part(bp_part_writer *writer)
{
    writer->synced = bp_clock_now();
    if (fsync(writer->fd) != 0)
        return bp_fail_errno(BP_ERR_IO, "fsync", writer->path);
    return BP_OK;
}

bp_err bp_part_writer_add(bp_part_writer *writer, int64_t unit, const void *result, size_t bytes)
{
    record head = {.magic = MAGIC, .unit = unit, .bytes = (int64_t)bytes};
    bp_err err = BP_OK;

    BP_ASSERT(!writer->failed);
    head.result_hash = bp_xxh3(result, bytes);
    head.header_hash = bp_xxh3(&head, offsetof(record, header_hash));
    if (bp_fault("work.part")) {
        errno = ENOSPC;
        err = bp_fail_errno(BP_ERR_IO, "write", writer->path);
    } else if (bp_write_all(writer->fd, &head, sizeof(head)) != 0 ||
               bp_write_all(writer->fd, result, bytes) != 0) {
        err = bp_fail_errno(BP_ERR_IO, "write", writer->path);
    }
    if (err == BP_OK && bp_clock_now() - writer->synced > SYNC_SECONDS)
        err = sync_part(writer);
    bp_fault_point("work.unit_done");
    writer->failed = err != BP_OK;
    return err;
}

bp_err bp_part_writer_close(bp_part_writer **writer)
{
    bp_part_writer *old = *writer;
    bp_err err = BP_OK;

    if (!old)
        return BP_OK;
    if (old->fd >= 0) {
        if (!old->failed)
            err = sync_part(old);
        if (close(old->fd) != 0 && err == BP_OK && !old->failed)
            err = bp_fail_errno(BP_ERR_IO, "close", old->path);
    }
    bp_free(old->path);
    bp_free(old);
    *writer = NULL;
    return err;
}

/* ---- reading ---- */

static void close_file(bp_parts *parts, int64_t file)
{
    if (parts->fds[file] >= 0)
        (void)close(parts->fds[file]); /* read only: nothing can be lost */
    parts->fds[file] = -1;
}

/* Consecutive units are in the files of several leads: recently read files stay open. */
static bp_err open_file(bp_parts *parts, int64_t file)
{
    bp_err err = BP_OK;

    if (parts->fds[file] < 0) {
        int64_t *place = &parts->kept[parts->kept_next];

        if (parts->kept_count == OPEN_MOST)
            close_file(parts, *place);
        err = bp_plain_open(parts->paths[file], O_RDONLY, &parts->fds[file]);
        if (err == BP_OK) {
            parts->kept_count += parts->kept_count < OPEN_MOST;
            *place = file;
            parts->kept_next = (parts->kept_next + 1) % OPEN_MOST;
        } else {
            parts->fds[file] = -1;
        }
    }
    parts->open = err == BP_OK ? file : -1;
    return err;
}

/* Reads the header of the record at `offset` of the open file. Returns false if it is incomplete:
 * the last one of a job that was killed as it wrote, or a damaged one, which is counted. */
static bp_err read_head(bp_parts *parts, int64_t offset, int64_t file_bytes, record *head,
                        bool *whole)
{
    const char *path = parts->paths[parts->open];
    int64_t left = file_bytes - offset - (int64_t)sizeof(*head);

    *whole = false;
    if (left < 0)
        return BP_OK;
    if (bp_pread_all(parts->fds[parts->open], head, sizeof(*head), offset) != 0)
        return bp_fail_errno(BP_ERR_IO, "read", path);
    if (head->magic != MAGIC || head->header_hash != bp_xxh3(head, offsetof(record, header_hash)) ||
        head->bytes < 0) {
        parts->damaged++;
        return BP_OK;
    }
    *whole = head->bytes <= left;
    return BP_OK;
}

/* The same with its result, which goes to parts->buffer. */
static bp_err read_record(bp_parts *parts, int64_t offset, int64_t file_bytes, record *head,
                          bool *whole)
{
    bp_err err = read_head(parts, offset, file_bytes, head, whole);

    if (err != BP_OK || !*whole)
        return err;
    if ((size_t)head->bytes > parts->capacity_bytes) {
        parts->capacity_bytes = (size_t)head->bytes;
        parts->buffer = bp_realloc("job.parts", parts->buffer, head->bytes, 1);
    }
    if (bp_pread_all(parts->fds[parts->open], parts->buffer, (size_t)head->bytes,
                     offset + (int64_t)sizeof(*head)) != 0)
        return bp_fail_errno(BP_ERR_IO, "read", parts->paths[parts->open]);
    *whole = head->result_hash == bp_xxh3(parts->buffer, (size_t)head->bytes);
    parts->damaged += *whole ? 0 : 1;
    return BP_OK;
}

static bp_err scan_file(bp_parts *parts, int64_t file, const char *key, bool heads_only)
{
    char want[BLOCK_BYTES + 1], block[BLOCK_BYTES];
    int64_t bytes = bp_file_size(parts->paths[file]);
    bool whole = true;
    bp_err err = open_file(parts, file);

    if (err != BP_OK || bytes < BLOCK_BYTES) /* torn when it was created: it is empty */
        return err;
    block_text(want, key);
    if (bp_pread_all(parts->fds[parts->open], block, BLOCK_BYTES, 0) != 0)
        return bp_fail_errno(BP_ERR_IO, "read", parts->paths[file]);
    if (memcmp(block, want, BLOCK_BYTES) != 0) {
        parts->foreign++;
        return BP_OK;
    }
    for (int64_t offset = BLOCK_BYTES;;) {
        record head;

        err = (heads_only ? read_head : read_record)(parts, offset, bytes, &head, &whole);
        if (err != BP_OK || !whole)
            return err;
        if (head.unit >= 0 && head.unit < parts->units && !parts->done[head.unit]) {
            parts->done[head.unit] = 1;
            parts->done_count++;
            parts->places[head.unit] = (bp_part_place){.file = file, .offset = offset};
        }
        offset += (int64_t)sizeof(head) + head.bytes;
    }
}

/* The start that wrote a file of this name; 0 if it is not a part file. */
static int64_t start_of(const char *name)
{
    size_t length = strlen(name), suffix = strlen(SUFFIX);

    if (length <= suffix || strcmp(name + length - suffix, SUFFIX) != 0)
        return 0;
    int64_t start = strtoll(name, NULL, 10);

    return start > 0 ? start : 0;
}

static bp_err scan_folder(bp_parts *parts, const char *folder, const char *key, bool merging)
{
    char **names = NULL;
    int64_t count = 0;
    bp_err err = bp_dir_list(folder, &names, &count);

    if (err != BP_OK)
        return err;
    parts->paths = bp_alloc("job.parts", count, sizeof(*parts->paths));
    parts->fds = bp_alloc("job.parts", count, sizeof(*parts->fds));
    parts->kept = bp_alloc("job.parts", OPEN_MOST, sizeof(*parts->kept));
    for (int64_t i = 0; i < count; i++)
        parts->fds[i] = -1;
    for (int64_t i = 0; i < count; i++)
        if (start_of(names[i]) >= parts->start)
            parts->start = start_of(names[i]) + 1;
    for (int64_t i = 0; err == BP_OK && i < count; i++) {
        int64_t start = start_of(names[i]);

        if (start == 0)
            continue;
        parts->paths[parts->files] = bp_path_join(folder, names[i]);
        err = scan_file(parts, parts->files++, key, merging && start == parts->start - 1);
    }
    bp_names_free(&names, count);
    return err;
}

bp_err bp_parts_open(bp_parts **out, const char *folder, const char *key, int64_t units,
                     bool merging)
{
    bp_parts *parts = bp_alloc("job.parts", 1, sizeof(*parts));
    bp_err err = BP_OK;

    *parts = (bp_parts){.units = units, .start = 1, .open = -1};
    parts->done = bp_alloc("job.parts", units, sizeof(*parts->done));
    parts->places = bp_alloc("job.parts", units, sizeof(*parts->places));
    if (bp_path_is_dir(folder))
        err = scan_folder(parts, folder, key, merging);
    if (err != BP_OK)
        bp_parts_free(&parts);
    *out = parts;
    return err;
}

static bool has_key(const char *path, const char *key)
{
    char block[BLOCK_BYTES + 1], want[BLOCK_BYTES + 1];
    int fd;
    bool has;

    if (bp_plain_open(path, O_RDONLY, &fd) != BP_OK)
        return false;
    block_text(want, key);
    has = bp_pread_all(fd, block, BLOCK_BYTES, 0) == 0 && memcmp(block, want, BLOCK_BYTES) == 0;
    (void)close(fd); /* read only: nothing can be lost */
    return has;
}

bool bp_parts_has(const char *folder, const char *key)
{
    char **names = NULL;
    int64_t count = 0;
    bool has = false;

    if (!bp_path_is_dir(folder) || bp_dir_list(folder, &names, &count) != BP_OK)
        return false;
    for (int64_t i = 0; i < count && !has; i++)
        has = start_of(names[i]) > 0 && has_key(bp_path_in(folder, names[i]).text, key);
    bp_names_free(&names, count);
    return has;
}

void bp_parts_free(bp_parts **parts)
{
    bp_parts *old = *parts;

    if (!old)
        return;
    for (int64_t i = 0; i < old->files; i++) {
        close_file(old, i);
        bp_free(old->paths[i]);
    }
    bp_free(old->fds);
    bp_free(old->kept);
    bp_free(old->paths);
    bp_free(old->buffer);
    bp_free(old->places);
    bp_free(old->done);
    bp_free(old);
    *parts = NULL;
}

bp_err bp_parts_read(bp_parts *parts, int64_t unit, const char **result, size_t *bytes,
                     const char **path)
{
    record head;
    bool whole = false;

    BP_ASSERT(unit >= 0 && unit < parts->units);
    if (!parts->done[unit])
        return BP_FAIL(BP_ERR_FORMAT, "result.missing",
                       "the result of work unit %" PRId64 " is missing", unit);
    bp_err err = open_file(parts, parts->places[unit].file);
    *path = parts->paths[parts->places[unit].file];
    if (err == BP_OK)
        err = read_record(parts, parts->places[unit].offset, bp_file_size(*path), &head, &whole);
    if (err == BP_OK && (!whole || head.unit != unit))
        err = BP_FAIL(BP_ERR_FORMAT, "result.damaged",
                      "the result of work unit %" PRId64 " is damaged: at %s", unit, *path);
    *result = parts->buffer;
    *bytes = err == BP_OK ? (size_t)head.bytes : 0;
    return err;
}

bool bp_parts_next(bp_parts *parts, bp_part_result *part, bp_err *err)
{
    if (*err != BP_OK || part->next >= parts->units)
        return false;
    bp_heartbeat_progress();
    part->unit = part->next++;
    *err = bp_parts_read(parts, part->unit, &part->data, &part->bytes, &part->path);
    return *err == BP_OK;
}

bp_err bp_part_result_expect(const bp_part_result *part, size_t want)
{
    return part->bytes == want ? BP_OK
                               : BP_FAIL(BP_ERR_FORMAT, "result.damaged",
                                         "a result is damaged, with %zu bytes, not %zu: at %s",
                                         part->bytes, want, part->path);
}
