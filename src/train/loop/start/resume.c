/* Where a training starts: from the run's newest checkpoint, from another's weights, or from drawn
 * values. Over the whole world, since a dedicated coordinator verifies checkpoints too. Called by
 * setup.c and pretrain.c. */
#include "train/loop/start/resume.h"

#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/process/heartbeat.h"
#include "io/huggingface/hf_model.h"
#include "models/family.h"
#include "text/tokenizer/tokenizer.h"
#include "train/loop/commit.h"
#include "train/loop/learning.h"
#include "train/loop/parts.h"
#include "train/loop/start/corpora.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The checkpoint that model.init names. A run that has begun may outlive it: its own newest one has
 * the same shape. */
static bp_err open_init(trainer *self, const char *init)
{
    const char *run_dir = bp_run_keys_of(self->config)->dir;
    char *begun = NULL;
    bp_err err = bp_checkpoint_open_any(self->mesh->world, init, &self->start.source);

    if (err == BP_OK && bp_comm_is_root(self->mesh->world))
        bp_checkpoint_warn_not_best(init);
    if (err == BP_OK)
        snprintf(self->start.init_digest, sizeof self->start.init_digest, "%s",
                 bp_checkpoint_digest(self->start.source));
    if (err != BP_ERR_INPUT)
        return err;
    char *message = bp_strdup(bp_err_message());
    bp_err previous = bp_run_previous(self->mesh->world, run_dir, "model.init", &begun);
    if (previous == BP_OK && begun)
        err = bp_checkpoint_open_any(self->mesh->world, run_dir, &self->start.source);
    if (err != BP_OK)
        bp_err_set_message(message);
    bp_free(message);
    bp_free(begun);
    return bp_agree(self->mesh->world, err);
}

/* Takes the tokens that begin and end texts from the model that training starts from. */
static void keep_roles(corpus_facts *facts, const json_t *state, int64_t vocab_size)
{
    bp_ends ends = {0};

    if (facts->roles[BP_ROLE_BOS] < 0 && bp_roles_get(state, BP_ROLE_BOS) < vocab_size) {
        facts->roles[BP_ROLE_BOS] = bp_roles_get(state, BP_ROLE_BOS);
        facts->roles[BP_ROLE_FIRST] = bp_roles_get(state, BP_ROLE_FIRST);
    }
    bp_ends_read(&ends, json_object_get(state, "end_ids"), vocab_size);
    if (bp_ends_have(&ends, facts->eod_id))
        facts->ends = ends;
}

static bp_err check_init(trainer *self, const char *init)
{
    const json_t *state = bp_checkpoint_state(self->start.source);
    const char *hash = json_string_value(json_object_get(state, "tokenizer_hash"));
    bp_model_shape known = {0};
    bp_err err = bp_model_shape_read(&known, state, init);

    if (err != BP_OK)
        return err;
    self->shape = bp_model_shape_of(self->config, &known);
    keep_roles(&self->facts, state, known.vocab_size);
    self->start.forced = json_deep_copy(json_object_get(state, "forced"));
    if (bp_hf_origin_of(state))
        self->start.model_type = bp_json_string(bp_hf_origin_of(state));
    if (hash && hash[0] && self->facts.tokenizer_hash[0] &&
        !bp_tokenizer_same_hash(hash, self->facts.tokenizer_hash))
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.mismatch",
                       "the checkpoint was made with tokenizer %.12s..., the corpus with "
                       "%.12s...: at %s; make the corpus with the checkpoint's tokenizer",
                       hash, self->facts.tokenizer_hash, init);
    return BP_OK;
}

bp_err trainer_find_shape(trainer *self)
{
    const char *init = bp_model_keys_of(self->config)->init;
    bp_err err;

    if (!init) {
        self->shape = bp_model_shape_of(self->config, NULL);
        return BP_OK;
    }
    err = open_init(self, init);
    if (err == BP_OK)
        err = bp_agree(self->mesh->world, check_init(self, init));
    return err;
}

/* Older checkpoints do not have them: then they are known only right after a metrics line. */
static bp_err read_positions(progress *p, const json_t *state, int64_t log_every, const char *where)
{
    bp_err err = BP_OK;

    if (!json_object_get(state, "tokens_without_padding"))
        p->filled = p->step == 0 ? 0 : -1;
    else
        err = bp_json_get_int(state, "tokens_without_padding", &p->filled, where);
    if (err != BP_OK || !json_object_get(state, "places_computed")) {
        p->positions[0] = p->step % log_every == 0 ? 0 : -1;
        return err;
    }
    err = bp_json_get_int(state, "places_computed", &p->positions[0], where);
    return err == BP_OK ? bp_json_get_int(state, "places_filled", &p->positions[1], where) : err;
}

static bp_err read_progress(trainer *self, const bp_checkpoint *checkpoint)
{
    const json_t *state = bp_checkpoint_state(checkpoint);
    const char *where = bp_checkpoint_folder(checkpoint), *valid_hash = NULL;
    const json_t *best = json_object_get(state, "best_valid_loss");
    progress *p = &self->progress;
    const struct {
        const char *key;
        int64_t *value;
    } counts[] = {{"step", &p->step},
                  {"updates", &p->updates},
                  {"skipped", &p->skipped},
                  {"skipped_in_row", &p->skipped_in_row},
                  {"best_step", &p->best_step}};
    bp_err err = bp_json_get_string(state, "valid_hash", &valid_hash, where);

    for (size_t k = 0; k < sizeof counts / sizeof counts[0] && err == BP_OK; k++)
        err = bp_json_get_int(state, counts[k].key, counts[k].value, where);
    if (err == BP_OK)
        err = read_positions(p, state, bp_train_keys_of(self->config)->log_every, where);
    if (err != BP_OK)
        return err;
    p->stale = json_integer_value(json_object_get(state, "validations_since_best"));
    p->committed = p->step;
    p->best_valid_loss = json_is_number(best) ? json_number_value(best) : INFINITY;
    if (strcmp(valid_hash, self->facts.valid_hash) != 0 && self->facts.has_valid) {
        p->best_valid_loss = INFINITY; /* losses of two corpora can't be compared */
        p->best_step = p->stale = 0;
    }
    return BP_OK;
}

bp_err trainer_check_bag_version(const trainer *self)
{
    const json_t *version;

    if (!self->start.resumes || !trainer_bags(self->config))
        return BP_OK;
    version = json_object_get(bp_checkpoint_state(self->start.source), "bag_version");
    int64_t known = version ? json_integer_value(version) : 1; /* the first one was not named */
    return known == BP_BAG_VERSION
               ? BP_OK
               : BP_FAIL(BP_ERR_CONFIG, "run.other_bag",
                         "the run's bag has version %" PRId64 ", but this program makes version %d "
                         "(documents in another order), so the training can't go on: at %s; "
                         "train anew with another run.dir",
                         known, BP_BAG_VERSION, bp_checkpoint_folder(self->start.source));
}

/* On the coordinator: the folder of checkpoints is there, without what a killed job left
 * half-done. */
static bp_err prepare_folder(const char *folder)
{
    bp_err err = bp_dir_make(folder);

    if (err == BP_OK)
        err = bp_checkpoints_check_best(folder);
    if (err == BP_OK)
        err = bp_checkpoints_clean(folder);
    return err;
}

bp_err trainer_find_source(trainer *self)
{
    MPI_Comm world = self->mesh->world;
    bp_phase before = bp_heartbeat_phase(BP_PHASE_LOAD);
    bp_checkpoint *newest = NULL;
    char *folder = trainer_checkpoints_folder(self);
    bp_err err = bp_agree(world, self->mesh->coordinates ? prepare_folder(folder) : BP_OK);

    self->progress.best_valid_loss = INFINITY;
    if (err == BP_OK)
        err = bp_checkpoint_newest(world, folder, &newest);
    if (err == BP_OK && newest) {
        bp_checkpoint_close(&self->start.source);
        self->start.source = newest;
        self->start.resumes = true;
        err = bp_agree(world, read_progress(self, newest));
        int64_t best = self->progress.best_step;
        /* a job may have been killed between a commit and its link */
        if (err == BP_OK && self->mesh->coordinates && best > 0 &&
            bp_checkpoints_best(folder) != best && bp_checkpoints_link_best(folder, best) != BP_OK)
            bp_warn_failure("%s", bp_err_text());
    }
    bp_free(folder);
    (void)bp_heartbeat_phase(before);
    return err;
}

/* A new head, or a pooler that the pretrained model lacks, keeps its initial values. */
static void name_new(const trainer *self, bp_load what)
{
    const bp_network *network = bp_engine_network(self->engine);

    for (int g = 0; g < network->group_count; g++)
        for (int k = 0; k < network->groups[g].count; k++)
            if (bp_engine_loads(&network->groups[g], what) &&
                !bp_checkpoint_has(self->start.source, network->groups[g].params[k].name))
                bp_log("new, with initial values of run.seed: %s",
                       network->groups[g].params[k].name);
}

static int64_t keep_known(const trainer *self, bp_slice *slices, int64_t count)
{
    int64_t kept = 0;

    for (int64_t k = 0; k < count; k++)
        if (bp_checkpoint_has(self->start.source, slices[k].name))
            slices[kept++] = slices[k];
    return kept;
}

/* Loads weights, and also the moments unless only the model is wanted; the values are those saved,
 * on any mesh. */
static bp_err load_source(trainer *self)
{
    bool adds = self->shape.adapter.kind != BP_ADAPTER_NONE || self->shape.states.count > 0,
         is_adapted =
             json_object_get(json_object_get(bp_checkpoint_state(self->start.source), "model"),
                             "adapter") != NULL;
    bp_load what = self->start.resumes ? BP_LOAD_STATE : is_adapted ? BP_LOAD_MODEL : BP_LOAD_BASE;
    bp_slice *slices = NULL;
    int64_t count = 0;

    if (self->engine)
        slices = bp_engine_slices_to_load(self->engine, what, &count);
    if (self->engine && adds && !self->start.resumes)
        bp_engine_initialise_added(self->engine);
    if (self->engine && self->start.adds_tensors && !self->start.resumes) {
        name_new(self, what);
        count = keep_known(self, slices, count);
    }
    bp_err err = bp_checkpoint_load(self->start.source, slices, count);
    bp_free(slices);
    if (err != BP_OK || !self->start.resumes)
        return err;
    slices = trainer_slices_to_save(self, &count);
    err = bp_checkpoint_check_digests(self->start.source, slices, count);
    bp_free(slices);
    return err;
}

void trainer_save_beside(trainer *self)
{
    bool alone = self->shape.adapter.kind != BP_ADAPTER_NONE && self->start.source &&
                 bp_model_keys_of(self->config)->adapter.alone;
    const bp_checkpoint *base = alone ? bp_checkpoint_base(self->start.source) : NULL;
    char *path;

    if (alone && self->start.resumes && !base)
        BP_WARN("config.unused_key", "adapter.alone = yes has no effect on a training that began "
                                     "without it; leave it out, or begin another one");
    if (!alone || (self->start.resumes && !base))
        return;
    if (!base)
        base = self->start.source;
    path = realpath(bp_checkpoint_folder(base), NULL);
    self->start.base =
        json_pack("{s:o, s:s}", "path", bp_json_string(path ? path : bp_checkpoint_folder(base)),
                  "digest", bp_checkpoint_digest(base));
    free(path); /* realpath's */
    if (self->engine)
        bp_engine_save_beside(self->engine, base);
}

bp_err trainer_load(trainer *self)
{
    bp_phase before = bp_heartbeat_phase(BP_PHASE_LOAD);
    bp_err err;

    if (self->engine && self->start.adds_tensors && self->start.source && !self->start.resumes)
        bp_engine_initialise(self->engine); /* of what the checkpoint lacks */
    err = trainer_learner(self) ? trainer_learner_load(self)
          : self->start.source  ? load_source(self)
                                : BP_OK;

    if (err == BP_OK && self->engine && self->start.source)
        bp_engine_loaded(self->engine);
    else if (self->engine && !self->start.source)
        bp_engine_initialise(self->engine);
    if (err == BP_OK)
        err = parts_at(self, PART_LOADED);
    bp_checkpoint_close(&self->start.source);
    bp_free(self->start.constants);
    self->start.constants = NULL;
    self->shape.constants = NULL;
    (void)bp_heartbeat_phase(before);
    return err;
}
