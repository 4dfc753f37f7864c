/* ELMo's layers: the gradient is the slope of the loss, with both activations, with and without
 * projections, clips that are reached, a softmax of sampled outcomes; the backward direction reads
 * what the forward one would of the reversed text. */
#include "bp_test_batch.h"
#include "bp_test_mpi.h"
#include "bp_test_perturb.h"
#include "bp_test_slopes.h"

#include "math/math.h"
#include "models/elmo/elmo.h"
#include "models/list.h"
#include "nn/core/layers.h"
#include "train/engine/stage.h"

#include <math.h>
#include <string.h>

enum { T = 9, B = 2, VOCABULARY = 30 };

typedef struct fixture {
    bp_mesh *mesh;
    bp_gemm *gemm;
    bp_network *network;
    bp_stage *stage;
    float *values;
    float characters[(VOCABULARY + 1) * BP_WORD_CHARACTERS];
    bp_example_maker maker;
    bp_batch batch;
    void *bytes;
    int64_t samples; /* of the softmax that training is by; 0: all outcomes */
} fixture;

/* Words of 1 to 48 bytes. */
static void spell(float *characters)
{
    for (int w = 0; w <= VOCABULARY; w++) {
        float *to = characters + w * BP_WORD_CHARACTERS;
        int length = w == 3 ? 48 : 1 + w * 7 % 11, used = 0;

        for (int k = 0; k < BP_WORD_CHARACTERS; k++)
            to[k] = BP_WORD_PADDING;
        to[used++] = BP_WORD_BEGIN;
        for (int k = 0; k < length; k++)
            to[used++] = (float)(97 + (w * 5 + k * k * 3) % 26);
        to[used] = BP_WORD_END;
    }
}

static bp_model_shape shape_of(bool tanh, int64_t projection, double clip)
{
    bp_model_shape shape = {
        .family = &bp_elmo_family, .layers = 2, .width = 7, .context = T, .vocab_size = VOCABULARY};

    bp_elmo_sizes_in(&shape)->filters[0] = 1LL << 32 | 3;
    bp_elmo_sizes_in(&shape)->filters[1] = 2LL << 32 | 4;
    bp_elmo_sizes_in(&shape)->filters[2] = 50LL << 32 | 2;
    bp_elmo_sizes_in(&shape)->embedding = 4;
    bp_elmo_sizes_in(&shape)->activation = tanh;
    bp_elmo_sizes_in(&shape)->projection = projection;
    bp_elmo_sizes_in(&shape)->cell_clip = bp_elmo_sizes_in(&shape)->projection_clip = clip;
    bp_elmo_family.fill_defaults(&shape);
    return shape;
}

static void open_fixture(fixture *f, bp_model_shape shape)
{
    bp_mesh_shape alone = {1, 1, 1, 1, BP_COORDINATOR_SHARED};
    bool relu = bp_elmo_sizes_of(&shape)->activation == 0;
    int32_t windows[B * (T + 1)];

    spell(f->characters);
    shape.constants = f->characters;
    bp_test_expect(bp_mesh_new(&f->mesh, MPI_COMM_WORLD, &alone), BP_OK);
    bp_test_expect(bp_gemm_new(&f->gemm, BP_F32), BP_OK);
    bp_nn nn = {.gemm = f->gemm,
                .tensor = f->mesh->tensor,
                .tensor_ranks = 1,
                .softmax_samples = f->samples};
    bp_test_expect(bp_model_network_new(&f->network, &nn, &shape, 0, 1), BP_OK);
    bp_network_lay_out(f->network, 1);
    f->values = bp_alloc("test", f->network->floats, sizeof(float));
    bp_test_expect(bp_network_bind_values(f->network, f->values), BP_OK);
    bp_network_initialise(f->network, 7);
    for (int g = 1; g < f->network->group_count; g++) /* no weight too small to matter */
        for (int k = 0; k < f->network->groups[g].count; k++) {
            bp_param *param = &f->network->groups[g].params[k];

            for (int64_t i = 0; i < bp_param_floats(param); i++)
                param->value[i] =
                    param->value[i] * (relu && strstr(param->name, "cnn") ? 8.0F : 1.5F) +
                    0.02F * (float)(i % 5 - 2);
        }
    bp_test_perturb(f->network, 3, 0.1F);
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

static const float WEIGHT[BP_TERMS] = {0.05F, 0.08F};

static void losses_of(fixture *f, double sums[BP_TERMS])
{
    int64_t counts[BP_TERMS];

    bp_network_refresh(f->network);
    bp_stage_evaluate(f->stage, &(bp_evaluation){.batch = &f->batch}, sums, counts);
    assert_int_equal(counts[0], B * T);
    assert_int_equal(counts[1], B * T);
}

/* Forward and backward: the gradients stay in the stage. */
static void train(fixture *f, double sums[BP_TERMS])
{
    bp_stage_step step = {.batch = &f->batch, .step = 1};

    memcpy(step.loss_weight, WEIGHT, sizeof WEIGHT);
    bp_network_refresh(f->network);
    bp_stage_accumulate(f->stage, &step, sums, 1);
}

static double loss_of(void *context)
{
    fixture *f = context;
    double sums[BP_TERMS] = {0};

    if (f->samples > 0)
        train(f, sums);
    else
        losses_of(f, sums);
    return (double)WEIGHT[0] * sums[0] + (double)WEIGHT[1] * sums[1];
}

static void check_slopes(bp_model_shape shape, int params, int64_t samples)
{
    fixture f = {.samples = samples};
    double trained[BP_TERMS] = {0}, all[BP_TERMS];

    open_fixture(&f, shape);
    losses_of(&f, all);
    train(&f, trained);
    for (int d = 0; d < 2; d++) /* sampled outcomes have another loss, about as large */
        assert_true(samples > 0 ? trained[d] != all[d] && fabs(trained[d] / all[d] - 1) < 0.5
                                : fabs(trained[d] / all[d] - 1) < 1e-5);
    assert_int_equal(bp_test_check_slopes(&(bp_test_slopes){.network = f.network,
                                                            .stage = f.stage,
                                                            .loss = loss_of,
                                                            .context = &f,
                                                            .relative = 1e-2,
                                                            .absolute = 2e-4}),
                     params);
    close_fixture(&f);
}

static void gradients_are_slopes(void **state)
{
    (void)state;
    /* characters, 3 convolutions, 2 highway layers, projection; 4 layers; head */
    check_slopes(shape_of(true, 5, 100), 1 + 6 + 8 + 2 + 4 * 4 + 2, 0);
    check_slopes(shape_of(false, 5, 0.25), 1 + 6 + 8 + 2 + 4 * 4 + 2, 0); /* clips are reached */
    check_slopes(shape_of(true, 7, 100), 1 + 6 + 8 + 2 + 4 * 3 + 2, 0);   /* no projected state */
    check_slopes(shape_of(true, 5, 100), 1 + 6 + 8 + 2 + 4 * 4 + 2, 11);
}

/* Both directions with the same weights: of a text that reads the same from its end they have the
 * same loss, and else that of each other's text. */
static void directions_are_mirrors(void **state)
{
    fixture f = {0};
    double there[BP_TERMS], back[BP_TERMS];
    int32_t windows[B * (T + 1)];

    (void)state;
    open_fixture(&f, shape_of(false, 5, 3));
    for (int layer = 0; layer < 2; layer++)
        for (int k = 0; k < 4; k++) {
            const bp_group *forward = &f.network->groups[2 + 2 * layer];
            bp_param *to = &f.network->groups[3 + 2 * layer].params[k];

            assert_string_equal(strchr(forward->params[k].name, '.'), strchr(to->name, '.'));
            memcpy(to->value, forward->params[k].value,
                   (size_t)bp_param_floats(to) * sizeof *to->value);
        }
    losses_of(&f, there);
    for (int b = 0; b < B; b++)
        for (int t = 0; t <= T; t++) {
            int i = b * (T + 1) + T - t;

            windows[b * (T + 1) + t] = (i * 19 + 6) % VOCABULARY;
        }
    f.batch = bp_test_batch(&f.maker, windows, 1, 0, B, f.bytes);
    losses_of(&f, back);
    assert_true(fabs(there[0] - there[1]) > 1e-3);
    assert_true(fabs(there[0] - back[1]) < 1e-5 * there[0]);
    assert_true(fabs(there[1] - back[0]) < 1e-5 * there[1]);
    close_fixture(&f);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_slopes),
                                              cmocka_unit_test(directions_are_mirrors)};

    return BP_TEST_RUN_MPI(argc, argv, tests);
}
