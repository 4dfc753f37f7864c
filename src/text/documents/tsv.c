/* Tables: fields with a tab between them, names of the columns in the first line; and texts of two
 * files, line by line. */
#include "base/config/decimal.h"
#include "base/mem.h"
#include "text/documents/text_source.h"
#include "text/unicode/tally.h"

#include "text/documents/record_priv.h"

#include <string.h>

typedef struct field {
    const char *text;
    size_t bytes;
} field;

/* The field at *at, which advances to the next one; NULL if there are no more. */
static field next_field(const char **at, const char *end)
{
    const char *text = *at;
    const char *tab = !text ? NULL : memchr(text, '\t', (size_t)(end - text));

    *at = tab ? tab + 1 : NULL;
    return (field){text, !text ? 0 : (size_t)((tab ? tab : end) - text)};
}

static bool is_named(const field *found, const char *name)
{
    return strlen(name) == found->bytes && memcmp(name, found->text, found->bytes) == 0;
}

/* ---- the first line ---- */

static bp_err find_column(const char *line, size_t bytes, const char *name, bool needed, int *out)
{
    const char *at = line;
    bool quoted = false;
    int k = 0;

    *out = -1;
    for (field f = next_field(&at, line + bytes); f.text; f = next_field(&at, line + bytes), k++) {
        quoted = quoted || (f.bytes == strlen(name) + 2 && f.text[0] == '"' &&
                            memcmp(f.text + 1, name, f.bytes - 2) == 0);
        if (!is_named(&f, name))
            continue;
        if (*out >= 0)
            return BP_FAIL(BP_ERR_FORMAT, "tsv.column_twice", "two columns are called '%s'", name);
        *out = k;
    }
    if (*out < 0 && needed && quoted)
        return BP_FAIL(BP_ERR_FORMAT, "tsv.quotes",
                       "columns are in quotes, which are a part of the text here, as in \"%s\"; "
                       "write them without (R: quote=FALSE)",
                       name);
    return *out >= 0 || !needed ? BP_OK
                                : BP_FAIL(BP_ERR_FORMAT, "tsv.no_column",
                                          "no column is called '%s', in a first line of %d: %.*s",
                                          name, k, (int)(bytes < 200 ? bytes : 200), line);
}

bp_err bp_tsv_head(bp_text_record *record, const char *line, size_t bytes)
{
    const struct {
        char **names;
        int count;
    } asked[] = {{record->fields, record->field_count},
                 {record->names, record->label_count},
                 {record->value_names, record->value_count}};
    const char *at = line;
    int *column = record->columns;
    bp_err err = find_column(line, bytes, "id", false, &record->id_column);

    for (size_t kind = 0; kind < sizeof asked / sizeof asked[0]; kind++)
        for (int k = 0; k < asked[kind].count && err == BP_OK; k++)
            err = find_column(line, bytes, asked[kind].names[k], true, column++);
    record->column_count = 0;
    while (next_field(&at, line + bytes).text)
        record->column_count++;
    return err;
}

/* ---- a row ---- */

static bp_err set_text(char **to, const field *f, const char *name)
{
    bp_text_counts counts;

    bp_text_count(&counts, f->text, f->bytes);
    if (counts.invalid_bytes > 0 || memchr(f->text, 0, f->bytes))
        return BP_FAIL(BP_ERR_FORMAT, "tsv.bad_field",
                       "the field '%s' is not UTF-8, or has a zero byte", name);
    if (f->bytes > BP_TEXT_FIELD_BYTES)
        return BP_FAIL(BP_ERR_FORMAT, "text.field_too_long",
                       "the field \"%s\" has %zu bytes, more than %d", name, f->bytes,
                       BP_TEXT_FIELD_BYTES);
    bp_text_record_set(to, f->text, f->bytes);
    return BP_OK;
}

static bp_err set_value(float *to, const field *f, const char *name)
{
    const char *text = f->text;
    size_t bytes = f->bytes;

    for (; bytes > 0 && *text == ' '; bytes--)
        text++;
    while (bytes > 0 && text[bytes - 1] == ' ')
        bytes--;
    if (!bp_decimal_float(to, text, bytes))
        return BP_FAIL(BP_ERR_FORMAT, "value.not_number",
                       "the value '%.*s' of '%s' is not a finite number",
                       (int)(f->bytes < 80 ? f->bytes : 80), f->text, name);
    return BP_OK;
}

bp_err bp_tsv_parse(bp_text_record *record, const char *line, size_t bytes)
{
    const int *label_columns = record->columns + record->field_count;
    const int *value_columns = label_columns + record->label_count;
    field *fields = bp_alloc("text.tsv", record->column_count + 1, sizeof *fields);
    const char *at = line;
    int count = 0;
    bp_err err = BP_OK;

    for (field f = next_field(&at, line + bytes); f.text;
         f = next_field(&at, line + bytes), count++)
        if (count < record->column_count)
            fields[count] = f;
    if (count != record->column_count)
        err = BP_FAIL(BP_ERR_FORMAT, "tsv.ragged", "the row has %d fields, and the first line %d",
                      count, record->column_count);
    record->joined.bytes = 0;
    for (int k = 0; k < record->field_count && err == BP_OK; k++) {
        const field *f = &fields[record->columns[k]];

        record->starts[k] = record->joined.bytes;
        bp_buffer_add(&record->joined, f->text, f->bytes);
    }
    for (int k = 0; k < record->label_count && err == BP_OK; k++) {
        record->types[k] = BP_LABEL_STRING;
        err = set_text(&record->labels[k], &fields[label_columns[k]], record->names[k]);
    }
    for (int k = 0; k < record->value_count && err == BP_OK; k++)
        err = set_value(&record->values[k], &fields[value_columns[k]], record->value_names[k]);
    if (err == BP_OK && record->id_column >= 0)
        err = set_text(&record->id, &fields[record->id_column], "id");
    record->text = record->joined.data;
    record->text_bytes = record->joined.bytes;
    bp_free(fields);
    return err;
}

/* ---- words and tags ---- */

static bool is_gap(char c)
{
    return c == ' ' || c == '\t';
}

bp_err bp_conll_add(bp_text_record *record, const char *line, size_t bytes)
{
    size_t word = 0, tag;
    char *copy = NULL;
    bp_err err;

    if (memchr(line, '\r', bytes))
        return BP_FAIL(BP_ERR_FORMAT, "conll.carriage_return",
                       "'%.*s' has a carriage return, which ends lines only before a newline",
                       (int)(bytes < 80 ? bytes : 80), line);
    while (bytes > 0 && is_gap(line[bytes - 1]))
        bytes--;
    for (tag = bytes; tag > 0 && !is_gap(line[tag - 1]);)
        tag--;
    while (word < bytes && !is_gap(line[word]))
        word++;
    if (record->no_tags) {
        tag = bytes;
        if (word == 0)
            return BP_FAIL(BP_ERR_FORMAT, "conll.no_word",
                           "'%.*s' begins with white space, and not with a word",
                           (int)(bytes < 80 ? bytes : 80), line);
    } else if (word == bytes || word == 0) {
        return BP_FAIL(BP_ERR_FORMAT, "conll.no_tag",
                       "'%.*s' is not a word followed by a tag; for words that are to be tagged, "
                       "give --no-tags",
                       (int)(bytes < 80 ? bytes : 80), line);
    }
    err = set_text(&copy, &(field){line + tag, bytes - tag}, "tag");
    if (err == BP_OK) {
        if (record->joined.bytes > 0)
            bp_buffer_add(&record->joined, " ", 1);
        bp_buffer_add(&record->joined, line, word);
        bp_buffer_add(&record->tags, copy, strlen(copy) + 1);
    }
    bp_free(copy);
    return err;
}

/* ---- pairs ---- */

bp_err bp_pair_join(bp_text_record *record, const char *const text[2], const size_t bytes[2])
{
    record->joined.bytes = 0;
    for (int k = 0; k < 2; k++) {
        bp_text_counts counts;

        bp_text_count(&counts, text[k], bytes[k]);
        if (counts.words == 0)
            return BP_FAIL(BP_ERR_FORMAT, "pairs.empty_side", "the %s of a pair is empty",
                           k == 0 ? "source" : "target");
        record->starts[k] = record->joined.bytes;
        bp_buffer_add(&record->joined, text[k], bytes[k]);
    }
    record->text = record->joined.data;
    record->text_bytes = record->joined.bytes;
    return BP_OK;
}
