/* Clusters of documents that share a label's value: those of the domain, and which of them other
 * texts have too. Called by setup.c. */
#include "uncertainty/comparison/comparison.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/sort.h"
#include "data/clusters.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bp_err comparison_corpora_cluster(int64_t **cluster, const comparison_corpora *corpora,
                                  const comparison_group *in_domain, const char *label)
{
    bp_corpus *corpus = NULL;
    bp_err err = bp_corpus_open(&corpus, corpora->list);

    *cluster = NULL;
    if (err == BP_OK)
        err = bp_corpus_clusters(cluster, corpus, label, in_domain->documents,
                                 in_domain->document_count);
    bp_corpus_close(&corpus);
    return err;
}

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
    bp_err err = bp_corpus_find_label(labels, corpus, name);

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
