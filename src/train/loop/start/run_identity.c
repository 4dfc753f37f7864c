/* What makes two starts of a training the same run, and what a later one may change. Called by
 * pretrain.c. */
#include "train/loop/start/run_identity.h"

#include "base/mem.h"
#include "math/math.h"
#include "mesh/mesh.h"
#include "train/loop/parts.h"

#include <stdlib.h>
#include <string.h>

static bool is_power_of_two(long long n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

/* Chunks deal blocks out to stages in another way, and stages add up the gradient's norm. Values
 * that are rounded on their way between data ranks depend on how many there are. The bits of a
 * learner are the same on any mesh. */
bool bp_trainer_keeps_bits(const bp_config *config, const char *key, const char *before,
                           const char *now)
{
    bool chunks = strcmp(bp_mesh_keys_of(config)->schedule, "interleaved") == 0;
    bool tree = strcmp(bp_train_keys_of(config)->reduction, "tree") == 0 &&
                strcmp(bp_mesh_keys_of(config)->sums, "float32") == 0;
    const bp_model_family *family = bp_model_family_find(bp_model_keys_of(config)->kind);

    if (family && family->learner)
        return true;
    if (strcmp(key, "mesh.schedule") == 0)
        return !chunks && strcmp(before, "interleaved") != 0;
    if (strcmp(key, "mesh.chunks") == 0)
        return !chunks;
    if (strcmp(key, "mesh.sequence_parallel") == 0)
        return bp_mesh_keys_of(config)->tensor == 1 ||
               (strcmp(before, "no") == 0) == (strcmp(now, "no") == 0);
    if (strcmp(key, "mesh.expert") == 0)
        return tree && is_power_of_two(bp_mesh_keys_of(config)->data);
    return strcmp(key, "mesh.data") == 0 && tree && is_power_of_two(strtoll(before, NULL, 10)) &&
           is_power_of_two(strtoll(now, NULL, 10));
}

/* Keys that belong to no part; an ensemble has all of them, pretrain lacks those of ensembles. */
static const char *const MAY_CHANGE[] = {
    "run.dir",           "mesh.members",      "ensemble.members",   "ensemble.only",
    "ensemble.parallel", "train.steps",       "train.epochs",       "train.patience",
    "train.log_every",   "train.valid_every", "train.digest_every", "checkpoint.every",
    "checkpoint.keep",   "checkpoint.async",  "corpus.valid",       NULL};

/* Appends a list to another. */
static void add_keys(const char *out[TRAINER_MAY_CHANGE], int *count, const char *const *keys)
{
    for (; keys && *keys; keys++) {
        BP_ASSERT(*count < TRAINER_MAY_CHANGE - 1);
        out[(*count)++] = *keys;
    }
    out[*count] = NULL;
}

void bp_trainer_may_change(const char *out[TRAINER_MAY_CHANGE],
                           const bp_training_part *const *parts)
{
    int count = 0;

    add_keys(out, &count, MAY_CHANGE);
    for (; *parts; parts++)
        add_keys(out, &count, (*parts)->may_change);
}

/* A hash of the names of outcomes, in their order; "" without outcomes. */
static void hash_labels(const trainer *self, char hash[BP_SHA256_HEX])
{
    char *text = self->outcome_names ? bp_json_line(self->outcome_names) : NULL;

    hash[0] = '\0';
    if (text)
        bp_sha256_of(text, strlen(text), hash);
    bp_free(text);
}

/* What makes two runs the same run. */
bp_err trainer_open_run(trainer *self)
{
    static const char *const OTHER_BITS[] = {"mesh.*", "math.threads", NULL};
    static const char *const NEW_RUN[] = {"optimizer.*", "train.*",       "corpus.*", "run.seed",
                                          "run.member",  "model.dropout", NULL};
    const char *may_change[TRAINER_MAY_CHANGE];
    char labels_hash[BP_SHA256_HEX];
    bp_run_identity identities[] = {{"corpus.train", self->facts.hash},
                                    {"tokenizer.path", self->facts.tokenizer_hash},
                                    {"model.init", self->start.init_digest},
                                    {"task.labels", labels_hash},
                                    {NULL, NULL}};
    json_t *extra = json_pack("{s:s, s:s, s:i, s:I, s:I}", "math_library", bp_math_library(), "cpu",
                              bp_math_cpu(), "threads", bp_math_threads(), "parameters",
                              (json_int_t)bp_model_parameters(&self->shape), "steps",
                              (json_int_t)self->spec.rate.steps);
    if (self->shape.adapter.kind != BP_ADAPTER_NONE)
        (void)json_object_set_new(
            extra, "parameters_trained",
            json_integer((json_int_t)bp_model_trained_parameters(&self->shape)));
    bp_run_spec spec = {.job = bp_task_is_asked(self->config) ? "finetune" : "pretrain",
                        .trains = true,
                        .may_change = may_change,
                        .new_run_may = NEW_RUN,
                        .other_bits = OTHER_BITS,
                        .keeps_bits = bp_trainer_keeps_bits,
                        .identities = identities,
                        .extra = extra};
    bp_err err;

    hash_labels(self, labels_hash);
    bp_trainer_may_change(may_change, self->parts);
    parts_describe_run(self, &spec);
    err = bp_run_open(&self->run, self->mesh, self->config, &spec);
    json_decref(extra);
    return err;
}
