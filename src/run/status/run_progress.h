/* RUN/status.json, as the job writes it, and RUN/last_words.txt. Local. */
#ifndef BP_RUN_STATUS_RUN_PROGRESS_H
#define BP_RUN_STATUS_RUN_PROGRESS_H

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

/* "2026-11-22T06:13:36Z" as seconds since 1970; STATUS_NO_TIME: it is not one. */
double status_time(const char *stamp);

/* ---- the coordinator's: how far the run is. NULL for `progress`: nothing is done. ---- */

typedef struct run_progress run_progress;

/** Begin with what earlier starts have left. From now on phases of this process are written, too
 * (those of the run that was opened last).
 *
 * folder, lock: borrowed until run_progress_free. record, before: run.json of this start and of the
 * one before (NULL: there was none). What can't be written is not an error: it is warned of once.
 */
run_progress *run_progress_open(const char *folder, run_lock *lock, const json_t *record,
                                const json_t *before);
/** A line of metrics.jsonl or events.jsonl that was just written. */
void run_progress_metric(run_progress *progress, const json_t *line);
void run_progress_event(run_progress *progress, const json_t *line);
/** What a thread beside the one that runs the job has found: an event, or {"warning": text}. Only
 * the newest is kept, until run_progress_noted() gives it to the thread that may touch files. Takes
 * the reference; NULL: nothing. Any thread. */
void run_progress_note(json_t *line);
json_t *run_progress_noted(void);
/** Members of the file; "how far" of jobs that have no steps. */
void run_progress_take(run_progress *progress, const json_t *members);
/** `ended`: as run.json has it under "exit". Nothing is written after it. */
void run_progress_end(run_progress *progress, json_t *ended);
void run_progress_free(run_progress **progress);

/** Read a folder's; NULL: there is none, or no sense can be made of it. */
json_t *run_progress_read(const char *folder);

/* ---- every rank's: the line with which a program ends at once (bp_err_last_words) ---- */

/** Keep it in `folder` from now on; false: a run around this one does. start: of run.json. */
bool run_words_begin(const char *folder, int start);
void run_words_end(void);
/** A line of this rank, from a thread beside the one that hangs. */
void run_words_keep(int status, const char *line);
/** What the launcher of start `start` ended with, and why as the batch script knows it ("": it does
 * not): that `bagpipe requeue` was asked is noted in any case. */
void run_words_add(const char *folder, int64_t start, int status, const char *cause);
/** A new start begins. */
void run_words_clear(const char *folder);

/** How the last start ended, {"state", "code", "reason", "message", "time"}: by run.json, by
 * status.json, by the first last word that a rank of it has left, a fatal signal, or the launcher's
 * status. Once by 128 + a signal, its state is "dead". "cause" is the batch script's word, which
 * may be ""; without it nobody has asked whether to queue the job again. NULL: unknown, or
 * it runs. A new reference. */
json_t *run_words_of_end(const char *folder, const json_t *record, const json_t *progress);
/** The same of a start without a record of its end: what Slurm knows of its job and nodes, in some
 * seconds. */
json_t *run_words_ask_slurm(const json_t *record);
/** The same of an exit status (75, or 128 + a signal); "": a message of it is made. */
json_t *run_words_of(int status, const char *message);
/** "was stopped (USR1): time limit" */
void run_words_text(char *out, size_t out_bytes, const json_t *end);

#endif
