/* The results of all documents, and the labels of all corpora combined. Filled by merge.c, read by
 * summary.c and tables.c. */
#include "infer/score/tables/table.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- label columns: corpora number their values independently, so equal values are matched by
 * name ---- */

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

/* ---- groups ---- */

static bp_score_group *make_groups(const bp_score_table *table, int64_t count)
{
    bp_score_group *groups = bp_alloc("score.groups", count, sizeof *groups);

    for (int64_t g = 0; g < count; g++)
        groups[g].statistics =
            bp_alloc("score.groups", table->statistics->count - 1, sizeof *groups[g].statistics);
    return groups;
}

static void free_groups(bp_score_group *groups, int64_t count)
{
    for (int64_t g = 0; groups && g < count; g++)
        bp_free(groups[g].statistics);
    bp_free(groups);
}

/* The groups of a document: its file's (index -1), and for each column its value's; NULL if there
 * is none. */
static bp_score_group *group_at(const bp_score_table *table, int64_t file, int64_t document,
                                int64_t column)
{
    if (column < 0)
        return &table->files[file];
    int32_t code = table->columns[column].codes[document];

    return code >= 0 ? &table->columns[column].groups[code] : NULL;
}

void bp_score_table_add(bp_score_table *table, int64_t document, const bp_score_sums *more,
                        const bp_fixed *statistics)
{
    int64_t file = bp_score_plan_file(table->plan, document), count = table->statistics->count - 1;

    table->nll[document] += more->nll;
    table->tokens[document] += more->tokens;
    table->has_zero[document] |= more->zeros > 0;
    for (int64_t c = 0; c < count; c++)
        table->sums[document * count + c] += statistics[c];
    for (int64_t k = -1; k < table->column_count; k++) {
        bp_score_group *group = group_at(table, file, document, k);

        if (!group)
            continue;
        bp_score_sums_add(&group->sums, more);
        for (int64_t c = 0; c < count; c++)
            group->statistics[c] += statistics[c];
    }
}

static void count_documents(bp_score_table *table, const bp_score_counts *counts, int64_t file,
                            int64_t first, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const bp_score_sums one = {.documents = 1,
                                   .has_oov = table->plan->unknown >= 0,
                                   .has_zeros = table->plan->may_be_zero,
                                   .bytes = counts->has_bytes ? counts->bytes[i] : 0,
                                   .words = counts->has_words ? counts->words[i] : 0,
                                   .words_split =
                                       counts->has_words_split ? counts->words_split[i] : 0,
                                   .no_bytes = !counts->has_bytes,
                                   .no_words = !counts->has_words,
                                   .no_words_split = !counts->has_words_split};

        if (!bp_score_plan_has(table->plan, first + i))
            continue;
        for (int64_t k = -1; k < table->column_count; k++) {
            bp_score_group *group = group_at(table, file, first + i, k);

            if (group)
                bp_score_sums_add(&group->sums, &one);
        }
    }
}

bp_err bp_score_table_count(bp_score_table *table)
{
    const bp_score_plan *plan = table->plan;
    bp_score_counts *counts = bp_alloc("score.counts", 1, sizeof *counts);
    bp_err err = BP_OK;

    for (int64_t file = 0; file < plan->files; file++) {
        int64_t first = plan->first_document[file], end = plan->first_document[file + 1];

        for (; err == BP_OK && first < end; first += BP_SCORE_COUNTS) {
            int64_t count = end - first < BP_SCORE_COUNTS ? end - first : BP_SCORE_COUNTS;

            err = bp_score_counts_read(counts, plan, file, first, count);
            if (err == BP_OK)
                count_documents(table, counts, file, first, count);
        }
    }
    bp_free(counts);
    return err;
}

/* ---- all of it ---- */

bp_err bp_score_table_init(bp_score_table *table, const bp_score_plan *plan,
                           const bp_token_statistics *statistics)
{
    bp_err err = BP_OK;

    *table = (bp_score_table){.plan = plan, .statistics = statistics};
    table->nll = bp_try_alloc("score.rows", plan->documents, sizeof(*table->nll));
    table->tokens = bp_try_alloc("score.rows", plan->documents, sizeof(*table->tokens));
    table->has_zero = bp_try_alloc("score.rows", plan->documents, sizeof(*table->has_zero));
    table->sums =
        bp_try_alloc("score.rows", plan->documents * (statistics->count - 1), sizeof(*table->sums));
    if (!table->nll || !table->tokens || !table->has_zero || !table->sums)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "no memory for the sums of %" PRId64 " documents", plan->documents);
    table->files = make_groups(table, plan->files);
    for (int64_t file = 0; file < plan->files; file++) {
        int labels = bp_corpus_file_info(bp_corpus_file_at(plan->corpus, file))->labels;

        for (int k = 0; err == BP_OK && k < labels; k++)
            err = load_label(table, file, k);
    }
    for (int64_t c = 0; c < table->column_count; c++)
        table->columns[c].groups = make_groups(table, table->columns[c].value_count);
    return err;
}

void bp_score_table_clear(bp_score_table *table)
{
    for (int64_t i = 0; i < table->column_count; i++) {
        bp_score_column *column = &table->columns[i];

        for (int64_t k = 0; k < column->value_count; k++)
            bp_free(column->values[k]);
        free_groups(column->groups, column->value_count);
        bp_free(column->values);
        bp_free(column->codes);
        bp_free(column->name);
    }
    bp_free(table->columns);
    free_groups(table->files, table->plan ? table->plan->files : 0);
    bp_free(table->sums);
    bp_free(table->has_zero);
    bp_free(table->tokens);
    bp_free(table->nll);
    *table = (bp_score_table){0};
}

/* ---- one document ---- */

bp_err bp_score_counts_read(bp_score_counts *out, const bp_score_plan *plan, int64_t file,
                            int64_t first, int64_t count)
{
    bp_corpus_file *corpus = bp_corpus_file_at(plan->corpus, file);
    const bp_corpus_info *info = bp_corpus_file_info(corpus);

    out->has_bytes = out->has_words = out->has_words_split = false;
    if (plan->rule.convention == BP_SCORE_PAIRS) /* they count both texts */
        return BP_OK;
    out->has_bytes = info->has_bytes;
    out->has_words = info->has_words;
    out->has_words_split = info->has_words_split;
    return bp_corpus_file_read_counts(corpus, first - plan->first_document[file], count, out->bytes,
                                      out->words, out->words_split);
}

double bp_score_document_nll(const bp_score_table *table, int64_t document)
{
    return table->has_zero[document] ? INFINITY : bp_fixed_real(table->nll[document]);
}

const bp_fixed *bp_score_document_statistics(const bp_score_table *table, int64_t document)
{
    return table->sums + document * (table->statistics->count - 1);
}
