/* Columns of an HDF5 file of ours: the datasets with one value, or one row of a grid, per row of
 * the table. Rows are read a block at a time, so a table of any length takes the same memory. */
#pragma once

#include "io/h5/h5.h"

typedef struct table_column {
    char *name; /* the dataset; a grid becomes one table column per grid column */
    bp_h5_shape shape;
    void *block;  /* block_rows rows of values: double, int64, uint64 or text */
    char *values; /* for labels: the names of the codes; for a grid: the names of its columns; or
                     NULL */
    bp_h5_shape values_shape;
} table_column;

typedef struct table {
    bp_h5 *h5; /* borrowed */
    table_column *columns;
    int64_t column_count, rows;
    int64_t block_rows;          /* rows read at once: fewer if a grid is wide */
    const char *const *left_out; /* NULL-ended */
} table;

/** Find the columns of an open file, sorted by name.
 *
 * rows_of: the dataset that defines the number of rows, and is the first column; NULL: the most
 * frequent length of datasets. left_out: datasets that are not columns, NULL-ended, or NULL;
 * borrowed. Errors: BP_ERR_FORMAT, BP_ERR_SYSTEM; table_clear in any case. */
bp_err table_find_columns(table *t, const char *rows_of, const char *const *left_out);
void table_clear(table *t);

/** Read rows [first, first + count), at most block_rows. Errors: those of bp_h5_read. */
bp_err table_load(table *t, int64_t first, int64_t count);

/** Print column names, or row k of those read: a comma before each column, then a newline. */
void table_put_heads(const table *t);
void table_put_row(const table *t, int64_t k);
