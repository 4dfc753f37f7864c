/* bf16 products by AMX: a block of 32 x 32 sums stands in four tile registers, two more hold each
 * side. The left side's panel stays in the first cache; the right side comes from the second by
 * stream loads, which leave the left side's lines where they are. */
#include "math/gemm/amx_priv.h"
#include "math/gemm/bf16_gemm_priv.h"
#include <string.h>

#define STEP_WORDS (2 * TILE * TILE) /* of a step of either side's panel */

static void block(const bp_bf16_block *t)
{
    const uint32_t *a = t->a, *b = t->b;

    if (t->from)
        load_sums(t->from, t->from_row);
    else
        clear_sums();
    for (int64_t step = 0; step < t->steps; step++, a += STEP_WORDS, b += STEP_WORDS) {
        _tile_loadd(4, a, 4 * TILE);
        _tile_stream_loadd(6, b, 4 * BP_BF16_COLUMNS);
        _tile_stream_loadd(7, b + TILE, 4 * BP_BF16_COLUMNS);
        _tile_loadd(5, a + TILE * TILE, 4 * TILE);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    store_sums(t->c, t->c_row);
}

static int64_t multiply_adds(float *out, const float *operands, int64_t times)
{
    float sums[TILE * TILE];
    uint16_t halves[4][TILE * 2 * TILE];

    for (int i = 0; i < 4 * TILE * 2 * TILE; i++) {
        uint32_t bits;
        memcpy(&bits, &operands[i], sizeof bits);
        halves[i / (TILE * 2 * TILE)][i % (TILE * 2 * TILE)] = (uint16_t)(bits >> 16);
    }
    begin();
    clear_sums();
    _tile_loadd(4, halves[0], 4 * TILE);
    _tile_loadd(5, halves[1], 4 * TILE);
    _tile_loadd(6, halves[2], 4 * TILE);
    _tile_loadd(7, halves[3], 4 * TILE);
    for (int64_t t = 0; t < times; t++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, 4 * TILE);
    end();
    *out += sums[0];
    return times * 4 * 2 * TILE * TILE * 2 * TILE;
}

const bp_bf16_kernel bp_bf16_kernel_amx = {
    .name = "amx",
    .rows = 2 * TILE,
    .k_bytes = 2 * (2 * TILE), /* a panel of the left side */
    .k_blocks = 1,
    .begin = begin,
    .end = end,
    .pack = bp_bf16_pack_tiles,
    .pack_transposed = bp_bf16_pack_tiles_transposed,
    .block = block,
    .pack_right = bp_bf16_pack_rows,
    .pack_weight = bp_bf16_pack_weight,
    .multiply_adds = multiply_adds,
};
