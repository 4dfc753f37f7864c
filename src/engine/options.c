#include "engine/engine.h"

#include <math.h>
#include <string.h>

#define END                                                                                        \
    {                                                                                              \
        NULL, BP_OPTION_STRING, NULL, 0, 0, NULL, NULL, NULL, false                                \
    }

const bp_option bp_train_options[] = {
    {"train.steps", BP_OPTION_INT, NULL, 1, 1e12, NULL, "steps", "optimizer steps of the whole run",
     true},
    {"train.batch", BP_OPTION_INT, NULL, 1, 1 << 24, NULL, "sequences",
     "a step's sequences over all ranks; a multiple of data ranks x mesh.micro_batch", true},
    {"train.log_every", BP_OPTION_INT, "10", 1, 1e12, NULL, "steps",
     "a line in metrics.jsonl and in the log", false},
    {"train.valid_every", BP_OPTION_INT, "0", 0, 1e12, NULL, "steps",
     "validation loss; 0: at the end, if corpus.valid is given", false},
    {"train.digest_every", BP_OPTION_INT, "100", 0, 1e12, NULL, "steps",
     "ranks that hold the same parameters compare them; before each checkpoint too; 0: never",
     false},
    {"train.reduction", BP_OPTION_CHOICE, "tree", 0, 0, "tree|running", NULL,
     "sum of gradients: tree (same bits at 1, 2, 4... data ranks) or running (less memory)", false},
    {"train.recompute", BP_OPTION_BOOL, "no", 0, 0, NULL, NULL,
     "keep only each block's input and compute the rest again", false},
    {"train.profile", BP_OPTION_BOOL, "no", 0, 0, NULL, NULL,
     "a table of where time goes, from the third step of each start on; kept in profile.json",
     false},
    {"train.trace", BP_OPTION_STRING, NULL, 0, 0, NULL, NULL,
     "write a timeline of all ranks to this file, for Perfetto: steps 3 to 12 of each start",
     false},
    END,
};

const bp_option bp_optimizer_options[] = {
    {"optimizer.kind", BP_OPTION_CHOICE, "adamw", 0, 0, "adamw|sgd", NULL,
     "AdamW, or SGD with momentum", false},
    {"optimizer.lr", BP_OPTION_REAL, "3e-4", 0, 1000, NULL, NULL, "highest learning rate", false},
    {"optimizer.warmup", BP_OPTION_INT, "0", 0, 1e12, NULL, "steps", "linear rise of the rate",
     false},
    {"optimizer.decay", BP_OPTION_CHOICE, "cosine", 0, 0, "cosine|linear|constant", NULL,
     "the rate after warmup", false},
    {"optimizer.beta1", BP_OPTION_REAL, "0.9", 0, 0.999999, NULL, NULL,
     "AdamW: decay of the first moment", false},
    {"optimizer.beta2", BP_OPTION_REAL, "0.95", 0, 0.999999999, NULL, NULL,
     "AdamW: decay of the second moment", false},
    {"optimizer.epsilon", BP_OPTION_REAL, "1e-8", 0, 1, NULL, NULL,
     "AdamW: added to the root of the second moment", false},
    {"optimizer.weight_decay", BP_OPTION_REAL, "0.1", 0, 100, NULL, NULL,
     "times the rate; matrices and embeddings only", false},
    {"optimizer.clip", BP_OPTION_REAL, "1.0", 0, 1e12, NULL, NULL,
     "largest norm of the whole gradient; 0: no clipping", false},
    {"optimizer.momentum", BP_OPTION_REAL, "0.9", 0, 0.999999, NULL, NULL, "SGD: momentum", false},
    END,
};

static bool is(const bp_config *config, const char *key, const char *value)
{
    return strcmp(bp_config_string(config, key), value) == 0;
}

bp_engine_spec bp_engine_spec_of(const bp_config *config)
{
    return (bp_engine_spec){
        .seed = (uint64_t)bp_config_int(config, "run.seed"),
        .dropout = (float)bp_config_real(config, "model.dropout"),
        .batch = bp_config_int(config, "train.batch"),
        .micro_batch = bp_config_int(config, "mesh.micro_batch"),
        .schedule = is(config, "mesh.schedule", "gpipe") ? BP_GPIPE : BP_1F1B,
        .overlap = bp_config_bool(config, "mesh.overlap"),
        .tree = is(config, "train.reduction", "tree"),
        .recompute = bp_config_bool(config, "train.recompute"),
        .digest_every = bp_config_int(config, "train.digest_every"),
        .optimizer = {.kind = is(config, "optimizer.kind", "sgd") ? BP_SGD : BP_ADAMW,
                      .beta1 = bp_config_real(config, "optimizer.beta1"),
                      .beta2 = bp_config_real(config, "optimizer.beta2"),
                      .epsilon = bp_config_real(config, "optimizer.epsilon"),
                      .weight_decay = bp_config_real(config, "optimizer.weight_decay"),
                      .clip = bp_config_real(config, "optimizer.clip"),
                      .momentum = bp_config_real(config, "optimizer.momentum")},
        .rate = {.peak = bp_config_real(config, "optimizer.lr"),
                 .warmup = bp_config_int(config, "optimizer.warmup"),
                 .steps = bp_config_int(config, "train.steps"),
                 .decay = is(config, "optimizer.decay", "cosine")   ? BP_DECAY_COSINE
                          : is(config, "optimizer.decay", "linear") ? BP_DECAY_LINEAR
                                                                    : BP_DECAY_CONSTANT},
    };
}

double bp_rate_at(const bp_rate *rate, int64_t step)
{
    double u;

    if (step <= rate->warmup)
        return rate->peak * (double)step / (double)rate->warmup;
    if (rate->decay == BP_DECAY_CONSTANT)
        return rate->peak;
    u = (double)(step - 1 - rate->warmup) / (double)(rate->steps - rate->warmup);
    return rate->decay == BP_DECAY_LINEAR ? rate->peak * (1 - u)
                                          : rate->peak * (1 + cos(M_PI * u)) / 2;
}
