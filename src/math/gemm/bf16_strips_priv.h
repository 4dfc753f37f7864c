/* Products whose left side lies in the second cache and streams, and whose right side's panel lies
 * in the first: the loops (bf16_strips.c), and the block that a kernel multiplies. */
#ifndef BP_MATH_GEMM_BF16_STRIPS_PRIV_H
#define BP_MATH_GEMM_BF16_STRIPS_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BP_STRIP_SUMS 1024 /* floats of a block: 32 x 32, in quarters of 16 x 16 */

/** Finished sums [32][32] that go out while the next block is multiplied. */
typedef struct bp_strip_rows {
    float *c; /* NULL: none */
    int64_t c_row;
} bp_strip_rows;

/** A block of sums: start + a b, over `steps` steps of k. It is left in registers, and written to
 * `before` of the next one. */
typedef struct bp_strip_block {
    const char *a; /* bytes from row to row, to row 16, and from step to step */
    int64_t a_row, a_half, a_step;
    const uint32_t *b;
    int64_t steps;
    const float *start; /* quarters, or one row for all; NULL: 0 */
    bool start_is_row;
    float *before;      /* where the sums go that are in registers; NULL: nowhere */
    bp_strip_rows rows; /* those in `before` then, if they are finished */
    bool past;          /* rows are written past the caches: they are whole lines */
    bool runs;          /* of k: start and before lie in the second cache, next_sums too */
    const float *next_sums;
    const uint32_t *next_b; /* to be asked for, from here on */
    int64_t b_lines;        /* a step: 2 or 4; in runs 3 */
    const char *next_a[2];  /* rows to be asked for; NULL: none */
} bp_strip_block;

struct bp_bf16_kernel;
struct bp_bf16_product;
/** A product is made so by so many threads; one of this size may be. Only where it is faster: by
 * many rows, and where rows of sums are whole lines, so that they are written past the caches. */
bool bp_bf16_takes_strips(const struct bp_bf16_kernel *kernel,
                          const struct bp_bf16_product *product, int threads);
bool bp_bf16_strips_take(const struct bp_bf16_kernel *kernel, int64_t K);
bool bp_bf16_has_strips(const struct bp_bf16_kernel *kernel, int64_t M, int64_t N, int64_t K,
                        int threads);
/** Rows [m_first, m_last) of panels by columns [n_first, n_last) of panels, by one thread. */
typedef struct bp_strip_share {
    int64_t m_first, m_last, n_first, n_last;
} bp_strip_share;
void bp_bf16_strips(const struct bp_bf16_kernel *kernel, const struct bp_bf16_product *product,
                    const bp_strip_share *share, void *scratch);
/** Of one thread; 64-byte aligned. */
size_t bp_bf16_strips_bytes(int64_t M, int64_t K);

#endif
