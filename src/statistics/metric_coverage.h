/* The figures of the texts of which a model is most certain: risk and coverage of a metric of a
 * set, such as BLEU. Local: no MPI. */
#pragma once

#include "statistics/metric.h"

/** Ways to order texts: by log-probability, and by minus mutual information, per token. */
#define BP_CERTAINTIES 2

/** {ORDER: {"coverage": [...], FIGURE: [...], ...}, ...}, ORDER "logprob" and "mutual_information":
 * the figures of the documents with the largest certainty[ORDER] [documents] (NULL: left out; of
 * those alike the first ones), for each twentieth of them, and of BP_FEW_DOCUMENTS to 20,000
 * documents FIGURE_low and FIGURE_high, the ends of 95 % intervals: of each resample of documents
 * the surest ones. *out is a new reference; NULL without an order. Errors: BP_ERR_SYSTEM memory.
 * Source: El-Yaniv and Wiener 2010, risk and coverage; the figures are of sets. */
bp_err bp_metric_coverage(json_t **out, const bp_metric *metric, const void *answers,
                          const double *const certainty[BP_CERTAINTIES], int64_t documents,
                          uint64_t seed);
