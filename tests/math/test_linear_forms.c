/* bf16 products that oneDNN and our own kernels share: who multiplies, who makes copies, and what
 * neither does fast. */
#include "math/gemm/linear.h"
#include "math/gemm/linear_parts.h"
#include "math/math.h"
#include "math_test.h"
#include <stdio.h>
#include <unistd.h>

static bp_gemm *gemm_of(bp_bf16_form form)
{
    bp_gemm *gemm;

    assert_int_equal(bp_gemm_new_form(&gemm, BP_BF16, form), BP_OK);
    return gemm;
}

/* Numbers of both signs, cheaper than normal ones. */
static float *spread(int64_t n, int64_t factor)
{
    float *x = floats(n);

    for (int64_t i = 0; i < n; i++)
        x[i] = (float)((i * factor + 5) % 4093 - 2046) / 512.0f;
    return x;
}

typedef struct problem {
    int64_t rows, outs, ins;
    float *x, *dy, *w; /* [rows][ins], [rows][outs], [outs][ins] */
} problem;

static problem problem_of(int64_t rows, int64_t outs, int64_t ins)
{
    return (problem){rows,
                     outs,
                     ins,
                     spread(rows * ins, 7919),
                     spread(rows * outs, 6007),
                     spread(outs * ins, 104729)};
}

static void problem_free(problem *p)
{
    bp_free(p->x);
    bp_free(p->dy);
    bp_free(p->w);
}

/* y and dx, one after the other. */
static float *maps_of(bp_bf16_form form, const problem *p)
{
    float *all = floats(p->rows * (p->outs + p->ins));
    bp_gemm *gemm = gemm_of(form);
    bp_weight *weight;

    assert_int_equal(bp_weight_new(&weight, gemm, p->w, p->outs, p->ins), BP_OK);
    for (int pass = 0; pass < 2; pass++) { /* the second one finds both copies in use */
        bp_weight_refresh(weight);
        bp_linear_forward(gemm, all, p->x, weight, NULL, p->rows);
        bp_linear_backward_input(gemm, all + p->rows * p->outs, p->dy, weight, p->rows);
    }
    bp_weight_free(&weight);
    bp_gemm_free(&gemm);
    return all;
}

/* Our packing gives the library's products the bits of the library's own copies. */
static void mixed_copies_are_the_librarys(void **state)
{
    static const int64_t shapes[][2] = {{64, 64},   {257, 96}, {96, 257},   {70, 1024},
                                        {200, 130}, {33, 20},  {1100, 1000}};

    (void)state;
    if (!bp_math_has_bf16())
        skip();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        problem p = problem_of(40, shapes[i][0], shapes[i][1]);
        p.w[0] = 1e-39f; /* no normal number */
        p.w[1] = 3.3e38f;
        float *library = maps_of(BP_BF16_NATIVE, &p), *mixed = maps_of(BP_BF16_MIXED, &p);
        assert_same_bits(library, mixed, p.rows * (p.outs + p.ins));
        bp_free(library);
        bp_free(mixed);
        problem_free(&p);
    }
}

/* The gradient of p->w, added to it, in a form and with so many threads. */
static float *gradient_of(bp_bf16_form form, int threads, const problem *p)
{
    float *dw = copied(p->w, p->outs * p->ins);

    bp_math_set_threads(threads);
    bp_gemm *gemm = gemm_of(form);
    bp_linear_backward_weight(gemm, dw, NULL, p->dy, p->x, p->rows, p->outs, p->ins);
    bp_gemm_free(&gemm);
    bp_math_set_threads(0);
    return dw;
}

static void check_gradients(int64_t outs, int64_t ins, bp_bf16_form form, int threads)
{
    problem p = problem_of(70, outs, ins);
    float *expected = gradient_of(form, 1, &p), *mixed = gradient_of(BP_BF16_MIXED, threads, &p);

    assert_same_bits(mixed, expected, outs * ins);
    bp_free(expected);
    bp_free(mixed);
    problem_free(&p);
}

static void large_gradients_are_our_own_with_any_threads(void **state)
{
    (void)state;
    if (!bp_math_has_bf16())
        skip();
    assert_true(bp_cpu_owns_gradient(768, 768) && !bp_cpu_owns_gradient(512, 256));
    check_gradients(768, 768, BP_BF16_OWN, 2);
    check_gradients(8193, 1025, BP_BF16_OWN, 1);
    check_gradients(8193, 1025, BP_BF16_OWN, 2);
    check_gradients(512, 256, BP_BF16_NATIVE, 1);
}

/* The plan counts both what the library and what our kernels take. */
static void large_gradients_keep_to_their_plan(void **state)
{
    (void)state;
    if (!bp_math_has_bf16())
        skip();
    problem p = problem_of(70, 8193, 1025);
    bp_gemm *gemm = gemm_of(BP_BF16_MIXED);
    size_t planned = bp_linear_scratch_bytes(gemm, p.rows, p.outs, p.ins);
    size_t before = bp_mem_now_bytes();
    bp_linear_backward_weight(gemm, p.w, NULL, p.dy, p.x, p.rows, p.outs, p.ins);
    assert_in_range(bp_mem_now_bytes() - before, 0, planned);
    bp_gemm_free(&gemm);
    problem_free(&p);
}

/* Rows with gaps have no bf16 kernel in oneDNN 2.6.3. */
static void multiply_rows_with_gaps(bp_gemm *gemm)
{
    problem p = problem_of(3, 64, 64);
    float *y = floats(p.rows * p.outs);
    uint16_t *halves = bp_alloc("test", p.rows * 2 * p.ins, sizeof *halves);
    bp_operand x = {BP_OPERAND_BF16, p.rows, p.ins, 2 * p.ins, halves};
    bp_weight *weight;

    assert_non_null(halves);
    assert_int_equal(bp_weight_new(&weight, gemm, p.w, p.outs, p.ins), BP_OK);
    bp_linear_forward_operand(gemm, y, &x, weight, NULL);
    bp_linear_forward_operand(gemm, y, &x, weight, p.w);
    bp_weight_free(&weight);
    bp_free(halves);
    bp_free(y);
    problem_free(&p);
}

static void plain_loops_are_warned_of_once(void **state)
{
    char text[1024];

    (void)state;
    if (!bp_math_has_bf16() || strncmp(bp_math_library(), "onednn 2", 8) != 0)
        skip();
    FILE *file = tmpfile();
    int stderr_before = dup(STDERR_FILENO);
    assert_true(file && stderr_before >= 0);
    bp_gemm *gemm = gemm_of(BP_BF16_NATIVE);
    assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
    multiply_rows_with_gaps(gemm);
    assert_true(dup2(stderr_before, STDERR_FILENO) >= 0);
    bp_gemm_free(&gemm);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    (void)close(stderr_before);
    assert_non_null(strstr(text, "3 rows"));
    const char *name = strstr(text, "(ref:any)");
    assert_non_null(name);
    assert_null(strstr(name + 1, "(ref:any)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixed_copies_are_the_librarys),
        cmocka_unit_test(large_gradients_are_our_own_with_any_threads),
        cmocka_unit_test(large_gradients_keep_to_their_plan),
        cmocka_unit_test(plain_loops_are_warned_of_once),
    };

    return cmocka_run_group_tests(tests, NULL, no_leaks);
}
