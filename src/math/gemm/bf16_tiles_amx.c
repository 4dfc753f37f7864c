/* bf16 products by AMX: a block of 32 x 32 sums stands in four tile registers, two more hold each
 * side. The right to use the registers is asked for by oneDNN, without whose word this file is not
 * used. */
#include "math/gemm/amx_priv.h"
#include "math/gemm/bf16_passes_priv.h"
#include "math/gemm/bf16_tiles_priv.h"

static void block(const bp_bf16_tile *t, int64_t m, int64_t n)
{
    const uint16_t *a = t->a + m * t->a_row;
    const uint32_t *b = t->b + n;
    float *c = t->c + m * t->c_row + n;

    if (t->accumulate)
        load_sums(c, t->c_row);
    else
        clear_sums();
    for (int64_t k = 0; k < t->K; k += 2 * TILE) {
        _tile_loadd(4, a + k, t->a_row * 2);
        _tile_loadd(5, a + k + TILE * t->a_row, t->a_row * 2);
        _tile_loadd(6, b + k / 2 * t->b_row, t->b_row * 4);
        _tile_loadd(7, b + k / 2 * t->b_row + TILE, t->b_row * 4);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    store_sums(c, t->c_row);
}

static void product(const bp_bf16_tile *tile)
{
    for (int64_t n = 0; n < tile->N; n += 2 * TILE)
        for (int64_t m = 0; m < tile->M; m += 2 * TILE)
            block(tile, m, n);
}

const bp_bf16_tiles bp_bf16_tiles_amx = {begin, end, product, &bp_bf16_passes_avx512};
