/* Label columns: a corpus numbers its values as it likes, so equal values meet by name. */
#include "infer/score/tables/columns_priv.h"

#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

static bp_err out_of_memory(void)
{
    return BP_FAIL(BP_ERR_SYSTEM, "no memory for the labels of the corpora");
}

static bp_err add_column(bp_score_table *table, const char *name, bp_score_column **out)
{
    int64_t count = table->column_count + 1;
    bp_score_column *columns =
        bp_realloc("score.labels", table->columns, count, sizeof(*table->columns));

    table->columns = columns;
    *out = &columns[table->column_count];
    **out = (bp_score_column){.name = bp_strdup(name)};
    (*out)->codes = bp_alloc("score.labels", table->plan->documents, sizeof(*(*out)->codes));
    table->column_count = count;
    if (!(*out)->name || !(*out)->codes)
        return out_of_memory();
    for (int64_t d = 0; d < table->plan->documents; d++)
        (*out)->codes[d] = -1;
    return BP_OK;
}

static bp_err find_column(bp_score_table *table, const char *name, bp_score_column **out)
{
    for (int64_t i = 0; i < table->column_count; i++) {
        if (strcmp(table->columns[i].name, name) == 0) {
            *out = &table->columns[i];
            return BP_OK;
        }
    }
    return add_column(table, name, out);
}

/* map[k] = number in the column of the label's value k. A JSON object serves as the dictionary. */
static bp_err map_values(bp_score_column *column, const bp_corpus_label *label, int32_t *map)
{
    json_t *numbers = json_object();
    int64_t most = column->value_count + label->value_count;
    char **values = bp_realloc("score.labels", column->values, most, sizeof(*values));
    bp_err err = numbers && values ? BP_OK : out_of_memory();

    if (values)
        column->values = values;
    for (int64_t i = 0; err == BP_OK && i < column->value_count; i++) {
        if (json_object_set_new_nocheck(numbers, values[i], json_integer(i)) != 0)
            err = out_of_memory();
    }
    for (int64_t k = 0; err == BP_OK && k < label->value_count; k++) {
        const json_t *known = json_object_get(numbers, label->values[k]);

        map[k] = (int32_t)(known ? json_integer_value(known) : column->value_count);
        if (known)
            continue;
        values[column->value_count] = bp_strdup(label->values[k]);
        if (!values[column->value_count] ||
            json_object_set_new_nocheck(numbers, label->values[k], json_integer(map[k])) != 0)
            err = out_of_memory();
        column->value_count += values[column->value_count] != NULL;
    }
    json_decref(numbers);
    return err;
}

static bp_err load_label(bp_score_table *table, int64_t file, int k)
{
    const bp_score_plan *plan = table->plan;
    bp_corpus_label label;
    bp_score_column *column = NULL;
    bp_err err = bp_corpus_file_label(bp_corpus_file_at(plan->corpus, file), k, &label);

    if (err == BP_OK)
        err = find_column(table, label.name, &column);
    if (err != BP_OK)
        return err;

    int32_t *map = bp_alloc("score.labels", label.value_count, sizeof(*map));
    err = map ? map_values(column, &label, map) : out_of_memory();
    for (int64_t d = plan->first_document[file]; err == BP_OK && d < plan->first_document[file + 1];
         d++) {
        uint32_t code = label.codes[d - plan->first_document[file]];

        if (code >= label.value_count)
            err = BP_FAIL(BP_ERR_FORMAT,
                          "label %s has %" PRId64 " values, but a document has number %" PRIu32
                          ": at %s",
                          label.name, label.value_count, code,
                          bp_corpus_file_path(bp_corpus_file_at(plan->corpus, file)));
        else
            column->codes[d] = map[code];
    }
    bp_free(map);
    return err;
}

bp_err bp_score_columns_load(bp_score_table *table)
{
    bp_err err = BP_OK;

    for (int64_t file = 0; file < table->plan->files; file++) {
        int labels = bp_corpus_file_info(bp_corpus_file_at(table->plan->corpus, file))->labels;

        for (int k = 0; err == BP_OK && k < labels; k++)
            err = load_label(table, file, k);
    }
    return err;
}

void bp_score_columns_clear(bp_score_table *table)
{
    for (int64_t i = 0; i < table->column_count; i++) {
        bp_score_column *column = &table->columns[i];

        for (int64_t k = 0; k < column->value_count; k++)
            bp_free(column->values[k]);
        bp_free(column->values);
        bp_free(column->codes);
        bp_free(column->name);
    }
    bp_free(table->columns);
    table->columns = NULL;
    table->column_count = 0;
}
