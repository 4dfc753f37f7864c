/* Marks the clean documents of scores, by overlap.h5 (bagpipe-data overlap). */
#pragma once

#include "table/scores.h"

#include <stdbool.h>

#define CLEAN_LABEL "overlap"

/** Which documents overlap, and how many of those that were scored. */
typedef struct clean_part {
    const score_label *label; /* in the folder's labels, until another one is added */
    int64_t documents, overlapping, too_short;
    int64_t words; /* of an n-gram */
} clean_part;

/** Add the label CLEAN_LABEL, whose values are "clean", "overlapping" and "too_short" (fewer words
 * than an n-gram has). Documents are matched by order if all ids are equal, else by id.
 *
 * Errors: BP_ERR_FORMAT damaged, another kind of file, a missing document, a duplicate id, or an
 *         existing label of that name; those of bp_user_block_verify. */
bp_err clean_part_add(clean_part *part, score_folder *scores, const char *path);

/** Does the document count? All but overlapping ones do. `part` may be NULL, or have no label: all
 * documents count. */
bool clean_part_has(const clean_part *part, int64_t document);

/** How many documents are left out, and how many could not be examined, as a sentence without its
 * full stop. bp_free(). */
char *clean_part_note(const clean_part *part);
