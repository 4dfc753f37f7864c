/* bf16 products by AMX: a block of 32 x 32 sums stands in four tile registers, two more hold each
 * side. */
#include "math/bf16_gemm_priv.h"
#ifdef BP_AMX_EMULATED
#include "math/amx_emulated.h"
#else
#include <immintrin.h>
#endif
#include <string.h>

#define TILE       16 /* rows of a register; a row is 64 bytes: 16 floats, or 16 pairs of bf16 */
#define AHEAD      2  /* steps from what is asked for to what is read */
#define STEP_WORDS (2 * TILE * TILE) /* of a step of either side's panel */

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

static void begin(void)
{
    _tile_loadconfig(&layout);
}

static void end(void)
{
    _tile_release();
}

static void clear_sums(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

static void load_sums(const float *c, int64_t row)
{
    _tile_loadd(0, c, row * 4);
    _tile_loadd(1, c + TILE, row * 4);
    _tile_loadd(2, c + TILE * row, row * 4);
    _tile_loadd(3, c + TILE * row + TILE, row * 4);
}

static void store_sums(float *c, int64_t row)
{
    _tile_stored(0, c, row * 4);
    _tile_stored(1, c + TILE, row * 4);
    _tile_stored(2, c + TILE * row, row * 4);
    _tile_stored(3, c + TILE * row + TILE, row * 4);
}

/* Asks the first cache for a step of the right side, which lies in the second. */
static inline void fetch(const uint32_t *b)
{
    for (int i = 0; i < 2 * TILE; i++)
        __builtin_prefetch(b + i * TILE);
}

static void block(const bp_bf16_block *t)
{
    const uint32_t *a = t->a, *b = t->b;

    if (t->from)
        load_sums(t->from, t->from_row);
    else
        clear_sums();
    for (int64_t step = 0; step < t->steps; step++, a += STEP_WORDS, b += STEP_WORDS) {
        int64_t ahead = step + AHEAD - t->steps;
        _tile_loadd(4, a, 4 * TILE);
        _tile_loadd(6, b, 4 * BP_BF16_COLUMNS);
        _tile_loadd(7, b + TILE, 4 * BP_BF16_COLUMNS);
        _tile_loadd(5, a + TILE * TILE, 4 * TILE);
        fetch(ahead < 0 ? b + AHEAD * STEP_WORDS : t->next_b + ahead * STEP_WORDS);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    store_sums(t->c, t->c_row);
}

static int64_t multiply_adds(float *out, float factor, int64_t times)
{
    float sums[TILE * TILE];
    uint16_t operand[TILE * 2 * TILE];
    uint32_t bits;

    memcpy(&bits, &factor, sizeof bits);
    for (int i = 0; i < TILE * 2 * TILE; i++)
        operand[i] = (uint16_t)(bits >> 16);
    begin();
    clear_sums();
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
    end();
    *out += sums[0];
    return times * 4 * 2 * TILE * TILE * 2 * TILE;
}

const bp_bf16_kernel bp_bf16_kernel_amx = {
    .name = "amx",
    .rows = 2 * TILE,
    .k_bytes = 4 * (2 * TILE), /* a panel of each side */
    .k_blocks = 3,
    .begin = begin,
    .end = end,
    .pack = bp_bf16_pack_tiles,
    .pack_turned = bp_bf16_pack_tiles_turned,
    .block = block,
    .pack_right = bp_bf16_pack_rows,
    .pack_weight = bp_bf16_pack_weight,
    .multiply_adds = multiply_adds,
};
