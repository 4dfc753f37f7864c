/* Attention gives the same bits however it is cut: threads, sequences, heads, lengths, padding,
 * rows in bf16; and what is too large or NaN stays where it is. */
#include "attention_problem.h"

/* Nothing that lies in padding changes a bit. */
static void padding_changes_no_bits(void **state)
{
    static const int32_t lengths[] = {37, 66};
    bp_attention_shape shape = shape_of(2, 90, 2, 16, false);

    (void)state;
    shape.lengths = lengths;
    for (int way = F32; way < ways(); way++) {
        problem p = problem_of(way, shape), other = problem_of(way, shape);

        for (int64_t b = 0; b < 2; b++)
            for (int64_t u = lengths[b]; u < 90; u++)
                for (int64_t h = 0; h < 2; h++)
                    for (int64_t d = 0; d < 16; d++)
                        other.qkv[key_at(&shape, b, h, u) + d] = 1e30F,
                                                            other.qkv[value_at(&shape, b, h, u) +
                                                                      d] = NAN;
        run(&p);
        run(&other);
        assert_same_bits(p.out, other.out, out_floats(&shape));
        assert_same_bits(p.dqkv, other.dqkv, in_floats(&shape));
        problem_free(&p);
        problem_free(&other);
    }
}

static void check_threads_do_not_change_bits(int way)
{
    bp_rng_key key = bp_rng_key_of(2, BP_RNG_DROPOUT, 0, 0, 0);
    bp_attention_shape shape = shape_of(2, 150, 3, 32, true);

    shape.dropout = 0.1f;
    shape.key = &key;
    bp_math_set_threads(13); /* more than heads: each is cut into parts */
    problem p = problem_of(way, shape);
    int64_t n = out_floats(&shape);
    run(&p);
    float *out = copied(p.out, n), *dqkv = copied(p.dqkv, 3 * n);
    for (int threads = 1; threads < 13; threads++) {
        bp_math_set_threads(threads);
        run(&p);
        assert_same_bits(p.out, out, n);
        assert_same_bits(p.dqkv, dqkv, 3 * n);
    }
    bp_math_set_threads(0);
    bp_free(out);
    bp_free(dqkv);
    problem_free(&p);
}

static void threads_do_not_change_bits(void **state)
{
    (void)state;
    for (int way = F32; way < ways(); way++)
        check_threads_do_not_change_bits(way);
}

/* Sequence 1 alone, and head 1 alone on another rank, give the bits that they give among others. */
static void check_split_over_sequences_and_heads_does_not_change_bits(int way)
{
    bp_rng_key key = bp_rng_key_of(2, BP_RNG_DROPOUT, 0, 0, 0);
    bp_attention_shape shape = shape_of(2, 70, 2, 16, true), part = shape;

    shape.dropout = part.dropout = 0.2f;
    shape.key = part.key = &key;
    part.B = part.H = part.first_sequence = part.first_head = 1;
    problem whole = problem_of(way, shape), one = problem_of(way, part);
    for (int64_t t = 0; t < 70; t++) {
        for (int64_t j = 0; j < 3; j++)
            memcpy(one.qkv + (t * 3 + j) * 16, whole.qkv + (((70 + t) * 3 + j) * 2 + 1) * 16,
                   16 * sizeof(float));
        memcpy(one.dout + t * 16, whole.dout + ((70 + t) * 2 + 1) * 16, 16 * sizeof(float));
    }
    run(&whole);
    run(&one);
    for (int64_t t = 0; t < 70; t++) {
        assert_same_bits(one.out + t * 16, whole.out + ((70 + t) * 2 + 1) * 16, 16);
        for (int64_t j = 0; j < 3; j++)
            assert_same_bits(one.dqkv + (t * 3 + j) * 16,
                             whole.dqkv + (((70 + t) * 3 + j) * 2 + 1) * 16, 16);
    }
    problem_free(&whole);
    problem_free(&one);
}

static void split_over_sequences_and_heads_does_not_change_bits(void **state)
{
    (void)state;
    for (int way = F32; way < ways(); way++)
        check_split_over_sequences_and_heads_does_not_change_bits(way);
}

/* Position t of a causal sequence has the same bits however long the sequence is: scoring may
 * shorten windows. */
static void check_later_positions_do_not_change_bits(int way)
{
    problem p = problem_of(way, shape_of(1, 200, 2, 32, true));

    run(&p);
    float *out = copied(p.out, 200 * 64);
    for (int64_t T = 1; T < 200; T += 33) {
        problem shorter = problem_of(way, shape_of(1, T, 2, 32, true));
        memcpy(shorter.qkv, p.qkv, (size_t)(T * 3 * 64) * sizeof(float));
        run(&shorter);
        assert_same_bits(shorter.out, out, T * 64);
        problem_free(&shorter);
    }
    bp_free(out);
    problem_free(&p);
}

/* The values of x in bf16, in rows with gaps. */
static bp_operand halves_of(const float *x, int64_t rows, int64_t columns)
{
    int64_t stride = (columns + 31) / 32 * 32 + 32;
    bp_operand to = {BP_OPERAND_BF16, rows, columns, stride,
                     bp_alloc("test", rows * stride, sizeof(uint16_t))};

    assert_non_null(to.data);
    bp_operand_fill(&to, x);
    return to;
}

static void assert_rounded(const bp_operand *halves, const float *x)
{
    bp_operand other = halves_of(x, halves->rows, halves->columns);

    assert_memory_equal(halves->data, other.data,
                        (size_t)(other.rows * other.stride) * sizeof(uint16_t));
    bp_free(other.data);
}

static void check_halves(bp_attention_shape shape)
{
    problem p = problem_of(BF16, shape);
    int64_t rows = shape.B * shape.T, width = shape.H * shape.D;
    bp_gemm *gemm;

    round_all(p.qkv, in_floats(&shape));
    round_all(p.dout, out_floats(&shape));
    p.rounded = true;
    run(&p);
    bp_operand qkv = halves_of(p.qkv, rows, 3 * width), dqkv = halves_of(p.qkv, rows, 3 * width),
               out = halves_of(p.dout, rows, width), dout = halves_of(p.dout, rows, width);
    float *lse = floats(shape.B * shape.H * shape.T);
    bp_attention_input in = bp_attention_of_groups(&qkv, shape.H, shape.H, shape.D),
                       as = bp_attention_of_groups(&dqkv, shape.H, shape.H, shape.D);
    bp_attention_gradients to = bp_attention_gradients_as(&as);
    assert_int_equal(bp_gemm_new_form(&gemm, BP_BF16, BP_BF16_NATIVE), BP_OK);
    assert_true(bp_attention_takes_halves(gemm, &shape));
    bp_attention_forward(gemm, &out, lse, &in, &shape, p.scratch);
    bp_attention_backward(gemm, &to, &dout, &out, lse, &in, &shape, p.scratch);
    assert_rounded(&out, p.out);
    assert_rounded(&dqkv, p.dqkv);
    assert_memory_equal(lse, p.lse, (size_t)(shape.B * shape.H * shape.T) * sizeof *lse);
    void *all[] = {qkv.data, dqkv.data, out.data, dout.data, lse};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        bp_free(all[i]);
    bp_gemm_free(&gemm);
    problem_free(&p);
}

/* What is given and left in bf16 is what float32 rows give, rounded. */
static void rows_may_be_halves(void **state)
{
    static const int32_t lengths[] = {70, 0};
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_DROPOUT, 0, 3, 5);
    bp_attention_shape shape = shape_of(2, 130, 3, 64, true);

    (void)state;
    if (ways() == 1)
        skip();
    check_halves(shape);
    check_halves(shape_of(1, 257, 2, 20, true));
    check_halves(shape_of(2, 33, 1, 80, false));
    shape.dropout = 0.25f;
    shape.key = &key;
    check_halves(shape);
    shape.cap = 0.5f;
    check_halves(shape);
    shape.cap = 0;
    shape.causal = false;
    shape.lengths = lengths;
    check_halves(shape);
}

static void later_positions_do_not_change_bits(void **state)
{
    (void)state;
    for (int way = F32; way < ways(); way++)
        check_later_positions_do_not_change_bits(way);
}

static void check_large_scores_do_not_overflow(int way)
{
    problem p = problem_of(way, shape_of(1, 100, 1, 16, true));

    for (int64_t i = 0; i < 3 * 100 * 16; i++)
        p.qkv[i] *= 60;
    run(&p);
    for (int64_t i = 0; i < 100 * 16; i++)
        assert_true(isfinite(p.out[i]));
    for (int64_t i = 0; i < 3 * 100 * 16; i++)
        assert_true(isfinite(p.dqkv[i]));
    problem_free(&p);
}

static void large_scores_do_not_overflow(void **state)
{
    (void)state;
    for (int way = F32; way < ways(); way++)
        check_large_scores_do_not_overflow(way);
}

static void check_nan_reaches_the_positions_that_see_it(int way)
{
    problem p = problem_of(way, shape_of(1, 130, 1, 16, true));

    p.qkv[(70 * 3 + 1) * 16 + 2] = NAN; /* a key */
    run(&p);
    for (int64_t t = 0; t < 130; t++)
        assert_int_equal(isnan(p.out[t * 16]), t >= 70);
    problem_free(&p);
}

static void nan_reaches_the_positions_that_see_it(void **state)
{
    (void)state;
    for (int way = F32; way < ways(); way++)
        check_nan_reaches_the_positions_that_see_it(way);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_may_be_halves),
        cmocka_unit_test(padding_changes_no_bits),
        cmocka_unit_test(threads_do_not_change_bits),
        cmocka_unit_test(split_over_sequences_and_heads_does_not_change_bits),
        cmocka_unit_test(later_positions_do_not_change_bits),
        cmocka_unit_test(large_scores_do_not_overflow),
        cmocka_unit_test(nan_reaches_the_positions_that_see_it),
    };

    return cmocka_run_group_tests(tests, NULL, no_leaks);
}
