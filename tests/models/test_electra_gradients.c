/* The gradient of an ELECTRA with dropout is the slope of its loss, generator and discriminator
 * together, in what they share too: along each tensor's gradient, by central differences, while the
 * draws stay as they are. And the draws have the generator's distribution. The numbers of each half
 * are those of test_references.c. */
#include "bp_test_batch.h"
#include "bp_test_mpi.h"
#include "bp_test_perturb.h"
#include "bp_test_slopes.h"

#include "base/mem.h"
#include "models/electra/electra.h"
#include "models/list.h"
#include "models/task/list.h"
#include "nn/core/layers.h"
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
    int32_t lengths[B], segments[B * T];
    void *bytes;
} fixture;

static const float WEIGHT[BP_TERMS] = {0.05F, 0.1F};

static void make_batch(fixture *f, const bp_model_shape *shape)
{
    static const bp_example_rules RULES = {.seed = 1,
                                           .eod = -1,
                                           .vocab_size = VOCABULARY,
                                           .cls = CLS,
                                           .sep = SEP,
                                           .mask = MASK,
                                           .rate = 0.4,
                                           .keep = 0};
    bp_example_maker maker = shape->family->objective->maker(shape, T, &RULES);
    int32_t windows[B * (T - 1)];

    for (int i = 0; i < B * (T - 1); i++)
        windows[i] = 5 + (i * 19 + 6) % (VOCABULARY - 5);
    f->bytes = bp_alloc("test", (int64_t)bp_batch_bytes(&maker.form, B), 1);
    f->batch = bp_test_batch(&maker, windows, 1, 0, B, f->bytes);
    for (int k = 0; k < B * T; k++)
        f->segments[k] = k % T > 5;
    for (int b = 0; b < B; b++)
        f->lengths[b] = T;
    f->batch.stream[0].segments = f->segments;
    f->batch.stream[0].lengths = f->lengths;
}

/* A text and its class. */
static void make_classed(const bp_example_maker *maker, const int32_t *tokens, int64_t step,
                         int64_t slot, bp_example *out)
{
    (void)step;
    for (int64_t t = 0; t < maker->form.stream[0].T; t++) {
        out->inputs[0][t] = tokens[t];
        out->segments[0][t] = t > 4;
    }
    *out->length[0] = T - (int32_t)slot;
    out->targets[0][0] = (int32_t)slot % 3;
}

static void make_task_batch(fixture *f, const bp_model_shape *shape)
{
    static const bp_example_rules RULES = {.seed = 1};
    bp_example_maker maker = bp_model_objective(shape)->maker(shape, T, &RULES);
    int32_t windows[B * (T + 1)];

    maker.make = make_classed;
    for (int i = 0; i < B * (T + 1); i++)
        windows[i] = (i * 19 + 6) % VOCABULARY;
    f->bytes = bp_alloc("test", (int64_t)bp_batch_bytes(&maker.form, B), 1);
    f->batch = bp_test_batch(&maker, windows, 1, 0, B, f->bytes);
}

static void open_fixture(fixture *f, const bp_task_shape *task)
{
    bp_mesh_shape alone = {1, 1, 1, 1, BP_COORDINATOR_SHARED};
    bp_model_shape shape = {.family = &bp_electra_family,
                            .layers = 2,
                            .width = 16,
                            .heads = 4,
                            .context = T,
                            .vocab_size = VOCABULARY};
    bp_stage_spec spec = {.most = {B, {T}}, .micro_batches = 1, .stages = 1, .schedule = BP_1F1B};

    *bp_electra_sizes_in(&shape) = (bp_electra_sizes){
        .embedding = 12, .generator_layers = 1, .generator_width = 8, .generator_heads = 2};
    shape.family->fill_defaults(&shape);
    shape.task = *task;
    bp_test_expect(bp_mesh_new(&f->mesh, MPI_COMM_WORLD, &alone), BP_OK);
    bp_test_expect(bp_gemm_new(&f->gemm, BP_F32), BP_OK);
    bp_nn nn = {
        .gemm = f->gemm, .tensor = f->mesh->tensor, .tensor_ranks = 1, .seed = 5, .dropout = 0.2F};
    bp_test_expect(bp_model_network_new(&f->network, &nn, &shape, 0, 1), BP_OK);
    bp_network_lay_out(f->network, 1);
    f->values = bp_alloc("test", f->network->floats, sizeof(float));
    bp_test_expect(bp_network_bind_values(f->network, f->values), BP_OK);
    bp_network_initialise(f->network, 7);
    for (int64_t i = 0; i < f->network->floats; i++) /* no weight too small to matter */
        f->values[i] *= f->values[i] == 1.0F ? 1.0F : 8.0F;
    bp_test_perturb(f->network, 3, 0.3F);
    bp_network_refresh(f->network);
    bp_test_expect(bp_stage_new(&f->stage, f->mesh, f->network, &spec), BP_OK);
    if (task->kind == BP_TASK_NONE)
        make_batch(f, &shape);
    else
        make_task_batch(f, &shape);
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
static double loss_of(void *context)
{
    fixture *f = context;
    bp_stage_step step = {.batch = &f->batch, .step = 1};
    double sums[BP_TERMS] = {0}, loss = 0;

    memcpy(step.loss_weight, WEIGHT, sizeof WEIGHT);
    bp_network_refresh(f->network);
    bp_stage_accumulate(f->stage, &step, sums, 1);
    for (int t = 0; t < BP_TERMS; t++)
        loss += (double)WEIGHT[t] * sums[t];
    return loss;
}

static void check_slopes(fixture *f)
{
    assert_true(isfinite(loss_of(f)));
    assert_in_range(bp_test_check_slopes(&(bp_test_slopes){.network = f->network,
                                                           .stage = f->stage,
                                                           .loss = loss_of,
                                                           .context = f,
                                                           .is_constant = bp_test_is_key_bias,
                                                           .relative = 1e-2,
                                                           .absolute = 2e-3}),
                    30, 1000);
}

static void gradients_are_slopes(void **state)
{
    fixture f = {0};

    (void)state;
    open_fixture(&f, &(bp_task_shape){0});
    assert_in_range(bp_batch_scored(&f.batch, BP_ELECTRA_WORDS), B, B * T / 2);
    assert_int_equal(bp_batch_scored(&f.batch, BP_ELECTRA_REPLACED), B * T);
    check_slopes(&f);
    close_fixture(&f);
}

static void gradients_of_a_task_are_slopes(void **state)
{
    fixture f = {0};

    (void)state;
    open_fixture(&f,
                 &(bp_task_shape){.kind = BP_TASK_CLASSES, .outcomes = 3, .pool = BP_POOL_FIRST});
    check_slopes(&f);
    close_fixture(&f);
}

/* log p(v) of each token at a place, from the generator's loss. */
static void find_distribution(fixture *f, int place, double *p)
{
    bp_batch batch = f->batch;
    int32_t targets[B * T];

    for (int v = 0; v < VOCABULARY; v++) {
        double sums[BP_TERMS];
        int64_t counts[BP_TERMS];

        for (int k = 0; k < B * T; k++)
            targets[k] = k == place ? v : -1;
        batch.term[BP_ELECTRA_WORDS].targets = targets;
        bp_stage_evaluate(f->stage, &(bp_evaluation){.batch = &batch}, sums, counts);
        p[v] = exp(-sums[BP_ELECTRA_WORDS]);
    }
}

/* What the discriminator reads at a place, with another seed. */
static int draw(fixture *f, uint64_t seed, int place, float *data, bp_arena *scratch)
{
    bp_pass pass = bp_pass_over(&f->batch);

    f->network->nn.seed = seed;
    pass.scratch = scratch;
    for (int k = 0; k < f->network->block_count; k++) {
        bp_activations at = *bp_network_at(f->network, k);

        bp_activations_lay(&at, &f->network->nn, &pass, data, false);
        bp_block_forward(f->network->blocks[k], &pass, &at, NULL);
        if (at.count > 1)
            return (int)at.item[1].data[place];
    }
    fail_msg("nothing was drawn");
    return -1;
}

static void draws_have_the_generators_distribution(void **state)
{
    enum { DRAWS = 4000 };
    fixture f = {0};
    double p[VOCABULARY], chi = 0, rest = 0;
    int counts[VOCABULARY] = {0}, place = 0, bins = 0, others = 0;

    (void)state;
    open_fixture(&f, &(bp_task_shape){0});
    while (f.batch.term[BP_ELECTRA_WORDS].targets[place] < 0)
        place++;
    find_distribution(&f, place, p);
    bp_arena scratch = {.size_bytes = 1 << 22};
    scratch.base = bp_alloc("test", (int64_t)scratch.size_bytes, 1);
    float *data = bp_alloc("test", B * T * 17, sizeof *data);
    for (int k = 0; k < DRAWS; k++)
        counts[draw(&f, (uint64_t)k, place, data, &scratch)]++;
    for (int v = 0; v < VOCABULARY; v++) {
        double expected = p[v] * DRAWS;

        if (expected < 5) {
            rest += expected;
            others += counts[v];
            continue;
        }
        chi += (counts[v] - expected) * (counts[v] - expected) / expected;
        bins++;
    }
    assert_in_range(bins, 5, VOCABULARY);
    assert_true(fabs(others - rest) < 5 * sqrt(rest + 1));
    /* one in a million is above the mean by five standard deviations and more */
    assert_true(chi < bins + 6 * sqrt(2.0 * bins));
    bp_free(data);
    bp_free(scratch.base);
    close_fixture(&f);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_slopes), cmocka_unit_test(gradients_of_a_task_are_slopes),
        cmocka_unit_test(draws_have_the_generators_distribution)};

    return BP_TEST_RUN_MPI(argc, argv, tests);
}
