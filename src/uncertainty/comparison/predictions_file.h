/* Predictions made by another program: probabilities by outcome, one row per prediction. NumPy's
 * .npy (format versions 1 to 3, little-endian float32 or float64 in C order, [rows][outcomes] or
 * [members][rows][outcomes]) or CSV (RFC 4180; one column per outcome, named in the first line).
 * Local.
 */
#ifndef BP_UNCERTAINTY_COMPARISON_PREDICTIONS_FILE_H
#define BP_UNCERTAINTY_COMPARISON_PREDICTIONS_FILE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bp_predictions {
    int64_t members, rows, outcomes;
    double *p;    /* [members][rows][outcomes]; rows sum to 1 */
    char **names; /* [outcomes] of a CSV's columns; NULL for .npy */
} bp_predictions;

/** Does the name end with .npy or .csv? */
bool bp_predictions_are_at(const char *path);

/** Parse a file's bytes; the name `path`, which messages quote, determines the format. Each
 * probability is within [0, 1], and rows sum to 1 within 1e-3 (they are then scaled to sum to 1).
 *
 * Owns:       *out is the caller's, bp_predictions_clear(), after an error too.
 * Errors:     BP_ERR_FORMAT; BP_ERR_SYSTEM. */
bp_err bp_predictions_parse(bp_predictions *out, const char *bytes, size_t count, const char *path);
/** The same for a file. Errors: also those of bp_file_read. */
bp_err bp_predictions_read(bp_predictions *out, const char *path);
void bp_predictions_clear(bp_predictions *predictions);

/** Put a CSV's columns into the order of these outcomes; if columns have no names, only their
 * number is compared. Errors: BP_ERR_FORMAT an unknown, missing or duplicate outcome, or a
 * different number of them. */
bp_err bp_predictions_sort(bp_predictions *predictions, const char *const *outcomes, int64_t count,
                           const char *path);

#endif
