/* A start before it holds the run folder: is there work for it, and what it leaves if it fails (its
 * corpus is damaged, say). */
#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "mesh/collective.h"
#include "run/lock/run_lock_priv.h"
#include "run/run_folder.h"
#include "run/run_journal_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RECORD_LIMIT ((int64_t)16 << 20)
#define LINE_LIMIT   4096

static bool has_opened;

void run_start_opened(void)
{
    has_opened = true;
}

/* run.json; NULL: some folder of somebody is none of ours. */
static json_t *read_record(const char *run_dir)
{
    char *path = bp_path_join(run_dir, "run.json");
    json_t *record = NULL;
    bool is = path != NULL && bp_path_exists(path) &&
              bp_json_load_plain(&record, path, RECORD_LIMIT) == BP_OK &&
              json_is_string(json_object_get(record, "job"));

    bp_free(path);
    if (is)
        return record;
    json_decref(record);
    return NULL;
}

static bool is_run(const char *run_dir)
{
    json_t *record = read_record(run_dir);

    json_decref(record);
    return record != NULL;
}

static bool is_finished(const json_t *record)
{
    const char *state =
        json_string_value(json_object_get(json_object_get(record, "exit"), "state"));

    return state != NULL && strcmp(state, "finished") == 0;
}

/* Asked without the lock: a start that is about to fail must not stand in the way of one that goes
 * on, nor take the place of the owner that died, which `bagpipe status` tells of. */
static bool is_free(const char *run_dir)
{
    char *folder = bp_path_join(run_dir, "lock"), *heartbeat = NULL;
    run_owner owner, self;
    bool is = false;

    if (folder != NULL)
        bp_dir_refresh(folder);
    if (run_lock_look(run_dir, &owner, &heartbeat) == BP_OK) {
        run_owner_self(&self);
        is = run_owner_judge(&owner, &self) == OWNER_DEAD; /* released ones, too */
    }
    bp_free(heartbeat);
    bp_free(folder);
    return is;
}

/* The next owner takes half a line off; until then nothing can follow it. */
static bool ends_whole(int fd)
{
    off_t end = lseek(fd, 0, SEEK_END);
    char last;

    return end == 0 || (end > 0 && pread(fd, &last, 1, end - 1) == 1 && last == '\n');
}

/* In one short write, which others' lines can't divide: a job may take the folder meanwhile. */
static void add_line(const char *run_dir, bp_err code, const char *message)
{
    char now[32], *path = bp_path_join(run_dir, "events.jsonl"), *text;
    json_t *line;
    int fd = -1;

    bp_clock_stamp(now, sizeof now);
    line = json_pack("{s:s, s:s, s:i, s:s}", "time", now, "event", "start_failed", "code",
                     (int)code, "message", message);
    text = line == NULL ? NULL : bp_json_line(line);
    if (path != NULL && text != NULL && strlen(text) < LINE_LIMIT &&
        bp_plain_open(path, O_RDWR | O_CREAT | O_APPEND, &fd) == BP_OK) {
        if (ends_whole(fd) && write(fd, text, strlen(text)) > 0)
            (void)fsync(fd); /* the failure is told on the terminal, too */
        (void)close(fd);
    }
    json_decref(line);
    bp_free(text);
    bp_free(path);
}

bool bp_run_has_work(MPI_Comm comm, const char *run_dir)
{
    bool has = bp_comm_is_root(comm);

    if (has) {
        json_t *record = read_record(run_dir);

        has = record == NULL || (!is_finished(record) && is_free(run_dir));
        json_decref(record);
    }
    return bp_all_max_int(has, comm) != 0;
}

void bp_run_start_failed(const char *run_dir, bp_err code)
{
    char message[BP_ERR_MESSAGE_BYTES];

    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    if (!has_opened && code != BP_OK && code != BP_ERR_STOPPED && code != BP_ERR_BUSY &&
        is_run(run_dir) && is_free(run_dir))
        add_line(run_dir, code, message);
    bp_err_set_message(message);
}
