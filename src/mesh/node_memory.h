/* Do the ranks of a node fit into its memory? */
#pragma once

#include "base/config/config.h"
#include "base/err.h"
#include <mpi.h>
#include <stdint.h>

extern const bp_option bp_memory_options[]; /* run.memory */

/** A node and the ranks on it. Plain data: sent as bytes. */
typedef struct bp_node_memory {
    int64_t needs_bytes; /* need of all its ranks together, at their peaks */
    int64_t has_bytes;   /* limit for all of them together; -1 if unknown */
    int ranks, nodes;    /* on this node; of the job */
    char host[64];       /* "": a node like this one, in a planned job */
    char from[128];      /* what sets has_bytes: "run.memory", or bp_memory_limit.from */
} bp_node_memory;

/** What a rank takes at its peak, including what it holds now. */
typedef struct bp_rank_memory {
    int64_t own_bytes;
    int64_t node_bytes; /* taken by one rank for all ranks of a node: the maximum counts */
} bp_rank_memory;

/** The node of the job that lacks most, or has least to spare; equal on all ranks. It waits some
 * seconds for memory that a job that has just ended is about to free.
 *
 * Collective: over `comm`; `config` is equal on all ranks (run.memory, where it has that key).
 * Shapes:     all[size], only on the root. */
void bp_node_memory_find(bp_node_memory *out, MPI_Comm comm, const bp_config *config,
                         const bp_rank_memory *all);

/** The fullest of `nodes` nodes like this one, which `ranks` ranks of a planned job fill one after
 * another. Local. */
void bp_node_memory_plan(bp_node_memory *out, const bp_config *config, const bp_rank_memory *all,
                         int ranks, int nodes);
/** What that one takes. */
int64_t bp_node_memory_fullest(const bp_rank_memory *all, int ranks, int nodes);

/** Memory that the node of this rank has for the job's ranks; -1 if unknown. Collective over
 * `comm`. */
int64_t bp_node_memory_has(MPI_Comm comm, const bp_config *config);

/** Does it lack memory? False if its memory is unknown. */
bool bp_node_memory_lacks(const bp_node_memory *node);

/** BP_ERR_SYSTEM if it lacks memory, with `remedy` ("use mesh.pipeline=2"); a warning if its
 * memory is unknown. Local. */
bp_err bp_node_memory_check(const bp_node_memory *node, const char *remedy);

/** "2 ranks take about 1.5 GiB of the 22.8 GiB of a node (MemAvailable of /proc/meminfo)", to the
 * log. Local. */
void bp_node_memory_print(const bp_node_memory *node);
