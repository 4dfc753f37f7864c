/* Passes that ranks make together while each has work of its own: where data ranks share out
 * experts, a pass of one needs those of the others. A rank without work takes part in their passes,
 * and all go on until none has any left. */
#ifndef BP_MESH_LOCKSTEP_H
#define BP_MESH_LOCKSTEP_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct bp_lockstep bp_lockstep;

/** What a rank does beside its own passes; all may be NULL. */
typedef struct bp_lockstep_calls {
    void (*meanwhile)(void *context); /* again and again while it waits for the others */
    /** Another rank makes a pass of at most `rows` rows, and this one has none: tells its
     * followers. */
    void (*others)(void *context);
    void *context;
} bp_lockstep_calls;

/** Ranks of `comm`, which is borrowed. Local. */
bp_lockstep *bp_lockstep_new(MPI_Comm comm);
/** Local. NULL is accepted. */
void bp_lockstep_free(bp_lockstep **lockstep);
/** Later calls are these. NULL: none. Local. */
void bp_lockstep_set(bp_lockstep *lockstep, const bp_lockstep_calls *calls);
/** What takes part in a pass: of the same model on all ranks. */
typedef struct bp_lockstep_model {
    /** In one without rows of its own; `rows`: the most of another rank; few: as that began it. */
    void (*serve)(void *context, bool few, int64_t rows);
    void *context;
} bp_lockstep_model;
/** Another model, in the same order on all ranks. Returns its number. Local. */
int bp_lockstep_add(bp_lockstep *lockstep, const bp_lockstep_model *model);
/** How many there are. Local. */
int bp_lockstep_models(const bp_lockstep *lockstep);

/** A pass of `rows` rows, 1 at least, through model `number` begins once all ranks begin such a one
 * or have none; those of other models, and with `few` otherwise, are made before. Returns the rows
 * of the rank with the most. Collective over the communicator, as all that follows. */
int64_t bp_lockstep_begin(bp_lockstep *lockstep, int number, bool few, int64_t rows);
/** Take part in one pass of other ranks, after the first rank of the group asked for it
 * (calls.others). */
void bp_lockstep_follow(bp_lockstep *lockstep);
/** This rank has no pass to begin. Take part in one of others, if there is one; `ends`: it will
 * begin no other. Returns false when that is so on all ranks. */
bool bp_lockstep_idle(bp_lockstep *lockstep, bool ends);

#endif
