/* Clusters among some documents, and sums over them. */
#include "statistics/clusters.h"

#include "base/mem.h"

#include <string.h>

static int64_t document_at(const int64_t *documents, int64_t k)
{
    return documents ? documents[k] : k;
}

/* One more than the largest number of a cluster among these documents. */
static int64_t count_numbers(const int64_t *cluster, const int64_t *documents, int64_t count)
{
    int64_t most = -1;

    for (int64_t k = 0; k < count; k++) {
        int64_t number = cluster[document_at(documents, k)];

        most = number > most ? number : most;
    }
    return most + 1;
}

int64_t bp_clusters_of(int64_t *local, const int64_t *cluster, const int64_t *documents,
                       int64_t count)
{
    int64_t clusters = 0;
    int64_t *place; /* [numbers] one more than the local number; 0: not seen yet */

    if (!cluster) {
        for (int64_t k = 0; k < count && local; k++)
            local[k] = k;
        return count;
    }
    place =
        bp_alloc("statistics.clusters", count_numbers(cluster, documents, count), sizeof *place);
    for (int64_t k = 0; k < count; k++) {
        int64_t number = cluster[document_at(documents, k)];

        if (place[number] == 0)
            place[number] = ++clusters;
        if (local)
            local[k] = place[number] - 1;
    }
    bp_free(place);
    return clusters;
}

void bp_clusters_sum(double *values, const int64_t *local, int64_t documents, int64_t clusters)
{
    double *sums = bp_alloc("statistics.clusters", clusters, sizeof *sums);

    for (int64_t d = 0; d < documents; d++)
        sums[local[d]] += values[d];
    if (clusters > 0)
        memcpy(values, sums, (size_t)clusters * sizeof *sums);
    bp_free(sums);
}
