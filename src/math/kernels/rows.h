/* Products of a vector with listed rows of a table. Single-threaded; no sum depends on the
 * instruction set, or on the number of ranks that share the lanes out (loops_rows.c). */
#pragma once

#include <stdint.h>

/** Lanes of a whole row: ranks that share a table out hold a power of two of them each. */
#define BP_ROW_LANES 32

/** Rows ids[count] of table[][width]; width is a positive multiple of `lanes`, 1 to BP_ROW_LANES, a
 * power of two. Borrowed. */
typedef struct bp_row_list {
    float *table;
    int64_t width;
    int lanes;
    const int32_t *ids;
    int64_t count;
} bp_row_list;

/** Prefetch the rows. */
void bp_prefetch_rows(const bp_row_list *rows);
/** y[count]: the product of x[width] with each row. */
void bp_row_dots(float *y, const float *x, const bp_row_list *rows);
/** y[width] += sum of weights[k] row k, in order of k. */
void bp_rows_add_to(float *y, const float *weights, const bp_row_list *rows);
/** Row k += weights[k] x[width], in order of k: a row may be listed twice. x is not one of them. */
void bp_add_to_rows(const bp_row_list *rows, const float *weights, const float *x);
