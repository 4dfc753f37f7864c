/* The documents of a task's corpora. */
#include "data/task_texts.h"

#include "base/buffer.h"
#include "base/mem.h"
#include "tensor/batch.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const bp_corpus_info *info_of(const bp_corpus *corpus, int64_t file)
{
    return bp_corpus_file_info(bp_corpus_file_at(corpus, file));
}

/* ---- columns ---- */

static bp_err find_column(bp_corpus_label *out, const bp_corpus *corpus, int64_t k,
                          const char *name)
{
    bp_corpus_file *file = bp_corpus_file_at(corpus, k);
    bp_err err = BP_OK;

    for (int c = 0; c < info_of(corpus, k)->labels && err == BP_OK; c++) {
        err = bp_corpus_file_label(file, c, out);
        if (err == BP_OK && strcmp(out->name, name) == 0)
            return BP_OK;
    }
    return err != BP_OK ? err
                        : BP_FAIL(BP_ERR_FORMAT, "task.no_label",
                                  "the corpus has no label '%s': at %s; make it with "
                                  "bagpipe-data corpus --label %s, or set task.label",
                                  name, bp_corpus_file_path(file), name);
}

static bp_err has_column(bool *there, bp_corpus_file *file, const char *name)
{
    bp_corpus_label one;
    bp_err err = BP_OK;

    *there = false;
    for (int c = 0; c < bp_corpus_file_info(file)->labels && err == BP_OK && !*there; c++) {
        err = bp_corpus_file_label(file, c, &one);
        *there = err == BP_OK && strcmp(one.name, name) == 0;
    }
    return err;
}

/* Column `name` of numbers; *values NULL: there is none. */
static bp_err find_values(const float **values, bp_corpus_file *file, const char *name)
{
    bp_corpus_value one;
    bp_err err = BP_OK;

    *values = NULL;
    for (int c = 0; c < bp_corpus_file_info(file)->values && err == BP_OK; c++) {
        err = bp_corpus_file_value(file, c, &one);
        if (err == BP_OK && strcmp(one.name, name) == 0)
            *values = one.values;
    }
    return err;
}

/* Columns of labels, then those of numbers. */
static bp_err name_of(const char **name, bp_corpus_file *file, int c)
{
    int labels = bp_corpus_file_info(file)->labels;
    bp_corpus_label label = {0};
    bp_corpus_value value = {0};
    bp_err err = c < labels ? bp_corpus_file_label(file, c, &label)
                            : bp_corpus_file_value(file, c - labels, &value);

    *name = c < labels ? label.name : value.name;
    return err;
}

bp_err bp_task_label_column(char **out, const bp_corpus *corpus, const char *name, bool numbers)
{
    bp_buffer names = {0};
    bp_err err = BP_OK;
    bool given = name != NULL;
    int columns = info_of(corpus, 0)->labels + (numbers ? info_of(corpus, 0)->values : 0);

    *out = NULL;
    for (int c = 0; c < columns && !given && err == BP_OK; c++) {
        err = name_of(&name, bp_corpus_file_at(corpus, 0), c);
        if (err == BP_OK)
            bp_buffer_printf(&names, "%s%s", c > 0 ? ", " : "", name);
    }
    if (err == BP_OK && !given && columns != 1)
        err = columns == 0
                  ? BP_FAIL(BP_ERR_FORMAT, "task.no_label",
                            "the corpus has no labels: at %s; make it with bagpipe-data corpus "
                            "--label NAME",
                            bp_corpus_file_path(bp_corpus_file_at(corpus, 0)))
                  : BP_FAIL(BP_ERR_CONFIG, "task.several_labels",
                            "the corpus has several labels, %s: at task.label; set it to one",
                            names.data);
    for (int64_t k = 0; k < bp_corpus_files(corpus) && err == BP_OK; k++) {
        bp_corpus_label found;
        const float *values = NULL;

        if (numbers)
            err = find_values(&values, bp_corpus_file_at(corpus, k), name);
        if (err == BP_OK && !values)
            err = find_column(&found, corpus, k, name);
    }
    if (err == BP_OK)
        *out = bp_strdup(name);
    bp_buffer_clear(&names);
    return err;
}

/* ---- classes ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void add_names(const char **names, int64_t *count, const bp_corpus_label *column,
                      int64_t documents)
{
    bool *occurs = bp_alloc("data.classes", column->value_count, sizeof *occurs);

    for (int64_t d = 0; d < documents; d++)
        occurs[column->codes[d]] = true;
    for (int64_t v = 0; v < column->value_count; v++)
        if (occurs[v])
            names[(*count)++] = column->values[v];
    bp_free(occurs);
}

bp_err bp_task_classes(json_t **out, const bp_corpus *corpus, const char *name)
{
    const char **names = NULL;
    int64_t count = 0, room = 0;
    bp_corpus_label column;
    bp_err err = BP_OK;

    *out = json_array();
    for (int64_t k = 0; k < bp_corpus_files(corpus) && err == BP_OK; k++) {
        err = find_column(&column, corpus, k, name);
        if (err != BP_OK)
            break;
        room += column.value_count;
        names = bp_realloc("data.classes", names, room, sizeof *names);
        add_names(names, &count, &column, info_of(corpus, k)->documents);
    }
    if (names)
        qsort(names, (size_t)count, sizeof *names, by_name);
    for (int64_t k = 0; k < count; k++)
        if (k == 0 || strcmp(names[k], names[k - 1]) != 0)
            (void)json_array_append_new(*out, json_string(names[k]));
    if (err == BP_OK && json_array_size(*out) < 2)
        err = BP_FAIL(BP_ERR_FORMAT, "task.one_class",
                      "all documents have one class, '%s': at %s; there is nothing to learn, give "
                      "another task.label or corpus",
                      count > 0 ? names[0] : "", bp_corpus_file_path(bp_corpus_file_at(corpus, 0)));
    bp_free(names);
    if (err != BP_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return err;
}

int64_t bp_task_rarest(const bp_task_texts *texts, int64_t classes, int64_t *rarest)
{
    int64_t *counts = bp_alloc("data.classes", classes, sizeof *counts), least;

    for (int64_t d = 0; d < texts->documents; d++)
        counts[texts->target[d]]++;
    *rarest = 0;
    for (int64_t k = 1; k < classes; k++)
        if (counts[k] < counts[*rarest])
            *rarest = k;
    least = counts[*rarest];
    bp_free(counts);
    return least;
}

/* The numbers of classes by their names, which may be in any order. New reference. */
static json_t *numbers_of(const json_t *classes)
{
    json_t *numbers = json_object();

    for (size_t k = 0; k < json_array_size(classes); k++)
        (void)json_object_set_new(numbers, json_string_value(json_array_get(classes, k)),
                                  json_integer((json_int_t)k));
    return numbers;
}

static bp_err class_of(int32_t *out, const char *name, const json_t *numbers, const char *path)
{
    const json_t *number = json_object_get(numbers, name);

    *out = (int32_t)json_integer_value(number);
    return number ? BP_OK
                  : BP_FAIL(BP_ERR_FORMAT, "task.unknown_class",
                            "the class '%.60s' is none of the %zu that the model was trained with: "
                            "at %s; leave its documents out",
                            name, json_object_size(numbers), path);
}

static bp_err value_of(int32_t *out, const char *text, const char *path)
{
    char *end;
    float value = strtof(text, &end);

    if (end == text || *end != '\0' || !isfinite(value))
        return BP_FAIL(BP_ERR_FORMAT, "task.bad_value",
                       "'%.60s' is no finite number, as a regression needs it: at %s; leave its "
                       "documents out",
                       text, path);
    *out = bp_target_of_value(value);
    return BP_OK;
}

/* Targets of the column's values, which documents share. */
static bp_err read_targets(int32_t *target, const bp_corpus_label *column, int64_t documents,
                           const json_t *classes, bool open, const char *path)
{
    int32_t *of_value = bp_alloc("data.classes", column->value_count, sizeof *of_value);
    bool *known = bp_alloc("data.classes", column->value_count, sizeof *known);
    json_t *numbers = classes ? numbers_of(classes) : NULL;
    bp_err err = BP_OK;

    for (int64_t d = 0; d < documents && err == BP_OK; d++) {
        uint32_t code = column->codes[d];

        if (open && numbers && !json_object_get(numbers, column->values[code]))
            of_value[code] = -1;
        else if (!known[code])
            err = numbers ? class_of(&of_value[code], column->values[code], numbers, path)
                          : value_of(&of_value[code], column->values[code], path);
        known[code] = true;
        target[d] = of_value[code];
    }
    json_decref(numbers);
    bp_free(known);
    bp_free(of_value);
    return err;
}

/* ---- texts ---- */

static bp_err reserve(bp_task_texts *out, const bp_corpus *corpus)
{
    int64_t documents = bp_corpus_documents(corpus);

    out->tokens = bp_try_alloc("data.texts", bp_corpus_tokens(corpus), sizeof *out->tokens);
    out->start = bp_try_alloc("data.texts", documents + 1, sizeof *out->start);
    out->second = bp_try_alloc("data.texts", documents, sizeof *out->second);
    out->target = bp_try_alloc("data.texts", documents, sizeof *out->target);
    return out->tokens && out->start && out->second && out->target
               ? BP_OK
               : bp_fail_memory("the texts of a task", bp_corpus_tokens(corpus),
                                sizeof *out->tokens);
}

/* Document d of a file, which lies behind those before it. */
static bp_err take_document(bp_task_texts *out, bp_corpus_file *file, int64_t d, bool pairs)
{
    const bp_corpus_info *info = bp_corpus_file_info(file);
    const int64_t *doc_start;
    int64_t at = out->start[out->documents], count;
    bp_err err = bp_corpus_file_doc_start(file, &doc_start);

    if (err != BP_OK)
        return err;
    count = doc_start[d + 1] - doc_start[d];
    err = bp_corpus_file_read(file, doc_start[d], count, out->tokens + at);
    if (err == BP_OK && count > 0 && info->eod_id >= 0 &&
        out->tokens[at + count - 1] == info->eod_id)
        count--;
    if (err == BP_OK && count == 0)
        err = BP_FAIL(BP_ERR_FORMAT, "task.empty_document",
                      "document %" PRId64 " has no token: at %s; leave it out", d,
                      bp_corpus_file_path(file));
    out->second[out->documents] = out->start[out->documents + 1] = at + count;
    if (err == BP_OK && pairs) {
        const int64_t *first, *begins;

        err = bp_corpus_file_segments(file, &first, &begins);
        if (err == BP_OK)
            out->second[out->documents] = at + begins[first[d] + 1] - doc_start[d];
    }
    out->documents++;
    return err;
}

/* Has each document two segments? Others are sentences, of one text. */
static bp_err find_pairs(bool *pairs, bp_corpus_file *file)
{
    const bp_corpus_info *info = bp_corpus_file_info(file);
    const int64_t *first, *begins;
    bp_err err = BP_OK;

    *pairs = info->has_segments && info->segments == 2 * info->documents;
    if (*pairs)
        err = bp_corpus_file_segments(file, &first, &begins);
    for (int64_t d = 0; d < info->documents && err == BP_OK && *pairs; d++)
        *pairs = first[d + 1] - first[d] == 2;
    return err;
}

/* The column of a file: its numbers, or what its labels stand for. */
static bp_err take_targets(bp_task_texts *out, const bp_corpus *corpus, int64_t k, const char *name,
                           const json_t *classes, bool open)
{
    bp_corpus_file *file = bp_corpus_file_at(corpus, k);
    int32_t *target = out->target + out->documents;
    const float *values = NULL;
    bp_corpus_label column;
    bool there = true;
    bp_err err = classes ? BP_OK : find_values(&values, file, name);

    if (err == BP_OK && open && classes)
        err = has_column(&there, file, name);
    for (int64_t d = 0; !there && d < info_of(corpus, k)->documents; d++)
        target[d] = -1;
    for (int64_t d = 0; values && d < info_of(corpus, k)->documents; d++)
        target[d] = bp_target_of_value(values[d]);
    if (err != BP_OK || values || !there)
        return err;
    err = find_column(&column, corpus, k, name);
    return err == BP_OK ? read_targets(target, &column, info_of(corpus, k)->documents, classes,
                                       open, bp_corpus_file_path(file))
                        : err;
}

bp_err bp_task_texts_read(bp_task_texts *out, const bp_corpus *corpus, const char *name,
                          const json_t *classes, bool open)
{
    bp_err err;

    *out = (bp_task_texts){0};
    err = reserve(out, corpus);
    for (int64_t k = 0; k < bp_corpus_files(corpus) && err == BP_OK; k++) {
        bp_corpus_file *file = bp_corpus_file_at(corpus, k);

        bool pairs = false;

        err = take_targets(out, corpus, k, name, classes, open);
        if (err == BP_OK)
            err = find_pairs(&pairs, file);
        for (int64_t d = 0; d < info_of(corpus, k)->documents && err == BP_OK; d++)
            err = take_document(out, file, d, pairs);
    }
    return err;
}

void bp_task_texts_clear(bp_task_texts *texts)
{
    bp_free(texts->tokens);
    bp_free(texts->start);
    bp_free(texts->second);
    bp_free(texts->target);
    *texts = (bp_task_texts){0};
}
