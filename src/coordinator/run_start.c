/* What a start leaves that failed before it held the run folder: its corpus is damaged, say. */
#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "coordinator/run_folder.h"
#include "coordinator/run_journal_priv.h"
#include "coordinator/run_lock_priv.h"

#include <stdio.h>
#include <string.h>

#define RECORD_LIMIT ((int64_t)16 << 20)

static bool has_opened;

void run_start_opened(void)
{
    has_opened = true;
}

/* Some folder of somebody is none of ours. */
static bool is_run(const char *run_dir)
{
    char *path = bp_path_join(run_dir, "run.json");
    json_t *record = NULL;
    bool is = path != NULL && bp_path_exists(path) &&
              bp_json_load(&record, path, RECORD_LIMIT) == BP_OK &&
              json_is_string(json_object_get(record, "job"));

    json_decref(record);
    bp_free(path);
    return is;
}

static bp_err add_line(const char *run_dir, bp_err code, const char *message)
{
    run_journal events = {.fd = -1};
    char now[32];
    json_t *line;
    bp_err err;

    bp_clock_stamp(now, sizeof now);
    line = json_pack("{s:s, s:s, s:i, s:s}", "time", now, "event", "start_failed", "code",
                     (int)code, "message", message);
    err = line == NULL ? bp_fail_memory("an event", 1, 1)
                       : run_journal_open(&events, run_dir, "events.jsonl");
    if (err == BP_OK)
        err = run_journal_add(&events, line);
    if (err == BP_OK)
        err = run_journal_sync(&events);
    run_journal_close(&events);
    json_decref(line);
    return err;
}

void bp_run_start_failed(const char *run_dir, bp_err code)
{
    char message[BP_ERR_MESSAGE_BYTES];
    run_lock *lock = NULL;

    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    if (!has_opened && code != BP_OK && code != BP_ERR_STOPPED && code != BP_ERR_BUSY &&
        is_run(run_dir) && run_lock_try(&lock, run_dir) == BP_OK) {
        (void)add_line(run_dir, code, message); /* the failure is told on the terminal, too */
        (void)run_lock_release(&lock);
    }
    bp_err_set_message(message);
}
