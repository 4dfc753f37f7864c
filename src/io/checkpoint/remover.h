/* Removing folders while the caller goes on: a file system may take a second for each gigabyte.
 * Local: no MPI. */
#ifndef BP_IO_CHECKPOINT_REMOVER_H
#define BP_IO_CHECKPOINT_REMOVER_H

#include "base/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/** {0} before the first use; a thread's own from start to wait. */
typedef struct bp_remover {
    pthread_t thread;
    bool runs;
    char **paths;
    int64_t count;
    bp_err err;
    char message[BP_ERR_MESSAGE_BYTES];
} bp_remover;

/** Remove `count` folders, in a thread of low priority; at once where there can be none. Waits for
 * those of the call before.
 *
 * Owns:   *paths, a list as bp_dir_list's, is the remover's; NULL and 0 afterwards.
 * Errors: of the call before, those of bp_remover_wait.
 */
bp_err bp_remover_start(bp_remover *remover, char ***paths, int64_t *count);
/** All are removed. Errors: those of bp_dir_remove. */
bp_err bp_remover_wait(bp_remover *remover);

#endif
