/* Our own bf16 matrix products with float32 sums, for CPUs with AMX or AVX512_BF16.
 *
 * c[M][N] = a[M][K] b[K][N]: the right side is packed once into panels of 32 columns, the left
 * side stays as it is and is packed panel by panel just before it is read. Every sum begins with
 * what was there (the bias, or c, or 0) and runs over k in order, by pairs or, with AMX, by whole
 * steps of 32; k is cut only between steps: so its bits do not depend on M, N, threads or cache
 * sizes.
 */
#pragma once

#include "math/gemm/operand_pass.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BP_BF16_COLUMNS 32 /* columns of a right-side panel */
#define BP_BF16_STEP    32 /* K is padded with zeros to a multiple of it */
#define BP_BF16_ROWS    32 /* most rows of a left-side panel */

/* For functions that only prefetch: GCC 12 otherwise takes them for functions without effect and
 * drops their calls. */
#define BP_HAS_AN_EFFECT __asm__ volatile("")

/** Rows of a left side to prefetch into L2 meanwhile: `rows` runs of `run` elements, `row` elements
 * apart. */
typedef struct bp_bf16_ahead {
    const uint16_t *at;
    int64_t row, run, rows;
} bp_bf16_ahead;

/** One panel of the left side by one of the right, over `steps` steps of k: c = from + a b (`from`
 * NULL: 0). `from` may be c; from_row 0: one row for all. */
typedef struct bp_bf16_block {
    float *c;
    const float *from;
    int64_t c_row, from_row; /* floats from row to row */
    const uint32_t *a, *b;
    int64_t steps;
    bp_bf16_ahead ahead;
    bool past; /* c bypasses the caches on writing: its rows are whole lines (kernel->past) */
} bp_bf16_block;

/* Asks for rows [first, last) of it. */
static inline void bp_bf16_fetch(const bp_bf16_ahead *ahead, int64_t first, int64_t last)
{
    BP_HAS_AN_EFFECT;
    for (int64_t r = first; r < last; r++) {
        const uint16_t *a = ahead->at + r * ahead->row;
        for (int64_t i = 0; i < ahead->run; i += 32)
            __builtin_prefetch(a + i, 0, 2);
        __builtin_prefetch(a + ahead->run - 1, 0, 2);
    }
}

/* Asks for part `part` of `parts` of its lines, in the order of memory, into L1: the next rows,
 * while these are packed square by square, which are too many streams for the hardware to
 * prefetch. Rows without gaps are one run. */
static inline void bp_bf16_fetch_part(const bp_bf16_ahead *ahead, int64_t part, int64_t parts)
{
    bool gaps = ahead->row != ahead->run;
    int64_t rows = gaps ? ahead->rows : 1, run = gaps ? ahead->run : ahead->run * ahead->rows,
            lines = (run + 31) / 32, all = lines * rows, i = all * part / parts,
            end = all * (part + 1) / parts, row = gaps && all > 0 ? i / lines : 0;

    BP_HAS_AN_EFFECT;
    for (; i < end; row++) {
        int64_t last = bp_min(end, (row + 1) * lines);
        const uint16_t *at = ahead->at + row * (ahead->row - lines * 32);
        for (; i < last; i++)
            __builtin_prefetch(at + i * 32);
    }
}

/* Strips: the left side streams from L2, the right side's panel is in L1. */
#define BP_STRIP_SUMS 1024 /* floats of a block: 32 rows of 32 */

/** Destination of finished sums while the next block is multiplied: float32 rows, or bf16 rows.
 * All zero: no destination. */
typedef struct bp_strip_rows {
    float *c;
    uint16_t *halves;
    int64_t c_row; /* elements from row to row of either */
} bp_strip_rows;

/** A block of sums: start + a b, over `steps` steps of k. It stays in registers, and the next call
 * writes it to its `before`. */
typedef struct bp_strip_block {
    const char *a; /* bytes from row to row, to row 16, and from step to step */
    int64_t a_row, a_half, a_step;
    const uint32_t *b;
    int64_t steps;
    const float *start; /* a block, or one row for all; NULL: 0 */
    bool start_is_row;
    float *before;      /* destination of the sums in registers; may be NULL */
    bp_strip_rows rows; /* destination of the sums in `before`, if finished */
    bool past;          /* rows bypass the caches on writing: they are whole lines */
    bool runs;          /* runs of k: start, before and next_sums are in L2 */
    const float *next_sums;
    const uint32_t *next_b; /* to be asked for, from here on */
    int64_t b_lines;        /* a step: 2 or 4; in runs 3 */
    const char *next_a[2];  /* rows to prefetch; may be NULL */
} bp_strip_block;

/** A few unpacked rows of the left side by one panel of the right side, read from memory:
 * c[rows][32] = start + a b. The bits of a block's sums. */
#define BP_BF16_FEW 16 /* rows, at most */
typedef struct bp_bf16_few {
    float *c;
    const float *start; /* one row for all; NULL: 0 */
    const uint16_t *a;
    const uint16_t *last; /* [rows][BP_BF16_STEP]: the left side in the last step, padded */
    const uint32_t *b;
    int64_t c_row, a_row, rows, steps;
} bp_bf16_few;

/** Packs `rows` rows (at most the kernel's) and `k` columns of a left side into a panel of whole
 * steps, padded with zeros. The element (m, k) is at a[m * a_row + k]; transposed, at a[k * a_row
 * + m]. */
typedef void bp_bf16_pack_left(uint32_t *panel, const uint16_t *a, int64_t a_row, int64_t rows,
                               int64_t k);

/** A right side b[K][N] in panels: word [panel][k / 2][column] is b(k, n) and, in its upper half,
 * b(k + 1, n); padded with zeros. These pack one with all threads: x[K][N], its rows x_row
 * elements apart. */
typedef void bp_bf16_pack_right(uint32_t *panels, const uint16_t *x, int64_t x_row, int64_t K,
                                int64_t N);
/** Wt (`forward`) and W (`backward`), either of which may be NULL, in one pass over w[outs][ins]:
 * in panels of BP_BF16_COLUMNS, or of twice as many (oneDNN's); half of the last one may be left
 * unwritten. */
typedef void bp_bf16_pack_both(uint32_t *forward, uint32_t *backward, const float *w, int64_t outs,
                               int64_t ins, int64_t columns);
size_t bp_bf16_panels_bytes(int64_t K, int64_t N);

/** The parts that differ between instruction sets. */
typedef struct bp_bf16_kernel {
    const char *name;
    int64_t rows;        /* of a panel of the left side */
    int64_t k_bytes;     /* bytes of L1 that a column of k takes */
    int64_t k_blocks;    /* blocks of k that are summed before the next rows */
    bool past;           /* blocks can bypass the caches */
    void (*begin)(void); /* called in the thread that multiplies, before and after */
    void (*end)(void);
    bp_bf16_pack_left *pack, *pack_transposed;
    void (*block)(const bp_bf16_block *block);
    bp_bf16_pack_right *pack_right;
    bp_bf16_pack_both *pack_weight;
    /* A block with a streaming left side (may be NULL), and the end after the last block. */
    void (*strip)(const bp_strip_block *block);
    void (*strip_end)(float *before, const bp_strip_rows *rows, bool past);
    void (*few)(const bp_bf16_few *few);
    /* NULL: weight gradients use the general products */
    const struct bp_gradient_kernel *gradient;
    bp_multiply_adds *multiply_adds; /* begin and end included */
} bp_bf16_kernel;

extern const bp_bf16_kernel bp_bf16_kernel_amx, bp_bf16_kernel_avx512;
bp_bf16_pack_left bp_bf16_pack_tiles, bp_bf16_pack_tiles_transposed; /* AMX's */
bp_bf16_pack_right bp_bf16_pack_rows;
bp_bf16_pack_both bp_bf16_pack_weight;

/** The kernel for this CPU, as far as the library may use it (ONEDNN_MAX_CPU_ISA); NULL if there
 * is no such kernel, or float32 is as fast. */
const bp_bf16_kernel *bp_bf16_kernel_here(void);

/** c (+)= a b + bias, by all threads. Instead of c, the result may go rounded to bf16, or to an
 * epilogue: row by row of a panel of the left side, in the thread that has just summed them. */
typedef struct bp_bf16_product {
    float *c;          /* [M][N] */
    uint16_t *halves;  /* [M][N], instead of c; not with accumulate */
    const uint16_t *a; /* bf16, (m, k) at a[m * a_row + k]; transposed: a[k * a_row + m] */
    const uint16_t
        *a_more; /* transposed: its continuation from k_more on, in whole steps; may be NULL */
    int64_t k_more;
    const uint32_t *b;           /* panels */
    const float *bias;           /* [N], or NULL; not with accumulate */
    const bp_epilogue *epilogue; /* may be NULL; not with accumulate */
    float *panel_sums; /* [panels of the left side][N], for the epilogue; NULL: not wanted */
    int64_t c_row, a_row, M, N, K;
    bool transposed, accumulate;
} bp_bf16_product;
/** With an epilogue or bf16 sums `scratch` has bp_bf16_epilogue_bytes more. */
void bp_bf16_multiply(const bp_bf16_kernel *kernel, const bp_bf16_product *product, void *scratch);
/** Bytes of `scratch`, 64-byte aligned. */
size_t bp_bf16_scratch_bytes(const bp_bf16_kernel *kernel, int64_t M, int64_t N, int64_t K,
                             int threads);
/** No less than that for any smaller M and K. */
size_t bp_bf16_most_scratch_bytes(const bp_bf16_kernel *kernel, int64_t M, int64_t N, int64_t K,
                                  int threads);

/** Whether sums over K are finished before the next rows, as an epilogue needs. False where strips
 * may be used, which are faster with a separate pass afterwards. */
bool bp_bf16_takes_epilogue(const bp_bf16_kernel *kernel, int64_t K);
/** Whether sums may go to bf16 rows: through strips, or through an epilogue that rounds. */
bool bp_bf16_takes_halves(const bp_bf16_kernel *kernel, int64_t K);
size_t bp_bf16_epilogue_bytes(const bp_bf16_kernel *kernel, int64_t N, int64_t K, int threads);

/* bf16_few.c: products of few rows, bound by reading the right side */
bool bp_bf16_is_few(const bp_bf16_product *product);
/** Columns of panels [n_first, n_last), by one thread; `scratch`: BP_BF16_FEW_FLOATS. */
void bp_bf16_multiply_few(const bp_bf16_kernel *kernel, const bp_bf16_product *product,
                          int64_t n_first, int64_t n_last, float *scratch);
#define BP_BF16_FEW_FLOATS (BP_BF16_FEW * (BP_BF16_COLUMNS + BP_BF16_STEP / 2) + BP_BF16_COLUMNS)

/* bf16_strips.c: the loops of strips */
/** Whether a product can use strips, and does: that is faster if a thread has many rows and
 * columns (in panels), and if rows of sums are whole lines, so that writes bypass the caches. */
bool bp_bf16_strips_take(const bp_bf16_kernel *kernel, int64_t K);
bool bp_bf16_strips_gain(const bp_bf16_kernel *kernel, const bp_bf16_product *product, int64_t rows,
                         int64_t columns);
/** The same, for this many threads with bp_bf16_multiply's division of the product. For tests. */
bool bp_bf16_takes_strips(const bp_bf16_kernel *kernel, const bp_bf16_product *product,
                          int threads);
/** Rows [m_first, m_last) of panels by columns [n_first, n_last) of panels, by one thread. */
typedef struct bp_strip_share {
    int64_t m_first, m_last, n_first, n_last;
} bp_strip_share;
void bp_bf16_strips(const bp_bf16_kernel *kernel, const bp_bf16_product *product,
                    const bp_strip_share *share, void *scratch);
/** For one thread; 64-byte aligned. */
size_t bp_bf16_strips_bytes(int64_t M, int64_t K);
