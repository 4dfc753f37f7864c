/* Time. Durations come from the monotonic clock; the wall clock is only printed. */
#pragma once

#include <stddef.h>

/** Seconds of the monotonic clock. */
double bp_clock_now(void);
/** Seconds of processor time used by all threads of this process. */
double bp_clock_process(void);
/** ... used by the calling thread. */
double bp_clock_thread(void);
/** A rank that got a smaller share of its cores than this shared them with other work during a
 * measurement. */
#define BP_CORES_SHARED 0.8
void bp_clock_sleep(double seconds);
/** The wall clock: bp_clock_stamp().text is "2026-11-20T17:03:01Z". */
typedef struct bp_stamp {
    char text[32];
} bp_stamp;
bp_stamp bp_clock_stamp(void);
/** "1 h 02 min", "3 min 05 s", "42 s", "4.2 s"; "?" if it is not a valid duration. */
void bp_clock_duration(char *out, size_t out_bytes, double seconds);
