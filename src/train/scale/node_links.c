/* Which ranks of a mesh have their partner on another node. Called by step_time.c and step_json.c.
 */
#include "train/scale/node_links.h"

/* The most ranks of a node whose partner, partner_of(layout, rank, by), is on another node. */
static int most_crossing(const bp_node_layout *at,
                         int (*partner_of)(const bp_node_layout *at, int rank, int by), int by)
{
    int most = 0, here = 0, node = 0;

    for (int rank = 0; rank < at->ranks; rank++) {
        int partner = partner_of(at, rank, by);

        if (rank / at->node_ranks != node)
            here = 0;
        node = rank / at->node_ranks;
        here += partner / at->node_ranks != node;
        most = here > most ? here : most;
    }
    return most;
}

static int data_partner(const bp_node_layout *at, int rank, int stride)
{
    int T = at->mesh.tensor, D = at->mesh.data, d = rank / T % D,
        other = d / stride % 2 ? d - stride : d + stride;

    if (other >= D) /* the last of an odd number: it sends to the previous one */
        other = d - stride < 0 ? d : d - stride;
    return rank + (other - d) * T;
}

static int next_stage(const bp_node_layout *at, int rank, int unused)
{
    int stage = at->mesh.data * at->mesh.tensor, copy = stage * at->mesh.pipeline;

    (void)unused;
    return rank / copy * copy + (rank % copy + stage) % copy;
}

/* Tensor ranks exchange along all strides: with the farthest. */
static int farthest_tensor(const bp_node_layout *at, int rank, int unused)
{
    int first = rank / at->mesh.tensor * at->mesh.tensor, last = first + at->mesh.tensor - 1;

    (void)unused;
    return rank - first < last - rank ? last : first;
}

/* The turn-th data rank after it in its group (nn/transformer/expert_exchange.c). */
static int expert_partner(const bp_node_layout *at, int rank, int turn)
{
    int E = bp_mesh_shape_experts(&at->mesh), T = at->mesh.tensor,
        place = rank / T % at->mesh.data % E;

    return rank + ((place + turn) % E - place) * T;
}

int bp_node_crossing(const bp_node_layout *layout, int stride)
{
    for (int k = 0; k < 31; k++)
        if (1 << k == stride)
            return layout->data[k];
    return most_crossing(layout, data_partner, stride);
}

bp_node_layout bp_node_layout_of(const bp_mesh_shape *mesh, int nodes)
{
    int ranks = mesh->members * mesh->pipeline * mesh->data * mesh->tensor;
    bp_node_layout out = {*mesh, ranks, nodes, (ranks + nodes - 1) / nodes};

    for (int k = 0; k < 31 && 1 << k < mesh->data; k++)
        out.data[k] = most_crossing(&out, data_partner, 1 << k);
    out.pipeline = mesh->pipeline > 1 ? most_crossing(&out, next_stage, 0) : 0;
    out.tensor = mesh->tensor > 1 ? most_crossing(&out, farthest_tensor, 0) : 0;
    for (int turn = 1; turn < bp_mesh_shape_experts(mesh); turn++) {
        int crossing = most_crossing(&out, expert_partner, turn);

        out.turns_here += crossing == 0;
        out.turns_away += crossing > 0;
        out.experts += crossing;
    }
    return out;
}

double bp_message_seconds(const bp_network_rates *rates, int crossing, double bytes)
{
    if (crossing == 0)
        return rates->inner_latency + bytes / rates->inner_bandwidth;
    return rates->node_latency +
           crossing * (bytes / rates->node_bandwidth + 1 / rates->message_rate);
}
