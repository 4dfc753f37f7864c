/* How many steps a training has. */
#include "train/trainer_priv.h"

#include "base/log.h"
#include "base/mem.h"
#include "mesh/collective.h"

#include <inttypes.h>
#include <stdlib.h>

static int64_t steps_of_epochs(const trainer *self, double epochs)
{
    return bp_epoch_steps(epochs, self->epoch_windows, self->spec.batch);
}

void trainer_find_steps(trainer *self)
{
    if (self->mesh->coordinates)
        self->epoch_windows = bp_stream_corpus_windows(self->stream, self->shape.context);
    bp_bcast_bytes(&self->epoch_windows, sizeof self->epoch_windows, 0, self->mesh->world);
    if (bp_config_is_set(self->config, "train.epochs"))
        self->spec.rate.steps = steps_of_epochs(self, bp_config_real(self->config, "train.epochs"));
}

void trainer_say_steps(const trainer *self)
{
    const bp_config *config = self->config;

    if (bp_config_is_set(config, "train.epochs"))
        bp_log("train.epochs = %g: %" PRId64 " steps, an epoch has %" PRId64
               " windows in batches of "
               "%" PRId64,
               bp_config_real(config, "train.epochs"), self->spec.rate.steps, self->epoch_windows,
               self->spec.batch);
}
