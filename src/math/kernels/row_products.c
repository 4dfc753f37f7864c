/* Products of a vector with rows of a table, by this CPU's loops. */
#include "math/kernels/rows.h"

#include "math/loops/loops.h"

#define LINE_FLOATS 16 /* of a cache line */

void bp_prefetch_rows(const bp_row_list *rows)
{
    for (int64_t k = 0; k < rows->count; k++)
        for (int64_t i = 0; i < rows->width; i += LINE_FLOATS)
            __builtin_prefetch(rows->table + rows->ids[k] * rows->width + i, 1);
}

void bp_row_dots(float *y, const float *x, const bp_row_list *rows)
{
    bp_loops_best()->row_dots(y, x, rows);
}

void bp_rows_add_to(float *y, const float *weights, const bp_row_list *rows)
{
    bp_loops_best()->rows_add_to(y, weights, rows);
}

void bp_add_to_rows(const bp_row_list *rows, const float *weights, const float *x)
{
    bp_loops_best()->add_to_rows(rows, weights, x);
}
