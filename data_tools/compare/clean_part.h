/* Marks the clean documents of scores, by overlap.h5 (bagpipe-data overlap). */
#ifndef BP_DATA_TOOLS_CLEAN_PART_H
#define BP_DATA_TOOLS_CLEAN_PART_H

#include "table/scores.h"

#define CLEAN_LABEL "overlap"
#define CLEAN_VALUE "clean"

/** Add the label CLEAN_LABEL, whose values are CLEAN_VALUE, "overlapping" and "too_short" (no
 * n-gram). Documents are matched by order if all ids are equal, else by id.
 *
 * Errors: BP_ERR_FORMAT damaged, another kind of file, a missing document, a duplicate id, or an
 *         existing label of that name; those of bp_user_block_verify. */
bp_err clean_part_add(score_folder *scores, const char *path);

#endif
