/* How many threads a rank may use, also if several ranks share cores, and which core each thread
 * is bound to. */
#include "math/threads_priv.h"

#include "base/log.h"
#include "base/mem.h"
#include "math/threads.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The cores for this rank's threads, chosen over all ranks of the job by the first call: later
 * calls may see only some of the ranks. */
static struct {
    bool chosen, asked; /* math.threads is given */
    int count;          /* 0: they stay unbound */
    int cores[BP_CORES_MOST];
} share;

double bp_core_fair_share(const bp_core_claim *all, int ranks, int rank)
{
    double sum = 0;

    for (int core = 0; core < BP_CORES_MOST; core++) {
        int users = 0;
        if (!bp_cores_has(&all[rank].mask, core))
            continue;
        for (int r = 0; r < ranks; r++)
            users += bp_cores_has(&all[r].mask, core);
        sum += 1.0 / users;
    }
    return sum;
}

static bool overlaps(const bp_cores *a, const bp_cores *b)
{
    uint64_t common = 0;

    for (int k = 0; k < BP_CORES_MOST / 64; k++)
        common |= a->words[k] & b->words[k];
    return common != 0;
}

int bp_core_choose(int *out, const bp_core_claim *all, int ranks, int rank)
{
    const bp_core_claim *mine = &all[rank];
    int total = 0, before = 0, cores[BP_CORES_MOST], available = bp_cores_count(&mine->mask);

    for (int r = 0; r < ranks; r++) {
        bool same = memcmp(&all[r].mask, &mine->mask, sizeof mine->mask) == 0;
        if (!same && overlaps(&all[r].mask, &mine->mask))
            return 0; /* which rank takes which core is unknown */
        if (!same)
            continue;
        total += all[r].threads;
        before += r < rank ? all[r].threads : 0;
    }
    if (!mine->may_bind || total > available || (mine->whole && total < available))
        return 0;
    int count = bp_cores_in_order(cores, &mine->mask, total);
    BP_ASSERT(before + mine->threads <= count);
    memcpy(out, cores + before, (size_t)mine->threads * sizeof *out);
    return mine->threads;
}

/* Did the user, or the launcher, choose where threads run? */
static bool is_asked_elsewhere(void)
{
    static const char *const NAMES[] = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY",
                                        "KMP_AFFINITY"};

    for (size_t k = 0; k < sizeof NAMES / sizeof NAMES[0]; k++)
        if (getenv(NAMES[k]))
            return true;
    return false;
}

static int threads_of(const bp_core_claim *all, int ranks, int rank, int asked)
{
    const char *limit = getenv("OMP_NUM_THREADS");
    int cores = bp_math_cores(), fair = (int)(bp_core_fair_share(all, ranks, rank) + 1e-6);

    if (asked > 0)
        return asked;
    if (limit && atoi(limit) > 0)
        return atoi(limit);
    fair = fair < cores ? fair : cores; /* a cgroup's quota may be less than the mask */
    return fair > 0 ? fair : 1;
}

static void gather_claims(bp_core_claim *all, const bp_core_claim *mine, MPI_Comm node)
{
    BP_MPI_WAIT("all_gather", MPI_Allgather(mine, (int)sizeof *mine, MPI_BYTE, all,
                                            (int)sizeof *mine, MPI_BYTE, node));
}

int bp_math_threads_for(MPI_Comm comm, int asked)
{
    bp_core_claim mine = {.mask = *bp_cores_of_process()}, *all;
    bp_cores host;
    MPI_Comm node;

    BP_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    all = bp_alloc("math.threads", bp_comm_size(node), sizeof *all);
    gather_claims(all, &mine, node);
    mine.threads = threads_of(all, bp_comm_size(node), bp_comm_rank(node), asked);
    mine.whole = !bp_cores_of_host(&host) || memcmp(&host, &mine.mask, sizeof host) == 0;
    mine.may_bind = !is_asked_elsewhere() && bp_math_cores() == bp_cores_count(&mine.mask);
    gather_claims(all, &mine, node);
    if (!share.chosen) {
        share.count = bp_core_choose(share.cores, all, bp_comm_size(node), bp_comm_rank(node));
        share.chosen = true;
        share.asked = asked > 0;
    }
    bp_free(all);
    BP_MPI(MPI_Comm_free(&node));
    return mine.threads;
}

int bp_math_threads_planned(MPI_Comm comm, int asked, const bp_planned_world *plan)
{
    int each, ranks, cores = bp_math_cores();

    if (!plan || plan->ranks == 0)
        return bp_math_threads_for(comm, asked);
    ranks = (plan->ranks + plan->nodes - 1) / plan->nodes;
    if (ranks * (asked > 0 ? asked : 1) > cores)
        BP_WARN("math.too_many_threads",
                "%d ranks on a node with %d threads each, but a node like this one has %d core%s: "
                "at math.threads; they take turns",
                ranks, asked > 0 ? asked : 1, cores, cores == 1 ? "" : "s");
    if (asked > 0)
        return bp_math_threads_for(comm, asked);
    each = cores / ranks;
    return bp_math_threads_for(comm, each > 0 ? each : 1);
}

int bp_math_threads(void)
{
    return omp_get_max_threads();
}

/* ---- a warning ---- */

/* The report on one rank's cores. Plain data: sent as bytes. */
typedef struct bp_core_use {
    int threads, cores; /* of this rank */
    int node_ranks, node_threads, node_cores;
    int node_others, job_cores; /* ranks that do not compute; bp_math_cores_of_job() */
    char host[64];
} bp_core_use;

/* The computing ranks of a node: their threads, and the cores that they may use together. */
static void add_up(bp_core_use *use, const bp_core_claim *all, int ranks)
{
    bp_cores together = {{0}};

    for (int r = 0; r < ranks; r++) {
        use->node_others += all[r].threads == 0;
        if (all[r].threads == 0)
            continue;
        use->node_ranks++;
        use->node_threads += all[r].threads;
        for (int k = 0; k < BP_CORES_MOST / 64; k++)
            together.words[k] |= all[r].mask.words[k];
    }
    use->node_cores = bp_cores_count(&together);
    if (bp_math_cores() < use->cores && bp_math_cores() < use->node_cores)
        use->node_cores = bp_math_cores(); /* a quota, which the ranks of a node share */
}

static bp_core_use find_use(MPI_Comm world, bool computes)
{
    bp_core_claim mine = {.mask = *bp_cores_of_process(),
                          .threads = computes ? bp_math_threads() : 0},
                  *all;
    bp_core_use use;
    MPI_Comm node;

    memset(&use, 0, sizeof use); /* it travels as bytes */
    use.threads = mine.threads;
    use.cores = bp_cores_count(&mine.mask);
    use.job_cores = bp_math_cores_of_job();
    bp_host_name(use.host, sizeof use.host);
    BP_MPI(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    all = bp_alloc("math.threads", bp_comm_size(node), sizeof *all);
    gather_claims(all, &mine, node);
    add_up(&use, all, bp_comm_size(node));
    bp_free(all);
    BP_MPI(MPI_Comm_free(&node));
    return use;
}

/* A rank is bound to fewer cores than it has threads. */
static bool warn_of_few(const bp_core_use *all, int size)
{
    int few = 0, first = -1;

    for (int r = size - 1; r >= 0; r--)
        if (all[r].threads > all[r].cores) {
            few++;
            first = r;
        }
    if (few > 0)
        BP_WARN(
            "math.too_many_threads",
            "%d of %d ranks have fewer cores than threads, such as rank %d on %s, %d for %d: at "
            "math.threads; give them more with srun --cpu-bind=cores --cpus-per-task=%d or "
            "mpirun --map-by slot:PE=%d, or set fewer threads",
            few, size, first, all[first].host, all[first].cores, all[first].threads,
            all[first].threads, all[first].threads);
    return few > 0;
}

/* The ranks of a node have more threads together than cores. */
static bool warn_of_many(const bp_core_use *all, int size)
{
    const bp_core_use *worst = NULL;
    char remedy[64];

    for (int r = 0; r < size; r++)
        if (all[r].node_threads > all[r].node_cores &&
            (!worst ||
             all[r].node_threads - all[r].node_cores > worst->node_threads - worst->node_cores))
            worst = &all[r];
    if (!worst)
        return false;
    if (worst->node_ranks > worst->node_cores)
        snprintf(remedy, sizeof remedy, "start %d ranks or fewer on a node", worst->node_cores);
    else
        snprintf(remedy, sizeof remedy, "set math.threads=%d",
                 worst->node_cores / worst->node_ranks);
    BP_WARN("math.too_many_threads",
            "%d ranks on %s have %d threads for %d core%s, and take turns: at math.threads; %s",
            worst->node_ranks, worst->host, worst->node_threads, worst->node_cores,
            worst->node_cores == 1 ? "" : "s", remedy);
    return true;
}

/* Each rank of its node could have another core. */
static bool leaves_idle(const bp_core_use *use)
{
    return use->node_ranks > 0 && !share.asked &&
           use->job_cores - use->node_others >= use->node_threads + use->node_ranks;
}

static void say_idle(const bp_core_use *all, int size)
{
    const bp_core_use *worst = NULL;
    int each;

    for (int r = 0; r < size; r++)
        if (leaves_idle(&all[r]) && (!worst || all[r].job_cores - all[r].node_threads >
                                                   worst->job_cores - worst->node_threads))
            worst = &all[r];
    if (!worst)
        return;
    each = (worst->job_cores - worst->node_others) / worst->node_ranks;
    bp_log("note: %d of %d cores of %s are not used by this job: %d rank%s with %d thread%s; use "
           "them with more "
           "ranks, or %s%d",
           worst->job_cores - worst->node_others - worst->node_threads, worst->job_cores,
           worst->host, worst->node_ranks, worst->node_ranks == 1 ? "" : "s", worst->node_threads,
           worst->node_ranks == 1 ? worst->node_threads == 1 ? "" : "s" : " in all",
           worst->threads < worst->cores ? "math.threads="
                                         : "mpirun --bind-to none, srun --cpus-per-task=",
           each);
}

void bp_math_warn_of_threads(MPI_Comm world, bool computes)
{
    int size = bp_comm_size(world);
    static bool warned;
    bp_core_use mine, *all;

    if (warned) /* a job within a job */
        return;
    warned = true;
    mine = find_use(world, computes);
    if (!bp_all_max_int(mine.threads > mine.cores || mine.node_threads > mine.node_cores ||
                            leaves_idle(&mine),
                        world))
        return;
    all = bp_alloc("math.threads", size, sizeof *all);
    BP_MPI_WAIT("gather", MPI_Gather(&mine, (int)sizeof mine, MPI_BYTE, all, (int)sizeof mine,
                                     MPI_BYTE, 0, world));
    if (bp_comm_is_root(world) && !warn_of_few(all, size) && !warn_of_many(all, size))
        say_idle(all, size);
    bp_free(all);
}

bp_cores bp_core_binding(const int *cores, int count, int thread)
{
    bp_cores set = {{0}};

    for (int k = 0; k < count; k++)
        if (thread == 0 || k == thread)
            bp_cores_add(&set, cores[k]);
    return set;
}

void bp_threads_bind(void)
{
    bool binds = share.count > 0 && share.count == omp_get_max_threads();

#pragma omp parallel
    {
        bp_cores cores = bp_core_binding(share.cores, share.count, omp_get_thread_num());
        if (binds)
            bp_cores_bind(&cores);
        else
            bp_cores_widen();
    }
}
