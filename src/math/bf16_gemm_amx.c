/* bf16 products by AMX: a block of 32 x 32 sums stands in four tile registers, two more hold each
 * side. */
#include "math/bf16_gemm_priv.h"
#ifdef BP_AMX_EMULATED
#include "math/amx_emulated.h"
#else
#include <immintrin.h>
#endif
#include <string.h>

#define TILE 16 /* rows of a register; a row is 64 bytes: 16 floats, or 16 pairs of bf16 */

#define EIGHT(x)                                                                                   \
    {                                                                                              \
        x, x, x, x, x, x, x, x                                                                     \
    }

/* Constant, because compilers know of its first bytes alone that the instruction reads them. */
static const struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} layout = {.palette = 1, .row_bytes = EIGHT(64), .rows = EIGHT(TILE)};

static int64_t multiply_adds(float *out, float factor, int64_t times)
{
    float sums[TILE * TILE];
    uint16_t operand[TILE * 2 * TILE];
    uint32_t bits;

    memcpy(&bits, &factor, sizeof bits);
    for (int i = 0; i < TILE * 2 * TILE; i++)
        operand[i] = (uint16_t)(bits >> 16);
    _tile_loadconfig(&layout);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, operand, 4 * TILE);
    _tile_loadd(5, operand, 4 * TILE);
    _tile_loadd(6, operand, 4 * TILE);
    _tile_loadd(7, operand, 4 * TILE);
    for (int64_t t = 0; t < times; t++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, 4 * TILE);
    _tile_release();
    *out += sums[0];
    return times * 4 * 2 * TILE * TILE * 2 * TILE;
}

const bp_bf16_kernel bp_bf16_kernel_amx = {multiply_adds};
