/* Reads files of rows: JSON Lines, CSV (RFC 4180, without a header), labels. */
#include "questions/question_files.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "text/documents/text_source.h"
#include "text/unicode/characters.h"

#include <inttypes.h>
#include <string.h>

#define MOST_BYTES ((size_t)1 << 30)

typedef struct reader {
    question_list *list;
    const question_task *task;
    const char *part, *path;
    int64_t first;     /* of the list's questions, in this file */
    const char *label; /* the next line of labels; NULL: there is no file of them */
} reader;

static bp_err read_all(bp_buffer *out, const char *path)
{
    static char block[1 << 16];
    bp_text_source *source = NULL;
    size_t bytes = sizeof block;
    bp_err err = bp_text_source_open(&source, path);

    while (err == BP_OK && bytes == sizeof block && out->bytes <= MOST_BYTES) {
        err = bp_text_source_read(source, block, sizeof block, &bytes);
        if (err == BP_OK)
            bp_buffer_add(out, block, bytes);
    }
    bp_text_source_close(&source);
    if (err == BP_OK && out->bytes > MOST_BYTES)
        err = BP_FAIL(BP_ERR_FORMAT, "questions.too_long",
                      "it has more than 1 GiB: at %s; give its parts", path);
    return err;
}

static bp_err at_line(const reader *self, bp_err err, int64_t line)
{
    if (err != BP_ERR_FORMAT)
        return err;
    return bp_err_wrap(err, "%s: at %s:%" PRId64 "; correct the line", bp_err_text(),
                       bp_text_source_shown(self->path), line);
}

/* ---- labels ---- */

/* X-labels.lst of X.jsonl. */
static bp_err read_labels(reader *self, bp_buffer *out)
{
    size_t stem = strcspn(bp_path_base(self->path), ".");
    char *path =
        bp_sprintf("%.*s-labels.lst", (int)((size_t)(bp_path_base(self->path) - self->path) + stem),
                   self->path);
    bp_err err = BP_OK;

    if (strcmp(self->path, BP_TEXT_STDIN) != 0 && bp_path_exists(path)) {
        err = read_all(out, path);
        self->label = out->bytes ? out->data : "";
    }
    bp_free(path);
    return err;
}

static bp_err take_label(reader *self, json_t *row)
{
    size_t bytes;

    if (!self->label || !json_is_object(row))
        return BP_OK;
    bytes = strcspn(self->label, "\r\n");
    if (bytes == 0)
        return BP_FAIL(BP_ERR_FORMAT, "questions.no_label",
                       "the file of labels beside it has fewer lines");
    question_set(row, "label", self->label, bytes);
    self->label += bytes;
    self->label += strspn(self->label, "\r\n");
    return BP_OK;
}

/* ---- rows ---- */

static bp_err add_row(reader *self, json_t *row)
{
    question_list *list = self->list;
    bp_err err = take_label(self, row);

    if (err != BP_OK) {
        json_decref(row);
        return err;
    }
    list->all =
        bp_grow("tool.questions", list->all, &list->capacity, list->count + 1, sizeof *list->all);
    list->count++;
    return question_make(&list->all[list->count - 1], self->task, self->part, row, self->path,
                         list->count - 1 - self->first);
}

static bp_err add_object(reader *self, const char *line, size_t bytes)
{
    json_error_t where;
    json_t *row = bp_json_loadb(line, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);

    if (row)
        return add_row(self, row);
    return BP_FAIL(BP_ERR_FORMAT, "json.invalid", "not valid JSON in UTF-8 (%s), column %d",
                   where.text, where.column);
}

static bp_err add_objects(reader *self, const char *at, const char *end)
{
    bp_err err = BP_OK;

    for (int64_t number = 1; at < end && err == BP_OK; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((newline ? newline : end) - at), used = length;

        while (used > 0 && strchr(" \t\r", at[used - 1]))
            used--;
        if (used > 0)
            err = at_line(self, add_object(self, at, used), number);
        at += length + 1;
    }
    return err;
}

/* ---- CSV ---- */

/* A cell, and what ends it: ',', '\n' or 0 at the end of the text. */
static bp_err read_cell(bp_buffer *cell, char *ended, const char **at, const char *end,
                        int64_t *lines)
{
    const char *p = *at;
    bool quoted = p < end && *p == '"', open = quoted;

    cell->bytes = 0;
    for (p += quoted; p < end && (open || (*p != ',' && *p != '\n')); p++) {
        *lines += *p == '\n';
        if (quoted && *p == '"') {
            open = open ? p + 1 < end && p[1] == '"' : false;
            p += open;
            if (!open)
                continue;
        }
        bp_buffer_add(cell, p, 1);
    }
    if (open)
        return BP_FAIL(BP_ERR_FORMAT, "questions.open_quote", "a quotation mark is not closed");
    *ended = p < end ? *p : '\0';
    *lines += *ended == '\n';
    cell->bytes -= *ended != ',' && p > *at && p[-1] == '\r';
    *at = p + (p < end);
    return BP_OK;
}

static bp_err read_record(json_t *row, const question_task *task, const char **at, const char *end,
                          int64_t *lines)
{
    bp_buffer cell = {0};
    char ended = ',';
    int count = 0;
    bp_err err = BP_OK;

    while (err == BP_OK && ended == ',') {
        err = read_cell(&cell, &ended, at, end, lines);
        if (err == BP_OK && !bp_text_is_utf8(cell.bytes ? cell.data : "", cell.bytes))
            err = BP_FAIL(BP_ERR_FORMAT, "questions.not_utf8", "it is not valid UTF-8");
        if (err == BP_OK && count < QUESTION_COLUMNS && task->columns[count])
            question_set(row, task->columns[count], cell.data, cell.bytes);
        count++;
    }
    bp_buffer_clear(&cell);
    if (err == BP_OK && count != QUESTION_COLUMNS)
        err = BP_FAIL(BP_ERR_FORMAT, "questions.bad_row", "it has %d cells, not %d", count,
                      QUESTION_COLUMNS);
    return err;
}

static bp_err add_records(reader *self, const char *at, const char *end)
{
    int64_t lines = 1;
    bp_err err = BP_OK;

    while (at < end && err == BP_OK) {
        int64_t line = lines;
        json_t *row;

        if (*at == '\n' || (*at == '\r' && at + 1 < end && at[1] == '\n')) {
            lines += *at++ == '\n';
            continue;
        }
        row = json_object();
        err = read_record(row, self->task, &at, end, &lines);
        if (err == BP_OK)
            err = add_row(self, row);
        else
            json_decref(row);
        err = at_line(self, err, line);
    }
    return err;
}

bp_err question_list_read(question_list *list, const question_task *task, const char *part,
                          const char *path)
{
    reader self = {.list = list, .task = task, .part = part, .path = path, .first = list->count};
    bp_buffer text = {0}, labels = {0};
    bp_err err = read_all(&text, path);

    if (err == BP_OK)
        err = read_labels(&self, &labels);
    if (err == BP_OK && text.bytes > 0) {
        const char *start = text.data + bp_mark_bytes(text.data, text.bytes);
        bool objects =
            !task->columns[0] || (*start == '{' && start[1 + strspn(start + 1, " \t")] == '"');

        err = (objects ? add_objects : add_records)(&self, start, text.data + text.bytes);
    }
    if (err == BP_OK && self.label && self.label[0] != '\0')
        err =
            BP_FAIL(BP_ERR_FORMAT, "questions.more_labels",
                    "the file of labels beside it has more lines: at %s; give the right one", path);
    if (err == BP_OK && list->count == self.first)
        err = BP_FAIL(BP_ERR_FORMAT, "questions.no_rows",
                      "there is no question: at %s; name a file of the task",
                      bp_text_source_shown(path));
    bp_buffer_clear(&text);
    bp_buffer_clear(&labels);
    return err;
}

void question_list_clear(question_list *list)
{
    for (int64_t k = 0; k < list->count; k++)
        question_clear(&list->all[k]);
    bp_free(list->all);
    *list = (question_list){0};
}
