/* Plots of trainings: a page, or a picture, of one run or of several in the same axes. Local: no
 * MPI, no lock; the run folders are only read. */
#pragma once

#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

/** Write the page of `count` runs to `path`: plots over steps, tokens and hours, final figures, and
 * the keys that differ.
 *
 * *notice: why the page has no plots (no gnuplot), or NULL. The caller's, bp_free().
 * Errors:     those of bp_history_read and bp_report_page; BP_ERR_FORMAT no run has logged a
 *             step. */
bp_err bp_training_page(const char *path, const char *const *folders, int64_t count, char **notice);

/** The page at the end of a training, FOLDER/index.html: of a new run; of one that was finished
 * before, only if its page is missing and the templates exist, with a line in the log. A failure is
 * a warning. */
void bp_training_keep_page(const char *folder, bool is_new);

/** Write the plots to `path` as SVG, or as PNG. x: "steps", "tokens" or "hours".
 *
 * Errors:     those of bp_history_read, bp_gnuplot and bp_file_write; BP_ERR_FORMAT no run has
 *             logged a step. */
bp_err bp_training_picture(const char *path, const char *const *folders, int64_t count,
                           const char *x, bool png);
