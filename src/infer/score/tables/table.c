/* The rows of all documents, and the labels of all corpora as one. Filled by merge.c, read by
 * summary.c and tables.c. */
#include "infer/score/tables/table.h"

#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

/* ---- label columns: a corpus numbers its values as it likes, so equal values meet by name ---- */

static bp_score_column *find_column(bp_score_table *table, const char *name)
{
    int64_t count = table->column_count, documents = table->plan->documents;

    for (int64_t i = 0; i < count; i++)
        if (strcmp(table->columns[i].name, name) == 0)
            return &table->columns[i];
    table->columns = bp_realloc("score.labels", table->columns, count + 1, sizeof(*table->columns));
    bp_score_column *added = &table->columns[table->column_count++];
    *added = (bp_score_column){.name = bp_strdup(name)};
    added->codes = bp_alloc("score.labels", documents, sizeof(*added->codes));
    for (int64_t d = 0; d < documents; d++)
        added->codes[d] = -1;
    return added;
}

/* map[k] = number in the column of the label's value k. A JSON object serves as the dictionary. */
static void map_values(bp_score_column *column, const bp_corpus_label *label, int32_t *map)
{
    json_t *numbers = json_object();

    column->values = bp_realloc("score.labels", column->values,
                                column->value_count + label->value_count, sizeof(char *));
    for (int64_t i = 0; i < column->value_count; i++)
        (void)json_object_set_new_nocheck(numbers, column->values[i], json_integer(i));
    for (int64_t k = 0; k < label->value_count; k++) {
        const json_t *known = json_object_get(numbers, label->values[k]);

        map[k] = (int32_t)(known ? json_integer_value(known) : column->value_count);
        if (known)
            continue;
        column->values[column->value_count++] = bp_strdup(label->values[k]);
        (void)json_object_set_new_nocheck(numbers, label->values[k], json_integer(map[k]));
    }
    json_decref(numbers);
}

static bp_err load_label(bp_score_table *table, int64_t file, int k)
{
    bp_corpus_file *corpus = bp_corpus_file_at(table->plan->corpus, file);
    int64_t first = table->plan->first_document[file];
    int64_t documents = table->plan->first_document[file + 1] - first;
    bp_corpus_label label;
    bp_err err = bp_corpus_file_label(corpus, k, &label);

    if (err != BP_OK)
        return err;

    bp_score_column *column = find_column(table, label.name);
    int32_t *map = bp_alloc("score.labels", label.value_count, sizeof(*map));
    map_values(column, &label, map);
    for (int64_t d = 0; err == BP_OK && d < documents; d++) {
        if (label.codes[d] >= label.value_count)
            err = BP_FAIL(
                BP_ERR_FORMAT, "label.unknown_code",
                "label %s has %" PRId64 " values, but a document has number %" PRIu32 ": at %s",
                label.name, label.value_count, label.codes[d], bp_corpus_file_path(corpus));
        else
            column->codes[first + d] = map[label.codes[d]];
    }
    bp_free(map);
    return err;
}

bp_err bp_score_table_init(bp_score_table *table, const bp_score_plan *plan,
                           const bp_token_statistics *statistics)
{
    bp_err err = BP_OK;

    *table = (bp_score_table){.plan = plan, .statistics = statistics};
    table->rows = bp_try_alloc("score.rows", plan->documents, sizeof(*table->rows));
    table->sums =
        bp_try_alloc("score.rows", plan->documents * (statistics->count - 1), sizeof(*table->sums));
    if (!table->rows || !table->sums)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "no memory for the sums of %" PRId64 " documents", plan->documents);
    for (int64_t file = 0; file < plan->files; file++) {
        int labels = bp_corpus_file_info(bp_corpus_file_at(plan->corpus, file))->labels;

        for (int k = 0; err == BP_OK && k < labels; k++)
            err = load_label(table, file, k);
    }
    return err;
}

void bp_score_table_clear(bp_score_table *table)
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
    bp_free(table->sums);
    bp_free(table->rows);
    *table = (bp_score_table){0};
}

/* ---- one document ---- */

bp_err bp_score_counts_of(const bp_score_plan *plan, int64_t file, bp_score_counts *out)
{
    *out = (bp_score_counts){0};
    if (plan->rule.convention == BP_SCORE_PAIRS) /* they count both texts */
        return BP_OK;
    return bp_corpus_file_doc_counts(bp_corpus_file_at(plan->corpus, file), &out->bytes,
                                     &out->words, &out->words_split);
}

const bp_fixed *bp_score_document_statistics(const bp_score_table *table, int64_t document)
{
    return table->sums + document * (table->statistics->count - 1);
}

bp_score_sums bp_score_document_sums(const bp_score_table *table, const bp_score_counts *counts,
                                     int64_t file, int64_t document)
{
    const bp_score_row *row = &table->rows[document];
    int64_t inside = document - table->plan->first_document[file];

    return (bp_score_sums){.documents = 1,
                           .tokens = row->tokens,
                           .unscored = row->unscored,
                           .nll = row->nll,
                           .square = row->square,
                           .oov = row->oov,
                           .zeros = row->zeros,
                           .oov_zeros = row->oov_zeros,
                           .oov_nll = row->oov_nll,
                           .has_oov = table->plan->unknown >= 0,
                           .has_zeros = table->plan->may_be_zero,
                           .bytes = counts->bytes ? counts->bytes[inside] : 0,
                           .words = counts->words ? counts->words[inside] : 0,
                           .words_split = counts->words_split ? counts->words_split[inside] : 0,
                           .no_bytes = !counts->bytes,
                           .no_words = !counts->words,
                           .no_words_split = !counts->words_split};
}
