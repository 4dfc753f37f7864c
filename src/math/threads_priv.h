/* Which cores of a node a rank's threads are bound to. Pure, except for bp_threads_bind. */
#pragma once

#include "base/process/cores.h"

/** The cores that a rank of a node may use, and its threads. Plain data: sent as bytes. */
typedef struct bp_core_claim {
    bp_cores mask;
    int threads;
    bool whole;    /* the mask is the whole host, which may not be exclusively ours */
    bool may_bind; /* the user has not chosen the binding, and no quota is less than the mask */
} bp_core_claim;

/** The sum, over the cores that this rank may use, of its share among the ranks of the node that
 * may use it too.
 */
double bp_core_fair_share(const bp_core_claim *all, int ranks, int rank);

/** The cores that this rank's threads are bound to, in order; returns their number: its threads,
 * or 0 if binding could harm. Ranks with the same mask take disjoint cores of it, in order of
 * rank. They stay unbound if there are fewer cores than threads; if masks overlap in part; or if
 * the mask is the whole host and threads do not use all of it, since another job there would take
 * the same cores. */
int bp_core_choose(int *out, const bp_core_claim *all, int ranks, int rank);

/** The least number of CPUs of a node in Slurm's list ("24(x2),12"); 0 if the list is NULL, empty
 * or can't be read. */
int bp_core_slurm_cpus(const char *list);

/** The cores of its rank that thread `thread` of the team is bound to: one of them, but all for
 * the first thread, which creates the others. GNU's runtime ends threads beyond a smaller team
 * (oneDNN uses such teams) and recreates them with the first one's binding: on one core they would
 * take turns. */
bp_cores bp_core_binding(const int *cores, int count, int thread);

/** Bind the threads of this process as bp_math_threads_for has chosen, if their number matches. */
void bp_threads_bind(void);
