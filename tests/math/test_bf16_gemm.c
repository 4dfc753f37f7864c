/* bf16 products of our own against plain loops: AVX512_BF16 and AMX where the CPU has them, and AMX
 * emulated, through packing, blocks, threads and edges. */
#define BP_AMX_EMULATED
#define bp_bf16_kernel_amx     emulated_amx
#define bp_gradient_kernel_amx emulated_gradient
#include "math/bf16/bf16_gemm_amx.c"
#include "math/bf16/bf16_gradient_amx.c"
#include "math/math.h"
#undef bp_bf16_kernel_amx
#undef bp_gradient_kernel_amx

#include "math/gemm/linear_parts.h"
#include "math/loops/loops.h"
#include "math_test.h"

extern const bp_bf16_kernel bp_bf16_kernel_amx;

static bool has_avx512_bf16(void)
{
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw");
}

static uint16_t upper_half(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* Integers up to 8: every product and sum is exact, so that the bits must be equal. */
static float small_integer(int64_t i)
{
    return (float)(i * 7919 % 17 - 8);
}

static float value_of(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint16_t *halves(int64_t n, int64_t factor)
{
    uint16_t *x = bp_alloc("test", n, sizeof *x);

    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = upper_half(small_integer(factor * i + 1));
    return x;
}

static float *integers(int64_t n)
{
    float *x = floats(n);

    for (int64_t i = 0; i < n; i++)
        x[i] = small_integer(i + 4);
    return x;
}

typedef struct form {
    bool transposed, bias, accumulate;
} product_form;

/* The forms in use: forward, with a bias and without, input gradient (as the second), weight
 * gradient. */
static const product_form forms[] = {
    {false, true, false}, {false, false, false}, {true, false, true}};

typedef struct problem {
    int64_t M, N, K, a_row, c_row;
    uint16_t *a, *b; /* b[K][N] */
    uint32_t *panels;
    float *bias, *c;
    product_form form;
} problem;

static problem problem_of_rows(const int64_t sizes[3], product_form form, int64_t a_row,
                               int64_t c_row)
{
    int64_t M = sizes[0], N = sizes[1], K = sizes[2];
    problem p = {
        .M = M,
        .N = N,
        .K = K,
        .a_row = a_row,
        .c_row = c_row,
        .a = halves((form.transposed ? K : M) * a_row, 1),
        .b = halves(K * N, 3),
        .panels = bp_alloc("test", (int64_t)bp_bf16_panels_bytes(K, N), 1),
        .bias = integers(N),
        .c = integers(M * c_row),
        .form = form,
    };

    assert_non_null(p.panels);
    bp_bf16_pack_rows(p.panels, p.b, N, K, N);
    return p;
}

static problem problem_of(int64_t M, int64_t N, int64_t K, product_form form)
{
    return problem_of_rows((const int64_t[]){M, N, K}, form, (form.transposed ? M : K) + 3, N + 5);
}

static void problem_free(problem *p)
{
    bp_free(p->a);
    bp_free(p->b);
    bp_free(p->panels);
    bp_free(p->bias);
    bp_free(p->c);
}

static void multiply(const problem *p, const bp_bf16_kernel *kernel, float *c, int64_t M)
{
    size_t bytes = bp_bf16_scratch_bytes(kernel, M, p->N, p->K, bp_math_threads());
    void *scratch = bp_alloc("test", (int64_t)bytes, 1);

    assert_non_null(scratch);
    assert_true(bytes <= bp_bf16_most_scratch_bytes(kernel, p->M, p->N, p->K, bp_math_threads()));
    bp_bf16_multiply(kernel,
                     &(bp_bf16_product){.c = c,
                                        .a = p->a,
                                        .b = p->panels,
                                        .bias = p->form.bias ? p->bias : NULL,
                                        .c_row = p->c_row,
                                        .a_row = p->a_row,
                                        .M = M,
                                        .N = p->N,
                                        .K = p->K,
                                        .transposed = p->form.transposed,
                                        .accumulate = p->form.accumulate},
                     scratch);
    bp_free(scratch);
}

static void twin(const problem *p, float *c)
{
    for (int64_t m = 0; m < p->M; m++)
        for (int64_t n = 0; n < p->N; n++) {
            float *to = c + m * p->c_row + n;
            float sum = p->form.accumulate ? *to : p->form.bias ? p->bias[n] : 0;
            for (int64_t k = 0; k < p->K; k++)
                sum +=
                    value_of(p->form.transposed ? p->a[k * p->a_row + m] : p->a[m * p->a_row + k]) *
                    value_of(p->b[k * p->N + n]);
            *to = sum;
        }
}

static void check(const bp_bf16_kernel *kernel, int64_t M, int64_t N, int64_t K)
{
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        problem p = problem_of(M, N, K, forms[f]);
        float *c = copied(p.c, M * p.c_row);
        twin(&p, p.c);
        multiply(&p, kernel, c, M);
        if (memcmp(c, p.c, (size_t)(M * p.c_row) * sizeof *c) != 0)
            fail_msg("%s: %d x %d x %d, form %d", kernel->name, (int)M, (int)N, (int)K, (int)f);
        bp_free(c);
        problem_free(&p);
    }
}

static void check_shapes(const bp_bf16_kernel *kernel)
{
    static const int64_t some[] = {1, 2, 13, 14, 15, 28, 31, 32, 33, 64, 70}, sizes = 11;

    for (int64_t i = 0; i < sizes; i++)
        for (int64_t j = i % 2; j < sizes; j += 2) {
            bp_math_set_threads(1 + (int)(i + j) % 3);
            check(kernel, some[i], some[j], some[(i + j) % sizes]);
            check(kernel, some[i], some[j], 97);
        }
    check(kernel, 70, 50, 1300); /* more than one block of k */
    check(kernel, 20, 33, 4000); /* and more than one run of them */
    bp_math_set_threads(1);
    check(kernel, 40, 650, 1100); /* more columns, and rows, than the second cache takes */
    bp_math_set_threads(0);
}

/* What an epilogue was given, and how often. */
typedef struct given {
    float *c, *times;
    int64_t c_row;
} given;

static void take_row(const void *context, const float *x, int64_t r, int64_t c, int64_t n,
                     float *sums)
{
    const given *to = context;

    assert_in_range(n, 1, BP_PASS_COLUMNS);
    memcpy(to->c + r * to->c_row + c, x, (size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) {
        to->times[r * to->c_row + c + i]++;
        sums[i] += x[i];
    }
}

static void multiply_through(const problem *p, const bp_bf16_kernel *kernel, const given *to,
                             float *sums)
{
    size_t bytes = bp_bf16_scratch_bytes(kernel, p->M, p->N, p->K, bp_math_threads()) +
                   bp_bf16_epilogue_bytes(kernel, p->N, p->K, bp_math_threads());
    char *scratch = bp_alloc("test", (int64_t)bytes, 1);
    uint16_t *operand = bp_alloc("test", p->M * p->N, sizeof *operand);
    bp_operand one = {BP_OPERAND_BF16, p->M, p->N, p->N, operand};
    bp_epilogue epilogue = {take_row, to, NULL, &one, {NULL, &one}};

    assert_true(scratch && operand && bp_bf16_takes_epilogue(kernel, p->K));
    bp_bf16_multiply(kernel,
                     &(bp_bf16_product){.a = p->a,
                                        .b = p->panels,
                                        .bias = p->form.bias ? p->bias : NULL,
                                        .epilogue = &epilogue,
                                        .panel_sums = sums,
                                        .a_row = p->a_row,
                                        .M = p->M,
                                        .N = p->N,
                                        .K = p->K,
                                        .transposed = p->form.transposed},
                     scratch);
    bp_free(scratch);
    bp_free(operand);
}

/* An epilogue is given each sum once, as it would be written, and sums of panels of rows. */
static void check_epilogue(const bp_bf16_kernel *kernel, int64_t M, int64_t N, int64_t K)
{
    int64_t panels = (M + kernel->rows - 1) / kernel->rows;
    problem p = problem_of(M, N, K, forms[0]);
    given to = {floats(M * p.c_row), floats(M * p.c_row), p.c_row};
    float *sums = randoms(panels * N, 1);

    multiply(&p, kernel, p.c, M);
    multiply_through(&p, kernel, &to, sums);
    for (int64_t n = 0; n < N; n++)
        for (int64_t panel = 0; panel < panels; panel++) {
            float sum = 0;
            for (int64_t m = panel * kernel->rows; m < (panel + 1) * kernel->rows && m < M; m++) {
                int64_t at = m * p.c_row + n;
                assert_true(to.times[at] == 1);
                assert_same_bits(to.c + at, p.c + at, 1);
                sum += p.c[at];
            }
            assert_true(sums[panel * N + n] == sum);
        }
    bp_free(to.c);
    bp_free(to.times);
    bp_free(sums);
    problem_free(&p);
}

static void check_epilogues(const bp_bf16_kernel *kernel)
{
    static const int64_t some[][3] = {{1, 1, 1},     {14, 32, 32},    {33, 31, 64},
                                      {70, 100, 97}, {150, 1300, 40}, {28, 2100, 480}};

    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        for (int threads = 1; threads <= 3; threads++) {
            bp_math_set_threads(threads);
            check_epilogue(kernel, some[i][0], some[i][1], some[i][2]);
        }
    if (bp_bf16_takes_epilogue(kernel, 1300)) /* several blocks of k */
        check_epilogue(kernel, 100, 70, 1300);
    assert_false(bp_bf16_takes_epilogue(kernel, 100000));
    bp_math_set_threads(0);
}

static _Thread_local bool is_marked;

static int marked_threads(bool mark)
{
    int count = 0;

#pragma omp parallel reduction(+ : count)
    {
        is_marked = is_marked || mark;
        count += is_marked;
    }
    return count;
}

/* A team of fewer would end the others (bp_core_binding says what that costs). */
static void products_for_few_threads_leave_the_others_alive(void **state)
{
    (void)state;
    if (!has_avx512_bf16())
        skip();
    bp_math_set_threads(3);
    assert_int_equal(marked_threads(true), 3);
    check(&bp_bf16_kernel_avx512, 28, 32, 64); /* two panels by one */
    assert_int_equal(marked_threads(false), 3);
    bp_math_set_threads(0);
}

/* A sum has the same bits among few rows and many, and with any number of threads. */
static void check_bits(const bp_bf16_kernel *kernel, int64_t K)
{
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        problem p = problem_of(150, 100, K, forms[f]);
        float *random = randoms((K + 3) * 153, 1), *start = randoms(150 * p.c_row, 2);
        for (int64_t i = 0; i < (p.form.transposed ? p.K : p.M) * p.a_row; i++)
            p.a[i] = upper_half(random[i]);
        float *all = copied(start, 150 * p.c_row);
        bp_math_set_threads(1);
        multiply(&p, kernel, all, 150);
        for (int64_t rows = 1; rows <= 150; rows += rows < 40 ? 1 : 37) {
            float *c = copied(start, 150 * p.c_row);
            bp_math_set_threads(1 + (int)rows % 3);
            multiply(&p, kernel, c, rows);
            assert_same_bits(c, all, rows * p.c_row - 5);
            assert_same_bits(c + rows * p.c_row, start + rows * p.c_row, (150 - rows) * p.c_row);
            bp_free(c);
        }
        bp_free(random);
        bp_free(start);
        bp_free(all);
        problem_free(&p);
    }
    bp_math_set_threads(0);
}

typedef struct strip_case {
    int64_t sizes[3], a_more, c_more; /* elements from the end of a row to the next one */
    int threads;
} strip_case;

static void check_strip(const bp_bf16_kernel *kernel, const strip_case *one, product_form form)
{
    int64_t M = one->sizes[0], c_row = one->sizes[1] + one->c_more;
    problem p = problem_of_rows(one->sizes, form, one->sizes[2] + one->a_more, c_row);
    float *c = copied(p.c, M * c_row), *random = randoms(M * p.a_row, 1);

    bp_math_set_threads(one->threads);
    bp_bf16_product whole = {.c = c, .c_row = c_row, .M = M, .N = p.N, .K = p.K};
    assert_true(kernel->strip == NULL || bp_bf16_takes_strips(kernel, &whole, one->threads));
    multiply(&p, kernel, c, M);
    twin(&p, p.c);
    assert_same_bits(c, p.c, M * c_row);
    for (int64_t i = 0; i < M * p.a_row; i++)
        p.a[i] = upper_half(random[i]);
    multiply(&p, kernel, p.c, M);
    bp_math_set_threads(3);
    multiply(&p, kernel, c, 70); /* by blocks, as few rows are */
    assert_same_bits(c, p.c, 70 * c_row);
    bp_math_set_threads(0);
    bp_free(random);
    bp_free(c);
    problem_free(&p);
}

/* Left sides packed and read where they are, one run of k and more, edges, sums past the caches;
 * as many cases as there is time for. */
static void check_strips(const bp_bf16_kernel *kernel, size_t cases)
{
    static const strip_case some[] = {
        {{256, 128, 512}, 0, 0, 1},   {{258, 150, 800}, 3, 10, 1},  {{520, 260, 520}, 0, 12, 2},
        {{512, 513, 512}, 32, 15, 1}, {{281, 900, 1312}, 0, 12, 1}, {{384, 130, 2080}, 96, 14, 1},
    };

    for (size_t i = 0; i < cases && i < sizeof some / sizeof *some; i++)
        check_strip(kernel, &some[i], forms[i % 2]);
}

static void multiply_gradient(const problem *p, const bp_bf16_kernel *kernel, float *c)
{
    int threads = bp_math_threads();
    size_t bytes = bp_bf16_gradient_bytes(kernel, p->K, threads);
    void *scratch = bp_alloc("test", (int64_t)bytes, 1);
    bp_bf16_gradient gradient = {.c = c,
                                 .a = p->a,
                                 .b = p->panels,
                                 .c_row = p->c_row,
                                 .a_row = p->a_row,
                                 .M = p->M,
                                 .N = p->N,
                                 .K = p->K,
                                 .accumulate = p->form.accumulate};

    assert_non_null(scratch);
    assert_true(bytes <= bp_bf16_gradient_bytes(kernel, p->K + 640, threads));
    assert_true(bp_bf16_takes_gradient(kernel, &gradient, threads));
    bp_bf16_multiply_gradient(kernel, &gradient, scratch);
    bp_free(scratch);
}

/* Against plain loops, and against the blocks that few rows take, to the bit. */
static void check_gradient(const bp_bf16_kernel *kernel, const strip_case *one, bool added)
{
    int64_t M = one->sizes[0], c_row = one->sizes[1] + one->c_more;
    problem p =
        problem_of_rows(one->sizes, (product_form){true, false, added}, M + one->a_more, c_row);
    float *c = copied(p.c, M * c_row), *random = randoms(p.K * p.a_row, 1),
          *blocks = copied(p.c, M * c_row), *start = randoms(M * c_row, 2);

    bp_math_set_threads(one->threads);
    multiply_gradient(&p, kernel, c);
    twin(&p, blocks);
    assert_same_bits(c, blocks, M * c_row);
    for (int64_t i = 0; i < p.K * p.a_row; i++)
        p.a[i] = upper_half(random[i]);
    memcpy(c, start, (size_t)(M * c_row) * sizeof *c);
    memcpy(blocks, start, (size_t)(M * c_row) * sizeof *c);
    multiply_gradient(&p, kernel, c);
    multiply(&p, kernel, blocks, M);
    assert_same_bits(c, blocks, M * c_row);
    bp_math_set_threads(0);
    bp_free(c);
    bp_free(random);
    bp_free(blocks);
    bp_free(start);
    problem_free(&p);
}

/* One run of k and more, edges, rows of dy that begin within lines. */
static void check_gradients(const bp_bf16_kernel *kernel, size_t cases)
{
    static const strip_case some[] = {
        {{128, 128, 512}, 0, 0, 1},   {{150, 136, 1290}, 3, 8, 1}, {{290, 150, 790}, 0, 10, 2},
        {{420, 130, 1024}, 0, 14, 1}, {{130, 800, 1312}, 8, 0, 1}, {{400, 130, 2090}, 0, 14, 3},
    };

    for (size_t i = 0; i < cases && i < sizeof some / sizeof *some; i++)
        for (int added = 0; added < 2; added++)
            check_gradient(kernel, &some[i], added == 1);
}

/* A large weight gradient, written fresh: in whole lines past the caches, or in rows of which few
 * begin with a line. */
static void check_fresh_gradients(const bp_bf16_kernel *kernel)
{
    const int64_t M = 600, N = 470, K = 70;

    for (int threads = 1; threads <= 3; threads++)
        for (int64_t more = 3; more <= 10; more += 7) {
            problem p = problem_of_rows((const int64_t[]){M, N, K},
                                        (product_form){true, false, false}, M, N + more);
            float *c = copied(p.c, M * p.c_row);

            assert_true((uintptr_t)c % 64 == 0);
            bp_math_set_threads(threads);
            twin(&p, p.c);
            multiply(&p, kernel, c, M);
            assert_memory_equal(c, p.c, (size_t)(M * p.c_row) * sizeof *c);
            bp_free(c);
            problem_free(&p);
        }
    bp_math_set_threads(0);
}

static void avx512_products_equal_plain_loops(void **state)
{
    (void)state;
    if (!has_avx512_bf16())
        skip();
    check_shapes(&bp_bf16_kernel_avx512);
    check_strips(&bp_bf16_kernel_avx512, 6);
    check_bits(&bp_bf16_kernel_avx512, 1000);
    check_fresh_gradients(&bp_bf16_kernel_avx512);
    check_epilogues(&bp_bf16_kernel_avx512);
}

static void emulated_amx_products_equal_plain_loops(void **state)
{
    (void)state;
    if (!has_avx512_bf16()) /* which packs */
        skip();
    check_shapes(&emulated_amx);
    check_strips(&emulated_amx, 3);
    check_gradients(&emulated_amx, 2);
    check_bits(&emulated_amx, 400);
    check_epilogues(&emulated_amx);
}

static void amx_products_equal_plain_loops(void **state)
{
    (void)state;
    if (bp_bf16_kernel_here() != &bp_bf16_kernel_amx) {
        print_message("no AMX here\n");
        skip();
    }
    check_shapes(&bp_bf16_kernel_amx);
    check_strips(&bp_bf16_kernel_amx, 6);
    check_gradients(&bp_bf16_kernel_amx, 6);
    check_bits(&bp_bf16_kernel_amx, 1000);
    check_epilogues(&bp_bf16_kernel_amx);
}

/* The word of column n and rows k, k + 1 of panels of so many columns. */
static int64_t word_at(int64_t k, int64_t n, int64_t pairs, int64_t columns)
{
    return (n / columns * pairs + k / 2) * columns + n % columns;
}

/* Rows and columns that a weight has not are zeros, others rounded to the nearest, ties to even. */
static void check_packing(int64_t outs, int64_t ins, int64_t columns)
{
    int64_t out_pairs = (outs + 31) / 32 * 16, in_pairs = (ins + 31) / 32 * 16;
    float *w = randoms(outs * ins, 1), *rounded = floats(outs * ins);
    int64_t words = (int64_t)bp_bf16_panels_bytes(outs + 32, ins + 32) / 4;
    uint32_t *forward = bp_alloc("test", words, 4), *backward = bp_alloc("test", words, 4);

    assert_true(forward && backward);
    bp_loops_at(0)->round_bf16(rounded, w, outs * ins);
    bp_bf16_pack_weight(forward, backward, w, outs, ins, columns);
    for (int64_t o = 0; o < 2 * out_pairs; o++)
        for (int64_t n = 0; n < 2 * in_pairs; n++) {
            int64_t at = word_at(n, o, in_pairs, columns), back = word_at(o, n, out_pairs, columns);
            float value = o < outs && n < ins ? rounded[o * ins + n] : 0;
            assert_int_equal((uint16_t)(forward[at] >> 16 * (n % 2)), upper_half(value));
            assert_int_equal((uint16_t)(backward[back] >> 16 * (o % 2)), upper_half(value));
        }
    bp_free(w);
    bp_free(rounded);
    bp_free(forward);
    bp_free(backward);
}

static void weights_are_packed_both_ways(void **state)
{
    static const int64_t shapes[][2] = {{1, 1},   {31, 33},   {32, 32},
                                        {70, 45}, {200, 131}, {1100, 961}};

    (void)state;
    if (!has_avx512_bf16())
        skip();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int64_t columns = BP_BF16_COLUMNS; columns <= 64; columns *= 2)
            check_packing(shapes[i][0], shapes[i][1], columns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_packed_both_ways),
        cmocka_unit_test(avx512_products_equal_plain_loops),
        cmocka_unit_test(products_for_few_threads_leave_the_others_alive),
        cmocka_unit_test(emulated_amx_products_equal_plain_loops),
        cmocka_unit_test(amx_products_equal_plain_loops),
    };

    return cmocka_run_group_tests(tests, NULL, no_leaks);
}
