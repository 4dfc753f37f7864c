/* Files of JSON lines that only grow, except for the cut at a resume. Local. */
#pragma once

#include "base/config/json.h"
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct run_journal {
    int fd; /* -1: not open */
    char *path;
    bool is_new; /* the file was created */
} run_journal;

/** Open or create; removes half a line that a killed job left at the end.
 *  Errors: BP_ERR_FORMAT it is not a plain file; BP_ERR_CREATE, BP_ERR_DENIED, BP_ERR_IO,
 *  BP_ERR_SYSTEM. */
bp_err run_journal_open(run_journal *out, const char *folder, const char *name);
void run_journal_close(run_journal *journal);
/** Bytes at the end, all or none. Errors: BP_ERR_IO. */
bp_err run_journal_append(const run_journal *journal, const void *data, size_t bytes);
/** One line, whole or not at all. Errors: BP_ERR_IO, BP_ERR_SYSTEM. */
bp_err run_journal_add(const run_journal *journal, const json_t *line);
bp_err run_journal_sync(const run_journal *journal);
/** Call `take` with every whole line, or NULL if it is not JSON; `end` is where the next one
 * begins. Errors: BP_ERR_IO. */
bp_err run_journal_each(const run_journal *journal, void *context,
                        void (*take)(void *context, const json_t *line, off_t end));
/** Cut off all lines after the last line with a `step` <= step (-1: all). Earlier unreadable lines
 * stay; a warning counts them, and names missing lines, which are due every `every` steps (0: not
 * known). Errors: BP_ERR_IO. */
bp_err run_journal_cut(run_journal *journal, int64_t step, int64_t every);
/** The step of the newest checkpoint by the events; 0 without a checkpoint. Errors: BP_ERR_IO. */
bp_err run_journal_committed(const run_journal *journal, int64_t *step);

/** The number of events in which an ensemble member began whose folder in RUN/members no longer
 * exists. Errors: BP_ERR_IO. */
bp_err run_journal_missing(const run_journal *journal, const char *folder, int64_t *missing);

/** Records that this process has opened a run folder, where its failures are written. */
void run_start_opened(void);
/** The digest of bp_run_note_request for this run folder. "" for another folder (of an ensemble
 * member), once a run folder was opened, or without a request. */
const char *run_start_request(const char *run_dir);
/** The first of the `results` of a finished run's record that no longer exists; NULL if all do.
 * Borrowed from the record. */
const char *run_missing_result(const char *run_dir, const json_t *record);
