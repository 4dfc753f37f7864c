/* bf16 products of tiles against plain loops: AVX512_BF16 and AMX where the CPU has them, and AMX
 * emulated everywhere. */
#define BP_AMX_EMULATED
#define bp_bf16_tiles_amx emulated_amx
#include "math/bf16/bf16_tiles_amx.c"
#undef bp_bf16_tiles_amx

#include "math/gemm/linear_parts.h"
#include "math_test.h"

extern const bp_bf16_tiles bp_bf16_tiles_amx;

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

static void check(const bp_bf16_tiles *tiles, int64_t M, int64_t N, int64_t K, bool accumulate)
{
    int64_t a_row = K + 2, b_row = N + 16, c_row = N + 5;
    uint16_t *a = bp_alloc("test", M * a_row, sizeof *a);
    uint32_t *b = bp_alloc("test", K / 2 * b_row, sizeof *b);
    float *c = floats(M * c_row), *twin = floats(M * c_row);

    assert_true(a && b);
    for (int64_t i = 0; i < M * a_row; i++)
        a[i] = upper_half(small_integer(i));
    for (int64_t i = 0; i < K / 2 * b_row; i++)
        b[i] = upper_half(small_integer(3 * i)) | (uint32_t)upper_half(small_integer(5 * i + 1))
                                                      << 16;
    for (int64_t i = 0; i < M * c_row; i++)
        c[i] = twin[i] = small_integer(i + 4);
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            float sum = accumulate ? twin[m * c_row + n] : 0;
            for (int64_t k = 0; k < K; k++) {
                int64_t word = k / 2 * b_row + n;
                sum +=
                    small_integer(m * a_row + k) * small_integer(k % 2 ? 5 * word + 1 : 3 * word);
            }
            twin[m * c_row + n] = sum;
        }
    tiles->begin();
    tiles->products(&(bp_bf16_tile){c, a, b, c_row, a_row, b_row, M, N, K, accumulate, accumulate},
                    1);
    tiles->end();
    assert_same_bits(c, twin, M * c_row);
    bp_free(a);
    bp_free(b);
    bp_free(c);
    bp_free(twin);
}

static void check_shapes(const bp_bf16_tiles *tiles)
{
    for (int64_t M = 32; M <= 96; M += 32)
        for (int64_t N = 32; N <= 96; N += 32)
            for (int64_t K = 32; K <= 128; K += 32) {
                check(tiles, M, N, K, false);
                check(tiles, M, N, K, true);
            }
}

static void avx512_products_equal_plain_loops(void **state)
{
    (void)state;
    if (!bp_gemm_has_bf16())
        skip();
    check_shapes(&bp_bf16_tiles_avx512);
}

static void emulated_amx_products_equal_plain_loops(void **state)
{
    (void)state;
    check_shapes(&emulated_amx);
}

static void amx_products_equal_plain_loops(void **state)
{
    (void)state;
    if (!bp_gemm_isa() || strcmp(bp_gemm_isa(), "amx") != 0) {
        print_message("no AMX here\n");
        skip();
    }
    check_shapes(&bp_bf16_tiles_amx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(avx512_products_equal_plain_loops),
        cmocka_unit_test(emulated_amx_products_equal_plain_loops),
        cmocka_unit_test(amx_products_equal_plain_loops),
    };

    return cmocka_run_group_tests(tests, NULL, no_leaks);
}
