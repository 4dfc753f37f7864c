/* The sums of collective.h for a progress thread, which sends no heartbeats and sleeps instead of
 * spinning. */
#pragma once

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

/** How messages are waited for: inside MPI, which spins (pause NULL), or by polling, with a pause
 * between polls. `again`: the previous poll was for the same messages. */
typedef struct bp_waiting {
    void (*pause)(void *context, bool again);
    void *context;
} bp_waiting;

/** As bp_reduce_scatter and bp_all_gather_shards, with shards of whole units of `unit` floats, or
 * bytes: unit k of n belongs to the rank that owns item k of bp_shard_first(n, ...). scratch:
 * bp_reduce_scatter_scratch(units, ranks) units. bf16: values are sent rounded to bfloat16 (to
 * nearest, ties to even; NaN stays NaN) and added in float32. Collective over `comm`. */
void bp_reduce_scatter_units(float *x, int64_t n, int64_t unit, bool bf16, float *scratch,
                             MPI_Comm comm, const bp_waiting *waiting);
void bp_all_gather_units(void *x, int64_t bytes, int64_t unit, MPI_Comm comm,
                         const bp_waiting *waiting);
