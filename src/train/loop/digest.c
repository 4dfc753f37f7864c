/* Silent data corruption, bits that changed without a cause in training: the rank that finds it
 * reports it to all, and the job ends before it can commit. Called by steps.c. */
#include "train/loop/digest.h"

#include "base/config/json.h"

#include "mesh/collective.h"
#include "train/loop/learning.h"
#include "train/loop/reports/report.h"

#include <stdio.h>

#define MEMORY_CHANGED "memory changed"

/* "rank 1 on node07, rank 3 on node08 and 2 more". */
static void list_suspects(char *out, size_t bytes, const bp_corruption *corruption)
{
    int named =
        corruption->suspects < BP_CORRUPTION_RANKS ? corruption->suspects : BP_CORRUPTION_RANKS;
    size_t used = 0;

    for (int k = 0; k < named && used < bytes; k++)
        used += (size_t)snprintf(out + used, bytes - used, "%srank %d on %s", k == 0 ? "" : ", ",
                                 corruption->ranks[k], corruption->hosts[k]);
    if (corruption->suspects > named && used < bytes)
        (void)snprintf(out + used, bytes - used, " and %d more", corruption->suspects - named);
}

static void report_corruption(trainer *self, const bp_corruption *corruption)
{
    json_t *ranks = json_array(), *hosts = json_array();

    for (int k = 0; k < corruption->suspects && k < BP_CORRUPTION_RANKS; k++) {
        json_array_append_new(ranks, json_integer(corruption->ranks[k]));
        json_array_append_new(hosts, bp_json_string(corruption->hosts[k]));
    }
    report_send(self, REPORT_EVENT,
                json_pack("{s:s, s:I, s:s, s:s, s:i, s:i, s:o, s:o}", "event", "digest_mismatch",
                          "step", (json_int_t)corruption->step, "found",
                          corruption->differs ? "copies differ" : MEMORY_CHANGED, "tensor",
                          corruption->tensor, "holders", corruption->holders, "suspects",
                          corruption->suspects, "ranks", ranks, "hosts", hosts));
}

bp_err trainer_say_corruption(trainer *self)
{
    MPI_Comm comm = self->mesh->compute;
    bp_corruption corruption = *bp_engine_corruption(self->engine);
    int size = bp_comm_size(comm);
    int finder = size - (int)bp_all_max_int(corruption.found ? size - bp_comm_rank(comm) : 0,
                                            comm); /* lowest */
    char suspects[256];

    BP_ASSERT(finder < size);
    bp_bcast_bytes(&corruption, sizeof corruption, finder, comm);
    list_suspects(suspects, sizeof suspects, &corruption);
    report_corruption(self, &corruption);
    if (!corruption.differs)
        return BP_FAIL(BP_ERR_STOPPED, "memory.bits_changed",
                       "bits of %s changed in memory: at step %lld, %s; the same command goes on "
                       "from the last checkpoint; leave that host out if it happens again",
                       corruption.tensor, (long long)corruption.step, suspects);
    if (corruption.suspects == corruption.holders)
        return BP_FAIL(BP_ERR_STOPPED, "memory.bits_differ",
                       "%d ranks hold %s with different bits: at step %lld, %s; memory or a "
                       "processor erred; the same command goes on from the last checkpoint; leave "
                       "these hosts out in turn if it happens again",
                       corruption.holders, corruption.tensor, (long long)corruption.step, suspects);
    return BP_FAIL(BP_ERR_STOPPED, "memory.bits_differ",
                   "%d ranks hold %s, and %s%s other bits than the rest: at step %lld; memory or a "
                   "processor erred; the same command goes on from the last checkpoint; leave that "
                   "host out if it happens again",
                   corruption.holders, corruption.tensor, suspects,
                   corruption.suspects == 1 ? " has" : " have", (long long)corruption.step);
}

bp_err trainer_check_bits(trainer *self)
{
    if (self->learner) /* each rank has its own columns: there are no copies to compare */
        return trainer_learner_check(self);
    bp_engine_check(self->engine, self->progress.step);
    if (bp_all_max_int(bp_engine_corruption(self->engine)->found, self->mesh->compute) == 0)
        return BP_OK;
    return trainer_say_corruption(self);
}
