/* Columns of an HDF5 file of ours: the datasets that have a value, or a row of a grid, for each row
 * of the table. Rows are read a block at a time, so a table of any length takes the same memory. */
#ifndef BP_DATA_TOOLS_TABLE_COLUMNS_H
#define BP_DATA_TOOLS_TABLE_COLUMNS_H

#include "io/h5/h5.h"

typedef struct table_column {
    char *name; /* the dataset; a grid is as many columns as it has */
    bp_h5_shape shape;
    void *block;  /* block_rows rows of values: double, int64, uint64 or text */
    char *values; /* of labels: the names of the codes; of a grid: those of its columns; or NULL */
    bp_h5_shape values_shape;
} table_column;

typedef struct table {
    bp_h5 *h5; /* borrowed */
    table_column *columns;
    int64_t column_count, rows;
    int64_t block_rows;          /* read at once: fewer where a grid is wide */
    const char *const *left_out; /* NULL-ended */
} table;

/** Find the columns of an open file, sorted by name.
 *
 * rows_of: the dataset that has the number of rows, and is the first column; NULL: the rows are
 * as many as most datasets have values. left_out: datasets that are not columns, NULL-ended, or
 * NULL; borrowed. Errors: BP_ERR_FORMAT, BP_ERR_SYSTEM; table_clear in any case. */
bp_err table_find_columns(table *t, const char *rows_of, const char *const *left_out);
void table_clear(table *t);

/** Read rows [first, first + count), block_rows at most. Errors: those of bp_h5_read. */
bp_err table_load(table *t, int64_t first, int64_t count);

/** A comma before each column: their heads, and row k of those read; then a newline. */
void table_put_heads(const table *t);
void table_put_row(const table *t, int64_t k);

#endif
