#include "coordinator/run_journal_priv.h"

#include "base/fault.h"
#include "base/fs.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Walk over whole lines from the begin for as long as `keep` says so: the bytes of those kept.
 * `line` has no newline. */
static bp_err measure(const run_journal *journal,
                      bool (*keep)(const char *line, size_t bytes, int64_t step), int64_t step,
                      off_t *kept)
{
    int fd = dup(journal->fd);
    FILE *stream = fd < 0 ? NULL : fdopen(fd, "r");
    char *line = NULL;
    size_t room = 0;
    ssize_t bytes;
    bp_err err = BP_OK;

    *kept = 0;
    if (stream == NULL || fseeko(stream, 0, SEEK_SET) != 0)
        err = bp_fail_errno(BP_ERR_IO, "can't read", journal->path);
    while (err == BP_OK && (bytes = getline(&line, &room, stream)) > 0) {
        if (line[bytes - 1] != '\n' || !keep(line, (size_t)bytes - 1, step))
            break;
        *kept += bytes;
    }
    if (err == BP_OK && ferror(stream))
        err = bp_fail_errno(BP_ERR_IO, "can't read", journal->path);
    free(line); /* getline's */
    if (stream != NULL)
        (void)fclose(stream);
    else if (fd >= 0)
        (void)close(fd);
    return err;
}

static bp_err cut_at(const run_journal *journal, off_t kept)
{
    struct stat status;

    if (fstat(journal->fd, &status) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't look at", journal->path);
    if (status.st_size == kept)
        return BP_OK;
    if (ftruncate(journal->fd, kept) != 0 || fsync(journal->fd) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't cut", journal->path);
    return BP_OK;
}

static bool any_line(const char *line, size_t bytes, int64_t step)
{
    (void)line;
    (void)bytes;
    (void)step;
    return true;
}

static bool leads_to(const char *line, size_t bytes, int64_t step)
{
    json_t *value;
    const json_t *at;
    bool keep;

    if (bp_json_parse(&value, line, bytes, "metrics.jsonl") != BP_OK)
        return false;
    at = json_object_get(value, "step");
    keep = json_is_integer(at) && json_integer_value(at) <= step;
    json_decref(value);
    return keep;
}

bp_err run_journal_open(run_journal *out, const char *folder, const char *name)
{
    off_t kept;
    bp_err err;

    out->fd = -1;
    out->path = bp_path_join(folder, name);
    if (out->path == NULL)
        return bp_fail_memory("a file name", 1, strlen(folder));
    out->fd = open(out->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (out->fd < 0)
        return bp_fail_create("can't open", out->path);
    err = measure(out, any_line, 0, &kept);
    return err == BP_OK ? cut_at(out, kept) : err;
}

void run_journal_close(run_journal *journal)
{
    if (journal->fd >= 0)
        (void)close(journal->fd); /* run_journal_sync has told what went wrong */
    bp_free(journal->path);
    *journal = (run_journal){.fd = -1};
}

/* A fault finds half of it in the file. */
static int write_halves(int fd, const char *data, size_t bytes)
{
    size_t half = bp_fault_is_armed() ? bytes / 2 : 0;

    if (half > 0 && (bp_write_all(fd, data, half) != 0 || bp_fault("metrics.append_half")))
        return -1;
    return bp_write_all(fd, data + half, bytes - half);
}

bp_err run_journal_append(run_journal *journal, const void *data, size_t bytes)
{
    off_t end = lseek(journal->fd, 0, SEEK_END);
    bp_err err;

    if (end >= 0 && write_halves(journal->fd, data, bytes) == 0)
        return BP_OK;
    err = bp_fail_errno(BP_ERR_IO, "can't write", journal->path);
    if (end >= 0 && ftruncate(journal->fd, end) != 0)
        err = bp_err_prefix(err, "half a line stays"); /* the next start takes it off */
    return err;
}

bp_err run_journal_add(run_journal *journal, const json_t *line)
{
    char *text = bp_json_line(line);
    bp_err err = text == NULL ? bp_fail_memory("a line", 1, 1)
                              : run_journal_append(journal, text, strlen(text));

    bp_free(text);
    return err;
}

bp_err run_journal_sync(const run_journal *journal)
{
    if (journal->fd >= 0 && fsync(journal->fd) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't bring to disk", journal->path);
    return BP_OK;
}

bp_err run_journal_cut(run_journal *journal, int64_t step)
{
    off_t kept;
    bp_err err = measure(journal, leads_to, step, &kept);

    return err == BP_OK ? cut_at(journal, kept) : err;
}
