/* How long a rank may wait inside of MPI_Init for the others. Until MPI has begun no watchdog
 * watches: a rank that was stopped there would hold up all others forever. */
#ifndef BP_BASE_START_LIMIT_H
#define BP_BASE_START_LIMIT_H

/** From now on this rank may wait this many seconds until bp_start_limit_end; 0: without an end.
 * Then a line says what is known, and the process ends with BP_ERR_STOPPED; the launcher ends the
 * others. Rank 0 is the first to speak; others, half as long later, where it can't. Time that the
 * whole job is suspended for does not count. Without a thread for it nothing is watched. Local. */
void bp_start_limit_begin(double seconds);
/** MPI has begun. Local. */
void bp_start_limit_end(void);

#endif
