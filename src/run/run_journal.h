/* Files of JSON lines that only grow, except for the cut at a resume. Local. */
#ifndef BP_RUN_RUN_JOURNAL_H
#define BP_RUN_RUN_JOURNAL_H

#include "base/config/json.h"
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct run_journal {
    int fd; /* -1: not open */
    char *path;
    bool is_new; /* there was none when it was opened */
} run_journal;

/** Open or create; half a line at the end (of a job that was killed) is taken off.
 *  Errors: BP_ERR_FORMAT it is not a plain file; BP_ERR_CREATE, BP_ERR_DENIED, BP_ERR_IO,
 *  BP_ERR_SYSTEM. */
bp_err run_journal_open(run_journal *out, const char *folder, const char *name);
void run_journal_close(run_journal *journal);
/** Bytes at the end, all or none. Errors: BP_ERR_IO. */
bp_err run_journal_append(const run_journal *journal, const void *data, size_t bytes);
/** One line, whole or not at all. Errors: BP_ERR_IO, BP_ERR_SYSTEM. */
bp_err run_journal_add(const run_journal *journal, const json_t *line);
bp_err run_journal_sync(const run_journal *journal);
/** Call `take` with every whole line, NULL where it is not JSON; `end` is where the next one
 * begins. Errors: BP_ERR_IO. */
bp_err run_journal_each(const run_journal *journal, void *context,
                        void (*take)(void *context, const json_t *line, off_t end));
/** Cut off what comes after the last line with a `step` <= step (-1: all). A line that can't be
 * read stays where it is, unless it comes after; a warning counts such lines, and says where lines
 * are missing that should come every `every` steps (0: not known). Errors: BP_ERR_IO. */
bp_err run_journal_cut(run_journal *journal, int64_t step, int64_t every);
/** The step of the newest checkpoint by the events: 0, none yet. Errors: BP_ERR_IO. */
bp_err run_journal_committed(const run_journal *journal, int64_t *step);

/** How often a member of an ensemble began by the events, that has no folder in RUN/members
 * any more. Errors: BP_ERR_IO. */
bp_err run_journal_missing(const run_journal *journal, const char *folder, int64_t *missing);

/** A start of this process holds, or held, a run folder: what it fails with is written there. */
void run_start_opened(void);
/** The digest of bp_run_note_request for this run folder; "" of another one (a member of an
 * ensemble), once a run folder was opened, or if nothing was noted. */
const char *run_start_request(const char *run_dir);

#endif
