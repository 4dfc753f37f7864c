/* A block of 32 x 32 sums in AMX's tile registers 0 to 3; registers 4 to 7 hold the operands. */
#pragma once

#include <stdint.h>
#ifdef BP_AMX_EMULATED
#include "math/amx_emulated.h"
#else
#include <immintrin.h>
#endif

/* Every CPU with AMX has AVX512_BF16; the emulation requires it too. */
#define WIDE       __attribute__((target("avx512f,avx512bf16")))
#define ALWAYS     WIDE static inline __attribute__((always_inline))

#define TILE       16 /* rows of a register; a row is 64 bytes: 16 floats, or 16 pairs of bf16 */
#define STEP_WORDS (2 * TILE * TILE) /* of a step of either side's panel */

#define EIGHT(x)                                                                                   \
    {                                                                                              \
        x, x, x, x, x, x, x, x                                                                     \
    }

/* Constant, because compilers assume that the instruction reads only its first bytes. */
typedef struct tile_layout {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_layout;
static const tile_layout layout = {.palette = 1, .row_bytes = EIGHT(64), .rows = EIGHT(TILE)};

static inline void begin(void)
{
    _tile_loadconfig(&layout);
}

static inline void end(void)
{
    _tile_release();
}

static inline void clear_sums(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

static inline void load_sums(const float *c, int64_t row)
{
    _tile_loadd(0, c, row * 4);
    _tile_loadd(1, c + TILE, row * 4);
    _tile_loadd(2, c + TILE * row, row * 4);
    _tile_loadd(3, c + TILE * row + TILE, row * 4);
}

static inline void store_sums(float *c, int64_t row)
{
    _tile_stored(0, c, row * 4);
    _tile_stored(1, c + TILE, row * 4);
    _tile_stored(2, c + TILE * row, row * 4);
    _tile_stored(3, c + TILE * row + TILE, row * 4);
}
