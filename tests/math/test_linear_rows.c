/* A row of a product has the same bits whatever the number of rows, its place, threads, or the
 * operands that hold it. */
#include "linear_problem.h"

/* Row r has the same bits among few rows and many: counts around the edges of kernels' blocks. */
static void check_rows_alone(int way, int64_t outs, int64_t ins)
{
    static const int64_t counts[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  11,  13,  14,  15,  16, 17,
                                     23, 31, 33, 47, 49, 63, 64, 65, 70, 100, 127, 128, 129, 300};
    int64_t most = 512;
    problem p = problem_of(most, outs, ins);
    float *y = floats(most * outs), *dx = floats(most * ins);
    bp_gemm *gemm;
    bp_weight *weight;

    gemm = gemm_of(way);
    assert_int_equal(bp_weight_new(&weight, gemm, p.w, outs, ins), BP_OK);
    bp_linear_forward(gemm, p.y, p.x, weight, p.bias, most);
    bp_linear_backward_input(gemm, p.dx, p.dy, weight, most);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        int64_t rows = counts[i];
        bp_linear_forward(gemm, y, p.x, weight, p.bias, rows);
        if (memcmp(y, p.y, (size_t)(rows * outs) * sizeof *y) != 0)
            fail_msg("y of %d rows differs from that of 512 (%d x %d)", (int)rows, (int)outs,
                     (int)ins);
        bp_linear_backward_input(gemm, dx, p.dy, weight, rows);
        if (memcmp(dx, p.dx, (size_t)(rows * ins) * sizeof *dx) != 0)
            fail_msg("dx of %d rows differs from that of 512 (%d x %d)", (int)rows, (int)outs,
                     (int)ins);
    }
    bp_weight_free(&weight);
    bp_gemm_free(&gemm);
    bp_free(y);
    bp_free(dx);
    problem_free(&p);
}

/* With AMX products are our own: oneDNN 2.6.3 takes AMX for many rows and AVX-512 for few, where
 * the inner extent is odd. */
static bool is_used_here(int way)
{
    return !bp_cpu_has_tiles() || (way != BF16_NATIVE && way != BF16_MIXED);
}

static void rows_do_not_depend_on_their_number(void **state)
{
    (void)state;
    for (int way = F32; way < ways(); way++) {
        if (!is_used_here(way))
            continue;
        check_rows_alone(way, 257, 96);
        check_rows_alone(way, 192, 768);
        check_rows_alone(way, 48, 1024);
    }
}

/* A row's bits do not depend on where it stands among others: batches are put together in several
 * ways. */
static void check_positions(int way, int64_t outs, int64_t ins)
{
    enum { ROWS = 500 };
    problem p = problem_of(ROWS, outs, ins);
    bp_gemm *gemm = gemm_of(way);
    bp_weight *weight;

    for (int64_t r = 1; r < ROWS; r++) {
        memcpy(p.x + r * ins, p.x, (size_t)ins * sizeof *p.x);
        memcpy(p.dy + r * outs, p.dy, (size_t)outs * sizeof *p.dy);
    }
    assert_int_equal(bp_weight_new(&weight, gemm, p.w, outs, ins), BP_OK);
    bp_linear_forward(gemm, p.y, p.x, weight, p.bias, ROWS);
    bp_linear_backward_input(gemm, p.dx, p.dy, weight, ROWS);
    for (int64_t r = 1; r < ROWS; r++) {
        if (memcmp(p.y + r * outs, p.y, (size_t)outs * sizeof *p.y) != 0)
            fail_msg("y of row %d differs from that of row 0 (%d x %d)", (int)r, (int)outs,
                     (int)ins);
        if (memcmp(p.dx + r * ins, p.dx, (size_t)ins * sizeof *p.dx) != 0)
            fail_msg("dx of row %d differs from that of row 0 (%d x %d)", (int)r, (int)outs,
                     (int)ins);
    }
    bp_weight_free(&weight);
    bp_gemm_free(&gemm);
    problem_free(&p);
}

static void rows_do_not_depend_on_their_place(void **state)
{
    static const int64_t shapes[][2] = {{257, 96}, {192, 768}, {48, 1024}, {500, 32}, {130, 32},
                                        {96, 32},  {7, 24},    {33, 7},    {3000, 64}};

    (void)state;
    for (int way = F32; way < ways(); way++)
        for (size_t i = 0; is_used_here(way) && i < sizeof shapes / sizeof *shapes; i++)
            check_positions(way, shapes[i][0], shapes[i][1]);
}

/* All products of one shape with so many threads, one result after the other. */
static float *all_products(problem *p, int way, int threads, bool with_weight)
{
    int64_t y_floats = p->rows * p->outs, dx_floats = p->rows * p->ins,
            dw_floats = p->outs * p->ins;
    float *all = floats(y_floats + dx_floats + dw_floats + p->outs);
    float *dw = all + y_floats + dx_floats;
    bp_gemm *gemm;
    bp_weight *weight;

    bp_math_set_threads(threads);
    assert_int_equal(bp_math_threads(), threads);
    gemm = gemm_of(way);
    assert_int_equal(bp_weight_new(&weight, gemm, p->w, p->outs, p->ins), BP_OK);
    bp_linear_forward(gemm, all, p->x, weight, p->bias, p->rows);
    bp_linear_backward_input(gemm, all + y_floats, p->dy, weight, p->rows);
    if (with_weight)
        bp_linear_backward_weight(gemm, dw, dw + dw_floats, p->dy, p->x, p->rows, p->outs, p->ins);
    bp_weight_free(&weight);
    bp_gemm_free(&gemm);
    return all;
}

static void check_bits(int way, int threads_a, int threads_b, bool with_weight)
{
    problem p = problem_of(300, 256, 192);
    float *a = all_products(&p, way, threads_a, with_weight);
    float *b = all_products(&p, way, threads_b, with_weight);

    assert_same_bits(a, b, 300 * 256 + 300 * 192 + 256 * 192 + 256);
    bp_free(a);
    bp_free(b);
    problem_free(&p);
    bp_math_set_threads(0);
}

static void same_threads_give_same_bits(void **state)
{
    (void)state;
    for (int way = F32; way < ways(); way++)
        check_bits(way, 2, 2, true);
}

/* Not promised, but so with AVX-512. Weight gradients, which sum over rows that threads may share,
 * are left out. */
static void threads_do_not_change_rows_with_avx512(void **state)
{
    (void)state;
    if (!bp_gemm_isa() ||
        (strncmp(bp_gemm_isa(), "avx512", 6) != 0 && strcmp(bp_gemm_isa(), "amx") != 0))
        skip();
    for (int way = F32; way < ways(); way++)
        check_bits(way, 1, 2, false);
}

/* Operands made once and read by several products are the float32 rows' calls, to the bit; a fresh
 * gradient does not read what was there. */
static void operands_give_what_rows_give(void **state)
{
    enum { rows = 150, outs = 64, ins = 1024, first = 30 };

    (void)state;
    for (int way = F32; way < ways(); way++) {
        problem p = problem_of(rows, outs, ins), twin = problem_of(rows, outs, ins);
        bp_gemm *gemm = gemm_of(way);
        bp_weight *weight;
        bp_arena arena = {0};
        assert_int_equal(bp_weight_new(&weight, gemm, p.w, outs, ins), BP_OK);
        bp_operand_alloc(&arena, gemm, rows, ins); /* counted */
        bp_operand_over(&arena, gemm, NULL, rows, outs);
        arena = (bp_arena){bp_alloc("test", (int64_t)arena.used_bytes, 1), arena.used_bytes, 0};
        bp_operand x = bp_operand_alloc(&arena, gemm, rows, ins),
                   dy = bp_operand_over(&arena, gemm, p.dy, rows, outs);
        assert_true(arena.used_bytes == arena.size_bytes);
        assert_true((dy.data == p.dy) == (way <= F32_LIBRARY));
        bp_operand_fill(&x, p.x);
        bp_operand_fill(&dy, p.dy);
        bp_operand part = bp_operand_part(&x, first, rows - first);
        bp_linear_forward_operand(gemm, p.y, &part, weight, p.bias);
        bp_linear_backward_input_operand(gemm, p.dx, &dy, weight);
        p.dw[5] = NAN;
        bp_linear_backward_weight_operand(gemm, p.dw, &dy, &x, true);
        bp_linear_backward_weight_operand(gemm, p.dw, &dy, &x, false);
        bp_linear_forward(gemm, twin.y, p.x + first * ins, weight, p.bias, rows - first);
        memset(twin.dw, 0, (size_t)(outs * ins) * sizeof *twin.dw);
        bp_linear_backward(&(bp_linear_gradients){twin.dx, twin.dw, NULL}, gemm, p.dy, p.x, weight,
                           rows);
        bp_linear_backward_weight(gemm, twin.dw, NULL, p.dy, p.x, rows, outs, ins);
        assert_same_bits(p.y, twin.y, (rows - first) * outs);
        assert_same_bits(p.dx, twin.dx, rows * ins);
        assert_same_bits(p.dw, twin.dw, outs * ins);
        assert_ptr_equal(bp_operand_part(&x, first, 0).data, part.data); /* a place */
        bp_operand none = bp_operand_part(&x, 0, 0), nothing = bp_operand_part(&dy, 0, 0);
        bp_linear_backward_weight_operand(gemm, p.dw, &nothing, &none, true);
        for (int64_t i = 0; i < outs * ins; i++)
            assert_true(p.dw[i] == 0);
        bp_weight_free(&weight);
        bp_gemm_free(&gemm);
        bp_free(arena.base);
        problem_free(&p);
        problem_free(&twin);
    }
}

/* An operand whose rows are as far apart as results like best, and its bytes all 7. */
static bp_operand empty_operand(const bp_gemm *gemm, bp_operand_form form, int64_t rows,
                                int64_t columns)
{
    int64_t stride = bp_linear_row_stride(gemm, form, columns);
    size_t bytes = bp_operand_bytes(form, rows, stride);
    bp_operand to = {form, rows, columns, stride, bp_alloc("test", (int64_t)bytes, 1)};

    assert_non_null(to.data);
    memset(to.data, 7, bytes);
    return to;
}

/* What went into it is x, converted, and nothing is between its rows. */
static void check_into(const bp_gemm *gemm, bp_operand *into, const float *x)
{
    bp_operand twin = empty_operand(gemm, into->form, into->rows, into->columns);

    bp_operand_fill(&twin, x);
    assert_memory_equal(into->data, twin.data,
                        bp_operand_bytes(into->form, into->rows, into->stride));
    bp_free(twin.data);
    bp_free(into->data);
}

/* Results as operands: the float32 ones, converted as operands are. */
static void check_results(int way, int64_t rows, int64_t outs, int64_t ins)
{
    problem p = problem_of(rows, outs, ins);
    bp_gemm *gemm = gemm_of(way);
    bp_operand_form forms[] = {BP_OPERAND_F32, bp_gemm_form(gemm)};
    bp_weight *weight;

    p.x[0] = NAN;
    assert_int_equal(bp_weight_new(&weight, gemm, p.w, outs, ins), BP_OK);
    bp_linear_forward(gemm, p.y, p.x, weight, p.bias, rows);
    bp_linear_backward_input(gemm, p.dx, p.dy, weight, rows);
    for (int i = 0; i < 2; i++) {
        bp_operand x = empty_operand(gemm, forms[1], rows, ins),
                   dy = empty_operand(gemm, forms[1], rows, outs),
                   y = empty_operand(gemm, forms[i], rows, outs),
                   dx = empty_operand(gemm, forms[i], rows, ins);
        bp_operand_fill(&x, p.x);
        bp_operand_fill(&dy, p.dy);
        bp_linear_forward_into(gemm, &y, &x, weight, p.bias);
        bp_linear_backward_input_into(gemm, &dx, &dy, weight);
        check_into(gemm, &y, p.y);
        check_into(gemm, &dx, p.dx);
        bp_free(x.data);
        bp_free(dy.data);
    }
    bp_weight_free(&weight);
    bp_gemm_free(&gemm);
    problem_free(&p);
}

static void results_go_into_operands(void **state)
{
    (void)state;
    for (int way = F32; way < ways(); way++) {
        check_results(way, 5, 70, 130);
        check_results(way, 300, 257, 600);
        check_results(way, 70, 130, 1300);
    }
}

static bp_operand filled_operand(const bp_gemm *gemm, const float *x, int64_t rows, int64_t columns)
{
    bp_operand to = empty_operand(gemm, bp_gemm_form(gemm), rows, columns);

    bp_operand_fill(&to, x);
    return to;
}

/* dy's rows in two places give what rows in one place give: to the bit with our own kernels,
 * where the CPU has one. */
static void check_pieces(int way, int64_t first, int64_t rows, int64_t outs, int64_t ins)
{
    bp_gemm *gemm = gemm_of(way);
    problem p = problem_of(rows, outs, ins), twin = problem_of(rows, outs, ins);
    bp_operand all = filled_operand(gemm, p.dy, rows, outs),
               right = filled_operand(gemm, p.x, rows, ins);

    for (int fresh = 0; fresh < 2; fresh++) {
        bp_operand two[2] = {bp_operand_part(&all, 0, first),
                             bp_operand_part(&all, first, rows - first)};
        size_t bytes = bp_operand_bytes(all.form, rows - first, all.stride);
        void *elsewhere = bp_alloc("test", (int64_t)bytes, 1);

        memcpy(elsewhere, two[1].data, bytes);
        two[1].data = elsewhere;
        bp_linear_backward_weight_operand(gemm, p.dw, &all, &right, fresh == 0);
        bp_linear_backward_weight_pieces(gemm, twin.dw, two, &right, fresh == 0);
        if (way == BF16_OWN && bp_bf16_kernel_here())
            assert_same_bits(p.dw, twin.dw, outs * ins);
        for (int64_t i = 0; i < outs * ins; i++)
            assert_true(fabsf(p.dw[i] - twin.dw[i]) <= 1e-5F * (float)rows);
        bp_free(elsewhere);
    }
    bp_free(all.data);
    bp_free(right.data);
    problem_free(&p);
    problem_free(&twin);
    bp_gemm_free(&gemm);
}

static void rows_in_two_places_are_one_product(void **state)
{
    (void)state;
    for (int way = 0; way < ways(); way++) {
        check_pieces(way, 64, 100, 90, 70);
        check_pieces(way, 32, 1060, 300, 64);
        check_pieces(way, 800, 1600, 40, 770);
        check_pieces(way, 640, 1408, 300, 160); /* strips, in runs */
        check_pieces(way, 0, 50, 33, 65);
        check_pieces(way, 50, 50, 33, 65);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_do_not_depend_on_their_number),
        cmocka_unit_test(rows_do_not_depend_on_their_place),
        cmocka_unit_test(same_threads_give_same_bits),
        cmocka_unit_test(threads_do_not_change_rows_with_avx512),
        cmocka_unit_test(operands_give_what_rows_give),
        cmocka_unit_test(results_go_into_operands),
        cmocka_unit_test(rows_in_two_places_are_one_product),
    };

    return cmocka_run_group_tests(tests, NULL, no_leaks);
}
