/* Meshes for a number of ranks, in the order of trial when memory is short. */
#include "mesh/mesh_search.h"

#define NODES_MOST 1024

static int dedicated(const bp_mesh_shape *shape)
{
    return shape->coordinator == BP_COORDINATOR_DEDICATED;
}

int bp_mesh_shape_ranks(const bp_mesh_shape *shape)
{
    return shape->members * shape->pipeline * shape->data * shape->tensor + dedicated(shape);
}

static bool does_fit(const bp_mesh_search *s, const bp_mesh_shape *mesh, int nodes)
{
    return s->fits(s->context, mesh, nodes);
}

/* One cut of `ranks` computing ranks into this many parts of a model, or of members and parts. */
static bool try_parts(const bp_mesh_search *s, int ranks, int nodes, int parts, bp_mesh_shape *out)
{
    int node_ranks = (ranks + nodes - 1) / nodes;
    int most = s->members_most > 0 ? s->members_most : s->mesh.members;
    int least = s->members_most > 0 ? 1 : s->mesh.members;

    for (int members = most; members >= least; members--)
        for (int tensor = 1; parts % members == 0 && tensor <= node_ranks; tensor++) {
            int of_model = parts / members;

            if (of_model % tensor != 0)
                continue;
            *out = s->mesh;
            out->members = members;
            out->tensor = tensor;
            out->pipeline = of_model / tensor;
            out->data = ranks / parts;
            if (does_fit(s, out, nodes))
                return true;
        }
    return false;
}

static bool find_mesh(const bp_mesh_search *s, int ranks, int nodes, bp_mesh_shape *out)
{
    for (int parts = 1; parts <= ranks; parts++)
        if (ranks % parts == 0 && try_parts(s, ranks, nodes, parts, out))
            return true;
    return false;
}

/* The same mesh with fewer copies of the model, or fewer concurrent members. */
static bool find_fewer(const bp_mesh_search *s, bp_mesh_shape *out)
{
    *out = s->mesh;
    for (int data = s->mesh.data - 1; data >= 1; data--) {
        out->data = data;
        if (does_fit(s, out, s->nodes))
            return true;
    }
    out->data = s->mesh.data;
    for (int members = s->mesh.members - 1; members >= 1; members--) {
        out->members = members;
        if (does_fit(s, out, s->nodes))
            return true;
    }
    return false;
}

static void add_key(bp_buffer *out, const char *name, int before, int now)
{
    if (before != now)
        bp_buffer_printf(out, " mesh.%s=%d", name, now);
}

/* " mesh.pipeline=2 mesh.tensor=1": every key that differs. */
static void add_keys(bp_buffer *out, const bp_mesh_search *s, const bp_mesh_shape *now)
{
    const bp_mesh_shape *before = &s->mesh;

    add_key(out, "members", before->members, now->members);
    add_key(out, "pipeline", before->pipeline, now->pipeline);
    add_key(out, "tensor", before->tensor, now->tensor);
    if (bp_config_is_given(s->config, "mesh.data"))
        add_key(out, "data", before->data, now->data);
}

bool bp_mesh_search_near(bp_buffer *out, const bp_mesh_search *s)
{
    int ranks = bp_mesh_shape_ranks(&s->mesh) - dedicated(&s->mesh);
    bp_mesh_shape other;

    if (find_mesh(s, ranks, s->nodes, &other)) {
        bp_buffer_printf(out, "use");
        add_keys(out, s, &other);
        return true;
    }
    if (!find_fewer(s, &other))
        return false;
    bp_buffer_printf(out, "start %d rank%s%s", bp_mesh_shape_ranks(&other),
                     bp_mesh_shape_ranks(&other) == 1 ? "" : "s",
                     other.members == s->mesh.members ? "" : " with");
    add_keys(out, s, &other);
    return true;
}

bool bp_mesh_search_nodes(bp_buffer *out, const bp_mesh_search *s)
{
    bp_mesh_shape other;

    for (int nodes = s->nodes + 1; nodes <= NODES_MOST; nodes += nodes < 16 ? 1 : nodes) {
        int ranks = nodes * s->node_ranks - dedicated(&s->mesh);

        if (nodes <= bp_mesh_shape_ranks(&s->mesh) && does_fit(s, &s->mesh, nodes)) {
            bp_buffer_printf(out, "spread these ranks over %d nodes", nodes);
            return true;
        }
        if (find_mesh(s, ranks, nodes, &other)) {
            bp_buffer_printf(out, "start %d ranks on %d nodes with", ranks + dedicated(&s->mesh),
                             nodes);
            add_keys(out, s, &other);
            return true;
        }
    }
    return false;
}
