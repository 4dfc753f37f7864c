/* Small bf16 matrix products with float32 sums, for attention: by AMX, or by AVX512_BF16. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/** c[M][N] (+)= a b. a[M][K] holds bf16, rows a_row apart; b holds pairs: word [k / 2][n] is b(k,
 * n) and, in its upper half, b(k + 1, n). M, N and K are multiples of BP_BF16_BLOCK. Every sum runs
 * over k in order, whatever M and N are. */
#define BP_BF16_BLOCK 32
typedef struct bp_bf16_tile {
    float *c;
    const uint16_t *a;
    const uint32_t *b;
    int64_t c_row, a_row, b_row; /* in elements, in words */
    int64_t M, N, K;
    bool accumulate;
    bool a_streams; /* a comes from L2 and does not evict L1 */
} bp_bf16_tile;

typedef struct bp_bf16_tiles {
    void (*begin)(void); /* called in the thread that multiplies, before and after */
    void (*end)(void);
    /* In order, so that a product may overwrite operands of an earlier one; but no product reads
     * another one's result. */
    void (*products)(const bp_bf16_tile *tiles, int count);
    const struct bp_bf16_passes *passes; /* bf16_passes.h */
} bp_bf16_tiles;

extern const bp_bf16_tiles bp_bf16_tiles_amx, bp_bf16_tiles_avx512;
