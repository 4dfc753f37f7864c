/* The same of a tree of files other than "/proc" and "/sys", for tests. */
#ifndef BP_BASE_MEMORY_LIMIT_PRIV_H
#define BP_BASE_MEMORY_LIMIT_PRIV_H

#include "base/memory_limit.h"

/** bp_memory_limit_read with `root` before each path; "" is the system. */
bp_memory_limit memory_limit_under(const char *root, int64_t held_bytes);
/** bp_memory_group_bytes likewise. */
int64_t memory_group_under(const char *root);

#endif
