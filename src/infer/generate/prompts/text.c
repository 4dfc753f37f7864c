/* Prompts from a template and the fields of an object. Called by prompts.c. */
#include "infer/generate/prompts/text.h"

#include "base/files/fs.h"
#include "base/mem.h"

#include <string.h>

#define TEMPLATE_LIMIT_BYTES (1 << 20)

/* A field of the template, from after its opening brace on; *bytes of name. NULL if it is not
 * closed. */
static const char *field_end(const char *name)
{
    const char *end = name + strcspn(name, "{}\n");

    return *end == '}' ? end : NULL;
}

/* Is a brace here literal, because it is doubled? */
static bool is_brace(const char *at)
{
    return (at[0] == '{' || at[0] == '}') && at[1] == at[0];
}

static bp_err check(const char *text, const char *path)
{
    int line = 1;

    for (const char *at = text; *at; at++) {
        line += *at == '\n';
        if (at[0] == '{' && at[1] == '%')
            return BP_FAIL(BP_ERR_FORMAT, "template.jinja",
                           "a Jinja template, as chat templates are, is not supported: at %s:%d; "
                           "write the text of the prompt with {NAME} for fields",
                           path, line);
        if (is_brace(at)) {
            at++;
        } else if (*at == '{') {
            at = field_end(at + 1);
            if (!at)
                return BP_FAIL(BP_ERR_FORMAT, "template.open_brace",
                               "a brace is not closed: at %s:%d; write {NAME}, or {{ for a brace",
                               path, line);
        }
    }
    return BP_OK;
}

bp_err bp_prompt_template_read(char **text, const char *path)
{
    size_t bytes, mark;
    bp_err err = bp_file_read(path, TEMPLATE_LIMIT_BYTES, text, &bytes);

    if (err != BP_OK)
        return err;
    mark = bp_mark_bytes(*text, bytes);
    memmove(*text, *text + mark, bytes - mark + 1);
    bytes = strlen(*text);
    while (bytes > 0 && ((*text)[bytes - 1] == '\n' || (*text)[bytes - 1] == '\r'))
        (*text)[--bytes] = '\0';
    err = bytes == 0 ? BP_FAIL(BP_ERR_FORMAT, "template.empty",
                               "the template is empty: at %s; write the prompt with {NAME} for "
                               "fields",
                               path)
                     : check(*text, path);
    if (err != BP_OK) {
        bp_free(*text);
        *text = NULL;
    }
    return err;
}

static bp_err add_field(bp_buffer *out, const char *name, size_t bytes, const json_t *object)
{
    char *key = bp_sprintf("%.*s", (int)bytes, name), *text;
    const json_t *value = json_object_get(object, key);
    bp_err err = BP_OK;

    if (json_is_string(value)) {
        bp_buffer_add(out, json_string_value(value), json_string_length(value));
    } else if (json_is_number(value) || json_is_boolean(value)) {
        text = json_dumps(value, JSON_ENCODE_ANY);
        bp_buffer_printf(out, "%s", text ? text : "");
        free(text);
    } else {
        err = BP_FAIL(BP_ERR_FORMAT, "template.missing_field",
                      "the field \"%s\" of the template is %s", key,
                      value ? "not a string, number or boolean" : "missing");
    }
    bp_free(key);
    return err;
}

bp_err bp_prompt_template_fill(bp_buffer *out, const char *text, const json_t *object)
{
    bp_err err = BP_OK;

    for (const char *at = text; *at && err == BP_OK; at++) {
        if (is_brace(at)) {
            bp_buffer_add(out, at++, 1);
        } else if (*at == '{') {
            const char *end = field_end(at + 1);

            err = add_field(out, at + 1, (size_t)(end - at - 1), object);
            at = end;
        } else {
            bp_buffer_add(out, at, 1);
        }
    }
    return err;
}

void bp_prompt_template_names(const char *text, char ***names, int64_t *count)
{
    int64_t capacity = 0;

    *names = NULL;
    *count = 0;
    for (const char *at = text; *at; at++) {
        if (is_brace(at)) {
            at++;
        } else if (*at == '{') {
            const char *end = field_end(at + 1);

            *names = bp_grow("generate.prompts", *names, &capacity, *count + 1, sizeof **names);
            (*names)[(*count)++] = bp_sprintf("%.*s", (int)(end - at - 1), at + 1);
            at = end;
        }
    }
}
