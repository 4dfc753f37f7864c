/* How good the texts are that a model is most sure of. */
#ifndef BP_DATA_TOOLS_METRICS_COVERAGE_H
#define BP_DATA_TOOLS_METRICS_COVERAGE_H

#include "metrics_files.h"
#include "statistics/metric.h"

/** For texts that generate wrote: {ORDER: {"coverage": [...], FIGURE: [...], ...}, ...}, the
 * figures of the documents with the highest log-probability a token ("logprob"), and of an ensemble
 * with the lowest mutual information a token, for each twentieth of them. NULL: the file is
 * another. New reference. Source: El-Yaniv and Wiener 2010, risk and coverage; the figures are of
 * sets. */
json_t *metrics_coverage(const bp_metric *metric, const void *answers, const answer_file *file);

#endif
