/* Linear maps against plain loops in float64, in float32 and bf16. */
#include "linear_problem.h"

static void check_shapes(int way)
{
    static const int64_t shapes[][3] = {
        {1, 1, 1},      {1, 64, 64},   {3, 5, 7},      {17, 33, 19},   {64, 96, 32},
        {70, 130, 257}, {128, 48, 48}, {40, 70, 1024}, {33, 2048, 16}, {200, 257, 64}};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(way, shapes[i][0], shapes[i][1], shapes[i][2]);
}

static void products_equal_plain_loops(void **state)
{
    (void)state;
    for (int way = F32; way < ways(); way++)
        check_shapes(way);
}

static void refreshed_weight_is_used(void **state)
{
    (void)state;
    for (int way = F32; way < ways(); way++) {
        problem p = problem_of(20, 40, 30);
        bp_gemm *gemm;
        bp_weight *weight;
        gemm = gemm_of(way);
        assert_int_equal(bp_weight_new(&weight, gemm, p.w, 40, 30), BP_OK);
        bp_linear_forward(gemm, p.y, p.x, weight, NULL, 20);
        bp_linear_backward_input(gemm, p.dx, p.dy, weight, 20);
        for (int64_t i = 0; i < 40 * 30; i++)
            p.w[i] = -2 * p.w[i];
        bp_weight_refresh(weight);
        bp_linear_forward(gemm, p.y, p.x, weight, NULL, 20);
        bp_linear_backward_input(gemm, p.dx, p.dy, weight, 20);
        twin_forward(p.y_twin, p.x, p.w, NULL, 20, 40, 30, way);
        twin_input(p.dx_twin, p.dy, p.w, 20, 40, 30, way);
        assert_near(p.y, p.y_twin, 20 * 40, 2 * tolerance(30));
        assert_near(p.dx, p.dx_twin, 20 * 30, 2 * tolerance(40));
        bp_weight_free(&weight);
        bp_gemm_free(&gemm);
        problem_free(&p);
    }
}

/* More shapes than the cache of primitives holds, twice. */
static void many_shapes_are_forgotten_and_made_again(void **state)
{
    problem p = problem_of(200, 16, 16);
    bp_gemm *gemm;
    bp_weight *weight;

    (void)state;
    gemm = gemm_of(F32);
    assert_int_equal(bp_weight_new(&weight, gemm, p.w, 16, 16), BP_OK);
    twin_forward(p.y_twin, p.x, p.w, NULL, 200, 16, 16, F32);
    for (int pass = 0; pass < 2; pass++)
        for (int64_t rows = 1; rows <= 200; rows++) {
            bp_linear_forward(gemm, p.y, p.x, weight, NULL, rows);
            assert_near(p.y, p.y_twin, rows * 16, tolerance(16));
        }
    bp_weight_free(&weight);
    bp_gemm_free(&gemm);
    problem_free(&p);
}

/* One call for both gradients is the two calls, to the bit. */
static void both_gradients_at_once_are_the_two(void **state)
{
    enum { rows = 150, outs = 70, ins = 50 };

    (void)state;
    for (int way = F32; way < ways(); way++) {
        problem p = problem_of(rows, outs, ins), twin = problem_of(rows, outs, ins);
        bp_gemm *gemm = gemm_of(way);
        bp_weight *weight;
        assert_int_equal(bp_weight_new(&weight, gemm, p.w, outs, ins), BP_OK);
        bp_linear_backward(&(bp_linear_gradients){p.dx, p.dw, p.dbias}, gemm, p.dy, p.x, weight,
                           rows);
        bp_linear_backward(&(bp_linear_gradients){p.dx, p.dw, NULL}, gemm, p.dy, p.x, weight, 0);
        bp_linear_backward_weight(gemm, twin.dw, twin.dbias, p.dy, p.x, rows, outs, ins);
        bp_linear_backward_input(gemm, twin.dx, p.dy, weight, rows);
        assert_same_bits(p.dx, twin.dx, rows * ins);
        assert_same_bits(p.dw, twin.dw, outs * ins);
        assert_same_bits(p.dbias, twin.dbias, outs);
        bp_weight_free(&weight);
        bp_gemm_free(&gemm);
        problem_free(&p);
        problem_free(&twin);
    }
}

static void short_memory_is_an_error(void **state)
{
    float value[4] = {0};
    bp_gemm *gemm;
    bp_weight *weight;

    (void)state;
    bp_fault_arm("math.gemm");
    assert_int_equal(bp_gemm_new(&gemm, BP_F32), BP_ERR_SYSTEM);
    assert_null(gemm);
    assert_int_equal(bp_gemm_new(&gemm, BP_F32), BP_OK);
    bp_fault_arm("math.weight");
    assert_int_equal(bp_weight_new(&weight, gemm, value, 2, 2), BP_ERR_SYSTEM);
    assert_null(weight);
    bp_fault_arm(NULL);
    bp_gemm_free(&gemm);
}

/* What is not finite comes out not finite: it must be noticed. */
static void nan_comes_through(void **state)
{
    (void)state;
    for (int way = F32; way < ways(); way++) {
        problem p = problem_of(4, 8, 16);
        bp_gemm *gemm;
        bp_weight *weight;
        gemm = gemm_of(way);
        assert_int_equal(bp_weight_new(&weight, gemm, p.w, 8, 16), BP_OK);
        p.x[16 + 3] = NAN;
        bp_linear_forward(gemm, p.y, p.x, weight, NULL, 4);
        bp_linear_backward_weight(gemm, p.dw, NULL, p.dy, p.x, 4, 8, 16);
        for (int64_t o = 0; o < 8; o++) {
            assert_true(isfinite(p.y[o]));
            assert_true(isnan(p.y[8 + o]));
            assert_true(isnan(p.dw[o * 16 + 3]));
            assert_true(isfinite(p.dw[o * 16 + 4]));
        }
        bp_weight_free(&weight);
        bp_gemm_free(&gemm);
        problem_free(&p);
    }
}

/* The plan's bytes are at least what is taken. */
static void check_plan(int way, int64_t ins)
{
    problem p = problem_of(300, 130, ins);
    bp_gemm *gemm = gemm_of(way);
    bp_weight *weight;

    assert_int_equal(bp_weight_new(&weight, gemm, p.w, 130, ins), BP_OK);
    size_t planned =
        bp_weight_copy_bytes(gemm, 130, ins) + bp_linear_scratch_bytes(gemm, 300, 130, ins);
    size_t before = bp_mem_now_bytes();
    bp_linear_forward(gemm, p.y, p.x, weight, p.bias, 300);
    bp_linear_backward_input(gemm, p.dx, p.dy, weight, 300);
    bp_linear_backward_weight(gemm, p.dw, p.dbias, p.dy, p.x, 300, 130, ins);
    size_t after = bp_mem_now_bytes();
    /* Descriptors of the primitives come on top: a fixed amount each. */
    assert_in_range(after - before, 0, planned + 64 * 1024);
    bp_linear_forward(gemm, p.y, p.x, weight, p.bias, 300);
    bp_linear_backward_input(gemm, p.dx, p.dy, weight, 300);
    assert_int_equal(bp_mem_now_bytes(), after); /* nothing is allocated in a step */
    bp_weight_free(&weight);
    bp_gemm_free(&gemm);
    problem_free(&p);
}

static void memory_keeps_to_its_plan(void **state)
{
    (void)state;
    for (int way = F32; way < ways(); way++) {
        check_plan(way, 70);
        check_plan(way, 1024); /* rows a page apart */
    }
}

/* dx of a weight whose gemm has no other. */
static void alone(int way, float *dx, const problem *p, const float *w)
{
    bp_gemm *gemm = gemm_of(way);
    bp_weight *weight;

    assert_int_equal(bp_weight_new(&weight, gemm, w, p->outs, p->ins), BP_OK);
    bp_linear_backward_input(gemm, dx, p->dy, weight, p->rows);
    bp_weight_free(&weight);
    bp_gemm_free(&gemm);
}

/* Weights that one gemm reorders in turn, in the workspace that they share: to the
 * bit what each gives alone, before a refresh and after it. */
static void weights_in_turn_are_each_their_own(void **state)
{
    (void)state;
    for (int way = F32; way < ways(); way++) {
        problem one = problem_of(40, 96, 1024), other = problem_of(40, 32, 1024);
        float *expected = bp_alloc("test", 40 * 1024, sizeof *expected);
        bp_gemm *gemm = gemm_of(way);
        bp_weight *a, *b;

        assert_int_equal(bp_weight_new(&a, gemm, one.w, 96, 1024), BP_OK);
        assert_int_equal(bp_weight_new(&b, gemm, other.w, 32, 1024), BP_OK);
        for (int turn = 0; turn < 3; turn++) {
            if (turn == 2) {
                for (int i = 0; i < 96 * 1024; i++)
                    one.w[i] = one.w[i] * 0.5F + 1.0F;
                bp_weight_refresh(a);
            }
            for (int again = 0; again < 2; again++) {
                alone(way, expected, &one, one.w);
                bp_linear_backward_input(gemm, one.dx, one.dy, a, 40);
                assert_memory_equal(one.dx, expected, 40 * 1024 * sizeof(float));
            }
            alone(way, expected, &other, other.w);
            bp_linear_backward_input(gemm, other.dx, other.dy, b, 40);
            assert_memory_equal(other.dx, expected, 40 * 1024 * sizeof(float));
        }
        bp_weight_free(&a);
        bp_weight_free(&b);
        bp_gemm_free(&gemm);
        bp_free(expected);
        problem_free(&one);
        problem_free(&other);
    }
}

/* A gemm that goes forward alone gives the same bits, from one copy at most;
 * where it reads a copy, the values may be lost. */
static void forward_alone_holds_a_weight_once(void **state)
{
    (void)state;
    for (int way = F32; way < ways(); way++) {
        problem p = problem_of(40, 130, 1024);
        float *expected = bp_alloc("test", 40 * 130, sizeof *expected);
        bp_gemm *gemm = gemm_of(way), *both = gemm_of(way);
        bp_weight *weight, *trained;

        bp_gemm_set_forward_only(gemm);
        assert_int_equal(bp_weight_new(&trained, both, p.w, 130, 1024), BP_OK);
        bp_linear_forward(both, expected, p.x, trained, p.bias, 40);
        size_t before = bp_mem_now_bytes();
        assert_int_equal(bp_weight_new(&weight, gemm, p.w, 130, 1024), BP_OK);
        bp_weight_refresh(weight);
        size_t planned = bp_weight_copy_bytes(gemm, 130, 1024);
        assert_in_range(bp_mem_now_bytes() - before, planned / 2, planned + 64 * 1024);
        assert_in_range(planned, 0, 192 * 1024 * (way == BF16_ROUNDED ? 4 : 2));
        assert_int_equal(planned == 0, way <= F32_LIBRARY);
        assert_int_equal(bp_gemm_reads_values(gemm), way <= F32_LIBRARY);
        if (!bp_gemm_reads_values(gemm))
            memset(p.w, 0, 130 * 1024 * sizeof(float));
        bp_linear_forward(gemm, p.y, p.x, weight, p.bias, 40);
        assert_memory_equal(p.y, expected, 40 * 130 * sizeof(float));
        bp_weight_free(&weight);
        bp_weight_free(&trained);
        bp_gemm_free(&gemm);
        bp_gemm_free(&both);
        bp_free(expected);
        problem_free(&p);
    }
}

static void bf16_is_refused_where_it_is_not(void **state)
{
    bp_gemm *gemm;

    (void)state;
    if (bp_math_has_bf16())
        skip();
    assert_int_equal(bp_gemm_new(&gemm, BP_BF16), BP_ERR_CONFIG);
    assert_null(gemm);
    assert_non_null(strstr(bp_err_message(), "math.precision"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_equal_plain_loops),
        cmocka_unit_test(refreshed_weight_is_used),
        cmocka_unit_test(many_shapes_are_forgotten_and_made_again),
        cmocka_unit_test(both_gradients_at_once_are_the_two),
        cmocka_unit_test(short_memory_is_an_error),
        cmocka_unit_test(nan_comes_through),
        cmocka_unit_test(memory_keeps_to_its_plan),
        cmocka_unit_test(weights_in_turn_are_each_their_own),
        cmocka_unit_test(forward_alone_holds_a_weight_once),
        cmocka_unit_test(bf16_is_refused_where_it_is_not),
    };

    return cmocka_run_group_tests(tests, NULL, no_leaks);
}
