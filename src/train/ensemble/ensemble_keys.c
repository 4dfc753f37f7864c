/* An ensemble's keys, resolved together and for this machine. Called by ensemble.c first. */
#include "train/ensemble/ensemble_priv.h"

#include "io/checkpoint/ensemble_file.h"
#include "math/math.h"
#include "mesh/mesh.h"
#include "models/task/task.h"
#include "train/ensemble/ensemble.h"
#include "train/parts/list.h"

#include <inttypes.h>
#include <string.h>

const bp_option bp_ensemble_options[] = {
    {BP_INT_KEY("ensemble.members", NULL, 1, BP_ENSEMBLE_MEMBERS_MAX), .unit = "members",
     .help = "how many models to train", .required = true, .at = BP_AT(bp_ensemble_keys, members)},
    {BP_CHOICE_KEY("ensemble.kind", "both", "bag|seed|both"),
     .help = "bag: documents drawn with replacement; seed: another initialisation and order",
     .at = BP_AT(bp_ensemble_keys, kind)},
    {BP_STRING_KEY("ensemble.cluster", NULL),
     .help =
         "of bags: a label whose values are drawn, each with all its documents (the passages of "
         "a book), so that a bag has all of them or none: another name of corpus.cluster",
     .at = BP_AT(bp_ensemble_keys, cluster)},
    {BP_INT_KEY("ensemble.parallel", NULL, 1, BP_ENSEMBLE_MEMBERS_MAX), .unit = "members",
     .help = "members that train side by side: another name of mesh.members",
     .at = BP_AT(bp_ensemble_keys, parallel)},
    {BP_INT_KEY("ensemble.only", NULL, 0, BP_ENSEMBLE_MEMBERS_MAX),
     .help = "train only this member, from 0, with all ranks: for job arrays",
     .at = BP_AT(bp_ensemble_keys, only)},
    {BP_CHOICE_KEY("ensemble.checkpoint", "newest", "newest|best"),
     .help = "which of a member's checkpoints ensemble.json lists: the newest, or the best in "
             "validation",
     .at = BP_AT(bp_ensemble_keys, checkpoint), .may_change = true},
    {.key = NULL}};

static bool bags_of(const bp_config *config)
{
    return strcmp(bp_ensemble_keys_of(config)->kind, "seed") != 0;
}

bool ensemble_lists_best(const bp_config *config)
{
    return strcmp(bp_ensemble_keys_of(config)->checkpoint, "best") == 0;
}

/* Without validation no checkpoint is the best. */
static void check_best(bp_config *config)
{
    if (ensemble_lists_best(config) && !bp_corpus_keys_of(config)->valid)
        bp_config_fault(config, "ensemble.no_best",
                        "ensemble.checkpoint = best, but without corpus.valid no checkpoint is the "
                        "best: at ensemble.checkpoint; give corpus.valid, or leave it out");
}

/* Two keys for one setting: mesh.members has the value. */
static void resolve_parallel(bp_config *config)
{
    int64_t members = bp_mesh_keys_of(config)->members, parallel;

    if (!bp_config_is_set(config, "ensemble.parallel"))
        return;
    parallel = bp_ensemble_keys_of(config)->parallel;
    if (bp_config_is_given(config, "mesh.members") && members != parallel)
        bp_config_fault(config, "mesh.contradiction",
                        "ensemble.parallel = %" PRId64 " is another name of mesh.members, which is "
                        "%" PRId64 ": at ensemble.parallel; give one of them",
                        parallel, members);
    else if (bp_config_set_int(config, "mesh.members", parallel) != BP_OK ||
             bp_config_set(config, "ensemble.parallel", "") != BP_OK)
        bp_config_fault_err(config);
}

/* Two keys for one setting: corpus.cluster has the value. */
static void resolve_cluster(bp_config *config)
{
    const char *asked = bp_ensemble_keys_of(config)->cluster,
               *cluster = bp_corpus_keys_of(config)->cluster;

    if (asked && cluster && strcmp(asked, cluster) != 0)
        bp_config_fault(config, "ensemble.contradiction",
                        "ensemble.cluster = %s is another name of corpus.cluster, which is %s: at "
                        "ensemble.cluster; give one of them",
                        asked, cluster);
    else if ((asked || cluster) && !bags_of(config))
        bp_config_fault(config, "ensemble.no_bags",
                        "%s.cluster = %s, but ensemble.kind = seed gives all members the same "
                        "documents: at ensemble.kind; use bag or both",
                        asked ? "ensemble" : "corpus", asked ? asked : cluster);
    else if (asked && (bp_config_set(config, "corpus.cluster", asked) != BP_OK ||
                       bp_config_set(config, "ensemble.cluster", "") != BP_OK))
        bp_config_fault_err(config);
}

static void resolve_resample(bp_config *config)
{
    const char *resample = bp_corpus_keys_of(config)->resample;
    bool bags = bags_of(config), asked = strcmp(resample, "bag") == 0;

    if (asked && !bags)
        bp_config_fault(config, "ensemble.no_bags",
                        "corpus.resample = bag, but ensemble.kind = seed gives all members the "
                        "same documents: at ensemble.kind; use bag or both");
    else if (bp_config_set(config, "corpus.resample", bags ? "bag" : "none") != BP_OK)
        bp_config_fault_err(config);
    if (bp_corpus_keys_of(config)->member != 0)
        bp_config_fault(config, "ensemble.member_given",
                        "run.member = %" PRId64 ", but an ensemble has all of them: at "
                        "run.member; leave it out (ensemble.only picks one)",
                        bp_corpus_keys_of(config)->member);
}

bool ensemble_counts(const bp_config *config)
{
    const bp_model_family *family = bp_model_family_find(bp_model_keys_of(config)->kind);

    return family && family->counting;
}

bool ensemble_has_task(const ensemble *self)
{
    return bp_task_is_asked(self->config) &&
           bp_task_kind_named(bp_task_keys_of(self->config)->kind)->objective;
}

bool ensemble_losses_are_nats(const ensemble *self)
{
    return !ensemble_has_task(self) ||
           strcmp(bp_task_keys_of(self->config)->kind, "regression") != 0;
}

/* Without a task its keys have no effect. */
static void refuse_task_keys(bp_config *config)
{
    for (const bp_option *option = bp_task_options; option->key; option++)
        if (bp_config_departs(config, option->key))
            bp_config_fault(config, "task.unused_key",
                            "%s has no meaning without task.kind: at %s; give task.kind, or leave "
                            "it out",
                            option->key, option->key);
}

/* Counts have no seed: their members differ only by their bags. */
static void resolve_kind(bp_config *config)
{
    const char *kind = bp_ensemble_keys_of(config)->kind;

    if (!ensemble_counts(config) || strcmp(kind, "bag") == 0)
        return;
    if (bp_config_is_given(config, "ensemble.kind"))
        bp_config_fault(
            config, "ensemble.only_bags",
            "ensemble.kind = %s, but a model of counts (model.kind = %s) has no initial "
            "values to draw: at ensemble.kind; use bag",
            kind, bp_model_keys_of(config)->kind);
    if (bp_config_set(config, "ensemble.kind", "bag") != BP_OK)
        bp_config_fault_err(config);
}

/* Members are mixed, and scored out of their bags: with probabilities of texts. */
static void check_distribution(const bp_model_shape *shape, bp_config *config)
{
    const bp_model_family *family = shape->family;
    const char *why = family && family->no_distribution ? family->no_distribution(shape) : NULL;

    if (why)
        bp_config_fault(config, "model.no_distribution",
                        "an ensemble of models of kind %s can't be made: %s: at model.kind; take "
                        "another one",
                        family->name, why);
}

void bp_ensemble_check(bp_config *config)
{
    int64_t members = bp_ensemble_keys_of(config)->members;
    bp_model_shape shape;

    resolve_kind(config);
    resolve_parallel(config);
    resolve_resample(config);
    resolve_cluster(config);
    check_best(config);
    if (bp_config_is_set(config, "ensemble.only")) {
        if (bp_ensemble_keys_of(config)->only >= members)
            bp_config_fault(config, "ensemble.no_such_member",
                            "ensemble.only = %" PRId64 " is not a member of %" PRId64
                            ": at ensemble.only; members are 0 to %" PRId64,
                            bp_ensemble_keys_of(config)->only, members, members - 1);
        if (bp_config_set_int(config, "mesh.members", 1) != BP_OK) /* this job has one */
            bp_config_fault_err(config);
    } else if (bp_mesh_keys_of(config)->members > members) {
        bp_config_fault(config, "mesh.too_many_members",
                        "mesh.members = %" PRId64 " is more than ensemble.members = %" PRId64
                        ": at mesh.members; use %" PRId64 " or fewer",
                        bp_mesh_keys_of(config)->members, members, members);
    }
    if (bp_task_is_asked(config))
        bp_finetune_check_model(config);
    else
        refuse_task_keys(config);
    shape = bp_pretrain_check_model(config, bp_training_parts);
    if (!shape.family) /* model.init: what model.kind says is all that is known here */
        shape.family = bp_model_family_find(bp_model_keys_of(config)->kind);
    if (!bp_task_is_asked(config))
        check_distribution(&shape, config);
}

void ensemble_fill(ensemble *self, bp_config *config, const bp_ensemble_jobs *jobs)
{
    const char *kind = bp_ensemble_keys_of(config)->kind;

    *self = (ensemble){.config = config,
                       .jobs = jobs,
                       .shape = bp_mesh_shape_of(config),
                       .members = bp_ensemble_keys_of(config)->members,
                       .bags = bags_of(config),
                       .reseeds = strcmp(kind, "bag") != 0,
                       .auto_precision = strcmp(bp_math_keys_of(config)->precision, "auto") == 0};
}
