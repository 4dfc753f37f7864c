/* The gradient of a network of two streams and two heads (pair_family.c), and of encoder-decoders
 * with each variant of attention and head, with adapters and with heads of tags, spans and classes,
 * is the slope of its loss: along each tensor's gradient, by central differences. */
#include "bp_test_batch.h"
#include "bp_test_mpi.h"
#include "bp_test_perturb.h"
#include "bp_test_slopes.h"

#include "math/math.h"
#include "models/deberta/deberta.h"
#include "models/family.h"
#include "models/list.h"
#include "models/recurrent/recurrent.h"
#include "models/seq2seq/seq2seq.h"
#include "models/task/list.h"
#include "nn/core/layers.h"
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
    bool distances;        /* scores have products of keys with distances too */
    bool trains_otherwise; /* what it minimises is not what it is scored by */
} fixture;

static bp_model_shape shape_of(const char *kind)
{
    bp_model_shape shape = {.family = bp_model_family_find(kind),
                            .layers = 2,
                            .width = 16,
                            .heads = 4,
                            .context = T,
                            .softmaxes = 1,
                            .vocab_size = VOCABULARY};

    assert_non_null(shape.family);
    if (shape.family->fill_defaults)
        shape.family->fill_defaults(&shape);
    return shape;
}

/* A task's texts of several lengths, which the decoder reads a place later; a tag of most
 * positions, two ends of a span, or a class. */
static void make_texts(fixture *f, const bp_model_shape *shape)
{
    bool spans = shape->task.kind == BP_TASK_SPANS, tags = shape->task.kind == BP_TASK_TAGS;

    f->maker = bp_model_objective(shape)->maker(shape, T, NULL);
    f->bytes = bp_alloc("test", (int64_t)bp_batch_bytes(&f->maker.form, B), 1);
    f->batch = bp_batch_over(&f->maker.form, B, f->bytes);
    for (int i = 0; i < B * T; i++) {
        int length = T - 4 * (i / T), t = i % T,
            before = t == 0 ? 1 : ((i - 1) * 11 + 5) % VOCABULARY;

        if (f->batch.stream[1].T > 0)
            ((int32_t *)f->batch.stream[1].inputs)[i] = (i * 11 + 5) % VOCABULARY;
        ((int32_t *)f->batch.stream[0].inputs)[i] = before;
        if (tags)
            ((int32_t *)f->batch.term[0].targets)[i] = t < length && i % 5 != 3 ? i % 3 : -1;
    }
    for (int b = 0; b < B; b++) {
        for (int s = 0; s < 2 && f->batch.stream[s].T > 0; s++)
            ((int32_t *)f->batch.stream[s].lengths)[b] = T - 4 * b;
        for (int s = 0; s < 1 + spans && !tags; s++)
            ((int32_t *)f->batch.term[s].targets)[b] = b + 2 * s;
    }
}

/* Pairs: sources of several lengths, and targets with a place that is not asked for. */
static void make_pairs(fixture *f)
{
    bp_batch_form form = {.stream = {{.T = T}, {.T = T, .has_lengths = true}}, .targets = {T}};

    f->bytes = bp_alloc("test", (int64_t)bp_batch_bytes(&form, B), 1);
    f->maker = (bp_example_maker){.form = form};
    f->batch = bp_batch_over(&form, B, f->bytes);
    for (int i = 0; i < B * T; i++) {
        ((int32_t *)f->batch.stream[0].inputs)[i] = (i * 7 + 3) % VOCABULARY;
        ((int32_t *)f->batch.stream[1].inputs)[i] = (i * 11 + 5) % VOCABULARY;
        ((int32_t *)f->batch.term[0].targets)[i] = i % 9 == 4 ? -1 : (i * 5 + 11) % VOCABULARY;
    }
    for (int b = 0; b < B; b++)
        ((int32_t *)f->batch.stream[1].lengths)[b] = T - 4 * b;
}

/* Texts of several lengths, and words that are asked for. */
static void make_words(fixture *f)
{
    bp_batch_form form = {.stream = {{.T = T, .has_lengths = true}}, .targets = {T}};

    f->bytes = bp_alloc("test", (int64_t)bp_batch_bytes(&form, B), 1);
    f->maker = (bp_example_maker){.form = form};
    f->batch = bp_batch_over(&form, B, f->bytes);
    for (int i = 0; i < B * T; i++) {
        bool asked = i % T < T - 4 * (i / T) && i % 3 == 1;

        ((int32_t *)f->batch.stream[0].inputs)[i] = (i * 7 + 3) % VOCABULARY;
        ((int32_t *)f->batch.term[0].targets)[i] = asked ? (i * 5 + 11) % VOCABULARY : -1;
    }
    for (int b = 0; b < B; b++)
        ((int32_t *)f->batch.stream[0].lengths)[b] = T - 4 * b;
}

/* grow: by how much initial weights are larger, so that none is too small to matter. */
static void open_fixture(fixture *f, const bp_model_shape *shape, float grow)
{
    bp_mesh_shape alone = {1, 1, 1, 1, BP_COORDINATOR_SHARED};
    int32_t windows[B * (T + 1)];
    float by = shape->adapter.kind == BP_ADAPTER_LORA ? 0.02F : 0.1F; /* added to an adapter */

    f->distances = shape->family == &bp_deberta_family;
    f->trains_otherwise =
        shape->head_entmax == 1 || shape->task.kind == BP_TASK_SPANS; /* padding has a share */
    bp_test_expect(bp_mesh_new(&f->mesh, MPI_COMM_WORLD, &alone), BP_OK);
    bp_test_expect(bp_gemm_new(&f->gemm, BP_F32), BP_OK);
    bp_nn nn = {.gemm = f->gemm, .tensor = f->mesh->tensor, .tensor_ranks = 1};
    bp_test_expect(bp_model_network_new(&f->network, &nn, shape, 0, 1), BP_OK);
    bp_network_lay_out(f->network, 1);
    f->values = bp_alloc("test", f->network->floats, sizeof(float));
    bp_test_expect(bp_network_bind_values(f->network, f->values), BP_OK);
    bp_network_initialise(f->network, 7);
    for (int g = 0; g < f->network->group_count; g++) {
        bp_group *group = &f->network->groups[g];
        float *values = f->values + group->place;

        for (int64_t i = 0; i < group->floats; i++)
            values[i] = group->added        ? values[i] + by * (float)(i % 7 - 3)
                        : values[i] == 1.0F ? 1.0F
                                            : grow * values[i];
    }
    bp_test_perturb(f->network, 3, 0.3F);
    bp_network_refresh(f->network);
    if (shape->task.kind != BP_TASK_NONE) {
        make_texts(f, shape);
    } else if (shape->family->source) {
        make_pairs(f);
    } else if (f->distances) {
        make_words(f);
    } else {
        f->maker = shape->family->objective->maker(shape, T, NULL);
        f->bytes = bp_alloc("test", (int64_t)bp_batch_bytes(&f->maker.form, B), 1);
        for (int i = 0; i < B * (T + 1); i++)
            windows[i] = (i * 19 + 6) % VOCABULARY;
        f->batch = bp_test_batch(&f->maker, windows, 1, 0, B, f->bytes);
    }
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

/* A step's loss, whose gradient is left in the stage. */
static double train(fixture *f)
{
    bp_stage_step step = {.batch = &f->batch, .step = 1};
    double trained[BP_TERMS] = {0}, sum = 0;

    memcpy(step.loss_weight, WEIGHT, sizeof WEIGHT);
    bp_stage_accumulate(f->stage, &step, trained, 1);
    for (int t = 0; t < BP_TERMS; t++)
        sum += (double)WEIGHT[t] * trained[t];
    return sum;
}

static double loss_of(void *context)
{
    fixture *f = context;
    double sums[BP_TERMS], loss = 0;
    int64_t counts[BP_TERMS];

    bp_network_refresh(f->network);
    if (f->trains_otherwise)
        return train(f);
    bp_stage_evaluate(f->stage, &(bp_evaluation){.batch = &f->batch}, sums, counts);
    for (int t = 0; t < BP_TERMS; t++) {
        assert_int_equal(counts[t], bp_batch_scored(&f->batch, t));
        loss += (double)WEIGHT[t] * sums[t];
    }
    return loss;
}

/* In all of a query's scores. */
static bool is_constant(const void *context, const bp_param *param)
{
    const fixture *f = context;

    return strstr(param->name, ".k.bias") && (!f->distances || strstr(param->name, "position"));
}

/* Along each tensor's gradient; returns how many there are. */
static int check_slopes(fixture *f)
{
    double sum = train(f);

    if (!f->trains_otherwise)
        assert_true(fabs(sum - loss_of(f)) < 1e-5 * sum);
    return bp_test_check_slopes(&(bp_test_slopes){.network = f->network,
                                                  .stage = f->stage,
                                                  .loss = loss_of,
                                                  .context = f,
                                                  .is_constant = is_constant,
                                                  .relative = 1e-2,
                                                  .absolute = 2e-3});
}

static void gradients_are_slopes(void **state)
{
    bp_model_shape shape = shape_of("pair");
    fixture f = {0};

    (void)state;
    open_fixture(&f, &shape, 8);
    assert_in_range(bp_batch_scored(&f.batch, 1), 1, B - 1); /* not all texts have a class */
    assert_in_range(check_slopes(&f), 50, 1000);
    close_fixture(&f);
}

/* A family: by how much its initial weights grow, and the fewest tensors that its network has. */
typedef struct sized {
    const char *kind;
    float grow;
    int least;
} sized;

static void those_of_variants_of_encoder_decoders_are(void **state)
{
    static const sized CASES[] = {{"transformer", 8, 60}, {"bart", 8, 60},  {"t5", 4, 30},
                                  {"marian", 8, 60},      {"mbart", 8, 60}, {"m2m_100", 8, 60}};

    (void)state;
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++)
        for (int mixes = 0; mixes < 2; mixes++) {
            bp_model_shape shape = shape_of(CASES[k].kind);
            fixture f = {0};

            shape.attention_entmax = 1;
            shape.softmaxes = mixes ? 3 : 1;
            shape.head_entmax = !mixes;
            open_fixture(&f, &shape, CASES[k].grow);
            assert_in_range(check_slopes(&f), CASES[k].least, 1000);
            close_fixture(&f);
        }
}

static void check_adapter(const sized *of, bp_adapter adapter, int least, int most)
{
    bp_model_shape shape = shape_of(of->kind);
    fixture f = {0};

    shape.adapter = adapter;
    open_fixture(&f, &shape, of->grow);
    assert_in_range(check_slopes(&f), least, most);
    close_fixture(&f);
}

/* LoRA has two matrices of each weight. A bottleneck has 32 tensors, some without a gradient. */
static void those_of_their_adapters_are(void **state)
{
    /* of two layers of each stack: an encoder's has 6 weights, a decoder's 10, with T5's gate one
     * more */
    static const sized CASES[] = {{"transformer", 8, 2 * 6 + 2 * 10}, {"t5", 4, 2 * 7 + 2 * 11}};

    (void)state;
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        int weights = CASES[k].least;

        check_adapter(&CASES[k],
                      (bp_adapter){BP_ADAPTER_LORA, .rank = 3, .targets = 63, .scale = 6}, weights,
                      2 * weights);
        check_adapter(&CASES[k], (bp_adapter){BP_ADAPTER_BOTTLENECK, .rank = 3}, 20, 32);
    }
}

/* In buckets, projected as queries and keys are; or each by itself and by matrices of their own.
 * With a convolution of one kind or another, and embeddings that are wider or narrower. */
static void set_distances(bp_model_shape *shape, bool own)
{
    bp_deberta_sizes_in(shape)->convolution = own ? 5 : 3;
    bp_deberta_sizes_in(shape)->groups = own ? 4 : 1;
    bp_deberta_sizes_in(shape)->activation = own ? 3 : 0;
    shape->stack.embedding = own ? 12 : 20;
    bp_deberta_sizes_in(shape)->buckets = own ? 0 : 6;
    bp_deberta_sizes_in(shape)->distance = own ? 5 : T;
    bp_deberta_sizes_in(shape)->other_projections = bp_deberta_sizes_in(shape)->no_norm = own;
}

typedef struct task_case {
    sized of; /* `least` of tags and spans */
    int least_of_classes;
    bp_pool pool; /* of classes */
    int64_t window;
    enum { NO_DISTANCES, IN_BUCKETS, EACH_DISTANCE } distances;
    bool unbiased;
} task_case;

static void check_task(const task_case *one, int64_t task)
{
    bp_model_shape shape = shape_of(one->of.kind);
    fixture f = {0};
    bool pools = task == BP_TASK_CLASSES;

    shape.task = (bp_task_shape){.kind = task,
                                 .outcomes = task == BP_TASK_SPANS ? 2 : 3,
                                 .pool = pools ? one->pool : BP_POOL_NONE,
                                 .unbiased = one->unbiased,
                                 .dense = pools && shape.family->blocks->backbone(&shape).dense};
    shape.stack.window = one->window;
    if (one->distances != NO_DISTANCES)
        set_distances(&shape, one->distances == EACH_DISTANCE);
    open_fixture(&f, &shape, one->of.grow);
    assert_in_range(check_slopes(&f), pools ? one->least_of_classes : one->of.least, 1000);
    close_fixture(&f);
}

static void those_of_heads_of_tasks_are(void **state)
{
    static const int64_t TASKS[] = {BP_TASK_SPANS, BP_TASK_TAGS, BP_TASK_CLASSES};
    static const task_case CASES[] = {
        {{"transformer", 8, 60}, 60, BP_POOL_LAST, 0, NO_DISTANCES},
        {{"bart", 8, 60}, 60, BP_POOL_LAST, 0, NO_DISTANCES},
        {{"t5", 7, 25}, 10, BP_POOL_LAST, 0, NO_DISTANCES},
        {{"mbart", 8, 60}, 60, BP_POOL_LAST, 0, NO_DISTANCES},
        {{"distilbert", 8, 20}, 10, BP_POOL_FIRST, 0, NO_DISTANCES},
        {{"modernbert", 3, 15}, 10, BP_POOL_MEAN, 6, NO_DISTANCES},
        {{"mpnet", 8, 20}, 10, BP_POOL_FIRST, 0, NO_DISTANCES},
        {{"t5_encoder", 7, 20}, 10, BP_POOL_MEAN, 0, NO_DISTANCES},
        {{"llama", 8, 15}, 10, BP_POOL_LAST, 0, NO_DISTANCES, .unbiased = true},
        {{"deberta", 8, 15}, 10, BP_POOL_FIRST, 0, IN_BUCKETS},
        {{"deberta", 8, 15}, 10, BP_POOL_FIRST, 0, EACH_DISTANCE},
    };

    (void)state;
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++)
        for (size_t t = 0; t < sizeof TASKS / sizeof *TASKS; t++)
            check_task(&CASES[k], TASKS[t]);
}

static void those_of_masked_words_with_convolutions_are(void **state)
{
    (void)state;
    for (int own = 0; own < 2; own++) {
        bp_model_shape shape = shape_of("deberta");
        fixture f = {0};

        set_distances(&shape, own);
        open_fixture(&f, &shape, 8);
        assert_in_range(check_slopes(&f), 20, 1000);
        close_fixture(&f);
    }
}

/* Cells of an operation each, and the mixture of all of them, whose shares have gradients too. */
static void those_of_cells_are(void **state)
{
    static const struct {
        const char *cell;
        int layers, least;
        float grow;
    } CASES[] = {{NULL, 2, 8, 3},
                 {"identity:0,none:1,tanh:0,relu:3,sigmoid:4", 2, 8, 3},
                 {"mixed:3", 1, 6, 1}};

    (void)state;
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        bp_model_shape shape = shape_of("cell");
        fixture f = {0};

        shape.layers = CASES[k].layers;
        if (CASES[k].cell)
            assert_true(bp_pairs_read(bp_recurrent_sizes_in(&shape)->cell, BP_MODEL_PAIRS,
                                      CASES[k].cell, BP_CELL_WORDS));
        assert_null(bp_cell_fault(&shape));
        open_fixture(&f, &shape, CASES[k].grow);
        assert_in_range(check_slopes(&f), CASES[k].least, 1000);
        close_fixture(&f);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(those_of_cells_are),
        cmocka_unit_test(those_of_masked_words_with_convolutions_are),
        cmocka_unit_test(those_of_variants_of_encoder_decoders_are),
        cmocka_unit_test(those_of_their_adapters_are),
        cmocka_unit_test(those_of_heads_of_tasks_are)};

    return BP_TEST_RUN_MPI(argc, argv, tests);
}
