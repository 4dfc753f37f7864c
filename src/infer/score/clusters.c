/* Clusters of documents (score.cluster): found when corpora are open, named in the results. Called
 * by setup.c, loop.c, score.c and task/report.c. */
#include "infer/score/scorer.h"

#include "base/buffer.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/clusters.h"
#include "statistics/clusters.h"
#include "statistics/inference.h"

#include <inttypes.h>
#include <string.h>

bp_err scorer_find_clusters(scorer *self)
{
    const char *label = bp_score_keys_of(self->config)->cluster;

    if (!label || self->method || !self->mesh->coordinates)
        return BP_OK;
    return bp_corpus_clusters(&self->clusters, self->corpus, label, NULL, 0);
}

void scorer_record_clusters(const scorer *self, json_t *summary, int64_t clusters)
{
    if (!self->clusters)
        return;
    (void)json_object_set_new(summary, "cluster",
                              bp_json_string(bp_score_keys_of(self->config)->cluster));
    (void)json_object_set_new(summary, "clusters", json_integer((json_int_t)clusters));
}

json_t *scorer_page_cluster(const scorer *self)
{
    if (!self->clusters)
        return json_null();
    return json_pack("{s:O, s:O}", "label", json_object_get(self->summary, "cluster"), "clusters",
                     json_object_get(self->summary, "clusters"));
}

/* Note a label whose values documents share, two or more each on average, and which is not one that
 * figures are given by (genres): documents of a value may depend on each other. */
static void hint(const scorer *self)
{
    bp_corpus_file *file = bp_corpus_file_at(self->corpus, 0);
    const bp_corpus_info *info = bp_corpus_file_info(file);
    bp_corpus_label label;

    for (int k = 0; k < info->labels && bp_corpus_file_label(file, k, &label) == BP_OK; k++) {
        if (scorer_shows_label(label.value_count, info->documents) ||
            2 * label.value_count > info->documents ||
            (self->predicted && strcmp(label.name, self->predicted) == 0))
            continue;
        bp_log("%" PRId64 " documents share %" PRId64 " values of '%s': if those of one value "
               "depend on each other (passages of a book), score.cluster=%s makes intervals that "
               "allow for it",
               info->documents, label.value_count, label.name, label.name);
        return;
    }
}

void scorer_report_clusters(const scorer *self)
{
    int64_t clusters = json_integer_value(json_object_get(self->summary, "clusters"));

    if (self->method)
        return;
    if (!self->clusters) {
        if (self->page) /* not of out-of-bag scores */
            hint(self);
        return;
    }
    bp_log("intervals and standard errors are over clusters of documents, those with one value of "
           "the label %s: %" PRId64 " clusters%s",
           bp_score_keys_of(self->config)->cluster, clusters,
           clusters < BP_FEW_DOCUMENTS ? ", too few for intervals" : "");
}
