/* A line of JSON to a document: its text, id, labels and values. */
#include "base/config/json.h"
#include "base/mem.h"
#include "text/documents/text_source.h"

#include "text/documents/record_priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void clear_values(bp_text_record *record)
{
    bp_free(record->id);
    record->id = NULL;
    json_decref(record->object);
    record->object = NULL;
    record->text = NULL;
}

/* The shortest form that reads back the same, and not an integer: 1.0 is not 1. */
static char *real_text(double value)
{
    char text[32];

    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return bp_sprintf("%s%s", text, !strpbrk(text, ".e") ? ".0" : "");
}

/* A scalar as text, to a new string; "" for what is missing or null. */
static bp_err scalar_text(char **out, const json_t *value, const char *key)
{
    *out = NULL;
    if (!value || json_is_null(value))
        *out = bp_strdup("");
    else if (json_is_string(value) && strlen(json_string_value(value)) == json_string_length(value))
        *out = bp_strdup(json_string_value(value));
    else if (json_is_integer(value))
        *out = bp_sprintf("%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        *out = real_text(json_real_value(value));
    else if (json_is_boolean(value))
        *out = bp_strdup(json_is_true(value) ? "true" : "false");
    else
        return BP_FAIL(BP_ERR_FORMAT, "text.bad_field",
                       "the field \"%s\" is neither a string without U+0000 nor a number, boolean "
                       "or null",
                       key);
    if (*out && strlen(*out) > BP_TEXT_FIELD_BYTES)
        return BP_FAIL(BP_ERR_FORMAT, "text.field_too_long",
                       "the field \"%s\" has %zu bytes, more than %d", key, strlen(*out),
                       BP_TEXT_FIELD_BYTES);
    return !*out ? bp_fail_memory("a field", 1, 0) : BP_OK;
}

static char type_of(const json_t *value)
{
    return json_is_string(value)    ? BP_LABEL_STRING
           : json_is_number(value)  ? BP_LABEL_NUMBER
           : json_is_boolean(value) ? BP_LABEL_BOOLEAN
                                    : BP_LABEL_NONE;
}

static bp_err read_label(bp_text_record *record, int k)
{
    const json_t *value = json_object_get(record->object, record->names[k]);

    bp_free(record->labels[k]);
    record->types[k] = type_of(value);
    return scalar_text(&record->labels[k], value, record->names[k]);
}

/* A number; JSON has no NaN. */
static bp_err read_value(bp_text_record *record, int k)
{
    const json_t *value = json_object_get(record->object, record->value_names[k]);

    record->values[k] = (float)json_number_value(value);
    if (!json_is_number(value) || !isfinite(record->values[k]))
        return BP_FAIL(BP_ERR_FORMAT, "value.not_number", "the field \"%s\" is %s",
                       record->value_names[k], !value ? "missing" : "no finite number of float32");
    return BP_OK;
}

/* Without jansson's quotation of the line ("near '...'"): texts may be private, and logs are passed
 * on. The column is named. */
static bp_err fail_invalid(json_error_t *where)
{
    char *near = strstr(where->text, " near '");

    if (near)
        *near = '\0';
    return BP_FAIL(BP_ERR_FORMAT, "json.invalid", "not valid JSON in UTF-8 (%s), column %d",
                   where->text, where->column);
}

bp_err bp_jsonl_parse(bp_text_record *record, const char *line, size_t bytes)
{
    json_error_t where;
    const json_t *text, *id;
    bp_err err = BP_OK;

    clear_values(record);
    record->lacks_text = false;
    record->object = bp_json_members(line, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL,
                                     record->keys, record->key_count, &where);
    if (!record->object)
        return json_error_code(&where) == json_error_out_of_memory
                   ? bp_fail_memory("JSON", (int64_t)bytes, 1)
                   : fail_invalid(&where);
    if (!json_is_object(record->object))
        return BP_FAIL(BP_ERR_FORMAT, "text.not_object", "not a JSON object");
    text = json_object_get(record->object, record->text_field);
    record->lacks_text = !text;
    if (!json_is_string(text))
        return BP_FAIL(BP_ERR_FORMAT, "text.missing_field", "the field \"%s\" is %s",
                       record->text_field, !text ? "missing" : "not a string");
    record->text = json_string_value(text);
    record->text_bytes = json_string_length(text);
    id = json_object_get(record->object, "id");
    if (id && !json_is_null(id))
        err = scalar_text(&record->id, id, "id");
    for (int k = 0; k < record->label_count && err == BP_OK; k++)
        err = read_label(record, k);
    for (int k = 0; k < record->value_count && err == BP_OK; k++)
        err = read_value(record, k);
    return err;
}
