/* What generation takes on each rank, from manifests alone: compared with the node before anything
 * is loaded, and printed by --plan. */
#include "infer/generate/memory.h"

#include "base/buffer.h"
#include "base/mem.h"
#include "infer/generate/fill.h"
#include "infer/generate/generator_priv.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/ensemble_file.h"
#include "mesh/collective.h"
#include "mesh/mesh_search.h"
#include "mesh/node_memory.h"
#include "models/open.h"

#include <omp.h>
#include <string.h>

#define LIBRARIES_BYTES ((int64_t)20 << 20) /* as in training: src/train/engine/plan.c */

/* The models, as their manifests have them. */
typedef struct models {
    const bp_config *config;
    const bp_planned_world *plan;
    json_t **states; /* [count] of manifests */
    int64_t count;
    int64_t context; /* the least */
    bool ensemble;
} models;

/* ---- manifests ---- */

/* False: unknown. */
static bool read_state(models *self, int64_t k, const char *path)
{
    char *folder = NULL;
    json_t *manifest = NULL;

    if (bp_checkpoint_read_metadata(path, &folder, &manifest) == BP_OK)
        self->states[k] = json_incref(json_object_get(manifest, "state"));
    json_decref(manifest);
    bp_free(folder);
    int64_t context =
        json_integer_value(json_object_get(json_object_get(self->states[k], "model"), "context"));

    self->context = self->context == 0 || context < self->context ? context : self->context;
    return json_is_object(self->states[k]) && context > 0;
}

static bool open_models(models *self)
{
    const char *path = bp_generate_keys_of(self->config)->model;
    bp_ensemble_list list = {0};
    bool known = true;

    self->ensemble = bp_ensemble_is(path);
    if (self->ensemble)
        known = bp_ensemble_list_load(&list, path) == BP_OK;
    self->count = list.count > 0 ? list.count : 1;
    self->states = bp_alloc("generate.memory", self->count, sizeof *self->states);
    for (int64_t k = 0; k < self->count && known; k++)
        known = read_state(self, k, list.count > 0 ? list.members[k].path : path);
    bp_ensemble_list_clear(&list);
    return known;
}

static void clear_models(models *self)
{
    for (int64_t k = 0; self->states && k < self->count; k++)
        json_decref(self->states[k]);
    bp_free(self->states);
}

/* ---- ranks ---- */

/* The longest prompts that leave space for all new tokens, as many as fill a unit. */
static bp_generate_plan plan_of(const models *self, int stages)
{
    const bp_generate_keys *keys = bp_generate_keys_of(self->config);
    const bp_model_info none = {.vocab_size = 1, .eod_id = -1};
    bp_search_spec rule = generator_rule(self->config, &none);

    return bp_generate_plan_of(&rule, INT64_MAX / 2, self->context, keys->batch, keys->tokens,
                               self->context, stages);
}

/* What the last stage takes besides: gathered rows, and the choosers' scratch. */
static int64_t choosing_bytes(const bp_generate_plan *plan, int64_t vocab_size)
{
    return 2 * plan->slots * vocab_size * (int64_t)sizeof(float) +
           omp_get_max_threads() * bp_choice_bytes(vocab_size);
}

/* Members of one shape follow one another: they are estimated once. */
static bool is_like(const models *self, int64_t k)
{
    return k > 0 && json_equal(json_object_get(self->states[k], "model"),
                               json_object_get(self->states[k - 1], "model"));
}

/* What a rank of one stage and one member of the mesh takes, in *bytes. */
static bp_err estimate_rank(const models *self, const bp_mesh_shape *mesh, int stage, int member,
                            int64_t *bytes)
{
    bp_generate_plan plan = plan_of(self, mesh->pipeline);
    bool fills = strcmp(bp_generate_keys_of(self->config)->strategy, "fill") == 0;
    const bp_model_task task = {.mesh = mesh,
                                .stage = stage,
                                .windows = fills ? plan.unit_prompts : 0,
                                .length = fills ? self->context : 0,
                                .groups = fills ? 0 : plan.groups,
                                .slots = plan.slots,
                                .capacity = plan.capacity};
    bp_model_memory one = {0};
    int64_t staged = 0, decoding = 0; /* not both at a time */
    bp_err err = BP_OK;

    *bytes = (int64_t)bp_mem_resident_peak_bytes() + LIBRARIES_BYTES;
    for (int64_t k = 0; k < self->count && err == BP_OK; k++) {
        if (!is_like(self, k))
            err = bp_model_estimate(&one, self->states[k], self->config, &task);
        if (self->count == 1 || k % mesh->members == member) {
            *bytes += one.weights_bytes;
            decoding += one.decode_bytes;
            staged = one.work_bytes > staged ? one.work_bytes : staged;
        }
    }
    if (stage == mesh->pipeline - 1 && fills)
        decoding +=
            staged + bp_fill_bytes(&plan, self->context, one.width, one.vocab_size / mesh->tensor);
    else if (stage == mesh->pipeline - 1)
        decoding += choosing_bytes(&plan, one.vocab_size) *
                    (self->ensemble ? 1 + self->count / mesh->members : 1);
    *bytes += decoding > staged ? decoding : staged;
    return err;
}

/* (*out)[ranks] of a job of this mesh. */
static bp_err list_ranks(bp_rank_memory **out, const models *self, const bp_mesh_shape *mesh)
{
    int ranks = bp_mesh_shape_ranks(mesh),
        dedicated = mesh->coordinator == BP_COORDINATOR_DEDICATED;
    bp_rank_memory *all = bp_alloc("generate.memory", ranks, sizeof *all);
    bp_err err = BP_OK;

    if (dedicated)
        all[0].own_bytes = (int64_t)bp_mem_resident_peak_bytes();
    for (int r = dedicated; r < ranks && err == BP_OK; r++) {
        int at = (r - dedicated) / mesh->tensor;

        if (at % mesh->data == 0 && (r - dedicated) % mesh->tensor == 0)
            err = estimate_rank(self, mesh, at / mesh->data % mesh->pipeline,
                                at / mesh->data / mesh->pipeline, &all[r].own_bytes);
        else /* the same as the first of its stage */
            all[r].own_bytes = all[r - 1].own_bytes;
    }
    if (err != BP_OK)
        bp_free(all);
    *out = err == BP_OK ? all : NULL;
    return err;
}

/* ---- nodes ---- */

typedef struct search {
    const models *models;
    int64_t has;
} search;

static bool mesh_fits(void *context, const bp_mesh_shape *mesh, int nodes)
{
    const search *s = context;
    bp_rank_memory *all = NULL;
    bool fits = list_ranks(&all, s->models, mesh) == BP_OK &&
                bp_node_memory_fullest(all, bp_mesh_shape_ranks(mesh), nodes) <= s->has;

    bp_free(all);
    return fits;
}

static bp_err judge(const bp_node_memory *node, const models *self, const bp_mesh_shape *shape)
{
    search s = {.models = self, .has = node->has_bytes};
    const bp_mesh_search meshes = {.mesh = *shape,
                                   .nodes = node->nodes,
                                   .node_ranks = node->ranks,
                                   .members_most = (int)self->count,
                                   .config = self->config,
                                   .fits = mesh_fits,
                                   .context = &s};
    bp_buffer text = {0};

    if (self->plan)
        bp_node_memory_print(node);
    bool found = bp_node_memory_lacks(node) &&
                 (bp_mesh_search_near(&text, &meshes) || bp_mesh_search_nodes(&text, &meshes));
    bp_err err = bp_node_memory_check(
        node, found ? text.data : "use a smaller generate.batch or generate.beams");

    bp_buffer_clear(&text);
    return err;
}

/* One rank that holds all of a job to come lacks memory for it. */
static bool lacks_alone(const models *self)
{
    static const bp_mesh_shape ONE = {1, 1, 1, 1, BP_COORDINATOR_SHARED};
    bp_rank_memory *all = NULL;
    bp_node_memory node;
    bool lacks = false;

    if (list_ranks(&all, self, &ONE) == BP_OK) {
        bp_node_memory_plan(&node, self->config, all, 1, 1);
        lacks = bp_node_memory_lacks(&node);
    }
    bp_free(all);
    return lacks;
}

/* On the root: *all is NULL, and BP_OK, where that can't be said. */
static bp_err estimate(bp_rank_memory **all, models *self, const bp_mesh_shape *shape)
{
    bp_err err = open_models(self) ? list_ranks(all, self, shape) : BP_OK;

    return err == BP_ERR_SYSTEM ? err : BP_OK;
}

bp_err bp_generate_memory_check(MPI_Comm world, const bp_mesh_shape *shape, const bp_config *config,
                                const bp_planned_world *plan, bool *alone_fits)
{
    bool alone = plan && bp_comm_size(world) == 1, root = bp_comm_is_root(world);
    models self = {.config = config, .plan = plan};
    bp_rank_memory *all = NULL;
    bp_node_memory node;
    bp_err err = bp_agree(world, root ? estimate(&all, &self, shape) : BP_OK);

    if (alone_fits)
        *alone_fits = true;
    if (err == BP_OK && bp_all_max_int(all != NULL, world) != 0) {
        if (alone)
            bp_node_memory_plan(&node, config, all, bp_mesh_shape_ranks(shape), plan->nodes);
        else
            bp_node_memory_find(&node, world, config, all);
        err = bp_agree(world, root ? judge(&node, &self, shape) : BP_OK);
        if (err == BP_OK && alone && alone_fits)
            *alone_fits = !lacks_alone(&self);
    }
    bp_free(all);
    clear_models(&self);
    return err;
}
