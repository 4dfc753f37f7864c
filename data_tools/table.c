/* bagpipe-data table: rows of a corpus or of a table of scores as CSV (RFC 4180). */
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "file_tool.h"
#include "store/corpus_file.h"
#include "tools.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_ROWS ((int64_t)4096)

/* ---- corpora: a row a document ---- */

typedef struct corpus_columns {
    const int64_t *start, *bytes, *words, *words_split;
    bp_corpus_label *labels;
} corpus_columns;

static bp_err load_columns(bp_corpus_file *file, corpus_columns *columns)
{
    int count = bp_corpus_file_info(file)->labels;
    bp_err err = bp_corpus_file_doc_start(file, &columns->start);

    if (err == BP_OK)
        err = bp_corpus_file_doc_counts(file, &columns->bytes, &columns->words,
                                        &columns->words_split);
    if (err == BP_OK)
        columns->labels = bp_alloc("tool.labels", count, sizeof *columns->labels);
    if (err == BP_OK && columns->labels == NULL)
        err = bp_fail_memory("labels", count, sizeof *columns->labels);
    for (int k = 0; k < count && err == BP_OK; k++)
        err = bp_corpus_file_label(file, k, &columns->labels[k]);
    return err;
}

static void put_corpus_head(const bp_corpus_info *info, const corpus_columns *columns)
{
    printf("document%s,tokens%s%s%s", info->has_ids ? ",id" : "", info->has_bytes ? ",bytes" : "",
           info->has_words ? ",words" : "", info->has_words_split ? ",words_split" : "");
    for (int k = 0; k < info->labels; k++) {
        putchar(',');
        put_csv(stdout, columns->labels[k].name, SIZE_MAX);
    }
    putchar('\n');
}

static bp_err put_document(bp_corpus_file *file, const corpus_columns *columns, int64_t d)
{
    const bp_corpus_info *info = bp_corpus_file_info(file);
    char id[65536];
    bp_err err = bp_corpus_file_doc_id(file, d, id, sizeof id);

    if (err != BP_OK)
        return err;
    printf("%" PRId64, d);
    if (info->has_ids) {
        putchar(',');
        put_csv(stdout, id, sizeof id);
    }
    printf(",%" PRId64, columns->start[d + 1] - columns->start[d]);
    if (info->has_bytes)
        printf(",%" PRId64, columns->bytes[d]);
    if (info->has_words)
        printf(",%" PRId64, columns->words[d]);
    if (info->has_words_split)
        printf(",%" PRId64, columns->words_split[d]);
    for (int k = 0; k < info->labels; k++) {
        putchar(',');
        put_csv(stdout, columns->labels[k].values[columns->labels[k].codes[d]], SIZE_MAX);
    }
    putchar('\n');
    return BP_OK;
}

static bp_err table_of_corpus(const char *path, int64_t head)
{
    corpus_columns columns = {NULL, NULL, NULL, NULL, NULL};
    bp_corpus_file *file;
    bp_err err = bp_corpus_file_open(&file, path);

    if (err != BP_OK)
        return err;
    err = load_columns(file, &columns);
    if (err == BP_OK)
        put_corpus_head(bp_corpus_file_info(file), &columns);
    int64_t rows = bp_corpus_file_info(file)->documents;
    rows = head >= 0 && head < rows ? head : rows;
    for (int64_t d = 0; d < rows && err == BP_OK && !ferror(stdout); d++)
        err = put_document(file, &columns, d);
    bp_free(columns.labels);
    bp_corpus_file_close(&file);
    return err;
}

/* ---- other files of ours: a row a value of the datasets that are equally long ---- */

typedef struct table_column {
    char *name; /* the dataset; a grid is as many columns as it has */
    bp_h5_shape shape;
    void *block;  /* block_rows rows of values: double, int64, uint64 or text */
    char *values; /* of labels: the names of the codes; of a grid: those of its columns; or NULL */
    bp_h5_shape values_shape;
} table_column;

typedef struct table {
    bp_h5 *h5;
    table_column *columns;
    int64_t column_count, rows;
    int64_t block_rows; /* read at once: fewer where a grid is wide */
} table;

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

/* Codes of a label become its values; columns of the members' grid get the members' names. */
static bp_err load_values(bp_h5 *h5, table_column *column)
{
    bool label = strncmp(column->name, "labels/", 7) == 0;
    char *name;
    bp_err err;

    if (!label && strcmp(column->name, "member_logprob") != 0)
        return BP_OK;
    name = label ? bp_sprintf("label_names/%s", column->name + 7) : bp_strdup("member_names");
    if (name == NULL)
        return bp_fail_memory("a name", 1, 1);
    if (!bp_h5_has(h5, name)) {
        bp_free(name);
        return BP_OK;
    }
    err = bp_h5_shape_of(h5, name, &column->values_shape);
    if (err == BP_OK && column->values_shape.is_text) {
        column->values =
            bp_alloc("tool.values", column->values_shape.count, column->values_shape.width);
        err = column->values == NULL
                  ? bp_fail_memory(name, column->values_shape.count, column->values_shape.width)
                  : bp_h5_read_text(h5, name, column->values_shape.width, 0, column->values,
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
    if (column->name == NULL || column->block == NULL)
        return bp_fail_memory(name, t->block_rows * shape->columns, shape->width);
    return load_values(t->h5, column);
}

/* Has it a value, or as many as it has columns, for each row? */
static bool is_column(const table *t, const char *name, const bp_h5_shape *shape)
{
    if (strncmp(name, "label_names/", 12) == 0 || strcmp(name, "member_names") == 0)
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

static bp_err find_columns(table *t)
{
    char **names = NULL;
    int64_t count = 0;
    bp_h5_shape *shapes = NULL;
    bp_err err = list_datasets(t->h5, &names, &count);

    if (err == BP_OK) {
        shapes = bp_alloc("tool.shapes", count, sizeof *shapes);
        t->columns = bp_alloc("tool.columns", count, sizeof *t->columns);
        if (shapes == NULL || t->columns == NULL)
            err = bp_fail_memory("columns", count, sizeof *t->columns);
    }
    for (int64_t k = 0; k < count && err == BP_OK; k++)
        err = bp_h5_shape_of(t->h5, names[k], &shapes[k]);
    if (err == BP_OK) {
        t->rows = common_length(shapes, count);
        choose_block(t, shapes, names, count);
    }
    for (int64_t k = 0; k < count && err == BP_OK; k++)
        if (is_column(t, names[k], &shapes[k]))
            err = add_column(t, names[k], &shapes[k]);
    bp_free(shapes);
    bp_names_free(&names, count);
    return err;
}

static void clear_table(table *t)
{
    for (int64_t k = 0; k < t->column_count; k++) {
        bp_free(t->columns[k].name);
        bp_free(t->columns[k].block);
        bp_free(t->columns[k].values);
    }
    bp_free(t->columns);
    bp_h5_drop(&t->h5);
}

/* A hash: not all of its values are an int64. */
static bool is_unsigned64(const table_column *c)
{
    return !c->shape.is_text && !c->shape.is_real && !c->shape.is_signed &&
           c->shape.width == sizeof(uint64_t);
}

static bp_err load_block(table *t, int64_t first, int64_t count)
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
        printf("%.*g", c->shape.width == sizeof(float) ? 9 : 17, ((const double *)c->block)[k]);
    } else if (is_unsigned64(c) && c->values == NULL) {
        printf("%" PRIu64, ((const uint64_t *)c->block)[k]);
    } else {
        int64_t value = ((const int64_t *)c->block)[k];
        if (c->values == NULL)
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
        if (c->shape.dims == 2 && c->values != NULL && i < c->values_shape.count)
            full = bp_sprintf("%s.%.*s", name, (int)c->values_shape.width,
                              c->values + (size_t)i * c->values_shape.width);
        else if (c->shape.dims == 2)
            full = bp_sprintf("%s.%" PRId64, name, i);
        put_csv(stdout, full != NULL ? full : name, SIZE_MAX);
        bp_free(full);
    }
}

static void put_rows(const table *t, int64_t first, int64_t count)
{
    for (int64_t k = 0; k < count; k++) {
        printf("%" PRId64, first + k);
        for (int64_t c = 0; c < t->column_count; c++) {
            int64_t columns = t->columns[c].shape.columns;

            for (int64_t i = 0; i < columns; i++) {
                putchar(',');
                put_value(&t->columns[c], k * columns + i);
            }
        }
        putchar('\n');
    }
}

static bp_err table_of_file(const char *path, int64_t head)
{
    table t = {.block_rows = BLOCK_ROWS};
    bp_user_block block;
    bp_err err = bp_user_block_verify(&block, path); /* before HDF5 sees it */

    if (err == BP_OK)
        err = bp_h5_open(&t.h5, path);
    if (err == BP_OK)
        err = find_columns(&t);
    if (err == BP_OK) {
        printf("row");
        for (int64_t c = 0; c < t.column_count; c++)
            put_head(&t.columns[c]);
        putchar('\n');
    }
    int64_t rows = head >= 0 && head < t.rows ? head : t.rows;
    for (int64_t first = 0; first < rows && err == BP_OK && !ferror(stdout);
         first += t.block_rows) {
        int64_t now = rows - first < t.block_rows ? rows - first : t.block_rows;
        err = load_block(&t, first, now);
        if (err == BP_OK)
            put_rows(&t, first, now);
    }
    clear_table(&t);
    return err;
}

static bp_err print_table(const char *path, int64_t head)
{
    bp_user_block block;
    path_kind kind;
    bp_err err = path_kind_of(&kind, &block, path);

    if (err != BP_OK)
        return err;
    bp_log_set_member("", true); /* standard output is the table's, and not the log's */
    (void)bp_log_use(BP_LOG_MEMBER);
    if (kind == PATH_CORPUS || kind == PATH_STRANGER)
        return table_of_corpus(path, head);
    if (kind == PATH_TABLE)
        return table_of_file(path, head);
    return BP_FAIL(BP_ERR_INPUT, "no rows: at %s; name a corpus or an HDF5 table of scores", path);
}

static const bp_help_row STATUSES[] = {{"0", "done"},
                                       {"64", "wrong command line"},
                                       {"65", "a file is damaged"},
                                       {"66", "a file is missing"},
                                       {0}};

static bp_err run(int argc, char **argv)
{
    static const file_tool TOOL = {.tool = &bp_tool_table, .run = print_table};

    return file_tool_run(&TOOL, argc, argv);
}

const bp_tool bp_tool_table = {
    .name = "table",
    .help = {.name = "bagpipe-data table",
             .usage = "[OPTION...] FILE...",
             .summary = "prints rows of files as CSV",
             .text = "A FILE is a corpus or documents.h5 (a row a document), or tokens.h5 (a row a "
                     "token).",
             .options = file_tool_options,
             .examples = "  bagpipe-data table train.h5\n"
                         "  bagpipe-data table runs/scored/score/documents.h5 > documents.csv\n",
             .statuses = STATUSES},
    .run = run};
