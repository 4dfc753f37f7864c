/* Trainings by a learner (models/learner.h): what takes the engine's place. Each data rank reads
 * all slots of a batch. Called by steps.c. */
#include "train/loop/learning.h"

#include "base/mem.h"
#include "data/corpus.h"
#include "mesh/collective.h"
#include "train/loop/commit.h"

#include <math.h>

int64_t bp_trainer_slots(const trainer *self, const bp_engine_spec *spec, int data_ranks)
{
    return trainer_learner(self) ? spec->batch : spec->batch / data_ranks;
}

static bp_err read_stream(void *context, int64_t first, int64_t count, int32_t *tokens)
{
    return bp_stream_read(((trainer *)context)->data.stream, first, count, tokens);
}

bp_err trainer_learner_open(trainer *self)
{
    const bp_learner_ops *ops = trainer_learner(self);
    const bp_learner_spec spec = {.comm = self->mesh->compute,
                                  .config = self->config,
                                  .shape = &self->shape,
                                  .eod_id = self->facts.eod_id,
                                  .seed = self->spec.seed};
    const bp_learner_stream stream = {.tokens = self->facts.tokens,
                                      .read = read_stream,
                                      .context = self,
                                      .where = bp_corpus_keys_of(self->config)->train};
    bp_err err = ops->new (&self->learner, &spec);

    if (err == BP_OK && !self->start.resumes)
        err = ops->survey(self->learner, &stream);
    return err;
}

/* The whole state of this run, or what model.init has to begin with. */
static bp_err load(trainer *self)
{
    const bp_learner_ops *ops = trainer_learner(self);
    bp_slice *slices = NULL;
    int64_t count = 0;
    bp_err err;

    if (self->learner)
        slices = self->start.resumes
                     ? ops->slices(self->learner, &count)
                     : ops->slices_to_begin(self->learner, self->start.source, &count);
    err = bp_checkpoint_load(self->start.source, slices, count);
    if (err == BP_OK && self->start.resumes)
        err = bp_checkpoint_check_digests(self->start.source, slices, count);
    bp_free(slices);
    return err;
}

bp_err trainer_learner_load(trainer *self)
{
    const bp_learner_ops *ops = trainer_learner(self);
    bp_err err = BP_OK;

    if (self->learner && !self->start.resumes)
        ops->initialise(self->learner);
    if (self->start.source)
        err = load(self);
    if (err == BP_OK && self->start.resumes)
        err = bp_agree(self->mesh->world, self->learner ? ops->loaded(self->learner) : BP_OK);
    return err;
}

bp_err trainer_learner_check(trainer *self)
{
    int64_t count, bad = 0;
    bp_slice *slices = trainer_learner(self)->slices(self->learner, &count);

    for (int64_t k = 0; k < count; k++)
        bad |= !bp_are_finite(slices[k].data, bp_slices_floats(&slices[k], 1));
    bp_free(slices);
    if (bp_all_max_int(bad, self->mesh->compute) == 0)
        return BP_OK;
    return trainer_diverged(self, self->progress.step, "a vector is not finite");
}

bp_err trainer_learn(trainer *self, const bp_batch *batch, bp_step_result *result)
{
    int64_t step = self->progress.step + 1;
    double rate = bp_rate_at(&self->spec.rate, step);
    bp_learner_loss loss;

    trainer_learner(self)->run(self->learner, batch,
                               &(bp_learner_pass){.step = step, .rate = (float)rate}, &loss);
    *result = (bp_step_result){.loss = loss.count > 0 ? loss.sum / (double)loss.count : NAN,
                               .grad_norm = NAN,
                               .rate = rate};
    if (isfinite(loss.sum))
        return BP_OK;
    return trainer_diverged(self, step, "its loss is not finite");
}
