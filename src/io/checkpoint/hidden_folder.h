/* The folder that a checkpoint or an export is written to before it has its name:
 * ".tmp-NAME-TOKEN" beside it, locked (flock) as long as it is written. One that nobody has locked
 * is what a killed run left. Private to src/store and the tools that write such a folder; local. */
#ifndef BP_IO_CHECKPOINT_HIDDEN_FOLDER_H
#define BP_IO_CHECKPOINT_HIDDEN_FOLDER_H

#include "base/err.h"

/** Make the folder for the output `path`. *hidden and *lock are the caller's: bp_free(), and
 * close(), which gives up the lock (-1: the file system has none). NULL and -1 after an error.
 *
 * Errors: BP_ERR_CREATE, BP_ERR_DENIED, BP_ERR_IO, BP_ERR_SYSTEM. */
bp_err bp_hidden_make(const char *path, char **hidden, int *lock);

/** Remove what killed runs left of the output `path`: as far as it goes, without a word where the
 * folder can't be listed, is another user's, or the file system has no locks. */
void bp_hidden_sweep(const char *path);

#endif
