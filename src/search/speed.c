/* The speed of a model on this machine: a forward pass of one rank, like in validation. Called by
 * search.c for search.limit. */
#include "search/nas.h"

#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/heartbeat.h"
#include "base/sort.h"
#include "math/math.h"
#include "train/engine/engine.h"

#include <string.h>

#define SECONDS 0.2 /* of passes, after one that warms up */
#define REPEATS 200

/* A batch of one micro-batch without padding. Its tokens are all equal: the speed of a dense model
 * does not depend on them. */
static void fill(const bp_batch_form *form, int64_t B, int32_t *bytes)
{
    bp_batch batch = bp_batch_over(form, B, bytes);

    for (int s = 0; s < BP_STREAMS; s++)
        for (int64_t b = 0; batch.stream[s].lengths && b < B; b++)
            ((int32_t *)batch.stream[s].lengths)[b] = (int32_t)batch.stream[s].T;
}

/* The median of repeated passes. */
static double time_passes(bp_engine *engine, const bp_batch *batch)
{
    double loss[BP_TERMS], took[REPEATS], end;
    int64_t count[BP_TERMS], n = 0;

    bp_engine_evaluate(engine, &(bp_evaluation){.batch = batch}, loss, count);
    end = bp_clock_now() + SECONDS;
    while (n < REPEATS && (n < 3 || bp_clock_now() < end)) {
        double began = bp_clock_now();

        bp_engine_evaluate(engine, &(bp_evaluation){.batch = batch}, loss, count);
        took[n++] = bp_clock_now() - began;
        bp_heartbeat_progress();
    }
    bp_sort_reals(took, n);
    return took[n / 2];
}

bp_err nas_measure(const nas *self, const char *settings, const bp_model_shape *shape, double *out)
{
    const bp_mesh_shape alone = {
        .members = 1, .pipeline = 1, .data = 1, .tensor = 1, .coordinator = BP_COORDINATOR_SHARED};
    const nas_training what = {.settings = settings, .folder = ""};
    const bp_example_maker maker = bp_model_objective(shape)->maker(shape, shape->context, NULL);
    bp_config *config = NULL;
    bp_mesh *mesh = NULL;
    bp_engine *engine = NULL;
    bp_engine_spec spec;
    bp_err err = nas_training_config(self, &what, &config);

    if (err != BP_OK)
        return err;
    spec = bp_engine_spec_of(config);
    spec.batch = spec.micro_batch;
    err = bp_math_precision(config, &spec.precision);
    if (err == BP_OK)
        err = bp_mesh_new(&mesh, MPI_COMM_SELF, &alone);
    if (err == BP_OK)
        err = bp_engine_new(&engine, mesh, &spec, shape);
    if (err == BP_OK) {
        int32_t *bytes =
            bp_alloc("search", (int64_t)bp_batch_bytes(&maker.form, spec.micro_batch), 1);
        bp_batch batch = bp_batch_over(&maker.form, spec.micro_batch, bytes);
        int64_t places = 0;

        fill(&maker.form, spec.micro_batch, bytes);
        bp_engine_initialise(engine);
        for (int s = 0; s < BP_STREAMS; s++)
            places += batch.stream[s].T;
        *out = (double)(places * spec.micro_batch) / time_passes(engine, &batch);
        bp_free(bytes);
    }
    bp_engine_free(&engine);
    bp_mesh_free(&mesh);
    bp_config_free(&config);
    return err;
}
