/* metrics.jsonl and events.jsonl: lines appended whole, cut back to a checkpoint's step on
 * resume. */
#include "run/run_journal.h"

#include "base/fault.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/run_fields.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

bp_err run_journal_each(const run_journal *journal, void *context,
                        void (*take)(void *context, const json_t *line, off_t end))
{
    int fd = dup(journal->fd);
    FILE *stream = fd < 0 ? NULL : fdopen(fd, "r");
    char *line = NULL;
    size_t capacity = 0;
    ssize_t bytes;
    off_t end = 0;
    bp_err err = BP_OK;

    if (!stream || fseeko(stream, 0, SEEK_SET) != 0)
        err = bp_fail_errno(BP_ERR_IO, "can't read", journal->path);
    while (err == BP_OK && (bytes = getline(&line, &capacity, stream)) > 0 &&
           line[bytes - 1] == '\n') {
        json_t *value = NULL; /* stays NULL if it is not JSON */

        (void)bp_json_parse(&value, line, (size_t)bytes - 1, "a line");
        end += bytes;
        take(context, value, end);
        json_decref(value);
    }
    if (err == BP_OK && ferror(stream))
        err = bp_fail_errno(BP_ERR_IO, "can't read", journal->path);
    free(line); /* getline's */
    if (stream)
        (void)fclose(stream);
    else if (fd >= 0)
        (void)close(fd);
    return err;
}

/* Where the last line begins if it has no newline; else the size. */
static bp_err find_tail(const run_journal *journal, off_t *begin, off_t *size)
{
    char block[4096];
    struct stat status;

    if (fstat(journal->fd, &status) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't look at", journal->path);
    *begin = *size = status.st_size;
    while (*begin > 0) {
        size_t bytes = *begin < (off_t)sizeof block ? (size_t)*begin : sizeof block;
        const char *newline;

        if (bp_pread_all(journal->fd, block, bytes, *begin - (off_t)bytes) != 0)
            return bp_fail_errno(BP_ERR_IO, "can't read", journal->path);
        newline = memrchr(block, '\n', bytes);
        *begin -= newline == NULL ? (off_t)bytes : (off_t)(block + bytes - newline - 1);
        if (newline)
            break;
    }
    return BP_OK;
}

/* Half a line that a killed job left, or zeros after a power cut, are removed. Any other tail was
 * written by someone else: it becomes an unreadable line, and stays. */
static bp_err end_whole(const run_journal *journal)
{
    off_t begin, size;
    char first = '\0';
    bp_err err = find_tail(journal, &begin, &size);

    if (err != BP_OK || begin == size)
        return err;
    if (bp_pread_all(journal->fd, &first, 1, begin) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't read", journal->path);
    if (first == '{' || first == '\0')
        return cut_at(journal, begin);
    BP_WARN(
        "journal.bad_lines",
        "the last %lld bytes are not a line that a job writes: at %s; they stay as they are, and "
        "are skipped",
        (long long)(size - begin), journal->path);
    return run_journal_append(journal, "\n", 1);
}

bp_err run_journal_open(run_journal *out, const char *folder, const char *name)
{
    bp_err err;

    out->fd = -1;
    out->path = bp_path_join(folder, name);
    out->is_new = !bp_path_exists(out->path);
    err = bp_plain_open(out->path, O_RDWR | O_CREAT | O_APPEND, &out->fd);
    return err == BP_OK ? end_whole(out) : err;
}

void run_journal_close(run_journal *journal)
{
    if (journal->fd >= 0)
        (void)close(journal->fd); /* run_journal_sync has reported any failure */
    bp_free(journal->path);
    *journal = (run_journal){.fd = -1};
}

/* If faults are armed, in two halves, so that an injected one leaves half a line. */
static int write_halves(int fd, const char *data, size_t bytes)
{
    size_t half = bp_fault_is_armed() ? bytes / 2 : 0;

    if (half > 0 && (bp_write_all(fd, data, half) != 0 || bp_fault("metrics.append_half")))
        return -1;
    return bp_write_all(fd, data + half, bytes - half);
}

bp_err run_journal_append(const run_journal *journal, const void *data, size_t bytes)
{
    off_t end = lseek(journal->fd, 0, SEEK_END);
    bp_err err;

    if (end >= 0 && write_halves(journal->fd, data, bytes) == 0)
        return BP_OK;
    err = bp_fail_errno(BP_ERR_IO, "can't write", journal->path);
    if (end >= 0 && ftruncate(journal->fd, end) != 0)
        err = bp_err_prefix(err, "half a line stays"); /* the next start removes it */
    return err;
}

bp_err run_journal_add(const run_journal *journal, const json_t *line)
{
    char *text = bp_json_line(line);
    bp_err err = run_journal_append(journal, text, strlen(text));

    bp_free(text);
    return err;
}

bp_err run_journal_sync(const run_journal *journal)
{
    if (journal->fd >= 0 && fsync(journal->fd) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't bring to disk", journal->path);
    return BP_OK;
}

/* ---- lines up to a step ---- */

struct cutting {
    int64_t step, every; /* arguments */
    int64_t line, last;  /* lines so far; the step of the last in order up to `step`, 0 if none */
    int64_t odd, first_odd; /* other lines before it: unreadable or out of order */
    int64_t after, first;   /* all lines after it, also readable ones of later steps */
    off_t kept, kept_after; /* the end of that line, and of those after it that stay */
    int64_t stay;           /* how many these are */
};

/* Number of steps after `last`, up to the cut, for which a line is due. */
static int64_t lines_due(const struct cutting *self)
{
    return self->every <= 0 ? 0 : self->step / self->every - self->last / self->every;
}

/* An unreadable line has no step, so its position decides whether it is kept. It stays if a
 * readable line of a step up to the checkpoint's follows it, in order; after the last such line it
 * stays only if lines are still due. */
static void weigh_line(void *context, const json_t *line, off_t end)
{
    struct cutting *self = context;
    const json_t *at = json_object_get(line, "step");
    int64_t step = json_is_integer(at) ? json_integer_value(at) : 0;

    self->line++;
    if (step > self->last && step <= self->step) {
        if (self->after > 0 && self->odd == 0)
            self->first_odd = self->first;
        self->odd += self->after;
        self->last = step;
        self->kept = self->kept_after = end;
        self->after = self->stay = 0;
        return;
    }
    if (self->after++ == 0)
        self->first = self->line;
    if (step == 0 && self->stay + 1 == self->after && self->stay < lines_due(self)) {
        self->stay++;
        self->kept_after = end;
    }
}

bp_err run_journal_cut(run_journal *journal, int64_t step, int64_t every)
{
    struct cutting self = {.step = step, .every = every};
    bp_err err = step < 0 ? BP_OK : run_journal_each(journal, &self, weigh_line);

    if (err != BP_OK)
        return err;
    if (self.stay > 0 && self.odd == 0)
        self.first_odd = self.first;
    self.odd += self.stay;
    if (self.odd > 0)
        BP_WARN("journal.bad_lines",
                "lines that can't be read, or are out of order: %lld, the first is line %lld: at "
                "%s; they stay as they are, and are skipped",
                (long long)self.odd, (long long)self.first_odd, journal->path);
    if (lines_due(&self) > self.stay)
        BP_WARN("journal.missing_lines",
                "lines are missing, the last is of step %lld and the checkpoint of step %lld: at "
                "%s; the training is not touched by it",
                (long long)self.last, (long long)step, journal->path);
    return cut_at(journal, self.kept_after);
}

/* ---- what was committed ---- */

static void take_commit(void *context, const json_t *line, off_t end)
{
    static const char *const commits[] = {"checkpoint", "resumed", "started", NULL};
    const json_t *step = json_object_get(line, "step");

    (void)end;
    if (json_is_integer(step) && is_among(text_of(line, "event"), commits))
        *(int64_t *)context = json_integer_value(step);
}

bp_err run_journal_committed(const run_journal *journal, int64_t *step)
{
    *step = 0;
    return run_journal_each(journal, step, take_commit);
}

/* ---- members that began ---- */

struct member_search {
    const char *folder;
    int64_t missing;
};

static void take_member(void *context, const json_t *line, off_t end)
{
    struct member_search *self = context;
    char *path = bp_sprintf("%s/members/%s", self->folder, text_of(line, "member"));

    (void)end;
    self->missing +=
        says(line, "event", "member_started") && has(line, "member") && !bp_path_exists(path);
    bp_free(path);
}

bp_err run_journal_missing(const run_journal *journal, const char *folder, int64_t *missing)
{
    struct member_search self = {.folder = folder};
    bp_err err = run_journal_each(journal, &self, take_member);

    *missing = self.missing;
    return err;
}
