/* How a tokenizer.json frames two texts. */
#ifndef BP_DATA_TOOLS_IMPORT_PAIRS_H
#define BP_DATA_TOOLS_IMPORT_PAIRS_H

#include "base/config/json.h"

/** The "model" object of a task's checkpoint follows the template of two texts in the
 * tokenizer.json at `path`: its members begins, unframed, one_segment, separators. Unchanged where
 * there is no such file or template. Local. */
void import_pairs(json_t *model, const char *path);

#endif
