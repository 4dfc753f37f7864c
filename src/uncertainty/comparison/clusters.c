/* Clusters of documents that share a label's value, for intervals. Called by setup.c. */
#include "uncertainty/comparison/comparison.h"

#include "base/buffer.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sort.h"
#include "data/corpus.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A value of the label in a file. */
typedef struct file_value {
    const char *text;
    int64_t file, code, cluster;
} file_value;

static int by_text(const void *a, const void *b)
{
    const file_value *x = a, *y = b;

    return strcmp(x->text, y->text);
}

static int by_place(const void *a, const void *b)
{
    const file_value *x = a, *y = b;

    return x->file != y->file ? (x->file > y->file) - (x->file < y->file)
                              : (x->code > y->code) - (x->code < y->code);
}

/* The label of each file; codes NULL: it has none. */
static bp_err find_labels(bp_corpus_label *labels, bp_corpus *corpus, const char *name)
{
    bp_err err = BP_OK;

    for (int64_t f = 0; f < bp_corpus_files(corpus) && err == BP_OK; f++) {
        bp_corpus_file *file = bp_corpus_file_at(corpus, f);

        for (int k = 0; k < bp_corpus_file_info(file)->labels && err == BP_OK; k++) {
            bp_corpus_label label;

            err = bp_corpus_file_label(file, k, &label);
            if (err == BP_OK && strcmp(label.name, name) == 0)
                labels[f] = label;
        }
    }
    return err;
}

/* A file of the domain has the label: else it is refused with those that there are. */
static bp_err check_label(bp_corpus *corpus, const bp_corpus_label *labels,
                          const comparison_group *in_domain, const char *name)
{
    int64_t file = 0, end = 0;
    bp_buffer known = {0};
    bp_err err = BP_OK;

    for (int64_t k = 0; k < in_domain->document_count && err == BP_OK; k++) {
        while (in_domain->documents[k] >= end)
            end += bp_corpus_file_info(bp_corpus_file_at(corpus, file++))->documents;
        if (labels[file - 1].codes)
            continue;
        bp_corpus_file *lacks = bp_corpus_file_at(corpus, file - 1);

        for (int l = 0; l < bp_corpus_file_info(lacks)->labels && err == BP_OK; l++) {
            bp_corpus_label label;

            err = bp_corpus_file_label(lacks, l, &label);
            if (err == BP_OK)
                bp_buffer_printf(&known, " %s", label.name);
        }
        if (err == BP_OK)
            err = BP_FAIL(BP_ERR_FORMAT, "label.unknown", "there is no label '%s': at %s; it has%s",
                          name, bp_corpus_file_path(lacks), known.bytes > 0 ? known.data : " none");
    }
    bp_buffer_clear(&known);
    return err;
}

/* Values of one text in several files are one cluster. Returns how many clusters there are. */
static int64_t number_values(file_value *values, int64_t count)
{
    int64_t clusters = 0;

    qsort(values, (size_t)count, sizeof *values, by_text);
    for (int64_t k = 0; k < count; k++)
        values[k].cluster =
            k > 0 && strcmp(values[k].text, values[k - 1].text) == 0 ? clusters - 1 : clusters++;
    qsort(values, (size_t)count, sizeof *values, by_place);
    return clusters;
}

static void number_documents(int64_t *cluster, bp_corpus *corpus, const bp_corpus_label *labels)
{
    int64_t files = bp_corpus_files(corpus), count = 0, next, at = 0, document = 0;
    file_value *values;

    for (int64_t f = 0; f < files; f++)
        count += labels[f].codes ? labels[f].value_count : 0;
    values = bp_alloc("comparison.clusters", count, sizeof *values);
    for (int64_t f = 0; f < files; f++)
        for (int64_t v = 0; labels[f].codes && v < labels[f].value_count; v++)
            values[at++] = (file_value){labels[f].values[v], f, v, 0};
    next = count > 0 ? number_values(values, count) : 0;
    at = 0;
    for (int64_t f = 0; f < files; f++) {
        const bp_corpus_label *label = &labels[f];

        for (int64_t d = 0; d < bp_corpus_file_info(bp_corpus_file_at(corpus, f))->documents; d++) {
            const file_value *value = label->codes ? &values[at + label->codes[d]] : NULL;

            cluster[document++] = value && value->text[0] ? value->cluster : next++;
        }
        at += label->codes ? label->value_count : 0;
    }
    bp_free(values);
}

bp_err comparison_corpora_cluster(int64_t **cluster, const comparison_corpora *corpora,
                                  const comparison_group *in_domain, const char *label)
{
    bp_corpus_label *labels = bp_alloc("comparison.clusters", corpora->files, sizeof *labels);
    bp_corpus *corpus = NULL;
    bp_err err = bp_corpus_open(&corpus, corpora->list);

    *cluster = NULL;
    if (err == BP_OK)
        err = find_labels(labels, corpus, label);
    if (err == BP_OK)
        err = check_label(corpus, labels, in_domain, label);
    if (err == BP_OK) {
        *cluster = bp_alloc("comparison.clusters", corpora->documents, sizeof **cluster);
        number_documents(*cluster, corpus, labels);
    }
    bp_corpus_close(&corpus);
    bp_free(labels);
    return err;
}

/* ---- clusters of the domain that other texts have too ---- */

/* Values of a label that documents have, in order, each once; they borrow from an open corpus. */
typedef struct value_set {
    const char **values; /* [count] */
    int64_t count, capacity;
} value_set;

static void add_value(value_set *set, const bp_corpus_label *label, int64_t document)
{
    const char *value = label->codes ? label->values[label->codes[document]] : "";

    if (!value[0])
        return;
    if (set->count == set->capacity) {
        set->capacity = set->capacity ? 2 * set->capacity : 64;
        set->values =
            bp_realloc("comparison.clusters", set->values, set->capacity, sizeof *set->values);
    }
    set->values[set->count++] = value;
}

static void sort_values(value_set *set)
{
    int64_t kept = 0;

    if (set->count == 0)
        return;
    qsort(set->values, (size_t)set->count, sizeof *set->values, bp_by_text);
    for (int64_t k = 0; k < set->count; k++)
        if (kept == 0 || strcmp(set->values[kept - 1], set->values[k]) != 0)
            set->values[kept++] = set->values[k];
    set->count = kept;
}

/* The values of all documents, or of those of a group only. */
static bp_err collect_values(value_set *set, bp_corpus *corpus, const comparison_group *group,
                             const char *name)
{
    int64_t files = bp_corpus_files(corpus), first = 0, k = 0;
    bp_corpus_label *labels = bp_alloc("comparison.clusters", files, sizeof *labels);
    bp_err err = find_labels(labels, corpus, name);

    for (int64_t f = 0; f < files && err == BP_OK; f++) {
        int64_t documents = bp_corpus_file_info(bp_corpus_file_at(corpus, f))->documents;

        for (int64_t d = 0; !group && d < documents; d++)
            add_value(set, &labels[f], d);
        for (; group && k < group->document_count && group->documents[k] < first + documents; k++)
            add_value(set, &labels[f], group->documents[k] - first);
        first += documents;
    }
    bp_free(labels);
    sort_values(set);
    return err;
}

static void warn_of_shared(const value_set *domain, const char *key, const char *list,
                           const char *label)
{
    bp_corpus *corpus = NULL;
    value_set other = {0};
    int64_t shared = 0;
    const char *first = NULL;

    if (list && bp_corpus_open(&corpus, list) == BP_OK &&
        collect_values(&other, corpus, NULL, label) == BP_OK)
        for (int64_t a = 0, b = 0; a < domain->count && b < other.count;) {
            int order = strcmp(domain->values[a], other.values[b]);

            if (order == 0) {
                first = first ? first : domain->values[a];
                shared++;
            }
            a += order <= 0;
            b += order >= 0;
        }
    if (shared > 0)
        BP_WARN("comparison.shared_clusters",
                "%" PRId64 " of %" PRId64 " values of '%s' in uncertainty.in_domain, such as "
                "'%.100s', are in %s too, where figures are better than of new ones: at %s; split "
                "the texts by that label",
                shared, domain->count, label, first, key, list);
    bp_free(other.values);
    bp_corpus_close(&corpus);
}

void comparison_corpora_warn_of_clusters(const comparison_corpora *corpora,
                                         const comparison_group *in_domain, const char *label,
                                         const char *train, const char *valid)
{
    bp_corpus *corpus = NULL;
    value_set domain = {0};

    if (bp_corpus_open(&corpus, corpora->list) == BP_OK &&
        collect_values(&domain, corpus, in_domain, label) == BP_OK) {
        warn_of_shared(&domain, "corpus.train", train, label);
        warn_of_shared(&domain, "corpus.valid", valid, label);
    }
    bp_free(domain.values);
    bp_corpus_close(&corpus);
}
