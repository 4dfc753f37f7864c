/* Columns of documents: classes, numbers, tags; read once for the examples of tasks. */
#include "data/document_columns.h"

#include "base/buffer.h"
#include "base/config/decimal.h"
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/sort.h"
#include "io/corpus/corpus_writer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- one column ---- */

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

static bool has_columns(const bp_corpus_file *file, bool numbers)
{
    const bp_corpus_info *info = bp_corpus_file_info(file);

    return info->labels + (numbers ? info->values : 0) > 0;
}

/* Names of labels (of values too), with commas. */
static bp_err list_names(bp_buffer *out, bp_corpus_file *file, bool labels, bool values)
{
    const bp_corpus_info *info = bp_corpus_file_info(file);
    bp_err err = BP_OK;

    for (int c = labels ? 0 : info->labels;
         c < info->labels + (values ? info->values : 0) && err == BP_OK; c++) {
        const char *name;

        err = name_of(&name, file, c);
        if (err == BP_OK)
            bp_buffer_printf(out, "%s%s", out->bytes > 0 ? ", " : "", name);
    }
    return err;
}

static bp_err fail_column(bp_corpus_file *file, bool is_label, const char *name)
{
    bp_buffer have = {0};
    bp_err err = list_names(&have, file, true, !is_label); /* a label's texts may be numbers */

    if (err == BP_OK)
        err = BP_FAIL(BP_ERR_FORMAT, "corpus.no_column",
                      "the corpus has no %s '%s' (it has: %s): at %s; make it with "
                      "bagpipe-data corpus --%s %s",
                      is_label ? "label" : "value", name, have.bytes > 0 ? have.data : "none",
                      bp_corpus_file_path(file), is_label ? "label" : "value", name);
    bp_buffer_clear(&have);
    return err;
}

/* label->name is NULL if there is no such label. */
static bp_err look_for_label(bp_corpus_file *file, const char *name, bp_corpus_label *label)
{
    bp_err err = BP_OK;

    for (int k = 0; k < bp_corpus_file_info(file)->labels && err == BP_OK; k++) {
        err = bp_corpus_file_label(file, k, label);
        if (err == BP_OK && strcmp(label->name, name) == 0)
            return BP_OK;
    }
    label->name = NULL;
    return err;
}

static bp_err find_label(bp_corpus_file *file, const char *name, bp_corpus_label *label)
{
    bp_err err = look_for_label(file, name, label);

    return err == BP_OK && !label->name ? fail_column(file, true, name) : err;
}

static bp_err look_for_value(bp_corpus_file *file, const char *name, bp_corpus_value *value)
{
    bp_err err = BP_OK;

    for (int k = 0; k < bp_corpus_file_info(file)->values && err == BP_OK; k++) {
        err = bp_corpus_file_value(file, k, value);
        if (err == BP_OK && strcmp(value->name, name) == 0)
            return BP_OK;
    }
    value->name = NULL;
    return err;
}

static bp_err find_tags(bp_corpus_file *file, bp_corpus_label *tags)
{
    if (bp_corpus_file_info(file)->has_tags)
        return bp_corpus_file_tags(file, tags);
    return BP_FAIL(BP_ERR_FORMAT, "corpus.no_tags",
                   "the corpus has no tags of words: at %s; make it with bagpipe-data corpus "
                   "--format conll (with --no-tags of words that are to be tagged)",
                   bp_corpus_file_path(file));
}

/* The first file with a matching column, or NULL. */
static bp_corpus_file *find_columns(const bp_corpus *corpus, bool numbers)
{
    for (int64_t k = 0; k < bp_corpus_files(corpus); k++) {
        bp_corpus_file *file = bp_corpus_file_at(corpus, k);

        if (has_columns(file, numbers))
            return file;
    }
    return NULL;
}

bool bp_corpus_has_columns(const bp_corpus *corpus, bool numbers)
{
    return find_columns(corpus, numbers) != NULL;
}

bp_err bp_corpus_column(char **out, const bp_corpus *corpus, const char *name, bool numbers)
{
    bp_corpus_file *file = find_columns(corpus, numbers);
    const bp_corpus_info *info;
    bp_buffer names = {0};
    bp_err err = BP_OK;

    *out = NULL;
    if (name) {
        *out = bp_strdup(name);
        return BP_OK;
    }
    if (!file)
        return BP_FAIL(BP_ERR_FORMAT, "task.no_label",
                       "the corpus has no labels: at %s; make it with bagpipe-data corpus "
                       "--label NAME",
                       bp_corpus_file_path(bp_corpus_file_at(corpus, 0)));
    info = bp_corpus_file_info(file);
    if (numbers && info->values == 1) { /* the one column of numbers, whatever labels there are */
        bp_corpus_value value;

        err = bp_corpus_file_value(file, 0, &value);
        if (err == BP_OK)
            *out = bp_strdup(value.name);
        return err;
    }
    err = list_names(&names, file, true, numbers);
    if (err == BP_OK && info->labels + (numbers ? info->values : 0) > 1)
        err =
            BP_FAIL(BP_ERR_CONFIG, "task.several_labels",
                    "the corpus has several labels, %s: at task.label; set it to one", names.data);
    if (err == BP_OK)
        *out = bp_strdup(names.data);
    bp_buffer_clear(&names);
    return err;
}

/* ---- classes and tags ---- */

static void add_names(json_t *known, const bp_corpus_label *column)
{
    for (int64_t v = 0; v < column->value_count; v++)
        if (column->values[v][0] != '\0')
            (void)json_object_set_new(known, column->values[v], json_true());
}

/* The members of `known`, in order. */
static void take_names(const json_t *known, char ***names, int64_t *count)
{
    const char *name;
    json_t *value;

    *count = 0;
    *names = bp_alloc("data.classes", (int64_t)json_object_size(known), sizeof **names);
    json_object_foreach((json_t *)known, name, value)
    {
        (*names)[(*count)++] = bp_strdup(name);
    }
    qsort(*names, (size_t)*count, sizeof **names, bp_by_text);
}

/* Values of a label; label NULL: of tags. */
static bp_err find_names(const bp_corpus *corpus, const char *label, char ***names, int64_t *count)
{
    json_t *known = json_object();
    bp_err err = BP_OK;

    *names = NULL;
    *count = 0;
    for (int64_t k = 0; k < bp_corpus_files(corpus) && err == BP_OK; k++) {
        bp_corpus_file *file = bp_corpus_file_at(corpus, k);
        bp_corpus_label column = {0};

        err = label ? find_label(file, label, &column) : find_tags(file, &column);
        if (err == BP_OK)
            add_names(known, &column);
    }
    if (err == BP_OK)
        take_names(known, names, count);
    json_decref(known);
    return err;
}

bp_err bp_corpus_classes(const bp_corpus *corpus, const char *name, char ***names, int64_t *count)
{
    return find_names(corpus, name, names, count);
}

bp_err bp_corpus_tags(const bp_corpus *corpus, char ***names, int64_t *count)
{
    return find_names(corpus, NULL, names, count);
}

static bp_err find_spans(bp_corpus_file *file, const int64_t **spans, const char **texts)
{
    if (bp_corpus_file_info(file)->has_spans && bp_corpus_file_info(file)->has_segments)
        return bp_corpus_file_spans(file, spans, texts);
    return BP_FAIL(
        BP_ERR_FORMAT, "corpus.no_spans",
        "the corpus has no answers to questions: at %s; make it with bagpipe-data corpus "
        "--format squad",
        bp_corpus_file_path(file));
}

bp_err bp_corpus_has_unanswered(bool *unanswered, const bp_corpus *corpus)
{
    bp_err err = BP_OK;

    *unanswered = false;
    for (int64_t k = 0; k < bp_corpus_files(corpus) && err == BP_OK; k++) {
        bp_corpus_file *file = bp_corpus_file_at(corpus, k);
        const int64_t *spans = NULL;
        const char *texts;

        err = find_spans(file, &spans, &texts);
        for (int64_t d = 0; d < bp_corpus_file_info(file)->documents && err == BP_OK; d++)
            *unanswered = *unanswered || spans[d * BP_CORPUS_SPAN + BP_SPAN_END] == 0;
    }
    return err;
}

bp_err bp_corpus_answers(const bp_corpus *corpus, int64_t document, const char **context,
                         const char **answers)
{
    const int64_t *spans;
    const char *texts;
    int64_t k = 0;
    bp_err err;

    for (; document >= bp_corpus_file_info(bp_corpus_file_at(corpus, k))->documents; k++)
        document -= bp_corpus_file_info(bp_corpus_file_at(corpus, k))->documents;
    err = find_spans(bp_corpus_file_at(corpus, k), &spans, &texts);
    if (err != BP_OK)
        return err;
    *context = texts + spans[document * BP_CORPUS_SPAN + BP_SPAN_CONTEXT];
    *answers = texts + spans[document * BP_CORPUS_SPAN + BP_SPAN_ANSWERS];
    return BP_OK;
}

bp_err bp_corpus_has_pairs(bool *pairs, const bp_corpus *corpus)
{
    bp_err err = BP_OK;

    *pairs = true;
    for (int64_t k = 0; k < bp_corpus_files(corpus) && *pairs && err == BP_OK; k++) {
        bp_corpus_file *file = bp_corpus_file_at(corpus, k);
        const bp_corpus_info *info = bp_corpus_file_info(file);
        const int64_t *first, *begins;

        *pairs = info->has_segments && info->segments == 2 * info->documents;
        if (*pairs)
            err = bp_corpus_file_segments(file, &first, &begins);
        for (int64_t d = 0; d < info->documents && err == BP_OK && *pairs; d++)
            *pairs = first[d + 1] - first[d] == 2;
    }
    return err;
}

/* ---- the columns of a file ---- */

/* Maps codes to names; -1 for names that are not listed. */
static int32_t *number_codes(const bp_corpus_label *column, const char *const *names, int64_t count)
{
    int32_t *of = bp_alloc("data.classes", column->value_count, sizeof *of);
    json_t *numbers = json_object();

    for (int64_t k = 0; k < count; k++)
        (void)json_object_set_new(numbers, names[k], json_integer((json_int_t)k));
    for (int64_t v = 0; v < column->value_count; v++) {
        const json_t *number = json_object_get(numbers, column->values[v]);

        of[v] = number ? (int32_t)json_integer_value(number) : -1;
    }
    json_decref(numbers);
    return of;
}

#define NAMES_SHOWN 10 /* of those that training knew */

/* Error: document d has a value that is not in names[count]; d < 0: a tag that no word has. */
static bp_err fail_unknown(bp_corpus_file *file, int64_t d, const char *name,
                           const bp_document_columns *asked)
{
    const char *const *names = asked->tags ? asked->tags : asked->classes;
    int64_t count = asked->tags ? asked->tag_count : asked->class_count;
    const char *path = bp_corpus_file_path(file);
    char id[80];
    bp_buffer in = {0}, known = {0};
    bp_err err = d >= 0 ? bp_corpus_file_doc_id(file, d, id, sizeof id) : BP_OK;

    if (err == BP_OK && d >= 0 && id[0])
        bp_buffer_printf(&in, " (%s)", id);
    for (int64_t k = 0; k < count && k < NAMES_SHOWN; k++)
        bp_buffer_printf(&known, "%s%.40s", k > 0 ? ", " : "", names[k]);
    if (count > NAMES_SHOWN)
        bp_buffer_printf(&known, " (and %" PRId64 " more)", count - NAMES_SHOWN);
    if (err == BP_OK && d < 0)
        err = BP_FAIL(BP_ERR_FORMAT, "task.unknown_tag",
                      "the list of tags has '%.60s', which no word has, but training knew: %s: at "
                      "%s; make the corpus anew",
                      name, known.data ? known.data : "none", path);
    else if (err == BP_OK && asked->tags)
        err = BP_FAIL(BP_ERR_FORMAT, "task.unknown_tag",
                      "document %" PRId64 "%s has the tag '%.60s', but training knew: %s: at %s; "
                      "leave the document out, or fine-tune with task.labels",
                      d, in.data ? in.data : "", name, known.data ? known.data : "none", path);
    else if (err == BP_OK)
        err = BP_FAIL(BP_ERR_FORMAT, "task.unknown_class",
                      "document %" PRId64 "%s has the class '%.60s', but training knew: %s: at %s; "
                      "leave the document out%s, or fine-tune with task.labels",
                      d, in.data ? in.data : "", name, known.data ? known.data : "none", path,
                      asked->unlabelled ? ", empty its label" : "");
    bp_buffer_clear(&in);
    bp_buffer_clear(&known);
    return err;
}

/* May the file lack the requested column? With only `unlabelled`, not if it has other columns. */
static bool may_lack(const bp_corpus_file *file, bool numbers, const bp_document_columns *asked)
{
    return asked->may_lack_label || (asked->unlabelled && !has_columns(file, numbers));
}

/* Is it the empty label, where labels may be missing? */
static bool is_none(const char *text, const bp_document_columns *asked)
{
    return asked->unlabelled && text[0] == '\0';
}

static bp_err load_label(bp_file_columns *out, bp_corpus_file *file,
                         const bp_document_columns *asked)
{
    bp_corpus_label label = {0};
    bp_err err = may_lack(file, false, asked) ? look_for_label(file, asked->label, &label)
                                              : find_label(file, asked->label, &label);

    if (err != BP_OK || !label.name)
        return err;
    out->codes = label.codes;
    out->class_of = number_codes(&label, asked->classes, asked->class_count);
    for (int64_t d = 0; d < bp_corpus_file_info(file)->documents && asked->all_known; d++)
        if (out->class_of[label.codes[d]] < 0 && !is_none(label.values[label.codes[d]], asked))
            return fail_unknown(file, d, label.values[label.codes[d]], asked);
    return BP_OK;
}

/* The first document with a word of this tag, or -1. */
static int64_t first_of_tag(const bp_file_columns *columns, const bp_corpus_file *file,
                            uint32_t code)
{
    for (int64_t d = 0; d < bp_corpus_file_info(file)->documents; d++)
        for (int64_t t = columns->doc_start[d]; t < columns->doc_start[d + 1]; t++)
            if (columns->tags[t] == code)
                return d;
    return -1;
}

static bp_err load_tags(bp_file_columns *out, bp_corpus_file *file,
                        const bp_document_columns *asked)
{
    bp_corpus_label tags;
    bp_err err = find_tags(file, &tags);

    if (err != BP_OK)
        return err;
    out->tags = tags.codes;
    out->tag_names = tags.value_count;
    out->tag_of = number_codes(&tags, asked->tags, asked->tag_count);
    for (int64_t v = 0; v < tags.value_count; v++)
        if (out->tag_of[v] < 0 && asked->all_known && !is_none(tags.values[v], asked))
            return fail_unknown(file, first_of_tag(out, file, (uint32_t)v), tags.values[v], asked);
        else if (out->tag_of[v] < 0)
            out->tag_of[v] = -2; /* a word all the same */
    return BP_OK;
}

static bp_err number_of(float *out, const char *text, const char *path)
{
    return bp_decimal_float(out, text, strlen(text))
               ? BP_OK
               : BP_FAIL(
                     BP_ERR_FORMAT, "task.bad_value",
                     "'%.60s' is not a finite number, as a regression needs it: at %s; leave its "
                     "documents out",
                     text, path);
}

/* A column of numbers, or the numbers that a label's texts are. */
static bp_err load_values(bp_file_columns *out, bp_corpus_file *file,
                          const bp_document_columns *asked)
{
    const char *name = asked->value;
    int64_t documents = bp_corpus_file_info(file)->documents;
    bp_corpus_value value = {0};
    bp_corpus_label label = {0};
    bp_err err = look_for_value(file, name, &value);

    out->values = value.values;
    if (err != BP_OK || value.name)
        return err;
    err = look_for_label(file, name, &label);
    if (err == BP_OK && !label.name && !may_lack(file, true, asked))
        err = fail_column(file, false, name);
    if (err != BP_OK || !label.name)
        return err;
    out->values = out->parsed = bp_alloc("data.classes", documents, sizeof *out->parsed);
    for (int64_t d = 0; d < documents && err == BP_OK; d++)
        if (is_none(label.values[label.codes[d]], asked))
            out->parsed[d] = NAN;
        else
            err =
                number_of(&out->parsed[d], label.values[label.codes[d]], bp_corpus_file_path(file));
    return err;
}

static bp_err load_spans(bp_file_columns *out, bp_corpus_file *file,
                         const bp_document_columns *asked)
{
    const char *texts;
    bp_err err = find_spans(file, &out->spans, &texts);

    for (int64_t d = 0; d < bp_corpus_file_info(file)->documents && err == BP_OK; d++)
        if (out->segments[d + 1] - out->segments[d] != 2)
            err = BP_FAIL(BP_ERR_FORMAT, "corpus.no_spans",
                          "document %" PRId64
                          " is not a question with its context: at %s; make the corpus with "
                          "bagpipe-data corpus --format squad",
                          d, bp_corpus_file_path(file));
        else if (!asked->unlabelled &&
                 strcmp(texts + out->spans[d * BP_CORPUS_SPAN + BP_SPAN_ANSWERS], "null") == 0)
            err =
                BP_FAIL(BP_ERR_FORMAT, "corpus.no_answers",
                        "the answers to question %" PRId64
                        " are not known: at %s; give \"answers\" to each question of SQuAD's JSON",
                        d, bp_corpus_file_path(file));
    return err;
}

bp_err bp_file_columns_load(bp_file_columns *out, bp_corpus_file *file,
                            const bp_document_columns *asked)
{
    bp_err err = bp_corpus_file_doc_start(file, &out->doc_start);

    if (err == BP_OK)
        err = bp_corpus_file_segments(file, &out->segments, &out->segment_start);
    if (err == BP_OK && asked->label)
        err = load_label(out, file, asked);
    if (err == BP_OK && asked->tags)
        err = load_tags(out, file, asked);
    if (err == BP_OK && asked->spans)
        err = load_spans(out, file, asked);
    if (err == BP_OK && asked->value)
        err = load_values(out, file, asked);
    return err;
}

void bp_file_columns_clear(bp_file_columns *columns)
{
    bp_free(columns->class_of);
    bp_free(columns->tag_of);
    bp_free(columns->parsed);
    *columns = (bp_file_columns){0};
}
