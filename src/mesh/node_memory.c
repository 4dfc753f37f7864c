/* The plans of all ranks of a node, added up and compared with what the node has. */
#include "mesh/node_memory.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/memory_limit.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define WAIT_SECONDS  5.0 /* to wait for memory of a job that has just ended */
#define SLEEP_SECONDS 0.25
#define UNKNOWN       (INT64_MIN / 2) /* lacks less than any node of known memory */

const bp_option bp_memory_options[] = {
    {BP_BYTES_KEY("run.memory", NULL, 1, 1e18),
     .help = "memory that the ranks on a node may take together; none: what the system allows "
             "(available memory, control group, Slurm)"},
    {.key = NULL}};

static void find_asked(void *context, const bp_option *option, const char *value)
{
    if (value && strcmp(option->key, bp_memory_options[0].key) == 0)
        *(bool *)context = true;
}

/* run.memory if the job has the key and a value for it, else the system's limit. */
static bp_memory_limit read_limit(const bp_config *config, int64_t held)
{
    bp_memory_limit limit = {.bytes = -1};
    bool asked = false;

    bp_config_each(config, find_asked, &asked);
    if (!asked)
        return bp_memory_limit_read("", held);
    limit.bytes = bp_config_int(config, bp_memory_options[0].key);
    snprintf(limit.from, sizeof limit.from, "%s", bp_memory_options[0].key);
    return limit;
}

static void fill(bp_node_memory *out, const bp_config *config, int64_t held)
{
    bp_memory_limit limit = read_limit(config, held);

    for (double waited = 0; limit.changes && limit.bytes < out->needs_bytes &&
                            waited < WAIT_SECONDS && out->host[0] != '\0';
         waited += SLEEP_SECONDS) {
        bp_clock_sleep(SLEEP_SECONDS);
        limit = read_limit(config, held);
    }
    out->has_bytes = limit.bytes;
    memcpy(out->from, limit.from, sizeof out->from);
}

static int64_t lack(const bp_node_memory *node)
{
    return node->has_bytes < 0 ? UNKNOWN : node->needs_bytes - node->has_bytes;
}

/* The record of the lowest rank whose node lacks most, for all. */
static void share_worst(bp_node_memory *out, MPI_Comm comm, bool has)
{
    int64_t mine = has ? lack(out) : INT64_MIN, worst = bp_all_max_int(mine, comm);
    int64_t rank = has && mine == worst ? bp_comm_rank(comm) : INT_MAX;

    out->nodes = (int)bp_all_sum_int(has, comm);
    bp_bcast_bytes(out, sizeof *out, (int)-bp_all_max_int(-rank, comm), comm);
}

static MPI_Comm split_nodes(MPI_Comm comm)
{
    MPI_Comm node;

    BP_MPI_WAIT("comm_split",
                MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    return node;
}

void bp_node_memory_find(bp_node_memory *out, MPI_Comm comm, const bp_config *config,
                         const bp_rank_memory *all)
{
    MPI_Comm node = split_nodes(comm);
    int64_t held = bp_all_sum_int((int64_t)bp_mem_resident_bytes(), node);
    bool first = bp_comm_is_root(node);
    bp_rank_memory mine;

    BP_MPI_WAIT("scatter", MPI_Scatter(all, 2, MPI_INT64_T, &mine, 2, MPI_INT64_T, 0, comm));
    memset(out, 0, sizeof *out); /* it travels as bytes */
    out->ranks = bp_comm_size(node);
    out->needs_bytes = bp_all_sum_int(mine.own_bytes, node) + bp_all_max_int(mine.node_bytes, node);
    bp_host_name(out->host, sizeof out->host);
    if (first)
        fill(out, config, held);
    BP_MPI(MPI_Comm_free(&node));
    share_worst(out, comm, first);
}

int64_t bp_node_memory_fullest(const bp_rank_memory *all, int ranks, int nodes)
{
    int each = (ranks + nodes - 1) / nodes;
    int64_t own = 0, node = 0, most = 0;

    for (int r = 0; r < ranks; r++) {
        if (r % each == 0)
            own = node = 0;
        own += all[r].own_bytes;
        node = all[r].node_bytes > node ? all[r].node_bytes : node;
        most = own + node > most ? own + node : most;
    }
    return most;
}

void bp_node_memory_plan(bp_node_memory *out, const bp_config *config, const bp_rank_memory *all,
                         int ranks, int nodes)
{
    *out = (bp_node_memory){.needs_bytes = bp_node_memory_fullest(all, ranks, nodes),
                            .ranks = (ranks + nodes - 1) / nodes,
                            .nodes = nodes};
    fill(out, config, (int64_t)bp_mem_resident_bytes());
}

int64_t bp_node_memory_has(MPI_Comm comm, const bp_config *config)
{
    MPI_Comm node = split_nodes(comm);
    int64_t held = bp_all_sum_int((int64_t)bp_mem_resident_bytes(), node);
    int64_t bytes = bp_comm_is_root(node) ? read_limit(config, held).bytes : 0;

    bp_bcast_bytes(&bytes, sizeof bytes, 0, node);
    BP_MPI(MPI_Comm_free(&node));
    return bytes;
}

bool bp_node_memory_lacks(const bp_node_memory *node)
{
    return lack(node) > 0;
}

static void say_bytes(char out[32], int64_t bytes)
{
    static const char *const UNITS[] = {"MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes / 1048576;
    int unit = 0;

    for (; value >= 1024 && unit < 3; unit++)
        value /= 1024;
    snprintf(out, 32, "%.1f %s", value, UNITS[unit]);
}

bp_err bp_node_memory_check(const bp_node_memory *node, const char *remedy)
{
    char needs[32], has[32];

    say_bytes(needs, node->needs_bytes);
    say_bytes(has, node->has_bytes);
    if (bp_node_memory_lacks(node))
        return BP_FAIL(BP_ERR_SYSTEM, "memory.over_limit",
                       "%d rank%s on %s take%s about %s, and may take %s (%s): at run.memory; %s; "
                       "set run.memory where there is more",
                       node->ranks, node->ranks == 1 ? "" : "s",
                       node->host[0] ? node->host : "a node", node->ranks == 1 ? "s" : "", needs,
                       has, node->from, remedy);
    if (node->has_bytes < 0)
        BP_WARN("memory.unknown",
                "the memory of a node is not known, and not compared with the %s that its ranks "
                "take: at run.memory; set it",
                needs);
    return BP_OK;
}

void bp_node_memory_print(const bp_node_memory *node)
{
    char needs[32], has[32], nodes[32] = "";

    say_bytes(needs, node->needs_bytes);
    say_bytes(has, node->has_bytes);
    if (node->nodes > 1)
        snprintf(nodes, sizeof nodes, "on each of %d nodes ", node->nodes);
    if (node->has_bytes < 0)
        bp_log("memory: %s%d rank%s take%s about %s", nodes, node->ranks,
               node->ranks == 1 ? "" : "s", node->ranks == 1 ? "s" : "", needs);
    else
        bp_log("memory: %s%d rank%s take%s about %s of %s (%s)", nodes, node->ranks,
               node->ranks == 1 ? "" : "s", node->ranks == 1 ? "s" : "", needs, has, node->from);
}
