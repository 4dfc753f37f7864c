/* Attention against plain loops in float64, and its gradient against finite differences of those.
 */
#include "attention_problem.h"

static void causal_attention_equals_plain_loops(void **state)
{
    static const int64_t shapes[][4] = {{1, 1, 1, 1},   {2, 1, 3, 16},  {1, 64, 1, 64},
                                        {2, 65, 2, 32}, {1, 63, 2, 20}, {1, 130, 3, 48},
                                        {3, 40, 2, 7},  {1, 257, 1, 80}};

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check(shape_of(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], true));
}

static void full_attention_equals_plain_loops(void **state)
{
    (void)state;
    check(shape_of(2, 70, 2, 24, false));
    check(shape_of(1, 128, 1, 64, false));
}

/* A decoder's look at an encoder: other positions than the queries' own. */
static void attention_to_other_positions_equals_plain_loops(void **state)
{
    static const int64_t positions[][2] = {{5, 9},   {1, 200}, {200, 1},
                                           {70, 64}, {64, 70}, {130, 257}};
    bp_attention_shape shape = shape_of(2, 0, 2, 24, false);

    (void)state;
    for (size_t i = 0; i < sizeof positions / sizeof *positions; i++) {
        shape.T = positions[i][0];
        shape.K = positions[i][1];
        check(shape);
    }
}

/* Relative positions: what scores get by distance, and its gradient. */
static void scores_may_be_biased_by_distance(void **state)
{
    static const int32_t lengths[] = {70, 33};
    static const int64_t sizes[][2] = {{5, 0}, {64, 0}, {200, 0}, {70, 131}};
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_DROPOUT, 0, 3, 5);

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        bp_attention_shape shape = shape_of(2, sizes[i][0], 3, 24, sizes[i][1] == 0);
        float *bias;

        shape.K = sizes[i][1];
        shape.scale = 0.3f;
        bias = randoms(3 * bp_bias_floats(&shape), 3);
        shape.bias = bias;
        check(shape);
        shape.causal = false;
        shape.lengths = shape.T > 33 && shape.T + shape.K > 70 ? lengths : NULL;
        shape.dropout = 0.25f;
        shape.key = &key;
        check(shape);
        bp_free(bias);
    }
}

/* Of T5's sizes: 32 buckets up to a distance of 128. */
static void distances_have_the_buckets_of_t5(void **state)
{
    static const int64_t both[][2] = {{0, 0},   {1, 1},   {7, 7},   {8, 8},    {11, 8},
                                      {12, 9},  {16, 10}, {90, 14}, {91, 15},  {500, 15},
                                      {-1, 17}, {-7, 23}, {-8, 24}, {-16, 26}, {-128, 31}},
                         one[][2] = {{0, 0},   {15, 15},  {16, 16},  {18, 16},  {19, 17},
                                     {32, 21}, {113, 31}, {112, 30}, {128, 31}, {-5, 0}};
    bp_relative by = {32, 128, true};

    (void)state;
    /* of keys so far before their query */
    for (size_t i = 0; i < sizeof both / sizeof *both; i++)
        assert_int_equal(bp_relative_bucket(&by, -both[i][0]), both[i][1]);
    by.two_sided = false;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++)
        assert_int_equal(bp_relative_bucket(&by, -one[i][0]), one[i][1]);
}

static void keys_after_a_length_are_not_seen(void **state)
{
    static const int32_t lengths[] = {1, 70, 33, 64, 0, 129};
    bp_attention_shape shape = shape_of(6, 130, 2, 16, false);

    (void)state;
    shape.lengths = lengths;
    check(shape);
    shape.causal = true;
    check(shape);
    shape.causal = false;
    shape.T = 7;
    shape.K = 131;
    check(shape);
    shape = shape_of(1, 300, 1, 16, false); /* few heads: the backward pass is cut in parts */
    shape.lengths = &lengths[1];
    check(shape);
}

static void only_the_last_keys_may_be_seen(void **state)
{
    static const int64_t windows[] = {1, 5, 63, 64, 65, 130, 199, 500};
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_DROPOUT, 0, 3, 5);

    (void)state;
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        bp_attention_shape shape = shape_of(2, 200, 4, 24, true);

        shape.window = windows[i];
        check(shape);
        shape.key_heads = 2;
        shape.dropout = 0.25f;
        shape.key = &key;
        check(shape);
        shape = shape_of(1, 300, 1, 16, true); /* in parts */
        shape.window = windows[i];
        check(shape);
    }
}

/* Of padding too, whose positions may see none of the keys. */
static void keys_may_be_seen_on_both_sides(void **state)
{
    static const int64_t windows[] = {1, 2, 9, 64, 65, 130, 260, 500};
    static const int32_t lengths[] = {200, 41};
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_DROPOUT, 0, 3, 5);

    (void)state;
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        bp_attention_shape shape = shape_of(2, 200, 4, 24, false);

        shape.window = windows[i];
        check(shape);
        shape.lengths = lengths;
        check(shape);
        shape.key_heads = 2;
        shape.dropout = 0.25f;
        shape.key = &key;
        check(shape);
        shape = shape_of(1, 300, 1, 16, false); /* in parts */
        shape.window = windows[i];
        check(shape);
        shape.lengths = &lengths[1];
        check(shape);
    }
}

static void heads_may_share_keys(void **state)
{
    static const int64_t heads[][2] = {{4, 2}, {6, 1}, {8, 4}};
    static const int32_t lengths[] = {70, 33};
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_DROPOUT, 0, 3, 5);

    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        bp_attention_shape shape = shape_of(2, 70, heads[i][0], 24, true);

        shape.key_heads = heads[i][1];
        check(shape);
        shape.dropout = 0.25f;
        shape.key = &key;
        check(shape);
        shape.causal = false;
        shape.lengths = lengths;
        check(shape);
    }
}

/* Caps within the scores' size, so that their slopes are far from 1. */
static void scores_may_be_capped(void **state)
{
    static const int32_t lengths[] = {70, 33};
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_DROPOUT, 0, 3, 5);

    (void)state;
    for (int grouped = 0; grouped < 2; grouped++) {
        bp_attention_shape shape = shape_of(2, 200, 4, 24, true);

        shape.cap = 0.5f;
        shape.key_heads = grouped ? 2 : 0;
        check(shape);
        shape.window = 65;
        shape.scale = 0.4f;
        shape.cap = 2;
        check(shape);
        shape.dropout = 0.25f;
        shape.key = &key;
        check(shape);
        shape = shape_of(2, 70, 2, 16, false);
        shape.cap = 0.25f;
        shape.lengths = lengths;
        check(shape);
    }
}

/* A rank's heads out of more: their groups begin or end on other ranks. */
static void groups_may_be_cut(void **state)
{
    static const int64_t cuts[][4] = {/* heads, key heads, heads a group, before */
                                      {3, 2, 2, 0}, {3, 2, 2, 1}, {3, 2, 4, 3},
                                      {3, 1, 4, 1}, {2, 2, 3, 2}, {6, 3, 4, 3}};
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_DROPOUT, 0, 3, 5);

    (void)state;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        bp_attention_shape shape = shape_of(2, 70, cuts[i][0], 24, true);

        shape.key_heads = cuts[i][1];
        shape.group = cuts[i][2];
        shape.before = cuts[i][3];
        check(shape);
        shape.dropout = 0.25f;
        shape.key = &key;
        check(shape);
    }
}

static void dropped_weights_are_those_of_the_documented_words(void **state)
{
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_DROPOUT, 0, 3, 5);
    bp_attention_shape shape = shape_of(2, 75, 2, 16, true);

    (void)state;
    shape.dropout = 0.25f;
    shape.key = &key;
    shape.first_sequence = 5;
    shape.first_head = 1;
    shape.all_heads = 4;
    check(shape);
    shape.slot_T = 90; /* it is shortened */
    shape.slot_K = 93;
    check(shape);
    shape.T = 64;
    shape.causal = false;
    check(shape);
    shape.K = 90;
    check(shape);
}

/* The twin's own gradient, by central differences of the twin. */
static void check_differences(float cap)
{
    bp_rng_key key = bp_rng_key_of(2, BP_RNG_DROPOUT, 0, 0, 0);
    bp_attention_shape shape = shape_of(1, 9, 2, 5, true);

    shape.dropout = 0.3f;
    shape.key = &key;
    shape.cap = cap;
    problem p = problem_of(F32, shape);
    int64_t n = out_floats(&shape);
    double *qkv = widened(p.qkv, 3 * n), *out = doubles(n), *lse = doubles(18),
           *dqkv = doubles(3 * n);
    run(&p);
    for (int64_t i = 0; i < 3 * n; i++) {
        double kept = qkv[i], step = 1e-5, loss[2] = {0, 0};
        for (int side = 0; side < 2; side++) {
            qkv[i] = kept + (side ? step : -step);
            twin_forward(out, lse, qkv, &shape);
            for (int64_t j = 0; j < n; j++)
                loss[side] += out[j] * (double)p.dout[j];
        }
        qkv[i] = kept;
        dqkv[i] = (loss[1] - loss[0]) / (2 * step);
    }
    assert_near(p.dqkv, dqkv, 3 * n, 1e-5);
    bp_free(qkv);
    bp_free(out);
    bp_free(lse);
    bp_free(dqkv);
    problem_free(&p);
}

static void gradient_equals_finite_differences(void **state)
{
    (void)state;
    check_differences(0);
    check_differences(0.5f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(causal_attention_equals_plain_loops),
        cmocka_unit_test(full_attention_equals_plain_loops),
        cmocka_unit_test(attention_to_other_positions_equals_plain_loops),
        cmocka_unit_test(scores_may_be_biased_by_distance),
        cmocka_unit_test(distances_have_the_buckets_of_t5),
        cmocka_unit_test(keys_after_a_length_are_not_seen),
        cmocka_unit_test(keys_may_be_seen_on_both_sides),
        cmocka_unit_test(heads_may_share_keys),
        cmocka_unit_test(groups_may_be_cut),
        cmocka_unit_test(scores_may_be_capped),
        cmocka_unit_test(only_the_last_keys_may_be_seen),
        cmocka_unit_test(dropped_weights_are_those_of_the_documented_words),
        cmocka_unit_test(gradient_equals_finite_differences),
    };

    return cmocka_run_group_tests(tests, NULL, no_leaks);
}
