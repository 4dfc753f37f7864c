/* The gradient of a network of two streams and two heads (test_family.c) is the slope of its loss:
 * along each tensor's gradient, by central differences. */
#include "bp_test_batch.h"
#include "bp_test_mpi.h"

#include "math/math.h"
#include "models/family.h"
#include "train/engine/stage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { T = 14, B = 3, VOCABULARY = 40 };

typedef struct fixture {
    bp_mesh *mesh;
    bp_gemm *gemm;
    bp_network *network;
    bp_stage *stage;
    float *values;
    bp_example_maker maker;
    bp_batch batch;
    void *bytes;
} fixture;

static void open_fixture(fixture *f)
{
    bp_mesh_shape alone = {1, 1, 1, 1, BP_COORDINATOR_SHARED};
    bp_model_shape shape = {.family = bp_model_family_find("pair"),
                            .layers = 2,
                            .width = 16,
                            .heads = 4,
                            .context = T,
                            .vocab_size = VOCABULARY};
    int32_t windows[B * (T + 1)];

    assert_non_null(shape.family);
    bp_test_expect(bp_mesh_new(&f->mesh, MPI_COMM_WORLD, &alone), BP_OK);
    bp_test_expect(bp_gemm_new(&f->gemm, BP_F32), BP_OK);
    bp_nn nn = {.gemm = f->gemm, .tensor = f->mesh->tensor, .tensors = 1};
    bp_test_expect(bp_model_network_new(&f->network, &nn, &shape, 0, 1), BP_OK);
    bp_network_lay_out(f->network, 1);
    f->values = bp_alloc("test", f->network->floats, sizeof(float));
    bp_test_expect(bp_network_bind_values(f->network, f->values), BP_OK);
    bp_network_initialise(f->network, 7);
    for (int64_t i = 0; i < f->network->floats; i++) /* no weight too small to matter */
        f->values[i] *= f->values[i] == 1.0F ? 1.0F : 8.0F;
    bp_network_refresh(f->network);
    f->maker = shape.family->objective->maker(&shape, T, NULL);
    f->bytes = bp_alloc("test", (int64_t)bp_batch_bytes(&f->maker.form, B), 1);
    for (int i = 0; i < B * (T + 1); i++)
        windows[i] = (i * 19 + 6) % VOCABULARY;
    f->batch = bp_test_batch(&f->maker, windows, 1, 0, B, f->bytes);
    bp_stage_spec spec = {.most = bp_extent_of(&f->maker.form, B),
                          .micro_batches = 1,
                          .stages = 1,
                          .schedule = BP_1F1B};
    bp_test_expect(bp_stage_new(&f->stage, f->mesh, f->network, &spec), BP_OK);
}

static void close_fixture(fixture *f)
{
    bp_stage_free(&f->stage);
    bp_network_free(&f->network);
    bp_gemm_free(&f->gemm);
    bp_mesh_free(&f->mesh);
    bp_free(f->values);
    bp_free(f->bytes);
}

static const float WEIGHT[BP_TERMS] = {0.03F, 0.2F};

static double loss_of(fixture *f)
{
    double sums[BP_TERMS], loss = 0;
    int64_t counts[BP_TERMS];

    bp_network_refresh(f->network);
    bp_stage_evaluate(f->stage, &(bp_evaluation){.batch = &f->batch}, sums, counts);
    assert_int_equal(counts[0], bp_batch_scored(&f->batch, 0));
    assert_int_equal(counts[1], bp_batch_scored(&f->batch, 1));
    for (int t = 0; t < BP_TERMS; t++)
        loss += (double)WEIGHT[t] * sums[t];
    return loss;
}

/* The slope of the loss along a param's gradient, whose norm it should be. */
static double slope_of(fixture *f, bp_param *param, const float *gradient, double norm)
{
    int64_t n = bp_param_floats(param);
    float *kept = bp_alloc("test", n, sizeof *kept);
    double step = 2e-3, loss[2];

    memcpy(kept, param->value, (size_t)n * sizeof *kept);
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < n; i++)
            param->value[i] = kept[i] + (float)((side ? step : -step) * (double)gradient[i] / norm);
        loss[side] = loss_of(f);
    }
    memcpy(param->value, kept, (size_t)n * sizeof *kept);
    bp_free(kept);
    return (loss[1] - loss[0]) / (2 * step);
}

static void gradients_are_slopes(void **state)
{
    fixture f = {0};
    double trained[BP_TERMS] = {0}, sum = 0;
    int checked = 0;

    (void)state;
    open_fixture(&f);
    assert_in_range(bp_batch_scored(&f.batch, 1), 1, B - 1); /* not all texts have a class */
    bp_stage_step step = {.batch = &f.batch, .step = 1};
    memcpy(step.loss_weight, WEIGHT, sizeof WEIGHT);
    bp_stage_accumulate(f.stage, &step, trained, 1);
    for (int t = 0; t < BP_TERMS; t++)
        sum += (double)WEIGHT[t] * trained[t];
    assert_true(fabs(sum - loss_of(&f)) < 1e-5 * sum);
    for (int g = 0; g < f.network->group_count; g++)
        for (int k = 0; k < f.network->groups[g].count && !f.network->groups[g].frozen; k++) {
            bp_group *group = &f.network->groups[g];
            bp_param *param = &group->params[k];
            const float *gradient = f.stage->gradient + group->place + param->place;
            double norm = 0, slope;

            for (int64_t i = 0; i < bp_param_floats(param); i++)
                norm += (double)gradient[i] * (double)gradient[i];
            norm = sqrt(norm);
            if (strstr(param->name, ".k.bias") || norm < 1e-3) {
                assert_true(norm < 1e-2); /* a constant in all of a query's scores */
                continue;
            }
            slope = slope_of(&f, param, gradient, norm);
            if (fabs(slope - norm) > 1e-2 * norm + 2e-3)
                fail_msg("%s: the slope is %g, the gradient says %g", param->name, slope, norm);
            checked++;
        }
    assert_in_range(checked, 50, 1000);
    close_fixture(&f);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_slopes)};

    return BP_TEST_RUN_MPI(argc, argv, tests);
}
