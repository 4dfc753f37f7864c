/* Question sets: which of several texts a model finds most probable, as lm-evaluation-harness asks
 * it. */
#pragma once

#include "base/config/config.h"
#include "mesh/mesh.h"

#include <mpi.h>

/** Score `score.questions` with `score.model`, a causal model or an ensemble, into RUN/score:
 * questions.jsonl and summary.json; with score.questions_form=lm-eval results.json and
 * samples_TASK.jsonl too. `plan`: as of bp_work_run.
 *
 * Collective: over `world`; `config` is equal on all ranks and gets its resolved values.
 * Errors:     the same on all ranks. Those of bp_work_run; BP_ERR_CONFIG a model that is not causal
 *             or has no tokenizer, keys that have no meaning with it; BP_ERR_FORMAT a line that is
 *             not a question, with file and line. */
bp_err bp_questions(MPI_Comm world, bp_config *config, const bp_planned_world *plan);
