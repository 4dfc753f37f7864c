/* Reads how a tokenizer.json frames two texts. */
#pragma once

#include "base/config/json.h"

/** Set begins, unframed, one_segment and separators in the "model" object of a task's checkpoint by
 * the template of two texts in the tokenizer.json at `path`. Unchanged if there is no such file or
 * template. Local. */
void import_pairs(json_t *model, const char *path);
