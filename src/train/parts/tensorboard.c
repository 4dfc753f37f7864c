/* train.tensorboard: metrics as event files of TensorBoard, which the run folder writes. */
#include "train/parts/list.h"

#include "train/loop/trainer.h"

static void describe_run(const trainer *self, const void *own, bp_run_spec *spec)
{
    (void)own;
    spec->tensorboard = bp_train_keys_of(self->config)->tensorboard;
}

const bp_training_part training_tensorboard = {.name = "tensorboard", .describe_run = describe_run};
