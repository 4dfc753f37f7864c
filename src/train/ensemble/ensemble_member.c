/* One member: a pretraining run in a folder of its own, and the scores of what its bag lacks.
 * Called by ensemble_scheduler.c. */
#include "train/ensemble/ensemble_priv.h"

#include "base/config/run_options.h"
#include "base/fault.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/corpus.h"
#include "data/loader.h"
#include "infer/score/score.h"
#include "io/checkpoint/checkpoint.h"
#include "mesh/collective.h"
#include "models/family.h"
#include "train/engine/engine.h"
#include "train/loop/start/corpora.h"
#include "train/loop/trainer.h"
#include "train/parts/list.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define JSON_LIMIT ((int64_t)1 << 30)

void ensemble_name(const ensemble *self, int64_t member, char out[ENSEMBLE_NAME_BYTES])
{
    int digits = 2;

    for (int64_t most = 100; most < self->members; most *= 10)
        digits++;
    snprintf(out, ENSEMBLE_NAME_BYTES, "m%0*" PRId64, digits, member);
}

char *ensemble_member_path(const ensemble *self, int64_t member, const char *inside)
{
    char name[ENSEMBLE_NAME_BYTES];

    ensemble_name(self, member, name);
    return bp_sprintf("%s/members/%s%s%s", bp_run_keys_of(self->config)->dir, name,
                      inside[0] ? "/" : "", inside);
}

static bp_err set_path(const ensemble *self, bp_config *config, const char *key, int64_t member,
                       const char *inside)
{
    char *path = ensemble_member_path(self, member, inside);
    bp_err err = bp_config_set(config, key, path);

    bp_free(path);
    return err;
}

bp_err ensemble_member_config(const ensemble *self, int64_t member, bp_config **out)
{
    int64_t seed = bp_run_keys_of(self->config)->seed;
    char name[ENSEMBLE_NAME_BYTES];
    bp_err err = bp_config_derive(out, self->config, self->jobs->pretrain, self->jobs->pretrain);
    const char *trace = err == BP_OK ? bp_config_string(*out, "train.trace") : NULL;

    if (err == BP_OK)
        err = set_path(self, *out, "run.dir", member, "");
    if (err == BP_OK)
        err = bp_config_set_int(*out, "run.member", member);
    if (err == BP_OK && self->reseeds)
        err = bp_config_set_int(*out, "run.seed", 1000 * seed + member);
    if (err == BP_OK)
        err = bp_config_set(*out, "corpus.resample", self->bags ? "bag" : "none");
    if (err == BP_OK && trace) { /* each has its own: trace.json becomes trace.m03.json */
        ensemble_name(self, member, name);
        char *own = bp_path_insert(trace, name);
        err = bp_config_set(*out, "train.trace", own);
        bp_free(own);
    }
    if (err == BP_OK)
        err = bp_config_set_int(*out, "mesh.members", 1);
    if (err == BP_OK && self->mesh) /* within a group the first rank computes and coordinates */
        err = bp_config_set(*out, "mesh.coordinator", "shared");
    if (err != BP_OK)
        bp_config_free(out);
    return err;
}

static bp_err check_bag(const ensemble *self, int64_t member, bp_corpus *corpus)
{
    bp_stream *stream = NULL;
    bp_config *config = NULL;
    double *weights = NULL;
    bp_err err = ensemble_member_config(self, member, &config);

    if (err == BP_OK)
        err = bp_trainer_weights(&weights, config, corpus);
    if (err == BP_OK)
        err = bp_stream_new(&stream,
                            &(bp_stream_spec){.corpus = corpus,
                                              .weights = weights,
                                              .bag = true,
                                              .seed = (uint64_t)bp_run_keys_of(config)->seed,
                                              .member = bp_corpus_keys_of(config)->member,
                                              .cluster = bp_corpus_keys_of(config)->cluster});
    if (err == BP_OK) /* a checkpoint has a context of its own: a token is the least of all */
        err = bp_stream_check(
            stream, bp_model_keys_of(config)->init ? 1 : bp_model_keys_of(config)->context);
    bp_stream_free(&stream);
    bp_free(weights);
    bp_config_free(&config);
    return err;
}

bp_err ensemble_check_bags(const ensemble *self, bp_corpus *corpus)
{
    char name[ENSEMBLE_NAME_BYTES];
    bp_err err = BP_OK;

    if (!self->bags || !bp_config_is_set(self->config, "corpus.weights"))
        return BP_OK;
    for (int64_t member = 0; member < self->members && err == BP_OK; member++) {
        ensemble_name(self, member, name);
        err = check_bag(self, member, corpus);
        if (err == BP_ERR_FORMAT)
            err = bp_err_prefix(err, "%s", name);
    }
    return err;
}

/* ---- out of the bag ---- */

#define BEST "checkpoints/best"

/* Does ensemble.json list the best checkpoint of a member, which has one? */
static bool lists_best(const ensemble *self, int64_t member)
{
    char *parent = ensemble_member_path(self, member, "checkpoints");
    bool lists = ensemble_lists_best(self->config) && bp_checkpoints_best(parent) >= 0;

    bp_free(parent);
    return lists;
}

/* The step of the checkpoint that ensemble.json lists. */
static int64_t listed_step(const ensemble *self, int64_t member)
{
    char *parent = ensemble_member_path(self, member, "checkpoints");
    int64_t step =
        lists_best(self, member) ? bp_checkpoints_best(parent) : bp_checkpoint_newest_step(parent);

    bp_free(parent);
    return step;
}

/* A score job over the documents that the bag lacks, with the default convention, regardless of the
 * configuration's other keys of scoring. `best`: by the member's best checkpoint. */
static bp_err score_config(const ensemble *self, int64_t member, bool best,
                           const bp_config *trained, bp_config **out)
{
    const bp_option *const tables[] = {bp_score_options, bp_score_rule_options};
    bp_err err = bp_config_derive(out, trained, self->jobs->score, self->jobs->score);

    for (int k = 0; k < 2; k++)
        for (const bp_option *row = tables[k]; err == BP_OK && row->key; row++)
            if (strncmp(row->key, "score.", 6) == 0)
                err = bp_config_set(*out, row->key, row->value ? row->value : "");
    if (err == BP_OK)
        err = set_path(self, *out, "run.dir", member, "oob");
    if (err == BP_OK)
        err = set_path(self, *out, "score.model", member, best ? BEST : "");
    if (err == BP_OK)
        err = bp_config_set(*out, "score.corpus", bp_corpus_keys_of(trained)->train);
    if (err == BP_OK)
        err = bp_config_set(*out, "score.select", "out_of_bag");
    if (err == BP_OK && bp_corpus_keys_of(trained)->cluster)
        err = bp_config_set(*out, "score.cluster", bp_corpus_keys_of(trained)->cluster);
    if (err == BP_OK) /* scoring has all experts on each data rank */
        err = bp_config_set_int(*out, "mesh.expert", 1);
    if (err != BP_OK)
        bp_config_free(out);
    return err;
}

static json_t *load(const ensemble *self, int64_t member, const char *inside)
{
    char *path = ensemble_member_path(self, member, inside);
    json_t *value = NULL;

    if (bp_path_exists(path)) /* one that can't be read is made again */
        (void)bp_json_load_plain(&value, path, JSON_LIMIT);
    bp_free(path);
    return value;
}

int64_t ensemble_member_step(const ensemble *self, int64_t member)
{
    char *folder = ensemble_member_path(self, member, "checkpoints");
    int64_t step = bp_checkpoint_newest_step(folder);

    bp_free(folder);
    return step;
}

double ensemble_member_valid_loss(const ensemble *self, int64_t member)
{
    char *path = ensemble_member_path(self, member, ""), *folder = NULL;
    json_t *manifest = NULL;
    const json_t *best = NULL;

    if (bp_checkpoint_read_metadata(path, &folder, &manifest) == BP_OK)
        best = json_object_get(json_object_get(manifest, "state"), "best_valid_loss");
    double loss = json_is_number(best) ? json_number_value(best) : (double)NAN;
    json_decref(manifest);
    bp_free(folder);
    bp_free(path);
    return loss;
}

/* Are these scores complete, and made with the weights that ensemble.json lists? They are removed
 * when training goes on; but a member may have been trained on as a run of its own, or
 * ensemble.checkpoint may be another one. */
static bool is_scored(const ensemble *self, int64_t member, bool *of_others)
{
    json_t *run = load(self, member, "oob/run.json");
    json_t *summary = load(self, member, "oob/score/summary.json");
    const char *state = json_string_value(json_object_get(json_object_get(run, "exit"), "state"));
    const json_t *step = json_object_get(json_object_get(summary, "model"), "step");
    const char *names[] = {ensemble_has_task(self) ? "predictions.csv" : "documents.h5"};
    char *folder = ensemble_member_path(self, member, "oob/score");
    bool scored = summary && state && strcmp(state, "finished") == 0 &&
                  !bp_run_first_missing(folder, names, 1);

    *of_others = json_is_integer(step) && json_integer_value(step) != listed_step(self, member);
    bp_free(folder);
    json_decref(run);
    json_decref(summary);
    return scored && !*of_others;
}

bool ensemble_member_ended_early(const ensemble *self, int64_t member)
{
    json_t *run = load(self, member, "run.json");
    const json_t *end = json_object_get(run, "exit");
    const char *state = json_string_value(json_object_get(end, "state"));
    const char *reason = json_string_value(json_object_get(end, "reason"));
    bool early =
        state && reason && strcmp(state, "finished") == 0 && strcmp(reason, "patience") == 0;

    json_decref(run);
    return early;
}

/* A member may have been trained further, by ensemble.only or as a run of its own: then it is not
 * what ensemble.json says. */
bool ensemble_member_is_whole(const ensemble *self, int64_t member)
{
    bool of_others;

    return (ensemble_member_step(self, member) == self->steps ||
            ensemble_member_ended_early(self, member)) &&
           (!self->bags || is_scored(self, member, &of_others));
}

static double read_perplexity(const ensemble *self, int64_t member)
{
    json_t *summary = load(self, member, "oob/score/summary.json");
    const json_t *value = json_object_get(summary, "perplexity");
    double perplexity = json_is_number(value) ? json_number_value(value) : NAN;

    if (json_integer_value(json_object_get(summary, "documents")) == 0)
        BP_WARN("ensemble.no_out_of_bag",
                "no document of corpus.train is out of the bag, so there is no out-of-bag "
                "%s; give more documents",
                ensemble_has_task(self) ? "loss" : "perplexity");
    json_decref(summary);
    return perplexity;
}

/* Removes parts of a job that was killed before it removed them. */
static bp_err remove_parts(const ensemble *self, int64_t member)
{
    char *path = ensemble_member_path(self, member, "oob/score/parts");
    bp_err err = bp_dir_remove(path);

    bp_free(path);
    return err;
}

static bp_err score_out_of_bag(const ensemble *self, MPI_Comm group, int64_t member,
                               const bp_config *trained)
{
    bool root = bp_comm_is_root(group), of_others = false, best;
    bp_config *config = NULL;
    bp_err err;

    if (bp_all_max_int(root && is_scored(self, member, &of_others), group) != 0)
        return bp_agree(group, root ? remove_parts(self, member) : BP_OK);
    /* another node may not see yet what the root has committed */
    best = bp_all_max_int(root && lists_best(self, member), group) != 0;
    err = of_others ? ensemble_member_forget_scores(self, member) : BP_OK;
    if (err == BP_OK)
        err = score_config(self, member, best, trained, &config);
    err = bp_agree(group, err);
    if (err == BP_OK)
        err = bp_score_as(group, config, NULL);
    bp_config_free(&config);
    return err;
}

bp_err ensemble_member_run(const ensemble *self, MPI_Comm group, int64_t member,
                           const bp_pretrain_hooks *hooks, double *oob)
{
    bp_config *config = NULL;
    char *before = NULL;
    bp_err err = bp_agree(group, ensemble_member_config(self, member, &config));

    *oob = NAN;
    /* a member that has begun keeps the precision that it began with, maybe on another node (in a
     * job array each resolves its own), unless the user asks for one: pretrain finds it there */
    if (err == BP_OK && self->auto_precision)
        err = bp_run_previous(group, bp_run_keys_of(config)->dir, "math.precision", &before);
    if (err == BP_OK && before)
        err = bp_config_set(config, "math.precision", "auto");
    bp_free(before);
    err = bp_agree(group, err);
    if (err == BP_OK)
        err = bp_pretrain(group, config, bp_training_parts, hooks);
    if (err == BP_OK && self->bags) {
        err = score_out_of_bag(self, group, member, config);
        if (err == BP_OK && bp_comm_is_root(group))
            *oob = read_perplexity(self, member);
    }
    bp_fault_point("ens.member_done");
    bp_config_free(&config);
    return err;
}

bp_err ensemble_member_forget_scores(const ensemble *self, int64_t member)
{
    char *path = ensemble_member_path(self, member, "oob");
    bp_err err = bp_dir_remove(path);

    bp_free(path);
    return err;
}
