/* A search from end to end. Called by jobs/search.c. */
#include "search/search.h"

#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/corpus.h"
#include "job/report/report.h"
#include "mesh/collective.h"
#include "search/methods/propose.h"
#include "search/methods/shared.h"
#include "train/loop/groups.h"
#include "train/loop/pretrain.h"
#include "train/loop/start/run_identity.h"
#include "train/parts/list.h"

#include <inttypes.h>

static bp_err look_at_corpora(nas *self)
{
    bp_corpus *corpus = NULL, *valid = NULL;
    bp_err err = bp_corpus_open(&corpus, bp_corpus_keys_of(self->config)->train);

    if (err == BP_OK)
        err = bp_corpus_open(&valid, bp_corpus_keys_of(self->config)->valid);
    if (err == BP_OK) {
        self->vocab_size = bp_corpus_vocab_size(corpus);
        snprintf(self->corpus_hash, sizeof self->corpus_hash, "%s", bp_corpus_hash(corpus));
        snprintf(self->valid_hash, sizeof self->valid_hash, "%s", bp_corpus_hash(valid));
    }
    bp_corpus_close(&valid);
    bp_corpus_close(&corpus);
    return err;
}

static bp_err share_corpora(nas *self, MPI_Comm world)
{
    bp_err err = bp_agree(world, bp_comm_is_root(world) ? look_at_corpora(self) : BP_OK);

    if (err != BP_OK)
        return err;
    bp_bcast_bytes(&self->vocab_size, sizeof self->vocab_size, 0, world);
    bp_bcast_bytes(self->corpus_hash, sizeof self->corpus_hash, 0, world);
    bp_bcast_bytes(self->valid_hash, sizeof self->valid_hash, 0, world);
    return BP_OK;
}

static bp_err fill(nas *self, bp_config *config, const bp_nas_jobs *jobs)
{
    const bp_nas_keys *keys = bp_nas_keys_of(config);
    bp_err err;

    *self = (nas){.config = config,
                  .jobs = jobs,
                  .method = nas_method_of(config),
                  .shape = bp_mesh_shape_of(config)};
    err = nas_space_read(&self->space, keys->space);
    if (err == BP_OK)
        err = nas_limit_read(&self->limit, keys->limit);
    return err;
}

static void clear(nas *self)
{
    bp_free(self->trials);
    json_decref(self->known);
    json_decref(self->speeds);
    bp_mesh_free(&self->mesh);
}

static const char *find_missing(const void *context)
{
    const nas *self = context;
    char *folder = nas_path(self, "");
    size_t count = 0;

    while (nas_result_names[count])
        count++;
    const char *name = bp_run_first_missing(folder, nas_result_names, count);
    if (!name && bp_report_has_page("search"))
        name = bp_run_first_missing(folder, (const char *[]){"index.html"}, 1);
    bp_free(folder);
    return name;
}

static bp_err open_run(nas *self)
{
    static const char *const OTHER_BITS[] = {"mesh.*", "math.threads", NULL};
    static const char *const MAY_CHANGE[] = {
        "run.dir",          "train.log_every",    "checkpoint.every",  "checkpoint.keep",
        "checkpoint.async", "train.digest_every", "train.tensorboard", NULL};
    const bp_run_identity identities[] = {{"corpus.train", self->corpus_hash},
                                          {"corpus.valid", self->valid_hash},
                                          {"tokenizer.path", ""},
                                          {"model.init", ""},
                                          {NULL, NULL}};
    const bp_run_spec spec = {.job = "search",
                              .may_change = MAY_CHANGE,
                              .other_bits = OTHER_BITS,
                              .keeps_bits = bp_trainer_keeps_bits,
                              .identities = identities,
                              .missing = find_missing,
                              .context = self};

    return bp_run_open(&self->run, self->mesh, self->config, &spec);
}

static bp_err make_folder(const nas *self)
{
    char *folder = nas_path(self, "");
    bp_err err = self->mesh->coordinates ? bp_dir_make(folder) : BP_OK;

    bp_free(folder);
    return bp_agree(self->mesh->world, err);
}

static bp_err search(nas *self)
{
    bp_err err = make_folder(self);

    if (self->mesh->coordinates)
        bp_run_take_changes(self->run);
    if (err == BP_OK)
        err = nas_recall(self);
    if (err == BP_OK)
        err = self->method->run(self);
    if (err == BP_OK)
        err = nas_train_finals(self);
    return err == BP_OK ? bp_agree(self->mesh->world,
                                   self->mesh->coordinates ? nas_write_results(self) : BP_OK)
                        : err;
}

static bp_err run(nas *self)
{
    bp_err err = open_run(self);

    if (err != BP_OK)
        return err;
    if (bp_run_is_finished(self->run))
        bp_log("the search is finished: %s", bp_run_keys_of(self->config)->dir);
    else
        err = search(self);
    for (int k = 0; err == BP_OK && nas_result_names[k]; k++)
        bp_run_add_result(self->run, bp_path_in("search", nas_result_names[k]).text);
    err = bp_run_end(self->run, err);
    return bp_run_close(&self->run, err);
}

/* The training that all ranks do together first; *out is NULL if there is none. */
static bp_err common_training(const nas *self, bp_config **out,
                              const bp_training_part *parts[TRAINING_PARTS_MAX + 1])
{
    *out = NULL;
    for (int k = 0; k == 0 || parts[k - 1]; k++)
        parts[k] = bp_training_parts[k];
    if (self->method->training)
        return self->method->training(self, out);
    if (!self->method->shares && !bp_nas_keys_of(self->config)->shared)
        return BP_OK;
    nas_shared_parts(parts);
    return nas_shared_config(self, out);
}

static bp_err check_training(bp_config *config, const bp_training_part *const *parts)
{
    (void)bp_pretrain_check_model(config, parts);
    return bp_config_faults(config);
}

/* Rejects a mesh that trainings would reject, before there is a run folder. */
static bp_err check_trainings(const nas *self)
{
    const bp_training_part *parts[TRAINING_PARTS_MAX + 1];
    bp_config *common = NULL, *alone = NULL;
    bp_err err = common_training(self, &common, parts);

    if (err == BP_OK && common)
        err = check_training(common, parts);
    if (err == BP_OK)
        err = nas_training_config(self, &(nas_training){.settings = "", .folder = ""}, &alone);
    if (err == BP_OK)
        err = check_training(alone, bp_training_parts);
    bp_config_free(&alone);
    bp_config_free(&common);
    return err;
}

/* Opens the largest model's training on one rank, for the mesh of a group. */
static bp_err open_largest(const nas *self, trainer *one, bp_config **config, int nodes)
{
    nas_point largest = nas_space_largest(&self->space);
    char settings[NAS_SETTINGS];
    bp_err err;

    BP_CHECK(nas_space_text(settings, sizeof settings, &self->space, &largest));
    err = nas_training_config(self, &(nas_training){.settings = settings, .folder = "trials/t0000"},
                              config);
    return err == BP_OK ? bp_groups_represent(one, bp_training_parts, *config, &self->shape, nodes)
                        : err;
}

/* Trainings from scratch. */
static bp_groups_trainings trainings_of(const nas *self)
{
    const bp_nas_keys *keys = bp_nas_keys_of(self->config);
    bool shares = self->method->shares || self->method->training || keys->shared;

    return (bp_groups_trainings){self->config, &self->shape, "training",
                                 shares ? keys->final : keys->trials};
}

/* Each training checks only its own group's memory; this checks all groups. */
static bp_err check_groups(const nas *self)
{
    const bp_groups_trainings all = trainings_of(self);
    MPI_Comm world = self->mesh->world;
    bp_config *config = NULL;
    trainer one = {0};
    bp_err err = BP_OK;

    if (self->shape.members == 1 || all.count == 0 ||
        !bp_run_has_work(world, bp_run_keys_of(self->config)->dir))
        return BP_OK;
    if (bp_comm_is_root(world))
        err = open_largest(self, &one, &config, 1);
    err = bp_agree(world, err);
    if (err == BP_OK)
        err = bp_groups_check_memory(world, &one, &all);
    bp_trainer_close(&one);
    bp_config_free(&config);
    return err;
}

bp_err bp_nas(MPI_Comm world, bp_config *config, const bp_nas_jobs *jobs)
{
    nas *self = bp_alloc("search", 1, sizeof *self);
    bp_err err = fill(self, config, jobs);

    if (err == BP_OK)
        err = bp_groups_resolve_machine(world, config, NULL);
    if (err == BP_OK)
        err = share_corpora(self, world);
    if (err == BP_OK)
        err = bp_groups_open(&self->mesh, &self->shape, config, world);
    if (err == BP_OK && !self->method->free_space)
        err = bp_agree(world, nas_check_models(self));
    if (err == BP_OK && (self->method->shares || bp_nas_keys_of(config)->shared))
        err = bp_agree(world, nas_elastic_check(self));
    if (err == BP_OK)
        err = bp_agree(world, check_trainings(self));
    if (err == BP_OK)
        err = check_groups(self);
    if (err == BP_OK)
        err = run(self);
    clear(self);
    bp_free(self);
    return err;
}

/* ---- the plan ---- */

/* A model with the smallest or the largest number on each axis, measured on this machine. */
static bp_err say_speed(const nas *self, bool largest)
{
    char settings[NAS_SETTINGS];
    nas_point point = largest ? nas_space_largest(&self->space) : nas_space_smallest(&self->space);
    bp_model_shape shape;
    double speed;
    bp_err err;

    BP_CHECK(nas_space_text(settings, sizeof settings, &self->space, &point));
    if (nas_shape(self, settings, &shape) != BP_OK) /* not every point is a model */
        return BP_OK;
    err = nas_measure(self, settings, &shape, &speed);
    if (err == BP_OK)
        bp_log("the %s model: %" PRId64 " parameters, %.0f tokens a second forward on one rank of "
               "this machine (%s)",
               largest ? "largest" : "smallest", bp_model_parameters(&shape), speed, settings);
    return err;
}

static bp_err say_plan(const nas *self)
{
    const bp_nas_keys *keys = bp_nas_keys_of(self->config);
    bp_err err = BP_OK;

    bp_log("%" PRId64 " trials of %.0f models by %s, and %" PRId64 " trained from scratch",
           keys->trials, nas_models(self), keys->method, keys->final);
    for (int k = 0; k < 2 && err == BP_OK && self->space.count > 0; k++)
        err = say_speed(self, k == 1);
    return err;
}

static bp_err plan_common(const nas *self, MPI_Comm world, const bp_planned_world *asked)
{
    const bp_training_part *parts[TRAINING_PARTS_MAX + 1];
    bp_config *config = NULL;
    bp_err err = common_training(self, &config, parts);

    if (err == BP_OK && config && self->shape.coordinator == BP_COORDINATOR_DEDICATED)
        err = bp_config_set(config, "mesh.coordinator", "dedicated"); /* it has no part in it */
    err = bp_agree(world, err);
    if (err == BP_OK && config) {
        if (bp_comm_is_root(world))
            bp_log(self->method->training ? "the training of a mixed cell, on all ranks, takes for "
                                            "each trial (in time five "
                                            "times what follows, with architecture.order=1 twice):"
                                          : "the training of shared weights, on all ranks, takes:");
        err = bp_pretrain_plan(world, config, parts, asked);
    }
    bp_config_free(&config);
    return err;
}

/* The mesh of the job that is planned: its groups. */
static bp_err fit_groups(nas *self, MPI_Comm world, const bp_planned_world *asked)
{
    bp_err err = bp_agree(world, bp_comm_size(world) == 1
                                     ? bp_mesh_shape_plan(&self->shape, asked->ranks)
                                     : bp_mesh_shape_fit(&self->shape, bp_comm_size(world)));

    return err == BP_OK ? bp_config_set_int(self->config, "mesh.data", self->shape.data) : err;
}

static bp_err plan_groups(const nas *self, MPI_Comm world, const bp_planned_world *asked)
{
    const bp_groups_trainings all = trainings_of(self);
    bp_config *config = NULL;
    trainer one = {0};
    bp_err err;

    if (all.count == 0) /* search.final=0 with shared weights */
        return BP_OK;
    err = bp_agree(world, bp_comm_is_root(world) ? open_largest(self, &one, &config, asked->nodes)
                                                 : BP_OK);

    if (err == BP_OK && bp_comm_is_root(world))
        bp_log(self->space.count > 0 ? "the training of the largest takes:"
                                     : "the training of a cell that was found takes:");
    if (err == BP_OK)
        err = bp_groups_plan(world, &one, &all, asked);
    bp_trainer_close(&one);
    bp_config_free(&config);
    return err;
}

bp_err bp_nas_plan(MPI_Comm world, bp_config *config, const bp_nas_jobs *jobs,
                   const bp_planned_world *asked)
{
    nas *self = bp_alloc("search", 1, sizeof *self);
    bp_err err = fill(self, config, jobs);

    if (err == BP_OK)
        err = bp_groups_resolve_machine(world, config, asked);
    if (err == BP_OK)
        err = share_corpora(self, world);
    if (err == BP_OK)
        err = fit_groups(self, world, asked);
    if (err == BP_OK)
        err = bp_agree(world, bp_comm_is_root(world) ? say_plan(self) : BP_OK);
    if (err == BP_OK)
        err = plan_common(self, world, asked);
    if (err == BP_OK)
        err = plan_groups(self, world, asked);
    clear(self);
    bp_free(self);
    return err;
}
