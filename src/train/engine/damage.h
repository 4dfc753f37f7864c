/* Bits that nothing in a training explains: changed in memory, or other than those of a rank that
 * holds the same values. */
#ifndef BP_TRAIN_ENGINE_DAMAGE_H
#define BP_TRAIN_ENGINE_DAMAGE_H

#include "mesh/mesh.h"
#include "models/network.h"

#include <stdbool.h>

#define BP_DAMAGE_RANKS 4
#define BP_DAMAGE_HOST  64

/** Plain data: it travels as bytes. */
typedef struct bp_damage {
    bool found;
    bool differs;                    /* between ranks; else changed in one rank's memory */
    char tensor[BP_PARAM_NAME + 16]; /* "h.3.attn.q.weight", "adamw.v/h.3.attn.q.weight" */
    int64_t step;                    /* at work, or done last */
    int holders, suspects;      /* ranks that hold these values; those with other bits than most,
                                   or all where no majority says who is right */
    int ranks[BP_DAMAGE_RANKS]; /* the first suspects, by their place in mesh->world */
    char hosts[BP_DAMAGE_RANKS][BP_DAMAGE_HOST];
} bp_damage;

/** Compare what ranks hold in common: all parameters between data ranks, the replicated ones
 * between tensor ranks, the tied embedding between the first and the last stage. Fills *out where
 * it is not found yet and this rank's copies differ from another's.
 *
 * Collective: over mesh->data, mesh->tensor and mesh->pipeline; the network's values are bound.
 */
void bp_damage_compare(bp_damage *out, const bp_mesh *mesh, const bp_network *network);

/** This rank alone is to blame: fills suspects, ranks and hosts. Local. */
void bp_damage_own(bp_damage *damage, const bp_mesh *mesh);

/** Digest of n floats, the same at any number of threads. Local. */
uint64_t bp_damage_digest(const float *values, int64_t n);

#endif
