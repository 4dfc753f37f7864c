/* Passes that ranks make together while each has its own work: where data ranks share out experts,
 * a pass of one needs those of the others. A rank without work joins their passes, until no rank
 * has work left. */
#pragma once

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct bp_lockstep bp_lockstep;

/** What a rank does between its own passes; all may be NULL. */
typedef struct bp_lockstep_calls {
    void (*meanwhile)(void *context); /* called repeatedly while it waits for the others */
    /** Another rank makes a pass of at most `rows` rows, and this rank has no pass: notifies its
     * followers. */
    void (*others)(void *context);
    void *context;
} bp_lockstep_calls;

/** For the ranks of `comm`, which is borrowed. Local. */
bp_lockstep *bp_lockstep_new(MPI_Comm comm);
/** Local. NULL is accepted. */
void bp_lockstep_free(bp_lockstep **lockstep);
/** Set the calls from now on; NULL for no calls. Local. */
void bp_lockstep_set(bp_lockstep *lockstep, const bp_lockstep_calls *calls);
/** The participant in a pass: the same model on all ranks. */
typedef struct bp_lockstep_model {
    /** Join a pass without own rows; `rows`: the most of another rank; few: as the other rank
     * began it. */
    void (*serve)(void *context, bool few, int64_t rows);
    void *context;
} bp_lockstep_model;
/** Add a model, in the same order on all ranks. Returns its number. Local. */
int bp_lockstep_add(bp_lockstep *lockstep, const bp_lockstep_model *model);
/** How many there are. Local. */
int bp_lockstep_models(const bp_lockstep *lockstep);

/** Begin a pass of `rows` rows, at least 1, through model `number`. It begins once all ranks begin
 * such a pass or have no pass; passes of other models, or with another `few`, come first. Returns
 * the most rows of any rank. Collective over the communicator, as are all functions below. */
int64_t bp_lockstep_begin(bp_lockstep *lockstep, int number, bool few, int64_t rows);
/** Take part in one pass of other ranks, after the first rank of the group asked for it
 * (calls.others). */
void bp_lockstep_follow(bp_lockstep *lockstep);
/** This rank has no pass to begin. Join a pass of others, if there is one; `ends`: this rank will
 * begin no other. Returns false when that is so on all ranks. */
bool bp_lockstep_idle(bp_lockstep *lockstep, bool ends);
