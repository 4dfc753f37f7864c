/* Setup: from a configuration to a training that is ready to run. Called by pretrain.c first. */
#include "train/loop/start/setup.h"

#include "base/mem.h"
#include "base/trace.h"
#include "math/math.h"
#include "mesh/collective.h"
#include "models/network/dropconnect.h"
#include "text/tokenizer/tokenizer.h"
#include "train/loop/commit.h"
#include "train/loop/examples.h"
#include "train/loop/learning.h"
#include "train/loop/memory/memory.h"
#include "train/loop/memory/peak.h"
#include "train/loop/memory/plan_text.h"
#include "train/loop/parts.h"
#include "train/loop/start/corpora.h"
#include "train/loop/start/duration.h"
#include "train/loop/start/precision.h"
#include "train/loop/start/resume.h"

#include <string.h>

static bp_err open_mesh(trainer *self, MPI_Comm world, const bp_planned_world *plan)
{
    bool alone = plan && bp_comm_size(world) == 1;
    int members = bp_mesh_shape_of(self->config).members;
    bp_err err;

    if (members != 1)
        return BP_FAIL(
            BP_ERR_CONFIG, "mesh.one_model",
            "mesh.members = %d, but pretrain trains one model: at mesh.members; leave it at 1",
            members);
    err = bp_mesh_open(&self->mesh, &self->mesh_shape, self->config, world, plan);
    if (err == BP_OK && !alone)
        bp_math_warn_of_threads(self->mesh->world, self->mesh->computes);
    return err;
}

/* config.ini has every key as resolved: also what a 0 or "auto" became. */
static void resolve_keys(trainer *self)
{
    bp_config *config = self->config;
    bool dedicated = self->mesh_shape.coordinator == BP_COORDINATOR_DEDICATED;

    bp_model_shape_resolve(&self->shape, config);
    bp_optimizer_resolve(config);
    if (bp_config_set_int(config, "mesh.data", self->mesh_shape.data) != BP_OK ||
        bp_config_set_int(config, "math.threads", bp_math_threads()) != BP_OK ||
        bp_config_set(config, "mesh.coordinator", dedicated ? "dedicated" : "shared") != BP_OK)
        bp_config_fault_err(config);
}

/* Checks all that must fit together, and reports all faults at once. */
static bp_err check_shape(trainer *self)
{
    bp_config *config = self->config;
    bp_model_shape *shape = &self->shape;

    if (shape->vocab_size == 0)
        shape->vocab_size = self->facts.vocab_size;
    else if (shape->vocab_size < self->facts.vocab_size)
        bp_config_fault(config, "model.vocabulary_too_small",
                        "vocab_size of the corpus is %lld, more than the checkpoint's %lld: at "
                        "model.init; use its tokenizer",
                        (long long)self->facts.vocab_size, (long long)shape->vocab_size);
    bp_model_shape_check(shape, self->mesh_shape.tensor, self->mesh_shape.pipeline, config);
    if (!trainer_counts(self) && !trainer_learner(self))
        bp_engine_spec_check(&self->spec, shape, &self->mesh_shape, config);
    else
        bp_engine_check_experts(&self->spec, shape, &self->mesh_shape, config);
    if (strcmp(bp_corpus_keys_of(config)->order, "documents") == 0 && !shape->family->restarts)
        bp_config_fault(
            config, "corpus.no_restarts",
            "corpus.order = documents begins each document with the zero state, which "
            "only rnn, lstm, gru and cell do, and not %s: at corpus.order; leave it out",
            shape->family->name);
    parts_check(self);
    if (bp_model_shape_is_whole(shape))
        resolve_keys(self);
    bp_err err = bp_config_faults(config);
    if (err == BP_OK)
        err = bp_model_check_targets(shape);
    return err == BP_OK ? bp_dropconnect_check(shape, bp_train_keys_of(config)->dropconnect,
                                               "train.dropconnect")
                        : err;
}

/* What initial values need of the tokenizer, on all ranks; a checkpoint that the model starts from
 * has it. */
static bp_err share_constants(trainer *self)
{
    const bp_model_family *family = self->shape.family;
    bp_tokenizer *tokenizer = NULL;
    int64_t floats = 0;
    bp_err err = BP_OK;

    if (!family->constants || self->start.source)
        return BP_OK;
    if (self->mesh->coordinates && self->data.tokenizer)
        err = bp_tokenizer_parse(&tokenizer, self->data.tokenizer, strlen(self->data.tokenizer),
                                 "the corpus's tokenizer");
    if (err == BP_OK && self->mesh->coordinates)
        err = family->constants(&self->start.constants, &floats, &self->shape, tokenizer);
    bp_tokenizer_free(&tokenizer);
    err = bp_agree(self->mesh->world, err);
    if (err != BP_OK)
        return err;
    bp_bcast_bytes(&floats, sizeof floats, 0, self->mesh->world);
    if (!self->mesh->coordinates)
        self->start.constants = bp_alloc("model.constants", floats, sizeof *self->start.constants);
    bp_bcast_bytes(self->start.constants, floats * (int64_t)sizeof *self->start.constants, 0,
                   self->mesh->world);
    self->shape.constants = self->start.constants;
    return BP_OK;
}

/* Precision, and what the engine is to do. */
static bp_err find_spec(trainer *self)
{
    bp_config *config = self->config;

    if (self->shape.family->resolve && bp_model_shape_is_whole(&self->shape))
        self->shape.family->resolve(&self->shape, config);
    self->spec = bp_pretrain_spec_of(config, self->parts);
    self->spec.shortens = bp_corpus_keys_of(config)->bucket > 0;
    if (trainer_learner(self))
        self->spec.micro_batch = 1;
    return bp_trainer_precision(self->mesh->world, config, &self->spec.precision);
}

/* The rules of examples: parts add theirs. */
static bp_err find_rules(trainer *self)
{
    const int64_t *roles = self->facts.roles;
    bp_err err;

    self->rules = (bp_example_rules){.seed = self->spec.seed,
                                     .member = bp_corpus_keys_of(self->config)->member,
                                     .vocab_size = self->facts.vocab_size,
                                     .cls = roles[BP_ROLE_CLS],
                                     .sep = roles[BP_ROLE_SEP],
                                     .mask = roles[BP_ROLE_MASK],
                                     .pad = roles[BP_ROLE_PAD] >= 0 ? roles[BP_ROLE_PAD] : 0,
                                     .eod = self->facts.eod_id};
    err = parts_at(self, PART_RULES);
    if (err == BP_OK)
        self->examples.maker = trainer_maker(self, self->shape.context);
    return err;
}

/* The documents of the training, and its number of steps. */
static bp_err count_examples(trainer *self)
{
    bp_err err = BP_OK;

    if (self->mesh->coordinates)
        err = self->examples.maker.feed == BP_FEED_WINDOWS
                  ? bp_stream_check(self->data.stream, trainer_stride(self))
                  : trainer_count_documents(self);
    err = bp_agree(self->mesh->world, err);
    if (err != BP_OK)
        return err;
    trainer_find_steps(self);
    return parts_at(self, PART_COUNTED);
}

bp_err bp_trainer_open(trainer *self, const bp_training_part *const *parts, MPI_Comm world,
                       bp_config *config, const bp_planned_world *plan)
{
    bp_err err;

    memset(self, 0, sizeof *self);
    self->config = config;
    self->parts = parts;
    bp_math_set_threads(
        bp_math_threads_planned(world, (int)bp_math_keys_of(config)->threads, plan));
    err = bp_agree(world, open_mesh(self, world, plan));
    if (err == BP_OK)
        err = trainer_open_corpora(self);
    if (err == BP_OK)
        err = parts_open(self);
    if (err == BP_OK)
        err = trainer_find_shape(self);
    if (err == BP_OK)
        err = parts_at(self, PART_SHAPE);
    if (err == BP_OK)
        err = find_spec(self);
    if (err == BP_OK)
        err = bp_agree(world, check_shape(self));
    if (err == BP_OK)
        err = parts_at(self, PART_READY);
    if (err == BP_OK)
        err = share_constants(self);
    if (err == BP_OK && trainer_counts(self)) {
        self->spec.rate.steps = 1;
        return BP_OK;
    }
    if (err == BP_OK)
        err = find_rules(self);
    return err == BP_OK ? count_examples(self) : err;
}

/* Where a document begins, if the carried state begins anew there. A run goes on as it began: older
 * ones carry it over all documents. */
static int64_t restart_of(const trainer *self)
{
    const char *order = bp_corpus_keys_of(self->config)->order;
    const json_t *state = self->start.resumes ? bp_checkpoint_state(self->start.source) : NULL;
    bool asked = strcmp(order, "documents") == 0 ||
                 (strcmp(order, "auto") == 0 && self->shape.family->restarts &&
                  (!state || json_is_true(json_object_get(state, BP_STATE_RESTARTS))));

    return asked ? 1 + self->facts.begin_id : 0;
}

bp_err trainer_build(trainer *self)
{
    bp_precision precision;
    int stage = 0;
    bp_err err = bp_math_precision(self->config, &precision); /* a kept one: does this CPU support
                                                                 it? */

    self->spec.restart = restart_of(self);
    if (err == BP_OK)
        err = bp_trainer_plan(self, &self->estimate.plan, &stage);
    err = bp_agree(self->mesh->world, err);
    if (err != BP_OK)
        return err;
    if (!trainer_learner(self))
        trainer_measure_peaks(self);
    bp_training_plan_print(self, &self->estimate.plan, stage);
    if (self->mesh->computes) {
        err = trainer_learner(self)
                  ? trainer_learner_open(self)
                  : bp_engine_new(&self->engine, self->mesh, &self->spec, &self->shape);
    }
    err = bp_agree(self->mesh->world, err);
    if (err == BP_OK)
        err = parts_at(self, PART_BUILD);
    if (err == BP_OK)
        err =
            bp_agree(self->mesh->world, self->mesh->computes ? trainer_open_examples(self) : BP_OK);
    if (err == BP_OK)
        trainer_save_beside(self);
    if (err == BP_OK)
        err = trainer_open_commits(self);
    if (err == BP_OK)
        trainer_warn_of_few(self);
    return err;
}

void bp_trainer_close(trainer *self)
{
    bp_loader_free(&self->data.loader);
    parts_close(self);
    bp_engine_free(&self->engine);
    if (self->learner)
        trainer_learner(self)->free(&self->learner);
    bp_trace_stop(); /* after their helpers have ended */
    trainer_close_corpora(self);
    trainer_close_examples(self);
    bp_checkpoint_close(&self->start.source);
    bp_snapshot_free(&self->commits.snapshot);
    bp_free(self->start.constants);
    json_decref(self->start.base);
    json_decref(self->start.forced);
    json_decref(self->start.model_type);
    bp_mesh_free(&self->mesh);
}
