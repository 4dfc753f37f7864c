/* Readers of .npy and CSV. Source: numpy.lib.format, versions 1.0 to 3.0; RFC 4180. */
#include "uncertainty/comparison/predictions_file.h"

#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT ((int64_t)64 << 30)
#define TOLERANCE  1e-3 /* of a row's sum: float32 over a vocabulary */

static bool ends_with(const char *path, const char *suffix)
{
    size_t bytes = strlen(path), of = strlen(suffix);

    return bytes > of && strcmp(path + bytes - of, suffix) == 0;
}

bool bp_predictions_are_at(const char *path)
{
    return ends_with(path, ".npy") || ends_with(path, ".csv");
}

static bp_err damaged(const char *path, const char *what)
{
    return BP_FAIL(BP_ERR_FORMAT, "predictions.damaged",
                   "%s: at %s; write it with numpy.save, as float32 or float64 in C order, or as "
                   "CSV with a line of names",
                   what, path);
}

static bp_err allocate(bp_predictions *out, const char *path)
{
    int64_t most = INT64_MAX / 16;

    if (out->members < 1 || out->rows < 1 || out->outcomes < 2 ||
        out->rows > most / out->outcomes || out->members > most / (out->rows * out->outcomes))
        return damaged(path, "it has no rows of two or more outcomes");
    out->p = bp_try_alloc("comparison.predictions", out->members * out->rows * out->outcomes,
                          sizeof *out->p);
    if (!out->p)
        return bp_fail_memory("predictions", out->members * out->rows * out->outcomes,
                              sizeof *out->p);
    return BP_OK;
}

/* ---- .npy ---- */

/* The text after 'key': in the header; NULL if it is missing. */
static const char *value_of(const char *header, const char *key)
{
    const char *at = strstr(header, key);

    at = at ? strchr(at + strlen(key), ':') : NULL;
    return at ? at + 1 + strspn(at + 1, " ") : NULL;
}

/* (a, b) or (a, b, c). */
static bool read_sizes(const char *text, int64_t sizes[3], int *count)
{
    *count = 0;
    if (*text++ != '(')
        return false;
    for (; *count < 3; text += strspn(text, ", ")) {
        char *end;

        text += strspn(text, " ");
        if (*text < '0' || *text > '9')
            break;
        sizes[*count] = strtoll(text, &end, 10);
        if (sizes[*count] < 1 || sizes[*count] > INT32_MAX)
            return false;
        (*count)++;
        text = end;
    }
    return *text == ')' && *count >= 2;
}

static bp_err parse_header(bp_predictions *out, bool *wide, const char *header, const char *path)
{
    const char *type = value_of(header, "'descr'"), *order = value_of(header, "'fortran_order'"),
               *shape = value_of(header, "'shape'");
    int64_t sizes[3];
    int count;

    if (!type || !order || !shape)
        return damaged(path, "its header has no descr, fortran_order or shape");
    *wide = strncmp(type, "'<f8'", 5) == 0;
    if (!*wide && strncmp(type, "'<f4'", 5) != 0)
        return damaged(path, "its values are not little-endian float32 or float64");
    if (strncmp(order, "False", 5) != 0)
        return damaged(path, "it is in Fortran's order");
    if (!read_sizes(shape, sizes, &count))
        return damaged(path, "its shape is not [rows][outcomes] or [members][rows][outcomes]");
    out->members = count == 3 ? sizes[0] : 1;
    out->rows = sizes[count - 2];
    out->outcomes = sizes[count - 1];
    return BP_OK;
}

static bp_err parse_npy(bp_predictions *out, const char *bytes, size_t count, const char *path)
{
    const unsigned char *raw = (const unsigned char *)bytes;
    size_t head, length;
    bool wide = false;

    if (count < 12 || memcmp(bytes, "\x93NUMPY", 6) != 0 || raw[6] < 1 || raw[6] > 3)
        return damaged(path, "it is not a .npy file");
    head = raw[6] == 1 ? 10 : 12;
    length = (size_t)raw[8] | (size_t)raw[9] << 8;
    if (raw[6] > 1)
        length |= (size_t)raw[10] << 16 | (size_t)raw[11] << 24;
    if (length > count - head)
        return damaged(path, "its header is cut off");
    char *header = bp_sprintf("%.*s", (int)(length < 65536 ? length : 65536), bytes + head);
    bp_err err = parse_header(out, &wide, header, path);

    bp_free(header);
    if (err != BP_OK)
        return err;
    size_t width = wide ? 8 : 4, values = (count - head - length) / width;
    if ((__int128)out->members * out->rows * out->outcomes != (__int128)values ||
        (count - head - length) % width != 0)
        return damaged(path, "it has other numbers of values than its shape says");
    err = allocate(out, path);
    if (err != BP_OK)
        return err;
    for (size_t k = 0; k < values; k++) {
        const char *from = bytes + head + length + k * width;
        float single;

        if (wide) {
            memcpy(&out->p[k], from, sizeof out->p[k]);
        } else {
            memcpy(&single, from, sizeof single);
            out->p[k] = (double)single;
        }
    }
    return BP_OK;
}

/* ---- CSV ---- */

typedef struct csv_reader {
    const char *at, *end;
} csv_reader;

/* The next cell, without its quotation marks; *last: it ends a line. false if there are no more
 * cells, or marks do not match. */
static bool next_cell(csv_reader *csv, bp_buffer *cell, bool *last)
{
    bool quoted = csv->at < csv->end && *csv->at == '"';

    cell->bytes = 0;
    if (csv->at >= csv->end)
        return false;
    if (quoted) {
        for (csv->at++;; csv->at++) {
            if (csv->at >= csv->end)
                return false;
            if (*csv->at == '"' && !(csv->at + 1 < csv->end && csv->at[1] == '"'))
                break;
            csv->at += *csv->at == '"';
            bp_buffer_add(cell, csv->at, 1);
        }
        csv->at++;
    }
    while (csv->at < csv->end && !strchr(",\r\n", *csv->at)) {
        if (quoted)
            return false;
        bp_buffer_add(cell, csv->at++, 1);
    }
    bp_buffer_add(cell, "", 1); /* ends the text */
    *last = csv->at >= csv->end || *csv->at != ',';
    if (csv->at < csv->end && *csv->at == '\r')
        csv->at++;
    if (csv->at < csv->end && (*csv->at == ',' || *csv->at == '\n'))
        csv->at++;
    return true;
}

static bp_err read_names(bp_predictions *out, csv_reader *csv, bp_buffer *cell, const char *path)
{
    bool last = false;

    while (!last) {
        if (!next_cell(csv, cell, &last))
            return damaged(path, "its first line has no names of outcomes");
        out->names =
            bp_realloc("comparison.predictions", out->names, out->outcomes + 1, sizeof *out->names);
        out->names[out->outcomes++] = bp_strdup(cell->data);
    }
    return BP_OK;
}

static bp_err read_row(bp_predictions *out, csv_reader *csv, bp_buffer *cell, const char *path)
{
    bool last = false;

    for (int64_t k = 0; k < out->outcomes; k++) {
        char *end = NULL;
        bool found = !last && next_cell(csv, cell, &last);
        double value = found ? strtod(cell->data, &end) : 0;

        if (!found || end == cell->data || *end || last != (k + 1 == out->outcomes))
            return BP_FAIL(BP_ERR_FORMAT, "predictions.damaged",
                           "a row is not of %" PRId64 " numbers, as the first line has names: at "
                           "row %" PRId64 " of %s; write a number a column",
                           out->outcomes, out->rows, path);
        out->p[out->rows * out->outcomes + k] = value;
    }
    out->rows++;
    return BP_OK;
}

static bp_err parse_csv(bp_predictions *out, const char *bytes, size_t count, const char *path)
{
    csv_reader csv = {bytes, bytes + count};
    bp_buffer cell = {0};
    bp_err err;

    if (count >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0)
        csv.at += 3;
    out->members = 1;
    err = read_names(out, &csv, &cell, path);
    for (const char *c = csv.at; err == BP_OK && c < csv.end; c++)
        out->rows += *c == '\n' || *c == '\r' || c + 1 == csv.end;
    if (err == BP_OK)
        err = allocate(out, path);
    out->rows = 0;
    while (err == BP_OK && csv.at < csv.end)
        err = read_row(out, &csv, &cell, path);
    bp_buffer_clear(&cell);
    return err;
}

/* ---- both ---- */

/* Scales rows to sum to 1. */
static bp_err check_rows(bp_predictions *out, const char *path)
{
    for (int64_t r = 0; r < out->members * out->rows; r++) {
        double *row = out->p + r * out->outcomes, sum = 0;

        for (int64_t k = 0; k < out->outcomes; k++) {
            if (!(row[k] >= 0 && row[k] <= 1 + TOLERANCE))
                return BP_FAIL(BP_ERR_FORMAT, "predictions.no_probability",
                               "%g is not a probability: at column %" PRId64 " of row %" PRId64
                               " of %s; give probabilities, not logits",
                               row[k], k, r % out->rows, path);
            sum += row[k];
        }
        if (!(fabs(sum - 1) <= TOLERANCE))
            return BP_FAIL(BP_ERR_FORMAT, "predictions.not_normalised",
                           "the probabilities sum to %g and not to 1: at row %" PRId64
                           " of %s; give those of all outcomes",
                           sum, r % out->rows, path);
        for (int64_t k = 0; k < out->outcomes; k++)
            row[k] /= sum;
    }
    return BP_OK;
}

bp_err bp_predictions_parse(bp_predictions *out, const char *bytes, size_t count, const char *path)
{
    bp_err err;

    *out = (bp_predictions){.members = 0};
    err = ends_with(path, ".npy") ? parse_npy(out, bytes, count, path)
                                  : parse_csv(out, bytes, count, path);
    return err == BP_OK ? check_rows(out, path) : err;
}

bp_err bp_predictions_read(bp_predictions *out, const char *path)
{
    char *bytes = NULL;
    size_t count = 0;
    bp_err err = bp_file_read(path, FILE_LIMIT, &bytes, &count);

    *out = (bp_predictions){.members = 0};
    if (err == BP_OK)
        err = bp_predictions_parse(out, bytes, count, path);
    bp_free(bytes);
    return err;
}

void bp_predictions_clear(bp_predictions *predictions)
{
    for (int64_t k = 0; predictions->names && k < predictions->outcomes; k++)
        bp_free(predictions->names[k]);
    bp_free(predictions->names);
    bp_free(predictions->p);
    *predictions = (bp_predictions){.members = 0};
}

static int64_t find_name(const char *const *names, int64_t count, const char *name)
{
    for (int64_t k = 0; k < count; k++)
        if (strcmp(names[k], name) == 0)
            return k;
    return -1;
}

bp_err bp_predictions_sort(bp_predictions *predictions, const char *const *outcomes, int64_t count,
                           const char *path)
{
    int64_t columns = predictions->outcomes, *to;
    double *row;
    bp_err err = BP_OK;

    if (predictions->names && !outcomes)
        return BP_FAIL(BP_ERR_FORMAT, "predictions.unlike_outcomes",
                       "the models' outcomes have no names that a CSV could give: at %s; give .npy",
                       path);
    if (columns != count && !predictions->names)
        return BP_FAIL(BP_ERR_FORMAT, "predictions.unlike_outcomes",
                       "it has %" PRId64 " outcomes, the models have %" PRId64 ": at %s; give a "
                       "column an outcome of the models",
                       columns, count, path);
    if (!predictions->names)
        return BP_OK;
    to = bp_alloc("comparison.predictions", columns, sizeof *to);
    for (int64_t k = 0; k < columns && err == BP_OK; k++) {
        const char *name = predictions->names[k];

        to[k] = find_name(outcomes, count, name);
        if (to[k] < 0 || find_name((const char *const *)predictions->names, k, name) >= 0)
            err =
                BP_FAIL(BP_ERR_FORMAT, "predictions.unlike_outcomes",
                        "'%s' is not a class of the models, or has two columns: at the first line "
                        "of %s; name each class of the models once",
                        name, path);
    }
    for (int64_t k = 0; k < count && err == BP_OK; k++)
        if (find_name((const char *const *)predictions->names, columns, outcomes[k]) < 0)
            err = BP_FAIL(BP_ERR_FORMAT, "predictions.unlike_outcomes",
                          "the class '%s' of the models has no column: at the first line of %s; "
                          "name each class of the models once",
                          outcomes[k], path);
    row = bp_alloc("comparison.predictions", columns, sizeof *row);
    for (int64_t r = 0; r < predictions->rows && err == BP_OK; r++) {
        memcpy(row, predictions->p + r * columns, (size_t)columns * sizeof *row);
        for (int64_t k = 0; k < columns; k++)
            predictions->p[r * columns + to[k]] = row[k];
    }
    bp_free(row);
    bp_free(to);
    return err;
}
