/* The figures of a comparison of files as lines to read. */
#pragma once

#include "base/config/json.h"
#include "statistics/metric.h"

#include <stdio.h>

/** Print one line per figure of "figures" of `root`, with its interval; for two systems also
 * "against" and "difference". */
void metrics_print(FILE *out, const json_t *root, const bp_metric *metric);
