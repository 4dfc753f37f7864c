/* A training that does not fit into a node's memory: which keys would make it fit. Called by
 * pretrain.c before the engine is made. */
#include "train/loop/memory/remedy.h"

#include "base/buffer.h"
#include "base/mem.h"
#include "mesh/mesh_search.h"

#include <stdio.h>

/* Settings that save memory on the same mesh, cheapest first: a bit each. */
enum { SYNC = 1, RUNNING = 2, RECOMPUTE = 4, SMALL = 8, ECONOMIES = 4 };
static const char *const KEYS[ECONOMIES] = {"checkpoint.async=no", "train.reduction=running",
                                            "train.recompute=yes", "mesh.micro_batch=1"};

#define REMEDY_BYTES 256

typedef struct search {
    const trainer *self;
    memory_case one; /* the case that does not fit */
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

/* The economies that have an effect. */
static int economies_of(const search *s, const memory_case *one)
{
    if (trainer_learner(s->self))
        return one->async ? SYNC : 0;
    return (one->async ? SYNC : 0) | (one->spec.tree ? RUNNING : 0) |
           (one->spec.recompute ? 0 : RECOMPUTE) | (one->spec.micro_batch > 1 ? SMALL : 0);
}

static bool does_fit(const search *s, const memory_case *one, int nodes)
{
    /* weights and a gradient of each copy (of experts: of each group of data ranks that share them
     * out), and one copy of the moments, spread evenly, are what no mesh goes below: most that is
     * tried ends there, before stages are planned one by one */
    double copies = (double)one->mesh.data / bp_mesh_shape_experts(&one->mesh),
           members = (double)one->mesh.members;
    double floats = (double)bp_model_parameters(&s->self->shape) * members * (2 * copies + 1);
    bool learns = trainer_learner(s->self) != NULL; /* its ranks share one copy out */
    bp_rank_memory *all = NULL;
    bool fits = (learns || floats * sizeof(float) / nodes <= (double)s->has) &&
                bp_training_memory_case_is_valid(s->self, one) &&
                memory_case_list(&all, s->self, one) == BP_OK &&
                bp_node_memory_fullest(all, bp_mesh_shape_ranks(&one->mesh), nodes) <= s->has;

    bp_free(all);
    return fits;
}

/* The fewest economies that make it fit; 0: not even all of them do. */
static int find_economies(const search *s, const memory_case *one)
{
    int possible = economies_of(s, one), taken = 0;
    memory_case other = *one;

    for (int k = 0; k < ECONOMIES && !does_fit(s, &other, s->nodes); k++) {
        taken |= possible & 1 << k;
        other = with_economies(one, taken);
    }
    if (taken == 0 || !does_fit(s, &other, s->nodes))
        return 0;
    for (int k = ECONOMIES - 1; k >= 0; k--) { /* a later one may do without those before */
        other = with_economies(one, taken & ~(1 << k));
        if (does_fit(s, &other, s->nodes))
            taken &= ~(1 << k);
    }
    return taken;
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
    for (int k = 0; k < ECONOMIES; k++)
        if (economies & 1 << k)
            bp_buffer_printf(out, " %s", KEYS[k]);
}

/* The same mesh with economies; other meshes without further ones. */
static void search_here(bp_buffer *out, search *s, const bp_mesh_search *meshes)
{
    bp_buffer mesh = {0};
    int economies = find_economies(s, &s->one);

    if (economies != 0) {
        bp_buffer_printf(out, "use");
        add_economies(out, economies);
    }
    if (bp_mesh_search_near(&mesh, meshes))
        bp_buffer_printf(out, "%s%s", out->bytes > 0 ? "; or " : "", mesh.data);
    bp_buffer_clear(&mesh);
}

/* Both at once, then more nodes, and more nodes with both. */
static void search_further(bp_buffer *out, search *s, const bp_mesh_search *meshes)
{
    const memory_case one = s->one, frugal = with_economies(&one, economies_of(s, &one));
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
        add_economies(out, economies_of(s, &one));
    } else {
        bp_buffer_printf(out, "use a smaller model");
    }
}

/* "use checkpoint.async=no, or mesh.pipeline=2": keys that make the case fit a node that lacks
 * memory; or how many nodes would suffice. */
static void memory_remedy(char out[REMEDY_BYTES], const trainer *self, const memory_case *one,
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
    snprintf(out, REMEDY_BYTES, "%s", text.bytes > 0 ? text.data : "use more nodes");
    bp_buffer_clear(&text);
}

bp_err bp_training_memory_check(const bp_node_memory *node, const trainer *self,
                                const memory_case *one)
{
    char remedy[REMEDY_BYTES] = "";

    if (bp_node_memory_lacks(node))
        memory_remedy(remedy, self, one, node);
    return bp_node_memory_check(node, remedy);
}

bp_err trainer_check_memory(trainer *self)
{
    MPI_Comm world = self->mesh->world;
    memory_case one = bp_training_memory_case_of(self);
    bp_err err = bp_training_memory_find(&self->estimate.node, world, self->config, self, &one);

    if (err != BP_OK)
        return err;
    return bp_agree(world, bp_comm_is_root(world)
                               ? bp_training_memory_check(&self->estimate.node, self, &one)
                               : BP_OK);
}
