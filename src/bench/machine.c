/* The machine of a bench: hosts, CPUs, caches, memory, libraries. */
#include "bench/bench_priv.h"
#include "math/math.h"

#include "base/config/json.h"
#include "base/mem.h"
#include "base/process/cores.h"
#include "mesh/collective.h"
#include "mesh/node_memory.h"
#include "run/probe/probe.h"

#include <string.h>

#define MEMORY_SHARE 0.9 /* of free memory, that ranks may use */

int64_t bench_ranks(const bench *self)
{
    const bp_mesh_shape *shape = &self->mesh_shape;

    return (int64_t)shape->pipeline * shape->data * shape->tensor;
}

/* Computing ranks of the fullest host, and memory for each rank on the host with least. */
void bench_find_memory(bench *self, const bp_planned_world *plan)
{
    const bp_mesh *mesh = self->mesh;
    int64_t has = bp_node_memory_has(mesh->world, self->config);
    MPI_Comm node;
    int ranks;

    BP_MPI_WAIT("comm_split",
                MPI_Comm_split_type(mesh->world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    ranks = (int)bp_all_sum_int(mesh->computes, node);
    BP_MPI(MPI_Comm_free(&node));
    if (plan)
        ranks = ((int)bench_ranks(self) + plan->nodes - 1) / plan->nodes;
    self->node_ranks = (int)bp_all_max_int(ranks, mesh->world);
    double each = MEMORY_SHARE * (double)(has > 0 ? has : 0) / (ranks > 0 ? ranks : 1);
    self->rank_bytes = -(double)bp_all_max_int(-(int64_t)each, mesh->world);
}

/* Each host once, in the order of its first rank. */
static json_t *hosts_json(const bench *self)
{
    json_t *hosts = json_array();

    for (int r = 0; r < self->mesh->size; r++) {
        size_t k = 0;

        while (k < json_array_size(hosts) &&
               strcmp(json_string_value(json_array_get(hosts, k)), self->hosts[r]) != 0)
            k++;
        if (k == json_array_size(hosts))
            (void)json_array_append_new(hosts, bp_json_string(self->hosts[r]));
    }
    return hosts;
}

static json_t *machine_json(const bench *self, const bp_probe_host *host, int cores)
{
    const bp_mesh *mesh = self->mesh;
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;

    BP_MPI(MPI_Get_library_version(library, &length));
    library[strcspn(library, ",\n")] = '\0';
    return json_pack("{s:s, s:s, s:s, s:s, s:b, s:i, s:i, s:i, s:i, s:i, s:o, s:I, s:I, s:I}",
                     "cpu", bp_math_cpu(), "features", host->features, "math_library",
                     bp_math_library(), "mpi", library, "bf16", (int)self->bf16, "ranks",
                     mesh->size - mesh->dedicated, "threads", bp_math_threads(), "cores", cores,
                     "ranks_a_host", self->node_ranks, "host_cpus", host->host_cpus, "hosts",
                     hosts_json(self), "memory_bytes", (json_int_t)host->memory_bytes,
                     "free_bytes_a_rank", (json_int_t)self->rank_bytes, "cache_bytes",
                     (json_int_t)bp_cores_cache_bytes());
}

void bench_find_machine(bench *self)
{
    const bp_mesh *mesh = self->mesh;
    char host[BENCH_HOST_BYTES] = "";
    bp_probe_host probe;
    int cores;

    self->hosts = bp_alloc("bench.hosts", mesh->size, sizeof *self->hosts);
    bp_host_name(host, sizeof host);
    BP_MPI_WAIT("all_gather", MPI_Allgather(host, sizeof host, MPI_CHAR, self->hosts, sizeof host,
                                            MPI_CHAR, mesh->world));
    bp_probe_host_read(&probe);
    bench_find_memory(self, NULL);
    self->bf16 = bp_all_max_int(!bp_math_has_bf16(), mesh->world) == 0;
    cores = (int)-bp_all_max_int(-bp_math_cores(), mesh->world);
    if (mesh->coordinates)
        bench_put(self->result, "machine", machine_json(self, &probe, cores));
}
