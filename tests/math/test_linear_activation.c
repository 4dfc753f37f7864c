/* Products whose sums go through an activation at once: in every form and precision what the
 * product and the pass give one after the other. */
#include "math/bf16/bf16_linear.h"
#include "math/gemm/linear.h"
#include "math/gemm/linear_parts.h"
#include "math/math.h"
#include "math_test.h"

enum { ROWS = 150 }; /* several panels of rows, the last one not whole */

typedef struct mlp {
    bp_gemm *gemm;
    int64_t width, inner;
    float *up_value, *down_value, *bias;
    bp_weight *up, *down;
    bp_operand x, dy; /* [ROWS][width] */
    bp_activation kind;
} mlp;

/* What either way gives. */
typedef struct results {
    bp_operand y, kept, again, dx; /* [ROWS][inner] */
    float *sums;                   /* [inner] on top of 0.5 */
} results;

static bp_operand operand_of(const bp_gemm *gemm, int64_t columns)
{
    return bp_operand_at(gemm, floats(ROWS * columns), ROWS, columns);
}

static bp_operand random_operand(const bp_gemm *gemm, int64_t columns, int64_t stream)
{
    bp_operand out = operand_of(gemm, columns);
    float *x = randoms(ROWS * columns, stream);

    bp_operand_fill(&out, x);
    bp_free(x);
    return out;
}

static mlp mlp_of(bp_precision precision, bp_bf16_form form, int64_t width, int64_t inner)
{
    mlp m = {.width = width,
             .inner = inner,
             .up_value = randoms(inner * width, 1),
             .down_value = randoms(inner * width, 2),
             .bias = randoms(inner, 3)};

    for (int64_t i = 0; i < inner * width; i++) {
        m.up_value[i] /= sqrtf((float)width);
        m.down_value[i] /= sqrtf((float)width);
    }
    assert_int_equal(bp_gemm_new_form(&m.gemm, precision, form), BP_OK);
    assert_int_equal(bp_weight_new(&m.up, m.gemm, m.up_value, inner, width), BP_OK);
    assert_int_equal(bp_weight_new(&m.down, m.gemm, m.down_value, width, inner), BP_OK);
    m.x = random_operand(m.gemm, width, 4);
    m.dy = random_operand(m.gemm, width, 5);
    return m;
}

static void mlp_free(mlp *m)
{
    void *all[] = {m->up_value, m->down_value, m->bias, m->x.data, m->dy.data};

    bp_weight_free(&m->up);
    bp_weight_free(&m->down);
    bp_gemm_free(&m->gemm);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        bp_free(all[i]);
}

static results results_of(const mlp *m)
{
    results out = {operand_of(m->gemm, m->inner), operand_of(m->gemm, m->inner),
                   operand_of(m->gemm, m->inner), operand_of(m->gemm, m->inner), floats(m->inner)};

    for (int64_t c = 0; c < m->inner; c++)
        out.sums[c] = 0.5f;
    return out;
}

static void results_free(results *out)
{
    void *all[] = {out->y.data, out->kept.data, out->again.data, out->dx.data, out->sums};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        bp_free(all[i]);
}

static results one_after_the_other(const mlp *m)
{
    results out = results_of(m);
    bp_bias_gradient bias = {out.sums, floats(bp_bias_scratch(ROWS, m->inner))};

    bp_linear_forward_into(m->gemm, &out.kept, &m->x, m->up, m->bias);
    bp_activation_forward(m->kind, &out.y, &out.kept);
    bp_linear_backward_input_into(m->gemm, &out.dx, &m->dy, m->down);
    bp_activation_backward(m->kind, &out.dx, &out.again, &bias, &out.dx, &out.kept);
    bp_free(bias.scratch);
    return out;
}

static results at_once(const mlp *m)
{
    results out = results_of(m);
    bp_arena arena = {.base = (char *)floats(ROWS * (m->inner + 64)), .size_bytes = SIZE_MAX};
    bp_operand unkept = bp_linear_activation_alloc(&arena, m->gemm, ROWS, m->width, m->inner);
    bp_bias_gradient bias = {out.sums, floats(bp_bias_scratch(ROWS, m->inner))};
    bp_activation_rows forward = {.y = &out.again, .x = &unkept, .kind = m->kind};
    bp_activation_rows backward = {&out.again, &out.kept, &out.dx, &bias, m->kind};

    bp_linear_activation_forward(m->gemm, &forward, &m->x, m->up, m->bias); /* nothing is kept */
    forward.y = &out.y;
    forward.x = &out.kept;
    bp_linear_activation_forward(m->gemm, &forward, &m->x, m->up, m->bias);
    assert_memory_equal(out.y.data, out.again.data,
                        bp_operand_bytes(out.y.form, ROWS, out.y.columns));
    bp_linear_activation_backward(m->gemm, &backward, &m->dy, m->down);
    bp_free(bias.scratch);
    bp_free(arena.base);
    return out;
}

static void check_same(const results *a, const results *b)
{
    const bp_operand *left = &a->y, *right = &b->y;
    double *sums = widened(b->sums, a->y.columns);

    for (int i = 0; i < 4; i++)
        assert_memory_equal(left[i].data, right[i].data,
                            bp_operand_bytes(left[i].form, ROWS, left[i].columns));
    assert_near(a->sums, sums, a->y.columns, 2e-5); /* 150 numbers near 1 in two orders */
    bp_free(sums);
}

static void check(bp_precision precision, bp_bf16_form form, int64_t width, int64_t inner)
{
    mlp m = mlp_of(precision, form, width, inner);

    for (int threads = 1; threads <= 3; threads++) {
        bp_math_set_threads(threads);
        m.kind = (bp_activation)(threads - 1);
        results two = one_after_the_other(&m), one = at_once(&m);
        check_same(&one, &two);
        results_free(&one);
        results_free(&two);
    }
    bp_math_set_threads(0);
    mlp_free(&m);
}

static void activation_at_once_is_product_and_pass(void **state)
{
    static const bp_bf16_form forms[] = {BP_BF16_NATIVE, BP_BF16_ROUNDED, BP_BF16_OWN,
                                         BP_BF16_MIXED};

    (void)state;
    check(BP_F32, BP_BF16_NATIVE, 60, 130);
    check(BP_F32, BP_BF16_OWN, 60, 130);
    for (int i = 0; bp_math_has_bf16() && i < 4; i++) {
        check(BP_BF16, forms[i], 60, 130);
        check(BP_BF16, forms[i], 96, 1100);
        check(BP_BF16, forms[i], 2500, 70); /* more than an epilogue takes */
    }
}

/* The bias's gradient too. */
static void activation_at_once_has_the_same_bits_with_any_threads(void **state)
{
    (void)state;
    if (!bp_math_has_bf16())
        skip();
    mlp m = mlp_of(BP_BF16, BP_BF16_OWN, 96, 700);
    bp_math_set_threads(1);
    results alone = at_once(&m);
    for (int threads = 2; threads <= 5; threads++) {
        bp_math_set_threads(threads);
        results many = at_once(&m);
        check_same(&many, &alone);
        assert_same_bits(many.sums, alone.sums, m.inner);
        results_free(&many);
    }
    bp_math_set_threads(0);
    results_free(&alone);
    mlp_free(&m);
}

static void activation_at_once_keeps_to_its_plan(void **state)
{
    (void)state;
    if (!bp_bf16_kernel_here())
        skip();
    mlp m = mlp_of(BP_BF16, BP_BF16_OWN, 96, 700);
    bp_arena count = {0};
    bp_linear_activation_alloc(&count, m.gemm, ROWS, m.width, m.inner);
    assert_int_equal(count.used_bytes, 0);
    const bp_gemm_kind kind = {BP_BF16, BP_BF16_OWN, false};
    size_t up = bp_linear_form_scratch_bytes(&kind, ROWS, m.inner, m.width),
           down = bp_linear_form_scratch_bytes(&kind, ROWS, m.width, m.inner);
    results first = one_after_the_other(&m); /* which makes the copies of the weights */
    size_t operands = bp_mem_now_bytes();
    results second = at_once(&m);
    results_free(&first);
    assert_in_range(bp_mem_now_bytes(), 0, operands + (up > down ? up : down));
    results_free(&second);
    mlp_free(&m);
}

static void nothing(const void *context, const float *x, int64_t r, int64_t c, int64_t n,
                    float *sums)
{
    (void)context, (void)x, (void)r, (void)c, (void)n, (void)sums;
}

/* To the byte, which what a plan adds for other products would hide. */
static void workspace_of_an_epilogue_is_estimated(void **state)
{
    const bp_bf16_kernel *kernel = bp_bf16_kernel_here();

    (void)state;
    if (!kernel)
        skip();
    mlp m = mlp_of(BP_BF16, BP_BF16_OWN, 96, 700);
    bp_bf16_copies copies = {.columns = BP_BF16_COLUMNS};
    const uint32_t *panels =
        bp_bf16_copy_of(&copies, kernel, BP_BF16_FORWARD, m.up_value, m.inner, m.width);
    float *sums = floats(m.inner);
    bp_bias_gradient bias = {.sums = sums};
    bp_epilogue epilogue = {.pass = nothing, .bias = &bias};
    bp_bf16_target to = {.epilogue = &epilogue, .columns = m.inner};

    for (int threads = 1; threads <= 5; threads++) {
        bp_workspace workspace = {0};

        bp_math_set_threads(threads);
        bp_bf16_map(kernel, &workspace, &to, &m.x, panels);
        assert_in_range(workspace.bytes, 1,
                        bp_bf16_workspace_bytes(kernel, ROWS, m.inner, m.width, true));
        bp_workspace_free(&workspace);
    }
    bp_math_set_threads(0);
    bp_bf16_copies_clear(&copies);
    bp_free(sums);
    mlp_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activation_at_once_is_product_and_pass),
        cmocka_unit_test(activation_at_once_has_the_same_bits_with_any_threads),
        cmocka_unit_test(activation_at_once_keeps_to_its_plan),
        cmocka_unit_test(workspace_of_an_epilogue_is_estimated),
    };

    return cmocka_run_group_tests(tests, NULL, no_leaks);
}
