/* search.method=differentiable: a trial is the cell derived from a mixed cell, whose architecture
 * weights are trained by gradients together with its other weights. Each trial is one such
 * training, with its own seed. All computing ranks are its data ranks. Source: Liu, Simonyan and
 * Yang 2019, DARTS: Differentiable Architecture Search. */
#include "search/nas.h"

#include "base/config/run_options.h"
#include "base/log.h"
#include "mesh/collective.h"
#include "models/recurrent/recurrent.h"
#include "train/loop/pretrain.h"
#include "train/loop/trainer.h"
#include "train/loop/validation.h"
#include "train/parts/architecture.h"
#include "train/parts/list.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define GRADIENTS_FIRST  2 /* of a step: of the architecture, of the weights */
#define GRADIENTS_SECOND 5 /* and of the step between, and on both sides */

typedef struct nas_cell_keys {
    int64_t nodes;
} nas_cell_keys;

const bp_option nas_differentiable_options[] = {
    {BP_INT_KEY("search.nodes", "8", 1, BP_CELL_NODES), .unit = "nodes",
     .help = "of the cells that differentiable finds", .at = BP_AT(nas_cell_keys, nodes)},
    {.key = NULL}};

static int64_t nodes_of(const bp_config *config)
{
    return ((const nas_cell_keys *)bp_config_bound(config, nas_differentiable_options))->nodes;
}

static void check(bp_config *config)
{
    const char *kind = bp_model_keys_of(config)->kind;

    if (bp_model_family_find(kind) != &bp_cell_family)
        bp_config_fault(config, "search.no_cell",
                        "search.method = differentiable finds recurrent cells, and model.kind = %s "
                        "has none: at model.kind; set it to cell",
                        kind);
    if (bp_nas_keys_of(config)->space)
        bp_config_fault(config, "search.cell_space",
                        "search.method = differentiable finds model.cell, and takes no other keys: "
                        "at search.space; leave it out");
    if (bp_mesh_keys_of(config)->micro_batch < 2)
        bp_config_fault(config, "search.one_sequence",
                        "a mixed cell normalises over the sequences of a micro-batch, and "
                        "mesh.micro_batch = 1: at mesh.micro_batch; set it to 2 or more");
}

/* The result of a training. Plain data: sent as bytes. */
typedef struct found_cell {
    char cell[BP_CELL_TEXT];
    double loss, flops;
} found_cell;

static bp_err use(trainer *trained, void *context)
{
    found_cell *out = context;
    double weights[BP_CELL_MIX];
    int64_t order = bp_architecture_order(trained);
    double tokens =
        (double)(trained->spec.rate.steps * trained->spec.batch * trained->shape.context);
    validation valid;
    bp_err err = bp_trainer_validate(trained, &valid);

    bp_architecture_cell(trained, weights, out->cell);
    out->loss = err == BP_OK && isfinite(valid.loss) ? valid.loss : INFINITY;
    out->flops = tokens * bp_model_train_flops(&trained->shape) *
                 (order == 2 ? GRADIENTS_SECOND : GRADIENTS_FIRST);
    return err;
}

static bp_err config_of(const nas *self, int64_t k, bp_config **out)
{
    char settings[NAS_SETTINGS], folder[32];
    bp_err err;

    (void)snprintf(settings, sizeof settings,
                   "run.seed=%" PRId64 " model.cell=mixed:%" PRId64 " model.layers=1",
                   bp_run_keys_of(self->config)->seed + k, nodes_of(self->config));
    (void)snprintf(folder, sizeof folder, "cells/c%04" PRId64, k);
    err = nas_training_config(self,
                              &(nas_training){.settings = settings,
                                              .folder = folder,
                                              .steps = bp_nas_keys_of(self->config)->shared_steps},
                              out);
    if (err == BP_OK)
        err = bp_config_set_int(*out, "mesh.data", (int64_t)self->shape.members * self->shape.data);
    if (err != BP_OK)
        bp_config_free(out);
    return err;
}

/* The job around it writes the page. */
static bp_err on_started(void *context, int64_t step)
{
    (void)context;
    (void)step;
    return BP_OK;
}

/* All cells with this many nodes have the same size: if search.limit excludes it, nothing is
 * searched. */
static bp_err check_size(const nas *self)
{
    char settings[NAS_SETTINGS] = "model.cell=identity:0";
    bp_model_shape shape;
    bp_err err;

    for (int64_t k = 1; k < nodes_of(self->config); k++)
        strcat(settings, ",identity:0");
    err = nas_shape(self, settings, &shape);
    if (err == BP_OK && !nas_limit_takes(&self->limit, bp_model_parameters(&shape)))
        err = BP_FAIL(BP_ERR_CONFIG, "search.no_model",
                      "a cell of %" PRId64 " nodes has %" PRId64
                      " parameters, more than search.limit = %s takes: at search.limit; change it, "
                      "search.nodes or model.width",
                      nodes_of(self->config), bp_model_parameters(&shape),
                      bp_nas_keys_of(self->config)->limit);
    return err;
}

/* The trainings differ in their seeds. */
static bp_err first_config(const nas *self, bp_config **out)
{
    bp_err err = check_size(self);

    return err == BP_OK ? config_of(self, 0, out) : err;
}

/* Each node has an operation other than none, and reads an earlier node. */
static double models(const nas *self)
{
    double count = 1;

    for (int64_t k = 1; k <= nodes_of(self->config); k++)
        count *= (double)(k * (BP_NODE_OPERATIONS - 1));
    return count;
}

/* On the ranks that compute. */
static bp_err train(const nas *self, int64_t k, found_cell *out)
{
    const bp_pretrain_hooks hooks = {.started = on_started};
    MPI_Comm compute = self->mesh->compute;
    bp_config *config = NULL;
    char name[32];
    bp_err err = bp_agree(compute, config_of(self, k, &config));

    (void)snprintf(name, sizeof name, "c%04" PRId64, k);
    bp_log_set_member(name, bp_comm_is_root(compute));
    (void)bp_log_use(BP_LOG_MEMBER);
    if (err == BP_OK)
        err = bp_pretrain(compute, config, bp_training_parts, &hooks);
    if (err == BP_OK)
        err = bp_pretrain_use(compute, config, bp_training_parts, use, out);
    (void)bp_log_use(BP_LOG_JOB);
    bp_config_free(&config);
    return err == BP_OK || err == BP_ERR_STOPPED ? err : bp_err_prefix(err, "%s", name);
}

/* Trainings may find the same cell: the better score counts. A trial of an earlier start already
 * has its score, which is the same. */
static bp_err take(nas *self, int64_t k, const found_cell *of)
{
    char settings[NAS_SETTINGS];
    int64_t at;
    bool admitted = false;
    bp_err err = BP_OK;

    (void)snprintf(settings, sizeof settings, "model.cell=%s", of->cell);
    self->shared_flops += of->flops;
    at = nas_find(self, settings);
    if (at < 0)
        err = nas_admit(self, settings, &admitted);
    if (at < 0 && err == BP_OK && admitted) {
        err = nas_propose(self, settings);
        at = self->count - 1;
    }
    if (err != BP_OK || at < 0)
        return err;
    if (!(self->trials[at].score <= of->loss))
        self->trials[at].score = of->loss;
    if (self->mesh->coordinates)
        bp_log("cell %" PRId64 ": %.4f nats a token before it is cut out: %s", k, of->loss,
               settings);
    return nas_keep(self);
}

static bp_err run(nas *self)
{
    const bp_mesh *mesh = self->mesh;
    bp_err err = BP_OK;

    for (int64_t k = 0; k < nas_wanted(self) && err == BP_OK; k++) {
        found_cell one = {.loss = INFINITY};

        nas_begin(self, "training mixed cells (search/cells)");
        if (mesh->computes)
            err = train(self, k, &one);
        bp_barrier_asleep("barrier", mesh->world);
        err = bp_agree(mesh->world, err);
        bp_bcast_bytes(&one, sizeof one, mesh->dedicated ? 1 : 0, mesh->world);
        if (err == BP_OK)
            err = take(self, k, &one);
    }
    if (err == BP_OK && self->count == 0)
        err = BP_FAIL(BP_ERR_CONFIG, "search.no_model",
                      "no cell that was found is within search.limit: at search.limit; change it");
    return nas_keep_after(self, err);
}

const nas_method nas_differentiable = {.name = "differentiable",
                                       .free_space = true,
                                       .check = check,
                                       .run = run,
                                       .training = first_config,
                                       .models = models};
