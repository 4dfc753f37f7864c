/* Reads a question set, and encodes the model's inputs. Called by questions.c at the start. */
#include "infer/score/questions/set.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "text/tokenizer/continuation.h"

#include <inttypes.h>
#include <string.h>

#define MOST_BYTES   (INT64_C(1) << 30)
#define MOST_OPTIONS 1024

typedef struct reader {
    bp_question_set *set;
    const bp_questions_spec *spec;
    bp_encoder *encoder;
} reader;

/* ---- rows ---- */

/* A context begins a document of rows: later rows of it share their inputs. */
static void begin_document(reader *self, bool quiet)
{
    bp_candidates *rows = &self->set->rows;
    int64_t *capacity = &self->set->capacities[2], known = *capacity;

    rows->first =
        bp_grow("score.questions", rows->first, capacity, rows->documents + 2, sizeof *rows->first);
    rows->quiet =
        bp_grow("score.questions", rows->quiet, &known, rows->documents + 2, sizeof *rows->quiet);
    rows->first[rows->documents] = rows->first[rows->documents + 1] = rows->count;
    rows->quiet[rows->documents++] = quiet;
}

static int64_t characters_of(const char *text, size_t bytes)
{
    int64_t count = 0;

    for (size_t k = 0; k < bytes; k++)
        count += ((unsigned char)text[k] & 0xC0) != 0x80; /* not a continuation byte of UTF-8 */
    return count;
}

/* A row of the last document: the prefix and the context's ids, then the text's. */
static bp_err add_row(reader *self, const bp_context_text *context, const bp_ids *fed,
                      const json_t *text)
{
    bp_candidates *rows = &self->set->rows;
    const char *string = json_string_value(text);
    size_t bytes = json_string_length(text);
    bp_candidate_row row = {
        .document = rows->documents - 1, .first = rows->ids.count, .bytes = (int64_t)bytes};
    bp_err err = BP_OK;

    bp_ids_reserve(&rows->ids, fed->count);
    if (fed->count > 0)
        memcpy(rows->ids.data + rows->ids.count, fed->data, (size_t)fed->count * sizeof *fed->data);
    rows->ids.count += fed->count;
    if (bytes > 0 || context->kept < context->bytes)
        err = bp_continuation_encode(self->encoder, context, string, bytes, &rows->ids);
    if (err != BP_OK)
        return err;
    self->set->characters = bp_grow("score.questions", self->set->characters,
                                    &self->set->capacities[3], rows->count + 1, sizeof(int64_t));
    self->set->characters[rows->count] = characters_of(string, bytes);
    bool is_option = !rows->quiet[row.document],
         is_long = rows->ids.count - row.first > self->spec->context + 1;

    bp_candidates_add(rows, &row, fed->count, self->spec->context);
    self->set->options += is_option;
    self->set->cut += is_option && is_long && rows->rows[rows->count - 1].scored > 0;
    return BP_OK;
}

/* The inputs before a continuation: a prefix, unless the context has its own, and the ids of the
 * context. */
static bp_err encode_context(reader *self, bp_context_text *context, bp_ids *fed)
{
    const bp_candidates_prefix *prefix = &self->spec->prefix;
    bp_ids ids = {0};
    bp_err err = bp_context_text_encode(context, self->encoder, &ids);
    int64_t first = context->kept > 0 ? prefix->before : prefix->alone;

    if (ids.count > 0 && (prefix->bos == (int64_t)ids.data[0] || first == (int64_t)ids.data[0]))
        first = -1;
    fed->count = 0;
    bp_ids_reserve(fed, ids.count + 1);
    if (first >= 0)
        fed->data[fed->count++] = (uint32_t)first;
    if (ids.count > 0)
        memcpy(fed->data + fed->count, ids.data, (size_t)ids.count * sizeof *ids.data);
    fed->count += ids.count;
    bp_ids_clear(&ids);
    return err;
}

/* Rows of texts (a list, or one) after a context. */
static bp_err add_document(reader *self, const char *text, size_t bytes, const json_t *texts,
                           bool quiet)
{
    bp_context_text context = {.text = text, .bytes = bytes};
    bp_ids fed = {0};
    size_t count = json_is_array(texts) ? json_array_size(texts) : 1;
    bp_err err = encode_context(self, &context, &fed);

    begin_document(self, quiet);
    for (size_t k = 0; err == BP_OK && k < count; k++)
        err =
            add_row(self, &context, &fed, json_is_array(texts) ? json_array_get(texts, k) : texts);
    bp_ids_clear(&fed);
    return err;
}

/* The choices after the bare prefix, with the white space at the end of the context. */
static bp_err add_bare(reader *self, bp_question *question, const json_t *context,
                       const json_t *choices)
{
    bp_context_text end = {.text = json_string_value(context),
                           .bytes = json_string_length(context)};
    bp_ids unused = {0};
    bp_err err = bp_context_text_encode(&end, self->encoder, &unused);

    int64_t unscored = self->set->rows.unscored;

    bp_ids_clear(&unused);
    if (err != BP_OK || end.kept == 0) /* it is the bare prefix itself */
        return err;
    question->bare = self->set->rows.count;
    err = add_document(self, end.text + end.kept, end.bytes - end.kept, choices, true);
    self->set->rows.unscored = unscored; /* already counted as options */
    return err;
}

/* ---- a line ---- */

static bool are_texts(const json_t *list)
{
    bool texts =
        json_is_array(list) && json_array_size(list) > 0 && json_array_size(list) <= MOST_OPTIONS;

    for (size_t k = 0; texts && k < json_array_size(list); k++)
        texts = json_is_string(json_array_get(list, k));
    return texts;
}

/* The number of a task or a group. */
static int64_t name_of(bp_question_set *set, const char *name)
{
    /* files are in the order of their tasks: the last names first */
    for (int64_t k = set->names - 1; k >= 0; k--)
        if (strcmp(set->name[k], name) == 0)
            return k;
    set->name = bp_grow("score.questions", set->name, &set->capacities[1], set->names + 1,
                        sizeof *set->name);
    set->name[set->names] = bp_strdup(name);
    return set->names++;
}

static bp_err read_name(bp_question_set *set, const json_t *object, const char *key, int64_t *out)
{
    const json_t *value = json_object_get(object, key);

    *out = -1;
    if (!value || json_is_null(value))
        return BP_OK;
    if (!json_is_string(value) || json_string_length(value) == 0 ||
        json_string_length(value) > BP_QUESTION_NAME ||
        strlen(json_string_value(value)) != json_string_length(value))
        return BP_FAIL(BP_ERR_FORMAT, "questions.bad_name", "\"%s\" is not a name of 1 to %d bytes",
                       key, BP_QUESTION_NAME);
    *out = name_of(set, json_string_value(value));
    return BP_OK;
}

static bp_err read_answer(const json_t *object, bp_question *question)
{
    const json_t *value = json_object_get(object, "answer");

    question->answer = question->target ? 0 : -1;
    if (!value || json_is_null(value))
        return BP_OK;
    question->answer = json_is_integer(value) ? json_integer_value(value) : -1;
    if (question->answer >= 0 && question->answer < question->options)
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "questions.bad_answer",
                   "\"answer\" is not a number of an option, from 0 to %" PRId64,
                   question->options - 1);
}

/* Read the question: one context or several, choices or a target. */
typedef struct form {
    const json_t *context, *contexts, *choices, *target;
} form;

static bp_err read_form(form *out, const json_t *object)
{
    *out = (form){.context = json_object_get(object, "context"),
                  .contexts = json_object_get(object, "contexts"),
                  .choices = json_object_get(object, "choices"),
                  .target = json_object_get(object, "target")};
    if (json_object_get(object, "sentence_good"))
        return BP_FAIL(
            BP_ERR_FORMAT, "questions.of_blimp",
            "it is a pair of BLiMP as published, with \"sentence_good\": make a question "
            "set with bagpipe-data questions --task blimp");
    if (!out->context == !out->contexts)
        return BP_FAIL(BP_ERR_FORMAT, "questions.no_context",
                       "of \"context\" and \"contexts\" there is one");
    if (!out->choices == !out->target)
        return BP_FAIL(BP_ERR_FORMAT, "questions.no_choices",
                       "of \"choices\" and \"target\" there is one");
    if (out->context && !json_is_string(out->context))
        return BP_FAIL(BP_ERR_FORMAT, "questions.no_text", "\"context\" is not a text");
    if (out->target && !json_is_string(out->target))
        return BP_FAIL(BP_ERR_FORMAT, "questions.no_text", "\"target\" is not a text");
    if (out->contexts && !are_texts(out->contexts))
        return BP_FAIL(BP_ERR_FORMAT, "questions.no_text",
                       "\"contexts\" is not a list of 1 to 1024 texts");
    if (out->choices && !are_texts(out->choices))
        return BP_FAIL(BP_ERR_FORMAT, "questions.no_text",
                       "\"choices\" is not a list of 1 to 1024 texts");
    if (out->contexts && out->choices && json_array_size(out->choices) > 1)
        return BP_FAIL(BP_ERR_FORMAT, "questions.two_lists",
                       "several contexts have one continuation: \"target\", or one of \"choices\"");
    return BP_OK;
}

static bp_err add_question(reader *self, const json_t *object, bp_question *question)
{
    bp_candidates *rows = &self->set->rows;
    form of;
    bp_err err = read_form(&of, object);

    if (err != BP_OK)
        return err;
    const json_t *texts = of.choices ? of.choices : of.target;

    question->target = of.target && of.context;
    question->options = (int64_t)(of.contexts  ? json_array_size(of.contexts)
                                  : of.choices ? json_array_size(of.choices)
                                               : 1);
    question->first = rows->count;
    question->bare = -1;
    err = read_answer(object, question);
    for (size_t k = 0; of.contexts && err == BP_OK && k < json_array_size(of.contexts); k++) {
        const json_t *context = json_array_get(of.contexts, k);

        err = add_document(self, json_string_value(context), json_string_length(context), texts,
                           false);
    }
    if (of.contexts || err != BP_OK)
        return err;
    err = add_document(self, json_string_value(of.context), json_string_length(of.context), texts,
                       false);
    return err == BP_OK && of.choices ? add_bare(self, question, of.context, of.choices) : err;
}

static bp_err add_object(reader *self, const json_t *object, bp_question *question)
{
    bp_question_set *set = self->set;
    bp_err err = read_name(set, object, "task", &question->task);

    if (err == BP_OK)
        err = read_name(set, object, "group", &question->group);
    if (err == BP_OK && question->task < 0)
        question->task = name_of(set, "questions");
    if (err == BP_OK)
        err = add_question(self, object, question);
    if (err != BP_OK)
        return err;
    set->questions = bp_grow("score.questions", set->questions, &set->capacities[0], set->count + 1,
                             sizeof *set->questions);
    set->questions[set->count++] = *question;
    return BP_OK;
}

static json_t *parse(const char *line, size_t bytes, json_error_t *where)
{
    static const char *const KEYS[] = {"task",   "context", "contexts", "choices",
                                       "target", "answer",  "group",    "sentence_good"};

    return bp_json_members(line, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, KEYS, 8, where);
}

json_t *bp_question_object(const bp_question_set *set, const bp_question *question)
{
    const char *line = set->text + question->line;
    json_error_t where;
    json_t *object = json_loadb(line, (size_t)question->bytes, JSON_ALLOW_NUL, NULL);

    return object ? object : parse(line, (size_t)question->bytes, &where);
}

static bp_err add_line(reader *self, const char *line, size_t bytes, int64_t number)
{
    bp_question question = {.line = line - self->set->text, .bytes = (int64_t)bytes};
    json_error_t where;
    json_t *object = parse(line, bytes, &where);
    bp_err err = object
                     ? add_object(self, object, &question)
                     : BP_FAIL(BP_ERR_FORMAT, "json.invalid",
                               "not valid JSON in UTF-8 (%s), column %d", where.text, where.column);

    json_decref(object);
    if (err != BP_ERR_FORMAT)
        return err;
    return bp_err_wrap(err, "%s: at %s:%" PRId64 "; correct the line", bp_err_text(),
                       self->spec->path, number);
}

static bp_err add_lines(reader *self, size_t bytes, size_t mark)
{
    const char *at = self->set->text + mark, *end = self->set->text + bytes;
    bp_err err = BP_OK;

    for (int64_t number = 1; at < end && err == BP_OK; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((newline ? newline : end) - at), used = length;

        while (used > 0 && strchr(" \t\r", at[used - 1]))
            used--;
        if (used > 0)
            err = add_line(self, at, used, number);
        at += length + 1;
    }
    if (err == BP_OK && self->set->count == 0)
        err =
            BP_FAIL(BP_ERR_FORMAT, "questions.none",
                    "there is no question: at %s; write one JSON object a line", self->spec->path);
    return err;
}

bp_err bp_question_set_read(bp_question_set *set, const bp_questions_spec *spec)
{
    reader self = {.set = set, .spec = spec};
    size_t bytes = 0;
    bp_err err = bp_file_read(spec->path, MOST_BYTES, &set->text, &bytes);

    if (err == BP_OK)
        err = bp_encoder_new(&self.encoder, spec->tokenizer);
    if (err == BP_OK)
        err = add_lines(&self, bytes, bp_mark_bytes(set->text, bytes));
    bp_encoder_free(&self.encoder);
    return err;
}

void bp_question_set_hash(const bp_question_set *set, char out[BP_SHA256_HEX])
{
    bp_buffer all = {0};
    char rows[BP_SHA256_HEX];

    bp_candidates_hash(&set->rows, rows);
    bp_buffer_add(&all, rows, BP_SHA256_HEX);
    for (int64_t k = 0; k < set->count; k++) {
        const bp_question *q = &set->questions[k];
        const int64_t numbers[] = {q->task,   q->group, q->target, q->options,
                                   q->answer, q->first, q->bare};

        bp_buffer_add(&all, numbers, sizeof numbers);
        bp_buffer_add(&all, set->text + q->line, (size_t)q->bytes);
    }
    for (int64_t k = 0; k < set->names; k++)
        bp_buffer_add(&all, set->name[k], strlen(set->name[k]) + 1);
    bp_sha256_of(all.data ? all.data : "", all.bytes, out);
    bp_buffer_clear(&all);
}

void bp_question_set_clear(bp_question_set *set)
{
    for (int64_t k = 0; k < set->names; k++)
        bp_free(set->name[k]);
    bp_free(set->name);
    bp_free(set->questions);
    bp_free(set->characters);
    bp_free(set->text);
    bp_candidates_clear(&set->rows);
    *set = (bp_question_set){0};
}
