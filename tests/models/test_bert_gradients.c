/* The gradient of a BERT with dropout is the slope of its loss, masked words and next sentences
 * together: along each tensor's gradient, by central differences. Without dropout its numbers are
 * those of test_references.c. */
#include "bp_test_mpi.h"

#include "models/bert/bert.h"
#include "train/engine/stage.h"

#include <math.h>
#include <string.h>

enum { T = 12, B = 3, VOCABULARY = 40, CLS = 2, SEP = 3, MASK = 4 };

typedef struct fixture {
    bp_mesh *mesh;
    bp_gemm *gemm;
    bp_network *network;
    bp_stage *stage;
    float *values;
    bp_batch batch;
    int32_t lengths[B], segments[B * T], next[B];
    void *bytes;
} fixture;

static const float WEIGHT[BP_TERMS] = {0.05F, 0.3F};

static void make_batch(fixture *f, const bp_model_shape *shape)
{
    static const bp_example_rules RULES = {.seed = 1,
                                           .eod = -1,
                                           .vocab_size = VOCABULARY,
                                           .cls = CLS,
                                           .sep = SEP,
                                           .mask = MASK,
                                           .rate = 0.4,
                                           .keep = 0.1,
                                           .random = 0.1};
    bp_example_maker maker = shape->family->objective->maker(shape, T, &RULES);
    int32_t windows[B * (T - 1)];

    for (int i = 0; i < B * (T - 1); i++)
        windows[i] = 5 + (i * 19 + 6) % (VOCABULARY - 5);
    f->bytes = bp_alloc("test", (int64_t)bp_batch_bytes(&maker.form, B), 1);
    f->batch = bp_batch_make(&maker, windows, 1, 0, B, f->bytes);
    for (int k = 0; k < B * T; k++)
        f->segments[k] = k % T > 5;
    for (int b = 0; b < B; b++) {
        f->lengths[b] = T;
        f->next[b] = b - 1; /* -1: not asked */
    }
    f->batch.stream[0].segments = f->segments;
    f->batch.stream[0].lengths = f->lengths;
    f->batch.term[BP_BERT_NEXT_SENTENCE].targets = f->next;
}

static void open_fixture(fixture *f)
{
    bp_mesh_shape alone = {1, 1, 1, 1, BP_COORDINATOR_SHARED};
    bp_model_shape shape = {.family = &bp_bert_family,
                            .layers = 2,
                            .width = 16,
                            .heads = 4,
                            .context = T,
                            .vocab_size = VOCABULARY};
    bp_stage_spec spec = {.most = {B, {T}}, .micro_batches = 1, .stages = 1, .schedule = BP_1F1B};

    shape.family->settle(&shape);
    bp_test_expect(bp_mesh_new(&f->mesh, MPI_COMM_WORLD, &alone), BP_OK);
    bp_test_expect(bp_gemm_new(&f->gemm, BP_F32), BP_OK);
    bp_nn nn = {
        .gemm = f->gemm, .tensor = f->mesh->tensor, .tensors = 1, .seed = 5, .dropout = 0.2F};
    bp_test_expect(bp_model_network_new(&f->network, &nn, &shape, 0, 1), BP_OK);
    bp_network_lay_out(f->network, 1);
    f->values = bp_alloc("test", f->network->floats, sizeof(float));
    bp_test_expect(bp_network_bind_values(f->network, f->values), BP_OK);
    bp_network_initialise(f->network, 7);
    for (int64_t i = 0; i < f->network->floats; i++) /* no weight too small to matter */
        f->values[i] *= f->values[i] == 1.0F ? 1.0F : 8.0F;
    bp_network_refresh(f->network);
    bp_test_expect(bp_stage_new(&f->stage, f->mesh, f->network, &spec), BP_OK);
    make_batch(f, &shape);
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

/* In training: dropout's masks are those of the step. */
static double loss_of(fixture *f)
{
    bp_stage_step step = {.batch = &f->batch, .step = 1};
    double sums[BP_TERMS] = {0}, loss = 0;

    memcpy(step.loss_weight, WEIGHT, sizeof WEIGHT);
    bp_network_refresh(f->network);
    bp_stage_accumulate(f->stage, &step, sums, 1);
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
    float *gradients;
    int checked = 0;

    (void)state;
    open_fixture(&f);
    assert_in_range(bp_batch_scored(&f.batch, BP_BERT_WORDS), B, B * T / 2);
    assert_int_equal(bp_batch_scored(&f.batch, BP_BERT_NEXT_SENTENCE), B - 1);
    assert_true(isfinite(loss_of(&f)));
    gradients = bp_alloc("test", f.network->floats, sizeof *gradients);
    memcpy(gradients, f.stage->gradient, (size_t)f.network->floats * sizeof *gradients);
    for (int g = 0; g < f.network->group_count; g++)
        for (int k = 0; k < f.network->groups[g].count; k++) {
            bp_group *group = &f.network->groups[g];
            bp_param *param = &group->params[k];
            const float *gradient = gradients + group->place + param->place;
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
    assert_in_range(checked, 40, 1000);
    bp_free(gradients);
    close_fixture(&f);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_slopes)};

    return BP_TEST_RUN_MPI(argc, argv, tests);
}
