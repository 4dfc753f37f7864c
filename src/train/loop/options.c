/* The keys of checkpoint.*, and what must hold for the keys of a training. */
#include "train/loop/options.h"

#include "base/mem.h"
#include "data/corpus.h"
#include "mesh/mesh.h"
#include "models/family.h"
#include "train/engine/options.h"

const bp_option bp_checkpoint_options[] = {
    {BP_INT_KEY("checkpoint.every", "500", 1, 1e12), .unit = "steps",
     .help = "a checkpoint; one is always committed after the last step",
     .at = BP_AT(bp_checkpoint_keys, every)},
    {BP_INT_KEY("checkpoint.keep", "3", 1, 1e6),
     .help = "newest checkpoints to keep, the best one besides",
     .at = BP_AT(bp_checkpoint_keys, keep)},
    {BP_BOOL_KEY("checkpoint.async", "yes"),
     .help = "write from a copy while training goes on; no: training waits, and needs no memory "
             "for a copy",
     .was = "checkpoint.behind", .at = BP_AT(bp_checkpoint_keys, async)},
    {0},
};

/* Normalises the list, since a resume compares texts. */
static void check_weights(bp_config *config)
{
    double *weights = NULL;
    int64_t count;

    if (!bp_config_is_set(config, "corpus.weights"))
        return;
    if (bp_corpus_weights(&weights, &count, bp_corpus_keys_of(config)->weights) == BP_OK) {
        char *text = bp_corpus_weights_text(weights, count);

        BP_CHECK(bp_config_set(config, "corpus.weights", text) == BP_OK);
        bp_free(text);
    } else {
        bp_config_fault_err(config);
    }
    bp_free(weights);
}

/* family NULL: the checkpoint of model.init has it, and model.kind may name it; where it does not,
 * the engine's keys are checked once the checkpoint is read. */
static bool has_engine(const bp_config *config, const bp_model_family *family)
{
    if (!family && bp_config_is_given(config, "model.kind"))
        family = bp_model_family_find(bp_model_keys_of(config)->kind);
    return family && !family->counting && !family->learner;
}

bp_engine_spec bp_pretrain_spec_of(const bp_config *config, const bp_training_part *const *parts)
{
    bp_engine_spec spec = bp_engine_spec_of(config);

    for (; *parts; parts++)
        if ((*parts)->ask)
            (*parts)->ask(config, &spec);
    return spec;
}

void bp_pretrain_warn(const bp_config *config, const bp_training_part *const *parts)
{
    bp_engine_spec_warn(config);
    for (; *parts; parts++)
        if ((*parts)->warn)
            (*parts)->warn(config);
}

bp_model_shape bp_pretrain_check_model(bp_config *config, const bp_training_part *const *parts)
{
    int64_t patience = bp_train_keys_of(config)->patience;
    bool has_valid = bp_config_is_set(config, "corpus.valid");
    bp_mesh_shape mesh = bp_mesh_shape_of(config);
    bp_engine_spec spec = bp_pretrain_spec_of(config, parts);
    bp_model_shape shape = {.family = NULL};

    if (!bp_config_is_set(config, "model.init")) {
        shape = bp_model_shape_of(config, NULL);
        bp_model_shape_check(&shape, mesh.tensor, mesh.pipeline, config);
        if (shape.family->resolve && bp_model_shape_is_whole(&shape))
            shape.family->resolve(&shape, config);
    }
    if (has_engine(config, shape.family))
        bp_engine_spec_check(&spec, &shape, &mesh, config);
    if (patience > 0 && (!has_valid || bp_train_keys_of(config)->valid_every == 0))
        bp_config_fault(config, "train.no_validation",
                        "train.patience = %lld counts validations, but %s: at train.patience; give "
                        "corpus.valid and train.valid_every, or leave train.patience out",
                        (long long)patience,
                        has_valid ? "train.valid_every is 0" : "there is no corpus.valid");
    if (bp_config_is_set(config, "train.epochs") && bp_train_keys_of(config)->epochs <= 0)
        bp_config_fault(config, "train.no_epochs",
                        "train.epochs = 0: at train.epochs; give a number above 0");
    check_weights(config);
    return shape;
}

void bp_pretrain_check(bp_config *config, const bp_training_part *const *parts)
{
    int64_t members = bp_mesh_keys_of(config)->members;

    if (members != 1)
        bp_config_fault(
            config, "mesh.one_model",
            "mesh.members = %lld, but pretrain trains one model: at mesh.members; leave it at 1",
            (long long)members);
    (void)bp_pretrain_check_model(config, parts);
}

void bp_finetune_require(bp_config *config)
{
    bp_config_require(config, "task.kind");
    bp_config_require(config, "train.batch");
}

static void set_default(bp_config *config, const char *key, const char *value)
{
    if (!bp_config_is_given(config, key) && bp_config_set(config, key, value) != BP_OK)
        bp_config_fault_err(config);
}

void bp_finetune_check_model(bp_config *config)
{
    set_default(config, "optimizer.decay", "linear");
    set_default(config, "optimizer.lr", "5e-5");
    if (!bp_config_is_set(config, "train.steps"))
        set_default(config, "train.epochs", "3");
}

void bp_finetune_check(bp_config *config, const bp_training_part *const *parts)
{
    bp_finetune_check_model(config);
    bp_pretrain_check(config, parts);
}
