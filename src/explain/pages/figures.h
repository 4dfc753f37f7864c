/* Names of figures and arrays as pages write them: summary.json and the files have keys. Local: no
 * MPI. */
#pragma once

#include "base/config/json.h"

/** A figure or an array in words, with its unit. New reference. */
json_t *explain_worded(const char *name);
/** A statistic of heads, in words; pairs: there is a source, so which text looks at which is said.
 * New reference. */
json_t *explain_head_title(const char *name, bool pairs);
/** What a statistic of heads means, and its unit; null if there is nothing to say. New reference.
 */
json_t *explain_head_meaning(const char *name);
