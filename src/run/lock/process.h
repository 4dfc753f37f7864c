/* What /proc has of a process. Allocates nothing and takes no locks: for threads while the main
 * thread hangs, and for a child that was made without fork(). Local. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Reads a file of /proc, up to out_bytes - 1; "" if it can't be read. */
void process_read(char *out, size_t out_bytes, const char *path);
/** Its state letter, and its start time in ticks since boot. Returns false, with *start_ticks -1,
 * if there is no such process or it can't be seen. */
bool process_read_stat(int64_t pid, char *state, int64_t *start_ticks);
