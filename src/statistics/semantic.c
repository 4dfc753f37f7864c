/* Clusters of meaning. */
#include "statistics/semantic.h"

#include "base/mem.h"

#include <math.h>

int64_t bp_semantic_clusters(int64_t *cluster, int64_t n, bp_semantic_same same, void *context)
{
    int64_t *first = bp_alloc("statistics.semantic", n, sizeof *first), clusters = 0;
    bool *found = bp_alloc("statistics.semantic", n, sizeof *found), works = true;

    for (int64_t k = 0; k < n && works; k++) {
        works = clusters == 0 || same(context, k, first, clusters, found);
        cluster[k] = 0;
        while (works && cluster[k] < clusters && !found[cluster[k]])
            cluster[k]++;
        if (cluster[k] == clusters)
            first[clusters++] = k;
    }
    bp_free(found);
    bp_free(first);
    return works ? clusters : -1;
}

double bp_semantic_entropy(const int64_t *cluster, int64_t clusters, const double *logprob,
                           const int64_t *tokens, int64_t n)
{
    double *mass = bp_alloc("statistics.semantic", clusters, sizeof *mass);
    double most = -INFINITY, sum = 0, entropy = 0;

    for (int64_t k = 0; logprob && k < n; k++)
        most = fmax(most, logprob[k] / (double)(tokens[k] > 0 ? tokens[k] : 1));
    for (int64_t k = 0; k < n; k++) {
        double weight =
            logprob ? exp(logprob[k] / (double)(tokens[k] > 0 ? tokens[k] : 1) - most) : 1;

        mass[cluster[k]] += weight;
        sum += weight;
    }
    for (int64_t c = 0; c < clusters; c++)
        entropy -= mass[c] > 0 ? mass[c] / sum * log(mass[c] / sum) : 0;
    bp_free(mass);
    return fmax(0, entropy);
}
