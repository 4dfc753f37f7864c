/* The memory of a job on each rank, from manifests only: compared with the node before anything is
 * loaded, and printed by --plan. The work defines the memory of a rank at a place
 * (bp_work_memory.rank). */
#include "job/memory.h"

#include "base/buffer.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/ensemble_file.h"
#include "mesh/collective.h"
#include "mesh/mesh_search.h"
#include "models/open.h"

#define LIBRARIES_BYTES ((int64_t)20 << 20) /* as in training: src/train/engine/plan.c */

/* ---- manifests ---- */

/* False: unknown. */
static bool read_state(json_t **out, const char *path)
{
    char *folder = NULL;
    json_t *manifest = NULL;

    *out = NULL;
    if (bp_checkpoint_read_metadata(path, &folder, &manifest) == BP_OK)
        *out = json_incref(json_object_get(manifest, "state"));
    json_decref(manifest);
    bp_free(folder);
    return json_is_object(*out);
}

/* False: a size is unknown. */
static bool open_models(bp_work_models *self, const bp_work_memory *spec)
{
    bp_ensemble_list list = {0};
    bool known = true;

    if (bp_ensemble_is(spec->model))
        known = bp_ensemble_list_load(&list, spec->model) == BP_OK;
    self->config = spec->config;
    self->count = list.count > 0 ? list.count : spec->apart ? spec->drawn : 1;
    self->states = bp_alloc("job.memory", self->count, sizeof *self->states);
    for (int64_t k = 0; k < self->count && known; k++)
        known = read_state(&self->states[k], list.count > 0 ? list.members[k].path : spec->model);
    self->ensemble = spec->mixed || list.count > 0;
    self->members = spec->drawn > 0 ? spec->drawn : self->count;
    bp_ensemble_list_clear(&list);
    return known;
}

static void clear_models(bp_work_models *self)
{
    for (int64_t k = 0; k < self->count; k++)
        json_decref(self->states[k]);
    bp_free(self->states);
}

/* ---- ranks ---- */

/* Has member k the shape of the one before? Members of one shape are consecutive. */
static bool is_like_last(const bp_work_models *self, int64_t k)
{
    return k > 0 && json_equal(json_object_get(self->states[k], "model"),
                               json_object_get(self->states[k - 1], "model"));
}

bp_err bp_work_model_bytes_of(bp_work_model_bytes *out, const bp_work_models *models,
                              const bp_model_task *task, int member)
{
    bp_model_memory one = {0};
    bp_err err = BP_OK;

    *out = (bp_work_model_bytes){0};
    for (int64_t k = 0; k < models->count && err == BP_OK; k++) {
        if (!is_like_last(models, k))
            err = bp_model_estimate(&one, models->states[k], models->config, task);
        bool here =
            models->count > 1 ? k % task->mesh->members == member : member < models->members;
        out->weights += here ? one.weights_bytes : 0;
        out->decode += here ? one.decode_bytes : 0;
        out->work = bp_max(out->work, here ? one.work_bytes : 0);
        out->node += one.node_bytes;
        out->widest = one.width > out->widest.width ? one : out->widest;
    }
    return err;
}

/* The context of a search: the job and its models. */
typedef struct estimate {
    const bp_work_memory *spec;
    bp_work_models models;
    int64_t has; /* of a node */
} estimate;

static bp_err estimate_rank(const estimate *self, const bp_work_place *place, bp_rank_memory *out)
{
    *out = (bp_rank_memory){.own_bytes = self->spec->process_bytes +
                                         (place->computes ? LIBRARIES_BYTES : 0)};
    return self->spec->rank(self->spec->context, &self->models, place, out);
}

/* (*out)[ranks] of a job of this mesh. */
static bp_err list_ranks(bp_rank_memory **out, const estimate *self, const bp_mesh_shape *mesh)
{
    int ranks = bp_mesh_shape_ranks(mesh),
        dedicated = mesh->coordinator == BP_COORDINATOR_DEDICATED;
    bp_rank_memory *all = bp_alloc("job.memory", ranks, sizeof *all);
    bp_work_place place = {.mesh = mesh};
    bp_err err = dedicated ? estimate_rank(self, &place, &all[0]) : BP_OK;

    place.computes = true;
    for (int r = dedicated; r < ranks && err == BP_OK; r++) {
        int at = (r - dedicated) / mesh->tensor;

        place.stage = at / mesh->data % mesh->pipeline;
        place.member = at / mesh->data / mesh->pipeline;
        if (at % mesh->data == 0 && (r - dedicated) % mesh->tensor == 0)
            err = estimate_rank(self, &place, &all[r]);
        else /* like the first rank of its stage */
            all[r] = all[r - 1];
    }
    if (err != BP_OK)
        bp_free(all);
    *out = err == BP_OK ? all : NULL;
    return err;
}

/* ---- nodes ---- */

static bool mesh_fits(void *context, const bp_mesh_shape *mesh, int nodes)
{
    const estimate *self = context;
    bp_rank_memory *all = NULL;
    bool fits = list_ranks(&all, self, mesh) == BP_OK &&
                bp_node_memory_fullest(all, bp_mesh_shape_ranks(mesh), nodes) <= self->has;

    bp_free(all);
    return fits;
}

static bp_err check_node(const bp_node_memory *node, estimate *self, const bp_mesh_shape *shape)
{
    const bp_mesh_search meshes = {.mesh = *shape,
                                   .nodes = node->nodes,
                                   .node_ranks = node->ranks,
                                   .members_most =
                                       self->models.ensemble ? (int)self->models.members : 1,
                                   .config = self->spec->config,
                                   .fits = mesh_fits,
                                   .context = self};
    bp_buffer text = {0};

    self->has = node->has_bytes;
    if (self->spec->plan)
        bp_node_memory_print(node);
    bool found = bp_node_memory_lacks(node) &&
                 (bp_mesh_search_near(&text, &meshes) || bp_mesh_search_nodes(&text, &meshes));
    bp_err err = bp_node_memory_check(node, found ? text.data : self->spec->remedy);

    bp_buffer_clear(&text);
    return err;
}

/* Fails because one rank lacks memory for all of a planned job. */
static bool lacks_alone(const estimate *self)
{
    static const bp_mesh_shape ONE = {1, 1, 1, 1, BP_COORDINATOR_SHARED};
    bp_rank_memory *all = NULL;
    bp_node_memory node;
    bool lacks = false;

    if (list_ranks(&all, self, &ONE) == BP_OK) {
        bp_node_memory_plan(&node, self->spec->config, all, 1, 1);
        lacks = bp_node_memory_lacks(&node);
    }
    bp_free(all);
    return lacks;
}

/* On the root: *all is NULL, and BP_OK, if that is unknown. */
static bp_err estimate_all(bp_rank_memory **all, estimate *self, const bp_mesh_shape *shape)
{
    bp_err err = open_models(&self->models, self->spec) ? list_ranks(all, self, shape) : BP_OK;

    return err == BP_ERR_SYSTEM ? err : BP_OK;
}

bp_err bp_work_memory_check(MPI_Comm world, const bp_mesh_shape *shape, const bp_work_memory *spec,
                            bool *alone_fits)
{
    bool alone = spec->plan && bp_comm_size(world) == 1, root = bp_comm_is_root(world);
    estimate self = {.spec = spec};
    bp_rank_memory *all = NULL;
    bp_node_memory node;
    bp_err err = bp_agree(world, root && spec->model ? estimate_all(&all, &self, shape) : BP_OK);

    if (alone_fits)
        *alone_fits = true;
    if (err == BP_OK && bp_all_max_int(all != NULL, world) != 0) {
        if (alone)
            bp_node_memory_plan(&node, spec->config, all, bp_mesh_shape_ranks(shape),
                                spec->plan->nodes);
        else
            bp_node_memory_find(&node, world, spec->config, all);
        err = bp_agree(world, root ? check_node(&node, &self, shape) : BP_OK);
        if (err == BP_OK && alone && alone_fits)
            *alone_fits = !lacks_alone(&self);
    }
    bp_free(all);
    clear_models(&self.models);
    return err;
}
