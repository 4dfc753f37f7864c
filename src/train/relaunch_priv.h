/* This program once more, as its launcher started it: same ranks, same hosts. Rank 0 alone. */
#ifndef BP_TRAIN_RELAUNCH_PRIV_H
#define BP_TRAIN_RELAUNCH_PRIV_H

#include "base/err.h"

#include <mpi.h>
#include <stdbool.h>
#include <sys/types.h>

typedef enum relaunch_kind { RELAUNCH_BARE, RELAUNCH_MPIRUN, RELAUNCH_SRUN } relaunch_kind;

/* How the launcher is called, up to the program. */
typedef struct relaunch {
    relaunch_kind kind;
    int ranks;
    char *program; /* /proc/self/exe's */
    char **words;  /* of the launcher; NULL-ended, and none where RELAUNCH_BARE */
    int count;
} relaunch;

/** Who started this program, and with which ranks on which hosts. Collective over `world`; only its
 *  root's *out is filled, by relaunch_clear() to be cleared on all.
 *  Errors: BP_ERR_SYSTEM: the same on all ranks. */
bp_err relaunch_init(relaunch *out, MPI_Comm world);
void relaunch_clear(relaunch *self);

/** Start it with `arguments` (NULL-ended, without the program's name), standard output and error
 *  into the file `output`, BP_FAULT = `fault` (NULL: none). Local.
 *  Errors: BP_ERR_SYSTEM, BP_ERR_INPUT no such launcher; BP_ERR_CREATE `output`. */
bp_err relaunch_start(const relaunch *self, char *const *arguments, const char *output,
                      const char *fault, pid_t *child);
/** Has it ended, and how? *status: its exit status, 128 + N by signal N. Local. */
bool relaunch_has_ended(pid_t child, int *status);
/** End it: TERM, and KILL where that takes more than `seconds`. Local. */
void relaunch_end(pid_t child, double seconds);

#endif
