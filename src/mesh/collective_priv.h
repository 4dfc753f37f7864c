/* The sums of collective.h for a thread that does them beside another's work: it sends no
 * heartbeats, and sleeps where others would spin. */
#ifndef BP_MESH_COLLECTIVE_PRIV_H
#define BP_MESH_COLLECTIVE_PRIV_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

/** How messages are waited for: inside MPI, which spins (pause NULL), or by polling, with a pause
 * between polls. `again`: the poll before was for the same messages. */
typedef struct bp_waiting {
    void (*pause)(void *context, bool again);
    void *context;
} bp_waiting;

/** As bp_reduce_scatter and bp_all_gather_bytes. Collective over `comm`. */
void bp_reduce_scatter_so(float *x, int64_t n, float *scratch, MPI_Comm comm,
                          const bp_waiting *waiting);
void bp_all_gather_bytes_so(void *x, int64_t bytes, MPI_Comm comm, const bp_waiting *waiting);

#endif
