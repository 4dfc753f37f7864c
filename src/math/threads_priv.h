/* Which cores of a node a rank's threads are bound to. Pure, except for bp_threads_bind. */
#ifndef BP_MATH_THREADS_PRIV_H
#define BP_MATH_THREADS_PRIV_H

#include "base/process/cores.h"

/** What a rank of a node may use, and wants. Plain data: it travels as bytes. */
typedef struct bp_core_claim {
    bp_cores mask;
    int threads;
    bool whole;    /* the mask is the whole host: nobody has said that it is only ours */
    bool may_bind; /* no user has said where threads run, and no quota is less than the mask */
} bp_core_claim;

/** The sum, over the cores that this rank may use, of its share among the ranks of the node that
 * may use it too.
 */
double bp_core_fair_share(const bp_core_claim *all, int ranks, int rank);

/** The cores that this rank's threads are bound to, in their order; returns how many: its threads,
 * or 0 where binding could harm. Ranks with one mask take disjoint cores of it, in order of rank.
 * They stay unbound where there are fewer cores than threads; where masks overlap in part; and
 * where the mask is the whole host and threads do not use it up, since another job there would take
 * the same cores. */
int bp_core_choose(int *out, const bp_core_claim *all, int ranks, int rank);

/** The least number of CPUs of a node in Slurm's list of them ("24(x2),12"); 0: there is none. */
int bp_core_slurm_cpus(const char *list);

/** What thread `thread` of the team is bound to, of its rank's cores: one of them, but the first
 * thread, which makes the others, all. GNU's runtime ends threads that a smaller team has not
 * (oneDNN asks for such) and makes them anew with the first one's binding: on one core they would
 * take turns. */
bp_cores bp_core_binding(const int *cores, int count, int thread);

/** Bind the threads of this process as bp_math_threads_for has chosen, if they are as many. */
void bp_threads_bind(void);

#endif
