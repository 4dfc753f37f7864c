/* Weight gradients with AMX: dw[outs][ins] (+)= dyt x. The thread that multiplies transposes its
 * part of dy; x is in panels. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BP_GRADIENT_LINES 3 /* cache lines of the next right side, prefetched per step */

/** A block of sums [32][32]: start + a b, over `steps` steps of k. It stays in registers, and the
 * next call writes it to its `before`, in quarters of 16 x 16. */
typedef struct bp_gradient_block {
    const uint32_t *a, *b;
    int64_t steps;
    const float *start;                  /* quarters; NULL: 0 */
    int64_t start_row;                   /* not 0: start is rows of c, this many floats apart */
    const float *next_start, *next_sums; /* to prefetch; may be NULL */
    float *before;                       /* destination of the sums in registers; may be NULL */
    float *c; /* destination of those in `before`, as rows; may be NULL */
    int64_t c_row;
    bool past;              /* past the caches */
    const uint32_t *next_b; /* lines to be asked for */
} bp_gradient_block;

/** The AMX part: a block, and the end after the last one. */
typedef struct bp_gradient_kernel {
    void (*block)(const bp_gradient_block *block);
    void (*end)(const bp_gradient_block *block);
} bp_gradient_kernel;
extern const bp_gradient_kernel bp_gradient_kernel_amx;

struct bp_bf16_kernel;
/** c[M][N] (+)= a transposed times b. */
typedef struct bp_bf16_gradient {
    float *c;
    const uint16_t *a;      /* [K][M], */
    const uint16_t *a_more; /* continuation from row k_more on, in whole steps; may be NULL */
    int64_t k_more;
    const uint32_t *b; /* panels */
    int64_t c_row, a_row, M, N, K;
    bool accumulate;
} bp_bf16_gradient;
/** By all threads; only where bp_bf16_takes_gradient. */
void bp_bf16_multiply_gradient(const struct bp_bf16_kernel *kernel,
                               const bp_bf16_gradient *gradient, void *scratch);
/** True for many rows and columns, if rows of c are whole lines. */
bool bp_bf16_takes_gradient(const struct bp_bf16_kernel *kernel, const bp_bf16_gradient *gradient,
                            int threads);
/** Bytes of `scratch`, 64-byte aligned; 0 if no gradient of at most K rows uses these loops. */
size_t bp_bf16_gradient_bytes(const struct bp_bf16_kernel *kernel, int64_t K, int threads);
