/* The gradient of a mixed cell's architecture, first and second order, is the slope of what it is
 * of: of the validation loss, and of that after a step of the weights, by central differences. */
#include "bp_test_mpi.h"

#include "models/recurrent/recurrent.h"
#include "train/engine/engine_priv.h"

#include <math.h>
#include <string.h>

#define WORLD MPI_COMM_WORLD

enum { T = 6, B = 16, VOCABULARY = 23, STEP = 1 };
#define RATE  0.3 /* of the step of the weights: the second order is to count */
#define DECAY 0.05

typedef struct fixture {
    bp_mesh *mesh;
    bp_engine *engine;
    bp_batch train, valid;
    int32_t tokens[2][2 * B * T];
    float *memory, *kept;
    float *weights; /* of the architecture; NULL: this rank has none */
    int64_t count;
} fixture;

/* Other tokens for each slot of the whole batch. */
static bp_batch make_batch(int32_t *tokens, int64_t first, int64_t slots, int text)
{
    for (int64_t i = 0; i < slots * T; i++) {
        int64_t at = first * T + i;

        tokens[i] = (int32_t)((at * at * 7 + 11 * at + 5 * text) % VOCABULARY);
        tokens[B * T + i] = (int32_t)((at * 13 + at * at + 3 * text) % VOCABULARY);
    }
    return bp_batch_of_positions(slots, T, tokens, tokens + B * T);
}

static void open_fixture(fixture *f, double clip)
{
    bp_mesh_shape on = {1, 1, bp_comm_size(WORLD), 1, BP_COORDINATOR_SHARED};
    bp_model_shape shape = {.family = &bp_cell_family,
                            .layers = 1,
                            .width = 12,
                            .context = T,
                            .softmaxes = 1,
                            .vocab_size = VOCABULARY};
    bp_engine_spec spec = {.seed = 3,
                           .batch = B,
                           .micro_batch = 8,
                           .schedule = BP_1F1B,
                           .tree = true,
                           .overlap = true,
                           .precision = BP_F32,
                           .optimizer = {.kind = BP_SGD, .weight_decay = DECAY, .clip = clip},
                           .rate = {.peak = RATE, .steps = 10, .decay = BP_DECAY_CONSTANT}};
    int64_t first, slots;

    memset(f, 0, sizeof *f);
    assert_true(bp_pairs_read(bp_recurrent_sizes_in(&shape)->cell, BP_MODEL_PAIRS, "mixed:3",
                              BP_CELL_WORDS));
    shape.family->fill_defaults(&shape);
    bp_test_expect(bp_mesh_new(&f->mesh, WORLD, &on), BP_OK);
    bp_test_check_err(WORLD, bp_engine_new(&f->engine, f->mesh, &spec, &shape), BP_OK);
    bp_engine_initialise(f->engine);
    for (int64_t i = 0; i < f->engine->network->floats; i++) /* so that no gradient is tiny */
        f->engine->values[i] *= 1.5F;
    const bp_param *param = bp_engine_searched(f->engine);
    f->weights = param->value;
    f->count = bp_param_floats(param);
    assert_int_equal(f->count, (1 + 2 + 3) * BP_NODE_OPERATIONS);
    for (int64_t i = 0; i < f->count; i++)
        f->weights[i] = 0.3F * (float)(i % 5 - 2);
    bp_network_refresh(f->engine->network);
    bp_engine_slots(f->engine, &first, &slots);
    f->train = make_batch(f->tokens[0], first, slots, 0);
    f->valid = make_batch(f->tokens[1], first, slots, 1);
    f->memory = bp_alloc("test", bp_engine_search_floats(f->engine), sizeof(float));
    f->kept = bp_alloc("test", f->engine->network->floats, sizeof(float));
    memcpy(f->kept, f->engine->values, (size_t)f->engine->network->floats * sizeof(float));
}

static void close_fixture(fixture *f)
{
    bp_engine_free(&f->engine);
    bp_mesh_free(&f->mesh);
    bp_free(f->memory);
    bp_free(f->kept);
}

/* The architecture stays as it is; its gradient is left in gradient[count]. */
static double search(fixture *f, bool second_order, float *gradient)
{
    double loss;

    bp_engine_search(f->engine,
                     &(bp_architecture_step){.step = STEP,
                                             .train = &f->train,
                                             .valid = &f->valid,
                                             .second_order = second_order,
                                             .memory = f->memory},
                     &loss);
    for (int g = 0; g < f->engine->network->group_count; g++) {
        const bp_group *group = &f->engine->network->groups[g];

        if (group->searched && gradient)
            memcpy(gradient, f->engine->stage->gradient + group->place,
                   (size_t)f->count * sizeof *gradient);
    }
    return loss;
}

/* Nothing but the moments of the architecture is changed. */
static bool is_as_before(const fixture *f)
{
    bool same = true;

    for (int g = 0; g < f->engine->network->group_count; g++) {
        const bp_group *group = &f->engine->network->groups[g];
        int64_t count = group->searched ? f->count : group->floats;

        same = same && memcmp(f->engine->values + group->place, f->kept + group->place,
                              (size_t)count * sizeof(float)) == 0;
    }
    return same;
}

static double norm_of(const float *x, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

/* Of the loss that search() tells, along `direction`. */
static double slope_of(fixture *f, bool second_order, const float *direction)
{
    double norm = norm_of(direction, f->count), loss[2], step = 1e-2;

    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < f->count; i++)
            f->weights[i] = f->kept[f->weights - f->engine->values + i] +
                            (float)((side ? step : -step) * (double)direction[i] / norm);
        bp_network_refresh(f->engine->network);
        loss[side] = search(f, second_order, NULL);
    }
    memcpy(f->weights, f->kept + (f->weights - f->engine->values),
           (size_t)f->count * sizeof *f->weights);
    bp_network_refresh(f->engine->network);
    return (loss[1] - loss[0]) / (2 * step);
}

static bool is_near(const char *what, double slope, double norm, double tolerance)
{
    if (fabs(slope - norm) > tolerance * norm)
        print_error("%s: the slope is %g, the gradient says %g\n", what, slope, norm);
    return fabs(slope - norm) <= tolerance * norm;
}

static void gradients_are_slopes(void **state)
{
    (void)state;
    for (int clipped = 0; clipped < 2; clipped++) {
        float first[64], second[64], between[64];
        double apart;
        fixture f;

        open_fixture(&f, clipped ? 100 : 0); /* a clip that is there, and not reached */
        search(&f, false, first);
        bp_test_check(WORLD, is_as_before(&f));
        search(&f, true, second);
        bp_test_check(WORLD, is_as_before(&f));
        bp_test_check(WORLD, is_near("first order", slope_of(&f, false, first),
                                     norm_of(first, f.count), 1e-2));
        bp_test_check(WORLD, is_near("second order", slope_of(&f, true, second),
                                     norm_of(second, f.count), 3e-2));
        for (int64_t i = 0; i < f.count; i++)
            between[i] = second[i] - first[i];
        apart = norm_of(between, f.count) / norm_of(second, f.count);
        if (apart < 0.1)
            print_error("the second order differs from the first by %g alone\n", apart);
        bp_test_check(WORLD, apart > 0.1);
        close_fixture(&f);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_slopes)};

    return BP_TEST_RUN_MPI(argc, argv, tests);
}
