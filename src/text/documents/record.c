/* Records: the requested fields, labels and values, and those of a line. */
#include "base/mem.h"
#include "text/documents/text_source.h"

#include "text/documents/record_priv.h"

#include <string.h>

static char **copy_names(const char *const *names, int count)
{
    char **copies = bp_alloc("text.labels", count, sizeof *copies);

    for (int k = 0; k < count; k++)
        copies[k] = bp_strdup(names[k]);
    return copies;
}

static void free_names(char **names, int count)
{
    for (int k = 0; names && k < count; k++)
        bp_free(names[k]);
    bp_free(names);
}

void bp_text_record_init(bp_text_record *record, const bp_documents_options *options)
{
    int columns = options->field_count + options->label_count + options->value_count;

    *record = (bp_text_record){.label_count = options->label_count,
                               .value_count = options->value_count,
                               .field_count = options->field_count,
                               .no_tags = options->no_tags};
    record->text_field = bp_strdup(options->text_field ? options->text_field : BP_TEXT_FIELD);
    record->names = copy_names(options->labels, options->label_count);
    record->value_names = copy_names(options->values, options->value_count);
    record->fields = copy_names(options->fields, options->field_count);
    record->columns = bp_alloc("text.labels", columns, sizeof *record->columns);
    record->labels = bp_alloc("text.labels", options->label_count, sizeof *record->labels);
    record->types = bp_alloc("text.labels", options->label_count, 1);
    record->values = bp_alloc("text.labels", options->value_count, sizeof *record->values);
    for (int k = 0; k < options->label_count; k++)
        record->labels[k] = bp_strdup("");
    record->keys = bp_alloc("text.labels", 2 + options->label_count + options->value_count,
                            sizeof *record->keys);
    record->keys[record->key_count++] = record->text_field;
    record->keys[record->key_count++] = "id";
    for (int k = 0; k < options->label_count; k++)
        record->keys[record->key_count++] = record->names[k];
    for (int k = 0; k < options->value_count; k++)
        record->keys[record->key_count++] = record->value_names[k];
}

void bp_text_record_clear(bp_text_record *record)
{
    json_decref(record->object);
    free_names(record->names, record->label_count);
    free_names(record->value_names, record->value_count);
    free_names(record->fields, record->field_count);
    free_names(record->labels, record->label_count);
    bp_free(record->id);
    bp_free(record->text_field);
    bp_free(record->keys);
    bp_free(record->types);
    bp_free(record->values);
    bp_free(record->columns);
    bp_buffer_clear(&record->joined);
    bp_buffer_clear(&record->tags);
    *record = (bp_text_record){0};
}

void bp_text_record_set(char **to, const char *text, size_t bytes)
{
    char *copy = bp_alloc("text.labels", (int64_t)bytes + 1, 1);

    memcpy(copy, text, bytes);
    bp_free(*to);
    *to = copy;
}
