/* Standard output of programs that print results. Local: no MPI. */
#pragma once

#include "base/err.h"

/** From here on the first write to `stdout` that fails is remembered with its reason, whatever
 * flushes the stream in between. Called once, before anything is printed. */
void bp_stdout_init(void);
/** Writes what `stdout` still holds. A reader that has gone (`| head`) is no failure: what it did
 * not take is dropped, silently. Errors: BP_ERR_IO, with the reason (a full disk, say). */
bp_err bp_stdout_flush(void);
