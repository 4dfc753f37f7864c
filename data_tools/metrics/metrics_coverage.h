/* The quality of the texts of which a model is most certain. */
#ifndef BP_DATA_TOOLS_METRICS_COVERAGE_H
#define BP_DATA_TOOLS_METRICS_COVERAGE_H

#include "metrics_files.h"
#include "statistics/metric.h"

/** For texts written by generate: {ORDER: {"coverage": [...], FIGURE: [...], ...}, ...}, the
 * figures of the documents with the highest log-probability per token ("logprob") and, for an
 * ensemble, the lowest mutual information per token, for each twentieth of them. NULL for another
 * file. New reference. Source: El-Yaniv and Wiener 2010, risk and coverage; the figures are of
 * sets. */
json_t *metrics_coverage(const bp_metric *metric, const void *answers, const answer_file *file);

#endif
