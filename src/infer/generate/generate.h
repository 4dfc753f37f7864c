/* Generation: prompts continued by a model or an ensemble. */
#pragma once

#include "infer/generate/keys.h"
#include "job/work.h"

/** Add the faults of the configuration that need neither files nor ranks to the configuration's.
 * Local. */
void bp_generate_check(bp_config *config);
/** Warn about keys without effect. Local. */
void bp_generate_warn(const bp_config *config);

/** bp_work_start: continue `generate.prompts` by `generate.model`, a model or an ensemble, into
 * RUN/generate, resuming an earlier stopped start. Writes RUN/generate/index.html; failure to write
 * this page is a warning. `plan`: as for bp_work_run, measured with one unit.
 *
 * Collective: over `world`; `config` is equal on all ranks and gets its resolved values.
 * Errors:     the same on all ranks. BP_ERR_CONFIG a model that can't continue text, no tokenizer,
 *             a stop text that can't be encoded, more beams than tokens, a mesh that does not fit,
 *             another run's folder; BP_ERR_FORMAT prompts (bp_prompts_read), a tokenizer that is
 *             not the model's, damaged inputs; BP_ERR_INPUT; BP_ERR_BUSY another job holds the
 *             folder; BP_ERR_SYSTEM memory; BP_ERR_SOFTWARE a log-probability that is not finite;
 *             BP_ERR_IO disk full; BP_ERR_STOPPED stopped in time: the same command resumes. */
extern const bp_work bp_generate_work;
