/* Steps of a part of the model: those of a small model with the same weights, to the bit, which
 * leave all other weights as they are. */
#include "bp_test_mpi.h"
#include "math/math.h"

#include "bp_test_perturb.h"
#include "mesh/collective.h"
#include "models/list.h"
#include "train/engine/engine.h"

#include <math.h>
#include <string.h>

#define WORLD   MPI_COMM_WORLD
#define WINDOWS 4
#define LENGTH  6

static const bp_model_shape WHOLE = {.family = &bp_gpt_family,
                                     .layers = 3,
                                     .width = 12,
                                     .heads = 3,
                                     .context = LENGTH,
                                     .vocab_size = 23,
                                     .stack = {.inner = 20}},
                            PART = {.family = &bp_gpt_family,
                                    .layers = 2,
                                    .width = 8,
                                    .heads = 2,
                                    .context = LENGTH,
                                    .vocab_size = 23,
                                    .stack = {.inner = 12}};

typedef struct fixture {
    bp_mesh *mesh;
    bp_engine *engine;
    bp_model_shape shape;
    int32_t tokens[WINDOWS * LENGTH + 1];
} fixture;

/* Gradient descent, a step of which takes the gradient times the rate off the weights. */
static void make(fixture *f, const bp_model_shape *shape)
{
    bp_engine_spec spec = {.seed = 3,
                           .micro_batch = 2,
                           .batch = WINDOWS,
                           .tree = true,
                           .optimizer = {.kind = BP_SGD},
                           .rate = {.peak = 0.5, .steps = 9, .decay = BP_DECAY_CONSTANT}};
    bp_mesh_shape on = {1, 1, bp_comm_size(WORLD), 1, BP_COORDINATOR_SHARED};

    memset(f, 0, sizeof *f);
    f->shape = *shape;
    bp_test_check_err(WORLD, bp_mesh_new(&f->mesh, WORLD, &on), BP_OK);
    bp_test_check_err(WORLD, bp_engine_new(&f->engine, f->mesh, &spec, &f->shape), BP_OK);
    bp_engine_initialise(f->engine);
    bp_test_perturb(bp_engine_network(f->engine), 5, 0.3F);
    bp_network_refresh(bp_engine_network(f->engine));
    for (int k = 0; k <= WINDOWS * LENGTH; k++)
        f->tokens[k] = (k * k * 5 + k) % 23;
}

static void clear(fixture *f)
{
    bp_engine_free(&f->engine);
    bp_mesh_free(&f->mesh);
}

static bp_batch batch_of(const fixture *f)
{
    int64_t first, count;

    bp_engine_slots(f->engine, &first, &count);
    return bp_batch_of_positions(count, LENGTH, f->tokens + first * LENGTH,
                                 f->tokens + 1 + first * LENGTH);
}

static const bp_param *find(const fixture *f, const char *name)
{
    const bp_network *network = bp_engine_network(f->engine);

    for (int g = 0; g < network->group_count; g++)
        for (int k = 0; k < network->groups[g].count; k++)
            if (strcmp(network->groups[g].params[k].name, name) == 0)
                return &network->groups[g].params[k];
    return NULL;
}

static int64_t columns_of(const bp_param *param)
{
    return param->dims == 2 ? param->extent[1] : 1;
}

/* Call `check` for each place of each tensor of the whole model: `small` is where the part has it,
 * NULL outside. */
static int64_t for_each(const fixture *whole, const fixture *part,
                        int64_t (*check)(float *value, float *small))
{
    const bp_network *network = bp_engine_network(whole->engine);
    int64_t sum = 0;

    for (int g = 0; g < network->group_count; g++)
        for (int k = 0; k < network->groups[g].count; k++) {
            const bp_param *of = &network->groups[g].params[k], *in = find(part, of->name);

            for (int64_t i = 0; i < bp_param_floats(of); i++) {
                int64_t r = i / columns_of(of), c = i % columns_of(of);
                bool inside = in && r < in->extent[0] && c < columns_of(in);

                sum += check(&of->value[i], inside ? &in->value[r * columns_of(in) + c] : NULL);
            }
        }
    return sum;
}

static int64_t take(float *value, float *small)
{
    if (small)
        *small = *value;
    return small != NULL;
}

static int64_t differs(float *value, float *small)
{
    return small && memcmp(value, small, sizeof *value) != 0;
}

static bp_step_result step_of(fixture *f, int64_t step)
{
    bp_batch batch = batch_of(f);
    bp_step_result result;

    bp_engine_step(f->engine, step, step, &batch, &result);
    (void)bp_engine_network(f->engine); /* it waits */
    return result;
}

static float *values_of(const fixture *f)
{
    const bp_network *network = bp_engine_network(f->engine);
    float *copy = bp_alloc("test", network->floats, sizeof *copy);

    memcpy(copy, network->groups[0].params[0].value, (size_t)network->floats * sizeof *copy);
    return copy;
}

static void a_step_is_that_of_the_small_model(void **state)
{
    fixture whole, part;
    bp_step_result one, other;

    (void)state;
    make(&whole, &WHOLE);
    make(&part, &PART);
    int64_t inside = for_each(&whole, &part, take);
    bp_network_refresh(bp_engine_network(part.engine));
    float *before = values_of(&whole);
    bp_test_check_err(WORLD, bp_engine_take_part(whole.engine, &part.shape), BP_OK);
    one = step_of(&whole, 1);
    other = step_of(&part, 1);
    bp_test_check(WORLD, inside == bp_model_parameters(&part.shape));
    bp_test_check(WORLD,
                  one.loss == other.loss && fabs(one.grad_norm / other.grad_norm - 1) < 1e-12);
    bp_test_check(WORLD, for_each(&whole, &part, differs) == 0);

    /* and as many positions have changed as the part has with a gradient */
    float *after = values_of(&whole);
    int64_t changed = 0;
    for (int64_t i = 0; i < bp_engine_network(whole.engine)->floats; i++)
        changed += before[i] != after[i];
    bp_test_check(WORLD, changed <= inside && changed > inside * 9 / 10);
    bp_free(before);
    bp_free(after);
    clear(&whole);
    clear(&part);
}

static void the_whole_is_a_part_and_the_next_step_is_whole(void **state)
{
    fixture plain, taken;

    (void)state;
    make(&plain, &WHOLE);
    make(&taken, &WHOLE);
    for (int64_t step = 1; step <= 3; step++) {
        if (step < 3) /* a step drops it */
            bp_test_check_err(WORLD, bp_engine_take_part(taken.engine, &taken.shape), BP_OK);
        bp_step_result one = step_of(&plain, step), other = step_of(&taken, step);

        bp_test_check(WORLD, one.loss == other.loss && one.grad_norm == other.grad_norm);
        bp_test_check(WORLD, for_each(&plain, &taken, differs) == 0);
    }
    clear(&plain);
    clear(&taken);
}

static void evaluations_are_those_of_the_small_model(void **state)
{
    fixture whole, part;
    double loss[BP_TERMS], other[BP_TERMS];
    int64_t count[BP_TERMS];

    (void)state;
    make(&whole, &WHOLE);
    make(&part, &PART);
    (void)for_each(&whole, &part, take);
    bp_network_refresh(bp_engine_network(part.engine));
    bp_batch batch = batch_of(&whole);
    batch.B = 2;
    bp_test_check_err(WORLD, bp_engine_take_part(whole.engine, &part.shape), BP_OK);
    bp_engine_evaluate(whole.engine, &(bp_evaluation){.batch = &batch}, loss, count);
    bp_engine_evaluate(part.engine, &(bp_evaluation){.batch = &batch}, other, count);
    bp_test_check(WORLD, loss[0] == other[0] && count[0] > 0);
    bp_test_check_err(WORLD, bp_engine_take_part(whole.engine, NULL), BP_OK);
    bp_engine_evaluate(whole.engine, &(bp_evaluation){.batch = &batch}, loss, count);
    bp_test_check(WORLD, loss[0] != other[0]);
    clear(&whole);
    clear(&part);
}

static void a_larger_model_is_refused(void **state)
{
    fixture part;
    bp_model_shape shape = WHOLE;

    (void)state;
    make(&part, &PART);
    shape.stack.head_width = 4;
    bp_test_check_err(WORLD, bp_engine_take_part(part.engine, &shape), BP_ERR_CONFIG);
    clear(&part);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_that_of_the_small_model),
        cmocka_unit_test(the_whole_is_a_part_and_the_next_step_is_whole),
        cmocka_unit_test(evaluations_are_those_of_the_small_model),
        cmocka_unit_test(a_larger_model_is_refused),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
