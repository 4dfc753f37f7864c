/* Clusters among the documents of a group. Called by analysis.c, results.c and sets.c. */
#include "uncertainty/results/results.h"

#include "base/mem.h"

/* One more than the largest number of a cluster among these documents. */
static int64_t count_numbers(const int64_t *cluster, const int64_t *documents, int64_t count)
{
    int64_t most = -1;

    for (int64_t k = 0; k < count; k++) {
        int64_t number = cluster[documents[k]];

        most = number > most ? number : most;
    }
    return most + 1;
}

int64_t comparison_clusters_of(int64_t *local, const int64_t *cluster,
                               const comparison_group *group)
{
    int64_t n = group->document_count, numbers, clusters = 0;
    int64_t *place; /* [numbers] one more than the local number; 0: not seen yet */

    if (!cluster) {
        for (int64_t k = 0; k < n && local; k++)
            local[k] = k;
        return n;
    }
    numbers = count_numbers(cluster, group->documents, n);
    place = bp_alloc("comparison.clusters", numbers, sizeof *place);
    for (int64_t k = 0; k < n; k++) {
        int64_t number = cluster[group->documents[k]];

        if (place[number] == 0)
            place[number] = ++clusters;
        if (local)
            local[k] = place[number] - 1;
    }
    bp_free(place);
    return clusters;
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
