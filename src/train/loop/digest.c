/* Bits that changed where nothing in a training explains it: told by the one who found it, known to
 * all, and the end of the job before it can commit. */
#include "train/loop/trainer_priv.h"

#include "mesh/collective.h"

#include <stdio.h>
#include <string.h>

#define MEMORY_CHANGED "memory changed"

/* "rank 1 on node07, rank 3 on node08 and 2 more". */
static void list_suspects(char *out, size_t bytes, const bp_damage *damage)
{
    int named = damage->suspects < BP_DAMAGE_RANKS ? damage->suspects : BP_DAMAGE_RANKS;
    size_t used = 0;

    for (int k = 0; k < named && used < bytes; k++)
        used += (size_t)snprintf(out + used, bytes - used, "%srank %d on %s", k == 0 ? "" : ", ",
                                 damage->ranks[k], damage->hosts[k]);
    if (damage->suspects > named && used < bytes)
        (void)snprintf(out + used, bytes - used, " and %d more", damage->suspects - named);
}

static void report_damage(trainer *self, const bp_damage *damage)
{
    json_t *ranks = json_array(), *hosts = json_array();

    for (int k = 0; k < damage->suspects && k < BP_DAMAGE_RANKS; k++) {
        json_array_append_new(ranks, json_integer(damage->ranks[k]));
        json_array_append_new(hosts, json_string(damage->hosts[k]));
    }
    report_send(self, REPORT_EVENT,
                json_pack("{s:s, s:I, s:s, s:s, s:i, s:i, s:o, s:o}", "event", "digest_mismatch",
                          "step", (json_int_t)damage->step, "found",
                          damage->differs ? "copies differ" : MEMORY_CHANGED, "tensor",
                          damage->tensor, "holders", damage->holders, "suspects", damage->suspects,
                          "ranks", ranks, "hosts", hosts));
}

bp_err trainer_say_damage(trainer *self)
{
    MPI_Comm comm = self->mesh->compute;
    bp_damage damage = *bp_engine_damage(self->engine);
    int size = bp_comm_size(comm);
    int finder =
        size - (int)bp_all_max_int(damage.found ? size - bp_comm_rank(comm) : 0, comm); /* lowest */
    char suspects[256];

    BP_ASSERT(finder < size);
    bp_bcast_bytes(&damage, sizeof damage, finder, comm);
    list_suspects(suspects, sizeof suspects, &damage);
    report_damage(self, &damage);
    if (!damage.differs)
        return BP_FAIL(BP_ERR_STOPPED,
                       "bits of %s changed in memory: at step %lld, %s; the same command goes on "
                       "from the last checkpoint; leave that host out if it happens again",
                       damage.tensor, (long long)damage.step, suspects);
    if (damage.suspects == damage.holders)
        return BP_FAIL(BP_ERR_STOPPED,
                       "%d ranks hold %s with different bits: at step %lld, %s; memory or a "
                       "processor erred; the same command goes on from the last checkpoint; leave "
                       "these hosts out in turn if it happens again",
                       damage.holders, damage.tensor, (long long)damage.step, suspects);
    return BP_FAIL(BP_ERR_STOPPED,
                   "%d ranks hold %s, and %s%s other bits than the rest: at step %lld; memory or a "
                   "processor erred; the same command goes on from the last checkpoint; leave that "
                   "host out if it happens again",
                   damage.holders, damage.tensor, suspects, damage.suspects == 1 ? " has" : " have",
                   (long long)damage.step);
}

bp_err trainer_check_bits(trainer *self)
{
    bp_engine_check(self->engine, self->progress.step);
    if (bp_all_max_int(bp_engine_damage(self->engine)->found, self->mesh->compute) == 0)
        return BP_OK;
    return trainer_say_damage(self);
}
