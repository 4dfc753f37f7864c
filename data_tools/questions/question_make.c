/* Templates, answers and the parts of tasks. */
#include "questions/question_make.h"

#include "base/files/fs.h"
#include "base/mem.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

/* ---- templates ---- */

static bp_err expand(json_t **out, const char *template, const json_t *row)
{
    bp_buffer all = {0};
    bp_err err = BP_OK;

    while (*template && err == BP_OK) {
        size_t plain = strcspn(template, "{"), bytes = 0;
        const char *text = "";
        char field[32] = "";

        bp_buffer_add(&all, template, plain);
        template += plain;
        if (*template == '\0')
            break;
        memcpy(field, template + 1, strcspn(template, "}") - 1);
        template += strcspn(template, "}") + 1;
        err = question_text(row, field, &text, &bytes);
        if (err == BP_OK)
            bp_buffer_add(&all, text, bytes);
    }
    *out = err == BP_OK ? json_stringn_nocheck(all.bytes ? all.data : "", all.bytes) : NULL;
    bp_buffer_clear(&all);
    return err;
}

static bp_err put_template(json_t *asked, const char *key, const char *template, const json_t *row)
{
    json_t *text;
    bp_err err = template ? expand(&text, template, row) : BP_OK;

    if (err == BP_OK && template)
        (void)json_object_set_new(asked, key, text);
    return err;
}

static bp_err put_templates(json_t *asked, const char *key, const char *const *templates,
                            const json_t *row)
{
    json_t *list, *text;
    bp_err err = BP_OK;

    if (!templates[0])
        return BP_OK;
    list = json_array();
    for (int k = 0; k < QUESTION_TEXTS && templates[k] && err == BP_OK; k++) {
        err = expand(&text, templates[k], row);
        if (err == BP_OK)
            (void)json_array_append_new(list, text);
    }
    (void)json_object_set_new(asked, key, list);
    return err;
}

static bp_err put_list(json_t *asked, const char *field, const json_t *row)
{
    json_t *list = field ? json_object_get(row, field) : NULL;

    if (!field)
        return BP_OK;
    for (size_t k = 0; k < json_array_size(list); k++)
        if (!json_is_string(json_array_get(list, k)))
            return BP_FAIL(BP_ERR_FORMAT, "questions.no_field", "choice %zu is not a string", k);
    if (json_array_size(list) == 0)
        return BP_FAIL(BP_ERR_FORMAT, "questions.no_field", "there is no list of choices");
    (void)json_object_set(asked, "choices", list);
    return BP_OK;
}

/* ---- answers ---- */

static int64_t number_of(const json_t *value, const char *keys)
{
    const char *text = json_string_value(value), *key;

    if (json_is_boolean(value))
        return json_is_true(value);
    if (json_is_integer(value))
        return json_integer_value(value);
    if (!text || strlen(text) != 1)
        return -1;
    key = strchr(keys ? keys : "0123456789", text[0]);
    return key ? key - (keys ? keys : "0123456789") : -1;
}

/* The first of the fields that is there; -1, "" and null say that the answer is not published. */
static bp_err put_answer(json_t *asked, const question_task *task, const json_t *row)
{
    json_t *options = json_object_get(asked, task->contexts[0] ? "contexts" : "choices");
    int64_t answer;

    for (int k = 0; k < 2 && task->answers[k]; k++) {
        const json_t *value = json_object_get(row, task->answers[k]);

        if (!value || json_is_null(value) ||
            (json_is_string(value) && json_string_length(value) == 0) ||
            (json_is_integer(value) && json_integer_value(value) == -1 &&
             strcmp(task->answers[k], "gold") != 0))
            continue;
        answer = number_of(value, task->keys);
        if (answer < 0 || answer >= (int64_t)json_array_size(options))
            return BP_FAIL(BP_ERR_FORMAT, "questions.wrong_answer",
                           "the answer is not among the %zu choices", json_array_size(options));
        (void)json_object_set_new(asked, "answer", json_integer(answer));
        break;
    }
    return BP_OK;
}

/* ---- parts ---- */

/* The file's name without what says its split and its kind, in lower case. */
static char *stem_of(const char *path)
{
    static const char *const SPLITS[] = {"_test", "_val", "_dev", "_train", "_validation"};
    char *stem = bp_strdup(bp_path_base(path));

    stem[strcspn(stem, ".")] = '\0';
    for (char *at = stem; *at; at++)
        *at = (char)tolower((unsigned char)*at);
    for (size_t k = 0; k < sizeof SPLITS / sizeof SPLITS[0]; k++) {
        size_t all = strlen(stem), end = strlen(SPLITS[k]);

        if (all > end && strcmp(stem + all - end, SPLITS[k]) == 0) {
            stem[all - end] = '\0';
            break;
        }
    }
    return stem;
}

/* For "easy challenge" the one that the stem has; for LAMBADA's, which are alike, the first. */
static bp_err part_of_name(char **out, const question_task *task, const char *path)
{
    char *stem = stem_of(path), *names = bp_strdup(task->parts), *rest = names, *name;
    bp_err err = BP_OK;

    *out = NULL;
    if (strcmp(task->parts, "*") == 0 && stem[0] != '\0')
        *out = bp_strdup(stem);
    while (!*out && (name = strtok_r(rest, " ", &rest)) != NULL)
        if (strstr(stem, name) || !task->answers[0])
            *out = bp_strdup(name);
    if (!*out)
        err = BP_FAIL(BP_ERR_USAGE, "questions.no_part",
                      "the file's name does not say which part of the task it is: at %s; give "
                      "--task %s_NAME, with a NAME of %s",
                      path, task->name, task->parts);
    bp_free(stem);
    bp_free(names);
    return err;
}

static bp_err find_part(question *out, const question_task *task, const char *part,
                        const char *path)
{
    const char *of_row =
        task->part ? json_string_value(json_object_get(out->row, task->part)) : NULL;

    if (part && of_row && strcmp(part, of_row) != 0)
        return BP_FAIL(
            BP_ERR_FORMAT, "questions.other_part",
            "the row is of '%s', and --task asks '%s': at %s; leave the part out, or give "
            "only its rows",
            of_row, part, path);
    part = part ? part : of_row;
    if (!task->parts)
        return BP_OK;
    if (!part || part[0] == '\0')
        return part_of_name(&out->part, task, path);
    out->part = bp_strdup(part);
    return BP_OK;
}

/* ---- questions ---- */

/* Members that say what a question is. */
static void put_names(question *self, const question_task *task, int64_t number)
{
    const char *group =
        task->group ? json_string_value(json_object_get(self->row, task->group)) : NULL;
    json_t *id = NULL;
    char *name = self->part ? bp_sprintf("%s_%s", task->name, self->part) : bp_strdup(task->name);

    (void)json_object_set_new(self->asked, "task", json_string(name));
    bp_free(name);
    if (task->ids[0])
        id = json_object_get(self->row, task->ids[0]);
    if (json_is_string(id) || json_is_integer(id))
        (void)json_object_set(self->asked, "id", id);
    else
        (void)json_object_set_new(self->asked, "id", json_integer(number));
    if (task->group_of && self->part)
        group = task->group_of(self->part);
    if (group && group[0] != '\0')
        (void)json_object_set_new(self->asked, "group", json_string(group));
}

bp_err question_make(question *out, const question_task *task, const char *part, json_t *row,
                     const char *path, int64_t number)
{
    bp_err err;

    *out = (question){.row = row, .asked = json_object()};
    if (!json_is_object(row))
        return BP_FAIL(BP_ERR_FORMAT, "questions.no_row", "it is not a JSON object");
    err = find_part(out, task, part, path);
    if (err == BP_OK)
        put_names(out, task, number);
    if (err == BP_OK && task->prepare)
        err = task->prepare(row);
    if (err == BP_OK)
        err = put_template(out->asked, "context", task->context, row);
    if (err == BP_OK)
        err = put_templates(out->asked, "contexts", task->contexts, row);
    if (err == BP_OK)
        err = put_templates(out->asked, "choices", task->choices, row);
    if (err == BP_OK)
        err = put_list(out->asked, task->list, row);
    if (err == BP_OK)
        err = put_template(out->asked, "target", task->target, row);
    if (err == BP_OK)
        err = put_answer(out->asked, task, row);
    return err;
}

void question_clear(question *self)
{
    json_decref(self->row);
    json_decref(self->asked);
    bp_free(self->part);
    *self = (question){0};
}

bool question_solved(const question *self, const json_t **context, const json_t **answer)
{
    const json_t *contexts = json_object_get(self->asked, "contexts");
    const json_t *right = json_object_get(self->asked, "answer");
    size_t k = (size_t)json_integer_value(right);

    *context = contexts ? json_array_get(contexts, k) : json_object_get(self->asked, "context");
    *answer = json_object_get(self->asked, "target");
    if (!*answer)
        *answer = json_array_get(json_object_get(self->asked, "choices"), k);
    return right || (!contexts && json_object_get(self->asked, "target"));
}
