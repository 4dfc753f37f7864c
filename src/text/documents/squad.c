/* Questions of SQuAD's files: documents.c requests one after another. */
#include "text/documents/squad_priv.h"

#include "base/config/json.h"
#include "text/documents/text_source.h"
#include "text/unicode/context_words.h"
#include "text/unicode/unicode.h"

#include <stdlib.h>
#include <string.h>

static bp_err fail_form(const char *what, const char *id)
{
    return BP_FAIL(BP_ERR_FORMAT, "squad.bad_form", "%s is missing or of another type, in %s%.80s",
                   what, id[0] ? "question " : "the file", id);
}

/* A member that is a text without U+0000; else NULL. */
static const char *text_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    const char *text = json_string_value(value);

    return text && strlen(text) == json_string_length(value) ? text : NULL;
}

bp_err bp_squad_open(bp_squad *squad, const char *text, size_t bytes)
{
    static const char *const keys[] = {"data",         "paragraphs",   "context", "qas",
                                       "id",           "question",     "answers", "text",
                                       "answer_start", "is_impossible"};
    json_error_t where;

    *squad = (bp_squad){.root = bp_json_members(text, bytes, JSON_ALLOW_NUL, keys,
                                                sizeof keys / sizeof keys[0], &where)};
    if (!squad->root)
        return BP_FAIL(BP_ERR_FORMAT, "json.invalid",
                       "not valid JSON in UTF-8 (%s), line %d, column %d", where.text, where.line,
                       where.column);
    return json_is_array(json_object_get(squad->root, "data")) ? BP_OK
                                                               : fail_form("the list \"data\"", "");
}

void bp_squad_close(bp_squad *squad)
{
    json_decref(squad->root);
    *squad = (bp_squad){0};
}

/* The byte where code point `at` of a text begins; its length if there are fewer. */
static size_t byte_of(const char *text, json_int_t at)
{
    size_t bytes = strlen(text), byte = 0;

    for (json_int_t k = 0; k < at && byte < bytes; k++) {
        uint32_t c;
        size_t step = bp_utf8_decode((const uint8_t *)text + byte, bytes - byte, &c);

        byte += step > 0 ? step : 1;
    }
    return byte;
}

/* An answer that is at character `start` of its context, without the white space around it. */
static bp_err find_answer(size_t answer[2], const char *context, const char *text, json_int_t start,
                          const char *id)
{
    size_t at = byte_of(context, start), bytes;
    const char *trimmed = bp_context_trim(text, &bytes);

    at = bp_context_skip_space(context, strlen(context), at);
    if (start < 0 || bytes == 0 || strncmp(context + at, trimmed, bytes) != 0)
        return BP_FAIL(
            BP_ERR_FORMAT, "squad.other_answer",
            "the answer '%.60s' is not at character %lld of its context, in question %.80s", text,
            (long long)start, id);
    answer[0] = at;
    answer[1] = at + bytes;
    return BP_OK;
}

/* Puts texts of answers in a new list, and finds the first one's place in the context; JSON null:
 * the question has no answers member. */
static bp_err read_answers(json_t **texts, size_t answer[2], const json_t *question,
                           const char *context, const char *id)
{
    const json_t *answers = json_object_get(question, "answers"), *one;
    bool none = json_is_true(json_object_get(question, "is_impossible"));
    bp_err err = BP_OK;
    size_t k;

    if (json_is_null(answers))
        answers = NULL;
    *texts = answers || none ? json_array() : json_null();
    answer[0] = answer[1] = 0;
    if (!json_is_array(answers))
        return none || !answers ? BP_OK : fail_form("the list \"answers\"", id);
    json_array_foreach((json_t *)answers, k, one)
    {
        const json_t *start = json_object_get(one, "answer_start");
        const char *text = text_of(one, "text");

        if (none)
            break;
        if (!text || !text[0] || (k == 0 && !json_is_integer(start)))
            err = fail_form("an answer's \"text\" or \"answer_start\"", id);
        else if (k == 0) /* the place of the others is not read */
            err = find_answer(answer, context, text, json_integer_value(start), id);
        if (err != BP_OK)
            break;
        (void)json_array_append_new(*texts, bp_json_string(text));
    }
    return err;
}

static bp_err take_question(bp_text_record *record, const json_t *question, const char *context)
{
    const char *id = text_of(question, "id"), *text = text_of(question, "question");
    json_t *texts = NULL;
    char *dumped;
    bp_err err;

    bp_text_record_set(&record->id, "", 0);
    if (!id || strlen(id) > BP_TEXT_FIELD_BYTES)
        return fail_form("\"id\", of no more than 1024 bytes,", "");
    bp_text_record_set(&record->id, id, strlen(id));
    if (!text || !text[0])
        return fail_form("\"question\"", id);
    if (!context || bp_context_word(context, strlen(context), 0) == 0)
        return fail_form("\"context\"", id);
    err = read_answers(&texts, record->answer, question, context, id);
    if (err == BP_OK) {
        record->joined.bytes = record->tags.bytes = 0;
        bp_buffer_printf(&record->joined, "%s%s", text, context);
        record->starts[0] = 0;
        record->starts[1] = strlen(text);
        for (int k = 0; k < 2; k++)
            record->answer[k] += record->answer[1] > 0 ? record->starts[1] : 0;
        dumped = json_dumps(texts, JSON_COMPACT | JSON_ENCODE_ANY);
        BP_CHECK(dumped != NULL);
        bp_buffer_add(&record->tags, context, strlen(context) + 1);
        bp_buffer_add(&record->tags, dumped, strlen(dumped) + 1);
        free(dumped);
    }
    json_decref(texts);
    return err;
}

bp_err bp_squad_next(bp_squad *squad, bp_text_record *record, bool *found)
{
    const json_t *articles = json_object_get(squad->root, "data");

    *found = false;
    for (; squad->article < json_array_size(articles);
         squad->article++, squad->paragraph = squad->question = 0) {
        const json_t *paragraphs =
            json_object_get(json_array_get(articles, squad->article), "paragraphs");

        if (!json_is_array(paragraphs))
            return fail_form("a list \"paragraphs\"", "");
        for (; squad->paragraph < json_array_size(paragraphs);
             squad->paragraph++, squad->question = 0) {
            const json_t *paragraph = json_array_get(paragraphs, squad->paragraph),
                         *questions = json_object_get(paragraph, "qas");

            if (!json_is_array(questions))
                return fail_form("a list \"qas\"", "");
            *found = squad->question < json_array_size(questions);
            if (*found)
                return take_question(record, json_array_get(questions, squad->question++),
                                     text_of(paragraph, "context"));
        }
    }
    *found = false;
    return BP_OK;
}
