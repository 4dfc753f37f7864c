/* Silent data corruption: bits that changed in memory, or that differ from those of a rank with the
 * same values. */
#pragma once

#include "mesh/mesh.h"
#include "models/network/network.h"

#include <stdbool.h>

#define BP_CORRUPTION_RANKS 4
#define BP_CORRUPTION_HOST  64

/** Plain data: sent as bytes. */
typedef struct bp_corruption {
    bool found;
    bool differs;                    /* between ranks; else changed in one rank's memory */
    char tensor[BP_PARAM_NAME + 16]; /* "h.3.attn.q.weight", "adamw.v/h.3.attn.q.weight" */
    int64_t step;                    /* current, or the last one done */
    int holders, suspects; /* ranks that hold these values; those whose bits differ from most, or
                              all without a majority */
    int ranks[BP_CORRUPTION_RANKS]; /* the first suspects, by their place in mesh->world */
    char hosts[BP_CORRUPTION_RANKS][BP_CORRUPTION_HOST];
} bp_corruption;

/** Compare what ranks hold in common: all parameters between data ranks, the replicated ones
 * between tensor ranks, the tied embedding between the first and the last stage. Fills *out if it
 * is empty and this rank's copies differ from another's.
 *
 * Collective: over mesh->data, mesh->tensor and mesh->pipeline; the network's values are bound. */
void bp_corruption_compare(bp_corruption *out, const bp_mesh *mesh, const bp_network *network);

/** Records this rank as the only suspect: fills holders, suspects, ranks and hosts. Local. */
void bp_corruption_own(bp_corruption *corruption, const bp_mesh *mesh);
