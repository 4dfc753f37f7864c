/* Work on a file that nobody vouches for, in a child process that can do nothing else: whatever the
 * file makes a library do, the job is told a verdict and goes on or leaves with one line.
 *
 * The child may read the one file and write one message. It has no other descriptor and no shared
 * memory, and cannot open for writing, make sockets, processes or executable pages. Its memory,
 * processor time and wall time (without the time in which this process was stopped) are bounded.
 * Landlock (that file alone, read only) and seccomp (a short list of system calls) hold it where
 * the kernel has them; the limits always do. It leaves by _exit, so that nothing of MPI's runs
 * twice. Local: no MPI.
 */
#ifndef BP_BASE_SANDBOX_H
#define BP_BASE_SANDBOX_H

#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** What holds a child besides its limits. */
typedef enum bp_sandbox_shield {
    BP_SHIELD_LANDLOCK = 1,
    BP_SHIELD_SECCOMP = 2,
    BP_SHIELD_ALL = 3
} bp_sandbox_shield;

/** The shields that are tried; tests leave some out. */
extern unsigned bp_sandbox_shields;

#define BP_SANDBOX_REPLY_BYTES 2048 /* the most that a work may answer */

typedef struct bp_sandbox {
    int fd;               /* the file, open for reading; the child has it by another number */
    const char *path;     /* for messages */
    int64_t memory_bytes; /* beyond what this process has mapped already */
    double seconds;       /* of processor time, and ten times that of wall time */
    /* In the child: reads `fd`, fills reply[reply_bytes], and fails as functions do. It takes no
     * lock that another thread may hold. */
    bp_err (*work)(void *context, int fd, void *reply);
    void *context;
    size_t reply_bytes;
} bp_sandbox;

/** Run it, and wait for the verdict. *shields: those that held (bp_sandbox_shield), whatever the
 * verdict, where there was one; may be NULL.
 *
 * Other threads may run; the caller holds whatever locks the work needs, so that the child has
 * them. It is the thread that uses MPI: twice a second this asks bp_signals_stop_asked(), and notes
 * progress for the watchdog.
 *
 * Errors: what the work failed with, BP_ERR_FORMAT, BP_ERR_IO and BP_ERR_DENIED as they are;
 * BP_ERR_FORMAT where it crashed, ran out of time or of its memory, or ended without a word;
 * BP_ERR_STOPPED; BP_ERR_SYSTEM no process, pipe or sandbox, and a child that somebody else killed
 * (the kernel, when memory ended).
 */
bp_err bp_sandbox_run(const bp_sandbox *sandbox, void *reply, unsigned *shields);

/** What the kernel did not give to a sandbox of this process, "Landlock", "seccomp" or both; "":
 * nothing was missing so far. For log.txt. Borrowed. */
const char *bp_sandbox_missing(void);

#endif
