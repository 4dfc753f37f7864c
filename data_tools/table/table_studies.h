/* Studies of uncertainty as a table. */
#pragma once

#include "file_tool.h"

/** Is it the run folder of an uncertainty job, its uncertainty/ folder, or NAME= and one of
 * them? */
bool table_is_of_studies(const char *given);

/** Print the figures of each method, with 95 % intervals; --figure: some of them with commas, or of
 * numbers without an interval (temperature), auroc, aupr, fpr95 by shift and score, and sets,
 * coverage, size of conformal sets.
 *  Errors: BP_ERR_INPUT a study that is not complete; BP_ERR_FORMAT a file that is not a study's;
 *          BP_ERR_USAGE another form or figure. */
bp_err table_of_studies(char *const *folders, int count, const file_options *options);
