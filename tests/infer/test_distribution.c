/* Whole distributions of rows, in one pass: each outcome's is what `score` gives for it as a
 * target, to the bit, on every mesh, of models of each kind and of ensembles. */
#include "bp_test_mpi.h"

#include "ensemble_world.h"
#include "models/list.h"
#include "models/task/list.h"
#include "nn/core/layers.h"

#define WORLD MPI_COMM_WORLD

enum { MOST_COLUMNS = 24, STATISTICS = BP_MODEL_MEMBER + 5 };

static void the_world_is_made(void **state)
{
    (void)state;
    make_world();
}

/* Each outcome in turn, as the target of all positions that have one: the plain twin. `values` are
 * of the batch's own targets. */
static void check_distribution(bp_model *model, const bp_model_batch *batch)
{
    static float log_p[TOKENS * MOST_COLUMNS], values[STATISTICS * TOKENS],
        plain[STATISTICS * TOKENS];
    int64_t columns = bp_model_columns(&model->info, batch->length),
            statistics = model->info.statistics;
    int32_t targets[TOKENS];
    bp_model_batch asked = *batch;
    bool same = true;

    assert_true(columns <= MOST_COLUMNS && statistics <= STATISTICS);
    bp_test_check_err(WORLD, bp_model_distribution(model, batch, log_p, values), BP_OK);
    bp_test_check_err(WORLD, bp_model_score(model, batch, plain), BP_OK);
    bp_test_check(WORLD,
                  memcmp(values, plain, (size_t)(statistics * TOKENS) * sizeof *values) == 0);
    asked.targets = targets;
    for (int64_t v = 0; v < columns; v++) {
        int64_t row = 0;

        for (int64_t k = 0; k < TOKENS; k++)
            targets[k] = batch->targets[k] < 0 ? -1 : (int32_t)v;
        bp_test_check_err(WORLD, bp_model_score(model, &asked, plain), BP_OK);
        for (int64_t k = 0; k < TOKENS; k++)
            if (targets[k] >= 0)
                same = same && log_p[row++ * columns + v] == plain[k];
        bp_test_check(WORLD, row == bp_model_batch_rows(batch));
    }
    bp_test_check(WORLD, same);
    bp_test_check_err(WORLD, bp_model_distribution(model, batch, log_p, NULL), BP_OK);
}

static void ensembles_and_language_models_have_the_bits_of_their_scores(void **state)
{
    static const char *const NAMES[] = {"three", "one", "copies"};
    bp_model_batch batch = world_batch();
    int count;
    const bp_mesh_shape *meshes = world_meshes(&count);

    (void)state;
    for (int k = 0; k < count; k++)
        for (int name = 0; name < 4; name++) {
            bp_ensemble_spec spec = {.path = bp_test_path(NAMES[name % 3]),
                                     .memory_bytes =
                                         name == 0 ? 3000 : 1 << 20}; /* several chunks */
            world_ensemble e;
            bp_model *model;

            bp_test_check_err(WORLD, open_ensemble(&e, WORLD, &meshes[k], &spec), BP_OK);
            check_distribution(e.model, &batch);
            if (meshes[k].members == 1) {
                bp_test_check_err(WORLD, bp_model_open(&model, e.mesh, e.config, bp_test_path("a")),
                                  BP_OK);
                check_distribution(model, &batch);
                bp_model_free(&model);
            }
            close_ensemble(&e);
        }
}

/* Texts of several lengths, with a target at the first place, at some, or at the first two. */
static bp_model_batch text_batch(int64_t ends, bool words)
{
    static int32_t segments[TOKENS];
    bp_model_batch batch = world_batch();

    batch.segments = segments;
    for (int64_t k = 0; k < TOKENS; k++) {
        int64_t t = k % LENGTH, length = LENGTH - k / LENGTH;

        world_inputs[k] = t < length ? world_inputs[k] : -1;
        world_targets[k] = words      ? (t < length && k % 3 == 1 ? (int32_t)(k % 2) : -1)
                           : t < ends ? (int32_t)t
                                      : -1;
    }
    return batch;
}

static void tasks_have_the_bits_of_their_scores(void **state)
{
    static const bp_task_shape TASKS[] = {
        {.kind = BP_TASK_CLASSES, .outcomes = 5, .pool = BP_POOL_LAST},
        {.kind = BP_TASK_REGRESSION, .outcomes = 1, .pool = BP_POOL_MEAN},
        {.kind = BP_TASK_TAGS, .outcomes = 4, .pool = BP_POOL_NONE},
        {.kind = BP_TASK_SPANS, .outcomes = 2, .pool = BP_POOL_NONE}};
    bp_model_shape shape = {.family = &bp_gpt_family,
                            .layers = 2,
                            .width = 16,
                            .heads = 4,
                            .context = CONTEXT,
                            .vocab_size = V};
    bp_config *config = world_config();
    int count;
    const bp_mesh_shape *meshes = world_meshes(&count);

    (void)state;
    for (int k = 0; k < count; k++)
        for (size_t task = 0; task < sizeof TASKS / sizeof TASKS[0] && meshes[k].members == 1;
             task++) {
            bool words = TASKS[task].kind == BP_TASK_TAGS;
            bp_model_batch batch = text_batch(TASKS[task].kind == BP_TASK_SPANS ? 2 : 1, words);
            bp_mesh *mesh;
            bp_model *model;

            shape.task = TASKS[task];
            bp_test_check_err(WORLD, bp_mesh_new(&mesh, WORLD, &meshes[k]), BP_OK);
            bp_test_check_err(WORLD, bp_model_new(&model, mesh, config, &shape, 7), BP_OK);
            check_distribution(model, &batch);
            bp_model_free(&model);
            bp_mesh_free(&mesh);
        }
    bp_config_free(&config);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_world_is_made),
        cmocka_unit_test(ensembles_and_language_models_have_the_bits_of_their_scores),
        cmocka_unit_test(tasks_have_the_bits_of_their_scores),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
