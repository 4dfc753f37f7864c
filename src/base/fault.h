/* Faults injected by name, for tests and for trying a run's recovery: off unless the environment
 * variable BP_FAULT, or a test, arms some.
 *
 *     BP_FAULT=store.write:3@1           the third such call on rank 1 fails
 *     BP_FAULT=step.end:40@0=kill        rank 0 dies by SIGKILL when its 40th step ends
 *     BP_FAULT=a=enospc,b:2+=delay0.5    several, separated by commas; "2+": from the second on
 *
 * "name" without a number is the first call, on every rank. What happens: `fail` (the default: the
 * operation reports a failure), `eio`, `enospc` (the same, with that errno), `kill` (SIGKILL to
 * itself), `stop` (SIGSTOP), `spin` (never comes back), `bug` (BP_ASSERT), `delaySECONDS`. Where a
 * point has no way to fail (bp_fault_point), only the last five mean anything, and others are a
 * bug of the specification. Unarmed, a call costs one load.
 */
#pragma once

#include "base/err.h"
#include <stdbool.h>

/** Should this call fail? Counts the call and applies the specification. Safe from threads. When
 * true, errno is EIO or what the specification says. `name` is in the list of fault.c. */
bool bp_fault(const char *name);

/** Is any fault armed? For a point that has to bring about what it interrupts: half a line in a
 * file.
 */
bool bp_fault_is_armed(void);

/** The same where nothing can fail. */
void bp_fault_point(const char *name);

/** Arm a specification (borrowed until the next call), instead of BP_FAULT; NULL disarms. Counts
 * start again. Invalid parts are ignored: bp_fault_check reports them. */
void bp_fault_arm(const char *specification);

/** Is BP_FAULT valid, and allowed here? A Slurm job also needs BP_FAULT_IN_JOB=yes, so that a
 * forgotten variable harms no run.
 *
 * Errors: BP_ERR_USAGE. */
bp_err bp_fault_check(void);

/** The rank that "@1" is compared with (bp_mpi_start sets it); 0 before. */
void bp_fault_set_rank(int rank);
