/* An ensemble takes the memory that was planned for its batches: not more, and for the largest
 * batch as much, on random amounts of score.memory, vocabularies' shares, batches and all meshes.
 */
#define WORLD_VOCABULARY 1031
#define WORLD_SCALE      1
#include "bp_test_mpi.h"

#include "ensemble_world.h"

#include "base/rng.h"
#include "infer/ensemble/ensemble_priv.h"
#include "uncertainty/methods/passes.h"

#define WORLD MPI_COMM_WORLD

enum { CASES = 12, BATCHES = 2, WINDOWS_MAX = 20 }; /* few: ranks share cores */

static uint64_t drawn; /* how often */

/* A number from least to most, the same on all ranks. */
static int64_t draw(int64_t least, int64_t most)
{
    bp_rng_key key = bp_rng_key_of(20261125, BP_RNG_TEST, 0, 0, 0);

    return least + bp_rng_below(&key, drawn++, most - least + 1);
}

/* A batch, of which all or some tokens are scored, by both ways of summing. */
static void take(bp_model *model, int64_t windows, int64_t length, bool all)
{
    static int32_t inputs[WINDOWS_MAX * CONTEXT], targets[WINDOWS_MAX * CONTEXT];
    bp_model_batch batch = {
        .windows = windows, .length = length, .inputs = inputs, .targets = targets};
    float *values = bp_alloc("test", windows * length * model->info.statistics, sizeof *values);
    bp_scaled_sums sums = {0};

    for (int64_t i = 0; i < windows * length; i++) {
        inputs[i] = (int32_t)draw(0, V - 1);
        targets[i] = all || draw(0, 2) > 0 ? (int32_t)draw(0, V - 1) : -1;
    }
    bp_test_check_err(WORLD, bp_model_score(model, &batch, values), BP_OK);
    bp_test_check_err(WORLD, bp_ensemble_add_scaled(model, &batch, &sums), BP_OK);
    bp_free(values);
}

static void hold(const bp_ensemble_spec *spec, const bp_mesh_shape *on)
{
    int64_t windows = draw(1, WINDOWS_MAX), length = draw(1, CONTEXT);
    bp_model_memory model = {.width = 16, .context = CONTEXT, .vocab_size = V};
    world_ensemble e;

    bp_test_check_err(WORLD, open_ensemble(&e, WORLD, on, spec), BP_OK);
    const ensemble *inside = (const ensemble *)e.model;
    int64_t planned = bp_ensemble_work_bytes(&model, on, inside->member_count, windows * length,
                                             (int64_t)spec->memory_bytes, spec->sets);
    for (int k = 0; k < BATCHES; k++)
        take(e.model, draw(1, windows), draw(1, length), false);
    take(e.model, windows, length, true);

    /* another rank may have more columns and one backbone more */
    int64_t taken = (int64_t)inside->memory_size_bytes;
    bool right = taken <= planned && (!ensemble_is_last(inside) || planned <= 2 * taken + 65536);
    if (!right)
        print_error("%lld bytes are planned, %lld taken: %d members of %lld side by side, %d "
                    "stages, tensor %d, %lld x %lld tokens, score.memory %zu\n",
                    (long long)planned, (long long)taken, on->members,
                    (long long)inside->member_count, on->pipeline, on->tensor, (long long)windows,
                    (long long)length, spec->memory_bytes);
    bp_test_check(WORLD, right);
    close_ensemble(&e);
}

static void batches_take_what_is_planned(void **state)
{
    int count;
    const bp_mesh_shape *meshes = world_meshes(&count);
    const bp_conformal_rule rule = {.threshold = {0.9, 0.9, 0.9}};

    (void)state;
    make_world();
    for (int k = 0; k < CASES; k++) {
        bp_ensemble_spec spec = {.path = bp_test_path(k % 3 == 0   ? "three"
                                                      : k % 3 == 1 ? "copies"
                                                                   : "b"),
                                 .memory_bytes = (size_t)draw(1, 64) << draw(15, 20),
                                 .sets = k % 2 == 0 ? &rule : NULL,
                                 .temperature = k % 4 < 2 ? 1.5 : 0};

        bp_passes passes = {{&bp_dropout_sampler, 0}, 0.1F, 3};

        if (k % 3 == 2) {
            passes.sampler.count = draw(1, 9);
            spec.sampler = &passes.sampler;
        }
        hold(&spec, &meshes[draw(0, count - 1)]);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(batches_take_what_is_planned)};
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
