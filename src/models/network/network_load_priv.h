/* The values of a network that runs only forward, held once. */
#pragma once

#include "models/network/dropconnect.h"
#include "models/network/network.h"

/** Bytes of a network of bp_gemm_new_forward: those held in float32, without the copies for
 * products; and the most that loading needs in addition. Float32 holds all values where products
 * read them in place; else those that are no weights of products, and those that are also read
 * otherwise. Local. */
typedef struct bp_network_load_bytes {
    int64_t held, staged;
} bp_network_load_bytes;
bp_network_load_bytes bp_network_load_plan(const bp_network *network);

/** Bind, fill and pack a network, block by block: float32 values that are not held are in memory
 * for one block at a time. The value of their params is NULL afterwards.
 *
 * Collective: over `member`, the communicator of the checkpoint. `checkpoint` NULL: initial values
 * of `seed`, on all ranks alike. drops: masks that weights get; NULL: none.
 * Owns:       *held is the caller's, bp_free() after bp_network_free(), also on failure. Errors:
 *             those of bp_checkpoint_load; BP_ERR_SYSTEM memory: the same on all ranks. */
bp_err bp_network_load(bp_network *network, MPI_Comm member, bp_checkpoint *checkpoint,
                       uint64_t seed, const bp_dropconnect *drops, float **held);
