/* Linear maps against plain loops in float64, in float32 and bf16. */
#include "base/err.h"
#include "base/fault.h"
#include "math/bf16/bf16_gemm.h"
#include "math/gemm/linear.h"
#include "math/gemm/linear_parts.h"
#include "math/math.h"
#include "math_test.h"

/* The ways in which products are computed. */
enum { F32, F32_LIBRARY, BF16_NATIVE, BF16_ROUNDED, BF16_OWN, BF16_MIXED };

static int ways(void)
{
    return bp_math_has_bf16() ? 6 : 2;
}

static bp_bf16_form form_of(int way)
{
    static const bp_bf16_form forms[] = {
        [F32] = BP_BF16_ROUNDED,        [F32_LIBRARY] = BP_BF16_NATIVE,
        [BF16_NATIVE] = BP_BF16_NATIVE, [BF16_ROUNDED] = BP_BF16_ROUNDED,
        [BF16_OWN] = BP_BF16_OWN,       [BF16_MIXED] = BP_BF16_MIXED};

    return forms[way];
}

static bp_precision precision_of(int way)
{
    return way <= F32_LIBRARY ? BP_F32 : BP_BF16;
}

static bp_gemm *gemm_of(int way)
{
    bp_gemm *gemm;

    assert_int_equal(bp_gemm_new_form(&gemm, precision_of(way), form_of(way)), BP_OK);
    assert_int_equal(bp_gemm_precision(gemm), precision_of(way));
    return gemm;
}

/* The rounding that bf16 operands go through, in plain C. */
static double bf16_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof bits);
    return (double)x;
}

static double operand(float x, int way)
{
    return precision_of(way) == BP_BF16 ? bf16_of(x) : (double)x;
}

static void twin_forward(double *y, const float *x, const float *w, const float *bias, int64_t rows,
                         int64_t outs, int64_t ins, int way)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < outs; o++) {
            double sum = bias ? (double)bias[o] : 0;
            for (int64_t i = 0; i < ins; i++)
                sum += operand(x[r * ins + i], way) * operand(w[o * ins + i], way);
            y[r * outs + o] = sum;
        }
}

static void twin_input(double *dx, const float *dy, const float *w, int64_t rows, int64_t outs,
                       int64_t ins, int way)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < ins; i++) {
            double sum = 0;
            for (int64_t o = 0; o < outs; o++)
                sum += operand(dy[r * outs + o], way) * operand(w[o * ins + i], way);
            dx[r * ins + i] = sum;
        }
}

static void twin_weight(double *dw, double *dbias, const float *dy, const float *x, int64_t rows,
                        int64_t outs, int64_t ins, int way)
{
    for (int64_t o = 0; o < outs; o++) {
        for (int64_t i = 0; i < ins; i++)
            for (int64_t r = 0; r < rows; r++)
                dw[o * ins + i] += operand(dy[r * outs + o], way) * operand(x[r * ins + i], way);
        for (int64_t r = 0; r < rows; r++)
            dbias[o] += (double)dy[r * outs + o];
    }
}

/* Sums of n products of normal numbers in float32: rounding grows like n eps times the largest
 * partial sum. */
static double tolerance(int64_t n)
{
    return 1e-6 * sqrt((double)n) * 4 + 1e-6;
}

typedef struct problem {
    int64_t rows, outs, ins;
    float *x, *w, *bias, *dy, *y, *dx, *dw, *dbias;
    double *y_twin, *dx_twin, *dw_twin, *dbias_twin;
} problem;

static problem problem_of(int64_t rows, int64_t outs, int64_t ins)
{
    return (problem){
        .rows = rows,
        .outs = outs,
        .ins = ins,
        .x = randoms(rows * ins, 1),
        .w = randoms(outs * ins, 2),
        .bias = randoms(outs, 3),
        .dy = randoms(rows * outs, 4),
        .y = randoms(rows * outs, 5),
        .dx = randoms(rows * ins, 6),
        .dw = randoms(outs * ins, 7),
        .dbias = randoms(outs, 8),
        .y_twin = doubles(rows * outs),
        .dx_twin = doubles(rows * ins),
    };
}

static void problem_free(problem *p)
{
    void *all[] = {p->x,  p->w,     p->bias,   p->dy,      p->y,       p->dx,
                   p->dw, p->dbias, p->y_twin, p->dx_twin, p->dw_twin, p->dbias_twin};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        bp_free(all[i]);
}

static void check_shape(int way, int64_t rows, int64_t outs, int64_t ins)
{
    problem p = problem_of(rows, outs, ins);
    bp_gemm *gemm;
    bp_weight *weight;

    p.dw_twin = widened(p.dw, outs * ins);
    p.dbias_twin = widened(p.dbias, outs);
    gemm = gemm_of(way);
    assert_int_equal(bp_weight_new(&weight, gemm, p.w, outs, ins), BP_OK);
    for (int pass = 0; pass < 2; pass++) { /* with bias and without */
        const float *bias = pass == 0 ? p.bias : NULL;
        bp_linear_forward(gemm, p.y, p.x, weight, bias, rows);
        twin_forward(p.y_twin, p.x, p.w, bias, rows, outs, ins, way);
        assert_near(p.y, p.y_twin, rows * outs, tolerance(ins));
    }
    bp_linear_backward_input(gemm, p.dx, p.dy, weight, rows);
    twin_input(p.dx_twin, p.dy, p.w, rows, outs, ins, way);
    assert_near(p.dx, p.dx_twin, rows * ins, tolerance(outs));
    for (int pass = 0; pass < 2; pass++) { /* twice: it accumulates */
        bp_linear_backward_weight(gemm, p.dw, p.dbias, p.dy, p.x, rows, outs, ins);
        twin_weight(p.dw_twin, p.dbias_twin, p.dy, p.x, rows, outs, ins, way);
    }
    bp_linear_backward_weight(gemm, p.dw, NULL, p.dy, p.x, 0, outs,
                              ins); /* no rows: nothing changes */
    assert_near(p.dw, p.dw_twin, outs * ins, 2 * tolerance(rows));
    assert_near(p.dbias, p.dbias_twin, outs, 2 * tolerance(rows));
    bp_weight_free(&weight);
    assert_null(weight);
    bp_gemm_free(&gemm);
    assert_null(gemm);
    problem_free(&p);
}

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
static void check_places(int way, int64_t outs, int64_t ins)
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
            check_places(way, shapes[i][0], shapes[i][1]);
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

/* dy's rows in two places give what rows in one place give: to the bit with our own kernels, where
 * the CPU has one. */
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
        cmocka_unit_test(rows_do_not_depend_on_their_number),
        cmocka_unit_test(rows_do_not_depend_on_their_place),
        cmocka_unit_test(same_threads_give_same_bits),
        cmocka_unit_test(threads_do_not_change_rows_with_avx512),
        cmocka_unit_test(refreshed_weight_is_used),
        cmocka_unit_test(many_shapes_are_forgotten_and_made_again),
        cmocka_unit_test(both_gradients_at_once_are_the_two),
        cmocka_unit_test(operands_give_what_rows_give),
        cmocka_unit_test(results_go_into_operands),
        cmocka_unit_test(rows_in_two_places_are_one_product),
        cmocka_unit_test(short_memory_is_an_error),
        cmocka_unit_test(nan_comes_through),
        cmocka_unit_test(memory_keeps_to_its_plan),
        cmocka_unit_test(weights_in_turn_are_each_their_own),
        cmocka_unit_test(forward_alone_holds_a_weight_once),
        cmocka_unit_test(bf16_is_refused_where_it_is_not),
    };

    return cmocka_run_group_tests(tests, NULL, no_leaks);
}
