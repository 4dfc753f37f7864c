/* Which rows of scores belong to a group: a corpus, or the values of a label. Called by
 * table_scores.c and compare/comparison.c. */
#include "score_groups.h"

#include "base/mem.h"
#include "statistics/clusters.h"

int64_t score_clusters_sum(double *const *columns, int width, const int64_t *cluster, int64_t count)
{
    int64_t *local, clusters;

    if (!cluster)
        return count;
    local = bp_alloc("tool.clusters", count, sizeof *local);
    clusters = bp_clusters_of(local, cluster, NULL, count);
    for (int c = 0; c < width; c++)
        bp_clusters_sum(columns[c], local, count, clusters);
    bp_free(local);
    return clusters;
}

const char *score_scope_name(score_scope scope)
{
    static const char *const names[] = {"all", "corpus", "label"};

    return names[scope];
}

/* Documents sorted by their code, those without one first; code v has [begins[v], begins[v + 1]).
 */
static void sort_by_code(int64_t *sorted, int64_t *begins, const score_label *label, int64_t n)
{
    for (int64_t v = 0; v <= label->value_count + 1; v++)
        begins[v] = 0;
    for (int64_t d = 0; d < n; d++)
        begins[label->codes[d] + 1]++; /* where each ends, for now in its own place */
    for (int64_t v = 1; v <= label->value_count; v++)
        begins[v] += begins[v - 1];
    for (int64_t d = n - 1; d >= 0; d--)
        sorted[--begins[label->codes[d] + 1]] = d;
    /* begins[v + 1] is now where code v begins */
    for (int64_t v = 0; v < label->value_count; v++)
        begins[v] = begins[v + 1];
    begins[label->value_count] = n;
}

typedef struct caller {
    bp_err (*each)(void *self, const score_group *group);
    void *self;
} caller;

static bp_err each_value(const score_folder *scores, const score_label *label, int64_t *sorted,
                         const caller *to)
{
    int64_t *begins = bp_alloc("tool.groups", label->value_count + 2, sizeof *begins);
    bp_err err = BP_OK;

    sort_by_code(sorted, begins, label, scores->documents);
    for (int64_t v = 0; v < label->value_count && err == BP_OK; v++)
        err = to->each(to->self, &(score_group){SCOPE_LABEL, label->name, label->values[v],
                                                sorted + begins[v], begins[v + 1] - begins[v]});
    bp_free(begins);
    return err;
}

bp_err score_groups_each(const score_folder *scores,
                         bp_err (*each)(void *self, const score_group *group), void *self)
{
    const int64_t *start = scores->corpus_start;
    int64_t *list = bp_alloc("tool.groups", scores->documents, sizeof *list);
    const caller to = {each, self};
    bp_err err;

    for (int64_t d = 0; d < scores->documents; d++)
        list[d] = d;
    err = each(self, &(score_group){SCOPE_ALL, NULL, NULL, list, scores->documents});
    for (int64_t k = 0; k < scores->corpora && err == BP_OK; k++)
        err = each(self, &(score_group){SCOPE_CORPUS, scores->corpus_names[k], NULL,
                                        list + start[k], start[k + 1] - start[k]});
    for (int64_t k = 0; k < scores->label_count && err == BP_OK; k++)
        err = each_value(scores, &scores->labels[k], list, &to);
    bp_free(list);
    return err;
}
