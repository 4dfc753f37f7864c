/* How long a rank may wait for the others inside MPI_Init. No watchdog runs before MPI starts: a
 * rank stopped there would block all others forever. */
#pragma once

/** Limit the time from now until bp_start_limit_end to this many seconds; 0: no limit. After it
 * the process prints a diagnosis and exits with BP_ERR_STOPPED; the launcher ends the others. Rank
 * 0 prints first; the others do half that time later, if rank 0 can't. Time during which the whole
 * job is suspended does not count. If no thread can be created, there is no limit. Local. */
void bp_start_limit_begin(double seconds);
/** MPI has begun. Local. */
void bp_start_limit_end(void);
