/* Mean scores of the documents of each group, such as mutual information, with intervals. Called by
 * analysis.c. */
#include "uncertainty/results/results.h"

#include "base/mem.h"
#include "statistics/clusters.h"
#include "statistics/ratio.h"

/* Over clusters: the sums of their documents, which weigh alike. */
static comparison_value mean_of(const double *means, const comparison_group *group,
                                const int64_t *local, int64_t clusters)
{
    int64_t n = group->document_count;
    double *sums = bp_alloc("comparison.means", 2 * n, sizeof *sums), *counts = sums + n;
    bp_ratio ratio = {0};

    for (int64_t k = 0; k < n; k++) {
        sums[k] = means[group->documents[k]];
        counts[k] = 1;
    }
    bp_clusters_sum(sums, local, n, clusters);
    bp_clusters_sum(counts, local, n, clusters);
    for (int64_t c = 0; c < clusters; c++)
        bp_ratio_add(&ratio, sums[c], counts[c]);
    bp_free(sums);
    bp_interval interval = bp_ratio_interval(&ratio);
    return (comparison_value){bp_ratio_mean(&ratio), interval.low, interval.high};
}

void comparison_find_means(comparison_result *out, const comparison_scores *scores,
                           const comparison_analysis_spec *spec, int64_t *const *local,
                           const int64_t *clusters)
{
    int64_t groups = 1 + spec->shifted->count;

    out->means = bp_alloc("comparison.means", groups * COMPARISON_SCORES, sizeof *out->means);
    for (int64_t g = 0; g < groups; g++) {
        const comparison_group *group = g == 0 ? spec->in_domain : &spec->shifted->items[g - 1];

        for (int c = 0; c < COMPARISON_SCORES; c++)
            if (out->has[c])
                out->means[g * COMPARISON_SCORES + c] =
                    mean_of(scores->means[c], group, local[g], clusters[g]);
    }
}
