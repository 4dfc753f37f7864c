/* How a GPT is cut: stages, vocabulary shares, counts; and the rate of a step. */
#include "bp_test.h"

#include "models/list.h"
#include "nn/core/layers.h"
#include "train/engine/engine.h"

#include <math.h>

static double cost_of(const bp_model_shape *s, int block)
{
    double C = (double)s->width;

    if (block == 0)
        return 50 * C;
    return block == (int)s->layers + 1 ? 2 * (double)s->vocab_size * C
                                       : 24 * C * C + 4 * (double)s->context * C;
}

/* The smallest most expensive stage over all cuts of blocks [first, n) into `stages`, by trying
 * them all. */
static double best_cut(const bp_model_shape *s, int first, int stages)
{
    int n = (int)s->layers + 2;
    double best = INFINITY, cost = 0;

    if (stages == 1) {
        for (int k = first; k < n; k++)
            cost += cost_of(s, k);
        return cost;
    }
    for (int end = first + 1; n - end >= stages - 1; end++) {
        cost += cost_of(s, end - 1);
        best = fmin(best, fmax(cost, best_cut(s, end, stages - 1)));
    }
    return best;
}

static void stages_are_whole_and_balanced_best(void **state)
{
    const bp_model_shape shapes[] = {{.family = &bp_gpt_family,
                                      .layers = 2,
                                      .width = 32,
                                      .heads = 2,
                                      .context = 64,
                                      .vocab_size = 100},
                                     {.family = &bp_gpt_family,
                                      .layers = 6,
                                      .width = 64,
                                      .heads = 4,
                                      .context = 128,
                                      .vocab_size = 8000},
                                     {.family = &bp_gpt_family,
                                      .layers = 7,
                                      .width = 16,
                                      .heads = 4,
                                      .context = 16,
                                      .vocab_size = 50257},
                                     {.family = &bp_gpt_family,
                                      .layers = 1,
                                      .width = 8,
                                      .heads = 1,
                                      .context = 4,
                                      .vocab_size = 5}};

    (void)state;
    for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++)
        for (int stages = 1; stages <= bp_model_blocks(&shapes[k]); stages++) {
            int before = 0;
            double most = 0;
            for (int stage = 0; stage < stages; stage++) {
                int first, end;
                double cost = 0;
                bp_model_stage(&shapes[k], stage, stages, &first, &end);
                assert_int_equal(first, before);
                assert_true(end > first);
                for (int block = first; block < end; block++)
                    cost += cost_of(&shapes[k], block);
                most = fmax(most, cost);
                before = end;
            }
            assert_int_equal(before, bp_model_blocks(&shapes[k]));
            assert_true(most <= best_cut(&shapes[k], 0, stages) * (1 + 1e-9));
        }
}

static double stage_cost(const bp_model_shape *s, int stage, int stages, int chunks)
{
    double cost = 0;

    for (int c = 0; c < chunks; c++) {
        int first, end;
        bp_model_chunk(s, &(bp_model_place){stage, stages, c, chunks}, &first, &end);
        for (int block = first; block < end; block++)
            cost += cost_of(s, block);
    }
    return cost;
}

/* Runs of all stages, taken in turn, are the model; where there are layers enough, no stage has
 * more work than without chunks. */
static void chunks_tile_the_model_and_cost_a_stage_no_more(void **state)
{
    const bp_model_shape shapes[] = {{.family = &bp_gpt_family,
                                      .layers = 12,
                                      .width = 768,
                                      .heads = 12,
                                      .context = 1024,
                                      .vocab_size = 50257},
                                     {.family = &bp_gpt_family,
                                      .layers = 24,
                                      .width = 64,
                                      .heads = 4,
                                      .context = 128,
                                      .vocab_size = 100},
                                     {.family = &bp_gpt_family,
                                      .layers = 3,
                                      .width = 16,
                                      .heads = 4,
                                      .context = 16,
                                      .vocab_size = 50257}};

    (void)state;
    for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++)
        for (int stages = 1; stages <= 4; stages++)
            for (int chunks = 1; chunks * stages <= bp_model_blocks(&shapes[k]); chunks++) {
                int before = 0, first, end;
                for (int run = 0; run < chunks * stages; run++) {
                    bp_model_place at = {run % stages, stages, run / stages, chunks};
                    bp_model_chunk(&shapes[k], &at, &first, &end);
                    assert_int_equal(first, before);
                    assert_true(end > first);
                    before = end;
                }
                assert_int_equal(before, bp_model_blocks(&shapes[k]));
                for (int stage = 0;
                     stage < stages && (k == 1 || (k == 0 && stages <= 2)) && stages * chunks <= 8;
                     stage++)
                    assert_true(stage_cost(&shapes[k], stage, stages, chunks) <=
                                stage_cost(&shapes[k], stage, stages, 1) * (1 + 1e-9));
            }
}

static void vocabulary_shares_tile_it_and_may_be_empty(void **state)
{
    (void)state;
    for (int tensors = 1; tensors <= 7; tensors++)
        for (int64_t V = 1; V <= 40; V++) {
            int64_t before = 0, largest = (V + tensors - 1) / tensors;
            for (int t = 0; t < tensors; t++) {
                bp_nn nn = {.tensor_rank = t, .tensor_ranks = tensors};
                int64_t first, count;
                bp_vocab_share(&nn, V, &first, &count);
                assert_int_equal(first, before);
                assert_in_range(count, 0, largest);
                before += count;
            }
            assert_int_equal(before, V);
        }
}

static void gpt2_has_its_published_counts(void **state)
{
    const bp_model_shape gpt2 = {.family = &bp_gpt_family,
                                 .layers = 12,
                                 .width = 768,
                                 .heads = 12,
                                 .context = 1024,
                                 .vocab_size = 50257};

    (void)state;
    assert_int_equal(bp_model_parameters(&gpt2), 124439808);
    assert_true(fabs(bp_model_train_flops(&gpt2) / 0.854e9 - 1) < 1e-3);
}

static void rates_are_those_of_the_formula(void **state)
{
    bp_rate rate = {.peak = 2, .warmup = 4, .steps = 12, .decay = BP_DECAY_COSINE};

    (void)state;
    assert_true(bp_rate_at(&rate, 1) == 0.5 && bp_rate_at(&rate, 4) == 2 &&
                bp_rate_at(&rate, 5) == 2);
    assert_true(fabs(bp_rate_at(&rate, 9) - 1) < 1e-15); /* u = 1/2 */
    rate.decay = BP_DECAY_LINEAR;
    assert_true(bp_rate_at(&rate, 5) == 2 && bp_rate_at(&rate, 12) == 0.25);
    rate.decay = BP_DECAY_CONSTANT;
    assert_true(bp_rate_at(&rate, 12) == 2);
    rate.warmup = 0;
    assert_true(bp_rate_at(&rate, 1) == 2);
    rate.warmup = 100; /* longer than the run: it only rises */
    assert_true(bp_rate_at(&rate, 12) == 0.24);
    rate = (bp_rate){.peak = 2, .warmup = 4, .steps = 100, .decay = BP_DECAY_INVERSE_SQRT};
    assert_true(bp_rate_at(&rate, 4) == 2 && bp_rate_at(&rate, 16) == 1 &&
                bp_rate_at(&rate, 64) == 0.5);
    rate.warmup = 0;
    assert_true(bp_rate_at(&rate, 1) == 2 && bp_rate_at(&rate, 4) == 1);
}

/* The documented formula by itself; 0 gives the bits that the formula without a least rate has. */
static void least_rate_is_where_decay_ends(void **state)
{
    static const double leasts[] = {0, 0.1, 0.5, 1};

    (void)state;
    for (int k = 0; k < 4; k++) {
        double m = leasts[k];
        bp_rate rate = {.peak = 3e-4, .least = m, .warmup = 7, .steps = 1000};

        for (int64_t s = 1; s <= 1000; s++) {
            double u = (double)(s - 1 - 7) / (1000 - 7), c = (1 + cos(M_PI * u)) / 2;

            rate.decay = BP_DECAY_COSINE;
            double cosine = bp_rate_at(&rate, s);
            rate.decay = BP_DECAY_LINEAR;
            double linear = bp_rate_at(&rate, s);
            rate.decay = BP_DECAY_CONSTANT;
            assert_true(bp_rate_at(&rate, s) == (s <= 7 ? 3e-4 * (double)s / 7 : 3e-4));
            if (s <= 7) {
                assert_true(cosine == 3e-4 * (double)s / 7 && linear == cosine);
                continue;
            }
            assert_true(fabs(cosine - 3e-4 * (m + (1 - m) * c)) < 1e-18);
            assert_true(fabs(linear - 3e-4 * (m + (1 - m) * (1 - u))) < 1e-18);
            assert_true(m > 0 ||
                        (cosine == 3e-4 * (1 + cos(M_PI * u)) / 2 && linear == 3e-4 * (1 - u)));
            assert_true(cosine >= m * 3e-4 && linear >= m * 3e-4);
        }
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_are_whole_and_balanced_best),
        cmocka_unit_test(chunks_tile_the_model_and_cost_a_stage_no_more),
        cmocka_unit_test(vocabulary_shares_tile_it_and_may_be_empty),
        cmocka_unit_test(gpt2_has_its_published_counts),
        cmocka_unit_test(rates_are_those_of_the_formula),
        cmocka_unit_test(least_rate_is_where_decay_ends),
    };
    return BP_TEST_RUN(tests);
}
