/* Whether this process may still put a result in place. The coordinator of a job that holds a run
 * folder adds a check; there every draft (bp_draft_commit, bp_h5_draft_commit) and every
 * checkpoint calls it just before its rename. So a coordinator that has lost its run commits
 * nothing more. Other ranks have no check: with a dedicated coordinator such a rank puts fits of
 * uncertainty methods in place. */
#pragma once

#include "base/err.h"

/** Call `check` from now on until bp_fence_remove; it commits nothing itself. A run inside a run
 * adds its own: all are called. */
void bp_fence_add(bp_err (*check)(void *context), void *context);
/** Returns when no thread calls it any more. A check that was not added is accepted. */
void bp_fence_remove(const void *context);

/** May this process commit? BP_OK where nothing was added. Safe from threads.
 *
 * Errors: those of the first check that refuses. Injected faults: base.commit. */
bp_err bp_fence_check(void);
