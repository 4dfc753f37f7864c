/* Files of JSON lines that only grow, but for the cut at a resume. Private to src/coordinator;
 * local. */
#ifndef BP_COORDINATOR_RUN_JOURNAL_PRIV_H
#define BP_COORDINATOR_RUN_JOURNAL_PRIV_H

#include "base/err.h"
#include "base/json.h"
#include <stdint.h>

typedef struct run_journal {
    int fd; /* -1: not open */
    char *path;
} run_journal;

/** Open or create; half a line at the end (of a job that was killed) is taken off.
 *  Errors: BP_ERR_CREATE, BP_ERR_DENIED, BP_ERR_IO, BP_ERR_SYSTEM. */
bp_err run_journal_open(run_journal *out, const char *folder, const char *name);
void run_journal_close(run_journal *journal);
/** Bytes at the end, all or none. Errors: BP_ERR_IO. */
bp_err run_journal_append(run_journal *journal, const void *data, size_t bytes);
/** One line, whole or not at all. Errors: BP_ERR_IO, BP_ERR_SYSTEM. */
bp_err run_journal_add(run_journal *journal, const json_t *line);
bp_err run_journal_sync(const run_journal *journal);
/** Cut at the first line that is no whole object with an integer `step` <= step. */
bp_err run_journal_cut(run_journal *journal, int64_t step);

/** A start of this process holds, or held, a run folder: what it fails with is written there. */
void run_start_opened(void);

#endif
