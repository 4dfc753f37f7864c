/* Clusters among the documents of a group. Called by analysis.c, results.c and sets.c. */
#include "uncertainty/results/results.h"

#include "base/mem.h"
#include "statistics/clusters.h"

int64_t comparison_clusters_of(int64_t *local, const int64_t *cluster,
                               const comparison_group *group)
{
    return bp_clusters_of(local, cluster, group->documents, group->document_count);
}

bp_calibration *comparison_clusters_merge(const bp_calibration *documents, const int64_t *local,
                                          int64_t n, int64_t clusters)
{
    bp_calibration *sorted = bp_alloc("comparison.clusters", n, sizeof *sorted),
                   *out = bp_alloc("comparison.clusters", clusters, sizeof *out);
    int64_t *start = bp_alloc("comparison.clusters", clusters + 1, sizeof *start);

    for (int64_t k = 0; k < n; k++)
        start[local[k] + 1]++;
    for (int64_t c = 0; c < clusters; c++)
        start[c + 1] += start[c];
    for (int64_t k = 0; k < n; k++)
        sorted[start[local[k]]++] = documents[k]; /* each start becomes its end */
    for (int64_t c = 0; c < clusters; c++) {
        int64_t first = c > 0 ? start[c - 1] : 0;

        out[c] = bp_calibration_of(sorted + first, NULL, start[c] - first);
    }
    bp_free(start);
    bp_free(sorted);
    return out;
}
