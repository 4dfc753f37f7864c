/* The AMX instructions that bf16_tiles_amx.c and bf16_gemm_amx.c use, in plain C, after Intel's
 * manual (volume 2, TDPBF16PS): so that the code is tested on CPUs without them. */
#pragma once

#include <assert.h>
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

static _Thread_local struct {
    uint8_t rows;
    uint16_t row_bytes;
    uint8_t data[16][64];
} amx_tiles[8];

static inline void amx_loadconfig(const void *memory)
{
    const uint8_t *bytes = memory;

    assert(bytes[0] == 1 && bytes[1] == 0);
    for (int i = 2; i < 16; i++)
        assert(bytes[i] == 0);
    for (int i = 0; i < 8; i++) {
        memcpy(&amx_tiles[i].row_bytes, bytes + 16 + 2 * i, 2);
        amx_tiles[i].rows = bytes[48 + i];
        assert(amx_tiles[i].rows <= 16 && amx_tiles[i].row_bytes <= 64);
    }
    for (int i = 8; i < 16; i++)
        assert(bytes[16 + 2 * i] == 0 && bytes[17 + 2 * i] == 0 && bytes[48 + i] == 0);
}

static inline void amx_release(void)
{
    memset(amx_tiles, 0, sizeof amx_tiles);
}

static inline void amx_zero(int tile)
{
    assert(amx_tiles[tile].rows > 0);
    memset(amx_tiles[tile].data, 0, sizeof amx_tiles[tile].data);
}

static inline void amx_loadd(int tile, const void *base, int64_t stride_bytes)
{
    assert(amx_tiles[tile].rows > 0);
    for (int r = 0; r < amx_tiles[tile].rows; r++)
        memcpy(amx_tiles[tile].data[r], (const uint8_t *)base + r * stride_bytes,
               amx_tiles[tile].row_bytes);
}

/* The same but for what caches keep. */
static inline void amx_stream_loadd(int tile, const void *base, int64_t stride_bytes)
{
    amx_loadd(tile, base, stride_bytes);
}

static inline void amx_stored(int tile, void *base, int64_t stride_bytes)
{
    for (int r = 0; r < amx_tiles[tile].rows; r++)
        memcpy((uint8_t *)base + r * stride_bytes, amx_tiles[tile].data[r],
               amx_tiles[tile].row_bytes);
}

static inline float amx_bf16(const uint8_t *bytes)
{
    uint16_t half;
    uint32_t bits;
    float x;

    memcpy(&half, bytes, sizeof half);
    bits = (uint32_t)half << 16;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* First and second products of the pairs are summed apart, from 0, and then added to what was
 * there: so the order of a sum is that of the instruction. */
static inline void amx_dpbf16ps(int c, int a, int b)
{
    assert(amx_tiles[a].row_bytes / 4 == amx_tiles[b].rows);
    for (int m = 0; m < amx_tiles[c].rows; m++)
        for (int n = 0; n < amx_tiles[c].row_bytes / 4; n++) {
            float sum, halves[2] = {0, 0};
            for (int k = 0; k < amx_tiles[a].row_bytes / 4; k++)
                for (int half = 0; half < 2; half++)
                    halves[half] =
                        fmaf(amx_bf16(&amx_tiles[a].data[m][4 * k + 2 * half]),
                             amx_bf16(&amx_tiles[b].data[k][4 * n + 2 * half]), halves[half]);
            memcpy(&sum, &amx_tiles[c].data[m][4 * n], sizeof sum);
            sum += halves[0] + halves[1];
            memcpy(&amx_tiles[c].data[m][4 * n], &sum, sizeof sum);
        }
}

/* The compiler has these as macros, or as functions that cannot be called without AMX. */
#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_stream_loadd
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig   amx_loadconfig
#define _tile_release      amx_release
#define _tile_zero         amx_zero
#define _tile_stream_loadd amx_stream_loadd
#define _tile_loadd        amx_loadd
#define _tile_stored       amx_stored
#define _tile_dpbf16ps     amx_dpbf16ps
