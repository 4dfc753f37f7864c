/* The speed of matrix products on this host: a training's time is estimated by it, and mfu. Called
 * by start/setup.c, and for --plan by pretrain.c and the ensemble's plan. */
#include "train/loop/memory/peak.h"

#include "base/process/clock.h"
#include "math/math.h"
#include "math/threads.h"
#include "mesh/collective.h"

#define PEAK_SECONDS 0.2  /* at most, and no more than */
#define PEAK_SHARE   0.02 /* of the time that the training takes at */
#define SLOW_FLOPS   1e10

/* How many threads take turns on one core here. */
static double turns(void)
{
    int threads = bp_math_threads(), cores = bp_math_cores();

    return threads > cores ? (double)threads / cores : 1;
}

void bp_trainer_measure_peak(trainer *self)
{
    double tokens = (double)(self->spec.rate.steps * self->spec.batch * self->shape.context),
           all = tokens * bp_model_train_flops(&self->shape) / SLOW_FLOPS;
    double seconds = PEAK_SHARE * all < PEAK_SECONDS ? PEAK_SHARE * all : PEAK_SECONDS;
    double wall = bp_clock_now(), busy = bp_clock_process();

    self->estimate.peak = bp_math_gemm_peak(self->spec.precision, seconds);
    wall = bp_clock_now() - wall;
    self->estimate.cores = (bp_clock_process() - busy) / (wall * bp_math_threads() / turns());
}

void bp_trainer_plan_peak(trainer *self, const bp_planned_world *asked)
{
    const bp_mesh_shape *mesh = &self->mesh_shape;

    bp_trainer_measure_peak(self);
    if (asked->ranks > 0)
        self->estimate.peak *= turns();
    self->estimate.peak *= mesh->pipeline * mesh->data * mesh->tensor;
}

void trainer_measure_peaks(trainer *self)
{
    const bp_mesh *mesh = self->mesh;
    double both[2];

    if (mesh->computes) {
        float lacks;

        bp_trainer_measure_peak(self);
        lacks = 1 - (float)self->estimate.cores;
        bp_all_max(&lacks, 1, mesh->compute);
        self->estimate.cores = 1 - lacks;
        bp_all_sum_double(&self->estimate.peak, 1, mesh->compute);
    }
    both[0] = self->estimate.peak;
    both[1] = self->estimate.cores;
    bp_bcast_bytes(both, sizeof both, bp_comm_size(mesh->world) - 1, mesh->world);
    self->estimate.peak = both[0];
    self->estimate.cores = both[1];
}
