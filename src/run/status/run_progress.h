/* RUN/status.json, written by the job, and RUN/last_words.txt. Local. */
#pragma once

#include "base/config/json.h"
#include "base/err.h"
#include "run/lock/run_lock.h"
#include <stdbool.h>
#include <stdint.h>

#define RUN_STATUS_FILE    "status.json"
#define RUN_STATUS_FORMAT  "bagpipe status"
#define RUN_STATUS_VERSION 1
#define RUN_STATUS_LIMIT   ((int64_t)1 << 20)

#define STATUS_NO_TIME     (-1.0)

/* "2026-11-22T06:13:36Z" as seconds since 1970; STATUS_NO_TIME if it is invalid. */
double status_time(const char *stamp);

/* ---- on the coordinator: progress of the run. All are no-ops if `progress` is NULL. ---- */

typedef struct run_progress run_progress;

/** Begin from the file of earlier starts. From now on phases of this process are also written (to
 * the run that was opened last).
 *
 * folder, lock: borrowed until run_progress_free. record, before: run.json of this start and of the
 * previous one (may be NULL). A failure to write is not an error: it is warned of once.
 */
run_progress *run_progress_open(const char *folder, run_lock *lock, const json_t *record,
                                const json_t *before);
/** A line of metrics.jsonl or events.jsonl that was just written. */
void run_progress_metric(run_progress *progress, const json_t *line);
void run_progress_event(run_progress *progress, const json_t *line);
/** Records an event, or {"warning": text}, found by another thread than the job's. Only the newest
 * is kept, until run_progress_noted() returns it to the thread that may access files. Takes the
 * reference; may be NULL. Any thread. */
void run_progress_note(json_t *line);
json_t *run_progress_noted(void);
/** Sets members of the file: the progress of jobs without steps. */
void run_progress_take(run_progress *progress, const json_t *members);
/** `ended`: the "exit" of run.json. Nothing is written after it. */
void run_progress_end(run_progress *progress, json_t *ended);
void run_progress_free(run_progress **progress);

/** Read a folder's; NULL if it is missing or invalid. */
json_t *run_progress_read(const char *folder);

/* ---- on every rank: the last line of a program that ends at once (bp_err_last_words) ---- */

/** Keep it in `folder` from now on; returns false if an enclosing run does. start: of run.json. */
bool run_words_begin(const char *folder, int start);
void run_words_end(void);
/** Writes a line of this rank, from another thread than the one that hangs. */
void run_words_keep(int status, const char *line);
/** Records the launcher's exit status of start `start`, the batch script's cause ("" if unknown),
 * and that `bagpipe requeue` was run. */
void run_words_add(const char *folder, int64_t start, int status, const char *cause);
/** A new start begins. */
void run_words_clear(const char *folder);

/** How the last start ended, {"state", "code", "reason", "message", "time"}: by run.json, by
 * status.json, by the first last word of a rank, a fatal signal, or the launcher's status. A status
 * of 128 + a signal gives the state "dead". "cause" is the batch script's cause, which may be "";
 * it is missing if bagpipe requeue was not run. NULL if unknown, or still running. A new
 * reference. */
json_t *run_words_of_end(const char *folder, const json_t *record, const json_t *progress);
/** The same for a start without a record of its end: asks Slurm about its job and nodes, for some
 * seconds. */
json_t *run_words_ask_slurm(const json_t *record);
/** The same for an exit status (75, or 128 + a signal); with message "" it makes one from the
 * status. */
json_t *run_words_of(int status, const char *message);
/** "was stopped (USR1): time limit" */
void run_words_text(char *out, size_t out_bytes, const json_t *end);
