/* What /proc has of a process. Without memory of its own and without locks, for threads beside a
 * main thread that hangs, and for a child that was made without fork(). Local. */
#ifndef BP_RUN_LOCK_PROCESS_H
#define BP_RUN_LOCK_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A file of /proc, to the end or to what fits; "" where it can't be read. */
void process_read(char *out, size_t out_bytes, const char *path);
/** Its state letter, and when it began, in ticks since the boot. False where there is no such
 * process, or it can't be seen: then *start_ticks is -1. */
bool process_read_stat(int64_t pid, char *state, int64_t *start_ticks);

#endif
