/* The quality of the texts of which a model is most certain. */
#pragma once

#include "metrics_files.h"
#include "statistics/metric.h"

/** For texts written by generate: {ORDER: {"coverage": [...], FIGURE: [...], ...}, ...}, the
 * figures of the documents with the highest log-probability per token ("logprob") and, for an
 * ensemble, the lowest mutual information per token, for each twentieth of them, and of 10 to
 * 20,000 documents FIGURE_low and FIGURE_high, the ends of 95 % intervals: of each resample of
 * documents the surest ones. *out is a new reference; NULL for another file. Errors: BP_ERR_SYSTEM
 * memory. Source: El-Yaniv and Wiener 2010, risk and coverage; the figures are of sets. */
bp_err metrics_coverage(json_t **out, const bp_metric *metric, const void *answers,
                        const answer_file *file, uint64_t seed);
