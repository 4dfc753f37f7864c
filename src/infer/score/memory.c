/* What scoring takes on each rank, from manifests alone: compared with the node before anything
 * is loaded, and printed by --plan. */
#include "infer/score/memory.h"

#include "base/buffer.h"
#include "base/fs.h"
#include "base/mem.h"
#include "infer/neighbours/datastore.h"
#include "infer/score/keys.h"
#include "infer/score/states_priv.h"
#include "infer/score/unit.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/ensemble_file.h"
#include "mesh/collective.h"
#include "mesh/mesh_search.h"
#include "models/open.h"

#include <stdio.h>
#include <string.h>

#define LIBRARIES_BYTES ((int64_t)20 << 20) /* as in training: src/train/engine/plan.c */
#define REMEDY_BYTES    256

/* The models, as their manifests have them. */
typedef struct models {
    const bp_score_memory_spec *spec;
    bool ensemble;
    json_t **states; /* [count] of manifests */
    int64_t count;
    int64_t members;       /* of the ensemble: the models, or those drawn from one; else 1 */
    const bp_draws *draws; /* NULL: none */
} models;

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

static void open_models(models *self, bool *known)
{
    const bp_ensemble_spec *method = self->spec->method;
    const char *path = method ? method->path : bp_score_keys_of(self->spec->config)->model;
    bp_ensemble_list list = {0};

    if (bp_ensemble_is(path))
        *known = bp_ensemble_list_load(&list, path) == BP_OK;
    self->draws = method ? method->draws : NULL;
    bool differ = self->draws && self->draws->ops->kind == BP_DRAWS_OF_WEIGHTS;
    self->count = list.count > 0 ? list.count : differ ? self->draws->count : 1;
    self->states = bp_alloc("score.memory", self->count, sizeof(json_t *));
    for (int64_t k = 0; k < self->count && *known; k++)
        *known = read_state(&self->states[k], list.count > 0 ? list.members[k].path : path);
    self->ensemble = method || list.count > 0;
    self->members = self->draws ? self->draws->count : self->count;
    bp_ensemble_list_clear(&list);
}

/* ---- ranks ---- */

static int64_t most_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Inputs that are computed at once of a window: of what was asked for, else of the least of the
 * models' contexts. */
static int64_t find_inputs(const models *self)
{
    int64_t least = BP_MODEL_UNLIMITED, asked = bp_score_rule_keys_of(self->spec->config)->context;

    for (int64_t k = 0; k < self->count; k++) {
        int64_t context = bp_model_state_context(self->states[k]);

        least = context < least ? context : least;
    }
    bool unlimited = least == BP_MODEL_UNLIMITED;
    if (asked > 0)
        least = asked;
    if (unlimited && least > BP_SCORE_PIECE_INPUTS)
        least = BP_SCORE_PIECE_INPUTS;
    return most_of(least, 1);
}

/* Of a datastore, by the size of its file; of a job without one nothing. */
static int64_t neighbours_bytes(const models *self, const bp_model_memory *model,
                                const bp_model_task *task)
{
    const bp_score_keys *keys = bp_score_keys_of(self->spec->config);
    int64_t bytes = keys && keys->neighbours ? bp_file_size(keys->neighbours) : 0;

    return bytes <= 0 || model->width <= 0
               ? 0
               : bp_datastore_bytes(bytes, model->width, task->mesh->tensor * task->mesh->pipeline,
                                    keys->neighbours_memory, task->windows * task->length,
                                    keys->nearest);
}

/* Of score.states, which come after the scores; of a job without them nothing. */
static int64_t kept_bytes(const models *self, int64_t inputs, int64_t statistics)
{
    const bp_score_keys *keys = bp_score_keys_of(self->spec->config);
    bp_state_form form =
        keys && keys->states ? bp_model_state_form_of(self->states[0]) : (bp_state_form){0};

    return form.layers > 0 ? states_bytes(self->spec->config, &form, inputs, statistics,
                                          bp_model_state_context(self->states[0]))
                           : 0;
}

/* Of a token, as bp_model_info.statistics. */
static int64_t count_statistics(const models *self)
{
    const bp_score_keys *keys = bp_score_keys_of(self->spec->config);

    return self->ensemble ? 9 + self->members : keys && keys->neighbours ? 2 : 1;
}

/* What a rank of one stage and one member of the mesh takes. */
static bp_err estimate_rank(const models *self, const bp_model_task *task, int member,
                            bp_rank_memory *out)
{
    const bp_mesh_shape *mesh = task->mesh;
    int64_t tokens = task->windows * task->length, work = 0;
    int64_t memory = bp_score_rule_keys_of(self->spec->config)->memory;
    bool last = task->stage == mesh->pipeline - 1;
    bp_model_memory one = {0}, widest = {0};
    bp_err err = BP_OK;

    *out = (bp_rank_memory){.own_bytes = (int64_t)bp_mem_resident_peak_bytes() + LIBRARIES_BYTES +
                                         self->spec->more_bytes};
    for (int64_t k = 0; k < self->count && err == BP_OK; k++) {
        /* members and models of one shape follow one another: they are estimated once */
        if (k == 0 || !json_equal(json_object_get(self->states[k], "model"),
                                  json_object_get(self->states[k - 1], "model")))
            err = bp_model_estimate(&one, self->states[k], self->spec->config, task);
        if (self->count > 1 ? k % mesh->members == member : member < self->members)
            out->own_bytes += one.weights_bytes; /* the model lies on ranks of this member */
        out->node_bytes += one.node_bytes;
        work = most_of(work, one.work_bytes);
        widest = one.width > widest.width ? one : widest;
    }
    if (err != BP_OK)
        return err;
    work += neighbours_bytes(self, &widest, task);
    if (last && self->draws && self->draws->ops->bytes)
        out->own_bytes += self->draws->ops->bytes(self->draws, &widest, mesh);
    if (last && self->ensemble)
        work += bp_ensemble_work_bytes(&widest, mesh, self->members, tokens, memory);
    out->own_bytes += work;
    return BP_OK;
}

/* (*out)[ranks] of a job of this mesh. */
static bp_err list_ranks(bp_rank_memory **out, const models *self, const bp_mesh_shape *mesh)
{
    int ranks = bp_mesh_shape_ranks(mesh),
        dedicated = mesh->coordinator == BP_COORDINATOR_DEDICATED;
    int64_t inputs = find_inputs(self), statistics = count_statistics(self);
    bp_model_task task = {.mesh = mesh, .length = inputs};
    bp_rank_memory *all = bp_alloc("score.memory", ranks, sizeof *all);
    bp_err err = BP_OK;

    task.windows = bp_score_batch_windows(inputs);
    if (dedicated)
        all[0].own_bytes = (int64_t)bp_mem_resident_peak_bytes();
    for (int r = dedicated; r < ranks && err == BP_OK; r++) {
        int at = (r - dedicated) / mesh->tensor, member = at / mesh->data / mesh->pipeline;

        task.stage = at / mesh->data % mesh->pipeline;
        if (at % mesh->data == 0 && (r - dedicated) % mesh->tensor == 0)
            err = estimate_rank(self, &task, member, &all[r]);
        else /* the same as the first of its stage */
            all[r] = all[r - 1];
    }
    /* any of those that compute may lead, and the coordinator writes states */
    for (int r = 0; r < ranks && err == BP_OK; r++)
        all[r].own_bytes += (r < dedicated ? 0 : (int64_t)bp_score_unit_bytes(inputs, statistics)) +
                            kept_bytes(self, inputs, statistics);
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
                                   .members_most = self->ensemble ? (int)self->members : 1,
                                   .config = self->spec->config,
                                   .fits = mesh_fits,
                                   .context = &s};
    bp_buffer text = {0};

    if (self->spec->plan)
        bp_node_memory_print(node);
    bool found = bp_node_memory_lacks(node) &&
                 (bp_mesh_search_near(&text, &meshes) || bp_mesh_search_nodes(&text, &meshes));
    bp_err err = bp_node_memory_check(node, found ? text.data : "use a smaller model");

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
        bp_node_memory_plan(&node, self->spec->config, all, 1, 1);
        lacks = bp_node_memory_lacks(&node);
    }
    bp_free(all);
    return lacks;
}

bp_err bp_score_memory_check(MPI_Comm world, const bp_mesh_shape *shape,
                             const bp_score_memory_spec *spec, bool *alone_fits)
{
    bool alone = spec->plan && bp_comm_size(world) == 1, root = bp_comm_is_root(world);
    models self = {.spec = spec};
    bp_rank_memory *all = NULL; /* where it can't be said, too */
    bp_node_memory node;
    bool known = true;
    bp_err err = BP_OK;

    if (root)
        open_models(&self, &known);
    if (root && known)
        err = list_ranks(&all, &self, shape);
    err = bp_agree(world, err == BP_ERR_SYSTEM ? err : BP_OK);
    if (alone_fits)
        *alone_fits = true;
    if (err == BP_OK && bp_all_max_int(all != NULL, world) != 0) {
        if (alone)
            bp_node_memory_plan(&node, spec->config, all, bp_mesh_shape_ranks(shape),
                                spec->plan->nodes);
        else
            bp_node_memory_find(&node, world, spec->config, all);
        err = bp_agree(world, root ? judge(&node, &self, shape) : BP_OK);
        if (err == BP_OK && alone && alone_fits)
            *alone_fits = !lacks_alone(&self);
    }
    bp_free(all);
    for (int64_t k = 0; k < self.count; k++)
        json_decref(self.states[k]);
    bp_free(self.states);
    return err;
}
