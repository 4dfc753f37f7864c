/* Ends of blocks within memory that AddressSanitizer knows as one: of what bp_alloc pads, and of an
 * arena's blocks. Two files implement this: bounds_asan.c, and bounds_none.c for all other builds.
 */
#pragma once

#include <stddef.h>

/** Allow accesses to [p, p + bytes), and forbid those to the `padding_bytes` after it: each ends
 * the process with a report. This holds until it is set again, or the memory is freed. */
void bp_bounds_set(void *p, size_t bytes, size_t padding_bytes);
