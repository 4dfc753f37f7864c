/* The gradient of a BERT with dropout is the slope of its loss, masked words, next sentences and
 * words from their spans' boundaries together: along each tensor's gradient, by central
 * differences. Without dropout its numbers are those of test_references.c, and of the boundaries
 * those of plain loops. */
#include "bp_test_batch.h"
#include "bp_test_mpi.h"
#include "bp_test_perturb.h"

#include "models/bert/bert.h"
#include "models/list.h"
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
    int32_t lengths[B], segments[B * T], next[B];
    void *bytes;
} fixture;

static const float WEIGHT[BP_TERMS] = {0.05F, 0.3F, 0.05F};

static void make_batch(fixture *f, const bp_model_shape *shape)
{
    static const bp_example_rules RULES = {.seed = 1,
                                           .eod = -1,
                                           .vocab_size = VOCABULARY,
                                           .cls = CLS,
                                           .sep = SEP,
                                           .mask = MASK,
                                           .rate = 0.4,
                                           .span = 2.5,
                                           .keep = 0.1,
                                           .random = 0.1};
    bp_example_maker maker = shape->family->objective->maker(shape, T, &RULES);
    int32_t windows[B * (T - 1)];

    for (int i = 0; i < B * (T - 1); i++)
        windows[i] = 5 + (i * 19 + 6) % (VOCABULARY - 5);
    f->bytes = bp_alloc("test", (int64_t)bp_batch_bytes(&maker.form, B), 1);
    f->batch = bp_test_batch(&maker, windows, 1, 0, B, f->bytes);
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

static void open_fixture(fixture *f, int64_t segments)
{
    bp_mesh_shape alone = {1, 1, 1, 1, BP_COORDINATOR_SHARED};
    bp_model_shape shape = {.family = &bp_bert_family,
                            .layers = 2,
                            .width = 16,
                            .heads = 4,
                            .context = T,
                            .stack = {.segments = segments},
                            .vocab_size = VOCABULARY};
    bp_stage_spec spec = {.most = {B, {T}}, .micro_batches = 1, .stages = 1, .schedule = BP_1F1B};

    bp_bert_sizes_in(&shape)->boundary = 1;
    shape.family->fill_defaults(&shape);
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

static void check_gradients(int64_t segments)
{
    fixture f = {0};
    float *gradients;
    int checked = 0;

    open_fixture(&f, segments);
    assert_in_range(bp_batch_scored(&f.batch, BP_BERT_WORDS), B, B * T / 2);
    assert_int_equal(bp_batch_scored(&f.batch, BP_BERT_NEXT_SENTENCE), B - 1);
    assert_true(isfinite(loss_of(&f)));
    gradients = bp_alloc("test", f.network->gradient_floats, sizeof *gradients);
    memcpy(gradients, f.stage->gradient, (size_t)f.network->gradient_floats * sizeof *gradients);
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
    assert_in_range(checked, 48, 1000);
    bp_free(gradients);
    close_fixture(&f);
}

static void gradients_are_slopes(void **state)
{
    (void)state;
    check_gradients(2);
}

/* Whatever segments a batch says. */
static void those_of_one_segment_are(void **state)
{
    (void)state;
    check_gradients(1);
}

static const bp_param *find(const fixture *f, const char *name)
{
    for (int g = 0; g < f->network->group_count; g++)
        for (int k = 0; k < f->network->groups[g].count; k++)
            if (strcmp(f->network->groups[g].params[k].name, name) == 0)
                return &f->network->groups[g].params[k];
    fail_msg("there is no %s", name);
    return NULL;
}

/* y[16] = ln(gelu(weight x + bias)). */
static void plain_layer(const fixture *f, const char *name, double *y, const double *x, int ins)
{
    enum { C = 16 };
    char full[64];
    const float *values[4];
    static const char *const ENDS[] = {"weight", "bias", "ln.gain", "ln.bias"};
    double mean = 0, variance = 0;

    for (int k = 0; k < 4; k++) {
        snprintf(full, sizeof full, "%s.%s", name, ENDS[k]);
        values[k] = find(f, full)->value;
    }
    for (int c = 0; c < C; c++) {
        double sum = (double)values[1][c];

        for (int i = 0; i < ins; i++)
            sum += (double)values[0][c * ins + i] * x[i];
        y[c] = sum * 0.5 * (1 + erf(sum / sqrt(2)));
        mean += y[c] / C;
    }
    for (int c = 0; c < C; c++)
        variance += (y[c] - mean) * (y[c] - mean) / C;
    for (int c = 0; c < C; c++)
        y[c] = (y[c] - mean) / sqrt(variance + 1e-12) * (double)values[2][c] + (double)values[3][c];
}

/* -log p of a word from the states beside its span and its number in it. */
static double plain_loss(const fixture *f, const float *hidden, int before, int behind, int number,
                         int word)
{
    enum { C = 16 };
    double x[3 * C], first[C], second[C], sum = 0, own = 0;
    const float *positions = find(f, "boundary.positions")->value, *wte = find(f, "wte")->value,
                *bias = find(f, "head.bias")->value;

    for (int c = 0; c < C; c++) {
        x[c] = (double)hidden[before * C + c];
        x[C + c] = (double)hidden[behind * C + c];
        x[2 * C + c] = (double)positions[number * C + c];
    }
    plain_layer(f, "boundary.0", first, x, 3 * C);
    plain_layer(f, "boundary.1", second, first, C);
    for (int v = 0; v < VOCABULARY; v++) {
        double logit = (double)bias[v];

        for (int c = 0; c < C; c++)
            logit += second[c] * (double)wte[v * C + c];
        sum += exp(logit);
        own = v == word ? logit : own;
    }
    return log(sum) - own;
}

/* The states before the boundaries: of as many blocks as there are before theirs. */
static void run_backbone(fixture *f, float *hidden, bp_arena *scratch)
{
    bp_pass pass = bp_pass_over(&f->batch);

    pass.scratch = scratch;
    for (int k = 0; bp_network_at(f->network, k)->count == 1; k++) {
        bp_activations at = *bp_network_at(f->network, k);

        bp_activations_lay(&at, &f->network->nn, &pass, hidden, false);
        bp_block_forward(f->network->blocks[k], &pass, &at, NULL);
    }
}

static void boundaries_are_plain_loops(void **state)
{
    fixture f = {0};
    double sums[BP_TERMS], plain = 0;
    int64_t counts[BP_TERMS], count = 0;
    bp_arena scratch = {.size_bytes = 1 << 22};

    (void)state;
    open_fixture(&f, 2);
    scratch.base = bp_alloc("test", (int64_t)scratch.size_bytes, 1);
    float *hidden = bp_alloc("test", B * T * 16, sizeof *hidden);
    run_backbone(&f, hidden, &scratch);
    const int32_t *targets = f.batch.term[BP_BERT_WORDS].targets;
    for (int b = 0; b < B; b++)
        for (int t = 1, number = 0; t < T; t++) {
            int behind = t, at = b * T + t;

            number = targets[at] >= 0 ? number + 1 : 0;
            if (number == 0)
                continue;
            while (targets[b * T + behind] >= 0)
                behind++;
            plain += plain_loss(&f, hidden, at - number, b * T + behind, number - 1, targets[at]);
            count++;
        }
    bp_stage_evaluate(f.stage, &(bp_evaluation){.batch = &f.batch}, sums, counts);
    assert_int_equal(counts[BP_BERT_BOUNDARY_WORDS], count);
    assert_int_equal(count, bp_batch_scored(&f.batch, BP_BERT_WORDS));
    assert_true(fabs(sums[BP_BERT_BOUNDARY_WORDS] - plain) < 1e-5 * plain);
    bp_free(hidden);
    bp_free(scratch.base);
    close_fixture(&f);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_slopes),
                                              cmocka_unit_test(those_of_one_segment_are),
                                              cmocka_unit_test(boundaries_are_plain_loops)};

    return BP_TEST_RUN_MPI(argc, argv, tests);
}
