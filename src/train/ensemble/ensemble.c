/* The training of an ensemble from end to end. Called by jobs/ensemble.c and jobs/requeue.c. */
#include "train/ensemble/ensemble_priv.h"

#include "base/config/run_options.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/corpus.h"
#include "infer/score/tables/summary.h"
#include "io/checkpoint/ensemble_file.h"
#include "job/report/training.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"
#include "run/stop_request.h"
#include "train/ensemble/ensemble.h"
#include "train/loop/groups.h"
#include "train/loop/start/corpora.h"
#include "train/loop/start/duration.h"
#include "train/loop/start/run_identity.h"
#include "train/parts/list.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- the corpus ---- */

/* The facts of the corpora, found by one rank before any compute; the ranks that train open them
 * again. */
static bp_err look_at_corpus(const ensemble *self, corpus_facts *facts)
{
    const char *valid = bp_corpus_keys_of(self->config)->valid;
    bp_corpus *corpus = NULL, *validation = NULL;
    bp_err err = bp_corpus_open(&corpus, bp_corpus_keys_of(self->config)->train);

    if (err == BP_OK) {
        snprintf(facts->hash, sizeof facts->hash, "%s", bp_corpus_hash(corpus));
        facts->vocab_size = bp_corpus_vocab_size(corpus);
        facts->tokens = bp_corpus_tokens(corpus);
        facts->mixed_files =
            bp_config_is_set(self->config, "corpus.weights") ? bp_corpus_files(corpus) : 0;
    }
    if (err == BP_OK && self->bags)
        err = bp_trainer_check_bag(corpus, bp_corpus_keys_of(self->config)->cluster);
    if (err == BP_OK)
        err = ensemble_check_bags(self, corpus);
    if (err == BP_OK && self->bags) { /* and not when a member is trained */
        err = bp_score_check_names(corpus);
        err = err == BP_OK ? err : bp_err_prefix(err, "out-of-bag scores");
    }
    if (err == BP_OK && valid && self->mesh)
        err = bp_corpus_open(&validation, valid);
    bp_corpus_close(&validation);
    bp_corpus_close(&corpus);
    return err;
}

/* ---- a single member ---- */

static bp_err alone_started(void *context, int64_t step)
{
    const ensemble *self = context;
    bp_err err = bp_ensemble_list_remove(bp_run_keys_of(self->config)->dir);

    (void)step;
    if (err == BP_OK)
        err = ensemble_member_forget_scores(self, bp_ensemble_keys_of(self->config)->only);
    return err;
}

static bp_err run_one(ensemble *self, MPI_Comm world)
{
    bp_pretrain_hooks hooks = {.context = self, .started = alone_started};
    int64_t member = bp_ensemble_keys_of(self->config)->only;
    corpus_facts facts;
    double oob;
    bp_stop_request *stop_request = NULL; /* the member's own run checks its folder */
    bp_err err = bp_comm_is_root(world) ? look_at_corpus(self, &facts) : BP_OK;

    if (err == BP_OK && bp_comm_is_root(world)) {
        err = bp_stop_request_check(bp_run_keys_of(self->config)->dir);
        if (err == BP_OK)
            stop_request = bp_stop_request_new(bp_run_keys_of(self->config)->dir, self->config);
    }
    err = bp_agree(world, err);
    if (err == BP_OK)
        err = ensemble_member_run(self, world, member, &hooks, &oob);
    bp_stop_request_free(&stop_request);
    if (err == BP_OK)
        bp_log("the member is trained; the same command without ensemble.only gathers all");
    return err;
}

/* ---- all of them ---- */

/* Members' folders are named by how many there are: "m00", or "m000" where there are over 100. */
static bp_err check_names(const ensemble *self)
{
    char *before = NULL, now[ENSEMBLE_NAME_BYTES], then[ENSEMBLE_NAME_BYTES];
    ensemble known = *self;
    bp_err err = bp_run_previous(self->mesh->world, bp_run_keys_of(self->config)->dir,
                                 "ensemble.members", &before);

    if (err != BP_OK || !before)
        return err;
    if (sscanf(before, "%" SCNd64, &known.members) == 1) {
        ensemble_name(self, 0, now);
        ensemble_name(&known, 0, then);
        if (strcmp(now, then) != 0)
            err = BP_FAIL(BP_ERR_CONFIG, "ensemble.other_count",
                          "ensemble.members is %" PRId64 ", but the run began with %s, and its "
                          "members have names like %s, not %s: at %s; use another run.dir",
                          self->members, before, then, now, bp_run_keys_of(self->config)->dir);
    }
    bp_free(before);
    return err;
}

static bool is_trained(const ensemble *self)
{
    for (int64_t k = 0; k < self->members; k++)
        if (!ensemble_member_is_whole(self, k))
            return false;
    return true;
}

#define RESULTS 2

static const char *const NAMES[RESULTS] = {"ensemble.json", "metrics.jsonl"};

static const char *find_missing(const void *context)
{
    const ensemble *self = context;
    const char *name = bp_run_first_missing(bp_run_keys_of(self->config)->dir, NAMES, RESULTS);

    return name == NULL && !is_trained(self) ? "a part of a member" : name;
}

static bp_err open_run(ensemble *self)
{
    static const char *const OTHER_BITS[] = {"mesh.*", "math.threads", NULL};
    const bp_mesh_shape *shape = &self->shape;
    corpus_facts facts = {0};
    const char *may_change[TRAINER_MAY_CHANGE];
    bp_run_identity identities[] = {{"corpus.train", facts.hash},
                                    {"tokenizer.path", ""}, /* the members compare them */
                                    {"model.init", ""},
                                    {NULL, NULL}};
    bp_run_spec spec = {.job = "ensemble",
                        .trains = true,
                        .may_change = may_change,
                        .other_bits = OTHER_BITS,
                        .keeps_bits = bp_trainer_keeps_bits,
                        .identities = identities,
                        .missing = find_missing,
                        .context = self};
    bp_err err = check_names(self);
    json_t *extra;

    bp_trainer_may_change(may_change, bp_training_parts);
    if (err == BP_OK)
        err = bp_agree(self->mesh->world,
                       self->mesh->coordinates ? look_at_corpus(self, &facts) : BP_OK);
    if (err == BP_OK)
        err = ensemble_find_steps(self);
    if (err == BP_OK)
        err = ensemble_check_memory(self, &facts);
    if (err != BP_OK)
        return err;
    extra = json_pack("{s:{s:i, s:i, s:i, s:i}, s:I}", "mesh", "members", shape->members,
                      "pipeline", shape->pipeline, "data", shape->data, "tensor", shape->tensor,
                      "steps", (json_int_t)self->steps);
    spec.extra = extra;
    err = bp_run_open(&self->run, self->mesh, self->config, &spec);
    json_decref(extra);
    return err;
}

static bp_err say_start(const ensemble *self)
{
    json_t *members = json_pack("{s:I}", "members", (json_int_t)self->members);
    bp_rate rate = bp_engine_spec_of(self->config).rate;
    int64_t step = ensemble_farthest(self);
    bp_err err =
        bp_run_event(self->run, bp_run_is_resumed(self->run) ? "resumed" : "started", members);

    json_decref(members);
    bp_log("an ensemble of %" PRId64 " members (%s), %d at a time on %d rank%s each", self->members,
           bp_ensemble_keys_of(self->config)->kind, self->shape.members, self->mesh->tensor_ranks,
           self->mesh->tensor_ranks == 1 ? "" : "s");
    if (bp_model_keys_of(self->config)->init)
        bp_log("all members start from the weights of %s: they differ in %s, and not in "
               "pretraining",
               bp_model_keys_of(self->config)->init,
               !self->reseeds ? "their bags"
               : self->bags   ? "their bags, the order and what is new in the model"
                              : "the order and what is new in the model, such as a head");
    rate.steps = self->steps;
    bp_trainer_say_stretch(&rate, step > 0 ? step : 0, bp_run_steps_before(self->run));
    return err;
}

static bp_err train_members(ensemble *self)
{
    const bp_mesh *mesh = self->mesh;
    ensemble_scheduler *scheduler = NULL;
    bp_err err = bp_agree(mesh->world, mesh->coordinates ? say_start(self) : BP_OK);

    if (mesh->coordinates && !is_trained(self))
        bp_run_take_changes(self->run);
    if (err == BP_OK)
        err = ensemble_scheduler_new(&scheduler, self);
    if (err == BP_OK) {
        err = ensemble_scheduler_run(scheduler);
        err = bp_agree(mesh->world,
                       mesh->coordinates ? ensemble_scheduler_conclude(scheduler, err) : err);
    }
    ensemble_scheduler_free(&scheduler);
    return err;
}

static bp_err run_all(ensemble *self, MPI_Comm world)
{
    bp_err err = bp_groups_open(&self->mesh, &self->shape, self->config, world);

    if (err == BP_OK)
        err = open_run(self);
    if (err == BP_OK) {
        const char *run_dir = bp_run_keys_of(self->config)->dir;
        bool listed = self->mesh->coordinates && bp_ensemble_is(run_dir) && is_trained(self);
        bool whole =
            bp_run_is_finished(self->run) && bp_all_max_int(listed, self->mesh->world) != 0;

        if (whole)
            bp_log("the ensemble is finished: %s", run_dir);
        for (int64_t k = 0; whole && self->mesh->coordinates && k < self->members; k++)
            ensemble_metrics_look(self, k);
        if (!whole)
            err = train_members(self);
        for (int k = 0; err == BP_OK && k < RESULTS; k++)
            bp_run_add_result(self->run, NAMES[k]);
        err = bp_run_end(self->run, err);
        if (err == BP_OK && self->mesh->coordinates && !ensemble_counts(self->config))
            bp_training_keep_page(run_dir, !whole);
        err = bp_run_close(&self->run, err);
    }
    bp_mesh_free(&self->mesh);
    return err;
}

char *bp_ensemble_folder(const bp_config *config)
{
    ensemble self = {.config = (bp_config *)config, /* only read */
                     .members = bp_ensemble_keys_of(config)->members};

    if (!bp_config_is_set(config, "ensemble.only"))
        return bp_strdup(bp_run_keys_of(config)->dir);
    return ensemble_member_path(&self, bp_ensemble_keys_of(config)->only, "");
}

bp_err bp_ensemble(MPI_Comm world, bp_config *config, const bp_ensemble_jobs *jobs)
{
    ensemble self;
    bp_err err = BP_OK;

    ensemble_fill(&self, config, jobs);
    if (bp_config_is_set(config, "ensemble.only"))
        return run_one(&self, world);
    err = bp_groups_resolve_machine(world, config, NULL);
    return err == BP_OK ? run_all(&self, world) : err;
}
