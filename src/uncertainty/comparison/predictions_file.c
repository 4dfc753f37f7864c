/* Readers of .npy and CSV. Source: numpy.lib.format, versions 1.0 to 3.0; RFC 4180. */
#include "uncertainty/comparison/predictions_file.h"

#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/suffix.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT ((int64_t)64 << 30)
#define TOLERANCE  1e-3 /* of a row's sum: float32 over a vocabulary */
#define LOOSE      0.05 /* a sum this near 1 or 100 is one of rounded numbers */

bool bp_predictions_are_at(const char *path)
{
    return bp_has_suffix(path, ".npy") || bp_has_suffix(path, ".csv");
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

/* A column that is not the probability of an outcome. */
enum { SKIPPED = -1, DOCUMENT = -2 };

typedef struct csv_reader {
    const char *at, *end, *path;
    bp_buffer cell; /* the last one read */
    char **names;   /* [columns] of the first line */
    int64_t *roles; /* [columns] an outcome, or SKIPPED, DOCUMENT */
    int64_t columns;
} csv_reader;

/* The next cell, without its quotation marks; *last: it ends a line. false if there are no more
 * cells, or marks do not match. */
static bool next_cell(csv_reader *csv, bool *last)
{
    bool quoted = csv->at < csv->end && *csv->at == '"';
    bp_buffer *cell = &csv->cell;

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

static bp_err read_names(csv_reader *csv)
{
    bool last = false;

    while (!last) {
        if (!next_cell(csv, &last))
            return damaged(csv->path, "its first line has no names of outcomes");
        csv->names =
            bp_realloc("comparison.predictions", csv->names, csv->columns + 1, sizeof *csv->names);
        csv->names[csv->columns++] = bp_strdup(csv->cell.data);
    }
    return BP_OK;
}

static int64_t find_name(const char *const *names, int64_t count, const char *name)
{
    for (int64_t k = 0; k < count; k++)
        if (strcmp(names[k], name) == 0)
            return k;
    return -1;
}

#define PREFIX "p_" /* of a probability's column in our own predictions.csv */

static bool has_prefix(const char *name)
{
    return strncmp(name, PREFIX, strlen(PREFIX)) == 0;
}

/* Our own predictions.csv: a column p_CLASS for each class, and others that describe the row. */
static bool is_own(const csv_reader *csv, bp_outcome_names outcomes)
{
    static const char *const OTHERS[] = {"document",           "word",    "label",    "prediction",
                                         "probability",        "entropy", "variance", "doc_id",
                                         "mutual_information", "tokens"};
    int64_t probabilities = 0;

    for (int64_t k = 0; k < csv->columns; k++) {
        const char *name = csv->names[k];

        if (has_prefix(name) && find_name(outcomes.names, outcomes.count, name) < 0)
            probabilities++;
        else if (find_name(OTHERS, sizeof OTHERS / sizeof *OTHERS, name) < 0)
            return false;
    }
    return probabilities > 0;
}

static bp_err refuse_column(const csv_reader *csv, int64_t column)
{
    const char *name = csv->names[column];

    if (name[0] == '\0')
        return BP_FAIL(BP_ERR_FORMAT, "predictions.unlike_outcomes",
                       "column %" PRId64 " has no name, so it is no class of the models: at the "
                       "first line of %s; leave it out (pandas writes its index so: index=False)",
                       column + 1, csv->path);
    return BP_FAIL(BP_ERR_FORMAT, "predictions.unlike_outcomes",
                   "'%s', column %" PRId64 ", is no class of the models, or the second column of "
                   "one: at the first line of %s; name each class of the models once, and besides "
                   "them only doc_id",
                   name, column + 1, csv->path);
}

/* Each column is an outcome, doc_id, or one of ours that is not read. */
static bp_err find_roles(csv_reader *csv, bp_outcome_names outcomes)
{
    bool own = is_own(csv, outcomes), *found;
    int64_t ids = 0;
    bp_err err = BP_OK;

    csv->roles = bp_alloc("comparison.predictions", csv->columns, sizeof *csv->roles);
    found = bp_alloc("comparison.predictions", outcomes.count, sizeof *found);
    for (int64_t k = 0; k < csv->columns && err == BP_OK; k++) {
        const char *name = csv->names[k];
        bool probability = !own || has_prefix(name);
        int64_t outcome = find_name(outcomes.names, outcomes.count,
                                    own && probability ? name + strlen(PREFIX) : name);

        csv->roles[k] = probability ? outcome : SKIPPED;
        if (probability && outcome >= 0 && !found[outcome])
            found[outcome] = true;
        else if (strcmp(name, "doc_id") == 0 && (own || outcome < 0) && ids++ == 0)
            csv->roles[k] = DOCUMENT;
        else if (probability)
            err = refuse_column(csv, k);
    }
    for (int64_t k = 0; k < outcomes.count && err == BP_OK; k++)
        if (!found[k])
            err = BP_FAIL(BP_ERR_FORMAT, "predictions.unlike_outcomes",
                          "the class '%s' of the models has no column: at the first line of %s; "
                          "name each class of the models once",
                          outcomes.names[k], csv->path);
    bp_free(found);
    return err;
}

static bp_err take_probability(bp_predictions *out, csv_reader *csv, int64_t column)
{
    char *end;
    double value = strtod(csv->cell.data, &end);

    if (end == csv->cell.data || *end)
        return BP_FAIL(BP_ERR_FORMAT, "predictions.damaged",
                       "'%.40s' is not a number: at column '%s' of row %" PRId64 " of %s; write a "
                       "probability in it",
                       csv->cell.data, csv->names[column], out->rows, csv->path);
    out->p[out->rows * out->outcomes + csv->roles[column]] = value;
    return BP_OK;
}

static bool skip_blank_line(csv_reader *csv)
{
    const char *c = csv->at;

    while (c < csv->end && (*c == ' ' || *c == '\r'))
        c++;
    if (c < csv->end && *c != '\n')
        return false;
    csv->at = c < csv->end ? c + 1 : c;
    return true;
}

static bp_err read_row(bp_predictions *out, csv_reader *csv)
{
    bool last = false;
    bp_err err = BP_OK;

    if (csv->columns > 1 && skip_blank_line(csv))
        return BP_OK;
    for (int64_t k = 0; k < csv->columns && err == BP_OK; k++) {
        if (last || !next_cell(csv, &last) || last != (k + 1 == csv->columns))
            return BP_FAIL(BP_ERR_FORMAT, "predictions.damaged",
                           "a row has not the %" PRId64
                           " columns of the first line: at row %" PRId64
                           " of %s; write a value a column",
                           csv->columns, out->rows, csv->path);
        if (csv->roles[k] >= 0)
            err = take_probability(out, csv, k);
        else if (csv->roles[k] == DOCUMENT)
            out->documents[out->rows] = bp_strdup(csv->cell.data);
    }
    out->rows += err == BP_OK;
    return err;
}

static bp_err read_rows(bp_predictions *out, csv_reader *csv)
{
    bp_err err;

    for (const char *c = csv->at; c < csv->end; c++)
        out->rows += *c == '\n' || *c == '\r' || c + 1 == csv->end;
    err = allocate(out, csv->path);
    for (int64_t k = 0; k < csv->columns && err == BP_OK; k++)
        if (csv->roles[k] == DOCUMENT)
            out->documents = bp_alloc("comparison.predictions", out->rows, sizeof *out->documents);
    out->document_count = out->documents ? out->rows : 0;
    out->rows = 0;
    while (err == BP_OK && csv->at < csv->end)
        err = read_row(out, csv);
    return err == BP_OK && out->rows == 0 ? damaged(csv->path, "it has no rows") : err;
}

static bp_err parse_csv(bp_predictions *out, const char *bytes, size_t count, const char *path,
                        bp_outcome_names outcomes)
{
    csv_reader csv = {bytes, bytes + count, path, .columns = 0};
    bp_err err = BP_OK;

    if (count >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0)
        csv.at += 3;
    out->members = 1;
    out->outcomes = outcomes.count;
    if (!outcomes.names)
        err = BP_FAIL(BP_ERR_FORMAT, "predictions.unlike_outcomes",
                      "the models' outcomes have no names that a CSV could give: at %s; give .npy",
                      path);
    if (err == BP_OK)
        err = read_names(&csv);
    if (err == BP_OK)
        err = find_roles(&csv, outcomes);
    if (err == BP_OK)
        err = read_rows(out, &csv);
    bp_buffer_clear(&csv.cell);
    bp_names_free(&csv.names, csv.columns);
    bp_free(csv.roles);
    return err;
}

/* ---- both ---- */

/* What is wrong with a row that is not of probabilities. Rows and columns count from 0. */
static bp_err refuse_row(const bp_predictions *out, int64_t r, int64_t column, double sum,
                         const char *path)
{
    const double *row = out->p + r * out->outcomes;
    bool percent = fabs(sum - 100) <= 100 * LOOSE;

    for (int64_t k = 0; k < out->outcomes; k++)
        percent = percent && row[k] >= 0;
    if (percent)
        return BP_FAIL(BP_ERR_FORMAT, "predictions.no_probability",
                       "the values sum to %g, as percentages: at row %" PRId64
                       " of %s; divide them by 100",
                       sum, r % out->rows, path);
    if (column < out->outcomes)
        return BP_FAIL(BP_ERR_FORMAT, "predictions.no_probability",
                       "%g is not a probability: at column %" PRId64 " of row %" PRId64
                       " of %s; give probabilities, not logits",
                       row[column], column, r % out->rows, path);
    return BP_FAIL(
        BP_ERR_FORMAT, "predictions.not_normalised",
        "the probabilities sum to %g, further than %g from 1: at row %" PRId64 " of %s; %s", sum,
        TOLERANCE, r % out->rows, path,
        fabs(sum - 1) <= LOOSE ? "write more of their digits" : "give those of all outcomes");
}

/* Scales rows to sum to 1. */
static bp_err check_rows(bp_predictions *out, const char *path)
{
    for (int64_t r = 0; r < out->members * out->rows; r++) {
        double *row = out->p + r * out->outcomes, sum = 0;
        int64_t bad = out->outcomes;

        for (int64_t k = 0; k < out->outcomes; k++) {
            if (bad == out->outcomes && !(row[k] >= 0 && row[k] <= 1 + TOLERANCE))
                bad = k;
            sum += row[k];
        }
        if (bad < out->outcomes || !(fabs(sum - 1) <= TOLERANCE))
            return refuse_row(out, r, bad, sum, path);
        for (int64_t k = 0; k < out->outcomes; k++)
            row[k] /= sum;
    }
    return BP_OK;
}

bp_err bp_predictions_parse(bp_predictions *out, const char *bytes, size_t count, const char *path,
                            bp_outcome_names outcomes)
{
    bp_err err;

    *out = (bp_predictions){.members = 0};
    if (!bp_has_suffix(path, ".npy"))
        err = parse_csv(out, bytes, count, path, outcomes);
    else
        err = parse_npy(out, bytes, count, path);
    if (err == BP_OK && outcomes.count > 0 && out->outcomes != outcomes.count)
        err = BP_FAIL(BP_ERR_FORMAT, "predictions.unlike_outcomes",
                      "it has %" PRId64 " outcomes, the models have %" PRId64 ": at %s; give a "
                      "column an outcome of the models",
                      out->outcomes, outcomes.count, path);
    return err == BP_OK ? check_rows(out, path) : err;
}

bp_err bp_predictions_read(bp_predictions *out, const char *path, bp_outcome_names outcomes)
{
    char *bytes = NULL;
    size_t count = 0;
    bp_err err = bp_file_read(path, FILE_LIMIT, &bytes, &count);

    *out = (bp_predictions){.members = 0};
    if (err == BP_OK)
        err = bp_predictions_parse(out, bytes, count, path, outcomes);
    bp_free(bytes);
    return err;
}

void bp_predictions_clear(bp_predictions *predictions)
{
    bp_names_free(&predictions->documents, predictions->document_count);
    bp_free(predictions->p);
    *predictions = (bp_predictions){.members = 0};
}
