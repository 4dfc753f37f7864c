/* A training that does not fit into a node's memory: which keys would make it fit. */
#include "train/loop/memory_priv.h"

#include "base/buffer.h"
#include "base/mem.h"
#include "mesh/mesh_search.h"

#include <stdio.h>
#include <string.h>

/* What takes less memory on the same mesh, the cheapest first: a bit each. */
enum { SYNC = 1, RUNNING = 2, RECOMPUTE = 4, SMALL = 8, ECONOMIES = 4 };

typedef struct search {
    const trainer *self;
    memory_case one; /* what does not fit */
    int64_t has;     /* bytes of a node */
    int nodes;
} search;

static memory_case with_economies(const memory_case *one, int economies)
{
    memory_case other = *one;

    if (economies & SYNC)
        other.async = false;
    if (economies & RUNNING)
        other.spec.tree = false;
    if (economies & RECOMPUTE)
        other.spec.recompute = true;
    if (economies & SMALL)
        other.spec.micro_batch = 1;
    return other;
}

/* Those that change something. */
static int economies_of(const memory_case *one)
{
    return (one->async ? SYNC : 0) | (one->spec.tree ? RUNNING : 0) |
           (one->spec.recompute ? 0 : RECOMPUTE) | (one->spec.micro_batch > 1 ? SMALL : 0);
}

/* Weights and a gradient of each copy, and one copy of the moments, spread evenly: what no mesh
 * goes below. Most that is tried ends here, before stages are planned one by one. */
static bool is_hopeless(const search *s, const memory_case *one, int nodes)
{
    double copies = (double)one->mesh.data, members = (double)one->mesh.members;
    double floats = (double)bp_model_parameters(&s->self->shape) * members * (2 * copies + 1);

    return floats * sizeof(float) / nodes > (double)s->has;
}

static bool does_fit(const search *s, const memory_case *one, int nodes)
{
    bp_rank_memory *all = NULL;
    bool fits = !is_hopeless(s, one, nodes) && memory_case_is_valid(s->self, one) &&
                memory_case_list(&all, s->self, one) == BP_OK &&
                bp_node_memory_fullest(all, bp_mesh_shape_ranks(&one->mesh), nodes) <= s->has;

    bp_free(all);
    return fits;
}

/* The fewest economies that make it fit; false: not even all of them do. */
static bool find_economies(const search *s, const memory_case *one, int *economies)
{
    int possible = economies_of(one), taken = 0;

    for (int k = 0; k < ECONOMIES; k++) {
        memory_case other = with_economies(one, taken);

        if (does_fit(s, &other, s->nodes))
            break;
        taken |= possible & 1 << k;
    }
    memory_case all = with_economies(one, taken);
    if (taken == 0 || !does_fit(s, &all, s->nodes))
        return false;
    for (int k = ECONOMIES - 1; k >= 0; k--) { /* a later one may do without those before */
        memory_case without = with_economies(one, taken & ~(1 << k));

        if (does_fit(s, &without, s->nodes))
            taken &= ~(1 << k);
    }
    *economies = taken;
    return true;
}

static bool mesh_fits(void *context, const bp_mesh_shape *mesh, int nodes)
{
    const search *s = context;
    memory_case other = s->one;

    other.mesh = *mesh;
    return does_fit(s, &other, nodes);
}

static void add_economies(bp_buffer *out, int economies)
{
    if (economies & SYNC)
        bp_buffer_printf(out, " checkpoint.async=no");
    if (economies & RUNNING)
        bp_buffer_printf(out, " train.reduction=running");
    if (economies & RECOMPUTE)
        bp_buffer_printf(out, " train.recompute=yes");
    if (economies & SMALL)
        bp_buffer_printf(out, " mesh.micro_batch=1");
}

/* The same mesh with fewer things kept; another mesh with all that there are now. */
static void search_here(bp_buffer *out, search *s, const bp_mesh_search *meshes)
{
    bp_buffer mesh = {0};
    int economies;

    if (find_economies(s, &s->one, &economies)) {
        bp_buffer_printf(out, "use");
        add_economies(out, economies);
    }
    if (bp_mesh_search_near(&mesh, meshes))
        bp_buffer_printf(out, "%s%s", out->bytes > 0 ? "; or " : "", mesh.data);
    bp_buffer_clear(&mesh);
}

/* Both at once, then more nodes, and those with both. */
static void search_further(bp_buffer *out, search *s, const bp_mesh_search *meshes)
{
    const memory_case one = s->one, frugal = with_economies(&one, economies_of(&one));
    bool found;

    s->one = frugal;
    found = bp_mesh_search_near(out, meshes);
    if (!found) {
        bp_buffer_printf(out, "no mesh on %d node%s fits: ", s->nodes, s->nodes == 1 ? "" : "s");
        s->one = one;
        if (bp_mesh_search_nodes(out, meshes))
            return;
        s->one = frugal;
        found = bp_mesh_search_nodes(out, meshes);
    }
    if (found) {
        bp_buffer_printf(out, "; and use");
        add_economies(out, economies_of(&one));
    } else {
        bp_buffer_printf(out, "use a smaller model");
    }
}

void memory_remedy(char out[MEMORY_REMEDY_BYTES], const trainer *self, const memory_case *one,
                   const bp_node_memory *node)
{
    search s = {.self = self, .one = *one, .has = node->has_bytes, .nodes = node->nodes};
    const bp_mesh_search meshes = {.mesh = one->mesh,
                                   .nodes = node->nodes,
                                   .node_ranks = node->ranks,
                                   .config = self->config,
                                   .fits = mesh_fits,
                                   .context = &s};
    bp_buffer text = {0};

    search_here(&text, &s, &meshes);
    if (text.bytes == 0)
        search_further(&text, &s, &meshes);
    snprintf(out, MEMORY_REMEDY_BYTES, "%s", text.bytes > 0 ? text.data : "use more nodes");
    bp_buffer_clear(&text);
}
