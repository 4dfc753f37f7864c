/* Faults injected by name, for tests: BP_FAULT=store.write:3@1 makes the third call of
 * bp_fault("store.write") on rank 1 say true, once. "name" alone is the first call on every rank;
 * "name:3+" is the third and all after it; several are parted by commas. Without the variable a
 * call costs one load.
 */
#ifndef BP_BASE_FAULT_H
#define BP_BASE_FAULT_H

#include <stdbool.h>

/** Should this call fail? Counts the call. Safe from threads. */
bool bp_fault(const char *name);

/** Arm a specification (borrowed until the next call), instead of BP_FAULT; NULL disarms. Counts
 * start again. */
void bp_fault_arm(const char *specification);

/** The rank that "@1" is compared with (bp_mpi_start sets it); 0 before. */
void bp_fault_set_rank(int rank);

#endif
