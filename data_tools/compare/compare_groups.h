/* bagpipe-data compare RUN --between LABEL: which documents of one score folder are harder? */
#pragma once

#include "table/scores.h"

/** Print the figures of each value of a label, the hardest first, and of each pair of values how
 * much harder the first is, with an interval and p between documents; into `csv` too, if it is not
 * NULL. The label "corpus", if the scores have none of that name, is the corpus. `figure` is one of
 * score_figure_names; NULL: perplexity. With `clean`, an overlap.h5, overlapping documents do not
 * count.
 *
 * Errors: BP_ERR_USAGE no such figure; BP_ERR_FORMAT no such label, fewer than two values or
 *         more than 1,000, or the scores lack the figure; those of clean_part_add; BP_ERR_IO,
 * BP_ERR_SYSTEM. */
bp_err compare_groups(score_folder *scores, const char *label, const char *figure,
                      const char *clean, const char *csv);
