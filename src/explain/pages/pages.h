/* Pages of methods of the whole corpus. Local: no MPI. */
#pragma once

#include "explain/pages/gather.h"

/** Writes the page of a method with these figures of METHOD.h5. Returns {"file", "text"} of the
 * link to it; null if the method has no page or, with a warning, it was not written. New
 * reference. */
json_t *explain_page_of(const explain_gathered *gathered, explainer *self,
                        const bp_explain_method *method, const json_t *figures);
/** bp_work.missing: a missing page of an example listed in summary.json, or of a method. */
const char *explain_missing_page(void *context, const char *folder);
