/* Writes the files of a diagnosis. Runs on another thread while the main thread hangs: files are
 * opened anew, and lines are appended in one write. Called by run/run_folder.c and
 * watchdog_thread.c. */
#include "run/watchdog/watchdog_priv.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "run/lock/run_lock.h"
#include "run/status/run_progress.h"
#include "run/watchdog/backtraces.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RECORD_LIMIT ((int64_t)16 << 20)
#define TEXT_BYTES   1024

static const char *const REASONS[] = {"silent", "computes", "waits"};

/* "no progress for 61 s: rank 3 on host n2 (phase step, step 118, last collective all_sum)" */
static void describe(const watchdog *self, char out[TEXT_BYTES])
{
    const watchdog_diagnosis *diagnosis = &self->diagnosis;
    const char *name = diagnosis->collective[0] == '\0' ? "none" : diagnosis->collective;
    const char *host = self->places[self->rank].host;

    if (diagnosis->cause == NO_WORD)
        (void)snprintf(out, TEXT_BYTES,
                       "no word from rank 0 on host %s for %.0f s: rank %d on host %s leaves",
                       self->places[0].host, diagnosis->is.seconds, self->rank, host);
    else if (diagnosis->cause == NO_LAUNCHER)
        (void)snprintf(out, TEXT_BYTES,
                       "%s (process %d) is gone: rank %d on host %s and those beside it leave",
                       self->launcher.name, (int)self->launcher.pid, self->rank, host);
    else
        (void)snprintf(
            out, TEXT_BYTES,
            "no progress for %.0f s: rank %d on host %s (%sphase %s, step %lld, %s "
            "collective %s)",
            diagnosis->is.seconds, diagnosis->is.rank, self->places[diagnosis->is.rank].host,
            diagnosis->is.reason == BP_WATCH_SILENT ? "silent, " : "",
            bp_phase_name(diagnosis->heartbeat.phase), (long long)diagnosis->heartbeat.step,
            diagnosis->heartbeat.waits ? "in" : "last", name);
}

/* One write, and not through stderr: the main thread may hold its lock. */
static void say(const watchdog *self, const char *text)
{
    bool has_run = atomic_load(&self->has_run), stacks = self->diagnosis.cause != NO_LAUNCHER;

    (void)dprintf(STDERR_FILENO, "bagpipe: error[%d]: %s: at %s; %s%s%s [run.hung]\n",
                  (int)BP_ERR_STOPPED, text, has_run ? self->run_dir : "the start",
                  has_run && stacks ? "stacks are in " : "", has_run && stacks ? self->run_dir : "",
                  !stacks   ? "the same command goes on"
                  : has_run ? "/" BP_BACKTRACES_FOLDER "; the same command goes on"
                            : "give the command again");
}

bool watchdog_report_line(const watchdog *self)
{
    struct pollfd way = {.fd = STDERR_FILENO, .events = POLLOUT};
    char text[TEXT_BYTES];

    /* whoever reads standard error may have stopped to */
    if (!self->speaks || poll(&way, 1, 0) != 1 || (way.revents & POLLOUT) == 0)
        return false;
    describe(self, text);
    say(self, text);
    return true;
}

/* ---- files ---- */

int64_t bp_watchdog_lock_number(const char *run_dir)
{
    char *heartbeat = NULL;
    run_owner owner = {.epoch = 0};

    bp_dir_refresh(bp_path_in(run_dir, "lock").text);
    if (run_lock_read(run_dir, &owner, &heartbeat) != BP_OK)
        owner.epoch = 0;
    bp_free(heartbeat);
    return owner.epoch;
}

/* Rank 0 checks its lock. Others report if rank 0 hangs, perhaps so long that another job has taken
 * the folder. */
static bool may_write(watchdog *self)
{
    bool may;

    (void)pthread_mutex_lock(&self->owner);
    may = atomic_load(&self->has_run) && !self->disowned &&
          (self->still_owner ? self->still_owner(self->context)
                             : bp_watchdog_lock_number(self->run_dir) == self->lock_number);
    (void)pthread_mutex_unlock(&self->owner);
    return may;
}

static void add_event(const watchdog *self)
{
    const watchdog_diagnosis *is = &self->diagnosis;
    char *text;
    int fd = open(bp_path_in(self->run_dir, "events.jsonl").text,
                  O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    json_t *line;

    if (is->cause == NO_LAUNCHER)
        line = json_pack("{s:s, s:s, s:s}", "time", bp_clock_stamp().text, "event", "no_launcher",
                         "launcher", self->launcher.name);
    else
        line = json_pack("{s:s, s:s, s:i, s:s, s:s, s:f, s:s, s:I, s:s, s:b, s:i}", "time",
                         bp_clock_stamp().text, "event", "no_progress", "rank", is->is.rank, "host",
                         self->places[is->is.rank].host, "reason", REASONS[is->is.reason],
                         "seconds", is->is.seconds, "phase", bp_phase_name(is->heartbeat.phase),
                         "step", (json_int_t)is->heartbeat.step, "collective", is->collective,
                         "waits", is->heartbeat.waits, "by", self->rank);
    text = bp_json_line(line);
    if (fd >= 0) {
        (void)bp_write_all(fd, text, strlen(text)); /* half a line is cut at the next start */
        (void)close(fd);
    }
    json_decref(line);
    bp_free(text);
}

/* The main thread may have woken and write it too: each replaces the whole file, and the later one
 * stays. */
static void write_exit(const watchdog *self, const char *text)
{
    const bp_path path = bp_path_in(self->run_dir, "run.json");
    json_t *record = NULL;

    if (bp_json_load(&record, path.text, RECORD_LIMIT) == BP_OK) {
        (void)json_object_set_new(record, "exit",
                                  json_pack("{s:s, s:i, s:s, s:s}", "state", "stopped", "code",
                                            (int)BP_ERR_STOPPED, "time", bp_clock_stamp().text,
                                            "message", text));
        (void)bp_json_save(path.text, record); /* the line has been said */
    }
    json_decref(record);
}

/* By the lowest rank of its host: the kernel knows the state of a stopped process. */
static void write_stack_of_silent(const watchdog *self)
{
    int culprit = self->diagnosis.is.rank;
    const wire_place *place = &self->places[culprit];

    if (self->diagnosis.is.reason != BP_WATCH_SILENT || culprit == self->rank)
        return;
    for (int rank = 0; rank <= self->rank; rank++) {
        if (rank == culprit || !wire_is_beside(&self->places[rank], place))
            continue;
        if (rank == self->rank)
            bp_backtraces_write_of(culprit, place->host, place->pid);
        return;
    }
}

/* The rank that orders the others to leave writes; rank 0 its own exit state in any case: it may
 * have been stopped, and have been woken to be killed. */
void watchdog_report(watchdog *self)
{
    watchdog_cause cause = self->diagnosis.cause;
    bool owns, orders, said = watchdog_report_line(self); /* before anything that may hang */
    char text[TEXT_BYTES];

    describe(self, text);
    owns = cause != NO_WORD && (self->speaks || self->rank == 0) && may_write(self);
    orders = owns && self->speaks && (cause == NO_PROGRESS || self->rank == 0);
    if (orders) {
        add_event(self);
        run_words_keep(BP_ERR_STOPPED, text); /* rank 0 may never come to write it down */
    }
    if (cause == NO_PROGRESS)
        write_stack_of_silent(self);
    if (cause != NO_LAUNCHER)
        bp_backtraces_write(cause == NO_PROGRESS && self->diagnosis.is.reason == BP_WATCH_SILENT &&
                            self->diagnosis.is.rank == self->rank);
    if (owns && self->rank == 0)
        write_exit(self, text);
    if (orders)
        bp_log_file_only("%s", text);
    if (self->speaks && !said)
        say(self, text); /* it may hang here for good: all else is done */
}
