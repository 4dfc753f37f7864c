/* Adapters: LoRA's and bottlenecks' gradients are the slopes of the loss, with dropout, of products
 * with a gate and of heads that share keys; the base has none. A product that is adapted is that of
 * the merged weight, and a rank as large as the width reaches any weight. */
#include "bp_test_batch.h"
#include "bp_test_mpi.h"
#include "bp_test_perturb.h"
#include "bp_test_slopes.h"

#include "models/family.h"
#include "train/engine/stage.h"

#include <math.h>
#include <string.h>

enum { T = 7, B = 3, C = 16, VOCABULARY = 29 };

typedef struct fixture {
    bp_mesh *mesh;
    bp_gemm *gemm;
    bp_network *network;
    bp_stage *stage;
    float *values;
    bp_batch batch;
    void *bytes;
} fixture;

static const float WEIGHT = 0.05F;

static const bp_adapter BOTTLENECK = {.kind = BP_ADAPTER_BOTTLENECK, .rank = 3};

static bp_adapter lora_of(int64_t rank)
{
    return (bp_adapter){.kind = BP_ADAPTER_LORA, .rank = rank, .scale = 6, .targets = 63};
}

static bp_model_shape shape_of(const char *kind, bp_adapter adapter)
{
    bp_model_shape shape = {.family = bp_model_family_find(kind),
                            .layers = 2,
                            .width = C,
                            .heads = 4,
                            .context = T,
                            .vocab_size = VOCABULARY};

    shape.family->fill_defaults(&shape);
    shape.adapter = adapter;
    return shape;
}

static void make_batch(fixture *f, const bp_model_shape *shape)
{
    static const bp_example_rules RULES = {.seed = 1, .eod = -1, .vocab_size = VOCABULARY};
    bp_example_maker maker = bp_model_objective(shape)->maker(shape, T, &RULES);
    int32_t windows[B * (T + 1)];

    for (int i = 0; i < B * (T + 1); i++)
        windows[i] = (i * 19 + 6) % VOCABULARY;
    f->bytes = bp_alloc("test", (int64_t)bp_batch_bytes(&maker.form, B), 1);
    f->batch = bp_test_batch(&maker, windows, 1, 0, B, f->bytes);
}

static void open_fixture(fixture *f, const bp_model_shape *shape)
{
    bp_mesh_shape alone = {1, 1, 1, 1, BP_COORDINATOR_SHARED};
    bp_stage_spec spec = {.most = {B, {T}}, .micro_batches = 1, .stages = 1, .schedule = BP_1F1B};

    bp_test_expect(bp_mesh_new(&f->mesh, MPI_COMM_WORLD, &alone), BP_OK);
    bp_test_expect(bp_gemm_new(&f->gemm, BP_F32), BP_OK);
    bp_nn nn = {
        .gemm = f->gemm, .tensor = f->mesh->tensor, .tensor_ranks = 1, .seed = 5, .dropout = 0.1F};
    bp_test_expect(bp_model_network_new(&f->network, &nn, shape, 0, 1), BP_OK);
    bp_network_lay_out(f->network, 1);
    f->values = bp_alloc("test", f->network->floats, sizeof(float));
    bp_test_expect(bp_network_bind_values(f->network, f->values), BP_OK);
    bp_network_initialise(f->network, 7);
    for (int g = 0; g < f->network->group_count; g++) {
        bp_group *group = &f->network->groups[g];
        float *values = f->values + group->place;

        for (int64_t i = 0; i < group->floats; i++) /* no weight too small to matter */
            values[i] = group->added        ? values[i] + 0.02F * (float)(i % 7 - 3)
                        : values[i] == 1.0F ? 1.0F
                                            : 4.0F * values[i];
    }
    bp_test_perturb(f->network, 3, 0.3F);
    bp_network_refresh(f->network);
    bp_test_expect(bp_stage_new(&f->stage, f->mesh, f->network, &spec), BP_OK);
    make_batch(f, shape);
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

static double loss_of(void *context)
{
    fixture *f = context;
    bp_stage_step step = {.batch = &f->batch, .step = 1, .loss_weight = {WEIGHT}};
    double sums[BP_TERMS] = {0};

    bp_network_refresh(f->network);
    bp_stage_accumulate(f->stage, &step, sums, 1);
    return (double)WEIGHT * sums[0];
}

static void check_gradients(const char *kind, bp_adapter adapter, int params)
{
    bp_model_shape shape = shape_of(kind, adapter);
    fixture f = {0};

    open_fixture(&f, &shape);
    assert_true(isfinite(loss_of(&f)));
    for (int g = 0; g < f.network->group_count; g++)
        for (int k = 0; k < f.network->groups[g].count && f.network->groups[g].frozen; k++)
            assert_null(f.network->groups[g].params[k].gradient);
    assert_int_equal(bp_test_check_slopes(&(bp_test_slopes){.network = f.network,
                                                            .stage = f.stage,
                                                            .loss = loss_of,
                                                            .context = &f,
                                                            .relative = 1e-2,
                                                            .absolute = 1e-3}),
                     2 * params);
    close_fixture(&f);
}

static void gradients_are_slopes(void **state)
{
    (void)state;
    check_gradients("gpt", lora_of(1), 2 * 6);
    check_gradients("gpt", lora_of(3), 2 * 6);
    check_gradients("llama", lora_of(2), 2 * 7);
    check_gradients("gpt", BOTTLENECK, 2 * 4);
    check_gradients("gpt_neox", BOTTLENECK, 2 * 4);
}

static bp_param *find(bp_network *network, const char *name)
{
    for (int g = 0; g < network->group_count; g++)
        for (int k = 0; k < network->groups[g].count; k++)
            if (strcmp(network->groups[g].params[k].name, name) == 0)
                return &network->groups[g].params[k];
    fail_msg("no parameter %s", name);
    return NULL;
}

/* A = 1, B = delta rank / scale. */
static void a_whole_rank_reaches_any_weight(void **state)
{
    bp_model_shape adapted = shape_of("gpt", lora_of(C)), plain = adapted;
    fixture a = {0}, b = {0};

    (void)state;
    plain.adapter = (bp_adapter){0};
    open_fixture(&a, &adapted);
    open_fixture(&b, &plain);
    for (int g = 0; g < a.network->group_count; g++)
        for (int k = 0; k < a.network->groups[g].count; k++) {
            bp_param *p = &a.network->groups[g].params[k];

            if (a.network->groups[g].added)
                bp_zero(p->value, bp_param_floats(p));
            else
                memcpy(find(b.network, p->name)->value, p->value,
                       (size_t)bp_param_floats(p) * sizeof(float));
        }
    assert_true(fabs(loss_of(&a) - loss_of(&b)) < 1e-7);
    bp_param *at_a = find(a.network, "h.1.attn.q.lora_a"),
             *at_b = find(a.network, "h.1.attn.q.lora_b"),
             *weight = find(b.network, "h.1.attn.q.weight");
    for (int i = 0; i < C * C; i++) {
        float delta = 0.3F * sinf((float)(3 * i));

        at_a->value[i] = i / C == i % C;
        at_b->value[i] = delta * (float)C / 6;
        weight->value[i] += delta;
    }
    assert_true(fabs(loss_of(&a) - loss_of(&b)) < 1e-6);
    at_b->value[5] += 1;
    assert_true(fabs(loss_of(&a) - loss_of(&b)) > 1e-6);
    close_fixture(&a);
    close_fixture(&b);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(a_whole_rank_reaches_any_weight),
    };

    return BP_TEST_RUN_MPI(argc, argv, tests);
}
