/* Score runs side by side. */
#pragma once

#include "file_tool.h"

/** Is it the run folder of a score job, its score/ folder, or NAME= and one of them? */
bool table_is_of_scores(const char *given);

/** Print the figures of each model on each corpus and label value, with 95 % intervals.
 *  Errors: those of score_folder_load; BP_ERR_USAGE another form or figure. */
bp_err table_of_scores(char *const *folders, int count, const file_options *options);
