/* Predictions made by another program: probabilities by outcome, one row per prediction. NumPy's
 * .npy (format versions 1 to 3, little-endian float32 or float64 in C order, [rows][outcomes] or
 * [members][rows][outcomes]) or CSV (RFC 4180; one column per outcome, named in the first line,
 * perhaps doc_id; or bagpipe's own predictions.csv, docs/formats.md).
 * Local.
 */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The outcomes of the models that predictions are compared with, in their order. Borrowed. */
typedef struct bp_outcome_names {
    const char *const *names; /* NULL: words, which have no names here */
    int64_t count;            /* 0: unknown */
} bp_outcome_names;

typedef struct bp_predictions {
    int64_t members, rows, outcomes;
    double *p;        /* [members][rows][outcomes], outcomes in the models' order; rows sum to 1 */
    char **documents; /* [rows] doc_id, if a CSV has such a column; else NULL */
    int64_t document_count; /* elements of `documents` to free */
} bp_predictions;

/** Does the name end with .npy or .csv? */
bool bp_predictions_are_at(const char *path);

/** Parse a file's bytes; the name `path`, which messages quote, determines the format. Each
 * probability is within [0, 1], and rows sum to 1 within 1e-3 (they are then scaled to sum to 1).
 * The first line of a CSV is checked before its rows.
 *
 * Owns:       *out is the caller's, bp_predictions_clear(), after an error too.
 * Errors:     BP_ERR_FORMAT, also an unknown, missing or duplicate outcome, or a different number
 *             of them; BP_ERR_SYSTEM. */
bp_err bp_predictions_parse(bp_predictions *out, const char *bytes, size_t count, const char *path,
                            bp_outcome_names outcomes);
/** The same for a file. Errors: also those of bp_file_read. */
bp_err bp_predictions_read(bp_predictions *out, const char *path, bp_outcome_names outcomes);
void bp_predictions_clear(bp_predictions *predictions);
