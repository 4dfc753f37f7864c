/* How many threads a rank may use, when several ranks were started on the same cores. */
#include "math/math.h"

#include "base/mem.h"
#include "mesh/mesh.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define MASK_CORES 4096

typedef struct core_mask {
    unsigned char may[MASK_CORES / 8];
} core_mask;

static bool mask_has(const core_mask *mask, int core)
{
    return mask->may[core / 8] >> core % 8 & 1;
}

static void read_mask(core_mask *mask)
{
    cpu_set_t *set = CPU_ALLOC(MASK_CORES);
    size_t bytes = CPU_ALLOC_SIZE(MASK_CORES);

    memset(mask, 0, sizeof *mask);
    if (set && sched_getaffinity(0, bytes, set) == 0)
        for (int core = 0; core < MASK_CORES; core++)
            if (CPU_ISSET_S(core, bytes, set))
                mask->may[core / 8] |= (unsigned char)(1 << core % 8);
    CPU_FREE(set);
}

/* Of every core that this rank may use, its share among the ranks of the node that may use it too.
 */
static double fair_share(MPI_Comm node)
{
    int size = bp_comm_size(node);
    core_mask mine, *all = bp_alloc("math.threads", size, sizeof *all);
    double share = 0;

    BP_NEED_MEMORY(all);
    read_mask(&mine);
    BP_MPI(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, node));
    for (int core = 0; core < MASK_CORES; core++) {
        int users = 0;
        if (!mask_has(&mine, core))
            continue;
        for (int rank = 0; rank < size; rank++)
            users += mask_has(&all[rank], core);
        share += 1.0 / users;
    }
    bp_free(all);
    return share;
}

int bp_math_threads_for(MPI_Comm comm, int asked)
{
    const char *limit = getenv("OMP_NUM_THREADS");
    int cores = bp_math_cores(), share;
    MPI_Comm node;

    BP_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    share = (int)(fair_share(node) + 1e-6);
    BP_MPI(MPI_Comm_free(&node));
    if (asked > 0)
        return asked;
    if (limit && atoi(limit) > 0)
        return atoi(limit);
    share = share < cores ? share : cores; /* a cgroup's quota may be less than the mask */
    return share > 0 ? share : 1;
}
