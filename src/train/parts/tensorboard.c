/* train.tensorboard: metrics as event files of TensorBoard, which the run folder writes. Called by
 * jobs/ensemble.c, jobs/finetune.c and jobs/pretrain.c. */
#include "train/parts/list.h"

#include "train/loop/trainer.h"

typedef struct tensorboard_keys {
    bool on;
} tensorboard_keys;

const bp_option training_tensorboard_options[] = {
    {BP_BOOL_KEY("train.tensorboard", "no"),
     .help = "write the figures of metrics.jsonl into run.dir/tensorboard too: tensorboard "
             "--logdir RUN",
     .at = BP_AT(tensorboard_keys, on)},
    {.key = NULL},
};

static void describe_run(const trainer *self, const void *own, bp_run_spec *spec)
{
    const tensorboard_keys *keys = bp_config_bound(self->config, training_tensorboard_options);

    (void)own;
    spec->tensorboard = keys->on;
}

static const char *const MAY_CHANGE[] = {"train.tensorboard", NULL};

const bp_training_part training_tensorboard = {
    .name = "tensorboard", .may_change = MAY_CHANGE, .describe_run = describe_run};
