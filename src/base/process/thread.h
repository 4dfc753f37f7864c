/* Helper threads. Local: no MPI. */
#pragma once

#include "base/err.h"
#include <pthread.h>
#include <stdbool.h>

/** Start a helper thread that runs run(argument). Signals are the main thread's: they are blocked
 * in the helper. It may run on all cores of the process, not only on those that its creator is
 * bound to. `name` (at most 15 letters) is what top and debuggers show.
 *
 * Owns:   *thread is the caller's: pthread_join.
 * Errors: BP_ERR_SYSTEM no thread can be created; the message has the name.
 */
bp_err bp_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *argument);

/** A condition whose waits are timed by the monotonic clock (bp_cond_wait_until). */
void bp_cond_init(pthread_cond_t *condition);
/** Wait for a signal, or until bp_clock_now() is `end`; false on timeout. */
bool bp_cond_wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex, double end);
