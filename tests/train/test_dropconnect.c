/* DropConnect through the engine: gradients of masked weights against finite differences of the
 * loss, masks against their definition, and none outside training. */
#include "bp_test_mpi.h"
#include "math/math.h"

#include "base/files/hash.h"
#include "base/rng.h"
#include "mesh/collective.h"
#include "models/list.h"
#include "models/network/dropconnect.h"
#include "train/engine/engine.h"

#include <math.h>
#include <string.h>

#define WORLD   MPI_COMM_WORLD
#define WINDOWS 4
#define LENGTH  6
#define RATE    0.4F
#define SEED    11

static const bp_model_shape SHAPE = {.family = &bp_gpt_family,
                                     .layers = 2,
                                     .width = 16,
                                     .heads = 2,
                                     .context = LENGTH,
                                     .vocab_size = 23};

typedef struct fixture {
    bp_mesh *mesh;
    bp_engine *engine;
    bp_slice *slices; /* of all parameters, here */
    int64_t slice_count;
    int32_t tokens[WINDOWS * LENGTH + 1];
} fixture;

/* Gradient descent of the rate 1: a step takes the gradient off the weights. */
static void make(fixture *f, float rate)
{
    bp_engine_spec spec = {.seed = SEED,
                           .dropconnect = rate,
                           .micro_batch = 2,
                           .batch = WINDOWS,
                           .tree = true,
                           .optimizer = {.kind = BP_SGD},
                           .rate = {.peak = 1, .steps = 9, .decay = BP_DECAY_CONSTANT}};
    bp_mesh_shape on = {1, 1, 1, bp_comm_size(WORLD), BP_COORDINATOR_SHARED};

    memset(f, 0, sizeof *f);
    bp_test_check_err(WORLD, bp_mesh_new(&f->mesh, WORLD, &on), BP_OK);
    bp_test_check_err(WORLD, bp_engine_new(&f->engine, f->mesh, &spec, &SHAPE), BP_OK);
    bp_engine_initialise(f->engine);
    f->slices = bp_engine_slices_to_load(f->engine, BP_LOAD_MODEL, &f->slice_count);
    for (int k = 0; k <= WINDOWS * LENGTH; k++)
        f->tokens[k] = (k * k * 5 + k) % 23;
}

static void clear(fixture *f)
{
    bp_free(f->slices);
    bp_engine_free(&f->engine);
    bp_mesh_free(&f->mesh);
}

static bp_batch batch_of(fixture *f)
{
    return bp_batch_of_positions(WINDOWS, LENGTH, f->tokens, f->tokens + 1);
}

/* Step `step` from what the slices hold. */
static double loss_of(fixture *f, int64_t step)
{
    bp_batch batch = batch_of(f);
    bp_step_result result;

    bp_engine_loaded(f->engine);
    bp_engine_step(f->engine, step, 1, &batch, &result);
    bp_free(bp_engine_slices_to_load(f->engine, BP_LOAD_MODEL, &f->slice_count)); /* it waits */
    return result.loss;
}

static int64_t floats_of(const bp_slice *slice)
{
    return slice->extent[0] * (slice->dims == 2 ? slice->extent[1] : 1);
}

static float **copy_of(const fixture *f)
{
    float **copy = bp_alloc("test", f->slice_count, sizeof *copy);

    for (int64_t k = 0; k < f->slice_count; k++) {
        copy[k] = bp_alloc("test", floats_of(&f->slices[k]), sizeof(float));
        memcpy(copy[k], f->slices[k].data, (size_t)floats_of(&f->slices[k]) * sizeof(float));
    }
    return copy;
}

static void put(const fixture *f, float *const *copy)
{
    for (int64_t k = 0; k < f->slice_count; k++)
        memcpy(f->slices[k].data, copy[k], (size_t)floats_of(&f->slices[k]) * sizeof(float));
}

static void free_copy(const fixture *f, float **copy)
{
    for (int64_t k = 0; k < f->slice_count; k++)
        bp_free(copy[k]);
    bp_free(copy);
}

static bool is_dropped(const bp_slice *slice, int64_t i, int64_t step)
{
    bp_rng_key key = bp_rng_key_of(SEED, BP_RNG_DROPOUT, -1, step,
                                   (int64_t)bp_xxh3(slice->name, strlen(slice->name)));
    uint64_t place = (uint64_t)((slice->offset[0] + i / slice->extent[1]) * slice->shape[1] +
                                slice->offset[1] + i % slice->extent[1]);
    uint32_t words[4];

    bp_rng_block(words, &key, place / 4);
    return (double)words[place % 4] < (double)RATE * 4294967296.0;
}

static bool is_weight(const bp_slice *slice)
{
    return slice->dims == 2 && strncmp(slice->name, "h.", 2) == 0;
}

static void gradients_are_finite_differences(void **state)
{
    const float h = 1.5e-3F;
    fixture f;

    (void)state;
    make(&f, RATE);
    float **before = copy_of(&f);
    for (int64_t k = 0; k < f.slice_count; k++) /* of all tensors a place with a large slope */
        for (int64_t i = 0; i < floats_of(&f.slices[k]); i++)
            before[k][i] *= is_weight(&f.slices[k]) ? 8 : 1;
    put(&f, before);
    (void)loss_of(&f, 3);
    float **after = copy_of(&f);
    for (int64_t k = 0; k < f.slice_count && bp_comm_size(WORLD) == 1; k++) {
        int64_t place = 0;
        double side[4]; /* of two central differences, whose errors in h^2 cancel */

        for (int64_t i = 0; i < floats_of(&f.slices[k]); i++)
            if (fabsf(before[k][i] - after[k][i]) > fabsf(before[k][place] - after[k][place]))
                place = i;
        for (int s = 0; s < 4; s++) {
            put(&f, before);
            ((float *)f.slices[k].data)[place] += (float)(s / 2 + 1) * (s % 2 ? h : -h);
            side[s] = loss_of(&f, 3);
        }
        double slope = (double)before[k][place] - (double)after[k][place];
        double found = (8 * (side[1] - side[0]) - (side[3] - side[2])) / (12 * (double)h);
        if (fabs(found - slope) > 5e-3 * fabs(slope) + 2e-4)
            print_error("%s: %g, not %g\n", f.slices[k].name, slope, found);
        bp_test_check(WORLD, fabs(found - slope) <= 5e-3 * fabs(slope) + 2e-4);
    }
    free_copy(&f, before);
    free_copy(&f, after);
    clear(&f);
}

/* A weight is dropped in the steps of its mask, and has no slope then: on all tensor ranks. */
static void masks_are_functions_of_step_and_place(void **state)
{
    fixture f;
    int64_t counts[2] = {0, 0};
    bool right = true;

    (void)state;
    make(&f, RATE);
    float **before = copy_of(&f);
    for (int64_t step = 1; step <= 2; step++) {
        put(&f, before);
        (void)loss_of(&f, step);
        for (int64_t k = 0; k < f.slice_count; k++)
            for (int64_t i = 0; i < floats_of(&f.slices[k]) && is_weight(&f.slices[k]); i++) {
                bool dropped = is_dropped(&f.slices[k], i, step);

                counts[0]++;
                counts[1] += dropped;
                right = right && (!dropped || ((const float *)f.slices[k].data)[i] == before[k][i]);
            }
    }
    bp_test_check(WORLD, right);
    double spread = sqrt((double)counts[0] * (double)RATE * (1 - (double)RATE));
    bp_test_check(WORLD, counts[0] > 5000 / bp_comm_size(WORLD));
    bp_test_check(WORLD, fabs((double)counts[1] - (double)counts[0] * (double)RATE) < 4 * spread);
    free_copy(&f, before);
    clear(&f);
}

static void outside_training_nothing_is_dropped(void **state)
{
    double losses[2][BP_TERMS], first = 0;
    int64_t counts[2][BP_TERMS];
    float rates[2] = {0, RATE};

    (void)state;
    for (int k = 0; k < 2; k++) {
        fixture f;

        make(&f, rates[k]);
        bp_batch batch = batch_of(&f), part = bp_batch_part(&batch, 0, 2);
        bp_step_result result;
        float **before = copy_of(&f);

        bp_engine_step(f.engine, 1, 1, &batch, &result); /* leaves masked weights behind */
        put(&f, before);
        bp_engine_loaded(f.engine);
        bp_engine_evaluate(f.engine, &(bp_evaluation){.batch = &part}, losses[k], counts[k]);
        bp_test_check(WORLD, k == 0 || result.loss != first);
        first = result.loss;
        free_copy(&f, before);
        clear(&f);
    }
    bp_test_check(WORLD, losses[0][0] == losses[1][0] && losses[0][0] > 0);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_finite_differences),
        cmocka_unit_test(masks_are_functions_of_step_and_place),
        cmocka_unit_test(outside_training_nothing_is_dropped),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
