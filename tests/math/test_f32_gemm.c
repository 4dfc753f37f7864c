/* Float32 products of our own against sums in plain loops, to the bit: with AVX-512 where the CPU
 * has it, and with plain loops in its place, so that blocks, threads and edges are tested anywhere.
 */
#include "math/gemm/f32_gemm.h"
#include "math/math.h"
#include "math_test.h"

static void plain_multiply(const bp_f32_tile *t)
{
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j++) {
            float sum = 0;
            for (int64_t k = 0; k < t->inner; k++)
                sum = fmaf(t->a[i * t->a_row + k], t->b[k * BP_F32_COLUMNS + j], sum);
            t->c[i * t->c_row + j] = t->start[i * t->start_row + j] + sum;
        }
}

static void plain_pack(float *to, int64_t to_row, const float *from, int64_t from_row,
                       bool transposed, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < (rows + 15) / 16 * 16; r++)
        for (int64_t c = 0; c < (columns + 15) / 16 * 16; c++)
            to[r * to_row + c] = r >= rows || c >= columns ? 0
                                 : transposed              ? from[c * from_row + r]
                                                           : from[r * from_row + c];
}

static const bp_f32_kernel plain = {plain_multiply, plain_pack};

/* What sums begin with. */
enum { NOTHING, ROW, SUMS, STARTS };

typedef struct problem {
    int64_t M, N, K, gap; /* floats between rows, which are not numbers */
    bool a_transposed, b_transposed;
    int start;
} problem;

/* Rows of normal numbers, of which none begins a cache line, with gaps between them. */
static float *matrix(int64_t rows, int64_t columns, int64_t gap, int64_t stream)
{
    float *x = randoms(1 + rows * (columns + gap), stream);

    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < gap; c++)
            x[1 + r * (columns + gap) + columns + c] = NAN;
    return x;
}

static bp_f32_matrix side(const float *x, bool transposed, int64_t rows, int64_t columns,
                          int64_t gap)
{
    return (bp_f32_matrix){x + 1, (transposed ? rows : columns) + gap, transposed};
}

static float element_of(const bp_f32_matrix *x, int64_t row, int64_t column)
{
    return x->data[x->transposed ? column * x->row + row : row * x->row + column];
}

static float sum_of(const bp_f32_product *p, float start, int64_t i, int64_t j)
{
    for (int64_t k = 0; k < p->K; k += BP_F32_INNER) {
        float sum = 0;
        for (int64_t l = k; l < p->K && l < k + BP_F32_INNER; l++)
            sum = fmaf(element_of(&p->a, i, l), element_of(&p->b, l, j), sum);
        start += sum;
    }
    return start;
}

static void twin(float *c, const bp_f32_product *p, const float *before)
{
    for (int64_t i = 0; i < p->M; i++)
        for (int64_t j = 0; j < p->N; j++) {
            float start = !p->start ? 0 : p->start == p->c ? before[i * p->c_row + j] : p->start[j];
            c[i * p->c_row + j] = sum_of(p, start, i, j);
        }
}

static void check(const bp_f32_kernel *kernel, const problem *of)
{
    int64_t M = of->M, N = of->N, K = of->K, c_row = N + of->gap;
    float *a = of->a_transposed ? matrix(K, M, of->gap, 1) : matrix(M, K, of->gap, 1),
          *b = of->b_transposed ? matrix(N, K, of->gap, 2) : matrix(K, N, of->gap, 2),
          *row = randoms(N, 3), *c = matrix(M, N, of->gap, 4), *before = copied(c + 1, M * c_row),
          *expected = copied(before, M * c_row);
    bp_f32_product p = {.c = c + 1,
                        .c_row = c_row,
                        .a = side(a, of->a_transposed, M, K, of->gap),
                        .b = side(b, of->b_transposed, K, N, of->gap),
                        .start = of->start == ROW    ? row
                                 : of->start == SUMS ? c + 1
                                                     : NULL,
                        .M = M,
                        .N = N,
                        .K = K};
    void *workspace = bp_alloc("test", (int64_t)bp_f32_workspace_bytes(&p), 1);

    twin(expected, &p, before);
    bp_f32_multiply(kernel, &p, workspace);
    if (memcmp(c + 1, expected, (size_t)(M * c_row) * sizeof *c) != 0)
        fail_msg("%d x %d x %d, gap %d, transposed %d %d, start %d: other bits", (int)M, (int)N,
                 (int)K, (int)of->gap, of->a_transposed, of->b_transposed, of->start);
    void *all[] = {a, b, row, c, before, expected, workspace};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        bp_free(all[i]);
}

/* Around the edges of tiles, strips, panels and blocks, and of several of each. */
static void check_all(const bp_f32_kernel *kernel)
{
    static const int64_t shapes[][3] = {
        {1, 1, 1},      {6, 64, 16},   {7, 65, 17},   {5, 48, 15},   {48, 64, 256},  {49, 63, 257},
        {95, 130, 40},  {20, 831, 33}, {3, 1540, 7},  {13, 70, 600}, {130, 17, 520}, {50, 600, 272},
        {99, 300, 288}, {7, 512, 512}, {8, 513, 496}, {13, 257, 528}};

    for (int threads = 1; threads <= 6; threads += threads < 2 ? 1 : 4) {
        bp_math_set_threads(threads);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (int form = 0; form < 4 * STARTS; form++)
                check(kernel, &(problem){shapes[i][0], shapes[i][1], shapes[i][2], form % 3,
                                         form & 1, form & 2, form / 4});
    }
    bp_math_set_threads(0);
}

static void products_are_sums_in_order(void **state)
{
    (void)state;
    check_all(&plain);
}

static void avx512_gives_the_same_bits(void **state)
{
    (void)state;
    if (!bp_f32_kernel_here())
        skip();
    check_all(bp_f32_kernel_here());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_sums_in_order),
        cmocka_unit_test(avx512_gives_the_same_bits),
    };

    return cmocka_run_group_tests(tests, NULL, no_leaks);
}
