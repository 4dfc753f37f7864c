/* An output under a temporary name, since its writer may be killed: a file or a folder next to the
 * output, locked (flock) while it is written. An unlocked one was left by a killed run. Local. */
#pragma once

#include "base/err.h"

typedef enum bp_hidden_kind {
    BP_HIDDEN_FILE,  /* ".NAME.TOKEN.tmp" */
    BP_HIDDEN_FOLDER /* ".tmp-NAME-TOKEN" */
} bp_hidden_kind;

/** Make the file or folder for the output `path`. *hidden and *lock are the caller's: bp_free(),
 * and close(), which releases the lock (-1 for a folder if the file system has no locks). The lock
 * of a file is open for reading and writing. After an error they are NULL and -1, and no file is
 * left.
 *
 * Errors: BP_ERR_CREATE no such folder; BP_ERR_DENIED; BP_ERR_IO; BP_ERR_SYSTEM. */
bp_err bp_hidden_make(const char *path, bp_hidden_kind kind, char **hidden, int *lock);

/** Remove what killed runs left of the output `path`. Best effort: silent where the folder can't
 * be listed, belongs to another user, or the file system has no locks. */
void bp_hidden_sweep(const char *path, bp_hidden_kind kind);

/** From now on drafts of this process (bp_draft, files/fs.h) are hidden files, and opening one
 * sweeps: no later owner of a run folder removes what a killed tool left, so its next start with
 * the same output does. Call before any thread starts. */
void bp_hidden_drafts(void);
