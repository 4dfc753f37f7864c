/* A GPT behind the face of language models: forward only, over the pipeline and tensor ranks of one
 * model group. */
#ifndef BP_MODELS_GPT_GPT_LM_PRIV_H
#define BP_MODELS_GPT_GPT_LM_PRIV_H

#include "io/checkpoint/checkpoint.h"
#include "models/gpt/gpt.h"

/** Collective over mesh->member. info: kind, statistics, width, context and the vocabulary are
 * filled.
 */
bp_err bp_gpt_lm_open(bp_lm **out, const bp_mesh *mesh, const bp_config *config,
                      bp_checkpoint *checkpoint);

/** bp_lm_estimate of a model of this shape. */
bp_err bp_gpt_lm_estimate(bp_lm_memory *out, const bp_gpt_shape *shape, const bp_config *config,
                          const bp_lm_task *task);

#endif
