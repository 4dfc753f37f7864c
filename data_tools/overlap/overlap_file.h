/* overlap.h5, and reading its figures. */
#pragma once

#include "overlap_run.h"

/** Writes the complete file or none. Errors: those of bp_h5_draft_begin and bp_h5_draft_commit. */
bp_err overlap_save(const overlap *self, const char *path);
/** The same as JSON: figures of all documents, and the documents that are not clean. */
bp_err overlap_save_json(const overlap *self, const char *path);

/** Figures of all documents. */
typedef struct overlap_totals {
    int64_t documents, too_short, clean, overlapping; /* too_short: without an n-gram */
    int64_t words, grams, matched;
} overlap_totals;
overlap_totals overlap_total(const overlap *self);
