/* Names of classes in config.json: "id2label" by number, "label2id" by name. */
#include "io/huggingface/hf_config_priv.h"

#include "base/config/json.h"

#include <inttypes.h>
#include <stdio.h>

static const json_t *label_at(const json_t *object, size_t k)
{
    char number[24];

    (void)snprintf(number, sizeof number, "%zu", k);
    return json_object_get(object, number);
}

bp_err hf_labels_count(double *count, const json_t *object, const char *name, const char *path)
{
    size_t size = json_object_size(object);
    json_t *seen = json_object();
    bp_err err = BP_OK;

    for (size_t k = 0; k < size && err == BP_OK; k++) {
        const char *label = json_string_value(label_at(object, k));

        if (!label)
            size = 0;
        else if (json_object_get(seen, label))
            err = BP_FAIL(BP_ERR_FORMAT, "huggingface.bad_labels",
                          "\"%s\" names two classes %.60s: at %s; give each a name of its own",
                          name, label, path);
        else
            (void)json_object_set_new(seen, label, json_true());
    }
    json_decref(seen);
    *count = (double)size;
    if (err == BP_OK && size == 0)
        err = BP_FAIL(BP_ERR_FORMAT, "huggingface.bad_labels",
                      "\"%s\" does not name classes 0, 1 and so on: at %s", name, path);
    return err;
}

json_t *hf_labels_read(const json_t *object)
{
    json_t *labels = json_is_object(object) ? json_array() : NULL;

    for (size_t k = 0; k < json_object_size(object); k++)
        (void)json_array_append(labels, (json_t *)label_at(object, k));
    return labels;
}

void hf_labels_write(json_t *config, int64_t count, const json_t *labels)
{
    json_t *names = json_object(), *numbers = json_object();

    for (int64_t k = 0; k < count; k++) {
        const char *given = json_string_value(json_array_get(labels, (size_t)k));
        char number[24], made[32];

        (void)snprintf(number, sizeof number, "%" PRId64, k);
        (void)snprintf(made, sizeof made, "LABEL_%" PRId64, k);
        (void)json_object_set_new(names, number, bp_json_string(given ? given : made));
        (void)json_object_set_new(numbers, given ? given : made, json_integer((json_int_t)k));
    }
    (void)json_object_set_new(config, "id2label", names);
    (void)json_object_set_new(config, "label2id", numbers);
}
