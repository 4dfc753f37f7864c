/* The columns of an HDF5 file as a table. Called by table.c. */
#include "table_columns.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "file_tool.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_ROWS ((int64_t)4096)

/* The length that most datasets share; of two such, the greater. */
static int64_t common_length(const bp_h5_shape *shapes, int64_t count)
{
    int64_t best = 0, votes = 0;

    for (int64_t k = 0; k < count; k++) {
        int64_t same = 0;
        for (int64_t j = 0; j < count; j++)
            same += shapes[j].dims == 1 && shapes[j].count == shapes[k].count ? 1 : 0;
        if (shapes[k].dims == 1 && (same > votes || (same == votes && shapes[k].count > best))) {
            best = shapes[k].count;
            votes = same;
        }
    }
    return best;
}

/* The length of one dataset; 0: it is not there. */
static int64_t length_of(const char *name, const bp_h5_shape *shapes, char *const *names,
                         int64_t count)
{
    for (int64_t k = 0; k < count; k++)
        if (strcmp(names[k], name) == 0 && shapes[k].dims == 1)
            return shapes[k].count;
    return 0;
}

/* Codes of a label become its values; columns of the members' grid get the members' names. */
static bp_err load_values(bp_h5 *h5, table_column *column)
{
    bool label = strncmp(column->name, "labels/", 7) == 0;
    char *name;
    bp_err err;

    if (label)
        name = bp_sprintf("label_names/%s", column->name + 7);
    else if (strcmp(column->name, "member_logprob") == 0)
        name = bp_strdup("member_names");
    else if (strcmp(column->name, "corpus") == 0)
        name = bp_strdup("corpus_names");
    else
        return BP_OK;
    if (!bp_h5_has(h5, name)) {
        bp_free(name);
        return BP_OK;
    }
    err = bp_h5_shape_of(h5, name, &column->values_shape);
    if (err == BP_OK && column->values_shape.is_text) {
        column->values =
            bp_alloc("tool.values", column->values_shape.count, column->values_shape.width);
        err = bp_h5_read_text(h5, name, column->values_shape.width, 0, column->values,
                              column->values_shape.count);
    }
    bp_free(name);
    return err;
}

static bp_err add_column(table *t, const char *name, const bp_h5_shape *shape)
{
    table_column *column = &t->columns[t->column_count++];

    column->shape = *shape;
    column->name = bp_strdup(name);
    column->block = bp_alloc("tool.block", t->block_rows * shape->columns,
                             shape->is_text ? shape->width : sizeof(double));
    return load_values(t->h5, column);
}

/* Has it a value, or as many as it has columns, for each row? */
static bool is_column(const table *t, const char *name, const bp_h5_shape *shape)
{
    if (strncmp(name, "label_names/", 12) == 0 || strcmp(name, "member_names") == 0 ||
        strncmp(name, "corpus_", 7) == 0)
        return false;
    for (const char *const *out = t->left_out; out && *out; out++)
        if (strcmp(name, *out) == 0)
            return false;
    if (shape->dims == 2)
        return shape->columns > 0 && !shape->is_text && shape->count / shape->columns == t->rows;
    return shape->count == t->rows;
}

static void choose_block(table *t, const bp_h5_shape *shapes, char *const *names, int64_t count)
{
    t->block_rows = BLOCK_ROWS;
    for (int64_t k = 0; k < count; k++)
        if (is_column(t, names[k], &shapes[k]) &&
            BLOCK_ROWS * 16 / shapes[k].columns < t->block_rows)
            t->block_rows = BLOCK_ROWS * 16 / shapes[k].columns;
    t->block_rows = t->block_rows > 0 ? t->block_rows : 1;
}

bp_err table_find_columns(table *t, const char *rows_of, const char *const *left_out)
{
    char **names = NULL;
    int64_t count = 0;
    bp_h5_shape *shapes = NULL;
    bp_err err = list_datasets(t->h5, &names, &count);

    if (err == BP_OK) {
        shapes = bp_alloc("tool.shapes", count, sizeof *shapes);
        t->columns = bp_alloc("tool.columns", count, sizeof *t->columns);
    }
    for (int64_t k = 0; k < count && err == BP_OK; k++)
        err = bp_h5_shape_of(t->h5, names[k], &shapes[k]);
    if (err == BP_OK) {
        t->left_out = left_out;
        t->rows = rows_of ? length_of(rows_of, shapes, names, count) : common_length(shapes, count);
        choose_block(t, shapes, names, count);
    }
    for (int64_t k = 0; k < count && err == BP_OK && rows_of; k++)
        if (strcmp(names[k], rows_of) == 0)
            err = add_column(t, names[k], &shapes[k]);
    for (int64_t k = 0; k < count && err == BP_OK; k++)
        if (is_column(t, names[k], &shapes[k]) && (!rows_of || strcmp(names[k], rows_of) != 0))
            err = add_column(t, names[k], &shapes[k]);
    bp_free(shapes);
    bp_names_free(&names, count);
    return err;
}

void table_clear(table *t)
{
    for (int64_t k = 0; k < t->column_count; k++) {
        bp_free(t->columns[k].name);
        bp_free(t->columns[k].block);
        bp_free(t->columns[k].values);
    }
    bp_free(t->columns);
}

/* A hash: not all of its values are an int64. */
static bool is_unsigned64(const table_column *c)
{
    return !c->shape.is_text && !c->shape.is_real && !c->shape.is_signed &&
           c->shape.width == sizeof(uint64_t);
}

bp_err table_load(table *t, int64_t first, int64_t count)
{
    bp_err err = BP_OK;

    for (int64_t k = 0; k < t->column_count && err == BP_OK; k++) {
        table_column *c = &t->columns[k];
        if (c->shape.is_text)
            err = bp_h5_read_text(t->h5, c->name, c->shape.width, first, c->block, count);
        else
            err = bp_h5_read(t->h5, c->name,
                             c->shape.is_real   ? BP_H5_F64
                             : is_unsigned64(c) ? BP_H5_U64
                                                : BP_H5_I64,
                             first * c->shape.columns, c->block, count * c->shape.columns);
    }
    return err;
}

static void put_value(const table_column *c, int64_t k)
{
    if (c->shape.is_text) {
        put_csv(stdout, (const char *)c->block + (size_t)k * c->shape.width, c->shape.width);
    } else if (c->shape.is_real) {
        double value = ((const double *)c->block)[k];
        if (isnan(value)) /* printf shows its sign */
            printf("nan");
        else
            printf("%.*g", c->shape.width == sizeof(float) ? 9 : 17, value);
    } else if (is_unsigned64(c) && !c->values) {
        printf("%" PRIu64, ((const uint64_t *)c->block)[k]);
    } else {
        int64_t value = ((const int64_t *)c->block)[k];
        if (!c->values)
            printf("%" PRId64, value);
        else if (value >= 0 && value < c->values_shape.count)
            put_csv(stdout, c->values + (size_t)value * c->values_shape.width,
                    c->values_shape.width);
        /* else nothing: a code without a name says that the document has no such label */
    }
}

/* The head of a column, or of each of a grid's: NAME.COLUMN. */
static void put_head(const table_column *c)
{
    const char *name = strncmp(c->name, "labels/", 7) == 0 ? c->name + 7 : c->name;

    for (int64_t i = 0; i < c->shape.columns; i++) {
        char *full = NULL;

        putchar(',');
        if (c->shape.dims == 2 && c->values && i < c->values_shape.count)
            full = bp_sprintf("%s.%.*s", name, (int)c->values_shape.width,
                              c->values + (size_t)i * c->values_shape.width);
        else if (c->shape.dims == 2)
            full = bp_sprintf("%s.%" PRId64, name, i);
        put_csv(stdout, full ? full : name, SIZE_MAX);
        bp_free(full);
    }
}

void table_put_heads(const table *t)
{
    for (int64_t c = 0; c < t->column_count; c++)
        put_head(&t->columns[c]);
    putchar('\n');
}

void table_put_row(const table *t, int64_t k)
{
    for (int64_t c = 0; c < t->column_count; c++) {
        int64_t columns = t->columns[c].shape.columns;

        for (int64_t i = 0; i < columns; i++) {
            putchar(',');
            put_value(&t->columns[c], k * columns + i);
        }
    }
    putchar('\n');
}
