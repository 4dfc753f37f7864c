/* Our own float32 matrix products, for CPUs with AVX-512.
 *
 * c[M][N] = start + a[M][K] b[K][N]. A block of k of the right side is packed into panels of 64
 * columns, which stay in L2; strips of 48 rows of the left side are packed in turn (or read in
 * place: few columns do not pay for a copy), and are multiplied with all panels, 6 rows at a time.
 * A sum is that of its blocks of BP_F32_INNER along k, in order, each summed in order from 0 and
 * then added to what is there: so its bits do not depend on M, N, the position of its row and
 * column, or threads.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BP_F32_INNER   256 /* steps of k in a block; a multiple of BP_F32_STEP */
#define BP_F32_STEP    16  /* blocks of k are padded with zeros to a multiple of it */
#define BP_F32_ROWS    6   /* most rows of a tile */
#define BP_F32_COLUMNS 64  /* columns of a panel */
/* Floats from row to row of a strip: an odd number of cache lines. */
#define BP_F32_STRIP_ROW (BP_F32_INNER + 16)

/** Rows of a strip by one panel over `inner` steps, a multiple of BP_F32_STEP: c = start + a b. */
typedef struct bp_f32_tile {
    float *c;
    const float *start;       /* `start_row` 0: one row for all */
    int64_t c_row, start_row; /* floats from row to row */
    int64_t a_row;            /* likewise */
    const float *a, *b;       /* [rows][a_row]; [inner][BP_F32_COLUMNS] */
    int64_t rows, columns, inner;
    const float *next[2]; /* to prefetch: a line of each in every BP_F32_STEP, */
    int64_t next_step[2]; /* floats apart */
} bp_f32_tile;

/** What CPUs do each in their way. */
typedef struct bp_f32_kernel {
    void (*multiply)(const bp_f32_tile *tile);
    /* to[0..rows)[0..columns), both padded with zeros to multiples of 16: a copy of `from`,
     * transposed if asked. Rows are that many floats apart. */
    void (*pack)(float *to, int64_t to_row, const float *from, int64_t from_row, bool transposed,
                 int64_t rows, int64_t columns);
} bp_f32_kernel;
extern const bp_f32_kernel bp_f32_kernel_avx512;
/** NULL if this CPU has no AVX-512. */
const bp_f32_kernel *bp_f32_kernel_here(void);

/** A matrix as a product reads it. */
typedef struct bp_f32_matrix {
    const float *data;
    int64_t row;     /* row stride in memory, in floats */
    bool transposed; /* its rows in memory are the product's columns */
} bp_f32_matrix;

typedef struct bp_f32_product {
    float *c;
    int64_t c_row;
    bp_f32_matrix a, b;
    const float *start; /* initial sums: one row for all, or c; NULL: 0 */
    int64_t M, N, K;    /* none is 0 */
} bp_f32_product;
/** By all threads; `workspace` has bp_f32_workspace_bytes, 64-byte aligned. */
void bp_f32_multiply(const bp_f32_kernel *kernel, const bp_f32_product *product, void *workspace);
/** With the current threads. Depends on N, K, and the left side's location, not on data. */
size_t bp_f32_workspace_bytes(const bp_f32_product *product);
