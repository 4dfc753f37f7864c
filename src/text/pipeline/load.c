/* Reading the components of tokenizer.json: shared by all *_load.c. */
#include "text/pipeline/load.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define COMPONENT_LIMIT 256 /* of one kind; each may take a pass over the text */

const char *bp_load_string(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));

    return !value ? "" : value;
}

bool bp_load_absent(const json_t *value)
{
    return !value || json_is_null(value);
}

bp_err bp_load_optional(const char **out, const json_t *object, const char *key, const char *name)
{
    const json_t *value = json_object_get(object, key);
    char *spelled;
    bp_err err;

    *out = bp_load_string(object, key);
    if (bp_load_absent(value) || json_is_string(value))
        return BP_OK;
    spelled = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    err = BP_FAIL(BP_ERR_FORMAT, "tokenizer.bad_component",
                  "\"%s\" of %s is %.40s, not a text: at %s", key, bp_load_string(object, "type"),
                  !spelled ? "?" : spelled, name);
    free(spelled);
    return err;
}

bp_err bp_load_text(char **out, const json_t *object, const char *key, const char *name)
{
    const json_t *value = json_object_get(object, key);

    if (!json_is_string(value))
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.bad_component", "\"%s\" of %s is not text: at %s",
                       key, bp_load_string(object, "type"), name);
    *out = bp_strdup(json_string_value(value));
    return BP_OK;
}

bp_err bp_load_bool(bool *out, const json_t *object, const char *key, bool otherwise,
                    const char *name)
{
    *out = otherwise;
    return bp_load_absent(json_object_get(object, key)) ? BP_OK
                                                        : bp_json_get_bool(object, key, out, name);
}

bp_err bp_load_pattern(char **text, bp_regex **regex, const json_t *object, const char *name)
{
    const json_t *pattern = json_object_get(object, "pattern");
    const char *string = bp_load_string(pattern, "String");

    if (json_is_string(json_object_get(pattern, "Regex")))
        return bp_regex_new(regex, bp_load_string(pattern, "Regex"), name);
    if (string[0] == '\0')
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.bad_component",
                       "\"pattern\" of %s is neither a String nor a Regex: at %s",
                       bp_load_string(object, "type"), name);
    *text = bp_strdup(string);
    return BP_OK;
}

bp_err bp_load_refuse(const char *what, const char *value, const char *name)
{
    return BP_FAIL(BP_ERR_FORMAT, "tokenizer.unsupported",
                   "the tokenizer has %s%s%s, which bagpipe does not do: at %s; give another", what,
                   value[0] == 0 ? "" : " ", value, name);
}

static bp_err add_all(const json_t *json, const char *key, bp_load_add *add, void *context,
                      const char *name, int *count)
{
    const char *type = bp_load_string(json, "type");
    const json_t *list = json_object_get(json, key), *part;
    size_t k;

    if (!json_is_object(json) || type[0] == '\0')
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.bad_component",
                       "a component has no \"type\": at %s", name);
    if (++*count > COMPONENT_LIMIT)
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.too_many_components",
                       "there are more than %d components in \"%s\": at %s", COMPONENT_LIMIT, key,
                       name);
    if (strcmp(type, "Sequence") != 0)
        return add(context, json, type, name);
    if (!json_is_array(list))
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.bad_component",
                       "\"%s\" of Sequence is not a list: at %s", key, name);
    json_array_foreach(list, k, part)
    {
        bp_err err = add_all(part, key, add, context, name, count);

        if (err != BP_OK)
            return err;
    }
    return BP_OK;
}

bp_err bp_load_sequence(const json_t *json, const char *key, bp_load_add *add, void *context,
                        const char *name)
{
    int count = 0;

    return bp_load_absent(json) ? BP_OK : add_all(json, key, add, context, name, &count);
}
